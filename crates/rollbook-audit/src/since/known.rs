//! Findings that earlier audits recorded.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::compute::cast;
use arrow::datatypes::DataType;
use futures::TryStreamExt;
use rollbook_query::{Result, Session};

use crate::report::{Count, Finding};

/// The columns of a finding that make it the same one.
const COLUMNS: [&str; 19] = [
    "\"check\"",
    "outcome",
    "run_id",
    "step",
    "group_id",
    "rollout_id",
    "call_id",
    "build_id",
    "derivation_id",
    "epoch",
    "micro_batch",
    "rank",
    "row_index",
    "position",
    "position_in",
    "length",
    "expected",
    "observed",
    "message",
];

/// Leaves out the findings that are recorded already, and counts those that are left.
pub(crate) async fn without_known(session: &Session, count: &mut Count, findings: &mut Vec<Finding>) -> Result<()> {
    if findings.is_empty() {
        return Ok(());
    }
    let known = known(session, count.check).await?;
    let before = findings.len();
    findings.retain(|finding| !known.contains(&hash(&texts(finding))));
    if findings.len() == before {
        return Ok(());
    }
    // What was counted and not kept cannot be compared, and stays counted.
    let mut left = Count { violation: 0, rule: 0, undeclared: 0, ..count.clone() };
    findings.iter().for_each(|finding| left.add(finding.outcome));
    if count.found() == before as u64 {
        *count = left;
    }
    Ok(())
}

async fn known(session: &Session, check: &str) -> Result<HashSet<u64>> {
    let columns = COLUMNS.map(|name| format!("CAST({name} AS VARCHAR)")).join(", ");
    let sql = format!("SELECT {columns} FROM findings WHERE \"check\" = '{check}'");
    let mut rows = session.stream(&sql).await?;
    let mut known = HashSet::new();
    while let Some(batch) = rows.try_next().await? {
        let columns: Vec<ArrayRef> =
            batch.columns().iter().map(|column| cast(column, &DataType::Utf8)).collect::<Result<_, _>>()?;
        for row in 0..batch.num_rows() {
            let texts: Vec<Option<String>> = columns
                .iter()
                .map(|column| column.is_valid(row).then(|| column.as_string::<i32>().value(row).to_owned()))
                .collect();
            known.insert(hash(&texts));
        }
    }
    Ok(known)
}

fn texts(finding: &Finding) -> Vec<Option<String>> {
    let number = |value: Option<i32>| value.map(|value| value.to_string());
    vec![
        Some(finding.check.clone()),
        Some(finding.outcome.as_str().to_owned()),
        finding.run_id.clone(),
        finding.step.map(|step| step.to_string()),
        finding.group_id.clone(),
        finding.rollout_id.clone(),
        finding.call_id.clone(),
        finding.build_id.clone(),
        finding.derivation_id.clone(),
        number(finding.epoch),
        number(finding.micro_batch),
        number(finding.rank),
        number(finding.row_index),
        number(finding.position),
        finding.position_in.clone(),
        number(finding.length),
        finding.expected.clone(),
        finding.observed.clone(),
        Some(finding.message.clone()),
    ]
}

fn hash(texts: &[Option<String>]) -> u64 {
    let mut hasher = DefaultHasher::new();
    texts.hash(&mut hasher);
    hasher.finish()
}
