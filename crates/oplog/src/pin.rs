//! Pinned segments, for copying them while the log goes on.
//!
//! Invariant: a pinned segment is sealed: everything in it is durable, and nothing is written to it any more.

use crate::catalog::Segment;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Segments that stay as they are until this is dropped, see [`crate::Log::pin`]: nothing is written to them any more,
/// and no purge takes them or what comes behind them.
pub struct PinnedLog {
    segments: Vec<Arc<Segment>>,
}

impl PinnedLog {
    /// Takes over segments whose pins have been counted.
    pub(crate) fn new(segments: Vec<Arc<Segment>>) -> Self {
        Self { segments }
    }

    /// The files, in the order of their entries, each with its length. A directory that holds copies of these, whole,
    /// and no other segment is a log that ends with their last entry.
    pub fn files(&self) -> Vec<(PathBuf, u64)> {
        let file = |segment: &Arc<Segment>| (segment.path.clone(), segment.header.file_bytes);
        self.segments.iter().map(file).collect()
    }
}

impl Drop for PinnedLog {
    fn drop(&mut self) {
        for segment in &self.segments {
            segment.pins.fetch_sub(1, Ordering::Release);
        }
    }
}
