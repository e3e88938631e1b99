//! The engine as its users see it: against the conformance kit, models, crashes and faults. One program,
//! because each one is linked for itself; `cargo test -p engine-betree --test betree crash::` runs one module.

mod beyond_cache;
mod conformance;
mod crash;
mod damage;
mod differential;
mod faults;
