//! Routing records, read from the rows or from the lake's blobs, and what is wrong with them.

mod copies;

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Int32Array, RecordBatch, StringArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, Float64Type, Schema, SchemaRef};
use futures::future::BoxFuture;
use futures::{FutureExt, TryStreamExt};
use rollbook_lake::ErrorKind;
use rollbook_query::Result;

use super::Origin;
use super::tokens::{CallKey, ids, integers, list, text};
use crate::functions::{RoutingFault, int, routing_faults};
use copies::Prints;

pub(super) fn schema() -> SchemaRef {
    let field = |name: &str, kind: DataType| Field::new(name, kind, true);
    Arc::new(Schema::new(vec![
        field("run_id", DataType::Utf8),
        field("rollout_id", DataType::Utf8),
        field("call_id", DataType::Utf8),
        field("kind", DataType::Utf8),
        field("position", DataType::Int32),
        field("length", DataType::Int32),
        field("expected", DataType::Utf8),
        field("observed", DataType::Utf8),
    ]))
}

/// A fault of a call's payload; none where it could not be read.
struct Found {
    run: Option<String>,
    rollout: Option<String>,
    call: Option<String>,
    start: usize,
    fault: Option<RoutingFault>,
}

pub(super) fn faults(origin: Origin, _: Vec<Vec<RecordBatch>>) -> BoxFuture<'static, Result<Vec<RecordBatch>>> {
    async move {
        let session = origin.session().await?;
        let sql = "SELECT run_id, rollout_id, call_id, dtype, shape, coalesce(\"start\", 0) AS first, blob, \"values\" AS items \
             FROM call_payloads WHERE name = 'routed_experts' AND cardinality(shape) > 0";
        let mut stream = session.stream(sql).await?;
        let (mut found, mut prints) = (Vec::new(), Prints::default());
        while let Some(batch) = stream.try_next().await? {
            for row in 0..batch.num_rows() {
                judge(&origin, &batch, row, &mut found, &mut prints).await?;
            }
        }
        found.extend(prints.copies(&session).await?);
        Ok(vec![rows(&found)?])
    }
    .boxed()
}

async fn judge(
    origin: &Origin,
    batch: &RecordBatch,
    row: usize,
    found: &mut Vec<Found>,
    prints: &mut Prints,
) -> Result<()> {
    let of = |name: &str| -> Result<Option<String>> {
        let texts = text(batch, name)?;
        Ok(texts.is_valid(row).then(|| texts.value(row).to_owned()))
    };
    let shape: Vec<usize> =
        ids(&list(batch, "shape")?, row)?.into_iter().map(|side| usize::try_from(side).unwrap_or(0)).collect();
    let start = usize::try_from(integers(batch, "first")?.value(row)).unwrap_or(0);
    let lists = list(batch, "items")?;
    let values: Option<Vec<Option<f64>>> = if lists.is_valid(row) {
        Some(cast(&lists.value(row), &DataType::Float64)?.as_primitive::<Float64Type>().iter().collect())
    } else {
        match (of("blob")?, of("dtype")?) {
            (Some(digest), Some(dtype)) => match origin.lake.blob(&digest).await {
                Ok(bytes) => numbers(&bytes, &dtype),
                // Its own retention may have passed, or the name be no digest; a store that is away is an error.
                Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Invalid | ErrorKind::Corrupt) => {
                    None
                }
                Err(error) => return Err(error.into()),
            },
            _ => None,
        }
    };
    let (run, rollout, call) = (of("run_id")?, of("rollout_id")?, of("call_id")?);
    let mut add = |fault: Option<RoutingFault>| {
        found.push(Found { run: run.clone(), rollout: rollout.clone(), call: call.clone(), start, fault });
    };
    match values {
        None => add(None),
        Some(values) => {
            let faults = routing_faults(&values, &shape);
            let key = run
                .as_deref()
                .and_then(|run| key(run, &text(batch, "rollout_id").ok()?, &text(batch, "call_id").ok()?, row));
            if let Some(key) = key.filter(|_| faults.is_empty()) {
                prints.add(key, start, &values, &shape);
            }
            faults.into_iter().for_each(|fault| add(Some(fault)));
        }
    }
    Ok(())
}

/// A call's key; none where it has no id.
fn key(run: &str, rollouts: &StringArray, calls: &StringArray, row: usize) -> Option<CallKey> {
    calls.is_valid(row).then(|| CallKey {
        run: run.to_owned(),
        rollout: rollouts.is_valid(row).then(|| rollouts.value(row).to_owned()),
        call: calls.value(row).to_owned(),
    })
}

/// The numbers of a blob, little-endian; none where its type is no integer that experts have.
fn numbers(bytes: &[u8], dtype: &str) -> Option<Vec<Option<f64>>> {
    fn all<const N: usize>(bytes: &[u8], number: fn([u8; N]) -> f64) -> Vec<Option<f64>> {
        bytes.chunks_exact(N).map(|item| item.try_into().ok().map(number)).collect()
    }
    let name = dtype.trim_start_matches("torch.");
    Some(match name {
        "uint8" => all::<1>(bytes, |item| f64::from(u8::from_le_bytes(item))),
        "int8" => all::<1>(bytes, |item| f64::from(i8::from_le_bytes(item))),
        "uint16" => all::<2>(bytes, |item| f64::from(u16::from_le_bytes(item))),
        "int16" => all::<2>(bytes, |item| f64::from(i16::from_le_bytes(item))),
        "uint32" => all::<4>(bytes, |item| f64::from(u32::from_le_bytes(item))),
        "int32" => all::<4>(bytes, |item| f64::from(i32::from_le_bytes(item))),
        "int64" => {
            all::<8>(bytes, |item| i32::try_from(i64::from_le_bytes(item)).map_or(f64::from(i32::MAX), f64::from))
        }
        _ => return None,
    })
}

fn rows(found: &[Found]) -> Result<RecordBatch> {
    let text = |value: &dyn Fn(&Found) -> Option<String>| -> ArrayRef {
        Arc::new(found.iter().map(value).collect::<StringArray>())
    };
    let number = |value: &dyn Fn(&Found) -> Option<i32>| -> ArrayRef {
        Arc::new(found.iter().map(value).collect::<Int32Array>())
    };
    let fault = |found: &Found| found.fault.clone();
    let columns = vec![
        text(&|found| found.run.clone()),
        text(&|found| found.rollout.clone()),
        text(&|found| found.call.clone()),
        text(&|found| Some(found.fault.as_ref().map_or("unread", |fault| fault.kind).to_owned())),
        number(&|found| Some(int(found.start + found.fault.as_ref()?.position?))),
        number(&|found| Some(int(found.fault.as_ref()?.length?))),
        text(&|found| Some(fault(found)?.expected)),
        text(&|found| Some(fault(found)?.observed)),
    ];
    Ok(RecordBatch::try_new(schema(), columns)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_little_endian_and_other_types_are_left() {
        assert_eq!(numbers(&[1, 0, 255, 255], "int16"), Some(vec![Some(1.0), Some(-1.0)]));
        assert_eq!(numbers(&[255, 255], "torch.uint16"), Some(vec![Some(65_535.0)]));
        assert_eq!(numbers(&[0; 4], "float32"), None);
    }
}
