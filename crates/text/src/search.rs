//! What a client looks for: `$search`, taken apart.
//!
//! - Words are terms; one of them is enough.
//! - What stands between quotation marks is a phrase, which must be there as it is; its words are terms, too.
//! - A hyphen behind white space, before a word or a phrase, means that it must not be there, nor what follows it up to
//!   the next white space. A hyphen within a word is a delimiter.

use crate::fold::is_space;
use crate::{Analyzer, Folding, Language};
use hashbrown::HashSet;
use std::collections::BTreeSet;

/// What a term, and a phrase, takes beside its characters, about.
const TERM_BYTES: usize = 48;
const PHRASE_BYTES: usize = 80;

/// Counts bytes that are looked at; an error ends it.
pub type CountBytes<'c, E> = dyn FnMut(usize) -> Result<(), E> + 'c;

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
    /// Takes `$search` apart. The error is that of `count`.
    pub fn parse<E>(
        search: &str,
        language: Language,
        folding: Folding,
        count: &mut CountBytes<'_, E>,
    ) -> Result<Self, E> {
        let (mut wanted_words, mut unwanted_words) = (String::new(), String::new());
        let (mut phrases, mut unwanted_phrases) = (Phrases::default(), Phrases::default());
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
                            let phrase = &search[start..offset];
                            count(phrase.len())?;
                            match is_negated {
                                true => unwanted_phrases.add(phrase, language, folding),
                                // Every text has an empty one.
                                false if phrase.is_empty() => {}
                                false => phrases.add(phrase, language, folding),
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
        let terms = terms_of(&wanted_words, language, Folding::default(), count)?;
        let mut by_folding = |words: &str| terms_of(words, language, folding, count);
        Ok(Self {
            wanted: by_folding(&wanted_words)?,
            unwanted: by_folding(&unwanted_words)?,
            terms,
            language,
            folding,
            phrases: phrases.list,
            unwanted_phrases: unwanted_phrases.list,
        })
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

    /// Memory that it takes, about.
    pub fn bytes(&self) -> usize {
        let terms = [&self.terms, &self.wanted, &self.unwanted].into_iter().flatten();
        let terms: usize = terms.map(|term| TERM_BYTES + term.len()).sum();
        let phrases = self.phrases.iter().chain(&self.unwanted_phrases);
        let phrases: usize = phrases
            .map(|phrase| PHRASE_BYTES + phrase.given.len() + phrase.folded.len())
            .sum();
        terms + phrases
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

    /// Looks at one of a document's texts; `analyzer` is of the text's language and the search's folding. The error is
    /// that of `count`, which every phrase that is looked for counts the text's bytes anew.
    pub fn look<E>(
        &self,
        text: &str,
        analyzer: &mut Analyzer,
        found: &mut Found,
        count: &mut CountBytes<'_, E>,
    ) -> Result<(), E> {
        count(text.len())?;
        if !found.has_wanted || !self.unwanted.is_empty() {
            analyzer.terms::<E>(text, |term| {
                found.has_wanted |= self.wanted.contains(term);
                found.has_unwanted |= self.unwanted.contains(term);
                Ok(())
            })?;
        }
        if self.phrases.is_empty() && self.unwanted_phrases.is_empty() {
            return Ok(());
        }
        // As the text's language folds: a phrase of it is in it, whatever language the search is in.
        let language = analyzer.language();
        let mut folded = String::with_capacity(text.len());
        self.folding.append(text, language, &mut folded);
        let mut is_there = |phrase: &Phrase| {
            count(folded.len() + phrase.given.len())?;
            Ok(match language == self.language {
                true => folded.contains(&phrase.folded),
                false => folded.contains(&Phrase::new(&phrase.given, language, self.folding).folded),
            })
        };
        for (phrase, found) in self.phrases.iter().zip(&mut found.phrases) {
            *found = *found || is_there(phrase)?;
        }
        for phrase in &self.unwanted_phrases {
            found.has_unwanted = found.has_unwanted || is_there(phrase)?;
        }
        Ok(())
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

/// Phrases in the order in which they were given, each once.
#[derive(Default)]
struct Phrases<'s> {
    list: Vec<Phrase>,
    given: HashSet<&'s str>,
}

impl<'s> Phrases<'s> {
    fn add(&mut self, given: &'s str, language: Language, folding: Folding) {
        if self.given.insert(given) {
            self.list.push(Phrase::new(given, language, folding));
        }
    }
}

fn terms_of<E>(
    words: &str,
    language: Language,
    folding: Folding,
    count: &mut CountBytes<'_, E>,
) -> Result<BTreeSet<String>, E> {
    let mut terms = BTreeSet::new();
    Analyzer::new(language, folding).terms(words, |term| {
        count(term.len())?;
        terms.insert(term.to_owned());
        Ok(())
    })?;
    Ok(terms)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uncounted(_: usize) -> Result<(), std::convert::Infallible> {
        Ok(())
    }

    fn parse_with(search: &str, folding: Folding) -> Search {
        let Ok(search) = Search::parse(search, Language::English, folding, &mut uncounted);
        search
    }

    fn parse(search: &str) -> Search {
        parse_with(search, Folding::default())
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
            // Each phrase once; an empty one is in every text.
            ("\"b a\" \"a\" \"b a\" \"\"", "b||b a,a|"),
            ("b -\"\"", "b|||"),
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
            let Ok(()) = search.look(text, &mut analyzer, &mut found, &mut uncounted);
        }
        search.matches(&found)
    }

    #[test]
    fn a_phrase_is_folded_as_its_text_is() {
        let search = parse("\"kaç yaşındasınız\"");
        let is_found = |language| {
            let mut found = search.start();
            let mut analyzer = Analyzer::new(language, search.folding());
            let Ok(()) = search.look("KAÇ YAŞINDASINIZ", &mut analyzer, &mut found, &mut uncounted);
            found.phrases[0]
        };
        assert!(is_found(Language::Turkish) && !is_found(Language::English));
    }

    #[test]
    fn every_phrase_counts_the_text_and_can_end_it() {
        let text = "lorem ipsum ".repeat(100);
        let count_of = |search: &str| {
            let search = parse(search);
            let (mut found, mut counted) = (search.start(), 0);
            let mut analyzer = Analyzer::new(search.language(), search.folding());
            let looked = search.look(&text, &mut analyzer, &mut found, &mut |bytes| {
                counted += bytes;
                if counted < 10 * text.len() { Ok(()) } else { Err(()) }
            });
            (looked.is_ok(), counted)
        };
        let (ended, few) = count_of("\"psum x\" \"psum y\"");
        assert!(ended && few >= 3 * text.len());
        let many: String = (0..100).map(|i| format!("\"psum {i}\" ")).collect();
        assert!(!count_of(&many).0);
        let refused = Search::parse(&many, Language::English, Folding::default(), &mut |_| Err(()));
        assert_eq!(refused, Err(()));
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
        let search = parse_with("Café", strict);
        assert!(matches(&search, &["le Café"]) && !matches(&search, &["le café"]) && !matches(&search, &["le Cafe"]));
        assert_eq!(
            search.terms().collect::<Vec<_>>(),
            ["cafe"],
            "the index has folded terms"
        );
    }
}
