//! What a client looks for: `$search`, taken apart.
//!
//! - Words are terms; one of them is enough.
//! - What stands between quotation marks is a phrase, which must be there as it is; its words are terms, too.
//! - A hyphen behind white space, before a word or a phrase, means that it must not be there, nor what follows it up to
//!   the next white space. A hyphen within a word is a delimiter.

use crate::fold::is_space;
use crate::{Analyzer, Folding, Language};
use std::collections::BTreeSet;
use std::convert::Infallible;

/// A search in one language.
#[derive(Clone, Debug, PartialEq)]
pub struct Search {
    language: Language,
    folding: Folding,
    terms: BTreeSet<String>,
    wanted: BTreeSet<String>,
    unwanted: BTreeSet<String>,
    phrases: Vec<Phrase>,
    unwanted_phrases: Vec<Phrase>,
}

#[derive(Clone, Debug, PartialEq)]
struct Phrase {
    given: String,
    folded: String,
}

/// What a text has of a search.
#[derive(Clone, Debug, Default)]
pub struct Found {
    has_wanted: bool,
    has_unwanted: bool,
    /// One a phrase.
    phrases: Vec<bool>,
}

impl Search {
    /// Takes `$search` apart.
    pub fn parse(search: &str, language: Language, folding: Folding) -> Self {
        let (mut wanted_words, mut unwanted_words) = (String::new(), String::new());
        let (mut phrases, mut unwanted_phrases) = (Vec::new(), Vec::new());
        let mut is_negated = false;
        let mut phrase_start = None;
        let mut after_space = true;
        for (offset, character) in search.char_indices() {
            match character {
                '"' => {
                    // It ends a word. A negation goes on: that ends with white space alone.
                    wanted_words.push(' ');
                    unwanted_words.push(' ');
                    match phrase_start.take() {
                        None => phrase_start = Some(offset + 1),
                        Some(start) => {
                            let phrase = Phrase::new(&search[start..offset], language, folding);
                            match is_negated {
                                true => unwanted_phrases.push(phrase),
                                false => phrases.push(phrase),
                            }
                        }
                    }
                }
                '-' if phrase_start.is_none() && after_space => is_negated = true,
                character if is_space(character) => {
                    is_negated &= phrase_start.is_some();
                    wanted_words.push(' ');
                    unwanted_words.push(' ');
                }
                character => match (is_negated, phrase_start) {
                    (false, _) => wanted_words.push(character),
                    (true, None) => unwanted_words.push(character),
                    (true, Some(_)) => {}
                },
            }
            after_space = is_space(character);
        }
        let terms = terms_of(&wanted_words, language, Folding::default());
        let by_folding = |words: &str| terms_of(words, language, folding);
        Self {
            wanted: by_folding(&wanted_words),
            unwanted: by_folding(&unwanted_words),
            terms,
            language,
            folding,
            phrases,
            unwanted_phrases,
        }
    }

    /// The language of the search.
    pub fn language(&self) -> Language {
        self.language
    }

    /// The terms to look for in the index: a match has one of them.
    pub fn terms(&self) -> impl ExactSizeIterator<Item = &str> {
        self.terms.iter().map(String::as_str)
    }

    /// Terms that must not be there.
    pub fn unwanted_terms(&self) -> impl ExactSizeIterator<Item = &str> {
        self.unwanted.iter().map(String::as_str)
    }

    /// Phrases that must be there.
    pub fn phrases(&self) -> impl ExactSizeIterator<Item = &str> {
        self.phrases.iter().map(|phrase| phrase.given.as_str())
    }

    /// Phrases that must not be there.
    pub fn unwanted_phrases(&self) -> impl ExactSizeIterator<Item = &str> {
        self.unwanted_phrases.iter().map(|phrase| phrase.given.as_str())
    }

    /// Whether every document with one of the terms matches.
    pub fn is_answered_by_terms(&self) -> bool {
        self.folding == Folding::default()
            && self.unwanted.is_empty()
            && self.phrases.is_empty()
            && self.unwanted_phrases.is_empty()
    }

    /// What makes words different in it.
    pub fn folding(&self) -> Folding {
        self.folding
    }

    /// Nothing found yet but, of a document that the index has led to by one of the terms, that term: unless case or
    /// diacritics count, it is one that is wanted.
    pub fn start_found(&self) -> Found {
        Found {
            has_wanted: self.folding == Folding::default(),
            ..self.start()
        }
    }

    /// Nothing found yet.
    pub fn start(&self) -> Found {
        Found {
            has_wanted: false,
            has_unwanted: false,
            phrases: vec![false; self.phrases.len()],
        }
    }

    /// Looks at one of a document's texts; `analyzer` is of the text's language and the search's folding.
    pub fn look(&self, text: &str, analyzer: &mut Analyzer, found: &mut Found) {
        if !found.has_wanted || !self.unwanted.is_empty() {
            let Ok(()) = analyzer.terms::<Infallible>(text, |term| {
                found.has_wanted |= self.wanted.contains(term);
                found.has_unwanted |= self.unwanted.contains(term);
                Ok(())
            });
        }
        if self.phrases.is_empty() && self.unwanted_phrases.is_empty() {
            return;
        }
        // As the text's language folds: a phrase of it is in it, whatever language the search is in.
        let language = analyzer.language();
        let mut folded = String::with_capacity(text.len());
        self.folding.append(text, language, &mut folded);
        let is_there = |phrase: &Phrase| match language == self.language {
            true => folded.contains(&phrase.folded),
            false => folded.contains(&Phrase::new(&phrase.given, language, self.folding).folded),
        };
        for (phrase, found) in self.phrases.iter().zip(&mut found.phrases) {
            *found = *found || is_there(phrase);
        }
        found.has_unwanted |= self.unwanted_phrases.iter().any(is_there);
    }

    /// Whether a document matches whose texts were all looked at.
    pub fn matches(&self, found: &Found) -> bool {
        found.has_wanted && !found.has_unwanted && found.phrases.iter().all(|found| *found)
    }
}

impl Phrase {
    fn new(given: &str, language: Language, folding: Folding) -> Self {
        let mut folded = String::with_capacity(given.len());
        folding.append(given, language, &mut folded);
        Self {
            given: given.to_owned(),
            folded,
        }
    }
}

fn terms_of(words: &str, language: Language, folding: Folding) -> BTreeSet<String> {
    let mut terms = BTreeSet::new();
    let Ok(()) = Analyzer::new(language, folding).terms::<Infallible>(words, |term| {
        terms.insert(term.to_owned());
        Ok(())
    });
    terms
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(search: &str) -> Search {
        Search::parse(search, Language::English, Folding::default())
    }

    fn shown(search: &Search) -> String {
        let list = |parts: Vec<&str>| parts.join(",");
        [
            list(search.terms().collect()),
            list(search.unwanted_terms().collect()),
            list(search.phrases().collect()),
            list(search.unwanted_phrases().collect()),
        ]
        .join("|")
    }

    #[test]
    fn searches_are_taken_apart() {
        let cases = [
            ("coffee the shops", "coffe,shop|||"),
            ("coffee -shop", "coffe|shop||"),
            ("pre-market", "market,pre|||"),
            ("-foo-bar baz", "baz|bar,foo||"),
            ("- foo", "foo|||"),
            ("\"ssl certificate\" authority", "author,certif,ssl||ssl certificate|"),
            ("fish -\"blue fish\" x", "fish,x|||blue fish"),
            ("\"a -b\"", "b||a -b|"),
            ("zap -\"foo bar\"-\"quux foo\"", "zap|||foo bar,quux foo"),
            ("zap -\"foo bar\"quux", "zap|quux||foo bar"),
            ("zap -\"foo\"-bar \"tea\" x", "tea,x,zap|bar|tea|foo"),
            ("zap - \"foo\"", "foo,zap||foo|"),
            ("zap\"foo bar\"tea", "bar,foo,tea,zap||foo bar|"),
            ("\"open end", "end,open|||"),
            ("-tea", "|tea||"),
            ("", "|||"),
        ];
        for (search, wanted) in cases {
            assert_eq!(shown(&parse(search)), wanted, "{search}");
        }
    }

    fn matches(search: &Search, texts: &[&str]) -> bool {
        let mut analyzer = Analyzer::new(search.language(), search.folding());
        let mut found = search.start();
        for text in texts {
            search.look(text, &mut analyzer, &mut found);
        }
        search.matches(&found)
    }

    #[test]
    fn a_phrase_is_folded_as_its_text_is() {
        let search = parse("\"kaç yaşındasınız\"");
        let is_found = |language| {
            let mut found = search.start();
            search.look(
                "KAÇ YAŞINDASINIZ",
                &mut Analyzer::new(language, search.folding()),
                &mut found,
            );
            found.phrases[0]
        };
        assert!(is_found(Language::Turkish) && !is_found(Language::English));
    }

    #[test]
    fn texts_match() {
        assert!(matches(&parse("bake coffee"), &["Coffee Shopping"]));
        assert!(!matches(&parse("coffee -shop"), &["Coffee", "Shopping"]));
        assert!(matches(&parse("\"coffee shop\""), &["x", "A Coffee Shopping guide"]));
        assert!(!matches(&parse("\"coffee shop\""), &["shop coffee"]));
        assert!(!matches(&parse("coffee -\"coffee shop\""), &["the coffee shop"]));
        assert!(!matches(&parse("-tea"), &["coffee"]), "something must be there");
        let strict = Folding {
            case_sensitive: true,
            diacritic_sensitive: true,
        };
        let search = Search::parse("Café", Language::English, strict);
        assert!(matches(&search, &["le Café"]) && !matches(&search, &["le café"]) && !matches(&search, &["le Cafe"]));
        assert_eq!(
            search.terms().collect::<Vec<_>>(),
            ["cafe"],
            "the index has folded terms"
        );
    }
}
