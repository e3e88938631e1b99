//! `tenon engine-change`: gives every member of a running set another storage engine, one after the other.
//!
//! It is a loop: look at the set, ask [`plan::next`] what is to be done, do that. All that has to be remembered stands
//! in the set itself, in the configuration of the member that is being changed, which every member keeps. A
//! reconfiguration takes a member aside and keeps its former values in one step. So the command can be killed anywhere,
//! and be run again from anywhere.

mod plan;
mod restart;
mod set;
mod verify;

use crate::connect::ServerArgs;
use crate::live;
use crate::output::say;
use anyhow::{Result, bail};
use bench::interrupt::Interrupt;
use bson::{Bson, Document, doc};
use clap::Args;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use plan::{Engine, Next, Seen, Step, View, Wish};
use restart::Restart;
use set::{NoPrimary, Set};
use std::io::IsTerminal as _;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Exit code when the user stopped it.
const EXIT_INTERRUPTED: u8 = 130;
/// Between two looks at the set.
const LOOK: Duration = Duration::from_millis(500);
/// A member that is starting at the moment answers by then, and is not wiped a second time.
const SILENCE: Duration = Duration::from_secs(10);
/// So often in a row a change of the configuration may be refused: another one came between, or the primary changed.
const REFUSALS_MAX: u32 = 10;
/// `secondaryCatchUpPeriodSecs`, and how long the former primary does not stand for election.
const STEP_DOWN_SECONDS: (i32, i32) = (30, 60);

/// Change the storage engine of a running replica set, member by member, without downtime
///
/// Each member, secondaries first and the primary last after a step down: hidden and without priority; stopped, wiped
/// and started with the other engine; waited for until it has copied all data and votes again; put back to what it was.
/// At the end all members are compared by dbHash. It can be stopped at any point and run again. See
/// docs/engine-change.md.
#[derive(Args, Debug)]
#[command(group(clap::ArgGroup::new("how").args(["restart_hook", "systemd", "manual"]).multiple(false)))]
pub struct EngineChangeCommand {
    #[command(flatten)]
    server: ServerArgs,
    /// The engine
    #[arg(long, value_name = "NAME")]
    to_engine: String,
    /// Only this member, by its host and port in the configuration; can be given several times
    #[arg(long, value_name = "HOST")]
    member: Vec<String>,
    /// A command of the shell that stops, wipes and starts $TENON_HOST with $TENON_ENGINE
    #[arg(long, value_name = "COMMAND")]
    restart_hook: Option<String>,
    /// Shows the commands for this unit of systemd, and waits until a person has executed them
    #[arg(long, value_name = "UNIT")]
    systemd: Option<String>,
    /// Tells a person what to do, and waits until it is done
    #[arg(long)]
    manual: bool,
    /// Shows the steps and does none of them
    #[arg(long)]
    dry_run: bool,
    /// A member that is more behind the primary is not healthy
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    max_lag: u64,
    /// How long to wait for a healthy set, and for a member to answer after the hook
    #[arg(long, value_name = "SECONDS", default_value_t = 120)]
    patience: u64,
    /// Holds writes back while collections are compared that never rest
    #[arg(long)]
    lock: bool,
    /// Does not compare the members at the end
    #[arg(long, conflicts_with = "lock")]
    no_verify: bool,
    /// One document for each step, instead of text
    #[arg(long)]
    json: bool,
}

impl EngineChangeCommand {
    /// Changes the set.
    pub fn run(&self) -> Result<ExitCode> {
        let restart = match (&self.restart_hook, &self.systemd, self.manual) {
            (Some(hook), _, _) => Restart::Hook(hook.clone()),
            (_, Some(unit), _) => Restart::Systemd(unit.clone()),
            (_, _, true) => Restart::Manual,
            _ if self.dry_run => Restart::Manual,
            _ => bail!("who restarts the members? Give --restart-hook, --systemd or --manual"),
        };
        let interrupt = Interrupt::new();
        interrupt.install()?;
        let mut change = Change {
            wish: Wish {
                engine: self.to_engine.clone(),
                members: self.member.iter().map(|host| with_port(host)).collect(),
                lag_max: self.max_lag,
            },
            set: Set::new(self.server.set()?, interrupt.clone()),
            restart,
            patience: Duration::from_secs(self.patience),
            interrupt: interrupt.clone(),
            teller: Teller::new(self.json),
            replaced: None,
            silent_since: None,
            refusals: 0,
        };
        let result = match self.dry_run {
            true => change.show(),
            false => change.whole().and_then(|view| match self.no_verify {
                true => Ok(()),
                false => change.verify(&view, self.lock),
            }),
        };
        change.teller.rest();
        if interrupt.asked() {
            eprintln!("stopped; run it again to go on");
            return Ok(ExitCode::from(EXIT_INTERRUPTED));
        }
        result.map(|()| ExitCode::SUCCESS)
    }
}

/// As configurations have it.
fn with_port(host: &str) -> String {
    let has_port = host.rsplit_once(':').is_some_and(|(_, port)| !port.contains(']'));
    match has_port {
        true => host.to_owned(),
        false => format!("{host}:27017"),
    }
}

struct Change {
    wish: Wish,
    set: Set,
    restart: Restart,
    patience: Duration,
    interrupt: Interrupt,
    teller: Teller,
    /// Who was restarted last, when, and by which number of its data directory it was known before.
    replaced: Option<(String, Instant)>,
    /// Who does not answer, since when.
    silent_since: Option<(String, Instant)>,
    refusals: u32,
}

impl Change {
    fn show(&mut self) -> Result<()> {
        let view = self.set.look()?;
        self.set.check_engine(&self.wish.engine)?;
        self.teller.members(&view);
        let (steps, refused) = plan::whole(&view, &self.wish);
        for (number, (_, words)) in steps.iter().enumerate() {
            self.teller.planned(number + 1, words);
        }
        match refused {
            Some(reason) => bail!("{reason}"),
            None if steps.is_empty() => self.teller.note("nothing is to be done"),
            None => self.teller.note("at the end dbHash of all members is compared"),
        }
        Ok(())
    }

    /// All steps. The set at the end.
    fn whole(&mut self) -> Result<View> {
        let (mut waits, mut is_first) = (None::<(String, Instant)>, true);
        loop {
            self.interrupt.check()?;
            let view = match self.set.look() {
                Ok(view) => view,
                Err(error) if is_first && !error.is::<NoPrimary>() => return Err(error),
                Err(error) => {
                    // After a step down the next step is due before the former primary may come back.
                    let pause = if error.is::<NoPrimary>() { LOOK / 10 } else { LOOK };
                    self.wait(&mut waits, format!("{error:#}"), pause)?;
                    continue;
                }
            };
            if std::mem::take(&mut is_first) {
                self.set.check_engine(&self.wish.engine)?;
                let (steps, _) = plan::whole(&view, &self.wish);
                self.teller.begin(&view, steps.len());
            }
            match plan::next(&view, &self.wish) {
                Next::Done => return Ok(view),
                Next::Refuse(reason) => bail!("{reason}"),
                Next::AwaitHealth(reason) => self.wait(&mut waits, reason, LOOK)?,
                Next::AwaitCopy(at, what) => {
                    waits = None;
                    self.teller.waits(&format!("{}: {what}", view.members[at].host));
                    self.sleep(LOOK);
                }
                Next::Do(Step::Replace(at)) if self.may_be_starting(&view.members[at])? => {
                    waits = None;
                    self.teller.waits(&format!(
                        "{}: it does not answer with the new engine yet",
                        view.members[at].host
                    ));
                    self.sleep(LOOK);
                }
                Next::Do(step) => {
                    waits = None;
                    self.act(&view, step)?;
                }
            }
        }
    }

    /// Something is in the way that may go by itself; but not for ever.
    fn wait(&mut self, since: &mut Option<(String, Instant)>, reason: String, pause: Duration) -> Result<()> {
        self.interrupt.check()?;
        self.teller.waits(&reason);
        let start = since.as_ref().map_or_else(Instant::now, |(_, start)| *start);
        if start.elapsed() > self.patience {
            bail!(
                "{reason}, for {} s: see to it, and run this command again",
                self.patience.as_secs()
            );
        }
        *since = Some((reason, start));
        self.sleep(pause);
        Ok(())
    }

    fn sleep(&self, pause: Duration) {
        let end = Instant::now() + pause;
        while Instant::now() < end && !self.interrupt.asked() {
            std::thread::sleep(LOOK / 10);
        }
    }

    /// Whether a member that has not the engine is given more time, instead of being wiped and started.
    fn may_be_starting(&mut self, seen: &Seen) -> Result<bool> {
        if let Some((host, at)) = &self.replaced
            && *host == seen.host
        {
            if !self.restart.is_automatic() || at.elapsed() < self.patience {
                return Ok(true);
            }
            match &seen.engine {
                Engine::Named(engine) => bail!(
                    "{host} has the engine {engine} after the hook, not {}",
                    self.wish.engine
                ),
                _ => bail!("{host} does not answer {} s after the hook", self.patience.as_secs()),
            }
        }
        // It may be what an earlier run has started.
        if seen.engine != Engine::Silent {
            return Ok(false);
        }
        let since = match &self.silent_since {
            Some((host, since)) if *host == seen.host => *since,
            _ => Instant::now(),
        };
        self.silent_since = Some((seen.host.clone(), since));
        Ok(since.elapsed() < SILENCE)
    }

    fn act(&mut self, view: &View, step: Step) -> Result<()> {
        let words = plan::words(view, &self.wish, step);
        // A member that was restarted has what it needs by now.
        self.teller.done();
        self.teller.step(&words);
        let done = match step {
            Step::Hide(at) => {
                let kept = plan::keep(&view.members[at], &self.wish);
                self.replaced = None;
                self.set
                    .reconfigure(&view.members[at].host, &|member| set::hide(member, &kept))
            }
            Step::Restore(at) => match &view.members[at].kept {
                Some(kept) => self
                    .set
                    .reconfigure(&view.members[at].host, &|member| set::restore(member, kept)),
                None => Ok(()),
            },
            Step::HandOver(_) => self.step_down(),
            Step::Replace(at) => {
                let host = &view.members[at].host;
                let teller = &mut self.teller;
                self.restart
                    .run(&self.set, host, &self.wish.engine, &mut |line| teller.note(line))?;
                self.replaced = Some((host.clone(), Instant::now()));
                Ok(())
            }
        };
        match done {
            Ok(()) => {
                self.refusals = 0;
                if !matches!(step, Step::Replace(_)) {
                    self.teller.done();
                }
                Ok(())
            }
            Err(error) if self.refusals < REFUSALS_MAX && !self.interrupt.asked() => {
                self.refusals += 1;
                self.teller.note(&format!("{error:#}; once more"));
                self.sleep(LOOK);
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// The hosts of the members with data. One that stays behind on purpose comes to what the others show only when
    /// nothing is written for that long.
    fn comparable(&self, view: &View) -> Vec<String> {
        let mut hosts = Vec::new();
        for seen in view.members.iter().filter(|seen| !seen.is_arbiter) {
            match seen.delay {
                0 => hosts.push(seen.host.clone()),
                delay => self
                    .teller
                    .note(&format!("{} stays {delay} s behind and is not compared", seen.host)),
            }
        }
        hosts
    }

    fn step_down(&mut self) -> Result<()> {
        let (catch_up, period) = STEP_DOWN_SECONDS;
        let primary = self.set.primary.clone();
        let command = doc! { "replSetStepDown": period, "secondaryCatchUpPeriodSecs": catch_up };
        self.set.run(&primary, "admin", &command)?;
        Ok(())
    }

    fn verify(&mut self, view: &View, may_lock: bool) -> Result<()> {
        self.teller.step("compare dbHash of all members");
        let hosts = self.comparable(view);
        if hosts.len() < 2 {
            self.teller.done();
            self.teller
                .note("there is no other member to compare with: nothing was compared");
            return Ok(());
        }
        // Whoever is the primary now.
        self.set.look()?;
        let compared = verify::verify(&mut self.set, &hosts, may_lock, &self.interrupt)?;
        self.teller.done();
        self.teller.note(&format!(
            "{} collections of {} databases are the same on {} members ({} rounds{})",
            compared.collections,
            compared.databases,
            hosts.len(),
            compared.rounds,
            if compared.locked {
                ", the last one with the primary locked"
            } else {
                ""
            }
        ));
        Ok(())
    }
}

/// Says what happens: lines of text or documents on standard output, and what is waited for on the screen.
struct Teller {
    is_json: bool,
    start: Instant,
    bar: ProgressBar,
    /// The step that is being done: its words and its beginning.
    step: Option<(String, Instant)>,
    number: usize,
    of: usize,
    waited_for: String,
}

impl Teller {
    fn new(is_json: bool) -> Self {
        let is_screen = std::io::stderr().is_terminal() && !is_json;
        let target = if is_screen {
            ProgressDrawTarget::stderr()
        } else {
            ProgressDrawTarget::hidden()
        };
        let bar = ProgressBar::with_draw_target(None, target);
        let bar = match ProgressStyle::with_template("{spinner} {wide_msg}") {
            Ok(style) => bar.with_style(style),
            Err(_) => bar,
        };
        Self {
            is_json,
            start: Instant::now(),
            bar,
            step: None,
            number: 0,
            of: 0,
            waited_for: String::new(),
        }
    }

    fn line(&self, text: &str, document: Document) {
        let text = match self.is_json {
            true => live::json(&document),
            false => text.to_owned(),
        };
        self.bar.suspend(|| say(&format!("{text}\n")));
    }

    fn seconds(&self) -> f64 {
        (self.start.elapsed().as_secs_f64() * 100.0).round() / 100.0
    }

    fn members(&self, view: &View) {
        for seen in &view.members {
            let engine = match &seen.engine {
                Engine::Named(name) => name.as_str(),
                _ if seen.is_arbiter => "no data",
                _ => "unknown",
            };
            let kept = if seen.kept.is_some() { ", being changed" } else { "" };
            self.line(
                &format!("{}: {engine}, {}{kept}", seen.host, seen.state.name()),
                doc! {
                    "event": "member", "member": &seen.host, "engine": engine, "state": seen.state.name(),
                    "beingChanged": seen.kept.is_some(),
                },
            );
        }
    }

    fn begin(&mut self, view: &View, steps: usize) {
        self.members(view);
        self.of = steps;
    }

    fn planned(&self, number: usize, words: &str) {
        self.line(
            &format!("{number:>3}. {words}"),
            doc! { "event": "planned", "number": number as i64, "step": words },
        );
    }

    fn step(&mut self, words: &str) {
        self.number += 1;
        let at = self.seconds();
        let of = if self.number > self.of {
            String::new()
        } else {
            format!("{}/{} ", self.number, self.of)
        };
        self.line(
            &format!("[{at:>8.2} s] {of}{words}"),
            doc! { "event": "step", "number": self.number as i64, "step": words, "seconds": at },
        );
        self.step = Some((words.to_owned(), Instant::now()));
    }

    fn done(&mut self) {
        if let Some((words, begun)) = self.step.take() {
            let (at, took) = (self.seconds(), begun.elapsed().as_secs_f64());
            self.line(
                &format!("[{at:>8.2} s]   done in {took:.2} s"),
                doc! { "event": "done", "step": words, "seconds": at, "took": Bson::Double(took) },
            );
        }
    }

    fn note(&self, text: &str) {
        self.line(text, doc! { "event": "note", "text": text });
    }

    /// Told once, as long as it stays the same; numbers that count are no news.
    fn waits(&mut self, what: &str) {
        self.bar.set_message(format!("waiting: {what}"));
        self.bar.tick();
        let news: String = what.chars().filter(|c| !c.is_ascii_digit()).collect();
        if news != self.waited_for {
            self.waited_for = news;
            let at = self.seconds();
            self.line(
                &format!("[{at:>8.2} s]   waiting: {what}"),
                doc! { "event": "waiting", "for": what, "seconds": at },
            );
        }
    }

    fn rest(&self) {
        self.bar.finish_and_clear();
    }
}
