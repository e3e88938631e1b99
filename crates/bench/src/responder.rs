//! A server that stores nothing: it answers every request of the generator at once.
//!
//! For tests of the generator, and to see what sockets alone cost on a machine: the floor below every server's figures
//! (`examples/null_server.rs`). One thread per connection, no care for anything but well-formed requests.

use anyhow::{Context, Result, bail};
use bson::raw::{RawArrayBuf, RawDocument, RawDocumentBuf};
use bson::rawdoc;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use wire::{Form, HEADER_BYTES, Header, Message, MsgFlags};

/// Room for a small request on each thread; documents lie on the heap.
const STACK_BYTES: usize = 256 * 1024;

/// Makes the reply to a command with its document sequences.
pub type Answer = dyn Fn(&RawDocument, &[(&str, &[u8])]) -> RawDocumentBuf + Send + Sync;

/// Accepts connections for ever, each on a thread of its own. Returns when accepting fails.
pub fn serve(listener: &TcpListener, answer: &Arc<Answer>) -> Result<()> {
    loop {
        let (stream, _) = listener.accept().context("accepting a connection")?;
        stream.set_nodelay(true).context("switching Nagle's algorithm off")?;
        let answer = Arc::clone(answer);
        // A connection that ends, or sends nonsense, ends its thread and nothing else.
        let serve = move || drop(serve_connection(stream, &*answer));
        thread::Builder::new()
            .stack_size(STACK_BYTES)
            .spawn(serve)
            .context("starting a thread")?;
    }
}

fn serve_connection(mut stream: TcpStream, answer: &Answer) -> Result<()> {
    let (mut message, mut out) = (vec![0; 16 * 1024], Vec::new());
    let mut filled = 0;
    loop {
        while filled < HEADER_BYTES {
            filled += receive(&mut stream, &mut message[filled..])?;
        }
        let header = Header::parse(message.first_chunk().context("it was received")?)?;
        if message.len() < header.length {
            message.resize(header.length, 0);
        }
        while filled < header.length {
            filled += receive(&mut stream, &mut message[filled..header.length])?;
        }
        out.clear();
        wire::begin(Form::Msg { checksum: false }, &mut out);
        match Message::parse(&header, &message[..header.length]) {
            Ok(Message::Msg(request)) => {
                out.extend_from_slice(answer(request.body, request.sequences.as_slice()).as_bytes());
            }
            other => bail!("only OP_MSG is answered, not {other:?}"),
        }
        wire::finish(
            Form::Msg { checksum: false },
            &mut out,
            0,
            1,
            header.request_id,
            MsgFlags(0),
        )?;
        stream.write_all(&out).context("sending a reply")?;
        message.copy_within(header.length..filled, 0);
        filled -= header.length;
    }
}

fn receive(stream: &mut TcpStream, buffer: &mut [u8]) -> Result<usize> {
    match stream.read(buffer).context("receiving a request")? {
        0 => bail!("the connection has ended"),
        received => Ok(received),
    }
}

/// What a server would say to the generator's commands if it had all documents ever asked for.
pub fn affirm(body: &RawDocument, sequences: &[(&str, &[u8])]) -> RawDocumentBuf {
    let name = body
        .iter_elements()
        .next()
        .and_then(Result::ok)
        .map_or("", |element| element.key().as_str());
    match name {
        "find" => {
            let mut batch = RawArrayBuf::new();
            batch.push(rawdoc! { "text": "x".repeat(1000) });
            rawdoc! { "cursor": { "firstBatch": batch, "id": 0_i64, "ns": "none.none" }, "ok": 1.0 }
        }
        "update" => rawdoc! { "n": 1, "nModified": 1, "ok": 1.0 },
        "insert" => {
            let documents = sequences
                .first()
                .map_or(0, |(_, bytes)| bytes.len() / crate::messages::DOCUMENT_BYTES);
            rawdoc! { "n": documents as i32, "ok": 1.0 }
        }
        _ => rawdoc! { "ok": 1.0 },
    }
}
