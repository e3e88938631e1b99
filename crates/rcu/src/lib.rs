//! Cells that readers load without a latch, and the locks beside them.
//!
//! [`Rcu`] and [`RcuOption`] hold an immutable value that a writer replaces as a whole (read-copy-update). A reader
//! pins the current epoch ([`pin`]) and gets references that stay good while the guard lives; what was replaced is
//! freed when no reader can still see it, in small steps (`epoch`, `garbage`).
//!
//! [`waiting()`] tells how much that is.
//!
//! [`Mutex`] is the lock for writers, [`RwLock`] the one for few that exclude many, [`Condvar`] and `thread` are for
//! those who sleep. With the feature `shuttle` they are the schedule checker's, and every load, replacement and
//! [`schedule_point`] is a point where the checker may switch threads.

mod cell;
mod condvar;
mod epoch;
mod garbage;
mod mutex;
mod retired;
mod rw_lock;
mod waiting;

#[cfg(feature = "shuttle")]
pub use shuttle::{thread, thread_local};
#[cfg(not(feature = "shuttle"))]
pub use std::{thread, thread_local};

pub use cell::{Rcu, RcuOption};
pub use condvar::Condvar;
pub use epoch::{Guard, is_pinned, pin, schedule_point, yield_now};
pub use mutex::{Mutex, MutexGuard};
pub use rw_lock::{RwLock, RwLockReadGuard, RwLockWriteGuard};
pub use waiting::{Waiting, waiting};
