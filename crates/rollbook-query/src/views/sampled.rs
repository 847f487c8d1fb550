//! Counts over a call's output that the view `contract` uses: sampled tokens, and those of them that have a logprob.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, Int64Builder, ListArray};
use datafusion::arrow::datatypes::{DataType, Field, Int32Type};
use datafusion::common::{Result, exec_err};
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};

/// `sampled_count(output_len, sampled_mask)`: how many output tokens the policy sampled; a null mask means all.
pub(super) fn sampled_count() -> ScalarUDF {
    let types = vec![DataType::Int32, list(DataType::Boolean)];
    ScalarUDF::from(Sampled { name: "sampled_count", signature: Signature::user_defined(Volatility::Immutable), types })
}

/// `sampled_logprob_count(output_len, sampled_mask, output_logprobs)`: how many of those have a logprob.
pub(super) fn sampled_logprob_count() -> ScalarUDF {
    let types = vec![DataType::Int32, list(DataType::Boolean), list(DataType::Float32)];
    ScalarUDF::from(Sampled {
        name: "sampled_logprob_count",
        signature: Signature::user_defined(Volatility::Immutable),
        types,
    })
}

fn list(item: DataType) -> DataType {
    DataType::List(Arc::new(Field::new("element", item, true)))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Sampled {
    name: &'static str,
    signature: Signature,
    types: Vec<DataType>,
}

impl ScalarUDFImpl for Sampled {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arg_types: &[DataType]) -> Result<Vec<DataType>> {
        // Lists keep their own item names; only nulls are given a type.
        Ok(arg_types
            .iter()
            .zip(&self.types)
            .map(|(given, wanted)| match given {
                DataType::List(_) => given.clone(),
                _ => wanted.clone(),
            })
            .collect())
    }

    fn return_type(&self, _arg_types: &[DataType]) -> Result<DataType> {
        Ok(DataType::Int64)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let arrays = ColumnarValue::values_to_arrays(&args.args)?;
        let Some(lengths) = arrays.first().and_then(|array| array.as_primitive_opt::<Int32Type>()) else {
            return exec_err!("{} takes the output's length first", self.name);
        };
        let masks = arrays.get(1).and_then(|array| array.as_list_opt::<i32>());
        let logprobs = arrays.get(2).map(|array| array.as_list_opt::<i32>());
        let mut counts = Int64Builder::with_capacity(lengths.len());
        for row in 0..lengths.len() {
            if lengths.is_null(row) {
                counts.append_null();
                continue;
            }
            let mask = masks.and_then(|masks| item(masks, row));
            let values = logprobs.map(|lists| lists.and_then(|lists| item(lists, row)));
            let length = usize::try_from(lengths.value(row)).unwrap_or(0);
            let counted = (0..length).filter(|&at| is_sampled(mask.as_deref(), at) && has_value(values.as_ref(), at));
            counts.append_value(i64::try_from(counted.count()).unwrap_or(i64::MAX));
        }
        Ok(ColumnarValue::Array(Arc::new(counts.finish())))
    }
}

fn item(lists: &ListArray, row: usize) -> Option<ArrayRef> {
    lists.is_valid(row).then(|| lists.value(row))
}

/// A mask that ends early says nothing of the rest, which then does not count as sampled.
fn is_sampled(mask: Option<&dyn Array>, at: usize) -> bool {
    match mask.and_then(AsArray::as_boolean_opt) {
        Some(mask) => at < mask.len() && mask.is_valid(at) && mask.value(at),
        None => mask.is_none(),
    }
}

fn has_value(values: Option<&Option<ArrayRef>>, at: usize) -> bool {
    match values {
        None => true,
        Some(None) => false,
        Some(Some(values)) => at < values.len() && values.is_valid(at),
    }
}
