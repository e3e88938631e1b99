//! Files are read back as they were written, or not at all, and go when nobody has them.

use crate::{RunWriter, SpillError, SpillSpace};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use vfs::{Access, Fault, FaultKind, FileSystem, KeyedFs, SimulatedFs};

const DIRECTORY: &str = "/db/_tmp";

fn space(fs: &SimulatedFs) -> Arc<SpillSpace> {
    SpillSpace::open(Arc::new(fs.clone()), PathBuf::from(DIRECTORY)).expect("opened")
}

fn files(fs: &SimulatedFs) -> Vec<PathBuf> {
    fs.list(Path::new(DIRECTORY)).expect("listed")
}

fn row(number: u32) -> Vec<u8> {
    let mut row = format!("row {number} ").into_bytes();
    row.extend((0..number % 700).map(|i| (i * number) as u8));
    row
}

#[test]
fn runs_side_by_side_are_read_back_in_order() {
    let fs = SimulatedFs::new(1);
    let space = space(&fs);
    let mut file = space.create().expect("created");
    let mut writers = [RunWriter::new(), RunWriter::new(), RunWriter::new()];
    for number in 0..20_000_u32 {
        let row = row(number);
        let (front, back) = row.split_at(row.len() / 2);
        writers[(number % 2) as usize]
            .push(&mut file, &[front, back])
            .expect("pushed");
    }
    let huge = vec![7; 5 << 20];
    writers[2].push(&mut file, &[&huge]).expect("pushed");
    writers[2].push(&mut file, &[]).expect("pushed");
    let runs = writers.map(|writer| writer.finish(&mut file).expect("finished"));
    file.flush().expect("flushed");
    assert_eq!(files(&fs).len(), 1);
    assert_eq!(runs.each_ref().map(|run| run.rows()), [10_000, 10_000, 2]);
    drop(file);
    let mut readers = runs.map(|run| run.read());
    for number in 0..20_000_u32 {
        let reader = &mut readers[(number % 2) as usize];
        assert!(reader.advance().expect("read"), "row {number}");
        assert_eq!(reader.row(), row(number), "row {number}");
    }
    assert!(readers[2].advance().expect("read"));
    assert_eq!(readers[2].row(), huge);
    assert!(readers[2].advance().expect("read"));
    assert_eq!(readers[2].row(), b"");
    for reader in &mut readers {
        assert!(!reader.advance().expect("at the end"));
        assert!(!reader.advance().expect("still at the end"));
    }
    drop(readers);
    assert!(files(&fs).is_empty(), "the last reader takes the file with it");
}

#[test]
fn rows_are_read_by_number() {
    let fs = SimulatedFs::new(6);
    let space = space(&fs);
    let mut file = space.create().expect("created");
    let mut writer = RunWriter::new();
    for number in 0..5000 {
        writer.push(&mut file, &[&row(number)]).expect("pushed");
    }
    let run = writer.finish(&mut file).expect("finished");
    file.flush().expect("flushed");
    let mut access = run.access();
    assert_eq!(access.rows(), 5000);
    // Two places at once, forwards, and then anywhere.
    for number in 0..4000_u32 {
        for number in [number, number + 1000] {
            assert_eq!(access.row(u64::from(number)).expect("read"), Some(&*row(number)));
        }
    }
    for number in (0..5000_u32).map(|number| number * 7919 % 5000) {
        assert_eq!(access.row(u64::from(number)).expect("read"), Some(&*row(number)));
    }
    assert_eq!(access.row(5000).expect("read"), None);
    drop((access, file));
    assert!(files(&fs).is_empty());
}

#[test]
fn only_what_an_earlier_process_has_left_is_removed() {
    let fs = SimulatedFs::new(2);
    drop(space(&fs));
    for name in ["spill-1.tmp", "spill-77.tmp", "spill-.tmp", "spill-x.tmp", "mine"] {
        fs.open(&Path::new(DIRECTORY).join(name), Access::CreateNew)
            .expect("created");
    }
    let space = space(&fs);
    assert_eq!(files(&fs), ["mine", "spill-.tmp", "spill-x.tmp"].map(PathBuf::from));
    let writer = space.create().expect("created");
    assert_eq!(files(&fs).len(), 4);
    drop(writer);
    assert_eq!(files(&fs).len(), 3);
}

#[test]
fn every_changed_bit_is_found() {
    let fs = SimulatedFs::new(3);
    let space = space(&fs);
    let write = || {
        let mut file = space.create().expect("created");
        let begin = file.bytes();
        let mut writer = RunWriter::new();
        for number in 0..40_u32 {
            writer.push(&mut file, &[&number.to_le_bytes()]).expect("pushed");
        }
        let run = writer.finish(&mut file).expect("finished");
        file.flush().expect("flushed");
        (run, begin..file.bytes())
    };
    let (run, block) = write();
    drop(run);
    for offset in block {
        let (run, _) = write();
        let path = Path::new(DIRECTORY).join(&files(&fs)[0]);
        fs.flip_bit(&path, offset, (offset % 8) as u8).expect("flipped");
        match run.read().advance() {
            Err(SpillError::Damaged { path: named, .. }) => assert_eq!(named, path),
            other => panic!("byte {offset}: {other:?}"),
        }
    }
}

#[test]
fn a_file_that_is_cut_or_cannot_be_read_is_an_error() {
    let fs = SimulatedFs::new(4);
    let space = space(&fs);
    let mut file = space.create().expect("created");
    let mut writer = RunWriter::new();
    writer.push(&mut file, &[&[1; 100_000]]).expect("pushed");
    let run = writer.finish(&mut file).expect("finished");
    file.flush().expect("flushed");
    let path = Path::new(DIRECTORY).join(&files(&fs)[0]);
    fs.inject(Fault::new(FaultKind::ReadError).on(&path));
    let mut reader = run.read();
    assert!(matches!(
        reader.advance(),
        Err(SpillError::Io { operation: "read", .. })
    ));
    drop(reader);
    let mut writer = RunWriter::new();
    writer.push(&mut file, &[&[2; 100_000]]).expect("pushed");
    let run = writer.finish(&mut file).expect("finished");
    file.flush().expect("flushed");
    fs.open(&path, Access::ReadWrite)
        .expect("opened")
        .set_len(file.bytes() - 1)
        .expect("cut");
    assert!(matches!(run.read().advance(), Err(SpillError::Io { .. })));
}

#[test]
fn a_full_disk_and_one_that_is_nearly_full_stop_the_writer() {
    let fs = SimulatedFs::new(5);
    let space = space(&fs);
    let mut state = 0x9e37_79b9_u64;
    let mut noise = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    let noise: Vec<u8> = (0..3_000_000).map(|_| noise()).collect();
    let write = || {
        let mut file = space.create()?;
        let mut writer = RunWriter::new();
        writer.push(&mut file, &[&noise])?;
        writer.finish(&mut file)?;
        file.flush()
    };
    fs.set_free_bytes(Some(4_000_000));
    write().expect("it fits");
    space.set_available_bytes_min(3_000_000);
    let error = write().expect_err("it would leave too little");
    assert!(matches!(error, SpillError::NoSpace { .. }), "{error}");
    space.set_available_bytes_min(0);
    fs.set_free_bytes(Some(1_000_000));
    assert!(matches!(write(), Err(SpillError::NoSpace { .. })));
    fs.set_free_bytes(None);
    fs.inject(Fault::new(FaultKind::WriteError));
    assert!(matches!(write(), Err(SpillError::Io { operation: "write", .. })));
    fs.inject(Fault::new(FaultKind::NoDescriptors));
    assert!(matches!(
        write(),
        Err(SpillError::Io {
            operation: "create",
            ..
        })
    ));
    assert!(files(&fs).is_empty(), "nothing is left of those that failed");
    write().expect("all is well again");
}

#[test]
fn with_keys_nothing_is_to_be_seen_all_is_read_back_and_a_block_put_elsewhere_is_refused() {
    let fs = SimulatedFs::new(9);
    let keyed = KeyedFs::new(Arc::new(fs.clone()), Arc::new(crypt::Keys::ephemeral()));
    let space = SpillSpace::open(Arc::new(keyed), PathBuf::from(DIRECTORY)).expect("opened");
    let mut file = space.create().expect("created");
    let mut writer = RunWriter::new();
    let mut random = vec![0; 3 * crate::format::BLOCK_BYTES];
    vfs::Random::fill(&vfs::SeededRandom::new(9), &mut random);
    let rows: Vec<&[u8]> = random.chunks(crate::format::BLOCK_BYTES).collect();
    for row in &rows {
        writer.push(&mut file, &[row]).expect("pushed");
    }
    writer
        .push(&mut file, &[&b"what is known ".repeat(50)])
        .expect("pushed");
    let run = writer.finish(&mut file).expect("finished");
    file.flush().expect("flushed");
    let path = Path::new(DIRECTORY).join(&files(&fs)[0]);
    let raw = fs.open(&path, Access::ReadWrite).expect("opened");
    let mut bytes = vec![0; raw.len().expect("measured") as usize];
    raw.read_exact_at(&mut bytes, 0).expect("read");
    for part in [&random[..16], &random[70_000..70_016], b"what", b"known"] {
        assert!(!bytes.windows(part.len()).any(|window| window == part), "{part:?}");
    }
    // Two blocks of one length change places, with headers and checksums that fit.
    let block = 32 + crypt::SEAL_BYTES + 4 + rows[0].len();
    let (first, second) = (16, 16 + block);
    let mut swapped = bytes.clone();
    for (from, to) in [(first, second), (second, first)] {
        swapped[to..to + block].copy_from_slice(&bytes[from..from + block]);
        swapped[to + 16..to + 24].copy_from_slice(&(to as u64).to_le_bytes());
        let crc = crc32c::crc32c(&swapped[to + 4..to + block]);
        swapped[to..to + 4].copy_from_slice(&crc.to_le_bytes());
    }
    let mut access = run.access();
    for (number, row) in rows.iter().enumerate() {
        assert_eq!(access.row(number as u64).expect("read"), Some(*row));
    }
    raw.write_all_at(&swapped, 0).expect("written");
    let mut access = access.run.access();
    let error = access.row(0).expect_err("another block");
    assert!(
        matches!(error, SpillError::Damaged { what: "encryption", .. }),
        "{error}"
    );
}
