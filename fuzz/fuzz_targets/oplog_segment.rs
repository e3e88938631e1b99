//! A segment file of arbitrary bytes: checked, opened as a log, read and continued. Never a panic; what is opened can be
//! appended to, and is found again with the new entry.
//!
//! The first byte chooses: the bytes as they are; or frames of either format with right checksums and arbitrary fields, so that
//! what lies behind the checksums is reached. They are encoded here as `docs/formats/log.md` says, apart from the crate's code.
#![no_main]

use engine::Seq;
use libfuzzer_sys::fuzz_target;
use oplog::{Log, LogError, LogOptions, SegmentPart, verify_segment, walk_segment};
use std::path::Path;
use std::sync::Arc;
use vfs::{Access, Env, FileSystem, SeededRandom, SimulatedClock, SimulatedFs};

const FILE_BYTES: usize = 64 * 1024;
const STAMP: u64 = 0x5EED;

/// A format's version, and what differs with it.
#[derive(Clone, Copy, PartialEq)]
enum Version {
    One,
    Two,
}

impl Version {
    fn segment_header(self, flags: u32, term_before: u64) -> Vec<u8> {
        let mut header = b"TENONLOG".to_vec();
        header.extend_from_slice(&(self as u32 + 1).to_le_bytes());
        let flags = if self == Self::Two { flags } else { 0 };
        header.extend_from_slice(&flags.to_le_bytes());
        for field in [1, STAMP, 1, FILE_BYTES as u64] {
            header.extend_from_slice(&field.to_le_bytes());
        }
        let length = match self {
            Self::One => 64,
            Self::Two => {
                // When it was made, and the term of the entry before.
                header.extend_from_slice(&[0; 8]);
                header.extend_from_slice(&term_before.to_le_bytes());
                128
            }
        };
        header.resize(length - 4, 0);
        let crc = crc32c::crc32c(&header);
        header.extend_from_slice(&crc.to_le_bytes());
        header
    }

    fn frame_header_bytes(self) -> usize {
        match self {
            Self::One => 40,
            Self::Two => 48,
        }
    }
}

/// A segment whose frames are described by the input: twelve bytes of fields each, then the payload.
fn frames(version: Version, mut data: &[u8]) -> Vec<u8> {
    let Some((head, rest)) = data.split_first_chunk::<2>() else {
        return Vec::new();
    };
    data = rest;
    // Flags that do not exist are seldom of use.
    let flags = if head[0] < 250 {
        u32::from(head[0] & 1)
    } else {
        u32::from(head[0])
    };
    let mut file = version.segment_header(flags, u64::from(head[1] / 64));
    file.resize(FILE_BYTES, 0);
    let header_bytes = version.frame_header_bytes();
    let mut offset = 4096;
    let mut group = 4096u64;
    let mut next = 1u64;
    let mut last_term = u64::from(head[1] / 64);
    while let Some((fields, rest)) = data.split_first_chunk::<12>() {
        let [
            codec,
            kind,
            entries,
            raw,
            raw_high,
            skip,
            regroup,
            length,
            length_high,
            term,
            reserved,
            _,
        ] = *fields;
        let length = usize::from(u16::from_le_bytes([length, length_high & 0x3F])).min(rest.len());
        let (payload, after) = rest.split_at(length);
        data = after;
        let end = (offset + header_bytes + length).next_multiple_of(8);
        if end > FILE_BYTES {
            break;
        }
        if regroup & 1 == 0 {
            group = offset as u64;
        }
        // Most often a kind that exists, and nothing where nothing may be.
        let kind = if version == Version::Two && kind >= 192 {
            1 + kind / 250
        } else {
            0
        };
        let entries = if kind == 1 && entries < 250 {
            0
        } else {
            u32::from(entries)
        };
        last_term = match term {
            250.. => u64::from(term % 3),
            _ => last_term + u64::from(term / 200),
        };
        let stored = length as u32;
        let raw = if codec == 0 {
            stored
        } else {
            u32::from(u16::from_le_bytes([raw, raw_high]))
        };
        let mut header = crc32c::crc32c(payload).to_le_bytes().to_vec();
        header.extend_from_slice(&stored.to_le_bytes());
        header.extend_from_slice(&raw.to_le_bytes());
        header.extend_from_slice(&entries.to_le_bytes());
        header.extend_from_slice(&[codec, kind, 0, if reserved > 250 { reserved } else { 0 }]);
        header.extend_from_slice(&next.wrapping_add(u64::from(skip / 128)).to_le_bytes());
        header.extend_from_slice(&group.to_le_bytes());
        if version == Version::Two {
            header.extend_from_slice(&last_term.to_le_bytes());
        }
        let place = [STAMP.to_le_bytes(), (offset as u64).to_le_bytes()].concat();
        let crc = crc32c::crc32c_append(crc32c::crc32c(&place), &header);
        file[offset..offset + 4].copy_from_slice(&crc.to_le_bytes());
        file[offset + 4..offset + header_bytes].copy_from_slice(&header);
        file[offset + header_bytes..offset + header_bytes + length].copy_from_slice(payload);
        // Some frames are left out, as a crash may do.
        if regroup & 6 == 6 {
            file[offset] ^= 1;
        } else {
            next = next.wrapping_add(u64::from(entries));
        }
        offset = end;
    }
    file
}

fn open(fs: &SimulatedFs, seed: u64) -> oplog::Result<Log> {
    let env = Env {
        fs: Arc::new(fs.clone()),
        clock: Arc::new(SimulatedClock::new(0)),
        random: Arc::new(SeededRandom::new(seed)),
    };
    let segment_bytes = FILE_BYTES as u64;
    Log::open(
        &env,
        LogOptions {
            segment_bytes,
            background: false,
            ..LogOptions::new("/log")
        },
        Seq::ZERO,
    )
}

fuzz_target!(|data: &[u8]| {
    let Some((mode, data)) = data.split_first() else { return };
    let bytes = match mode % 4 {
        0 => data.to_vec(),
        1 => frames(Version::One, data),
        _ => frames(Version::Two, data),
    };
    let fs = SimulatedFs::new(1);
    fs.create_directory_all(Path::new("/log")).expect("an empty disk");
    let path = Path::new("/log/0000000000000001.log");
    let file = fs.open(path, Access::CreateNew).expect("an empty directory");
    file.write_all_at(&bytes, 0).expect("an unbounded disk");
    let verified = verify_segment(&fs, path);
    let mut walked = 0;
    let end = walk_segment(&fs, path, &mut |part| {
        walked += u64::from(matches!(part, SegmentPart::Entry { .. }));
        Ok::<_, LogError>(())
    });
    if let (Ok(report), Ok(end)) = (&verified, end) {
        assert_eq!((walked, end.0), (report.entries, report.first.0 + report.entries));
    }
    let Ok(log) = open(&fs, 1) else { return };
    let readable = log
        .read(Seq(1))
        .is_ok_and(|reader| reader.into_iter().all(|item| item.is_ok()));
    if let Ok(report) = verified {
        assert_eq!(log.last_seq().0 + 1, report.first.0 + report.entries);
        assert!(readable);
    }
    let seq = log.append(&[b"one more"]).expect("memory has room");
    log.wait_durable(seq).expect("the disk works");
    drop(log);
    let log = open(&fs, 2).expect("what was opened once can be opened again");
    assert_eq!(log.last_seq(), seq);
    let found = log.read(seq).expect("it is durable").next();
    assert_eq!(
        found.expect("it is there").expect("it is whole").1,
        b"one more".as_slice()
    );
});
