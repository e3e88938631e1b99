//! From an operation of the log to the events that a change stream gives for it.

use super::options::{Image, Options, Scope};
use super::token::{Place, ResumeToken};
use super::update_description::update_description;
use crate::QueryError;
use crate::raw::describe_whole;
use crate::value::scan::Malformed;
use bson::raw::{RawBsonRef, cstr};
use bson::spec::BinarySubtype;
use bson::{Binary, DateTime, RawArrayBuf, RawDocument, RawDocumentBuf, rawdoc};
use storage::{HistoryChange, HistoryOperation, HistoryUnit, Namespace, document_key};
use wire::ErrorCode;

/// An event, but for the images of the document that it is about, and of an update for what [`complete`] adds.
pub(super) struct Event {
    pub(super) token: ResumeToken,
    pub(super) document: RawDocumentBuf,
    /// The stream ends with it.
    pub(super) is_invalidation: bool,
    /// When the server that wrote it says it was written, in milliseconds.
    pub(super) wall_ms: i64,
}

pub(super) fn uuid_value(uuid: [u8; 16]) -> Binary {
    Binary {
        subtype: BinarySubtype::Uuid,
        bytes: uuid.to_vec(),
    }
}

fn raw(bytes: &[u8]) -> Result<&RawDocument, QueryError> {
    RawDocument::from_bytes(bytes).map_err(|error| fatal(error.to_string()))
}

fn fatal(reason: impl Into<String>) -> QueryError {
    QueryError::new(ErrorCode::ChangeStreamFatalError, reason)
}

/// The key of the document that an operation is about.
pub(super) fn key_of(change: &HistoryChange) -> Result<RawDocumentBuf, QueryError> {
    match change {
        HistoryChange::Insert { document } | HistoryChange::Replace { document, .. } => {
            let key = document_key(document).ok_or_else(|| fatal("a document without _id"))?;
            RawDocumentBuf::from_bytes(key).map_err(|error| fatal(error.to_string()))
        }
        HistoryChange::Update { key, .. } | HistoryChange::Delete { key, .. } => Ok(raw(key)?.to_owned()),
        HistoryChange::Command { .. } | HistoryChange::Note { .. } => Ok(RawDocumentBuf::new()),
    }
}

/// What all events of one operation have in common.
struct Origin<'u> {
    unit: &'u HistoryUnit,
    operation: u32,
    is_expanded: bool,
}

impl Origin<'_> {
    fn begin(&self, kind: &str, is_invalidation: bool, uuid: Option<[u8; 16]>) -> Event {
        let token = ResumeToken {
            time: self.unit.time,
            place: Place::At {
                operation: self.operation,
                is_invalidation,
                fragment: 0,
            },
        };
        let mut document = rawdoc! {
            "_id": token.to_document(),
            "operationType": kind,
            "clusterTime": self.unit.time.to_timestamp(),
        };
        if let Some(uuid) = uuid.filter(|_| self.is_expanded) {
            document.append(cstr!("collectionUUID"), uuid_value(uuid));
        }
        document.append(cstr!("wallTime"), DateTime::from_millis(self.unit.wall_ms));
        Event {
            token,
            document,
            is_invalidation,
            wall_ms: self.unit.wall_ms,
        }
    }

    fn end_of_stream(&self) -> Event {
        self.begin("invalidate", true, None)
    }
}

/// What a transaction did says so.
fn name_transaction(unit: &HistoryUnit, event: &mut RawDocumentBuf) {
    if let Some(session) = unit.session.filter(|session| session.is_transaction) {
        event.append(cstr!("lsid"), session_document(&session));
        event.append(cstr!("txnNumber"), session.txn_number);
    }
}

/// The events of an operation that a stream gives: none, one, or one and the stream's end. Those of updates are to be
/// completed.
pub(super) fn events(
    unit: &HistoryUnit,
    place: usize,
    scope: &Scope,
    options: &Options,
) -> Result<Vec<Event>, QueryError> {
    let operation = &unit.operations[place];
    let Some(ns) = &operation.ns else { return Ok(Vec::new()) };
    let origin = Origin {
        unit,
        operation: place as u32,
        is_expanded: options.is_expanded,
    };
    match &operation.change {
        HistoryChange::Command { document } => of_command(&origin, operation, ns, raw(document)?, scope),
        HistoryChange::Note { .. } => Ok(Vec::new()),
        _ if !scope.has(ns) => Ok(Vec::new()),
        change => Ok(vec![of_change(&origin, operation, ns, change)?]),
    }
}

fn of_change(
    origin: &Origin<'_>,
    operation: &HistoryOperation,
    ns: &Namespace,
    change: &HistoryChange,
) -> Result<Event, QueryError> {
    let (kind, full) = match change {
        HistoryChange::Insert { document } => ("insert", Some(document)),
        HistoryChange::Replace { document, .. } => ("replace", Some(document)),
        HistoryChange::Update { .. } => ("update", None),
        _ => ("delete", None),
    };
    let mut event = origin.begin(kind, false, operation.uuid);
    let document = &mut event.document;
    if let Some(full) = full {
        document.append(cstr!("fullDocument"), raw(full)?.to_owned());
    }
    document.append(cstr!("ns"), ns_document(ns));
    document.append(cstr!("documentKey"), key_of(change)?);
    if !matches!(change, HistoryChange::Update { .. }) {
        name_transaction(origin.unit, document);
    }
    Ok(event)
}

/// The fields that [`complete`] adds.
pub(super) const COMPLETED_FIELDS: [&str; 3] = ["updateDescription", "lsid", "txnNumber"];

/// Adds to the event of an update what was changed, which may be long, and what comes behind it.
///
/// Errors: 10334 where it is longer than any document.
pub(super) fn complete(
    event: &mut Event,
    unit: &HistoryUnit,
    place: usize,
    options: &Options,
) -> Result<(), QueryError> {
    let HistoryChange::Update { difference, .. } = &unit.operations[place].change else {
        return Ok(());
    };
    let description = update_description(raw(difference)?, options.is_expanded)?;
    event.document.append(cstr!("updateDescription"), description);
    name_transaction(unit, &mut event.document);
    Ok(())
}

/// `{id, uid}`.
pub(super) fn session_document(session: &storage::HistorySession) -> RawDocumentBuf {
    let user = Binary {
        subtype: BinarySubtype::Generic,
        bytes: session.user.to_vec(),
    };
    rawdoc! { "id": uuid_value(session.id), "uid": user }
}

fn ns_document(ns: &Namespace) -> RawDocumentBuf {
    rawdoc! { "db": ns.db(), "coll": ns.collection() }
}

fn of_command(
    origin: &Origin<'_>,
    operation: &HistoryOperation,
    ns: &Namespace,
    told: &RawDocument,
    scope: &Scope,
) -> Result<Vec<Event>, QueryError> {
    let o = told.get_document("o").map_err(|error| fatal(error.to_string()))?;
    let o2 = told.get_document("o2").ok();
    let Some((name, target)) = o.into_iter().next().transpose().map_err(|_| Malformed)? else {
        return Ok(Vec::new());
    };
    let db = ns.db();
    let is_of_collection = matches!(scope, Scope::Collection(_));
    let mut events = Vec::new();
    let mut push = |kind: &str, subject: RawDocumentBuf, fields: Vec<(&str, RawDocumentBuf)>, ends: bool| {
        let mut event = origin.begin(kind, false, operation.uuid);
        event.document.append(cstr!("ns"), subject);
        for (name, value) in fields {
            if let Ok(name) = bson::raw::CString::try_from(name.to_owned()) {
                event.document.append(name, value);
            }
        }
        name_transaction(origin.unit, &mut event.document);
        events.push(event);
        if ends {
            events.push(origin.end_of_stream());
        }
    };
    if name == "dropDatabase" {
        if scope.has_database(db) {
            let ends = !matches!(scope, Scope::Cluster);
            push("dropDatabase", rawdoc! { "db": db }, Vec::new(), ends);
        }
        return Ok(events);
    }
    let target = target.as_str().ok_or_else(|| fatal("a command without a collection"))?;
    if name == "renameCollection" {
        let to = o.get_str("to").map_err(|error| fatal(error.to_string()))?;
        let (from, to) = (Namespace::parse(target)?, Namespace::parse(to)?);
        if scope.has(&from) || scope.has(&to) {
            let mut fields = vec![("to", ns_document(&to))];
            if origin.is_expanded {
                let mut description = rawdoc! { "to": ns_document(&to) };
                if let Ok(Some(dropped)) = o.get("dropTarget") {
                    description.append(cstr!("dropTarget"), dropped);
                }
                fields.push(("operationDescription", description));
            }
            push("rename", ns_document(&from), fields, is_of_collection);
        }
        return Ok(events);
    }
    let collection = Namespace::new(db, target)?;
    if !scope.has(&collection) {
        return Ok(events);
    }
    let subject = ns_document(&collection);
    match name.as_str() {
        "drop" if operation.uuid.is_some() => push("drop", subject, Vec::new(), is_of_collection),
        _ if !origin.is_expanded => {}
        // Of a view, which who watches a collection of that name does not follow.
        _ if is_of_collection && operation.uuid.is_none() => {}
        "drop" => push("drop", subject, Vec::new(), false),
        "create" => push("create", subject, vec![("operationDescription", rest_of(o))], false),
        "createIndexes" => {
            let description = rawdoc! { "indexes": one(rest_of(o)) };
            push(
                "createIndexes",
                subject,
                vec![("operationDescription", description)],
                false,
            );
        }
        "dropIndexes" => {
            let dropped = o2.map(ToOwned::to_owned).unwrap_or_default();
            let description = rawdoc! { "indexes": one(dropped) };
            push(
                "dropIndexes",
                subject,
                vec![("operationDescription", description)],
                false,
            );
        }
        "collMod" => {
            let mut before = RawDocumentBuf::new();
            for (field, shown) in [
                ("collectionOptions_old", cstr!("collectionOptions")),
                ("indexOptions_old", cstr!("indexOptions")),
            ] {
                if let Some(RawBsonRef::Document(was)) = o2.and_then(|o2| o2.get(field).ok().flatten()) {
                    before.append(shown, was.to_owned());
                }
            }
            let mut fields = vec![("operationDescription", rest_of(o))];
            // Of a view the log does not say what it was.
            if !before.is_empty() {
                fields.push(("stateBeforeChange", before));
            }
            push("modify", subject, fields, false);
        }
        _ => {}
    }
    Ok(events)
}

fn one(document: RawDocumentBuf) -> RawArrayBuf {
    let mut array = RawArrayBuf::new();
    array.push(document);
    array
}

/// A command without its first field.
fn rest_of(o: &RawDocument) -> RawDocumentBuf {
    let mut rest = RawDocumentBuf::new();
    for (name, value) in o.into_iter().flatten().skip(1) {
        rest.append(name, value);
    }
    rest
}

/// Adds the images of its document to an event. `look_up` answers the newest version; those of the time of the event
/// are there if `has_images`.
pub(super) fn add_images(
    event: &mut Event,
    operation: &HistoryOperation,
    has_images: bool,
    options: &Options,
    look_up: impl FnOnce() -> Result<Option<RawDocumentBuf>, QueryError>,
) -> Result<(), QueryError> {
    let is_update = matches!(operation.change, HistoryChange::Update { .. });
    let has_before = matches!(
        operation.change,
        HistoryChange::Update { .. } | HistoryChange::Replace { .. } | HistoryChange::Delete { .. }
    );
    if !(is_update && options.full_document != Image::Off || has_before && options.before_change != Image::Off) {
        return Ok(());
    }
    let (before, after) = match has_images {
        true => operation.images()?,
        false => (None, None),
    };
    if is_update && options.full_document != Image::Off {
        let image = match options.full_document {
            Image::Lookup => look_up()?,
            _ => copy_of(after)?,
        };
        if image.is_none() && options.full_document == Image::Required {
            return Err(missing("post-image", "update", &event.document));
        }
        append_image(&mut event.document, cstr!("fullDocument"), image);
    }
    if has_before && options.before_change != Image::Off {
        let image = copy_of(before)?;
        if image.is_none() && options.before_change == Image::Required {
            return Err(missing("pre-image", "update, delete and replace", &event.document));
        }
        append_image(&mut event.document, cstr!("fullDocumentBeforeChange"), image);
    }
    Ok(())
}

fn copy_of(image: Option<bytes::Bytes>) -> Result<Option<RawDocumentBuf>, QueryError> {
    image.map(|image| Ok(raw(&image)?.to_owned())).transpose()
}

fn append_image(document: &mut RawDocumentBuf, name: &bson::raw::CStr, image: Option<RawDocumentBuf>) {
    match image {
        Some(image) => document.append(name, image),
        None => document.append(name, RawBsonRef::Null),
    }
}

fn missing(what: &str, of: &str, event: &RawDocument) -> QueryError {
    let id = event.get("_id").ok().flatten().map(describe_whole).unwrap_or_default();
    QueryError::new(
        ErrorCode::NoMatchingDocument,
        format!(
            "Change stream was configured to require a {what} for all {of} events, but the {what} was not found for event: {{ _id: {id} }}"
        ),
    )
}
