//! Who may lead, how leadership is handed over, and members whose files are copied.

use super::*;
use crate::TRANSFER_PATIENCE;

fn stop(network: &Network, machines: &mut [Machine]) {
    for machine in machines {
        machine.stop(network);
    }
}

/// Its log was written to while it was copied. The copy had a hole in it and was refused as damaged.
#[test]
fn the_log_of_a_follower_whose_files_are_copied_stays_as_it_is() {
    let (network, mut machines) = set(111);
    let led_by = until("a leader is there", || leader(&machines));
    let follower = follower_of(&machines, &led_by);
    until("it has the log", || {
        (follower.log().durable_seq() >= led_by.log().last_seq()).then_some(())
    });
    let barrier = follower.block_writes(&operation()).expect("held back");
    follower.log().flush().expect("flushed");
    let (last, written) = (follower.log().last_seq(), follower.log().stats().written_bytes);
    for number in 2..60 {
        write(&led_by, number).expect("acknowledged by the other member");
    }
    let id = follower.standing().expect("it takes part").id;
    let progress = led_by.standing().expect("it leads").progress;
    let acknowledged = progress.iter().find(|member| member.id == id).expect("known").durable;
    assert!(acknowledged <= last, "{acknowledged:?} is not in its log");
    assert_eq!(
        (follower.log().last_seq(), follower.log().stats().written_bytes),
        (last, written)
    );
    drop(barrier);
    until("it shows what was written meanwhile", || {
        (follower.applied().seq >= led_by.applied().seq).then_some(())
    });
    assert_eq!(documents(&follower).len(), 60);
    drop((led_by, follower));
    stop(&network, &mut machines);
}

/// It was given the leadership, and took no writes.
#[test]
fn a_member_that_holds_writes_back_is_not_made_the_leader() {
    let (network, mut machines) = set(121);
    let led_by = until("a leader is there", || leader(&machines));
    let follower = follower_of(&machines, &led_by);
    until("all is applied", || {
        (follower.last_seq() >= led_by.last_seq()).then_some(())
    });
    let barrier = follower.block_writes(&operation()).expect("held back");
    let own = follower.standing().expect("it takes part").id;
    led_by.transfer_leadership(own, ElectionReason::Handover);
    follower.campaign();
    // It would lead at once. What is written makes it one that is not caught up.
    std::thread::sleep(TRANSFER_PATIENCE);
    let mut number = 1;
    let mut write_on = |what: &str| {
        until(what, || {
            let next = leader(&machines)?;
            number += 1;
            write(&next, number).ok().map(|()| next)
        })
    };
    drop(write_on("a write goes through"));
    led_by.give_leadership_up();
    let next = write_on("the third one, or the first one again, leads");
    assert_ne!(next.standing().expect("it leads").id, own);
    drop(barrier);
    until("it follows", || {
        (follower.applied().seq >= next.applied().seq).then_some(())
    });
    drop((led_by, follower, next));
    stop(&network, &mut machines);
}

/// Writes waited for a member that did not take the leadership, as long as an election takes: ten seconds as it comes.
#[test]
fn leadership_that_nobody_takes_is_kept() {
    let (network, mut machines) = set(131);
    let led_by = until("a leader is there", || leader(&machines));
    let follower = follower_of(&machines, &led_by);
    for machine in &machines {
        let storage = machine.storage.as_ref().expect("up");
        storage.set_election_timeout(PATIENCE);
    }
    follower.set_may_stand(false);
    let term = led_by.standing().expect("it leads").term;
    led_by.transfer_leadership(follower.standing().expect("it takes part").id, ElectionReason::Priority);
    let op = operation();
    op.set_deadline_ms(PATIENCE.as_millis() as u64 / 2);
    led_by
        .put(&op, "c", rawdoc! { "_id": 2_i64, "text": "x" })
        .expect("written");
    assert_eq!(led_by.standing().expect("it leads").term, term);
    drop((led_by, follower));
    stop(&network, &mut machines);
}

/// A member kept the wish of a leader that had given up long ago, and took the leadership hours later.
#[test]
fn a_wish_that_a_member_stands_for_election_is_forgotten() {
    let (network, mut machines) = set(141);
    let led_by = until("a leader is there", || leader(&machines));
    let follower = follower_of(&machines, &led_by);
    for machine in &machines {
        let storage = machine.storage.as_ref().expect("up");
        storage.set_election_timeout(PATIENCE);
    }
    // It cannot stand before it has applied what it knows to stay.
    follower.set_apply_delay(Duration::from_secs(3600));
    write(&led_by, 2).expect("written");
    let last = led_by.log().last_seq();
    until("it knows that it stays", || {
        let committed = follower.pipeline.committed.load(Ordering::Acquire);
        (Seq(committed) >= last).then_some(())
    });
    let term = led_by.standing().expect("it leads").term;
    led_by.transfer_leadership(follower.standing().expect("it takes part").id, ElectionReason::Handover);
    std::thread::sleep(TRANSFER_PATIENCE * 3);
    follower.set_apply_delay(Duration::ZERO);
    until("it has applied all", || (follower.applied().seq >= last).then_some(()));
    // A turn of each.
    write(&led_by, 3).expect("written");
    until("it has applied that", || (follower.applied().seq > last).then_some(()));
    let standing = led_by.standing().expect("it takes part");
    assert_eq!((standing.is_writable, standing.term), (true, term));
    drop((led_by, follower));
    stop(&network, &mut machines);
}

/// After a crash of all members each waited for the others to tell it that what it had shown stays: none of those that
/// were left could be read.
#[test]
fn who_is_left_after_a_crash_of_all_is_read() {
    let (network, mut machines) = set(151);
    let led_by = until("a leader is there", || leader(&machines));
    for number in 2..30 {
        write(&led_by, number).expect("written");
    }
    let last = led_by.log().last_seq();
    for machine in &machines {
        let storage = machine.storage.as_ref().expect("up");
        until("it has written down what stays", || {
            (storage.log().hard_state()?.commit >= last).then_some(())
        });
    }
    drop(led_by);
    for machine in &mut machines {
        machine.crash(&network);
    }
    for machine in &mut machines {
        // It may have shown this, too: only others can tell.
        let engine = machine.engine();
        let log = machine.log(0, engine.durable_seq());
        let term = log.term_of(log.last_seq()).expect("known");
        let newest = log.read(log.last_seq()).expect("read").next().expect("there");
        let (seq, entry) = newest.expect("read");
        log.append_at(seq.next(), term, &[&entry]).expect("appended");
        log.close().expect("closed");
        engine.close(CloseMode::Checkpoint).expect("closed");
        let storage = machine.start(&network);
        until("it shows what it knows to stay", || {
            storage.standing()?.is_caught_up.then_some(())
        });
        assert_eq!(documents(&storage).len(), 30, "member {}", machine.id);
        drop(storage);
        machine.crash(&network);
    }
}

#[test]
fn a_leader_tells_why_it_stood_for_election() {
    let (network, mut machines) = set(161);
    for reason in [ElectionReason::Priority, ElectionReason::Handover] {
        let led_by = until("a leader is there", || leader(&machines));
        let follower = follower_of(&machines, &led_by);
        let id = follower.standing().expect("it takes part").id;
        let reasons = until("it leads", || {
            leader(&machines)?.transfer_leadership(id, reason);
            let standing = follower.standing()?;
            standing.is_writable.then_some(standing.reason)
        });
        assert_eq!(reasons, reason);
    }
    stop(&network, &mut machines);
}
