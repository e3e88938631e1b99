#![allow(clippy::unwrap_used)]

use super::*;

const STAMP: Stamp = Stamp(0x0123_4567_89AB_CDEF);

fn segment() -> SegmentHeader {
    SegmentHeader {
        number: SegmentNumber(3),
        stamp: STAMP,
        first: Seq(42),
        file_bytes: 1 << 26,
        made_ms: 1_700_000_000_000,
        term_before: 4,
        truncates: true,
        version: VERSION,
        is_sealed: false,
    }
}

/// A segment header as the first format had it.
fn segment_1() -> [u8; SEGMENT_HEADER_BYTES] {
    let mut bytes = [0; SEGMENT_HEADER_BYTES];
    let newest = segment().encode(None);
    bytes[..RESERVED_AT_1].copy_from_slice(&newest[..RESERVED_AT_1]);
    put(&mut bytes, VERSION_AT, &VERSION_1.to_le_bytes());
    put(&mut bytes, FLAGS_AT, &0_u32.to_le_bytes());
    let crc = crc32c::crc32c(&bytes[..SEGMENT_HEADER_BYTES_1 - CRC_BYTES]);
    put(&mut bytes, SEGMENT_HEADER_BYTES_1 - CRC_BYTES, &crc.to_le_bytes());
    bytes
}

fn frame() -> FrameHeader {
    FrameHeader {
        payload_crc: 0xDEAD_BEEF,
        stored_bytes: 1_000,
        raw_bytes: 5_000,
        kind: FrameKind::Entries,
        entries: 7,
        codec: Codec::Zstd,
        first: Seq(99),
        term: 5,
        group_start: 8_192,
    }
}

fn decode(bytes: &[u8], stamp: Stamp, offset: u64) -> Option<FrameHeader> {
    FrameHeader::decode(bytes, &SegmentHeader { stamp, ..segment() }, offset)
}

#[test]
fn headers_round_trip() {
    assert_eq!(SegmentHeader::decode(&segment().encode(None), None), Ok(segment()));
    let encoded = frame().encode(STAMP, 9_000);
    assert_eq!(decode(&encoded, STAMP, 9_000), Some(frame()));
    assert_eq!(frame().end(&segment(), 9_000), 10_048);
    assert_eq!(frame().next_seq(), Seq(106));
}

#[test]
fn every_changed_bit_of_a_header_is_noticed() {
    for bit in 0..SEGMENT_HEADER_BYTES * 8 {
        let mut bytes = segment().encode(None);
        bytes[bit / 8] ^= 1 << (bit % 8);
        assert!(SegmentHeader::decode(&bytes, None).is_err(), "bit {bit}");
    }
    for bit in 0..FRAME_HEADER_BYTES * 8 {
        let mut bytes = frame().encode(STAMP, 9_000);
        bytes[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(decode(&bytes, STAMP, 9_000), None, "bit {bit}");
    }
}

#[test]
fn a_frame_elsewhere_or_of_another_life_is_none() {
    let encoded = frame().encode(STAMP, 9_000);
    assert_eq!(decode(&encoded, STAMP, 9_008), None, "misdirected");
    assert_eq!(decode(&encoded, Stamp(STAMP.0 + 1), 9_000), None, "recycled");
    assert_eq!(decode(&encoded[..47], STAMP, 9_000), None, "cut");
    assert_eq!(decode(&[0; FRAME_HEADER_BYTES], STAMP, 9_000), None, "never written");
}

#[test]
fn frames_that_cannot_be_are_none_in_spite_of_their_checksums() {
    let none = |change: fn(&mut FrameHeader)| {
        let mut header = frame();
        change(&mut header);
        let encoded = header.encode(STAMP, 9_000);
        assert_eq!(decode(&encoded, STAMP, 9_000), None, "{header:?}");
    };
    none(|header| header.entries = 0);
    none(|header| header.entries = 1_251);
    none(|header| header.stored_bytes = 0);
    none(|header| header.stored_bytes = 5_001);
    none(|header| header.raw_bytes = FRAME_RAW_BYTES_MAX as u32 + 1);
    none(|header| header.group_start = FRAMES_START - 1);
    none(|header| header.group_start = 9_001);
    none(|header| header.first = Seq(u64::MAX));
    for (at, value) in [
        (CODEC_AT, 5),
        (KIND_AT, 1),
        (KIND_AT, 2),
        (FRAME_RESERVED_AT, 1),
        (FRAME_RESERVED_AT + 1, 1),
    ] {
        let mut bytes = frame().encode(STAMP, 9_000);
        bytes[at] = value;
        let crc = frame_crc(&bytes, STAMP, 9_000);
        put(&mut bytes, FRAME_CRC_AT, &crc.to_le_bytes());
        assert_eq!(decode(&bytes, STAMP, 9_000), None, "byte {at}");
    }
}

#[test]
fn newer_versions_are_told_apart_from_damage() {
    let mut bytes = segment().encode(None);
    bytes[VERSION_AT] = 9;
    assert_eq!(SegmentHeader::decode(&bytes, None), Err(HeaderError::Version(9)));
    bytes[VERSION_AT] = 0;
    let crc_at = SEGMENT_HEADER_BYTES - CRC_BYTES;
    let crc = crc32c::crc32c(&bytes[..crc_at]);
    put(&mut bytes, crc_at, &crc.to_le_bytes());
    let field = Damage::HeaderField {
        field: "version",
        expected: u64::from(VERSION),
        found: 0,
    };
    assert_eq!(SegmentHeader::decode(&bytes, None), Err(HeaderError::Damage(field)));
}

#[test]
fn fields_of_a_segment_header_that_cannot_be_are_damage() {
    let damaged = |change: fn(&mut SegmentHeader)| {
        let mut header = segment();
        change(&mut header);
        let error = SegmentHeader::decode(&header.encode(None), None).unwrap_err();
        assert!(
            matches!(error, HeaderError::Damage(Damage::HeaderField { .. })),
            "{error:?}"
        );
    };
    damaged(|header| header.number = SegmentNumber(0));
    damaged(|header| header.first = Seq(0));
    damaged(|header| header.first = Seq(POSITION_MAX + 1));
    damaged(|header| header.file_bytes = FRAMES_START - 1);
    damaged(|header| header.file_bytes = u64::MAX);
}

#[test]
fn entry_lengths_are_bounded_by_what_is_there() {
    assert_eq!(entry_length(&[3, 0, 0, 0, 1, 2, 3]), Some(3));
    assert_eq!(entry_length(&[3, 0, 0, 0, 1, 2]), None);
    assert_eq!(entry_length(&[0xFF; 20]), None);
    assert_eq!(entry_length(&[0, 0, 0]), None);
    assert_eq!(entry_length(&[0; 4]), Some(0));
}

/// Frames of the first format have shorter headers, and no kinds and terms.
#[test]
fn the_first_format_is_read() {
    let old = SegmentHeader::decode(&segment_1(), None).unwrap();
    let expected = SegmentHeader {
        made_ms: 0,
        term_before: 0,
        truncates: false,
        version: VERSION_1,
        ..segment()
    };
    assert_eq!(old, expected);
    assert!(!old.is_current());
    for bit in 0..SEGMENT_HEADER_BYTES_1 * 8 {
        let mut bytes = segment_1();
        bytes[bit / 8] ^= 1 << (bit % 8);
        assert!(SegmentHeader::decode(&bytes, None).is_err(), "bit {bit}");
    }
    let mut bytes = frame().encode(STAMP, 9_000)[..FRAME_HEADER_BYTES_1].to_vec();
    let crc = frame_crc(&bytes, STAMP, 9_000);
    put(&mut bytes, FRAME_CRC_AT, &crc.to_le_bytes());
    let header = FrameHeader::decode(&bytes, &old, 9_000).unwrap();
    assert_eq!(header, FrameHeader { term: 0, ..frame() });
    assert_eq!(header.end(&old, 9_000), 10_040);
    bytes[KIND_AT] = 1;
    let crc = frame_crc(&bytes, STAMP, 9_000);
    put(&mut bytes, FRAME_CRC_AT, &crc.to_le_bytes());
    assert_eq!(FrameHeader::decode(&bytes, &old, 9_000), None, "reserved then");
}

#[test]
fn a_state_round_trips() {
    let state = HardState {
        term: 7,
        vote: 3,
        commit: Seq(41),
    };
    assert_eq!(HardState::decode(&state.encode()), Some(state));
    assert_eq!(HardState::decode(&state.encode()[1..]), None);
    let header = FrameHeader {
        kind: FrameKind::State,
        entries: 0,
        raw_bytes: HARD_STATE_BYTES as u32,
        stored_bytes: HARD_STATE_BYTES as u32,
        codec: Codec::None,
        ..frame()
    };
    assert_eq!(decode(&header.encode(STAMP, 9_000), STAMP, 9_000), Some(header));
    assert_eq!(header.next_seq(), header.first, "it is no entry");
    for wrong in [
        FrameHeader { entries: 1, ..header },
        FrameHeader {
            raw_bytes: 25,
            ..header
        },
        FrameHeader {
            codec: Codec::Zstd,
            ..header
        },
    ] {
        assert_eq!(decode(&wrong.encode(STAMP, 9_000), STAMP, 9_000), None, "{wrong:?}");
    }
}
