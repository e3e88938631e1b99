//! What it costs to take terms out of text: `cargo run --release -p text --example term_costs`.

#![expect(clippy::disallowed_methods, reason = "an example measures by the system's clock")]

use std::time::Instant;
use text::{Analyzer, Folding, Language, Scores};

/// Words of a document, and documents.
const WORDS: usize = 50;
const DOCUMENTS: usize = 20_000;

fn main() {
    let endings = ["", "s", "ing", "ed", "ness", "ation", "ly", ""];
    let mut state = 7_u64;
    let mut next = move |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) as usize % below
    };
    let letters = b"etaoinshrdlucmfwypvbgk";
    let mut word = || {
        let stem: String = (0..3 + next(7))
            .map(|_| char::from(letters[next(letters.len())]))
            .collect();
        stem + endings[next(endings.len())]
    };
    let words: Vec<String> = (0..30_000).map(|_| word()).collect();
    // The n-th word is 1/n as common as the first, about.
    let mut pick = || {
        let exponent = next(1 << 20) as f64 / (1 << 20) as f64;
        words[((words.len() as f64).powf(exponent) as usize).min(words.len() - 1)].as_str()
    };
    let texts: Vec<String> = (0..DOCUMENTS)
        .map(|_| (0..WORDS).map(|_| pick()).collect::<Vec<_>>().join(" "))
        .collect();
    for language in [Language::None, Language::English, Language::German] {
        let mut analyzer = Analyzer::new(language, Folding::default());
        let mut scores = Scores::new();
        let started = Instant::now();
        let mut terms = 0;
        for text in &texts {
            scores.clear();
            scores.add(text, &mut analyzer, 1.0);
            terms += scores.iter().count();
        }
        let per_word = started.elapsed() / (DOCUMENTS * WORDS) as u32;
        println!("{:8} {per_word:?} a word, {terms} terms", language.name());
    }
}
