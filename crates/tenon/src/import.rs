//! `tenon import`: arguments with the names of mongoimport.

use crate::connect::{self, CollectionArgs, Purpose};
use crate::export::{TypeChoice, fields};
use crate::screen::printable_lines;
use anyhow::{Context as _, Result, bail};
use bench::interrupt::Interrupt;
use bench::pipe::InterruptibleFile;
use clap::{Args, ValueEnum};
use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::PathBuf;
use std::process::ExitCode;
use transfer::{Columns, Decoder, Grace, ImportMode, ImportOptions, Separator, TextForm, TypedNames};

/// A header is no longer than this.
const HEADER_BYTES_MAX: u64 = 16 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ModeChoice {
    /// Inserts each document
    Insert,
    /// Replaces the document with the same key, or inserts
    Upsert,
    /// Puts the fields into the document with the same key, or inserts
    Merge,
    /// Removes the document with the same key
    Delete,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum GraceChoice {
    /// Reads the value as a number or text
    #[value(name = "autoCast")]
    AutoCast,
    /// Leaves the field out
    #[value(name = "skipField")]
    SkipField,
    /// Leaves the document out
    #[value(name = "skipRow")]
    SkipRow,
    /// Ends the import
    #[value(name = "stop")]
    Stop,
}

/// Read documents of JSON, CSV or TSV into a collection
#[derive(Args, Debug)]
pub struct ImportCommand {
    #[command(flatten)]
    target: CollectionArgs,
    /// The collection; default: the name of the file without its ending
    #[arg(long, short, value_name = "NAME", help_heading = "Collection")]
    collection: Option<String>,
    /// Removes the collection first
    #[arg(long, help_heading = "Collection")]
    drop: bool,
    /// The file; default: standard input
    #[arg(value_name = "FILE")]
    path: Option<PathBuf>,
    /// The file, as an option
    #[arg(long, value_name = "FILE", conflicts_with = "path", help_heading = "Format")]
    file: Option<PathBuf>,
    /// The form of the file
    #[arg(long = "type", value_enum, default_value = "json", help_heading = "Format")]
    kind: TypeChoice,
    /// The file is one JSON array
    #[arg(long = "jsonArray", help_heading = "Format")]
    json_array: bool,
    /// The columns, separated by commas
    #[arg(long, short, value_name = "NAMES", help_heading = "Format")]
    fields: Option<String>,
    /// A file with one column a line
    #[arg(
        long = "fieldFile",
        value_name = "FILE",
        conflicts_with = "fields",
        help_heading = "Format"
    )]
    field_file: Option<PathBuf>,
    /// The first line has the columns
    #[arg(long, conflicts_with_all = ["fields", "field_file"], help_heading = "Format")]
    headerline: bool,
    /// Columns are NAME.TYPE(): auto, binary(base64|base32|hex), boolean, date(LAYOUT), date_go, date_ms, date_oracle,
    /// decimal, double, int32, int64, string
    #[arg(long = "columnsHaveTypes", help_heading = "Format")]
    columns_have_types: bool,
    /// What becomes of a value that is not of its column's type
    #[arg(
        long = "parseGrace",
        value_enum,
        default_value = "stop",
        requires = "columns_have_types",
        help_heading = "Format"
    )]
    parse_grace: GraceChoice,
    /// Makes no fields of empty columns
    #[arg(long = "ignoreBlanks", help_heading = "Format")]
    ignore_blanks: bool,
    /// Makes arrays of columns such as a.0 and a.1
    #[arg(long = "useArrayIndexFields", help_heading = "Format")]
    use_array_index_fields: bool,
    /// What is done with each document
    #[arg(long, value_enum, default_value = "insert", help_heading = "Behaviour")]
    mode: ModeChoice,
    /// The key of the modes upsert, merge and delete, separated by commas; default: _id
    #[arg(long = "upsertFields", value_name = "NAMES", help_heading = "Behaviour")]
    upsert_fields: Option<String>,
    /// Ends at the first document that is wrong or refused
    #[arg(long = "stopOnError", help_heading = "Behaviour")]
    stop_on_error: bool,
    /// Sends documents in the order of the file, and ends at the first that is refused
    #[arg(long = "maintainInsertionOrder", help_heading = "Behaviour")]
    maintain_insertion_order: bool,
    /// So many threads and connections
    #[arg(
        long = "numInsertionWorkers",
        short = 'j',
        value_name = "N",
        default_value_t = 1,
        value_parser = clap::value_parser!(u8).range(1..),
        help_heading = "Behaviour"
    )]
    num_insertion_workers: u8,
    /// The write concern: majority, a number, or a document
    #[arg(
        long = "writeConcern",
        value_name = "JSON",
        default_value = "majority",
        help_heading = "Behaviour"
    )]
    write_concern: String,
    /// Asks the server not to validate documents
    #[arg(long = "bypassDocumentValidation", help_heading = "Behaviour")]
    bypass_document_validation: bool,
    /// Prints nothing but errors
    #[arg(long, help_heading = "Behaviour")]
    quiet: bool,
}

impl ImportCommand {
    /// Imports, and says how much. Documents that are wrong or refused make it fail at the end.
    pub fn run(&self) -> Result<ExitCode> {
        self.check()?;
        let path = self.path.as_ref().or(self.file.as_ref());
        let collection = match (&self.collection, path.and_then(|path| path.file_stem())) {
            (Some(name), _) => name.clone(),
            (None, Some(stem)) => stem.to_string_lossy().into_owned(),
            (None, None) => bail!("--collection is needed with standard input"),
        };
        let (server, target) = self.target.namespace(&collection, Purpose::Write)?;
        let interrupt = Interrupt::new();
        interrupt.install()?;
        let progress = connect::progress(self.quiet, connect::BYTES);
        let input = match path {
            Some(path) => {
                let file = File::open(path).with_context(|| format!("opening {}", path.display()))?;
                InterruptibleFile::new(file, &interrupt)
            }
            None => InterruptibleFile::standard(&std::io::stdin(), &interrupt).context("standard input")?,
        };
        progress.set_length(input.file().metadata().map_or(0, |metadata| metadata.len()));
        let mut input = BufReader::with_capacity(1 << 16, input);
        let options = ImportOptions {
            server,
            target,
            form: match self.kind {
                TypeChoice::Json if self.json_array => TextForm::JsonArray,
                TypeChoice::Json => TextForm::Json,
                TypeChoice::Csv => TextForm::Lines(Separator::Comma),
                TypeChoice::Tsv => TextForm::Lines(Separator::Tab),
            },
            decoder: match self.kind {
                TypeChoice::Json => Decoder::Json,
                _ => Decoder::Columns(self.columns(&mut input)?),
            },
            mode: match self.mode {
                ModeChoice::Insert => ImportMode::Insert,
                ModeChoice::Upsert => ImportMode::Upsert,
                ModeChoice::Merge => ImportMode::Merge,
                ModeChoice::Delete => ImportMode::Delete,
            },
            key_fields: fields(Some(self.upsert_fields.as_deref().unwrap_or("_id")), None)?.unwrap_or_default(),
            drop: self.drop,
            stop_on_error: self.stop_on_error || self.maintain_insertion_order,
            workers: usize::from(self.num_insertion_workers),
            write_concern: connect::write_concern(&self.write_concern)?,
            bypass_validation: self.bypass_document_validation,
            interrupt,
            progress: progress.clone(),
            first_line: if self.headerline { 2 } else { 1 },
        };
        let imported = transfer::import(&options, input, &|text| {
            progress.suspend(|| eprintln!("{}", printable_lines(text)));
        });
        progress.finish_and_clear();
        let imported = imported?;
        if !self.quiet {
            let done = match self.mode {
                ModeChoice::Delete => "removed",
                _ => "imported",
            };
            let mut summary = format!("{} documents {done}, {} failed", imported.documents, imported.failed);
            for (count, what) in [(imported.skipped, "skipped"), (imported.missing, "not there")] {
                if count > 0 {
                    summary.push_str(&format!(", {count} {what}"));
                }
            }
            eprintln!("{summary}");
        }
        if let Some(error) = imported.error {
            return Err(error.into());
        }
        Ok(if imported.failed == 0 {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        })
    }

    fn check(&self) -> Result<()> {
        let is_json = self.kind == TypeChoice::Json;
        let for_columns = [
            (self.headerline, "--headerline"),
            (self.fields.is_some(), "--fields"),
            (self.field_file.is_some(), "--fieldFile"),
            (self.columns_have_types, "--columnsHaveTypes"),
            (self.ignore_blanks, "--ignoreBlanks"),
            (self.use_array_index_fields, "--useArrayIndexFields"),
        ];
        if let Some((_, option)) = for_columns.iter().find(|(is_given, _)| *is_given && is_json) {
            bail!("{option} is for --type csv and tsv");
        }
        if self.json_array && !is_json {
            bail!("--jsonArray is for --type json");
        }
        if self.upsert_fields.is_some() && self.mode == ModeChoice::Insert {
            bail!("--upsertFields is for --mode upsert, merge and delete");
        }
        if self.num_insertion_workers > 1 && self.mode != ModeChoice::Insert {
            bail!("more than one worker is for --mode insert: of documents with one key the last must win");
        }
        if self.num_insertion_workers > 1 && self.maintain_insertion_order {
            bail!("--maintainInsertionOrder and more than one worker exclude each other");
        }
        Ok(())
    }

    fn columns(&self, input: &mut BufReader<InterruptibleFile>) -> Result<Columns> {
        let names = if self.headerline {
            let mut line = String::new();
            let mut taken = input.take(HEADER_BYTES_MAX);
            taken.read_line(&mut line).context("reading the header")?;
            if line.len() as u64 == HEADER_BYTES_MAX {
                bail!("the header has more than {HEADER_BYTES_MAX} bytes");
            }
            let line = line.trim_start_matches('\u{feff}').trim_end_matches(['\n', '\r']);
            if line.is_empty() {
                bail!("line 1: there is no header");
            }
            match self.kind {
                TypeChoice::Tsv => line.split('\t').map(str::to_owned).collect(),
                _ => Columns::names(line).map_err(|error| anyhow::anyhow!("line 1: {error}"))?,
            }
        } else {
            fields(self.fields.as_deref(), self.field_file.as_deref())?
                .context("--type csv and tsv need --headerline, --fields or --fieldFile")?
        };
        let typed = if self.columns_have_types {
            TypedNames::Yes
        } else {
            TypedNames::No
        };
        let grace = match self.parse_grace {
            GraceChoice::AutoCast => Grace::AutoCast,
            GraceChoice::SkipField => Grace::SkipField,
            GraceChoice::SkipRow => Grace::SkipRow,
            GraceChoice::Stop => Grace::Stop,
        };
        let columns = || -> Result<Columns, String> {
            let mut columns = Columns::new(&names, typed, grace)?;
            if self.ignore_blanks {
                columns = columns.ignoring_blanks();
            }
            if self.use_array_index_fields {
                columns = columns.with_arrays()?;
            }
            Ok(columns)
        };
        columns().map_err(|error| anyhow::anyhow!("the columns: {error}"))
    }
}
