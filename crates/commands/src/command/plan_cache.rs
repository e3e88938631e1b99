//! `planCacheClear`, and the commands of index filters.

use super::find::optional;
use super::views;
use crate::definition::{Access, Command};
use crate::error::{CommandError, Result};
use crate::invocation::Invocation;
use crate::metrics::OperationKind;
use crate::reply::Reply;
use auth::Action;
use bson::Bson;
use bson::raw::RawBsonRef;
use query::exec::QueryPattern;
use query::plan::FilterIndex;
use storage::Namespace;
use wire::ErrorCode;

/// `planCacheClear`.
pub const PLAN_CACHE_CLEAR: Command = Command::new(
    "planCacheClear",
    "Forgets which plans won for a collection, or for one shape of queries.",
    OperationKind::Command,
    Access::collection(&[Action::PlanCacheWrite]),
    clear_plans,
)
.secondary_ok();
/// `planCacheClearFilters`.
pub const PLAN_CACHE_CLEAR_FILTERS: Command = Command::new(
    "planCacheClearFilters",
    "Takes index filters of a collection away.",
    OperationKind::Command,
    Access::collection(&[Action::PlanCacheIndexFilter]),
    clear_filters,
)
.secondary_ok();
/// `planCacheListFilters`.
pub const PLAN_CACHE_LIST_FILTERS: Command = Command::new(
    "planCacheListFilters",
    "Lists the index filters of a collection.",
    OperationKind::Command,
    Access::collection(&[Action::PlanCacheIndexFilter]),
    list_filters,
)
.secondary_ok();
/// `planCacheSetFilter`.
pub const PLAN_CACHE_SET_FILTER: Command = Command::new(
    "planCacheSetFilter",
    "Has queries of one shape planned with these indexes alone.",
    OperationKind::Command,
    Access::collection(&[Action::PlanCacheIndexFilter]),
    set_filter,
)
.secondary_ok();

/// The collection; views have no plans of their own.
fn subject(call: &mut Invocation<'_>) -> Result<Namespace> {
    let namespace = call.namespace()?;
    match call.server.storage.catalog().view(&namespace) {
        Some(_) => Err(views::refused(&namespace)),
        None => Ok(namespace),
    }
}

/// The collection, if it is there: else nothing is looked at, as in MongoDB.
fn existing(call: &mut Invocation<'_>) -> Result<Option<Namespace>> {
    let namespace = subject(call)?;
    let is_there = call.server.storage.catalog().collection(&namespace).is_some();
    Ok(is_there.then_some(namespace))
}

/// Reads the fields of a shape; others are for `others`. `None` when none is there.
fn pattern<'a>(
    call: &Invocation<'a>,
    mut others: impl FnMut(&'a str, RawBsonRef<'a>) -> Result<()>,
) -> Result<Option<QueryPattern<'a>>> {
    let arguments = call.arguments();
    let mut pattern = QueryPattern::default();
    call.for_each_field(|name, value| {
        match name {
            "query" => pattern.query = Some(arguments.document(name, value)?),
            "sort" => pattern.sort = optional(arguments, name, value)?,
            "projection" => pattern.projection = optional(arguments, name, value)?,
            "collation" => pattern.collation = optional(arguments, name, value)?,
            _ => others(name, value)?,
        }
        Ok(true)
    })?;
    let has_others = pattern.sort.is_some() || pattern.projection.is_some() || pattern.collation.is_some();
    match pattern.query {
        Some(_) => Ok(Some(pattern)),
        None if has_others => Err(CommandError::bad_value(
            "sort, projection or collation provided without query",
        )),
        None => Ok(None),
    }
}

fn clear_plans(call: &mut Invocation<'_>, _reply: &mut Reply<'_>) -> Result<()> {
    let Some(namespace) = existing(call)? else {
        return Ok(());
    };
    let pattern = pattern(call, |_, _| Ok(()))?;
    Ok(query::exec::clear_plans(&call.context(), &namespace, pattern)?)
}

fn clear_filters(call: &mut Invocation<'_>, _reply: &mut Reply<'_>) -> Result<()> {
    let Some(namespace) = existing(call)? else {
        return Ok(());
    };
    let pattern = pattern(call, |_, _| Ok(()))?;
    Ok(query::exec::clear_index_filters(&call.context(), &namespace, pattern)?)
}

fn list_filters(call: &mut Invocation<'_>, reply: &mut Reply<'_>) -> Result<()> {
    let namespace = subject(call)?;
    call.for_each_field(|_, _| Ok(true))?;
    let filters = query::exec::list_index_filters(&call.context(), &namespace);
    let filters = filters.into_iter().map(Bson::Document).collect();
    reply.value("filters", &Bson::Array(filters));
    Ok(())
}

fn set_filter(call: &mut Invocation<'_>, _reply: &mut Reply<'_>) -> Result<()> {
    let namespace = subject(call)?;
    let arguments = call.arguments();
    let mut indexes = None;
    let pattern = pattern(call, |name, value| {
        if name == "indexes" {
            let mut listed = Vec::new();
            for index in arguments.array(name, value)? {
                listed.push(match index? {
                    RawBsonRef::String(name) => FilterIndex::Name(name.to_owned()),
                    RawBsonRef::Document(key) if !key.is_empty() => FilterIndex::Key(key.to_owned()),
                    RawBsonRef::Document(_) => {
                        return Err(CommandError::bad_value("index specification cannot be empty"));
                    }
                    _ => {
                        return Err(CommandError::bad_value(
                            "each item in index specification must be an object or string",
                        ));
                    }
                });
            }
            indexes = Some(listed);
        }
        Ok(())
    })
    // Of a type that is wrong this command tells as of a value.
    .map_err(|error| match error.code {
        ErrorCode::TypeMismatch => CommandError::bad_value(error.message),
        _ => error,
    })?;
    let missing = |field: &str| CommandError::bad_value(format!("required field {field} missing"));
    let pattern = pattern.ok_or_else(|| missing("query"))?;
    let indexes = indexes.ok_or_else(|| missing("indexes"))?;
    if indexes.is_empty() {
        return Err(CommandError::bad_value(
            "required field indexes must contain at least one index",
        ));
    }
    query::exec::set_index_filter(&call.context(), &namespace, pattern, indexes)?;
    Ok(())
}
