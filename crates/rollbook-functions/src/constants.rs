//! Arguments that must be constants: read once, when a query is planned.

use std::sync::{Arc, LazyLock};

use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::datatypes::{DataType, Schema};
use datafusion_common::{Result, ScalarValue, internal_err, plan_err};
use datafusion_expr::ColumnarValue;
use datafusion_expr::function::{AccumulatorArgs, PartitionEvaluatorArgs};

use crate::function::Function;

/// One row without columns: an expression that evaluates over it reads no column.
static NO_COLUMNS: LazyLock<Option<RecordBatch>> = LazyLock::new(|| {
    let options = RecordBatchOptions::new().with_row_count(Some(1));
    RecordBatch::try_new_with_options(Arc::new(Schema::empty()), vec![], &options).ok()
});

/// The constant arguments of one call, by name.
pub(crate) struct Constants {
    function: &'static Function,
    /// One for each argument of the function; null in the place of one that is no constant.
    values: Vec<ScalarValue>,
}

impl Constants {
    /// Reads the constant arguments of a window call; `first` is the position of the first of them.
    pub(crate) fn of_call(function: &'static Function, first: usize, args: &PartitionEvaluatorArgs) -> Result<Self> {
        let positions = first..args.input_exprs().len();
        let given = positions.map(|position| constant(function, position, expr_of(args, position)));
        let given = given.collect::<Result<_>>()?;
        Self::new(function, first, given)
    }

    /// Reads the constant arguments of a window call some of whose arguments are columns.
    pub(crate) fn beside_columns(
        function: &'static Function,
        is_column: impl Fn(usize) -> bool,
        args: &PartitionEvaluatorArgs,
    ) -> Result<Self> {
        let mut given = Vec::new();
        for position in 0..args.input_exprs().len() {
            given.push(if is_column(position) {
                ScalarValue::Null
            } else {
                constant(function, position, expr_of(args, position))?
            });
        }
        Self::new(function, 0, given)
    }

    /// Reads the constant arguments of an aggregate call.
    pub(crate) fn of_aggregate(function: &'static Function, first: usize, args: &AccumulatorArgs) -> Result<Self> {
        let constants = args.exprs.iter().enumerate().skip(first).map(|(position, expr)| {
            let value = NO_COLUMNS.as_ref().and_then(|batch| expr.evaluate(batch).ok());
            constant(function, position, (value, expr.to_string()))
        });
        Self::new(function, first, constants.collect::<Result<Vec<_>>>()?)
    }

    /// Completes the given constants with the defaults of those that are missing.
    pub(crate) fn new(function: &'static Function, first: usize, given: Vec<ScalarValue>) -> Result<Self> {
        let mut values = vec![ScalarValue::Null; first];
        values.extend(given);
        for param in function.params.iter().skip(values.len()) {
            values.push(param.default_value()?);
        }
        Ok(Self { function, values })
    }

    fn value(&self, name: &str, data_type: &DataType) -> Result<ScalarValue> {
        let position = self.function.params.iter().position(|param| param.name == name);
        let Some(value) = position.and_then(|position| self.values.get(position)) else {
            return internal_err!("{} has no argument {name}", self.function.name);
        };
        value.cast_to(data_type)
    }

    /// Returns an integer, or null.
    pub(crate) fn integer(&self, name: &str) -> Result<Option<i64>> {
        match self.value(name, &DataType::Int64)? {
            ScalarValue::Int64(value) => Ok(value),
            other => internal_err!("{name} is {other}"),
        }
    }

    /// Returns a number that is not null.
    pub(crate) fn number(&self, name: &str) -> Result<f64> {
        let ScalarValue::Float64(Some(value)) = self.value(name, &DataType::Float64)? else {
            return plan_err!("{}: {name} must not be null", self.function.name);
        };
        Ok(value)
    }

    /// Returns a number, or null.
    pub(crate) fn optional_number(&self, name: &str) -> Result<Option<f64>> {
        match self.value(name, &DataType::Float64)? {
            ScalarValue::Float64(value) => Ok(value),
            other => internal_err!("{name} is {other}"),
        }
    }

    /// Returns a text, or null.
    pub(crate) fn text(&self, name: &str) -> Result<Option<String>> {
        Ok(self.value(name, &DataType::Utf8)?.try_as_str().flatten().map(str::to_owned))
    }

    /// Returns a boolean that is not null.
    pub(crate) fn boolean(&self, name: &str) -> Result<bool> {
        let ScalarValue::Boolean(Some(value)) = self.value(name, &DataType::Boolean)? else {
            return plan_err!("{}: {name} must not be null", self.function.name);
        };
        Ok(value)
    }

    /// Returns which of the words an argument is; `NULL` is the word `'null'`.
    pub(crate) fn choice<T: Copy>(&self, name: &str, choices: &[(&str, T)]) -> Result<T> {
        let value = self.value(name, &DataType::Utf8)?;
        let word = value.try_as_str().flatten().unwrap_or("null");
        if let Some((_, choice)) = choices.iter().find(|(known, _)| *known == word) {
            return Ok(*choice);
        }
        let known: Vec<String> = choices.iter().map(|(known, _)| format!("'{known}'")).collect();
        let known = known.join(", ");
        plan_err!("{}: {name} must be one of {known}, not {word}", self.function.name)
    }
}

/// What an argument evaluates to where there is no column, and its text.
type Evaluated = (Option<ColumnarValue>, String);

fn expr_of(args: &PartitionEvaluatorArgs, position: usize) -> Evaluated {
    let expr = args.input_exprs().get(position);
    let value = expr.zip(NO_COLUMNS.as_ref()).and_then(|(expr, batch)| expr.evaluate(batch).ok());
    (value, expr.map(ToString::to_string).unwrap_or_default())
}

/// Returns the value of the argument at a position, which must not depend on a column.
fn constant(function: &Function, position: usize, (value, text): Evaluated) -> Result<ScalarValue> {
    let value = match value {
        Some(ColumnarValue::Scalar(value)) => Some(value),
        Some(ColumnarValue::Array(array)) => ScalarValue::try_from_array(&array, 0).ok(),
        None => None,
    };
    let name = function.params.get(position).map_or("?", |param| param.name);
    match value {
        Some(value) => Ok(value),
        None => plan_err!("{}: {name} must be a constant, not {text}", function.name),
    }
}
