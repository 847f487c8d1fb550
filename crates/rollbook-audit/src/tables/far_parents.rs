//! Calls whose parent lies in another file or rollout, so that no stored length tells how much they share.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, Int32Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use futures::FutureExt;
use futures::future::BoxFuture;
use rollbook_query::{Result, Session};

use super::Origin;
use super::tokens::{CallKey, longs, text, tokens_of};
use crate::functions::int;

/// Tokens of contexts held at once.
const HELD: i64 = 16 << 20;

pub(super) fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("run_id", DataType::Utf8, true),
        Field::new("rollout_id", DataType::Utf8, true),
        Field::new("call_id", DataType::Utf8, true),
        Field::new("position", DataType::Int32, true),
        Field::new("parent_len", DataType::Int32, true),
    ]))
}

/// Compares tokens, given the rows of `far_parent`.
pub(super) fn breaks(origin: Origin, read: Vec<Vec<RecordBatch>>) -> BoxFuture<'static, Result<Vec<RecordBatch>>> {
    async move {
        let pairs = pairs(&read.concat())?;
        let mut found = Vec::new();
        if pairs.is_empty() {
            return Ok(vec![rows(&found)?]);
        }
        let session = origin.session().await?;
        let mut chunk: Vec<Pair> = Vec::new();
        let mut held = 0;
        for pair in pairs {
            held += pair.tokens;
            chunk.push(pair);
            if held > HELD {
                compare(&session, &std::mem::take(&mut chunk), &mut found).await?;
                held = 0;
            }
        }
        compare(&session, &chunk, &mut found).await?;
        Ok(vec![rows(&found)?])
    }
    .boxed()
}

struct Pair {
    child: CallKey,
    parent: CallKey,
    tokens: i64,
}

struct Break {
    child: CallKey,
    position: usize,
    parent_len: usize,
}

fn pairs(read: &[RecordBatch]) -> Result<Vec<Pair>> {
    let mut pairs = Vec::new();
    for batch in read {
        let (runs, rollouts, calls) = (text(batch, "run_id")?, text(batch, "rollout_id")?, text(batch, "call_id")?);
        let (parent_rollouts, parents) = (text(batch, "parent_rollout")?, text(batch, "parent_call")?);
        let tokens = longs(batch, "tokens")?;
        let key = |rollouts: &StringArray, calls: &StringArray, row: usize| CallKey {
            run: runs.value(row).to_owned(),
            rollout: rollouts.is_valid(row).then(|| rollouts.value(row).to_owned()),
            call: calls.value(row).to_owned(),
        };
        for row in (0..batch.num_rows()).filter(|row| calls.is_valid(*row)) {
            pairs.push(Pair {
                child: key(&rollouts, &calls, row),
                parent: key(&parent_rollouts, &parents, row),
                tokens: tokens.value(row),
            });
        }
    }
    Ok(pairs)
}

async fn compare(session: &Session, pairs: &[Pair], found: &mut Vec<Break>) -> Result<()> {
    if pairs.is_empty() {
        return Ok(());
    }
    let keys: Vec<CallKey> = pairs.iter().flat_map(|pair| [pair.child.clone(), pair.parent.clone()]).collect();
    let tokens = tokens_of(session, &keys).await?;
    for pair in pairs {
        let (Some(child), Some(parent)) = (tokens.get(&pair.child), tokens.get(&pair.parent)) else {
            continue;
        };
        let context = parent.context(usize::MAX);
        let shared = child.prompt.iter().zip(&context).take_while(|(a, b)| a == b).count();
        if shared < context.len() {
            found.push(Break { child: pair.child.clone(), position: shared, parent_len: context.len() });
        }
    }
    Ok(())
}

fn rows(found: &[Break]) -> Result<RecordBatch> {
    let text =
        |value: fn(&Break) -> Option<&str>| -> ArrayRef { Arc::new(found.iter().map(value).collect::<StringArray>()) };
    let number = |value: fn(&Break) -> usize| -> ArrayRef {
        Arc::new(found.iter().map(|found| Some(int(value(found)))).collect::<Int32Array>())
    };
    let columns = vec![
        text(|found| Some(&found.child.run)),
        text(|found| found.child.rollout.as_deref()),
        text(|found| Some(&found.child.call)),
        number(|found| found.position),
        number(|found| found.parent_len),
    ];
    Ok(RecordBatch::try_new(schema(), columns)?)
}
