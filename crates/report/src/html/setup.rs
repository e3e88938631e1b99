//! What the figures rest on: configurations, machine, what was not possible, and how to read the page.

use super::{Page, moment, or_dash};
use crate::{Configuration, number};
use maud::{Markup, html};

/// The last parts of the page.
pub fn sections(page: &Page) -> Markup {
    html! {
        (configurations(page))
        (machine(page))
        (notes(page))
        (reading())
    }
}

fn configurations(page: &Page) -> Markup {
    let mut seen: Vec<&Configuration> = Vec::new();
    for run in &page.session.runs {
        if !seen.contains(&&run.configuration) {
            seen.push(&run.configuration);
        }
    }
    html! {
        section id="configurations" {
            h2 { "Configurations" }
            @for configuration in seen {
                h3 { (page.chip(&configuration.label)) }
                dl.facts {
                    dt { "Engine" } dd { (configuration.engine) }
                    dt { "Server" } dd { (configuration.server_version) }
                    @for (name, value) in &configuration.options { dt { (name) } dd { (value) } }
                }
                @if !configuration.yaml.is_empty() {
                    details.print { summary { "Configuration file" } pre { (configuration.yaml) } }
                }
            }
        }
    }
}

fn machine(page: &Page) -> Markup {
    let machine = &page.session.machine;
    let known = |text: &str| or_dash((!text.is_empty()).then(|| text.to_owned()));
    html! {
        section id="machine" {
            h2 { "Machine" }
            dl.facts {
                dt { "Processor" } dd { (known(&machine.cpu)) @if machine.cores > 0 { ", " (machine.cores) " usable" } }
                dt { "Memory" } dd { @if machine.memory_bytes > 0 { (number::bytes(machine.memory_bytes as f64)) } @else { "–" } }
                dt { "Kernel" } dd { (known(&machine.kernel)) }
                dt { "File system" } dd { (known(&machine.file_system)) }
                dt { "Disk" } dd { (known(&machine.disk)) }
                dt { "Begun" } dd { (moment(page.session.started_ms)) }
                dt { "Tool" } dd { (page.session.tool) }
            }
            p { "Called as:" }
            pre { (page.session.command_line.join(" ")) }
        }
    }
}

/// The notes of all runs, each once.
fn notes(page: &Page) -> Markup {
    let mut notes: Vec<(&str, Vec<String>)> = Vec::new();
    for run in &page.session.runs {
        let place = format!("{}, {}: {}", run.workload, run.phase, run.configuration.label);
        for note in &run.notes {
            match notes.iter_mut().find(|entry| entry.0 == note) {
                Some(entry) => entry.1.push(place.clone()),
                None => notes.push((note, vec![place.clone()])),
            }
        }
    }
    html! {
        @if !notes.is_empty() {
            section id="notes" {
                h2 { "What was not possible" }
                ul { @for (note, places) in &notes {
                    li { (note) " " span.soft.small { @if places.len() == 1 { "(" (places[0]) ")" } @else { "(" (places.len()) " runs)" } } }
                } }
            }
        }
    }
}

fn reading() -> Markup {
    html! {
        section id="reading" {
            h2 { "How to read this" }
            ul {
                li { "Operations per second count what was answered without an error. A batch counts each of its documents; its latency is that of the whole batch." }
                li { "In a closed loop a client waits for an answer before it asks again, so that a slow server is asked less. In an open loop operations start by the clock, and latency counts from when they should have started." }
                li { "p99 is the latency that 99 % of the commands did not exceed." }
                li { "Bytes read and written are what the server's process moved from and to storage, not what it asked the page cache for." }
                li { "Write amplification is bytes written to storage per byte of documents that the clients wrote." }
                li { "The load generator shares the machine with the server unless it loaded another one. Its share of the processor time is in the tables." }
                li { "Noise is how much repetitions of one configuration differ, over all configurations, or the spread of batches of seconds within the runs where that is larger. Intervals hold the true ratio in 99 of 100 cases, for all figures of a work together. What was measured once has no verdict, nor has a work in whose time other programs took more than a tenth of the processors." }
                li { "Results are of this machine, this scale and this time. Compare within a report, or two reports of one machine." }
            }
        }
    }
}
