//! The one-line form of a plan, and what is told with it.

use super::clustered;
use super::index_scan::{IndexScan, ScanKind};
use super::stage::Stage;
use crate::plan::hashes::PlannedQuery;
use bson::RawDocument;
use bson::raw::RawBsonRef;
use std::borrow::Cow;

/// What log lines, the profiler and `currentOp` tell of a plan.
#[derive(Clone, Default)]
pub struct PlanSummary {
    /// The plan in a few words: `IXSCAN { a: 1 }`.
    pub text: Cow<'static, str>,
    /// The query that was planned; `None` where there was nothing to plan, as for a look-up by `_id`.
    pub query: Option<PlannedQuery>,
}

impl PlanSummary {
    /// Of a plan, and of the query that it was made for.
    pub(crate) fn of(stage: &Stage, query: PlannedQuery) -> Self {
        Self {
            text: Cow::Owned(summary(stage)),
            query: Some(query),
        }
    }

    /// Of what was not planned.
    pub(crate) fn unplanned(text: &'static str) -> Self {
        Self {
            text: Cow::Borrowed(text),
            query: None,
        }
    }
}

/// `IXSCAN { a: 1 }, IXSCAN { b: 1 }`: the leaves of the tree.
fn summary(stage: &Stage) -> String {
    let mut leaves = Vec::new();
    add_leaves(stage, &mut leaves);
    leaves.dedup();
    leaves.join(", ")
}

/// A look-up by `_id` alone.
pub(crate) fn id_summary(is_clustered: bool) -> &'static str {
    match is_clustered {
        true => "EXPRESS_CLUSTERED_IXSCAN",
        false => "IDHACK",
    }
}

fn add_leaves(stage: &Stage, leaves: &mut Vec<String>) {
    match stage {
        Stage::Eof => leaves.push("EOF".to_owned()),
        Stage::CollectionScan(_) => leaves.push("COLLSCAN".to_owned()),
        Stage::IndexScan(scan) if scan.index.is_clustered() => leaves.push(scan_name(scan).to_owned()),
        Stage::IndexScan(scan) => leaves.push(format!("{} {}", scan_name(scan), key_text(scan.index.key()))),
        Stage::TextMatch(text) => leaves.push(format!("IXSCAN {}", key_text(text.index.key()))),
        Stage::Near(near) => leaves.push(format!("{} {}", near.name(), key_text(near.index().key()))),
        other => other.inputs().into_iter().for_each(|input| add_leaves(input, leaves)),
    }
}

/// MongoDB's name of an index scan.
pub(crate) fn scan_name(scan: &IndexScan) -> &'static str {
    match scan.kind {
        _ if scan.index.is_clustered() => clustered::scan_name(scan),
        ScanKind::Entries => "IXSCAN",
        ScanKind::Count => "COUNT_SCAN",
        ScanKind::Distinct(_) => "DISTINCT_SCAN",
    }
}

fn key_text(key: &RawDocument) -> String {
    let field = |(name, value): (&bson::raw::CStr, RawBsonRef<'_>)| {
        let value = match value {
            RawBsonRef::Int32(n) => n.to_string(),
            RawBsonRef::Int64(n) => n.to_string(),
            RawBsonRef::Double(n) => n.to_string(),
            RawBsonRef::String(text) => format!("\"{text}\""),
            other => format!("{other:?}"),
        };
        format!("{}: {value}", name.as_str())
    };
    format!(
        "{{ {} }}",
        key.iter().flatten().map(field).collect::<Vec<_>>().join(", ")
    )
}
