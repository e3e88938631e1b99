//! A collection as text, in the order in which the server gives its documents.

use crate::error::{Doing, Result, TransferError};
use crate::separated::{Separator, write_line};
use bench::interrupt::Interrupt;
use bson::raw::{RawArray, RawBsonRef, RawDocument, RawDocumentBuf};
use bson::{Document, doc};
use dump::{Client, Namespace, Output, Server};
use extjson::JsonForm;
use indicatif::ProgressBar;
use std::io::Write as _;
use std::path::PathBuf;

/// How documents are written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExportFormat {
    /// Extended JSON.
    Json {
        /// How numbers and dates are written.
        form: JsonForm,
        /// One array of all documents, and not a line for each.
        is_array: bool,
        /// A line for each field.
        is_pretty: bool,
    },
    /// A line for each document.
    Lines {
        /// What stands between two columns.
        separator: Separator,
        /// The columns: names, with dots for fields in documents and items of arrays.
        columns: Vec<String>,
        /// Names come first.
        has_header: bool,
    },
}

/// What to export, from where to where.
#[derive(Clone, Debug)]
pub struct ExportOptions {
    /// The server.
    pub server: Server,
    /// The collection.
    pub source: Namespace,
    /// An error when there is no such collection.
    pub must_exist: bool,
    /// Which documents.
    pub query: Option<RawDocumentBuf>,
    /// Which fields, as the server's projection.
    pub projection: Option<Document>,
    /// In which order.
    pub sort: Option<RawDocumentBuf>,
    /// The first so many are left out.
    pub skip: Option<i64>,
    /// No more than so many; 0 is no limit.
    pub limit: Option<i64>,
    /// Reads the collection and no index.
    pub forced_scan: bool,
    /// How.
    pub format: ExportFormat,
    /// A file, or standard output.
    pub path: Option<PathBuf>,
    /// Ends it early, with an error.
    pub interrupt: Interrupt,
    /// Counts documents.
    pub progress: ProgressBar,
}

/// What was exported.
#[derive(Debug, Default)]
pub struct Exported {
    /// Documents.
    pub documents: u64,
    /// Those with text that is not UTF-8, for which U+FFFD stands.
    pub replaced: u64,
    /// The first of them.
    pub first_replaced: Option<String>,
}

/// Exports. After an error the file has the documents before it.
pub fn export(options: &ExportOptions) -> Result<Exported> {
    let mut client = Client::open(&options.server, &options.interrupt)?;
    let Namespace { database, collection } = &options.source;
    if options.must_exist {
        let names = client.collections(database)?;
        if !names
            .iter()
            .any(|entry| entry.get_str("name").ok() == Some(collection.as_str()))
        {
            return Err(TransferError::Choice(format!(
                "there is no collection {}",
                options.source
            )));
        }
    }
    if options.query.is_none() {
        let counted = client.run(database, &doc! { "count": collection })?;
        let counted = counted.get_i32("n").map(i64::from).or_else(|_| counted.get_i64("n"));
        let left = counted.unwrap_or(0).saturating_sub(options.skip.unwrap_or(0)).max(0);
        let length = options
            .limit
            .filter(|&limit| limit > 0)
            .map_or(left, |limit| left.min(limit));
        options.progress.set_length(u64::try_from(length).unwrap_or(0));
    }
    let output = Output::create(options.path.as_deref(), false, &options.interrupt)?;
    let mut writing = Writing {
        options,
        output,
        text: String::new(),
        compact: String::new(),
        exported: Exported::default(),
    };
    writing.begin()?;
    // An error of the text itself, which the client's errors have no place for.
    let mut fault = None;
    let read = client.cursor(database, &options.command()?, &mut |document| {
        match writing.found(document) {
            Ok(()) => Ok(()),
            Err(error) => {
                fault = Some(error);
                // Any error ends the reading; this one is not shown.
                Err(bench::Error::Interrupted.into())
            }
        }
    });
    let ended = fault.map_or_else(|| read.map_err(TransferError::from), Err);
    let exported = std::mem::take(&mut writing.exported);
    // What was written stays there in any case.
    let finished = writing.finish(ended.is_ok());
    ended.and(finished).map(|()| exported)
}

impl ExportOptions {
    fn command(&self) -> Result<RawDocumentBuf> {
        let mut command = RawDocumentBuf::new();
        command.append(bson::cstr!("find"), self.source.collection.as_str());
        if let Some(query) = &self.query {
            command.append(bson::cstr!("filter"), query.clone());
        }
        if let Some(projection) = &self.projection {
            let projection =
                RawDocumentBuf::try_from(projection).map_err(|error| TransferError::Choice(error.to_string()))?;
            command.append(bson::cstr!("projection"), projection);
        }
        if let Some(sort) = &self.sort {
            command.append(bson::cstr!("sort"), sort.clone());
        }
        if let Some(skip) = self.skip {
            command.append(bson::cstr!("skip"), skip);
        }
        if let Some(limit) = self.limit {
            command.append(bson::cstr!("limit"), limit);
        }
        if self.forced_scan {
            let mut hint = RawDocumentBuf::new();
            hint.append(bson::cstr!("$natural"), 1);
            command.append(bson::cstr!("hint"), hint);
        }
        command.append(bson::cstr!("noCursorTimeout"), true);
        Ok(command)
    }
}

struct Writing<'a> {
    options: &'a ExportOptions,
    output: Output,
    text: String,
    compact: String,
    exported: Exported,
}

impl Writing<'_> {
    fn begin(&mut self) -> Result<()> {
        match &self.options.format {
            ExportFormat::Json { is_array: true, .. } => self.text.push('['),
            ExportFormat::Lines {
                separator,
                columns,
                has_header: true,
            } => write_line(columns, *separator, &mut self.text)
                .map_err(|index| TransferError::Choice(format!("{:?} has no place in a line", columns[index])))?,
            _ => {}
        }
        self.flush()
    }

    fn found(&mut self, document: &RawDocument) -> Result<()> {
        let Ok(Some(error)) = wire::validate_structure(document.as_bytes()) else {
            return self.document(document);
        };
        let valid = wire::with_valid_content(document.as_bytes());
        let Some(valid) = valid.and_then(|valid| RawDocumentBuf::from_bytes(valid).ok()) else {
            return self.document(document);
        };
        self.exported.replaced += 1;
        let describe = || wire::describe_invalid(document.as_bytes(), &error);
        self.exported.first_replaced.get_or_insert_with(describe);
        self.document(&valid)
    }

    fn document(&mut self, document: &RawDocument) -> Result<()> {
        let number = self.exported.documents + 1;
        let form_fault = |fault: String| TransferError::Form { number, fault };
        match &self.options.format {
            ExportFormat::Json {
                form,
                is_array,
                is_pretty,
            } => {
                if *is_array && number > 1 {
                    self.text.push_str(",\n");
                }
                if *is_pretty {
                    self.compact.clear();
                    extjson::write(document.as_bytes(), *form, &mut self.compact)
                        .map_err(|error| form_fault(error.to_string()))?;
                    extjson::indent(&self.compact, &mut self.text);
                } else {
                    extjson::write(document.as_bytes(), *form, &mut self.text)
                        .map_err(|error| form_fault(error.to_string()))?;
                }
                if !*is_array {
                    self.text.push('\n');
                }
            }
            ExportFormat::Lines { separator, columns, .. } => {
                let values = columns
                    .iter()
                    .map(|column| column_text(document, column))
                    .collect::<std::result::Result<Vec<_>, _>>()
                    .map_err(form_fault)?;
                write_line(&values, *separator, &mut self.text).map_err(|index| {
                    form_fault(format!("the value of {} has no place in a line of TSV", columns[index]))
                })?;
            }
        }
        self.flush()?;
        self.exported.documents = number;
        self.options.progress.inc(1);
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        let written = self.output.write_all(self.text.as_bytes());
        self.text.clear();
        written.doing(|| self.options.writing())
    }

    fn finish(mut self, is_whole: bool) -> Result<()> {
        if is_whole && matches!(self.options.format, ExportFormat::Json { is_array: true, .. }) {
            self.text.push_str("]\n");
            self.flush()?;
        }
        self.output.finish().doing(|| self.options.writing())
    }
}

impl ExportOptions {
    fn writing(&self) -> String {
        match &self.path {
            Some(path) => format!("writing {}", path.display()),
            None => "writing to standard output".to_owned(),
        }
    }
}

/// What stands in a column; nothing for what is not there.
fn column_text(document: &RawDocument, path: &str) -> std::result::Result<String, String> {
    let invalid = |error: bson::error::Error| error.to_string();
    let mut value = RawBsonRef::Document(document);
    let mut rest = Some(path);
    while let Some(path) = rest {
        let (part, after) = path
            .split_once('.')
            .map_or((path, None), |(part, after)| (part, Some(after)));
        let found = match value {
            RawBsonRef::Document(document) => document.get(part).map_err(invalid)?,
            RawBsonRef::Array(array) => item(array, part)?,
            _ => None,
        };
        let Some(found) = found else { return Ok(String::new()) };
        value = found;
        rest = after;
    }
    text(value)
}

fn item<'a>(array: &'a RawArray, index: &str) -> std::result::Result<Option<RawBsonRef<'a>>, String> {
    match index.parse() {
        Ok(index) => array.get(index).map_err(|error| error.to_string()),
        Err(_) => Ok(None),
    }
}

/// Plain text where a type has one that says what it is, and else Extended JSON.
fn text(value: RawBsonRef<'_>) -> std::result::Result<String, String> {
    Ok(match value {
        RawBsonRef::String(text) => text.to_owned(),
        RawBsonRef::Null | RawBsonRef::Undefined => String::new(),
        RawBsonRef::Boolean(value) => value.to_string(),
        RawBsonRef::Int32(value) => value.to_string(),
        RawBsonRef::Int64(value) => value.to_string(),
        // With a point, so that it is read as a double.
        RawBsonRef::Double(value) => format!("{value:?}"),
        RawBsonRef::Decimal128(value) => value.to_string(),
        RawBsonRef::ObjectId(id) => format!("ObjectId({id})"),
        RawBsonRef::DateTime(date) => match date.try_to_rfc3339_string() {
            Ok(text) => text,
            Err(_) => json(value)?,
        },
        _ => json(value)?,
    })
}

fn json(value: RawBsonRef<'_>) -> std::result::Result<String, String> {
    let mut document = RawDocumentBuf::new();
    document.append(bson::cstr!(""), value);
    let mut text = String::new();
    extjson::write(document.as_bytes(), JsonForm::Relaxed, &mut text).map_err(|error| error.to_string())?;
    let inner = text.strip_prefix("{\"\":").and_then(|text| text.strip_suffix('}'));
    Ok(inner.unwrap_or(&text).to_owned())
}
