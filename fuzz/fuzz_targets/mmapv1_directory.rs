//! A whole data directory of MMAPv1: one that is right, with patches that the input describes, or files of nothing but the input.
//! Never a panic or an endless loop; what is given out is valid BSON; what is missing is told.
//!
//! The directory is made by the generator of the crate's tests, apart from the crate's code.
#![no_main]

#[path = "../../crates/rescue/tests/rescue/generator.rs"]
mod generator;

use generator::{Entry, Files, Generator, Journal, Made, Spec, documents, lsn};
use libfuzzer_sys::fuzz_target;
use rescue::{DataDirectory, Findings, OpenOptions};
use std::path::Path;
use std::sync::{Arc, LazyLock};
use vfs::{Access, FileSystem, SimulatedFs};

struct Known {
    files: Files,
    names: Vec<String>,
    records: usize,
    /// Places of headers, by file.
    headers: Vec<(usize, usize)>,
}

static KNOWN: LazyLock<Known> = LazyLock::new(|| {
    let mut log = Spec::new("log", documents(20, 2));
    log.is_capped = true;
    log.round = Some((2, 4));
    let mut generator = Generator::new("shop", 1);
    generator.add_dropped("gone", &documents(5, 9));
    let specs = [Spec::new("people", documents(20, 1)), log];
    let Made { mut files, records, extents } = generator.make(&specs);
    let mut journal = Journal::new();
    for n in 0..3 {
        let bytes = [n; 30];
        journal.section(1000, &[Entry::Context("shop"), Entry::Write { file: 0, at: 4000, bytes: &bytes }]);
    }
    files.insert("journal/j._0".to_owned(), journal.bytes());
    files.insert("journal/lsn".to_owned(), lsn(500));
    let mut headers = Vec::new();
    for place in records.values().flatten() {
        headers.push((place.file, place.at));
    }
    headers.extend(extents.values().flatten());
    Known {
        names: files.keys().cloned().collect(),
        records: records.values().map(Vec::len).sum(),
        files,
        headers,
    }
});

fn disk(files: &Files) -> SimulatedFs {
    let fs = SimulatedFs::new(1);
    for (name, bytes) in files {
        let path = Path::new("/data").join(name);
        fs.create_directory_all(path.parent().expect("it is in /data")).expect("an empty disk");
        let file = fs.open(&path, Access::CreateNew).expect("names differ");
        file.write_all_at(bytes, 0).expect("an unbounded disk");
    }
    fs
}

/// Documents that come out, and damages.
fn read(files: &Files) -> Option<(usize, u64)> {
    let fs = Arc::new(disk(files));
    let directory = DataDirectory::open(fs, Path::new("/data"), &OpenOptions::default()).ok()?;
    let (mut count, mut damages) = (0, directory.findings().damages());
    for name in directory.databases() {
        let database = directory.database(&name).expect("it is listed");
        damages += database.findings().damages();
        for collection in database.collections() {
            let mut findings = Findings::default();
            let walked = database.documents(collection, &mut findings, &mut |bytes| {
                wire::validate_document(bytes).expect("only valid documents are given out");
                count += 1;
                Ok(())
            });
            walked.expect("nobody fails who takes them");
            damages += findings.damages();
        }
    }
    Some((count, damages))
}

/// Six bytes for each patch: which file, or which header; where; what.
fn patched(known: &Known, data: &[u8]) -> Files {
    let mut files = known.files.clone();
    for patch in data.chunks_exact(6) {
        let place = usize::from(u16::from_le_bytes([patch[1], patch[2]]));
        let (name, at) = match patch[0] % 3 {
            0 => {
                let (file, at) = known.headers[place % known.headers.len()];
                (format!("shop.{file}"), at + usize::from(patch[3] % 180))
            }
            1 => {
                let name = &known.names[usize::from(patch[3]) % known.names.len()];
                (name.clone(), place)
            }
            _ => ("shop.ns".to_owned(), place * 16 + usize::from(patch[3] % 16)),
        };
        let bytes = files.get_mut(&name).expect("it is known");
        let length = bytes.len();
        match patch[4] % 8 {
            // In the middle of a file of journal or data, its end.
            7 if patch[0] > 250 => bytes.truncate(at % length),
            kind => {
                let end = (at + usize::from(kind % 4) + 1).min(length);
                if at < end {
                    bytes[at..end].fill(patch[5]);
                }
            }
        }
        if files.values().any(Vec::is_empty) {
            break;
        }
    }
    files
}

fuzz_target!(|data: &[u8]| {
    let Some((&mode, data)) = data.split_first() else { return };
    if mode < 32 {
        let mut files = Files::new();
        let third = data.len() / 3;
        files.insert("a.ns".to_owned(), data[..third].to_vec());
        files.insert("a.0".to_owned(), data[third..2 * third].to_vec());
        files.insert("journal/j._0".to_owned(), data[2 * third..].to_vec());
        read(&files);
        return;
    }
    let known = &*KNOWN;
    let files = patched(known, data);
    if let Some((count, damages)) = read(&files) {
        assert!(count >= known.records || damages > 0, "{count} of {} documents, and nothing is told", known.records);
    }
});
