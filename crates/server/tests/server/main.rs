//! The server from outside: the program as a process, and the repair of damaged directories.

mod process;
mod repair;
