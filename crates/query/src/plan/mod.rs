//! Planning: from a request to trees of stages.
//!
//! [`request`] is what the command layer fills in. The rest turns filters into bounds on indexes and indexes into
//! candidate plans. It reads definitions and multikey flags of a collection, never its data.

pub(crate) mod access;
pub(crate) mod allowed_indexes;
pub(crate) mod cache;
pub(crate) mod convert;
pub(crate) mod encode;
pub(crate) mod hashes;
pub(crate) mod implication;
pub(crate) mod index_bounds;
pub(crate) mod index_filters;
pub(crate) mod interval;
pub(crate) mod leaf;
pub(crate) mod near;
pub(crate) mod planner;
pub(crate) mod predicate;
pub(crate) mod query;
pub(crate) mod query_settings;
pub(crate) mod query_shape;
pub mod request;
pub(crate) mod shape;
pub(crate) mod special;
pub(crate) mod text;
pub(crate) mod union;
pub(crate) mod wildcard;

pub use allowed_indexes::FilterIndex;
pub use hashes::{PlannedQuery, QueryHashes};
pub use query::collation_of;
pub use query_settings::{IndexHints, QueryFramework, QuerySettings};
pub use query_shape::{QueryShape, ShapeHash};
pub use request::{
    AggregateRequest, Answered, CountRequest, DistinctRequest, ExplainRequest, ExplainedWrite, FindRequest, Hint,
    Verbosity, WouldChange, WriteKind,
};
