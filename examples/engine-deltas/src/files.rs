//! Checkpoints on disk: files of changes, each of which says on which one it builds.
//!
//! | file `SEQ-CHANGES.delta` | bytes |
//! |---|---|
//! | magic `DELTAS01` | 8 |
//! | position; number of changes; both of the file before (number 0: this one has everything) | 4 x 8 |
//! | length of the entries | 8 |
//! | CRC-32C of the above, of the entries | 4 + 4 |
//! | entries | |
//!
//! A file is written under another name, synced and renamed, and the directory is synced: it is there whole or not at
//! all. Files that the newest one with everything has made needless are removed after that; if a crash comes first, the
//! next opening removes them. So the files that count form one chain; a link that is missing, and any byte that is not
//! as it was written, is `Corrupt`.

use crate::cursor::View;
use crate::table::{Row, Table};
use bytes::Bytes;
use engine::{EngineError, Result, Seq, TableId, TableKind, TableSpec};
use std::collections::{BTreeSet, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use vfs::{Access, FileSystem};

const MAGIC: &[u8; 8] = b"DELTAS01";
const HEADER_BYTES: usize = 56;
const NEW_FILE: &str = "new";
const CREATE: u8 = 1;
const DROP: u8 = 2;
const PUT: u8 = 3;
const DELETE: u8 = 4;
/// Changes are written for themselves until they are so many times the file with everything.
const CHANGES_SHARE_MAX: u64 = 1;
const CHANGES_BYTES_MIN: u64 = 64 << 10;

/// Why a checkpoint was not written.
pub(crate) enum Failure {
    /// The checkpoint before is what counts, as if nothing had been tried.
    Harmless(EngineError),
    /// What is on the disk is not known any more.
    Fatal(EngineError),
}

struct Written {
    path: PathBuf,
    bytes: u64,
}

/// The chain of files, the one with everything first.
pub(crate) struct Files {
    fs: Arc<dyn FileSystem>,
    directory: PathBuf,
    chain: Vec<Written>,
    /// What the last file stands at.
    pub(crate) view: Arc<View>,
}

fn io(operation: &'static str, path: &Path, source: std::io::Error) -> EngineError {
    let path = path.to_owned();
    EngineError::Io {
        operation,
        path,
        source,
    }
}

impl Files {
    /// Reads the chain, and removes what does not belong to it.
    pub(crate) fn open(fs: Arc<dyn FileSystem>, directory: &Path) -> Result<Self> {
        let names = fs.list(directory).map_err(|error| io("list", directory, error))?;
        let (mut found, mut needless) = (Vec::new(), Vec::new());
        for name in names {
            match name.to_str() {
                Some(text) if text.ends_with(".delta") => found.push(directory.join(name)),
                Some(NEW_FILE) => needless.push(directory.join(name)),
                _ => {}
            }
        }
        // Names sort as their positions do. What stands before the last file with everything is needless.
        found.sort();
        let mut files = Self {
            fs,
            directory: directory.to_owned(),
            chain: Vec::new(),
            view: Arc::default(),
        };
        let contents = found.iter().map(|path| files.read(path)).collect::<Result<Vec<_>>>()?;
        let first = contents.iter().rposition(|content| content.base == (0, 0)).unwrap_or(0);
        let mut view = View::default();
        for (n, (path, content)) in found.into_iter().zip(contents).enumerate() {
            if n < first {
                needless.push(path);
                continue;
            }
            if content.base != (view.seq.0, view.changes) {
                return Err(corrupt(&path, 24, "it does not build on the file before it"));
            }
            view.seq = content.seq;
            view.changes = content.changes;
            replay(&mut view, &content.entries, &path)?;
            let bytes = (HEADER_BYTES + content.entries.len()) as u64;
            files.chain.push(Written { path, bytes });
        }
        for path in needless {
            files
                .fs
                .remove_file(&path)
                .map_err(|error| io("remove", &path, error))?;
        }
        files.view = Arc::new(view);
        Ok(files)
    }

    fn read(&self, path: &Path) -> Result<Content> {
        let file = self
            .fs
            .open(path, Access::Read)
            .map_err(|error| io("open", path, error))?;
        let length = file.len().map_err(|error| io("read", path, error))?;
        let mut bytes = vec![0; usize::try_from(length).unwrap_or(usize::MAX)];
        file.read_exact_at(&mut bytes, 0)
            .map_err(|error| io("read", path, error))?;
        let Some((header, entries)) = bytes.split_at_checked(HEADER_BYTES) else {
            return Err(corrupt(path, 0, "it is too short"));
        };
        let u64_at = |at: usize| u64::from_le_bytes(header[at..at + 8].try_into().expect("eight bytes"));
        let u32_at = |at: usize| u32::from_le_bytes(header[at..at + 4].try_into().expect("four bytes"));
        if &header[..8] != MAGIC || crc32c::crc32c(&header[..48]) != u32_at(48) {
            return Err(corrupt(path, 0, "the header is damaged"));
        }
        if u64_at(40) != entries.len() as u64 || crc32c::crc32c(entries) != u32_at(52) {
            return Err(corrupt(path, HEADER_BYTES as u64, "the entries are damaged"));
        }
        let content = Content {
            seq: Seq(u64_at(8)),
            changes: u64_at(16),
            base: (u64_at(24), u64_at(32)),
            entries: entries.to_vec(),
        };
        // A file under another's name would be read in the wrong order.
        match *path == self.directory.join(name_of(content.seq, content.changes)) {
            true => Ok(content),
            false => Err(corrupt(path, 8, "it has another file's name")),
        }
    }

    /// Bytes of all files.
    pub(crate) fn bytes(&self) -> u64 {
        self.chain.iter().map(|file| file.bytes).sum()
    }

    /// Reads all files again.
    pub(crate) fn verify(&self) -> Result<()> {
        self.chain.iter().try_for_each(|file| self.read(&file.path).map(|_| ()))
    }

    /// Is it time for a file with everything?
    fn is_long(&self) -> bool {
        let first = self.chain.first().map_or(0, |file| file.bytes);
        self.bytes() - first > (first * CHANGES_SHARE_MAX).max(CHANGES_BYTES_MIN)
    }

    /// Writes what a view has that the last one had not; or everything.
    pub(crate) fn write(&mut self, view: &Arc<View>, everything: bool) -> std::result::Result<(), Failure> {
        let is_first = everything || self.chain.is_empty() || self.is_long();
        let empty = View::default();
        let before = if is_first { &empty } else { &*self.view };
        let entries = changes(before, view);
        let mut bytes = MAGIC.to_vec();
        for field in [
            view.seq.0,
            view.changes,
            before.seq.0,
            before.changes,
            entries.len() as u64,
        ] {
            bytes.extend_from_slice(&field.to_le_bytes());
        }
        for crc in [crc32c::crc32c(&bytes), crc32c::crc32c(&entries)] {
            bytes.extend_from_slice(&crc.to_le_bytes());
        }
        bytes.extend_from_slice(&entries);
        let path = self.directory.join(name_of(view.seq, view.changes));
        self.write_file(&path, &bytes)?;
        let old = if is_first {
            std::mem::take(&mut self.chain)
        } else {
            Vec::new()
        };
        self.chain.push(Written {
            path: path.clone(),
            bytes: bytes.len() as u64,
        });
        self.view = view.clone();
        for file in old.into_iter().filter(|file| file.path != path) {
            // The next opening removes what stays.
            let _ = self.fs.remove_file(&file.path);
        }
        Ok(())
    }

    fn write_file(&self, path: &Path, bytes: &[u8]) -> std::result::Result<(), Failure> {
        let new = self.directory.join(NEW_FILE);
        let harmless = |error| {
            let _ = self.fs.remove_file(&new);
            Failure::Harmless(io("write", &new, error))
        };
        let fatal = |operation, error| Failure::Fatal(io(operation, path, error));
        let file = self.fs.open(&new, Access::OpenOrCreate).map_err(harmless)?;
        file.set_len(0).map_err(harmless)?;
        file.write_all_at(bytes, 0).map_err(harmless)?;
        file.sync_data().map_err(|error| fatal("sync", error))?;
        self.fs.rename(&new, path).map_err(|error| fatal("rename", error))?;
        self.fs
            .sync_directory(&self.directory)
            .map_err(|error| fatal("sync", error))
    }
}

struct Content {
    seq: Seq,
    changes: u64,
    base: (u64, u64),
    entries: Vec<u8>,
}

fn name_of(seq: Seq, changes: u64) -> String {
    format!("{:020}-{changes:020}.delta", seq.0)
}

fn corrupt(path: &Path, offset: u64, reason: &str) -> EngineError {
    EngineError::Corrupt {
        path: path.to_owned(),
        offset,
        reason: reason.to_owned(),
    }
}

/// The entries that make one view of another. Chunks that both share are not looked into.
fn changes(before: &View, after: &View) -> Vec<u8> {
    let mut out = Vec::new();
    let is_same = |id: &TableId, table: &Table| {
        let other = after.tables.get(id);
        other.is_some_and(|other| other.incarnation == table.incarnation)
    };
    for (id, _) in before.tables.iter().filter(|(id, table)| !is_same(id, table)) {
        entry(&mut out, DROP, *id, &[]);
    }
    for (id, table) in &after.tables {
        let old = before.tables.get(id).filter(|old| old.incarnation == table.incarnation);
        if old.is_none() {
            let kind = [kind_tag(table.spec.kind)];
            let incarnation = table.incarnation.to_le_bytes();
            let compressor = table
                .spec
                .compressor
                .as_deref()
                .map_or_else(Vec::new, |name| [b"=", name.as_bytes()].concat());
            entry(
                &mut out,
                CREATE,
                *id,
                &[&kind, &incarnation, table.spec.name.as_bytes(), &compressor],
            );
        }
        let none = Vec::new();
        let old_chunks = old.map_or(&none, |old| &old.chunks);
        let shared = |one: &[Arc<_>], other: &[Arc<_>]| {
            let of_other: HashSet<_> = other.iter().map(Arc::as_ptr).collect();
            let own = one.iter().filter(|chunk| !of_other.contains(&Arc::as_ptr(chunk)));
            own.cloned().collect::<Vec<Arc<Vec<Row>>>>()
        };
        let (gone, new) = (shared(old_chunks, &table.chunks), shared(&table.chunks, old_chunks));
        let mut gone = gone.iter().flat_map(|chunk| chunk.iter()).peekable();
        for (key, value) in new.iter().flat_map(|chunk| chunk.iter()) {
            while let Some((old, _)) = gone.next_if(|(old, _)| old < key) {
                entry(&mut out, DELETE, *id, &[old]);
            }
            let was = gone.next_if(|(old, _)| old == key);
            if was.is_none_or(|(_, old)| old != value) {
                entry(&mut out, PUT, *id, &[key, value]);
            }
        }
        for (old, _) in gone {
            entry(&mut out, DELETE, *id, &[old]);
        }
    }
    out
}

/// Tag, table, and parts with their lengths.
fn entry(out: &mut Vec<u8>, tag: u8, table: TableId, parts: &[&[u8]]) {
    out.push(tag);
    out.extend_from_slice(&table.0.to_le_bytes());
    for part in parts {
        // Keys and values have at most 16 MiB and some KiB.
        let length = u32::try_from(part.len()).expect("the engine's limits are below 4 GiB");
        out.extend_from_slice(&length.to_le_bytes());
        out.extend_from_slice(part);
    }
}

fn kind_tag(kind: TableKind) -> u8 {
    match kind {
        TableKind::Records => 0,
        TableKind::Index => 1,
        TableKind::Small => 2,
        TableKind::Clustered => 3,
    }
}

/// Takes entries apart. Their checksum is right, which says nothing of who wrote them.
struct Entries<'e>(&'e [u8]);

impl<'e> Entries<'e> {
    fn take(&mut self, bytes: usize) -> Option<&'e [u8]> {
        let (taken, rest) = self.0.split_at_checked(bytes)?;
        self.0 = rest;
        Some(taken)
    }

    fn u32(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.take(4)?.try_into().ok()?))
    }

    fn part(&mut self) -> Option<&'e [u8]> {
        let length = self.u32()?;
        self.take(length as usize)
    }
}

fn replay(view: &mut View, bytes: &[u8], path: &Path) -> Result<()> {
    let mut entries = Entries(bytes);
    let mut touched = BTreeSet::new();
    while !entries.0.is_empty() {
        let at = (HEADER_BYTES + bytes.len() - entries.0.len()) as u64;
        let id = replay_one(view, &mut entries).ok_or_else(|| corrupt(path, at, "an entry that means nothing"))?;
        touched.insert(id);
    }
    for table in touched.iter().filter_map(|id| view.tables.get(id)) {
        debug_assert_eq!(table.problem(), None);
    }
    Ok(())
}

fn replay_one(view: &mut View, entries: &mut Entries<'_>) -> Option<TableId> {
    let tag = entries.take(1)?[0];
    let id = TableId(entries.u32()?);
    if tag == CREATE {
        let kind = match entries.part()? {
            [0] => TableKind::Records,
            [1] => TableKind::Index,
            [2] => TableKind::Small,
            [3] => TableKind::Clustered,
            _ => return None,
        };
        let incarnation = u64::from_le_bytes(entries.part()?.try_into().ok()?);
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).ok();
        let name = text(entries.part()?)?;
        let compressor = match entries.part()? {
            [] => None,
            [b'=', name @ ..] => Some(text(name)?),
            _ => return None,
        };
        let spec = TableSpec { kind, name, compressor };
        view.tables.insert(id, Arc::new(Table::new(spec, incarnation)));
        return Some(id);
    }
    if tag == DROP {
        view.tables.remove(&id)?;
        return Some(id);
    }
    let table = Arc::make_mut(view.tables.get_mut(&id)?);
    let key = entries.part()?;
    match tag {
        PUT => table.put(key, Bytes::copy_from_slice(entries.part()?)),
        DELETE => table.delete(key),
        _ => return None,
    }
    Some(id)
}
