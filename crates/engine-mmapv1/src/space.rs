//! Which pages of a database's files belong to whom.
//!
//! An extent is a run of pages with one owner. What has no owner is free; free runs that touch are one. It knows no
//! pages' content and writes nothing: a checkpoint draws the owner maps from it ([`Space::owner_page`]).
//!
//! Invariant: in each file, extents and free runs together cover the data pages, each once.

use crate::files::{ENTRIES_PER_PAGE, PageBuf, first_data_page};
use crate::loc::{Loc, PAGE_BYTES};
use engine::TableId;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Whom an extent belongs to, as the owner map has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owner(u32);

impl Owner {
    /// Nobody any more, once no snapshot is left that reads it: on disk it is free already.
    pub(crate) const NOBODY: Owner = Owner(0);
    /// A load or a compaction that is under way: on disk it is free at the next start.
    pub(crate) const UNFINISHED: Owner = Owner(u32::MAX);

    pub(crate) fn table(id: TableId) -> Self {
        Self(id.0.wrapping_add(1))
    }

    /// The table, unless it is one of the above.
    pub(crate) fn as_table(self) -> Option<TableId> {
        (self != Self::NOBODY && self != Self::UNFINISHED).then(|| TableId(self.0.wrapping_sub(1)))
    }
}

/// A run of pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Extent {
    pub(crate) file: u16,
    pub(crate) start: u32,
    pub(crate) pages: u32,
}

impl Extent {
    pub(crate) fn bytes(self) -> u64 {
        u64::from(self.pages) * PAGE_BYTES as u64
    }

    /// The places of its pages.
    pub(crate) fn page_locs(self) -> impl Iterator<Item = Loc> {
        (self.start..self.start + self.pages).map(move |page| Loc::of_page(self.file, page))
    }
}

/// See the module.
#[derive(Default)]
pub(crate) struct Space {
    files: Vec<FileSpace>,
    /// Free runs by size, for best fit.
    by_size: BTreeSet<(u32, u16, u32)>,
    /// Pages of the owner maps that changed since a checkpoint drew them.
    changed: BTreeSet<(u16, u32)>,
}

struct FileSpace {
    pages: u32,
    extents: BTreeMap<u32, (u32, Owner)>,
    free: BTreeMap<u32, u32>,
}

impl Space {
    /// Adds a file in which all is free.
    pub(crate) fn add_file(&mut self, pages: u32) {
        let number = self.files.len() as u16;
        self.files.push(FileSpace {
            pages,
            extents: BTreeMap::new(),
            free: BTreeMap::new(),
        });
        let start = first_data_page(pages);
        self.add_free(number, start, pages - start);
        for map in 0..crate::files::map_pages(pages) {
            self.changed.insert((number, map));
        }
    }

    /// Adds a file as its owner map has it, and returns its extents.
    pub(crate) fn load_file(&mut self, pages: u32, owner_of: impl Fn(u32) -> u32) -> Vec<(Extent, Owner)> {
        let number = self.files.len() as u16;
        self.files.push(FileSpace {
            pages,
            extents: BTreeMap::new(),
            free: BTreeMap::new(),
        });
        let mut found = Vec::new();
        let mut start = first_data_page(pages);
        while start < pages {
            let owner = owner_of(start);
            let run = (start..pages).take_while(|&page| owner_of(page) == owner).count() as u32;
            match Owner(owner) {
                Owner::NOBODY | Owner::UNFINISHED => self.add_free(number, start, run),
                owner => {
                    self.files[usize::from(number)].extents.insert(start, (run, owner));
                    found.push((
                        Extent {
                            file: number,
                            start,
                            pages: run,
                        },
                        owner,
                    ));
                }
            }
            start += run;
        }
        found
    }

    /// A run of `wanted` pages, or of fewer but at least `least`; `None` when a file is to be added.
    pub(crate) fn allocate(&mut self, wanted: u32, least: u32, owner: Owner) -> Option<Extent> {
        let fitting = self.by_size.range((wanted, 0, 0)..).next().copied();
        let (run, file, start) = fitting.or_else(|| self.by_size.last().copied().filter(|run| run.0 >= least))?;
        let pages = run.min(wanted);
        self.take_free(file, start);
        if run > pages {
            self.add_free(file, start + pages, run - pages);
        }
        let extent = Extent { file, start, pages };
        self.files[usize::from(file)].extents.insert(start, (pages, owner));
        self.touch(extent);
        Some(extent)
    }

    /// Gives an extent to somebody else.
    pub(crate) fn set_owner(&mut self, extent: Extent, owner: Owner) {
        let held = self.files[usize::from(extent.file)]
            .extents
            .insert(extent.start, (extent.pages, owner));
        debug_assert!(
            held.is_some_and(|held| held.0 == extent.pages),
            "{extent:?} is {held:?}"
        );
        self.touch(extent);
    }

    /// Takes an extent back.
    pub(crate) fn free(&mut self, extent: Extent) {
        let held = self.files[usize::from(extent.file)].extents.remove(&extent.start);
        debug_assert!(
            held.is_some_and(|held| held.0 == extent.pages),
            "{extent:?} is {held:?}"
        );
        self.touch(extent);
        let file = &self.files[usize::from(extent.file)];
        let (mut start, mut pages) = (extent.start, extent.pages);
        let before = file
            .free
            .range(..start)
            .next_back()
            .map(|(&start, &pages)| (start, pages));
        let behind = file.free.get(&(start + pages)).copied();
        if let Some((before, length)) = before.filter(|(before, length)| before + length == start) {
            self.take_free(extent.file, before);
            (start, pages) = (before, pages + length);
        }
        if let Some(length) = behind {
            self.take_free(extent.file, extent.start + extent.pages);
            pages += length;
        }
        self.add_free(extent.file, start, pages);
    }

    /// Forgets the last file if all of it is free, but never the first one.
    pub(crate) fn pop_free_file(&mut self) -> bool {
        let number = self.files.len().saturating_sub(1);
        if number == 0 || !self.files[number].extents.is_empty() {
            return false;
        }
        let free: Vec<u32> = self.files[number].free.keys().copied().collect();
        free.into_iter().for_each(|start| self.take_free(number as u16, start));
        self.files.pop();
        self.changed.retain(|&(file, _)| usize::from(file) != number);
        true
    }

    /// The pages of the owner maps that changed since the last call.
    pub(crate) fn take_changed(&mut self) -> BTreeSet<(u16, u32)> {
        std::mem::take(&mut self.changed)
    }

    /// Takes back what [`Space::take_changed`] gave, of files that are still there.
    pub(crate) fn restore_changed(&mut self, changed: impl IntoIterator<Item = (u16, u32)>) {
        let files = self.files.len();
        self.changed
            .extend(changed.into_iter().filter(|change| usize::from(change.0) < files));
    }

    /// A page of a file's owner map as it is now.
    pub(crate) fn owner_page(&self, file: u16, map: u32) -> Arc<PageBuf> {
        let mut page = [0; PAGE_BYTES];
        let (first, last) = (map * ENTRIES_PER_PAGE, (map + 1) * ENTRIES_PER_PAGE);
        let extents = &self.files[usize::from(file)].extents;
        // The last extent that begins before this page may reach into it.
        let from = extents.range(..=first).next_back().map_or(first, |(&start, _)| start);
        for (&start, &(pages, owner)) in extents.range(from..last) {
            for entry in start.max(first)..(start + pages).min(last) {
                crate::bytes_at::put(&mut page, (entry - first) as usize * 4, &owner.0.to_le_bytes());
            }
        }
        Arc::new(page)
    }

    /// Number of files, and number and pages of free runs.
    pub(crate) fn free_totals(&self) -> (usize, usize, u64) {
        let pages = self.by_size.iter().map(|run| u64::from(run.0)).sum();
        (self.files.len(), self.by_size.len(), pages)
    }

    /// Pages of the longest free run.
    pub(crate) fn largest_free_run(&self) -> u32 {
        self.by_size.last().map_or(0, |run| run.0)
    }

    /// Whether no extent is left.
    pub(crate) fn is_all_free(&self) -> bool {
        self.files.iter().all(|file| file.extents.is_empty())
    }

    /// The extents of an owner that nobody knows of, or what breaks the module's invariant.
    pub(crate) fn check(&self) -> Result<(), String> {
        for (number, file) in self.files.iter().enumerate() {
            let runs = file.free.iter().map(|(&start, &pages)| (start, pages));
            let mut all: Vec<_> = runs
                .chain(file.extents.iter().map(|(&start, &(pages, _))| (start, pages)))
                .collect();
            all.sort_unstable();
            let mut expected = first_data_page(file.pages);
            for (start, pages) in all {
                if start != expected {
                    return Err(format!("file {number}: a run begins at page {start}, not {expected}"));
                }
                expected = start + pages;
            }
            if expected != file.pages {
                return Err(format!(
                    "file {number}: the runs end at page {expected} of {}",
                    file.pages
                ));
            }
        }
        Ok(())
    }

    fn touch(&mut self, extent: Extent) {
        let last = (extent.start + extent.pages - 1) / ENTRIES_PER_PAGE;
        for map in extent.start / ENTRIES_PER_PAGE..=last {
            self.changed.insert((extent.file, map));
        }
    }

    fn add_free(&mut self, file: u16, start: u32, pages: u32) {
        if pages > 0 {
            self.files[usize::from(file)].free.insert(start, pages);
            self.by_size.insert((pages, file, start));
        }
    }

    fn take_free(&mut self, file: u16, start: u32) {
        if let Some(pages) = self.files[usize::from(file)].free.remove(&start) {
            self.by_size.remove(&(pages, file, start));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_split_joined_and_given_back() {
        let mut space = Space::default();
        space.add_file(16);
        let owner = Owner::table(TableId(4));
        let all: Vec<_> = (0..4)
            .map(|_| space.allocate(3, 1, owner).expect("room for four"))
            .collect();
        assert_eq!(space.allocate(3, 2, owner), None, "one page is left");
        assert_eq!(space.allocate(3, 1, owner).map(|extent| extent.pages), Some(1));
        space.free(all[0]);
        space.free(all[2]);
        assert_eq!(space.free_totals(), (1, 2, 6));
        space.free(all[1]);
        assert_eq!(space.free_totals(), (1, 1, 9));
        space.check().expect("covered");
        let page = space.owner_page(0, 0);
        let owner_of = |page_number: u32| crate::bytes_at::u32_at(&page[..], page_number as usize * 4).expect("inside");
        assert_eq!((owner_of(3), owner_of(12), owner_of(15)), (0, 5, 5));
        let mut again = Space::default();
        let extents = again.load_file(16, owner_of);
        assert_eq!(extents.iter().map(|found| found.0.pages).sum::<u32>(), 4);
        assert_eq!(again.free_totals(), (1, 1, 9));
        again.check().expect("covered");
    }

    #[test]
    fn an_owner_is_a_table_or_none() {
        assert_eq!(Owner::table(TableId(0)).as_table(), Some(TableId(0)));
        assert_eq!(Owner::NOBODY.as_table(), None);
        assert_eq!(Owner::UNFINISHED.as_table(), None);
    }
}
