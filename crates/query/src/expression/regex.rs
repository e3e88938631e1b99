//! (being written)
use bson::RawBsonRef;
use super::{Node, operator::failure};
use super::parse::Parser;
use crate::error::QueryError;
pub(super) fn parse(_: &mut Parser<'_>, name: &str, _: RawBsonRef<'_>) -> Result<Node, QueryError> { failure(238, name) }
