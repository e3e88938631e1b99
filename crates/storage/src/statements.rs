//! Which statements of a session the changes of a unit are: of one, or of several that one change carries out.

use crate::entry::EntrySession;
use crate::session_key::{Kept, SessionKey};
use crate::write::{Changes, WriteUnit};

impl Changes {
    /// The changes that follow are those of this statement of the session.
    pub(crate) fn begin_statement(&mut self, statement: i32, kept: Kept) {
        let session = self.effect.session.as_mut().expect("the unit is a session's");
        session.begin_statement(statement, kept);
        self.statements.clear();
        self.statements.push((statement, kept));
    }

    /// The changes that follow are those of this statement of the session as well.
    pub(crate) fn join_statement(&mut self, statement: i32, kept: Kept) {
        let session = self.effect.session.as_mut().expect("the unit is a session's");
        session.join_statement(statement, kept);
        self.statements.push((statement, kept));
    }
}

impl WriteUnit<'_> {
    /// The unit's changes belong to a session's transaction number: call it first. Each of them to a statement
    /// ([`WriteUnit::statement`]).
    pub fn in_session(&mut self, key: SessionKey, txn_number: i64) {
        debug_assert!(self.is_empty(), "the session comes first");
        self.changes.in_session(EntrySession { key, txn_number });
    }

    /// The unit is committed under this leadership ([`crate::Storage::leadership`]) or not at all.
    pub fn under_leadership(&mut self, leadership: u64) {
        debug_assert!(self.is_empty(), "the leadership comes first");
        self.changes.begin_in(leadership);
    }

    /// The changes that follow are those of this statement of the session.
    pub fn statement(&mut self, statement: i32, kept: Kept) {
        self.changes.begin_statement(statement, kept);
    }

    /// The changes that follow are those of all these statements of the session, of which nothing is kept.
    pub fn statements(&mut self, statements: &[i32]) {
        for (place, statement) in statements.iter().enumerate() {
            match place {
                0 => self.changes.begin_statement(*statement, Kept::Nothing),
                _ => self.changes.join_statement(*statement, Kept::Nothing),
            }
        }
    }
}
