//! The page of a comparison: a summary, what changed, then every figure.

use super::moment;
use crate::measure::Verdict;
use crate::{Comparison, Line, Session, number};
use maud::{Markup, html};

/// The body of the page.
pub fn body(comparison: &Comparison, before: &Session, after: &Session) -> Markup {
    let changed: Vec<&Line> = comparison
        .lines
        .iter()
        .filter(|line| matches!(line.verdict, Verdict::Better | Verdict::Worse))
        .collect();
    html! {
        header.top {
            h1 { "Compared: before and after" }
            p.lead { (moment(before.started_ms)) " (" (before.tool) ") with " (moment(after.started_ms)) " (" (after.tool) ")" }
        }
        main {
            section.verdict {
                h2 { "Verdict" }
                p { (comparison.summary()) }
                @for note in &comparison.notes { div.warning { p { (note) } } }
                p.small.soft { (comparison.legend()) }
            }
            @if !changed.is_empty() {
                h2 { "What changed" }
                (table(&changed))
            }
            h2 { "All figures" }
            (table(&comparison.lines.iter().collect::<Vec<_>>()))
        }
    }
}

fn table(lines: &[&Line]) -> Markup {
    html! {
        div.scroll { table {
            thead { tr {
                th.name scope="col" { "workload" }
                th.left scope="col" { "configuration" }
                th.left scope="col" { "measure" }
                th scope="col" { "before" }
                th scope="col" { "after" }
                th scope="col" { "after / before" }
                th scope="col" { "99 % interval" }
                th.left scope="col" { "verdict" }
            } }
            tbody { @for line in lines {
                tr {
                    th.name scope="row" { (line.work) small { (line.detail) } }
                    td.left { (line.configuration) }
                    td.left { (line.measure.name()) }
                    td { (line.measure.show(line.before.value)) }
                    td { (line.measure.show(line.after.value)) }
                    td { (line.ratio.map_or("–".to_owned(), |ratio| number::ratio(ratio.value))) }
                    td { (line.interval()) }
                    td.left { span class=(line.verdict.word()) { (line.verdict.word()) } }
                }
            } }
        } }
    }
}
