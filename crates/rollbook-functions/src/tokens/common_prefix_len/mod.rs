//! `common_prefix_len(a, b)`: how many tokens two lists share from the first on.

use std::sync::Arc;

use arrow::array::Int32Array;
use arrow::datatypes::DataType;
use datafusion_common::utils::take_function_args;
use datafusion_common::{Result, exec_datafusion_err};
use datafusion_expr::{
    ColumnarValue, Documentation, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use super::lists::{TokenLists, result, rows, token_list_type};
use super::prefix::common_prefix;
use crate::argument::check_count;
use crate::function::{Function, Kind, Param};

/// `common_prefix_len`.
pub(crate) const COMMON_PREFIX_LEN: Function = Function {
    name: "common_prefix_len",
    family: "tokens",
    version: 1,
    kind: Kind::Scalar(|| ScalarUDF::new_from_impl(CommonPrefixLen::new())),
    params: &[Param::required("a", "integer[]", "A list of tokens."), Param::required("b", "integer[]", "Another.")],
    returns: "integer",
    doc: "Returns how many tokens two lists have in common from the first on.",
    definition: "\
The largest n such that the first n tokens of both lists are equal: the position of the first difference, or the length of the shorter list.\n\
\n\
- Null where either list is null.\n\
- A null token, or one beyond int32, is an error.",
    source: None,
    slt: include_str!("common_prefix_len.slt"),
};

#[derive(Debug, PartialEq, Eq, Hash)]
struct CommonPrefixLen {
    signature: Signature,
    documentation: Documentation,
}

impl CommonPrefixLen {
    fn new() -> Self {
        Self {
            signature: Signature::user_defined(Volatility::Immutable),
            documentation: COMMON_PREFIX_LEN.documentation(),
        }
    }
}

impl ScalarUDFImpl for CommonPrefixLen {
    fn name(&self) -> &str {
        COMMON_PREFIX_LEN.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arg_types: &[DataType]) -> Result<Vec<DataType>> {
        check_count(&COMMON_PREFIX_LEN, arg_types.len())?;
        let types = arg_types.iter().enumerate();
        types.map(|(position, given)| token_list_type(&COMMON_PREFIX_LEN, position, given)).collect()
    }

    fn return_type(&self, _arg_types: &[DataType]) -> Result<DataType> {
        Ok(DataType::Int32)
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [a, b] = take_function_args(self.name(), &args.args)?;
        let (left, right) = (TokenLists::of(a)?, TokenLists::of(b)?);
        let lengths = (0..rows(args.number_rows, &args.args)).map(|row| {
            let pair = left.row(row)?.zip(right.row(row)?);
            let length = pair.map(|(left, right)| i32::try_from(common_prefix(left, right)));
            length.transpose().map_err(|source| exec_datafusion_err!("common_prefix_len: {source}"))
        });
        let lengths = lengths.collect::<Result<Int32Array>>()?;
        result(Arc::new(lengths), &args.args)
    }

    fn documentation(&self) -> Option<&Documentation> {
        Some(&self.documentation)
    }
}
