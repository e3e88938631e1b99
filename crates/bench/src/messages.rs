//! Requests, encoded once and patched in place: an operation costs the generator a few stores and two system calls.
//!
//! Every request is an OP_MSG with a session id, as drivers send them. `_id`s are ObjectIds made of a number, so that any
//! document that was loaded can be asked for.
//!
//! Invariant of [`Request`]: `patches` are offsets inside `bytes`, and patching never changes a length.

use bson::oid::ObjectId;
use bson::raw::{CString, RawDocument, RawDocumentBuf, cstr};
use bson::spec::BinarySubtype;
use bson::{Binary, rawdoc};
use wire::{HEADER_BYTES, Header, OpCode};

/// The database everything happens in.
pub const DATABASE: &str = "tenon_bench";
/// The collection that is loaded first, read and updated.
pub const DOCUMENTS: &str = "documents";
/// The collection that measured inserts go into, dropped after each of them.
pub const INSERTS: &str = "inserts";
/// Documents in a batch.
pub const BATCH: usize = 1000;
/// Bytes of a document, all told.
pub const DOCUMENT_BYTES: usize = 1100;

/// Different texts; enough that a compressor's window does not see one twice.
const TEXTS: usize = 256;
const TEXT_FIELDS: usize = 10;

/// Marks in a template, found and patched away again.
const ID_MARK: [u8; 12] = *b"\xF0id mark\xF1\xF2\xF3\xF4";
const VALUE_MARK: i64 = 0x7EAD_BEEF_1234_5678;

/// The `_id` of a document by its number.
pub fn id_of(number: u64) -> [u8; 12] {
    let mut id = [0x65; 12];
    id[4..].copy_from_slice(&number.to_be_bytes());
    id
}

/// An encoded request and where its changing parts are.
#[derive(Clone, Debug)]
pub struct Request {
    bytes: Vec<u8>,
    ids: Vec<usize>,
    values: Vec<usize>,
}

impl Request {
    /// The bytes to send.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Number of `_id`s in it.
    pub fn id_count(&self) -> usize {
        self.ids.len()
    }

    /// Sets the n-th `_id`.
    pub fn set_id(&mut self, index: usize, number: u64) {
        let at = self.ids[index];
        self.bytes[at..at + 12].copy_from_slice(&id_of(number));
    }

    /// Sets every value that an update writes.
    pub fn set_value(&mut self, value: i64) {
        for at in &self.values {
            self.bytes[*at..*at + 8].copy_from_slice(&value.to_le_bytes());
        }
    }

    /// An OP_MSG of a body and, maybe, a document sequence.
    fn new(body: &RawDocument, sequence: Option<(&str, &[u8])>) -> Self {
        let mut bytes = vec![0; HEADER_BYTES];
        bytes.extend_from_slice(&[0, 0, 0, 0, 0]);
        bytes.extend_from_slice(body.as_bytes());
        if let Some((identifier, documents)) = sequence {
            let size = 4 + identifier.len() + 1 + documents.len();
            bytes.push(1);
            bytes.extend_from_slice(&(size as u32).to_le_bytes());
            bytes.extend_from_slice(identifier.as_bytes());
            bytes.push(0);
            bytes.extend_from_slice(documents);
        }
        let header = Header {
            length: bytes.len(),
            request_id: 1,
            response_to: 0,
            op_code: OpCode::Msg,
        };
        bytes[..HEADER_BYTES].copy_from_slice(&header.to_bytes());
        let ids = places(&bytes, &ID_MARK);
        let values = places(&bytes, &VALUE_MARK.to_le_bytes());
        Self { bytes, ids, values }
    }
}

fn places(bytes: &[u8], mark: &[u8]) -> Vec<usize> {
    let mut places = Vec::new();
    let mut at = 0;
    while at + mark.len() <= bytes.len() {
        if bytes[at] == mark[0] && &bytes[at..at + mark.len()] == mark {
            places.push(at);
            at += mark.len();
        } else {
            at += 1;
        }
    }
    places
}

/// Makes the requests of one connection.
#[derive(Clone, Debug)]
pub struct Templates {
    session: RawDocumentBuf,
    seed: u64,
}

impl Templates {
    /// `seed` tells the connection from others: its session id and texts come from it.
    pub fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let mut bytes = Vec::with_capacity(16);
        bytes.extend_from_slice(&random.next().to_le_bytes());
        bytes.extend_from_slice(&random.next().to_le_bytes());
        let id = Binary {
            subtype: BinarySubtype::Uuid,
            bytes,
        };
        Self {
            session: rawdoc! { "id": id },
            seed,
        }
    }

    /// A command with the session and the database added.
    pub fn command(&self, mut body: RawDocumentBuf, database: &str) -> Request {
        body.append(cstr!("lsid"), &self.session);
        body.append(cstr!("$db"), database);
        Request::new(&body, None)
    }

    fn command_with(&self, mut body: RawDocumentBuf, identifier: &str, documents: &[u8]) -> Request {
        body.append(cstr!("lsid"), &self.session);
        body.append(cstr!("$db"), DATABASE);
        Request::new(&body, Some((identifier, documents)))
    }

    /// `find` by `_id`.
    pub fn point_read(&self) -> Request {
        let filter = rawdoc! { "_id": mark() };
        let body = rawdoc! { "find": DOCUMENTS, "filter": filter, "limit": 1, "singleBatch": true };
        self.command(body, DATABASE)
    }

    /// `update` by `_id`: `$set` of one int64.
    pub fn update(&self) -> Request {
        let one = rawdoc! { "q": { "_id": mark() }, "u": { "$set": { "k": VALUE_MARK } } };
        self.command_with(
            rawdoc! { "update": DOCUMENTS, "ordered": true },
            "updates",
            one.as_bytes(),
        )
    }

    /// `insert` of one document; several requests that differ in their texts.
    pub fn inserts(&self) -> Vec<Request> {
        let body = rawdoc! { "insert": INSERTS, "ordered": true };
        let one = |document: &RawDocumentBuf| self.command_with(body.clone(), "documents", document.as_bytes());
        documents(self.seed).iter().map(one).collect()
    }

    /// `insert` of [`BATCH`] documents.
    pub fn batch_insert(&self, collection: &str) -> Request {
        let texts = documents(self.seed);
        let mut sequence = Vec::with_capacity(BATCH * DOCUMENT_BYTES);
        for document in texts.iter().cycle().take(BATCH) {
            sequence.extend_from_slice(document.as_bytes());
        }
        self.command_with(
            rawdoc! { "insert": collection, "ordered": true },
            "documents",
            &sequence,
        )
    }
}

fn mark() -> ObjectId {
    ObjectId::from_bytes(ID_MARK)
}

/// Documents of [`DOCUMENT_BYTES`], an `_id` to be patched in each.
fn documents(seed: u64) -> Vec<RawDocumentBuf> {
    let mut random = Random::new(seed ^ 0x7465_7874);
    let names: Vec<CString> = (0..TEXT_FIELDS)
        .map(|i| CString::try_from(format!("field{i}")).expect("it has no NUL"))
        .collect();
    let one = |_| {
        let mut document = rawdoc! { "_id": mark(), "k": 0_i64 };
        for (index, name) in names.iter().enumerate() {
            // Type, name, length, text, NUL; shared out over the fields left.
            let fields = TEXT_FIELDS - index;
            let frame = 1 + name.as_str().len() + 1 + 4 + 1;
            let length = (DOCUMENT_BYTES - document.as_bytes().len()) / fields - frame;
            document.append(name, random.text(length).as_str());
        }
        document
    };
    (0..TEXTS).map(one).collect()
}

/// SplitMix64 (Steele, Lea, Flood, OOPSLA 2014).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The stream of a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// 64 random bits.
    #[allow(clippy::should_implement_trait, reason = "it never ends, so it is no iterator")]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Uniform below `bound` (its bias, below 2^-32 for the bounds here, does not matter).
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }

    fn text(&mut self, length: usize) -> String {
        (0..length).map(|_| char::from(b' ' + self.below(95) as u8)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::Message;

    fn parse(request: &Request, check: impl FnOnce(&RawDocument, &[(&str, &[u8])])) {
        let header = Header::parse(request.bytes().first_chunk().expect("it has a header")).expect("it is one");
        assert_eq!(header.length, request.bytes().len());
        match Message::parse(&header, request.bytes()) {
            Ok(Message::Msg(message)) => check(message.body, message.sequences.as_slice()),
            other => panic!("not an OP_MSG: {other:?}"),
        }
    }

    #[test]
    fn reads_carry_the_id_that_was_set() {
        let mut request = Templates::new(1).point_read();
        request.set_id(0, 77);
        parse(&request, |body, sequences| {
            assert_eq!(body.get_str("find").ok(), Some(DOCUMENTS));
            let filter = body.get_document("filter").expect("it has one");
            assert_eq!(filter.get_object_id("_id").expect("it has one").bytes(), id_of(77));
            assert_eq!(body.get_str("$db").ok(), Some(DATABASE));
            assert!(body.get_document("lsid").is_ok() && sequences.is_empty());
        });
    }

    #[test]
    fn updates_carry_id_and_value() {
        let mut request = Templates::new(1).update();
        request.set_id(0, 78);
        request.set_value(-5);
        parse(&request, |body, sequences| {
            assert_eq!(body.get_str("update").ok(), Some(DOCUMENTS));
            let [("updates", bytes)] = sequences else {
                panic!("one sequence: {sequences:?}")
            };
            let one = RawDocument::from_bytes(bytes).expect("one document");
            let query = one.get_document("q").expect("it has a query");
            assert_eq!(query.get_object_id("_id").expect("it has one").bytes(), id_of(78));
            let set = one
                .get_document("u")
                .and_then(|u| u.get_document("$set"))
                .expect("it sets");
            assert_eq!(set.get_i64("k").ok(), Some(-5));
        });
    }

    #[test]
    fn inserts_carry_documents_of_the_size_promised() {
        let mut request = Templates::new(2).inserts().swap_remove(3);
        request.set_id(0, 79);
        parse(&request, |_, sequences| {
            let document = RawDocument::from_bytes(sequences[0].1).expect("one document");
            assert_eq!(document.as_bytes().len(), DOCUMENT_BYTES);
            assert_eq!(document.get_object_id("_id").expect("it has one").bytes(), id_of(79));
        });
        let mut batch = Templates::new(2).batch_insert("x");
        assert_eq!(batch.id_count(), BATCH);
        (0..BATCH).for_each(|index| batch.set_id(index, index as u64));
        parse(&batch, |_, sequences| {
            assert_eq!(sequences[0].1.len(), BATCH * DOCUMENT_BYTES);
            let last = &sequences[0].1[(BATCH - 1) * DOCUMENT_BYTES..];
            let last = RawDocument::from_bytes(last).expect("a document");
            assert_eq!(
                last.get_object_id("_id").expect("it has one").bytes(),
                id_of(BATCH as u64 - 1)
            );
        });
    }

    #[test]
    fn texts_differ() {
        let all = documents(3);
        assert_eq!(all.len(), TEXTS);
        assert_ne!(all[0].as_bytes(), all[1].as_bytes());
        assert_ne!(all[0].as_bytes(), documents(4)[0].as_bytes());
    }
}
