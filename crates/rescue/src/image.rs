//! The files of a directory as the journal leaves them, without a change to any of them.
//!
//! What the journal writes stands in pages of their own, in memory up to a bound and in a scratch file from there on. A
//! file that the journal makes has no bytes of the directory's file of that name, if there is one.

use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use vfs::{Access, File, FileSystem};

const PAGE_BYTES: usize = 4096;
/// Files that stay open: a directory may have more than a process may have descriptors.
const OPEN_FILES_MAX: usize = 64;
/// Pieces that a reader reads, and how many of them it keeps.
const CHUNK_BYTES: usize = 64 << 10;
const CHUNKS: usize = 256;

/// One file of a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Part {
    /// `NAME.ns`
    Catalog,
    /// `NAME.N`
    Data(u16),
}

impl Part {
    pub(crate) fn ending(self) -> String {
        match self {
            Self::Catalog => "ns".to_owned(),
            Self::Data(number) => number.to_string(),
        }
    }
}

/// A file of an image, by its place in the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct FileIndex(usize);

struct ImageFile {
    /// In the directory.
    path: PathBuf,
    bytes: u64,
    /// So many bytes are the directory's, where there is no page; zeros follow.
    base_bytes: u64,
    pages: HashMap<u32, u32>,
}

/// Pages by number, in the order in which they were made.
struct PageStore {
    memory: Vec<Box<[u8; PAGE_BYTES]>>,
    memory_max: usize,
    scratch_path: Option<PathBuf>,
    scratch: Option<Arc<dyn File>>,
    count: u32,
}

pub(crate) struct Image {
    fs: Arc<dyn FileSystem>,
    root: PathBuf,
    files: Vec<ImageFile>,
    names: BTreeMap<(String, Part), FileIndex>,
    store: PageStore,
    open: Mutex<Vec<(FileIndex, Arc<dyn File>)>>,
}

impl Image {
    /// Without a path for the scratch file all pages stay in memory.
    pub(crate) fn new(fs: Arc<dyn FileSystem>, root: &Path, memory_bytes: usize, scratch: Option<PathBuf>) -> Self {
        Self {
            fs,
            root: root.to_owned(),
            files: Vec::new(),
            names: BTreeMap::new(),
            store: PageStore {
                memory: Vec::new(),
                memory_max: memory_bytes / PAGE_BYTES,
                scratch_path: scratch,
                scratch: None,
                count: 0,
            },
            open: Mutex::default(),
        }
    }

    /// Adds a file of the directory.
    pub(crate) fn add(&mut self, database: &str, part: Part, path: PathBuf, bytes: u64) {
        self.put(database, part, path, bytes, bytes);
    }

    /// A new file of zeros, instead of one that may be there.
    pub(crate) fn create(&mut self, database: &str, part: Part, path: PathBuf, bytes: u64) {
        self.put(database, part, path, bytes, 0);
    }

    fn put(&mut self, database: &str, part: Part, path: PathBuf, bytes: u64, base_bytes: u64) {
        let index = FileIndex(self.files.len());
        self.files.push(ImageFile {
            path,
            bytes,
            base_bytes,
            pages: HashMap::new(),
        });
        self.names.insert((database.to_owned(), part), index);
    }

    pub(crate) fn drop_database(&mut self, database: &str) {
        self.names.retain(|(name, _), _| name != database);
    }

    pub(crate) fn find(&self, database: &str, part: Part) -> Option<FileIndex> {
        // The key is made for each question: they are few, beside those to a file that was found.
        self.names.get(&(database.to_owned(), part)).copied()
    }

    pub(crate) fn databases(&self) -> Vec<String> {
        let mut names: Vec<String> = self.names.keys().map(|(name, _)| name.clone()).collect();
        names.dedup();
        names
    }

    /// Numbers of the data files of a database, in order.
    pub(crate) fn data_files(&self, database: &str) -> Vec<(u16, FileIndex)> {
        let of_database = self.names.iter().filter(|((name, _), _)| name == database);
        of_database
            .filter_map(|((_, part), &file)| match part {
                Part::Data(number) => Some((*number, file)),
                Part::Catalog => None,
            })
            .collect()
    }

    pub(crate) fn bytes(&self, file: FileIndex) -> u64 {
        self.files[file.0].bytes
    }

    pub(crate) fn name(&self, file: FileIndex) -> String {
        self.files[file.0].path.display().to_string()
    }

    /// Bytes of the files of a database.
    pub(crate) fn database_bytes(&self, database: &str) -> u64 {
        let files = self.data_files(database);
        files.iter().map(|&(_, file)| self.bytes(file)).sum()
    }

    fn base(&self, file: FileIndex) -> io::Result<Arc<dyn File>> {
        let mut open = self.open.lock();
        if let Some(at) = open.iter().position(|(index, _)| *index == file) {
            let entry = open.remove(at);
            let found = entry.1.clone();
            open.push(entry);
            return Ok(found);
        }
        let opened = self.fs.open(&self.root.join(&self.files[file.0].path), Access::Read)?;
        if open.len() >= OPEN_FILES_MAX {
            open.remove(0);
        }
        open.push((file, opened.clone()));
        Ok(opened)
    }

    /// Fills the buffer, which must lie within the file.
    pub(crate) fn read(&self, file: FileIndex, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let entry = &self.files[file.0];
        let end = offset.checked_add(buffer.len() as u64);
        if end.is_none_or(|end| end > entry.bytes) {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        if entry.pages.is_empty() {
            return self.read_base(file, offset, buffer);
        }
        let mut done = 0;
        while done < buffer.len() {
            let at = offset + done as u64;
            let within = (at % PAGE_BYTES as u64) as usize;
            let piece = (PAGE_BYTES - within).min(buffer.len() - done);
            let target = &mut buffer[done..done + piece];
            match entry.pages.get(&page_of(at)) {
                Some(&slot) => self.store.read(slot, within, target)?,
                None => self.read_base(file, at, target)?,
            }
            done += piece;
        }
        Ok(())
    }

    /// As [`Image::read`], for structures.
    pub(crate) fn read_array<const N: usize>(&self, file: FileIndex, offset: u64) -> io::Result<[u8; N]> {
        let mut bytes = [0; N];
        self.read(file, offset, &mut bytes)?;
        Ok(bytes)
    }

    /// What stands in the directory's file, and zeros behind it.
    fn read_base(&self, file: FileIndex, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let there = self.files[file.0].base_bytes.saturating_sub(offset);
        let split = usize::try_from(there).unwrap_or(usize::MAX).min(buffer.len());
        let (old, zeros) = buffer.split_at_mut(split);
        zeros.fill(0);
        if old.is_empty() {
            return Ok(());
        }
        self.base(file)?.read_exact_at(old, offset)
    }

    /// Writes into pages; the bytes must lie within the file.
    pub(crate) fn write(&mut self, file: FileIndex, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let end = offset.checked_add(bytes.len() as u64);
        if end.is_none_or(|end| end > self.bytes(file)) {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        let mut done = 0;
        while done < bytes.len() {
            let at = offset + done as u64;
            let within = (at % PAGE_BYTES as u64) as usize;
            let piece = (PAGE_BYTES - within).min(bytes.len() - done);
            let source = &bytes[done..done + piece];
            let page = page_of(at);
            let slot = match self.files[file.0].pages.get(&page) {
                Some(&slot) => slot,
                None => {
                    let mut old = Box::new([0; PAGE_BYTES]);
                    let start = u64::from(page) * PAGE_BYTES as u64;
                    let there = self.bytes(file).saturating_sub(start).min(PAGE_BYTES as u64);
                    self.read_base(file, start, &mut old[..there as usize])?;
                    let slot = self.store.add(&*self.fs, old)?;
                    self.files[file.0].pages.insert(page, slot);
                    slot
                }
            };
            self.store.write(slot, within, source)?;
            done += piece;
        }
        Ok(())
    }
}

/// Files have at most 2 GiB.
fn page_of(offset: u64) -> u32 {
    u32::try_from(offset / PAGE_BYTES as u64).expect("offsets within files of less than 16 TiB")
}

impl PageStore {
    fn add(&mut self, fs: &dyn FileSystem, page: Box<[u8; PAGE_BYTES]>) -> io::Result<u32> {
        let slot = self.count;
        match (&self.scratch_path, (slot as usize) < self.memory_max) {
            (Some(path), false) => {
                if self.scratch.is_none() {
                    let file = fs.open(path, Access::CreateNew)?;
                    // Nobody else needs its name, and it goes with the process.
                    fs.remove_file(path)?;
                    self.scratch = Some(file);
                }
                let offset = self.scratch_offset(slot);
                let file = self.scratch.as_ref().expect("made above");
                file.write_all_at(&page[..], offset)?;
            }
            _ => self.memory.push(page),
        }
        self.count += 1;
        Ok(slot)
    }

    /// Pages in memory are the first ones.
    fn scratch_offset(&self, slot: u32) -> u64 {
        (u64::from(slot) - self.memory.len() as u64) * PAGE_BYTES as u64
    }

    fn scratch(&self) -> &Arc<dyn File> {
        self.scratch
            .as_ref()
            .expect("a page that is not in memory is in the scratch file")
    }

    fn read(&self, slot: u32, within: usize, buffer: &mut [u8]) -> io::Result<()> {
        match self.memory.get(slot as usize) {
            Some(page) => {
                buffer.copy_from_slice(&page[within..within + buffer.len()]);
                Ok(())
            }
            None => self
                .scratch()
                .read_exact_at(buffer, self.scratch_offset(slot) + within as u64),
        }
    }

    fn write(&mut self, slot: u32, within: usize, bytes: &[u8]) -> io::Result<()> {
        match self.memory.get_mut(slot as usize) {
            Some(page) => {
                page[within..within + bytes.len()].copy_from_slice(bytes);
                Ok(())
            }
            None => self
                .scratch()
                .write_all_at(bytes, self.scratch_offset(slot) + within as u64),
        }
    }
}

struct Chunk {
    file: FileIndex,
    number: u64,
    bytes: Vec<u8>,
}

/// Reads small pieces of an image by larger ones, of which the last are kept.
pub(crate) struct Reader<'i> {
    image: &'i Image,
    chunks: Vec<Option<Chunk>>,
}

impl<'i> Reader<'i> {
    pub(crate) fn new(image: &'i Image) -> Self {
        Self {
            image,
            chunks: std::iter::repeat_with(|| None).take(CHUNKS).collect(),
        }
    }

    pub(crate) fn image(&self) -> &'i Image {
        self.image
    }

    /// As [`Image::read`].
    pub(crate) fn read(&mut self, file: FileIndex, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let end = offset.checked_add(buffer.len() as u64);
        if end.is_none_or(|end| end > self.image.bytes(file)) {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        if buffer.len() > CHUNK_BYTES {
            return self.image.read(file, offset, buffer);
        }
        let mut done = 0;
        while done < buffer.len() {
            let at = offset + done as u64;
            let within = (at % CHUNK_BYTES as u64) as usize;
            let piece = (CHUNK_BYTES - within).min(buffer.len() - done);
            let target = &mut buffer[done..done + piece];
            match self.chunk(file, at / CHUNK_BYTES as u64) {
                Some(bytes) => target.copy_from_slice(&bytes[within..within + piece]),
                // Something in the chunk cannot be read, which need not be what is wanted of it.
                None => self.image.read(file, at, target)?,
            }
            done += piece;
        }
        Ok(())
    }

    /// Fixed pieces, for structures.
    pub(crate) fn array<const N: usize>(&mut self, file: FileIndex, offset: u64) -> io::Result<[u8; N]> {
        let mut bytes = [0; N];
        self.read(file, offset, &mut bytes)?;
        Ok(bytes)
    }

    fn chunk(&mut self, file: FileIndex, number: u64) -> Option<&[u8]> {
        let place = ((number ^ (file.0 as u64) << 3) % CHUNKS as u64) as usize;
        let is_there = matches!(&self.chunks[place], Some(chunk) if chunk.file == file && chunk.number == number);
        if !is_there {
            let start = number * CHUNK_BYTES as u64;
            let length = self.image.bytes(file).saturating_sub(start).min(CHUNK_BYTES as u64);
            let mut bytes = self.chunks[place].take().map_or_else(Vec::new, |chunk| chunk.bytes);
            bytes.resize(length as usize, 0);
            self.image.read(file, start, &mut bytes).ok()?;
            self.chunks[place] = Some(Chunk { file, number, bytes });
        }
        self.chunks[place].as_ref().map(|chunk| &*chunk.bytes)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use vfs::SimulatedFs;

    fn image(memory_bytes: usize, scratch: Option<&str>) -> (SimulatedFs, Image) {
        let fs = SimulatedFs::new(1);
        fs.create_directory_all(Path::new("/d")).unwrap();
        let file = fs.open(Path::new("/d/a.0"), Access::CreateNew).unwrap();
        file.write_all_at(&[7; 10_000], 0).unwrap();
        let mut image = Image::new(
            Arc::new(fs.clone()),
            Path::new("/d"),
            memory_bytes,
            scratch.map(PathBuf::from),
        );
        image.add("a", Part::Data(0), "a.0".into(), 10_000);
        image.create("a", Part::Data(1), "a.1".into(), 70_000);
        (fs, image)
    }

    #[test]
    fn what_is_written_is_read_and_the_file_stays() {
        // All pages in memory, some of them, none.
        for (memory, scratch) in [
            (1 << 20, None),
            (3 * PAGE_BYTES, Some("/d/scratch")),
            (0, Some("/d/scratch")),
        ] {
            let (fs, mut image) = image(memory, scratch);
            let (old, new) = (
                image.find("a", Part::Data(0)).unwrap(),
                image.find("a", Part::Data(1)).unwrap(),
            );
            let mut model = [vec![7; 10_000], vec![0; 70_000]];
            for (step, (offset, length)) in [(0, 10), (4000, 5000), (9990, 10), (4095, 2)].into_iter().enumerate() {
                for (file, model) in [old, new].into_iter().zip(&mut model) {
                    let bytes = vec![step as u8 + 100; length];
                    image.write(file, offset as u64, &bytes).unwrap();
                    model[offset..offset + length].copy_from_slice(&bytes);
                }
            }
            let mut reader = Reader::new(&image);
            for (file, model) in [(old, &model[0]), (new, &model[1])] {
                let mut read = vec![0; model.len()];
                image.read(file, 0, &mut read).unwrap();
                assert_eq!(&read, model);
                let mut part = vec![0; 6000];
                reader.read(file, 3999, &mut part).unwrap();
                assert_eq!(part, model[3999..9999]);
                assert!(reader.read(file, model.len() as u64 - 1, &mut part).is_err());
                assert!(reader.read(file, u64::MAX, &mut part).is_err());
            }
            assert!(image.write(old, 9999, &[0; 2]).is_err());
            let mut kept = vec![0; 10_000];
            fs.open(Path::new("/d/a.0"), Access::Read)
                .unwrap()
                .read_exact_at(&mut kept, 0)
                .unwrap();
            assert_eq!(kept, vec![7; 10_000]);
            assert_eq!(fs.list(Path::new("/d")).unwrap(), [PathBuf::from("a.0")]);
        }
    }
}
