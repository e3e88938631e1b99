//! Server-side JavaScript: a client's functions, called on BSON values in a sandbox.
//!
//! A [`Function`] is a source text, a [`Scope`] is what it runs in: one heap with one set of globals, for one thread
//! and one operation. It knows no documents' fields, no operators and no operations; who makes a scope says when it has
//! to end.
//! - Nothing of the machine is within a script's reach: there are no modules, no files, no sockets.
//! - A script that goes wrong is an error of its caller, whatever it does: it has limits of heap, stack and depth, and
//!   what it returns is checked like bytes from outside.
//! - All `unsafe` is that of the crate `rquickjs`, around the engine QuickJS-NG, and of the allocator in `script-heap`.

mod error;
mod from_bson;
mod function;
mod host;
mod limits;
mod originals;
mod prelude;
mod scope;
mod statements;
mod to_bson;

#[cfg(test)]
mod tests;

pub use error::ScriptError;
pub use function::Function;
pub use limits::{DEPTH_MAX, RESULT_BYTES_MAX, STACK_FREE_BYTES_MIN};
pub use scope::{Receiver, Scope};
