//! The verdict in words, and who wins what at a glance.

use super::Page;
use crate::choice::Choice;
use crate::measure::{Measure, TOLERANCE, Verdict};
use crate::verdict::{Standing, and};
use crate::{Experiment, number};
use maud::{Markup, html};

/// The part of the page that comes first.
pub fn section(page: &Page) -> Markup {
    let experiments = Experiment::all(page.session);
    let compared = experiments.iter().any(|experiment| experiment.pools.len() > 1);
    let incomplete = page.session.runs.iter().filter(|run| run.outcome.is_partial()).count();
    html! {
        section.verdict id="verdict" {
            h2 { "Verdict" }
            @if incomplete > 0 {
                div.warning role="note" { p {
                    strong { "This report is partial: " } (incomplete) " of " (page.session.runs.len()) " runs did not end as they were meant to."
                } }
            }
            @if page.session.runs.is_empty() {
                p { "Nothing was measured." }
            } @else if compared {
                (shared_parameters(page))
                (repetitions(&experiments))
                (headlines(page, &experiments))
                (choices(page, &experiments))
                (matrix(page, &experiments))
                p.small.soft {
                    "A name is given where one configuration is better than every other by more than the noise (99 % sure) and by more than "
                    (number::percent(TOLERANCE)) "; the figure says how much better than the next. "
                    "“Shared”: the first ones are not told apart. “None”: no two are. “–”: not measured, or not of equal work."
                }
            } @else {
                p { "Only one configuration was measured, so that nothing is compared here." }
            }
        }
    }
}

/// The parameters that every run has.
fn shared_parameters(page: &Page) -> Markup {
    let shared: Vec<String> = page
        .shared
        .iter()
        .map(|(name, value)| format!("{name} {value}"))
        .collect();
    html! { @if !shared.is_empty() { p.soft { "All with " (shared.join(", ")) "." } } }
}

/// How often everything was measured: what the intervals rest on.
fn repetitions(experiments: &[Experiment]) -> Markup {
    let counts = || {
        experiments
            .iter()
            .flat_map(|experiment| &experiment.pools)
            .map(|pool| pool.runs.len())
    };
    let (least, most) = (
        counts().filter(|count| *count > 0).min().unwrap_or(0),
        counts().max().unwrap_or(0),
    );
    let times = if least == most {
        format!("{least} times")
    } else {
        format!("{least} to {most} times")
    };
    html! {
        @if most == 1 {
            p.soft { "Everything was measured once: nothing shows how much two runs of the same differ, so that there is no verdict. " code { "--repeat 2" } " or more has one." }
        } @else if most > 1 {
            p.soft {
                "Everything was measured " (times) ", in turns, there and back. Figures are means; how sure a difference is comes from how much "
                "repetitions of the same differ."
            }
        }
    }
}

/// The measures of the summary, by name: a p99 is that of the most frequent operation.
fn columns(experiment: &Experiment) -> Vec<(&'static str, Option<Measure>)> {
    let passes = experiment
        .pools
        .iter()
        .flat_map(|pool| &pool.runs)
        .any(|run| run.iterations.iter().any(|pass| pass.cold));
    vec![
        ("Throughput", Some(Measure::Throughput)),
        ("Cold pass", passes.then_some(Measure::Cold)),
        ("p99 latency", experiment.busiest()),
        ("Server CPU", Some(Measure::ServerCpu)),
        ("Bytes written", Some(Measure::Written)),
        ("Bytes read", Some(Measure::Read)),
        ("Disk reads", Some(Measure::DiskReads)),
        ("Size on disk", Some(Measure::Size)),
        ("Peak memory", Some(Measure::Memory)),
    ]
}

/// The standings of all experiments by the summary's measures.
fn standings<'a>(experiments: &[Experiment<'a>]) -> Vec<Vec<(&'static str, Option<Standing<'a>>)>> {
    let standing = |experiment: &Experiment<'a>, measure: Option<Measure>| Standing::of(experiment, measure?);
    experiments
        .iter()
        .map(|experiment| {
            columns(experiment)
                .into_iter()
                .map(|(name, measure)| (name, standing(experiment, measure)))
                .collect()
        })
        .collect()
}

/// One sentence per measure over all experiments.
fn headlines(page: &Page, experiments: &[Experiment]) -> Markup {
    let rows = standings(experiments);
    let names: Vec<&str> = rows
        .first()
        .map(|row| row.iter().map(|(name, _)| *name).collect())
        .unwrap_or_default();
    let sentence = |index: usize| {
        let column: Vec<&Standing> = rows.iter().filter_map(|row| row[index].1.as_ref()).collect();
        headline(page, &column)
    };
    html! {
        ul.headlines {
            @for (index, name) in names.iter().enumerate() {
                @if let Some(sentence) = sentence(index) { li { strong { (name) } span { (sentence) } } }
            }
        }
    }
}

/// Who wins how many of the experiments, and where by how much.
fn headline(page: &Page, column: &[&Standing]) -> Option<Markup> {
    let total = column.len();
    if total == 0 {
        return None;
    }
    if let [only] = column {
        return Some(html! { (only.sentence()) "." });
    }
    let mut wins: Vec<(&str, Vec<f64>)> = page.labels.iter().map(|label| (*label, Vec::new())).collect();
    for winner in column
        .iter()
        .filter_map(|standing| standing.winner().map(|place| (place, standing)))
    {
        let (place, standing) = winner;
        let lead = standing.places[1].behind.map_or(f64::INFINITY, |ratio| ratio.value);
        if let Some(entry) = wins.iter_mut().find(|entry| entry.0 == place.label) {
            entry.1.push(lead);
        }
    }
    wins.retain(|entry| !entry.1.is_empty());
    wins.sort_by_key(|entry| std::cmp::Reverse(entry.1.len()));
    let decided: usize = wins.iter().map(|entry| entry.1.len()).sum();
    let phrases: Vec<String> = wins
        .iter()
        .enumerate()
        .map(|(index, (label, leads))| {
            let verb = if index == 0 { " wins" } else { "" };
            format!("{label}{verb} {} of {total} ({})", leads.len(), spread(leads))
        })
        .collect();
    let phrases: Vec<&str> = phrases.iter().map(String::as_str).collect();
    Some(match (decided, total - decided) {
        (0, _) => html! { "nobody wins alone in any of " (total) "." },
        (_, 0) => html! { (and(&phrases)) "." },
        (_, open) => html! { (and(&phrases)) "; " (open) " without a single winner." },
    })
}

/// The least and the most of some leads.
fn spread(leads: &[f64]) -> String {
    let least = leads.iter().copied().fold(f64::INFINITY, f64::min);
    let most = leads.iter().copied().fold(0.0, f64::max);
    match (least.is_finite(), most.is_finite()) {
        (false, _) => "others are above zero".to_owned(),
        (true, false) => format!("by {} and more", number::ratio(least)),
        (true, true) if number::ratio(least) == number::ratio(most) => format!("by {}", number::ratio(least)),
        (true, true) => format!("by {} to {}", number::ratio(least), number::ratio(most)),
    }
}

/// What to choose for each work, and why.
fn choices(page: &Page, experiments: &[Experiment]) -> Markup {
    let chosen: Vec<(&Experiment, Choice)> = experiments
        .iter()
        .filter_map(|experiment| Some((experiment, Choice::of(experiment)?)))
        .collect();
    let list = |parts: &[String]| {
        html! { @for part in parts { (part) br; } @if parts.is_empty() { "–" } }
    };
    html! {
        @if !chosen.is_empty() {
            div.scroll { table {
                caption { "Which one for which workload" }
                thead { tr {
                    @for head in ["workload", "choose", "because of", "what others do better", "another, where this decides"] {
                        th.left scope="col" { (head) }
                    }
                } }
                tbody { @for (experiment, choice) in &chosen { tr {
                    th.name scope="row" { (experiment.work.name()) small { (page.detail(&experiment.work)) } }
                    td.wrap {
                        @if let [one] = choice.first.as_slice() { (page.chip(one)) } @else { span.soft { (choice.name()) } }
                        @if !choice.without.is_empty() { small { "without " (choice.without.join(", ")) } }
                    }
                    td.wrap { (list(&choice.because)) }
                    td.wrap { (list(&choice.costs)) }
                    td.wrap { (list(&choice.instead)) }
                } } }
            } }
            p.small.soft {
                "What decides is the rate; where the rate was given, the p99 of the most frequent operation. "
                "Reasons are the other figures in which it leads beyond the noise, or lags."
            }
        }
    }
}

/// Experiments down, measures across.
fn matrix(page: &Page, experiments: &[Experiment]) -> Markup {
    let rows = standings(experiments);
    let used = |index: usize| rows.iter().any(|row| row[index].1.is_some());
    let names: Vec<(usize, &str)> = rows
        .first()
        .map(|row| {
            row.iter()
                .map(|(name, _)| *name)
                .enumerate()
                .filter(|(index, _)| used(*index))
                .collect()
        })
        .unwrap_or_default();
    html! {
        div.scroll { table {
            caption { "Who wins what" }
            thead { tr {
                th.name scope="col" { "workload" }
                @for (_, name) in &names { th.left scope="col" { (name) } }
            } }
            tbody { @for (experiment, row) in experiments.iter().zip(&rows).filter(|(_, row)| row.iter().any(|(_, standing)| standing.is_some())) {
                tr {
                    th.name scope="row" { (experiment.work.name()) small { (page.detail(&experiment.work)) } }
                    @for (index, _) in &names { td.left { (cell(page, row[*index].1.as_ref())) } }
                }
            } }
        } }
    }
}

fn cell(page: &Page, standing: Option<&Standing>) -> Markup {
    let Some(standing) = standing else {
        return html! { "–" };
    };
    if let Some(winner) = standing.winner() {
        let lead = standing.places[1].behind.map(|ratio| number::ratio(ratio.value));
        return html! { (page.chip(winner.label)) small { @if let Some(lead) = lead { (lead) " better" } @else { "the next is above zero" } } };
    }
    if standing.leaders == standing.places.len() {
        let unclear = standing.places.iter().any(|place| place.verdict == Verdict::Unclear);
        return html! { span.soft { "none" } small { @if unclear { "within the noise" } @else { "no difference" } } };
    }
    let leaders: Vec<&str> = standing.places[..standing.leaders]
        .iter()
        .map(|place| place.label)
        .collect();
    html! { span.soft { "shared" } small { (and(&leaders)) } }
}
