//! The query language: match, update, projection, aggregation, planner, executor.
//!
//! Synchronous and without a clock of its own: documents go in as borrowed bytes, results go out as bytes. [`matcher`],
//! [`project`] and [`update`] work on one document, a [`Validator`] asks whether one is allowed; [`expression`],
//! [`accumulators`] and [`stages`] are the aggregation language over [`value`]s; [`plan`] and [`exec`] read
//! collections.

mod data;
pub mod error;
mod evaluation;
pub mod matcher;
pub mod path;
pub mod project;
pub mod raw;
pub mod update;
mod validation;

pub mod accumulators;
pub mod expression;
pub mod stages;
pub mod value;

pub mod exec;
mod history;
mod limits;
mod metadata;
pub mod plan;
mod scripts;
mod sort_field;
mod sorter;
mod stack;
pub mod timeseries;

pub use data::DataSource;
pub use error::{CodedError, QueryError};
pub use evaluation::EvaluationContext;
pub use exec::{
    DocumentSink, ExecContext, ExecState, PlanExecutor, SinkState, aggregate, aggregate_collation, check_view, count,
    distinct, explain, find, is_lookup_by_id,
};
pub use history::{ResumeToken, is_oplog};
pub use limits::{BLOCKING_BYTES_MAX, BlockingLimits};
pub use plan::{AggregateRequest, CountRequest, DistinctRequest, FindRequest, Hint};
pub use scripts::OperationScripts;
pub use validation::Validator;
