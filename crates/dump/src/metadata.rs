//! What a dump tells of a collection besides its documents: options, indexes, kind, identity.

use crate::error::{DumpError, Result};
use bson::spec::BinarySubtype;
use bson::{Bson, Document, RawDocumentBuf, doc};
use extjson::{JsonForm, parse, write};
use std::sync::Arc;
use storage::TimeseriesOptions;

/// What a namespace is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CollectionKind {
    /// Documents.
    Collection,
    /// A pipeline over another one.
    View,
    /// Measurements, whose documents are the buckets of another collection.
    TimeSeries,
}

impl CollectionKind {
    pub(crate) fn parse(text: &str) -> Self {
        match text {
            "view" => Self::View,
            "timeseries" => Self::TimeSeries,
            _ => Self::Collection,
        }
    }

    /// As `listCollections` and the formats call it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Collection => "collection",
            Self::View => "view",
            Self::TimeSeries => "timeseries",
        }
    }
}

/// Options of collections that only old servers knew, or by which their dumps repeat the command.
const OLD_OPTIONS: [&str; 5] = ["create", "autoIndexId", "temp", "usePowerOf2Sizes", "$nExtents"];
/// Indexes of versions below this have no server any more; they are built anew anyway.
const INDEX_VERSION_MIN: f64 = 1.0;
/// Options without which a collection holds and answers the same: what an engine does for it, and what newer servers
/// keep for themselves.
const DISPENSABLE_OPTIONS: [&str; 4] = [
    "storageEngine",
    "indexOptionDefaults",
    "encryptedFields",
    "recordIdsReplicated",
];

/// One `metadata.json`.
#[derive(Clone, Debug, PartialEq)]
pub struct Metadata {
    /// Options of `create`.
    pub options: Document,
    /// As `listIndexes` gives them, the one on `_id` included.
    pub indexes: Vec<Document>,
    /// The collection's identity, 32 hexadecimal digits.
    pub uuid: Option<String>,
    /// The whole name, which a file's name may have shortened.
    pub collection: Option<String>,
    /// What it is.
    pub kind: CollectionKind,
}

impl Metadata {
    /// From an entry of `listCollections`, without indexes.
    pub(crate) fn of_listed(entry: &Document) -> Self {
        let uuid = entry.get_document("info").ok().and_then(|info| info.get("uuid"));
        Self {
            options: entry.get_document("options").cloned().unwrap_or_default(),
            indexes: Vec::new(),
            uuid: match uuid {
                Some(Bson::Binary(binary)) if binary.subtype == BinarySubtype::Uuid => {
                    Some(binary.bytes.iter().map(|byte| format!("{byte:02x}")).collect())
                }
                _ => None,
            },
            collection: entry.get_str("name").ok().map(str::to_owned),
            kind: CollectionKind::parse(entry.get_str("type").unwrap_or_default()),
        }
    }

    /// How the buckets of a time series are made; `None` where it is none.
    pub(crate) fn timeseries(&self) -> Option<Arc<TimeseriesOptions>> {
        if self.kind != CollectionKind::TimeSeries {
            return None;
        }
        let options = RawDocumentBuf::try_from(&self.options).ok()?;
        TimeseriesOptions::of(&options)
    }

    /// Without what only old servers know.
    pub(crate) fn without_old_options(mut self) -> Self {
        for name in OLD_OPTIONS {
            self.options.remove(name);
        }
        // Old servers kept sizes of collections that are not capped, and what their clients had said it by.
        let is_capped = match self.options.get("capped") {
            Some(Bson::Boolean(is_capped)) => *is_capped,
            Some(Bson::Int32(number)) => *number != 0,
            Some(Bson::Int64(number)) => *number != 0,
            Some(Bson::Double(number)) => *number != 0.0,
            _ => false,
        };
        if is_capped {
            self.options.insert("capped", true);
        } else {
            for name in ["capped", "size", "max"] {
                self.options.remove(name);
            }
        }
        for index in &mut self.indexes {
            index.remove("dropDups");
            let version = match index.get("v") {
                Some(Bson::Int32(version)) => f64::from(*version),
                Some(Bson::Int64(version)) => *version as f64,
                Some(Bson::Double(version)) => *version,
                _ => 0.0,
            };
            if version < INDEX_VERSION_MIN {
                index.remove("v");
            }
        }
        self
    }

    /// Takes options away with which a server has refused the collection: first those that it can do without, then all,
    /// since its documents matter more. Answers their names, and none where it would be another kind of collection
    /// without them.
    pub(crate) fn drop_options(&mut self) -> Vec<String> {
        let mut dropped: Vec<String> = self.options.keys().cloned().collect();
        let is_dispensable = |name: &String| DISPENSABLE_OPTIONS.contains(&name.as_str());
        if dropped.iter().any(is_dispensable) {
            dropped.retain(is_dispensable);
        } else if self.kind != CollectionKind::Collection {
            dropped.clear();
        }
        for name in &dropped {
            self.options.remove(name);
        }
        dropped
    }

    /// Canonical Extended JSON, in one line.
    pub fn to_json(&self, subject: &str) -> Result<String> {
        let failed = |source| DumpError::Metadata {
            subject: subject.to_owned(),
            source,
        };
        let indexes: Vec<Bson> = self.indexes.iter().cloned().map(Bson::Document).collect();
        let mut document = doc! { "options": self.options.clone(), "indexes": indexes };
        if let Some(uuid) = &self.uuid {
            document.insert("uuid", uuid);
        }
        if let Some(collection) = &self.collection {
            document.insert("collectionName", collection);
        }
        document.insert("type", self.kind.name());
        let bytes = document.to_vec().map_err(|error| DumpError::Format {
            subject: subject.to_owned(),
            fault: error.to_string(),
        })?;
        let mut out = String::new();
        write(&bytes, JsonForm::Canonical, &mut out).map_err(failed)?;
        Ok(out)
    }

    /// Reads what [`Metadata::to_json`] writes. Fields that are missing are empty; unknown ones are left out.
    pub fn from_json(text: &str, subject: &str) -> Result<Self> {
        let malformed = |fault: String| DumpError::Format {
            subject: subject.to_owned(),
            fault,
        };
        let raw = parse(text).map_err(|source| DumpError::Metadata {
            subject: subject.to_owned(),
            source,
        })?;
        let document = Document::try_from(raw).map_err(|error| malformed(error.to_string()))?;
        let options = match document.get("options") {
            Some(Bson::Document(options)) => options.clone(),
            None | Some(Bson::Null) => Document::new(),
            Some(_) => return Err(malformed("options is no document".to_owned())),
        };
        let listed = match document.get("indexes") {
            Some(Bson::Array(indexes)) => indexes.as_slice(),
            None | Some(Bson::Null) => &[],
            Some(_) => return Err(malformed("indexes is no array".to_owned())),
        };
        let indexes = listed
            .iter()
            .map(|index| match index {
                Bson::Document(index) => Ok(index.clone()),
                _ => Err(malformed("an index is no document".to_owned())),
            })
            .collect::<Result<_>>()?;
        let text = |name: &str| {
            let text = document.get_str(name).ok().filter(|text| !text.is_empty());
            text.map(str::to_owned)
        };
        // Dumps of old versions have no type; their views have the option alone.
        let kind = match text("type") {
            Some(kind) => CollectionKind::parse(&kind),
            None if options.contains_key("viewOn") => CollectionKind::View,
            None => CollectionKind::Collection,
        };
        Ok(Self {
            options,
            indexes,
            uuid: text("uuid"),
            collection: text("collectionName"),
            kind,
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn metadata_comes_back_with_every_type_and_the_order_of_keys() {
        let metadata = Metadata {
            options: doc! { "capped": true, "size": 4096i64, "z": 1, "a": 2.0 },
            indexes: vec![
                doc! { "v": 2, "key": { "_id": 1 }, "name": "_id_" },
                doc! { "v": 2, "key": { "z": -1.0, "a": 1i64 }, "name": "x", "partialFilterExpression": { "b": { "$gt": 5 } } },
            ],
            uuid: Some("00112233445566778899aabbccddeeff".to_owned()),
            collection: Some("c".to_owned()),
            kind: CollectionKind::Collection,
        };
        let text = metadata.to_json("d.c").unwrap();
        assert!(
            text.starts_with(r#"{"options":{"capped":true,"size":{"$numberLong":"4096"},"#),
            "{text}"
        );
        assert_eq!(Metadata::from_json(&text, "d.c").unwrap(), metadata);
    }

    #[test]
    fn what_only_old_servers_know_is_left_out() {
        let index = |more: Document| {
            let mut index = doc! { "key": { "a": 1 }, "name": "a_1" };
            index.extend(more);
            index
        };
        let metadata = |options: Document, more: Document| Metadata {
            options,
            indexes: vec![index(more)],
            uuid: None,
            collection: None,
            kind: CollectionKind::Collection,
        };
        let old = doc! { "create": "other", "autoIndexId": false, "size": 1000, "capped": false, "validator": {} };
        let left = metadata(old, doc! { "v": 0, "dropDups": true }).without_old_options();
        assert_eq!(left, metadata(doc! { "validator": {} }, doc! {}));
        let new = metadata(doc! { "capped": true, "size": 1000 }, doc! { "v": 2, "unique": true });
        assert_eq!(new.clone().without_old_options(), new);
        let number = metadata(doc! { "capped": 1.0, "size": 1000 }, doc! { "v": 2, "unique": true });
        assert_eq!(number.without_old_options(), new);
    }

    #[test]
    fn options_go_in_turns() {
        let mut metadata = Metadata {
            options: doc! { "storageEngine": {}, "validator": {} },
            indexes: Vec::new(),
            uuid: None,
            collection: None,
            kind: CollectionKind::Collection,
        };
        assert_eq!(metadata.drop_options(), ["storageEngine"]);
        assert_eq!(metadata.drop_options(), ["validator"]);
        assert!(metadata.drop_options().is_empty());
        metadata.options.insert("viewOn", "a");
        metadata.kind = CollectionKind::View;
        assert!(metadata.drop_options().is_empty());
        assert_eq!(metadata.options, doc! { "viewOn": "a" });
    }

    #[test]
    fn bad_metadata_is_an_error() {
        for text in ["", "[]", r#"{"indexes":1}"#, r#"{"indexes":[1]}"#, r#"{"options":"x"}"#] {
            assert!(Metadata::from_json(text, "f").is_err(), "{text}");
        }
        assert_eq!(
            Metadata::from_json(r#"{"options":{"viewOn":"a"}}"#, "f").unwrap().kind,
            CollectionKind::View
        );
    }
}
