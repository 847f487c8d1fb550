//! A scalar function given by its types and one evaluation over arrays.

use std::hash::{Hash, Hasher};

use datafusion::arrow::array::ArrayRef;
use datafusion::arrow::datatypes::DataType;
use datafusion::common::{Result, exec_err, plan_err};
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};

/// Computes a column from the arguments' columns and the number of rows.
pub(super) type Evaluate = fn(&[ArrayRef], usize) -> Result<ArrayRef>;

#[derive(Debug)]
pub(super) struct RowFunction {
    name: &'static str,
    signature: Signature,
    arguments: Vec<DataType>,
    returns: DataType,
    evaluate: Evaluate,
}

impl RowFunction {
    /// Makes a function; lists may have any items, since columns and aggregates name them differently.
    pub(super) fn udf(
        name: &'static str,
        arguments: Vec<DataType>,
        returns: DataType,
        evaluate: Evaluate,
    ) -> ScalarUDF {
        let signature = Signature::user_defined(Volatility::Immutable);
        ScalarUDF::from(Self { name, signature, arguments, returns, evaluate })
    }
}

impl PartialEq for RowFunction {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for RowFunction {}

impl Hash for RowFunction {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

impl ScalarUDFImpl for RowFunction {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        if given.len() != self.arguments.len() {
            return plan_err!("{} takes {} arguments", self.name, self.arguments.len());
        }
        let coerced = given.iter().zip(&self.arguments).map(|(given, wanted)| match (given, wanted) {
            (DataType::List(_), DataType::List(_)) => Ok(given.clone()),
            (DataType::Null, _) => Ok(wanted.clone()),
            (_, DataType::List(_)) => plan_err!("{} takes a list, not {given}", self.name),
            _ => Ok(wanted.clone()),
        });
        coerced.collect()
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(self.returns.clone())
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let rows = args.number_rows;
        let arrays = args.args.iter().map(|arg| arg.to_array(rows)).collect::<Result<Vec<_>>>()?;
        let result = (self.evaluate)(&arrays, rows)?;
        if result.len() != rows {
            return exec_err!("{} made {} values for {rows} rows", self.name, result.len());
        }
        Ok(ColumnarValue::Array(result))
    }
}
