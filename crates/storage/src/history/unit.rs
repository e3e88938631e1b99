//! One unit of the log, decoded.

use super::size::{DOCUMENT_OPERATION_BYTES_MAX, OPERATION_FRAME_BYTES, told_bytes};
use crate::catalog::rows::CollectionRow;
use crate::cluster_time::ClusterTime;
use crate::diff;
use crate::entry::{Deletion, EntryOp, EntryReader, NewVersion};
use crate::{Namespace, Storage, StorageError};
use bson::RawDocument;
use bytes::Bytes;
use engine::{Seq, TableId};

/// The session that made a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HistorySession {
    /// The logical session's id.
    pub id: [u8; 16],
    /// The digest of its user.
    pub user: [u8; 32],
    /// Its number in the session.
    pub txn_number: i64,
    /// A transaction, not a write that may be sent again.
    pub is_transaction: bool,
}

/// What one operation did. Documents are BSON that has been checked.
#[derive(Clone, Debug)]
pub enum HistoryChange {
    /// A document came.
    Insert {
        /// The document.
        document: Bytes,
    },
    /// Fields of a document changed.
    Update {
        /// `{_id: …}`.
        key: Bytes,
        /// `{d, u, i, s…}`, see `docs/formats/log-entries.md`.
        difference: Bytes,
        /// The document before, where the collection keeps it.
        pre_image: Option<Bytes>,
    },
    /// A document was replaced.
    Replace {
        /// The new one.
        document: Bytes,
        /// The document before, where the collection keeps it.
        pre_image: Option<Bytes>,
    },
    /// A document went.
    Delete {
        /// `{_id: …}`.
        key: Bytes,
        /// The document before, where the collection keeps it.
        pre_image: Option<Bytes>,
    },
    /// A definition changed: `{ns, ui, o, o2}`.
    Command {
        /// As it is logged.
        document: Bytes,
    },
    /// Nothing changed: `o`.
    Note {
        /// What was noted.
        document: Bytes,
    },
}

/// One operation of a unit.
#[derive(Clone, Debug)]
pub struct HistoryOperation {
    /// The collection, as it was called then; of a command the database, of a note nothing.
    pub ns: Option<Namespace>,
    /// The collection's identity.
    pub uuid: Option<[u8; 16]>,
    /// The statement of the session.
    pub statement: Option<i32>,
    /// What it did.
    pub change: HistoryChange,
}

/// What took effect at once.
#[derive(Debug)]
pub struct HistoryUnit {
    /// The position of its last entry.
    pub seq: Seq,
    /// When it was made, for those who order history by it.
    pub time: ClusterTime,
    /// When it was made, in milliseconds since the Unix epoch.
    pub wall_ms: i64,
    /// The term of the log.
    pub term: u64,
    /// Who made it.
    pub session: Option<HistorySession>,
    /// What it did, never empty.
    pub operations: Vec<HistoryOperation>,
    /// About what it takes in memory.
    pub bytes: usize,
}

/// Entries of one unit, put together.
pub(super) struct Decoder {
    seq: Seq,
    unit: Option<HistoryUnit>,
    statement: Option<i32>,
    /// Collections that the unit makes: the catalog may not have them yet.
    made: Vec<(TableId, Namespace, [u8; 16])>,
}

impl Decoder {
    pub(super) fn new() -> Self {
        Self {
            seq: Seq::ZERO,
            unit: None,
            statement: None,
            made: Vec::new(),
        }
    }

    /// Whether entries of a unit are missing.
    pub(super) fn is_open(&self) -> bool {
        self.unit.is_some()
    }

    /// Adds an entry; answers the unit when it is its last one and it did something.
    ///
    /// Errors: [`StorageError::HistoryLost`] when the log has let the entry go, and damage.
    pub(super) fn add(
        &mut self,
        storage: &Storage,
        entry: (Seq, &Bytes, u64),
    ) -> Result<Option<HistoryUnit>, StorageError> {
        let added = self.decode(storage, entry);
        // A slow reader may have what it reads from a segment that was recycled meanwhile. What tables were called then
        // is forgotten together with the segment, so that the names found may be later ones: look after they were
        // found.
        match entry.0 < storage.history_floor() {
            true => Err(StorageError::HistoryLost),
            false => added,
        }
    }

    fn decode(
        &mut self,
        storage: &Storage,
        (seq, bytes, term): (Seq, &Bytes, u64),
    ) -> Result<Option<HistoryUnit>, StorageError> {
        let mut reader = EntryReader::new(seq, bytes)?;
        let header = *reader.header();
        match header.chain_first {
            // What a chain without an end left behind never took effect.
            None => {
                (self.unit, self.statement) = (None, None);
                self.made.clear();
            }
            Some(_) if self.unit.is_some() && self.seq.next() == seq => {}
            // The log begins within the chain. The rest alone is no unit: operations are known by their number in it.
            Some(_) => return Err(StorageError::HistoryLost),
        }
        self.seq = seq;
        let unit = self.unit.get_or_insert_with(|| HistoryUnit {
            seq,
            time: header.time.cluster,
            wall_ms: header.time.wall_ms,
            term,
            session: header.session.map(|session| HistorySession {
                id: session.key.id,
                user: session.key.user,
                txn_number: session.txn_number,
                is_transaction: true,
            }),
            operations: Vec::new(),
            bytes: 0,
        });
        unit.seq = seq;
        unit.bytes += bytes.len();
        while let Some(op) = reader.next_op()? {
            if let EntryOp::Statement { id, .. } = op {
                self.statement = Some(id);
                if let Some(session) = &mut unit.session {
                    session.is_transaction = false;
                }
                continue;
            }
            if let EntryOp::PutCollection { row } = op {
                let row = CollectionRow::parse(row).map_err(|reason| reader.damaged_at(0, reason))?;
                self.made.push((row.table, row.namespace, row.uuid));
                continue;
            }
            let made = |table| self.made.iter().rev().find(|(of, ..)| *of == table);
            let name = |table: TableId| match made(table) {
                Some((_, ns, uuid)) => Some((ns.clone(), *uuid)),
                None => storage.name_of_table(table, seq),
            };
            let operation = operation(&name, (seq, bytes), op, self.statement);
            unit.operations.extend(operation?);
        }
        if header.partial {
            return Ok(None);
        }
        self.statement = None;
        let unit = self.unit.take().filter(|unit| !unit.operations.is_empty());
        Ok(unit.map(|mut unit| {
            unit.operations.shrink_to_fit();
            unit.bytes += unit.operations.len() * size_of::<HistoryOperation>();
            unit
        }))
    }
}

fn operation(
    name: &dyn Fn(TableId) -> Option<(Namespace, [u8; 16])>,
    (seq, bytes): (Seq, &Bytes),
    op: EntryOp<'_>,
    statement: Option<i32>,
) -> Result<Option<HistoryOperation>, StorageError> {
    let part = |document: &RawDocument| bytes.slice_ref(document.as_bytes());
    let damaged = |reason: String| StorageError::CorruptEntry { seq, offset: 0, reason };
    let (table, change) = match op {
        EntryOp::Insert { table, document, .. } => {
            let document = part(document);
            (table, HistoryChange::Insert { document })
        }
        EntryOp::Update {
            table, new, pre_image, ..
        } => {
            let pre_image = pre_image.map(part);
            let change = match new {
                NewVersion::Whole(document) => HistoryChange::Replace {
                    document: part(document),
                    pre_image,
                },
                NewVersion::Difference { key, diff } => HistoryChange::Update {
                    key: part(key),
                    difference: part(diff),
                    pre_image,
                },
            };
            (table, change)
        }
        // No client deleted what made room; entries of version 1 do not tell what was deleted.
        EntryOp::Delete {
            reason: Deletion::Evicted,
            ..
        }
        | EntryOp::Delete { old: None, .. } => return Ok(None),
        EntryOp::Delete {
            table,
            old: Some((_, key)),
            pre_image,
            ..
        } => {
            let (key, pre_image) = (part(key), pre_image.map(part));
            (table, HistoryChange::Delete { key, pre_image })
        }
        EntryOp::Command { document } => {
            let database = document.get_str("ns").ok().and_then(|ns| ns.strip_suffix(".$cmd"));
            let database = database.ok_or_else(|| damaged("a command's namespace is no database".to_owned()))?;
            let uuid = document.get_binary("ui").ok();
            return Ok(Some(HistoryOperation {
                ns: Some(Namespace::of_database(database)?),
                uuid: uuid.and_then(|uuid| uuid.bytes.try_into().ok()),
                statement,
                change: HistoryChange::Command {
                    document: part(document),
                },
            }));
        }
        EntryOp::Note { document } => {
            return Ok(Some(HistoryOperation {
                ns: None,
                uuid: None,
                statement,
                change: HistoryChange::Note {
                    document: part(document),
                },
            }));
        }
        _ => return Ok(None),
    };
    let (ns, uuid) = name(table).ok_or_else(|| damaged(format!("nothing tells the name of table {}", table.0)))?;
    // What belongs to this server alone is nobody's history.
    Ok((ns.db() != "local").then_some(HistoryOperation {
        ns: Some(ns),
        uuid: Some(uuid),
        statement,
        change,
    }))
}

impl HistoryUnit {
    /// The operations in parts of which each fits into one document, with the time of each. A command and a note stand
    /// alone.
    pub fn documents(&self) -> Vec<(ClusterTime, &[HistoryOperation])> {
        // A transaction is told as a whole.
        let is_transaction = self.session.is_some_and(|session| session.is_transaction);
        let stands_alone = |operation: &HistoryOperation| !is_transaction && operation.stands_alone();
        let mut parts: Vec<&[HistoryOperation]> = Vec::new();
        let (mut start, mut bytes) = (0, 0);
        for (place, operation) in self.operations.iter().enumerate() {
            let own = operation.bytes();
            let is_full = bytes + own > DOCUMENT_OPERATION_BYTES_MAX;
            let stands_alone = stands_alone(operation) || place > 0 && stands_alone(&self.operations[place - 1]);
            if place > start && (is_full || stands_alone) {
                parts.push(&self.operations[start..place]);
                (start, bytes) = (place, 0);
            }
            bytes += own;
        }
        parts.push(&self.operations[start..]);
        let first = self.time.0.saturating_sub(parts.len() as u64 - 1);
        let timed = parts.into_iter().enumerate();
        timed
            .map(|(place, part)| (ClusterTime(first + place as u64), part))
            .collect()
    }
}

impl HistoryOperation {
    fn stands_alone(&self) -> bool {
        matches!(self.change, HistoryChange::Command { .. } | HistoryChange::Note { .. })
    }

    /// Bytes of a document that tells it. Pre-images are not told so.
    fn bytes(&self) -> usize {
        match &self.change {
            HistoryChange::Insert { document } | HistoryChange::Replace { document, .. } => told_bytes(document),
            HistoryChange::Command { document } | HistoryChange::Note { document } => {
                document.len() + OPERATION_FRAME_BYTES
            }
            HistoryChange::Update { key, difference, .. } => key.len() + difference.len() + OPERATION_FRAME_BYTES,
            HistoryChange::Delete { key, .. } => key.len() + OPERATION_FRAME_BYTES,
        }
    }

    /// The document as it was before and as it is after, where the collection keeps that.
    ///
    /// Errors: [`StorageError::CorruptEntry`] when the difference does not fit the pre-image.
    pub fn images(&self) -> Result<(Option<Bytes>, Option<Bytes>), StorageError> {
        Ok(match &self.change {
            HistoryChange::Insert { document } => (None, Some(document.clone())),
            HistoryChange::Replace { document, pre_image } => (pre_image.clone(), Some(document.clone())),
            HistoryChange::Delete { pre_image, .. } => (pre_image.clone(), None),
            HistoryChange::Update {
                difference,
                pre_image: Some(before),
                ..
            } => {
                let after = diff::apply(difference, before).map_err(|error| StorageError::CorruptEntry {
                    seq: Seq::ZERO,
                    offset: 0,
                    reason: error.0.to_owned(),
                })?;
                (Some(before.clone()), Some(after.into()))
            }
            _ => (None, None),
        })
    }
}

/// `{_id: …}` of a document that begins with its `_id`.
pub fn document_key(document: &[u8]) -> Option<Vec<u8>> {
    let mut key = Vec::with_capacity(32);
    diff::append_key(document, &mut key).map(|_| key)
}
