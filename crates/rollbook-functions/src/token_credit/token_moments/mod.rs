//! `token_moments(numbers, mask, call_id)`: what whitening needs to know of a batch.

use std::sync::{Arc, LazyLock};

use arrow::array::{Array, ArrayRef, AsArray, Float64Array, Int32Array, Int64Array, StructArray};
use arrow::datatypes::{DataType, Field, FieldRef, Fields, Float64Type, Int32Type, Int64Type};
use datafusion_common::{Result, ScalarValue, exec_err, internal_err, plan_err};
use datafusion_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion_expr::utils::{AggregateOrderSensitivity, format_state_name};
use datafusion_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, Documentation, ReversedUDAF, Signature, Volatility,
};

use super::moments::{Moments, Sums};
use super::read::{CALL_ID, MASK};
use crate::argument::argument_types;
use crate::call_window::CallIds;
use crate::double_double::DoubleDouble;
use crate::function::{Function, Kind, Param};
use crate::number_lists::{Lists, NotFinite, shared_length};

/// `token_moments`.
pub(crate) const TOKEN_MOMENTS: Function = Function {
    name: "token_moments",
    family: "token_credit",
    version: 1,
    kind: Kind::Aggregate(|| AggregateUDF::new_from_impl(TokenMoments::new())),
    params: &[Param::required("numbers", "double[]", "A number of each token."), MASK, CALL_ID],
    returns: "struct<count bigint, exponent integer, sum double, sum_rest double, squares double, squares_rest double>",
    doc: "Returns count, sum and sum of squares of the selected tokens of many calls, for whiten and for means over tokens.",
    definition: "\
Over the selected tokens that are not null. With exponent 0, which is the rule, `sum / count` is the mean; `sum_rest` and `squares_rest` are what the \
doubles `sum` and `squares` leave of the exact sums. Where numbers lie beyond 2^300 (or all of them below 2^-300) sums are scaled by 2^-exponent and \
squares by its square, so that squares neither overflow nor vanish.\n\
\n\
- Without a token count and sums are 0.\n\
- Sums are exact until they are rounded to two doubles, so no order of rows and no number of threads can change a bit.\n\
- NaN or infinity in a selected token, and lists of one call that differ in length, are errors that name the call.",
    source: None,
    slt: include_str!("token_moments.slt"),
};

/// Fields of the result.
static FIELDS: LazyLock<Fields> = LazyLock::new(|| {
    vec![
        Field::new("count", DataType::Int64, true),
        Field::new("exponent", DataType::Int32, true),
        Field::new("sum", DataType::Float64, true),
        Field::new("sum_rest", DataType::Float64, true),
        Field::new("squares", DataType::Float64, true),
        Field::new("squares_rest", DataType::Float64, true),
    ]
    .into()
});

/// Returns the type of the result.
pub(super) fn moments_type() -> DataType {
    DataType::Struct(FIELDS.clone())
}

/// Reads results of `token_moments`: one a row, `None` for null.
pub(super) fn read_moments(column: &ArrayRef) -> Result<Vec<Option<Moments>>> {
    let Some(structs) = column.as_struct_opt() else {
        return internal_err!("moments of type {}", column.data_type());
    };
    let [count, exponent, sum, sum_rest, squares, squares_rest] = structs.columns() else {
        return internal_err!("moments of {} fields", structs.num_columns());
    };
    let number = |array: &ArrayRef, row: usize| array.as_primitive::<Float64Type>().value(row);
    let moments = (0..structs.len()).map(|row| {
        let known = structs.columns().iter().all(|field| field.is_valid(row)) && structs.is_valid(row);
        let count = count.as_primitive::<Int64Type>().value(row);
        known.then(|| Moments {
            count: u64::try_from(count).unwrap_or(0),
            exponent: exponent.as_primitive::<Int32Type>().value(row),
            sum: DoubleDouble { high: number(sum, row), low: number(sum_rest, row) },
            squares: DoubleDouble { high: number(squares, row), low: number(squares_rest, row) },
        })
    });
    Ok(moments.collect())
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct TokenMoments {
    signature: Signature,
    documentation: Documentation,
}

impl TokenMoments {
    fn new() -> Self {
        Self { signature: Signature::user_defined(Volatility::Immutable), documentation: TOKEN_MOMENTS.documentation() }
    }
}

impl AggregateUDFImpl for TokenMoments {
    fn name(&self) -> &str {
        TOKEN_MOMENTS.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arg_types: &[DataType]) -> Result<Vec<DataType>> {
        argument_types(&TOKEN_MOMENTS, arg_types)
    }

    fn return_type(&self, _arg_types: &[DataType]) -> Result<DataType> {
        Ok(moments_type())
    }

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        if args.is_distinct {
            return plan_err!("{} takes no DISTINCT", TOKEN_MOMENTS.name);
        }
        Ok(Box::new(MomentsAccumulator::default()))
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        Ok(vec![Arc::new(Field::new(format_state_name(args.name, "sums"), DataType::Binary, true))])
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

/// The sums of one group of rows.
#[derive(Debug, Default)]
pub(super) struct MomentsAccumulator {
    sums: Sums,
}

impl Accumulator for MomentsAccumulator {
    fn update_batch(&mut self, columns: &[ArrayRef]) -> Result<()> {
        let name = TOKEN_MOMENTS.name;
        let [values, mask, call_ids] = columns else {
            return internal_err!("{name} over {} columns", columns.len());
        };
        let ids = CallIds::of(call_ids)?;
        let rows = values.len();
        let (values, mask) = (Lists::of("numbers", values)?, Lists::of("mask", mask)?);
        let (mut selected, mut numbers) = (Vec::new(), Vec::new());
        for row in 0..rows {
            let Some(length) = shared_length(name, &ids.show(row), row, &[&mask, &values])? else { continue };
            selected.clear();
            numbers.clear();
            mask.select(row, length, &mut selected);
            let read = values.numbers(row, &selected, NotFinite::Error, &mut numbers);
            read.or_else(|fault| fault.error(name, &ids.show(row)))?;
            let counted = numbers.iter().zip(&selected).filter(|(number, selected)| **selected && !number.is_nan());
            counted.for_each(|(number, _)| self.sums.add(*number));
        }
        Ok(())
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let moments = self.sums.moments();
        let Ok(count) = i64::try_from(moments.count) else {
            return exec_err!("{}: too many tokens", TOKEN_MOMENTS.name);
        };
        let number = |value: f64| Arc::new(Float64Array::from(vec![value])) as ArrayRef;
        let columns: Vec<ArrayRef> = vec![
            Arc::new(Int64Array::from(vec![count])),
            Arc::new(Int32Array::from(vec![moments.exponent])),
            number(moments.sum.high),
            number(moments.sum.low),
            number(moments.squares.high),
            number(moments.squares.low),
        ];
        Ok(ScalarValue::Struct(Arc::new(StructArray::try_new(FIELDS.clone(), columns, None)?)))
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.sums.heap_size()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Ok(vec![ScalarValue::Binary(Some(self.sums.to_bytes()?))])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let [states] = states else {
            return internal_err!("{} merges {} columns", TOKEN_MOMENTS.name, states.len());
        };
        for state in states.as_binary::<i32>().iter().flatten() {
            let Some(sums) = Sums::from_bytes(state) else {
                return internal_err!("the state of {} is damaged", TOKEN_MOMENTS.name);
            };
            self.sums.merge(&sums);
        }
        Ok(())
    }
}
