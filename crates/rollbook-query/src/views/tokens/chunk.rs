//! Columns of some tokens, from the calls they belong to.

use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, BooleanBuilder, Float32Builder, Float64Array, Float64Builder, Int32Array,
    Int32Builder, Int64Array, Int64Builder, ListArray, MapBuilder, MapFieldNames, RecordBatch, RecordBatchOptions,
    StringArray, StringBuilder, StructArray, UInt32Array,
};
use datafusion::arrow::compute::{cast, take};
use datafusion::arrow::datatypes::{DataType, Field, Float32Type, Int32Type, Int64Type, SchemaRef};
use datafusion::common::{Result, exec_datafusion_err};

/// Neighboring tokens of one call: its row and the positions `from..to`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Run {
    row: usize,
    from: usize,
    to: usize,
}

/// Returns the number of output tokens of each call; an unknown output has none.
pub(super) fn token_counts(calls: &RecordBatch) -> Result<Vec<usize>> {
    let lengths = column(calls, "output_len")?.as_primitive::<Int32Type>();
    Ok(lengths.iter().map(|length| length.and_then(|length| usize::try_from(length).ok()).unwrap_or(0)).collect())
}

/// Takes up to `limit` tokens from a place on; returns them and the place to go on from.
pub(super) fn next_chunk(counts: &[usize], row: usize, position: usize, limit: usize) -> (Vec<Run>, usize, usize) {
    let (mut row, mut from, mut room) = (row, position, limit.max(1));
    let mut runs = Vec::new();
    while let Some(&count) = counts.get(row) {
        if from >= count {
            (row, from) = (row + 1, 0);
            continue;
        }
        if room == 0 {
            break;
        }
        let to = count.min(from + room);
        runs.push(Run { row, from, to });
        room -= to - from;
        from = to;
    }
    (runs, row, from)
}

/// Some tokens of a batch of calls.
pub(super) struct Chunk<'a> {
    pub(super) calls: &'a RecordBatch,
    pub(super) runs: &'a [Run],
}

impl Chunk<'_> {
    /// Builds the columns of `schema`.
    pub(super) fn batch(&self, schema: &SchemaRef) -> Result<RecordBatch> {
        let rows: UInt32Array = self
            .places()
            .map(|(row, _)| u32::try_from(row).map_err(|_| exec_datafusion_err!("too many calls in a batch")))
            .collect::<Result<Vec<u32>>>()?
            .into();
        let columns = schema
            .fields()
            .iter()
            .map(|field| self.column(field, &rows))
            .collect::<Result<Vec<_>>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(rows.len()));
        Ok(RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)?)
    }

    fn column(&self, field: &Field, rows: &UInt32Array) -> Result<ArrayRef> {
        Ok(match field.name().as_str() {
            "position" => Arc::new(
                self.places().map(|(_, at)| i32::try_from(at).unwrap_or(i32::MAX)).collect::<Int32Array>(),
            ),
            "token_id" => self.token_ids()?,
            "logprob" => self.logprobs()?,
            "is_sampled" => self.is_sampled()?,
            "policy_version" => self.policy_versions()?,
            "signals" => self.signals()?,
            "advantage" => self.numbers("advantages", |_, new| new)?,
            "loss_weight" => self.numbers("loss_weights", |old, new| old + new)?,
            "trained" => self.trained()?,
            key => take(column(self.calls, key)?, rows, None)?,
        })
    }

    /// Every token's row and position.
    fn places(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        self.runs.iter().flat_map(|run| (run.from..run.to).map(|at| (run.row, at)))
    }

    fn token_ids(&self) -> Result<ArrayRef> {
        let lists = column(self.calls, "output_token_ids")?.as_list::<i32>();
        let mut out = Int32Builder::new();
        for run in self.runs {
            let ids = item(lists, run.row);
            let ids = ids.as_ref().map(|ids| ids.as_primitive::<Int32Type>());
            (run.from..run.to).for_each(|at| out.append_option(ids.and_then(|ids| value_at(ids, at))));
        }
        Ok(Arc::new(out.finish()))
    }

    fn logprobs(&self) -> Result<ArrayRef> {
        let lists = column(self.calls, "output_logprobs")?.as_list::<i32>();
        let mut out = Float32Builder::new();
        for run in self.runs {
            let values = item(lists, run.row);
            let values = values.as_ref().map(|values| values.as_primitive::<Float32Type>());
            (run.from..run.to).for_each(|at| out.append_option(values.and_then(|values| value_at(values, at))));
        }
        Ok(Arc::new(out.finish()))
    }

    /// No mask says that all are sampled; a mask that ends early says nothing of the rest.
    fn is_sampled(&self) -> Result<ArrayRef> {
        let lists = column(self.calls, "sampled_mask")?.as_list::<i32>();
        let mut out = BooleanBuilder::new();
        for run in self.runs {
            let mask = item(lists, run.row);
            match mask.as_ref().map(|mask| mask.as_boolean()) {
                Some(mask) => (run.from..run.to).for_each(|at| out.append_option(flag_at(mask, at))),
                None => out.append_n(run.to - run.from, true),
            }
        }
        Ok(Arc::new(out.finish()))
    }

    /// A span's version holds from its start to the next span; before the first, the call's own.
    fn policy_versions(&self) -> Result<ArrayRef> {
        let versions = column(self.calls, "policy_version")?.as_primitive::<Int64Type>();
        let lists = column(self.calls, "policy_spans")?.as_list::<i32>();
        let mut out = Int64Builder::new();
        for run in self.runs {
            let own = value_at(versions, run.row);
            let spans = item(lists, run.row);
            let Some(spans) = spans.as_ref().map(|spans| spans.as_struct()) else {
                (run.from..run.to).for_each(|_| out.append_option(own));
                continue;
            };
            let starts = cast(field(spans, "start")?, &DataType::Int64)?;
            let marks = cast(field(spans, "policy_version")?, &DataType::Int64)?;
            let (starts, marks) = (starts.as_primitive::<Int64Type>(), marks.as_primitive::<Int64Type>());
            for at in run.from..run.to {
                out.append_option(version_at(starts, marks, at, own));
            }
        }
        Ok(Arc::new(out.finish()))
    }

    fn signals(&self) -> Result<ArrayRef> {
        let lists = column(self.calls, "_signals")?.as_list::<i32>();
        let names = MapFieldNames { entry: "key_value".into(), key: "key".into(), value: "value".into() };
        let mut out = MapBuilder::new(Some(names), StringBuilder::new(), Float64Builder::new());
        for run in self.runs {
            let Some(signals) = item(lists, run.row) else {
                for _ in run.from..run.to {
                    out.append(false)?;
                }
                continue;
            };
            let signals = Signals::read(signals.as_struct())?;
            for at in run.from..run.to {
                signals.append(at, &mut out);
                out.append(true)?;
            }
        }
        Ok(Arc::new(out.finish()))
    }

    /// What the samples give each token; `join` says what becomes of two.
    fn numbers(&self, name: &str, join: impl Fn(f64, f64) -> f64) -> Result<ArrayRef> {
        let lists = column(self.calls, "_pieces")?.as_list::<i32>();
        let mut out = Float64Builder::new();
        for run in self.runs {
            let mut values: Vec<Option<f64>> = vec![None; run.to - run.from];
            for piece in pieces(lists, run.row)? {
                let Some(numbers) = piece.list(name)? else { continue };
                let numbers = cast(&numbers, &DataType::Float64)?;
                let numbers: &Float64Array = numbers.as_primitive();
                for at in piece.positions(run) {
                    let new = value_at(numbers, at - piece.start);
                    if let (Some(slot), Some(new)) = (values.get_mut(at - run.from), new) {
                        *slot = Some(slot.map_or(new, |old| join(old, new)));
                    }
                }
            }
            values.into_iter().for_each(|value| out.append_option(value));
        }
        Ok(Arc::new(out.finish()))
    }

    fn trained(&self) -> Result<ArrayRef> {
        let lists = column(self.calls, "_pieces")?.as_list::<i32>();
        let mut out = BooleanBuilder::new();
        for run in self.runs {
            let mut values = vec![false; run.to - run.from];
            for piece in pieces(lists, run.row)? {
                let mask = piece.list("mask")?;
                let mask = mask.as_ref().and_then(|mask| mask.as_boolean_opt());
                for at in piece.positions(run) {
                    let masked = mask.map(|mask| flag_at(mask, at - piece.start).unwrap_or(false));
                    if let Some(slot) = values.get_mut(at - run.from) {
                        *slot |= piece.trained.unwrap_or(true) && masked.or(piece.trained).unwrap_or(false);
                    }
                }
            }
            values.into_iter().for_each(|value| out.append_value(value));
        }
        Ok(Arc::new(out.finish()))
    }
}

/// The version in force at a position.
fn version_at(starts: &Int64Array, marks: &Int64Array, at: usize, own: Option<i64>) -> Option<i64> {
    let at = i64::try_from(at).unwrap_or(i64::MAX);
    let mut best: Option<(i64, Option<i64>)> = None;
    for index in 0..starts.len() {
        let Some(start) = value_at(starts, index) else { continue };
        if start <= at && best.is_none_or(|(known, _)| known <= start) {
            best = Some((start, value_at(marks, index)));
        }
    }
    best.map_or(own, |(_, version)| version)
}

/// The signals of one call.
struct Signals {
    names: StringArray,
    values: ListArray,
}

impl Signals {
    fn read(signals: &StructArray) -> Result<Self> {
        Ok(Self {
            names: field(signals, "name")?.as_string::<i32>().clone(),
            values: field(signals, "values")?.as_list::<i32>().clone(),
        })
    }

    /// Adds the entries of one token; of two signals of one name the later stands.
    fn append(&self, at: usize, out: &mut MapBuilder<StringBuilder, Float64Builder>) {
        let mut entries = std::collections::BTreeMap::new();
        for index in 0..self.names.len() {
            if self.names.is_null(index) {
                continue;
            }
            let values = item(&self.values, index);
            let values = values.as_ref().map(|values| values.as_primitive::<datafusion::arrow::datatypes::Float64Type>());
            if let Some(values) = values.filter(|values| at < values.len()) {
                entries.insert(self.names.value(index), value_at(values, at));
            }
        }
        for (name, value) in entries {
            out.keys().append_value(name);
            out.values().append_option(value);
        }
    }
}

/// One segment of a sample that holds a stretch of a call's output.
struct Piece {
    start: usize,
    length: usize,
    trained: Option<bool>,
    lists: StructArray,
    index: usize,
}

impl Piece {
    fn list(&self, name: &str) -> Result<Option<ArrayRef>> {
        Ok(item(field(&self.lists, name)?.as_list::<i32>(), self.index))
    }

    /// The positions it shares with a run.
    fn positions(&self, run: &Run) -> std::ops::Range<usize> {
        let from = run.from.max(self.start);
        from..run.to.min(self.start + self.length).max(from)
    }
}

fn pieces(lists: &ListArray, row: usize) -> Result<Vec<Piece>> {
    let Some(array) = item(lists, row) else {
        return Ok(Vec::new());
    };
    let all = array.as_struct();
    let number = |name: &str| -> Result<ArrayRef> { Ok(cast(field(all, name)?, &DataType::Int64)?) };
    let (starts, lengths) = (number("start")?, number("length")?);
    let (starts, lengths) = (starts.as_primitive::<Int64Type>(), lengths.as_primitive::<Int64Type>());
    let trained = field(all, "trained")?.as_boolean();
    let mut found = Vec::new();
    for index in 0..all.len() {
        let place = |array: &Int64Array| value_at(array, index).and_then(|value| usize::try_from(value).ok());
        if let (Some(start), Some(length)) = (place(starts), place(lengths)) {
            found.push(Piece { start, length, trained: flag_at(trained, index), lists: all.clone(), index });
        }
    }
    Ok(found)
}

fn column<'a>(batch: &'a RecordBatch, name: &str) -> Result<&'a ArrayRef> {
    batch.column_by_name(name).ok_or_else(|| exec_datafusion_err!("tokens are made without the column {name}"))
}

fn field<'a>(array: &'a StructArray, name: &str) -> Result<&'a ArrayRef> {
    array.column_by_name(name).ok_or_else(|| exec_datafusion_err!("tokens are made without the field {name}"))
}

fn item(lists: &ListArray, row: usize) -> Option<ArrayRef> {
    lists.is_valid(row).then(|| lists.value(row))
}

fn value_at<T: datafusion::arrow::array::ArrowPrimitiveType>(
    array: &datafusion::arrow::array::PrimitiveArray<T>,
    at: usize,
) -> Option<T::Native> {
    (at < array.len() && array.is_valid(at)).then(|| array.value(at))
}

fn flag_at(array: &BooleanArray, at: usize) -> Option<bool> {
    (at < array.len() && array.is_valid(at)).then(|| array.value(at))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_tile_the_calls_and_skip_empty_ones() {
        let counts = [3, 0, 2];
        let (runs, row, position) = next_chunk(&counts, 0, 0, 4);
        assert_eq!(runs, vec![Run { row: 0, from: 0, to: 3 }, Run { row: 2, from: 0, to: 1 }]);
        let (runs, row, position) = next_chunk(&counts, row, position, 4);
        assert_eq!(runs, vec![Run { row: 2, from: 1, to: 2 }]);
        assert!(next_chunk(&counts, row, position, 4).0.is_empty());
    }

    #[test]
    fn a_span_holds_until_the_next() {
        let starts = Int64Array::from(vec![2, 5]);
        let marks = Int64Array::from(vec![8, 9]);
        let versions: Vec<_> = (0..7).map(|at| version_at(&starts, &marks, at, Some(7)).unwrap()).collect();
        assert_eq!(versions, [7, 7, 8, 8, 8, 9, 9]);
    }
}
