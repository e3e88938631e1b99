//! Who takes part in consensus, as the document of `local.system.replset` tells it.
//!
//! The configuration that users see names members by number and host. What consensus needs besides stands in the same
//! document, under `consensus`: for each member the number by which the state machine knows it, and the instance, a
//! data directory, that has the number. A directory that was emptied is another instance and gets another number, so
//! that nobody votes twice (see `docs/replica-set.md`).

use crate::storage::Storage;
use crate::{Collection, Namespace, StorageError};
use bson::{RawBsonRef, RawDocument, RawDocumentBuf};
use engine::{Direction, FillLimits, KeyRange, Rows};
use std::sync::Arc;

/// The collection with the configuration.
pub(crate) const CONFIGURATION: &str = "local.system.replset";

/// The members by the numbers that consensus knows them by.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Membership {
    /// Those that vote.
    pub voters: Vec<u64>,
    /// Those that are sent the log and do not vote.
    pub learners: Vec<u64>,
    /// This server's number; `None` when it is not among them.
    pub own: Option<u64>,
}

impl Membership {
    /// That of a configuration, seen by the instance that this server is. Nothing is said of sets that have had one
    /// member only.
    pub fn of(configuration: &RawDocument, instance: Option<&[u8; 16]>) -> Option<Self> {
        let consensus = configuration.get_document("consensus").ok()?;
        let mut membership = Self::default();
        for member in consensus.get_array("members").ok()?.into_iter().flatten() {
            let RawBsonRef::Document(member) = member else { continue };
            let Ok(Ok(id)) = member.get_i64("id").map(u64::try_from) else {
                continue;
            };
            match member.get_bool("votes") {
                Ok(true) => membership.voters.push(id),
                _ => membership.learners.push(id),
            }
            let of = member.get_binary("instance").map(|binary| binary.bytes);
            if instance.is_some_and(|own| of.is_ok_and(|of| of == own)) {
                membership.own = Some(id);
            }
        }
        Some(membership)
    }

    /// Whether all that this server has on disk stays.
    pub fn decides_alone(&self) -> bool {
        self.own.is_some_and(|own| self.voters == [own])
    }
}

impl Storage {
    /// The configuration of the replica set as it is applied.
    ///
    /// # Errors
    /// Those of reading.
    pub fn set_configuration(&self) -> Result<Option<RawDocumentBuf>, StorageError> {
        let Ok(namespace) = Namespace::parse(CONFIGURATION) else {
            return Ok(None);
        };
        let Some(collection) = self.catalog.collection(&namespace) else {
            return Ok(None);
        };
        let snapshot = self.engine.snapshot()?;
        let mut cursor = snapshot.cursor(collection.table(), KeyRange::all(), Direction::Forward)?;
        let mut rows = Rows::new();
        let limits = FillLimits {
            rows_max: 1,
            bytes_max: 1,
        };
        if !cursor.fill(&mut rows, limits)? {
            return Ok(None);
        }
        let document = RawDocumentBuf::from_bytes(rows.value(0).to_vec());
        Ok(document.ok())
    }

    /// The members as they are applied; `None` when there never was another one.
    pub(crate) fn membership(&self) -> Result<Option<Membership>, StorageError> {
        let configuration = self.set_configuration()?;
        Ok(configuration.and_then(|document| Membership::of(&document, self.options.instance.as_ref())))
    }
}

/// Whether a collection is the one with the configuration.
pub(crate) fn is_configuration(collection: &Arc<Collection>) -> bool {
    collection.namespace().as_str() == CONFIGURATION
}

#[cfg(test)]
mod tests {
    use super::*;
    use bson::rawdoc;

    #[test]
    fn members_are_read_with_this_servers_number() {
        let instance = |byte: u8| bson::Binary {
            subtype: bson::spec::BinarySubtype::Generic,
            bytes: vec![byte; 16],
        };
        let document = rawdoc! { "_id": "rs", "consensus": { "members": [
            { "_id": 0, "id": 1_i64, "votes": true, "instance": instance(7) },
            { "_id": 1, "id": 300_i64, "votes": false, "instance": instance(8) },
        ] } };
        let seen = Membership::of(&document, Some(&[8; 16])).expect("it tells");
        assert_eq!((seen.voters, seen.learners, seen.own), (vec![1], vec![300], Some(300)));
        assert!(
            Membership::of(&document, Some(&[7; 16]))
                .expect("it tells")
                .decides_alone()
        );
        assert!(
            !Membership::of(&document, Some(&[9; 16]))
                .expect("it tells")
                .decides_alone()
        );
        assert_eq!(Membership::of(&rawdoc! { "_id": "rs" }, None), None);
    }
}
