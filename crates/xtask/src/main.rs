//! Checks and chores of the repository: `cargo run -p xtask -- verify | test | fix`.
//!
//! `verify` never writes; `fix` does. Both leave RocksDB's C++ alone: its crate is checked by `make test`.
#![allow(clippy::disallowed_methods, reason = "a developer's tool, not part of the server")]

mod circles;
mod ratchet;
mod run_tests;
mod tidy;
mod uncalled;

use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let root = root()?;
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["verify"] => verify(&root, true),
        ["verify", "--no-tests"] => verify(&root, false),
        ["test", rest @ ..] => run_tests::run(&root, rest),
        ["fix"] => fix(&root),
        ["tidy"] => tidy::check(&root),
        ["ratchet"] => ratchet::write(&root),
        ["circles"] => ratchet::print_circles(&root),
        ["lines"] => tidy::print_lines(&root),
        _ => bail!(
            "usage: xtask verify [--no-tests] | test [ARGUMENTS OF CARGO TEST] | fix | tidy | ratchet | circles | lines"
        ),
    }
}

/// The repository that `cargo run` was called in. Asked for at run time: a build folder can serve several checkouts,
/// and a program built in one of them must not check another.
fn root() -> Result<PathBuf> {
    let manifest = std::env::var_os("CARGO_MANIFEST_DIR").context("run by cargo: cargo run -p xtask")?;
    let manifest = Path::new(&manifest);
    let root = manifest.ancestors().nth(2).context("the crate lies in crates/xtask")?;
    Ok(root.to_owned())
}

fn cargo(root: &Path, arguments: &[&str]) -> Result<()> {
    println!("cargo {}", arguments.join(" "));
    let status = Command::new("cargo")
        .args(arguments)
        .current_dir(root)
        .status()
        .context("cannot start cargo")?;
    if !status.success() {
        bail!("cargo {} failed", arguments.join(" "));
    }
    Ok(())
}

fn verify(root: &Path, tests: bool) -> Result<()> {
    cargo(root, &["fmt", "--all", "--check"])?;
    tidy::check(root)?;
    // The fuzz targets are a workspace of their own, whose lock file is forgotten when crates come to depend on others.
    let fuzz = ["--manifest-path", "fuzz/Cargo.toml", "--format-version", "1"];
    let locked = Command::new("cargo")
        .args(["metadata", "--quiet", "--locked"])
        .args(fuzz)
        .stdout(Stdio::null())
        .current_dir(root)
        .status()
        .context("cannot start cargo metadata")?;
    if !locked.success() {
        bail!("fuzz/Cargo.lock is behind: cargo metadata --manifest-path fuzz/Cargo.toml mends it");
    }
    cargo(root, &["clippy", "--quiet", "--all-targets", "--", "-D", "warnings"])?;
    // Links in documentation comments must lead somewhere; nothing is kept.
    let status = Command::new("cargo")
        .args(["doc", "--quiet", "--no-deps", "--document-private-items"])
        .env("RUSTDOCFLAGS", "-D warnings -A rustdoc::private-intra-doc-links")
        .current_dir(root)
        .status()
        .context("cannot start cargo doc")?;
    if !status.success() {
        bail!("cargo doc failed");
    }
    if tests {
        run_tests::run(root, &[])?;
    }
    Ok(())
}

fn fix(root: &Path) -> Result<()> {
    cargo(
        root,
        &["clippy", "--fix", "--allow-dirty", "--allow-staged", "--all-targets"],
    )?;
    cargo(root, &["fmt", "--all"])
}
