//! Inserting measurements: those of one command that go to one bucket are one change of it.
//!
//! 1. Measurements are checked, and gathered into slices.
//! 2. Without a lock, the buckets are looked for that may take them.
//! 3. In one unit the buckets are locked, read and filled; what none of them takes begins a new one. The unit is logged
//!    as the inserts and updates of buckets that it is.

use super::super::insert::{InsertBatch, prepare};
use super::super::write_result::WriteErrors;
use super::open_buckets::KnownBucket;
use crate::error::{CommandError, Result};
use crate::invocation::Invocation;
use bson::oid::ObjectId;
use bson::raw::{CString, RawDocument, RawDocumentBuf, cstr};
use bson::{DateTime, rawdoc};
use bytes::Bytes;
use query::plan::FindRequest;
use query::timeseries::{Measurement, MetaValue, OpenBucket, id_of};
use std::borrow::Cow;
use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use storage::{
    Charge, Collection, CollectionGuard, LockMode, Namespace, Operation, RecordId, StorageError, TimeseriesOptions,
    WriteUnit,
};
use wire::ErrorCode;

/// Measurements of one unit: enough for a bucket of each of some sources.
const UNIT_MEASUREMENTS_MAX: usize = 4096;
/// Bytes of the measurements of one unit, but for a single larger one.
const UNIT_BYTES_MAX: usize = 1 << 20;
/// Buckets of one unit, each of which may have 125 KiB.
const UNIT_BUCKETS_MAX: usize = 64;
/// Buckets that are looked for when none is known.
const FOUND_MAX: u64 = 2;

/// Inserts into a time-series collection; answers how many measurements are in.
pub fn insert(
    call: &mut Invocation<'_>,
    namespace: &Namespace,
    buckets: &Collection,
    batch: &InsertBatch<'_>,
    known: &[bool],
    errors: &mut WriteErrors,
) -> (u64, Option<CommandError>) {
    if let Err(error) = super::refuse_in_transaction(call, "insert into", namespace) {
        return (0, Some(error));
    }
    let Some(options) = buckets.timeseries().cloned() else {
        return (0, None);
    };
    let (mut inserted, mut next, mut stopped) = (0, 0, false);
    while next < batch.documents.len() && !stopped {
        let (mut prepared, mut bytes, mut refused) = (Vec::new(), 0, Vec::new());
        while next < batch.documents.len()
            && prepared.len() < UNIT_MEASUREMENTS_MAX
            && (prepared.is_empty() || bytes < UNIT_BYTES_MAX)
        {
            let place = next;
            next += 1;
            // What was inserted when the command came before is passed over.
            if known.get(place).is_some_and(|known| *known) {
                inserted += 1;
                continue;
            }
            match checked(call, batch.documents[place], &options) {
                Ok(document) => {
                    bytes += document.len();
                    prepared.push((place, document));
                }
                Err(error) => {
                    refused.push((place, error));
                    if batch.ordered {
                        break;
                    }
                }
            }
        }
        let measurements: Result<Vec<_>> = prepared
            .iter()
            .map(|(place, document)| {
                let document = RawDocument::from_bytes(document.as_ref())?;
                Ok((*place, Measurement::of(document, &options)?))
            })
            .collect();
        let stored = measurements
            .and_then(|measurements| store_each(call, buckets, batch, &measurements, errors, &mut inserted));
        // An ordered command has the first error only: those ahead of what was refused are stored before it is told.
        match stored {
            Ok(false) => stopped = true,
            Ok(true) => {
                stopped = batch.ordered && !refused.is_empty();
                call.report.has_write_errors |= !refused.is_empty();
                refused.into_iter().for_each(|(place, error)| errors.push(place, error));
            }
            Err(error) => return (inserted, Some(error)),
        }
    }
    (inserted, None)
}

/// The measurement with an `_id`, checked.
fn checked<'d>(call: &Invocation<'_>, document: &'d RawDocument, options: &TimeseriesOptions) -> Result<Cow<'d, [u8]>> {
    let prepared = prepare(call, document, true)?;
    // Columns have the order that the client gave the fields.
    let prepared = match document.get("_id")? {
        Some(_) => Cow::Borrowed(document.as_bytes()),
        None => prepared,
    };
    Measurement::of(RawDocument::from_bytes(prepared.as_ref())?, options)?;
    Ok(prepared)
}

/// Stores a slice; what cannot be stored with others is tried alone. Answers whether the command goes on.
fn store_each(
    call: &mut Invocation<'_>,
    buckets: &Collection,
    batch: &InsertBatch<'_>,
    measurements: &[(usize, Measurement<'_>)],
    errors: &mut WriteErrors,
    inserted: &mut u64,
) -> Result<bool> {
    let mut rest = measurements;
    while !rest.is_empty() {
        match store(call, buckets, batch, rest) {
            Ok(stored) => {
                debug_assert!(stored > 0, "it would go on for ever");
                *inserted += stored as u64;
                rest = &rest[stored..];
            }
            Err(error) if call.is_fatal(&error) || call.report.closes.get() => return Err(error),
            Err(error) if rest.len() == 1 => {
                call.report.has_write_errors = true;
                errors.push(rest[0].0, error);
                return Ok(!batch.ordered);
            }
            Err(_) => {
                for place in 0..rest.len() {
                    if !store_each(call, buckets, batch, &rest[place..=place], errors, inserted)? {
                        return Ok(false);
                    }
                }
                return Ok(true);
            }
        }
    }
    Ok(true)
}

/// A bucket that the unit has locked or makes.
struct Filled {
    /// Where it is, and what it was.
    stored: Option<(RecordId, Bytes)>,
    bucket: OpenBucket,
    meta: MetaValue,
    statements: Vec<i32>,
}

/// A bucket that may take a measurement.
struct Candidate {
    record: RecordId,
    /// Where it is known.
    begin_ms: Option<i64>,
}

/// Where the first measurements of a slice may go to.
#[derive(Default)]
struct Candidates {
    /// By source and the begin of the bucket that a measurement would open; the youngest comes last.
    lists: Vec<Vec<Candidate>>,
    /// The list of each measurement.
    of_measurement: Vec<usize>,
}

/// Stores the first measurements of a slice as one unit; answers how many.
fn store(
    call: &mut Invocation<'_>,
    buckets: &Collection,
    batch: &InsertBatch<'_>,
    measurements: &[(usize, Measurement<'_>)],
) -> Result<usize> {
    let operation = call.operation.clone();
    loop {
        let candidates = candidates(call, buckets, measurements)?;
        let measurements = &measurements[..candidates.of_measurement.len()];
        let mut memory = Charge::new(operation.memory());
        let guard = match call.collection(buckets.namespace(), LockMode::IntentExclusive)? {
            Some(guard) if guard.uuid() == buckets.uuid() => guard,
            _ => {
                return Err(CommandError::new(
                    ErrorCode::NamespaceNotFound,
                    format!("the collection was dropped: {}", buckets.namespace()),
                ));
            }
        };
        let mut writer = call.writer();
        let mut unit = writer.unit(&operation);
        let written = fill(
            &operation,
            &mut memory,
            &mut unit,
            &guard,
            &candidates,
            measurements,
            batch,
        )
        .and_then(|(filled, taken)| Ok((write(call.retry.is_some(), &mut unit, &guard, filled)?, taken)));
        let (written, taken) = match written {
            Ok(written) => written,
            Err(Failure::WouldWait) => {
                operation.counters().write_conflicts.add(1);
                continue;
            }
            Err(Failure::Error(error)) => return Err(error),
        };
        call.before_commit(taken)?;
        call.wrote(unit.commit()?);
        for (meta, known) in &written {
            call.server.open_buckets.wrote(buckets.uuid(), meta, known.clone());
        }
        return Ok(taken);
    }
}

enum Failure {
    WouldWait,
    Error(CommandError),
}

impl From<StorageError> for Failure {
    fn from(error: StorageError) -> Self {
        match error {
            StorageError::WouldWait => Self::WouldWait,
            error => Self::Error(error.into()),
        }
    }
}

impl From<query::QueryError> for Failure {
    fn from(error: query::QueryError) -> Self {
        Self::Error(error.into())
    }
}

impl From<bson::error::Error> for Failure {
    fn from(error: bson::error::Error) -> Self {
        Self::Error(error.into())
    }
}

fn no_buckets() -> CommandError {
    CommandError::bad_value("the collection is no longer that of a time-series collection's buckets")
}

/// Puts measurements into buckets; answers the buckets, and how many measurements they took.
fn fill(
    operation: &Operation,
    memory: &mut Charge,
    unit: &mut WriteUnit<'_>,
    guard: &CollectionGuard,
    candidates: &Candidates,
    measurements: &[(usize, Measurement<'_>)],
    batch: &InsertBatch<'_>,
) -> std::result::Result<(Vec<Filled>, usize), Failure> {
    // As they are defined now: buckets may have become longer.
    let options = guard.timeseries().cloned().ok_or(Failure::Error(no_buckets()))?;
    let mut filled: Vec<Filled> = Vec::new();
    let mut of_source: HashMap<&MetaValue, Vec<usize>> = HashMap::new();
    let mut locked = HashSet::new();
    for (taken, (place, measurement)) in measurements.iter().enumerate() {
        operation.check().map_err(StorageError::from)?;
        let of_source = of_source.entry(&measurement.meta).or_default();
        let mut found = None;
        for other in of_source.iter().rev() {
            if filled[*other].bucket.admits(measurement, &options)? {
                found = Some(*other);
                break;
            }
        }
        let mut of_measurement = candidates.lists[candidates.of_measurement[taken]].iter().rev();
        while found.is_none()
            && let Some(candidate) = of_measurement.next()
        {
            let begin_ms = candidate.begin_ms;
            if begin_ms.is_some_and(|begin_ms| !options.spans(begin_ms, measurement.time_ms))
                || !locked.insert(candidate.record.clone())
            {
                continue;
            }
            // The first measurement of a unit has fewer candidates than a unit has buckets: each unit stores some.
            const { assert!(FOUND_MAX < UNIT_BUCKETS_MAX as u64) };
            if filled.len() >= UNIT_BUCKETS_MAX {
                return Ok((filled, taken));
            }
            let Some(stored) = unit.lock_record(guard, &candidate.record)? else {
                continue;
            };
            grow(memory, stored.len())?;
            let bucket = OpenBucket::read(RawDocument::from_bytes(&stored)?, &options)?;
            found = bucket.admits(measurement, &options)?.then_some(filled.len());
            of_source.push(filled.len());
            filled.push(Filled {
                stored: Some((candidate.record.clone(), stored)),
                bucket,
                meta: measurement.meta.clone(),
                statements: Vec::new(),
            });
        }
        let found = match found {
            Some(found) => found,
            None if filled.len() >= UNIT_BUCKETS_MAX => return Ok((filled, taken)),
            None => {
                of_source.push(filled.len());
                filled.push(Filled {
                    stored: None,
                    bucket: OpenBucket::begin(measurement, &options, ObjectId::new()),
                    meta: measurement.meta.clone(),
                    statements: Vec::new(),
                });
                filled.len() - 1
            }
        };
        let bytes_before = filled[found].bucket.bytes();
        filled[found].bucket.add(measurement, &options)?;
        grow(memory, filled[found].bucket.bytes().saturating_sub(bytes_before))?;
        filled[found].statements.push((batch.ids)(*place));
    }
    Ok((filled, measurements.len()))
}

/// Charges a bucket's bytes: what is stored, what is made of it, and what is written.
fn grow(memory: &mut Charge, bytes: usize) -> std::result::Result<(), StorageError> {
    Ok(memory.grow(3 * bytes as u64)?)
}

type Written = Vec<(MetaValue, KnownBucket)>;

/// Takes the filled buckets into the unit.
fn write(
    is_retryable: bool,
    unit: &mut WriteUnit<'_>,
    guard: &CollectionGuard,
    filled: Vec<Filled>,
) -> std::result::Result<Written, Failure> {
    let mut written = Vec::new();
    for filled in filled.into_iter().filter(|filled| !filled.statements.is_empty()) {
        let document = filled.bucket.to_document();
        let document = RawDocument::from_bytes(&document)?;
        if is_retryable {
            unit.statements(&filled.statements);
        }
        let record = match &filled.stored {
            Some((record, old)) => {
                unit.update(guard, record, RawDocument::from_bytes(old)?, document)?;
                record.clone()
            }
            None => unit.insert(guard, document)?,
        };
        let begin_ms = filled.bucket.begin_ms();
        written.push((filled.meta, KnownBucket { record, begin_ms }));
    }
    Ok(written)
}

/// Looks for the buckets that measurements may go to, for as many of them as may fit into one unit.
fn candidates(
    call: &Invocation<'_>,
    buckets: &Collection,
    measurements: &[(usize, Measurement<'_>)],
) -> Result<Candidates> {
    let options = buckets.timeseries().ok_or_else(no_buckets)?;
    let mut candidates = Candidates::default();
    let (mut lists, mut spans) = (HashMap::new(), HashSet::new());
    for (_, measurement) in measurements {
        // Two measurements of one span may be in one bucket, those of others are not.
        spans.insert((&measurement.meta, measurement.time_ms.div_euclid(options.span_ms())));
        if spans.len() > UNIT_BUCKETS_MAX {
            break;
        }
        let begin_ms = options.bucket_begin_ms(measurement.time_ms);
        let list = match lists.entry((&measurement.meta, begin_ms)) {
            Entry::Occupied(entry) => *entry.get(),
            Entry::Vacant(entry) => {
                candidates
                    .lists
                    .push(candidates_of(call, buckets, options, measurement)?);
                *entry.insert(candidates.lists.len() - 1)
            }
        };
        candidates.of_measurement.push(list);
    }
    Ok(candidates)
}

fn candidates_of(
    call: &Invocation<'_>,
    buckets: &Collection,
    options: &TimeseriesOptions,
    measurement: &Measurement<'_>,
) -> Result<Vec<Candidate>> {
    let known = call.server.open_buckets.of(buckets.uuid(), &measurement.meta);
    let takes = |known: &KnownBucket| options.spans(known.begin_ms, measurement.time_ms);
    if !known.iter().any(takes) {
        let found = look_for(call, buckets.namespace(), options, measurement)?.into_iter();
        return Ok(found.map(|record| Candidate { record, begin_ms: None }).collect());
    }
    // All of them: other measurements of this list may be later.
    let candidate = |known: KnownBucket| Candidate {
        record: known.record,
        begin_ms: Some(known.begin_ms),
    };
    Ok(known.into_iter().map(candidate).collect())
}

/// Looks for the youngest buckets that a measurement may go to; the youngest comes last.
fn look_for(
    call: &Invocation<'_>,
    namespace: &Namespace,
    options: &TimeseriesOptions,
    measurement: &Measurement<'_>,
) -> Result<Vec<RecordId>> {
    let least = CString::try_from(format!("control.min.{}", options.time_field))
        .map_err(|_| CommandError::bad_value("a NUL in the timeField"))?;
    let before_ms = measurement.time_ms.saturating_sub(options.span_ms());
    let date = DateTime::from_millis;
    let mut filter = Vec::new();
    let frame = query::raw::Frame::begin(&mut filter);
    let ids = rawdoc! {
        "$gte": id_of(before_ms, &[0; 8]),
        "$lte": id_of(measurement.time_ms, &[0xFF; 8]),
    };
    query::raw::append(&mut filter, 0x03, b"_id", ids.as_bytes());
    match measurement.meta.is_some() {
        true => {
            let equal = query::raw::Frame::begin_field(&mut filter, 0x03, b"meta");
            measurement.meta.append(&mut filter, b"$eq");
            equal.finish(&mut filter);
        }
        false => {
            let missing = rawdoc! { "$exists": false };
            query::raw::append(&mut filter, 0x03, b"meta", missing.as_bytes());
        }
    }
    let times = rawdoc! { "$gt": date(before_ms), "$lte": date(measurement.time_ms) };
    query::raw::append(&mut filter, 0x03, least.as_str().as_bytes(), times.as_bytes());
    frame.finish(&mut filter);
    let filter = RawDocumentBuf::from_bytes(filter)?;
    let mut sort = RawDocumentBuf::new();
    match options.meta_field {
        Some(_) => sort.append(least, -1),
        None => sort.append(cstr!("_id"), -1),
    }
    let mut request = FindRequest::new(namespace.clone(), &filter);
    request.sort = Some(&sort);
    request.limit = Some(FOUND_MAX);
    request.for_write = true;
    let context = call.context();
    let mut plan = query::find(&context, &request)?;
    let mut found = Vec::new();
    while let Some(record) = plan.next_record(&context)? {
        found.push(record);
    }
    found.reverse();
    Ok(found)
}
