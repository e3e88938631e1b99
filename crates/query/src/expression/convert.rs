//! (being written)
use super::operator::{NamedOperator, Operator};
pub(super) const OPERATORS: &[Operator] = &[];
pub(super) const NAMED: &[NamedOperator] = &[];
