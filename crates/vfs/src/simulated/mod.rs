//! A file system in memory that crashes and fails on command, for tests.
//!
//! # The rules
//!
//! They are those of Pillai et al., "All File Systems Are Not Created Equal" (OSDI 2014), with the sync semantics of
//! Rebello et al., "Can Applications Recover from fsync Failures?" (USENIX ATC 2020). Everything follows from the seed.
//!
//! *Operations.* Every call that changes something or makes something durable counts as one operation: `write_all_at`,
//! `sync_data`, `set_len`, `allocate`, the opening that creates a file, `remove_file`, `remove_directory_all`,
//! `rename`, `create_directory_all` (when it creates), `sync_directory`, `lock` (when it creates), `write_content`.
//! Reading counts nothing: a crash there looks like one at the next operation.
//!
//! *Crash.* At operation *n* the machine stops: the operation itself has begun (a write may be partly on disk, a sync
//! has made nothing certain), and every later call fails until [`SimulatedFs::restart`]. Handles and locks of before
//! the restart stay dead. [`SimulatedFs::after_crash`] yields, beside the running one, the disk as a crash at this
//! moment would leave it.
//!
//! *Data.* A file is what was last synced, and a list of operations since. Each of those survives a crash or not,
//! whatever happened to the others; a write may survive in part, by 512-byte sectors of the file. An overwrite that
//! does not survive leaves the bytes before it. A change of length survives apart from the data: a file can be long and
//! hold zeros where a write was lost; a surviving sector beyond the surviving length is lost.
//!
//! *Names.* Creating, removing and renaming survive a crash only after [`FileSystem::sync_directory`] of the directory,
//! or by chance, each apart from the others, but never before an earlier change of the same name, and each as a whole:
//! a rename is atomic. Syncing a file does not make its name durable. Syncing a directory says nothing of data.
//!
//! *Failed sync.* With a sync fault, what was unsynced survives by chance like in a crash, and is then *clean*: reading
//! shows it until the restart, and a later sync succeeds without writing it.
//!
//! *Space.* [`SimulatedFs::set_free_bytes`] gives a budget. Bytes are taken when a write or an `allocate` first reaches
//! them and come back when the file is cut or removed. A write without enough space writes what fits and fails with
//! `StorageFull`; `set_len` takes none (the file is sparse).
//!
//! *Faults.* See [`Fault`].

mod fault;
mod image;
mod names;
#[cfg(test)]
mod tests;
mod world;

pub use fault::{Fault, FaultKind};

use crate::direct_buffer::{DIRECT_BYTES, is_aligned};
use crate::{Access, DirectoryLock, File, FileSystem, Space};
use parking_lot::Mutex;
use std::io::Result;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use world::World;

/// A simulated disk and the running machine's view of it. Clones share it.
#[derive(Clone)]
pub struct SimulatedFs {
    world: Arc<Mutex<World>>,
}

impl SimulatedFs {
    /// An empty disk with a root directory `/`. Relative paths start there.
    pub fn new(seed: u64) -> Self {
        Self {
            world: Arc::new(Mutex::new(World::new(seed))),
        }
    }

    /// Operations so far, restarts notwithstanding.
    pub fn operations(&self) -> u64 {
        self.world.lock().operations
    }

    /// Lets the machine crash in its operation number `operation` (the first one is 1), counted like
    /// [`SimulatedFs::operations`]. A number that has passed never comes.
    pub fn crash_at(&self, operation: u64) {
        self.world.lock().crash_at = Some(operation);
    }

    /// Crashes now, between two operations.
    pub fn crash(&self) {
        self.world.lock().crashed = true;
    }

    /// True between a crash and the restart.
    pub fn has_crashed(&self) -> bool {
        self.world.lock().crashed
    }

    /// Turns the machine off (if it has not crashed) and on again: unsynced changes survive by chance, old handles and
    /// locks are dead, faults and a planned crash are forgotten.
    pub fn restart(&self) {
        let mut world = self.world.lock();
        world.lose_unsynced();
        world.revive();
    }

    /// The disk as it would look if the machine crashed now and started again, with chances by `seed`. This one goes on
    /// undisturbed.
    pub fn after_crash(&self, seed: u64) -> SimulatedFs {
        let mut world = self.world.lock().clone_with_seed(seed);
        world.lose_unsynced();
        world.revive();
        SimulatedFs {
            world: Arc::new(Mutex::new(world)),
        }
    }

    /// Adds a fault.
    pub fn inject(&self, fault: Fault) {
        self.world.lock().faults.push(fault);
    }

    /// Removes every fault that still waits.
    pub fn clear_faults(&self) {
        self.world.lock().faults.clear();
    }

    /// Number of calls that a fault has struck.
    pub fn faults_struck(&self) -> u64 {
        self.world.lock().faults_struck
    }

    /// Sets how many bytes are free from now on; `None` for no bound.
    pub fn set_free_bytes(&self, bytes: Option<u64>) {
        self.world.lock().free_bytes = bytes;
    }

    /// Flips one bit of a file, on the disk and in the cache: `bit` 0 to 7 of the byte at `offset`. `NotFound`, or
    /// `UnexpectedEof` past the end.
    pub fn flip_bit(&self, path: &Path, offset: u64, bit: u8) -> Result<()> {
        self.world.lock().flip_bit(path, offset, bit)
    }

    /// Opens a file of the running machine's view, like [`FileSystem::open`].
    fn handle(&self, inode: u64, access: Access) -> Arc<dyn File> {
        let epoch = self.world.lock().epoch;
        Arc::new(SimulatedFile {
            world: self.world.clone(),
            inode,
            epoch,
            writable: !matches!(access, Access::Read | Access::ReadDirect),
            direct: access == Access::ReadDirect,
        })
    }
}

impl FileSystem for SimulatedFs {
    fn open(&self, path: &Path, access: Access) -> Result<Arc<dyn File>> {
        let inode = self.world.lock().open(path, access)?;
        Ok(self.handle(inode, access))
    }

    fn remove_file(&self, path: &Path) -> Result<()> {
        self.world.lock().remove_file(path)
    }

    fn remove_directory_all(&self, path: &Path) -> Result<()> {
        self.world.lock().remove_directory_all(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.world.lock().rename(from, to)
    }

    fn create_directory_all(&self, path: &Path) -> Result<()> {
        self.world.lock().create_directory_all(path)
    }

    fn list(&self, directory: &Path) -> Result<Vec<PathBuf>> {
        self.world.lock().list(directory)
    }

    fn exists(&self, path: &Path) -> Result<bool> {
        self.world.lock().exists(path)
    }

    fn sync_directory(&self, directory: &Path) -> Result<()> {
        self.world.lock().sync_directory(directory)
    }

    fn lock(&self, path: &Path) -> Result<Box<dyn DirectoryLock>> {
        let mut world = self.world.lock();
        let inode = world.lock_file(path)?;
        Ok(Box::new(SimulatedLock {
            world: self.world.clone(),
            inode,
            epoch: world.epoch,
        }))
    }

    fn space(&self, path: &Path) -> Result<Space> {
        self.world.lock().space(path)
    }

    fn check_descriptors(&self) -> Result<()> {
        self.world.lock().check_descriptors(Path::new("/"))
    }

    fn keys(&self) -> Option<&Arc<crypt::Keys>> {
        None
    }
}

struct SimulatedFile {
    world: Arc<Mutex<World>>,
    inode: u64,
    /// The restart it belongs to.
    epoch: u64,
    writable: bool,
    direct: bool,
}

impl SimulatedFile {
    fn with<T>(&self, work: impl FnOnce(&mut World) -> Result<T>) -> Result<T> {
        let mut world = self.world.lock();
        world.check_handle(self.epoch)?;
        work(&mut world)
    }

    fn change<T>(&self, work: impl FnOnce(&mut World) -> Result<T>) -> Result<T> {
        if !self.writable {
            return Err(std::io::Error::new(
                std::io::ErrorKind::PermissionDenied,
                "opened for reading only",
            ));
        }
        self.with(work)
    }
}

impl File for SimulatedFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        // A disk reads through the cache what has not the right form, and nobody would notice. What comes behind a read
        // that was short may have any.
        if self.direct && offset.is_multiple_of(DIRECT_BYTES as u64) && !is_aligned(buffer, offset) {
            let unaligned = format!("a direct read of {} bytes at {offset}", buffer.len());
            return Err(std::io::Error::new(std::io::ErrorKind::InvalidInput, unaligned));
        }
        self.with(|world| world.read(self.inode, buffer, offset))
    }

    fn is_direct(&self) -> bool {
        self.direct
    }

    fn write_all_at(&self, bytes: &[u8], offset: u64) -> Result<()> {
        self.change(|world| world.write(self.inode, bytes, offset))
    }

    fn sync_data(&self) -> Result<()> {
        self.with(|world| world.sync_file(self.inode))
    }

    fn len(&self) -> Result<u64> {
        self.with(|world| Ok(world.file(self.inode)?.image.live_bytes()))
    }

    fn set_len(&self, bytes: u64) -> Result<()> {
        self.change(|world| world.set_len(self.inode, bytes))
    }

    fn allocate(&self, offset: u64, bytes: u64) -> Result<()> {
        self.change(|world| world.allocate(self.inode, offset, bytes))
    }
}

struct SimulatedLock {
    world: Arc<Mutex<World>>,
    inode: u64,
    epoch: u64,
}

impl DirectoryLock for SimulatedLock {
    fn write_content(&self, content: &[u8]) -> Result<()> {
        let mut world = self.world.lock();
        world.check_handle(self.epoch)?;
        world.set_len(self.inode, 0)?;
        world.write(self.inode, content, 0)
    }
}

impl Drop for SimulatedLock {
    fn drop(&mut self) {
        let mut world = self.world.lock();
        if world.epoch == self.epoch {
            world.locked.remove(&self.inode);
        }
    }
}
