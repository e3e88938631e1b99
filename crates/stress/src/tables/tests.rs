//! Tables and records of made-up cells: every way a cell can end is shown.

use super::*;
use crate::cell::Missed;
use crate::document::Tally;
use crate::matrix::cells;
use crate::record::runs;

fn phase(seconds: f64, documents: u64) -> PhaseResult {
    let mut latency = hdrhistogram::Histogram::new_with_bounds(1, 3_600_000_000_000, 3).expect("possible");
    latency.record(1_000_000).expect("within bounds");
    PhaseResult {
        started_ms: 1,
        seconds,
        documents,
        latency,
        series: report::Series::default(),
        server_cpu_us: Some(5),
        generator_cpu_us: Some(3),
        read_bytes: None,
        written_bytes: Some(7),
        rss_peak_bytes: Some(9),
    }
}

fn settings() -> Settings {
    Settings {
        in_ram_documents: 65_536,
        threads: 6,
        ..Settings::default()
    }
}

/// 1 GiB written in 2 s and read in 1 s.
fn results() -> Vec<CellResult> {
    let settings = settings();
    let cells = cells(&settings, &["rocksdb".to_owned()]);
    let complete = |index: usize, missing: u64| {
        let mut result = CellResult::new(cells[index].clone(), CellOutcome::Complete);
        result.write = Some(phase(2.0, 65_536));
        result.read = Some(phase(1.0, 65_536));
        result.tally = Tally {
            consistent: 65_536 - missing,
            missing,
            ..Tally::default()
        };
        result.missed = Missed { late: missing, lost: 0 };
        result
    };
    let refused = "cannot use 'j' option when a host does not have journaling enabled".to_owned();
    let mut failed = CellResult::new(
        cells[3].clone(),
        CellOutcome::Failed("the server has died\nlast words".to_owned()),
    );
    failed.write = Some(phase(1.0, 100));
    let mut stopped = complete(4, 0);
    stopped.read = None;
    stopped.tally = Tally::default();
    stopped.outcome = CellOutcome::Interrupted;
    let mut results = vec![
        complete(0, 153),
        complete(1, 0),
        CellResult::new(cells[2].clone(), CellOutcome::Refused(refused.clone())),
        failed,
        stopped,
        complete(5, 65_000),
        complete(6, 1_000),
        CellResult::new(cells[8].clone(), CellOutcome::Refused(refused)),
    ];
    for result in &mut results {
        result.notes.push("No limit".to_owned());
    }
    results
}

#[test]
fn a_table_is_like_the_articles() {
    let text = tables(&results(), &settings());
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "Test Results 1: rocksdb (single instance, all in RAM)");
    assert!(lines[1].starts_with("65536 documents of 16384 bytes, 1024.0 MiB in all; batches of 256; 6 threads"));
    let expected = [
        "     Write Concern  Journal  Capped  Write Result  Read Result  Consistent Reads",
        "  -  -------------  -------  ------  ------------  -----------  ----------------",
        "  A  NORMAL         No       No          512 MB/s    1022 MB/s              >99%",
        "  B  SAFE           No       No          512 MB/s    1024 MB/s              100%",
        "  C  FSYNC_SAFE     No       No           refused          N/A               N/A",
        "  D  NORMAL         Yes      No            2 MB/s       failed               N/A",
        "  E  SAFE           Yes      No          512 MB/s      stopped               N/A",
        "  F  FSYNC_SAFE     Yes      No          512 MB/s          N/A               <1%",
        "  G  NORMAL         No       Yes         512 MB/s    1008 MB/s               98%",
        "  I  FSYNC_SAFE     No       Yes          refused          N/A               N/A",
    ];
    assert_eq!(lines[2..12], expected, "\n{text}");
    let remarks = lines[12..].join("\n");
    for part in [
        "(A) 153 of 65536 documents were not there when they were read; a moment later all of them were.",
        "(C,I) The server refuses it: cannot use 'j' option",
        "(D) Failed: the server has died\n      last words",
        "(E) Stopped by the user",
        "(all) No limit.",
    ] {
        assert!(remarks.contains(part), "{part}\n{remarks}");
    }
}

#[test]
fn a_record_keeps_what_the_table_shows() {
    let runs = runs(&results(), &settings(), "tenond 0.1.0");
    let phases: Vec<&str> = runs.iter().map(|run| run.phase.as_str()).collect();
    assert_eq!(phases.iter().filter(|phase| **phase == "inRam.write").count(), 8);
    assert_eq!(phases.iter().filter(|phase| **phase == "inRam.read").count(), 4);
    let read = &runs[1];
    assert_eq!(read.configuration.label, "rocksdb NORMAL");
    assert_eq!(read.operations["read"].count, 65_536 - 153);
    assert_eq!(read.operations["read"].errors, 153);
    assert_eq!(read.figures["late"], 153.0);
    assert_eq!(runs[0].figures["mebibytesPerSecond"], 512.0);
    let refused = runs
        .iter()
        .find(|run| run.configuration.label == "rocksdb FSYNC_SAFE")
        .expect("it is there");
    assert!(matches!(&refused.outcome, report::Outcome::Refused { message } if !message.is_empty()));
    let labels: std::collections::HashSet<(&str, &str)> = runs
        .iter()
        .map(|run| (run.phase.as_str(), run.configuration.label.as_str()))
        .collect();
    assert_eq!(labels.len(), runs.len(), "labels are unique within a phase");
}

#[test]
fn what_cannot_be_is_said_once() {
    let settings = settings();
    let results: Vec<CellResult> = cells(&settings, &["inMemory".to_owned()])
        .into_iter()
        .filter(|cell| cell.size == Size::LargerThanRam)
        .map(|cell| {
            let reason = cell.impossible(&settings).expect("it is not possible");
            CellResult::new(cell, CellOutcome::Impossible(reason))
        })
        .collect();
    assert_eq!(results.len(), 12);
    let text = tables(&results, &settings);
    assert_eq!(text.lines().count(), 3, "{text}");
    assert!(
        text.ends_with("  Not possible: inMemory keeps all data in memory.\n"),
        "{text}"
    );
    let runs = runs(&results, &settings, "tenond 0.1.0");
    assert_eq!(runs.len(), 1);
    assert_eq!(runs[0].configuration.label, "inMemory");
}

/// The title said what the server may use, whether or not anything kept it from using more; and a remark of three
/// members had its letter three times.
#[test]
fn a_server_without_its_limit_is_not_one_with_it() {
    let settings = settings();
    let cells = cells(&settings, &["btree".to_owned()]);
    let cell = cells.iter().find(|cell| cell.size == Size::LargerThanRam);
    let mut result = CellResult::new(cell.expect("the matrix has it").clone(), CellOutcome::Complete);
    result.write = Some(phase(2.0, 100));
    result.notes = vec!["no limit on memory or disk: it takes root".to_owned(); 3];
    let limited = result.is_unlimited;
    result.is_unlimited = true;
    let text = tables(std::slice::from_ref(&result), &settings);
    assert!(
        text.contains("(single instance, larger than available RAM, NOT limited)"),
        "{text}"
    );
    assert!(!text.contains("the server may use"), "{text}");
    assert!(text.contains("  (A) no limit on memory or disk"), "{text}");
    let parameter = |result: &CellResult| {
        let runs = runs(std::slice::from_ref(result), &settings, "");
        runs[0].parameters["memoryBytes"].clone()
    };
    assert_eq!(parameter(&result), "NOT limited");
    result.is_unlimited = limited;
    assert_eq!(parameter(&result), settings.memory_bytes.to_string());
}

#[test]
fn a_table_of_refusals_alone_measured_nothing() {
    let some = results();
    assert!(!is_any_table_refused(&some));
    let refused: Vec<CellResult> = some
        .into_iter()
        .filter(|result| matches!(result.outcome, CellOutcome::Refused(_)))
        .collect();
    assert!(refused.len() == 2 && is_any_table_refused(&refused));
}

/// Random ports and folders made every two sessions set up differently.
#[test]
fn a_record_of_the_same_settings_is_the_same() {
    let settings = settings();
    let cell = cells(&settings, &["btree".to_owned()]).remove(0);
    let options = |folder: &str, port: u16| {
        let build = (std::path::Path::new("/opt/tenond"), &bench::server::Build::default());
        let plan = crate::plan::Plan::new(&settings, &cell, build, &[folder.into()], &[port]);
        let mut result = CellResult::new(cell.clone(), CellOutcome::Complete);
        result.arguments = plan.arguments();
        runs(&[result], &settings, "").remove(0).configuration.options
    };
    assert_eq!(options("/var/tmp/a", 1), options("/var/tmp/b", 2));
    assert_eq!(
        options("/var/tmp/a", 1)["arguments"],
        "--storageEngine btree --nojournal"
    );
}

#[test]
fn a_set_is_shown_with_both_kinds_of_reads_and_its_failover() {
    let settings = Settings {
        topology: Topology::ReplicaSet,
        concerns: vec![crate::matrix::WriteConcern::Majority],
        failover: vec![false, true],
        journal: vec![Journal::On],
        capped: vec![Capped::No],
        sizes: vec![Size::InRam],
        ..settings()
    };
    let results: Vec<CellResult> = cells(&settings, &["btree+inMemory+btree".to_owned()])
        .into_iter()
        .map(|cell| {
            let is_failover = cell.failover;
            let mut result = CellResult::new(cell, CellOutcome::Complete);
            result.write = Some(phase(2.0, 65_536));
            result.read = Some(phase(1.0, 65_536));
            result.read_primary = Some(phase(4.0, 65_536));
            result.tally = Tally {
                consistent: 65_536,
                ..Tally::default()
            };
            result.tally_primary = result.tally;
            result.failover = is_failover.then(|| Failover {
                documents: 32_768,
                seconds: 2.5,
                rejoin_seconds: Some(1.25),
                errors: 6,
                reasons: [("the connection broke".to_owned(), 6)].into(),
            });
            result
        })
        .collect();
    let text = tables(&results, &settings);
    for part in [
        "Test Results 1: btree+inMemory+btree (replica set of 3 members, all in RAM)\n",
        "Test Results 2: btree+inMemory+btree (replica set of 3 members, all in RAM, the primary killed in the middle)\n",
        "Write Concern  Journal  Capped  Write Result  Secondary Reads  Consistent  Primary Reads",
        "A  MAJORITY       Yes      No          512 MB/s        1024 MB/s        100%       256 MB/s",
        "(A) The primary was killed when 32768 documents were written: 2.50 s without a primary; batches that failed and were sent again: 6;",
        "6 of them: the connection broke. It was a secondary 1.25 s after its start.",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
    let runs = runs(&results, &settings, "tenond 0.1.0");
    assert_eq!(runs.len(), 6);
    assert_eq!(runs[3].figures["secondsWithoutPrimary"], 2.5);
    assert_eq!(runs[5].phase, "inRam.readPrimary");
    let labels: std::collections::HashSet<(&str, &str)> = runs
        .iter()
        .map(|run| (run.phase.as_str(), run.configuration.label.as_str()))
        .collect();
    assert_eq!(labels.len(), runs.len(), "labels are unique within a phase");
}
