//! A list in the order of its items.
//!
//! It stands for the `ORDER BY` of an `array_agg` over structs, whose groups each count the memory of the whole batch that
//! their items lie in: a few thousand groups are refused in any memory.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ListArray, UInt32Array};
use datafusion::arrow::buffer::OffsetBuffer;
use datafusion::arrow::compute::{SortOptions, take};
use datafusion::arrow::datatypes::DataType;
use datafusion::arrow::row::{RowConverter, SortField};
use datafusion::common::{Result, plan_err};
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};

use super::lists::lists;

/// `in_order(items)`: the items by their fields, the first field first; nulls last.
pub(super) fn in_order() -> ScalarUDF {
    ScalarUDF::from(InOrder { signature: Signature::any(1, Volatility::Immutable) })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct InOrder {
    signature: Signature,
}

impl ScalarUDFImpl for InOrder {
    fn name(&self) -> &'static str {
        "in_order"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        match arguments {
            [DataType::List(item)] => Ok(DataType::List(Arc::clone(item))),
            _ => plan_err!("in_order takes a list"),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let arrays = args.args.iter().map(|arg| arg.to_array(args.number_rows)).collect::<Result<Vec<_>>>()?;
        Ok(ColumnarValue::Array(Arc::new(ordered(lists(&arrays, 0)?)?)))
    }
}

fn ordered(lists: &ListArray) -> Result<ListArray> {
    let (item, offsets, items, nulls) = lists.clone().into_parts();
    let options = SortOptions { descending: false, nulls_first: false };
    let converter = RowConverter::new(vec![SortField::new_with_options(items.data_type().clone(), options)])?;
    let keys = converter.convert_columns(std::slice::from_ref(&items))?;
    let place = |at: &u32| usize::try_from(*at).unwrap_or(usize::MAX);
    let mut order: Vec<u32> = Vec::with_capacity(items.len());
    let mut lengths = Vec::with_capacity(lists.len());
    for (row, ends) in offsets.windows(2).enumerate() {
        let &[start, end] = ends else { continue };
        let (start, end) = if lists.is_valid(row) { (start, end) } else { (0, 0) };
        let mut own: Vec<u32> = (start..end).map(i32::cast_unsigned).collect();
        own.sort_by(|a, b| keys.row(place(a)).cmp(&keys.row(place(b))));
        lengths.push(own.len());
        order.extend(own);
    }
    let items = take(&items, &UInt32Array::from(order), None)?;
    Ok(ListArray::try_new(item, OffsetBuffer::from_lengths(lengths), items, nulls)?)
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::{ArrayBuilder, Int32Builder, ListBuilder, StringBuilder, StructBuilder};

    use super::super::lists::fields;
    use super::*;

    type Item = (Option<i32>, &'static str);

    fn lists(of: &[Option<&[Item]>]) -> ListArray {
        let fields = fields(&[("place", DataType::Int32), ("name", DataType::Utf8)]);
        let builders: Vec<Box<dyn ArrayBuilder>> = vec![Box::new(Int32Builder::new()), Box::new(StringBuilder::new())];
        let mut lists = ListBuilder::new(StructBuilder::new(fields, builders));
        for row in of {
            for (place, name) in row.unwrap_or_default() {
                let items = lists.values();
                items.field_builder::<Int32Builder>(0).unwrap().append_option(*place);
                items.field_builder::<StringBuilder>(1).unwrap().append_value(name);
                items.append(true);
            }
            lists.append(row.is_some());
        }
        lists.finish()
    }

    #[test]
    fn items_are_in_the_order_of_their_fields_and_nulls_last() {
        let given = lists(&[
            Some(&[(None, "x"), (Some(2), "b"), (Some(2), "a"), (Some(1), "z")]),
            None,
            Some(&[]),
            Some(&[(Some(3), "q"), (Some(-1), "r")]),
        ]);
        let expected = lists(&[
            Some(&[(Some(1), "z"), (Some(2), "a"), (Some(2), "b"), (None, "x")]),
            None,
            Some(&[]),
            Some(&[(Some(-1), "r"), (Some(3), "q")]),
        ]);
        assert_eq!(ordered(&given).unwrap(), expected);
        // Of a part of the rows, whose items do not begin with the first.
        assert_eq!(ordered(&given.slice(3, 1)).unwrap(), expected.slice(3, 1));
    }
}
