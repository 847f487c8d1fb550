//! Exact aggregates: the sum of doubles without rounding on the way, so that no order of rows can change a bit of it.

mod accumulator;
mod exact_avg;
mod exact_sum;
mod groups;
mod superaccumulator;
#[cfg(test)]
mod tests;
mod total;
mod udaf;

pub(crate) use exact_avg::EXACT_AVG;
pub(crate) use exact_sum::EXACT_SUM;
pub(crate) use superaccumulator::{Superaccumulator, scale};
pub(crate) use total::{total, total_of_votes};
