//! Cuts a sample into what it makes of each output that stands in it, in one pass over its lists.
//!
//! ```text
//! segments     [prompt 0..5 | output of c1 5..8 | output of c2 9..12]        one row
//! advantages   [………………………… | a b c             | d e f            ]
//!   -> [{c1, start, length, trained, mask, advantages: [a, b, c], …}, {c2, …}]
//! ```
//!
//! To unnest the segments and slice the lists beside each would copy the whole row for every segment.

use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, Int32Array, ListArray, MutableArrayData, StructArray, UInt64Array, make_array,
};
use datafusion::arrow::buffer::{NullBuffer, OffsetBuffer};
use datafusion::arrow::compute::{cast, take};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Fields, Int32Type};
use datafusion::common::{Result, exec_err, plan_err};
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDFImpl, Signature, Volatility};

use super::chunk::{field, value_at};

/// Name of the function; nobody but the view calls it.
pub(super) const NAME: &str = "_output_pieces";
/// Fields of the segments that go into a piece as they are, with their names there.
const KEPT: [(&str, &str); 5] = [
    ("rollout_id", "rollout_id"),
    ("call_id", "call_id"),
    ("source_start", "start"),
    ("length", "length"),
    ("trained", "trained"),
];
/// Lists that are cut, with their names in a piece.
const CUT: [&str; 3] = ["mask", "advantages", "loss_weights"];

/// `_output_pieces(segments, action_mask, advantages, loss_weights)`.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct OutputPieces {
    signature: Signature,
}

impl OutputPieces {
    pub(super) fn new() -> Self {
        Self { signature: Signature::any(4, Volatility::Immutable) }
    }
}

impl ScalarUDFImpl for OutputPieces {
    fn name(&self) -> &'static str {
        NAME
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        Ok(DataType::List(item(&piece_fields(arguments)?)))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let arrays = ColumnarValue::values_to_arrays(&args.args)?;
        let types: Vec<DataType> = arrays.iter().map(|array| array.data_type().clone()).collect();
        let [segments, cut @ ..] = arrays.as_slice() else {
            return exec_err!("{NAME} takes segments and three lists");
        };
        let Some(segments) = segments.as_list_opt::<i32>() else {
            return exec_err!("{NAME} takes a list of segments");
        };
        Ok(ColumnarValue::Array(Arc::new(pieces(segments, cut, &piece_fields(&types)?)?)))
    }
}

fn item(fields: &Fields) -> FieldRef {
    Arc::new(Field::new("item", DataType::Struct(fields.clone()), false))
}

fn piece_fields(arguments: &[DataType]) -> Result<Fields> {
    let [DataType::List(segment), cut @ ..] = arguments else {
        return plan_err!("{NAME} takes a list of segments");
    };
    let DataType::Struct(parts) = segment.data_type() else {
        return plan_err!("{NAME} takes a list of segments");
    };
    let mut fields = Vec::with_capacity(KEPT.len() + CUT.len());
    for (from, name) in KEPT {
        let Some((_, part)) = parts.find(from) else {
            return plan_err!("segments have no {from}");
        };
        fields.push(Field::new(name, part.data_type().clone(), true));
    }
    fields.extend(CUT.iter().zip(cut).map(|(name, list)| Field::new(*name, list.clone(), true)));
    Ok(Fields::from(fields))
}

/// Where a piece lies.
struct Place {
    row: usize,
    segment: u64,
    start: Option<usize>,
    length: usize,
}

fn pieces(segments: &ListArray, lists: &[ArrayRef], fields: &Fields) -> Result<ListArray> {
    let all = segments.values().as_struct();
    let number = |name: &str| -> Result<ArrayRef> { Ok(cast(field(all, name)?, &DataType::Int32)?) };
    let (starts, lengths) = (number("start")?, number("length")?);
    let (starts, lengths) = (starts.as_primitive::<Int32Type>(), lengths.as_primitive::<Int32Type>());
    let sources = cast(field(all, "source")?, &DataType::Utf8)?;
    let sources = sources.as_string::<i32>();
    let count = |array: &Int32Array, at: usize| value_at(array, at).and_then(|value| usize::try_from(value).ok());
    let (mut places, mut ends) = (Vec::new(), Vec::with_capacity(segments.len()));
    for (row, range) in segments.offsets().windows(2).enumerate() {
        if segments.is_valid(row) {
            for segment in range[0]..range[1] {
                let at = usize::try_from(segment).unwrap_or_default();
                if all.is_valid(at) && sources.is_valid(at) && sources.value(at) == "output" {
                    let length = count(lengths, at).unwrap_or_default();
                    places.push(Place { row, segment: at as u64, start: count(starts, at), length });
                }
            }
        }
        ends.push(places.len());
    }
    let chosen = UInt64Array::from_iter_values(places.iter().map(|place| place.segment));
    let mut columns: Vec<ArrayRef> = Vec::with_capacity(fields.len());
    for (from, _) in KEPT {
        columns.push(take(field(all, from)?, &chosen, None)?);
    }
    for list in lists {
        columns.push(Arc::new(cut(list.as_list::<i32>(), &places)?));
    }
    let values = StructArray::try_new_with_length(fields.clone(), columns, None, places.len())?;
    let offsets = OffsetBuffer::from_lengths(lengths_of(&ends));
    Ok(ListArray::try_new(item(fields), offsets, Arc::new(values), None)?)
}

fn lengths_of(ends: &[usize]) -> impl Iterator<Item = usize> + '_ {
    let starts = std::iter::once(0).chain(ends.iter().copied());
    ends.iter().zip(starts).map(|(end, start)| end - start)
}

/// The stretch of a row's list at each place, as far as the row has it.
fn cut(list: &ListArray, places: &[Place]) -> Result<ListArray> {
    let data = list.values().to_data();
    let mut copied = MutableArrayData::new(vec![&data], false, places.iter().map(|place| place.length).sum());
    let (mut lengths, mut known) = (Vec::with_capacity(places.len()), Vec::with_capacity(places.len()));
    for place in places {
        let [from, to] = [list.offsets()[place.row], list.offsets()[place.row + 1]];
        let (from, to) = (usize::try_from(from).unwrap_or_default(), usize::try_from(to).unwrap_or_default());
        let start = place.start.filter(|_| list.is_valid(place.row)).map(|start| (from + start).min(to));
        let end = start.map(|start| (start + place.length).min(to));
        if let (Some(start), Some(end)) = (start, end) {
            copied.try_extend(0, start, end)?;
            lengths.push(end - start);
        } else {
            lengths.push(0);
        }
        known.push(start.is_some());
    }
    let DataType::List(of) = list.data_type() else {
        return exec_err!("{NAME} cuts lists");
    };
    let values = make_array(copied.freeze());
    Ok(ListArray::try_new(Arc::clone(of), OffsetBuffer::from_lengths(lengths), values, Some(NullBuffer::from(known)))?)
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::{BooleanArray, Float32Array, Float64Array, StringArray};
    use datafusion::arrow::datatypes::Float64Type;

    use super::super::chunk::flag_at;
    use super::*;

    fn list<T: Array + 'static>(values: T, ends: &[usize], known: Option<Vec<bool>>) -> ArrayRef {
        let field = Arc::new(Field::new("element", values.data_type().clone(), true));
        let offsets = OffsetBuffer::from_lengths(lengths_of(ends));
        Arc::new(ListArray::new(field, offsets, Arc::new(values), known.map(NullBuffer::from)))
    }

    #[test]
    fn a_row_is_cut_at_its_outputs() {
        let segment =
            |name: &str, array: ArrayRef| (Arc::new(Field::new(name, array.data_type().clone(), true)), array);
        let segments = StructArray::from(vec![
            segment("source", Arc::new(StringArray::from(vec!["prompt", "output", "output", "output"]))),
            segment("rollout_id", Arc::new(StringArray::from(vec!["r", "r", "r", "q"]))),
            segment("call_id", Arc::new(StringArray::from(vec!["a", "a", "b", "c"]))),
            segment("start", Arc::new(Int32Array::from(vec![Some(0), Some(2), Some(4), Some(0)]))),
            segment("length", Arc::new(Int32Array::from(vec![2, 2, 3, 2]))),
            segment("source_start", Arc::new(Int32Array::from(vec![0, 0, 7, 0]))),
            segment("trained", Arc::new(BooleanArray::from(vec![None, Some(true), None, Some(false)]))),
        ]);
        // Three rows: one of six tokens where its segments speak of seven, one without segments, one of two tokens.
        let segments = list(segments, &[3, 3, 4], Some(vec![true, false, true]));
        let mask = list(BooleanArray::from(vec![false, false, true, true, true, false, true, true]), &[6, 6, 8], None);
        let advantages =
            list(Float32Array::from(vec![0.0, 1.0, 2.0, 3.0, 4.0, 5.0]), &[6, 6, 6], Some(vec![true, true, false]));
        let weights = list(Float64Array::from(vec![0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]), &[6, 6, 8], None);
        let lists = [mask, advantages, weights];
        let types: Vec<DataType> =
            std::iter::once(&segments).chain(&lists).map(|array| array.data_type().clone()).collect();
        let cut = pieces(segments.as_list(), &lists, &piece_fields(&types).unwrap()).unwrap();
        assert_eq!(cut.offsets().iter().copied().collect::<Vec<_>>(), [0, 2, 2, 3]);
        let cut = cut.values().as_struct();
        let text =
            |name: &str| field(cut, name).unwrap().as_string::<i32>().iter().flatten().collect::<Vec<_>>().join(" ");
        assert_eq!((text("rollout_id"), text("call_id")), ("r r q".to_owned(), "a b c".to_owned()));
        let start = field(cut, "start").unwrap().as_primitive::<Int32Type>().clone();
        assert_eq!(start, Int32Array::from(vec![0, 7, 0]));
        let trained = field(cut, "trained").unwrap().as_boolean();
        assert!(
            flag_at(trained, 0) == Some(true) && flag_at(trained, 1).is_none() && flag_at(trained, 2) == Some(false)
        );
        let numbers = |name: &str, at: usize| -> Option<Vec<f64>> {
            let list = field(cut, name).unwrap().as_list::<i32>();
            let values = list.is_valid(at).then(|| cast(&list.value(at), &DataType::Float64).unwrap())?;
            Some(values.as_primitive::<Float64Type>().values().to_vec())
        };
        assert_eq!(numbers("advantages", 0), Some(vec![2.0, 3.0]));
        assert_eq!(numbers("advantages", 1), Some(vec![4.0, 5.0]));
        assert_eq!(numbers("advantages", 2), None);
        assert_eq!(numbers("loss_weights", 2), Some(vec![6.0, 7.0]));
        assert_eq!(numbers("mask", 0), Some(vec![1.0, 1.0]));
    }
}
