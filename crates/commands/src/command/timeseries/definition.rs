//! `create`, `collMod` and `listCollections` of time-series collections.

use super::super::clustered;
use super::super::coll_mod::{IndexEdit, changes_nothing};
use super::super::indexes::parse_spec;
use super::invalid;
use crate::arguments::{Arguments, missing_field, number_as_i64, wrong_type};
use crate::error::{CommandError, Result};
use crate::invocation::Invocation;
use crate::reply::{Reply, narrowed};
use bson::raw::{RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf, cstr};
use bson::{Bson, Document, doc};
use query::timeseries::{UNPACK, index_key_of_buckets};
use storage::{
    Collection, CollectionChange, Granularity, IndexChange, IndexSpec, Namespace, NewTimeseries, StorageError,
    TimeseriesOptions, TimeseriesView,
};
use wire::ErrorCode;

/// Longest span of a bucket in seconds: a year.
const SPAN_SECONDS_MAX: i64 = 365 * 86_400;

/// Options of `create` that a time-series collection may have.
const ALLOWED: [&str; 7] = [
    "create",
    "collation",
    "expireAfterSeconds",
    "indexOptionDefaults",
    "storageEngine",
    "timeseries",
    "temp",
];

/// Refuses options of `create` that do not go together with `timeseries`.
pub fn check_options(call: &Invocation<'_>, namespace: &Namespace) -> Result<()> {
    for element in call.body {
        let (name, value) = element?;
        let is_off = name.as_str() == "capped" && matches!(value, RawBsonRef::Boolean(false));
        let is_absent = matches!(value, RawBsonRef::Null);
        let is_allowed = ALLOWED.contains(&name.as_str()) || crate::arguments::is_generic(name.as_str().as_bytes());
        if !is_off && !is_absent && !is_allowed {
            return Err(invalid(format!(
                "{namespace}: 'timeseries' is not allowed with '{}'",
                name.as_str()
            )));
        }
    }
    Ok(())
}

fn top_level(namespace: &Namespace, option: &str, field: &str) -> Result<String> {
    if field.contains('\0') {
        return Err(CommandError::bad_value(format!("'{option}' contains a NUL")));
    }
    if field.contains('.') {
        return Err(invalid(format!(
            "{namespace}: '{option}' must be a top-level field and not contain a '.'"
        )));
    }
    Ok(field.to_owned())
}

/// What says how long buckets are.
#[derive(Clone, Copy, Default)]
struct Spans {
    granularity: Option<Granularity>,
    span_seconds: Option<i64>,
    rounding_seconds: Option<i64>,
}

impl Spans {
    fn take(&mut self, arguments: Arguments<'_>, name: &str, value: RawBsonRef<'_>) -> Result<bool> {
        match name {
            "granularity" => {
                let given = arguments.string(name, value)?;
                self.granularity = Some(Granularity::of(given).ok_or_else(|| {
                    CommandError::bad_value(format!(
                        "Enumeration value '{given}' for field '{}.granularity' is not a valid value.",
                        arguments.command
                    ))
                })?);
            }
            "bucketMaxSpanSeconds" => self.span_seconds = Some(seconds(arguments, name, value)?),
            "bucketRoundingSeconds" => self.rounding_seconds = Some(seconds(arguments, name, value)?),
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Refuses what contradicts itself.
    fn check(self) -> Result<()> {
        match self {
            Self {
                granularity: Some(_),
                rounding_seconds: Some(_),
                ..
            } => Err(invalid(
                "Timeseries 'bucketRoundingSeconds' is not allowed together with 'granularity'",
            )),
            Self {
                granularity: Some(granularity),
                span_seconds: Some(span),
                ..
            } if span != granularity.span_seconds() => Err(invalid(format!(
                "Timeseries 'bucketMaxSpanSeconds' is not configurable to a value other than the default of {} for the \
                 provided granularity",
                granularity.span_seconds()
            ))),
            Self {
                granularity: None,
                span_seconds,
                rounding_seconds,
            } if span_seconds != rounding_seconds => Err(invalid(
                "Timeseries 'bucketMaxSpanSeconds' and 'bucketRoundingSeconds' must be set to the same value",
            )),
            _ => Ok(()),
        }
    }

    /// As options have them: the usual granularity where nothing is given.
    fn append(self, to: &mut Document) {
        let granularity = match (self.granularity, self.span_seconds) {
            (None, None) => Some(Granularity::Seconds),
            (granularity, _) => granularity,
        };
        if let Some(granularity) = granularity {
            to.insert("granularity", granularity.name());
            to.insert("bucketMaxSpanSeconds", narrowed(granularity.span_seconds()));
        } else if let Some(span) = self.span_seconds {
            to.insert("bucketRoundingSeconds", narrowed(span));
            to.insert("bucketMaxSpanSeconds", narrowed(span));
        }
    }
}

fn seconds(arguments: Arguments<'_>, name: &str, value: RawBsonRef<'_>) -> Result<i64> {
    let seconds = arguments.integer(name, value)?;
    if !(1..=SPAN_SECONDS_MAX).contains(&seconds) {
        return Err(CommandError::bad_value(format!(
            "BSON field '{name}' value must be >= 1 and <= {SPAN_SECONDS_MAX}, actual value '{seconds}'"
        )));
    }
    Ok(seconds)
}

/// Parses the option `timeseries` of `create`; answers it as it is kept.
pub fn parse(namespace: &Namespace, given: &RawDocument) -> Result<Document> {
    let arguments = Arguments::of("create.timeseries");
    let (mut time_field, mut meta_field, mut spans) = (None, None, Spans::default());
    arguments.each(given, |name, value| {
        match name {
            "timeField" => time_field = Some(top_level(namespace, name, arguments.string(name, value)?)?),
            "metaField" => meta_field = Some(top_level(namespace, name, arguments.string(name, value)?)?),
            name => return spans.take(arguments, name, value),
        }
        Ok(true)
    })?;
    let time_field = time_field.ok_or_else(|| missing_field("create.timeseries", "timeField"))?;
    if meta_field.as_deref() == Some("_id") {
        return Err(invalid("'metaField' cannot be \"_id\""));
    }
    if meta_field.as_ref() == Some(&time_field) {
        return Err(invalid("'metaField' cannot be the same as 'timeField'"));
    }
    spans.check()?;
    let mut options = doc! { "timeField": time_field };
    if let Some(meta_field) = meta_field {
        options.insert("metaField", meta_field);
    }
    spans.append(&mut options);
    Ok(options)
}

/// `expireAfterSeconds` of a time-series or clustered collection.
pub fn expiry(arguments: Arguments<'_>, value: RawBsonRef<'_>) -> Result<Bson> {
    let Some(seconds) = number_as_i64(value) else {
        return Err(wrong_type(
            arguments.command,
            "expireAfterSeconds",
            value,
            "types '[long, int, decimal, double]'",
        ));
    };
    if !(0..=i64::from(i32::MAX)).contains(&seconds) {
        return Err(invalid(format!(
            "'expireAfterSeconds' option must be within an acceptable range, not {seconds}"
        )));
    }
    Ok(Bson::Int64(seconds))
}

/// The options of the buckets' collection: what clients gave, and what all have.
pub fn bucket_options(timeseries: &Document, given: &Document) -> Document {
    let time_field = timeseries.get_str("timeField").unwrap_or_default();
    let ends = doc! {
        "bsonType": "object",
        "required": [time_field],
        "properties": { time_field: { "bsonType": "date" } },
    };
    let validator = doc! { "$jsonSchema": {
        "bsonType": "object",
        "required": ["_id", "control", "data"],
        "properties": {
            "_id": { "bsonType": "objectId" },
            "control": {
                "bsonType": "object",
                "required": ["version", "min", "max"],
                "properties": {
                    "version": { "bsonType": "number" },
                    "min": ends.clone(),
                    "max": ends,
                    "closed": { "bsonType": "bool" },
                    "count": { "bsonType": "number", "minimum": 1 },
                },
                "additionalProperties": false,
            },
            "data": { "bsonType": "object" },
            "meta": {},
        },
        "additionalProperties": false,
    } };
    let mut options = doc! { "validator": validator, "clusteredIndex": true };
    options.extend(given.clone());
    options.insert("timeseries", timeseries.clone());
    options
}

/// The stages of the view that a time-series collection is.
fn pipeline(timeseries: &Document) -> Result<RawArrayBuf> {
    let mut unpack = doc! {};
    for name in ["timeField", "metaField", "bucketMaxSpanSeconds"] {
        if let Some(value) = timeseries.get(name) {
            unpack.insert(name, value.clone());
        }
    }
    let mut pipeline = RawArrayBuf::new();
    pipeline.push(RawDocumentBuf::try_from(&doc! { UNPACK: unpack })?);
    Ok(pipeline)
}

/// The view of a time-series collection whose buckets' collection has these options.
pub fn view<'n>(namespace: &'n Namespace, of_buckets: &RawDocument) -> Result<TimeseriesView<'n>> {
    let timeseries = of_buckets
        .get_document("timeseries")
        .map_err(|error| CommandError::bad_value(format!("no options of a time-series collection: {error}")))?;
    let mut options = RawDocumentBuf::new();
    if let Ok(collation) = of_buckets.get_document("collation") {
        options.append(cstr!("collation"), collation.to_owned());
    }
    Ok(TimeseriesView {
        namespace,
        pipeline: pipeline(&Document::try_from(timeseries)?)?,
        options,
    })
}

/// Makes a time-series collection, with its index on metaField and time; answers what the storage said.
pub fn create(
    call: &Invocation<'_>,
    namespace: &Namespace,
    timeseries: &Document,
    given: &Document,
) -> Result<std::result::Result<(), StorageError>> {
    super::refuse_in_transaction(call, "create", namespace)?;
    let options = RawDocumentBuf::try_from(&bucket_options(timeseries, given))?;
    let new = NewTimeseries {
        view: view(namespace, &options)?,
        bucket_options: &options,
        index: index(&options)?,
    };
    Ok(call.server.storage.create_timeseries(&call.operation, &new))
}

/// The index that a time-series collection begins with.
pub fn index(options: &RawDocument) -> Result<Option<IndexSpec>> {
    let Some(timeseries) = TimeseriesOptions::of(options) else {
        return Ok(None);
    };
    let Some(meta) = timeseries.meta_field.as_deref() else {
        return Ok(None);
    };
    let time = timeseries.time_field.as_str();
    let key = RawDocumentBuf::try_from(&doc! { meta: 1, time: 1 })?;
    let key = Document::try_from(index_key_of_buckets(&key, &timeseries)?)?;
    let spec = doc! { "key": key, "name": format!("{meta}_1_{time}_1") };
    let spec = RawDocumentBuf::try_from(&spec)?;
    let collation = options.get_document("collation").ok();
    let collation = query::plan::collation_of(collation, None)?;
    parse_spec(&spec, collation.as_ref(), false).map(Some)
}

/// A time-series collection's options as clients see them.
pub fn shown_options(buckets: &Collection) -> Result<Document> {
    let mut options = Document::try_from(buckets.options())?;
    for own in ["validator", "clusteredIndex"] {
        options.remove(own);
    }
    Ok(options)
}

/// What `collMod` changes of a time-series collection, beside its indexes.
#[derive(Default)]
pub struct Change {
    timeseries: Option<Document>,
    /// `Some(None)` takes it away.
    expiry: Option<Option<Bson>>,
}

impl Change {
    fn is_nothing(&self) -> bool {
        self.timeseries.is_none() && self.expiry.is_none()
    }

    /// Takes one field of `collMod`; what is no field of a time-series collection's is refused.
    pub fn take(&mut self, name: &str, value: RawBsonRef<'_>, buckets: &Collection) -> Result<()> {
        let arguments = Arguments::of("collMod");
        match name {
            "timeseries" => self.timeseries = changed(buckets, arguments.document(name, value)?)?,
            "expireAfterSeconds" => {
                self.expiry = Some(match value {
                    RawBsonRef::String("off") => None,
                    value => Some(expiry(arguments, value)?),
                });
            }
            // What a restored collection may have; buckets are checked one by one instead.
            "timeseriesBucketsMayHaveMixedSchemaData" if !arguments.boolean(name, value)? => {}
            "timeseriesBucketsMayHaveMixedSchemaData" => {
                return Err(CommandError::not_implemented(
                    "buckets of a time-series collection with values of several types at one path",
                ));
            }
            // Taken and passed over, as by MongoDB: a time-series collection has no such bounds.
            "cappedSize" | "cappedMax" => drop(arguments.integer(name, value)?),
            other => {
                return Err(invalid(format!(
                    "option not supported on a time-series collection: {other}"
                )));
            }
        }
        Ok(())
    }

    /// Makes the change, with that of an index.
    pub fn apply(self, call: &Invocation<'_>, namespace: &Namespace, index: Option<IndexChange>) -> Result<()> {
        let mut change = CollectionChange {
            index,
            ..CollectionChange::default()
        };
        if let Some(after_seconds) = self.expiry {
            clustered::expire(after_seconds.map(bson::RawBson::try_from).transpose()?, &mut change);
        }
        let pipeline = match &self.timeseries {
            Some(timeseries) => {
                let options = RawDocumentBuf::try_from(timeseries)?;
                change.requested.append(cstr!("timeseries"), options.clone());
                change.set_options.append(cstr!("timeseries"), options);
                Some(pipeline(timeseries)?)
            }
            None => None,
        };
        let storage = &call.server.storage;
        storage.modify_timeseries(&call.operation, namespace, pipeline, &change)?;
        Ok(())
    }
}

/// `collMod` of a time-series collection.
pub fn modify(
    call: &mut Invocation<'_>,
    reply: &mut Reply<'_>,
    namespace: &Namespace,
    buckets: &Collection,
) -> Result<()> {
    let mut change = Change::default();
    let mut index = None;
    let arguments = call.arguments();
    call.for_each_field(|name, value| {
        match name {
            "index" => index = Some(arguments.document(name, value)?),
            name => change.take(name, value, buckets)?,
        }
        Ok(true)
    })?;
    let edit = match (index, buckets.timeseries()) {
        (Some(index), Some(options)) => {
            let index = super::indexes::change_of_buckets(index, buckets, options)?;
            if index.get_str("name").is_ok_and(|name| name == "_id_") {
                return Err(CommandError::new(
                    ErrorCode::IndexNotFound,
                    format!("cannot find index _id_ for ns {namespace}"),
                ));
            }
            let edit = IndexEdit::parse(&call.server.storage, buckets.namespace(), &index)?;
            for (field, value) in edit.old {
                reply.value(&field, &value);
            }
            Some(edit.change).filter(|change| !changes_nothing(change))
        }
        _ => None,
    };
    if index.is_some() && edit.is_none() && change.is_nothing() {
        return Ok(());
    }
    change.apply(call, namespace, edit)?;
    call.wrote(call.server.storage.last_seq());
    Ok(())
}

/// The options with others for how long buckets are; `None` when these stay.
fn changed(buckets: &Collection, given: &RawDocument) -> Result<Option<Document>> {
    let arguments = Arguments::of("collMod.timeseries");
    let mut spans = Spans::default();
    arguments.each(given, |name, value| spans.take(arguments, name, value))?;
    if given.is_empty() {
        return Ok(None);
    }
    spans.check()?;
    let Some(now) = buckets.timeseries() else {
        return Ok(None);
    };
    let span_seconds = spans
        .granularity
        .map(Granularity::span_seconds)
        .or(spans.span_seconds)
        .unwrap_or(now.span_seconds);
    let rounding_seconds = spans
        .granularity
        .map(Granularity::rounding_seconds)
        .or(spans.rounding_seconds)
        .unwrap_or(now.rounding_seconds);
    if span_seconds < now.span_seconds || rounding_seconds < now.rounding_seconds {
        return Err(invalid(
            "Invalid transition for timeseries.granularity: buckets may become longer, not shorter",
        ));
    }
    let kept = Document::try_from(
        buckets
            .options()
            .get_document("timeseries")
            .map_err(|error| CommandError::bad_value(format!("the collection's options cannot be read: {error}")))?,
    )?;
    let mut options = Document::new();
    for name in ["timeField", "metaField"] {
        if let Some(value) = kept.get(name) {
            options.insert(name, value.clone());
        }
    }
    spans.append(&mut options);
    Ok((options != kept).then_some(options))
}

/// The collection of a time-series collection's buckets, whose names no other collection has.
pub fn names_buckets(namespace: &Namespace) -> bool {
    namespace.collection().starts_with(storage::BUCKETS_PREFIX)
}
