//! Waiting for other members: until enough of them have a write, or until this one shows what they have.

use crate::concerns::{Acknowledging, WriteConcern};
use crate::error::{CommandError, Result};
use crate::invocation::Invocation;
use crate::replica_set::{Member, ReplicaSet, SetConfig};
use crate::server::Server;
use bson::{Document, doc};
use std::cell::Cell;
use std::time::Duration;
use storage::{ClusterTime, Seq, Standing, StorageError};
use wire::ErrorCode;

/// How long a secondary waits for its primary before it asks for an entry of the time that it waits for.
const ASKS_AFTER: Duration = Duration::from_millis(20);

impl Server {
    /// Whether the set has the members that a write concern asks for.
    pub(crate) fn check_acknowledging(&self, members: &Acknowledging) -> Result<()> {
        let config = self.replica_set().and_then(|set| set.member().config);
        let Some(config) = config else { return Ok(()) };
        match members {
            Acknowledging::Primary | Acknowledging::Majority => Ok(()),
            Acknowledging::Count(count) => config.check_member_count(*count),
            Acknowledging::Mode(mode) => config.check_mode(mode),
            Acknowledging::Tags(tags) => config.check_tags(tags),
        }
    }

    /// Waits until an entry is as safe as the call's write concern asks. A wait that is ended (`maxTimeMS`, `wtimeout`,
    /// `killOp`, shutdown) or cannot end, as on a full disk or without a file descriptor, takes no write back: it is
    /// answered, for `writeConcernError`.
    pub(crate) fn wait_acknowledged(&self, call: &Invocation<'_>, seq: Seq) -> Result<Option<Document>> {
        let concern = &call.write_concern;
        // Who has waited for a majority already has so much less time for the rest.
        let until = call.operation.patient_until().or_else(|| {
            let timeout = concern.timeout?;
            Some(call.operation.clock().monotonic() + timeout)
        });
        if concern.journaled {
            match self.storage.wait_durable_in(&call.operation, seq) {
                Ok(()) => {}
                // The entry stays where it is, and reaches the disk when there is room.
                Err(error) if error.passes() || matches!(error, StorageError::Interrupted(_)) => {
                    return Ok(Some(write_concern_error(concern, &error.into())));
                }
                Err(error) => return Err(error.into()),
            }
        }
        let Some(set) = self.replica_set() else { return Ok(None) };
        if concern.members == Acknowledging::Primary {
            return Ok(None);
        }
        if concern.members == Acknowledging::Majority && self.storage.standing().is_none() {
            return Ok(None);
        }
        let member = set.member().counting_votes();
        let Some(config) = &member.config else { return Ok(None) };
        if concern.is_implicit && !config.implicit_default_is_majority() {
            return Ok(None);
        }
        if let Err(cannot) = self.check_acknowledging(&concern.members) {
            return Ok(Some(write_concern_error(concern, &cannot)));
        }
        let still_leads = Cell::new(true);
        let waited = self.storage.wait_members(&call.operation, until, &|standing| {
            still_leads.set(standing.is_writable);
            !standing.is_writable || has_enough(&concern.members, config, &member, standing, seq)
        });
        match waited {
            Err(error @ StorageError::Interrupted(_)) => Ok(Some(write_concern_error(concern, &error.into()))),
            Err(error) => Err(error.into()),
            Ok(true) if !still_leads.get() => {
                let error = CommandError::new(
                    ErrorCode::PrimarySteppedDown,
                    "Primary stepped down while waiting for replication",
                );
                Ok(Some(write_concern_error(concern, &error)))
            }
            Ok(true) => Ok(None),
            Ok(false) => Ok(Some(write_concern_error(concern, &timed_out()))),
        }
    }

    /// Whether a write concern is about members other than the primary.
    pub(crate) fn asks_others(&self, concern: &WriteConcern) -> bool {
        if concern.members == Acknowledging::Primary {
            return false;
        }
        // With arbiters who names none may get `w: 1`.
        let config = || self.replica_set()?.member().counting_votes().config;
        !concern.is_implicit || config().is_none_or(|config| config.implicit_default_is_majority())
    }

    /// What a client is told of a write that nobody could be waited for in time to have.
    pub(crate) fn not_acknowledged_in_time(&self, concern: &WriteConcern) -> Document {
        let cannot = self.check_acknowledging(&concern.members).err();
        write_concern_error(concern, &cannot.unwrap_or_else(timed_out))
    }

    /// Waits on a secondary until it shows what was written until `after`. With `asks` the primary is told to write an
    /// entry when nothing comes.
    pub(crate) fn wait_until_applied(
        &self,
        set: &ReplicaSet,
        call: &Invocation<'_>,
        after: ClusterTime,
        asks: bool,
    ) -> Result<()> {
        let clock = call.operation.clock();
        let asks_at = clock.monotonic() + ASKS_AFTER;
        let mut has_asked = !asks;
        while self.storage.applied().time < after {
            let now = clock.monotonic();
            if !has_asked && now >= asks_at {
                has_asked = true;
                let primary = self.storage.standing().and_then(|standing| standing.leader);
                if let (Some(primary), Some(threads)) = (primary, set.threads()) {
                    threads.want(primary, after);
                }
            }
            // The consensus thread tells of each turn, and so of what was applied since.
            let until = now + ASKS_AFTER;
            self.storage
                .wait_members(&call.operation, Some(until), &|_| self.storage.applied().time >= after)?;
        }
        Ok(())
    }
}

/// Whether the members have the entry that a write concern names, as far as is known.
fn has_enough(wanted: &Acknowledging, config: &SetConfig, member: &Member, standing: &Standing, seq: Seq) -> bool {
    let known = |id: i32| {
        let id = member.consensus.as_ref()?.of(id)?.id;
        standing.progress.iter().find(|progress| progress.id == id)
    };
    // What is on a majority's disks stays; who counts members wants readers of those to see it.
    let is_durable = |id: i32| id == member.id || known(id).is_some_and(|progress| progress.durable >= seq);
    let is_applied = |id: i32| id == member.id || known(id).is_some_and(|progress| progress.applied >= seq);
    match wanted {
        Acknowledging::Primary => true,
        Acknowledging::Count(count) => config.data_members().filter(|of| is_applied(of.id)).count() >= *count,
        Acknowledging::Majority => config.mode_is_satisfied("majority", &is_durable).unwrap_or(true),
        Acknowledging::Mode(mode) => config.mode_is_satisfied(mode, &is_applied).unwrap_or(true),
        Acknowledging::Tags(tags) => config.tags_are_satisfied(tags, &is_applied),
    }
}

fn timed_out() -> CommandError {
    CommandError::new(ErrorCode::WriteConcernFailed, "waiting for replication timed out")
}

/// What a client is told of a write concern that was not met.
fn write_concern_error(concern: &WriteConcern, error: &CommandError) -> Document {
    let mut info = Document::new();
    if error.code == ErrorCode::WriteConcernFailed {
        info.insert("wtimeout", true);
    }
    info.insert("writeConcern", concern.shown());
    doc! { "code": error.code.0, "codeName": error.code.name(), "errmsg": &error.message, "errInfo": info }
}
