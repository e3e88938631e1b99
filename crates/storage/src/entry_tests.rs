//! Entries: round trip, layout, damage.

#![allow(clippy::unwrap_used)]

use super::*;
use crate::StorageError;
use crate::cluster_time::ClusterTime;
use bson::{RawDocument, rawdoc};
use vfs::{Random, SeededRandom};

const TIME: EntryTime = EntryTime {
    wall_ms: 0x0102_0304_0506,
    cluster: ClusterTime(0x6553_F100_0000_0007),
};

/// The entries of a writer that gets its places from position 7 on.
fn entries(mut writer: EntryWriter) -> Vec<Vec<u8>> {
    let (length, number, mut entries) = (writer.byte_len(), writer.entries(), Vec::new());
    writer.hand_over(Seq(7), TIME, |all| {
        entries.extend(all.iter().map(|pieces| pieces.concat()))
    });
    assert_eq!(entries.len() as u64, number);
    assert_eq!(entries.iter().map(Vec::len).sum::<usize>(), length);
    entries
}

/// One entry with every kind of operation.
pub(crate) fn sample() -> Vec<u8> {
    let old = rawdoc! { "_id": 1, "a": "x", "pad": "0123456789" };
    let new = rawdoc! { "_id": 1, "a": "y", "pad": "0123456789" };
    let small = rawdoc! { "_id": 1, "a": "x" };
    let stored = |document: &RawDocument| Bytes::copy_from_slice(document.as_bytes());
    let mut entry = EntryWriter::default();
    entry.session(&EntrySession {
        key: SessionKey {
            id: *b"session-session-",
            user: [0xAB; 32],
        },
        txn_number: 9,
    });
    entry.statement(3, Kept::Before);
    entry.insert(TableId(16), &RecordId::Number(1), stored(&small));
    let old_bytes = old.as_bytes().len();
    let mut difference = Vec::new();
    entry.update(
        TableId(16),
        &RecordId::Number(2),
        old_bytes,
        &stored(&small),
        None,
        None,
    );
    assert!(diff::between(
        old.as_bytes(),
        new.as_bytes(),
        diff::Detail::Compact,
        &mut difference
    ));
    let (new, pre_image) = (stored(&new), Some(stored(&small)));
    entry.update(
        TableId(16),
        &RecordId::Number(2),
        old_bytes,
        &new,
        Some(&difference),
        pre_image,
    );
    entry.delete(TableId(16), &RecordId::Number(3), &small, Deletion::Evicted, None);
    entry.delete(
        TableId(16),
        &RecordId::Number(3),
        &small,
        Deletion::Asked,
        Some(stored(&small)),
    );
    entry.set_multikey(TableId(18), 1, 2);
    entry.build_chunk(
        TableId(16),
        &RecordId::Number(4),
        &RecordId::Number(9),
        &[TableId(18), TableId(19)],
    );
    entry.put_collection(&small);
    entry.drop_collection(*b"0123456789abcdef");
    entry.put_view(&small);
    entry.drop_view("db.view");
    entry.initialise();
    entry.note(&small);
    entry.command(&small);
    entry.keep_sessions();
    entry.forget_sessions(7);
    entry.statistics(Some(Seq(6)), Seq(5), &[(TableId(16), 2, 60), (TableId(20), -1, -2)]);
    let [entry] = &entries(entry)[..] else {
        panic!("one entry")
    };
    entry.clone()
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
    let header = *EntryReader::new(Seq(7), &bytes).unwrap().header();
    let session = EntrySession {
        key: SessionKey {
            id: *b"session-session-",
            user: [0xAB; 32],
        },
        txn_number: 9,
    };
    let expected = EntryHeader {
        has_keys: false,
        version: 2,
        time: TIME,
        session: Some(session),
        chain_first: None,
        partial: false,
    };
    assert_eq!(header, expected);
    let (small, key) = (rawdoc! { "_id": 1, "a": "x" }, rawdoc! { "_id": 1 });
    let diff = rawdoc! { "u": { "a": "y" } };
    let (table, id) = (TableId(16), RecordId::Number(2));
    let ops = read_all(&bytes).unwrap();
    let shrunk = small.as_bytes().len() as i32 - 43;
    assert_eq!(
        ops[..6],
        [
            EntryOp::Statement {
                id: 3,
                kept: Kept::Before
            },
            EntryOp::Insert {
                table,
                id: RecordId::Number(1),
                document: &small
            },
            EntryOp::Update {
                table,
                id: id.clone(),
                grown: Some(shrunk),
                new: NewVersion::Whole(&small),
                pre_image: None
            },
            EntryOp::Update {
                table,
                id,
                grown: Some(0),
                new: NewVersion::Difference { key: &key, diff: &diff },
                pre_image: Some(&small)
            },
            EntryOp::Delete {
                table,
                id: RecordId::Number(3),
                old: Some((23, &key)),
                pre_image: None,
                reason: Deletion::Evicted
            },
            EntryOp::Delete {
                table,
                id: RecordId::Number(3),
                old: Some((23, &key)),
                pre_image: Some(&small),
                reason: Deletion::Asked
            },
        ]
    );
    let EntryOp::BuildChunk {
        first, last, indexes, ..
    } = &ops[7]
    else {
        panic!("{:?}", ops[7])
    };
    assert_eq!(
        (first.clone(), last.clone()),
        (RecordId::Number(4), RecordId::Number(9))
    );
    assert_eq!(indexes.iter().collect::<Vec<_>>(), [TableId(18), TableId(19)]);
    assert_eq!(
        ops[9],
        EntryOp::DropCollection {
            uuid: *b"0123456789abcdef"
        }
    );
    assert_eq!(ops[11], EntryOp::DropView { namespace: "db.view" });
    assert_eq!(ops[12], EntryOp::Initialise);
    assert_eq!(
        ops[13..17],
        [
            EntryOp::Note { document: &small },
            EntryOp::Command { document: &small },
            EntryOp::KeepSessions,
            EntryOp::ForgetSessions { before_ms: 7 }
        ]
    );
    let EntryOp::Statistics {
        as_of,
        names_from,
        counts,
    } = ops[17]
    else {
        panic!("{:?}", ops[16])
    };
    assert_eq!((as_of, names_from), (Some(Seq(6)), Seq(5)));
    assert_eq!(
        counts.iter().collect::<Vec<_>>(),
        [(TableId(16), 2, 60), (TableId(20), -1, -2)]
    );
    assert_eq!(ops.len(), 18);
}

/// The layout as it is on disk. A change here is a change of format: new version, new description.
#[test]
fn layout_snapshot() {
    let hex: String = sample().iter().map(|byte| format!("{byte:02x}")).collect();
    let document = "17000000 10 5f696400 01000000 02 6100 02000000 7800 00";
    let key = "0e000000 10 5f696400 01000000 00";
    let expected = [
        "02 04 0000 12000000 0605040302010000 0700000000f15365",
        "73657373696f6e2d73657373696f6e2d",
        &"ab".repeat(32),
        "0900000000000000",
        "0e 03000000 02",
        "01 10000000 0100000000000000",
        document,
        "0b 10000000 0200000000000000 ecffffff 00",
        document,
        "0c 10000000 0200000000000000 00000000 01",
        key,
        "16000000 03 7500 0e000000 02 6100 02000000 7900 00 00",
        document,
        "0d 10000000 0300000000000000 17000000 02",
        key,
        "0d 10000000 0300000000000000 17000000 01",
        key,
        document,
        "04 12000000 01 02",
        "05 10000000 0400000000000000 0900000000000000 02 12000000 13000000",
        "06",
        document,
        "07 30313233343536373839616263646566",
        "08",
        document,
        "09 0700 64622e76696577",
        "0a",
        "10",
        document,
        "13",
        document,
        "11",
        "12 0700000000000000",
        "0f 0600000000000000 0500000000000000 02000000",
        "10000000 0200000000000000 3c00000000000000",
        "14000000 ffffffffffffffff feffffffffffffff",
    ];
    assert_eq!(hex, expected.concat().replace(' ', ""));
}

/// The layout of version 1, which is not written any more.
#[test]
fn entries_of_version_1_are_read() {
    let document = rawdoc! { "_id": 1, "a": "x" };
    let bytes = v1_entry(&[
        &[&[1, 16, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0], document.as_bytes()].concat(),
        &[&[2, 16, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0], document.as_bytes()].concat(),
        &[3, 16, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0],
        &[10],
    ]);
    let (table, header) = (TableId(16), *EntryReader::new(Seq(7), &bytes).unwrap().header());
    let expected = EntryHeader {
        has_keys: false,
        version: 1,
        ..EntryHeader::default()
    };
    assert_eq!(header, expected);
    assert_eq!(
        read_all(&bytes).unwrap(),
        [
            EntryOp::Insert {
                table,
                id: RecordId::Number(1),
                document: &document
            },
            EntryOp::Update {
                table,
                id: RecordId::Number(2),
                grown: None,
                new: NewVersion::Whole(&document),
                pre_image: None
            },
            EntryOp::Delete {
                table,
                id: RecordId::Number(3),
                old: None,
                pre_image: None,
                reason: Deletion::Asked
            },
            EntryOp::Initialise,
        ]
    );
    for tag in [11, 12, 13, 14, 15] {
        assert!(read_all(&v1_entry(&[&[tag; 40]])).is_err(), "tag {tag} came later");
    }
}

/// An entry of version 1 with these operations.
pub(crate) fn v1_entry(operations: &[&[u8]]) -> Vec<u8> {
    let header = [1, 0, 0, 0, operations.len() as u8, 0, 0, 0];
    [header.as_slice(), &operations.concat()].concat()
}

#[test]
fn large_units_become_chains_of_whole_operations() {
    let document = Bytes::copy_from_slice(rawdoc! { "_id": 1, "a": "x".repeat(50) }.as_bytes());
    let mut writer = EntryWriter::with_part_bytes(200);
    for id in 0..7 {
        writer.insert(TableId(16), &RecordId::Number(id), document.clone());
    }
    assert_eq!(writer.count(), 7);
    let entries = entries(writer);
    assert_eq!(entries.len(), 4);
    let mut ids = Vec::new();
    for (place, entry) in entries.iter().enumerate() {
        let mut reader = EntryReader::new(Seq(7 + place as u64), entry).unwrap();
        let header = reader.header();
        assert_eq!(
            (header.time, header.partial, header.chain_first),
            (TIME, place < 3, (place > 0).then_some(Seq(7)))
        );
        while let Some(EntryOp::Insert { id, .. }) = reader.next_op().unwrap() {
            ids.push(id.number());
        }
    }
    assert_eq!(ids, (0..7).collect::<Vec<_>>());
}

/// Operations of a clustered collection: a flag tells of keys, and what is damaged is found.
#[test]
fn records_with_keys_come_back() {
    let key = |text: &str| RecordId::Key(text.as_bytes().into());
    let (small, table) = (rawdoc! { "_id": 1, "a": "x" }, TableId(16));
    let stored = Bytes::copy_from_slice(small.as_bytes());
    let mut writer = EntryWriter::default();
    writer.insert(table, &key("k"), stored.clone());
    writer.update(table, &key(""), 5, &stored, None, None);
    writer.update(
        table,
        &key("longer than the others"),
        5,
        &stored,
        Some(&[5, 0, 0, 0, 0]),
        None,
    );
    writer.delete(table, &key("gone"), &small, Deletion::Asked, None);
    writer.build_chunk(table, &key("a"), &key("zz"), &[TableId(18)]);
    let entries = entries(writer);
    let bytes = &entries[0];
    assert!(EntryReader::new(Seq(7), bytes).unwrap().header().has_keys);
    let ops = read_all(bytes).unwrap();
    let ids: Vec<_> = ops
        .iter()
        .flat_map(|op| match op {
            EntryOp::Insert { id, .. } | EntryOp::Update { id, .. } | EntryOp::Delete { id, .. } => vec![id.clone()],
            EntryOp::BuildChunk { first, last, .. } => vec![first.clone(), last.clone()],
            other => panic!("{other:?}"),
        })
        .collect();
    let wanted = ["k", "", "longer than the others", "gone", "a", "zz"].map(key);
    assert_eq!(ids, wanted);
    let news: Vec<_> = ops
        .iter()
        .filter_map(|op| match op {
            EntryOp::Update { new, .. } => Some(matches!(new, NewVersion::Whole(_))),
            _ => None,
        })
        .collect();
    assert_eq!(news, [true, false], "the tag is where it was left");
    for length in 0..bytes.len() {
        assert!(read_all(&bytes[..length]).is_err(), "{length}");
    }
    let mut unflagged = bytes.clone();
    unflagged[FLAGS_OFFSET] &= !FLAG_KEYS;
    let refused = read_all(&unflagged).unwrap_err().to_string();
    assert!(refused.contains("without keys"), "{refused}");
    // A length that leads outside.
    let mut outside = bytes.clone();
    let length_at = HEADER_BYTES + 5;
    assert_eq!(outside[length_at], 1);
    outside[length_at + 6] = 0x7F;
    assert!(read_all(&outside).is_err());
}

/// One field of 100 bytes in a document of a kilobyte: what an update costs in the log, before compression.
#[test]
fn an_update_of_one_field_is_small() {
    let fields = |changed: &str| {
        let mut document = rawdoc! { "_id": "user6284781860667377211" };
        for field in 0..10 {
            let name = bson::raw::CString::try_from(format!("field{field}")).unwrap();
            let value = if field == 4 {
                changed.to_owned()
            } else {
                "v".repeat(100)
            };
            document.append(name, value);
        }
        document
    };
    let (old, new) = (fields(&"v".repeat(100)), fields(&"w".repeat(100)));
    let mut entry = EntryWriter::default();
    let (old, new) = (old.as_bytes(), Bytes::copy_from_slice(new.as_bytes()));
    let mut difference = Vec::new();
    assert!(diff::between(old, &new, diff::Detail::Compact, &mut difference));
    entry.update(
        TableId(16),
        &RecordId::Number(1),
        old.len(),
        &new,
        Some(&difference),
        None,
    );
    let bytes = entry.byte_len();
    assert!(new.len() > 1100 && bytes <= 250, "{bytes} bytes");
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
