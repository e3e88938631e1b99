//! Every offset, tag and limit of the protocol as built, compared with the checked-in `layout.snapshot`.
#![allow(clippy::unwrap_used)]

use std::fmt::Write;
use wire::{Compressor, Form, Header, MsgFlags, OpCode, limits};

fn hex(bytes: &[u8]) -> String {
    bytes
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect::<Vec<_>>()
        .join(" ")
}

#[test]
fn the_layout_has_not_changed() {
    let mut text = String::new();
    let header = Header {
        length: 0x11,
        request_id: 0x22,
        response_to: 0x33,
        op_code: OpCode::Msg,
    };
    writeln!(text, "header {}", hex(&header.to_bytes())).unwrap();
    for op_code in [OpCode::Reply, OpCode::Query, OpCode::Compressed, OpCode::Msg] {
        writeln!(text, "opcode {op_code:?} {}", op_code as i32).unwrap();
    }
    for compressor in [Compressor::Noop, Compressor::Snappy, Compressor::Zlib, Compressor::Zstd] {
        writeln!(text, "compressor {} {}", compressor.name(), compressor as u8).unwrap();
    }
    writeln!(text, "flag checksumPresent {:#x}", MsgFlags::CHECKSUM_PRESENT).unwrap();
    writeln!(text, "flag moreToCome {:#x}", MsgFlags::MORE_TO_COME).unwrap();
    writeln!(text, "flag exhaustAllowed {:#x}", MsgFlags::EXHAUST_ALLOWED).unwrap();
    for form in [Form::Msg { checksum: false }, Form::Msg { checksum: true }, Form::Reply] {
        let mut out = Vec::new();
        wire::begin(form, &mut out);
        out.extend_from_slice(&[5, 0, 0, 0, 0]);
        wire::finish(form, &mut out, 0, 0x22, 0x33, MsgFlags(MsgFlags::MORE_TO_COME)).unwrap();
        writeln!(text, "reply {form:?} {}", hex(&out)).unwrap();
    }
    for (name, value) in [
        ("MESSAGE_BYTES_MAX", limits::MESSAGE_BYTES_MAX),
        ("DOCUMENT_BYTES_MAX", limits::DOCUMENT_BYTES_MAX),
        ("DOCUMENT_INTERNAL_BYTES_MAX", limits::DOCUMENT_INTERNAL_BYTES_MAX),
        ("WRITE_BATCH_MAX", limits::WRITE_BATCH_MAX),
        ("NESTING_MAX", limits::NESTING_MAX),
        ("SEQUENCES_MAX", limits::SEQUENCES_MAX),
        ("NAMESPACE_BYTES_MAX", limits::NAMESPACE_BYTES_MAX),
    ] {
        writeln!(text, "limit {name} {value}").unwrap();
    }
    let expected = include_str!("layout.snapshot");
    assert_eq!(text, expected, "\nfound:\n{text}");
}
