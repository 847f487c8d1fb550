//! `trajectory_id(call_id, parent_call_id)`: the first call of the path that a call lies on.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, StringArray};
use arrow::datatypes::DataType;
use datafusion_common::{Result, exec_err, internal_err};

use crate::call_window::{Definition, Kernel, udwf};
use crate::function::{Function, Kind, Param};

/// `trajectory_id`.
pub(crate) const TRAJECTORY_ID: Function = Function {
    name: "trajectory_id",
    family: "lineage",
    version: 1,
    kind: Kind::Window(|| udwf(DEFINITION)),
    params: &[
        Param::required("call_id", "varchar", "The call."),
        Param::required("parent_call_id", "varchar", "The call it follows, or null."),
    ],
    returns: "varchar",
    doc: "Returns the first call of the path through parents that a call lies on, each call lying on one.",
    definition: "\
Paths are taken from the last call of the window's order backwards: a call that is on no path yet starts one, which goes up from parent to parent until \
it meets a call that is already on a path, or the first call. So the path to the last call, which led to the outcome, is one trajectory, and each branch \
that led elsewhere (a retry, a discarded choice, a subagent) is another that begins where it left.\n\
\n\
- Window: `OVER (PARTITION BY run_id, rollout_id ORDER BY call_index, call_id)`; ORDER BY must be unique.\n\
- A parent that is not there, or does not come earlier, is none.\n\
- A call_id that comes twice: references mean the first row, each later row is a trajectory with its own id.\n\
- A null call_id is an error.",
    source: None,
    slt: include_str!("trajectory_id.slt"),
};

const DEFINITION: Definition = Definition {
    function: &TRAJECTORY_ID,
    columns: 2,
    output: || DataType::Utf8,
    kernel: |_| Ok(Arc::new(TrajectoryId)),
};

#[derive(Debug)]
struct TrajectoryId;

impl Kernel for TrajectoryId {
    fn evaluate(&self, columns: &[ArrayRef], _rows: usize) -> Result<ArrayRef> {
        let name = TRAJECTORY_ID.name;
        let [call_ids, parents] = columns else {
            return internal_err!("{name} over {} columns", columns.len());
        };
        let (Some(call_ids), Some(parents)) = (call_ids.as_string_opt::<i32>(), parents.as_string_opt::<i32>()) else {
            return internal_err!("{name} over columns of other types");
        };
        if call_ids.null_count() > 0 {
            return exec_err!("{name}: a call_id is null");
        }
        let roots = roots(call_ids, parents);
        Ok(Arc::new(roots.into_iter().map(|root| Some(call_ids.value(root))).collect::<StringArray>()))
    }
}

/// Returns the row that starts the path of each row.
fn roots(call_ids: &StringArray, parents: &StringArray) -> Vec<usize> {
    let mut first_row: HashMap<&str, usize> = HashMap::with_capacity(call_ids.len());
    for row in 0..call_ids.len() {
        first_row.entry(call_ids.value(row)).or_insert(row);
    }
    let parent = |row: usize| {
        let known = parents.is_valid(row).then(|| first_row.get(parents.value(row)).copied()).flatten();
        let is_first = first_row.get(call_ids.value(row)) == Some(&row);
        known.filter(|parent| *parent < row && is_first)
    };
    let mut roots: Vec<Option<usize>> = vec![None; call_ids.len()];
    let mut path = Vec::new();
    for last in (0..call_ids.len()).rev() {
        let mut next = Some(last).filter(|row| roots[*row].is_none());
        while let Some(row) = next {
            path.push(row);
            next = parent(row).filter(|parent| roots[*parent].is_none());
        }
        let root = path.last().copied();
        path.drain(..).for_each(|row| roots[row] = root);
    }
    roots.into_iter().enumerate().map(|(row, root)| root.unwrap_or(row)).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Every call lies on one path; a path goes from parent to child; of the children of a call the one on its path has the latest end.
        #[test]
        fn paths_tile_the_calls(
            calls in proptest::collection::vec(("[a-h]", proptest::option::of("[a-i]")), 0..14),
        ) {
            let ids: StringArray = calls.iter().map(|call| Some(call.0.as_str())).collect();
            let given: StringArray = calls.iter().map(|call| call.1.as_deref()).collect();
            let roots = roots(&ids, &given);
            let first = |id: &str| calls.iter().position(|call| call.0 == id);
            let parent = |row: usize| {
                let parent = first(calls[row].1.as_deref()?)?;
                (parent < row && first(&calls[row].0) == Some(row)).then_some(parent)
            };
            // The latest row reached from a row by way of children.
            fn latest(row: usize, rows: usize, parent: &dyn Fn(usize) -> Option<usize>) -> usize {
                (0..rows).filter(|child| parent(*child) == Some(row)).map(|child| latest(child, rows, parent)).max().unwrap_or(row).max(row)
            }
            for row in 0..calls.len() {
                let expected = match parent(row) {
                    Some(parent_row) => {
                        let own = latest(row, calls.len(), &parent);
                        if latest(parent_row, calls.len(), &parent) == own { roots[parent_row] } else { row }
                    }
                    None => row,
                };
                prop_assert_eq!(roots[row], expected, "row {} of {:?}", row, calls);
            }
        }
    }
}
