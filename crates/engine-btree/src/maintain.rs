//! Verifying, compacting, and moving blocks together.

use crate::catalog::Catalog;
use crate::checkpoint::Checkpointer;
use crate::consolidator::Consolidator;
use crate::foundation::Foundation;
use crate::leaf::{Base, Leaf};
use crate::page::LeafImage;
use crate::pages::{LoadRows, Pages};
use crate::readers::Readers;
use crate::relocate::Relocator;
use crate::restructure::Structure;
use crate::saved_deltas::SavedDeltas;
use crate::tables::Table;
use crate::tree::{Child, Fence, Target, Tree};
use crate::walk::Walk;
use blocks::{BlockAddr, BlockStore, Near, Urgency};
use engine::{
    Direction, EngineStatus, FillLimits, KeyRange, MaintenanceReport, Result, Rows, TableId, TableStats, check_wanted,
};
use pins::Holder;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Rounds of moving blocks to the front that one compaction takes at most.
const COMPACT_ROUNDS_MAX: usize = 8;

/// Whether who asked for the work still wants it.
type GoesOn<'a> = &'a dyn Fn() -> bool;

/// See the module.
pub(crate) struct Upkeep {
    store: Arc<BlockStore>,
    catalog: Arc<Catalog>,
    pages: Arc<Pages>,
    readers: Arc<Readers>,
    structure: Arc<Structure>,
    consolidator: Arc<Consolidator>,
    checkpointer: Arc<Checkpointer>,
    relocator: Arc<Relocator>,
    saved_deltas: Arc<SavedDeltas>,
    status: Arc<EngineStatus>,
}

impl Upkeep {
    pub(crate) fn new(
        base: &Foundation,
        structure: Arc<Structure>,
        consolidator: Arc<Consolidator>,
        checkpointer: Arc<Checkpointer>,
        relocator: Arc<Relocator>,
    ) -> Self {
        Self {
            store: base.store.clone(),
            catalog: base.catalog.clone(),
            pages: base.pages.clone(),
            readers: base.readers.clone(),
            structure,
            consolidator,
            checkpointer,
            relocator,
            saved_deltas: base.saved_deltas.clone(),
            status: base.status.clone(),
        }
    }

    /// Reads everything: every block, the order of every key, every leaf's place.
    pub(crate) fn verify(&self, id: Option<TableId>, goes_on: GoesOn<'_>) -> Result<MaintenanceReport> {
        let mut report = MaintenanceReport::default();
        for table in self.catalog.live_tables(id)? {
            self.verify_table(&table, goes_on, &mut report)?;
        }
        self.verify_saved(id, goes_on, &mut report)?;
        Ok(report)
    }

    /// Whether work goes on.
    fn check(&self, goes_on: GoesOn<'_>) -> Result<()> {
        self.status.check_running()?;
        check_wanted(goes_on)
    }

    /// What the next start needs of the last checkpoint besides the trees: all of it, or what has rows of one table.
    /// Checkpoints go on meanwhile. What one of them gives back is no damage.
    fn verify_saved(&self, id: Option<TableId>, goes_on: GoesOn<'_>, report: &mut MaintenanceReport) -> Result<()> {
        for address in self.saved_deltas.blocks_of(id) {
            self.check(goes_on)?;
            match self.pages.read_saved(self.catalog.directory_tree(), address, |_| ()) {
                Ok(()) => {}
                Err(error) if error.is_of_disk() => {
                    if self.saved_deltas.blocks_of(id).contains(&address) {
                        report.problems.push(format!("saved deltas: {error}"));
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn verify_table(&self, table: &Table, goes_on: GoesOn<'_>, report: &mut MaintenanceReport) -> Result<()> {
        let problem = |report: &mut MaintenanceReport, what: String| {
            report.problems.push(format!("{} ({:?}): {what}", table.name, table.id));
        };
        let mut walk = Walk::new(KeyRange::all(), Direction::Forward);
        let mut rows = Rows::new();
        let mut last: Option<Vec<u8>> = None;
        loop {
            self.check(goes_on)?;
            // A view for each step: what is old is not kept for a verification, however long that takes.
            let pin = self.readers.pin(Holder::Engine);
            if !table.lives_at(pin.seq()) {
                self.readers.unpin(pin);
                return Ok(());
            }
            let filled = walk.fill(&self.pages, &table.tree, pin.seq(), &mut rows, FillLimits::default());
            self.readers.unpin(pin);
            match filled {
                Ok(()) => {}
                Err(error) if error.is_of_disk() => {
                    problem(report, error.to_string());
                    // What lies beyond the damage is looked at, too.
                    match self.end_of_damage(&table.tree, walk.position_key()) {
                        Some(next) => {
                            walk.seek(&next);
                            continue;
                        }
                        None => return Ok(()),
                    }
                }
                Err(error) => return Err(error),
            }
            if rows.is_empty() {
                break;
            }
            report.rows_checked += rows.len() as u64;
            for index in 0..rows.len() {
                let key = rows.key(index);
                if last.as_deref().is_some_and(|last| last >= key) {
                    problem(report, format!("key {key:02x?} does not rise above the one before"));
                }
                last.get_or_insert_default().clear();
                last.get_or_insert_default().extend_from_slice(key);
            }
        }
        self.verify_images(table, goes_on, report)
    }

    /// Reads the images of leaves that were read from memory above, and checks that each holds keys of its own range
    /// only.
    fn verify_images(&self, table: &Table, goes_on: GoesOn<'_>, report: &mut MaintenanceReport) -> Result<()> {
        let tree = &table.tree;
        let mut from: Option<Vec<u8>> = None;
        loop {
            self.check(goes_on)?;
            let target = from.as_deref().map_or(Target::First, Target::At);
            let (image_at, low, high) = {
                let guard = rcu::pin();
                let _structure = tree.structure.lock();
                let descent = tree.descend(target, 0, &guard);
                let image_at = match descent.child {
                    Child::Leaf(leaf) => leaf.state.lock().disk_image,
                    Child::OnDisk { address, level: 0 } => Some(*address),
                    _ => None,
                };
                (
                    image_at,
                    descent.low.map(Fence::to_vec),
                    descent.high.map(Fence::to_vec),
                )
            };
            if let Some(address) = image_at {
                match self.pages.read_leaf(tree, address, Near::Others) {
                    Ok(image) => {
                        if let Some(what) = outside(&image, low.as_deref(), high.as_deref()) {
                            report.problems.push(format!("{} ({:?}): {what}", table.name, table.id));
                        }
                    }
                    Err(error) => {
                        // It may have been written anew meanwhile, and its blocks used for something else.
                        let guard = rcu::pin();
                        let now = match tree.descend(target, 0, &guard).child {
                            Child::Leaf(leaf) => leaf.state.lock().disk_image,
                            Child::OnDisk { address, .. } => Some(*address),
                            Child::Inner(_) | Child::Nothing => None,
                        };
                        if now == Some(address) {
                            report
                                .problems
                                .push(format!("{} ({:?}): {error}", table.name, table.id));
                        }
                    }
                }
            }
            match high {
                None => return Ok(()),
                Some(high) => from = Some(high),
            }
        }
    }

    /// The first key after the leaf or subtree for a key, whether it can be read or not.
    fn end_of_damage(&self, tree: &Tree, key: Option<Vec<u8>>) -> Option<Vec<u8>> {
        let guard = rcu::pin();
        let target = key.as_deref().map_or(Target::First, Target::At);
        tree.descend(target, 0, &guard).high.map(Fence::to_vec)
    }

    /// Gives space back: merges leaves that have become small, moves blocks to the front of the files, and cuts the
    /// files off.
    pub(crate) fn compact(&self, ids: Option<&[TableId]>, goes_on: GoesOn<'_>) -> Result<MaintenanceReport> {
        let tables = match ids {
            None => self.catalog.live_tables(None)?,
            Some(ids) => ids.iter().map(|id| self.catalog.live(*id)).collect::<Result<_>>()?,
        };
        let _compaction = self.relocator.begin_compaction();
        let file_bytes = || self.store.stats().total.file_bytes;
        let before = file_bytes();
        let result = self.compact_tables(&tables, goes_on);
        // Whatever has come of it, what stays is used again.
        self.store.plan_relocation(Urgency::Background);
        result?;
        Ok(MaintenanceReport {
            bytes_freed: before.saturating_sub(file_bytes()),
            ..MaintenanceReport::default()
        })
    }

    fn compact_tables(&self, tables: &[Arc<Table>], goes_on: GoesOn<'_>) -> Result<()> {
        let file_bytes = || self.store.stats().total.file_bytes;
        for table in tables {
            self.merge_small_leaves(&table.tree, goes_on)?;
        }
        // What was given up is free after the next checkpoint, and cut off with the one after.
        let checkpoint_twice = || {
            for _ in 0..2 {
                self.check(goes_on)?;
                self.checkpointer.checkpoint(true)?;
            }
            self.check(goes_on)
        };
        checkpoint_twice()?;
        let (mut least, mut idle_rounds) = (file_bytes(), 0);
        for _ in 0..COMPACT_ROUNDS_MAX {
            if self.store.plan_relocation(Urgency::Compact) == 0 {
                break;
            }
            self.relocator.relocate(goes_on)?;
            checkpoint_twice()?;
            // Blocks that fit nowhere before the end take turns there: two rounds make the file as it was.
            idle_rounds = if file_bytes() < least { 0 } else { idle_rounds + 1 };
            least = least.min(file_bytes());
            if idle_rounds == 2 {
                break;
            }
        }
        Ok(())
    }

    /// Merges neighbours that together fill less than a leaf.
    fn merge_small_leaves(&self, tree: &Arc<Tree>, goes_on: GoesOn<'_>) -> Result<()> {
        let mut from: Option<Vec<u8>> = None;
        loop {
            self.check(goes_on)?;
            let target = from.as_deref().map_or(Target::First, Target::At);
            let step = {
                let guard = rcu::pin();
                let descent = tree.descend(target, 0, &guard);
                let high = descent.high.map(Fence::to_vec);
                match descent.child {
                    Child::Leaf(leaf) => NextLeaf::Leaf(leaf.clone(), high),
                    Child::OnDisk { address, level } => NextLeaf::Load(*address, *level),
                    Child::Nothing => return Ok(()),
                    Child::Inner(_) => unreachable!("a way down ends at a leaf or on disk"),
                }
            };
            match step {
                NextLeaf::Load(address, level) => {
                    self.pages
                        .bring_in(tree, target, address, level, LoadRows::WantedInOrder)?;
                }
                NextLeaf::Leaf(leaf, None) => {
                    self.consolidator.shed_undo(tree, &leaf);
                    return Ok(());
                }
                NextLeaf::Leaf(leaf, Some(high)) => {
                    let base = leaf.view.load(&rcu::pin()).base.clone();
                    if let Base::OnDisk(address) = base {
                        self.pages.bring_base_in(tree, &leaf, address, None)?;
                        continue;
                    }
                    self.consolidator.shed_undo(tree, &leaf);
                    if !self.merge_with_next(tree, &leaf, &high)? {
                        from = Some(high);
                    }
                }
            }
        }
    }

    /// Merges a leaf with the one that begins at `high`; false when they are too large, or not mergeable now.
    fn merge_with_next(&self, tree: &Arc<Tree>, leaf: &Arc<Leaf>, high: &[u8]) -> Result<bool> {
        let small = |leaf: &Leaf| {
            let guard = rcu::pin();
            let state = leaf.state.lock();
            let view = leaf.view.load(&guard);
            (!view.retired).then(|| view.rows_at_most(&state))
        };
        let target = tree.shape.leaf_bytes;
        if small(leaf).is_none_or(|rows| rows > target / 2) {
            return Ok(false);
        }
        let next = loop {
            let guard = rcu::pin();
            match tree.descend(Target::At(high), 0, &guard).child {
                Child::Leaf(next) => {
                    let next = next.clone();
                    let Base::OnDisk(address) = next.view.load(&guard).base.clone() else {
                        break next;
                    };
                    drop(guard);
                    self.pages.bring_base_in(tree, &next, address, None)?;
                }
                Child::OnDisk { address, level } => {
                    let (address, level) = (*address, *level);
                    drop(guard);
                    self.pages
                        .bring_in(tree, Target::At(high), address, level, LoadRows::WantedInOrder)?;
                }
                Child::Nothing => return Ok(false),
                Child::Inner(_) => unreachable!("a way down ends at a leaf or on disk"),
            }
        };
        let total = small(leaf).zip(small(&next)).map(|(a, b)| a + b);
        if total.is_none_or(|total| total > target * 3 / 4) {
            return Ok(false);
        }
        Ok(self.structure.merge(tree, leaf, &next))
    }
}

enum NextLeaf {
    Leaf(Arc<Leaf>, Option<Vec<u8>>),
    Load(BlockAddr, u8),
}

/// What is wrong with the range of a leaf's keys.
pub(crate) fn outside(image: &LeafImage, low: Option<&[u8]>, high: Option<&[u8]>) -> Option<String> {
    let last = image.len().checked_sub(1)?;
    if low.is_some_and(|low| image.key(0).cmp(low).is_lt()) {
        return Some("a leaf holds a key below its range".to_owned());
    }
    if high.is_some_and(|high| image.key(last).cmp(high).is_ge()) {
        return Some("a leaf holds a key above its range".to_owned());
    }
    None
}

impl Upkeep {
    /// See [`engine::Engine::table_stats`].
    pub(crate) fn table_stats(&self, id: TableId) -> Result<TableStats> {
        let table = self.catalog.live(id)?;
        let on_disk = table.tree.disk_bytes.load(Ordering::Relaxed);
        let stats = self.store.stats();
        let volume = stats
            .volumes
            .iter()
            .find(|(volume, _)| *volume == table.tree.shape.volume);
        // Free space is the volume's; a table's share of it goes by its size.
        let free = volume.map_or(0, |(_, volume)| {
            let used = volume.used_bytes.max(1);
            (u128::from(volume.free_bytes) * u128::from(on_disk) / u128::from(used)) as u64
        });
        let free = free.min(on_disk);
        Ok(TableStats {
            storage_bytes: on_disk + free,
            free_bytes: free,
            memory_bytes: table.tree.memory_bytes.load(Ordering::Relaxed),
        })
    }
}
