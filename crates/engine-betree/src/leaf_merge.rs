//! Messages arrive at a leaf: the basements that they concern are written anew, the others stay as they are.

use crate::change::Change;
use crate::fold::{Kept, Level, Sweep, fold};
use crate::merge::{Messages, end_of_key};
use crate::node::{Basement, Leaf, separator};
use crate::run::{Entry, Key, OpRef, Run, RunBuilder, Tombstone};
use engine::{Result, Seq};
use std::sync::Arc;

/// Merges messages into a leaf that has the keys from `low` up to `high`. Answers the leaves that take its
/// place, each with the first key that belongs to it; none when no row is left.
pub(crate) fn merge_into_leaf(
    change: &mut Change<'_>,
    leaf: &Leaf,
    messages: &Messages,
    low: &[u8],
    high: Option<&[u8]>,
) -> Result<Vec<(Key, Leaf)>> {
    let runs = messages.runs.iter();
    let entries: Vec<Entry<'_>> = runs.flat_map(|run| (0..run.len()).map(|at| run.entry(at))).collect();
    let mut merger = Merger {
        sweep: Sweep::new(messages.tombstones.iter()),
        writer: LeafWriter::new(change, messages.newest()),
        kept: Vec::new(),
    };
    if leaf.basements.is_empty() {
        merger.writer.begin_region(low);
        merger.merge(None, &entries)?;
        let basements = merger.writer.finish()?;
        return Ok(split(basements, low, true, change));
    }
    let regions: Vec<Region<'_>> = regions(merger.writer.change, leaf, &entries, &messages.tombstones, low, high);
    let concerned = leaf
        .basements
        .iter()
        .zip(&regions)
        .filter(|(_, region)| region.fate == Fate::Merged);
    let mut units = concerned.map(|(basement, _)| &basement.unit);
    merger.writer.change.read_ahead(&mut units)?;
    let basement_bytes = merger.writer.change.core.options.basement_bytes as usize;
    for (basement, region) in leaf.basements.iter().zip(&regions) {
        // A few rows alone are not worth a block: the next basement takes them in.
        let pending = merger.writer.pending_bytes();
        let absorbs = pending > 0 && pending < basement_bytes / 4;
        let old = match region.fate {
            Fate::Kept if !absorbs => {
                merger.writer.keep(basement.clone())?;
                continue;
            }
            Fate::Gone => None,
            Fate::Kept | Fate::Merged => Some(merger.writer.change.load_run(&basement.unit)?),
        };
        merger.writer.change.retire(basement.unit.blocks());
        merger.writer.begin_region(region.low);
        merger.merge(old, &entries[region.entries.clone()])?;
    }
    let last_only = regions.iter().rev().skip(1).all(|region| region.fate == Fate::Kept);
    let basements = merger.writer.finish()?;
    Ok(split(basements, low, last_only && high.is_none(), change))
}

/// What becomes of a basement.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    Kept,
    Merged,
    /// A range took all of it away, and nobody needs it: it is not read.
    Gone,
}

struct Region<'a> {
    low: &'a [u8],
    entries: std::ops::Range<usize>,
    fate: Fate,
}

fn regions<'a>(
    change: &Change<'_>,
    leaf: &'a Leaf,
    entries: &[Entry<'_>],
    tombstones: &[Tombstone],
    low: &'a [u8],
    high: Option<&'a [u8]>,
) -> Vec<Region<'a>> {
    let oldest = change.horizon.oldest();
    let mut at = 0;
    let mut regions = Vec::with_capacity(leaf.basements.len());
    for (index, basement) in leaf.basements.iter().enumerate() {
        let (low, high) = leaf.range(index, low, high);
        let end = high.map_or(entries.len(), |high| {
            at + entries[at..].partition_point(|entry| entry.key < high)
        });
        let is_gone = tombstones.iter().any(|t| t.seq <= oldest && t.covers_all(low, high));
        let is_touched = at < end || tombstones.iter().any(|t| t.clipped(low, high).is_some());
        let fate = match (is_gone, is_touched || change.rewrites(basement)) {
            (true, _) => Fate::Gone,
            (false, true) => Fate::Merged,
            (false, false) => Fate::Kept,
        };
        regions.push(Region {
            low,
            entries: at..end,
            fate,
        });
        at = end;
    }
    regions
}

struct Merger<'m, 'c, 'a> {
    sweep: Sweep<'a>,
    writer: LeafWriter<'m, 'c>,
    kept: Vec<Kept<'a>>,
}

impl Merger<'_, '_, '_> {
    /// Merges the rows of a basement with the messages for it.
    fn merge(&mut self, old: Option<Arc<Run>>, messages: &[Entry<'_>]) -> Result<()> {
        let old = old.as_deref();
        let rows = old.map_or(0, Run::len);
        let row = |at: usize| old.expect("it has rows").entry(at);
        let oldest = self.writer.change.horizon.oldest();
        // Its memory is used for every basement; what it refers to is not.
        let mut kept: Vec<Kept<'_>> = recycled(std::mem::take(&mut self.kept));
        let (mut at, mut message) = (0, 0);
        while at < rows || message < messages.len() {
            let row_now = (at < rows).then(|| row(at));
            let message_key = messages.get(message).map(|entry| entry.key);
            let key = match (row_now, message_key) {
                (Some(row), Some(key)) => row.key.min(key),
                (Some(row), None) => row.key,
                (None, Some(key)) => key,
                (None, None) => unreachable!("one of them is left"),
            };
            let row_end = match row_now {
                Some(entry) if entry.key == key => {
                    let more = (at + 1..rows).take_while(|&next| row(next).key == key);
                    at + 1 + more.count()
                }
                _ => at,
            };
            let message_end = match message_key {
                Some(first) if first == key => end_of_key(messages, message),
                _ => message,
            };
            let covering = self.sweep.covering(key);
            // Most rows: one version that everybody sees, and nothing new.
            match row_now {
                Some(Entry {
                    seq,
                    op: op @ OpRef::Put(_),
                    ..
                }) if message_end == message && row_end == at + 1 && covering.is_empty() && seq <= oldest => {
                    self.writer.push(key, Seq::ZERO, op)?;
                }
                _ => {
                    let newer = messages[message..message_end].iter().map(|entry| (entry.seq, entry.op));
                    let older = (at..row_end).map(row).map(|entry| (entry.seq, entry.op));
                    fold(
                        newer.chain(older),
                        covering,
                        &self.writer.change.horizon,
                        Level::Leaf,
                        &mut kept,
                    );
                    for version in &kept {
                        version.op.with_ref(|op| self.writer.push(key, version.seq, op))?;
                    }
                }
            }
            (at, message) = (row_end, message_end);
        }
        self.kept = recycled(kept);
        Ok(())
    }
}

/// An empty list with the memory of another.
fn recycled<'b>(mut kept: Vec<Kept<'_>>) -> Vec<Kept<'b>> {
    kept.clear();
    kept.into_iter().map(|_| unreachable!("it is empty")).collect()
}

/// Writes basements, one after the other.
pub(crate) struct LeafWriter<'m, 'c> {
    pub(crate) change: &'m mut Change<'c>,
    /// No row is newer.
    newest: Seq,
    basements: Vec<Basement>,
    builder: Option<RunBuilder>,
    /// First key that belongs to what is being built.
    low: Key,
    has_history: bool,
    /// First key of the region, while nothing of it has been written.
    region: Option<Key>,
    /// The key before, of this region or the one before.
    last_key: Vec<u8>,
}

impl<'m, 'c> LeafWriter<'m, 'c> {
    pub(crate) fn new(change: &'m mut Change<'c>, newest: Seq) -> Self {
        // Rows of the leaf may be newer than the messages.
        let newest = newest.max(change.newest_row);
        Self {
            change,
            newest,
            basements: Vec::new(),
            builder: None,
            low: Key::from(&[][..]),
            has_history: false,
            region: None,
            last_key: Vec::new(),
        }
    }

    /// What comes now lies at or above `low`.
    pub(crate) fn begin_region(&mut self, low: &[u8]) {
        if self.builder.is_none() {
            self.region = Some(low.into());
        }
    }

    fn pending_bytes(&self) -> usize {
        self.builder.as_ref().map_or(0, RunBuilder::bytes)
    }

    pub(crate) fn push(&mut self, key: &[u8], seq: Seq, op: OpRef<'_>) -> Result<()> {
        let is_full = self.builder.as_ref().is_some_and(|builder| {
            builder.bytes() >= self.change.core.options.basement_bytes as usize && builder.last_key() != key
        });
        if is_full {
            self.close()?;
        }
        let builder = match &mut self.builder {
            Some(builder) => builder,
            None => {
                self.low = match self.region.take() {
                    Some(low) => low,
                    None => separator(&self.last_key, key),
                };
                self.has_history = false;
                self.builder.insert(RunBuilder::new(self.newest))
            }
        };
        self.has_history |= seq != Seq::ZERO || !matches!(op, OpRef::Put(_));
        builder.push(key, seq, op);
        Ok(())
    }

    /// A basement that stays as it is comes next.
    fn keep(&mut self, basement: Basement) -> Result<()> {
        self.close()?;
        self.basements.push(basement);
        Ok(())
    }

    pub(crate) fn close(&mut self) -> Result<()> {
        let Some(builder) = self.builder.take() else {
            return Ok(());
        };
        self.last_key.clear();
        self.last_key.extend_from_slice(builder.last_key());
        let run = builder.finish();
        let (entries, bytes) = (run.len() as u32, run.raw().len() as u32);
        let unit = self.change.write_basement(run)?;
        self.basements.push(Basement {
            low: self.low.clone(),
            unit,
            entries,
            bytes,
            has_history: self.has_history,
        });
        Ok(())
    }

    /// Bytes of the basements that are written.
    pub(crate) fn written_bytes(&self) -> u64 {
        self.basements.iter().map(|basement| u64::from(basement.bytes)).sum()
    }

    pub(crate) fn take_basements(&mut self) -> Vec<Basement> {
        std::mem::take(&mut self.basements)
    }

    pub(crate) fn finish(mut self) -> Result<Vec<Basement>> {
        self.close()?;
        Ok(self.basements)
    }
}

/// Parts basements into leaves: full ones where rows are appended, else equal ones with room.
fn split(basements: Vec<Basement>, low: &[u8], appends: bool, change: &Change<'_>) -> Vec<(Key, Leaf)> {
    let most = u64::from(change.core.options.node_bytes);
    let total: u64 = basements.iter().map(|basement| u64::from(basement.bytes)).sum();
    let share = match (total <= most, appends) {
        (true, _) => u64::MAX,
        (false, true) => most,
        (false, false) => total.div_ceil(total.div_ceil(most * 3 / 4)),
    };
    let mut leaves: Vec<(Key, Leaf)> = Vec::new();
    let mut bytes = 0;
    for basement in basements {
        let of_basement = u64::from(basement.bytes);
        if leaves.is_empty() || (bytes > 0 && bytes + of_basement / 2 > share) {
            let low = if leaves.is_empty() {
                low.into()
            } else {
                basement.low.clone()
            };
            leaves.push((low, Leaf::default()));
            bytes = 0;
        }
        bytes += of_basement;
        leaves.last_mut().expect("one was pushed").1.basements.push(basement);
    }
    leaves
}
