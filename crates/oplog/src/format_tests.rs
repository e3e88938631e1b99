#![allow(clippy::unwrap_used)]

use super::*;

const STAMP: Stamp = Stamp(0x0123_4567_89AB_CDEF);

fn segment() -> SegmentHeader {
    SegmentHeader {
        number: SegmentNumber(3),
        stamp: STAMP,
        first: Seq(42),
        file_bytes: 1 << 26,
    }
}

fn frame() -> FrameHeader {
    FrameHeader {
        payload_crc: 0xDEAD_BEEF,
        stored_bytes: 1_000,
        raw_bytes: 5_000,
        entries: 7,
        codec: Codec::Zstd,
        first: Seq(99),
        group_start: 8_192,
    }
}

#[test]
fn headers_round_trip() {
    assert_eq!(SegmentHeader::decode(&segment().encode()), Ok(segment()));
    let encoded = frame().encode(STAMP, 9_000);
    assert_eq!(FrameHeader::decode(&encoded, STAMP, 9_000), Some(frame()));
    assert_eq!(frame().end(9_000), 10_040);
    assert_eq!(frame().next_seq(), Seq(106));
}

#[test]
fn every_changed_bit_of_a_header_is_noticed() {
    for bit in 0..SEGMENT_HEADER_BYTES * 8 {
        let mut bytes = segment().encode();
        bytes[bit / 8] ^= 1 << (bit % 8);
        assert!(SegmentHeader::decode(&bytes).is_err(), "bit {bit}");
    }
    for bit in 0..FRAME_HEADER_BYTES * 8 {
        let mut bytes = frame().encode(STAMP, 9_000);
        bytes[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(FrameHeader::decode(&bytes, STAMP, 9_000), None, "bit {bit}");
    }
}

#[test]
fn a_frame_elsewhere_or_of_another_life_is_none() {
    let encoded = frame().encode(STAMP, 9_000);
    assert_eq!(FrameHeader::decode(&encoded, STAMP, 9_008), None, "misdirected");
    assert_eq!(
        FrameHeader::decode(&encoded, Stamp(STAMP.0 + 1), 9_000),
        None,
        "recycled"
    );
    assert_eq!(FrameHeader::decode(&encoded[..39], STAMP, 9_000), None, "cut");
    assert_eq!(
        FrameHeader::decode(&[0; FRAME_HEADER_BYTES], STAMP, 9_000),
        None,
        "never written"
    );
}

#[test]
fn frames_that_cannot_be_are_none_in_spite_of_their_checksums() {
    let none = |change: fn(&mut FrameHeader)| {
        let mut header = frame();
        change(&mut header);
        let encoded = header.encode(STAMP, 9_000);
        assert_eq!(FrameHeader::decode(&encoded, STAMP, 9_000), None, "{header:?}");
    };
    none(|header| header.entries = 0);
    none(|header| header.entries = 1_251);
    none(|header| header.stored_bytes = 0);
    none(|header| header.stored_bytes = 5_001);
    none(|header| header.raw_bytes = FRAME_RAW_BYTES_MAX as u32 + 1);
    none(|header| header.group_start = FRAMES_START - 1);
    none(|header| header.group_start = 9_001);
    none(|header| header.first = Seq(u64::MAX));
    for (at, value) in [(CODEC_AT, 5), (FRAME_RESERVED_AT, 1), (FRAME_RESERVED_AT + 2, 1)] {
        let mut bytes = frame().encode(STAMP, 9_000);
        bytes[at] = value;
        let crc = frame_crc(&bytes, STAMP, 9_000);
        put(&mut bytes, FRAME_CRC_AT, &crc.to_le_bytes());
        assert_eq!(FrameHeader::decode(&bytes, STAMP, 9_000), None, "byte {at}");
    }
}

#[test]
fn newer_versions_are_told_apart_from_damage() {
    let mut bytes = segment().encode();
    bytes[VERSION_AT] = 9;
    assert_eq!(SegmentHeader::decode(&bytes), Err(HeaderError::Version(9)));
    bytes[VERSION_AT] = 0;
    let crc = crc32c::crc32c(&bytes[..HEADER_CRC_AT]);
    put(&mut bytes, HEADER_CRC_AT, &crc.to_le_bytes());
    let field = Damage::HeaderField {
        field: "version",
        expected: 1,
        found: 0,
    };
    assert_eq!(SegmentHeader::decode(&bytes), Err(HeaderError::Damage(field)));
}

#[test]
fn fields_of_a_segment_header_that_cannot_be_are_damage() {
    let damaged = |change: fn(&mut SegmentHeader)| {
        let mut header = segment();
        change(&mut header);
        let error = SegmentHeader::decode(&header.encode()).unwrap_err();
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
