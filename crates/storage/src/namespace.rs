//! Names of collections: `database.collection`, checked once.
//!
//! Invariant: the part before `split` is a valid database name, the part after the dot a valid collection name.

use crate::StorageError;
use crate::limits::{DATABASE_NAME_BYTES_MAX, NAMESPACE_BYTES_MAX};
use std::borrow::Borrow;
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// A checked `database.collection`. Cheap to clone. Hashes and compares as its full text.
#[derive(Clone)]
pub struct Namespace {
    full: Arc<str>,
    split: u8,
}

impl Namespace {
    /// Puts a namespace together. [`StorageError::InvalidNamespace`] says which rule of MongoDB's is broken.
    pub fn new(db: &str, collection: &str) -> Result<Self, StorageError> {
        check_database_name(db)?;
        check_collection_name(db, collection)?;
        Ok(Self::joined(&[db, ".", collection], db.len()))
    }

    /// One to read from: of names that no collection can have, those that MongoDB takes for names of empty ones.
    pub fn for_reading(db: &str, collection: &str) -> Result<Self, StorageError> {
        check_database_name(db)?;
        match check_collection_name(db, collection) {
            Err(error) if is_malformed(collection) => Err(error),
            _ => Ok(Self::joined(&[db, ".", collection], db.len())),
        }
    }

    /// What commands of a database are logged under: `db.$cmd`.
    pub fn of_database(db: &str) -> Result<Self, StorageError> {
        check_database_name(db)?;
        Ok(Self::joined(&[db, ".$cmd"], db.len()))
    }

    /// What the cursor of a command that reads no collection is listed under: `db.$cmd.name`.
    pub fn of_command(db: &str, command: &str) -> Result<Self, StorageError> {
        check_database_name(db)?;
        Ok(Self::joined(&[db, ".$cmd.", command], db.len()))
    }

    /// `db_bytes` is at most 63: the name has been checked.
    fn joined(parts: &[&str], db_bytes: usize) -> Self {
        Self {
            full: parts.concat().into(),
            split: db_bytes as u8,
        }
    }

    /// Splits `database.collection` at the first dot. Errors as [`Namespace::new`].
    pub fn parse(full: &str) -> Result<Self, StorageError> {
        match full.split_once('.') {
            Some((db, collection)) => Self::new(db, collection),
            None => Err(invalid(full, "a collection name is missing")),
        }
    }

    /// The database's name.
    pub fn db(&self) -> &str {
        &self.full[..usize::from(self.split)]
    }

    /// The collection's name.
    pub fn collection(&self) -> &str {
        &self.full[usize::from(self.split) + 1..]
    }

    /// Whether the server keeps users, roles or other things about access there: one of `admin.system.*`.
    pub fn is_about_access(&self) -> bool {
        self.db() == "admin" && self.collection().starts_with("system.")
    }

    /// The full text.
    pub fn as_str(&self) -> &str {
        &self.full
    }
}

/// Checks a database name by MongoDB's rules, the stricter ones it has on Windows.
pub fn check_database_name(db: &str) -> Result<(), StorageError> {
    if db.is_empty() {
        return Err(invalid(db, "the database name is empty"));
    }
    if db.len() > DATABASE_NAME_BYTES_MAX {
        return Err(invalid(db, "the database name is longer than 63 bytes"));
    }
    // `$external` is the one name with a dollar sign: users that another service authenticates.
    match db.bytes().find(|byte| is_refused_in_database_name(*byte)) {
        Some(bad) if db != "$external" => {
            let bad = char::from(bad);
            Err(invalid(db, &format!("the database name contains {bad:?}")))
        }
        _ => Ok(()),
    }
}

const fn is_refused_in_database_name(byte: u8) -> bool {
    matches!(
        byte,
        b'/' | b'\\' | b'.' | b' ' | b'"' | b'$' | b'*' | b'<' | b'>' | b':' | b'|' | b'?' | 0
    )
}

/// Names that mean something else, or nothing at all.
fn is_malformed(collection: &str) -> bool {
    let is_odd = collection.is_empty() || collection.starts_with('.') || collection.contains('\0');
    is_odd
        || matches!(
            collection,
            "$cmd.aggregate" | "$cmd.listCollections" | "$cmd.listIndexes"
        )
}

fn check_collection_name(db: &str, collection: &str) -> Result<(), StorageError> {
    let contains = |bad: u8| collection.bytes().any(|byte| byte == bad);
    let broken = if collection.is_empty() {
        "the collection name is empty"
    } else if contains(0) {
        "the collection name contains a NUL"
    } else if contains(b'$') {
        "the collection name contains '$'"
    } else if collection.starts_with('.') {
        "the collection name starts with '.'"
    } else if db.len() + 1 + collection.len() > NAMESPACE_BYTES_MAX {
        "the namespace is longer than 255 bytes"
    } else {
        return Ok(());
    };
    Err(invalid(&format!("{db}.{collection}"), broken))
}

fn invalid(name: &str, reason: &str) -> StorageError {
    StorageError::InvalidNamespace {
        name: name.to_owned(),
        reason: reason.to_owned(),
    }
}

impl PartialEq for Namespace {
    fn eq(&self, other: &Self) -> bool {
        self.full == other.full
    }
}

impl Eq for Namespace {}

impl Hash for Namespace {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_str().hash(state);
    }
}

impl Borrow<str> for Namespace {
    fn borrow(&self) -> &str {
        &self.full
    }
}

impl PartialOrd for Namespace {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Namespace {
    fn cmp(&self, other: &Self) -> Ordering {
        self.full.cmp(&other.full)
    }
}

impl fmt::Display for Namespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.full)
    }
}

impl fmt::Debug for Namespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.full)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn splits_at_the_first_dot() {
        let ns = Namespace::parse("db.a.b").unwrap();
        assert_eq!((ns.db(), ns.collection(), ns.as_str()), ("db", "a.b", "db.a.b"));
        assert_eq!(ns, Namespace::new("db", "a.b").unwrap());
    }

    #[test]
    fn names_at_the_limits() {
        assert!(Namespace::new(&"d".repeat(63), "c").is_ok());
        assert!(Namespace::new(&"d".repeat(64), "c").is_err());
        assert!(Namespace::new("d", &"c".repeat(253)).is_ok());
        assert!(Namespace::new("d", &"c".repeat(254)).is_err());
    }

    #[test]
    fn broken_rules_are_refused() {
        for bad in [
            "db", "", ".c", "db.", "d b.c", "d/b.c", "d$b.c", "db..c", "db.a$b", "db.a\0b", "d*.c", "d\"b.c",
        ] {
            assert!(Namespace::parse(bad).is_err(), "{bad:?}");
        }
        assert!(Namespace::new("$external", "c").is_ok());
        assert!(Namespace::parse("db.system.views").is_ok());
    }
}
