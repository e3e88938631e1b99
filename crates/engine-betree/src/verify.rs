//! Looking at everything: what verification asks, and the tests.

use crate::checkpoint::all_blocks;
use crate::core::{Core, KIND_FILTER, KIND_NODE, KIND_ROWS, VOLUME};
use crate::cursor::BetreeCursor;
use crate::directory::{self, DIRECTORY};
use crate::filter::{self, Filter};
use crate::node::{Child, Node, SegmentPlace, UnitRef};
use crate::run::{Key, Run};
use crate::snapshot::BetreeSnapshot;
use crate::table::Table;
use blocks::BlockAddr;
use engine::{
    Cursor, Direction, EngineError, FillLimits, KeyRange, MaintenanceReport, Result, Rows, TableId, check_wanted,
};
use std::sync::Arc;

/// Leaves of a table that are checked while its tree is held.
const LEAVES_A_STEP: usize = 32;

/// Checks every block of a table, or of all, and counts the rows.
pub(crate) fn verify(
    core: &Arc<Core>,
    table: Option<TableId>,
    goes_on: &dyn Fn() -> bool,
) -> Result<MaintenanceReport> {
    let snapshot = Arc::new(BetreeSnapshot::new(core));
    let tables = match table {
        Some(id) => vec![core.catalog.live(id)?],
        None => core.catalog.all(),
    };
    let mut report = MaintenanceReport::default();
    for table in tables.iter().filter(|table| table.lives_at(snapshot.position())) {
        walk(core, table, goes_on, &mut report.problems)?;
        match count_rows(&snapshot, table, goes_on) {
            Ok(rows) => report.rows_checked += rows,
            Err(error) => note(&mut report.problems, table.id, error)?,
        }
    }
    Ok(report)
}

/// Checks a table's blocks, a few leaves at a time: as long as a tree is held, none of what its table retires is given
/// back, and a large one takes hours.
fn walk(core: &Core, table: &Table, goes_on: &dyn Fn() -> bool, problems: &mut Vec<String>) -> Result<()> {
    let mut from = Key::from(&[][..]);
    loop {
        check_wanted(goes_on)?;
        let state = table.state();
        let Some(root) = &state.tree.root else {
            return Ok(());
        };
        let mut walk = Walk {
            core,
            table: table.id,
            problems: &mut *problems,
            blocks: None,
            from,
            leaves_left: LEAVES_A_STEP,
            next: None,
        };
        walk.node(root, None, &[], None)?;
        match walk.next {
            Some(next) => from = next,
            None => return Ok(()),
        }
    }
}

/// Damage, and what cannot be read, is a problem; everything else an error.
fn note(problems: &mut Vec<String>, table: TableId, error: EngineError) -> Result<()> {
    match error.is_of_disk() {
        true => {
            problems.push(format!("{table:?}: {error}"));
            Ok(())
        }
        false => Err(error),
    }
}

fn count_rows(snapshot: &Arc<BetreeSnapshot>, table: &Arc<Table>, goes_on: &dyn Fn() -> bool) -> Result<u64> {
    let mut cursor = BetreeCursor::new(snapshot.clone(), table.clone(), &KeyRange::all(), Direction::Forward);
    let mut rows = Rows::new();
    let mut count = 0;
    while cursor.fill(&mut rows, FillLimits::default())? {
        count += rows.len() as u64;
        check_wanted(goes_on)?;
    }
    Ok(count)
}

/// Reads a tree from disk, past the cache.
struct Walk<'w> {
    core: &'w Core,
    table: TableId,
    problems: &'w mut Vec<String>,
    /// Where every block is noted.
    blocks: Option<&'w mut Vec<BlockAddr>>,
    /// What lies below was checked before.
    from: Key,
    /// It ends after so many.
    leaves_left: usize,
    /// Where the next one begins; `None` at the end.
    next: Option<Key>,
}

impl Walk<'_> {
    fn note_blocks(&mut self, blocks: impl Iterator<Item = BlockAddr>) {
        if let Some(noted) = &mut self.blocks {
            noted.extend(blocks);
        }
    }

    fn problem(&mut self, unit: &UnitRef, what: &'static str) {
        let error = self.core.damage(unit, what);
        self.problems.push(format!("{:?}: {error}", self.table));
    }

    fn node(&mut self, child: &Child, height: Option<u8>, low: &[u8], high: Option<&[u8]>) -> Result<()> {
        self.core.status.check_running()?;
        let node = match child {
            Child::Memory(node) => node.clone(),
            Child::Disk(unit) => {
                self.note_blocks(unit.blocks());
                let raw = match self.core.read_unit(self.table, unit, KIND_NODE) {
                    Ok(raw) => raw,
                    Err(error) => return note(self.problems, self.table, error),
                };
                match Node::decode(&raw) {
                    Ok(node) if height.is_none_or(|height| node.height() == height) => Arc::new(node),
                    Ok(_) => {
                        self.problem(unit, "the height of a node");
                        return Ok(());
                    }
                    Err(damage) => {
                        self.problem(unit, damage);
                        return Ok(());
                    }
                }
            }
        };
        if let Err(damage) = node.check() {
            self.problems.push(format!(
                "{:?}: {damage} of a node in memory is not as it must be",
                self.table
            ));
        }
        match &*node {
            Node::Leaf(leaf) => {
                for (index, basement) in leaf.basements.iter().enumerate() {
                    let (low, high) = leaf.range(index, low, high);
                    self.run(&basement.unit, basement.entries, basement.bytes, low, high, true)?;
                }
                self.leaves_left -= 1;
                if self.leaves_left == 0 {
                    self.next = high.map(Key::from);
                }
            }
            Node::Inner(inner) => {
                for (index, slot) in inner.slots.iter().enumerate() {
                    let (low, high) = inner.range(index, low, high);
                    if self.next.is_some() {
                        return Ok(());
                    }
                    if high.is_some_and(|high| *high <= *self.from) {
                        continue;
                    }
                    // One that reaches down to before was checked with what was there.
                    let is_new = *low >= *self.from;
                    for segment in slot.buffer.iter().filter(|_| is_new) {
                        let SegmentPlace::Disk(unit) = &segment.place else {
                            self.problems
                                .push(format!("{:?}: a segment that was not written", self.table));
                            continue;
                        };
                        let run = self.run(unit, segment.entries, segment.bytes, low, high, false)?;
                        if let (Some(addr), Some(run)) = (&segment.filter, run) {
                            self.filter(addr, &run)?;
                        }
                    }
                    self.node(&slot.child, Some(inner.height - 1), low, high)?;
                }
            }
        }
        Ok(())
    }

    /// Rows of a basement or messages of a segment, which must lie in a range.
    fn run(
        &mut self,
        unit: &UnitRef,
        entries: u32,
        bytes: u32,
        low: &[u8],
        high: Option<&[u8]>,
        is_rows: bool,
    ) -> Result<Option<Run>> {
        self.note_blocks(unit.blocks());
        let raw = match self.core.read_unit(self.table, unit, KIND_ROWS) {
            Ok(raw) => raw,
            Err(error) => {
                note(self.problems, self.table, error)?;
                return Ok(None);
            }
        };
        let run = match Run::decode(raw.into()) {
            Ok(run) => run,
            Err(damage) => {
                self.problem(unit, damage);
                return Ok(None);
            }
        };
        if let Err(damage) = run.check_order() {
            self.problem(unit, damage);
        }
        if run.len() != entries as usize || run.raw().len() != bytes as usize {
            self.problem(unit, "the number of entries");
        }
        let is_inside = |key: &[u8]| key >= low && high.is_none_or(|high| key < high);
        if let Some(last) = run.len().checked_sub(1)
            && !(is_inside(run.key(0)) && is_inside(run.key(last)))
        {
            self.problem(unit, "the range of keys");
        }
        if is_rows && !run.tombstones().is_empty() {
            self.problem(unit, "a basement, which has tombstones,");
        }
        Ok(Some(run))
    }

    fn filter(&mut self, addr: &BlockAddr, run: &Run) -> Result<()> {
        let unit = UnitRef {
            first: *addr,
            rest: None,
        };
        self.note_blocks(unit.blocks());
        let raw = match self.core.read_unit(self.table, &unit, KIND_FILTER) {
            Ok(raw) => raw,
            Err(error) => return note(self.problems, self.table, error),
        };
        match Filter::decode(raw) {
            Err(damage) => self.problem(&unit, damage),
            Ok(filter) if (0..run.len()).any(|at| !filter.may_have(filter::hash(run.key(at)))) => {
                self.problem(&unit, "a filter, which lacks a key,");
            }
            Ok(_) => {}
        }
        Ok(())
    }
}

/// Compares what is marked as used with what trees, readers and loads have: a sentence for each difference.
/// Nobody may write meanwhile.
pub(crate) fn check_space(core: &Core) -> Result<Vec<String>> {
    let _alone = core.structure.write();
    core.free_unread();
    let mut blocks = Vec::new();
    for table in core.catalog.all().iter().chain([&core.directory]) {
        blocks.extend(all_blocks(core, table)?);
    }
    blocks.extend(core.retired.lock().blocks());
    let loads = core.loads.lock();
    let unfinished = loads.iter().filter(|load| !load.is_installed);
    blocks.extend(unfinished.flat_map(|load| load.blocks.iter().copied()));
    Ok(core.store.verify(blocks.into_iter().map(|addr| (VOLUME, addr))))
}

/// Reads all that the durable checkpoint refers to, from disk: a sentence for each block that is damaged or not
/// recorded as used, and for what is recorded in vain. No checkpoint may run meanwhile.
pub(crate) fn check_durable(core: &Arc<Core>) -> Result<Vec<String>> {
    let _no_checkpoint = core.checkpoint.lock();
    let Some(durable) = core.store.durable_root() else {
        return Ok(Vec::new());
    };
    let mut problems = Vec::new();
    let root = match directory::decode_root(&durable.root) {
        Ok(root) => root,
        Err(damage) => return Ok(vec![format!("{damage} is not as it must be")]),
    };
    let mut blocks = Vec::new();
    let mut roots: Vec<(TableId, UnitRef)> = root.iter().map(|root| (DIRECTORY, root.clone())).collect();
    let table = Arc::new(directory::table(root));
    for (key, row) in directory_rows(core, &table)? {
        match directory::decode_row(&key, &row) {
            Ok(table) => {
                if let Some(Child::Disk(unit)) = &table.state().tree.root {
                    roots.push((table.id, unit.clone()));
                }
            }
            Err(damage) => problems.push(format!("{damage} is not as it must be")),
        }
    }
    for (id, unit) in roots {
        let mut walk = Walk {
            core,
            table: id,
            problems: &mut problems,
            blocks: Some(&mut blocks),
            from: Key::from(&[][..]),
            leaves_left: usize::MAX,
            next: None,
        };
        walk.node(&Child::Disk(unit), None, &[], None)?;
    }
    problems.extend(core.store.verify_durable(blocks.into_iter().map(|addr| (VOLUME, addr))));
    Ok(problems)
}

/// All rows of a directory.
pub(crate) fn directory_rows(core: &Arc<Core>, table: &Arc<Table>) -> Result<Vec<(Key, Vec<u8>)>> {
    let snapshot = Arc::new(BetreeSnapshot::new(core));
    let mut cursor = BetreeCursor::new(snapshot, table.clone(), &KeyRange::all(), Direction::Forward);
    let mut rows = Rows::new();
    let mut all = Vec::new();
    while cursor.fill(&mut rows, FillLimits::default())? {
        all.extend((0..rows.len()).map(|at| (Key::from(rows.key(at)), rows.value(at).to_vec())));
    }
    Ok(all)
}
