//! The machine stops at each operation of a workload. What is found is a whole checkpoint, the last committed one or
//! the one under way; exactly its blocks are marked; and work goes on from there.

use crate::owner::{Owner, disk, open};
use blocks::{BlockError, Purpose, VolumeId};
use std::collections::BTreeMap;
use vfs::{Random, SeededRandom, SimulatedFs};

use crate::owner::Held;

/// The owner's blocks at each checkpoint that may be found.
type History = BTreeMap<u64, BTreeMap<u64, Held>>;

/// What a block is, whatever its place: it may move between checkpoints.
fn identities(blocks: &BTreeMap<u64, Held>) -> Vec<(u64, VolumeId, u64, usize)> {
    let identity = |(id, held): (&u64, &Held)| (*id, held.volume, held.version, held.bytes);
    blocks.iter().map(identity).collect()
}

/// Changes, checkpoints with changes during them, relocation, a volume that goes and comes, pins.
fn work(owner: &mut Owner, random: &SeededRandom, rounds: u64, history: &mut History) -> Result<(), BlockError> {
    let below = |bound: u64| random.next_u64() % bound;
    for round in 0..rounds {
        let mut volumes = vec![VolumeId::MAIN];
        if round % 3 > 0 {
            volumes.push(owner.store.volume("side")?);
        }
        let change = |owner: &mut Owner| -> Result<(), BlockError> {
            for _ in 0..4 {
                let id = below(30);
                if below(5) == 0 {
                    owner.forget(id);
                    continue;
                }
                let volume = volumes[below(volumes.len() as u64) as usize];
                let mut writer = owner.store.writer(volume, Purpose::Later);
                // One in six is longer than a segment.
                let bytes = if below(6) == 0 {
                    60_000 + below(90_000)
                } else {
                    below(9000)
                };
                owner.put(&mut writer, volume, id, bytes as usize)?;
            }
            Ok(())
        };
        change(owner)?;
        if volumes.len() == 1 && owner.store.volume_name(VolumeId(1)).is_some() {
            let aside: Vec<u64> = owner
                .blocks
                .iter()
                .filter(|(_, held)| held.volume != VolumeId::MAIN)
                .map(|(id, _)| *id)
                .collect();
            for id in aside {
                owner.forget(id);
            }
            for id in 1..20 {
                owner.store.remove_volume_if_empty(VolumeId(id));
            }
        }
        let pin = if round % 4 == 2 { Some(owner.store.pin()?) } else { None };
        owner.store.begin_checkpoint();
        owner.cut = Some(owner.blocks.clone());
        let (number, next_id) = (owner.store.stats().checkpoint + 1, owner.next_id);
        history.insert(number, owner.blocks.clone());
        let untouched: Vec<u64> = owner.blocks.keys().copied().take(2).collect();
        for id in untouched {
            owner.rewrite_for_cut(id)?;
        }
        change(owner)?;
        owner.commit(next_id)?;
        assert_eq!(owner.store.stats().checkpoint, number);
        owner.store.plan_relocation(blocks::Urgency::Background);
        owner.relocate()?;
        drop(pin);
    }
    Ok(())
}

fn run(seed: u64, crash_at: Option<u64>) -> (SimulatedFs, History, u64) {
    let fs = disk(seed);
    let mut history = BTreeMap::from([(0, BTreeMap::new())]);
    if let Some(operation) = crash_at {
        fs.crash_at(operation);
    }
    let mut committed = 0;
    if let Ok((store, _)) = open(&fs) {
        let mut owner = Owner::new(store);
        let result = work(&mut owner, &SeededRandom::new(seed), 7, &mut history);
        assert!(result.is_ok() || fs.has_crashed(), "seed {seed}: {result:?}");
        committed = owner.store.stats().checkpoint;
    }
    (fs, history, committed)
}

#[test]
fn every_crash_leaves_a_whole_checkpoint() {
    for seed in 1..=2 {
        let (fs, _, committed) = run(seed, None);
        assert_eq!(committed, 7);
        let operations = fs.operations();
        assert!(operations > 100);
        let mut found_newer = 0;
        for crash_at in 3..=operations {
            let (fs, history, committed) = run(seed, Some(crash_at));
            fs.restart();
            let (mut owner, root) = Owner::recover(&fs);
            let number = root.map_or(0, |root| root.number);
            assert!(
                number == committed || number == committed + 1,
                "seed {seed}, crash at {crash_at}: found {number} of {committed}"
            );
            found_newer += u64::from(number > committed);
            let expected = history.get(&number).expect("a checkpoint that was begun");
            assert_eq!(
                identities(&owner.blocks),
                identities(expected),
                "seed {seed}, crash at {crash_at}"
            );
            // It goes on from there, and is found again.
            let mut history = History::new();
            let random = SeededRandom::new(crash_at);
            work(&mut owner, &random, 2, &mut history).expect("the disk works again");
            owner.check();
            let blocks = identities(&history[&(number + 2)]);
            drop(owner);
            let (again, root) = Owner::recover(&fs.after_crash(crash_at));
            assert_eq!(root.map(|root| root.number), Some(number + 2));
            assert_eq!(identities(&again.blocks), blocks, "seed {seed}, crash at {crash_at}");
        }
        assert!(
            found_newer > 0,
            "some superblocks reach the disk before their sync returns"
        );
    }
}

#[test]
fn a_crash_while_opening_harms_nothing() {
    let (fs, history, committed) = run(9, None);
    for seed in 0..20 {
        let fs = fs.after_crash(seed);
        let start = fs.operations();
        for operation in start + 1..start + 6 {
            fs.crash_at(operation);
            let result = open(&fs);
            assert!(result.is_ok() || fs.has_crashed());
            drop(result);
            fs.restart();
        }
        let (owner, root) = Owner::recover(&fs);
        assert_eq!(root.map(|root| root.number), Some(committed));
        assert_eq!(identities(&owner.blocks), identities(&history[&committed]));
    }
}
