//! A database: its collections with their definitions, and the documents of each.
//!
//! Collections are those of the catalog. If that is damaged, or links between extents are, the data files are searched
//! for extents that nobody has, which go to the collections that they were made for. Options, indexes and views are
//! documents of `system.namespaces`, `system.indexes` and `system.views`.

use crate::catalog::{self, Catalog};
use crate::directory::Shutdown;
use crate::error::Result;
use crate::extents::{Chain, DataFiles, Extent};
use crate::finding::{Fault, Finding, Findings};
use crate::image::{Image, Part, Reader};
use crate::layout::{Details, ExtentHeader, Location, RECORD_HEADER_BYTES};
use crate::records::Records;
use bson::{Bson, Document, spec::BinarySubtype};
use std::collections::{BTreeMap, HashSet};
use wire::InvalidText;

/// Options that are none of a collection's: its name from the command that made it, its identity.
const NO_OPTIONS: [&str; 2] = ["create", "uuid"];
/// Definitions are as large as a document may be, and there is one for each collection and index.
const DEFINITIONS_MAX: usize = 1_000_000;

/// What something with a name is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CollectionKind {
    /// Documents.
    Collection,
    /// A pipeline over another collection.
    View,
}

/// A collection or a view, as its definition has it.
#[derive(Clone, Debug)]
pub struct Collection {
    /// Without the database.
    pub name: String,
    /// What it is.
    pub kind: CollectionKind,
    /// As `create` takes them.
    pub options: Document,
    /// As `listIndexes` gives them.
    pub indexes: Vec<Document>,
    /// The identity, since 3.6: 32 hexadecimal digits.
    pub uuid: Option<String>,
    /// As the catalog counts; `None` when that is not there.
    pub documents: Option<i64>,
    details: Option<Details>,
    extents: Vec<Extent>,
}

/// What was given out of a collection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Walked {
    /// Valid documents.
    pub documents: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Of them those with text that is not UTF-8, which was replaced.
    pub replaced: u64,
    /// Records whose documents are damaged, or were left out for their text.
    pub damaged: u64,
}

/// A database of a directory.
pub struct Database<'i> {
    image: &'i Image,
    name: String,
    shutdown: Shutdown,
    invalid_text: InvalidText,
    collections: Vec<Collection>,
    findings: Findings,
    /// Collections with a definition that were not found.
    missing: Vec<String>,
}

impl<'i> Database<'i> {
    pub(crate) fn open(image: &'i Image, name: &str, shutdown: Shutdown, invalid_text: InvalidText) -> Self {
        let linked = |missing| Self::linked(image, name, shutdown, invalid_text, missing);
        let database = linked(None);
        match database.missing.is_empty() {
            true => database,
            // An entry of the catalog is gone without a trace, but for its definition.
            false => linked(Some(&database.missing)),
        }
    }

    /// With the collections that are known to be missing in the catalog, which makes it a damaged one.
    fn linked(
        image: &'i Image,
        name: &str,
        shutdown: Shutdown,
        invalid_text: InvalidText,
        missing: Option<&[String]>,
    ) -> Self {
        let mut findings = Findings::default();
        let mut files = DataFiles::open(image, name, &mut findings);
        let mut catalog = catalog::read(image, files.catalog, name, &mut findings);
        let is_known = catalog.is_damaged;
        catalog.is_damaged |= missing.is_some();
        let mut collections = link(&mut files, &catalog, name, &mut findings);
        collections.sort_by(|a, b| a.name.cmp(&b.name));
        let mut database = Self {
            image,
            name: name.to_owned(),
            shutdown,
            invalid_text,
            collections,
            findings,
            missing: Vec::new(),
        };
        for collection in missing.into_iter().flatten() {
            database.bad_definition("system.namespaces", format!("{collection} is not in the catalog"));
        }
        database.define();
        if is_known || missing.is_some() {
            database.missing.clear();
        }
        database
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// All of them, those of the system included, sorted by name.
    pub fn collections(&self) -> &[Collection] {
        &self.collections
    }

    /// What is wrong with files, catalog, extents and definitions.
    pub fn findings(&self) -> &Findings {
        &self.findings
    }

    /// Bytes of all files.
    pub fn bytes(&self) -> u64 {
        self.image.database_bytes(&self.name)
    }

    /// Gives every valid document of a collection, in its natural order as far as that is known.
    pub fn documents(
        &self,
        collection: &Collection,
        findings: &mut Findings,
        each: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<Walked> {
        let mut walked = Walked::default();
        let mut buffer = Vec::new();
        let mut reader = Reader::new(self.image);
        let namespace = format!("{}.{}", self.name, collection.name);
        let mut free = FreeRecords::of(self.image, &self.name, collection.details.as_ref());
        let mut places = |reader: &mut Reader<'i>, extent: &Extent, findings: &mut Findings| {
            let mut records = Records {
                reader,
                extent,
                namespace: &namespace,
            };
            records.places(&mut |location| free.contains(location), findings)
        };
        let mut give = |reader: &mut Reader<'i>, extent: &Extent, places: &[u32], findings: &mut Findings| {
            for &at in places {
                let mut records = Records {
                    reader,
                    extent,
                    namespace: &namespace,
                };
                let fault = match records.document(at, &mut buffer) {
                    Ok(None) => None,
                    Ok(Some(error)) => {
                        let what = wire::describe_invalid(&buffer, &error);
                        match self.invalid_text.stored(&buffer, wire::limits::DOCUMENT_BYTES_MAX) {
                            Some(valid) => {
                                buffer = valid;
                                Some(Fault::TextReplaced { what })
                            }
                            None => Some(Fault::TextLeftOut { what }),
                        }
                    }
                    Err(fault) => Some(fault),
                };
                let is_replaced = matches!(fault, Some(Fault::TextReplaced { .. }));
                walked.replaced += u64::from(is_replaced);
                if fault.is_some() && !is_replaced {
                    walked.damaged += 1;
                } else {
                    walked.documents += 1;
                    walked.bytes += buffer.len() as u64;
                    each(&buffer)?;
                }
                if let Some(fault) = fault {
                    findings.add(records.finding(Some(at), fault));
                }
            }
            Ok(())
        };
        // A capped collection that has gone round: its oldest documents stand behind the newest one.
        let round = collection.round();
        let (split, count) = (round.map_or(0, |(extent, _)| extent), collection.extents.len());
        let mut newest = Vec::new();
        for n in 0..count {
            let extent = &collection.extents[(split + n) % count];
            let mut found = places(&mut reader, extent, findings);
            if let Some((_, first_new)) = round.filter(|_| n == 0) {
                match found.iter().position(|&at| at == first_new) {
                    Some(at) => newest = found.split_off(at),
                    None => findings.add(self.finding(collection, extent, Fault::CappedOrder)),
                }
            }
            give(&mut reader, extent, &found, findings)?;
        }
        if let Some(extent) = collection.extents.get(split) {
            give(&mut reader, extent, &newest, findings)?;
        }
        self.count(collection, walked, findings);
        Ok(walked)
    }

    fn finding(&self, collection: &Collection, extent: &Extent, fault: Fault) -> Finding {
        Finding {
            file: self.image.name(extent.file),
            offset: Some(u64::from(extent.start())),
            namespace: Some(format!("{}.{}", self.name, collection.name)),
            fault,
        }
    }

    /// Compares with the catalog, which counts exactly unless a server without a journal was killed.
    fn count(&self, collection: &Collection, walked: Walked, findings: &mut Findings) {
        let found = walked.documents + walked.damaged;
        let Some(expected) = collection.documents else { return };
        if self.shutdown == Shutdown::Unclean || u64::try_from(expected) == Ok(found) {
            return;
        }
        let catalog = self.image.find(&self.name, Part::Catalog);
        findings.add(Finding {
            file: catalog.map_or_else(|| format!("{}.ns", self.name), |file| self.image.name(file)),
            offset: None,
            namespace: Some(format!("{}.{}", self.name, collection.name)),
            fault: Fault::Count { expected, found },
        });
    }

    /// Valid documents of one of the system's collections.
    fn definitions(&mut self, name: &str) -> Vec<Document> {
        let Some(at) = self.collections.iter().position(|collection| collection.name == name) else {
            return Vec::new();
        };
        let mut documents = Vec::new();
        let mut findings = std::mem::take(&mut self.findings);
        let collection = &self.collections[at];
        let mut failures = Vec::new();
        let walked = self.documents(collection, &mut findings, &mut |bytes| {
            match Document::from_reader(bytes) {
                Ok(document) if documents.len() < DEFINITIONS_MAX => documents.push(document),
                Ok(_) => {}
                Err(error) => failures.push(error.to_string()),
            }
            Ok(())
        });
        debug_assert!(walked.is_ok(), "nothing fails that takes these documents");
        self.findings = findings;
        for why in failures {
            self.bad_definition(name, why);
        }
        documents
    }

    fn bad_definition(&mut self, name: &str, why: String) {
        self.findings.add(Finding {
            file: format!("{}.{name}", self.name),
            offset: None,
            namespace: None,
            fault: Fault::Definition { why },
        });
    }

    /// Puts options, indexes and views to the collections.
    fn define(&mut self) {
        let prefix = format!("{}.", self.name);
        for entry in self.definitions("system.namespaces") {
            let Some(name) = entry.get_str("name").ok().and_then(|name| name.strip_prefix(&prefix)) else {
                self.bad_definition("system.namespaces", format!("no name in {entry}"));
                continue;
            };
            let options = entry.get_document("options").cloned().unwrap_or_default();
            if let Some(collection) = self.collections.iter_mut().find(|collection| collection.name == name) {
                collection.uuid = uuid(&options);
                collection.options = options
                    .into_iter()
                    .filter(|(name, _)| !NO_OPTIONS.contains(&&**name))
                    .collect();
            } else if !name.contains('$') {
                self.missing.push(name.to_owned());
            }
        }
        for mut index in self.definitions("system.indexes") {
            let namespace = index.remove("ns");
            let name = namespace.as_ref().and_then(Bson::as_str);
            let (Some(name), Ok(_), Ok(_)) = (name, index.get_document("key"), index.get_str("name")) else {
                self.bad_definition("system.indexes", format!("no index: {index}"));
                continue;
            };
            let name = name.strip_prefix(&prefix).unwrap_or(name);
            if let Some(collection) = self.collections.iter_mut().find(|collection| collection.name == name) {
                collection.add_index(index);
            }
        }
        self.indexes_of_catalog();
        for collection in &mut self.collections {
            collection.cap();
        }
        for view in self.definitions("system.views") {
            match view_of(view, &prefix) {
                Ok(view) => self.collections.push(view),
                Err(why) => self.bad_definition("system.views", why),
            }
        }
        self.collections.sort_by(|a, b| a.name.cmp(&b.name));
    }

    /// The catalog leads to the documents of indexes, too: to those that `system.indexes` has lost.
    fn indexes_of_catalog(&mut self) {
        let mut reader = Reader::new(self.image);
        for collection in &mut self.collections {
            let Some(details) = &collection.details else { continue };
            if details.index_documents.len() <= collection.indexes.len() {
                continue;
            }
            let namespace = format!("{}.{}", self.name, collection.name);
            for location in details.index_documents.clone() {
                let index = document_at(&mut reader, self.image, &self.name, location);
                if let Some(mut index) = index.filter(|index| index.get_str("ns").ok() == Some(&*namespace)) {
                    index.remove("ns");
                    if index.get_document("key").is_ok() && index.get_str("name").is_ok() {
                        collection.add_index(index);
                    }
                }
            }
        }
    }
}

impl Collection {
    fn new(name: &str, details: Option<Details>, extents: Vec<Extent>) -> Self {
        Self {
            name: name.to_owned(),
            kind: CollectionKind::Collection,
            options: Document::new(),
            indexes: Vec::new(),
            uuid: None,
            documents: details.as_ref().map(|details| details.records),
            details,
            extents,
        }
    }

    fn add_index(&mut self, index: Document) {
        let name = index.get_str("name").ok();
        if !self.indexes.iter().any(|known| known.get_str("name").ok() == name) {
            self.indexes.push(index);
        }
    }

    /// A capped collection stays one if its options are lost: its extents are as large as it may become.
    fn cap(&mut self) {
        let Some(details) = self.details.as_ref().filter(|details| details.is_capped) else {
            return;
        };
        if self.options.get_bool("capped").ok() == Some(true) || self.name.starts_with("system.") {
            return;
        }
        let bytes: i64 = self.extents.iter().map(|extent| i64::from(extent.bytes)).sum();
        self.options.insert("capped", true);
        self.options.insert("size", bytes);
        if let Some(max) = details.documents_max {
            self.options.insert("max", max);
        }
    }

    /// Where the newest documents of a capped collection begin that has gone round: the extent, by its number, and the
    /// record.
    fn round(&self) -> Option<(usize, u32)> {
        let details = self.details.as_ref().filter(|details| details.is_capped)?;
        let first_new = details.capped_first_new;
        if !first_new.is_set() {
            return None;
        }
        let extent = details.capped_extent;
        let at = self.extents.iter().position(|known| known.location == extent)?;
        Some((at, first_new.offset.cast_unsigned()))
    }
}

/// Follows the links of all collections of the catalog, and finds extents that no link leads to if any is damaged.
fn link(files: &mut DataFiles<'_>, catalog: &Catalog, database: &str, findings: &mut Findings) -> Vec<Collection> {
    // A wrong link may lead into another collection's extents: whoever they were made for comes first.
    let (own, others): (Vec<_>, Vec<_>) = catalog.entries.iter().partition(|(name, details)| {
        let header = files.header(details.first_extent);
        header.is_ok_and(|(_, header)| header.namespace == name.as_bytes())
    });
    let mut chains: BTreeMap<&str, (Option<&Details>, Chain)> = BTreeMap::new();
    for (name, details) in own.into_iter().chain(others) {
        let chain = files.chain(details, name, findings);
        chains.insert(name, (Some(details), chain));
    }
    files.claim_free(catalog.free_list);
    let is_damaged = catalog.is_damaged || chains.values().any(|(_, chain)| chain.gap.is_some());
    let mut found: BTreeMap<String, Vec<Extent>> = BTreeMap::new();
    if is_damaged {
        for (location, header) in in_order(files.unclaimed()) {
            let broken = chains
                .iter_mut()
                .find(|(_, (_, chain))| chain.gap.is_some() && chain.made_for.contains(&header.namespace));
            if let Some((name, (_, chain))) = broken {
                let at = chain.gap.unwrap_or(chain.extents.len());
                if let Some(extent) = files.adopt(location, name, findings) {
                    chain.extents.insert(at, extent);
                    chain.gap = Some(at + 1);
                }
                continue;
            }
            let Some(name) = new_name(&header, database).filter(|_| catalog.is_damaged) else {
                continue;
            };
            // Of a collection that the catalog has, whole: an older one of that name.
            if !chains.contains_key(&*name)
                && let Some(extent) = files.adopt(location, &name, findings)
            {
                found.entry(name).or_default().push(extent);
            }
        }
    }
    for (name, (_, chain)) in &mut chains {
        files.headless(name, chain, findings);
    }
    let bare = |name: &str| name.strip_prefix(database).map_or(name, |rest| &rest[1..]).to_owned();
    let mut collections: Vec<Collection> = chains
        .into_iter()
        .map(|(name, (details, chain))| Collection::new(&bare(name), details.cloned(), chain.extents))
        .collect();
    for (name, extents) in found {
        let first = &extents[0];
        findings.add(Finding {
            file: files.name(first.location),
            offset: Some(u64::from(first.start())),
            namespace: Some(name.clone()),
            fault: Fault::CollectionFound,
        });
        collections.push(Collection::new(&bare(&name), None, extents));
    }
    collections
}

/// Extents one behind the other as their links have it, as far as they have it; else as they stand in the files.
fn in_order(found: Vec<(Location, ExtentHeader)>) -> Vec<(Location, ExtentHeader)> {
    let by_place: BTreeMap<Location, ExtentHeader> = found.into_iter().collect();
    let linked: HashSet<Location> = by_place.values().map(|header| header.next).collect();
    let mut ordered = Vec::with_capacity(by_place.len());
    let mut done = HashSet::new();
    let starts = by_place.keys().filter(|location| !linked.contains(location));
    for &start in starts.chain(by_place.keys()) {
        let mut at = start;
        while let Some(header) = by_place.get(&at).filter(|_| done.insert(at)) {
            ordered.push((at, header.clone()));
            at = header.next;
        }
    }
    ordered
}

/// The collection that an extent was made for, if it is one of this database and no index.
fn new_name(header: &ExtentHeader, database: &str) -> Option<String> {
    let name = std::str::from_utf8(&header.namespace).ok()?;
    let collection = name.strip_prefix(database)?.strip_prefix('.')?;
    (!collection.is_empty() && !collection.contains('$')).then(|| name.to_owned())
}

fn uuid(options: &Document) -> Option<String> {
    match options.get("uuid") {
        Some(Bson::Binary(binary)) if binary.subtype == BinarySubtype::Uuid => {
            Some(binary.bytes.iter().map(|byte| format!("{byte:02x}")).collect())
        }
        _ => None,
    }
}

/// A view from its document.
fn view_of(mut view: Document, prefix: &str) -> std::result::Result<Collection, String> {
    let id = view.remove("_id");
    let name = id
        .as_ref()
        .and_then(Bson::as_str)
        .and_then(|id| id.strip_prefix(prefix));
    let Some(name) = name.map(str::to_owned) else {
        return Err(format!("no name of a view in {view}"));
    };
    if view.get_str("viewOn").is_err() || view.get_array("pipeline").is_err() {
        return Err(format!("{name} is no view: {view}"));
    }
    let mut collection = Collection::new(&name, None, Vec::new());
    collection.kind = CollectionKind::View;
    collection.options = view;
    Ok(collection)
}

/// A document by the place of its record, which need not be known to be one.
fn document_at(reader: &mut Reader<'_>, image: &Image, database: &str, location: Location) -> Option<Document> {
    let number = u16::try_from(location.file).ok()?;
    let file = image.find(database, Part::Data(number))?;
    let start = u64::try_from(location.offset).ok()? + u64::from(RECORD_HEADER_BYTES);
    let length = u32::from_le_bytes(reader.array(file, start).ok()?) as usize;
    if length > wire::limits::DOCUMENT_INTERNAL_BYTES_MAX {
        return None;
    }
    let mut bytes = vec![0; length];
    reader.read(file, start, &mut bytes).ok()?;
    wire::validate_structure(&bytes).ok()?;
    Document::from_reader(&*wire::with_valid_content(&bytes)?).ok()
}

/// The records of a collection's free lists, which are read only if something is searched.
struct FreeRecords<'i> {
    image: &'i Image,
    database: String,
    heads: Vec<Location>,
    known: Option<HashSet<Location>>,
}

impl<'i> FreeRecords<'i> {
    fn of(image: &'i Image, database: &str, details: Option<&Details>) -> Self {
        Self {
            image,
            database: database.to_owned(),
            heads: details.map_or_else(Vec::new, |details| details.free_records.clone()),
            known: None,
        }
    }

    fn contains(&mut self, location: Location) -> bool {
        if self.known.is_none() {
            let known = self.read();
            self.known = Some(known);
        }
        self.known.as_ref().is_some_and(|known| known.contains(&location))
    }

    /// Follows each list until it ends, meets itself, or leads to what is no free record.
    fn read(&self) -> HashSet<Location> {
        let mut reader = Reader::new(self.image);
        let mut known = HashSet::new();
        for &head in &self.heads {
            let mut at = head;
            while at.is_set() && !known.contains(&at) {
                let number = u16::try_from(at.file).ok();
                let file = number.and_then(|number| self.image.find(&self.database, Part::Data(number)));
                let Some(file) = file else { break };
                let Ok(bytes) =
                    reader.array::<{ crate::layout::RECORD_PROBE_BYTES }>(file, u64::from(at.offset.cast_unsigned()))
                else {
                    break;
                };
                // A wrong link must not make a document a free record.
                if !crate::layout::RecordHeader::decode(&bytes).is_deleted() {
                    break;
                }
                known.insert(at);
                at = crate::layout::Fields(&bytes).location(8);
            }
        }
        known
    }
}
