//! Why a cell ends before its end, and what of that is a finding and no failure: servers do not allow some combinations
//! of the matrix, by rules that are known. Whatever else a server says no to is a fault of it, or of the settings.

use crate::link::LinkError;
use crate::matrix::{Capped, Cell, Journal};
use bench::chain;

/// `BadValue`, `InvalidOptions` and `CommandNotSupported`: how a journal or a capped collection is refused.
const OPTIONS: [i32; 3] = [2, 72, 115];
/// Ends of programs that refuse their command line: tenond's and mongod's.
const REFUSED_STATUS: &str = "(exit status: 2)";

/// Why a cell ends early.
pub(crate) enum Halt {
    Stopped,
    Refused(String),
    Failed(String),
}

impl From<LinkError> for Halt {
    fn from(error: LinkError) -> Self {
        match error {
            LinkError::Stopped => Self::Stopped,
            other => Self::Failed(other.to_string()),
        }
    }
}

impl From<bench::Error> for Halt {
    fn from(error: bench::Error) -> Self {
        match error {
            bench::Error::Interrupted => Self::Stopped,
            other => Self::Failed(chain(&other)),
        }
    }
}

/// Why the cell ends when a server answers its first commands like that.
pub(crate) fn refused_by_rule(error: LinkError, cell: &Cell) -> Halt {
    match error {
        LinkError::Refused { code, message } if is_rule(code, &message, cell) => Halt::Refused(message),
        other => other.into(),
    }
}

/// A rule holds for cells that break it; the same words in any other cell are a fault of the server.
fn is_rule(code: i32, message: &str, cell: &Cell) -> bool {
    let is_about = |word: &str| message.to_ascii_lowercase().contains(word);
    let breaks =
        (cell.journal == Journal::Off && is_about("journal")) || (cell.capped == Capped::Yes && is_about("capped"));
    OPTIONS.contains(&code) && breaks
}

/// Whether a server that did not start has refused to be without a journal.
pub(crate) fn cannot_start_without_journal(cell: &Cell, what: &str, log: &str) -> bool {
    cell.journal == Journal::Off && what.contains(REFUSED_STATUS) && log.contains("journal")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matrix::cells;
    use crate::settings::Settings;

    /// A server whose every insert failed was one that refuses, and the exit code was 0.
    #[test]
    fn only_known_rules_are_refusals() {
        let cells = cells(&Settings::default(), &["btree".to_owned()]);
        let cell = |journal: Journal, capped: Capped| {
            let found = cells
                .iter()
                .find(|cell| cell.journal == journal && cell.capped == capped);
            found.expect("the matrix has it")
        };
        let refused = |code: i32, message: &str, cell: &Cell| {
            let message = message.to_owned();
            matches!(
                refused_by_rule(LinkError::Refused { code, message }, cell),
                Halt::Refused(_)
            )
        };
        let no_journal = "cannot use 'j' option when a host does not have journaling enabled";
        assert!(refused(2, no_journal, cell(Journal::Off, Capped::No)));
        assert!(!refused(2, no_journal, cell(Journal::On, Capped::Yes)));
        let no_capped = "this engine has no capped collections";
        assert!(refused(72, no_capped, cell(Journal::On, Capped::Yes)));
        assert!(!refused(72, no_capped, cell(Journal::Off, Capped::No)));
        for (code, message) in [
            (11000, "E11000 duplicate key error"),
            (1, "the journal is damaged"),
            (10107, "not primary"),
            (2, "unknown field"),
            (100, "Not enough data-bearing nodes"),
        ] {
            assert!(!refused(code, message, cell(Journal::Off, Capped::Yes)), "{message}");
        }
        let stopped = refused_by_rule(LinkError::Stopped, cell(Journal::Off, Capped::Yes));
        assert!(matches!(stopped, Halt::Stopped));
    }

    #[test]
    fn a_wrong_argument_is_no_refusal() {
        let cells = cells(&Settings::default(), &["btree".to_owned()]);
        let refuses = |journal: Journal, what: &str, log: &str| {
            let cell = cells.iter().find(|cell| cell.journal == journal);
            cannot_start_without_journal(cell.expect("the matrix has both"), what, log)
        };
        let needs = "a member of a replica set needs the log: leave --nojournal out, or --replSet";
        let status = "did not start (exit status: 2)";
        assert!(refuses(Journal::Off, status, needs));
        assert!(!refuses(Journal::On, status, needs));
        assert!(!refuses(Journal::Off, status, "unrecognised option '--noSuchOption'"));
        assert!(!refuses(Journal::Off, "did not start (exit status: 100)", needs));
    }
}
