//! Writes pages of made-up sessions into a directory, for the test in a browser: `cargo run -p report --example fixture
//! -- DIRECTORY`.

#[path = "../tests/fixture/mod.rs"]
mod fixture;

use report::html::{comparison_page, page};
use report::{Session, TOLERANCE, compare, csv, write_whole};
use std::error::Error;
use std::path::PathBuf;
use vfs::RealFs;

fn main() -> Result<(), Box<dyn Error>> {
    let directory = PathBuf::from(std::env::args_os().nth(1).ok_or("which directory?")?);
    let fs = RealFs::new();
    let before = fixture::repeated(1, 1.0);
    let after = fixture::repeated(2, 1.12);
    before.write(&fs, &directory.join("session.json"))?;
    write_whole(&fs, &directory.join("session.csv"), csv(&before).as_bytes())?;
    let mut single = before.clone();
    single
        .runs
        .retain(|run| run.workload == "book" && run.configuration.label == "btree");
    let empty = Session {
        runs: Vec::new(),
        ..before.clone()
    };
    let pages = [
        ("page.html", page(&before)),
        ("engines.html", page(&fixture::five_engines(1))),
        ("single.html", page(&single)),
        ("empty.html", page(&empty)),
        ("hostile.html", page(&fixture::hostile())),
        (
            "compared.html",
            comparison_page(&compare(&before, &after, TOLERANCE), &before, &after),
        ),
    ];
    for (name, page) in pages {
        write_whole(&fs, &directory.join(name), page.as_bytes())?;
    }
    Ok(())
}
