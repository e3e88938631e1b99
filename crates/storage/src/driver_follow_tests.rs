//! What members do with what others have defined.

use super::*;
use engine::{ErrorKind, TableKind, TableSpec};
use vfs::{Fault, FaultKind};

fn led_by_another_than(id: u64, machines: &[Machine]) -> Arc<Storage> {
    until("another one leads", || {
        let led_by = leader(machines)?;
        match led_by.standing()?.id == id {
            true => led_by.give_leadership_up(),
            false => return Some(led_by),
        }
        None
    })
}

/// It ended when it met a collection whose file it could not make.
#[test]
fn a_member_without_room_for_a_new_file_waits_for_it() {
    let (network, mut machines) = set(5);
    let led_by = led_by_another_than(2, &machines);
    let (fs, member) = (machines[1].fs.clone(), machines[1].storage.clone().expect("up"));
    let struck = fs.faults_struck();
    // It finds that out when it opens the file.
    let file = Fault::new(FaultKind::NoDescriptors).on("/db/engine/fresh/data.blocks");
    fs.inject(file.times(u64::MAX));
    let name = Namespace::new("fresh", "c").expect("a name");
    led_by
        .create_collection(&operation(), &name, &rawdoc! {})
        .expect("created");
    until("it has tried again", || (fs.faults_struck() > struck + 2).then_some(()));
    fs.clear_faults();
    until("it has the collection", || {
        member.check_running().expect("it has not ended");
        member.catalog().collection(&name)
    });
    assert_eq!(machines[1].waits.load(Ordering::SeqCst), 1, "it says so once");
    drop((led_by, member));
    for machine in &mut machines {
        machine.stop(&network);
    }
}

/// It waited for ever for room in a namespace file that others do not have, and applied nothing more.
#[test]
fn a_member_follows_beyond_the_limits_of_its_own_engine() {
    let mut machines: Vec<_> = (1..=3).map(|id| Machine::new(id, 80 + id)).collect();
    machines[2].kind = Kind::Mmapv1;
    let (network, mut machines) = set_of(machines);
    let led_by = led_by_another_than(3, &machines);
    let member = machines[2].storage.clone().expect("up");
    let is_refused = || {
        let spec = TableSpec {
            kind: TableKind::Records,
            name: "test.own".to_owned(),
            compressor: None,
        };
        member
            .engine
            .check_new_table(&spec)
            .is_err_and(|error| error.kind() == ErrorKind::OutOfSpace)
    };
    assert!(!is_refused(), "it begins within its limits");
    for number in 0..40 {
        let name = Namespace::new("test", &format!("c{number}")).expect("a name");
        led_by
            .create_collection(&operation(), &name, &rawdoc! {})
            .expect("created");
    }
    let last = Namespace::new("test", "c39").expect("a name");
    until("it has the last collection", || member.catalog().collection(&last));
    assert!(is_refused(), "what it decided itself it would refuse");
    assert_eq!(machines[2].waits.load(Ordering::SeqCst), 0);
    drop((led_by, member));
    for machine in &mut machines {
        machine.stop(&network);
    }
}

/// Such an entry defines a collection several times. A member waited for the lock that it had itself.
#[test]
fn members_follow_a_transaction_that_defines_a_collection_several_times() {
    let (network, mut machines) = set(91);
    let led_by = until("a leader is there", || leader(&machines));
    let (op, name) = (operation(), ns("d"));
    let mut transaction = led_by.begin_transaction().expect("begun");
    transaction.create_collection(&op, &name, &rawdoc! {}).expect("made");
    for (name_of_index, pattern) in [("a_1", rawdoc! { "a": 1 }), ("b_1", rawdoc! { "b": 1 })] {
        let one = index(name_of_index, pattern, rawdoc! {});
        transaction.create_indexes(&op, &name, &[one]).expect("made");
    }
    transaction.commit(&op).expect("committed");
    for machine in &machines {
        let storage = machine.storage.as_ref().expect("up");
        let collection = until("it has the collection", || storage.catalog().collection(&name));
        assert_eq!(collection.indexes().len(), 3, "member {}", machine.id);
    }
    drop(led_by);
    for machine in &mut machines {
        machine.stop(&network);
    }
}

/// A follower that applied nothing kept readers of a collection waiting that another member defined anew.
#[test]
fn a_follower_that_applies_nothing_is_read_while_another_member_defines() {
    let (network, mut machines) = set(31);
    let led_by = until("a leader is there", || leader(&machines));
    let follower = follower_of(&machines, &led_by);
    let barrier = follower.stop_applying(&operation()).expect("held back");
    let spec = crate::testing::index("a_1", rawdoc! { "a": 1 }, rawdoc! {});
    led_by
        .create_indexes(&operation(), &ns("c"), &[spec])
        .expect("made by the majority");
    until("the follower knows that it stays", || {
        let committed = follower.pipeline.committed.load(Ordering::Acquire);
        (Seq(committed) >= led_by.last_seq()).then_some(())
    });
    for _ in 0..50 {
        let op = operation();
        op.set_deadline_ms(5_000);
        let guard = follower.collection(&op, &ns("c"), LockMode::IntentShared);
        assert_eq!(guard.expect("not kept waiting").expect("there").indexes().len(), 1);
        std::thread::sleep(Duration::from_millis(2));
    }
    drop(barrier);
    until("it has the index", || {
        let collection = follower.catalog().collection(&ns("c")).expect("there");
        (collection.indexes().len() == 2).then_some(())
    });
    drop((led_by, follower));
    for machine in &mut machines {
        machine.stop(&network);
    }
}
