//! Checkpoints: a short quiesce and a doubled write.
//!
//! 1. **Cut.** Between two batches: the dirty pages as they are, the changed pages of namespaces and owner maps.
//!    Batches go on; who changes a page of the cut copies it.
//! 2. **Log.** The log is durable up to the cut's position.
//! 3. **Room.** Files are made and blocks reserved. So far nothing has happened: a full disk is an error that passes.
//! 4. **Aside.** New root and all images go to the journal, which is synced. From here on the checkpoint has happened.
//! 5. **In place.** The images go where they belong; each file is synced.
//! 6. **Root.** Both root files are written and synced. The journal is free again.
//!
//! A failure in 4's sync or behind it stops the engine: what the disk holds is decided at the next start.

use crate::apply::Applier;
use crate::bytes_at::{checksum, put, u32_at};
use crate::cache::CapturedPage;
use crate::database::{Database, file_path};
use crate::files::{DataFile, ENTRIES_PER_PAGE, Page, header_page, io_error, map_pages};
use crate::journal::{Image, Journal};
use crate::loc::{ALL_SECTORS, NAMESPACE_FILE, PAGE_BYTES, SECTOR_BYTES};
use crate::room::make_room;
use crate::root::{Root, RootDatabase, RootFile, RootFiles};
use crate::sealing::{PageSealing, SEALED_PAGE_BYTES};
use crate::shared::Shared;
use engine::{EngineError, Result, Seq, WriteAheadRule};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use vfs::File;

/// Pages side by side are written in one call up to this many bytes.
const WRITE_BYTES: usize = 1 << 20;

/// What checkpoints know of the disk.
pub(crate) struct Disk {
    /// The newest durable one.
    pub(crate) root: Root,
    pub(crate) root_files: RootFiles,
    pub(crate) journal: Journal,
    /// Directories that got names which are not durable yet.
    pub(crate) unsynced: BTreeSet<PathBuf>,
    /// Files that attempts made and no root names yet.
    pub(crate) made: BTreeSet<PathBuf>,
    pub(crate) written: Written,
}

/// An open file and its path, for messages.
#[derive(Clone)]
pub(crate) struct NamedFile {
    pub(crate) file: Arc<dyn File>,
    pub(crate) path: PathBuf,
    pub(crate) sealing: Option<PageSealing>,
}

/// Counters.
#[derive(Clone, Copy, Default)]
pub(crate) struct Written {
    pub(crate) checkpoints: u64,
    pub(crate) journal_bytes: u64,
    pub(crate) in_place_bytes: u64,
    pub(crate) pages: u64,
}

/// How writing a checkpoint failed.
pub(crate) enum Failure {
    /// The one before stands and all is as it was: trying again is sound.
    Harmless(EngineError),
    /// What the disk holds is not known any more.
    Fatal(EngineError),
}

/// Everything that changed, as it stood between two batches.
pub(crate) struct Cut {
    pub(crate) seq: Seq,
    pub(crate) databases: Vec<CutDatabase>,
    /// Those that were left with nothing.
    removed: Vec<Arc<Database>>,
    pages: Vec<CapturedPage>,
}

pub(crate) struct CutDatabase {
    pub(crate) database: Arc<Database>,
    /// No root has it: all of it is written.
    pub(crate) is_new: bool,
    namespaces: Vec<(u32, Page)>,
    pub(crate) namespace_pages: usize,
    owners: Vec<(u16, u32, Page)>,
    pub(crate) files: Vec<Arc<DataFile>>,
}

/// Draws a cut. The applier is held: no batch is under way.
pub(crate) fn draw(shared: &Shared, applier: &mut Applier) -> Cut {
    let seq = applier.last.max(shared.pins.published());
    for id in std::mem::take(&mut applier.changed) {
        if let Ok(table) = shared.live_table(id) {
            let state = table.state.read();
            table.database.namespaces.lock().write(id, &table.spec, &state.store);
        }
    }
    let mut removed = Vec::new();
    shared.databases.write().retain(|_, database| {
        // Nothing is left of it: the new root has it no more, and who needs one of that name makes a new one.
        let is_empty = database.namespaces.lock().used_bytes() == 0 && database.space.lock().is_all_free();
        if is_empty {
            removed.push(Arc::clone(database));
        }
        !is_empty
    });
    // Loads run on beside this: the files are listed behind the pages, so that each page's file is among them. What a
    // load gets meanwhile is free at the next start, whatever the owner maps say of it.
    let pages = shared.cache.capture();
    let cut_one = |database: Arc<Database>| {
        let mut namespaces = database.namespaces.lock();
        let mut space = database.space.lock();
        let is_new = !database.is_persisted.load(Relaxed);
        let files = database.files();
        let mut changed = space.take_changed();
        for file in files.iter().filter(|file| is_new || !file.is_persisted.load(Relaxed)) {
            changed.extend((0..map_pages(file.pages)).map(|map| (file.number, map)));
        }
        let owners = changed
            .into_iter()
            .map(|(file, map)| (file, map, space.owner_page(file, map)))
            .collect();
        drop(space);
        let changed = namespaces.take_changed(is_new);
        let namespace_pages = namespaces.page_count();
        drop(namespaces);
        CutDatabase {
            is_new,
            namespaces: changed,
            namespace_pages,
            owners,
            files,
            database,
        }
    };
    Cut {
        seq,
        databases: shared.all_databases().into_iter().map(cut_one).collect(),
        removed,
        pages,
    }
}

/// Gives back what a cut took, after a failure that left the disk as it was.
pub(crate) fn undo(shared: &Shared, cut: Cut) {
    for part in cut.databases {
        let mut namespaces = part.database.namespaces.lock();
        namespaces.restore_changed(part.namespaces.into_iter().map(|page| page.0));
        let owners = part.owners.into_iter().map(|(file, map, _)| (file, map));
        part.database.space.lock().restore_changed(owners);
    }
    // What no root has is gone for good: its files are removed before the next checkpoint.
    let removed = cut.removed.into_iter();
    for database in removed.filter(|database| database.is_persisted.load(Relaxed)) {
        shared
            .databases
            .write()
            .entry(database.name.clone())
            .or_insert(database);
    }
    shared.cache.not_written(cut.pages);
}

/// A new root, and all that must be in place for it to be true.
pub(crate) struct Plan {
    pub(crate) root: Root,
    images: Vec<Image>,
    /// Checksums that become those of their pages: database's place in the cut, file, page.
    pub(crate) checksums: BTreeMap<(usize, u16), Vec<(u32, u32)>>,
}

/// Writes a cut to disk.
pub(crate) fn write(
    shared: &Shared,
    disk: &mut Disk,
    cut: &Cut,
    log: &WriteAheadRule,
) -> std::result::Result<(), Failure> {
    log.wait_for_log(cut.seq).map_err(Failure::Harmless)?;
    let plan = plan(disk, cut, shared.env.fs.keys().is_some());
    make_room(shared, disk, cut, &plan)?;
    let journal_bytes = disk
        .journal
        .write(&plan.root, &plan.images)
        .map_err(Failure::Harmless)?;
    disk.journal.sync().map_err(Failure::Fatal)?;
    let handle = |image: &Image| {
        let part = &cut.databases[image.database as usize];
        match image.file {
            NAMESPACE_FILE => (
                part.database.namespace_handle.get().cloned(),
                part.database.namespace_path(),
            ),
            number => {
                let file = &part.files[number as usize];
                (file.handle.get().cloned(), file.path.clone())
            }
        }
    };
    let in_place_bytes = put_in_place(&plan.images, &mut |image| {
        let (file, path) = handle(image);
        let file = file.expect("its file was made before");
        let sealing = cut.databases[image.database as usize].database.sealing(image.file);
        Ok(NamedFile { file, path, sealing })
    })
    .map_err(Failure::Fatal)?;
    disk.root_files.write(&plan.root).map_err(Failure::Fatal)?;
    settle(shared, cut, &plan);
    disk.made.clear();
    disk.journal.cut();
    let before = std::mem::replace(&mut disk.root, plan.root);
    // What this leaves behind, the next start removes.
    let _ = remove_unnamed(shared, &before, &disk.root);
    let written = &mut disk.written;
    written.checkpoints += 1;
    written.journal_bytes += journal_bytes;
    written.in_place_bytes += in_place_bytes;
    written.pages += plan.images.len() as u64;
    Ok(())
}

fn plan(disk: &Disk, cut: &Cut, is_sealed: bool) -> Plan {
    let mut root = Root {
        generation: disk.root.generation + 1,
        seq: cut.seq,
        databases: Vec::new(),
    };
    let mut images = Vec::new();
    let mut checksums: BTreeMap<(usize, u16), Vec<(u32, u32)>> = BTreeMap::new();
    let number_of: BTreeMap<u32, usize> = (0..)
        .zip(&cut.databases)
        .map(|(number, part)| (part.database.id, number))
        .collect();
    for captured in &cut.pages {
        let (database, file, page) = Database::place_of(captured.id);
        // A database that has gone has nothing to keep. Pages of a file that was given back left the cache before.
        let Some(&number) = number_of.get(&database) else {
            continue;
        };
        let has_file = usize::from(file) < cut.databases[number].files.len();
        debug_assert!(has_file, "{:?} lies in a file that the cut lacks", captured.id);
        if has_file {
            checksums
                .entry((number, file))
                .or_default()
                .push((page, checksum(&captured.page[..])));
            images.push(Image {
                database: number as u32,
                file: file.into(),
                page,
                sectors: captured.sectors,
                bytes: Arc::clone(&captured.page),
            });
        }
    }
    for (number, part) in cut.databases.iter().enumerate() {
        let known = disk
            .root
            .databases
            .iter()
            .find(|known| known.name == part.database.name);
        let mut entry = known.filter(|_| !part.is_new).cloned().unwrap_or_else(|| RootDatabase {
            name: part.database.name.clone(),
            own_directory: part.database.own_directory,
            ..RootDatabase::default()
        });
        plan_namespaces(number as u32, part, &mut entry, &mut images);
        entry.files.truncate(part.files.len());
        for file in &part.files {
            let sums = checksums.get(&(number, file.number)).map_or(&[][..], Vec::as_slice);
            plan_maps(number as u32, part, file, sums, &mut entry, &mut images);
        }
        root.databases.push(entry);
    }
    images.sort_by_key(|image| (image.database, image.file, image.page));
    if is_sealed {
        // Encrypted anew, each of its bytes changes.
        images.iter_mut().for_each(|image| image.sectors = ALL_SECTORS);
    }
    Plan {
        root,
        images,
        checksums,
    }
}

fn plan_namespaces(number: u32, part: &CutDatabase, entry: &mut RootDatabase, images: &mut Vec<Image>) {
    let mut add = |page: u32, bytes: Page| {
        images.push(Image {
            database: number,
            file: NAMESPACE_FILE,
            page,
            sectors: ALL_SECTORS,
            bytes,
        });
    };
    if part.is_new {
        add(0, header_page(&part.database.name, NAMESPACE_FILE, 0));
    }
    entry.namespaces.resize(part.namespace_pages, 0);
    for (page, bytes) in &part.namespaces {
        entry.namespaces[*page as usize] = checksum(&bytes[..]);
        add(page + 1, Arc::clone(bytes));
    }
}

/// The maps of a data file: the checksums of the pages that are written, the owners that changed.
fn plan_maps(
    number: u32,
    part: &CutDatabase,
    file: &DataFile,
    sums: &[(u32, u32)],
    entry: &mut RootDatabase,
    images: &mut Vec<Image>,
) {
    let is_new = part.is_new || !file.is_persisted.load(Relaxed);
    let maps = map_pages(file.pages);
    let mut add = |page: u32, sectors: u16, bytes: Page| {
        images.push(Image {
            database: number,
            file: file.number.into(),
            page,
            sectors,
            bytes,
        });
    };
    let at = usize::from(file.number);
    if is_new {
        entry.files.truncate(at);
        entry.files.push(RootFile {
            pages: file.pages,
            checksums: vec![0; maps as usize],
            owners: vec![0; maps as usize],
        });
        add(
            0,
            ALL_SECTORS,
            header_page(&part.database.name, file.number.into(), file.pages),
        );
    }
    let known = &mut entry.files[at];
    let mut changed: BTreeMap<u32, Vec<(u32, u32)>> = BTreeMap::new();
    if is_new {
        changed.extend((0..maps).map(|map| (map, Vec::new())));
    }
    for &(page, sum) in sums {
        changed
            .entry(page / ENTRIES_PER_PAGE)
            .or_default()
            .push((page % ENTRIES_PER_PAGE, sum));
    }
    for (map, entries) in changed {
        let mut sectors = if is_new { ALL_SECTORS } else { 0 };
        let mut page = checksum_page(file, map);
        let bytes = Arc::get_mut(&mut page).expect("nobody else has it yet");
        for (index, sum) in entries {
            put(bytes, index as usize * 4, &sum.to_le_bytes());
            sectors |= 1 << (index as usize * 4 / SECTOR_BYTES);
        }
        known.checksums[map as usize] = checksum(&page[..]);
        add(1 + map, sectors, page);
    }
    for (_, map, page) in part.owners.iter().filter(|owners| owners.0 == file.number) {
        known.owners[*map as usize] = checksum(&page[..]);
        add(1 + maps + map, ALL_SECTORS, Arc::clone(page));
    }
}

/// A page of a file's checksum map as the checkpoint before left it.
fn checksum_page(file: &DataFile, map: u32) -> Page {
    let mut page = Arc::new([0; PAGE_BYTES]);
    let bytes = Arc::get_mut(&mut page).expect("nobody else has it yet");
    let sums = file.checksums.read();
    let first = (map * ENTRIES_PER_PAGE) as usize;
    let entries = sums[first..].iter().take(ENTRIES_PER_PAGE as usize);
    entries
        .enumerate()
        .for_each(|(index, sum)| put(bytes, index * 4, &sum.to_le_bytes()));
    page
}

/// Writes images where they belong and makes them durable. They come sorted by file and page.
pub(crate) fn put_in_place(images: &[Image], handle: &mut dyn FnMut(&Image) -> Result<NamedFile>) -> Result<u64> {
    let mut bytes_written = 0;
    for of_file in images.chunk_by(|left, right| (left.database, left.file) == (right.database, right.file)) {
        let NamedFile { file, path, sealing } = handle(&of_file[0])?;
        let mut buffer: Vec<u8> = Vec::new();
        let mut start = 0;
        let mut flush = |buffer: &mut Vec<u8>, start: u64| {
            bytes_written += buffer.len() as u64;
            let done = file.write_all_at(buffer, start).map_err(io_error("write", &path));
            buffer.clear();
            done
        };
        for image in of_file {
            if let Some(sealing) = &sealing {
                let at = u64::from(image.page) * SEALED_PAGE_BYTES as u64;
                if start + buffer.len() as u64 != at || buffer.len() >= WRITE_BYTES {
                    if !buffer.is_empty() {
                        flush(&mut buffer, start)?;
                    }
                    start = at;
                }
                sealing.seal(image.page, &image.bytes, &mut buffer);
                continue;
            }
            for run in Image::runs(image.sectors) {
                let at = u64::from(image.page) * PAGE_BYTES as u64 + run.start as u64;
                if start + buffer.len() as u64 != at || buffer.len() >= WRITE_BYTES {
                    if !buffer.is_empty() {
                        flush(&mut buffer, start)?;
                    }
                    start = at;
                }
                buffer.extend_from_slice(&image.bytes[run]);
            }
        }
        if !buffer.is_empty() {
            flush(&mut buffer, start)?;
        }
        file.sync_data().map_err(io_error("sync", &path))?;
    }
    Ok(bytes_written)
}

/// Takes note of what is on disk now.
fn settle(shared: &Shared, cut: &Cut, plan: &Plan) {
    for ((number, file), sums) in &plan.checksums {
        let mut known = cut.databases[*number].files[usize::from(*file)].checksums.write();
        sums.iter().for_each(|&(page, sum)| known[page as usize] = sum);
    }
    for part in &cut.databases {
        part.database.is_persisted.store(true, Relaxed);
        part.files
            .iter()
            .for_each(|file| file.is_persisted.store(true, Relaxed));
    }
    shared.cache.written(cut.pages.iter().map(|page| page.id));
}

/// Every file of a root, by path.
pub(crate) fn files_of(root: &Root, directory: &Path) -> BTreeSet<PathBuf> {
    let mut paths = BTreeSet::new();
    for database in &root.databases {
        let path = |extension: &str| file_path(directory, &database.name, database.own_directory, extension);
        paths.insert(path("ns"));
        paths.extend((0..database.files.len()).map(|number| path(&number.to_string())));
    }
    paths
}

/// Removes files that the root before named and the new one does not.
fn remove_unnamed(shared: &Shared, before: &Root, now: &Root) -> Result<()> {
    let named = files_of(now, &shared.directory);
    for path in files_of(before, &shared.directory).difference(&named) {
        if shared.env.fs.exists(path).map_err(io_error("look for", path))? {
            shared.env.fs.remove_file(path).map_err(io_error("remove", path))?;
        }
    }
    for gone in before.databases.iter().filter(|known| known.own_directory) {
        if !now.databases.iter().any(|kept| kept.name == gone.name) {
            let directory = crate::database::directory(&shared.directory, &gone.name, true);
            let removed = shared.env.fs.remove_directory_all(&directory);
            removed.map_err(io_error("remove", &directory))?;
        }
    }
    Ok(())
}

/// The entries of a page of a map.
pub(crate) fn entries(page: &[u8; PAGE_BYTES]) -> impl Iterator<Item = u32> {
    (0..ENTRIES_PER_PAGE as usize).map(|index| u32_at(page, index * 4).unwrap_or(0))
}
