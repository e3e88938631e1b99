//! How much a client may have the server keep before it has proven who it is.

use super::*;
use wire::limits::STRANGER_MESSAGE_BYTES_MAX;

/// A `ping` of so many bytes, header included.
fn ping_of(bytes: usize) -> Vec<u8> {
    let of = |filler: usize| {
        let mut body = command("ping");
        body.append(bson::raw::cstr!("filler"), "x".repeat(filler));
        request(0, &body)
    };
    of(bytes - of(0).len())
}

/// Anybody could leave 48 MB of a message with the server on each connection, for ever.
#[test]
fn who_has_not_proven_to_be_anybody_sends_short_messages() {
    let site = Site::new();
    site.bench.are_strangers.store(true, Ordering::SeqCst);
    let (longest, longer) = (
        ping_of(STRANGER_MESSAGE_BYTES_MAX),
        ping_of(STRANGER_MESSAGE_BYTES_MAX + 1),
    );
    let mut client = site.connect();
    client.send(&longest);
    assert_eq!(client.reply().2.get_f64("ok").unwrap(), 1.0);
    // The header is enough.
    client.send(&longer[..16]);
    assert!(client.closed());
    // So is what a short one says that it becomes.
    let mut compressed = Vec::new();
    let mut codecs = Codecs::default();
    codecs.compress(Compressor::Zlib, &longest, &mut compressed).unwrap();
    let mut client = site.connect();
    client.send(&compressed);
    assert_eq!(client.receive().0.op_code, OpCode::Compressed);
    compressed.clear();
    codecs.compress(Compressor::Zlib, &longer, &mut compressed).unwrap();
    assert!(compressed.len() < 1024);
    client.send(&compressed);
    assert!(client.closed());
    site.bench.are_strangers.store(false, Ordering::SeqCst);
    let mut client = site.connect();
    client.send(&longer);
    assert_eq!(client.reply().2.get_f64("ok").unwrap(), 1.0);
    client.send(&compressed);
    client.receive();
    assert_eq!(site.bench.handled.load(Ordering::SeqCst), 4);
}
