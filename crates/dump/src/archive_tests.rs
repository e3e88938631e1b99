#![allow(clippy::unwrap_used)]

use super::*;

fn archive() -> Vec<u8> {
    let (a, b) = (Namespace::new("d", "a"), Namespace::new("d", "b.c"));
    let announced = [&a, &b].map(|namespace| Announced {
        namespace: namespace.clone(),
        metadata: "{}".to_owned(),
        size_bytes: 7,
        kind: "collection",
    });
    let mut writer = ArchiveWriter::begin(Vec::new(), 2, "8.0.0", &announced).unwrap();
    let documents = [rawdoc! { "_id": 1 }, rawdoc! { "_id": "x" }, rawdoc! {}];
    let mut checksum = Checksum::default();
    writer.segment(&a, documents[0].as_bytes()).unwrap();
    checksum.add(documents[0].as_bytes());
    writer.end(&b, Checksum::default().value()).unwrap();
    let two = [documents[1].as_bytes(), documents[2].as_bytes()].concat();
    writer.segment(&a, &two).unwrap();
    checksum.add(&two);
    writer.end(&a, checksum.value()).unwrap();
    writer.finish()
}

fn parts(bytes: &[u8]) -> Result<Vec<Part>> {
    let mut reader = ArchiveReader::begin(bytes)?;
    let mut parts = Vec::new();
    while let Some(part) = reader.next_part()? {
        parts.push(part);
    }
    Ok(parts)
}

#[test]
fn segments_come_back_in_order() {
    let bytes = archive();
    assert_eq!(bytes[..4], [0x6D, 0xE2, 0x99, 0x81]);
    let reader = ArchiveReader::begin(&bytes[..]).unwrap();
    assert_eq!(reader.collections().len(), 2);
    assert_eq!(reader.collections()[1].namespace, Namespace::new("d", "b.c"));
    let a = || Namespace::new("d", "a");
    let document = |document: RawDocumentBuf| {
        let at = bytes
            .windows(document.as_bytes().len())
            .rposition(|window| window == document.as_bytes());
        Part::Document(a(), Found::new(document, at.unwrap() as u64, None))
    };
    assert_eq!(
        parts(&bytes).unwrap(),
        [
            document(rawdoc! { "_id": 1 }),
            Part::End(Namespace::new("d", "b.c")),
            document(rawdoc! { "_id": "x" }),
            document(rawdoc! {}),
            Part::End(a()),
        ]
    );
}

/// A dump that is killed between two collections ends its stream at the boundary of a segment. What it had announced
/// was taken for whole when it was a time series, or when the archive does not say what things are.
#[test]
fn a_stream_that_ends_before_something_announced_is_an_error() {
    let announced = |name: &str, kind: &'static str| Announced {
        namespace: Namespace::new("d", name),
        metadata: match kind {
            "view" => r#"{"options":{"viewOn":"a","pipeline":[]}}"#.to_owned(),
            _ => "{}".to_owned(),
        },
        size_bytes: 0,
        kind,
    };
    let (a, view) = (announced("a", "collection"), announced("v", "view"));
    let buckets = Namespace::new("d", "system.buckets.t");
    for (other, is_whole) in [(&view, true), (&announced("t", "timeseries"), false)] {
        let mut writer = ArchiveWriter::begin(Vec::new(), 1, "8.0.0", &[a.clone(), other.clone()]).unwrap();
        writer.end(&a.namespace, Checksum::default().value()).unwrap();
        let mut bytes = writer.finish();
        assert_eq!(parts(&bytes).is_ok(), is_whole, "{}", other.kind);
        let mut rest = ArchiveWriter { out: Vec::new() };
        rest.end(&buckets, Checksum::default().value()).unwrap();
        bytes.extend(rest.finish());
        assert_eq!(parts(&bytes).unwrap().len(), 2);
    }
    for (others, is_whole) in [
        (vec![&a, &view], true),
        (vec![&a, &view, &announced("b", "collection")], false),
    ] {
        let mut bytes = MAGIC.to_le_bytes().to_vec();
        bytes.extend(rawdoc! { "version": VERSION }.as_bytes());
        for other in others {
            let (name, metadata) = (&*other.namespace.collection, &*other.metadata);
            bytes.extend(rawdoc! { "db": "d", "collection": name, "metadata": metadata }.as_bytes());
        }
        bytes.extend(TERMINATOR.to_le_bytes());
        let mut rest = ArchiveWriter { out: Vec::new() };
        rest.end(&a.namespace, Checksum::default().value()).unwrap();
        bytes.extend(rest.finish());
        assert_eq!(parts(&bytes).is_ok(), is_whole);
    }
}

#[test]
fn every_truncation_is_an_error() {
    let bytes = archive();
    for length in 0..bytes.len() {
        assert!(parts(&bytes[..length]).is_err(), "{length} of {}", bytes.len());
    }
}

#[test]
fn every_changed_byte_of_a_document_is_an_error() {
    let bytes = archive();
    let at = bytes
        .windows(14)
        .position(|window| window == rawdoc! { "_id": 1 }.as_bytes())
        .unwrap();
    for offset in at..at + 14 {
        let mut changed = bytes.clone();
        changed[offset] ^= 0x10;
        assert!(parts(&changed).is_err(), "byte {offset}");
    }
}

#[test]
fn a_length_that_lies_allocates_nothing() {
    let mut bytes = archive();
    bytes[4..8].copy_from_slice(&i32::MAX.to_le_bytes());
    assert!(matches!(parts(&bytes), Err(DumpError::Format { .. })));
}
