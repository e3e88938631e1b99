//! A copy by files, between members of the same engine: those of a checkpoint, and of the log behind it.
//!
//! Files are copied one after another. What has come is synced now and then, and where that ends is noted beside the
//! copy, so that one that was cut short goes on from there.

use super::Members;
use super::fetch::{Exchange, Fetcher};
use crate::data_directory::{BegunCopy, CopyPlace};
use bson::raw::{RawDocument, RawDocumentBuf};
use commands::{CopiedFile, ask, read_copy_piece};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use vfs::{Access, FileSystem};

/// Bytes after which what has come is synced.
const SYNCED_BYTES: u64 = 256 << 20;

/// A piece of a file, by its place in the list and its offset.
struct PiecesOf(i64);

impl Exchange for PiecesOf {
    type Question = (usize, u64);
    type Answer = Vec<u8>;

    fn ask(&self, (file, offset): &(usize, u64)) -> RawDocumentBuf {
        ask::piece(self.0, *file, *offset)
    }

    fn read(&self, reply: &RawDocument) -> Result<Vec<u8>, String> {
        read_copy_piece(reply)
    }
}

/// Where a file of the copy lies.
fn path_of(place: &CopyPlace, file: &CopiedFile) -> PathBuf {
    match file.is_log {
        true => place.journal.join(&file.name),
        false => place.engine.join(&file.name),
    }
}

fn failed(path: &Path) -> impl Fn(std::io::Error) -> String {
    let path = path.display().to_string();
    move |error| format!("{path}: {error}")
}

/// Copies what is missing, and has all of it on disk on return. `begun` says where to go on, and is kept up to date.
///
/// # Errors
/// A sentence: the source is gone, or the disk failed.
pub fn copy_files(
    members: &Arc<Members>,
    place: &CopyPlace,
    files: &[CopiedFile],
    begun: &mut BegunCopy,
) -> Result<(), String> {
    let fs = &*members.server.env.fs;
    let mut fetcher = Fetcher::start(members, &begun.source, PiecesOf(begun.copy))?;
    let lengths = files.iter().map(|file| file.bytes);
    let done: u64 = lengths.clone().take(begun.file).sum::<u64>() + begun.offset;
    members.note_copied(|progress| {
        progress.by_files = true;
        progress.tables = (begun.file as u64, files.len() as u64);
        progress.bytes = done;
        progress.bytes_total = lengths.sum();
    });
    let directories = make_directories(fs, place, files)?;
    let mut unsynced = 0;
    for (number, file) in files.iter().enumerate().skip(begun.file) {
        let path = path_of(place, file);
        let target = fs.open(&path, Access::OpenOrCreate).map_err(failed(&path))?;
        let mut offset = begun.offset;
        target.set_len(offset).map_err(failed(&path))?;
        while offset < file.bytes {
            let then = |piece: &Vec<u8>| {
                let next = offset + piece.len() as u64;
                let behind = files.get(number + 1).filter(|next| next.bytes > 0);
                match next < file.bytes {
                    true => Some((number, next)),
                    false => behind.map(|_| (number + 1, 0)),
                }
            };
            let piece = fetcher.fetch((number, offset), then)?;
            let length = piece.len() as u64;
            if length == 0 || length > file.bytes - offset {
                return Err(format!("{}: the source sent {length} bytes", file.name.display()));
            }
            target.write_all_at(&piece, offset).map_err(failed(&path))?;
            offset += length;
            unsynced += length;
            members.note_copied(|progress| progress.bytes += length);
            if unsynced >= SYNCED_BYTES && offset < file.bytes {
                target.sync_data().map_err(failed(&path))?;
                unsynced = 0;
                begun.offset = offset;
                note(fs, place, &directories, begun)?;
            }
        }
        target.sync_data().map_err(failed(&path))?;
        (begun.file, begun.offset) = (number + 1, 0);
        members.note_copied(|progress| progress.tables.0 += 1);
        if unsynced >= SYNCED_BYTES {
            unsynced = 0;
            note(fs, place, &directories, begun)?;
        }
    }
    sync_directories(fs, &directories)
}

/// Makes the directories that the files lie in, and names them, the inner ones last.
fn make_directories(fs: &dyn FileSystem, place: &CopyPlace, files: &[CopiedFile]) -> Result<BTreeSet<PathBuf>, String> {
    let mut directories = BTreeSet::from([place.engine.clone(), place.journal.clone()]);
    for file in files {
        let path = path_of(place, file);
        let root = if file.is_log { &place.journal } else { &place.engine };
        let inner = path
            .ancestors()
            .skip(1)
            .take_while(|directory| directory.starts_with(root));
        directories.extend(inner.map(Path::to_owned));
    }
    for directory in &directories {
        fs.create_directory_all(directory).map_err(failed(directory))?;
    }
    Ok(directories)
}

/// Notes where to go on: behind what is on disk, and found there.
fn note(
    fs: &dyn FileSystem,
    place: &CopyPlace,
    directories: &BTreeSet<PathBuf>,
    begun: &BegunCopy,
) -> Result<(), String> {
    sync_directories(fs, directories)?;
    place.note_begun(fs, begun).map_err(|error| error.to_string())
}

fn sync_directories(fs: &dyn FileSystem, directories: &BTreeSet<PathBuf>) -> Result<(), String> {
    let mut synced = directories.iter();
    synced.try_for_each(|directory| fs.sync_directory(directory).map_err(failed(directory)))
}
