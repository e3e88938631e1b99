//! A storage engine from outside, as an example: `docs/engines/writing-an-engine.md` walks through it.
//!
//! All rows are in memory, in tables whose chunks are shared between views (`table`). A checkpoint writes the rows that
//! changed since the one before it into a file of its own; now and then one writes all rows, and older files go
//! (`files`). The program beside this library serves it: `src/main.rs`.

mod cursor;
mod deltas;
mod files;
mod table;

pub use deltas::DeltaEngine;
