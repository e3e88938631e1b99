//! What is damaged, and where.

use crate::layout::Location;

/// What it means for the documents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Something is not as it should be, and nothing is lost by it.
    Note,
    /// Documents or definitions are lost, or may be.
    Damage,
}

/// What is wrong at one place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// The server was killed and kept no journal.
    #[error("the server was not shut down, and there is no journal: what it wrote last may be half there")]
    Unclean,
    /// Bytes that the operating system does not give.
    #[error("cannot be read: {error}")]
    Unreadable {
        /// Its words.
        error: String,
    },
    /// A file of the journal that is none, or of another format.
    #[error("no journal file of a known format, it is not replayed: {why}")]
    JournalHeader {
        /// What is wrong.
        why: String,
    },
    /// A section of the journal that is damaged in the middle of the journal.
    #[error("the journal is damaged here, what follows is not replayed: {why}")]
    JournalSection {
        /// What is wrong.
        why: String,
    },
    /// An entry of the journal for a file that is not there, or past its end.
    #[error("the journal changes {file} at {place}, which is not there")]
    JournalWrite {
        /// The file that it is about.
        file: String,
        /// The place in it.
        place: u64,
    },
    /// The catalog of a database.
    #[error("the catalog is missing: collections are searched for in the data files")]
    CatalogMissing,
    /// Its length.
    #[error("the catalog is cut off: {bytes} bytes are no multiple of 1 MiB")]
    CatalogCut {
        /// So many are there.
        bytes: u64,
    },
    /// An entry of the catalog.
    #[error("a damaged entry of the catalog: {why}")]
    CatalogEntry {
        /// What is wrong.
        why: &'static str,
    },
    /// A data file that others lead to.
    #[error("data file {number} is missing")]
    FileMissing {
        /// Its number.
        number: i32,
    },
    /// A data file's header.
    #[error("the header of the data file is damaged: {why}")]
    FileHeader {
        /// What is wrong.
        why: String,
    },
    /// A data file that ends early.
    #[error("the data file is cut off: {found} of {expected} bytes are there")]
    FileCut {
        /// As its header says.
        expected: u64,
        /// As it is.
        found: u64,
    },
    /// A link to an extent.
    #[error("the extent at {location} cannot be used: {why}")]
    ExtentLink {
        /// Where it leads.
        location: Location,
        /// What is wrong there.
        why: &'static str,
    },
    /// An extent that two collections have.
    #[error("the extent at {location} belongs to {owner}, too")]
    ExtentShared {
        /// Where it is.
        location: Location,
        /// Who has it.
        owner: String,
    },
    /// Something in an extent's header that something else confirms.
    #[error("damaged header of an extent: {why}; its records are read all the same")]
    ExtentHeader {
        /// What is wrong.
        why: &'static str,
    },
    /// An extent whose header is gone.
    #[error("the header of the extent is gone: its records are searched for")]
    ExtentHeadless,
    /// An extent over the end of its file.
    #[error("the extent ends {missing} bytes behind the end of the file")]
    ExtentCut {
        /// So many.
        missing: u64,
    },
    /// An extent that no link leads to.
    #[error("an extent that no link leads to any more, found by its header")]
    ExtentFound,
    /// The chain of an extent's records.
    #[error("the chain of records breaks: {why}")]
    RecordLink {
        /// What is wrong.
        why: &'static str,
    },
    /// Something in a record's header that something else confirms.
    #[error("damaged header of a record: {why}; its document is read all the same")]
    RecordHeader {
        /// What is wrong.
        why: &'static str,
    },
    /// Records that no link leads to.
    #[error("{records} records found in the extent that no link leads to any more")]
    RecordsFound {
        /// So many.
        records: u64,
    },
    /// A document's length.
    #[error("a document of {bytes} bytes in a record with room for {room}")]
    DocumentLength {
        /// As it says.
        bytes: i32,
        /// At most.
        room: u32,
    },
    /// A document.
    #[error("a damaged document: {0}")]
    Document(#[from] wire::BsonError),
    /// Text of a document that is not UTF-8.
    #[error("U+FFFD stands for what cannot be stored in {what}")]
    TextReplaced {
        /// Where.
        what: String,
    },
    /// The same, and the document is not given out: so it was chosen, or it would be too large.
    #[error("left out for what cannot be stored in {what}")]
    TextLeftOut {
        /// Where.
        what: String,
    },
    /// A collection's options, indexes or views.
    #[error("a definition that cannot be read: {why}")]
    Definition {
        /// What is wrong.
        why: String,
    },
    /// Where a capped collection begins.
    #[error("where the capped collection begins is damaged: its documents may be in another order")]
    CappedOrder,
    /// A collection's name.
    #[error("no collection of this name was in the catalog: its extents had it")]
    CollectionFound,
    /// How many documents there are.
    #[error("the catalog counts {expected} documents, {found} were found")]
    Count {
        /// As the catalog says.
        expected: i64,
        /// Given out and damaged ones.
        found: u64,
    },
}

impl Fault {
    /// What it means.
    pub fn severity(&self) -> Severity {
        match self {
            Self::Unclean
            | Self::ExtentHeader { .. }
            | Self::RecordHeader { .. }
            | Self::RecordsFound { .. }
            | Self::ExtentFound
            | Self::CappedOrder => Severity::Note,
            _ => Severity::Damage,
        }
    }
}

/// A fault and its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The file, by its path in the directory.
    pub file: String,
    /// The place in it.
    pub offset: Option<u64>,
    /// The collection, when it is known.
    pub namespace: Option<String>,
    /// What is wrong.
    pub fault: Fault,
}

impl std::fmt::Display for Finding {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(&self.file)?;
        if let Some(offset) = self.offset {
            write!(formatter, " at {offset}")?;
        }
        if let Some(namespace) = &self.namespace {
            write!(formatter, " ({namespace})")?;
        }
        write!(formatter, ": {}", self.fault)
    }
}

/// Findings in the order in which they were made.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    list: Vec<Finding>,
    /// How many of the list are about text.
    texts: usize,
    more: u64,
    damages: u64,
}

/// A file of nothing but faults must not fill the memory. Text of an old program must not hide other faults: so many of
/// it are listed, and so many others.
const LISTED_MAX: usize = 1000;

impl Findings {
    pub(crate) fn add(&mut self, finding: Finding) {
        self.damages += u64::from(finding.fault.severity() == Severity::Damage);
        let is_text = matches!(finding.fault, Fault::TextReplaced { .. } | Fault::TextLeftOut { .. });
        let listed = match is_text {
            true => self.texts,
            false => self.list.len() - self.texts,
        };
        if listed < LISTED_MAX {
            self.texts += usize::from(is_text);
            self.list.push(finding);
        } else {
            self.more += 1;
        }
    }

    /// Those that are listed.
    pub fn list(&self) -> &[Finding] {
        &self.list
    }

    /// How many are not listed.
    pub fn more(&self) -> u64 {
        self.more
    }

    /// How many are worse than notes, listed or not.
    pub fn damages(&self) -> u64 {
        self.damages
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_does_not_hide_other_faults() {
        let mut findings = Findings::default();
        let mut add = |fault| {
            findings.add(Finding {
                file: "shop.0".to_owned(),
                offset: None,
                namespace: None,
                fault,
            });
        };
        for _ in 0..LISTED_MAX + 5 {
            add(Fault::TextReplaced { what: "a".to_owned() });
        }
        add(Fault::CappedOrder);
        assert_eq!(findings.list().len(), LISTED_MAX + 1);
        assert_eq!(
            findings.list().last().map(|finding| &finding.fault),
            Some(&Fault::CappedOrder)
        );
        assert_eq!((findings.more(), findings.damages()), (5, LISTED_MAX as u64 + 5));
    }
}
