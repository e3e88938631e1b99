//! What of strings ICU4X takes quadratic time for, kept short. Nothing can end it within a string.
//!
//! - A run of combining marks of which pairs contract: each pair is taken out of the middle of what is left. Runs are
//!   cut as Unicode's Stream-Safe Text Format does it (UAX 15, 13), but not before they are longer than those that
//!   people write on top of each other for fun: keys of strings with longer runs are others than ICU4X's.
//! - Comparing two strings that have the same long beginning: from where they differ it goes back, character by
//!   character, to a place from which on the order is that of the rests.

use icu_normalizer::properties::CanonicalCombiningClassMapBorrowed;
use std::borrow::Cow;

/// Most marks in a row. In keys on disk: it must not change.
const MARKS_MAX: usize = 128;
/// COMBINING GRAPHEME JOINER: has no weight, and nothing contracts across it.
const JOINER: char = '\u{34F}';
/// A mark has at least two bytes: each run that is too long has a character at a multiple of this.
const STRIDE: usize = 2 * MARKS_MAX;
/// How far back from where two strings differ a place to begin at is looked for. As many bytes without one are gone
/// through quickly.
const LOOK_BACK_BYTES: usize = 1024;

/// The text with every run of marks cut that is too long.
pub(crate) fn bounded(text: &str) -> Cow<'_, str> {
    if !has_long_run(text) {
        return Cow::Borrowed(text);
    }
    let mut cut = String::with_capacity(text.len() + text.len() / STRIDE * JOINER.len_utf8());
    let mut marks = 0;
    for character in text.chars() {
        marks = if is_mark(character) { marks + 1 } else { 0 };
        if marks > MARKS_MAX {
            cut.push(JOINER);
            marks = 1;
        }
        cut.push(character);
    }
    Cow::Owned(cut)
}

fn has_long_run(text: &str) -> bool {
    let mut sampled = STRIDE;
    while sampled < text.len() {
        // No character has more than four bytes.
        let start = (0..4)
            .map(|back| sampled - back)
            .find(|place| text.is_char_boundary(*place));
        let (before, after) = text.split_at(start.unwrap_or_default());
        let marks = |characters: &mut dyn Iterator<Item = char>| characters.take_while(|c| is_mark(*c)).count();
        let behind = marks(&mut after.chars());
        if behind > 0 && behind + marks(&mut before.chars().rev()) > MARKS_MAX {
            return true;
        }
        sampled += STRIDE;
    }
    false
}

/// Whether a character is a combining mark, or is taken apart into such.
fn is_mark(character: char) -> bool {
    match character {
        '\u{0}'..'\u{300}' => false,
        // Their class says that they are none.
        '\u{F73}' | '\u{F75}' | '\u{F81}' => true,
        character => CanonicalCombiningClassMapBorrowed::new().get_u8(character) != 0,
    }
}

/// Whether two strings are compared in about the time that it takes to see where they differ; if not, sort keys are.
pub(crate) fn is_compared_directly(a: &str, b: &str) -> bool {
    if a.len().min(b.len()) <= LOOK_BACK_BYTES || a == b {
        return true;
    }
    let (a, b) = (a.as_bytes(), b.as_bytes());
    let same = a.iter().zip(b).take_while(|(a, b)| a == b).count();
    let Some(start) = same.checked_sub(LOOK_BACK_BYTES) else {
        return true;
    };
    // Nothing contracts with a space before it, in any language, and no plain letter depends on one.
    a[start..same]
        .windows(2)
        .any(|pair| pair[0] == b' ' && pair[1].is_ascii_alphanumeric())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// As the module says it, without the sampling.
    fn longest_run(text: &str) -> usize {
        text.split(|character| !is_mark(character))
            .map(|run| run.chars().count())
            .max()
            .unwrap_or(0)
    }

    #[test]
    fn runs_of_marks_are_cut() {
        let tibetan = "\u{F71}\u{F72}".repeat(MARKS_MAX);
        let long = format!("x{tibetan}y");
        let cut = bounded(&long);
        assert_eq!(longest_run(&cut), MARKS_MAX);
        assert_eq!(cut.replace(JOINER, ""), long);
        for whole in [
            "\u{F71}\u{F72}".repeat(MARKS_MAX / 2),
            "a\u{301}".repeat(5000),
            "word ".repeat(5000),
        ] {
            assert!(matches!(bounded(&whole), Cow::Borrowed(_)));
        }
    }

    #[test]
    fn strings_with_long_beginnings_are_compared_by_keys() {
        let with = |part: &str, end: &str| part.repeat(2000) + end;
        assert!(is_compared_directly(
            &with("some words ", "x"),
            &with("some words ", "y")
        ));
        assert!(is_compared_directly(
            &with("a\u{301}", "x"),
            &format!("y{}", with("a\u{301}", "x"))
        ));
        assert!(!is_compared_directly(&with("a\u{301}", "x"), &with("a\u{301}", "y")));
        assert!(
            !is_compared_directly(&with("1", "2"), &with("1", "3")),
            "digits may count as one number"
        );
    }

    proptest! {
        #[test]
        fn no_run_is_overlooked(parts in proptest::collection::vec((0usize..400, 0usize..4), 0..6)) {
            let text: String = parts
                .iter()
                .map(|(count, kind)| ["a", "\u{301}", "\u{F73}", "\u{1D165}"][*kind].repeat(*count))
                .collect();
            prop_assert_eq!(has_long_run(&text), longest_run(&text) > MARKS_MAX);
            prop_assert!(longest_run(&bounded(&text)) <= MARKS_MAX);
        }
    }
}
