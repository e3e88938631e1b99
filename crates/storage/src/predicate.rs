//! The filters of partial indexes, as the query layer compiles them.

use crate::StorageError;
use bson::RawDocument;
use keys::Collator;
use std::any::Any;
use std::sync::Arc;

/// Whether an operation may go on.
pub type Check<'c> = dyn Fn() -> Result<(), StorageError> + 'c;

/// Decides whether a document belongs into a partial index. Whoever has compiled it knows it again as what it is, and
/// need not parse the filter once more.
pub trait Predicate: Any + Send + Sync {
    /// True when the document belongs into the index; one that is damaged does not. Must answer the same for everybody,
    /// whoever asks, and ask `check` now and then where one document takes long: its errors are the only ones. Who goes
    /// through many documents asks between them; where nothing may end the work (replay), `check` always lets it go on.
    fn matches(&self, document: &RawDocument, check: &Check<'_>) -> Result<bool, StorageError>;
}

/// Turns the filter of a partial index into a predicate; the query layer supplies it.
pub trait PredicateCompiler: Send + Sync {
    /// The predicate, or a sentence that says why the filter cannot be used in an index. Strings compare as the index
    /// has them.
    fn compile(&self, filter: &RawDocument, collator: Option<Arc<dyn Collator>>) -> Result<Arc<dyn Predicate>, String>;
}

/// For databases without partial indexes: refuses every filter.
pub struct NoPartialIndexes;

impl PredicateCompiler for NoPartialIndexes {
    fn compile(
        &self,
        _filter: &RawDocument,
        _collator: Option<Arc<dyn Collator>>,
    ) -> Result<Arc<dyn Predicate>, String> {
        Err("partial indexes are not available".to_owned())
    }
}
