//! Scalar functions over lists: columns first, constants after them.

use std::fmt;
use std::hash::{Hash, Hasher};

use arrow::array::ArrayRef;
use arrow::datatypes::DataType;
use datafusion_common::{Result, ScalarValue, plan_err};
use datafusion_expr::{
    ColumnarValue, Documentation, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use crate::argument::argument_types;
use crate::constants::Constants;
use crate::function::Function;

/// A scalar function over lists.
#[derive(Clone, Copy)]
pub(crate) struct ListFunction {
    /// Its entry in the list of functions.
    pub(crate) function: &'static Function,
    /// Leading arguments that are columns; the others are constants.
    pub(crate) columns: usize,
    /// Type of the result.
    pub(crate) output: fn() -> DataType,
    /// Computes a result for each of the rows.
    pub(crate) evaluate: fn(&[ArrayRef], usize, &Constants) -> Result<ArrayRef>,
    /// Types of the arguments, where what the function declares does not decide them.
    pub(crate) types: fn(&'static Function, &[DataType]) -> Result<Vec<DataType>>,
}

struct ListUdf {
    definition: ListFunction,
    signature: Signature,
    documentation: Documentation,
}

/// Returns the types that a function's declaration decides.
pub(crate) fn declared(function: &'static Function, given: &[DataType]) -> Result<Vec<DataType>> {
    argument_types(function, given)
}

/// Makes the `DataFusion` function.
pub(crate) fn udf(definition: ListFunction) -> ScalarUDF {
    ScalarUDF::new_from_impl(ListUdf {
        definition,
        signature: Signature::user_defined(Volatility::Immutable),
        documentation: definition.function.documentation(),
    })
}

impl fmt::Debug for ListUdf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ListUdf").field(&self.definition.function.name).finish()
    }
}

impl PartialEq for ListUdf {
    fn eq(&self, other: &Self) -> bool {
        self.definition.function.name == other.definition.function.name
    }
}

impl Eq for ListUdf {}

impl Hash for ListUdf {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.definition.function.name.hash(state);
    }
}

impl ScalarUDFImpl for ListUdf {
    fn name(&self) -> &str {
        self.definition.function.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arg_types: &[DataType]) -> Result<Vec<DataType>> {
        (self.definition.types)(self.definition.function, arg_types)
    }

    fn return_type(&self, _arg_types: &[DataType]) -> Result<DataType> {
        Ok((self.definition.output)())
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let ListFunction { function, columns, evaluate, .. } = self.definition;
        let all_scalar = args.args.iter().all(|argument| matches!(argument, ColumnarValue::Scalar(_)));
        let rows = if all_scalar { 1 } else { args.number_rows };
        let (given, constants) = args.args.split_at(columns.min(args.args.len()));
        let constants = constants.iter().enumerate().map(|(at, constant)| match constant {
            ColumnarValue::Scalar(value) => Ok(value.clone()),
            ColumnarValue::Array(_) => {
                let name = function.params.get(columns + at).map_or("?", |param| param.name);
                plan_err!("{}: {name} must be a constant", function.name)
            }
        });
        let constants = Constants::new(function, columns, constants.collect::<Result<Vec<_>>>()?)?;
        let arrays = given.iter().map(|argument| argument.to_array(rows)).collect::<Result<Vec<_>>>()?;
        let result = evaluate(&arrays, rows, &constants)?;
        if all_scalar && result.len() == 1 {
            return Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&result, 0)?));
        }
        Ok(ColumnarValue::Array(result))
    }

    fn documentation(&self) -> Option<&Documentation> {
        Some(&self.documentation)
    }
}
