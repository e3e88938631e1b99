//! The compressors that tables and the log name in their options.
