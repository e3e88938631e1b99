//! The contract of [`FileSystem`] on the machine's files; the parts a crash does not touch also run on the simulated
//! ones.
#![allow(clippy::unwrap_used)]

use crate::{
    Access, DirectBuffer, Fault, FaultKind, FileSystem, Random, RealFs, SeededRandom, SimulatedFs,
    is_out_of_descriptors,
};
use rustix::io::Errno;
use std::io::{Error, ErrorKind};
use std::path::Path;

fn contract(fs: &dyn FileSystem, root: &Path) {
    let directory = root.join("a/b");
    fs.create_directory_all(&directory).unwrap();
    fs.create_directory_all(&directory).unwrap();
    let path = directory.join("file");
    let missing = |result: std::io::Result<()>| assert_eq!(result.unwrap_err().kind(), ErrorKind::NotFound);

    missing(fs.open(&path, Access::Read).map(drop));
    missing(fs.open(&path, Access::ReadWrite).map(drop));
    let file = fs.open(&path, Access::CreateNew).unwrap();
    assert_eq!(
        fs.open(&path, Access::CreateNew).map(drop).unwrap_err().kind(),
        ErrorKind::AlreadyExists
    );
    file.write_all_at(b"hello", 3).unwrap();
    assert_eq!(file.len().unwrap(), 8);
    assert!(!file.is_empty().unwrap());
    let mut buffer = [9; 16];
    assert_eq!(file.read_at(&mut buffer, 0).unwrap(), 8);
    assert_eq!(&buffer[..8], b"\0\0\0hello");
    assert_eq!(file.read_at(&mut buffer, 8).unwrap(), 0);
    assert_eq!(
        file.read_exact_at(&mut buffer, 0).unwrap_err().kind(),
        ErrorKind::UnexpectedEof
    );
    file.set_len(5).unwrap();
    file.set_len(7).unwrap();
    file.read_exact_at(&mut buffer[..7], 0).unwrap();
    assert_eq!(&buffer[..7], b"\0\0\0he\0\0", "a cut part comes back as zeros");
    file.allocate(0, 4096).unwrap();
    assert!(
        matches!(file.len().unwrap(), 4096 | 7),
        "a file system without support does nothing"
    );
    file.sync_data().unwrap();

    let read_only = fs.open(&path, Access::Read).unwrap();
    assert!(read_only.write_all_at(b"x", 0).is_err());
    let again = fs.open(&path, Access::OpenOrCreate).unwrap();
    again.read_exact_at(&mut buffer[..5], 0).unwrap();
    assert_eq!(&buffer[..5], b"\0\0\0he", "an existing file keeps its bytes");

    fs.open(&directory.join("other"), Access::OpenOrCreate)
        .unwrap()
        .write_all_at(b"o", 0)
        .unwrap();
    assert_eq!(fs.list(&directory).unwrap(), [Path::new("file"), Path::new("other")]);
    fs.rename(&directory.join("other"), &path).unwrap();
    assert_eq!(fs.list(&directory).unwrap(), [Path::new("file")]);
    assert_eq!(fs.open(&path, Access::Read).unwrap().len().unwrap(), 1);
    again.read_exact_at(&mut buffer[..5], 0).unwrap();
    assert_eq!(&buffer[..5], b"\0\0\0he", "an open handle outlives its name");
    fs.sync_directory(&directory).unwrap();

    fs.rename(&directory, &root.join("c")).unwrap();
    assert!(!fs.exists(&path).unwrap());
    assert!(fs.exists(&root.join("c/file")).unwrap());
    fs.remove_file(&root.join("c/file")).unwrap();
    missing(fs.remove_file(&root.join("c/file")));
    missing(fs.list(&root.join("nowhere")).map(drop));
    fs.remove_directory_all(&root.join("a")).unwrap();
    fs.remove_directory_all(&root.join("a")).unwrap();
    assert!(!fs.exists(&root.join("a")).unwrap());

    let lock = fs.lock(&root.join("lock")).unwrap();
    assert_eq!(
        fs.lock(&root.join("lock")).map(drop).unwrap_err().kind(),
        ErrorKind::WouldBlock
    );
    lock.write_content(b"12345").unwrap();
    lock.write_content(b"123").unwrap();
    assert_eq!(fs.open(&root.join("lock"), Access::Read).unwrap().len().unwrap(), 3);
    drop(lock);
    fs.lock(&root.join("lock")).unwrap();

    let space = fs.space(root).unwrap();
    assert!(0 < space.available_bytes && space.available_bytes <= space.total_bytes);
    let nowhere = fs.space(&root.join("nowhere"));
    assert_eq!(nowhere.map(drop).unwrap_err().kind(), ErrorKind::NotFound);
}

#[test]
fn the_machines_files_keep_the_contract() {
    let root = tempfile::tempdir().unwrap();
    contract(&RealFs::new(), root.path());
}
#[test]
fn simulated_files_keep_the_contract() {
    contract(&SimulatedFs::new(1), Path::new("/"));
}

/// What a direct handle reads is what a usual one does: whole sectors and parts of some, at the file's end and beyond,
/// and what was written a moment ago and is in the system's cache only.
fn direct_reads_are_like_others(fs: &dyn FileSystem, root: &Path) {
    const BYTES: usize = 64 * 1024 + 100;
    let path = root.join("direct");
    assert_eq!(
        fs.open(&path, Access::ReadDirect).map(drop).unwrap_err().kind(),
        ErrorKind::NotFound
    );
    let file = fs.open(&path, Access::CreateNew).unwrap();
    let direct = fs.open(&path, Access::ReadDirect).unwrap();
    assert!(!file.is_direct());
    println!("read directly: {}", direct.is_direct());
    assert!(direct.write_all_at(b"x", 0).is_err());
    let random = SeededRandom::new(7);
    let mut content = vec![0; BYTES];
    let mut memory = DirectBuffer::default();
    for round in 0..3 {
        random.fill(&mut content);
        file.write_all_at(&content, 0).unwrap();
        if round == 1 {
            file.sync_data().unwrap();
            file.expect_no_reads(0, BYTES as u64);
        }
        for _ in 0..200 {
            let bytes = 512 * (1 + random.next_u64() as usize % 20);
            let offset = 512 * (random.next_u64() as usize % (BYTES / 512 + 2));
            let read = memory.filled(bytes);
            read.fill(0);
            let count = direct.read_at(read, offset as u64).unwrap();
            let expected = &content[offset.min(BYTES)..(offset + bytes).min(BYTES)];
            assert!(read[..count] == *expected, "{bytes} bytes at {offset} in round {round}");
            assert_eq!(
                direct.read_exact_at(read, offset as u64).is_ok(),
                offset + bytes <= BYTES,
                "{bytes} bytes at {offset}"
            );
        }
        // Not in form: through the cache.
        let mut some = [0; 1000];
        direct.read_exact_at(&mut some, 777).unwrap();
        assert!(some == content[777..1777]);
        direct.read_exact_at(memory.filled(700), 1025).unwrap();
        assert!(memory.as_slice()[..700] == content[1025..1725]);
    }
}

#[test]
fn direct_reads_of_the_machines_files_are_like_others() {
    // Beside the build, which is on a disk, and where the system has its temporary files, which need not be.
    let beside = std::env::current_exe().unwrap();
    for root in [
        tempfile::tempdir_in(beside.parent().unwrap()).unwrap(),
        tempfile::tempdir().unwrap(),
    ] {
        direct_reads_are_like_others(&RealFs::new(), root.path());
    }
}

#[test]
fn direct_reads_of_simulated_files_are_like_others() {
    let fs = SimulatedFs::new(1);
    direct_reads_are_like_others(&fs, Path::new("/"));
    let direct = fs.open(Path::new("/direct"), Access::ReadDirect).unwrap();
    let mut memory = DirectBuffer::default();
    let unaligned = direct.read_at(&mut memory.filled(1024)[1..513], 0);
    assert_eq!(unaligned.unwrap_err().kind(), ErrorKind::InvalidInput);
    let part = direct.read_at(memory.filled(700), 512);
    assert_eq!(part.unwrap_err().kind(), ErrorKind::InvalidInput);
}

/// Both are errors of one kind, and too many open files were told as a full disk.
#[test]
fn too_many_open_files_are_no_full_disk() {
    let told = |errno: Errno| super::opening(Error::from_raw_os_error(errno.raw_os_error()));
    for errno in [Errno::MFILE, Errno::NFILE] {
        let error = told(errno);
        assert_eq!(error.kind(), ErrorKind::QuotaExceeded);
        assert!(is_out_of_descriptors(&error), "{error}");
        let system = Error::from_raw_os_error(errno.raw_os_error());
        assert_eq!(error.to_string(), system.to_string(), "the system's words stay");
    }
    for errno in [Errno::DQUOT, Errno::NOSPC, Errno::ACCESS] {
        assert!(!is_out_of_descriptors(&told(errno)), "{errno:?}");
    }
    let fs = SimulatedFs::new(1);
    fs.inject(Fault::new(FaultKind::NoDescriptors).times(2));
    let error = fs.open(Path::new("/a"), Access::OpenOrCreate).map(drop).unwrap_err();
    assert!(is_out_of_descriptors(&error), "{error}");
    assert!(is_out_of_descriptors(&fs.check_descriptors().unwrap_err()));
}
