//! The languages, their names, stop words and stemmers.

use hashbrown::{HashMap, HashSet};
use rust_stemmers::Algorithm;
use std::sync::LazyLock;

/// A language of text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Language {
    /// No stop words and no stems.
    None,
    /// `da`
    Danish,
    /// `nl`
    Dutch,
    /// `en`
    English,
    /// `fi`
    Finnish,
    /// `fr`
    French,
    /// `de`
    German,
    /// `hu`
    Hungarian,
    /// `it`
    Italian,
    /// `nb`
    Norwegian,
    /// `pt`
    Portuguese,
    /// `ro`
    Romanian,
    /// `ru`
    Russian,
    /// `es`
    Spanish,
    /// `sv`
    Swedish,
    /// `tr`
    Turkish,
}

use Language as L;

/// Each with its name and its code.
const NAMES: [(Language, &str, &str); 16] = [
    (L::None, "none", "none"),
    (L::Danish, "danish", "da"),
    (L::Dutch, "dutch", "nl"),
    (L::English, "english", "en"),
    (L::Finnish, "finnish", "fi"),
    (L::French, "french", "fr"),
    (L::German, "german", "de"),
    (L::Hungarian, "hungarian", "hu"),
    (L::Italian, "italian", "it"),
    (L::Norwegian, "norwegian", "nb"),
    (L::Portuguese, "portuguese", "pt"),
    (L::Romanian, "romanian", "ro"),
    (L::Russian, "russian", "ru"),
    (L::Spanish, "spanish", "es"),
    (L::Swedish, "swedish", "sv"),
    (L::Turkish, "turkish", "tr"),
];

static STOP_WORDS: LazyLock<HashMap<&'static str, HashSet<&'static str>>> = LazyLock::new(|| {
    let sections = include_str!("../data/stop_words.txt").split("\n= ").skip(1);
    sections
        .filter_map(|section| section.split_once('\n'))
        .map(|(name, words)| (name, words.split_whitespace().collect()))
        .collect()
});

impl Language {
    /// By its name or its code of two letters, in any case.
    pub fn parse(name: &str) -> Option<Self> {
        let is_named = |(_, long, short): &&(Language, &str, &str)| {
            name.eq_ignore_ascii_case(long) || name.eq_ignore_ascii_case(short)
        };
        NAMES.iter().find(is_named).map(|(language, ..)| *language)
    }

    /// The name.
    pub fn name(self) -> &'static str {
        let own = NAMES.iter().find(|(language, ..)| *language == self);
        own.map_or("none", |(_, name, _)| name)
    }

    /// The words that are no terms, in lower case.
    pub(crate) fn stop_words(self) -> Option<&'static HashSet<&'static str>> {
        STOP_WORDS.get(self.name())
    }

    pub(crate) fn algorithm(self) -> Option<Algorithm> {
        Some(match self {
            L::None => return None,
            L::Danish => Algorithm::Danish,
            L::Dutch => Algorithm::Dutch,
            L::English => Algorithm::English,
            L::Finnish => Algorithm::Finnish,
            L::French => Algorithm::French,
            L::German => Algorithm::German,
            L::Hungarian => Algorithm::Hungarian,
            L::Italian => Algorithm::Italian,
            L::Norwegian => Algorithm::Norwegian,
            L::Portuguese => Algorithm::Portuguese,
            L::Romanian => Algorithm::Romanian,
            L::Russian => Algorithm::Russian,
            L::Spanish => Algorithm::Spanish,
            L::Swedish => Algorithm::Swedish,
            L::Turkish => Algorithm::Turkish,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn languages_have_names_codes_and_stop_words() {
        assert_eq!(Language::parse("English"), Some(Language::English));
        assert_eq!(Language::parse("nb"), Some(Language::Norwegian));
        assert_eq!(Language::parse("klingon"), None);
        assert_eq!(Language::parse(""), None);
        let without: Vec<&str> = NAMES
            .iter()
            .filter(|(language, ..)| language.stop_words().is_none_or(|words| words.len() < 50))
            .map(|(_, name, _)| *name)
            .collect();
        assert_eq!(without, ["none", "romanian"]);
        let english = Language::English.stop_words().expect("a list");
        assert!(english.contains("the") && english.contains("don't") && !english.contains("will"));
    }
}
