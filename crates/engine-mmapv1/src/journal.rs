//! The doubled write: what a checkpoint is about to write in place, written aside first.
//!
//! | bytes | |
//! |---|---|
//! | 0..8 | `TENONmmJ` |
//! | 8..12 | format version |
//! | 12..16 | length of the root's body |
//! | 16..24 | generation: that of the root |
//! | 24..32 | number of images |
//! | 32..40 | length of everything behind the header |
//! | 40..44 | checksum of everything behind the header |
//! | 44..48 | checksum of the bytes before |
//! | 48.. | the new root's body, then the images |
//!
//! Of encrypted data the body and the bytes of each image, a whole page then, are encrypted, with the seal before them.
//!
//! An image is database (4, its number in the root), file (4, all ones for the namespace file), page (4), sectors
//! (2), 2 unused, and the bytes of the sectors. When the journal is synced the checkpoint has happened: whatever
//! crashes then, opening writes the images in place. It overwrites the journal before, whose images have all been
//! synced in place.

use crate::bytes_at::{put, u16_at, u32_at, u64_at};
use crate::files::{Page, corrupt, io_error};
use crate::loc::{ALL_SECTORS, PAGE_BYTES, SECTOR_BYTES};
use crate::root::{Root, version};
use crate::sealing::{open_text, seal_text};
use crypt::{Keys, SEAL_BYTES, SealError};
use engine::Result;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use vfs::{Access, Env, File};

const MAGIC: u64 = u64::from_le_bytes(*b"TENONmmJ");
const HEADER_BYTES: usize = 48;
const IMAGE_HEADER_BYTES: usize = 16;
const WRITE_BYTES: usize = 1 << 20;
/// A journal longer than this is cut when its images are in place.
const KEPT_BYTES: u64 = 64 << 10;
pub(crate) const FILE_NAME: &str = "journal";

/// Sectors of a page, and where they belong.
pub(crate) struct Image {
    /// The number in the root.
    pub(crate) database: u32,
    /// A data file's number, or [`crate::loc::NAMESPACE_FILE`].
    pub(crate) file: u32,
    pub(crate) page: u32,
    pub(crate) sectors: u16,
    pub(crate) bytes: Page,
}

impl Image {
    fn header(&self) -> [u8; IMAGE_HEADER_BYTES] {
        let mut header = [0; IMAGE_HEADER_BYTES];
        let fields = [self.database, self.file, self.page, self.sectors.into()];
        for (number, field) in fields.iter().enumerate() {
            put(&mut header, 4 * number, &field.to_le_bytes());
        }
        header
    }

    /// The runs of sectors to write: offsets in the page.
    pub(crate) fn runs(sectors: u16) -> impl Iterator<Item = std::ops::Range<usize>> {
        let mut next = 0;
        std::iter::from_fn(move || {
            let is_set = |sector: u32| sectors >> sector & 1 == 1;
            let start = (next..16).find(|&sector| is_set(sector))?;
            let end = (start..16).find(|&sector| !is_set(sector)).unwrap_or(16);
            next = end;
            Some(start as usize * SECTOR_BYTES..end as usize * SECTOR_BYTES)
        })
    }
}

fn body_context(generation: u64) -> Vec<u8> {
    [b"mmjrbody".as_slice(), &generation.to_le_bytes()].concat()
}

/// Which checkpoint's, which of its images, and where it belongs.
fn image_context(generation: u64, number: u64, header: &[u8; IMAGE_HEADER_BYTES]) -> Vec<u8> {
    [
        b"mmjimage".as_slice(),
        &generation.to_le_bytes(),
        &number.to_le_bytes(),
        header,
    ]
    .concat()
}

pub(crate) struct Journal {
    file: Arc<dyn File>,
    path: PathBuf,
    keys: Option<Arc<Keys>>,
}

impl Journal {
    pub(crate) fn open(env: &Env, directory: &Path) -> Result<Self> {
        let path = directory.join(FILE_NAME);
        let file = env
            .fs
            .open(&path, Access::OpenOrCreate)
            .map_err(io_error("open", &path))?;
        let keys = env.fs.keys().cloned();
        Ok(Self { file, path, keys })
    }

    /// Writes everything without making it durable, and returns the number of bytes.
    pub(crate) fn write(&self, root: &Root, images: &[Image]) -> Result<u64> {
        let mut body = root.encode_body();
        if let Some(keys) = &self.keys {
            body = seal_text(keys, &body_context(root.generation), &body);
        }
        let mut sum = crc32c::crc32c(&body);
        let mut length = HEADER_BYTES as u64;
        let mut buffer = body.clone();
        let write = |buffer: &mut Vec<u8>, length: &mut u64| {
            self.file
                .write_all_at(buffer, *length)
                .map_err(io_error("write", &self.path))?;
            *length += buffer.len() as u64;
            buffer.clear();
            Ok::<_, engine::EngineError>(())
        };
        for (number, image) in (0..).zip(images) {
            let start = buffer.len();
            let header = image.header();
            buffer.extend_from_slice(&header);
            match &self.keys {
                Some(keys) => {
                    debug_assert_eq!(image.sectors, ALL_SECTORS, "a sealed page is whole");
                    let context = image_context(root.generation, number, &header);
                    buffer.extend_from_slice(&seal_text(keys, &context, &image.bytes[..]));
                }
                None => Image::runs(image.sectors).for_each(|run| buffer.extend_from_slice(&image.bytes[run])),
            }
            sum = crc32c::crc32c_append(sum, &buffer[start..]);
            if buffer.len() >= WRITE_BYTES {
                write(&mut buffer, &mut length)?;
            }
        }
        write(&mut buffer, &mut length)?;
        let mut header = [0; HEADER_BYTES];
        put(&mut header, 0, &MAGIC.to_le_bytes());
        put(&mut header, 8, &version(self.keys.as_deref()).to_le_bytes());
        put(&mut header, 12, &(body.len() as u32).to_le_bytes());
        put(&mut header, 16, &root.generation.to_le_bytes());
        put(&mut header, 24, &(images.len() as u64).to_le_bytes());
        put(&mut header, 32, &(length - HEADER_BYTES as u64).to_le_bytes());
        put(&mut header, 40, &sum.to_le_bytes());
        let header_sum = crc32c::crc32c(&header[..44]);
        put(&mut header, 44, &header_sum.to_le_bytes());
        self.file
            .write_all_at(&header, 0)
            .map_err(io_error("write", &self.path))?;
        Ok(length)
    }

    /// The step that makes a checkpoint happen.
    pub(crate) fn sync(&self) -> Result<()> {
        self.file.sync_data().map_err(io_error("sync", &self.path))
    }

    /// Gives the space of a long journal back. Its images are in place: whether the cut survives a crash does not
    /// matter.
    pub(crate) fn cut(&self) {
        if self.file.len().is_ok_and(|bytes| bytes > KEPT_BYTES) {
            let _ = self.file.set_len(0);
        }
    }

    pub(crate) fn is_empty(&self) -> Result<bool> {
        self.file.is_empty().map_err(io_error("measure", &self.path))
    }

    /// The root of a whole journal; `None` for one that was never finished.
    pub(crate) fn read_root(&self) -> Result<Option<(Root, u64)>> {
        let length = self.file.len().map_err(io_error("measure", &self.path))?;
        if length < HEADER_BYTES as u64 {
            return Ok(None);
        }
        let mut header = [0; HEADER_BYTES];
        self.read(&mut header, 0)?;
        let word = |at| u32_at(&header, at).unwrap_or(0);
        let long = |at| u64_at(&header, at).unwrap_or(0);
        let is_whole =
            long(0) == MAGIC && word(44) == crc32c::crc32c(&header[..44]) && word(8) == version(self.keys.as_deref());
        let (body_bytes, bytes) = (u64::from(word(12)), long(32));
        if !is_whole || length - (HEADER_BYTES as u64) < bytes || body_bytes > bytes {
            return Ok(None);
        }
        let (mut sum, mut at, end) = (0, HEADER_BYTES as u64, HEADER_BYTES as u64 + bytes);
        let mut buffer = vec![0; WRITE_BYTES];
        while at < end {
            let part = &mut buffer[..(end - at).min(WRITE_BYTES as u64) as usize];
            self.read(part, at)?;
            sum = crc32c::crc32c_append(sum, part);
            at += part.len() as u64;
        }
        if sum != word(40) {
            return Ok(None);
        }
        let mut body = vec![0; body_bytes as usize];
        self.read(&mut body, HEADER_BYTES as u64)?;
        let body = match &self.keys {
            None => &body[..],
            Some(keys) => match open_text(keys, &body_context(long(16)), &mut body) {
                Ok(body) => body,
                // As a checksum that does not fit.
                Err(SealError::Tag) => return Ok(None),
                Err(error) => return Err(self.corrupt(HEADER_BYTES as u64, error)),
            },
        };
        let root = Root::decode_body(body).filter(|root| root.generation == long(16));
        Ok(root.map(|root| (root, long(24))))
    }

    /// Shows every image of a journal whose root was read.
    pub(crate) fn read_images(&self, root: &Root, count: u64, show: &mut dyn FnMut(Image) -> Result<()>) -> Result<()> {
        let seal_bytes = self.keys.as_ref().map_or(0, |_| SEAL_BYTES);
        let mut at = (HEADER_BYTES + seal_bytes + root.encode_body().len()) as u64;
        for number in 0..count {
            let mut header = [0; IMAGE_HEADER_BYTES];
            self.read(&mut header, at)?;
            at += IMAGE_HEADER_BYTES as u64;
            let word = |at| u32_at(&header, at).unwrap_or(0);
            let sectors = u16_at(&header, 12).unwrap_or(0);
            let mut bytes = Arc::new([0; PAGE_BYTES]);
            let page = Arc::get_mut(&mut bytes).expect("nobody else has it yet");
            if let Some(keys) = &self.keys {
                let mut sealed = [0; SEAL_BYTES + PAGE_BYTES];
                self.read(&mut sealed, at)?;
                let opened = open_text(keys, &image_context(root.generation, number, &header), &mut sealed);
                page.copy_from_slice(opened.map_err(|error| self.corrupt(at, error))?);
                at += sealed.len() as u64;
            } else {
                for run in Image::runs(sectors) {
                    self.read(&mut page[run.clone()], at)?;
                    at += run.len() as u64;
                }
            }
            show(Image {
                database: word(0),
                file: word(4),
                page: word(8),
                sectors,
                bytes,
            })?;
        }
        Ok(())
    }

    fn corrupt(&self, at: u64, error: SealError) -> engine::EngineError {
        corrupt(&self.path, at, format!("encryption: {error}"))
    }

    fn read(&self, buffer: &mut [u8], at: u64) -> Result<()> {
        self.file
            .read_exact_at(buffer, at)
            .map_err(io_error("read", &self.path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_the_set_bits_side_by_side() {
        let runs = |sectors| {
            Image::runs(sectors)
                .map(|run| (run.start / 512, run.end / 512))
                .collect::<Vec<_>>()
        };
        assert_eq!(runs(0), []);
        assert_eq!(runs(0b1000_0000_0001_0110), [(1, 3), (4, 5), (15, 16)]);
        assert_eq!(runs(u16::MAX), [(0, 16)]);
    }
}
