//! The tables of the engine, by id.
//!
//! A table lives from the `Seq` that made it to the one that dropped it; snapshots in between see it, whatever happened
//! later. Looking one up takes no latch: ids fall into pages of 256 cells each, and the map of pages is replaced as a
//! whole.

use crate::tree::Tree;
use engine::{Seq, TableId, TableKind, TableSpec};
use rcu::{Guard, Mutex, Rcu, RcuOption};
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const PAGE_BITS: u32 = 8;

/// A table.
pub(crate) struct Table {
    pub(crate) id: TableId,
    pub(crate) kind: TableKind,
    /// Its specification names the compressor that the tree has.
    names_codec: bool,
    /// As in the specification.
    pub(crate) name: Box<str>,
    pub(crate) tree: Arc<Tree>,
    pub(crate) created: Seq,
    dropped: AtomicU64,
    /// In the list of tables that the next checkpoint has to look at.
    pub(crate) listed: AtomicBool,
}

impl Table {
    /// A table of this specification, which the tree's shape follows.
    pub(crate) fn new(spec: &TableSpec, tree: Arc<Tree>, created: Seq) -> Self {
        Self {
            id: tree.id,
            kind: spec.kind,
            names_codec: spec.compressor.is_some(),
            name: spec.name.as_str().into(),
            tree,
            created,
            dropped: AtomicU64::new(u64::MAX),
            listed: AtomicBool::new(false),
        }
    }

    /// The compressor, if its specification names one.
    pub(crate) fn compressor(&self) -> Option<&'static str> {
        self.names_codec.then(|| self.tree.shape.codec.name())
    }

    /// What it was made of. It is put together: there may be a hundred thousand tables, and few who ask.
    pub(crate) fn spec(&self) -> TableSpec {
        TableSpec {
            kind: self.kind,
            name: self.name.as_ref().to_owned(),
            compressor: self.compressor().map(ToOwned::to_owned),
        }
    }

    /// The position that dropped it; the end of time while it lives.
    pub(crate) fn dropped(&self) -> Seq {
        Seq(self.dropped.load(Ordering::Acquire))
    }

    pub(crate) fn set_dropped(&self, seq: Seq) {
        self.dropped.store(seq.0, Ordering::Release);
    }

    /// Whether a snapshot at `at` sees it.
    pub(crate) fn lives_at(&self, at: Seq) -> bool {
        self.created <= at && at < self.dropped()
    }
}

/// Ids are small numbers: one multiplication spreads them (Fibonacci hashing; Knuth, TAOCP 3, 6.4).
#[derive(Default)]
pub(crate) struct IdHasher(u64);

impl Hasher for IdHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u32(u32::from(byte));
        }
    }

    fn write_u32(&mut self, number: u32) {
        self.0 = (self.0 ^ u64::from(number)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        self.0 ^= self.0 >> 32;
    }
}

type IdPages = HashMap<u32, Arc<IdPage>, BuildHasherDefault<IdHasher>>;

struct IdPage {
    cells: Box<[RcuOption<Arc<Table>>]>,
}

/// See the module.
pub(crate) struct Tables {
    pages: Rcu<IdPages>,
    writer: Mutex<()>,
}

impl Default for Tables {
    fn default() -> Self {
        Self {
            pages: Rcu::new(IdPages::default()),
            writer: Mutex::new(()),
        }
    }
}

impl Tables {
    /// The table of an id, dropped or not.
    #[inline]
    pub(crate) fn get<'g>(&self, id: TableId, guard: &'g Guard) -> Option<&'g Arc<Table>> {
        let page = self.pages.load(guard).get(&(id.0 >> PAGE_BITS))?;
        page.cells[(id.0 & ((1 << PAGE_BITS) - 1)) as usize].load(guard)
    }

    /// Puts a table in, in the place of a former one.
    pub(crate) fn put(&self, table: Arc<Table>) {
        let _writer = self.writer.lock();
        let guard = rcu::pin();
        let (page, cell) = (table.id.0 >> PAGE_BITS, (table.id.0 & ((1 << PAGE_BITS) - 1)) as usize);
        let pages = self.pages.load(&guard);
        if let Some(page) = pages.get(&page) {
            page.cells[cell].replace(Some(table), &guard);
            return;
        }
        let cells: Box<[_]> = (0..1 << PAGE_BITS).map(|_| RcuOption::none()).collect();
        cells[cell].replace(Some(table), &guard);
        let mut pages = pages.clone();
        pages.insert(page, Arc::new(IdPage { cells }));
        self.pages.replace(pages, &guard);
    }

    /// Forgets a table.
    pub(crate) fn remove(&self, id: TableId) {
        let _writer = self.writer.lock();
        let guard = rcu::pin();
        if let Some(page) = self.pages.load(&guard).get(&(id.0 >> PAGE_BITS)) {
            page.cells[(id.0 & ((1 << PAGE_BITS) - 1)) as usize].replace(None, &guard);
        }
    }

    /// The lowest id of a table above `id`, if any.
    pub(crate) fn id_after(&self, id: Option<TableId>) -> Option<TableId> {
        let guard = rcu::pin();
        let pages = self.pages.load(&guard);
        let from = id.map_or(0, |id| id.0.saturating_add(1));
        let mut page = from >> PAGE_BITS;
        loop {
            let cells = pages.get(&page).into_iter().flat_map(|page| page.cells.iter());
            let mut tables = cells.filter_map(|cell| cell.load(&guard));
            if let Some(table) = tables.find(|table| table.id.0 >= from) {
                return Some(table.id);
            }
            page = pages.keys().copied().filter(|&next| next > page).min()?;
        }
    }

    /// All tables, dropped ones that somebody may read included, by id.
    pub(crate) fn all(&self) -> Vec<Arc<Table>> {
        let guard = rcu::pin();
        let pages = self.pages.load(&guard);
        let mut numbers: Vec<u32> = pages.keys().copied().collect();
        numbers.sort_unstable();
        let cells = numbers.iter().flat_map(|number| pages[number].cells.iter());
        cells.filter_map(|cell| cell.load(&guard).cloned()).collect()
    }
}
