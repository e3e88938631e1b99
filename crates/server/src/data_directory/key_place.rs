//! The key store of a data directory: whether there must be one, and reading and writing it.
//!
//! All of a directory is encrypted or nothing, from its first file on. `storage.bson` says which; so a key store that
//! is lost, and a key that is given for a directory that is not encrypted, are told by name.

use super::metadata::BEGUN_FILE;
use super::{DataDirectoryError, KEY_STORE_COPY_FILE, KEY_STORE_FILE, Result, io, lock, read_start};
use super::{remove_file, write_unnamed, write_whole};
use crypt::{KEY_STORE_BYTES_MAX, KeyStore, KeyStoreError, Keys, MasterKey};
use std::path::Path;
use std::sync::Arc;
use vfs::FileSystem;

/// Where a first copy goes that is damaged.
const ASIDE_FILE: &str = "encryption.keys.damaged";

/// Why a directory and a master key do not go together.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeyPlaceError {
    /// No key was given.
    #[error(
        "it is encrypted: start with --enableEncryption and --encryptionKeyFile or --encryptionKeyCommand (tools: --encryptionKeyFile or --encryptionKeyCommand)"
    )]
    Encrypted,
    /// A key was given for nothing.
    #[error(
        "it is not encrypted, and what is in it stays as it is. To encrypt it, start on an empty dbPath with --enableEncryption and have the data copied there: as a member of the replica set (initial sync), or by tenon dump and tenon restore"
    )]
    Plain,
    /// The metadata says that it is encrypted.
    #[error("its key store {KEY_STORE_FILE} is missing: without it nothing can be read. Restore it from a backup")]
    Lost,
    /// The second copy is still under the master key that was given, and the first one is not.
    #[error(
        "the master key given is the former one: its key store {KEY_STORE_FILE} has another one since, and {KEY_STORE_COPY_FILE} was not replaced with it, or comes from elsewhere. Start with the new one; if that is lost, and no data key was added since, a copy of {KEY_STORE_COPY_FILE} in the place of {KEY_STORE_FILE} opens with the former one"
    )]
    CutShort,
    /// It cannot be used.
    #[error("its key store {KEY_STORE_FILE} {0}")]
    Store(#[from] crypt::KeyStoreError),
}

fn refused(directory: &Path, reason: impl Into<KeyPlaceError>) -> DataDirectoryError {
    DataDirectoryError::Keys {
        path: directory.to_owned(),
        reason: reason.into(),
    }
}

/// The bytes of a file of the store; `None` where it does not exist.
fn read_file(fs: &dyn FileSystem, directory: &Path, name: &str) -> Result<Option<Vec<u8>>> {
    let path = directory.join(name);
    match fs.exists(&path).map_err(io("look at", &path))? {
        true => read_start(fs, &path, KEY_STORE_BYTES_MAX as u64).map(Some),
        false => Ok(None),
    }
}

/// Whether there is a file of the store.
fn exists(fs: &dyn FileSystem, directory: &Path) -> Result<bool> {
    for name in [KEY_STORE_FILE, KEY_STORE_COPY_FILE] {
        if fs.exists(&directory.join(name)).map_err(io("look at", directory))? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The store of a directory, and the bytes it was read from; `None` where there is no file of it. Where the first copy
/// is missing or damaged, the second one counts. Not where it cannot be read for once: it may be the newer one.
fn read_store(fs: &dyn FileSystem, directory: &Path, master: &MasterKey) -> Result<Option<(KeyStore, Vec<u8>)>> {
    let decoded = |name: &str| {
        let Some(bytes) = read_file(fs, directory, name)? else {
            return Ok(None);
        };
        match KeyStore::decode(&bytes, master) {
            Ok(store) => Ok(Some((store, bytes))),
            Err(error) => Err(refused(directory, error)),
        }
    };
    let first = decoded(KEY_STORE_FILE);
    let (is_unusable, is_others) = match &first {
        Ok(found) => (found.is_none(), false),
        // A damaged version looks like a later one, whose two copies are the same.
        Err(DataDirectoryError::Keys {
            reason: KeyPlaceError::Store(error),
            ..
        }) => (
            matches!(error, KeyStoreError::Damaged(_) | KeyStoreError::Version(_)),
            matches!(error, KeyStoreError::OtherMaster { .. }),
        ),
        Err(_) => (false, false),
    };
    if !is_unusable && !is_others {
        return first;
    }
    match (decoded(KEY_STORE_COPY_FILE), first) {
        (Ok(Some(_)), _) if is_others => Err(refused(directory, KeyPlaceError::CutShort)),
        (Ok(Some(second)), _) => Ok(Some(second)),
        (second, Ok(_)) => second,
        (_, first) => first,
    }
}

/// Replaces both copies. What takes space comes first, and then the first copy decides: one of the two is whole at any
/// moment. Answers why the second one may not have been replaced, which the next start does.
fn write_store(fs: &dyn FileSystem, directory: &Path, bytes: &[u8]) -> Result<Option<DataDirectoryError>> {
    let names = [KEY_STORE_FILE, KEY_STORE_COPY_FILE];
    let written = names
        .iter()
        .try_for_each(|name| write_unnamed(fs, directory, name, bytes).map(drop));
    let rename = |name: &str| {
        let target = directory.join(name);
        fs.rename(&directory.join(format!("{name}.new")), &target)
            .map_err(io("rename", &target))
    };
    if let Err(error) = written.and_then(|()| rename(KEY_STORE_FILE)) {
        for name in names {
            let _ = remove_file(fs, &directory.join(format!("{name}.new")));
        }
        return Err(error);
    }
    let sync = || fs.sync_directory(directory).map_err(io("sync", directory));
    let copied = sync().and_then(|()| rename(KEY_STORE_COPY_FILE)).and_then(|()| sync());
    Ok(copied.err())
}

/// Gives a copy of the store that differs the bytes that count. On a full disk, say, one copy is enough to start, and a
/// later start writes the other one; but not beside one that would be taken for whole later, and may lack a key.
fn make_same(
    fs: &dyn FileSystem,
    directory: &Path,
    (name, bytes): (&str, &[u8]),
    master: Option<&MasterKey>,
) -> Result<()> {
    let found = read_file(fs, directory, name);
    let (is_same, is_stale) = match (&found, master) {
        (Ok(Some(found)), Some(master)) => {
            let decoded = KeyStore::decode(found, master);
            let is_whole = matches!(decoded, Ok(_) | Err(KeyStoreError::OtherMaster { .. }));
            (found == bytes, is_whole)
        }
        _ => (false, false),
    };
    if is_same {
        return Ok(());
    }
    let first = directory.join(KEY_STORE_FILE);
    if name == KEY_STORE_FILE && matches!(found, Ok(Some(_))) {
        let aside = fs.rename(&first, &directory.join(ASIDE_FILE));
        aside.map_err(io("rename", &first))?;
    }
    match write_whole(fs, directory, name, bytes) {
        Err(error) if is_stale => Err(error),
        _ => Ok(()),
    }
}

/// The store that a directory has; `None` where it is not encrypted, or not yet.
fn known(
    fs: &dyn FileSystem,
    directory: &Path,
    is_encrypted: Option<bool>,
    master: Option<&MasterKey>,
) -> Result<Option<(KeyStore, Vec<u8>)>> {
    match (is_encrypted, master) {
        (Some(true), None) => Err(refused(directory, KeyPlaceError::Encrypted)),
        (Some(false), Some(_)) => Err(refused(directory, KeyPlaceError::Plain)),
        (Some(false), None) => Ok(None),
        (Some(true), Some(master)) => match read_store(fs, directory, master)? {
            Some(found) => Ok(Some(found)),
            None => Err(refused(directory, KeyPlaceError::Lost)),
        },
        (None, None) => match exists(fs, directory)? {
            true => Err(refused(directory, KeyPlaceError::Encrypted)),
            false => Ok(None),
        },
        (None, Some(master)) => read_store(fs, directory, master),
    }
}

/// The keys of a directory of which the metadata says whether it is encrypted, or that has no metadata yet: then a
/// store is made, before anything that needs it. Both copies are made whole. The directory is locked.
pub(super) fn keys(
    fs: &dyn FileSystem,
    directory: &Path,
    is_encrypted: Option<bool>,
    master: Option<&MasterKey>,
) -> Result<Option<Arc<Keys>>> {
    let store = match (known(fs, directory, is_encrypted, master)?, master) {
        (Some((store, bytes)), _) => {
            // Before anything is sealed with a key that the second copy may lack.
            for name in [KEY_STORE_FILE, KEY_STORE_COPY_FILE] {
                make_same(fs, directory, (name, bytes.as_slice()), master)?;
            }
            store
        }
        (None, Some(master)) => {
            let store = KeyStore::create();
            match write_store(fs, directory, &store.encode(master))? {
                None => store,
                Some(error) => return Err(error),
            }
        }
        (None, None) => return Ok(None),
    };
    Ok(Some(Arc::new(store.keys())))
}

/// What [`keys`] would refuse of a directory that is there, before its lock file is made or anything else is touched.
pub(super) fn check(
    fs: &dyn FileSystem,
    directory: &Path,
    is_encrypted: Option<bool>,
    master: Option<&MasterKey>,
) -> Result<()> {
    known(fs, directory, is_encrypted, master).map(drop)
}

/// The keys of a directory, for who only reads it; `None` where it is not encrypted. Metadata that is damaged is told
/// by who needs it: whether there is a key store says enough here.
pub fn keys_to_read(fs: &dyn FileSystem, directory: &Path, master: Option<&MasterKey>) -> Result<Option<Arc<Keys>>> {
    let has_store = exists(fs, directory)?;
    let is_encrypted = match super::is_encrypted(fs, directory) {
        Ok(said) => said.unwrap_or(has_store),
        Err(DataDirectoryError::Damaged { .. } | DataDirectoryError::Version { .. }) => has_store,
        Err(error) => return Err(error),
    };
    match (is_encrypted, master) {
        (false, None) => Ok(None),
        (true, None) => Err(refused(directory, KeyPlaceError::Encrypted)),
        (false, Some(_)) => Err(refused(directory, KeyPlaceError::Plain)),
        (true, Some(master)) => match read_store(fs, directory, master)? {
            Some((store, _)) => Ok(Some(Arc::new(store.keys()))),
            None => Err(refused(directory, KeyPlaceError::Lost)),
        },
    }
}

/// What is to be done to a key store.
pub enum Rotation<'m> {
    /// Wrap the same keys with this master key.
    Master(&'m MasterKey),
    /// Seal with a new key from the next start on.
    Data,
}

/// A rotation that is in force.
#[derive(Debug)]
pub struct Rotated {
    /// How many generations of data keys there are.
    pub generations: usize,
    /// Why the second copy may not have been replaced: the next start does it.
    pub copy_failed: Option<DataDirectoryError>,
}

/// Rotates keys of a directory that no server uses. After a crash the store is the old one or the new one; after an
/// error it is the old one.
pub fn rotate(fs: &dyn FileSystem, directory: &Path, master: &MasterKey, rotation: &Rotation<'_>) -> Result<Rotated> {
    if !fs.exists(directory).map_err(io("look at", directory))? {
        return Err(DataDirectoryError::Missing(directory.to_owned()));
    }
    if !exists(fs, directory)? {
        let is_lost = super::is_encrypted(fs, directory)? == Some(true);
        let reason = if is_lost {
            KeyPlaceError::Lost
        } else {
            KeyPlaceError::Plain
        };
        return Err(refused(directory, reason));
    }
    let mut locks = vec![lock(fs, directory, super::LOCK_FILE)?];
    // A lock makes its file: an empty one would be metadata that are damaged.
    for name in [super::METADATA_FILE, BEGUN_FILE] {
        if fs.exists(&directory.join(name)).map_err(io("look at", directory))? {
            locks.push(lock(fs, directory, name)?);
        }
    }
    let found = read_store(fs, directory, master)?;
    let (mut store, _) = found.ok_or_else(|| refused(directory, KeyPlaceError::Lost))?;
    let wrapping = match rotation {
        Rotation::Master(new) => *new,
        Rotation::Data => {
            store.add_generation().map_err(|error| refused(directory, error))?;
            master
        }
    };
    let copy_failed = write_store(fs, directory, &store.encode(wrapping))?;
    drop(locks);
    Ok(Rotated {
        generations: store.generations(),
        copy_failed,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::super::{DataDirectory, METADATA_FILE, Metadata};
    use super::*;
    use base64::Engine as _;
    use vfs::{Access, Fault, FaultKind, SimulatedFs};

    fn master(byte: u8) -> MasterKey {
        MasterKey::parse(base64::engine::general_purpose::STANDARD.encode([byte; 32]).as_bytes()).unwrap()
    }

    fn open(fs: &SimulatedFs, master: Option<&MasterKey>) -> Result<DataDirectory> {
        let wanted = Metadata {
            engine: "btree".into(),
            directory_per_db: false,
        };
        let opened = DataDirectory::open(fs, Path::new("/db"), &wanted, master)?;
        opened.note_opened(fs, true)?;
        Ok(opened)
    }

    fn remove_store(fs: &SimulatedFs) {
        for name in [KEY_STORE_FILE, KEY_STORE_COPY_FILE] {
            fs.remove_file(&Path::new("/db").join(name)).unwrap();
        }
    }

    fn disk() -> SimulatedFs {
        let fs = SimulatedFs::new(1);
        fs.create_directory_all(Path::new("/db")).unwrap();
        fs.sync_directory(Path::new("/")).unwrap();
        fs
    }

    fn reason(result: Result<impl Sized>) -> KeyPlaceError {
        match result.err().unwrap() {
            DataDirectoryError::Keys { reason, .. } => reason,
            other => panic!("{other}"),
        }
    }

    #[test]
    fn a_directory_is_encrypted_from_the_start_or_never() {
        let fs = disk();
        let opened = open(&fs, Some(&master(1))).unwrap();
        assert_eq!(opened.keys.as_ref().unwrap().generation(), 1);
        drop(opened);
        assert!(matches!(reason(open(&fs, None)), KeyPlaceError::Encrypted));
        let other = reason(open(&fs, Some(&master(2))));
        assert!(matches!(
            other,
            KeyPlaceError::Store(crypt::KeyStoreError::OtherMaster { .. })
        ));
        drop(open(&fs, Some(&master(1))).unwrap());
        remove_store(&fs);
        assert!(matches!(reason(open(&fs, Some(&master(1)))), KeyPlaceError::Lost));
        assert!(matches!(reason(open(&fs, None)), KeyPlaceError::Encrypted));
        assert!(matches!(
            reason(rotate(&fs, Path::new("/db"), &master(1), &Rotation::Data)),
            KeyPlaceError::Lost
        ));
        let fs = disk();
        drop(open(&fs, None).unwrap());
        assert!(matches!(reason(open(&fs, Some(&master(1)))), KeyPlaceError::Plain));
        assert!(!fs.exists(Path::new("/db/encryption.keys")).unwrap());
        assert!(matches!(
            reason(rotate(&fs, Path::new("/db"), &master(1), &Rotation::Data)),
            KeyPlaceError::Plain
        ));
        drop(open(&fs, None).unwrap());
    }

    /// Between the key store and the metadata, and at every other moment of the first start.
    #[test]
    fn a_crash_while_it_is_made_leaves_one_that_opens_with_the_key_alone() {
        let operations = {
            let fs = disk();
            open(&fs, Some(&master(1))).unwrap();
            fs.operations()
        };
        let mut half_made = 0;
        for crash_at in disk().operations() + 1..=operations {
            let fs = disk();
            fs.crash_at(crash_at);
            let _ = open(&fs, Some(&master(1)));
            fs.restart();
            let has = |name: &str| fs.exists(&Path::new("/db").join(name)).unwrap();
            if has(KEY_STORE_FILE) {
                half_made += u32::from(!has(METADATA_FILE));
                assert!(
                    matches!(reason(open(&fs, None)), KeyPlaceError::Encrypted),
                    "crash at {crash_at}"
                );
            }
            let opened = open(&fs, Some(&master(1))).unwrap();
            assert!(opened.keys.is_some());
        }
        assert!(half_made > 0);
    }

    #[test]
    fn a_crash_at_any_moment_of_a_rotation_leaves_the_old_store_or_the_new_one() {
        let path = Path::new("/db");
        let (old, new) = (master(1), master(2));
        for rotation in [Rotation::Master(&new), Rotation::Data] {
            let (mut olds, mut news) = (0, 0);
            for step in 1.. {
                let fs = disk();
                let keys = open(&fs, Some(&old)).unwrap().keys.unwrap();
                let mut text = *b"what was written before";
                let seal = keys.seal(b"there", &mut text);
                fs.crash_at(fs.operations() + step);
                let done = rotate(&fs, path, &old, &rotation);
                if done.is_ok() && !fs.has_crashed() {
                    break;
                }
                fs.restart();
                let with = |master: &MasterKey| open(&fs, Some(master)).map(|opened| opened.keys.unwrap());
                let found = match (&rotation, with(&old), with(&new)) {
                    (Rotation::Master(_), Ok(found), Err(_)) => (found, &mut olds),
                    (Rotation::Master(_), Err(_), Ok(found)) => (found, &mut news),
                    (Rotation::Data, Ok(found), Err(_)) if found.generation() == 1 => (found, &mut olds),
                    (Rotation::Data, Ok(found), Err(_)) => (found, &mut news),
                    _ => panic!("step {step}: one of both masters opens it"),
                };
                *found.1 += 1;
                found.0.open(b"there", &seal, &mut text).unwrap();
                assert_eq!(&text, b"what was written before");
            }
            assert!(olds > 0 && news > 0, "{olds} old ones, {news} new ones");
        }
    }

    #[test]
    fn a_rotation_needs_the_old_key_and_the_directory_for_itself() {
        let fs = disk();
        let path = Path::new("/db");
        let held = open(&fs, Some(&master(1))).unwrap();
        let busy = rotate(&fs, path, &master(1), &Rotation::Data);
        assert!(matches!(busy, Err(DataDirectoryError::InUse(_))));
        drop(held);
        assert!(matches!(
            reason(rotate(&fs, path, &master(2), &Rotation::Data)),
            KeyPlaceError::Store(_)
        ));
        let generations = |master: &MasterKey, rotation| rotate(&fs, path, master, &rotation).unwrap().generations;
        assert_eq!(generations(&master(1), Rotation::Data), 2);
        assert_eq!(generations(&master(1), Rotation::Master(&master(3))), 2);
        assert_eq!(open(&fs, Some(&master(3))).unwrap().keys.unwrap().generation(), 2);
    }

    /// `tenon verify` is there to tell of damage, and must not end at the first.
    #[test]
    fn who_only_reads_finds_the_keys_though_the_metadata_is_damaged() {
        let path = Path::new("/db");
        let (encrypted, plain) = (disk(), disk());
        drop(open(&encrypted, Some(&master(1))).unwrap());
        drop(open(&plain, None).unwrap());
        for fs in [&encrypted, &plain] {
            fs.flip_bit(&path.join(METADATA_FILE), 60, 1).unwrap();
        }
        assert!(keys_to_read(&encrypted, path, Some(&master(1))).unwrap().is_some());
        assert!(matches!(
            reason(keys_to_read(&encrypted, path, None)),
            KeyPlaceError::Encrypted
        ));
        assert!(keys_to_read(&plain, path, None).unwrap().is_none());
        assert!(matches!(
            reason(keys_to_read(&plain, path, Some(&master(1)))),
            KeyPlaceError::Plain
        ));
        remove_store(&encrypted);
        encrypted.flip_bit(&path.join(METADATA_FILE), 60, 1).unwrap();
        assert!(matches!(
            reason(keys_to_read(&encrypted, path, Some(&master(1)))),
            KeyPlaceError::Lost
        ));
    }

    /// One flipped bit in 172 bytes made a whole database unreadable for ever.
    #[test]
    fn one_copy_of_the_store_is_enough_and_makes_the_other_one_whole() {
        let fs = disk();
        let keys = open(&fs, Some(&master(1))).unwrap().keys.unwrap();
        let mut text = *b"what was written before";
        let seal = keys.seal(b"there", &mut text);
        let paths = [KEY_STORE_FILE, KEY_STORE_COPY_FILE].map(|name| Path::new("/db").join(name));
        let bytes = |path: &Path| read_start(&fs, path, 1 << 20).unwrap();
        let whole = bytes(&paths[0]);
        assert_eq!(bytes(&paths[1]), whole);
        for path in &paths {
            for bit in 0..whole.len() as u64 * 8 {
                fs.flip_bit(path, bit / 8, (bit % 8) as u8).unwrap();
                let opened = open(&fs, Some(&master(1))).unwrap();
                let mut again = text;
                opened.keys.unwrap().open(b"there", &seal, &mut again).unwrap();
                assert_eq!(
                    paths.clone().map(|path| bytes(&path)),
                    [whole.clone(), whole.clone()],
                    "bit {bit}"
                );
            }
            fs.remove_file(path).unwrap();
            drop(open(&fs, Some(&master(1))).unwrap());
            assert_eq!(bytes(path), whole);
            let file = fs.open(path, Access::ReadWrite).unwrap();
            file.write_all_at(b"appended", whole.len() as u64).unwrap();
            drop(open(&fs, Some(&master(1))).unwrap());
            write_store(&fs, Path::new("/db"), &whole).unwrap();
        }
        assert!(fs.exists(&Path::new("/db").join(ASIDE_FILE)).unwrap());
        // A rotation cut short between the two.
        let old = bytes(&paths[1]);
        rotate(&fs, Path::new("/db"), &master(1), &Rotation::Data).unwrap();
        write_whole(&fs, Path::new("/db"), KEY_STORE_COPY_FILE, &old).unwrap();
        drop(open(&fs, Some(&master(1))).unwrap());
        assert_eq!(bytes(&paths[1]), bytes(&paths[0]));
    }

    #[test]
    fn the_former_master_key_is_told_from_a_strange_one() {
        let (fs, path) = (disk(), Path::new("/db"));
        drop(open(&fs, Some(&master(1))).unwrap());
        let old = read_start(&fs, &path.join(KEY_STORE_COPY_FILE), 1 << 20).unwrap();
        rotate(&fs, path, &master(1), &Rotation::Master(&master(2))).unwrap();
        write_whole(&fs, path, KEY_STORE_COPY_FILE, &old).unwrap();
        assert!(matches!(reason(open(&fs, Some(&master(1)))), KeyPlaceError::CutShort));
        assert!(matches!(reason(open(&fs, Some(&master(3)))), KeyPlaceError::Store(_)));
        drop(open(&fs, Some(&master(2))).unwrap());
        assert!(matches!(reason(open(&fs, Some(&master(1)))), KeyPlaceError::Store(_)));
    }

    /// The user was told that it had failed, and went on with the old key.
    #[test]
    fn a_rotation_without_room_changes_nothing() {
        let (fs, path) = (disk(), Path::new("/db"));
        drop(open(&fs, Some(&master(1))).unwrap());
        for name in ["encryption.keys.new", "encryption.keys.copy.new"] {
            fs.inject(Fault::new(FaultKind::NoSpace).on(path.join(name)));
            assert!(rotate(&fs, path, &master(1), &Rotation::Master(&master(2))).is_err());
            drop(open(&fs, Some(&master(1))).unwrap());
        }
        assert_eq!(fs.faults_struck(), 2);
    }

    /// A copy that lacks a key was written over the store that had it.
    #[test]
    fn a_store_that_cannot_be_read_for_once_does_not_give_way_to_its_copy() {
        let (fs, path) = (disk(), Path::new("/db"));
        drop(open(&fs, Some(&master(1))).unwrap());
        let old = read_start(&fs, &path.join(KEY_STORE_COPY_FILE), 1 << 20).unwrap();
        rotate(&fs, path, &master(1), &Rotation::Data).unwrap();
        write_whole(&fs, path, KEY_STORE_COPY_FILE, &old).unwrap();
        fs.inject(Fault::new(FaultKind::ReadError).on(path.join(KEY_STORE_FILE)));
        assert!(matches!(
            open(&fs, Some(&master(1))),
            Err(DataDirectoryError::Io { .. })
        ));
        assert_eq!(open(&fs, Some(&master(1))).unwrap().keys.unwrap().generation(), 2);
    }

    #[test]
    fn a_store_of_which_no_copy_is_whole_is_refused() {
        let fs = disk();
        drop(open(&fs, Some(&master(1))).unwrap());
        let flip = |name: &str, bit: u64| {
            fs.flip_bit(&Path::new("/db").join(name), bit / 8, (bit % 8) as u8)
                .unwrap();
        };
        flip(KEY_STORE_COPY_FILE, 600);
        for bit in 0..172 * 8 {
            flip(KEY_STORE_FILE, bit);
            assert!(
                matches!(reason(open(&fs, Some(&master(1)))), KeyPlaceError::Store(_)),
                "bit {bit}"
            );
            flip(KEY_STORE_FILE, bit);
        }
        drop(open(&fs, Some(&master(1))).unwrap());
    }
}
