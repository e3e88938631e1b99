//! `replSetStepDown` and `replSetStepUp`: leadership goes to another member because somebody asks for it.
//!
//! With others the primary first stops taking writes, waits until a member that can be elected has all it has, and
//! hands leadership to that one: no election runs, and nothing is in doubt but for operations that wait at the moment.

use super::membership::configured;
use super::replication::seconds;
use crate::arguments::Arguments;
use crate::definition::{Access, Command};
use crate::error::{CommandError, Result};
use crate::invocation::Invocation;
use crate::metrics::OperationKind;
use crate::replica_set::{Member, ReplicaSet, Role};
use crate::reply::Reply;
use crate::server::Server;
use auth::Action;
use std::sync::Arc;
use std::time::Duration;
use storage::{Seq, Standing, StorageError};
use wire::ErrorCode;

/// How long a server that ends waits for another member to lead.
const RESIGN_PATIENCE: Duration = Duration::from_secs(4);

/// `replSetStepDown`.
pub const REPL_SET_STEP_DOWN: Command = Command::new(
    "replSetStepDown",
    "Has the primary become a secondary.",
    OperationKind::Command,
    Access::cluster(&[Action::ReplSetStateChange]),
    step_down,
)
.admin_only()
.secondary_ok();
/// `replSetStepUp`.
pub const REPL_SET_STEP_UP: Command = Command::new(
    "replSetStepUp",
    "Has this secondary become the primary.",
    OperationKind::Command,
    Access::cluster(&[Action::ReplSetStateChange]),
    step_up,
)
.admin_only()
.secondary_ok();

fn step_down(call: &mut Invocation<'_>, _reply: &mut Reply<'_>) -> Result<()> {
    let arguments: Arguments<'_> = call.arguments();
    let (mut force, mut catch_up) = (false, None);
    call.for_each_field(|name, value| {
        match name {
            "force" => force = arguments.boolean(name, value)?,
            "secondaryCatchUpPeriodSecs" => catch_up = Some(arguments.non_negative(name, value)? as u64),
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    let period = seconds(call, 60)?;
    let (set, member, _) = configured(call)?;
    if member.role != Role::Primary {
        return Err(CommandError::new(
            ErrorCode::NotWritablePrimary,
            "not primary so can't step down",
        ));
    }
    let catch_up = Duration::from_secs(catch_up.unwrap_or(if force { 0 } else { 10 }));
    if catch_up > period {
        return Err(CommandError::bad_value(
            "stepdown period must be longer than secondaryCatchUpPeriodSecs",
        ));
    }
    let until = call.server.env.clock.monotonic() + period;
    if call.server.storage.standing().is_none() {
        // There is nobody to catch up: only by force.
        if !force {
            return Err(nobody_caught_up());
        }
        set.change(|member| (member.leads, member.frozen_until, member.primary) = (false, until, None));
    } else {
        hand_over(call, set, force, catch_up, until)?;
    }
    call.server.log_role(&set.member());
    call.server.sessions.kill(|_| true, Some(call.operation.id));
    Ok(())
}

fn nobody_caught_up() -> CommandError {
    CommandError::new(
        ErrorCode::ExceededTimeLimit,
        "No electable secondaries caught up. Please use the replSetStepDown command with the argument {force: true} to force node to step down.",
    )
}

/// Gives leadership to a member that has everything, or just up.
fn hand_over(call: &Invocation<'_>, set: &ReplicaSet, force: bool, catch_up: Duration, until: Duration) -> Result<()> {
    let (storage, clock) = (&call.server.storage, call.server.env.clock.clone());
    // From here on no write begins, so that there is an end to catch up with.
    set.change(|member| member.steps_down = true);
    let end = clock.monotonic() + catch_up;
    let heir = loop {
        let last = storage.log().last_seq();
        let heir = storage
            .standing()
            .and_then(|standing| heir(&set.member(), &standing, last));
        if heir.is_some() || clock.monotonic() >= end {
            break heir;
        }
        if let Err(error) = wait_a_little(call, end) {
            set.change(|member| member.steps_down = false);
            return Err(error);
        }
    };
    match heir {
        Some(heir) => storage.transfer_leadership(heir),
        None if force => storage.give_leadership_up(),
        None => {
            set.change(|member| member.steps_down = false);
            return Err(nobody_caught_up());
        }
    }
    // Before it hears of another election: it does not stand for the next one.
    set.change(|member| member.frozen_until = until);
    call.server.allow_candidacy(set);
    while storage.standing().is_some_and(|standing| standing.is_writable) {
        if clock.monotonic() >= until {
            break;
        }
        if force && clock.monotonic() >= end {
            storage.give_leadership_up();
        }
        wait_a_little(call, until)?;
    }
    Ok(())
}

impl Server {
    /// Hands leadership over, if there is a member that has everything or has it soon, before this server ends.
    pub fn resign(self: &Arc<Self>) {
        let Some(set) = self.replica_set() else { return };
        if !set.is_writable() || self.storage.standing().is_none() {
            return;
        }
        let until = self.env.clock.monotonic() + RESIGN_PATIENCE;
        // Without an heir the others elect one when this server is gone.
        let _ = self.own_call(|call| hand_over(call, set, false, RESIGN_PATIENCE / 2, until));
    }
}

/// Until something is heard of another member, for a moment at most.
fn wait_a_little(call: &Invocation<'_>, until: Duration) -> Result<()> {
    const MOMENT: Duration = Duration::from_millis(20);
    let clock = call.operation.clock();
    let end = (clock.monotonic() + MOMENT).min(until);
    let waited = call.server.storage.wait_members(&call.operation, Some(end), &|_| false);
    Ok(waited.map(drop)?)
}

/// Of the members that can be elected and have all of the log, the one with the highest priority, by its number in
/// consensus.
pub(super) fn heir(member: &Member, standing: &Standing, last: Seq) -> Option<u64> {
    let able = standing.progress.iter().filter_map(|progress| {
        let of = member.by_consensus_id(progress.id)?;
        let votes = member.consensus.as_ref()?.by_id(progress.id)?.votes;
        (votes && of.is_electable() && progress.durable >= last).then_some((progress.id, of.priority))
    });
    able.max_by(|(_, one), (_, other)| one.total_cmp(other))
        .map(|(id, _)| id)
}

/// Leadership is asked for, and the answer waits until it has come or cannot come.
fn step_up(call: &mut Invocation<'_>, _reply: &mut Reply<'_>) -> Result<()> {
    let arguments = call.arguments();
    call.for_each_field(|name, value| {
        match name {
            "skipDryRun" => drop(arguments.boolean(name, value)?),
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    let (set, member, config) = configured(call)?;
    if member.role == Role::Primary {
        return Ok(());
    }
    let failed = |reason: &str| {
        Err(CommandError::new(
            ErrorCode::OperationFailed,
            format!("Election failed: {reason}"),
        ))
    };
    let Some(standing) = call.server.storage.standing() else {
        return failed("this member has no vote yet");
    };
    if !member.me().is_some_and(|me| me.is_electable()) || member.role != Role::Secondary {
        return failed("this member cannot become the primary");
    }
    // Asked for by name: what it was frozen for is over.
    set.change(|member| member.frozen_until = Duration::ZERO);
    call.server.allow_candidacy(set);
    let patience = Duration::from_millis(config.settings.election_timeout_ms) * 2;
    let end = call.operation.clock().monotonic() + patience;
    let mut asked_in = 0;
    while !set.is_writable() {
        if call.operation.clock().monotonic() >= end {
            return failed("no majority of the members agreed in time");
        }
        let now = call.server.storage.standing().unwrap_or_else(|| standing.clone());
        // Once a term: what was asked is on its way.
        if asked_in <= now.term {
            asked_in = now.term + 1;
            match now.leader {
                Some(_) => call.server.storage.transfer_leadership(now.id),
                None => call.server.storage.campaign(),
            }
        }
        call.operation.check_now().map_err(StorageError::from)?;
        wait_a_little(call, end)?;
    }
    Ok(())
}
