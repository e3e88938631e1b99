//! What a salvage kept and what it lost.

use engine::{Seq, TableId, TableKind};
use std::fmt;
use std::path::PathBuf;

/// A range of keys whose page could not be read: from `low`, inclusive, to `high`, exclusive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostRange {
    /// The first key that may have lain there.
    pub low: Vec<u8>,
    /// The first key after it; `None` at the end of the table.
    pub high: Option<Vec<u8>>,
    /// Level of the page: 0 for a leaf.
    pub level: u8,
    /// Leaves found elsewhere in the files that held rows of the range. Below an inner page they are, as a rule, the
    /// very leaves that the page listed; in the place of a leaf they are of another time.
    pub leaves_found: u64,
    /// The oldest checkpoint that one of them was written for.
    pub oldest_checkpoint: Option<u64>,
}

/// What became of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableSalvage {
    /// Its id, as before.
    pub id: TableId,
    /// The name in its specification.
    pub name: String,
    /// Records, an index, or a small table.
    pub kind: TableKind,
    /// Rows kept.
    pub rows: u64,
    /// Rows given up because a part of their large value was gone.
    pub values_lost: u64,
    /// Where pages could not be read, by rising keys.
    pub ranges: Vec<LostRange>,
}

impl TableSalvage {
    /// True when rows are missing or may be of another time.
    pub fn is_damaged(&self) -> bool {
        self.values_lost > 0 || !self.ranges.is_empty()
    }

    /// Leaves that could not be read and for which nothing was found.
    pub fn leaves_lost(&self) -> u64 {
        let lost = self
            .ranges
            .iter()
            .filter(|range| range.level == 0 && range.leaves_found == 0);
        lost.count() as u64
    }
}

/// See [`crate::BtreeEngine::salvage`]. It prints as lines of text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SalvageReport {
    /// The checkpoint whose trees were followed; `None` when no superblock was whole.
    pub checkpoint: Option<u64>,
    /// The durable mark of the result.
    pub durable: Seq,
    /// False when no superblock was whole: the mark is only the least it can be.
    pub mark_is_known: bool,
    /// The tables that are known, by id.
    pub tables: Vec<TableSalvage>,
    /// Where the table of tables could not be read. Tables may be missing, or may have been dropped.
    pub directory_ranges: Vec<LostRange>,
    /// Rows of the table of tables that mean nothing.
    pub bad_directory_rows: u64,
    /// Blocks of saved deltas that could not be read: rows of any table may be as they were at an earlier checkpoint.
    pub saved_blocks_lost: u64,
    /// Ids without a table of which leaves were found, and how many: dropped tables, or tables whose row is lost. Only
    /// looked for when pages could not be read.
    pub ownerless: Vec<(TableId, u64)>,
    /// Where the old files lie now.
    pub kept: PathBuf,
}

impl SalvageReport {
    /// True when the table of tables itself could not be read wholly.
    pub fn directory_is_damaged(&self) -> bool {
        !self.directory_ranges.is_empty() || self.bad_directory_rows > 0
    }

    /// True when something is missing or may be of another time.
    pub fn is_damaged(&self) -> bool {
        self.directory_is_damaged()
            || !self.mark_is_known
            || self.saved_blocks_lost > 0
            || self.tables.iter().any(TableSalvage::is_damaged)
    }
}

impl fmt::Display for LostRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "from {}", Hex(&self.low))?;
        match &self.high {
            Some(high) => write!(f, " up to {}", Hex(high))?,
            None => f.write_str(" to the end")?,
        }
        let page = if self.level == 0 { "leaf" } else { "inner page" };
        match (self.leaves_found, self.oldest_checkpoint) {
            (0, _) | (_, None) => write!(f, ": {page} lost, nothing found"),
            (found, Some(oldest)) => write!(
                f,
                ": {page} lost, {found} leaves of checkpoint {oldest} and later found in its place"
            ),
        }
    }
}

impl fmt::Display for SalvageReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.checkpoint {
            Some(number) => writeln!(f, "followed checkpoint {number}, durable up to {}", self.durable.0)?,
            None => writeln!(f, "no superblock is whole: tables were found by looking at every block")?,
        }
        for range in &self.directory_ranges {
            writeln!(f, "table of tables: {range}")?;
        }
        if self.bad_directory_rows > 0 {
            writeln!(f, "table of tables: {} rows mean nothing", self.bad_directory_rows)?;
        }
        if self.saved_blocks_lost > 0 {
            let lost = self.saved_blocks_lost;
            writeln!(f, "saved deltas: {lost} blocks lost, rows may be as they were before")?;
        }
        for table in &self.tables {
            write!(f, "{} ({:?}): {} rows kept", table.name, table.id, table.rows)?;
            match table.is_damaged() {
                false => writeln!(f, ", whole")?,
                true => writeln!(
                    f,
                    ", {} leaves lost, {} large values lost",
                    table.leaves_lost(),
                    table.values_lost
                )?,
            }
            for range in &table.ranges {
                writeln!(f, "  {range}")?;
            }
        }
        for (id, leaves) in &self.ownerless {
            writeln!(
                f,
                "{id:?}: {leaves} leaves of a table that was dropped or whose name is lost"
            )?;
        }
        write!(f, "the old files are in {}", self.kept.display())
    }
}

struct Hex<'a>(&'a [u8]);

impl fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("the start");
        }
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}
