//! Segments put together by hand: frames with right checksums and wrong places.
#![allow(clippy::unwrap_used)]

use super::*;
use crate::format::{FRAME_HEADER_BYTES, SegmentNumber, Stamp};
use crate::verify_segment;
use codec::Codec;
use vfs::SimulatedFs;

const STAMP: Stamp = Stamp(77);

fn segment() -> SegmentHeader {
    SegmentHeader {
        number: SegmentNumber(1),
        stamp: STAMP,
        first: Seq(10),
        file_bytes: 65_536,
        made_ms: 0,
        term_before: 0,
        truncates: false,
        version: VERSION,
        is_sealed: false,
    }
}

struct Crafted {
    fs: SimulatedFs,
    file: Arc<dyn File>,
    offset: u64,
}

impl Crafted {
    fn new() -> Self {
        let fs = SimulatedFs::new(1);
        let file = fs.open(Path::new("/s"), Access::CreateNew).unwrap();
        file.write_all_at(&segment().encode(None), 0).unwrap();
        file.set_len(65_536).unwrap();
        Self {
            fs,
            file,
            offset: FRAMES_START,
        }
    }

    fn frame(&mut self, first: u64, group_start: u64, codec: Codec, entries: u32, payload: &[u8]) {
        let header = FrameHeader {
            payload_crc: crc32c::crc32c(payload),
            stored_bytes: payload.len() as u32,
            raw_bytes: payload.len() as u32,
            kind: FrameKind::Entries,
            entries,
            codec,
            first: Seq(first),
            term: 0,
            group_start,
        };
        let encoded = header.encode(STAMP, self.offset);
        self.file.write_all_at(&encoded, self.offset).unwrap();
        self.file
            .write_all_at(payload, self.offset + FRAME_HEADER_BYTES as u64)
            .unwrap();
        self.offset = header.end(&segment(), self.offset);
    }

    fn damage(&self) -> (u64, Damage) {
        match verify_segment(&self.fs, Path::new("/s")).unwrap_err() {
            LogError::Corrupt { offset, damage, .. } => (offset, damage),
            error => panic!("{error}"),
        }
    }
}

const ONE: [u8; 5] = [1, 0, 0, 0, b'x'];

#[test]
fn good_frames_are_counted() {
    let mut crafted = Crafted::new();
    crafted.frame(10, 4096, Codec::None, 1, &ONE);
    crafted.frame(11, 4096, Codec::None, 2, &[ONE, ONE].concat());
    let second_group = crafted.offset;
    crafted.frame(13, second_group, Codec::None, 1, &ONE);
    let report = verify_segment(&crafted.fs, Path::new("/s")).unwrap();
    assert_eq!((report.entries, report.frames, report.stale_frames), (4, 3, 0));
    assert_eq!(report.end_offset, crafted.offset);
}

#[test]
fn a_frame_out_of_order_is_damage() {
    let mut crafted = Crafted::new();
    crafted.frame(10, 4096, Codec::None, 1, &ONE);
    let at = crafted.offset;
    crafted.frame(12, 4096, Codec::None, 1, &ONE);
    let damage = Damage::FrameSeq {
        expected: Seq(11),
        found: Seq(12),
    };
    assert_eq!(crafted.damage(), (at, damage));
}

#[test]
fn a_frame_of_no_possible_group_is_damage() {
    let mut crafted = Crafted::new();
    crafted.frame(10, 4096, Codec::None, 1, &ONE);
    let second = crafted.offset;
    crafted.frame(11, second, Codec::None, 1, &ONE);
    let at = crafted.offset;
    crafted.frame(12, 4096, Codec::None, 1, &ONE);
    assert_eq!(crafted.damage(), (at, Damage::FrameGroup { found: 4096 }));
}

#[test]
fn content_that_does_not_decompress_or_split_is_damage() {
    for codec in [Codec::Snappy, Codec::Zlib, Codec::Zstd, Codec::Lz4] {
        let mut crafted = Crafted::new();
        crafted.frame(10, 4096, codec, 1, &[0xFF; 40]);
        let (offset, damage) = crafted.damage();
        assert!(offset == 4096 && matches!(damage, Damage::Decompress(_)), "{damage}");
    }
    for (entries, payload) in [(2, &[ONE, [9, 0, 0, 0, 1]].concat()), (1, &[ONE, ONE].concat())] {
        let mut crafted = Crafted::new();
        crafted.frame(10, 4096, Codec::None, entries, payload);
        assert_eq!(crafted.damage(), (4096, Damage::Entries));
    }
}

#[test]
fn frames_behind_the_end_are_stale_or_prove_damage() {
    let mut crafted = Crafted::new();
    crafted.frame(10, 4096, Codec::None, 1, &ONE);
    let torn = crafted.offset;
    crafted.offset += 512;
    crafted.frame(12, torn, Codec::None, 1, &ONE);
    let report = verify_segment(&crafted.fs, Path::new("/s")).unwrap();
    assert_eq!((report.end_offset, report.stale_frames), (torn, 1), "of the torn group");
    let later = crafted.offset;
    crafted.frame(13, later, Codec::None, 1, &ONE);
    assert_eq!(crafted.damage(), (torn, Damage::Frame), "of a group after it");
}
