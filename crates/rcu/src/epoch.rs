//! Pinning the current epoch.
//!
//! The schedule checker runs all threads of a test on one thread of the system, which would be one participant of the
//! epochs: a guard of any of them would protect all. With the feature `shuttle` each checked thread is therefore a
//! participant of its own, in a collector that outlives the test's executions.

pub use crossbeam_epoch::Guard;

#[cfg(not(feature = "shuttle"))]
mod real {
    use crossbeam_epoch::{Collector, Guard, LocalHandle};
    use std::cell::RefCell;
    use std::mem::ManuallyDrop;
    use std::rc::Rc;
    use std::sync::OnceLock;

    static COLLECTOR: OnceLock<Collector> = OnceLock::new();

    std::thread_local! {
        static PARTICIPANT: LocalHandle = register();
        /// The participant of a thread whose own has gone, while it is pinned for the first time. Nothing in it is
        /// dropped with the thread, so that it can be used until the thread's very end.
        static LAST: ManuallyDrop<RefCell<Option<Rc<LocalHandle>>>> = const { ManuallyDrop::new(RefCell::new(None)) };
    }

    fn register() -> LocalHandle {
        COLLECTOR.get_or_init(Collector::new).register()
    }

    /// Whether this thread has a guard.
    #[inline]
    pub fn is_pinned() -> bool {
        PARTICIPANT.try_with(LocalHandle::is_pinned).unwrap_or(false)
    }

    /// Pins the current epoch for this thread.
    #[inline]
    pub fn pin() -> Guard {
        PARTICIPANT
            .try_with(LocalHandle::pin)
            .unwrap_or_else(|_| pin_at_the_end())
    }

    /// A thread that is ending has no participant any more, and may still drop cells. A new participant frees garbage
    /// when it is pinned for the first time, of which the cells' drops pin again: by the same participant, which then
    /// frees nothing, or they would go as deep as there is garbage.
    #[cold]
    fn pin_at_the_end() -> Guard {
        LAST.with(|last| {
            let used = last.borrow().clone();
            if let Some(participant) = used {
                return participant.pin();
            }
            let participant = Rc::new(register());
            last.replace(Some(participant.clone()));
            let guard = participant.pin();
            last.replace(None);
            guard
        })
    }
}

#[cfg(not(feature = "shuttle"))]
pub use real::{is_pinned, pin};

#[cfg(feature = "shuttle")]
mod checked {
    use crossbeam_epoch::{Collector, Guard, LocalHandle};
    use std::mem::ManuallyDrop;

    std::thread_local! {
        /// Never dropped: what it still has to free belongs to executions that are over.
        static COLLECTOR: ManuallyDrop<Collector> = ManuallyDrop::new(Collector::new());
    }

    shuttle::thread_local! {
        static PARTICIPANT: LocalHandle = register();
    }

    fn register() -> LocalHandle {
        COLLECTOR.with(|collector| collector.register())
    }

    /// Whether the checked thread has a guard.
    pub fn is_pinned() -> bool {
        PARTICIPANT.try_with(LocalHandle::is_pinned).unwrap_or(false)
    }

    /// Pins the current epoch for the checked thread.
    pub fn pin() -> Guard {
        // A thread that is ending has no participant any more, and may still drop cells.
        PARTICIPANT
            .try_with(LocalHandle::pin)
            .unwrap_or_else(|_| register().pin())
    }
}

#[cfg(feature = "shuttle")]
pub use checked::{is_pinned, pin};

/// A point where the schedule checker may switch threads; nothing at all without it.
#[inline(always)]
pub fn schedule_point() {
    #[cfg(feature = "shuttle")]
    {
        // Not a yield: schedulers that have priorities take a yield as a wish to come last.
        use shuttle::sync::atomic::{AtomicBool, Ordering};
        AtomicBool::new(false).load(Ordering::SeqCst);
    }
}

/// Lets other threads run, for who waits for one of them.
pub fn yield_now() {
    #[cfg(feature = "shuttle")]
    shuttle::thread::yield_now();
    #[cfg(not(feature = "shuttle"))]
    std::thread::yield_now();
}
