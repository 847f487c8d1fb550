//! After which snapshot each check has to look.

use std::collections::BTreeMap;

use arrow::array::{Array, AsArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Int64Type};
use rollbook_query::{Error, Result, Session};
use serde_json::{Map, Value};

use super::Since;
use crate::check::Check;

/// Groups checks by the snapshot after which they look; `None` is everything.
///
/// # Errors
///
/// A snapshot that is not there yet.
pub(crate) async fn bases(
    session: &Session,
    checks: &[&'static Check],
    since: Since,
    run: Option<&str>,
) -> Result<BTreeMap<Option<u64>, Vec<&'static Check>>> {
    let head = session.snapshot().n;
    match since {
        Since::Everything => Ok(BTreeMap::from([(None, checks.to_vec())])),
        Since::Snapshot(n) if n > head => {
            Err(Error::invalid(format!("snapshot {n} is not there: the newest that is read is {head}")))
        }
        Since::Snapshot(n) => Ok(BTreeMap::from([(Some(n), checks.to_vec())])),
        Since::Last => {
            let audits = audits(session).await?;
            let mut bases: BTreeMap<Option<u64>, Vec<&'static Check>> = BTreeMap::new();
            for check in checks {
                bases.entry(last(&audits, check, run)).or_default().push(check);
            }
            Ok(bases)
        }
    }
}

struct Audit {
    snapshot: u64,
    run: Option<String>,
    versions: Map<String, Value>,
}

async fn audits(session: &Session) -> Result<Vec<Audit>> {
    let batches = session.collect("SELECT snapshot, run_id, checks FROM audits WHERE snapshot IS NOT NULL").await?;
    let mut audits = Vec::new();
    for batch in batches {
        let snapshots = cast(batch.column(0), &DataType::Int64)?.as_primitive::<Int64Type>().clone();
        let runs = cast(batch.column(1), &DataType::Utf8)?.as_string::<i32>().clone();
        let checks = cast(batch.column(2), &DataType::Utf8)?.as_string::<i32>().clone();
        for row in (0..batch.num_rows()).filter(|row| checks.is_valid(*row)) {
            let (Ok(snapshot), Ok(versions)) =
                (u64::try_from(snapshots.value(row)), serde_json::from_str(checks.value(row)))
            else {
                continue;
            };
            audits.push(Audit { snapshot, run: runs.is_valid(row).then(|| runs.value(row).to_owned()), versions });
        }
    }
    Ok(audits)
}

/// The newest snapshot that this version of the check has examined; an audit of one run says nothing of others.
fn last(audits: &[Audit], check: &Check, run: Option<&str>) -> Option<u64> {
    let ran = |audit: &&Audit| {
        audit.versions.get(check.code).and_then(Value::as_u64) == Some(u64::from(check.version))
            && audit.run.as_deref().is_none_or(|only| Some(only) == run)
    };
    audits.iter().filter(ran).map(|audit| audit.snapshot).max()
}
