//! Directories that are as servers leave them.
#![allow(clippy::unwrap_used)]

use crate::generator::{Entry, Files, Generator, Journal, Spec, documents, lsn};
use crate::reading::{Everything, disk, open, read, read_database};
use bson::{Bson, doc};
use rescue::{CollectionKind, DataDirectory, InvalidText, OpenOptions, RescueError, Shutdown};
use std::path::Path;
use std::sync::Arc;
use vfs::{Access, FileSystem};

fn specs() -> Vec<Spec> {
    let mut people = Spec::new("people", documents(50, 1));
    people
        .indexes
        .extend((0..13).map(|n| doc! { "v": 1, "key": { format!("f{n}"): 1 }, "name": format!("f{n}_1") }));
    let mut log = Spec::new("log", documents(40, 2));
    log.options = doc! { "create": "log", "capped": true, "size": 4096, "max": 77 };
    log.is_capped = true;
    log.round = Some((3, 6));
    let mut moved = Spec::new("moved", documents(20, 3));
    moved.old_name = Some("before".to_owned());
    vec![people, log, moved, Spec::new("empty", Vec::new())]
}

fn expect_all(everything: &Everything, specs: &[Spec]) {
    assert_eq!(everything.damages(), Vec::<String>::new());
    assert_eq!(everything.findings, []);
    for spec in specs {
        assert_eq!(
            everything.documents[&format!("shop.{}", spec.name)],
            spec.documents,
            "{}",
            spec.name
        );
    }
}

#[test]
fn documents_come_out_in_their_natural_order() {
    for seed in 0..20 {
        let mut generator = Generator::new("shop", seed);
        generator.add_dropped("gone", &documents(9, 99));
        let made = generator.make(&specs());
        let everything = read(&made.files);
        expect_all(&everything, &specs());
        assert_eq!(everything.shutdown, Some(Shutdown::Clean));
        assert!(!everything.documents.contains_key("shop.gone"));
    }
}

#[test]
fn old_versions_and_folders_of_databases() {
    let mut generator = Generator::new("shop", 7).of_2_4().in_folder();
    generator.add_dropped("gone", &documents(9, 99));
    let mut made = generator.make(&specs());
    // A file that was made ahead of its use has no header.
    made.files.insert("shop/shop.9".to_owned(), vec![0; 16384]);
    // Files of other folders are none of theirs.
    made.files.insert("_tmp/shop.8".to_owned(), vec![1; 16384]);
    made.files.insert("journal/prealloc.0".to_owned(), vec![0; 16384]);
    expect_all(&read(&made.files), &specs());
}

#[test]
fn definitions() {
    let mut specs = specs();
    specs[0].options =
        doc! { "uuid": bson::Binary { subtype: bson::spec::BinarySubtype::Uuid, bytes: vec![0xAB; 16] }, "flags": 2 };
    let view = doc! { "_id": "shop.young", "viewOn": "people", "pipeline": [{ "$match": { "age": 1 } }] };
    specs.push(Spec::new("system.views", vec![view.to_vec().unwrap()]));
    let made = Generator::new("shop", 3).make(&specs);
    let directory = open(&made.files).unwrap();
    let database = directory.database("shop").unwrap();
    let find = |name: &str| {
        database
            .collections()
            .iter()
            .find(|collection| collection.name == name)
            .unwrap()
    };
    let people = find("people");
    assert_eq!(people.indexes.len(), 14);
    assert_eq!(
        people.indexes[13],
        doc! { "v": 1, "key": { "f12": 1 }, "name": "f12_1" }
    );
    assert_eq!(people.options, doc! { "flags": 2 });
    assert_eq!(people.uuid.as_deref(), Some(&*"ab".repeat(16)));
    assert_eq!(find("log").options, doc! { "capped": true, "size": 4096, "max": 77 });
    assert_eq!(find("young").kind, CollectionKind::View);
    assert_eq!(
        find("young").options.get("viewOn"),
        Some(&Bson::String("people".to_owned()))
    );
    assert_eq!(database.findings().list(), []);
    assert!(matches!(
        directory.database("other"),
        Err(RescueError::NoDatabase { .. })
    ));
}

#[test]
fn nothing_is_written() {
    let made = Generator::new("shop", 5).make(&specs());
    let mut files = made.files.clone();
    let mut journal = Journal::new();
    journal.section(
        1,
        &[
            Entry::Context("shop"),
            Entry::Write {
                file: 0,
                at: 40_000,
                bytes: &[1; 5000],
            },
        ],
    );
    files.insert("journal/j._0".to_owned(), journal.bytes());
    files.insert("mongod.lock".to_owned(), b"1234\n".to_vec());
    let fs = disk(&files);
    let before = fs.operations();
    let options = OpenOptions::default();
    let directory = DataDirectory::open(Arc::new(fs.clone()), Path::new("/data"), &options).unwrap();
    read_database(&directory.database("shop").unwrap(), &mut Everything::default());
    assert_eq!(fs.operations(), before, "operations that change something");
    for (name, bytes) in &files {
        let file = fs.open(&Path::new("/data").join(name), Access::Read).unwrap();
        let mut found = vec![0; file.len().unwrap() as usize];
        file.read_exact_at(&mut found, 0).unwrap();
        assert_eq!(&found, bytes, "{name}");
    }
}

#[test]
fn directories_of_others_are_refused() {
    assert!(matches!(open(&Files::new()).err(), Some(RescueError::NoFiles { .. })));
    let other = doc! { "storage": { "engine": "wiredTiger" } }.to_vec().unwrap();
    let mut files = Generator::new("shop", 1).make(&specs()).files;
    files.insert("storage.bson".to_owned(), other);
    assert!(matches!(open(&files).err(), Some(RescueError::OtherEngine { .. })));
    let own = doc! { "storage": { "engine": "mmapv1", "options": { "directoryPerDB": false } } };
    files.insert("storage.bson".to_owned(), own.to_vec().unwrap());
    assert!(open(&files).is_ok());
}

/// The pieces of `after` that differ from `before`, as entries of a journal: a new file is made first.
fn changes<'a>(before: &Files, after: &'a Files, prefix: &str) -> Vec<Entry<'a>> {
    let mut entries = Vec::new();
    for (path, bytes) in after {
        let old = before.get(path).filter(|old| old.len() == bytes.len());
        if old.is_none() {
            entries.push(Entry::Create(path, bytes.len() as u64));
        }
        let name = path.rsplit('/').next().unwrap();
        let number = name.strip_prefix("shop.").unwrap();
        let file = if number == "ns" {
            0x7FFF_FFFF
        } else {
            number.parse().unwrap()
        };
        entries.push(Entry::Context(if prefix.is_empty() { "shop" } else { "shop/shop" }));
        for (n, piece) in bytes.chunks(1000).enumerate() {
            let at = n * 1000;
            if old.map_or(piece.iter().any(|&byte| byte != 0), |old| {
                &old[at..at + piece.len()] != piece
            }) {
                entries.push(Entry::Write {
                    file,
                    at: at as u32,
                    bytes: piece,
                });
            }
        }
    }
    entries
}

fn with_journal(files: &Files, parts: &[(&str, Vec<u8>)]) -> Files {
    let mut files = files.clone();
    for (name, bytes) in parts {
        files.insert(format!("journal/{name}"), bytes.clone());
    }
    files.insert("mongod.lock".to_owned(), b"1234\n".to_vec());
    files
}

#[test]
fn the_journal_is_replayed() {
    let old = [Spec::new("people", documents(5, 8))];
    for folder in [false, true] {
        let generator = |seed| match folder {
            true => Generator::new("shop", seed).in_folder(),
            false => Generator::new("shop", seed),
        };
        let (before, after) = (generator(1).make(&old).files, generator(2).make(&specs()).files);
        let changes = changes(&before, &after, if folder { "shop/" } else { "" });
        let mut whole = Journal::new();
        whole.section(20_000, &changes);
        // Older than the last flush by more than ten seconds: it is in the data files, and has been written over since.
        let mut early = Journal::new();
        early.section(
            9_000,
            &[
                Entry::Context("shop"),
                Entry::Write {
                    file: 0,
                    at: 0,
                    bytes: &[0xFF; 40_000],
                },
            ],
        );
        let files = with_journal(
            &before,
            &[
                ("j._9", early.bytes()),
                ("j._10", whole.bytes()),
                ("lsn", lsn(19_500)),
                ("prealloc.2", vec![0; 8192]),
            ],
        );
        let everything = read(&files);
        assert_eq!(everything.shutdown, Some(Shutdown::Journal));
        expect_all(&everything, &specs());
        let replayed = open(&files).unwrap().replayed().clone();
        assert_eq!((replayed.files, replayed.sections, replayed.skipped), (2, 1, 1));
    }
}

#[test]
fn a_torn_end_of_the_journal_is_no_damage() {
    let made = Generator::new("shop", 1).make(&specs()).files;
    let write = |journal: &mut Journal, byte: u8| {
        // In the unused part of the header.
        let bytes = [byte; 8];
        journal.section(
            1,
            &[
                Entry::Context("shop"),
                Entry::Write {
                    file: 0,
                    at: 4000,
                    bytes: &bytes,
                },
            ],
        );
    };
    let mut journal = Journal::new();
    write(&mut journal, 1);
    write(&mut journal, 2);
    let whole = journal.bytes();
    write(&mut journal, 3);
    let longer = journal.bytes();
    for cut in [whole.len() - 8192 + 60, whole.len() - 8192 + 20, whole.len() - 8192 + 3] {
        let everything = read(&with_journal(&made, &[("j._0", whole[..cut].to_vec())]));
        expect_all(&everything, &specs());
        let replayed = open(&with_journal(&made, &[("j._0", whole[..cut].to_vec())]))
            .unwrap()
            .replayed()
            .sections;
        assert_eq!(replayed, 1, "{cut}");
    }
    // The same in the middle is damage, and ends the replay.
    let mut damaged = longer.clone();
    damaged[2 * 8192 + 30] ^= 1;
    let files = with_journal(&made, &[("j._0", damaged.clone())]);
    assert_eq!(open(&files).unwrap().replayed().sections, 1);
    assert_eq!(read(&files).damages().len(), 1, "{:?}", read(&files).findings);
    // So is a torn end with another file behind it.
    let files = with_journal(
        &made,
        &[
            ("j._0", whole[..whole.len() - 8192 + 60].to_vec()),
            ("j._1", whole.clone()),
        ],
    );
    assert_eq!(open(&files).unwrap().replayed().sections, 1);
    assert_eq!(read(&files).damages().len(), 1);
}

/// A journal of three sections in the unused part of a header, so that whatever is replayed of it fits.
fn three_sections() -> Vec<u8> {
    let mut journal = Journal::new();
    for byte in [1; 3] {
        let bytes = [byte; 8];
        let write = Entry::Write {
            file: 0,
            at: 4000,
            bytes: &bytes,
        };
        journal.section(1, &[Entry::Context("shop"), write]);
    }
    journal.bytes()
}

/// Damage to a section's file id passed for the end of the journal, though whole sections stand behind it.
#[test]
fn a_section_of_another_file_is_the_end_only_where_nothing_follows() {
    let made = Generator::new("shop", 1).make(&specs()).files;
    let mut journal = three_sections();
    journal[3 * 8192 + 15] ^= 1;
    let files = with_journal(&made, &[("j._0", journal.clone())]);
    assert_eq!(open(&files).unwrap().replayed().sections, 2);
    assert!(read(&files).damages().is_empty());
    journal[2 * 8192 + 15] ^= 1;
    journal[3 * 8192 + 15] ^= 1;
    let files = with_journal(&made, &[("j._0", journal)]);
    assert_eq!(open(&files).unwrap().replayed().sections, 1);
    assert_eq!(read(&files).damages().len(), 1, "{:?}", read(&files).findings);
}

/// Sections were replayed over pages that lacked the ones of a file that is missing.
#[test]
fn nothing_is_replayed_behind_a_file_that_is_missing() {
    let made = Generator::new("shop", 1).make(&specs()).files;
    let journal = three_sections();
    let files = with_journal(&made, &[("j._3", journal.clone()), ("j._5", journal.clone())]);
    assert_eq!(open(&files).unwrap().replayed().sections, 3);
    assert_eq!(read(&files).damages().len(), 1, "{:?}", read(&files).findings);
    let whole = [("j._3", journal.clone()), ("j._4", journal.clone()), ("j._04", journal)];
    let files = with_journal(&made, &whole);
    assert_eq!(open(&files).unwrap().replayed().sections, 6);
    assert!(read(&files).damages().is_empty());
}

#[test]
fn databases_are_dropped_by_the_journal() {
    let mut files = Generator::new("shop", 1).make(&specs()).files;
    files.extend(
        Generator::new("other", 1)
            .make(&[Spec::new("c", documents(3, 3))])
            .files,
    );
    let mut journal = Journal::new();
    journal.section(1, &[Entry::Drop("other")]);
    let everything = read(&with_journal(&files, &[("j._0", journal.bytes())]));
    expect_all(&everything, &specs());
    assert!(
        !everything.documents.keys().any(|name| name.starts_with("other.")),
        "{:?}",
        everything.documents.keys()
    );
}

#[test]
fn a_journal_cannot_lead_elsewhere() {
    let made = Generator::new("shop", 1).make(&specs()).files;
    for entries in [
        [Entry::Create("../other.0", 8192)],
        [Entry::Create("a/b/shop.0", 8192)],
        [Entry::Create("shop.77", 1 << 40)],
        [Entry::Write {
            file: 0,
            at: 0,
            bytes: b"no context",
        }],
    ] {
        let mut journal = Journal::new();
        journal.section(1, &entries);
        journal.section(2, &[]);
        let everything = read(&with_journal(&made, &[("j._0", journal.bytes())]));
        assert_eq!(everything.damages().len(), 1, "{:?}", everything.findings);
        assert_eq!(everything.documents["shop.people"].len(), 50);
    }
    let mut journal = Journal::new();
    let writes = [(0, 4_000_000_000), (99, 0), (0x7FFF_FFFF, 2_000_000)];
    let bytes = [0; 10];
    let mut entries = vec![Entry::Context("shop")];
    entries.extend(writes.map(|(file, at)| Entry::Write {
        file,
        at,
        bytes: &bytes,
    }));
    journal.section(1, &entries);
    let everything = read(&with_journal(&made, &[("j._0", journal.bytes())]));
    assert_eq!(everything.damages().len(), 3, "{:?}", everything.findings);
}

/// Programs whose strings are bytes stored Latin-1, and old databases have such documents: they were taken for damaged
/// ones, and left out.
#[test]
fn text_that_is_not_utf8_is_replaced_and_told() {
    let latin1 = |document: bson::Document| -> Vec<u8> {
        let bytes = document.to_vec().unwrap();
        bytes
            .into_iter()
            .map(|byte| if byte == b'#' { 0xE9 } else { byte })
            .collect()
    };
    let mut stored = documents(20, 5);
    stored[7] = latin1(doc! { "_id": 7, "a": { "name": "caf#" } });
    stored[12] = latin1(doc! { "_id": 12, "n#": 1 });
    let made = Generator::new("shop", 3).make(&[Spec::new("people", stored.clone())]);
    let everything = read(&made.files);
    let walked = everything.walked["shop.people"];
    assert_eq!((walked.documents, walked.replaced, walked.damaged), (20, 2, 0));
    let mut wanted = stored.clone();
    wanted[7] = doc! { "_id": 7, "a": { "name": "caf\u{FFFD}" } }.to_vec().unwrap();
    wanted[12] = doc! { "_id": 12, "n\u{FFFD}E9": 1 }.to_vec().unwrap();
    assert_eq!(everything.documents["shop.people"], wanted);
    let damages = everything.damages();
    assert_eq!(damages.len(), 2, "{damages:?}");
    assert!(damages[0].contains("(shop.people): U+FFFD stands for"), "{damages:?}");
    assert!(
        damages[0].ends_with("field 'a.name' of the document with _id 7: not valid UTF-8"),
        "{damages:?}"
    );
    // Or all others alone.
    let options = OpenOptions {
        invalid_text: InvalidText::Skip,
        ..OpenOptions::default()
    };
    let directory = DataDirectory::open(Arc::new(disk(&made.files)), Path::new("/data"), &options).unwrap();
    let mut everything = Everything::default();
    read_database(&directory.database("shop").unwrap(), &mut everything);
    let walked = everything.walked["shop.people"];
    assert_eq!((walked.documents, walked.replaced, walked.damaged), (18, 0, 2));
    assert!(
        everything.damages()[1].contains("left out"),
        "{:?}",
        everything.damages()
    );
}
