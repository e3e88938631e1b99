//! Collections that are filled before they take another one's place: those of `$out` and of `convertToCapped`.
//!
//! Who makes one holds its [`TemporaryName`] until it is renamed or dropped. What a crash or the end of a primary has
//! left is nobody's: whoever may write next drops it.

use crate::{Namespace, Operation, Storage, StorageError};
use parking_lot::Mutex;
use std::collections::HashSet;

/// What a temporary collection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Temporary {
    /// The results of a pipeline.
    Out,
    /// A copy that is capped.
    ConvertToCapped,
}

impl Temporary {
    fn prefix(self) -> &'static str {
        match self {
            Self::Out => "tmp.agg_out.",
            Self::ConvertToCapped => "tmp.convertToCapped.",
        }
    }
}

/// Hexadecimal digits behind the prefix: no user chooses such a name by accident.
const DIGITS: usize = 32;

fn is_temporary(collection: &str) -> bool {
    let digits = [Temporary::Out, Temporary::ConvertToCapped]
        .into_iter()
        .find_map(|kind| collection.strip_prefix(kind.prefix()));
    digits.is_some_and(|digits| digits.len() == DIGITS && digits.bytes().all(|digit| digit.is_ascii_hexdigit()))
}

/// Names that are in use.
#[derive(Default)]
pub(crate) struct TemporaryNames(Mutex<HashSet<Namespace>>);

/// A name that nobody else has, in use until this is dropped.
pub struct TemporaryName<'s> {
    names: &'s TemporaryNames,
    namespace: Namespace,
}

impl TemporaryName<'_> {
    /// The name.
    pub fn namespace(&self) -> &Namespace {
        &self.namespace
    }
}

impl Drop for TemporaryName<'_> {
    fn drop(&mut self) {
        self.names.0.lock().remove(&self.namespace);
    }
}

impl Storage {
    /// A name for a temporary collection of a database.
    ///
    /// # Errors
    /// [`StorageError::InvalidNamespace`]: the database's name leaves no room for it.
    pub fn temporary_name(&self, database: &str, kind: Temporary) -> Result<TemporaryName<'_>, StorageError> {
        let number = u128::from_be_bytes(self.new_uuid());
        let namespace = Namespace::new(database, &format!("{}{number:0DIGITS$x}", kind.prefix()))?;
        self.temporaries.0.lock().insert(namespace.clone());
        Ok(TemporaryName {
            names: &self.temporaries,
            namespace,
        })
    }

    /// Drops the temporary collections that are nobody's, and names them.
    ///
    /// # Errors
    /// What dropping reports. Those that were not reached are there still.
    pub fn drop_abandoned(&self, op: &Operation) -> Result<Vec<Namespace>, StorageError> {
        let mut dropped = Vec::new();
        // In this order: a name is in use before there is a collection of it.
        let found = self.catalog.all_collections();
        for collection in found {
            let namespace = collection.namespace();
            let is_abandoned = is_temporary(namespace.collection()) && !self.temporaries.0.lock().contains(namespace);
            if is_abandoned && self.drop_collection(op, namespace)?.is_some() {
                dropped.push(namespace.clone());
            }
        }
        Ok(dropped)
    }
}
