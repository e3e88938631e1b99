//! The namespace file of a database: one entry for each of its tables.
//!
//! The file is a header page and pages of 16 slots; an entry takes as many slots side by side in one page as it
//! needs, mostly one. All of it is kept in memory, as small as it is. A checkpoint writes the pages that changed;
//! their checksums are in the root.

use crate::bytes_at::{put, u16_at, u32_at};
use crate::files::{Page, PageBuf};
use crate::loc::PAGE_BYTES;
use crate::store::{STORE_BYTES, Store};
use engine::{TableId, TableKind, TableSpec};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub(crate) const SLOT_BYTES: usize = 512;
const SLOTS_PER_PAGE: usize = PAGE_BYTES / SLOT_BYTES;
const ENTRY_HEADER_BYTES: usize = 16;
/// In the place of a compressor's length: none is named.
const NO_COMPRESSOR: u8 = u8::MAX;

/// See the module.
#[derive(Default)]
pub(crate) struct Namespaces {
    pages: Vec<Page>,
    /// Slots of each page that are taken.
    taken: Vec<u16>,
    entries: BTreeMap<TableId, Place>,
    /// Pages that changed since a checkpoint took them.
    changed: BTreeSet<u32>,
    /// Before this page all slots are taken, or nearly so.
    first_open: usize,
    slots_used: usize,
}

/// A table as its entry has it.
pub(crate) type Entry = (TableId, TableSpec, Store);

#[derive(Clone, Copy)]
struct Place {
    page: usize,
    slot: usize,
    slots: usize,
}

impl Place {
    fn mask(self) -> u16 {
        (u16::MAX >> (SLOTS_PER_PAGE - self.slots)) << self.slot
    }

    fn bytes(self) -> std::ops::Range<usize> {
        self.slot * SLOT_BYTES..(self.slot + self.slots) * SLOT_BYTES
    }
}

/// Slots that a table's entry takes; `None` when its name is too long for any.
pub(crate) fn slots_for(spec: &TableSpec) -> Option<usize> {
    let compressor = spec.compressor.as_ref().map_or(0, String::len);
    let bytes = ENTRY_HEADER_BYTES + STORE_BYTES + spec.name.len() + compressor;
    (bytes <= PAGE_BYTES && compressor < NO_COMPRESSOR.into()).then(|| bytes.div_ceil(SLOT_BYTES))
}

impl Namespaces {
    /// Of the pages of a file; `None` for a page that cannot be.
    pub(crate) fn load(pages: Vec<Page>) -> Option<(Self, Vec<Entry>)> {
        let mut namespaces = Self::default();
        let mut found = Vec::new();
        for (number, page) in pages.iter().enumerate() {
            let (mut slot, mut taken) = (0, 0);
            while slot < SLOTS_PER_PAGE {
                let entry = page.get(slot * SLOT_BYTES..)?;
                let slots = usize::from(u16_at(entry, 0)?);
                if slots == 0 {
                    slot += 1;
                    continue;
                }
                let place = (slot + slots <= SLOTS_PER_PAGE).then_some(Place {
                    page: number,
                    slot,
                    slots,
                })?;
                let table = decode(&page[place.bytes()])?;
                taken |= place.mask();
                namespaces.entries.insert(table.0, place);
                namespaces.slots_used += slots;
                found.push(table);
                slot += slots;
            }
            namespaces.taken.push(taken);
        }
        namespaces.pages = pages;
        Some((namespaces, found))
    }

    /// Makes an entry for a table.
    pub(crate) fn add(&mut self, id: TableId, spec: &TableSpec, slots: usize) {
        let fits = |taken: u16, slot: usize| {
            let place = Place { page: 0, slot, slots };
            slot + slots <= SLOTS_PER_PAGE && taken & place.mask() == 0
        };
        let mut page = self.first_open;
        let slot = loop {
            if page == self.pages.len() {
                self.pages.push(Arc::new([0; PAGE_BYTES]));
                self.taken.push(0);
            }
            match (0..SLOTS_PER_PAGE).find(|&slot| fits(self.taken[page], slot)) {
                Some(slot) => break slot,
                None => page += 1,
            }
        };
        let place = Place { page, slot, slots };
        self.taken[page] |= place.mask();
        if slots == 1 {
            self.first_open = page;
        }
        self.slots_used += slots;
        self.entries.insert(id, place);
        self.write(id, spec, &Store::default());
    }

    /// Writes a table's entry anew.
    pub(crate) fn write(&mut self, id: TableId, spec: &TableSpec, store: &Store) {
        if let Some(place) = self.entries.get(&id).copied() {
            encode(
                &mut self.page_mut(place.page)[place.bytes()],
                id,
                spec,
                store,
                place.slots,
            );
        }
    }

    pub(crate) fn remove(&mut self, id: TableId) {
        if let Some(place) = self.entries.remove(&id) {
            self.taken[place.page] &= !place.mask();
            self.slots_used -= place.slots;
            self.first_open = self.first_open.min(place.page);
            self.page_mut(place.page)[place.bytes()].fill(0);
        }
    }

    /// Bytes of the entries.
    pub(crate) fn used_bytes(&self) -> u64 {
        (self.slots_used * SLOT_BYTES) as u64
    }

    pub(crate) fn page_count(&self) -> usize {
        self.pages.len()
    }

    /// The pages that changed since the last call, or all.
    pub(crate) fn take_changed(&mut self, all: bool) -> Vec<(u32, Page)> {
        if all {
            self.changed.extend(0..self.pages.len() as u32);
        }
        let changed = std::mem::take(&mut self.changed);
        changed
            .into_iter()
            .map(|page| (page, Arc::clone(&self.pages[page as usize])))
            .collect()
    }

    /// Takes back what [`Namespaces::take_changed`] gave.
    pub(crate) fn restore_changed(&mut self, pages: impl IntoIterator<Item = u32>) {
        self.changed.extend(pages);
    }

    fn page_mut(&mut self, page: usize) -> &mut PageBuf {
        self.changed.insert(page as u32);
        Arc::make_mut(&mut self.pages[page])
    }
}

/// Layout: slots (2), name's length (2), table (4), kind (1), compressor's length (1), 6 unused, the store, name,
/// compressor.
fn encode(bytes: &mut [u8], id: TableId, spec: &TableSpec, store: &Store, slots: usize) {
    bytes.fill(0);
    let compressor = spec.compressor.as_deref();
    put(bytes, 0, &(slots as u16).to_le_bytes());
    put(bytes, 2, &(spec.name.len() as u16).to_le_bytes());
    put(bytes, 4, &id.0.to_le_bytes());
    bytes[8] = match spec.kind {
        TableKind::Records => 1,
        TableKind::Index => 2,
        TableKind::Small => 3,
        TableKind::Clustered => 4,
    };
    bytes[9] = compressor.map_or(NO_COMPRESSOR, |name| name.len() as u8);
    put(bytes, ENTRY_HEADER_BYTES, &store.encode());
    let name_at = ENTRY_HEADER_BYTES + STORE_BYTES;
    put(bytes, name_at, spec.name.as_bytes());
    put(bytes, name_at + spec.name.len(), compressor.unwrap_or("").as_bytes());
}

fn decode(bytes: &[u8]) -> Option<Entry> {
    let kind = match bytes[8] {
        1 => TableKind::Records,
        2 => TableKind::Index,
        3 => TableKind::Small,
        4 => TableKind::Clustered,
        _ => return None,
    };
    let name_at = ENTRY_HEADER_BYTES + STORE_BYTES;
    let name_end = name_at + usize::from(u16_at(bytes, 2)?);
    let text = |range: std::ops::Range<usize>| String::from_utf8(bytes.get(range)?.to_vec()).ok();
    let spec = TableSpec {
        kind,
        name: text(name_at..name_end)?,
        compressor: match bytes[9] {
            NO_COMPRESSOR => None,
            length => Some(text(name_end..name_end + usize::from(length))?),
        },
    };
    let store = Store::decode(bytes.get(ENTRY_HEADER_BYTES..name_at)?)?;
    Some((TableId(u32_at(bytes, 4)?), spec, store))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(name: String) -> TableSpec {
        TableSpec {
            kind: TableKind::Index,
            name,
            compressor: Some("zstd".into()),
        }
    }

    #[test]
    fn entries_of_every_length_come_back() {
        let mut namespaces = Namespaces::default();
        let mut expected = Vec::new();
        for number in 0..60u32 {
            let spec = spec("n".repeat(number as usize * 40));
            namespaces.add(TableId(number), &spec, slots_for(&spec).expect("not too long"));
            let store = Store {
                rows: number.into(),
                array_levels: 2,
                ..Store::default()
            };
            namespaces.write(TableId(number), &spec, &store);
            expected.push((TableId(number), spec, store));
        }
        for gone in (0..60).step_by(3).rev() {
            namespaces.remove(TableId(gone));
            expected.retain(|table| table.0 != TableId(gone));
        }
        let small = spec("again".into());
        let pages = namespaces.page_count();
        namespaces.add(TableId(99), &small, 1);
        assert_eq!(namespaces.page_count(), pages, "there was room");
        expected.push((TableId(99), small, Store::default()));
        let all = namespaces.take_changed(true).into_iter().map(|page| page.1).collect();
        let (again, mut found) = Namespaces::load(all).expect("it was just written");
        found.sort_by_key(|table| table.0);
        assert_eq!(found, expected);
        assert_eq!(again.used_bytes(), namespaces.used_bytes());
        assert_eq!(slots_for(&spec("n".repeat(PAGE_BYTES))), None);
    }
}
