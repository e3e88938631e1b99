//! A server that stores nothing, for the floor below every server's figures:
//!
//! `tenon bench ycsb --workloads c --clients 64 --engines none --tenond $CARGO_TARGET_DIR/release/examples/responder`

use std::error::Error;
use std::net::TcpListener;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    if arguments.iter().any(|argument| argument == "--version") {
        println!("responder version v0\nStorage engines: none");
        return Ok(());
    }
    let port = arguments
        .iter()
        .skip_while(|argument| *argument != "--port")
        .nth(1)
        .ok_or("--port is needed")?;
    bench::procfs::raise_open_files();
    let listener = TcpListener::bind(("127.0.0.1", port.parse::<u16>()?))?;
    Ok(bench::responder::serve(&listener)?)
}
