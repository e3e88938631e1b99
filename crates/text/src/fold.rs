//! Characters: which ones end a word, which ones are marks on others, and lower case.

use crate::Language;
use icu_normalizer::properties::{CanonicalDecompositionBorrowed, Decomposed};
use icu_properties::CodePointSetData;
use icu_properties::props::{Dash, Diacritic, Hyphen, PatternSyntax, QuotationMark, TerminalPunctuation, WhiteSpace};
use std::sync::LazyLock;

/// A set of characters: those of the first plane as bits.
struct Characters {
    first_plane: Vec<u64>,
    contains: fn(char) -> bool,
}

impl Characters {
    fn new(contains: fn(char) -> bool) -> Self {
        let mut first_plane = vec![0; 1 << 10];
        for character in (0..=0xFFFF).filter_map(char::from_u32).filter(|c| contains(*c)) {
            first_plane[character as usize >> 6] |= 1 << (character as u32 & 63);
        }
        Self { first_plane, contains }
    }

    fn has(&self, character: char) -> bool {
        match self.first_plane.get(character as usize >> 6) {
            Some(bits) => bits >> (character as u32 & 63) & 1 == 1,
            None => (self.contains)(character),
        }
    }
}

static DELIMITERS: LazyLock<Characters> = LazyLock::new(|| {
    Characters::new(|character| {
        CodePointSetData::new::<WhiteSpace>().contains(character)
            || CodePointSetData::new::<PatternSyntax>().contains(character)
            || CodePointSetData::new::<TerminalPunctuation>().contains(character)
            || CodePointSetData::new::<QuotationMark>().contains(character)
            || CodePointSetData::new::<Dash>().contains(character)
            || CodePointSetData::new::<Hyphen>().contains(character)
    })
});

static DIACRITICS: LazyLock<Characters> =
    LazyLock::new(|| Characters::new(|character| CodePointSetData::new::<Diacritic>().contains(character)));

/// Of the first 128 characters.
const fn is_ascii_delimiter(byte: u8) -> bool {
    matches!(byte, b'\t'..=b'\r' | b' '..=b'/' | b':'..=b'@' | b'['..=b'^' | b'`' | b'{'..=b'~')
}

/// Whether a word ends before this character. English words have apostrophes in them.
pub(crate) fn is_delimiter(character: char, language: Language) -> bool {
    match u8::try_from(character) {
        Ok(b'\'') => language != Language::English,
        Ok(byte) if byte.is_ascii() => is_ascii_delimiter(byte),
        _ => DELIMITERS.has(character),
    }
}

pub(crate) fn is_space(character: char) -> bool {
    character.is_whitespace()
}

/// Appends a text in lower case, character by character: Turkish has an i without a dot.
pub(crate) fn append_lower(text: &str, language: Language, out: &mut String) {
    if text.is_ascii() && language != Language::Turkish {
        let start = out.len();
        out.push_str(text);
        out[start..].make_ascii_lowercase();
        return;
    }
    let lower = |character: char| match (character, language) {
        ('I', Language::Turkish) => 'ı',
        ('İ', _) => 'i',
        (character, _) => character.to_lowercase().next().unwrap_or(character),
    };
    out.extend(text.chars().map(lower));
}

/// Appends a text without diacritics: characters that have some are taken apart first.
pub(crate) fn append_without_diacritics(text: &str, out: &mut String) {
    if text.is_ascii() && !text.contains(['^', '`']) {
        out.push_str(text);
        return;
    }
    text.chars().for_each(|character| append_bare(character, out));
}

fn append_bare(character: char, out: &mut String) {
    // Syllables of Hangul have no marks: they stay in one piece.
    let is_hangul = ('\u{AC00}'..='\u{D7A3}').contains(&character);
    if character.is_ascii() || is_hangul {
        if !matches!(character, '^' | '`') {
            out.push(character);
        }
        return;
    }
    match CanonicalDecompositionBorrowed::new().decompose(character) {
        Decomposed::Default if DIACRITICS.has(character) => {}
        Decomposed::Default => out.push(character),
        Decomposed::Singleton(only) => append_bare(only, out),
        Decomposed::Expansion(first, second) => {
            append_bare(first, out);
            append_bare(second, out);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_delimiters_of_ascii_are_those_of_unicode() {
        for byte in 0..128 {
            let character = char::from(byte);
            assert_eq!(is_ascii_delimiter(byte), DELIMITERS.has(character), "{character:?}");
        }
        assert!(is_delimiter('。', Language::None) && is_delimiter('\u{2014}', Language::None));
        assert!(!is_delimiter('_', Language::None) && !is_delimiter('é', Language::None));
        assert!(!is_delimiter('\'', Language::English) && is_delimiter('\'', Language::French));
    }

    #[test]
    fn marks_go_and_their_letters_stay() {
        let bare = |text: &str| {
            let mut out = String::new();
            append_without_diacritics(text, &mut out);
            out
        };
        assert_eq!(bare("café cafe\u{301} Ünïcödé"), "cafe cafe Unicode");
        assert_eq!(bare("ế ñ ø 한국"), "e n ø 한국");
        assert_eq!(bare("й"), "и");
    }

    #[test]
    fn lower_case_by_character() {
        let lower = |text: &str, language| {
            let mut out = String::new();
            append_lower(text, language, &mut out);
            out
        };
        assert_eq!(lower("ÀB'Σ", Language::English), "àb'σ");
        assert_eq!(lower("Iİ", Language::Turkish), "ıi");
        assert_eq!(lower("Iİ", Language::English), "ii");
    }
}
