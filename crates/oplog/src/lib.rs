//! The one log: segmented, checksummed, group-committed.
//!
//! Tenon's write-ahead log. An entry is opaque bytes with a [`engine::Seq`]; what it means, who may write when, and
//! what has been applied to an engine is known above. The format, its commit protocol and its crash cases are described
//! in `docs/formats/log.md`.
//!
//! Reading the source: `log.rs` is the handle (append, group commit, back-pressure); `waiters.rs` has who flushes and
//! who sleeps; `writer.rs` turns a group of entries into frames and puts them on disk; `recovery.rs` opens a directory
//! after a crash; `scan.rs` walks the frames of a segment and tells a torn tail from damage; `format.rs` has every
//! byte.
//!
//! What a replica set's member needs besides: entries have terms, a tail can be taken back ([`Log::truncate`]), a hard
//! state is kept among the entries ([`Log::write_state`]), and what is only in memory can be read
//! ([`Log::read_appended`]).
//!
//! Invariants: `Seq`s rise by one without holes; what [`Log::wait_durable`] acknowledged is found again after any
//! crash; what is found after a crash is a prefix of what was appended and not taken back; after a failed write or sync
//! nothing is acknowledged any more.

mod buffer;
mod catalog;
mod disk;
mod error;
mod format;
mod limits;
mod log;
mod options;
mod pin;
mod position;
mod read_ahead;
mod reader;
mod recovery;
mod scan;
mod stats;
mod terms;
mod verify;
mod waiters;
mod writer;

pub use error::{Damage, LogError, Result};
pub use format::{HardState, layout_description};
pub use limits::{ENTRY_BYTES_MAX, SEGMENT_BYTES_MAX, SEGMENT_BYTES_MIN};
pub use log::{AppendPurpose, Log, ShortageHandler};
pub use options::{EngineAhead, FailureHandler, LogMode, LogOptions, Retention};
pub use pin::PinnedLog;
pub use read_ahead::ReadAhead;
pub use reader::LogReader;
pub use stats::LogStats;
pub use verify::{SegmentInfo, SegmentPart, SegmentReport, segment_files, segment_info, verify_segment, walk_segment};
