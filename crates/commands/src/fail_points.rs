//! Fail points: errors on demand, for tests of drivers and applications (`enableTestCommands`). There are five, with
//! the fields of the drivers' test specifications: `failCommand`; `failGetMoreAfterCursorCheckout`;
//! `onPrimaryTransactionalWrite`, which meets a write with a transaction number when it is about to be committed;
//! `maxTimeAlwaysTimeOut`, for which the time of an operation that has a limit is always over; and `stopReplProducer`,
//! by which a secondary shows nothing new.

use crate::arguments::{Arguments, missing_field};
use crate::definition::Command;
use crate::error::{CommandError, Result};
use bson::Document;
use bson::raw::{RawBsonRef, RawDocument};
use parking_lot::Mutex;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use storage::{Interrupted, StorageError, WriteBarrier};
use vfs::Random;
use wire::ErrorCode;

/// What commands are to be done to.
#[derive(Clone, Debug, Default)]
struct FailCommand {
    commands: Vec<String>,
    error_code: Option<i32>,
    labels: Option<Vec<String>>,
    closes: bool,
    blocks: Option<Duration>,
    write_concern_error: Option<Document>,
    application: Option<String>,
    namespace: Option<String>,
}

/// When.
#[derive(Clone, Copy, Debug)]
enum Mode {
    Always,
    /// So many times more.
    Times(i64),
    /// After so many times more.
    Skip(i64),
    /// In this share of all cases.
    Share(f64),
}

struct Active {
    what: FailCommand,
    mode: Mode,
}

/// What happens to a command.
#[derive(Debug, Default)]
pub struct Failure {
    /// It waits first.
    pub blocks: Option<Duration>,
    /// There is no reply, and the connection ends.
    pub closes: bool,
    /// It fails, with the labels given instead of those that belong to the code.
    pub error: Option<(CommandError, bool)>,
    /// It is carried out, and this is added.
    pub write_concern_error: Option<Document>,
}

/// See the module.
#[derive(Default)]
pub struct FailPoints {
    is_enabled: OnceLock<()>,
    is_active: AtomicBool,
    fail_command: Mutex<(Option<Active>, i64)>,
    write: Mutex<Option<(WriteFailure, Mode)>>,
    meets_writes: AtomicBool,
    get_more: Mutex<Option<(i32, Mode)>>,
    meets_get_more: AtomicBool,
    times_out: Mutex<Option<Mode>>,
    stops_replication: Mutex<Option<WriteBarrier>>,
    meets_limits: AtomicBool,
}

/// What happens to a write that is about to be committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteFailure {
    /// It is not.
    pub error_code: Option<i32>,
    /// There is no reply, and the connection ends.
    pub closes: bool,
}

impl Mode {
    /// Whether it is time, now that it is asked once more.
    fn is_due(&mut self, random: &dyn Random) -> bool {
        match self {
            Self::Always => true,
            Self::Times(left) => {
                *left -= 1;
                *left >= 0
            }
            Self::Skip(left) => {
                *left -= 1;
                *left < 0
            }
            Self::Share(share) => (random.next_u64() as f64 / u64::MAX as f64) < *share,
        }
    }
}

impl FailPoints {
    /// Allows them, for as long as the server runs.
    pub fn enable(&self) {
        let _ = self.is_enabled.set(());
    }

    /// Whether they may be used.
    pub fn is_enabled(&self) -> bool {
        self.is_enabled.get().is_some()
    }

    /// Sets `failCommand` as `mode` and `data` say; answers how often it had been entered.
    ///
    /// # Errors
    /// `BadValue`, `TypeMismatch` and the like for fields that make no sense; `NotImplemented` for those not built.
    pub fn set(&self, mode: RawBsonRef<'_>, data: Option<&RawDocument>) -> Result<i64> {
        let mode = read_mode(mode)?;
        let what = match (mode, data) {
            (Some(_), None) => return Err(missing_field("configureFailPoint", "data")),
            (_, Some(data)) => read_data(data)?,
            (None, None) => FailCommand::default(),
        };
        let mut slot = self.fail_command.lock();
        let entered = std::mem::take(&mut slot.1);
        slot.0 = mode.map(|mode| Active { what, mode });
        self.is_active.store(slot.0.is_some(), Ordering::Release);
        Ok(entered)
    }

    /// Sets `onPrimaryTransactionalWrite`.
    ///
    /// # Errors
    /// As [`FailPoints::set`].
    pub fn set_on_write(&self, mode: RawBsonRef<'_>, data: Option<&RawDocument>) -> Result<()> {
        let mode = read_mode(mode)?;
        let mut failure = WriteFailure {
            error_code: None,
            closes: true,
        };
        let arguments = Arguments::of("onPrimaryTransactionalWrite");
        if let Some(data) = data {
            arguments.each(data, |name, value| {
                match name {
                    "failBeforeCommitExceptionCode" => {
                        failure.error_code = Some(arguments.integer(name, value)? as i32);
                    }
                    "closeConnection" => failure.closes = arguments.boolean(name, value)?,
                    _ => return Ok(false),
                }
                Ok(true)
            })?;
        }
        let mut slot = self.write.lock();
        *slot = mode.map(|mode| (failure, mode));
        self.meets_writes.store(slot.is_some(), Ordering::Release);
        Ok(())
    }

    /// Sets `failGetMoreAfterCursorCheckout`.
    ///
    /// # Errors
    /// As [`FailPoints::set`].
    pub fn set_on_get_more(&self, mode: RawBsonRef<'_>, data: Option<&RawDocument>) -> Result<()> {
        let mode = read_mode(mode)?;
        let arguments = Arguments::of("failGetMoreAfterCursorCheckout");
        let mut code = None;
        if let Some(data) = data {
            arguments.each(data, |name, value| {
                match name {
                    "errorCode" => code = Some(arguments.integer(name, value)? as i32),
                    "closeConnection" if !arguments.boolean(name, value)? => {}
                    other => {
                        return Err(CommandError::not_implemented(format!(
                            "failGetMoreAfterCursorCheckout.{other}"
                        )));
                    }
                }
                Ok(true)
            })?;
        }
        let mut slot = self.get_more.lock();
        *slot = match (mode, code) {
            (Some(_), None) => return Err(missing_field("failGetMoreAfterCursorCheckout", "errorCode")),
            (mode, code) => mode.zip(code).map(|(mode, code)| (code, mode)),
        };
        self.meets_get_more.store(slot.is_some(), Ordering::Release);
        Ok(())
    }

    /// Sets `maxTimeAlwaysTimeOut`.
    ///
    /// # Errors
    /// As [`FailPoints::set`].
    pub fn set_on_limits(&self, mode: RawBsonRef<'_>) -> Result<()> {
        let mode = read_mode(mode)?;
        *self.times_out.lock() = mode;
        self.meets_limits.store(mode.is_some(), Ordering::Release);
        Ok(())
    }

    /// Sets `stopReplProducer`: as long as it is on, this member shows nothing more of what the primary writes. `stop`
    /// has it do so.
    ///
    /// # Errors
    /// A mode other than `off` and `alwaysOn`; those of `stop`.
    pub fn set_replication(
        &self,
        mode: RawBsonRef<'_>,
        stop: impl FnOnce() -> Result<Option<WriteBarrier>>,
    ) -> Result<()> {
        let barrier = match read_mode(mode)? {
            None => None,
            Some(Mode::Always) => stop()?,
            Some(_) => return Err(CommandError::not_implemented("stopReplProducer for some of the time")),
        };
        *self.stops_replication.lock() = barrier;
        Ok(())
    }

    /// Lets replication go on (shutdown).
    pub fn release(&self) {
        *self.stops_replication.lock() = None;
    }

    /// What happens to an operation with a limit of time.
    ///
    /// # Errors
    /// That its time is over.
    pub fn enter_limit(&self, random: &dyn Random) -> Result<()> {
        if !self.meets_limits.load(Ordering::Acquire) {
            return Ok(());
        }
        let mut slot = self.times_out.lock();
        match slot.as_mut().is_some_and(|mode| mode.is_due(random)) {
            true => Err(StorageError::Interrupted(Interrupted::TimeExpired).into()),
            false => Ok(()),
        }
    }

    /// What happens to a `getMore` that has its cursor.
    ///
    /// # Errors
    /// The one that was asked for.
    pub fn enter_get_more(&self, random: &dyn Random) -> Result<()> {
        if !self.meets_get_more.load(Ordering::Acquire) {
            return Ok(());
        }
        let mut slot = self.get_more.lock();
        let Some((code, mode)) = &mut *slot else {
            return Ok(());
        };
        match mode.is_due(random) {
            true => Err(CommandError::new(
                ErrorCode(*code),
                "Hit the 'failGetMoreAfterCursorCheckout' failpoint",
            )),
            false => Ok(()),
        }
    }

    /// What happens to a write of so many documents.
    pub fn enter_write(&self, documents: usize, random: &dyn Random) -> Option<WriteFailure> {
        if !self.meets_writes.load(Ordering::Acquire) {
            return None;
        }
        let mut slot = self.write.lock();
        let (failure, mode) = slot.as_mut()?;
        let mut is_due = false;
        for _ in 0..documents {
            is_due |= mode.is_due(random);
        }
        is_due.then_some(*failure)
    }

    /// What happens to a command now.
    pub fn enter(
        &self,
        command: &Command,
        application: impl FnOnce() -> Option<String>,
        namespace: impl FnOnce() -> String,
        random: &dyn Random,
    ) -> Option<Failure> {
        if !self.is_active.load(Ordering::Acquire) {
            return None;
        }
        let mut slot = self.fail_command.lock();
        let (Some(active), entered) = &mut *slot else {
            return None;
        };
        let what = &active.what;
        if !what.commands.iter().any(|name| is_called(command, name))
            || what.application.is_some() && what.application != application()
            || what.namespace.as_ref().is_some_and(|wanted| *wanted != namespace())
        {
            return None;
        }
        if !active.mode.is_due(random) {
            return None;
        }
        *entered += 1;
        let error = what.error_code.map(|code| {
            let mut error = CommandError::new(ErrorCode(code), "Failing command via 'failCommand' failpoint");
            for label in what.labels.iter().flatten() {
                error.label(label);
            }
            (error, what.labels.is_some())
        });
        let mut write_concern_error = what.write_concern_error.clone();
        if let (Some(error), Some(labels)) = (&mut write_concern_error, &what.labels) {
            error
                .entry("errorLabels".to_owned())
                .or_insert_with(|| labels.clone().into());
        }
        Some(Failure {
            blocks: what.blocks,
            closes: what.closes,
            error,
            write_concern_error,
        })
    }
}

/// Whether a name is one of a command's.
fn is_called(command: &Command, name: &str) -> bool {
    name == command.name || command.aliases.contains(&name)
}

/// `None` for `off`.
fn read_mode(mode: RawBsonRef<'_>) -> Result<Option<Mode>> {
    let arguments = Arguments::of("configureFailPoint.mode");
    let bad = || {
        CommandError::bad_value("'mode' must be \"off\", \"alwaysOn\" or one of {times, skip, activationProbability}")
    };
    match mode {
        RawBsonRef::String("off") => Ok(None),
        RawBsonRef::String("alwaysOn") => Ok(Some(Mode::Always)),
        RawBsonRef::Document(document) => {
            // Of several, as drivers send them, the first of this order is meant.
            let (mut times, mut skip, mut share) = (None, None, None);
            arguments.each(document, |name, value| {
                match name {
                    "times" => times = Some(Mode::Times(arguments.non_negative(name, value)?)),
                    "skip" => skip = Some(Mode::Skip(arguments.non_negative(name, value)?)),
                    "activationProbability" => match value {
                        RawBsonRef::Double(of_calls) if (0.0..=1.0).contains(&of_calls) => {
                            share = Some(Mode::Share(of_calls));
                        }
                        _ => return Err(bad()),
                    },
                    _ => return Ok(false),
                }
                Ok(true)
            })?;
            times.or(skip).or(share).map(Some).ok_or_else(bad)
        }
        _ => Err(bad()),
    }
}

fn read_data(data: &RawDocument) -> Result<FailCommand> {
    let arguments = Arguments::of("failCommand");
    let mut what = FailCommand::default();
    let mut blocks = (false, None);
    let strings = |name, value| -> Result<Vec<String>> {
        let values = arguments.array(name, value)?.into_iter();
        values
            .map(|value| Ok(arguments.string(name, value?)?.to_owned()))
            .collect()
    };
    arguments.each(data, |name, value| {
        match name {
            "failCommands" => what.commands = strings(name, value)?,
            "errorCode" => what.error_code = Some(arguments.integer(name, value)? as i32),
            "errorLabels" => what.labels = Some(strings(name, value)?),
            "closeConnection" => what.closes = arguments.boolean(name, value)?,
            "blockConnection" => blocks.0 = arguments.boolean(name, value)?,
            "blockTimeMS" => blocks.1 = Some(arguments.non_negative(name, value)? as u64),
            "writeConcernError" => {
                what.write_concern_error = Some(Document::try_from(arguments.document(name, value)?)?)
            }
            "appName" => what.application = Some(arguments.string(name, value)?.to_owned()),
            "namespace" => what.namespace = Some(arguments.string(name, value)?.to_owned()),
            // There are no other servers.
            "failInternalCommands" => drop(arguments.boolean(name, value)?),
            "errorExtraInfo" | "failAllCommands" | "failLocalClients" | "threadName" => {
                return Err(CommandError::not_implemented(format!("failCommand.{name}")));
            }
            // Nobody's: passed over, as in MongoDB.
            _ => {}
        }
        Ok(true)
    })?;
    what.blocks = match blocks {
        (true, None) => return Err(missing_field("failCommand", "blockTimeMS")),
        (true, Some(ms)) => Some(Duration::from_millis(ms)),
        (false, _) => None,
    };
    Ok(what)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::COMMANDS;
    use bson::rawdoc;
    use vfs::SeededRandom;

    fn enter(points: &FailPoints, command: &str) -> Option<Failure> {
        let (command, _) = COMMANDS.find(command).expect("there is such a command");
        points.enter(command, || Some("app".into()), || "d.c".into(), &SeededRandom::new(1))
    }

    fn set(points: &FailPoints, mode: &bson::RawDocumentBuf, data: &RawDocument) -> i64 {
        let mode = mode.get("m").expect("valid").expect("a mode");
        points.set(mode, Some(data)).expect("accepted")
    }

    #[test]
    fn it_happens_to_the_commands_and_as_often_as_was_said() {
        let points = FailPoints::default();
        assert!(enter(&points, "find").is_none());
        let data = rawdoc! { "failCommands": ["find"], "errorCode": 91 };
        set(&points, &rawdoc! { "m": { "times": 2 } }, &data);
        assert!(enter(&points, "insert").is_none());
        set(
            &points,
            &rawdoc! { "m": "alwaysOn" },
            &rawdoc! { "failCommands": ["ismaster"], "closeConnection": true },
        );
        assert!(
            enter(&points, "isMaster").is_some_and(|failure| failure.closes),
            "by any of its names"
        );
        set(&points, &rawdoc! { "m": { "times": 2, "skip": 0 } }, &data);
        let happened: Vec<_> = (0..3).map(|_| enter(&points, "find").is_some()).collect();
        assert_eq!(happened, [true, true, false]);
        assert_eq!(
            set(&points, &rawdoc! { "m": { "skip": 1 } }, &data),
            2,
            "it was entered twice"
        );
        let happened: Vec<_> = (0..3).map(|_| enter(&points, "find").is_some()).collect();
        assert_eq!(happened, [false, true, true]);
        set(&points, &rawdoc! { "m": "off" }, &data);
        assert!(enter(&points, "find").is_none());
        for (field, value) in [("appName", "other"), ("namespace", "d.x")] {
            let mut data = data.clone();
            data.append(bson::raw::CString::try_from(field).expect("no NUL"), value);
            set(&points, &rawdoc! { "m": "alwaysOn" }, &data);
            assert!(enter(&points, "find").is_none(), "{field}");
        }
    }

    #[test]
    fn writes_are_counted_by_document() {
        let (points, random) = (FailPoints::default(), SeededRandom::new(1));
        assert_eq!(points.enter_write(1, &random), None);
        let skip = rawdoc! { "m": { "skip": 3 } };
        let data = rawdoc! { "failBeforeCommitExceptionCode": 1 };
        points
            .set_on_write(skip.get("m").expect("valid").expect("a mode"), Some(&data))
            .expect("accepted");
        assert_eq!(points.enter_write(2, &random), None);
        let failure = WriteFailure {
            error_code: Some(1),
            closes: true,
        };
        assert_eq!(points.enter_write(2, &random), Some(failure), "the fourth");
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let points = FailPoints::default();
        let on = rawdoc! { "m": "alwaysOn" };
        let on = on.get("m").expect("valid").expect("a mode");
        for data in [
            rawdoc! { "failCommands": "find" },
            rawdoc! { "failCommands": ["find"], "blockConnection": true },
            rawdoc! { "failCommands": ["find"], "failAllCommands": true },
        ] {
            assert!(points.set(on, Some(&data)).is_err(), "{data:?}");
        }
        let unknown = rawdoc! { "failCommands": ["find"], "nonesuch": 1 };
        assert!(
            points.set(on, Some(&unknown)).is_ok(),
            "a field that nobody knows is passed over"
        );
        assert!(points.set(on, None).is_err());
        for mode in [
            rawdoc! { "m": 1 },
            rawdoc! { "m": {} },
            rawdoc! { "m": { "times": -1 } },
            rawdoc! { "m": { "activationProbability": 2.0 } },
        ] {
            let mode = mode.get("m").expect("valid").expect("a mode");
            assert!(points.set(mode, Some(&rawdoc! {})).is_err(), "{mode:?}");
        }
    }
}
