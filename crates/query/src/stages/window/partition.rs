//! The documents of one partition, read from the source as far as somebody asks for them.
//!
//! The source gives the documents of a partition one behind the other. Documents are numbered from 0 in each partition;
//! those that nobody will ask for any more are forgotten, and those that have no room in memory are read back from a
//! file.

use std::collections::VecDeque;
use std::sync::Arc;

use keys::KeySet;
use spill::{RunAccess, RunWriter, SpillWriter};
use storage::Spilling;
use wire::ErrorCode;

use super::super::filter::Checkpoint;
use super::super::sort::document_of_spilled;
use super::super::{Stage, StageContext, failure};
use super::SortBy;
use crate::error::QueryError;
use crate::evaluation::StageMemory;
use crate::expression::Expression;
use crate::sorter::{Payload, Sorted, SortedRow, Sorter, SpillStatistics};
use crate::value::{Comparer, SharedDocument, Value};

/// Memory of one held document beyond its bytes.
const HELD_BYTES: usize = 64;

/// See the module.
pub(super) struct Partitions {
    source: Box<dyn Stage>,
    by: Option<Arc<Expression>>,
    comparer: Comparer,
    /// The key of the partition that is open.
    key: Option<Vec<u8>>,
    /// The newest ones; those before them have been spilled, or forgotten.
    documents: VecDeque<SharedDocument>,
    /// The number of the first of `documents`.
    first: usize,
    spilled: Option<Spilled>,
    /// The first one that has not been forgotten.
    needed_from: usize,
    /// All documents of the open partition have been read.
    is_complete: bool,
    /// The first document of the next one.
    next: Option<(Vec<u8>, SharedDocument)>,
    is_exhausted: bool,
    statistics: SpillStatistics,
    bytes: usize,
    memory: StageMemory,
    checkpoint: Checkpoint,
}

/// Documents of the open partition that have been written to a file.
struct Spilled {
    file: SpillWriter,
    /// The number of the first document of each, and the documents.
    segments: VecDeque<(usize, RunAccess)>,
}

impl Spilled {
    fn document(&mut self, number: usize) -> Result<Option<SharedDocument>, QueryError> {
        let behind = self.segments.partition_point(|(first, _)| *first <= number);
        let segment = behind.checked_sub(1).and_then(|segment| self.segments.get_mut(segment));
        let Some((first, documents)) = segment else {
            return Ok(None);
        };
        match documents.row((number - *first) as u64)? {
            Some(bytes) => Ok(Some(document_of_spilled(bytes)?)),
            None => Ok(None),
        }
    }

    fn forget_before(&mut self, number: usize) {
        while let Some((first, documents)) = self.segments.front() {
            if *first + documents.rows() as usize > number {
                return;
            }
            self.segments.pop_front();
        }
    }
}

/// Fails a stage that holds more than it may.
pub(super) fn check_bytes(bytes: usize, context: &StageContext<'_>) -> Result<(), QueryError> {
    let bytes_max = context.execution.blocking().bytes(Spilling::SetWindowFields);
    if bytes <= bytes_max {
        return Ok(());
    }
    failure(
        ErrorCode::QueryExceededMemoryLimitNoDiskUseAllowed.0,
        format!("the values of windows of $setWindowFields exceed the memory limit of {bytes_max} bytes"),
    )
}

/// The key bytes of the value that a document is partitioned by. Null and missing are one partition.
pub(super) fn partition_key(
    by: Option<&Expression>,
    document: &SharedDocument,
    comparer: &Comparer,
    context: &StageContext<'_>,
) -> Result<Vec<u8>, QueryError> {
    let mut key = Vec::new();
    let Some(by) = by else { return Ok(key) };
    context.evaluation.on(document.metadata());
    let value = match by.evaluate_on(document, context.evaluation)? {
        Value::Missing => Value::Null,
        Value::Array(_) => {
            return failure(
                ErrorCode::TypeMismatch.0,
                "An expression used to partition cannot evaluate to value of type array",
            );
        }
        value => value,
    };
    comparer.append_key(&value, &mut key);
    Ok(key)
}

impl Partitions {
    pub(super) fn new(source: Box<dyn Stage>, by: Option<Arc<Expression>>, comparer: Comparer) -> Self {
        Self {
            source,
            by,
            comparer,
            key: None,
            documents: VecDeque::new(),
            first: 0,
            spilled: None,
            needed_from: 0,
            statistics: SpillStatistics::default(),
            is_complete: true,
            next: None,
            is_exhausted: false,
            bytes: 0,
            memory: StageMemory::default(),
            checkpoint: Checkpoint::default(),
        }
    }

    /// Goes on to the next partition; false when there is none. The open one must have been read to its end.
    pub(super) fn open_next(&mut self, context: &mut StageContext<'_>) -> Result<bool, QueryError> {
        debug_assert!(self.is_complete, "a partition is left before its end");
        if self.next.is_none() {
            self.read(context)?;
        }
        self.documents.clear();
        self.memory.clear();
        self.bytes = 0;
        self.first = 0;
        self.needed_from = 0;
        self.spilled = None;
        let Some((key, document)) = self.next.take() else {
            return Ok(false);
        };
        self.key = Some(key);
        self.is_complete = false;
        self.hold(document, context)?;
        Ok(true)
    }

    /// The document of a number; `None` behind the end. It must not have been forgotten.
    pub(super) fn document(
        &mut self,
        number: usize,
        context: &mut StageContext<'_>,
    ) -> Result<Option<SharedDocument>, QueryError> {
        debug_assert!(
            number >= self.needed_from,
            "document {number} is forgotten, the first is {}",
            self.needed_from
        );
        if number < self.first {
            return self
                .spilled
                .as_mut()
                .map_or(Ok(None), |spilled| spilled.document(number));
        }
        let end = self.read_to(number.saturating_add(1), context)?;
        Ok((number < end)
            .then(|| self.documents.get(number - self.first).cloned())
            .flatten())
    }

    /// Reads until so many documents are known or there are no more; the number of those known.
    pub(super) fn read_to(&mut self, end: usize, context: &mut StageContext<'_>) -> Result<usize, QueryError> {
        while self.first + self.documents.len() < end && !self.is_complete {
            self.read(context)?;
        }
        Ok(self.first + self.documents.len())
    }

    /// Forgets the documents before a number.
    pub(super) fn forget_before(&mut self, number: usize) {
        self.needed_from = self.needed_from.max(number);
        if let Some(spilled) = &mut self.spilled {
            spilled.forget_before(number);
        }
        while self.first < number {
            let Some(document) = self.documents.pop_front() else {
                return;
            };
            let bytes = document.as_bytes().len() + HELD_BYTES;
            self.bytes -= bytes;
            self.memory.shrink(bytes);
            self.first += 1;
        }
    }

    /// Bytes of the documents held.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// What has been spilled.
    pub(super) fn statistics(&self) -> SpillStatistics {
        self.statistics
    }

    /// Writes the documents held to a file, where they stay within reach.
    ///
    /// Errors: 292 where that is not allowed, and those of writing.
    pub(super) fn spill(&mut self, context: &StageContext<'_>) -> Result<(), QueryError> {
        if self.documents.is_empty() {
            return Ok(());
        }
        let spilled = match &mut self.spilled {
            Some(spilled) => spilled,
            none => none.insert(Spilled {
                file: context.execution.blocking().disk(Spilling::SetWindowFields)?.create()?,
                segments: VecDeque::new(),
            }),
        };
        let (mut writer, stored_before) = (RunWriter::new(), spilled.file.bytes());
        let first = self.first;
        let mut head = Vec::new();
        for document in self.documents.drain(..) {
            context.evaluation.step()?;
            head.clear();
            document.append_head(&mut head);
            writer.push(&mut spilled.file, &[&head, document.body()])?;
            self.first += 1;
        }
        let run = writer.finish(&mut spilled.file)?;
        spilled.file.flush()?;
        let written = SpillStatistics {
            spills: 1,
            records: run.rows(),
            bytes: run.bytes(),
            stored_bytes: spilled.file.bytes() - stored_before,
        };
        self.statistics
            .add(written, Spilling::SetWindowFields, context.evaluation);
        self.memory.clear();
        self.memory.grow(context.evaluation, run.access_bytes())?;
        self.bytes = 0;
        spilled.segments.push_back((first, run.access()));
        Ok(())
    }

    fn hold(&mut self, document: SharedDocument, context: &StageContext<'_>) -> Result<(), QueryError> {
        let bytes = document.as_bytes().len() + HELD_BYTES;
        let blocking = context.execution.blocking();
        if self.bytes + bytes > blocking.bytes(Spilling::SetWindowFields) {
            blocking.disk(Spilling::SetWindowFields)?;
            self.spill(context)?;
        }
        match self.memory.grow(context.evaluation, bytes) {
            // Others need the memory, too.
            Err(_) if self.bytes > 0 && blocking.disk.is_some() => {
                self.spill(context)?;
                self.memory.grow(context.evaluation, bytes)?;
            }
            grown => grown?,
        }
        self.bytes += bytes;
        self.documents.push_back(document.kept());
        Ok(())
    }

    /// Reads one document: of the open partition, or the first of the next one.
    fn read(&mut self, context: &mut StageContext<'_>) -> Result<(), QueryError> {
        let next = match self.is_exhausted {
            true => None,
            false => self.source.next(context)?,
        };
        let Some(document) = next else {
            self.is_exhausted = true;
            self.is_complete = true;
            return Ok(());
        };
        self.checkpoint.tick(context)?;
        let key = partition_key(self.by.as_deref(), &document, &self.comparer, context)?;
        if !self.is_complete && self.key.as_ref() == Some(&key) {
            self.hold(document, context)?;
        } else {
            self.is_complete = true;
            self.next = Some((key, document));
        }
        Ok(())
    }
}

/// Brings the documents of a partition together, in the order of the sort, where no index and no `$sort` can: the
/// partition is computed.
pub(super) struct PartitionSort {
    source: Box<dyn Stage>,
    by: Arc<Expression>,
    sort: Option<Arc<SortBy>>,
    comparer: Comparer,
    /// While the source is read.
    sorter: Option<Sorter<SharedDocument>>,
    sorted: Option<Sorted<SharedDocument>>,
}

impl PartitionSort {
    pub(super) fn new(
        source: Box<dyn Stage>,
        by: Arc<Expression>,
        sort: Option<Arc<SortBy>>,
        comparer: Comparer,
    ) -> Self {
        Self {
            source,
            by,
            sort,
            comparer,
            sorter: None,
            sorted: None,
        }
    }

    fn consume(&mut self, context: &mut StageContext<'_>) -> Result<(), QueryError> {
        let sorter = self
            .sorter
            .get_or_insert_with(|| Sorter::new(Spilling::SetWindowFields, None, context.execution.blocking()));
        let (mut keys, mut checkpoint) = (KeySet::new(), Checkpoint::default());
        while let Some(document) = self.source.next(context)? {
            checkpoint.tick(context)?;
            let mut key = partition_key(Some(&self.by), &document, &self.comparer, context)?;
            if let Some(sort) = &self.sort {
                sort.append_key(&document, context.evaluation, &mut keys, &mut key)?;
            }
            sorter.push(context.evaluation, &key, || document)?;
        }
        Ok(())
    }
}

impl Stage for PartitionSort {
    fn next(&mut self, context: &mut StageContext<'_>) -> Result<Option<SharedDocument>, QueryError> {
        if self.sorted.is_none() {
            self.consume(context)?;
            let sorter = self.sorter.take();
            self.sorted = sorter.map(|sorter| sorter.finish(context.evaluation)).transpose()?;
        }
        let next = self.sorted.as_mut().map(|sorted| sorted.next(context.evaluation));
        let next = next.transpose()?.flatten();
        next.map(SortedRow::into_document).transpose()
    }
}
