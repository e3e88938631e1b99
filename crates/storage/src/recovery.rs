//! Opening: load the catalog at the engine's durable mark, then fold the log's later entries into the engine.
//!
//! The mark is exact, so each entry is applied once and finds the state it was made for; an entry that does not fit (an
//! update of a record that is not there, an unknown table) is damage and refuses to open, naming entry and byte.
//!
//! Counts are written down by entries of their own, before checkpoints. Those in the engine belong to the last such
//! entry at or before its mark; what came between is told by the entries themselves, of which each says by how much it
//! changes the counts. So reading begins behind that entry, and applying behind the mark. Without a log what came
//! between is unknown: the counts are then those written down, until `validate` mends them.

use crate::catalog::rows::{
    self, AS_OF_KEY, CATALOG, CollectionRow, FORMAT_VERSION, Meta, NAMES_FROM_KEY, SESSIONS, STATISTICS,
};
use crate::cluster_time::ClusterTime;
use crate::effect::Effect;
use crate::entry::{EntryOp, EntryReader, EntryWriter};
use crate::fold::Replay;
use crate::mutations::mutated;
use crate::storage::Storage;
use crate::{Collection, RecoveryProgress, StorageError};
use bson::RawDocument;
use bytes::Bytes;
use engine::{Direction, FillLimits, KeyRange, Rows, Seq, Snapshot, TableId};
use hashbrown::HashMap;
use keys::MultikeyPaths;
use oplog::{Log, LogError};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Time between two reports of progress.
const REPORT_PERIOD: Duration = Duration::from_secs(3);

/// What the engine's own tables say at its mark.
struct Found {
    meta: Meta,
    /// The entry from behind which on the others tell what changed in the counts, and its time.
    counted: (Seq, ClusterTime),
    /// Collections whose counts were written down by a later entry.
    counted_later: HashMap<TableId, Seq>,
}

/// Puts entries that belong together together.
#[derive(Default)]
pub(crate) struct Chain {
    first: Seq,
    /// Those before the last one.
    entries: Vec<Bytes>,
}

impl Chain {
    /// Takes the next entry of the log. Answers the entries of a unit once they are complete. A chain whose end never
    /// came is dropped when another unit begins: it was cut off by a crash or an error.
    pub(crate) fn push(&mut self, seq: Seq, bytes: Bytes) -> Result<Option<Vec<Bytes>>, StorageError> {
        let reader = EntryReader::new(seq, &bytes)?;
        let (header, expected) = (*reader.header(), self.first.0 + self.entries.len() as u64);
        match header.chain_first {
            None => self.entries.clear(),
            Some(first) if !self.entries.is_empty() && first == self.first && seq.0 == expected => {}
            Some(first) => {
                return Err(reader.damaged_at(0, format!("goes on a chain from {first:?} that is not there")));
            }
        }
        if self.entries.is_empty() {
            self.first = seq;
        }
        if header.partial {
            self.entries.push(bytes);
            return Ok(None);
        }
        let mut entries = std::mem::take(&mut self.entries);
        entries.push(bytes);
        Ok(Some(entries))
    }
}

/// Reads [`names_from_row`](crate::fold::names_from_row): from which entry on names are known, and the entry that wrote
/// that down, which the row of some builds lacks.
fn read_names_from(row: &[u8]) -> Result<(Seq, Seq), StorageError> {
    let (names_from, written_by) = row.split_at(row.len().min(8));
    let written_by = match written_by.is_empty() {
        true => Seq::ZERO,
        false => rows::read_names_from_row(written_by)?,
    };
    Ok((rows::read_names_from_row(names_from)?, written_by))
}

/// Where it may have been lost.
fn consensus_lost(log: &Log) -> LogError {
    let at = log.damages().last().and_then(|damage| match damage {
        LogError::Corrupt { path, offset, .. } => Some((path.clone(), *offset)),
        _ => None,
    });
    let (path, offset) = at.unwrap_or_default();
    LogError::ConsensusLost { path, offset }
}

impl Storage {
    pub(crate) fn report_progress(&self, progress: RecoveryProgress) {
        if let Some(report) = &self.options.on_progress {
            report(progress);
        }
    }

    pub(crate) fn recover(&self) -> Result<(), StorageError> {
        let durable = self.engine.durable_seq();
        let mut next_table = self.definitions.lock();
        let is_new = !self.engine.tables()?.iter().any(|(table, _)| *table == CATALOG);
        let mut found = match is_new {
            true => Found {
                meta: Meta::default(),
                counted: (durable, ClusterTime::default()),
                counted_later: HashMap::new(),
            },
            false => self.load_catalog(durable)?,
        };
        self.pipeline.applying.lock().counted_at = found.counted.0;
        self.pipeline.order.lock().saw_time(found.counted.1);
        // Of the mark's entry itself the time is not known.
        self.pipeline.set_published(durable, found.counted.1);
        self.pipeline.set_installed(durable, found.counted.1);
        let last = self.log.last_seq();
        if last > durable {
            self.report_progress(RecoveryProgress::Started { durable, last });
        }
        let entries = self.replay_log(durable, last, &mut found)?;
        if last > durable {
            self.report_progress(RecoveryProgress::Finished { entries });
        }
        // A directory without tables, or one of an older format whose counts have been brought up to here.
        if (is_new && entries == 0) || found.meta.format < FORMAT_VERSION {
            let (mut entry, mut effect) = (EntryWriter::default(), Effect::default());
            entry.initialise();
            let mut order = self.pipeline.order.lock();
            let mut applied = self.pipeline.applying.lock();
            let (seq, time) = (self.log.last_seq().next(), self.next_time(&order, 1));
            entry.statistics(Some(seq), Seq::ZERO, &[]);
            effect.initialise(FORMAT_VERSION, &mut found.meta);
            let place = (seq, time.cluster);
            effect.statistics(self, place, (Some(seq), Seq::ZERO), std::iter::empty());
            self.propose_under(&mut order, &mut applied, &mut entry, effect)?;
            order.counts_proposed = seq;
            for (_, shared) in applied.changed_counts.drain(..) {
                shared.counts_changed.store(false, Ordering::Relaxed);
            }
        }
        // Of directories whose row fell behind their tables once: no number is given twice.
        let mut last = self.catalog.last_table();
        for (table, _) in self.engine.tables()? {
            last = last.max(Some(table));
        }
        *next_table = found
            .meta
            .next_table
            .max(last.map_or(0, |last| last.0.saturating_add(1)));
        drop(next_table);
        if is_new && entries == 0 {
            // Before anybody writes: an engine with a mark tells a log that was lost from one that never was.
            self.checkpoint()?;
        }
        Ok(())
    }

    /// Reads the log from where the counts are known, and applies it from the engine's mark. Answers how many entries
    /// were applied.
    fn replay_log(&self, durable: Seq, last: Seq, found: &mut Found) -> Result<u64, StorageError> {
        let is_arbiter = self.membership()?.is_some_and(|members| members.is_arbiter);
        self.is_arbiter.store(is_arbiter, Ordering::Release);
        let (counted, first) = (found.counted.0.next(), self.log.first_seq());
        let lacks_counts = counted < first && !self.log.damages().is_empty();
        if lacks_counts {
            // Damage has taken some of what changed the counts since they were written down.
            found.counted_later = self.recount(durable)?;
        }
        let from = counted.max(first).min(durable.next());
        let decides_alone = || -> Result<bool, StorageError> {
            let members = self.membership()?;
            Ok(self.options.takes_all || members.is_none_or(|members| members.decides_alone()))
        };
        let mut decides = decides_alone()?;
        if !decides && self.log.may_lack_consensus() {
            return Err(StorageError::Log(consensus_lost(&self.log)));
        }
        if from > last {
            return Ok(0);
        }
        let reader = self.log.read_ahead(from).map_err(|error| self.log_error(error))?;
        let (mut entries, mut chain) = (0, Chain::default());
        // What others have a say in may be taken back: only what is known to stay is applied.
        let stays = self
            .log
            .hard_state()
            .map_or(Seq::ZERO, |state| state.commit)
            .max(durable);

        let mut reported = self.env.clock.monotonic();
        for entry in reader {
            let (seq, bytes) = entry.map_err(|error| self.log_error(error))?;
            let length = bytes.len() as u64;
            let unit = match chain.push(seq, bytes) {
                // Of a chain that begins in the damage: the engine has it.
                Err(_) if lacks_counts && seq <= durable => continue,
                unit => unit?,
            };
            if seq <= durable {
                self.count_unit(seq, &unit.unwrap_or_default(), &found.counted_later)?;
                continue;
            }
            if seq > stays && !decides {
                break;
            }
            if let Some(unit) = unit
                && self.replay_unit(seq, &unit, found)?
            {
                decides = decides_alone()?;
            }
            entries += 1;
            self.pipeline.order.lock().log_bytes += length;
            self.figures.replayed_entries.store(entries, Ordering::Relaxed);
            let now = self.env.clock.monotonic();
            if now.saturating_sub(reported) >= REPORT_PERIOD {
                reported = now;
                self.report_progress(RecoveryProgress::Replayed { durable, seq, last });
            }
        }
        if mutated!(AppliesPartialChains) && !chain.entries.is_empty() {
            self.replay_unit(last, &chain.entries, found)?;
        }
        Ok(entries)
    }

    /// Answers whether it changes who is a member of the replica set.
    fn replay_unit(&self, seq: Seq, unit: &[Bytes], found: &mut Found) -> Result<bool, StorageError> {
        while !self.engine.throttle() {}
        let effect = self.read_unit(seq, unit, &mut found.meta)?;
        let changes_members = effect.changes_members();
        self.enter(&mut self.pipeline.applying.lock(), seq, effect)?;
        Ok(changes_members)
    }

    /// What the entries of a unit do to the state before it.
    pub(crate) fn read_unit(&self, seq: Seq, unit: &[Bytes], meta: &mut Meta) -> Result<Effect, StorageError> {
        let (mut effect, mut replay) = (Effect::default(), Replay(self.engine.snapshot()?));
        let is_kept = !self.is_arbiter.load(Ordering::Acquire) || self.is_about_configuration(seq, unit)?;
        for entry in unit.iter().filter(|_| is_kept) {
            effect.add_entry(self, seq, entry, &mut replay, meta)?;
        }
        if meta.format < FORMAT_VERSION {
            effect.add_counts();
        }
        // What it pins could not be pruned by the engine while applying.
        drop(replay);
        if let Some(last) = unit.last() {
            // All entries of a chain have one time.
            let time = EntryReader::new(seq, last)?.header().time;
            self.pipeline.order.lock().saw_time(time.cluster);
            effect.finish(self, seq, time)?;
        }
        Ok(effect)
    }

    /// Whether a unit changes the configuration of the replica set: all that an arbiter keeps.
    fn is_about_configuration(&self, seq: Seq, unit: &[Bytes]) -> Result<bool, StorageError> {
        let kept = self.configuration_table();
        for entry in unit {
            let mut reader = EntryReader::new(seq, entry)?;
            while let Some(op) = reader.next_op()? {
                let (EntryOp::Insert { table, .. } | EntryOp::Update { table, .. } | EntryOp::Delete { table, .. }) =
                    op
                else {
                    continue;
                };
                if Some(table) == kept {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// Takes in what a unit that the engine has changed in the counts since they were written down. Of collections that
    /// are gone at the engine's mark nobody asks.
    fn count_unit(&self, seq: Seq, unit: &[Bytes], counted_later: &HashMap<TableId, Seq>) -> Result<(), StorageError> {
        let mut effect = Effect::default();
        for entry in unit {
            let mut reader = EntryReader::new(seq, entry)?;
            self.pipeline.order.lock().saw_time(reader.header().time.cluster);
            while let Some(op) = reader.next_op()? {
                let (table, count, bytes) = match op {
                    EntryOp::Insert { table, document, .. } => (table, 1, document.as_bytes().len() as i64),
                    EntryOp::Update {
                        table,
                        grown: Some(grown),
                        ..
                    } => (table, 0, i64::from(grown)),
                    EntryOp::Delete {
                        table,
                        old: Some((bytes, _)),
                        ..
                    } => (table, -1, -i64::from(bytes)),
                    _ => continue,
                };
                if counted_later.get(&table).is_some_and(|counted| seq <= *counted) {
                    continue;
                }
                if let Some(collection) = self.catalog.collection_of(table) {
                    let of = effect.of(&collection);
                    of.count += count;
                    of.bytes += bytes;
                }
            }
        }
        effect.install(self, seq, &mut self.pipeline.applying.lock());
        Ok(())
    }

    /// Counts what the engine has at its mark. Answers that place for every collection.
    fn recount(&self, durable: Seq) -> Result<HashMap<TableId, Seq>, StorageError> {
        let (snapshot, mut rows) = (self.engine.snapshot()?, Rows::new());
        let mut counted_at = HashMap::new();
        for collection in self.catalog.all_collections() {
            let table = collection.table();
            let (mut count, mut bytes) = (0, 0);
            let mut cursor = snapshot.clone().cursor(table, KeyRange::all(), Direction::Forward)?;
            while cursor.fill(&mut rows, FillLimits::default())? {
                count += rows.len() as i64;
                bytes += (0..rows.len()).map(|row| rows.value(row).len() as i64).sum::<i64>();
            }
            collection.shared.count.store(count, Ordering::Release);
            collection.shared.data_bytes.store(bytes, Ordering::Release);
            self.pipeline.applying.lock().counts_changed(&collection);
            counted_at.insert(table, durable);
        }
        Ok(counted_at)
    }

    /// Fills the catalog from its table.
    fn load_catalog(&self, durable: Seq) -> Result<Found, StorageError> {
        let snapshot = self.engine.snapshot()?;
        let mut cursor = snapshot.clone().cursor(CATALOG, KeyRange::all(), Direction::Forward)?;
        let (mut rows, mut meta) = (Rows::new(), None);
        let (mut collections, mut multikey) = (Vec::new(), BTreeMap::<TableId, MultikeyPaths>::new());
        while cursor.fill(&mut rows, FillLimits::default())? {
            for row in 0..rows.len() {
                let (key, value) = (rows.key(row), rows.value(row));
                let parsed = || RawDocument::from_bytes(value).map_err(|error| rows::corrupt(key, error.to_string()));
                match key {
                    rows::META_KEY => meta = Some(rows::read_meta_row(value)?),
                    [rows::COLLECTION_PREFIX, ..] => {
                        let row = CollectionRow::parse(parsed()?).map_err(|reason| rows::corrupt(key, reason))?;
                        collections.push(row);
                    }
                    [rows::VIEW_PREFIX, ..] => {
                        let view = rows::parse_view_row(parsed()?).map_err(|reason| rows::corrupt(key, reason))?;
                        self.catalog.change(|names| names.put_view(Arc::new(view)));
                    }
                    [rows::FORMER_NAME_PREFIX, rest @ ..] => {
                        let of = rows::read_former_name_key(rest);
                        let (table, until) = of.ok_or_else(|| rows::corrupt(key, "malformed key".to_owned()))?;
                        let name = rows::parse_former_name_row(parsed()?);
                        let name = name.map_err(|reason| rows::corrupt(key, reason))?;
                        self.catalog.change(|names| names.put_former_name(table, until, name));
                    }
                    [rows::MULTIKEY_PREFIX, a, b, c, d, field, part] => {
                        let table = TableId(u32::from_be_bytes([*a, *b, *c, *d]));
                        multikey
                            .entry(table)
                            .or_default()
                            .insert(usize::from(*field), usize::from(*part));
                    }
                    _ => return Err(rows::corrupt(key, "unknown kind of row".to_owned())),
                }
            }
        }
        if self.engine.tables()?.iter().any(|(table, _)| *table == SESSIONS) {
            self.sessions.load(&snapshot)?;
            self.sessions.set_kept();
        }
        let counted = match snapshot.get(STATISTICS, AS_OF_KEY)? {
            Some(row) => rows::read_as_of_row(&row)?,
            // Format 1: the counts are those of the mark.
            None => (durable, ClusterTime::default()),
        };
        let names_from = match snapshot.get(STATISTICS, NAMES_FROM_KEY)? {
            None => self.names_forgotten_before(durable),
            Some(row) => match read_names_from(&row)? {
                // An earlier build has written counts since, and has left the row as it was.
                (names_from, written_by) if written_by < counted.0 => {
                    names_from.max(self.names_forgotten_before(durable))
                }
                (names_from, _) => names_from,
            },
        };
        self.catalog.forget_names(names_from, &[]);
        let mut counted_later = HashMap::new();
        let (compiler, now_ms) = (self.options.predicates.as_ref(), self.env.clock.now_ms());
        for row in collections {
            let collection = Arc::new(row.build(None, &multikey, compiler, now_ms)?);
            self.catalog.change(|names| names.put_collection(collection.clone()));
            if let Some(seq) = self.load_counts(&collection, &snapshot)?
                && seq > counted.0
            {
                counted_later.insert(collection.table(), seq);
            }
            if collection.capped.is_some() {
                self.know_next_record(&collection)?;
            }
        }
        let meta: Meta = meta.ok_or_else(|| rows::corrupt(rows::META_KEY, "the row is missing".to_owned()))?;
        Ok(Found {
            meta,
            counted,
            counted_later,
        })
    }

    /// Earlier builds did not write down from which entry on they knew the names of tables. They forgot them by the log
    /// of the leader, whose entries with counts say how far that reached back. Leaders changed, and the shortest log of
    /// any of them counts. Entries before the log's beginning said nothing of those behind it. What cannot be read may
    /// have said anything.
    fn names_forgotten_before(&self, durable: Seq) -> Seq {
        let first = self.log.first_seq();
        if first > durable {
            return Seq::ZERO;
        }
        let Ok(entries) = self.log.read_ahead(first) else {
            return durable.next();
        };
        let mut known_from = Seq::ZERO;
        for entry in entries {
            let Ok((seq, bytes)) = entry else {
                return durable.next();
            };
            if seq > durable {
                break;
            }
            match EntryReader::new(seq, &bytes).and_then(|mut reader| reader.next_op()) {
                // Alone in its entry, but for the first one, which says nothing of names.
                Ok(Some(EntryOp::Statistics { names_from, .. })) => known_from = known_from.max(names_from),
                Ok(_) => {}
                Err(_) => return durable.next(),
            }
        }
        known_from
    }

    /// Answers the entry that the counts belong to; `None` for those of format 1, which belong to the mark.
    fn load_counts(&self, collection: &Collection, snapshot: &Arc<dyn Snapshot>) -> Result<Option<Seq>, StorageError> {
        let shared = &collection.shared;
        let table = collection.table();
        if let Some(row) = snapshot.get(STATISTICS, &rows::counts_key(table))? {
            let (count, bytes, seq) = rows::read_counts_row(table, &row)?;
            shared.count.store(count, Ordering::Release);
            shared.data_bytes.store(bytes, Ordering::Release);
            return Ok(Some(seq));
        }
        for (suffix, counter) in [
            (rows::COUNT_SUFFIX, &shared.count),
            (rows::BYTES_SUFFIX, &shared.data_bytes),
        ] {
            let key = rows::statistics_key(collection.table(), suffix);
            let Some(value) = snapshot.get(STATISTICS, &key)? else {
                continue;
            };
            let value = value.as_ref().try_into();
            let value = value.map_err(|_| rows::corrupt(&key, "a count does not have 8 bytes".to_owned()))?;
            counter.store(i64::from_le_bytes(value), Ordering::Release);
        }
        Ok(None)
    }
}

#[cfg(test)]
#[path = "recovery_model_tests.rs"]
pub(crate) mod model_tests;
#[cfg(test)]
#[path = "recovery_tests.rs"]
mod tests;
