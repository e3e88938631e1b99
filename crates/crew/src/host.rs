//! What a crew asks of its owner.

use crate::Turn;
use std::io::Result;
use std::sync::Arc;
use std::time::Duration;

/// What a thread has waited for.
#[derive(Debug)]
pub enum Event {
    /// A connection has something to say. Each time it was armed one thread is told once.
    Ready(u64),
    /// Nothing came for a while.
    Nothing,
    /// [`Host::wake`] or [`Host::call`] was called, or the wait was interrupted: wait again unless all ends.
    Interrupted,
    /// Waiting does not work, and [`Host`] knows.
    Failed,
}

/// Why a thread lets go of a connection.
#[derive(Debug)]
pub enum Leave<R> {
    /// Nothing came for a while.
    Quiet,
    /// Its request waits for its turn, and [`Turn::resume`] was told when that comes.
    Held,
    /// Its request comes behind all that are due.
    Later,
    /// It is over, for this reason.
    Over(R),
}

/// Connections, and how to wait for them.
pub trait Host: Send + Sync + 'static {
    /// A connection, owned by the thread that serves it or by the set of quiet ones.
    type Connection: Send + 'static;
    /// The part of it that other threads may look at.
    type Shared: Send + Sync + 'static;
    /// What a thread keeps from one connection to the next.
    type Worker: Default;
    /// Why a connection is over.
    type Reason;

    /// The part of a connection that others may look at.
    fn shared(&self, connection: &Self::Connection) -> Arc<Self::Shared>;

    /// From now on one thread in [`Host::wait`] is told, once, when the connection has something to say, or has had
    /// before. `first` is true when it was never armed. It may be served before this returns.
    fn arm(&self, key: u64, shared: &Self::Shared, first: bool) -> Result<()>;

    /// Waits for a connection.
    fn wait(&self) -> Event;

    /// As [`Host::wait`], but answers at once.
    fn look(&self) -> Event;

    /// Ends the wait of one thread, or the next one.
    fn call(&self);

    /// Ends every wait, now and from now on.
    fn wake(&self);

    /// Serves a connection until it is quiet or over.
    fn serve(
        &self,
        worker: &mut Self::Worker,
        connection: &mut Self::Connection,
        turn: &Turn<'_, Self>,
    ) -> Leave<Self::Reason>
    where
        Self: Sized;

    /// Time goes by while connections are held: called several times a second.
    fn tick(&self);

    /// Makes [`Host::serve`] end soon, from another thread.
    fn interrupt(&self, shared: &Self::Shared);

    /// Called each second for a connection that was interrupted and is served still.
    fn press(&self, shared: &Self::Shared);

    /// A connection is over. Without a reason the crew ended it.
    fn ended(&self, connection: &mut Self::Connection, reason: Option<Self::Reason>);

    /// A thread could not be started; the others go on.
    fn no_thread(&self, error: &std::io::Error, threads: usize);

    /// Processor time that this process has used.
    fn processor_time(&self) -> Duration;

    /// Time that only rises.
    fn now(&self) -> Duration;
}
