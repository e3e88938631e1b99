//! (being written)
use bson::RawBsonRef;
use super::operator::NamedOperator;
use super::Node;
use super::parse::Parser;
use crate::error::QueryError;
pub(super) const NAMED: &[NamedOperator] = &[];
pub(super) fn parse_part(_: &mut Parser<'_>, _: &str, _: RawBsonRef<'_>) -> Result<Option<Node>, QueryError> { Ok(None) }
