//! The whole engine under a schedule checker: writers, readers, checkpoints, compaction, loads and eviction in
//! thousands of orders, each of which can be repeated.
//!
//! Every lock, every load of a cell and every look at the positions of snapshots is a point where the checker may
//! switch. Locks of the block store are not: nothing of the engine runs under them. A reader's view must be the model's
//! at its position, whatever runs beside it; a checkpoint, looked at in a copy of the disk as a crash would leave it,
//! too.
//!
//! `TENON_SHUTTLE_SEED=n` repeats a run, `TENON_SHUTTLE_FACTOR=n` makes it n times as long.

#![allow(clippy::unwrap_used, reason = "a test: a failed step is a failed test")]

use engine::{
    Batch, Direction, Engine, FillLimits, KeyRange, Maintenance, Seq, Snapshot, StatValue, TableId, TableKind,
    TableSpec,
};
use engine_btree::{BtreeEngine, BtreeOptions};
use engine_soak::{Dice, Event, Model, Place, Plan, check, event_at};
use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::{Config, Runner, thread};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex as Plain, MutexGuard as PlainGuard};
use vfs::{Random, SystemRandom};

/// Flushes after which garbage of a run is gone.
const FLUSHES: usize = 300;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap())
}

/// Runs `test` with the numbers of many runs, in random schedules and such with few switches (PCT; Burckhardt and
/// others, ASPLOS 2010).
fn check(name: &str, schedules: u64, test: fn(u64)) {
    let seed = number("TENON_SHUTTLE_SEED").unwrap_or_else(|| SystemRandom::new().next_u64());
    let schedules = (schedules * number("TENON_SHUTTLE_FACTOR").unwrap_or(1)) as usize;
    println!("{name}: TENON_SHUTTLE_SEED={seed}");
    let mut config = Config::new();
    config.stack_size = 1 << 20;
    let body = || {
        let runs = AtomicU64::new(seed);
        // Plans differ from run to run, too.
        move || test(runs.fetch_add(1, Ordering::Relaxed))
    };
    Runner::new(RandomScheduler::new_from_seed(seed, schedules), config.clone()).run(body());
    Runner::new(PctScheduler::new_from_seed(seed, 3, schedules), config).run(body());
}

/// The memory that an engine counts.
fn accounted(engine: &BtreeEngine) -> BTreeMap<String, i64> {
    let mut bytes = BTreeMap::new();
    engine.stats(&mut |name, value| {
        if let ("cache.imageBytes" | "cache.deltaBytes" | "cache.innerBytes", StatValue::Number(value)) = (name, value)
        {
            bytes.insert(name.to_owned(), value);
        }
    });
    assert_eq!(bytes.len(), 3, "{bytes:?}");
    bytes
}

/// An engine on a simulated disk and what must be in it. The model's lock is held only where nothing is switched.
#[derive(Clone)]
struct World {
    engine: Arc<BtreeEngine>,
    model: Arc<Plain<Model>>,
    place: Arc<Place>,
    plan: Arc<Plan>,
    done: Arc<AtomicBool>,
}

impl World {
    fn new(plan: Plan) -> Self {
        let place = Place::simulated(plan.seed);
        let engine = BtreeEngine::open(&place.env(), &place.directory(), plan.options.clone()).unwrap();
        Self {
            engine: Arc::new(engine),
            model: Arc::default(),
            place: Arc::new(place),
            plan: Arc::new(plan),
            done: Arc::default(),
        }
    }

    fn model(&self) -> PlainGuard<'_, Model> {
        self.model.lock().unwrap()
    }

    /// Writes what the plan has at the next position, and publishes it.
    fn write(&self) {
        let seq = self.model().newest().next();
        let event = event_at(&self.plan, &self.model(), seq);
        match event {
            Event::Batch(batch) => self.apply(&batch),
            Event::Load { create, table, rows } => {
                self.model().apply(&create, seq);
                self.model().load(table, &rows, seq);
                self.engine.apply(&create, seq).unwrap();
                self.engine.bulk_load(table, &mut rows.into_iter(), seq).unwrap();
                self.engine.publish(seq);
            }
        }
    }

    /// The table that the first event makes.
    fn first_table(&self) -> TableId {
        self.write();
        let tables = self.model().tables_at(Seq(u64::MAX));
        tables.first().expect("the first event makes one").0
    }

    /// Into the model first: a reader may come between.
    fn apply(&self, batch: &Batch) {
        let seq = self.model().newest().next();
        self.model().apply(batch, seq);
        self.engine.apply(batch, seq).unwrap();
        self.engine.publish(seq);
    }

    /// Compares one table of a view, by few rows at a time.
    fn look(&self, view: &Arc<dyn Snapshot>, dice: &Dice, what: &str) {
        let at = view.seq();
        let tables = self.model().tables_at(at);
        let Some(&(table, _)) = tables.get(dice.below(tables.len().max(1) as u64) as usize) else {
            return;
        };
        let limits = FillLimits {
            rows_max: dice.one_of(&[3, 50]),
            bytes_max: 1 << 20,
        };
        let direction = dice.one_of(&[Direction::Forward, Direction::Reverse]);
        let found = check::scan(view, table, &KeyRange::all(), direction, limits).unwrap();
        let mut expected = self.model().rows(table, &KeyRange::all(), at);
        if direction == Direction::Reverse {
            expected.reverse();
        }
        check::expect_same(&found, &expected, &format!("{what}, {table:?} at {at:?} {direction:?}"));
        if let Some((key, value)) = expected.first() {
            assert_eq!(
                view.get(table, key).unwrap().as_ref(),
                Some(value),
                "{what}, {table:?} at {at:?}"
            );
        }
    }

    /// A checkpoint, and sometimes a look at what a crash after it would leave.
    fn checkpoint(&self, dice: &Dice) {
        let published = self.engine.snapshot().unwrap().seq();
        let mark = self.engine.checkpoint().unwrap();
        assert!(mark >= published, "a checkpoint at {mark:?} misses {published:?}");
        assert_eq!(self.engine.check_durable().unwrap(), Vec::<String>::new());
        if dice.percent(30) {
            self.look_at_copy(mark, dice);
        }
    }

    fn look_at_copy(&self, mark: Seq, dice: &Dice) {
        let Place::Simulated(fs) = &*self.place else {
            unreachable!("the disk is simulated")
        };
        let copy = Place::Simulated(fs.after_crash(dice.next()));
        let engine = BtreeEngine::open(&copy.env(), &copy.directory(), self.plan.options.clone()).unwrap();
        let at = engine.durable_seq();
        assert!(at >= mark, "{mark:?} was durable, {at:?} came back");
        let expected = self.model().clone();
        check::engine_is_the_model(&engine, &expected, at, "a copy of the disk").unwrap();
        check::engine_is_sound(&engine, "a copy of the disk").unwrap();
    }

    /// Without tables, all memory that was counted for them is counted as free again, however their leaves came and
    /// went: no more is left than in an engine that had one without rows.
    fn expect_nothing_accounted(&self) {
        let place = Place::simulated(self.plan.seed);
        let other = BtreeEngine::open(&place.env(), &place.directory(), self.plan.options.clone()).unwrap();
        let mut batch = Batch::new();
        let spec = TableSpec {
            kind: TableKind::Small,
            name: "db.rows".to_owned(),
            compressor: None,
        };
        batch.create_table(TableId(1), spec);
        other.apply(&batch, Seq(1)).unwrap();
        other.publish(Seq(1));
        other.checkpoint().unwrap();
        let mut batch = Batch::new();
        batch.drop_table(TableId(1));
        other.apply(&batch, Seq(2)).unwrap();
        other.publish(Seq(2));
        other.checkpoint().unwrap();

        let mut batch = Batch::new();
        for (table, _) in self.engine.tables().unwrap() {
            batch.drop_table(table);
        }
        self.apply(&batch);
        self.engine.checkpoint().unwrap();
        assert_eq!(accounted(&self.engine), accounted(&other));
    }

    /// Runs `writes` in a thread beside `others`, which go on until the writer has ended; then compares everything.
    fn run(self, writes: impl FnOnce(&World) + Send + 'static, others: Vec<fn(&World, &Dice)>) {
        let seed = self.plan.seed;
        let writer = {
            let world = self.clone();
            thread::spawn(move || {
                writes(&world);
                world.done.store(true, Ordering::Release);
            })
        };
        let threads: Vec<_> = others
            .into_iter()
            .zip(1..)
            .map(|(step, number)| {
                let world = self.clone();
                thread::spawn(move || {
                    let dice = Dice::new(seed ^ number);
                    // A scheduler with priorities may let nobody else run for long.
                    for _ in 0..STEPS_MAX {
                        step(&world, &dice);
                        if world.done.load(Ordering::Acquire) {
                            break;
                        }
                        thread::yield_now();
                    }
                })
            })
            .collect();
        writer.join().unwrap();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        let view = self.engine.snapshot().unwrap();
        let model = self.model().clone();
        check::engine_is_the_model(&*self.engine, &model, view.seq(), "at the end").unwrap();
        drop(view);
        self.engine.checkpoint().unwrap();
        check::engine_is_sound(&*self.engine, "at the end").unwrap();
        self.look_at_copy(self.engine.durable_seq(), &Dice::new(seed));
        self.expect_nothing_accounted();
        drop(self);
        for _ in 0..FLUSHES {
            rcu::pin().flush();
        }
    }
}

/// Steps of a thread beside the writer, at most.
const STEPS_MAX: usize = 12;

fn read(world: &World, dice: &Dice) {
    let view = world.engine.snapshot().unwrap();
    world.look(&view, dice, "a new view");
    thread::yield_now();
    world.look(&view, dice, "an older view");
}

fn keep(world: &World, dice: &Dice) {
    world.checkpoint(dice);
}

fn keep_and_compact(world: &World, dice: &Dice) {
    if dice.percent(40) {
        world.engine.maintain(&Maintenance::Compact(None)).unwrap();
    } else {
        world.checkpoint(dice);
    }
}

fn verify(world: &World, _: &Dice) {
    let report = world.engine.maintain(&Maintenance::Verify(None)).unwrap();
    assert_eq!(report.problems, Vec::<String>::new());
}

fn small_plan(seed: u64) -> Plan {
    let mut plan = Plan::tiny(seed);
    plan.tables_max = 2;
    plan.keys = 60;
    plan.batch_ops_max = 12;
    plan.value_bytes_max = 60;
    plan.load_rows_max = 40;
    plan.options.collection_compressor = codec::Codec::None;
    plan.options.index_compressor = codec::Codec::None;
    plan
}

#[test]
fn views_and_checkpoints_beside_a_writer() {
    check("views_and_checkpoints_beside_a_writer", 150, |seed| {
        World::new(small_plan(seed)).run(|world| (0..14).for_each(|_| world.write()), vec![read, keep]);
    });
}

#[test]
fn large_values_beside_checkpoints() {
    check("large_values_beside_checkpoints", 100, |seed| {
        let plan = Plan {
            large_percent: 40,
            keys: 12,
            ..small_plan(seed)
        };
        World::new(plan).run(|world| (0..10).for_each(|_| world.write()), vec![read, keep, keep]);
    });
}

#[test]
fn compaction_and_verification_beside_a_writer() {
    check("compaction_and_verification_beside_a_writer", 80, |seed| {
        World::new(small_plan(seed)).run(
            |world| (0..12).for_each(|_| world.write()),
            vec![read, keep_and_compact, verify],
        );
    });
}

/// Half of them goes, so that compaction moves the others, whose positions do not change: a view must find the old
/// place or the new one, and a checkpoint's copy of the disk must have what it refers to.
#[test]
fn large_values_move_beside_readers_and_checkpoints() {
    static MOVED: AtomicU64 = AtomicU64::new(0);
    check("large_values_move_beside_readers_and_checkpoints", 60, |seed| {
        let mut plan = small_plan(seed);
        plan.tables_max = 1;
        plan.options.large_value_bytes = 2000;
        World::new(plan).run(
            |world| {
                let table = world.first_table();
                let dice = Dice::new(world.plan.seed);
                let mut batch = Batch::new();
                for key in 0..60_u64 {
                    batch.put(table, key.to_be_bytes().to_vec(), dice.bytes(2500));
                }
                world.apply(&batch);
                world.engine.checkpoint().unwrap();
                let mut batch = Batch::new();
                for key in (0..60_u64).filter(|key| key % 4 > 0) {
                    batch.delete(table, key.to_be_bytes().to_vec());
                }
                world.apply(&batch);
                world.engine.checkpoint().unwrap();
                for _ in 0..2 {
                    world.engine.maintain(&Maintenance::Compact(None)).unwrap();
                    let mut batch = Batch::new();
                    let key = 4 * dice.below(15);
                    batch.put(table, key.to_be_bytes().to_vec(), dice.bytes(2500));
                    world.apply(&batch);
                }
                world.engine.stats(&mut |name, value| {
                    if let ("files.blocksMoved", StatValue::Number(moved)) = (name, value) {
                        MOVED.fetch_add(moved as u64, Ordering::Relaxed);
                    }
                });
            },
            vec![read, read, keep],
        );
    });
    assert!(MOVED.load(Ordering::Relaxed) > 0);
}

/// Rows of a quarter of the cache each hundred: leaves leave memory and come back all the time.
#[test]
fn eviction_beside_readers_and_checkpoints() {
    check("eviction_beside_readers_and_checkpoints", 25, |seed| {
        let mut plan = small_plan(seed);
        plan.keys = 40;
        plan.large_percent = 0;
        plan.tables_max = 1;
        plan.options = BtreeOptions {
            cache_bytes: 1 << 20,
            large_value_bytes: 1 << 20,
            record_leaf_bytes: 20_000,
            index_leaf_bytes: 20_000,
            segment_bytes: 256 << 10,
            ..plan.options
        };
        plan.value_bytes_max = 60_000;
        World::new(plan).run(|world| (0..12).for_each(|_| world.write()), vec![read, read, keep]);
    });
}

/// Leaves that split, empty and merge, without tables that come and go between.
#[test]
fn splits_and_merges_beside_readers_and_checkpoints() {
    check("splits_and_merges_beside_readers_and_checkpoints", 100, |seed| {
        let mut plan = small_plan(seed);
        plan.tables_max = 1;
        plan.options.record_leaf_bytes = 300;
        plan.options.index_leaf_bytes = 300;
        World::new(plan).run(
            |world| {
                let table = world.first_table();
                let dice = Dice::new(world.plan.seed);
                for round in 0..8_u64 {
                    let mut batch = Batch::new();
                    let first = dice.below(30);
                    for key in first..first + 20 {
                        let key = key.to_be_bytes().to_vec();
                        if round % 2 == 0 {
                            batch.put(table, key, dice.bytes(30));
                        } else {
                            batch.delete(table, key);
                        }
                    }
                    world.apply(&batch);
                }
            },
            vec![read, keep],
        );
    });
}
