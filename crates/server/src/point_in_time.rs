//! A copy of a data directory as it was at a point in time: `tenon restore --backup`.
//!
//! 1. Copy the backup. It is whatever a server can be started on: the files that `$backupCursor` names, a copy under
//!    `fsyncLock`, a snapshot, or the directory of a stopped server.
//! 2. Add the log's later segments, where they are given. They are those of the server that the backup is of, from the
//!    backup's last segment on without a gap.
//! 3. Take back what the log has behind the point, before anything is replayed: the engine's files may not be later.
//! 4. Replay the rest, and end as a server does.
//!
//! Neither the backup nor the log given is changed. What was begun is removed when it fails.

use crate::config;
use crate::data_directory::{self, DataDirectory, Metadata};
use crate::encryption::{self, KeySource};
use crate::engines::Registry;
use crate::run;
use anyhow::{Context, Result, anyhow, bail};
use crypt::{Keys, MasterKey};
use engine::Engine;
use oplog::{EngineAhead, Log, LogOptions};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use storage::{ClusterTime, LogPoint, Storage, StorageOptions, log_points};
use vfs::{Env, FileSystem, RealFs, SystemClock, SystemRandom};

/// What is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Point {
    /// What was written up to this moment of the server's clock, in milliseconds since the Unix epoch.
    Wall(i64),
    /// What was written up to this cluster time, that included.
    Cluster(ClusterTime),
    /// All that the log has.
    End,
}

impl Point {
    fn has(self, entry: &LogPoint) -> bool {
        match self {
            Self::End => true,
            Self::Cluster(time) => entry.time <= time,
            // Cluster time never goes back, as clocks do.
            Self::Wall(ms) => {
                let seconds = (entry.time.0 >> 32) as i64;
                seconds < ms.div_euclid(1000) || seconds == ms.div_euclid(1000) && entry.wall_ms <= ms
            }
        }
    }
}

/// What is to be done.
pub struct Request<'r> {
    /// A directory that a server could be started on.
    pub backup: &'r Path,
    /// The log's directory (`journal`) of the server that the backup is of, with what was written since.
    pub log: Option<&'r Path>,
    /// Made anew.
    pub out: &'r Path,
    /// As of when.
    pub point: Point,
    /// The master key of a backup that is encrypted.
    pub key: Option<&'r KeySource>,
}

/// What was done.
#[derive(Debug)]
pub struct Restored {
    /// The engine's name.
    pub engine: String,
    /// The last entry in it.
    pub last: Option<LogPoint>,
    /// The first one that was left out.
    pub left_out: Option<LogPoint>,
    /// Entries replayed.
    pub replayed: u64,
}

/// Makes the directory.
///
/// # Errors
/// The backup is no data directory, is in use, or is later than the point; the log has a gap, is another server's, or
/// does not reach the point; reading and writing.
pub fn restore(request: &Request<'_>) -> Result<Restored> {
    check_outside(request)?;
    let made = make_empty(request.out)?;
    // Once more: where a path leads of which a part is missing is known only now.
    let restored = check_outside(request).and_then(|()| restore_into(request));
    if restored.is_err() {
        // The error is what counts.
        let _ = match made {
            true => fs::remove_dir_all(request.out),
            false => make_empty_again(request.out),
        };
    }
    restored
}

/// A directory within the one that is copied would be copied into itself, until the disk is full. Of one that is not
/// there the nearest one above it counts.
fn check_outside(request: &Request<'_>) -> Result<()> {
    let whole = |path: &Path| fs::canonicalize(path).with_context(|| format!("looking at {}", path.display()));
    let there = request.out.ancestors().find(|path| path.exists());
    let out = whole(there.unwrap_or(Path::new(".")))?;
    for from in std::iter::once(request.backup).chain(request.log) {
        if out.starts_with(whole(from)?) {
            bail!("{} is within {}", request.out.display(), from.display());
        }
    }
    Ok(())
}

/// Removes all that is in a directory.
fn make_empty_again(path: &Path) -> std::io::Result<()> {
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        match entry.file_type()?.is_dir() {
            true => fs::remove_dir_all(entry.path())?,
            false => fs::remove_file(entry.path())?,
        }
    }
    Ok(())
}

/// True when the directory was not there.
fn make_empty(path: &Path) -> Result<bool> {
    match fs::read_dir(path) {
        Ok(mut entries) => match entries.next() {
            None => Ok(false),
            Some(_) => bail!("{} is not empty", path.display()),
        },
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            fs::create_dir_all(path).with_context(|| format!("creating {}", path.display()))?;
            Ok(true)
        }
        Err(error) => Err(error).with_context(|| format!("looking at {}", path.display())),
    }
}

/// Applies all that the log of a directory has, in the directory itself, and ends as a server does. A start that others
/// of a replica set have a say in shows only what it knows to stay: after a crash that leaves out acknowledged writes.
/// Answers whether others have; `None`, and nothing was done, when this build does not have the engine.
///
/// # Errors
/// The directory is none, is in use, or is encrypted; its log cannot be read; reading and writing.
pub fn apply_log(path: &Path) -> Result<Option<bool>> {
    let env = Env {
        fs: Arc::new(RealFs::new()),
        clock: Arc::new(SystemClock::new()),
        random: Arc::new(SystemRandom::new()),
    };
    let Some(engine) = DataDirectory::engine_of(&*env.fs, path)? else {
        bail!("{} is no data directory of Tenon's", path.display());
    };
    if Registry::built_in().choose(Some(&engine)).is_err() {
        return Ok(None);
    }
    let mut parts = Parts::open(&env, path, &engine, None)?;
    parts.options.instance = parts.directory.known_instance(&*env.fs)?;
    let log = Log::open(&env, parts.log, parts.engine.durable_seq())?;
    let storage = Storage::open(env, parts.engine, Arc::new(log), parts.options).context("replaying the log")?;
    let has_others = storage.membership()?.is_some_and(|members| !members.decides_alone());
    storage.close(true)?;
    parts.directory.close()?;
    Ok(Some(has_others))
}

/// A directory's engine, and how its log is to be opened.
struct Parts {
    engine: Arc<dyn Engine>,
    log: LogOptions,
    options: StorageOptions,
    directory: DataDirectory,
}

impl Parts {
    fn open(env: &Env, path: &Path, engine: &str, master: Option<&MasterKey>) -> Result<Self> {
        let mut config = config::from_file_text("", Path::new("/")).map_err(|error| anyhow!(error.to_string()))?;
        config.storage.db_path = path.to_owned();
        let name = Registry::built_in()
            .choose(Some(engine))
            .map_err(|reason| anyhow!(reason))?;
        let wanted = Metadata {
            engine: name.to_owned(),
            directory_per_db: false,
        };
        let directory = DataDirectory::open(&*env.fs, path, &wanted, master)?;
        let engine = Registry::built_in().open(name, env, &directory.engine(name), &config.storage)?;
        let (mut log, mut options) = run::parts_of(&config, name, &directory)?;
        options.background = false;
        // Everything counts, also of a member of a set that did not yet know what of it stays.
        options.takes_all = true;
        log.background = false;
        Ok(Self {
            engine,
            log,
            options,
            directory,
        })
    }
}

fn restore_into(request: &Request<'_>) -> Result<Restored> {
    let real: Arc<dyn FileSystem> = Arc::new(RealFs::new());
    let master = encryption::load(request.key)?;
    let (keys, newer) = keys_of(&*real, request, master.as_ref())?;
    let Some(engine) = DataDirectory::engine_of(&*real, request.backup)? else {
        bail!("{} is no data directory of Tenon's", request.backup.display());
    };
    if data_directory::in_use(&*real, request.backup) {
        bail!(
            "a server uses {}: restore from a backup of it",
            request.backup.display()
        );
    }
    copy_all(request.backup, request.out, &|name| name != data_directory::LOCK_FILE)?;
    if let Some(store) = newer {
        for name in [data_directory::KEY_STORE_FILE, data_directory::KEY_STORE_COPY_FILE] {
            copy_file(&store, &request.out.join(name))?;
        }
    }
    let env = Env {
        fs: real.clone(),
        clock: Arc::new(SystemClock::new()),
        random: Arc::new(SystemRandom::new()),
    };
    let env = data_directory::keyed(&env, keys.as_ref());
    let journal = request.out.join("journal");
    if let Some(log) = request.log {
        add_segments(&*env.fs, log, &journal)?;
    }
    real.sync_directory(request.out)?;
    replay(&env, engine, request, master.as_ref())
}

/// The keys of the backup, or those of the server whose log is given: a key that it has got since is not in the backup.
/// Then the key store that has them, too.
fn keys_of(
    fs: &dyn FileSystem,
    request: &Request<'_>,
    master: Option<&MasterKey>,
) -> Result<(Option<Arc<Keys>>, Option<PathBuf>)> {
    let own = data_directory::keys_to_read(fs, request.backup, master);
    let server = request
        .log
        .and_then(Path::parent)
        .map(|parent| match parent.as_os_str().is_empty() {
            true => Path::new("."),
            false => parent,
        });
    if let (Some(server), Some(_)) = (server, master) {
        let store = server.join(data_directory::KEY_STORE_FILE);
        let generation = match &own {
            Ok(Some(keys)) => keys.generation(),
            Ok(None) | Err(_) => 0,
        };
        if fs.exists(&store)?
            && let Ok(Some(keys)) = data_directory::keys_to_read(fs, server, master)
            && keys.generation() > generation
        {
            return Ok((Some(keys), Some(store)));
        }
    }
    Ok((own?, None))
}

/// Copies a directory with what is below it, durably.
fn copy_all(from: &Path, to: &Path, is_wanted: &dyn Fn(&str) -> bool) -> Result<()> {
    fs::create_dir_all(to).with_context(|| format!("creating {}", to.display()))?;
    for entry in fs::read_dir(from).with_context(|| format!("listing {}", from.display()))? {
        let entry = entry?;
        let name = entry.file_name();
        let target = to.join(&name);
        // Of what a link leads to: a database's folder, or the log, may lie on another disk.
        let kind = fs::metadata(entry.path()).with_context(|| format!("looking at {}", entry.path().display()))?;
        if kind.is_dir() {
            copy_all(&entry.path(), &target, is_wanted)?;
        } else if kind.is_file() && name.to_str().is_none_or(is_wanted) {
            copy_file(&entry.path(), &target)?;
        }
    }
    fs::File::open(to)?
        .sync_all()
        .with_context(|| format!("syncing {}", to.display()))
}

fn copy_file(from: &Path, to: &Path) -> Result<()> {
    fs::copy(from, to).with_context(|| format!("copying {}", from.display()))?;
    fs::File::open(to)?
        .sync_all()
        .with_context(|| format!("syncing {}", to.display()))
}

/// Adds the segments that the copy of the log lacks, and the one that it may have the beginning of.
fn add_segments(fs: &dyn FileSystem, from: &Path, to: &Path) -> Result<()> {
    let numbered = |directory: &Path| -> Result<Vec<(u64, PathBuf)>> {
        let mut found = Vec::new();
        for path in oplog::segment_files(fs, directory).with_context(|| format!("listing {}", directory.display()))? {
            found.push((oplog::segment_info(fs, &path)?.number, path));
        }
        found.sort();
        Ok(found)
    };
    let (own, given) = (numbered(to)?, numbered(from)?);
    let Some((last, last_path)) = own.last() else {
        bail!("the backup has no log");
    };
    if given.last().is_none_or(|(number, _)| number < last) {
        bail!(
            "the log in {} ends before the backup's last segment {last:x}: it is older, or another server's",
            from.display()
        );
    }
    let mut next = *last;
    for (number, path) in given.iter().filter(|(number, _)| number >= last) {
        if *number != next && *number != *last + 1 {
            bail!(
                "the log in {} does not follow on the backup: its segment {next:x} is missing",
                from.display()
            );
        }
        if number == last && header(path)? != header(last_path)? {
            bail!("the log in {} is not that of the backup", from.display());
        }
        let name = path.file_name().ok_or_else(|| anyhow!("a segment without a name"))?;
        copy_file(path, &to.join(name))?;
        next = number + 1;
    }
    Ok(fs.sync_directory(to)?)
}

/// What tells the uses of a segment's file apart.
fn header(path: &Path) -> Result<[u8; 48]> {
    use std::io::Read as _;
    let mut header = [0; 48];
    let mut file = fs::File::open(path).with_context(|| format!("reading {}", path.display()))?;
    file.read_exact(&mut header)
        .with_context(|| format!("reading {}", path.display()))?;
    Ok(header)
}

fn replay(env: &Env, engine_name: String, request: &Request<'_>, master: Option<&MasterKey>) -> Result<Restored> {
    let Parts {
        engine,
        log: mut log_options,
        options,
        directory,
    } = Parts::open(env, request.out, &engine_name, master)?;
    log_options.engine_ahead = EngineAhead::Refuse;
    let durable = engine.durable_seq();
    let log = Log::open(env, log_options, durable)?;
    let from = match log.first_seq() <= durable {
        true => durable,
        false => durable.next(),
    };
    let (last, left_out) = log_points(&log, from, |entry| request.point.has(entry))?;
    match (last, left_out) {
        (None, Some(beyond)) => bail!(
            "the backup is later than that: what its files hold is from {}",
            shown(&beyond)
        ),
        (Some(last), None) if request.point != Point::End && !reaches(request.point, &last) => bail!(
            "the log does not reach that far: its last entry is from {}. What there is restores --to-end",
            shown(&last)
        ),
        (None, None) if request.point != Point::End => {
            bail!("the log has nothing behind the backup: --to-end restores that")
        }
        (_, Some(beyond)) => log.truncate(beyond.seq)?,
        (_, None) => {}
    }
    let storage = Storage::open(env.clone(), engine, Arc::new(log), options).context("replaying the log")?;
    let replayed = storage.last_seq().0.saturating_sub(durable.0);
    storage.close(true)?;
    directory.close()?;
    Ok(Restored {
        engine: engine_name,
        last,
        left_out,
        replayed,
    })
}

/// Whether an entry was made at the very point: nothing that is missing behind it can belong to the state wanted.
fn reaches(point: Point, last: &LogPoint) -> bool {
    match point {
        Point::End => true,
        Point::Cluster(time) => last.time == time,
        Point::Wall(ms) => last.wall_ms == ms,
    }
}

/// An entry's time, for people.
pub fn shown(point: &LogPoint) -> String {
    let wall = bson::DateTime::from_millis(point.wall_ms);
    let wall = wall
        .try_to_rfc3339_string()
        .unwrap_or_else(|_| point.wall_ms.to_string());
    format!("{wall} ({}:{})", point.time.0 >> 32, point.time.0 as u32)
}

#[cfg(all(test, not(feature = "rocksdb")))]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn files(directory: &Path) -> usize {
        fs::read_dir(directory).unwrap().count()
    }

    /// It copied itself into itself until the disk was full; and a directory that was there kept what was copied.
    #[test]
    fn what_cannot_be_restored_leaves_nothing() {
        let around = tempfile::tempdir().unwrap();
        let place = |name: &str| {
            let place = around.path().join(name);
            fs::create_dir(&place).unwrap();
            place
        };
        let (backup, out) = (place("backup"), place("out"));
        let metadata = Metadata {
            engine: "inMemory".to_owned(),
            directory_per_db: false,
        };
        let made = DataDirectory::open(&RealFs::new(), &backup, &metadata, None).unwrap();
        made.close().unwrap();
        let before = files(&backup);
        let restored = |out: &Path| {
            restore(&Request {
                backup: &backup,
                log: None,
                out,
                point: Point::Wall(0),
                key: None,
            })
        };
        let refused = restored(&backup.join("out")).unwrap_err().to_string();
        assert!(refused.contains("is within"), "{refused}");
        assert!(restored(&backup.join("deeper").join("out")).is_err());
        assert!(!backup.join("deeper").exists());
        assert_eq!(files(&backup), before);
        assert!(restored(&out).is_err());
        assert_eq!(files(&out), 0);
    }

    #[test]
    fn the_log_of_an_engine_that_is_not_there_is_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        let metadata = Metadata {
            engine: "rocksdb".to_owned(),
            directory_per_db: false,
        };
        let made = DataDirectory::open(&RealFs::new(), directory.path(), &metadata, None).unwrap();
        made.close().unwrap();
        assert_eq!(apply_log(directory.path()).unwrap(), None);
        assert!(apply_log(&directory.path().join("nothing")).is_err());
    }
}
