//! `is_extension(prompt, parent_context)`: does the prompt start with the whole context?

use std::sync::Arc;

use arrow::array::BooleanArray;
use arrow::datatypes::DataType;
use datafusion_common::Result;
use datafusion_common::utils::take_function_args;
use datafusion_expr::{
    ColumnarValue, Documentation, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use super::lists::{TokenLists, result, rows, token_list_type};
use crate::argument::check_count;
use crate::function::{Function, Kind, Param};

/// `is_extension`.
pub(crate) const IS_EXTENSION: Function = Function {
    name: "is_extension",
    family: "tokens",
    version: 1,
    kind: Kind::Scalar(|| ScalarUDF::new_from_impl(IsExtension::new())),
    params: &[
        Param::required("prompt", "integer[]", "Prompt tokens of a call."),
        Param::required("parent_context", "integer[]", "Context of its parent: the parent's prompt and output tokens."),
    ],
    returns: "boolean",
    doc: "Returns whether a prompt starts with the whole context of the parent call.",
    definition: "\
True if every token of `parent_context` stands at the same place in `prompt`. An empty context is extended by every prompt; equal lists extend each other.\n\
\n\
- Null where either list is null.\n\
- A null token, or one beyond int32, is an error.",
    source: None,
    slt: include_str!("is_extension.slt"),
};

#[derive(Debug, PartialEq, Eq, Hash)]
struct IsExtension {
    signature: Signature,
    documentation: Documentation,
}

impl IsExtension {
    fn new() -> Self {
        Self { signature: Signature::user_defined(Volatility::Immutable), documentation: IS_EXTENSION.documentation() }
    }
}

impl ScalarUDFImpl for IsExtension {
    fn name(&self) -> &str {
        IS_EXTENSION.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arg_types: &[DataType]) -> Result<Vec<DataType>> {
        check_count(&IS_EXTENSION, arg_types.len())?;
        let types = arg_types.iter().enumerate();
        types.map(|(position, given)| token_list_type(&IS_EXTENSION, position, given)).collect()
    }

    fn return_type(&self, _arg_types: &[DataType]) -> Result<DataType> {
        Ok(DataType::Boolean)
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [prompt, context] = take_function_args(self.name(), &args.args)?;
        let (prompts, contexts) = (TokenLists::of(prompt)?, TokenLists::of(context)?);
        let answers = (0..rows(args.number_rows, &args.args)).map(|row| {
            let pair = prompts.row(row)?.zip(contexts.row(row)?);
            Ok(pair.map(|(prompt, context)| prompt.starts_with(context)))
        });
        let answers = answers.collect::<Result<BooleanArray>>()?;
        result(Arc::new(answers), &args.args)
    }

    fn documentation(&self) -> Option<&Documentation> {
        Some(&self.documentation)
    }
}
