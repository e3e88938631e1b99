//! Reads data directories of MongoDB 2.4 to 4.0 with the engine MMAPv1, without changing them.
//!
//! A [`DataDirectory`] is a view of the files with the journal applied in memory. A [`Database`] of it is the list of
//! its collections, whose documents [`Database::documents`] gives. What a file says is believed only as far as
//! something else confirms it: a damaged pointer leads to a [`Finding`], and to other ways to the rest.
//! `docs/formats/mongodb-mmapv1.md` has the layout.
//!
//! Invariants: no file is opened for writing; every document that is given out is valid BSON, and none is given twice
//! from one place; no loop is longer than what it runs over.

mod catalog;
mod database;
mod directory;
mod error;
mod extents;
mod finding;
mod image;
mod journal;
mod layout;
mod records;
mod search;

pub use database::{Collection, CollectionKind, Database, Walked};
pub use directory::{DataDirectory, OpenOptions, Shutdown, process_of};
pub use error::{RescueError, Result};
pub use finding::{Fault, Finding, Findings, Severity};
pub use journal::Replayed;
pub use layout::Location;
pub use wire::InvalidText;
