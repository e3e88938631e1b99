//! Which indexes the planner may consider for queries of one shape: by an index filter, or by query settings.

use bson::raw::{RawDocument, RawDocumentBuf};
use engine::Direction;
use storage::Index;

/// An index as the operator names it.
#[derive(Clone, Debug, PartialEq)]
pub enum FilterIndex {
    /// By name.
    Name(String),
    /// By key pattern.
    Key(RawDocumentBuf),
}

/// What is done when none of the indexes can answer a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Otherwise {
    /// The collection is read.
    Scan(Direction),
    /// The query is planned as if nothing had been said.
    AllIndexes,
}

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct AllowedIndexes {
    /// Tells it from others that are, or were, said of the same shape.
    number: u64,
    pub(crate) indexes: Vec<FilterIndex>,
    pub(crate) otherwise: Otherwise,
}

impl AllowedIndexes {
    pub(crate) fn new(number: u64, indexes: Vec<FilterIndex>, otherwise: Otherwise) -> Self {
        Self {
            number,
            indexes,
            otherwise,
        }
    }

    pub(crate) fn allows(&self, index: &Index) -> bool {
        self.indexes.iter().any(|allowed| match allowed {
            FilterIndex::Name(name) => index.name() == name,
            FilterIndex::Key(key) => same_key(index.key(), key),
        })
    }

    /// A shape's place in the plan cache while this is in force.
    pub(crate) fn place(&self, shape: u64) -> u64 {
        shape ^ self.number.wrapping_mul(0x9E37_79B9_7F4A_7C15)
    }
}

/// Whether an index's key is the one that is named.
pub(super) fn same_key(a: &RawDocument, b: &RawDocument) -> bool {
    keys::compare_documents(a, b).is_eq()
}
