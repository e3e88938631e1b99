//! Estimates: RocksDB knows sizes of files, not of what lies in memtables, so ranges are counted or sampled.

use crate::error::rocks_error;
use crate::layout::PREFIX_BYTES;
use engine::{Result, SampledRange, Sampling};
use rocksdb::DBRawIterator;

/// A range of a table, by an iterator that is bounded to it.
pub(crate) struct RocksRange<'a> {
    /// What all stored keys of the table begin with.
    pub(crate) prefix: Vec<u8>,
    pub(crate) iterator: DBRawIterator<'a>,
}

impl SampledRange for RocksRange<'_> {
    fn scan(&mut self, from: &[u8], visit: &mut dyn FnMut(&[u8], usize) -> Sampling) -> Result<()> {
        // A target below the lower bound leads to the first row of the range.
        self.iterator.seek([&self.prefix[..], from].concat());
        while let Some((key, value)) = self.iterator.item() {
            if visit(&key[PREFIX_BYTES..], value.len()) == Sampling::Enough {
                break;
            }
            self.iterator.next();
        }
        self.iterator.status().map_err(rocks_error("estimate"))
    }

    fn last_key(&mut self) -> Result<Option<Vec<u8>>> {
        self.iterator.seek_to_last();
        let last = self.iterator.key().map(|key| key[PREFIX_BYTES..].to_vec());
        self.iterator.status().map_err(rocks_error("estimate"))?;
        Ok(last)
    }
}
