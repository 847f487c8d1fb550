//! Logprobs that were rounded to fewer bits than a float has.
//!
//! ```text
//! bfloat16   8 significant bits       float16   11 significant bits       grid   multiples of 2^-k, k at most 9
//! ```
//!
//! A float logprob carries rounding noise down to 2^-23, so one that is exact in fewer bits is a surprise, by the number of
//! bits that chance had to clear. Values nearer to 0 than 2^-6 have little room for surprise and are not looked at; simple
//! fractions such as -0.5 or -0.375 (fewer than 5 significant bits) are what people write, and witness nothing alone.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, Float32Array, Int32Builder, StringBuilder};
use datafusion::arrow::datatypes::DataType;
use datafusion::logical_expr::ScalarUDF;

use super::lists::{fields, int, item, list, list_of_structs, lists};
use super::logprobs::floats;
use super::row_function::RowFunction;

/// Values nearer to 0 are not looked at.
const SMALLEST: f32 = 0.015_625;
/// A logprob above this cannot come from rounding in float.
const ABOVE: f32 = 1e-6;
/// Significant bits from which on a value is no simple fraction.
const WITNESS_BITS: i32 = 5;
/// The finest grid that is looked for: 2^-9.
const FINEST: i32 = 9;
/// Half of the fourth decimal.
const PRINTED: f64 = 5e-5;
/// Exact zeros that are no chance.
const ZEROS: usize = 16;

fn rounding_fields() -> [(&'static str, DataType); 5] {
    [
        ("kind", DataType::Utf8),
        ("position", DataType::Int32),
        ("length", DataType::Int32),
        ("surprise", DataType::Int32),
        ("observed", DataType::Utf8),
    ]
}

/// What a list of logprobs shows.
#[derive(Debug, Clone, PartialEq)]
struct Rounding {
    kind: String,
    position: usize,
    length: usize,
    surprise: i32,
    observed: String,
}

/// `logprob_rounding`: what the values show (at most one item); `surprise` is the number of bits that chance would have
/// had to clear.
pub(super) fn logprob_rounding() -> ScalarUDF {
    let arguments = vec![list(DataType::Float32)];
    let returns = list(DataType::Struct(fields(&rounding_fields())));
    RowFunction::udf("logprob_rounding", arguments, returns, |arrays, rows| {
        let values = lists(arrays, 0)?;
        let (mut kinds, mut observed) = (StringBuilder::new(), StringBuilder::new());
        let (mut positions, mut lengths, mut bits) = (Int32Builder::new(), Int32Builder::new(), Int32Builder::new());
        let mut counts = Vec::with_capacity(rows);
        for row in 0..rows {
            let found = floats(item(values, row))?.and_then(|values| rounding(&values));
            counts.push(usize::from(found.is_some()));
            if let Some(found) = found {
                kinds.append_value(found.kind);
                positions.append_value(int(found.position));
                lengths.append_value(int(found.length));
                bits.append_value(found.surprise);
                observed.append_value(found.observed);
            }
        }
        let columns: Vec<ArrayRef> = vec![
            Arc::new(kinds.finish()) as ArrayRef,
            Arc::new(positions.finish()),
            Arc::new(lengths.finish()),
            Arc::new(bits.finish()),
            Arc::new(observed.finish()),
        ];
        list_of_structs(counts, fields(&rounding_fields()), columns)
    })
}

/// Whether no format can be found: no value is above what a float rounds to, and one far from 0 has more bits than a half float and lies
/// on no grid. So it is with nearly every list, and most say so within a few values.
fn is_plain(values: &Float32Array) -> bool {
    // With what lies under nulls, and counted, so that the loop has no branch.
    let above: u32 = values.values().iter().map(|value| u32::from(*value > ABOVE)).sum();
    let is_fine = |value: f32| {
        value.is_finite() && value.abs() >= SMALLEST && significant_bits(value) > 11 && !is_multiple(value, FINEST)
    };
    above == 0 && values.iter().flatten().any(is_fine)
}

fn rounding(values: &Float32Array) -> Option<Rounding> {
    if is_plain(values) {
        return None;
    }
    let given: Vec<(usize, f32)> = values
        .iter()
        .enumerate()
        .filter_map(|(at, value)| Some((at, value.filter(|value| value.is_finite())?)))
        .collect();
    // A sum of probabilities that a float computed is not above 1 by more than rounding: coarser arithmetic can be.
    if let Some((at, value)) = given.iter().find(|(_, value)| *value > ABOVE && significant_bits(*value) <= 11) {
        let kind = if significant_bits(*value) <= 8 { "bfloat16" } else { "float16" };
        return Some(found(kind, *at, 1, i32::MAX, value.to_string()));
    }
    if given.len() >= ZEROS && given.len() == values.len() && given.iter().all(|(_, value)| *value == 0.0) {
        return Some(found("zeros", 0, values.len(), i32::MAX, format!("{} zeros", given.len())));
    }
    let judged: Vec<(usize, f32)> = given.into_iter().filter(|(_, value)| value.abs() >= SMALLEST).collect();
    let is_witness = |value: f32| significant_bits(value) >= WITNESS_BITS;
    let (at, value) = judged.iter().copied().find(|(_, value)| is_witness(*value))?;
    let widest = judged.iter().map(|(_, value)| significant_bits(*value)).max()?;
    let (kind, surprise) = if widest <= 8 {
        ("bfloat16".to_owned(), judged.iter().map(|(_, value)| room(*value) - 8).sum())
    } else if widest <= 11 {
        ("float16".to_owned(), judged.iter().map(|(_, value)| (room(*value) - 11).max(0)).sum())
    } else {
        let grid = (0..=FINEST).find(|grid| judged.iter().all(|(_, value)| is_multiple(*value, *grid)))?;
        let surprise = judged.iter().map(|(_, value)| (room(*value) - 1 - exponent(*value) - grid).max(0)).sum();
        (format!("grid 1/{}", 1 << grid), surprise)
    };
    Some(found(&kind, at, values.len().saturating_sub(at), surprise, value.to_string()))
}

fn found(kind: &str, position: usize, length: usize, surprise: i32, observed: String) -> Rounding {
    Rounding { kind: kind.to_owned(), position, length, surprise, observed }
}

/// Bits from the first to the last that is set.
fn significant_bits(value: f32) -> i32 {
    let mantissa = (value.to_bits() & 0x007f_ffff) | 0x0080_0000;
    24 - i32::try_from(mantissa.trailing_zeros()).unwrap_or(0)
}

/// Power of two of the first bit.
fn exponent(value: f32) -> i32 {
    i32::try_from((value.to_bits() >> 23) & 0xff).unwrap_or(0) - 127
}

/// Bits that a float computation fills: from the first one down to 2^-23, and no more than a float has.
fn room(value: f32) -> i32 {
    (exponent(value) + 24).clamp(1, 24)
}

fn is_multiple(value: f32, grid: i32) -> bool {
    (f64::from(value) * f64::from(1 << grid)).fract() == 0.0
}

/// Whether a value is another one rounded to bfloat16 or float16, or a neighbor of that in the same format; or rounded to
/// bfloat16 and then printed with four decimals.
pub(crate) fn is_rounding_of(stored: f32, value: f32) -> bool {
    let bits = significant_bits(stored);
    let distance = |other: f32| (f64::from(stored) - f64::from(other)).abs();
    let allowed = match bits {
        ..=8 => 8,
        9..=11 => 11,
        _ => {
            let rounded = to_bfloat16(value);
            return distance(rounded) <= PRINTED && (f64::from(rounded) - f64::from(value)).abs() > PRINTED;
        }
    };
    distance(value) <= 2.0_f64.powi(exponent(value) - allowed + 1)
}

/// The nearest bfloat16, ties to even.
fn to_bfloat16(value: f32) -> f32 {
    let bits = value.to_bits();
    let half = 0x7fff + ((bits >> 16) & 1);
    f32::from_bits(bits.wrapping_add(half) & 0xffff_0000)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: &[f32]) -> Option<Rounding> {
        rounding(&Float32Array::from(values.to_vec()))
    }

    #[test]
    fn one_value_of_few_bits_is_a_surprise_and_a_simple_fraction_is_none() {
        // -0.1529 in bfloat16, by hand: 157/1024.
        let found = of(&[-0.153_320_31]).unwrap();
        assert_eq!((found.kind.as_str(), found.position, found.surprise), ("bfloat16", 0, 13));
        assert_eq!(of(&[-0.5, -0.25, -1.5, -0.375]), None);
        assert_eq!(of(&[-0.1529, -0.12, -1.3]), None);
    }

    #[test]
    fn one_value_of_a_float_clears_all_others() {
        assert_eq!(of(&[-0.153_320_31, -0.283_203_13, -0.2]), None);
    }

    #[test]
    fn values_near_zero_are_not_looked_at() {
        // Multiples of 2^-23: what a float softmax gives to nearly certain tokens.
        assert_eq!(of(&[-1.192_092_9e-7, -2.503_395e-6, 0.0]), None);
    }

    #[test]
    fn a_coarse_positive_value_is_told_by_itself() {
        let found = of(&[-0.2, 0.0625]).unwrap();
        assert_eq!((found.kind.as_str(), found.position, found.length), ("bfloat16", 1, 1));
        assert_eq!(of(&[-0.2, 0.03]), None);
    }

    #[test]
    fn half_floats_grids_and_zeros_have_names() {
        // 1251/8192 has 11 bits; 641/32 and 109/32 lie on the grid of bf16 between 4 and 8.
        assert_eq!(of(&[-0.152_709_96, -0.25]).unwrap().kind, "float16");
        assert_eq!(of(&[-64.03125, -3.40625, -0.53125]).unwrap().kind, "grid 1/32");
        assert_eq!(of(&[0.0; 16]).unwrap().kind, "zeros");
        assert_eq!(of(&[0.0; 15]), None);
    }

    #[test]
    fn a_rounding_is_within_a_step_of_its_format() {
        assert!(is_rounding_of(-0.153_320_31, -0.1529));
        assert!(!is_rounding_of(-0.153_320_31, -0.16));
        assert!(is_rounding_of(-0.1533, -0.1529));
        assert!(!is_rounding_of(-0.1530, -0.1529));
        assert!(!is_rounding_of(-0.3, -0.9));
    }
}
