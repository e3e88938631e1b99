//! The figures of a session as Markdown, for a page of a manual: where and how it ran, who wins what, and a table for
//! each workload and measure with a row for each phase and a column for each configuration.
//!
//! It has no charts and no single operations: those are in the page, [`crate::html`].

use crate::choice::Choice;
use crate::experiment::Pool;
use crate::measure::{Measure, TOLERANCE};
use crate::verdict::Standing;
use crate::{Experiment, Session, labels, number};
use jiff::Timestamp;
use std::fmt::Write as _;

/// The measures with a table, in its order. Of latencies it is that of the most frequent operation.
fn measures(experiment: &Experiment) -> Vec<(&'static str, Measure)> {
    let mut all = vec![
        ("Operations per second", Measure::Throughput),
        ("Cold pass", Measure::Cold),
        ("Cached pass", Measure::Cached),
    ];
    all.extend(
        experiment
            .busiest()
            .map(|measure| ("p99 of the most frequent operation", measure)),
    );
    all.extend([
        ("Processor time of the server per operation", Measure::ServerCpu),
        ("Bytes read from storage per operation", Measure::Read),
        ("Reads of the disk per operation", Measure::DiskReads),
        ("Bytes written to storage per operation", Measure::Written),
        ("Size on disk", Measure::Size),
        ("Peak memory", Measure::Memory),
        ("Start-up", Measure::Start),
        ("Shutdown", Measure::Stop),
    ]);
    all
}

/// See the module. `title`: the heading of the page; `introduction`: what stands below it, in Markdown, maybe nothing.
pub fn markdown(session: &Session, title: &str, introduction: &str) -> String {
    let mut text = format!("# {title}\n\n");
    if !introduction.is_empty() {
        text += &format!("{introduction}\n\n");
    }
    // Writing to a String cannot fail, here and below.
    let _ = writeln!(text, "{}\n", origin(session));
    let _ = writeln!(text, "    {}\n", session.command_line.join(" "));
    let _ = writeln!(
        text,
        "**Bold**: better than every other configuration by more than {} and, 99 % sure, by more than the noise. –: not measured.",
        number::percent(TOLERANCE)
    );
    let experiments = Experiment::all(session);
    let mut workloads: Vec<&str> = Vec::new();
    for experiment in &experiments {
        if !workloads.contains(&experiment.work.workload) {
            workloads.push(experiment.work.workload);
        }
    }
    choices(&mut text, &experiments);
    for workload in workloads {
        let of_workload: Vec<&Experiment> = experiments
            .iter()
            .filter(|experiment| experiment.work.workload == workload)
            .collect();
        let _ = write!(text, "\n## {}\n", escaped(workload));
        section(&mut text, &of_workload, &labels(session));
    }
    remarks(&mut text, session);
    text
}

/// Where and when it ran.
fn origin(session: &Session) -> String {
    let machine = &session.machine;
    let mut versions: Vec<&str> = Vec::new();
    for run in &session.runs {
        let version = run.configuration.server_version.as_str();
        if !version.is_empty() && !versions.contains(&version) {
            versions.push(version);
        }
    }
    let mut what = Vec::new();
    if let Ok(time) = Timestamp::from_millisecond(session.started_ms) {
        what.push(time.strftime("%Y-%m-%d").to_string());
    }
    if !versions.is_empty() {
        what.push(versions.join(" and "));
    }
    let repetitions = session.runs.iter().map(|run| run.repetition + 1).max().unwrap_or(0);
    let times = match repetitions {
        0 | 1 => "once".to_owned(),
        more => format!("{more} times in turns; figures are means"),
    };
    let cpu = match machine.cpu.as_str() {
        "" => "an unknown processor",
        cpu => cpu,
    };
    escaped(&format!(
        "Measured {} on {cpu} ({} processors, {} of memory, {}, {}), each {times}, by",
        what.join(", "),
        machine.cores,
        number::bytes(machine.memory_bytes as f64),
        machine.kernel,
        machine.file_system,
    ))
}

fn section(text: &mut String, experiments: &[&Experiment], labels: &[&str]) {
    let used: Vec<&str> = labels
        .iter()
        .copied()
        .filter(|label| experiments.iter().any(|experiment| experiment.pool(label).is_some()))
        .collect();
    let mut titles: Vec<&'static str> = Vec::new();
    for (title, _) in experiments.iter().flat_map(|experiment| measures(experiment)) {
        if !titles.contains(&title) {
            titles.push(title);
        }
    }
    for title in titles {
        let rows: Vec<String> = experiments
            .iter()
            .filter_map(|experiment| {
                let measure = measures(experiment).into_iter().find(|(known, _)| *known == title)?.1;
                row(experiment, experiments, &measure, &used)
            })
            .collect();
        if rows.is_empty() {
            continue;
        }
        let heads: Vec<String> = used.iter().map(|label| escaped(label)).collect();
        let _ = write!(
            text,
            "\n{title}:\n\n| | {} |\n|---|{}\n{}",
            heads.join(" | "),
            "---:|".repeat(used.len()),
            rows.concat()
        );
    }
}

/// What to choose for each work, and why.
fn choices(text: &mut String, experiments: &[Experiment]) {
    let mut head = "\n## Which one for which workload\n\n";
    for experiment in experiments {
        let Some(choice) = Choice::of(experiment) else { continue };
        let work = &experiment.work;
        let namesakes: Vec<&Experiment> = experiments
            .iter()
            .filter(|other| other.work.workload == work.workload)
            .collect();
        let _ = write!(
            text,
            "{head}- {}, {}: **{}**.",
            escaped(work.workload),
            name(experiment, &namesakes),
            escaped(&choice.name())
        );
        for sentence in choice.sentences() {
            let _ = write!(text, " {}", escaped(&sentence));
        }
        text.push('\n');
        head = "";
    }
}

/// The line of one experiment; `None` when no configuration has a figure worth a line.
fn row(experiment: &Experiment, all: &[&Experiment], measure: &Measure, labels: &[&str]) -> Option<String> {
    let estimates: Vec<Option<f64>> = labels
        .iter()
        .map(|label| measure.estimate(experiment.pool(label)?).map(|estimate| estimate.value))
        .collect();
    if !estimates.iter().flatten().any(|value| *value >= measure.none_below()) {
        return None;
    }
    let standing = Standing::of(experiment, measure.clone());
    let winner = standing
        .as_ref()
        .and_then(|standing| standing.winner())
        .map(|place| place.label);
    let cells = labels.iter().zip(&estimates).map(|(label, estimate)| match estimate {
        None => without(experiment.pool(label)),
        Some(value) if winner == Some(*label) => format!("**{}**", measure.show(*value)),
        Some(value) => measure.show(*value),
    });
    let cells: Vec<String> = cells.collect();
    Some(format!("| {} | {} |\n", name(experiment, all), cells.join(" | ")))
}

/// Why there is no figure, in a word.
fn without(pool: Option<&Pool>) -> String {
    pool.and_then(|pool| pool.without.first())
        .map_or("–".to_owned(), |run| run.outcome.word().to_owned())
}

/// The phase, with the clients and parameters that tell it from its namesakes.
fn name(experiment: &Experiment, all: &[&Experiment]) -> String {
    let work = &experiment.work;
    let namesakes = || all.iter().filter(|other| other.work.phase == work.phase);
    let telling = work
        .parameters
        .iter()
        .filter(|(name, value)| namesakes().any(|other| other.work.parameters.get(*name) != Some(*value)))
        .map(|(name, value)| format!("{name} {value}"));
    let clients = namesakes()
        .any(|other| other.work.clients != work.clients)
        .then(|| format!("clients {}", work.clients));
    let telling: Vec<String> = clients.into_iter().chain(telling).collect();
    let name = if telling.is_empty() {
        work.phase.to_owned()
    } else {
        format!("{} ({})", work.phase, telling.join(", "))
    };
    escaped(&name)
}

/// What was not possible, each sentence once.
fn remarks(text: &mut String, session: &Session) {
    let mut seen: Vec<String> = Vec::new();
    for run in &session.runs {
        let outcome = run.outcome.message().map(|message| {
            let place = format!("{}, {}, {}", run.workload, run.phase, run.configuration.label);
            format!("{place} {}: {message}", run.outcome.word())
        });
        for note in run.notes.iter().cloned().chain(outcome) {
            let line = escaped(&note.replace('\n', " "));
            if !seen.contains(&line) {
                seen.push(line);
            }
        }
    }
    if !seen.is_empty() {
        let _ = writeln!(text, "\n## Remarks\n\n- {}", seen.join("\n- "));
    }
}

/// Text that Markdown takes as it stands, in cells of tables too.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '|' | '*' | '_' | '`' | '[' | ']' | '<' | '>' | '\\' | '#' => {
                out.push('\\');
                out.push(letter);
            }
            '\n' | '\r' => out.push(' '),
            other => out.push(other),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::tests::run;
    use crate::{Machine, Outcome};

    #[test]
    fn phases_are_rows_and_winners_are_bold() {
        let mut session = Session::new("tenon", 0, vec!["tenon".to_owned()], Machine::default());
        session.runs = vec![
            run("btree", "a", 100_000),
            run("other|one", "a", 10_000),
            run("btree", "b", 50),
            run("btree", "a", 100_000),
            run("other|one", "a", 10_000),
        ];
        session.runs[3..].iter_mut().for_each(|run| run.repetition = 1);
        let mut refused = run("other|one", "b", 0);
        refused.outcome = Outcome::Refused {
            message: "not <here>".to_owned(),
        };
        session.runs.push(refused);
        let text = markdown(&session, "Results", "By *hand*.");
        assert!(
            text.starts_with("# Results\n\nBy *hand*.\n\nMeasured 1970-01-01"),
            "{text}"
        );
        assert!(text.contains("| | btree | other\\|one |\n|---|---:|---:|\n"), "{text}");
        assert!(text.contains("| a | **10,000/s** | 1,000/s |\n"), "{text}");
        assert!(text.contains("| b | 5.00/s | refused |\n"), "{text}");
        assert!(
            text.contains("- ycsb, b, other\\|one refused: not \\<here\\>"),
            "{text}"
        );
        assert!(text.contains("tenond 1 on an unknown processor"), "{text}");
        session.runs.clear();
        let text = markdown(&session, "Results", "");
        assert!(text.contains("Measured 1970-01-01 on an unknown processor"), "{text}");
    }

    #[test]
    fn namesakes_are_told_apart() {
        let mut session = Session::new("tenon", 0, Vec::new(), Machine::default());
        session.runs = vec![run("btree", "query", 100), run("btree", "query", 200)];
        for (run, indexes) in session.runs.iter_mut().zip(["few", "covering"]) {
            run.parameters.insert("scale".to_owned(), "1".to_owned());
            run.parameters.insert("indexes".to_owned(), indexes.to_owned());
        }
        let text = markdown(&session, "Results", "");
        assert!(
            text.contains("| query (indexes few) |") && text.contains("| query (indexes covering) |"),
            "{text}"
        );
        session.runs[1].clients = 64;
        let text = markdown(&session, "Results", "");
        assert!(
            text.contains("| query (clients 1, indexes few) |")
                && text.contains("| query (clients 64, indexes covering) |"),
            "{text}"
        );
    }
}
