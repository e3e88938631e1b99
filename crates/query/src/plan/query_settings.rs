//! Query settings: what the operator has said of all queries of one shape (see [`super::query_shape`]).
//!
//! Immutable. They name collections and indexes that need not exist: what is not there is not considered.

use super::allowed_indexes::{AllowedIndexes, FilterIndex, Otherwise};
use crate::QueryError;
use bson::raw::{RawArray, RawBsonRef, RawDocument};
use bson::{Bson, Document, doc};
use engine::Direction;
use std::hash::{DefaultHasher, Hash, Hasher};
use storage::Namespace;
use wire::ErrorCode;

/// Which of MongoDB's two engines a query is to run in. Here there is one: it is kept and shown, and changes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueryFramework {
    /// `classic`
    Classic,
    /// `sbe`
    Sbe,
}

impl QueryFramework {
    /// By its name.
    pub fn parse(name: &str) -> Option<Self> {
        [Self::Classic, Self::Sbe]
            .into_iter()
            .find(|framework| framework.name() == name)
    }

    /// As clients write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Classic => "classic",
            Self::Sbe => "sbe",
        }
    }
}

/// The indexes that queries may use in one collection.
#[derive(Clone, Debug)]
pub struct IndexHints {
    ns: Namespace,
    /// As the client wrote it.
    shown: Document,
    /// `None` where none is named: nothing is said then.
    allowed: Option<AllowedIndexes>,
}

impl IndexHints {
    /// The hints for a collection: names, key patterns and `{$natural: 1 | -1}`.
    ///
    /// # Errors
    /// `FailedToParse` for an element that is neither, `BadValue` for another `$natural`.
    pub fn parse(ns: Namespace, allowed: &RawArray) -> Result<Self, QueryError> {
        let (mut indexes, mut scan, mut shown) = (Vec::new(), None, Vec::new());
        for element in allowed {
            let element = element.map_err(|_| crate::value::scan::Malformed)?;
            match element {
                RawBsonRef::String(name) => indexes.push(FilterIndex::Name(name.to_owned())),
                RawBsonRef::Document(key) => match natural(key)? {
                    // Both are allowed when both are there; the first is taken.
                    Some(direction) => scan = scan.or(Some(direction)),
                    None => indexes.push(FilterIndex::Key(key.to_owned())),
                },
                other => {
                    return Err(QueryError::failed_to_parse(format!(
                        "Hint must be a string or an object, not {}",
                        crate::raw::type_name(other.element_type())
                    )));
                }
            }
            shown.push(Bson::try_from(element).map_err(|_| crate::value::scan::Malformed)?);
        }
        let otherwise = scan.map_or(Otherwise::AllIndexes, Otherwise::Scan);
        let mut hasher = DefaultHasher::new();
        (ns.as_str(), allowed.as_bytes()).hash(&mut hasher);
        let is_said = !shown.is_empty();
        Ok(Self {
            shown: doc! { "ns": { "db": ns.db(), "coll": ns.collection() }, "allowedIndexes": shown },
            ns,
            // The bit that numbers of index filters never reach.
            allowed: is_said.then(|| AllowedIndexes::new(hasher.finish() | 1 << 63, indexes, otherwise)),
        })
    }

    /// The collection.
    pub fn namespace(&self) -> &Namespace {
        &self.ns
    }

    /// `{ns, allowedIndexes}`
    pub fn to_document(&self) -> Document {
        self.shown.clone()
    }
}

fn natural(key: &RawDocument) -> Result<Option<Direction>, QueryError> {
    let Ok(Some(direction)) = key.get("$natural") else {
        return match key.is_empty() {
            true => Err(QueryError::failed_to_parse("a hint's key pattern must not be empty")),
            false => Ok(None),
        };
    };
    let wrong = || QueryError::new(ErrorCode::BadValue, "$natural hint must be 1 or -1");
    match direction {
        _ if key.iter().count() != 1 => Err(wrong()),
        RawBsonRef::Int32(1) | RawBsonRef::Int64(1) => Ok(Some(Direction::Forward)),
        RawBsonRef::Int32(-1) | RawBsonRef::Int64(-1) => Ok(Some(Direction::Reverse)),
        RawBsonRef::Double(1.0) => Ok(Some(Direction::Forward)),
        RawBsonRef::Double(-1.0) => Ok(Some(Direction::Reverse)),
        _ => Err(wrong()),
    }
}

/// See the module.
#[derive(Debug, Default)]
pub struct QuerySettings {
    /// At most one for each collection.
    pub hints: Vec<IndexHints>,
    /// Kept and shown.
    pub framework: Option<QueryFramework>,
    /// Queries of the shape fail.
    pub reject: bool,
    /// Anything.
    pub comment: Option<Bson>,
}

impl QuerySettings {
    /// What may be used in a collection; `None` where nothing is said of it. What is said of a time-series collection
    /// is meant for its buckets.
    pub(crate) fn allowed(&self, ns: &Namespace) -> Option<&AllowedIndexes> {
        let collection = ns.collection();
        let collection = collection.strip_prefix("system.buckets.").unwrap_or(collection);
        let mut hints = self.hints.iter();
        let hints = hints.find(|hints| hints.ns.db() == ns.db() && hints.ns.collection() == collection);
        hints?.allowed.as_ref()
    }

    /// Whether they change nothing, and say nothing but a comment.
    pub fn is_empty(&self) -> bool {
        !self.reject && self.framework.is_none() && self.hints.iter().all(|hints| hints.allowed.is_none())
    }

    /// As clients are shown it: `indexHints`, `queryFramework`, `reject`, `comment`, what is not there left out.
    pub fn to_document(&self) -> Document {
        let mut document = Document::new();
        if !self.hints.is_empty() {
            let hints = self.hints.iter().map(IndexHints::to_document);
            document.insert("indexHints", hints.collect::<Vec<_>>());
        }
        if let Some(framework) = self.framework {
            document.insert("queryFramework", framework.name());
        }
        if self.reject {
            document.insert("reject", true);
        }
        if let Some(comment) = &self.comment {
            document.insert("comment", comment.clone());
        }
        document
    }
}
