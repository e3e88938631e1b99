//! Damage that no crash can have done is refused with its place; whatever the bytes, nothing panics and no wrong entry
//! is returned.

use crate::support::{DIRECTORY, Model, env, options, segments};
use codec::Codec;
use engine::{ErrorKind, Seq};
use oplog::{
    Damage, EngineAhead, HardState, Log, LogError, LogMode, LogOptions, SegmentPart, segment_files, segment_info,
    verify_segment, walk_segment,
};
use std::path::Path;
use vfs::{Access, Fault, FaultKind, FileSystem, Random, SeededRandom, SimulatedFs};

const FRAMES_START: u64 = 4096;

/// A log of several segments with one frame per group.
pub fn written(codec: Codec, entries: u64, max: u64) -> (SimulatedFs, Model) {
    let fs = SimulatedFs::new(1);
    let mut model = Model::default();
    let log = Log::open(&env(&fs, 1), LogOptions { codec, ..options() }, Seq::ZERO).unwrap();
    for _ in 0..entries {
        let seq = model.append(&log, 1, max).unwrap();
        log.wait_durable(seq).unwrap();
    }
    drop(log);
    (fs, model)
}

fn open_error(fs: &SimulatedFs, mark: u64) -> LogError {
    Log::open(&env(fs, 9), options(), Seq(mark))
        .map(drop)
        .expect_err("must be refused")
}

#[test]
fn a_flipped_bit_before_valid_frames_is_refused_with_file_and_offset() {
    let (fs, _) = written(Codec::None, 60, 900);
    let paths = segments(&fs);
    assert!(paths.len() >= 3);
    for path in [&paths[0], &paths[1]] {
        let report = verify_segment(&fs, path).unwrap();
        for place in [
            FRAMES_START,
            FRAMES_START + 9,
            FRAMES_START + 45,
            report.end_offset - 1 - 8,
        ] {
            let fs = fs.after_crash(0);
            fs.flip_bit(path, place, 3).unwrap();
            match open_error(&fs, 0) {
                LogError::Corrupt {
                    path: found,
                    offset,
                    damage: Damage::Frame,
                } => {
                    assert_eq!(&found, path);
                    assert!(offset <= place && place < offset + 1_000, "{offset} {place}");
                }
                error => panic!("{error}"),
            }
        }
    }
}

/// A member that read for another one what had been damaged since the start ended.
#[test]
fn damage_that_is_met_later_is_stepped_over_where_nothing_of_it_is_needed() {
    let (fs, _) = written(Codec::None, 60, 900);
    let paths = segments(&fs);
    let log = Log::open(&env(&fs, 9), options(), Seq::ZERO).unwrap();
    let is_corrupt = |seq| matches!(log.read(seq).unwrap().next(), Some(Err(LogError::Corrupt { .. })));
    assert!(
        log.step_over_damage(Seq(1), Seq(30)).unwrap().is_none(),
        "there is none"
    );
    // The first frame, with one entry, and the frame of the third one.
    let third = frame_of(&fs, &paths[0], Seq(3));
    for (place, wanted) in [(FRAMES_START, Seq(1)), (third, Seq(3))] {
        fs.flip_bit(&paths[0], place + 9, 3).unwrap();
        assert!(is_corrupt(wanted));
        let first = log.first_seq();
        assert_eq!(log.step_over_damage(wanted, Seq(wanted.0 - 1)).unwrap(), None);
        assert_eq!(log.first_seq(), first, "what the engine lacks is not given up");
        // Whoever wants a later entry meets it on the way.
        assert!(is_corrupt(Seq(wanted.0 + 1)));
        assert_eq!(
            log.step_over_damage(Seq(wanted.0 + 1), Seq(30)).unwrap(),
            Some(wanted.next())
        );
        assert_eq!(log.first_seq(), wanted.next());
        assert!(matches!(log.read(wanted), Err(LogError::Purged { .. })));
        let (found, _) = log.read(wanted.next()).unwrap().next().unwrap().unwrap();
        assert_eq!(found, wanted.next());
        let rest = log.read(wanted.next()).unwrap().filter(Result::is_ok);
        assert_eq!(rest.count() as u64, 60 - wanted.0);
    }
}

/// A member whose next entry is right behind such damage could neither be sent it nor be told that it fell behind.
#[test]
fn of_what_is_stepped_over_later_no_term_is_known() {
    let (fs, _) = written(Codec::None, 60, 900);
    let paths = segments(&fs);
    let log = Log::open(&env(&fs, 9), options(), Seq(50)).unwrap();
    fs.flip_bit(&paths[0], FRAMES_START + 9, 3).unwrap();
    assert!(matches!(log.term_of(Seq(1)), Err(LogError::Corrupt { .. })));
    assert_eq!(log.step_over_damage(Seq(1), Seq(50)).unwrap(), Some(Seq(2)));
    assert!(matches!(log.term_of(Seq(1)), Err(LogError::Purged { .. })));
    assert!(log.term_of(Seq(2)).is_ok());
}

/// Where the frame of an entry begins in a segment.
fn frame_of(fs: &SimulatedFs, path: &Path, wanted: Seq) -> u64 {
    let mut found = None;
    let mut look = |part: SegmentPart<'_>| {
        if let SegmentPart::Entry { seq, frame_offset, .. } = part
            && seq == wanted
        {
            found = Some(frame_offset);
        }
        Ok::<_, LogError>(())
    };
    walk_segment(fs, path, &mut look).unwrap();
    found.unwrap()
}

#[test]
fn a_flipped_bit_in_the_last_segment_is_refused_except_in_its_last_group() {
    let (fs, model) = written(Codec::None, 70, 900);
    let paths = segments(&fs);
    let last = paths.last().unwrap();
    let report = verify_segment(&fs, last).unwrap();
    assert!(report.frames >= 3, "{report:?}");
    let (mut refused, mut cut) = (0, 0);
    for place in FRAMES_START..report.end_offset {
        let fs = fs.after_crash(0);
        fs.flip_bit(last, place, (place % 8) as u8).unwrap();
        match Log::open(&env(&fs, 9), options(), Seq::ZERO) {
            Err(LogError::Corrupt { path, offset, .. }) => {
                assert_eq!(&path, last);
                assert!(offset <= place);
                refused += 1;
            }
            Err(error) => panic!("{error}"),
            Ok(log) => {
                // The last group cannot be told from one that a crash has torn; a bit of padding harms nothing.
                assert!(log.last_seq() >= Seq(model.last().0 - 1));
                cut += u64::from(log.last_seq() < model.last());
                model.clone().compare_found(&log);
            }
        }
    }
    assert!(refused > 1_000 && cut > 10, "{refused} {cut}");
}

#[test]
fn damage_that_replay_does_not_need_is_found_when_it_is_read() {
    let (fs, model) = written(Codec::None, 60, 900);
    let path = &segments(&fs)[0];
    fs.flip_bit(path, FRAMES_START + 50, 0).unwrap();
    let log = Log::open(&env(&fs, 9), options(), Seq(model.last().0 - 1)).unwrap();
    let error = log.read(Seq(1)).unwrap().next().unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(
        matches!(
            error,
            LogError::Corrupt {
                offset: FRAMES_START,
                ..
            }
        ),
        "{error}"
    );
}

#[test]
fn segment_headers_are_checked() {
    let (fs, _) = written(Codec::None, 60, 900);
    let path = &segments(&fs)[1];
    let patched = |offset: u64, bytes: &[u8]| {
        let fs = fs.after_crash(0);
        fs.open(path, Access::ReadWrite)
            .unwrap()
            .write_all_at(bytes, offset)
            .unwrap();
        open_error(&fs, 0)
    };
    assert!(matches!(
        patched(0, b"X"),
        LogError::Corrupt {
            damage: Damage::Magic,
            offset: 0,
            ..
        }
    ));
    assert!(matches!(
        patched(8, &[3]),
        LogError::Version {
            found: 3,
            supported: 2,
            ..
        }
    ));
    // As the version before it is not whole either.
    let as_before = patched(8, &[1]);
    assert_eq!(as_before.kind(), ErrorKind::Corrupt, "{as_before}");
    for at in 12..128 {
        let error = patched(at, &[0xA5]);
        assert!(
            matches!(
                error,
                LogError::Corrupt {
                    damage: Damage::HeaderChecksum { .. },
                    ..
                }
            ),
            "{at}: {error}"
        );
    }
    let cut = fs.after_crash(0);
    cut.open(path, Access::ReadWrite).unwrap().set_len(9_000).unwrap();
    let error = open_error(&cut, 0);
    assert!(matches!(
        error,
        LogError::Corrupt {
            damage: Damage::Length {
                expected: 16_384,
                found: 9_000
            },
            ..
        }
    ));

    let swapped = fs.after_crash(0);
    let paths = segments(&fs);
    swapped.rename(&paths[0], Path::new("/kept")).unwrap();
    swapped.rename(&paths[1], &paths[0]).unwrap();
    swapped.rename(Path::new("/kept"), &paths[1]).unwrap();
    let error = open_error(&swapped, 0);
    assert!(
        matches!(
            error,
            LogError::Corrupt {
                damage: Damage::HeaderField { field: "number", .. },
                ..
            }
        ),
        "{error}"
    );
}

#[test]
fn missing_segments_and_gaps_are_refused() {
    let (fs, _) = written(Codec::None, 60, 900);
    let paths = segments(&fs);
    let second = verify_segment(&fs, &paths[1]).unwrap().first;
    let hole = fs.after_crash(0);
    hole.remove_file(&paths[1]).unwrap();
    let error = open_error(&hole, 0);
    assert!(matches!(error, LogError::MissingSegment { number: 2, .. }), "{error}");
    // A hole in front of all that is needed is what a purge with a failed sync leaves.
    let third = verify_segment(&fs, &paths[2]).unwrap().first;
    let log = Log::open(&env(&hole, 9), options(), Seq(third.0 - 1)).unwrap();
    assert_eq!(log.first_seq(), third);
    assert_eq!(segments(&hole), paths[2..]);

    let headless = fs.after_crash(0);
    headless.remove_file(&paths[0]).unwrap();
    let error = open_error(&headless, second.0 - 2);
    assert!(
        matches!(error, LogError::Gap { first, .. } if first == second),
        "{error}"
    );
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert_eq!(
        Log::open(&env(&headless, 9), options(), Seq(second.0 - 1))
            .unwrap()
            .first_seq(),
        second
    );
}

/// The disk reports success and does something else.
#[test]
fn lost_and_misdirected_writes_are_refused_never_returned() {
    let (mut refused, mut harmless) = (0, 0);
    for kind in [
        FaultKind::LostWrite,
        FaultKind::MisdirectedWrite { by: 512 },
        FaultKind::MisdirectedWrite { by: 24 },
    ] {
        for nth in 0..66 {
            let fs = SimulatedFs::new(nth);
            let mut model = Model::default();
            let log = Log::open(
                &env(&fs, 1),
                LogOptions {
                    codec: Codec::None,
                    ..options()
                },
                Seq::ZERO,
            )
            .unwrap();
            fs.inject(Fault::new(kind).after(nth));
            for _ in 0..60 {
                let seq = model.append(&log, 1, 900).unwrap();
                log.wait_durable(seq).unwrap();
                if seq.0 % 25 == 0 {
                    model.mark = seq.0 - 3;
                    log.purge(Seq(model.mark)).unwrap();
                }
            }
            drop(log);
            assert_eq!(fs.faults_struck(), 1);
            fs.restart();
            match Log::open(&env(&fs, 2), options(), Seq(model.mark)) {
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
                    refused += 1;
                }
                // The write was in a segment purged since, or before the engine's mark, or was the last one of all.
                Ok(log) => {
                    model.compare_found(&log);
                    harmless += 1;
                }
            }
        }
    }
    assert!(refused > 30 && harmless > 10, "{refused} {harmless}");
}

#[test]
fn read_errors_are_reported_and_short_reads_go_on() {
    let (fs, mut model) = written(Codec::Zstd, 40, 900);
    fs.inject(Fault::new(FaultKind::ShortRead).times(1_000));
    model.compare(&Log::open(&env(&fs, 2), options(), Seq::ZERO).unwrap());
    fs.clear_faults();
    let short = fs.faults_struck();
    assert!(short > 20);
    fs.inject(Fault::new(FaultKind::ReadError).after(3));
    assert_eq!(open_error(&fs, 0).kind(), ErrorKind::Io);
    let log = Log::open(&env(&fs, 3), options(), Seq::ZERO).unwrap();
    fs.inject(Fault::new(FaultKind::ReadError).after(2));
    let results: Vec<_> = log.read(Seq(1)).unwrap().collect();
    assert_eq!(results.last().unwrap().as_ref().unwrap_err().kind(), ErrorKind::Io);
    assert_eq!(fs.faults_struck() - short, 2);
}

/// Thousands of damaged logs: any error will do, or the model's own entries, or a prefix of them.
#[test]
fn mutated_segments_never_panic_and_never_lie() {
    for codec in [Codec::None, Codec::Snappy, Codec::Zlib, Codec::Zstd, Codec::Lz4] {
        let (fs, model) = written(codec, 12, 7_000);
        let paths = segments(&fs);
        let (mut opened, mut refused) = (0, 0);
        for seed in 0..1_200 {
            let random = SeededRandom::new(seed);
            let mutated = fs.after_crash(0);
            for _ in 0..1 + random.next_u64() % 3 {
                mutate(&mutated, &paths[random.next_u64() as usize % paths.len()], &random);
            }
            for path in &paths {
                let _ = verify_segment(&mutated, path);
            }
            match Log::open(&env(&mutated, seed), options(), Seq::ZERO) {
                Ok(log) => {
                    opened += 1;
                    model.clone().compare_found(&log);
                }
                Err(error) => {
                    refused += 1;
                    let known = matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Unsupported);
                    assert!(known, "seed {seed}: {error}");
                }
            }
        }
        println!("{codec}: {opened} opened, {refused} refused");
        assert!(opened > 0 && refused > 500, "{codec}: {opened} {refused}");
    }
}

/// Overwrites, copies, cuts or erases a piece of a file, most often near structures.
fn mutate(fs: &SimulatedFs, path: &Path, random: &SeededRandom) {
    let file = fs.open(path, Access::ReadWrite).unwrap();
    let length = file.len().unwrap().max(1);
    let at = match random.next_u64() % 3 {
        0 => random.next_u64() % 64,
        1 => FRAMES_START + random.next_u64() % 64,
        _ => random.next_u64() % length,
    }
    .min(length - 1);
    let count = 1 + random.next_u64() % 64;
    let mut bytes = vec![0; count as usize];
    match random.next_u64() % 5 {
        0 => fs.flip_bit(path, at, (random.next_u64() % 8) as u8).unwrap(),
        1 => file.set_len(at).unwrap(),
        2 => file.write_all_at(&bytes, at).unwrap(),
        3 => {
            random.fill(&mut bytes);
            file.write_all_at(&bytes, at).unwrap();
        }
        _ => {
            let mut piece = vec![0; 600];
            let read = file.read_at(&mut piece, FRAMES_START).unwrap();
            file.write_all_at(&piece[..read], at & !7).unwrap();
        }
    }
}

impl Model {
    /// Compares what can be read with the model; entries at the end, or at the front, may be missing.
    fn compare_found(self, log: &Log) {
        let from = log.first_seq().max(Seq(self.mark).next());
        let mut due = from;
        for item in log.read(from).unwrap() {
            // A frame with right checksums and wrong content does not arise; damage behind the mark may.
            let (seq, bytes) = item.unwrap();
            assert_eq!(seq, due);
            assert_eq!(bytes, self.entries[seq.0 as usize - 1]);
            due = seq.next();
        }
        assert_eq!(due, log.last_seq().next());
    }
}

#[test]
fn foreign_files_in_the_directory_are_left_alone() {
    let (fs, mut model) = written(Codec::None, 10, 900);
    for name in [
        "notes.txt",
        "1.log",
        "00000000000000GG.log",
        "spare-1",
        "000000000000000A.log",
    ] {
        fs.open(&Path::new(DIRECTORY).join(name), Access::CreateNew).unwrap();
    }
    let log = Log::open(&env(&fs, 2), options(), Seq::ZERO).unwrap();
    model.compare(&log);
    assert_eq!(
        fs.list(Path::new(DIRECTORY)).unwrap().len(),
        5 + segments(&fs).len() - 3
    );
}

/// What a walk hands over of a segment: its entries, the offsets of damage, and its end.
type Walked = (Vec<(u64, Vec<u8>)>, Vec<u64>, Seq);

fn walked(fs: &SimulatedFs, path: &Path) -> Walked {
    let (mut entries, mut damages) = (Vec::new(), Vec::new());
    let end = walk_segment(fs, path, &mut |part| {
        match part {
            SegmentPart::Entry { seq, bytes, .. } => entries.push((seq.0, bytes.to_vec())),
            SegmentPart::Damage { offset, .. } => damages.push(offset),
        }
        Ok::<_, LogError>(())
    });
    (entries, damages, end.unwrap())
}

#[test]
fn a_walk_goes_on_behind_damage() {
    for codec in [Codec::None, Codec::Snappy] {
        let (fs, model) = written(codec, 60, 900);
        let paths = segments(&fs);
        assert_eq!(segment_files(&fs, Path::new(DIRECTORY)).unwrap(), paths);
        let mut next = 1;
        for path in &paths {
            let (entries, damages, end) = walked(&fs, path);
            assert!(damages.is_empty());
            for (seq, bytes) in &entries {
                assert_eq!((*seq, bytes), (next, &model.entries[next as usize - 1]));
                next += 1;
            }
            assert_eq!(end, Seq(next));
        }
        assert_eq!(next, 61);
        let (all, _, end) = walked(&fs, &paths[0]);
        let report = verify_segment(&fs, &paths[0]).unwrap();
        for place in (FRAMES_START..report.end_offset).step_by(7) {
            let fs = fs.after_crash(0);
            fs.flip_bit(&paths[0], place, 5).unwrap();
            let (found, damages, found_end) = walked(&fs, &paths[0]);
            // Each entry is there as it was, or it was hit and nothing stands in its place.
            assert!(found.iter().all(|entry| all.contains(entry)), "{place}");
            assert!(
                found.len() + 1 >= all.len(),
                "{place}: {} of {}",
                found.len(),
                all.len()
            );
            assert!(damages.iter().all(|&offset| offset <= place), "{place}: {damages:?}");
            let lost_last = found_end < end;
            assert!(found.len() == all.len() || !damages.is_empty() || lost_last, "{place}");
        }
    }
}

/// Flips a bit in the payload of the `index`-th frame of a segment, and answers the frame's first entry, the one behind
/// its last, and its offset.
fn damage_frame(fs: &SimulatedFs, path: &Path, index: usize) -> (u64, u64, u64) {
    let mut frames: Vec<(u64, u64)> = Vec::new();
    let end = walk_segment(fs, path, &mut |part| -> oplog::Result<()> {
        match part {
            SegmentPart::Entry { seq, frame_offset, .. } if frames.last().is_none_or(|last| last.1 != frame_offset) => {
                frames.push((seq.0, frame_offset));
            }
            _ => {}
        }
        Ok(())
    });
    let (first, offset) = frames[index];
    let next = frames.get(index + 1).map_or(end.unwrap().0, |next| next.0);
    fs.flip_bit(path, offset + 90, 2).unwrap();
    (first, next, offset)
}

#[test]
fn damage_before_the_mark_in_the_segment_that_replay_begins_with_is_stepped_over() {
    let (written_fs, model) = written(Codec::None, 70, 900);
    let paths = segments(&written_fs);
    let path = paths.last().unwrap();
    for engine_ahead in [EngineAhead::Refuse, EngineAhead::BeginBehind] {
        let fs = written_fs.after_crash(0);
        // Two frames one behind the other, which are one place, and one behind a good one.
        let (first, _, offset) = damage_frame(&fs, path, 1);
        damage_frame(&fs, path, 1);
        let (_, next, last_offset) = damage_frame(&fs, path, 2);
        let mark = next - 1;
        let options = LogOptions {
            engine_ahead,
            ..options()
        };
        let log = Log::open(&env(&fs, 9), options.clone(), Seq(mark)).unwrap();
        let told = |log: &Log| {
            let [
                LogError::Corrupt {
                    path: found,
                    offset: at,
                    ..
                },
                ..,
            ] = log.damages()
            else {
                panic!("{:?}", log.damages())
            };
            assert_eq!((found, *at, log.damages().len()), (path, offset, 2));
        };
        told(&log);
        let mut found = Model { mark, ..model.clone() };
        found.compare(&log);
        // The log begins behind it.
        assert_eq!(log.first_seq(), Seq(next));
        let error = log.read(Seq(first)).map(drop).unwrap_err();
        assert!(matches!(error, LogError::Purged { .. }), "{error}");
        assert!(!log.may_lack_consensus(), "headers tell that it held entries");
        // It goes on, and opens again.
        let appended = found.append(&log, 2, 900).unwrap();
        log.wait_durable(appended).unwrap();
        drop(log);
        let log = Log::open(&env(&fs, 10), options, Seq(mark)).unwrap();
        told(&log);
        found.compare(&log);
        // With a mark before the end of the damage, something is needed.
        let error = Log::open(&env(&fs, 11), crate::support::options(), Seq(mark - 1));
        assert!(
            matches!(&error, Err(LogError::Corrupt { path: found, offset: at, .. }) if found == path && *at == last_offset),
            "{:?}",
            error.map(drop)
        );
    }
}

#[test]
fn for_repair_the_log_ends_before_the_entry_that_cannot_be_read() {
    let (written_fs, model) = written(Codec::None, 70, 900);
    let paths = segments(&written_fs);
    assert!(paths.len() >= 3);
    let repairing = || LogOptions {
        mode: LogMode::Off,
        ends_at_damage: true,
        ..options()
    };
    let read = |fs: &SimulatedFs, mark: u64| -> u64 {
        let before = fs.operations();
        let log = Log::open(&env(fs, 9), repairing(), Seq(mark)).unwrap();
        let mut due = mark + 1;
        for item in log.read(Seq(due)).unwrap() {
            let (seq, bytes) = item.unwrap();
            assert_eq!((seq.0, &bytes[..]), (due, &model.entries[due as usize - 1][..]));
            due += 1;
        }
        assert_eq!(log.last_seq(), Seq(due - 1));
        drop(log);
        assert_eq!(fs.operations(), before, "nothing is written");
        due - 1
    };
    assert_eq!(read(&written_fs.after_crash(0), 3), model.last().0, "a whole one");
    for path in &paths[..3] {
        let fs = written_fs.after_crash(0);
        let (first, next, _) = damage_frame(&fs, path, 1);
        assert_eq!(read(&fs, 0), first - 1);
        assert_eq!(read(&fs, next - 1), model.last().0, "what is damaged is not needed");
    }
    // A segment whose header is damaged is as good as missing.
    let second = segment_info(&written_fs, &paths[1]).unwrap().first.0;
    let third = segment_info(&written_fs, &paths[2]).unwrap().first.0;
    let fs = written_fs.after_crash(0);
    fs.flip_bit(&paths[1], 20, 1).unwrap();
    assert_eq!(read(&fs, 0), second - 1);
    assert_eq!(read(&fs, third - 1), model.last().0);
    fs.remove_file(&paths[1]).unwrap();
    assert_eq!(read(&fs, 0), second - 1);
    assert_eq!(read(&fs, third - 1), model.last().0);
}

#[test]
fn what_a_damaged_header_hides_may_have_been_a_vote() {
    for has_state_behind in [false, true] {
        let (fs, model) = written(Codec::None, 70, 900);
        let state = HardState {
            term: 3,
            vote: 2,
            commit: Seq(5),
        };
        if has_state_behind {
            Log::open(&env(&fs, 2), options(), Seq::ZERO)
                .unwrap()
                .write_state(state)
                .unwrap();
        }
        let path = segments(&fs).pop().unwrap();
        let mut frames = Vec::new();
        walk_segment(&fs, &path, &mut |part| -> oplog::Result<()> {
            if let SegmentPart::Entry { seq, frame_offset, .. } = part {
                frames.push((seq, frame_offset));
            }
            Ok(())
        })
        .unwrap();
        let (seq, offset) = frames[1];
        fs.flip_bit(&path, offset + 9, 3).unwrap();
        let log = Log::open(&env(&fs, 9), options(), seq).unwrap();
        assert_eq!(log.may_lack_consensus(), !has_state_behind);
        assert_eq!(log.hard_state(), has_state_behind.then_some(state));
        model
            .clone()
            .compare_found(&Log::open(&env(&fs, 9), options(), seq).unwrap());
    }
}

#[test]
fn for_repair_the_segment_that_the_position_names_may_be_behind_the_hole() {
    let (fs, model) = written(Codec::None, 70, 900);
    // It is noted at opening, and names the last segment.
    drop(Log::open(&env(&fs, 2), options(), Seq::ZERO).unwrap());
    let paths = segments(&fs);
    assert!(paths.len() >= 3);
    for gone in [1, paths.len() - 1] {
        let fs = fs.after_crash(0);
        let first = segment_info(&fs, &paths[gone]).unwrap().first;
        fs.remove_file(&paths[gone]).unwrap();
        let refused = Log::open(&env(&fs, 9), options(), Seq(3)).map(drop).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Corrupt, "{refused}");
        let repairing = LogOptions {
            mode: LogMode::Off,
            ends_at_damage: true,
            ..options()
        };
        let log = Log::open(&env(&fs, 9), repairing, Seq(3)).unwrap();
        assert_eq!(log.last_seq(), Seq(first.0 - 1));
        assert!(log.last_seq() < model.last());
    }
}
