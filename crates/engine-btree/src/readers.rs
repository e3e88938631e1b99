//! Who reads at which position: the published one, open snapshots, and what leaves keep for them.
//!
//! All positions are taken and given back here, so that what waits for one to go (eviction, history) learns of it.

use crate::cache::PageCache;
use crate::history::History;
use crate::history_file::HistoryFile;
use engine::Seq;
use pins::{Holder, Horizon, Pin, Pins};
use std::cell::RefCell;
use std::sync::Arc;

rcu::thread_local! {
    static HORIZON: RefCell<Horizon> = RefCell::new(Horizon::default());
}

/// See the module.
pub(crate) struct Readers {
    pins: Pins,
    cache: Arc<PageCache>,
    history: History,
}

impl Readers {
    /// `durable` is published, and nobody reads.
    pub(crate) fn new(durable: Seq, cache: Arc<PageCache>, file: Arc<HistoryFile>) -> Self {
        Self {
            pins: Pins::new(durable),
            history: History::new(cache.clone(), file),
            cache,
        }
    }

    pub(crate) fn history(&self) -> &History {
        &self.history
    }

    /// Takes the published position.
    #[inline]
    pub(crate) fn pin(&self, holder: Holder) -> Pin {
        self.pins.pin(holder)
    }

    /// Gives a position back.
    #[inline]
    pub(crate) fn unpin(&self, pin: Pin) {
        let (seq, holder) = (pin.seq(), pin.holder());
        self.pins.unpin(pin);
        if holder == Holder::Engine {
            self.history.set_floor(false);
        }
        if self.cache.gave_up_at(seq) && seq < self.pins.published() {
            self.cache.budget().set_floor(None);
        }
    }

    #[inline]
    pub(crate) fn is_expired(&self, pin: &Pin) -> bool {
        self.pins.is_expired(pin)
    }

    /// Ends the oldest snapshot that may be ended; `None` when there is none.
    pub(crate) fn expire_oldest(&self) -> Option<Seq> {
        self.pins.expire_oldest()
    }

    /// No work of the engine's own, such as a checkpoint, stands below this position, now or later.
    pub(crate) fn oldest_of_engine(&self) -> Seq {
        self.pins.oldest_of_engine()
    }

    #[inline]
    pub(crate) fn publish(&self, seq: Seq) {
        self.pins.publish(seq);
    }

    #[inline]
    pub(crate) fn published(&self) -> Seq {
        self.pins.published()
    }

    /// The oldest position of any reader, or the published one.
    pub(crate) fn oldest(&self) -> Seq {
        self.pins.oldest()
    }

    /// The published position, and the oldest one that is held, one holder at `own` left out.
    pub(crate) fn oldest_but(&self, own: Option<Seq>) -> (Seq, Seq) {
        self.pins.oldest_but(own)
    }

    /// Brings a horizon up to date.
    pub(crate) fn update(&self, horizon: &mut Horizon) {
        self.pins.update(horizon);
    }

    /// As [`Readers::update`], where that is cheap or worth it.
    #[inline]
    pub(crate) fn refresh(&self, horizon: &mut Horizon) {
        self.pins.refresh(horizon);
    }

    /// Number of open snapshots, and the oldest one's position.
    pub(crate) fn open(&self) -> (usize, Option<Seq>) {
        self.pins.open()
    }

    /// Calls `work` with the published position and those of open snapshots.
    pub(crate) fn with_positions<R>(&self, work: impl FnOnce(Seq, &[Seq]) -> R) -> R {
        HORIZON.with(|horizon| {
            let horizon = &mut *horizon.borrow_mut();
            self.pins.update(horizon);
            work(horizon.published(), horizon.open())
        })
    }
}
