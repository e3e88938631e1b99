//! `$sort`, with a limit where one follows, and `$sample`.
//!
//! Documents are ordered by the memcmp-able keys of [`SortPattern`], see [`crate::sorter`]; `$sample` orders them by
//! chance.

use std::sync::Arc;

use bson::Document;
use bytes::Bytes;
use keys::KeySet;
use storage::Spilling;
use vfs::Random;

use super::filter::Checkpoint;
use super::{Stage, StageContext};
use crate::error::QueryError;
use crate::metadata::Metadata;
use crate::sorter::{Payload, Sorted, SortedRow, Sorter};
use crate::value::scan::{self, Malformed};
use crate::value::{SharedDocument, SortPattern};

impl Payload for SharedDocument {
    fn memory_bytes(&self) -> usize {
        self.as_bytes().len()
    }

    /// Nothing for most; else what is known beside the document, which is a document, too.
    fn append_head(&self, head: &mut Vec<u8>) {
        if let Some(metadata) = self.metadata() {
            metadata.append_to(head);
        }
    }

    fn body(&self) -> &[u8] {
        self.as_bytes()
    }
}

impl SortedRow<'_, SharedDocument> {
    /// The document, where nothing else has gone through the sort.
    pub(super) fn into_document(self) -> Result<SharedDocument, QueryError> {
        match self {
            SortedRow::Kept(document) => Ok(document),
            SortedRow::Spilled(bytes) => document_of_spilled(bytes),
        }
    }
}

/// What a row of a temporary file holds: head and body of a document's [`Payload`].
pub(super) fn spilled_parts(bytes: &[u8]) -> Result<(Option<Arc<Metadata>>, &[u8]), QueryError> {
    let length = bytes.first_chunk().map_or(0, |length| u32::from_le_bytes(*length));
    let (first, rest) = bytes.split_at_checked(length as usize).ok_or(Malformed)?;
    if rest.is_empty() {
        return Ok((None, first));
    }
    Ok((Some(Arc::new(Metadata::read(scan::frame(first)?))), rest))
}

pub(super) fn document_of_spilled(bytes: &[u8]) -> Result<SharedDocument, QueryError> {
    let (metadata, body) = spilled_parts(bytes)?;
    Ok(SharedDocument::new(Bytes::copy_from_slice(body))?.with_metadata(metadata))
}

pub(super) struct SortStage {
    source: Box<dyn Stage>,
    pattern: SortPattern,
    limit: Option<u64>,
    /// While the source is read.
    sorter: Option<Sorter<SharedDocument>>,
    sorted: Option<Sorted<SharedDocument>>,
}

impl SortStage {
    pub(super) fn new(source: Box<dyn Stage>, pattern: SortPattern, limit: Option<u64>) -> Self {
        Self {
            source,
            pattern,
            limit,
            sorter: None,
            sorted: None,
        }
    }

    fn consume(&mut self, context: &mut StageContext<'_>) -> Result<(), QueryError> {
        let sorter = self
            .sorter
            .get_or_insert_with(|| Sorter::new(Spilling::Sort, self.limit, context.execution.blocking()));
        let (mut keys, mut key, mut checkpoint) = (KeySet::new(), Vec::new(), Checkpoint::default());
        while let Some(document) = self.source.next(context)? {
            checkpoint.tick(context)?;
            key.clear();
            self.pattern
                .append_key_of(&document, context.evaluation, &mut keys, &mut key)?;
            sorter.push(context.evaluation, &key, || document.kept())?;
        }
        if let Some(operation) = context.evaluation.operation() {
            operation.counters().note_sort();
        }
        Ok(())
    }
}

impl Stage for SortStage {
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

    fn add_statistics(&self, statistics: &mut Document) {
        let sorted = self.sorted.as_ref().map(Sorted::statistics).unwrap_or_default();
        statistics.insert("totalDataSizeSortedBytesEstimate", sorted.data_bytes as i64);
        sorted.spill.add_to(statistics);
    }

    fn restart(&mut self, context: &StageContext<'_>) -> Result<bool, QueryError> {
        self.sorter = None;
        self.sorted = None;
        self.source.restart(context)
    }
}

/// Gives each document a random key, and keeps those of the smallest: any of them is as likely as any other, and so is
/// any order of them.
pub(super) struct SampleStage {
    source: Box<dyn Stage>,
    size: u64,
    random: Arc<dyn Random>,
    /// While the source is read.
    sorter: Option<Sorter<SharedDocument>>,
    chosen: Option<Sorted<SharedDocument>>,
}

impl SampleStage {
    pub(super) fn new(source: Box<dyn Stage>, size: u64, random: Arc<dyn Random>) -> Self {
        Self {
            source,
            size,
            random,
            sorter: None,
            chosen: None,
        }
    }

    fn consume(&mut self, context: &mut StageContext<'_>) -> Result<(), QueryError> {
        let sorter = self
            .sorter
            .get_or_insert_with(|| Sorter::new(Spilling::Sort, Some(self.size), context.execution.blocking()));
        let mut checkpoint = Checkpoint::default();
        while let Some(document) = self.source.next(context)? {
            checkpoint.tick(context)?;
            let key = self.random.next_u64().to_be_bytes();
            sorter.push(context.evaluation, &key, || document.kept())?;
        }
        Ok(())
    }
}

impl Stage for SampleStage {
    fn next(&mut self, context: &mut StageContext<'_>) -> Result<Option<SharedDocument>, QueryError> {
        if self.chosen.is_none() {
            self.consume(context)?;
            let sorter = self.sorter.take();
            self.chosen = sorter.map(|sorter| sorter.finish(context.evaluation)).transpose()?;
        }
        let next = self.chosen.as_mut().map(|chosen| chosen.next(context.evaluation));
        let next = next.transpose()?.flatten();
        next.map(SortedRow::into_document).transpose()
    }

    fn restart(&mut self, context: &StageContext<'_>) -> Result<bool, QueryError> {
        self.sorter = None;
        self.chosen = None;
        self.source.restart(context)
    }
}
