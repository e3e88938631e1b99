//! The directory format: a folder for each database, `NAME.bson` and `NAME.metadata.json` for each collection.
//!
//! Names of collections become names of files by percent-encoding, so that none leads out of its folder.

use crate::archive::{read_document, read_length};
use crate::crc64::Crc64;
use crate::error::{Doing, DumpError, Result};
use crate::namespace::Namespace;
use bson::RawDocumentBuf;
use flate2::read::MultiGzDecoder;
use flate2::write::GzEncoder;
use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Stdout, Write};
use std::path::{Path, PathBuf};

/// Metadata is small; what is larger is none.
const METADATA_BYTES_MAX: u64 = 64 << 20;
/// A file's name has at most 255 bytes, of which `.metadata.json.gz` needs 17.
const STEM_BYTES_MAX: usize = 238;
/// How much of a longer name is kept before its checksum.
const STEM_BYTES_KEPT: usize = 208;

/// A file or standard output, compressed or not.
#[derive(Debug)]
pub enum Output {
    /// As it is.
    Plain(BufWriter<Raw>),
    /// Compressed by gzip.
    Gzip(Box<GzEncoder<BufWriter<Raw>>>),
}

/// Where bytes go in the end.
#[derive(Debug)]
pub enum Raw {
    /// A file of a name.
    File(File),
    /// Standard output.
    Standard(Stdout),
}

impl Write for Raw {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        match self {
            Self::File(file) => file.write(bytes),
            Self::Standard(output) => output.write(bytes),
        }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        match self {
            Self::File(file) => file.flush(),
            Self::Standard(output) => output.flush(),
        }
    }
}

impl Output {
    /// Standard output without a path.
    pub fn create(path: Option<&Path>, is_gzip: bool) -> Result<Self> {
        let raw = match path {
            Some(path) => Raw::File(File::create(path).doing(|| format!("creating {}", path.display()))?),
            None => Raw::Standard(std::io::stdout()),
        };
        let buffered = BufWriter::with_capacity(1 << 20, raw);
        Ok(if is_gzip {
            Self::Gzip(Box::new(GzEncoder::new(buffered, flate2::Compression::default())))
        } else {
            Self::Plain(buffered)
        })
    }

    /// Writes what is buffered. A file is on the disk afterwards.
    pub fn finish(self) -> std::io::Result<()> {
        let mut buffered = match self {
            Self::Plain(buffered) => buffered,
            Self::Gzip(encoder) => encoder.finish()?,
        };
        buffered.flush()?;
        match buffered.get_ref() {
            Raw::File(file) => file.sync_all(),
            Raw::Standard(_) => Ok(()),
        }
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        match self {
            Self::Plain(output) => output.write(bytes),
            Self::Gzip(output) => output.write(bytes),
        }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        match self {
            Self::Plain(output) => output.flush(),
            Self::Gzip(output) => output.flush(),
        }
    }
}

/// Opens a file, or standard input without one, and decompresses it if it is compressed.
pub fn open_file(path: Option<&Path>, is_gzip: bool) -> Result<Box<dyn Read>> {
    let raw: Box<dyn Read> = match path {
        Some(path) => Box::new(File::open(path).doing(|| format!("opening {}", path.display()))?),
        None => Box::new(std::io::stdin()),
    };
    let buffered = BufReader::with_capacity(1 << 20, raw);
    Ok(if is_gzip {
        Box::new(BufReader::with_capacity(1 << 20, MultiGzDecoder::new(buffered)))
    } else {
        Box::new(buffered)
    })
}

/// Whether a file begins as gzip's do.
pub(crate) fn is_compressed(path: &Path) -> Result<bool> {
    let doing = || format!("reading {}", path.display());
    let mut beginning = [0; 2];
    let read = File::open(path).doing(doing)?.read(&mut beginning).doing(doing)?;
    Ok(beginning[..read] == [0x1F, 0x8B])
}

/// Reads documents to the end of a file. Bytes that are no document are an error with their place.
pub fn bson_file(
    input: &mut dyn Read,
    subject: &str,
    each: &mut dyn FnMut(RawDocumentBuf) -> Result<()>,
) -> Result<()> {
    let mut input = input;
    let mut offset = 0;
    while let Some(length) = read_length(&mut input, subject)? {
        let document = read_document(&mut input, length, offset, subject)?;
        offset += document.as_bytes().len() as u64;
        each(document)?;
    }
    Ok(())
}

/// The name of a collection's files, without their endings.
pub fn file_stem(collection: &str) -> String {
    let mut stem = String::with_capacity(collection.len());
    for byte in collection.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' | b'$' | b'&' | b'+' | b'=' | b'@' => {
                stem.push(char::from(byte));
            }
            other => stem.push_str(&format!("%{other:02X}")),
        }
    }
    if stem.len() > STEM_BYTES_MAX {
        let mut checksum = Crc64::new();
        checksum.add(collection.as_bytes());
        // As long as mongodump's hash of such names, whose reader takes the name from the metadata then.
        stem.truncate(STEM_BYTES_KEPT);
        stem.push_str(&format!("%24{:0>27x}", checksum.sum()));
    }
    stem
}

/// The collection of a file's name; `None` when its percent signs are wrong.
fn collection_of(stem: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(stem.len());
    let mut rest = stem.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte == b'%' {
            let digits = std::str::from_utf8(rest.get(..2)?).ok()?;
            bytes.push(u8::from_str_radix(digits, 16).ok()?);
            rest = &rest[2..];
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).ok()
}

/// A collection's files in a dump. At least one of them is there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Files {
    pub(crate) documents: Option<PathBuf>,
    pub(crate) metadata: Option<PathBuf>,
}

/// The collections of a folder with one folder for each database; or of one database's folder, whose name is given.
pub(crate) fn scan(root: &Path, database: Option<&str>, is_gzip: bool) -> Result<Vec<(Namespace, Files)>> {
    let mut found = Vec::new();
    // Beside the folders of databases there is the log of operations only.
    if let Some(database) = database.filter(|database| !root.join(database).is_dir()) {
        scan_database(root, database, is_gzip, &mut found)?;
    }
    for path in entries(root)? {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if path.is_dir() && database.is_none_or(|database| database == name) {
            scan_database(&path, name, is_gzip, &mut found)?;
        }
    }
    Ok(found)
}

fn scan_database(folder: &Path, database: &str, is_gzip: bool, found: &mut Vec<(Namespace, Files)>) -> Result<()> {
    let compressed = if is_gzip { ".gz" } else { "" };
    let mut files = std::collections::BTreeMap::<String, Files>::new();
    for path in entries(folder)? {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let Some(name) = name.strip_suffix(compressed) else {
            continue;
        };
        if let Some(stem) = name.strip_suffix(".metadata.json") {
            files.entry(stem.to_owned()).or_default().metadata = Some(path.clone());
        } else if let Some(stem) = name.strip_suffix(".bson") {
            files.entry(stem.to_owned()).or_default().documents = Some(path.clone());
        }
    }
    for (stem, files) in files {
        let collection = collection_of(&stem).ok_or_else(|| DumpError::Format {
            subject: folder.join(&stem).display().to_string(),
            fault: "the name of the file is no name of a collection".to_owned(),
        })?;
        found.push((Namespace::new(database, collection), files));
    }
    Ok(())
}

fn entries(folder: &Path) -> Result<Vec<PathBuf>> {
    let doing = || format!("reading the folder {}", folder.display());
    let mut paths = std::fs::read_dir(folder)
        .doing(doing)?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<std::io::Result<Vec<_>>>()
        .doing(doing)?;
    paths.sort();
    Ok(paths)
}

/// What tells of the collection whose documents are in a file: `x.metadata.json` of `x.bson`, both perhaps with `.gz`.
pub(crate) fn metadata_beside(documents: &Path) -> Option<PathBuf> {
    let name = documents.file_name()?.to_str()?;
    let (name, compression) = match name.strip_suffix(".gz") {
        Some(name) => (name, ".gz"),
        None => (name, ""),
    };
    let stem = name.strip_suffix(".bson")?;
    Some(documents.with_file_name(format!("{stem}.metadata.json{compression}")))
}

/// The text of a metadata file.
pub(crate) fn read_metadata(path: &Path, is_gzip: bool) -> Result<String> {
    let mut text = String::new();
    open_file(Some(path), is_gzip)?
        .take(METADATA_BYTES_MAX)
        .read_to_string(&mut text)
        .doing(|| format!("reading {}", path.display()))?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn names_of_files_lead_nowhere_else() {
        for (collection, stem) in [
            ("a.b", "a.b"),
            ("../x", "..%2Fx"),
            ("é%", "%C3%A9%25"),
            ("$a:b", "$a%3Ab"),
        ] {
            assert_eq!(file_stem(collection), stem);
            assert_eq!(collection_of(stem).unwrap(), collection);
        }
        assert_eq!(collection_of("a%2"), None);
        assert_eq!(collection_of("a%ZZ"), None);
        assert_eq!(collection_of("%FF"), None);
        let long = "é".repeat(110);
        assert_eq!(file_stem(&long).len(), STEM_BYTES_MAX);
        assert_ne!(file_stem(&long), file_stem(&"é".repeat(111)));
    }

    #[test]
    fn metadata_stands_beside_its_documents() {
        for (documents, metadata) in [
            ("d/a.bson", Some("d/a.metadata.json")),
            ("d.bson x/a.bson.gz", Some("d.bson x/a.metadata.json.gz")),
            ("d/a.bson.bson", Some("d/a.bson.metadata.json")),
            ("d.bson/a", None),
        ] {
            assert_eq!(metadata_beside(Path::new(documents)), metadata.map(PathBuf::from));
        }
    }

    #[test]
    fn documents_of_a_file_end_where_it_ends() {
        let bytes = [&[5, 0, 0, 0, 0][..], &[5, 0, 0, 0, 0]].concat();
        for length in 0..=bytes.len() {
            let mut count = 0;
            let result = bson_file(&mut &bytes[..length], "f", &mut |_| {
                count += 1;
                Ok(())
            });
            assert_eq!(result.is_ok(), length % 5 == 0, "{length}");
            assert_eq!(count, length / 5);
        }
    }
}
