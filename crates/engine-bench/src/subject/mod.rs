//! What is measured, behind one interface: an engine of Tenon with the one log in front, or WiredTiger.
//!
//! A [`Subject`] is shared by the threads of a run, a [`Session`] belongs to one of them. Tables are small numbers;
//! keys of [`TableUse::Records`] are 8 bytes, most significant first. Entries of index tables follow from the record's
//! id (see [`crate::data::index_key`]), so a subject may leave them out of its log and make them again at recovery.

mod counting;
mod entry;
#[cfg(wiredtiger)]
mod ffi;
mod kind;
mod open;
#[expect(
    clippy::module_inception,
    reason = "the interface has the name of what it is the interface of"
)]
mod subject;
mod tenon;
#[cfg(wiredtiger)]
mod wiredtiger;

pub use kind::{EngineKind, Layout, SubjectKind};
pub use open::{open, wiredtiger_version};
pub use subject::{
    Counters, Durability, Replayed, Scanned, Session, SessionError, SessionResult, Subject, TABLES_MAX, Table,
    TableUse, transact,
};
