//! The rows of several sorted runs in order: a tree of losers (Knuth, TAOCP 3, 5.4.1).
//!
//! Leaf `i` of `n` is run `i`, at the tree's place `n + i`; the match of places `2k` and `2k + 1` is at `k`. Each match
//! keeps its loser, so that only the matches above the run that gave the last row are played again: one comparison for
//! each level. A run that has ended loses against all; of equal keys the earlier run wins.

use crate::error::QueryError;
use crate::evaluation::{EvaluationContext, StageMemory};
use spill::{Run, RunReader};
use wire::ErrorCode;

/// Of the key's length in front of a row.
const KEY_HEADER_BYTES: usize = 4;

struct Source {
    reader: RunReader,
    /// Where the key of the open row ends; `None` behind the last row.
    key_end: Option<usize>,
}

impl Source {
    fn advance(&mut self) -> Result<(), QueryError> {
        self.key_end = match self.reader.advance()? {
            true => Some(key_end(self.reader.row())?),
            false => None,
        };
        Ok(())
    }

    fn key(&self) -> Option<&[u8]> {
        self.key_end.map(|end| &self.reader.row()[KEY_HEADER_BYTES..end])
    }
}

fn key_end(row: &[u8]) -> Result<usize, QueryError> {
    let end = row
        .first_chunk::<KEY_HEADER_BYTES>()
        .and_then(|length| KEY_HEADER_BYTES.checked_add(u32::from_le_bytes(*length) as usize))
        .filter(|end| *end <= row.len());
    end.ok_or_else(|| QueryError::new(ErrorCode(31182), "a row of a temporary file is shorter than its key"))
}

/// A row of [`Merge`].
pub(super) struct MergedRow<'m> {
    /// As it is written.
    pub(super) whole: &'m [u8],
    pub(super) key: &'m [u8],
    pub(super) payload: &'m [u8],
}

/// See the module.
pub(super) struct Merge {
    sources: Vec<Source>,
    /// Losers by place; place 0 is not used.
    losers: Vec<usize>,
    winner: usize,
    /// The winner's row is the first one or one that has been given.
    has_begun: bool,
    _memory: StageMemory,
}

impl Merge {
    /// Begins to read the runs, whose order is that of their rows where keys are equal.
    pub(super) fn new(runs: Vec<Run>, evaluation: &EvaluationContext<'_>) -> Result<Self, QueryError> {
        let mut memory = StageMemory::default();
        memory.grow(evaluation, runs.iter().map(Run::read_bytes).sum())?;
        let mut sources = Vec::with_capacity(runs.len());
        for run in runs {
            let mut source = Source {
                reader: run.read(),
                key_end: None,
            };
            source.advance()?;
            sources.push(source);
        }
        let n = sources.len();
        let mut merge = Self {
            sources,
            losers: vec![0; n],
            winner: 0,
            has_begun: false,
            _memory: memory,
        };
        let mut winners: Vec<usize> = (0..n).chain(0..n).collect();
        for place in (1..n).rev() {
            let (left, right) = (winners[2 * place], winners[2 * place + 1]);
            (winners[place], merge.losers[place]) = match merge.is_before(right, left) {
                true => (right, left),
                false => (left, right),
            };
        }
        merge.winner = winners.get(1).copied().unwrap_or(0);
        Ok(merge)
    }

    fn is_before(&self, one: usize, other: usize) -> bool {
        match (self.sources[one].key(), self.sources[other].key()) {
            (Some(key), Some(than)) => (key, one) < (than, other),
            (key, None) => key.is_some(),
            (None, Some(_)) => false,
        }
    }

    /// Goes on to the next row; false behind the last one.
    pub(super) fn advance(&mut self) -> Result<bool, QueryError> {
        if self.has_begun && !self.sources.is_empty() {
            self.sources[self.winner].advance()?;
            let mut place = (self.sources.len() + self.winner) / 2;
            while place > 0 {
                if self.is_before(self.losers[place], self.winner) {
                    std::mem::swap(&mut self.losers[place], &mut self.winner);
                }
                place /= 2;
            }
        }
        self.has_begun = true;
        Ok(self.row().is_some())
    }

    /// The row that [`Merge::advance`] has gone to.
    pub(super) fn row(&self) -> Option<MergedRow<'_>> {
        let source = self.sources.get(self.winner)?;
        let (key_end, whole) = (source.key_end?, source.reader.row());
        Some(MergedRow {
            whole,
            key: &whole[KEY_HEADER_BYTES..key_end],
            payload: &whole[key_end..],
        })
    }
}
