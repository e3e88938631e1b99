//! Query settings: what an operator has said of all queries of one shape, on every member of a set.
//!
//! They are kept as MongoDB keeps them, in the cluster parameter `querySettings`: one document of
//! `config.clusterParameters` with `settingsArray`, whose elements are `{queryShapeHash, settings,
//! representativeQuery}`. This is what of it is in memory, where each query looks for its own. As long as there are
//! none, that is one load of a flag; else the query's shape is made, once.

use crate::arguments::{Arguments, missing_field, wrong_type};
use crate::error::{CommandError, Result};
use bson::raw::{RawArray, RawBsonRef, RawDocument, RawDocumentBuf};
use bson::{Bson, Document, doc};
use parking_lot::{Mutex, RwLock};
use query::plan::{IndexHints, QueryFramework, QuerySettings, ShapeHash};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use storage::Namespace;
use wire::ErrorCode;

/// The `_id` of their document.
pub(crate) const ID: &str = "querySettings";
/// The field of the settings in it.
pub(crate) const ARRAY: &str = "settingsArray";

/// Databases whose queries have no settings: an operator must always get at them.
const INTERNAL: [&str; 3] = ["admin", "config", "local"];
/// Stages that tell of the server. A pipeline that begins with one is never rejected.
const ADMINISTRATIVE: [&str; 10] = [
    "$collStats",
    "$currentOp",
    "$indexStats",
    "$listCatalog",
    "$listLocalSessions",
    "$listSampledQueries",
    "$listSessions",
    "$planCacheStats",
    "$querySettings",
    "$queryStats",
];

/// What is kept of one shape.
#[derive(Clone, Debug)]
pub(crate) struct KeptSettings {
    pub settings: Arc<QuerySettings>,
    /// A query of the shape; none where only the hash was given.
    pub query: Option<RawDocumentBuf>,
}

impl KeptSettings {
    /// The element of the kept array, and what `$querySettings` shows.
    pub fn to_document(&self, hash: &ShapeHash) -> Result<Document> {
        let mut document = doc! { "queryShapeHash": hash.to_string(), "settings": self.settings.to_document() };
        if let Some(query) = &self.query {
            document.insert("representativeQuery", Document::try_from(&**query)?);
        }
        Ok(document)
    }

    fn of_document(kept: &Document) -> Result<(ShapeHash, Self)> {
        let malformed = || CommandError::bad_value("no query settings");
        let hash = kept.get_str("queryShapeHash").ok().and_then(ShapeHash::parse);
        let settings = kept.get_document("settings").map_err(|_| malformed())?;
        let query = kept.get_document("representativeQuery").ok();
        let settings = Change::read(&RawDocumentBuf::try_from(settings)?)?.applied(None);
        let kept = Self {
            settings: Arc::new(settings),
            query: query.map(RawDocumentBuf::try_from).transpose()?,
        };
        Ok((hash.ok_or_else(malformed)?, kept))
    }
}

/// By the hash of the shape.
pub(crate) type ByShape = BTreeMap<ShapeHash, KeptSettings>;

/// The settings in a document of `config.clusterParameters`.
#[derive(Default)]
pub(crate) struct Kept {
    pub by_shape: ByShape,
    /// Elements that cannot be made sense of, as they are: another version may know what they say.
    others: Vec<Bson>,
}

impl Kept {
    pub fn of_parameter(kept: Option<&Document>) -> Self {
        let mut all = Self::default();
        let elements = kept.and_then(|kept| kept.get_array(ARRAY).ok());
        for element in elements.into_iter().flatten() {
            let known = element.as_document().map(KeptSettings::of_document);
            match known {
                Some(Ok((hash, settings))) => drop(all.by_shape.insert(hash, settings)),
                Some(Err(_)) | None => all.others.push(element.clone()),
            }
        }
        all
    }

    /// The elements of the kept array.
    pub fn elements(&self) -> Result<Vec<Bson>> {
        let known = self.by_shape.iter();
        let known = known.map(|(hash, kept)| Ok(Bson::Document(kept.to_document(hash)?)));
        known.chain(self.others.iter().cloned().map(Ok)).collect()
    }

    /// Sets those of one shape, in place of whatever there was.
    pub fn set(&mut self, hash: ShapeHash, settings: KeptSettings) {
        self.remove(&hash);
        self.by_shape.insert(hash, settings);
    }

    /// Takes those of one shape away. Returns whether there were any.
    pub fn remove(&mut self, hash: &ShapeHash) -> bool {
        let before = self.others.len();
        self.others.retain(|other| {
            let of = other
                .as_document()
                .and_then(|other| other.get_str("queryShapeHash").ok());
            of.and_then(ShapeHash::parse).as_ref() != Some(hash)
        });
        self.by_shape.remove(hash).is_some() || self.others.len() < before
    }
}

/// All settings, as queries look for them.
#[derive(Default)]
pub(crate) struct SettingsOfShapes {
    /// There are some.
    are_used: AtomicBool,
    by_shape: RwLock<Arc<ByShape>>,
    /// Of the elements of the kept array.
    bytes: AtomicU64,
    /// The document that they were taken from.
    taken: Mutex<Option<Document>>,
    /// Held while they are changed: what is read is still so when it is written.
    pub changes: Mutex<()>,
}

impl SettingsOfShapes {
    /// Whether there are any.
    pub fn are_used(&self) -> bool {
        self.are_used.load(Ordering::Relaxed)
    }

    /// Lives by the document that is kept.
    pub fn take_up(&self, kept: Option<&Document>) {
        let mut taken = self.taken.lock();
        if taken.as_ref() == kept {
            return;
        }
        let by_shape = Kept::of_parameter(kept).by_shape;
        let elements = by_shape.iter().filter_map(|(hash, kept)| kept.to_document(hash).ok());
        let bytes =
            elements.filter_map(|element| Some(RawDocumentBuf::try_from(element).ok()?.as_bytes().len() as u64));
        self.bytes.store(bytes.sum(), Ordering::Relaxed);
        self.are_used.store(!by_shape.is_empty(), Ordering::Relaxed);
        *self.by_shape.write() = Arc::new(by_shape);
        *taken = kept.cloned();
    }

    /// All of them.
    pub fn all(&self) -> Arc<ByShape> {
        Arc::clone(&self.by_shape.read())
    }

    /// Bytes of all of them, as they are kept.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Those of one shape.
    pub fn find(&self, hash: &ShapeHash) -> Option<Arc<QuerySettings>> {
        let by_shape = self.by_shape.read();
        by_shape.get(hash).map(|kept| Arc::clone(&kept.settings))
    }
}

/// Why queries of a command's kind have no settings; `None` where they may.
pub(crate) fn refusal(database: &str, command: &RawDocument) -> Option<CommandError> {
    let refused = |code, message: &str| Some(CommandError::new(ErrorCode(code), message));
    if INTERNAL.contains(&database) {
        return refused(
            8_584_900,
            "setQuerySettings command cannot be used on internal databases",
        );
    }
    let target = command.iter().flatten().next().map(|(_, target)| target);
    let is_system = matches!(target, Some(RawBsonRef::String(name)) if name.starts_with("system."));
    if is_system {
        return refused(
            8_584_901,
            "setQuerySettings command cannot be used on system collections",
        );
    }
    None
}

/// Whether the command is a pipeline that tells of the server.
pub(crate) fn is_administrative(command: &RawDocument) -> bool {
    let stages = command.get_array("pipeline").ok();
    let first = stages.and_then(|stages| stages.into_iter().flatten().next());
    let Some(RawBsonRef::Document(stage)) = first else {
        return false;
    };
    let name = stage.iter().flatten().next().map(|(name, _)| name);
    name.is_some_and(|name| ADMINISTRATIVE.contains(&name.as_str()))
}

/// What a client wants set: fields that are not there stay as they are.
#[derive(Debug, Default)]
pub(crate) struct Change {
    hints: Option<Vec<IndexHints>>,
    framework: Option<QueryFramework>,
    reject: Option<bool>,
    comment: Option<Bson>,
}

impl Change {
    /// Reads `settings`.
    ///
    /// # Errors
    /// `TypeMismatch`, `BadValue`, `FailedToParse`, 40414, 40415, and MongoDB's own codes for hints: 8727500 and
    /// 8727501 for a namespace without its half, 7746608 for two of one collection.
    pub fn read(settings: &RawDocument) -> Result<Self> {
        let arguments = Arguments::of("setQuerySettings.settings");
        let mut change = Self::default();
        arguments.each(settings, |name, value| {
            match name {
                "indexHints" => change.hints = Some(read_hints(value)?),
                "queryFramework" => {
                    let name = arguments.string(name, value)?;
                    let framework = QueryFramework::parse(name).ok_or_else(|| {
                        CommandError::bad_value(format!(
                            "Enumeration value '{name}' for field 'setQuerySettings.settings.queryFramework' is not a \
                             valid value."
                        ))
                    })?;
                    change.framework = Some(framework);
                }
                "reject" => change.reject = Some(arguments.flag(name, value)?),
                "comment" => change.comment = Some(Bson::try_from(value)?),
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        Ok(change)
    }

    /// The settings after the change.
    pub fn applied(self, former: Option<&KeptSettings>) -> QuerySettings {
        let former = former.map(|former| &former.settings);
        let hints = self.hints.or_else(|| former.map(|former| former.hints.clone()));
        QuerySettings {
            hints: hints.unwrap_or_default(),
            framework: self.framework.or_else(|| former.and_then(|former| former.framework)),
            reject: self
                .reject
                .unwrap_or_else(|| former.is_some_and(|former| former.reject)),
            comment: self
                .comment
                .or_else(|| former.and_then(|former| former.comment.clone())),
        }
    }
}

const HINTS: &str = "setQuerySettings.settings.indexHints";

fn read_hints(value: RawBsonRef<'_>) -> Result<Vec<IndexHints>> {
    let mut hints: Vec<IndexHints> = Vec::new();
    let mut read = |value: RawBsonRef<'_>| {
        let RawBsonRef::Document(document) = value else {
            return Err(wrong_type(
                "setQuerySettings.settings",
                "indexHints",
                value,
                "types '[array, object]'",
            ));
        };
        let read = read_hint(document)?;
        if hints.iter().any(|other| other.namespace() == read.namespace()) {
            return Err(CommandError::new(
                ErrorCode(7_746_608),
                format!("the collection '{}' has more than one index hint", read.namespace()),
            ));
        }
        hints.push(read);
        Ok(())
    };
    match value {
        RawBsonRef::Array(array) => {
            for element in array {
                read(element?)?;
            }
        }
        value => read(value)?,
    }
    Ok(hints)
}

fn read_hint(hint: &RawDocument) -> Result<IndexHints> {
    let arguments = Arguments::of(HINTS);
    let (mut ns, mut allowed): (Option<&RawDocument>, Option<&RawArray>) = (None, None);
    arguments.each(hint, |name, value| {
        match name {
            "ns" => ns = Some(arguments.document(name, value)?),
            "allowedIndexes" => allowed = Some(arguments.array(name, value)?),
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    let ns = ns.ok_or_else(|| missing_field(HINTS, "ns"))?;
    let allowed = allowed.ok_or_else(|| missing_field(HINTS, "allowedIndexes"))?;
    let of_ns = Arguments::of("setQuerySettings.settings.indexHints.ns");
    let (mut database, mut collection) = (None, None);
    of_ns.each(ns, |name, value| {
        match name {
            "db" => database = Some(of_ns.string(name, value)?),
            "coll" => collection = Some(of_ns.string(name, value)?),
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    let missing = |code, field: &str| {
        CommandError::new(
            ErrorCode(code),
            format!("invalid index hint: '{field}' field is missing"),
        )
    };
    let database = database.ok_or_else(|| missing(8_727_500, "ns.db"))?;
    let collection = collection.ok_or_else(|| missing(8_727_501, "ns.coll"))?;
    Ok(IndexHints::parse(Namespace::new(database, collection)?, allowed)?)
}
