//! What somebody with the disk sees of an encrypted log, and what they can change in it unnoticed.

use crate::support::{DIRECTORY, env, options};
use crypt::Keys;
use engine::Seq;
use oplog::{Damage, HardState, Log, LogError};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use vfs::{Access, Env, FileSystem, KeyedFs, SimulatedFs};

const FRAMES_START: usize = 4096;

fn segment(number: u64) -> PathBuf {
    Path::new(DIRECTORY).join(format!("{number:016x}.log"))
}

fn bytes_of(fs: &SimulatedFs, path: &Path) -> Vec<u8> {
    let file = fs.open(path, Access::Read).unwrap();
    let mut bytes = vec![0; file.len().unwrap() as usize];
    file.read_exact_at(&mut bytes, 0).unwrap();
    bytes
}

fn write(fs: &SimulatedFs, path: &Path, bytes: &[u8]) {
    let file = fs.open(path, Access::ReadWrite).unwrap();
    file.write_all_at(bytes, 0).unwrap();
}

fn entries(log: &Log) -> Vec<Vec<u8>> {
    log.read(Seq(1))
        .unwrap()
        .map(|entry| entry.unwrap().1.to_vec())
        .collect()
}

/// Three groups: short, long and compressed, short.
fn written(fs: &SimulatedFs) -> Vec<Vec<u8>> {
    let log = Log::open(&env(fs, 1), options(), Seq::ZERO).unwrap();
    let all = vec![
        b"a secret entry".to_vec(),
        b"a long secret ".repeat(500),
        b"the last secret".to_vec(),
    ];
    for entry in &all {
        let seq = log.append(&[entry]).unwrap();
        log.wait_durable(seq).unwrap();
    }
    log.write_state(HardState {
        term: 5,
        vote: 0x5555_5555,
        commit: Seq(2),
    })
    .unwrap();
    all
}

#[test]
fn nothing_of_an_entry_or_a_state_is_to_be_seen_and_all_is_read() {
    let fs = SimulatedFs::new(1);
    let all = written(&fs);
    let bytes = bytes_of(&fs, &segment(1));
    for part in [&b"secret"[..], b"a long", b"entry", &[0x55; 4]] {
        assert!(!bytes.windows(part.len()).any(|window| window == part), "{part:?}");
    }
    let log = Log::open(&env(&fs, 2), options(), Seq::ZERO).unwrap();
    assert_eq!(entries(&log), all);
    assert_eq!(log.hard_state().unwrap().vote, 0x5555_5555);
}

/// The frame at an offset with a header and payload whose checksums were made to fit.
fn fit(bytes: &mut [u8], at: usize) {
    let stored = u32::from_le_bytes(bytes[at + 8..at + 12].try_into().unwrap()) as usize;
    let payload = crc32c::crc32c(&bytes[at + 48..at + 48 + stored]);
    bytes[at + 4..at + 8].copy_from_slice(&payload.to_le_bytes());
    let crc = crc32c::crc32c(&bytes[24..32]);
    let crc = crc32c::crc32c_append(crc, &(at as u64).to_le_bytes());
    let crc = crc32c::crc32c_append(crc, &bytes[at + 4..at + 48]);
    bytes[at..at + 4].copy_from_slice(&crc.to_le_bytes());
}

#[test]
fn every_flipped_bit_of_a_frame_is_noticed_though_the_checksums_fit() {
    let fs = SimulatedFs::new(1);
    written(&fs);
    let whole = bytes_of(&fs, &segment(1));
    let stored = u32::from_le_bytes(whole[FRAMES_START + 8..FRAMES_START + 12].try_into().unwrap()) as usize;
    for bit in 8 * 8..(48 + stored) * 8 {
        let mut bytes = whole.clone();
        bytes[FRAMES_START + bit / 8] ^= 1 << (bit % 8);
        // What lies behind the frame by its header must be in the file.
        if !(8..12).contains(&(bit / 8)) {
            fit(&mut bytes, FRAMES_START);
        }
        write(&fs, &segment(1), &bytes);
        let error = Log::open(&env(&fs, 2), options(), Seq::ZERO).err();
        assert!(matches!(error, Some(LogError::Corrupt { .. })), "bit {bit}: {error:?}");
    }
    write(&fs, &segment(1), &whole);
    Log::open(&env(&fs, 2), options(), Seq::ZERO).unwrap();
}

#[test]
fn a_segments_header_is_what_was_sealed() {
    let fs = SimulatedFs::new(1);
    written(&fs);
    let whole = bytes_of(&fs, &segment(1));
    for bit in 12 * 8..108 * 8 {
        let mut bytes = whole.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        let crc = crc32c::crc32c(&bytes[..124]);
        bytes[124..128].copy_from_slice(&crc.to_le_bytes());
        write(&fs, &segment(1), &bytes);
        let error = Log::open(&env(&fs, 2), options(), Seq::ZERO).err();
        assert!(matches!(error, Some(LogError::Corrupt { .. })), "bit {bit}: {error:?}");
    }
}

/// A failed tag in the last group is as a failed checksum: what a crash tore.
#[test]
fn a_last_frame_that_does_not_open_is_taken_for_torn_and_one_before_it_is_not() {
    let fs = SimulatedFs::new(1);
    let log = Log::open(&env(&fs, 1), options(), Seq::ZERO).unwrap();
    let mut offsets = Vec::new();
    for _ in 0..3 {
        offsets.push(log.stats().stored_bytes as usize);
        let seq = log.append(&[b"entry"]).unwrap();
        log.wait_durable(seq).unwrap();
    }
    drop(log);
    let whole = bytes_of(&fs, &segment(1));
    // A header, a seal, the entry with its length, and zeros.
    let frame = 48 + 44 + 9 + 3;
    for (number, expected) in [(2, Some(2)), (1, None)] {
        let at = FRAMES_START + number * frame;
        let mut bytes = whole.clone();
        bytes[at + 100] ^= 1;
        fit(&mut bytes, at);
        write(&fs, &segment(1), &bytes);
        let opened = Log::open(&env(&fs, 2), options(), Seq::ZERO);
        assert_eq!(opened.ok().map(|log| entries(&log).len()), expected);
    }
}

/// A key store that is older than the log is not what a crash leaves: nothing is cut off.
#[test]
fn a_frame_of_a_generation_that_is_not_there_is_refused_and_left() {
    let fs = SimulatedFs::new(1);
    written(&fs);
    let mut bytes = bytes_of(&fs, &segment(1));
    let last = (FRAMES_START..bytes.len() - 48)
        .step_by(8)
        .rfind(|at| bytes[at + 21] == 1 && bytes[at + 12] == 24 && bytes[at + 8] == 68);
    let last = last.unwrap();
    bytes[last + 48] = 9;
    fit(&mut bytes, last);
    write(&fs, &segment(1), &bytes);
    let error = Log::open(&env(&fs, 2), options(), Seq::ZERO).err().unwrap();
    let LogError::Corrupt { damage, .. } = error else {
        panic!("{error}")
    };
    assert_eq!(damage, Damage::Seal(crypt::SealError::Generation(9)));
    assert!(bytes == bytes_of(&fs, &segment(1)));
}

#[test]
fn without_the_keys_and_with_others_it_does_not_open_nor_does_a_plain_one_with_keys() {
    let fs = SimulatedFs::new(1);
    written(&fs);
    let plain: Arc<dyn FileSystem> = Arc::new(fs.clone());
    let with = |fs: &Arc<dyn FileSystem>| Env {
        fs: fs.clone(),
        ..env(&SimulatedFs::new(2), 2)
    };
    let others: Arc<dyn FileSystem> = Arc::new(KeyedFs::new(plain.clone(), Arc::new(Keys::ephemeral())));
    let before = bytes_of(&fs, &segment(1));
    for (other, expected) in [
        (&plain, Damage::Sealing { is_sealed: true }),
        (&others, Damage::Seal(crypt::SealError::Tag)),
    ] {
        let error = Log::open(&with(other), options(), Seq::ZERO).err().unwrap();
        let LogError::Corrupt { damage, .. } = error else {
            panic!("{error}")
        };
        assert_eq!(damage, expected);
        assert!(before == bytes_of(&fs, &segment(1)));
    }
    let fs = SimulatedFs::new(3);
    let plain: Arc<dyn FileSystem> = Arc::new(fs.clone());
    drop(Log::open(&with(&plain), options(), Seq::ZERO).map(|log| log.append(&[b"x"]).and_then(|_| log.flush())));
    let error = Log::open(&env(&fs, 1), options(), Seq::ZERO).err().unwrap();
    let LogError::Corrupt { damage, .. } = error else {
        panic!("{error}")
    };
    assert_eq!(damage, Damage::Sealing { is_sealed: false });
}
