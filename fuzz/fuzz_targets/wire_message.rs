//! A whole message from the network, compressed or not: parsed or refused, never a panic, never more memory than the
//! message may need.
#![no_main]

use libfuzzer_sys::fuzz_target;
use wire::{Codecs, Header, Message, OpCode, limits};

fuzz_target!(|data: &[u8]| {
    // The length field is set right, so that the bytes behind it are reached.
    let mut message = data.to_vec();
    if message.len() < 16 {
        return;
    }
    let length = message.len() as i32;
    message[..4].copy_from_slice(&length.to_le_bytes());
    let Some(Ok(header)) = message.first_chunk().map(Header::parse) else {
        return;
    };
    if header.op_code != OpCode::Compressed {
        let _ = Message::parse(&header, &message);
        return;
    }
    let mut out = Vec::new();
    if let Ok((inner, _)) = Codecs::default().decompress(&header, &message, &mut out) {
        assert_eq!(inner.length, out.len());
        let _ = Message::parse(&inner, &out);
    }
    assert!(out.capacity() <= limits::MESSAGE_BYTES_MAX);
});
