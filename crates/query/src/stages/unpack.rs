//! `$_internalUnpackBucket`: the measurements of the buckets of a time-series collection.
//!
//! The stage takes the `$match` behind it in: as a predicate on buckets ahead of it where there is one, and as a filter
//! of measurements for the rest. Of a bucket only the columns are looked into that the filter and the stages behind
//! need, and of the rows only those whose time can match.

use bson::{Bson, Document, RawBsonRef, RawDocument, RawDocumentBuf, doc};
use bytes::Bytes;
use std::collections::{BTreeSet, VecDeque};

use super::filter::Checkpoint;
use super::{Stage, StageContext, failure};
use crate::error::QueryError;
use crate::evaluation::StageMemory;
use crate::expression::{Dependencies, ExpressionContext};
use crate::matcher::{MatchExpr, Matcher};
use crate::raw::Malformed;
use crate::timeseries::{Fields, TimeBounds, UNPACK, UnpackPosition, Unpacking, rewrite, sort_on_buckets};
use crate::value::{SharedDocument, SortPattern, Value};

/// Which fields measurements have.
#[derive(Clone, Debug)]
enum Kept {
    All,
    Only(BTreeSet<String>),
    AllBut(BTreeSet<String>),
}

impl Kept {
    fn has(&self, field: &[u8]) -> bool {
        let is_in = |fields: &BTreeSet<String>| std::str::from_utf8(field).is_ok_and(|field| fields.contains(field));
        match self {
            Self::All => true,
            Self::Only(fields) => is_in(fields),
            Self::AllBut(fields) => !is_in(fields),
        }
    }
}

/// A parsed `$_internalUnpackBucket`.
#[derive(Clone, Debug)]
pub struct UnpackSpec {
    time_field: String,
    meta_field: Option<String>,
    span_seconds: i64,
    kept: Kept,
    /// Top-level fields that are needed of those; `None` for all.
    needed: Option<BTreeSet<String>>,
    filter: Option<Matcher>,
}

impl UnpackSpec {
    /// Parses the stage's argument.
    pub(super) fn parse(raw: RawBsonRef<'_>, context: &ExpressionContext) -> Result<Self, QueryError> {
        let RawBsonRef::Document(document) = raw else {
            let found = Value::from_raw(raw).type_name();
            return failure(
                5346500,
                format!("{UNPACK} specification must be an object, got: {found}"),
            );
        };
        let (mut time_field, mut span_seconds) = (None, None);
        let mut spec = Self {
            time_field: String::new(),
            meta_field: None,
            span_seconds: 3600,
            kept: Kept::All,
            needed: None,
            filter: None,
        };
        for element in document {
            let (name, value) = element.map_err(|_| Malformed)?;
            match (name.as_str(), value) {
                ("timeField", RawBsonRef::String(field)) => time_field = Some(top_level("timeField", field)?),
                ("metaField", RawBsonRef::String(field)) => spec.meta_field = Some(top_level("metaField", field)?),
                ("bucketMaxSpanSeconds", value) => {
                    span_seconds = super::parse::whole_number(value).filter(|seconds| *seconds > 0);
                    if span_seconds.is_none() {
                        return failure(5510600, "bucketMaxSpanSeconds must be a positive integer");
                    }
                }
                (name @ ("include" | "exclude"), RawBsonRef::Array(fields)) => {
                    let mut listed = BTreeSet::new();
                    for field in fields {
                        match field.map_err(|_| Malformed)? {
                            RawBsonRef::String(field) => drop(listed.insert(top_level(name, field)?)),
                            _ => return failure(5346502, format!("array elements of '{name}' must be strings")),
                        }
                    }
                    if !matches!(spec.kept, Kept::All) {
                        return failure(
                            5408000,
                            "The $_internalUnpackBucket stage expects at most one of include and exclude",
                        );
                    }
                    spec.kept = match name {
                        "include" => Kept::Only(listed),
                        // A view leaves nothing out.
                        _ if listed.is_empty() => Kept::All,
                        _ => Kept::AllBut(listed),
                    };
                }
                ("eventFilter", RawBsonRef::Document(filter)) => spec.filter = Some(Matcher::parse(filter, context)?),
                // What they promise is true of all buckets.
                ("assumeNoMixedSchemaData" | "fixedBuckets" | "usesExtendedRange", RawBsonRef::Boolean(_)) => {}
                (
                    other @ ("computedMetaProjFields"
                    | "wholeBucketFilter"
                    | "includeMinTimeAsMetadata"
                    | "includeMaxTimeAsMetadata"
                    | "sbeCompatible"),
                    _,
                ) => {
                    return Err(QueryError::not_implemented(&format!("{UNPACK}.{other}")));
                }
                (other, value) => {
                    let found = Value::from_raw(value).type_name();
                    return failure(
                        5346506,
                        format!("unrecognized parameter to {UNPACK}: {other} of the type {found}"),
                    );
                }
            }
        }
        let Some(time_field) = time_field else {
            return failure(5346508, format!("The {UNPACK} stage requires a timeField parameter"));
        };
        spec.time_field = time_field;
        spec.span_seconds = span_seconds.unwrap_or(spec.span_seconds);
        Ok(spec)
    }

    /// The stage as `explain` shows it.
    pub(super) fn written(&self) -> RawDocumentBuf {
        let list =
            |fields: &BTreeSet<String>| Bson::Array(fields.iter().map(|field| Bson::from(field.as_str())).collect());
        let mut spec = Document::new();
        let visible = self.visible();
        match (&visible, &self.kept) {
            (Some(needed), _) => drop(spec.insert("include", list(needed))),
            (None, Kept::Only(fields)) => drop(spec.insert("include", list(fields))),
            (None, Kept::AllBut(fields)) => drop(spec.insert("exclude", list(fields))),
            (None, Kept::All) => drop(spec.insert("exclude", Bson::Array(Vec::new()))),
        }
        spec.insert("timeField", self.time_field.as_str());
        if let Some(meta) = &self.meta_field {
            spec.insert("metaField", meta.as_str());
        }
        spec.insert(
            "bucketMaxSpanSeconds",
            i32::try_from(self.span_seconds).map_or(Bson::Int64(self.span_seconds), Bson::Int32),
        );
        if let Some(filter) = &self.filter {
            let filter = Document::try_from(&*filter.to_document()).unwrap_or_default();
            spec.insert("eventFilter", filter);
        }
        RawDocumentBuf::try_from(&doc! { UNPACK: spec }).unwrap_or_default()
    }

    fn fields(&self, is_collated: bool) -> Fields<'_> {
        Fields {
            time: &self.time_field,
            meta: self.meta_field.as_deref(),
            span_ms: self.span_seconds.saturating_mul(1000),
            is_collated,
        }
    }

    /// Takes the `$match` behind the stage in. Answers the conjuncts of the predicate on buckets ahead of it.
    pub(super) fn take_match(&mut self, matcher: &Matcher) -> Result<Vec<MatchExpr>, QueryError> {
        let collator = matcher.collator().cloned();
        let (mut ahead, mut behind) = (Vec::new(), Vec::new());
        if let Some(own) = &self.filter {
            behind.extend(own.root().conjuncts().iter().cloned());
        }
        for part in matcher.root().conjuncts() {
            // Fields that are left out are missing whatever buckets have.
            let rewritten = match self.kept {
                Kept::All => Some(rewrite(self.fields(collator.is_some()), part)?),
                Kept::Only(_) | Kept::AllBut(_) => None,
            };
            let is_exact = rewritten.as_ref().is_some_and(|rewritten| rewritten.is_exact);
            ahead.extend(rewritten.and_then(|rewritten| rewritten.buckets));
            if !is_exact {
                behind.push(part.clone());
            }
        }
        self.filter = (!behind.is_empty()).then(|| Matcher::from_expr(MatchExpr::and(behind), collator));
        Ok(ahead)
    }

    /// The order of buckets that makes a `$sort` behind the stage unnecessary.
    pub(super) fn take_sort(
        &self,
        pattern: &SortPattern,
        context: &ExpressionContext,
    ) -> Result<Option<SortPattern>, QueryError> {
        match self.kept {
            Kept::All => sort_on_buckets(pattern, self.meta_field.as_deref(), &context.comparer),
            Kept::Only(_) | Kept::AllBut(_) => Ok(None),
        }
    }

    /// Says what the stages behind need.
    pub(super) fn set_needed(&mut self, behind: &Dependencies) {
        self.needed = (!behind.whole_document).then(|| top_level_fields(behind));
    }

    /// The fields that are made; `None` for all.
    fn visible(&self) -> Option<BTreeSet<String>> {
        let mut needed = self.needed.clone()?;
        if let Some(filter) = &self.filter {
            let mut read = Dependencies::default();
            filter.root().add_dependencies(&mut read);
            if read.whole_document {
                return None;
            }
            needed.extend(top_level_fields(&read));
        }
        Some(needed)
    }

    /// Puts the running stage on top of `source`.
    pub(super) fn start(self, source: Box<dyn Stage>) -> Box<dyn Stage> {
        let (mut bounds, mut rest) = (TimeBounds::ALL, Vec::new());
        for part in self.filter.iter().flat_map(|filter| filter.root().conjuncts()) {
            let of_time = match part {
                MatchExpr::Path { path, test } if path.text() == self.time_field => TimeBounds::of(test),
                _ => None,
            };
            match of_time.filter(|_| self.kept.has(self.time_field.as_bytes())) {
                Some(more) => bounds = bounds.and(more),
                None => rest.push(part.clone()),
            }
        }
        let collator = self.filter.as_ref().and_then(|filter| filter.collator().cloned());
        let needed = match rest.is_empty() {
            // What only the bounds read need not be made.
            true => self.needed.clone(),
            false => self.visible(),
        };
        Box::new(UnpackStage {
            source,
            bounds,
            filter: (!rest.is_empty()).then(|| Matcher::from_expr(MatchExpr::and(rest), collator)),
            needed,
            spec: self,
            bucket: None,
            unpacked: VecDeque::new(),
            memory: StageMemory::default(),
            checkpoint: Checkpoint::default(),
            n_buckets: 0,
        })
    }
}

fn top_level(option: &str, field: &str) -> Result<String, QueryError> {
    match field.contains('.') {
        true => failure(
            5346503,
            format!("'{option}' of {UNPACK} must name top-level fields, not '{field}'"),
        ),
        false => Ok(field.to_owned()),
    }
}

fn top_level_fields(dependencies: &Dependencies) -> BTreeSet<String> {
    let first = |path: &String| path.split('.').next().unwrap_or(path).to_owned();
    dependencies.paths.iter().map(first).collect()
}

/// The running stage.
struct UnpackStage {
    source: Box<dyn Stage>,
    spec: UnpackSpec,
    bounds: TimeBounds,
    filter: Option<Matcher>,
    needed: Option<BTreeSet<String>>,
    /// The current bucket, and how far it has been gone through.
    bucket: Option<(SharedDocument, UnpackPosition)>,
    /// The rest of the measurements that were made of it last.
    unpacked: VecDeque<SharedDocument>,
    /// The bytes of both.
    memory: StageMemory,
    checkpoint: Checkpoint,
    n_buckets: u64,
}

impl UnpackStage {
    fn is_made(&self, field: &[u8]) -> bool {
        let is_needed =
            |needed: &BTreeSet<String>| std::str::from_utf8(field).is_ok_and(|field| needed.contains(field));
        self.spec.kept.has(field) && self.needed.as_ref().is_none_or(is_needed)
    }

    /// Makes the next measurements of a bucket.
    fn unpack(
        &mut self,
        bucket: &RawDocument,
        position: &mut UnpackPosition,
        context: &StageContext<'_>,
    ) -> Result<(), QueryError> {
        let unpacking = Unpacking {
            time_field: self.spec.time_field.as_bytes(),
            meta_field: self.spec.meta_field.as_deref().map(str::as_bytes),
            bounds: self.bounds,
            is_made: &|field| self.is_made(field),
        };
        let made = unpacking.run(
            bucket,
            position,
            context.evaluation,
            &mut |measurement| match &self.filter {
                None => Ok(true),
                Some(filter) => filter.matches(measurement, context.evaluation),
            },
        )?;
        self.memory.clear();
        self.memory
            .grow(context.evaluation, made.bytes.len() + bucket.as_bytes().len())?;
        let bytes = Bytes::from(made.bytes);
        let mut begin = 0;
        for end in made.ends {
            self.unpacked.push_back(SharedDocument::new(bytes.slice(begin..end))?);
            begin = end;
        }
        Ok(())
    }
}

impl Stage for UnpackStage {
    fn next(&mut self, context: &mut StageContext<'_>) -> Result<Option<SharedDocument>, QueryError> {
        loop {
            if let Some(measurement) = self.unpacked.pop_front() {
                return Ok(Some(measurement));
            }
            let (bucket, mut position) = match self.bucket.take() {
                Some(rest) => rest,
                None => {
                    let Some(bucket) = self.source.next(context)? else {
                        return Ok(None);
                    };
                    self.n_buckets += 1;
                    (bucket, UnpackPosition::default())
                }
            };
            context.evaluation.on(None);
            self.unpack(&bucket, &mut position, context)?;
            self.bucket = (!position.is_done()).then_some((bucket, position));
            self.checkpoint.tick(context)?;
        }
    }

    fn add_statistics(&self, statistics: &mut Document) {
        statistics.insert("nBucketsUnpacked", i64::try_from(self.n_buckets).unwrap_or(i64::MAX));
    }
}
