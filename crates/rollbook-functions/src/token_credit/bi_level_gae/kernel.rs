//! Two scans: over the ends of turns, then over tokens.

use super::super::scan::Factors;

/// Returns the advantage of each selected token; the others get what they have.
pub(super) fn advantages(
    rewards: &[f64],
    values: &[f64],
    selected: &[bool],
    ends: &[bool],
    turns: Factors,
    tokens: Factors,
) -> Vec<f64> {
    let mut rewards = rewards.to_vec();
    let (mut next_value, mut carried) = (0.0, 0.0);
    for at in (0..rewards.len()).rev().filter(|at| ends[*at]) {
        let difference = rewards[at] + turns.gamma * next_value - values[at];
        carried = difference + turns.gamma * turns.lam * carried;
        next_value = values[at];
        // The turn's return stands for its reward.
        rewards[at] = carried + values[at];
    }
    let mut result = vec![f64::NAN; rewards.len()];
    let (mut next_value, mut carried) = (0.0, 0.0);
    for at in (0..rewards.len()).rev().filter(|at| selected[*at]) {
        if ends[at] {
            (next_value, carried) = (0.0, 0.0);
        }
        let difference = rewards[at] + tokens.gamma * next_value - values[at];
        carried = difference + tokens.gamma * tokens.lam * carried;
        next_value = values[at];
        result[at] = carried;
    }
    result
}
