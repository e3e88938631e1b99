//! `tenon restore --backup`: a data directory as it was at a point in time.

use crate::key::KeyArgs;
use anyhow::{Context, Result, bail};
use clap::Args;
use server::point_in_time::{self, Point, Request, shown};
use std::path::PathBuf;
use std::process::ExitCode;
use storage::ClusterTime;

/// Options of `tenon restore` that say something about dumps, or about a server.
const OF_DUMPS: [&str; 22] = [
    "uri",
    "host",
    "port",
    "db",
    "collection",
    "ns_include",
    "ns_exclude",
    "archive",
    "gzip",
    "num_parallel_collections",
    "path",
    "dir",
    "ns_from",
    "ns_to",
    "drop",
    "no_index_restore",
    "no_options_restore",
    "stop_on_error",
    "bypass_document_validation",
    "write_concern",
    "oplog_replay",
    "oplog_file",
];

/// A point in time, from files: no server is asked.
#[derive(Args, Debug)]
#[command(next_help_heading = "Point in time, from a backup's files")]
pub struct PointArgs {
    /// A copy of a data directory that a server can be started on; it is not changed
    #[arg(long, value_name = "DIR", requires = "out", conflicts_with_all = OF_DUMPS)]
    backup: Option<PathBuf>,
    /// The folder of the log (`journal`) of the server that the backup is of, with what was written since
    #[arg(long, value_name = "DIR", requires = "backup")]
    log: Option<PathBuf>,
    /// The data directory to make; a server starts on it
    #[arg(long, value_name = "DIR", requires = "backup")]
    out: Option<PathBuf>,
    /// As it was at this time: 2026-11-23T21:00:00Z
    #[arg(long = "to-time", value_name = "TIME", requires = "backup", group = "point")]
    to_time: Option<String>,
    /// As it was at this cluster time, that included: SECONDS:INCREMENT, as operationTime tells
    #[arg(long = "to-optime", value_name = "TIME", requires = "backup", group = "point")]
    to_optime: Option<String>,
    /// With all that the log has
    #[arg(long = "to-end", requires = "backup", group = "point")]
    to_end: bool,
    #[command(flatten)]
    key: KeyArgs,
}

impl PointArgs {
    /// Whether it is wanted.
    pub fn is_given(&self) -> bool {
        self.backup.is_some()
    }

    fn point(&self) -> Result<Point> {
        match (&self.to_time, &self.to_optime, self.to_end) {
            (Some(time), ..) => {
                let parsed = bson::DateTime::parse_rfc3339_str(time)
                    .with_context(|| format!("--to-time {time}: a time such as 2026-11-23T21:00:00Z is expected"))?;
                Ok(Point::Wall(parsed.timestamp_millis()))
            }
            (None, Some(time), _) => {
                let (seconds, increment) = time.split_once(':').unwrap_or((time, "4294967295"));
                match (seconds.parse::<u32>(), increment.parse::<u32>()) {
                    (Ok(seconds), Ok(increment)) => {
                        let time = u64::from(seconds) << 32 | u64::from(increment);
                        Ok(Point::Cluster(ClusterTime(time)))
                    }
                    _ => bail!("--to-optime {time}: SECONDS:INCREMENT is expected"),
                }
            }
            (None, None, true) => Ok(Point::End),
            (None, None, false) => bail!("as of when: --to-time, --to-optime or --to-end has to be given"),
        }
    }

    /// Restores, and says up to where.
    pub fn run(&self) -> Result<ExitCode> {
        let (Some(backup), Some(out)) = (&self.backup, &self.out) else {
            bail!("--backup and --out have to be given together");
        };
        let key = self.key.source();
        let restored = point_in_time::restore(&Request {
            backup,
            log: self.log.as_deref(),
            out,
            point: self.point()?,
            key: key.as_ref(),
        })?;
        println!(
            "{} restored with engine {}: {} log entries replayed",
            out.display(),
            restored.engine,
            restored.replayed
        );
        if let Some(last) = &restored.last {
            println!("its last entry is from {}", shown(last));
        }
        if let Some(first) = &restored.left_out {
            println!("the first that was left out is from {}", shown(first));
        }
        Ok(ExitCode::SUCCESS)
    }
}
