//! What a connection does with servers that answer wrongly, late, or not at all.

use super::*;
use bson::rawdoc;
use std::net::TcpListener;
use std::sync::mpsc::{Receiver, channel};

/// A server for one connection: takes a request, sends `reply`, and closes when the sender of the channel is gone.
fn server(reply: Vec<u8>, close: Receiver<()>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = listener.local_addr().expect("it has an address");
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("the test connects");
        let mut head = [0; 16];
        stream.read_exact(&mut head).expect("the test sends");
        let length = u32::from_le_bytes(*head.first_chunk().expect("it has 16 bytes")) as usize;
        stream.read_exact(&mut vec![0; length - 16]).expect("the test sends");
        stream.write_all(&reply).expect("the test receives");
        // Ends by the sender's end.
        let _ = close.recv();
    });
    address
}

fn call(reply: Vec<u8>) -> Result<RawDocumentBuf, LinkError> {
    let (sender, receiver) = channel();
    let address = server(reply, receiver);
    drop(sender);
    let interrupt = Interrupt::new();
    let mut link = Link::open(address, &interrupt)?;
    link.command("admin", &rawdoc! { "ping": 1 }).map(ToOwned::to_owned)
}

fn reply(document: RawDocumentBuf) -> Vec<u8> {
    let mut bytes = vec![0; BODY_AT];
    bytes.extend_from_slice(document.as_bytes());
    set_header(&mut bytes, 0);
    bytes
}

fn refusal(document: RawDocumentBuf) -> (i32, String) {
    match call(reply(document)) {
        Err(LinkError::Refused { code, message }) => (code, message),
        other => panic!("it was refused: {other:?}"),
    }
}

#[test]
fn a_good_answer_is_taken() {
    let large = rawdoc! { "text": "x".repeat(200_000), "ok": 1.0 };
    assert_eq!(call(reply(large.clone())).expect("it is good"), large);
}

#[test]
fn every_kind_of_refusal_has_its_reason() {
    let whole = rawdoc! { "ok": 0.0, "errmsg": "no", "code": 2 };
    assert_eq!(refusal(whole), (2, "no".to_owned()));
    let single = rawdoc! { "n": 0, "writeErrors": [{ "index": 0, "code": 14_031, "errmsg": "disk full" }], "ok": 1.0 };
    assert_eq!(refusal(single), (14_031, "disk full".to_owned()));
    let concern = rawdoc! { "n": 1, "writeConcernError": { "code": 64, "errmsg": "late" }, "ok": 1.0 };
    assert_eq!(refusal(concern), (64, "late".to_owned()));
    assert_eq!(refusal(rawdoc! { "errmsg": "no ok" }).1, "no ok");
}

#[test]
fn a_server_that_goes_away_is_an_error_at_once() {
    for bytes in [Vec::new(), vec![40], reply(rawdoc! { "ok": 1.0 })[..20].to_vec()] {
        let error = call(bytes).expect_err("the reply is not whole");
        assert!(matches!(error, LinkError::Broken(_)), "{error}");
    }
}

#[test]
fn lengths_and_kinds_from_the_network_are_not_trusted() {
    let good = reply(rawdoc! { "ok": 1.0 });
    let with_length = |length: u32| {
        let mut bytes = good.clone();
        bytes[..4].copy_from_slice(&length.to_le_bytes());
        bytes
    };
    let mut other_kind = good.clone();
    other_kind[12] = 1;
    for bytes in [
        with_length(0),
        with_length(20),
        with_length(u32::MAX),
        with_length(1 << 31),
        other_kind,
    ] {
        let error = call(bytes).expect_err("it is no reply");
        assert!(matches!(error, LinkError::Malformed(_)), "{error}");
    }
}

#[test]
fn a_silent_server_does_not_keep_the_user() {
    let (sender, receiver) = channel();
    let address = server(Vec::new(), receiver);
    let interrupt = Interrupt::new();
    let mut link = Link::open(address, &interrupt).expect("it listens");
    interrupt.ask();
    let error = link
        .command("admin", &rawdoc! { "ping": 1 })
        .expect_err("there is no answer");
    assert!(matches!(error, LinkError::Stopped), "{error}");
    drop(sender);
}
