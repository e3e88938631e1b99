//! What the client of a commit hears.

use super::{bench, code, end, first, insert, labels, of, succeeded};
use crate::stable_api::ApiParameters;
use crate::transactions::{Statement, TransactionFields};
use bson::{Bson, doc};
use std::time::Duration;
use storage::SessionKey;

/// A commit that waits when the transaction's time is over is carried out, and says so.
#[test]
fn who_commits_hears_what_became_of_it() {
    let bench = bench();
    let operation = bench.server.new_operation();
    bench.ok(first(insert(7), 1));
    let key = SessionKey {
        id: [1; 16],
        user: bench.server.own_call(|call| Ok(call.rights.session_user())).unwrap(),
    };
    let fields = TransactionFields {
        number: 1,
        is_transaction: true,
        starts: false,
        statement: 0,
        api: ApiParameters::default(),
    };
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
