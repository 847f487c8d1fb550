//! `repeated_ngrams(tokens, n)`: how much of a list says again what it has said before.

use std::collections::HashSet;
use std::sync::Arc;

use arrow::array::{Array, AsArray, Int64Array};
use arrow::datatypes::{DataType, Int64Type};
use datafusion_common::utils::take_function_args;
use datafusion_common::{Result, exec_err};
use datafusion_expr::{
    ColumnarValue, Documentation, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use super::lists::{TokenLists, result, rows, token_list_type};
use crate::argument::{check_count, integer_type};
use crate::function::{Function, Kind, Param};

/// `repeated_ngrams`.
pub(crate) const REPEATED_NGRAMS: Function = Function {
    name: "repeated_ngrams",
    family: "tokens",
    version: 1,
    kind: Kind::Scalar(|| ScalarUDF::new_from_impl(RepeatedNgrams::new())),
    params: &[
        Param::required("tokens", "integer[]", "A list of tokens."),
        Param::required("n", "bigint", "Tokens of an n-gram."),
    ],
    returns: "bigint",
    doc: "Returns how many n-grams of a list of tokens stand in it before: all of them less the distinct ones.",
    definition: "\
A list of L tokens has max(0, L - n + 1) n-grams, each n neighbours; the result is their number less the number of distinct ones, so 0 where none repeats. \
The share that repeats is the result over L - n + 1.\n\
\n\
- Null where an argument is null. A list shorter than n has no n-gram and gives 0.\n\
- n below 1 is an error, and so is a null token.\n\
- Takes O(n L) time and memory for the distinct n-grams of one list.",
    source: Some("TRL's get_repetition_penalty_reward: penalty · (1 - distinct / all), from arXiv 2502.03373"),
    slt: include_str!("repeated_ngrams.slt"),
};

#[derive(Debug, PartialEq, Eq, Hash)]
struct RepeatedNgrams {
    signature: Signature,
    documentation: Documentation,
}

impl RepeatedNgrams {
    fn new() -> Self {
        Self {
            signature: Signature::user_defined(Volatility::Immutable),
            documentation: REPEATED_NGRAMS.documentation(),
        }
    }
}

impl ScalarUDFImpl for RepeatedNgrams {
    fn name(&self) -> &str {
        REPEATED_NGRAMS.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arg_types: &[DataType]) -> Result<Vec<DataType>> {
        check_count(&REPEATED_NGRAMS, arg_types.len())?;
        let types = arg_types.iter().enumerate().map(|(position, given)| match position {
            0 => token_list_type(&REPEATED_NGRAMS, position, given),
            _ => integer_type(&REPEATED_NGRAMS, position, given),
        });
        types.collect()
    }

    fn return_type(&self, _arg_types: &[DataType]) -> Result<DataType> {
        Ok(DataType::Int64)
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [tokens, sizes] = take_function_args(self.name(), &args.args)?;
        let lists = TokenLists::of(tokens)?;
        let count = rows(args.number_rows, &args.args);
        let sizes = sizes.to_array(count)?;
        let sizes = sizes.as_primitive::<Int64Type>();
        let repeated = (0..count).map(|row| {
            let Some(tokens) = lists.row(row)? else {
                return Ok(None);
            };
            if sizes.is_null(row) {
                return Ok(None);
            }
            match usize::try_from(sizes.value(row)) {
                Ok(size) if size > 0 => Ok(Some(repeated(tokens, size))),
                _ => exec_err!("repeated_ngrams: n must be at least 1, not {}", sizes.value(row)),
            }
        });
        let repeated = repeated.collect::<Result<Int64Array>>()?;
        result(Arc::new(repeated), &args.args)
    }

    fn documentation(&self) -> Option<&Documentation> {
        Some(&self.documentation)
    }
}

fn repeated(tokens: &[i32], size: usize) -> i64 {
    let all = (tokens.len() + 1).saturating_sub(size);
    let distinct: HashSet<&[i32]> = tokens.windows(size).collect();
    i64::try_from(all - distinct.len()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::repeated;

    /// Every n-gram that equals one before it.
    fn naive(tokens: &[i32], size: usize) -> i64 {
        let starts = || 0..tokens.len().saturating_sub(size - 1);
        let of = |start: usize| &tokens[start..start + size];
        let again = starts().filter(|start| (0..*start).any(|before| of(before) == of(*start)));
        i64::try_from(again.count()).unwrap()
    }

    proptest! {
        #[test]
        fn it_counts_the_n_grams_that_equal_an_earlier_one(
            tokens in proptest::collection::vec(0..3, 0..40),
            size in 1_usize..6,
        ) {
            prop_assert_eq!(repeated(&tokens, size), naive(&tokens, size));
        }
    }
}
