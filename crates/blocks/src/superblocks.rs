//! Where superblocks lie, which one counts, and how the files that hold them are made.
//!
//! A file has two slots, a slot two copies of a superblock. The slot that is not the durable one is written, each copy
//! with a call of its own, and synced: whatever befalls one copy, the other one counts. Only a write that a crash tore,
//! which nobody was told of, leaves a slot without a whole copy; then the other slot counts.
//!
//! Invariant: a file has its name once it holds a whole superblock at every place. What is shorter, or has no whole
//! slot, is damaged; it is never taken for a store without a checkpoint.

use crate::block::{Mismatch, mismatch};
use crate::checkpoint::SIDE_FILE;
use crate::pin::PinnedFiles;
use crate::space::HEAD_SECTORS;
use crate::stats::add;
use crate::superblock::{SUPERBLOCK_BYTES, Superblock, check_torn};
use crate::{BlockError, BlockStore, Result, SECTOR_BYTES, VolumeId};
use crypt::Keys;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use vfs::{Access, Env, File, FileSystem};

/// Length of a slot: two copies, in what many disks write as a whole.
pub(crate) const SLOT_BYTES: usize = 2 * SUPERBLOCK_BYTES;
/// Bytes at the start of a file that hold superblocks.
pub(crate) const SUPERBLOCKS_BYTES: usize = 2 * SLOT_BYTES;

const _: () = assert!(SUPERBLOCKS_BYTES == HEAD_SECTORS as usize * SECTOR_BYTES);

/// A place of a superblock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Slot {
    /// In the side file, which is used while a checkpoint is pinned: copying must find the pinned one's superblock.
    pub side: bool,
    /// First or second.
    pub second: bool,
}

impl Slot {
    /// Offsets of its copies.
    fn places(self) -> [u32; 2] {
        let start = u32::from(self.second) * SLOT_BYTES as u32;
        [start, start + SUPERBLOCK_BYTES as u32]
    }
}

/// The superblocks of an open store.
pub(crate) struct Superblocks {
    pub durable: Slot,
    /// There while something is pinned, and until the main volume has a newer superblock.
    pub side: Option<Arc<dyn File>>,
    /// The durable one.
    pub current: Superblock,
    /// What the pins that live have pinned.
    pub pinned: PinnedFiles,
}

/// Why a superblock is not durable.
pub(crate) enum SuperblockFailure {
    /// The disk is full, and no place has it: as long as the durable one stands, nothing has happened.
    NotWritten(BlockError),
    /// A crash may find it.
    InDoubt(BlockError),
}

/// The durable superblock and where it lies.
pub(crate) struct Found {
    pub superblock: Superblock,
    pub slot: Slot,
    pub side: Option<Arc<dyn File>>,
}

/// A slot without a whole copy.
struct Broken {
    path: PathBuf,
    copies: [(u32, [u8; SUPERBLOCK_BYTES]); 2],
    error: BlockError,
}

/// The main volume's file, made when missing, and its durable superblock. `make` is the first superblock of a new
/// store.
pub(crate) fn open_main(
    env: &Env,
    directory: &Path,
    path: &Path,
    make: impl FnOnce() -> Result<Superblock>,
) -> Result<(Arc<dyn File>, Found)> {
    let side_path = directory.join(SIDE_FILE);
    let open = |path: &Path| match env.fs.open(path, Access::ReadWrite) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(BlockError::io("open", path)(error)),
    };
    match (open(path)?, open(&side_path)?) {
        (Some(file), side) => {
            let found = find(env, directory, (path, &file), (&side_path, side))?;
            Ok((file, found))
        }
        (None, Some(_)) => Err(damaged(path, 0, mismatch("file", "with the side file", "missing"))),
        (None, None) => {
            let superblock = make()?;
            let file = make_file(&*env.fs, directory, path, &superblock)?;
            let found = Found {
                superblock,
                slot: Slot {
                    side: false,
                    second: false,
                },
                side: None,
            };
            Ok((file, found))
        }
    }
}

/// Makes a file with a superblock at every place. It gets its name when that is durable.
fn make_file(fs: &dyn FileSystem, directory: &Path, path: &Path, superblock: &Superblock) -> Result<Arc<dyn File>> {
    let mut unfinished = path.as_os_str().to_owned();
    unfinished.push(".new");
    let unfinished = PathBuf::from(unfinished);
    let file = fs.open(&unfinished, Access::OpenOrCreate);
    let file = file.map_err(BlockError::io("create", &unfinished))?;
    let mut bytes = Vec::with_capacity(SUPERBLOCKS_BYTES);
    let keys = fs.keys().map(|keys| &**keys);
    for place in (0..SUPERBLOCKS_BYTES).step_by(SUPERBLOCK_BYTES) {
        bytes.extend_from_slice(&superblock.encode(place as u32, keys));
    }
    file.set_len(0).map_err(BlockError::io("empty", &unfinished))?;
    file.write_all_at(&bytes, 0)
        .map_err(BlockError::io("write to", &unfinished))?;
    file.sync_data().map_err(BlockError::io("sync", &unfinished))?;
    drop(file);
    fs.rename(&unfinished, path)
        .map_err(BlockError::io("rename", &unfinished))?;
    fs.sync_directory(directory)
        .map_err(BlockError::io("sync", directory))?;
    fs.open(path, Access::ReadWrite).map_err(BlockError::io("open", path))
}

/// The newest superblock of which a copy is whole.
fn find(
    env: &Env,
    directory: &Path,
    (path, file): (&Path, &Arc<dyn File>),
    (side_path, side): (&Path, Option<Arc<dyn File>>),
) -> Result<Found> {
    // A process that was killed may have left blocks and names unsynced. What is built upon must be durable.
    file.sync_data().map_err(BlockError::io("sync", path))?;
    if let Some(side) = &side {
        side.sync_data().map_err(BlockError::io("sync", side_path))?;
    }
    env.fs
        .sync_directory(directory)
        .map_err(BlockError::io("sync", directory))?;
    let keys = env.fs.keys().map(|keys| &**keys);
    let mut whole: Vec<(Superblock, Slot)> = Vec::new();
    let mut broken = Vec::new();
    for (file, path, in_side) in [(Some(file), path, false), (side.as_ref(), side_path, true)] {
        let Some(file) = file else { continue };
        let length = file.len().map_err(BlockError::io("measure", path))?;
        if length < SUPERBLOCKS_BYTES as u64 {
            return Err(damaged(
                path,
                0,
                mismatch("length", format!("at least {SUPERBLOCKS_BYTES} bytes"), length),
            ));
        }
        let before = whole.len();
        for second in [false, true] {
            let slot = Slot { side: in_side, second };
            match read_slot(file, path, slot, keys)? {
                Ok(found) => whole.push((found, slot)),
                Err(bad) => broken.push(bad),
            }
        }
        if whole.len() == before {
            return Err(broken.swap_remove(broken.len() - 1).error);
        }
    }
    // The first of equals: the main volume's.
    let best = whole.iter().rev().max_by_key(|(superblock, _)| superblock.number);
    let (superblock, slot) = best.expect("each file has a whole slot").clone();
    let other = whole
        .iter()
        .find(|(found, _)| (found.store, found.segment_bytes) != (superblock.store, superblock.segment_bytes));
    if let Some((other, slot)) = other {
        let path = if slot.side { side_path } else { path };
        return Err(damaged(
            path,
            slot.places()[0],
            mismatch("store", superblock.store, other.store),
        ));
    }
    if superblock.number == 0 {
        // A first checkpoint that was made durable is not forgotten for damage: a write cut short leaves the start of a
        // superblock as it was or as it was to be.
        for broken in &broken {
            for (place, bytes) in &broken.copies {
                check_torn(bytes, *place, &superblock, keys)
                    .map_err(|mismatch| damaged(&broken.path, *place, mismatch))?;
            }
        }
    }
    // It may be in the page cache only, marked as clean, where the sync of a process that has ended failed: then no
    // sync brings it to disk any more. Written again it is what the caller takes it for. Each copy over itself:
    // whatever a crash does to one, the other one counts.
    let (in_file, in_path) = match &side {
        Some(side) if slot.side => (side, side_path),
        _ => (file, path),
    };
    for place in slot.places() {
        let mut bytes = [0; SUPERBLOCK_BYTES];
        in_file
            .read_exact_at(&mut bytes, u64::from(place))
            .map_err(BlockError::io("read", in_path))?;
        // The same bytes: sealed anew they would be others, and a crash could tear both copies at once.
        if Superblock::decode(&bytes, place, keys).as_ref() != Ok(&superblock) {
            bytes = superblock.encode(place, keys);
        }
        in_file
            .write_all_at(&bytes, u64::from(place))
            .map_err(BlockError::io("write to", in_path))?;
    }
    in_file.sync_data().map_err(BlockError::io("sync", in_path))?;
    Ok(Found { superblock, slot, side })
}

/// The newer of the whole copies of a slot.
fn read_slot(
    file: &Arc<dyn File>,
    path: &Path,
    slot: Slot,
    keys: Option<&Keys>,
) -> Result<std::result::Result<Superblock, Broken>> {
    let mut copies = slot.places().map(|place| (place, [0; SUPERBLOCK_BYTES]));
    let mut best: Option<Superblock> = None;
    let mut first_error = None;
    for (place, bytes) in &mut copies {
        file.read_exact_at(bytes, u64::from(*place))
            .map_err(BlockError::io("read", path))?;
        match Superblock::decode(bytes, *place, keys) {
            Ok(found) if best.as_ref().is_none_or(|best| best.number < found.number) => best = Some(found),
            Ok(_) => {}
            Err(mismatch) => first_error = first_error.or(Some(damaged(path, *place, mismatch))),
        }
    }
    Ok(match (best, first_error) {
        (Some(found), _) => Ok(found),
        (None, error) => Err(Broken {
            path: path.to_owned(),
            copies,
            error: error.expect("a copy that is not whole has an error"),
        }),
    })
}

fn damaged(path: &Path, offset: u32, (what, expected, found): Mismatch) -> BlockError {
    BlockError::Damaged {
        path: path.to_owned(),
        sector: u64::from(offset) / SECTOR_BYTES as u64,
        what,
        expected,
        found,
    }
}

impl BlockStore {
    /// Makes a superblock durable in the slot that is not the durable one: two writes, one sync.
    pub(crate) fn write_superblock(
        &self,
        superblocks: &mut Superblocks,
        superblock: &Superblock,
    ) -> std::result::Result<Slot, SuperblockFailure> {
        use SuperblockFailure::{InDoubt, NotWritten};
        let side = self.state.lock().pins > 0;
        let slot = Slot {
            side,
            second: superblocks.durable.side == side && !superblocks.durable.second,
        };
        let main = self.find_volume(VolumeId::MAIN).map_err(InDoubt)?;
        let (file, path) = match &superblocks.side {
            Some(file) if side => (file, self.side_path()),
            // What is pinned has a side file.
            _ => (&main.file, main.path.clone()),
        };
        for place in slot.places() {
            let bytes = superblock.encode(place, self.fs.keys().map(|keys| &**keys));
            let written = file.write_all_at(&bytes, u64::from(place));
            if let Err(error) = written.map_err(BlockError::io("write to", &path)) {
                // Overwriting takes space on file systems that copy on write.
                if error.kind() == engine::ErrorKind::OutOfSpace {
                    self.take_back(file, &path, slot, &superblocks.current)
                        .map_err(InDoubt)?;
                    return Err(NotWritten(error));
                }
                return Err(InDoubt(error));
            }
        }
        // Not by `Volume::sync`, which leaves a sync that is under way to its caller.
        let synced = file.sync_data().map_err(BlockError::io("sync", &path));
        synced.map_err(InDoubt)?;
        add(&self.counters.syncs, 1);
        Ok(slot)
    }

    /// After a failed write: a slot that is not the durable one has no superblock that is newer than that. What such a
    /// one refers to may be written over from here on.
    fn take_back(&self, file: &Arc<dyn File>, path: &Path, slot: Slot, durable: &Superblock) -> Result<()> {
        let keys = self.fs.keys().map(|keys| &**keys);
        let mut is_changed = false;
        for place in slot.places() {
            let mut bytes = [0; SUPERBLOCK_BYTES];
            file.read_exact_at(&mut bytes, u64::from(place))
                .map_err(BlockError::io("read", path))?;
            if Superblock::decode(&bytes, place, keys).is_ok_and(|found| found.number > durable.number) {
                file.write_all_at(&durable.encode(place, keys), u64::from(place))
                    .map_err(BlockError::io("write to", path))?;
                is_changed = true;
            }
        }
        if is_changed {
            // The newer one may be on its way to the disk.
            file.sync_data().map_err(BlockError::io("sync", path))?;
        }
        Ok(())
    }

    /// Closes the store where a crash may find either superblock.
    pub(crate) fn after_superblock(&self, failure: SuperblockFailure) -> BlockError {
        match failure {
            SuperblockFailure::NotWritten(error) => error,
            SuperblockFailure::InDoubt(error) => self.close_after(error),
        }
    }

    /// For a checkpoint that will be pinned: makes the main volume's superblock the durable one, and a new side file
    /// for those to come. What fails here but for want of space leaves in doubt what a crash would find.
    pub(crate) fn prepare_pin(&self, superblocks: &mut Superblocks) -> Result<()> {
        let close = |error: BlockError| match error.kind() {
            engine::ErrorKind::OutOfSpace => error,
            _ => self.close_after(error),
        };
        if superblocks.durable.side {
            // It must tell of the durable checkpoint, not of one that was pinned before.
            let superblock = superblocks.current.clone();
            let written = self.write_superblock(superblocks, &superblock);
            superblocks.durable = written.map_err(|failure| self.after_superblock(failure))?;
        }
        self.remove_side_file(superblocks);
        let made = make_file(&*self.fs, &self.directory, &self.side_path(), &superblocks.current);
        superblocks.side = Some(made.map_err(close)?);
        Ok(())
    }

    /// Once the main volume has the durable superblock.
    pub(crate) fn remove_side_file(&self, superblocks: &mut Superblocks) {
        if !superblocks.durable.side && superblocks.side.take().is_some() {
            // Its superblocks are older now, or the same; a file that stays is no harm.
            let _ = self.fs.remove_file(&self.side_path());
        }
    }

    fn side_path(&self) -> PathBuf {
        self.directory.join(SIDE_FILE)
    }
}
