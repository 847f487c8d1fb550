//! Sorted rows, one rollout at a time.

use arrow::array::RecordBatch;

use super::resolve::{long, number, text, value};

/// Collects the rows of one rollout at a time out of sorted batches.
#[derive(Default)]
pub(crate) struct RolloutRows {
    key: Option<RolloutKey>,
    rows: Vec<RecordBatch>,
}

#[derive(PartialEq, Eq)]
struct RolloutKey {
    run: Option<String>,
    step: Option<i64>,
    group: Option<String>,
    rollout: Option<String>,
}

impl RolloutRows {
    /// Takes a batch in and returns the rollouts that it completes.
    pub(crate) fn take(&mut self, batch: &RecordBatch) -> Vec<Vec<RecordBatch>> {
        let (runs, groups, rollouts) = (text(batch, "run_id"), text(batch, "group_id"), text(batch, "rollout_id"));
        let steps = long(batch, "step");
        let mut done = Vec::new();
        let mut start = 0;
        for row in 0..batch.num_rows() {
            let same = self.key.as_ref().is_some_and(|key| {
                key.rollout.as_deref() == value(rollouts, row)
                    && key.run.as_deref() == value(runs, row)
                    && key.step == number(steps, row)
                    && key.group.as_deref() == value(groups, row)
            });
            if same {
                continue;
            }
            if row > start {
                self.rows.push(batch.slice(start, row - start));
            }
            if !self.rows.is_empty() {
                done.push(std::mem::take(&mut self.rows));
            }
            start = row;
            self.key = Some(RolloutKey {
                run: value(runs, row).map(str::to_owned),
                step: number(steps, row),
                group: value(groups, row).map(str::to_owned),
                rollout: value(rollouts, row).map(str::to_owned),
            });
        }
        if start < batch.num_rows() {
            self.rows.push(batch.slice(start, batch.num_rows() - start));
        }
        done
    }

    /// Returns what is left: the rows of the last rollout.
    pub(crate) fn finish(self) -> Vec<RecordBatch> {
        self.rows
    }
}
