//! One file per database command, in one table.
//!
//! The server hands a parsed request and a buffer to [`Server::handle`]; exactly one reply document is appended. This
//! crate knows nothing of sockets, threads or message framing.

mod acknowledging;
mod api_versions;
mod applied_settings;
mod arguments;
mod attempt_metrics;
pub mod audit;
mod audited;
mod authentication;
mod authorization;
mod catalog_events;
mod changed_ahead;
mod client;
mod cluster_parameters;
mod command;
mod concern_waits;
mod concerns;
mod copies;
mod counter;
mod cursors;
mod default_concern_rules;
mod default_time;
mod definition;
mod dispatch;
mod error;
mod fail_points;
mod fsync_lock;
mod generic;
mod in_session;
mod internal_user;
mod invocation;
mod led;
mod lock_report;
pub mod logger;
mod member_login;
mod member_streams;
mod metrics;
mod named_collections;
mod not_built;
mod operation_entry;
mod own_call;
mod parameters;
mod parked;
mod parking;
mod pinned;
mod profiler;
mod query_settings;
mod replica_set;
mod reply;
mod request;
mod rights;
mod server;
mod session_cache;
mod settings;
mod shown_command;
mod spill_report;
mod stable_api;
mod standalone;
mod startup_log;
mod statement_watch;
mod table;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
mod throttle;
mod tickets;
mod transactions;
mod validation;

pub use catalog_events::log_unasked;
pub use client::{Client, Peer};
pub use command::parameters::check_parameters;
pub use command::{Upkeep, new_instance};
pub use copies::{
    CopiedFile, CopyBegin, CopyContent, CopyRows, FileLayout, ask, instance_binary, read_copy_begin, read_copy_piece,
    read_copy_rows,
};
pub use dispatch::Outcome;
pub use member_login::MemberLogin;
pub use profiler::ProfilingLevel;
pub use replica_set::{CopyProgress, MemberConnection, MemberConnections, MemberThreads, ReplicaSet, Role, WantedCopy};
pub use request::{Request, Resume, Traffic};
pub use server::Server;
pub use settings::{EncryptionStatus, MemberStream, Settings, TransportSecurity};
