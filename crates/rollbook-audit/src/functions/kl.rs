//! Sums of a row's distance from the reference model, over the tokens that train and over all.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, BooleanArray, Float64Array, Int64Array, StructArray};
use datafusion::arrow::datatypes::DataType;
use datafusion::logical_expr::ScalarUDF;

use super::lists::{fields, is_set, item, list, lists, mask};
use super::row_function::RowFunction;
use super::weights::doubles;

const COUNTS: [&str; 2] = ["tokens", "all_tokens"];
const SUMS: [&str; 6] = ["k1", "k2", "k3", "all_k1", "all_k2", "all_k3"];

/// `kl_sums(action_mask, trainer_logprobs, reference_logprobs)`: of the row's tokens that train, and of all that have both
/// logprobs, their number and the sums of the estimators k1 = d, k2 = d²/2, k3 = exp(−d) − 1 + d with d = trainer − reference
/// (Schulman, Approximating KL divergence, 2020). What stands at other tokens enters no sum, not even times zero.
pub(super) fn kl_sums() -> ScalarUDF {
    let arguments = vec![list(DataType::Boolean), list(DataType::Float64), list(DataType::Float64)];
    let names = COUNTS.map(|name| (name, DataType::Int64)).into_iter();
    let named: Vec<_> = names.chain(SUMS.map(|name| (name, DataType::Float64))).collect();
    RowFunction::udf("kl_sums", arguments, DataType::Struct(fields(&named)), |arrays, rows| {
        let (masks, own, reference) = (lists(arrays, 0)?, lists(arrays, 1)?, lists(arrays, 2)?);
        let mut sums: Vec<Sums> = Vec::with_capacity(rows);
        for row in 0..rows {
            let lists = (mask(masks, row)?, doubles(item(own, row))?, doubles(item(reference, row))?);
            sums.push(match lists {
                (Some(mask), Some(own), Some(reference)) => Sums::of(&mask, &own, &reference),
                _ => Sums::default(),
            });
        }
        let names = COUNTS.map(|name| (name, DataType::Int64)).into_iter();
        let named: Vec<_> = names.chain(SUMS.map(|name| (name, DataType::Float64))).collect();
        let count =
            |of: fn(&Sums) -> i64| -> ArrayRef { Arc::new(sums.iter().map(of).map(Some).collect::<Int64Array>()) };
        let sum = |place: usize, is_all: bool| -> ArrayRef {
            let of = |sums: &Sums| if is_all { sums.all[place] } else { sums.trained[place] };
            Arc::new(sums.iter().map(of).map(Some).collect::<Float64Array>())
        };
        let columns = vec![
            count(|sums| sums.tokens),
            count(|sums| sums.all_tokens),
            sum(0, false),
            sum(1, false),
            sum(2, false),
            sum(0, true),
            sum(1, true),
            sum(2, true),
        ];
        Ok(Arc::new(StructArray::try_new(fields(&named), columns, None)?) as ArrayRef)
    })
}

#[derive(Debug, Default, Clone, Copy, PartialEq)]
struct Sums {
    tokens: i64,
    all_tokens: i64,
    trained: [f64; 3],
    all: [f64; 3],
}

impl Sums {
    fn of(mask: &BooleanArray, own: &Float64Array, reference: &Float64Array) -> Self {
        let mut sums = Self::default();
        if own.len() != reference.len() || own.len() != mask.len() {
            return sums;
        }
        for at in 0..own.len() {
            if own.is_null(at) || reference.is_null(at) {
                continue;
            }
            let d = own.value(at) - reference.value(at);
            let estimates = [d, d * d / 2.0, (-d).exp_m1() + d];
            sums.all_tokens += 1;
            sums.all.iter_mut().zip(estimates).for_each(|(sum, estimate)| *sum += estimate);
            if is_set(mask, at) {
                sums.tokens += 1;
                sums.trained.iter_mut().zip(estimates).for_each(|(sum, estimate)| *sum += estimate);
            }
        }
        sums
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// exp(0.1) − 0.1 − 1 = 0.0052 at the token that trains; the padding's sentinel gives infinity only in the sum over all.
    #[test]
    fn a_sentinel_where_nothing_trains_enters_no_sum() {
        let (mask, own) = (vec![true, false].into(), vec![Some(-0.1), Some(0.0)].into());
        let sums = Sums::of(&mask, &own, &vec![Some(0.0), Some(1e10)].into());
        assert_eq!((sums.tokens, sums.all_tokens), (1, 2));
        assert!((sums.trained[2] - 0.005_170_918).abs() < 1e-9, "{sums:?}");
        assert!(sums.all[2].is_infinite());
    }
}
