//! Statements on many documents, and commands of many statements: where other servers decide with this one, they wait
//! for them once, and not for each document.
//!
//! A statement looks for documents among those that readers see, and what the command has committed ahead is not among
//! them. So the call remembers the documents that its statements have changed ahead ([`crate::changed_ahead`]).
//! A statement whose filter matches none of those finds what it would find after a wait, as all other documents are
//! what they were; one whose filter matches any of them waits first, or where there are many to try. One that names an
//! `_id` and nothing else need not wait for a document that was changed and is still there: it finds it, and changes
//! its newest version.

use super::update::{Statement, expressions_of};
use crate::changed_ahead::Changed;
use crate::error::Result;
use crate::invocation::Invocation;
use bson::raw::{RawBsonRef, RawDocument};
use query::matcher::Matcher;
use storage::{Namespace, WriteUnit};

/// Documents that a filter is tried on: with more of them a wait costs less.
pub const MATCHED_MAX: usize = 64;

/// Before a statement looks for documents: waits where one may be in question that was changed ahead.
pub fn begin(call: &Invocation<'_>, namespace: &Namespace, statement: &Statement<'_>) -> Result<()> {
    match may_meet_changed(call, namespace, statement) {
        true => call.settle(),
        false => Ok(()),
    }
}

fn may_meet_changed(call: &Invocation<'_>, namespace: &Namespace, statement: &Statement<'_>) -> bool {
    if !call.operation.is_ahead() {
        return false;
    }
    let ahead = call.changed_ahead.borrow();
    if ahead.has_more() {
        return true;
    }
    let is_of_one = finds_by_id_alone(statement);
    let in_question = || ahead.of(namespace).filter(|changed| !(is_of_one && changed.stays()));
    match in_question().count() {
        0 => return false,
        1..=MATCHED_MAX => {}
        _ => return true,
    }
    let matcher = expressions_of(call, namespace, statement)
        // One for text or for distances needs an index, and is refused here.
        .and_then(|expressions| Ok(Matcher::parse(statement.filter, &expressions)?));
    let Ok(matcher) = matcher else { return true };
    let evaluation = call.evaluation();
    in_question().flat_map(Changed::images).any(|document| {
        let document = RawDocument::from_bytes(document);
        !document.is_ok_and(|document| matches!(matcher.matches(document, &evaluation), Ok(false)))
    })
}

/// Whether a statement looks for `{_id: value}` and nothing else, in the index of `_id`.
fn finds_by_id_alone(statement: &Statement<'_>) -> bool {
    if statement.hint.is_some() || statement.sort.is_some() {
        return false;
    }
    let mut fields = statement.filter.into_iter().flatten();
    let is_compared = |value| matches!(value, RawBsonRef::Document(_) | RawBsonRef::RegularExpression(_));
    let names_id = fields
        .next()
        .is_some_and(|(name, value)| name == "_id" && !is_compared(value));
    names_id && fields.next().is_none()
}

/// Commits what a statement does to one document. Of many, readers see it when the statement, or the command, has
/// ended; answers whether the call is to remember the document ([`Invocation::remember`]).
pub fn commit(call: &Invocation<'_>, statement: &Statement<'_>, unit: WriteUnit<'_>) -> Result<bool> {
    call.before_commit(1)?;
    let seq = match statement.multi || statement.is_one_of_many {
        true => unit.commit_ahead()?,
        false => unit.commit()?,
    };
    call.wrote(seq);
    let is_ahead = call.operation.is_ahead();
    if !is_ahead {
        call.changed_ahead.borrow_mut().clear();
    }
    Ok(statement.is_one_of_many && is_ahead)
}

/// Ends a statement: what it has done has taken effect on return, however it ended, or is ahead as the call has no
/// patience left. One of many does not wait, as its command does. A fatal error ends the command, which is answered
/// after a wait of its own.
pub fn end<T>(call: &Invocation<'_>, statement: &Statement<'_>, done: Result<T>) -> Result<T> {
    if statement.is_one_of_many || done.as_ref().is_err_and(|error| call.is_fatal(error)) {
        return done;
    }
    call.settle_at_last()?;
    done
}
