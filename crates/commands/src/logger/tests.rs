#![allow(clippy::unwrap_used)]
use super::*;
use bson::doc;
use std::path::Path;
use vfs::SimulatedClock;

/// 2026-01-02T03:04:05.678Z
const NOW_MS: i64 = 1_767_323_045_678;

fn clock() -> Arc<dyn Clock> {
    Arc::new(SimulatedClock::new(NOW_MS))
}

fn last(logger: &Logger) -> serde_json::Value {
    let (_, lines) = logger.ring(Ring::Global);
    serde_json::from_str(lines.last().unwrap()).unwrap()
}

#[test]
fn a_line_has_mongodbs_fields_in_order() {
    let logger = Logger::for_tests(clock());
    logger.log(
        id::CONNECTION_ACCEPTED,
        "listener",
        "Connection accepted",
        doc! { "connectionId": 1 },
    );
    let (total, lines) = logger.ring(Ring::Global);
    assert_eq!(total, 1);
    assert_eq!(
        &*lines[0],
        r#"{"t":{"$date":"2026-01-02T03:04:05.678+00:00"},"s":"I","c":"NETWORK","id":22943,"ctx":"listener","msg":"Connection accepted","attr":{"connectionId":1}}"#
    );
}

#[test]
fn every_kind_of_value_stays_json() {
    let logger = Logger::for_tests(clock());
    let attributes = doc! {
        "text": "quote \" back \\ line\n\u{1}ü", "double": 1.0, "nan": f64::NAN, "long": i64::MAX, "null": null,
        "nested": { "a": [1, 2, { "b": true }] }, "date": bson::DateTime::from_millis(NOW_MS),
        "id": bson::oid::ObjectId::from_bytes([7; 12]), "min": Bson::MinKey,
        "uuid": bson::Binary { subtype: bson::spec::BinarySubtype::Uuid, bytes: vec![1; 16] },
        "old date": bson::DateTime::from_millis(i64::MIN),
    };
    logger.log(id::SLOW_QUERY, "conn1", "m", attributes);
    let attr = &last(&logger)["attr"];
    assert_eq!(attr["text"], "quote \" back \\ line\n\u{1}ü");
    assert_eq!(attr["date"]["$date"], "2026-01-02T03:04:05.678Z");
    assert_eq!(attr["nested"]["a"][2]["b"], true);
    assert_eq!(attr["uuid"]["uuid"]["$uuid"], "01010101-0101-0101-0101-010101010101");
}

/// A name that a client thought of must neither end the line, for whatever reader, nor speak to the terminal.
#[test]
fn no_text_breaks_out_of_its_line() {
    let logger = Logger::for_tests(clock());
    let name = "a\nb\r\u{b}\u{c}\u{1b}[2J\u{7f}\u{85}\u{9b}\u{2028}\u{2029}z";
    logger.log(id::STARTING, "conn1", "m", doc! { "user": name });
    let (_, lines) = logger.ring(Ring::Global);
    let line = lines.last().unwrap();
    assert!(line.bytes().all(|byte| (0x20..0x7f).contains(&byte)), "{line}");
    assert_eq!(last(&logger)["attr"]["user"], name);
}

use bson::Bson;

/// A slow query with a huge command must not become a huge line.
#[test]
fn long_attributes_are_cut_and_counted() {
    let logger = Logger::for_tests(clock());
    let documents: Vec<Bson> = (0..100_000).map(|i| Bson::Document(doc! { "i": i })).collect();
    logger.log(
        id::SLOW_QUERY,
        "conn1",
        "Slow query",
        doc! { "command": { "documents": documents }, "ms": 5 },
    );
    let (_, lines) = logger.ring(Ring::Global);
    assert!(lines[0].len() < ATTRIBUTES_AND_REST, "{}", lines[0].len());
    let line = last(&logger);
    assert_eq!(line["attr"]["ms"], 5);
    assert!(line["truncated"]["command"]["size"].as_u64().unwrap() > 1_000_000);
    logger.log(
        id::SLOW_QUERY,
        "conn1",
        "Slow query",
        doc! { "text": "é".repeat(50_000) },
    );
    assert_eq!(last(&logger)["size"]["text"], 100_000);
}

const ATTRIBUTES_AND_REST: usize = json::ATTRIBUTE_BYTES_MAX + 2048;

#[test]
fn verbosity_is_inherited_and_filters() {
    let logger = Logger::for_tests(clock());
    assert!(!logger.enabled(Component::Journal, 1));
    logger.set_verbosity(Component::Storage, Some(2));
    assert!(logger.enabled(Component::Journal, 2) && !logger.enabled(Component::Journal, 3));
    assert!(!logger.enabled(Component::Network, 1));
    logger.set_verbosity(Component::Journal, Some(0));
    assert!(!logger.enabled(Component::Journal, 1));
    logger.set_verbosity(Component::Journal, None);
    assert!(logger.enabled(Component::Journal, 2));
    assert_eq!(logger.verbosity(Component::Storage), Some(2));
    assert_eq!(logger.verbosity(Component::Journal), None);
    for component in Component::ALL {
        assert_eq!(Component::by_path(component.path()), Some(component));
    }
}

#[test]
fn rings_keep_the_newest_lines_and_count_all() {
    let logger = Logger::for_tests(clock());
    for _ in 0..RING_LINES + 5 {
        logger.log(id::STARTING, "main", "m", Document::new());
    }
    logger.startup_warning(id::NO_ACCESS_CONTROL, "Access control is not enabled", Document::new());
    let (total, lines) = logger.ring(Ring::Global);
    assert_eq!((total, lines.len()), (RING_LINES as u64 + 6, RING_LINES));
    let (total, warnings) = logger.ring(Ring::StartupWarnings);
    assert_eq!(total, 1);
    assert!(warnings[0].contains(r#""tags":["startupWarnings"]"#));
}

#[test]
fn rings_keep_fewer_lines_when_these_are_long() {
    let logger = Logger::for_tests(clock());
    for _ in 0..300 {
        logger.log(id::STARTING, "main", "m", bson::doc! { "long": "x".repeat(8000) });
    }
    let (total, lines) = logger.ring(Ring::Global);
    let bytes: usize = lines.iter().map(|line| line.len()).sum();
    assert_eq!(total, 300);
    assert!((RING_BYTES - 10_000..=RING_BYTES).contains(&bytes), "{bytes}");
}

fn file_logger(path: &Path, append: bool, rotate: Rotate) -> Arc<Logger> {
    let destination = Destination::File {
        path: path.to_owned(),
        append,
        rotate,
    };
    Logger::new(
        clock(),
        &LoggerOptions {
            destination,
            ..LoggerOptions::default()
        },
    )
    .unwrap()
}

fn count_lines(path: &Path) -> usize {
    std::fs::read_to_string(path).unwrap().lines().count()
}

#[test]
fn files_are_appended_to_or_renamed_at_start() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("tenond.log");
    std::fs::write(&path, "old\n").unwrap();
    file_logger(&path, true, Rotate::Rename).log(id::STARTING, "main", "m", Document::new());
    assert_eq!(count_lines(&path), 2);
    file_logger(&path, false, Rotate::Rename);
    assert_eq!(count_lines(&path), 1, "one line tells of the renaming");
    assert_eq!(count_lines(&directory.path().join("tenond.log.2026-01-02T03-04-05")), 2);
}

#[test]
fn rotation_renames_or_reopens() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.log");
    let logger = file_logger(&path, true, Rotate::Rename);
    logger.rotate().unwrap();
    logger.rotate().unwrap();
    assert_eq!(count_lines(&path), 0);
    assert!(directory.path().join("a.log.2026-01-02T03-04-05-2").exists());
    // Somebody else has moved it.
    std::fs::rename(&path, directory.path().join("away.log")).unwrap();
    logger.rotate().unwrap();
    logger.log(id::STARTING, "main", "m", Document::new());
    assert_eq!(count_lines(&path), 1);

    let path = directory.path().join("b.log");
    let logger = file_logger(&path, true, Rotate::Reopen);
    std::fs::rename(&path, directory.path().join("moved.log")).unwrap();
    logger.rotate().unwrap();
    logger.log(id::STARTING, "main", "m", Document::new());
    assert_eq!(count_lines(&path), 1);
}

/// A log's disk that is full for a week is seen by whoever looks, and by whoever reads the log afterwards.
#[test]
fn lines_that_are_lost_are_counted_and_told_of() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("c.log");
    std::os::unix::fs::symlink("/dev/full", &path).unwrap();
    let logger = file_logger(&path, true, Rotate::Reopen);
    for _ in 0..3 {
        logger.log(id::STARTING, "main", "m", Document::new());
    }
    logger.flush();
    assert_eq!(logger.lost_lines(), 3);
    std::fs::remove_file(&path).unwrap();
    logger.rotate().unwrap();
    for _ in 0..2 {
        logger.log(id::STARTING, "main", "m", Document::new());
    }
    logger.flush();
    // Rotation tells of itself in the old file.
    assert_eq!(logger.lost_lines(), 4);
    let text = std::fs::read_to_string(&path).unwrap();
    let lines: Vec<serde_json::Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let ids: Vec<_> = lines.iter().map(|line| line["id"].as_i64().unwrap()).collect();
    assert_eq!(ids, [8_410_044, 4_615_611, 4_615_611], "once");
    assert_eq!(lines[0]["attr"]["lines"], 4);
}
