//! From a bucket's columns to measurements.

use bson::{RawDocument, RawDocumentBuf};
use storage::TimeseriesOptions;

use super::bucket::{columns, parts};
use super::pushdown::TimeBounds;
use crate::error::QueryError;
use crate::raw::{self, Element, Elements, Frame, Malformed};

/// What is made of a bucket.
pub(crate) struct Unpacking<'u> {
    pub(crate) time_field: &'u [u8],
    pub(crate) meta_field: Option<&'u [u8]>,
    /// Of which measurements.
    pub(crate) bounds: TimeBounds,
    /// Which of their fields.
    pub(crate) is_made: &'u dyn Fn(&[u8]) -> bool,
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
    /// The measurements of a bucket that `keep` wants, in the order of their rows: the time first, then the metaField,
    /// then the columns in their order.
    pub(crate) fn run(
        &self,
        bucket: &RawDocument,
        keep: &mut dyn FnMut(&RawDocument) -> Result<bool, QueryError>,
    ) -> Result<Unpacked, QueryError> {
        let bucket = parts(bucket)?;
        let makes_time = (self.is_made)(self.time_field);
        let meta = bucket
            .meta
            .zip(self.meta_field)
            .filter(|(_, name)| (self.is_made)(name));
        let (mut times, mut values) = (None, Vec::new());
        for column in columns(bucket.data) {
            let (column, rows) = column?;
            if column.name() == self.time_field {
                times = Some(Elements::new(rows));
            } else if (self.is_made)(column.name()) {
                let mut column = Values {
                    name: column.name(),
                    elements: Elements::new(rows),
                    next: None,
                };
                column.advance()?;
                values.push(column);
            }
        }
        let Unpacked { mut bytes, mut ends } = Unpacked::default();
        for time in times.into_iter().flatten() {
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
            match is_wanted && keep(RawDocument::from_bytes(&bytes[begin..]).map_err(|_| Malformed)?)? {
                true => ends.push(bytes.len()),
                false => bytes.truncate(begin),
            }
        }
        Ok(Unpacked { bytes, ends })
    }
}

/// All measurements of a stored bucket.
pub fn measurements(bucket: &RawDocument, options: &TimeseriesOptions) -> Result<Vec<RawDocumentBuf>, QueryError> {
    let unpacking = Unpacking {
        time_field: options.time_field.as_bytes(),
        meta_field: options.meta_field.as_deref().map(str::as_bytes),
        bounds: TimeBounds::ALL,
        is_made: &|_| true,
    };
    let unpacked = unpacking.run(bucket, &mut |_| Ok(true))?;
    let mut begin = 0;
    let own = unpacked.ends.iter().map(|end| {
        let bytes = unpacked.bytes[begin..*end].to_vec();
        begin = *end;
        RawDocumentBuf::from_bytes(bytes).map_err(|_| Malformed.into())
    });
    own.collect()
}
