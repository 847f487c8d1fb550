//! Credits that depend on what came before: a moving average, and running statistics.

use super::kernel::{Group, Outcome};
use super::spread::{Counted, Moments, Scaled, ScaledMoments};

/// Returns the members by position; equal positions stay in the order of their ids.
fn by_position(group: &Group) -> Vec<usize> {
    let mut order: Vec<usize> = (0..group.members.values.len()).collect();
    order.sort_by_key(|member| group.positions.get(*member));
    order
}

/// Each value less the average before it, which then moves towards the value.
pub(super) fn moving_average(group: Group, decay: f64, initial: f64, credits: &mut Vec<f64>) -> Outcome {
    let values = group.members.values;
    credits.resize(values.len(), 0.0);
    let mut average = initial;
    for member in by_position(&group) {
        credits[member] = values[member] - average;
        average = decay * average + (1.0 - decay) * values[member];
    }
    Outcome::Each
}

/// Each value less the mean of all values up to its own position, over their standard deviation plus `eps`.
pub(super) fn running(group: Group, ddof: u32, eps: f64, credits: &mut Vec<f64>) -> Outcome {
    let Scaled { members, moments: whole } = group.scaled;
    credits.resize(members.values.len(), 0.0);
    let order = by_position(&group);
    let mut so_far = Moments::default();
    for batch in order.chunk_by(|a, b| group.positions.get(*a) == group.positions.get(*b)) {
        let values: Vec<f64> = batch.iter().map(|member| members.values[*member]).collect();
        so_far = so_far.and(moments(&values));
        let std = whole.back(so_far.std(ddof));
        for member in batch {
            let difference = members.values[*member] - so_far.mean;
            // Equal values so far have no spread, and no difference either.
            credits[*member] = if difference == 0.0 { 0.0 } else { whole.divided(difference, std, eps) };
        }
    }
    Outcome::Each
}

fn moments(values: &[f64]) -> Moments {
    let moments = ScaledMoments::new(Counted { values, votes: &[] }, &mut Vec::new());
    let std = moments.std(0);
    Moments { count: moments.count, mean: moments.back(moments.mean), squares: std * std * moments.count }
}
