#![allow(clippy::unwrap_used)]

use crate::{Codec, CodecError, Compressor, Decompressor};

/// Deterministic bytes; `spread` is the number of distinct values.
fn bytes(length: usize, spread: u64, mut state: u64) -> Vec<u8> {
    (0..length)
        .map(|_| {
            state = state
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            ((state >> 33) % spread) as u8
        })
        .collect()
}

#[test]
fn every_codec_returns_what_it_was_given() {
    let mut unpacker = Decompressor::new();
    for codec in Codec::ALL {
        let mut packer = Compressor::new(codec).unwrap();
        for length in [0, 1, 2, 511, 4096, 65_535, 65_536, 300_000] {
            for spread in [1, 4, 256] {
                let raw = bytes(length, spread, length as u64 + spread);
                let mut stored = b"before".to_vec();
                let written = packer.compress(&raw, &mut stored).unwrap();
                assert_eq!(stored.len(), 6 + written);
                assert_eq!(&stored[..6], b"before");
                let mut back = b"x".to_vec();
                unpacker.decompress(codec, &stored[6..], length, &mut back).unwrap();
                assert_eq!(&back[1..], raw, "{codec} {length} {spread}");
                if codec != Codec::None && length >= 4096 && spread == 1 {
                    assert!(
                        written < length / 10,
                        "{codec} shrinks repeated bytes, {length} to {written}"
                    );
                }
            }
        }
    }
}

#[test]
fn levels_are_checked_and_matter() {
    let raw: Vec<u8> = (0..20_000u32)
        .flat_map(|n| format!("field{}:{};", n % 17, n * n % 1000).into_bytes())
        .collect();
    for codec in [Codec::Zlib, Codec::Zstd] {
        let size = |level| {
            Compressor::with_level(codec, level)
                .unwrap()
                .compress(&raw, &mut Vec::new())
                .unwrap()
        };
        let levels = codec.levels().unwrap();
        assert!(size(9) < size(1), "{codec}");
        assert_eq!(
            size(codec.default_level()),
            Compressor::new(codec).unwrap().compress(&raw, &mut Vec::new()).unwrap()
        );
        for level in [levels.start() - 1, levels.end() + 1] {
            assert_eq!(
                Compressor::with_level(codec, level).err(),
                Some(CodecError::UnknownLevel { codec, level })
            );
        }
    }
}

#[test]
fn zlib_is_the_zlib_format() {
    let mut stored = Vec::new();
    Compressor::new(Codec::Zlib)
        .unwrap()
        .compress(b"aaaaaaaaaa", &mut stored)
        .unwrap();
    assert_eq!(stored[0], 0x78, "a zlib header, not gzip's or none");
    // Made by Python's zlib.compress(b"hello hello hello").
    let known = [120, 156, 203, 72, 205, 201, 201, 87, 200, 64, 144, 0, 58, 46, 6, 125];
    let mut raw = Vec::new();
    Decompressor::new()
        .decompress(Codec::Zlib, &known, 17, &mut raw)
        .unwrap();
    assert_eq!(raw, b"hello hello hello");
}

#[test]
fn another_length_than_demanded_is_an_error_and_leaves_the_output() {
    let raw = bytes(10_000, 4, 7);
    let mut unpacker = Decompressor::new();
    for codec in Codec::ALL {
        let mut stored = Vec::new();
        Compressor::new(codec).unwrap().compress(&raw, &mut stored).unwrap();
        for demanded in [0, 1, 9_999, 10_001, 20_000] {
            let mut out = b"kept".to_vec();
            let error = unpacker.decompress(codec, &stored, demanded, &mut out).unwrap_err();
            assert!(
                matches!(error, CodecError::Length { .. } | CodecError::Damaged { .. }),
                "{codec}: {error}"
            );
            assert_eq!(out, b"kept");
            assert!(
                out.capacity() <= 64 * 1024,
                "nothing beyond the demanded length is allocated"
            );
        }
        unpacker
            .decompress(codec, &stored, raw.len(), &mut Vec::new())
            .expect("errors leave the context usable");
    }
}

#[test]
fn bombs_stop_at_the_bound() {
    let raw = vec![0; 32 << 20];
    for codec in [Codec::Snappy, Codec::Zlib, Codec::Zstd, Codec::Lz4] {
        let mut stored = Vec::new();
        Compressor::new(codec).unwrap().compress(&raw, &mut stored).unwrap();
        let mut out = Vec::new();
        assert!(
            Decompressor::new().decompress(codec, &stored, 4096, &mut out).is_err(),
            "{codec}"
        );
        assert!(out.capacity() <= 8192);
    }
}

#[test]
fn damaged_input_never_panics() {
    let seed = 42;
    println!("seed {seed}");
    let raw = bytes(3_000, 8, seed);
    let mut unpacker = Decompressor::new();
    for codec in Codec::ALL {
        let mut stored = Vec::new();
        Compressor::new(codec).unwrap().compress(&raw, &mut stored).unwrap();
        for round in 0..2_000u64 {
            let mut damaged = stored.clone();
            for patch in bytes(1 + (round % 4) as usize, 256, round) {
                let at = (round.wrapping_mul(2654435761) as usize + patch as usize * 7) % damaged.len();
                damaged[at] ^= patch.max(1);
            }
            damaged.truncate(damaged.len() - (round % 5) as usize);
            let mut out = Vec::new();
            if unpacker.decompress(codec, &damaged, raw.len(), &mut out).is_ok() {
                assert_eq!(out.len(), raw.len());
            }
        }
        let mut out = Vec::new();
        unpacker.decompress(codec, &stored, raw.len(), &mut out).unwrap();
        assert_eq!(out, raw, "damage before leaves no trace");
    }
}

#[test]
fn names_and_tags_are_stable() {
    let known = [("none", 0), ("snappy", 1), ("zlib", 2), ("zstd", 3), ("lz4", 4)];
    for (codec, (name, tag)) in Codec::ALL.into_iter().zip(known) {
        assert_eq!((codec.name(), codec.tag()), (name, tag));
        assert_eq!(name.parse(), Ok(codec));
        assert_eq!(Codec::from_tag(tag), Ok(codec));
        assert_eq!(codec.to_string(), name);
    }
    assert_eq!(Codec::from_tag(5), Err(CodecError::UnknownTag(5)));
    assert_eq!("gzip".parse::<Codec>(), Err(CodecError::UnknownName("gzip".to_owned())));
}
