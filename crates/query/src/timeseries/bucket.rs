//! One bucket as bytes: reading its parts, and adding measurements to it.
//!
//! Invariants of [`OpenBucket`]: every row has a time; a column's rows rise; the extents cover all values; at each path
//! all values have one canonical type; all times are less than the span behind the begin.

use std::borrow::Cow;
use std::collections::HashSet;

use bson::RawDocument;
use bson::oid::ObjectId;
use bson::spec::ElementType;
use bytes::Bytes;
use storage::TimeseriesOptions;
use wire::ErrorCode;

use super::compressed::uncompressed;
use super::extent::{End, Parts};
use super::names::NamePlaces;
use crate::error::QueryError;
use crate::path::array_index;
use crate::raw::{self, Element, Elements, Frame, Malformed, kind};
use crate::update::DEPTH_MAX;

/// Measurements of one bucket.
pub const BUCKET_MEASUREMENTS_MAX: usize = 1000;
/// Bytes of a bucket that takes another measurement, but for the first few.
pub const BUCKET_BYTES_MAX: usize = 125 * 1024;
/// Measurements that a bucket takes whatever size they have ...
const FEW_MEASUREMENTS: usize = 10;
/// ... up to so many bytes, with all that the last may add: the bucket has to fit into a stored document, and a dump of
/// it into one that is sent.
const FEW_MEASUREMENTS_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Levels of nesting of a bucket: values stand two levels deeper than in measurements, in `data.v` and `control.min`.
pub const BUCKET_DEPTH_MAX: usize = DEPTH_MAX + 2;
/// What a field may add to a bucket beside three copies of the value (column, least, greatest): the column's frame, and
/// row numbers that are longer than names.
const FIELD_BYTES: usize = 16;
const DATE: u8 = ElementType::DateTime as u8;
/// Bytes of a row of times but for the digits of its number: type, end of the name, value.
const DATE_BYTES: usize = 10;

/// A measurement to be stored.
pub struct Measurement<'d> {
    document: &'d RawDocument,
    /// Its time, in milliseconds since 1970.
    pub time_ms: i64,
    /// Where it comes from.
    pub meta: MetaValue,
    /// The bytes of its fields but for the metaField, about.
    bytes: usize,
}

/// The value of a metaField; empty where there is none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct MetaValue {
    /// The type byte and the value's bytes.
    bytes: Vec<u8>,
}

impl MetaValue {
    /// The value of an element, with the fields of documents in the order of their names.
    pub fn of(element: Element<'_>) -> Result<Self, Malformed> {
        let mut bytes = vec![element.kind()];
        append_ordered(&mut bytes, element)?;
        Ok(Self { bytes })
    }

    /// The value of an element as it is.
    fn stored(element: Element<'_>) -> Self {
        let mut bytes = vec![element.kind()];
        bytes.extend_from_slice(element.value_bytes());
        Self { bytes }
    }

    /// Whether measurements have the field.
    pub fn is_some(&self) -> bool {
        !self.bytes.is_empty()
    }

    /// Appends it as a field, where there is one.
    pub fn append(&self, out: &mut Vec<u8>, name: &[u8]) {
        if let Some((kind, value)) = self.bytes.split_first() {
            raw::append(out, *kind, name, value);
        }
    }

    /// Its bytes, which identify it.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// Appends a value, the fields of documents in the order of their names.
fn append_ordered(out: &mut Vec<u8>, element: Element<'_>) -> Result<(), Malformed> {
    if !matches!(element.kind(), kind::DOCUMENT | kind::ARRAY) {
        out.extend_from_slice(element.value_bytes());
        return Ok(());
    }
    let mut parts = Elements::new(element.frame()?).collect::<Result<Vec<_>, _>>()?;
    if element.kind() == kind::DOCUMENT {
        parts.sort_by(|a, b| a.name().cmp(b.name()));
    }
    let frame = Frame::begin(out);
    for part in parts {
        raw::append_header(out, part.kind(), part.name());
        append_ordered(out, part)?;
    }
    frame.finish(out);
    Ok(())
}

impl<'d> Measurement<'d> {
    /// Checks what is to be stored.
    ///
    /// Errors: no time, or a field twice (2).
    pub fn of(document: &'d RawDocument, options: &TimeseriesOptions) -> Result<Self, QueryError> {
        let (mut time_ms, mut meta) = (None, MetaValue::default());
        let (mut names, mut bytes) = (Vec::new(), document.as_bytes().len());
        for element in Elements::new(document) {
            let element = element?;
            if element.name() == options.time_field.as_bytes() {
                time_ms = date(element);
                if time_ms.is_none() {
                    break;
                }
            } else if is_meta(element.name(), options) {
                meta = MetaValue::of(element)?;
                bytes = bytes.saturating_sub(element.whole().len());
            }
            names.push(element.name());
        }
        let Some(time_ms) = time_ms else {
            return Err(QueryError::bad_value(format!(
                "'{}' must be present and contain a valid BSON UTC datetime value",
                options.time_field
            )));
        };
        names.sort_unstable();
        if let Some(twice) = names.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(QueryError::bad_value(format!(
                "a measurement has the field '{}' twice",
                String::from_utf8_lossy(twice[0])
            )));
        }
        Ok(Self {
            document,
            time_ms,
            meta,
            bytes,
        })
    }
}

fn is_meta(name: &[u8], options: &TimeseriesOptions) -> bool {
    let meta = options.meta_field.as_deref();
    meta.is_some_and(|meta| meta.as_bytes() == name)
}

fn date(element: Element<'_>) -> Option<i64> {
    let is_date = element.kind() == DATE;
    is_date.then(|| element.value_bytes().try_into().map(i64::from_le_bytes).ok())?
}

/// The values of one field: elements whose names are row numbers.
#[derive(Clone)]
struct Column {
    name: Box<[u8]>,
    /// Those of the stored bucket, in its memory: a bucket of a thousand measurements is read to add one.
    stored: Bytes,
    added: Vec<u8>,
}

/// A bucket that measurements are added to.
#[derive(Clone)]
pub struct OpenBucket {
    id: ObjectId,
    begin_ms: i64,
    meta: MetaValue,
    least: Parts,
    greatest: Parts,
    columns: Vec<Column>,
    column_places: NamePlaces,
    rows: usize,
    /// Those of the stored bucket.
    bytes: usize,
    is_closed: bool,
}

impl OpenBucket {
    /// A new one for a measurement and those like it. `unique` is an id whose last eight bytes nobody else has.
    pub fn begin(first: &Measurement<'_>, options: &TimeseriesOptions, unique: ObjectId) -> Self {
        let begin_ms = options.bucket_begin_ms(first.time_ms);
        let mut least = Parts::new();
        least.set(options.time_field.as_bytes(), DATE, &begin_ms.to_le_bytes());
        Self {
            id: id_of(begin_ms, &unique.bytes()[4..]),
            begin_ms,
            meta: first.meta.clone(),
            least,
            greatest: Parts::new(),
            columns: Vec::new(),
            column_places: NamePlaces::default(),
            rows: 0,
            bytes: empty_bytes(&first.meta, options),
            is_closed: false,
        }
    }

    /// Reads a stored one. Its values are neither looked at nor copied.
    ///
    /// Errors: it is not of layout version 1 (238), or malformed (2).
    pub fn read(stored: &Bytes, options: &TimeseriesOptions) -> Result<Self, QueryError> {
        let bucket = RawDocument::from_bytes(stored.as_ref()).map_err(|_| Malformed)?;
        let parts = parts(bucket)?;
        let (least, greatest) = (Parts::of(parts.least)?, Parts::of(parts.greatest)?);
        let begin_ms = match least.value(options.time_field.as_bytes()) {
            Some((DATE, bytes)) => i64::from_le_bytes(bytes.try_into().map_err(|_| Malformed)?),
            _ => return Err(malformed("control.min has no time")),
        };
        let (mut columns, mut rows) = (Vec::new(), 0);
        for column in Elements::new(parts.data) {
            let column = column?;
            let body = column.frame()?.as_bytes();
            let elements = &body[4..body.len() - 1];
            if column.name() == options.time_field.as_bytes() {
                rows = rows_ending(elements)?;
            }
            columns.push(Column {
                name: column.name().into(),
                stored: stored.slice_ref(elements),
                added: Vec::new(),
            });
        }
        Ok(Self {
            id: parts.id,
            begin_ms,
            // Not put in order: what is written back for the sake of others must not change it.
            meta: parts.meta.map(MetaValue::stored).unwrap_or_default(),
            least,
            greatest,
            columns,
            column_places: NamePlaces::default(),
            rows,
            bytes: bucket.as_bytes().len(),
            is_closed: parts.is_closed,
        })
    }

    /// When it begins, in milliseconds since 1970.
    pub fn begin_ms(&self) -> i64 {
        self.begin_ms
    }

    /// The bytes that it has, about.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// How many measurements it has.
    #[cfg(test)]
    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    /// Whether the measurement belongs into this bucket, and there is room for it.
    pub fn admits(&self, measurement: &Measurement<'_>, options: &TimeseriesOptions) -> Result<bool, QueryError> {
        let bytes = self.bytes + measurement.bytes;
        let bytes_max = match self.rows {
            0..FEW_MEASUREMENTS => usize::MAX,
            _ => BUCKET_BYTES_MAX,
        };
        if self.is_closed
            || self.meta != measurement.meta
            || !options.spans(self.begin_ms, measurement.time_ms)
            || self.rows >= BUCKET_MEASUREMENTS_MAX
            || bytes > bytes_max
        {
            return Ok(false);
        }
        let Some(near) = self.fitting_fields(measurement, options)? else {
            return Ok(false);
        };
        // What is new is the least and the greatest value, too.
        let bytes = bytes + 2 * measurement.bytes + near * FIELD_BYTES;
        Ok(bytes <= FEW_MEASUREMENTS_BYTES_MAX)
    }

    /// How many fields the measurement has beside the metaField; `None` where not all their values have the types of
    /// those that are here.
    fn fitting_fields(
        &self,
        measurement: &Measurement<'_>,
        options: &TimeseriesOptions,
    ) -> Result<Option<usize>, QueryError> {
        let mut near = 0;
        for element in Elements::new(measurement.document) {
            let element = element?;
            if is_meta(element.name(), options) {
                continue;
            }
            if !self.least.admits(element, near)? {
                return Ok(None);
            }
            near += 1;
        }
        Ok(Some(near))
    }

    /// Whether the measurement can be here, wherever it is put and however much there is: it has the metaField of the
    /// others, and types of theirs.
    pub(super) fn fits(&self, measurement: &Measurement<'_>, options: &TimeseriesOptions) -> Result<bool, QueryError> {
        Ok(self.meta == measurement.meta && self.fitting_fields(measurement, options)?.is_some())
    }

    /// Adds a measurement that it [admits](Self::admits).
    pub fn add(&mut self, measurement: &Measurement<'_>, options: &TimeseriesOptions) -> Result<(), QueryError> {
        let mut near = 0;
        let mut more = 0;
        for element in Elements::new(measurement.document) {
            let element = element?;
            if is_meta(element.name(), options) {
                continue;
            }
            let is_time = element.name() == options.time_field.as_bytes();
            // The least time is the bucket's begin, which is rounded down.
            if !is_time {
                more += self.least.widen(element, End::Least, near)?;
            }
            more += self.greatest.widen(element, End::Greatest, near)?;
            let columns_before = self.columns.len();
            let column = self.column(element.name(), near);
            if self.columns.len() > columns_before {
                // Type, name and frame.
                more += (element.name().len() + 7) as isize;
            }
            let added = &mut self.columns[column].added;
            let added_before = added.len();
            raw::append_indexed(added, element.kind(), self.rows, element.value_bytes());
            more += (added.len() - added_before) as isize;
            near += 1;
        }
        self.bytes = self.bytes.saturating_add_signed(more);
        self.rows += 1;
        Ok(())
    }

    fn column(&mut self, name: &[u8], near: usize) -> usize {
        let place = self
            .column_places
            .find(&self.columns, |column| &column.name, name, near);
        place.unwrap_or_else(|| {
            self.column_places.pushed(name, self.columns.len());
            self.columns.push(Column {
                name: name.into(),
                stored: Bytes::new(),
                added: Vec::new(),
            });
            self.columns.len() - 1
        })
    }

    /// The bucket as it is stored.
    pub fn to_document(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.bytes + 128);
        let whole = Frame::begin(&mut out);
        raw::append(&mut out, ElementType::ObjectId as u8, b"_id", &self.id.bytes());
        let control = Frame::begin_field(&mut out, kind::DOCUMENT, b"control");
        raw::append(&mut out, ElementType::Int32 as u8, b"version", &1_i32.to_le_bytes());
        self.least.append(&mut out, b"min");
        self.greatest.append(&mut out, b"max");
        if self.is_closed {
            raw::append(&mut out, ElementType::Boolean as u8, b"closed", &[1]);
        }
        control.finish(&mut out);
        self.meta.append(&mut out, b"meta");
        let data = Frame::begin_field(&mut out, kind::DOCUMENT, b"data");
        for column in &self.columns {
            let frame = Frame::begin_field(&mut out, kind::DOCUMENT, &column.name);
            out.extend_from_slice(&column.stored);
            out.extend_from_slice(&column.added);
            frame.finish(&mut out);
        }
        data.finish(&mut out);
        whole.finish(&mut out);
        out
    }

    /// The same bucket without measurements, for those that stay of it.
    pub fn emptied(&self, options: &TimeseriesOptions) -> Self {
        let mut least = Parts::new();
        least.set(options.time_field.as_bytes(), DATE, &self.begin_ms.to_le_bytes());
        Self {
            id: self.id,
            begin_ms: self.begin_ms,
            meta: self.meta.clone(),
            least,
            greatest: Parts::new(),
            columns: Vec::new(),
            column_places: NamePlaces::default(),
            rows: 0,
            bytes: empty_bytes(&self.meta, options),
            is_closed: self.is_closed,
        }
    }

    /// For measurements of another source.
    pub(super) fn with_meta_of(self, measurement: &Measurement<'_>) -> Self {
        Self {
            meta: measurement.meta.clone(),
            ..self
        }
    }
}

/// The bytes of a bucket without rows, about: the frames, `_id`, the names of the layout and the least time.
fn empty_bytes(meta: &MetaValue, options: &TimeseriesOptions) -> usize {
    128 + meta.bytes.len() + options.time_field.len()
}

/// The `_id` of a bucket that begins then: its seconds since 1970, as far as four bytes go, and what is unique.
pub fn id_of(begin_ms: i64, unique: &[u8]) -> ObjectId {
    let mut id = [0xFF; 12];
    id[..4].copy_from_slice(&seconds_of(begin_ms));
    for (to, from) in id[4..].iter_mut().zip(unique) {
        *to = *from;
    }
    ObjectId::from_bytes(id)
}

fn seconds_of(begin_ms: i64) -> [u8; 4] {
    let seconds = begin_ms.div_euclid(1000).clamp(0, i64::from(u32::MAX));
    (seconds as u32).to_be_bytes()
}

/// A bucket that was made elsewhere, as it is to be stored: in layout version 1, with the fields of `meta` in order,
/// and with the `_id` that its time asks for. Borrows one that is so. What is no bucket stays as it is.
pub fn adopted<'b>(bucket: &'b RawDocument, options: &TimeseriesOptions) -> Result<Cow<'b, [u8]>, QueryError> {
    let mut bytes = uncompressed(bucket)?;
    let plain = RawDocument::from_bytes(bytes.as_ref()).map_err(|_| Malformed)?;
    if let Some(ordered) = with_ordered_meta(plain)? {
        bytes = Cow::Owned(ordered);
    }
    let plain = RawDocument::from_bytes(bytes.as_ref()).map_err(|_| Malformed)?;
    if let Some((place, seconds)) = seconds_to_mend(plain, options)? {
        bytes.to_mut()[place..place + seconds.len()].copy_from_slice(&seconds);
    }
    Ok(bytes)
}

/// A bucket with the fields of documents in `meta` in the order of their names, as measurements have them; `None` when
/// they are.
pub fn with_ordered_meta(bucket: &RawDocument) -> Result<Option<Vec<u8>>, QueryError> {
    let Some(meta) = raw::find(bucket, b"meta")? else {
        return Ok(None);
    };
    let ordered = MetaValue::of(meta)?;
    let (stored, ordered) = (meta.value_bytes(), &ordered.bytes[1..]);
    // Another order takes as many bytes.
    debug_assert_eq!(stored.len(), ordered.len());
    if stored == ordered {
        return Ok(None);
    }
    let mut bytes = bucket.as_bytes().to_vec();
    bytes[meta.end() - stored.len()..meta.end()].copy_from_slice(ordered);
    Ok(Some(bytes))
}

/// Where the `_id` of a bucket has the seconds, and which they have to be, if others are there. MongoDB has the low 32
/// bits of them, which come round, and buckets whose `_id` is of another time.
fn seconds_to_mend(bucket: &RawDocument, options: &TimeseriesOptions) -> Result<Option<(usize, [u8; 4])>, Malformed> {
    let (Some(id), Ok(control)) = (raw::find(bucket, b"_id")?, bucket.get_document("control")) else {
        return Ok(None);
    };
    let Ok(least) = control.get_document("min") else {
        return Ok(None);
    };
    let begin_ms = raw::find(least, options.time_field.as_bytes())?.and_then(date);
    let Some(begin_ms) = begin_ms.filter(|_| id.kind() == ElementType::ObjectId as u8) else {
        return Ok(None);
    };
    let (is, wanted) = (id.value_bytes(), seconds_of(begin_ms));
    Ok((!is.starts_with(&wanted)).then_some((id.end() - is.len(), wanted)))
}

/// The parts of a stored bucket.
pub(crate) struct BucketParts<'b> {
    pub(crate) id: ObjectId,
    pub(crate) least: &'b RawDocument,
    pub(crate) greatest: &'b RawDocument,
    pub(crate) meta: Option<Element<'b>>,
    pub(crate) data: &'b RawDocument,
    is_closed: bool,
}

pub(super) fn malformed(what: &str) -> QueryError {
    QueryError::bad_value(format!("a document is no bucket of a time-series collection: {what}"))
}

/// Takes a stored bucket apart.
///
/// Errors: it is not of layout version 1 (238), or malformed (2).
pub(crate) fn parts(bucket: &RawDocument) -> Result<BucketParts<'_>, QueryError> {
    let (mut id, mut control, mut meta, mut data) = (None, None, None, None);
    for element in Elements::new(bucket) {
        let element = element?;
        match (element.name(), element.kind()) {
            (b"_id", 0x07) => id = element.value_bytes().try_into().ok().map(ObjectId::from_bytes),
            (b"control", kind::DOCUMENT) => control = Some(element.frame()?),
            (b"meta", _) => meta = Some(element),
            (b"data", kind::DOCUMENT) => data = Some(element.frame()?),
            _ => return Err(malformed(&format!("the field {}", element.name_lossy()))),
        }
    }
    let control = control.ok_or_else(|| malformed("no control"))?;
    let (mut version, mut least, mut greatest, mut is_closed) = (None, None, None, false);
    for element in Elements::new(control) {
        let element = element?;
        match (element.name(), element.kind()) {
            (b"version", _) => version = keys_number(element),
            (b"min", kind::DOCUMENT) => least = Some(element.frame()?),
            (b"max", kind::DOCUMENT) => greatest = Some(element.frame()?),
            (b"closed", 0x08) => is_closed = element.value_bytes() == [1],
            (b"count", _) => {}
            _ => return Err(malformed(&format!("the field control.{}", element.name_lossy()))),
        }
    }
    match version {
        Some(1) => {}
        Some(2 | 3) => {
            return Err(QueryError::new(
                ErrorCode::NotImplemented,
                "buckets of a time-series collection with compressed columns (control.version 2 and 3) are not built",
            ));
        }
        _ => return Err(malformed("control.version")),
    }
    Ok(BucketParts {
        id: id.ok_or_else(|| malformed("_id is no ObjectId"))?,
        least: least.ok_or_else(|| malformed("no control.min"))?,
        greatest: greatest.ok_or_else(|| malformed("no control.max"))?,
        meta,
        data: data.ok_or_else(|| malformed("no data"))?,
        is_closed,
    })
}

fn keys_number(element: Element<'_>) -> Option<i64> {
    match element.value().ok()? {
        bson::RawBsonRef::Int32(number) => Some(i64::from(number)),
        bson::RawBsonRef::Int64(number) => Some(number),
        bson::RawBsonRef::Double(number) if number.fract() == 0.0 => Some(number as i64),
        _ => None,
    }
}

/// The columns of a bucket.
pub(crate) fn columns(data: &RawDocument) -> impl Iterator<Item = Result<(Element<'_>, &RawDocument), QueryError>> {
    Elements::new(data).map(|column| {
        let column = column?;
        match column.kind() {
            kind::DOCUMENT => Ok((column, column.frame()?)),
            _ => Err(malformed(&format!("the column {}", column.name_lossy()))),
        }
    })
}

/// How many rows a column of times has.
fn rows_of(times: &RawDocument) -> Result<usize, QueryError> {
    let mut rows = 0;
    for element in Elements::new(times) {
        let element = element?;
        let row = array_index(element.name()).filter(|row| *row as usize == rows);
        if row.is_none() || element.kind() != DATE {
            return Err(malformed(
                "the rows of its times do not count up, or have something else than dates",
            ));
        }
        rows += 1;
    }
    Ok(rows)
}

/// How many rows a column of times has, by its length and its last row: times are dates, and their row numbers have no
/// gaps.
fn rows_ending(times: &[u8]) -> Result<usize, QueryError> {
    let gaps = || malformed("the rows of its times have gaps, or something else than dates");
    let (mut rows, mut bytes_left, mut digits) = (0, times.len(), 1);
    loop {
        // Rows whose numbers have so many digits: 10, 90, 900 and so on.
        let of_digits = 10_usize.saturating_pow(digits) - if digits > 1 { 10_usize.pow(digits - 1) } else { 0 };
        let row_bytes = DATE_BYTES + digits as usize;
        if bytes_left <= of_digits.saturating_mul(row_bytes) {
            if bytes_left % row_bytes != 0 {
                return Err(gaps());
            }
            rows += bytes_left / row_bytes;
            break;
        }
        rows += of_digits;
        bytes_left -= of_digits * row_bytes;
        digits += 1;
    }
    if rows > 0 {
        let mut last = Vec::with_capacity(DATE_BYTES + digits as usize);
        raw::append_indexed(&mut last, DATE, rows - 1, &[0; 8]);
        let name = last.len() - 8;
        if times[times.len() - last.len()..][..name] != last[..name] {
            return Err(gaps());
        }
    }
    Ok(rows)
}

/// How many measurements a stored bucket has.
pub fn measurements_in(bucket: &RawDocument, options: &TimeseriesOptions) -> Result<u64, QueryError> {
    let data = parts(bucket)?.data;
    match raw::find(data, options.time_field.as_bytes())? {
        Some(times) if times.kind() == kind::DOCUMENT => Ok(rows_of(times.frame()?)? as u64),
        _ => Err(malformed("no times")),
    }
}

/// Checks a bucket that was made elsewhere: what is asked of measurements is answered by its control fields.
///
/// Errors: see [`OpenBucket::read`]; fields that do not say what the columns have (2).
pub fn check_bucket(bucket: &RawDocument, options: &TimeseriesOptions) -> Result<(), QueryError> {
    let open = OpenBucket::read(&Bytes::copy_from_slice(bucket.as_bytes()), options)?;
    let parts = parts(bucket)?;
    if measurements_in(bucket, options)? != open.rows as u64 {
        return Err(malformed("the rows of its times have gaps"));
    }
    if !open.id.bytes().starts_with(&seconds_of(open.begin_ms)) {
        return Err(malformed("_id has another time than control.min"));
    }
    if open.rows == 0 || open.rows > i32::MAX as usize {
        return Err(malformed("it has no measurements"));
    }
    // The extents that inserting would have made; the begin is that of the time.
    let (mut least, mut greatest) = (Parts::new(), Parts::new());
    least.set(options.time_field.as_bytes(), DATE, &open.begin_ms.to_le_bytes());
    let mut names = HashSet::new();
    for (near, column) in columns(parts.data).enumerate() {
        let (column, values) = column?;
        if !names.insert(column.name()) {
            return Err(malformed(&format!("two columns {}", column.name_lossy())));
        }
        let is_time = column.name() == options.time_field.as_bytes();
        if is_meta(column.name(), options) {
            return Err(malformed("a column of the metaField"));
        }
        let mut row_before = None;
        for value in Elements::new(values) {
            let value = value?;
            let row = array_index(value.name()).filter(|row| (*row as usize) < open.rows);
            if row.is_none() || row <= row_before {
                return Err(malformed("a column's rows do not rise, or are not those of the times"));
            }
            row_before = row;
            let mut named = Vec::with_capacity(value.value_bytes().len() + column.name().len() + 7);
            let frame = Frame::begin(&mut named);
            raw::append(&mut named, value.kind(), column.name(), value.value_bytes());
            frame.finish(&mut named);
            let named = RawDocument::from_bytes(&named).map_err(|_| Malformed)?;
            let named = Elements::new(named).next().ok_or(Malformed)??;
            if is_time {
                let time_ms = date(named).filter(|time_ms| options.spans(open.begin_ms, *time_ms));
                if time_ms.is_none() {
                    return Err(malformed("a time outside of its span"));
                }
            }
            if !greatest.admits(named, near)? {
                return Err(malformed("values of several types at one path"));
            }
            if !is_time {
                least.widen(named, End::Least, near)?;
            }
            greatest.widen(named, End::Greatest, near)?;
        }
    }
    if !least.equals(&open.least)? || !greatest.equals(&open.greatest)? {
        return Err(malformed("control.min and control.max are not those of the columns"));
    }
    Ok(())
}
