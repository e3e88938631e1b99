//! Cells that readers load without a latch, and the locks beside them.
//!
//! [`Rcu`] and [`RcuOption`] hold an immutable value that a writer replaces as a whole (read-copy-update). A reader pins the
//! current epoch ([`pin`]) and gets references that stay good while the guard lives; what was replaced is freed when no
//! reader can still see it (Fraser, *Practical lock-freedom*, 2004; the library is `crossbeam-epoch`).
//!
//! [`Mutex`] is the lock for writers. With the feature `shuttle` it is the schedule checker's, and every load and
//! replacement is a point where the checker may switch threads.

mod cell;
mod mutex;

pub use cell::{Rcu, RcuOption};
pub use crossbeam_epoch::{Guard, pin};
pub use mutex::{Mutex, MutexGuard};
