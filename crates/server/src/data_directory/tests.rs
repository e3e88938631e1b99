#![allow(clippy::unwrap_used)]
use super::*;
use bson::doc;
use vfs::RealFs;

fn metadata(engine: &str) -> Metadata {
    Metadata {
        engine: engine.to_owned(),
        directory_per_db: false,
    }
}

/// As a start whose engine and log open, and leave files.
fn open(path: &Path, engine: &str) -> Result<DataDirectory> {
    let opened = DataDirectory::open(&RealFs::new(), path, &metadata(engine), None)?;
    if opened.is_new {
        metadata::finish(&RealFs::new(), path)?;
        std::fs::write(opened.engine(engine).join("root"), "of an engine").unwrap();
    }
    Ok(opened)
}

#[test]
fn a_fresh_directory_is_laid_out_and_opens_again() {
    let directory = tempfile::tempdir().unwrap();
    let engine_of = || DataDirectory::engine_of(&RealFs::new(), directory.path()).unwrap();
    assert_eq!(engine_of(), None);
    let opened = open(directory.path(), "inMemory").unwrap();
    assert!(!opened.unclean);
    assert_eq!(engine_of().as_deref(), Some("inMemory"));
    assert!(directory.path().join("journal").is_dir() && directory.path().join("inMemory").is_dir());
    assert_eq!(process_id(directory.path()), Some(std::process::id() as i32));
    assert!(in_use(&RealFs::new(), directory.path()));
    opened.close().unwrap();
    assert!(!in_use(&RealFs::new(), directory.path()));
    assert_eq!(process_id(directory.path()), None);
    let again = open(directory.path(), "inMemory").unwrap();
    assert!(!again.unclean);
    drop(again);
    assert!(
        open(directory.path(), "inMemory").unwrap().unclean,
        "dropped without close"
    );
}

/// Somebody removes the lock file of a running server, as if it were stale.
#[test]
fn without_its_lock_file_a_directory_in_use_stays_locked() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let held = open(path, "inMemory").unwrap();
    std::fs::remove_file(path.join(LOCK_FILE)).unwrap();
    assert!(matches!(open(path, "inMemory"), Err(DataDirectoryError::InUse(_))));
    assert!(in_use(&RealFs::new(), path));
    drop(held);
    open(path, "inMemory").unwrap().close().unwrap();
}

/// What was acknowledged may be only in the log, unless the last server ended cleanly or kept none. A start that is
/// refused or cut short before the log is open changes nothing about it.
#[test]
fn whether_the_log_is_needed_is_known() {
    let directory = tempfile::tempdir().unwrap();
    let next = || open(directory.path(), "inMemory").unwrap();
    let states = |opened: &DataDirectory| (opened.unclean, opened.needs_log);
    let first = next();
    assert_eq!(states(&first), (false, false));
    drop(first);
    let cut_short = next();
    assert_eq!(states(&cut_short), (true, false), "no log was open");
    cut_short.note_opened(&RealFs::new(), true).unwrap();
    assert_eq!(process_id(directory.path()), Some(std::process::id() as i32));
    drop(cut_short);
    for _ in 0..2 {
        assert_eq!(states(&next()), (true, true), "refused, and again");
    }
    let without = next();
    without.note_opened(&RealFs::new(), false).unwrap();
    assert_eq!(process_id(directory.path()), Some(std::process::id() as i32));
    drop(without);
    assert_eq!(states(&next()), (true, false));
    next().close().unwrap();
    let file = directory.path().join(LOCK_FILE);
    assert_eq!(std::fs::read(&file).unwrap().len(), 1, "the next one writes over it");
    assert_eq!(states(&next()), (false, false));
    // As earlier servers left it.
    std::fs::write(&file, "").unwrap();
    assert_eq!(states(&next()), (false, false));
}

#[test]
fn refusals_say_what_to_do() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let missing = open(&path.join("nowhere"), "inMemory").err().unwrap();
    assert!(
        missing.to_string().contains("not found. Create the missing directory"),
        "{missing}"
    );
    let held = open(path, "inMemory").unwrap();
    assert!(matches!(open(path, "inMemory"), Err(DataDirectoryError::InUse(_))));
    held.close().unwrap();
    let other = open(path, "rocksdb").err().unwrap().to_string();
    assert!(
        other.contains("created by the storage engine 'inMemory'") && other.contains("tenon migrate --from"),
        "{other}"
    );
}

#[test]
fn directories_of_mongodb_are_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let foreign = doc! { "storage": { "engine": "wiredTiger", "options": { "directoryPerDB": false } } };
    std::fs::write(directory.path().join(METADATA_FILE), foreign.to_vec().unwrap()).unwrap();
    assert!(matches!(
        open(directory.path(), "inMemory"),
        Err(DataDirectoryError::Foreign(_))
    ));
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("WiredTiger"), b"").unwrap();
    assert!(matches!(
        open(directory.path(), "inMemory"),
        Err(DataDirectoryError::Foreign(_))
    ));
}

/// Every single-byte change of the metadata is noticed.
#[test]
fn damaged_metadata_is_refused() {
    let bytes = with_checksum(metadata::fields(&metadata("inMemory")));
    let file = Path::new("storage.bson");
    let found = metadata::decode(&bytes, file).unwrap();
    assert!(found.metadata == metadata("inMemory") && !found.is_encrypted);
    for at in 0..bytes.len() {
        for change in [1, 0x80] {
            let mut patched = bytes.clone();
            patched[at] ^= change;
            // What another program's looks like is not told to take it away.
            let refusal = metadata::decode(&patched, file).unwrap_err();
            assert!(
                matches!(
                    refusal,
                    DataDirectoryError::Damaged { .. } | DataDirectoryError::Version { .. }
                ),
                "byte {at}: {refusal}"
            );
        }
    }
    let mut newer = metadata::fields(&metadata("inMemory"));
    newer.insert("formatVersion", 2);
    let sum = checksum(&newer).unwrap();
    newer.insert("checksum", sum);
    assert!(matches!(
        metadata::decode(&newer.to_vec().unwrap(), file),
        Err(DataDirectoryError::Version { found: 2, .. })
    ));
}

/// A copy takes the data's place once it is complete, and goes on doing so after a stop in the middle.
#[test]
fn a_copy_that_is_complete_takes_the_place_of_the_data() {
    let content = |path: &Path| std::fs::read_to_string(path).unwrap();
    for stopped_after in 0..4 {
        let directory = tempfile::tempdir().unwrap();
        let (path, fs) = (directory.path(), RealFs::new());
        let opened = open(path, "inMemory").unwrap();
        let former = opened.instance(&fs, &vfs::SeededRandom::new(1)).unwrap();
        std::fs::write(path.join("inMemory/data"), "former").unwrap();
        std::fs::write(path.join("journal.position"), "former").unwrap();
        let place = opened.copy_place("inMemory");
        place.begin(&fs).unwrap();
        std::fs::write(place.engine.join("data"), "copy").unwrap();
        std::fs::write(place.journal.join("log"), "copy").unwrap();
        opened.close().unwrap();
        // Not complete: it is thrown away.
        let opened = open(path, "inMemory").unwrap();
        assert!(!opened.was_replaced && content(&path.join("inMemory/data")) == "former");
        assert!(!place.engine.exists());
        place.begin(&fs).unwrap();
        std::fs::write(place.engine.join("data"), "copy").unwrap();
        std::fs::write(place.journal.join("log"), "copy").unwrap();
        place.complete(&fs, &[7; 16]).unwrap();
        // A server that ended in the middle, at each part.
        drop(opened);
        let staged = path.join("initial-sync");
        for (number, part) in ["inMemory", "journal", "member.bson"].iter().enumerate() {
            if number < stopped_after {
                let target = path.join(part);
                if target.is_dir() {
                    std::fs::remove_dir_all(&target).unwrap();
                }
                std::fs::rename(staged.join(part), target).unwrap();
            }
        }
        let opened = open(path, "inMemory").unwrap();
        assert!(
            opened.was_replaced && !opened.needs_log,
            "what was replaced is asked nothing"
        );
        assert_eq!(content(&path.join("inMemory/data")), "copy");
        assert_eq!(content(&path.join("journal/log")), "copy");
        assert!(stopped_after == 3 || !path.join("journal.position").exists());
        let now = opened.instance(&fs, &vfs::SeededRandom::new(2)).unwrap();
        assert!(now == [7; 16] && now != former);
        assert!(!staged.exists());
        opened.close().unwrap();
    }
}

/// The former data go, and with them links, but not what those lead to, nor what a file system keeps for itself: that
/// may be another user's, and unreadable.
#[test]
fn a_copy_replaces_the_data_and_nothing_else() {
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    let (directory, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (path, fs) = (directory.path(), RealFs::new());
    let opened = open(path, "inMemory").unwrap();
    let place = opened.copy_place("inMemory");
    place.begin(&fs).unwrap();
    std::fs::write(place.engine.join("data"), "copy").unwrap();
    let begun = BegunCopy {
        source: "localhost:27017".to_owned(),
        copy: 7,
        instance: [7; 16],
        file: 0,
        offset: 0,
    };
    place.note_begun(&fs, &begun).unwrap();
    let staged = path.join("initial-sync");
    // Of a start that was cut short.
    std::fs::write(staged.join("emptied"), "").unwrap();
    place.complete(&fs, &[7; 16]).unwrap();
    assert!(!staged.join("emptied").exists() && !staged.join("begun.bson").exists());
    let engine = path.join("inMemory");
    std::fs::write(elsewhere.path().join("kept"), "kept").unwrap();
    symlink(elsewhere.path(), engine.join("link")).unwrap();
    std::fs::create_dir_all(engine.join("folder/within")).unwrap();
    std::fs::write(engine.join("folder/within/data"), "former").unwrap();
    let private = engine.join("lost+found");
    std::fs::create_dir_all(&private).unwrap();
    std::fs::set_permissions(&private, std::fs::Permissions::from_mode(0o0)).unwrap();
    opened.close().unwrap();
    let opened = open(path, "inMemory");
    std::fs::set_permissions(&private, std::fs::Permissions::from_mode(0o700)).unwrap();
    let opened = opened.unwrap();
    assert!(opened.was_replaced && !staged.exists());
    assert_eq!(fs.list(&engine).unwrap(), ["data", "lost+found"].map(PathBuf::from));
    assert_eq!(fs.list(elsewhere.path()).unwrap(), ["kept"].map(PathBuf::from));
    opened.close().unwrap();
}

/// A copy that somebody can go on with outlasts a start; one of which nobody knows how does not.
#[test]
fn a_copy_that_was_begun_is_kept() {
    let directory = tempfile::tempdir().unwrap();
    let (path, fs) = (directory.path(), RealFs::new());
    let opened = open(path, "inMemory").unwrap();
    let place = opened.copy_place("inMemory");
    assert_eq!(place.begun(&fs).unwrap(), None);
    place.begin(&fs).unwrap();
    let begun = BegunCopy {
        source: "localhost:27017".to_owned(),
        copy: 1 << 60,
        instance: [9; 16],
        file: 3,
        offset: 1 << 40,
    };
    place.note_begun(&fs, &begun).unwrap();
    std::fs::write(place.engine.join("data"), "copy").unwrap();
    opened.close().unwrap();
    let opened = open(path, "inMemory").unwrap();
    assert!(!opened.was_replaced && place.engine.join("data").exists());
    assert_eq!(place.begun(&fs).unwrap(), Some(begun));
    opened.close().unwrap();
    let noted = path.join("initial-sync/begun.bson");
    let mut bytes = std::fs::read(&noted).unwrap();
    bytes[20] ^= 1;
    std::fs::write(&noted, bytes).unwrap();
    assert!(place.begun(&fs).is_err());
    open(path, "inMemory").unwrap().close().unwrap();
    assert!(!path.join("initial-sync").exists());
}

/// A repair that failed left a directory that was served, and a member that had lost documents voted and led.
#[test]
fn what_a_repair_leaves_is_heeded() {
    let directory = tempfile::tempdir().unwrap();
    let fs = RealFs::new();
    let instance = |opened: &DataDirectory| opened.instance(&fs, &vfs::SystemRandom::new());
    let opened = open(directory.path(), "inMemory").unwrap();
    let member = instance(&opened).unwrap();
    let mut mark = RepairMark {
        is_unfinished: true,
        left_set: true,
        rewriting: Some("d.c".to_owned()),
    };
    opened.note_repair(&fs, &mark).unwrap();
    opened.close().unwrap();
    assert!(matches!(
        open(directory.path(), "inMemory"),
        Err(DataDirectoryError::Unrepaired(_))
    ));
    let opened = DataDirectory::open_to_repair(&fs, directory.path(), &metadata("inMemory"), None).unwrap();
    assert!(!opened.unclean, "a start that is refused changes nothing");
    assert_eq!(opened.repair_mark(&fs).unwrap(), mark);
    (mark.is_unfinished, mark.rewriting) = (false, None);
    opened.note_repair(&fs, &mark).unwrap();
    opened.close().unwrap();
    let opened = open(directory.path(), "inMemory").unwrap();
    assert!(matches!(instance(&opened), Err(DataDirectoryError::LeftSet(_))));
    opened.note_repair(&fs, &RepairMark::default()).unwrap();
    assert_eq!(instance(&opened).unwrap(), member);
    assert!(!directory.path().join("repair.bson").exists());
    let later = doc! { "tenon": "repair", "formatVersion": 2, "unfinished": true };
    write_document(&fs, directory.path(), "repair.bson", later).unwrap();
    opened.close().unwrap();
    assert!(matches!(
        open(directory.path(), "inMemory"),
        Err(DataDirectoryError::Version { found: 2, .. })
    ));
}

#[test]
fn a_copy_of_others_data_needs_no_repair() {
    let directory = tempfile::tempdir().unwrap();
    let fs = RealFs::new();
    let opened = open(directory.path(), "inMemory").unwrap();
    let mark = RepairMark {
        is_unfinished: true,
        ..RepairMark::default()
    };
    opened.note_repair(&fs, &mark).unwrap();
    let place = opened.copy_place("inMemory");
    place.begin(&fs).unwrap();
    place.complete(&fs, &[7; 16]).unwrap();
    opened.close().unwrap();
    assert!(open(directory.path(), "inMemory").unwrap().was_replaced);
}

/// The names of the files in a directory and in its folders.
fn names(path: &Path) -> Vec<String> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(path).unwrap() {
        let entry = entry.unwrap();
        names.push(entry.file_name().into_string().unwrap());
        if entry.file_type().unwrap().is_dir() {
            names.extend(self::names(&entry.path()));
        }
    }
    names.sort();
    names
}

/// A directory whose `storage.bson` was lost was taken for an empty one, and given the default engine for good.
#[test]
fn a_directory_with_data_is_never_taken_for_an_empty_one() {
    let traces: [(&str, &str); 5] = [
        ("mmapv1/a.ns", "--storageEngine mmapv1"),
        ("inMemory/checkpoint", "--storageEngine inMemory"),
        ("journal/0000000000000001.log", "Put back the engine's folder"),
        ("journal.position", "Put back the engine's folder"),
        ("member.bson", "Put back the engine's folder"),
    ];
    for (trace, advice) in traces {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        std::fs::create_dir_all(path.join(trace).parent().unwrap()).unwrap();
        std::fs::write(path.join(trace), "data").unwrap();
        for engine in ["btree", "inMemory"] {
            let refusal = open(path, engine).err().unwrap();
            assert!(matches!(refusal, DataDirectoryError::MetadataLost { .. }), "{refusal}");
            let refusal = refusal.to_string();
            assert!(
                refusal.contains(advice) && refusal.contains(trace.split('/').next().unwrap()),
                "{refusal}"
            );
        }
        assert!(
            !names(path).iter().any(|name| name.starts_with(METADATA_FILE)),
            "{trace}"
        );
        let repair = |engine| DataDirectory::open_to_repair(&RealFs::new(), path, &metadata(engine), None);
        let is_log = trace.ends_with(".log");
        match repair("btree") {
            Ok(opened) => {
                assert!(is_log && !opened.is_new, "{trace}");
                opened.give_up_metadata(&RealFs::new()).unwrap();
            }
            Err(DataDirectoryError::MetadataLost { .. }) => assert!(!is_log, "{trace}"),
            Err(other) => panic!("{other}"),
        }
        assert_eq!(repair("inMemory").is_ok(), is_log || trace.starts_with("inMemory"));
    }
}

/// A typing error in an emergency read as success, and made a data directory.
#[test]
fn where_there_is_nothing_there_is_nothing_to_repair() {
    let directory = tempfile::tempdir().unwrap();
    let opened = DataDirectory::open_to_repair(&RealFs::new(), directory.path(), &metadata("btree"), None);
    let refusal = opened.err().unwrap();
    assert!(matches!(refusal, DataDirectoryError::NothingThere(_)), "{refusal}");
    assert_eq!(names(directory.path()), Vec::<String>::new());
}

/// A start that was cut short before there could be any data is not a directory that has lost its metadata.
#[test]
fn a_first_start_that_failed_can_be_repeated() {
    let directory = tempfile::tempdir().unwrap();
    let (path, fs) = (directory.path(), RealFs::new());
    let first = DataDirectory::open(&fs, path, &metadata("inMemory"), None).unwrap();
    assert!(first.is_new && in_use(&fs, path));
    std::fs::write(first.engine("inMemory").join("root"), "of an engine").unwrap();
    std::fs::write(first.journal().join("0000000000000001.log"), "empty").unwrap();
    drop(first);
    assert!(!path.join(METADATA_FILE).exists());
    assert_eq!(
        DataDirectory::engine_of(&fs, path).unwrap().as_deref(),
        Some("inMemory")
    );
    let refusal = DataDirectory::open(&fs, path, &metadata("btree"), None).err().unwrap();
    assert!(matches!(refusal, DataDirectoryError::Begun { .. }), "{refusal}");
    let second = DataDirectory::open(&fs, path, &metadata("inMemory"), None).unwrap();
    assert!(second.is_new && !second.lacks_engine(&fs, "inMemory").unwrap());
    second.note_opened(&fs, true).unwrap();
    std::fs::remove_file(path.join(LOCK_FILE)).unwrap();
    assert!(matches!(open(path, "inMemory"), Err(DataDirectoryError::InUse(_))));
    drop(second);
    let third = DataDirectory::open(&fs, path, &metadata("inMemory"), None).unwrap();
    assert!(!third.is_new && !third.lacks_engine(&fs, "inMemory").unwrap());
    std::fs::remove_file(third.engine("inMemory").join("root")).unwrap();
    assert!(third.lacks_engine(&fs, "inMemory").unwrap());
    drop(third);
    let other = open(path, "btree");
    assert!(matches!(other, Err(DataDirectoryError::OtherEngine { .. })));
}

/// One flipped bit in a file of a hundred bytes kept the server down, and nothing said what to do.
#[test]
fn what_is_damaged_beside_the_data_is_told_with_what_can_be_done() {
    let directory = tempfile::tempdir().unwrap();
    let (path, fs) = (directory.path(), RealFs::new());
    let opened = open(path, "inMemory").unwrap();
    opened.instance(&fs, &vfs::SeededRandom::new(1)).unwrap();
    let mark = RepairMark {
        left_set: true,
        ..RepairMark::default()
    };
    opened.note_repair(&fs, &mark).unwrap();
    force_configuration(&fs, path, &doc! { "me": "a:1" }).unwrap();
    opened.close().unwrap();
    let flip = |name: &str| {
        let mut bytes = std::fs::read(path.join(name)).unwrap();
        bytes[20] ^= 1;
        std::fs::write(path.join(name), bytes).unwrap();
    };
    let opened = open(path, "inMemory").unwrap();
    for (name, advice) in [
        (FORCED_FILE, "force the configuration again"),
        ("member.bson", "empty directory"),
        ("repair.bson", "Run tenond --repair"),
    ] {
        flip(name);
        let refusal = match name {
            FORCED_FILE => opened.forced_configuration(&fs).map(drop),
            "member.bson" => opened.known_instance(&fs).map(drop),
            _ => opened.repair_mark(&fs).map(drop),
        };
        let refusal = refusal.unwrap_err().to_string();
        assert!(refusal.contains(advice), "{refusal}");
    }
    let worst = opened.repair_mark_or_worst(&fs).unwrap();
    assert!(worst.is_unfinished && worst.left_set, "it may have said anything");
    drop(opened);
    // Of the lock file nothing counts but its start.
    std::fs::remove_file(path.join("repair.bson")).unwrap();
    std::fs::write(path.join(LOCK_FILE), vec![b'x'; 100_000]).unwrap();
    assert!(open(path, "inMemory").unwrap().unclean);
    flip(METADATA_FILE);
    let refusal = open(path, "inMemory").err().unwrap().to_string();
    assert!(refusal.contains("--repair with --storageEngine"), "{refusal}");
    let repair = |engine| DataDirectory::open_to_repair(&fs, path, &metadata(engine), None);
    assert!(repair("btree").is_err());
    let given_up = repair("inMemory").unwrap();
    given_up.give_up_metadata(&fs).unwrap();
    drop(given_up);
    assert!(matches!(
        open(path, "inMemory"),
        Err(DataDirectoryError::MetadataLost { .. })
    ));
    drop(repair("inMemory").unwrap());
    let begun = DataDirectory::open(&fs, path, &metadata("inMemory"), None).unwrap();
    assert!(!begun.is_new, "there may be data");
    drop(begun);
    let repaired = repair("inMemory").unwrap();
    repaired.note_opened(&fs, true).unwrap();
    repaired.close().unwrap();
    assert!(path.join("storage.bson.damaged").exists());
    open(path, "inMemory").unwrap().close().unwrap();
}
