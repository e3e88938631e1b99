//! What is too much already may not become more: a checked-in list says how much there was, and whoever makes it less
//! writes the list anew with `cargo run -p xtask -- ratchet`.
//!
//! Counted are lines of a source file beyond [`FILE_LINES_MAX`], comment lines wider than [`COMMENT_WIDTH_MAX`], files
//! of a crate that stand in import circles (see [`crate::circles`]), and public functions that only tests call (see
//! [`crate::uncalled`]).

use crate::circles::{self, Modules, is_test};
use crate::tidy::sources;
use crate::uncalled::Names;
use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// Beyond this one asks whether a file holds one idea.
pub const FILE_LINES_MAX: usize = 800;
/// The width of code.
pub const COMMENT_WIDTH_MAX: usize = 120;

const LIST: &str = "crates/xtask/ratchet.txt";
const HEAD: &str = "\
# What is too much already, and may not become more. `cargo run -p xtask -- ratchet` writes this file; only less may be added.
# lines FILE: its lines. comments CRATE: comment lines that are too wide. circle CRATE: its files in circles of imports.
# uncalled CRATE FUNCTION: it is public, and only tests call it.
";

/// What there is of each kind and place.
type Counts = BTreeMap<String, usize>;

fn count(root: &Path) -> Result<Counts> {
    let mut counts = Counts::new();
    let mut names = Names::default();
    for path in sources(&root.join("crates"))? {
        let text = fs::read_to_string(&path)?;
        let shown = path.strip_prefix(root).unwrap_or(&path).display();
        let lines = text.lines().count();
        if lines > FILE_LINES_MAX {
            counts.insert(format!("lines {shown}"), lines);
        }
        let wide = |line: &&str| line.trim_start().starts_with("//") && line.chars().count() > COMMENT_WIDTH_MAX;
        let wide = text.lines().filter(wide).count();
        let below = shown.to_string();
        names.add(below.trim_start_matches("crates/"), &text);
        if let Some(name) = below.split('/').nth(1).filter(|_| wide > 0) {
            *counts.entry(format!("comments {name}")).or_default() += wide;
        }
    }
    for outside in ["examples", "fuzz/fuzz_targets"] {
        for path in sources(&root.join(outside))? {
            if !is_test(&path.strip_prefix(root).unwrap_or(&path).to_string_lossy()) {
                names.add_uses(&fs::read_to_string(&path)?);
            }
        }
    }
    for (name, function) in names.uncalled() {
        counts.insert(format!("uncalled {name} {function}"), 1);
    }
    for (name, modules) in crates(root)? {
        let files: usize = modules.circles().iter().map(Vec::len).sum();
        if files > 0 {
            counts.insert(format!("circle {name}"), files);
        }
    }
    Ok(counts)
}

/// The modules of every crate.
fn crates(root: &Path) -> Result<BTreeMap<String, Modules>> {
    let mut found: BTreeMap<String, Modules> = BTreeMap::new();
    for path in sources(&root.join("crates"))? {
        let below = path
            .strip_prefix(root.join("crates"))
            .unwrap_or(&path)
            .to_string_lossy();
        if let Some((name, below_src)) = below.split_once("/src/") {
            let text = fs::read_to_string(&path)?;
            found
                .entry(name.to_owned())
                .or_default()
                .add(below_src, below_src, &text);
        }
    }
    Ok(found)
}

fn recorded(root: &Path) -> Result<Counts> {
    let text = fs::read_to_string(root.join(LIST)).with_context(|| format!("cannot read {LIST}"))?;
    let lines = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    lines
        .map(|line| {
            let (what, number) = line.rsplit_once(' ').with_context(|| format!("{LIST}: {line}"))?;
            Ok((
                what.to_owned(),
                number.parse().with_context(|| format!("{LIST}: {line}"))?,
            ))
        })
        .collect()
}

/// Adds a complaint for whatever is new or has grown.
pub fn check(root: &Path, complaints: &mut Vec<String>) -> Result<()> {
    let recorded = recorded(root)?;
    for (what, number) in count(root)? {
        let allowed = recorded.get(&what).copied().unwrap_or_default();
        if number > allowed {
            let limit = match what.split(' ').next() {
                Some("lines") => format!("more than {FILE_LINES_MAX} lines"),
                Some("comments") => format!("comment lines wider than {COMMENT_WIDTH_MAX}"),
                Some("uncalled") => "a public function that only tests call".to_owned(),
                _ => format!("files in circles of more than {}: xtask circles", circles::FILES_MAX),
            };
            complaints.push(format!("{what}: {number}, {allowed} are on record ({limit})"));
        }
    }
    Ok(())
}

/// Writes the list as it is now.
pub fn write(root: &Path) -> Result<()> {
    let lines: Vec<String> = count(root)?
        .into_iter()
        .map(|(what, number)| format!("{what} {number}\n"))
        .collect();
    fs::write(root.join(LIST), format!("{HEAD}{}", lines.concat()))?;
    Ok(())
}

/// Prints the circles of every crate.
pub fn print_circles(root: &Path) -> Result<()> {
    println!(
        "Files of one crate that import each other, directly or by way of others, where they are more than {}.\n\
         Counted are `use` items (`crate::`, `super::`, `self::`, child modules) and paths in the code that begin with\n\
         `crate::`, a name that is passed on by the file it comes from; no tests.\n",
        circles::FILES_MAX
    );
    for (name, modules) in crates(root)? {
        for circle in modules.circles() {
            println!("{name}: {} files\n    {}", circle.len(), circle.join(" "));
        }
    }
    Ok(())
}
