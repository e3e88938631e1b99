//! States that somebody waits for by their time: reads of one moment that another member has shown, on one that lags.
//!
//! Whoever waits says so, passes through the mutex `applying`, and looks there whether it is the newest state just now
//! ([`Storage::await_state`]). Whoever applies the entry of that time later takes the state behind it, before the next
//! one is applied.

use crate::cluster_time::ClusterTime;
use crate::pinned::PinnedView;
use crate::storage::Storage;
use parking_lot::Mutex;
use std::sync::Arc;

/// A place among those who wait for a state, left when this is dropped.
pub struct AwaitedState<'s> {
    storage: &'s Storage,
    time: ClusterTime,
    number: u64,
    view: Arc<Mutex<Option<PinnedView>>>,
}

impl Storage {
    /// From here on the state of a time is taken as it comes by, or now, if it is the newest. Where it has gone by,
    /// that is told by what is applied.
    pub fn await_state(&self, time: ClusterTime) -> AwaitedState<'_> {
        let view = Arc::new(Mutex::new(None));
        let (me, kept) = (self.me.clone(), view.clone());
        let take = Arc::new(move || {
            // Who waits is told that there is none.
            *kept.lock() = me.upgrade().and_then(|storage| storage.read_pinned().ok());
        });
        let number = self.awaited_times.enter(time, take);
        let place = AwaitedState {
            storage: self,
            time,
            number,
            view,
        };
        // On a busy secondary the mutex may be waited for while the entry passes by: so it is taken behind the place.
        // Whoever applied that entry just before may not have seen the place; from here on everybody does.
        let applied = self.pipeline.applying.lock();
        if self.pipeline.published_time() == time {
            self.awaited_times.come(time);
        }
        drop(applied);
        place
    }
}

impl AwaitedState<'_> {
    /// The state, if its entry was applied since somebody has waited for it.
    pub fn view(&self) -> Option<PinnedView> {
        self.view.lock().clone()
    }
}

impl Drop for AwaitedState<'_> {
    fn drop(&mut self) {
        self.storage.awaited_times.leave(self.time, self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Machine;
    use bson::rawdoc;

    #[test]
    fn a_state_that_is_waited_for_is_that_behind_the_entry_of_its_time() {
        let machine = Machine::new(71);
        let storage = machine.open().unwrap();
        // Of entries that are written later than any clock shows the times follow each other.
        let seen = u64::from(u32::MAX) << 32;
        storage.saw_cluster_time(ClusterTime(seen));
        let [first, again, third, none] = [1, 1, 3, 9].map(|later| storage.await_state(ClusterTime(seen + later)));
        let written = [1_i32, 2, 3, 4].map(|n| storage.write_note(&rawdoc! { "n": n }).unwrap());
        drop(again);
        let seq_of = |awaited: &AwaitedState<'_>| awaited.view().map(|view| view.seq());
        assert_eq!(seq_of(&first), Some(written[0]));
        assert_eq!(seq_of(&third), Some(written[2]));
        assert_eq!(seq_of(&none), None);
        assert_eq!(storage.awaited_times.len(), 3);
        drop([first, third, none]);
        assert_eq!(storage.awaited_times.len(), 0);
        // Whoever comes late is not told of it, but for the newest one.
        assert_eq!(seq_of(&storage.await_state(ClusterTime(seen + 1))), None);
        assert_eq!(seq_of(&storage.await_state(ClusterTime(seen + 4))), Some(written[3]));
    }
}
