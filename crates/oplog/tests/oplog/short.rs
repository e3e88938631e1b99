//! Segments whose files are shorter than they were made.

use crate::damage::written;
use crate::support::{env, options, segments};
use codec::Codec;
use engine::Seq;
use oplog::{Damage, EngineAhead, Log, LogError, LogMode, LogOptions, SegmentPart, verify_segment, walk_segment};
use vfs::{Access, FileSystem};

const FRAMES_START: u64 = 4096;

/// A copy that was cut short, or `fsck`, takes the end of a file, mostly zeros that were never written: a segment one
/// byte short was refused, and repair threw all of its entries away.
#[test]
fn a_file_that_is_too_short_is_whole_where_nothing_was_written() {
    let (fs, model) = written(Codec::None, 70, 900);
    let paths = segments(&fs);
    let (header_bytes, bytes) = (48, 2 * oplog::SEGMENT_BYTES_MIN);
    for (path, is_last) in [(&paths[0], false), (paths.last().unwrap(), true)] {
        let end = verify_segment(&*env(&fs, 2).fs, path).unwrap().end_offset;
        let needed = end + if is_last { header_bytes } else { 0 };
        assert!(needed + 100 < bytes, "it has not been filled to the last byte");
        let lengths = [FRAMES_START, FRAMES_START + 1, end / 2, end - 1, end, needed - 1];
        let (mut refused, mut whole) = (0, 0);
        for length in lengths.into_iter().chain([needed, needed + 100, bytes - 1]) {
            let fs = fs.after_crash(0);
            let cut = fs.open(path, Access::ReadWrite).unwrap();
            cut.set_len(length).unwrap();
            cut.sync_data().unwrap();
            let log = match Log::open(&env(&fs, 9), options(), Seq::ZERO) {
                Ok(log) => log,
                Err(LogError::Corrupt {
                    path: of,
                    offset,
                    damage,
                }) => {
                    assert!(length < needed, "{length}: {damage}");
                    let found = length;
                    assert_eq!(damage, Damage::Length { expected: bytes, found });
                    assert_eq!((&of, offset), (path, length));
                    assert_eq!(fs.open(path, Access::Read).unwrap().len().unwrap(), length);
                    let for_repair = LogOptions {
                        mode: LogMode::Off,
                        ends_at_damage: true,
                        ..options()
                    };
                    let log = Log::open(&env(&fs, 9), for_repair, Seq::ZERO).unwrap();
                    let found: Vec<_> = log.read(Seq(1)).unwrap().map(|item| item.unwrap().1).collect();
                    assert_eq!(found, model.entries[..found.len()], "{length}");
                    assert_eq!(found.is_empty(), !is_last && length < FRAMES_START + 2, "{length}");
                    refused += 1;
                    continue;
                }
                Err(error) => panic!("{length}: {error}"),
            };
            whole += 1;
            // Zeros at the end of a frame need not be there either.
            let mut model = model.clone();
            model.acknowledged = model.last().0;
            model.compare(&log);
            assert_eq!(fs.open(path, Access::Read).unwrap().len().unwrap(), bytes, "as before");
            for _ in 0..20 {
                model.append(&log, 2, 900).unwrap();
            }
            model.acknowledged = log.flush().unwrap().0;
            drop(log);
            fs.crash();
            fs.restart();
            model.compare(&Log::open(&env(&fs, 9), options(), Seq::ZERO).unwrap());
        }
        assert!(refused >= 3 && whole >= 3, "{refused} {whole}");
    }
}

/// Whatever was cut off is in the engine after an orderly end.
#[test]
fn after_an_orderly_end_a_file_that_is_too_short_is_told() {
    let (fs, model) = written(Codec::None, 70, 900);
    let path = &segments(&fs)[segments(&fs).len() - 1];
    let end = verify_segment(&*env(&fs, 2).fs, path).unwrap().end_offset;
    for length in [FRAMES_START, end - 1, end] {
        let fs = fs.after_crash(0);
        fs.open(path, Access::ReadWrite).unwrap().set_len(length).unwrap();
        let ended = LogOptions {
            engine_ahead: EngineAhead::BeginBehind,
            ..options()
        };
        let log = Log::open(&env(&fs, 9), ended, model.last()).unwrap();
        assert_eq!(log.last_seq(), model.last());
        let [
            LogError::Corrupt {
                damage: Damage::Length { found, .. },
                ..
            },
        ] = log.damages()
        else {
            panic!("{:?}", log.damages());
        };
        assert_eq!(*found, length);
        assert!(log.may_lack_consensus(), "a vote may have stood there");
    }
}

/// Offline, everything readable is counted, and the rest is told.
#[test]
fn what_a_file_that_is_too_short_has_is_walked() {
    let (fs, _) = written(Codec::None, 70, 900);
    let fs_with_keys = env(&fs, 2).fs;
    let path = &segments(&fs)[0];
    let whole = verify_segment(&*fs_with_keys, path).unwrap();
    let walk = |length| {
        fs.open(path, Access::ReadWrite).unwrap().set_len(length).unwrap();
        let (mut entries, mut damages) = (0, Vec::new());
        walk_segment(&*fs_with_keys, path, &mut |part| -> oplog::Result<()> {
            match part {
                SegmentPart::Entry { .. } => entries += 1,
                SegmentPart::Damage { offset, damage } => damages.push((offset, damage.clone())),
            }
            Ok(())
        })
        .unwrap();
        (entries, damages)
    };
    let bytes = 2 * oplog::SEGMENT_BYTES_MIN;
    assert_eq!(walk(bytes - 1), (whole.entries, Vec::new()));
    let found = whole.end_offset / 2;
    let (entries, damages) = walk(found);
    assert!(0 < entries && entries < whole.entries, "{entries}");
    assert_eq!(damages, [(found, Damage::Length { expected: bytes, found })]);
    assert!(verify_segment(&*fs_with_keys, path).is_err());
}
