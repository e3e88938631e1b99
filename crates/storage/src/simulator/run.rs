//! The storage under simulation, and what is checked of it.

use super::clients::Client;
use super::followers::Follower;
use super::model::{Change, InSession, Model, Uid, Unit};
use super::readers::Pin;
use super::transactions::Open;
use super::{Checked, Violation, ensure};
use crate::testing::{Kind, Machine, index, ns, pick};
use crate::{Collection, IndexSpec, Operation, Seq, SessionKey, Storage, StorageError};
use bson::rawdoc;
use oplog::Retention;
use std::collections::{BTreeMap, VecDeque};
use std::fmt::{Display, Write};
use std::hash::Hasher;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use vfs::SeededRandom;

/// Collections; the last one is capped.
pub(super) const NAMES: [&str; 4] = ["a", "b", "c", "capped"];
pub(super) const INDEXES: [&str; 3] = ["n_1", "u_1", "n_1_p_-1"];
/// Steps that a failure shows.
const STEPS_SHOWN: usize = 60;

/// How a run differs from others.
#[derive(Clone, Copy, Debug)]
pub(super) struct Setup {
    pub(super) seed: u64,
    pub(super) kind: Kind,
    /// Else entries take effect when it is said that they stay.
    pub(super) decides_alone: bool,
}

/// What was done, step by step.
#[derive(Default)]
struct Trace {
    shown: VecDeque<String>,
    hash: std::hash::DefaultHasher,
    /// Each step is shown as it is taken: for runs that do not end.
    is_live: bool,
}

impl Trace {
    fn begin(&mut self, step: u64, what: impl Display) {
        let line = format!("{step:>6}  {what}");
        if self.is_live {
            eprint!("\n{line}");
        }
        self.hash.write(line.as_bytes());
        self.shown.push_back(line);
        if self.shown.len() > STEPS_SHOWN {
            self.shown.pop_front();
        }
    }

    fn go_on(&mut self, what: impl Display) {
        let before = self.shown.back().map_or(0, String::len);
        let line = match self.shown.back_mut() {
            Some(line) => line,
            None => return,
        };
        write!(line, "{what}").expect("memory");
        if self.is_live {
            eprint!("{}", &line[before..]);
        }
        self.hash.write(&line.as_bytes()[before..]);
    }
}

/// What a run came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Figures {
    pub(super) steps: u64,
    pub(super) units: u64,
    pub(super) restarts: u64,
    pub(super) lost_units: u64,
    pub(super) retries: u64,
    pub(super) transactions: u64,
    pub(super) chains: u64,
    pub(super) conflicts: u64,
    pub(super) refused: u64,
    pub(super) told: u64,
    pub(super) history_lost: u64,
    pub(super) recycled: u64,
}

/// See the module.
pub(super) struct Simulator {
    pub(super) setup: Setup,
    pub(super) random: SeededRandom,
    pub(super) machine: Machine,
    storage: Option<Arc<Storage>>,
    pub(super) model: Model,
    /// Acknowledged as durable.
    pub(super) acknowledged: u64,
    pub(super) clients: Vec<Client>,
    pub(super) open: Vec<Option<Open>>,
    pub(super) pins: Vec<Pin>,
    pub(super) followers: Vec<Follower>,
    pub(super) next_id: i32,
    pub(super) versions: u64,
    /// The disk has little room.
    pub(super) is_full: bool,
    /// A crash is planned, or faults wait for calls.
    pub(super) is_harmed: bool,
    /// Of the last restart.
    pub(super) starts_cut_off: u64,
    /// The storage has failed, and is to start again.
    pub(super) is_down: bool,
    pub(super) figures: Figures,
    trace: Trace,
}

impl Simulator {
    pub(super) fn new(setup: Setup) -> Checked<Self> {
        let mut machine = Machine::new(setup.seed);
        let random = SeededRandom::new(setup.seed ^ 0x51B);
        machine.kind = setup.kind;
        machine.retention = Retention {
            bytes: [0, 0, 40 << 10][pick(&random, 3) as usize],
            time: Duration::from_secs([0, 0, 30][pick(&random, 3) as usize]),
        };
        machine.frame_bytes = [None, Some(512)][pick(&random, 2) as usize];
        let mut simulator = Self {
            setup,
            random,
            machine,
            storage: None,
            model: Model::default(),
            acknowledged: 0,
            clients: (0..4).map(Client::new).collect(),
            open: (0..3).map(|_| None).collect(),
            pins: Vec::new(),
            followers: Follower::all(),
            next_id: 0,
            versions: 0,
            is_full: false,
            is_harmed: false,
            starts_cut_off: 0,
            is_down: true,
            figures: Figures::default(),
            trace: Trace {
                is_live: std::env::var_os("TENON_SIMULATOR_LIVE").is_some(),
                ..Trace::default()
            },
        };
        simulator.start()?;
        Ok(simulator)
    }

    pub(super) fn storage(&self) -> Arc<Storage> {
        self.storage.clone().expect("it runs between two restarts")
    }

    pub(super) fn op(&self) -> Operation {
        self.machine.operation()
    }

    pub(super) fn pick(&self, below: u64) -> u64 {
        pick(&self.random, below)
    }

    pub(super) fn one_in(&self, of: u64) -> bool {
        self.pick(of) == 0
    }

    /// Says more of the step.
    pub(super) fn say(&mut self, what: impl Display) {
        self.trace.go_on(what);
    }

    /// The run as a number.
    pub(super) fn fingerprint(&self) -> u64 {
        let mut hash = self.trace.hash.clone();
        hash.write_u64(self.machine.fs.operations());
        hash.finish()
    }

    /// The last steps, for whoever reads of a failure.
    pub(super) fn last_steps(&self) -> String {
        let mut text = String::new();
        self.trace.shown.iter().for_each(|line| {
            text.push_str(line);
            text.push('\n');
        });
        text
    }

    /// One step of whoever it is.
    pub(super) fn step(&mut self) -> Checked {
        self.figures.steps += 1;
        let (step, chosen) = (self.figures.steps, self.pick(1000));
        if self.is_down {
            self.trace.begin(step, "restart");
            return self.restart();
        }
        let (name, act): (&str, fn(&mut Self) -> Checked) = match chosen {
            0..200 => ("insert", Self::insert_some),
            200..360 => ("change", Self::change_one),
            360..500 => ("retryable", Self::retryable),
            500..650 => ("transaction", Self::transact),
            650..680 => ("define", Self::define),
            680..740 => ("flush", Self::flush),
            740..800 => ("commit", Self::commit_some),
            800..860 => ("read", Self::read),
            860..870 => ("pin", Self::pin_or_read_pinned),
            870..940 => ("follow", Self::follow),
            940..955 => ("checkpoint", Self::checkpoint),
            955..970 => ("time", Self::pass_time),
            970..985 => ("verify", Self::verify),
            _ => ("harm", Self::harm),
        };
        self.trace.begin(step, name);
        act(self)?;
        self.look()
    }

    /// What holds after every step.
    fn look(&mut self) -> Checked {
        let storage = self.storage();
        self.is_down |= self.machine.fs.has_crashed();
        self.model.publish(storage.last_seq().0);
        self.model.harden(self.acknowledged);
        let first = storage.log().first_seq().0;
        // What was read lately is kept for others who read, though the log has recycled it.
        let told = self.followers.iter().map(Follower::position).min().unwrap_or(first);
        self.model.recycle(first.min(told));
        self.figures.recycled = self.figures.recycled.max(first);
        if !self.setup.decides_alone {
            return Ok(());
        }
        ensure!(
            self.model.is_settled() || self.is_down,
            "what is logged has taken effect"
        );
        Ok(())
    }

    /// Sorts a failure: of a full or harmed machine it is to be expected.
    pub(super) fn failed(&mut self, error: &StorageError) -> Checked {
        self.say(format_args!(": {error}"));
        let has_stopped = self.machine.fs.has_crashed() || self.storage().check_not_stopped().is_err();
        match error {
            StorageError::OutOfSpace(_) if self.is_full => {}
            _ if self.is_harmed && (has_stopped || self.machine.fs.faults_struck() > 0) => {}
            _ => return Err(Violation(format!("unexpected: {error}"))),
        }
        self.figures.refused += 1;
        self.is_down |= has_stopped;
        Ok(())
    }

    /// Takes note of a unit whose commit has answered; its changes are the model's from here on if the log has it.
    /// Answers its place.
    pub(super) fn committed(
        &mut self,
        before: Seq,
        result: Result<Seq, StorageError>,
        changes: Vec<Change>,
        session: Option<InSession>,
    ) -> Checked<Option<u64>> {
        let last = self.storage().log().last_seq();
        match &result {
            Ok(seq) => ensure!(
                changes.is_empty() || *seq == last && last > before,
                "committed at {seq:?}, the log had {before:?} and has {last:?}"
            ),
            Err(StorageError::Interrupted(_)) if !self.setup.decides_alone => {
                ensure!(last > before, "interrupted before its entry had a place");
            }
            Err(error) => self.failed(error)?,
        }
        if changes.is_empty() {
            ensure!(last == before, "nothing was changed, and something logged");
            return Ok(None);
        }
        if last == before {
            self.say(" refused");
            return Ok(None);
        }
        self.say(format_args!(" @{}", last.0));
        self.figures.units += 1;
        self.figures.chains += u64::from(last.0 > before.0 + 1);
        self.model.push(Unit {
            first: before.0 + 1,
            seq: last.0,
            changes,
            session,
            names: BTreeMap::new(),
        });
        self.model.publish(self.storage().last_seq().0);
        Ok(Some(last.0))
    }

    /// The operation of a client who cannot wait for others to decide, once all is evaluated.
    pub(super) fn before_commit(&self, op: &Operation) -> Seq {
        if !self.setup.decides_alone {
            op.kill();
        }
        self.storage().log().last_seq()
    }

    /// Brings everything logged so far to disk.
    pub(super) fn flush(&mut self) -> Checked {
        let last = self.storage().log().last_seq();
        self.acknowledge(last.0)
    }

    /// Waits until an entry is durable.
    pub(super) fn acknowledge(&mut self, seq: u64) -> Checked {
        match self.storage().wait_durable(Seq(seq)) {
            Ok(()) => {
                self.say(format_args!(" durable {seq}"));
                self.acknowledged = self.acknowledged.max(seq);
                Ok(())
            }
            Err(error) => self.failed(&error),
        }
    }

    /// Some of what is durable stays.
    pub(super) fn commit_some(&mut self) -> Checked {
        if self.setup.decides_alone {
            return Ok(());
        }
        self.flush()?;
        let (from, to) = (self.storage().last_seq().0, self.acknowledged);
        let upto = from + self.pick(to.saturating_sub(from) + 1);
        self.decide(upto)
    }

    fn decide(&mut self, upto: u64) -> Checked {
        self.say(format_args!(" decided {upto}"));
        if let Err(error) = self.storage().commit_to(Seq(upto)) {
            return self.failed(&error);
        }
        Ok(())
    }

    /// All that was proposed takes effect, and so will the next `entries`: before what waits for that by itself, which
    /// would be for ever when this answers false.
    pub(super) fn settle(&mut self, entries: u64) -> Checked<bool> {
        if self.setup.decides_alone {
            return Ok(true);
        }
        self.flush()?;
        if self.is_down || self.acknowledged < self.storage().log().last_seq().0 {
            return Ok(false);
        }
        self.decide(self.acknowledged + entries)?;
        self.model.publish(self.storage().last_seq().0);
        Ok(!self.is_down && self.model.is_settled())
    }

    fn checkpoint(&mut self) -> Checked {
        let storage = self.storage();
        let only_engine = self.one_in(4);
        let result = match only_engine {
            // What an engine does whose mark moves by itself.
            true => storage
                .wait_durable(storage.last_seq())
                .and_then(|()| Ok(storage.engine().checkpoint()?)),
            false => storage.checkpoint(),
        };
        match result {
            Ok(durable) => {
                self.say(format_args!(" {durable:?}"));
                self.acknowledged = self.acknowledged.max(durable.0);
                Ok(())
            }
            Err(error) => {
                self.failed(&error)?;
                // An engine that has failed says so at the next batch.
                self.is_down |= !matches!(error, StorageError::OutOfSpace(_)) && only_engine;
                Ok(())
            }
        }
    }

    fn pass_time(&mut self) -> Checked {
        let by = Duration::from_millis(self.pick(20_000));
        self.machine.clock.advance(by);
        Ok(())
    }

    fn start(&mut self) -> Checked {
        let alone = self.setup.decides_alone;
        let opened = self.machine.open_with(|options| options.decides_alone = alone);
        let storage = opened.map_err(|error| Violation(format!("it does not open: {error}")))?;
        storage.keep_history();
        self.storage = Some(storage.clone());
        self.is_down = false;
        // The first time it makes a table for them.
        storage
            .stand_for_election(1)
            .and_then(|_| storage.commit_to(storage.log().last_seq().next()))
            .and_then(|()| storage.keep_sessions())
            .map_err(|error| Violation(format!("no sessions are kept: {error}")))
    }

    /// The machine loses power, or the process ends, and it all starts again.
    pub(super) fn restart(&mut self) -> Checked {
        self.figures.restarts += 1;
        let appended = self.storage().log().last_seq().0;
        self.pins.clear();
        self.open.iter_mut().for_each(|open| *open = None);
        self.followers.iter_mut().for_each(Follower::rest);
        self.storage = None;
        self.machine.fs.restart();
        self.machine.fs.set_free_bytes(None);
        self.machine.fs.clear_faults();
        (self.is_full, self.is_harmed) = (false, false);
        // What one start finds is where the next entries go, so that a later one may find others there.
        let mut found = u64::MAX;
        self.starts_cut_off = 0;
        while self.one_in(6) {
            self.starts_cut_off += 1;
            // It fails while it starts.
            self.machine
                .fs
                .crash_at(self.machine.fs.operations() + 1 + self.pick(10));
            self.machine.found.store(u64::MAX, Ordering::SeqCst);
            let alone = self.setup.decides_alone;
            let opened = self.machine.open_with(|options| options.decides_alone = alone);
            drop(opened.and_then(|storage| storage.stand_for_election(1)));
            found = found.min(self.machine.found.load(Ordering::SeqCst));
            self.say(" twice");
            self.machine.fs.restart();
        }
        self.start()?;
        found = found.min(self.machine.found.load(Ordering::SeqCst));
        let acknowledged = self.acknowledged;
        self.say(format_args!(
            " found {found} of {appended}, {acknowledged} acknowledged"
        ));
        ensure!(
            found >= self.acknowledged,
            "{} was acknowledged as durable, found is {found}",
            self.acknowledged
        );
        let gone = self.model.restart(found);
        self.figures.lost_units += gone.len() as u64;
        // What was found is on disk.
        self.acknowledged = found;
        for unit in gone.iter().filter(|unit| unit.first <= found) {
            self.adopt_index(unit);
        }
        self.clients_restart(found);
        for follower in &mut self.followers {
            follower.restart(found)?;
        }
        self.look()?;
        self.verify()
    }

    /// An index build that was cut off has been ended by opening, one way or the other.
    fn adopt_index(&mut self, unit: &Unit) {
        let Some(Change::CreateIndex(uid, index)) = unit.changes.first() else {
            return;
        };
        let Some(coll) = self.model.newest.collections.get(uid) else {
            return;
        };
        let is_there = self
            .storage()
            .catalog()
            .collection(&ns(coll.name))
            .is_some_and(|found| found.index(index).is_some());
        let changes = match is_there {
            true => vec![Change::CreateIndex(*uid, index)],
            false => Vec::new(),
        };
        self.model.push(Unit {
            first: unit.first,
            seq: self.storage().last_seq().0,
            changes,
            session: None,
            names: BTreeMap::new(),
        });
        self.model.publish(self.storage().last_seq().0);
    }

    /// The storage is what the model says, in every respect.
    pub(super) fn verify(&mut self) -> Checked {
        let storage = self.storage();
        let state = self.model.applied.clone();
        let mut found: Vec<_> = storage.catalog().collections("test");
        found.sort_by_key(|coll| coll.namespace().collection().to_owned());
        let mut expected: Vec<_> = state.collections.values().map(|coll| coll.name).collect();
        expected.sort_unstable();
        let names: Vec<_> = found.iter().map(|coll| coll.namespace().collection()).collect();
        ensure!(names == expected, "collections {names:?}, expected {expected:?}");
        for uid in state.collections.keys() {
            self.verify_collection(*uid)?;
        }
        for (number, expected) in &state.sessions {
            let record = storage.session(&session_key(*number));
            let Some(record) = record else {
                return Err(Violation(format!("nothing is known of session {number}")));
            };
            let found = (record.txn_number, record.is_transaction, record.seq.0);
            let wanted = (expected.number, expected.is_transaction, expected.seq);
            ensure!(found == wanted, "session {number} is {found:?}, expected {wanted:?}");
            for (statement, expected) in &expected.statements {
                let found = storage
                    .statement(&record, &session_key(*number), *statement)
                    .map_err(|error| Violation(format!("statement {statement}: {error}")))?;
                ensure!(
                    found.as_ref() == Some(expected),
                    "statement {statement} of session {number} is {found:?}, expected {expected:?}"
                );
            }
        }
        ensure!(
            storage.session_count() == state.sessions.len(),
            "{} sessions, expected {}",
            storage.session_count(),
            state.sessions.len()
        );
        Ok(())
    }

    fn verify_collection(&mut self, uid: Uid) -> Checked {
        let expected = &self.model.applied.collections[&uid];
        let (storage, name) = (self.storage(), expected.name);
        let found = self.found(name)?;
        self.check_documents(&found, uid)?;
        let mut indexes: Vec<_> = found.indexes().iter().map(|index| index.name()).collect();
        indexes.sort_unstable();
        let own = (!expected.is_clustered).then_some("_id_");
        let mut wanted: Vec<_> = expected.indexes.iter().copied().chain(own).collect();
        wanted.sort_unstable();
        ensure!(indexes == wanted, "{name} has indexes {indexes:?}, expected {wanted:?}");
        ensure!(found.building_indexes().is_empty(), "{name}: a build goes on");
        let report = storage
            .validate(&self.op(), &ns(name), true)
            .map_err(|error| Violation(format!("validating {name}: {error}")))?;
        ensure!(report.is_valid(), "{name} is damaged: {report:#?}");
        Ok(())
    }

    pub(super) fn found(&self, name: &str) -> Checked<Arc<Collection>> {
        let found = self.storage().catalog().collection(&ns(name));
        found.ok_or_else(|| Violation(format!("{name} is not there")))
    }

    /// The newest state has the documents that it should, and counts them right.
    pub(super) fn check_documents(&self, found: &Collection, uid: Uid) -> Checked {
        let expected = &self.model.applied.collections[&uid];
        let view = self.storage().read();
        let view = view.map_err(|error| Violation(format!("no view: {error}")))?;
        super::readers::compare(&view, found, &expected.docs, &expected.indexes)?;
        let counted = (found.count(), found.data_bytes());
        let there = (expected.docs.len() as u64, expected.bytes());
        ensure!(
            counted == there,
            "{} counts {counted:?}, there are {there:?}",
            expected.name
        );
        Ok(())
    }

    /// Makes collections that are missing, so that there is something to do.
    pub(super) fn some_collection(&mut self) -> Checked<Option<Uid>> {
        let name = match self.pick(8) {
            0 => NAMES[3],
            other => NAMES[other as usize % 3],
        };
        if self.model.newest.find(name).is_none() {
            self.create(name)?;
        }
        Ok(self.model.newest.find(name).map(|(uid, _)| uid))
    }
}

pub(super) fn session_key(number: u8) -> SessionKey {
    SessionKey {
        id: [number; 16],
        user: [0xE3; 32],
    }
}

pub(super) fn spec_of(name: &str) -> IndexSpec {
    match name {
        "n_1" => index(name, rawdoc! { "n": 1 }, rawdoc! { "clustering": true }),
        "u_1" => index(name, rawdoc! { "u": 1 }, rawdoc! { "unique": true, "sparse": true }),
        _ => index(
            name,
            rawdoc! { "n": 1, "p": -1 },
            rawdoc! { "partialFilterExpression": { "p": true } },
        ),
    }
}
