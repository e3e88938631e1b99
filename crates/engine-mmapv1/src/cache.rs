//! The page cache: what was read and may go, and what was changed and must stay until a checkpoint has written it.
//!
//! It knows pages by their names and nothing of their content. A page is changed in place when nobody else holds it,
//! and copied first when somebody does: so a checkpoint holds pages as they stood at its cut, while batches go on.
//!
//! Invariants: a dirty page, and one that a checkpoint is writing, is never evicted; so what is on disk under a page
//! that is not in the cache is its newest content.

use crate::files::{Page, PageBuf};
use crate::loc::{ALL_SECTORS, PAGE_BYTES, SECTOR_BYTES};
use engine::Result;
use hashbrown::HashMap;
use parking_lot::Mutex;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Enough that readers of different pages rarely meet.
const SHARDS: usize = 16;
/// Frames looked at for one that may go, before the cache grows instead.
const HAND_STEPS_MAX: usize = 64;
/// Memory of a frame beside its page.
const FRAME_BYTES: usize = 96;

/// A page of any database: the database above, the file and the page in it below.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct PageId(pub(crate) u64);

/// A page as it was at the cut of a checkpoint, and the sectors of it that changed.
pub(crate) struct CapturedPage {
    pub(crate) id: PageId,
    pub(crate) page: Page,
    pub(crate) sectors: u16,
}

pub(crate) struct Cache {
    shards: [Mutex<Shard>; SHARDS],
    /// Frames in each shard beyond which clean ones go.
    frames_max: usize,
    dirty: AtomicU64,
    frames: AtomicU64,
    pub(crate) reads: AtomicU64,
    pub(crate) evicted: AtomicU64,
}

#[derive(Default)]
struct Shard {
    index: HashMap<PageId, usize>,
    frames: Vec<Frame>,
    hand: usize,
    /// Pages that became dirty since the last capture; some may be gone.
    dirty: Vec<PageId>,
}

struct Frame {
    id: PageId,
    page: Page,
    /// Sectors that no checkpoint has written; 0 when clean.
    sectors: u16,
    /// A checkpoint is writing it.
    captured: bool,
    /// Used since the hand last came by.
    used: bool,
}

impl Cache {
    pub(crate) fn new(bytes: u64) -> Self {
        let frames = bytes as usize / (PAGE_BYTES + FRAME_BYTES);
        Self {
            shards: Default::default(),
            frames_max: (frames / SHARDS).max(8),
            dirty: AtomicU64::new(0),
            frames: AtomicU64::new(0),
            reads: AtomicU64::new(0),
            evicted: AtomicU64::new(0),
        }
    }

    /// The page, read by `load` when it is not there.
    pub(crate) fn read(&self, id: PageId, load: impl FnOnce() -> Result<Page>) -> Result<Page> {
        if let Some(page) = self.shard(id).lock().find(id) {
            return Ok(page);
        }
        let page = load()?;
        self.reads.fetch_add(1, Relaxed);
        let mut shard = self.shard(id).lock();
        // Somebody may have been faster, and have changed it since.
        if let Some(found) = shard.find(id) {
            return Ok(found);
        }
        shard.insert(self, id, Arc::clone(&page));
        Ok(page)
    }

    /// Changes a page that is there and takes `change` for it; `None` when it is not there. `touched` are the bytes
    /// that may change.
    pub(crate) fn modify<T, F: FnOnce(&mut PageBuf) -> T>(
        &self,
        id: PageId,
        touched: Range<usize>,
        change: &mut Option<F>,
    ) -> Option<T> {
        let mut shard = self.shard(id).lock();
        let at = shard.index.get(&id).copied()?;
        let change = change.take()?;
        shard.mark(self, at, sectors_of(touched));
        Some(change(Arc::make_mut(&mut shard.frames[at].page)))
    }

    /// Makes a page of zeros, whatever was there before, and fills it.
    pub(crate) fn create(&self, id: PageId, fill: impl FnOnce(&mut PageBuf)) {
        let mut page = Arc::new([0; PAGE_BYTES]);
        fill(Arc::get_mut(&mut page).expect("nobody else has it yet"));
        let mut shard = self.shard(id).lock();
        let at = match shard.index.get(&id).copied() {
            Some(at) => {
                shard.frames[at].page = page;
                at
            }
            None => shard.insert(self, id, page),
        };
        shard.mark(self, at, ALL_SECTORS);
    }

    /// Forgets a page that nobody owns any more, changes and all.
    pub(crate) fn forget(&self, id: PageId) {
        let mut shard = self.shard(id).lock();
        if let Some(at) = shard.index.get(&id).copied() {
            if shard.frames[at].sectors != 0 {
                self.dirty.fetch_sub(1, Relaxed);
            }
            shard.remove(self, at);
        }
    }

    /// All dirty pages, clean from now on, to be given back by [`Cache::written`] or [`Cache::not_written`]. Meanwhile
    /// only loads change pages, which belong to nobody yet.
    pub(crate) fn capture(&self) -> Vec<CapturedPage> {
        let mut captured = Vec::new();
        for shard in &self.shards {
            let mut shard = shard.lock();
            for id in std::mem::take(&mut shard.dirty) {
                let Some(at) = shard.index.get(&id).copied() else {
                    continue;
                };
                let frame = &mut shard.frames[at];
                if frame.sectors != 0 {
                    captured.push(CapturedPage {
                        id,
                        page: Arc::clone(&frame.page),
                        sectors: std::mem::take(&mut frame.sectors),
                    });
                    frame.captured = true;
                    self.dirty.fetch_sub(1, Relaxed);
                }
            }
        }
        captured
    }

    /// Captured pages are on disk: they may go.
    pub(crate) fn written(&self, ids: impl IntoIterator<Item = PageId>) {
        for id in ids {
            let mut shard = self.shard(id).lock();
            if let Some(at) = shard.index.get(&id).copied() {
                shard.frames[at].captured = false;
            }
        }
    }

    /// Captured pages did not get to the disk: they are as dirty as before.
    pub(crate) fn not_written(&self, captured: impl IntoIterator<Item = CapturedPage>) {
        for page in captured {
            let mut shard = self.shard(page.id).lock();
            if let Some(at) = shard.index.get(&page.id).copied() {
                shard.frames[at].captured = false;
                shard.mark(self, at, page.sectors);
            }
        }
    }

    /// Bytes of pages that no checkpoint has written.
    pub(crate) fn dirty_bytes(&self) -> u64 {
        self.dirty.load(Relaxed) * PAGE_BYTES as u64
    }

    /// Memory of all pages.
    pub(crate) fn bytes(&self) -> u64 {
        self.frames.load(Relaxed) * (PAGE_BYTES + FRAME_BYTES) as u64
    }

    fn shard(&self, id: PageId) -> &Mutex<Shard> {
        // Neighbours in a file go to different shards.
        &self.shards[(id.0 ^ id.0 >> 7) as usize % SHARDS]
    }
}

impl Shard {
    fn find(&mut self, id: PageId) -> Option<Page> {
        let at = *self.index.get(&id)?;
        let frame = &mut self.frames[at];
        frame.used = true;
        Some(Arc::clone(&frame.page))
    }

    fn mark(&mut self, cache: &Cache, at: usize, sectors: u16) {
        let frame = &mut self.frames[at];
        frame.used = true;
        if frame.sectors == 0 && sectors != 0 {
            cache.dirty.fetch_add(1, Relaxed);
            self.dirty.push(frame.id);
        }
        frame.sectors |= sectors;
    }

    /// Adds a clean page, after evicting where there are too many.
    fn insert(&mut self, cache: &Cache, id: PageId, page: Page) -> usize {
        for _ in 0..HAND_STEPS_MAX {
            if self.frames.len() < cache.frames_max {
                break;
            }
            self.hand = if self.hand >= self.frames.len() { 0 } else { self.hand };
            let frame = &mut self.frames[self.hand];
            if frame.sectors == 0 && !frame.captured && !std::mem::take(&mut frame.used) {
                // The last frame takes its place: the hand looks there next.
                self.remove(cache, self.hand);
                cache.evicted.fetch_add(1, Relaxed);
            } else {
                self.hand += 1;
            }
        }
        let at = self.frames.len();
        self.frames.push(Frame {
            id,
            page,
            sectors: 0,
            captured: false,
            used: true,
        });
        self.index.insert(id, at);
        cache.frames.fetch_add(1, Relaxed);
        at
    }

    fn remove(&mut self, cache: &Cache, at: usize) {
        let gone = self.frames.swap_remove(at);
        self.index.remove(&gone.id);
        if let Some(moved) = self.frames.get(at) {
            self.index.insert(moved.id, at);
        }
        cache.frames.fetch_sub(1, Relaxed);
    }
}

/// The sectors that some bytes lie in.
pub(crate) fn sectors_of(bytes: Range<usize>) -> u16 {
    if bytes.is_empty() {
        return 0;
    }
    let (first, last) = (bytes.start / SECTOR_BYTES, (bytes.end - 1) / SECTOR_BYTES);
    (ALL_SECTORS >> (15 - (last - first))) << first
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sectors_cover_their_bytes() {
        assert_eq!(sectors_of(0..1), 1);
        assert_eq!(sectors_of(511..513), 3);
        assert_eq!(sectors_of(8191..8192), 1 << 15);
        assert_eq!(sectors_of(0..8192), ALL_SECTORS);
        assert_eq!(sectors_of(600..600), 0);
    }

    fn load_none() -> Result<Page> {
        panic!("it should be there")
    }

    #[test]
    fn a_dirty_page_stays_and_a_clean_one_goes() {
        let cache = Cache::new(0);
        let max = cache.frames_max * SHARDS;
        cache.create(PageId(1), |page| page[0] = 9);
        for number in 100..100 + 20 * max as u64 {
            cache
                .read(PageId(number), || Ok(Arc::new([1; PAGE_BYTES])))
                .expect("loaded");
        }
        assert!(cache.bytes() <= (2 * max * (PAGE_BYTES + FRAME_BYTES)) as u64);
        assert_eq!(cache.read(PageId(1), load_none).expect("there")[0], 9);
        assert_eq!(cache.dirty_bytes(), PAGE_BYTES as u64);
    }

    #[test]
    fn a_captured_page_stands_still_and_can_be_given_back() {
        let cache = Cache::new(1 << 20);
        cache.create(PageId(1), |page| page[0] = 1);
        let captured = cache.capture();
        assert_eq!(
            (captured.len(), captured[0].sectors, cache.dirty_bytes()),
            (1, ALL_SECTORS, 0)
        );
        assert!(
            cache
                .modify(PageId(1), 0..1, &mut Some(|page: &mut PageBuf| page[0] = 2))
                .is_some()
        );
        assert_eq!(captured[0].page[0], 1);
        cache.not_written(captured);
        let again = cache.capture();
        assert_eq!((again.len(), again[0].sectors, again[0].page[0]), (1, ALL_SECTORS, 2));
        cache.written(again.iter().map(|page| page.id));
        assert!(cache.capture().is_empty());
        cache.forget(PageId(1));
        assert!(cache.modify(PageId(1), 0..1, &mut Some(|_: &mut PageBuf| ())).is_none());
    }
}
