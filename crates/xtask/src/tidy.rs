//! What no compiler checks: words that must not stay, layers, and what may not become more.

use crate::ratchet;
use anyhow::{Result, bail};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Which crates a crate may use: those to the right of or below it in `ARCHITECTURE.md`. Every crate is here.
const LAYERS: &[(&str, &[&str])] = &[
    ("allocator", &[]),
    ("crypt", &[]),
    ("vfs", &["crypt"]),
    ("codec", &[]),
    ("spill", &["vfs", "codec", "crypt"]),
    ("geometry", &[]),
    ("text", &[]),
    ("script-heap", &[]),
    ("script", &["script-heap"]),
    ("keys", &["geometry", "text"]),
    ("wire", &[]),
    ("rcu", &[]),
    ("engine", &[]),
    ("pins", &["engine", "rcu"]),
    ("crew", &["rcu"]),
    ("process", &[]),
    ("locks", &["engine", "rcu"]),
    ("blocks", &["engine", "vfs", "codec", "crypt"]),
    ("oplog", &["engine", "rcu", "vfs", "codec", "crypt"]),
    ("repl", &["oplog", "engine", "vfs"]),
    ("engine-tests", &["engine", "vfs", "codec", "crypt"]),
    (
        "engine-btree",
        &["blocks", "pins", "rcu", "engine", "vfs", "codec", "crypt"],
    ),
    ("engine-betree", &["blocks", "pins", "engine", "vfs", "codec"]),
    ("engine-inmemory", &["engine", "pins", "vfs", "codec", "crypt"]),
    ("engine-mmapv1", &["engine", "pins", "vfs", "crypt"]),
    ("engine-rocksdb", &["engine", "vfs", "codec"]),
    ("collation", &["keys"]),
    (
        "storage",
        &[
            "locks",
            "repl",
            "oplog",
            "engine",
            "vfs",
            "codec",
            "collation",
            "keys",
            "geometry",
        ],
    ),
    (
        "query",
        &[
            "storage",
            "oplog",
            "engine",
            "spill",
            "vfs",
            "collation",
            "keys",
            "geometry",
            "script",
            "text",
            "wire",
        ],
    ),
    ("auth", &[]),
    (
        "commands",
        &[
            "auth",
            "query",
            "storage",
            "oplog",
            "engine",
            "spill",
            "vfs",
            "collation",
            "extjson",
            "keys",
            "wire",
        ],
    ),
    (
        "server",
        &[
            "allocator",
            "auth",
            "commands",
            "crew",
            "process",
            "query",
            "storage",
            "oplog",
            "engine",
            "engine-betree",
            "engine-btree",
            "engine-inmemory",
            "engine-mmapv1",
            "engine-rocksdb",
            "spill",
            "vfs",
            "crypt",
            "codec",
            "keys",
            "wire",
        ],
    ),
    ("report", &["vfs"]),
    ("bench", &["process", "report", "vfs", "wire"]),
    ("stress", &["bench", "report", "vfs", "wire"]),
    ("extjson", &["wire"]),
    ("dump", &["auth", "bench", "extjson", "query", "storage", "wire"]),
    ("transfer", &["bench", "dump", "extjson", "wire"]),
    ("rescue", &["vfs", "codec", "wire"]),
    (
        "tenon",
        &[
            "bench", "stress", "dump", "extjson", "report", "rescue", "transfer", "vfs", "wire", "engine", "oplog",
            "storage", "server",
        ],
    ),
    (
        "engine-bench",
        &[
            "allocator",
            "process",
            "report",
            "oplog",
            "engine",
            "engine-betree",
            "engine-btree",
            "engine-inmemory",
            "engine-mmapv1",
            "engine-rocksdb",
            "vfs",
            "codec",
        ],
    ),
    (
        "engine-soak",
        &[
            "engine",
            "engine-betree",
            "engine-btree",
            "engine-inmemory",
            "engine-mmapv1",
            "engine-rocksdb",
            "vfs",
            "codec",
        ],
    ),
    ("xtask", &[]),
];

/// Fails on the first kind of untidiness found, naming every place.
pub fn check(root: &Path) -> Result<()> {
    let mut complaints = Vec::new();
    for path in sources(&root.join("crates"))? {
        let text = fs::read_to_string(&path)?;
        let shown = path.strip_prefix(root).unwrap_or(&path).display();
        for (number, line) in text.lines().enumerate() {
            let unfinished = ["todo!(", "unimplemented!(", "dbg!("]
                .iter()
                .find(|word| line.contains(**word));
            if let Some(word) = unfinished.filter(|_| !path.ends_with("xtask/src/tidy.rs")) {
                complaints.push(format!("{shown}:{}: {word}", number + 1));
            }
        }
        complaints.extend(examples(&text).map(|line| format!("{shown}:{line}: an example that no test runs")));
    }
    for entry in fs::read_dir(root.join("crates"))? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if !LAYERS.iter().any(|(known, _)| *known == name) {
            complaints.push(format!(
                "crates/{name} has no place in xtask's layers and in ARCHITECTURE.md"
            ));
        }
    }
    for (name, allowed) in LAYERS {
        for used in dependencies(&root.join("crates").join(name).join("Cargo.toml"))? {
            let ours = root.join("crates").join(&used).is_dir();
            if ours && !allowed.contains(&used.as_str()) {
                complaints.push(format!("crates/{name} must not use {used}"));
            }
        }
    }
    ratchet::check(root, &mut complaints)?;
    if complaints.is_empty() {
        Ok(())
    } else {
        bail!("untidy:\n{}", complaints.join("\n"))
    }
}

/// Lines at which code in a documentation comment begins that rustdoc would run as a test.
fn examples(text: &str) -> impl Iterator<Item = usize> {
    let mut inside = false;
    text.lines().enumerate().filter_map(move |(number, line)| {
        let line = line.trim_start();
        let fence = ["/// ```", "//! ```"].iter().find_map(|fence| line.strip_prefix(fence));
        let begins = fence.is_some() && !inside;
        inside ^= fence.is_some();
        (begins && matches!(fence, Some("" | "rust" | "no_run" | "should_panic"))).then_some(number + 1)
    })
}

/// Names under `[dependencies]` of a manifest.
fn dependencies(manifest: &Path) -> Result<Vec<String>> {
    let text = fs::read_to_string(manifest)?;
    let section = text.split("[dependencies]").nth(1).unwrap_or("");
    let section = section.split("\n[").next().unwrap_or("");
    Ok(section
        .lines()
        .filter_map(|line| {
            let name = line.split(['=', '.', ' ']).next()?.trim();
            (!name.is_empty() && !name.starts_with('#')).then(|| name.to_owned())
        })
        .collect())
}

/// The Rust files below a directory.
pub fn sources(directory: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut open = vec![directory.to_owned()];
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(&directory)? {
            let path = entry?.path();
            if path.is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}

/// Lines of Rust per crate, tests in files of their own counted apart.
pub fn print_lines(root: &Path) -> Result<()> {
    let mut lines: BTreeMap<String, (usize, usize)> = BTreeMap::new();
    for path in sources(&root.join("crates"))? {
        let relative = path.strip_prefix(root.join("crates")).unwrap_or(&path);
        let name = relative
            .components()
            .next()
            .map(|part| part.as_os_str().to_string_lossy().into_owned());
        let text = fs::read_to_string(&path)?;
        let shown = relative.to_string_lossy();
        let of_tests = shown.contains("/tests") || shown.contains("tests.rs") || shown.contains("/examples/");
        let inline = text.find("#[cfg(test)]").map_or(0, |at| text[at..].lines().count());
        let all = text.lines().count();
        let entry = lines.entry(name.unwrap_or_default()).or_default();
        let tests = if of_tests { all } else { inline };
        entry.0 += all - tests;
        entry.1 += tests;
    }
    println!("{:<18}{:>8}{:>8}", "crate", "code", "tests");
    for (name, (code, tests)) in &lines {
        println!("{name:<18}{code:>8}{tests:>8}");
    }
    let (code, tests) = lines
        .values()
        .fold((0, 0), |sum, (code, tests)| (sum.0 + code, sum.1 + tests));
    println!("{:<18}{code:>8}{tests:>8}", "all");
    Ok(())
}
