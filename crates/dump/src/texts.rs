//! What becomes of documents with text that is not UTF-8, and what is told of it.
//!
//! Buckets of time series are looked into: users know the measurements. A bucket whose text changes gets the extents of
//! its new columns, without which servers refuse it; compressed columns hide their text from whoever validates
//! documents.

use crate::error::{DumpError, Result};
use crate::found::Found;
use bson::{RawDocument, RawDocumentBuf};
use query::timeseries;
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
        // A server says best what is wrong with a bucket that cannot be read.
        let as_found = Ok(Some(Cow::Borrowed(found.as_found())));
        let Ok(plain) = timeseries::with_plain_columns(found.as_found()) else {
            return as_found;
        };
        // The file's reader has looked at all that is in sight.
        if found.is_valid() && matches!(plain, Cow::Borrowed(_)) {
            return as_found;
        }
        let (Ok(Some(_)), Ok(bucket)) = (wire::validate_structure(&plain), RawDocument::from_bytes(&plain)) else {
            return as_found;
        };
        // Counted for as long as it is not known what becomes of the bucket.
        let (mut texts, mut measurements) = (Self::new(self.chosen), 0);
        let rebuilt = timeseries::rebuilt(bucket, options, &mut |measurement| {
            measurements += 1;
            match wire::validate_structure(measurement.as_bytes()) {
                Ok(Some(error)) => {
                    let what = wire::describe_invalid(measurement.as_bytes(), &error);
                    texts.valid(measurement, what, &found.place(), DOCUMENT_BYTES_MAX)
                }
                _ => Ok(Some(measurement.to_owned())),
            }
        });
        match rebuilt {
            Ok(Some(bucket)) if bucket.len() <= DOCUMENT_BYTES_MAX => {
                self.add(texts);
                Ok(owned(bucket).map(Cow::Owned))
            }
            Ok(Some(_)) => {
                let what = format!("the bucket of {}: too large when it is made anew", found.place());
                self.left_out.add_all(measurements, Some(what));
                Ok(None)
            }
            Ok(None) => {
                self.add(texts);
                Ok(None)
            }
            Err(DumpError::Bucket(_)) => as_found,
            Err(error) => Err(error),
        }
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
            return Err(DumpError::InvalidText {
                place: place.to_owned(),
                what,
            });
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

    /// How many were left out.
    pub(crate) fn left_out(&self) -> u64 {
        self.left_out.count
    }

    /// How many were replaced.
    pub(crate) fn replaced(&self) -> u64 {
        self.replaced.count
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

fn owned(document: Vec<u8>) -> Option<RawDocumentBuf> {
    RawDocumentBuf::from_bytes(document).ok()
}
