//! Whether a collection's documents and indexes say the same.
//!
//! Looking each index row up would read a large collection in the order of every index, block by block. So each table
//! is read once, in its own order:
//!
//! 1. The documents. Each row that an index should have for one is hashed into one of many buckets of the index; a
//!    bucket keeps a number of rows and the sum of their hashes, which do not depend on the order.
//! 2. Each index. Its rows are taken out of the buckets. When all are empty then, documents and rows agree (but for
//!    sums of 64-bit hashes that are equal by chance).
//! 3. Only for indexes with a bucket that is not empty: the documents and the index again, and every row that falls
//!    into such a bucket is looked up in the other, so that what is wrong can be named.

use crate::clustered::misplaced;
use crate::index_keys::{IndexWrites, Versions};
use crate::index_rows::row_owner;
use crate::limits::NESTING_DEPTH_MAX;
use crate::report::{IndexReport, Inspect, ValidateReport, unless_damaged};
use crate::{Collection, Index, Operation, ReadView, RecordBatch, RecordId, StorageError};
use bson::RawDocument;
use bson::raw::RawBsonRef;
use engine::{Direction, FillLimits, KeyRange, Rows};
use hashbrown::DefaultHashBuilder;
use std::hash::BuildHasher;
use std::ops::Bound;

/// Buckets of an index: 64 KiB.
const BUCKETS: usize = 4096;

/// Rows that are in the documents and not in the index, or the other way round.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Bucket {
    rows: i64,
    hashes: u64,
}

/// The buckets of one index.
struct Tally {
    hasher: DefaultHashBuilder,
    buckets: Vec<Bucket>,
    /// Rows that the documents yield.
    expected: u64,
    /// Rows that are there.
    found: u64,
    /// It could not be read to its end.
    damaged: bool,
    problems: u64,
}

impl Tally {
    fn new() -> Self {
        Self {
            hasher: DefaultHashBuilder::default(),
            buckets: vec![Bucket::default(); BUCKETS],
            expected: 0,
            found: 0,
            damaged: false,
            problems: 0,
        }
    }

    fn place(&self, key: &[u8], value: &[u8]) -> (usize, u64) {
        let hash = self.hasher.hash_one((key, value));
        (hash as usize % BUCKETS, hash)
    }

    fn expect(&mut self, key: &[u8], value: &[u8]) {
        let (place, hash) = self.place(key, value);
        self.expected += 1;
        self.buckets[place].rows += 1;
        self.buckets[place].hashes = self.buckets[place].hashes.wrapping_add(hash);
    }

    fn find(&mut self, key: &[u8], value: &[u8]) {
        let (place, hash) = self.place(key, value);
        self.found += 1;
        self.buckets[place].rows -= 1;
        self.buckets[place].hashes = self.buckets[place].hashes.wrapping_sub(hash);
    }

    fn is_suspect(&self, key: &[u8], value: &[u8]) -> bool {
        self.buckets[self.place(key, value).0] != Bucket::default()
    }

    /// Documents and rows do not agree, and the rows can be read.
    fn differs(&self) -> bool {
        !self.damaged && self.buckets.iter().any(|bucket| *bucket != Bucket::default())
    }
}

/// Checks documents and indexes; the bytes of all documents, or `None` when not all of them can be read.
pub(crate) fn check(
    op: &Operation,
    collection: &Collection,
    view: &ReadView,
    report: &mut ValidateReport,
    inspect: Inspect<'_>,
) -> Result<Option<u64>, StorageError> {
    let mut tallies: Vec<Tally> = collection.maintained().map(|_| Tally::new()).collect();
    let read = read_documents(op, collection, view, report, &mut tallies, inspect);
    let data_bytes = unless_damaged(read, report)?;
    for (index, tally) in collection.maintained().zip(&mut tallies) {
        let read = read_index(op, index, view, tally);
        tally.damaged = unless_damaged(read, report)?.is_none();
    }
    // Without all documents there is nothing to compare the indexes with.
    if data_bytes.is_some() && tallies.iter().any(Tally::differs) {
        let named = name_missing(op, collection, view, report, &mut tallies);
        unless_damaged(named, report)?;
        for (index, tally) in collection.maintained().zip(&mut tallies) {
            if tally.differs() {
                let named = name_extra(op, collection, index, view, report, tally);
                unless_damaged(named, report)?;
            }
        }
    }
    for (index, tally) in collection.maintained().zip(&tallies) {
        if index.ready() && data_bytes.is_some() && !tally.damaged && tally.found != tally.expected {
            let (name, found, expected) = (index.name(), tally.found, tally.expected);
            report.error(format!("index {name}: {found} rows, {expected} expected"));
        }
        report.indexes.push(IndexReport {
            name: index.name().to_owned(),
            keys: tally.found,
            valid: !tally.damaged && tally.problems == 0 && (!index.ready() || !tally.differs()),
        });
    }
    Ok(data_bytes)
}

/// Walks the documents. What is wrong with one by itself goes into the report, what it yields into the tallies.
fn read_documents(
    op: &Operation,
    collection: &Collection,
    view: &ReadView,
    report: &mut ValidateReport,
    tallies: &mut [Tally],
    inspect: Inspect<'_>,
) -> Result<u64, StorageError> {
    let indexes: Vec<_> = collection.maintained().collect();
    let mut data_bytes = 0;
    for_each_document(op, collection, view, |id, bytes, writes| {
        report.n_records += 1;
        data_bytes += bytes.len() as u64;
        let document = match check_document(bytes) {
            Ok(document) => document,
            Err(problem) => {
                report.n_invalid_documents += 1;
                report.error(format!("{id:?}: {problem}"));
                report.corrupt(id);
                return Ok(());
            }
        };
        inspect(&id, document)?;
        if let Some(problem) = collection
            .clustered_index()
            .and_then(|index| misplaced(index, &id, document))
        {
            report.error(format!("{id:?}: {problem}"));
        }
        if let Err(error) = writes.derive(collection, &id, Versions::inserted(document)) {
            report.error(format!("{id:?}: {error}"));
            return Ok(());
        }
        for row in writes.rows.iter() {
            tallies[row.position].expect(row.key, row.value.unwrap_or_default());
        }
        for (position, places) in &writes.multikey {
            let index = indexes[*position];
            if index.multikey().iter().count() == 0 || !places.iter().all(|(f, p)| index.multikey().contains(f, p)) {
                tallies[*position].problems += 1;
                report.error(format!(
                    "index {}: {id:?} has an array that its multikey paths lack",
                    index.name()
                ));
            }
        }
        Ok(())
    })?;
    Ok(data_bytes)
}

/// Calls `with` for each document, with memory for what it yields.
fn for_each_document(
    op: &Operation,
    collection: &Collection,
    view: &ReadView,
    mut with: impl FnMut(RecordId, &[u8], &mut IndexWrites) -> Result<(), StorageError>,
) -> Result<(), StorageError> {
    let mut cursor = view.records(collection, Bound::Unbounded, Bound::Unbounded, Direction::Forward)?;
    let (mut batch, mut writes) = (RecordBatch::new(), IndexWrites::take());
    while cursor.fill(&mut batch, FillLimits::default())? {
        for row in 0..batch.len() {
            op.check()?;
            with(batch.id(row), batch.document(row), &mut writes)?;
        }
    }
    writes.give_back();
    Ok(())
}

/// Calls `with` for each row of an index.
fn for_each_row(
    op: &Operation,
    index: &Index,
    view: &ReadView,
    mut with: impl FnMut(&[u8], &[u8]) -> Result<(), StorageError>,
) -> Result<(), StorageError> {
    let snapshot = view.snapshot().clone();
    let mut cursor = snapshot.cursor(index.table(), KeyRange::all(), Direction::Forward)?;
    let mut rows = Rows::new();
    while cursor.fill(&mut rows, FillLimits::default())? {
        for row in 0..rows.len() {
            op.check()?;
            with(rows.key(row), rows.value(row))?;
        }
    }
    Ok(())
}

fn read_index(op: &Operation, index: &Index, view: &ReadView, tally: &mut Tally) -> Result<(), StorageError> {
    for_each_row(op, index, view, |key, value| {
        tally.find(key, value);
        Ok(())
    })
}

/// Names the rows that documents yield and indexes lack. An index that is being built may lack them.
fn name_missing(
    op: &Operation,
    collection: &Collection,
    view: &ReadView,
    report: &mut ValidateReport,
    tallies: &mut [Tally],
) -> Result<(), StorageError> {
    let indexes: Vec<_> = collection.maintained().collect();
    let wanted: Vec<bool> = indexes
        .iter()
        .zip(tallies.iter())
        .map(|(index, tally)| index.ready() && tally.differs())
        .collect();
    if !wanted.contains(&true) {
        return Ok(());
    }
    for_each_document(op, collection, view, |id, bytes, writes| {
        let Ok(document) = check_document(bytes) else {
            return Ok(());
        };
        if writes.derive(collection, &id, Versions::inserted(document)).is_err() {
            return Ok(());
        }
        for row in writes.rows.iter() {
            let (index, tally) = (indexes[row.position], &mut tallies[row.position]);
            if !wanted[row.position] || !tally.is_suspect(row.key, row.value.unwrap_or_default()) {
                continue;
            }
            let found = view.snapshot().get(row.table, row.key)?;
            if found.as_deref() != row.value {
                tally.problems += 1;
                report.missing_entries += 1;
                let (name, key) = (index.name(), row.key);
                let is_there = found.is_some_and(|value| row_owner(index, key, &value).as_ref() == Some(&id));
                let problem = match is_there && index.clustering() {
                    true => "another document in the row",
                    false => "no row",
                };
                report.error(format!("index {name}: {problem} for {id:?}, key {key:02x?}"));
            }
        }
        Ok(())
    })
}

/// Names the rows of an index that no document yields.
fn name_extra(
    op: &Operation,
    collection: &Collection,
    index: &Index,
    view: &ReadView,
    report: &mut ValidateReport,
    tally: &mut Tally,
) -> Result<(), StorageError> {
    let mut writes = IndexWrites::take();
    for_each_row(op, index, view, |key, value| {
        if tally.is_suspect(key, value) && !is_yielded(collection, index, view, &mut writes, key, value)? {
            tally.problems += 1;
            report.extra_entries += 1;
            report.error(format!("index {}: no document yields the row {key:02x?}", index.name()));
        }
        Ok(())
    })?;
    writes.give_back();
    Ok(())
}

/// Whether the document that a row leads to yields it.
fn is_yielded(
    collection: &Collection,
    index: &Index,
    view: &ReadView,
    writes: &mut IndexWrites,
    key: &[u8],
    value: &[u8],
) -> Result<bool, StorageError> {
    let Some(id) = row_owner(index, key, value) else {
        return Ok(false);
    };
    let Some(bytes) = view.record(collection, &id)? else {
        return Ok(false);
    };
    let Ok(document) = RawDocument::from_bytes(bytes.as_ref()) else {
        return Ok(false);
    };
    writes.clear();
    let derived = writes.derive_one(0, index, &id, None, Some(document));
    Ok(derived.is_ok() && writes.rows.iter().any(|row| row.key == key))
}

/// Walks a document to its last element, without recursion.
pub(crate) fn check_document(bytes: &[u8]) -> Result<&RawDocument, String> {
    let document = RawDocument::from_bytes(bytes).map_err(|error| error.to_string())?;
    let mut open = vec![document.iter()];
    while let Some(level) = open.last_mut() {
        let Some(element) = level.next() else {
            open.pop();
            continue;
        };
        let nested = match element.map_err(|error| error.to_string())?.1 {
            RawBsonRef::Document(document) => document,
            RawBsonRef::Array(array) => RawDocument::from_bytes(array.as_bytes()).map_err(|error| error.to_string())?,
            RawBsonRef::JavaScriptCodeWithScope(code) => code.scope,
            _ => continue,
        };
        if open.len() >= NESTING_DEPTH_MAX {
            return Err(format!("nested deeper than {NESTING_DEPTH_MAX}"));
        }
        open.push(nested.iter());
    }
    Ok(document)
}
