//! Dotted paths, and MongoDB's walk along them through documents and arrays.
//!
//! The walk gives every value that a predicate on the path has to look at. Arrays on the way are walked into one level:
//! their documents by the next name, their n-th element where the next component is the number n. It knows no
//! operators.
//!
//! Recursion is bounded by the number of components.

use bson::RawDocument;
use wire::ErrorCode;

use crate::QueryError;
use crate::raw::{self, Element, Elements, kind};

/// Most components a path may have: documents nest at most 200 levels.
pub const COMPONENTS_MAX: usize = 200;

/// One component of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    name: Box<str>,
    /// The number it is, when written as array indexes are: digits, no leading zero.
    index: Option<u32>,
}

impl Part {
    fn new(name: &str) -> Self {
        Self {
            name: name.into(),
            index: array_index(name.as_bytes()),
        }
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The array index that it names.
    pub fn index(&self) -> Option<u32> {
        self.index
    }
}

/// Names of the fields of a DBRef: paths may go through them although they begin with a dollar.
pub(crate) fn is_reference_field(name: &[u8]) -> bool {
    matches!(name, b"$ref" | b"$id" | b"$db")
}

/// The number that a name is, when it is written as the names of array elements are.
pub fn array_index(name: &[u8]) -> Option<u32> {
    let canonical = match name {
        [] => false,
        [b'0'] => true,
        [b'0', ..] => false,
        _ => name.len() < 10 && name.iter().all(u8::is_ascii_digit),
    };
    canonical.then(|| {
        name.iter()
            .fold(0, |number, digit| number * 10 + u32::from(digit - b'0'))
    })
}

/// A dotted path taken apart.
#[derive(Clone, PartialEq, Eq)]
pub struct Path {
    text: Box<str>,
    parts: Box<[Part]>,
}

impl Path {
    /// Splits a path at its dots. Fails (15) when it has too many components.
    pub fn new(text: &str) -> Result<Self, QueryError> {
        let parts: Box<[Part]> = text.split('.').map(Part::new).collect();
        if parts.len() > COMPONENTS_MAX {
            let message = format!(
                "FieldPath is too long: {} components, at most {COMPONENTS_MAX}",
                parts.len()
            );
            return Err(QueryError::new(ErrorCode::Overflow, message));
        }
        Ok(Self {
            text: text.into(),
            parts,
        })
    }

    /// The path as it was written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Its components; at least one.
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }
}

impl std::fmt::Debug for Path {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.text.fmt(f)
    }
}

/// What the walk does with an array that the path ends in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeafArray {
    /// Gives each element, then the array.
    Expand,
    /// Gives the array.
    Whole,
}

/// Calls `test` with each value at `path` until it answers true, and answers whether it did. A place where the path
/// does not lead anywhere gives `None`. The second argument is the index in the outermost array on the way whose
/// elements were walked, and not one named.
#[inline]
pub fn any<'a, F>(document: &'a RawDocument, path: &Path, leaf: LeafArray, mut test: F) -> Result<bool, QueryError>
where
    F: FnMut(Option<Element<'a>>, Option<u32>) -> Result<bool, QueryError>,
{
    let (first, rest) = path.parts.split_first().expect("a path has a component");
    let Some(element) = raw::find(document, first.name.as_bytes())? else {
        return test(None, None);
    };
    if rest.is_empty() && (element.kind() != kind::ARRAY || leaf == LeafArray::Whole) {
        return test(Some(element), None);
    }
    any_below(element, rest, leaf, None, &mut test)
}

type Test<'t, 'a> = &'t mut dyn FnMut(Option<Element<'a>>, Option<u32>) -> Result<bool, QueryError>;

fn any_in<'a>(
    frame: &'a RawDocument,
    parts: &[Part],
    leaf: LeafArray,
    outermost: Option<u32>,
    test: Test<'_, 'a>,
) -> Result<bool, QueryError> {
    let (first, rest) = parts.split_first().expect("callers have a component left");
    match raw::find(frame, first.name.as_bytes())? {
        Some(element) => any_below(element, rest, leaf, outermost, test),
        None => test(None, outermost),
    }
}

fn any_below<'a>(
    element: Element<'a>,
    rest: &[Part],
    leaf: LeafArray,
    outermost: Option<u32>,
    test: Test<'_, 'a>,
) -> Result<bool, QueryError> {
    match (element.kind(), rest) {
        (kind::ARRAY, []) if leaf == LeafArray::Expand => {
            for (index, item) in (0..).zip(Elements::new(element.frame()?)) {
                if test(Some(item?), outermost.or(Some(index)))? {
                    return Ok(true);
                }
            }
            test(Some(element), outermost)
        }
        (_, []) => test(Some(element), outermost),
        (kind::DOCUMENT, _) => any_in(element.frame()?, rest, leaf, outermost, test),
        (kind::ARRAY, _) => any_in_array(element, rest, leaf, outermost, test),
        _ => test(None, outermost),
    }
}

fn any_in_array<'a>(
    array: Element<'a>,
    rest: &[Part],
    leaf: LeafArray,
    outermost: Option<u32>,
    test: Test<'_, 'a>,
) -> Result<bool, QueryError> {
    for (index, item) in (0..).zip(Elements::new(array.frame()?)) {
        let item = item?;
        let on_the_way = outermost.or(Some(index));
        if item.kind() == kind::DOCUMENT && any_in(item.frame()?, rest, leaf, on_the_way, test)? {
            return Ok(true);
        }
        if rest[0].index != Some(index) {
            continue;
        }
        // An element reached by its number is not walked into once more where the path ends, and is no position that
        // was searched for.
        let found = match (rest.len(), item.kind()) {
            (1, _) => test(Some(item), outermost)?,
            (_, kind::DOCUMENT) => any_in(item.frame()?, &rest[1..], leaf, outermost, test)?,
            (_, kind::ARRAY) => any_in_array(item, &rest[1..], leaf, outermost, test)?,
            _ => false,
        };
        if found {
            return Ok(true);
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests;
