//! `create`, `drop`, `listCollections`.

use super::collections_access as access;
use super::filter::Filter;
use super::listing;
use super::read_only::{cannot_write, is_startup_log};
use super::{clustered, profile, timeseries};
use crate::definition::{Access, Command, InTransactions};
use crate::error::{CommandError, Result};
use crate::invocation::Invocation;
use crate::metrics::OperationKind;
use crate::reply::{Reply, narrowed};
use crate::rights::Rights;
use crate::server::Server;
use crate::stable_api;
use crate::validation;
use auth::Action;
use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf};
use bson::spec::BinarySubtype;
use bson::{Binary, Bson, Document, doc};
use collation::Collation;
use std::sync::Arc;
use storage::Namespace;
use wire::ErrorCode;

/// `create`.
pub const CREATE: Command = Command::new(
    "create",
    "Creates a collection or a view.",
    OperationKind::Command,
    Access::Fields(access::create),
    create,
)
.takes_write_concern()
.in_transactions(InTransactions::AllowedUnlessSnapshot)
.api_version_1()
.unstable_fields(&[
    "autoIndexId",
    "flags",
    "indexOptionDefaults",
    "max",
    "size",
    "storageEngine",
    "temp",
]);
/// `drop`.
pub const DROP: Command = Command::new(
    "drop",
    "Removes a collection or a view.",
    OperationKind::Command,
    Access::collection(&[Action::DropCollection]),
    drop_collection,
)
.takes_write_concern()
.api_version_1();
/// `listCollections`.
pub const LIST_COLLECTIONS: Command = Command::new(
    "listCollections",
    "Lists the collections of a database.",
    OperationKind::Command,
    Access::Fields(access::list),
    list,
)
.ends_with_client()
.secondary_ok()
.api_version_1();

/// Largest `size` of a capped collection, one pebibyte as MongoDB has it.
pub const CAPPED_BYTES_MAX: i64 = 1 << 50;
/// Largest `max` of a capped collection.
const CAPPED_DOCUMENTS_MAX: i64 = (1 << 31) - 1;

/// What `create` was asked for, checked.
struct Definition<'a> {
    view_on: Option<&'a str>,
    pipeline: Option<bson::Array>,
    options: Document,
    /// The option `timeseries`, as it is kept.
    timeseries: Option<Document>,
}

fn parse_definition<'a>(call: &Invocation<'a>, namespace: &Namespace) -> Result<Definition<'a>> {
    let arguments = call.arguments();
    let mut definition = Definition {
        view_on: None,
        pipeline: None,
        options: Document::new(),
        timeseries: None,
    };
    let (mut capped, mut size, mut max) = (false, None, None);
    let (mut id_index, mut default, mut clustered_index) = (None, None, None);
    call.for_each_field(|name, value| {
        match name {
            "capped" => capped = arguments.boolean(name, value)?,
            "size" => size = Some(arguments.integer(name, value)?),
            "max" => max = Some(arguments.integer(name, value)?),
            "viewOn" => definition.view_on = Some(arguments.string(name, value)?),
            "pipeline" => {
                let pipeline = arguments.array(name, value)?;
                if call.api_strict {
                    stable_api::check_stages(pipeline)?;
                }
                definition.pipeline = Some(bson::Array::try_from(pipeline)?);
            }
            "idIndex" => id_index = Some(arguments.document(name, value)?),
            "autoIndexId" => {
                if !arguments.boolean(name, value)? {
                    if let Some(RawBsonRef::Document(_)) = call.body.get("clusteredIndex")? {
                        return Err(CommandError::new(
                            ErrorCode(6_026_501),
                            "The 'clusteredIndex' option does not support {autoIndexId: false}",
                        ));
                    }
                    return Err(CommandError::bad_value("autoIndexId: false is no longer allowed"));
                }
            }
            "flags" => {
                if !matches!(value, RawBsonRef::Null) {
                    definition.options.insert(name, Bson::try_from(value)?);
                }
            }
            "collation" if !matches!(value, RawBsonRef::Null) => {
                default = collation(arguments.document(name, value)?)?;
            }
            "validator" => {
                let validator = arguments.document(name, value)?;
                if !validator.is_empty() {
                    validation::check_validator(call, namespace, validator)?;
                    definition.options.insert(name, Document::try_from(validator)?);
                }
            }
            "validationLevel" => drop(definition.options.insert(name, validation::level(arguments, value)?)),
            "validationAction" => drop(definition.options.insert(name, validation::action(arguments, value)?)),
            "timeseries" if !matches!(value, RawBsonRef::Null) => {
                definition.timeseries = Some(timeseries::definition::parse(
                    namespace,
                    arguments.document(name, value)?,
                )?);
            }
            "expireAfterSeconds" if !matches!(value, RawBsonRef::Null) => {
                definition
                    .options
                    .insert(name, timeseries::definition::expiry(arguments, value)?);
            }
            "timeseries" | "expireAfterSeconds" => {}
            "clusteredIndex" => {
                clustered_index = clustered::parse(value)?;
                definition
                    .options
                    .extend(clustered_index.clone().map(|index| (name.to_owned(), index.into())));
            }
            "collation" | "encryptedFields" => refuse_unbuilt(name, value)?,
            "changeStreamPreAndPostImages" => {
                let images = pre_and_post_images("create", namespace, arguments.document(name, value)?)?;
                definition.options.insert(name, images);
            }
            "storageEngine" => {
                let options = arguments.document(name, value)?;
                check_storage_engine(options)?;
                definition.options.insert(name, Document::try_from(options)?);
            }
            "indexOptionDefaults" => {
                let defaults = arguments.document(name, value)?;
                for element in defaults {
                    match element? {
                        (field, RawBsonRef::Document(options)) if field.as_str() == "storageEngine" => {
                            check_storage_engine(options)?;
                        }
                        (field, _) => {
                            return Err(CommandError::bad_value(format!(
                                "indexOptionDefaults.{field} is not an option"
                            )));
                        }
                    }
                }
                definition.options.insert(name, Document::try_from(defaults)?);
            }
            "temp" => drop(arguments.boolean(name, value)?),
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    if clustered_index.is_some() {
        let expires = definition.options.contains_key("expireAfterSeconds");
        clustered::check_beside(definition.view_on.is_some(), (capped, size, max), expires)?;
        if id_index.is_some() {
            return Err(CommandError::new(
                ErrorCode::InvalidOptions,
                "The 'clusteredIndex' option is not supported with the 'idIndex' option",
            ));
        }
    }
    if let Some(index) = id_index {
        check_id_index(index, default.as_ref())?;
    }
    if let Some(collation) = default {
        definition
            .options
            .insert("collation", Document::try_from(collation.document())?);
    }
    if capped {
        let size = size.ok_or_else(|| {
            CommandError::new(
                ErrorCode::InvalidOptions,
                "the 'size' field is required when 'capped' is true",
            )
        })?;
        check_capped_size("size", size)?;
        let mut options = doc! { "capped": true, "size": narrowed(size) };
        if let Some(max) = max {
            options.insert("max", narrowed(capped_max(max)?));
        }
        options.extend(std::mem::take(&mut definition.options));
        definition.options = options;
    } else if size.is_some() || max.is_some() {
        return Err(CommandError::new(
            ErrorCode::InvalidOptions,
            "the 'capped' field needs to be true when either the 'size' or 'max' fields are present",
        ));
    }
    let may_expire = definition.timeseries.is_some() || clustered_index.is_some();
    if !may_expire && definition.options.contains_key("expireAfterSeconds") {
        return Err(CommandError::new(
            ErrorCode::InvalidOptions,
            "'expireAfterSeconds' is only supported on time-series collections or when the 'clusteredIndex' option is specified",
        ));
    }
    let of_collections = definition
        .options
        .keys()
        .find(|name| name.starts_with("validat") || *name == "changeStreamPreAndPostImages");
    if definition.view_on.is_some()
        && let Some(option) = of_collections
            .map(String::as_str)
            .or(capped.then_some("capped"))
            .or(id_index.map(|_| "idIndex"))
    {
        return Err(CommandError::new(
            ErrorCode::InvalidOptions,
            format!("options not supported when creating a view: {option}"),
        ));
    }
    // Said, but nothing to keep.
    let images = definition.options.get_document("changeStreamPreAndPostImages");
    if images.is_ok_and(|images| images.get_bool("enabled").is_ok_and(|enabled| !enabled)) {
        definition.options.remove("changeStreamPreAndPostImages");
    }
    if definition.view_on.is_none() && definition.pipeline.is_some() {
        return Err(CommandError::new(
            ErrorCode::InvalidOptions,
            "'pipeline' requires 'viewOn' to also be specified",
        ));
    }
    Ok(definition)
}

/// The bytes that a capped collection is to have.
pub fn check_capped_size(field: &str, size: i64) -> Result<()> {
    match (1..=CAPPED_BYTES_MAX).contains(&size) {
        true => Ok(()),
        false => Err(CommandError::bad_value(format!(
            "BSON field '{field}' value must be >= 1 and <= {CAPPED_BYTES_MAX}, actual value '{size}'"
        ))),
    }
}

/// The documents that a capped collection is to have: as many as there may be where none are asked for.
pub fn capped_max(max: i64) -> Result<i64> {
    match max {
        ..=0 => Ok(CAPPED_DOCUMENTS_MAX),
        1..=CAPPED_DOCUMENTS_MAX => Ok(max),
        _ => Err(CommandError::bad_value(
            "max in a capped collection has to be < 2^31 or not set",
        )),
    }
}

/// Refuses what no engine can honour.
pub fn check_storage_engine(options: &RawDocument) -> Result<()> {
    match storage::table_compressor(options, "") {
        Ok(_) => Ok(()),
        Err(reason) => Err(CommandError::new(ErrorCode::InvalidOptions, reason)),
    }
}

/// The collation of a collection or an index, `None` for binary order; it must say something.
pub fn collation(collation: &RawDocument) -> Result<Option<Arc<Collation>>> {
    if collation.is_empty() {
        return Err(CommandError::bad_value(
            "The field 'collation' cannot be an empty object.",
        ));
    }
    Ok(query::plan::collation_of(Some(collation), None)?)
}

/// An option that is not built is refused by name, unless it asks for nothing.
fn refuse_unbuilt(name: &str, value: RawBsonRef<'_>) -> Result<()> {
    if matches!(value, RawBsonRef::Null) {
        Ok(())
    } else {
        Err(CommandError::not_implemented(format!("create.{name}")))
    }
}

/// `changeStreamPreAndPostImages`: whether changes are logged with the document as it was before. No change stream
/// follows what is in the server's own databases.
pub fn pre_and_post_images(command: &'static str, namespace: &Namespace, images: &RawDocument) -> Result<Document> {
    let arguments = crate::arguments::Arguments::of(command);
    let mut enabled = None;
    arguments.each(images, |name, value| {
        if name == "enabled" {
            enabled = Some(arguments.boolean("changeStreamPreAndPostImages.enabled", value)?);
        }
        Ok(name == "enabled")
    })?;
    let enabled = enabled.ok_or_else(|| crate::arguments::missing_field("changeStreamPreAndPostImages", "enabled"))?;
    if enabled && matches!(namespace.db(), "admin" | "config" | "local") {
        let text = format!(
            "changeStreamPreAndPostImages are not supported on the database {}",
            namespace.db()
        );
        return Err(CommandError::new(ErrorCode::InvalidOptions, text));
    }
    Ok(doc! { "enabled": enabled })
}

/// `mongorestore` sends the `_id` index, its namespace included; it must be the usual one.
fn check_id_index(index: &RawDocument, of_collection: Option<&Arc<Collation>>) -> Result<()> {
    let spec = super::indexes::parse_spec(index, of_collection, false)?;
    if spec.name != "_id_" {
        return Err(CommandError::bad_value(format!(
            "The field 'key' for an _id index must be {{_id: 1}}, but got {}",
            keys::describe::describe_whole(RawBsonRef::Document(&spec.key))
        )));
    }
    Ok(())
}

fn create(call: &mut Invocation<'_>, _reply: &mut Reply<'_>) -> Result<()> {
    create_as(call, None)
}

/// `create` of a collection that had this uuid elsewhere.
pub fn create_as(call: &mut Invocation<'_>, uuid: Option<[u8; 16]>) -> Result<()> {
    let namespace = call.namespace()?;
    if profile::is_members_own(call.server, &namespace) {
        let definition = parse_definition(call, &namespace)?;
        return profile::create_local(call.server, &namespace, &definition.options);
    }
    refuse_system(call.server, &namespace)?;
    if !matches!(call.body.get("timeseries")?, None | Some(RawBsonRef::Null)) {
        timeseries::definition::check_options(call, &namespace)?;
    }
    let definition = parse_definition(call, &namespace)?;
    let storage = call.server.storage.clone();
    let options = RawDocumentBuf::try_from(&definition.options)?;
    let created = if let Some(timeseries) = &definition.timeseries {
        timeseries::definition::create(call, &namespace, timeseries, &definition.options)?
    } else if let Some(transaction) = &call.transaction {
        if definition.view_on.is_some() {
            return Err(CommandError::new(
                ErrorCode::OperationNotSupportedInTransaction,
                "Cannot create a view in a multi-document transaction",
            ));
        }
        match call.definition(&namespace) {
            Some(_) => Err(storage::StorageError::NamespaceExists(namespace.clone())),
            None => transaction
                .borrow_mut()
                .create_collection(&call.operation, &namespace, &options),
        }
    } else if definition.view_on.is_some() && is_taken(call, &namespace) {
        // Before what is wrong with the pipeline.
        Err(storage::StorageError::NamespaceExists(namespace.clone()))
    } else if let Some(view_on) = definition.view_on {
        let pipeline = definition.pipeline.clone().unwrap_or_default();
        let collation = options.get_document("collation").ok();
        query::check_view(&call.context(), &namespace, view_on, &pipeline, collation)?;
        let mut array = bson::raw::RawArrayBuf::new();
        for stage in &pipeline {
            array.push(bson::raw::RawBson::try_from(stage.clone())?);
        }
        storage.create_view(&call.operation, &namespace, view_on, array, &options)
    } else if let Some(uuid) = uuid {
        storage.create_collection_as(&call.operation, &namespace, &options, uuid)
    } else {
        storage.create_collection(&call.operation, &namespace, &options)
    };
    match created {
        Ok(()) => {
            call.wrote(storage.last_seq());
            Ok(())
        }
        Err(storage::StorageError::NamespaceExists(_))
            if call.transaction.is_none() && is_same(call, &namespace, &definition) =>
        {
            Ok(())
        }
        // The uuid is taken, not the name, or the name of a time series' buckets.
        Err(storage::StorageError::NamespaceExists(there)) if there != namespace => {
            let text = match uuid {
                Some(_) => format!("cannot create {namespace} with the uuid of {there}, which exists"),
                None => format!("cannot create {namespace}: {there} already exists, with different options"),
            };
            Err(CommandError::new(ErrorCode::NamespaceExists, text))
        }
        Err(storage::StorageError::NamespaceExists(_)) => {
            let text = describe(call, &namespace);
            Err(CommandError::new(
                ErrorCode::NamespaceExists,
                format!("namespace {namespace} already exists, but with different options: {text}"),
            ))
        }
        Err(other) => Err(other.into()),
    }
}

/// Creating again what is there with the same options is fine.
fn is_same(call: &Invocation<'_>, namespace: &Namespace, definition: &Definition<'_>) -> bool {
    if let Some(timeseries) = &definition.timeseries {
        let wanted = timeseries::definition::bucket_options(timeseries, &definition.options);
        return timeseries::buckets(call, namespace)
            .is_some_and(|buckets| Document::try_from(buckets.options()).is_ok_and(|options| options == wanted));
    }
    match definition.view_on {
        None => call.definition(namespace).is_some_and(|there| {
            Document::try_from(there.options()).is_ok_and(|options| options == definition.options)
        }),
        Some(view_on) => call.server.storage.catalog().view(namespace).is_some_and(|there| {
            let pipeline = bson::Array::try_from(there.pipeline()).unwrap_or_default();
            let collation = there.options().get_document("collation").ok();
            let collation = collation.and_then(|collation| Document::try_from(collation).ok());
            there.view_on() == view_on
                && pipeline == definition.pipeline.clone().unwrap_or_default()
                && collation.as_ref() == definition.options.get_document("collation").ok()
        }),
    }
}

fn is_taken(call: &Invocation<'_>, namespace: &Namespace) -> bool {
    let catalog = call.server.storage.catalog();
    catalog.collection(namespace).is_some() || catalog.view(namespace).is_some()
}

fn describe(call: &Invocation<'_>, namespace: &Namespace) -> String {
    match call
        .definition(namespace)
        .or_else(|| timeseries::buckets(call, namespace))
    {
        Some(there) => keys::describe::describe_whole(RawBsonRef::Document(there.options())),
        None => "a view".to_owned(),
    }
}

/// Names that clients may not create.
pub fn refuse_system(server: &Server, namespace: &Namespace) -> Result<()> {
    if profile::is_members_own(server, namespace) || is_startup_log(server, namespace) {
        return Err(cannot_write(namespace));
    }
    let name = namespace.collection();
    let allowed = matches!(
        name,
        "system.js" | "system.profile" | "system.users" | "system.roles" | "system.version"
    ) || matches!(namespace.as_str(), "local.system.replset" | "admin.system.keys");
    if name.starts_with("system.") && !allowed {
        return Err(CommandError::new(
            ErrorCode::InvalidNamespace,
            format!("Invalid system namespace: {namespace}"),
        ));
    }
    Ok(())
}

fn drop_collection(call: &mut Invocation<'_>, reply: &mut Reply<'_>) -> Result<()> {
    let namespace = call.namespace()?;
    call.for_each_field(|_, _| Ok(false))?;
    if namespace.collection().starts_with("system.")
        && namespace.collection() != "system.js"
        && namespace.collection() != "system.profile"
        && !timeseries::has_no_view(call, &namespace)
    {
        return Err(CommandError::new(
            ErrorCode::IllegalOperation,
            format!("can't drop system collection {namespace}"),
        ));
    }
    // A collection of that name, from elsewhere, is in the log's place and may go.
    if query::is_oplog(&call.server.storage, &namespace) && call.definition(&namespace).is_none() {
        return Err(CommandError::new(
            ErrorCode(5_255_000),
            "can't drop live oplog while replicating",
        ));
    }
    profile::check_dropped(call.server, &namespace)?;
    call.changes(&namespace);
    let storage = &call.server.storage;
    if storage.drop_local_capped(&namespace) {
        reply.int32("nIndexesWas", 0);
        reply.string("ns", namespace.as_str());
        return Ok(());
    }
    let buckets = timeseries::buckets(call, &namespace);
    // Those that no collection shows go by their own name.
    let buckets = buckets.or_else(|| call.definition(&namespace));
    if let Some(report) = storage.drop_collection(&call.operation, &namespace)? {
        if !report.was_view {
            reply.int32("nIndexesWas", report.n_indexes_was as i32);
        }
        reply.string("ns", namespace.as_str());
        let seq = storage.last_seq();
        call.server.metrics.top.forget(namespace.as_str());
        if let Some(buckets) = buckets {
            call.server.open_buckets.forget(buckets.uuid());
        }
        call.report.namespace = None;
        call.wrote(seq);
    }
    Ok(())
}

/// The log of a replica set's member is listed as the collection that it is read as.
fn oplog_of(call: &Invocation<'_>) -> Option<Document> {
    let storage = &call.server.storage;
    (call.database == "local" && storage.keeps_history()).then(|| {
        let bytes = storage.log().retained_bytes() as i64;
        doc! {
            "name": "oplog.rs",
            "type": "collection",
            "options": { "capped": true, "size": bytes, "autoIndexId": false },
            "info": { "readOnly": true },
        }
    })
}

/// What is this member's alone is listed, too.
fn locals_of(call: &Invocation<'_>) -> impl Iterator<Item = Document> {
    let locals = call.server.storage.local_capped_of(call.database);
    locals.into_iter().map(|local| {
        let limits = local.limits();
        let mut options = doc! { "capped": true, "size": narrowed(limits.size_bytes as i64) };
        if let Some(max) = limits.max_documents {
            options.insert("max", narrowed(max as i64));
        }
        let uuid = Binary {
            subtype: BinarySubtype::Uuid,
            bytes: local.uuid().to_vec(),
        };
        doc! {
            "name": local.namespace().collection(),
            "type": "collection",
            "options": options,
            "info": { "readOnly": false, "uuid": uuid },
        }
    })
}

fn list(call: &mut Invocation<'_>, reply: &mut Reply<'_>) -> Result<()> {
    let arguments = call.arguments();
    let (mut name_only, mut authorized) = (false, false);
    let expressions = call.expressions().without_time();
    let mut filter = Filter::all();
    let mut batch = None;
    call.for_each_field(|name, value| {
        match name {
            "nameOnly" => name_only = arguments.flag(name, value)?,
            "filter" => filter = Filter::parse(arguments.document(name, value)?, &expressions)?,
            "cursor" => batch = listing::batch_size(arguments, arguments.document(name, value)?)?,
            "authorizedCollections" => authorized = arguments.boolean(name, value)?,
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    let catalog = call.server.storage.catalog();
    let mut entries = Vec::new();
    // Who asks for one only has the others neither described nor looked at.
    let (collections, views) = match filter.name().map(|name| Namespace::new(call.database, name)) {
        Some(Ok(namespace)) => (
            catalog.collection(&namespace).into_iter().collect(),
            catalog.view(&namespace).into_iter().collect(),
        ),
        Some(Err(_)) => (Vec::new(), Vec::new()),
        None => (catalog.collections(call.database), catalog.views(call.database)),
    };
    for collection in collections {
        call.operation.check()?;
        let mut options = Document::try_from(collection.options())?;
        options.remove("uuid");
        let uuid = Binary {
            subtype: BinarySubtype::Uuid,
            bytes: collection.uuid().to_vec(),
        };
        let mut entry = doc! {
            "name": collection.namespace().collection(),
            "type": "collection",
            "options": options,
            "info": { "readOnly": false, "uuid": uuid },
        };
        // Buckets, and the documents of clustered collections, are in its order by themselves.
        if collection.timeseries().is_none() && collection.clustered_index().is_none() {
            entry.insert("idIndex", Document::try_from(collection.id_index().spec())?);
        }
        entries.push(entry);
    }
    entries.extend(oplog_of(call));
    entries.extend(locals_of(call));
    for view in views {
        call.operation.check()?;
        if let Some(buckets) = catalog.buckets_of(&view) {
            entries.push(doc! {
                "name": view.namespace().collection(),
                "type": "timeseries",
                "options": timeseries::definition::shown_options(&buckets)?,
                "info": { "readOnly": false },
            });
            continue;
        }
        let mut options = doc! { "viewOn": view.view_on(), "pipeline": bson::Array::try_from(view.pipeline())? };
        options.extend(Document::try_from(view.options())?);
        entries.push(doc! { "name": view.namespace().collection(), "type": "view", "options": options, "info": { "readOnly": true } });
    }
    if let Rights::Of(grant) = &call.rights
        && authorized
    {
        let is_something = |name: &str| grant.privileges.allow_something_on(call.database, name);
        entries.retain(|entry| entry.get_str("name").is_ok_and(is_something));
    }
    entries.sort_by(|a, b| a.get_str("name").unwrap_or("").cmp(b.get_str("name").unwrap_or("")));
    let mut documents = Vec::new();
    let evaluation = call.evaluation();
    for mut entry in entries {
        if name_only {
            for beyond in ["options", "info", "idIndex"] {
                entry.remove(beyond);
            }
        }
        // What is not shown is not there for the filter.
        if filter.matches(&entry, &evaluation)? {
            documents.push(RawDocumentBuf::try_from(&entry)?);
        }
    }
    let namespace = format!("{}.$cmd.listCollections", call.database);
    let documents = listing::Listing::of(call, documents)?;
    listing::reply_with_cursor(call, reply, namespace, documents, batch)
}
