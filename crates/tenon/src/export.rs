//! `tenon export`: arguments with the names of mongoexport.

use crate::connect::{self, CollectionArgs, Purpose};
use crate::dump::JsonChoice;
use crate::screen::printable_lines;
use anyhow::{Context as _, Result, bail};
use bench::interrupt::Interrupt;
use bson::{Document, RawDocumentBuf};
use clap::{Args, ValueEnum};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use transfer::{Columns, ExportFormat, ExportOptions, Separator};

/// How documents stand in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TypeChoice {
    /// Extended JSON
    Json,
    /// Values between commas, in quotes where they need it
    Csv,
    /// Values between tabs
    Tsv,
}

/// Write the documents of a collection as JSON, CSV or TSV
#[derive(Args, Debug)]
pub struct ExportCommand {
    #[command(flatten)]
    source: CollectionArgs,
    /// The collection
    #[arg(long, short, value_name = "NAME", help_heading = "Collection")]
    collection: String,
    /// Only documents that this filter finds, in Extended JSON
    #[arg(long, short, value_name = "JSON", help_heading = "Documents")]
    query: Option<String>,
    /// The filter, in a file
    #[arg(
        long = "queryFile",
        value_name = "FILE",
        conflicts_with = "query",
        help_heading = "Documents"
    )]
    query_file: Option<PathBuf>,
    /// In this order, such as '{"year": -1}'; else as the server gives them
    #[arg(long, value_name = "JSON", help_heading = "Documents")]
    sort: Option<String>,
    /// Leaves the first N documents out
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i64).range(0..), help_heading = "Documents")]
    skip: Option<i64>,
    /// No more than N documents; 0 is no limit
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i64).range(0..), help_heading = "Documents")]
    limit: Option<i64>,
    /// Reads the collection and no index
    #[arg(long = "forceTableScan", conflicts_with = "sort", help_heading = "Documents")]
    force_table_scan: bool,
    /// Fails when there is no such collection
    #[arg(long = "assertExists", help_heading = "Documents")]
    assert_exists: bool,
    /// The fields, separated by commas; needed for csv and tsv
    #[arg(long, short, value_name = "NAMES", help_heading = "Format")]
    fields: Option<String>,
    /// A file with one field a line
    #[arg(
        long = "fieldFile",
        value_name = "FILE",
        conflicts_with = "fields",
        help_heading = "Format"
    )]
    field_file: Option<PathBuf>,
    /// The form of the file
    #[arg(long = "type", value_enum, default_value = "json", help_heading = "Format")]
    kind: TypeChoice,
    /// The form of numbers and dates in JSON
    #[arg(long = "jsonFormat", value_enum, default_value = "relaxed", help_heading = "Format")]
    json_format: JsonChoice,
    /// One JSON array instead of a line for each document
    #[arg(long = "jsonArray", help_heading = "Format")]
    json_array: bool,
    /// JSON with a line for each field
    #[arg(long, help_heading = "Format")]
    pretty: bool,
    /// CSV and TSV without a first line of names
    #[arg(long = "noHeaderLine", help_heading = "Format")]
    no_header_line: bool,
    /// The file; default: standard output
    #[arg(long, short, value_name = "FILE", help_heading = "Behaviour")]
    out: Option<PathBuf>,
    /// Prints nothing but errors
    #[arg(long, help_heading = "Behaviour")]
    quiet: bool,
}

impl ExportCommand {
    /// Exports, and says how much.
    pub fn run(&self) -> Result<ExitCode> {
        let (server, source) = self.source.namespace(&self.collection, Purpose::Read)?;
        let query = match (&self.query, &self.query_file) {
            (Some(text), _) => Some(extjson::parse(text).context("--query")?),
            (None, Some(path)) => Some(extjson::parse(&read(path)?).with_context(|| path.display().to_string())?),
            (None, None) => None,
        };
        let sort: Option<RawDocumentBuf> = match &self.sort {
            Some(text) => Some(extjson::parse(text).context("--sort")?),
            None => None,
        };
        let fields = fields(self.fields.as_deref(), self.field_file.as_deref())?;
        let projection = fields.as_ref().filter(|_| self.kind == TypeChoice::Json).map(|names| {
            names
                .iter()
                .map(|name| (name.clone(), bson::Bson::Int32(1)))
                .collect::<Document>()
        });
        let interrupt = Interrupt::new();
        interrupt.install()?;
        let progress = connect::progress(self.quiet, connect::DOCUMENTS);
        let exported = transfer::export(&ExportOptions {
            server,
            source,
            must_exist: self.assert_exists,
            query,
            projection,
            sort,
            skip: self.skip,
            limit: self.limit,
            forced_scan: self.force_table_scan,
            format: self.format(fields)?,
            path: self.out.clone(),
            interrupt,
            progress: progress.clone(),
        });
        progress.finish_and_clear();
        let exported = exported?;
        if let Some(first) = exported.first_replaced {
            let replaced = exported.replaced;
            let told = format!("U+FFFD is put into {replaced} documents, the first time: {first}");
            eprintln!("{}", printable_lines(&told));
        }
        if !self.quiet {
            eprintln!("{} documents exported", exported.documents);
        }
        Ok(ExitCode::SUCCESS)
    }

    fn format(&self, fields: Option<Vec<String>>) -> Result<ExportFormat> {
        let separator = match self.kind {
            TypeChoice::Json if self.no_header_line => bail!("--noHeaderLine is for --type csv and tsv"),
            TypeChoice::Json => {
                return Ok(ExportFormat::Json {
                    form: self.json_format.form(),
                    is_array: self.json_array,
                    is_pretty: self.pretty,
                });
            }
            TypeChoice::Csv => Separator::Comma,
            TypeChoice::Tsv => Separator::Tab,
        };
        if self.json_array || self.pretty {
            bail!("--jsonArray and --pretty are for --type json");
        }
        Ok(ExportFormat::Lines {
            separator,
            columns: fields.context("--type csv and tsv need --fields or --fieldFile")?,
            has_header: !self.no_header_line,
        })
    }
}

fn read(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))
}

/// The names of `--fields` or `--fieldFile`.
pub fn fields(text: Option<&str>, file: Option<&Path>) -> Result<Option<Vec<String>>> {
    let names = match (text, file) {
        (Some(text), _) => Columns::names(text).map_err(|error| anyhow::anyhow!("--fields: {error}"))?,
        (None, Some(path)) => read(path)?
            .lines()
            .map(str::trim)
            .filter(|line| !line.is_empty())
            .map(str::to_owned)
            .collect(),
        (None, None) => return Ok(None),
    };
    if names.is_empty() || names.iter().any(String::is_empty) {
        bail!("an empty name of a field");
    }
    Ok(Some(names))
}
