//! Members whose logs get no room on their disks.

use super::*;
use oplog::SEGMENT_BYTES_MIN;

const SEGMENT_BYTES: u64 = 2 * SEGMENT_BYTES_MIN;

/// Writes a document of so many bytes that nothing shortens.
fn write_long(storage: &Arc<Storage>, number: i64, bytes: u64) {
    let op = operation();
    op.set_deadline_ms(5_000);
    let random = SeededRandom::new(number as u64);
    let text: String = (0..bytes / 16).map(|_| format!("{:016x}", random.next_u64())).collect();
    let document = rawdoc! { "_id": number, "text": text };
    storage.put(&op, "c", document).map(drop).expect("written");
}

/// Room was looked for as if each entry were a short one, and a long one took what is left to terms and votes: on a
/// full disk the member could not write down those either.
#[test]
fn a_long_entry_that_there_is_no_room_for_is_not_appended() {
    let mut machines: Vec<_> = (1..=3).map(|id| Machine::new(id, 340 + id)).collect();
    for machine in &mut machines {
        machine.segment_bytes = Some(SEGMENT_BYTES);
    }
    let (network, mut machines) = set_of(machines);
    let led_by = until("a leader is there", || leader(&machines));
    let led_by_id = led_by.standing().expect("known").id;
    // Of an engine that takes no checkpoints, which would let the log go.
    let is_it = |machine: &&Machine| machine.id != led_by_id && matches!(machine.kind, Kind::InMemory);
    let full = machines.iter().find(is_it).expect("there are two of them");
    let (fs, member) = (full.fs.clone(), full.storage.clone().expect("up"));
    let log = member.log();
    let has_spare = || {
        let names = fs.list(Path::new("/db/journal")).expect("listed");
        names.iter().any(|name| name.to_string_lossy().starts_with("spare"))
    };
    // It has just begun a segment, and so no file for the next one.
    let mut number = 10;
    until("a segment is new", || {
        let before = log.stats().segments;
        write_long(&led_by, number, 800);
        number += 1;
        until("the member has it on disk", || {
            (log.durable_seq() >= led_by.log().last_seq()).then_some(())
        });
        (log.stats().segments > before && !has_spare()).then_some(())
    });
    fs.set_free_bytes(Some(0));
    let left = SEGMENT_BYTES - log.written_bytes(log.last_seq());
    assert!(left > SEGMENT_BYTES / 2, "{left}");
    write_long(&led_by, number, left - 1_000);
    let long = led_by.log().last_seq();
    until("it has looked for room", || log.is_short().then_some(()));
    assert!(log.last_seq() < long, "there is no room for this and for a vote");
    fs.set_free_bytes(None);
    until("it has it all", || (member.last_seq() >= long).then_some(()));
    assert_eq!(documents(&member).len(), documents(&led_by).len());
    drop((led_by, member));
    for machine in &mut machines {
        machine.stop(&network);
    }
}
