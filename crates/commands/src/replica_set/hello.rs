//! What drivers are told of the set: the fields of `hello`, and positions in the log as they know them.

use super::{Member, MemberConfig, ReplicaSet, Role, TopologyVersion};
use crate::reply::Reply;
use bson::DateTime;
use bson::oid::ObjectId;
use storage::{AppliedPoint, ClusterTime, Storage};

impl ReplicaSet {
    /// The fields of `hello` that tell of the set. `primary` is the name of the field that says whether it takes
    /// writes. Answers the state that is told.
    pub fn write_hello(&self, reply: &mut Reply<'_>, primary: &str, storage: &Storage) -> TopologyVersion {
        let member = self.member();
        self.write_state(reply, primary, storage, &member);
        TopologyVersion {
            process: self.process,
            counter: member.counter,
        }
    }

    fn write_state(&self, reply: &mut Reply<'_>, primary: &str, storage: &Storage, member: &Member) {
        // The one of this state. A later one would have drivers keep what is told here until the change after that.
        self.write_version(reply, member.counter);
        let me = member.me().filter(|_| member.role != Role::Removed);
        let (Some(config), Some(me)) = (&member.config, me) else {
            reply.boolean(primary, false);
            reply.boolean("secondary", false);
            reply.boolean("isreplicaset", true);
            reply.string("info", "Does not have a valid replica set config");
            return;
        };
        let is_data = |member: &&MemberConfig| !member.hidden && !member.arbiter_only;
        let data = || config.members.iter().filter(is_data);
        write_hosts(reply, "hosts", true, data().filter(|member| member.priority > 0.0));
        write_hosts(reply, "passives", false, data().filter(|member| member.priority == 0.0));
        let arbiters = config.members.iter().filter(|member| member.arbiter_only);
        write_hosts(reply, "arbiters", false, arbiters);
        reply.string("setName", &self.name);
        reply.int32("setVersion", config.version);
        reply.boolean(primary, member.role == Role::Primary);
        reply.boolean("secondary", member.role == Role::Secondary);
        if let Some(primary) = member.primary.and_then(|id| config.member(id)) {
            reply.string("primary", &primary.host);
        }
        for (name, is_so) in [
            ("arbiterOnly", me.arbiter_only),
            ("passive", me.priority == 0.0 && !me.arbiter_only),
            ("hidden", me.hidden),
        ] {
            if is_so {
                reply.boolean(name, true);
            }
        }
        if me.secondary_delay_s > 0 {
            // The legacy command tells it by its legacy name.
            let name = match primary {
                "ismaster" => "slaveDelay",
                _ => "secondaryDelaySecs",
            };
            reply.int64(name, i64::from(me.secondary_delay_s));
        }
        reply.string("me", &me.host);
        if !me.tags.is_empty() {
            reply.value("tags", &me.tags.clone().into());
        }
        if member.role == Role::Primary {
            reply.value("electionId", &election_id(member.term).into());
        }
        reply.open_document("lastWrite");
        // The majority's first: it is never later than what is applied then.
        let majority = majority_point(storage);
        let applied = storage.applied();
        for (name, date, point) in [
            ("opTime", "lastWriteDate", applied),
            ("majorityOpTime", "majorityWriteDate", majority),
        ] {
            write_op_time(reply, name, point.time, term_of(storage, point, member.term));
            reply.date(date, date_of(point.time));
        }
        reply.close();
    }

    /// `topologyVersion`.
    pub fn write_topology_version(&self, reply: &mut Reply<'_>) {
        self.write_version(reply, self.with_member(|member| member.counter));
    }

    fn write_version(&self, reply: &mut Reply<'_>, counter: i64) {
        let process = self.process;
        TopologyVersion { process, counter }.write(reply);
    }
}

/// What a majority has, as this member shows it. With others everything that is applied; of who is alone, what is on
/// its disk.
pub fn majority_point(storage: &Storage) -> AppliedPoint {
    match storage.standing() {
        Some(_) => storage.applied(),
        None => storage.durable(),
    }
}

/// The term of an entry that is applied; `otherwise` where the log no longer tells.
pub fn term_of(storage: &Storage, point: AppliedPoint, otherwise: u64) -> u64 {
    storage.log().term_of(point.seq).unwrap_or(otherwise)
}

fn write_hosts<'m>(
    reply: &mut Reply<'_>,
    name: &str,
    even_none: bool,
    members: impl Iterator<Item = &'m MemberConfig>,
) {
    let mut members = members.peekable();
    if members.peek().is_none() && !even_none {
        return;
    }
    reply.open_array(name);
    for (index, member) in members.enumerate() {
        reply.string(&index.to_string(), &member.host);
    }
    reply.close();
}

/// What drivers tell later terms from earlier ones by: 0x7fffffff and the term, big-endian.
fn election_id(term: u64) -> ObjectId {
    let mut bytes = [0x7F, 0xFF, 0xFF, 0xFF, 0, 0, 0, 0, 0, 0, 0, 0];
    bytes[4..].copy_from_slice(&term.to_be_bytes());
    ObjectId::from_bytes(bytes)
}

/// The second of a cluster time.
pub fn date_of(time: ClusterTime) -> DateTime {
    DateTime::from_millis((time.0 >> 32) as i64 * 1000)
}

/// A position in the log as drivers see it: `{ts, t}`.
pub fn write_op_time(reply: &mut Reply<'_>, name: &str, time: ClusterTime, term: u64) {
    reply.open_document(name);
    reply.timestamp("ts", time.to_timestamp());
    reply.int64("t", term as i64);
    reply.close();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn election_ids_rise_with_the_term() {
        assert_eq!(election_id(1).to_hex(), "7fffffff0000000000000001");
        assert!(election_id(255) < election_id(256));
    }
}
