//! The workloads. Each measures one subject and keeps its runs in the context.

pub mod book;
mod full_read;
pub mod hot;
pub mod iibench;
pub mod linkbench;
mod load;
pub mod replica_set;
pub mod scan;
pub mod transactions;
pub mod ycsb;

use crate::configuration::Setup;
use crate::context::{Context, Options};
use crate::error::Result;
use crate::subject::Subject;
pub use load::{Load, MakeDocument};

/// A workload with what it was told.
#[derive(Clone, Debug)]
pub enum Workload {
    /// "MongoDB in Action", chapter 10.
    Book(book::Choices),
    /// Facebook's social graph.
    Linkbench(linkbench::Choices),
    /// Inserts into secondary indexes.
    Iibench(iibench::Choices),
    /// YCSB's core workloads.
    Ycsb(ycsb::Choices),
    /// One hot document beside inserts.
    Hot,
    /// Reading whole collections.
    Scan(scan::Choices),
    /// Transactions of several documents.
    Transactions(transactions::Choices),
    /// A replica set: writes, failovers, new members.
    ReplicaSet(replica_set::Choices),
}

impl Workload {
    /// The name in commands and results.
    pub fn name(&self) -> &'static str {
        match self {
            Workload::Book(_) => "book",
            Workload::Linkbench(_) => "linkbench",
            Workload::Iibench(_) => "iibench",
            Workload::Ycsb(_) => "ycsb",
            Workload::Hot => "hot",
            Workload::Scan(_) => "scan",
            Workload::Transactions(_) => "transactions",
            Workload::ReplicaSet(_) => replica_set::NAME,
        }
    }

    /// Databases that it makes, for removal from a server that stays.
    pub fn databases(&self) -> &'static [&'static str] {
        match self {
            Workload::Book(_) => &[book::DATABASE],
            Workload::Linkbench(_) => &[linkbench::DATABASE],
            Workload::Iibench(_) => &[iibench::DATABASE],
            Workload::Ycsb(_) => &[ycsb::DATABASE],
            Workload::Hot => &[hot::DATABASE],
            Workload::Scan(_) => &[scan::DATABASE],
            Workload::Transactions(_) => &[transactions::DATABASE],
            Workload::ReplicaSet(_) => &[replica_set::DATABASE],
        }
    }

    /// The configurations to measure, made from those that were chosen.
    pub fn setups(&self, chosen: &[Setup], options: &Options) -> Result<Vec<Setup>> {
        let with_cache = |setup: Setup| match options.cache_bytes {
            Some(bytes) => setup.with_cache(bytes),
            None => setup,
        };
        let setups = match self {
            Workload::Book(choices) => choices.setups(chosen),
            Workload::Hot => hot::setups(chosen, options),
            Workload::Scan(choices) => choices.setups(chosen),
            Workload::Transactions(_) => transactions::setups(chosen),
            Workload::ReplicaSet(_) => replica_set::setups(chosen)?,
            _ => chosen.to_vec(),
        };
        Ok(setups.into_iter().map(with_cache).collect())
    }

    /// True when it stops and starts its server, which a set of several is not.
    pub fn restarts_its_server(&self) -> bool {
        match self {
            Workload::Book(_) | Workload::Scan(_) => true,
            Workload::Linkbench(choices) => choices.io_bound,
            _ => false,
        }
    }

    /// Refuses choices that are not possible together, before a server is started.
    pub fn check(&self, options: &Options) -> Result<()> {
        match self {
            Workload::Iibench(choices) => iibench::check(choices, options),
            Workload::Ycsb(choices) => ycsb::check(choices),
            Workload::Transactions(choices) => transactions::check(choices),
            Workload::ReplicaSet(choices) => replica_set::check(choices, options),
            Workload::Book(_) | Workload::Linkbench(_) | Workload::Hot | Workload::Scan(_) => Ok(()),
        }
    }

    /// Measures a subject. [`Self::check`] was asked.
    pub fn run(&self, context: &mut Context, subject: &mut Subject) -> Result<()> {
        match self {
            Workload::Book(choices) => book::run(context, subject, choices),
            Workload::Linkbench(choices) => linkbench::run(context, subject, choices),
            Workload::Iibench(choices) => iibench::run(context, subject, choices),
            Workload::Ycsb(choices) => ycsb::run(context, subject, choices),
            Workload::Hot => hot::run(context, subject),
            Workload::Scan(choices) => scan::run(context, subject, choices),
            Workload::Transactions(choices) => transactions::run(context, subject, choices),
            Workload::ReplicaSet(choices) => replica_set::run(context, subject, choices),
        }
    }
}
