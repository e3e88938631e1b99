//! What a session says: a line per run while it goes, a table of ratios at the end, and JSON with everything.

use crate::machine::Machine;
use crate::outcome::{OPERATIONS_PER_CALL, OVER_MEMORY, Outcome};
use crate::statistics::{Rounds, collapsed_second, median_of_rounds, ratio};
use crate::subject::SubjectKind;
use crate::targets::{Baseline, TARGETS, Target};
use crate::workload::Workload;
use serde::Serialize;
use std::fmt::Write;

/// A session of runs.
#[derive(Debug, Serialize)]
pub struct Report {
    /// Version of this structure.
    pub format: u32,
    /// Version of the harness.
    pub version: String,
    /// Version of the WiredTiger library, if there is one.
    pub wiredtiger: Option<String>,
    /// The machine.
    pub machine: Machine,
    /// The command line.
    pub command: Vec<String>,
    /// How the configuration looked, by name.
    pub configuration: serde_json::Value,
    /// What was not as it should be.
    pub notes: Vec<String>,
    /// The runs, in the order they were made.
    pub runs: Vec<Outcome>,
    /// Runs that failed: what they were and why.
    pub failures: Vec<String>,
    /// Runs of our engines that stood still for a second, in words.
    pub collapses: Vec<String>,
    /// The rows of the table.
    pub comparisons: Vec<Comparison>,
}

/// A row of the table of ratios.
#[derive(Clone, Debug, Serialize, PartialEq)]
pub struct Comparison {
    /// The workload.
    pub workload: Workload,
    /// The figure.
    pub figure: String,
    /// Whose figure.
    pub subject: SubjectKind,
    /// Its median.
    pub ours: f64,
    /// What it is compared with; for the better of two, the one it was.
    pub baseline: Option<SubjectKind>,
    /// The baseline's median.
    pub theirs: Option<f64>,
    /// Ours over theirs; the figure itself for goals without a baseline.
    pub ratio: f64,
    /// Smallest ratio of a pair of runs.
    pub low: f64,
    /// Greatest ratio of a pair of runs.
    pub high: f64,
    /// The goal, in words.
    pub goal: String,
    /// What a first version has to reach, in words.
    pub first: Option<String>,
    /// `met`, `first version` or `missed`; `collapsed` when a run stood still for a second; `void: memory` when data
    /// larger than the cache was kept in memory.
    pub verdict: String,
}

/// The line of a run.
pub fn run_line(outcome: &Outcome) -> String {
    let mut line = format!(
        "{:<4} {:<17} #{}",
        outcome.workload.to_string(),
        outcome.subject.name(),
        outcome.pair
    );
    for name in line_figures(outcome.workload) {
        if let Some(value) = outcome.figures.get(*name) {
            let _ = write!(line, "  {name} {}", number(*value));
        }
    }
    for note in &outcome.notes {
        let _ = write!(line, "  ({note})");
    }
    line
}

/// What is to be said of a run of one of our engines that stood still for a second: it fails, whatever its rate.
pub fn collapse(outcome: &Outcome) -> Option<String> {
    let per_call = outcome.figures.get(OPERATIONS_PER_CALL).copied().unwrap_or(1.0);
    let collapsed = collapsed_second(&outcome.slices, per_call);
    let (slowest, good) = collapsed.filter(|_| outcome.subject.engine().is_some())?;
    Some(format!(
        "{} {} #{} collapsed: {} operations in its slowest second, {} in a good one",
        outcome.workload,
        outcome.subject,
        outcome.pair,
        number(slowest),
        number(good)
    ))
}

fn line_figures(workload: Workload) -> &'static [&'static str] {
    match workload {
        Workload::W5 => &["cached_rows_per_s", "cold_rows_per_s", "cold_cpu_us_per_row"],
        Workload::W8 => &["ops_per_s", "end_ops_per_s", "worst_over_median", "cpu_us_per_op"],
        Workload::W9 => &["b_per_row_none", "b_per_row_snappy", "b_per_row_zlib", "b_per_row_zstd"],
        Workload::W10 => &["b_per_entry", "settled_b_per_entry"],
        Workload::W11 => &["stored_over_loaded", "settled_over_loaded", "peak_over_loaded"],
        Workload::W12 => &["checkpoint_ms", "p99_us_outside", "p99_us_during"],
        Workload::W13 => &[
            "ops_per_s",
            "worst_second_ops",
            "slow_s",
            "cpu_us_per_op",
            "p99_us",
            "p999_us",
            "max_us",
        ],
        Workload::W14 => &[
            "ops_per_s_one",
            "p99_us_one",
            "ops_per_s_many",
            "p99_us_many",
            "raw_syncs_per_s",
        ],
        Workload::W15 => &["log_b_per_op"],
        Workload::W16 => &["build_s", "cpu_us_per_op", "stored_b_per_entry"],
        Workload::W18 => &["rss_over_cache", "rss_peak_mib", "ops_per_s"],
        Workload::W19 => &["recovery_s", "ops_per_s", "log_read_mib"],
        _ => &[
            "ops_per_s",
            "cpu_us_per_op",
            "written_b_per_op_closed",
            "read_b_per_op",
            "block_reads_per_op",
            "after_scan_block_reads_per_op",
            "p99_us",
            "p999_us",
            "max_us",
        ],
    }
}

/// A number with about three digits that matter, thousands apart.
pub fn number(value: f64) -> String {
    match value.abs() {
        v if v >= 100.0 => {
            let digits = format!("{:.0}", value.abs());
            let mut grouped = if value < 0.0 { "-".to_owned() } else { String::new() };
            for (position, digit) in digits.chars().enumerate() {
                if position > 0 && (digits.len() - position).is_multiple_of(3) {
                    grouped.push(',');
                }
                grouped.push(digit);
            }
            grouped
        }
        v if v >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// The figures of a kind of run.
fn series(runs: &[Outcome], workload: Workload, subject: SubjectKind, figure: &str) -> Rounds {
    runs.iter()
        .filter(|run| run.workload == workload && run.subject == subject)
        .filter_map(|run| Some((run.pair, *run.figures.get(figure)?)))
        .collect()
}

/// Every goal against every engine of Tenon that was measured.
pub fn compare(runs: &[Outcome]) -> Vec<Comparison> {
    let ours = SubjectKind::ALL.into_iter().filter(|kind| kind.engine().is_some());
    let mut rows = Vec::new();
    for target in TARGETS {
        for subject in ours.clone() {
            rows.extend(compare_one(runs, target, subject));
        }
    }
    rows
}

fn compare_one(runs: &[Outcome], target: &Target, subject: SubjectKind) -> Option<Comparison> {
    let values = series(runs, target.workload, subject, target.figure);
    let middle = median_of_rounds(&values)?;
    let (baseline, theirs) = match target.baseline {
        Baseline::Absolute => (None, Rounds::new()),
        Baseline::Rocksdb if subject == SubjectKind::Rocksdb => return None,
        named => {
            let (kind, theirs) = baseline_series(runs, target, named)?;
            (Some(kind), theirs)
        }
    };
    let (value, low, high) = match baseline {
        None => {
            let low = values.values().copied().fold(f64::INFINITY, f64::min);
            (middle, low, values.values().copied().fold(f64::NEG_INFINITY, f64::max))
        }
        Some(_) => {
            let found = ratio(&values, &theirs)?;
            (found.value, found.low, found.high)
        }
    };
    // W18 is about memory itself.
    let is_void = target.workload != Workload::W18 && !series(runs, target.workload, subject, OVER_MEMORY).is_empty();
    let of_ours = |run: &&Outcome| run.workload == target.workload && run.subject == subject;
    let has_collapsed = runs.iter().filter(of_ours).any(|run| collapse(run).is_some());
    let verdict = if is_void {
        "void: memory"
    } else if has_collapsed {
        "collapsed"
    } else if target.goal.is_met_by(value) {
        "met"
    } else if target.first.is_some_and(|first| first.is_met_by(value)) {
        "first version"
    } else {
        "missed"
    };
    Some(Comparison {
        workload: target.workload,
        figure: target.figure.into(),
        subject,
        ours: middle,
        baseline,
        theirs: median_of_rounds(&theirs),
        ratio: value,
        low,
        high,
        goal: target.goal.to_string(),
        first: target.first.map(|first| first.to_string()),
        verdict: verdict.into(),
    })
}

/// The runs to compare with; of two candidates, the one with the better median.
fn baseline_series(runs: &[Outcome], target: &Target, baseline: Baseline) -> Option<(SubjectKind, Rounds)> {
    use SubjectKind::{Rocksdb, WiredTiger, WiredTigerTuned};
    let candidates: &[SubjectKind] = match baseline {
        Baseline::WiredTiger => &[WiredTiger, WiredTigerTuned],
        Baseline::WiredTigerDefault => &[WiredTiger],
        Baseline::WiredTigerTuned => &[WiredTigerTuned],
        Baseline::Rocksdb => &[Rocksdb],
        Baseline::Absolute => &[],
    };
    let found = candidates.iter().filter_map(|kind| {
        let values = series(runs, target.workload, *kind, target.figure);
        Some((*kind, median_of_rounds(&values)?, values))
    });
    let better = found.reduce(|best, next| {
        if (next.1 > best.1) == target.goal.more_is_better() {
            next
        } else {
            best
        }
    })?;
    Some((better.0, better.2))
}

/// The table of ratios. The goals are those of `btree`: other engines get ratios, but no verdict.
pub fn ratio_table(rows: &[Comparison]) -> String {
    let mut table = String::from(
        "| | workload | figure | engine | ours | baseline | theirs | ratio | spread | goal | |\n\
         |---|---|---|---|---:|---|---:|---:|---|---|---|\n",
    );
    for row in rows {
        let is_ratio = row.baseline.is_some();
        let _ = writeln!(
            table,
            "| {} | {} | {} | {} | {} | {} | {} | {} | {} to {} | {} | {} |",
            row.workload,
            row.workload.title(),
            row.figure,
            row.subject,
            number(row.ours),
            row.baseline.map_or("-", SubjectKind::name),
            row.theirs.map_or("-".into(), number),
            if is_ratio {
                format!("{:.2}", row.ratio)
            } else {
                "-".into()
            },
            number(row.low),
            number(row.high),
            row.goal,
            if row.subject == SubjectKind::Btree {
                &row.verdict
            } else {
                ""
            },
        );
    }
    table
}

/// Medians of the most telling figures, for every workload and subject.
pub fn median_table(runs: &[Outcome]) -> String {
    let mut table = String::from("| | subject | runs | figures (medians) |\n|---|---|---:|---|\n");
    for workload in Workload::ALL {
        for subject in SubjectKind::ALL {
            let mut cells = Vec::new();
            for figure in line_figures(workload) {
                if let Some(middle) = median_of_rounds(&series(runs, workload, subject, figure)) {
                    cells.push(format!("{figure} {}", number(middle)));
                }
            }
            let count = runs
                .iter()
                .filter(|run| run.workload == workload && run.subject == subject)
                .count();
            if !cells.is_empty() {
                let _ = writeln!(table, "| {workload} | {subject} | {count} | {} |", cells.join(", "));
            }
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn run(workload: Workload, subject: SubjectKind, pair: usize, figure: &str, value: f64) -> Outcome {
        Outcome {
            workload,
            subject,
            pair,
            seed: 0,
            figures: BTreeMap::from([(figure.to_owned(), value)]),
            slices: Vec::new(),
            notes: Vec::new(),
        }
    }

    #[test]
    fn the_better_wiredtiger_is_the_baseline() {
        use SubjectKind::{Btree, WiredTiger, WiredTigerTuned};
        let mut runs = Vec::new();
        for pair in 0..3 {
            runs.push(run(Workload::W1, Btree, pair, "ops_per_s", 300.0 + pair as f64));
            runs.push(run(Workload::W1, WiredTiger, pair, "ops_per_s", 100.0));
            runs.push(run(Workload::W1, WiredTigerTuned, pair, "ops_per_s", 150.0));
            // Less is better here, so the default is the better one.
            runs.push(run(Workload::W10, Btree, pair, "b_per_entry", 20.0));
            runs.push(run(Workload::W10, WiredTiger, pair, "b_per_entry", 25.0));
            runs.push(run(Workload::W10, WiredTigerTuned, pair, "b_per_entry", 26.0));
        }
        let rows = compare(&runs);
        let row = |workload| rows.iter().find(|row| row.workload == workload).unwrap();
        let inserts = row(Workload::W1);
        assert_eq!(inserts.baseline, Some(WiredTigerTuned));
        assert!(
            (inserts.ratio - 301.0 / 150.0).abs() < 1e-9 && inserts.verdict == "met",
            "{inserts:?}"
        );
        assert!((inserts.low - 2.0).abs() < 1e-9);
        let entries = row(Workload::W10);
        assert_eq!(
            (entries.baseline, entries.verdict.as_str()),
            (Some(WiredTiger), "first version")
        );
        let table = ratio_table(&rows);
        assert!(
            table.contains("| W1 | sequential insert | ops_per_s | btree | 301 | wiredtiger-tuned | 150 | 2.01 |"),
            "{table}"
        );
    }

    #[test]
    fn goals_without_baseline_look_at_the_figure() {
        let runs = [run(Workload::W15, SubjectKind::Btree, 0, "log_b_per_op", 200.0)];
        let rows = compare(&runs);
        assert_eq!(rows.len(), 1, "no WiredTiger, no ratio: {rows:?}");
        assert_eq!((rows[0].ratio, rows[0].verdict.as_str()), (200.0, "first version"));
    }

    #[test]
    fn a_run_that_kept_everything_in_memory_meets_no_goal() {
        use SubjectKind::{Btree, WiredTiger};
        let mut ours = run(Workload::W4, Btree, 0, "ops_per_s", 9_000.0);
        let theirs = run(Workload::W4, WiredTiger, 0, "ops_per_s", 1_000.0);
        assert_eq!(compare(&[ours.clone(), theirs.clone()])[0].verdict, "met");
        ours.set(OVER_MEMORY, 5.3);
        assert_eq!(compare(&[ours, theirs])[0].verdict, "void: memory");
    }

    #[test]
    fn a_run_that_collapsed_meets_no_goal() {
        use SubjectKind::{Btree, WiredTiger};
        let mut ours = run(Workload::W7, Btree, 2, "ops_per_s", 9_000.0);
        let mut theirs = run(Workload::W7, WiredTiger, 2, "ops_per_s", 1_000.0);
        for run in [&mut ours, &mut theirs] {
            // Four seconds, the third slow, and the one that the end cut off.
            run.slices = [[100; 10], [100; 10], [5; 10], [100; 10], [100; 10]].concat();
        }
        let said = collapse(&ours).expect("a collapse");
        assert_eq!(
            said,
            "W7 btree #2 collapsed: 50.0 operations in its slowest second, 1,000 in a good one"
        );
        assert_eq!(collapse(&theirs), None, "it is not ours");
        assert_eq!(compare(&[ours, theirs])[0].verdict, "collapsed");
    }

    #[test]
    fn numbers_are_short() {
        assert_eq!(number(1_234_567.8), "1,234,568");
        assert_eq!(number(123.4), "123");
        assert_eq!(number(12.34), "12.3");
        assert_eq!(number(0.123), "0.12");
    }
}
