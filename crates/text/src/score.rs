//! How much a term weighs in a document.
//!
//! Of each text of the document that is indexed, with weight w and n terms in all, a term that is in it c times adds
//!
//! `w * (1 + 1/2 + 1/4 + ... c parts) * (1/2 + c / 2n) * b`
//!
//! to its score, where b is 1.1 if the text is nothing but the term, letter by letter in any case, and else 1.
//! MongoDB's scores are computed so; they order the terms of short texts before those of long ones.

use crate::Analyzer;
use hashbrown::{DefaultHashBuilder, HashTable};
use std::hash::BuildHasher;

struct Scored {
    term: Box<str>,
    score: f64,
    /// In the text that is looked at: how often, and the sum of the parts.
    count: u32,
    frequency: f64,
}

/// The terms of one document with their scores. Keeps its memory.
#[derive(Default)]
pub struct Scores {
    terms: Vec<Scored>,
    places: HashTable<usize>,
    hasher: DefaultHashBuilder,
    /// Places of the terms of the text that is looked at.
    met: Vec<usize>,
    bytes: usize,
}

impl Scores {
    /// No terms.
    pub fn new() -> Self {
        Self::default()
    }

    /// Forgets all terms.
    pub fn clear(&mut self) {
        self.terms.clear();
        self.places.clear();
        self.bytes = 0;
    }

    /// Bytes of the terms, about.
    pub fn bytes(&self) -> usize {
        self.bytes + self.terms.len() * size_of::<Scored>()
    }

    /// The terms with their scores, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, f64)> {
        self.terms.iter().map(|scored| (&*scored.term, scored.score))
    }

    /// Adds what a text of this weight has.
    pub fn add(&mut self, text: &str, analyzer: &mut Analyzer, weight: f64) {
        let Self {
            terms,
            places,
            hasher,
            met,
            bytes,
        } = self;
        met.clear();
        let mut total = 0_u32;
        let counted = analyzer.terms::<std::convert::Infallible>(text, |term| {
            total += 1;
            let hash = hasher.hash_one(term);
            let found = places.find(hash, |place| *terms[*place].term == *term).copied();
            let place = found.unwrap_or_else(|| {
                *bytes += term.len();
                terms.push(Scored {
                    term: term.into(),
                    score: 0.0,
                    count: 0,
                    frequency: 0.0,
                });
                let place = terms.len() - 1;
                places.insert_unique(hash, place, |place| hasher.hash_one(&*terms[*place].term));
                place
            });
            let scored = &mut terms[place];
            if scored.count == 0 {
                met.push(place);
            }
            scored.frequency += 0.5_f64.powi(scored.count.min(1023) as i32);
            scored.count += 1;
            Ok(())
        });
        let Ok(()) = counted;
        for place in met.drain(..) {
            let scored = &mut terms[place];
            let share = 0.5 * f64::from(scored.count) / f64::from(total) + 0.5;
            let boost = if text.eq_ignore_ascii_case(&scored.term) {
                1.1
            } else {
                1.0
            };
            scored.score += weight * scored.frequency * share * boost;
            (scored.count, scored.frequency) = (0, 0.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Folding, Language};

    fn scores(texts: &[(&str, f64)], language: Language) -> Vec<(String, f64)> {
        let mut analyzer = Analyzer::new(language, Folding::default());
        let mut scores = Scores::new();
        for (text, weight) in texts {
            scores.add(text, &mut analyzer, *weight);
        }
        let mut found: Vec<_> = scores.iter().map(|(term, score)| (term.to_owned(), score)).collect();
        found.sort_by(|a, b| a.0.cmp(&b.0));
        found
    }

    fn pairs(wanted: &[(&str, f64)]) -> Vec<(String, f64)> {
        wanted
            .iter()
            .map(|(term, score)| ((*term).to_owned(), *score))
            .collect()
    }

    /// The scores that MongoDB's manual shows for its collection of articles.
    #[test]
    fn scores_are_those_of_the_manual() {
        assert_eq!(scores(&[("coffee", 1.0)], Language::English), pairs(&[("coffe", 1.0)]));
        let shopping = scores(&[("Coffee Shopping", 1.0)], Language::English);
        assert_eq!(shopping, pairs(&[("coffe", 0.75), ("shop", 0.75)]));
    }

    #[test]
    fn what_comes_again_adds_half_as_much() {
        let found = scores(&[("cat cat dog cat", 2.0)], Language::English);
        let cat = 2.0 * 1.75 * (0.5 * 3.0 / 4.0 + 0.5);
        assert_eq!(found, pairs(&[("cat", cat), ("dog", 2.0 * (0.5 / 4.0 + 0.5))]));
    }

    #[test]
    fn a_text_that_is_the_term_counts_more_and_texts_add_up() {
        assert_eq!(scores(&[("Cat", 1.0)], Language::English), pairs(&[("cat", 1.1)]));
        let both = scores(&[("cat", 1.0), ("cat food", 4.0)], Language::English);
        assert_eq!(both, pairs(&[("cat", 1.1 + 4.0 * 0.75), ("food", 3.0)]));
    }
}
