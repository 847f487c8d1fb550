//! A trainer row's segments, and the tokens of them that train.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, BooleanArray, Int32Array, Int32Builder, StringArray, StringBuilder};
use datafusion::arrow::buffer::BooleanBuffer;
use datafusion::arrow::datatypes::DataType;
use datafusion::common::Result;
use datafusion::logical_expr::ScalarUDF;

use super::lists::{
    any_struct, bits, bool_field, fields, index, int, int_field, is_set, item, list, list_of_structs, lists, mask,
    structs, text_field, true_runs,
};
use super::row_function::RowFunction;

/// The sequence of a segment that names none, before it is numbered.
const UNNAMED: i32 = i32::MIN;

/// What a segment holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    /// Tokens that a call sampled or was given after its prompt.
    Output,
    /// Padding: it belongs to no sequence, wherever it stands.
    Pad,
    /// A token that parts sequences; it belongs to the one it precedes.
    Boundary,
    /// Tokens of a call's prompt.
    Other,
}

/// One segment of a row.
#[derive(Debug, Clone)]
pub(crate) struct Segment {
    pub(crate) start: usize,
    pub(crate) length: usize,
    pub(crate) sequence: i32,
    pub(crate) rollout: Option<String>,
    pub(crate) call: Option<String>,
    pub(crate) source: Source,
    pub(crate) source_start: Option<usize>,
    trained: bool,
}

/// A row's segments in order, with the mask that says which tokens train.
#[derive(Debug, Clone)]
pub(crate) struct Row {
    pub(crate) segments: Vec<Segment>,
    mask: Option<BooleanBuffer>,
}

impl Row {
    /// Reads a row; segments without place are left out.
    pub(crate) fn read(segments: &ArrayRef, mask: Option<BooleanArray>) -> Result<Self> {
        let items = structs(segments)?;
        let (starts, lengths) = (int_field(items, "start")?, int_field(items, "length")?);
        let (sequences, origins) = (int_field(items, "sequence_index")?, int_field(items, "source_start")?);
        let (rollouts, calls) = (text_field(items, "rollout_id")?, text_field(items, "call_id")?);
        let (sources, trained) = (text_field(items, "source")?, bool_field(items, "trained")?);
        let text = |texts: &StringArray, at: usize| texts.is_valid(at).then(|| texts.value(at).to_owned());
        let mut read = Vec::with_capacity(items.len());
        for at in (0..items.len()).filter(|at| items.is_valid(*at)) {
            let (Some(start), Some(length)) = (index(&starts, at), index(&lengths, at)) else {
                continue;
            };
            let source = match sources.is_valid(at).then(|| sources.value(at)) {
                Some("output") => Source::Output,
                Some("pad") => Source::Pad,
                Some("boundary") => Source::Boundary,
                _ => Source::Other,
            };
            read.push(Segment {
                start,
                length,
                sequence: if sequences.is_valid(at) { sequences.value(at) } else { UNNAMED },
                rollout: text(&rollouts, at),
                call: text(&calls, at),
                source,
                source_start: index(&origins, at),
                trained: is_set(&trained, at),
            });
        }
        read.sort_by_key(|segment| segment.start);
        name_sequences(&mut read);
        let total = read.iter().map(|segment| segment.start + segment.length).max().unwrap_or(0);
        // A mask of another length says nothing of which token it means: what the segments say stands.
        let mask = mask.filter(|mask| mask.len() == total).map(|mask| bits(&mask));
        Ok(Self { segments: read, mask })
    }

    /// How many tokens of a segment train.
    pub(crate) fn trained_count(&self, segment: &Segment) -> usize {
        match &self.mask {
            Some(mask) => mask.slice(segment.start, segment.length).count_set_bits(),
            None if segment.trained => segment.length,
            None => 0,
        }
    }

    /// Whether a token of a segment trains.
    pub(crate) fn trains(&self, segment: &Segment, at: usize) -> bool {
        match &self.mask {
            Some(mask) => at < mask.len() && mask.value(at),
            None => segment.trained,
        }
    }

    /// Runs of trained tokens of a segment: offset in the segment, and length.
    pub(crate) fn trained_runs(&self, segment: &Segment) -> Vec<(usize, usize)> {
        let Some(mask) = &self.mask else {
            return if segment.trained && segment.length > 0 { vec![(0, segment.length)] } else { Vec::new() };
        };
        let runs = true_runs(mask, segment.start..segment.start + segment.length);
        runs.map(|(start, length)| (start - segment.start, length)).collect()
    }
}

/// Numbers the sequences of segments that name none: where no segment does, another rollout is another sequence.
fn name_sequences(segments: &mut [Segment]) {
    let (mut number, mut before): (i32, Option<String>) = (0, None);
    for segment in segments.iter_mut().filter(|segment| segment.source != Source::Pad) {
        if segment.sequence != UNNAMED {
            number = segment.sequence;
        } else if before.is_some() && segment.rollout.is_some() && before != segment.rollout {
            number += 1;
        }
        segment.sequence = number;
        if segment.rollout.is_some() {
            before.clone_from(&segment.rollout);
        }
    }
}

fn span_fields() -> [(&'static str, DataType); 6] {
    [
        ("rollout_id", DataType::Utf8),
        ("call_id", DataType::Utf8),
        ("start", DataType::Int32),
        ("length", DataType::Int32),
        ("row_start", DataType::Int32),
        ("sequence_index", DataType::Int32),
    ]
}

pub(super) fn trained_spans() -> ScalarUDF {
    let arguments = vec![list(any_struct()), list(DataType::Boolean)];
    let returns = list(DataType::Struct(fields(&span_fields())));
    RowFunction::udf("trained_spans", arguments, returns, |arrays, rows| {
        let (segments, masks) = (lists(arrays, 0)?, lists(arrays, 1)?);
        let (mut rollouts, mut calls) = (StringBuilder::new(), StringBuilder::new());
        let (mut starts, mut lengths, mut places) = (Int32Builder::new(), Int32Builder::new(), Int32Builder::new());
        let mut sequences = Int32Builder::new();
        let mut counts = Vec::with_capacity(rows);
        for row in 0..rows {
            let mut count = 0;
            if let Some(items) = item(segments, row) {
                let read = Row::read(&items, mask(masks, row)?)?;
                let outputs = read.segments.iter().filter(|segment| segment.source == Source::Output);
                let named =
                    outputs.filter_map(|segment| Some((segment, segment.call.as_ref()?, segment.source_start?)));
                let runs = named.flat_map(|(segment, call, origin)| {
                    read.trained_runs(segment).into_iter().map(move |run| (segment, call, origin, run))
                });
                for (segment, call, origin, (offset, length)) in runs {
                    rollouts.append_option(segment.rollout.as_deref());
                    calls.append_value(call);
                    starts.append_value(int(origin + offset));
                    lengths.append_value(int(length));
                    places.append_value(int(segment.start + offset));
                    sequences.append_value(segment.sequence);
                    count += 1;
                }
            }
            counts.push(count);
        }
        let columns: Vec<ArrayRef> = vec![
            Arc::new(rollouts.finish()),
            Arc::new(calls.finish()),
            Arc::new(starts.finish()) as ArrayRef,
            Arc::new(lengths.finish()),
            Arc::new(places.finish()),
            Arc::new(sequences.finish()),
        ];
        list_of_structs(counts, fields(&span_fields()), columns)
    })
}

/// Integers as a column.
pub(super) fn column(values: Vec<i32>) -> ArrayRef {
    Arc::new(Int32Array::from(values))
}
