//! `tenon log`: what is in the log of a data directory, an entry a line.

use crate::key::KeyArgs;
use crate::live;
use crate::screen::printable;
use anyhow::{Context as _, Result, bail};
use bson::{Bson, DateTime, Document, doc};
use clap::Args;
use engine::Seq;
use oplog::{LogError, SegmentPart};
use server::inspect::{self, Offline};
use std::io::{BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use storage::{TableNames, describe_entry};
use vfs::FileSystem;

/// Of a line of text so much is shown of a document.
const DOCUMENT_CHARACTERS_MAX: usize = 200;

/// Show the entries of a server's log
#[derive(Args, Debug)]
pub struct LogCommand {
    /// The data directory, or its folder journal
    #[arg(value_name = "DBPATH")]
    path: PathBuf,
    /// From this position on
    #[arg(long, value_name = "SEQ", default_value_t = 0)]
    from: u64,
    /// Up to this position, which is shown; default: to the end
    #[arg(long, value_name = "SEQ")]
    to: Option<u64>,
    /// One document an entry, with everything that it holds
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    key: KeyArgs,
}

/// Why showing ended.
#[derive(Debug)]
enum Stop {
    /// Nobody reads it any more, or `--to` is reached.
    Done,
    Failed(anyhow::Error),
}

impl From<LogError> for Stop {
    fn from(error: LogError) -> Self {
        Self::Failed(error.into())
    }
}

impl LogCommand {
    /// Shows entries in the order of the files. Damage is told where it stands, and makes it fail at the end.
    pub fn run(&self) -> Result<ExitCode> {
        let inner = self.path.join("journal");
        let directory = if inner.is_dir() { inner } else { self.path.clone() };
        // The key store lies beside the log.
        let around = match directory.parent() {
            None => Path::new(".."),
            Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
            Some(parent) => parent,
        };
        let fs = inspect::files(around, self.key.source().as_ref())?;
        let files = oplog::segment_files(&*fs, &directory)?;
        if files.is_empty() {
            bail!("there is no log in {}", self.path.display());
        }
        // Entries have numbers of tables; the catalog has their names.
        let offline = match directory.parent().filter(|_| directory != self.path) {
            Some(path) => Offline::open(path, self.key.source().as_ref()).map_err(|error| server::reasons(&error)),
            None => Err("there is no data directory around it".to_owned()),
        };
        if let Err(reason) = &offline {
            let reason = printable(reason);
            eprintln!("collections that the log itself does not define are shown by their tables' numbers: {reason}");
        }
        let names = offline
            .as_ref()
            .map_or_else(|_| TableNames::default(), Offline::table_names);
        let mut showing = Showing {
            command: self,
            fs: &*fs,
            names,
            out: BufWriter::new(std::io::stdout().lock()),
            damages: 0,
        };
        for (index, file) in files.iter().enumerate() {
            // Whatever follows is told by the next one, too.
            let is_before = files
                .get(index + 1)
                .and_then(|next| oplog::segment_info(&*fs, next).ok())
                .is_some_and(|next| next.first.0 <= self.from && !next.truncates);
            if is_before && offline.is_ok() {
                continue;
            }
            match showing.segment(file) {
                Ok(()) => {}
                Err(Stop::Done) => break,
                Err(Stop::Failed(error)) => return Err(error),
            }
        }
        match showing.out.flush() {
            Err(error) if error.kind() != ErrorKind::BrokenPipe => return Err(error).context("writing"),
            _ => {}
        }
        Ok(match showing.damages {
            0 => ExitCode::SUCCESS,
            _ => ExitCode::FAILURE,
        })
    }
}

struct Showing<'a, W> {
    command: &'a LogCommand,
    fs: &'a dyn FileSystem,
    names: TableNames,
    out: W,
    damages: u64,
}

impl<W: Write> Showing<'_, W> {
    fn segment(&mut self, file: &Path) -> Result<(), Stop> {
        let fs = self.fs;
        let info = match oplog::segment_info(fs, file) {
            Ok(info) => info,
            Err(LogError::Corrupt { offset, damage, .. }) => return self.damage(file, offset, &damage.to_string()),
            Err(error) => return Err(error.into()),
        };
        if info.truncates {
            let what = format!(
                "entries from {} on in the files before this one are taken back",
                info.first.0
            );
            let note = doc! { "note": &what, "file": file.display().to_string() };
            self.line(&note, || format!("{}: {what}", file.display()))?;
        }
        oplog::walk_segment(fs, file, &mut |part| match part {
            SegmentPart::Damage { offset, damage } => self.damage(file, offset, &damage.to_string()),
            SegmentPart::Entry {
                seq,
                term,
                frame_offset,
                bytes,
            } => {
                if self.command.to.is_some_and(|to| seq.0 > to) {
                    return Err(Stop::Done);
                }
                self.entry(file, seq, term, frame_offset, bytes)
            }
        })
        .map(drop)
    }

    fn entry(&mut self, file: &Path, seq: Seq, term: u64, offset: u64, bytes: &[u8]) -> Result<(), Stop> {
        // Entries before the first that is shown may name collections.
        let described = describe_entry(seq, bytes, &mut self.names);
        if seq.0 < self.command.from {
            return Ok(());
        }
        let entry = match described {
            Ok(entry) => entry,
            Err(error) => return self.damage(file, offset, &error.to_string()),
        };
        let mut whole = doc! {
            "seq": seq.0 as i64, "term": term as i64, "file": file.display().to_string(), "offset": offset as i64,
        };
        whole.extend(entry);
        self.line(&whole, || text(seq, &whole))
    }

    fn damage(&mut self, file: &Path, offset: u64, what: &str) -> Result<(), Stop> {
        self.damages += 1;
        let document = doc! { "damage": what, "file": file.display().to_string(), "offset": offset as i64 };
        self.line(&document, || format!("{}: at offset {offset}: {what}", file.display()))
    }

    fn line(&mut self, document: &Document, text: impl FnOnce() -> String) -> Result<(), Stop> {
        let line = if self.command.json {
            live::json(document)
        } else {
            printable(&text()).into_owned()
        };
        match writeln!(self.out, "{line}") {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == ErrorKind::BrokenPipe => Err(Stop::Done),
            Err(error) => Err(Stop::Failed(anyhow::Error::new(error).context("writing"))),
        }
    }
}

/// Position, time, and what was done to which collection; several of one kind are counted.
fn text(seq: Seq, entry: &Document) -> String {
    let time = entry.get_datetime("time").ok().and_then(whole_time);
    let mut line = format!("{:>8} {:>24}", seq.0, time.as_deref().unwrap_or("-"));
    let operations: Vec<&Document> = entry
        .get_array("operations")
        .map(|operations| operations.iter().filter_map(Bson::as_document).collect())
        .unwrap_or_default();
    let same = |a: &&Document, b: &&Document| ["op", "ns"].iter().all(|name| a.get(name) == b.get(name));
    for (index, run) in operations.chunk_by(same).enumerate() {
        line.push_str(if index == 0 { "  " } else { "; " });
        line.push_str(run[0].get_str("op").unwrap_or_default());
        if let Ok(namespace) = run[0].get_str("ns") {
            line.push(' ');
            line.push_str(namespace);
        }
        match run {
            [one] => line.push_str(&key(one)),
            more => line.push_str(&format!(" x{}", more.len())),
        }
    }
    if entry.get_bool("partial").is_ok() {
        line.push_str("; goes on in the next entry");
    }
    line
}

/// With three digits of a second, whatever they are: times stand below each other.
fn whole_time(time: &DateTime) -> Option<String> {
    let text = time.try_to_rfc3339_string().ok()?;
    let (second, fraction) = text
        .trim_end_matches('Z')
        .split_once('.')
        .unwrap_or((text.trim_end_matches('Z'), ""));
    Some(format!("{second}.{fraction:0<3}Z"))
}

/// Which document, and how it changes; of a command what it does to what.
fn key(operation: &Document) -> String {
    let what = operation
        .get_document("command")
        .and_then(|command| command.get_document("o"));
    if let Some((name, value)) = what.ok().and_then(|what| what.iter().next()) {
        return cut(&doc! { name: value.clone() });
    }
    let id = ["key", "document"]
        .iter()
        .find_map(|name| operation.get_document(name).ok()?.get("_id"));
    let mut shown = Document::new();
    if let Some(id) = id {
        shown.insert("_id", id.clone());
    }
    if let Ok(difference) = operation.get_document("difference") {
        shown.insert("difference", difference.clone());
    }
    match shown.is_empty() {
        true => String::new(),
        false => cut(&shown),
    }
}

fn cut(shown: &Document) -> String {
    let text = live::json(shown);
    match text.char_indices().nth(DOCUMENT_CHARACTERS_MAX) {
        Some((end, _)) => format!(" {}…", &text[..end]),
        None => format!(" {text}"),
    }
}
