//! The checkpoint file: all tables as of one `Seq`.
//!
//! A checkpoint is written from a snapshot beside ongoing writes, under a temporary name; it is synced, renamed to
//! `checkpoint-SEQ.inmemory`, and the directory is synced; only then the one before it goes. So at every moment of a
//! crash the newest file of a final name is whole. A damaged one is an error, never skipped: an older file would
//! silently take back writes where there is no log to bring them again. `docs/formats/inmemory-checkpoint.md` has the
//! bytes.

mod format;
mod reader;
mod writer;

pub(crate) use format::FORMAT_VERSION;
pub(crate) use reader::load_newest;
pub(crate) use writer::{Failure, remove_all_but, settle, write};

use engine::{EngineError, Seq};
use std::path::{Path, PathBuf};

/// Name of a file that is being written.
const TEMPORARY_NAME: &str = "checkpoint.tmp";

/// Name of the checkpoint at `seq`.
pub(crate) fn file_name(seq: Seq) -> PathBuf {
    PathBuf::from(format!("checkpoint-{:016x}.inmemory", seq.0))
}

/// The position a file name stands for, `None` where it is no checkpoint's.
fn seq_of_name(name: &Path) -> Option<Seq> {
    let digits = name.to_str()?.strip_prefix("checkpoint-")?.strip_suffix(".inmemory")?;
    let seq = Seq(u64::from_str_radix(digits, 16).ok()?);
    (file_name(seq) == name).then_some(seq)
}

fn io_error<'a>(operation: &'static str, path: &'a Path) -> impl Fn(std::io::Error) -> EngineError + 'a {
    move |source| EngineError::Io {
        operation,
        path: path.to_owned(),
        source,
    }
}
