//! `pack(length, max_tokens)`: best-fit decreasing.

mod kernel;

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Int64Array};
use arrow::datatypes::{DataType, Field, FieldRef, Int64Type};
use datafusion_common::{Result, exec_err, internal_err, plan_err};
use datafusion_expr::function::{PartitionEvaluatorArgs, WindowUDFFieldArgs};
use datafusion_expr::{Documentation, PartitionEvaluator, Signature, Volatility, WindowUDF, WindowUDFImpl};

use crate::argument::{check_count, integer_type};
use crate::constants::Constants;
use crate::function::{Function, Kind, Param};

/// `pack`.
pub(crate) const PACK: Function = Function {
    name: "pack",
    family: "packing",
    version: 1,
    kind: Kind::Window(|| WindowUDF::new_from_impl(Pack::new())),
    params: &[
        Param::required("length", "bigint", "Tokens of the row."),
        Param::required("max_tokens", "bigint", "Tokens that fit into a bin, a constant."),
    ],
    returns: "bigint",
    doc: "Returns the bin that a row is packed into, by best-fit decreasing.",
    definition: "\
Rows are placed longest first, equal lengths in the order of the window's ORDER BY. Each goes into the fullest bin that still has room for it, among \
equally full ones the lowest, or else opens a new bin. Bins count from 0 in the order they were opened, within the partition.\n\
\n\
- ORDER BY must be unique in the partition: without it equal lengths are placed in no defined order.\n\
- A length over max_tokens, a negative and a null length are errors. A row of length 0 takes no room.\n\
- Takes O(n log n); the lengths of a partition are held in memory.",
    source: Some("D. S. Johnson, Near-optimal bin packing algorithms, 1973 (at most 11/9 of the optimum plus 6/9)"),
    slt: include_str!("pack.slt"),
};

#[derive(Debug, PartialEq, Eq, Hash)]
struct Pack {
    signature: Signature,
    documentation: Documentation,
}

impl Pack {
    fn new() -> Self {
        Self { signature: Signature::user_defined(Volatility::Immutable), documentation: PACK.documentation() }
    }
}

impl WindowUDFImpl for Pack {
    fn name(&self) -> &str {
        PACK.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arg_types: &[DataType]) -> Result<Vec<DataType>> {
        check_count(&PACK, arg_types.len())?;
        let types = arg_types.iter().enumerate();
        types.map(|(position, given)| integer_type(&PACK, position, given)).collect()
    }

    fn partition_evaluator(&self, args: PartitionEvaluatorArgs) -> Result<Box<dyn PartitionEvaluator>> {
        match Constants::of_call(&PACK, 1, &args)?.integer("max_tokens")? {
            Some(max_tokens) if max_tokens > 0 => Ok(Box::new(PackEvaluator { max_tokens })),
            Some(other) => plan_err!("pack: max_tokens must be at least 1, not {other}"),
            None => plan_err!("pack: max_tokens must not be null"),
        }
    }

    fn field(&self, args: WindowUDFFieldArgs) -> Result<FieldRef> {
        Ok(Arc::new(Field::new(args.name(), DataType::Int64, false)))
    }

    fn documentation(&self) -> Option<&Documentation> {
        Some(&self.documentation)
    }
}

#[derive(Debug)]
struct PackEvaluator {
    max_tokens: i64,
}

impl PartitionEvaluator for PackEvaluator {
    fn evaluate_all(&mut self, values: &[ArrayRef], _num_rows: usize) -> Result<ArrayRef> {
        let Some(lengths) = values.first().and_then(|lengths| lengths.as_primitive_opt::<Int64Type>()) else {
            return internal_err!("pack without lengths");
        };
        if lengths.null_count() > 0 {
            return exec_err!("pack: a length is null");
        }
        if let Some(length) = lengths.values().iter().find(|length| **length < 0) {
            return exec_err!("pack: length {length} is negative");
        }
        // The longest is named, so that the message does not depend on the order of rows.
        if let Some(longest) = lengths.values().iter().max().filter(|longest| **longest > self.max_tokens) {
            return exec_err!("pack: length {longest} is over max_tokens {}", self.max_tokens);
        }
        Ok(Arc::new(Int64Array::from(kernel::best_fit_decreasing(lengths.values(), self.max_tokens))))
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case(&[Some(4), Some(11), Some(12)], "length 12 is over max_tokens 10")]
    #[case(&[Some(4), None], "a length is null")]
    #[case(&[Some(4), Some(-3)], "length -3 is negative")]
    fn what_cannot_be_packed_is_named(#[case] lengths: &[Option<i64>], #[case] message: &str) {
        let lengths: ArrayRef = Arc::new(Int64Array::from(lengths.to_vec()));
        let error = PackEvaluator { max_tokens: 10 }.evaluate_all(&[lengths], 0).unwrap_err().to_string();
        assert!(error.contains(message), "{error}");
    }
}
