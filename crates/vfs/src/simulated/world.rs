//! The simulated machine: names, files, the count of operations, faults and space.
//!
//! Every entry point follows one pattern: is the machine up; does a fault strike; count the operation; change the live
//! state; crash if this was the operation to crash at.

use super::fault::{Fault, FaultKind};
use super::image::Image;
use super::names::{Names, Node, ROOT, absolute, not_found};
use crate::out_of_descriptors::out_of_descriptors;
use crate::{Access, Random, SeededRandom, Space};
use std::collections::{BTreeMap, HashSet};
use std::io::{Error, ErrorKind, Result};
use std::path::{Path, PathBuf};

/// Capacity reported when there is no budget.
const UNBOUNDED_BYTES: u64 = 1 << 50;

/// A file and the path it had when it was last opened or renamed (for faults).
#[derive(Clone)]
pub(super) struct Inode {
    pub image: Image,
    path: PathBuf,
}

pub(super) struct World {
    names: Names,
    inodes: BTreeMap<u64, Inode>,
    next_id: u64,
    random: SeededRandom,
    pub operations: u64,
    pub crash_at: Option<u64>,
    pub crashed: bool,
    /// Counts restarts; handles of an earlier one are dead.
    pub epoch: u64,
    pub faults: Vec<Fault>,
    pub faults_struck: u64,
    pub free_bytes: Option<u64>,
    pub locked: HashSet<u64>,
}

fn io_error(what: &str) -> Error {
    Error::other(format!("simulated I/O error: {what}"))
}

fn dead() -> Error {
    Error::other("the simulated machine has crashed")
}

impl World {
    pub fn new(seed: u64) -> Self {
        Self {
            names: Names::default(),
            inodes: BTreeMap::new(),
            next_id: ROOT + 1,
            random: SeededRandom::new(seed),
            operations: 0,
            crash_at: None,
            crashed: false,
            epoch: 0,
            faults: Vec::new(),
            faults_struck: 0,
            free_bytes: None,
            locked: HashSet::new(),
        }
    }

    /// The same disk in another machine.
    pub fn clone_with_seed(&self, seed: u64) -> Self {
        Self {
            names: self.names.clone(),
            inodes: self.inodes.clone(),
            next_id: self.next_id,
            random: SeededRandom::new(seed),
            operations: self.operations,
            free_bytes: self.free_bytes,
            ..Self::new(seed)
        }
    }

    /// What a crash does to the disk.
    pub fn lose_unsynced(&mut self) {
        self.names.lose_unsynced(&self.random);
        for inode in self.inodes.values_mut() {
            inode.image.lose_unsynced(&self.random);
        }
    }

    /// The machine starts.
    pub fn revive(&mut self) {
        self.names.reload();
        let named = self.names.files();
        let nameless: Vec<u64> = self.inodes.keys().filter(|&id| !named.contains(id)).copied().collect();
        for id in nameless {
            self.give_back(id);
            self.inodes.remove(&id);
        }
        for inode in self.inodes.values_mut() {
            inode.image.reload();
        }
        self.faults.clear();
        self.locked.clear();
        self.crash_at = None;
        self.crashed = false;
        self.epoch += 1;
    }

    fn check_up(&self) -> Result<()> {
        if self.crashed { Err(dead()) } else { Ok(()) }
    }

    pub fn check_handle(&self, epoch: u64) -> Result<()> {
        self.check_up()?;
        if self.epoch == epoch { Ok(()) } else { Err(dead()) }
    }

    pub fn file(&self, inode: u64) -> Result<&Inode> {
        self.inodes.get(&inode).ok_or_else(dead)
    }

    fn image(&mut self, inode: u64) -> Result<&mut Image> {
        self.inodes
            .get_mut(&inode)
            .map(|inode| &mut inode.image)
            .ok_or_else(dead)
    }

    /// The fault that strikes a call, if one does.
    fn struck(&mut self, path: &Path, fits: impl Fn(FaultKind) -> bool) -> Option<FaultKind> {
        let fault = self
            .faults
            .iter_mut()
            .find_map(|fault| fault.strikes(&fits, path).then_some(fault.kind));
        self.faults.retain(|fault| !fault.is_spent());
        self.faults_struck += u64::from(fault.is_some());
        fault
    }

    fn struck_file(&mut self, inode: u64, fits: impl Fn(FaultKind) -> bool) -> Result<Option<FaultKind>> {
        let path = self.file(inode)?.path.clone();
        Ok(self.struck(&path, fits))
    }

    fn metadata_fault(&mut self, path: &Path) -> Result<()> {
        let struck = self.struck(&absolute(path), |kind| kind == FaultKind::MetadataError);
        if struck.is_some() {
            Err(io_error("metadata"))
        } else {
            Ok(())
        }
    }

    /// Counts an operation; true when the machine crashes in it.
    fn begin(&mut self) -> bool {
        self.operations += 1;
        self.crash_at == Some(self.operations)
    }

    /// Ends an operation that has begun.
    fn end(&mut self, crashes: bool) -> Result<()> {
        self.crashed |= crashes;
        self.check_up()
    }

    fn new_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id - 1
    }

    /// Fails as long as a fault says that no descriptor is left.
    pub fn check_descriptors(&mut self, path: &Path) -> Result<()> {
        self.check_up()?;
        let struck = self.struck(&absolute(path), |kind| kind == FaultKind::NoDescriptors);
        match struck {
            Some(_) => Err(out_of_descriptors("simulated: too many open files")),
            None => Ok(()),
        }
    }

    pub fn open(&mut self, path: &Path, access: Access) -> Result<u64> {
        self.check_descriptors(path)?;
        let found = match self.names.find(path)? {
            Some(Node::Directory(_)) => return Err(ErrorKind::IsADirectory.into()),
            Some(Node::File(_)) if access == Access::CreateNew => {
                return Err(ErrorKind::AlreadyExists.into());
            }
            Some(Node::File(inode)) => inode,
            None if matches!(access, Access::Read | Access::ReadDirect | Access::ReadWrite) => {
                return Err(Error::new(
                    ErrorKind::NotFound,
                    format!("{} does not exist", path.display()),
                ));
            }
            None => self.create(path)?,
        };
        if let Some(inode) = self.inodes.get_mut(&found) {
            inode.path = absolute(path);
        }
        Ok(found)
    }

    fn create(&mut self, path: &Path) -> Result<u64> {
        self.metadata_fault(path)?;
        let id = self.new_id();
        self.names.add(path, Node::File(id))?;
        self.inodes.insert(
            id,
            Inode {
                image: Image::default(),
                path: absolute(path),
            },
        );
        let crashes = self.begin();
        self.end(crashes)?;
        Ok(id)
    }

    pub fn remove_file(&mut self, path: &Path) -> Result<()> {
        self.check_up()?;
        self.metadata_fault(path)?;
        let inode = self.names.remove_file(path)?;
        self.give_back(inode);
        let crashes = self.begin();
        self.end(crashes)
    }

    /// Space of a file that has lost its name. (Open handles keep the bytes, not the space.)
    fn give_back(&mut self, inode: u64) {
        if let Some(inode) = self.inodes.get_mut(&inode) {
            let freed = std::mem::take(&mut inode.image.allocated);
            if let Some(free) = &mut self.free_bytes {
                *free += freed;
            }
        }
    }

    pub fn remove_directory_all(&mut self, path: &Path) -> Result<()> {
        self.check_up()?;
        if self.names.find(path)?.is_none() {
            return Ok(());
        }
        self.metadata_fault(path)?;
        for inode in self.names.remove_directory(path)? {
            self.give_back(inode);
        }
        let crashes = self.begin();
        self.end(crashes)
    }

    pub fn rename(&mut self, from: &Path, to: &Path) -> Result<()> {
        self.check_up()?;
        self.metadata_fault(from)?;
        let renamed = self.names.find(from)?;
        if let Some(replaced) = self.names.rename(from, to)? {
            self.give_back(replaced);
        }
        if let Some(Node::File(id)) = renamed
            && let Some(inode) = self.inodes.get_mut(&id)
        {
            inode.path = absolute(to);
        }
        let crashes = self.begin();
        self.end(crashes)
    }

    pub fn create_directory_all(&mut self, path: &Path) -> Result<()> {
        self.check_up()?;
        let path = absolute(path);
        let mut missing = Vec::new();
        for ancestor in path.ancestors() {
            match self.names.find(ancestor)? {
                Some(Node::Directory(_)) => break,
                Some(Node::File(_)) => return Err(ErrorKind::NotADirectory.into()),
                None => missing.push(ancestor.to_owned()),
            }
        }
        if missing.is_empty() {
            return Ok(());
        }
        self.metadata_fault(&path)?;
        for directory in missing.iter().rev() {
            let id = self.new_id();
            self.names.add(directory, Node::Directory(id))?;
        }
        let crashes = self.begin();
        self.end(crashes)
    }

    pub fn list(&self, directory: &Path) -> Result<Vec<PathBuf>> {
        self.check_up()?;
        self.names.list(directory)
    }

    pub fn exists(&self, path: &Path) -> Result<bool> {
        self.check_up()?;
        Ok(self.names.find(path)?.is_some())
    }

    pub fn sync_directory(&mut self, path: &Path) -> Result<()> {
        self.check_up()?;
        let directory = self.names.directory(path)?;
        let crashes = self.begin();
        if !crashes {
            if self
                .struck(&absolute(path), |kind| kind == FaultKind::SyncError)
                .is_some()
            {
                self.names.lose_unsynced_of(directory, &self.random);
                return Err(io_error("sync of a directory"));
            }
            self.names.sync(directory);
        }
        self.end(crashes)
    }

    pub fn lock_file(&mut self, path: &Path) -> Result<u64> {
        let inode = self.open(path, Access::OpenOrCreate)?;
        if !self.locked.insert(inode) {
            return Err(ErrorKind::WouldBlock.into());
        }
        Ok(inode)
    }

    pub fn space(&self, path: &Path) -> Result<Space> {
        // As statvfs does.
        if !self.exists(path)? {
            return Err(not_found(path));
        }
        let available_bytes = self.free_bytes.unwrap_or(UNBOUNDED_BYTES);
        let used: u64 = self.inodes.values().map(|inode| inode.image.allocated).sum();
        Ok(Space {
            total_bytes: available_bytes + used,
            available_bytes,
        })
    }

    pub fn read(&mut self, inode: u64, buffer: &mut [u8], offset: u64) -> Result<usize> {
        let struck = self.struck_file(inode, |kind| {
            matches!(kind, FaultKind::ReadError | FaultKind::ShortRead)
        })?;
        let mut wanted = buffer.len();
        match struck {
            Some(FaultKind::ReadError) => return Err(io_error("read")),
            Some(_) if wanted > 1 => wanted = 1 + (self.random.next_u64() % (wanted as u64 - 1)) as usize,
            _ => {}
        }
        Ok(self.file(inode)?.image.read(&mut buffer[..wanted], offset))
    }

    pub fn write(&mut self, inode: u64, bytes: &[u8], offset: u64) -> Result<()> {
        let end = offset
            .checked_add(bytes.len() as u64)
            .filter(|&end| end <= UNBOUNDED_BYTES)
            .ok_or_else(|| Error::from(ErrorKind::FileTooLarge))?;
        let struck = self.struck_file(inode, |kind| {
            matches!(
                kind,
                FaultKind::WriteError | FaultKind::NoSpace | FaultKind::LostWrite | FaultKind::MisdirectedWrite { .. }
            )
        })?;
        let crashes = self.begin();
        let fitting = self.take_space(inode, offset, end)?;
        let written = match struck {
            Some(FaultKind::WriteError | FaultKind::NoSpace) => {
                (self.random.next_u64() % (bytes.len() as u64 + 1)) as usize
            }
            _ => bytes.len().min((fitting - offset.min(fitting)) as usize),
        };
        let disk_offset = match struck {
            Some(FaultKind::LostWrite) => None,
            Some(FaultKind::MisdirectedWrite { by }) => offset.checked_add(by),
            _ => Some(offset),
        };
        if written > 0 {
            self.image(inode)?.write(&bytes[..written], offset, disk_offset);
        }
        self.end(crashes)?;
        if struck == Some(FaultKind::WriteError) {
            return Err(io_error("write"));
        }
        if written < bytes.len() || struck == Some(FaultKind::NoSpace) {
            Err(ErrorKind::StorageFull.into())
        } else {
            Ok(())
        }
    }

    /// Takes the space that a file needs to reach `end`, as far as there is any; returns the end that is reached.
    fn take_space(&mut self, inode: u64, offset: u64, end: u64) -> Result<u64> {
        let allocated = self.file(inode)?.image.allocated;
        let Some(free) = self.free_bytes else {
            return Ok(end);
        };
        // A hole in front takes none.
        let start = allocated.max(offset);
        let taken = end.saturating_sub(start).min(free);
        self.free_bytes = Some(free - taken);
        Ok(if end <= start { end } else { start + taken })
    }

    pub fn sync_file(&mut self, inode: u64) -> Result<()> {
        let crashes = self.begin();
        if !crashes {
            let struck = self.struck_file(inode, |kind| kind == FaultKind::SyncError)?;
            if struck.is_some() {
                let image = &mut self.inodes.get_mut(&inode).ok_or_else(dead)?.image;
                image.lose_unsynced(&self.random);
                return Err(io_error("sync"));
            }
            self.image(inode)?.sync();
        }
        self.end(crashes)
    }

    pub fn set_len(&mut self, inode: u64, bytes: u64) -> Result<()> {
        if self
            .struck_file(inode, |kind| kind == FaultKind::MetadataError)?
            .is_some()
        {
            return Err(io_error("set_len"));
        }
        let crashes = self.begin();
        let image = self.image(inode)?;
        let freed = image.allocated.saturating_sub(bytes);
        image.set_len(bytes);
        if let Some(free) = &mut self.free_bytes {
            *free += freed;
        }
        self.end(crashes)
    }

    pub fn allocate(&mut self, inode: u64, offset: u64, bytes: u64) -> Result<()> {
        if self
            .struck_file(inode, |kind| kind == FaultKind::MetadataError)?
            .is_some()
        {
            return Err(io_error("allocate"));
        }
        let end = offset
            .checked_add(bytes)
            .ok_or_else(|| Error::from(ErrorKind::FileTooLarge))?;
        let crashes = self.begin();
        let allocated = self.file(inode)?.image.allocated;
        let needed = end.saturating_sub(allocated.max(offset));
        if self.free_bytes.is_some_and(|free| free < needed) {
            self.end(crashes)?;
            return Err(ErrorKind::StorageFull.into());
        }
        if let Some(free) = &mut self.free_bytes {
            *free -= needed;
        }
        self.image(inode)?.allocate(end);
        self.end(crashes)
    }

    pub fn flip_bit(&mut self, path: &Path, offset: u64, bit: u8) -> Result<()> {
        let inode = self.names.file(path)?;
        if self.image(inode)?.flip_bit(offset, bit) {
            Ok(())
        } else {
            Err(ErrorKind::UnexpectedEof.into())
        }
    }
}
