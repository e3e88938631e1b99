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
use std::collections::{HashMap, HashSet};
use storage::{Collection, CollectionGuard, LockMode, Namespace, RecordId, StorageError, TimeseriesOptions, WriteUnit};
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
        let (mut prepared, mut bytes) = (Vec::new(), 0);
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
                    errors.push(place, error);
                    call.report.has_write_errors = true;
                    if batch.ordered {
                        stopped = true;
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
        match stored {
            Ok(goes_on) => stopped |= !goes_on,
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
        let written = fill(&mut unit, &guard, &candidates, measurements, batch)
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
            call.server.open_buckets.wrote(buckets.uuid(), meta, *known);
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

/// Puts measurements into buckets; answers the buckets, and how many measurements they took.
fn fill(
    unit: &mut WriteUnit<'_>,
    guard: &CollectionGuard,
    candidates: &HashMap<&MetaValue, Vec<RecordId>>,
    measurements: &[(usize, Measurement<'_>)],
    batch: &InsertBatch<'_>,
) -> std::result::Result<(Vec<Filled>, usize), Failure> {
    // As they are defined now: buckets may have become longer.
    let options = guard
        .timeseries()
        .cloned()
        .ok_or(Failure::Error(CommandError::bad_value(
            "the collection is no longer that of a time-series collection's buckets",
        )))?;
    let mut filled: Vec<Filled> = Vec::new();
    let mut of_source: HashMap<&MetaValue, Vec<usize>> = HashMap::new();
    for (taken, (place, measurement)) in measurements.iter().enumerate() {
        if filled.len() >= UNIT_BUCKETS_MAX {
            return Ok((filled, taken));
        }
        let of_source = match of_source.entry(&measurement.meta) {
            std::collections::hash_map::Entry::Occupied(entry) => entry.into_mut(),
            std::collections::hash_map::Entry::Vacant(entry) => {
                let mut locked = Vec::new();
                for record in candidates.get(&measurement.meta).into_iter().flatten() {
                    let Some(stored) = unit.lock_record(guard, *record)? else {
                        continue;
                    };
                    let bucket = OpenBucket::read(RawDocument::from_bytes(&stored)?, &options)?;
                    locked.push(filled.len());
                    filled.push(Filled {
                        stored: Some((*record, stored)),
                        bucket,
                        meta: measurement.meta.clone(),
                        statements: Vec::new(),
                    });
                }
                entry.insert(locked)
            }
        };
        let mut found = None;
        for candidate in of_source.iter().rev() {
            if filled[*candidate].bucket.admits(measurement, &options)? {
                found = Some(*candidate);
                break;
            }
        }
        let found = found.unwrap_or_else(|| {
            of_source.push(filled.len());
            filled.push(Filled {
                stored: None,
                bucket: OpenBucket::begin(measurement, &options, ObjectId::new()),
                meta: measurement.meta.clone(),
                statements: Vec::new(),
            });
            filled.len() - 1
        });
        filled[found].bucket.add(measurement, &options)?;
        filled[found].statements.push((batch.ids)(*place));
    }
    Ok((filled, measurements.len()))
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
                unit.update(guard, *record, RawDocument::from_bytes(old)?, document)?;
                *record
            }
            None => unit.insert(guard, document)?,
        };
        let begin_ms = filled.bucket.begin_ms();
        written.push((filled.meta, KnownBucket { record, begin_ms }));
    }
    Ok(written)
}

/// The records of buckets that may take measurements, by source.
fn candidates<'m>(
    call: &Invocation<'_>,
    buckets: &Collection,
    measurements: &'m [(usize, Measurement<'_>)],
) -> Result<HashMap<&'m MetaValue, Vec<RecordId>>> {
    let Some(options) = buckets.timeseries() else {
        return Ok(HashMap::new());
    };
    let mut candidates: HashMap<&MetaValue, Vec<RecordId>> = HashMap::new();
    let mut asked = HashSet::new();
    for (_, measurement) in measurements {
        let begin_ms = options.bucket_begin_ms(measurement.time_ms);
        if !asked.insert((&measurement.meta, begin_ms)) {
            continue;
        }
        let of_source = candidates.entry(&measurement.meta).or_default();
        let known = call.server.open_buckets.of(buckets.uuid(), &measurement.meta);
        let takes = |known: &KnownBucket| options.spans(known.begin_ms, measurement.time_ms);
        let found = match known.iter().any(takes) {
            true => known.iter().map(|known| known.record).collect(),
            false => look_for(call, buckets.namespace(), options, measurement)?,
        };
        for record in found {
            if !of_source.contains(&record) {
                of_source.push(record);
            }
        }
    }
    Ok(candidates)
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
