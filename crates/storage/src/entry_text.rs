//! Log entries for people: what an entry does, as a document. For tools that show a log; nothing is applied.

use crate::entry::{EntryOp, EntryReader, NewVersion};
use crate::{Storage, StorageError};
use bson::{Bson, DateTime, Document, doc};
use engine::{Seq, TableId};
use std::collections::HashMap;
use std::sync::Arc;

/// Names of collections' tables: those that an open storage knows, and those that the entries read so far define.
#[derive(Default)]
pub struct TableNames {
    storage: Option<Arc<Storage>>,
    defined: HashMap<TableId, String>,
    /// The names by the collections' UUIDs.
    by_uuid: HashMap<[u8; 16], String>,
}

impl TableNames {
    /// With the names of a storage, which has the log's entries or those before them.
    pub fn of(storage: Arc<Storage>) -> Self {
        Self {
            storage: Some(storage),
            ..Self::default()
        }
    }

    fn name(&self, table: TableId, at: Seq) -> Bson {
        let defined = || self.defined.get(&table).cloned();
        let known = || Some(self.storage.as_ref()?.name_of_table(table, at)?.0.to_string());
        // The entries before this one tell what it was called then.
        Bson::String(defined().or_else(known).unwrap_or_else(|| format!("table {}", table.0)))
    }
}

/// What an entry does: `time`, `clusterTime`, where it is part of a chain `chainFirst` and `partial`, and `operations`,
/// each with `op`, `ns` where it has one, and its fields. Bytes that are no entry are an error with their place.
pub fn describe_entry(seq: Seq, bytes: &[u8], names: &mut TableNames) -> Result<Document, StorageError> {
    let mut reader = EntryReader::new(seq, bytes)?;
    let header = *reader.header();
    let mut document = Document::new();
    if header.version > 1 {
        document.insert("time", DateTime::from_millis(header.time.wall_ms));
        document.insert("clusterTime", header.time.cluster.to_timestamp());
    }
    if let Some(first) = header.chain_first {
        document.insert("chainFirst", first.0 as i64);
    }
    if header.partial {
        document.insert("partial", true);
    }
    if let Some(session) = header.session {
        document.insert("session", bson::Uuid::from_bytes(session.key.id));
        document.insert("txnNumber", session.txn_number);
    }
    let mut operations = Vec::new();
    loop {
        let at = reader.offset();
        let Some(op) = reader.next_op()? else { break };
        let described = describe(seq, &op, names).map_err(|error| reader.damaged_at(at, error.to_string()))?;
        operations.push(Bson::Document(described));
    }
    document.insert("operations", operations);
    Ok(document)
}

fn describe(seq: Seq, op: &EntryOp<'_>, names: &mut TableNames) -> Result<Document, bson::error::Error> {
    Ok(match op {
        EntryOp::Insert { table, id, document } => doc! {
            "op": "insert", "ns": names.name(*table, seq), "record": id.to_bson(), "document": Document::try_from(*document)?,
        },
        EntryOp::Update {
            table, id, grown, new, ..
        } => {
            let mut described = doc! { "op": "update", "ns": names.name(*table, seq), "record": id.to_bson() };
            if let Some(grown) = grown {
                described.insert("growth", *grown);
            }
            match new {
                NewVersion::Whole(document) => described.insert("document", Document::try_from(*document)?),
                NewVersion::Difference { key, diff } => {
                    described.insert("key", Document::try_from(*key)?);
                    described.insert("difference", Document::try_from(*diff)?)
                }
            };
            described
        }
        EntryOp::Delete { table, id, old, .. } => {
            let mut described = doc! { "op": "delete", "ns": names.name(*table, seq), "record": id.to_bson() };
            if let Some((size, key)) = old {
                described.insert("key", Document::try_from(*key)?);
                described.insert("size", i64::from(*size));
            }
            described
        }
        EntryOp::SetMultikey {
            index_table,
            field,
            part,
        } => doc! {
            "op": "set multikey", "indexTable": i64::from(index_table.0), "field": i32::from(*field), "part": i32::from(*part),
        },
        EntryOp::BuildChunk {
            table,
            first,
            last,
            indexes,
        } => {
            let indexes: Vec<Bson> = indexes.iter().map(|index| Bson::Int64(i64::from(index.0))).collect();
            doc! {
                "op": "build chunk", "ns": names.name(*table, seq), "first": first.to_bson(), "last": last.to_bson(), "indexTables": indexes,
            }
        }
        EntryOp::PutCollection { row } => {
            let row = Document::try_from(*row)?;
            if let (Ok(namespace), Some(table)) = (
                row.get_str("ns"),
                row.get_i64("table").ok().and_then(|table| u32::try_from(table).ok()),
            ) {
                names.defined.insert(TableId(table), namespace.to_owned());
                let uuid = match row.get("uuid") {
                    Some(Bson::Binary(uuid)) => uuid.bytes.as_slice().try_into().ok(),
                    _ => None,
                };
                names
                    .by_uuid
                    .extend(uuid.map(|uuid: [u8; 16]| (uuid, namespace.to_owned())));
            }
            doc! { "op": "put collection", "ns": row.get_str("ns").unwrap_or_default(), "row": row.clone() }
        }
        EntryOp::DropCollection { uuid } => {
            let mut described = doc! { "op": "drop collection", "uuid": bson::Uuid::from_bytes(*uuid) };
            if let Some(namespace) = names.by_uuid.get(uuid) {
                described.insert("ns", namespace);
            }
            described
        }
        EntryOp::PutView { row } => {
            let row = Document::try_from(*row)?;
            doc! { "op": "put view", "ns": row.get_str("ns").unwrap_or_default(), "row": row.clone() }
        }
        EntryOp::DropView { namespace } => doc! { "op": "drop view", "ns": *namespace },
        EntryOp::Initialise => doc! { "op": "initialise" },
        EntryOp::Statement { id, .. } => doc! { "op": "statement", "statement": *id },
        EntryOp::Note { document } => doc! { "op": "note", "note": Document::try_from(*document)? },
        EntryOp::Command { document } => {
            let command = Document::try_from(*document)?;
            let mut described = doc! { "op": "command" };
            // The database, and `$cmd`: what a dropped collection was called may stand in entries that are gone.
            if let Ok(namespace) = command.get_str("ns") {
                described.insert("ns", namespace);
            }
            described.insert("command", command);
            described
        }
        EntryOp::KeepSessions => doc! { "op": "keep sessions" },
        EntryOp::ForgetSessions { before_ms } => {
            doc! { "op": "forget sessions", "before": DateTime::from_millis(*before_ms) }
        }
        EntryOp::Statistics { as_of, counts, .. } => {
            let counts: Vec<Bson> = counts
                .iter()
                .map(|(table, documents, bytes)| {
                    doc! { "ns": names.name(table, seq), "documents": documents, "bytes": bytes }.into()
                })
                .collect();
            let as_of = as_of.map_or(Bson::Null, |seq| Bson::Int64(seq.0 as i64));
            doc! { "op": "statistics", "asOf": as_of, "counts": counts }
        }
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::{TableNames, describe, describe_entry};
    use crate::entry::EntryOp;
    use crate::entry::tests::sample;
    use bson::rawdoc;
    use engine::Seq;

    /// The entry that made the collection may be gone: two databases with `orders` could not be told apart.
    #[test]
    fn a_command_is_told_with_its_database() {
        let document = rawdoc! { "ns": "shop.$cmd", "o": { "drop": "orders" } };
        let op = EntryOp::Command { document: &document };
        let told = describe(Seq(7), &op, &mut TableNames::default()).unwrap();
        assert_eq!(told.get_str("ns").ok(), Some("shop.$cmd"));
        assert!(told.get_document("command").unwrap().contains_key("o"));
    }

    #[test]
    fn every_operation_is_told_and_every_cut_is_an_error() {
        let bytes = sample();
        let told = describe_entry(Seq(7), &bytes, &mut TableNames::default()).unwrap();
        let operations = told.get_array("operations").unwrap();
        let names: Vec<&str> = operations
            .iter()
            .map(|operation| operation.as_document().unwrap().get_str("op").unwrap())
            .collect();
        for name in [
            "insert",
            "update",
            "delete",
            "set multikey",
            "build chunk",
            "put collection",
            "drop collection",
            "note",
            "command",
            "keep sessions",
            "forget sessions",
            "put view",
            "drop view",
            "initialise",
            "statement",
            "statistics",
        ] {
            assert!(names.contains(&name), "{name}: {names:?}");
        }
        for length in 0..bytes.len() {
            assert!(
                describe_entry(Seq(7), &bytes[..length], &mut TableNames::default()).is_err(),
                "{length}"
            );
        }
    }
}
