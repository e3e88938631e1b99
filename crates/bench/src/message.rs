//! Requests, encoded straight into a buffer that is used again: an operation allocates nothing once the buffer has
//! grown.
//!
//! A request is an OP_MSG with a session id, as drivers send them. The caller opens and ends documents in the right
//! order; the encoder keeps the places of the lengths.
//!
//! Invariant: between [`Message::begin`] and [`Message::end_body`] every open document has its place in `open`.

use bson::RawDocument;
use wire::HEADER_BYTES;

/// Message length, request id, response id, operation code; flags; kind of the section.
const BODY_AT: usize = HEADER_BYTES + 4 + 1;

/// BSON types, as `bsonspec.org` numbers them.
mod kind {
    pub const DOUBLE: u8 = 1;
    pub const STRING: u8 = 2;
    pub const DOCUMENT: u8 = 3;
    pub const ARRAY: u8 = 4;
    pub const BINARY: u8 = 5;
    pub const OBJECT_ID: u8 = 7;
    pub const BOOLEAN: u8 = 8;
    pub const DATE: u8 = 9;
    pub const INT32: u8 = 16;
    pub const INT64: u8 = 18;
}

/// A request that is being made, or has been.
#[derive(Clone, Debug)]
pub struct Message {
    bytes: Vec<u8>,
    open: Vec<usize>,
    sequence: Option<usize>,
    session: [u8; 16],
    read_preference: Option<&'static str>,
}

impl Message {
    /// An empty one. `session` tells the client from others.
    pub fn new(session: u128) -> Self {
        Self {
            bytes: Vec::with_capacity(1024),
            open: Vec::with_capacity(8),
            sequence: None,
            session: session.to_le_bytes(),
            read_preference: None,
        }
    }

    /// Requests have this mode of `$readPreference` from here on.
    pub fn set_read_preference(&mut self, mode: Option<&'static str>) {
        self.read_preference = mode;
    }

    /// The session that all requests are of.
    pub fn session(&self) -> [u8; 16] {
        self.session
    }

    /// The bytes to send.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Starts a command: `begin("find", "people")` or, for commands on no collection, [`Message::begin_plain`].
    pub fn begin(&mut self, command: &str, collection: &str) {
        self.begin_empty();
        self.string(command, collection);
    }

    /// Starts a command whose value is 1.
    pub fn begin_plain(&mut self, command: &str) {
        self.begin_empty();
        self.int32(command, 1);
    }

    /// Starts a command whose value is a cursor's id.
    pub fn begin_get_more(&mut self, cursor: i64, collection: &str) {
        self.begin_empty();
        self.int64("getMore", cursor);
        self.string("collection", collection);
    }

    /// A command that is a document already, with session and database added.
    pub fn whole(&mut self, command: &RawDocument, database: &str) {
        self.begin_empty();
        let fields = &command.as_bytes()[4..command.as_bytes().len() - 1];
        self.bytes.extend_from_slice(fields);
        self.end_body(database);
    }

    fn begin_empty(&mut self) {
        self.bytes.clear();
        self.open.clear();
        self.sequence = None;
        // Request id 1, OP_MSG, no flags, kind 0. The length comes last.
        self.bytes.extend_from_slice(&[0; BODY_AT]);
        self.bytes[4] = 1;
        self.bytes[12..14].copy_from_slice(&2013u16.to_le_bytes());
        self.open_length();
    }

    /// Ends the command's document with session and database.
    pub fn end_body(&mut self, database: &str) {
        debug_assert_eq!(self.open.len(), 1, "documents of the command are still open");
        let session = self.session;
        self.document("lsid");
        self.name(kind::BINARY, "id");
        self.bytes.extend_from_slice(&16u32.to_le_bytes());
        self.bytes.push(4);
        self.bytes.extend_from_slice(&session);
        self.end();
        self.string("$db", database);
        if let Some(mode) = self.read_preference {
            self.document("$readPreference");
            self.string("mode", mode);
            self.end();
        }
        self.end();
        self.set_length();
    }

    /// Starts a sequence of documents behind the command's; more documents follow by [`Message::element`].
    pub fn begin_sequence(&mut self, identifier: &str) {
        self.bytes.push(1);
        self.sequence = Some(self.bytes.len());
        self.bytes.extend_from_slice(&[0; 4]);
        self.bytes.extend_from_slice(identifier.as_bytes());
        self.bytes.push(0);
    }

    /// Opens a document of a sequence; [`Message::end`] closes it.
    pub fn element(&mut self) {
        self.open_length();
    }

    /// Puts a finished document into a sequence.
    pub fn encoded_element(&mut self, document: &[u8]) {
        self.bytes.extend_from_slice(document);
    }

    /// Ends the sequence.
    pub fn end_sequence(&mut self) {
        if let Some(at) = self.sequence.take() {
            let size = (self.bytes.len() - at) as u32;
            self.bytes[at..at + 4].copy_from_slice(&size.to_le_bytes());
        }
        self.set_length();
    }

    fn set_length(&mut self) {
        let length = self.bytes.len() as u32;
        self.bytes[..4].copy_from_slice(&length.to_le_bytes());
    }

    fn open_length(&mut self) {
        self.open.push(self.bytes.len());
        self.bytes.extend_from_slice(&[0; 4]);
    }

    fn name(&mut self, kind: u8, name: &str) {
        self.bytes.push(kind);
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
    }

    /// Opens a document.
    pub fn document(&mut self, name: &str) {
        self.name(kind::DOCUMENT, name);
        self.open_length();
    }

    /// Opens an array; the functions that end in `_at` fill it.
    pub fn array(&mut self, name: &str) {
        self.name(kind::ARRAY, name);
        self.open_length();
    }

    /// Closes the document or array that was opened last. Returns its size in bytes.
    pub fn end(&mut self) -> usize {
        self.bytes.push(0);
        let at = self.open.pop().expect("only what was opened is closed");
        let size = self.bytes.len() - at;
        self.bytes[at..at + 4].copy_from_slice(&(size as u32).to_le_bytes());
        size
    }

    /// A string.
    pub fn string(&mut self, name: &str, value: &str) {
        self.text(name, value.as_bytes());
    }

    /// A string, by the bytes of ASCII text.
    pub fn text(&mut self, name: &str, value: &[u8]) {
        self.name(kind::STRING, name);
        self.bytes.extend_from_slice(&(value.len() as u32 + 1).to_le_bytes());
        self.bytes.extend_from_slice(value);
        self.bytes.push(0);
    }

    /// A 32-bit number.
    pub fn int32(&mut self, name: &str, value: i32) {
        self.name(kind::INT32, name);
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    /// A 64-bit number.
    pub fn int64(&mut self, name: &str, value: i64) {
        self.name(kind::INT64, name);
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    /// A double.
    pub fn double(&mut self, name: &str, value: f64) {
        self.name(kind::DOUBLE, name);
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    /// A date in milliseconds since 1970.
    pub fn date(&mut self, name: &str, value_ms: i64) {
        self.name(kind::DATE, name);
        self.bytes.extend_from_slice(&value_ms.to_le_bytes());
    }

    /// A boolean.
    pub fn boolean(&mut self, name: &str, value: bool) {
        self.name(kind::BOOLEAN, name);
        self.bytes.push(u8::from(value));
    }

    /// Bytes of the generic subtype, written by `fill` at the end of a buffer.
    pub fn binary(&mut self, name: &str, fill: impl FnOnce(&mut Vec<u8>)) {
        self.name(kind::BINARY, name);
        let at = self.bytes.len();
        self.bytes.extend_from_slice(&[0; 5]);
        fill(&mut self.bytes);
        let size = (self.bytes.len() - at - 5) as u32;
        self.bytes[at..at + 4].copy_from_slice(&size.to_le_bytes());
    }

    /// A 64-bit number of an array.
    pub fn int64_at(&mut self, index: u32, value: i64) {
        self.index(kind::INT64, index);
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    /// Opens a document of an array.
    pub fn document_at(&mut self, index: u32) {
        self.index(kind::DOCUMENT, index);
        self.open_length();
    }

    fn index(&mut self, kind: u8, index: u32) {
        self.bytes.push(kind);
        let mut divisor = 1_000_000_000;
        while divisor > 1 && divisor > index {
            divisor /= 10;
        }
        while divisor > 0 {
            self.bytes.push(b'0' + (index / divisor % 10) as u8);
            divisor /= 10;
        }
        self.bytes.push(0);
    }

    /// An ObjectId.
    pub fn object_id(&mut self, name: &str, id: [u8; 12]) {
        self.name(kind::OBJECT_ID, name);
        self.bytes.extend_from_slice(&id);
    }
}

/// The `_id` of a document by its number.
pub fn numbered_id(number: u64) -> [u8; 12] {
    let mut id = [0x65; 12];
    id[4..].copy_from_slice(&number.to_be_bytes());
    id
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use wire::{Header, Message as Parsed};

    /// A message's command and the documents beside it, as a server reads them.
    pub(crate) fn parts(message: &Message) -> (&RawDocument, Vec<&RawDocument>) {
        let bytes = message.bytes();
        let header = Header::parse(bytes.first_chunk().expect("a header")).expect("it is one");
        assert_eq!(header.length, bytes.len());
        let Ok(Parsed::Msg(parsed)) = Parsed::parse(&header, bytes) else {
            panic!("it is an OP_MSG")
        };
        let mut documents = Vec::new();
        for (_, sequence) in parsed.sequences.as_slice() {
            let mut rest = *sequence;
            while let Some(length) = rest.first_chunk() {
                let (one, behind) = rest.split_at(u32::from_le_bytes(*length) as usize);
                documents.push(RawDocument::from_bytes(one).expect("a document"));
                rest = behind;
            }
        }
        (parsed.body, documents)
    }

    #[test]
    fn a_server_reads_what_was_encoded() {
        let mut message = Message::new(7);
        for round in 0..2 {
            message.begin("update", "people");
            message.boolean("ordered", round == 0);
            message.end_body("test");
            message.begin_sequence("updates");
            for number in 0..3 {
                message.element();
                message.document("q");
                message.int64("_id", number);
                message.end();
                message.document("u");
                message.document("$set");
                message.binary("data", |bytes| bytes.extend_from_slice(b"abc"));
                message.double("d", 0.5);
                message.date("at", 5);
                message.object_id("o", numbered_id(3));
                message.array("a");
                for index in 0..101 {
                    message.int64_at(index, 1);
                }
                message.end();
                message.end();
                message.end();
                message.end();
            }
            message.end_sequence();
            let (body, documents) = parts(&message);
            assert_eq!(body.get_str("update").ok(), Some("people"));
            assert_eq!(body.get_str("$db").ok(), Some("test"));
            assert!(body.get_document("lsid").is_ok());
            assert_eq!(documents.len(), 3);
            let first = documents[0];
            assert_eq!(first.get_document("q").and_then(|q| q.get_i64("_id")).ok(), Some(0));
            let set = first
                .get_document("u")
                .and_then(|u| u.get_document("$set"))
                .expect("there");
            assert_eq!(set.get_binary("data").expect("there").bytes, b"abc");
            let names: Vec<String> = set
                .get_array("a")
                .map(|array| RawDocument::from_bytes(array.as_bytes()).expect("the same layout"))
                .expect("there")
                .into_iter()
                .map(|element| element.expect("it is sound").0.to_string())
                .collect();
            assert_eq!(names, (0..101).map(|index| index.to_string()).collect::<Vec<_>>());
        }
    }
}
