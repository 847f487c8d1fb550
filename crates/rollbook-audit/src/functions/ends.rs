//! Where an output has an end that is not its last token.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, AsArray, Int32Array};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Int32Type};
use datafusion::common::Result;
use datafusion::logical_expr::ScalarUDF;

use super::lists::{int, is_sampled, item, list, lists, mask};
use super::row_function::RowFunction;

/// `first_of(ids, wanted, sampled_mask)`: the place of the first sampled id that is one of the wanted, counted from 1; null where
/// there is none.
pub(super) fn first_of() -> ScalarUDF {
    let arguments = vec![list(DataType::Int32), list(DataType::Int32), list(DataType::Boolean)];
    RowFunction::udf("first_of", arguments, DataType::Int32, |arrays, rows| {
        let (ids, wanted, masks) = (lists(arrays, 0)?, lists(arrays, 1)?, lists(arrays, 2)?);
        let mut found = Vec::with_capacity(rows);
        for row in 0..rows {
            let mask = mask(masks, row)?;
            let (ids, wanted) = (integers(item(ids, row))?, integers(item(wanted, row))?);
            let place = |(ids, wanted): (Int32Array, Int32Array)| {
                let is_wanted =
                    |at: &usize| is_sampled(mask.as_ref(), *at) && wanted.values().contains(&ids.value(*at));
                (0..ids.len()).find(is_wanted).map(|at| int(at + 1))
            };
            found.push(ids.zip(wanted).and_then(place));
        }
        Ok(Arc::new(Int32Array::from(found)) as ArrayRef)
    })
}

fn integers(items: Option<ArrayRef>) -> Result<Option<Int32Array>> {
    match items {
        Some(items) => Ok(Some(cast(&items, &DataType::Int32)?.as_primitive::<Int32Type>().clone())),
        None => Ok(None),
    }
}
