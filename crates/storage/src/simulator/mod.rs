//! A replica set of one, simulated: everything this crate does at once, against a model, on one thread.
//!
//! A seed decides all: which of several clients takes the next step and what it does, when time passes, when the disk
//! is full, a sync fails or the power goes, and what the disk keeps then. The same seed is the same run, to the byte.
//!
//! `model.rs` says what must be true, `run.rs` drives the storage and checks it, `clients.rs` writes, plainly and in
//! sessions, `transactions.rs` has transactions, `definitions.rs` changes collections and indexes, `readers.rs` reads,
//! `followers.rs` reads the log as history, `faults.rs` harms the machine, `tests.rs` runs it all.
//!
//! Two ways of deciding: by itself, and by a majority, where an entry takes effect when `commit_to` says so. One thread
//! cannot wait for that, so there a client's operation is killed when its entry has its place: the entry goes its way.

mod clients;
mod definitions;
mod faults;
mod followers;
mod model;
mod readers;
mod run;
mod tests;
mod transactions;

/// What must never be, as a sentence.
#[derive(Debug)]
struct Violation(String);

type Checked<T = ()> = Result<T, Violation>;

/// As `assert!`, for what the storage answers.
macro_rules! ensure {
    ($condition:expr, $($text:tt)+) => {
        if !$condition {
            return Err($crate::simulator::Violation(format!($($text)+)));
        }
    };
}
use ensure;
