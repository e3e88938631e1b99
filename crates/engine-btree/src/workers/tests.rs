//! The pool of background threads.

use super::*;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;

/// Where jobs write down that they ran.
#[derive(Clone, Default)]
struct Notes(Arc<Mutex<Vec<u32>>>);

impl Notes {
    fn job(&self, number: u32) -> impl FnOnce() + Send + use<> {
        let notes = self.clone();
        move || notes.0.lock().push(number)
    }

    fn taken(&self) -> Vec<u32> {
        std::mem::take(&mut *self.0.lock())
    }
}

fn poisoned(message: &str) -> WorkersError {
    WorkersError::Poisoned {
        message: message.into(),
    }
}

#[test]
fn without_threads_the_caller_steps_in_order() {
    let workers = Workers::start(Some(0)).expect("no thread to start");
    let notes = Notes::default();
    for number in [1, 2] {
        workers.submit(Class::Background, notes.job(number)).expect("open");
    }
    for number in [3, 4] {
        workers.submit(Class::Urgent, notes.job(number)).expect("open");
    }
    assert_eq!((workers.queued(), notes.taken()), (4, vec![]));
    assert_eq!(workers.run_one(), Ok(true));
    assert_eq!(notes.taken(), [3]);
    workers.drain().expect("nothing panics");
    assert_eq!(notes.taken(), [4, 1, 2]);
    assert_eq!(workers.run_one(), Ok(false));
}

#[test]
fn jobs_run_once_whatever_the_class_and_the_pressure() {
    let workers = Workers::start(Some(2)).expect("starts");
    let notes = Notes::default();
    for round in 0..50 {
        workers.set_pressure(round % 3 == 0);
        for job in 0..20 {
            let class = if job % 2 == 0 { Class::Urgent } else { Class::Background };
            workers.submit(class, notes.job(round * 20 + job)).expect("open");
        }
    }
    workers.drain().expect("nothing panics");
    let mut ran = notes.taken();
    ran.sort_unstable();
    assert_eq!(ran, (0..1000).collect::<Vec<_>>());
}

/// The thread a job of a class runs on while the pressure is so.
fn thread_for(workers: &Workers, class: Class, pressure: bool) -> String {
    workers.set_pressure(pressure);
    let (sender, receiver) = mpsc::channel();
    let tell = move || {
        sender
            .send(thread::current().name().map(str::to_owned))
            .expect("the test waits")
    };
    workers.submit(class, tell).expect("open");
    receiver.recv().expect("the job runs").expect("it has a name")
}

#[test]
fn pressure_moves_background_jobs_to_lively_threads() {
    let workers = Workers::start(Some(1)).expect("starts");
    for _ in 0..3 {
        assert_eq!(thread_for(&workers, Class::Background, false), "btree-quiet");
        assert_eq!(thread_for(&workers, Class::Background, true), "btree-urgent");
        assert_eq!(thread_for(&workers, Class::Urgent, true), "btree-urgent");
        assert_eq!(thread_for(&workers, Class::Urgent, false), "btree-urgent");
    }
}

#[test]
fn a_queue_that_waits_is_taken_over_when_pressure_rises() {
    let workers = Workers::start(Some(1)).expect("starts");
    let (started, has_started) = mpsc::channel();
    let (release, released) = mpsc::channel::<()>();
    // The only quiet thread is held up; what waits behind it must not wait for it.
    workers
        .submit(Class::Background, move || {
            started.send(()).expect("the test waits");
            released.recv().expect("the test lets go");
        })
        .expect("open");
    has_started.recv().expect("it starts");
    let (sender, receiver) = mpsc::channel();
    workers
        .submit(Class::Background, move || sender.send(()).expect("the test waits"))
        .expect("open");
    workers.set_pressure(true);
    receiver.recv().expect("a lively thread took it");
    release.send(()).expect("it still waits");
    workers.drain().expect("nothing panics");
}

#[cfg(target_os = "linux")]
#[test]
fn quiet_threads_give_way_and_get_their_turn() {
    let nice_of = |class| {
        let workers = Workers::start(Some(1)).expect("starts");
        let (sender, receiver) = mpsc::channel();
        let tell = move || {
            let status = std::fs::read_to_string("/proc/thread-self/stat").expect("Linux has it");
            // Behind the name in parentheses: state, ..., nice, ..., scheduling policy.
            let (_, rest) = status.rsplit_once(')').expect("the name is in parentheses");
            let fields: Vec<i64> = rest
                .split_whitespace()
                .skip(1)
                .map(|field| field.parse().unwrap_or(0))
                .collect();
            sender.send((fields[15], fields[37])).expect("the test waits");
        };
        workers.submit(class, tell).expect("open");
        receiver.recv().expect("the job runs")
    };
    let (usual, policy) = nice_of(Class::Urgent);
    assert_eq!(nice_of(Class::Background), (i64::from(QUIET_NICE), policy));
    assert!(usual < i64::from(QUIET_NICE) || usual == 19, "{usual}");
}

#[test]
fn a_panic_poisons_and_is_reported() {
    for threads in [0, 2] {
        let workers = Workers::start(Some(threads)).expect("starts");
        workers
            .submit(Class::Urgent, || panic!("page {} is odd", 7))
            .expect("open");
        assert_eq!(workers.drain(), Err(poisoned("page 7 is odd")));
        assert_eq!(workers.check(), Err(poisoned("page 7 is odd")));
        assert_eq!(workers.submit(Class::Urgent, || ()), Err(poisoned("page 7 is odd")));
        assert_eq!(workers.run_one(), Err(poisoned("page 7 is odd")));
        assert_eq!(workers.queued(), 0);
    }
}

#[test]
fn close_drops_what_waits_and_finishes_what_runs() {
    let workers = Arc::new(Workers::start(Some(1)).expect("starts"));
    let (started, has_started) = mpsc::channel();
    let (release, released) = mpsc::channel::<()>();
    let notes = Notes::default();
    let last = notes.job(1);
    workers
        .submit(Class::Urgent, move || {
            started.send(()).expect("the test waits");
            released.recv().expect("the test lets go");
            last();
        })
        .expect("open");
    has_started.recv().expect("it starts");
    // Queued behind it; owns a handle of the pool, as jobs of the engine do.
    let (owned, job) = (workers.clone(), notes.job(2));
    let waiting = move || {
        drop(owned);
        job();
    };
    workers.submit(Class::Urgent, waiting).expect("open");
    let closing = {
        let workers = workers.clone();
        thread::spawn(move || workers.close())
    };
    while workers.check().is_ok() {
        thread::yield_now();
    }
    release.send(()).expect("it still runs");
    closing.join().expect("closes");
    assert_eq!(notes.taken(), [1]);
    assert_eq!(workers.submit(Class::Urgent, || ()), Err(WorkersError::Closed));
    assert_eq!(workers.drain(), Err(WorkersError::Closed));
    assert_eq!(Arc::strong_count(&workers), 1, "the job that never ran is gone");
    workers.close();
}

#[test]
fn the_last_handle_may_go_inside_a_job() {
    let workers = Arc::new(Workers::start(Some(1)).expect("starts"));
    let (sender, receiver) = mpsc::channel();
    let (go, may_go) = mpsc::channel::<()>();
    let owned = workers.clone();
    let job = move || {
        may_go.recv().expect("the test lets go");
        drop(owned);
        sender.send(()).expect("the test waits");
    };
    workers.submit(Class::Urgent, job).expect("open");
    drop(workers);
    go.send(()).expect("it waits");
    receiver.recv().expect("closing from inside does not hang");
}

#[test]
fn for_each_takes_all_items_and_borrows() {
    for threads in [0, 1, 3] {
        let workers = Workers::start(Some(threads)).expect("starts");
        for class in [Class::Urgent, Class::Background] {
            let counts: Vec<AtomicUsize> = (0..100).map(|_| AtomicUsize::new(0)).collect();
            let work = |item: usize| {
                counts[item].fetch_add(1, Ordering::Relaxed);
                Ok::<_, WorkersError>(())
            };
            workers
                .for_each(class, (0..100).collect(), work)
                .expect("no item fails");
            assert!(
                counts.iter().all(|count| count.load(Ordering::Relaxed) == 1),
                "{threads} threads"
            );
            workers.for_each(class, vec![], work).expect("nothing to do");
        }
    }
}

#[test]
fn for_each_uses_helpers() {
    let workers = Workers::start(Some(1)).expect("starts");
    // Two items that wait for each other: one thread alone would never come back.
    let barrier = std::sync::Barrier::new(2);
    let meet = |_| {
        barrier.wait();
        Ok::<_, WorkersError>(())
    };
    workers
        .for_each(Class::Background, vec![1, 2], meet)
        .expect("no item fails");
}

#[derive(Debug, PartialEq)]
enum Failure {
    Item(usize),
    Workers(WorkersError),
}

impl From<WorkersError> for Failure {
    fn from(error: WorkersError) -> Self {
        Failure::Workers(error)
    }
}

#[test]
fn for_each_stops_at_an_error() {
    let workers = Workers::start(Some(0)).expect("no thread to start");
    let seen = Mutex::new(vec![]);
    let work = |item| {
        seen.lock().push(item);
        if item == 3 { Err(Failure::Item(item)) } else { Ok(()) }
    };
    assert_eq!(
        workers.for_each(Class::Urgent, (0..10).collect(), work),
        Err(Failure::Item(3))
    );
    assert_eq!(seen.into_inner(), [0, 1, 2, 3]);
    workers.check().expect("an error is no panic");
}

#[test]
fn for_each_reports_a_panic() {
    for threads in [0, 2] {
        let workers = Workers::start(Some(threads)).expect("starts");
        let work = |item: usize| -> Result<(), Failure> {
            assert!(item != 5, "five");
            Ok(())
        };
        let failed = workers.for_each(Class::Urgent, (0..10).collect(), work);
        assert_eq!(failed, Err(Failure::Workers(poisoned("five"))));
        assert_eq!(workers.check(), Err(poisoned("five")));
    }
}
