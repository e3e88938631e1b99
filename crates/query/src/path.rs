//! Dotted paths, and MongoDB's walk along them through documents and arrays.
//!
//! The walk gives every value that a predicate on the path has to look at. Arrays on the way are walked into one level:
//! their documents by the next name, their n-th element where the next component is the number n. It knows no
//! operators.
//!
//! Recursion is bounded by the number of components.

use std::collections::HashMap;

use bson::RawDocument;
use wire::ErrorCode;

use crate::QueryError;
use crate::evaluation::{EvaluationContext, HELD_BYTES_MAX};
use crate::raw::{self, Element, Elements, kind};
use crate::update::DOCUMENT_BYTES_MAX;
use crate::value::BYTES_PER_STEP;

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
///
/// The walk ends with its operation: every element of an array that is walked and every value that is given is a step
/// of `context`, and long documents that are searched are several. Where many names are numbers, ways to an array that
/// repeat an earlier one are left out, so `test` may get a value less often than there are ways to it.
#[inline]
pub fn any<'a, F>(
    document: &'a RawDocument,
    path: &Path,
    leaf: LeafArray,
    context: &EvaluationContext<'_>,
    mut test: F,
) -> Result<bool, QueryError>
where
    F: FnMut(Option<Element<'a>>, Option<u32>) -> Result<bool, QueryError>,
{
    let (first, rest) = path.parts.split_first().expect("a path has a component");
    // A name that is not there is looked for in all of the document.
    context.steps(1 + document.as_bytes().len() / BYTES_PER_STEP)?;
    let Some(element) = raw::find(document, first.name.as_bytes())? else {
        return test(None, None);
    };
    if rest.is_empty() && (element.kind() != kind::ARRAY || leaf == LeafArray::Whole) {
        return test(Some(element), None);
    }
    let mut walk = Walk {
        leaf,
        context,
        test: &mut test,
        forks: 0,
        visited: HashMap::new(),
    };
    let held = context.held();
    let found = walk.below(element, rest, None);
    context.release_to(held);
    found
}

type Test<'t, 'a> = &'t mut dyn FnMut(Option<Element<'a>>, Option<u32>) -> Result<bool, QueryError>;

/// Forks on one way from which on it is remembered what was visited. With fewer, an array is visited 16 times at most.
const FORKS_MAX: u32 = 4;

/// A bit for each number of names that can be left.
type NamesLeft = [u64; COMPONENTS_MAX.div_ceil(64)];

/// Bytes that an array takes which is remembered.
const VISITED_BYTES: usize = 2 * size_of::<(usize, NamesLeft)>();

/// The shortest array with a name and without an element.
const ARRAY_BYTES_MIN: usize = 7;

// All arrays of a stored document may be remembered: whether it is in a partial index is no question of memory.
const _: () = assert!(DOCUMENT_BYTES_MAX / ARRAY_BYTES_MIN * VISITED_BYTES < HELD_BYTES_MAX);

/// A walk that has come to a value that is not the last one of its path, or is an array.
///
/// A *fork* is a document in an array whose index is the next name: its fields may have that name, or the one behind
/// it. Both ways can lead to the same array, with different names left to follow, and nested forks have exponentially
/// many.
struct Walk<'t, 'a, 'c> {
    leaf: LeafArray,
    context: &'c EvaluationContext<'c>,
    test: Test<'t, 'a>,
    /// On the way to where the walk is.
    forks: u32,
    /// Arrays behind [`FORKS_MAX`] forks, by where they are, and with which numbers of names left they were visited: no
    /// second visit finds what the first did not.
    visited: HashMap<usize, NamesLeft>,
}

impl<'a> Walk<'_, 'a, '_> {
    fn give(&mut self, element: Option<Element<'a>>, outermost: Option<u32>) -> Result<bool, QueryError> {
        self.context.step()?;
        (self.test)(element, outermost)
    }

    fn within(&mut self, frame: &'a RawDocument, parts: &[Part], outermost: Option<u32>) -> Result<bool, QueryError> {
        let (first, rest) = parts.split_first().expect("callers have a component left");
        self.context.steps(frame.as_bytes().len() / BYTES_PER_STEP)?;
        match raw::find(frame, first.name.as_bytes())? {
            Some(element) => self.below(element, rest, outermost),
            None => self.give(None, outermost),
        }
    }

    fn below(&mut self, element: Element<'a>, rest: &[Part], outermost: Option<u32>) -> Result<bool, QueryError> {
        match (element.kind(), rest) {
            (kind::ARRAY, []) if self.leaf == LeafArray::Expand => {
                for (index, item) in (0..).zip(Elements::new(element.frame()?)) {
                    if self.give(Some(item?), outermost.or(Some(index)))? {
                        return Ok(true);
                    }
                }
                self.give(Some(element), outermost)
            }
            (_, []) => self.give(Some(element), outermost),
            (kind::DOCUMENT, _) => self.within(element.frame()?, rest, outermost),
            (kind::ARRAY, _) => self.array(element, rest, outermost),
            _ => self.give(None, outermost),
        }
    }

    fn array(&mut self, array: Element<'a>, rest: &[Part], outermost: Option<u32>) -> Result<bool, QueryError> {
        if self.forks >= FORKS_MAX {
            if array.value_bytes() == raw::EMPTY_DOCUMENT {
                return Ok(false);
            }
            let arrays = self.visited.len();
            let place = array.value_bytes().as_ptr().addr();
            let visited = self.visited.entry(place).or_default();
            let (word, bit) = (rest.len() / 64, 1_u64 << (rest.len() % 64));
            if visited[word] & bit != 0 {
                return Ok(false);
            }
            visited[word] |= bit;
            if self.visited.len() > arrays {
                self.context.hold(VISITED_BYTES)?;
            }
        }
        for (index, item) in (0..).zip(Elements::new(array.frame()?)) {
            let item = item?;
            self.context.step()?;
            let is_named = rest[0].index == Some(index);
            let is_fork = is_named && item.kind() == kind::DOCUMENT;
            self.forks += u32::from(is_fork);
            let found = item.kind() == kind::DOCUMENT && self.within(item.frame()?, rest, outermost.or(Some(index)))?
                || is_named && self.named(item, &rest[1..], outermost)?;
            self.forks -= u32::from(is_fork);
            if found {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// An element reached by its number is not walked into once more where the path ends, and is no position that was
    /// searched for.
    fn named(&mut self, item: Element<'a>, rest: &[Part], outermost: Option<u32>) -> Result<bool, QueryError> {
        match (rest, item.kind()) {
            ([], _) => self.give(Some(item), outermost),
            (_, kind::DOCUMENT) => self.within(item.frame()?, rest, outermost),
            (_, kind::ARRAY) => self.array(item, rest, outermost),
            _ => Ok(false),
        }
    }
}

#[cfg(test)]
mod tests;
