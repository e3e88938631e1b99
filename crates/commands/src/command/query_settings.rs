//! `setQuerySettings`, `removeQuerySettings`, and the stage `$querySettings`.

use super::{find, user_store};
use crate::arguments::{Arguments, missing_field, unknown_field, wrong_type};
use crate::cluster_parameters::{COLLECTION, TIME};
use crate::definition::{Access, Command};
use crate::error::{CommandError, Result};
use crate::invocation::Invocation;
use crate::metrics::OperationKind;
use crate::query_settings::{ARRAY, Change, ID, Kept, KeptSettings, is_administrative, refusal};
use crate::reply::Reply;
use crate::server::Server;
use auth::Action;
use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf};
use bson::{Bson, Document, doc};
use parking_lot::MutexGuard;
use query::plan::{QueryShape, ShapeHash};
use std::sync::Arc;
use std::time::Duration;
use storage::{Namespace, StorageError};
use wire::ErrorCode;
use wire::limits::DOCUMENT_BYTES_MAX;

/// Between two looks at whether the operation may go on.
const WAIT_SLICE: Duration = Duration::from_millis(10);

/// `setQuerySettings`.
pub const SET_QUERY_SETTINGS: Command = Command::new(
    "setQuerySettings",
    "Sets what holds for all queries of one shape: the indexes they may use, or that they are rejected.",
    OperationKind::Command,
    Access::cluster(&[Action::QuerySettings]),
    set,
)
.takes_write_concern()
.admin_only();
/// `removeQuerySettings`.
pub const REMOVE_QUERY_SETTINGS: Command = Command::new(
    "removeQuerySettings",
    "Takes the settings of one shape of queries away.",
    OperationKind::Command,
    Access::cluster(&[Action::QuerySettings]),
    remove,
)
.takes_write_concern()
.admin_only();

/// The queries that a client means.
struct Subject<'s> {
    hash: ShapeHash,
    /// One of them, where the client gave one.
    query: Option<&'s RawDocument>,
}

/// By a query, or by the hash of a shape.
fn subject<'i>(call: &Invocation<'i>) -> Result<Subject<'i>> {
    match call.target()? {
        RawBsonRef::String(text) => {
            if text.len() != ShapeHash::DIGITS {
                return Err(CommandError::new(
                    ErrorCode::InvalidLength,
                    format!("a query shape hash has {} hexadecimal digits", ShapeHash::DIGITS),
                ));
            }
            let hash = ShapeHash::parse(text)
                .ok_or_else(|| CommandError::bad_value("a query shape hash has hexadecimal digits only"))?;
            Ok(Subject { hash, query: None })
        }
        RawBsonRef::Document(query) => {
            let shape = checked_shape(call, query)?;
            Ok(Subject {
                hash: shape.hash(),
                query: Some(query),
            })
        }
        other => {
            let name = call.command.name;
            Err(wrong_type(name, name, other, "types '[string, object]'"))
        }
    }
}

/// The database that a representative query is for.
fn database_of(query: &RawDocument) -> Result<&str> {
    match query.get("$db")? {
        Some(RawBsonRef::String(database)) => Ok(database),
        None | Some(RawBsonRef::Null) => Err(missing_field("representativeQuery", "$db")),
        Some(other) => Err(wrong_type("representativeQuery", "$db", other, "type 'string'")),
    }
}

/// The shape of a representative query, which must be one that can be run, and may have settings.
fn checked_shape(call: &Invocation<'_>, query: &RawDocument) -> Result<QueryShape> {
    let first = query.iter().next().transpose()?;
    let command = match first.map(|(name, _)| name.as_str()) {
        Some(name @ ("find" | "distinct" | "aggregate")) => call.server.commands.find(name),
        _ => None,
    };
    let Some((command, _)) = command else {
        return Err(CommandError::new(
            ErrorCode(7_746_402),
            "QueryShape can only be computed for find, distinct and aggregate commands",
        ));
    };
    let database = database_of(query)?;
    let mut inner = call.within(command, query, database);
    // Parsed as the command itself would: what cannot be run is no query.
    match command.name {
        "aggregate" => {
            let parsed = super::aggregate::parse(&mut inner)?;
            query::stages::Pipeline::parse(parsed.request.pipeline, &inner.expressions())?;
        }
        "distinct" => {
            let namespace = inner.namespace()?;
            let parsed = find::parse_distinct(&inner, namespace)?;
            query::matcher::Matcher::parse_ordered(parsed.filter, &inner.expressions())?;
        }
        _ => {
            let namespace = inner.namespace()?;
            let parsed = find::parse_find(&inner, namespace)?;
            let with_variables = match parsed.request.variables {
                Some(variables) => inner.expressions().with_let(variables)?,
                None => inner.expressions(),
            };
            query::matcher::Matcher::parse_ordered(parsed.request.filter, &with_variables)?;
            if query::is_lookup_by_id(&parsed.request) {
                return Err(CommandError::new(
                    ErrorCode(7_746_606),
                    "setQuerySettings command cannot be used on find queries eligible for IDHACK",
                ));
            }
        }
    }
    if let Some(refused) = refusal(database, query) {
        return Err(refused);
    }
    QueryShape::of(query, database)
        .ok_or_else(|| CommandError::new(ErrorCode::InternalError, "a query without a shape"))
}

/// The settings of all shapes as they are kept.
fn kept(call: &mut Invocation<'_>) -> Result<Kept> {
    let kept = user_store::find_in(call, &Namespace::parse(COLLECTION)?, &doc! { "_id": ID })?;
    Ok(Kept::of_parameter(kept.first()))
}

fn keep(call: &mut Invocation<'_>, kept: &Kept) -> Result<()> {
    let document = doc! {
        "_id": ID,
        TIME: call.server.storage.applied().time.to_timestamp(),
        ARRAY: kept.elements()?,
    };
    let bytes = RawDocumentBuf::try_from(&document)?.as_bytes().len();
    if bytes > DOCUMENT_BYTES_MAX {
        return Err(CommandError::new(
            ErrorCode::BSONObjectTooLarge,
            format!("the query settings of all shapes have {bytes} bytes; {DOCUMENT_BYTES_MAX} are allowed"),
        ));
    }
    user_store::upsert_in(call, &Namespace::parse(COLLECTION)?, &doc! { "_id": ID }, &document)
}

fn set(call: &mut Invocation<'_>, reply: &mut Reply<'_>) -> Result<()> {
    let arguments = call.arguments();
    let mut given = None;
    call.for_each_field(|name, value| {
        if name == "settings" {
            given = Some(arguments.document(name, value)?);
        }
        Ok(name == "settings")
    })?;
    let given = given.ok_or_else(|| missing_field(call.command.name, "settings"))?;
    let change = Change::read(given)?;
    let subject = subject(call)?;
    let server = Arc::clone(call.server);
    let _changes = begin_change(call, &server)?;
    let mut kept = kept(call)?;
    let former = kept.by_shape.get(&subject.hash);
    let is_empty_change = given.is_empty();
    let settings = change.applied(former);
    if settings.is_empty() || is_empty_change {
        return Err(CommandError::new(
            ErrorCode(7_746_604),
            "the resulting settings cannot be empty or contain only default values",
        ));
    }
    let query = match subject.query {
        Some(query) => Some(query.to_owned()),
        None => former.and_then(|former| former.query.clone()),
    };
    if settings.reject && query.as_deref().is_some_and(is_administrative) {
        return Err(CommandError::new(
            ErrorCode(8_705_200),
            "setQuerySettings command with {reject: true} cannot be used on pipelines that tell of the server",
        ));
    }
    // The first one stands for all of its shape.
    let query = former.and_then(|former| former.query.clone()).or(query);
    let now = KeptSettings {
        settings: Arc::new(settings),
        query,
    };
    let shown = now.to_document(&subject.hash)?;
    kept.set(subject.hash, now);
    keep(call, &kept)?;
    reply.append_all(&shown);
    Ok(())
}

/// Waits until nobody else changes them, who may be waiting for a majority.
fn begin_change<'s>(call: &Invocation<'_>, server: &'s Server) -> Result<MutexGuard<'s, ()>> {
    loop {
        if let Some(changes) = server.query_settings.changes.try_lock_for(WAIT_SLICE) {
            return Ok(changes);
        }
        call.operation.check_now().map_err(StorageError::from)?;
    }
}

fn remove(call: &mut Invocation<'_>, _reply: &mut Reply<'_>) -> Result<()> {
    call.for_each_field(|_, _| Ok(false))?;
    let subject = subject(call)?;
    let server = Arc::clone(call.server);
    let _changes = begin_change(call, &server)?;
    let mut kept = kept(call)?;
    // What is not there is removed: the command may be sent again.
    match kept.remove(&subject.hash) {
        true => keep(call, &kept),
        false => Ok(()),
    }
}

/// The documents of `$querySettings`.
pub fn documents(call: &Invocation<'_>, ns: Option<&Namespace>, options: &RawDocument) -> Result<Vec<Document>> {
    const STAGE: &str = "$querySettings";
    if ns.is_some() {
        return Err(CommandError::new(
            ErrorCode::InvalidNamespace,
            format!("{STAGE} must be run against the database with {{aggregate: 1}}, not a collection"),
        ));
    }
    let arguments = Arguments::of(STAGE);
    let mut shows_shape = false;
    for field in options {
        // Null is no boolean here.
        match field? {
            (name, value) if name == "showDebugQueryShape" => shows_shape = arguments.flag(name.as_str(), value)?,
            (name, _) => return Err(unknown_field(STAGE, name.as_str())),
        }
    }
    let mut documents = Vec::new();
    for (hash, kept) in &*call.server.query_settings.all() {
        let mut document = kept.to_document(hash)?;
        if let Some(query) = kept.query.as_ref().filter(|_| shows_shape)
            && let Some(shape) = QueryShape::of(query, database_of(query)?)
        {
            document.insert("debugQueryShape", Document::try_from(shape.document())?);
        }
        documents.push(document);
    }
    Ok(documents)
}

/// The section of `serverStatus`.
pub fn section(call: &Invocation<'_>) -> Result<Bson> {
    let settings = &call.server.query_settings;
    let all = settings.all();
    let rejecting = all.values().filter(|kept| kept.settings.reject).count();
    Ok(doc! { "count": all.len() as i64, "size": settings.bytes() as i64, "rejectCount": rejecting as i64 }.into())
}
