//! Step 2: every leaf whose image is not good for the checkpoint's position.

use super::saved::KeptDeltas;
use super::{Run, UNIT_PAGES};
use crate::leaf::Leaf;
use crate::saved_deltas::SavedPages;
use crate::tables::Table;
use crate::tree::Tree;
use crate::write_back::{Need, PageWriter, Written};
use engine::Result;
use std::sync::Arc;

/// Leaves of one tree that one worker writes.
struct Unit<'t> {
    tree: &'t Arc<Tree>,
    leaves: Vec<Arc<Leaf>>,
    /// Changes may be saved beside images. Not of a table that was dropped: the next start gives its blocks back.
    may_save: bool,
}

impl Run<'_> {
    /// Writes the leaves of these tables that are listed as dirty.
    pub(super) fn write_dirty_leaves(&self, tables: &[&Arc<Table>]) -> Result<()> {
        let mut units: Vec<Unit<'_>> = Vec::new();
        let mut all: Vec<(&Arc<Tree>, Vec<Arc<Leaf>>)> = Vec::new();
        // By id, as the pages of saved deltas want their keys.
        let mut tables = tables.to_vec();
        tables.sort_unstable_by_key(|table| table.id.0);
        for table in tables {
            let mut leaves = table.tree.take_dirty();
            for leaf in &leaves {
                leaf.state.lock().listed = false;
            }
            leaves.sort_unstable_by(|a, b| a.low.cmp(&b.low));
            all.push((&table.tree, leaves.clone()));
            let mut leaves = leaves.into_iter().peekable();
            while leaves.peek().is_some() {
                units.push(Unit {
                    tree: &table.tree,
                    leaves: leaves.by_ref().take(UNIT_PAGES).collect(),
                    may_save: self.may_save && table.lives_at(self.position.seq),
                });
            }
        }
        // Small trees share a writer: a page each for thousands of tables makes few long runs.
        let mut groups: Vec<Vec<Unit<'_>>> = Vec::new();
        let mut room = 0;
        for unit in units {
            if room < unit.leaves.len() || groups.is_empty() {
                groups.push(Vec::new());
                room = UNIT_PAGES;
            }
            room = room.saturating_sub(unit.leaves.len());
            groups.last_mut().expect("just pushed").push(unit);
        }
        let keeps = KeptDeltas::new(self.parts.cache.budget().kept_deltas_max());
        let result = self.parts.in_parallel(groups, |group| {
            let mut writer = self.parts.write_back.writer();
            let mut saved = SavedPages::default();
            for Unit {
                tree,
                mut leaves,
                may_save,
            } in group
            {
                leaves.retain(|leaf| !(may_save && self.save_delta(tree, leaf, &keeps, &mut saved)));
                for leaf in &leaves {
                    self.parts.pages.expect_base(tree, leaf);
                }
                for leaf in leaves {
                    match writer.write(tree, &leaf, Need::Checkpoint)? {
                        Written::Done | Written::Retired => {}
                        Written::Busy => mark_place(tree, &leaf),
                        Written::Unreadable => self.save_unreadable(tree, &leaf, &mut saved)?,
                    }
                }
            }
            self.write_saved(saved, &mut writer)
        });
        // Whatever has changes beyond what is on disk stays listed; those that are saved only count when the next
        // checkpoint begins, as they are no reason for one.
        for (tree, leaves) in all {
            for leaf in leaves {
                let state = leaf.state.lock();
                let is_dirty = !state.is_clean();
                let is_saved = state.is_saved_for(self.position);
                let retired = leaf.view.load(&rcu::pin()).retired;
                drop(state);
                if is_dirty && !retired && is_saved {
                    self.parts.saved_deltas.add_leaf(tree.clone(), leaf);
                } else if is_dirty && !retired {
                    self.parts.catalog.list(tree, &leaf);
                }
            }
        }
        result
    }

    /// Writes leaves of one tree on the caller's thread.
    pub(super) fn write_leaves(&self, tree: &Arc<Tree>, leaves: Vec<Arc<Leaf>>, need: Need) -> Result<()> {
        let mut writer = self.parts.write_back.writer();
        let mut leaves = leaves.into_iter();
        while let Some(leaf) = leaves.next() {
            leaf.state.lock().listed = false;
            let written = match writer.write(tree, &leaf, need) {
                Ok(written) => written,
                Err(error) => {
                    // Those that were not reached stay listed.
                    self.parts.catalog.list(tree, &leaf);
                    tree.dirty.lock().leaves.extend(leaves);
                    return Err(error);
                }
            };
            match written {
                Written::Done | Written::Retired => {}
                Written::Busy => mark_place(tree, &leaf),
                Written::Unreadable => self.tell_unreadable(tree, &leaf)?,
            }
            let state = leaf.state.lock();
            let is_dirty = !state.is_clean();
            drop(state);
            if written != Written::Retired && is_dirty {
                self.parts.catalog.list(tree, &leaf);
            }
        }
        writer.flush()
    }

    /// Writes leaves that the checkpoint lacks, and flushes.
    pub(super) fn write_for_checkpoint(
        &self,
        tree: &Arc<Tree>,
        leaves: &[Arc<Leaf>],
        writer: &mut PageWriter<'_>,
    ) -> Result<()> {
        let mut saved = SavedPages::default();
        for leaf in leaves {
            match writer.write(tree, leaf, Need::Checkpoint)? {
                Written::Done | Written::Retired => {}
                // Another worker publishes it in a moment.
                Written::Busy => rcu::yield_now(),
                Written::Unreadable => self.save_unreadable(tree, leaf, &mut saved)?,
            }
        }
        self.write_saved(saved, writer)
    }
}

/// Somebody else is writing a leaf: the inner nodes above it are looked at, which waits until that is done. What gets
/// to disk may not be what the checkpoint needs.
pub(super) fn mark_place(tree: &Tree, leaf: &Leaf) {
    let guard = rcu::pin();
    let _structure = tree.structure.lock();
    tree.mark_path(&leaf.low, &guard);
}
