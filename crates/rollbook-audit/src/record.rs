//! Writing a report into the lake: one row of `audits`, the findings, one commit.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{
    ArrayRef, Int32Array, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray, new_null_array,
};
use async_trait::async_trait;
use rollbook_lake::{Change, Entry, Intent, Lake, Outcome as Published, Prepare, Snapshot};
use rollbook_query::{Error, Result};
use rollbook_schema::Table;
use serde_json::json;
use uuid::Uuid;

use crate::report::{Finding, Report};

/// Where a report was recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recorded {
    /// Id of the audit.
    pub audit_id: String,
    /// Snapshot that holds it.
    pub n: u64,
    /// What could not be finished after the commit; the next writer does it.
    pub warnings: Vec<String>,
}

/// Records a report, and gives its findings the audit's id.
///
/// # Errors
///
/// A lake that cannot be written: nothing is recorded, and the report stays as it is.
pub async fn record(lake: &Lake, report: &mut Report) -> Result<Recorded> {
    let audit_id = format!("audit-{}", Uuid::new_v4().simple());
    let now = lake.now_us();
    let mut changes = vec![write(lake, "audits", &[audit_row(&audit_id, report, now)?]).await?];
    if !report.findings.is_empty() {
        let mut sorted: Vec<&Finding> = report.findings.iter().collect();
        // The order of rows in a file; the sort is stable, so each check's own order stays.
        sorted.sort_by(|a, b| place(a).cmp(&place(b)));
        let batches: Vec<RecordBatch> =
            sorted.chunks(8192).map(|chunk| finding_rows(&audit_id, chunk, now)).collect::<Result<_>>()?;
        changes.push(write(lake, "findings", &batches).await?);
    }
    let (n, warnings) = publish(lake, Intent::append("audit"), changes).await?;
    for finding in &mut report.findings {
        finding.audit_id = Some(audit_id.clone());
    }
    Ok(Recorded { audit_id, n, warnings })
}

/// Publishes new rows; returns the snapshot that holds them, and what is left for the next writer to finish.
pub(crate) async fn publish(lake: &Lake, intent: Intent, changes: Vec<Change>) -> Result<(u64, Vec<String>)> {
    let head = lake.snapshot().await?;
    match lake.commit(head, intent, &mut Publication { changes }).await? {
        Published::Published { n, warnings } => Ok((n, warnings)),
        Published::AlreadyIn { n } => Ok((n, Vec::new())),
        Published::Nothing => Err(Error::corrupt("nothing was published")),
    }
}

/// Nulls last, as files have them.
fn place(finding: &Finding) -> impl Ord + '_ {
    fn last<T: Ord>(value: Option<T>) -> (bool, Option<T>) {
        (value.is_none(), value)
    }
    (
        last(finding.run_id.as_ref()),
        last(finding.step),
        last(finding.group_id.as_ref()),
        last(finding.rollout_id.as_ref()),
    )
}

/// Uploads rows of a table.
pub(crate) async fn write(lake: &Lake, name: &str, batches: &[RecordBatch]) -> Result<Change> {
    let mut writer = lake.writer(table(name)?);
    for batch in batches {
        writer.write(batch).await?;
    }
    Ok(Change { table: name.to_owned(), add: writer.finish().await?, remove: Vec::new() })
}

/// Finds a table of the schema.
pub(crate) fn table(name: &str) -> Result<&'static Table> {
    rollbook_schema::table(name).ok_or_else(|| Error::corrupt(format!("the schema has no table {name}")))
}

fn audit_row(audit_id: &str, report: &Report, now: i64) -> Result<RecordBatch> {
    let versions: BTreeMap<&str, u32> = report.checks.iter().map(|check| (check.check, check.version)).collect();
    let counts: BTreeMap<&str, serde_json::Value> = report
        .checks
        .iter()
        .map(|check| {
            let numbers = json!({
                "violation": check.violation, "rule": check.rule, "undeclared": check.undeclared, "examined": check.examined,
            });
            (check.check, numbers)
        })
        .collect();
    let text = |value: Option<&str>| Arc::new(StringArray::from(vec![value])) as ArrayRef;
    let long = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
    let snapshot = long(report.snapshot);
    batch(
        table("audits")?,
        1,
        BTreeMap::from([
            ("audit_id", text(Some(audit_id))),
            ("snapshot", Arc::new(Int64Array::from(vec![snapshot])) as ArrayRef),
            ("since_snapshot", Arc::new(Int64Array::from(vec![report.since.map(long)])) as ArrayRef),
            ("run_id", text(report.run.as_deref())),
            ("checks", text(Some(&json!(versions).to_string()))),
            ("counts", text(Some(&json!(counts).to_string()))),
            ("engine_version", text(Some(env!("CARGO_PKG_VERSION")))),
            ("created_at", times(now, 1)),
        ]),
    )
}

fn finding_rows(audit_id: &str, findings: &[&Finding], now: i64) -> Result<RecordBatch> {
    let rows = findings.len();
    let text = |value: fn(&Finding) -> Option<&str>| -> ArrayRef {
        Arc::new(findings.iter().map(|finding| value(finding)).collect::<StringArray>())
    };
    let int = |value: fn(&Finding) -> Option<i32>| -> ArrayRef {
        Arc::new(findings.iter().map(|finding| value(finding)).collect::<Int32Array>())
    };
    let steps: Int64Array = findings.iter().map(|finding| finding.step).collect();
    batch(
        table("findings")?,
        rows,
        BTreeMap::from([
            ("audit_id", Arc::new(StringArray::from(vec![audit_id; rows])) as ArrayRef),
            ("check", text(|finding| Some(&finding.check))),
            ("outcome", text(|finding| Some(finding.outcome.as_str()))),
            ("severity", text(|finding| Some(&finding.severity))),
            ("layer", text(|finding| Some(&finding.layer))),
            ("run_id", text(|finding| finding.run_id.as_deref())),
            ("step", Arc::new(steps)),
            ("group_id", text(|finding| finding.group_id.as_deref())),
            ("rollout_id", text(|finding| finding.rollout_id.as_deref())),
            ("call_id", text(|finding| finding.call_id.as_deref())),
            ("build_id", text(|finding| finding.build_id.as_deref())),
            ("derivation_id", text(|finding| finding.derivation_id.as_deref())),
            ("epoch", int(|finding| finding.epoch)),
            ("micro_batch", int(|finding| finding.micro_batch)),
            ("rank", int(|finding| finding.rank)),
            ("row_index", int(|finding| finding.row_index)),
            ("position", int(|finding| finding.position)),
            ("position_in", text(|finding| finding.position_in.as_deref())),
            ("length", int(|finding| finding.length)),
            ("expected", text(|finding| finding.expected.as_deref())),
            ("observed", text(|finding| finding.observed.as_deref())),
            ("message", text(|finding| Some(&finding.message))),
            ("created_at", times(now, rows)),
        ]),
    )
}

/// A column of one time.
pub(crate) fn times(micros: i64, rows: usize) -> ArrayRef {
    Arc::new(TimestampMicrosecondArray::from(vec![micros; rows]).with_timezone("UTC"))
}

/// Puts columns into the table's order; those not given are null.
pub(crate) fn batch(table: &Table, rows: usize, mut columns: BTreeMap<&str, ArrayRef>) -> Result<RecordBatch> {
    let schema = table.physical();
    let arrays = schema
        .fields()
        .iter()
        .map(|field| columns.remove(field.name().as_str()).unwrap_or_else(|| new_null_array(field.data_type(), rows)))
        .collect();
    Ok(RecordBatch::try_new(schema, arrays)?)
}

struct Publication {
    changes: Vec<Change>,
}

#[async_trait]
impl Prepare for Publication {
    /// New rows under a new id: whatever others wrote meanwhile, they go in as they are.
    async fn changes(&mut self, _: &Snapshot, _: &[Entry]) -> rollbook_lake::Result<Vec<Change>> {
        Ok(self.changes.clone())
    }
}
