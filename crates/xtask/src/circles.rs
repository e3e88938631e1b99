//! Import circles: files of one crate that use each other, directly or by way of others. In a wide one no file can be
//! read, tested or moved without the rest.
//!
//! How it is counted: a file is a node. An edge leads from a file to each other file of its crate that one of its `use`
//! items names by `crate::`, `super::`, `self::` or a child module's name, or that a path in the code names by
//! `crate::`; a name that a module only passes on (`pub use child::Name`) counts as the file it comes from. Tests are
//! not counted: files of that name, files under `tests`, and what stands under `#[cfg(test)]` in others. A circle is a
//! strongly connected component.

use std::collections::{BTreeMap, BTreeSet};

/// A circle of so many files or fewer is nobody's business.
pub const FILES_MAX: usize = 5;

/// The path of a module within its crate; empty for the crate's root.
type Module = Vec<String>;

/// A crate's modules and what they import.
#[derive(Default)]
pub struct Modules {
    /// The files, by their modules.
    files: BTreeMap<Module, String>,
    /// What `use` items name, absolute within the crate.
    imports: BTreeMap<Module, Vec<Module>>,
    /// Names that modules pass on, and where they come from.
    passed_on: BTreeMap<(Module, String), Module>,
}

impl Modules {
    /// Adds a source file: its path below `src`, how it is shown, and its text.
    pub fn add(&mut self, below_src: &str, shown: &str, text: &str) {
        if is_test(below_src) {
            return;
        }
        let module = module_of(below_src);
        let code = &without_tests(text);
        self.files.insert(module.clone(), shown.to_owned());
        let written_out = paths_in(code).map(|path| absolute(&module, &path)).collect();
        self.imports.insert(module.clone(), written_out);
        for (is_public, item) in use_items(code) {
            let mut paths = Vec::new();
            expand("", &item, &mut paths);
            for (path, name) in paths {
                let absolute = absolute(&module, &path);
                if is_public {
                    self.passed_on.insert((module.clone(), name), absolute);
                } else {
                    self.imports.entry(module.clone()).or_default().push(absolute);
                }
            }
        }
    }

    /// The circles wider than [`FILES_MAX`], widest first, each with its files.
    pub fn circles(&self) -> Vec<Vec<&str>> {
        let nodes: Vec<&Module> = self.files.keys().collect();
        let reached: BTreeMap<&Module, BTreeSet<&Module>> =
            nodes.iter().map(|node| (*node, self.reached(node))).collect();
        let mut circles: Vec<Vec<&str>> = Vec::new();
        let mut seen = BTreeSet::new();
        for node in &nodes {
            if seen.contains(node) {
                continue;
            }
            let circle: Vec<&Module> = reached[node]
                .iter()
                .copied()
                .filter(|other| reached[other].contains(*node))
                .collect();
            seen.extend(circle.iter().copied());
            if circle.len() > FILES_MAX {
                circles.push(circle.iter().map(|module| self.files[*module].as_str()).collect());
            }
        }
        circles.sort_by_key(|circle| std::cmp::Reverse(circle.len()));
        circles
    }

    /// Every file that can be reached from one by at least one edge.
    fn reached(&self, from: &Module) -> BTreeSet<&Module> {
        let mut found = BTreeSet::new();
        let mut open = self.edges(from);
        while let Some(module) = open.pop() {
            if found.insert(module) {
                open.extend(self.edges(module));
            }
        }
        found
    }

    fn edges(&self, from: &Module) -> Vec<&Module> {
        let imports = self.imports.get(from).map(Vec::as_slice).unwrap_or_default();
        let targets = imports.iter().filter_map(|path| self.file_of(path.clone()));
        targets.filter(|target| *target != from).collect()
    }

    /// The file in which a path is defined.
    fn file_of(&self, mut path: Module) -> Option<&Module> {
        // Names are passed on through a few modules at most; a circle among them would not compile.
        for _ in 0..16 {
            let depth = (0..=path.len())
                .rev()
                .find(|depth| self.files.contains_key(&path[..*depth]))?;
            let (module, rest) = path.split_at(depth);
            let next = rest
                .first()
                .and_then(|name| self.passed_on.get(&(module.to_vec(), name.clone())));
            match next {
                Some(origin) => path = origin.iter().chain(&rest[1..]).cloned().collect(),
                None => return self.files.get_key_value(module).map(|(module, _)| module),
            }
        }
        None
    }
}

/// A file of tests, by its path.
pub fn is_test(below_src: &str) -> bool {
    below_src.ends_with("tests.rs") || below_src.split('/').any(|part| part == "tests")
}

/// A text without the items under `#[cfg(test)]`. A module of tests that is written out is a file's last item.
pub fn without_tests(text: &str) -> String {
    let (mut code, mut lines) = (String::new(), text.lines());
    while let Some(line) = lines.next() {
        if line.trim() != "#[cfg(test)]" {
            code.push_str(line);
            code.push('\n');
            continue;
        }
        let mut depth = 0_usize;
        for line in lines.by_ref().filter(|line| !line.trim_start().starts_with("#[")) {
            if line.starts_with("mod ") && line.ends_with('{') {
                return code;
            }
            depth = (depth + line.matches('{').count()).saturating_sub(line.matches('}').count());
            if depth == 0 && line.ends_with([';', '}', ',']) {
                break;
            }
        }
    }
    code
}

fn module_of(below_src: &str) -> Module {
    let path = below_src.strip_suffix(".rs").unwrap_or(below_src);
    let mut module: Module = path.split('/').map(str::to_owned).collect();
    if matches!(module.last().map(String::as_str), Some("mod" | "lib" | "main")) {
        module.pop();
    }
    module
}

/// The trees of the `use` items in a text, without `use` and `;`, and whether they pass names on.
fn use_items(code: &str) -> Vec<(bool, String)> {
    let lines: Vec<&str> = code
        .lines()
        .map(|line| line.split("//").next().unwrap_or_default())
        .collect();
    let mut items = Vec::new();
    let mut at = 0;
    while at < lines.len() {
        let line = lines[at].trim();
        let (is_public, rest) = match line.strip_prefix("pub") {
            Some(rest) => (true, rest.trim_start()),
            None => (false, line),
        };
        let rest = match rest.strip_prefix('(') {
            Some(rest) if is_public => rest.split_once(')').map_or("", |(_, rest)| rest.trim_start()),
            _ => rest,
        };
        at += 1;
        let Some(first) = rest.strip_prefix("use ") else {
            continue;
        };
        let mut item = first.to_owned();
        while !item.contains(';') && at < lines.len() {
            item.push_str(lines[at].trim());
            at += 1;
        }
        items.push((is_public, item.split(';').next().unwrap_or_default().to_owned()));
    }
    items
}

/// Paths in the code that begin with `crate::`.
fn paths_in(code: &str) -> impl Iterator<Item = String> {
    let lines = code.lines().map(|line| line.split("//").next().unwrap_or_default());
    let is_path = |character: char| character.is_alphanumeric() || matches!(character, '_' | ':');
    lines.filter(|line| !line.contains("use ")).flat_map(move |line| {
        line.match_indices("crate::").map(move |(at, _)| {
            let path = &line[at..];
            let end = path.find(|character| !is_path(character)).unwrap_or(path.len());
            path[..end].trim_end_matches(':').to_owned()
        })
    })
}

/// The paths of a tree of imports, each with the name that it gets.
fn expand(prefix: &str, tree: &str, paths: &mut Vec<(String, String)>) {
    let tree = tree.trim();
    if let Some((head, rest)) = tree.split_once('{') {
        let inside = rest.rsplit_once('}').map_or(rest, |(inside, _)| inside);
        let prefix = format!("{prefix}{}", head.trim());
        for part in split_at_top(inside) {
            expand(&prefix, part, paths);
        }
        return;
    }
    let (path, renamed) = match tree.split_once(" as ") {
        Some((path, name)) => (path.trim(), Some(name.trim())),
        None => (tree, None),
    };
    let whole = format!("{prefix}{path}");
    let whole = whole.strip_suffix("::self").unwrap_or(&whole).to_owned();
    let last = whole.rsplit("::").next().unwrap_or_default().to_owned();
    if !whole.is_empty() {
        let name = renamed.map_or(last, str::to_owned);
        paths.push((whole, name));
    }
}

/// The parts between commas that stand in no braces.
fn split_at_top(text: &str) -> Vec<&str> {
    let (mut depth, mut start, mut parts) = (0, 0, Vec::new());
    for (at, character) in text.char_indices() {
        match character {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts.into_iter().filter(|part| !part.trim().is_empty()).collect()
}

/// A path as seen from the crate's root. One that begins with another crate's name becomes a path that leads to no file
/// but the module's own.
fn absolute(module: &Module, path: &str) -> Module {
    let mut parts = path.split("::").map(str::trim).filter(|part| *part != "*").peekable();
    let mut base = module.clone();
    match parts.peek() {
        Some(&"crate") => {
            parts.next();
            base.clear();
        }
        Some(&"self") => drop(parts.next()),
        Some(&"super") => {
            while parts.next_if_eq(&"super").is_some() {
                base.pop();
            }
        }
        _ => {}
    }
    base.extend(parts.map(str::to_owned));
    base
}

#[cfg(test)]
mod tests {
    use super::{Modules, absolute, expand, use_items};

    fn paths(code: &str) -> Vec<String> {
        let mut found = Vec::new();
        for (_, item) in use_items(code) {
            expand("", &item, &mut found);
        }
        found.into_iter().map(|(path, _)| path).collect()
    }

    #[test]
    fn use_items_are_taken_apart() {
        let code =
            "use crate::{\n    a::{B, self, C as D}, // a: comment\n    e,\n};\npub(crate) use f::G;\nfn use_it() {}\n";
        assert_eq!(
            paths(code),
            ["crate::a::B", "crate::a", "crate::a::C", "crate::e", "f::G"]
        );
        let module = vec!["x".to_owned(), "y".to_owned()];
        assert_eq!(absolute(&module, "super::super::z::*"), ["z"]);
        assert_eq!(absolute(&module, "self::child::N"), ["x", "y", "child", "N"]);
    }

    /// Six modules in a row, the last of which uses the first by a name that the root passes on.
    #[test]
    fn a_circle_is_found_through_names_that_are_passed_on() {
        let circle = |last: &str| {
            let mut modules = Modules::default();
            modules.add("lib.rs", "lib", "mod m0;\npub use m0::Zero;\npub use self::m1::One;\n");
            for number in 0..6 {
                let text = match number {
                    0 => "use crate::One;\nuse std::fmt;".to_owned(),
                    5 => last.to_owned(),
                    _ => format!("use super::m{}::{{Thing, Other}};", number + 1),
                };
                modules.add(&format!("m{number}.rs"), &format!("m{number}"), &text);
            }
            modules
                .circles()
                .iter()
                .map(|circle| circle.join(" "))
                .collect::<Vec<_>>()
        };
        assert_eq!(circle("use crate::Zero;"), ["m0 m1 m2 m3 m4 m5"]);
        assert_eq!(circle("fn f() -> crate::m0::Thing {}"), ["m0 m1 m2 m3 m4 m5"]);
        assert!(circle("// use crate::Zero;\n#[cfg(test)]\nuse crate::Zero;").is_empty());
        let behind = "#[cfg(test)]\nuse crate::{\n    A,\n};\n#[cfg(test)]\nfn f() {\n    1;\n}\nuse crate::Zero;\n";
        assert_eq!(circle(behind), ["m0 m1 m2 m3 m4 m5"]);
        assert!(circle("#[cfg(test)]\nmod tests {\n    use crate::Zero;\n}\n").is_empty());
    }
}
