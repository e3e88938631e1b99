//! The state machine of consensus over this server's log, and what is on its way to it; `consensus.rs` drives it where
//! this server decides alone, `driver.rs` where others take part.

use crate::background::Alarm;
use crate::log_damage::LogHistory;
use crate::membership::Membership;
use crate::standing::{ElectionReason, Standing};
use bytes::Bytes;
use engine::Seq;
use oplog::{Log, LogError};
use parking_lot::{Condvar, Mutex};
use repl::{Config, LogView, Member, Message, ReplError, Unsynced};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use vfs::Random;

/// Ticks that make an election's shortest time-out, and those between two signs of life of a leader.
const ELECTION_TICKS: usize = 40;
const HEARTBEAT_TICKS: usize = 8;

/// See the module.
#[derive(Default)]
pub(crate) struct Consensus {
    /// The state machine of who decides alone; none before this server stood for election, or when a driver has it.
    /// Locked before `order`.
    pub(crate) voter: Mutex<Option<Voter>>,
    /// Where others take part.
    link: OnceLock<Arc<Inbox>>,
}

impl Consensus {
    /// Where others take part: what the driver's thread is told.
    pub(crate) fn link(&self) -> Option<&Arc<Inbox>> {
        self.link.get()
    }

    /// False when others take part already.
    pub(crate) fn connect(&self, inbox: Arc<Inbox>) -> bool {
        self.link.set(inbox).is_ok()
    }

    /// The log has grown.
    #[inline]
    pub(crate) fn wake(&self) {
        if let Some(inbox) = self.link.get() {
            inbox.alarm.ring();
        }
    }

    /// The entry at `seq` changes who is a member, and is about to be applied.
    pub(crate) fn change_members(&self, seq: Seq) {
        if let Some(inbox) = self.link.get() {
            inbox.members_at.fetch_max(seq.0, Ordering::AcqRel);
        }
    }
}

/// What the driver's thread is to do next.
pub(crate) enum Event {
    /// From another member.
    Message(Message),
    /// What was written up to then is on disk.
    Persisted(Unsynced),
    /// Hand leadership over, or ask the leader to.
    Transfer(u64, ElectionReason),
    /// Lead no more.
    StepDown,
    /// Stand for election now.
    Campaign,
    /// A barrier has risen, the one with this number: what comes is not to be written.
    Barrier(u64),
}

/// See [`Consensus::link`].
#[derive(Default)]
pub(crate) struct Inbox {
    pub(crate) events: Mutex<Vec<Event>>,
    pub(crate) alarm: Arc<Alarm>,
    /// The last entry that changed who is a member, from shortly before it is applied.
    members_at: AtomicU64,
    /// The one whose members the state machine has.
    members_taken: AtomicU64,
    /// Whether this member may stand for election.
    pub(crate) may_stand: AtomicBool,
    /// This member, which applies with a delay, has applied all that it may have shown before it was started.
    pub(crate) waits_for_time: AtomicBool,
    /// Barriers that the driver's thread was told of, and that it has heard of.
    pub(crate) barriers_told: AtomicU64,
    pub(crate) barriers_heard: AtomicU64,
    /// The time between two ticks.
    tick_us: AtomicU64,
    /// As the driver's thread left it last.
    pub(crate) standing: Mutex<Standing>,
    pub(crate) standing_changed: Condvar,
}

impl Inbox {
    pub(crate) fn members_at(&self) -> Seq {
        Seq(self.members_at.load(Ordering::Acquire))
    }

    pub(crate) fn took_members(&self, at: Seq) {
        self.members_taken.store(at.0, Ordering::Release);
    }

    /// Whether the state machine has the members that are applied.
    pub(crate) fn has_taken_members(&self) -> bool {
        self.members_taken.load(Ordering::Acquire) >= self.members_at().0
    }

    /// Ticks follow each other as an election's time-out asks for.
    pub(crate) fn set_tick(&self, election_timeout: Duration) {
        let tick = election_timeout.as_micros() as u64 / ELECTION_TICKS as u64;
        self.tick_us.store(tick.max(1_000), Ordering::Relaxed);
    }

    pub(crate) fn tick(&self) -> Duration {
        Duration::from_micros(self.tick_us.load(Ordering::Relaxed))
    }

    /// The shortest time without a sign of life after which a follower stands for election.
    pub(crate) fn election_timeout(&self) -> Duration {
        self.tick() * ELECTION_TICKS as u32
    }

    pub(crate) fn push(&self, event: Event) {
        self.events.lock().push(event);
        self.alarm.ring();
    }
}

/// The log as consensus sees it.
pub(crate) struct LogOf(LogHistory);

/// A state machine over this server's log.
pub(crate) type Voter = Member<LogOf>;

impl LogView for LogOf {
    fn first(&self) -> Seq {
        // Without segments there is nothing to read, and the log goes on where it ends.
        self.0.log.first_seq().min(self.0.log.last_seq().next())
    }

    fn last(&self) -> Seq {
        self.0.log.last_seq()
    }

    fn term(&self, seq: Seq) -> Result<u64, String> {
        self.0
            .read(seq, |log| log.term_of(seq))
            .map_err(|error| error.to_string())
    }

    fn read(&self, from: Seq, to: Seq, bytes_max: u64, put: &mut dyn FnMut(Bytes)) -> Result<(), String> {
        let count = (to.0 - from.0) as usize;
        let entries = self.0.read(from, |log| read_some(log, from, count, bytes_max));
        entries.map_err(|error| error.to_string())?.into_iter().for_each(put);
        Ok(())
    }
}

/// So many entries from `from` on as fit into `bytes_max`, one at least. What cannot be read behind that one is left
/// out: whoever needs it asks for it next.
pub(crate) fn read_some(log: &Log, from: Seq, count: usize, bytes_max: u64) -> Result<Vec<Bytes>, LogError> {
    let (mut entries, mut bytes_left) = (Vec::new(), bytes_max);
    for entry in log.read_appended(from)?.take(count) {
        let bytes = match entry {
            Ok((_, bytes)) => bytes,
            Err(_) if !entries.is_empty() => break,
            Err(error) => return Err(error),
        };
        if !entries.is_empty() && bytes.len() as u64 > bytes_left {
            break;
        }
        bytes_left = bytes_left.saturating_sub(bytes.len() as u64);
        entries.push(bytes);
    }
    Ok(entries)
}

/// The only voter, `id`, with the log as it is on disk.
pub(crate) fn begin(history: LogHistory, id: u64, random: Arc<dyn Random>) -> Result<Voter, ReplError> {
    let members = Membership {
        voters: vec![id],
        learners: Vec::new(),
        own: Some(id),
        is_arbiter: false,
    };
    let last = history.log.last_seq();
    begin_with(history, id, &members, last, random)
}

/// A member, `id`, with the log as it is on disk, of which entries up to `applied` are applied.
pub(crate) fn begin_with(
    history: LogHistory,
    id: u64,
    members: &Membership,
    applied: Seq,
    random: Arc<dyn Random>,
) -> Result<Voter, ReplError> {
    let config = Config {
        id,
        voters: members.voters.clone(),
        learners: members.learners.clone(),
        election_ticks: ELECTION_TICKS,
        heartbeat_ticks: HEARTBEAT_TICKS,
        random,
    };
    let state = history.log.hard_state();
    Member::start(&config, state, applied, LogOf(history))
}
