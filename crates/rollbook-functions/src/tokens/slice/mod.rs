//! `slice(list, start, length)`: a part of a list, counted from 0.

mod kernel;

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::datatypes::DataType;
use datafusion_common::utils::take_function_args;
use datafusion_common::{Result, internal_err};
use datafusion_expr::{
    ColumnarValue, Documentation, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use super::lists::{result, rows};
use crate::argument::{check_count, integer_type, wrong_type};
use crate::function::{Function, Kind, Param};

/// `slice`.
pub(crate) const SLICE: Function = Function {
    name: "slice",
    family: "tokens",
    version: 1,
    kind: Kind::Scalar(|| ScalarUDF::new_from_impl(Slice::new())),
    params: &[
        Param::required("list", "any[]", "A list of any type."),
        Param::required("start", "bigint", "Position of the first item, from 0."),
        Param::required("length", "bigint", "How many items."),
    ],
    returns: "any[]",
    doc: "Returns `length` items of a list from position `start` on, counted from 0.",
    definition: "\
Items start, start + 1, …, start + length - 1 as far as the list has them: a slice that reaches over the end is short, one that starts there is empty.\n\
\n\
- Null where any argument is null. Null items stay.\n\
- A negative start or length is an error.",
    source: None,
    slt: include_str!("slice.slt"),
};

#[derive(Debug, PartialEq, Eq, Hash)]
struct Slice {
    signature: Signature,
    documentation: Documentation,
}

impl Slice {
    fn new() -> Self {
        Self { signature: Signature::user_defined(Volatility::Immutable), documentation: SLICE.documentation() }
    }
}

impl ScalarUDFImpl for Slice {
    fn name(&self) -> &str {
        SLICE.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arg_types: &[DataType]) -> Result<Vec<DataType>> {
        check_count(&SLICE, arg_types.len())?;
        let types = arg_types.iter().enumerate().map(|(position, given)| match (position, given) {
            (0, DataType::List(_) | DataType::LargeList(_)) => Ok(given.clone()),
            (0, DataType::FixedSizeList(item, _)) => Ok(DataType::List(Arc::clone(item))),
            (0, DataType::Null) => Ok(DataType::new_list(DataType::Null, true)),
            (0, other) => wrong_type(&SLICE, 0, "a list", other),
            _ => integer_type(&SLICE, position, given),
        });
        types.collect()
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        let Some(list) = arg_types.first() else {
            return internal_err!("slice of nothing");
        };
        Ok(list.clone())
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let rows = rows(args.number_rows, &args.args);
        let arrays = args.args.iter().map(|argument| argument.to_array(rows)).collect::<Result<Vec<_>>>()?;
        let [list, start, length] = take_function_args(self.name(), &arrays)?;
        let (start, length) = (start.as_primitive(), length.as_primitive());
        let sliced: ArrayRef = match list.data_type() {
            DataType::List(item) => Arc::new(kernel::slice_lists(item, list.as_list::<i32>(), start, length)?),
            DataType::LargeList(item) => Arc::new(kernel::slice_lists(item, list.as_list::<i64>(), start, length)?),
            other => return internal_err!("slice of {other}"),
        };
        result(sliced, &args.args)
    }

    fn documentation(&self) -> Option<&Documentation> {
        Some(&self.documentation)
    }
}
