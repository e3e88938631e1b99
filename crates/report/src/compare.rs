//! Two sessions made at different times: what became better or worse, with noise taken into account.

use crate::measure::{Measure, Verdict};
use crate::noise::{Basis, Estimate, Ratio};
use crate::{Experiment, Outcome, Pool, Run, Session, number};
use std::fmt::Write as _;

pub use crate::measure::TOLERANCE;

/// What came of comparing two sessions.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// When the older one began, in milliseconds since 1970 UTC.
    pub before_ms: i64,
    /// When the newer one began.
    pub after_ms: i64,
    /// Differences below this share are none.
    pub tolerance: f64,
    /// One line per work, configuration and measure that both have.
    pub lines: Vec<Line>,
    /// What could not be compared, or only with care, in sentences.
    pub notes: Vec<String>,
    /// What the older session measured and the newer one lacks: it failed there, collapsed, or is missing. Sentences.
    pub failures: Vec<String>,
}

/// One figure before and after.
#[derive(Clone, Debug)]
pub struct Line {
    /// Workload and phase.
    pub work: String,
    /// Clients, pacing and parameters.
    pub detail: String,
    /// Label of the configuration.
    pub configuration: String,
    /// The measure.
    pub measure: Measure,
    /// The figure of the older session.
    pub before: Estimate,
    /// The figure of the newer session.
    pub after: Estimate,
    /// After divided by before; `None` when one of them is zero.
    pub ratio: Option<Ratio>,
    /// What the newer figure is.
    pub verdict: Verdict,
    /// Other programs had too much of the processors for a verdict.
    pub is_disturbed: bool,
}

/// Compares `after` with `before`. A difference below the tolerance (a share such as [`TOLERANCE`]) is none.
pub fn compare(before: &Session, after: &Session, tolerance: f64) -> Comparison {
    let mut comparison = Comparison {
        before_ms: before.started_ms,
        after_ms: after.started_ms,
        tolerance,
        lines: Vec::new(),
        notes: notes_of_machines(before, after),
        failures: Vec::new(),
    };
    let of_before = Experiment::all(before);
    let of_after = Experiment::all(after);
    let mut paired = Vec::new();
    for old in &of_before {
        let same = of_after.iter().position(|new| new.work == old.work);
        let like = |new: &Experiment| {
            new.work.added_to(&old.work).is_some() && !of_before.iter().any(|other| other.work == new.work)
        };
        match same.or_else(|| of_after.iter().position(like)) {
            Some(index) => {
                let new = &of_after[index];
                paired.push(index);
                if let Some(added) = new.work.added_to(&old.work).filter(|added| !added.is_empty()) {
                    comparison.note(format!(
                        "{} ({}): the older one does not tell its {}, which may have been another.",
                        new.work.name(),
                        new.work.detail(),
                        added.join(", ")
                    ));
                }
                comparison.add(old, new);
            }
            None => {
                let said = format!("{} ({}) is only in the older one.", old.work.name(), old.work.detail());
                if old.pools.iter().any(is_measured) {
                    comparison.fail(said.clone());
                }
                comparison.note(said);
            }
        }
    }
    for (index, new) in of_after.iter().enumerate() {
        if !paired.contains(&index) {
            comparison.note(format!(
                "{} ({}) is only in the newer one.",
                new.work.name(),
                new.work.detail()
            ));
            // A server that does not start is told of in a run of its own.
            new.pools
                .iter()
                .for_each(|pool| comparison.compare_ends(&new.work.name(), None, pool));
        }
    }
    comparison.judge();
    comparison
}

impl Comparison {
    /// Judges all lines together: among hundreds, some would seem changed by chance.
    fn judge(&mut self) {
        let comparisons = self.lines.len();
        for line in &mut self.lines {
            (line.ratio, line.verdict) = line
                .measure
                .judge(&line.after, &line.before, self.tolerance, comparisons);
            if line.is_disturbed {
                line.verdict = Verdict::Unclear;
            }
        }
    }

    fn note(&mut self, note: String) {
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    fn fail(&mut self, failure: String) {
        if !self.failures.contains(&failure) {
            self.failures.push(failure);
        }
    }

    /// Whether runs that went well before do so still.
    fn compare_ends(&mut self, work: &str, before: Option<&Pool>, after: &Pool) {
        let label = &after.configuration.label;
        let failure = |pool: &Pool| {
            let mut outcomes = pool.without.iter().map(|run| run.outcome.clone());
            outcomes.find(|outcome| matches!(outcome, Outcome::Failed { .. }))
        };
        let collapse = |pool: &Pool| pool.runs.iter().any(|run| run.collapsed().is_some());
        if before.and_then(failure).is_none()
            && let Some(Outcome::Failed { message }) = failure(after)
        {
            self.fail(format!("{work}: {label} failed in the newer one: {message}"));
        }
        if before.is_some_and(is_measured) && !is_measured(after) {
            self.fail(format!("{work}: {label} has no whole run in the newer one."));
        }
        if !before.is_some_and(collapse) && collapse(after) {
            let said = format!("{work}: {label} collapsed in the newer one");
            // Those who take the processors make a server stand still as well.
            let collapsed = || after.runs.iter().filter(|run| run.collapsed().is_some());
            match collapsed().filter_map(|run| run.disturbed()).reduce(f64::max) {
                Some(share) if collapsed().all(|run| run.disturbed().is_some()) => self.note(format!(
                    "{said}, beside other programs that took {} of the processors.",
                    number::percent(share)
                )),
                _ => self.fail(format!("{said}.")),
            }
        }
        let (old, new) = (before.and_then(most_faulty), most_faulty(after));
        if let Some(new) = new
            && has_more_faults(old, new, self.tolerance)
        {
            let [old, new] = [old.map_or(0, Run::faults), new.faults()];
            self.fail(format!(
                "{work}: {new} operations of a run of {label} failed in the newer one, {old} in the older one."
            ));
        }
    }

    /// What is no matter of speed: documents are right, or they are not.
    fn compare_documents(&mut self, work: &str, before: &Pool, after: &Pool) {
        let label = &after.configuration.label;
        let figures = |pool: &Pool, name: &str| -> Vec<f64> {
            let figures = pool.runs.iter().chain(&pool.without);
            figures.filter_map(|run| run.figures.get(name).copied()).collect()
        };
        let most = |pool: &Pool, name: &str| figures(pool, name).into_iter().reduce(f64::max);
        let options = &after.configuration.options;
        let option = |name: &str| options.get(name).map_or("", String::as_str);
        let is_acknowledged = option("writeConcern") != "NORMAL";
        let wrong = crate::WRONG.map(|name| (name, format!("{name} documents")));
        let lost = is_acknowledged.then(|| (crate::LOST, "lost documents".to_owned()));
        let lost_writes = (crate::LOST_WRITES, "acknowledged writes that are not there".to_owned());
        for (name, what) in wrong.into_iter().chain(lost).chain([lost_writes]) {
            if let (Some(old), Some(new)) = (most(before, name), most(after, name))
                && new > old
            {
                self.fail(format!(
                    "{work}: {label} has {new} {what} in the newer one, {old} in the older one."
                ));
            }
        }
        // Secondaries, and readers of what nobody acknowledged, may be behind, now more, now less.
        let all_must_be_there =
            is_acknowledged && (option("members").is_empty() || option("writeConcern") == "REPLICA_ALL");
        let least = |pool: &Pool| figures(pool, crate::CONSISTENT).into_iter().reduce(f64::min);
        if let (Some(old), Some(new)) = (least(before), least(after))
            && all_must_be_there
            && new < old
        {
            let [new, old] = [new, old].map(number::percent);
            self.fail(format!(
                "{work}: {new} of {label}'s reads are consistent in the newer one, {old} in the older one."
            ));
        }
    }

    fn add(&mut self, old: &Experiment, new: &Experiment) {
        let work = old.work.name();
        for before in &old.pools {
            let label = &before.configuration.label;
            let Some(after) = new.pool(label) else {
                let said = format!("{work}: {label} is only in the older one.");
                if is_measured(before) {
                    self.fail(said.clone());
                }
                self.note(said);
                continue;
            };
            if before.configuration.engine != after.configuration.engine
                || before.configuration.options != after.configuration.options
            {
                self.note(format!("{label} is set up differently in the two."));
            }
            for (pool, which) in [(before, "older"), (after, "newer")] {
                let outcome = pool.without.first().map(|run| &run.outcome);
                if let Some(message) = outcome.and_then(crate::Outcome::message) {
                    let word = outcome.map_or("", crate::Outcome::word);
                    self.note(format!("{work}: {label} {word} in the {which} one: {message}"));
                }
            }
            let seeds = |pool: &Pool| {
                pool.runs
                    .iter()
                    .map(|run| run.seed)
                    .collect::<std::collections::BTreeSet<_>>()
            };
            if !before.runs.is_empty() && !after.runs.is_empty() && seeds(before) != seeds(after) {
                self.note(format!(
                    "{work}: {label} has other seeds in the two, and so other data and choices."
                ));
            }
            self.compare_ends(&work, Some(before), after);
            self.compare_documents(&work, before, after);
            let measures = Measure::of(before);
            let disturbed = old.disturbed().or(new.disturbed());
            if let Some(share) = disturbed {
                self.note(format!(
                    "{work}: other programs took {} of the processors: nothing is said of it.",
                    number::percent(share)
                ));
            }
            let (measures, others): (Vec<_>, Vec<_>) = measures
                .into_iter()
                .partition(|measure| measure.is_counted_alike(before, after));
            if !others.is_empty() {
                let names: Vec<String> = others.iter().map(Measure::name).collect();
                self.note(format!(
                    "{} of {label}: the two builds count otherwise, and nothing is said of it.",
                    names.join(", ")
                ));
            }
            for measure in measures.into_iter().filter(|measure| measure.comparable(before, after)) {
                let (Some(of_before), Some(of_after)) = (measure.estimate(before), measure.estimate(after)) else {
                    continue;
                };
                self.lines.push(Line {
                    work: work.clone(),
                    detail: old.work.detail(),
                    configuration: label.clone(),
                    measure,
                    before: of_before,
                    after: of_after,
                    ratio: None,
                    verdict: Verdict::Unclear,
                    is_disturbed: disturbed.is_some(),
                });
            }
        }
        for after in &new.pools {
            let label = &after.configuration.label;
            if old.pool(label).is_none() {
                self.compare_ends(&work, None, after);
                self.note(format!("{work}: {label} is only in the newer one."));
            }
        }
    }

    /// Lines with a verdict.
    pub fn count(&self, verdict: Verdict) -> usize {
        self.lines.iter().filter(|line| line.verdict == verdict).count()
    }

    /// True when something became worse, or what was measured before is not any more: a check in CI fails by this.
    pub fn is_worse(&self) -> bool {
        self.count(Verdict::Worse) > 0 || !self.failures.is_empty()
    }

    /// True when nothing could be told of any figure, or of no throughput where there is one: such a comparison has not
    /// looked at whether anything became worse.
    pub fn is_mute(&self) -> bool {
        let is_rate = |line: &&Line| line.measure == Measure::Throughput;
        let is_told = |line: &Line| line.verdict != Verdict::Unclear;
        let mut rates = self.lines.iter().filter(is_rate).peekable();
        match rates.peek() {
            Some(_) => !rates.any(is_told),
            None => !self.lines.iter().any(is_told),
        }
    }

    /// The counts in a sentence.
    pub fn summary(&self) -> String {
        if self.lines.is_empty() {
            return "Nothing was compared: no figure is in both.".to_owned();
        }
        let counts = [Verdict::Better, Verdict::Worse, Verdict::Same, Verdict::Unclear];
        let counts = counts.map(|verdict| format!("{} {}", self.count(verdict), verdict.word()));
        format!("{} figures compared: {}.", self.lines.len(), counts.join(", "))
    }

    /// What the verdicts mean.
    pub fn legend(&self) -> String {
        format!(
            "Better or worse: a change beyond {} that holds at 99 % even among all {} figures. Same: within {}, and three times \
             that is ruled out. Unclear: the noise is too large to tell, or was not measured, which a tilde marks: of two sessions each \
             needs repetitions.",
            number::percent(self.tolerance),
            self.lines.len(),
            number::percent(self.tolerance),
        )
    }

    /// All of it as text for a terminal.
    pub fn text(&self) -> String {
        let mut text = String::new();
        let mut work = None;
        for line in &self.lines {
            let title = format!("{} ({}) {}", line.work, line.detail, line.configuration);
            if work.as_ref() != Some(&title) {
                let _ = write!(
                    text,
                    "\n{title}\n{:<28} {:>12} {:>12} {:>8} {:>18}  verdict\n",
                    "measure", "before", "after", "ratio", "99 % interval"
                );
                work = Some(title);
            }
            text.push_str(&line.text());
        }
        for note in &self.notes {
            let _ = write!(text, "\nnote: {note}");
        }
        for failure in &self.failures {
            let _ = write!(text, "\nFAILED: {failure}");
        }
        let _ = writeln!(text, "\n{}", self.summary());
        if !self.lines.is_empty() {
            text += &format!("{}\n", self.legend());
        }
        text
    }
}

impl Line {
    fn text(&self) -> String {
        let ratio = self.ratio.map_or("-".to_owned(), |ratio| number::ratio(ratio.value));
        let verdict = match self.verdict {
            Verdict::Worse => "WORSE",
            other => other.word(),
        };
        format!(
            "{:<28} {:>12} {:>12} {:>8} {:>18}  {verdict}\n",
            self.measure.name(),
            self.measure.show(self.before.value),
            self.measure.show(self.after.value),
            ratio,
            self.interval(),
        )
    }

    /// The interval of the ratio; with a tilde when its noise was not measured.
    pub fn interval(&self) -> String {
        let assumed = [self.before.basis, self.after.basis].contains(&Basis::Once);
        let mark = if assumed { "~" } else { "" };
        self.ratio.map_or("-".to_owned(), |ratio| {
            format!("{mark}{:.2} to {:.2}", ratio.low, ratio.high)
        })
    }
}

/// So many more operations that failed are chance.
const FAULTS_SAME: f64 = 10.0;
/// And so many standard deviations of a number of rare events.
const FAULTS_SPREADS: f64 = 4.0;

/// All that was tried.
fn attempts(run: &Run) -> f64 {
    run.count() as f64 + run.faults() as f64
}

fn fault_share(run: &Run) -> f64 {
    run.faults() as f64 / attempts(run).max(1.0)
}

/// The run of which the largest share failed.
fn most_faulty<'p>(pool: &Pool<'p>) -> Option<&'p Run> {
    let runs = pool.runs.iter().chain(&pool.without).copied();
    runs.max_by(|a, b| fault_share(a).total_cmp(&fault_share(b)))
}

/// Whether more operations fail than before: where none did, any; else more than chance and the tolerance explain.
fn has_more_faults(old: Option<&Run>, new: &Run, tolerance: f64) -> bool {
    let faults = new.faults() as f64;
    let expected = old.map_or(0.0, fault_share) * attempts(new);
    if expected <= 0.0 {
        return faults > 0.0;
    }
    let by_chance = FAULTS_SAME.max(FAULTS_SPREADS * expected.sqrt());
    faults > expected * (1.0 + tolerance) && faults > expected + by_chance
}

/// Whether a run of it went to its end.
fn is_measured(pool: &Pool) -> bool {
    pool.runs.iter().any(|run| run.outcome == Outcome::Complete)
}

/// Of a server that was running, nobody knows on which disk its data is.
fn known(text: &str) -> &str {
    if text.is_empty() { "unknown" } else { text }
}

fn notes_of_machines(before: &Session, after: &Session) -> Vec<String> {
    let (a, b) = (&before.machine, &after.machine);
    let texts = [
        ("processor", &a.cpu, &b.cpu),
        ("kernel", &a.kernel, &b.kernel),
        ("file system", &a.file_system, &b.file_system),
        ("disk", &a.disk, &b.disk),
    ];
    let mut notes: Vec<String> = texts
        .into_iter()
        .filter(|(_, before, after)| before != after)
        .map(|(name, before, after)| format!("Another {name}: {} before, {} after.", known(before), known(after)))
        .collect();
    if (a.cores, a.memory_bytes) != (b.cores, b.memory_bytes) {
        let machine = |cores, memory| format!("{cores} processors and {}", number::bytes(memory as f64));
        notes.push(format!(
            "Another machine: {} before, {} after.",
            machine(a.cores, a.memory_bytes),
            machine(b.cores, b.memory_bytes)
        ));
    }
    notes
}
