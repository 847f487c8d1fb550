//! What stands before a call's trained tokens in a trainer row.
//!
//! ```text
//! sequence of the row   [ prompt of the call … | output 0 | output 1 | … | output o | … ]
//!                         prompt_len tokens      ^ the first trained one has o tokens of its output before it
//! ```
//!
//! A trained token is right where the tokens before it are the call's prompt and the output so far. Whether the output's
//! own trained tokens are the call's is another check's question (token/equal): they count as equal here.

use std::collections::BTreeMap;
use std::sync::Arc;

use datafusion::arrow::array::{
    ArrayRef, AsArray, BooleanArray, BooleanBuilder, Int32Builder, ListBuilder, StringBuilder,
};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Field, Int32Type};
use datafusion::logical_expr::ScalarUDF;
use rollbook_schema::digest::{BLOCK_LEN, TokenChain};

use super::lists::{any_struct, fields, int, item, list, list_of_structs, lists, mask};
use super::row_function::RowFunction;
use super::segments::{Row, Source};

/// Stands for a trained token among the output tokens seen.
const TRAINED: i32 = i32::MIN;

/// A run of trained tokens: its place in the row and in its sequence, its offset in the call's output, and its length.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Trained {
    pub(crate) in_row: usize,
    pub(crate) in_sequence: usize,
    pub(crate) offset: usize,
    length: usize,
}

/// One call's trained tokens in one sequence of a row.
#[derive(Debug, Clone)]
pub(crate) struct CallUse {
    pub(crate) rollout: Option<String>,
    pub(crate) call: String,
    pub(crate) sequence: i32,
    runs: Vec<Trained>,
}

impl CallUse {
    /// The trained tokens one by one.
    pub(crate) fn tokens(&self) -> impl Iterator<Item = Trained> + '_ {
        self.runs.iter().flat_map(|run| {
            (0..run.length).map(|at| Trained {
                in_row: run.in_row + at,
                in_sequence: run.in_sequence + at,
                offset: run.offset + at,
                length: 1,
            })
        })
    }
}

/// Where the tokens of a sequence stand in the row: start and length of each piece.
#[derive(Debug, Clone, Default)]
pub(crate) struct Pieces(Vec<(usize, usize)>);

impl Pieces {
    /// The row offsets of the sequence's tokens, one by one.
    pub(crate) fn places(&self) -> Vec<usize> {
        self.0.iter().flat_map(|(start, length)| *start..start + length).collect()
    }

    /// The tokens; none where a piece reaches beyond the row.
    fn tokens(&self, row: &[i32]) -> Option<Vec<i32>> {
        let mut tokens = Vec::new();
        for (start, length) in &self.0 {
            tokens.extend_from_slice(row.get(*start..start + length)?);
        }
        Some(tokens)
    }
}

/// The row's sequences and the calls that train in them.
pub(crate) fn uses_of(row: &Row) -> (BTreeMap<i32, Pieces>, Vec<CallUse>) {
    let mut sequences: BTreeMap<i32, (usize, Pieces)> = BTreeMap::new();
    let mut uses: Vec<CallUse> = Vec::new();
    for segment in row.segments.iter().filter(|segment| segment.source != Source::Pad) {
        // What parts a sequence from the one before it is no token that a call saw.
        let is_behind_another = !sequences.is_empty() && !sequences.contains_key(&segment.sequence);
        if segment.source == Source::Boundary && is_behind_another {
            continue;
        }
        let (length, pieces) = sequences.entry(segment.sequence).or_default();
        let before = *length;
        *length += segment.length;
        pieces.0.push((segment.start, segment.length));
        let (Source::Output, Some(call), Some(origin)) = (segment.source, &segment.call, segment.source_start) else {
            continue;
        };
        for (offset, length) in row.trained_runs(segment) {
            let run = Trained {
                in_row: segment.start + offset,
                in_sequence: before + offset,
                offset: origin + offset,
                length,
            };
            match uses.iter_mut().find(|used| used.sequence == segment.sequence && used.call == *call) {
                Some(used) => used.runs.push(run),
                None => uses.push(CallUse {
                    rollout: segment.rollout.clone(),
                    call: call.clone(),
                    sequence: segment.sequence,
                    runs: vec![run],
                }),
            }
        }
    }
    (sequences.into_iter().map(|(index, (_, pieces))| (index, pieces)).collect(), uses)
}

fn context_fields() -> [(&'static str, DataType); 6] {
    [
        ("rollout_id", DataType::Utf8),
        ("call_id", DataType::Utf8),
        ("row_start", DataType::Int32),
        ("prompt_len", DataType::Int32),
        ("prompt_digest", DataType::Utf8),
        ("output_seen", DataType::List(Arc::new(Field::new("item", DataType::Int32, true)))),
    ]
}

/// `row_contexts`: a `prompt_len` of -1 where a call's trained tokens do not stand in one line.
pub(super) fn row_contexts() -> ScalarUDF {
    let arguments = vec![list(DataType::Int32), list(any_struct()), list(DataType::Boolean)];
    let returns = list(DataType::Struct(fields(&context_fields())));
    RowFunction::udf("row_contexts", arguments, returns, |arrays, rows| {
        let (tokens, segments, masks) = (lists(arrays, 0)?, lists(arrays, 1)?, lists(arrays, 2)?);
        let mut out = Contexts::default();
        let mut counts = Vec::with_capacity(rows);
        for row in 0..rows {
            let (Some(tokens), Some(items)) = (item(tokens, row), item(segments, row)) else {
                counts.push(0);
                continue;
            };
            let tokens = cast(&tokens, &DataType::Int32)?;
            let tokens = tokens.as_primitive::<Int32Type>().values();
            let read = Row::read(&items, mask(masks, row)?)?;
            counts.push(out.add(tokens, &read));
        }
        list_of_structs(counts, fields(&context_fields()), out.finish())
    })
}

#[derive(Default)]
struct Contexts {
    rollouts: StringBuilder,
    calls: StringBuilder,
    row_starts: Int32Builder,
    prompt_lens: Int32Builder,
    digests: StringBuilder,
    seen: ListBuilder<Int32Builder>,
}

impl Contexts {
    fn add(&mut self, tokens: &[i32], row: &Row) -> usize {
        let (sequences, uses) = uses_of(row);
        let mut count = 0;
        for (index, pieces) in &sequences {
            let Some(sequence) = pieces.tokens(tokens) else {
                // The segments reach beyond the row: token/length has that.
                continue;
            };
            let mut chain = Prefixes::new(&sequence);
            for used in uses.iter().filter(|used| used.sequence == *index) {
                count += 1;
                self.add_use(used, &sequence, &mut chain);
            }
        }
        count
    }

    fn add_use(&mut self, used: &CallUse, sequence: &[i32], chain: &mut Prefixes<'_>) {
        self.rollouts.append_option(used.rollout.as_deref());
        self.calls.append_value(&used.call);
        self.row_starts.append_option(used.runs.first().map(|run| int(run.in_row)));
        let prompt = used.runs.first().and_then(|run| run.in_sequence.checked_sub(run.offset));
        let prompt = prompt.filter(|prompt| used.runs.iter().all(|run| run.in_sequence == prompt + run.offset));
        let Some(prompt) = prompt else {
            self.prompt_lens.append_value(-1);
            self.digests.append_null();
            self.seen.append_null();
            return;
        };
        self.prompt_lens.append_value(int(prompt));
        self.digests.append_value(chain.digest(prompt));
        let last = used.runs.iter().map(|run| run.offset + run.length - 1).max().unwrap_or(0);
        let mut output: Vec<i32> = sequence.get(prompt..prompt + last).unwrap_or_default().to_vec();
        for run in &used.runs {
            let end = (run.offset + run.length).min(output.len());
            if let Some(slots) = output.get_mut(run.offset..end) {
                slots.fill(TRAINED);
            }
        }
        if output.iter().all(|token| *token == TRAINED) {
            self.seen.append_null();
        } else {
            self.seen.append_value(output.into_iter().map(Some));
        }
    }

    fn finish(mut self) -> Vec<ArrayRef> {
        vec![
            Arc::new(self.rollouts.finish()),
            Arc::new(self.calls.finish()) as ArrayRef,
            Arc::new(self.row_starts.finish()),
            Arc::new(self.prompt_lens.finish()),
            Arc::new(self.digests.finish()),
            Arc::new(self.seen.finish()),
        ]
    }
}

/// Digests of a list's beginnings, each block hashed once where the lengths grow.
struct Prefixes<'a> {
    tokens: &'a [i32],
    chain: TokenChain,
    done: usize,
}

impl<'a> Prefixes<'a> {
    fn new(tokens: &'a [i32]) -> Self {
        Self { tokens, chain: TokenChain::new(), done: 0 }
    }

    fn digest(&mut self, length: usize) -> String {
        if length < self.done {
            (self.chain, self.done) = (TokenChain::new(), 0);
        }
        while self.done + BLOCK_LEN <= length {
            self.chain.push_block(self.tokens.get(self.done..self.done + BLOCK_LEN).unwrap_or_default());
            self.done += BLOCK_LEN;
        }
        let mut last = self.chain;
        last.push_block(self.tokens.get(self.done..length).unwrap_or_default());
        last.digest()
    }
}

pub(super) fn output_differs() -> ScalarUDF {
    let arguments = vec![list(DataType::Int32), list(DataType::Int32)];
    RowFunction::udf("output_differs", arguments, DataType::Boolean, |arrays, rows| {
        let (seen, outputs) = (lists(arrays, 0)?, lists(arrays, 1)?);
        let mut differs = BooleanBuilder::with_capacity(rows);
        for row in 0..rows {
            let (Some(seen), Some(output)) = (item(seen, row), item(outputs, row)) else {
                differs.append_value(false);
                continue;
            };
            let (seen, output) = (cast(&seen, &DataType::Int32)?, cast(&output, &DataType::Int32)?);
            let (seen, output) =
                (seen.as_primitive::<Int32Type>().values(), output.as_primitive::<Int32Type>().values());
            let equal = seen.len() <= output.len()
                && seen.iter().zip(output.iter()).all(|(seen, own)| *seen == TRAINED || seen == own);
            differs.append_value(!equal);
        }
        let differs: BooleanArray = differs.finish();
        Ok(Arc::new(differs) as ArrayRef)
    })
}

#[cfg(test)]
mod tests {
    use rollbook_schema::digest::token_digest;

    use super::*;

    #[test]
    fn prefixes_have_the_digest_of_their_tokens() {
        let tokens: Vec<i32> = (0..700).collect();
        let mut prefixes = Prefixes::new(&tokens);
        for length in [0, 1, 255, 256, 257, 600, 512, 10, 700] {
            assert_eq!(prefixes.digest(length), token_digest(&tokens[..length]), "{length}");
        }
    }
}
