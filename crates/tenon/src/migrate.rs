//! `tenon migrate`: the data of one server as a data directory of another storage engine.
//!
//! 1. A data directory is copied, and a server started on the copy: the source is only read.
//! 2. Everything is dumped, and restored into a server of the other engine, with users.
//! 3. Both servers are read again and compared: collections, options, indexes, counts and a hash of the documents.
//! 4. The new server is stopped, and its directory gets its name. Until then all of it stands in a folder beside that,
//!    which is removed whatever happens.

use crate::connect;
use crate::dump::tell;
use crate::invalid_utf8::{self, InvalidUtf8};
use crate::screen::printable_lines;
use anyhow::{Context as _, Result, anyhow, bail};
use bench::interrupt::Interrupt;
use bench::limits::Wanted;
use bench::server::{ServerCommand, ServerProcess, build_of};
use bson::{Document, RawDocument, RawDocumentBuf, doc};
use clap::Args;
use dump::{
    Client, DumpError, DumpOptions, Filter, Found, InvalidText, Login, Namespace, ReadPreference, RestoreOptions,
    Server, ServerUri, compare,
};
use rustix::fs::{CWD, RenameFlags};
use rustix::io::Errno;
use server::inspect::Unused;
use server::point_in_time;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

/// Differences that are told.
const DIFFERENCES_MAX: usize = 20;
/// A key that nobody guesses.
const KEY_BYTES: usize = 32;
/// Documents of `admin` that are copied one by one, not dumped.
const USERS_AND_ROLES: [&str; 2] = ["system.users", "system.roles"];
/// A batch of users is sent at so many bytes.
const BATCH_BYTES: usize = 4 << 20;

/// Make a data directory of another storage engine from one that is there, or from a running server
#[derive(Args, Debug)]
pub struct MigrateCommand {
    /// The data directory of a stopped server, or `mongodb://HOST[:PORT]` of one to which nobody writes
    #[arg(long, value_name = "DIR_OR_URI")]
    from: String,
    /// The storage engine of the new directory
    #[arg(long = "to-engine", value_name = "ENGINE")]
    to_engine: String,
    /// The new data directory, which must not be there, or be empty and no mount point
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Server program; default: tenond beside this program, else of PATH
    #[arg(long, value_name = "PROGRAM")]
    tenond: Option<PathBuf>,
    /// So many collections at once
    #[arg(long = "numParallelCollections", short = 'j', value_name = "N", default_value_t = 4)]
    num_parallel_collections: u8,
    /// Documents with text that is not UTF-8: stop names the first, skip leaves them out, replace puts U+FFFD for it
    #[arg(long = "invalidUtf8", value_name = "HOW", value_enum, default_value = "stop")]
    invalid_utf8: InvalidUtf8,
    /// Prints nothing but errors
    #[arg(long)]
    quiet: bool,
}

/// What has become of the log of a copy.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Copied {
    /// All that it has is in the engine's files.
    LogApplied,
    /// This program is built without the engine: a server takes of it what it knows to stay.
    LogAsServersTakeIt,
}

/// How many documents, measurements, users and roles had text that is not UTF-8.
#[derive(Default)]
struct TextCounts {
    left_out: u64,
    replaced: u64,
}

/// A folder that is removed with the value.
struct Work(PathBuf);

impl Drop for Work {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.0) {
            eprintln!("{} stays behind: {error}", self.0.display());
        }
    }
}

/// A key that this run's servers have, and nobody else: others on the machine reach their ports, and may neither read
/// nor write there. That the server proves to have it, too, tells it from another program that has taken the port.
struct Key {
    file: String,
    login: Arc<Login>,
}

impl Key {
    /// Makes one, and its file in a folder that is its owner's alone.
    fn make(folder: &Path) -> Result<Self> {
        let bytes: [u8; KEY_BYTES] = dump::random()?;
        let text: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let path = folder.join("key");
        let options = fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path);
        let written = options.and_then(|mut file| file.write_all(text.as_bytes()));
        written.with_context(|| format!("writing {}", path.display()))?;
        // Servers are started in this program's working directory.
        let file = path.to_str().context("the name of --out is not UTF-8")?.to_owned();
        Ok(Self {
            file,
            login: Arc::new(Login::of_cluster(text)),
        })
    }

    /// How a server that has the key is talked to.
    fn server(&self, process: &ServerProcess) -> Server {
        Server {
            login: Some(self.login.clone()),
            ..Server::from(process.address())
        }
    }
}

impl MigrateCommand {
    /// Migrates. On success the directory is there, whole; after an error it is not. Where text that is not UTF-8 was
    /// left out it is there, and the exit code tells.
    pub fn run(&self) -> Result<ExitCode> {
        let program = self.tenond.clone().unwrap_or_else(connect::tenond);
        let engines = build_of(&program)?.engines;
        if !engines.contains(&self.to_engine) {
            bail!(
                "{} has no storage engine {}: it has {}",
                program.display(),
                self.to_engine,
                engines.join(", ")
            );
        }
        check_free(&self.out)?;
        self.check_outside()?;
        let interrupt = Interrupt::new();
        interrupt.install()?;
        // Dropped last: servers end before their files go.
        let work = self.make_work()?;
        check_replaceable(&work.0, &self.out)?;
        let key = Key::make(&work.0)?;
        let command = |name: &str, arguments: &[&str]| ServerCommand {
            program: program.clone(),
            label: name.to_owned(),
            config: None,
            // Documents that expire meanwhile would be missing on one side.
            arguments: [
                "--setParameter",
                "ttlMonitorEnabled=false",
                // Nobody makes the first user meanwhile.
                "--setParameter",
                "enableLocalhostAuthBypass=false",
                "--keyFile",
                &key.file,
            ]
            .iter()
            .chain(arguments)
            .map(|&argument| argument.to_owned())
            .collect(),
            directory: work.0.join(name),
            limits: Wanted::default(),
        };
        let (source, _source) = match self.from.starts_with("mongodb://") {
            true => (self.source()?, None),
            false => {
                let command = command("source", &[]);
                let copied = self.copy_source(&command, &interrupt)?;
                self.tell("starting a server on the copy");
                let process = ServerProcess::start(&command, &interrupt)?;
                let server = key.server(&process);
                if copied == Copied::LogAsServersTakeIt {
                    check_alone(&server, &interrupt)?;
                }
                (server, Some(process))
            }
        };
        let folder = work.0.join("dump");
        fs::create_dir(&folder).with_context(|| format!("making {}", folder.display()))?;
        if self.invalid_utf8.choice().is_none() {
            check_users(&source, &interrupt)?;
        }
        self.tell("dumping");
        let dumped = self.dump(&source, &folder, &interrupt)?;
        let command = command("target", &["--storageEngine", &self.to_engine]);
        // Its owner's alone, as a server makes directories.
        let made = fs::DirBuilder::new().mode(0o700).recursive(true).create(command.data());
        made.with_context(|| format!("making {}", command.data().display()))?;
        let process = ServerProcess::start(&command, &interrupt)?;
        let target = key.server(&process);
        self.tell("restoring");
        let mut texts = TextCounts::default();
        if dumped > 0 {
            self.restore(&target, &folder, &mut texts, &interrupt)?;
        }
        copy_users(&source, &target, self.invalid_utf8.choice(), &mut texts, &interrupt)?;
        for told in invalid_utf8::told(texts.left_out, texts.replaced) {
            self.tell(&told);
        }
        fs::remove_dir_all(&folder).with_context(|| format!("removing {}", folder.display()))?;
        self.tell("comparing");
        let counted = self.compare(&source, &target, &interrupt)?;
        process.stop()?;
        interrupt.check()?;
        put(&command.data(), &self.out)?;
        let (exception, code) = match texts.left_out {
            0 => (String::new(), ExitCode::SUCCESS),
            left_out => (format!(", but for {left_out} left out"), ExitCode::FAILURE),
        };
        self.tell(&format!(
            "{counted}: the same in {}, of the engine {}{exception}",
            self.out.display(),
            self.to_engine
        ));
        Ok(code)
    }

    /// The server that `--from` names.
    fn source(&self) -> Result<Server> {
        let uri = ServerUri::parse(&self.from)?;
        if let Some(database) = uri.database.as_ref().filter(|_| uri.user.is_none()) {
            bail!("--from names the database {database}: whole servers are migrated");
        }
        let login = match uri.user {
            None => None,
            Some((user, password)) => Some(Arc::new(Login {
                password: password.map_or_else(|| connect::password_of(&user), Ok)?,
                user,
                source: uri.source.or(uri.database).unwrap_or_else(|| "admin".to_owned()),
                mechanism: uri.mechanism,
            })),
        };
        Ok(Server {
            address: uri.address,
            login,
            encryption: uri.tls.ready(&uri.host)?,
            read_preference: Some(uri.read_preference.unwrap_or(ReadPreference::PrimaryPreferred)),
        })
    }

    fn tell(&self, text: &str) {
        if !self.quiet {
            eprintln!("{}", printable_lines(text));
        }
    }

    /// Beside the new directory, so that it can be renamed to its name.
    fn make_work(&self) -> Result<Work> {
        let mut name = self.out.file_name().context("--out has no name")?.to_owned();
        name.push(".migrating");
        let path = self.out.with_file_name(name);
        let made = fs::DirBuilder::new().mode(0o700).create(&path);
        made.with_context(|| format!("making {}", path.display()))?;
        Ok(Work(path))
    }

    fn copy_source(&self, command: &ServerCommand, interrupt: &Interrupt) -> Result<Copied> {
        let source = Path::new(&self.from);
        let unused = Unused::lock(source, None)?;
        let engine = unused.engine()?;
        self.tell(&format!("copying {}, of the engine {engine}", source.display()));
        fs::create_dir(&command.directory).with_context(|| format!("making {}", command.directory.display()))?;
        copy_tree(source, &command.data(), interrupt)?;
        // A server would show only what it knows that a set's majority has; but who migrates has this directory alone.
        let Some(has_others) = point_in_time::apply_log(&command.data()).context("the copy")? else {
            return Ok(Copied::LogAsServersTakeIt);
        };
        if has_others {
            self.tell(
                "it is that of a member of a replica set: all that its log has is taken, whether or not others had it",
            );
        }
        Ok(Copied::LogApplied)
    }

    /// A directory below the one that is copied would be copied into itself.
    fn check_outside(&self) -> Result<()> {
        let Ok(source) = fs::canonicalize(&self.from) else {
            // A running server's URI, or a directory that is not there, which is told later.
            return Ok(());
        };
        let parent = self.out.parent().filter(|parent| !parent.as_os_str().is_empty());
        let parent = parent.unwrap_or(Path::new("."));
        let parent = fs::canonicalize(parent).with_context(|| format!("looking at {}", parent.display()))?;
        match parent.starts_with(&source) {
            true => bail!("{} is within {}", self.out.display(), source.display()),
            false => Ok(()),
        }
    }

    fn dump(&self, server: &Server, folder: &Path, interrupt: &Interrupt) -> Result<u64> {
        let progress = connect::progress(self.quiet, connect::BYTES);
        let dumped = dump::dump(&DumpOptions {
            users_and_roles: false,
            server: server.clone(),
            filter: Filter::default(),
            query: None,
            path: Some(folder.to_owned()),
            archive: false,
            gzip: false,
            oplog: false,
            parallel: usize::from(self.num_parallel_collections),
            interrupt: interrupt.clone(),
            progress: progress.clone(),
        });
        progress.finish_and_clear();
        Ok(dumped.context("dumping")?.collections)
    }

    fn restore(&self, server: &Server, folder: &Path, texts: &mut TextCounts, interrupt: &Interrupt) -> Result<()> {
        let progress = connect::progress(self.quiet, connect::BYTES);
        let restored = dump::restore(&RestoreOptions {
            users_and_roles: false,
            server: server.clone(),
            filter: Filter::default(),
            renames: Vec::new(),
            path: Some(folder.to_owned()),
            archive: false,
            gzip: false,
            drop: false,
            oplog: None,
            no_indexes: false,
            no_options: false,
            stop_on_error: true,
            // What is there is taken along, whatever its validator has become since.
            bypass_validation: true,
            invalid_text: self.invalid_utf8.choice(),
            // The server is alone, and its end makes everything durable.
            write_concern: doc! { "w": 1 },
            parallel: usize::from(self.num_parallel_collections),
            interrupt: interrupt.clone(),
            progress: progress.clone(),
        });
        progress.finish_and_clear();
        let restored = restored.context("restoring")?;
        if let Some(error) = restored.stopped {
            return Err(anyhow!(error).context(format!("restoring ({})", invalid_utf8::ADVICE)));
        }
        tell(&restored);
        texts.left_out += restored.skipped;
        texts.replaced += restored.replaced;
        Ok(())
    }

    /// What was compared, in words. Any difference is an error.
    fn compare(&self, source: &Server, target: &Server, interrupt: &Interrupt) -> Result<String> {
        let progress = connect::progress(self.quiet, "{bytes} compared {bytes_per_sec}");
        // What became of text that is not UTF-8 is what should be there.
        let read = |server| compare::summaries(server, self.invalid_utf8.choice(), interrupt, &progress);
        let (before, after) = (read(source).context("the source")?, read(target).context("the copy")?);
        progress.finish_and_clear();
        let differences = compare::differences(&before, &after);
        if !differences.is_empty() {
            let told = differences.iter().take(DIFFERENCES_MAX).cloned().collect::<Vec<_>>();
            bail!(
                "what was restored is not what was there ({} differences): {}",
                differences.len(),
                told.join("; ")
            );
        }
        let documents: u64 = before.values().map(|summary| summary.documents).sum();
        Ok(format!(
            "{documents} documents of {} collections and views",
            before.len()
        ))
    }
}

/// The new directory must not be there, or be empty.
fn check_free(out: &Path) -> Result<()> {
    match fs::read_dir(out).map(|mut entries| entries.next().is_none()) {
        Ok(true) => Ok(()),
        Ok(false) => bail!("{} is not empty", out.display()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error).with_context(|| format!("looking at {}", out.display())),
    }
}

/// An empty directory gives way to the new one at the end, hours later: whether it can is tried at the beginning, and
/// it stays. A mount point can neither be replaced nor get another name.
fn check_replaceable(work: &Path, out: &Path) -> Result<()> {
    let found = match fs::symlink_metadata(out) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        found => found.with_context(|| format!("looking at {}", out.display()))?,
    };
    if !found.is_dir() {
        bail!(
            "{} is a link, which cannot be replaced by a directory: name one below it",
            out.display()
        );
    }
    let other = work.join("out");
    fs::create_dir(&other).with_context(|| format!("making {}", other.display()))?;
    // Both names are there all the time, however this program ends.
    let exchange = || rustix::fs::renameat_with(CWD, &other, CWD, out, RenameFlags::EXCHANGE);
    match exchange() {
        // Not every file system can do that.
        Err(Errno::INVAL | Errno::NOSYS) => {}
        Err(error) => {
            let hint = match error {
                Errno::BUSY | Errno::XDEV => ", which is a mount point: name one below it",
                _ => "",
            };
            let tried = format!("replacing {}{hint}", out.display());
            return Err(anyhow!(std::io::Error::from(error)).context(tried));
        }
        Ok(()) => exchange().with_context(|| format!("giving {} its place back", out.display()))?,
    }
    fs::remove_dir(&other).with_context(|| format!("removing {}", other.display()))
}

/// Servers take all of a log that nobody else has a say in. Without this program's help the end of another one would be
/// missing, and nothing would tell.
fn check_alone(server: &Server, interrupt: &Interrupt) -> Result<()> {
    let mut configuration = None;
    let namespace = Namespace::new("local", "system.replset");
    Client::open(server, interrupt)?.find(&namespace, None, &mut |document| {
        configuration = Some(document.to_owned());
        Ok(())
    })?;
    match configuration.is_some_and(|configuration| has_others(&configuration)) {
        true => bail!(
            "the directory is that of a member of a replica set, and `tenon` is built without its engine, which it \
             needs to take all that the member's log has"
        ),
        false => Ok(()),
    }
}

/// Whether others had a say in what a member with this configuration has: nothing is said of consensus in sets that
/// have had one member only.
fn has_others(configuration: &RawDocument) -> bool {
    !matches!(configuration.get("consensus"), Ok(None))
}

/// Copies files and folders; links are followed, as a server does it.
fn copy_tree(from: &Path, to: &Path, interrupt: &Interrupt) -> Result<()> {
    fs::create_dir(to).with_context(|| format!("making {}", to.display()))?;
    for entry in fs::read_dir(from).with_context(|| format!("listing {}", from.display()))? {
        interrupt.check()?;
        let entry = entry.with_context(|| format!("listing {}", from.display()))?;
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        let kind = fs::metadata(&from).with_context(|| format!("looking at {}", from.display()))?;
        if kind.is_dir() {
            copy_tree(&from, &to, interrupt)?;
        } else if kind.is_file() {
            fs::copy(&from, &to).with_context(|| format!("copying {} to {}", from.display(), to.display()))?;
        }
    }
    Ok(())
}

/// That text of users and roles ends nothing hours later.
fn check_users(source: &Server, interrupt: &Interrupt) -> Result<()> {
    let mut from = Client::open_patient(source, interrupt)?;
    for name in USERS_AND_ROLES {
        let mut invalid = None;
        from.find(&Namespace::new("admin", name), None, &mut |document| {
            invalid = invalid.take().or_else(|| Found::of_server(document).what_is_invalid());
            Ok(())
        })?;
        if let Some(what) = invalid {
            bail!("admin.{name}: {what} ({})", invalid_utf8::ADVICE);
        }
    }
    Ok(())
}

/// Users and roles are documents of `admin`, which dumps leave out.
fn copy_users(
    source: &Server,
    target: &Server,
    choice: Option<InvalidText>,
    texts: &mut TextCounts,
    interrupt: &Interrupt,
) -> Result<()> {
    let mut from = Client::open_patient(source, interrupt)?;
    let mut to = Client::open_patient(target, interrupt)?;
    for name in USERS_AND_ROLES {
        let namespace = Namespace::new("admin", name);
        let mut batch = Vec::new();
        let mut insert = |batch: &[u8]| -> dump::Result<()> {
            match insert_own(&mut to, name, batch)?.first() {
                None => Ok(()),
                Some(error) => Err(bench::Error::Protocol(format!("inserting into admin.{name}: {error}")).into()),
            }
        };
        from.find(&namespace, None, &mut |document| {
            let found = Found::of_server(document);
            match (found.what_is_invalid(), choice) {
                (None, _) => batch.extend_from_slice(document.as_bytes()),
                (Some(what), None) => {
                    let place = namespace.to_string();
                    return Err(DumpError::InvalidText { place, what });
                }
                (Some(what), Some(InvalidText::Skip)) => {
                    eprintln!("{}", printable_lines(&format!("{namespace}: left out: {what}")));
                    texts.left_out += 1;
                    return Ok(());
                }
                (Some(what), Some(InvalidText::Replace)) => {
                    eprintln!("{}", printable_lines(&format!("{namespace}: U+FFFD is put in: {what}")));
                    texts.replaced += 1;
                    batch.extend_from_slice(&found.with_valid_content());
                }
            }
            if batch.len() > BATCH_BYTES {
                insert(&batch)?;
                batch.clear();
            }
            Ok(())
        })?;
        if !batch.is_empty() {
            insert(&batch)?;
        }
    }
    Ok(())
}

/// Inserts users or roles into a server's own, and says which layout they have. Answers the write errors: those that
/// the server refused.
pub fn insert_own(to: &mut Client, collection: &str, documents: &[u8]) -> dump::Result<Vec<Document>> {
    let command = doc! { "insert": collection, "ordered": false };
    let command = RawDocumentBuf::try_from(&command).map_err(|error| bench::Error::Protocol(error.to_string()))?;
    let reply = to.write("admin", &command, "documents", documents)?;
    if let Some(error) = reply.get("writeConcernError") {
        return Err(bench::Error::Protocol(format!("inserting into admin.{collection}: {error}")).into());
    }
    let schema = doc! {
        "update": "system.version",
        "updates": [{ "q": { "_id": "authSchema" }, "u": { "$setOnInsert": { "currentVersion": 5 } }, "upsert": true }],
    };
    to.run("admin", &schema)?;
    let errors = reply.get_array("writeErrors").into_iter().flatten();
    Ok(errors.filter_map(|error| error.as_document().cloned()).collect())
}

/// Gives the finished directory its name.
fn put(made: &Path, out: &Path) -> Result<()> {
    let parent = out.parent().filter(|parent| !parent.as_os_str().is_empty());
    let sync = || -> std::io::Result<()> {
        // Replaces an empty directory, and nothing else.
        fs::rename(made, out)?;
        fs::File::open(parent.unwrap_or(Path::new(".")))?.sync_all()
    };
    sync().map_err(|error| anyhow!(error).context(format!("putting the new directory to {}", out.display())))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use bson::rawdoc;
    use std::os::unix::fs::MetadataExt as _;

    /// It was found out at the last step, when everything had been copied.
    #[test]
    fn what_cannot_be_replaced_is_found_out_at_the_beginning() {
        let root = tempfile::tempdir().unwrap();
        let (work, out) = (root.path().join("work"), root.path().join("out"));
        fs::create_dir(&work).unwrap();
        assert!(check_replaceable(&work, &out).is_ok() && !out.exists());
        fs::create_dir(&out).unwrap();
        let before = fs::metadata(&out).unwrap().ino();
        assert!(check_replaceable(&work, &out).is_ok());
        let after = fs::metadata(&out).unwrap().ino();
        assert_eq!(after, before, "what fails later leaves it as it was");
        assert_eq!(fs::read_dir(root.path()).unwrap().count(), 2, "and nothing beside it");
        let link = root.path().join("link");
        std::os::unix::fs::symlink(&out, &link).unwrap();
        let refused = check_replaceable(&work, &link).unwrap_err().to_string();
        assert!(refused.contains("name one below it"), "{refused}");
        // The system's own mount points are some to everybody.
        let refused = check_replaceable(&work, Path::new("/proc")).unwrap_err();
        let reason = refused.downcast_ref::<std::io::Error>().unwrap().kind();
        let expected = [
            std::io::ErrorKind::ResourceBusy,
            std::io::ErrorKind::CrossesDevices,
            // To all but root.
            std::io::ErrorKind::PermissionDenied,
        ];
        assert!(expected.contains(&reason), "{reason}");
    }

    #[test]
    fn sets_are_told_from_those_of_one_member() {
        let alone = rawdoc! { "_id": "rs", "version": 1, "members": [{ "_id": 0, "host": "a:1" }] };
        assert!(!has_others(&alone));
        let mut several = alone.clone();
        several.append(bson::cstr!("consensus"), rawdoc! { "members": [] });
        assert!(has_others(&several));
    }
}
