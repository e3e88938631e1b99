//! The directory format: a folder for each database, `NAME.bson` and `NAME.metadata.json` for each collection.
//!
//! Names of collections become names of files by percent-encoding, so that none leads out of its folder.

use crate::archive::{read_document, read_length};
use crate::crc64::Crc64;
use crate::error::{Doing, DumpError, Result};
use crate::found::Found;
use crate::metadata::{CollectionKind, Metadata};
use crate::namespace::Namespace;
use bench::interrupt::Interrupt;
use bench::pipe::InterruptibleFile;
use flate2::read::MultiGzDecoder;
use flate2::write::GzEncoder;
use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

/// Metadata is small; what is larger is none.
const METADATA_BYTES_MAX: u64 = 64 << 20;
/// A file's name has at most 255 bytes, of which `.metadata.json.gz` needs 17.
const STEM_BYTES_MAX: usize = 238;
/// How much of a longer name is kept before its checksum.
const STEM_BYTES_KEPT: usize = 208;
/// Stands before the checksum, there where mongorestore looks for it.
const CUT_MARK: &str = "%24";

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
    Standard(InterruptibleFile),
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
    /// Standard output without a path: waiting for its reader ends when the user wants to stop.
    pub fn create(path: Option<&Path>, is_gzip: bool, interrupt: &Interrupt) -> Result<Self> {
        let raw = match path {
            Some(path) => Raw::File(File::create(path).doing(|| format!("creating {}", path.display()))?),
            None => Raw::Standard(
                InterruptibleFile::standard(&std::io::stdout(), interrupt).doing(|| "standard output".to_owned())?,
            ),
        };
        let buffered = BufWriter::with_capacity(1 << 20, raw);
        Ok(if is_gzip {
            Self::Gzip(Box::new(GzEncoder::new(buffered, flate2::Compression::default())))
        } else {
            Self::Plain(buffered)
        })
    }

    /// A file of a dump, whose name ends in `.gz` with `is_gzip`. One that an earlier dump has left in the other form
    /// goes: who reads the folder could not tell which counts.
    pub(crate) fn of_dump(path: &Path, is_gzip: bool, interrupt: &Interrupt) -> Result<Self> {
        let compressed = compressed(path);
        let (path, other) = match is_gzip {
            true => (&*compressed, path),
            false => (path, &*compressed),
        };
        remove(other)?;
        Self::create(Some(path), is_gzip, interrupt)
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

/// Opens a file, or standard input without one, and decompresses it if it is compressed. Waiting for who writes a pipe
/// ends when the user wants to stop.
pub fn open_file(path: Option<&Path>, is_gzip: bool, interrupt: &Interrupt) -> Result<Box<dyn Read>> {
    let raw = match path {
        Some(path) => {
            let file = File::open(path).doing(|| format!("opening {}", path.display()))?;
            InterruptibleFile::new(file, interrupt)
        }
        None => InterruptibleFile::standard(&std::io::stdin(), interrupt).doing(|| "standard input".to_owned())?,
    };
    let buffered = BufReader::with_capacity(1 << 20, raw);
    Ok(if is_gzip {
        Box::new(BufReader::with_capacity(1 << 20, MultiGzDecoder::new(buffered)))
    } else {
        Box::new(buffered)
    })
}

/// The compressed form's name.
pub(crate) fn compressed(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".gz");
    name.into()
}

/// Removes a file, if it is there.
pub(crate) fn remove(path: &Path) -> Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        removed => removed.doing(|| format!("removing {}", path.display())),
    }
}

/// Whether a file begins as gzip's do.
pub(crate) fn is_compressed(path: &Path) -> Result<bool> {
    let doing = || format!("reading {}", path.display());
    let mut beginning = [0; 2];
    let read = File::open(path).doing(doing)?.read(&mut beginning).doing(doing)?;
    Ok(beginning[..read] == [0x1F, 0x8B])
}

/// Reads documents to the end of a file. Bytes that are no document are an error with their place.
pub fn bson_file(input: &mut dyn Read, subject: &str, each: &mut dyn FnMut(Found) -> Result<()>) -> Result<()> {
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
    let mut stem = encoded(collection);
    if stem.len() > STEM_BYTES_MAX {
        // Not within an encoded byte. Filled up, so that the mark is where it is looked for.
        let kept = (0..3).map(|back| STEM_BYTES_KEPT - back);
        let kept = kept
            .clone()
            .find(|&kept| !stem[..kept].ends_with('%') && stem.as_bytes()[kept - 2] != b'%');
        stem.truncate(kept.unwrap_or(STEM_BYTES_KEPT));
        let fill = STEM_BYTES_KEPT - stem.len();
        stem.extend(std::iter::repeat_n('_', fill));
        stem.push_str(CUT_MARK);
        // As long as mongodump's hash of such names, whose reader takes the name from the metadata then.
        stem.push_str(&checksum(collection));
    }
    stem
}

fn encoded(collection: &str) -> String {
    let mut stem = String::with_capacity(collection.len());
    for byte in collection.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' | b'$' | b'&' | b'+' | b'=' | b'@' => {
                stem.push(char::from(byte));
            }
            other => stem.push_str(&format!("%{other:02X}")),
        }
    }
    stem
}

fn checksum(collection: &str) -> String {
    let mut checksum = Crc64::new();
    checksum.add(collection.as_bytes());
    format!("{:0>27x}", checksum.sum())
}

/// Whether a file's name has the beginning of the collection's only: the metadata has all of it.
fn is_cut(stem: &str) -> bool {
    stem.len() == STEM_BYTES_MAX && stem.as_bytes()[STEM_BYTES_KEPT..].starts_with(CUT_MARK.as_bytes())
}

/// The file's name, of these, that is the collection's. mongodump has another checksum, and older dumps of this program
/// were cut within an encoded byte.
fn stem_of<'s>(collection: &str, stems: impl Iterator<Item = &'s String>) -> Option<String> {
    let (whole, encoded) = (file_stem(collection), encoded(collection));
    let beginning = encoded.get(..STEM_BYTES_KEPT);
    let (mut likely, mut likely_count) = (None, 0);
    for stem in stems {
        if *stem == whole {
            return Some(whole);
        }
        if is_cut(stem) && is_cut(&whole) && beginning == stem.get(..STEM_BYTES_KEPT) {
            if stem.ends_with(&checksum(collection)) {
                return Some(stem.clone());
            }
            (likely, likely_count) = (Some(stem.clone()), likely_count + 1);
        }
    }
    // Which of several it is cannot be told.
    likely.filter(|_| likely_count == 1)
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
    let named = |stem: &str, files: &Files| -> Result<String> {
        let malformed = |fault: &str| DumpError::Format {
            subject: folder.join(stem).display().to_string(),
            fault: fault.to_owned(),
        };
        if !is_cut(stem) {
            return collection_of(stem).ok_or_else(|| malformed("the name of the file is no name of a collection"));
        }
        let metadata = files
            .metadata
            .as_ref()
            .map(|path| metadata_of(path, is_gzip))
            .transpose()?;
        let name = metadata.and_then(|metadata| metadata.collection);
        name.ok_or_else(|| malformed("the collection's name is cut, and there is no metadata with all of it"))
    };
    // Buckets are filed under the name of their own collection, which may be cut where that of the measurements is not;
    // what is told of them under that of the measurements.
    let without: Vec<_> = files.iter().filter(|(_, files)| files.documents.is_none()).collect();
    let mut pairs = Vec::new();
    for (stem, of_stem) in without {
        let Some(path) = &of_stem.metadata else { continue };
        if metadata_of(path, is_gzip)?.kind != CollectionKind::TimeSeries {
            continue;
        }
        let buckets = Namespace::new(database, named(stem, of_stem)?).of_documents(CollectionKind::TimeSeries);
        let alone = files
            .iter()
            .filter(|(_, files)| files.metadata.is_none())
            .map(|(stem, _)| stem);
        if let Some(of_buckets) = stem_of(&buckets.collection, alone) {
            pairs.push((stem.clone(), of_buckets));
        }
    }
    for (stem, of_buckets) in pairs {
        let documents = files.remove(&of_buckets).and_then(|buckets| buckets.documents);
        if let Some(files) = files.get_mut(&stem) {
            files.documents = documents;
        }
    }
    for (stem, files) in files {
        found.push((Namespace::new(database, named(&stem, &files)?), files));
    }
    Ok(())
}

fn metadata_of(path: &Path, is_gzip: bool) -> Result<Metadata> {
    Metadata::from_json(&read_metadata(path, is_gzip)?, &path.display().to_string())
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
    open_file(Some(path), is_gzip, &Interrupt::new())?
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
        // Cut between encoded bytes: others decode what is kept.
        for padding in ["", "a", "ab"] {
            let stem = file_stem(&format!("{padding}{long}"));
            assert_eq!(stem.len(), STEM_BYTES_MAX);
            assert!(is_cut(&stem) && stem[..STEM_BYTES_KEPT].trim_end_matches('_').len() >= STEM_BYTES_KEPT - 2);
            assert!(!stem.contains("%_") && !stem.contains("%%"), "{stem}");
        }
    }

    /// Files of a dump in one database, by their names and texts, and what is found in them.
    fn found(files: &[(String, &str)]) -> Result<Vec<(String, Option<String>)>> {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("d")).unwrap();
        for (name, text) in files {
            std::fs::write(root.path().join("d").join(name), text).unwrap();
        }
        let found = scan(root.path(), None, false)?.into_iter().map(|(namespace, files)| {
            assert_eq!(namespace.database, "d");
            let text = files.documents.map(|path| std::fs::read_to_string(path).unwrap());
            (namespace.collection, text)
        });
        let mut found: Vec<_> = found.collect();
        found.sort();
        Ok(found)
    }

    /// The file of the whole dump was refused for one such name, and measurements were passed over without a word.
    #[test]
    fn names_that_are_cut_come_from_metadata() {
        let told = |name: &str, kind: &str| format!(r#"{{"collectionName":"{name}","type":"{kind}"}}"#);
        // As former dumps were cut, and as mongodump's are, which has another checksum.
        let former = |name: &str| {
            let (encoded, checksum) = (encoded(name), checksum(name));
            format!("{}%24{checksum}", &encoded[..STEM_BYTES_KEPT])
        };
        let foreign = |name: &str| format!("{}%24{}", &encoded(name)[..STEM_BYTES_KEPT], "q".repeat(27));
        for stem in [file_stem, former, foreign] {
            for name in ["漢".repeat(31), "ab".to_owned() + &"ж".repeat(60), "x".repeat(240)] {
                let metadata = told(&name, "collection");
                let files = [
                    (format!("{}.bson", stem(&name)), "documents"),
                    (format!("{}.metadata.json", stem(&name)), &metadata),
                ];
                assert_eq!(found(&files).unwrap(), [(name, Some("documents".to_owned()))]);
            }
            // The name of the buckets is longer: it is cut where that of the measurements is not yet.
            for name in ["x".repeat(228), "漢".repeat(26), "漢".repeat(30), "x".repeat(10)] {
                let buckets = format!("system.buckets.{name}");
                let (own, of_buckets) = match (encoded(&name).len(), encoded(&buckets).len()) {
                    (..=STEM_BYTES_MAX, ..=STEM_BYTES_MAX) => (name.clone(), buckets),
                    (..=STEM_BYTES_MAX, _) => (file_stem(&name), stem(&buckets)),
                    _ => (stem(&name), stem(&buckets)),
                };
                let metadata = told(&name, "timeseries");
                let files = [
                    (format!("{of_buckets}.bson"), "buckets"),
                    (format!("{own}.metadata.json"), &metadata),
                ];
                assert_eq!(found(&files).unwrap(), [(name, Some("buckets".to_owned()))]);
            }
        }
        let names = ["1", "2"].map(|end| "x".repeat(230) + end);
        let files = names.clone().map(|name| (file_stem(&name), told(&name, "timeseries")));
        let mut two: Vec<_> = files
            .iter()
            .map(|(stem, told)| (format!("{stem}.metadata.json"), &**told))
            .collect();
        two.extend(
            names
                .iter()
                .map(|name| (format!("{}.bson", former(&format!("system.buckets.{name}"))), "buckets")),
        );
        assert!(found(&two).unwrap().iter().all(|(_, documents)| documents.is_some()));
        // Which file is whose cannot be told.
        let ends = ["q", "r"].map(|end| format!("system.buckets.{}%24{}.bson", "x".repeat(193), end.repeat(27)));
        two.truncate(2);
        two.extend(ends.map(|name| (name, "buckets")));
        assert!(found(&two).is_err());
        assert!(found(&[(format!("{}.bson", former(&"x".repeat(250))), "documents")]).is_err());
    }

    /// Whoever gives the files of a collection another name restores it beside the one that there is.
    #[test]
    fn files_have_the_names_that_they_are_given() {
        let told = r#"{"collectionName":"a","type":"collection"}"#;
        let files = [("copy.bson".to_owned(), "x"), ("copy.metadata.json".to_owned(), told)];
        assert_eq!(found(&files).unwrap(), [("copy".to_owned(), Some("x".to_owned()))]);
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
