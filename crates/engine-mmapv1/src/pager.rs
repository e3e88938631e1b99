//! The pages of one database, for code that works on one table.

use crate::cache::Cache;
use crate::database::Database;
use crate::files::{Page, PageBuf};
use crate::loc::Loc;
use crate::options::Allocation;
use crate::space::Owner;
use engine::{EngineError, Result};
use std::ops::Range;

/// What a table's code needs to get at pages.
#[derive(Clone, Copy)]
pub(crate) struct Pager<'a> {
    pub(crate) cache: &'a Cache,
    pub(crate) database: &'a Database,
    /// Who gets new extents.
    pub(crate) owner: Owner,
    pub(crate) allocation: Allocation,
}

impl Pager<'_> {
    /// The page a place lies in.
    #[inline]
    pub(crate) fn read(&self, at: Loc) -> Result<Page> {
        let id = self.database.page_id(at)?;
        self.cache.read(id, || self.database.read_page(at))
    }

    /// Changes the page a place lies in; `touched` are the bytes of it that may change.
    pub(crate) fn modify<T>(
        &self,
        at: Loc,
        touched: Range<usize>,
        change: impl FnOnce(&mut PageBuf) -> T,
    ) -> Result<T> {
        let id = self.database.page_id(at)?;
        let mut change = Some(change);
        loop {
            if let Some(done) = self.cache.modify(id, touched.clone(), &mut change) {
                return Ok(done);
            }
            // It may be evicted again before it is changed: then once more.
            self.read(at)?;
        }
    }

    /// Makes a page of zeros and fills it.
    pub(crate) fn create(&self, at: Loc, fill: impl FnOnce(&mut PageBuf)) -> Result<()> {
        self.cache.create(self.database.page_id(at)?, fill);
        Ok(())
    }

    pub(crate) fn corrupt(&self, at: Loc, reason: impl Into<String>) -> EngineError {
        self.database.corrupt(at, reason)
    }
}
