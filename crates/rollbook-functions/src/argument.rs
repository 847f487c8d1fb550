//! Argument types that functions of several families share.

use arrow::datatypes::DataType;
use datafusion_common::{Result, plan_err};

use crate::function::Function;
use crate::number_lists::{mask_type, number_list_type};

/// Fails unless a call has as many arguments as the function takes; those with a default may be left off at the end.
pub(crate) fn check_count(function: &Function, given: usize) -> Result<()> {
    let required = function.params.iter().filter(|param| param.default.is_none()).count();
    if (required..=function.params.len()).contains(&given) {
        return Ok(());
    }
    plan_err!("{} takes {}, {given} arguments were given", function.name, function.syntax())
}

/// Returns the type that an id is read as.
pub(crate) fn id_type(function: &Function, position: usize, given: &DataType) -> Result<DataType> {
    match given {
        DataType::Null | DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => Ok(DataType::Utf8),
        DataType::Dictionary(_, value) => id_type(function, position, value),
        integer if integer.is_integer() => Ok(DataType::Utf8),
        other => wrong_type(function, position, "a string", other),
    }
}

/// Returns the type that an integer is read as.
pub(crate) fn integer_type(function: &Function, position: usize, given: &DataType) -> Result<DataType> {
    match given {
        integer if integer.is_integer() || integer.is_null() => Ok(DataType::Int64),
        other => wrong_type(function, position, "an integer", other),
    }
}

/// Returns the type that a number is read as.
pub(crate) fn number_type(function: &Function, position: usize, given: &DataType) -> Result<DataType> {
    match given {
        number if number.is_numeric() || number.is_null() => Ok(DataType::Float64),
        other => wrong_type(function, position, "a number", other),
    }
}

/// Returns the type that a boolean is read as.
pub(crate) fn boolean_type(function: &Function, position: usize, given: &DataType) -> Result<DataType> {
    match given {
        DataType::Boolean | DataType::Null => Ok(DataType::Boolean),
        other => wrong_type(function, position, "a boolean", other),
    }
}

/// Fails with what the argument should have been.
pub(crate) fn wrong_type<T>(function: &Function, position: usize, wanted: &str, given: &DataType) -> Result<T> {
    let name = function.params.get(position).map_or("?", |param| param.name);
    plan_err!("{}: {name} must be {wanted}, not {given}", function.name)
}

/// Returns the types that the constant arguments of a call are read as, by what the function declares.
pub(crate) fn constant_types(function: &Function, first: usize, given: &[DataType]) -> Result<Vec<DataType>> {
    let constants = given.iter().enumerate().skip(first);
    constants
        .map(|(position, data_type)| match function.params.get(position).map(|param| param.type_name) {
            Some("bigint") => integer_type(function, position, data_type),
            Some("double") => number_type(function, position, data_type),
            Some("boolean") => boolean_type(function, position, data_type),
            _ => id_type(function, position, data_type),
        })
        .collect()
}

/// Returns the types that the arguments of a call are read as, all by what the function declares.
pub(crate) fn argument_types(function: &Function, given: &[DataType]) -> Result<Vec<DataType>> {
    check_count(function, given.len())?;
    let types = given.iter().enumerate();
    types
        .map(|(position, data_type)| match function.params.get(position).map(|param| param.type_name) {
            Some("double[]") => number_list_type(function, position, data_type),
            Some("boolean[]") => mask_type(function, position, data_type),
            Some("bigint") => integer_type(function, position, data_type),
            Some("double") => number_type(function, position, data_type),
            Some("boolean") => boolean_type(function, position, data_type),
            _ => id_type(function, position, data_type),
        })
        .collect()
}
