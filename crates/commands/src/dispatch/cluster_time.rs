//! Cluster time: what clients have seen elsewhere, and what replies tell.

use super::Call;
use crate::error::{CommandError, Result};
use crate::generic::Generic;
use crate::invocation::Invocation;
use crate::reply::Reply;
use crate::rights::Rights;
use crate::server::Server;
use bson::rawdoc;
use keys::describe::describe;
use storage::ClusterTime;
use wire::ErrorCode;

/// A time that a client has seen elsewhere may be so many seconds ahead of this server's clock: a year, as in MongoDB.
const CLUSTER_TIME_AHEAD_MAX_S: i64 = 365 * 86_400;
/// Clocks of members differ by so many seconds at most, as long as nobody tells of it.
const CLOCKS_APART_S: i64 = 10;
/// A time that another member has shown is so many seconds ahead of this server's clock at most, or of what was written
/// here: the other one's clock may be ahead, and users may have moved the set's time on by as much again.
const SHOWN_AHEAD_MAX_S: i64 = 2 * CLOCKS_APART_S + 1;

impl Server {
    /// What a member tells with each reply: the time of what it has shown at most.
    pub(super) fn write_times(&self, reply: &mut Reply<'_>) {
        if self.settings.replica_set.is_none() {
            return;
        }
        let now = self.storage.newest().time.to_timestamp();
        reply.open_document("$clusterTime");
        reply.timestamp("clusterTime", now);
        reply.open_document("signature");
        reply.generic_binary("hash", &[0; 20]);
        reply.int64("keyId", 0);
        reply.close();
        reply.close();
        reply.timestamp("operationTime", now);
    }
}

impl Call<'_> {
    /// `$clusterTime`: what is written from now on is later than what the client has seen elsewhere. With access
    /// control it is passed over, as nothing proves that a server has given that time: replies have no signatures.
    pub(super) fn see_time(&self, generic: &Generic<'_>, invocation: &Invocation<'_>) -> Result<()> {
        let (Some(set), Some(seen), Rights::Unchecked) =
            (self.server.replica_set(), generic.cluster_time, &invocation.rights)
        else {
            return Ok(());
        };
        let storage = &self.server.storage;
        if seen <= storage.newest().time {
            return Ok(());
        }
        self.check_time(seen)?;
        if set.is_writable() {
            storage.saw_cluster_time(seen);
        }
        Ok(())
    }

    /// Nobody moves the set's clock away from what clocks show.
    fn check_time(&self, time: ClusterTime) -> Result<()> {
        let (time_s, now_s) = (seconds(time), self.now_s());
        if time_s > now_s + CLUSTER_TIME_AHEAD_MAX_S {
            return Err(CommandError::new(
                ErrorCode::ClusterTimeFailsRateLimiter,
                format!("New cluster time, {time_s}, is too far from this node's wall clock time, {now_s}."),
            ));
        }
        Ok(())
    }

    /// `afterClusterTime`: what was written until then is seen. `atClusterTime`: that can be read.
    pub(super) fn wait_for_time(&self, generic: &Generic<'_>, invocation: &Invocation<'_>) -> Result<()> {
        let concern = &invocation.read_concern;
        // Whoever has not proven to be anybody is shown nothing that there would be to wait for.
        if matches!(invocation.rights, Rights::Nobody | Rights::First) {
            return Ok(());
        }
        if let Some(at) = concern.at {
            return self.wait_for_moment(invocation, at);
        }
        let Some(after) = concern.after else { return Ok(()) };
        let storage = &self.server.storage;
        let newest = storage.newest().time;
        if after <= newest {
            return Ok(storage.wait_shown(&invocation.operation)?);
        }
        let moves_time = self.is_given(generic, invocation, after);
        match self.server.replica_set() {
            // Members show what this one has not applied yet: that is waited for.
            Some(set) if !set.is_writable() && (moves_time || self.may_be_shown(after)) => {
                self.check_time(after)?;
                self.server.wait_until_applied(set, invocation, after, moves_time)
            }
            _ if moves_time => {
                self.check_time(after)?;
                self.move_time_to(invocation, after)
            }
            _ => Err(CommandError::new(
                ErrorCode::InvalidOptions,
                format!(
                    "readConcern afterClusterTime value must not be greater than the current clusterTime. Requested clusterTime: {}; current clusterTime: {}",
                    describe(after.to_timestamp().into()),
                    describe(newest.to_timestamp().into())
                ),
            )),
        }
    }

    /// A moment that another member has shown, and that this one has not reached yet, is kept when it comes by. What
    /// cannot be read is refused by who reads.
    fn wait_for_moment(&self, invocation: &Invocation<'_>, at: ClusterTime) -> Result<()> {
        let server = self.server;
        let Some(set) = server.replica_set().filter(|set| !set.is_writable()) else {
            return Ok(());
        };
        if at <= server.storage.newest().time || !self.may_be_shown(at) {
            return Ok(());
        }
        let awaited = server.storage.await_state(at);
        server.wait_until_applied(set, invocation, at, false)?;
        if let Some(view) = awaited.view() {
            server.pinned.keep(at, view, server.env.clock.monotonic());
        }
        Ok(())
    }

    /// Whether some server may have given a time that nothing was written at here, so that an entry is to move the
    /// set's time on. `$clusterTime` says so where it is believed, see [`Call::see_time`]; else it is near what clocks
    /// show, in a set with others.
    fn is_given(&self, generic: &Generic<'_>, invocation: &Invocation<'_>, time: ClusterTime) -> bool {
        let is_told = matches!(invocation.rights, Rights::Unchecked) && Some(time) <= generic.cluster_time;
        is_told || self.has_others() && seconds(time) <= self.now_s() + CLOCKS_APART_S
    }

    /// Whether another member may show the time already.
    fn may_be_shown(&self, time: ClusterTime) -> bool {
        let known = self.now_s().max(seconds(self.server.storage.applied().time));
        self.has_others() && seconds(time) <= known + SHOWN_AHEAD_MAX_S
    }

    fn has_others(&self) -> bool {
        self.server.storage.standing().is_some()
    }

    fn now_s(&self) -> i64 {
        self.server.env.clock.now_ms() / 1000
    }

    /// An entry moves time on, to the end of that second: who asks for all times of a second has one entry written.
    fn move_time_to(&self, invocation: &Invocation<'_>, time: ClusterTime) -> Result<()> {
        let storage = &self.server.storage;
        storage.saw_cluster_time(ClusterTime(((time.0 >> 32) + 1) << 32));
        storage.write_note_in(&invocation.operation, &rawdoc! { "msg": "cluster time" }, None)?;
        Ok(())
    }
}

fn seconds(time: ClusterTime) -> i64 {
    (time.0 >> 32) as i64
}
