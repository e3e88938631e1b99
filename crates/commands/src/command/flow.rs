//! Flow control of a primary: what the majority shows of what it has written.

use crate::replica_set::ReplicaSet;
use crate::server::Server;
use std::sync::atomic::Ordering;
use std::time::Duration;
use storage::Seq;

impl Server {
    /// Once a second.
    pub(crate) fn control_flow(&self, set: &ReplicaSet) {
        let control = self.storage.flow_control();
        let parameters = &self.parameters;
        match parameters.flow_control.load(Ordering::Relaxed) {
            true => match self.shown_by_majority(set) {
                Some(shown) => {
                    let target = Duration::from_secs(parameters.flow_control_lag_s.load(Ordering::Relaxed) as u64);
                    control.look(self.env.clock.monotonic(), self.storage.last_seq(), shown, target);
                }
                None => control.end(),
            },
            false => control.end(),
        }
    }

    /// What as many members show as acknowledge a write with `w: "majority"`, of those that answer and are not delayed
    /// on purpose. `None` where this server leads nobody, or there are not so many: no limit would help.
    fn shown_by_majority(&self, set: &ReplicaSet) -> Option<Seq> {
        let standing = self.storage.standing().filter(|standing| standing.is_writable)?;
        let member = set.member().counting_votes();
        let config = member.config.as_ref()?;
        let mut shown = vec![self.storage.last_seq()];
        for progress in &standing.progress {
            let of = member.by_consensus_id(progress.id);
            let counts =
                of.is_some_and(|of| of.votes && !of.arbiter_only && of.secondary_delay_s == 0 && set.peer(of.id).is_up);
            if counts {
                shown.push(progress.applied);
            }
        }
        shown.sort_unstable_by(|one, other| other.cmp(one));
        shown.get(config.write_majority().checked_sub(1)?).copied()
    }
}
