//! What flows between members, as bytes and documents: messages of consensus, and copies of all data.
//!
//! The commands are in `command/member_streams.rs`; who asks for a copy is in `server`.

use crate::error::{CommandError, Result};
use crate::reply::Reply;
use bson::raw::{RawDocument, RawDocumentBuf};
use bson::spec::BinarySubtype;
use bson::{Binary, Bson, Document, doc};
use engine::{TableId, TableKind, TableSpec};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;
use storage::{CloneHeader, CloneSource, ClusterTime, Seq};
use wire::ErrorCode;

/// No message is as long: what claims to be is no stream.
const STREAM_BYTES_MAX: usize = 256 << 20;
/// A copy that nobody asked for so long is given up.
const COPY_IDLE_MAX: Duration = Duration::from_secs(120);

/// The receiver's end of a stream of messages, each behind its length.
#[derive(Default)]
pub struct Assembly {
    bytes: Vec<u8>,
}

impl Assembly {
    /// Takes the next piece, and hands over the messages that are whole.
    pub fn take(&mut self, is_first: bool, piece: &[u8], put: &mut dyn FnMut(&[u8])) {
        if is_first || self.bytes.len() > STREAM_BYTES_MAX {
            self.bytes.clear();
        }
        self.bytes.extend_from_slice(piece);
        let mut at = 0;
        while let Some(length) = self.bytes.get(at..at + 4) {
            let length = u32::from_le_bytes([length[0], length[1], length[2], length[3]]) as usize;
            let Some(message) = self.bytes.get(at + 4..at + 4 + length) else {
                break;
            };
            put(message);
            at += 4 + length;
        }
        self.bytes.drain(..at);
    }
}

/// A copy that is being made of this member's data.
struct Copy {
    source: Arc<CloneSource>,
    /// Monotonic.
    used: Duration,
}

/// All of them.
#[derive(Default)]
pub struct Copies {
    open: Mutex<HashMap<i64, Copy>>,
    next: AtomicI64,
}

impl Copies {
    /// Gives up those that nobody asked for.
    pub fn expire(&self, now: Duration) {
        self.open
            .lock()
            .retain(|_, copy| now.saturating_sub(copy.used) < COPY_IDLE_MAX);
    }

    /// Keeps one until it is ended, and answers its number.
    pub fn open(&self, source: CloneSource, now: Duration) -> i64 {
        let id = self.next.fetch_add(1, Ordering::Relaxed) + 1;
        let copy = Copy {
            source: Arc::new(source),
            used: now,
        };
        self.open.lock().insert(id, copy);
        id
    }

    /// It is over.
    pub fn end(&self, id: i64) {
        self.open.lock().remove(&id);
    }

    /// The state that one is made of.
    ///
    /// # Errors
    /// `CursorNotFound` (43): there is no such copy, or no more.
    pub fn source(&self, id: i64, now: Duration) -> Result<Arc<CloneSource>> {
        let mut open = self.open.lock();
        let copy = open.get_mut(&id);
        let copy = copy.ok_or_else(|| CommandError::new(ErrorCode::CursorNotFound, "there is no such copy"))?;
        copy.used = now;
        Ok(copy.source.clone())
    }
}

/// Writes what [`read_copy_header`] reads.
pub fn write_header(reply: &mut Reply<'_>, header: &CloneHeader) {
    reply.int64("seq", header.seq.0 as i64);
    reply.int64("term", header.term as i64);
    reply.timestamp("time", header.time.to_timestamp());
    let tables = header.tables.iter().map(|(table, spec)| {
        let mut document = doc! { "id": i64::from(table.0), "name": &spec.name, "kind": kind_name(spec.kind) };
        if let Some(compressor) = &spec.compressor {
            document.insert("compressor", compressor);
        }
        Bson::Document(document)
    });
    reply.value("tables", &Bson::Array(tables.collect()));
    let counts = header.counts.iter().map(|(table, documents, bytes)| {
        Bson::Document(doc! { "id": i64::from(table.0), "documents": documents, "bytes": bytes })
    });
    reply.value("counts", &Bson::Array(counts.collect()));
}

const KINDS: [(TableKind, &str); 3] = [
    (TableKind::Records, "records"),
    (TableKind::Index, "index"),
    (TableKind::Small, "small"),
];

fn kind_name(kind: TableKind) -> &'static str {
    KINDS
        .iter()
        .find(|(of, _)| *of == kind)
        .map_or("records", |(_, name)| name)
}

/// What `_tenonCopyBegin` answers: the copy's number, and what it begins with.
///
/// # Errors
/// A sentence names the field that is missing or malformed.
pub fn read_copy_header(reply: &RawDocument) -> std::result::Result<(i64, CloneHeader), String> {
    let reply = Document::try_from(reply).map_err(|error| error.to_string())?;
    let malformed = |field: &str| format!("the copy's {field} is malformed");
    let number = |document: &Document, field: &str| {
        let number = document.get_i64(field).map_err(|_| malformed(field))?;
        u64::try_from(number).map_err(|_| malformed(field))
    };
    let table_id = |document: &Document| {
        let id = u32::try_from(number(document, "id")?).map_err(|_| malformed("id"))?;
        Ok::<_, String>(TableId(id))
    };
    let documents = |field: &'static str| {
        let array = reply.get_array(field).map_err(|_| malformed(field))?;
        let documents = array
            .iter()
            .map(move |value| value.as_document().ok_or_else(|| malformed(field)));
        documents.collect::<std::result::Result<Vec<_>, _>>()
    };
    let mut tables = Vec::new();
    for table in documents("tables")? {
        let kind = table.get_str("kind").map_err(|_| malformed("kind"))?;
        let kind = KINDS
            .iter()
            .find(|(_, name)| *name == kind)
            .ok_or_else(|| malformed("kind"))?
            .0;
        let spec = TableSpec {
            kind,
            name: table.get_str("name").map_err(|_| malformed("name"))?.to_owned(),
            compressor: table.get_str("compressor").ok().map(str::to_owned),
        };
        tables.push((table_id(table)?, spec));
    }
    let mut counts = Vec::new();
    for count in documents("counts")? {
        let of = |field: &str| count.get_i64(field).map_err(|_| malformed(field));
        counts.push((table_id(count)?, of("documents")?, of("bytes")?));
    }
    let time = reply.get_timestamp("time").map_err(|_| malformed("time"))?;
    let header = CloneHeader {
        seq: Seq(number(&reply, "seq")?),
        term: number(&reply, "term")?,
        time: ClusterTime::from(time),
        tables,
        counts,
    };
    Ok((reply.get_i64("copy").map_err(|_| malformed("copy"))?, header))
}

/// Keys and values.
type CopyRows = Vec<(Vec<u8>, Vec<u8>)>;

/// The rows in an answer of `_tenonCopyRows`.
///
/// # Errors
/// A sentence: they are cut off.
pub fn read_copy_rows(reply: &RawDocument) -> std::result::Result<CopyRows, String> {
    let malformed = || "the copy's rows are malformed".to_owned();
    let mut rest = reply.get_binary("rows").map_err(|_| malformed())?.bytes;
    let mut rows = Vec::new();
    while !rest.is_empty() {
        let head: &[u8; 8] = rest.first_chunk().ok_or_else(malformed)?;
        let length = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]) as usize;
        let (key, value) = (length(0), length(4));
        let row = rest.get(8..8 + key + value).ok_or_else(malformed)?;
        rows.push((row[..key].to_vec(), row[key..].to_vec()));
        rest = &rest[8 + key + value..];
    }
    Ok(rows)
}

/// The questions of a copy.
pub mod ask {
    use super::{BinarySubtype, RawDocumentBuf, doc, instance_binary};

    fn raw(document: &bson::Document) -> RawDocumentBuf {
        RawDocumentBuf::try_from(document).unwrap_or_default()
    }

    /// To begin one for a data directory.
    pub fn begin(set: &str, instance: [u8; 16]) -> RawDocumentBuf {
        raw(&doc! { "_tenonCopyBegin": 1, "set": set, "instance": instance_binary(instance), "$db": "admin" })
    }

    /// For the rows of a table behind a key.
    pub fn rows(copy: i64, table: u32, after: Option<&[u8]>) -> RawDocumentBuf {
        let mut question = doc! { "_tenonCopyRows": copy, "table": i64::from(table), "$db": "admin" };
        if let Some(after) = after {
            let key = bson::Binary {
                subtype: BinarySubtype::Generic,
                bytes: after.to_vec(),
            };
            question.insert("after", key);
        }
        raw(&question)
    }

    /// It is over.
    pub fn end(copy: i64) -> RawDocumentBuf {
        raw(&doc! { "_tenonCopyEnd": copy, "$db": "admin" })
    }
}

/// A data directory's number in a document.
pub fn instance_binary(instance: [u8; 16]) -> Binary {
    Binary {
        subtype: BinarySubtype::Generic,
        bytes: instance.to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_may_be_cut_anywhere() {
        let messages: Vec<Vec<u8>> = vec![vec![], vec![1], vec![2; 300], vec![], vec![3; 5]];
        let mut stream = Vec::new();
        for message in &messages {
            stream.extend_from_slice(&(message.len() as u32).to_le_bytes());
            stream.extend_from_slice(message);
        }
        for cut in 0..=stream.len() {
            let mut assembly = Assembly::default();
            let mut found = Vec::new();
            assembly.take(true, b"what another connection left", &mut |_| {});
            let mut put = |message: &[u8]| found.push(message.to_vec());
            assembly.take(true, &stream[..cut], &mut put);
            assembly.take(false, &stream[cut..], &mut put);
            assert_eq!(found, messages, "cut at {cut}");
        }
    }

    #[test]
    fn a_copys_header_is_read_back() {
        let header = CloneHeader {
            seq: Seq(77),
            term: 3,
            time: ClusterTime(5 << 32 | 6),
            tables: vec![(
                TableId(9),
                TableSpec {
                    kind: TableKind::Index,
                    name: "a.b".to_owned(),
                    compressor: Some("zstd".to_owned()),
                },
            )],
            counts: vec![(TableId(9), 4, -5)],
        };
        let mut bytes = Vec::new();
        let mut reply = Reply::begin(&mut bytes);
        write_header(&mut reply, &header);
        reply.int64("copy", 8);
        reply.finish();
        let reply = RawDocument::from_bytes(&bytes).expect("a document");
        assert_eq!(read_copy_header(reply), Ok((8, header)));
        assert!(read_copy_header(&RawDocumentBuf::new()).is_err());
    }

    #[test]
    fn rows_that_are_cut_off_are_refused() {
        let rows = |bytes: &[u8]| {
            let binary = bson::Binary {
                subtype: bson::spec::BinarySubtype::Generic,
                bytes: bytes.to_vec(),
            };
            read_copy_rows(&bson::rawdoc! { "rows": binary })
        };
        let whole = [1, 0, 0, 0, 2, 0, 0, 0, b'k', b'v', b'v'];
        assert_eq!(rows(&whole), Ok(vec![(b"k".to_vec(), b"vv".to_vec())]));
        for cut in 1..whole.len() {
            assert!(rows(&whole[..cut]).is_err(), "cut at {cut}");
        }
        assert_eq!(rows(&[]), Ok(vec![]));
    }
}
