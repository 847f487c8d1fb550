//! A session that sees what a check of some scope needs, and no more.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, BooleanArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::DataType;
use datafusion::common::Result as PlanResult;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility, ident,
};
use rollbook_query::{Result, Session};

use super::Touched;
use crate::check::Scope;
use crate::register::session_for_checks_within;

/// Tables that hold rows of rollouts which a check of scope rollout may read.
const OF_ROLLOUTS: [&str; 5] = ["rollouts", "calls", "call_payloads", "token_signals", "environment_records"];
/// Tables that hold rows of builds.
const OF_BUILDS: [&str; 3] = ["samples", "builds", "exclusions"];

/// Opens a session for checks of a scope over what is touched.
pub(crate) async fn session_within(session: &Session, touched: &Touched, scope: Scope) -> Result<Session> {
    let steps = steps(touched);
    let snapshot = session.snapshot().only(|table, file| {
        let Some((run, _)) = file.run_id.as_ref().filter(|_| scope != Scope::Lake) else {
            return true;
        };
        if !touched.runs.contains(run) {
            return false;
        }
        if scope != Scope::Rollout || touched.whole_runs.contains(run) || !OF_ROLLOUTS.contains(&table) {
            return true;
        }
        // A rollout's rows have its step; where that is not known, they may be anywhere.
        match (steps.get(run.as_str()), file.step) {
            (None, _) => false,
            (Some(None), _) | (_, None) => true,
            _ if file.unresolved || file.step_nulls > 0 => true,
            (Some(Some(steps)), Some((first, last))) => steps.range(first..=last).next().is_some(),
        }
    });
    let mut within = BTreeMap::new();
    match scope {
        Scope::Run | Scope::Lake => {}
        Scope::Rollout => {
            let rollouts = touched.rollouts.iter().map(|place| key(&place.run, &place.rollout)).collect();
            let keep = among(touched, rollouts, "rollout_id");
            within.extend(OF_ROLLOUTS.map(|table| (table, keep.clone())));
        }
        Scope::Build => {
            let builds = touched.builds.iter().map(|(run, build)| key(run, build)).collect();
            let keep = among(touched, builds, "build_id");
            within.extend(OF_BUILDS.map(|table| (table, keep.clone())));
        }
    }
    session_for_checks_within(session, snapshot, within).await
}

/// The steps of the touched rollouts of each run; none where a rollout's is not known.
fn steps(touched: &Touched) -> BTreeMap<&str, Option<BTreeSet<i64>>> {
    let mut steps: BTreeMap<&str, Option<BTreeSet<i64>>> = BTreeMap::new();
    for place in &touched.rollouts {
        let of_run = steps.entry(place.run.as_str()).or_insert_with(|| Some(BTreeSet::new()));
        match (place.step, of_run) {
            (Some(step), Some(steps)) => {
                steps.insert(step);
            }
            (None, of_run) => *of_run = None,
            (Some(_), None) => {}
        }
    }
    steps
}

fn key(run: &str, name: &str) -> String {
    format!("{run}\u{0}{name}")
}

fn among(touched: &Touched, names: HashSet<String>, column: &str) -> Expr {
    let among = Among { names: Arc::new(names), whole: Arc::new(touched.whole_runs.clone()), signature: signature() };
    ScalarUDF::from(among).call(vec![ident("run_id"), ident(column)])
}

fn signature() -> Signature {
    Signature::any(2, Volatility::Immutable)
}

/// Whether a row is of a touched thing; one that names none is.
#[derive(Debug)]
struct Among {
    names: Arc<HashSet<String>>,
    whole: Arc<BTreeSet<String>>,
    signature: Signature,
}

impl PartialEq for Among {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.names, &other.names)
    }
}

impl Eq for Among {}

impl Hash for Among {
    fn hash<H: Hasher>(&self, state: &mut H) {
        Arc::as_ptr(&self.names).hash(state);
    }
}

impl ScalarUDFImpl for Among {
    fn name(&self) -> &'static str {
        "is_touched"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> PlanResult<DataType> {
        Ok(DataType::Boolean)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> PlanResult<ColumnarValue> {
        let arrays = ColumnarValue::values_to_arrays(&args.args)?;
        let texts = arrays.iter().map(|array| cast(array, &DataType::Utf8)).collect::<Result<Vec<ArrayRef>, _>>()?;
        let [runs, names] = texts.as_slice() else {
            return datafusion::common::exec_err!("is_touched takes a run and a name");
        };
        let (runs, names) = (runs.as_string::<i32>(), names.as_string::<i32>());
        let kept: BooleanArray = (0..runs.len())
            .map(|row| {
                Some(
                    runs.is_null(row)
                        || names.is_null(row)
                        || self.whole.contains(runs.value(row))
                        || self.names.contains(&key(runs.value(row), names.value(row))),
                )
            })
            .collect();
        Ok(ColumnarValue::Array(Arc::new(kept)))
    }
}
