//! Settings of both forms: what is taken, what is refused and where.

use super::*;

fn line_of(fault: SettingsFault) -> (usize, String) {
    match fault {
        SettingsFault::Line { line, reason } => (line, reason),
        SettingsFault::Whole(reason) => panic!("it has no line: {reason}"),
    }
}

#[test]
fn an_empty_file_is_the_articles_test() {
    let settings = Settings::from_properties("# nothing\n").expect("only defaults");
    assert_eq!(settings, Settings::from_yaml("").expect("only defaults"));
    assert_eq!(settings.larger_documents, 1_048_576);
    assert_eq!(settings.data_bytes(Size::LargerThanRam), 17_179_869_184);
    assert_eq!((settings.document_bytes, settings.batch), (16_384, 256));
    assert_eq!(settings.in_ram_documents, 100_000);
}

#[test]
fn both_forms_say_the_same() {
    let properties = "
        ! folders as in the article
        mongodb.databaseFolders = /one; /two
        server.engines: rocksdb, \\
            inMemory
        server.port = 27117
        server.arguments = --syncdelay 30
        matrix.writeConcerns = NORMAL, FSYNC_SAFE
        matrix.journal = yes
        matrix.sizes = inRam
        inRam.documents = 2^10
        test.documentSize = 4 KiB
        test.batch=64
        test.fsync = fsync
    ";
    let yaml = "
mongodb.databaseFolders: [/one, /two]
server:
  engines: [rocksdb, inMemory]
  port: 27117
  arguments: --syncdelay 30
matrix:
  writeConcerns: [NORMAL, FSYNC_SAFE]
  journal: true
  sizes: inRam
inRam.documents: 2^10
test: {documentSize: 4 KiB, batch: 64, fsync: fsync}
";
    let settings = Settings::from_properties(properties).expect("it is right");
    assert_eq!(settings, Settings::from_yaml(yaml).expect("it is right"));
    assert_eq!(settings.folders, [PathBuf::from("/one"), PathBuf::from("/two")]);
    assert_eq!(settings.engines, ["rocksdb", "inMemory"]);
    assert_eq!(settings.arguments, ["--syncdelay", "30"]);
    assert_eq!(settings.concerns, [WriteConcern::Normal, WriteConcern::FsyncSafe]);
    assert_eq!(settings.journal, [Journal::On]);
    assert_eq!(settings.fsync, Fsync::Fsync);
    assert_eq!(settings.in_ram_documents, 1024);
}

#[test]
fn a_bad_value_is_shown_with_its_line_in_both_forms() {
    let cases = [
        ("test.batch", "0", "not within 1 to 100000"),
        ("test.batch", "100001", "not within 1 to 100000"),
        ("test.batch", "many", "no whole number"),
        ("test.documentSize", "255", "not within 256"),
        ("test.documentSize", "16777217", "not within 256 to 16 MiB"),
        ("test.threads", "1025", "not within 1 to 1024"),
        ("test.compressible", "101", "not within 0 to 100"),
        ("server.port", "65536", "not within 0 to 65535"),
        ("largerThanRam.memory", "63 MiB", "not within 64 MiB"),
        ("inRam.documents", "2^37", "not within 1 to 68719476736"),
        (
            "matrix.writeConcerns",
            "SAFE, SAVE",
            "'SAVE' is none of NORMAL, SAFE, FSYNC_SAFE",
        ),
        ("matrix.writeConcerns", "SAFE, SAFE", "given twice"),
        ("matrix.journal", "maybe", "'maybe' is none of no, yes"),
        ("set.members", "8", "not within 2 to 7"),
        ("set.electionTimeoutMillis", "499", "not within 500"),
        ("matrix.failover", "maybe", "'maybe' is none of no, yes"),
        ("topology", "sharded", "topology sharded is not built yet"),
        ("topology", "ring", "'ring' is none of standalone"),
        ("test.fsync", "maybe", "none of j, fsync"),
        ("test.batches", "256", "there is no setting test.batches"),
        ("server.program", "", "no value"),
    ];
    for (name, value, reason) in cases {
        let properties = format!("# first\n\n{name} = {value}\n");
        let (line, said) = line_of(Settings::from_properties(&properties).expect_err(value));
        assert_eq!(line, 3, "{said}");
        assert!(said.contains(reason), "{name} = {value}: {said}");
        let yaml = format!("# first\ntest.seed: 1\n{name}: {value}\n");
        let (line, said) = line_of(Settings::from_yaml(&yaml).expect_err(value));
        assert_eq!(line, 3, "{said}");
        assert!(said.contains(reason), "{name}: {value}: {said}");
        let again = line_of(Settings::from_properties(&properties).expect_err(value)).1;
        assert_eq!(said, again, "both say the same");
    }
}

#[test]
fn values_on_their_limits_are_taken() {
    let text = "test.batch = 1\ntest.readBatch = 61440\ntest.documentSize = 256\ntest.threads = 1024\n\
                largerThanRam.memory = 64 MiB\ninRam.documents = 2^36\nserver.port = 65535\n";
    let settings = Settings::from_properties(text).expect("each is allowed");
    assert_eq!((settings.threads, settings.port), (1024, 65_535));
    let sixteen = Settings::from_properties("test.documentSize = 16 MiB\ntest.batch = 2\ntest.readBatch = 1\n");
    assert_eq!(sixteen.expect("two fit a message").batch, 2);
}

#[test]
fn a_batch_must_fit_a_message() {
    let fault = Settings::from_properties("test.documentSize = 16 MiB\ntest.batch = 3\ntest.readBatch = 1\n");
    let said = fault.expect_err("48 MiB and more").to_string();
    assert!(said.contains("test.batch times test.documentSize"), "{said}");
    let fault = Settings::from_properties("test.documentSize = 256\ntest.readBatch = 61441\n");
    let said = fault.expect_err("15 MiB and more").to_string();
    assert!(said.contains("test.readBatch times test.documentSize"), "{said}");
}

#[test]
fn contradictions_are_refused() {
    let twice = Settings::from_properties("test.seed = 1\ntest.seed = 2\n");
    assert_eq!(
        line_of(twice.expect_err("which?")),
        (2, "test.seed is given twice".to_owned())
    );
    let yaml = Settings::from_yaml("test:\n  seed: 1\ntest.seed: 2\n");
    assert_eq!(line_of(yaml.expect_err("which?")).0, 3);
    let both = Settings::from_properties("server.folders = /a\nmongodb.databaseFolders = /b\n");
    assert!(both.expect_err("which?").to_string().contains("mean the same"));
}

#[test]
fn a_set_has_settings_of_its_own() {
    let text = "topology: replicaSet\nset: {members: 5, electionTimeoutMillis: 2000}\n\
                matrix.failover: [no, yes]\nserver.engines: [btree, btree+inMemory+btree+btree+btree]\n";
    let settings = Settings::from_yaml(text).expect("it is right");
    assert_eq!((settings.servers(), settings.election_timeout_ms), (5, 2000));
    assert_eq!(settings.concerns, WriteConcern::OF_SETS);
    assert_eq!(settings.failover, [false, true]);
    for (text, reason) in [
        ("set.members: 3\n", "set.members is for topology: replicaSet"),
        ("matrix.failover: yes\n", "matrix.failover is for topology: replicaSet"),
        (
            "matrix.writeConcerns: MAJORITY\n",
            "MAJORITY is for topology: replicaSet",
        ),
        ("server.engines: a+b\n", "there is standalone of 1"),
        (
            "topology: replicaSet\nserver.engines: a+b\n",
            "the 2 members of a set, and there is replicaSet of 3",
        ),
        ("topology: replicaSet\nserver.engines: a++b\n", "the 3 members"),
        (
            "topology: replicaSet\nset.members: 2\nmatrix.failover: yes\n",
            "must be 3 or more",
        ),
        ("topology: replicaSet\nserver.port: 65534\n", "there are no 3 ports"),
    ] {
        let said = Settings::from_yaml(text).expect_err(text).to_string();
        assert!(said.contains(reason), "{text}: {said}");
    }
}

#[test]
fn shapes_that_are_no_settings() {
    for text in [
        "- a\n- b\n",
        "word\n",
        "test:\n  seed:\n    deep: {er: {and: {deeper: 1}}}\n",
        "test: [1, [2]]\n",
        "a: b: c\n",
    ] {
        Settings::from_yaml(text).expect_err(text);
    }
    let (line, said) = line_of(Settings::from_properties("\nno equals sign\n").expect_err("no value"));
    assert_eq!(
        (line, said.as_str()),
        (2, "a setting is written name = value: 'no equals sign'")
    );
    let long = "#".repeat(limits::SETTINGS_BYTES_MAX + 1);
    let said = Settings::from_properties(&long).expect_err("too long").to_string();
    assert!(said.contains("at most"), "{said}");
    Settings::from_properties(&long[1..]).expect("as long as may be");
}

#[test]
fn the_scale_keeps_whole_batches_and_the_proportion_to_memory() {
    let mut settings = Settings::default();
    settings.scale(1.0).expect("as it is");
    assert_eq!(settings, Settings::default());
    settings.scale(0.125).expect("an eighth");
    assert_eq!(settings.larger_documents, 131_072);
    assert_eq!(settings.memory_bytes, 11 << 27);
    assert_eq!(settings.in_ram_documents % 256, 0);
    settings.scale(1e-9).expect("almost nothing");
    assert_eq!((settings.in_ram_documents, settings.larger_documents), (256, 256));
    assert_eq!(settings.memory_bytes, limits::MEMORY_BYTES_MIN);
    for bad in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e7] {
        settings.scale(bad).expect_err("no scale");
    }
}

#[test]
fn the_files_that_are_shipped_are_right() {
    let folder = Path::new("../../stress");
    let most = Settings::read(&folder.join("most.properties")).expect("it is right");
    assert_eq!(
        (most.larger_documents, most.document_bytes, most.batch),
        (1 << 20, 16_384, 256)
    );
    let quick = Settings::read(&folder.join("quick.yaml")).expect("it is right");
    assert!(quick.data_bytes(Size::LargerThanRam) > quick.memory_bytes);
    assert_eq!(quick.concerns.len() * quick.journal.len() * quick.capped.len(), 12);
    let set = Settings::read(&folder.join("set.yaml")).expect("it is right");
    assert_eq!(
        (set.topology, set.members, set.failover.len()),
        (Topology::ReplicaSet, 3, 2)
    );
}
