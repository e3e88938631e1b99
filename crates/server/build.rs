//! Has the build know which commit it is of: `TENON_GIT_VERSION`, unless whoever builds it has set that.

#![allow(clippy::disallowed_methods, reason = "no part of the server")]

use std::process::Command;

fn git(arguments: &[&str]) -> Option<String> {
    let done = Command::new("git")
        .args(arguments)
        .output()
        .ok()
        .filter(|done| done.status.success())?;
    Some(String::from_utf8(done.stdout).ok()?.trim().to_owned())
}

fn main() {
    println!("cargo:rerun-if-env-changed=TENON_GIT_VERSION");
    // Each commit and each switch of branches adds a line there.
    for file in git(&["rev-parse", "--git-path", "logs/HEAD"])
        .into_iter()
        .filter(|file| std::path::Path::new(file).exists())
    {
        println!("cargo:rerun-if-changed={file}");
    }
    println!("cargo:rerun-if-changed=build.rs");
    let given = std::env::var("TENON_GIT_VERSION").ok();
    // Sources without their history, of a tarball, do not know.
    let version = given
        .or_else(|| git(&["rev-parse", "HEAD"]))
        .unwrap_or_else(|| "unknown".to_owned());
    println!("cargo:rustc-env=TENON_GIT_VERSION={version}");
}
