//! `tenon rescue`: the data of a directory of MongoDB's engine MMAPv1, into a running server or into files of a dump.
//!
//! The directory is only read. Damage is told and passed over; what makes the command fail is that nothing can be read,
//! or nothing can be written.

use crate::connect::{self, Purpose, ServerArgs};
use crate::invalid_utf8;
use crate::live;
use crate::migrate::insert_own;
use crate::screen::printable_lines;
use ::rescue::{
    Collection, CollectionKind, DataDirectory, Database, Finding, Findings, InvalidText, OpenOptions, Severity, Walked,
};
use anyhow::{Context as _, Result, anyhow, bail};
use bench::interrupt::Interrupt;
use bson::{Document, RawDocument, doc};
use clap::Args;
use dump::{Client, Filter, Loading, Metadata, Namespace, Output, Pattern, RestoreOptions, file_stem};
use indicatif::ProgressBar;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use vfs::RealFs;

/// Something is damaged, or the server did not take something.
const EXIT_DAMAGED: u8 = 1;
/// It could not be done.
const EXIT_FAILED: u8 = 2;
/// A server's own, which a rescue of everything leaves out as a dump does.
const OWN_DATABASES: [&str; 2] = ["local", "config"];
/// Users and roles since 2.6.
const USERS: [&str; 2] = ["system.users", "system.roles"];
/// Batches of users.
const BATCH_BYTES: usize = 4 << 20;
/// A user or role that is there already.
const DUPLICATE_KEY: f64 = 11000.0;

/// Read a data directory of MongoDB 2.4 to 4.0 with MMAPv1, whole or damaged, and write what it holds elsewhere
#[derive(Args, Debug)]
#[command(
    after_help = "Exit codes: 0 everything was rescued, 1 something is damaged or was refused and the rest was rescued, \
                  2 it could not be done"
)]
pub struct RescueCommand {
    /// The data directory, which is only read; no server may run on it
    #[arg(long, value_name = "DIR")]
    mmapv1: PathBuf,
    #[command(flatten)]
    server: ServerArgs,
    /// Write files of a dump into this folder instead of a server, for tenon restore or mongorestore
    #[arg(long, short, value_name = "FOLDER", help_heading = "Output")]
    out: Option<PathBuf>,
    /// The files of --out are compressed by gzip
    #[arg(long, requires = "out", help_heading = "Output")]
    gzip: bool,
    /// Write nothing, only tell what is there and what is damaged
    #[arg(long, conflicts_with_all = ["out", "drop"], help_heading = "Output")]
    check: bool,
    /// Remove each collection of the server before it is filled
    #[arg(long, conflicts_with = "out", help_heading = "Output")]
    drop: bool,
    /// Only this database; local and config are taken only by name
    #[arg(long, short, value_name = "NAME", help_heading = "Collections")]
    db: Option<String>,
    /// Only this collection of --db
    #[arg(long, short, value_name = "NAME", requires = "db", help_heading = "Collections")]
    collection: Option<String>,
    /// Only what this pattern matches, such as 'shop.*'; may be repeated
    #[arg(long = "nsInclude", value_name = "PATTERN", help_heading = "Collections")]
    ns_include: Vec<String>,
    /// Nothing that this pattern matches; may be repeated
    #[arg(long = "nsExclude", value_name = "PATTERN", help_heading = "Collections")]
    ns_exclude: Vec<String>,
    /// With users and roles (of 2.6 and later), which are left out otherwise
    #[arg(long, help_heading = "Collections")]
    users: bool,
    /// What becomes of documents with text that is not UTF-8: replace puts U+FFFD for it, skip leaves them out
    #[arg(
        long = "invalidUtf8",
        value_name = "HOW",
        value_parser = invalid_utf8::goes_on(),
        default_value = "replace",
        help_heading = "Behaviour"
    )]
    invalid_utf8: InvalidText,
    /// One document for each damage and collection, and one with the counts
    #[arg(long, help_heading = "Behaviour")]
    json: bool,
    /// Prints nothing but damage and errors
    #[arg(long, conflicts_with = "json", help_heading = "Behaviour")]
    quiet: bool,
}

/// What was done in all.
#[derive(Default)]
struct Totals {
    collections: u64,
    documents: u64,
    bytes: u64,
    replaced: u64,
    damaged: u64,
    /// Damages, those of documents included.
    damages: u64,
    refused: u64,
}

/// Where documents go.
enum Target<'a> {
    Nowhere,
    Folder(&'a Path),
    Server {
        client: Box<Client>,
        options: &'a RestoreOptions,
    },
}

impl RescueCommand {
    /// Rescues, and tells what was damaged.
    pub fn run(&self) -> ExitCode {
        match self.rescue() {
            Ok(totals) if totals.damages == 0 && totals.refused == 0 => ExitCode::SUCCESS,
            Ok(_) => ExitCode::from(EXIT_DAMAGED),
            Err(error) => {
                eprintln!("tenon: {}", printable_lines(&server::reasons(&error)));
                ExitCode::from(EXIT_FAILED)
            }
        }
    }

    fn rescue(&self) -> Result<Totals> {
        let interrupt = Interrupt::new();
        interrupt.install()?;
        let fs = RealFs::new();
        refuse_running(&fs, &self.mmapv1)?;
        let options = self.restore_options(&interrupt)?;
        let mut target = match (&self.out, self.check) {
            (_, true) => Target::Nowhere,
            (Some(folder), _) => {
                check_free(folder)?;
                Target::Folder(folder)
            }
            (None, _) => Target::Server {
                client: Box::new(options.client(&interrupt)?),
                options: &options,
            },
        };
        let scratch = std::env::temp_dir().join(format!("tenon-rescue-{}", std::process::id()));
        let open = OpenOptions {
            scratch: Some(scratch),
            invalid_text: self.invalid_utf8,
            ..OpenOptions::default()
        };
        let directory = DataDirectory::open(Arc::new(fs), &self.mmapv1, &open)?;
        let replayed = directory.replayed();
        if replayed.files > 0 {
            self.tell(&format!(
                "journal: {} sections replayed, {} were in the data files already",
                replayed.sections, replayed.skipped
            ));
        }
        let mut totals = Totals::default();
        self.tell_findings(directory.findings(), &mut totals)?;
        let progress = connect::progress(self.quiet || self.json, connect::BYTES);
        progress.set_length(directory.bytes());
        for name in directory.databases() {
            let is_asked = self.db.as_deref() == Some(&*name);
            if self.db.is_some() && !is_asked {
                continue;
            }
            if OWN_DATABASES.contains(&&*name) && !is_asked {
                self.tell(&format!("{name}: left out, as a server's own; --db {name} takes it"));
                continue;
            }
            let database = directory.database(&name)?;
            let before = progress.position();
            self.database(&database, &options, &mut target, &mut totals, &interrupt, &progress)?;
            // Documents are less than the files, which the bar counts.
            progress.set_position(before + database.bytes());
        }
        progress.finish_and_clear();
        self.tell_totals(&totals)?;
        if totals.collections == 0 && !options.filter.takes_all() {
            bail!("no collection of the directory is what was asked for");
        }
        Ok(totals)
    }

    fn restore_options(&self, interrupt: &Interrupt) -> Result<RestoreOptions> {
        let (server, database) = self.server.server(self.db.as_deref(), Purpose::Write)?;
        let patterns = |texts: &[String]| texts.iter().map(|text| Pattern::new(text)).collect();
        Ok(RestoreOptions {
            server,
            filter: Filter {
                database: self.db.clone().or(database),
                collection: self.collection.clone(),
                include: patterns(&self.ns_include),
                exclude: patterns(&self.ns_exclude),
            },
            renames: Vec::new(),
            path: None,
            archive: false,
            gzip: false,
            drop: self.drop,
            users_and_roles: false,
            oplog: None,
            no_indexes: false,
            no_options: false,
            stop_on_error: false,
            bypass_validation: true,
            // What comes has been made valid.
            invalid_text: None,
            write_concern: doc! { "w": "majority" },
            parallel: 1,
            interrupt: interrupt.clone(),
            progress: ProgressBar::hidden(),
        })
    }

    fn database(
        &self,
        database: &Database<'_>,
        options: &RestoreOptions,
        target: &mut Target<'_>,
        totals: &mut Totals,
        interrupt: &Interrupt,
        progress: &ProgressBar,
    ) -> Result<()> {
        self.tell_findings(database.findings(), totals)?;
        for collection in database.collections() {
            let namespace = Namespace::new(database.name(), collection.name.as_str());
            if !options.filter.takes(&namespace) {
                continue;
            }
            let is_of_users = database.name() == "admin" && USERS.contains(&&*collection.name);
            if is_of_users && self.users {
                self.users(database, collection, target, totals)?;
                continue;
            }
            if is_of_users || collection.name == "system.users" {
                let count = collection.documents.unwrap_or(0);
                let how = if is_of_users {
                    "; --users takes them"
                } else {
                    ": their passwords are of a kind that is no longer"
                };
                self.tell(&format!("{namespace}: {count} left out{how}"));
                continue;
            }
            if collection.name.starts_with("system.") && collection.name != "system.js" {
                continue;
            }
            let mut findings = Findings::default();
            let mut failures = Vec::new();
            let mut each = |bytes: &[u8]| {
                progress.inc(bytes.len() as u64);
                interrupt.check().map_err(output_error)
            };
            let walked = move_collection(
                target,
                database,
                collection,
                &namespace,
                self.gzip,
                &mut findings,
                &mut failures,
                &mut each,
            )
            .with_context(|| namespace.to_string())?;
            totals.refused += failures.len() as u64;
            for failure in &failures {
                self.tell_failure(failure)?;
            }
            self.tell_findings(&findings, totals)?;
            self.tell_collection(&namespace, collection, walked, findings.damages(), failures.len())?;
            totals.collections += 1;
            totals.documents += walked.documents;
            totals.bytes += walked.bytes;
            totals.replaced += walked.replaced;
            totals.damaged += walked.damaged;
        }
        Ok(())
    }

    /// Users and roles keep their documents; a server takes them into its own.
    fn users(
        &self,
        database: &Database<'_>,
        collection: &Collection,
        target: &mut Target<'_>,
        totals: &mut Totals,
    ) -> Result<()> {
        let namespace = Namespace::new(database.name(), collection.name.as_str());
        let mut findings = Findings::default();
        let mut failures = Vec::new();
        let walked = match target {
            Target::Server { client, .. } => {
                let mut batch = Vec::new();
                let mut insert = |batch: &[u8]| -> dump::Result<()> {
                    for error in insert_own(client, &collection.name, batch)? {
                        let message = error.get_str("errmsg").unwrap_or("no message");
                        let what = match live::number(&error, "code") {
                            Some(DUPLICATE_KEY) => "is there already and stays",
                            _ => "is refused",
                        };
                        failures.push(format!("{namespace}: one {what}: {message}"));
                    }
                    Ok(())
                };
                let walked = database.documents(collection, &mut findings, &mut |bytes| {
                    batch.extend_from_slice(bytes);
                    if batch.len() > BATCH_BYTES {
                        insert(&batch).map_err(output_error)?;
                        batch.clear();
                    }
                    Ok(())
                })?;
                if !batch.is_empty() {
                    insert(&batch)?;
                }
                walked
            }
            other => move_collection(
                other,
                database,
                collection,
                &namespace,
                self.gzip,
                &mut findings,
                &mut failures,
                &mut |_| Ok(()),
            )?,
        };
        totals.refused += failures.len() as u64;
        for failure in &failures {
            self.tell_failure(failure)?;
        }
        self.tell_findings(&findings, totals)?;
        self.tell_collection(&namespace, collection, walked, findings.damages(), failures.len())?;
        totals.collections += 1;
        totals.documents += walked.documents;
        totals.bytes += walked.bytes;
        totals.replaced += walked.replaced;
        totals.damaged += walked.damaged;
        Ok(())
    }

    fn tell(&self, text: &str) {
        if !self.quiet && !self.json {
            println!("{}", printable_lines(text));
        }
    }

    fn print(&self, document: &Document, text: &str) -> Result<()> {
        let mut out = std::io::stdout().lock();
        match self.json {
            true => writeln!(out, "{}", live::json(document)),
            false => writeln!(out, "{}", printable_lines(text)),
        }
        .context("printing")
    }

    fn tell_findings(&self, findings: &Findings, totals: &mut Totals) -> Result<()> {
        totals.damages += findings.damages();
        for finding in findings.list() {
            if finding.fault.severity() == Severity::Note && self.quiet {
                continue;
            }
            self.print(&finding_document(finding), &finding.to_string())?;
        }
        if findings.more() > 0 {
            let more = findings.more() as i64;
            self.print(&doc! { "moreFindings": more }, &format!("and {more} more"))?;
        }
        Ok(())
    }

    fn tell_failure(&self, failure: &str) -> Result<()> {
        self.print(&doc! { "refused": failure }, failure)
    }

    fn tell_collection(
        &self,
        namespace: &Namespace,
        collection: &Collection,
        walked: Walked,
        damages: u64,
        refused: usize,
    ) -> Result<()> {
        if self.quiet {
            return Ok(());
        }
        let kind = match collection.kind {
            CollectionKind::Collection => "collection",
            CollectionKind::View => "view",
        };
        let document = doc! {
            "collection": namespace.to_string(), "type": kind, "documents": walked.documents as i64,
            "bytes": walked.bytes as i64, "replaced": walked.replaced as i64, "damaged": walked.damaged as i64,
            "damages": damages as i64, "indexes": collection.indexes.len() as i64, "refused": refused as i64,
        };
        let mut text = match collection.kind {
            CollectionKind::View => format!("{namespace}: a view"),
            CollectionKind::Collection => {
                let indexes = collection.indexes.len();
                format!("{namespace}: {} documents, {indexes} indexes", walked.documents)
            }
        };
        if walked.replaced > 0 {
            text.push_str(&format!(", text of {} documents is replaced", walked.replaced));
        }
        if walked.damaged > 0 {
            text.push_str(&format!(", {} documents are damaged", walked.damaged));
        }
        if refused > 0 {
            text.push_str(", not all was taken by the server");
        }
        self.print(&document, &text)
    }

    fn tell_totals(&self, totals: &Totals) -> Result<()> {
        if self.quiet {
            return Ok(());
        }
        let document = doc! {
            "collections": totals.collections as i64, "documents": totals.documents as i64, "bytes": totals.bytes as i64,
            "replaced": totals.replaced as i64, "damaged": totals.damaged as i64, "damages": totals.damages as i64,
            "refused": totals.refused as i64,
        };
        let mut text = format!(
            "{} documents of {} collections rescued, {} bytes",
            totals.documents, totals.collections, totals.bytes
        );
        match totals.damages {
            0 => text.push_str("; nothing is damaged"),
            1 => text.push_str("; 1 damage"),
            damages => text.push_str(&format!("; {damages} damages")),
        }
        if totals.replaced > 0 {
            let replaced = totals.replaced;
            text.push_str(&format!(
                ", text that is not UTF-8 was replaced in {replaced} documents"
            ));
        }
        if totals.damaged > 0 {
            text.push_str(&format!(", {} documents lost by them", totals.damaged));
        }
        if totals.refused > 0 {
            text.push_str(&format!("; the server refused something {} times", totals.refused));
        }
        self.print(&document, &text)
    }
}

/// Gives a collection to the target. What a server refuses goes to `failures`.
#[allow(clippy::too_many_arguments, reason = "one call of each kind")]
fn move_collection(
    target: &mut Target<'_>,
    database: &Database<'_>,
    collection: &Collection,
    namespace: &Namespace,
    is_gzip: bool,
    findings: &mut Findings,
    failures: &mut Vec<String>,
    each: &mut dyn FnMut(&[u8]) -> ::rescue::Result<()>,
) -> Result<Walked> {
    let metadata = metadata_of(collection);
    match target {
        Target::Nowhere => Ok(database.documents(collection, findings, each)?),
        Target::Folder(root) => {
            let folder = root.join(database.name());
            fs::create_dir_all(&folder).with_context(|| format!("making {}", folder.display()))?;
            let (stem, ending) = (file_stem(&collection.name), if is_gzip { ".gz" } else { "" });
            let mut walked = Walked::default();
            if collection.kind == CollectionKind::Collection {
                let path = folder.join(format!("{stem}.bson{ending}"));
                let writing = || format!("writing {}", path.display());
                let mut output = Output::create(Some(&path), is_gzip, &Interrupt::new())?;
                walked = database.documents(collection, findings, &mut |bytes| {
                    output.write_all(bytes).map_err(output_error)?;
                    each(bytes)
                })?;
                output.finish().with_context(writing)?;
            }
            let path = folder.join(format!("{stem}.metadata.json{ending}"));
            let writing = || format!("writing {}", path.display());
            let mut output = Output::create(Some(&path), is_gzip, &Interrupt::new())?;
            let text = metadata.to_json(&namespace.to_string())?;
            output.write_all(text.as_bytes()).with_context(writing)?;
            output.finish().with_context(writing)?;
            Ok(walked)
        }
        Target::Server { client, options } => {
            let mut metadata = metadata;
            // It says something of MMAPv1.
            metadata.options.remove("storageEngine");
            let mut loading = Loading::new(options, namespace, metadata)?;
            let walked = database.documents(collection, findings, &mut |bytes| {
                let document = RawDocument::from_bytes(bytes).map_err(output_error)?;
                loading.add(client, document).map_err(output_error)?;
                each(bytes)
            })?;
            let restored = loading.finish(client)?;
            failures.extend(restored.failures);
            if restored.failed > 1 {
                failures.push(format!(
                    "{namespace}: {} documents were refused in all",
                    restored.failed
                ));
            }
            Ok(walked)
        }
    }
}

fn metadata_of(collection: &Collection) -> Metadata {
    Metadata {
        options: collection.options.clone(),
        indexes: collection.indexes.clone(),
        uuid: collection.uuid.clone(),
        collection: Some(collection.name.clone()),
        kind: match collection.kind {
            CollectionKind::Collection => dump::CollectionKind::Collection,
            CollectionKind::View => dump::CollectionKind::View,
        },
    }
}

fn finding_document(finding: &Finding) -> Document {
    let mut document = doc! {
        "severity": match finding.fault.severity() { Severity::Note => "note", Severity::Damage => "damage" },
        "file": &finding.file,
    };
    if let Some(offset) = finding.offset {
        document.insert("offset", offset as i64);
    }
    if let Some(namespace) = &finding.namespace {
        document.insert("namespace", namespace);
    }
    document.insert("reason", finding.fault.to_string());
    document
}

fn output_error(error: impl std::fmt::Display) -> ::rescue::RescueError {
    ::rescue::RescueError::Output(error.to_string())
}

/// Files of an earlier rescue would be mixed with those of this one.
fn check_free(folder: &Path) -> Result<()> {
    match fs::read_dir(folder).map(|mut entries| entries.next().is_none()) {
        Ok(true) => Ok(()),
        Ok(false) => bail!("{} is not empty", folder.display()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error).with_context(|| format!("looking at {}", folder.display())),
    }
}

/// The files of a running server change while they are read. Its lock cannot be tried without opening the file for
/// writing, but the file names the process.
fn refuse_running(fs: &RealFs, directory: &Path) -> Result<()> {
    let Some(process) = ::rescue::process_of(fs, directory) else {
        return Ok(());
    };
    let whole = fs::canonicalize(directory).with_context(|| format!("looking at {}", directory.display()))?;
    let Ok(open) = fs::read_dir(format!("/proc/{process}/fd")) else {
        // Gone; or another user's, of which only the name is known.
        let name = fs::read_to_string(format!("/proc/{process}/comm")).unwrap_or_default();
        return match name.trim() {
            "mongod" => Err(running(process, directory)),
            _ => Ok(()),
        };
    };
    let is_used = open
        .filter_map(|entry| fs::read_link(entry.ok()?.path()).ok())
        .any(|path| path.starts_with(&whole));
    match is_used {
        true => Err(running(process, directory)),
        false => Ok(()),
    }
}

fn running(process: u32, directory: &Path) -> anyhow::Error {
    anyhow!(
        "the process {process} has {} open: stop that server first, or rescue a copy of the directory",
        directory.display()
    )
}
