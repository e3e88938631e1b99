//! Commands, document in and document out, against a storage on the in-memory engine.

mod access;
mod access_by_fields;
mod administration;
mod among_others;
mod apply_ops;
mod capped;
mod change_streams;
mod changed_options;
mod cluster_parameters;
mod diagnostics;
mod index_specifications;
mod members;
mod operation_reports;
mod own_collections;
mod parked;
mod plan_cache;
mod query_settings;
mod random_writes;
mod reads;
mod replica_set;
mod retries;
mod roles;
mod sessions;
mod stable_api;
mod tables;
mod timeseries;
mod transactions;
mod turns;
mod users;
mod validation;
mod views;
mod write_stages;
mod writes;

use crate::command::user_store::{self, Store};
use crate::logger::Logger;
use crate::{Client, Peer, ReplicaSet, Request, Server, Settings};
use auth::ClusterAuth;
use bson::raw::RawDocument;
use bson::{Bson, Document, RawDocumentBuf, doc};
use engine_inmemory::{InMemoryEngine, InMemoryOptions};
use oplog::{Log, LogMode, LogOptions};
use query::matcher::MatcherCompiler;
use spill::SpillSpace;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use storage::{Storage, StorageOptions};
use vfs::{Env, FileSystem, SeededRandom, SimulatedClock, SimulatedFs};

/// A server without sockets, and one connection to it.
struct Bench {
    server: Arc<Server>,
    client: Arc<Client>,
    clock: Arc<SimulatedClock>,
    fs: Arc<SimulatedFs>,
}

impl Bench {
    fn new() -> Self {
        Self::with_parameters(&[]).expect("the server starts")
    }

    /// A server with access control, whose first client is its first user, a `root`.
    fn guarded() -> Self {
        let bench = Self::build(&[("enableTestCommands", "1")], None, true, None).expect("the server starts");
        bench.server.keep_version().expect("kept");
        bench.keep_user("admin", "root", &[doc! { "role": "root", "db": "admin" }.into()]);
        bench.become_user(&bench.client, "admin", "root");
        bench
    }

    /// A connection of the user `user` of `test`, who is made with these roles.
    fn user(&self, user: &str, roles: &[Bson]) -> Arc<Client> {
        self.keep_user("test", user, roles);
        let client = self.stranger();
        self.become_user(&client, "test", user);
        client
    }

    /// Makes a user without credentials, which cost most of the time of making one.
    fn keep_user(&self, database: &str, user: &str, roles: &[Bson]) {
        let document = doc! {
            "_id": user_store::id(database, user), "user": user, "db": database, "credentials": {}, "roles": roles,
        };
        let kept = self
            .server
            .own_call(|call| user_store::insert(call, Store::Users, &document));
        kept.expect("users can be written");
    }

    /// A connection of somebody who has proven nothing.
    fn stranger(&self) -> Arc<Client> {
        self.server.connect(Peer::Tcp("127.0.0.1:3".into(), None))
    }

    /// As if the client had proven to be the user.
    fn become_user(&self, client: &Arc<Client>, database: &str, user: &str) {
        let identity = self.server.own_call(|call| {
            let document = user_store::find_one(call, database, user)?.expect("there is such a user");
            Ok(user_store::identity(database, user, &document))
        });
        let mut state = client.authentication.lock();
        state.user = Some(identity.expect("users can be read"));
        state.grant = None;
    }

    fn with_parameters(parameters: &[(&str, &str)]) -> Result<Self, String> {
        Self::build(parameters, None, false, None)
    }

    /// The only member of the set `rs`, which has been initiated if `initiates`.
    fn member(initiates: bool) -> Self {
        let set = ReplicaSet::new("rs".to_owned(), initiates, ("localhost", 27017), [1; 16]);
        let bench =
            Self::build(&[("enableTestCommands", "1")], Some(Arc::new(set)), false, None).expect("the server starts");
        bench.server.join_set(None).expect("joined");
        bench
    }

    fn build(
        parameters: &[(&str, &str)],
        replica_set: Option<Arc<ReplicaSet>>,
        access_control: bool,
        cluster_auth: Option<ClusterAuth>,
    ) -> Result<Self, String> {
        let journal = replica_set.is_some();
        let fs = SimulatedFs::new(1);
        for directory in ["/db/inMemory", "/db/journal"] {
            fs.create_directory_all(Path::new(directory)).expect("created");
        }
        let clock = Arc::new(SimulatedClock::new(1_700_000_000_000));
        let fs = Arc::new(fs);
        let env = Env {
            fs: fs.clone(),
            clock: clock.clone(),
            random: Arc::new(SeededRandom::new(1)),
        };
        let engine = InMemoryEngine::open(&env, Path::new("/db/inMemory"), InMemoryOptions::default()).expect("engine");
        let mut log = LogOptions::new("/db/journal");
        log.mode = if journal { LogMode::On } else { LogMode::Off };
        log.segment_bytes = oplog::SEGMENT_BYTES_MIN;
        log.background = false;
        let log = Arc::new(Log::open(&env, log, engine::Seq(0)).expect("log"));
        let mut options = StorageOptions::new(Arc::new(MatcherCompiler));
        options.background = false;
        options.journal = journal;
        options.sync_period = Duration::ZERO;
        let storage = Storage::open(env.clone(), Arc::new(engine), log, options).expect("storage");
        let settings = Settings {
            argv: vec!["tenond".into()],
            parsed: doc! {},
            git_version: "1234abcd".into(),
            host: "host".into(),
            port: 27017,
            db_path: "/db".into(),
            engine_path: PathBuf::from("/db/inMemory"),
            directory_per_db: false,
            spill_space: Some(SpillSpace::open(env.fs.clone(), PathBuf::from("/db/_tmp")).expect("a directory")),
            metadata_path: PathBuf::from("/db/storage.bson"),
            encryption: None,
            journal,
            emulated_version: [8, 0, 4],
            wire_version_max: 25,
            engines: vec!["inMemory".into()],
            parameters: parameters
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect(),
            slow_ms: 100,
            slow_sample_rate: 1.0,
            profiling: crate::ProfilingLevel::Off,
            access_control: access_control || cluster_auth.is_some(),
            cluster_auth,
            scripting: true,
            quiet: false,
            replica_set,
            connections_max: 100,
            compressors: wire::Compressor::NEGOTIABLE.to_vec(),
            tls: None,
            audit: None,
        };
        let server = Server::new(env, storage, Logger::for_tests(clock.clone()), settings)?;
        let client = server.connect(Peer::Tcp("127.0.0.1:1".into(), None));
        Ok(Self {
            server,
            client,
            clock,
            fs,
        })
    }

    /// The reply to a command on the database `test`.
    fn run(&self, command: Document) -> Document {
        self.run_on("test", command)
    }

    fn admin(&self, command: Document) -> Document {
        self.run_on("admin", command)
    }

    fn run_on(&self, database: &str, command: Document) -> Document {
        self.run_as(&self.client, database, command)
    }

    fn run_as(&self, client: &Arc<Client>, database: &str, mut command: Document) -> Document {
        command.insert("$db", database);
        let body = RawDocumentBuf::try_from(&command).expect("a valid command");
        self.handle(client, &Request::of(&body))
    }

    fn handle(&self, client: &Arc<Client>, request: &Request<'_>) -> Document {
        let mut reply = Vec::new();
        self.server.handle(client, request, &mut reply);
        let mut reply = Document::try_from(RawDocument::from_bytes(&reply).expect("one document")).expect("valid BSON");
        if self.server.replica_set().is_some() {
            assert!(reply.remove("$clusterTime").is_some() && reply.remove("operationTime").is_some());
        }
        reply
    }

    /// The reply to a command that succeeds, without `ok`.
    fn ok(&self, command: Document) -> Document {
        succeeded(self.run(command))
    }

    /// The code of a command that fails.
    fn code(&self, command: Document) -> i32 {
        code(&self.run(command))
    }

    fn insert(&self, collection: &str, documents: &[Document]) {
        let reply = self.ok(doc! { "insert": collection, "documents": documents });
        assert_eq!(reply, doc! { "n": documents.len() as i32 });
    }

    /// All documents that a filter finds, in the order of `_id`.
    fn find(&self, collection: &str, filter: Document) -> Vec<Document> {
        first_batch(&self.ok(doc! { "find": collection, "filter": filter, "sort": { "_id": 1 } }))
    }

    /// All documents that a pipeline gives.
    fn aggregate(&self, collection: &str, pipeline: &[Document]) -> Vec<Document> {
        first_batch(&self.ok(doc! { "aggregate": collection, "pipeline": pipeline, "cursor": {} }))
    }

    /// The code with which a pipeline fails.
    fn aggregate_code(&self, collection: &str, pipeline: &[Document]) -> i32 {
        self.code(doc! { "aggregate": collection, "pipeline": pipeline, "cursor": {} })
    }
}

fn succeeded(mut reply: Document) -> Document {
    assert_eq!(reply.remove("ok"), Some(1.0.into()), "{reply}");
    reply
}

fn code(reply: &Document) -> i32 {
    assert_eq!(reply.get_f64("ok").ok(), Some(0.0), "{reply}");
    reply.get_i32("code").expect("an error has a code")
}

fn first_batch(reply: &Document) -> Vec<Document> {
    let cursor = reply.get_document("cursor").expect("a cursor");
    let batch = cursor.get_array("firstBatch").expect("a batch");
    batch
        .iter()
        .map(|document| document.as_document().expect("a document").clone())
        .collect()
}

/// `writeErrors` of a reply: index and code of each.
fn write_errors(reply: &Document) -> Vec<(i32, i32)> {
    let Ok(errors) = reply.get_array("writeErrors") else {
        return Vec::new();
    };
    errors
        .iter()
        .map(|error| {
            let error = error.as_document().expect("a document");
            (
                error.get_i32("index").expect("an index"),
                error.get_i32("code").expect("a code"),
            )
        })
        .collect()
}
