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
use storage::{ElectionReason, Interrupted, Seq, Standing, StorageError, TRANSFER_PATIENCE};
use wire::ErrorCode;

/// How long a member that steps down stays a secondary, if nobody says so.
const PERIOD_DEFAULT: Duration = Duration::from_secs(60);
/// How long after it was asked for, and not given, leadership is asked for again.
const ASKS_AGAIN_AFTER: Duration = Duration::from_secs(1);
/// Whoever is offered leadership, and has not taken it, is offered it again after so long: the offer is over by then,
/// unless its receiver stands for election already.
const OFFER_PATIENCE: Duration = TRANSFER_PATIENCE.saturating_add(Duration::from_millis(100));
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
    let period = match seconds(call)? {
        0 => PERIOD_DEFAULT,
        seconds @ 1.. => Duration::from_secs(seconds.min(i64::from(i32::MAX)) as u64),
        _ => return Err(CommandError::bad_value("stepdown period must be a positive integer")),
    };
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
    let but = Some(call.operation.id);
    call.server.sessions.kill(|_| true, but, Interrupted::RoleChanged);
    Ok(())
}

fn nobody_caught_up() -> CommandError {
    CommandError::new(
        ErrorCode::ExceededTimeLimit,
        "No electable secondaries caught up. Please use the replSetStepDown command with the argument {force: true} to force node to step down.",
    )
}

/// Gives leadership to a member that has everything, or just up. Leads and takes writes again when it fails.
fn hand_over(call: &Invocation<'_>, set: &ReplicaSet, force: bool, catch_up: Duration, until: Duration) -> Result<()> {
    // From here on no write begins, so that there is an end to catch up with.
    set.change(|member| member.steps_down = true);
    let handed_over = try_to_hand_over(call, set, force, catch_up, until);
    let still_leads = call
        .server
        .storage
        .standing()
        .is_some_and(|standing| standing.is_writable);
    if handed_over.is_err() || still_leads {
        set.change(|member| (member.steps_down, member.frozen_until) = (false, Duration::ZERO));
        call.server.allow_candidacy(set);
    }
    match handed_over {
        Ok(()) if still_leads => Err(nobody_caught_up()),
        other => other,
    }
}

fn try_to_hand_over(
    call: &Invocation<'_>,
    set: &ReplicaSet,
    force: bool,
    catch_up: Duration,
    until: Duration,
) -> Result<()> {
    let (storage, clock) = (&call.server.storage, call.server.env.clock.clone());
    let member = set.member();
    if let Some(threads) = set.threads() {
        // Which of them may stand was said some time ago.
        threads.ask_all();
    }
    let leads = || storage.standing().is_some_and(|standing| standing.is_writable);
    let end = clock.monotonic() + catch_up;
    // An election may take as long as that on slow disks: another offer would depose whom this one has had elected. Who
    // insists does not wait so long beyond the time to catch up.
    let timeout_ms = member
        .config
        .as_ref()
        .map_or(0, |config| config.settings.election_timeout_ms);
    let election_timeout = Duration::from_millis(timeout_ms);
    let patience = match force {
        true => election_timeout.min(catch_up).max(OFFER_PATIENCE),
        false => election_timeout.max(OFFER_PATIENCE),
    };
    let mut offer: Option<Offer> = None;
    // Each is offered it once before anybody is offered it again: one may be too slow, or may not stand any more and
    // have said that it may a moment ago. When the time to catch up is over, those are left that were not asked yet.
    let mut offered = Vec::new();
    while leads() && clock.monotonic() < until {
        let now = clock.monotonic();
        if let Some(offer) = &mut offer
            && now < offer.until
            && may_take(set, &member, offer.heir)
        {
            if now >= offer.again {
                offer.again = now + OFFER_PATIENCE;
                storage.transfer_leadership(offer.heir, ElectionReason::Handover);
            }
            wait_a_little(call, until)?;
            continue;
        }
        let last = storage.log().last_seq();
        let standing = storage.standing();
        let heir = standing.and_then(|standing| heir(set, &member, &standing, last, &offered));
        match heir {
            Some(heir) => {
                // Before it hears of another election: it does not stand for the next one.
                set.change(|member| member.frozen_until = until);
                call.server.allow_candidacy(set);
                storage.transfer_leadership(heir, ElectionReason::Handover);
                offered.push(heir);
                offer = Some(Offer {
                    heir,
                    again: now + OFFER_PATIENCE,
                    until: now + patience,
                });
            }
            None if now < end => {
                if !std::mem::take(&mut offered).is_empty()
                    && let Some(threads) = set.threads()
                {
                    threads.ask_all();
                }
            }
            None if force => {
                set.change(|member| member.frozen_until = until);
                call.server.allow_candidacy(set);
                storage.give_leadership_up();
            }
            None => return Err(nobody_caught_up()),
        }
        wait_a_little(call, until)?;
    }
    Ok(())
}

/// Leadership that a member is to take.
struct Offer {
    /// By its number in consensus.
    heir: u64,
    /// Monotonic time when it is asked once more.
    again: Duration,
    /// Monotonic time when it is passed over.
    until: Duration,
}

/// Whether a member that was offered leadership has not said since that it may not stand, nor fallen silent.
fn may_take(set: &ReplicaSet, member: &Member, heir: u64) -> bool {
    member.by_consensus_id(heir).is_some_and(|of| {
        let peer = set.peer(of.id);
        peer.is_up && peer.may_stand
    })
}

/// A primary is to end: gives leadership to a member that has everything, once there is one.
///
/// # Errors
/// `ExceededTimeLimit` (262): none has within `patience`; this one goes on.
pub(super) fn hand_over_to_end(call: &Invocation<'_>, patience: Duration) -> Result<()> {
    let Some(set) = call.server.replica_set() else {
        return Ok(());
    };
    let has_others = set.with_member(|member| member.config.as_ref().is_some_and(|config| config.members.len() > 1));
    if !set.is_writable() || !has_others || call.server.storage.standing().is_none() {
        return Ok(());
    }
    let until = call.server.env.clock.monotonic() + patience + RESIGN_PATIENCE;
    hand_over(call, set, false, patience, until)
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

/// Of the members that can be elected now and show all of the log up to `last`, the one with the highest priority, by
/// its number in consensus. Who has it and does not show it yet would not stand for election. Not one of `but`.
pub(super) fn heir(set: &ReplicaSet, member: &Member, standing: &Standing, last: Seq, but: &[u64]) -> Option<u64> {
    let able = standing.progress.iter().filter_map(|progress| {
        let of = member.by_consensus_id(progress.id)?;
        let votes = member.consensus.as_ref()?.by_id(progress.id)?.votes;
        let peer = set.peer(of.id);
        let may_stand = votes && of.is_electable() && peer.is_up && peer.may_stand;
        let is_ready = may_stand && progress.durable >= last && progress.applied >= last;
        (is_ready && !but.contains(&progress.id)).then_some((progress.id, of.priority))
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
            ErrorCode::CommandFailed,
            format!("Election failed: {reason}"),
        ))
    };
    let Some(standing) = call.server.storage.standing() else {
        return failed("this member has no vote yet");
    };
    if !member.me().is_some_and(|me| me.is_electable()) || member.role != Role::Secondary {
        return failed("this member cannot become the primary");
    }
    // The primary would hold all writes up for a member that takes none.
    const HELD_BACK: &str = "writes are held back on this member (fsync with lock)";
    if call.server.storage.holds_writes_back() {
        return failed(HELD_BACK);
    }
    // Asked for by name: what it was frozen for is over.
    set.change(|member| member.frozen_until = Duration::ZERO);
    call.server.allow_candidacy(set);
    let patience = Duration::from_millis(config.settings.election_timeout_ms) * 2;
    let end = call.operation.clock().monotonic() + patience;
    let (mut asked, mut asks_again) = (None, Duration::ZERO);
    while !set.is_writable() {
        if call.server.storage.holds_writes_back() {
            return failed(HELD_BACK);
        }
        if call.operation.clock().monotonic() >= end {
            return failed("no majority of the members agreed in time");
        }
        let now = call.server.storage.standing().unwrap_or_else(|| standing.clone());
        // What was asked is on its way, unless whom it was asked of has gone, or was not known yet.
        let clock_now = call.operation.clock().monotonic();
        if asked != Some((now.term, now.leader)) || clock_now >= asks_again {
            (asked, asks_again) = (Some((now.term, now.leader)), clock_now + ASKS_AGAIN_AFTER);
            let leader = now
                .leader
                .map(|id| set.member().by_consensus_id(id).map(|leader| leader.id));
            match leader {
                Some(known) if known.is_none_or(|id| set.peer(id).is_up) => {
                    call.server.storage.transfer_leadership(now.id, ElectionReason::StepUp);
                }
                _ => call.server.storage.campaign(),
            }
        }
        call.operation.check_now().map_err(StorageError::from)?;
        wait_a_little(call, end)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replica_set::{ConsensusMembers, SetConfig};
    use bson::{RawDocumentBuf, doc, rawdoc};
    use storage::MemberProgress;

    /// Who had the log and did not show it was offered the leadership, and did not take it, beside one that could.
    #[test]
    fn an_heir_shows_all_and_may_stand() {
        let set = ReplicaSet::new("rs".into(), false, ("a", 1), [1; 16]);
        let members: Vec<_> = ["a:1", "b:1", "c:1"].into_iter().zip(0..).collect();
        let members: Vec<_> = members
            .iter()
            .map(|(host, id)| doc! { "_id": id, "host": host })
            .collect();
        let config = doc! { "_id": "rs", "version": 1, "members": members };
        let mut consensus = ConsensusMembers::of_one(0, [1; 16]);
        for member in [1, 2] {
            consensus.take_in(member, [member as u8 + 1; 16]);
            consensus.set_votes(member, true);
        }
        set.change(|member| {
            member.config = SetConfig::parse(&RawDocumentBuf::try_from(&config).expect("valid")).ok();
            member.consensus = Some(consensus);
        });
        let says = |member: i32, may_stand: bool| {
            let answer = rawdoc! { "state": 2, "v": 1, "mayStand": may_stand };
            set.heard(member, Ok(&answer), (5, Duration::from_secs(1)), Duration::ZERO);
        };
        let heir_of = |applied: [u64; 2], but: &[u64]| {
            let progress = [2, 3].into_iter().zip(applied).map(|(id, applied)| MemberProgress {
                id,
                durable: Seq(9),
                applied: Seq(applied),
            });
            let standing = Standing {
                progress: progress.collect(),
                ..Standing::default()
            };
            heir(&set, &set.member(), &standing, Seq(9), but)
        };
        says(1, true);
        says(2, true);
        assert_eq!(heir_of([9, 9], &[]), Some(3));
        assert_eq!(heir_of([9, 9], &[3]), Some(2), "the third did not take it");
        assert_eq!(heir_of([9, 8], &[]), Some(2), "the third does not show all that it has");
        says(2, false);
        assert_eq!(heir_of([9, 9], &[]), Some(2), "the third may not stand");
        assert_eq!(heir_of([8, 9], &[]), None);
    }
}
