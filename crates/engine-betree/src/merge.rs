//! Several runs as one: what wait for a child is merged before it is passed on.
//!
//! The entries are put one behind the other, the newest run first, and sorted stably by key: so versions of one
//! key come from the newest to the oldest, and the sort finds that it is given sorted stretches.

use crate::fold::{Kept, Level, Sweep, coalesce, fold};
use crate::run::{Entry, Key, Run, RunBuilder, Tombstone};
use engine::Seq;
use pins::Horizon;
use std::sync::Arc;

/// Collects the entries of runs, newest run first, that lie in a range, sorted.
pub(crate) fn sorted<'a>(runs: impl Iterator<Item = &'a Arc<Run>>, low: &[u8], high: Option<&[u8]>) -> Vec<Entry<'a>> {
    let mut entries = Vec::new();
    for run in runs {
        let (start, end) = (run.start_bound(low), run.end_bound(high));
        entries.extend((start..end).map(|at| run.entry(at)));
    }
    entries.sort_by(|a, b| a.key.cmp(b.key));
    entries
}

/// The end of the versions of one key that begin at `start`.
pub(crate) fn end_of_key(entries: &[Entry<'_>], start: usize) -> usize {
    let key = entries[start].key;
    let more = entries[start + 1..].iter().take_while(|entry| entry.key == key);
    start + 1 + more.count()
}

/// Messages in order, folded, without those that nobody needs; and the ranges.
pub(crate) struct Messages {
    /// Each with the keys behind those of the one before.
    pub(crate) runs: Vec<Run>,
    pub(crate) tombstones: Vec<Tombstone>,
}

impl Messages {
    pub(crate) fn none() -> Self {
        Self {
            runs: Vec::new(),
            tombstones: Vec::new(),
        }
    }

    /// No message is newer.
    pub(crate) fn newest(&self) -> Seq {
        let runs = self.runs.iter().map(Run::seq_base);
        let tombstones = self.tombstones.iter().map(|tombstone| tombstone.seq);
        runs.chain(tombstones).max().unwrap_or(Seq::ZERO)
    }
}

/// Merges runs (newest first) into runs of about `run_bytes`, each with the keys behind those of the one before.
pub(crate) fn merge(runs: &[Arc<Run>], horizon: &Horizon, run_bytes: usize) -> Messages {
    let mut tombstones: Vec<Tombstone> = runs.iter().flat_map(|run| run.tombstones().iter().cloned()).collect();
    coalesce(&mut tombstones, horizon);
    let mut sweep = Sweep::new(tombstones.iter());
    let entries = sorted(runs.iter(), &[], None);
    let newest = runs.iter().map(|run| run.seq_base()).max().unwrap_or(Seq::ZERO);
    let mut merged = Vec::new();
    let mut builder = RunBuilder::new(newest);
    let mut kept: Vec<Kept<'_>> = Vec::new();
    let mut at = 0;
    while at < entries.len() {
        let end = end_of_key(&entries, at);
        let key = entries[at].key;
        let versions = entries[at..end].iter().map(|entry| (entry.seq, entry.op));
        fold(versions, sweep.covering(key), horizon, Level::Above, &mut kept);
        for version in &kept {
            version.op.with_ref(|op| builder.push(key, version.seq, op));
        }
        if builder.bytes() >= run_bytes {
            merged.push(std::mem::replace(&mut builder, RunBuilder::new(newest)).finish());
        }
        at = end;
    }
    if !builder.is_empty() {
        merged.push(builder.finish());
    }
    Messages {
        runs: merged,
        tombstones,
    }
}

/// A run of nothing but ranges.
pub(crate) fn run_of_tombstones(tombstones: Vec<Tombstone>) -> Run {
    let newest = tombstones
        .iter()
        .map(|tombstone| tombstone.seq)
        .max()
        .unwrap_or(Seq::ZERO);
    let mut builder = RunBuilder::new(newest);
    tombstones
        .into_iter()
        .for_each(|tombstone| builder.push_tombstone(tombstone));
    builder.finish()
}

/// Cuts messages at pivots: for each child its messages, as pending runs of about `run_bytes`.
pub(crate) fn distribute(messages: &Messages, pivots: &[Key], run_bytes: usize) -> Vec<Vec<Run>> {
    let children = pivots.len() + 1;
    let mut parts: Vec<Vec<Run>> = (0..children).map(|_| Vec::new()).collect();
    let mut child = 0;
    let newest = messages.newest();
    let mut builder: Option<RunBuilder> = None;
    let finish = |builder: &mut Option<RunBuilder>, child: usize, parts: &mut Vec<Vec<Run>>| {
        parts[child].extend(
            builder
                .take()
                .filter(|builder| !builder.is_empty())
                .map(RunBuilder::finish),
        );
    };
    for run in &messages.runs {
        for at in 0..run.len() {
            let entry = run.entry(at);
            let of = if child < pivots.len() && *pivots[child] <= *entry.key {
                child + pivots[child..].partition_point(|pivot| **pivot <= *entry.key)
            } else {
                child
            };
            // Versions of one key stay in one run.
            let is_full = builder
                .as_ref()
                .is_some_and(|builder| builder.bytes() >= run_bytes && builder.last_key() != entry.key);
            if of != child || is_full {
                finish(&mut builder, child, &mut parts);
                child = of;
            }
            let builder = builder.get_or_insert_with(|| RunBuilder::new(newest));
            builder.push(entry.key, entry.seq, entry.op);
        }
    }
    finish(&mut builder, child, &mut parts);
    for (child, part) in parts.iter_mut().enumerate() {
        let low: &[u8] = if child == 0 { &[] } else { &pivots[child - 1] };
        let high = pivots.get(child).map(|pivot| &**pivot);
        let clipped: Vec<Tombstone> = messages
            .tombstones
            .iter()
            .filter_map(|t| t.clipped(low, high))
            .collect();
        if !clipped.is_empty() {
            // First: readers look at it before the entries that it may cover.
            part.insert(0, run_of_tombstones(clipped));
        }
    }
    parts
}
