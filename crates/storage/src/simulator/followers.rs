//! Who reads the log as history: every unit once, in order, or that the log does not reach back so far.

use super::model::{Change, Unit};
use super::run::Simulator;
use super::{Checked, Violation, ensure};
use crate::testing::ns;
use crate::{
    ClusterTime, HistoryChange, HistoryExtent, HistoryOperation, HistoryReader, HistoryUnit, Seq, StorageError,
};
use bson::{Document, RawDocument};

/// Goes on where it stopped, over restarts.
pub(super) struct Follower {
    extent: HistoryExtent,
    position: u64,
    time: ClusterTime,
    reader: Option<HistoryReader>,
}

impl Follower {
    pub(super) fn all() -> Vec<Self> {
        let of = |extent| Self {
            extent,
            position: 1,
            time: ClusterTime::default(),
            reader: None,
        };
        [HistoryExtent::Durable, HistoryExtent::Applied, HistoryExtent::Durable]
            .map(of)
            .into()
    }

    pub(super) fn position(&self) -> u64 {
        self.position
    }

    pub(super) fn rest(&mut self) {
        self.reader = None;
    }

    /// Only what no crash takes back was told to who reads durable history.
    pub(super) fn restart(&mut self, found: u64) -> Checked {
        if self.extent == HistoryExtent::Durable {
            ensure!(
                self.position <= found + 1,
                "history was told up to {}, found is {found}",
                self.position - 1
            );
        } else if self.position > found + 1 {
            (self.position, self.time) = (found + 1, ClusterTime::default());
        }
        Ok(())
    }
}

impl Simulator {
    pub(super) fn follow(&mut self) -> Checked {
        let place = self.pick(self.followers.len() as u64) as usize;
        let (units, rests) = (self.pick(20), self.pick(8));
        let storage = self.storage();
        let from = self.followers[place].position;
        self.say(format_args!(" {place} from {from}"));
        for _ in 0..units {
            let follower = &mut self.followers[place];
            let reader = follower
                .reader
                .get_or_insert_with(|| storage.history(Seq(follower.position), follower.extent));
            let next = reader.next_unit();
            let end = reader.end().0;
            match next {
                Ok(Some(unit)) => {
                    self.told(place, &unit)?;
                    self.figures.told += 1;
                }
                Ok(None) => {
                    self.check_end(place, end)?;
                    break;
                }
                Err(StorageError::HistoryLost) => {
                    self.lost(place)?;
                    break;
                }
                Err(error) => return self.failed(&error),
            }
        }
        let follower = &mut self.followers[place];
        match (&mut follower.reader, rests) {
            (reader, 0) => *reader = None,
            (Some(reader), 1) => reader.rest(),
            _ => {}
        }
        let to = follower.position;
        self.say(format_args!(" to {to}"));
        Ok(())
    }

    /// The next units that a follower is to be told, definitions with leave: not each of their entries tells something.
    fn told(&mut self, place: usize, unit: &HistoryUnit) -> Checked {
        let follower = &mut self.followers[place];
        ensure!(
            unit.time > follower.time,
            "history of {:?} is of {:?}, after {:?}",
            unit.seq,
            unit.time,
            follower.time
        );
        let (from, seq) = (follower.position, unit.seq.0);
        ensure!(seq >= from, "history goes back to {seq}, {from} is next");
        (follower.position, follower.time) = (seq + 1, unit.time);
        let start = self.model.log.partition_point(|unit| unit.seq < from);
        for expected in self.model.log.range(start..) {
            if expected.first > seq {
                break;
            }
            if expected.seq == seq && !expected.is_definition() {
                return compare(expected, unit);
            }
            ensure!(
                expected.is_definition(),
                "history leaves {} out, and goes on at {seq}",
                expected.seq
            );
            if seq <= expected.seq {
                break;
            }
        }
        // Definitions, and the entries that terms begin with.
        let is_of_server = unit.operations.iter().all(|operation| {
            matches!(
                operation.change,
                HistoryChange::Command { .. } | HistoryChange::Note { .. }
            )
        });
        ensure!(is_of_server, "nobody did what history tells of {seq}: {unit:?}");
        Ok(())
    }

    /// Nothing is told: then there is nothing.
    fn check_end(&self, place: usize, end: u64) -> Checked {
        let follower = &self.followers[place];
        let start = self.model.log.partition_point(|unit| unit.seq < follower.position);
        let mut behind = self.model.log.range(start..);
        let left = behind.find(|unit| unit.seq <= end && !unit.is_definition());
        ensure!(left.is_none(), "history ends at {end}, and has not told {left:?}");
        Ok(())
    }

    fn lost(&mut self, place: usize) -> Checked {
        self.say(" lost");
        self.figures.history_lost += 1;
        let first = self.storage().log().first_seq().0;
        let follower = &mut self.followers[place];
        ensure!(
            follower.position < first,
            "history from {} on is said to be lost, the log begins at {first}",
            follower.position
        );
        follower.reader = None;
        let next = self.model.log.iter().find(|unit| unit.first >= first);
        follower.position = next.map_or(self.acknowledged + 1, |unit| unit.first.min(self.acknowledged + 1));
        Ok(())
    }
}

fn document(bytes: &[u8]) -> Option<Document> {
    Document::try_from(RawDocument::from_bytes(bytes).ok()?).ok()
}

/// History tells what was done, under the names of then.
fn compare(expected: &Unit, unit: &HistoryUnit) -> Checked {
    let told: Vec<_> = expected
        .changes
        .iter()
        .filter(|change| !matches!(change, Change::Remove { evicted: true, .. }))
        .collect();
    let seq = unit.seq;
    ensure!(
        told.len() == unit.operations.len(),
        "history of {seq:?} has {} changes, there were {}",
        unit.operations.len(),
        told.len()
    );
    for (change, operation) in told.into_iter().zip(&unit.operations) {
        let fits = fits(expected, change, operation);
        ensure!(
            fits.unwrap_or(false),
            "history of {seq:?} tells {operation:?}, it was {change:?}"
        );
    }
    let session = unit
        .session
        .map(|session| (session.id[0], session.txn_number, session.is_transaction));
    let wanted = expected.session.as_ref();
    let wanted = wanted.map(|of| (of.session, of.number, of.is_transaction));
    ensure!(
        session == wanted,
        "history of {seq:?} is of {session:?}, it was {wanted:?}"
    );
    Ok(())
}

/// `None` when something is missing.
fn fits(expected: &Unit, change: &Change, operation: &HistoryOperation) -> Option<bool> {
    let (Change::Put { coll, .. } | Change::Remove { coll, .. }) = change else {
        return Some(false);
    };
    let (name, keeps_images) = expected.names.get(coll)?;
    if operation.ns.as_ref() != Some(&ns(name)) {
        return Some(false);
    }
    let (before, after) = operation.images().ok()?;
    let was = match change {
        Change::Put { was, .. } => was.as_ref(),
        Change::Remove { was, .. } => Some(was),
        _ => None,
    };
    let wanted = was.filter(|_| *keeps_images).map(|was| was.bytes.as_bytes());
    if before.as_deref() != wanted {
        return Some(false);
    }
    let key = |bytes: &[u8]| document(bytes)?.get_i32("_id").ok();
    Some(match (change, &operation.change) {
        (Change::Put { doc, was: None, .. }, HistoryChange::Insert { document }) => {
            document.as_ref() == doc.bytes.as_bytes()
        }
        (Change::Put { doc, was: Some(_), .. }, HistoryChange::Replace { document, .. }) => {
            document.as_ref() == doc.bytes.as_bytes()
        }
        (
            Change::Put {
                doc, was: Some(was), ..
            },
            HistoryChange::Update {
                key: told, difference, ..
            },
        ) => {
            let made = crate::diff::apply(difference, was.bytes.as_bytes()).ok()?;
            let same = |bytes: &[u8]| document(bytes) == document(doc.bytes.as_bytes());
            key(told) == Some(doc.id) && same(&made) && after.is_none_or(|after| same(&after))
        }
        (Change::Remove { was, .. }, HistoryChange::Delete { key: told, .. }) => key(told) == Some(was.id),
        _ => false,
    })
}

impl From<StorageError> for Violation {
    fn from(error: StorageError) -> Self {
        Self(error.to_string())
    }
}
