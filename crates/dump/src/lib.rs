//! Dumps of databases and their restoration, in mongodump's directory and archive formats (`docs/formats/dump.md`).
//!
//! [`dump()`] and [`restore()`] talk to a server over the wire protocol only, so that either side can be a MongoDB.
//! Documents pass through as bytes; nothing but metadata is decoded, and buckets of time series, whose text can be out
//! of sight. What is read from files is not trusted.

#![allow(clippy::disallowed_methods, reason = "a client program: files are the machine's own")]

pub mod archive;
mod client;
pub mod compare;
mod crc64;
mod directory;
mod dump;
mod error;
mod found;
mod indexes;
mod left_out;
mod loading;
mod metadata;
mod namespace;
mod oplog;
mod part_queue;
mod replay;
mod restore;
mod server;
mod texts;
mod tls;
mod users_and_roles;

pub use client::Client;
pub use directory::{Output, bson_file, file_stem, open_file};
pub use dump::{DumpOptions, Dumped, dump};
pub use error::{DumpError, Result};
pub use found::Found;
pub use loading::Loading;
pub use metadata::{CollectionKind, Metadata};
pub use namespace::{Filter, Namespace, Pattern, Rename};
pub use replay::ReplayOptions;
pub use restore::{RestoreOptions, Restored, restore};
pub use server::{Login, ReadPreference, Server, ServerUri, mechanism_of, random};
pub use tls::{Encryption, TlsChoice};
pub use wire::InvalidText;
