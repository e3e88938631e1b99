//! The root: at which position the files stand, which there are, and the checksums from which all others can be
//! checked.
//!
//! It is kept twice, in two files that are written one after the other; a whole one is enough. Everything else on
//! disk is checked against it: it holds the checksums of the maps in the data files and of the namespace files'
//! pages, the maps those of all other pages.

use crate::bytes_at::{checksum, u32_at, u64_at};
use crate::files::{FORMAT_VERSION, corrupt, io_error};
use crate::sealing::{SEALED_FORMAT_VERSION, open_text, seal_text};
use crypt::{Keys, SEAL_BYTES, SealError};
use engine::{Result, Seq};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use vfs::{Access, Env, File};

const MAGIC: u64 = u64::from_le_bytes(*b"TENONmmR");
/// magic (8), version (4), length of the body (4), checksum of body (4), of the bytes before (4).
const HEADER_BYTES: usize = 24;
const ROOT_CONTEXT: &[u8] = b"mmaproot";

/// That of roots and journals.
pub(crate) fn version(keys: Option<&Keys>) -> u32 {
    match keys {
        Some(_) => SEALED_FORMAT_VERSION,
        None => FORMAT_VERSION,
    }
}

/// What the names of both begin with.
pub(crate) const FILE_STEM: &str = "root";
pub(crate) const FILE_NAMES: [&str; 2] = ["root.0", "root.1"];

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Root {
    /// Rises by one with each checkpoint.
    pub(crate) generation: u64,
    pub(crate) seq: Seq,
    pub(crate) databases: Vec<RootDatabase>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct RootDatabase {
    pub(crate) name: String,
    pub(crate) own_directory: bool,
    /// Checksums of the namespace file's pages behind its header.
    pub(crate) namespaces: Vec<u32>,
    pub(crate) files: Vec<RootFile>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct RootFile {
    pub(crate) pages: u32,
    /// Checksums of the pages of the checksum map and of the owner map.
    pub(crate) checksums: Vec<u32>,
    pub(crate) owners: Vec<u32>,
}

impl Root {
    /// Of the body alone: the journal holds one too.
    pub(crate) fn encode_body(&self) -> Vec<u8> {
        let mut body = Vec::new();
        body.extend_from_slice(&self.generation.to_le_bytes());
        body.extend_from_slice(&self.seq.0.to_le_bytes());
        let count = |body: &mut Vec<u8>, count: usize| body.extend_from_slice(&(count as u32).to_le_bytes());
        let sums =
            |body: &mut Vec<u8>, sums: &[u32]| sums.iter().for_each(|sum| body.extend_from_slice(&sum.to_le_bytes()));
        count(&mut body, self.databases.len());
        for database in &self.databases {
            count(&mut body, database.name.len());
            body.extend_from_slice(database.name.as_bytes());
            count(&mut body, usize::from(database.own_directory));
            count(&mut body, database.namespaces.len());
            sums(&mut body, &database.namespaces);
            count(&mut body, database.files.len());
            for file in &database.files {
                count(&mut body, file.pages as usize);
                sums(&mut body, &file.checksums);
                sums(&mut body, &file.owners);
            }
        }
        body
    }

    /// `None` for what [`Root::encode_body`] cannot have given.
    pub(crate) fn decode_body(body: &[u8]) -> Option<Self> {
        let mut left = Reader { bytes: body, at: 0 };
        let (generation, seq) = (left.u64()?, Seq(left.u64()?));
        let databases = (0..left.u32()?).map(|_| left.database()).collect::<Option<_>>()?;
        (left.at == body.len()).then_some(Self {
            generation,
            seq,
            databases,
        })
    }

    /// With keys its bytes differ from call to call, and it is longer by a seal.
    pub(crate) fn encode(&self, keys: Option<&Keys>) -> Vec<u8> {
        let mut body = self.encode_body();
        if let Some(keys) = keys {
            body = seal_text(keys, ROOT_CONTEXT, &body);
        }
        let mut bytes = Vec::with_capacity(HEADER_BYTES + body.len());
        bytes.extend_from_slice(&MAGIC.to_le_bytes());
        bytes.extend_from_slice(&version(keys).to_le_bytes());
        bytes.extend_from_slice(&(body.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&checksum(&body).to_le_bytes());
        let sum = checksum(&bytes);
        bytes.extend_from_slice(&sum.to_le_bytes());
        bytes.extend_from_slice(&body);
        bytes
    }
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn u64(&mut self) -> Option<u64> {
        self.at += 8;
        u64_at(self.bytes, self.at - 8)
    }

    fn u32(&mut self) -> Option<u32> {
        self.at += 4;
        u32_at(self.bytes, self.at - 4)
    }

    fn sums(&mut self, count: u32) -> Option<Vec<u32>> {
        (0..count).map(|_| self.u32()).collect()
    }

    fn database(&mut self) -> Option<RootDatabase> {
        let name_bytes = self.u32()? as usize;
        let name = self.bytes.get(self.at..self.at.checked_add(name_bytes)?)?.to_vec();
        self.at += name_bytes;
        let own_directory = self.u32()? == 1;
        let namespace_pages = self.u32()?;
        let namespaces = self.sums(namespace_pages)?;
        let files = (0..self.u32()?).map(|_| self.file()).collect::<Option<_>>()?;
        Some(RootDatabase {
            name: String::from_utf8(name).ok()?,
            own_directory,
            namespaces,
            files,
        })
    }

    fn file(&mut self) -> Option<RootFile> {
        let pages = self.u32().filter(|&pages| pages > 3 && pages <= 1 << 18)?;
        let maps = crate::files::map_pages(pages);
        Some(RootFile {
            pages,
            checksums: self.sums(maps)?,
            owners: self.sums(maps)?,
        })
    }
}

/// The two files.
pub(crate) struct RootFiles {
    files: [(Arc<dyn File>, PathBuf); 2],
    keys: Option<Arc<Keys>>,
}

impl RootFiles {
    /// Opens or creates both, and reads the newer one; `None` when neither is whole. The last answer is the place of
    /// the other one when it does not say the same.
    pub(crate) fn open(env: &Env, directory: &Path) -> Result<(Self, Option<Root>, Option<usize>)> {
        let open = |name: &str| {
            let path = directory.join(name);
            let file = env
                .fs
                .open(&path, Access::OpenOrCreate)
                .map_err(io_error("open", &path))?;
            Ok::<_, engine::EngineError>((file, path))
        };
        let files = [open(FILE_NAMES[0])?, open(FILE_NAMES[1])?];
        let keys = env.fs.keys().cloned();
        let [first, second] = [read(&files[0], keys.as_deref())?, read(&files[1], keys.as_deref())?];
        let generation = |root: &Option<Root>| root.as_ref().map(|root| root.generation);
        let (newest, stale) = match (first, second) {
            (first, second) if first == second => (first, None),
            (first, second) if generation(&first) > generation(&second) => (first, Some(1)),
            (_, second) => (second, Some(0)),
        };
        Ok((Self { files, keys }, newest, stale))
    }

    /// Makes room for a root, so that writing it later does not fail for want of space.
    pub(crate) fn reserve(&self, plain_bytes: usize) -> Result<()> {
        let bytes = plain_bytes + self.keys.as_ref().map_or(0, |_| SEAL_BYTES);
        for (file, path) in &self.files {
            if file.len().map_err(io_error("measure", path))? < bytes as u64 {
                file.allocate(0, bytes as u64)
                    .map_err(io_error("reserve space for", path))?;
            }
        }
        Ok(())
    }

    /// Writes both, one after the other, so that one is whole at any moment.
    pub(crate) fn write(&self, root: &Root) -> Result<()> {
        (0..self.files.len()).try_for_each(|place| self.write_one(root, place))
    }

    /// Writes one of both.
    pub(crate) fn write_one(&self, root: &Root, place: usize) -> Result<()> {
        let (file, path) = &self.files[place];
        let bytes = root.encode(self.keys.as_deref());
        file.write_all_at(&bytes, 0).map_err(io_error("write", path))?;
        file.sync_data().map_err(io_error("sync", path))
    }

    /// Opens one of both once more: a descriptor that is kept for a file to come.
    pub(crate) fn any_descriptor(env: &Env, directory: &Path) -> Result<Arc<dyn File>> {
        let path = directory.join(FILE_NAMES[0]);
        env.fs.open(&path, Access::Read).map_err(io_error("open", &path))
    }
}

/// A root, if the file holds a whole one.
fn read((file, path): &(Arc<dyn File>, PathBuf), keys: Option<&Keys>) -> Result<Option<Root>> {
    let length = file.len().map_err(io_error("measure", path))?;
    let mut header = [0; HEADER_BYTES];
    if length < HEADER_BYTES as u64 {
        return Ok(None);
    }
    let read = |buffer: &mut [u8], at| file.read_exact_at(buffer, at).map_err(io_error("read", path));
    read(&mut header, 0)?;
    let word = |at| u32_at(&header, at).unwrap_or(0);
    if u64_at(&header, 0) != Some(MAGIC) || word(20) != checksum(&header[..20]) {
        return Ok(None);
    }
    if word(8) != version(keys) {
        let is_encrypted = if keys.is_some() { "encrypted" } else { "not encrypted" };
        let reason = format!(
            "format version {}, {} is that of data that is {is_encrypted}",
            word(8),
            version(keys)
        );
        return Err(corrupt(path, 8, reason));
    }
    let body_bytes = u64::from(word(12));
    if length - (HEADER_BYTES as u64) < body_bytes {
        return Ok(None);
    }
    let mut body = vec![0; body_bytes as usize];
    read(&mut body, HEADER_BYTES as u64)?;
    if checksum(&body) != word(16) {
        return Ok(None);
    }
    let Some(keys) = keys else {
        return Ok(Root::decode_body(&body));
    };
    match open_text(keys, ROOT_CONTEXT, &mut body) {
        Ok(body) => Ok(Root::decode_body(body)),
        // As a checksum that does not fit: the other one counts.
        Err(SealError::Tag) => Ok(None),
        Err(error) => Err(corrupt(path, HEADER_BYTES as u64, format!("encryption: {error}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_layout_stays() {
        let root = Root {
            generation: 3,
            seq: Seq(0x0102),
            databases: vec![RootDatabase {
                name: "db".into(),
                own_directory: true,
                namespaces: vec![7],
                files: vec![RootFile {
                    pages: 8,
                    checksums: vec![8],
                    owners: vec![9],
                }],
            }],
        };
        let body = root.encode_body();
        let hex: String = body.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(
            hex,
            "0300000000000000020100000000000001000000020000006462010000000100000007000000010000000800000008000000\
             09000000"
        );
        assert_eq!(Root::decode_body(&body).as_ref(), Some(&root));
        (0..body.len()).for_each(|cut| assert_eq!(Root::decode_body(&body[..cut]), None));
        assert_eq!(&root.encode(None)[..16], b"TENONmmR\x01\0\0\0\x36\0\0\0");
    }
}
