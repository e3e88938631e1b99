//! Cluster time: what clients have seen elsewhere, and what replies tell.

use super::Call;
use crate::error::{CommandError, Result};
use crate::invocation::{Generic, Invocation};
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
        let (time_s, now_s) = (seconds(time), self.server.env.clock.now_ms() / 1000);
        if time_s > now_s + CLUSTER_TIME_AHEAD_MAX_S {
            return Err(CommandError::new(
                ErrorCode::ClusterTimeFailsRateLimiter,
                format!("New cluster time, {time_s}, is too far from this node's wall clock time, {now_s}."),
            ));
        }
        Ok(())
    }

    /// `afterClusterTime`: what was written until then is seen.
    pub(super) fn wait_for_time(&self, generic: &Generic<'_>, invocation: &Invocation<'_>) -> Result<()> {
        let Some(after) = invocation.read_concern.after else {
            return Ok(());
        };
        let storage = &self.server.storage;
        let newest = storage.newest().time;
        if after <= newest {
            return Ok(storage.wait_shown(&invocation.operation)?);
        }
        let now_s = self.server.env.clock.now_ms() / 1000;
        // A member may be behind what others have shown.
        let others = storage.standing().is_some();
        if Some(after) > generic.cluster_time && !(others && seconds(after) <= now_s + CLOCKS_APART_S) {
            return Err(CommandError::new(
                ErrorCode::InvalidOptions,
                format!(
                    "readConcern afterClusterTime value must not be greater than the current clusterTime. Requested clusterTime: {}; current clusterTime: {}",
                    describe(after.to_timestamp().into()),
                    describe(newest.to_timestamp().into())
                ),
            ));
        }
        self.check_time(after)?;
        // Nothing was written here since a time that another server has given: an entry moves this one's on.
        match self.server.replica_set() {
            Some(set) if !set.is_writable() => self.server.wait_until_applied(set, invocation, after),
            _ => {
                storage.saw_cluster_time(after);
                storage.write_note(&rawdoc! { "msg": "cluster time" })?;
                Ok(())
            }
        }
    }
}

fn seconds(time: ClusterTime) -> i64 {
    (time.0 >> 32) as i64
}
