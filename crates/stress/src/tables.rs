//! The article's tables: one for each engine and size, a lettered line for each cell, remarks below.

use crate::cell::{CellOutcome, CellResult, Failover};
use crate::load::PhaseResult;
use crate::matrix::{Capped, Journal, Size, Topology, mebibytes};
use crate::settings::Settings;
use std::fmt::Write;

/// Below this share of documents a speed of reading says nothing: the article's bound.
const SHARE_MIN: f64 = 0.01;

/// 2^20 bytes per second.
pub(crate) fn mebibytes_per_second(phase: &PhaseResult, documents: u64, settings: &Settings) -> Option<f64> {
    let bytes = documents.saturating_mul(settings.document_bytes) as f64;
    (phase.seconds > 0.0 && documents > 0).then(|| bytes / f64::from(1 << 20) / phase.seconds)
}

/// The cells of each table.
fn groups(results: &[CellResult]) -> impl Iterator<Item = &[CellResult]> {
    results.chunk_by(|a, b| {
        let key = |result: &CellResult| (result.cell.size, result.cell.failover);
        a.cell.engine == b.cell.engine && key(a) == key(b)
    })
}

/// True when there is a table of which the server refuses every cell: nothing was measured where something was to be.
pub fn is_any_table_refused(results: &[CellResult]) -> bool {
    let is_refused = |result: &CellResult| matches!(result.outcome, CellOutcome::Refused(_));
    groups(results).any(|group| group.iter().all(is_refused))
}

/// All tables of a run.
pub fn tables(results: &[CellResult], settings: &Settings) -> String {
    let mut text = String::new();
    for (number, group) in groups(results).enumerate() {
        if number > 0 {
            text.push('\n');
        }
        let (engine, size) = (&group[0].cell.engine, group[0].cell.size);
        let is_unlimited = group.iter().any(|result| result.is_unlimited);
        let title = format!(
            "Test Results {}: {engine} ({}, {}{}{})",
            number + 1,
            match settings.topology {
                Topology::Standalone => "single instance".to_owned(),
                Topology::ReplicaSet => format!("replica set of {} members", settings.members),
            },
            size.words(),
            if is_unlimited { ", NOT limited" } else { "" },
            if group[0].cell.failover {
                ", the primary killed in the middle"
            } else {
                ""
            }
        );
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{title}");
        let _ = writeln!(text, "{}", data_line(size, settings, is_unlimited));
        if let CellOutcome::Impossible(reason) = &group[0].outcome {
            let _ = writeln!(text, "  Not possible: {reason}.");
            continue;
        }
        text.push_str(&table(group, settings));
        remarks(group, &mut text);
    }
    text
}

fn data_line(size: Size, settings: &Settings, is_unlimited: bool) -> String {
    let documents = settings.documents(size);
    let mut line = format!(
        "{documents} documents of {} bytes, {} in all; batches of {}; {} threads; MB/s are 2^20 bytes per second",
        settings.document_bytes,
        mebibytes(settings.data_bytes(size)),
        settings.batch,
        settings.threads
    );
    if is_unlimited {
        let limit = mebibytes(settings.memory_bytes);
        let _ = write!(line, "; the server was to use {limit} and could use ALL memory");
    } else if size == Size::LargerThanRam {
        let _ = write!(line, "; the server may use {}", mebibytes(settings.memory_bytes));
    }
    line
}

fn table(group: &[CellResult], settings: &Settings) -> String {
    let head: &[&str] = match settings.topology {
        Topology::Standalone => &[
            "",
            "Write Concern",
            "Journal",
            "Capped",
            "Write Result",
            "Read Result",
            "Consistent Reads",
        ],
        Topology::ReplicaSet => &[
            "",
            "Write Concern",
            "Journal",
            "Capped",
            "Write Result",
            "Secondary Reads",
            "Consistent",
            "Primary Reads",
        ],
    };
    let head: Vec<String> = head.iter().map(|&name| name.to_owned()).collect();
    let mut rows = vec![head.clone()];
    rows.extend(group.iter().map(|result| row(result, settings)));
    let widths: Vec<usize> = (0..head.len())
        .map(|column| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0))
        .collect();
    let mut text = String::new();
    for (index, row) in rows.iter().enumerate() {
        let cells: Vec<String> = row
            .iter()
            .zip(&widths)
            .enumerate()
            .map(|(column, (cell, &width))| {
                if column < 4 {
                    format!("{cell:<width$}")
                } else {
                    format!("{cell:>width$}")
                }
            })
            .collect();
        let _ = writeln!(text, "  {}", cells.join("  ").trim_end());
        if index == 0 {
            let rules: Vec<String> = widths.iter().map(|&width| "-".repeat(width)).collect();
            let _ = writeln!(text, "  {}", rules.join("  "));
        }
    }
    text
}

fn row(result: &CellResult, settings: &Settings) -> Vec<String> {
    let cell = &result.cell;
    let yes_no = |yes: bool| if yes { "Yes" } else { "No" }.to_owned();
    let speed = |phase: Option<&PhaseResult>, documents: u64| {
        phase
            .and_then(|phase| mebibytes_per_second(phase, documents, settings))
            .map(|speed| format!("{speed:.0} MB/s"))
    };
    let write = result.write.as_ref();
    let written = speed(write, write.map_or(0, |phase| phase.documents));
    let came = result.tally.asked() - result.tally.missing;
    let readable = result.tally.asked() > 0 && came as f64 >= SHARE_MIN * result.tally.asked() as f64;
    let read = if readable {
        speed(result.read.as_ref(), came)
    } else {
        None
    };
    let mut figures = vec![written, read, consistent(result)];
    if settings.topology == Topology::ReplicaSet {
        let tally = &result.tally_primary;
        figures.push(speed(result.read_primary.as_ref(), tally.asked() - tally.missing));
    }
    let unknown = "N/A";
    let mut figures: Vec<String> = figures
        .into_iter()
        .map(|text| text.unwrap_or_else(|| unknown.to_owned()))
        .collect();
    let word = match &result.outcome {
        CellOutcome::Complete | CellOutcome::Impossible(_) => None,
        CellOutcome::Refused(_) => Some("refused"),
        CellOutcome::Interrupted => Some("stopped"),
        CellOutcome::Failed(_) => Some("failed"),
    };
    if let Some(word) = word {
        // Said where the figures end.
        match figures.iter_mut().find(|text| *text == unknown) {
            Some(text) => word.clone_into(text),
            None => {
                if let Some(last) = figures.last_mut() {
                    last.insert_str(0, &format!("{word}, "));
                }
            }
        }
    }
    let mut row = vec![
        cell.letter.to_string(),
        cell.concern.name().to_owned(),
        yes_no(cell.journal == Journal::On),
        yes_no(cell.capped == Capped::Yes),
    ];
    row.append(&mut figures);
    row
}

fn consistent(result: &CellResult) -> Option<String> {
    (result.tally.asked() > 0).then(|| report::number::whole_percent(result.tally.share()))
}

/// What the figures do not say; the same remark of several cells is made once.
fn remarks(group: &[CellResult], text: &mut String) {
    let mut remarks: Vec<(String, String)> = Vec::new();
    for result in group {
        for remark in remarks_of(result) {
            match remarks.iter_mut().find(|(_, said)| *said == remark) {
                // Of several members.
                Some((letters, _)) if letters.ends_with(result.cell.letter) => {}
                Some((letters, _)) => {
                    let _ = write!(letters, ",{}", result.cell.letter);
                }
                None => remarks.push((result.cell.letter.to_string(), remark)),
            }
        }
    }
    let all: Vec<String> = group.iter().map(|result| result.cell.letter.to_string()).collect();
    let all = all.join(",");
    for (letters, remark) in remarks {
        let letters = if group.len() > 1 && letters == all {
            "all"
        } else {
            letters.as_str()
        };
        let _ = writeln!(text, "  ({letters}) {}", remark.replace('\n', "\n      "));
    }
}

fn remarks_of(result: &CellResult) -> Vec<String> {
    let mut remarks = match &result.outcome {
        CellOutcome::Complete | CellOutcome::Impossible(_) => Vec::new(),
        CellOutcome::Refused(reason) => vec![format!("The server refuses it: {reason}")],
        CellOutcome::Interrupted => vec!["Stopped by the user; the figures reach up to there.".to_owned()],
        CellOutcome::Failed(reason) => vec![format!("Failed: {reason}")],
    };
    let (tally, missed) = (&result.tally, result.missed);
    if tally.missing > 0 {
        remarks.push(format!(
            "{} of {} documents were not there when they were read; a moment later {} were.",
            tally.missing,
            tally.asked(),
            if missed.lost == 0 {
                "all of them".to_owned()
            } else {
                format!("{} of them", missed.late)
            }
        ));
    }
    if missed.lost > 0 {
        remarks.push(format!("{} documents are lost.", missed.lost));
    }
    if result.tally_primary.missing > 0 {
        remarks.push(format!(
            "{} documents are not on the primary.",
            result.tally_primary.missing
        ));
    }
    remarks.extend(result.failover.as_ref().map(failover));
    remarks.extend(result.notes.iter().map(|note| format!("{note}.")));
    remarks
}

/// What the primary's death came to.
fn failover(failover: &Failover) -> String {
    let mut text = format!(
        "The primary was killed when {} documents were written: {:.2} s without a primary; batches that failed and were sent again: {}",
        failover.documents, failover.seconds, failover.errors
    );
    for (reason, count) in &failover.reasons {
        let _ = write!(text, "; {count} of them: {reason}");
    }
    match failover.rejoin_seconds {
        Some(seconds) => {
            let _ = write!(text, ". It was a secondary {seconds:.2} s after its start.");
        }
        None => text.push_str(". It was no secondary again."),
    }
    text
}

#[cfg(test)]
mod tests;
