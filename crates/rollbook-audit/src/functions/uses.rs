//! The stretches of calls' outputs that a trainer row holds, by digest: what agrees is never read again.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, AsArray, Float32Array, Int32Builder, StringBuilder};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Int32Type};
use datafusion::logical_expr::ScalarUDF;
use rollbook_schema::digest::token_digest;

use super::lists::{any_struct, fields, int, item, list, list_of_structs, lists, mask};
use super::logprobs::{digest_of, floats};
use super::row_function::RowFunction;
use super::segments::{Row, Source};

/// Stands for the digest of logprobs of which some tokens do not train.
const PARTIAL: &str = "partial";

fn use_fields() -> [(&'static str, DataType); 5] {
    [
        ("call_id", DataType::Utf8),
        ("start", DataType::Int32),
        ("length", DataType::Int32),
        ("token_digest", DataType::Utf8),
        ("logprob_digest", DataType::Utf8),
    ]
}

/// A stretch of a call's output in a row: segments that follow each other in both.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Stretch {
    call: String,
    sequence: i32,
    row_start: usize,
    start: usize,
    length: usize,
    trained: usize,
}

/// `output_uses`: the stretches of outputs with a trained token, each with its digests. The logprobs' digest is null where
/// the row keeps none, and `partial` where a token of the stretch does not train.
pub(super) fn output_uses() -> ScalarUDF {
    let arguments = vec![list(DataType::Int32), list(any_struct()), list(DataType::Boolean), list(DataType::Float32)];
    let returns = list(DataType::Struct(fields(&use_fields())));
    RowFunction::udf("output_uses", arguments, returns, |arrays, rows| {
        let (tokens, segments) = (lists(arrays, 0)?, lists(arrays, 1)?);
        let (masks, logprobs) = (lists(arrays, 2)?, lists(arrays, 3)?);
        let mut out = Uses::default();
        let mut counts = Vec::with_capacity(rows);
        for row in 0..rows {
            let (Some(tokens), Some(items)) = (item(tokens, row), item(segments, row)) else {
                counts.push(0);
                continue;
            };
            let tokens = cast(&tokens, &DataType::Int32)?;
            let tokens = tokens.as_primitive::<Int32Type>().values();
            // A list of another length says nothing of which token it means: token/length has that.
            let logprobs = floats(item(logprobs, row))?.filter(|logprobs| logprobs.len() == tokens.len());
            let found = stretches(&Row::read(&items, mask(masks, row)?)?);
            counts.push(found.iter().filter(|stretch| out.add(stretch, tokens, logprobs.as_ref())).count());
        }
        list_of_structs(counts, fields(&use_fields()), out.finish())
    })
}

fn stretches(row: &Row) -> Vec<Stretch> {
    let mut found: Vec<Stretch> = Vec::new();
    for segment in &row.segments {
        let (Source::Output, Some(call), Some(start)) = (segment.source, &segment.call, segment.source_start) else {
            continue;
        };
        let trained = row.trained_count(segment);
        match found.last_mut() {
            Some(last)
                if last.call == *call
                    && last.sequence == segment.sequence
                    && last.row_start + last.length == segment.start
                    && last.start + last.length == start =>
            {
                last.length += segment.length;
                last.trained += trained;
            }
            _ => found.push(Stretch {
                call: call.clone(),
                sequence: segment.sequence,
                row_start: segment.start,
                start,
                length: segment.length,
                trained,
            }),
        }
    }
    found.retain(|stretch| stretch.trained > 0);
    found
}

#[derive(Default)]
struct Uses {
    calls: StringBuilder,
    starts: Int32Builder,
    lengths: Int32Builder,
    tokens: StringBuilder,
    logprobs: StringBuilder,
}

impl Uses {
    /// Adds a stretch; one that reaches beyond the row is left out.
    fn add(&mut self, stretch: &Stretch, tokens: &[i32], logprobs: Option<&Float32Array>) -> bool {
        let Some(ids) = tokens.get(stretch.row_start..stretch.row_start + stretch.length) else {
            return false;
        };
        self.calls.append_value(&stretch.call);
        self.starts.append_value(int(stretch.start));
        self.lengths.append_value(int(stretch.length));
        self.tokens.append_value(token_digest(ids));
        self.logprobs.append_option(logprobs.map(|logprobs| {
            if stretch.trained == stretch.length {
                digest_of(&logprobs.slice(stretch.row_start, stretch.length))
            } else {
                PARTIAL.to_owned()
            }
        }));
        true
    }

    fn finish(mut self) -> Vec<ArrayRef> {
        vec![
            Arc::new(self.calls.finish()) as ArrayRef,
            Arc::new(self.starts.finish()),
            Arc::new(self.lengths.finish()),
            Arc::new(self.tokens.finish()),
            Arc::new(self.logprobs.finish()),
        ]
    }
}
