//! The definition of one index.
//!
//! Immutable but for what `IndexShared` holds: the multikey flags (set, never cleared) and usage counters. A change of
//! definition makes a new `Index` that shares them. What an index takes from documents is a `Shape`; nearly every
//! collection's `_id_` index has the same one, and there may be a hundred thousand of them.

use crate::predicate::{Check, Predicate, PredicateCompiler};
use crate::{RecordIds, StorageError};
use bson::raw::{RawBson, RawBsonRef, cstr};
use bson::{RawDocument, RawDocumentBuf, rawdoc};
use collation::Collation;
use engine::TableId;
use geometry::plane::{BITS_MAX, DEFAULT_BITS, Grid};
use keys::{Collator, FieldKind, IndexPattern, KeyExtractor, MultikeyPaths, TextSpec, WildcardSpec};
use parking_lot::RwLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};

/// What it takes to know an index: its normalised specification, taken apart.
#[derive(Clone, Debug, PartialEq)]
pub struct IndexSpec {
    /// The index's name, unique in its collection.
    pub name: String,
    /// The key pattern.
    pub key: RawDocumentBuf,
    /// No two documents may have the same key.
    pub unique: bool,
    /// No new document may have a key that another one has; those that share one may stay.
    pub prepare_unique: bool,
    /// It was made without `unique`, and became unique later: rows are those of an index that is not. No part of
    /// [`IndexSpec::spec`].
    pub records_in_keys: bool,
    /// Documents without any of the fields are left out.
    pub sparse: bool,
    /// Only documents that match are in the index.
    pub partial_filter: Option<RawDocumentBuf>,
    /// Documents are deleted so many seconds after the date in the indexed field.
    pub expire_after_seconds: Option<i64>,
    /// The planner does not see it.
    pub hidden: bool,
    /// Its rows carry the documents.
    pub clustering: bool,
    /// The order of strings; `None` is binary.
    pub collation: Option<Arc<Collation>>,
    /// The whole specification, normalised (`v: 2`), as `listIndexes` shows it. The fields above win where they differ.
    pub spec: RawDocumentBuf,
}

/// The collation that a specification or a collection's options name.
pub(crate) fn collation_in(options: &RawDocument) -> Result<Option<Arc<Collation>>, StorageError> {
    let Ok(document) = options.get_document("collation") else {
        return Ok(None);
    };
    let parsed = Collation::parse(document).map_err(|error| StorageError::CannotCreateIndex(error.to_string()))?;
    Ok(parsed.map(Arc::new))
}

fn collator_of(collation: Option<&Arc<Collation>>) -> Option<Arc<dyn Collator>> {
    collation.map(|collation| Arc::clone(collation) as Arc<dyn Collator>)
}

impl IndexSpec {
    /// Takes a normalised specification apart.
    pub fn from_document(spec: &RawDocument) -> Result<Self, StorageError> {
        let missing =
            |what: &str| StorageError::CannotCreateIndex(format!("index specification lacks '{what}': {spec:?}"));
        let flag = |name: &str| spec.get(name).ok().flatten().is_some_and(truthy);
        let mut parsed = Self {
            name: spec.get_str("name").map_err(|_| missing("name"))?.to_owned(),
            key: spec.get_document("key").map_err(|_| missing("key"))?.to_owned(),
            unique: flag("unique"),
            prepare_unique: flag("prepareUnique"),
            records_in_keys: false,
            sparse: flag("sparse"),
            partial_filter: spec.get_document("partialFilterExpression").ok().map(ToOwned::to_owned),
            expire_after_seconds: spec.get("expireAfterSeconds").ok().flatten().and_then(whole_number),
            hidden: flag("hidden"),
            clustering: flag("clustering"),
            collation: collation_in(spec)?,
            spec: spec.to_owned(),
        };
        // The specification of `_id_` does not say it.
        parsed.unique |= parsed.is_id();
        Ok(parsed)
    }

    /// The `_id_` index of every collection, which has its collation.
    pub fn id_index(collation: Option<Arc<Collation>>) -> Self {
        let mut spec = RawDocumentBuf::new();
        if let Some(collation) = &collation {
            spec.append(cstr!("collation"), collation.document().to_owned());
        }
        let mut key = RawDocumentBuf::new();
        key.append(cstr!("_id"), 1);
        Self {
            name: "_id_".to_owned(),
            key,
            unique: true,
            prepare_unique: false,
            records_in_keys: false,
            sparse: false,
            partial_filter: None,
            expire_after_seconds: None,
            hidden: false,
            clustering: false,
            collation,
            spec,
        }
        .normalised()
    }

    /// The documents of a clustered collection as what leads to them by `_id`, where a collection's options ask for
    /// that.
    pub(crate) fn clustered(options: &RawDocument) -> Result<Option<Self>, StorageError> {
        // Buckets of measurements say `true`: they have numbers.
        let Ok(asked) = options.get_document("clusteredIndex") else {
            return Ok(None);
        };
        let name = asked.get_str("name").unwrap_or("_id_");
        let collation = collation_in(options)?;
        let expire_after_seconds = options.get("expireAfterSeconds").ok().flatten().and_then(whole_number);
        let key = rawdoc! { "_id": 1 };
        let mut spec = rawdoc! { "v": 2, "key": key.clone(), "name": name, "unique": true };
        if let Some(collation) = &collation {
            spec.append(cstr!("collation"), collation.document().to_owned());
        }
        spec.append(cstr!("clustered"), true);
        Ok(Some(Self {
            name: name.to_owned(),
            key,
            unique: true,
            prepare_unique: false,
            records_in_keys: false,
            sparse: false,
            partial_filter: None,
            expire_after_seconds,
            hidden: false,
            clustering: true,
            collation,
            spec,
        }))
    }

    /// The grid of a `2d` index.
    pub fn grid(&self) -> Result<Grid, StorageError> {
        let option = |name: &str| self.spec.get(name).ok().flatten();
        let (low, high) = Grid::default().interval();
        let bound = |name: &str, default: f64| option(name).map_or(Some(default), geometry::read::number);
        let bits = option("bits").map_or(Some(i64::from(DEFAULT_BITS)), whole_number);
        let bits = bits.and_then(|bits| u32::try_from(bits).ok());
        let grid = |(bits, (low, high))| Grid::new(low, high, bits);
        let given = bits.zip(bound("min", low).zip(bound("max", high)));
        given.and_then(grid).ok_or_else(|| {
            StorageError::CannotCreateIndex(format!(
                "bits for hash must be > 0 and <= {BITS_MAX}, and min and max numbers, of which max is greater"
            ))
        })
    }

    /// The paths of a wildcard index.
    pub fn wildcard(&self) -> Result<WildcardSpec, StorageError> {
        let mut fields = self.key.iter().flatten().map(|(name, _)| name.as_str());
        let field = fields.find(|name| name.ends_with("$**")).unwrap_or_default();
        let projection = self.spec.get_document("wildcardProjection").ok();
        WildcardSpec::parse(field, projection).map_err(|error| StorageError::CannotCreateIndex(error.to_string()))
    }

    /// `_id_`: the key is `{_id: 1}`, of whatever type the number is.
    pub(crate) fn is_id(&self) -> bool {
        self.is_on_id() && keys::compare_documents(&self.key, &rawdoc! { "_id": 1 }).is_eq()
    }

    /// On the values of `_id` alone: `_id_`, or one like `{_id: -2}`, which is an index like any other.
    pub(crate) fn is_on_id(&self) -> bool {
        let mut fields = self.key.iter();
        let first = fields.next();
        // A string is a kind of its own, as in `{_id: "hashed"}`.
        matches!(first, Some(Ok((name, value))) if name.as_str() == "_id" && !matches!(value, RawBsonRef::String(_)))
            && fields.next().is_none()
    }

    /// The same with `spec` made anew from the fields, other options kept in their order.
    pub(crate) fn normalised(mut self) -> Self {
        let mut spec = RawDocumentBuf::new();
        spec.append(cstr!("v"), 2);
        spec.append(cstr!("key"), self.key.clone());
        spec.append(cstr!("name"), self.name.as_str());
        if self.unique && !self.is_id() {
            spec.append(cstr!("unique"), true);
        }
        if self.prepare_unique {
            spec.append(cstr!("prepareUnique"), true);
        }
        if self.sparse {
            spec.append(cstr!("sparse"), true);
        }
        if let Some(filter) = &self.partial_filter {
            spec.append(cstr!("partialFilterExpression"), filter.clone());
        }
        if let Some(seconds) = self.expire_after_seconds {
            match i32::try_from(seconds) {
                Ok(seconds) => spec.append(cstr!("expireAfterSeconds"), seconds),
                Err(_) => spec.append(cstr!("expireAfterSeconds"), seconds),
            }
        }
        if self.hidden {
            spec.append(cstr!("hidden"), true);
        }
        if self.clustering {
            spec.append(cstr!("clustering"), true);
        }
        const OWN: [&str; 10] = [
            "v",
            "key",
            "name",
            "unique",
            "prepareUnique",
            "sparse",
            "partialFilterExpression",
            "expireAfterSeconds",
            "hidden",
            "clustering",
        ];
        for (name, value) in self.spec.iter().flatten() {
            if !OWN.contains(&name.as_str()) && name.as_str() != "ns" {
                spec.append(name, value);
            }
        }
        self.spec = spec;
        self
    }

    /// Whether this one, which exists, is the one asked for as far as `unique` goes: earlier versions made all that are
    /// on `_id` unique, and may be asked for these again.
    pub(crate) fn is_unique_as(&self, asked: &IndexSpec) -> bool {
        self.unique == asked.unique || (self.unique && self.is_on_id())
    }

    /// True when two that make the same index have the same options but for their names; this one exists.
    pub(crate) fn same_options(&self, other: &IndexSpec) -> bool {
        let extra = |spec: &IndexSpec| {
            let mut rest: Vec<_> = [
                "collation",
                "weights",
                "default_language",
                "language_override",
                "bits",
                "min",
                "max",
                "2dsphereIndexVersion",
            ]
            .iter()
            .filter_map(|name| {
                spec.spec
                    .get(name)
                    .ok()
                    .flatten()
                    .map(|value| (*name, RawBson::from(value)))
            })
            .collect();
            rest.sort_by_key(|(name, _)| *name);
            rest
        };
        self.is_unique_as(other)
            && self.sparse == other.sparse
            && self.expire_after_seconds == other.expire_after_seconds
            && self.hidden == other.hidden
            && self.clustering == other.clustering
            && extra(self) == extra(other)
    }
}

pub(crate) fn truthy(value: RawBsonRef<'_>) -> bool {
    match value {
        RawBsonRef::Boolean(b) => b,
        RawBsonRef::Null | RawBsonRef::Undefined => false,
        other => whole_number(other) != Some(0),
    }
}

/// A number of any type as an integer; fractions are cut off.
pub(crate) fn whole_number(value: RawBsonRef<'_>) -> Option<i64> {
    match value {
        RawBsonRef::Int32(n) => Some(i64::from(n)),
        RawBsonRef::Int64(n) => Some(n),
        RawBsonRef::Double(n) if n.is_finite() => Some(n as i64),
        _ => None,
    }
}

pub(crate) struct IndexShared {
    /// `None`: no arrays so far.
    multikey: RwLock<Option<Box<Multikey>>>,
    accesses: AtomicU64,
    since_ms: i64,
}

#[derive(Default)]
struct Multikey {
    /// Places that may be arrays in a document some view shows, or will soon.
    announced: MultikeyPaths,
    /// Of those, the ones a log entry tells of.
    logged: MultikeyPaths,
}

impl IndexShared {
    pub(crate) fn new(places: Option<&MultikeyPaths>, since_ms: i64) -> Arc<Self> {
        let multikey = places.map(|places| {
            Box::new(Multikey {
                announced: places.clone(),
                logged: places.clone(),
            })
        });
        Arc::new(Self {
            multikey: RwLock::new(multikey),
            accesses: AtomicU64::new(0),
            since_ms,
        })
    }
}

/// That of an `_id_` index with no options.
static ID_SHAPE: LazyLock<Arc<Shape>> =
    LazyLock::new(|| Arc::new(Shape::new(IndexSpec::id_index(None), None).expect("a pattern of one field")));

/// What an index takes from which documents.
struct Shape {
    spec: IndexSpec,
    is_id: bool,
    extractor: KeyExtractor,
    partial: Option<Arc<dyn Predicate>>,
    reads: Reads,
}

/// What of documents an index's keys depend on.
enum Reads {
    /// The paths of its pattern's fields.
    Fields,
    Paths(Vec<String>),
    Everything,
}

impl Shape {
    fn new(spec: IndexSpec, partial: Option<Arc<dyn Predicate>>) -> Result<Self, StorageError> {
        let mut pattern =
            IndexPattern::parse(&spec.key).map_err(|error| StorageError::CannotCreateIndex(error.to_string()))?;
        if let Some(FieldKind::Plane(_)) = pattern.special() {
            pattern = pattern.with_grid(spec.grid()?);
        }
        let mut reads = Reads::Fields;
        let is_wildcard = pattern.special() == Some(FieldKind::Path);
        let is_text = pattern.special() == Some(FieldKind::Term);
        let values = pattern.fields().iter().filter(|field| field.kind() == FieldKind::Value);
        let values: Vec<String> = values.map(|field| field.path().to_owned()).collect();
        let mut extractor = KeyExtractor::new(pattern, spec.sparse, collator_of(spec.collation.as_ref()));
        if is_text {
            let text =
                TextSpec::parse(&spec.spec).map_err(|error| StorageError::CannotCreateIndex(error.to_string()))?;
            reads = Reads::Paths(values.clone());
            extractor = extractor.with_text(Arc::new(text));
        }
        if is_wildcard {
            let wildcard = spec.wildcard()?;
            reads = match wildcard.reads() {
                Some(paths) => Reads::Paths(paths.into_iter().chain(values).collect()),
                None => Reads::Everything,
            };
            extractor = extractor.with_wildcard(Arc::new(wildcard));
        }
        Ok(Self {
            is_id: spec.is_id(),
            extractor,
            partial,
            spec,
            reads,
        })
    }
}

/// See the module.
pub struct Index {
    shape: Arc<Shape>,
    table: TableId,
    ready: bool,
    record_ids: RecordIds,
    is_clustered: bool,
    shared: Arc<IndexShared>,
}

impl Index {
    /// Builds the definition; the specification has been normalised.
    pub(crate) fn new(
        spec: &IndexSpec,
        table: TableId,
        ready: bool,
        record_ids: RecordIds,
        compiler: &dyn PredicateCompiler,
        shared: Arc<IndexShared>,
    ) -> Result<Self, StorageError> {
        let shape = if *spec == ID_SHAPE.spec {
            ID_SHAPE.clone()
        } else {
            let compile = |filter: &RawDocumentBuf| {
                let collator = collator_of(spec.collation.as_ref());
                compiler
                    .compile(filter, collator)
                    .map_err(StorageError::CannotCreateIndex)
            };
            let partial = spec.partial_filter.as_ref().map(compile).transpose()?;
            Arc::new(Shape::new(spec.clone(), partial)?)
        };
        Ok(Self {
            shape,
            table,
            ready,
            record_ids,
            is_clustered: false,
            shared,
        })
    }

    /// The documents of a clustered collection as what leads to them by `_id`: `table` is theirs.
    pub(crate) fn of_documents(
        spec: IndexSpec,
        table: TableId,
        shared: Arc<IndexShared>,
    ) -> Result<Self, StorageError> {
        Ok(Self {
            shape: Arc::new(Shape::new(spec, None)?),
            table,
            ready: true,
            record_ids: RecordIds::Keys,
            is_clustered: true,
            shared,
        })
    }

    /// What the records are known by to which its rows lead.
    pub(crate) fn record_ids(&self) -> RecordIds {
        self.record_ids
    }

    /// True when it is no index but the documents of a clustered collection themselves, by `_id`. Its rows have
    /// neither a record id nor type bits of their own.
    pub fn is_clustered(&self) -> bool {
        self.is_clustered
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.shape.spec.name
    }

    /// `v`, `key`, `name` and the options, as `listIndexes` shows it.
    pub fn spec(&self) -> &RawDocument {
        &self.shape.spec.spec
    }

    /// The specification, taken apart.
    pub fn parsed_spec(&self) -> &IndexSpec {
        &self.shape.spec
    }

    /// The key pattern as a document.
    pub fn key(&self) -> &RawDocument {
        &self.shape.spec.key
    }

    /// The key pattern.
    pub fn pattern(&self) -> &IndexPattern {
        self.shape.extractor.pattern()
    }

    /// The order of strings in its keys; `None` is binary.
    pub fn collation(&self) -> Option<&Arc<Collation>> {
        self.shape.spec.collation.as_ref()
    }

    /// Takes keys out of documents.
    pub fn extractor(&self) -> &KeyExtractor {
        &self.shape.extractor
    }

    /// Which texts of documents are in it, if it is a text index.
    pub fn text(&self) -> Option<&Arc<TextSpec>> {
        self.shape.extractor.text()
    }

    /// Which paths are in it, if it is a wildcard index.
    pub fn wildcard(&self) -> Option<&Arc<WildcardSpec>> {
        self.shape.extractor.wildcard()
    }

    /// False when a change of which `touches` answers false for a path gives the same keys.
    pub(crate) fn is_touched(&self, mut touches: impl FnMut(&str) -> bool) -> bool {
        if self.text().is_some_and(|text| text.is_touched(&mut touches)) {
            return true;
        }
        match &self.shape.reads {
            Reads::Fields => self.pattern().fields().iter().any(|field| touches(field.path())),
            Reads::Paths(paths) => paths.iter().any(|path| touches(path)),
            Reads::Everything => true,
        }
    }

    /// True when no two documents may have the same key (`_id_` included).
    pub fn unique(&self) -> bool {
        self.shape.spec.unique
    }

    /// True when no new document may have a key that another one has; those that share one may stay.
    pub fn prepares_unique(&self) -> bool {
        self.shape.spec.prepare_unique
    }

    /// True when a write that adds a key that another record has is refused. While an index that is prepared for that
    /// is built, nobody knows of all keys.
    pub(crate) fn refuses_duplicates(&self) -> bool {
        self.unique() || self.prepares_unique() && self.ready
    }

    /// True when there is one row for each key, whose value begins with the record's id; else the id ends the row's
    /// key.
    pub fn has_unique_rows(&self) -> bool {
        self.unique() && !self.shape.spec.records_in_keys
    }

    /// True when documents without any of the fields are left out.
    pub fn sparse(&self) -> bool {
        self.shape.spec.sparse
    }

    /// The filter of a partial index.
    pub fn partial_filter(&self) -> Option<&RawDocument> {
        self.shape.spec.partial_filter.as_deref()
    }

    /// The same, as it was compiled when the index was defined.
    pub fn predicate(&self) -> Option<&Arc<dyn Predicate>> {
        self.shape.partial.as_ref()
    }

    /// Seconds until expiry of a TTL index.
    pub fn expire_after_seconds(&self) -> Option<i64> {
        self.shape.spec.expire_after_seconds
    }

    /// True when the planner must not see it.
    pub fn hidden(&self) -> bool {
        self.shape.spec.hidden
    }

    /// True when its rows carry the documents: who scans it reads nothing else.
    pub fn clustering(&self) -> bool {
        self.shape.spec.clustering
    }

    /// True for `_id_`.
    pub fn is_id(&self) -> bool {
        self.shape.is_id
    }

    /// True once every document is in it.
    pub fn ready(&self) -> bool {
        self.ready
    }

    /// Its table in the engine.
    pub fn table(&self) -> TableId {
        self.table
    }

    /// Which parts of the pattern's paths may meet arrays. Ask after taking the view.
    pub fn multikey(&self) -> MultikeyPaths {
        let multikey = self.shared.multikey.read();
        multikey
            .as_ref()
            .map_or_else(MultikeyPaths::new, |multikey| multikey.announced.clone())
    }

    /// Counts one use by a plan.
    pub fn record_access(&self) {
        self.shared.accesses.fetch_add(1, Ordering::Relaxed);
    }

    /// Begins to count anew, as after a change of what the index is used for.
    pub fn forget_accesses(&self) {
        self.shared.accesses.store(0, Ordering::Relaxed);
    }

    /// Uses by plans, and since when they are counted (milliseconds since the Unix epoch): `$indexStats`.
    pub fn accesses(&self) -> (u64, i64) {
        (self.shared.accesses.load(Ordering::Relaxed), self.shared.since_ms)
    }

    /// True when the document belongs into a partial index, or the index is not partial.
    /// The only errors are those of `check`.
    pub fn covers(&self, document: &RawDocument, check: &Check<'_>) -> Result<bool, StorageError> {
        match &self.shape.partial {
            Some(partial) => partial.matches(document, check),
            None => Ok(true),
        }
    }

    pub(crate) fn shared(&self) -> &Arc<IndexShared> {
        &self.shared
    }

    /// Announces array places to readers; answers whether one of them is not told of by any log entry yet.
    pub(crate) fn announce_multikey(&self, places: &MultikeyPaths) -> bool {
        if places.is_empty() {
            return false;
        }
        if let Some(multikey) = self.shared.multikey.read().as_ref()
            && holds_all(&multikey.announced, places)
        {
            return !holds_all(&multikey.logged, places);
        }
        let mut multikey = self.shared.multikey.write();
        let multikey = multikey.get_or_insert_default();
        multikey.announced.merge(places);
        !holds_all(&multikey.logged, places)
    }

    /// A log entry tells of these places.
    pub(crate) fn multikey_logged(&self, places: &MultikeyPaths) {
        if !places.is_empty() {
            let mut multikey = self.shared.multikey.write();
            let multikey = multikey.get_or_insert_default();
            multikey.announced.merge(places);
            multikey.logged.merge(places);
        }
    }
}

fn holds_all(places: &MultikeyPaths, wanted: &MultikeyPaths) -> bool {
    wanted.iter().all(|(field, part)| places.contains(field, part))
}
