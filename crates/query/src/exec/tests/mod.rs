//! Plans on real storage.

mod cases;
mod clustering;
mod correlated;
mod deep;
pub(crate) mod fixture;
mod generate;
mod index_only;
mod joins;
mod lookups;
mod paths;
mod pipelines;
mod plans;
mod property;
mod replans;
mod spilling;
mod text;
mod update_model;
mod updates;

use super::ExecContext;
use crate::QueryError;
use crate::plan::request::{CountRequest, DistinctRequest};
use bson::Bson;

fn count(context: &ExecContext<'_>, request: &CountRequest<'_>) -> Result<u64, QueryError> {
    super::count(context, request, &mut |_| {})
}

fn distinct(context: &ExecContext<'_>, request: &DistinctRequest<'_>) -> Result<Vec<Bson>, QueryError> {
    super::distinct(context, request, &mut |_| {})
}
