//! Sealing pages, roots and the journal, in a directory whose file system has keys.
//!
//! A sealed page takes a sector more on disk than in memory: behind its bytes, encrypted, stands its seal. The
//! checksums in maps and root stay those of the plain pages: an older state of a page that is put back opens, and is
//! refused by them.
//!
//! Written in place a page is written whole, since all of it changes; the journal has it whole, too.

use crate::bytes_at::checksum;
use crate::files::{Page, PageBuf};
use crate::loc::{PAGE_BYTES, SECTOR_BYTES};
use crypt::{Keys, SEAL_BYTES, SealError};
use std::sync::Arc;

/// Bytes of a sealed page on disk.
pub(crate) const SEALED_PAGE_BYTES: usize = PAGE_BYTES + SECTOR_BYTES;
/// Version of sealed roots and journals; pages are of the same as ever.
pub(crate) const SEALED_FORMAT_VERSION: u32 = 2;

/// Bytes of a page on disk.
pub(crate) fn stored_page_bytes(is_sealed: bool) -> u64 {
    if is_sealed {
        SEALED_PAGE_BYTES as u64
    } else {
        PAGE_BYTES as u64
    }
}

const CONTEXT_BYTES: usize = 8 + 4 + 4 + 4 + 4;

/// With what the pages of one file are sealed.
#[derive(Clone)]
pub(crate) struct PageSealing {
    keys: Arc<Keys>,
    /// Length and checksum of the database's name.
    database: (u32, u32),
    file: u32,
}

impl PageSealing {
    /// `file` is a data file's number, or [`crate::loc::NAMESPACE_FILE`].
    pub(crate) fn new(keys: &Arc<Keys>, database: &str, file: u32) -> Self {
        Self {
            keys: keys.clone(),
            database: (database.len() as u32, checksum(database.as_bytes())),
            file,
        }
    }

    fn context(&self, page: u32) -> [u8; CONTEXT_BYTES] {
        let mut context = [0; CONTEXT_BYTES];
        context[..8].copy_from_slice(b"mmappage");
        let fields = [self.database.0, self.database.1, self.file, page];
        for (field, place) in fields.iter().zip(context[8..].chunks_exact_mut(4)) {
            place.copy_from_slice(&field.to_le_bytes());
        }
        context
    }

    /// Appends a page as it is stored.
    pub(crate) fn seal(&self, page: u32, bytes: &PageBuf, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(bytes);
        let seal = self.keys.seal(&self.context(page), &mut out[start..]);
        out.extend_from_slice(&seal);
        out.resize(start + SEALED_PAGE_BYTES, 0);
    }

    /// The page that is stored as these bytes, of which there are as many as a sealed page has. The rest of the seal's
    /// sector is checked, too, so that no bit of a file changes unnoticed.
    pub(crate) fn open(&self, page: u32, stored: &[u8]) -> Result<Page, SealError> {
        let (bytes, seal) = stored.split_at(PAGE_BYTES);
        let (seal, rest) = seal.split_first_chunk().expect("a sector has room for a seal");
        let mut opened = Arc::new([0; PAGE_BYTES]);
        let text = Arc::get_mut(&mut opened).expect("nobody else has it yet");
        text.copy_from_slice(bytes);
        if rest.iter().any(|byte| *byte != 0) {
            return Err(SealError::Tag);
        }
        self.keys.open(&self.context(page), seal, text)?;
        Ok(opened)
    }
}

/// Seal and ciphertext of a text that is not a page.
pub(crate) fn seal_text(keys: &Keys, context: &[u8], text: &[u8]) -> Vec<u8> {
    let mut sealed = vec![0; SEAL_BYTES];
    sealed.extend_from_slice(text);
    let (seal, text) = sealed.split_at_mut(SEAL_BYTES);
    seal.copy_from_slice(&keys.seal(context, text));
    sealed
}

/// The text of [`seal_text`].
pub(crate) fn open_text<'s>(keys: &Keys, context: &[u8], sealed: &'s mut [u8]) -> Result<&'s [u8], SealError> {
    let (seal, text) = sealed.split_first_chunk_mut().ok_or(SealError::Tag)?;
    keys.open(context, seal, text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_opens_in_its_place_alone_and_with_every_bit_as_it_was() {
        let keys = Arc::new(Keys::ephemeral());
        let sealing = PageSealing::new(&keys, "one", 3);
        let page = [7; PAGE_BYTES];
        let mut stored = Vec::new();
        sealing.seal(5, &page, &mut stored);
        assert_eq!(stored.len(), SEALED_PAGE_BYTES);
        assert!(!stored.windows(4).any(|part| part == [7; 4]), "it is not to be seen");
        assert_eq!(sealing.open(5, &stored).map(|page| *page), Ok(page));
        assert!(sealing.open(6, &stored).is_err());
        for (database, file) in [("one", 4), ("two", 3)] {
            assert!(PageSealing::new(&keys, database, file).open(5, &stored).is_err());
        }
        // Text, seal, and what is left of the seal's sector.
        for bit in (0..PAGE_BYTES * 8)
            .step_by(997)
            .chain(PAGE_BYTES * 8..SEALED_PAGE_BYTES * 8)
        {
            stored[bit / 8] ^= 1 << (bit % 8);
            assert!(sealing.open(5, &stored).is_err(), "bit {bit}");
            stored[bit / 8] ^= 1 << (bit % 8);
        }
    }

    #[test]
    fn a_text_opens_in_its_context_alone() {
        let keys = Keys::ephemeral();
        let mut sealed = seal_text(&keys, b"here", b"text");
        assert!(open_text(&keys, b"there", &mut sealed.clone()).is_err());
        assert!(open_text(&keys, b"here", &mut sealed[..20].to_vec()).is_err());
        assert_eq!(open_text(&keys, b"here", &mut sealed), Ok(&b"text"[..]));
    }
}
