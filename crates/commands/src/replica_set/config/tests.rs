//! Every rule of configurations, in tables.

use super::*;
use bson::oid::ObjectId;
use bson::{Bson, RawDocumentBuf};

fn parse(config: &Document) -> Result<SetConfig> {
    SetConfig::parse(&RawDocumentBuf::try_from(config).expect("valid BSON"))
}

fn read(config: &Document) -> Result<SetConfig> {
    let raw = RawDocumentBuf::try_from(config).expect("valid BSON");
    let config = SetConfig::read_kept(&raw, "rs")?;
    config.me(&|host| host == "a:1")?;
    Ok(config)
}

fn error<T: std::fmt::Debug>(result: Result<T>, of: &str) -> (i32, String) {
    let error = result.expect_err(of);
    (error.code.0, error.message)
}

/// Member `id`, with more fields. The first three hosts are `a:1`, `b:1`, `c:1`.
fn member(id: i32, more: Document) -> Document {
    let host = format!("{}:1", (b'a' + id as u8) as char);
    let mut member = doc! { "_id": id, "host": host };
    member.extend(more);
    member
}

fn arbiter(id: i32) -> Document {
    member(id, doc! { "arbiterOnly": true })
}

fn voteless(id: i32) -> Document {
    member(id, doc! { "votes": 0, "priority": 0 })
}

fn plain(ids: std::ops::Range<i32>) -> Vec<Document> {
    ids.map(|id| member(id, doc! {})).collect()
}

fn set(members: Vec<Document>) -> Document {
    doc! { "_id": "rs", "version": 1, "members": members }
}

fn set_of(members: Vec<Document>) -> SetConfig {
    read(&set(members)).expect("accepted")
}

fn with(mut config: Document, field: &str, value: impl Into<Bson>) -> Document {
    config.insert(field, value);
    config
}

/// A set of three, with settings.
fn set_with(settings: Document) -> Document {
    with(set(plain(0..3)), "settings", settings)
}

#[test]
fn defaults_are_filled_in() {
    let id = ObjectId::from_bytes([7; 12]);
    let config = read(&SetConfig::of_one("rs", "a:1", &id)).expect("accepted");
    let expected = doc! {
        "_id": "rs",
        "version": 1,
        "members": [{
            "_id": 0,
            "host": "a:1",
            "arbiterOnly": false,
            "buildIndexes": true,
            "hidden": false,
            "priority": 1.0,
            "tags": {},
            "secondaryDelaySecs": 0_i64,
            "votes": 1,
        }],
        "protocolVersion": 1_i64,
        "writeConcernMajorityJournalDefault": true,
        "settings": {
            "chainingAllowed": true,
            "heartbeatIntervalMillis": 2000,
            "heartbeatTimeoutSecs": 10,
            "electionTimeoutMillis": 10000,
            "catchUpTimeoutMillis": -1,
            "catchUpTakeoverDelayMillis": 30000,
            "getLastErrorModes": {},
            "getLastErrorDefaults": { "w": 1, "wtimeout": 0 },
            "replicaSetId": id,
        },
    };
    assert_eq!(config.to_document(), expected);
    let fields: Vec<&String> = expected.keys().collect();
    assert_eq!(config.to_document().keys().collect::<Vec<_>>(), fields, "in this order");
}

#[test]
fn what_is_shown_is_read_again_as_it_was() {
    let config = doc! {
        "_id": "rs",
        "version": 7_i64,
        "term": 3,
        "members": [
            member(0, doc! { "priority": 2.5, "tags": { "dc": "east" } }),
            { "_id": 200, "host": "b", "priority": 0, "hidden": true, "secondaryDelaySecs": 60, "buildIndexes": false },
            arbiter(2),
            voteless(3),
        ],
        "protocolVersion": 1,
        "writeConcernMajorityJournalDefault": false,
        "configsvr": false,
        "settings": {
            "chainingAllowed": false,
            "heartbeatIntervalMillis": 100_i64,
            "heartbeatTimeoutSecs": 2.0,
            "electionTimeoutMillis": 500,
            "catchUpTimeoutMillis": 0,
            "catchUpTakeoverDelayMillis": -1,
            "getLastErrorModes": { "two": { "dc": 2.0 }, "all": {} },
            "getLastErrorDefaults": { "w": 1.0, "wtimeout": 0_i64 },
        },
    };
    let config = read(&config).expect("accepted");
    assert_eq!((config.version, config.term), (7, Some(3)));
    assert_eq!(config.to_document().get_i64("term").ok(), Some(3));
    assert_eq!(read(&config.to_document()).expect("accepted again"), config);
    let hosts: Vec<&str> = config.members.iter().map(|member| &*member.host).collect();
    assert_eq!(hosts, ["a:1", "b:27017", "c:1", "d:1"]);
    assert_eq!(config.member(2).map(|arbiter| arbiter.priority), Some(0.0));
    assert_eq!(config.member(200).map(|member| member.secondary_delay_s), Some(60));
    assert_eq!(config.member(1), None);
    let settings = &config.settings;
    assert_eq!(
        (settings.catch_up_timeout_ms, settings.catch_up_takeover_delay_ms),
        (Some(0), None)
    );
    assert_eq!(settings.modes["two"], [("dc".to_owned(), 2)]);
}

#[test]
fn fields_that_are_wrong_are_named() {
    let one = || set(plain(0..1));
    let of = |more: Document| set(vec![member(0, more)]);
    let host = |host: &str| set(vec![doc! { "_id": 0, "host": host }]);
    for (config, expected) in [
        (doc! { "members": plain(0..1) }, "'ReplSetConfig._id' is missing"),
        (doc! { "_id": "rs" }, "'ReplSetConfig.members' is missing"),
        (with(one(), "x", 1), "'ReplSetConfig.x' is an unknown field"),
        (with(one(), "_id", 1), "'ReplSetConfig._id' is the wrong type 'int'"),
        (with(one(), "version", 0), "'version' value must be >= 1"),
        (
            with(one(), "version", 1_i64 << 31),
            "'version' value must be <= 2147483647",
        ),
        (with(one(), "term", -2), "'term' value must be >= -1"),
        (with(one(), "protocolVersion", 0), "protocolVersion"),
        (
            with(one(), "writeConcernMajorityJournalDefault", 1),
            "is the wrong type 'int'",
        ),
        (
            with(one(), "members", vec![1]),
            "'ReplSetConfig.members.0' is the wrong type 'int'",
        ),
        (
            with(one(), "members", doc! {}),
            "'ReplSetConfig.members' is the wrong type 'object'",
        ),
        (set(vec![doc! { "host": "a:1" }]), "'MemberConfig._id' is missing"),
        (set(vec![doc! { "_id": 0 }]), "'MemberConfig.host' is missing"),
        (
            of(doc! { "slaveDelay": 1 }),
            "'MemberConfig.slaveDelay' is an unknown field",
        ),
        (of(doc! { "_id": -1 }), "'_id' value must be >= 0"),
        (of(doc! { "_id": 256 }), "'_id' value must be <= 255"),
        (of(doc! { "host": 1 }), "'MemberConfig.host' is the wrong type 'int'"),
        (host(""), "Empty host component"),
        (host("a:"), "Empty port component"),
        (host("a:65536"), "Port number 65536 out of range"),
        (
            of(doc! { "hidden": "yes" }),
            "'MemberConfig.hidden' is the wrong type 'string'",
        ),
        (
            of(doc! { "priority": -0.5 }),
            "priority field value of -0.5 is out of range",
        ),
        (
            of(doc! { "priority": 1001 }),
            "priority field value of 1001 is out of range",
        ),
        (
            of(doc! { "priority": f64::NAN }),
            "priority field value of NaN is out of range",
        ),
        (of(doc! { "tags": { "dc": 1 } }), "tags.dc field has non-string value"),
        (of(doc! { "votes": 2 }), "votes field value is 2 but must be 0 or 1"),
        (of(doc! { "votes": -1 }), "votes field value is -1 but must be 0 or 1"),
        (
            of(doc! { "secondaryDelaySecs": -1 }),
            "'secondaryDelaySecs' value must be >= 0",
        ),
        (
            of(doc! { "secondaryDelaySecs": 31_622_401 }),
            "'secondaryDelaySecs' value must be <= 31622400",
        ),
        (
            set_with(doc! { "x": 1 }),
            "'ReplSetConfig.settings.x' is an unknown field",
        ),
        (set_with(doc! { "chainingAllowed": "x" }), "chainingAllowed"),
        (
            set_with(doc! { "heartbeatIntervalMillis": 0 }),
            "'heartbeatIntervalMillis' value must be >= 1",
        ),
        (
            set_with(doc! { "heartbeatTimeoutSecs": 0 }),
            "'heartbeatTimeoutSecs' value must be >= 1",
        ),
        (
            set_with(doc! { "electionTimeoutMillis": 1_i64 << 31 }),
            "'electionTimeoutMillis' value must be <=",
        ),
        (
            set_with(doc! { "catchUpTimeoutMillis": -2 }),
            "'catchUpTimeoutMillis' value must be >= -1",
        ),
        (
            set_with(doc! { "catchUpTakeoverDelayMillis": -2 }),
            "'catchUpTakeoverDelayMillis' value must be >= -1",
        ),
        (
            set_with(doc! { "replicaSetId": "x" }),
            "replicaSetId' is the wrong type 'string'",
        ),
        (
            set_with(doc! { "replicaSetId": ObjectId::from_bytes([0; 12]) }),
            "replicaSetId field value cannot be null",
        ),
        (
            set_with(doc! { "getLastErrorModes": { "m": 1 } }),
            "settings.getLastErrorModes.m to be an object",
        ),
        (
            set_with(doc! { "getLastErrorModes": { "m": { "t": "x" } } }),
            "settings.getLastErrorModes.m.t to be a number",
        ),
        (
            set_with(doc! { "getLastErrorModes": { "m": { "t": 0 } } }),
            "must be positive, but found 0",
        ),
        (
            set_with(doc! { "getLastErrorModes": { "m": { "t": -1 } } }),
            "must be positive, but found -1",
        ),
        (
            set_with(doc! { "getLastErrorModes": { "m": { "t": 1_i64 << 40 } } }),
            "must be <=",
        ),
        (
            set_with(doc! { "getLastErrorDefaults": { "w": 2 } }),
            "getLastErrorDefaults must be {w: 1, wtimeout: 0}",
        ),
        (
            set_with(doc! { "getLastErrorDefaults": { "w": "majority" } }),
            "setDefaultRWConcern",
        ),
        (
            set_with(doc! { "getLastErrorDefaults": { "w": 1, "wtimeout": 5 } }),
            "setDefaultRWConcern",
        ),
        (
            set_with(doc! { "getLastErrorDefaults": { "w": 1, "j": true } }),
            "setDefaultRWConcern",
        ),
    ] {
        let (code, message) = error(parse(&config), &config.to_string());
        assert!(code == 93 && message.contains(expected), "{config}: {code} {message}");
    }
    for config in [of(doc! { "horizons": { "x": "y:1" } }), with(one(), "configsvr", true)] {
        assert_eq!(error(parse(&config), "not built").0, 238, "{config}");
    }
    let mut twice = RawDocumentBuf::new();
    for _ in 0..2 {
        twice.append(bson::raw::cstr!("m"), bson::rawdoc! {});
    }
    assert!(Settings::parse(&bson::rawdoc! { "getLastErrorModes": twice }).is_err());
}

#[test]
fn what_does_not_go_together_is_refused() {
    let second = |more: Document| set(vec![member(0, doc! {}), member(1, more)]);
    let mode = |members| {
        with(
            set(members),
            "settings",
            doc! { "getLastErrorModes": { "m": { "dc": 1 } } },
        )
    };
    let local = |host: &str| set(vec![member(0, doc! {}), doc! { "_id": 1, "host": host }]);
    let numbered = |count: i32| -> Vec<Document> {
        let rest = (1..count).map(|id| doc! { "_id": id, "host": format!("m{id}"), "votes": 0, "priority": 0 });
        std::iter::once(member(0, doc! {})).chain(rest).collect()
    };
    for (config, expected) in [
        (
            with(set(plain(0..1)), "_id", "other"),
            "of the replica set other, and --replSet says rs",
        ),
        (
            set(vec![]),
            "contains 0 members, but must have at least 1 and no more than 50",
        ),
        (
            set(numbered(51)),
            "contains 51 members, but must have at least 1 and no more than 50",
        ),
        (
            second(doc! { "_id": 0 }),
            "same _id field, members.0._id == members.1._id == 0",
        ),
        (
            second(doc! { "host": "a:1" }),
            "same host field, members.0.host == members.1.host == a:1",
        ),
        (
            set(vec![
                member(0, doc! {}),
                member(1, doc! { "host": "z" }),
                member(2, doc! { "host": "z:27017" }),
            ]),
            "members.1.host == members.2.host == z:27017",
        ),
        (
            local("localhost"),
            "must be localhost references, or none must be; found 1 out of 2",
        ),
        (local("127.0.0.1:2"), "found 1 out of 2"),
        (local("::1"), "found 1 out of 2"),
        (
            set(plain(0..8)),
            "contains 8 voting members, but must be at least 1 and no more than 7",
        ),
        (set(vec![voteless(0), voteless(1)]), "contains 0 voting members"),
        (
            set(vec![member(0, doc! { "priority": 0 }), arbiter(1)]),
            "at least one non-arbiter member with priority > 0",
        ),
        (
            set(vec![member(0, doc! {}), arbiter(1), arbiter(2)]),
            "Multiple arbiters are not allowed",
        ),
        (
            second(doc! { "arbiterOnly": true, "tags": { "dc": "x" } }),
            "Cannot set tags on arbiters",
        ),
        (second(doc! { "arbiterOnly": true, "votes": 0 }), "Arbiter must vote"),
        (
            second(doc! { "arbiterOnly": true, "priority": 2 }),
            "Arbiter must have priority 0",
        ),
        (
            second(doc! { "votes": 0 }),
            "priority must be 0 when non-voting (votes:0)",
        ),
        (
            second(doc! { "secondaryDelaySecs": 1 }),
            "priority must be 0 when secondaryDelaySecs is used",
        ),
        (second(doc! { "hidden": true }), "priority must be 0 when hidden=true"),
        (
            second(doc! { "buildIndexes": false }),
            "priority must be 0 when buildIndexes=false",
        ),
        (
            mode(plain(0..2)),
            "getLastErrorModes.m asks for the tag dc, which no member has",
        ),
    ] {
        let (code, message) = error(read(&config), &config.to_string());
        assert!(code == 93 && message.contains(expected), "{config}: {code} {message}");
    }
    for config in [
        set(plain(0..7)),
        set(numbered(50)),
        set(plain(0..7).into_iter().chain([voteless(7)]).collect()),
        second(doc! { "arbiterOnly": true, "priority": 1 }),
        second(doc! { "arbiterOnly": true, "hidden": true }),
        second(doc! { "priority": 1000 }),
        second(doc! { "priority": 0, "hidden": true, "secondaryDelaySecs": 31_622_400 }),
        second(doc! { "_id": 255 }),
        local("localhost.example.org"),
        mode(vec![member(0, doc! {}), member(1, doc! { "tags": { "dc": "x" } })]),
        set_with(doc! { "getLastErrorDefaults": {} }),
    ] {
        assert!(read(&config).is_ok(), "{config}");
    }
    let locals = [(0, "localhost:1"), (1, "127.0.0.1:1"), (2, "[::1]:1")];
    let locals = set(locals.map(|(id, host)| doc! { "_id": id, "host": host }).to_vec());
    let locals = parse(&locals).expect("fields are right");
    assert!(locals.check().is_ok());
}

#[test]
fn exactly_one_member_is_this_server() {
    let config = set_of(plain(0..3));
    assert_eq!(config.me(&|host| host == "b:1").expect("found").id, 1);
    let (code, message) = error(config.me(&|_| false), "nobody");
    assert_eq!(
        (code, &*message),
        (
            74,
            "No host described in new configuration with {version: 1, term: 0} for replica set rs maps to this node"
        )
    );
    let (code, message) = error(config.me(&|host| host != "b:1"), "two");
    assert!(
        code == 93 && message.starts_with("The hosts a:1 and c:1 all map to this node"),
        "{message}"
    );
    assert_eq!(error(read(&set(vec![member(1, doc! {})])), "not a member").0, 74);
}

#[test]
fn a_set_begins_with_version_one_on_a_member_that_can_be_the_primary() {
    let is_me = |host: &str| host == "a:1";
    let passive = || set(vec![member(0, doc! { "priority": 0 }), member(1, doc! {})]);
    for (config, expected) in [
        (set(plain(0..3)), None),
        (with(set(plain(0..1)), "_id", "other"), Some("command line reports rs")),
        (
            with(set(plain(0..1)), "version", 2),
            Some("must have version 1, but found 2"),
        ),
        (set(plain(1..3)), Some("maps to this node")),
        (passive(), Some("This node, a:1, with _id 0 is not electable")),
    ] {
        let parsed = parse(&config).expect("fields are right");
        match (parsed.check_initial("rs", &is_me), expected) {
            (Ok(me), None) => assert_eq!(me.id, 0),
            (Err(error), Some(expected)) => {
                assert!(
                    error.code.0 == 93 && error.message.contains(expected),
                    "{}",
                    error.message
                );
            }
            (result, _) => panic!("{config}: {result:?}"),
        }
    }
    assert!(read(&passive()).is_ok(), "it can be a member");
}

#[test]
fn majorities_are_counted() {
    let mixed = |data: i32, arbiters: i32, voteless_ones: i32| {
        let mut members = plain(0..data);
        members.extend((data..data + arbiters).map(arbiter));
        members.extend((data + arbiters..data + arbiters + voteless_ones).map(voteless));
        set_of(members)
    };
    for (members, voters, majority, write_majority, is_majority) in [
        ((1, 0, 0), 1, 1, 1, true),
        ((2, 0, 0), 2, 2, 2, true),
        ((3, 0, 0), 3, 2, 2, true),
        ((7, 0, 2), 7, 4, 4, true),
        ((1, 1, 0), 2, 2, 1, false),
        ((2, 1, 0), 3, 2, 2, false),
        ((2, 1, 1), 3, 2, 2, false),
        ((3, 1, 0), 4, 3, 3, false),
        ((4, 1, 0), 5, 3, 3, true),
        ((1, 0, 1), 1, 1, 1, true),
    ] {
        let config = mixed(members.0, members.1, members.2);
        assert_eq!(
            (
                config.voters().count(),
                config.majority(),
                config.write_majority(),
                config.implicit_default_is_majority()
            ),
            (voters, majority, write_majority, is_majority),
            "data, arbiters, without vote: {members:?}"
        );
        assert_eq!(config.data_members().count() as i32, members.0 + members.2);
        assert_eq!(config.data_voters().count() as i32, members.0);
    }
}

#[test]
fn modes_count_different_values_of_tags() {
    let tagged = |id, dc: &str, disk: &str| member(id, doc! { "tags": { "dc": dc, "disk": disk } });
    let members = vec![
        tagged(0, "east", "ssd"),
        tagged(1, "east", "ssd"),
        tagged(2, "west", "hdd"),
        voteless(3),
    ];
    let modes = doc! { "two": { "dc": 2 }, "both": { "dc": 2, "disk": 1 }, "three": { "dc": 3 }, "none": {} };
    let config = with(set(members), "settings", doc! { "getLastErrorModes": modes });
    let config = read(&config).expect("accepted");
    let (none, all): (&[i32], &[i32]) = (&[], &[0, 1, 2, 3]);
    for (mode, has, expected) in [
        ("none", none, true),
        ("two", none, false),
        ("two", &[0, 1], false),
        ("two", &[0, 2], true),
        ("both", &[1, 2], true),
        ("three", all, false),
        ("majority", &[0, 3], false),
        ("majority", &[0, 2], true),
    ] {
        let is_satisfied = config.mode_is_satisfied(mode, &|id| has.contains(&id));
        assert_eq!(is_satisfied.ok(), Some(expected), "{mode} {has:?}");
    }
    assert_eq!(error(config.mode_is_satisfied("x", &|_| true), "unknown").0, 79);
    assert_eq!(error(config.check_mode("x"), "unknown").0, 79);
    assert_eq!(error(config.check_mode("three"), "too many").0, 100);
    assert!(config.check_mode("both").is_ok() && config.check_mode("majority").is_ok());
    let with_arbiter = set_of(vec![member(0, doc! {}), member(1, doc! {}), arbiter(2)]);
    assert!(with_arbiter.check_member_count(2).is_ok());
    assert_eq!(
        error(with_arbiter.check_member_count(3), "an arbiter has no data").0,
        100
    );
    assert!(config.check_member_count(4).is_ok(), "votes do not matter");
}

#[test]
fn one_configuration_may_follow_another() {
    let id = |byte| doc! { "replicaSetId": ObjectId::from_bytes([byte; 12]) };
    let next = |members| with(set(members), "version", 2);
    let changed = |at: i32, more: Document| {
        let mut members = plain(0..3);
        members[at as usize].extend(more);
        next(members)
    };
    let mut moved = plain(0..3);
    moved[1].insert("host", "c:1");
    moved[2].insert("host", "b:1");
    let voting = "can only add or remove at most 1 voting member";
    let old = with(set(plain(0..3)), "settings", id(1));
    // What is refused, and whether by force as well.
    for (new, refused, force_refused) in [
        (next(plain(0..3)), None, None),
        (next(plain(0..4)), None, None),
        (next(plain(0..2)), None, None),
        (
            next(plain(0..3).into_iter().chain([voteless(3), voteless(4)]).collect()),
            None,
            None,
        ),
        (changed(1, doc! { "host": "other:5" }), None, None),
        (
            changed(1, doc! { "priority": 0, "hidden": true, "tags": { "a": "b" } }),
            None,
            None,
        ),
        (changed(1, doc! { "priority": 0, "votes": 0 }), None, None),
        (changed(2, doc! { "_id": 9, "host": "other:5" }), Some(voting), None),
        (next(plain(0..5)), Some(voting), None),
        (next(plain(0..1)), Some(voting), None),
        (
            next(vec![member(0, doc! {}), voteless(1), voteless(2)]),
            Some(voting),
            None,
        ),
        (changed(0, doc! { "priority": 0 }), Some("is not electable"), None),
        (
            set(plain(0..3)),
            Some("1 is not greater than 1 for replica set rs"),
            None,
        ),
        (
            with(next(plain(0..3)), "_id", "other"),
            Some("that of the set other"),
            Some("this member is of rs"),
        ),
        (
            with(next(plain(0..3)), "settings", id(2)),
            Some("differ in replica set ID"),
            Some("replica set ID"),
        ),
        (
            next(moved),
            Some("members with host of c:1"),
            Some("the _id field is 1 and in the old"),
        ),
        (
            changed(2, doc! { "_id": 9 }),
            Some("members with host of c:1"),
            Some("_id field is 9"),
        ),
        (
            changed(1, doc! { "arbiterOnly": true }),
            Some("setting of the arbiterOnly field"),
            Some("member b:1"),
        ),
        (
            changed(1, doc! { "buildIndexes": false, "priority": 0 }),
            Some("buildIndexes field"),
            Some("re-add"),
        ),
        (next(plain(1..3)), Some("maps to this node"), Some("maps to this node")),
        (
            next(plain(0..8)),
            Some("contains 8 voting members"),
            Some("contains 8 voting members"),
        ),
    ] {
        let old = read(&old).expect("accepted");
        for (force, expected) in [(false, refused), (true, force_refused)] {
            let mut next = parse(&new).expect("fields are right");
            next.inherit(&old, force);
            let result = next.check_successor(&old, force, &|host| host == "a:1");
            match (result, expected) {
                (Ok(me), None) => assert_eq!(me.id, 0),
                (Err(error), Some(expected)) => {
                    let code = match expected {
                        "that of the set other" | "this member is of rs" => 93,
                        "maps to this node" => 74,
                        "is not electable" => 104,
                        _ => 103,
                    };
                    assert_eq!(error.code.0, code, "{}", error.message);
                    assert!(error.message.contains(expected), "{}", error.message);
                }
                (result, expected) => panic!("force: {force}, expected: {expected:?}, {new}: {result:?}"),
            }
        }
    }
}

#[test]
fn a_forced_configuration_gets_a_higher_version() {
    let old = read(&with(
        set_with(doc! { "replicaSetId": ObjectId::from_bytes([1; 12]) }),
        "version",
        5,
    ))
    .expect("accepted");
    for (given, force, expected) in [(1, false, 1), (1, true, 6), (9, true, 9)] {
        let mut new = parse(&with(set(plain(0..3)), "version", given)).expect("fields are right");
        new.inherit(&old, force);
        assert_eq!(
            (new.version, new.settings.replica_set_id),
            (expected, old.settings.replica_set_id)
        );
    }
    let last = parse(&with(set(plain(0..3)), "version", i32::MAX)).expect("fields are right");
    let mut new = last.clone();
    new.inherit(&last, true);
    assert_eq!(
        error(SetConfig::check_change(&last, &new, true), "there is no higher one").0,
        103
    );
}
