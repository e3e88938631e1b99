//! The groups of a `$group`, in memory as far as that goes and in temporary files beyond.
//!
//! 1. Documents are taken into the states of their groups. When these outgrow the memory, the largest groups are
//!    written down, states and all, until a quarter of it is free; from then on the table is *closed*: no group joins
//!    it any more.
//! 2. A document whose group is in the closed table is still taken in there. Any other is written down as it is.
//! 3. At the input's end the groups in memory are complete: a group that is written down has no other part.
//! 4. What is written down lies in partitions, by a hash of the key. Each of them is then the input of an empty table,
//!    with the next bits of the hash for partitions of its own.
//!
//! In a partition a group's state stands before the documents that came after it, and these stand in their order of
//! arrival. So each state goes on exactly as it would have in memory, whatever the accumulator: none is ever merged.

use std::collections::{HashMap, VecDeque};
use std::hash::{DefaultHasher, Hasher};

use bson::RawDocument;
use spill::{Run, RunReader, RunWriter, SpillWriter};
use storage::Spilling;
use wire::ErrorCode;

use super::filter::Checkpoint;
use super::group::GroupSpec;
use super::sort::spilled_parts;
use super::{STAGE_BYTES_MAX, StageContext};
use crate::accumulators::{Accumulator, StateReader, StateWriter, damaged};
use crate::error::QueryError;
use crate::evaluation::{EvaluationContext, StageMemory};
use crate::expression::Evaluation;
use crate::limits::BlockingLimits;
use crate::sorter::SpillStatistics;
use crate::value::Value;

/// Partitions of one table, as bits of the hash.
const PARTITION_BITS: u32 = 5;
/// Tables inside each other that have bits of the hash to themselves; in a deeper one all stays in memory.
const LEVELS: u32 = u64::BITS / PARTITION_BITS;
/// Memory of the partitions while they are written, about.
const PARTITION_BYTES: usize = (1 << PARTITION_BITS) * spill::BLOCK_BYTES;
/// Memory of a group beside its key, its id and its states.
const GROUP_BYTES: usize = 64;

/// First byte of a row: a group with its states.
const STATE_ROW: u8 = 1;
/// First byte of a row: a document.
const DOCUMENT_ROW: u8 = 2;

/// One group.
pub(super) struct Group {
    pub(super) id: Value<'static>,
    pub(super) states: Vec<Accumulator>,
    /// Bytes of memory, about.
    bytes: usize,
}

impl Group {
    fn new(spec: &GroupSpec, id: Value<'static>, key_bytes: usize) -> Self {
        let states: Vec<Accumulator> = spec.fields().iter().map(|(_, field)| field.start()).collect();
        let bytes = id.approximate_bytes() + key_bytes + GROUP_BYTES + size_of_val(&*states);
        Self { id, states, bytes }
    }
}

/// What of a table's input is not in memory.
struct Spilled {
    file: SpillWriter,
    partitions: Vec<RunWriter>,
}

/// A partition that is to be read.
struct Partition {
    run: Run,
    level: u32,
}

/// See the module.
pub(super) struct Groups {
    limits: BlockingLimits,
    /// In the order of their first documents; `None` where one has been written down.
    groups: Vec<Option<Group>>,
    /// Positions in `groups`, by key.
    places: HashMap<Box<[u8]>, usize>,
    /// How many groups are in memory, and their bytes.
    live: usize,
    bytes: usize,
    memory: StageMemory,
    /// Of the partitions that are being written.
    partition_memory: StageMemory,
    /// Set when the table is closed.
    spilled: Option<Spilled>,
    /// How many tables are around this one.
    level: u32,
    /// The input has ended: these are complete.
    complete: std::vec::IntoIter<Option<Group>>,
    partitions: VecDeque<Partition>,
    statistics: SpillStatistics,
    key: Vec<u8>,
    row: Vec<u8>,
}

impl Groups {
    pub(super) fn new(limits: &BlockingLimits) -> Self {
        Self {
            limits: limits.clone(),
            groups: Vec::new(),
            places: HashMap::new(),
            live: 0,
            bytes: 0,
            memory: StageMemory::default(),
            partition_memory: StageMemory::default(),
            spilled: None,
            level: 0,
            complete: Vec::new().into_iter(),
            partitions: VecDeque::new(),
            statistics: SpillStatistics::default(),
            key: Vec::with_capacity(64),
            row: Vec::new(),
        }
    }

    /// What it has spilled.
    pub(super) fn statistics(&self) -> SpillStatistics {
        self.statistics
    }

    /// Takes a document into the only group there is; false when there is none yet.
    pub(super) fn add_to_only<'s>(
        &mut self,
        spec: &'s GroupSpec,
        evaluation: &mut Evaluation<'s>,
    ) -> Result<bool, QueryError> {
        match self.groups.is_empty() {
            true => Ok(false),
            false => self.accumulate(spec, 0, 0, evaluation).map(|()| true),
        }
    }

    /// Takes a document into the group of this id, or writes it down.
    pub(super) fn add<'s>(
        &mut self,
        spec: &'s GroupSpec,
        id: Value<'s>,
        evaluation: &mut Evaluation<'s>,
    ) -> Result<(), QueryError> {
        self.set_key(spec, &id);
        if let Some(&place) = self.places.get(self.key.as_slice()) {
            return self.accumulate(spec, place, 0, evaluation);
        }
        if self.spilled.is_some() {
            return self.write_document(&id, evaluation);
        }
        let group = Group::new(spec, id.into_owned(), self.key.len());
        match self.has_room(group.bytes, evaluation.context)? {
            true => {
                let (mut group, mut begun) = (group, 0);
                for ((_, field), state) in spec.fields().iter().zip(&mut group.states) {
                    begun += field.begin(state, &group.id, evaluation.context)?;
                }
                let place = self.insert(group);
                self.accumulate(spec, place, begun, evaluation)
            }
            false => self.write_document(&group.id, evaluation),
        }
    }

    fn set_key(&mut self, spec: &GroupSpec, id: &Value<'_>) {
        self.key.clear();
        spec.comparer().append_key(id, &mut self.key);
    }

    /// Puts a group into the table, under the key at hand; returns its position.
    fn insert(&mut self, group: Group) -> usize {
        self.bytes += group.bytes;
        self.live += 1;
        self.groups.push(Some(group));
        self.places.insert(self.key.as_slice().into(), self.groups.len() - 1);
        self.groups.len() - 1
    }

    /// Whether a new group may join the table; then its memory is charged. Closes the table when it may not.
    fn has_room(&mut self, bytes: usize, evaluation: &EvaluationContext<'_>) -> Result<bool, QueryError> {
        if self.spilled.is_some() {
            return Ok(false);
        }
        if self.live > 0 && self.bytes + bytes > self.limits.bytes(Spilling::Group) {
            self.limits.disk(Spilling::Group)?;
        } else {
            match self.memory.grow(evaluation, bytes) {
                // Others need the memory, too.
                Err(_) if self.live > 0 && self.limits.disk.is_some() => {}
                grown => return grown.map(|()| true),
            }
        }
        if self.level < LEVELS {
            self.evict(evaluation)?;
            return Ok(false);
        }
        self.check_bytes()?;
        self.memory.grow(evaluation, bytes)?;
        Ok(true)
    }

    /// Takes a document into a group, which has grown by so much that is not charged yet.
    fn accumulate<'s>(
        &mut self,
        spec: &'s GroupSpec,
        place: usize,
        begun: usize,
        evaluation: &mut Evaluation<'s>,
    ) -> Result<(), QueryError> {
        let Some(Some(group)) = self.groups.get_mut(place) else {
            return Err(damaged());
        };
        let mut grown = begun.cast_signed();
        for ((_, field), state) in spec.fields().iter().zip(&mut group.states) {
            grown += field.accumulate(state, evaluation)?;
        }
        if grown == 0 {
            return Ok(());
        }
        let Ok(grown) = usize::try_from(grown) else {
            // One that was written down has been counted by what its row takes.
            let shrunk = grown.unsigned_abs().min(group.bytes);
            group.bytes -= shrunk;
            self.bytes -= shrunk;
            self.memory.shrink(shrunk);
            return Ok(());
        };
        group.bytes += grown;
        self.bytes += grown;
        let can_evict = self.live > 1 && self.level < LEVELS;
        match self.memory.grow(evaluation.context, grown) {
            Err(_) if can_evict && self.limits.disk.is_some() => return self.evict(evaluation.context),
            charged => charged?,
        }
        if self.bytes <= self.limits.bytes(Spilling::Group) {
            return Ok(());
        }
        self.limits.disk(Spilling::Group)?;
        match can_evict {
            true => self.evict(evaluation.context),
            false => self.check_bytes(),
        }
    }

    /// What cannot be written down any more may still be as large as a stage is by default.
    fn check_bytes(&self) -> Result<(), QueryError> {
        let bytes_max = self.limits.bytes(Spilling::Group).max(STAGE_BYTES_MAX);
        if self.bytes <= bytes_max {
            return Ok(());
        }
        Err(QueryError::new(
            ErrorCode::ExceededMemoryLimit,
            format!(
                "one group of $group used too much memory and cannot spill to disk. Memory limit: {bytes_max} bytes"
            ),
        ))
    }

    /// Closes the table, and writes the largest groups down until a quarter of the memory is free or one is left; of
    /// equal ones the latest first.
    fn evict(&mut self, evaluation: &EvaluationContext<'_>) -> Result<(), QueryError> {
        if self.spilled.is_none() {
            self.spilled = Some(Spilled {
                file: self.limits.disk(Spilling::Group)?.create()?,
                partitions: (0..1 << PARTITION_BITS).map(|_| RunWriter::new()).collect(),
            });
        }
        let enough = self.bytes.min(self.limits.bytes(Spilling::Group)) / 4 * 3;
        let sizes = self.groups.iter().enumerate();
        let mut sizes: Vec<_> = sizes
            .filter_map(|(place, group)| Some((group.as_ref()?.bytes, place)))
            .collect();
        sizes.sort_unstable_by(|one, other| other.cmp(one));
        let mut leaves = vec![false; self.groups.len()];
        for (bytes, place) in sizes {
            if self.bytes <= enough || self.live <= 1 {
                break;
            }
            leaves[place] = true;
            self.bytes -= bytes;
            self.live -= 1;
        }
        let mut kept = HashMap::with_capacity(self.live);
        for (key, place) in std::mem::take(&mut self.places) {
            evaluation.step()?;
            match leaves[place] {
                true => self.write_group(&key, place)?,
                false => drop(kept.insert(key, place)),
            }
        }
        self.places = kept;
        let spills = SpillStatistics {
            spills: 1,
            ..SpillStatistics::default()
        };
        self.statistics.add(spills, Spilling::Group, evaluation);
        self.memory.clear();
        self.memory.grow(evaluation, self.bytes)?;
        self.partition_memory.clear();
        self.partition_memory.grow(evaluation, PARTITION_BYTES)
    }

    fn write_group(&mut self, key: &[u8], place: usize) -> Result<(), QueryError> {
        let group = self.groups.get_mut(place).and_then(Option::take).ok_or_else(damaged)?;
        self.row.clear();
        self.row.push(STATE_ROW);
        let mut row = StateWriter(&mut self.row);
        row.value(&group.id);
        group.states.iter().for_each(|state| state.write(&mut row));
        drop(group);
        self.write_row(hash(key), &[])
    }

    /// Writes a document of the key at hand down, with what is known beside it.
    fn write_document(&mut self, id: &Value<'_>, evaluation: &Evaluation<'_>) -> Result<(), QueryError> {
        self.row.clear();
        self.row.push(DOCUMENT_ROW);
        StateWriter(&mut self.row).value(id);
        if let Some(metadata) = evaluation.context.current() {
            metadata.append_to(&mut self.row);
        }
        self.write_row(hash(&self.key), evaluation.root.as_bytes())
    }

    /// Writes the row at hand, and what follows it.
    fn write_row(&mut self, hash: u64, rest: &[u8]) -> Result<(), QueryError> {
        let partition = hash >> (self.level * PARTITION_BITS) & ((1 << PARTITION_BITS) - 1);
        let Some(Spilled { file, partitions }) = &mut self.spilled else {
            return Err(damaged());
        };
        partitions[partition as usize].push(file, &[&self.row, rest])?;
        // A row that was large is not the measure of the next ones.
        self.row.shrink_to(spill::BLOCK_BYTES);
        Ok(())
    }

    /// Ends the input: the groups in memory are complete, and what is written down can be read.
    pub(super) fn end_input(&mut self, evaluation: &EvaluationContext<'_>) -> Result<(), QueryError> {
        self.places = HashMap::new();
        self.complete = std::mem::take(&mut self.groups).into_iter();
        let Some(Spilled { mut file, partitions }) = self.spilled.take() else {
            return Ok(());
        };
        let mut written = SpillStatistics::default();
        // Before what is left of the tables around this one: so no more than one file for each of them is there.
        for writer in partitions.into_iter().rev().filter(|writer| writer.rows() > 0) {
            let run = writer.finish(&mut file)?;
            written.records += run.rows();
            written.bytes += run.bytes();
            self.partitions.push_front(Partition {
                run,
                level: self.level + 1,
            });
        }
        file.flush()?;
        self.partition_memory.clear();
        written.stored_bytes = file.bytes();
        self.statistics.add(written, Spilling::Group, evaluation);
        Ok(())
    }

    /// The next group that is complete.
    pub(super) fn next(
        &mut self,
        spec: &GroupSpec,
        context: &mut StageContext<'_>,
    ) -> Result<Option<Group>, QueryError> {
        loop {
            context.evaluation.step()?;
            if let Some(group) = self.complete.find_map(|group| group) {
                return Ok(Some(group));
            }
            self.complete = Vec::new().into_iter();
            self.memory.clear();
            (self.bytes, self.live) = (0, 0);
            let Some(Partition { run, level }) = self.partitions.pop_front() else {
                return Ok(None);
            };
            self.level = level;
            let mut reading = StageMemory::default();
            reading.grow(context.evaluation, run.read_bytes())?;
            self.read(run.read(), spec, context)?;
            self.end_input(context.evaluation)?;
        }
    }

    /// Takes in a partition.
    fn read(
        &mut self,
        mut reader: RunReader,
        spec: &GroupSpec,
        context: &mut StageContext<'_>,
    ) -> Result<(), QueryError> {
        let mut checkpoint = Checkpoint::default();
        while reader.advance()? {
            checkpoint.tick(context)?;
            let (kind, rest) = reader.row().split_first().ok_or_else(damaged)?;
            let mut rest = StateReader(rest);
            let id = rest.value()?;
            match *kind {
                STATE_ROW => self.add_group(spec, id, reader.row(), rest, context.evaluation)?,
                DOCUMENT_ROW => {
                    let (metadata, document) = spilled_parts(rest.0)?;
                    let document = RawDocument::from_bytes(document).map_err(|_| damaged())?;
                    context.evaluation.on(metadata.as_ref());
                    self.add(spec, id, &mut Evaluation::new(document, context.evaluation))?;
                }
                _ => return Err(damaged()),
            }
        }
        Ok(())
    }

    /// Takes in a group that was written down as `row`, whose states are in `states`.
    fn add_group(
        &mut self,
        spec: &GroupSpec,
        id: Value<'_>,
        row: &[u8],
        mut states: StateReader<'_>,
        evaluation: &EvaluationContext<'_>,
    ) -> Result<(), QueryError> {
        self.set_key(spec, &id);
        if self.has_room(GROUP_BYTES + self.key.len() + row.len(), evaluation)? {
            let fields = spec.fields().iter();
            let states = fields
                .map(|(_, field)| field.read(&mut states))
                .collect::<Result<_, _>>()?;
            self.insert(Group {
                id: id.into_owned(),
                states,
                bytes: GROUP_BYTES + self.key.len() + row.len(),
            });
            return Ok(());
        }
        self.row.clear();
        self.row.extend_from_slice(row);
        self.write_row(hash(&self.key), &[])
    }
}

fn hash(key: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(key);
    hasher.finish()
}
