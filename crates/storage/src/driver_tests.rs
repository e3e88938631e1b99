//! Sets of several members: their storages, joined by queues, with real threads and simulated disks.
#![expect(
    clippy::disallowed_methods,
    reason = "threads of several members at once: elections take the machine's time"
)]

use crate::catalog::rows;
use crate::testing::{Calls, EqualCompiler, index, ns};
use crate::{
    CloneRows, CloneRowsSource, ElectionReason, FillOptions, Interrupted, LockMode, Membership, Message, Namespace,
    Operation, Outlet, Role, Standing, Storage, StorageError, StorageOptions, fill_from_clone,
};
use bson::{Document, RawDocumentBuf, doc, rawdoc};
use engine::{CloseMode, Engine, Seq, TableId};
use engine_btree::{BtreeEngine, BtreeOptions};
use engine_inmemory::{InMemoryEngine, InMemoryOptions};
use engine_mmapv1::{Mmapv1Engine, Mmapv1Options};
use oplog::{EngineAhead, HardState, Log, LogOptions};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use vfs::{Env, FileSystem, Random, SeededRandom, SimulatedFs, SystemClock};

#[path = "driver_follow_tests.rs"]
mod following;
#[path = "driver_leadership_tests.rs"]
mod leadership;

/// Short, so that a test sees many elections.
const ELECTION_TIMEOUT: Duration = Duration::from_millis(1000);
/// What a busy machine needs for an election or two.
const PATIENCE: Duration = Duration::from_secs(60);

/// Who is up, by number. Messages to others are lost.
#[derive(Default)]
struct Network {
    up: Mutex<BTreeMap<u64, Weak<Storage>>>,
    cut: Mutex<Vec<(u64, u64)>>,
}

struct Post {
    network: Arc<Network>,
    own: u64,
    storage: Weak<Storage>,
    told: AtomicBool,
}

impl Post {
    fn bring(&self, to: u64, message: Option<Message>) {
        if self.network.cut.lock().contains(&(self.own, to)) {
            return;
        }
        let receiver = self.network.up.lock().get(&to).and_then(Weak::upgrade);
        let applied = self.storage.upgrade().map(|storage| storage.last_seq());
        if let (Some(receiver), Some(applied)) = (receiver, applied) {
            // As it travels.
            let message = message.map(|message| {
                let bytes = message.encode().expect("encoded");
                Message::decode(&bytes).expect("decoded")
            });
            receiver.receive(message, self.own, applied);
        }
    }
}

impl Outlet for Post {
    fn send(&self, messages: Vec<Message>) {
        for message in messages {
            self.bring(message.to(), Some(message));
        }
    }

    fn standing_changed(&self, _standing: &Standing) {
        self.told.store(true, Ordering::SeqCst);
    }

    fn configuration_changed(&self) {}

    fn applied_more(&self) {
        let storage = self.storage.upgrade();
        if let Some(leader) = storage.and_then(|storage| storage.standing()?.leader) {
            self.bring(leader, None);
        }
    }
}

#[derive(Clone, Copy)]
enum Kind {
    InMemory,
    Btree,
    /// Its databases have room for a few tables.
    Mmapv1,
}

/// A machine of a member.
struct Machine {
    id: u64,
    fs: SimulatedFs,
    kind: Kind,
    /// Changes that this member could not apply at once for want of files.
    waits: Arc<AtomicU64>,
    storage: Option<Arc<Storage>>,
}

fn instance(id: u64) -> [u8; 16] {
    [id as u8; 16]
}

fn configuration(voters: &[u64], learners: &[u64]) -> RawDocumentBuf {
    let member = |id: u64, votes: bool| {
        let bytes = instance(id).to_vec();
        let subtype = bson::spec::BinarySubtype::Generic;
        doc! { "_id": id as i32, "id": id as i64, "votes": votes, "instance": bson::Binary { subtype, bytes } }
    };
    let mut members: Vec<_> = voters.iter().map(|id| member(*id, true)).collect();
    members.extend(learners.iter().map(|id| member(*id, false)));
    RawDocumentBuf::try_from(&doc! { "_id": "rs", "consensus": { "members": members } }).expect("valid")
}

fn write_configuration(storage: &Storage, document: &RawDocumentBuf) -> Result<(), StorageError> {
    let ns = Namespace::parse("local.system.replset").expect("valid");
    let op = operation();
    storage.wait_members_in_force(&op)?;
    if storage.catalog().collection(&ns).is_none() {
        storage.create_collection(&op, &ns, &rawdoc! {})?;
    }
    let guard = storage.collection(&op, &ns, LockMode::IntentExclusive)?;
    let guard = guard.expect("made");
    let mut unit = storage.begin_write(&op);
    let id = crate::RecordId::Number(1);
    match unit.lock_record(&guard, &id)? {
        None => drop(unit.insert(&guard, document)?),
        Some(old) => {
            let old = RawDocumentBuf::from_bytes(old.to_vec()).expect("valid");
            unit.update(&guard, &id, &old, document)?;
        }
    }
    unit.commit()?;
    Ok(())
}

struct Copy<'s>(&'s crate::CloneSource);

impl CloneRowsSource for Copy<'_> {
    fn open(&self) -> Result<Box<dyn CloneRows + '_>, String> {
        Ok(Box::new(Copy(self.0)))
    }
}

impl CloneRows for Copy<'_> {
    fn next(&mut self, table: TableId, after: Option<&[u8]>, rows: &mut Vec<(Vec<u8>, Vec<u8>)>) -> Result<(), String> {
        let found = self.0.rows(table, after, 1000).map_err(|error| error.to_string())?;
        rows.extend((0..found.len()).map(|row| (found.key(row).to_vec(), found.value(row).to_vec())));
        Ok(())
    }
}

impl Machine {
    fn new(id: u64, seed: u64) -> Self {
        let fs = SimulatedFs::new(seed);
        for directory in ["/db/engine", "/db/journal"] {
            fs.create_directory_all(Path::new(directory)).expect("created");
        }
        for directory in ["/db/engine", "/db/journal", "/db", "/"] {
            fs.sync_directory(Path::new(directory)).expect("synced");
        }
        Self {
            id,
            fs,
            kind: match id.is_multiple_of(2) {
                true => Kind::Btree,
                false => Kind::InMemory,
            },
            waits: Arc::default(),
            storage: None,
        }
    }

    fn env(&self) -> Env {
        Env {
            fs: Arc::new(self.fs.clone()),
            clock: Arc::new(SystemClock::new()),
            random: Arc::new(SeededRandom::new(self.id)),
        }
    }

    fn engine(&self) -> Arc<dyn Engine> {
        let (env, path) = (self.env(), Path::new("/db/engine"));
        match self.kind {
            Kind::Btree => Arc::new(BtreeEngine::open(&env, path, btree_options()).expect("opened")),
            Kind::Mmapv1 => Arc::new(Mmapv1Engine::open(&env, path, mmapv1_options()).expect("opened")),
            Kind::InMemory => Arc::new(InMemoryEngine::open(&env, path, InMemoryOptions::default()).expect("opened")),
        }
    }

    fn log(&self, term_before: u64, durable: Seq) -> Log {
        let mut options = LogOptions::new("/db/journal");
        options.engine_ahead = EngineAhead::BeginBehind;
        options.term_before = term_before;
        Log::open(&self.env(), options, durable).expect("opened")
    }

    /// Begins with a copy of another member's data.
    fn copy(&self, source: &Storage) {
        let clone = source.begin_clone().expect("begun");
        let header = clone.header().clone();
        let engine = self.engine();
        let options = FillOptions {
            is_arbiter: false,
            threads: 2,
            group_bytes: 1,
        };
        fill_from_clone(&*engine, &header, &Copy(&clone), options).expect("copied");
        engine.close(CloseMode::Checkpoint).expect("closed");
        let log = self.log(header.term, header.seq);
        let state = HardState {
            term: header.term,
            vote: 0,
            commit: header.seq,
        };
        log.write_state(state).expect("written");
        log.close().expect("closed");
    }

    fn start(&mut self, network: &Arc<Network>) -> Arc<Storage> {
        self.start_delayed(network, Duration::ZERO)
    }

    fn start_delayed(&mut self, network: &Arc<Network>, delay: Duration) -> Arc<Storage> {
        let engine = self.engine();
        let log = Arc::new(self.log(0, engine.durable_seq()));
        let mut options = StorageOptions::new(Arc::new(EqualCompiler));
        options.sync_period = Duration::ZERO;
        options.ttl_sleep = Duration::ZERO;
        options.instance = Some(instance(self.id));
        let waits = self.waits.clone();
        options.on_apply_wait = Some(Arc::new(move |error| {
            assert!(error.passes(), "{error:?}");
            waits.fetch_add(1, Ordering::SeqCst);
        }));
        let storage = Storage::open(self.env(), engine, log, options).expect("opened");
        self.storage = Some(storage.clone());
        storage.set_apply_delay(delay);
        if let Some(members) = storage.membership().expect("read") {
            self.take_part(network, &members);
        }
        storage
    }

    fn take_part(&self, network: &Arc<Network>, members: &Membership) {
        let storage = self.storage.as_ref().expect("started");
        network.up.lock().insert(self.id, Arc::downgrade(storage));
        let post = Post {
            network: network.clone(),
            own: self.id,
            storage: Arc::downgrade(storage),
            told: AtomicBool::new(false),
        };
        storage
            .take_part(members, ELECTION_TIMEOUT, Arc::new(post))
            .expect("takes part");
    }

    fn stop(&mut self, network: &Network) {
        network.up.lock().remove(&self.id);
        if let Some(storage) = self.storage.take() {
            storage.close(false).expect("closed");
        }
    }

    /// Power is lost.
    fn crash(&mut self, network: &Network) {
        self.stop(network);
        self.fs.restart();
    }
}

fn btree_options() -> BtreeOptions {
    BtreeOptions {
        directory_per_db: true,
        ..BtreeOptions::default()
    }
}

fn mmapv1_options() -> Mmapv1Options {
    Mmapv1Options {
        first_file_bytes: 64 << 10,
        file_bytes_max: 4 << 20,
        namespace_bytes: 8 << 10,
        preallocate: false,
        ..Mmapv1Options::with_cache(64 << 20)
    }
}

fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < end, "{what} in {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn leader(machines: &[Machine]) -> Option<Arc<Storage>> {
    let mut up = machines.iter().filter_map(|machine| machine.storage.clone());
    up.find(|storage| storage.standing().is_some_and(|standing| standing.is_writable))
}

fn operation() -> Operation {
    Operation::new(Arc::new(SystemClock::new()), 1)
}

fn documents(storage: &Arc<Storage>) -> Vec<Document> {
    let mut all: Vec<_> = storage.all("c").into_iter().map(|(_, document)| document).collect();
    all.sort_by_key(|document| document.get_i64("_id").expect("a number"));
    all
}

fn write(storage: &Arc<Storage>, number: i64) -> Result<(), StorageError> {
    let op = operation();
    op.set_deadline_ms(2_000);
    let document = rawdoc! { "_id": number, "text": "x".repeat(50) };
    storage.put(&op, "c", document).map(drop)
}

/// Has whoever leads write a configuration: where machines are slow it may be another one by then.
fn configure(machines: &[Machine], document: &RawDocumentBuf) -> Arc<Storage> {
    until("configured", || {
        let leader = leader(machines)?;
        match write_configuration(&leader, document) {
            Ok(()) => Some(leader),
            Err(StorageError::Interrupted(Interrupted::RoleChanged)) => None,
            Err(error) => panic!("not configured: {error}"),
        }
    })
}

/// Three members on two engines, the first of which made the set.
fn set(seed: u64) -> (Arc<Network>, Vec<Machine>) {
    set_of((1..=3).map(|id| Machine::new(id, seed + id)).collect())
}

/// As [`set`], of these machines.
fn set_of(mut machines: Vec<Machine>) -> (Arc<Network>, Vec<Machine>) {
    let network = Arc::new(Network::default());
    let first = machines[0].start(&network);
    assert!(first.membership().expect("read").is_none());
    first.stand_for_election(1).expect("elected");
    first
        .create_collection(&operation(), &ns("c"), &rawdoc! {})
        .expect("created");
    write(&first, 0).expect("written");
    let members = Membership {
        voters: vec![1],
        learners: Vec::new(),
        own: Some(1),
        is_arbiter: false,
    };
    machines[0].take_part(&network, &members);
    write(&first, 1).expect("written by who leads alone");
    for (voters, learners) in [
        (vec![1], vec![2]),
        (vec![1, 2], vec![]),
        (vec![1, 2], vec![3]),
        (vec![1, 2, 3], vec![]),
    ] {
        let leader = configure(&machines, &configuration(&voters, &learners));
        if let Some(id) = learners.first() {
            let machine = &mut machines[*id as usize - 1];
            machine.copy(&leader);
            let storage = machine.start(&network);
            until("it has what the leader has", || {
                (storage.last_seq() >= leader.last_seq()).then_some(())
            });
        }
    }
    (network, machines)
}

#[test]
fn members_on_several_engines_agree() {
    let (network, mut machines) = set(1);
    let first = until("a leader is there", || leader(&machines));
    for number in 2..200 {
        write(&first, number).expect("written");
    }
    for machine in &machines {
        let storage = machine.storage.as_ref().expect("up");
        until("all is applied", || {
            (storage.last_seq() >= first.last_seq()).then_some(())
        });
        assert_eq!(documents(storage).len(), 200, "member {}", machine.id);
        let collection = storage.catalog().collection(&ns("c")).expect("there");
        assert_eq!(collection.count(), 200);
    }
    // What is not a leader appends nothing.
    let follower = machines[1].storage.clone().expect("up");
    let refused = write(&follower, 1000).expect_err("refused");
    assert!(
        matches!(refused, StorageError::Interrupted(Interrupted::RoleChanged)),
        "{refused}"
    );
    follower.checkpoint().expect("taken");
    drop((first, follower));
    for machine in &mut machines {
        machine.stop(&network);
    }
}

#[test]
fn what_was_acknowledged_survives_the_loss_of_leaders() {
    for seed in [11, 12] {
        let (network, mut machines) = set(seed);
        let mut acknowledged = vec![0, 1];
        let mut number = 2;
        let random = SeededRandom::new(seed);
        for round in 0..6 {
            let led_by = until("a leader is there", || leader(&machines));
            std::thread::scope(|scope| {
                let writers: Vec<_> = (0..4)
                    .map(|writer| {
                        let (led_by, from) = (led_by.clone(), number + writer * 1000);
                        scope.spawn(move || {
                            let done = (from..from + 40).filter(|number| write(&led_by, *number).is_ok());
                            done.collect::<Vec<_>>()
                        })
                    })
                    .collect();
                std::thread::sleep(Duration::from_millis(random.next_u64() % 30));
                let which = machines
                    .iter()
                    .position(|machine| machine.storage.as_ref().is_some_and(|one| Arc::ptr_eq(one, &led_by)))
                    .expect("it is up");
                let others: Vec<u64> = (1..=3).filter(|id| *id != machines[which].id).collect();
                match round % 3 {
                    0 => machines[which].crash(&network),
                    // It goes on as if it led, and nobody hears of it.
                    1 => network
                        .cut
                        .lock()
                        .extend(others.iter().map(|other| (machines[which].id, *other))),
                    _ => led_by.give_leadership_up(),
                }
                for writer in writers {
                    acknowledged.extend(writer.join().expect("no panic"));
                }
            });
            drop(led_by);
            number += 4000;
            until("another one leads", || {
                let cut = network.cut.lock().first().map(|(from, _)| *from);
                let now = leader(&machines)?;
                (cut != now.standing().map(|standing| standing.id)).then_some(())
            });
            network.cut.lock().clear();
            for machine in machines.iter_mut().filter(|machine| machine.storage.is_none()) {
                machine.start(&network);
            }
        }
        let led_by = until("a write goes through", || {
            number += 1;
            let led_by = leader(&machines)?;
            write(&led_by, number).ok().map(|()| led_by)
        });
        acknowledged.push(number);
        let expected = documents(&led_by);
        for number in &acknowledged {
            assert!(
                expected
                    .iter()
                    .any(|document| document.get_i64("_id").ok() == Some(*number)),
                "seed {seed}: {number} was acknowledged and is gone"
            );
        }
        for machine in &mut machines {
            let storage = machine.storage.clone().expect("up");
            until("all is applied", || {
                (storage.last_seq() >= led_by.last_seq()).then_some(())
            });
            assert_eq!(documents(&storage), expected, "seed {seed}, member {}", machine.id);
            let collection = storage.catalog().collection(&ns("c")).expect("there");
            assert_eq!(
                collection.count(),
                expected.len() as u64,
                "seed {seed}, member {}",
                machine.id
            );
            assert_ne!(storage.standing().map(|standing| standing.role), Some(Role::Candidate));
        }
        drop(led_by);
        for machine in &mut machines {
            machine.stop(&network);
        }
    }
}

/// Readers of a secondary once saw the first array in an index a moment before the index told of it: they counted its
/// document once for each of its values.
#[test]
fn an_index_tells_of_arrays_before_a_secondary_shows_them() {
    let (network, mut machines) = set(31);
    let first = until("a leader is there", || leader(&machines));
    let mut follower = machines.iter().filter_map(|machine| machine.storage.clone());
    let follower = follower.find(|one| !Arc::ptr_eq(one, &first)).expect("up");
    follower.set_may_stand(false);
    let by_text = index("text_1", rawdoc! { "text": 1 }, rawdoc! {});
    let at = until("the index is made", || {
        let led_by = leader(&machines)?;
        let made = led_by.create_indexes(&operation(), &ns("c"), std::slice::from_ref(&by_text));
        made.ok().map(|_| led_by.last_seq())
    });
    until("all is applied", || (follower.applied().seq >= at).then_some(()));
    let held = follower.pending.hold();
    let mut number = 7_i64;
    let at = until("an array is written", || {
        number += 1;
        let document = rawdoc! { "_id": number, "text": ["a", "b"] };
        let led_by = leader(&machines)?;
        let written = led_by.put(&operation(), "c", document);
        written.ok().map(|_| led_by.last_seq())
    });
    until("it is published", || (follower.last_seq() >= at).then_some(()));
    assert!(documents(&follower).len() > 2, "it shows the array");
    let collection = follower.catalog().collection(&ns("c")).expect("there");
    let by_text = collection.indexes().iter().find(|index| index.name() == "text_1");
    assert!(by_text.expect("made").multikey().contains(0, 0));
    drop(held);
    drop((first, follower, collection));
    for machine in &mut machines {
        machine.stop(&network);
    }
}

/// A member that follows the leader.
fn follower_of(machines: &[Machine], led_by: &Arc<Storage>) -> Arc<Storage> {
    let mut up = machines.iter().filter_map(|machine| machine.storage.clone());
    up.find(|storage| !Arc::ptr_eq(storage, led_by)).expect("there")
}

/// Makes a member the leader.
fn hand_over(machines: &[Machine], to: &Arc<Storage>) {
    let id = to.standing().expect("it takes part").id;
    let mut asked: Option<Instant> = None;
    until("it leads", || {
        if asked.is_none_or(|at| at.elapsed() > ELECTION_TIMEOUT) {
            asked = Some(Instant::now());
            leader(machines)?.transfer_leadership(id, ElectionReason::StepUp);
        }
        to.standing().is_some_and(|standing| standing.is_writable).then_some(())
    });
}

/// What was evaluated while a member followed was once committed when it led: it had one epoch for both. Meanwhile the
/// leader's writes had been applied, which no lock keeps away, and were written over.
#[test]
fn nothing_that_was_evaluated_while_following_is_proposed() {
    let (network, mut machines) = set(41);
    let first = until("a leader is there", || leader(&machines));
    let mut follower = machines.iter().filter_map(|machine| machine.storage.clone());
    let follower = follower.find(|one| !Arc::ptr_eq(one, &first)).expect("up");
    until("all is applied", || {
        (follower.applied().seq >= first.applied().seq).then_some(())
    });
    follower.set_may_stand(false);
    let op = operation();
    let (id, _) = first.all("c").swap_remove(0);
    let guard = follower.locked(&op, "c");
    let mut unit = follower.begin_write(&op);
    let old = unit.lock_record(&guard, &id).expect("read").expect("there");
    let old = RawDocumentBuf::from_bytes(old.to_vec()).expect("valid");
    let stale = rawdoc! { "_id": 0_i64, "text": "of what was there before" };
    unit.update(&guard, &id, &old, &stale).expect("evaluated");
    let mut transaction = follower.begin_transaction().expect("begun");
    let guarded = transaction.collection(&op, &ns("c"), LockMode::IntentExclusive);
    let guarded = guarded.expect("locked").expect("there");
    let mut statement = transaction.resume(&op);
    statement
        .insert(&guarded, &rawdoc! { "_id": 70_i64 })
        .expect("evaluated");
    statement.commit().expect("kept");
    let newer = rawdoc! { "_id": 0_i64, "text": "of the other leader" };
    until("the other leader writes", || {
        let led_by = leader(&machines)?;
        led_by.replace(&operation(), "c", id.clone(), newer.clone()).ok()
    });
    follower.set_may_stand(true);
    hand_over(&machines, &follower);
    for (what, committed) in [("unit", unit.commit()), ("transaction", transaction.commit(&op))] {
        assert!(
            matches!(committed, Err(StorageError::Interrupted(Interrupted::RoleChanged))),
            "{what}: {committed:?}"
        );
    }
    let texts: Vec<_> = documents(&follower)
        .iter()
        .map(|document| document.get_str("text").expect("all have one").to_owned())
        .collect();
    assert_eq!((texts.len(), texts[0].as_str()), (2, "of the other leader"));
    write(&follower, 71).expect("it leads");
    drop((guard, guarded, first, follower));
    for machine in &mut machines {
        machine.stop(&network);
    }
}

/// A member that had reserved tables for a transaction, which was aborted, once applied the next leader's collection
/// with just these, and did not write down that they are taken.
#[test]
fn a_follower_writes_down_which_tables_are_taken() {
    let (network, mut machines) = set(51);
    let first = until("a leader is there", || leader(&machines));
    let mut aborted = first.begin_transaction().expect("begun");
    aborted
        .create_collection(&operation(), &ns("aborted"), &rawdoc! {})
        .expect("made");
    drop(aborted);
    let mut second = machines.iter().filter_map(|machine| machine.storage.clone());
    let second = second.find(|one| !Arc::ptr_eq(one, &first)).expect("up");
    hand_over(&machines, &second);
    second.make(&operation(), "d", rawdoc! {});
    until("all is applied", || {
        (first.applied().seq >= second.applied().seq).then_some(())
    });
    let collection = first.catalog().collection(&ns("d")).expect("there");
    let row = first.engine().snapshot().expect("taken");
    let row = row.get(rows::CATALOG, rows::META_KEY).expect("read").expect("there");
    let next_table = rows::read_meta_row(&row).expect("valid").next_table;
    assert!(collection.tables().all(|table| table.0 < next_table), "{next_table}");
    drop((first, second, collection));
    for machine in &mut machines {
        machine.stop(&network);
    }
}

/// Locks once remembered which lost entries had changed a document: their numbers were above those of all that a
/// member had when it led again, and no transaction could change the document.
#[test]
fn transactions_do_not_conflict_with_what_was_lost() {
    let (network, mut machines) = set(61);
    let first = until("a leader is there", || leader(&machines));
    let own = first.standing().expect("it takes part").id;
    let (id, _) = first.all("c").swap_remove(0);
    let before = first.log().last_seq();
    network
        .cut
        .lock()
        .extend((1..=3).filter(|other| *other != own).map(|other| (own, other)));
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..20)
            .map(|n| {
                let (first, id) = (&first, id.clone());
                let new = rawdoc! { "_id": 0_i64, "text": format!("lost {n}") };
                scope.spawn(move || first.replace(&operation(), "c", id, new))
            })
            .collect();
        for writer in writers {
            let lost = writer.join().expect("no panic");
            assert!(
                matches!(lost, Err(StorageError::Interrupted(Interrupted::RoleChanged))),
                "{lost:?}"
            );
        }
    });
    until("another one leads", || {
        let now = leader(&machines)?;
        (now.standing()?.id != own).then_some(())
    });
    network.cut.lock().clear();
    hand_over(&machines, &first);
    assert!(
        first.log().last_seq().0 < before.0 + 20,
        "the numbers of the lost entries are still to come"
    );
    let op = operation();
    let mut transaction = first.begin_transaction().expect("begun");
    let guard = transaction.collection(&op, &ns("c"), LockMode::IntentExclusive);
    let guard = guard.expect("locked").expect("there");
    let mut statement = transaction.resume(&op);
    let old = statement.lock_record(&guard, &id).expect("nobody else is there");
    let old = RawDocumentBuf::from_bytes(old.expect("there").to_vec()).expect("valid");
    let new = rawdoc! { "_id": 0_i64, "text": "kept" };
    statement.update(&guard, &id, &old, &new).expect("evaluated");
    statement.commit().expect("kept");
    transaction.commit(&op).expect("committed");
    drop((guard, first));
    for machine in &mut machines {
        machine.stop(&network);
    }
}

/// What a leader appends that is no entry that this version reads.
fn append_nonsense(led_by: &Storage) -> Seq {
    let seq = led_by.log().append(&[b"nonsense"]).expect("appended");
    led_by.consensus.wake();
    seq
}

/// The thread that applies what others wrote ended without a word. The member stood still for ever, and went on saying
/// that it had what was written.
#[test]
fn a_member_that_cannot_apply_what_others_wrote_stops() {
    let (network, mut machines) = set(21);
    let led_by = until("a leader is there", || leader(&machines));
    append_nonsense(&led_by);
    for machine in &machines {
        let storage = machine.storage.as_ref().expect("up");
        if !Arc::ptr_eq(storage, &led_by) {
            let stopped = until("it stops", || storage.check_running().err());
            assert!(
                stopped.to_string().contains("cannot be applied"),
                "member {}: {stopped}",
                machine.id
            );
        }
    }
    drop(led_by);
    for machine in &mut machines {
        network.up.lock().remove(&machine.id);
        // One that has stopped has nothing to be closed with.
        let _ = machine.storage.take().map(|storage| storage.close(false));
    }
}

/// Only what a member appended itself counted towards its next checkpoint: a secondary took none, kept all of the log,
/// and replayed it all at its next start.
#[test]
fn what_others_wrote_counts_towards_a_followers_next_checkpoint() {
    let (network, mut machines) = set(41);
    let led_by = until("a leader is there", || leader(&machines));
    write(&led_by, 2).expect("written");
    for machine in machines.iter().filter(|machine| matches!(machine.kind, Kind::Btree)) {
        let storage = machine.storage.as_ref().expect("up");
        until("all is applied", || {
            (storage.last_seq() >= led_by.last_seq()).then_some(())
        });
        // The thread may not have counted yet what it has applied.
        until("a checkpoint is taken", || {
            storage.scheduled_checkpoint();
            (storage.stats().checkpoints > 0).then_some(())
        });
    }
    drop(led_by);
    for machine in &mut machines {
        machine.stop(&network);
    }
}

/// All that its log had was taken for what it had shown before it was started: for the whole of its delay a member was
/// not read.
#[test]
fn a_delayed_member_is_caught_up_with_what_it_had_shown() {
    let (network, mut machines) = set(51);
    let led_by = until("a leader is there", || leader(&machines));
    let delay = Duration::from_secs(3600);
    let delayed = machines.iter_mut().find(|machine| {
        let storage = machine.storage.as_ref().expect("up");
        !Arc::ptr_eq(storage, &led_by)
    });
    let delayed = delayed.expect("there");
    delayed.stop(&network);
    let storage = delayed.start_delayed(&network, delay);
    for number in 2..6 {
        write(&led_by, number).expect("written");
    }
    let last = led_by.last_seq();
    until("it has the log", || (storage.log().durable_seq() >= last).then_some(()));
    drop(storage);
    delayed.stop(&network);
    let storage = delayed.start_delayed(&network, delay);
    assert!(storage.log().last_seq() >= last, "it has not lost anything");
    until("it shows what it had shown", || {
        storage.standing()?.is_caught_up.then_some(())
    });
    assert!(storage.last_seq() < last, "the rest waits for its time");
    drop((led_by, storage));
    for machine in &mut machines {
        machine.stop(&network);
    }
}
