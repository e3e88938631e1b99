//! What a member of a replica set must not forget, kept among the entries.

use super::{Log, SEQ_NEVER};
use crate::format::{HARD_STATE_BYTES, HardState};
use crate::{LogError, LogMode, Result};
use engine::Seq;
use std::sync::atomic::Ordering;

impl Log {
    /// Keeps a hard state; on return it is on disk, with everything appended before. Every later segment begins with
    /// the newest one, so that purging does not lose it. Errors: those of [`Log::wait_durable`].
    pub fn write_state(&self, state: HardState) -> Result<()> {
        // The commit position never falls: one may have been written down apart.
        self.change_state(&mut |known| {
            let commit = known.map_or(state.commit, |known| known.commit.max(state.commit));
            Some(HardState { commit, ..state })
        })
    }

    /// Keeps that entries up to `commit` stay, beside term and vote as they are kept. Nothing where no hard state was
    /// ever written. Errors as [`Log::write_state`].
    pub fn write_commit(&self, commit: Seq) -> Result<()> {
        self.change_state(&mut |known| {
            known
                .filter(|known| known.commit < commit)
                .map(|known| HardState { commit, ..known })
        })
    }

    /// Keeps what `change` makes of the newest state, unless that is nothing.
    fn change_state(&self, change: &mut dyn FnMut(Option<HardState>) -> Option<HardState>) -> Result<()> {
        let shared = &*self.shared;
        if shared.mode == LogMode::Off {
            return Err(LogError::NoJournal);
        }
        let (number, last) = {
            let mut buffer = shared.buffer.lock();
            shared.check_open()?;
            let mut newest = shared.hard_state.lock();
            let Some(state) = change(*newest) else { return Ok(()) };
            let appended = shared.states_appended.load(Ordering::Relaxed);
            // On a full disk it is asked for again and again, and one that waits is enough.
            let waits = *newest == Some(state) && shared.states_durable.load(Ordering::Acquire) < appended;
            if !waits {
                buffer.push_state(&state);
                *newest = Some(state);
                shared.buffered.fetch_add(HARD_STATE_BYTES, Ordering::Relaxed);
                shared.states_appended.store(appended + 1, Ordering::Relaxed);
            }
            (appended + u64::from(!waits), shared.last_seq())
        };
        // Entries may be taken back meanwhile.
        let served = || {
            let is_kept = shared.states_durable.load(Ordering::Acquire) >= number;
            is_kept && shared.durable_seq() >= last.min(shared.last_seq())
        };
        // No entry stands for a state: whoever waits for one is woken when it is its turn to lead.
        shared.flush_until(SEQ_NEVER, &served, None)
    }

    /// The hard state written last, if any ever was.
    pub fn hard_state(&self) -> Option<HardState> {
        *self.shared.hard_state.lock()
    }
}
