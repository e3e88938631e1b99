//! The charts' data. The page's script draws them; this decides what they show.

use crate::experiment::Pool;
use crate::{Run, Series};
use maud::{Markup, html};
use serde::{Serialize, Serializer};

/// Colours of configurations; further ones have them again with dashes.
pub const COLORS: usize = 8;
/// Points of one line. More would be closer than a pixel.
const POINTS_MAX: usize = 240;

/// All charts of a page, in its order.
#[derive(Default)]
pub struct Charts(Vec<Chart>);

/// What a chart's axis counts.
#[derive(Clone, Copy, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Unit {
    /// Plain numbers.
    Number,
    /// Bytes.
    Bytes,
    /// Seconds.
    Seconds,
}

/// One chart.
#[derive(Serialize)]
pub struct Chart {
    title: String,
    #[serde(flatten)]
    kind: Kind,
}

#[derive(Serialize)]
#[serde(tag = "kind", rename_all = "camelCase")]
enum Kind {
    #[serde(rename_all = "camelCase")]
    Lines {
        unit: Unit,
        x_name: &'static str,
        dots: bool,
        small: bool,
        series: Vec<LineOf>,
    },
    Percentiles {
        names: [&'static str; 7],
        domain: [f64; 2],
        series: Vec<PercentilesOf>,
    },
    Bars {
        unit: Unit,
        rows: Vec<Bar>,
    },
}

/// One line: a point is its place, the mean there, the least and the most.
#[derive(Serialize)]
pub struct LineOf {
    /// The configuration.
    pub label: String,
    /// The number of its colour.
    pub color: usize,
    /// Its points.
    #[serde(serialize_with = "short_points")]
    pub points: Vec<[f64; 4]>,
}

/// The page has thousands of points: one whose least and most are its mean goes without them, a whole number without a
/// fraction.
fn short_points<S: Serializer>(points: &[[f64; 4]], to: S) -> Result<S::Ok, S::Error> {
    to.collect_seq(points.iter().map(|point| {
        let [_, mean, low, high] = *point;
        let plain = low == mean && high == mean;
        let values = if plain { &point[..2] } else { &point[..] };
        values.iter().map(|value| whole_or_not(*value)).collect::<Vec<_>>()
    }))
}

fn whole_or_not(value: f64) -> serde_json::Value {
    /// Whole numbers up to here are exact.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    if value.fract() == 0.0 && value.abs() < EXACT {
        (value as i64).into()
    } else {
        value.into()
    }
}

#[derive(Serialize)]
struct PercentilesOf {
    label: String,
    color: usize,
    values: [f64; 7],
}

/// One bar, of one part or of several after each other.
#[derive(Serialize)]
pub struct Bar {
    /// The configuration.
    pub label: String,
    /// The number of its colour.
    pub color: usize,
    /// Lengths of its parts.
    pub parts: Vec<f64>,
}

const PERCENTILES: [&str; 7] = ["p50", "p90", "p95", "p99", "p99.9", "p99.99", "max"];

impl Charts {
    /// The data for the script. Within a script element `<` could end it.
    pub fn json(&self) -> String {
        let json = serde_json::to_string(&self.0).expect("plain data is JSON");
        json.replace('<', "\\u003c")
    }

    fn add(&mut self, title: &str, kind: Kind, caption: &str) -> Markup {
        let number = self.0.len();
        self.0.push(Chart {
            title: title.to_owned(),
            kind,
        });
        html! {
            figure {
                h4 { (title) }
                div.plot data-chart=(number) role="img" aria-label=(title) {}
                @if !caption.is_empty() { figcaption { (caption) } }
            }
        }
    }

    /// Lines over time; nothing when there is none.
    pub fn over_time(&mut self, title: &str, caption: &str, unit: Unit, size: Size, lines: Vec<LineOf>) -> Markup {
        let series: Vec<_> = lines.into_iter().filter(|line| line.points.len() > 1).collect();
        if series.is_empty() {
            return html! {};
        }
        let small = size == Size::Small;
        self.add(
            title,
            Kind::Lines {
                unit,
                x_name: "second",
                dots: false,
                small,
                series,
            },
            caption,
        )
    }

    /// Lines over numbered passes.
    pub fn over_passes(&mut self, title: &str, caption: &str, lines: Vec<LineOf>) -> Markup {
        let series: Vec<_> = lines.into_iter().filter(|line| line.points.len() > 1).collect();
        if series.is_empty() {
            return html! {};
        }
        let kind = Kind::Lines {
            unit: Unit::Seconds,
            x_name: "pass",
            dots: true,
            small: false,
            series,
        };
        self.add(title, kind, caption)
    }

    /// Bars; nothing when no configuration has the figure.
    pub fn bars(&mut self, title: &str, caption: &str, unit: Unit, rows: Vec<Bar>) -> Markup {
        if rows.iter().all(|row| row.parts.iter().all(|part| *part <= 0.0)) {
            return html! {};
        }
        self.add(title, Kind::Bars { unit, rows }, caption)
    }

    /// The percentiles of one operation, on an axis that all its siblings have.
    pub fn percentiles(&mut self, operation: &str, domain: [f64; 2], pools: &[(usize, &Pool)]) -> Markup {
        let series: Vec<_> = pools
            .iter()
            .filter_map(|(color, pool)| {
                let values = percentiles_of(pool, operation)?;
                Some(PercentilesOf {
                    label: pool.configuration.label.clone(),
                    color: *color,
                    values,
                })
            })
            .collect();
        if series.is_empty() {
            return html! {};
        }
        self.add(
            operation,
            Kind::Percentiles {
                names: PERCENTILES,
                domain,
                series,
            },
            "",
        )
    }
}

/// How much room a chart has.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Size {
    /// The page's width.
    Wide,
    /// One of several beside each other.
    Small,
}

/// The percentiles of the repetition that tables show, or else of the first that has them, in seconds; a logarithmic
/// axis has no zero.
fn percentiles_of(pool: &Pool, operation: &str) -> Option<[f64; 7]> {
    let mut runs = pool.typical().into_iter().chain(pool.runs.iter().copied());
    let latency = runs.find_map(|run| run.operations.get(operation)?.latency.as_ref())?;
    let ns = [
        latency.p50_ns,
        latency.p90_ns,
        latency.p95_ns,
        latency.p99_ns,
        latency.p999_ns,
        latency.p9999_ns,
        latency.max_ns,
    ];
    Some(ns.map(|ns| ns.max(1) as f64 / 1e9))
}

/// An axis for the percentiles of several operations.
pub fn percentiles_domain(operations: &[&str], pools: &[(usize, &Pool)]) -> [f64; 2] {
    let all = operations
        .iter()
        .flat_map(|name| pools.iter().filter_map(|(_, pool)| percentiles_of(pool, name)))
        .flatten();
    let (low, high) = all.fold((f64::INFINITY, 0.0f64), |(low, high), value| {
        (low.min(value), high.max(value))
    });
    if low > high {
        [1e-6, 1.0]
    } else {
        [low / 1.3, high * 1.3]
    }
}

/// A column of a series as a line: values per second, thinned to what can be seen.
pub fn line_of(label: &str, color: usize, series: &Series, column: &[u64], scale: f64) -> LineOf {
    let seconds = series.interval_seconds;
    let rates: Vec<f64> = column.iter().map(|&value| value as f64 * scale).collect();
    let step = rates.len().div_ceil(POINTS_MAX).max(1);
    let points = rates.chunks(step).enumerate().map(|(index, chunk)| {
        let low = chunk.iter().copied().fold(f64::INFINITY, f64::min);
        let high = chunk.iter().copied().fold(0.0, f64::max);
        let mean = chunk.iter().sum::<f64>() / chunk.len() as f64;
        [(index * step) as f64 * seconds, mean, low, high].map(rounded)
    });
    LineOf {
        label: label.to_owned(),
        color,
        points: points.collect(),
    }
}

/// The passes of a run as a line.
pub fn passes_of(label: &str, color: usize, run: &Run) -> LineOf {
    let points = run.iterations.iter().enumerate().map(|(index, pass)| {
        let seconds = rounded(pass.seconds);
        [(index + 1) as f64, seconds, seconds, seconds]
    });
    LineOf {
        label: label.to_owned(),
        color,
        points: points.collect(),
    }
}

/// Five digits: what a picture can show, in a smaller page.
fn rounded(value: f64) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return 0.0;
    }
    let scale = 10f64.powf(4.0 - value.abs().log10().floor());
    let scaled = (value * scale).round() / scale;
    if scaled.is_finite() { scaled } else { value }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::tests::run;
    use crate::{Experiment, Latency, Machine, Outcome, Session};

    fn measured(repetition: u32, count: u64, p99_ns: u64) -> Run {
        let mut run = run("btree", "c", count);
        run.repetition = repetition;
        if let Some(read) = run.operations.get_mut("read") {
            read.latency = Some(Latency {
                p99_ns,
                ..Latency::default()
            });
        }
        run
    }

    /// A chart beside a table must not be of another repetition.
    #[test]
    fn charts_are_of_the_repetition_that_tables_show() {
        let mut session = Session::new("test", 0, Vec::new(), Machine::default());
        session.runs = [(0, 900, 1_000), (1, 500, 2_000), (2, 100, 3_000)]
            .map(|(repetition, count, p99_ns)| measured(repetition, count, p99_ns))
            .to_vec();
        let p99 = |session: &Session| {
            let experiments = Experiment::all(session);
            percentiles_of(&experiments[0].pools[0], "read").map(|values| values[3])
        };
        assert_eq!(p99(&session), Some(2e-6));
        if let Some(read) = session.runs[1].operations.get_mut("read") {
            read.latency = None;
        }
        assert_eq!(p99(&session), Some(1e-6), "or of one that has any");
    }

    /// Where the first configuration failed, the page had no column for what the others measured.
    #[test]
    fn the_busiest_operation_is_known_without_the_first_configuration() {
        let mut session = Session::new("test", 0, Vec::new(), Machine::default());
        let mut failed = run("rocksdb", "c", 1);
        failed.outcome = Outcome::Failed {
            message: "full disk".to_owned(),
        };
        session.runs = vec![failed, measured(0, 500, 2_000)];
        let experiments = Experiment::all(&session);
        assert!(experiments[0].busiest().is_some());
    }
}
