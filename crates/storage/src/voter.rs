//! The state machine of consensus over this server's log; `consensus.rs` drives it.

use engine::Seq;
use oplog::Log;
use parking_lot::Mutex;
use repl::{Config, LogView, Member, ReplError};
use std::sync::Arc;
use vfs::Random;

/// Ticks are of no consequence where nobody else can lead.
const ELECTION_TICKS: usize = 10;
const HEARTBEAT_TICKS: usize = 1;

/// The state machine; none before this server stood for election. Locked before `order`.
#[derive(Default)]
pub(crate) struct Consensus(pub(crate) Mutex<Option<Voter>>);

/// The log as consensus sees it.
pub(crate) struct LogOf(Arc<Log>);

/// A state machine that votes alone.
pub(crate) type Voter = Member<LogOf>;

impl LogView for LogOf {
    fn first(&self) -> Seq {
        // Without segments there is nothing to read, and the log goes on where it ends.
        self.0.first_seq().min(self.0.last_seq().next())
    }

    fn last(&self) -> Seq {
        self.0.last_seq()
    }

    fn term(&self, seq: Seq) -> Result<u64, String> {
        self.0.term_of(seq).map_err(|error| error.to_string())
    }
}

/// The only voter, `id`, with the log as it is on disk.
pub(crate) fn begin(log: Arc<Log>, id: u64, random: Arc<dyn Random>) -> Result<Voter, ReplError> {
    let config = Config {
        id,
        voters: vec![id],
        election_ticks: ELECTION_TICKS,
        heartbeat_ticks: HEARTBEAT_TICKS,
        random,
    };
    let (state, last) = (log.hard_state(), log.last_seq());
    Member::start(&config, state, last, LogOf(log))
}
