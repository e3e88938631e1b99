//! A copy by rows, between any two engines: some tables at a time, each over a connection of its own.

use super::Members;
use super::fetch::{Exchange, Fetcher};
use bson::raw::{RawDocument, RawDocumentBuf};
use commands::{CopyRows, ask, read_copy_rows};
use engine::TableId;
use std::sync::Arc;
use storage::{CloneRows, CloneRowsSource, FillOptions};

/// Tables at a time, where there are as many processors.
const THREADS_MAX: usize = 4;
/// Data between two points from which a copy that was cut short goes on.
const GROUP_BYTES: u64 = 1 << 30;

/// How the engine is filled.
pub fn fill_options(is_arbiter: bool) -> FillOptions {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    FillOptions {
        is_arbiter,
        threads: processors.min(THREADS_MAX),
        group_bytes: GROUP_BYTES,
    }
}

/// The tables of one copy.
pub struct TablesOf {
    pub members: Arc<Members>,
    pub host: String,
    pub copy: i64,
}

impl CloneRowsSource for TablesOf {
    fn open(&self) -> Result<Box<dyn CloneRows + '_>, String> {
        let fetcher = Fetcher::start(&self.members, &self.host, RowsOf(self.copy))?;
        Ok(Box::new(FetchedRows {
            members: &self.members,
            fetcher,
            table: None,
        }))
    }
}

/// Rows of a table behind a key.
struct RowsOf(i64);

impl Exchange for RowsOf {
    type Question = (TableId, Option<Vec<u8>>);
    type Answer = CopyRows;

    fn ask(&self, (table, after): &Self::Question) -> RawDocumentBuf {
        ask::rows(self.0, table.0, after.as_deref())
    }

    fn read(&self, reply: &RawDocument) -> Result<CopyRows, String> {
        read_copy_rows(reply)
    }
}

/// Rows as the source sends them, counted.
struct FetchedRows<'m> {
    members: &'m Members,
    fetcher: Fetcher<RowsOf>,
    /// The one being copied.
    table: Option<TableId>,
}

impl CloneRows for FetchedRows<'_> {
    fn next(&mut self, table: TableId, after: Option<&[u8]>, rows: &mut CopyRows) -> Result<(), String> {
        let question = (table, after.map(<[u8]>::to_vec));
        let behind = |found: &CopyRows| found.last().map(|(last, _)| (table, Some(last.clone())));
        let mut found = self.fetcher.fetch(question, behind)?;
        let is_begun = self.table.replace(table) != Some(table);
        self.members.note_copied(|progress| {
            progress.tables.0 += u64::from(is_begun);
            progress.rows += found.len() as u64;
            let sizes = found.iter().map(|(key, value)| (key.len() + value.len()) as u64);
            progress.bytes += sizes.sum::<u64>();
        });
        rows.append(&mut found);
        Ok(())
    }
}
