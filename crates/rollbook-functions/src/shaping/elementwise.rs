//! Scalar functions of a number, or of every number of a list.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, ListArray};
use arrow::datatypes::{DataType, Field, Float64Type};
use datafusion_common::{Result, ScalarValue, internal_err, plan_err};
use datafusion_expr::{
    ColumnarValue, Documentation, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use crate::argument::{check_count, constant_types, number_type};
use crate::constants::Constants;
use crate::function::Function;
use crate::number_lists::number_list_type;

/// A function whose first argument is a number or a list of numbers, and whose others are constants.
#[derive(Clone, Copy)]
pub(super) struct Elementwise {
    /// Its entry in the list of functions.
    pub(super) function: &'static Function,
    /// Reads the constants of a call and returns what is done to a number.
    pub(super) rule: fn(&Constants) -> Result<Rule>,
}

/// What is done to a number.
#[derive(Debug, Clone, Copy)]
pub(super) enum Rule {
    /// Cut at two bounds.
    Clip { low: Option<f64>, high: Option<f64> },
    /// Multiplied by one factor below 0, by another above.
    Balance { negative: f64, positive: f64 },
}

impl Rule {
    fn apply(self, value: f64) -> f64 {
        match self {
            Self::Clip { low: Some(low), .. } if value < low => low,
            Self::Clip { high: Some(high), .. } if value > high => high,
            Self::Clip { .. } => value,
            Self::Balance { negative, .. } if value < 0.0 => value * negative,
            Self::Balance { positive, .. } if value > 0.0 => value * positive,
            Self::Balance { .. } => value,
        }
    }
}

struct ElementwiseUdf {
    definition: Elementwise,
    signature: Signature,
    documentation: Documentation,
}

/// Makes the `DataFusion` function.
pub(super) fn udf(definition: Elementwise) -> ScalarUDF {
    ScalarUDF::new_from_impl(ElementwiseUdf {
        definition,
        signature: Signature::user_defined(Volatility::Immutable),
        documentation: definition.function.documentation(),
    })
}

impl fmt::Debug for ElementwiseUdf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Elementwise").field(&self.definition.function.name).finish()
    }
}

impl PartialEq for ElementwiseUdf {
    fn eq(&self, other: &Self) -> bool {
        self.definition.function.name == other.definition.function.name
    }
}

impl Eq for ElementwiseUdf {}

impl Hash for ElementwiseUdf {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.definition.function.name.hash(state);
    }
}

impl ScalarUDFImpl for ElementwiseUdf {
    fn name(&self) -> &str {
        self.definition.function.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arg_types: &[DataType]) -> Result<Vec<DataType>> {
        let function = self.definition.function;
        check_count(function, arg_types.len())?;
        let mut types = match arg_types.first() {
            Some(list @ (DataType::List(_) | DataType::LargeList(_) | DataType::FixedSizeList(..))) => {
                vec![number_list_type(function, 0, list)?]
            }
            Some(number) => vec![number_type(function, 0, number)?],
            None => Vec::new(),
        };
        types.extend(constant_types(function, 1, arg_types)?);
        Ok(types)
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        match arg_types.first() {
            Some(data_type) => Ok(data_type.clone()),
            None => internal_err!("{} of nothing", self.name()),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let Elementwise { function, rule } = self.definition;
        let Some((given, constants)) = args.args.split_first() else {
            return internal_err!("{} of nothing", function.name);
        };
        let constants = constants.iter().enumerate().map(|(at, constant)| match constant {
            ColumnarValue::Scalar(value) => Ok(value.clone()),
            ColumnarValue::Array(_) => {
                let name = function.params.get(1 + at).map_or("?", |param| param.name);
                plan_err!("{}: {name} must be a constant", function.name)
            }
        });
        let rule = rule(&Constants::new(function, 1, constants.collect::<Result<Vec<_>>>()?)?)?;
        match given {
            ColumnarValue::Array(array) => Ok(ColumnarValue::Array(over(function, rule, array)?)),
            ColumnarValue::Scalar(value) => {
                let result = over(function, rule, &value.to_array()?)?;
                Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&result, 0)?))
            }
        }
    }

    fn documentation(&self) -> Option<&Documentation> {
        Some(&self.documentation)
    }
}

/// Applies a rule to a column; what is null stays null.
fn over(function: &Function, rule: Rule, array: &ArrayRef) -> Result<ArrayRef> {
    if let Some(numbers) = array.as_primitive_opt::<Float64Type>() {
        return Ok(Arc::new(numbers.unary::<_, Float64Type>(|value| rule.apply(value))));
    }
    let Some(lists) = array.as_list_opt::<i32>() else {
        return internal_err!("{} of {}", function.name, array.data_type());
    };
    let items = over(function, rule, lists.values())?;
    let field = Arc::new(Field::new_list_field(DataType::Float64, true));
    Ok(Arc::new(ListArray::try_new(field, lists.offsets().clone(), items, lists.nulls().cloned())?))
}
