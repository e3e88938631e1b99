//! The archive: one stream of many collections, in segments of each in turn.
//!
//! Layout in `docs/formats/dump.md`. The reader keeps a checksum for each open namespace and demands that every
//! namespace whose documents came ends with it; a stream that stops in between is an error.

use crate::crc64::Crc64;
use crate::error::{Doing, DumpError, Result};
use crate::found::Found;
use crate::metadata::{CollectionKind, Metadata};
use crate::namespace::Namespace;
use bson::{Document, RawDocument, RawDocumentBuf, rawdoc};
use std::collections::{HashMap, HashSet};
use std::io::{ErrorKind, Read, Write};
use wire::limits::DOCUMENT_INTERNAL_BYTES_MAX;

/// The first four bytes, little-endian.
const MAGIC: u32 = 0x8199_E26D;
/// Where a document's length would be, behind the last one of a part.
const TERMINATOR: i32 = -1;
/// What `version` of the header says.
const VERSION: &str = "0.1";
/// More namespaces than one server can have files for.
const COLLECTIONS_MAX: usize = 1 << 20;

/// A collection as the beginning of an archive announces it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Announced {
    /// Its name.
    pub namespace: Namespace,
    /// Its `metadata.json`.
    pub metadata: String,
    /// Bytes of its documents when the dump began, about.
    pub size_bytes: i64,
    /// `collection`, `view` or `timeseries`.
    pub kind: &'static str,
}

/// Writes an archive.
#[derive(Debug)]
pub struct ArchiveWriter<W> {
    out: W,
}

fn write_failed() -> String {
    "writing the archive".to_owned()
}

impl<W: Write> ArchiveWriter<W> {
    /// Writes what comes before all documents. At most `concurrent` namespaces are open at once.
    pub fn begin(out: W, concurrent: usize, server_version: &str, collections: &[Announced]) -> Result<Self> {
        let mut writer = Self { out };
        let header = rawdoc! {
            "concurrent_collections": i32::try_from(concurrent).unwrap_or(i32::MAX),
            "version": VERSION,
            "server_version": server_version,
            "tool_version": concat!("tenon ", env!("CARGO_PKG_VERSION")),
        };
        writer.put(&MAGIC.to_le_bytes())?;
        writer.put(header.as_bytes())?;
        for announced in collections {
            let entry = rawdoc! {
                "db": announced.namespace.database.as_str(),
                "collection": announced.namespace.collection.as_str(),
                "metadata": announced.metadata.as_str(),
                "size": i32::try_from(announced.size_bytes).unwrap_or(i32::MAX),
                "type": announced.kind,
            };
            writer.put(entry.as_bytes())?;
        }
        writer.put(&TERMINATOR.to_le_bytes())?;
        Ok(writer)
    }

    /// Some documents of a namespace, at least one.
    pub fn segment(&mut self, namespace: &Namespace, documents: &[u8]) -> Result<()> {
        self.namespace_header(namespace, false, 0)?;
        self.put(documents)?;
        self.put(&TERMINATOR.to_le_bytes())
    }

    /// The end of a namespace, with the checksum of all its documents.
    pub fn end(&mut self, namespace: &Namespace, checksum: i64) -> Result<()> {
        self.namespace_header(namespace, true, checksum)?;
        self.put(&TERMINATOR.to_le_bytes())
    }

    /// Gives the stream back; nothing marks its end.
    pub fn finish(self) -> W {
        self.out
    }

    fn namespace_header(&mut self, namespace: &Namespace, is_end: bool, checksum: i64) -> Result<()> {
        let header = rawdoc! {
            "db": namespace.database.as_str(),
            "collection": namespace.collection.as_str(),
            "EOF": is_end,
            "CRC": checksum,
        };
        self.put(header.as_bytes())
    }

    fn put(&mut self, bytes: &[u8]) -> Result<()> {
        self.out.write_all(bytes).doing(write_failed)
    }
}

/// The checksum of documents as archives keep it.
#[derive(Clone, Copy, Debug)]
pub struct Checksum(Crc64);

impl Default for Checksum {
    fn default() -> Self {
        Self(Crc64::new())
    }
}

impl Checksum {
    /// Adds the next documents.
    pub fn add(&mut self, documents: &[u8]) {
        self.0.add(documents);
    }

    /// Of all that were added.
    pub fn value(self) -> i64 {
        self.0.sum() as i64
    }
}

/// What comes next in an archive.
#[derive(Clone, Debug, PartialEq)]
pub enum Part {
    /// A document of a namespace.
    Document(Namespace, Found),
    /// A namespace has ended, and its checksum was right.
    End(Namespace),
}

/// Reads an archive.
#[derive(Debug)]
pub struct ArchiveReader<R> {
    input: R,
    offset: u64,
    collections: Vec<Announced>,
    /// The namespace of the segment that is being read.
    current: Option<Namespace>,
    open: HashMap<Namespace, Checksum>,
    /// What was announced and has not ended, time series by the names of their buckets. Views need not end, as they
    /// have no documents.
    awaited: HashSet<Namespace>,
}

impl<R: Read> ArchiveReader<R> {
    /// Reads what comes before all documents.
    pub fn begin(input: R) -> Result<Self> {
        let mut reader = Self {
            input,
            offset: 0,
            collections: Vec::new(),
            current: None,
            open: HashMap::new(),
            awaited: HashSet::new(),
        };
        if reader.int()? != Some(MAGIC as i32) {
            return Err(reader.malformed("it is no archive, or a compressed one (--gzip)"));
        }
        let header = reader.document()?.ok_or_else(|| reader.malformed("it has no header"))?;
        let version = header.get_str("version").unwrap_or_default();
        if version != VERSION {
            return Err(reader.malformed(format!("its version is {version:?} and not {VERSION:?}")));
        }
        while let Some(entry) = reader.document()? {
            let announced = reader.announced(&entry)?;
            let kind = match entry.get_str("type") {
                Ok(kind) => CollectionKind::parse(kind),
                // Old archives do not say; the log has no metadata.
                Err(_) => Metadata::from_json(&announced.metadata, "archive")
                    .map_or(CollectionKind::Collection, |metadata| metadata.kind),
            };
            if kind != CollectionKind::View {
                reader.awaited.insert(announced.namespace.of_documents(kind));
            }
            reader.collections.push(announced);
            if reader.collections.len() > COLLECTIONS_MAX {
                return Err(reader.malformed(format!("more than {COLLECTIONS_MAX} collections")));
            }
        }
        Ok(reader)
    }

    /// What the archive has.
    pub fn collections(&self) -> &[Announced] {
        &self.collections
    }

    /// Bytes read so far, after decompression.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// The next part; `None` at a proper end.
    pub fn next_part(&mut self) -> Result<Option<Part>> {
        loop {
            if let Some(namespace) = &self.current {
                let namespace = namespace.clone();
                if let Some(document) = self.found()? {
                    self.open.entry(namespace.clone()).or_default().add(document.as_bytes());
                    return Ok(Some(Part::Document(namespace, document)));
                }
                self.current = None;
                continue;
            }
            let Some(header) = self.document_or_end()? else {
                return match self.open.keys().chain(&self.awaited).next() {
                    Some(namespace) => Err(self.malformed(format!("it stops before {namespace} has ended"))),
                    None => Ok(None),
                };
            };
            let namespace = self.namespace(&header)?;
            if !header.get_bool("EOF").unwrap_or(false) {
                self.current = Some(namespace);
                continue;
            }
            self.awaited.remove(&namespace);
            let expected = self.open.remove(&namespace).unwrap_or_default().value();
            let found = header.get_i64("CRC").unwrap_or_default();
            if expected != found {
                return Err(self.malformed(format!(
                    "checksum of {namespace}: {found:#018x} is written, {expected:#018x} is right"
                )));
            }
            if self.document()?.is_some() {
                return Err(self.malformed(format!("documents of {namespace} behind its end")));
            }
            return Ok(Some(Part::End(namespace)));
        }
    }

    fn announced(&self, entry: &RawDocument) -> Result<Announced> {
        let metadata = entry.get_str("metadata").unwrap_or_default().to_owned();
        Ok(Announced {
            namespace: self.namespace(entry)?,
            size_bytes: match Document::try_from(entry)
                .ok()
                .and_then(|entry| entry.get("size").cloned())
            {
                Some(bson::Bson::Int32(size)) => i64::from(size),
                Some(bson::Bson::Int64(size)) => size,
                _ => 0,
            },
            metadata,
            kind: crate::CollectionKind::parse(entry.get_str("type").unwrap_or_default()).name(),
        })
    }

    fn namespace(&self, document: &RawDocument) -> Result<Namespace> {
        match (document.get_str("db"), document.get_str("collection")) {
            (Ok(""), Ok("oplog")) => Ok(Namespace::oplog()),
            (Ok(database), Ok(collection)) if !database.is_empty() => Ok(Namespace::new(database, collection)),
            _ => Err(self.malformed("a header without db and collection")),
        }
    }

    /// A valid document, or `None` for a terminator.
    fn document(&mut self) -> Result<Option<RawDocumentBuf>> {
        self.found()?
            .map(|found| found.valid().map(ToOwned::to_owned))
            .transpose()
    }

    /// A document, or `None` for a terminator; the end of the stream is an error.
    fn found(&mut self) -> Result<Option<Found>> {
        match self.int()? {
            None => Err(self.malformed("it stops in the middle")),
            Some(TERMINATOR) => Ok(None),
            Some(length) => self.rest_of_document(length).map(Some),
        }
    }

    /// A document, or `None` for the end of the stream.
    fn document_or_end(&mut self) -> Result<Option<RawDocumentBuf>> {
        match self.int()? {
            None => Ok(None),
            Some(length) => self
                .rest_of_document(length)?
                .valid()
                .map(|found| Some(found.to_owned())),
        }
    }

    fn rest_of_document(&mut self, length: i32) -> Result<Found> {
        let began = self.offset - 4;
        let document = read_document(&mut self.input, length, began, "archive")?;
        self.offset += document.as_bytes().len() as u64 - 4;
        Ok(document)
    }

    /// Four bytes, or `None` when the stream ends before the first.
    fn int(&mut self) -> Result<Option<i32>> {
        let int = read_length(&mut self.input, "archive")?;
        self.offset += if int.is_some() { 4 } else { 0 };
        Ok(int)
    }

    fn malformed(&self, fault: impl Into<String>) -> DumpError {
        DumpError::Format {
            subject: "archive".to_owned(),
            fault: format!("{} (byte {})", fault.into(), self.offset),
        }
    }
}

/// Four bytes of a stream, or `None` when it ends before the first.
pub(crate) fn read_length(input: &mut impl Read, subject: &str) -> Result<Option<i32>> {
    let mut bytes = [0; 4];
    let mut filled = 0;
    while filled < bytes.len() {
        match input.read(&mut bytes[filled..]) {
            Ok(0) if filled == 0 => return Ok(None),
            Ok(0) => {
                return Err(DumpError::Format {
                    subject: subject.to_owned(),
                    fault: "it stops in the middle of a length".to_owned(),
                });
            }
            Ok(read) => filled += read,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error).doing(|| format!("reading {subject}")),
        }
    }
    Ok(Some(i32::from_le_bytes(bytes)))
}

/// The rest of a document whose length has been read, with its structure validated.
pub(crate) fn read_document(input: &mut impl Read, length: i32, offset: u64, subject: &str) -> Result<Found> {
    let size = usize::try_from(length).unwrap_or_default();
    if !(5..=DOCUMENT_INTERNAL_BYTES_MAX).contains(&size) {
        return Err(DumpError::Format {
            subject: subject.to_owned(),
            fault: format!("a document of {length} bytes at byte {offset}"),
        });
    }
    let mut bytes = Vec::with_capacity(size.min(64 << 10));
    bytes.extend_from_slice(&length.to_le_bytes());
    // `take` and not a buffer of `size`: a length that lies must not allocate more than there is.
    let rest = size as u64 - 4;
    let read = input
        .take(rest)
        .read_to_end(&mut bytes)
        .doing(|| format!("reading {subject}"))?;
    if read as u64 != rest {
        return Err(DumpError::Format {
            subject: subject.to_owned(),
            fault: format!("it stops in the middle of the document at byte {offset}"),
        });
    }
    let malformed = |source| DumpError::Bson {
        subject: subject.to_owned(),
        offset,
        source,
    };
    let invalid = wire::validate_structure(&bytes).map_err(malformed)?;
    let document = RawDocumentBuf::from_bytes(bytes).map_err(|error| DumpError::Format {
        subject: subject.to_owned(),
        fault: format!("the document at byte {offset}: {error}"),
    })?;
    Ok(Found::new(document, offset, invalid))
}

#[cfg(test)]
#[path = "archive_tests.rs"]
mod tests;
