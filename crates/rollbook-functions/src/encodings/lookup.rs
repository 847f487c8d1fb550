//! What the functions of encodings share: a `DataFusion` function around one evaluation over rows.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, StringArray};
use arrow::datatypes::DataType;
use datafusion_common::{Result, exec_datafusion_err};
use datafusion_expr::{
    ColumnarValue, Documentation, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use super::Encodings;
use crate::argument::check_count;
use crate::function::Function;

/// How one of the functions reads its arguments and gives its result.
pub(super) struct Shape {
    pub(super) function: &'static Function,
    pub(super) returns: fn() -> DataType,
    /// Types that arguments are read as.
    pub(super) types: fn(&[DataType]) -> Result<Vec<DataType>>,
    /// Evaluates so many rows.
    pub(super) evaluate: fn(&dyn Encodings, &[ColumnarValue], usize) -> Result<ArrayRef>,
}

/// Makes the `DataFusion` function.
pub(super) fn udf(shape: Shape, encodings: Arc<dyn Encodings>) -> ScalarUDF {
    let documentation = shape.function.documentation();
    // Blobs are found by their content and a session reads one snapshot, so the same arguments give the same result.
    let signature = Signature::user_defined(Volatility::Immutable);
    ScalarUDF::new_from_impl(Lookup { shape, encodings, signature, documentation })
}

struct Lookup {
    shape: Shape,
    encodings: Arc<dyn Encodings>,
    signature: Signature,
    documentation: Documentation,
}

impl std::fmt::Debug for Lookup {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lookup").field("function", &self.shape.function.name).finish_non_exhaustive()
    }
}

impl PartialEq for Lookup {
    fn eq(&self, other: &Self) -> bool {
        self.shape.function.name == other.shape.function.name && Arc::ptr_eq(&self.encodings, &other.encodings)
    }
}

impl Eq for Lookup {}

impl Hash for Lookup {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.shape.function.name.hash(state);
    }
}

impl ScalarUDFImpl for Lookup {
    fn name(&self) -> &str {
        self.shape.function.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arg_types: &[DataType]) -> Result<Vec<DataType>> {
        check_count(self.shape.function, arg_types.len())?;
        (self.shape.types)(arg_types)
    }

    fn return_type(&self, _arg_types: &[DataType]) -> Result<DataType> {
        Ok((self.shape.returns)())
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let rows = crate::tokens::rows(args.number_rows, &args.args);
        let result = (self.shape.evaluate)(self.encodings.as_ref(), &args.args, rows)?;
        crate::tokens::result(result, &args.args)
    }

    fn documentation(&self) -> Option<&Documentation> {
        Some(&self.documentation)
    }
}

/// One text argument, for each row or for all.
pub(super) struct Texts {
    array: StringArray,
}

impl Texts {
    pub(super) fn of(arguments: &[ColumnarValue], place: usize, rows: usize) -> Result<Self> {
        let argument = arguments.get(place).ok_or_else(|| exec_datafusion_err!("argument {place} is missing"))?;
        let array = argument.to_array(rows)?;
        let array = array
            .as_string_opt::<i32>()
            .ok_or_else(|| exec_datafusion_err!("argument {place} is a {}, no text", array.data_type()))?;
        Ok(Self { array: array.clone() })
    }

    pub(super) fn row(&self, row: usize) -> Option<&str> {
        (row < self.array.len() && self.array.is_valid(row)).then(|| self.array.value(row))
    }
}
