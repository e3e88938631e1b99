//! How readers wait for what others write and sync, and what they cannot read.

use super::{Log, WAIT_SLICE};
use crate::{LogError, LogMode, Result};
use engine::Seq;
use std::sync::Arc;
use vfs::{Registration, Waker};

impl Log {
    /// Damaged places, each a `Corrupt`, that were stepped over at opening, as the engine has what stood there. Readers
    /// that come to one fail.
    pub fn damages(&self) -> &[LogError] {
        &self.shared.damages
    }

    /// Damage that was stepped over may have held a hard state, or entries of a term that is not known: who decides
    /// with others must not go on with this log.
    pub fn may_lack_consensus(&self) -> bool {
        self.shared.may_lack_consensus
    }

    /// Has `waker` called when more is on disk than now.
    pub fn call_when_durable(&self, waker: &Arc<Waker>) -> Result<Registration> {
        if self.shared.mode == LogMode::Off {
            return Err(LogError::NoJournal);
        }
        let place = self.shared.wait_list.enter(waker);
        self.shared.check_open()?;
        Ok(place)
    }

    /// Waits until an entry behind `seq` is on disk, as long as `go_on` says; false when that ended it.
    pub fn wait_beyond(&self, seq: Seq, go_on: &dyn Fn() -> bool) -> Result<bool> {
        let shared = &*self.shared;
        if shared.mode == LogMode::Off {
            return Err(LogError::NoJournal);
        }
        let served = || self.durable_seq() > seq;
        loop {
            if served() {
                return Ok(true);
            }
            shared.check_open()?;
            let Some(ticket) = shared.waiters.enter_reading(seq.next(), served) else {
                return Ok(true);
            };
            if !shared.waiters.sleep(ticket, served, || !go_on(), Some(WAIT_SLICE)) {
                return Ok(false);
            }
        }
    }
}
