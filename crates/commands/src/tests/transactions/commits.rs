//! What the client of a commit hears.

use super::{Bench, bench, code, end, first, insert, labels, of, succeeded};
use crate::stable_api::ApiParameters;
use crate::transactions::{Statement, TransactionFields};
use bson::{Bson, doc};
use std::time::Duration;
use storage::{Interrupted, SessionKey};

fn session_key(bench: &Bench) -> SessionKey {
    SessionKey {
        id: [1; 16],
        user: bench.server.own_call(|call| Ok(call.rights.session_user())).unwrap(),
    }
}

fn fields(number: i64) -> TransactionFields {
    TransactionFields {
        number,
        is_transaction: true,
        starts: false,
        statement: 0,
        api: ApiParameters::default(),
    }
}

/// A commit that waits when the transaction's time is over is carried out, and says so.
#[test]
fn who_commits_hears_what_became_of_it() {
    let bench = bench();
    let operation = bench.server.new_operation();
    bench.ok(first(insert(7), 1));
    let (key, fields) = (session_key(&bench), fields(1));
    let sessions = &bench.server.sessions;
    let session = sessions
        .check_out(key, fields.number, &operation, &bench.server.storage)
        .unwrap();
    let expire = || {
        bench.clock.advance(Duration::from_secs(61));
        bench.server.tick();
        operation.check_now()
    };
    let open = session.take_open(fields, Statement::Ends).unwrap().unwrap();
    assert_eq!(expire(), Ok(()));
    session.put_back(open);
    let open = session.take_open(fields, Statement::GoesOn).unwrap();
    assert!(open.is_some() && expire().is_err());
}

/// A statement that had looked for the last time whether to go on left its transaction open: on a primary that stepped
/// down it kept its locks for a minute, and what others wrote was not applied there when it dropped the collection.
#[test]
fn a_session_that_is_killed_while_its_statement_ends_has_no_transaction_left() {
    for gives_back_first in [false, true] {
        let bench = bench();
        bench.ok(first(insert(7), 1));
        let (key, fields) = (session_key(&bench), fields(1));
        let (sessions, operation) = (&bench.server.sessions, bench.server.new_operation());
        let session = sessions
            .check_out(key, fields.number, &operation, &bench.server.storage)
            .unwrap();
        let open = session.take_open(fields, Statement::GoesOn).unwrap().unwrap();
        let kill = || sessions.kill(|_| true, None, Interrupted::RoleChanged);
        if gives_back_first {
            session.put_back(open);
            kill();
        } else {
            kill();
            session.put_back(open);
        }
        drop(session);
        assert_eq!(sessions.open(), (0, 0));
        assert_eq!(sessions.counters.aborted.get(), 1);
        assert_eq!(code(&end(&bench, "commitTransaction", 1, 1)), 251);
        bench.ok(first(insert(7), 2));
        succeeded(end(&bench, "commitTransaction", 1, 2));
    }
}

/// Of a commit that is interrupted nobody knows what becomes of it: drivers ask again.
#[test]
fn an_interrupted_commit_is_asked_for_again() {
    let bench = bench();
    bench.ok(first(insert(7), 1));
    succeeded(bench.admin(doc! { "fsync": 1, "lock": true }));
    let interrupted = std::thread::scope(|scope| {
        let client = bench.stranger();
        let commits = {
            let bench = &bench;
            let commit = of(1, doc! { "commitTransaction": 1 }, 1, false);
            scope.spawn(move || bench.run_as(&client, "admin", commit))
        };
        let waits = doc! { "currentOp": 1, "command.commitTransaction": 1 };
        let number = loop {
            let running = succeeded(bench.admin(waits.clone()));
            if let Some(Bson::Document(commit)) = running.get_array("inprog").unwrap().first() {
                break commit.get_i32("opid").unwrap();
            }
            std::thread::yield_now();
        };
        succeeded(bench.admin(doc! { "killOp": 1, "op": number }));
        commits.join().unwrap()
    });
    assert_eq!(
        (code(&interrupted), labels(&interrupted)),
        (11601, vec!["RetryableWriteError"])
    );
    succeeded(bench.admin(doc! { "fsyncUnlock": 1 }));
    assert_eq!(code(&end(&bench, "commitTransaction", 1, 1)), 251);
}
