//! Public functions that nothing but tests calls. The compiler sees no further than a crate, so that they stay, with
//! what they count or compute, and with tests that keep them alive.
//!
//! How it is found: a name behind `pub fn` that stands once in all code outside of tests. Names that are used twice
//! hide each other, macros and traits are not looked into: what is found is few, and sure.

use crate::circles::{is_test, without_tests};
use std::collections::{BTreeMap, BTreeSet};

/// Crates that are nothing but tests.
const TEST_CRATES: [&str; 1] = ["engine-tests"];

/// The names in all code, and the public functions among them.
#[derive(Default)]
pub struct Names {
    counts: BTreeMap<String, usize>,
    public: BTreeSet<(String, String)>,
}

impl Names {
    /// Adds a source file: its path below `crates`, and its text.
    pub fn add(&mut self, below_crates: &str, text: &str) {
        let Some((name, below)) = below_crates.split_once('/') else {
            return;
        };
        if TEST_CRATES.contains(&name) || is_test(below) || below.starts_with("examples/") {
            return;
        }
        self.add_uses(text);
        for line in without_tests(text).lines() {
            let code = line.split("//").next().unwrap_or_default();
            if let Some(function) = public_function(code) {
                self.public.insert((name.to_owned(), function.to_owned()));
            }
        }
    }

    /// Adds what a text calls. That is all that counts of examples and fuzz targets.
    pub fn add_uses(&mut self, text: &str) {
        for line in without_tests(text).lines() {
            let code = line.split("//").next().unwrap_or_default();
            for word in words(code) {
                *self.counts.entry(word.to_owned()).or_default() += 1;
            }
        }
    }

    /// Crate and name of the functions that nothing calls.
    pub fn uncalled(&self) -> impl Iterator<Item = &(String, String)> {
        let is_alone = |(_, name): &&(String, String)| self.counts.get(name) == Some(&1);
        self.public.iter().filter(is_alone)
    }
}

fn words(code: &str) -> impl Iterator<Item = &str> {
    let is_in_word = |character: char| character.is_alphanumeric() || character == '_';
    code.split(move |character| !is_in_word(character))
        .filter(|word| !word.is_empty())
}

fn public_function(code: &str) -> Option<&str> {
    let mut words = code.trim_start().strip_prefix("pub ")?.split(' ');
    words
        .find(|word| !matches!(*word, "const" | "unsafe" | "async"))
        .filter(|word| *word == "fn")?;
    words.next()?.split(['(', '<']).next()
}

#[cfg(test)]
mod tests {
    use super::Names;

    #[test]
    fn what_only_tests_call_is_found() {
        let mut names = Names::default();
        names.add(
            "a/src/one.rs",
            "pub fn used(x: u8) {}\npub const fn alone<T>() {}\n    pub fn inner(&self) {}\npub fn shown() {}\n",
        );
        names.add(
            "b/src/two.rs",
            "fn private() { used(1) } // alone\n#[cfg(test)]\nmod tests {\n    alone();\n}\n",
        );
        names.add("b/tests/three.rs", "inner();\n");
        names.add("engine-tests/src/kit.rs", "pub fn kit() {}\n");
        names.add_uses("pub fn example() { shown() }\n");
        let found: Vec<_> = names
            .uncalled()
            .map(|(name, function)| format!("{name} {function}"))
            .collect();
        assert_eq!(found, ["a alone", "a inner"]);
    }
}
