//! `admin.system.users` and `admin.system.roles`: the documents of users and roles, as MongoDB's tools read them.

use super::insert::{InsertBatch, insert_documents};
use super::update::{Images, Statement};
use super::write_result::WriteErrors;
use super::write_targets::WriteTargets;
use crate::authentication::Identity;
use crate::error::{CommandError, Result};
use crate::internal_user;
use crate::invocation::Invocation;
use auth::{Credentials, Mechanism};
use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf};
use bson::spec::BinarySubtype;
use bson::{Document, doc};
use std::sync::atomic::Ordering;
use storage::Namespace;

/// Which collection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Store {
    /// `admin.system.users`.
    Users,
    /// `admin.system.roles`.
    Roles,
    /// `admin.system.keys`, where the server keeps secrets of its own.
    Keys,
}

impl Store {
    /// Its name.
    pub fn namespace(self) -> Result<Namespace> {
        Ok(Namespace::new(
            "admin",
            match self {
                Self::Users => "system.users",
                Self::Roles => "system.roles",
                Self::Keys => "system.keys",
            },
        )?)
    }
}

/// The documents that match; none when there is no such collection.
pub fn find(call: &mut Invocation<'_>, store: Store, filter: &Document) -> Result<Vec<Document>> {
    let found = find_in(call, &store.namespace()?, filter)?;
    note_users(call, store, !found.is_empty());
    Ok(found)
}

/// Once there was a user, nobody may make the first any more, whatever becomes of that one.
fn note_users(call: &Invocation<'_>, store: Store, are_there: bool) {
    if store == Store::Users && are_there {
        call.server.access.users_seen.store(true, Ordering::SeqCst);
    }
}

/// As [`find`], in any collection.
pub fn find_in(call: &mut Invocation<'_>, namespace: &Namespace, filter: &Document) -> Result<Vec<Document>> {
    let filter = RawDocumentBuf::try_from(filter)?;
    let mut statement = Statement::new(None);
    statement.filter = &filter;
    // All that match are taken.
    statement.multi = true;
    let mut found = Vec::new();
    let Some(mut targets) = WriteTargets::find(call, namespace, &statement)? else {
        return Ok(found);
    };
    while let Some(target) = targets.next(call)? {
        let bytes = call.server.storage.read()?.record(&target.guard, &target.id)?;
        if let Some(bytes) = bytes {
            found.push(Document::try_from(RawDocument::from_bytes(&bytes)?)?);
        }
    }
    Ok(found)
}

/// Changes the document that matches, or makes it.
pub fn upsert_in(call: &mut Invocation<'_>, namespace: &Namespace, filter: &Document, change: &Document) -> Result<()> {
    let filter = RawDocumentBuf::try_from(filter)?;
    let change = RawDocumentBuf::try_from(change)?;
    let mut statement = Statement::new(None);
    statement.filter = &filter;
    statement.change = RawBsonRef::Document(&change);
    statement.upsert = true;
    super::update::run(call, namespace, &statement, Images::None).map(drop)
}

/// One user.
pub fn find_one(call: &mut Invocation<'_>, database: &str, user: &str) -> Result<Option<Document>> {
    Ok(find(call, Store::Users, &key(database, user))?.pop())
}

/// One who can log in: a user, or `__system`, which other members are.
pub fn find_account(call: &mut Invocation<'_>, database: &str, user: &str) -> Result<Option<Document>> {
    match internal_user::is_internal(call.server.settings.cluster_auth.as_ref(), database, user) {
        true => Ok(Some(internal_user::document())),
        false => find_one(call, database, user),
    }
}

/// Adds a user or role, and the version of the documents' layout before the first one.
///
/// # Errors
/// `Location51003` when there is such a user, `Location51002` when there is such a role.
pub fn insert(call: &mut Invocation<'_>, store: Store, document: &Document) -> Result<()> {
    let version = Namespace::new("admin", "system.version")?;
    let schema = doc! { "$setOnInsert": { "currentVersion": 5 } };
    upsert_in(call, &version, &doc! { "_id": "authSchema" }, &schema)?;
    let raw = RawDocumentBuf::try_from(document)?;
    let mut errors = WriteErrors::new();
    let batch = InsertBatch {
        documents: &[&raw],
        invalid: &[],
        ids: &|_| 0,
        ordered: true,
        keep_empty_timestamps: true,
        refused_each: false,
        is_one_of_many: false,
    };
    insert_documents(call, &store.namespace()?, &batch, &mut errors)?;
    match errors.each().next().map(|(_, error)| error) {
        None => {
            note_users(call, store, true);
            Ok(())
        }
        Some(error) if error.code == wire::ErrorCode::DuplicateKey => {
            let name = |field| document.get_str(field).unwrap_or_default();
            let (code, noun, field) = match store {
                Store::Users => (51003, "User", "user"),
                _ => (51002, "Role", "role"),
            };
            Err(CommandError::new(
                wire::ErrorCode(code),
                format!("{noun} \"{}@{}\" already exists", name(field), name("db")),
            ))
        }
        Some(error) => Err(error),
    }
}

/// Puts `document` in the place of the user or role of the same `_id`.
pub fn replace(call: &mut Invocation<'_>, store: Store, document: &Document) -> Result<()> {
    let filter = RawDocumentBuf::try_from(&doc! { "_id": document.get("_id").cloned() })?;
    let change = RawDocumentBuf::try_from(document)?;
    let mut statement = Statement::new(None);
    statement.filter = &filter;
    statement.change = RawBsonRef::Document(&change);
    super::update::run(call, &store.namespace()?, &statement, Images::None).map(drop)
}

/// Removes all that match; answers how many there were.
pub fn remove(call: &mut Invocation<'_>, store: Store, filter: &Document) -> Result<u64> {
    let filter = RawDocumentBuf::try_from(filter)?;
    let mut statement = Statement::new(None);
    statement.filter = &filter;
    statement.multi = true;
    let mut removed = 0;
    super::delete::run(call, &store.namespace()?, &statement, &mut removed)?;
    note_users(call, store, removed > 0);
    Ok(removed)
}

/// The filter for one user. Not by `_id` alone: clients may name a database `a.b`, whose user `c` is not the `b.c` of
/// `a`.
pub fn key(database: &str, user: &str) -> Document {
    doc! { "_id": id(database, user), "user": user, "db": database }
}

/// The `_id` of a user or role. Database names hold no dot, so that no two of them share one.
pub fn id(database: &str, user: &str) -> String {
    format!("{database}.{user}")
}

/// Who a document is about.
pub fn identity(database: &str, user: &str, document: &Document) -> Identity {
    let id = match document.get("userId") {
        Some(bson::Bson::Binary(binary)) if binary.subtype == BinarySubtype::Uuid => {
            binary.bytes.as_slice().try_into().ok()
        }
        _ => None,
    };
    Identity {
        user: user.to_owned(),
        database: database.to_owned(),
        id,
    }
}

/// Does the user prove itself by something that is not kept here, such as a certificate?
pub fn is_external(document: &Document) -> bool {
    let credentials = document.get_document("credentials");
    credentials.is_ok_and(|kept| kept.get_bool("external").unwrap_or(false))
}

/// The mechanisms a user has credentials for.
pub fn mechanisms(document: &Document) -> Vec<Mechanism> {
    let credentials = document.get_document("credentials");
    let has = |mechanism: &Mechanism| {
        credentials
            .as_ref()
            .is_ok_and(|kept| kept.contains_key(mechanism.name()))
    };
    Mechanism::ALL.into_iter().filter(has).collect()
}

/// The credentials for one mechanism; `None` without, or when they cannot be read.
pub fn credentials(document: &Document, mechanism: Mechanism) -> Option<Credentials> {
    let kept = document
        .get_document("credentials")
        .ok()?
        .get_document(mechanism.name())
        .ok()?;
    let iterations = kept
        .get_i32("iterationCount")
        .map(i64::from)
        .or_else(|_| kept.get_i64("iterationCount"))
        .ok()?;
    let text = |field| kept.get_str(field).ok();
    Credentials::from_stored(
        mechanism,
        iterations,
        text("salt")?,
        text("storedKey")?,
        text("serverKey")?,
    )
    .ok()
}
