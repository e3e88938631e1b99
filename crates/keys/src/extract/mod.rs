//! The keys of a document in an index.
//!
//! Each field's path is walked into the document; where an array is met, every element gives a key (one level: an array
//! inside an array is a value). Fields that share an array give keys element by element together; two different arrays
//! are refused, for their product could be any size. A missing field is null, an empty array undefined. The module does
//! not know whether an index is unique, partial or built yet.
//!
//! Algorithm, per level of arrays:
//! 1. Walk every open field from its document along its path, to a value, to nothing, or to an array.
//! 2. No array met: the values are one key.
//! 3. All fields that met an array must have met the same one.
//! 4. A field whose next path part is the position of an element goes on in that element alone.
//! 5. For each element: the other fields of step 3 take it as their value or their document; start over with the rest.

mod key_set;
mod least;
mod pattern;
mod special;
mod text_terms;
mod wildcard;

pub use key_set::{ExtractedKey, KeySet, MultikeyPaths};
pub use pattern::{
    FieldKind, IndexPattern, PATH_FIELD, PATH_PARTS_MAX, PatternError, PatternField, SCORE_FIELD, TERM_FIELD,
};
pub use text_terms::{TextSpec, TextSpecError, key_term};
pub use wildcard::{WildcardSpec, WildcardSpecError, path_place};

use crate::Collator;
use crate::key::{FIELDS_MAX, KeyOrdering, encode_field, encode_missing};
use crate::raw::{Elements, Value};
use bson::raw::RawDocument;
use geometry::GeometryError;
use pattern::PathPart;
use std::sync::Arc;

/// Why a document has no keys in an index.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ExtractError {
    /// Two fields of the index are (in) different arrays. Code 171.
    #[error("cannot index parallel arrays [{second}] [{first}]")]
    ParallelArrays {
        /// Name of the array met first.
        first: String,
        /// Name of the other one.
        second: String,
    },
    /// A path part is both the position of an array element and a field of one of the elements. Code 16746.
    #[error(
        "Ambiguous field name found in array (do not use numeric field names in embedded elements in an array), \
         field: '{field}' for path: '{path}'"
    )]
    AmbiguousPosition {
        /// The part.
        field: String,
        /// The index's path.
        path: String,
    },
    /// A field of an index with a hashed field is, or is in, an array. Code 16766.
    #[error("hashed indexes do not currently support array values. Found array at path: {path}")]
    HashedArray {
        /// The index's path.
        path: String,
    },
    /// A field of a `2dsphere` index is no geometry. Code 16755.
    #[error("Can't extract geo keys: {path}: {error}")]
    NoGeometry {
        /// The index's path.
        path: String,
        /// What is wrong with it.
        error: GeometryError,
    },
    /// What stands among the points of a `2d` index is neither an array nor a document. Code 16804.
    #[error("location object expected, location array not in correct format: {path}")]
    NoLocation {
        /// The index's path.
        path: String,
    },
    /// A point of a `2d` index has one coordinate. Code 13068.
    #[error("geo field only has 1 element: {path}")]
    OneCoordinate {
        /// The index's path.
        path: String,
    },
    /// A point of a `2d` index is no pair of numbers. Code 13026.
    #[error("geo values must be 'legacy coordinate pairs' for 2d indexes: {path}: {error}")]
    NoPoint {
        /// The index's path.
        path: String,
        /// What is wrong with it.
        error: GeometryError,
    },
    /// A point lies outside of the grid of a `2d` index. Code 13027.
    #[error("point not in interval of [ {low}, {high} ]")]
    OutOfGrid {
        /// The least coordinate.
        low: f64,
        /// The greatest one.
        high: f64,
    },
    /// A field beside the text of a text index is, or is in, an array. Code 201.
    #[error("Field '{path}' of text index contains an array in document")]
    ArrayBesideText {
        /// The index's path.
        path: String,
    },
    /// A field beside the wildcard of a compound wildcard index is, or is in, an array. Code 7246301.
    #[error("a compound wildcard index has single values beside its wildcard, found an array at path: {path}")]
    ArrayBesideWildcard {
        /// The index's path.
        path: String,
    },
    /// What says which language a text is in is no string. Code 17261.
    #[error("found language override field in document with non-string type")]
    LanguageType,
    /// There is no such language. Code 17262.
    #[error("language override unsupported: {language}")]
    UnknownLanguage {
        /// What the document says.
        language: String,
    },
    /// Whoever watches the extraction ended it.
    #[error("the extraction of keys was ended")]
    Ended,
    /// The document is not BSON.
    #[error("the document is not valid BSON, found while extracting '{path}'")]
    Malformed {
        /// The index's path that was walked.
        path: String,
    },
}

/// Hears now and then how many bytes a document's keys take so far (of [`KeyExtractor::extract_least`] how many were
/// looked at since); answers false to end their extraction.
pub type Watch<'w> = dyn FnMut(usize) -> bool + 'w;

/// Bytes of keys between two looks of a [`Watch`].
const WATCHED_BYTES: usize = 64 << 10;

/// Takes the keys of one index out of documents.
#[derive(Clone)]
pub struct KeyExtractor {
    pattern: IndexPattern,
    sparse: bool,
    collator: Option<Arc<dyn Collator>>,
    text: Option<Arc<TextSpec>>,
    wildcard: Option<Arc<WildcardSpec>>,
}

impl KeyExtractor {
    /// Of an index. `sparse`: documents that have none of the fields have no key.
    pub fn new(pattern: IndexPattern, sparse: bool, collator: Option<Arc<dyn Collator>>) -> Self {
        Self {
            pattern,
            sparse,
            collator,
            text: None,
            wildcard: None,
        }
    }

    /// The same of a text index: which texts of documents are in it.
    pub fn with_text(mut self, text: Arc<TextSpec>) -> Self {
        self.text = Some(text);
        self
    }

    /// The same of a wildcard index: which paths are in it.
    pub fn with_wildcard(mut self, wildcard: Arc<WildcardSpec>) -> Self {
        self.wildcard = Some(wildcard);
        self
    }

    /// Which paths are in a wildcard index.
    pub fn wildcard(&self) -> Option<&Arc<WildcardSpec>> {
        self.wildcard.as_ref()
    }

    /// Which texts of documents are in a text index.
    pub fn text(&self) -> Option<&Arc<TextSpec>> {
        self.text.as_ref()
    }

    /// What the index is on.
    pub fn pattern(&self) -> &IndexPattern {
        &self.pattern
    }

    /// Whether documents without any of the fields have no key.
    pub fn is_sparse(&self) -> bool {
        self.sparse
    }

    /// The collator of the index's strings.
    pub fn collator(&self) -> Option<&dyn Collator> {
        self.collator.as_deref()
    }

    /// Puts the keys of `document` into `out`, which is emptied first; after an error its content means nothing.
    /// Cost: one pass over the document's fields per path, no allocation but what `out` grows by.
    pub fn extract(&self, document: &RawDocument, out: &mut KeySet) -> Result<(), ExtractError> {
        self.extract_watched(document, out, &mut |_| true)
    }

    /// As [`KeyExtractor::extract`], as long as `watch` lets it.
    pub fn extract_watched(
        &self,
        document: &RawDocument,
        out: &mut KeySet,
        watch: &mut Watch<'_>,
    ) -> Result<(), ExtractError> {
        out.clear();
        if let Some(kind) = self.pattern.special() {
            return self.extract_special(kind, document, out, watch);
        }
        if let [field] = self.pattern.fields()
            && let [part] = field.parts()
        {
            return self.extract_top_level(part, document, out, watch);
        }
        // Slots are copied for every array element, so there are not more than needed.
        match self.pattern.fields().len() {
            1 => self.extract_by_slots::<1>(document, out, watch),
            2..=4 => self.extract_by_slots::<4>(document, out, watch),
            _ => self.extract_by_slots::<FIELDS_MAX>(document, out, watch),
        }
    }

    fn extract_by_slots<const N: usize>(
        &self,
        document: &RawDocument,
        out: &mut KeySet,
        watch: &mut Watch<'_>,
    ) -> Result<(), ExtractError> {
        self.expand(Slot::at_start::<N>(document), out, &mut |slots, out| {
            self.push_key(slots, out);
            out.look(watch)
        })?;
        out.sort();
        Ok(())
    }

    /// The commonest index by far: one field, not dotted. The same as the general way, without its slots.
    fn extract_top_level(
        &self,
        part: &PathPart,
        document: &RawDocument,
        out: &mut KeySet,
        watch: &mut Watch<'_>,
    ) -> Result<(), ExtractError> {
        let Some(array) = self.extract_unless_array(part, document, out)? else {
            return Ok(());
        };
        out.multikey.insert(0, 0);
        let mut elements = Elements::new(array);
        while let Some(element) = elements.next().map_err(|_| self.malformed(0))? {
            let start = out.arena.len();
            self.push_field(0, Some(element.value), out);
            out.finish_key(start);
            out.look(watch)?;
        }
        if out.is_empty() {
            self.push_field(0, Some(Value::Undefined), out);
            out.finish_key(0);
        }
        out.sort();
        Ok(())
    }

    /// The key of one field, not dotted, or the array that it holds.
    fn extract_unless_array<'d>(
        &self,
        part: &PathPart,
        document: &'d RawDocument,
        out: &mut KeySet,
    ) -> Result<Option<&'d [u8]>, ExtractError> {
        match Elements::of(document).find(&part.name).map_err(|_| self.malformed(0))? {
            Some(Value::Array(array)) => Ok(Some(array)),
            None if self.sparse => Ok(None),
            value => {
                self.push_field(0, value, out);
                out.finish_key(0);
                Ok(None)
            }
        }
    }

    fn push_field(&self, index: usize, value: Option<Value<'_>>, out: &mut KeySet) {
        let order = self.ordering().field(index);
        match value {
            Some(value) => encode_field(&mut out.arena, Some(&mut out.types), value, order, self.collator()),
            None => encode_missing(&mut out.arena, &mut out.types, order),
        }
    }

    fn ordering(&self) -> KeyOrdering {
        self.pattern.ordering()
    }

    fn malformed(&self, field: usize) -> ExtractError {
        ExtractError::Malformed {
            path: self.pattern.fields()[field].path().to_owned(),
        }
    }

    /// Steps 1 to 5 of the module's algorithm. Recursion ends with the paths, each level uses up a part of one.
    /// Calls `found` with the slots of each key, all of them values or missing.
    fn expand<'a, const N: usize>(
        &self,
        mut slots: [Slot<'a>; N],
        out: &mut KeySet,
        found: &mut impl FnMut(&[Slot<'a>], &mut KeySet) -> Result<(), ExtractError>,
    ) -> Result<(), ExtractError> {
        let count = self.pattern.fields().len();
        let mut shared: Option<(&[u8], usize)> = None;
        for (index, slot) in slots[..count].iter_mut().enumerate() {
            let parts = self.pattern.fields()[index].parts();
            *slot = slot.walk(parts).map_err(|_| self.malformed(index))?;
            if let Slot::InArray { array, .. } = slot {
                match shared {
                    None => shared = Some((array, index)),
                    Some((first, _)) if std::ptr::eq(first, *array) => {}
                    Some((_, first)) => return Err(self.parallel_arrays(&slots, first, index)),
                }
            }
        }
        let Some((array, _)) = shared else {
            return found(&slots[..count], out);
        };
        let spread = self.enter_array(array, &mut slots, out)?;
        if spread == 0 {
            return self.expand(slots, out, found);
        }
        let mut elements = Elements::new(array);
        let mut empty = true;
        while let Some(element) = elements
            .next()
            .map_err(|_| self.malformed(spread.trailing_zeros() as usize))?
        {
            empty = false;
            self.expand(self.with_element(slots, spread, Some(element.value)), out, found)?;
        }
        if empty {
            self.expand(self.with_element(slots, spread, None), out, found)?;
        }
        Ok(())
    }

    /// Step 4. Returns the fields (bit i for field i) that spread over the elements.
    fn enter_array<'a, const N: usize>(
        &self,
        array: &'a [u8],
        slots: &mut [Slot<'a>; N],
        out: &mut KeySet,
    ) -> Result<u32, ExtractError> {
        let mut spread = 0;
        for (index, field) in self.pattern.fields().iter().enumerate() {
            let Slot::InArray { part, by_position, .. } = slots[index] else {
                continue;
            };
            match field.parts().get(part) {
                None if by_position => slots[index] = Slot::Value(Value::Array(array)),
                Some(next) if next.is_position => {
                    let element = Elements::new(array)
                        .find(&next.name)
                        .map_err(|_| self.malformed(index))?;
                    match element {
                        Some(element) => {
                            self.check_position(array, next, index)?;
                            slots[index] = Slot::after_position(element, part + 1, field.parts().len());
                        }
                        None => spread |= 1 << index,
                    }
                }
                _ => spread |= 1 << index,
            }
            if spread >> index & 1 == 1 {
                out.multikey.insert(index, part - 1);
            }
        }
        Ok(spread)
    }

    /// A position must not be the name of a field in one of the elements as well.
    fn check_position(&self, array: &[u8], part: &PathPart, index: usize) -> Result<(), ExtractError> {
        let mut elements = Elements::new(array);
        while let Some(element) = elements.next().map_err(|_| self.malformed(index))? {
            if let Value::Document(document) = element.value
                && Elements::new(document)
                    .find(&part.name)
                    .map_err(|_| self.malformed(index))?
                    .is_some()
            {
                return Err(ExtractError::AmbiguousPosition {
                    field: String::from_utf8_lossy(&part.name).into_owned(),
                    path: self.pattern.fields()[index].path().to_owned(),
                });
            }
        }
        Ok(())
    }

    /// The slots for one element; `None` stands for the lack of any.
    fn with_element<'a, const N: usize>(
        &self,
        mut slots: [Slot<'a>; N],
        spread: u32,
        element: Option<Value<'a>>,
    ) -> [Slot<'a>; N] {
        for (index, field) in self.pattern.fields().iter().enumerate() {
            if spread >> index & 1 == 0 {
                continue;
            }
            if let Slot::InArray { part, .. } = slots[index] {
                let at_end = part == field.parts().len();
                slots[index] = match element {
                    Some(value) if at_end => Slot::Value(value),
                    None if at_end => Slot::Value(Value::Undefined),
                    Some(Value::Document(document)) => Slot::Open { document, part },
                    _ => Slot::Missing,
                };
            }
        }
        slots
    }

    /// Step 2.
    fn push_key(&self, slots: &[Slot<'_>], out: &mut KeySet) {
        if self.sparse && slots.iter().all(|slot| matches!(slot, Slot::Missing)) {
            return;
        }
        let start = out.arena.len();
        for (index, slot) in slots.iter().enumerate() {
            self.push_field(index, slot.value(), out);
        }
        out.finish_key(start);
    }

    fn parallel_arrays(&self, slots: &[Slot<'_>], first: usize, second: usize) -> ExtractError {
        let name = |index: usize| {
            let parts = self.pattern.fields()[index].parts();
            let part = if let Slot::InArray { part, .. } = slots[index] {
                part
            } else {
                parts.len()
            };
            String::from_utf8_lossy(&parts[part - 1].name).into_owned()
        };
        ExtractError::ParallelArrays {
            first: name(first),
            second: name(second),
        }
    }
}

/// How far one field has come.
#[derive(Clone, Copy)]
enum Slot<'a> {
    /// The value is found.
    Value(Value<'a>),
    /// There is no such field.
    Missing,
    /// Goes on in this document with this part of the path.
    Open { document: &'a [u8], part: usize },
    /// Stands at an array that parts before `part` led to, the last of them by position where it says so.
    InArray {
        array: &'a [u8],
        part: usize,
        by_position: bool,
    },
}

impl<'a> Slot<'a> {
    /// As many as an index has fields, none of which has come anywhere.
    fn at_start<const N: usize>(document: &'a RawDocument) -> [Self; N] {
        let document = document.as_bytes();
        [Self::Open { document, part: 0 }; N]
    }

    /// The value that was found.
    fn value(&self) -> Option<Value<'a>> {
        match self {
            Slot::Value(value) => Some(*value),
            _ => None,
        }
    }

    /// Step 1: from an open document to a value, to nothing, or to an array.
    fn walk(self, parts: &[PathPart]) -> Result<Self, crate::raw::Malformed> {
        let Slot::Open { mut document, mut part } = self else {
            return Ok(self);
        };
        loop {
            let Some(next) = parts.get(part) else {
                return Ok(Slot::Value(Value::Document(document)));
            };
            let value = Elements::new(document).find(&next.name)?;
            part += 1;
            match value {
                None => return Ok(Slot::Missing),
                Some(Value::Array(array)) => {
                    return Ok(Slot::InArray {
                        array,
                        part,
                        by_position: false,
                    });
                }
                Some(value) if part == parts.len() => return Ok(Slot::Value(value)),
                Some(Value::Document(inner)) => document = inner,
                Some(_) => return Ok(Slot::Missing),
            }
        }
    }

    /// Step 4: at the element that a position named.
    fn after_position(element: Value<'a>, part: usize, parts: usize) -> Self {
        match element {
            Value::Array(array) => Slot::InArray {
                array,
                part,
                by_position: true,
            },
            value if part == parts => Slot::Value(value),
            Value::Document(document) => Slot::Open { document, part },
            _ => Slot::Missing,
        }
    }
}

#[cfg(test)]
mod tests;
