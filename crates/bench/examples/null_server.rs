//! A server that stores nothing, for the floor below every server's figures:
//!
//! `tenon-bench --tenond $CARGO_TARGET_DIR/release/examples/null_server --engines none`

use anyhow::{Context, Result};
use bench::responder::{Answer, affirm, serve};
use std::net::TcpListener;
use std::sync::Arc;

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip_while(|argument| argument != "--port").skip(1);
    let port: u16 = arguments
        .next()
        .context("--port is needed")?
        .parse()
        .context("--port is a number")?;
    bench::process::raise_open_files();
    let listener = TcpListener::bind(("127.0.0.1", port)).context("listening")?;
    let answer: Arc<Answer> = Arc::new(affirm);
    serve(&listener, &answer)
}
