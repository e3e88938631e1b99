//! The durable mark: a row of its own in each batch.

use crate::error::rocks_error;
use crate::layout::MARK_KEY;
use engine::{EngineError, Result, Seq};
use rocksdb::{DB, ReadOptions};

/// The position of the last batch, as `options` see it.
pub(crate) fn read_mark(db: &DB, options: &ReadOptions) -> Result<Seq> {
    match db.get_opt(MARK_KEY, options).map_err(rocks_error("read the mark"))? {
        None => Ok(Seq::ZERO),
        Some(mark) => match mark[..].try_into() {
            Ok(mark) => Ok(Seq(u64::from_le_bytes(mark))),
            Err(_) => Err(corrupt(db, format!("the durable mark has {} bytes, not 8", mark.len()))),
        },
    }
}

/// What is in the database cannot be.
pub(crate) fn corrupt(db: &DB, reason: String) -> EngineError {
    EngineError::Corrupt {
        path: db.path().to_owned(),
        offset: 0,
        reason,
    }
}
