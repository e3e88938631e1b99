//! What holds at every moment, whatever the network and the disks do.

use super::disk::LogEntry;
use bytes::Bytes;
use engine::Seq;
use std::collections::BTreeMap;

/// What is known of the whole set, and no member knows.
#[derive(Default)]
pub struct Checks {
    /// By term.
    leaders: BTreeMap<u64, u64>,
    /// What has been committed by anybody.
    pub committed: Vec<LogEntry>,
    /// What clients were told is safe.
    acknowledged: Vec<(Seq, Bytes)>,
}

/// A sentence of what does not hold.
pub type Broken = String;

impl Checks {
    /// Election safety, and leader completeness: a term has one leader, whose log has all that was committed before.
    pub fn elected(&mut self, id: u64, term: u64, log: &[LogEntry]) -> Result<(), Broken> {
        let first = *self.leaders.entry(term).or_insert(id);
        if first != id {
            return Err(format!("{first} and {id} lead in term {term}"));
        }
        if !log.starts_with(&self.committed) {
            return Err(format!(
                "leader {id} of term {term} lacks some of {} committed",
                self.committed.len()
            ));
        }
        Ok(())
    }

    /// A member says that its entries `from..=to` are committed: nobody said otherwise, and what is new is on the disks
    /// of a majority, as `has_majority` finds.
    pub fn committed(
        &mut self,
        id: u64,
        (from, to): (Seq, Seq),
        log: &[LogEntry],
        has_majority: impl Fn(Seq, &LogEntry) -> bool,
    ) -> Result<(), Broken> {
        for seq in from.0..=to.0 {
            let Some(entry) = log.get(seq as usize - 1) else {
                return Err(format!("{id} commits {seq}, of which its log has nothing"));
            };
            match self.committed.get(seq as usize - 1) {
                Some(known) if known == entry => {}
                Some(known) => {
                    return Err(format!(
                        "{id} commits {entry:?} at {seq}, where {known:?} was committed"
                    ));
                }
                None => {
                    if !has_majority(Seq(seq), entry) {
                        return Err(format!("{id} commits {seq}, which no majority has on disk"));
                    }
                    self.committed.push(entry.clone());
                }
            }
        }
        Ok(())
    }

    /// A client is told that its write is safe.
    pub fn acknowledged(&mut self, seq: Seq, bytes: Bytes) -> Result<(), Broken> {
        self.acknowledged.push((seq, bytes.clone()));
        match self.committed.get(seq.0 as usize - 1) {
            Some(entry) if entry.bytes == bytes => Ok(()),
            other => Err(format!(
                "{bytes:?} is acknowledged at {seq:?}, where {other:?} is committed"
            )),
        }
    }

    /// At the end a member has all that anybody was told is safe.
    pub fn complete(&self, id: u64, log: &[LogEntry]) -> Result<(), Broken> {
        for (seq, bytes) in &self.acknowledged {
            if log.get(seq.0 as usize - 1).is_none_or(|entry| entry.bytes != *bytes) {
                return Err(format!("{id} has lost {bytes:?} at {seq:?}"));
            }
        }
        Ok(())
    }

    /// Writes that were acknowledged.
    pub fn acknowledgements(&self) -> usize {
        self.acknowledged.len()
    }

    /// Terms that had a leader.
    pub fn terms(&self) -> usize {
        self.leaders.len()
    }
}
