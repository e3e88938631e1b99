//! Documents as text: JSON, CSV and TSV out of a server ([`export()`]) and into one ([`import()`]).
//!
//! Reading goes in two steps. [`Reader`] finds where one document's text ends and the next begins, one thread alone;
//! [`Decoder`] makes BSON of it, on as many threads as there are workers. Neither trusts its input: both have bounds
//! for everything (`limits`), and name the line of what they refuse. Talks to servers by [`dump::Client`] only.

#![allow(clippy::disallowed_methods, reason = "a client program: files are the machine's own")]

mod column;
mod decode;
mod error;
mod export;
mod import;
mod layout;
mod limits;
mod reader;
mod record;
mod separated;
#[cfg(test)]
mod tests;
mod typed;

pub use column::{Columns, TypedNames};
pub use decode::{Decoded, Decoder, Fault};
pub use error::{Result, TransferError};
pub use export::{ExportFormat, ExportOptions, Exported, export};
pub use import::{ImportMode, ImportOptions, Imported, import};
pub use reader::{Item, Reader, TextForm};
pub use separated::Separator;
pub use typed::{ColumnType, Grace};
