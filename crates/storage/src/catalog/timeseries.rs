//! The options of a time-series collection, as the collection of its buckets has them.
//!
//! A time-series collection `x` is a view on the collection `system.buckets.x`, whose documents are buckets:
//! measurements of one value of the metaField within one span of time. What a bucket looks like is for those above.

use crate::catalog::Catalog;
use crate::catalog::index::whole_number;
use crate::{Collection, Namespace, StorageError, View};
use bson::RawDocument;
use std::sync::Arc;

/// What comes before a time-series collection's name in that of its buckets.
pub const BUCKETS_PREFIX: &str = "system.buckets.";

/// How far apart the measurements of one source are, roughly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Granularity {
    /// Buckets of an hour.
    Seconds,
    /// Buckets of a day.
    Minutes,
    /// Buckets of 30 days.
    Hours,
}

impl Granularity {
    /// By the name that options have.
    pub fn of(name: &str) -> Option<Self> {
        match name {
            "seconds" => Some(Self::Seconds),
            "minutes" => Some(Self::Minutes),
            "hours" => Some(Self::Hours),
            _ => None,
        }
    }

    /// The name that options have.
    pub fn name(self) -> &'static str {
        match self {
            Self::Seconds => "seconds",
            Self::Minutes => "minutes",
            Self::Hours => "hours",
        }
    }

    /// The longest span of a bucket in seconds.
    pub fn span_seconds(self) -> i64 {
        match self {
            Self::Seconds => 3600,
            Self::Minutes => 86_400,
            Self::Hours => 2_592_000,
        }
    }

    /// What a bucket's begin is a multiple of, in seconds.
    pub fn rounding_seconds(self) -> i64 {
        match self {
            Self::Seconds => 60,
            Self::Minutes => 3600,
            Self::Hours => 86_400,
        }
    }
}

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimeseriesOptions {
    /// The field with a measurement's time.
    pub time_field: String,
    /// The field that says where a measurement comes from.
    pub meta_field: Option<String>,
    /// `None` where the two numbers were given instead.
    pub granularity: Option<Granularity>,
    /// The times of a bucket's measurements are less than this after its begin, in seconds.
    pub span_seconds: i64,
    /// What a bucket's begin is a multiple of, in seconds.
    pub rounding_seconds: i64,
    /// Buckets whose measurements are all older are deleted.
    pub expire_after_seconds: Option<i64>,
}

impl TimeseriesOptions {
    /// Reads them out of a collection's options; `None` for those of other collections.
    pub fn of(options: &RawDocument) -> Option<Arc<Self>> {
        let given = options.get_document("timeseries").ok()?;
        let number = |document: &RawDocument, name: &str| document.get(name).ok().flatten().and_then(whole_number);
        let granularity = given.get_str("granularity").ok().and_then(Granularity::of);
        let usual = granularity.unwrap_or(Granularity::Seconds);
        let span_seconds = number(given, "bucketMaxSpanSeconds").unwrap_or_else(|| usual.span_seconds());
        let rounding_seconds = number(given, "bucketRoundingSeconds").unwrap_or_else(|| usual.rounding_seconds());
        Some(Arc::new(Self {
            time_field: given.get_str("timeField").ok()?.to_owned(),
            meta_field: given.get_str("metaField").ok().map(ToOwned::to_owned),
            granularity,
            span_seconds: span_seconds.max(1),
            rounding_seconds: rounding_seconds.max(1),
            expire_after_seconds: number(options, "expireAfterSeconds"),
        }))
    }

    /// Where the bucket begins that a measurement of this time opens, both in milliseconds.
    pub fn bucket_begin_ms(&self, time_ms: i64) -> i64 {
        let step = self.rounding_seconds.saturating_mul(1000);
        time_ms.saturating_sub(time_ms.rem_euclid(step))
    }

    /// Whether a bucket that begins then may have a measurement of this time.
    pub fn spans(&self, begin_ms: i64, time_ms: i64) -> bool {
        time_ms >= begin_ms && time_ms.saturating_sub(begin_ms) < self.span_ms()
    }

    /// The longest span of a bucket in milliseconds.
    pub fn span_ms(&self) -> i64 {
        self.span_seconds.saturating_mul(1000)
    }
}

/// The name of the collection of a time-series collection's buckets.
///
/// Errors: it would be too long.
pub fn buckets_namespace(ns: &Namespace) -> Result<Namespace, StorageError> {
    Namespace::new(ns.db(), &format!("{BUCKETS_PREFIX}{}", ns.collection()))
}

impl Catalog {
    /// The buckets of a time-series collection; `None` for the name of anything else.
    pub fn buckets(&self, ns: &Namespace) -> Option<Arc<Collection>> {
        self.buckets_of(&*self.view(ns)?)
    }

    /// The buckets that a view makes a time-series collection of.
    pub fn buckets_of(&self, view: &View) -> Option<Arc<Collection>> {
        let name = view.view_on().strip_prefix(BUCKETS_PREFIX)?;
        if name != view.namespace().collection() {
            return None;
        }
        let buckets = self.collection(&buckets_namespace(view.namespace()).ok()?)?;
        buckets.timeseries().is_some().then_some(buckets)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use bson::rawdoc;

    #[test]
    fn options_have_the_spans_of_their_granularity() {
        assert_eq!(TimeseriesOptions::of(&rawdoc! { "capped": true }), None);
        let usual = TimeseriesOptions::of(&rawdoc! { "timeseries": { "timeField": "t" } }).unwrap();
        assert_eq!((usual.span_seconds, usual.rounding_seconds), (3600, 60));
        let hours = rawdoc! { "timeseries": { "timeField": "t", "granularity": "hours" }, "expireAfterSeconds": 7_i64 };
        let hours = TimeseriesOptions::of(&hours).unwrap();
        assert_eq!((hours.span_seconds, hours.rounding_seconds), (2_592_000, 86_400));
        assert_eq!(hours.expire_after_seconds, Some(7));
        let own = rawdoc! { "timeseries": { "timeField": "t", "bucketMaxSpanSeconds": 5, "bucketRoundingSeconds": 5 } };
        let own = TimeseriesOptions::of(&own).unwrap();
        assert_eq!((own.span_ms(), own.rounding_seconds), (5000, 5));
        assert_eq!(own.bucket_begin_ms(12_345), 10_000);
        assert_eq!(own.bucket_begin_ms(-1), -5000, "before 1970, too, down");
    }
}
