//! `collMod`.

use super::aggregate_access::{self, Subject};
use super::collections::{capped_max, check_capped_size, pre_and_post_images};
use super::indexes::{EXPIRE_SECONDS_MAX, check_may_hide, name_by_key};
use super::read_only::{cannot_write, is_members_configuration};
use super::{clustered, index_kinds, timeseries};
use crate::arguments::{Arguments, once};
use crate::authorization::{refused, target};
use crate::definition::{Access, Command};
use crate::error::{CommandError, Result};
use crate::invocation::Invocation;
use crate::metrics::OperationKind;
use crate::reply::Reply;
use crate::rights::Rights;
use crate::stable_api;
use crate::validation;
use auth::{Action, Target};
use bson::raw::{RawArray, RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf, cstr};
use bson::{Bson, Document, doc};
use storage::{CollectionChange, IndexChange, Namespace, StorageError, ViewChange};
use wire::ErrorCode;

/// `collMod`.
pub const COLL_MOD: Command = Command::new(
    "collMod",
    "Changes options of a collection or an index.",
    OperationKind::Command,
    Access::Fields(coll_mod_access),
    coll_mod,
)
.takes_write_concern()
.api_version_1();

/// What `collMod` needs: what a view is to read, its maker must be allowed to read.
fn coll_mod_access(call: &Invocation<'_>) -> Result<bool> {
    let target = target(call)?;
    let Target::Collection(database, collection) = target else {
        return Ok(call.may(target, Action::CollMod));
    };
    if !call.may(target, Action::CollMod) {
        return Ok(false);
    }
    let (mut view_on, mut pipeline) = (None, None);
    for element in call.body {
        let (name, value) = element?;
        match name.as_str() {
            field @ "viewOn" => once(&mut view_on, "collMod", field, value)?,
            field @ "pipeline" => once(&mut pipeline, "collMod", field, value)?,
            _ => {}
        }
    }
    let view_on = view_on.and_then(|name| name.as_str());
    // As the command reads them: which stage is the first decides what is needed.
    let pipeline = pipeline.and_then(|stages| stages.as_array());
    let pipeline = pipeline.map(without_nulls).transpose()?;
    if view_on.is_none() && pipeline.is_none() {
        return Ok(true);
    }
    // What is not given stays as it is.
    let catalog = call.server.storage.catalog();
    let view = Namespace::new(database, collection)
        .ok()
        .and_then(|namespace| catalog.view(&namespace));
    let view = view.as_ref();
    let collection = view_on.or_else(|| view.map(|view| view.view_on()));
    let stages = pipeline.as_deref().or_else(|| view.map(|view| view.pipeline()));
    // Without a view there is nothing to change yet. There may be one, or another one, by the time the command runs,
    // which looks again then.
    let nothing = RawArrayBuf::new();
    let stages = stages.unwrap_or(&nothing);
    let subject = Subject {
        database,
        collection,
        // No view writes.
        bypasses_validation: false,
    };
    aggregate_access::pipeline(call, subject, stages)
}

fn coll_mod(call: &mut Invocation<'_>, reply: &mut Reply<'_>) -> Result<()> {
    let namespace = call.namespace()?;
    if let Some(buckets) = timeseries::buckets(call, &namespace) {
        return timeseries::definition::modify(call, reply, &namespace, &buckets);
    }
    if timeseries::definition::names_buckets(&namespace) {
        return Err(CommandError::new(
            ErrorCode::InvalidNamespace,
            format!("cannot change the buckets of a time-series collection: {namespace}"),
        ));
    }
    let arguments = call.arguments();
    let mut change = CollectionChange::default();
    let (mut index, mut is_dry_run, mut changes) = (None, false, 0);
    let (mut view_on, mut pipeline) = (None, None);
    let mut rules = validation::RulesChange::default();
    call.for_each_field(|name, value| {
        changes += usize::from(!matches!(name, "index" | "dryRun"));
        match name {
            "index" => index = Some(arguments.document(name, value)?),
            "dryRun" => is_dry_run = arguments.boolean(name, value)?,
            "viewOn" => view_on = Some(arguments.string(name, value)?.to_owned()),
            "pipeline" => pipeline = Some(without_nulls(arguments.array(name, value)?)?),
            "changeStreamPreAndPostImages" => {
                let images = pre_and_post_images("collMod", &namespace, arguments.document(name, value)?)?;
                let asked = RawDocumentBuf::try_from(&images)?;
                change
                    .requested
                    .append(cstr!("changeStreamPreAndPostImages"), asked.clone());
                match images.get_bool("enabled") {
                    Ok(false) => change.unset_options.push(name.to_owned()),
                    _ => change.set_options.append(cstr!("changeStreamPreAndPostImages"), asked),
                }
            }
            "cappedSize" => {
                let size = arguments.non_negative(name, value)?;
                check_capped_size(name, size)?;
                change.capped_size = Some(size as u64);
                change.requested.append(cstr!("cappedSize"), size);
            }
            "cappedMax" => {
                let max = capped_max(arguments.integer(name, value)?)?;
                change.capped_max = Some(max as u64);
                change.requested.append(cstr!("cappedMax"), max);
            }
            "validator" => rules.validator = Some(arguments.document(name, value)?),
            "validationLevel" => rules.level = Some(validation::level(arguments, value)?),
            "validationAction" => rules.action = Some(validation::action(arguments, value)?),
            "expireAfterSeconds" => {
                let collection = call.server.storage.catalog().collection(&namespace);
                clustered::change_expiry(collection.as_deref(), value, &mut change)?;
            }
            "timeseries" => drop(arguments.document(name, value)?),
            "timeseriesBucketsMayHaveMixedSchemaData" => drop(arguments.boolean(name, value)?),
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    let storage = call.server.storage.clone();
    let catalog = storage.catalog();
    if catalog.collection(&namespace).is_none() && catalog.view(&namespace).is_none() {
        if query::is_oplog(&storage, &namespace) && change.capped_size.is_some() {
            return Err(CommandError::new(
                ErrorCode::InvalidOptions,
                "the size of the oplog is changed by replSetResizeOplog",
            ));
        }
        return Err(CommandError::new(
            ErrorCode::NamespaceNotFound,
            format!("ns does not exist: {namespace}"),
        ));
    }
    if is_members_configuration(call.server, &namespace) {
        return Err(cannot_write(&namespace));
    }
    check_kind(call, &namespace)?;
    if catalog.view(&namespace).is_some() && view_on.is_none() && pipeline.is_none() {
        return Ok(());
    }
    if view_on.is_some() || pipeline.is_some() {
        change.view = Some(view_change(call, &namespace, view_on.as_deref(), pipeline.as_ref())?);
    }
    rules.apply(call, &namespace, &mut change)?;
    if let Some(index) = index.filter(|_| call.api_strict) {
        stable_api::check_index_change(index)?;
    }
    let parsed = index
        .map(|index| IndexEdit::parse(&storage, &namespace, index))
        .transpose()?;
    let edit = parsed.as_ref();
    if edit.is_some_and(|edit| edit.change.hidden.is_some()) {
        check_may_hide(&namespace)?;
    }
    let is_of_index = changes == 0;
    changes += edit.map_or(0, |edit| edit.changes);
    let becomes_unique = edit.is_some_and(|edit| edit.becomes_unique);
    if is_dry_run && (changes != 1 || edit.is_none_or(|edit| !edit.asks_for_unique)) {
        return Err(CommandError::new(
            ErrorCode::InvalidOptions,
            "dryRun is only for an index that is to become unique, without any other change",
        ));
    }
    if changes > 1 && edit.is_some_and(|edit| edit.change.prepare_unique.is_some()) {
        return Err(CommandError::new(
            ErrorCode::InvalidOptions,
            "prepareUnique cannot be combined with any other modification.",
        ));
    }
    if let Some(edit) = edit.filter(|edit| edit.forces_non_unique) {
        if changes > 1 {
            return Err(CommandError::new(
                ErrorCode::InvalidOptions,
                "forceNonUnique cannot be combined with any other modification.",
            ));
        }
        storage.make_index_non_unique(&call.operation, &namespace, &edit.change.name)?;
        call.wrote(storage.last_seq());
        edit.old.iter().for_each(|(field, value)| reply.value(field, value));
        return Ok(());
    }
    if let Some(edit) = parsed {
        change.index = Some(edit.change);
        for (field, value) in edit.old {
            reply.value(&field, &value);
        }
    }
    if is_of_index
        && change
            .index
            .as_ref()
            .is_some_and(|index| !becomes_unique && changes_nothing(index))
    {
        return Ok(());
    }
    if is_dry_run {
        if let Some(index) = change.index.filter(|_| becomes_unique) {
            check_unique(call, &namespace, &index.name)?;
        }
        return Ok(());
    }
    loop {
        if let Some(index) = change.index.as_mut().filter(|_| becomes_unique) {
            index.unique_as_of = Some(check_unique(call, &namespace, &index.name)?);
        }
        match storage.modify_collection(&call.operation, &namespace, &change) {
            // The definition is another one than that in which the index was checked.
            Err(StorageError::WriteConflict) if becomes_unique => {
                call.operation.check_now().map_err(StorageError::from)?
            }
            // The view is another one.
            Err(StorageError::WriteConflict) if change.view.is_some() => {
                call.operation.check_now().map_err(StorageError::from)?;
                change.view = Some(view_change(call, &namespace, view_on.as_deref(), pipeline.as_ref())?);
            }
            changed => break changed?,
        }
    }
    if let Some(index) = change.index.filter(|index| index.hidden.is_some())
        && let Some(collection) = storage.catalog().collection(&namespace)
        && let Some(index) = collection.index(&index.name)
    {
        index.forget_accesses();
    }
    call.wrote(storage.last_seq());
    Ok(())
}

/// Whether an index is already as it is to be.
pub fn changes_nothing(change: &IndexChange) -> bool {
    change.expire_after_seconds.is_none() && change.hidden.is_none() && change.prepare_unique.is_none()
}

/// Options that only collections have.
const OF_COLLECTIONS: [&str; 8] = [
    "index",
    "cappedSize",
    "cappedMax",
    "validator",
    "validationLevel",
    "validationAction",
    "changeStreamPreAndPostImages",
    "expireAfterSeconds",
];

/// Refuses options that are there for other kinds of collections; time-series collections do not come here.
fn check_kind(call: &Invocation<'_>, namespace: &Namespace) -> Result<()> {
    let is_view = call.server.storage.catalog().view(namespace).is_some();
    for element in call.body {
        let (name, value) = element?;
        let name = name.as_str();
        if matches!(value, RawBsonRef::Null | RawBsonRef::Undefined) {
            continue;
        }
        let reason = match name {
            "timeseries" | "timeseriesBucketsMayHaveMixedSchemaData" => "only supported on a time-series collection",
            name if is_view && OF_COLLECTIONS.contains(&name) => "not supported on a view",
            _ => continue,
        };
        return Err(CommandError::new(
            ErrorCode::InvalidOptions,
            format!("option {reason}: {name}"),
        ));
    }
    Ok(())
}

/// A pipeline without the nulls in it, which are as if they were not there.
fn without_nulls(pipeline: &RawArray) -> Result<RawArrayBuf> {
    let mut stages = RawArrayBuf::new();
    for stage in pipeline {
        match stage? {
            RawBsonRef::Null | RawBsonRef::Undefined => {}
            stage => stages.push(bson::RawBson::from(stage)),
        }
    }
    Ok(stages)
}

fn view_change(
    call: &Invocation<'_>,
    namespace: &Namespace,
    view_on: Option<&str>,
    pipeline: Option<&RawArrayBuf>,
) -> Result<ViewChange> {
    let catalog = call.server.storage.catalog();
    let Some(view) = catalog.view(namespace) else {
        return Err(CommandError::new(
            ErrorCode::InvalidOptions,
            "ns is not a view: viewOn and pipeline cannot be given",
        ));
    };
    // What is not given stays as it is.
    let view_on = view_on.unwrap_or_else(|| view.view_on()).to_owned();
    let pipeline = pipeline.map_or_else(|| view.pipeline().to_owned(), RawArrayBuf::clone);
    // The check before the command may have seen another view, or none.
    let subject = Subject {
        database: namespace.db(),
        collection: Some(&view_on),
        bypasses_validation: false,
    };
    if !matches!(call.rights, Rights::Unchecked) && !aggregate_access::pipeline(call, subject, &pipeline)? {
        return Err(refused(call));
    }
    query::check_view(
        &call.context(),
        namespace,
        &view_on,
        &bson::Array::try_from(&*pipeline)?,
        view.options().get_document("collation").ok(),
    )?;
    Ok(ViewChange {
        view_on,
        pipeline,
        former: Some(view),
    })
}

/// Bytes that the `_id`s of documents which share keys may take in a reply.
const VIOLATION_BYTES_MAX: usize = 8 << 20;

/// Makes sure that no two documents share a key in an index. Answers the version of the definition that this is true
/// of.
///
/// Errors: 359, with the `_id`s of those that do.
fn check_unique(call: &Invocation<'_>, namespace: &Namespace, name: &str) -> Result<u64> {
    let storage = &call.server.storage;
    loop {
        let (mut violations, mut bytes, mut is_cut) = (Vec::new(), 0, false);
        // However little of them can be shown.
        let mut has_any = false;
        let checked = storage.duplicates(&call.operation, namespace, name, &mut |ids| {
            has_any = true;
            let mut shown = Vec::with_capacity(ids.len());
            for id in ids {
                let mut whole = RawDocumentBuf::new();
                whole.append(cstr!(""), id.clone());
                bytes += whole.as_bytes().len();
                let Ok(id) = Bson::try_from(id) else { continue };
                if bytes > VIOLATION_BYTES_MAX {
                    is_cut = true;
                    break;
                }
                shown.push(id);
            }
            if !shown.is_empty() {
                violations.push(Bson::Document(doc! { "ids": shown }));
            }
            !is_cut
        });
        let version = match checked {
            Err(StorageError::WriteConflict) => continue,
            checked => checked?,
        };
        if !has_any {
            return Ok(version);
        }
        let message = match is_cut {
            true => {
                "Cannot convert the index to unique. Too many conflicting documents were detected. Please resolve them \
                 and rerun collMod."
            }
            false => {
                "Cannot convert the index to unique. Please resolve conflicting documents before running collMod again."
            }
        };
        return Err(CommandError {
            extra: Some(Box::new(doc! { "violations": violations })),
            ..CommandError::new(ErrorCode::CannotConvertIndexToUnique, message)
        });
    }
}

/// What `collMod` changes of an index.
pub struct IndexEdit {
    pub change: IndexChange,
    /// `expireAfterSeconds_old/_new`, `hidden_old/_new` and so on, for the reply.
    pub old: Document,
    /// It is to be unique.
    asks_for_unique: bool,
    /// It is not, and is to be.
    becomes_unique: bool,
    /// It is to take duplicates.
    forces_non_unique: bool,
    /// How many things were given that are to be changed.
    changes: usize,
}

impl IndexEdit {
    /// Of the argument `index`.
    pub fn parse(storage: &storage::Storage, namespace: &Namespace, wanted: &RawDocument) -> Result<Self> {
        let arguments = Arguments::of("collMod.index");
        let invalid = |message: &str| CommandError::new(ErrorCode::InvalidOptions, message);
        let Some(collection) = storage.catalog().collection(namespace) else {
            return Err(super::views::refused(namespace));
        };
        let all: Vec<_> = collection.indexes().iter().collect();
        if wanted.get("name")?.is_some() && wanted.get("keyPattern")?.is_some() {
            return Err(invalid("Cannot specify both key pattern and name."));
        }
        let (mut name, mut expire, mut hidden) = (None, None, None);
        let (mut unique, mut prepare_unique, mut force_non_unique) = (None, None, None);
        for element in wanted {
            let (field, value) = element?;
            if matches!(value, RawBsonRef::Null | RawBsonRef::Undefined) {
                continue;
            }
            match field.as_str() {
                "name" => name = Some(arguments.string("name", value)?.to_owned()),
                "keyPattern" => name = Some(name_by_key(&all, arguments.document("keyPattern", value)?, None)?),
                "expireAfterSeconds" => {
                    let seconds = arguments.integer("expireAfterSeconds", value)?;
                    if seconds < 0 {
                        return Err(invalid("TTL index 'expireAfterSeconds' option cannot be less than 0"));
                    }
                    expire = Some(seconds.min(EXPIRE_SECONDS_MAX))
                }
                "hidden" => hidden = Some(arguments.boolean("hidden", value)?),
                "unique" => unique = Some(arguments.boolean("unique", value)?),
                "prepareUnique" => prepare_unique = Some(arguments.boolean("prepareUnique", value)?),
                "forceNonUnique" => force_non_unique = Some(arguments.boolean("forceNonUnique", value)?),
                other => return Err(crate::arguments::unknown_field("collMod.index", other)),
            }
        }
        let Some(name) = name else {
            return Err(invalid("either keyPattern or name is required"));
        };
        let Some(index) = collection.index(&name) else {
            let is_clustered = collection.clustered_index().is_some_and(|index| index.name() == name);
            return Err(CommandError::new(
                if is_clustered {
                    ErrorCode(6_011_800)
                } else {
                    ErrorCode::IndexNotFound
                },
                format!("cannot find index {name} for ns {namespace}"),
            ));
        };
        let given = [
            expire.is_some(),
            hidden.is_some(),
            unique.is_some(),
            prepare_unique.is_some(),
            force_non_unique.is_some(),
        ];
        let changes = given.iter().filter(|given| **given).count();
        if changes == 0 {
            return Err(invalid(
                "no expireAfterSeconds, hidden, unique, prepareUnique, or forceNonUnique field",
            ));
        }
        let mut old = Document::new();
        if let Some(seconds) = expire {
            if index.pattern().fields().len() > 1 {
                return Err(invalid(
                    "TTL indexes are single-field indexes, compound indexes do not support TTL. ",
                ));
            }
            if index.pattern().special().is_some() {
                return Err(invalid(
                    "TTL indexes have one field with dates: hashed, 2d and 2dsphere indexes do not support TTL",
                ));
            }
            if let Some(was) = index.expire_after_seconds() {
                old.insert("expireAfterSeconds_old", was);
            }
            old.insert("expireAfterSeconds_new", seconds);
        }
        if unique == Some(false) {
            return Err(CommandError::bad_value("Cannot make index non-unique"));
        }
        match force_non_unique {
            Some(false) => return Err(CommandError::bad_value("'forceNonUnique: false' is not supported")),
            Some(true) if index.is_id() => {
                return Err(CommandError::bad_value("the index _id_ cannot be made non-unique"));
            }
            Some(true) if index.unique() => drop(old.insert("forceNonUnique_new", true)),
            _ => {}
        }
        let becomes_unique = unique.is_some() && !index.unique();
        if becomes_unique && !index.prepares_unique() {
            return Err(invalid(
                "Cannot make index unique with 'prepareUnique=false'. Run collMod to set it first.",
            ));
        }
        if becomes_unique {
            old.insert("unique_new", true);
        }
        if hidden.is_some() && index.is_id() {
            return Err(CommandError::bad_value("can't hide _id index"));
        }
        let hidden = hidden.filter(|wanted| *wanted != index.hidden());
        if let Some(hidden) = hidden {
            old.insert("hidden_old", !hidden);
            old.insert("hidden_new", hidden);
        }
        // What is unique needs no preparation.
        let prepare_unique = prepare_unique.filter(|wanted| *wanted != index.prepares_unique() && !index.unique());
        if let Some(wanted) = prepare_unique {
            index_kinds::check_unique(index.pattern())?;
            old.insert("prepareUnique_old", index.prepares_unique());
            old.insert("prepareUnique_new", wanted);
        }
        Ok(Self {
            change: IndexChange {
                name,
                expire_after_seconds: expire,
                hidden,
                prepare_unique,
                unique_as_of: None,
            },
            old,
            asks_for_unique: unique.is_some(),
            becomes_unique,
            forces_non_unique: force_non_unique.is_some(),
            changes,
        })
    }
}
