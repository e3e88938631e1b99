//! The server from outside: the program as a process, the repair of damaged directories, dumps.

mod dump;
mod process;
mod repair;
