//! What a member of a replica set does to its log: entries with terms at given places, tails taken back, hard states,
//! reading what is only in memory, history kept beyond the engine's mark. Against a model, with crashes at every
//! operation.

use crate::support::{entry, env, options, segments};
use engine::Seq;
use oplog::{HardState, Log, LogError, LogOptions, Result, Retention};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use vfs::{Env, Fault, FaultKind, Random, SeededRandom, SimulatedClock, SimulatedFs};

/// What the log must hold: `entries[i]` has position `i + 1`.
#[derive(Clone, Default)]
struct Model {
    entries: Vec<(u64, Vec<u8>)>,
    /// The last entry whose durability was acknowledged, and that nobody tried to take back since.
    acknowledged: u64,
    /// Every state that a write was begun of.
    states: Vec<HardState>,
    /// How many of them were acknowledged.
    states_acknowledged: usize,
    /// The engine's durable mark.
    mark: u64,
}

impl Model {
    fn last(&self) -> Seq {
        Seq(self.entries.len() as u64)
    }

    fn term(&self) -> u64 {
        self.entries.last().map_or(0, |(term, _)| *term)
    }

    fn append(&mut self, log: &Log, term: u64, salt: u64) -> Result<()> {
        let seq = self.last().next();
        let bytes = entry(seq, salt, 900);
        log.append_at(seq, term, &[&bytes])?;
        self.entries.push((term, bytes));
        Ok(())
    }

    fn truncate(&mut self, log: &Log, from: Seq) -> Result<()> {
        // From now on a crash may find them gone; after the call's return it must.
        self.acknowledged = self.acknowledged.min(from.0 - 1);
        log.truncate(from)?;
        self.entries.truncate(from.0 as usize - 1);
        assert_eq!(log.last_seq(), self.last());
        Ok(())
    }

    fn write_state(&mut self, log: &Log, state: HardState) -> Result<()> {
        self.states.push(state);
        log.write_state(state)?;
        self.states_acknowledged = self.states.len();
        // It is behind everything that was appended before.
        self.acknowledged = self.last().0;
        Ok(())
    }

    /// Everything appended, in memory or not, with its terms.
    fn expect_appended(&self, log: &Log) {
        let mut reader = log.read_appended(Seq(self.mark).next()).unwrap();
        let mut due = Seq(self.mark).next();
        while let Some(item) = reader.next() {
            let (seq, bytes) = item.unwrap();
            let (term, expected) = &self.entries[seq.0 as usize - 1];
            assert_eq!((seq, reader.term()), (due, *term));
            assert_eq!(bytes, *expected, "{seq:?}");
            assert_eq!(log.term_of(seq).unwrap(), *term, "{seq:?}");
            due = seq.next();
        }
        assert_eq!(due, self.last().next());
        assert_eq!(log.hard_state(), self.states.last().copied());
    }

    /// After a crash: at least what was acknowledged, at most what there was.
    fn compare(&mut self, log: &Log) {
        let last = log.last_seq();
        assert_eq!(log.durable_seq(), last);
        let range = self.acknowledged..=self.last().0;
        assert!(range.contains(&last.0), "{range:?} was to be found, not {last:?}");
        self.entries.truncate(last.0 as usize);
        self.acknowledged = last.0;
        let found = match log.hard_state() {
            None => 0,
            // States rise in their terms, so each is there once.
            Some(state) => 1 + self.states.iter().position(|written| *written == state).unwrap(),
        };
        assert!(
            found >= self.states_acknowledged,
            "{found} of {}",
            self.states_acknowledged
        );
        self.states.truncate(found);
        self.states_acknowledged = found;
        self.expect_appended(log);
    }
}

fn life_options(seed: u64) -> LogOptions {
    LogOptions {
        frame_bytes: if seed.is_multiple_of(2) { 700 } else { 1 << 20 },
        ..options()
    }
}

/// Works by chance, until done or until something fails.
fn work(log: &Log, model: &mut Model, life: u64, steps: u64, random: &SeededRandom) -> Result<()> {
    for step in 0..steps {
        match random.next_u64() % 16 {
            0..8 => {
                let term = model.term() + u64::from(random.next_u64().is_multiple_of(6));
                model.append(log, term.max(1), life << 32 | step)?;
            }
            8..10 => {
                let seq = model.last();
                if seq.0 > 0 {
                    log.wait_durable(seq)?;
                    model.acknowledged = seq.0;
                }
            }
            10 | 11 if model.last().0 > model.mark => {
                let from = model.mark + 1 + random.next_u64() % (model.last().0 - model.mark);
                let term = model.term() + 1;
                model.truncate(log, Seq(from))?;
                model.append(log, term, life << 32 | step)?;
            }
            12 | 13 => {
                let state = HardState {
                    term: model.states.last().map_or(1, |state| state.term + 1),
                    vote: random.next_u64() % 3,
                    commit: Seq(model.mark),
                };
                model.write_state(log, state)?;
            }
            14 if model.acknowledged > model.mark => {
                model.mark += 1 + random.next_u64() % (model.acknowledged - model.mark);
                log.purge(Seq(model.mark))?;
            }
            _ => model.expect_appended(log),
        }
    }
    Ok(())
}

fn reopen(fs: &SimulatedFs, model: &mut Model, seed: u64) -> Log {
    let log = Log::open(&env(fs, seed), life_options(seed), Seq(model.mark)).unwrap();
    model.compare(&log);
    log
}

#[test]
fn tails_and_states_survive_a_crash_at_every_operation() {
    for seed in 0..8 {
        println!("seed {seed}");
        for crash_at in 1.. {
            let fs = SimulatedFs::new(seed * 1_000 + crash_at);
            let mut model = Model::default();
            fs.crash_at(crash_at);
            let result = Log::open(&env(&fs, seed), life_options(seed), Seq::ZERO)
                .and_then(|log| work(&log, &mut model, 1, 80, &SeededRandom::new(seed)));
            assert_eq!(result.is_err(), fs.has_crashed(), "{:?}", result.err());
            if !fs.has_crashed() {
                assert!(crash_at > 50, "the workload does something: {crash_at} operations");
                break;
            }
            println!("crash at operation {crash_at}");
            fs.restart();
            let log = reopen(&fs, &mut model, seed);
            work(&log, &mut model, 2, 20, &SeededRandom::new(seed + 99)).unwrap();
            drop(log);
            reopen(&fs.after_crash(1), &mut model, seed);
        }
    }
}

/// Many lives in a row; what an earlier one took back never comes back in a later one.
#[test]
fn many_lives_of_a_member() {
    let mut truncating = 0;
    for seed in 0..60 {
        println!("seed {seed}");
        let random = SeededRandom::new(seed);
        let fs = SimulatedFs::new(seed);
        let mut model = Model::default();
        for life in 1..10 {
            let log = reopen(&fs, &mut model, seed);
            if random.next_u64().is_multiple_of(2) {
                fs.crash_at(fs.operations() + 1 + random.next_u64() % 60);
            }
            let result = work(&log, &mut model, life, 60, &random);
            drop(log);
            fs.crash_at(0);
            assert_eq!(result.is_err(), fs.has_crashed(), "{:?}", result.err());
            if !fs.has_crashed() {
                fs.crash();
            }
            fs.restart();
            truncating += u64::from(segments(&fs).len() > 3);
        }
        reopen(&fs, &mut model, seed);
    }
    assert!(truncating > 20, "{truncating}");
}

#[test]
fn places_and_terms_are_checked() {
    let fs = SimulatedFs::new(1);
    let log = Log::open(&env(&fs, 1), options(), Seq::ZERO).unwrap();
    log.append_at(Seq(1), 3, &[b"a"]).unwrap();
    for (seq, term) in [(1, 3), (3, 3), (2, 2)] {
        let error = log.append_at(Seq(seq), term, &[b"x"]).unwrap_err();
        let LogError::NotNext { next, last_term, .. } = error else {
            panic!("{error}")
        };
        assert_eq!((next, last_term), (Seq(2), 3));
    }
    assert_eq!(log.append(&[b"b"]).unwrap(), Seq(2), "of the term before it");
    log.append_at(Seq(3), 4, &[b"c"]).unwrap();
    let terms: Vec<u64> = (0..=3).map(|seq| log.term_of(Seq(seq)).unwrap()).collect();
    assert_eq!(terms, [0, 3, 3, 4]);
    assert!(matches!(log.term_of(Seq(4)), Err(LogError::NotAppended { .. })));
    log.truncate(Seq(4)).unwrap();
    assert_eq!(log.last_seq(), Seq(3), "nothing is there to take back");
    log.truncate(Seq(2)).unwrap();
    assert_eq!((log.last_seq(), log.term_of(Seq(1)).unwrap()), (Seq(1), 3));
    assert!(matches!(log.truncate(Seq(0)), Err(LogError::Purged { .. })));
}

#[test]
fn a_tail_of_an_earlier_life_that_is_taken_back_counts_as_no_entry() {
    let fs = SimulatedFs::new(1);
    let log = Log::open(&env(&fs, 1), options(), Seq::ZERO).unwrap();
    let mut model = Model::default();
    for _ in 0..5 {
        model.append(&log, 1, 1).unwrap();
    }
    log.close().unwrap();
    let log = Log::open(&env(&fs, 2), options(), Seq::ZERO).unwrap();
    log.truncate(Seq(3)).unwrap();
    assert_eq!(log.stats().entries, 0);
}

/// What waits for an entry, or has read past it, hears that it was taken back, even when another one stands there by
/// now.
#[test]
fn waits_and_readers_hear_of_a_truncation() {
    let fs = SimulatedFs::new(1);
    let log = Arc::new(Log::open(&env(&fs, 1), options(), Seq::ZERO).unwrap());
    let mut model = Model::default();
    for _ in 0..20 {
        model.append(&log, 1, 1).unwrap();
    }
    let mut behind = log.read(Seq(1)).unwrap();
    let mut ahead = log.read_appended(Seq(1)).unwrap();
    assert!(behind.next().is_none(), "nothing is durable");
    assert_eq!(ahead.by_ref().count(), 20, "in memory it is there");
    fs.inject(Fault::new(FaultKind::NoDescriptors).times(u64::MAX));
    assert!(matches!(log.wait_durable(Seq(15)), Err(LogError::NoDescriptors { .. })));
    fs.clear_faults();
    log.wait_durable(Seq(15)).unwrap();
    assert_eq!(behind.by_ref().take(9).count(), 9);
    model.truncate(&log, Seq(10)).unwrap();
    for _ in 0..20 {
        model.append(&log, 2, 2).unwrap();
    }
    log.flush().unwrap();
    let error = ahead.next().unwrap().unwrap_err();
    assert!(matches!(error, LogError::Truncated { from: Seq(10), .. }), "{error}");
    assert!(ahead.next().is_none(), "it is at its end");
    let rest: BTreeMap<_, _> = behind.by_ref().map(|item| item.unwrap()).collect();
    assert_eq!(rest.len(), 20, "this one had not passed it");
    assert!(
        rest.iter()
            .all(|(seq, bytes)| *bytes == model.entries[seq.0 as usize - 1].1)
    );
    assert_eq!(behind.term(), 2);
}

#[test]
fn a_wait_for_what_comes_makes_nobody_flush() {
    let fs = SimulatedFs::new(1);
    let log = Log::open(&env(&fs, 1), options(), Seq::ZERO).unwrap();
    log.append(&[b"a"]).unwrap();
    assert!(!log.wait_beyond(Seq::ZERO, &|| false).unwrap(), "it is in memory only");
    assert_eq!(log.durable_seq(), Seq::ZERO);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let came = log.wait_beyond(Seq(1), &|| true).unwrap();
            done.store(true, Ordering::SeqCst);
            came
        });
        log.flush().unwrap();
        assert!(log.wait_beyond(Seq::ZERO, &|| true).unwrap());
        assert!(!done.load(Ordering::SeqCst), "nothing is behind it");
        log.append(&[b"b"]).unwrap();
        log.flush().unwrap();
        assert!(waiter.join().unwrap());
        let last = scope.spawn(|| log.wait_beyond(Seq(2), &|| true));
        log.close().unwrap();
        assert!(matches!(last.join().unwrap(), Err(LogError::Closed)));
    });
}

/// History that the engine does not need is kept, by size and by age, and can be read after a restart.
#[test]
fn retention_keeps_history_by_size_and_by_age() {
    let fs = SimulatedFs::new(1);
    let clock = Arc::new(SimulatedClock::new(1_000_000));
    let machine = Env {
        clock: clock.clone(),
        ..env(&fs, 1)
    };
    let segment_bytes = options().segment_bytes;
    let with = |bytes: u64, seconds: u64| LogOptions {
        retention: Retention {
            bytes,
            time: Duration::from_secs(seconds),
        },
        ..options()
    };
    let grow = |log: &Log| {
        for _ in 0..100 {
            let seq = log.append(&[&[7; 1_000]]).unwrap();
            log.wait_durable(seq).unwrap();
            clock.advance(Duration::from_secs(1));
        }
    };
    let log = Log::open(&machine, with(4 * segment_bytes, 0), Seq::ZERO).unwrap();
    grow(&log);
    let mark = log.last_seq();
    log.purge(mark).unwrap();
    assert_eq!(log.stats().segments, 4, "so many bytes stay");
    let first = log.first_seq();
    assert!(first > Seq(1) && first < mark);
    log.close().unwrap();

    let log = Log::open(&machine, with(0, 60), mark).unwrap();
    assert_eq!(
        log.read(first).unwrap().count() as u64,
        mark.0 - first.0 + 1,
        "old segments are read"
    );
    log.purge(mark).unwrap();
    grow(&log);
    let mark = log.last_seq();
    log.purge(mark).unwrap();
    let kept = mark.0 - log.first_seq().0 + 1;
    assert!(
        (60..80).contains(&kept),
        "one entry a second, and what shares a segment: {kept}"
    );
    clock.advance(Duration::from_secs(1_000));
    log.purge(mark).unwrap();
    assert_eq!(log.stats().segments, 1);
    assert_eq!(
        log.read(log.first_seq()).unwrap().count() as u64,
        mark.0 - log.first_seq().0 + 1
    );
}

/// Purging goes on without end, and the state is still there.
#[test]
fn a_state_outlives_the_segment_it_was_written_to() {
    let fs = SimulatedFs::new(1);
    let log = Log::open(&env(&fs, 1), options(), Seq::ZERO).unwrap();
    let state = HardState {
        term: 9,
        vote: 2,
        commit: Seq(0),
    };
    log.write_state(state).unwrap();
    for _ in 0..200 {
        let seq = log.append(&[&[1; 1_000]]).unwrap();
        log.wait_durable(seq).unwrap();
        log.purge(seq).unwrap();
    }
    assert!(log.first_seq() > Seq(150));
    let mark = log.last_seq();
    drop(log);
    fs.crash();
    fs.restart();
    let log = Log::open(&env(&fs, 2), options(), mark).unwrap();
    assert_eq!(log.hard_state(), Some(state));
}
