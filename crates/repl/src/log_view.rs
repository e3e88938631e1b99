//! The log as consensus sees it.

use bytes::Bytes;
use engine::Seq;
use oplog::HardState;
use raft::eraftpb::{ConfState, Entry, Snapshot};
use raft::{GetEntriesContext, RaftState, StorageError};

/// A driver's log: where it begins and ends, and the terms of its entries. Read on the thread that drives the member,
/// and so never from disk for long.
pub trait LogView {
    /// The first entry that is kept; one more than [`LogView::last`] if there is none.
    fn first(&self) -> Seq;

    /// The last entry, on disk or not.
    fn last(&self) -> Seq;

    /// The term of an entry, from the one on that was before [`LogView::first`] when the member started: terms outlive
    /// the entries that the log recycles.
    ///
    /// # Errors
    /// A sentence: the log could not be read. A member that cannot tell its own terms must not vote, and panics; but
    /// for those of entries that the log keeps no more when it has answered ([`LogView::first`]).
    fn term(&self, seq: Seq) -> Result<u64, String>;

    /// Hands over what the entries from `from` on say, up to `to` and not that one, as many as fit into `bytes_max` and
    /// one at least. Who does not fills messages in when they leave ([`crate::Message::fill`]).
    ///
    /// # Errors
    /// A sentence: the log could not be read, as of [`LogView::term`].
    fn read(&self, _from: Seq, _to: Seq, _bytes_max: u64, _put: &mut dyn FnMut(Bytes)) -> Result<(), String> {
        Ok(())
    }
}

/// What the state machine reads: of the log only what it has been told of.
pub(crate) struct View<L> {
    pub log: L,
    /// The first entry when the member started. Not the log's own, which can rise between two looks of the state
    /// machine.
    pub first: Seq,
    /// The last entry that it knows. A leader's log may have more.
    pub last: Seq,
    /// What was kept from before.
    pub state: HardState,
    /// Who votes.
    pub voters: Vec<u64>,
    /// Who is sent the log besides.
    pub learners: Vec<u64>,
}

impl<L: LogView> View<L> {
    fn term_of(&self, seq: u64) -> raft::Result<u64> {
        if seq + 1 < self.first.0 {
            return Err(StorageError::Compacted.into());
        }
        if seq > self.last.0 {
            return Err(StorageError::Unavailable.into());
        }
        let term = self.log.term(Seq(seq));
        term.map_err(|error| self.unreadable(seq, error))
    }

    /// An entry could not be read.
    fn unreadable(&self, seq: u64, error: String) -> raft::Error {
        let error = match seq < self.log.first().0 {
            true => StorageError::Compacted,
            false => StorageError::Other(error.into()),
        };
        raft::Error::Store(error)
    }
}

impl<L: LogView> raft::Storage for View<L> {
    fn initial_state(&self) -> raft::Result<RaftState> {
        let mut state = raft::eraftpb::HardState::default();
        state.set_term(self.state.term);
        state.set_vote(self.state.vote);
        state.set_commit(self.state.commit.0);
        let members = ConfState::from((self.voters.clone(), self.learners.clone()));
        Ok(RaftState::new(state, members))
    }

    /// Places and terms, and for a message what the entries say: only those have to be in the log still.
    fn entries(
        &self,
        low: u64,
        high: u64,
        max_size: impl Into<Option<u64>>,
        context: GetEntriesContext,
    ) -> raft::Result<Vec<Entry>> {
        let for_a_message = context.can_async();
        if for_a_message && low < self.log.first().0 {
            return Err(StorageError::Compacted.into());
        }
        let max_size = max_size.into();
        let mut said = Vec::new();
        if for_a_message && high > low {
            let bytes_max = max_size.unwrap_or(u64::MAX);
            let read = self
                .log
                .read(Seq(low), Seq(high), bytes_max, &mut |bytes| said.push(bytes));
            read.map_err(|error| self.unreadable(low, error))?;
        }
        let high = match said.len() as u64 {
            0 => high,
            count => high.min(low + count),
        };
        let mut entries = Vec::new();
        let mut said = said.into_iter();
        for index in low..high {
            let mut entry = Entry::default();
            entry.set_index(index);
            entry.set_term(self.term_of(index)?);
            entry.data = said.next().unwrap_or_default();
            entries.push(entry);
        }
        raft::util::limit_size(&mut entries, max_size);
        Ok(entries)
    }

    fn term(&self, index: u64) -> raft::Result<u64> {
        self.term_of(index)
    }

    fn first_index(&self) -> raft::Result<u64> {
        Ok(self.first.0)
    }

    fn last_index(&self) -> raft::Result<u64> {
        Ok(self.last.0)
    }

    /// A member whose entries are no longer in any log starts over with a copy of the data, which is not consensus.
    fn snapshot(&self, _request_index: u64, _to: u64) -> raft::Result<Snapshot> {
        Err(StorageError::SnapshotTemporarilyUnavailable.into())
    }
}
