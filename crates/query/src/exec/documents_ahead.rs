//! The documents of the next rows out of an index, read in the order in which they lie.
//!
//! What an index has side by side may lie anywhere in the collection: read row by row, a leaf that has several of the
//! documents is read, or decompressed, once for each. So the documents of rows that are certainly wanted are read some
//! at a time, in the order of their record ids, and then given in the order of the index (what others call list
//! prefetch, or multi-range read). The engine is told of all of them before, so that the disk reads several at once.
//!
//! How many are wanted is what [`Run::wanted`] tells; where that is one, or none is known to follow, each is read when
//! it comes.

use super::batch::{BATCH_BYTES_MAX, BATCH_ROWS_MAX};
use super::context::Run;
use super::row::Upcoming;
use crate::QueryError;
use crate::value::COPIED_BYTES;
use bytes::Bytes;
use std::collections::VecDeque;
use storage::RecordId;

/// Below these bytes a document that shares its memory shares it with little.
const SHARING_MIN: usize = 1024;

/// Those that are read and not given yet. They are of one view: [`DocumentsAhead::clear`] before another one.
#[derive(Default)]
pub(crate) struct DocumentsAhead {
    /// In the order in which their rows will come.
    rows: VecDeque<AheadRow>,
    /// What the documents of `rows` hold in memory.
    bytes: usize,
    /// Positions in `rows`, in the order of the records.
    order: Vec<usize>,
}

struct AheadRow {
    id: RecordId,
    document: Ahead,
}

#[derive(Clone)]
enum Ahead {
    /// There were too many bytes before it.
    NotRead,
    /// `None`: there is no such record.
    Read(Option<Bytes>),
}

impl AheadRow {
    /// What its document holds in memory: all of a page, where it is a part of one.
    fn bytes(&self) -> usize {
        match &self.document {
            Ahead::Read(Some(document)) if document.len() >= SHARING_MIN && !document.is_unique() => {
                document.len().max(COPIED_BYTES)
            }
            Ahead::Read(Some(document)) => document.len(),
            Ahead::Read(None) | Ahead::NotRead => 0,
        }
    }
}

impl DocumentsAhead {
    /// Forgets them.
    pub(crate) fn clear(&mut self) {
        self.rows.clear();
        self.bytes = 0;
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
        let mut ahead = self.take_row(id);
        // What is read and not given when the run yields is read in vain.
        let rows = wanted.min(run.rows_until_yield_check()).min(BATCH_ROWS_MAX as u64) as usize;
        if let (None, Some(upcoming), 2..) = (&ahead, upcoming, rows)
            && !upcoming.is_empty()
        {
            self.begin_group(run, id, upcoming, rows)?;
            ahead = self.take_row(id);
        }
        match ahead {
            Some(Ahead::Read(document)) => Ok(document),
            None => Ok(run.view.record(run.collection, id)?),
            Some(Ahead::NotRead) => {
                let document = run.view.record(run.collection, id)?;
                if self.bytes < BATCH_BYTES_MAX {
                    self.sort_unread();
                    self.read_sorted(run)?;
                }
                Ok(document)
            }
        }
    }

    /// Takes that of the row that has come, if it is there.
    fn take_row(&mut self, id: &RecordId) -> Option<Ahead> {
        // Rows in between were dropped on their way.
        while let Some(row) = self.rows.pop_front() {
            self.bytes = self.bytes.saturating_sub(row.bytes());
            if row.id == *id {
                return Some(row.document);
            }
        }
        self.bytes = 0;
        None
    }

    /// Reads the documents of the row that has come and of those behind it, `rows` in all at most.
    fn begin_group(
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
        self.sort_unread();
        let ids = self.order.iter().map(|place| &self.rows[*place].id);
        run.view.expect_records(run.collection, ids);
        self.read_sorted(run)
    }

    /// Puts those that are not read in the order of the records.
    fn sort_unread(&mut self) {
        let rows = self.rows.make_contiguous();
        let unread = |place: &usize| matches!(rows[*place].document, Ahead::NotRead);
        self.order.clear();
        self.order.extend((0..rows.len()).filter(unread));
        self.order.sort_unstable_by(|a, b| rows[*a].id.cmp(&rows[*b].id));
    }

    /// Reads them in that order, as long as all do not hold too much memory.
    fn read_sorted(&mut self, run: &Run<'_>) -> Result<(), QueryError> {
        let rows = &mut self.rows;
        let mut last = None::<usize>;
        for place in self.order.iter().copied() {
            if self.bytes >= BATCH_BYTES_MAX {
                break;
            }
            let document = match last.filter(|last| rows[*last].id == rows[place].id) {
                // It has several entries.
                Some(last) => rows[last].document.clone(),
                None => Ahead::Read(run.view.record(run.collection, &rows[place].id)?),
            };
            rows[place].document = document;
            self.bytes += rows[place].bytes();
            last = Some(place);
        }
        Ok(())
    }
}
