//! Time-series collections: what commands do with the buckets that one stands on.
//!
//! Nothing of a time-series collection's is known here but its options: what buckets look like is `query::timeseries`'.
//! Clients see a collection `x`; its buckets are documents of `system.buckets.x`, of which the write path, the log and
//! other members know no more than of any document.

pub mod definition;
pub mod indexes;
pub mod insert;
pub mod open_buckets;
pub mod out;
pub mod write;

use crate::error::CommandError;
use crate::invocation::Invocation;
use bson::RawDocument;
use std::collections::HashSet;
use std::sync::Arc;
use storage::{Collection, Namespace};
use wire::ErrorCode;

/// Bytes of a bucket's `_id` in an error.
const SHOWN_ID_BYTES_MAX: usize = 100;

/// The buckets of a time-series collection; `None` for the name of anything else.
pub fn buckets(call: &Invocation<'_>, namespace: &Namespace) -> Option<Arc<Collection>> {
    call.server.storage.catalog().buckets(namespace)
}

/// A namespace whose index and statistics are asked for: that of the buckets for a time-series collection.
pub fn of_buckets(call: &Invocation<'_>, namespace: &Namespace) -> Namespace {
    buckets(call, namespace).map_or_else(|| namespace.clone(), |buckets| buckets.namespace().clone())
}

/// Whether these are buckets that no time-series collection shows, as earlier versions could leave them behind.
pub fn has_no_view(call: &Invocation<'_>, namespace: &Namespace) -> bool {
    let of = namespace.collection().strip_prefix(storage::BUCKETS_PREFIX);
    let of = of.and_then(|name| Namespace::new(namespace.db(), name).ok());
    call.definition(namespace).is_some() && of.is_some_and(|of| buckets(call, &of).is_none())
}

/// Forgets what is known of collections that are gone.
pub fn forget_dropped(call: &Invocation<'_>) {
    let collections = call.server.storage.catalog().all_collections();
    let there: HashSet<_> = collections.iter().map(|collection| collection.uuid()).collect();
    call.server.open_buckets.retain(|collection| there.contains(collection));
}

/// Whether an error is about what a stored bucket has, so that others may be read.
fn is_of_bucket(error: &CommandError) -> bool {
    matches!(
        error.code,
        ErrorCode::BadValue | ErrorCode::InvalidBSON | ErrorCode::NotImplemented
    )
}

/// An error of a stored bucket, with the namespace and the `_id` that it is found by. Errors that are not about what it
/// has stay as they are.
pub fn of_bucket(mut error: CommandError, namespace: &Namespace, bucket: &RawDocument) -> CommandError {
    if matches!(error.code, ErrorCode::BadValue | ErrorCode::InvalidBSON)
        && let Ok(Some(id)) = bucket.get("_id")
    {
        let id = keys::describe::describe_within(id, SHOWN_ID_BYTES_MAX);
        error.message = format!("{namespace}, _id {id}: {}", error.message);
    }
    error
}

fn invalid(text: impl Into<String>) -> CommandError {
    CommandError::new(ErrorCode::InvalidOptions, text)
}

/// Transactions read time-series collections only.
fn refuse_in_transaction(call: &Invocation<'_>, what: &str, namespace: &Namespace) -> Result<(), CommandError> {
    match call.transaction {
        None => Ok(()),
        Some(_) => Err(CommandError::new(
            ErrorCode::OperationNotSupportedInTransaction,
            format!("Cannot {what} a time-series collection in a multi-document transaction: {namespace}"),
        )),
    }
}
