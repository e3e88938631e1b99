//! Who waits for the log to be durable, and who flushes next.
//!
//! One thread flushes at a time: the leader. Whoever wants an entry to be durable and finds no leader becomes it
//! ([`Waiters::enter`]); everybody else goes on the list, with the entry wanted, and sleeps. A leader that ends
//! ([`Lead::leave`]) takes off the list, and wakes, exactly those whose entries are durable and one of the rest, who
//! leads next.
//!
//! Nobody is forgotten, because leadership, the list and the choice of the next leader change under one mutex: a thread
//! that goes to sleep has seen a leader that has not yet left, and that one will see it on the list. `Shared::durable`
//! is raised before the leader takes the mutex. Hence the invariant: with the mutex free, somebody leads, or a thread
//! that was taken off the list in order to lead has not run yet, or no thread on the list wants to lead. Whoever was
//! taken off and does not lead after all (its wait was ended) hands the turn on ([`Waiters::pass_on`]).

use engine::Seq;
use rcu::Mutex;
use rcu::thread::{self, Thread};
use std::time::Duration;

/// A place on the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticket(u64);

/// What [`Waiters::enter`] makes of a thread.
pub(crate) enum Turn<'w> {
    /// It leads until it calls [`Lead::leave`].
    Lead(Lead<'w>),
    /// It is on the list and has to sleep.
    Sleep(Ticket),
    /// There is nothing to wait for.
    Served,
}

/// Whether a sleeper flushes when it is its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// It wants its entry durable, by its own hand if need be.
    Writer,
    /// It waits for what others make durable.
    Reader,
}

struct Sleeper {
    ticket: Ticket,
    /// Awake when this entry is durable.
    seq: Seq,
    role: Role,
    thread: Thread,
}

#[derive(Default)]
struct State {
    led: bool,
    last_ticket: u64,
    /// In the order of their coming.
    sleepers: Vec<Sleeper>,
}

/// See the module.
#[derive(Default)]
pub(crate) struct Waiters {
    state: Mutex<State>,
}

impl State {
    fn list(&mut self, seq: Seq, role: Role) -> Ticket {
        self.last_ticket += 1;
        let ticket = Ticket(self.last_ticket);
        debug_assert!(self.sleepers.iter().all(|sleeper| sleeper.ticket != ticket));
        self.sleepers.push(Sleeper {
            ticket,
            seq,
            role,
            thread: thread::current(),
        });
        ticket
    }

    fn take_served(&mut self, durable: Seq) -> Vec<Sleeper> {
        self.sleepers.extract_if(.., |sleeper| sleeper.seq <= durable).collect()
    }

    fn end_turn(&mut self) {
        debug_assert!(self.led, "only the leader leaves");
        self.led = false;
    }

    /// The one that has waited longest, so that nobody is left behind for ever.
    fn take_next_leader(&mut self) -> Option<Sleeper> {
        let index = self.sleepers.iter().position(|sleeper| sleeper.role == Role::Writer)?;
        Some(self.sleepers.remove(index))
    }
}

/// Wakes threads that are off the list. With no lock held: the first thing they do may be to take it.
fn wake(sleepers: impl IntoIterator<Item = Sleeper>) {
    for sleeper in sleepers {
        sleeper.thread.unpark();
    }
}

impl Waiters {
    /// The caller wants `seq` durable. `served` tells whether it is, and is asked under the lock: a leader makes it
    /// true before it leaves.
    pub fn enter(&self, seq: Seq, served: impl Fn() -> bool) -> Turn<'_> {
        let mut state = self.state.lock();
        if served() {
            // Even if it was taken off the list to lead: somebody else did, and has chosen or will choose the next one.
            return Turn::Served;
        }
        if state.led {
            return Turn::Sleep(state.list(seq, Role::Writer));
        }
        state.led = true;
        Turn::Lead(Lead(self))
    }

    /// The caller wants to be woken when `seq` is durable; `None` when it is.
    pub fn enter_reading(&self, seq: Seq, served: impl Fn() -> bool) -> Option<Ticket> {
        let mut state = self.state.lock();
        (!served()).then(|| state.list(seq, Role::Reader))
    }

    /// Sleeps until taken off the list or `served`; `over` is asked every `slice` and ends the wait. False when it did.
    pub fn sleep(
        &self,
        ticket: Ticket,
        served: impl Fn() -> bool,
        over: impl Fn() -> bool,
        slice: Option<Duration>,
    ) -> bool {
        let _asleep = vfs::asleep();
        loop {
            match slice {
                None => thread::park(),
                Some(slice) => thread::park_timeout(slice),
            }
            // A thread may be unparked for what it did before: the list decides. Those that were served need not look.
            if served() || !self.is_listed(ticket) {
                return true;
            }
            if over() {
                if !self.withdraw(ticket) {
                    // It was taken off meanwhile, perhaps to lead.
                    self.pass_on();
                }
                return false;
            }
        }
    }

    fn is_listed(&self, ticket: Ticket) -> bool {
        self.state
            .lock()
            .sleepers
            .iter()
            .any(|sleeper| sleeper.ticket == ticket)
    }

    /// Takes the caller off the list; false when somebody did.
    fn withdraw(&self, ticket: Ticket) -> bool {
        let mut state = self.state.lock();
        let before = state.sleepers.len();
        state.sleepers.retain(|sleeper| sleeper.ticket != ticket);
        state.sleepers.len() < before
    }

    /// The caller was taken off the list to lead, and will not: another one shall.
    fn pass_on(&self) {
        let mut state = self.state.lock();
        let next = if state.led { None } else { state.take_next_leader() };
        drop(state);
        wake(next);
    }

    /// Wakes everybody: the log failed or is closed.
    pub fn wake_all(&self) {
        let all = std::mem::take(&mut self.state.lock().sleepers);
        wake(all);
    }
}

/// The right to flush. Dropping it, after an error or in a panic, wakes everybody: they have to hear of it.
pub(crate) struct Lead<'w>(&'w Waiters);

impl Lead<'_> {
    /// The leader goes on, and has brought entries up to `durable` to disk: wakes those who wait for them.
    pub fn served(&self, durable: Seq) {
        let served = self.0.state.lock().take_served(durable);
        wake(served);
    }

    /// The leader is done: wakes those it has served, and one of the rest to lead.
    pub fn leave(self, durable: Seq) {
        let mut state = self.0.state.lock();
        state.end_turn();
        let served = state.take_served(durable);
        let next = state.take_next_leader();
        drop(state);
        wake(served.into_iter().chain(next));
        std::mem::forget(self);
    }
}

impl Drop for Lead<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.end_turn();
        let all = std::mem::take(&mut state.sleepers);
        drop(state);
        wake(all);
    }
}
