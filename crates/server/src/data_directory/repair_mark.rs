//! What a repair leaves for later starts: `repair.bson`. It is there before a repair changes anything, and goes at its
//! good end, so that a directory that is repaired in part is not served. It stays where a member of a replica set has
//! lost data: such a one would vote, and lead, without what it has acknowledged.

use super::{DataDirectory, DataDirectoryError, Result};
use bson::{Document, doc};
use std::path::Path;
use vfs::FileSystem;

pub(super) const FILE: &str = "repair.bson";
const MAGIC: &str = "repair";
const FORMAT_VERSION: i32 = 1;

/// What `repair.bson` says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RepairMark {
    /// A repair has begun to change things and did not come to a good end.
    pub is_unfinished: bool,
    /// The directory was that of a replica set's member, and has lost something.
    pub left_set: bool,
    /// The collection that is being written in another one's place.
    pub rewriting: Option<String>,
}

impl RepairMark {
    /// Reads it; one that does not exist says nothing.
    pub(super) fn read(fs: &dyn FileSystem, directory: &Path) -> Result<Self> {
        let path = directory.join(FILE);
        let Some(bytes) = super::read(fs, &path)? else {
            return Ok(Self::default());
        };
        let document = super::checked_document(&bytes, &path)?;
        match (document.get_str("tenon"), document.get_i32("formatVersion")) {
            (Ok(MAGIC), Ok(FORMAT_VERSION)) => {}
            (Ok(MAGIC), Ok(found)) => return Err(DataDirectoryError::Version { path, found }),
            _ => {
                let reason = "it is no file of a repair".to_owned();
                return Err(DataDirectoryError::Damaged { path, reason });
            }
        }
        let is = |field| document.get_bool(field).unwrap_or(false);
        Ok(Self {
            is_unfinished: is("unfinished"),
            left_set: is("leftSet"),
            rewriting: document.get_str("rewriting").ok().map(str::to_owned),
        })
    }

    fn document(&self) -> Document {
        let mut document = doc! {
            "tenon": MAGIC,
            "formatVersion": FORMAT_VERSION,
            "unfinished": self.is_unfinished,
            "leftSet": self.left_set,
        };
        if let Some(rewriting) = &self.rewriting {
            document.insert("rewriting", rewriting);
        }
        document
    }

    /// Removes it: what it was about has gone.
    pub(super) fn remove(fs: &dyn FileSystem, directory: &Path) -> Result<()> {
        super::remove_file(fs, &directory.join(FILE))
    }
}

impl DataDirectory {
    /// What the last repair has left.
    ///
    /// # Errors
    /// Those of files; it is damaged.
    pub fn repair_mark(&self, fs: &dyn FileSystem) -> Result<RepairMark> {
        RepairMark::read(fs, &self.path)
    }

    /// As [`DataDirectory::repair_mark`], for a repair: one that is damaged may have said anything.
    ///
    /// # Errors
    /// Those of files.
    pub fn repair_mark_or_worst(&self, fs: &dyn FileSystem) -> Result<RepairMark> {
        match RepairMark::read(fs, &self.path) {
            Err(DataDirectoryError::Damaged { .. }) => Ok(RepairMark {
                is_unfinished: true,
                left_set: self.is_members(fs)?,
                rewriting: None,
            }),
            read => read,
        }
    }

    /// Notes it, durably. One that says nothing is removed.
    ///
    /// # Errors
    /// Those of files.
    pub fn note_repair(&self, fs: &dyn FileSystem, mark: &RepairMark) -> Result<()> {
        if *mark == RepairMark::default() {
            RepairMark::remove(fs, &self.path)?;
            return fs.sync_directory(&self.path).map_err(super::io("sync", &self.path));
        }
        super::write_document(fs, &self.path, FILE, mark.document())
    }
}
