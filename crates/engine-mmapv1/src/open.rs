//! Opening: the newest root that is whole, a journal that was not put in place yet, and then what the root names.
//!
//! Of each data file the maps are read, a thousandth of it; pages are read when they are asked for. Everything is
//! checked against the root.

use crate::bytes_at::checksum;
use crate::checkpoint::{Disk, NamedFile, Written, entries, files_of, put_in_place};
use crate::database::{Database, directory as database_directory, file_path};
use crate::files::{DataFile, Page, check_header, corrupt, io_error, map_pages, read_page_at};
use crate::journal::{Image, Journal};
use crate::loc::NAMESPACE_FILE;
use crate::namespaces::Namespaces;
use crate::options::Mmapv1Options;
use crate::root::{Root, RootDatabase, RootFile, RootFiles};
use crate::sealing::{PageSealing, stored_page_bytes};
use crate::shared::Shared;
use crate::space::{Extent, Owner};
use crate::table::Table;
use engine::{Result, Seq, TableId};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use vfs::{Access, Env, File};

/// Images of a journal that are put in place at once.
const REPLAYED_AT_ONCE: usize = 4096;

/// Opens a directory, and finishes a checkpoint that a crash left between journal and root.
pub(crate) fn open(env: &Env, directory: &Path, options: Mmapv1Options) -> Result<(Shared, Disk)> {
    let (root_files, newest, stale) = RootFiles::open(env, directory)?;
    let journal = Journal::open(env, directory)?;
    let unfinished = journal
        .read_root()?
        .filter(|(root, _)| newest.as_ref().is_none_or(|newest| newest.generation < root.generation));
    let root = match (unfinished, newest) {
        (Some((root, images)), _) => {
            replay(env, directory, &journal, &root, images)?;
            root_files.write(&root)?;
            root
        }
        (None, Some(root)) => {
            // The other one alone: until both are whole again this one is all there is.
            if let Some(stale) = stale {
                root_files.write_one(&root, stale)?;
            }
            root
        }
        (None, None) => {
            if !journal.is_empty()? || !data_files(env, directory)?.is_empty() {
                let path = directory.join(crate::root::FILE_NAMES[0]);
                return Err(corrupt(
                    &path,
                    0,
                    "there are data files, and neither root file is whole".into(),
                ));
            }
            let root = Root {
                generation: 1,
                ..Root::default()
            };
            root_files.write(&root)?;
            root
        }
    };
    env.fs.sync_directory(directory).map_err(io_error("sync", directory))?;
    let named = files_of(&root, directory);
    for orphan in data_files(env, directory)?.difference(&named) {
        env.fs.remove_file(orphan).map_err(io_error("remove", orphan))?;
    }
    let shared = Shared::new(env, directory.to_owned(), options, root.seq);
    for known in &root.databases {
        load_database(&shared, known, root.seq)?;
    }
    let disk = Disk {
        root,
        root_files,
        journal,
        unsynced: BTreeSet::new(),
        made: BTreeSet::new(),
        written: Written::default(),
    };
    Ok((shared, disk))
}

/// Every file below the engine's directory that is named like one of a database.
fn data_files(env: &Env, directory: &Path) -> Result<BTreeSet<PathBuf>> {
    let is_data = |name: &Path| {
        let extension = name.extension().and_then(|extension| extension.to_str());
        extension.is_some_and(|text| text == "ns" || text.bytes().all(|byte| byte.is_ascii_digit()))
    };
    let is_root = |name: &Path| crate::root::FILE_NAMES.iter().any(|root| name == Path::new(root));
    let mut found = BTreeSet::new();
    for name in env.fs.list(directory).map_err(io_error("list", directory))? {
        let path = directory.join(&name);
        if is_root(&name) {
            continue;
        }
        if is_data(&name) {
            found.insert(path);
        } else if let Ok(below) = env.fs.list(&path) {
            found.extend(
                below
                    .into_iter()
                    .filter(|name| is_data(name))
                    .map(|name| path.join(name)),
            );
        }
    }
    Ok(found)
}

/// Puts the images of a journal in place and makes them durable, names included.
fn replay(env: &Env, directory: &Path, journal: &Journal, root: &Root, count: u64) -> Result<()> {
    let mut handles: BTreeMap<(u32, u32), NamedFile> = BTreeMap::new();
    let mut handle = |image: &Image| -> Result<NamedFile> {
        if let Some(open) = handles.get(&(image.database, image.file)) {
            return Ok(open.clone());
        }
        let database = root.databases.get(image.database as usize);
        let known = database.filter(|known| image.file == NAMESPACE_FILE || (image.file as usize) < known.files.len());
        let Some(known) = known else {
            let path = directory.join(crate::journal::FILE_NAME);
            return Err(corrupt(
                &path,
                0,
                format!("an image of file {} of database {}", image.file, image.database),
            ));
        };
        let home = database_directory(directory, &known.name, known.own_directory);
        vfs::create_directory_durably(&*env.fs, &home).map_err(io_error("create", &home))?;
        let extension = match image.file {
            NAMESPACE_FILE => "ns".to_owned(),
            number => number.to_string(),
        };
        let path = file_path(directory, &known.name, known.own_directory, &extension);
        let file = env
            .fs
            .open(&path, Access::OpenOrCreate)
            .map_err(io_error("open", &path))?;
        let keys = env.fs.keys();
        let sealing = keys.map(|keys| PageSealing::new(keys, &known.name, image.file));
        let named = NamedFile { file, path, sealing };
        handles.insert((image.database, image.file), named.clone());
        Ok(named)
    };
    let mut images = Vec::new();
    journal.read_images(root, count, &mut |image| {
        images.push(image);
        if images.len() == REPLAYED_AT_ONCE {
            put_in_place(&images, &mut handle)?;
            images.clear();
        }
        Ok(())
    })?;
    put_in_place(&images, &mut handle)?;
    for known in root.databases.iter().filter(|known| known.own_directory) {
        let home = database_directory(directory, &known.name, true);
        env.fs.sync_directory(&home).map_err(io_error("sync", &home))?;
    }
    env.fs.sync_directory(directory).map_err(io_error("sync", directory))
}

fn open_file(shared: &Shared, path: &Path) -> Result<Arc<dyn File>> {
    shared
        .env
        .fs
        .open(path, Access::ReadWrite)
        .map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => corrupt(path, 0, "the file is missing".into()),
            _ => io_error("open", path)(error),
        })
}

/// Reads a page that the root has the checksum of.
fn read_checked(file: &dyn File, path: &Path, page: u32, expected: u32, sealing: Option<&PageSealing>) -> Result<Page> {
    let read = read_page_at(file, path, page, sealing)?;
    match checksum(&read[..]) {
        found if found == expected => Ok(read),
        found => {
            let reason = format!("the page's checksum is {found:08x} and should be {expected:08x}");
            let offset = u64::from(page) * stored_page_bytes(sealing.is_some());
            Err(corrupt(path, offset, reason))
        }
    }
}

fn load_database(shared: &Shared, known: &RootDatabase, seq: Seq) -> Result<()> {
    let database = shared.make_database(&known.name, known.own_directory);
    database.is_persisted.store(true, Relaxed);
    let path = database.namespace_path();
    let sealing = database.sealing(NAMESPACE_FILE);
    let file = open_file(shared, &path)?;
    let header = read_page_at(&*file, &path, 0, sealing.as_ref())?;
    check_header(&header, &path, &known.name, NAMESPACE_FILE, 0)?;
    let pages = (1..)
        .zip(&known.namespaces)
        .map(|(page, &expected)| read_checked(&*file, &path, page, expected, sealing.as_ref()));
    let (namespaces, mut tables) = Namespaces::load(pages.collect::<Result<_>>()?)
        .ok_or_else(|| corrupt(&path, 0, "an entry is unsound".into()))?;
    *database.namespaces.lock() = namespaces;
    let _ = database.namespace_handle.set(file);
    let mut extents: BTreeMap<TableId, Vec<Extent>> = BTreeMap::new();
    for (number, known) in (0..).zip(&known.files) {
        for (extent, owner) in load_file(shared, &database, number, known)? {
            let Some(table) = owner.as_table() else { continue };
            extents.entry(table).or_default().push(extent);
        }
    }
    for (id, spec, store) in &mut tables {
        store.extents = extents.remove(id).unwrap_or_default();
        let table = Table::new(*id, spec.clone(), Arc::clone(&database), seq, std::mem::take(store));
        shared.insert_table(table);
    }
    if let Some((id, _)) = extents.pop_first() {
        return Err(corrupt(&path, 0, format!("{id:?} has extents and no entry")));
    }
    shared.databases.write().insert(known.name.clone(), database);
    Ok(())
}

/// Opens a data file and reads its maps; its extents and whom they belong to.
fn load_file(shared: &Shared, database: &Database, number: u16, known: &RootFile) -> Result<Vec<(Extent, Owner)>> {
    let path = database.file_path(number.into());
    let sealing = database.sealing(number.into());
    let file = DataFile::new(number, known.pages, path.clone(), sealing.clone());
    let handle = open_file(shared, &path)?;
    let header = read_page_at(&*handle, &path, 0, sealing.as_ref())?;
    check_header(&header, &path, &database.name, number.into(), known.pages)?;
    let maps = map_pages(known.pages);
    let read_map = |first: u32, sums: &[u32]| -> Result<Vec<u32>> {
        let mut all = Vec::with_capacity(known.pages as usize);
        for (page, &expected) in (first..).zip(sums) {
            all.extend(entries(&*read_checked(
                &*handle,
                &path,
                page,
                expected,
                sealing.as_ref(),
            )?));
        }
        all.truncate(known.pages as usize);
        Ok(all)
    };
    *file.checksums.write() = read_map(1, &known.checksums)?;
    let owners = read_map(1 + maps, &known.owners)?;
    file.is_persisted.store(true, Relaxed);
    let _ = file.handle.set(handle);
    let extents = database
        .space
        .lock()
        .load_file(known.pages, |page| owners[page as usize]);
    database.push_file(file);
    Ok(extents)
}
