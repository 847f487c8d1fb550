//! `length(value)`: how many items a list has, or characters a text.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Int64Array, StringArrayType};
use arrow::datatypes::DataType;
use datafusion_common::utils::take_function_args;
use datafusion_common::{Result, internal_err};
use datafusion_expr::{
    ColumnarValue, Documentation, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use super::lists::{result, rows};
use crate::argument::{check_count, wrong_type};
use crate::function::{Function, Kind, Param};

/// `length`.
pub(crate) const LENGTH: Function = Function {
    name: "length",
    family: "tokens",
    version: 1,
    kind: Kind::Scalar(|| ScalarUDF::new_from_impl(Length::new())),
    params: &[Param::required("value", "any[] or varchar", "A list or a text.")],
    returns: "bigint",
    doc: "Returns how many items a list has, or characters a text; `len` is the same.",
    definition: "\
The number of items, null ones included, or of Unicode characters.\n\
\n\
- Null where the value is null; 0 where it is empty.\n\
- Anything but a list or a text is an error: a list is never counted as the text it would be printed as.",
    source: None,
    slt: include_str!("length.slt"),
};

#[derive(Debug, PartialEq, Eq, Hash)]
struct Length {
    signature: Signature,
    documentation: Documentation,
    aliases: Vec<String>,
}

impl Length {
    fn new() -> Self {
        Self {
            signature: Signature::user_defined(Volatility::Immutable),
            documentation: LENGTH.documentation(),
            aliases: vec!["len".to_owned()],
        }
    }
}

impl ScalarUDFImpl for Length {
    fn name(&self) -> &str {
        LENGTH.name
    }

    fn aliases(&self) -> &[String] {
        &self.aliases
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arg_types: &[DataType]) -> Result<Vec<DataType>> {
        check_count(&LENGTH, arg_types.len())?;
        let types = arg_types.iter().map(|given| match given {
            DataType::List(_) | DataType::LargeList(_) | DataType::FixedSizeList(..) => Ok(given.clone()),
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => Ok(given.clone()),
            DataType::Null => Ok(DataType::Utf8),
            DataType::Dictionary(_, value) if value.is_string() => Ok(value.as_ref().clone()),
            other => wrong_type(&LENGTH, 0, "a list or a text", other),
        });
        types.collect()
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Int64)
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let rows = rows(args.number_rows, &args.args);
        let arrays = args.args.iter().map(|argument| argument.to_array(rows)).collect::<Result<Vec<_>>>()?;
        let [value] = take_function_args(self.name(), &arrays)?;
        let lengths: ArrayRef = match value.data_type() {
            DataType::List(_) => items(value, |row| i64::from(value.as_list::<i32>().value_length(row))),
            DataType::LargeList(_) => items(value, |row| value.as_list::<i64>().value_length(row)),
            DataType::FixedSizeList(_, size) => items(value, |_| i64::from(*size)),
            DataType::Utf8 => characters(value.as_string::<i32>()),
            DataType::LargeUtf8 => characters(value.as_string::<i64>()),
            DataType::Utf8View => characters(value.as_string_view()),
            other => return internal_err!("length of {other}"),
        };
        result(lengths, &args.args)
    }

    fn documentation(&self) -> Option<&Documentation> {
        Some(&self.documentation)
    }
}

fn items(list: &ArrayRef, length: impl Fn(usize) -> i64) -> ArrayRef {
    Arc::new((0..list.len()).map(|row| list.is_valid(row).then(|| length(row))).collect::<Int64Array>())
}

fn characters<'a>(texts: impl StringArrayType<'a>) -> ArrayRef {
    let count = |text: &str| i64::try_from(text.chars().count()).unwrap_or(i64::MAX);
    Arc::new(texts.iter().map(|text| text.map(count)).collect::<Int64Array>())
}
