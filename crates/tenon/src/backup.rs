//! `tenon backup`: copies the data directory of a running server, or what its log has had since.
//!
//! The server keeps its files fit for copying as long as a backup cursor is open (`$backupCursor`), or, on engines
//! without, as long as writes are held back (`fsync` with `lock`). What is copied is the state of one moment either
//! way, and everything acknowledged before it began is in it. The copy gets its name when it is whole.

use crate::connect::{self, BYTES, Purpose, ServerArgs};
use crate::screen::printable_lines;
use anyhow::{Context as _, Result, bail, ensure};
use bench::interrupt::Interrupt;
use bson::{Document, doc};
use clap::Args;
use dump::{Client, DumpError};
use indicatif::ProgressBar;
use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _};
use std::path::{Component, Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// Bytes that are copied before the server is told again that somebody is copying.
const PIECE_BYTES: u64 = 64 << 20;
/// A server's files are looked at so often, and so long apart, until they are the same twice.
const LOOKS_MAX: u32 = 300;
const BETWEEN_LOOKS: Duration = Duration::from_millis(10);
/// What a server has in its data directory for as long as it runs.
const NOT_COPIED: [&str; 3] = ["tenond.lock", "history.tmp", "_tmp"];
/// The folder of the log, in a data directory.
const JOURNAL: &str = "journal";
/// The keys of what is encrypted, in a data directory.
const KEY_STORE: &str = "encryption.keys";
/// What is not whole yet.
const UNFINISHED: &str = ".unfinished";
/// Segments of the log that are ready for use begin so.
const SPARE: &str = "spare-";

/// Copy the data of a running server, or add to such a copy what its log has had since
///
/// Runs on the server's machine, as a user who may read its data directory. See docs/operations.md.
#[derive(Args, Debug)]
#[command(group(clap::ArgGroup::new("what").args(["out", "add_log"]).required(true)))]
pub struct BackupCommand {
    #[command(flatten)]
    server: ServerArgs,
    /// The directory to make: a server can be started on it
    #[arg(long, value_name = "DIR", help_heading = "Backup")]
    out: Option<PathBuf>,
    /// A backup that was made before: its log then reaches up to now, and a server started on it does, too
    #[arg(long, value_name = "DIR", help_heading = "Backup")]
    add_log: Option<PathBuf>,
    /// Hold writes back while files are copied, on engines that cannot do without
    #[arg(long, conflicts_with = "add_log", help_heading = "Behaviour")]
    lock: bool,
    /// Prints nothing but errors
    #[arg(long, help_heading = "Behaviour")]
    quiet: bool,
}

impl BackupCommand {
    /// Copies, and says how much.
    pub fn run(&self) -> Result<ExitCode> {
        self.server
            .check_one_server("its files are copied, on the machine where it runs")?;
        let interrupt = Interrupt::new();
        interrupt.install()?;
        let (server, _) = self.server.server(None, Purpose::Read)?;
        let client = Client::open(&server, &interrupt)?;
        let bar = connect::progress(self.quiet, BYTES);
        let copied = match (&self.out, &self.add_log) {
            (Some(out), _) => whole(client, self.lock, out, &bar, &interrupt),
            (None, Some(backup)) => added(client, backup, &bar, &interrupt),
            (None, None) => bail!("--out or --add-log has to be given"),
        };
        bar.finish_and_clear();
        let (files, bytes, target) = copied?;
        if !self.quiet {
            println!("{files} files, {bytes} bytes are in {}", target.display());
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Files that the server keeps as they are.
struct Held {
    client: Client,
    by: HeldBy,
    directory: PathBuf,
    /// Below the directory, and how many bytes of each count.
    files: Vec<(PathBuf, u64)>,
}

fn backup_cursor(options: Document) -> Document {
    doc! { "aggregate": 1, "pipeline": [{ "$backupCursor": options }], "cursor": { "batchSize": i32::MAX } }
}

enum HeldBy {
    Cursor(i64),
    Lock,
}

impl Held {
    /// The log alone, on every engine.
    fn begin_log(mut client: Client) -> Result<Self> {
        let reply = client.run_through("admin", &backup_cursor(doc! { "tenonLogOnly": true }))?;
        Self::of_cursor(client, &reply)
    }

    fn begin(mut client: Client, may_lock: bool) -> Result<Self> {
        match client.run_through("admin", &backup_cursor(doc! {})) {
            Ok(reply) => Self::of_cursor(client, &reply),
            Err(DumpError::Server(bench::Error::Refused { code: 115, .. })) if may_lock => Self::of_lock(client),
            Err(error @ DumpError::Server(bench::Error::Refused { code: 115, .. })) => {
                Err(error).context("this storage engine copies only while writes are held back: --lock does that")
            }
            Err(error) => Err(error.into()),
        }
    }

    fn of_cursor(client: Client, reply: &Document) -> Result<Self> {
        let cursor = reply.get_document("cursor").context("the reply has no cursor")?;
        let mut held = Self {
            client,
            by: HeldBy::Cursor(cursor.get_i64("id").context("the cursor has no id")?),
            directory: PathBuf::new(),
            files: Vec::new(),
        };
        let batch = cursor.get_array("firstBatch").context("the cursor has no batch")?;
        let mut listed: Vec<Document> = batch.iter().filter_map(|entry| entry.as_document().cloned()).collect();
        // A reply has 16 MB at most; what is named next comes with the next ones.
        loop {
            match held.more() {
                Ok(more) if more.is_empty() => break,
                Ok(more) => listed.extend(more),
                Err(error) => {
                    held.give_up();
                    return Err(error);
                }
            }
        }
        held.take_listed(&listed).inspect_err(|_| held.give_up())?;
        Ok(held)
    }

    /// Where the server has its files, and which: the cursor's documents.
    fn take_listed(&mut self, listed: &[Document]) -> Result<()> {
        let mut listed = listed.iter();
        let metadata = listed.next().and_then(|first| first.get_document("metadata").ok());
        let directory = metadata.and_then(|metadata| metadata.get_str("dbpath").ok());
        self.directory = directory.context("the backup has no dbpath")?.into();
        for file in listed {
            let name = Path::new(file.get_str("filename").context("a file has no name")?);
            let below = name.strip_prefix(&self.directory).ok().filter(|below| is_below(below));
            let below = below.with_context(|| format!("{} is not in the data directory", name.display()))?;
            let bytes = match file.get("fileSize") {
                Some(bson::Bson::Int32(bytes)) => u64::try_from(*bytes).ok(),
                Some(bson::Bson::Int64(bytes)) => u64::try_from(*bytes).ok(),
                _ => None,
            };
            let bytes = bytes.with_context(|| format!("{} has no size", name.display()))?;
            self.files.push((below.to_owned(), bytes));
        }
        Ok(())
    }

    fn of_lock(mut client: Client) -> Result<Self> {
        let directory = data_directory(&mut client)?;
        client.run_through("admin", &doc! { "fsync": 1, "lock": true })?;
        let mut held = Self {
            client,
            by: HeldBy::Lock,
            directory,
            files: Vec::new(),
        };
        match settled(&held.directory) {
            Ok(files) => {
                held.files = files;
                Ok(held)
            }
            Err(error) => {
                held.give_up();
                Err(error).context("listing the data directory")
            }
        }
    }

    /// Tells the server that somebody is copying; an error when it has given the files up.
    fn keep(&mut self) -> Result<()> {
        ensure!(
            self.more()?.is_empty(),
            "the server names files late: the copy lacks them"
        );
        Ok(())
    }

    /// The cursor's next documents.
    fn more(&mut self) -> Result<Vec<Document>> {
        let HeldBy::Cursor(id) = self.by else {
            return Ok(Vec::new());
        };
        let more = doc! { "getMore": id, "collection": "$cmd.aggregate" };
        let reply = self.client.run("admin", &more);
        let reply = reply.context("the server no longer keeps the files: the copy is worthless")?;
        let batch = reply
            .get_document("cursor")
            .and_then(|cursor| cursor.get_array("nextBatch"));
        let batch = batch.context("the cursor has no batch")?;
        Ok(batch.iter().filter_map(|entry| entry.as_document().cloned()).collect())
    }

    /// Ends it; an error when the files were not held until now.
    fn end(mut self) -> Result<()> {
        let kept = self.keep();
        let ended = self.let_go();
        kept.and(ended)
    }

    fn let_go(&mut self) -> Result<()> {
        let command = match self.by {
            HeldBy::Cursor(id) => doc! { "killCursors": "$cmd.aggregate", "cursors": [id] },
            HeldBy::Lock => doc! { "fsyncUnlock": 1 },
        };
        self.client.run_through("admin", &command)?;
        Ok(())
    }

    /// After an error, which is the one to be told. That the server may hold on is said besides.
    fn give_up(&mut self) {
        let Err(error) = self.let_go() else { return };
        let goes_on = match self.by {
            HeldBy::Cursor(_) => "it may keep its files for cursorTimeoutMillis",
            HeldBy::Lock => "it may hold writes back until db.fsyncUnlock()",
        };
        let told = format!("the server was not told that the backup is over, and {goes_on}: {error:#}");
        eprintln!("tenon: {}", printable_lines(&told));
    }

    /// Copies files from the directory to another; both are given up on an error.
    fn copy_all(
        mut self,
        target: &Path,
        files: &[(PathBuf, u64, PathBuf)],
        bar: &ProgressBar,
        interrupt: &Interrupt,
    ) -> Result<u64> {
        let copied = self.copy(target, files, bar, interrupt);
        match copied {
            Ok(bytes) => self.end().map(|()| bytes),
            Err(error) => {
                self.give_up();
                Err(error)
            }
        }
    }

    fn copy(
        &mut self,
        target: &Path,
        files: &[(PathBuf, u64, PathBuf)],
        bar: &ProgressBar,
        interrupt: &Interrupt,
    ) -> Result<u64> {
        bar.set_length(files.iter().map(|(_, bytes, _)| bytes).sum());
        let mut directories = BTreeSet::from([target.to_owned()]);
        let mut copied = 0;
        for (from, bytes, to) in files {
            let (from, to) = (self.directory.join(from), target.join(to));
            let parent = to.parent().unwrap_or(target);
            fs::create_dir_all(parent).with_context(|| format!("making {}", parent.display()))?;
            directories.extend(
                parent
                    .ancestors()
                    .take_while(|made| made.starts_with(target))
                    .map(Path::to_owned),
            );
            self.copy_file(&from, *bytes, &to, bar, interrupt)
                .with_context(|| format!("copying {} to {}", from.display(), to.display()))?;
            copied += bytes;
        }
        for directory in directories.iter().map(PathBuf::as_path).chain(target.parent()) {
            sync_directory(directory)?;
        }
        Ok(copied)
    }

    fn copy_file(
        &mut self,
        from: &Path,
        bytes: u64,
        to: &Path,
        bar: &ProgressBar,
        interrupt: &Interrupt,
    ) -> Result<()> {
        let source = File::open(from).context("is this the server's machine, and may this user read there?")?;
        let mut copy = OpenOptions::new().write(true).create(true).truncate(true).open(to)?;
        let mut left = bytes;
        while left > 0 {
            interrupt.check()?;
            let piece = io::copy(&mut (&source).take(left.min(PIECE_BYTES)), &mut copy)?;
            ensure!(piece > 0, "the file has become shorter");
            left -= piece;
            bar.inc(piece);
            self.keep()?;
        }
        copy.sync_all()?;
        Ok(())
    }
}

/// A backup that a server can be started on.
fn whole(
    client: Client,
    may_lock: bool,
    out: &Path,
    bar: &ProgressBar,
    interrupt: &Interrupt,
) -> Result<(usize, u64, PathBuf)> {
    // Without a slash at the end, as shells complete names.
    let out: &Path = &out.components().collect::<PathBuf>();
    ensure!(!out.try_exists()?, "{} is there already", out.display());
    let unfinished = with_suffix(out, UNFINISHED);
    fs::create_dir(&unfinished).with_context(|| format!("making {}", unfinished.display()))?;
    let copied = Held::begin(client, may_lock).and_then(|mut held| {
        if let Err(error) = check_outside(&unfinished, &held.directory) {
            held.give_up();
            return Err(error);
        }
        let files: Vec<_> = held
            .files
            .iter()
            .map(|(name, bytes)| (name.clone(), *bytes, name.clone()))
            .collect();
        let bytes = held.copy_all(&unfinished, &files, bar, interrupt)?;
        Ok((files.len(), bytes))
    });
    let named = copied.and_then(|copied| {
        fs::rename(&unfinished, out).with_context(|| format!("naming {}", out.display()))?;
        sync_directory(out.parent().unwrap_or(Path::new("")))?;
        Ok(copied)
    });
    match named {
        Ok((files, bytes)) => Ok((files, bytes, out.to_owned())),
        Err(error) => {
            let _ = fs::remove_dir_all(&unfinished);
            Err(error)
        }
    }
}

/// A backup within the data directory would be copied with the next one, and lost with the directory.
fn check_outside(made: &Path, directory: &Path) -> Result<()> {
    let canonical = |path: &Path| fs::canonicalize(path).with_context(|| format!("looking at {}", path.display()));
    let of_server = canonical(directory).context("is this the server's machine, and may this user read there?")?;
    ensure!(
        !canonical(made)?.starts_with(of_server),
        "--out is within the server's data directory, {}",
        directory.display()
    );
    Ok(())
}

/// The log since a backup, put behind the backup's own. Each segment gets its name when all are copied, in their order:
/// whenever that is cut short, the backup's log ends earlier.
fn added(client: Client, backup: &Path, bar: &ProgressBar, interrupt: &Interrupt) -> Result<(usize, u64, PathBuf)> {
    let marker = backup.join("storage.bson");
    ensure!(marker.is_file(), "{} is not there: is this a backup?", marker.display());
    let journal = backup.join(JOURNAL);
    let known = segments(&journal)?;
    fs::create_dir_all(&journal).with_context(|| format!("making {}", journal.display()))?;
    let mut held = Held::begin_log(client)?;
    let files = match added_files(&held, backup, &known) {
        Ok(files) => files,
        Err(error) => {
            held.give_up();
            return Err(error);
        }
    };
    let copied = held.copy_all(backup, &files, bar, interrupt);
    let mut named = Ok(());
    for (_, _, name) in &files {
        let (unfinished, name) = (backup.join(name), backup.join(name.with_extension("")));
        if copied.is_err() || named.is_err() {
            drop(fs::remove_file(unfinished));
            continue;
        }
        let is_key_store = name.parent() == Some(backup);
        named = match is_key_store {
            true => replace_keys(&unfinished, &name, backup),
            false => renamed(&unfinished, &name),
        };
        if named.is_err() {
            drop(fs::remove_file(unfinished));
        }
    }
    let bytes = copied?;
    named?;
    sync_directory(&journal)?;
    Ok((files.len(), bytes, journal))
}

fn renamed(unfinished: &Path, name: &Path) -> Result<()> {
    fs::rename(unfinished, name).with_context(|| format!("naming {}", name.display()))
}

/// Gives a backup the server's key store, durably: a segment that needs its keys comes after it.
fn replace_keys(unfinished: &Path, name: &Path, backup: &Path) -> Result<()> {
    let present = fs::read(unfinished).with_context(|| format!("reading {}", unfinished.display()))?;
    if present != fs::read(name).unwrap_or_default() {
        eprintln!("the backup has the server's present keys: it is opened with its present master key");
    }
    // One that lacks a key must not stay: the next start makes it anew.
    let copy = with_suffix(name, ".copy");
    if copy.try_exists()? {
        fs::remove_file(&copy).with_context(|| format!("removing {}", copy.display()))?;
    }
    renamed(unfinished, name)?;
    sync_directory(backup)
}

/// Without a segment nothing tells whose backup it is. Its keys must not give way to another server's: everything in it
/// would be lost.
fn check_keys(server: &Path, backup: &Path) -> Result<()> {
    let store = backup.join(KEY_STORE);
    if !store.try_exists()? {
        return Ok(());
    }
    let read = |path: &Path| fs::read(path).with_context(|| format!("reading {}", path.display()));
    ensure!(
        read(&store)? == read(&server.join(KEY_STORE))?,
        "the backup has no segment of a log, so that nothing tells whether it is this server's, and other keys: put its \
         segments back, or make a new backup"
    );
    Ok(())
}

/// What to copy of the server's log: its segments from the backup's last one on, which may have grown since. Before
/// them the key store of what is encrypted: it has all keys that the backup's has, and perhaps more.
fn added_files(held: &Held, backup: &Path, known: &BTreeSet<String>) -> Result<Vec<(PathBuf, u64, PathBuf)>> {
    let mut files = Vec::new();
    for (path, bytes) in &held.files {
        if path == Path::new(KEY_STORE) {
            files.insert(0, (path.clone(), *bytes, with_suffix(path, UNFINISHED)));
            continue;
        }
        let name = path.file_name().and_then(|name| segment_name(Path::new(name)));
        let name = name.with_context(|| format!("{} is no segment of a log", path.display()))?;
        if known.last().is_none_or(|last| *last <= name) {
            let unfinished = with_suffix(&Path::new(JOURNAL).join(&name), UNFINISHED);
            files.push((path.clone(), *bytes, unfinished));
        }
    }
    let Some(last) = known.last() else {
        check_keys(&held.directory, backup)?;
        return Ok(files);
    };
    let same = files.iter().find(|(path, ..)| path.ends_with(last));
    let Some((path, ..)) = same else {
        bail!("the server's log no longer has its segment {last}, with which this backup ends: make a new backup");
    };
    ensure!(
        head(&held.directory.join(path))? == head(&backup.join(JOURNAL).join(last))?,
        "the server's segment {last} is not the one with which this backup ends: the backup is another server's"
    );
    Ok(files)
}

/// What tells the uses of a segment's file apart: its header, see `docs/formats/log.md`.
fn head(path: &Path) -> Result<[u8; 48]> {
    let mut head = [0; 48];
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut head));
    read.with_context(|| format!("reading {}", path.display()))?;
    Ok(head)
}

/// The names of the log's segments in a folder, which rise with their numbers; none where there is no folder.
fn segments(folder: &Path) -> Result<BTreeSet<String>> {
    let mut found = BTreeSet::new();
    if !folder.try_exists()? {
        return Ok(found);
    }
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        found.extend(segment_name(Path::new(&entry?.file_name())));
    }
    Ok(found)
}

/// A segment's name: sixteen hexadecimal digits and `.log`, see `docs/formats/log.md`.
fn segment_name(name: &Path) -> Option<String> {
    let name = name.to_str()?;
    let digits = name.strip_suffix(".log")?;
    (digits.len() == 16 && digits.bytes().all(|digit| digit.is_ascii_hexdigit())).then(|| name.to_owned())
}

/// Whether a path has no way up in it.
fn is_below(path: &Path) -> bool {
    path.components()
        .all(|component| matches!(component, Component::Normal(_)))
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// The files of a server whose writes are held back, with their lengths. An engine may still be merging files: what is
/// listed is what two looks in a row have found.
fn settled(root: &Path) -> io::Result<Vec<(PathBuf, u64)>> {
    let mut before = None;
    for _ in 0..LOOKS_MAX {
        let mut files = Vec::new();
        let listed = list(root, Path::new(""), &mut files);
        files.sort_unstable();
        before = match listed {
            Ok(()) if before.as_ref() == Some(&files) => return Ok(files),
            Ok(()) => Some(files),
            // It went between its name and its length.
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        std::thread::sleep(BETWEEN_LOOKS);
    }
    Err(io::Error::other("its files come and go"))
}

/// The files below a directory, with their lengths.
fn list(root: &Path, below: &Path, files: &mut Vec<(PathBuf, u64)>) -> io::Result<()> {
    for entry in fs::read_dir(root.join(below))? {
        let entry = entry?;
        let name = below.join(entry.file_name());
        let is_spare =
            below == Path::new(JOURNAL) && entry.file_name().as_encoded_bytes().starts_with(SPARE.as_bytes());
        if is_spare || below == Path::new("") && NOT_COPIED.iter().any(|left| name == Path::new(left)) {
            continue;
        }
        // Of what a symbolic link leads to: a database's folder may lie on another disk.
        let metadata = fs::metadata(entry.path())?;
        if metadata.is_dir() {
            list(root, &name, files)?;
        } else if metadata.is_file() {
            files.push((name, metadata.len()));
        }
    }
    Ok(())
}

/// Where a server has its data; a path that is not from the root is from where it was started.
fn data_directory(client: &mut Client) -> Result<PathBuf> {
    let options = client.run("admin", &doc! { "getCmdLineOpts": 1 })?;
    let path = options
        .get_document("parsed")
        .and_then(|parsed| parsed.get_document("storage"))
        .and_then(|storage| storage.get_str("dbPath"))
        // It tells what it was given.
        .unwrap_or("/data/db");
    if Path::new(path).is_absolute() {
        return Ok(path.into());
    }
    let status = client.run("admin", &doc! { "serverStatus": 1 })?;
    let process = status.get_i64("pid").context("the server does not tell its process")?;
    let started = fs::read_link(format!("/proc/{process}/cwd")).context("is this the server's machine?")?;
    Ok(started.join(path))
}

fn sync_directory(directory: &Path) -> Result<()> {
    let directory = match directory.as_os_str().is_empty() {
        true => Path::new("."),
        false => directory,
    };
    File::open(directory)
        .and_then(|opened| opened.sync_all())
        .with_context(|| format!("syncing {}", directory.display()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn what_belongs_to_a_running_server_is_not_copied() {
        let root = tempfile::tempdir().unwrap();
        let made = [
            "storage.bson",
            "tenond.lock",
            "history.tmp",
            "_tmp/1.run",
            "journal/0000000000000001.log",
            "journal/spare-0000000000000000",
            "a/_tmp/x",
        ];
        for name in made {
            let path = root.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, name).unwrap();
        }
        let elsewhere = tempfile::tempdir().unwrap();
        fs::write(elsewhere.path().join("x"), "linked/x").unwrap();
        std::os::unix::fs::symlink(elsewhere.path(), root.path().join("linked")).unwrap();
        let files = settled(root.path()).unwrap();
        let names: Vec<&str> = files.iter().map(|(name, _)| name.to_str().unwrap()).collect();
        assert_eq!(
            names,
            ["a/_tmp/x", "journal/0000000000000001.log", "linked/x", "storage.bson"]
        );
        assert!(
            files
                .iter()
                .all(|(name, bytes)| *bytes == name.as_os_str().len() as u64)
        );
    }

    #[test]
    fn a_backup_lies_outside_what_it_is_of() {
        let root = tempfile::tempdir().unwrap();
        let (data, beside) = (root.path().join("data"), root.path().join("data.unfinished"));
        let within = data.join("backup");
        fs::create_dir_all(&within).unwrap();
        fs::create_dir(&beside).unwrap();
        assert!(check_outside(&beside, &data).is_ok());
        assert!(check_outside(&within, &data).is_err());
        let link = root.path().join("link");
        std::os::unix::fs::symlink(&data, &link).unwrap();
        assert!(check_outside(&link.join("backup"), &data).is_err());
    }

    /// It was replaced by that of whichever server was given, and with it went all that the backup had.
    #[test]
    fn keys_of_a_backup_without_a_log_stay() {
        let (server, backup) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        assert!(check_keys(server.path(), backup.path()).is_ok(), "nothing to lose");
        fs::write(backup.path().join(KEY_STORE), "its own").unwrap();
        assert!(
            check_keys(server.path(), backup.path()).is_err(),
            "a server without keys"
        );
        fs::write(server.path().join(KEY_STORE), "another's").unwrap();
        assert!(check_keys(server.path(), backup.path()).is_err());
        fs::write(server.path().join(KEY_STORE), "its own").unwrap();
        assert!(check_keys(server.path(), backup.path()).is_ok());
    }

    #[test]
    fn files_that_come_and_go_are_waited_for_but_not_for_ever() {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("kept"), "x").unwrap();
        // A name without a file behind it, as between two steps of who removes one.
        let gone = root.path().join("gone");
        std::os::unix::fs::symlink(root.path().join("nowhere"), &gone).unwrap();
        assert!(settled(root.path()).is_err());
        std::thread::scope(|scope| {
            let found = scope.spawn(|| settled(root.path()));
            fs::remove_file(&gone).unwrap();
            assert_eq!(found.join().unwrap().unwrap(), [(PathBuf::from("kept"), 1)]);
        });
    }

    #[test]
    fn segments_are_told_by_their_names_and_paths_stay_below() {
        let name = |name: &str| segment_name(Path::new(name));
        assert_eq!(name("00000000000000ff.log").as_deref(), Some("00000000000000ff.log"));
        for other in [
            "00ff.log",
            "00000000000000ff.log.unfinished",
            "spare-0000000000000000",
            "0000000000000xyz.log",
        ] {
            assert_eq!(name(other), None, "{other}");
        }
        assert!(is_below(Path::new("btree/main.blocks")));
        assert!(!is_below(Path::new("../etc/passwd")) && !is_below(Path::new("/etc/passwd")));
    }
}
