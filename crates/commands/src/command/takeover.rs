//! When a primary offers leadership to members with higher priorities.

use std::time::Duration;
use storage::TRANSFER_PATIENCE;

/// Between two attempts with one member: so many election time-outs at first, twice as long each time, and this at
/// most. Writes wait during an attempt.
const TAKEOVER_TIMEOUTS: u32 = 2;
const TAKEOVER_WAIT_MAX: Duration = Duration::from_secs(600);

/// Attempts to give leadership to members with higher priorities, which have not taken it as long as there are more.
#[derive(Default)]
pub(super) struct Takeover {
    /// Of the configuration under which they were made.
    version: i32,
    attempts: Vec<Attempt>,
    /// Monotonic time until which the last one may still have somebody elected: another one would depose that.
    over_at: Duration,
}

/// The last one with one member.
struct Attempt {
    /// Its number in consensus.
    heir: u64,
    /// Since when it had answered.
    up_since: Duration,
    /// Monotonic time of the next one, and how long that is after the last one.
    due: Duration,
    wait: Duration,
}

impl Takeover {
    /// Forgets what is of another configuration, or `is_over`: of a number, and since when that one had answered.
    pub(super) fn forget(&mut self, version: i32, is_over: impl Fn(u64, Duration) -> bool) {
        if self.version != version {
            self.version = version;
            self.attempts.clear();
        }
        self.attempts.retain(|attempt| !is_over(attempt.heir, attempt.up_since));
    }

    /// Those that are not to be offered it yet.
    pub(super) fn not_due(&self, now: Duration) -> Vec<u64> {
        let waiting = self.attempts.iter().filter(|attempt| now < attempt.due);
        waiting.map(|attempt| attempt.heir).collect()
    }

    /// Whether nobody else is to be offered it yet.
    pub(super) fn is_under_way(&self, now: Duration) -> bool {
        now < self.over_at
    }

    /// One begins.
    pub(super) fn begin(&mut self, heir: u64, up_since: Duration, now: Duration, election_timeout: Duration) {
        let before = self.attempts.iter().position(|attempt| attempt.heir == heir);
        let waited = before.map_or(Duration::ZERO, |place| self.attempts.swap_remove(place).wait);
        let shortest = (election_timeout * TAKEOVER_TIMEOUTS).min(TAKEOVER_WAIT_MAX);
        let wait = (waited * 2).clamp(shortest, TAKEOVER_WAIT_MAX);
        self.over_at = now + election_timeout.clamp(TRANSFER_PATIENCE * 2, TAKEOVER_WAIT_MAX);
        self.attempts.push(Attempt {
            heir,
            up_since,
            due: now + wait,
            wait,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One that did not take the leadership was offered it again at once, for as long as it did not.
    #[test]
    fn a_member_that_does_not_take_the_leadership_is_left_alone_for_longer_each_time() {
        let mut takeover = Takeover::default();
        let election_timeout = Duration::from_secs(10);
        let mut seconds = Vec::new();
        for second in 0..2000 {
            let now = Duration::from_secs(second);
            if !takeover.is_under_way(now) && takeover.not_due(now).is_empty() {
                takeover.begin(2, Duration::ZERO, now, election_timeout);
                seconds.push(second);
            }
        }
        assert_eq!(seconds, [0, 20, 60, 140, 300, 620, 1220, 1820]);
    }

    /// The next one was never offered it, and a new configuration waited for the failures under the last one.
    #[test]
    fn attempts_are_of_one_member_and_of_one_configuration() {
        let (mut takeover, now) = (Takeover::default(), Duration::from_secs(5));
        let begin = |takeover: &mut Takeover| {
            for heir in [2, 3] {
                takeover.begin(heir, Duration::from_secs(heir), now, Duration::from_secs(10));
            }
        };
        takeover.forget(1, |_, _| false);
        begin(&mut takeover);
        takeover.forget(1, |_, _| false);
        assert_eq!(takeover.not_due(now), [2, 3]);
        takeover.forget(1, |heir, since| heir == 2 && since == Duration::from_secs(2));
        assert_eq!(takeover.not_due(now), [3]);
        begin(&mut takeover);
        takeover.forget(2, |_, _| false);
        assert!(takeover.not_due(now).is_empty());
        assert!(takeover.is_under_way(now), "who was asked last may yet be elected");
        assert!(!takeover.is_under_way(now + Duration::from_secs(10)));
    }
}
