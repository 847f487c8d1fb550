//! The list columns of `samples`, made from rows.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, ArrowPrimitiveType, BooleanArray, Int32Array, ListArray, ListBuilder, PrimitiveBuilder, StringArray,
    StructArray,
};
use arrow::buffer::{OffsetBuffer, ScalarBuffer};
use arrow::datatypes::{DataType, Field, Fields, Float32Type, Float64Type};

use crate::build::assemble::{Row, Segment};
use crate::build::plan::Plan;
use crate::error::{Error, Result};

/// The columns that have an item for each token.
pub(super) fn list_columns(rows: &[Row]) -> Result<[(&'static str, ArrayRef); 6]> {
    let advantages = rows.iter().map(|row| row.advantages.iter().copied().map(Some));
    let weights = rows.iter().map(|row| row.loss_weights.iter().copied().map(Some));
    let logprobs = rows.iter().map(|row| row.logprobs.iter().copied());
    Ok([
        ("token_ids", ints(rows.iter().map(|row| row.token_ids.as_slice()))),
        ("position_ids", ints(rows.iter().map(|row| row.position_ids.as_slice()))),
        ("action_mask", booleans(rows)?),
        ("logprobs", numbers::<Float32Type>(logprobs)),
        ("advantages", numbers::<Float32Type>(advantages)),
        ("loss_weights", numbers::<Float64Type>(weights)),
    ])
}

fn ints<'a>(rows: impl Iterator<Item = &'a [i32]> + Clone) -> ArrayRef {
    let offsets = OffsetBuffer::from_lengths(rows.clone().map(<[i32]>::len));
    let values: ScalarBuffer<i32> = rows.flatten().copied().collect();
    let field = Arc::new(Field::new("element", DataType::Int32, false));
    Arc::new(ListArray::new(field, offsets, Arc::new(Int32Array::new(values, None)), None))
}

fn numbers<T: ArrowPrimitiveType>(rows: impl Iterator<Item = impl Iterator<Item = Option<T::Native>>>) -> ArrayRef {
    let field = Field::new("element", T::DATA_TYPE, true);
    let mut builder = ListBuilder::new(PrimitiveBuilder::<T>::new()).with_field(field);
    for row in rows {
        builder.append_value(row);
    }
    Arc::new(builder.finish())
}

fn booleans(rows: &[Row]) -> Result<ArrayRef> {
    let offsets = OffsetBuffer::from_lengths(rows.iter().map(|row| row.action_mask.len()));
    let values: BooleanArray = rows.iter().flat_map(|row| row.action_mask.iter().copied().map(Some)).collect();
    let field = Arc::new(Field::new("element", DataType::Boolean, true));
    Ok(Arc::new(ListArray::try_new(field, offsets, Arc::new(values), None)?))
}

pub(super) fn segments(plan: &Plan, rows: &[Row], field: &Field) -> Result<ArrayRef> {
    let DataType::List(item) = field.data_type() else {
        return Err(Error::corrupt("samples.segments is no list"));
    };
    let DataType::Struct(fields) = item.data_type() else {
        return Err(Error::corrupt("samples.segments holds no structs"));
    };
    let offsets = OffsetBuffer::from_lengths(rows.iter().map(|row| row.segments.len()));
    let all: Vec<Segment> = rows.iter().flat_map(|row| row.segments.iter().copied()).collect();
    let values = segment_struct(plan, &all, fields)?;
    Ok(Arc::new(ListArray::try_new(Arc::clone(item), offsets, Arc::new(values), None)?))
}

fn segment_struct(plan: &Plan, segments: &[Segment], fields: &Fields) -> Result<StructArray> {
    let integers =
        |value: fn(&Segment) -> i32| -> ArrayRef { Arc::new(segments.iter().map(value).collect::<Int32Array>()) };
    let rollout = |segment: &Segment| plan.rollout_id(plan.sequence_of(segment.call).1.rollout);
    let source = |segment: &Segment| {
        if segment.is_output { "output" } else { "prompt" }
    };
    let columns = fields
        .iter()
        .map(|field| -> Result<ArrayRef> {
            Ok(match field.name().as_str() {
                "start" => integers(|segment| segment.start),
                "length" => integers(|segment| segment.length),
                "sequence_index" => integers(|segment| segment.sequence_index),
                "source_start" => integers(|segment| segment.source_start),
                "rollout_id" => Arc::new(StringArray::from_iter_values(segments.iter().map(rollout))),
                "call_id" => {
                    Arc::new(StringArray::from_iter_values(segments.iter().map(|segment| plan.call_id(segment.call))))
                }
                "source" => Arc::new(StringArray::from_iter_values(segments.iter().map(source))),
                "trained" => {
                    Arc::new(BooleanArray::from(segments.iter().map(|segment| segment.trained).collect::<Vec<_>>()))
                }
                other => {
                    return Err(Error::corrupt(format!("a segment has an unknown field {other}")));
                }
            })
        })
        .collect::<Result<Vec<_>>>()?;
    Ok(StructArray::try_new(fields.clone(), columns, None)?)
}
