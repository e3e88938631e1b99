//! Log entries: bytes and back. The format is described in `docs/formats/log-entries.md`, the only description.
//!
//! An entry is a header and operations. Decoding trusts nothing: a bad tag, a length that leads outside, trailing bytes or
//! a wrong count are errors that name the byte. It allocates nothing.

use crate::{RecordId, StorageError};
use bson::RawDocument;
use bytes::Bytes;
use engine::{Seq, TableId};

/// Version in the first byte of every entry.
pub(crate) const ENTRY_VERSION: u8 = 1;
pub(crate) const HEADER_BYTES: usize = 8;
pub(crate) const COUNT_OFFSET: usize = 4;

pub(crate) const TAG_INSERT: u8 = 1;
pub(crate) const TAG_UPDATE: u8 = 2;
pub(crate) const TAG_DELETE: u8 = 3;
pub(crate) const TAG_SET_MULTIKEY: u8 = 4;
pub(crate) const TAG_BUILD_CHUNK: u8 = 5;
pub(crate) const TAG_PUT_COLLECTION: u8 = 6;
pub(crate) const TAG_DROP_COLLECTION: u8 = 7;
pub(crate) const TAG_PUT_VIEW: u8 = 8;
pub(crate) const TAG_DROP_VIEW: u8 = 9;
pub(crate) const TAG_INITIALISE: u8 = 10;

/// One operation of an entry.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum EntryOp<'e> {
    Insert {
        table: TableId,
        id: RecordId,
        document: &'e RawDocument,
    },
    Update {
        table: TableId,
        id: RecordId,
        document: &'e RawDocument,
    },
    Delete {
        table: TableId,
        id: RecordId,
    },
    SetMultikey {
        index_table: TableId,
        field: u8,
        part: u8,
    },
    BuildChunk {
        table: TableId,
        first: RecordId,
        last: RecordId,
        indexes: IndexTables<'e>,
    },
    PutCollection {
        row: &'e RawDocument,
    },
    DropCollection {
        uuid: [u8; 16],
    },
    PutView {
        row: &'e RawDocument,
    },
    DropView {
        namespace: &'e str,
    },
    Initialise,
}

/// The index tables of a build chunk, 4 bytes each.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct IndexTables<'e>(&'e [u8]);

impl<'e> IndexTables<'e> {
    pub(crate) fn iter(self) -> impl Iterator<Item = TableId> + 'e {
        self.0
            .chunks_exact(4)
            .map(|id| TableId(u32::from_le_bytes([id[0], id[1], id[2], id[3]])))
    }
}

/// Gathers an entry: small pieces in one buffer, documents by reference.
#[derive(Default)]
pub(crate) struct EntryWriter {
    buffer: Vec<u8>,
    /// For each document: where in `buffer` it belongs, and its bytes.
    documents: Vec<(usize, Bytes)>,
    document_bytes: usize,
    count: u32,
}

impl EntryWriter {
    fn begin(&mut self, tag: u8) -> &mut Vec<u8> {
        if self.buffer.is_empty() {
            self.buffer.extend_from_slice(&[ENTRY_VERSION, 0, 0, 0, 0, 0, 0, 0]);
        }
        self.count += 1;
        self.buffer.push(tag);
        &mut self.buffer
    }

    fn record(&mut self, tag: u8, table: TableId, id: RecordId) {
        let buffer = self.begin(tag);
        buffer.extend_from_slice(&table.0.to_le_bytes());
        buffer.extend_from_slice(&id.0.to_le_bytes());
    }

    fn document(&mut self, document: Bytes) {
        self.document_bytes += document.len();
        self.documents.push((self.buffer.len(), document));
    }

    pub(crate) fn insert(&mut self, table: TableId, id: RecordId, document: Bytes) {
        self.record(TAG_INSERT, table, id);
        self.document(document);
    }

    pub(crate) fn update(&mut self, table: TableId, id: RecordId, document: Bytes) {
        self.record(TAG_UPDATE, table, id);
        self.document(document);
    }

    pub(crate) fn delete(&mut self, table: TableId, id: RecordId) {
        self.record(TAG_DELETE, table, id);
    }

    pub(crate) fn set_multikey(&mut self, index_table: TableId, field: u8, part: u8) {
        let buffer = self.begin(TAG_SET_MULTIKEY);
        buffer.extend_from_slice(&index_table.0.to_le_bytes());
        buffer.extend_from_slice(&[field, part]);
    }

    pub(crate) fn build_chunk(&mut self, table: TableId, first: RecordId, last: RecordId, indexes: &[TableId]) {
        let buffer = self.begin(TAG_BUILD_CHUNK);
        buffer.extend_from_slice(&table.0.to_le_bytes());
        buffer.extend_from_slice(&first.0.to_le_bytes());
        buffer.extend_from_slice(&last.0.to_le_bytes());
        buffer.push(u8::try_from(indexes.len()).expect("a collection has at most 64 indexes"));
        for index in indexes {
            buffer.extend_from_slice(&index.0.to_le_bytes());
        }
    }

    pub(crate) fn put_collection(&mut self, row: &RawDocument) {
        self.begin(TAG_PUT_COLLECTION).extend_from_slice(row.as_bytes());
    }

    pub(crate) fn drop_collection(&mut self, uuid: [u8; 16]) {
        self.begin(TAG_DROP_COLLECTION).extend_from_slice(&uuid);
    }

    pub(crate) fn put_view(&mut self, row: &RawDocument) {
        self.begin(TAG_PUT_VIEW).extend_from_slice(row.as_bytes());
    }

    pub(crate) fn drop_view(&mut self, namespace: &str) {
        let length = u16::try_from(namespace.len()).expect("a namespace has at most 255 bytes");
        let buffer = self.begin(TAG_DROP_VIEW);
        buffer.extend_from_slice(&length.to_le_bytes());
        buffer.extend_from_slice(namespace.as_bytes());
    }

    pub(crate) fn initialise(&mut self) {
        self.begin(TAG_INITIALISE);
    }

    /// Operations gathered.
    pub(crate) fn count(&self) -> usize {
        self.count as usize
    }

    /// Length of the entry so far.
    pub(crate) fn byte_len(&self) -> usize {
        self.buffer.len() + self.document_bytes
    }

    /// Hands the finished entry over in parts.
    pub(crate) fn with_parts<R>(&mut self, hand_over: impl FnOnce(&[&[u8]]) -> R) -> R {
        self.buffer[COUNT_OFFSET..HEADER_BYTES].copy_from_slice(&self.count.to_le_bytes());
        if let [(at, document)] = self.documents.as_slice() {
            return hand_over(&[&self.buffer[..*at], document, &self.buffer[*at..]]);
        }
        let mut parts: Vec<&[u8]> = Vec::with_capacity(self.documents.len() * 2 + 1);
        let mut done = 0;
        for (at, document) in &self.documents {
            parts.extend([&self.buffer[done..*at], document]);
            done = *at;
        }
        parts.push(&self.buffer[done..]);
        hand_over(&parts)
    }
}

/// Reads the operations of an entry in order.
pub(crate) struct EntryReader<'e> {
    seq: Seq,
    bytes: &'e [u8],
    offset: usize,
    left: u32,
}

impl<'e> EntryReader<'e> {
    pub(crate) fn new(seq: Seq, bytes: &'e [u8]) -> Result<Self, StorageError> {
        let mut reader = Self {
            seq,
            bytes,
            offset: 0,
            left: 0,
        };
        let header: &[u8; HEADER_BYTES] = reader.take_array("header")?;
        let [version, reserved @ .., c0, c1, c2, c3] = *header;
        if version != ENTRY_VERSION {
            return Err(reader.damaged_at(0, format!("version {version}, {ENTRY_VERSION} expected")));
        }
        if reserved != [0; 3] {
            return Err(reader.damaged_at(1, format!("reserved bytes {reserved:?}, zeros expected")));
        }
        reader.left = u32::from_le_bytes([c0, c1, c2, c3]);
        Ok(reader)
    }

    /// The next operation; `None` after the last one.
    pub(crate) fn next_op(&mut self) -> Result<Option<EntryOp<'e>>, StorageError> {
        if self.left == 0 {
            return match self.bytes.len() - self.offset {
                0 => Ok(None),
                more => Err(self.damaged(format!("{more} bytes after the last operation"))),
            };
        }
        self.left -= 1;
        let at = self.offset;
        let [tag] = *self.take_array("tag")?;
        let op = match tag {
            TAG_INSERT => EntryOp::Insert {
                table: self.table()?,
                id: self.record_id()?,
                document: self.take_document()?,
            },
            TAG_UPDATE => EntryOp::Update {
                table: self.table()?,
                id: self.record_id()?,
                document: self.take_document()?,
            },
            TAG_DELETE => EntryOp::Delete {
                table: self.table()?,
                id: self.record_id()?,
            },
            TAG_SET_MULTIKEY => {
                let (index_table, [field, part]) = (self.table()?, *self.take_array("place")?);
                EntryOp::SetMultikey {
                    index_table,
                    field,
                    part,
                }
            }
            TAG_BUILD_CHUNK => self.take_build_chunk()?,
            TAG_PUT_COLLECTION => EntryOp::PutCollection {
                row: self.take_document()?,
            },
            TAG_DROP_COLLECTION => EntryOp::DropCollection {
                uuid: *self.take_array("uuid")?,
            },
            TAG_PUT_VIEW => EntryOp::PutView {
                row: self.take_document()?,
            },
            TAG_DROP_VIEW => {
                let length = u16::from_le_bytes(*self.take_array("name length")?);
                let at = self.offset;
                let name = std::str::from_utf8(self.take(usize::from(length), "name")?);
                EntryOp::DropView {
                    namespace: name.map_err(|_| self.damaged_at(at, "name is not UTF-8".to_owned()))?,
                }
            }
            TAG_INITIALISE => EntryOp::Initialise,
            other => return Err(self.damaged_at(at, format!("unknown operation {other}"))),
        };
        Ok(Some(op))
    }

    fn take_build_chunk(&mut self) -> Result<EntryOp<'e>, StorageError> {
        let (table, first, last) = (self.table()?, self.record_id()?, self.record_id()?);
        let [indexes] = *self.take_array("index count")?;
        let indexes = IndexTables(self.take(usize::from(indexes) * 4, "index tables")?);
        Ok(EntryOp::BuildChunk {
            table,
            first,
            last,
            indexes,
        })
    }

    fn table(&mut self) -> Result<TableId, StorageError> {
        Ok(TableId(u32::from_le_bytes(*self.take_array("table")?)))
    }

    fn record_id(&mut self) -> Result<RecordId, StorageError> {
        Ok(RecordId(u64::from_le_bytes(*self.take_array("record id")?)))
    }

    fn take_document(&mut self) -> Result<&'e RawDocument, StorageError> {
        let at = self.offset;
        let length = i32::from_le_bytes(*self.take_array("document length")?);
        self.offset = at;
        let length = usize::try_from(length).unwrap_or(0);
        let bytes = self.take(length, "document")?;
        RawDocument::from_bytes(bytes).map_err(|error| self.damaged_at(at, format!("document: {error}")))
    }

    fn take_array<const N: usize>(&mut self, what: &str) -> Result<&'e [u8; N], StorageError> {
        let bytes = self.take(N, what)?;
        Ok(bytes.try_into().expect("took N bytes"))
    }

    fn take(&mut self, length: usize, what: &str) -> Result<&'e [u8], StorageError> {
        match self.bytes.get(self.offset..self.offset.saturating_add(length)) {
            Some(taken) => {
                self.offset += length;
                Ok(taken)
            }
            None => Err(self.damaged(format!(
                "{what} of {length} bytes, {} left",
                self.bytes.len() - self.offset
            ))),
        }
    }

    fn damaged(&self, reason: String) -> StorageError {
        self.damaged_at(self.offset, reason)
    }

    /// An error that names a byte of the entry.
    pub(crate) fn damaged_at(&self, offset: usize, reason: String) -> StorageError {
        StorageError::CorruptEntry {
            seq: self.seq,
            offset,
            reason,
        }
    }

    /// The byte after the operation read last.
    pub(crate) fn offset(&self) -> usize {
        self.offset
    }
}

#[cfg(test)]
#[path = "entry_tests.rs"]
mod tests;
