//! Equality joins: the documents of a collection that have a value at a path, asked for over and over.
//!
//! What a `$lookup` by `localField` and `foreignField`, or by an equality of its sub-pipeline, and a `$graphLookup` are
//! run with where the foreign side is nothing but a collection: nothing is planned for each document of the local side.

use bson::RawDocument;

use super::StageContext;
use crate::error::QueryError;
use crate::expression::ExpressionContext;
use crate::value::Value;

/// What is joined.
pub struct JoinRequest<'a> {
    /// Another database, when one is named.
    pub database: Option<&'a str>,
    /// The collection.
    pub collection: &'a str,
    /// The dotted paths that may be compared; one of them is.
    pub fields: &'a [&'a str],
    /// Whether a plan for the values of one document may use indexes that the join knows nothing of.
    pub is_planned_otherwise: bool,
    /// How strings compare.
    pub context: &'a ExpressionContext,
}

/// What a join makes of the values of one document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Joined {
    /// Every match was given.
    All,
    /// Nothing was given: these values have to be asked for by a filter.
    ByFilter,
}

/// The way of a join, as explain tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JoinStrategy {
    /// By a filter for each document.
    NestedLoop,
    /// By an index of this name.
    Index(String),
    /// By a hash table.
    Hash,
}

/// See the module. Between two calls of [`EqualityJoin::rest`] it may have the collection locked, and read one state of
/// it.
pub trait EqualityJoin: Send {
    /// Gives each document whose value at the path equals one of `values`, once.
    fn find(
        &mut self,
        values: &[Value<'_>],
        context: &StageContext<'_>,
        found: &mut dyn FnMut(&RawDocument) -> Result<(), QueryError>,
    ) -> Result<Joined, QueryError>;

    /// Whether a value can be asked for: it equals what has its key, and nothing else.
    fn takes(&self, value: &Value<'_>) -> bool;

    /// The place of the compared path among those that were asked for.
    fn field(&self) -> usize;

    /// Gives locks and what it reads back.
    fn rest(&mut self);

    /// What it has done so far.
    fn strategy(&self) -> JoinStrategy;
}
