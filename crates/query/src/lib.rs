//! The query language: match, update, projection, aggregation, planner, executor.
