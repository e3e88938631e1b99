//! The engine as its users see it: against the conformance kit, models, crashes, faults and threads. One program,
//! because each one is linked for itself; `cargo test -p engine-btree --test btree crash::` runs one module.

mod checkpoints;
mod concurrency;
mod conformance;
mod crash;
mod crash_relocation;
mod differential;
mod driver;
mod faults;
mod operations;
mod space;
