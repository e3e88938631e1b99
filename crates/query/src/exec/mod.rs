//! Execution: plans run against storage.
//!
//! [`find()`], [`aggregate()`], [`count()`], [`distinct()`] and [`explain()`] are what the command layer calls. A
//! [`PlanExecutor`] lives as long as a client's cursor and pins nothing between calls. Inside, rows are pushed through
//! a tree of stages straight from the batches they are read in.

mod aggregate;
mod batch;
pub(crate) mod blocking;
mod clustered;
mod context;
mod count;
mod describe;
pub(crate) mod distinct;
mod documents_ahead;
mod executor;
mod explain;
pub(crate) mod filter;
mod find;
mod held;
mod id_lookup;
mod index_only;
pub(crate) mod index_scan;
mod join;
mod join_table;
pub(crate) mod key_document;
mod key_lookup;
pub(crate) mod known;
pub(crate) mod merge;
pub(crate) mod near;
mod pipeline;
mod plan_cache;
mod record_set;
pub(crate) mod row;
pub(crate) mod scan;
pub(crate) mod sort_key;
pub(crate) mod stage;
mod summary;
pub(crate) mod text;
mod trial;
mod view;
mod view_graph;

#[cfg(test)]
pub(crate) mod tests;

pub use aggregate::{aggregate, collation as aggregate_collation};
pub use context::{DocumentSink, ExecContext, ExecState, InitialSources, SinkState};
pub use count::count;
pub use distinct::distinct;
pub use executor::PlanExecutor;
pub use explain::explain;
pub use find::find;
pub use id_lookup::is_lookup_by_id;
pub use plan_cache::{
    QueryPattern, cached_plans, clear_index_filters, clear_plans, list_index_filters, set_index_filter,
};
pub use summary::PlanSummary;
pub use view::under_views;
pub use view_graph::check_view;

use stage::Stage;
use std::sync::Arc;
use storage::Index;

/// `{}`.
pub(crate) const EMPTY_DOCUMENT: &[u8] = &[5, 0, 0, 0, 0];

/// Calls `each` with the indexes of a tree's scans.
pub(crate) fn used_indexes(stage: &Stage, each: &mut dyn FnMut(&Arc<Index>)) {
    if let Stage::IndexScan(scan) = stage {
        each(&scan.index);
    }
    // Many scans, one use.
    if let Stage::TextMatch(text) = stage {
        each(&text.index);
        return;
    }
    for input in stage.inputs() {
        used_indexes(input, each);
    }
}
