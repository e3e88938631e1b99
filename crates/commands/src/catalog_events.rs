//! Changes of the catalog as events: what the server's log and the audit log tell of them.

use crate::audited::AuditEvent;
use crate::client::Client;
use crate::logger::{LogId, Logger, id};
use crate::server::Server;
use bson::spec::BinarySubtype;
use bson::{Binary, Bson, Document, doc};
use std::sync::Arc;
use storage::{CatalogChange, Collection, Index, Operation};

/// One line of the log; `action` and `param` are what the audit log has of it.
struct CatalogEvent {
    id: LogId,
    message: &'static str,
    attributes: Document,
    audited: Option<(&'static str, Document)>,
}

impl CatalogEvent {
    fn log(self, logger: &Logger, context: &str) {
        logger.log(self.id, context, self.message, self.attributes);
    }
}

/// Logs a change that no client has asked for.
pub fn log_unasked(logger: &Logger, context: &str, change: &CatalogChange) {
    for event in events(change) {
        event.log(logger, context);
    }
}

impl Server {
    /// Logs what a client's operation has changed, and has it audited.
    pub(crate) fn tell_catalog_changes(&self, client: &Client, operation: &Operation) {
        for change in operation.take_catalog_changes() {
            for event in events(&change) {
                if let Some((action, param)) = &event.audited {
                    self.audit(|| AuditEvent::of(client, action, param.clone(), 0));
                }
                event.log(&self.logger, &format!("conn{}", client.id()));
            }
        }
    }
}

fn events(change: &CatalogChange) -> Vec<CatalogEvent> {
    match change {
        CatalogChange::Collection { before, after } => match (before, after) {
            (None, None) => Vec::new(),
            (None, Some(after)) => {
                let mut events = vec![of_collection(
                    (id::COLLECTION_CREATED, "A collection was created"),
                    Some("createCollection"),
                    after,
                )];
                let indexes = after.maintained().filter(|index| !index.is_id());
                events.extend(indexes.map(|index| added(after, index)));
                events
            }
            (Some(before), None) => vec![of_collection(
                (id::COLLECTION_DROPPED, "A collection was dropped"),
                Some("dropCollection"),
                before,
            )],
            (Some(before), Some(after)) => of_definitions(before, after),
        },
        CatalogChange::View {
            namespace,
            before,
            after,
        } => {
            let (id, message, audited) = match (before, after) {
                (None, _) => (id::VIEW_CREATED, "A view was created", Some("createCollection")),
                (Some(_), None) => (id::VIEW_DROPPED, "A view was dropped", Some("dropCollection")),
                (Some(_), Some(_)) => (id::VIEW_CHANGED, "A view was changed", None),
            };
            let mut attributes = doc! { "ns": namespace.as_str() };
            if let Some(view) = after.as_ref().or(before.as_ref()) {
                let pipeline = Bson::try_from(bson::raw::RawBsonRef::Array(view.pipeline())).unwrap_or(Bson::Null);
                attributes.extend(doc! { "viewOn": view.view_on(), "pipeline": pipeline });
            }
            let param = attributes.clone();
            // Pipelines hold what users search for.
            attributes.remove("pipeline");
            vec![CatalogEvent {
                id,
                message,
                attributes,
                audited: audited.map(|action| (action, param)),
            }]
        }
    }
}

fn of_definitions(before: &Arc<Collection>, after: &Arc<Collection>) -> Vec<CatalogEvent> {
    let mut events = Vec::new();
    if before.namespace() != after.namespace() {
        let (from, to) = (before.namespace().as_str(), after.namespace().as_str());
        events.push(CatalogEvent {
            id: id::COLLECTION_RENAMED,
            message: "A collection was renamed",
            attributes: doc! { "from": from, "to": to, "uuid": uuid(after) },
            audited: Some(("renameCollection", doc! { "old": from, "new": to })),
        });
    }
    if before.options() != after.options() {
        events.push(of_collection(
            (id::COLLECTION_OPTIONS_CHANGED, "Options of a collection were changed"),
            None,
            after,
        ));
    }
    for index in after.maintained() {
        match before.maintained().find(|former| former.table() == index.table()) {
            None => events.push(added(after, index)),
            Some(former) if index.ready() && !former.ready() => events.push(of_index(
                (id::INDEX_BUILT, "An index was built"),
                ("createIndex", Some("IndexBuildSucceeded")),
                after,
                index,
            )),
            Some(_) => {}
        }
    }
    for index in before.maintained() {
        if after.maintained().all(|kept| kept.table() != index.table()) {
            events.push(match index.ready() {
                true => of_index(
                    (id::INDEX_DROPPED, "An index was dropped"),
                    ("dropIndex", None),
                    after,
                    index,
                ),
                false => of_index(
                    (id::INDEX_BUILD_GIVEN_UP, "The build of an index was given up"),
                    ("createIndex", Some("IndexBuildAborted")),
                    after,
                    index,
                ),
            });
        }
    }
    events
}

fn added(collection: &Collection, index: &Index) -> CatalogEvent {
    match index.ready() {
        true => of_index(
            (id::INDEX_BUILT, "An index was built"),
            ("createIndex", Some("IndexBuildSucceeded")),
            collection,
            index,
        ),
        false => of_index(
            (id::INDEX_BUILD_BEGINS, "The build of an index begins"),
            ("createIndex", Some("IndexBuildStarted")),
            collection,
            index,
        ),
    }
}

fn of_collection(line: (LogId, &'static str), action: Option<&'static str>, collection: &Collection) -> CatalogEvent {
    let ns = collection.namespace().as_str();
    CatalogEvent {
        id: line.0,
        message: line.1,
        attributes: doc! { "ns": ns, "uuid": uuid(collection) },
        audited: action.map(|action| (action, doc! { "ns": ns })),
    }
}

fn of_index(
    line: (LogId, &'static str),
    (action, state): (&'static str, Option<&'static str>),
    collection: &Collection,
    index: &Index,
) -> CatalogEvent {
    let ns = collection.namespace().as_str();
    let mut param = doc! { "ns": ns, "indexName": index.name() };
    if let Some(state) = state {
        let spec = Document::try_from(index.spec()).unwrap_or_default();
        param.extend(doc! { "indexSpec": spec, "indexBuildState": state });
    }
    CatalogEvent {
        id: line.0,
        message: line.1,
        attributes: doc! { "ns": ns, "index": index.name(), "uuid": uuid(collection) },
        audited: Some((action, param)),
    }
}

fn uuid(collection: &Collection) -> Binary {
    Binary {
        subtype: BinarySubtype::Uuid,
        bytes: collection.uuid().to_vec(),
    }
}
