//! Catalog, records, indexes, locks and the write path from evaluation over the log to the engine.
