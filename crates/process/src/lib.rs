//! What ends a program, and what ends with it: the signals that it heeds, and a guard over what it has started.
//!
//! It catches no signal and starts no program but the guard's shell.

mod guard;
mod signals;

pub use guard::Guard;
pub use signals::ending;
