//! `tenon`: the operator's tool. See `--help`, `docs/tools.md`, `docs/dump.md` and `docs/bench.md`.

#![allow(
    clippy::disallowed_methods,
    reason = "a client program: time and files are the machine's own"
)]

mod backup;
mod bench_command;
mod compare;
mod connect;
mod dump;
mod engine_change;
mod export;
mod import;
mod invalid_utf8;
mod key;
mod live;
mod log;
mod member;
mod migrate;
mod output;
mod point;
mod rescue;
mod screen;
mod show;
mod stat;
mod stress;
mod top;
mod verify;

use clap::{Parser, Subcommand};
use std::process::ExitCode;
use std::sync::LazyLock;

#[derive(Parser)]
#[command(
    name = "tenon",
    version,
    long_version = LONG_VERSION.as_str(),
    about = "Moves, watches, checks and measures the data of document database servers"
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
#[allow(clippy::large_enum_variant, reason = "there is one value, made once")]
enum Command {
    /// Measure engines and configurations by a workload
    Bench(bench_command::BenchCommand),
    /// Write and read under every durability, and see what is lost or torn
    Stress(stress::StressArguments),
    Backup(backup::BackupCommand),
    Dump(dump::DumpCommand),
    Restore(dump::RestoreCommand),
    Bson(dump::BsonCommand),
    Export(export::ExportCommand),
    Import(Box<import::ImportCommand>),
    Stat(stat::StatCommand),
    Top(top::TopCommand),
    Verify(verify::VerifyCommand),
    Log(log::LogCommand),
    Migrate(migrate::MigrateCommand),
    Rescue(Box<rescue::RescueCommand>),
    EngineChange(engine_change::EngineChangeCommand),
}

/// The version, and the engines whose directories `tenon verify` can read.
static LONG_VERSION: LazyLock<String> = LazyLock::new(|| {
    let engines = server::engines::NAMES.join(", ");
    format!("{}\nStorage engines: {engines}", env!("CARGO_PKG_VERSION"))
});

fn main() -> ExitCode {
    // Copies of data are the owner's alone, as the data are.
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
    let result = match Cli::parse().command {
        Command::Bench(command) => command.run(),
        Command::Stress(arguments) => stress::run(&arguments),
        Command::Backup(command) => command.run(),
        Command::Dump(command) => command.run(),
        Command::Restore(command) => command.run(),
        Command::Bson(command) => command.run(),
        Command::Export(command) => command.run(),
        Command::Import(command) => command.run(),
        Command::Stat(command) => command.run(),
        Command::Top(command) => command.run(),
        Command::Verify(command) => Ok(command.run()),
        Command::Log(command) => command.run(),
        Command::Migrate(command) => command.run(),
        Command::Rescue(command) => Ok(command.run()),
        Command::EngineChange(command) => command.run(),
    };
    result.unwrap_or_else(|error| {
        eprintln!("tenon: {}", screen::printable_lines(&server::reasons(&error)));
        ExitCode::FAILURE
    })
}
