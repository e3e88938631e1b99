//! Inserting measurements: those of one command that go to one bucket are one change of it.
//!
//! 1. Measurements are checked, and gathered into slices.
//! 2. Without a lock, the buckets are looked for that may take them, and measurements are grouped by them: each bucket
//!    is written once, however the measurements of many sources alternate.
//! 3. In one unit the buckets are locked, read and filled; what none of them takes begins a new one. The unit is logged
//!    as the inserts and updates of buckets that it is.
//!
//! A measurement stays in the record of the bucket that it was put into: pipelines and cursors read buckets one by one
//! while others insert, and would miss what moves ahead of them to behind them, or see it twice. That is why the
//! measurements of a bucket are not gathered in a smaller one first.

use super::super::insert::InsertBatch;
use super::super::write_result::WriteErrors;
use super::open_buckets::KnownBucket;
use crate::error::{CommandError, Result};
use crate::invocation::Invocation;
use bson::oid::ObjectId;
use bson::raw::{CString, RawDocument, RawDocumentBuf, cstr};
use bson::{DateTime, rawdoc};
use bytes::Bytes;
use query::plan::FindRequest;
use query::timeseries::{BUCKET_BYTES_MAX, Measurement, MetaValue, OpenBucket, id_of};
use std::borrow::Cow;
use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use storage::{
    Charge, Collection, CollectionGuard, Index, LockMode, Namespace, Operation, RecordId, StorageError,
    TimeseriesOptions, WriteUnit,
};
use wire::ErrorCode;

/// Measurements of one unit.
const UNIT_MEASUREMENTS_MAX: usize = 4096;
/// Bytes of the measurements of one unit, but for a single larger one.
const UNIT_BYTES_MAX: usize = 1 << 20;
/// Buckets that one unit adds to.
const UNIT_BUCKETS_MAX: usize = 1024;
/// Bytes of the buckets that one unit adds to, about: 64 full ones. Each is in memory three times.
const UNIT_BUCKET_BYTES_MAX: usize = 64 * BUCKET_BYTES_MAX;
/// Buckets that are looked for when none is known.
const FOUND_MAX: u64 = 2;
/// How often a unit begins again because another bucket has the `_id` that one of its new ones got.
const TAKEN_IDS_MAX: usize = 3;

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
            match checked(call, batch, place) {
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
        let mut measurements = Vec::with_capacity(prepared.len());
        for (place, document) in &prepared {
            match measured(document, &options) {
                Ok(measurement) => measurements.push((*place, measurement)),
                Err(error) => {
                    refused.push((*place, error));
                    if batch.ordered {
                        break;
                    }
                }
            }
        }
        // Both looks refuse some; of an ordered command's the first counts.
        refused.sort_by_key(|(place, _)| *place);
        if batch.ordered {
            refused.truncate(1);
        }
        let stored = store_each(call, buckets, batch, &measurements, errors, &mut inserted);
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
    // All of the command's units wait together.
    (inserted, call.settle_at_last().err())
}

/// The document with an `_id`, checked.
fn checked<'d>(call: &Invocation<'_>, batch: &InsertBatch<'d>, place: usize) -> Result<Cow<'d, [u8]>> {
    let prepared = batch.prepare(call, place, true)?;
    let document = batch.documents[place];
    // Columns have the order that the client gave the fields.
    Ok(match document.get("_id")? {
        Some(_) => Cow::Borrowed(document.as_bytes()),
        None => prepared,
    })
}

fn measured<'d>(document: &'d [u8], options: &TimeseriesOptions) -> Result<Measurement<'d>> {
    Ok(Measurement::of(RawDocument::from_bytes(document)?, options)?)
}

/// Stores a slice; what cannot be stored together is halved, until what is refused is alone. Answers whether the
/// command goes on.
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
                let (first, second) = rest.split_at(rest.len() / 2);
                return Ok(store_each(call, buckets, batch, first, errors, inserted)?
                    && store_each(call, buckets, batch, second, errors, inserted)?);
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
    /// How large it is, as far as that is known.
    bytes: usize,
}

/// Where measurements may go to that one bucket would begin with: those of one source and one begin.
struct Group {
    source: usize,
    begin_ms: i64,
    /// The youngest comes last.
    candidates: Vec<Candidate>,
    /// The measurements, by their places.
    members: Vec<usize>,
}

/// Stores the first measurements of a slice as one unit; answers how many.
fn store(
    call: &mut Invocation<'_>,
    buckets: &Collection,
    batch: &InsertBatch<'_>,
    measurements: &[(usize, Measurement<'_>)],
) -> Result<usize> {
    let operation = call.operation.clone();
    let mut taken_ids = 0;
    loop {
        let (groups, taken) = groups(call, buckets, measurements)?;
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
        let random = &call.server.env.random;
        let unique = || match taken_ids {
            0 => ObjectId::new(),
            // The counter of `ObjectId::new` comes round, and what has its next numbers may be many.
            _ => random_id(&**random),
        };
        let mut writer = call.writer();
        let mut unit = writer.unit(&operation);
        let filling = Filling {
            operation: &operation,
            groups: &groups,
            measurements,
            batch,
            unique: &unique,
        };
        let written = filling
            .fill(&mut memory, &mut unit, &guard)
            .and_then(|filled| write(call.retry.is_some(), &mut unit, &guard, filled));
        let written = match written {
            Ok(written) => written,
            Err(Failure::WouldWait) => continue,
            Err(Failure::IdTaken(_)) if taken_ids < TAKEN_IDS_MAX => {
                taken_ids += 1;
                continue;
            }
            Err(Failure::IdTaken(error) | Failure::Error(error)) => return Err(error),
        };
        call.before_commit(taken)?;
        call.wrote(unit.commit_ahead()?);
        for (meta, known) in written {
            call.server.open_buckets.wrote(buckets.uuid(), &meta, known);
        }
        return Ok(taken);
    }
}

fn random_id(random: &dyn vfs::Random) -> ObjectId {
    let mut id = [0; 12];
    random.fill(&mut id);
    ObjectId::from_bytes(id)
}

enum Failure {
    WouldWait,
    /// Another bucket has the `_id` of a new one.
    IdTaken(CommandError),
    Error(CommandError),
}

impl From<StorageError> for Failure {
    fn from(error: StorageError) -> Self {
        match error {
            StorageError::WouldWait => Self::WouldWait,
            // Least and greatest values of one field, each with an array, are what the index calls parallel.
            StorageError::CannotIndexParallelArrays(_) => Self::Error(CommandError::new(
                ErrorCode(5_930_501),
                "an indexed field of a measurement in a time-series collection is an array, or in one",
            )),
            StorageError::DuplicateKey(_) => Self::IdTaken(error.into()),
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

fn too_large() -> CommandError {
    CommandError::new(
        ErrorCode::BSONObjectTooLarge,
        "a measurement of a time-series collection is too large: its bucket has each value three times, and has to fit into a document",
    )
}

fn no_buckets() -> CommandError {
    CommandError::bad_value("the collection is no longer that of a time-series collection's buckets")
}

/// What goes into the buckets of one unit.
struct Filling<'f> {
    operation: &'f Operation,
    groups: &'f [Group],
    measurements: &'f [(usize, Measurement<'f>)],
    batch: &'f InsertBatch<'f>,
    /// Makes the unique part of the `_id` of a new bucket.
    unique: &'f dyn Fn() -> ObjectId,
}

impl Filling<'_> {
    /// Puts the measurements of all groups into buckets.
    fn fill(
        &self,
        memory: &mut Charge,
        unit: &mut WriteUnit<'_>,
        guard: &CollectionGuard,
    ) -> std::result::Result<Vec<Filled>, Failure> {
        // As they are defined now: buckets may have become longer.
        let options = guard.timeseries().cloned().ok_or(Failure::Error(no_buckets()))?;
        let mut filled: Vec<Filled> = Vec::new();
        let mut of_sources: HashMap<usize, Vec<usize>> = HashMap::new();
        let mut locked = HashSet::new();
        for group in self.groups {
            let of_source = of_sources.entry(group.source).or_default();
            for member in &group.members {
                let (place, measurement) = &self.measurements[*member];
                self.operation.check().map_err(StorageError::from)?;
                let mut found = None;
                for other in of_source.iter().rev() {
                    if filled[*other].bucket.admits(measurement, &options)? {
                        found = Some(*other);
                        break;
                    }
                }
                let mut candidates = group.candidates.iter().rev();
                while found.is_none()
                    && let Some(candidate) = candidates.next()
                {
                    let begin_ms = candidate.begin_ms;
                    if begin_ms.is_some_and(|begin_ms| !options.spans(begin_ms, measurement.time_ms))
                        || !locked.insert(candidate.record.clone())
                    {
                        continue;
                    }
                    let Some(stored) = unit.lock_record(guard, &candidate.record)? else {
                        continue;
                    };
                    grow(memory, stored.len())?;
                    // One that cannot be read stays as it is, for `validate` to tell.
                    let Ok(bucket) = OpenBucket::read(&stored, &options) else {
                        continue;
                    };
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
                    None => {
                        let bucket = OpenBucket::begin(measurement, &options, (self.unique)());
                        if !bucket.admits(measurement, &options)? {
                            return Err(Failure::Error(too_large()));
                        }
                        of_source.push(filled.len());
                        filled.push(Filled {
                            stored: None,
                            bucket,
                            meta: measurement.meta.clone(),
                            statements: Vec::new(),
                        });
                        filled.len() - 1
                    }
                };
                let bytes_before = filled[found].bucket.bytes();
                filled[found].bucket.add(measurement, &options)?;
                grow(memory, filled[found].bucket.bytes().saturating_sub(bytes_before))?;
                filled[found].statements.push((self.batch.ids)(*place));
            }
        }
        Ok(filled)
    }
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
        let document = Bytes::from(filled.bucket.to_document());
        if is_retryable {
            unit.statements(&filled.statements);
        }
        let record = match &filled.stored {
            Some((record, old)) => {
                unit.update_to(guard, record, RawDocument::from_bytes(old)?, &document)?;
                record.clone()
            }
            None => unit.insert(guard, RawDocument::from_bytes(&document)?)?,
        };
        let known = KnownBucket {
            record,
            begin_ms: filled.bucket.begin_ms(),
            bytes: document.len(),
        };
        written.push((filled.meta, known));
    }
    Ok(written)
}

/// Groups the first measurements of a slice, as many as one unit may store; answers how many those are.
///
/// Groups are in the order of their buckets' records, so that units that want the same buckets lock them in one order:
/// the second one waits for the first bucket, and nobody has to begin again. Of one source the earliest comes first,
/// because what it begins takes those that come behind it.
fn groups(
    call: &Invocation<'_>,
    buckets: &Collection,
    measurements: &[(usize, Measurement<'_>)],
) -> Result<(Vec<Group>, usize)> {
    let options = buckets.timeseries().ok_or_else(no_buckets)?;
    let mut groups: Vec<Group> = Vec::new();
    let (mut sources, mut places) = (HashMap::new(), HashMap::new());
    // The buckets that will be read, about, and their bytes.
    let (mut youngest, mut bytes) = (HashSet::new(), 0_usize);
    let mut taken = 0;
    for (_, measurement) in measurements {
        let sources_before = sources.len();
        let source = *sources.entry(&measurement.meta).or_insert(sources_before);
        let begin_ms = options.bucket_begin_ms(measurement.time_ms);
        let place = match places.entry((source, begin_ms)) {
            Entry::Occupied(entry) => *entry.get(),
            Entry::Vacant(entry) => {
                let candidates = candidates_of(call, buckets, options, measurement)?;
                let (bucket, its_bytes) = match candidates.last() {
                    Some(candidate) => (Ok(candidate.record.clone()), candidate.bytes),
                    // Two measurements of one span may be in one bucket, those of others are not.
                    None => (Err((source, measurement.time_ms.div_euclid(options.span_ms()))), 0),
                };
                if youngest.insert(bucket) {
                    bytes = bytes.saturating_add(its_bytes);
                    let is_full = youngest.len() > UNIT_BUCKETS_MAX || bytes > UNIT_BUCKET_BYTES_MAX;
                    if is_full && taken > 0 {
                        break;
                    }
                }
                groups.push(Group {
                    source,
                    begin_ms,
                    candidates,
                    members: Vec::new(),
                });
                *entry.insert(groups.len() - 1)
            }
        };
        groups[place].members.push(taken);
        taken += 1;
    }
    groups.sort_by_key(|group| {
        let youngest = group.candidates.last().map(|candidate| candidate.record.clone());
        (youngest.is_none(), youngest, group.source, group.begin_ms)
    });
    Ok((groups, taken))
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
        if options.meta_field.is_some()
            && !buckets
                .indexes()
                .iter()
                .any(|index| finds_sources(index, buckets, options))
        {
            return Ok(Vec::new());
        }
        let found = look_for(call, buckets.namespace(), options, measurement)?.into_iter();
        let candidate = |record| Candidate {
            record,
            begin_ms: None,
            bytes: BUCKET_BYTES_MAX,
        };
        return Ok(found.map(candidate).collect());
    }
    // All of them: other measurements of this group may be later.
    let candidate = |known: KnownBucket| Candidate {
        record: known.record,
        begin_ms: Some(known.begin_ms),
        bytes: known.bytes,
    };
    Ok(known.into_iter().map(candidate).collect())
}

/// Whether an index leads to the buckets of one source by their times. Without one, all buckets of a span of time would
/// be read for each source: a new bucket is begun instead.
fn finds_sources(index: &Index, buckets: &Collection, options: &TimeseriesOptions) -> bool {
    let mut fields = index.key().iter().flatten().map(|(name, _)| name.as_str());
    let is_of_time = |name: &str| {
        let of_time = |end: &str| name.strip_prefix(end) == Some(options.time_field.as_str());
        of_time("control.min.") || of_time("control.max.")
    };
    let is_whole = index.partial_filter().is_none() && !index.sparse() && index.pattern().special().is_none();
    is_whole
        && !index.hidden()
        && index.collation() == buckets.collation()
        && fields.next() == Some("meta")
        && fields.next().is_some_and(is_of_time)
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
