//! How much history a member of a replica set keeps: chosen once, or set by `replSetResizeOplog`, and then kept in
//! `oplog.bson`. The space that is free at a later start is no measure: what was written since has taken it.

use super::{DataDirectory, DataDirectoryError, Result};
use bson::{Document, doc};
use oplog::Retention;
use std::path::{Path, PathBuf};
use std::time::Duration;
use vfs::{Access, FileSystem, RealFs};

const OPLOG_FILE: &str = "oplog.bson";
const DAMAGED_FILE: &str = "oplog.bson.damaged";
const MAGIC: &str = "oplog";
const VERSION: i32 = 1;

/// History that a member keeps when nobody says how much: MongoDB's bounds.
const OPLOG_BYTES_LEAST: u64 = 990 << 20;
const OPLOG_BYTES_MOST: u64 = 50 << 30;

/// What the options say at a start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AskedOplog {
    /// `None`: a part of the disk.
    pub bytes: Option<u64>,
    /// Nothing younger leaves the log.
    pub time: Duration,
}

/// What is kept, and what the options said when that was chosen: who changes them later means it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct KeptOplog {
    asked: AskedOplog,
    retention: Retention,
}

impl AskedOplog {
    /// Where nothing is kept of a former start. `journal` is on the disk that counts.
    pub(crate) fn choose(self, journal: &Path) -> Retention {
        let by_disk = || free_bytes(journal).map_or(OPLOG_BYTES_LEAST, by_free_bytes);
        Retention {
            bytes: self.bytes.unwrap_or_else(by_disk),
            time: self.time,
        }
    }

    fn choose_again(self, kept: KeptOplog) -> Retention {
        Retention {
            bytes: self
                .bytes
                .filter(|_| self.bytes != kept.asked.bytes)
                .unwrap_or(kept.retention.bytes),
            time: match self.time == kept.asked.time {
                true => kept.retention.time,
                false => self.time,
            },
        }
    }
}

/// MongoDB's bounds are for disks that have so much: data and what a checkpoint needs take the other half at least.
fn by_free_bytes(free: u64) -> u64 {
    let most = OPLOG_BYTES_MOST.min(free / 2);
    (free / 20).max(OPLOG_BYTES_LEAST).min(most)
}

impl DataDirectory {
    /// How much history this start keeps. A file that is damaged, or a newer version's, is as none: whoever writes it
    /// down is told of it.
    pub fn oplog_retention(&self, fs: &dyn FileSystem, asked: AskedOplog) -> Result<Retention> {
        match read(fs, &self.path) {
            Ok(Some(kept)) => return Ok(asked.choose_again(kept)),
            Ok(None) | Err(DataDirectoryError::Damaged { .. } | DataDirectoryError::Version { .. }) => {}
            Err(error) => return Err(error),
        }
        let journal = self.journal();
        let mut retention = asked.choose(&journal);
        if asked.bytes.is_none() {
            // What former builds have kept here is not to go because little is free by now.
            let present = file_bytes(fs, &journal).min(OPLOG_BYTES_MOST);
            retention.bytes = retention.bytes.max(present);
        }
        Ok(retention)
    }

    /// Writes down what was chosen, if that is new. Not what was chosen without knowing the disk: the next start may.
    /// A damaged file makes way; answers where it is then. A newer version's stays: [`DataDirectoryError::Version`].
    pub fn keep_oplog_retention(
        &self,
        fs: &dyn FileSystem,
        asked: AskedOplog,
        retention: Retention,
    ) -> Result<Option<PathBuf>> {
        let kept = KeptOplog { asked, retention };
        match read(fs, &self.path) {
            Ok(Some(former)) if former == kept => return Ok(None),
            Ok(None) if asked.bytes.is_none() && free_bytes(&self.journal()).is_none() => return Ok(None),
            Ok(_) => {}
            Err(DataDirectoryError::Damaged { path, .. }) => {
                // Where the disk is full it stays in its place, and is told of at the next start, too.
                let whole = super::with_checksum(document_of(kept));
                let new = super::write_unnamed(fs, &self.path, OPLOG_FILE, &whole)?;
                let aside = self.path.join(DAMAGED_FILE);
                fs.rename(&path, &aside).map_err(super::io("rename", &path))?;
                fs.rename(&new, &path).map_err(super::io("rename", &path))?;
                fs.sync_directory(&self.path).map_err(super::io("sync", &self.path))?;
                return Ok(Some(aside));
            }
            Err(error) => return Err(error),
        }
        write(fs, &self.path, kept)?;
        Ok(None)
    }

    /// Bytes that the log's disk has for it, where that is less than what is to be kept.
    pub fn oplog_room_below(&self, fs: &dyn FileSystem, retention: Retention) -> Option<u64> {
        let journal = self.journal();
        let room = free_bytes(&journal)?.saturating_add(file_bytes(fs, &journal));
        (room < retention.bytes).then_some(room)
    }
}

/// Writes down what somebody has set meanwhile.
pub fn keep_oplog_retention(fs: &dyn FileSystem, directory: &Path, retention: Retention) -> Result<()> {
    let asked = read_undamaged(fs, directory)?.map_or_else(AskedOplog::default, |kept| kept.asked);
    write(fs, directory, KeptOplog { asked, retention })
}

/// `None` where the disk does not tell.
fn free_bytes(journal: &Path) -> Option<u64> {
    RealFs.space(journal).ok().map(|space| space.available_bytes)
}

/// Bytes of the files in a directory, as far as they can be looked at.
fn file_bytes(fs: &dyn FileSystem, directory: &Path) -> u64 {
    let names = fs.list(directory).unwrap_or_default();
    let open = |name: PathBuf| fs.open(&directory.join(name), Access::Read);
    let bytes = names.into_iter().map(|name| open(name).and_then(|file| file.len()));
    bytes.flatten().sum()
}

fn write(fs: &dyn FileSystem, directory: &Path, kept: KeptOplog) -> Result<()> {
    super::write_document(fs, directory, OPLOG_FILE, document_of(kept))
}

fn document_of(kept: KeptOplog) -> Document {
    let bytes = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
    let ms = |time: Duration| i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
    let KeptOplog { asked, retention } = kept;
    let mut document = doc! {
        "tenon": MAGIC,
        "formatVersion": VERSION,
        "bytes": bytes(retention.bytes),
        "minRetentionMs": ms(retention.time),
        "askedMinRetentionMs": ms(asked.time),
    };
    if let Some(asked) = asked.bytes {
        document.insert("askedBytes", bytes(asked));
    }
    document
}

fn read_undamaged(fs: &dyn FileSystem, directory: &Path) -> Result<Option<KeptOplog>> {
    match read(fs, directory) {
        Err(DataDirectoryError::Damaged { .. }) => Ok(None),
        kept => kept,
    }
}

fn read(fs: &dyn FileSystem, directory: &Path) -> Result<Option<KeptOplog>> {
    let path = directory.join(OPLOG_FILE);
    let Some(bytes) = super::read(fs, &path)? else {
        return Ok(None);
    };
    let document = super::checked_document(&bytes, &path)?;
    let is_ours = document.get_str("tenon").ok() == Some(MAGIC);
    if let Ok(found) = document.get_i32("formatVersion")
        && is_ours
        && found != VERSION
    {
        return Err(DataDirectoryError::Version { path, found });
    }
    let kept = is_ours.then(|| parse(&document));
    kept.flatten().map(Some).ok_or_else(|| DataDirectoryError::Damaged {
        path: path.clone(),
        reason: "it does not tell how much history is kept".to_owned(),
    })
}

fn parse(document: &Document) -> Option<KeptOplog> {
    if document.get_i32("formatVersion").ok() != Some(VERSION) {
        return None;
    }
    let number = |name| document.get_i64(name).ok()?.try_into().ok();
    let asked_bytes = match document.contains_key("askedBytes") {
        true => Some(number("askedBytes")?),
        false => None,
    };
    Some(KeptOplog {
        asked: AskedOplog {
            bytes: asked_bytes,
            time: Duration::from_millis(number("askedMinRetentionMs")?),
        },
        retention: Retention {
            bytes: number("bytes")?,
            time: Duration::from_millis(number("minRetentionMs")?),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data_directory::Metadata;

    /// Each start chose anew, by what was free then, and the first checkpoint deleted the rest.
    #[test]
    fn what_is_kept_outlasts_the_start() {
        let (place, fs) = (tempfile::tempdir().expect("a directory"), RealFs::new());
        let metadata = Metadata {
            engine: "inMemory".to_owned(),
            directory_per_db: false,
        };
        let start = |bytes: Option<u64>, hours: u64| {
            let directory = DataDirectory::open(&fs, place.path(), &metadata, None).expect("it opens");
            let time = Duration::from_secs(3600 * hours);
            let asked = AskedOplog { bytes, time };
            let retention = directory.oplog_retention(&fs, asked).expect("it is chosen");
            directory
                .keep_oplog_retention(&fs, asked, retention)
                .expect("it is kept");
            (retention.bytes, retention.time.as_secs() / 3600)
        };
        let (by_disk, _) = start(None, 0);
        assert!((OPLOG_BYTES_LEAST..=OPLOG_BYTES_MOST).contains(&by_disk), "{by_disk}");
        let set = |bytes, hours: u64| {
            let time = Duration::from_secs(3600 * hours);
            keep_oplog_retention(&fs, place.path(), Retention { bytes, time }).expect("it is kept");
        };
        set(7 << 30, 5);
        assert_eq!(start(None, 0), (7 << 30, 5), "set while it ran");
        // An option that is new counts, once.
        assert_eq!(start(Some(2 << 30), 0), (2 << 30, 5));
        set(8 << 30, 6);
        assert_eq!(start(Some(2 << 30), 0), (8 << 30, 6));
        assert_eq!(start(Some(3 << 30), 9), (3 << 30, 9));
        assert_eq!(start(None, 9), (3 << 30, 9));
        std::fs::write(place.path().join(OPLOG_FILE), "damaged").expect("it is written");
        let read = read(&fs, place.path());
        assert!(matches!(read, Err(DataDirectoryError::Damaged { .. })), "{read:?}");
        // That refuses no start. Without it, what the log has stays.
        let file = std::fs::File::create(place.path().join("journal").join("old")).expect("it is made");
        file.set_len(3 << 30).expect("it has holes only");
        let directory = DataDirectory::open(&fs, place.path(), &metadata, None).expect("it opens");
        let asked = AskedOplog::default();
        let retention = directory.oplog_retention(&fs, asked).expect("it is chosen");
        assert!(retention.bytes >= 3 << 30, "{retention:?}");
        let aside = directory.keep_oplog_retention(&fs, asked, retention);
        let aside = aside.expect("it is kept").expect("it was damaged");
        assert_eq!(std::fs::read(aside).expect("it is there"), b"damaged");
        let none = directory.keep_oplog_retention(&fs, asked, retention);
        assert_eq!(none.expect("it is kept"), None);
        let room = directory.oplog_room_below(
            &fs,
            Retention {
                bytes: u64::MAX,
                ..retention
            },
        );
        assert!(room.is_some_and(|room| room >= 3 << 30), "{room:?}");
        assert_eq!(directory.oplog_room_below(&fs, Retention::default()), None);
        drop(directory);
        assert_eq!(start(None, 0), (retention.bytes, 0), "as the damaged one was replaced");
        set(7 << 30, 0);
        assert_eq!(start(None, 0), (7 << 30, 0));
        // A newer build's is left as it is.
        let newer = doc! { "tenon": MAGIC, "formatVersion": VERSION + 1 };
        super::super::write_document(&fs, place.path(), OPLOG_FILE, newer).expect("it is written");
        let directory = DataDirectory::open(&fs, place.path(), &metadata, None).expect("it opens");
        directory.oplog_retention(&fs, asked).expect("it is chosen");
        let refused = directory.keep_oplog_retention(&fs, asked, retention);
        assert!(
            matches!(refused, Err(DataDirectoryError::Version { found: 2, .. })),
            "{refused:?}"
        );
        let set = keep_oplog_retention(&fs, place.path(), retention);
        assert!(matches!(set, Err(DataDirectoryError::Version { .. })), "{set:?}");
    }

    /// On a disk with less free than the least of MongoDB's bounds the history took all of it.
    #[test]
    fn history_leaves_half_of_a_small_disk() {
        const GIB: u64 = 1 << 30;
        assert_eq!(by_free_bytes(885 << 20), 885 << 19);
        assert_eq!(by_free_bytes(0), 0);
        assert_eq!(by_free_bytes(10 * GIB), OPLOG_BYTES_LEAST);
        assert_eq!(by_free_bytes(100 * GIB), 5 * GIB);
        assert_eq!(by_free_bytes(u64::MAX), OPLOG_BYTES_MOST);
    }
}
