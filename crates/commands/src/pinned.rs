//! Reads of one moment outside of transactions (`readConcern: {level: "snapshot"}`): a session's reads name the time
//! that its first one was told. So that they find it, states that were read are kept for a while.

use crate::error::{CommandError, Result};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::time::Duration;
use storage::{ClusterTime, PinnedView, Storage};
use wire::ErrorCode;

/// A state is kept for so long after it was last asked for: each keeps history in the engine.
const KEPT_FOR: Duration = Duration::from_secs(60);
/// Attempts to take a state while nothing is written. After them the state may show a write that is later than its
/// time.
const TRIES_MAX: u32 = 1000;
/// More states are not kept; the oldest goes.
const KEPT_MAX: usize = 64;

/// A state of all data.
#[derive(Clone)]
pub struct PinnedState {
    /// What is read.
    pub view: PinnedView,
    /// The time by which clients name it.
    pub time: ClusterTime,
}

/// Those that are kept, by their time.
#[derive(Default)]
pub struct PinnedStates {
    states: Mutex<BTreeMap<ClusterTime, (PinnedView, Duration)>>,
}

impl PinnedStates {
    /// The state of a time that was told to a client, or the newest one.
    ///
    /// # Errors
    /// `SnapshotTooOld`, when it is not kept any more; `InvalidOptions` for a time to come.
    pub fn at(&self, storage: &Storage, time: Option<ClusterTime>, now: Duration) -> Result<PinnedState> {
        let mut states = self.states.lock();
        let newest = storage.newest().time;
        let time = time.unwrap_or(newest);
        if time > newest {
            return Err(CommandError::new(
                ErrorCode::InvalidOptions,
                "readConcern atClusterTime value must not be greater than the current clusterTime",
            ));
        }
        if let Some((view, used)) = states.get_mut(&time) {
            *used = now;
            let view = view.clone();
            return Ok(PinnedState { view, time });
        }
        if time < newest {
            return Err(CommandError::new(
                ErrorCode::SnapshotTooOld,
                "Read timestamp is older than the oldest available timestamp",
            ));
        }
        // The newest: between two looks at which state that is, as long as others write.
        let mut tries = 0;
        let (view, time) = loop {
            let before = storage.newest();
            let view = storage.read_pinned()?;
            tries += 1;
            if storage.newest() == before || tries == TRIES_MAX {
                break (view, before.time);
            }
        };
        while states.len() >= KEPT_MAX {
            states.pop_first();
        }
        states.insert(time, (view.clone(), now));
        Ok(PinnedState { view, time })
    }

    /// Gives up what nobody has asked for in a while.
    pub fn expire(&self, now: Duration) {
        self.states
            .lock()
            .retain(|_, (_, used)| now.saturating_sub(*used) < KEPT_FOR);
    }
}
