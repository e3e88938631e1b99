//! Members whose logs get no room on their disks.

use super::*;
use oplog::SEGMENT_BYTES_MIN;

/// A set whose logs have short segments, the member that leads, and another one with a file engine.
fn set_with_short_segments(seed: u64) -> (Arc<Network>, Vec<Machine>, Arc<Storage>) {
    let mut machines: Vec<_> = (1..=3).map(|id| Machine::new(id, seed + id)).collect();
    for machine in &mut machines {
        (machine.kind, machine.segment_bytes) = (Kind::Btree, Some(2 * SEGMENT_BYTES_MIN));
    }
    let (network, machines) = set_of(machines);
    let led_by = until("a leader is there", || leader(&machines));
    (network, machines, led_by)
}

/// Overwrites some documents, so that the log grows and little else does.
fn overwrite(storage: &Arc<Storage>, round: i64) -> Result<(), StorageError> {
    let op = operation();
    op.set_deadline_ms(5_000);
    let random = SeededRandom::new(round as u64);
    let text: String = (0..40).map(|_| format!("{:016x}", random.next_u64())).collect();
    let document = rawdoc! { "_id": round % 2, "round": round, "text": text };
    let rows = storage.all("c");
    let (id, _) = rows
        .iter()
        .find(|(_, found)| found.get_i64("_id").is_ok_and(|found| found == round % 2))
        .expect("it is there");
    storage.replace(&op, "c", id.clone(), document)
}

fn counts(storage: &Arc<Storage>) -> (u64, u64) {
    let collection = storage.catalog().collection(&ns("c")).expect("there");
    (collection.count(), collection.data_bytes())
}

/// What a member's log may drop followed from what the leader wrote down, now and then: until then all of it stayed,
/// and for ever where the entry that would have let it go found no room in that very log.
#[test]
fn a_member_gives_its_log_back_by_its_own_checkpoints() {
    let (network, mut machines, led_by) = set_with_short_segments(300);
    let written = led_by.pipeline.order.lock().counts_proposed;
    for round in 0..300 {
        overwrite(&led_by, round).expect("written");
    }
    for number in 2..10 {
        write(&led_by, number).expect("written");
    }
    assert_eq!(
        led_by.pipeline.order.lock().counts_proposed,
        written,
        "no counts were written"
    );
    let last = led_by.last_seq();
    for machine in &machines {
        let storage = machine.storage.as_ref().expect("up");
        until("all is applied", || (storage.last_seq() >= last).then_some(()));
        storage.log().flush().expect("flushed");
        let before = storage.log().stats().segments;
        assert!(before > 8, "{before}");
        match storage.leads() {
            // It writes counts into the log at a checkpoint.
            true => assert!(storage.pipeline.applying.lock().counted_at.0 + 30 > last.0),
            false => drop(storage.checkpoint().expect("taken")),
        }
        let after = storage.log().stats().segments;
        assert!(
            storage.leads() || after < 4,
            "member {}: {after} of {before}",
            machine.id
        );
    }
    let right = counts(&led_by);
    drop(led_by);
    for machine in &mut machines {
        machine.crash(&network);
    }
    for machine in &mut machines {
        machine.start(&network);
    }
    for machine in &machines {
        let storage = machine.storage.as_ref().expect("up");
        until("all is applied", || (storage.last_seq() >= last).then_some(()));
        assert_eq!(counts(storage), right, "member {}", machine.id);
        storage.assert_valid(&operation(), "c");
    }
    for machine in &mut machines {
        machine.stop(&network);
    }
}

/// Its thread slept until the disk had room: it answered nobody, and the set lost its leader with the next member.
#[test]
fn a_member_without_room_for_entries_votes_and_catches_up() {
    let (network, mut machines, led_by) = set_with_short_segments(320);
    let led_by_id = led_by.standing().expect("known").id;
    let full = machines
        .iter()
        .position(|machine| machine.id != led_by_id)
        .expect("there are others");
    let (fs, member) = (machines[full].fs.clone(), machines[full].storage.clone().expect("up"));
    fs.set_free_bytes(Some(0));
    let mut round = 0;
    until("its log has no room", || {
        round += 1;
        overwrite(&led_by, round).expect("written by the two others");
        (member.log().is_short() && member.log().last_seq().0 + 20 < led_by.last_seq().0).then_some(())
    });
    let third = machines
        .iter()
        .position(|machine| machine.id != led_by_id && machine.id != machines[full].id);
    let third = machines[third.expect("there are three")].storage.clone().expect("up");
    until("the third has it all", || {
        (third.last_seq() >= led_by.last_seq()).then_some(())
    });
    drop(led_by);
    let at = machines
        .iter()
        .position(|machine| machine.id == led_by_id)
        .expect("there");
    machines[at].stop(&network);
    until("the third leads by its vote", || {
        member.check_running().expect("it has not ended");
        third.standing()?.term.gt(&0).then_some(())?;
        (third.standing()?.role == Role::Leader).then_some(())
    });
    assert!(member.log().is_short());
    fs.set_free_bytes(None);
    until("it has it all", || {
        let standing = third.standing()?;
        (standing.is_writable && member.last_seq() >= third.last_seq()).then_some(())
    });
    overwrite(&third, round + 1).expect("written");
    drop((member, third));
    for machine in &mut machines {
        machine.stop(&network);
    }
}
