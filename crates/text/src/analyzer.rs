//! From text to terms.
//!
//! 1. Words are what stands between delimiters ([`crate::fold`]).
//! 2. A word is looked for among the stop words in lower case, with its diacritics; those are left out.
//! 3. It is stemmed, in lower case unless case counts.
//! 4. Diacritics go, unless they count.

use crate::Language;
use crate::fold::{append_lower, append_without_diacritics, is_delimiter};
use hashbrown::HashSet;
use rust_stemmers::Stemmer;

/// Longest word that is stemmed, in bytes; longer ones are terms as they are.
const STEMMED_BYTES_MAX: usize = 256;

/// What makes two words different.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Folding {
    /// Case does.
    pub case_sensitive: bool,
    /// Diacritics do.
    pub diacritic_sensitive: bool,
}

impl Folding {
    /// Appends a text with all that makes no difference taken away.
    pub(crate) fn append(self, text: &str, language: Language, out: &mut String) {
        match (self.case_sensitive, self.diacritic_sensitive) {
            (true, true) => out.push_str(text),
            (true, false) => append_without_diacritics(text, out),
            (false, true) => append_lower(text, language, out),
            (false, false) => {
                let mut lower = String::with_capacity(text.len());
                append_lower(text, language, &mut lower);
                append_without_diacritics(&lower, out);
            }
        }
    }
}

/// Takes terms out of texts. Keeps its buffers.
pub struct Analyzer {
    language: Language,
    folding: Folding,
    stop_words: Option<&'static HashSet<&'static str>>,
    stemmer: Option<Stemmer>,
    lower: String,
    bare: String,
}

impl Analyzer {
    /// For a language.
    pub fn new(language: Language, folding: Folding) -> Self {
        Self {
            language,
            folding,
            stop_words: language.stop_words(),
            stemmer: language.algorithm().map(Stemmer::create),
            lower: String::new(),
            bare: String::new(),
        }
    }

    /// Its language.
    pub fn language(&self) -> Language {
        self.language
    }

    /// Goes on in another language.
    pub fn set_language(&mut self, language: Language) {
        if language != self.language {
            *self = Self::new(language, self.folding);
        }
    }

    /// Calls `each` with every term of a text, in order, until it fails.
    pub fn terms<E>(&mut self, text: &str, mut each: impl FnMut(&str) -> Result<(), E>) -> Result<(), E> {
        let language = self.language;
        for word in text.split(|character| is_delimiter(character, language)) {
            if !word.is_empty()
                && let Some(term) = self.term(word)
            {
                each(term)?;
            }
        }
        Ok(())
    }

    /// The term of a word; none of a stop word.
    fn term(&mut self, word: &str) -> Option<&str> {
        self.lower.clear();
        append_lower(word, self.language, &mut self.lower);
        if self.stop_words.is_some_and(|words| words.contains(self.lower.as_str())) {
            return None;
        }
        if self.folding.case_sensitive {
            self.lower.clear();
            self.lower.push_str(word);
        }
        let stemmer = self.stemmer.as_ref().filter(|_| self.lower.len() <= STEMMED_BYTES_MAX);
        let stem = stemmer.map(|stemmer| stemmer.stem(&self.lower));
        let stem = stem.as_deref().unwrap_or(&self.lower);
        self.bare.clear();
        match self.folding.diacritic_sensitive {
            true => self.bare.push_str(stem),
            false => append_without_diacritics(stem, &mut self.bare),
        }
        // A word of nothing but marks.
        (!self.bare.is_empty()).then_some(self.bare.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn terms(text: &str, language: Language, folding: Folding) -> Vec<String> {
        let mut terms = Vec::new();
        let all = Analyzer::new(language, folding).terms::<()>(text, |term| {
            terms.push(term.to_owned());
            Ok(())
        });
        assert_eq!(all, Ok(()));
        terms
    }

    /// Terms are in keys: none of these may ever change.
    #[test]
    fn terms_never_change() {
        let cases = [
            (
                Language::English,
                "The running dogs don't fly; Café-société!",
                "run dog fli cafe societe",
            ),
            (
                Language::English,
                "consigned consistently knightly",
                "consign consist knight",
            ),
            (Language::None, "The running dogs", "the running dogs"),
            (
                Language::Spanish,
                "El niño está corriendo rápidamente",
                "nin corr rapid",
            ),
            (
                Language::French,
                "L'éléphant continuellement mangeait",
                "eleph continuel mang",
            ),
            (
                Language::German,
                "Die Häuser aufeinanderfolgenden Straßen",
                "haus aufeinanderfolg strass",
            ),
            (Language::Russian, "важнейшие города", "важн город"),
            (Language::Turkish, "ILIK kitapları", "ılık kitap"),
            (Language::Swedish, "barnen och hästarna", "barn hast"),
            (Language::Romanian, "copiilor frumoase", "cop frumoas"),
            (Language::Hungarian, "a házakban", "haz"),
            (Language::None, "日本語、テスト。", "日本語 テスト"),
        ];
        for (language, text, wanted) in cases {
            assert_eq!(terms(text, language, Folding::default()).join(" "), wanted, "{text}");
        }
    }

    /// Samples of the vocabularies that Snowball publishes with its English, German and Russian stemmers.
    #[test]
    fn stems_are_those_of_snowball() {
        let samples = [
            (
                Language::English,
                "consolations:consol conspiracy:conspiraci knackeries:knackeri knots:knot skies:sky",
            ),
            (
                Language::English,
                "dying:die news:news generously:generous conspicuously:conspicu",
            ),
            (Language::German, "aufeinander:aufeinand kategorischer:kategor"),
            (Language::Russian, "вавиловка:вавиловк падают:пада"),
        ];
        for (language, pairs) in samples {
            for (word, stem) in pairs.split(' ').filter_map(|pair| pair.split_once(':')) {
                assert_eq!(terms(word, language, Folding::default()), [stem], "{word}");
            }
        }
    }

    #[test]
    fn case_and_diacritics_count_where_they_are_said_to() {
        let of = |case_sensitive, diacritic_sensitive| {
            let folding = Folding {
                case_sensitive,
                diacritic_sensitive,
            };
            terms("Zürich zurich The", Language::English, folding).join(" ")
        };
        assert_eq!(of(false, false), "zurich zurich");
        assert_eq!(of(true, false), "Zurich zurich");
        assert_eq!(of(false, true), "zürich zurich");
        assert_eq!(of(true, true), "Zürich zurich");
    }

    proptest! {
        /// No text is too strange for any language.
        #[test]
        fn any_text_has_terms(text in "\\PC{0,40}|[a-zà-ÿİıαёжъ' ]{0,60}|[aeioudystlnrgmbk]{1,14}") {
            for name in "none da nl en fi fr de hu it nb pt ro ru es sv tr".split(' ') {
                let language = Language::parse(name).expect("a language");
                for case_sensitive in [false, true] {
                    let folding = Folding { case_sensitive, diacritic_sensitive: case_sensitive };
                    for term in terms(&text, language, folding) {
                        prop_assert!(!term.is_empty());
                    }
                }
            }
        }
    }
}
