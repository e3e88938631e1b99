//! The layout against its checked-in picture, round trips, and damage.

use super::*;

fn spec() -> TableSpec {
    TableSpec {
        kind: TableKind::Index,
        name: "a.b".into(),
        compressor: Some("lz4".into()),
    }
}

fn header() -> BlockHeader {
    BlockHeader {
        kind: BlockKind::Rows,
        codec: Codec::Lz4,
        raw_bytes: 9,
        stored_bytes: 3,
        number: 4,
        seq: Seq(5),
    }
}

#[test]
fn the_layout_is_what_the_document_says() {
    let mut table = Vec::new();
    encode_table(TableId(258), &spec(), &mut table);
    let mut row = Vec::new();
    encode_row(b"key", b"value", &mut row);
    let lines = [
        format!("version {FORMAT_VERSION}"),
        format!("file name {}", crate::checkpoint::file_name(Seq(258)).display()),
        format!(
            "file header {FILE_HEADER_BYTES} bytes, block header {BLOCK_HEADER_BYTES}, row header {ROW_HEADER_BYTES}, end {END_BYTES}"
        ),
        format!("block aim {BLOCK_BYTES_AIM} bytes, max {BLOCK_BYTES_MAX}"),
        format!(
            "kinds table {} rows {} end {}",
            BlockKind::Table as u8,
            BlockKind::Rows as u8,
            BlockKind::End as u8
        ),
        format!(
            "file header {:02x?}",
            FileHeader {
                seq: Seq(258),
                is_sealed: false
            }
            .encode()
        ),
        format!("block header {:02x?}", header().encode(b"abc")),
        format!("table {table:02x?}"),
        format!("row {row:02x?}"),
        format!(
            "end {:02x?}",
            Totals {
                tables: 1,
                rows: 2,
                blocks: 3
            }
            .encode()
        ),
    ];
    let expected = include_str!("../../../tests/layout.snapshot");
    assert_eq!(lines.join("\n"), expected.trim_end());
}

#[test]
fn everything_round_trips() {
    let file = FileHeader {
        seq: Seq(9),
        is_sealed: false,
    };
    assert_eq!(FileHeader::decode(&file.encode()), Ok(file));
    let bytes = header().encode(b"abc");
    assert_eq!(BlockHeader::decode(&bytes), Ok(header()));
    assert_eq!(BlockHeader::check(&bytes, b"abc"), Ok(()));
    for compressor in [None, Some(String::new()), Some("zstd".to_owned())] {
        let spec = TableSpec { compressor, ..spec() };
        let mut bytes = Vec::new();
        encode_table(TableId(7), &spec, &mut bytes);
        assert_eq!(decode_table(&bytes), Ok((TableId(7), spec)));
    }
    let mut rows = Vec::new();
    encode_row(b"", b"", &mut rows);
    encode_row(b"k", b"v", &mut rows);
    let (first, rest) = split_row(&rows).expect("two rows");
    assert_eq!(first, (&b""[..], &b""[..]));
    assert_eq!(split_row(rest), Ok(((&b"k"[..], &b"v"[..]), &b""[..])));
    let totals = Totals {
        tables: 1,
        rows: 2,
        blocks: 3,
    };
    assert_eq!(Totals::decode(&totals.encode()), Ok(totals));
}

#[test]
fn every_flipped_bit_of_a_header_is_refused() {
    let file = FileHeader {
        seq: Seq(9),
        is_sealed: false,
    }
    .encode();
    let block = header().encode(b"abc");
    for bit in 0..FILE_HEADER_BYTES * 8 {
        let mut damaged = file;
        damaged[bit / 8] ^= 1 << (bit % 8);
        assert!(FileHeader::decode(&damaged).is_err(), "bit {bit} of the file header");
    }
    for bit in 0..BLOCK_HEADER_BYTES * 8 {
        let mut damaged = block;
        damaged[bit / 8] ^= 1 << (bit % 8);
        assert!(
            BlockHeader::decode(&damaged).is_err() || BlockHeader::check(&damaged, b"abc").is_err(),
            "bit {bit} of a block header"
        );
    }
}

#[test]
fn a_newer_version_is_refused_by_its_number() {
    let mut bytes = FileHeader {
        seq: Seq(9),
        is_sealed: false,
    }
    .encode();
    bytes[8] = 3;
    let checksum = crc32c::crc32c(&bytes[..28]);
    bytes[28..32].copy_from_slice(&checksum.to_le_bytes());
    assert_eq!(
        FileHeader::decode(&bytes),
        Err("format version is 3, and this program knows 1 and 2".into())
    );
}

#[test]
fn cut_content_is_refused() {
    let mut table = Vec::new();
    encode_table(TableId(7), &spec(), &mut table);
    (0..table.len() - 3).for_each(|length| assert!(decode_table(&table[..length]).is_err(), "{length} bytes"));
    let mut row = Vec::new();
    encode_row(b"key", b"value", &mut row);
    (0..row.len()).for_each(|length| assert!(split_row(&row[..length]).is_err(), "{length} bytes"));
    assert!(Totals::decode(&[0; END_BYTES - 1]).is_err());
}

#[test]
fn a_sealed_block_opens_in_its_place_alone_and_with_every_bit_as_it_was() {
    let keys = Keys::ephemeral();
    let mut sealed = Vec::new();
    header().seal(b"abc", &keys, &mut sealed);
    assert_eq!(sealed.len(), SEAL_BYTES + 3);
    let others = [
        BlockHeader { number: 5, ..header() },
        BlockHeader {
            seq: Seq(6),
            ..header()
        },
        BlockHeader {
            kind: BlockKind::Table,
            ..header()
        },
        BlockHeader {
            raw_bytes: 8,
            ..header()
        },
    ];
    for other in others {
        assert!(other.open(&mut sealed.clone(), &keys).is_err(), "{other:?}");
    }
    for bit in 0..sealed.len() * 8 {
        let mut damaged = sealed.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        assert!(header().open(&mut damaged, &keys).is_err(), "bit {bit}");
    }
    assert_eq!(header().open(&mut sealed, &keys), Ok(&b"abc"[..]));
}
