//! Stretches of an output that chance cannot give twice, as hashes that copies share.
//!
//! ```text
//! from each token the shortest stretch of 16, 24, 32, 48, 64, … tokens whose summed logprob is at or below -nats
//!   -> a hash of its tokens, wherever it stands  -> the KEPT smallest of all the output's stretches
//! ```
//!
//! The policy itself gives such a stretch a chance of at most `exp(-nats)` where it stands. Outputs with most tokens in
//! common have most stretches in common, and so most of the smallest hashes: they are found by grouping, without comparing
//! every output with every other.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, Float32Array, Int32Array, Int64Array};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Float32Type, Int32Type};
use datafusion::logical_expr::ScalarUDF;

use super::lists::{fields, index, int, integers, item, list, list_of_structs, lists};
use super::row_function::RowFunction;

/// Tokens of the shortest stretch. Lengths grow by a half and a third in turn, so that a copy with slightly other logprobs
/// has equal ones.
const SHORTEST: usize = 16;
/// Hashes kept of an output.
const KEPT: usize = 8;
/// Modulus of the rolling hash, a Mersenne prime.
const PRIME: u64 = (1 << 61) - 1;
/// Its base: any number below the prime that is no small one.
const BASE: u64 = 0x0d5a_2c5b_9b1f_74a3;

/// A stretch of an output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Stretch {
    hash: u64,
    start: usize,
    length: usize,
}

fn stretch_fields() -> [(&'static str, DataType); 3] {
    [("hash", DataType::Int64), ("position", DataType::Int32), ("length", DataType::Int32)]
}

pub(super) fn unlikely_stretches() -> ScalarUDF {
    let arguments = vec![list(DataType::Int32), list(DataType::Float32), DataType::Int32];
    let returns = list(DataType::Struct(fields(&stretch_fields())));
    RowFunction::udf("unlikely_stretches", arguments, returns, |arrays, rows| {
        let (tokens, logprobs, nats) = (lists(arrays, 0)?, lists(arrays, 1)?, integers(arrays, 2)?);
        let (mut counts, mut found) = (Vec::with_capacity(rows), Vec::new());
        for row in 0..rows {
            let kept = match (item(tokens, row), item(logprobs, row), index(&nats, row)) {
                (Some(tokens), Some(logprobs), Some(nats)) => {
                    let tokens = cast(&tokens, &DataType::Int32)?;
                    let logprobs = cast(&logprobs, &DataType::Float32)?;
                    let limit = f64::from(int(nats));
                    smallest(tokens.as_primitive::<Int32Type>(), logprobs.as_primitive::<Float32Type>(), limit)
                }
                _ => Vec::new(),
            };
            counts.push(kept.len());
            found.extend(kept);
        }
        let integers = |value: fn(&Stretch) -> usize| -> ArrayRef {
            Arc::new(found.iter().map(|stretch| Some(int(value(stretch)))).collect::<Int32Array>())
        };
        let hashes: Int64Array = found.iter().map(|stretch| i64::try_from(stretch.hash).ok()).collect();
        let columns: Vec<ArrayRef> =
            vec![Arc::new(hashes), integers(|stretch| stretch.start), integers(|stretch| stretch.length)];
        list_of_structs(counts, fields(&stretch_fields()), columns)
    })
}

fn multiply(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    // Both parts fit: the product is below 2^122.
    reduced(u64::try_from(product & u128::from(PRIME)).unwrap_or(0) + u64::try_from(product >> 61).unwrap_or(0))
}

/// A number below twice the prime, modulo it.
fn reduced(value: u64) -> u64 {
    if value >= PRIME { value - PRIME } else { value }
}

/// The next of 16, 24, 32, 48, 64, …
fn rounded(length: usize) -> usize {
    let power = length.next_power_of_two().max(SHORTEST);
    let less = power / 4 * 3;
    if power > SHORTEST && less >= length { less } else { power }
}

/// The stretches with the smallest hashes; none where ids and logprobs differ in number.
fn smallest(tokens: &Int32Array, logprobs: &Float32Array, nats: f64) -> Vec<Stretch> {
    if tokens.len() != logprobs.len() || nats <= 0.0 {
        return Vec::new();
    }
    // What has no logprob was not sampled, and adds nothing.
    let logprob = |at: usize| {
        let value = if logprobs.is_valid(at) { f64::from(logprobs.value(at)) } else { 0.0 };
        if value.is_finite() { value.min(0.0) } else { 0.0 }
    };
    // An output that is likely as a whole has no unlikely stretch.
    if (0..tokens.len()).map(logprob).sum::<f64>() > -nats + 1e-6 {
        return Vec::new();
    }
    // hash(i..j) = sums[j] - sums[i] * powers[j - i]; a stretch's length is part of its hash by the + 1.
    let mut sums = Vec::with_capacity(tokens.len() + 1);
    let mut powers = Vec::with_capacity(tokens.len() + 1);
    let (mut sum, mut power) = (0, 1);
    sums.push(sum);
    powers.push(power);
    for token in tokens.values() {
        sum = reduced(multiply(sum, BASE) + u64::from(token.cast_unsigned()) + 1);
        power = multiply(power, BASE);
        sums.push(sum);
        powers.push(power);
    }
    let mut kept: Vec<Stretch> = Vec::with_capacity(KEPT + 1);
    let (mut end, mut sum) = (0, 0.0);
    for start in 0..tokens.len() {
        while end < tokens.len() && sum > -nats {
            sum += logprob(end);
            end += 1;
        }
        if sum > -nats {
            break;
        }
        sum -= logprob(start);
        let stop = start + rounded(end - start);
        if stop > tokens.len() {
            continue;
        }
        let hash = reduced(sums[stop] + PRIME - multiply(sums[start], powers[stop - start]));
        let is_small = kept.len() < KEPT || kept.last().is_some_and(|last| hash < last.hash);
        if is_small && kept.iter().all(|stretch| stretch.hash != hash) {
            kept.push(Stretch { hash, start, length: stop - start });
            kept.sort_unstable();
            kept.truncate(KEPT);
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(tokens: &[i32], logprob: f32) -> Vec<Stretch> {
        smallest(&Int32Array::from(tokens.to_vec()), &Float32Array::from(vec![logprob; tokens.len()]), 40.0)
    }

    fn hashes(stretches: &[Stretch]) -> Vec<u64> {
        stretches.iter().map(|stretch| stretch.hash).collect()
    }

    /// Tokens without a pattern: the squares modulo a prime.
    fn tokens(n: i32) -> Vec<i32> {
        (0..n).map(|at| at * at % 1009 + 10).collect()
    }

    #[test]
    fn a_copy_with_a_few_other_tokens_shares_hashes() {
        let own = tokens(300);
        let mut other = own.clone();
        other[150] = 5;
        other.insert(20, 6);
        let (own, other) = (of(&own, -1.5), of(&other, -1.625));
        assert_eq!(own.len(), KEPT);
        assert!(hashes(&own).iter().any(|hash| hashes(&other).contains(hash)), "{own:?} {other:?}");
    }

    #[test]
    fn the_hash_is_that_of_the_tokens_wherever_they_stand() {
        // 27 tokens at -1.5 are at or below -40; the next length is 32, and there is one stretch of it.
        let own = tokens(32);
        let mut moved = vec![3, 4];
        moved.extend(&own);
        let (own, moved) = (of(&own, -1.5), of(&moved, -1.5));
        assert_eq!(own.len(), 1);
        assert_eq!((own[0].start, own[0].length), (0, 32));
        assert!(hashes(&moved).contains(&own[0].hash));
    }

    #[test]
    fn lengths_come_in_steps() {
        assert_eq!([1, 16, 17, 24, 25, 33, 48, 49, 65].map(rounded), [16, 16, 24, 24, 32, 48, 48, 64, 96]);
    }

    #[test]
    fn likely_and_unmeasured_outputs_have_none() {
        assert!(of(&tokens(300), -0.1).is_empty());
        let lengths_differ = smallest(&Int32Array::from(tokens(300)), &Float32Array::from(vec![-1.5; 299]), 40.0);
        assert!(lengths_differ.is_empty());
    }

    #[test]
    fn unrelated_outputs_share_nothing() {
        let other: Vec<i32> = tokens(300).iter().map(|token| token + 1).collect();
        let (own, other) = (of(&tokens(300), -1.5), of(&other, -1.5));
        assert!(hashes(&own).iter().all(|hash| !hashes(&other).contains(hash)));
    }
}
