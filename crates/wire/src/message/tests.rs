#![allow(clippy::unwrap_used)]
use super::*;
use crate::{BsonFault, Codecs, Compressor, ErrorCode, begin, finish};
use bson::{RawDocumentBuf, rawdoc};

fn section(kind: u8, content: &[u8]) -> Vec<u8> {
    [&[kind], content].concat()
}

fn sequence(identifier: &str, documents: &[RawDocumentBuf]) -> Vec<u8> {
    let mut content = vec![0; 4];
    content.extend_from_slice(identifier.as_bytes());
    content.push(0);
    for document in documents {
        content.extend_from_slice(document.as_bytes());
    }
    let size = content.len() as i32;
    content[..4].copy_from_slice(&size.to_le_bytes());
    section(1, &content)
}

fn message(op_code: i32, body: &[u8]) -> Vec<u8> {
    let mut bytes = ((body.len() + HEADER_BYTES) as i32).to_le_bytes().to_vec();
    bytes.extend_from_slice(&77i32.to_le_bytes());
    bytes.extend_from_slice(&0i32.to_le_bytes());
    bytes.extend_from_slice(&op_code.to_le_bytes());
    bytes.extend_from_slice(body);
    bytes
}

fn msg(flags: u32, sections: &[Vec<u8>]) -> Vec<u8> {
    message(2013, &[flags.to_le_bytes().to_vec(), sections.concat()].concat())
}

fn query(namespace: &str, document: &RawDocumentBuf) -> Vec<u8> {
    let body = [
        &[4, 0, 0, 0],
        namespace.as_bytes(),
        &[0],
        &[0; 4],
        &[0xFF; 4],
        document.as_bytes(),
    ]
    .concat();
    message(2004, &body)
}

fn header(bytes: &[u8]) -> Result<Header, WireError> {
    Header::parse(bytes.first_chunk::<16>().unwrap())
}

fn parse(bytes: &[u8]) -> Result<Message<'_>, Rejection> {
    Message::parse(&header(bytes)?, bytes)
}

fn ping() -> RawDocumentBuf {
    rawdoc! { "ping": 1, "$db": "admin" }
}

fn answer_of(bytes: &[u8]) -> Answer {
    parse(bytes).unwrap_err().answer
}

#[test]
fn sections_come_in_any_order() {
    let documents = [rawdoc! { "_id": 1 }, rawdoc! { "_id": 2 }];
    let bytes = msg(
        0,
        &[
            sequence("documents", &documents),
            section(0, ping().as_bytes()),
            sequence("x", &[]),
        ],
    );
    let Message::Msg(parsed) = parse(&bytes).unwrap() else {
        panic!("an OP_MSG")
    };
    assert_eq!(parsed.body, &*ping());
    let sequences = parsed.sequences.as_slice();
    assert_eq!(sequences[0].0, "documents");
    assert_eq!(
        sequences[0].1,
        [documents[0].as_bytes(), documents[1].as_bytes()].concat()
    );
    assert_eq!(sequences[1], ("x", &[][..]));
}

/// The connection was closed without an answer, though the frame tells where the next message begins.
#[test]
fn a_sequence_that_stands_there_twice_is_answered() {
    let body = section(0, ping().as_bytes());
    let bytes = msg(0, &[sequence("a", &[]), sequence("b", &[]), sequence("a", &[]), body]);
    let rejection = parse(&bytes).unwrap_err();
    assert_eq!(rejection.answer, Answer::Reply(Form::Msg { checksum: false }));
    assert_eq!(rejection.error.code(), ErrorCode(40431));
    // Of a long name its beginning is told, in whole characters.
    let name = format!("{}é{}", "a".repeat(127), "b".repeat(1000));
    let body = section(0, ping().as_bytes());
    let bytes = msg(0, &[sequence(&name, &[]), sequence(&name, &[]), body]);
    let told = parse(&bytes).unwrap_err().error.to_string();
    assert!(told.ends_with(&format!(": {}", "a".repeat(127))), "{told}");
}

#[test]
fn broken_frames_close_the_connection() {
    let body = section(0, ping().as_bytes());
    let cases = [
        msg(0, &[]),
        msg(0, &[body.clone(), body.clone()]),
        msg(0, &[body.clone(), section(2, &[])]),
        msg(
            0,
            &(0..=SEQUENCES_MAX)
                .map(|i| sequence(&i.to_string(), &[]))
                .collect::<Vec<_>>(),
        ),
        msg(0, &[body.clone(), section(1, &[3, 0, 0, 0, 0])]),
        msg(0, &[body.clone(), section(1, &[0xFF, 0xFF, 0xFF, 0xFF, b'a', 0])]),
        msg(0, &[section(0, &[200, 0, 0, 0, 0])]),
        msg(0, &[section(0, &[0xFF; 4])]),
        msg(1, &[]),
        message(2013, &[0, 0]),
        message(2012, &[]),
        message(1, &[]),
        message(2004, b"\0\0\0\0admin.$cmd"),
    ];
    for bytes in cases {
        assert_eq!(answer_of(&bytes), Answer::Close, "{bytes:?}");
    }
    assert_eq!(
        header(&message(2002, &[])),
        Err(WireError::UnknownOpCode { op_code: 2002 })
    );
    for length in [-1, 0, 15, 48_000_001, i32::MAX] {
        let mut bytes = message(2013, &[]);
        bytes[..4].copy_from_slice(&length.to_le_bytes());
        assert_eq!(header(&bytes), Err(WireError::MessageLength { length }));
    }
    for length in [16, 48_000_000] {
        let mut bytes = message(2013, &[]);
        bytes[..4].copy_from_slice(&i32::to_le_bytes(length));
        assert_eq!(header(&bytes).unwrap().length, length as usize);
    }
}

#[test]
fn broken_documents_are_answered() {
    let mut bad = ping().into_bytes();
    bad[4] = 0x55;
    let form = Form::Msg { checksum: false };
    assert_eq!(answer_of(&msg(0, &[section(0, &bad)])), Answer::Reply(form));
    assert_eq!(answer_of(&msg(2, &[section(0, &bad)])), Answer::Nothing);
    let with_sequence = msg(0, &[section(0, ping().as_bytes()), section(1, b"\x0b\0\0\0documents")]);
    assert_eq!(answer_of(&with_sequence), Answer::Close);
    let mut deep = RawDocumentBuf::new();
    for _ in 0..crate::limits::NESTING_MAX {
        deep = rawdoc! { "a": deep };
    }
    let rejection = parse(&msg(0, &[section(0, deep.as_bytes())])).unwrap_err();
    assert_eq!(rejection.error.code(), ErrorCode::Overflow);
    assert!(matches!(
        rejection.error,
        WireError::Bson(BsonError {
            fault: BsonFault::TooDeep,
            ..
        })
    ));
}

#[test]
fn unknown_flags_matter_only_in_the_lower_half() {
    let body = section(0, ping().as_bytes());
    let rejection = parse(&msg(4, std::slice::from_ref(&body))).unwrap_err();
    assert_eq!(rejection.error.code(), ErrorCode::IllegalOpMsgFlag);
    assert_eq!(rejection.answer, Answer::ReplyAndClose(Form::Msg { checksum: false }));
    assert!(parse(&msg(1 << 20, std::slice::from_ref(&body))).is_ok());
    assert_eq!(parse(&msg(2, std::slice::from_ref(&body))).unwrap().form(), None);
    assert_eq!(
        parse(&msg(1 << 16, &[body])).unwrap().form(),
        Some(Form::Msg { checksum: false })
    );
}

#[test]
fn checksums_are_verified_and_returned() {
    let mut bytes = msg(1, &[section(0, ping().as_bytes())]);
    let length = bytes.len() as i32 + 4;
    bytes[..4].copy_from_slice(&length.to_le_bytes());
    let sum = crc32c::crc32c(&bytes);
    bytes.extend_from_slice(&sum.to_le_bytes());
    let form = parse(&bytes).unwrap().form().unwrap();
    assert_eq!(form, Form::Msg { checksum: true });
    *bytes.last_mut().unwrap() ^= 1;
    assert_eq!(parse(&bytes).unwrap_err().error.code(), ErrorCode::ChecksumMismatch);

    let mut out = vec![1, 2, 3];
    begin(form, &mut out);
    out.extend_from_slice(ping().as_bytes());
    finish(form, &mut out, 3, 5, 77, MsgFlags::default()).unwrap();
    let reply = &out[3..];
    assert_eq!(
        header(reply).unwrap(),
        Header {
            length: reply.len(),
            request_id: 5,
            response_to: 77,
            op_code: OpCode::Msg
        }
    );
    assert!(matches!(parse(reply).unwrap(), Message::Msg(OpMsg { body, .. }) if *body == *ping()));
}

#[test]
fn queries_are_commands_or_refused() {
    let hello = rawdoc! { "isMaster": 1, "helloOk": true };
    let bytes = query("admin.$cmd", &hello);
    let parsed = parse(&bytes).unwrap();
    assert_eq!(parsed.form(), Some(Form::Reply));
    assert!(matches!(parsed, Message::Query(OpQuery { database: "admin", body }) if *body == *hello));
    let wrapped = query("a.b.$cmd", &rawdoc! { "$query": hello.clone(), "$readPreference": {} });
    let parsed = parse(&wrapped).unwrap();
    assert!(matches!(parsed, Message::Query(OpQuery { database: "a.b", body }) if *body == *hello));
    let rejection = parse(&query("test.things", &hello)).unwrap_err_owned();
    assert_eq!(rejection.error.code(), ErrorCode::UnsupportedOpQueryCommand);
    assert_eq!(rejection.answer, Answer::Reply(Form::Reply));
}

trait UnwrapErrOwned {
    fn unwrap_err_owned(self) -> Rejection;
}

impl UnwrapErrOwned for Result<Message<'_>, Rejection> {
    fn unwrap_err_owned(self) -> Rejection {
        self.map(|_| ()).unwrap_err()
    }
}

#[test]
fn a_legacy_reply_has_its_fields() {
    let mut out = Vec::new();
    begin(Form::Reply, &mut out);
    out.extend_from_slice(ping().as_bytes());
    finish(Form::Reply, &mut out, 0, 9, 77, MsgFlags::default()).unwrap();
    assert_eq!(header(&out).unwrap().op_code, OpCode::Reply);
    let fields = [
        8, 0, 0, 0, /* cursor */ 0, 0, 0, 0, 0, 0, 0, 0, /* start */ 0, 0, 0, 0, /* number */ 1, 0, 0, 0,
    ];
    assert_eq!(out[16..36], fields);
    assert_eq!(&out[36..], ping().as_bytes());
}

#[test]
fn the_body_is_seen_without_parsing_where_it_comes_first() {
    let body = section(0, ping().as_bytes());
    let documents = sequence("documents", &[ping()]);
    let seen = |bytes: &[u8]| peek_body(&header(bytes).unwrap(), bytes).map(RawDocument::to_owned);
    assert_eq!(seen(&msg(0, std::slice::from_ref(&body))), Some(ping()));
    assert_eq!(seen(&msg(0, &[body.clone(), documents.clone()])), Some(ping()));
    assert_eq!(seen(&msg(0, &[documents, body.clone()])), None);
    assert_eq!(seen(&query("admin.$cmd", &ping())), None);
    let cut = msg(0, &[body[..body.len() - 1].to_vec()]);
    assert_eq!(seen(&cut), None);
    assert_eq!(seen(&msg(0, &[vec![0, 0xFF, 0xFF, 0xFF, 0xFF, 0]])), None);
}

#[test]
fn who_waits_for_a_reply_is_seen_by_the_flags() {
    let body = section(0, ping().as_bytes());
    let waits = |bytes: &[u8]| has_reply(&header(bytes).unwrap(), bytes);
    assert!(waits(&msg(0, std::slice::from_ref(&body))));
    assert!(!waits(&msg(MsgFlags::MORE_TO_COME, &[body])));
    assert!(!waits(&query("admin.$cmd", &ping())));
    assert!(!has_reply(&header(&msg(0, &[])).unwrap(), &[0; 17]));
}

/// Random damage anywhere in messages of all kinds: an error or a message, never a panic.
#[test]
fn mutated_messages_do_no_harm() {
    let body = section(0, ping().as_bytes());
    let documents: Vec<_> = (0..5).map(|i| rawdoc! { "_id": i, "text": "abc" }).collect();
    let plain = msg(0, &[body.clone(), sequence("documents", &documents)]);
    let mut originals = vec![plain.clone(), msg(1, &[body]), query("admin.$cmd", &ping())];
    let mut codecs = Codecs::default();
    for compressor in [Compressor::Noop, Compressor::Snappy, Compressor::Zlib, Compressor::Zstd] {
        let mut out = Vec::new();
        codecs.compress(compressor, &plain, &mut out).unwrap();
        originals.push(out);
    }
    let seed = 0xC0FF_EE11_u64;
    println!("seed {seed:#x}");
    let mut state = seed;
    let mut next = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as usize
    };
    let mut scratch = Vec::new();
    let (mut accepted, mut refused) = (0, 0);
    for round in 0..100_000 {
        let mut bytes = originals[round % originals.len()].clone();
        for _ in 0..=next() % 3 {
            let at = 16 + next() % (bytes.len() - 16);
            bytes[at] = [0, 0xFF, bytes[at].wrapping_add(1), next() as u8][next() % 4];
        }
        if next() % 10 == 0 {
            bytes.truncate(16 + next() % (bytes.len() - 16));
            let length = bytes.len() as i32;
            bytes[..4].copy_from_slice(&length.to_le_bytes());
        }
        let outer = header(&bytes).unwrap();
        if let Some(body) = peek_body(&outer, &bytes) {
            let _ = body.get("autocommit");
            let _ = body.into_iter().next();
        }
        let result = match outer.op_code {
            OpCode::Compressed => codecs
                .decompress(&outer, &bytes, &mut scratch)
                .map_err(Rejection::from)
                .and_then(|(inner, _)| Message::parse(&inner, &scratch).map(|_| ())),
            _ => Message::parse(&outer, &bytes).map(|_| ()),
        };
        if result.is_ok() { accepted += 1 } else { refused += 1 }
    }
    assert!(accepted > 1000 && refused > 1000, "{accepted} {refused}");
}

/// One document with text that is not UTF-8 made the whole message one that nobody could answer by document.
#[test]
fn documents_with_invalid_text_are_masked_and_named() {
    let latin1 = |document: RawDocumentBuf| {
        let bytes = document
            .into_bytes()
            .into_iter()
            .map(|byte| if byte == b'#' { 0xE9 } else { byte });
        RawDocumentBuf::from_bytes(bytes.collect()).unwrap()
    };
    let documents = [
        rawdoc! { "_id": 1, "a": "x" },
        latin1(rawdoc! { "_id": 2, "a": { "b": "caf#" } }),
        rawdoc! { "_id": 3 },
        latin1(rawdoc! { "_id": 4, "n#": 1 }),
    ];
    let told = [
        (
            1,
            "invalid BSON, field 'a.b' of the document with _id 2: not valid UTF-8",
        ),
        (
            3,
            "invalid BSON, field 'n\u{FFFD}' of the document with _id 4: not valid UTF-8",
        ),
    ];
    let insert = rawdoc! { "insert": "x", "$db": "d" };
    let mut array = bson::RawArrayBuf::new();
    documents.iter().for_each(|document| array.push(document.clone()));
    let mut with_array = insert.clone();
    with_array.append(bson::raw::cstr!("documents"), array);
    for flags in [0, MsgFlags::CHECKSUM_PRESENT] {
        for sections in [
            vec![section(0, insert.as_bytes()), sequence("documents", &documents)],
            vec![section(0, with_array.as_bytes())],
        ] {
            let mut bytes = msg(flags, &sections);
            if flags != 0 {
                let length = bytes.len() as i32 + 4;
                bytes[..4].copy_from_slice(&length.to_le_bytes());
                let checksum = crc32c::crc32c(&bytes);
                bytes.extend_from_slice(&checksum.to_le_bytes());
            }
            let rejected = parse(&bytes).unwrap_err().error;
            assert!(rejected.is_of_content(), "{rejected}");
            let (masked, invalid) = crate::mask_invalid(&header(&bytes).unwrap(), &bytes).unwrap();
            let found: Vec<_> = invalid
                .iter()
                .map(|invalid| (invalid.index, invalid.to_string()))
                .collect();
            assert_eq!(found, told.map(|(index, text)| (index, text.to_owned())));
            assert!(invalid.iter().all(|invalid| &*invalid.field == "documents"));
            let Message::Msg(parsed) = parse(&masked).unwrap() else {
                panic!("another message");
            };
            // The others are what was sent.
            for document in [&documents[0], &documents[2]] {
                let is_in = |bytes: &[u8]| {
                    bytes
                        .windows(document.as_bytes().len())
                        .any(|at| at == document.as_bytes())
                };
                assert!(is_in(parsed.body.as_bytes()) || is_in(parsed.sequences.as_slice()[0].1));
            }
        }
    }
    // What is in the command itself is not a document's.
    let of_command = latin1(rawdoc! { "insert": "x#", "$db": "d" });
    let bytes = msg(
        0,
        &[section(0, of_command.as_bytes()), sequence("documents", &documents)],
    );
    let (masked, _) = crate::mask_invalid(&header(&bytes).unwrap(), &bytes).unwrap();
    assert!(parse(&masked).unwrap_err().error.is_of_content());
}
