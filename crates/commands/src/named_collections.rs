//! The collections that calls name, by name or by UUID.

use crate::authorization::refused;
use crate::error::{CommandError, Result};
use crate::invocation::Invocation;
use auth::{Action, Target};
use bson::raw::RawBsonRef;
use bson::spec::BinarySubtype;
use bson::{Binary, Bson, doc};
use storage::Namespace;
use wire::ErrorCode;

impl Invocation<'_> {
    /// The collection named by the first field.
    pub fn namespace(&mut self) -> Result<Namespace> {
        let name = match self.target()? {
            RawBsonRef::String(name) => name,
            other => {
                return Err(CommandError::new(
                    ErrorCode::InvalidNamespace,
                    format!(
                        "collection name has invalid type {}",
                        crate::arguments::type_name(other)
                    ),
                ));
            }
        };
        self.namespace_of(name)
    }

    /// The collection that the first field names for a read, by its UUID too. Of a name that no collection can have
    /// nothing is read.
    ///
    /// # Errors
    /// `InvalidNamespace`, `InvalidUUID` (207), `NamespaceNotFound` of an UUID, `Unauthorized`;
    /// `OperationNotSupportedInTransaction` where no transaction reads.
    pub fn readable_namespace(&mut self) -> Result<Namespace> {
        let namespace = match self.target()? {
            RawBsonRef::String(name) => Namespace::for_reading(self.database, name)?,
            value @ RawBsonRef::Binary(uuid) if uuid.subtype == BinarySubtype::Uuid => {
                let uuid = self.arguments().uuid(self.command.name, value)?;
                let collection = self.server.storage.catalog().collection_by_uuid(&uuid);
                let collection = collection.filter(|collection| collection.namespace().db() == self.database);
                let Some(collection) = collection else {
                    return Err(CommandError::new(
                        ErrorCode::NamespaceNotFound,
                        format!("no collection of database {} has this UUID", self.database),
                    ));
                };
                // The name was not there for the check of the command itself.
                let target = Target::Collection(self.database, collection.namespace().collection());
                if !self.may(target, Action::Find) {
                    return Err(refused(self));
                }
                collection.namespace().clone()
            }
            _ => return self.namespace(),
        };
        if self.transaction.is_some() && matches!(namespace.collection(), "system.views" | "system.profile") {
            return Err(CommandError::new(
                ErrorCode::OperationNotSupportedInTransaction,
                format!("Cannot read from {namespace} in a transaction"),
            ));
        }
        self.report.namespace = Some(namespace.clone());
        Ok(namespace)
    }

    /// A collection of this command's database; remembered for the report.
    pub fn namespace_of(&mut self, collection: &str) -> Result<Namespace> {
        let namespace = Namespace::new(self.database, collection)?;
        self.report.namespace = Some(namespace.clone());
        Ok(namespace)
    }

    /// `collectionUUID`: the collection of that name has to be the one with this UUID.
    ///
    /// # Errors
    /// `CollectionUUIDMismatch` (361), `TypeMismatch`, `InvalidUUID` (207).
    pub fn check_collection_uuid(&self, namespace: &Namespace, value: RawBsonRef<'_>) -> Result<()> {
        let uuid = self.arguments().uuid("collectionUUID", value)?;
        self.check_collection_has(namespace, &uuid)
    }

    /// The collection of that name has to be the one with this UUID.
    ///
    /// # Errors
    /// `CollectionUUIDMismatch` (361).
    pub fn check_collection_has(&self, namespace: &Namespace, uuid: &[u8; 16]) -> Result<()> {
        let catalog = self.server.storage.catalog();
        let named = catalog.collection(namespace);
        if named.is_some_and(|collection| collection.uuid() == *uuid) {
            return Ok(());
        }
        let actual = catalog.collection_by_uuid(uuid);
        let actual = actual.filter(|collection| collection.namespace().db() == namespace.db());
        let actual = actual.map_or(Bson::Null, |collection| collection.namespace().collection().into());
        Err(CommandError {
            extra: Some(Box::new(doc! {
                "db": namespace.db(),
                "collectionUUID": Binary { subtype: BinarySubtype::Uuid, bytes: uuid.to_vec() },
                "expectedCollection": namespace.collection(),
                "actualCollection": actual,
            })),
            ..CommandError::new(
                ErrorCode::CollectionUUIDMismatch,
                "Collection UUID does not match that specified",
            )
        })
    }
}
