//! The matrix: which cells there are, in the article's order, and which of them cannot be by their nature.
//!
//! A cell is one server on fresh data. Within an engine and a size the write concern varies fastest, then the journal,
//! then capped, and each cell has a letter, as in the article's tables.

use crate::settings::Settings;
use std::fmt;

/// Write concern by the names of the drivers of 2011.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum WriteConcern {
    /// `w: 0`: the server answers nothing.
    Normal,
    /// `w: 1`: answered when applied.
    Safe,
    /// `w: 1` with `j: true` (or `fsync: true`): answered when durable.
    FsyncSafe,
    /// `w: 2`: answered when two members of a set have it.
    ReplicaSafe,
    /// `w: "majority"`
    Majority,
    /// `w` is the number of members: answered when all of them have it.
    ReplicaAll,
}

impl WriteConcern {
    /// All of them, in the tables' order.
    pub const ALL: [Self; 6] = [
        Self::Normal,
        Self::Safe,
        Self::FsyncSafe,
        Self::ReplicaSafe,
        Self::Majority,
        Self::ReplicaAll,
    ];
    /// Those of a server alone.
    pub const ALONE: [Self; 3] = [Self::Normal, Self::Safe, Self::FsyncSafe];
    /// Those of the article's replica set, and the majority.
    pub const OF_SETS: [Self; 5] = [
        Self::Normal,
        Self::Safe,
        Self::ReplicaSafe,
        Self::Majority,
        Self::ReplicaAll,
    ];

    /// Name in settings and tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Normal => "NORMAL",
            Self::Safe => "SAFE",
            Self::FsyncSafe => "FSYNC_SAFE",
            Self::ReplicaSafe => "REPLICA_SAFE",
            Self::Majority => "MAJORITY",
            Self::ReplicaAll => "REPLICA_ALL",
        }
    }

    /// True when the server answers each write.
    pub fn acknowledged(self) -> bool {
        self != Self::Normal
    }
}

/// Whether the server keeps a journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Journal {
    /// `--nojournal`
    Off,
    /// `--journal`
    On,
}

/// Whether the collection is capped (large enough to lose nothing).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Capped {
    /// An ordinary collection.
    No,
    /// `capped: true`
    Yes,
}

/// How large the data are beside the server's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Size {
    /// All of them fit.
    InRam,
    /// They do not, the server's memory being limited.
    LargerThanRam,
}

impl Size {
    /// Name in settings and in results.
    pub fn name(self) -> &'static str {
        match self {
            Self::InRam => "inRam",
            Self::LargerThanRam => "largerThanRam",
        }
    }

    /// The words of the table's title.
    pub fn words(self) -> &'static str {
        match self {
            Self::InRam => "all in RAM",
            Self::LargerThanRam => "larger than available RAM",
        }
    }
}

/// Which servers a cell consists of: the seam for sharded clusters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Topology {
    /// One server.
    Standalone,
    /// A replica set.
    ReplicaSet,
}

impl Topology {
    /// Name in settings.
    pub fn name(self) -> &'static str {
        match self {
            Self::Standalone => "standalone",
            Self::ReplicaSet => "replicaSet",
        }
    }
}

/// One cell.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Cell {
    /// Storage engine; of a set with several, those of its members in turn, with `+` between.
    pub engine: String,
    /// Beside the memory.
    pub size: Size,
    /// Letter in its table, from `A`.
    pub letter: char,
    /// How writes are answered.
    pub concern: WriteConcern,
    /// Server with or without journal.
    pub journal: Journal,
    /// Collection capped or not.
    pub capped: Capped,
    /// The primary is killed in the middle.
    pub failover: bool,
}

impl Cell {
    /// A name that is good for a directory, different for every cell of a run.
    pub fn slug(&self) -> String {
        let journal = if self.journal == Journal::On {
            "journal"
        } else {
            "nojournal"
        };
        let capped = if self.capped == Capped::Yes { "capped" } else { "plain" };
        format!(
            "{}-{}-{}-{}-{journal}-{capped}{}",
            self.engine,
            self.size.name(),
            self.letter,
            self.concern.name(),
            if self.failover { "-failover" } else { "" }
        )
    }

    /// True for the first cell of its table.
    pub fn is_first(&self) -> bool {
        self.letter == 'A'
    }

    /// Why there is nothing to measure, if there is not. All cells of a table have the same reason.
    pub fn impossible(&self, settings: &Settings) -> Option<String> {
        if self.size == Size::InRam {
            return None;
        }
        // In MongoDB's naming both are engines that keep every document in memory.
        let in_memory = |engine: &&str| matches!(*engine, "inMemory" | "ephemeralForTest");
        if let Some(engine) = self.engine.split('+').find(in_memory) {
            return Some(format!("{engine} keeps all data in memory"));
        }
        let (data, memory) = (settings.data_bytes(self.size), settings.memory_bytes);
        (data <= memory).then(|| {
            format!(
                "{} of data do not exceed the server's {} of memory: raise the scale",
                mebibytes(data),
                mebibytes(memory)
            )
        })
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} {} {}: {}, journal {}, capped {}{}",
            self.engine,
            self.size.name(),
            self.letter,
            self.concern.name(),
            if self.journal == Journal::On { "yes" } else { "no" },
            if self.capped == Capped::Yes { "yes" } else { "no" },
            if self.failover { ", with a failover" } else { "" },
        )
    }
}

/// Bytes for people.
pub(crate) fn mebibytes(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}

/// All cells of a run: engine by engine, in RAM first.
pub fn cells(settings: &Settings, engines: &[String]) -> Vec<Cell> {
    let mut cells = Vec::new();
    for engine in engines {
        let tables = settings
            .sizes
            .iter()
            .flat_map(|size| settings.failover.iter().map(move |failover| (*size, *failover)));
        for (size, failover) in tables {
            // At most 24 kinds.
            let letters = 'A'..='Z';
            let mut kinds = Vec::new();
            for &capped in &settings.capped {
                for &journal in &settings.journal {
                    kinds.extend(settings.concerns.iter().map(|&concern| (concern, journal, capped)));
                }
            }
            cells.extend(letters.zip(kinds).map(|(letter, (concern, journal, capped))| Cell {
                engine: engine.clone(),
                size,
                letter,
                concern,
                journal,
                capped,
                failover,
            }));
        }
    }
    cells
}

#[cfg(test)]
mod tests {
    use super::*;

    fn engines() -> Vec<String> {
        vec!["one".to_owned(), "inMemory".to_owned()]
    }

    #[test]
    fn the_order_is_the_articles() {
        let settings = Settings {
            concerns: vec![WriteConcern::Normal, WriteConcern::Safe],
            ..Settings::default()
        };
        let cells = cells(&settings, &engines());
        assert_eq!(cells.len(), 2 * 2 * 8);
        let shown: Vec<String> = cells[..8].iter().map(ToString::to_string).collect();
        assert_eq!(shown[0], "one inRam A: NORMAL, journal no, capped no");
        assert_eq!(shown[1], "one inRam B: SAFE, journal no, capped no");
        assert_eq!(shown[2], "one inRam C: NORMAL, journal yes, capped no");
        assert_eq!(shown[4], "one inRam E: NORMAL, journal no, capped yes");
        assert_eq!(shown[7], "one inRam H: SAFE, journal yes, capped yes");
        assert_eq!(cells[8].size, Size::LargerThanRam);
        assert_eq!(cells[8].letter, 'A');
    }

    #[test]
    fn the_whole_matrix_has_twelve_cells_a_table_and_no_directory_twice() {
        let cells = cells(&Settings::default(), &engines());
        assert_eq!(cells.len(), 2 * 2 * 12);
        let slugs: std::collections::HashSet<String> = cells.iter().map(Cell::slug).collect();
        assert_eq!(slugs.len(), cells.len());
    }

    #[test]
    fn data_in_memory_only_cannot_be_larger_than_memory() {
        let settings = Settings::default();
        let cells = cells(&settings, &engines());
        let reason = |engine: &str, size: Size| {
            let cell = cells.iter().find(|cell| cell.engine == engine && cell.size == size);
            cell.expect("it is in the matrix").impossible(&settings)
        };
        assert_eq!(reason("one", Size::InRam), None);
        assert_eq!(reason("one", Size::LargerThanRam), None);
        assert_eq!(reason("inMemory", Size::InRam), None);
        let reason = reason("inMemory", Size::LargerThanRam).expect("not possible");
        assert_eq!(reason, "inMemory keeps all data in memory");
    }

    #[test]
    fn data_that_fit_after_all_are_no_measurement_of_larger_data() {
        let settings = Settings {
            memory_bytes: 1 << 40,
            ..Settings::default()
        };
        let cells = cells(&settings, &engines());
        let cell = cells
            .iter()
            .find(|cell| cell.size == Size::LargerThanRam)
            .expect("it is there");
        let reason = cell.impossible(&settings).expect("not possible");
        assert!(reason.contains("raise the scale"), "{reason}");
    }
}
