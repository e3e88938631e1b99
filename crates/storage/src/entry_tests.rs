//! Entries: round trip, layout, damage.

#![allow(clippy::unwrap_used)]

use super::*;
use bson::rawdoc;
use vfs::{Random, SeededRandom};

/// One entry with every kind of operation.
fn sample() -> Vec<u8> {
    let document = rawdoc! { "_id": 1, "a": "x" };
    let stored = Bytes::copy_from_slice(document.as_bytes());
    let mut entry = EntryWriter::default();
    entry.insert(TableId(16), RecordId(1), stored.clone());
    entry.update(TableId(16), RecordId(2), stored);
    entry.delete(TableId(16), RecordId(3));
    entry.set_multikey(TableId(18), 1, 2);
    entry.build_chunk(TableId(16), RecordId(4), RecordId(9), &[TableId(18), TableId(19)]);
    entry.put_collection(&document);
    entry.drop_collection(*b"0123456789abcdef");
    entry.put_view(&document);
    entry.drop_view("db.view");
    entry.initialise();
    let length = entry.byte_len();
    let bytes = entry.with_parts(|parts| parts.concat());
    assert_eq!(bytes.len(), length);
    bytes
}

fn read_all(bytes: &[u8]) -> Result<Vec<EntryOp<'_>>, StorageError> {
    let mut reader = EntryReader::new(Seq(7), bytes)?;
    let mut ops = Vec::new();
    while let Some(op) = reader.next_op()? {
        ops.push(op);
    }
    Ok(ops)
}

#[test]
fn operations_come_back_in_order() {
    let bytes = sample();
    let document = rawdoc! { "_id": 1, "a": "x" };
    let ops = read_all(&bytes).unwrap();
    assert_eq!(ops.len(), 10);
    assert_eq!(
        ops[0],
        EntryOp::Insert {
            table: TableId(16),
            id: RecordId(1),
            document: &document
        }
    );
    assert_eq!(
        ops[1],
        EntryOp::Update {
            table: TableId(16),
            id: RecordId(2),
            document: &document
        }
    );
    assert_eq!(
        ops[2],
        EntryOp::Delete {
            table: TableId(16),
            id: RecordId(3)
        }
    );
    assert_eq!(
        ops[3],
        EntryOp::SetMultikey {
            index_table: TableId(18),
            field: 1,
            part: 2
        }
    );
    let EntryOp::BuildChunk {
        first, last, indexes, ..
    } = &ops[4]
    else {
        panic!("{:?}", ops[4])
    };
    assert_eq!((*first, *last), (RecordId(4), RecordId(9)));
    assert_eq!(indexes.iter().collect::<Vec<_>>(), [TableId(18), TableId(19)]);
    assert_eq!(
        ops[6],
        EntryOp::DropCollection {
            uuid: *b"0123456789abcdef"
        }
    );
    assert_eq!(ops[8], EntryOp::DropView { namespace: "db.view" });
    assert_eq!(ops[9], EntryOp::Initialise);
}

/// The layout as it is on disk. A change here is a change of format: new version, new description.
#[test]
fn layout_snapshot() {
    let hex: String = sample().iter().map(|byte| format!("{byte:02x}")).collect();
    let document = "17000000105f69640001000000026100020000007800 00".replace(' ', "");
    let expected = [
        "01000000 0a000000",
        "01 10000000 0100000000000000",
        &document,
        "02 10000000 0200000000000000",
        &document,
        "03 10000000 0300000000000000",
        "04 12000000 01 02",
        "05 10000000 0400000000000000 0900000000000000 02 12000000 13000000",
        "06",
        &document,
        "07 30313233343536373839616263646566",
        "08",
        &document,
        "09 0700 64622e76696577",
        "0a",
    ];
    assert_eq!(hex, expected.concat().replace(' ', ""));
}

#[test]
fn every_cut_and_every_tail_is_an_error() {
    let bytes = sample();
    for end in 0..bytes.len() {
        assert!(read_all(&bytes[..end]).is_err(), "cut at {end}");
    }
    let longer = [bytes.as_slice(), &[0]].concat();
    assert!(matches!(
        read_all(&longer),
        Err(StorageError::CorruptEntry { seq: Seq(7), .. })
    ));
}

#[test]
fn mutated_entries_never_panic() {
    let bytes = sample();
    let random = SeededRandom::new(42);
    let mut refused = 0;
    for _ in 0..20_000 {
        let mut mutated = bytes.clone();
        for _ in 0..=random.next_u64() % 3 {
            let at = random.next_u64() as usize % mutated.len();
            mutated[at] = random.next_u64() as u8;
        }
        refused += usize::from(read_all(&mutated).is_err());
    }
    assert!(refused > 1000, "only {refused} refused");
}
