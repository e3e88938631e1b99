//! `listDatabases`, `dropDatabase`, `dbStats`.

use super::filter::Filter;
use super::server_status::insert_detail;
use crate::authorization::refused;
use crate::definition::{Access, Command};
use crate::error::{CommandError, Result};
use crate::invocation::Invocation;
use crate::metrics::OperationKind;
use crate::reply::Reply;
use crate::rights::Rights;
use auth::{Action, ActionSet, Target};
use bson::{Document, doc};
use std::collections::BTreeSet;
use storage::{CollectionStats, Storage};
use wire::ErrorCode;

/// `listDatabases`.
pub const LIST_DATABASES: Command = Command::new(
    "listDatabases",
    "Lists the databases.",
    OperationKind::Command,
    Access::User,
    list,
)
.ends_with_client()
.admin_only()
.secondary_ok()
.api_version_1();
/// `dropDatabase`.
pub const DROP_DATABASE: Command = Command::new(
    "dropDatabase",
    "Removes a database.",
    OperationKind::Command,
    Access::database(&[Action::DropDatabase]),
    drop_database,
)
.takes_write_concern()
.api_version_1();
/// `dbStats`.
pub const DB_STATS: Command = Command::new(
    "dbStats",
    "Sizes of a database.",
    OperationKind::Command,
    Access::database(&[Action::DbStats]),
    stats,
)
.ends_with_client()
.aliases(&["dbstats"])
.secondary_ok();

fn list(call: &mut Invocation<'_>, reply: &mut Reply<'_>) -> Result<()> {
    let arguments = call.arguments();
    let (mut name_only, mut authorized) = (false, None);
    let expressions = call.expressions().without_time();
    let mut filter = Filter::all();
    call.for_each_field(|name, value| {
        match name {
            "nameOnly" => name_only = arguments.boolean(name, value)?,
            "filter" => filter = Filter::parse(arguments.document(name, value)?, &expressions)?,
            "authorizedDatabases" => authorized = Some(arguments.boolean(name, value)?),
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    let all = call.may(Target::Cluster, Action::ListDatabases);
    if !all && authorized == Some(false) {
        return Err(refused(call));
    }
    let only_of = match &call.rights {
        Rights::Of(grant) if !all || authorized == Some(true) => Some(grant),
        _ => None,
    };
    let storage = &call.server.storage;
    let evaluation = call.evaluation();
    let mut total = 0;
    reply.open_array("databases");
    let mut index = 0;
    for name in names(storage) {
        if only_of.is_some_and(|grant| !grant.privileges.allow_any_within(&name, ActionSet::all())) {
            continue;
        }
        let mut entry = doc! { "name": &name };
        if !name_only {
            let sizes = sum(storage, &name)?;
            entry.insert("sizeOnDisk", sizes.disk_bytes);
            entry.insert("empty", sizes.objects == 0 && sizes.collections == 0);
        }
        if !filter.matches(&entry, &evaluation)? {
            continue;
        }
        if !name_only {
            total += entry.get_i64("sizeOnDisk").unwrap_or(0);
        }
        reply.value(&index.to_string(), &entry.into());
        index += 1;
    }
    reply.close();
    if !name_only {
        reply.int64("totalSize", total);
        reply.int64("totalSizeMb", total / (1024 * 1024));
    }
    Ok(())
}

/// The databases' names in order. Those of the server itself are always there.
fn names(storage: &Storage) -> BTreeSet<String> {
    let mut names: BTreeSet<String> = storage.catalog().databases().into_iter().collect();
    names.extend(storage.local_databases());
    names.extend(["admin", "config", "local"].map(str::to_owned));
    names
}

fn drop_database(call: &mut Invocation<'_>, reply: &mut Reply<'_>) -> Result<()> {
    call.for_each_field(|_, _| Ok(false))?;
    if call.arguments().integer("dropDatabase", call.target()?)? != 1 {
        return Err(CommandError::new(
            ErrorCode(5_255_100),
            "Have to pass 1 as 'drop' parameter",
        ));
    }
    if matches!(call.database, "admin" | "config" | "local") {
        return Err(CommandError::new(
            ErrorCode::IllegalOperation,
            format!("Dropping the '{}' database is prohibited.", call.database),
        ));
    }
    let locals = call.server.storage.local_capped_of(call.database);
    let is_dropped = call.server.storage.drop_database(&call.operation, call.database)?;
    // Last: those do not fail, nor wait.
    for local in &locals {
        call.server.storage.drop_local_capped(local.namespace());
    }
    if is_dropped || !locals.is_empty() {
        reply.string("dropped", call.database);
        let prefix = format!("{}.", call.database);
        call.server.metrics.top.retain(|name| !name.starts_with(&prefix));
        super::timeseries::forget_dropped(call);
    }
    call.wrote(call.server.storage.last_seq());
    Ok(())
}

/// Sums over the collections of a database, in bytes.
#[derive(Default)]
struct Sizes {
    collections: i64,
    objects: i64,
    data_bytes: i64,
    storage_bytes: i64,
    free_bytes: i64,
    indexes: i64,
    index_bytes: i64,
    index_free_bytes: i64,
    /// Bytes in files. What no checkpoint has written yet is in the log, as it was inserted.
    disk_bytes: i64,
}

fn sum(storage: &Storage, database: &str) -> Result<Sizes> {
    let mut sizes = Sizes::default();
    let collections = storage.catalog().collections(database);
    let locals = storage.local_capped_of(database);
    let namespaces = collections.iter().map(|collection| collection.namespace());
    for namespace in namespaces.chain(locals.iter().map(|local| local.namespace())) {
        let stats: CollectionStats = match storage.collection_stats(namespace) {
            Ok(stats) => stats,
            Err(storage::StorageError::NamespaceNotFound(_)) => continue,
            Err(error) => return Err(error.into()),
        };
        sizes.collections += 1;
        sizes.objects += stats.count as i64;
        sizes.data_bytes += stats.data_bytes as i64;
        sizes.storage_bytes += stats.storage_bytes as i64;
        sizes.free_bytes += stats.free_bytes as i64;
        sizes.indexes += stats.indexes.len() as i64;
        sizes.disk_bytes += match stats.storage_bytes {
            0 => stats.data_bytes as i64,
            written => written as i64,
        };
        for index in &stats.indexes {
            sizes.disk_bytes += index.storage_bytes as i64;
            sizes.index_bytes += index.storage_bytes as i64;
            sizes.index_free_bytes += index.free_bytes as i64;
        }
    }
    Ok(sizes)
}

fn stats(call: &mut Invocation<'_>, reply: &mut Reply<'_>) -> Result<()> {
    let arguments = call.arguments();
    let mut scale = 1.0;
    let mut free_storage = false;
    call.for_each_field(|name, value| {
        match name {
            "scale" => scale = arguments.integer(name, value)? as f64,
            "freeStorage" => free_storage = arguments.boolean(name, value)?,
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    if scale < 1.0 {
        return Err(CommandError::bad_value("scale has to be >= 1"));
    }
    let server = call.server;
    let sizes = sum(&server.storage, call.database)?;
    let views = server.storage.catalog().views(call.database).len() as i64;
    // MongoDB counts the collection that it keeps the definitions of views in.
    let collections = sizes.collections + i64::from(views > 0);
    let average = if sizes.objects == 0 {
        0.0
    } else {
        sizes.data_bytes as f64 / sizes.objects as f64
    };
    let scaled = |bytes: i64| bytes as f64 / scale;
    let mut document: Document = doc! {
        "db": call.database,
        "collections": collections,
        "views": views,
        "objects": sizes.objects,
        "avgObjSize": average,
        "dataSize": scaled(sizes.data_bytes),
        "storageSize": scaled(sizes.storage_bytes),
        "indexes": sizes.indexes,
        "indexSize": scaled(sizes.index_bytes),
        "totalSize": scaled(sizes.storage_bytes + sizes.index_bytes),
    };
    if free_storage {
        document.insert("freeStorageSize", scaled(sizes.free_bytes));
        document.insert("indexFreeStorageSize", scaled(sizes.index_free_bytes));
        document.insert(
            "totalFreeStorageSize",
            scaled(sizes.free_bytes + sizes.index_free_bytes),
        );
    }
    server
        .storage
        .engine()
        .database_details(call.database, &mut |name, value| {
            insert_detail(&mut document, name, value, scale as i64);
        });
    document.insert("scaleFactor", scale as i64);
    if let Ok(space) = server.env.fs.space(std::path::Path::new(&server.settings.db_path)) {
        document.insert("fsUsedSize", scaled((space.total_bytes - space.available_bytes) as i64));
        document.insert("fsTotalSize", scaled(space.total_bytes as i64));
    }
    reply.append_all(&document);
    Ok(())
}
