//! The catalog of a database, `NAME.ns`: a hash table of namespaces. All its entries are read, wherever they stand.

use crate::finding::{Fault, Finding, Findings};
use crate::image::{FileIndex, Image};
use crate::layout::{Details, ENTRY_BYTES, Fields, Location, NAME_BYTES, name_hash, until_nul};
use std::collections::{BTreeMap, HashSet};

/// What a name begins with that was removed.
const REMOVED: u8 = 0x7F;
/// Where the details stand in an entry.
const DETAILS_AT: usize = 4 + NAME_BYTES;
/// Catalogs have a multiple of so many bytes.
const CATALOG_UNIT_BYTES: u64 = 1 << 20;
/// Entries that are read at once.
const BATCH: usize = 128;

/// The entries that matter.
#[derive(Default)]
pub(crate) struct Catalog {
    /// Namespaces that are no indexes, in the order of the table.
    pub(crate) entries: Vec<(String, Details)>,
    /// The first extent of the list of free extents, before 2.6.
    pub(crate) free_list: Option<Location>,
    /// Something is missing, or may be.
    pub(crate) is_damaged: bool,
}

pub(crate) fn read(image: &Image, file: Option<FileIndex>, database: &str, findings: &mut Findings) -> Catalog {
    let mut catalog = Catalog::default();
    let Some(file) = file else {
        findings.add(Finding {
            file: format!("{database}.ns"),
            offset: None,
            namespace: None,
            fault: Fault::CatalogMissing,
        });
        catalog.is_damaged = true;
        return catalog;
    };
    let mut reading = Reading {
        image,
        file,
        database,
        findings,
        names: HashSet::new(),
        extra: BTreeMap::new(),
        catalog,
    };
    reading.table();
    reading.finish()
}

struct Reading<'r> {
    image: &'r Image,
    file: FileIndex,
    database: &'r str,
    findings: &'r mut Findings,
    names: HashSet<String>,
    /// Documents of indexes beyond the tenth, by the collection.
    extra: BTreeMap<String, Vec<Location>>,
    catalog: Catalog,
}

impl Reading<'_> {
    fn damaged(&mut self, at: u64, fault: Fault) {
        self.catalog.is_damaged = true;
        self.findings.add(Finding {
            file: self.image.name(self.file),
            offset: Some(at),
            namespace: None,
            fault,
        });
    }

    fn table(&mut self) {
        let bytes = self.image.bytes(self.file);
        let entries = bytes / ENTRY_BYTES as u64;
        if bytes == 0 || !bytes.is_multiple_of(CATALOG_UNIT_BYTES) {
            self.damaged(0, Fault::CatalogCut { bytes });
        }
        let mut buffer = Vec::new();
        let mut done = 0;
        while done < entries {
            let batch = (entries - done).min(BATCH as u64);
            buffer.resize(batch as usize * ENTRY_BYTES, 0);
            let start = done * ENTRY_BYTES as u64;
            match self.image.read(self.file, start, &mut buffer) {
                Ok(()) => {
                    for (n, entry) in buffer.chunks_exact(ENTRY_BYTES).enumerate() {
                        self.entry(entry, start + (n * ENTRY_BYTES) as u64);
                    }
                }
                Err(error) => {
                    let error = error.to_string();
                    self.damaged(start, Fault::Unreadable { error });
                }
            }
            done += batch;
        }
    }

    fn entry(&mut self, entry: &[u8], at: u64) {
        let hash = Fields(entry).i32(0);
        let name = until_nul(&entry[4..DETAILS_AT]);
        let wrong = |why| Fault::CatalogEntry { why };
        // A place that was never used, or whose name was removed.
        if hash == 0 && name.is_empty() {
            if entry.iter().any(|&byte| byte != 0) {
                self.damaged(at, wrong("it has neither hash nor name"));
            }
            return;
        }
        if hash == 0 && name[0] == REMOVED {
            return;
        }
        let Some(text) = std::str::from_utf8(name).ok().filter(|_| name.len() < NAME_BYTES) else {
            return self.damaged(at, wrong("its name is no text"));
        };
        let collection = text.strip_prefix(self.database).and_then(|rest| rest.strip_prefix('.'));
        let Some(collection) = collection.filter(|collection| !collection.is_empty()) else {
            return self.damaged(at, wrong("its name is not one of this database"));
        };
        if hash != name_hash(name) {
            self.damaged(at, wrong("its hash is not that of its name"));
        }
        let details = &entry[DETAILS_AT..];
        if collection == "$freelist" {
            self.catalog.free_list = Some(Details::decode(details).first_extent);
        } else if let Some(of) = extra_of(text) {
            self.extra
                .entry(of.to_owned())
                .or_default()
                .extend(Details::decode_extra(details));
        } else if !collection.contains('$') || is_old_oplog(text) {
            if self.names.insert(text.to_owned()) {
                self.catalog.entries.push((text.to_owned(), Details::decode(details)));
            } else {
                self.damaged(at, wrong("there is another one of this name"));
            }
        }
    }

    fn finish(mut self) -> Catalog {
        for (name, details) in &mut self.catalog.entries {
            if let Some(more) = self.extra.remove(name) {
                details.index_documents.extend(more);
            }
        }
        self.catalog
    }
}

/// The collection whose entry one of these names continues.
fn extra_of(namespace: &str) -> Option<&str> {
    namespace
        .strip_suffix("$extra")
        .or_else(|| namespace.strip_suffix("$extrb"))
}

/// The log of masters without a replica set, the one collection with a dollar in its name.
fn is_old_oplog(namespace: &str) -> bool {
    namespace == "local.oplog.$main"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_continued_entries() {
        assert_eq!(extra_of("d.c$extra"), Some("d.c"));
        assert_eq!(extra_of("d.c$extrb"), Some("d.c"));
        assert_eq!(extra_of("d.c.$a_1"), None);
    }
}
