//! Faults that tests put into this crate on purpose, to see that the simulator finds them.
//!
//! The code asks by `mutated!`, which is `false` outside of this crate's own tests. A switch holds for one thread.

/// Whether the fault is switched on. Nothing but `false` outside of tests.
#[cfg(not(test))]
macro_rules! mutated {
    ($name:ident) => {
        false
    };
}

#[cfg(test)]
macro_rules! mutated {
    ($name:ident) => {
        $crate::mutations::is_on($crate::mutations::Mutation::$name)
    };
}

pub(crate) use mutated;

#[cfg(test)]
pub(crate) use switches::*;

#[cfg(test)]
mod switches {
    use std::cell::Cell;

    /// A fault.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) enum Mutation {
        /// Durability is acknowledged before the log is synced.
        AcknowledgesEarly,
        /// What is proposed is forgotten before it is applied.
        ForgetsPending,
        /// Recovery applies a chain's entries though its end never came.
        AppliesPartialChains,
        /// What a session's statements came to is not written down.
        ForgetsSessions,
        /// The log is recycled before the checkpoint has what it tells.
        RecyclesEarly,
        /// The log is recycled though the counts since are told by nothing else.
        RecyclesCounts,
        /// A change leaves its pre-image out.
        LosesPreImages,
        /// A deleted document stays in its indexes.
        KeepsIndexRows,
        /// Rows of clustering indexes keep the document of before where the key stays.
        KeepsCarriedDocuments,
        /// Readers of durable history are shown what a crash may take back.
        ShowsUndurable,
        /// A transaction changes what somebody else has changed since it began.
        MissesConflicts,
    }

    thread_local! {
        static ON: Cell<Option<Mutation>> = const { Cell::new(None) };
    }

    pub(crate) fn is_on(mutation: Mutation) -> bool {
        ON.get() == Some(mutation)
    }

    /// Switches a fault on in this thread until it is dropped.
    pub(crate) struct Switched;

    impl Switched {
        pub(crate) fn on(mutation: Mutation) -> Self {
            ON.set(Some(mutation));
            Self
        }
    }

    impl Drop for Switched {
        fn drop(&mut self) {
            ON.set(None);
        }
    }
}
