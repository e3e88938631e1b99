//! `tenon bench`: reads the choices, measures, shows and writes what was found.

use crate::compare::CompareCommand;
use crate::output::{OutputArgs, command_line, say, table};
use crate::show::ShowCommand;
use anyhow::{Context as _, Result};
use bench::configuration::{MEMBERS_MAX, Setup, choose};
use bench::context::{Context, Options};
use bench::experiment::{self, Ended, Own, Target, data_directory};
use bench::interrupt::Interrupt;
use bench::limits::Wanted;
use bench::server::{Build, build_of};
use bench::workload::{Workload, book, iibench, linkbench, replica_set, scan, transactions, ycsb};
use bench::{procfs, subject};
use clap::{Args, Subcommand, ValueEnum};
use report::{Run, Session};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// See the module.
#[derive(Args, Debug)]
pub struct BenchCommand {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand, Debug)]
enum What {
    /// "MongoDB in Action", chapter 10: start-up, insert, shut-down, disk use, cold and cached reads
    Book {
        #[command(flatten)]
        book: BookArgs,
        #[command(flatten)]
        common: CommonArgs,
    },
    /// Facebook's social graph: a load, and ten operations in the published mix
    Linkbench {
        #[command(flatten)]
        linkbench: LinkbenchArgs,
        #[command(flatten)]
        common: CommonArgs,
    },
    /// Inserts into a collection with three secondary indexes, beside index queries
    Iibench {
        #[command(flatten)]
        iibench: IibenchArgs,
        #[command(flatten)]
        common: CommonArgs,
    },
    /// YCSB's core workloads A to F
    Ycsb {
        #[command(flatten)]
        ycsb: YcsbArgs,
        #[command(flatten)]
        common: CommonArgs,
    },
    /// Reading a whole collection, cold and cached, per compressor
    Scan {
        #[command(flatten)]
        scan: ScanArgs,
        #[command(flatten)]
        common: CommonArgs,
    },
    /// Single inserts beside updates of one document, on data four times the cache
    Hot {
        #[command(flatten)]
        common: CommonArgs,
    },
    /// Transactions of several documents: without conflicts, and of all clients on a few documents
    Transactions {
        #[command(flatten)]
        transactions: TransactionsArgs,
        #[command(flatten)]
        common: CommonArgs,
    },
    /// A replica set on this machine: writes to one and to three members, failovers, members that join
    ReplicaSet {
        #[command(flatten)]
        replica_set: ReplicaSetArgs,
        #[command(flatten)]
        common: CommonArgs,
    },
    /// book, linkbench, iibench, ycsb, hot and transactions in one session
    All {
        #[command(flatten)]
        book: BookArgs,
        #[command(flatten)]
        linkbench: LinkbenchArgs,
        #[command(flatten)]
        iibench: IibenchArgs,
        #[command(flatten)]
        ycsb: YcsbArgs,
        #[command(flatten)]
        transactions: TransactionsArgs,
        #[command(flatten)]
        common: CommonArgs,
    },
    /// Compare the results of two sessions
    Compare(CompareCommand),
    /// Make table, page, CSV or Markdown of results that are there
    Show(ShowCommand),
}

#[derive(Args, Clone, Debug)]
struct BookArgs {
    /// Loops of inserts, and full reads
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u64).range(1..=10_000), help_heading = "Workload book")]
    loops: u64,
    /// Leave the chapter's four configuration files out
    #[arg(long, help_heading = "Workload book")]
    engines_only: bool,
}

#[derive(Args, Clone, Debug)]
struct LinkbenchArgs {
    /// Sets of indexes to run with
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [IndexSet::Covering, IndexSet::Few], help_heading = "Workload linkbench")]
    indexes: Vec<IndexSet>,
    /// Run the queries again with little cache and memory
    #[arg(long, conflicts_with = "uri", help_heading = "Workload linkbench")]
    io_bound: bool,
}

#[derive(ValueEnum, Clone, Copy, Debug)]
enum IndexSet {
    /// LinkBenchX's: a seven-field index that holds the links' data
    Covering,
    /// The other port's: fewer and smaller, compound _ids
    Few,
}

#[derive(Args, Clone, Debug)]
struct IibenchArgs {
    /// Secondary indexes, 0 to 3
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(0..=3), help_heading = "Workload iibench")]
    secondary_indexes: u32,
    /// Clients that query while others insert
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=100_000), help_heading = "Workload iibench")]
    query_threads: u32,
    /// Characters of the text field
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=4096), help_heading = "Workload iibench")]
    text_length: u32,
    /// The inserts end after so many seconds, or when all documents are there; --duration by default
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=10_000_000), help_heading = "Workload iibench")]
    insert_seconds: Option<u64>,
}

#[derive(Args, Clone, Debug)]
struct YcsbArgs {
    /// Which of the workloads to run
    #[arg(long, default_value = "abcfde", help_heading = "Workload ycsb")]
    workloads: String,
    /// Writes after the load are answered when they are on disk: write concern { w: 1, j: true }
    #[arg(long, help_heading = "Workload ycsb")]
    journaled: bool,
}

#[derive(Args, Clone, Debug)]
struct ScanArgs {
    /// Compressors to try on engines that have the choice
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "none,snappy,zlib,zstd",
        conflicts_with = "uri",
        help_heading = "Workload scan"
    )]
    compressors: Vec<String>,
    /// Let the servers read so many megabytes a second from the disk, where control groups allow it
    #[arg(
        long,
        value_name = "MB",
        value_parser = clap::value_parser!(u64).range(1..=1_000_000),
        conflicts_with = "uri",
        help_heading = "Workload scan"
    )]
    disk_mb_per_second: Option<u64>,
}

#[derive(Args, Clone, Debug)]
struct TransactionsArgs {
    /// Documents that all clients want, in the phases with conflicts
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u64).range(1..=10_000), help_heading = "Workload transactions")]
    hot_documents: u64,
    /// Reads by _id of a transaction, before its updates
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=100), help_heading = "Workload transactions")]
    reads: u32,
    /// Updates of a transaction, each of another document
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=100), help_heading = "Workload transactions")]
    updates: u32,
    /// What clients do before they try an aborted transaction again; the phases with conflicts are run with each
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "exponential",
        help_heading = "Workload transactions"
    )]
    backoff: Vec<BackoffChoice>,
    /// Write concern of the commits
    #[arg(long, value_enum, default_value = "1", help_heading = "Workload transactions")]
    write_concern: WriteConcernChoice,
}

#[derive(ValueEnum, Clone, Copy, Debug)]
enum BackoffChoice {
    /// Wait as the drivers' specification says: a random time up to 5 ms, half as much more each time, 500 ms at most
    Exponential,
    /// Try again at once, as older drivers do
    None,
}

#[derive(ValueEnum, Clone, Copy, Debug)]
enum WriteConcernChoice {
    /// Answered when the primary has it
    #[value(name = "1")]
    One,
    /// Answered when it is on disk, on a set of one member
    Majority,
}

#[derive(Args, Clone, Debug)]
struct ReplicaSetArgs {
    /// What to measure
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_values_t = [PartChoice::Insert, PartChoice::Failover, PartChoice::InitialSync],
        help_heading = "Workload replica-set"
    )]
    phases: Vec<PartChoice>,
    /// Write concerns of the inserts, each with its own phases
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "1,majority",
        help_heading = "Workload replica-set"
    )]
    write_concerns: Vec<WriteConcernChoice>,
    /// Bytes of a document
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(64..=1_000_000), help_heading = "Workload replica-set")]
    document_bytes: u32,
    /// Milliseconds without a sign of the primary before another one is elected, each with its own phase
    #[arg(
        long,
        value_name = "MS",
        value_delimiter = ',',
        default_value = "10000,1000",
        value_parser = clap::value_parser!(u32).range(500..=600_000),
        help_heading = "Workload replica-set"
    )]
    election_timeouts: Vec<u32>,
    /// How often the primary is killed with each time-out, and steps down
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000), help_heading = "Workload replica-set")]
    failovers: u32,
}

#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
#[value(rename_all = "camelCase")]
enum PartChoice {
    /// Inserts with each write concern and number of clients
    Insert,
    /// The primary is killed, and steps down, under load
    Failover,
    /// A member without data joins
    InitialSync,
}

#[derive(Args, Clone, Debug)]
struct CommonArgs {
    /// Measure a server that is running: mongodb://host:port. Its database of the workload is dropped before and after;
    /// one that is there and was not kept by --keep is refused without --drop
    #[arg(
        long,
        conflicts_with_all = ["engines", "configs", "tenond", "directory", "cache", "memory", "members", "member_engines"],
        help_heading = "What is measured"
    )]
    uri: Option<String>,
    /// Engines of the build, each as ENGINE or ENGINE:COMPRESSOR; all of them by default
    #[arg(long, value_delimiter = ',', help_heading = "What is measured")]
    engines: Vec<String>,
    /// Configuration files
    #[arg(long, value_name = "FILE", num_args = 1.., help_heading = "What is measured")]
    configs: Vec<PathBuf>,
    /// Make a replica set of so many members of each configuration, all on this machine, and measure that
    #[arg(
        long,
        value_name = "N",
        value_parser = clap::value_parser!(u32).range(1..=MEMBERS_MAX as i64),
        conflicts_with = "memory",
        help_heading = "What is measured"
    )]
    members: Option<u32>,
    /// Measure one replica set whose members have these engines, each as ENGINE or ENGINE:COMPRESSOR
    #[arg(
        long,
        value_name = "ENGINES",
        value_delimiter = ',',
        conflicts_with_all = ["engines", "configs", "members", "memory"],
        help_heading = "What is measured"
    )]
    member_engines: Vec<String>,
    /// The server's program; by default the tenond beside this program
    #[arg(long, value_name = "PROGRAM", help_heading = "What is measured")]
    tenond: Option<PathBuf>,
    /// Make the data directories in this one
    #[arg(long, value_name = "DIR", help_heading = "What is measured")]
    directory: Option<PathBuf>,
    /// Keep the data: directories, or the databases of a running server
    #[arg(long, help_heading = "What is measured")]
    keep: bool,
    /// Drop a running server's database of the workload's name, whosever it is
    #[arg(long, requires = "uri", help_heading = "What is measured")]
    drop: bool,
    /// Cache of the engines in MiB
    #[arg(long, value_name = "MIB", value_parser = mebibytes(), help_heading = "What is measured")]
    cache: Option<u64>,
    /// Memory of each server in MiB, page cache included, where control groups allow it
    #[arg(long, value_name = "MIB", value_parser = mebibytes(), help_heading = "What is measured")]
    memory: Option<u64>,

    /// Size of the data; 1 is the workload's own
    #[arg(long, default_value_t = 1.0, help_heading = "Load")]
    scale: f64,
    /// Connections
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=100_000), help_heading = "Load")]
    clients: Option<u32>,
    /// Seconds of each timed phase
    #[arg(long, value_name = "SECONDS", help_heading = "Load")]
    duration: Option<f64>,
    /// Seconds before each timed phase that do not count
    #[arg(long, value_name = "SECONDS", default_value_t = 2.0, help_heading = "Load")]
    warm_up: f64,
    /// Decides all random choices
    #[arg(long, default_value_t = 1, help_heading = "Load")]
    seed: u64,
    /// Operations per second, due by the clock (open loop); without it each client goes on when it was answered
    #[arg(long, help_heading = "Load")]
    rate: Option<f64>,
    /// Measure everything so often, the configurations in turns, there and back: 2, without which there is no verdict,
    /// or 1 with --uri, where there is nothing to compare
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100), help_heading = "Load")]
    repeat: Option<u32>,
    /// Threads of the load generator; half the processors by default
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1024), help_heading = "Load")]
    threads: Option<u32>,

    #[command(flatten)]
    output: OutputArgs,
}

/// Files that are open beside the clients' connections.
const FILES_BESIDE: u64 = 100;

/// Up to 16 TiB: more is a slip, and would overflow as bytes.
fn mebibytes() -> clap::builder::RangedU64ValueParser {
    clap::value_parser!(u64).range(1..=1 << 24)
}

impl BenchCommand {
    /// Measures or compares.
    pub fn run(self) -> Result<ExitCode> {
        let (workloads, common, disk): (Vec<Workload>, CommonArgs, Option<u64>) = match self.what {
            What::Compare(command) => return command.run(),
            What::Show(command) => return command.run(),
            What::Book { book, common } => (vec![book.workload()], common, None),
            What::Linkbench { linkbench, common } => (vec![linkbench.workload()], common, None),
            What::Iibench { iibench, common } => (vec![iibench.workload()], common, None),
            What::Ycsb { ycsb, common } => (vec![ycsb.workload()], common, None),
            What::Transactions { transactions, common } => (vec![transactions.workload(false)], common, None),
            What::ReplicaSet { replica_set, common } => {
                anyhow::ensure!(
                    common.uri.is_none(),
                    "replica-set starts and kills the members of its sets: leave --uri out"
                );
                anyhow::ensure!(
                    common.memory.is_none(),
                    "a limit on memory is for one server, not for the members of a set: leave --memory out"
                );
                (vec![replica_set.workload(&common)], common, None)
            }
            What::Hot { common } => (vec![Workload::Hot], common, None),
            What::Scan { scan, common } => {
                let disk = scan.disk_mb_per_second;
                (vec![scan.workload()], common, disk)
            }
            What::All {
                book,
                linkbench,
                iibench,
                ycsb,
                transactions,
                common,
            } => {
                let all = vec![
                    book.workload(),
                    linkbench.workload(),
                    iibench.workload(),
                    ycsb.workload(),
                    Workload::Hot,
                    transactions.workload(true),
                ];
                (all, common, None)
            }
        };
        common.measure(workloads, disk)
    }
}

impl BookArgs {
    fn workload(&self) -> Workload {
        // The chapter's files are filled in when the server's build is known.
        Workload::Book(book::Choices {
            loops: self.loops,
            besides: (!self.engines_only).then(Vec::new),
        })
    }
}

impl LinkbenchArgs {
    fn workload(&self) -> Workload {
        let set = |indexes: &IndexSet| match indexes {
            IndexSet::Covering => linkbench::Indexes::Covering,
            IndexSet::Few => linkbench::Indexes::Few,
        };
        Workload::Linkbench(linkbench::Choices {
            indexes: self.indexes.iter().map(set).collect(),
            io_bound: self.io_bound,
        })
    }
}

impl IibenchArgs {
    fn workload(&self) -> Workload {
        Workload::Iibench(iibench::Choices {
            indexes: self.secondary_indexes,
            query_threads: self.query_threads,
            text_length: self.text_length as usize,
            duration: self.insert_seconds.map(Duration::from_secs),
        })
    }
}

impl YcsbArgs {
    fn workload(&self) -> Workload {
        Workload::Ycsb(ycsb::Choices {
            workloads: self.workloads.clone(),
            journaled: self.journaled,
        })
    }
}

impl TransactionsArgs {
    /// `may_be_skipped`: among others, on a server that has no transactions.
    fn workload(&self, may_be_skipped: bool) -> Workload {
        let backoff = |choice: &BackoffChoice| match choice {
            BackoffChoice::Exponential => transactions::Backoff::Exponential,
            BackoffChoice::None => transactions::Backoff::None,
        };
        Workload::Transactions(transactions::Choices {
            hot_documents: self.hot_documents,
            reads: self.reads as usize,
            updates: self.updates as usize,
            backoffs: self.backoff.iter().map(backoff).collect(),
            write_concern: self.write_concern.concern(),
            may_be_skipped,
        })
    }
}

impl ReplicaSetArgs {
    /// Engines of members that join are filled in when the server's build is known.
    fn workload(&self, common: &CommonArgs) -> Workload {
        let part = |choice: &PartChoice| match choice {
            PartChoice::Insert => replica_set::Part::Insert,
            PartChoice::Failover => replica_set::Part::Failover,
            PartChoice::InitialSync => replica_set::Part::InitialSync,
        };
        let timeouts = self.election_timeouts.iter();
        Workload::ReplicaSet(replica_set::Choices {
            parts: self.phases.iter().map(part).collect(),
            write_concerns: self.write_concerns.iter().map(|choice| choice.concern()).collect(),
            document_bytes: self.document_bytes as usize,
            election_timeouts: timeouts.map(|ms| Duration::from_millis(u64::from(*ms))).collect(),
            failovers: self.failovers,
            members_chosen: common.are_sets(),
            joining: Vec::new(),
        })
    }
}

impl WriteConcernChoice {
    fn concern(self) -> transactions::WriteConcern {
        match self {
            WriteConcernChoice::One => transactions::WriteConcern::One,
            WriteConcernChoice::Majority => transactions::WriteConcern::Majority,
        }
    }
}

impl ScanArgs {
    fn workload(&self) -> Workload {
        Workload::Scan(scan::Choices {
            compressors: self.compressors.clone(),
        })
    }
}

impl CommonArgs {
    fn measure(self, mut workloads: Vec<Workload>, disk_mb: Option<u64>) -> Result<ExitCode> {
        self.check()?;
        for workload in &workloads {
            workload.check(&self.options())?;
            anyhow::ensure!(
                !self.are_sets() || !workload.restarts_its_server(),
                "{} stops and starts its server, which a replica set is not: leave --members out",
                workload.name()
            );
        }
        let interrupt = Interrupt::new();
        interrupt.install()?;
        let files = procfs::raise_open_files();
        let clients = u64::from(self.clients.unwrap_or(0));
        anyhow::ensure!(
            clients + FILES_BESIDE <= files,
            "{clients} clients need more open files than the {files} that are allowed here: see ulimit -n"
        );
        let target = self.target(&mut workloads, disk_mb)?;
        let directory = match &target {
            Target::Own(own) => Some(own.directory.path()),
            Target::Running { .. } => None,
        };
        let tool = format!("tenon {}", env!("CARGO_PKG_VERSION"));
        let session = Session::new(tool, procfs::now_ms(), command_line(), procfs::machine(directory));
        let mut context = Context::new(
            self.options(),
            session,
            interrupt,
            self.output.json.clone(),
            self.output.quiet,
        );
        let ended = experiment::run(&mut context, &workloads, &target);
        finish(target);
        say(&table(&context.session));
        self.output.write(&context)?;
        Ok(match ended? {
            Ended::Complete if context.session.runs.iter().any(is_faulty) => ExitCode::FAILURE,
            Ended::Complete => ExitCode::SUCCESS,
            Ended::SomeFailed => ExitCode::FAILURE,
            Ended::Interrupted => {
                eprintln!("==> stopped; what was measured is kept");
                ExitCode::from(130)
            }
        })
    }

    fn check(&self) -> Result<()> {
        self.output.check()?;
        anyhow::ensure!(
            self.scale > 0.0 && self.scale <= 1e6,
            "--scale is above 0 and at most 1000000"
        );
        let seconds = |value: f64| (0.0..=1e7).contains(&value);
        anyhow::ensure!(
            self.duration.is_none_or(|value| value >= 1.0 && seconds(value)),
            "--duration is from 1 to 10000000 seconds"
        );
        anyhow::ensure!(seconds(self.warm_up), "--warm-up is from 0 to 10000000 seconds");
        anyhow::ensure!(
            self.rate.is_none_or(|rate| (1e-6..=1e9).contains(&rate)),
            "--rate is from 0.000001 to 1000000000"
        );
        Ok(())
    }

    fn options(&self) -> Options {
        Options {
            scale: self.scale,
            clients: self.clients,
            duration: self.duration.map(Duration::from_secs_f64),
            warm_up: Duration::from_secs_f64(self.warm_up),
            seed: self.seed,
            rate: self.rate,
            threads: self.threads.map(|threads| threads as usize),
            cache_bytes: self.cache.map(|mebibytes| mebibytes << 20),
            repetitions: self.repeat.unwrap_or(if self.uri.is_some() { 1 } else { 2 }),
        }
    }

    fn target(&self, workloads: &mut [Workload], disk_mb: Option<u64>) -> Result<Target> {
        if let Some(uri) = &self.uri {
            subject::parse_uri(uri)?;
            return Ok(Target::Running {
                uri: uri.clone(),
                keep: self.keep,
                drop: self.drop,
            });
        }
        let program = self.program()?;
        let build = build_of(&program)?;
        let setups = self.setups(&build)?;
        let directory = data_directory(self.directory.as_deref())?;
        add_joining(workloads, &self.engines, &self.member_engines, &build)?;
        if self.engines.is_empty() && self.configs.is_empty() {
            add_shipped_files(workloads, directory.path(), &build)?;
        }
        Ok(Target::Own(Own {
            program,
            setups,
            directory,
            keep: self.keep,
            limits: Wanted {
                memory_bytes: self.memory.map(|mebibytes| mebibytes << 20),
                read_bytes_per_second: disk_mb.map(|megabytes| megabytes * 1_000_000),
            },
        }))
    }

    /// The configurations, as sets where those were asked for.
    fn setups(&self, build: &Build) -> Result<Vec<Setup>> {
        if !self.member_engines.is_empty() {
            let members = self.member_engines.iter().map(|name| Setup::parse(name));
            return Ok(vec![Setup::set_of(members.collect::<bench::Result<_>>()?)?]);
        }
        let setups = choose(&self.engines, &self.configs, build)?;
        match self.members {
            None => Ok(setups),
            Some(members) => {
                let set = |setup: Setup| Setup::set_of(vec![setup; members as usize]);
                Ok(setups.into_iter().map(set).collect::<bench::Result<_>>()?)
            }
        }
    }

    /// True when replica sets were asked for.
    fn are_sets(&self) -> bool {
        self.members.is_some() || !self.member_engines.is_empty()
    }

    fn program(&self) -> Result<PathBuf> {
        if let Some(program) = &self.tenond {
            anyhow::ensure!(program.is_file(), "{} is no program", program.display());
            return Ok(program.clone());
        }
        let own = std::env::current_exe().context("finding this program")?;
        let beside = own.with_file_name("tenond");
        anyhow::ensure!(
            beside.is_file(),
            "there is no {}: name the server's program with --tenond, or a running server with --uri",
            beside.display()
        );
        Ok(beside)
    }
}

/// Whether a run that came to its end fails all the same.
fn is_faulty(run: &Run) -> bool {
    run.collapsed().is_some() || run.faults() > 0
}

/// The engines that members join with: those that were chosen, else all of the build.
fn add_joining(workloads: &mut [Workload], engines: &[String], member_engines: &[String], build: &Build) -> Result<()> {
    for workload in workloads {
        if let Workload::ReplicaSet(choices) = workload {
            let mut named = [engines, member_engines].concat();
            named.sort();
            named.dedup();
            choices.joining = choose(&named, &[], build)?;
        }
    }
    Ok(())
}

/// Removes the directories of our own servers, or says where they are.
fn finish(target: Target) {
    if let Target::Own(own) = target
        && own.keep
    {
        eprintln!("==> the data is in {}", own.directory.keep().display());
    }
}

/// The chapter's configuration files, unless they were to be left out.
fn add_shipped_files(workloads: &mut [Workload], directory: &Path, build: &Build) -> Result<()> {
    for workload in workloads {
        if let Workload::Book(choices) = workload
            && let Some(besides) = &mut choices.besides
        {
            *besides = book::shipped(directory, build)?;
        }
    }
    Ok(())
}
