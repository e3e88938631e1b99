//! Threads that all wait together, and serve what they are told of.
//!
//! A thread that is told takes the connection out of the quiet ones and serves it. When it finds itself the last one
//! that waited it calls another before it serves, so that a slow request never delays another connection: one that
//! *rests*, since enough waited when it came back, or a new one. Where as many work as processors have use for it
//! calls none, and those that work come back; whether they are held up the *keeper* finds out, a thread of its own, and
//! calls one at a time. Who sleeps, by its own account, does not count as working. Threads that rest or wait in vain
//! for a while end.
//!
//! A thread may stay with a connection and wait for what that says next, which saves two ways through the set, as long
//! as another one waits for all and there is no *crowd*: where more connections are busy than may have a thread of
//! their own, a few threads that never sleep serve them with less than many that do. A connection whose request waits
//! for its turn is *held*, without a thread; when it is resumed it is *due*, and served by the next thread that is
//! free. In a crowd a host may put a request behind those that are due at once ([`Leave::Later`]), after a look at what
//! it is: so what is urgent need not wait for all that came before it.
//!
//! Invariants: a connection is owned by one thread, or quiet, or held, or due, never two of them. While the crew works
//! at least one thread waits, or one comes back before long, unless the system refuses new threads. What was added and
//! is not over is in `quiet`, in `active`, in `held`, or on its way between them with a thread that looks at `ending`
//! after it has put it there.

use crate::{Event, Host, Leave};
use rcu::thread::{self, JoinHandle};
use rcu::{Condvar, Mutex};
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

/// Virtual size of a thread's stack: room for documents nested to the limit; only touched pages take memory.
const STACK_BYTES: usize = 2 * 1024 * 1024;
/// Threads that stay however long they wait.
const THREADS_MIN: usize = 2;
/// Who comes back while so many wait rests.
const WAITING_MAX: usize = 3;
/// How long a thread rests before it ends.
const REST: Duration = Duration::from_secs(5);
/// So many threads may stay with a connection of theirs.
const STAYING_MAX: usize = 64;
/// A thread looks at connections that it puts off, or that are over, for so long before it serves one that is due. None
/// is looked at twice, so that the looks end however many come.
const LOOKING_MAX: Duration = Duration::from_millis(10);
/// So many ticks nobody stays after one too many wanted to.
const TICKS_OF_CROWD: u32 = 20;
/// How long nobody may come back before the keeper starts a thread.
const KEEPER_TICK: Duration = Duration::from_millis(5);
/// After so many ticks in which nobody waited the keeper asks whether processors are idle: whether less than one part
/// in so many of their time was used.
const TICKS_OF_SHORTAGE: u32 = 4;
const IDLE_PART: u32 = 4;
/// For each processor so many threads may work before others have to wait for one of them.
const WORKING_PER_PROCESSOR: usize = if cfg!(feature = "shuttle") { 2 } else { 4 };
/// At the end those that are served still are pressed so often.
const PRESS_EVERY: Duration = Duration::from_secs(1);
/// The host is told of time after so many ticks while connections are held.
const TICKS_OF_HOST: u32 = 10;

/// See the module.
pub struct Crew<H: Host> {
    host: H,
    quiet: Mutex<HashMap<u64, H::Connection>>,
    active: Mutex<HashMap<u64, Arc<H::Shared>>>,
    held: Mutex<Held<H::Connection>>,
    /// As many as `held.due` has, whose lock is held when it changes.
    due: AtomicUsize,
    /// Told when a connection has left `active`.
    left: Condvar,
    next_key: AtomicU64,
    /// Threads that wait or begin to.
    waiting: AtomicUsize,
    /// Threads that wait for one connection alone.
    staying: AtomicUsize,
    /// Threads that work and wait for a disk, a lock or the like.
    asleep: AtomicUsize,
    /// Threads that rest and were not called. Changes under the lock of `called`.
    resting: AtomicUsize,
    /// With fewer threads at work another is called at once.
    working_max: usize,
    processors: u32,
    threads: AtomicUsize,
    /// How often a thread came back from waiting.
    told: AtomicUsize,
    /// Threads that rest, were called, and have not noticed yet.
    called: Mutex<usize>,
    rest_over: Condvar,
    /// So many ticks nobody may stay.
    crowd: AtomicU32,
    keeper: Keeper,
    /// All threads that may be alive.
    handles: Mutex<Vec<JoinHandle<()>>>,
    ending: AtomicBool,
}

/// Connections whose request waits for its turn.
struct Held<C> {
    connections: HashMap<u64, C>,
    /// Those of `active` that were resumed before they were held.
    early: HashSet<u64>,
    due: VecDeque<Due<C>>,
}

/// What serving a connection was.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Served {
    Work,
    /// It was put off, or is over.
    Look,
}

/// A connection that the next free thread serves.
struct Due<C> {
    key: u64,
    connection: C,
    since: Duration,
}

#[derive(Default)]
struct Keeper {
    is_needed: AtomicBool,
    lock: Mutex<()>,
    wake: Condvar,
}

impl Keeper {
    fn call(&self) {
        if !self.is_needed.swap(true, Ordering::SeqCst) {
            let _order = self.lock.lock();
            self.wake.notify_all();
        }
    }
}

/// What serving a connection may ask of the crew.
pub struct Turn<'c, H: Host> {
    crew: &'c Arc<Crew<H>>,
    key: u64,
}

/// The thread waits for one connection, until this is dropped.
pub struct Stay<'c>(&'c AtomicUsize);

impl Drop for Stay<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl<H: Host> Turn<'_, H> {
    /// Allows the thread to wait for what its connection says next; `None` when it is needed for others.
    pub fn stay(&self) -> Option<Stay<'_>> {
        let crew = self.crew;
        let is_needed = || crew.waiting.load(Ordering::SeqCst) == 0 || crew.due.load(Ordering::SeqCst) > 0;
        if crew.crowd.load(Ordering::Relaxed) > 0 || is_needed() {
            return None;
        }
        let stay = Stay(&crew.staying);
        if crew.staying.fetch_add(1, Ordering::SeqCst) < STAYING_MAX {
            return Some(stay);
        }
        crew.note_crowd();
        None
    }

    /// More connections are busy than threads may stay with.
    pub fn is_crowd(&self) -> bool {
        self.crew.crowd.load(Ordering::Relaxed) > 0
    }

    /// When more than `most` connections are due: how long the first of them has waited.
    pub fn overdue(&self, most: usize) -> Option<Duration> {
        if self.crew.due.load(Ordering::Relaxed) <= most {
            return None;
        }
        let since = self.crew.held.lock().due.front()?.since;
        Some(self.crew.host.now().saturating_sub(since))
    }

    /// The crew, for what works on its threads.
    pub fn crew(&self) -> &Arc<Crew<H>> {
        self.crew
    }

    /// What has to be called, once, when the connection has left with [`Leave::Held`] and is to be served again. It may
    /// be called before that.
    pub fn resume(&self) -> Box<dyn FnOnce() + Send> {
        let (crew, key) = (self.crew.clone(), self.key);
        Box::new(move || crew.resume(key))
    }
}

impl<H: Host> Crew<H> {
    /// The first key of a connection; smaller ones, and the greatest, are the host's.
    pub const KEY_MIN: u64 = 1;

    /// A crew with its first threads, for so many processors.
    pub fn new(host: H, processors: u32) -> std::io::Result<Arc<Self>> {
        let crew = Arc::new(Self {
            host,
            quiet: Mutex::default(),
            active: Mutex::default(),
            held: Mutex::new(Held {
                connections: HashMap::new(),
                early: HashSet::new(),
                due: VecDeque::new(),
            }),
            due: AtomicUsize::new(0),
            left: Condvar::new(),
            next_key: AtomicU64::new(Self::KEY_MIN),
            waiting: AtomicUsize::new(0),
            staying: AtomicUsize::new(0),
            asleep: AtomicUsize::new(0),
            resting: AtomicUsize::new(0),
            working_max: processors as usize * WORKING_PER_PROCESSOR,
            processors,
            threads: AtomicUsize::new(0),
            told: AtomicUsize::new(0),
            called: Mutex::default(),
            rest_over: Condvar::new(),
            crowd: AtomicU32::new(0),
            keeper: Keeper::default(),
            handles: Mutex::default(),
            ending: AtomicBool::new(false),
        });
        for _ in 0..THREADS_MIN {
            crew.start_thread()?;
        }
        let keeper = crew.clone();
        crew.spawn("conn-keeper", move || keeper.keep())?;
        Ok(crew)
    }

    /// The owner's side.
    pub fn host(&self) -> &H {
        &self.host
    }

    /// Takes over a new connection.
    pub fn add(&self, connection: H::Connection) {
        let key = self.next_key.fetch_add(1, Ordering::Relaxed);
        self.park(key, connection, true);
    }

    /// Puts a connection to the quiet ones. It may be served again before this returns.
    fn park(&self, key: u64, mut connection: H::Connection, first: bool) {
        let shared = self.host.shared(&connection);
        {
            let mut quiet = self.quiet.lock();
            // Under the lock under which `end` takes all there are: either it finds this one, or this is seen.
            if self.is_ending() {
                drop(quiet);
                return self.host.ended(&mut connection, None);
            }
            quiet.insert(key, connection);
        }
        // Only now: who is told must find it.
        if self.host.arm(key, &shared, first).is_err() {
            let parked = self.quiet.lock().remove(&key);
            if let Some(mut connection) = parked {
                self.host.ended(&mut connection, None);
            }
        }
    }

    fn spawn(&self, name: &str, run: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
        let builder = thread::Builder::new().name(name.to_owned()).stack_size(STACK_BYTES);
        let handle = builder.spawn(run)?;
        let mut handles = self.handles.lock();
        forget_finished(&mut handles);
        handles.push(handle);
        Ok(())
    }

    fn start_thread(self: &Arc<Self>) -> std::io::Result<()> {
        let crew = self.clone();
        self.threads.fetch_add(1, Ordering::SeqCst);
        self.waiting.fetch_add(1, Ordering::SeqCst);
        self.spawn("conn", move || crew.run_thread()).inspect_err(|_| {
            self.waiting.fetch_sub(1, Ordering::SeqCst);
            self.threads.fetch_sub(1, Ordering::SeqCst);
        })
    }

    fn run_thread(self: &Arc<Self>) {
        let mut worker = H::Worker::default();
        // Since when it has only looked.
        let mut looking: Option<Duration> = None;
        loop {
            // What is due is served by turns with what is told, or either would wait for ever.
            let event = match self.due.load(Ordering::SeqCst) {
                0 => self.host.wait(),
                _ => self.host.look(),
            };
            rcu::schedule_point();
            self.told.fetch_add(1, Ordering::Relaxed);
            let waited = self.waiting.fetch_sub(1, Ordering::SeqCst);
            debug_assert!(waited > 0, "whoever comes back was counted");
            let waiting = waited - 1;
            if self.is_ending() {
                break;
            }
            match event {
                Event::Ready(key) => {
                    let connection = self.quiet.lock().remove(&key);
                    if let Some(connection) = connection {
                        self.see_to_others(waiting);
                        looking = match self.serve(&mut worker, key, connection) {
                            Served::Work => None,
                            Served::Look => looking.or_else(|| Some(self.host.now())),
                        };
                    }
                }
                Event::Nothing if waiting >= THREADS_MIN && self.due.load(Ordering::SeqCst) == 0 => break,
                Event::Nothing | Event::Interrupted => looking = None,
                Event::Failed => break,
            }
            let looks_on = looking.is_some_and(|since| self.host.now().saturating_sub(since) < LOOKING_MAX);
            if !looks_on && let Some(Due { key, connection, .. }) = self.take_due() {
                looking = None;
                self.see_to_others(self.waiting.load(Ordering::SeqCst));
                self.serve(&mut worker, key, connection);
            }
            if self.waiting.load(Ordering::SeqCst) >= WAITING_MAX && self.due.load(Ordering::SeqCst) == 0 {
                match self.rest() {
                    true => continue,
                    false => break,
                }
            }
            // Before it looks at what is due: who makes something due looks at this afterwards.
            self.waiting.fetch_add(1, Ordering::SeqCst);
        }
        self.threads.fetch_sub(1, Ordering::SeqCst);
    }

    /// Rests until it is called, and counts as waiting then; false when it was not, and the thread ends.
    fn rest(&self) -> bool {
        let until = self.host.now().saturating_add(REST);
        let mut called = self.called.lock();
        self.resting.fetch_add(1, Ordering::SeqCst);
        loop {
            if *called > 0 {
                *called -= 1;
                return true;
            }
            let left = until.saturating_sub(self.host.now());
            if self.is_ending() || left.is_zero() {
                self.resting.fetch_sub(1, Ordering::SeqCst);
                return false;
            }
            called = self.rest_over.wait_for(called, left);
        }
    }

    /// Calls a thread that rests; false when none does.
    fn call_rested(&self) -> bool {
        let mut called = self.called.lock();
        let has_one = self.resting.load(Ordering::SeqCst) > 0;
        if has_one {
            *called += 1;
            self.resting.fetch_sub(1, Ordering::SeqCst);
            self.waiting.fetch_add(1, Ordering::SeqCst);
            self.rest_over.notify_one();
        }
        has_one
    }

    /// The thread goes to work, or to sleep, and so many still wait.
    fn see_to_others(self: &Arc<Self>, waiting: usize) {
        if waiting > 0 {
            return;
        }
        let load = |count: &AtomicUsize| count.load(Ordering::SeqCst);
        let idle = load(&self.waiting) + load(&self.staying) + load(&self.asleep) + load(&self.resting);
        if self.threads().saturating_sub(idle) > self.working_max {
            self.note_crowd();
        } else {
            self.call_another();
        }
    }

    fn note_crowd(&self) {
        self.crowd.store(TICKS_OF_CROWD, Ordering::Relaxed);
        self.keeper.call();
    }

    fn call_another(self: &Arc<Self>) {
        if !self.call_rested()
            && let Err(error) = self.start_thread()
        {
            self.host.no_thread(&error, self.threads());
            // It tries again.
            self.keeper.call();
        }
    }

    /// The calling thread, which serves, waits for a disk, a lock or the like, until [`Crew::wakes`].
    pub fn sleeps(self: &Arc<Self>) {
        self.asleep.fetch_add(1, Ordering::SeqCst);
        self.see_to_others(self.waiting.load(Ordering::SeqCst));
    }

    /// The calling thread sleeps no more.
    pub fn wakes(&self) {
        self.asleep.fetch_sub(1, Ordering::SeqCst);
    }

    fn take_due(&self) -> Option<Due<H::Connection>> {
        if self.due.load(Ordering::SeqCst) == 0 {
            return None;
        }
        let mut held = self.held.lock();
        debug_assert_eq!(
            held.due.len(),
            self.due.load(Ordering::SeqCst),
            "it changes under the lock"
        );
        let first = held.due.pop_front()?;
        let left = self.due.fetch_sub(1, Ordering::SeqCst) - 1;
        drop(held);
        // Several calls may have woken one thread.
        if left > 0 && self.waiting.load(Ordering::SeqCst) > 0 {
            self.host.call();
        }
        Some(first)
    }

    fn serve(self: &Arc<Self>, worker: &mut H::Worker, key: u64, mut connection: H::Connection) -> Served {
        self.active.lock().insert(key, self.host.shared(&connection));
        let turn = Turn { crew: self, key };
        let leave = loop {
            // `end` looks at `active` after it has set `ending`: one of both sees the other.
            if self.is_ending() {
                break None;
            }
            let leave = self.host.serve(worker, &mut connection, &turn);
            let is_later = matches!(leave, Leave::Later);
            if !is_later && !matches!(leave, Leave::Held) {
                break Some(leave);
            }
            let mut held = self.held.lock();
            if !is_later && held.early.remove(&key) {
                continue;
            }
            // As in `park`.
            if self.is_ending() {
                break None;
            }
            self.active.lock().remove(&key);
            if is_later {
                // This thread, or one that comes back before, takes it.
                self.make_due(&mut held, key, connection);
            } else {
                held.connections.insert(key, connection);
                self.keeper.call();
            }
            drop(held);
            self.left.notify_all();
            return match is_later {
                true => Served::Look,
                false => Served::Work,
            };
        };
        self.active.lock().remove(&key);
        self.left.notify_all();
        match leave {
            Some(Leave::Quiet | Leave::Held | Leave::Later) => {
                self.park(key, connection, false);
                Served::Work
            }
            Some(Leave::Over(reason)) => {
                self.held.lock().early.remove(&key);
                self.host.ended(&mut connection, Some(reason));
                Served::Look
            }
            None => {
                self.host.ended(&mut connection, None);
                Served::Look
            }
        }
    }

    fn make_due(&self, held: &mut Held<H::Connection>, key: u64, connection: H::Connection) {
        let since = self.host.now();
        held.due.push_back(Due { key, connection, since });
        self.due.fetch_add(1, Ordering::SeqCst);
    }

    /// A held connection is to be served again.
    fn resume(&self, key: u64) {
        let mut held = self.held.lock();
        match held.connections.remove(&key) {
            Some(connection) => self.make_due(&mut held, key, connection),
            // It is on its way here, or over.
            None => {
                if self.active.lock().contains_key(&key) {
                    held.early.insert(key);
                }
                return;
            }
        }
        drop(held);
        if self.waiting.load(Ordering::SeqCst) > 0 {
            self.host.call();
        }
    }

    /// The keeper's work: see the module.
    fn keep(self: &Arc<Self>) {
        let (mut told, mut ticks, mut short) = (0, 0_u32, 0_u32);
        let (mut used, mut holds) = (Duration::ZERO, false);
        let idle_below = KEEPER_TICK * TICKS_OF_SHORTAGE * self.processors / IDLE_PART;
        while !self.is_ending() {
            let mut order = self.keeper.lock.lock();
            while !self.keeper.is_needed.load(Ordering::SeqCst) && !self.is_ending() {
                if !holds {
                    order = self.keeper.wake.wait(order);
                    continue;
                }
                // Where connections are held and no thread is missing only the host is told of time.
                order = self.keeper.wake.wait_for(order, KEEPER_TICK * TICKS_OF_HOST);
                if !self.keeper.is_needed.load(Ordering::SeqCst) {
                    drop(order);
                    self.host.tick();
                    holds = self.holds();
                    order = self.keeper.lock.lock();
                }
            }
            if self.is_ending() {
                break;
            }
            drop(self.keeper.wake.wait_for(order, KEEPER_TICK));
            let told_before = std::mem::replace(&mut told, self.told.load(Ordering::Relaxed));
            short = match self.waiting.load(Ordering::SeqCst) {
                0 => short + 1,
                _ => 0,
            };
            let used_before = match short % TICKS_OF_SHORTAGE {
                1 => std::mem::replace(&mut used, self.host.processor_time()),
                _ => used,
            };
            // Those that come back may be few, and the others wait for something without saying so.
            let is_idle = short > 0
                && short.is_multiple_of(TICKS_OF_SHORTAGE)
                && self.host.processor_time().saturating_sub(used_before) < idle_below;
            if short > 0 && (told == told_before || is_idle) {
                self.call_another();
            }
            ticks = ticks.wrapping_add(1);
            let crowd = match self.due.load(Ordering::SeqCst) {
                STAYING_MAX.. => TICKS_OF_CROWD,
                _ => self.crowd.load(Ordering::Relaxed).saturating_sub(1),
            };
            self.crowd.store(crowd, Ordering::Relaxed);
            if ticks.is_multiple_of(TICKS_OF_HOST) {
                self.host.tick();
            }
            self.keeper.is_needed.store(false, Ordering::SeqCst);
            holds = self.holds();
            if crowd > 0 || self.waiting.load(Ordering::SeqCst) == 0 {
                self.keeper.is_needed.store(true, Ordering::SeqCst);
            }
        }
    }

    /// Are connections held?
    fn holds(&self) -> bool {
        !self.held.lock().connections.is_empty()
    }

    fn is_ending(&self) -> bool {
        self.ending.load(Ordering::SeqCst)
    }

    /// True once [`Crew::end`] was called.
    pub fn has_ended(&self) -> bool {
        self.is_ending()
    }

    /// Threads alive now, without the keeper.
    pub fn threads(&self) -> usize {
        self.threads.load(Ordering::Relaxed)
    }

    /// What is served now, by its key. Nothing begins or ends to be served while `look` has it.
    pub fn look_at_active<T>(&self, look: impl FnOnce(&HashMap<u64, Arc<H::Shared>>) -> T) -> T {
        look(&self.active.lock())
    }

    /// Whether requests wait for their turn or for a thread.
    pub fn has_put_off(&self) -> bool {
        self.due.load(Ordering::SeqCst) > 0 || !self.held.lock().connections.is_empty()
    }

    /// The connections that are held now.
    pub fn held(&self) -> Vec<Arc<H::Shared>> {
        let held = self.held.lock();
        held.connections
            .values()
            .map(|connection| self.host.shared(connection))
            .collect()
    }

    /// The sum of something over all connections that no thread has.
    pub fn sum_of_parked(&self, of: impl Fn(&H::Connection) -> usize) -> usize {
        let quiet: usize = self.quiet.lock().values().map(&of).sum();
        let held = self.held.lock();
        let due = held.due.iter().map(|due| &due.connection);
        quiet + held.connections.values().chain(due).map(of).sum::<usize>()
    }

    /// Ends all connections. Those that are served are interrupted, and waited for for at most `patience`. Returns the
    /// number that were left behind; when that is 0, the threads have ended, and with them whatever they held.
    pub fn end(&self, patience: Duration) -> usize {
        let deadline = self.host.now().saturating_add(patience);
        self.ending.store(true, Ordering::SeqCst);
        let mut parked: Vec<_> = self.quiet.lock().drain().map(|(_, connection)| connection).collect();
        {
            let mut held = self.held.lock();
            parked.extend(held.connections.drain().map(|(_, connection)| connection));
            self.due.fetch_sub(held.due.len(), Ordering::SeqCst);
            parked.extend(held.due.drain(..).map(|due| due.connection));
        }
        for mut connection in parked {
            self.host.ended(&mut connection, None);
        }
        let mut active = self.active.lock();
        for shared in active.values() {
            self.host.interrupt(shared);
        }
        self.host.wake();
        drop(self.called.lock());
        self.rest_over.notify_all();
        let mut press_at = self.host.now().saturating_add(PRESS_EVERY);
        while !active.is_empty() {
            let now = self.host.now();
            if now >= deadline {
                break;
            }
            if now >= press_at {
                active.values().for_each(|shared| self.host.press(shared));
                press_at = now.saturating_add(PRESS_EVERY);
            }
            active = self.left.wait_for(active, press_at.min(deadline).saturating_sub(now));
        }
        let left = active.len();
        drop(active);
        drop(self.keeper.lock.lock());
        self.keeper.wake.notify_all();
        if left == 0 {
            self.join();
        }
        left
    }

    /// Waits for all threads. Who starts another ends after that is in the list.
    fn join(&self) {
        loop {
            let handle = self.handles.lock().pop();
            let Some(handle) = handle else { return };
            // A thread that panicked has said so.
            let _ = handle.join();
        }
    }
}

#[cfg(not(feature = "shuttle"))]
fn forget_finished(handles: &mut Vec<JoinHandle<()>>) {
    handles.retain(|handle| !handle.is_finished());
}

/// The checker's threads do not tell; there are few.
#[cfg(feature = "shuttle")]
fn forget_finished(_: &mut Vec<JoinHandle<()>>) {}
