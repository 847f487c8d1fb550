//! The `DataFusion` side that `exact_sum` and `exact_avg` share.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion_common::{Result, ScalarValue, exec_err, internal_err, plan_err};
use datafusion_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion_expr::utils::{AggregateOrderSensitivity, format_state_name};
use datafusion_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, Documentation, GroupsAccumulator, ReversedUDAF, Signature, Volatility,
};

use super::accumulator::ExactAccumulator;
use super::groups::ExactGroups;
use super::superaccumulator::Superaccumulator;
use crate::argument::{check_count, wrong_type};
use crate::function::Function;

/// What is made of a sum in the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Output {
    /// The sum of integers.
    IntegerSum,
    /// The sum of doubles.
    Sum,
    /// The sum over the number of values.
    Mean,
}

impl Output {
    /// Returns the result; null where no value was summed.
    pub(crate) fn of(self, sum: &Superaccumulator) -> Result<ScalarValue> {
        let empty = sum.count() == 0;
        Ok(match self {
            Self::IntegerSum if empty => ScalarValue::Int64(None),
            Self::Sum | Self::Mean if empty => ScalarValue::Float64(None),
            Self::Sum => ScalarValue::from(sum.to_f64()),
            Self::Mean => ScalarValue::from(sum.mean()),
            Self::IntegerSum => match sum.to_i64() {
                Some(total) => ScalarValue::from(total),
                None => return exec_err!("exact_sum: the sum of these integers is no bigint"),
            },
        })
    }
}

/// An aggregate over one exact sum.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct ExactAggregate {
    name: &'static str,
    is_mean: bool,
    signature: Signature,
    documentation: Documentation,
}

impl ExactAggregate {
    pub(crate) fn udaf(function: &'static Function, is_mean: bool) -> AggregateUDF {
        AggregateUDF::new_from_impl(Self {
            name: function.name,
            is_mean,
            signature: Signature::user_defined(Volatility::Immutable),
            documentation: function.documentation(),
        })
    }

    fn function(&self) -> &'static Function {
        if self.is_mean { &super::EXACT_AVG } else { &super::EXACT_SUM }
    }

    fn output(&self, args: &AccumulatorArgs) -> Result<Output> {
        if args.is_distinct {
            return plan_err!("{} takes no DISTINCT: select the distinct values below it", self.name);
        }
        Ok(match args.return_type() {
            DataType::Int64 => Output::IntegerSum,
            _ if self.is_mean => Output::Mean,
            _ => Output::Sum,
        })
    }
}

impl AggregateUDFImpl for ExactAggregate {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arg_types: &[DataType]) -> Result<Vec<DataType>> {
        check_count(self.function(), arg_types.len())?;
        let coerced = arg_types.iter().enumerate().map(|(position, given)| match given {
            given if given.is_integer() => Ok(DataType::Int64),
            given if given.is_numeric() || given.is_null() => Ok(DataType::Float64),
            other => wrong_type(self.function(), position, "a number", other),
        });
        coerced.collect()
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        match arg_types {
            [DataType::Int64] if !self.is_mean => Ok(DataType::Int64),
            [DataType::Int64 | DataType::Float64] => Ok(DataType::Float64),
            other => internal_err!("{} over {other:?}", self.name),
        }
    }

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        Ok(Box::new(ExactAccumulator::new(self.output(&args)?)))
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        Ok(vec![Arc::new(Field::new(format_state_name(args.name, "exact"), DataType::Binary, true))])
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs) -> bool {
        !args.is_distinct
    }

    fn create_groups_accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn GroupsAccumulator>> {
        Ok(Box::new(ExactGroups::new(self.output(&args)?)))
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        AggregateOrderSensitivity::Insensitive
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        ReversedUDAF::Identical
    }

    fn documentation(&self) -> Option<&Documentation> {
        Some(&self.documentation)
    }
}
