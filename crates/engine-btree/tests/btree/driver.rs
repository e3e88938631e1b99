//! A stream of bytes as everything that can happen to an engine: its options, what is done in which order, and when the
//! machine crashes or its disk is full. For the fuzz target `btree_operations` and for the test `operations`.
//!
//! What is compared, by `engine-soak`: every view with the model's state at its position, both ways and by ranges,
//! after crashes too; copies of the disk; backups; every page and all space.

use engine_soak::{Dice, Place, Plan, Run, Weights};

/// Bytes at the front that choose how a run goes.
pub const HEAD_BYTES: usize = 6;
/// Steps of one stream, at most.
const STEPS_MAX: usize = 300;

/// How a run goes.
#[derive(Debug)]
struct Manner {
    plan: Plan,
    weights: Weights,
    /// The file operation in which the machine crashes; 0 for none.
    crash_at: u64,
    /// Free bytes of the disk from the first step on, if it is bounded.
    free_bytes: Option<u64>,
}

impl Manner {
    fn new(head: [u8; HEAD_BYTES]) -> Self {
        let [seed, sizes, weights, crash_low, crash_high, free] = head;
        let mut plan = Plan::tiny(u64::from(seed));
        if sizes & 1 != 0 {
            plan.large_percent = 30;
        }
        if sizes & 2 != 0 {
            plan.keys = 8;
        }
        if sizes & 4 != 0 {
            // Leaves of the largest rows that are not large: memory is short after some dozens of them.
            plan.options.large_value_bytes = 128 << 10;
            plan.options.record_leaf_bytes = 64 << 10;
            plan.options.index_leaf_bytes = 20_000;
            plan.value_bytes_max = 40_000;
            plan.large_percent = 0;
            plan.options.collection_compressor = codec::Codec::None;
            plan.options.index_compressor = codec::Codec::None;
        }
        let usual = Weights::default();
        let weights = match weights % 4 {
            0 => usual,
            1 => Weights {
                checkpoint: 150,
                compact: 60,
                ..usual
            },
            2 => Weights {
                crash: 60,
                reopen: 40,
                ..usual
            },
            _ => Weights {
                open_view: 150,
                read: 200,
                drop_view: 100,
                verify: 20,
                ..usual
            },
        };
        Self {
            plan,
            weights,
            crash_at: u64::from(u16::from_le_bytes([crash_low, crash_high])) % 1024,
            free_bytes: (free >= 128).then(|| u64::from(free - 127) << 13),
        }
    }
}

/// Does what `bytes` say; panics where the engine is wrong.
pub fn run(bytes: &[u8]) {
    let Some((head, choices)) = bytes.split_first_chunk::<HEAD_BYTES>() else {
        return;
    };
    let manner = Manner::new(*head);
    let seed = manner.plan.seed;
    let place = Place::simulated(seed);
    let Place::Simulated(fs) = &place else {
        unreachable!("the disk is simulated")
    };
    let fs = fs.clone();
    let dice = Dice::from_bytes(seed, choices.to_vec());
    let mut run = Run::new(manner.plan, manner.weights, place, dice);
    run.copies_percent = 10;
    fs.set_free_bytes(manner.free_bytes);
    fs.crash_at(manner.crash_at);
    for _ in 0..STEPS_MAX {
        if run.dice().is_exhausted() {
            break;
        }
        if let Err(error) = run.steps(1) {
            let full = manner.free_bytes.is_some() && Run::is_out_of_space(&error);
            assert!(full || fs.has_crashed(), "{error}");
            // There is room again, and an engine that has not stopped goes on.
            fs.set_free_bytes(None);
            if fs.has_crashed() || !run.is_working() {
                run.crash();
                run.recover().expect("what a crash left can be opened");
            }
        }
    }
    if fs.has_crashed() {
        run.crash();
        run.recover().expect("what a crash left can be opened");
    }
    fs.set_free_bytes(None);
    fs.crash_at(0);
    run.steps(1).expect("the disk works");
    run.finish().expect("the disk works");
}
