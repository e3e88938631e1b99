//! Few rows of a range are deleted one by one: many ranges in a memtable make every read slow.

use crate::process::open;
use crate::views::stat;
use engine::{Batch, Direction, Engine, FillLimits, KeyRange, Rows, Seq, TableId, TableKind, TableSpec};

const TABLES: [TableId; 2] = [TableId(3), TableId(4)];

/// A batch at the next position, with which it is published.
fn commit(engine: &dyn Engine, fill: impl FnOnce(&mut Batch)) {
    let seq = engine.snapshot().expect("a view").seq().next();
    let mut batch = Batch::new();
    fill(&mut batch);
    engine.apply(&batch, seq).expect("applies");
    engine.publish(seq);
}

/// How many rows a table has.
fn rows(engine: &dyn Engine, table: TableId) -> usize {
    let view = engine.snapshot().expect("a view");
    let mut cursor = view
        .cursor(table, KeyRange::all(), Direction::Forward)
        .expect("a cursor");
    let (mut rows, mut count) = (Rows::new(), 0);
    while cursor.fill(&mut rows, FillLimits::default()).expect("reads") {
        count += rows.len();
    }
    count
}

#[test]
fn few_rows_are_deleted_one_by_one_and_many_as_a_range() {
    let directory = tempfile::tempdir().expect("a directory");
    let engine = open(directory.path()).expect("opens");
    assert_eq!(engine.snapshot().expect("a view").seq(), Seq::ZERO);
    commit(&engine, |batch| {
        for table in TABLES {
            let spec = TableSpec {
                kind: TableKind::Index,
                name: "ranges".into(),
                compressor: None,
            };
            batch.create_table(table, spec);
            batch.put(table, vec![9], vec![0]);
        }
    });
    let key = |row: u16| [&[1][..], &row.to_be_bytes()].concat();
    for (stored, own, is_range) in [
        (0, 0, false),
        (1024, 0, false),
        (1025, 0, true),
        (512, 512, false),
        (512, 513, true),
    ] {
        let before = stat(&engine, "apply.ranges");
        commit(&engine, |batch| {
            (0..stored).for_each(|row| batch.put(TABLES[0], key(row), vec![]))
        });
        commit(&engine, |batch| {
            (0..own).for_each(|row| batch.put(TABLES[0], key(2000 + row), vec![]));
            batch.put(TABLES[1], vec![1, 1], vec![]);
            batch.delete_range(TABLES[0], KeyRange::prefix(&[1]));
            // Behind it.
            batch.put(TABLES[0], key(0), vec![]);
        });
        assert_eq!(rows(&engine, TABLES[0]), 2, "{stored} and {own}");
        assert_eq!(rows(&engine, TABLES[1]), 2, "another table's stay");
        assert_eq!(
            stat(&engine, "apply.ranges") - before,
            i64::from(is_range),
            "{stored} and {own}"
        );
        commit(&engine, |batch| batch.delete(TABLES[0], key(0)));
    }
}
