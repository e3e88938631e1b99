//! Log entries read back: see `entry.rs`. Nothing is trusted.

use crate::cluster_time::{ClusterTime, EntryTime};
use crate::entry::*;
use crate::session_key::{Kept, SessionKey};
use crate::{RecordId, StorageError};
use bson::RawDocument;
use engine::{Seq, TableId};

/// What stands before an entry's operations.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct EntryHeader {
    pub(crate) version: u8,
    /// Zero in version 1.
    pub(crate) time: EntryTime,
    pub(crate) session: Option<EntrySession>,
    /// Some record ids are keys.
    pub(crate) has_keys: bool,
    /// The position of the first entry of the chain that this one goes on.
    pub(crate) chain_first: Option<Seq>,
    /// More entries of the chain follow.
    pub(crate) partial: bool,
}

/// Reads the operations of an entry in order.
pub(crate) struct EntryReader<'e> {
    seq: Seq,
    bytes: &'e [u8],
    offset: usize,
    left: u32,
    header: EntryHeader,
}

impl<'e> EntryReader<'e> {
    pub(crate) fn new(seq: Seq, bytes: &'e [u8]) -> Result<Self, StorageError> {
        let mut reader = Self {
            seq,
            bytes,
            offset: 0,
            left: 0,
            header: EntryHeader::default(),
        };
        let [version, flags, reserved @ .., c0, c1, c2, c3] = *reader.take_array::<HEADER_BYTES_V1>("header")?;
        let reserved_flags = match version {
            1 => u8::MAX,
            ENTRY_VERSION => !(FLAG_CONTINUES | FLAG_PARTIAL | FLAG_SESSION | FLAG_KEYS),
            _ => {
                let text = format!("version {version}, at most {ENTRY_VERSION} expected");
                return Err(reader.damaged_at(0, text));
            }
        };
        if flags & reserved_flags != 0 || reserved != [0; 2] {
            let text = format!("reserved bytes {flags} {reserved:?}, zeros expected");
            return Err(reader.damaged_at(FLAGS_OFFSET, text));
        }
        reader.header.version = version;
        reader.left = u32::from_le_bytes([c0, c1, c2, c3]);
        if version > 1 {
            reader.take_header(flags)?;
        }
        Ok(reader)
    }

    fn take_header(&mut self, flags: u8) -> Result<(), StorageError> {
        self.header.time = EntryTime {
            wall_ms: i64::from_le_bytes(*self.take_array("wall time")?),
            cluster: ClusterTime(u64::from_le_bytes(*self.take_array("cluster time")?)),
        };
        self.header.partial = flags & FLAG_PARTIAL != 0;
        self.header.has_keys = flags & FLAG_KEYS != 0;
        if flags & FLAG_CONTINUES != 0 {
            self.header.chain_first = Some(Seq(u64::from_le_bytes(*self.take_array("chain")?)));
        }
        if flags & FLAG_SESSION != 0 {
            self.header.session = Some(EntrySession {
                key: SessionKey {
                    id: *self.take_array("session")?,
                    user: *self.take_array("user")?,
                },
                txn_number: i64::from_le_bytes(*self.take_array("transaction number")?),
            });
        }
        Ok(())
    }

    pub(crate) fn header(&self) -> &EntryHeader {
        &self.header
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
        let known = match self.header.version {
            1 => TAGS_OF_V1.contains(&tag),
            _ => !matches!(tag, TAG_UPDATE_V1 | TAG_DELETE_V1),
        };
        let op = match tag {
            tag if !known => {
                let version = self.header.version;
                return Err(self.damaged_at(at, format!("operation {tag} in an entry of version {version}")));
            }
            TAG_INSERT => EntryOp::Insert {
                table: self.table()?,
                id: self.record_id()?,
                document: self.take_document()?,
            },
            TAG_UPDATE_V1 => EntryOp::Update {
                table: self.table()?,
                id: self.record_id()?,
                grown: None,
                new: NewVersion::Whole(self.take_document()?),
                pre_image: None,
            },
            TAG_REPLACE | TAG_UPDATE => self.take_update(tag)?,
            TAG_DELETE_V1 => EntryOp::Delete {
                table: self.table()?,
                id: self.record_id()?,
                old: None,
                pre_image: None,
                reason: Deletion::Asked,
            },
            TAG_DELETE => {
                let (table, id, bytes) = (self.table()?, self.record_id()?, self.number()?);
                let flags = self.take_flags(FLAG_PRE_IMAGE | FLAG_EVICTED)?;
                EntryOp::Delete {
                    table,
                    id,
                    old: Some((bytes, self.take_document()?)),
                    pre_image: self.take_pre_image(flags)?,
                    reason: match flags & FLAG_EVICTED {
                        0 => Deletion::Asked,
                        _ => Deletion::Evicted,
                    },
                }
            }
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
            TAG_STATEMENT => {
                let (id, at) = (i32::from_le_bytes(*self.take_array("statement")?), self.offset);
                let [kept] = *self.take_array("kept")?;
                EntryOp::Statement {
                    id,
                    kept: Kept::from_byte(kept)
                        .ok_or_else(|| self.damaged_at(at, format!("{kept} is kept, 0 to 3 expected")))?,
                }
            }
            TAG_NOTE => EntryOp::Note {
                document: self.take_document()?,
            },
            TAG_COMMAND => EntryOp::Command {
                document: self.take_document()?,
            },
            TAG_KEEP_SESSIONS => EntryOp::KeepSessions,
            TAG_FORGET_SESSIONS => EntryOp::ForgetSessions {
                before_ms: i64::from_le_bytes(*self.take_array("wall time")?),
            },
            TAG_STATISTICS => {
                let as_of = Seq(u64::from_le_bytes(*self.take_array("position")?));
                let names_from = Seq(u64::from_le_bytes(*self.take_array("position")?));
                let length = u64::from(self.number()?) * COUNTS_BYTES as u64;
                let length = usize::try_from(length).unwrap_or(usize::MAX);
                EntryOp::Statistics {
                    as_of: (as_of > Seq::ZERO).then_some(as_of),
                    names_from,
                    counts: Counts(self.take(length, "counts")?),
                }
            }
            other => return Err(self.damaged_at(at, format!("unknown operation {other}"))),
        };
        Ok(Some(op))
    }

    fn take_update(&mut self, tag: u8) -> Result<EntryOp<'e>, StorageError> {
        let (table, id) = (self.table()?, self.record_id()?);
        let grown = i32::from_le_bytes(*self.take_array("growth")?);
        let flags = self.take_flags(FLAG_PRE_IMAGE)?;
        let new = match tag {
            TAG_REPLACE => NewVersion::Whole(self.take_document()?),
            _ => NewVersion::Difference {
                key: self.take_document()?,
                diff: self.take_document()?,
            },
        };
        Ok(EntryOp::Update {
            table,
            id,
            grown: Some(grown),
            new,
            pre_image: self.take_pre_image(flags)?,
        })
    }

    fn take_flags(&mut self, known: u8) -> Result<u8, StorageError> {
        let at = self.offset;
        let [flags] = *self.take_array("flags")?;
        match flags & !known {
            0 => Ok(flags),
            _ => Err(self.damaged_at(at, format!("flags {flags}, none but {known} expected"))),
        }
    }

    /// What ends an operation that carries it.
    fn take_pre_image(&mut self, flags: u8) -> Result<Option<&'e RawDocument>, StorageError> {
        (flags & FLAG_PRE_IMAGE != 0).then(|| self.take_document()).transpose()
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

    fn number(&mut self) -> Result<u32, StorageError> {
        Ok(u32::from_le_bytes(*self.take_array("number")?))
    }

    fn table(&mut self) -> Result<TableId, StorageError> {
        Ok(TableId(u32::from_le_bytes(*self.take_array("table")?)))
    }

    fn record_id(&mut self) -> Result<RecordId, StorageError> {
        let at = self.offset;
        let number = u64::from_le_bytes(*self.take_array("record id")?);
        if number & KEY_BIT == 0 {
            return Ok(RecordId::Number(number));
        }
        if !self.header.has_keys {
            return Err(self.damaged_at(at, format!("record id {number:#x} in an entry without keys")));
        }
        let length = usize::try_from(number & !KEY_BIT).unwrap_or(usize::MAX);
        Ok(RecordId::Key(self.take(length, "key of a record")?.into()))
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
