//! Views are taken when somebody reads, and stand where they say.

use crate::process::open;
use engine::{Batch, Engine, Seq, Snapshot, StatValue, TableId, TableKind, TableSpec};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

const TABLES: [TableId; 2] = [TableId(3), TableId(4)];

/// One of the engine's figures.
pub(crate) fn stat(engine: &dyn Engine, wanted: &str) -> i64 {
    let mut found = -1;
    engine.stats(&mut |name, value| {
        if let (true, StatValue::Number(number)) = (name == wanted, value) {
            found = number;
        }
    });
    found
}

fn views_taken(engine: &dyn Engine) -> i64 {
    stat(engine, "snapshots.taken")
}

fn create(engine: &dyn Engine) {
    let mut batch = Batch::new();
    for table in TABLES {
        let spec = TableSpec {
            kind: TableKind::Records,
            name: "views".into(),
            compressor: None,
        };
        batch.create_table(table, spec);
    }
    engine.apply(&batch, Seq(1)).expect("makes the tables");
    engine.publish(Seq(1));
}

/// The batch at a position says which one it is, in both tables.
fn write(engine: &dyn Engine, seq: Seq) {
    let mut batch = Batch::new();
    for table in TABLES {
        batch.put(table, b"at".as_slice(), seq.0.to_le_bytes().to_vec());
    }
    // Some more, so that writing takes a moment.
    for row in 0..100u8 {
        batch.put(TABLES[0], vec![b'x', row], vec![row; 50]);
    }
    engine.apply(&batch, seq).expect("writes");
    engine.publish(seq);
}

fn read(view: &Arc<dyn Snapshot>, table: TableId) -> u64 {
    let value = view.get(table, b"at").expect("reads");
    value.map_or(1, |value| {
        u64::from_le_bytes(value[..].try_into().expect("eight bytes"))
    })
}

#[test]
fn nobody_reads_and_no_view_is_taken() {
    let directory = tempfile::tempdir().expect("a directory");
    let engine = open(directory.path()).expect("opens");
    create(&engine);
    let before = views_taken(&engine);
    assert!(before >= 0);
    for seq in 2..500 {
        write(&engine, Seq(seq));
    }
    assert_eq!(views_taken(&engine), before);
    for _ in 0..3 {
        assert_eq!(read(&engine.snapshot().expect("works"), TABLES[0]), 499);
    }
    assert_eq!(views_taken(&engine), before + 1, "readers share one");
}

/// Readers beside a writer: a view that is taken while a batch is written shows all of it under its position, or
/// nothing of it under the one before. The writer goes on until each reader has seen it at work often enough.
#[test]
fn a_view_shows_exactly_its_position() {
    const POSITIONS_SEEN: u64 = 400;
    let directory = tempfile::tempdir().expect("a directory");
    let engine = open(directory.path()).expect("opens");
    create(&engine);
    let readers_left = AtomicUsize::new(2);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let _left = OnDrop(&readers_left);
                let (mut newest, mut seen) = (0, 0);
                while seen < POSITIONS_SEEN {
                    let view = engine.snapshot().expect("works");
                    let seq = view.seq().0;
                    assert!(seq >= newest, "{seq} after {newest}");
                    seen += u64::from(seq > newest);
                    newest = seq;
                    for table in TABLES {
                        assert_eq!(read(&view, table), seq, "{table:?}");
                    }
                }
            });
        }
        let mut seq = Seq(1);
        while readers_left.load(Ordering::Relaxed) > 0 {
            seq = seq.next();
            write(&engine, seq);
        }
    });
}

/// Counts down, after a panic too.
struct OnDrop<'a>(&'a AtomicUsize);

impl Drop for OnDrop<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
