//! Makes the page of a file of results again: `cargo run -p report --example page -- RESULTS.json OUT.html`.

use report::{Session, html, write_whole};
use std::error::Error;
use std::path::PathBuf;
use vfs::RealFs;

fn main() -> Result<(), Box<dyn Error>> {
    let paths: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let [results, out] = paths.as_slice() else {
        return Err("which results, and which page?".into());
    };
    let fs = RealFs::new();
    let session = Session::read(&fs, results)?;
    write_whole(&fs, out, html::page(&session).as_bytes())?;
    Ok(())
}
