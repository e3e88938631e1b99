//! Prometheus' text format 0.0.4, written from `serverStatus` and `replSetGetStatus`.

use super::families::{FAMILIES, Kind, Source};
use bson::{Bson, Document};
use std::fmt::Write;

/// Upper bounds of the latency histograms, as powers of two of microseconds: 16 microseconds to 67 seconds. Ranges of
/// `opLatencies` end at each of them.
const LATENCY_BOUNDS: std::ops::RangeInclusive<u32> = 4..=26;

/// The metrics of a server. `set`: of a member that may be asked.
pub fn text(status: &Document, set: Option<&Document>) -> String {
    let mut text = Exposition::default();
    build_info(&mut text, status);
    for family in FAMILIES {
        let divided = |figure: f64| figure / family.divisor;
        let samples: Vec<(Option<(&str, &str)>, f64)> = match &family.source {
            Source::One(path) => figure_at(status, path)
                .map(|figure| (None, divided(figure)))
                .into_iter()
                .collect(),
            Source::Labelled(label, values) => values
                .iter()
                .filter_map(|(value, path)| Some((Some((*label, *value)), divided(figure_at(status, path)?))))
                .collect(),
            Source::Each(label, path, below) => fields(status, path)
                .filter_map(|(name, of)| Some((Some((*label, name)), divided(figure_at(of.as_document()?, below)?))))
                .collect(),
        };
        if samples.is_empty() {
            continue;
        }
        text.family(family.name, family.kind.name(), family.help);
        for (label, figure) in samples {
            text.sample(family.name, label.as_slice(), figure);
        }
    }
    latencies(&mut text, status);
    engine(&mut text, status);
    if let Some(set) = set {
        members(&mut text, set);
    }
    open_files(&mut text);
    text.0
}

/// The text so far.
#[derive(Default)]
struct Exposition(String);

impl Exposition {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        let _ = write!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], figure: f64) {
        self.0.push_str(name);
        for (position, (label, value)) in labels.iter().enumerate() {
            let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            let before = if position == 0 { '{' } else { ',' };
            let _ = write!(self.0, "{before}{label}=\"{value}\"");
        }
        if !labels.is_empty() {
            self.0.push('}');
        }
        let _ = writeln!(self.0, " {figure}");
    }
}

/// The number at a dotted path; `true` is 1.
fn figure_at(document: &Document, path: &str) -> Option<f64> {
    let (head, rest) = match path.split_once('.') {
        Some((head, rest)) => (head, Some(rest)),
        None => (path, None),
    };
    match (document.get(head)?, rest) {
        (Bson::Document(inner), Some(rest)) => figure_at(inner, rest),
        (value, None) => figure(value),
        _ => None,
    }
}

fn figure(value: &Bson) -> Option<f64> {
    match value {
        Bson::Int32(number) => Some(f64::from(*number)),
        Bson::Int64(number) => Some(*number as f64),
        Bson::Double(number) => Some(*number),
        Bson::Boolean(truth) => Some(f64::from(u8::from(*truth))),
        _ => None,
    }
}

/// The fields of the document at a dotted path; none where there is no document.
fn fields<'d>(document: &'d Document, path: &str) -> impl Iterator<Item = (&'d str, &'d Bson)> {
    let mut at = Some(document);
    for name in path.split('.') {
        at = at.and_then(|document| document.get_document(name).ok());
    }
    at.into_iter().flatten().map(|(name, value)| (name.as_str(), value))
}

fn build_info(text: &mut Exposition, status: &Document) {
    let name = "tenon_build_info";
    text.family(name, "gauge", "1; the labels say what is served, and as what.");
    let of = |section: &str, field: &str| status.get_document(section).and_then(|section| section.get_str(field));
    let labels = [
        ("version", of("tenon", "version").unwrap_or("")),
        ("emulates", status.get_str("version").unwrap_or("")),
        ("engine", of("storageEngine", "name").unwrap_or("")),
        ("commit", env!("TENON_GIT_VERSION")),
    ];
    text.sample(name, &labels, 1.0);
}

/// Histograms of how long operations took.
fn latencies(text: &mut Exposition, status: &Document) {
    let name = "tenon_operation_latency_seconds";
    text.family(name, "histogram", "How long operations took, from request to reply.");
    for (kind, of) in fields(status, "opLatencies") {
        let Some(of) = of.as_document() else { continue };
        let empty = Vec::new();
        let ranges = of.get_array("histogram").unwrap_or(&empty).iter().filter_map(|range| {
            let range = range.as_document()?;
            Some((range.get_i64("micros").ok()?, range.get_i64("count").ok()?))
        });
        let ranges: Vec<(i64, i64)> = ranges.collect();
        let below = |bound: i64| -> i64 {
            let counts = ranges.iter().filter(|(from, _)| *from < bound).map(|(_, count)| count);
            counts.sum()
        };
        let bucket = format!("{name}_bucket");
        for power in LATENCY_BOUNDS {
            let bound = 1_i64 << power;
            let seconds = (bound as f64 / 1e6).to_string();
            text.sample(&bucket, &[("type", kind), ("le", &seconds)], below(bound) as f64);
        }
        // Of the same moment as the ranges: a histogram has to agree with itself.
        let all = below(i64::MAX) as f64;
        text.sample(&bucket, &[("type", kind), ("le", "+Inf")], all);
        let sum = figure_at(of, "latency").unwrap_or(0.0) / 1e6;
        text.sample(&format!("{name}_sum"), &[("type", kind)], sum);
        text.sample(&format!("{name}_count"), &[("type", kind)], all);
    }
}

/// Everything else that the engine counts, under the names that `serverStatus().tenon.engine` has.
fn engine(text: &mut Exposition, status: &Document) {
    let name = "tenon_engine_figure";
    text.family(
        name,
        "untyped",
        "A figure of the storage engine, as in serverStatus().tenon.engine.",
    );
    for (group, figures) in fields(status, "tenon.engine") {
        match figures {
            Bson::Document(figures) => {
                for (figure_name, value) in figures {
                    if let Some(value) = figure(value) {
                        text.sample(name, &[("figure", &format!("{group}.{figure_name}"))], value);
                    }
                }
            }
            value => {
                if let Some(value) = figure(value) {
                    text.sample(name, &[("figure", group)], value);
                }
            }
        }
    }
}

/// How the members of a replica set are, as this one sees them.
fn members(text: &mut Exposition, set: &Document) {
    let empty = Vec::new();
    let members = || {
        set.get_array("members")
            .unwrap_or(&empty)
            .iter()
            .filter_map(Bson::as_document)
    };
    let host = |member: &Document| member.get_str("name").unwrap_or("").to_owned();
    // Of one that does not answer the time of its newest write is what it was, or 1970.
    let answers = |member: &Document| figure_at(member, "health").is_some_and(|health| health > 0.0);
    let seconds = |member: &Document| {
        let newest = member.get_datetime("optimeDate").ok()?.timestamp_millis();
        (answers(member) && newest > 0).then_some(newest as f64 / 1e3)
    };
    let mut each = |name: &str, help: &str, figure: &dyn Fn(&Document) -> Option<f64>| {
        text.family(name, "gauge", help);
        for member in members() {
            if let Some(figure) = figure(member) {
                text.sample(name, &[("member", &host(member))], figure);
            }
        }
    };
    each(
        "tenon_member_state",
        "State of each member as replSetGetStatus numbers them: 1 primary, 2 secondary.",
        &|member| figure_at(member, "state"),
    );
    each("tenon_member_up", "1 for a member that answers.", &|member| {
        figure_at(member, "health")
    });
    let primary = members()
        .find(|member| member.get_i32("state").is_ok_and(|state| state == 1))
        .and_then(seconds);
    each(
        "tenon_member_lag_seconds",
        "How far the newest write of each member is behind the primary's.",
        &|member| Some((primary? - seconds(member)?).max(0.0)),
    );
    each(
        "tenon_member_ping_seconds",
        "Time that the last heartbeat of each member took.",
        &|member| Some(figure_at(member, "pingMs").filter(|_| answers(member))? / 1e3),
    );
    text.family(
        "tenon_member_term",
        "gauge",
        "The term of the set that this member knows.",
    );
    if let Some(term) = figure_at(set, "term") {
        text.sample("tenon_member_term", &[], term);
    }
}

/// Descriptors of this process: not in `serverStatus`, because to count many of them takes long.
fn open_files(text: &mut Exposition) {
    let Ok(open) = std::fs::read_dir("/proc/self/fd") else {
        return;
    };
    text.family(
        "tenon_open_files",
        Kind::Gauge.name(),
        "Files and sockets that are open.",
    );
    // One of them is the directory that is read.
    text.sample("tenon_open_files", &[], open.count().saturating_sub(1) as f64);
    if let Some(limit) = rustix::process::getrlimit(rustix::process::Resource::Nofile).current {
        text.family("tenon_open_files_max", Kind::Gauge.name(), "How many there may be.");
        text.sample("tenon_open_files_max", &[], limit as f64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bson::{DateTime, doc};
    use std::collections::HashSet;

    fn status() -> Document {
        doc! {
            "version": "8.0.12",
            "uptimeMillis": 1500_i64,
            "storageEngine": { "name": "btree" },
            "opcounters": { "insert": 3_i64, "query": 4_i64 },
            "metrics": { "commands": { "find": { "total": 4_i64, "failed": 1_i64 } } },
            "opLatencies": { "reads": { "latency": 2_500_000_i64, "ops": 9_i64, "histogram": [
                { "micros": 2_i64, "count": 2_i64 },
                { "micros": 3072_i64, "count": 1_i64 },
                { "micros": 4096_i64, "count": 4_i64 },
                { "micros": 1_i64 << 30, "count": 1_i64 },
            ] } },
            "flowControl": { "isLagged": true },
            "tenon": { "version": "0.1.0", "log": { "syncMicros": 250_000_i64 },
                "common": { "cacheBytesMax": 100_i64 }, "engine": {
                "cache": { "bytes": 10_i64 }, "tables": 7_i64, "kind": "text",
            } },
        }
    }

    #[test]
    fn figures_stand_where_the_table_says() {
        let text = text(&status(), None);
        for line in [
            r#"tenon_build_info{version="0.1.0",emulates="8.0.12",engine="btree","#,
            "tenon_uptime_seconds 1.5\n",
            r#"tenon_operations_total{type="insert"} 3"#,
            r#"tenon_commands_failed_total{command="find"} 1"#,
            "tenon_log_sync_seconds_total 0.25\n",
            "tenon_cache_max_bytes 100\n",
            "tenon_flow_control_lagged 1\n",
            r#"tenon_engine_figure{figure="cache.bytes"} 10"#,
            r#"tenon_engine_figure{figure="tables"} 7"#,
            r#"tenon_operation_latency_seconds_bucket{type="reads",le="0.000016"} 2"#,
            r#"tenon_operation_latency_seconds_bucket{type="reads",le="0.004096"} 3"#,
            r#"tenon_operation_latency_seconds_bucket{type="reads",le="0.008192"} 7"#,
            r#"tenon_operation_latency_seconds_bucket{type="reads",le="+Inf"} 8"#,
            r#"tenon_operation_latency_seconds_sum{type="reads"} 2.5"#,
            r#"tenon_operation_latency_seconds_count{type="reads"} 8"#,
            "# TYPE tenon_open_files gauge\n",
        ] {
            assert!(text.contains(line), "{line}\n{text}");
        }
        assert!(!text.contains(r#"figure="kind""#) && !text.contains("tenon_member_state"));
    }

    #[test]
    fn members_are_as_far_behind_as_their_newest_write() {
        let at = |ms: i64| DateTime::from_millis(1_000_000 + ms);
        let set = doc! { "term": 4_i64, "members": [
            { "name": "a:1", "state": 1, "health": 1.0, "optimeDate": at(5000) },
            { "name": "b:\"1", "state": 2, "health": 1.0, "optimeDate": at(2500), "pingMs": 2_i64 },
            // As replSetGetStatus tells of a member that never answered, and of one that has no data yet.
            { "name": "c:1", "state": 8, "health": 0.0, "optimeDate": DateTime::from_millis(0), "pingMs": 0_i64 },
            { "name": "d:1", "state": 5, "health": 1.0, "optimeDate": DateTime::from_millis(0), "pingMs": 1_i64 },
        ] };
        let text = text(&status(), Some(&set));
        for line in [
            r#"tenon_member_lag_seconds{member="a:1"} 0"#,
            r#"tenon_member_lag_seconds{member="b:\"1"} 2.5"#,
            r#"tenon_member_ping_seconds{member="b:\"1"} 0.002"#,
            r#"tenon_member_up{member="c:1"} 0"#,
            "tenon_member_term 4\n",
        ] {
            assert!(text.contains(line), "{line}\n{text}");
        }
        for absent in [
            r#"lag_seconds{member="c:1"}"#,
            r#"ping_seconds{member="c:1"}"#,
            r#"lag_seconds{member="d:1"}"#,
        ] {
            assert!(!text.contains(absent), "{absent}\n{text}");
        }
    }

    /// Prometheus' conventions: counters end in `_total`, nothing else does, and no name stands twice.
    #[test]
    fn names_keep_to_the_conventions() {
        let mut names = HashSet::new();
        for family in FAMILIES {
            assert!(names.insert(family.name), "{}", family.name);
            assert_eq!(
                family.kind == Kind::Counter,
                family.name.ends_with("_total"),
                "{}",
                family.name
            );
            assert!(
                family.name.starts_with("tenon_") && family.help.ends_with('.'),
                "{}",
                family.name
            );
        }
    }
}
