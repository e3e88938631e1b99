//! The documents of the next rows out of an index, read in the order in which they lie.
//!
//! What an index has side by side may lie anywhere in the collection: read row by row, a leaf that has several of the
//! documents is read, or decompressed, once for each. So the documents of rows that are certainly wanted are read some
//! at a time, in the order of their record ids, and then given in the order of the index (what others call list
//! prefetch, or multi-range read). The engine is told of all of them before, so that the disk reads several at once. How
//! many are wanted is what [`Run::wanted`] tells; where that is one, or none is known to follow, each is read when it
//! comes.

use super::context::Run;
use super::row::Upcoming;
use super::scan::{BATCH_BYTES_MAX, BATCH_ROWS_MAX};
use crate::QueryError;
use crate::value::COPIED_BYTES;
use bytes::Bytes;
use std::collections::VecDeque;
use storage::RecordId;

/// Those that are read and not given yet. They are of one view: [`DocumentsAhead::clear`] before another one.
pub(crate) struct DocumentsAhead {
    /// In the order in which their rows will come.
    rows: VecDeque<AheadRow>,
    /// Rows of the next group: fewer where they are large.
    rows_max: usize,
    /// Positions in `rows`, in the order of the records.
    order: Vec<usize>,
}

struct AheadRow {
    id: RecordId,
    document: Ahead,
}

#[derive(Clone)]
enum Ahead {
    /// The group had too many bytes before it.
    NotRead,
    /// `None`: there is no such record.
    Read(Option<Bytes>),
}

/// What a document holds in memory: all of a page, where it is a part of one.
fn held_bytes(document: &Bytes) -> usize {
    match document.is_unique() {
        true => document.len(),
        false => document.len().max(COPIED_BYTES),
    }
}

impl Default for DocumentsAhead {
    fn default() -> Self {
        Self {
            rows: VecDeque::new(),
            rows_max: BATCH_ROWS_MAX,
            order: Vec::new(),
        }
    }
}

impl DocumentsAhead {
    /// Forgets them.
    pub(crate) fn clear(&mut self) {
        self.rows.clear();
    }

    /// The document of the row that has come, `None` where there is no such record. `wanted` rows with documents are
    /// wanted, this one among them.
    pub(crate) fn take(
        &mut self,
        run: &Run<'_>,
        id: &RecordId,
        upcoming: Option<Upcoming<'_>>,
        wanted: u64,
    ) -> Result<Option<Bytes>, QueryError> {
        if let Some(Ahead::Read(document)) = self.take_row(id) {
            return Ok(document);
        }
        // What is read and not given when the run yields is read in vain.
        let rows = wanted.min(run.rows_until_yield_check()).min(self.rows_max as u64) as usize;
        if let Some(upcoming) = upcoming.filter(|upcoming| rows > 1 && !upcoming.is_empty()) {
            // Those that an earlier group has left out are in this one.
            self.rows.clear();
            self.read_group(run, id, upcoming, rows)?;
            if let Some(Ahead::Read(document)) = self.take_row(id) {
                return Ok(document);
            }
        }
        self.rows_max = (self.rows_max * 2).min(BATCH_ROWS_MAX);
        Ok(run.view.record(run.collection, id)?)
    }

    /// Takes that of the row that has come, if it is there.
    fn take_row(&mut self, id: &RecordId) -> Option<Ahead> {
        // Rows in between were dropped on their way.
        while let Some(row) = self.rows.pop_front() {
            if row.id == *id {
                return Some(row.document);
            }
        }
        None
    }

    /// Reads the documents of the row that has come and of those behind it, `rows` in all at most.
    fn read_group(
        &mut self,
        run: &Run<'_>,
        id: &RecordId,
        upcoming: Upcoming<'_>,
        rows: usize,
    ) -> Result<(), QueryError> {
        let ids = std::iter::once(id.clone()).chain(upcoming.ids());
        self.rows.extend(ids.take(rows).map(|id| AheadRow {
            id,
            document: Ahead::NotRead,
        }));
        let rows = self.rows.make_contiguous();
        self.order.clear();
        self.order.extend(0..rows.len());
        self.order.sort_unstable_by(|a, b| rows[*a].id.cmp(&rows[*b].id));
        run.view
            .expect_records(run.collection, self.order.iter().map(|place| &rows[*place].id));
        let (mut read, mut bytes, mut last) = (0, 0, None::<usize>);
        for place in self.order.iter().copied() {
            if bytes >= BATCH_BYTES_MAX {
                break;
            }
            if let Some(last) = last.filter(|last| rows[*last].id == rows[place].id) {
                // It has several entries.
                rows[place].document = rows[last].document.clone();
                continue;
            }
            let document = run.view.record(run.collection, &rows[place].id)?;
            bytes += document.as_ref().map_or(0, held_bytes);
            read += 1;
            rows[place].document = Ahead::Read(document);
            last = Some(place);
        }
        self.rows_max = match bytes >= BATCH_BYTES_MAX {
            true => read,
            false => (self.rows_max * 2).min(BATCH_ROWS_MAX),
        };
        Ok(())
    }
}
