//! Ids for the few keys that are shown.

use std::collections::HashMap;

use arrow::array::Array;
use futures::TryStreamExt;

use crate::compare::Measure;
use crate::compare::items::Ids;
use crate::compare::side::Side;
use crate::error::Result;
use crate::session::Session;

/// Looks the ids up in the rows of the two sides.
pub(super) async fn fill(session: &Session, sides: [&Side; 2], measures: &mut [Measure]) -> Result<()> {
    let mut rollouts: HashMap<u128, Option<(String, String)>> = HashMap::new();
    let mut calls: HashMap<u128, Option<String>> = HashMap::new();
    for difference in measures.iter().flat_map(|measure| measure.rollouts.iter().chain(&measure.items)) {
        rollouts.insert(difference.key.rollout, None);
        if difference.key.call != 0 {
            calls.insert(difference.key.call, None);
        }
    }
    for side in sides {
        if rollouts.values().all(Option::is_some) && calls.values().all(Option::is_some) {
            break;
        }
        let mut stream = session.stream(&side.ids_sql()).await?;
        while let Some(batch) = stream.try_next().await? {
            let ids = Ids::of(&batch)?;
            for row in 0..batch.num_rows() {
                let Some(key) = ids.key(row) else {
                    continue;
                };
                if let Some(slot @ None) = rollouts.get_mut(&key.rollout) {
                    *slot = Some((ids.run.value(row).to_owned(), ids.rollout.value(row).to_owned()));
                }
                if let Some(slot @ None) = calls.get_mut(&key.call)
                    && ids.call.is_valid(row)
                {
                    *slot = Some(ids.call.value(row).to_owned());
                }
            }
        }
    }
    let named = measures.iter_mut().flat_map(|measure| measure.rollouts.iter_mut().chain(&mut measure.items));
    for difference in named {
        if let Some(Some((run, rollout))) = rollouts.get(&difference.key.rollout) {
            difference.run_id = Some(run.clone());
            difference.rollout_id = Some(rollout.clone());
        }
        difference.call_id = calls.get(&difference.key.call).cloned().flatten();
    }
    Ok(())
}
