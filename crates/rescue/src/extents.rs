//! The extents of a collection, by their links in both directions, and which collection has which bytes.
//!
//! An extent is believed when it is linked back or was made for the collection, and has its magic number or its own
//! place. Bytes belong to whoever claimed them first: a wrong link into another collection's extents gives nobody that
//! one's documents twice.

use crate::finding::{Fault, Finding, Findings};
use crate::image::{FileIndex, Image, Part, Reader};
use crate::layout::{
    DOCUMENT_BYTES_MIN, Details, EXTENT_ALIGNMENT, EXTENT_HEADER_BYTES, EXTENT_MAGIC, ExtentHeader, FILE_HEADER_BYTES,
    FILE_VERSION, FileHeader, Location, RECORD_HEADER_BYTES,
};
use std::collections::BTreeMap;

/// An extent whose place is known and claimed.
#[derive(Clone, Debug)]
pub(crate) struct Extent {
    pub(crate) file: FileIndex,
    pub(crate) location: Location,
    /// With the header, and no further than the file goes.
    pub(crate) bytes: u32,
    pub(crate) first: Location,
    pub(crate) last: Location,
    /// Nothing of the header is known but where it was.
    pub(crate) is_headless: bool,
}

impl Extent {
    pub(crate) fn start(&self) -> u32 {
        self.location.offset.cast_unsigned()
    }

    pub(crate) fn end(&self) -> u32 {
        self.start() + self.bytes
    }
}

/// Which bytes of data files are whose.
#[derive(Default)]
pub(crate) struct Claims(BTreeMap<(i32, u32), (u32, String)>);

/// The owner of extents that are free.
const FREE: &str = "the free list";

impl Claims {
    /// Who has any of these bytes.
    fn owner(&self, location: Location, bytes: u32) -> Option<&str> {
        let start = location.offset.cast_unsigned();
        let before = self.0.range(..(location.file, start.saturating_add(bytes))).next_back();
        let ((file, _), (end, owner)) = before?;
        (*file == location.file && *end > start).then_some(owner)
    }

    fn claim(&mut self, location: Location, bytes: u32, owner: &str) {
        let start = location.offset.cast_unsigned();
        self.0.insert((location.file, start), (start + bytes, owner.to_owned()));
    }

    /// Where the next claimed bytes begin.
    fn next_start(&self, location: Location) -> Option<u32> {
        let start = location.offset.cast_unsigned();
        let after = self.0.range((location.file, start + 1)..).next();
        after
            .filter(|((file, _), _)| *file == location.file)
            .map(|((_, start), _)| *start)
    }
}

/// The data files of one database.
pub(crate) struct DataFiles<'i> {
    pub(crate) reader: Reader<'i>,
    files: BTreeMap<i32, FileIndex>,
    pub(crate) catalog: Option<FileIndex>,
    pub(crate) claims: Claims,
}

/// A collection's extents.
#[derive(Clone, Debug, Default)]
pub(crate) struct Chain {
    pub(crate) extents: Vec<Extent>,
    /// Here the links from the front end, if they do not reach the last extent: what is found goes in here.
    pub(crate) gap: Option<usize>,
    /// What the extents' diagnostic names may be.
    pub(crate) made_for: Vec<Vec<u8>>,
    /// Where links led to what is no extent.
    lost: Vec<Location>,
}

impl<'i> DataFiles<'i> {
    /// Looks at the headers of the files, too.
    pub(crate) fn open(image: &'i Image, database: &str, findings: &mut Findings) -> Self {
        let files = image.data_files(database);
        let mut reader = Reader::new(image);
        for &(_, file) in &files {
            check_file(&mut reader, file, findings);
        }
        Self {
            reader,
            files: files
                .into_iter()
                .map(|(number, file)| (i32::from(number), file))
                .collect(),
            catalog: image.find(database, Part::Catalog),
            claims: Claims::default(),
        }
    }

    pub(crate) fn file(&self, number: i32) -> Option<FileIndex> {
        self.files.get(&number).copied()
    }

    pub(crate) fn files(&self) -> impl Iterator<Item = (i32, FileIndex)> + '_ {
        self.files.iter().map(|(&number, &file)| (number, file))
    }

    pub(crate) fn name(&self, location: Location) -> String {
        let file = self.file(location.file);
        file.map_or_else(
            || format!("data file {}", location.file),
            |file| self.reader.image().name(file),
        )
    }

    fn finding(&self, location: Location, namespace: &str, fault: Fault) -> Finding {
        Finding {
            file: self.name(location),
            offset: u64::try_from(location.offset).ok(),
            namespace: Some(namespace.to_owned()),
            fault,
        }
    }

    /// The header at a place that lies within a file.
    pub(crate) fn header(&mut self, location: Location) -> Result<(FileIndex, ExtentHeader), Fault> {
        let Some(file) = self.file(location.file) else {
            return Err(Fault::FileMissing { number: location.file });
        };
        let offset = u64::try_from(location.offset).unwrap_or(0);
        let end = offset + u64::from(EXTENT_HEADER_BYTES);
        if offset < FILE_HEADER_BYTES || end > self.reader.image().bytes(file) {
            return Err(Fault::ExtentLink {
                location,
                why: "it is not within the file",
            });
        }
        match self.reader.array(file, offset) {
            Ok(bytes) => Ok((file, ExtentHeader::decode(&bytes))),
            Err(error) => Err(Fault::Unreadable {
                error: error.to_string(),
            }),
        }
    }

    /// An extent by its header, claimed.
    fn take(
        &mut self,
        location: Location,
        confirmed: impl Fn(&ExtentHeader) -> bool,
        namespace: &str,
        findings: &mut Findings,
    ) -> Result<(Extent, ExtentHeader), Fault> {
        let (file, header) = self.header(location)?;
        let link = |why| Fault::ExtentLink { location, why };
        let has_magic = header.magic == EXTENT_MAGIC;
        let has_place = header.location == location;
        if !confirmed(&header) || !has_magic && !has_place {
            return Err(link("there is no extent of this collection"));
        }
        let bytes_min = EXTENT_HEADER_BYTES + RECORD_HEADER_BYTES + DOCUMENT_BYTES_MIN;
        let bytes = u32::try_from(header.bytes).unwrap_or(0);
        if bytes < bytes_min {
            return Err(link("its length is wrong"));
        }
        let start = location.offset.cast_unsigned();
        let in_file = self.reader.image().bytes(file) - u64::from(start);
        let usable = u64::from(bytes).min(in_file) as u32;
        if let Some(owner) = self.claims.owner(location, usable) {
            return Err(Fault::ExtentShared {
                location,
                owner: owner.to_owned(),
            });
        }
        let why = match (has_magic, has_place) {
            (false, _) => Some("its magic number"),
            (_, false) => Some("its own place"),
            _ => None,
        };
        if let Some(why) = why {
            findings.add(self.finding(location, namespace, Fault::ExtentHeader { why }));
        }
        if usable < bytes {
            let missing = u64::from(bytes - usable);
            findings.add(self.finding(location, namespace, Fault::ExtentCut { missing }));
        }
        self.claims.claim(location, usable, namespace);
        let extent = Extent {
            file,
            location,
            bytes: usable,
            first: header.first,
            last: header.last,
            is_headless: false,
        };
        Ok((extent, header))
    }

    /// Follows the links of a collection, from the front and, if they break, from the back.
    pub(crate) fn chain(&mut self, details: &Details, namespace: &str, findings: &mut Findings) -> Chain {
        let mut chain = Chain {
            made_for: vec![namespace.as_bytes().to_vec()],
            ..Chain::default()
        };
        // A collection that was renamed has extents of its old name.
        for (location, is_first) in [(details.first_extent, true), (details.last_extent, false)] {
            let Ok((_, header)) = self.header(location) else {
                continue;
            };
            let is_end = match is_first {
                true => !header.previous.is_set(),
                false => !header.next.is_set(),
            };
            let is_extent = header.magic == EXTENT_MAGIC || header.location == location;
            if is_end && is_extent && !chain.made_for.contains(&header.namespace) {
                chain.made_for.push(header.namespace);
            }
        }
        let mut from = None;
        let mut at = details.first_extent;
        let broken_at = loop {
            if !at.is_set() {
                let is_empty = from.is_none() && !details.last_extent.is_set() && details.records == 0;
                if is_empty || from == Some(details.last_extent) {
                    return chain;
                }
                let why = "the chain of extents ends before the last one";
                let location = details.last_extent;
                findings.add(self.finding(location, namespace, Fault::ExtentLink { location, why }));
                break None;
            }
            let made_for = &chain.made_for;
            let confirmed = |header: &ExtentHeader| match from {
                Some(from) => header.previous == from,
                None => !header.previous.is_set() && made_for.contains(&header.namespace),
            };
            match self.take(at, confirmed, namespace, findings) {
                Ok((extent, header)) => {
                    chain.extents.push(extent);
                    from = Some(at);
                    at = header.next;
                }
                Err(fault) => {
                    findings.add(self.finding(from.unwrap_or(at), namespace, fault));
                    if from == Some(details.last_extent) {
                        return chain;
                    }
                    break Some(at);
                }
            }
        };
        self.chain_back(details, broken_at, namespace, &mut chain, findings);
        chain
    }

    /// From the last extent on back, until the links break or meet the front: at the extent that it leads to, or that
    /// leads to it.
    fn chain_back(
        &mut self,
        details: &Details,
        broken_at: Option<Location>,
        namespace: &str,
        chain: &mut Chain,
        findings: &mut Findings,
    ) {
        let gap = chain.extents.len();
        chain.gap = Some(gap);
        chain.lost.extend(broken_at);
        let mut from = None;
        let mut at = details.last_extent;
        let fault = loop {
            if let Some(met) = chain.extents.iter().position(|extent| extent.location == at) {
                if met + 1 == gap {
                    chain.gap = None;
                }
                break None;
            }
            let made_for = &chain.made_for;
            let confirmed = |header: &ExtentHeader| {
                let is_linked = from.map_or(!header.next.is_set(), |from| header.next == from);
                is_linked && made_for.contains(&header.namespace)
            };
            match self.take(at, confirmed, namespace, findings) {
                Ok((extent, header)) => {
                    chain.extents.insert(gap, extent);
                    from = Some(at);
                    at = header.previous;
                }
                Err(fault) => break Some(fault),
            }
        };
        if from.is_some() && from == broken_at {
            // The front leads here: it was this extent's link back that was damaged.
            chain.gap = None;
        }
        if chain.gap.is_none() {
            chain.lost.clear();
        } else if let Some(fault) = fault.filter(|_| at.is_set() && broken_at != Some(at)) {
            // The same wrong place from both sides is one fault.
            findings.add(self.finding(from.unwrap_or(at), namespace, fault));
            chain.lost.push(at);
        }
    }

    /// Extents whose headers are gone: the bytes behind a link, up to the next thing that is an extent. Called when
    /// everybody has claimed what is known.
    pub(crate) fn headless(&mut self, namespace: &str, chain: &mut Chain, findings: &mut Findings) {
        for location in std::mem::take(&mut chain.lost) {
            let Some(bytes) = self.headless_bytes(location) else {
                continue;
            };
            let Some(file) = self.file(location.file) else { continue };
            let nowhere = Location { file: -1, offset: 0 };
            self.claims.claim(location, bytes, namespace);
            findings.add(self.finding(location, namespace, Fault::ExtentHeadless));
            let at = chain.gap.unwrap_or(chain.extents.len());
            chain.extents.insert(
                at,
                Extent {
                    file,
                    location,
                    bytes,
                    first: nowhere,
                    last: nowhere,
                    is_headless: true,
                },
            );
            chain.gap = Some(at + 1);
        }
    }

    /// How many bytes could be of an extent there; `None` when none can be.
    fn headless_bytes(&mut self, location: Location) -> Option<u32> {
        let (file, start) = (self.file(location.file)?, u64::try_from(location.offset).ok()?);
        let length = self.reader.image().bytes(file);
        let is_place = start >= FILE_HEADER_BYTES && start.is_multiple_of(EXTENT_ALIGNMENT) && start < length;
        if !is_place || self.is_extent(location) || self.claims.owner(location, EXTENT_HEADER_BYTES).is_some() {
            return None;
        }
        let end = self.claims.next_start(location).map_or(length, u64::from).min(length);
        let mut at = start + EXTENT_ALIGNMENT;
        while at < end {
            let offset = i32::try_from(at).unwrap_or(i32::MAX);
            if self.is_extent(Location { offset, ..location }) {
                break;
            }
            at += EXTENT_ALIGNMENT;
        }
        u32::try_from(at.min(end) - start).ok()
    }

    fn is_extent(&mut self, location: Location) -> bool {
        matches!(self.header(location), Ok((_, header)) if header.magic == EXTENT_MAGIC && header.location == location)
    }

    /// Claims the extents that are free: what stands in them was dropped. The list begins in file 0, or before 2.6 with
    /// the extents of a namespace of its own.
    pub(crate) fn claim_free(&mut self, first: Option<Location>) {
        let of_file = self.file(0).and_then(|file| self.reader.array(file, 0).ok());
        let of_file = of_file.map(|bytes| FileHeader::decode(&bytes).free_list);
        for start in [of_file, first].into_iter().flatten() {
            let mut at = start;
            while at.is_set() {
                let Ok((file, header)) = self.header(at) else { break };
                let in_file = self.reader.image().bytes(file) - u64::from(at.offset.cast_unsigned());
                let bytes = u64::try_from(header.bytes).unwrap_or(0).min(in_file) as u32;
                // Claimed bytes end it, its own ones included: a cycle.
                if !self.is_extent(at) || bytes == 0 || self.claims.owner(at, bytes).is_some() {
                    break;
                }
                self.claims.claim(at, bytes, FREE);
                at = header.next;
            }
        }
    }

    /// Extents that nobody has claimed and that have records, in the order of the files.
    pub(crate) fn unclaimed(&mut self) -> Vec<(Location, ExtentHeader)> {
        let mut found = Vec::new();
        for (number, file) in self.files().collect::<Vec<_>>() {
            let length = self.reader.image().bytes(file);
            let mut at = FILE_HEADER_BYTES;
            while at + u64::from(EXTENT_HEADER_BYTES) <= length {
                let location = Location {
                    file: number,
                    offset: i32::try_from(at).unwrap_or(i32::MAX),
                };
                let step = match self.header(location) {
                    Ok((_, header)) if header.magic == EXTENT_MAGIC && header.location == location => {
                        let bytes = u64::try_from(header.bytes).unwrap_or(0);
                        let is_sane =
                            bytes >= EXTENT_ALIGNMENT && bytes.is_multiple_of(EXTENT_ALIGNMENT) && at + bytes <= length;
                        if self.claims.owner(location, EXTENT_HEADER_BYTES).is_none() && header.first.is_set() {
                            found.push((location, header));
                        }
                        if is_sane { bytes } else { EXTENT_ALIGNMENT }
                    }
                    _ => EXTENT_ALIGNMENT,
                };
                at += step;
            }
        }
        found
    }

    /// Claims an extent that was found by its header, for a collection.
    pub(crate) fn adopt(&mut self, location: Location, namespace: &str, findings: &mut Findings) -> Option<Extent> {
        match self.take(location, |_| true, namespace, findings) {
            Ok((extent, _)) => {
                findings.add(self.finding(location, namespace, Fault::ExtentFound));
                Some(extent)
            }
            Err(fault) => {
                findings.add(self.finding(location, namespace, fault));
                None
            }
        }
    }
}

fn check_file(reader: &mut Reader<'_>, file: FileIndex, findings: &mut Findings) {
    let found = reader.image().bytes(file);
    let mut add = |fault| {
        findings.add(Finding {
            file: reader.image().name(file),
            offset: Some(0),
            namespace: None,
            fault,
        });
    };
    if found < FILE_HEADER_BYTES {
        add(Fault::FileCut {
            expected: FILE_HEADER_BYTES,
            found,
        });
        return;
    }
    let header = match reader.image().read_array(file, 0) {
        Ok(bytes) => FileHeader::decode(&bytes),
        Err(error) => {
            add(Fault::Unreadable {
                error: error.to_string(),
            });
            return;
        }
    };
    let why = match (header.version, header.length) {
        // Made ahead of its use.
        (0, 0) => None,
        (FILE_VERSION, length) if length > 0 => {
            let expected = u64::from(length.cast_unsigned());
            if expected > found {
                add(Fault::FileCut { expected, found });
            }
            None
        }
        (FILE_VERSION, length) => Some(format!("a length of {length}")),
        (version, _) => Some(format!("version {version}")),
    };
    if let Some(why) = why {
        add(Fault::FileHeader { why });
    }
}
