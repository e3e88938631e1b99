//! The life of the server process: start-up in order, the wait, the orderly end.
//!
//! 1. log file, 2. lock and metadata of the data directory, 3. engine, 4. log and recovery, 5. listening sockets,
//! 6. commands, 7. connections. The end goes backwards.

use crate::announcement::Announcement;
use crate::config::Config;
use crate::data_directory::{DataDirectory, DataDirectoryError, Metadata};
use crate::descriptors::Descriptors;
use crate::encryption;
use crate::engines::Registry;
use crate::events::{self, AskedToEnd, Event, Recovering, failure_handler};
use crate::http::Http;
use crate::key_file::ClusterAuthConfig;
use crate::members::{CopySettings, Members};
use crate::net::{CommandService, Limits, Listeners, Pool, Tls};
use crate::reasons::reasons;
use crate::settings::{own_host, settings};
use crate::start_lines::{log_connections_max, log_encryption, log_recovery, log_start, start_warnings, with_advice};
use crate::{announcement, daemon, data_directory, engines};
use anyhow::anyhow;
use auth::ClusterAuth;
use bson::{Document, doc};
use codec::Codec;
use commands::audit::Audit;
use commands::logger::{Destination, LogId, Logger, id};
use commands::{ReplicaSet, TransportSecurity};
use oplog::{EngineAhead, Log, LogError, LogMode, LogOptions};
use spill::SpillSpace;
use std::collections::HashMap;
use std::io::{IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::Duration;
use storage::{RecoveryProgress, Storage, StorageError, StorageOptions};
use vfs::{Env, FileSystem, RealFs, SystemClock, SystemRandom};

/// Exit codes, as MongoDB's scripts know them.
mod exit {
    /// Log or engine stopped for good.
    pub const ABRUPT: u8 = 14;
    /// A listening socket could not be set up.
    pub const NET: u8 = 48;
    /// The key command did not bring a key.
    pub const KEY: u8 = 75;
    /// Anything else that keeps the server from starting.
    pub const START: u8 = 100;
}

/// How long connections have to finish at the end.
const END_PATIENCE: Duration = Duration::from_secs(10);
/// How often the main thread looks after things.
const TICK: Duration = Duration::from_secs(1);

/// Why the server did not start.
struct StartError {
    code: u8,
    error: anyhow::Error,
}

impl<E: Into<anyhow::Error>> From<E> for StartError {
    fn from(error: E) -> Self {
        let error: anyhow::Error = error.into();
        let code = match error.is::<encryption::KeyCommandFailed>() {
            true => exit::KEY,
            false => exit::START,
        };
        Self { code, error }
    }
}

/// Serves until told to stop, with one of these engines.
pub fn run(config: &Config, argv: Vec<String>, engines: &Registry) -> ExitCode {
    let env = Env {
        fs: Arc::new(RealFs::new()),
        clock: Arc::new(SystemClock::new()),
        random: Arc::new(SystemRandom::new()),
    };
    let mut log = config.log.clone();
    if log.destination == Destination::Stdout && std::io::stdout().is_terminal() {
        log.destination = Destination::Terminal;
    }
    let logger = match Logger::new(env.clock.clone(), &log) {
        Ok(logger) => logger,
        Err(error) => {
            let path = match &config.log.destination {
                Destination::File { path, .. } => path.display().to_string(),
                _ => String::new(),
            };
            let _ = writeln!(std::io::stderr(), "Failed to open log file {path}: {error}");
            return ExitCode::from(exit::START);
        }
    };
    for (component, level) in &config.log_components {
        logger.set_verbosity(*component, Some(*level));
    }
    log_panics(logger.clone());
    let code =
        run_until_told(config.clone(), argv, &env, &logger, engines).unwrap_or_else(|StartError { code, error }| {
            let is_asked = error.is::<AskedToEnd>();
            let error = reasons(&error);
            if is_asked {
                let message = "Shutting down in an orderly way, before anybody was served";
                logger.log(id::ORDERLY_SHUTDOWN, "main", message, doc! { "reason": error });
                return 0;
            }
            let attributes = doc! { "error": &error };
            logger.log(
                id::START_FAILED,
                "initandlisten",
                "Error during startup, terminating",
                attributes,
            );
            if config.log.destination != Destination::Stdout {
                let _ = writeln!(std::io::stderr(), "{error}");
            }
            code
        });
    logger.log(
        id::SHUTTING_DOWN,
        "main",
        "Shutting down",
        doc! { "exitCode": i32::from(code) },
    );
    logger.flush();
    ExitCode::from(code)
}

/// Serves, and starts anew when a copy of another member's data is to take the place of this server's.
fn run_until_told(
    mut config: Config,
    argv: Vec<String>,
    env: &Env,
    logger: &Arc<Logger>,
    registry: &Registry,
) -> Result<u8, StartError> {
    let recovering = Recovering::default();
    let (sender, events) = events::listen(logger.clone(), recovering.clone())?;
    let mut is_first = true;
    loop {
        let running = Running::start(
            &config,
            argv.clone(),
            env.clone(),
            logger,
            (&sender, &recovering),
            registry,
        )?;
        if is_first && daemon::is_child() {
            daemon::ready();
        }
        is_first = false;
        // Other members know it by the port that it has.
        config.net.endpoints.port = running.port;
        if let Some((http, running)) = config.net.http.as_mut().zip(running.serving.http.as_ref()) {
            http.port = running.port();
        }
        match running.wait(&events) {
            Ended::ForGood(code) => return Ok(code),
            Ended::ToStartAnew => {}
        }
    }
}

/// How a server that served has ended.
enum Ended {
    /// With this exit code.
    ForGood(u8),
    /// In an orderly way, to be started again.
    ToStartAnew,
}

/// A panic is a bug: it goes to the log, where the operator looks.
fn log_panics(logger: Arc<Logger>) {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        logger.log(id::PANIC, "panic", "Panic", doc! { "message": panic.to_string() });
        before(panic);
    }));
}

/// What steps 5 to 7 bring into being.
struct Serving {
    server: Arc<commands::Server>,
    members: Option<Arc<Members>>,
    pool: Arc<Pool<CommandService>>,
    listeners: Listeners,
    http: Option<Http>,
    /// Goes last.
    announcement: Announcement,
}

/// What was read and reckoned before anything was made.
struct Prepared {
    descriptors: Descriptors,
    audit: Option<Arc<Audit>>,
    tls: Option<Arc<Tls>>,
    cluster_auth: Option<ClusterAuth>,
}

/// A server that serves.
struct Running {
    logger: Arc<Logger>,
    directory: DataDirectory,
    storage: Arc<Storage>,
    serving: Serving,
    port: u16,
    /// The process whose end is this one's, too.
    parent: Option<rustix::process::Pid>,
}

impl Running {
    fn start(
        config: &Config,
        argv: Vec<String>,
        env: Env,
        logger: &Arc<Logger>,
        (events, recovering): (&Sender<Event>, &Recovering),
        registry: &Registry,
    ) -> Result<Self, StartError> {
        // At once: who asks later may be told of the process that inherits the orphans.
        let parent = rustix::process::getppid().filter(|_| config.stops_with_parent);
        // Before anything is made: what is wrong with them is the user's to mend.
        commands::check_parameters(&config.parameters).map_err(|reason| anyhow!(reason))?;
        let audit = config
            .audit
            .as_ref()
            .map(|options| Audit::open(options, &env))
            .transpose();
        let audit = audit.map_err(|reason| anyhow!(reason))?.map(Arc::new);
        let tls = config.net.tls.clone().map(Tls::load).transpose();
        let tls = tls.map_err(|reason| anyhow!("TLS: {reason}"))?;
        let cluster_auth = config.cluster_auth.as_ref().map(ClusterAuthConfig::load).transpose();
        let cluster_auth = cluster_auth.map_err(|reason| anyhow!(reason))?;
        check_own_name(cluster_auth.as_ref(), tls.as_deref()).map_err(|reason| anyhow!(reason))?;
        let descriptors = Descriptors::raise();
        let name = engine_name(config, &env, registry)?;
        let master = encryption::master_key(config, registry, name)?;
        log_start(config, name, logger);
        let wanted = Metadata {
            engine: name.to_owned(),
            directory_per_db: config.storage.directory_per_db,
        };
        let directory = DataDirectory::open(&*env.fs, &config.storage.db_path, &wanted, master.as_ref())?;
        drop(master);
        let env = directory.env(&env);
        log_encryption(directory.keys.as_deref(), logger);
        let memory_bytes = crate::memory::bytes(&*env.fs);
        let mut unwise = engines::warnings(name, config, memory_bytes);
        let probe = config.storage.db_path.join(data_directory::LOCK_FILE);
        unwise.extend(engines::direct_io_warning(name, &config.storage, &*env.fs, &probe));
        unwise.extend(crate::start_lines::container_warning());
        start_warnings(config, name, &unwise, descriptors.limit, directory.unclean, logger);
        log_connections_max(config, descriptors, logger);
        let instance = match &config.replica_set {
            Some(_) => match directory.instance(&*env.fs, &*env.random) {
                Ok(instance) => Some(instance),
                Err(error) => {
                    if !directory.unclean {
                        let _ = directory.close();
                    }
                    return Err(error.into());
                }
            },
            None => None,
        };
        let opening = Opening {
            config,
            registry,
            engine: name,
            env: &env,
            directory: &directory,
            instance,
            forced: match instance {
                Some(_) => directory.forced_configuration(&*env.fs)?,
                None => None,
            },
        };
        let opened = open_storage(&opening, logger, events, recovering);
        recovering.set(false, logger);
        let storage = match opened {
            Ok(storage) => storage,
            Err(error) => {
                if !directory.unclean {
                    let _ = directory.close();
                }
                return Err(error);
            }
        };
        let prepared = Prepared {
            descriptors,
            audit,
            tls,
            cluster_auth,
        };
        let is_wanted = recovering.check().map_err(StartError::from);
        match is_wanted.and_then(|()| Self::serve(&opening, argv, logger, storage.clone(), events, prepared)) {
            Ok(serving) => {
                let port = serving.listeners.port();
                Ok(Self {
                    logger: logger.clone(),
                    directory,
                    storage,
                    serving,
                    port,
                    parent,
                })
            }
            Err(error) => {
                if storage.close(true).is_ok() {
                    let _ = directory.close();
                }
                Err(error)
            }
        }
    }

    /// Steps 5 to 7.
    fn serve(
        opening: &Opening<'_>,
        argv: Vec<String>,
        logger: &Arc<Logger>,
        storage: Arc<Storage>,
        events: &Sender<Event>,
        prepared: Prepared,
    ) -> Result<Serving, StartError> {
        let (config, env) = (opening.config, opening.env.clone());
        let net = |error: std::io::Error| StartError {
            code: exit::NET,
            error: error.into(),
        };
        let mut listeners = Listeners::bind(&config.net.endpoints).map_err(net)?;
        let page = Http::bind(&config.net).map_err(net)?;
        let mut settings = settings(
            (config, opening.registry),
            argv,
            listeners.port(),
            storage.engine().info().name,
            crate::memory::bytes(&*env.fs),
        );
        let set = config
            .replica_set
            .as_ref()
            .zip(opening.instance)
            .map(|(set, instance)| {
                let host = own_host(&config.net.endpoints.bind);
                let own = (&*host, listeners.port());
                Arc::new(ReplicaSet::new(set.name.clone(), set.initiates, own, instance))
            });
        settings.replica_set = set.clone();
        settings.encryption = opening
            .directory
            .keys
            .as_deref()
            .map(|keys| encryption::status(config, keys));
        settings.spill_space = Some(SpillSpace::open(env.fs.clone(), opening.directory.temporary())?);
        let Prepared { descriptors, tls, .. } = prepared;
        let connections_max = descriptors.connections_max(config.net.connections_max);
        settings.audit = prepared.audit;
        settings.cluster_auth = prepared.cluster_auth;
        settings.connections_max = connections_max;
        settings.tls = tls.clone().map(|tls| tls as Arc<dyn TransportSecurity>);
        let tls_mode = settings.tls.as_ref().map_or("off", |tls| tls.mode());
        let clock = env.clock.clone();
        let server = commands::Server::new(env, storage, logger.clone(), settings).map_err(|reason| anyhow!(reason))?;
        // With others this server's word is not enough: who is elected writes it.
        if let Err(reason) = if server.has_others() {
            Ok(())
        } else {
            server.begin_to_write()
        } {
            // A full disk must not keep a server from answering reads.
            logger.log(
                id::VERSION_NOT_WRITTEN,
                "initandlisten",
                "The version could not be written to admin.system.version",
                doc! { "error": reason },
            );
        }
        let members = match &set {
            Some(set) => {
                let copying = CopySettings {
                    config: config.clone(),
                    registry: opening.registry.clone(),
                    engine: opening.engine,
                    place: opening.directory.copy_place(opening.engine),
                    data: config.storage.db_path.clone(),
                };
                Some(Members::start(&server, set, copying, events.clone())?)
            }
            None => None,
        };
        if let Err(reason) = server.join_set(opening.forced.as_ref()) {
            if let Some(members) = members {
                members.stop();
            }
            return Err(anyhow!("the replica set cannot be joined: {reason}").into());
        }
        if opening.forced.is_some() {
            opening.directory.forget_forced_configuration(&*server.env.fs)?;
        }
        let asked = events.clone();
        let stop = move || {
            let _ = asked.send(Event::Stop("shutdown command".to_owned()));
        };
        let service = CommandService::new(server.clone(), Box::new(stop));
        let limits = Limits {
            connections_max: connections_max as usize,
            descriptor_number_max: descriptors.connection_number_max(),
        };
        let begin = || -> Result<_, StartError> {
            let pool = Pool::new(service, logger.clone(), clock, limits, tls.clone())?;
            // Before anybody is served: what fails here takes nobody's connection away.
            let announcement = Announcement::make(config, listeners.port())?;
            for address in listeners.addresses() {
                logger.log(id::LISTENING, "listener", "Listening on", doc! { "address": address });
            }
            let mut http = page.map(|page| page.start(&server, tls)).transpose().map_err(net)?;
            if let Err(error) = listeners.start(pool.clone(), logger.clone()) {
                if let Some(http) = &mut http {
                    http.stop(END_PATIENCE);
                }
                return Err(error.into());
            }
            Ok((pool, announcement, http))
        };
        let (pool, announcement, http) = begin().inspect_err(|_| {
            if let Some(members) = &members {
                members.stop();
            }
        })?;
        let ready = doc! { "port": i32::from(listeners.port()), "ssl": tls_mode };
        logger.log(
            id::WAITING_FOR_CONNECTIONS,
            "listener",
            "Waiting for connections",
            ready,
        );
        if logger.is_watched() {
            let message = format!(
                "Connect with: mongosh {}",
                announcement::address_for_clients(config, listeners.port())
            );
            logger.log(id::HOW_TO_CONNECT, "listener", &message, doc! {});
        }
        Ok(Serving {
            server,
            members,
            pool,
            listeners,
            http,
            announcement,
        })
    }

    /// Looks after things until it is time to end.
    fn wait(self, events: &Receiver<Event>) -> Ended {
        let mut seen = HashMap::new();
        loop {
            match events.recv_timeout(TICK) {
                Err(RecvTimeoutError::Timeout)
                    if self.parent.is_some() && rustix::process::getppid() != self.parent =>
                {
                    return Ended::ForGood(self.end("the process that started this one has ended"));
                }
                Err(RecvTimeoutError::Timeout) => {
                    self.serving.server.tick();
                    self.serving.pool.find_gone(&mut seen);
                }
                Ok(Event::RotateLog) => {
                    // One that fails does not keep the other.
                    let rotated = [self.logger.rotate(), self.serving.server.rotate_audit()];
                    for error in rotated.into_iter().filter_map(Result::err) {
                        let attributes = doc! { "error": error.to_string() };
                        self.logger
                            .log(id::LOG_ROTATION_FAILED, "main", "Log rotation failed", attributes);
                    }
                }
                Ok(Event::Failed) => return Ended::ForGood(exit::ABRUPT),
                Ok(Event::Stop(reason)) => return Ended::ForGood(self.end(&reason)),
                Ok(Event::Restart) => {
                    let engine = Arc::downgrade(self.storage.engine());
                    let clock = self.serving.server.env.clock.clone();
                    let code = self.end("a copy of another member's data is to be used");
                    // An engine may keep its files to itself for as long as anybody has it.
                    let until = clock.monotonic() + END_PATIENCE;
                    while engine.strong_count() > 0 && clock.monotonic() < until {
                        #[expect(clippy::disallowed_methods, reason = "there is nothing to be woken by")]
                        std::thread::sleep(Duration::from_millis(1));
                    }
                    return match code {
                        0 => Ended::ToStartAnew,
                        code => Ended::ForGood(code),
                    };
                }
                Err(RecvTimeoutError::Disconnected) => return Ended::ForGood(self.end("no one left to ask")),
            }
        }
    }

    fn end(mut self, reason: &str) -> u8 {
        self.logger.log(
            id::ORDERLY_SHUTDOWN,
            "main",
            "Shutting down in an orderly way",
            doc! { "reason": reason },
        );
        self.serving.server.release_held();
        // Another member leads before this one is gone, where there is one that can.
        self.serving.server.resign();
        self.serving.listeners.stop();
        self.serving.server.begin_shutdown();
        // What came in between would hold up the end of the storage.
        self.serving.server.release_held();
        if let Some(http) = &mut self.serving.http {
            http.stop(END_PATIENCE);
        }
        if let Some(members) = &self.serving.members {
            members.stop();
        }
        let left = self.serving.pool.end(END_PATIENCE);
        if left > 0 {
            let attributes = doc! { "connections": left as i64 };
            self.logger.log(
                id::CONNECTIONS_DID_NOT_END,
                "main",
                "Connections did not end in time",
                attributes,
            );
        }
        self.serving.server.audit_end(None);
        let mut code = 0;
        let clock = self.serving.server.env.clock.clone();
        let started = clock.monotonic();
        self.logger.log(
            id::STORAGE_CLOSES,
            "main",
            "Closing the storage with a last checkpoint",
            doc! {},
        );
        match self.storage.close(true) {
            Ok(()) => {
                let took = clock.monotonic().saturating_sub(started).as_millis() as i64;
                self.logger.log(
                    id::STORAGE_CLOSED,
                    "main",
                    "The storage is closed",
                    doc! { "durationMillis": took },
                );
                if let Err(error) = self.directory.close() {
                    let attributes = doc! { "error": error.to_string() };
                    self.logger.log(
                        id::LOCK_FILE_NOT_CLEARED,
                        "main",
                        "Cannot clear the lock file",
                        attributes,
                    );
                }
            }
            Err(error) => {
                let attributes = doc! { "error": error.to_string() };
                self.logger.log(
                    id::STORAGE_NOT_CLOSED_CLEANLY,
                    "main",
                    "The storage did not close cleanly",
                    attributes,
                );
                code = exit::ABRUPT;
            }
        }
        self.serving.announcement.withdraw();
        code
    }
}

/// Members know each other's certificates by their organisation: without one, nobody would be a member.
fn check_own_name(auth: Option<&ClusterAuth>, tls: Option<&Tls>) -> Result<(), String> {
    if !auth.is_some_and(|auth| auth.mode.takes_certificates()) {
        return Ok(());
    }
    let name = tls.and_then(TransportSecurity::own_name);
    match name.is_some_and(|name| name.is_of_cluster(&name)) {
        true => Ok(()),
        false => Err(
            "security.clusterAuthMode: the server's certificate has no O, OU or DC, by which members know each other"
                .to_owned(),
        ),
    }
}

/// The engine asked for; without one, that of the data in the directory.
pub(crate) fn engine_name(config: &Config, env: &Env, engines: &Registry) -> anyhow::Result<&'static str> {
    let found = match config.storage.engine {
        Some(_) => None,
        None => DataDirectory::engine_of(&*env.fs, &config.storage.db_path)?,
    };
    let given = config.storage.engine.as_deref().or(found.as_deref());
    engines.choose(given).map_err(|reason| anyhow!(reason))
}

/// What is opened.
struct Opening<'o> {
    config: &'o Config,
    registry: &'o Registry,
    engine: &'static str,
    env: &'o Env,
    directory: &'o DataDirectory,
    /// Of a member of a replica set: the directory's number.
    instance: Option<[u8; 16]>,
    /// A configuration of the set that somebody has forced.
    forced: Option<Document>,
}

fn open_storage(
    opening: &Opening<'_>,
    logger: &Arc<Logger>,
    events: &Sender<Event>,
    recovering: &Recovering,
) -> Result<Arc<Storage>, StartError> {
    let Opening {
        config,
        registry,
        engine,
        env,
        directory,
        instance,
        ref forced,
    } = *opening;
    recovering.check()?;
    let started = env.clock.monotonic();
    let say = |id: LogId, message: &str, attributes| {
        logger.log(id, "initandlisten", message, attributes);
    };
    say(
        id::ENGINE_OPENS,
        "Opening the storage engine",
        doc! { "storageEngine": engine },
    );
    check_engine_files(directory, &*env.fs, engine)?;
    let opened = registry.open(engine, env, &directory.engine(engine), &config.storage)?;
    recovering.check()?;
    let took = env.clock.monotonic().saturating_sub(started);
    let attributes = doc! { "durationMillis": took.as_millis() as i64, "durable": opened.durable_seq().0 as i64 };
    say(id::ENGINE_OPEN, "The storage engine is open", attributes);
    let (mut log, mut options) = parts_of(config, engine, directory)?;
    options.instance = instance;
    options.takes_all = forced.is_some();
    if let Some(set) = &config.replica_set {
        let say = |id: LogId, message: &str, why| logger.log(id, "initandlisten", message, why);
        match directory.keep_oplog_retention(&*env.fs, set.oplog, log.retention) {
            Ok(None) => {}
            Ok(Some(aside)) => say(
                id::RETENTION_DAMAGED,
                "What was written down of how much history is kept was damaged and is put aside; a size and a time that were set are chosen anew",
                doc! { "aside": aside.display().to_string(), "bytes": log.retention.bytes as i64 },
            ),
            Err(error) => say(
                id::RETENTION_NOT_WRITTEN,
                "How much history is kept could not be written down, and is chosen anew at the next start",
                doc! { "error": error.to_string() },
            ),
        }
        if let Some(room) = directory.oplog_room_below(&*env.fs, log.retention) {
            say(
                id::HISTORY_EXCEEDS_DISK,
                "The log's disk has less room than history is to have; when it is full, the oldest history goes",
                doc! { "bytes": log.retention.bytes as i64, "room": room as i64 },
            );
        }
    }
    if let Some(bytes) = engines::log_buffer_bytes(engine, &config.storage, crate::memory::bytes(&*env.fs)) {
        log.buffer_bytes_max = bytes;
    }
    if let Some(bytes) = engines::cache_bytes(engine, &config.storage, crate::memory::bytes(&*env.fs)) {
        options.unwritten_bytes_max = bytes;
    }
    let fail = failure_handler(logger.clone(), events.clone());
    let of_log = fail.clone();
    log.on_failure = Some(Arc::new(move |error: &LogError| of_log(&error.to_string())));
    let with_advice = |error| with_advice(error, (engine, directory.engine(engine)));
    let log = Log::open(env, log, opened.durable_seq()).map_err(with_advice)?;
    for damage in log.damages() {
        let message = "The log is damaged where it is not needed for the start; what history and other members can read begins behind that place";
        let attributes = doc! { "damage": damage.to_string() };
        logger.log(id::LOG_DAMAGED, "initandlisten", message, attributes);
    }
    let (progress, clock, started) = (logger.clone(), env.clock.clone(), env.clock.monotonic());
    let (recovering, unclean) = (recovering.clone(), directory.unclean);
    options.on_progress = Some(Arc::new(move |step| {
        // A set's member that ended in an orderly way may replay, too: its lock file must not be left as by a crash.
        match step {
            RecoveryProgress::Started { durable, last } => recovering.set(unclean && last > durable, &progress),
            RecoveryProgress::Finished { .. } => recovering.set(false, &progress),
            _ => {}
        }
        log_recovery(&progress, step, clock.monotonic().saturating_sub(started));
    }));
    let failures = logger.clone();
    options.on_checkpoint_failure = Some(Arc::new(move |error| {
        let attributes = doc! { "error": error.to_string() };
        let message = "A checkpoint could not be taken and will be tried again; the log keeps what it would have held";
        failures.log(id::CHECKPOINT_FAILED, "checkpointer", message, attributes);
    }));
    let (waits, failures, changes) = (logger.clone(), logger.clone(), logger.clone());
    options.on_apply_wait = Some(Arc::new(move |error| {
        let message = "A change of another member waits for files and is tried again; nothing after it is applied";
        let why = doc! { "error": error.to_string() };
        waits.log(id::APPLYING_WAITS, "follower", message, why);
    }));
    crate::start_lines::tell_of_log(&mut options, logger);
    options.on_ttl_failure = Some(Arc::new(move |namespace, error| {
        let attributes = doc! { "namespace": namespace.as_str(), "error": error.to_string() };
        let message = "Expired documents could not be read and stay; the pass goes on";
        failures.log(id::EXPIRED_DOCUMENTS_UNREADABLE, "ttl-monitor", message, attributes);
    }));
    options.on_catalog_change = Some(Arc::new(move |change| {
        commands::log_unasked(&changes, "storage", change);
    }));
    let storage = Storage::open(env.clone(), opened, Arc::new(log), options).map_err(|error| match error {
        StorageError::Log(error) => with_advice(error),
        other => other.into(),
    })?;
    directory.note_opened(&*env.fs, config.storage.journal)?;
    let took = env.clock.monotonic().saturating_sub(started);
    let collections = storage.catalog().all_collections().len();
    let attributes = doc! { "durationMillis": took.as_millis() as i64, "collections": collections as i64 };
    say(
        id::COLLECTIONS_KNOWN,
        "The collections are known and up to date",
        attributes,
    );
    storage.subscribe_failure(Box::new(move |reason| fail(reason)));
    Ok(storage)
}

/// Refuses a directory in which there is nothing where the engine's files should be.
pub(crate) fn check_engine_files(
    directory: &DataDirectory,
    fs: &dyn FileSystem,
    engine: &str,
) -> Result<(), DataDirectoryError> {
    match engines::leaves_files(engine) && directory.lacks_engine(fs, engine)? {
        true => Err(engine_missing(engine, directory.engine(engine))),
        false => Ok(()),
    }
}

pub(crate) fn engine_missing(engine: &str, path: PathBuf) -> DataDirectoryError {
    DataDirectoryError::EngineMissing {
        path,
        engine: engine.to_owned(),
    }
}

/// Options of log and storage as configured.
pub(crate) fn storage_parts(
    config: &Config,
    engine: &str,
    journal: &Path,
    position_file: &Path,
) -> anyhow::Result<(LogOptions, StorageOptions)> {
    let mut log = LogOptions::new(journal);
    log.position_file = Some(position_file.to_owned());
    log.codec = config.storage.journal_compressor.parse::<Codec>()?;
    log.commit_interval = Duration::from_millis(config.storage.commit_interval_ms);
    log.mode = if config.storage.journal {
        LogMode::On
    } else {
        LogMode::Off
    };
    if let Some(set) = &config.replica_set {
        log.retention = set.oplog.choose(journal);
    }
    let mut options = StorageOptions::new(Arc::new(query::matcher::MatcherCompiler));
    options.journal = config.storage.journal;
    options.collection_compressor = engines::collection_compressor(engine, &config.storage);
    options.sync_period = Duration::from_secs(config.storage.sync_period_s);
    Ok((log, options))
}

/// As [`storage_parts`], of a data directory.
pub(crate) fn parts_of(
    config: &Config,
    engine: &str,
    directory: &DataDirectory,
) -> anyhow::Result<(LogOptions, StorageOptions)> {
    let parts = storage_parts(config, engine, &directory.journal(), &directory.journal_position());
    let (mut log, options) = parts?;
    if let Some(set) = &config.replica_set {
        log.retention = directory.oplog_retention(&RealFs::new(), set.oplog)?;
    }
    log.engine_ahead = match directory.needs_log {
        true => EngineAhead::Refuse,
        // Ended cleanly, or without a log: the engine has everything.
        false => EngineAhead::BeginBehind,
    };
    Ok((log, options))
}
