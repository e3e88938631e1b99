//! From a bucket's columns to measurements.
//!
//! A bucket need not be one that inserting made: the stage runs on any collection. Its metaField is in every
//! measurement, so that few bytes can be very many: measurements are made in batches, each of bounded size, and counted
//! as steps.

use bson::RawDocument;
#[cfg(test)]
use bson::RawDocumentBuf;
use bytes::Bytes;
use storage::TimeseriesOptions;

use super::bucket::{BUCKET_MEASUREMENTS_MAX, Measurement, OpenBucket, columns, parts};
use super::pushdown::TimeBounds;
use crate::error::QueryError;
use crate::evaluation::EvaluationContext;
use crate::raw::{self, Element, Elements, Frame, Malformed};
use crate::value::BYTES_PER_STEP;

/// Bytes of a batch, but for its last measurement.
const BATCH_BYTES_MAX: usize = 1 << 20;
/// Columns that are passed over in one step.
const COLUMNS_PER_STEP: usize = 8;

/// What is made of a bucket.
pub(crate) struct Unpacking<'u> {
    pub(crate) time_field: &'u [u8],
    pub(crate) meta_field: Option<&'u [u8]>,
    /// Of which measurements.
    pub(crate) bounds: TimeBounds,
    /// Which of their fields.
    pub(crate) is_made: &'u dyn Fn(&[u8]) -> bool,
}

/// How far a bucket's rows have been gone through.
#[derive(Default)]
pub(crate) struct UnpackPosition {
    /// Where the rest of the times begins in their column.
    times: Option<usize>,
    /// And that of each other column that is made.
    values: Vec<usize>,
    is_done: bool,
}

impl UnpackPosition {
    /// Whether no rows are left.
    pub(crate) fn is_done(&self) -> bool {
        self.is_done
    }
}

/// Documents one behind the other.
#[derive(Default)]
pub(crate) struct Unpacked {
    pub(crate) bytes: Vec<u8>,
    /// Where each ends.
    pub(crate) ends: Vec<usize>,
}

/// A column while its rows are gone through.
struct Values<'b> {
    name: &'b [u8],
    elements: Elements<'b>,
    next: Option<Element<'b>>,
}

impl Values<'_> {
    fn advance(&mut self) -> Result<(), Malformed> {
        self.next = self.elements.next().transpose()?;
        Ok(())
    }
}

impl Unpacking<'_> {
    /// The next measurements of a bucket that `keep` wants, in the order of their rows: the time first, then the
    /// metaField, then the columns in their order. None may be among the rows that were looked at.
    pub(crate) fn run(
        &self,
        bucket: &RawDocument,
        position: &mut UnpackPosition,
        evaluation: &EvaluationContext<'_>,
        keep: &mut dyn FnMut(&RawDocument) -> Result<bool, QueryError>,
    ) -> Result<Unpacked, QueryError> {
        let bucket = parts(bucket)?;
        let makes_time = (self.is_made)(self.time_field);
        let meta = bucket
            .meta
            .zip(self.meta_field)
            .filter(|(_, name)| (self.is_made)(name));
        let (mut times, mut values) = (None, Vec::new());
        let is_begin = position.times.is_none();
        for column in columns(bucket.data) {
            evaluation.step()?;
            let (column, rows) = column?;
            if column.name() == self.time_field {
                times = Some(match position.times {
                    Some(offset) => Elements::from_offset(rows, offset),
                    None => Elements::new(rows),
                });
            } else if (self.is_made)(column.name()) {
                let elements = match is_begin {
                    true => Elements::new(rows),
                    false => Elements::from_offset(rows, *position.values.get(values.len()).ok_or(Malformed)?),
                };
                let mut column = Values {
                    name: column.name(),
                    elements,
                    next: None,
                };
                column.advance()?;
                values.push(column);
            }
        }
        let Unpacked { mut bytes, mut ends } = Unpacked::default();
        let Some(mut times) = times else {
            position.is_done = true;
            return Ok(Unpacked { bytes, ends });
        };
        while ends.len() < BUCKET_MEASUREMENTS_MAX && bytes.len() < BATCH_BYTES_MAX {
            let Some(time) = times.next() else {
                position.is_done = true;
                return Ok(Unpacked { bytes, ends });
            };
            let time = time?;
            let at = time.value_bytes().try_into().map(i64::from_le_bytes);
            let is_wanted = self.bounds == TimeBounds::ALL || at.is_ok_and(|at| self.bounds.contains(at));
            let begin = bytes.len();
            let frame = Frame::begin(&mut bytes);
            if is_wanted && makes_time {
                raw::append(&mut bytes, time.kind(), self.time_field, time.value_bytes());
            }
            if is_wanted && let Some((value, name)) = meta {
                raw::append(&mut bytes, value.kind(), name, value.value_bytes());
            }
            for column in &mut values {
                let Some(value) = column.next.filter(|value| value.name() == time.name()) else {
                    continue;
                };
                if is_wanted {
                    raw::append(&mut bytes, value.kind(), column.name, value.value_bytes());
                }
                column.advance()?;
            }
            frame.finish(&mut bytes);
            evaluation.steps(1 + values.len() / COLUMNS_PER_STEP + (bytes.len() - begin) / BYTES_PER_STEP)?;
            match is_wanted && keep(RawDocument::from_bytes(&bytes[begin..]).map_err(|_| Malformed)?)? {
                true => ends.push(bytes.len()),
                false => bytes.truncate(begin),
            }
        }
        position.times = Some(times.offset());
        position.values.clear();
        // The next of each column is looked at again.
        position.values.extend(values.iter().map(|column| match &column.next {
            Some(next) => next.start(),
            None => column.elements.offset(),
        }));
        Ok(Unpacked { bytes, ends })
    }
}

/// Calls `take` with each measurement of a stored bucket.
pub fn each_measurement<E: From<QueryError>>(
    bucket: &RawDocument,
    options: &TimeseriesOptions,
    evaluation: &EvaluationContext<'_>,
    take: &mut dyn FnMut(&RawDocument) -> Result<(), E>,
) -> Result<(), E> {
    let unpacking = Unpacking {
        time_field: options.time_field.as_bytes(),
        meta_field: options.meta_field.as_deref().map(str::as_bytes),
        bounds: TimeBounds::ALL,
        is_made: &|_| true,
    };
    let mut position = UnpackPosition::default();
    while !position.is_done() {
        let unpacked = unpacking.run(bucket, &mut position, evaluation, &mut |_| Ok(true))?;
        let mut begin = 0;
        for end in unpacked.ends {
            let measurement = RawDocument::from_bytes(&unpacked.bytes[begin..end]);
            take(measurement.map_err(|_| QueryError::from(Malformed))?)?;
            begin = end;
        }
    }
    Ok(())
}

/// Puts a measurement into a bucket that is made anew. Answers false where it cannot be one of the bucket's: it has no
/// time, a field twice, another metaField, or a value of another type than those at the same path.
pub type PutMeasurement<'p> = dyn FnMut(&RawDocument) -> Result<bool, QueryError> + 'p;

/// A bucket of what `each` puts in for another one's measurements: names can change so that two of them become one, of
/// values of two types. `None` where nothing is put in.
pub fn rebuilt<E: From<QueryError>>(
    bucket: &RawDocument,
    options: &TimeseriesOptions,
    each: &mut dyn FnMut(&RawDocument, &mut PutMeasurement<'_>) -> Result<(), E>,
) -> Result<Option<Vec<u8>>, E> {
    let stored = OpenBucket::read(&Bytes::copy_from_slice(bucket.as_bytes()), options)?;
    let mut made: Option<OpenBucket> = None;
    let nobody = EvaluationContext::uninterrupted();
    each_measurement::<E>(bucket, options, &nobody, &mut |measurement| {
        each(measurement, &mut |document| {
            let Ok(measurement) = Measurement::of(document, options) else {
                return Ok(false);
            };
            let made = made.get_or_insert_with(|| stored.emptied(options).with_meta_of(&measurement));
            let fits = made.fits(&measurement, options)?;
            if fits {
                made.add(&measurement, options)?;
            }
            Ok(fits)
        })
    })?;
    Ok(made.map(|made| made.to_document()))
}

/// All measurements of a stored bucket.
#[cfg(test)]
pub(crate) fn measurements(
    bucket: &RawDocument,
    options: &TimeseriesOptions,
) -> Result<Vec<RawDocumentBuf>, QueryError> {
    let mut all = Vec::new();
    each_measurement(
        bucket,
        options,
        &EvaluationContext::uninterrupted(),
        &mut |measurement| {
            all.push(measurement.to_owned());
            Ok::<_, QueryError>(())
        },
    )?;
    Ok(all)
}

#[cfg(test)]
#[path = "rows_tests.rs"]
mod tests;
