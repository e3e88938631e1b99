//! `$densify` of more partitions than there is memory for.
//!
//! 1. What is known of partitions is sorted by their keys, and so are all documents that are still to come, those of
//!    one partition in the order they had.
//! 2. Both are read side by side, partition by partition, of which one is in memory at a time.
//!
//! Documents without a value to step by have an empty key: they come first, and belong to no partition.

use bson::spec::BinarySubtype;
use bson::{Binary, RawBsonRef, rawdoc};
use storage::Spilling;

use super::StageContext;
use super::densify::Part;
use super::specification::stage_document;
use crate::error::QueryError;
use crate::sorter::{Sorted, SortedRow, Sorter, SpillStatistics};
use crate::value::scan::Malformed;
use crate::value::{SharedDocument, Value};

/// What goes to disk.
pub(super) struct DiskWriter {
    states: Sorted<SharedDocument>,
    documents: Sorter<SharedDocument>,
}

impl DiskWriter {
    /// A document of the partition of this key.
    pub(super) fn push(
        &mut self,
        key: Vec<u8>,
        document: SharedDocument,
        context: &StageContext<'_>,
    ) -> Result<(), QueryError> {
        self.documents.push(context.evaluation, &key, || document)
    }

    /// That was all.
    pub(super) fn finish(self, context: &StageContext<'_>) -> Result<OnDisk, QueryError> {
        let mut disk = OnDisk {
            states: self.states,
            documents: self.documents.finish(context.evaluation)?,
            state: None,
            document: None,
            key: Vec::new(),
        };
        disk.state = disk.read_state(context)?;
        Ok(disk)
    }
}

/// Partitions and documents, by the partitions' keys.
pub(super) struct OnDisk {
    states: Sorted<SharedDocument>,
    documents: Sorted<SharedDocument>,
    /// The next of each.
    state: Option<(Vec<u8>, Part)>,
    document: Option<(Vec<u8>, SharedDocument)>,
    /// The partition at hand: documents without a value, at first.
    key: Vec<u8>,
}

impl OnDisk {
    /// Writes what is known of partitions.
    pub(super) fn write(
        known: impl Iterator<Item = (Vec<u8>, Part)>,
        context: &StageContext<'_>,
    ) -> Result<DiskWriter, QueryError> {
        let blocking = context.execution.blocking();
        let mut states = Sorter::new(Spilling::Densify, None, blocking);
        for (key, part) in known {
            states.push(context.evaluation, &key, || state_document(&key, &part))?;
        }
        Ok(DiskWriter {
            states: states.finish(context.evaluation)?,
            documents: Sorter::new(Spilling::Densify, None, blocking),
        })
    }

    /// The next document of the partition at hand, or one without a partition.
    pub(super) fn next_of_partition(
        &mut self,
        context: &StageContext<'_>,
        key_of: impl Fn(&SharedDocument) -> Result<Vec<u8>, QueryError>,
    ) -> Result<Option<SharedDocument>, QueryError> {
        if self.document.is_none() {
            self.read_document(context, key_of)?;
        }
        Ok(self
            .document
            .take_if(|(key, _)| *key == self.key)
            .map(|(_, document)| document))
    }

    /// Goes on to the next partition; what was known of it goes to `partitions`. False when there is none.
    pub(super) fn open_next(
        &mut self,
        context: &StageContext<'_>,
        key_of: impl Fn(&SharedDocument) -> Result<Vec<u8>, QueryError>,
        partitions: &mut Vec<Part>,
    ) -> Result<bool, QueryError> {
        if self.document.is_none() {
            self.read_document(context, key_of)?;
        }
        let keys = [
            self.state.as_ref().map(|(key, _)| key),
            self.document.as_ref().map(|(key, _)| key),
        ];
        let Some(key) = keys.into_iter().flatten().min().cloned() else {
            return Ok(false);
        };
        if let Some((_, part)) = self.state.take_if(|(of_state, _)| *of_state == key) {
            partitions.push(part);
            self.state = self.read_state(context)?;
        }
        self.key = key;
        Ok(true)
    }

    fn read_state(&mut self, context: &StageContext<'_>) -> Result<Option<(Vec<u8>, Part)>, QueryError> {
        let row = self.states.next(context.evaluation)?;
        row.map(|row| read_state(row.into_document()?)).transpose()
    }

    fn read_document(
        &mut self,
        context: &StageContext<'_>,
        key_of: impl Fn(&SharedDocument) -> Result<Vec<u8>, QueryError>,
    ) -> Result<(), QueryError> {
        let row = self.documents.next(context.evaluation)?;
        if let Some(document) = row.map(SortedRow::into_document).transpose()? {
            self.document = Some((key_of(&document)?, document));
        }
        Ok(())
    }

    /// What has been written.
    pub(super) fn statistics(&self) -> SpillStatistics {
        let (states, documents) = (self.states.statistics().spill, self.documents.statistics().spill);
        SpillStatistics {
            spills: states.spills + documents.spills,
            records: states.records + documents.records,
            bytes: states.bytes + documents.bytes,
            stored_bytes: states.stored_bytes + documents.stored_bytes,
        }
    }
}

/// `{k: the key, f: the fields, n: the next step}`
fn state_document(key: &[u8], part: &Part) -> SharedDocument {
    let key = Binary {
        subtype: BinarySubtype::Generic,
        bytes: key.to_vec(),
    };
    let mut state = rawdoc! { "k": key, "f": part.fields.as_raw().to_owned() };
    if let Some(next) = &part.next {
        for (name, value) in stage_document("n", next).iter().flatten() {
            state.append(name, value);
        }
    }
    SharedDocument::from(state)
}

fn read_state(state: SharedDocument) -> Result<(Vec<u8>, Part), QueryError> {
    let (mut key, mut fields, mut next) = (None, None, None);
    for element in state.as_raw() {
        match element.map_err(|_| Malformed)? {
            (name, RawBsonRef::Binary(binary)) if name.as_str() == "k" => key = Some(binary.bytes.to_vec()),
            (name, RawBsonRef::Document(document)) if name.as_str() == "f" => {
                fields = Some(SharedDocument::from(document.to_owned()));
            }
            (name, value) if name.as_str() == "n" => next = Some(Value::from_raw(value).into_owned()),
            _ => {}
        }
    }
    let part = Part {
        fields: fields.ok_or(Malformed)?,
        next,
    };
    Ok((key.ok_or(Malformed)?, part))
}
