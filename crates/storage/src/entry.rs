//! Log entries: bytes and back. The format is described in `docs/formats/log-entries.md`, the only description.
//!
//! An entry is a header and operations. A unit too large for one entry becomes a chain of entries, each with whole
//! operations, that is applied as one. Decoding trusts nothing: a bad tag, a length that leads outside, trailing bytes
//! or a wrong count are errors that name the byte. It allocates nothing but record ids that are keys.

use crate::cluster_time::EntryTime;
pub(crate) use crate::entry_reader::{EntryHeader, EntryReader};
use crate::history::size::documents_max;
use crate::limits::ENTRY_BYTES_MAX;
use crate::session_key::{Kept, SessionKey};
use crate::{RecordId, diff};
use bson::RawDocument;
use bytes::Bytes;
use engine::{Seq, TableId};

/// Version in the first byte of every entry that is written.
pub(crate) const ENTRY_VERSION: u8 = 2;
/// Header of the version.
pub(crate) const HEADER_BYTES: usize = 24;
pub(crate) const HEADER_BYTES_V1: usize = 8;
pub(crate) const FLAGS_OFFSET: usize = 1;
const COUNT_OFFSET: usize = 4;
const WALL_OFFSET: usize = 8;
const CLUSTER_OFFSET: usize = 16;

/// The entry goes on a chain: the chain's first position follows the header.
pub(crate) const FLAG_CONTINUES: u8 = 1;
/// More entries of the chain follow: nothing of it is applied yet.
pub(crate) const FLAG_PARTIAL: u8 = 2;
/// The session's fields follow.
pub(crate) const FLAG_SESSION: u8 = 4;
/// Some record ids are keys.
pub(crate) const FLAG_KEYS: u8 = 8;
const CHAIN_BYTES: usize = 8;

/// A record id with this bit is the length of a key, which follows.
pub(crate) const KEY_BIT: u64 = 1 << 63;

pub(crate) const TAG_INSERT: u8 = 1;
/// Of version 1: without sizes and keys.
pub(crate) const TAG_UPDATE_V1: u8 = 2;
/// Of version 1.
pub(crate) const TAG_DELETE_V1: u8 = 3;
pub(crate) const TAG_SET_MULTIKEY: u8 = 4;
pub(crate) const TAG_BUILD_CHUNK: u8 = 5;
pub(crate) const TAG_PUT_COLLECTION: u8 = 6;
pub(crate) const TAG_DROP_COLLECTION: u8 = 7;
pub(crate) const TAG_PUT_VIEW: u8 = 8;
pub(crate) const TAG_DROP_VIEW: u8 = 9;
pub(crate) const TAG_INITIALISE: u8 = 10;
pub(crate) const TAG_REPLACE: u8 = 11;
pub(crate) const TAG_UPDATE: u8 = 12;
pub(crate) const TAG_DELETE: u8 = 13;
pub(crate) const TAG_STATEMENT: u8 = 14;
pub(crate) const TAG_STATISTICS: u8 = 15;
pub(crate) const TAG_NOTE: u8 = 16;
pub(crate) const TAG_KEEP_SESSIONS: u8 = 17;
pub(crate) const TAG_FORGET_SESSIONS: u8 = 18;
pub(crate) const TAG_COMMAND: u8 = 19;
pub(crate) const TAGS_OF_V1: std::ops::RangeInclusive<u8> = TAG_INSERT..=TAG_INITIALISE;

/// A change carries the document as it was before.
pub(crate) const FLAG_PRE_IMAGE: u8 = 1;
/// A deletion makes room in a capped collection.
pub(crate) const FLAG_EVICTED: u8 = 2;

/// The logical session a unit belongs to, and its number in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EntrySession {
    pub(crate) key: SessionKey,
    pub(crate) txn_number: i64,
}

/// Why a document is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Deletion {
    Asked,
    /// To make room in a capped collection.
    Evicted,
}

/// The new version of a document.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum NewVersion<'e> {
    Whole(&'e RawDocument),
    /// What differs from the old one, see `diff.rs`; `key` is the document key (`{_id: …}`).
    Difference {
        key: &'e RawDocument,
        diff: &'e RawDocument,
    },
}

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
        /// New size less old size; `None` in version 1.
        grown: Option<i32>,
        new: NewVersion<'e>,
        pre_image: Option<&'e RawDocument>,
    },
    Delete {
        table: TableId,
        id: RecordId,
        /// Size and document key of what is deleted; `None` in version 1.
        old: Option<(u32, &'e RawDocument)>,
        pre_image: Option<&'e RawDocument>,
        reason: Deletion,
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
    /// The operations that follow belong to this statement of the session's transaction.
    Statement {
        id: i32,
        kept: Kept,
    },
    /// Something that changes nothing: that a term begins, that time goes on.
    Note {
        document: &'e RawDocument,
    },
    /// What the definitions before it are to those who read the log as history: `{ns, ui, o, o2}`, see `history.rs`.
    Command {
        document: &'e RawDocument,
    },
    /// Makes the table of sessions.
    KeepSessions,
    /// Sessions without a write since this wall time are forgotten.
    ForgetSessions {
        before_ms: i64,
    },
    /// The counts of collections as of this entry, and the first position whose table names are still needed. With
    /// `as_of` all counts that had changed by that entry have been written down.
    Statistics {
        as_of: Option<Seq>,
        names_from: Seq,
        counts: Counts<'e>,
    },
}

/// The index tables of a build chunk, 4 bytes each.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct IndexTables<'e>(pub(crate) &'e [u8]);

impl<'e> IndexTables<'e> {
    pub(crate) fn iter(self) -> impl Iterator<Item = TableId> + 'e {
        self.0
            .chunks_exact(4)
            .map(|id| TableId(u32::from_le_bytes([id[0], id[1], id[2], id[3]])))
    }
}

/// Documents and bytes of collections, 20 bytes each.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Counts<'e>(pub(crate) &'e [u8]);

pub(crate) const COUNTS_BYTES: usize = 20;

impl<'e> Counts<'e> {
    /// Table of documents, documents, bytes.
    pub(crate) fn iter(self) -> impl Iterator<Item = (TableId, i64, i64)> + 'e {
        self.0.chunks_exact(COUNTS_BYTES).map(|counts| {
            let [a, b, c, d, rest @ ..] = counts else {
                unreachable!("chunks of 20 bytes")
            };
            let number = |bytes: &[u8]| i64::from_le_bytes(bytes.try_into().expect("8 of 16 bytes"));
            let (count, bytes) = rest.split_at(8);
            let table = TableId(u32::from_le_bytes([*a, *b, *c, *d]));
            (table, number(count), number(bytes))
        })
    }
}

/// One entry that is being gathered: small pieces in one buffer, documents by reference.
#[derive(Default)]
struct Part {
    buffer: Vec<u8>,
    /// For each document: where in `buffer` it belongs, and its bytes.
    documents: Vec<(usize, Bytes)>,
    document_bytes: usize,
    count: u32,
}

impl Part {
    fn byte_len(&self) -> usize {
        self.buffer.len() + self.document_bytes
    }

    /// Hands the entry over in pieces.
    fn with_pieces<R>(&self, hand_over: impl FnOnce(&[&[u8]]) -> R) -> R {
        if let [(at, document)] = self.documents.as_slice() {
            return hand_over(&[&self.buffer[..*at], document, &self.buffer[*at..]]);
        }
        hand_over(&self.pieces())
    }

    fn pieces(&self) -> Vec<&[u8]> {
        let mut pieces: Vec<&[u8]> = Vec::with_capacity(self.documents.len() * 2 + 1);
        let mut done = 0;
        for (at, document) in &self.documents {
            pieces.extend([&self.buffer[done..*at], document]);
            done = *at;
        }
        pieces.push(&self.buffer[done..]);
        pieces
    }
}

/// Where an [`EntryWriter`] stood.
pub(crate) struct EntrySavepoint {
    full: usize,
    buffer: usize,
    documents: usize,
    document_bytes: usize,
    count: u32,
}

/// Gathers the operations of a unit into an entry, or a chain of entries.
pub(crate) struct EntryWriter {
    /// Those that are full.
    full: Vec<Part>,
    current: Part,
    /// Bytes and operations in `full`.
    full_bytes: usize,
    full_count: usize,
    commands: usize,
    /// An entry that would grow beyond so many bytes is full.
    part_bytes_max: usize,
    /// The epoch of what it was evaluated on (see `Pipeline`); when it has been proposed, that of its place.
    pub(crate) epoch: Option<u64>,
    /// Users' data, changed by who may not while users' writes are held off.
    pub(crate) is_users: bool,
    /// A checkpoint cannot go on without it.
    pub(crate) for_checkpoint: bool,
}

impl Default for EntryWriter {
    fn default() -> Self {
        Self::with_part_bytes(ENTRY_BYTES_MAX)
    }
}

impl EntryWriter {
    /// One that begins a new entry of the chain before so many bytes.
    pub(crate) fn with_part_bytes(part_bytes_max: usize) -> Self {
        Self {
            full: Vec::new(),
            current: Part::default(),
            full_bytes: 0,
            full_count: 0,
            commands: 0,
            part_bytes_max,
            epoch: None,
            is_users: false,
            for_checkpoint: false,
        }
    }

    /// Begins an operation of about so many bytes.
    fn begin(&mut self, tag: u8, bytes: usize) -> &mut Vec<u8> {
        if self.current.count > 0 && self.current.byte_len() + bytes > self.part_bytes_max {
            self.cut();
        }
        if self.current.buffer.is_empty() {
            self.begin_header(0);
        }
        self.current.count += 1;
        self.current.buffer.push(tag);
        &mut self.current.buffer
    }

    fn begin_header(&mut self, flags: u8) {
        let mut header = [0; HEADER_BYTES];
        // Most entries have one operation, and are shorter.
        self.current.buffer.reserve(BUFFER_BYTES_MIN);
        (header[0], header[FLAGS_OFFSET]) = (ENTRY_VERSION, flags);
        self.current.buffer.extend_from_slice(&header);
    }

    /// What follows goes into the next entry of the chain.
    fn cut(&mut self) {
        self.current.buffer[FLAGS_OFFSET] |= FLAG_PARTIAL;
        self.full_bytes += self.current.byte_len();
        self.full_count += self.current.count as usize;
        self.full.push(std::mem::take(&mut self.current));
        self.begin_header(FLAG_CONTINUES);
        self.current.buffer.extend_from_slice(&[0; CHAIN_BYTES]);
    }

    fn record(&mut self, tag: u8, table: TableId, id: &RecordId, bytes: usize) -> &mut Vec<u8> {
        let buffer = self.begin(tag, bytes + id.to_key().len());
        buffer.extend_from_slice(&table.0.to_le_bytes());
        put_record_id(buffer, id);
        buffer
    }

    fn document(&mut self, document: Bytes) {
        self.current.document_bytes += document.len();
        self.current.documents.push((self.current.buffer.len(), document));
    }

    /// The session of all operations, before the first one.
    pub(crate) fn session(&mut self, session: &EntrySession) {
        assert!(self.current.buffer.is_empty(), "the session comes first");
        self.begin_header(FLAG_SESSION);
        let buffer = &mut self.current.buffer;
        buffer.extend_from_slice(&session.key.id);
        buffer.extend_from_slice(&session.key.user);
        buffer.extend_from_slice(&session.txn_number.to_le_bytes());
    }

    /// The statement of the operations that follow.
    pub(crate) fn statement(&mut self, id: i32, kept: Kept) {
        let buffer = self.begin(TAG_STATEMENT, 0);
        buffer.extend_from_slice(&id.to_le_bytes());
        buffer.push(kept as u8);
    }

    pub(crate) fn note(&mut self, document: &RawDocument) {
        let bytes = document.as_bytes();
        self.begin(TAG_NOTE, bytes.len()).extend_from_slice(bytes);
    }

    /// See [`EntryOp::Command`].
    pub(crate) fn command(&mut self, document: &RawDocument) {
        let bytes = document.as_bytes();
        self.begin(TAG_COMMAND, bytes.len()).extend_from_slice(bytes);
        self.commands += 1;
    }

    pub(crate) fn keep_sessions(&mut self) {
        self.begin(TAG_KEEP_SESSIONS, 0);
    }

    pub(crate) fn forget_sessions(&mut self, before_ms: i64) {
        self.begin(TAG_FORGET_SESSIONS, 0)
            .extend_from_slice(&before_ms.to_le_bytes());
    }

    pub(crate) fn insert(&mut self, table: TableId, id: &RecordId, document: Bytes) {
        self.record(TAG_INSERT, table, id, document.len());
        self.document(document);
    }

    /// A new version: the difference from the old one, where there is one, else the whole.
    pub(crate) fn update(
        &mut self,
        table: TableId,
        id: &RecordId,
        old_bytes: usize,
        new: &Bytes,
        difference: Option<&[u8]>,
        pre_image: Option<Bytes>,
    ) {
        let grown = i32::try_from(new.len() as i64 - old_bytes as i64).expect("documents are below 2 GiB");
        let pre_image_bytes = pre_image.as_ref().map_or(0, Bytes::len);
        let new_bytes = difference.map_or(0, <[u8]>::len).max(new.len());
        let buffer = self.record(TAG_UPDATE, table, id, new_bytes + pre_image_bytes);
        let tag_at = buffer.len() - OPERATION_HEAD_BYTES - record_id_bytes(id);
        buffer.extend_from_slice(&grown.to_le_bytes());
        buffer.push(if pre_image.is_some() { FLAG_PRE_IMAGE } else { 0 });
        let difference = difference.filter(|_| diff::append_key(new, buffer).is_some());
        match difference {
            Some(difference) => buffer.extend_from_slice(difference),
            None => {
                buffer[tag_at] = TAG_REPLACE;
                self.document(new.clone());
            }
        }
        if let Some(pre_image) = pre_image {
            self.document(pre_image);
        }
    }

    /// `old` is the document as it is stored.
    pub(crate) fn delete(
        &mut self,
        table: TableId,
        id: &RecordId,
        old: &RawDocument,
        reason: Deletion,
        pre_image: Option<Bytes>,
    ) {
        let pre_image_bytes = pre_image.as_ref().map_or(0, Bytes::len);
        let buffer = self.record(TAG_DELETE, table, id, pre_image_bytes);
        let bytes = u32::try_from(old.as_bytes().len()).expect("documents are below 2 GiB");
        buffer.extend_from_slice(&bytes.to_le_bytes());
        let evicted = if reason == Deletion::Evicted { FLAG_EVICTED } else { 0 };
        buffer.push(evicted | if pre_image.is_some() { FLAG_PRE_IMAGE } else { 0 });
        if diff::append_key(old.as_bytes(), buffer).is_none() {
            // A document that was damaged is deleted all the same.
            buffer.extend_from_slice(&EMPTY_DOCUMENT);
        }
        if let Some(pre_image) = pre_image {
            self.document(pre_image);
        }
    }

    pub(crate) fn set_multikey(&mut self, index_table: TableId, field: u8, part: u8) {
        let buffer = self.begin(TAG_SET_MULTIKEY, 0);
        buffer.extend_from_slice(&index_table.0.to_le_bytes());
        buffer.extend_from_slice(&[field, part]);
    }

    pub(crate) fn build_chunk(&mut self, table: TableId, first: &RecordId, last: &RecordId, indexes: &[TableId]) {
        let ids_bytes = record_id_bytes(first) + record_id_bytes(last);
        let buffer = self.begin(TAG_BUILD_CHUNK, ids_bytes);
        buffer.extend_from_slice(&table.0.to_le_bytes());
        put_record_id(buffer, first);
        put_record_id(buffer, last);
        buffer.push(u8::try_from(indexes.len()).expect("a collection has at most 64 indexes"));
        for index in indexes {
            buffer.extend_from_slice(&index.0.to_le_bytes());
        }
    }

    pub(crate) fn put_collection(&mut self, row: &RawDocument) {
        let bytes = row.as_bytes();
        self.begin(TAG_PUT_COLLECTION, bytes.len()).extend_from_slice(bytes);
    }

    pub(crate) fn drop_collection(&mut self, uuid: [u8; 16]) {
        self.begin(TAG_DROP_COLLECTION, 0).extend_from_slice(&uuid);
    }

    pub(crate) fn put_view(&mut self, row: &RawDocument) {
        let bytes = row.as_bytes();
        self.begin(TAG_PUT_VIEW, bytes.len()).extend_from_slice(bytes);
    }

    pub(crate) fn drop_view(&mut self, namespace: &str) {
        let length = u16::try_from(namespace.len()).expect("a namespace has at most 255 bytes");
        let buffer = self.begin(TAG_DROP_VIEW, namespace.len());
        buffer.extend_from_slice(&length.to_le_bytes());
        buffer.extend_from_slice(namespace.as_bytes());
    }

    pub(crate) fn initialise(&mut self) {
        self.begin(TAG_INITIALISE, 0);
    }

    /// Table of documents, documents, bytes; see [`EntryOp::Statistics`].
    pub(crate) fn statistics(&mut self, as_of: Option<Seq>, names_from: Seq, counts: &[(TableId, i64, i64)]) {
        self.for_checkpoint = true;
        let buffer = self.begin(TAG_STATISTICS, counts.len() * COUNTS_BYTES);
        buffer.extend_from_slice(&as_of.unwrap_or(Seq::ZERO).0.to_le_bytes());
        buffer.extend_from_slice(&names_from.0.to_le_bytes());
        let number = u32::try_from(counts.len()).expect("table ids have 32 bits");
        buffer.extend_from_slice(&number.to_le_bytes());
        for (table, count, bytes) in counts {
            buffer.extend_from_slice(&table.0.to_le_bytes());
            buffer.extend_from_slice(&count.to_le_bytes());
            buffer.extend_from_slice(&bytes.to_le_bytes());
        }
    }

    /// Where the entry stands, for [`EntryWriter::roll_back`].
    pub(crate) fn savepoint(&self) -> EntrySavepoint {
        EntrySavepoint {
            full: self.full.len(),
            buffer: self.current.buffer.len(),
            documents: self.current.documents.len(),
            document_bytes: self.current.document_bytes,
            count: self.current.count,
        }
    }

    /// Forgets what was gathered since.
    pub(crate) fn roll_back(&mut self, to: &EntrySavepoint) {
        while self.full.len() > to.full {
            self.current = self.full.pop().expect("it is longer");
            self.current.buffer[FLAGS_OFFSET] &= !FLAG_PARTIAL;
            self.full_bytes -= self.current.byte_len();
            self.full_count -= self.current.count as usize;
        }
        let current = &mut self.current;
        current.buffer.truncate(to.buffer);
        current.documents.truncate(to.documents);
        (current.document_bytes, current.count) = (to.document_bytes, to.count);
    }

    /// Operations gathered.
    pub(crate) fn count(&self) -> usize {
        self.full_count + self.current.count as usize
    }

    /// Length of the entries so far.
    pub(crate) fn byte_len(&self) -> usize {
        self.full_bytes + self.current.byte_len()
    }

    /// Entries that it becomes.
    pub(crate) fn entries(&self) -> u64 {
        self.full.len() as u64 + 1
    }

    /// Points of cluster time that those need who read it as history: one for each document they make of it.
    pub(crate) fn ticks(&self) -> u64 {
        let documents = documents_max(self.byte_len(), self.count());
        documents + self.commands as u64
    }

    /// Hands the entries over, all at once, in order, each in pieces. `first` is the position that the first of them
    /// gets. A chain of which the log takes a part only has no end, and is dropped by readers.
    pub(crate) fn hand_over<R>(&mut self, first: Seq, time: EntryTime, hand_over: impl FnOnce(&[&[&[u8]]]) -> R) -> R {
        for part in self.full.iter_mut().chain([&mut self.current]) {
            let buffer = &mut part.buffer;
            buffer[COUNT_OFFSET..COUNT_OFFSET + 4].copy_from_slice(&part.count.to_le_bytes());
            buffer[WALL_OFFSET..WALL_OFFSET + 8].copy_from_slice(&time.wall_ms.to_le_bytes());
            buffer[CLUSTER_OFFSET..CLUSTER_OFFSET + 8].copy_from_slice(&time.cluster.0.to_le_bytes());
            if buffer[FLAGS_OFFSET] & FLAG_CONTINUES != 0 {
                buffer[HEADER_BYTES..HEADER_BYTES + CHAIN_BYTES].copy_from_slice(&first.0.to_le_bytes());
            }
        }
        if self.full.is_empty() {
            return self.current.with_pieces(|pieces| hand_over(&[pieces]));
        }
        let entries: Vec<_> = self.full.iter().chain([&self.current]).map(Part::pieces).collect();
        let entries: Vec<_> = entries.iter().map(Vec::as_slice).collect();
        hand_over(&entries)
    }
}

/// Tag and table of an operation on a record.
const OPERATION_HEAD_BYTES: usize = 5;

/// Appends a record id to an entry's bytes. Whoever reads an entry with keys has to know of them.
fn put_record_id(buffer: &mut Vec<u8>, id: &RecordId) {
    match id {
        RecordId::Number(number) => buffer.extend_from_slice(&number.to_le_bytes()),
        RecordId::Key(key) => {
            buffer.extend_from_slice(&(key.len() as u64 | KEY_BIT).to_le_bytes());
            buffer.extend_from_slice(key);
            buffer[FLAGS_OFFSET] |= FLAG_KEYS;
        }
    }
}

/// What [`put_record_id`] appends.
fn record_id_bytes(id: &RecordId) -> usize {
    match id {
        RecordId::Number(_) => size_of::<u64>(),
        RecordId::Key(key) => size_of::<u64>() + key.len(),
    }
}

const BUFFER_BYTES_MIN: usize = 256;

const EMPTY_DOCUMENT: [u8; 5] = [5, 0, 0, 0, 0];

#[cfg(test)]
#[path = "entry_tests.rs"]
pub(crate) mod tests;
