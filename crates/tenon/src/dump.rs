//! `tenon dump`, `tenon restore` and `tenon bson`: arguments with the names of mongodump, mongorestore and bsondump.

use crate::connect::{self, Purpose, ServerArgs};
use crate::invalid_utf8::{self, InvalidUtf8};
use crate::point::PointArgs;
use crate::screen::printable_lines;
use ::dump::{DumpOptions, Filter, Pattern, Rename, ReplayOptions, RestoreOptions, Restored, Server};
use anyhow::{Context as _, Result, anyhow, bail};
use bench::interrupt::Interrupt;
use bson::RawDocumentBuf;
use clap::{Args, ValueEnum};
use extjson::JsonForm;
use indicatif::ProgressBar;
use std::io::{BufWriter, Write};
use std::path::PathBuf;
use std::process::ExitCode;

/// What `--archive` without a file stands for.
const STREAM: &str = "-";

/// The server, and which of its collections.
#[derive(Args, Debug)]
struct SelectionArgs {
    #[command(flatten)]
    server: ServerArgs,
    /// Only this database
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
    /// One stream instead of a folder: a file, or standard input or output without one
    #[arg(
        long, value_name = "FILE", num_args = 0..=1, require_equals = true, default_missing_value = STREAM,
        help_heading = "Files"
    )]
    archive: Option<PathBuf>,
    /// Compressed by gzip
    #[arg(long, help_heading = "Files")]
    gzip: bool,
    /// So many collections at once
    #[arg(
        long = "numParallelCollections",
        short = 'j',
        value_name = "N",
        default_value_t = 4,
        help_heading = "Behaviour"
    )]
    num_parallel_collections: u8,
    /// Prints nothing but errors
    #[arg(long, help_heading = "Behaviour")]
    quiet: bool,
}

impl SelectionArgs {
    fn server(&self, purpose: Purpose) -> Result<(Server, Filter)> {
        let (server, database) = self.server.server(self.db.as_deref(), purpose)?;
        let patterns = |texts: &[String]| texts.iter().map(|text| Pattern::new(text)).collect();
        let filter = Filter {
            database,
            collection: self.collection.clone(),
            include: patterns(&self.ns_include),
            exclude: patterns(&self.ns_exclude),
        };
        Ok((server, filter))
    }

    fn path(&self, folder: Option<&PathBuf>) -> Result<Option<PathBuf>> {
        match (&self.archive, folder) {
            (Some(_), Some(folder)) => bail!("--archive and the folder {} exclude each other", folder.display()),
            (Some(file), None) => Ok(Some(file.clone()).filter(|file| file.as_os_str() != STREAM)),
            (None, folder) => Ok(folder.cloned()),
        }
    }

    fn progress(&self) -> ProgressBar {
        connect::progress(self.quiet, connect::BYTES)
    }

    fn tell(&self, text: &str) {
        if !self.quiet {
            eprintln!("{}", printable_lines(text));
        }
    }
}

/// Dump databases in mongodump's formats
#[derive(Args, Debug)]
pub struct DumpCommand {
    #[command(flatten)]
    selection: SelectionArgs,
    /// The folder, made when it is not there; default: dump
    #[arg(long, short, value_name = "FOLDER", help_heading = "Files")]
    out: Option<PathBuf>,
    /// Only documents that this filter finds, in Extended JSON
    #[arg(
        long,
        short,
        value_name = "JSON",
        requires = "collection",
        help_heading = "Collections"
    )]
    query: Option<String>,
    /// With what is written meanwhile, for tenon restore --oplogReplay; of a replica set's member, everything
    #[arg(long, help_heading = "Behaviour")]
    oplog: bool,
}

impl DumpCommand {
    /// Dumps, and says how much.
    pub fn run(&self) -> Result<ExitCode> {
        let (server, filter) = self.selection.server(Purpose::Read)?;
        let query: Option<RawDocumentBuf> = match &self.query {
            Some(text) => Some(extjson::parse(text).context("--query")?),
            None => None,
        };
        let interrupt = Interrupt::new();
        interrupt.install()?;
        let progress = self.selection.progress();
        let dumped = ::dump::dump(&DumpOptions {
            server,
            users_and_roles: filter.takes_all(),
            filter,
            query,
            path: self.selection.path(self.out.as_ref())?,
            archive: self.selection.archive.is_some(),
            gzip: self.selection.gzip,
            oplog: self.oplog,
            parallel: usize::from(self.selection.num_parallel_collections),
            interrupt,
            progress: progress.clone(),
        })?;
        progress.finish_and_clear();
        self.selection.tell(&format!(
            "{} documents of {} collections dumped, {} bytes",
            dumped.documents, dumped.collections, dumped.bytes
        ));
        if dumped.lacks_users_and_roles {
            eprintln!("users and roles are left out: the user may not read them (the role backup may)");
        }
        if dumped.has_unsynced_folders {
            eprintln!("a folder cannot be synced: until the system has written it, a power loss may take files away");
        }
        if self.oplog {
            self.selection
                .tell(&format!("{} entries of the log of operations", dumped.operations));
        }
        for series in &dumped.series_changed {
            eprintln!(
                "the time series {series} was made or changed meanwhile, which is not replayed: \
                 restore with --oplogReplay --nsExclude '{series}', and it by itself, or dump again"
            );
        }
        Ok(match dumped.series_changed.is_empty() {
            true => ExitCode::SUCCESS,
            false => ExitCode::FAILURE,
        })
    }
}

/// Restore dumps of mongodump or of tenon dump
#[derive(Args, Debug)]
pub struct RestoreCommand {
    #[command(flatten)]
    selection: SelectionArgs,
    /// The folder of the dump, the folder of --db, or one file of documents; default: dump
    #[arg(value_name = "PATH")]
    path: Option<PathBuf>,
    /// The folder of the dump, as an option
    #[arg(long, value_name = "FOLDER", conflicts_with = "path", help_heading = "Files")]
    dir: Option<PathBuf>,
    /// Other names for what this pattern matches; as often as --nsTo
    #[arg(long = "nsFrom", value_name = "PATTERN", help_heading = "Collections")]
    ns_from: Vec<String>,
    /// The other names; $x$ and * stand for what they stand for in --nsFrom
    #[arg(long = "nsTo", value_name = "PATTERN", help_heading = "Collections")]
    ns_to: Vec<String>,
    /// Removes each collection before it is restored
    #[arg(long, help_heading = "Behaviour")]
    drop: bool,
    /// Makes no indexes
    #[arg(long = "noIndexRestore", help_heading = "Behaviour")]
    no_index_restore: bool,
    /// Makes collections without their options
    #[arg(long = "noOptionsRestore", help_heading = "Behaviour")]
    no_options_restore: bool,
    /// Ends at the first document, index or option that the server refuses
    #[arg(long = "stopOnError", help_heading = "Behaviour")]
    stop_on_error: bool,
    /// Takes documents that their collection's validator would not
    #[arg(long = "bypassDocumentValidation", help_heading = "Behaviour")]
    bypass_document_validation: bool,
    /// Documents with text that is not UTF-8: stop names the first, skip leaves them out, replace puts U+FFFD for it
    #[arg(
        long = "invalidUtf8",
        value_name = "HOW",
        value_enum,
        default_value = "stop",
        help_heading = "Behaviour"
    )]
    invalid_utf8: InvalidUtf8,
    /// The write concern: majority, a number, or a document
    #[arg(
        long = "writeConcern",
        value_name = "CONCERN",
        default_value = "majority",
        help_heading = "Behaviour"
    )]
    write_concern: String,
    /// Replays the log that was dumped by --oplog: all collections are as at the dump's end then
    #[arg(long = "oplogReplay", help_heading = "Behaviour")]
    oplog_replay: bool,
    /// Replays only what is older than this: SECONDS or SECONDS:INCREMENT
    #[arg(
        long = "oplogLimit",
        value_name = "TIME",
        requires = "oplog_replay",
        help_heading = "Behaviour"
    )]
    oplog_limit: Option<String>,
    /// The log to replay, if it is not the dump's
    #[arg(
        long = "oplogFile",
        value_name = "FILE",
        requires = "oplog_replay",
        help_heading = "Files"
    )]
    oplog_file: Option<PathBuf>,
    #[command(flatten)]
    point: PointArgs,
}

impl RestoreCommand {
    fn replay(&self) -> Result<Option<ReplayOptions>> {
        let until = match &self.oplog_limit {
            None => None,
            Some(text) => {
                let (seconds, increment) = text.split_once(':').unwrap_or((text, "0"));
                match (seconds.parse(), increment.parse()) {
                    (Ok(time), Ok(increment)) => Some(bson::Timestamp { time, increment }),
                    _ => bail!("--oplogLimit {text}: SECONDS or SECONDS:INCREMENT is expected"),
                }
            }
        };
        let file = self.oplog_file.clone();
        Ok(self.oplog_replay.then_some(ReplayOptions { file, until }))
    }

    /// Restores, and says how much. Documents that the server refuses make it fail at the end.
    pub fn run(&self) -> Result<ExitCode> {
        if self.point.is_given() {
            return self.point.run();
        }
        if self.ns_from.len() != self.ns_to.len() {
            bail!("--nsFrom and --nsTo must be given equally often");
        }
        let renames = self
            .ns_from
            .iter()
            .zip(&self.ns_to)
            .map(|(from, to)| Rename::new(from, to))
            .collect::<Result<Vec<_>, _>>()?;
        let (server, filter) = self.selection.server(Purpose::Write)?;
        let interrupt = Interrupt::new();
        interrupt.install()?;
        let progress = self.selection.progress();
        let restored = ::dump::restore(&RestoreOptions {
            server,
            users_and_roles: filter.takes_all() && renames.is_empty(),
            filter,
            renames,
            path: self.selection.path(self.path.as_ref().or(self.dir.as_ref()))?,
            archive: self.selection.archive.is_some(),
            gzip: self.selection.gzip,
            drop: self.drop,
            oplog: self.replay()?,
            no_indexes: self.no_index_restore,
            no_options: self.no_options_restore,
            stop_on_error: self.stop_on_error,
            bypass_validation: self.bypass_document_validation,
            invalid_text: self.invalid_utf8.choice(),
            write_concern: connect::write_concern(&self.write_concern)?,
            parallel: usize::from(self.selection.num_parallel_collections),
            interrupt,
            progress: progress.clone(),
        })?;
        progress.finish_and_clear();
        tell(&restored);
        self.selection.tell(&format!(
            "{} documents of {} collections restored, {} failed",
            restored.documents, restored.collections, restored.failed
        ));
        for told in invalid_utf8::told(restored.skipped, restored.replaced) {
            self.selection.tell(&told);
        }
        if self.oplog_replay {
            self.selection
                .tell(&format!("{} operations of the log replayed", restored.operations));
        }
        if let Some(error) = restored.stopped {
            return Err(anyhow!(error).context(format!("the restoration ended early ({})", invalid_utf8::ADVICE)));
        }
        Ok(if restored.failed == 0 && restored.failures.is_empty() {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        })
    }
}

/// Tells what was refused, left out or replaced.
pub fn tell(restored: &Restored) {
    for told in restored.failures.iter().chain(&restored.replacements) {
        eprintln!("{}", printable_lines(told));
    }
}

/// How documents are printed.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum JsonChoice {
    /// Every type by name
    Canonical,
    /// Numbers and dates as people write them
    Relaxed,
}

impl JsonChoice {
    /// The form of that name.
    pub fn form(self) -> JsonForm {
        match self {
            Self::Canonical => JsonForm::Canonical,
            Self::Relaxed => JsonForm::Relaxed,
        }
    }
}

/// Print the documents of a BSON file as Extended JSON, one a line
#[derive(Args, Debug)]
pub struct BsonCommand {
    /// The file; default: standard input
    file: Option<PathBuf>,
    /// The form of numbers and dates
    #[arg(long = "jsonFormat", value_enum, default_value = "canonical")]
    json_format: JsonChoice,
    /// The file is compressed by gzip
    #[arg(long)]
    gzip: bool,
}

impl BsonCommand {
    /// Prints what can be read before the first fault.
    pub fn run(&self) -> Result<ExitCode> {
        let form = self.json_format.form();
        let subject = self
            .file
            .as_ref()
            .map_or_else(|| "standard input".to_owned(), |file| file.display().to_string());
        let mut input = ::dump::open_file(self.file.as_deref(), self.gzip, &Interrupt::new())?;
        let mut out = BufWriter::new(std::io::stdout().lock());
        let mut line = String::new();
        let mut broken = None;
        let (mut replaced, mut first) = (0_u64, None);
        let read = ::dump::bson_file(&mut *input, &subject, &mut |document| {
            line.clear();
            if let Some(what) = document.what_is_invalid() {
                replaced += 1;
                first.get_or_insert(what);
            }
            // A valid document is all that writing asks for.
            let _ = extjson::write(&document.with_valid_content(), form, &mut line);
            line.push('\n');
            if broken.is_none() {
                broken = out.write_all(line.as_bytes()).err();
            }
            Ok(())
        });
        if let Some(error) = broken {
            return Err(error).context("writing");
        }
        out.flush().context("writing")?;
        if let Some(first) = first {
            let told = format!("{subject}: U+FFFD is put into {replaced} documents, the first time: {first}");
            eprintln!("{}", printable_lines(&told));
        }
        read?;
        Ok(ExitCode::SUCCESS)
    }
}
