//! tenond: the document database server.

// For its global allocator.
use allocator as _;
use server::engines::Registry;
use std::process::ExitCode;

fn main() -> ExitCode {
    server::process::main(&Registry::built_in())
}
