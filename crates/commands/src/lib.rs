//! One file per database command, in one table.
