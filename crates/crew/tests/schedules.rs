//! A crew under the schedule checker: connections that say something again and again, threads that come and go, and the
//! end.
//!
//! A request that nobody is told of is a deadlock, which the checker reports: nothing rescues it, since no other
//! connection wakes a thread for it. `TENON_SHUTTLE_SEED=n` repeats a run, `TENON_SHUTTLE_FACTOR=n` makes it n times as
//! long.

#![allow(clippy::unwrap_used, reason = "a test: a failed step is a failed test")]

use crew::{Crew, Event, Host, Leave, Turn};
use rcu::{Condvar, Mutex};
use shuttle::rand::Rng;
use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::{Config, Runner, thread};
use std::collections::{HashMap, VecDeque};
use std::hash::BuildHasher;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

fn check(name: &str, schedules: usize, test: fn()) {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let seed = number("TENON_SHUTTLE_SEED").unwrap_or_else(|| std::hash::RandomState::new().hash_one(name));
    let schedules = schedules * number("TENON_SHUTTLE_FACTOR").unwrap_or(1) as usize;
    println!("{name}: TENON_SHUTTLE_SEED={seed}");
    let mut config = Config::new();
    config.stack_size = 256 << 10;
    Runner::new(RandomScheduler::new_from_seed(seed, schedules), config.clone()).run(test);
    for depth in [2, 4] {
        Runner::new(PctScheduler::new_from_seed(seed, depth, schedules / 2), config.clone()).run(test);
    }
}

/// What was said and not answered, and what was answered.
#[derive(Default)]
struct Talk {
    said: usize,
    answered: usize,
    interrupted: bool,
    /// How often the host was told that it is over.
    ended: usize,
}

/// A connection, with both its ends.
#[derive(Default)]
struct Line {
    talk: Mutex<Talk>,
    answered: Condvar,
    /// Threads that serve it.
    servers: AtomicUsize,
    /// It is never quiet: its thread stays with it until it is interrupted.
    stays: bool,
    /// Each request waits for its turn first.
    turns: Option<Turns>,
    /// The request has had its turn.
    had_turn: AtomicBool,
}

/// How a request waits for its turn.
enum Turns {
    Later,
    Resumed(Arc<Resumer>),
}

/// Resumes requests, in a thread of its own.
#[derive(Default)]
struct Resumer {
    due: Mutex<Vec<Box<dyn FnOnce() + Send>>>,
    more: Condvar,
    ends: AtomicBool,
}

impl Resumer {
    fn run(&self) {
        let mut due = self.due.lock();
        loop {
            if let Some(resume) = due.pop() {
                drop(due);
                resume();
                due = self.due.lock();
            } else if self.ends.load(Ordering::SeqCst) {
                return;
            } else {
                due = self.more.wait(due);
            }
        }
    }

    fn end(&self) {
        let _order = self.due.lock();
        self.ends.store(true, Ordering::SeqCst);
        self.more.notify_one();
    }
}

/// As epoll with one shot: an armed connection that has something to say is reported to one thread that waits, and is
/// armed no more.
#[derive(Default)]
struct Set {
    armed: HashMap<u64, Arc<Line>>,
    keys: HashMap<usize, u64>,
    ready: VecDeque<u64>,
    /// Calls that no thread has come back for.
    calls: usize,
    woken: bool,
}

#[derive(Default)]
struct Site {
    set: Mutex<Set>,
    changed: Condvar,
    /// Waits may end without an event, as after a long time.
    times_out: bool,
}

impl Site {
    /// A client says something.
    fn say(&self, line: &Arc<Line>) {
        let mut set = self.set.lock();
        line.talk.lock().said += 1;
        line.answered.notify_all();
        let key = set.keys.get(&(Arc::as_ptr(line) as usize)).copied();
        if let Some(key) = key.filter(|key| set.armed.remove(key).is_some()) {
            set.ready.push_back(key);
            self.changed.notify_one();
        }
    }

    /// A client says something and waits for the answer, or for the end.
    fn ask(&self, line: &Arc<Line>) -> bool {
        self.say(line);
        let mut talk = line.talk.lock();
        while talk.answered < talk.said && talk.ended == 0 {
            talk = line.answered.wait(talk);
        }
        talk.answered == talk.said
    }
}

struct SiteHost(Arc<Site>);

impl Host for SiteHost {
    type Connection = Arc<Line>;
    type Shared = Line;
    type Worker = ();
    type Reason = ();

    fn shared(&self, connection: &Arc<Line>) -> Arc<Line> {
        connection.clone()
    }

    fn arm(&self, key: u64, shared: &Line, first: bool) -> std::io::Result<()> {
        let mut set = self.0.set.lock();
        let talk = shared.talk.lock();
        let address = std::ptr::from_ref(shared) as usize;
        assert_eq!(set.keys.insert(address, key).is_none(), first);
        if talk.said > talk.answered {
            set.ready.push_back(key);
            self.0.changed.notify_one();
        } else {
            // The set knows it by its address only: what it points to is of no use here.
            set.armed.insert(key, Arc::default());
        }
        Ok(())
    }

    fn wait(&self) -> Event {
        let mut set = self.0.set.lock();
        loop {
            if let Some(key) = set.ready.pop_front() {
                return Event::Ready(key);
            }
            if set.woken {
                return Event::Interrupted;
            }
            if set.calls > 0 {
                set.calls -= 1;
                return Event::Interrupted;
            }
            if self.0.times_out && shuttle::rand::thread_rng().gen_bool(0.3) {
                return Event::Nothing;
            }
            set = self.0.changed.wait(set);
        }
    }

    fn look(&self) -> Event {
        let ready = self.0.set.lock().ready.pop_front();
        ready.map_or(Event::Nothing, Event::Ready)
    }

    fn call(&self) {
        self.0.set.lock().calls += 1;
        self.0.changed.notify_one();
    }

    fn wake(&self) {
        self.0.set.lock().woken = true;
        self.0.changed.notify_all();
    }

    fn tick(&self) {}

    fn serve(&self, _: &mut (), connection: &mut Arc<Line>, turn: &Turn<'_, Self>) -> Leave<()> {
        assert_eq!(
            connection.servers.fetch_add(1, Ordering::SeqCst),
            0,
            "one thread has it"
        );
        rcu::schedule_point();
        let mut talk = connection.talk.lock();
        assert_eq!(talk.ended, 0, "nobody serves what is over");
        if let Some(turns) = &connection.turns
            && talk.said > talk.answered
            && !connection.had_turn.swap(true, Ordering::SeqCst)
        {
            connection.servers.fetch_sub(1, Ordering::SeqCst);
            let Turns::Resumed(resumer) = turns else {
                return Leave::Later;
            };
            resumer.due.lock().push(turn.resume());
            resumer.more.notify_one();
            return Leave::Held;
        }
        connection.had_turn.store(false, Ordering::SeqCst);
        loop {
            talk.answered = talk.said;
            connection.answered.notify_all();
            if !connection.stays || talk.interrupted {
                break;
            }
            talk = connection.answered.wait(talk);
        }
        connection.servers.fetch_sub(1, Ordering::SeqCst);
        if talk.interrupted {
            Leave::Over(())
        } else {
            Leave::Quiet
        }
    }

    fn interrupt(&self, shared: &Line) {
        shared.talk.lock().interrupted = true;
        shared.answered.notify_all();
    }

    fn press(&self, _: &Line) {}

    fn ended(&self, shared: &mut Arc<Line>, _: Option<()>) {
        shared.talk.lock().ended += 1;
        shared.answered.notify_all();
    }

    fn no_thread(&self, error: &std::io::Error, _: usize) {
        panic!("{error}");
    }

    fn processor_time(&self) -> Duration {
        Duration::ZERO
    }

    fn now(&self) -> Duration {
        Duration::ZERO
    }
}

type Working = (Arc<Site>, Arc<Crew<SiteHost>>, Vec<Arc<Line>>);

fn start(times_out: bool, stays: bool) -> Working {
    let site = Arc::new(Site {
        times_out,
        ..Site::default()
    });
    let crew = Crew::new(SiteHost(site.clone()), 1).unwrap();
    let line = |_| {
        Arc::new(Line {
            stays,
            ..Line::default()
        })
    };
    let lines = (0..3).map(line).collect();
    (site, crew, lines)
}

fn clients(site: &Arc<Site>, lines: &[Arc<Line>], asks: usize) -> Vec<thread::JoinHandle<usize>> {
    let client = |line: &Arc<Line>| {
        let (site, line) = (site.clone(), line.clone());
        thread::spawn(move || (0..asks).filter(|_| site.ask(&line)).count())
    };
    lines.iter().map(client).collect()
}

/// Everything that is said is answered, before and after a connection was quiet; and at the end all is over, once, and
/// no thread is left.
fn every_request_is_answered(times_out: bool) {
    let (site, crew, lines) = start(times_out, false);
    lines.iter().for_each(|line| crew.add(line.clone()));
    for client in clients(&site, &lines, 2) {
        assert_eq!(client.join().unwrap(), 2);
    }
    assert_eq!(crew.end(Duration::MAX), 0);
    assert_eq!(crew.threads(), 0);
    assert!(lines.iter().all(|line| line.talk.lock().ended == 1));
}

#[test]
fn every_request_is_answered_by_somebody() {
    check("every_request_is_answered_by_somebody", 1500, || {
        every_request_is_answered(false)
    });
}

#[test]
fn threads_that_leave_take_no_request_along() {
    check("threads_that_leave_take_no_request_along", 1500, || {
        every_request_is_answered(true)
    });
}

/// The end comes while connections are added and served: each is over once, and `end` returns.
#[test]
fn the_end_finds_every_connection() {
    check("the_end_finds_every_connection", 1500, || {
        let (site, crew, lines) = start(false, shuttle::rand::thread_rng().gen_bool(0.5));
        crew.add(lines[0].clone());
        let clients = clients(&site, &lines, 2);
        let adding = {
            let (crew, lines) = (crew.clone(), lines.clone());
            thread::spawn(move || lines[1..].iter().for_each(|line| crew.add(line.clone())))
        };
        let left = crew.end(Duration::MAX);
        adding.join().unwrap();
        assert_eq!((left, crew.threads()), (0, 0));
        clients
            .into_iter()
            .for_each(|client| assert!(client.join().unwrap() <= 2));
        for line in &lines {
            assert_eq!(line.talk.lock().ended, 1);
        }
        assert_eq!(crew.sum_of_parked(|_| 1), 0);
    });
}

/// Requests that wait for their turn, without a thread, are answered, whenever that comes: before the thread has left
/// the connection, too; and the end finds those that still wait.
fn requests_wait_for_their_turn(ends_early: bool) {
    let (site, crew, _) = start(false, false);
    let resumer = Arc::new(Resumer::default());
    let line = |number: usize| {
        let turns = match number {
            0 => Turns::Later,
            _ => Turns::Resumed(resumer.clone()),
        };
        Arc::new(Line {
            turns: Some(turns),
            ..Line::default()
        })
    };
    let lines: Vec<_> = (0..3).map(line).collect();
    lines.iter().for_each(|line| crew.add(line.clone()));
    let resuming = {
        let resumer = resumer.clone();
        thread::spawn(move || resumer.run())
    };
    let clients = clients(&site, &lines, 2);
    if ends_early {
        assert_eq!(crew.end(Duration::MAX), 0);
    }
    for client in clients {
        let answered = client.join().unwrap();
        assert!(answered == 2 || ends_early);
    }
    assert_eq!(crew.end(Duration::MAX), 0);
    assert_eq!(crew.threads(), 0);
    resumer.end();
    resuming.join().unwrap();
    assert!(lines.iter().all(|line| line.talk.lock().ended == 1));
    assert_eq!(crew.held().len(), 0);
}

#[test]
fn requests_that_wait_for_their_turn_are_answered() {
    check("requests_that_wait_for_their_turn_are_answered", 1500, || {
        requests_wait_for_their_turn(false)
    });
}

#[test]
fn the_end_finds_requests_that_wait_for_their_turn() {
    check("the_end_finds_requests_that_wait_for_their_turn", 1500, || {
        requests_wait_for_their_turn(true)
    });
}
