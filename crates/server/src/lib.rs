//! tenond: sockets, configuration, process.
