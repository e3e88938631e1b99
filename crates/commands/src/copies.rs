//! Copies of all data that members make of each other: what is open here, and the questions and answers as documents.
//!
//! A copy is the state at one position of the log: table by table, as rows, or, where both have the same engine and
//! layout, as the files of a checkpoint and of the log behind it. The commands are in `command/member_copies.rs`; who
//! asks for a copy is in `server`.

use crate::error::{CommandError, Result};
use crate::reply::Reply;
use bson::raw::{RawDocument, RawDocumentBuf};
use bson::spec::BinarySubtype;
use bson::{Binary, Bson, Document, doc};
use engine::{TableId, TableKind, TableSpec};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use storage::{CloneHeader, CloneSource, ClusterTime, Seq, StorageBackup};
use wire::ErrorCode;

/// A copy that nobody asked for so long is given up. Who makes it may have to start anew meanwhile.
const COPY_IDLE_MAX: Duration = Duration::from_secs(300);

/// How an engine's files lie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileLayout {
    /// The engine's own name.
    pub engine: String,
    /// A directory for each database.
    pub directory_per_db: bool,
}

/// One of the files of a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopiedFile {
    /// Of the engine's directory, or of the log's.
    pub name: PathBuf,
    /// It is the log's.
    pub is_log: bool,
    /// So much of it is copied.
    pub bytes: u64,
}

/// The files of a checkpoint, and of the log behind it, which stay as they are while this exists.
pub struct FilesSource {
    /// The checkpoint's position, and the term of the entry there.
    pub seq: Seq,
    /// See `seq`.
    pub term: u64,
    /// Where each lies, too.
    pub files: Vec<(PathBuf, CopiedFile)>,
    /// Locked by nobody: it is here to be dropped.
    _backup: Mutex<StorageBackup>,
}

impl FilesSource {
    /// Of a backup, with the engine's directory.
    ///
    /// # Errors
    /// A file of the log has no name.
    pub fn new(backup: StorageBackup, term: u64, engine: &Path) -> Result<Self> {
        let mut files = Vec::new();
        for (name, bytes) in backup.engine_files() {
            let is_log = false;
            files.push((engine.join(&name), CopiedFile { name, is_log, bytes }));
        }
        for (path, bytes) in backup.log_files() {
            let name = path.file_name().map(PathBuf::from);
            let name = name.ok_or_else(|| CommandError::new(ErrorCode::InternalError, "a log file without a name"))?;
            let is_log = true;
            files.push((path, CopiedFile { name, is_log, bytes }));
        }
        Ok(Self {
            seq: backup.seq(),
            term,
            files,
            _backup: Mutex::new(backup),
        })
    }
}

/// What a copy is made of.
#[derive(Clone)]
pub enum CopySource {
    /// A state, table by table.
    Rows(Arc<CloneSource>),
    /// Files.
    Files(Arc<FilesSource>),
}

/// A copy that is being made of this member's data.
struct Copy {
    source: CopySource,
    /// Who makes it.
    instance: [u8; 16],
    /// Monotonic.
    used: Duration,
}

/// All of them, by numbers that no other process gives.
#[derive(Default)]
pub struct Copies {
    open: Mutex<HashMap<i64, Copy>>,
}

impl Copies {
    /// Gives up those that nobody asked for.
    pub fn expire(&self, now: Duration) {
        self.open
            .lock()
            .retain(|_, copy| now.saturating_sub(copy.used) < COPY_IDLE_MAX);
    }

    /// Keeps one, under a random number, until it is ended.
    pub fn open(&self, id: i64, source: CopySource, instance: [u8; 16], now: Duration) {
        let copy = Copy {
            source,
            instance,
            used: now,
        };
        self.open.lock().insert(id, copy);
    }

    /// It is over.
    pub fn end(&self, id: i64) {
        self.open.lock().remove(&id);
    }

    /// Whatever this instance has begun is over.
    pub fn end_all_of(&self, instance: [u8; 16]) {
        self.open.lock().retain(|_, copy| copy.instance != instance);
    }

    /// What one is made of.
    ///
    /// # Errors
    /// `CursorNotFound` (43): there is no such copy, or no more.
    pub fn source(&self, id: i64, now: Duration) -> Result<CopySource> {
        self.find(id, now, |_| true)
    }

    /// As [`Copies::source`], of one that this instance has begun.
    ///
    /// # Errors
    /// As there.
    pub fn source_of(&self, id: i64, instance: [u8; 16], now: Duration) -> Result<CopySource> {
        self.find(id, now, |copy| copy.instance == instance)
    }

    fn find(&self, id: i64, now: Duration, is_meant: impl FnOnce(&Copy) -> bool) -> Result<CopySource> {
        let mut open = self.open.lock();
        let copy = open.get_mut(&id).filter(|copy| is_meant(copy));
        let copy = copy.ok_or_else(|| CommandError::new(ErrorCode::CursorNotFound, "there is no such copy"))?;
        copy.used = now;
        Ok(copy.source.clone())
    }
}

/// What a copy begins with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyBegin {
    /// Its number.
    pub copy: i64,
    /// How it goes on.
    pub content: CopyContent,
}

/// See [`CopySource`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CopyContent {
    /// Rows are asked for.
    Rows(CloneHeader),
    /// Files are.
    Files {
        /// The position of the checkpoint.
        seq: Seq,
        /// The term of the entry there.
        term: u64,
        /// In the order in which they are copied.
        files: Vec<CopiedFile>,
    },
}

/// Writes what [`read_copy_begin`] reads.
pub fn write_begin(reply: &mut Reply<'_>, id: i64, source: &CopySource) {
    reply.int64("copy", id);
    match source {
        CopySource::Rows(source) => write_header(reply, source.header()),
        CopySource::Files(source) => {
            reply.int64("seq", source.seq.0 as i64);
            reply.int64("term", source.term as i64);
            write_files(reply, source.files.iter().map(|(_, file)| file));
        }
    }
}

fn write_files<'f>(reply: &mut Reply<'_>, files: impl Iterator<Item = &'f CopiedFile>) {
    let files = files.map(|file| {
        let name = file.name.to_string_lossy().into_owned();
        Bson::Document(doc! { "name": name, "log": file.is_log, "bytes": file.bytes as i64 })
    });
    reply.value("files", &Bson::Array(files.collect()));
}

fn write_header(reply: &mut Reply<'_>, header: &CloneHeader) {
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

const KINDS: [(TableKind, &str); 4] = [
    (TableKind::Records, "records"),
    (TableKind::Index, "index"),
    (TableKind::Small, "small"),
    (TableKind::Clustered, "clustered"),
];

fn kind_name(kind: TableKind) -> &'static str {
    KINDS
        .iter()
        .find(|(of, _)| *of == kind)
        .map_or("records", |(_, name)| name)
}

fn malformed(field: &str) -> String {
    format!("the copy's {field} is malformed")
}

fn number(document: &Document, field: &str) -> std::result::Result<u64, String> {
    let number = document.get_i64(field).map_err(|_| malformed(field))?;
    u64::try_from(number).map_err(|_| malformed(field))
}

/// What `_tenonCopyBegin` answers.
///
/// # Errors
/// A sentence names the field that is missing or malformed.
pub fn read_copy_begin(reply: &RawDocument) -> std::result::Result<CopyBegin, String> {
    let reply = Document::try_from(reply).map_err(|error| error.to_string())?;
    let content = match reply.contains_key("files") {
        true => CopyContent::Files {
            seq: Seq(number(&reply, "seq")?),
            term: number(&reply, "term")?,
            files: read_files(&reply)?,
        },
        false => CopyContent::Rows(read_header(&reply)?),
    };
    let copy = reply.get_i64("copy").map_err(|_| malformed("copy"))?;
    Ok(CopyBegin { copy, content })
}

fn read_files(reply: &Document) -> std::result::Result<Vec<CopiedFile>, String> {
    let files = reply.get_array("files").map_err(|_| malformed("files"))?;
    let files = files.iter().map(|file| {
        let file = file.as_document().ok_or_else(|| malformed("files"))?;
        let name = PathBuf::from(file.get_str("name").map_err(|_| malformed("name"))?);
        // It must not lead out of the directory.
        let is_inside = name.components().all(|part| matches!(part, Component::Normal(_)));
        if !is_inside || name.as_os_str().is_empty() {
            return Err(malformed("name"));
        }
        Ok(CopiedFile {
            name,
            is_log: file.get_bool("log").map_err(|_| malformed("log"))?,
            bytes: number(file, "bytes")?,
        })
    });
    files.collect()
}

fn read_header(reply: &Document) -> std::result::Result<CloneHeader, String> {
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
        seq: Seq(number(reply, "seq")?),
        term: number(reply, "term")?,
        time: ClusterTime::from(time),
        tables,
        counts,
    };
    Ok(header)
}

/// Keys and values.
pub type CopyRows = Vec<(Vec<u8>, Vec<u8>)>;

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

/// The bytes in an answer of `_tenonCopyFile`.
///
/// # Errors
/// A sentence: there are none.
pub fn read_copy_piece(reply: &RawDocument) -> std::result::Result<Vec<u8>, String> {
    let bytes = reply.get_binary("bytes").map_err(|_| malformed("bytes"))?.bytes;
    Ok(bytes.to_vec())
}

/// The questions of a copy.
pub mod ask {
    use super::{BinarySubtype, FileLayout, RawDocumentBuf, doc, instance_binary};

    fn raw(document: &bson::Document) -> RawDocumentBuf {
        RawDocumentBuf::try_from(document).unwrap_or_default()
    }

    /// To begin one for a data directory, by files if there are some of this layout.
    pub fn begin(set: &str, instance: [u8; 16], layout: Option<&FileLayout>) -> RawDocumentBuf {
        let mut question = doc! { "_tenonCopyBegin": 1, "set": set, "instance": instance_binary(instance) };
        if let Some(FileLayout {
            engine,
            directory_per_db,
        }) = layout
        {
            question.insert("files", doc! { "engine": engine, "directoryPerDB": directory_per_db });
        }
        question.insert("$db", "admin");
        raw(&question)
    }

    /// To go on with one that was begun for it.
    pub fn begin_again(set: &str, instance: [u8; 16], copy: i64) -> RawDocumentBuf {
        raw(&doc! {
            "_tenonCopyBegin": 1, "set": set, "instance": instance_binary(instance), "again": copy, "$db": "admin"
        })
    }

    /// For a piece of a file, by its place in the list.
    pub fn piece(copy: i64, file: usize, offset: u64) -> RawDocumentBuf {
        raw(&doc! { "_tenonCopyFile": copy, "file": file as i64, "offset": offset as i64, "$db": "admin" })
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
        assert_eq!(
            read_copy_begin(reply),
            Ok(CopyBegin {
                copy: 8,
                content: CopyContent::Rows(header)
            })
        );
        assert!(read_copy_begin(&RawDocumentBuf::new()).is_err());
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

    #[test]
    fn names_of_files_stay_inside() {
        let begin = |name: &str| {
            let files = vec![CopiedFile {
                name: PathBuf::from(name),
                is_log: true,
                bytes: 7,
            }];
            let mut bytes = Vec::new();
            let mut reply = Reply::begin(&mut bytes);
            reply.int64("copy", 8);
            reply.int64("seq", 5);
            reply.int64("term", 2);
            write_files(&mut reply, files.iter());
            reply.finish();
            let read = read_copy_begin(RawDocument::from_bytes(&bytes).expect("a document"));
            (
                read,
                CopyBegin {
                    copy: 8,
                    content: CopyContent::Files {
                        seq: Seq(5),
                        term: 2,
                        files,
                    },
                },
            )
        };
        for name in ["a", "a/b", "..a"] {
            let (read, expected) = begin(name);
            assert_eq!(read, Ok(expected));
        }
        for name in ["", "/a", "../a", "a/../b", "./a"] {
            assert!(begin(name).0.is_err(), "{name:?}");
        }
    }
}
