//! Routing records that are, number for number, another call's.
//!
//! ```text
//! call c1   tokens 1 5 6 20 21     routing R
//! call d1   tokens 1 7 8 30 31     routing R      what stood in the buffer before
//! ```
//!
//! Equal tokens have equal routing, so only those accuse that cover other tokens. Records that go on by one rule from token to token
//! were made up, and accuse nobody.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};

use futures::TryStreamExt;
use rollbook_query::{Result, Session};

use super::Found;
use crate::functions::RoutingFault;
use crate::tables::quoted;
use crate::tables::tokens::{CallKey, integers, text, tokens_of};

/// Tokens that a record holds at least to be known again.
const LEAST: usize = 4;
/// Pairs whose tokens are read.
const MOST: usize = 1000;

/// A record by what it holds.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Print {
    run: String,
    tokens: usize,
    width: usize,
    hash: [u64; 2],
}

/// The records seen so far that could be known again.
#[derive(Debug, Default)]
pub(super) struct Prints(BTreeMap<Print, Vec<(CallKey, usize)>>);

impl Prints {
    /// Keeps a record in which nothing is wrong.
    pub(super) fn add(&mut self, key: CallKey, start: usize, values: &[Option<f64>], shape: &[usize]) {
        let (tokens, width) = (shape.first().copied().unwrap_or(0), shape.iter().skip(1).product::<usize>());
        if tokens < LEAST || width < 2 || values.iter().any(Option::is_none) || is_made_up(values, width) {
            return;
        }
        let hash = |seed: u8| {
            let mut hasher = DefaultHasher::new();
            seed.hash(&mut hasher);
            values.iter().flatten().for_each(|value| value.to_bits().hash(&mut hasher));
            hasher.finish()
        };
        let print = Print { run: key.run.clone(), tokens, width, hash: [hash(0), hash(1)] };
        self.0.entry(print).or_default().push((key, start));
    }

    /// The records that repeat another call's over other tokens; the call that comes first keeps its own.
    pub(super) async fn copies(self, session: &Session) -> Result<Vec<Found>> {
        let mut alike: Vec<Pair> = Vec::new();
        for (print, mut calls) in self.0 {
            calls.sort();
            calls.dedup();
            let mut calls = calls.into_iter();
            if let Some((first, start)) = calls.next() {
                let pair = |(key, own)| {
                    (own == start).then(|| Pair { key, first: first.clone(), start, tokens: print.tokens })
                };
                alike.extend(calls.filter_map(pair));
            }
        }
        let known = outlines(session, &alike).await?;
        alike.retain(|pair| !pair.is_surely_equal(&known));
        alike.truncate(MOST);
        let keys: Vec<CallKey> = alike.iter().flat_map(|pair| [pair.key.clone(), pair.first.clone()]).collect();
        let tokens = if keys.is_empty() { HashMap::new() } else { tokens_of(session, &keys).await? };
        let covered = |key: &CallKey, pair: &Pair| {
            let context = tokens.get(key)?.context(usize::MAX);
            Some(context.get(pair.start..(pair.start + pair.tokens).min(context.len()))?.to_vec())
        };
        let found = alike.iter().filter_map(|pair| {
            let (own, other) = (covered(&pair.key, pair)?, covered(&pair.first, pair)?);
            // The last token need not have been run; where it alone differs, nothing that was recorded does.
            let differs = own.iter().zip(&other).position(|(a, b)| a != b).filter(|at| at + 1 < pair.tokens)?;
            Some(pair.found(differs))
        });
        Ok(found.collect())
    }
}

/// Whether most rows differ from the one before in the same way.
fn is_made_up(values: &[Option<f64>], width: usize) -> bool {
    let rows: Vec<&[Option<f64>]> = values.chunks(width).collect();
    let step = |pair: &[&[Option<f64>]]| -> Vec<i64> {
        let [before, after] = pair else { return Vec::new() };
        let number = |value: &Option<f64>| value.unwrap_or_default();
        #[expect(clippy::cast_possible_truncation, reason = "experts are small whole numbers")]
        let by = |(a, b): (&Option<f64>, &Option<f64>)| (number(b) - number(a)) as i64;
        before.iter().zip(*after).map(by).collect()
    };
    let steps: BTreeSet<Vec<i64>> = rows.windows(2).map(step).collect();
    2 * steps.len() <= rows.len()
}

/// Two calls with one routing.
#[derive(Debug)]
struct Pair {
    key: CallKey,
    first: CallKey,
    start: usize,
    tokens: usize,
}

/// Length of a prompt, and the digests of prompt and output.
type Outline = (usize, String, String);

impl Pair {
    fn is_surely_equal(&self, known: &HashMap<CallKey, Outline>) -> bool {
        let (Some(own), Some(first)) = (known.get(&self.key), known.get(&self.first)) else {
            // A call that is not in the lake, or has no ids, is compared with nothing.
            return true;
        };
        own.1 == first.1 && (own.2 == first.2 || self.start + self.tokens <= own.0)
    }

    fn found(&self, differs: usize) -> Found {
        Found {
            run: Some(self.key.run.clone()),
            rollout: self.key.rollout.clone(),
            call: Some(self.key.call.clone()),
            start: self.start,
            fault: Some(RoutingFault {
                kind: "copied",
                position: Some(differs),
                length: Some(self.tokens - differs),
                expected: "a routing of its own tokens".to_owned(),
                observed: format!(
                    "that of call {} in {}",
                    self.first.call,
                    self.first.rollout.as_deref().unwrap_or("no rollout")
                ),
            }),
        }
    }
}

async fn outlines(session: &Session, pairs: &[Pair]) -> Result<HashMap<CallKey, Outline>> {
    let runs: BTreeSet<&str> = pairs.iter().map(|pair| pair.key.run.as_str()).collect();
    let wanted: BTreeSet<&CallKey> = pairs.iter().flat_map(|pair| [&pair.key, &pair.first]).collect();
    let mut known = HashMap::new();
    for run in runs {
        let sql = format!(
            "SELECT rollout_id, call_id, prompt_len, prompt_digest, output_digest FROM calls
             WHERE run_id = {} AND prompt_len IS NOT NULL AND output_len IS NOT NULL",
            quoted(run)
        );
        let mut rows = session.stream(&sql).await?;
        while let Some(batch) = rows.try_next().await? {
            let (rollouts, calls) = (text(&batch, "rollout_id")?, text(&batch, "call_id")?);
            let (prompts, outputs) = (text(&batch, "prompt_digest")?, text(&batch, "output_digest")?);
            let lengths = integers(&batch, "prompt_len")?;
            for row in 0..batch.num_rows() {
                let key = super::key(run, &rollouts, &calls, row);
                if let Some(key) = key.filter(|key| wanted.contains(key)) {
                    let length = usize::try_from(lengths.value(row)).unwrap_or(0);
                    known.insert(key, (length, prompts.value(row).to_owned(), outputs.value(row).to_owned()));
                }
            }
        }
    }
    Ok(known)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_that_follow_a_rule_are_made_up() {
        let of = |rows: &[[f64; 2]]| -> Vec<Option<f64>> { rows.concat().into_iter().map(Some).collect() };
        assert!(is_made_up(&of(&[[0.0, 1.0], [1.0, 2.0], [2.0, 3.0], [3.0, 4.0]]), 2));
        assert!(is_made_up(&of(&[[0.0, 1.0], [2.0, 3.0], [0.0, 1.0], [2.0, 3.0], [0.0, 1.0]]), 2));
        assert!(!is_made_up(&of(&[[7.0, 1.0], [3.0, 2.0], [5.0, 0.0], [1.0, 6.0]]), 2));
    }
}
