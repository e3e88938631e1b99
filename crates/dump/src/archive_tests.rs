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
    assert_eq!(
        parts(&bytes).unwrap(),
        [
            Part::Document(a(), rawdoc! { "_id": 1 }),
            Part::End(Namespace::new("d", "b.c")),
            Part::Document(a(), rawdoc! { "_id": "x" }),
            Part::Document(a(), rawdoc! {}),
            Part::End(a()),
        ]
    );
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
