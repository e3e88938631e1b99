//! The journal: what was written since the data files were flushed last, replayed into an [`Image`].
//!
//! 1. `lsn` says up to which moment the data files were on the disk. A damaged one says nothing: everything is
//!    replayed, which is right, too, since the sections are in order.
//! 2. Files `j._N` are read by their numbers, each section whole: its length, its file's id, its checksum, its
//!    compression and all its entries are checked before the first of them is applied, as a section is one atomic step.
//! 3. The first section that is not as it should be ends the replay. At the end of the last file that is what a crash
//!    leaves; if there is more behind it, it is damage.

use crate::directory::file_of;
use crate::error::{Doing, Result};
use crate::finding::{Fault, Finding, Findings};
use crate::image::{Image, Part};
use crate::layout::{FILE_HEADER_BYTES, Fields, until_nul};
use codec::{Codec, Decompressor};
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use vfs::{Access, File, FileSystem};

const FOLDER: &str = "journal";
const MAGIC: [u8; 2] = *b"j\n";
/// The format with compression, of all versions since 2.0.
const VERSION: u16 = 0x4149;
const SECTION_ALIGNMENT: u64 = 8192;
const SECTION_HEADER_BYTES: usize = 20;
const SECTION_FOOTER_BYTES: usize = 32;
const FOOTER_SENTINEL: u32 = 0xFFFF_FFFF;
/// A section has what was written in some 100 ms, at most 512 MB; more is no section.
const SECTION_BYTES_MAX: usize = 1 << 30;
/// Sections of so many milliseconds before the last flush are replayed, too: a clock is not exact.
const REPLAYED_BEFORE_MS: u64 = 10_000;
const LSN_BYTES: usize = 88;

const OP_CONTEXT: u32 = 0xFFFF_FFFE;
const OP_FILE_CREATED: u32 = 0xFFFF_FFFD;
const OP_DROP_DATABASE: u32 = 0xFFFF_FFFC;
/// Everything from here on is no length of bytes.
const OP_MIN: u32 = 0xFFFF_0000;
const FILE_OF_LOCAL: u32 = 0x8000_0000;
const FILE_IS_CATALOG: u32 = 0x7FFF_FFFF;
/// A data file has at most 2 GiB less 1 MiB.
const FILE_BYTES_MAX: u64 = 0x7FF0_0000;

/// What was done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Replayed {
    /// Files of the journal that were there.
    pub files: u64,
    /// Sections that were applied.
    pub sections: u64,
    /// Sections that the data files had already.
    pub skipped: u64,
    /// Pieces of bytes in them.
    pub writes: u64,
}

/// Why a section is none.
type Broken = String;

pub(crate) fn replay(fs: &dyn FileSystem, root: &Path, image: &mut Image, findings: &mut Findings) -> Result<Replayed> {
    let folder = root.join(FOLDER);
    let mut replayed = Replayed::default();
    if !fs
        .exists(&folder)
        .doing(|| format!("looking for {}", folder.display()))?
    {
        return Ok(replayed);
    }
    let mut files: Vec<(u64, PathBuf)> = fs
        .list(&folder)
        .doing(|| format!("listing {}", folder.display()))?
        .into_iter()
        .filter_map(|name| Some((number_of(name.to_str()?)?, name)))
        .collect();
    files.sort();
    let flushed_ms = read_lsn(fs, &folder);
    let mut replay = Replay {
        image,
        findings,
        flushed_ms,
        replayed: &mut replayed,
        decompressor: Decompressor::new(),
        missing: HashSet::new(),
    };
    let mut before: Option<u64> = None;
    for (n, (number, name)) in files.iter().enumerate() {
        let shown = Path::new(FOLDER).join(name).display().to_string();
        if let Some(missing) = before.replace(*number).map(|before| before + 1)
            && missing != *number
        {
            // What it changes may have been changed by what is missing first.
            let why = format!("j._{missing}, which comes before it, is missing");
            replay.found(&shown, None, Fault::JournalSection { why });
            break;
        }
        replay.replayed.files += 1;
        let file = match fs.open(&folder.join(name), Access::Read) {
            Ok(file) => file,
            Err(error) => {
                let fault = Fault::Unreadable {
                    error: error.to_string(),
                };
                replay.found(&shown, None, fault);
                break;
            }
        };
        let is_last = n + 1 == files.len();
        if !replay.file(&*file, &shown, is_last) {
            break;
        }
    }
    Ok(replayed)
}

/// The number of a file of the journal, whose name is as servers write it.
fn number_of(name: &str) -> Option<u64> {
    let number = name.strip_prefix("j._")?.parse::<u64>().ok()?;
    (name == format!("j._{number}")).then_some(number)
}

/// Milliseconds of the server's clock up to which the data files are whole.
fn read_lsn(fs: &dyn FileSystem, folder: &Path) -> u64 {
    let mut bytes = [0; LSN_BYTES];
    let read = fs
        .open(&folder.join("lsn"), Access::Read)
        .and_then(|file| file.read_exact_at(&mut bytes, 0));
    let fields = Fields(&bytes);
    match (read, fields.u64(8)) {
        (Ok(()), lsn) if fields.u64(16) == !lsn => lsn,
        _ => 0,
    }
}

struct Replay<'r> {
    image: &'r mut Image,
    findings: &'r mut Findings,
    flushed_ms: u64,
    replayed: &'r mut Replayed,
    decompressor: Decompressor,
    /// Files that the journal changes where they are not.
    missing: HashSet<String>,
}

/// An entry of a section.
enum Entry<'s> {
    Write {
        database: String,
        part: Part,
        offset: u64,
        bytes: &'s [u8],
    },
    CreateFile {
        path: String,
        bytes: u64,
    },
    DropDatabase(String),
}

impl Replay<'_> {
    fn found(&mut self, file: &str, offset: Option<u64>, fault: Fault) {
        self.findings.add(Finding {
            file: file.to_owned(),
            offset,
            namespace: None,
            fault,
        });
    }

    /// True when the next file may follow.
    fn file(&mut self, file: &dyn File, shown: &str, is_last: bool) -> bool {
        let id = match read_header(file) {
            Ok(Some(id)) => id,
            // A file that was made and has no header yet.
            Ok(None) if is_last => return false,
            Ok(None) => {
                self.found(
                    shown,
                    None,
                    Fault::JournalHeader {
                        why: "it is empty".to_owned(),
                    },
                );
                return false;
            }
            Err(why) => {
                self.found(shown, None, Fault::JournalHeader { why });
                return false;
            }
        };
        let length = file.len().unwrap_or(0);
        let mut at = FILE_HEADER_BYTES;
        while at < length {
            let read = match read_section(file, at, length, id) {
                Ok(Some(section)) => match self.section(&section, shown, at) {
                    Ok(()) => Ok(section.len() as u64),
                    // Its checksum is right, so no crash has torn it.
                    Err(why) => {
                        self.found(shown, Some(at), Fault::JournalSection { why });
                        return false;
                    }
                },
                // The rest was written into an older use of the file, or never: the orderly end of the last one.
                Ok(None) if is_last && !has_later_section(file, at, length, id) => return false,
                Ok(None) if is_last => Err("the header of a section is wrong".to_owned()),
                Ok(None) => Err("the file ends here, and another one follows".to_owned()),
                Err(why) => Err(why),
            };
            match read {
                Ok(bytes) => at += bytes.next_multiple_of(SECTION_ALIGNMENT),
                Err(why) => {
                    // The last section may be torn by the crash. With whole ones behind it, it is not the last.
                    if !is_last || has_later_section(file, at, length, id) {
                        self.found(shown, Some(at), Fault::JournalSection { why });
                    }
                    return false;
                }
            }
        }
        true
    }

    /// Applies a section whose checksum is right.
    fn section(&mut self, section: &[u8], shown: &str, at: u64) -> std::result::Result<(), Broken> {
        let time_ms = Fields(section).u64(4);
        if time_ms.saturating_add(REPLAYED_BEFORE_MS) < self.flushed_ms {
            self.replayed.skipped += 1;
            return Ok(());
        }
        let stored = &section[SECTION_HEADER_BYTES..section.len() - SECTION_FOOTER_BYTES];
        let raw_bytes = snap::raw::decompress_len(stored).map_err(|error| error.to_string())?;
        // Snappy makes at most 64 bytes of 3; a claim of more would only take memory.
        if raw_bytes > SECTION_BYTES_MAX || raw_bytes / 32 > stored.len() {
            return Err(format!("{} bytes compressed as {}", raw_bytes, stored.len()));
        }
        let mut raw = Vec::new();
        self.decompressor
            .decompress(Codec::Snappy, stored, raw_bytes, &mut raw)
            .map_err(|error| error.to_string())?;
        let entries = parse(&raw)?;
        for entry in entries {
            self.apply(entry, shown, at);
        }
        self.replayed.sections += 1;
        Ok(())
    }

    fn apply(&mut self, entry: Entry<'_>, shown: &str, at: u64) {
        match entry {
            Entry::Write {
                database,
                part,
                offset,
                bytes,
            } => {
                self.replayed.writes += 1;
                let file = self.image.find(&database, part);
                let written = file.map(|file| self.image.write(file, offset, bytes));
                match written {
                    Some(Ok(())) => {}
                    Some(Err(error)) if error.kind() != std::io::ErrorKind::UnexpectedEof => {
                        let error = error.to_string();
                        self.found(shown, Some(at), Fault::Unreadable { error });
                    }
                    _ => {
                        // A file that is missing is told once, not for each of thousands of writes.
                        let file = format!("{database}.{}", part.ending());
                        if self.missing.insert(file.clone()) {
                            self.found(shown, Some(at), Fault::JournalWrite { file, place: offset });
                        }
                    }
                }
            }
            Entry::CreateFile { path, bytes } => {
                let name = path.rsplit('/').next().unwrap_or(&path);
                if let Some((database, part)) = file_of(name) {
                    self.image.create(database, part, PathBuf::from(&path), bytes);
                }
            }
            Entry::DropDatabase(database) => self.image.drop_database(&database),
        }
    }
}

/// The file's id; `None` when nothing has been written yet.
fn read_header(file: &dyn File) -> std::result::Result<Option<u64>, Broken> {
    let mut header = vec![0; FILE_HEADER_BYTES as usize];
    if file.len().map_err(|error| error.to_string())? == 0 {
        return Ok(None);
    }
    file.read_exact_at(&mut header, 0).map_err(|error| error.to_string())?;
    if header.iter().all(|&byte| byte == 0) {
        return Ok(None);
    }
    let fields = Fields(&header);
    if header[..2] != MAGIC || header[header.len() - 2..] != *b"\n\n" {
        return Err("it does not begin as one".to_owned());
    }
    match fields.u16(2) {
        VERSION => Ok(Some(fields.u64(156))),
        version => Err(format!("version {version:#x}")),
    }
}

/// A section with header and footer, its checksum right; `None` where there is no section of this file.
fn read_section(file: &dyn File, at: u64, length: u64, id: u64) -> std::result::Result<Option<Vec<u8>>, Broken> {
    let mut header = [0; SECTION_HEADER_BYTES];
    if length - at < SECTION_HEADER_BYTES as u64 {
        return Ok(None);
    }
    file.read_exact_at(&mut header, at).map_err(|error| error.to_string())?;
    let fields = Fields(&header);
    if fields.u64(12) != id {
        return Ok(None);
    }
    let bytes = fields.u32(0) as usize;
    let possible = SECTION_HEADER_BYTES + SECTION_FOOTER_BYTES..=SECTION_BYTES_MAX;
    if !possible.contains(&bytes) || bytes as u64 > length - at {
        return Err(format!("a section of {bytes} bytes"));
    }
    let mut section = vec![0; bytes];
    file.read_exact_at(&mut section, at)
        .map_err(|error| error.to_string())?;
    let (content, footer) = section.split_at(bytes - SECTION_FOOTER_BYTES);
    let footer = Fields(footer);
    if footer.u32(0) != FOOTER_SENTINEL || [footer.u64(4), footer.u64(12)] != checksum(content) {
        return Err("the checksum of a section is wrong".to_owned());
    }
    Ok(Some(section))
}

/// The checksum of a section's header and content: two sums, over words of the first and of the second half, each word
/// mixed with its number; what is left behind whole pairs of words goes into the second as digits of signed bytes.
fn checksum(content: &[u8]) -> [u64; 2] {
    let half = content.len() / 16 * 8;
    let sum = |words: &[u8]| {
        let words = words.chunks_exact(8).enumerate();
        words.fold(0u64, |sum, (n, word)| sum.wrapping_add(Fields(word).u64(0) ^ n as u64))
    };
    let rest = content[2 * half..].iter().fold(0u64, |rest, &byte| {
        rest << 8 | i64::from(byte.cast_signed()).cast_unsigned()
    });
    [
        sum(&content[..half]) ^ content.len() as u64,
        sum(&content[half..2 * half]) ^ rest,
    ]
}

/// Does a whole section of this file stand anywhere behind?
fn has_later_section(file: &dyn File, at: u64, length: u64, id: u64) -> bool {
    let first = at + SECTION_ALIGNMENT;
    (first..length)
        .step_by(SECTION_ALIGNMENT as usize)
        .any(|at| matches!(read_section(file, at, length, id), Ok(Some(_))))
}

/// Takes bytes off the front of a section.
struct Cursor<'s>(&'s [u8]);

impl<'s> Cursor<'s> {
    fn take(&mut self, bytes: usize) -> std::result::Result<&'s [u8], Broken> {
        let split = self.0.split_at_checked(bytes);
        let (taken, rest) = split.ok_or_else(|| "a section ends within an entry".to_owned())?;
        self.0 = rest;
        Ok(taken)
    }

    fn u32(&mut self) -> std::result::Result<u32, Broken> {
        Ok(Fields(self.take(4)?).u32(0))
    }

    fn text(&mut self) -> std::result::Result<&'s str, Broken> {
        let bytes = until_nul(self.0);
        self.take(bytes.len())?;
        if self.take(1)? != [0] {
            return Err("a name that does not end".to_owned());
        }
        std::str::from_utf8(bytes).map_err(|_| "a name that is not UTF-8".to_owned())
    }
}

fn parse(raw: &[u8]) -> std::result::Result<Vec<Entry<'_>>, Broken> {
    let mut cursor = Cursor(raw);
    let mut entries = Vec::new();
    let mut context: Option<String> = None;
    while !cursor.0.is_empty() {
        match cursor.u32()? {
            OP_CONTEXT => {
                // With a folder for each database the name is that of the folder and of the file.
                let text = cursor.text()?;
                context = Some(text.rsplit('/').next().unwrap_or(text).to_owned());
            }
            OP_FILE_CREATED => {
                cursor.take(16)?;
                let bytes = Fields(cursor.take(8)?).u64(0);
                let path = cursor.text()?.to_owned();
                if bytes > FILE_BYTES_MAX || !is_own_path(&path) {
                    return Err(format!("a file {path:?} of {bytes} bytes"));
                }
                entries.push(Entry::CreateFile { path, bytes });
            }
            OP_DROP_DATABASE => {
                cursor.take(16)?;
                entries.push(Entry::DropDatabase(cursor.text()?.to_owned()));
                // Reserved.
                cursor.text()?;
            }
            op if op >= OP_MIN => return Err(format!("an unknown entry {op:#x}")),
            length => {
                let offset = cursor.u32()?;
                let file = cursor.u32()?;
                let database = match (file & FILE_OF_LOCAL != 0, &context) {
                    (true, _) => "local".to_owned(),
                    (false, Some(context)) => context.clone(),
                    (false, None) => return Err("a write to no database".to_owned()),
                };
                let part = match file & !FILE_OF_LOCAL {
                    FILE_IS_CATALOG => Part::Catalog,
                    number => Part::Data(u16::try_from(number).map_err(|_| format!("a data file {number}"))?),
                };
                let bytes = cursor.take(length as usize)?;
                entries.push(Entry::Write {
                    database,
                    part,
                    offset: u64::from(offset),
                    bytes,
                });
            }
        }
    }
    Ok(entries)
}

/// A file of a database in the directory or in the database's folder.
fn is_own_path(path: &str) -> bool {
    match path.split_once('/') {
        Some((folder, name)) => file_of(name).is_some_and(|(database, _)| database == folder),
        None => file_of(path).is_some(),
    }
}
