//! tenond: the document database server.

use server::engines::Registry;
use std::process::ExitCode;

fn main() -> ExitCode {
    allocator::use_huge_pages();
    server::process::main(&Registry::built_in())
}
