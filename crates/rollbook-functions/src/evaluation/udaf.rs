//! The `DataFusion` side of the aggregates over attempts.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Float64Array, StructArray};
use arrow::datatypes::{DataType, Field, FieldRef, Fields, Float64Type};
use datafusion_common::{Result, ScalarValue, exec_err, internal_err, plan_err};
use datafusion_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion_expr::utils::AggregateOrderSensitivity;
use datafusion_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, Documentation, ReversedUDAF, Signature, Volatility,
};

use super::attempts::{Attempts, state_fields};
use super::distribution::student_reach;
use super::estimate::Question;
use crate::argument::{check_count, constant_types};
use crate::constants::Constants;
use crate::exact::total;
use crate::function::Function;

/// Which aggregate it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Name {
    PassAtK,
    PassHatK,
    PassAtKInterval,
    PassHatKInterval,
    MeanInterval,
}

/// What is made of attempts and successes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Answer {
    Estimate { question: Question, k: usize },
    Interval { question: Question, k: usize, confidence: f64 },
}

impl Answer {
    pub(super) fn of(self, attempts: usize, successes: usize) -> ScalarValue {
        match self {
            Self::Estimate { question, k } => ScalarValue::Float64(question.estimate(attempts, successes, k)),
            Self::Interval { question, k, confidence } => {
                interval(question.interval(attempts, successes, k, confidence))
            }
        }
    }
}

/// The fields of an interval.
fn fields() -> Fields {
    Fields::from(vec![Field::new("low", DataType::Float64, true), Field::new("high", DataType::Float64, true)])
}

fn interval(ends: Option<(f64, f64)>) -> ScalarValue {
    let column = |value: Option<f64>| -> ArrayRef { Arc::new(Float64Array::from(vec![value])) };
    let columns = vec![column(ends.map(|ends| ends.0)), column(ends.map(|ends| ends.1))];
    ScalarValue::Struct(Arc::new(StructArray::new(fields(), columns, None)))
}

/// An aggregate by its name.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct Evaluation {
    name: Name,
    signature: Signature,
    documentation: Documentation,
}

impl Evaluation {
    pub(super) fn udaf(name: Name) -> AggregateUDF {
        let signature = Signature::user_defined(Volatility::Immutable);
        AggregateUDF::new_from_impl(Self { name, signature, documentation: function(name).documentation() })
    }

    fn answer(&self, args: &AccumulatorArgs) -> Result<Answer> {
        let function = function(self.name);
        let constants = Constants::of_aggregate(function, 2, args)?;
        let k = match constants.integer("k")?.map(usize::try_from) {
            Some(Ok(k)) if k > 0 => k,
            _ => return plan_err!("{}: k must be at least 1", function.name),
        };
        let question = match self.name {
            Name::PassHatK | Name::PassHatKInterval => Question::All,
            _ => Question::Any,
        };
        Ok(match self.name {
            Name::PassAtK | Name::PassHatK => Answer::Estimate { question, k },
            _ => Answer::Interval { question, k, confidence: confidence(function, &constants)? },
        })
    }
}

fn confidence(function: &Function, constants: &Constants) -> Result<f64> {
    let confidence = constants.number("confidence")?;
    if confidence > 0.0 && confidence < 1.0 {
        return Ok(confidence);
    }
    plan_err!("{}: confidence must lie between 0 and 1, not be {confidence}", function.name)
}

fn function(name: Name) -> &'static Function {
    match name {
        Name::PassAtK => &super::PASS_AT_K,
        Name::PassHatK => &super::PASS_HAT_K,
        Name::PassAtKInterval => &super::PASS_AT_K_INTERVAL,
        Name::PassHatKInterval => &super::PASS_HAT_K_INTERVAL,
        Name::MeanInterval => &super::MEAN_INTERVAL,
    }
}

impl AggregateUDFImpl for Evaluation {
    fn name(&self) -> &str {
        function(self.name).name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arg_types: &[DataType]) -> Result<Vec<DataType>> {
        let function = function(self.name);
        check_count(function, arg_types.len())?;
        constant_types(function, 0, arg_types)
    }

    fn return_type(&self, _arg_types: &[DataType]) -> Result<DataType> {
        Ok(match self.name {
            Name::PassAtK | Name::PassHatK => DataType::Float64,
            _ => DataType::Struct(fields()),
        })
    }

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        let function = function(self.name);
        if args.is_distinct {
            return plan_err!("{} takes no DISTINCT: it counts each rollout once", function.name);
        }
        if self.name == Name::MeanInterval {
            let constants = Constants::of_aggregate(function, 1, &args)?;
            return Ok(Box::new(Means { values: Vec::new(), confidence: confidence(function, &constants)? }));
        }
        Ok(Box::new(Attempts::new(function.name, self.answer(&args)?)))
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        if self.name == Name::MeanInterval {
            let list = DataType::List(Arc::new(Field::new_list_field(DataType::Float64, true)));
            return Ok(vec![Arc::new(Field::new(format!("{}[values]", args.name), list, true))]);
        }
        Ok(state_fields(args.name))
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

/// Values whose mean is estimated.
#[derive(Debug)]
struct Means {
    values: Vec<f64>,
    confidence: f64,
}

impl Means {
    #[expect(clippy::cast_precision_loss, reason = "no group has 2^53 values")]
    fn ends(&self) -> Option<(f64, f64)> {
        if self.values.len() < 2 {
            return None;
        }
        let n = self.values.len() as f64;
        let each = self.values.iter();
        let mean = total(each.clone().copied()) / n;
        let squares = total(each.map(|value| (value - mean) * (value - mean)));
        let reach = student_reach(self.confidence, self.values.len() - 1);
        let half = reach * (squares / (n - 1.0) / n).sqrt();
        let ends = (mean - half, mean + half);
        (ends.0.is_finite() && ends.1.is_finite()).then_some(ends)
    }
}

impl Accumulator for Means {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let Some(values) = values.first().and_then(|values| values.as_primitive_opt::<Float64Type>()) else {
            return internal_err!("mean_interval without numbers");
        };
        for value in values.iter().flatten() {
            if !value.is_finite() {
                return exec_err!("mean_interval: a value is {value}");
            }
            self.values.push(value);
        }
        Ok(())
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        Ok(interval(self.ends()))
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.values.capacity() * size_of::<f64>()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let values: Vec<ScalarValue> = self.values.iter().map(|value| ScalarValue::from(*value)).collect();
        Ok(vec![ScalarValue::List(ScalarValue::new_list_nullable(&values, &DataType::Float64))])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let Some(lists) = states.first().and_then(|states| states.as_list_opt::<i32>()) else {
            return internal_err!("mean_interval: a partial result of another type");
        };
        for row in (0..lists.len()).filter(|row| lists.is_valid(*row)) {
            self.values.extend(lists.value(row).as_primitive::<Float64Type>().iter().flatten());
        }
        Ok(())
    }
}
