//! `createIndexes`, `listIndexes`, `dropIndexes`.

use super::read_only::{cannot_write, is_members_configuration};
use super::{clustered, index_kinds, listing, text_index, timeseries};
use crate::arguments::{Arguments, number_as_i64};
use crate::definition::{Access, Command, InTransactions};
use crate::error::{CommandError, Result};
use crate::invocation::Invocation;
use crate::metrics::OperationKind;
use crate::replica_set::{ReplicaSet, SetConfig};
use crate::reply::Reply;
use crate::stable_api;
use auth::Action;
use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf};
use bson::{Bson, Document, doc};
use collation::Collation;
use keys::IndexPattern;
use keys::extract::TERM_FIELD;
use std::sync::Arc;
use storage::{Index, IndexSpec, Namespace, TimeseriesOptions};
use wire::ErrorCode;

/// `createIndexes`.
pub const CREATE_INDEXES: Command = Command::new(
    "createIndexes",
    "Builds indexes while the collection stays usable.",
    OperationKind::Command,
    Access::collection(&[Action::CreateIndex]),
    create,
)
.takes_write_concern()
.batches(&["indexes"])
.in_transactions(InTransactions::AllowedUnlessSnapshot)
.api_version_1();
/// `listIndexes`.
pub const LIST_INDEXES: Command = Command::new(
    "listIndexes",
    "Lists the indexes of a collection.",
    OperationKind::Command,
    Access::collection(&[Action::ListIndexes]),
    list,
)
.ends_with_client()
.secondary_ok()
.api_version_1();
/// `dropIndexes`.
pub const DROP_INDEXES: Command = Command::new(
    "dropIndexes",
    "Removes indexes.",
    OperationKind::Command,
    Access::collection(&[Action::DropIndex]),
    drop_indexes,
)
.takes_write_concern()
.aliases(&["deleteIndexes"])
.api_version_1();

/// Indexes of one collection, `_id_` included.
const INDEXES_MAX: usize = 64;
/// Longest TTL, in seconds.
pub const EXPIRE_SECONDS_MAX: i64 = i32::MAX as i64;

/// How many members have to be ready before an index is. It is so at one position of the log for all of them, and
/// whoever creates it waits for a majority: what is asked for beyond that has to be possible, no more.
fn check_commit_quorum(set: Option<&ReplicaSet>, quorum: &Bson) -> Result<()> {
    let Some(set) = set else {
        return Err(CommandError::bad_value("Standalones can't specify commitQuorum"));
    };
    let check = |check: &dyn Fn(&SetConfig) -> Result<()>| {
        let checked = set.with_member(|member| member.config.as_ref().map_or(Ok(()), check));
        checked.map_err(|error| match error.code {
            ErrorCode::UnsatisfiableWriteConcern => CommandError::new(
                ErrorCode::UnsatisfiableCommitQuorum,
                format!("Commit quorum cannot be satisfied: {}", error.message),
            ),
            _ => error,
        })
    };
    match (quorum, quorum.as_i64().or_else(|| quorum.as_i32().map(i64::from))) {
        (Bson::String(quorum), _) if quorum == "votingMembers" => Ok(()),
        (Bson::String(mode), _) => check(&|config| config.check_mode(mode)),
        (_, Some(count @ 0..)) => check(&|config| config.check_member_count(count as usize)),
        _ => Err(CommandError::new(
            ErrorCode::FailedToParse,
            "commitQuorum must be a non-negative number or a string",
        )),
    }
}

fn create(call: &mut Invocation<'_>, reply: &mut Reply<'_>) -> Result<()> {
    let asked = call.namespace()?;
    if asked.as_str() == "config.transactions" {
        return Err(CommandError::new(
            ErrorCode::IllegalOperation,
            format!("not allowed to create index on {asked}"),
        ));
    }
    let is_of_buckets = timeseries::definition::names_buckets(&asked) && call.definition(&asked).is_some();
    if !is_of_buckets {
        super::collections::refuse_system(call.server, &asked)?;
    }
    if is_members_configuration(call.server, &asked) {
        return Err(cannot_write(&asked));
    }
    if query::is_oplog(&call.server.storage, &asked) {
        return Err(CommandError::new(
            ErrorCode::CannotCreateIndex,
            "cannot have an index on the oplog",
        ));
    }
    let namespace = timeseries::of_buckets(call, &asked);
    let mut ignore_unknown = false;
    let arguments = call.arguments();
    let mut commit_quorum = None;
    call.for_each_field(|name, value| {
        match name {
            "commitQuorum" if matches!(value, RawBsonRef::Null) => return Ok(true),
            "commitQuorum" => commit_quorum = Some(Bson::try_from(value)?),
            "ignoreUnknownIndexOptions" => ignore_unknown = arguments.boolean(name, value)?,
            "v" => {}
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    if let Some(quorum) = &commit_quorum {
        check_commit_quorum(call.server.replica_set(), quorum)?;
    }
    let documents = call
        .documents("indexes")?
        .ok_or_else(|| crate::arguments::missing_field("createIndexes", "indexes"))?;
    if documents.is_empty() {
        return Err(CommandError::bad_value("Must specify at least one index to create"));
    }
    let existing = call.definition(&namespace);
    let of_collection = existing.as_ref().and_then(|collection| collection.collation());
    let mut specs = Vec::with_capacity(documents.len());
    for document in documents {
        if clustered::is_there(document, existing.as_deref())? {
            continue;
        }
        let parse = |document: &RawDocument| parse_spec(document, of_collection, ignore_unknown);
        if call.api_strict {
            stable_api::check_index(document)?;
        }
        let of_buckets = existing.as_ref().and_then(|collection| collection.timeseries());
        specs.push(match of_buckets.filter(|_| namespace != asked) {
            Some(options) => timeseries::indexes::spec_of_buckets(call, document, options, parse)?,
            None => parse(document)?,
        });
    }
    if specs.iter().any(|spec| spec.hidden) {
        check_may_hide(&namespace)?;
    }
    let there = existing
        .as_ref()
        .map_or(1, |collection| collection.access_paths().len());
    let fresh = specs.iter().filter(|spec| {
        let mut existing = existing.iter();
        existing.all(|collection| collection.index(&spec.name).is_none())
    });
    if there + fresh.count() > INDEXES_MAX {
        return Err(CommandError::new(
            ErrorCode::CannotCreateIndex,
            format!("add index fails, too many indexes for {namespace}: the limit is {INDEXES_MAX}"),
        ));
    }
    let report = match &call.transaction {
        Some(transaction) => transaction
            .borrow_mut()
            .create_indexes(&call.operation, &namespace, &specs)?,
        None => call
            .server
            .storage
            .create_indexes(&call.operation, &namespace, &specs)?,
    };
    // The clustered index is none of those that were made.
    let is_clustered = existing
        .as_ref()
        .is_some_and(|collection| collection.clustered_index().is_some());
    let unseen = i32::from(is_clustered || timeseries::definition::names_buckets(&namespace));
    reply.int32("numIndexesBefore", report.before as i32 - unseen);
    reply.int32("numIndexesAfter", report.after as i32 - unseen);
    if report.all_existed {
        reply.string("note", "all indexes already exist");
    } else {
        reply.boolean("createdCollectionAutomatically", report.created_collection);
    }
    if report.was_built && call.server.replica_set().is_some() {
        let quorum = commit_quorum.unwrap_or_else(|| "votingMembers".into());
        reply.value("commitQuorum", &quorum);
    }
    call.wrote(call.server.storage.last_seq());
    Ok(())
}

/// Indexes of the server's own collections stay visible.
pub fn check_may_hide(namespace: &Namespace) -> Result<()> {
    let is_own = namespace.collection().starts_with("system.");
    match is_own && !timeseries::definition::names_buckets(namespace) {
        true => Err(CommandError::bad_value("Can't hide an index of a system collection")),
        false => Ok(()),
    }
}

/// Checks one index specification and brings it into the form that `listIndexes` shows. Without a collation it has the
/// collection's.
pub fn parse_spec(
    document: &RawDocument,
    of_collection: Option<&Arc<Collation>>,
    ignore_unknown: bool,
) -> Result<IndexSpec> {
    let arguments = Arguments::of("createIndexes.indexes");
    let cannot = |message: String| CommandError::new(ErrorCode::CannotCreateIndex, message);
    let (mut key, mut name) = (None, None);
    let mut options = Document::new();
    let mut collation = of_collection.cloned();
    for element in document {
        let (field, value) = element?;
        match field.as_str() {
            "key" => key = Some(arguments.document("key", value)?),
            "name" => name = Some(arguments.string("name", value)?.to_owned()),
            "hidden" => {
                if arguments.flag("hidden", value)? {
                    options.insert("hidden", true);
                }
            }
            "unique" | "prepareUnique" | "sparse" | "clustering" => {
                if arguments.boolean(field.as_str(), value)? {
                    options.insert(field.as_str(), true);
                }
            }
            "expireAfterSeconds" => {
                let seconds = match value {
                    RawBsonRef::Double(seconds) if seconds.is_nan() => {
                        return Err(cannot("TTL index 'expireAfterSeconds' option must not be NaN".into()));
                    }
                    other => number_as_i64(other)
                        .ok_or_else(|| cannot("TTL index 'expireAfterSeconds' option must be a number".into()))?,
                };
                if !(0..=EXPIRE_SECONDS_MAX).contains(&seconds) {
                    return Err(cannot(format!(
                        "TTL index 'expireAfterSeconds' option must be within an acceptable range, not {seconds}"
                    )));
                }
                options.insert("expireAfterSeconds", seconds as i32);
            }
            "partialFilterExpression" => {
                let filter = arguments.document(field.as_str(), value)?;
                query::matcher::check_partial_filter(filter)?;
                options.insert("partialFilterExpression", Document::try_from(filter)?);
            }
            "v" => match number_as_i64(value) {
                Some(1 | 2) if !is_fraction(value) => {}
                _ => {
                    return Err(cannot(format!(
                        "Invalid index specification {}; index version must be 1 or 2",
                        shown(document)
                    )));
                }
            },
            "collation" => {
                collation = super::collections::collation(arguments.document("collation", value)?)?;
            }
            // It means nothing any more, but is shown as it was given.
            "background" => {
                arguments.boolean("background", value)?;
                options.insert("background", Bson::try_from(value)?);
            }
            // Where nothing but an index can be meant.
            "clustered" => drop(clustered::is_there(document, None)?),
            // Old clients and restored dumps send these.
            "ns" | "dropDups" => {}
            "bits" | "min" | "max" => {
                if number_as_i64(value).is_none() {
                    return Err(crate::arguments::wrong_type(
                        "createIndexes.indexes",
                        field.as_str(),
                        value,
                        "a number",
                    ));
                }
                if field.as_str() == "bits" && is_fraction(value) {
                    return Err(cannot("bits for hash must be a whole number".into()));
                }
                if field.as_str() == "bits" && number_as_i64(value).is_some_and(|bits| !(1..=32).contains(&bits)) {
                    return Err(CommandError::new(
                        ErrorCode::InvalidOptions,
                        "bits for hash must be > 0 and <= 32",
                    ));
                }
                options.insert(field.as_str(), Bson::try_from(value)?);
            }
            "2dsphereIndexVersion" => match number_as_i64(value) {
                Some(version @ 1..=3) => drop(options.insert("2dsphereIndexVersion", version as i32)),
                None => {
                    return Err(crate::arguments::wrong_type(
                        "createIndexes.indexes",
                        field.as_str(),
                        value,
                        "a number",
                    ));
                }
                Some(_) => {
                    return Err(cannot(
                        "unsupported geo index version { 2dsphereIndexVersion }, only support versions: [1,2,3]".into(),
                    ));
                }
            },
            "storageEngine" => {
                let engines = arguments.document("storageEngine", value)?;
                super::collections::check_storage_engine(engines)?;
                options.insert("storageEngine", Document::try_from(engines)?);
            }
            option if text_index::OPTIONS.contains(&option) => drop(options.insert(option, Bson::try_from(value)?)),
            "wildcardProjection" => {
                let projection = arguments.document("wildcardProjection", value)?;
                options.insert("wildcardProjection", Document::try_from(projection)?);
            }
            "bucketSize" => return Err(CommandError::not_implemented("index option 'bucketSize'")),
            _ if ignore_unknown => {}
            other => {
                return Err(CommandError::new(
                    ErrorCode::InvalidIndexSpecificationOption,
                    format!(
                        "The field '{other}' is not valid for an index specification. Specification: {}",
                        shown(document)
                    ),
                ));
            }
        }
    }
    let key = key.ok_or_else(|| {
        CommandError::new(
            ErrorCode::FailedToParse,
            "The 'key' field is a required property of an index specification",
        )
    })?;
    let name = match name {
        Some(name) if name.is_empty() => return Err(cannot("index names cannot be empty".into())),
        Some(name) if name.contains('\0') => return Err(cannot("index names cannot contain a NUL".into())),
        Some(name) if name == "*" => return Err(CommandError::bad_value("The index name '*' is not valid.")),
        Some(name) => name,
        None => {
            return Err(CommandError::new(
                ErrorCode::FailedToParse,
                "The 'name' field is a required property of an index specification",
            ));
        }
    };
    let text_key = match text_index::is_text_key(key) {
        true => Some(RawDocumentBuf::try_from(&text_index::normalise(key, &mut options)?)?),
        false if key.get(TERM_FIELD)?.is_some() => {
            return Err(cannot(format!(
                "Index key contains an illegal field name: '{TERM_FIELD}'"
            )));
        }
        false if options.contains_key("weights") => {
            return Err(cannot(
                "the field 'weights' can only be specified with text indexes".into(),
            ));
        }
        false => None,
    };
    let key = text_key.as_deref().unwrap_or(key);
    let pattern = parse_key(key)?;
    if pattern.special() == Some(keys::FieldKind::Path) && document.get("v")?.and_then(number_as_i64) == Some(1) {
        return Err(cannot("a wildcard index has version 2".into()));
    }
    index_kinds::check_kind(&pattern, &mut options, collation.is_some())?;
    index_kinds::check_projection(key, &pattern, &options)?;
    let is_id = is_id_key(key);
    if let Some(collation) = &collation {
        options.insert("collation", Document::try_from(collation.document())?);
    }
    if is_id {
        check_id_spec(document, key, ignore_unknown)?;
        if collation.as_ref() != of_collection {
            return Err(CommandError::bad_value(
                "The _id index must have the same collation as the collection",
            ));
        }
    } else if name == "_id_" {
        return Err(CommandError::bad_value(
            "The index name '_id_' is reserved for the _id index, which must have key pattern {_id: 1}",
        ));
    }
    if options.contains_key("expireAfterSeconds") && key.into_iter().count() > 1 {
        return Err(cannot(
            "TTL indexes are single-field indexes, compound indexes do not support TTL".into(),
        ));
    }
    if options.contains_key("sparse") && options.contains_key("partialFilterExpression") {
        return Err(cannot(
            "cannot mix \"partialFilterExpression\" and \"sparse\" options".into(),
        ));
    }
    if options.contains_key("unique") && options.contains_key("prepareUnique") {
        return Err(cannot("an index cannot have both 'unique' and 'prepareUnique'".into()));
    }
    let mut spec = doc! { "v": 2, "key": Document::try_from(key)?, "name": if is_id { "_id_" } else { name.as_str() } };
    spec.extend(options);
    let mut spec = IndexSpec::from_document(&RawDocumentBuf::try_from(&spec)?)?;
    spec.unique |= is_id;
    Ok(spec)
}

/// `{_id: 1}` and `{_id: -1}`, of which the second is refused.
fn is_id_key(key: &RawDocument) -> bool {
    let mut fields = key.into_iter().flatten();
    let is_id = fields.next().is_some_and(|(name, value)| {
        name.as_str() == "_id"
            && matches!(number_as_i64(value), Some(1 | -1))
            && !matches!(value, RawBsonRef::Boolean(_))
    });
    is_id && fields.next().is_none()
}

/// The `_id` index has no options.
fn check_id_spec(document: &RawDocument, key: &RawDocument, ignore_unknown: bool) -> Result<()> {
    const KNOWN: [&str; 10] = [
        "unique",
        "sparse",
        "hidden",
        "clustering",
        "background",
        "expireAfterSeconds",
        "partialFilterExpression",
        "storageEngine",
        "dropDups",
        "prepareUnique",
    ];
    for (field, _) in document.into_iter().flatten() {
        let field = field.as_str();
        let is_plain = matches!(field, "v" | "key" | "name" | "ns" | "collation");
        let is_passed_over = ignore_unknown && !KNOWN.contains(&field);
        if !is_plain && !is_passed_over {
            return Err(CommandError::new(
                ErrorCode::InvalidIndexSpecificationOption,
                format!(
                    "The field '{field}' is not valid for an _id index specification. Specification: {}",
                    shown(document)
                ),
            ));
        }
    }
    if key.get("_id")?.and_then(number_as_i64) != Some(1) {
        return Err(CommandError::bad_value(format!(
            "The field 'key' for an _id index must be {{_id: 1}}, but got {}",
            shown(key)
        )));
    }
    Ok(())
}

fn is_fraction(value: RawBsonRef<'_>) -> bool {
    matches!(value, RawBsonRef::Double(number) if number.fract() != 0.0)
}

fn shown(document: &RawDocument) -> String {
    keys::describe::describe_whole(RawBsonRef::Document(document))
}

fn parse_key(key: &RawDocument) -> Result<IndexPattern> {
    IndexPattern::parse(key).map_err(|error| match error {
        keys::extract::PatternError::UnsupportedPlugin { .. } => {
            CommandError::new(ErrorCode::NotImplemented, error.to_string())
        }
        keys::extract::PatternError::TooManyFields { .. } => CommandError::new(ErrorCode(13103), error.to_string()),
        keys::extract::PatternError::ManyWildcards => CommandError::new(ErrorCode(7_246_201), error.to_string()),
        keys::extract::PatternError::ManyHashed => CommandError::new(ErrorCode(31303), error.to_string()),
        keys::extract::PatternError::ManyPlanes => CommandError::new(ErrorCode(16800), error.to_string()),
        keys::extract::PatternError::PlaneNotFirst => CommandError::new(ErrorCode(16801), error.to_string()),
        keys::extract::PatternError::WildcardPlugin => CommandError::new(ErrorCode(7_246_202), error.to_string()),
        _ => CommandError::new(ErrorCode::CannotCreateIndex, error.to_string()),
    })
}

fn list(call: &mut Invocation<'_>, reply: &mut Reply<'_>) -> Result<()> {
    let namespace = call.namespace()?;
    let arguments = call.arguments();
    let mut batch = None;
    call.for_each_field(|name, value| {
        match name {
            "cursor" => batch = listing::batch_size(arguments, arguments.document(name, value)?)?,
            "includeBuildUUIDs" | "includeIndexBuildInfo" => drop(arguments.boolean(name, value)?),
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    let catalog = call.server.storage.catalog();
    let buckets = catalog.buckets(&namespace);
    if catalog.view(&namespace).is_some() && buckets.is_none() {
        return Err(super::views::refused(&namespace));
    }
    if let Some((buckets, options)) = buckets
        .as_ref()
        .and_then(|buckets| Some((buckets, buckets.timeseries()?)))
    {
        let mut specs = Vec::new();
        for index in buckets.indexes().iter().chain(buckets.new_building_indexes()) {
            specs.extend(timeseries::indexes::shown_spec(index, options)?);
        }
        let specs = listing::Listing::of(call, specs)?;
        return listing::reply_with_cursor(call, reply, namespace.as_str().to_owned(), specs, batch);
    }
    let specs = match catalog.collection(&namespace) {
        Some(collection) => {
            let indexes = collection
                .access_paths()
                .iter()
                .chain(collection.new_building_indexes());
            // Buckets are clustered by `_id`, which is no index then.
            let is_shown = |index: &&Arc<Index>| collection.timeseries().is_none() || !index.is_id();
            indexes.filter(is_shown).map(|index| index.spec().to_owned()).collect()
        }
        // The log of a replica set's member has no index, nor has what is the member's alone.
        None if namespace.as_str() == storage::OPLOG && call.server.storage.keeps_history() => Vec::new(),
        None if call.server.storage.local_capped(&namespace).is_some() => Vec::new(),
        None => {
            return Err(CommandError::new(
                ErrorCode::NamespaceNotFound,
                format!("ns does not exist: {namespace}"),
            ));
        }
    };
    let specs = listing::Listing::of(call, specs)?;
    listing::reply_with_cursor(call, reply, namespace.as_str().to_owned(), specs, batch)
}

fn drop_indexes(call: &mut Invocation<'_>, reply: &mut Reply<'_>) -> Result<()> {
    let namespace = call.namespace()?;
    let mut target = None;
    call.for_each_field(|name, value| {
        if name == "index" {
            target = Some(value);
        }
        Ok(name == "index")
    })?;
    let target = target.ok_or_else(|| crate::arguments::missing_field("dropIndexes", "index"))?;
    let storage = call.server.storage.clone();
    let asked = namespace;
    let namespace = timeseries::of_buckets(call, &asked);
    let catalog = storage.catalog();
    if catalog.view(&namespace).is_some() {
        return Err(super::views::refused(&namespace));
    }
    let Some(collection) = catalog.collection(&namespace) else {
        return Err(CommandError::new(
            ErrorCode::NamespaceNotFound,
            format!("ns not found {namespace}"),
        ));
    };
    let all: Vec<_> = collection
        .access_paths()
        .iter()
        .chain(collection.new_building_indexes())
        .collect();
    let mut names = Vec::new();
    let is_all = matches!(target, RawBsonRef::String("*"));
    let wrong_type =
        |other| crate::arguments::wrong_type("dropIndexes", "index", other, "types '[array, string, object]'");
    match target {
        // Those that there are when they are dropped.
        RawBsonRef::String("*") => {}
        RawBsonRef::String(name) => names.push(name.to_owned()),
        RawBsonRef::Array(listed) => {
            for name in listed {
                match name? {
                    RawBsonRef::String(name) => names.push(name.to_owned()),
                    other => return Err(wrong_type(other)),
                }
            }
        }
        RawBsonRef::Document(key) => {
            let of_buckets = collection.timeseries().filter(|_| namespace != asked);
            names.push(name_by_key(&all, key, of_buckets.map(|options| &**options))?);
        }
        other => return Err(wrong_type(other)),
    }
    let clustered = collection.clustered_index();
    if clustered.is_some_and(|clustered| names.iter().any(|name| name == clustered.name())) {
        return Err(clustered::refuse_drop());
    }
    if names.iter().any(|name| name == "_id_") && clustered.is_none() {
        return Err(CommandError::new(ErrorCode::InvalidOptions, "cannot drop _id index"));
    }
    if let Some(missing) = names
        .iter()
        .find(|name| !all.iter().any(|index| index.name() == name.as_str()))
    {
        return Err(CommandError::new(
            ErrorCode::IndexNotFound,
            format!("index not found with name [{missing}]"),
        ));
    }
    let before = match is_all {
        true => storage.drop_all_indexes(&call.operation, &namespace)?,
        false => storage.drop_indexes(&call.operation, &namespace, &names)?,
    };
    let unseen = i32::from(collection.timeseries().is_some());
    reply.int32("nIndexesWas", before as i32 - unseen);
    if is_all {
        reply.string("msg", "non-_id indexes dropped for collection");
    }
    call.wrote(storage.last_seq());
    Ok(())
}

/// The name of the index with a key: of buckets, where those are to be found by the key that their users see, of which
/// there are options.
pub fn name_by_key(all: &[&Arc<Index>], key: &RawDocument, of_buckets: Option<&TimeseriesOptions>) -> Result<String> {
    let mut found = all.iter().filter(|index| match of_buckets {
        None => keys::compare_documents(index.key(), key).is_eq(),
        Some(options) => query::timeseries::is_shown_as(index, key, options),
    });
    match (found.next(), found.next()) {
        (Some(index), None) => Ok(index.name().to_owned()),
        (Some(_), Some(_)) => Err(CommandError::new(
            ErrorCode::AmbiguousIndexKeyPattern,
            format!(
                "{} indexes found for key pattern, identify by name instead",
                2 + found.count()
            ),
        )),
        (None, _) => {
            let text = shown(key);
            Err(CommandError::new(
                ErrorCode::IndexNotFound,
                format!("can't find index with key: {text}"),
            ))
        }
    }
}
