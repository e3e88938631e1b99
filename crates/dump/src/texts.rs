//! What becomes of documents with text that is not UTF-8, and what is told of it.
//!
//! Buckets of time series are looked into: users know the measurements. A bucket whose text changes gets the extents of
//! its new columns, without which servers refuse it; compressed columns hide their text from whoever validates
//! documents.

use crate::error::{DumpError, Result};
use crate::found::Found;
use bson::{RawDocument, RawDocumentBuf};
use query::timeseries::{self, PutMeasurement};
use std::borrow::Cow;
use storage::TimeseriesOptions;
use wire::InvalidText;
use wire::limits::DOCUMENT_BYTES_MAX;

/// How many there were, and the first of them in words.
#[derive(Debug, Default)]
struct Tally {
    count: u64,
    first: Option<String>,
}

impl Tally {
    fn add(&mut self, what: String) {
        self.add_all(1, Some(what));
    }

    fn add_all(&mut self, count: u64, first: Option<String>) {
        self.count += count;
        self.first = self.first.take().or(first);
    }

    /// Those of a bucket of `subject` of which so many were told already. Which these are is not known: most often the
    /// first is one of them, and is not told again.
    fn beyond(self, told: u64, subject: &str) -> Self {
        let count = self.count.saturating_sub(told);
        let first = self.first.filter(|_| count > 0).map(|first| match told {
            0 => format!("{subject}: {first}"),
            _ => format!("{subject}: in a bucket of which others are told already"),
        });
        Self { count, first }
    }
}

/// How many were left out and replaced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) left_out: u64,
    pub(crate) replaced: u64,
}

impl Counts {
    /// Those that came behind others.
    pub(crate) fn since(self, before: Self) -> Self {
        Self {
            left_out: self.left_out - before.left_out,
            replaced: self.replaced - before.replaced,
        }
    }
}

/// Those of one collection, or of a log.
#[derive(Debug)]
pub(crate) struct Texts {
    /// What becomes of them; without a choice they are errors.
    chosen: Option<InvalidText>,
    left_out: Tally,
    replaced: Tally,
}

impl Texts {
    pub(crate) fn new(chosen: Option<InvalidText>) -> Self {
        Self {
            chosen,
            left_out: Tally::default(),
            replaced: Tally::default(),
        }
    }

    fn add(&mut self, other: Self) {
        self.left_out.add_all(other.left_out.count, other.left_out.first);
        self.replaced.add_all(other.replaced.count, other.replaced.first);
    }

    /// How many there were.
    pub(crate) fn counts(&self) -> Counts {
        Counts {
            left_out: self.left_out.count,
            replaced: self.replaced.count,
        }
    }

    /// Whether they are errors.
    pub(crate) fn are_errors(&self) -> bool {
        self.chosen.is_none()
    }

    /// What is restored of a document, `None` for nothing.
    ///
    /// Errors: the restoration ends here.
    pub(crate) fn document<'d>(&mut self, found: &'d Found) -> Result<Option<Cow<'d, RawDocument>>> {
        let Some(what) = found.what_is_invalid() else {
            return Ok(Some(Cow::Borrowed(found.as_found())));
        };
        let valid = self.valid(found.as_found(), what, &found.place(), DOCUMENT_BYTES_MAX)?;
        Ok(valid.map(Cow::Owned))
    }

    /// As [`Texts::document`], of a bucket; measurements are what is counted.
    pub(crate) fn bucket<'d>(
        &mut self,
        found: &'d Found,
        options: &TimeseriesOptions,
    ) -> Result<Option<Cow<'d, RawDocument>>> {
        self.bucket_at(found.as_found(), found.is_valid(), &found.place(), options)
    }

    /// As [`Texts::bucket`], of one of the collection `subject` that was counted before a log changed it.
    pub(crate) fn bucket_again<'d>(
        &mut self,
        bucket: &'d RawDocument,
        (subject, place): (&str, &str),
        options: &TimeseriesOptions,
        counted: Counts,
    ) -> Result<Option<Cow<'d, RawDocument>>> {
        let mut texts = Self::new(self.chosen);
        let made = texts.bucket_at(bucket, false, place, options)?;
        self.add(Self {
            chosen: self.chosen,
            left_out: texts.left_out.beyond(counted.left_out, subject),
            replaced: texts.replaced.beyond(counted.replaced, subject),
        });
        Ok(made)
    }

    /// `is_valid`: what is in sight of the bucket is.
    fn bucket_at<'d>(
        &mut self,
        found: &'d RawDocument,
        is_valid: bool,
        place: &str,
        options: &TimeseriesOptions,
    ) -> Result<Option<Cow<'d, RawDocument>>> {
        // A server says best what is wrong with a bucket that cannot be read.
        let as_found = Ok(Some(Cow::Borrowed(found)));
        let Ok(plain) = timeseries::with_plain_columns(found) else {
            return as_found;
        };
        // The file's reader has looked at all that is in sight.
        if is_valid && matches!(plain, Cow::Borrowed(_)) {
            return as_found;
        }
        let (Ok(Some(error)), Ok(bucket)) = (wire::validate_structure(&plain), RawDocument::from_bytes(&plain)) else {
            return as_found;
        };
        // Counted for as long as it is not known what becomes of the bucket.
        let (mut texts, mut measurements) = (Self::new(self.chosen), 0);
        let rebuilt = timeseries::rebuilt(bucket, options, &mut |measurement, put| {
            measurements += 1;
            texts.measurement(measurement, place, put)
        });
        match rebuilt {
            Ok(Some(bucket)) if bucket.len() > DOCUMENT_BYTES_MAX => {
                let what = format!("the bucket of {place}: too large when it is made anew");
                self.left_out.add_all(measurements, Some(what));
                Ok(None)
            }
            Ok(made) => {
                if texts.counts() == Counts::default() {
                    // In extents, in rows without a time, or in the value of a metaField that the options do not have.
                    let what = wire::describe_invalid(&plain, &error);
                    let what = format!("{what}, outside of the bucket's measurements");
                    match (self.chosen, &made) {
                        (None, _) => return Err(invalid_text(place, what)),
                        (Some(_), Some(_)) => texts.replaced.add(what),
                        (Some(_), None) => texts.left_out.add(what),
                    }
                }
                self.add(texts);
                Ok(made.and_then(owned).map(Cow::Owned))
            }
            Err(DumpError::Bucket(_)) => as_found,
            Err(error) => Err(error),
        }
    }

    /// Puts a measurement into the bucket that is made anew.
    fn measurement(&mut self, measurement: &RawDocument, place: &str, put: &mut PutMeasurement<'_>) -> Result<()> {
        let mut of_it = Self::new(self.chosen);
        let valid = match wire::validate_structure(measurement.as_bytes()) {
            Ok(Some(error)) => {
                let what = wire::describe_invalid(measurement.as_bytes(), &error);
                let valid = of_it.valid(measurement, what, place, DOCUMENT_BYTES_MAX)?;
                valid.map(Cow::Owned)
            }
            _ => Some(Cow::Borrowed(measurement)),
        };
        match valid {
            Some(valid) if !put(&valid)? => {
                let what = "it does not fit the others: a field twice, or values of other types at one path";
                self.leave_out(format!("a measurement of the bucket of {place}: {what}"));
            }
            _ => self.add(of_it),
        }
        Ok(())
    }

    /// A document whose content is invalid with valid content, or `None`: it is left out.
    pub(crate) fn valid(
        &mut self,
        document: &RawDocument,
        what: String,
        place: &str,
        bytes_max: usize,
    ) -> Result<Option<RawDocumentBuf>> {
        let Some(chosen) = self.chosen else {
            return Err(invalid_text(place, what));
        };
        let stored = chosen.stored(document.as_bytes(), bytes_max).and_then(owned);
        match (&stored, chosen) {
            (Some(_), _) => self.replaced.add(what),
            (None, InvalidText::Skip) => self.left_out.add(what),
            (None, InvalidText::Replace) => {
                self.left_out
                    .add(format!("{what}, and it would be too large with U+FFFD"));
            }
        }
        Ok(stored)
    }

    /// Counts one that is left out whatever was chosen.
    pub(crate) fn leave_out(&mut self, what: String) {
        self.left_out.add(what);
    }

    /// In words, if any of `subject` were left out, and if any were replaced.
    pub(crate) fn told(&self, subject: &str) -> (Option<String>, Option<String>) {
        let told = |tally: &Tally, how: &str| tally.first.as_ref().map(|first| format!("{subject}: {how}: {first}"));
        (
            told(&self.left_out, "left out, the first of them"),
            told(&self.replaced, "U+FFFD is put in, the first time"),
        )
    }
}

fn invalid_text(place: &str, what: String) -> DumpError {
    DumpError::InvalidText {
        place: place.to_owned(),
        what,
    }
}

fn owned(document: Vec<u8>) -> Option<RawDocumentBuf> {
    RawDocumentBuf::from_bytes(document).ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use bson::oid::ObjectId;
    use bson::{DateTime, Document, doc};
    use query::timeseries::{Measurement, OpenBucket, check_bucket, measurements_in};
    use std::sync::Arc;

    fn options() -> Arc<TimeseriesOptions> {
        let options = doc! { "timeseries": { "timeField": "t" } };
        TimeseriesOptions::of(&RawDocumentBuf::try_from(&options).unwrap()).unwrap()
    }

    /// A bucket of these fields, as a program wrote it whose strings are bytes: the first `times` # are other bytes,
    /// which nothing but text has.
    fn bucket(measurements: &[Document], times: usize) -> Found {
        let options = options();
        let mut made: Option<OpenBucket> = None;
        for fields in measurements {
            let mut document = doc! { "t": DateTime::from_millis(0) };
            document.extend(fields.clone());
            let document = RawDocumentBuf::try_from(&document).unwrap();
            let measurement = Measurement::of(&document, &options).unwrap();
            let made =
                made.get_or_insert_with(|| OpenBucket::begin(&measurement, &options, ObjectId::from_bytes([0; 12])));
            made.add(&measurement, &options).unwrap();
        }
        let mut bytes = made.unwrap().to_document();
        let hashes = bytes.iter_mut().filter(|byte| **byte == b'#');
        hashes.take(times).for_each(|byte| *byte = 0xE9);
        Found::of_server(RawDocument::from_bytes(&bytes).unwrap())
    }

    /// The bucket was made anew without a word, and where such text is to end the restoration, too.
    #[test]
    fn text_outside_of_a_buckets_measurements_is_told() {
        // In both extents, and not in the column.
        let found = bucket(&[doc! { "v": "caf#" }], 2);
        for chosen in [InvalidText::Skip, InvalidText::Replace] {
            let mut texts = Texts::new(Some(chosen));
            let made = texts.bucket(&found, &options()).unwrap().unwrap();
            check_bucket(&made, &options()).unwrap();
            assert_eq!((texts.counts().left_out, texts.counts().replaced), (0, 1));
            let (_, told) = texts.told("shop.x");
            let told = told.unwrap();
            assert!(told.contains("'control.min.v'") && told.contains("outside"), "{told}");
        }
        let stopped = Texts::new(None).bucket(&found, &options()).unwrap_err();
        assert!(stopped.is_invalid_text(), "{stopped}");
    }

    /// No server took the bucket.
    #[test]
    fn a_measurement_whose_names_become_those_of_others_is_left_out() {
        let found = bucket(
            &[doc! { "f\u{FFFD}E9": 1 }, doc! { "f#": "x" }, doc! { "f#": 2 }],
            usize::MAX,
        );
        let mut texts = Texts::new(Some(InvalidText::Replace));
        let made = texts.bucket(&found, &options()).unwrap().unwrap();
        check_bucket(&made, &options()).unwrap();
        assert_eq!(measurements_in(&made, &options()).unwrap(), 2);
        assert_eq!((texts.counts().left_out, texts.counts().replaced), (1, 1));
    }

    /// The first of the bucket was told, which was the dump's.
    #[test]
    fn of_a_bucket_that_was_counted_only_what_is_new_is_told() {
        let found = bucket(&[doc! { "v": "caf#" }, doc! { "v": "g#" }], usize::MAX);
        for (counted, expected) in [(0, "field 'v'"), (1, "others are told already"), (2, "")] {
            let mut texts = Texts::new(Some(InvalidText::Skip));
            let counted = Counts {
                left_out: counted,
                replaced: 0,
            };
            let place = ("d.system.buckets.x", "the log");
            let made = texts.bucket_again(found.as_found(), place, &options(), counted);
            assert!(made.unwrap().is_none(), "nothing is left");
            assert_eq!(texts.counts().left_out, 2 - counted.left_out);
            let told = texts.told("the log").0;
            assert_eq!(told.is_none(), expected.is_empty(), "{told:?}");
            assert!(told.is_none_or(|told| told.contains(expected)));
        }
    }
}
