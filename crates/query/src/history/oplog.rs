//! `local.oplog.rs`: the log as the capped collection that MongoDB's tools and drivers read.
//!
//! There is no such collection: documents are made as they are read. A unit of one operation is one document; one of
//! several is an `applyOps` command, or a chain of them where they do not fit into one. Scans go forward or backward in
//! the order of the log, and begin where bounds of `ts` let them.

use super::Tail;
use super::event::{key_of, session_document, uuid_value};
use crate::QueryError;
use crate::stages::{Stage, StageContext};
use crate::value::SharedDocument;
use bson::raw::{RawBsonRef, cstr};
use bson::{DateTime, RawArrayBuf, RawDocument, RawDocumentBuf, Timestamp, rawdoc};
use engine::Seq;
use std::collections::VecDeque;
use std::sync::Arc;
use storage::{
    ClusterTime, HistoryChange, HistoryExtent, HistoryOperation, HistoryReader, HistoryUnit, Namespace, Storage,
    StorageError,
};
use wire::ErrorCode;

/// Version of the documents' form.
const FORM: i64 = 2;
/// Entries that a backward scan reads at a time: the first time, and at most; and bytes of units beyond which it tries
/// with fewer.
const BACK_ENTRIES: u64 = 4;
const BACK_ENTRIES_MAX: u64 = 256;
const BACK_BYTES_MAX: usize = 16 << 20;

/// Whether a namespace is that of the log.
pub fn is_oplog(storage: &Storage, ns: &Namespace) -> bool {
    ns.as_str() == storage::OPLOG && storage.keeps_history()
}

/// Which documents of the log a scan gives at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Bounds {
    from: ClusterTime,
    until: ClusterTime,
}

impl Bounds {
    const ALL: Self = Self {
        from: ClusterTime(0),
        until: ClusterTime(u64::MAX),
    };

    /// What a filter says of `ts` in its outer conjunction. All it lets through lies within.
    fn of(filter: &RawDocument) -> Self {
        let mut bounds = Self::ALL;
        for (name, value) in filter.iter().flatten() {
            match (name.as_str(), value) {
                ("ts", RawBsonRef::Timestamp(time)) => bounds.add("$eq", time),
                ("ts", RawBsonRef::Document(conditions)) => {
                    for (operator, value) in conditions.iter().flatten() {
                        if let RawBsonRef::Timestamp(time) = value {
                            bounds.add(operator.as_str(), time);
                        }
                    }
                }
                ("$and", RawBsonRef::Array(parts)) => {
                    for part in parts.into_iter().flatten().filter_map(|part| part.as_document()) {
                        let part = Self::of(part);
                        bounds.from = bounds.from.max(part.from);
                        bounds.until = bounds.until.min(part.until);
                    }
                }
                _ => {}
            }
        }
        bounds
    }

    fn add(&mut self, operator: &str, time: Timestamp) {
        let ClusterTime(time) = time.into();
        let (from, until) = match operator {
            "$eq" => (time, time),
            "$gte" => (time, u64::MAX),
            "$gt" => (time.saturating_add(1), u64::MAX),
            "$lte" => (0, time),
            "$lt" => (0, time.saturating_sub(1)),
            _ => return,
        };
        self.from = self.from.max(ClusterTime(from));
        self.until = self.until.min(ClusterTime(until));
    }

    fn has(&self, time: ClusterTime) -> bool {
        self.from <= time && time <= self.until
    }
}

/// A scan of the log.
pub(super) struct OplogSource {
    bounds: Bounds,
    ready: VecDeque<SharedDocument>,
    scan: Scan,
    looked_at: u32,
}

enum Scan {
    Forward {
        reader: HistoryReader,
        /// Entries behind it came after the scan had begun; a tail has no end.
        end: Option<Seq>,
        tail: Option<Arc<Tail>>,
    },
    Backward(BackwardScan),
    Ended,
}

/// Reads pieces of the log forward, each in front of the one before, and gives their units from the end.
struct BackwardScan {
    storage: Arc<Storage>,
    /// Entries from here on have been read.
    next: Seq,
    first: Seq,
    /// What was read and not given yet.
    units: Vec<Arc<HistoryUnit>>,
    /// To be read next.
    entries: u64,
}

impl BackwardScan {
    fn next_unit(&mut self, context: &StageContext<'_>) -> Result<Option<Arc<HistoryUnit>>, QueryError> {
        loop {
            if let Some(unit) = self.units.pop() {
                return Ok(Some(unit));
            }
            if self.next <= self.first {
                return Ok(None);
            }
            match self.read_piece(context) {
                Err(ReadError::Lost) if self.storage.history_first()? > self.first => {
                    // What it was about to read went meanwhile. Some of that may be there.
                    self.units.clear();
                    self.first = self.storage.history_first()?;
                }
                Err(ReadError::Lost) => return Err(position_lost(self.next)),
                Err(ReadError::Other(error)) => return Err(error),
                Ok(()) => {}
            }
        }
    }

    fn read_piece(&mut self, context: &StageContext<'_>) -> Result<(), ReadError> {
        let from = Seq(self.next.0.saturating_sub(self.entries)).max(self.first);
        let from = self.storage.history_unit_start(from)?;
        let mut reader = self.storage.history(from, HistoryExtent::Applied);
        let mut bytes = 0;
        while let Some(unit) = reader.next_unit()?.filter(|unit| unit.seq < self.next) {
            context.execution.check().map_err(ReadError::Other)?;
            bytes += unit.bytes;
            self.units.push(unit);
            if bytes > BACK_BYTES_MAX && self.entries > 1 {
                self.units.clear();
                self.entries /= 2;
                return Ok(());
            }
        }
        self.next = from;
        if bytes <= BACK_BYTES_MAX / 4 {
            self.entries = (self.entries * 4).min(BACK_ENTRIES_MAX);
        }
        Ok(())
    }
}

enum ReadError {
    /// The place has gone.
    Lost,
    Other(QueryError),
}

impl From<StorageError> for ReadError {
    fn from(error: StorageError) -> Self {
        match error {
            StorageError::HistoryLost => Self::Lost,
            error => Self::Other(error.into()),
        }
    }
}

/// As of other capped collections. `next` is the entry to have come next.
fn position_lost(next: Seq) -> QueryError {
    QueryError::new(
        ErrorCode::CappedPositionLost,
        format!(
            "CollectionScan died due to position in capped collection being deleted. Last seen record id: RecordId({})",
            next.0.saturating_sub(1)
        ),
    )
}

/// Behind the first unit that ends at `time` or later: its documents may be on both sides. That is the first one there
/// is where those before it have gone, or go meanwhile.
fn position_behind(storage: &Arc<Storage>, time: ClusterTime) -> Result<Seq, StorageError> {
    let behind = |position: Seq| -> Result<Seq, StorageError> {
        let unit = storage.history(position, HistoryExtent::Applied).next_unit()?;
        Ok(unit.map_or(position, |unit| unit.seq.next()))
    };
    match storage.history_position(time).and_then(behind) {
        Err(StorageError::HistoryLost) => {}
        found => return found,
    }
    loop {
        let first = storage.history_first()?;
        match behind(first) {
            Err(StorageError::HistoryLost) if storage.history_first()? > first => {}
            found => return found,
        }
    }
}

impl OplogSource {
    /// A scan of what `filter` may let through.
    pub(super) fn new(
        storage: &Arc<Storage>,
        filter: &RawDocument,
        is_backward: bool,
        tail: Option<Arc<Tail>>,
    ) -> Result<Self, QueryError> {
        let bounds = Bounds::of(filter);
        let first = match storage.history_position(bounds.from) {
            Err(StorageError::HistoryLost) => storage.history_first()?,
            found => found?,
        };
        let end = storage.last_seq();
        // What is copied somewhere else is to be there still after a crash.
        let extent = match tail {
            Some(_) => HistoryExtent::Durable,
            None => HistoryExtent::Applied,
        };
        let scan = match is_backward {
            false => Scan::Forward {
                reader: storage.history(first, extent),
                end: tail.is_none().then_some(end),
                tail,
            },
            true => Scan::Backward(BackwardScan {
                storage: storage.clone(),
                next: position_behind(storage, bounds.until)?,
                first,
                units: Vec::new(),
                entries: BACK_ENTRIES,
            }),
        };
        Ok(Self {
            bounds,
            ready: VecDeque::new(),
            scan,
            looked_at: 0,
        })
    }

    fn make_ready(bounds: Bounds, unit: &HistoryUnit, ready: &mut VecDeque<SharedDocument>) -> Result<(), QueryError> {
        let documents = unit.documents();
        let of = documents.len();
        for (place, (time, part)) in documents.into_iter().enumerate() {
            if bounds.has(time) {
                let document = oplog_document(unit, (time, part), (place, of))?;
                ready.push_back(SharedDocument::new(document.into_bytes().into())?);
            }
        }
        Ok(())
    }
}

impl Stage for OplogSource {
    fn next(&mut self, context: &mut StageContext<'_>) -> Result<Option<SharedDocument>, QueryError> {
        loop {
            if let Some(document) = self.ready.pop_front() {
                return Ok(Some(document));
            }
            self.looked_at = self.looked_at.wrapping_add(1);
            if self.looked_at.is_multiple_of(64) {
                context.execution.check()?;
            }
            let bounds = self.bounds;
            match &mut self.scan {
                Scan::Ended => return Ok(None),
                Scan::Forward { reader, end, tail } => {
                    let unit = reader.next_unit().map_err(|error| match error {
                        StorageError::HistoryLost => position_lost(reader.position()),
                        error => error.into(),
                    })?;
                    match (unit, &tail) {
                        (Some(unit), _) if end.is_none_or(|end| unit.seq <= end) && !is_past(&unit, bounds) => {
                            Self::make_ready(bounds, &unit, &mut self.ready)?;
                        }
                        (None, Some(tail)) => {
                            let seen = reader.looked_up_to();
                            reader.rest();
                            tail.change(|state| state.seen = seen);
                            return Ok(None);
                        }
                        (_, tail) => {
                            if let Some(tail) = tail {
                                tail.change(|state| state.ended = true);
                            }
                            self.scan = Scan::Ended;
                        }
                    }
                }
                Scan::Backward(scan) => match scan.next_unit(context)? {
                    Some(unit) => {
                        Self::make_ready(bounds, &unit, &mut self.ready)?;
                        self.ready.make_contiguous().reverse();
                    }
                    None => self.scan = Scan::Ended,
                },
            }
        }
    }
}

/// All of the unit is later than what is wanted.
fn is_past(unit: &HistoryUnit, bounds: Bounds) -> bool {
    // The time of a unit is that of its last document.
    unit.time > bounds.until && unit.documents().first().is_some_and(|(time, _)| *time > bounds.until)
}

fn raw(bytes: &[u8]) -> Result<RawDocumentBuf, QueryError> {
    let document = RawDocument::from_bytes(bytes).map_err(|error| QueryError::bad_value(error.to_string()))?;
    Ok(document.to_owned())
}

/// One document of the log: the part `place` of `of` that its unit becomes.
fn oplog_document(
    unit: &HistoryUnit,
    (time, part): (ClusterTime, &[HistoryOperation]),
    (place, of): (usize, usize),
) -> Result<RawDocumentBuf, QueryError> {
    let mut document = RawDocumentBuf::new();
    if let Some(session) = &unit.session {
        document.append(cstr!("lsid"), session_document(session));
        document.append(cstr!("txnNumber"), session.txn_number);
    }
    let is_transaction = unit.session.is_some_and(|session| session.is_transaction);
    if unit.session.is_some() && !is_transaction && part.len() > 1 {
        // Several statements that can be sent again, and no transaction.
        document.append(cstr!("multiOpType"), 1);
    }
    match part {
        [only] if !is_transaction => {
            append_operation(&mut document, only)?;
            if let Some(statement) = only.statement {
                document.append(cstr!("stmtId"), statement);
            }
        }
        several => {
            let mut operations = RawArrayBuf::new();
            for operation in several {
                let mut told = RawDocumentBuf::new();
                append_operation(&mut told, operation)?;
                if let Some(statement) = operation.statement {
                    told.append(cstr!("stmtId"), statement);
                }
                operations.push(told);
            }
            let mut o = rawdoc! { "applyOps": operations };
            if is_transaction && of > 1 {
                match place + 1 < of {
                    true => o.append(cstr!("partialTxn"), true),
                    false => o.append(cstr!("count"), unit.operations.len() as i64),
                }
            }
            document.append(cstr!("op"), "c");
            document.append(cstr!("ns"), "admin.$cmd");
            document.append(cstr!("o"), o);
        }
    }
    document.append(cstr!("ts"), time.to_timestamp());
    document.append(cstr!("t"), unit.term as i64);
    document.append(cstr!("v"), FORM);
    document.append(cstr!("wall"), DateTime::from_millis(unit.wall_ms));
    if is_transaction {
        let before = match place {
            0 => rawdoc! { "ts": Timestamp { time: 0, increment: 0 }, "t": -1_i64 },
            _ => rawdoc! { "ts": ClusterTime(time.0 - 1).to_timestamp(), "t": unit.term as i64 },
        };
        document.append(cstr!("prevOpTime"), before);
    }
    Ok(document)
}

/// `op`, `ns`, `ui`, `o` and `o2`.
fn append_operation(to: &mut RawDocumentBuf, operation: &HistoryOperation) -> Result<(), QueryError> {
    let (op, o, o2) = match &operation.change {
        HistoryChange::Insert { document } => ("i", raw(document)?, Some(key_of(&operation.change)?)),
        HistoryChange::Replace { document, .. } => ("u", raw(document)?, Some(key_of(&operation.change)?)),
        HistoryChange::Update { key, difference, .. } => {
            let o = rawdoc! { "$v": 2, "diff": raw(difference)? };
            ("u", o, Some(raw(key)?))
        }
        HistoryChange::Delete { key, .. } => ("d", raw(key)?, None),
        HistoryChange::Note { document } => ("n", raw(document)?, None),
        HistoryChange::Command { document } => {
            let told = raw(document)?;
            let part = |name| told.get_document(name).ok().map(ToOwned::to_owned);
            ("c", part("o").unwrap_or_default(), part("o2"))
        }
    };
    to.append(cstr!("op"), op);
    to.append(cstr!("ns"), operation.ns.as_ref().map_or("", |ns| ns.as_str()));
    if let Some(uuid) = operation.uuid {
        to.append(cstr!("ui"), uuid_value(uuid));
    }
    to.append(cstr!("o"), o);
    if let Some(o2) = o2 {
        to.append(cstr!("o2"), o2);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_bounds_the_scan() {
        let time = |time| Timestamp { time, increment: 1 };
        let at = |seconds: u64| ClusterTime(seconds << 32 | 1);
        let bounds = |filter: RawDocumentBuf| Bounds::of(&filter);
        assert_eq!(bounds(rawdoc! { "op": "i" }), Bounds::ALL);
        let both = Bounds {
            from: ClusterTime(at(5).0 + 1),
            until: at(9),
        };
        assert_eq!(bounds(rawdoc! { "ts": { "$gt": time(5), "$lte": time(9) } }), both);
        let parts = rawdoc! { "$and": [{ "ts": { "$gt": time(5) } }, { "ts": { "$lte": time(9) } }, { "op": "u" }] };
        assert_eq!(bounds(parts), both);
        let one = Bounds {
            from: at(5),
            until: at(5),
        };
        assert_eq!(bounds(rawdoc! { "ts": time(5) }), one);
        assert_eq!(bounds(rawdoc! { "$or": [{ "ts": time(5) }] }), Bounds::ALL);
        assert_eq!(bounds(rawdoc! { "ts": { "$ne": time(5) } }), Bounds::ALL);
    }
}
