//! Memory that operations gather: an account for each of them, and one budget for all.
//!
//! What grows with the data (rows to sort, groups, the values of an expression, the index keys of a write) is charged
//! to the account of the operation that gathers it. A [`Charge`] is one holder's share: it grows, shrinks, and goes
//! back when it is dropped, which for the stages of a cursor is when the cursor ends, requests later.
//! - A charge takes from the account in steps, so that what is small touches nothing that is shared.
//! - The budget is counted up before it is compared, and down again when it did not suffice: two that ask at once may
//!   both be refused where one would have fitted, never both accepted where only one fits.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes that a charge takes from its account at least.
const STEP_BYTES: u64 = 64 << 10;

/// What all operations of a server share.
#[derive(Debug)]
pub struct MemoryBudget {
    total_bytes_max: AtomicU64,
    operation_bytes_max: AtomicU64,
    used: AtomicU64,
    refused: AtomicU64,
}

/// An operation wants more memory than it may have. The bytes are those it and the others would have had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MemoryExceeded {
    /// More than one operation may have.
    #[error(
        "the operation would gather {bytes} bytes in memory, one operation may have {bytes_max} \
         (operationMemoryBytesMax)"
    )]
    Operation {
        /// What it would have had.
        bytes: u64,
        /// The limit.
        bytes_max: u64,
    },
    /// More than all of them together may have.
    #[error(
        "all operations together would gather {bytes} bytes in memory, they may have {bytes_max} \
         (totalOperationMemoryBytesMax)"
    )]
    Total {
        /// What all would have had.
        bytes: u64,
        /// The limit.
        bytes_max: u64,
    },
}

impl MemoryBudget {
    /// A budget of so many bytes for all operations, and for one.
    pub fn new(total_bytes_max: u64, operation_bytes_max: u64) -> Arc<Self> {
        Arc::new(Self {
            total_bytes_max: AtomicU64::new(total_bytes_max),
            operation_bytes_max: AtomicU64::new(operation_bytes_max),
            used: AtomicU64::new(0),
            refused: AtomicU64::new(0),
        })
    }

    /// A budget without limits.
    pub fn unlimited() -> Arc<Self> {
        Self::new(u64::MAX, u64::MAX)
    }

    /// Bytes that all operations may have.
    pub fn total_bytes_max(&self) -> u64 {
        self.total_bytes_max.load(Ordering::Relaxed)
    }

    /// Bytes that one operation may have.
    pub fn operation_bytes_max(&self) -> u64 {
        self.operation_bytes_max.load(Ordering::Relaxed)
    }

    /// Changes what all operations may have. What they have already stays theirs.
    pub fn set_total_bytes_max(&self, bytes: u64) {
        self.total_bytes_max.store(bytes, Ordering::Relaxed);
    }

    /// Changes what one operation may have.
    pub fn set_operation_bytes_max(&self, bytes: u64) {
        self.operation_bytes_max.store(bytes, Ordering::Relaxed);
    }

    /// Bytes that operations have now.
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Times that an operation was refused memory.
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }
}

/// What one operation has.
#[derive(Debug)]
pub struct MemoryAccount {
    budget: Arc<MemoryBudget>,
    used: AtomicU64,
}

impl MemoryAccount {
    /// An empty account.
    pub fn new(budget: &Arc<MemoryBudget>) -> Arc<Self> {
        Arc::new(Self {
            budget: budget.clone(),
            used: AtomicU64::new(0),
        })
    }

    /// Bytes that it has.
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Bytes that it may still have.
    pub fn left(&self) -> u64 {
        let budget = &*self.budget;
        let own = budget.operation_bytes_max().saturating_sub(self.used());
        own.min(budget.total_bytes_max().saturating_sub(budget.used()))
    }

    fn take(&self, bytes: u64) -> Result<(), MemoryExceeded> {
        let budget = &*self.budget;
        let own = self.used.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes);
        let bytes_max = budget.operation_bytes_max();
        if own > bytes_max {
            self.used.fetch_sub(bytes, Ordering::Relaxed);
            budget.refused.fetch_add(1, Ordering::Relaxed);
            return Err(MemoryExceeded::Operation { bytes: own, bytes_max });
        }
        let all = budget.used.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes);
        let bytes_max = budget.total_bytes_max();
        if all > bytes_max {
            self.give_back(bytes);
            budget.refused.fetch_add(1, Ordering::Relaxed);
            return Err(MemoryExceeded::Total { bytes: all, bytes_max });
        }
        Ok(())
    }

    fn give_back(&self, bytes: u64) {
        let own = self.used.fetch_sub(bytes, Ordering::Relaxed);
        let all = self.budget.used.fetch_sub(bytes, Ordering::Relaxed);
        debug_assert!(own >= bytes && all >= bytes, "nothing goes back that was not taken");
    }
}

/// One holder's share of an account; given back on drop.
#[derive(Debug)]
pub struct Charge {
    account: Arc<MemoryAccount>,
    /// Bytes that the holder has.
    bytes: u64,
    /// Bytes taken from the account, at least `bytes`.
    taken: u64,
}

impl Charge {
    /// Nothing yet.
    pub fn new(account: &Arc<MemoryAccount>) -> Self {
        Self {
            account: account.clone(),
            bytes: 0,
            taken: 0,
        }
    }

    /// Bytes that the holder has.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Notes that the holder has so many bytes more. On an error it has what it had.
    #[inline]
    pub fn grow(&mut self, bytes: u64) -> Result<(), MemoryExceeded> {
        let wanted = self.bytes.saturating_add(bytes);
        if wanted > self.taken {
            self.take(wanted)?;
        }
        self.bytes = wanted;
        Ok(())
    }

    #[cold]
    fn take(&mut self, wanted: u64) -> Result<(), MemoryExceeded> {
        let step = (wanted - self.taken).max(STEP_BYTES).max(self.taken / 8);
        self.account.take(step)?;
        self.taken += step;
        Ok(())
    }

    /// Notes that the holder has so many bytes less.
    #[inline]
    pub fn shrink(&mut self, bytes: u64) {
        debug_assert!(bytes <= self.bytes, "nothing shrinks by what it has not");
        self.bytes = self.bytes.saturating_sub(bytes);
    }

    /// Gives all back.
    pub fn clear(&mut self) {
        self.bytes = 0;
        let taken = std::mem::take(&mut self.taken);
        if taken > 0 {
            self.account.give_back(taken);
        }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.clear();
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn an_operation_and_all_of_them_have_their_limits() {
        let budget = MemoryBudget::new(1 << 20, 768 << 10);
        let (one, other) = (MemoryAccount::new(&budget), MemoryAccount::new(&budget));
        let mut charge = Charge::new(&one);
        charge.grow(600 << 10).unwrap();
        assert!(matches!(
            charge.grow(400 << 10),
            Err(MemoryExceeded::Operation { bytes_max, .. }) if bytes_max == 768 << 10
        ));
        assert_eq!(charge.bytes(), 600 << 10, "it has what it had");
        let mut second = Charge::new(&other);
        assert!(matches!(second.grow(600 << 10), Err(MemoryExceeded::Total { .. })));
        assert_eq!((second.bytes(), other.used()), (0, 0));
        second.grow(100 << 10).unwrap();
        drop(charge);
        second.grow(600 << 10).unwrap();
        assert_eq!(budget.refused(), 2);
        drop(second);
        assert_eq!((budget.used(), one.used(), other.used()), (0, 0, 0));
    }

    #[test]
    fn what_shrinks_and_grows_again_takes_nothing_new() {
        let budget = MemoryBudget::new(u64::MAX, 1 << 20);
        let account = MemoryAccount::new(&budget);
        let mut charge = Charge::new(&account);
        for _ in 0..1000 {
            charge.grow(60 << 10).unwrap();
            charge.shrink(60 << 10);
        }
        assert_eq!(account.used(), STEP_BYTES);
    }

    #[test]
    fn many_at_once_never_have_more_than_the_budget() {
        let budget = MemoryBudget::new(64 * STEP_BYTES, u64::MAX);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let account = MemoryAccount::new(&budget);
                    for round in 0..2000_u64 {
                        let mut charge = Charge::new(&account);
                        let fitted = (0..40).take_while(|_| charge.grow(STEP_BYTES).is_ok()).count() as u64;
                        assert_eq!(charge.bytes(), fitted * STEP_BYTES, "round {round}");
                        assert!(account.used() <= budget.total_bytes_max());
                    }
                });
            }
        });
        assert_eq!(budget.used(), 0);
    }
}
