//! Salvage: what can still be read of a damaged store, put into a fresh one in its place.
//!
//! 1. `walk`: follow the newest whole superblock to the table of tables and down every tree; what cannot be read leaves
//!    a gap, a range of keys. 2. `find`: one pass over all files for leaves of the gaps' owners, the newest first, none
//!    that overlaps one taken before. 3. Load the rows into a fresh store beside the old one, with the old one's tables
//!    and mark, and verify it. 4. `exchange`: put it in the old one's place, the old files aside.
//!
//! Nothing is written to the damaged files, and they are never removed. A large value of which a piece is gone loses
//! its row.
//!
//! Invariant: rows outside of gaps are exactly the checkpoint's. Rows in gaps come from leaves of this store that held
//! them once; they may be older or newer than the checkpoint, and the report says where.

mod exchange;
mod find;
mod report;
mod saved;
#[cfg(test)]
mod tests;
mod walk;

pub(crate) use exchange::finish as finish_exchange;
pub use report::{LostRange, SalvageReport, TableSalvage};

use crate::directory::RootAddress;
use crate::directory::{self, DIRECTORY};
use crate::tree::Child;
use crate::{BtreeEngine, BtreeOptions};
use blocks::{SalvageReader, VolumeId};
use engine::{Batch, CloseMode, Engine, EngineError, Maintenance, Result, Seq, TableId, TableSpec};
use find::FoundLeaves;
use saved::SavedRows;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use vfs::Env;
use walk::{Gap, SalvagedRows, SalvagedTree};

/// Sentences of a failed check that an error quotes.
const PROBLEMS_QUOTED: usize = 3;

/// A table as its row says.
struct OldTable {
    spec: TableSpec,
    tree: SalvagedTree,
    created: Seq,
}

/// A fresh store beside the damaged one. Nothing of that has changed yet.
pub struct SalvagedStore {
    env: Env,
    directory: PathBuf,
    unfinished: PathBuf,
    finished: PathBuf,
    report: SalvageReport,
}

impl SalvagedStore {
    /// What was kept and what was lost.
    pub fn report(&self) -> &SalvageReport {
        &self.report
    }

    /// Puts it in the damaged one's place. The old files stay beside it, see [`SalvageReport::kept`].
    ///
    /// A crash leaves the damaged store, or the result: [`BtreeEngine::open`] completes an exchange that was cut short.
    pub fn put_in_place(mut self) -> Result<SalvageReport> {
        self.report.kept = exchange::exchange(&self.env, &self.directory, &self.unfinished, &self.finished)?;
        Ok(self.report)
    }

    /// Gives it up, and its room back.
    pub fn discard(self) -> Result<()> {
        exchange::remove(&self.env, &self.unfinished)
    }
}

impl BtreeEngine {
    /// Rebuilds what is readable of the store in `directory` into a fresh one beside it, for
    /// [`SalvagedStore::put_in_place`]. Nobody may have the store open. Needs room for a second store on the same file
    /// system, and reads every block two or three times. After an error it has given that room back.
    ///
    /// The durable mark of the result is that of the checkpoint whose trees were followed. Where no superblock is whole
    /// it is not known ([`SalvageReport::mark_is_known`]), and the log must not be replayed onto the result.
    ///
    /// Errors: `Invalid` when there is no store, `Io` and `OutOfSpace` when the fresh store cannot be written; damage
    /// is no error.
    pub fn salvage(env: &Env, directory: &Path, options: BtreeOptions) -> Result<SalvagedStore> {
        exchange::finish(env, directory)?;
        let reader = SalvageReader::open(env, directory)?;
        if reader.is_empty() {
            return Err(EngineError::Invalid {
                operation: "salvage",
                reason: format!("{} holds no file of a store", directory.display()),
            });
        }
        let root = reader.roots().first().cloned();
        let mut report = SalvageReport {
            checkpoint: root.as_ref().map(|root| root.number),
            ..SalvageReport::default()
        };
        let said = root.as_ref().and_then(|root| directory::decode_root(&root.root));
        let (first, index) = said.map_or((None, None), |said| (Some(said.directory), said.saved));
        let mut saved = SavedRows::read(&reader, index);
        report.saved_blocks_lost = saved.blocks_lost;
        let tables = read_directory(&reader, first, &mut report);
        let gaps: Vec<Gap> = tables
            .iter()
            .flat_map(|table| walk::gaps(&reader, &table.tree))
            .collect();
        let known: BTreeSet<u32> = tables.iter().map(|table| table.tree.owner.0).collect();
        let found = if gaps.is_empty() && !report.directory_is_damaged() {
            FoundLeaves::default()
        } else {
            let found = FoundLeaves::scan(&reader, &gaps);
            let unknown = found.owners.iter().filter(|(owner, _)| !known.contains(owner));
            report.ownerless = unknown.map(|(owner, seen)| (TableId(*owner), seen.leaves)).collect();
            found
        };
        // What nobody can tell is at least as new as the newest table.
        let created = tables.iter().map(|table| table.created).max().unwrap_or(Seq::ZERO);
        report.mark_is_known = root.is_some();
        report.durable = root.map_or(created, |root| Seq(root.seq).max(created));
        let (unfinished, finished) = exchange::names(directory)?;
        exchange::make_empty(env, &unfinished)?;
        let loaded = load(
            env,
            &unfinished,
            options,
            &reader,
            &tables,
            &found,
            &mut saved,
            &mut report,
        );
        if loaded.is_err() {
            // A failure of this is no other one to tell: the next salvage begins with it.
            let _ = exchange::remove(env, &unfinished);
        }
        loaded?;
        Ok(SalvagedStore {
            env: env.clone(),
            directory: directory.to_owned(),
            unfinished,
            finished,
            report,
        })
    }
}

/// The tables, by id, those that were dropped left out.
fn read_directory(reader: &SalvageReader, directory: Option<Child>, report: &mut SalvageReport) -> Vec<OldTable> {
    let root = match directory {
        Some(Child::OnDisk { address, level }) => walk::Root::At(RootAddress { address, level }),
        Some(_) => walk::Root::NoRows,
        None => walk::Root::Unknown,
    };
    let tree = SalvagedTree {
        owner: DIRECTORY,
        volume: VolumeId::MAIN,
        root,
    };
    let gaps = walk::gaps(reader, &tree);
    let found = if gaps.is_empty() {
        FoundLeaves::default()
    } else {
        FoundLeaves::scan(reader, &gaps)
    };
    let mut rows = SalvagedRows::new(reader, &tree, &found);
    let mut tables = Vec::new();
    while let Some((key, value)) = rows.next() {
        let id = key.try_into().map(u32::from_be_bytes).map(TableId);
        let decoded = id.ok().and_then(|id| Some((id, directory::decode(&value)?)));
        let Some((id, row)) = decoded else {
            report.bad_directory_rows += 1;
            continue;
        };
        // An older row leads to an older tree. Where that was written since, its newest leaves are better.
        let newest = found.owners.get(&id.0).map_or(0, |seen| seen.newest);
        let is_outdated = rows.replaced().is_some_and(|checkpoint| checkpoint < newest);
        if !row.is_dropped {
            tables.push(OldTable {
                tree: SalvagedTree {
                    owner: id,
                    volume: row.volume,
                    root: match row.root {
                        _ if is_outdated => walk::Root::Unknown,
                        Some(root) => walk::Root::At(root),
                        None => walk::Root::NoRows,
                    },
                },
                created: row.created,
                spec: row.spec,
            });
        }
    }
    report.directory_ranges = rows.into_ranges();
    tables
}

/// Fills a fresh store, and closes it.
#[expect(
    clippy::too_many_arguments,
    reason = "one step of `salvage`, split off for its length"
)]
fn load(
    env: &Env,
    directory: &Path,
    options: BtreeOptions,
    reader: &SalvageReader,
    tables: &[OldTable],
    found: &FoundLeaves,
    saved: &mut SavedRows,
    report: &mut SalvageReport,
) -> Result<()> {
    let fresh = BtreeEngine::open(env, directory, options)?;
    if report.durable > Seq::ZERO {
        let mut batch = Batch::new();
        for table in tables {
            batch.create_table(table.tree.owner, table.spec.clone());
        }
        fresh.apply(&batch, report.durable)?;
        for table in tables {
            let mut rows = SalvagedRows::new(reader, &table.tree, found);
            let mut all = saved.over(table.tree.owner, rows.by_ref());
            let count = fresh.bulk_load(table.tree.owner, &mut all, report.durable)?;
            report.tables.push(TableSalvage {
                id: table.tree.owner,
                name: table.spec.name.clone(),
                kind: table.spec.kind,
                rows: count,
                values_lost: rows.values_lost,
                ranges: rows.into_ranges(),
            });
        }
        fresh.publish(report.durable);
        fresh.checkpoint()?;
    }
    let problems = fresh.maintain(&Maintenance::Verify(None))?.problems;
    if !problems.is_empty() {
        let quoted: Vec<&str> = problems.iter().take(PROBLEMS_QUOTED).map(String::as_str).collect();
        return Err(EngineError::Corrupt {
            path: directory.to_owned(),
            offset: 0,
            reason: format!("the fresh store is damaged itself: {}", quoted.join("; ")),
        });
    }
    fresh.close(CloseMode::Checkpoint)
}
