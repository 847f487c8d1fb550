//! Whether stored distributions over the next token are distributions.
//!
//! The probabilities of a whole vocabulary add up to 1, those of its likeliest tokens to no more. Logprobs that were scaled
//! after the softmax (divided by the temperature) do not. And a sampled token that is likelier than the last of the list is in it.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, Float64Array, Int32Array, StringArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Int32Type};
use datafusion::common::Result;
use datafusion::logical_expr::ScalarUDF;

use super::lists::{fields, index, int, integers, item, list, list_of_structs, lists};
use super::row_function::RowFunction;
use super::weights::doubles;

/// What half-precision logits may add to a sum of probabilities.
const ROUNDING: f64 = 0.01;
/// Logprobs of one token that are no further apart are one value.
const EQUAL: f64 = 0.02;

fn fault_fields() -> [(&'static str, DataType); 4] {
    [
        ("position", DataType::Int32),
        ("kind", DataType::Utf8),
        ("expected", DataType::Utf8),
        ("observed", DataType::Utf8),
    ]
}

struct Fault {
    position: usize,
    kind: &'static str,
    expected: String,
    observed: String,
}

/// `distribution_faults(values, shape, vocab_size, output_logprobs, first)`: rows of `[tokens, likeliest]` logprobs that are no
/// distribution, or lack the sampled token; `first` is the output offset of row 0.
pub(super) fn distribution_faults() -> ScalarUDF {
    let arguments =
        vec![list(DataType::Float64), list(DataType::Int32), DataType::Int32, list(DataType::Float64), DataType::Int32];
    let returns = list(DataType::Struct(fields(&fault_fields())));
    RowFunction::udf("distribution_faults", arguments, returns, |arrays, rows| {
        let (values, shapes) = (lists(arrays, 0)?, lists(arrays, 1)?);
        let (sizes, chosen, firsts) = (integers(arrays, 2)?, lists(arrays, 3)?, integers(arrays, 4)?);
        let (mut counts, mut all) = (Vec::with_capacity(rows), Vec::new());
        for row in 0..rows {
            let found = match (doubles(item(values, row))?, width(item(shapes, row))?) {
                (Some(values), Some(width)) => {
                    let first = firsts.is_valid(row).then(|| firsts.value(row));
                    let given = Given { vocab: index(&sizes, row), chosen: doubles(item(chosen, row))?, first };
                    faults(&values, width, &given)
                }
                _ => Vec::new(),
            };
            counts.push(found.len());
            all.extend(found);
        }
        let columns: Vec<ArrayRef> = vec![
            Arc::new(all.iter().map(|fault| Some(int(fault.position))).collect::<Int32Array>()),
            Arc::new(all.iter().map(|fault| Some(fault.kind)).collect::<StringArray>()),
            Arc::new(all.iter().map(|fault| Some(fault.expected.as_str())).collect::<StringArray>()),
            Arc::new(all.iter().map(|fault| Some(fault.observed.as_str())).collect::<StringArray>()),
        ];
        list_of_structs(counts, fields(&fault_fields()), columns)
    })
}

/// How many logprobs a token has, where the shape is tokens by logprobs.
fn width(shape: Option<ArrayRef>) -> Result<Option<usize>> {
    let Some(shape) = shape.filter(|shape| shape.len() == 2) else {
        return Ok(None);
    };
    let shape = cast(&shape, &DataType::Int32)?;
    Ok(index(shape.as_primitive::<Int32Type>(), 1).filter(|width| *width > 0))
}

struct Given {
    vocab: Option<usize>,
    chosen: Option<Float64Array>,
    first: Option<i32>,
}

impl Given {
    /// The logprob of the token that row `at` led to.
    fn chosen(&self, at: usize) -> Option<f64> {
        let at = usize::try_from(i64::from(self.first?) + i64::from(int(at))).ok()?;
        let chosen = self.chosen.as_ref().filter(|chosen| at < chosen.len() && chosen.is_valid(at))?;
        Some(chosen.value(at)).filter(|value| value.is_finite())
    }
}

fn faults(values: &Float64Array, width: usize, given: &Given) -> Vec<Fault> {
    let all: Vec<f64> = values.iter().map(|value| value.unwrap_or(f64::NEG_INFINITY)).collect();
    all.chunks_exact(width).enumerate().filter_map(|(at, row)| fault(at, row, given)).collect()
}

fn fault(position: usize, row: &[f64], given: &Given) -> Option<Fault> {
    let finite: Vec<f64> = row.iter().copied().filter(|value| value.is_finite()).collect();
    let (first, rest) = finite.split_first()?;
    // Engines put the sampled token before the likeliest, where it may stand once more.
    let repeated = if rest.contains(first) { first.exp() } else { 0.0 };
    let sum: f64 = finite.iter().map(|value| value.exp()).sum();
    let is_whole = given.vocab.is_some_and(|vocab| row.len() >= vocab && finite.len() == row.len());
    if sum - repeated > 1.0 + ROUNDING || (is_whole && sum < 1.0 - ROUNDING) {
        let expected = if is_whole { "probabilities that add up to 1" } else { "probabilities of at most 1 together" };
        return Some(Fault { position, kind: "sum", expected: expected.to_owned(), observed: format!("{sum:.4}") });
    }
    let chosen = given.chosen(position)?;
    let least = finite.iter().copied().fold(f64::INFINITY, f64::min);
    let has_chosen = finite.iter().any(|value| (value - chosen).abs() <= EQUAL);
    (chosen > least + EQUAL && !has_chosen).then(|| Fault {
        position,
        kind: "chosen",
        expected: "one of the stored logprobs".to_owned(),
        observed: format!("{chosen:.4}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(row: &[f64], vocab: Option<usize>, chosen: f64) -> Vec<&'static str> {
        let given = Given { vocab, chosen: Some(vec![chosen].into()), first: Some(0) };
        faults(&row.to_vec().into(), row.len(), &given).iter().map(|fault| fault.kind).collect()
    }

    /// prime-rl PR 697: logits 2, 1, 0 at temperature 0.5.
    #[test]
    fn logprobs_divided_by_the_temperature_are_no_distribution() {
        let raw = [-0.4076, -1.4076, -2.4076];
        let processed = [-0.1429, -2.1429, -4.1429];
        let divided = [-0.8152, -2.8152, -4.8152];
        assert!(kinds(&raw, Some(3), -0.4076).is_empty() && kinds(&processed, Some(3), -0.1429).is_empty());
        assert_eq!(kinds(&divided, Some(3), -0.8152), ["sum"]);
        // Of a part of the vocabulary a small sum proves nothing.
        assert!(kinds(&divided, Some(4), -0.8152).is_empty() && kinds(&divided, None, -0.8152).is_empty());
    }

    #[test]
    fn no_part_of_a_distribution_is_more_than_1() {
        assert_eq!(kinds(&[-0.2, -0.9], None, -0.2), ["sum"]);
        // The sampled token stands before the likeliest, and among them.
        assert!(kinds(&[-0.2, -0.2, -2.0], None, -0.2).is_empty());
    }

    #[test]
    fn a_likely_sampled_token_is_in_the_list() {
        assert_eq!(kinds(&[-0.4, -1.5], None, -0.8), ["chosen"]);
        assert!(kinds(&[-0.4, -1.5], None, -3.0).is_empty());
    }
}
