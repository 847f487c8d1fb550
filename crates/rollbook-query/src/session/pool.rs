//! The memory of a session: equal shares for what can spill once memory is short, and before that what an operator asks for.
//!
//! `DataFusion`'s fair pool gives each operator that can spill the same part of the limit, whether it needs it or not. A plan of a hundred
//! aggregates then fails in 512 MB with most of it free, since none may hold the four megabytes that its first batch takes.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};

use datafusion::common::{Result, resources_err};
use datafusion::execution::memory_pool::{FairSpillPool, MemoryConsumer, MemoryLimit, MemoryPool, MemoryReservation};

/// What an operator may hold whatever its share is, while the limit lasts.
const FLOOR: usize = 4 << 20;

/// The part of the limit that one operator may hold beyond its share, while half of the limit is free.
const PART: usize = 8;

/// What merges the sorted runs of a sort. Of spilled runs it takes as many at a time as memory allows, and would leave none to others;
/// of runs in memory it holds what the sort held.
const MERGE: &str = "ExternalSorterMerge";

/// A fair pool that is not strict while memory is free.
#[derive(Debug)]
pub(super) struct Pool {
    fair: FairSpillPool,
    limit: usize,
    /// Operators that can spill.
    spillable: AtomicUsize,
}

impl Pool {
    pub(super) fn new(limit: usize) -> Self {
        Self { fair: FairSpillPool::new(limit), limit, spillable: AtomicUsize::new(0) }
    }

    /// Whether an operator may hold as much when the session's operators hold so much together.
    fn allows(&self, own: usize, all: usize) -> bool {
        (own <= FLOOR && all <= self.limit) || (own <= self.limit / PART && all <= self.limit / 2)
    }

    /// Whether a merge may: no more than a sort.
    fn allows_merge(&self, own: usize) -> bool {
        let share = self.limit / self.spillable.load(Ordering::Relaxed).max(1);
        own <= share.max(self.limit / PART).max(FLOOR)
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
        self.spillable.fetch_add(usize::from(consumer.can_spill()), Ordering::Relaxed);
        self.fair.register(consumer);
    }

    fn unregister(&self, consumer: &MemoryConsumer) {
        self.spillable.fetch_sub(usize::from(consumer.can_spill()), Ordering::Relaxed);
        self.fair.unregister(consumer);
    }

    fn grow(&self, reservation: &MemoryReservation, additional: usize) {
        self.fair.grow(reservation, additional);
    }

    fn shrink(&self, reservation: &MemoryReservation, shrink: usize) {
        self.fair.shrink(reservation, shrink);
    }

    fn try_grow(&self, reservation: &MemoryReservation, additional: usize) -> Result<()> {
        let own = reservation.size().saturating_add(additional);
        if reservation.consumer().name().starts_with(MERGE) && !self.allows_merge(own) {
            return resources_err!("a merge of sorted runs may not hold {own} of {} bytes", self.limit);
        }
        let error = match self.fair.try_grow(reservation, additional) {
            Ok(()) => return Ok(()),
            Err(error) => error,
        };
        if self.allows(own, self.fair.reserved().saturating_add(additional)) {
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

    fn operators(pool: &Arc<dyn MemoryPool>) -> Vec<MemoryReservation> {
        let consumer = |n: usize| MemoryConsumer::new(format!("operator {n}")).with_can_spill(true).register(pool);
        (0..100).map(consumer).collect()
    }

    #[test]
    fn while_half_of_the_limit_is_free_an_operator_may_hold_an_eighth() {
        let pool: Arc<dyn MemoryPool> = Arc::new(Pool::new(64 << 20));
        let operators = operators(&pool);
        for operator in &operators[..4] {
            operator.try_grow(8 << 20).unwrap();
            assert!(operator.try_grow(1).is_err());
        }
        // Half is held: an operator has its floor and no more.
        operators[4].try_grow(4 << 20).unwrap();
        assert!(operators[4].try_grow(1).is_err());
    }

    #[test]
    fn a_merge_holds_no_more_than_a_sort() {
        let pool: Arc<dyn MemoryPool> = Arc::new(Pool::new(64 << 20));
        let merge = MemoryConsumer::new(format!("{MERGE}[0]")).register(&pool);
        let others = operators(&pool);
        merge.try_grow(8 << 20).unwrap();
        assert!(merge.try_grow(1).is_err());
        // Two sorts have half of it each.
        drop(others);
        let _sorts: Vec<_> = operators(&pool).into_iter().take(2).collect();
        merge.try_grow(24 << 20).unwrap();
        assert!(merge.try_grow(1).is_err());
        // Anything else that cannot spill takes what there is.
        MemoryConsumer::new("HashJoinInput").register(&pool).try_grow(32 << 20).unwrap();
    }

    #[test]
    fn many_small_operators_fit_while_the_limit_lasts() {
        let pool: Arc<dyn MemoryPool> = Arc::new(Pool::new(64 << 20));
        let operators = operators(&pool);
        // A share is 0.64 MiB.
        for operator in &operators[..16] {
            operator.try_grow(2 << 20).unwrap();
            operator.try_grow(2 << 20).unwrap();
        }
        assert_eq!(pool.reserved(), 64 << 20);
        assert!(operators[16].try_grow(1 << 20).is_err());
    }
}
