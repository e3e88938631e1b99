#![allow(clippy::unwrap_used)]
use super::*;
use bson::doc;
use commands::logger::{Rotate, TimeFormat};

const HERE: &str = "/srv/tenon";

fn words(line: &str) -> Vec<String> {
    line.split_whitespace().map(str::to_owned).collect()
}

fn serve(line: &str) -> Config {
    match task(&words(line), Path::new(HERE)).unwrap() {
        Task::Serve(config) => *config,
        other => panic!("{other:?}"),
    }
}

fn refusal(line: &str) -> String {
    task(&words(line), Path::new(HERE)).unwrap_err().0
}

fn file(text: &str) -> Config {
    from_file_text(text, Path::new(HERE)).unwrap()
}

fn file_refusal(text: &str) -> String {
    from_file_text(text, Path::new(HERE)).unwrap_err().0
}

/// The configuration files of "MongoDB in Action", chapter 10: a common part and four storage parts.
fn book(storage: &str) -> Config {
    let rest = "systemLog:\n  destination: file\n  path: \"./mongodb-server.log\"\n  logAppend: true\n  timeStampFormat: iso8601-utc\nnet:\n  bindIp: 127.0.0.1\n  port: 27017\n  unixDomainSocket:\n    enabled: true\n";
    file(&format!("{storage}{rest}"))
}

fn book_wired_tiger(path: &str, compressor: &str, prefix: &str) -> Config {
    book(&format!(
        "storage:\n  dbPath: \"./{path}\"\n  directoryPerDB: true\n  journal:\n    enabled: true\n  engine: \"wiredTiger\"\n  wiredTiger:\n    engineConfig:\n      cacheSizeGB: 8\n      journalCompressor: none\n    collectionConfig:\n      blockCompressor: {compressor}\n    indexConfig:\n      prefixCompression: {prefix}\n"
    ))
}

#[test]
fn the_books_files_are_read_unchanged() {
    let config = book("storage:\n  dbPath: \"./data-mmapv1\"\n  directoryPerDB: true\n  journal:\n    enabled: true\n");
    assert_eq!(config.storage.db_path, Path::new("/srv/tenon/data-mmapv1"));
    assert!(config.storage.directory_per_db && config.storage.journal);
    assert_eq!(config.storage.engine, None);
    let path = PathBuf::from("/srv/tenon/./mongodb-server.log");
    assert_eq!(
        config.log.destination,
        Destination::File {
            path,
            append: true,
            rotate: Rotate::Rename
        }
    );
    assert_eq!(config.net.endpoints.bind, ["127.0.0.1"]);
    assert_eq!(
        (config.net.endpoints.port, config.net.endpoints.unix.is_some()),
        (27017, true)
    );
    assert_eq!(
        config.parsed.get_document("net").unwrap(),
        &doc! { "bindIp": "127.0.0.1", "port": 27017, "unixDomainSocket": { "enabled": true } }
    );

    for (path, compressor, prefix) in [
        ("data-wt-uncompressed", "none", "false"),
        ("data-wt-zlib", "snappy", "true"),
        ("data-wt-snappy", "zlib", "true"),
    ] {
        let config = book_wired_tiger(path, compressor, prefix);
        assert_eq!(config.storage.engine.as_deref(), Some("wiredTiger"));
        assert_eq!(config.storage.cache_bytes, Some(8 << 30));
        assert_eq!(config.storage.journal_compressor, "none");
        assert_eq!(config.storage.block_compressor.as_deref(), Some(compressor));
        assert_eq!(config.storage.prefix_compression, Some(prefix == "true"));
    }
}

#[test]
fn the_command_line_takes_mongods_forms() {
    let config = serve(
        "--dbpath data --port=27018 --bind_ip localhost,::1 --ipv6 --storageEngine inMemory --logpath a.log --logappend \
         --logRotate reopen --fork --pidfilepath p.pid --directoryperdb --nojournal --journalCommitInterval 50 --syncdelay 30 \
         --inMemorySizeGB 0.5 --maxConns 100 --filePermissions 0770 --unixSocketPrefix /run --setParameter ttlMonitorEnabled=false \
         --setParameter logLevel=1 --slowms 20 --quiet -vvv --timeStampFormat iso8601-local --emulate-version 7.0 --cpu",
    );
    assert_eq!(config.storage.db_path, Path::new("/srv/tenon/data"));
    assert_eq!(config.net.endpoints.bind, ["localhost", "::1"]);
    assert_eq!(config.net.endpoints.unix, Some((PathBuf::from("/run"), 0o770)));
    assert_eq!((config.net.connections_max, config.net.endpoints.port), (100, 27018));
    assert!(config.fork && config.quiet && !config.storage.journal && config.net.endpoints.ipv6);
    assert_eq!(config.log.verbosity, 3);
    assert_eq!(config.log.time_format, TimeFormat::Iso8601Local);
    assert_eq!(config.storage.in_memory_bytes, Some(1 << 29));
    let parameters = [
        ("syncdelay", "30"),
        ("journalCommitInterval", "50"),
        ("ttlMonitorEnabled", "false"),
        ("logLevel", "1"),
    ];
    assert_eq!(
        config.parameters,
        parameters.map(|(name, value)| (name.to_owned(), value.to_owned()))
    );
    assert_eq!(
        (config.emulated_version[0], config.wire_version_max, config.slow_ms),
        (7, 21, 20)
    );
    assert_eq!(config.warnings.len(), 1, "--cpu");
    let prefix = serve("--wiredTigerIndexPrefixCompression false")
        .storage
        .prefix_compression;
    assert_eq!(prefix, Some(false));
    assert_eq!(
        serve("--bind_ip_all --allowUnprotected --nounixsocket")
            .net
            .endpoints
            .unix,
        None
    );
    assert_eq!(serve("--verbose").log.verbosity, 1);
    assert_eq!(serve("-v -v").log.verbosity, 1);
    assert_eq!(serve("--verbose=4").log.verbosity, 4);
}

#[test]
fn the_command_line_wins_over_the_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("tenond.conf");
    std::fs::write(
        &path,
        "net:\n  port: 1111\n  maxIncomingConnections: 5\nstorage:\n  dbPath: /a\n",
    )
    .unwrap();
    let config = serve(&format!("-f {} --port 2222", path.display()));
    assert_eq!((config.net.endpoints.port, config.net.connections_max), (2222, 5));
    assert_eq!(config.storage.db_path, Path::new("/a"));
    assert!(refusal("--config /nonexistent/file").contains("Error opening config file"));
}

#[test]
fn what_is_unknown_or_contradictory_is_named() {
    for (line, expected) in [
        ("--frobnicate", "unrecognised option '--frobnicate'"),
        ("-x", "unrecognised option '-x'"),
        ("stray", "too many positional options"),
        ("--port", "the required argument for option '--port' is missing"),
        (
            "--port 1 --port 2",
            "option '--port' cannot be specified more than once",
        ),
        (
            "--port 65536",
            "net.port (--port)\": \"65536\" is not an integer between 0 and 65535",
        ),
        ("--port x", "\"x\" is not an integer"),
        ("--journal --nojournal", "Can't specify both --journal and --nojournal"),
        (
            "--bind_ip x --bind_ip_all",
            "cannot specify both net.bindIp and net.bindIpAll",
        ),
        ("--fork", "--fork has to be used with --logpath"),
        ("--logpath x --logRotate reopen", "logAppend must equal true"),
        ("--journalCommitInterval 501", "between 1 and 500"),
        ("--wiredTigerCollectionBlockCompressor gzip", "one of none, snappy"),
        ("--networkMessageCompressors snappy,lz4", "takes snappy, zstd, zlib"),
        ("--setParameter x", "of the form name=value"),
        ("--timeStampFormat ctime", "one of iso8601-utc"),
        ("--emulate-version 3.6", "one of 7.0, 8.0"),
        ("-vvvvvv", "verbosity between 0 and 5"),
    ] {
        let text = refusal(line);
        assert!(text.contains(expected), "{line}: {text}");
    }
}

#[test]
fn a_replica_set_needs_a_name_and_the_log() {
    let set = |initiates, oplog_bytes, hours: u64| {
        Some(SetConfig {
            name: "rs0".to_owned(),
            initiates,
            oplog: crate::data_directory::AskedOplog {
                bytes: oplog_bytes,
                time: Duration::from_secs(hours * 3600),
            },
        })
    };
    assert_eq!(serve("--replSet rs0").replica_set, set(false, None, 0));
    let sized = serve("--replSet rs0 --oplogSize 2 --oplogMinRetentionHours 3");
    assert_eq!(sized.replica_set, set(false, Some(2 << 20), 3));
    let both = file("replication:\n  replSetName: rs0\n  initiate: true");
    assert_eq!(both.replica_set, set(true, None, 0));
    assert_eq!(serve("").replica_set, None);
    for (line, expected) in [
        ("--replSetInitiate", "has to be used with --replSet"),
        ("--replSet a/b", "a name without"),
        ("--replSet rs0 --nojournal", "needs the log"),
    ] {
        assert!(refusal(line).contains(expected), "{line}: {}", refusal(line));
    }
}

#[test]
fn what_is_not_built_is_refused_by_name() {
    for (line, expected) in [
        (
            "--transitionToAuth",
            "passing over to access control while clients work is not built yet",
        ),
        ("--tlsMode requireTLS", "need tlsCertificateKeyFile"),
        ("--tlsCertificateKeyFile x.pem", "need to enable TLS"),
        ("--shardsvr", "--shardsvr: sharding is not built yet"),
        ("--configsvr", "--configsvr: sharding is not built yet"),
        ("--syslog", "logging to syslog is not built yet"),
    ] {
        assert!(refusal(line).contains(expected), "{line}: {}", refusal(line));
    }
    assert_eq!(serve("--profile 1").profiling, ProfilingLevel::Slow);
    assert_eq!(serve("--profile 0").profiling, ProfilingLevel::Off);
    assert_eq!(serve("").slow_sample_rate, 1.0);
    assert_eq!(serve("--slowOpSampleRate 0.25").slow_sample_rate, 0.25);
    assert!(refusal("--slowOpSampleRate 2").contains("a number between 0 and 1"));
    serve("--profile 0 --tlsMode disabled --noauth --noscripting");
    for (text, expected) in [
        (
            "security:\n  sasl:\n    hostName: x",
            "directory services and Kerberos is not built yet",
        ),
        (
            "replication:\n  enableMajorityReadConcern: false",
            "replication without majority reads is not built yet",
        ),
        (
            "net:\n  tls:\n    disabledProtocols: x",
            "net.tls.disabledProtocols (--tlsDisabledProtocols): a choice of TLS versions is not built yet",
        ),
        ("systemLog:\n  destination: syslog", "is not one of file"),
        ("systemLog:\n  destination: file", "systemLog.path is required"),
    ] {
        assert!(file_refusal(text).contains(expected), "{text}: {}", file_refusal(text));
    }
    file("security:\n  authorization: disabled");
    file("security:\n  transitionToAuth: false\nnet:\n  ssl:\n    mode: disabled");
    file("replication:\n  enableMajorityReadConcern: true");
    assert!(refusal("--noIndexBuildRetry").contains("is not built yet"));
}

/// A misspelt option is no option that is not built, and one without a value is not left out.
#[test]
fn nothing_is_passed_over() {
    for (text, expected) in [
        (
            "security:\n  authorisation: enabled",
            "did you mean security.authorization?",
        ),
        (
            "replication:\n  replSetname: rs0",
            "did you mean replication.replSetName?",
        ),
        (
            "replication:\n  replSet: rs0",
            "Unrecognized option: replication.replSet",
        ),
        ("security:\n  authorization:", "security.authorization has no value"),
        ("security:\n  keyFile: ~", "security.keyFile has no value"),
        ("net:\n  tls:\n    mode:", "net.tls.mode has no value"),
        (
            "setParameter:\n  ttlMonitorEnabled:",
            "setParameter.ttlMonitorEnabled has no value",
        ),
        (
            "storage:\n  dbPath: [a, b]",
            "storage.dbPath is a list, and takes one value",
        ),
    ] {
        assert!(file_refusal(text).contains(expected), "{text}: {}", file_refusal(text));
    }
    file("security:\nnet:\n  tls:");
    for line in [
        "--auth --noauth",
        "--noauth --auth",
        "--journal --nojournal",
        "--javascriptEnabled --noscripting",
    ] {
        assert!(
            refusal(line).contains("Can't specify both"),
            "{line}: {}",
            refusal(line)
        );
    }
    serve("--auth --javascriptEnabled=false --noscripting");
}

#[test]
fn files_are_checked() {
    for (text, expected) in [
        ("net:\n  prot: 1", "Unrecognized option: net.prot"),
        ("dbpath=/data\nport=1", "not a map of options"),
        ("- a\n- b", "not a map of options"),
        ("net: [", "Error parsing YAML config file"),
        ("net:\n  port: 1\nnet:\n  port: 2", "duplicate"),
        ("net:\n  port: [1, 2]", "net.port is a list, and takes one value"),
        ("net:\n  bindIp: [1, 2]", "is a list of something else than text"),
        ("1: 2", "has a name that is not text"),
        ("storage:\n  journal: true", "Unrecognized option: storage.journal"),
        (
            "systemLog:\n  component:\n    network:\n      verbosity: 9",
            "not between 0 and 5",
        ),
        (
            "systemLog:\n  component:\n    nonesuch:\n      verbosity: 1",
            "Unrecognized option",
        ),
    ] {
        assert!(file_refusal(text).contains(expected), "{text}: {}", file_refusal(text));
    }
    let deep = (0..40).map(|i| format!("{}a:\n", " ".repeat(i))).collect::<String>();
    assert!(from_file_text(&format!("{deep}{}b: 1", " ".repeat(40)), Path::new(HERE)).is_err());
    let config = file(
        "net:\n  bindIp: [127.0.0.1, \"::1\"]\n  tls:\nsetParameter:\n  ttlMonitorEnabled: false\nsystemLog:\n  component:\n    storage:\n      journal:\n        verbosity: 2\n",
    );
    assert_eq!(config.net.endpoints.bind, ["127.0.0.1", "::1"]);
    assert_eq!(
        config.parameters,
        [("ttlMonitorEnabled".to_owned(), "false".to_owned())]
    );
    assert_eq!(config.log_components, [(Component::Journal, 2)]);
    assert_eq!(
        config.parsed.get_document("setParameter").unwrap(),
        &doc! { "ttlMonitorEnabled": "false" }
    );
    file("");
}

#[test]
fn actions_print_or_stop() {
    let print = |line: &str| match task(&words(line), Path::new(HERE)).unwrap() {
        Task::Print(text) => text,
        other => panic!("{other:?}"),
    };
    assert!(matches!(
        task(&words("--version"), Path::new(HERE)),
        Ok(Task::PrintVersion)
    ));
    let engines = Registry::built_in().with("mine", |_, _| Err(engine::EngineError::Closed));
    let text = version(&engines);
    assert!(
        text.contains("tenond version v") && text.ends_with(", mine\n"),
        "{text}"
    );
    let help = print("-h");
    for flag in ["--dbpath arg", "--journal", "-f [ --config ] arg", "[net.port]"] {
        assert!(help.contains(flag), "{flag}");
    }
    let Task::Shutdown(path) = task(&words("--shutdown --dbpath d"), Path::new(HERE)).unwrap() else {
        panic!()
    };
    assert_eq!(path, Path::new("/srv/tenon/d"));
    let Task::Repair(config) = task(&words("--repair --dbpath d"), Path::new(HERE)).unwrap() else {
        panic!()
    };
    assert_eq!(config.storage.db_path, Path::new("/srv/tenon/d"));
}

#[test]
fn the_table_is_sorted_and_unambiguous() {
    let names: Vec<_> = OPTIONS
        .iter()
        .map(|spec| (spec.yaml, if spec.yaml.is_empty() { spec.flag } else { "" }))
        .collect();
    assert!(names.is_sorted(), "{names:?}");
    assert!(refused::REFUSED.iter().map(|spec| spec.yaml).is_sorted());
    let mut yaml: Vec<&str> = OPTIONS.iter().chain(refused::REFUSED).map(|spec| spec.yaml).collect();
    yaml.retain(|name| !name.is_empty());
    yaml.sort_unstable();
    assert!(yaml.windows(2).all(|pair| pair[0] != pair[1]), "{yaml:?}");
    let mut flags: Vec<&str> = OPTIONS
        .iter()
        .map(|spec| spec.flag)
        .filter(|flag| !flag.is_empty())
        .collect();
    flags.extend(options::ALIASES.iter().map(|(flag, ..)| flag));
    flags.extend(
        refused::REFUSED
            .iter()
            .map(|spec| spec.flag)
            .filter(|flag| !flag.is_empty()),
    );
    let count = flags.len();
    flags.sort_unstable();
    flags.dedup();
    assert_eq!(flags.len(), count);
}

/// Without access control a server is reached from its own machine alone, unless the opposite is said in so many
/// words.
#[test]
fn nobody_is_served_unprotected_by_mistake() {
    for line in [
        "--bind_ip 0.0.0.0",
        "--bind_ip_all",
        "--bind_ip ::",
        "--bind_ip 127.0.0.1,db1.example",
        "--bind_ip 10.0.0.1",
    ] {
        let text = refusal(line);
        assert!(
            text.contains("--auth") && text.contains("--allowUnprotected"),
            "{line}: {text}"
        );
        serve(&format!("{line} --allowUnprotected"));
        assert!(serve(&format!("{line} --auth")).access_control);
    }
    for line in [
        "",
        "--bind_ip localhost,127.0.0.1,::1,/run/tenon.sock",
        "--bind_ip 127.9.9.9",
        "--noauth",
    ] {
        assert!(!serve(line).access_control);
    }
    file("net:\n  bindIp: 0.0.0.0\nsecurity:\n  authorization: enabled\n");
    file("net:\n  bindIp: 0.0.0.0\ntenon:\n  allowUnprotected: true\n");
    assert!(file_refusal("net:\n  bindIp: 0.0.0.0\n").contains("0.0.0.0"));
}

/// The monitoring page is off unless it has a port, and beyond this machine it asks for passwords, which nobody else
/// reads.
#[test]
fn the_monitoring_page_is_no_way_in() {
    const TLS: &str = "--tlsMode requireTLS --tlsCertificateKeyFile x.pem";
    assert_eq!(serve("").net.http, None);
    let http = serve("--httpPort 28017").net.http.expect("it has a port");
    assert_eq!(
        (http.port, &*http.bind, http.reaches_out),
        (28017, &["127.0.0.1".to_owned()][..], false)
    );
    let http = file("net:\n  http:\n    port: 0\n    bindIp: localhost,::1\n")
        .net
        .http
        .expect("it has a port");
    assert_eq!((http.port, http.bind.len(), http.reaches_out), (0, 2, false));
    assert!(refusal("--httpBindIp 127.0.0.1").contains("--httpPort"));
    assert!(refusal("--httpPort 1 --httpBindIp /tmp/s").contains("addresses"));
    let line = "--httpPort 1 --httpBindIp 0.0.0.0";
    assert!(refusal(line).contains("--auth"));
    assert!(refusal(&format!("{line} {TLS}")).contains("--auth"));
    assert!(refusal(&format!("{line} --auth")).contains("TLS"));
    assert!(
        serve(&format!("{line} --auth {TLS}"))
            .net
            .http
            .is_some_and(|http| http.reaches_out)
    );
    assert!(serve(&format!("{line} --allowUnprotected")).net.http.is_some());
    assert!(file_refusal("net:\n  http:\n    JSONPEnabled: true\n").contains("HTTP interface"));
}

/// `docs/configuration.md` has a row for every option, with its default.
#[test]
fn the_reference_is_complete() {
    let text = include_str!("../../../../docs/configuration.md");
    for spec in OPTIONS {
        let name = if spec.yaml.is_empty() {
            format!("`--{}`", spec.flag)
        } else {
            format!("`{}`", spec.yaml)
        };
        let row = text.lines().find(|line| line.starts_with(&format!("| {name} |")));
        let row = row.unwrap_or_else(|| panic!("{name} is not in docs/configuration.md"));
        assert!(row.contains(spec.flag) && row.contains(spec.default), "{row}");
    }
    for spec in refused::REFUSED {
        let name = if spec.yaml.is_empty() { spec.flag } else { spec.yaml };
        assert!(
            text.contains(&format!("`{name}`")) || text.contains(&format!("`--{name}`")),
            "{name}"
        );
    }
    for (flag, ..) in options::ALIASES {
        assert!(text.contains(&format!("`--{flag}`")), "{flag}");
    }
}

/// 0 was taken, and bounded nothing.
#[test]
fn the_bound_of_the_in_memory_engine_leaves_it_some_memory() {
    assert_eq!(serve("--inMemorySizeGB 0.01").storage.in_memory_bytes, Some(10_737_418));
    assert!(refusal("--inMemorySizeGB 0").contains("between 0.01 and"));
}

/// Scripts run only where somebody has asked for them.
#[test]
fn scripts_are_off_unless_asked_for() {
    assert!(!serve("").scripting);
    assert!(!serve("--noscripting").scripting);
    assert!(serve("--javascriptEnabled").scripting);
    assert!(!serve("--javascriptEnabled=false").scripting);
    assert!(file("security:\n  javascriptEnabled: true").scripting);
    assert!(!file("security:\n  javascriptEnabled: false").scripting);
}

/// A key, or certificates, of members switch access control on, and what they need is asked for.
#[test]
fn members_prove_themselves() {
    const TLS: &str = "--tlsCertificateKeyFile x.pem --tlsCAFile ca.pem";
    let config = serve("--keyFile k --bind_ip 0.0.0.0");
    let expected = ClusterAuthConfig {
        mode: ClusterAuthMode::KeyFile,
        key_file: Some("/srv/tenon/k".into()),
    };
    assert_eq!((config.cluster_auth, config.access_control), (Some(expected), true));
    let config = file(
        "security:\n  clusterAuthMode: x509\nnet:\n  tls:\n    mode: preferTLS\n    certificateKeyFile: x\n    CAFile: y\n",
    );
    let expected = ClusterAuthConfig {
        mode: ClusterAuthMode::X509,
        key_file: None,
    };
    assert_eq!((config.cluster_auth, config.access_control), (Some(expected), true));
    for mode in ["sendKeyFile", "sendX509"] {
        let config = serve(&format!(
            "--keyFile k --clusterAuthMode {mode} --tlsMode requireTLS {TLS}"
        ));
        assert_eq!(config.cluster_auth.unwrap().mode.name(), mode);
    }
    assert_eq!(serve("--auth").cluster_auth, None);
    for (line, said) in [
        ("--keyFile k --noauth", "--noauth"),
        ("--clusterAuthMode keyFile", "a keyFile"),
        (
            "--clusterAuthMode sendX509 --tlsMode requireTLS --tlsCertificateKeyFile x --tlsCAFile y",
            "a keyFile",
        ),
        ("--clusterAuthMode x509", "need TLS"),
        (
            "--clusterAuthMode x509 --tlsMode requireTLS --tlsCertificateKeyFile x",
            "net.tls.CAFile",
        ),
        (
            "--clusterAuthMode x509 --tlsMode allowTLS --tlsCertificateKeyFile x --tlsCAFile y",
            "allowTLS",
        ),
        ("--clusterAuthMode both", "is not one of keyFile"),
    ] {
        assert!(refusal(line).contains(said), "{line}: {}", refusal(line));
    }
}

/// Nested and with dots a name is another key to YAML, and the one that came last counted.
#[test]
fn a_name_is_given_once() {
    for text in [
        "security:\n  authorization: enabled\nsecurity.authorization: disabled\n",
        "security.authorization: disabled\nsecurity:\n  authorization: enabled\n",
    ] {
        assert!(file_refusal(text).contains("security.authorization is given twice"));
    }
    let parameter = "setParameter:\n  syncdelay: 1\nsetParameter.syncdelay: 2\n";
    assert!(file_refusal(parameter).contains("setParameter.syncdelay is given twice"));
    let component =
        "systemLog.component.query.verbosity: 1\nsystemLog:\n  component:\n    query:\n      verbosity: 2\n";
    assert!(file_refusal(component).contains("query.verbosity is given twice"));
}

/// A variable that is not set made the current directory the data directory.
#[test]
fn an_empty_text_is_no_path() {
    let line = |words: &[&str]| {
        let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
        task(&words, Path::new(HERE)).map(drop).map_err(|error| error.0)
    };
    for words in [
        ["--dbpath", ""].as_slice(),
        &["--dbpath="],
        &["--dbpath", "", "--shutdown"],
        &["--logpath", ""],
        &["--config", ""],
    ] {
        assert!(line(words).unwrap_err().contains("it is empty"), "{words:?}");
    }
    assert!(file_refusal("storage:\n  dbPath: \"\"\n").contains("storage.dbPath (--dbpath)"));
    assert!(line(&["--rocksdbConfigString", ""]).is_ok());
}

#[test]
fn addresses_may_stand_in_brackets() {
    assert_eq!(
        serve("--bind_ip [::1],localhost --ipv6").net.endpoints.bind,
        ["::1", "localhost"]
    );
    assert!(refusal("--bind_ip [::]").contains("--auth"));
}

#[test]
fn help_says_what_an_option_without_effect_is_for() {
    let Task::Print(help) = task(&words("--help"), Path::new(HERE)).unwrap() else {
        panic!();
    };
    for flag in ["--cpu", "--timeZoneInfo"] {
        let line = help.lines().find(|line| line.trim_start().starts_with(flag)).unwrap();
        assert!(line.contains("no effect; "), "{line}");
    }
}
