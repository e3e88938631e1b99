//! Keys of text indexes: one for each term of a document's text, with the term's score behind it and the values of the
//! index's other fields around both. Documents without text have no keys.
//!
//! Which texts count is the specification's `weights`: strings at these paths, and in arrays on the way or at the end.
//! With `$**` every string counts. A document, and each document inside, may say in which language its texts are.

use super::{ExtractError, FieldKind, KeyExtractor, KeySet, PATH_PARTS_MAX, Slot, WATCHED_BYTES, Watch};
use crate::raw::{Elements, Value};
use bson::raw::{RawBsonRef, RawDocument};
use md5::{Digest, Md5};
use std::borrow::Cow;
use std::collections::HashMap;
use text::{Analyzer, Folding, Language, Scores};

/// Longest term in keys, in bytes; of a longer one the beginning and a hash stand there.
const TERM_BYTES_MAX: usize = 256;
const HASH_DIGITS: usize = 32;
/// The path of every text.
const EVERYTHING: &str = "$**";

/// The texts of a text index.
#[derive(Clone, Debug, PartialEq)]
pub struct TextSpec {
    weights: Weights,
    /// Of texts that no path leads to.
    everything: Option<f64>,
    default_language: Language,
    language_override: String,
}

/// What is wrong with a text index's specification. `CannotCreateIndex` (67).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct TextSpecError(String);

/// Paths as a tree of names, no deeper than [`PATH_PARTS_MAX`]: what walks it recurses.
#[derive(Clone, Debug, Default, PartialEq)]
struct Weights {
    weight: Option<f64>,
    below: HashMap<Box<str>, Weights>,
}

impl Weights {
    fn insert(&mut self, path: &str, weight: f64) {
        let mut node = self;
        for name in path.split('.') {
            node = node.below.entry(name.into()).or_default();
        }
        node.weight = Some(weight);
    }

    fn child(&self, name: &[u8]) -> Option<&Weights> {
        self.below.get(std::str::from_utf8(name).ok()?)
    }
}

/// Receives a text, its language and its weight.
type Receive<'r, E> = dyn FnMut(&str, Language, f64) -> Result<(), E> + 'r;

impl TextSpec {
    /// From an index's specification: `weights`, `default_language`, `language_override`.
    pub fn parse(spec: &RawDocument) -> Result<Self, TextSpecError> {
        let wrong = |what: String| Err(TextSpecError(what));
        let mut parsed = Self {
            weights: Weights::default(),
            everything: None,
            default_language: Language::English,
            language_override: "language".to_owned(),
        };
        match spec.get("weights") {
            Ok(Some(RawBsonRef::Document(weights))) => {
                for (path, weight) in weights.into_iter().flatten() {
                    let Some(weight) = geometry::read::number(weight) else {
                        return wrong(format!("weight for text index needs numeric type: {}", path.as_str()));
                    };
                    parsed.add(path.as_str(), weight);
                }
            }
            _ => return wrong("a text index has weights".to_owned()),
        }
        if let Ok(Some(language)) = spec.get("default_language") {
            let known = language.as_str().and_then(Language::parse);
            match known {
                Some(language) => parsed.default_language = language,
                None => return wrong("default_language is not valid".to_owned()),
            }
        }
        if let Ok(Some(field)) = spec.get("language_override") {
            match field.as_str() {
                Some(name) if !name.is_empty() && !name.starts_with('$') => {
                    name.clone_into(&mut parsed.language_override)
                }
                _ => return wrong("language_override is not valid".to_owned()),
            }
        }
        Ok(parsed)
    }

    fn add(&mut self, path: &str, weight: f64) {
        if path == EVERYTHING {
            self.everything = Some(weight);
        } else if path.split('.').nth(PATH_PARTS_MAX).is_none() {
            self.weights.insert(path, weight);
        }
        // A longer path is refused where indexes are made. One that is defined already leads to nothing: no document
        // is nested so deep.
    }

    /// The language of texts and searches that name none.
    pub fn default_language(&self) -> Language {
        self.default_language
    }

    /// Whether there is a path, of those that texts and their languages are read from, for which `touches` says so.
    pub fn is_touched(&self, touches: &mut dyn FnMut(&str) -> bool) -> bool {
        self.everything.is_some() || self.is_touched_below(&self.weights, &mut String::new(), touches)
    }

    /// `path` leads to the node, with a dot at its end, and is given back as it was.
    fn is_touched_below(&self, node: &Weights, path: &mut String, touches: &mut dyn FnMut(&str) -> bool) -> bool {
        let length = path.len();
        path.push_str(&self.language_override);
        let mut is_touched = touches(path);
        path.truncate(length);
        for (name, below) in &node.below {
            if is_touched {
                break;
            }
            path.push_str(name);
            is_touched = below.weight.is_some() && touches(path);
            path.push('.');
            is_touched = is_touched || self.is_touched_below(below, path, touches);
            path.truncate(length);
        }
        is_touched
    }

    /// Calls `receive` with every text of a document. Damaged documents and languages that are none are its errors.
    pub fn texts<E: From<ExtractError>>(&self, document: &RawDocument, receive: &mut Receive<'_, E>) -> Result<(), E> {
        let walk = Walk {
            spec: self,
            is_array: false,
            language: self.default_language,
        };
        walk.run(document.as_bytes(), Some(&self.weights), receive)
    }

    fn language_of(&self, document: &[u8], around: Language) -> Result<Language, ExtractError> {
        let name = Elements::new(document)
            .find(self.language_override.as_bytes())
            .map_err(|_| malformed())?;
        match name {
            None => Ok(around),
            Some(Value::String(name)) => {
                let name = String::from_utf8_lossy(name);
                Language::parse(&name).ok_or_else(|| ExtractError::UnknownLanguage {
                    language: name.into_owned(),
                })
            }
            Some(_) => Err(ExtractError::LanguageType),
        }
    }
}

fn malformed() -> ExtractError {
    ExtractError::Malformed {
        path: super::TERM_FIELD.to_owned(),
    }
}

/// Where in a document the walk is.
#[derive(Clone, Copy)]
struct Walk<'s> {
    spec: &'s TextSpec,
    is_array: bool,
    language: Language,
}

impl Walk<'_> {
    fn run<E: From<ExtractError>>(
        mut self,
        document: &[u8],
        weights: Option<&Weights>,
        receive: &mut Receive<'_, E>,
    ) -> Result<(), E> {
        if !self.is_array {
            self.language = self.spec.language_of(document, self.language)?;
        }
        let everything = self.spec.everything;
        let mut elements = Elements::new(document);
        while let Some(element) = elements.next().map_err(|_| malformed())? {
            let of_element = match self.is_array {
                true => weights,
                false => weights.and_then(|weights| weights.child(element.name)),
            };
            let is_language = !self.is_array && element.name == self.spec.language_override.as_bytes();
            if of_element.is_none() && (everything.is_none() || is_language) {
                continue;
            }
            let inside = |is_array| Walk { is_array, ..self };
            match element.value {
                Value::String(text) => {
                    let weight = of_element.and_then(|weights| weights.weight).or(everything);
                    if let (Some(weight), Ok(text)) = (weight, std::str::from_utf8(text)) {
                        receive(text, self.language, weight)?;
                    }
                }
                Value::Document(document) => inside(false).run(document, of_element, receive)?,
                Value::Array(array) => inside(true).run(array, of_element, receive)?,
                _ => {}
            }
        }
        Ok(())
    }
}

/// What text is gathered in, kept from document to document.
pub(super) struct TermScratch {
    scores: Scores,
    analyzer: Analyzer,
}

impl std::fmt::Debug for TermScratch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TermScratch")
    }
}

/// A term as it stands in keys.
pub fn key_term(term: &str) -> Cow<'_, str> {
    if term.len() <= TERM_BYTES_MAX {
        return Cow::Borrowed(term);
    }
    let mut end = TERM_BYTES_MAX - HASH_DIGITS;
    while !term.is_char_boundary(end) {
        end -= 1;
    }
    let digest: [u8; 16] = Md5::digest(term.as_bytes()).into();
    let mut short = term[..end].to_owned();
    digest.iter().for_each(|byte| short.push_str(&format!("{byte:02x}")));
    Cow::Owned(short)
}

impl KeyExtractor {
    pub(super) fn extract_text(
        &self,
        document: &RawDocument,
        out: &mut KeySet,
        watch: &mut Watch<'_>,
    ) -> Result<(), ExtractError> {
        let spec = self.text.as_ref().ok_or_else(malformed)?;
        let mut scratch = out.terms.take().unwrap_or_else(|| {
            Box::new(TermScratch {
                scores: Scores::new(),
                analyzer: Analyzer::new(spec.default_language, Folding::default()),
            })
        });
        let TermScratch { scores, analyzer } = &mut *scratch;
        scores.clear();
        let mut looked_at = 0;
        spec.texts::<ExtractError>(document, &mut |text, language, weight| {
            analyzer.set_language(language);
            scores.add(text, analyzer, weight);
            looked_at += text.len();
            if looked_at >= WATCHED_BYTES {
                looked_at = 0;
                if !watch(scores.bytes()) {
                    return Err(ExtractError::Ended);
                }
            }
            Ok(())
        })?;
        let values = self.values_beside_text(document)?;
        let term_at = self.place_of_terms();
        for (term, score) in scores.iter() {
            let start = out.arena.len();
            for (index, value) in values.iter().enumerate() {
                match self.pattern.fields()[index].kind() {
                    FieldKind::Term => self.push_field(index, Some(Value::String(key_term(term).as_bytes())), out),
                    FieldKind::Score => self.push_field(index, Some(Value::Double(score)), out),
                    _ => self.push_field(index, *value, out),
                }
            }
            out.finish_key(start);
            out.look(watch)?;
        }
        if out.len() > 1 {
            out.multikey.insert(term_at, 0);
        }
        out.terms = Some(scratch);
        out.sort();
        Ok(())
    }

    fn place_of_terms(&self) -> usize {
        let mut fields = self.pattern.fields().iter();
        fields.position(|field| field.kind() == FieldKind::Term).unwrap_or(0)
    }

    /// The values of the fields that are no text, `None` where there is none.
    fn values_beside_text<'d>(&self, document: &'d RawDocument) -> Result<Vec<Option<Value<'d>>>, ExtractError> {
        let value_of = |(index, field): (usize, &super::PatternField)| {
            if field.kind() != FieldKind::Value {
                return Ok(None);
            }
            let open = Slot::Open {
                document: document.as_bytes(),
                part: 0,
            };
            match open.walk(field.parts()).map_err(|_| self.malformed(index))? {
                Slot::Value(value) => Ok(Some(value)),
                Slot::InArray { .. } => Err(ExtractError::ArrayBesideText {
                    path: field.path().to_owned(),
                }),
                Slot::Missing | Slot::Open { .. } => Ok(None),
            }
        };
        self.pattern.fields().iter().enumerate().map(value_of).collect()
    }
}
