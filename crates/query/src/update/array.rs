//! `$push`, `$addToSet`, `$pop`, `$pull` and `$pullAll`: operators on whole arrays.

use std::cmp::Ordering;
use std::collections::HashSet;

use bson::{RawBsonRef, RawDocument};
use keys::FieldOrder;

use super::leaf::{Change, End, Surroundings};
use crate::QueryError;
use crate::matcher::{ValuePredicate, equals};
use crate::path::Path;
use crate::raw::{self, Constant, Element, Elements, Frame, kind};
use crate::value::BYTES_PER_STEP;
use crate::value::scan::Malformed;

/// `$push`.
#[derive(Clone, Debug)]
pub(super) struct Push {
    pub(super) values: Vec<Constant>,
    /// Where the values go; negative from the end. `None` is the end.
    pub(super) position: Option<i64>,
    /// Keep so many: from the front, or from the end when negative.
    pub(super) slice: Option<i64>,
    pub(super) sort: Option<PushSort>,
}

/// `$sort` of `$push`.
#[derive(Clone, Debug)]
pub(super) enum PushSort {
    /// By the elements themselves.
    Whole(Direction),
    /// By fields of the elements.
    Fields(Vec<(Path, Direction)>),
}

/// Rising or falling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    Rising,
    Falling,
}

/// Values up to which `$addToSet` compares each with all that are there.
const COMPARED_VALUES: usize = 16;

/// Bookkeeping of a key in a set, about.
const KEY_BYTES: usize = 48;

/// `$addToSet`.
#[derive(Clone, Debug)]
pub(super) struct AddToSet {
    pub(super) values: Vec<Constant>,
}

/// `$pull` and `$pullAll`.
#[derive(Clone, Debug)]
pub(super) enum Pull {
    Matching(ValuePredicate),
    Equal(Vec<Constant>),
}

/// An array's element: of the stored array, or pushed.
#[derive(Clone, Copy)]
enum Item<'a> {
    Stored(Element<'a>),
    New(&'a Constant),
}

impl<'a> Item<'a> {
    fn value(self) -> Result<RawBsonRef<'a>, QueryError> {
        match self {
            Item::Stored(element) => Ok(element.value()?),
            Item::New(constant) => Ok(constant.value()),
        }
    }

    fn append(self, index: usize, out: &mut Vec<u8>) {
        match self {
            Item::Stored(element) => raw::append_indexed(out, element.kind(), index, element.value_bytes()),
            Item::New(constant) => raw::append_indexed(out, constant.kind(), index, constant.bytes()),
        }
    }
}

/// The bytes of an array without its final zero byte, and the number of its elements.
fn open(array: &RawDocument, out: &mut Vec<u8>) -> Result<(Frame, usize), QueryError> {
    let mut count = 0;
    for item in Elements::new(array) {
        item?;
        count += 1;
    }
    let frame = Frame::begin(out);
    out.extend_from_slice(&array.as_bytes()[4..array.as_bytes().len() - 1]);
    Ok((frame, count))
}

impl Push {
    pub(super) fn change(
        &self,
        element: Element<'_>,
        around: &Surroundings<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Change, QueryError> {
        if element.kind() != kind::ARRAY {
            return Err(QueryError::bad_value(format!(
                "The field '{}' must be an array but is of type {} in document {}",
                element.name_lossy(),
                raw::type_name(element.element_type()?),
                around.id()
            )));
        }
        let array = element.frame()?;
        if self.position.is_none() && self.slice.is_none() && self.sort.is_none() {
            if self.values.is_empty() {
                return Ok(Change::Same);
            }
            let (frame, count) = open(array, out)?;
            for (index, value) in (count..).zip(&self.values) {
                raw::append_indexed(out, value.kind(), index, value.bytes());
            }
            frame.finish(out);
            return Ok(Change::Value(kind::ARRAY));
        }
        let stored = Elements::new(array)
            .map(|item| item.map(Item::Stored))
            .collect::<Result<Vec<_>, _>>()?;
        let start = out.len();
        self.write(stored, around, out)?;
        Ok(if out[start..] == *element.value_bytes() {
            Change::Same
        } else {
            Change::Value(kind::ARRAY)
        })
    }

    pub(super) fn create(&self, around: &Surroundings<'_>, out: &mut Vec<u8>) -> Result<u8, QueryError> {
        self.write(Vec::new(), around, out)?;
        Ok(kind::ARRAY)
    }

    fn write<'a>(
        &'a self,
        mut items: Vec<Item<'a>>,
        around: &Surroundings<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), QueryError> {
        let length = items.len();
        let distance = self
            .position
            .map_or(length, |position| saturating(position.unsigned_abs()));
        let at = match self.position {
            Some(position) if position < 0 => length.saturating_sub(distance),
            _ => distance.min(length),
        };
        items.splice(at..at, self.values.iter().map(Item::New));
        if let Some(sort) = &self.sort {
            sort.sort(&mut items, around)?;
        }
        let kept = match self.slice {
            None => &items[..],
            Some(slice) if slice < 0 => &items[items.len().saturating_sub(saturating(slice.unsigned_abs()))..],
            Some(slice) => &items[..items.len().min(saturating(slice.unsigned_abs()))],
        };
        let frame = Frame::begin(out);
        for (index, item) in kept.iter().enumerate() {
            item.append(index, out);
        }
        frame.finish(out);
        Ok(())
    }
}

fn saturating(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

impl PushSort {
    fn sort(&self, items: &mut Vec<Item<'_>>, around: &Surroundings<'_>) -> Result<(), QueryError> {
        let values = items.iter().map(|item| item.value()).collect::<Result<Vec<_>, _>>()?;
        let places: Vec<usize> = (0..items.len()).collect();
        let places = around
            .evaluation
            .sort(places, |a, b| self.order(values[*a], values[*b], around))?;
        *items = places.into_iter().map(|place| items[place]).collect();
        Ok(())
    }

    fn order(&self, a: RawBsonRef<'_>, b: RawBsonRef<'_>, around: &Surroundings<'_>) -> Ordering {
        let compare = |a, b, direction| {
            let order = keys::order::compare_with(a, b, around.collator());
            if direction == Direction::Falling {
                order.reverse()
            } else {
                order
            }
        };
        match self {
            PushSort::Whole(direction) => compare(a, b, *direction),
            PushSort::Fields(fields) => fields
                .iter()
                .map(|(path, direction)| compare(field(a, path), field(b, path), *direction))
                .find(|order| order.is_ne())
                .unwrap_or(Ordering::Equal),
        }
    }
}

/// The value at a path through documents and positions of arrays; null where there is none,
/// or `value` is no document.
fn field<'a>(value: RawBsonRef<'a>, path: &Path) -> RawBsonRef<'a> {
    let RawBsonRef::Document(mut frame) = value else {
        return RawBsonRef::Null;
    };
    let mut parts = path.parts().iter().peekable();
    while let Some(part) = parts.next() {
        // The names of an array's elements are their positions.
        let Ok(Some(found)) = raw::find(frame, part.name().as_bytes()) else {
            break;
        };
        if parts.peek().is_none() {
            return found.value().unwrap_or(RawBsonRef::Null);
        }
        let (kind::DOCUMENT | kind::ARRAY, Ok(inner)) = (found.kind(), found.frame()) else {
            break;
        };
        frame = inner;
    }
    RawBsonRef::Null
}

impl AddToSet {
    pub(super) fn change(
        &self,
        element: Element<'_>,
        around: &Surroundings<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Change, QueryError> {
        if element.kind() != kind::ARRAY {
            return Err(QueryError::bad_value(format!(
                "Cannot apply $addToSet to non-array field. Field named '{}' has non-array type {}",
                element.name_lossy(),
                raw::type_name(element.element_type()?)
            )));
        }
        let array = element.frame()?;
        let added = match self.values.len() {
            0..=COMPARED_VALUES => self.added_by_comparison(array, around)?,
            _ => self.added_by_keys(array, around)?,
        };
        if added.is_empty() {
            return Ok(Change::Same);
        }
        let (frame, count) = open(array, out)?;
        for (index, value) in (count..).zip(added) {
            raw::append_indexed(out, value.kind(), index, value.bytes());
        }
        frame.finish(out);
        Ok(Change::Value(kind::ARRAY))
    }

    /// The values that are not in the array, each once.
    fn added_by_comparison<'s>(
        &'s self,
        array: &RawDocument,
        around: &Surroundings<'_>,
    ) -> Result<Vec<&'s Constant>, QueryError> {
        let mut added: Vec<&Constant> = Vec::new();
        for value in &self.values {
            let mut is_there = is_among(value, &added, around)?;
            for item in Elements::new(array) {
                if is_there {
                    break;
                }
                around.evaluation.step()?;
                is_there = equals(value, item?, around.collator())?;
            }
            if !is_there {
                added.push(value);
            }
        }
        Ok(added)
    }

    /// The same, by the bytes that are equal where values are.
    fn added_by_keys<'s>(
        &'s self,
        array: &RawDocument,
        around: &Surroundings<'_>,
    ) -> Result<Vec<&'s Constant>, QueryError> {
        let mark = around.evaluation.held();
        let mut wanted = ValueKeys::of(&self.values, around)?;
        // There may be many more elements than values: nothing is kept of them.
        for item in Elements::new(array) {
            if wanted.keys.is_empty() {
                break;
            }
            wanted.remove(item?.value()?)?;
        }
        let mut added = Vec::new();
        for value in &self.values {
            if wanted.keys.is_empty() {
                break;
            }
            // The first of equal ones.
            if wanted.remove(value.value())? {
                added.push(value);
            }
        }
        around.evaluation.release_to(mark);
        Ok(added)
    }

    pub(super) fn create(&self, around: &Surroundings<'_>, out: &mut Vec<u8>) -> Result<u8, QueryError> {
        let empty = RawDocument::from_bytes(raw::EMPTY_DOCUMENT).map_err(|_| Malformed)?;
        let added = match self.values.len() {
            0..=COMPARED_VALUES => self.added_by_comparison(empty, around)?,
            _ => self.added_by_keys(empty, around)?,
        };
        let frame = Frame::begin(out);
        for (index, value) in added.into_iter().enumerate() {
            raw::append_indexed(out, value.kind(), index, value.bytes());
        }
        frame.finish(out);
        Ok(kind::ARRAY)
    }
}

/// Values by the bytes that are equal where they are. The memory is held until the caller releases it.
struct ValueKeys<'s> {
    keys: HashSet<Box<[u8]>>,
    scratch: Vec<u8>,
    around: &'s Surroundings<'s>,
}

impl<'s> ValueKeys<'s> {
    fn of(values: &[Constant], around: &'s Surroundings<'s>) -> Result<Self, QueryError> {
        let mut keys = Self {
            keys: HashSet::with_capacity(values.len()),
            scratch: Vec::new(),
            around,
        };
        for value in values {
            keys.encode(value.value())?;
            around.evaluation.hold(keys.scratch.len() + KEY_BYTES)?;
            keys.keys.insert(keys.scratch.as_slice().into());
        }
        Ok(keys)
    }

    fn encode(&mut self, value: RawBsonRef<'_>) -> Result<(), QueryError> {
        self.scratch.clear();
        keys::key::encode_value(&mut self.scratch, value, FieldOrder::Ascending, self.around.collator());
        self.around.evaluation.steps(1 + self.scratch.len() / BYTES_PER_STEP)
    }

    fn contains(&mut self, value: RawBsonRef<'_>) -> Result<bool, QueryError> {
        self.encode(value)?;
        Ok(self.keys.contains(self.scratch.as_slice()))
    }

    fn remove(&mut self, value: RawBsonRef<'_>) -> Result<bool, QueryError> {
        self.encode(value)?;
        Ok(self.keys.remove(self.scratch.as_slice()))
    }
}

fn is_among(value: &Constant, others: &[&Constant], around: &Surroundings<'_>) -> Result<bool, QueryError> {
    for other in others {
        around.evaluation.step()?;
        if keys::order::compare_with(value.value(), other.value(), around.collator()).is_eq() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Writes the elements that `keep` approves of, numbered anew; `Same` when these are all.
fn retain(
    element: Element<'_>,
    out: &mut Vec<u8>,
    mut keep: impl FnMut(usize, Element<'_>) -> Result<bool, QueryError>,
) -> Result<Change, QueryError> {
    let frame = Frame::begin(out);
    let (mut count, mut kept) = (0, 0);
    for item in Elements::new(element.frame()?) {
        let item = item?;
        if keep(count, item)? {
            raw::append_indexed(out, item.kind(), kept, item.value_bytes());
            kept += 1;
        }
        count += 1;
    }
    frame.finish(out);
    Ok(if kept == count {
        Change::Same
    } else {
        Change::Value(kind::ARRAY)
    })
}

pub(super) fn pop(end: End, element: Element<'_>, out: &mut Vec<u8>) -> Result<Change, QueryError> {
    if element.kind() != kind::ARRAY {
        return Err(QueryError::type_mismatch(format!(
            "Path '{}' contains an element of non-array type '{}'",
            element.name_lossy(),
            raw::type_name(element.element_type()?)
        )));
    }
    let length = Elements::new(element.frame()?).count();
    let gone = match end {
        End::First => 0,
        End::Last => length.saturating_sub(1),
    };
    retain(element, out, |index, _| Ok(index != gone))
}

impl Pull {
    pub(super) fn change(
        &self,
        element: Element<'_>,
        around: &Surroundings<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Change, QueryError> {
        if element.kind() != kind::ARRAY {
            return Err(QueryError::bad_value("Cannot apply $pull to a non-array value"));
        }
        match self {
            Pull::Matching(condition) => retain(element, out, |_, item| {
                around.evaluation.step()?;
                Ok(!condition.matches(item, around.scope())?)
            }),
            Pull::Equal(values) if values.len() <= COMPARED_VALUES => retain(element, out, |_, item| {
                for value in values {
                    around.evaluation.step()?;
                    if equals(value, item, around.collator())? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }),
            Pull::Equal(values) => {
                let mark = around.evaluation.held();
                let mut unwanted = ValueKeys::of(values, around)?;
                let change = retain(element, out, |_, item| Ok(!unwanted.contains(item.value()?)?));
                around.evaluation.release_to(mark);
                change
            }
        }
    }
}
