//! Columns of some tokens, from the calls they belong to.

use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, ArrowPrimitiveType, AsArray, BooleanArray, BooleanBuilder, Float64Builder, Int32Array, Int64Array,
    Int64Builder, ListArray, MapBuilder, MapFieldNames, PrimitiveArray, PrimitiveBuilder, RecordBatch,
    RecordBatchOptions, StringBuilder, StructArray, UInt32Array,
};
use datafusion::arrow::compute::{cast, take};
use datafusion::arrow::datatypes::{DataType, Field, Float32Type, Int32Type, Int64Type, SchemaRef};
use datafusion::common::{Result, exec_datafusion_err, exec_err};

use super::KEYS;
use super::piece::pieces;
use super::signals::Signals;

/// Neighboring tokens of one call: its row and the positions `from..to`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Run {
    row: usize,
    pub(super) from: usize,
    pub(super) to: usize,
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
        let rows = if schema.fields().iter().any(|field| KEYS.contains(&field.name().as_str())) {
            Some(self.rows()?)
        } else {
            None
        };
        let columns =
            schema.fields().iter().map(|field| self.column(field, rows.as_ref())).collect::<Result<Vec<_>>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(self.count()));
        Ok(RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)?)
    }

    fn count(&self) -> usize {
        self.runs.iter().map(|run| run.to - run.from).sum()
    }

    /// Every token's call.
    fn rows(&self) -> Result<UInt32Array> {
        let row =
            |(row, _)| u32::try_from(row).map_err(|error| exec_datafusion_err!("too many calls in a batch: {error}"));
        Ok(self.places().map(row).collect::<Result<Vec<u32>>>()?.into())
    }

    fn column(&self, field: &Field, rows: Option<&UInt32Array>) -> Result<ArrayRef> {
        Ok(match field.name().as_str() {
            "position" => {
                Arc::new(self.places().map(|(_, at)| i32::try_from(at).unwrap_or(i32::MAX)).collect::<Int32Array>())
            }
            "token_id" => self.items::<Int32Type>("output_token_ids")?,
            "logprob" => self.items::<Float32Type>("output_logprobs")?,
            "is_sampled" => self.is_sampled()?,
            "policy_version" => self.policy_versions()?,
            "signals" => self.signals()?,
            "advantage" => self.numbers("advantages", |_, new| new)?,
            "loss_weight" => self.numbers("loss_weights", |old, new| old + new)?,
            "trained" => self.trained()?,
            key => match rows {
                Some(rows) => take(column(self.calls, key)?, rows, None)?,
                None => return exec_err!("{key} is no column that a call's tokens share"),
            },
        })
    }

    /// Every token's row and position.
    fn places(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        self.runs.iter().flat_map(|run| (run.from..run.to).map(|at| (run.row, at)))
    }

    /// The items of a list at the tokens' positions, null beyond its end.
    fn items<T: ArrowPrimitiveType>(&self, name: &str) -> Result<ArrayRef> {
        let lists = column(self.calls, name)?.as_list::<i32>();
        let all = lists.values().as_primitive::<T>();
        let mut out = PrimitiveBuilder::<T>::with_capacity(self.count());
        for run in self.runs {
            let [start, end] = [lists.offsets()[run.row], lists.offsets()[run.row + 1]];
            let (start, end) = (usize::try_from(start).unwrap_or_default(), usize::try_from(end).unwrap_or_default());
            let end = if lists.is_valid(run.row) { end } else { start };
            let (from, to) = ((start + run.from).min(end), (start + run.to).min(end));
            if all.null_count() == 0 {
                out.append_slice(&all.values()[from..to]);
            } else {
                (from..to).for_each(|at| out.append_option(value_at(all, at)));
            }
            out.append_nulls(run.to - run.from - (to - from));
        }
        Ok(Arc::new(out.finish()))
    }

    /// No mask says that all are sampled; a mask that ends early says nothing of the rest.
    fn is_sampled(&self) -> Result<ArrayRef> {
        let lists = column(self.calls, "sampled_mask")?.as_list::<i32>();
        let mut out = BooleanBuilder::new();
        for run in self.runs {
            let mask = item(lists, run.row);
            match mask.as_ref().map(AsArray::as_boolean) {
                Some(mask) => {
                    (run.from..run.to).for_each(|at| out.append_option(flag_at(mask, at)));
                }
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
            let Some(spans) = spans.as_ref().map(AsArray::as_struct) else {
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
                piece.numbers(name, run, &mut values, &join)?;
            }
            for value in values {
                out.append_option(value);
            }
        }
        Ok(Arc::new(out.finish()))
    }

    fn trained(&self) -> Result<ArrayRef> {
        let lists = column(self.calls, "_pieces")?.as_list::<i32>();
        let mut out = BooleanBuilder::new();
        for run in self.runs {
            let mut values = vec![false; run.to - run.from];
            for piece in pieces(lists, run.row)? {
                piece.mark_trained(run, &mut values)?;
            }
            for value in values {
                out.append_value(value);
            }
        }
        Ok(Arc::new(out.finish()))
    }
}

/// The version in force at a position.
fn version_at(starts: &Int64Array, marks: &Int64Array, at: usize, own: Option<i64>) -> Option<i64> {
    let at = i64::try_from(at).unwrap_or(i64::MAX);
    let mut best: Option<(i64, Option<i64>)> = None;
    for index in 0..starts.len() {
        let Some(start) = value_at(starts, index) else {
            continue;
        };
        if start <= at && best.is_none_or(|(known, _)| known <= start) {
            best = Some((start, value_at(marks, index)));
        }
    }
    best.map_or(own, |(_, version)| version)
}

fn column<'a>(batch: &'a RecordBatch, name: &str) -> Result<&'a ArrayRef> {
    batch.column_by_name(name).ok_or_else(|| exec_datafusion_err!("tokens are made without the column {name}"))
}

pub(super) fn field<'a>(array: &'a StructArray, name: &str) -> Result<&'a ArrayRef> {
    array.column_by_name(name).ok_or_else(|| exec_datafusion_err!("tokens are made without the field {name}"))
}

pub(super) fn item(lists: &ListArray, row: usize) -> Option<ArrayRef> {
    lists.is_valid(row).then(|| lists.value(row))
}

pub(super) fn value_at<T: ArrowPrimitiveType>(array: &PrimitiveArray<T>, at: usize) -> Option<T::Native> {
    (at < array.len() && array.is_valid(at)).then(|| array.value(at))
}

pub(super) fn flag_at(array: &BooleanArray, at: usize) -> Option<bool> {
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
