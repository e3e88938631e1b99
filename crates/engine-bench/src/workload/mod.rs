//! What is done to a subject: workloads W1 to W22, each in a process of its own.
//!
//! `bench` opens subjects, loads rows and takes the measurements that all workloads share; the other modules are the
//! workloads. Numbers that are missing (W17, W20) are measured at the server.

mod additions;
mod bench;
mod inserts;
mod larger;
mod mixed;
mod reads;
mod recovery;
mod run;
mod space;
#[expect(clippy::module_inception, reason = "the list of workloads")]
mod workload;

pub use run::run;
pub use workload::Workload;
