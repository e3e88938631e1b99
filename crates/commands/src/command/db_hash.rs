//! `dbHash`: a digest of a database's documents, by which members of a replica set, on whichever engines, find out that
//! they hold the same.
//!
//! A collection's digest is MD5 over its documents in the order of `_id`, of a capped collection in that of insertion;
//! the database's is MD5 over those of its collections, in hexadecimal, in the order of their names. All is read in one
//! state.

use crate::definition::{Access, Command};
use crate::error::{CommandError, Result};
use crate::invocation::Invocation;
use crate::metrics::OperationKind;
use crate::profiler;
use crate::reply::Reply;
use auth::Action;
use bson::raw::{RawArray, RawBsonRef};
use bson::spec::BinarySubtype;
use bson::{Binary, Bson, Document};
use engine::{Direction, FillLimits, KeyRange};
use md5::{Digest, Md5};
use std::ops::Bound;
use storage::{CollectionGuard, IndexBatch, LockMode, Namespace, Operation, ReadView, RecordBatch, StorageError};
use wire::ErrorCode;

/// `dbHash`.
pub const DB_HASH: Command = Command::new(
    "dbHash",
    "A digest of a database's documents, to be compared with another member's.",
    OperationKind::Command,
    Access::database(&[Action::DbHash]),
    run,
)
.ends_with_client()
.aliases(&["dbhash"])
.secondary_ok()
.timed_read();

fn run(call: &mut Invocation<'_>, reply: &mut Reply<'_>) -> Result<()> {
    let arguments = call.arguments();
    let mut wanted = None;
    call.for_each_field(|name, value| {
        match name {
            "collections" => wanted = Some(names(arguments.array(name, value)?)?),
            "skipTempCollections" => drop(arguments.boolean(name, value)?),
            _ => {}
        }
        Ok(true)
    })?;
    let started = call.server.env.clock.monotonic();
    let operation = &call.operation;
    // The guards first, then the view: each collection's tables exist in it.
    let guards = guards(call, wanted.as_deref())?;
    let view = call.server.storage.read()?;
    let (mut digests, mut uuids, mut capped) = (Document::new(), Document::new(), Vec::new());
    let mut whole = Md5::new();
    for guard in &guards {
        let name = guard.namespace().collection();
        let digest = match guard.is_capped() {
            Some(_) => by_insertion(&view, guard, operation)?,
            None => by_id(&view, guard, operation)?,
        };
        whole.update(&digest);
        digests.insert(name, digest);
        if guard.is_capped().is_some() {
            capped.push(Bson::from(name));
        }
        let uuid = Binary {
            subtype: BinarySubtype::Uuid,
            bytes: guard.uuid().to_vec(),
        };
        uuids.insert(name, uuid);
    }
    reply.string(
        "host",
        &format!("{}:{}", call.server.settings.host, call.server.settings.port),
    );
    reply.value("collections", &digests.into());
    reply.value("capped", &capped.into());
    reply.value("uuids", &uuids.into());
    reply.string("md5", &hexadecimal(whole));
    let took = call.server.env.clock.monotonic().saturating_sub(started);
    reply.count("timeMillis", took.as_millis() as i64);
    Ok(())
}

fn names(array: &RawArray) -> Result<Vec<&str>> {
    let name = |value: bson::error::Result<_>| match value? {
        RawBsonRef::String(name) => Ok(name),
        _ => Err(CommandError::bad_value("collections entries have to be strings")),
    };
    array.into_iter().map(name).collect()
}

/// The collections to read, held, in the order of their names.
fn guards(call: &Invocation<'_>, wanted: Option<&[&str]>) -> Result<Vec<CollectionGuard>> {
    let storage = &call.server.storage;
    let is_wanted = |name: &str| {
        name != profiler::COLLECTION && wanted.is_none_or(|wanted| wanted.is_empty() || wanted.contains(&name))
    };
    if call.database.is_empty() {
        return Err(CommandError::new(ErrorCode::InvalidNamespace, "Invalid db name"));
    }
    let mut namespaces: Vec<Namespace> = storage
        .catalog()
        .collections(call.database)
        .iter()
        .map(|collection| collection.namespace().clone())
        .filter(|namespace| is_wanted(namespace.collection()))
        .collect();
    namespaces.sort_unstable_by(|a, b| a.collection().cmp(b.collection()));
    let mut guards = Vec::with_capacity(namespaces.len());
    for namespace in namespaces {
        // It may have gone, or become a view, since it was listed.
        match storage.collection(&call.operation, &namespace, LockMode::IntentShared) {
            Ok(guard) => guards.extend(guard),
            Err(StorageError::IsView(_)) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(guards)
}

fn by_id(view: &ReadView, guard: &CollectionGuard, operation: &Operation) -> Result<String> {
    let index = guard.id_index();
    let mut entries = view.index_entries(index, KeyRange::all(), Direction::Forward)?;
    let (mut batch, mut digest) = (IndexBatch::new(), Md5::new());
    while entries.fill(&mut batch, FillLimits::default())? {
        for at in 0..batch.len() {
            operation.check().map_err(StorageError::from)?;
            let record = view.record(guard, &batch.id(at))?;
            // An entry without a document is for `validate` to find; here it makes the digest another one.
            digest.update(record.as_deref().unwrap_or(b"missing"));
        }
    }
    Ok(hexadecimal(digest))
}

fn by_insertion(view: &ReadView, guard: &CollectionGuard, operation: &Operation) -> Result<String> {
    let mut records = view.records(guard, Bound::Unbounded, Bound::Unbounded, Direction::Forward)?;
    let (mut batch, mut digest) = (RecordBatch::new(), Md5::new());
    while records.fill(&mut batch, FillLimits::default())? {
        operation.check_now().map_err(StorageError::from)?;
        (0..batch.len()).for_each(|at| digest.update(batch.document(at)));
    }
    Ok(hexadecimal(digest))
}

/// As text.
pub fn hexadecimal(digest: Md5) -> String {
    digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}
