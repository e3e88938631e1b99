//! The map of space against a naive model: for each sector, who needs it and until when.

use super::map::{HEAD_SECTORS, SpaceMap};
use super::{Mark, Phase};
use crate::store::Referenced;
use vfs::{Random, SeededRandom, SystemRandom};

/// What the model knows of a block: the first and the last checkpoint that refers to it.
#[derive(Clone, Copy, Debug)]
struct Life {
    sector: u64,
    sectors: u32,
    born: u64,
    last: Option<u64>,
    /// The running checkpoint's map shall not have it.
    excluding: bool,
    /// The durable checkpoint's map has not.
    is_absent: bool,
}

impl Life {
    /// Whether a checkpoint that is durable, running or yet to come refers to it.
    fn is_needed(&self, durable: u64) -> bool {
        self.last
            .is_none_or(|last| last >= self.born && (last > durable || last == durable && !self.is_absent))
    }
}

struct Model {
    space: SpaceMap,
    lives: Vec<Life>,
    durable: u64,
    /// The number begun last.
    number: u64,
    running: bool,
    settling: bool,
    withheld: Vec<Life>,
    pinned: bool,
}

impl Model {
    fn phase(&self) -> Phase {
        match (self.running, self.settling) {
            (false, _) => Phase::Idle,
            (true, false) => Phase::Running,
            (true, true) => Phase::Settling,
        }
    }

    /// Blocks whose sectors must not be handed out: a durable, running or later checkpoint refers to them.
    fn needed(&self) -> impl Iterator<Item = &Life> {
        let durable = self.durable;
        self.lives.iter().filter(move |life| life.is_needed(durable))
    }

    fn append(&mut self, random: &SeededRandom) {
        let is_long = random.next_u64().is_multiple_of(8);
        let run = if is_long {
            let sectors = self.space.segment_sectors + 1 + (random.next_u64() % 400) as u32;
            let start = self.space.reserve_long(sectors);
            assert_eq!(start % u64::from(self.space.segment_sectors), 0);
            start..start + u64::from(sectors)
        } else {
            let sectors = 1 + (random.next_u64() % 40) as u32;
            let run = self.space.reserve(sectors, sectors + 24, None);
            let end = run.start + u64::from(sectors);
            if end < run.end {
                self.space.release(end, (run.end - end) as u32, false);
            }
            if random.next_u64().is_multiple_of(3) {
                self.space.resume_at(Some(end));
            }
            run.start..end
        };
        let sectors = (run.end - run.start) as u32;
        for life in self.needed().chain(&self.withheld) {
            let end = life.sector + u64::from(life.sectors);
            assert!(
                run.end <= life.sector || end <= run.start,
                "{run:?} is needed by {life:?}"
            );
        }
        let for_running = self.phase() == Phase::Running && random.next_u64().is_multiple_of(2);
        let (mark, born) = match (self.running, for_running) {
            (false, _) => (Mark::Next, self.number + 1),
            (true, true) => (Mark::Next, self.number),
            (true, false) => (Mark::Later, self.number + 1),
        };
        self.space.mark(run.start, sectors, mark);
        self.lives.push(Life {
            sector: run.start,
            sectors,
            born,
            last: None,
            excluding: false,
            is_absent: false,
        });
    }

    /// A block that the running checkpoint does not record, or has been kept for it in vain.
    fn mend(&mut self, random: &SeededRandom) {
        let number = self.number;
        let of_running: Vec<usize> = (0..self.lives.len())
            .filter(|at| {
                let life = &self.lives[*at];
                life.born <= number && life.last.is_none_or(|last| last == number)
            })
            .collect();
        let Some(at) = of_running.get(random.next_u64() as usize % of_running.len().max(1)) else {
            return;
        };
        let life = &mut self.lives[*at];
        if life.last.is_some() && random.next_u64().is_multiple_of(2) {
            assert!(self.space.forsake(life.sector, life.sectors), "{life:?}");
            assert!(!self.space.forsake(life.sector, life.sectors), "twice: {life:?}");
            life.last = Some(self.durable);
        } else {
            assert!(self.space.exclude(life.sector, life.sectors), "{life:?}");
            life.excluding = true;
        }
    }

    fn free(&mut self, random: &SeededRandom) {
        let phase = self.phase();
        let number = self.number;
        let alive: Vec<usize> = (0..self.lives.len())
            .filter(|at| self.lives[*at].last.is_none())
            .collect();
        let Some(at) = alive.get(random.next_u64() as usize % alive.len().max(1)) else {
            return;
        };
        let life = &mut self.lives[*at];
        let by_running = random.next_u64().is_multiple_of(2);
        let kept = life.born <= number && (phase == Phase::Settling || phase == Phase::Running && by_running);
        life.last = Some(if kept { number } else { self.durable });
        let referenced = match by_running {
            true => Referenced::ByRunningCheckpoint,
            false => Referenced::No,
        };
        let life = *life;
        assert!(
            self.space.free(life.sector, life.sectors, referenced, phase),
            "{life:?}"
        );
        assert!(
            !self.space.free(life.sector, life.sectors, referenced, phase),
            "twice: {life:?}"
        );
    }

    fn end_checkpoint(&mut self, random: &SeededRandom) {
        self.running = false;
        self.settling = false;
        if random.next_u64().is_multiple_of(4) {
            self.space.abandon();
            let (number, durable) = (self.number, self.durable);
            // It never was: what it alone kept is free.
            for life in &mut self.lives {
                life.excluding = false;
                if life.last == Some(number) {
                    life.last = Some(if life.born <= durable { durable } else { 0 });
                }
            }
            // What was born for it belongs to the next one.
            for life in &mut self.lives {
                if life.born == number && life.last.is_none() {
                    life.born = number + 1;
                }
            }
        } else {
            self.space.settle(self.pinned);
            let (before, number) = (self.durable, self.number);
            self.durable = number;
            if self.pinned {
                let gone = |life: &&Life| {
                    let was_there =
                        life.born <= before && !life.is_absent && life.last.is_none_or(|last| last >= before);
                    was_there && (life.excluding || life.last.is_some_and(|last| last < number))
                };
                for life in self.lives.iter().filter(gone) {
                    // One that was left out once, and is given back now, is withheld already.
                    let is_it = |held: &Life| (held.sector, held.sectors) == (life.sector, life.sectors);
                    if !self.withheld.iter().any(is_it) {
                        self.withheld.push(*life);
                    }
                }
            }
            for life in &mut self.lives {
                life.is_absent = std::mem::take(&mut life.excluding);
            }
        }
        let durable = self.durable;
        self.lives.retain(|life| life.is_needed(durable));
    }

    /// Sectors of needed blocks and of the head are busy, all others free.
    fn check(&self) {
        self.space.check_invariants();
        let mut busy = u64::from(HEAD_SECTORS);
        // One that a pin withholds may be in use still.
        let needed = self.needed();
        let withheld = self.withheld.iter().filter(|held| {
            let is_it = |life: &Life| (life.sector, life.sectors) == (held.sector, held.sectors);
            !self.needed().any(is_it)
        });
        for life in needed.chain(withheld) {
            busy += u64::from(life.sectors);
            for (number, range) in self.space.find(life.sector, life.sectors).expect("inside") {
                assert!(self.space.segments()[number].is_busy(range), "{life:?}");
            }
        }
        let total = self.space.segments().len() as u64 * u64::from(self.space.segment_sectors);
        assert_eq!(total - self.space.sums().free_sectors, busy, "nothing else is busy");
    }
}

#[test]
fn random_lives_agree_with_the_model() {
    let seed = std::env::var("TENON_SEED").map_or_else(
        |_| SystemRandom::new().next_u64(),
        |text| text.parse().expect("a number"),
    );
    println!("TENON_SEED={seed}");
    let random = SeededRandom::new(seed);
    for _ in 0..20 {
        let mut model = Model {
            space: SpaceMap::new(128),
            lives: Vec::new(),
            durable: 0,
            number: 0,
            running: false,
            settling: false,
            withheld: Vec::new(),
            pinned: false,
        };
        for _ in 0..600 {
            match random.next_u64() % 19 {
                18 => match random.next_u64().is_multiple_of(2) {
                    true => model.space.note_full(random.next_u64() % 4000),
                    false => drop(model.space.forget_full()),
                },
                16.. if model.phase() == Phase::Running => model.mend(&random),
                0..7 => model.append(&random),
                7..12 => model.free(&random),
                12 if !model.running => {
                    model.number += 1;
                    model.running = true;
                }
                12 => model.settling = true,
                13 if model.running => model.end_checkpoint(&random),
                14 if model.pinned => {
                    model.pinned = false;
                    model.withheld.clear();
                    model.space.release_withheld();
                }
                14 => model.pinned = random.next_u64().is_multiple_of(3),
                15 => {
                    let allowance = random.next_u64() % 4000;
                    model.space.plan_evacuation(
                        allowance.is_multiple_of(2).then_some(allowance),
                        2 + allowance as usize % 15,
                    );
                    let one = model.space.evacuating_segments().nth(allowance as usize % 3);
                    if let Some(number) = one {
                        model.space.give_up_evacuation(number);
                    }
                    for life in &model.lives {
                        model.space.wants_move(life.sector, life.sectors);
                    }
                    if !model.pinned {
                        model.space.trim();
                    }
                }
                _ => {}
            }
            model.check();
        }
        assert!(model.durable > 0 && !model.lives.is_empty());
    }
}

#[test]
fn a_block_lies_in_one_segment_or_fills_whole_ones() {
    let mut space = SpaceMap::new(128);
    for sectors in [100, 100, 128, 1, 27, 28] {
        let run = space.reserve(sectors, sectors, None);
        assert_eq!(run.start / 128, (run.end - 1) / 128);
        space.mark(run.start, sectors, Mark::Next);
    }
    assert!(!space.occupy(120, 16), "over the edge");
    assert!(!space.free(120, 16, Referenced::No, Phase::Idle));
    let end = space.segments().len() as u64 * 128;
    assert_eq!(space.reserve_long(129), end, "nothing free in a row");
    space.mark(end, 129, Mark::Next);
    let beside = space.reserve(127, 127, Some(end + 129));
    assert_eq!(beside, end + 129..end + 256, "what it leaves is used");
    assert!(
        !space.free(end, 257, Referenced::No, Phase::Idle),
        "not all of it is a block"
    );
    assert!(
        !space.free(end + 1, 128, Referenced::No, Phase::Idle),
        "no block lies so"
    );
    assert!(space.free(end, 129, Referenced::No, Phase::Idle));
    assert_eq!(space.reserve_long(300), end + 256);
    assert_eq!(space.reserve_long(129), end + 640, "one free segment is not two");
    space.release(beside.start, 127, false);
    assert_eq!(space.reserve_long(200), end, "the lowest ones");
    assert!(!space.free(1 << 40, 16, Referenced::No, Phase::Idle), "past the end");
    space.check_invariants();
}

/// A block that is longer than a segment leaves its last one sparse wherever it lies, so that moving it for that would
/// never end.
#[test]
fn a_long_block_moves_only_down() {
    let mut space = SpaceMap::new(128);
    let low = space.reserve_long(129);
    let rest: Vec<_> = (0..6).map(|_| space.reserve_long(130)).collect();
    for (sector, sectors) in rest.iter().map(|sector| (*sector, 130)).chain([(low, 129)]) {
        space.mark(sector, sectors, Mark::Next);
    }
    space.settle(false);
    space.forget_long();
    assert!(space.plan_evacuation(None, 2) > 0);
    assert!(
        rest.iter().all(|sector| !space.wants_move(*sector, 130)),
        "there is no room"
    );
    assert!(!space.wants_move(low, 129));
    assert!(!space.has_evacuation(), "their rests are used again");
    assert!(space.free(low, 129, Referenced::No, Phase::Idle));
    space.settle(false);
    assert!(space.plan_evacuation(None, 2) > 0, "the end of the file");
    let last = rest[5];
    assert!(space.wants_move(last, 130));
    assert_eq!(space.reserve_long(130), low);
    space.check_invariants();
}

#[test]
fn emptied_segments_are_handed_out_again() {
    let mut space = SpaceMap::new(128);
    let runs: Vec<_> = (0..40).map(|_| space.reserve(32, 32, None)).collect();
    for run in &runs {
        space.mark(run.start, 32, Mark::Next);
    }
    // Durable, so that their space comes back with the next checkpoint only.
    space.settle(false);
    let segments = space.segments().len();
    for run in runs
        .iter()
        .skip(1)
        .step_by(4)
        .chain(runs.iter().skip(2).step_by(4))
        .chain(runs.iter().skip(3).step_by(4))
    {
        assert!(space.free(run.start, 32, Referenced::No, Phase::Idle));
    }
    space.settle(false);
    assert!(space.plan_evacuation(None, 2) > 0);
    let moving: Vec<_> = runs
        .iter()
        .step_by(4)
        .filter(|run| space.is_evacuating(run.start))
        .collect();
    assert!(!moving.is_empty());
    for run in moving {
        let new = space.reserve(32, 32, None);
        assert!(!space.is_evacuating(new.start));
        space.mark(new.start, 32, Mark::Next);
        assert!(space.free(run.start, 32, Referenced::No, Phase::Idle));
    }
    space.settle(false);
    assert!(!space.has_evacuation());
    space.trim();
    assert!(space.segments().len() < segments);
    space.check_invariants();
}

/// Holes in front that are too short for what moves: it goes to free segments as near as possible, not to new ones at
/// the end.
#[test]
fn what_moves_finds_free_segments_before_the_end() {
    let mut space = SpaceMap::new(128);
    let mut runs: Vec<_> = (0..10).map(|_| space.reserve(100, 100, None)).collect();
    runs.iter().for_each(|run| space.mark(run.start, 100, Mark::Next));
    space.settle(false);
    let last = runs.pop().expect("ten");
    // Free segments in the middle, and the last one behind them.
    for run in runs.drain(5..) {
        assert!(space.free(run.start, 100, Referenced::No, Phase::Idle));
    }
    space.settle(false);
    assert_eq!(space.plan_evacuation(None, 2), 100);
    assert!(space.is_evacuating(last.start));
    let new = space.reserve(100, 100, None);
    assert_eq!(new.start, 5 * 128, "the first free segment");
    space.mark(new.start, 100, Mark::Next);
    assert!(space.free(last.start, 100, Referenced::No, Phase::Idle));
    space.settle(false);
    space.plan_evacuation(None, 2);
    space.trim();
    assert_eq!(space.segments().len(), 6);
    space.check_invariants();
}

/// What a writer leaves of its run is less than others look for; the next writer uses it up before the file grows.
#[test]
fn a_new_writer_goes_on_where_the_last_one_ended() {
    let mut space = SpaceMap::new(128);
    let reserved = space.reserve(28, 128, None);
    let resume_at = reserved.start + 100;
    space.release(resume_at, (reserved.end - resume_at) as u32, false);
    space.resume_at(Some(resume_at));
    let next = space.reserve(10, 128, None);
    assert_eq!(next, resume_at..reserved.end);
    // Only once, and not where it is too short or taken.
    let other = space.reserve(10, 128, None);
    assert_eq!(other.start, 128);
    space.release(next.start, 12, false);
    space.resume_at(Some(next.start));
    assert_eq!(space.reserve(13, 13, None).start, 256, "too short");
    space.resume_at(Some(130));
    assert_eq!(space.reserve(13, 13, None).start, 256 + 13, "taken");
    space.resume_at(Some(1 << 40));
    assert_eq!(space.reserve(13, 13, None).start, 256 + 26, "beyond the end");
    space.check_invariants();
}

/// As long as something within the file will do, nothing behind its end is handed out.
#[test]
fn segments_behind_the_end_of_a_full_disk_come_last() {
    let mut space = SpaceMap::new(128);
    let runs: Vec<_> = (0..5).map(|_| space.reserve(100, 128, None)).collect();
    for run in &runs {
        space.mark(run.start, (run.end - run.start) as u32, Mark::Next);
    }
    let all = space.sums().segments;
    assert!(space.free(runs[1].start, 64, Referenced::No, Phase::Idle));
    let new = space.reserve(100, 100, None);
    assert_eq!(new.start, all * 128);
    space.release(new.start, 100, false);
    space.note_full(all * 128 + 30);
    space.check_invariants();
    assert_eq!(space.reserve(10, 64, Some(new.start)).start, runs[1].start);
    assert!(space.is_full());
    assert_eq!(space.reserve(100, 100, None).start, new.start, "nothing else is left");
    assert!(!space.is_full());
    space.note_full(all * 128);
    let long = space.reserve_long(200);
    assert!(long >= new.start);
    space.check_invariants();
}
