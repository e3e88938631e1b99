//! What a run tells while it goes on; the caller shows it.

use crate::cell::CellResult;
use crate::matrix::Cell;

/// A part of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Writers at work.
    Write,
    /// Readers at work; of a set, on its secondaries.
    Read,
    /// Readers at work on the primary of a set.
    ReadPrimary,
}

impl Phase {
    /// Name in results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Write => "write",
            Self::Read => "read",
            Self::ReadPrimary => "readPrimary",
        }
    }
}

/// News.
#[derive(Debug)]
pub enum Event<'e> {
    /// A cell begins.
    Cell {
        /// From 1.
        number: usize,
        /// Cells of the run.
        of: usize,
        /// Which.
        cell: &'e Cell,
    },
    /// Something that is about to be done, as one would type it.
    Line(&'e str),
    /// A phase begins.
    Begin {
        /// Which.
        phase: Phase,
        /// Documents it has to do.
        documents: u64,
        /// Bytes of each of them.
        document_bytes: u64,
    },
    /// A phase goes on.
    At {
        /// Documents done so far.
        documents: u64,
    },
    /// A phase is over.
    End,
    /// A cell is over.
    Result(&'e CellResult),
}

/// Takes the news.
pub type Observer<'o> = &'o mut dyn FnMut(Event<'_>);
