//! Collections and indexes come, go and change their names.

use super::model::{Change, Uid, Unit};
use super::run::{INDEXES, NAMES, Simulator, spec_of};
use super::{Checked, ensure};
use crate::testing::ns;
use crate::{Seq, StorageError};
use std::collections::{BTreeMap, BTreeSet};

impl Simulator {
    /// Definitions wait until nobody uses the collections, and for what is proposed. `None` when they would wait for
    /// ever; else the log's last entry.
    pub(super) fn before_definition(&mut self, collections: &[Uid], entries: u64) -> Checked<Option<Seq>> {
        let is_used = |uid: &Uid| self.open.iter().flatten().any(|open| open.used.contains(uid));
        if collections.iter().any(is_used) {
            self.say(" in use");
            return Ok(None);
        }
        let may_go_on = self.settle(entries)?;
        Ok(may_go_on.then(|| self.storage().log().last_seq()))
    }

    /// Takes note of what a definition came to.
    pub(super) fn defined(&mut self, before: Seq, result: Result<(), StorageError>, changes: Vec<Change>) -> Checked {
        let last = self.storage().log().last_seq();
        if let Err(error) = &result {
            self.failed(error)?;
            // What failed half-way through is in the log, perhaps not as a whole.
            if last == before {
                return Ok(());
            }
        }
        ensure!(last > before, "a definition left no entry");
        self.say(format_args!(" @{}", last.0));
        self.figures.units += 1;
        self.model.push(Unit {
            first: before.0 + 1,
            seq: last.0,
            changes,
            session: None,
            names: BTreeMap::new(),
        });
        self.model.publish(self.storage().last_seq().0);
        Ok(())
    }

    pub(super) fn define(&mut self) -> Checked {
        let Some(uid) = self.some_collection()? else {
            return Ok(());
        };
        let name = self.coll(uid).name;
        match self.pick(10) {
            0..2 => {
                let Some(before) = self.before_definition(&[uid], 1)? else {
                    return Ok(());
                };
                self.say(format_args!(" drop {name}"));
                let result = self.storage().drop_collection(&self.op(), &ns(name));
                self.defined(before, result.map(drop), vec![Change::Drop(uid)])
            }
            2..4 => self.rename(uid, name),
            4..8 => self.create_index(uid, name),
            _ => {
                let index = INDEXES[self.pick(3) as usize];
                if !self.coll(uid).indexes.contains(index) {
                    return Ok(());
                }
                let Some(before) = self.before_definition(&[uid], 1)? else {
                    return Ok(());
                };
                self.say(format_args!(" drop {index} of {name}"));
                let result = self.storage().drop_index(&self.op(), &ns(name), index);
                self.defined(before, result.map(drop), vec![Change::DropIndex(uid, index)])
            }
        }
    }

    fn rename(&mut self, uid: Uid, name: &'static str) -> Checked {
        let to = NAMES[self.pick(3) as usize];
        if name == NAMES[3] || to == name {
            return Ok(());
        }
        let target = self.model.newest.find(to).map(|(uid, _)| uid);
        let concerned: Vec<_> = [uid].into_iter().chain(target).collect();
        let Some(before) = self.before_definition(&concerned, 1)? else {
            return Ok(());
        };
        self.say(format_args!(" rename {name} {to}"));
        let result = self.storage().rename_collection(&self.op(), &ns(name), &ns(to), true);
        let gone = target.map(Change::Drop);
        let changes = gone.into_iter().chain([Change::Rename(uid, to)]).collect();
        self.defined(before, result, changes)
    }

    fn create_index(&mut self, uid: Uid, name: &'static str) -> Checked {
        let index = INDEXES[self.pick(3) as usize];
        if self.coll(uid).indexes.contains(index) {
            return Ok(());
        }
        let mut keys = BTreeSet::new();
        let mut unique = self.coll(uid).docs.values().filter_map(|doc| doc.u);
        let has_duplicates = index == "u_1" && !unique.all(|u| keys.insert(u));
        // It begins, takes chunks, and ends.
        let chunks = 1 + self.coll(uid).docs.len() as u64 / crate::limits::BUILD_CHUNK_DOCUMENTS as u64;
        let Some(before) = self.before_definition(&[uid], 2 + chunks)? else {
            return Ok(());
        };
        self.say(format_args!(" index {index} of {name}"));
        let result = self.storage().create_indexes(&self.op(), &ns(name), &[spec_of(index)]);
        match result {
            Err(StorageError::DuplicateKey(_)) => {
                ensure!(has_duplicates, "{index} of {name} failed, and there are no duplicates");
                self.say(" duplicates");
                Ok(())
            }
            Ok(_) => {
                ensure!(!has_duplicates, "{index} of {name} was made over duplicates");
                self.defined(before, Ok(()), vec![Change::CreateIndex(uid, index)])
            }
            Err(StorageError::OutOfSpace(reason)) => self.index_not_built(before, reason, uid, index),
            Err(error) => self.defined(before, Err(error), vec![Change::CreateIndex(uid, index)]),
        }
    }

    /// The disk had no room for an index. One that was begun is given up, unless there is no room for that either.
    fn index_not_built(&mut self, before: Seq, reason: String, uid: Uid, index: &'static str) -> Checked {
        let name = self.coll(uid).name;
        let found = self.storage().catalog().collection(&ns(name));
        let is_there = found.as_ref().is_some_and(|found| found.index(index).is_some());
        let is_begun = found.is_some_and(|found| !found.building_indexes().is_empty());
        let mut changes = Vec::new();
        if is_there || is_begun {
            changes.push(Change::CreateIndex(uid, index));
        }
        if !is_begun {
            return self.defined(before, Err(StorageError::OutOfSpace(reason)), changes);
        }
        self.failed(&StorageError::OutOfSpace(reason))?;
        // A server gives it up later. Here the next start ends it, as if the last of its entries had been lost.
        self.say(" begun");
        self.model.push(Unit {
            first: before.0 + 1,
            seq: self.storage().log().last_seq().0 + 1,
            changes,
            session: None,
            names: BTreeMap::new(),
        });
        self.is_down = true;
        Ok(())
    }
}
