//! The memory of a session: equal shares for what can spill, and never less than a small operator needs to begin.
//!
//! `DataFusion`'s fair pool gives each operator that can spill the same part of the limit, whether it needs it or not. A plan of a hundred
//! aggregates over a handful of rows then fails in 256 MB, since none may hold the two megabytes that its first batch takes.

use std::fmt;

use datafusion::common::Result;
use datafusion::execution::memory_pool::{FairSpillPool, MemoryConsumer, MemoryLimit, MemoryPool, MemoryReservation};

/// What an operator may hold whatever its share is, while the limit lasts.
const FLOOR: usize = 4 << 20;

/// A fair pool with a floor.
#[derive(Debug)]
pub(super) struct Pool {
    fair: FairSpillPool,
    limit: usize,
}

impl Pool {
    pub(super) fn new(limit: usize) -> Self {
        Self { fair: FairSpillPool::new(limit), limit }
    }
}

impl fmt::Display for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.fair.fmt(f)
    }
}

impl MemoryPool for Pool {
    fn name(&self) -> &str {
        self.fair.name()
    }

    fn register(&self, consumer: &MemoryConsumer) {
        self.fair.register(consumer);
    }

    fn unregister(&self, consumer: &MemoryConsumer) {
        self.fair.unregister(consumer);
    }

    fn grow(&self, reservation: &MemoryReservation, additional: usize) {
        self.fair.grow(reservation, additional);
    }

    fn shrink(&self, reservation: &MemoryReservation, shrink: usize) {
        self.fair.shrink(reservation, shrink);
    }

    fn try_grow(&self, reservation: &MemoryReservation, additional: usize) -> Result<()> {
        let error = match self.fair.try_grow(reservation, additional) {
            Ok(()) => return Ok(()),
            Err(error) => error,
        };
        let is_small = reservation.size().saturating_add(additional) <= FLOOR;
        if is_small && self.fair.reserved().saturating_add(additional) <= self.limit {
            self.fair.grow(reservation, additional);
            Ok(())
        } else {
            Err(error)
        }
    }

    fn reserved(&self) -> usize {
        self.fair.reserved()
    }

    fn memory_limit(&self) -> MemoryLimit {
        MemoryLimit::Finite(self.limit)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn many_small_operators_fit_and_a_large_one_keeps_to_its_share() {
        let pool: Arc<dyn MemoryPool> = Arc::new(Pool::new(64 << 20));
        let consumer = |n: usize| MemoryConsumer::new(format!("operator {n}")).with_can_spill(true).register(&pool);
        let operators: Vec<MemoryReservation> = (0..100).map(consumer).collect();
        // A share is 0.64 MiB.
        operators[0].try_grow(2 << 20).unwrap();
        operators[0].try_grow(2 << 20).unwrap();
        assert!(operators[0].try_grow(1).is_err());
        for operator in &operators[1..16] {
            operator.try_grow(4 << 20).unwrap();
        }
        assert_eq!(pool.reserved(), 64 << 20);
        assert!(operators[16].try_grow(1 << 20).is_err());
    }
}
