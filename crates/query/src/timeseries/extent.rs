//! The least and the greatest values of a bucket's measurements, by field.
//!
//! Documents and arrays are compared part by part, so that each path has its own least and greatest value. A bucket has
//! values of one canonical type at each path: only then do comparisons with the extent say what those with the values
//! would.

use bson::spec::ElementType;
use bson::{RawBson, RawDocument};
use std::cmp::Ordering;

use super::names::NamePlaces;
use crate::raw::{self, Element, Elements, Frame, Malformed, kind};

/// Which end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Least,
    Greatest,
}

/// The least or the greatest value at a place.
#[derive(Clone, Debug)]
pub(super) enum Extent {
    Value { kind: u8, bytes: Box<[u8]> },
    Parts(Parts),
}

/// Those of a document's fields or of an array's elements.
#[derive(Clone, Debug)]
pub(super) struct Parts {
    kind: u8,
    parts: Vec<(Box<[u8]>, Extent)>,
    places: NamePlaces,
}

impl Parts {
    /// Without any field.
    pub(super) fn new() -> Self {
        Self {
            kind: kind::DOCUMENT,
            parts: Vec::new(),
            places: NamePlaces::default(),
        }
    }

    /// Of one document.
    pub(super) fn of(document: &RawDocument) -> Result<Self, Malformed> {
        Self::of_frame(kind::DOCUMENT, document)
    }

    fn of_frame(kind: u8, frame: &RawDocument) -> Result<Self, Malformed> {
        let mut parts = Vec::new();
        for element in Elements::new(frame) {
            let element = element?;
            parts.push((element.name().into(), Extent::of(element)?));
        }
        Ok(Self {
            kind,
            parts,
            places: NamePlaces::default(),
        })
    }

    /// The place of a name; documents of one kind have their fields in one order mostly, so `near` is tried first.
    fn place(&self, name: &[u8], near: usize) -> Option<usize> {
        self.places.find(&self.parts, |(part, _)| part, name, near)
    }

    fn push(&mut self, name: &[u8], extent: Extent) {
        self.places.pushed(name, self.parts.len());
        self.parts.push((name.into(), extent));
    }

    /// Whether a value may join those that this is the extent of.
    pub(super) fn admits(&self, element: Element<'_>, near: usize) -> Result<bool, Malformed> {
        match self.place(element.name(), near) {
            None => Ok(true),
            Some(place) => self.parts[place].1.admits(element),
        }
    }

    /// Takes a value in; answers how many bytes more it has.
    pub(super) fn widen(&mut self, element: Element<'_>, end: End, near: usize) -> Result<isize, Malformed> {
        match self.place(element.name(), near) {
            None => {
                self.push(element.name(), Extent::of(element)?);
                Ok(element.whole().len() as isize)
            }
            Some(place) => self.parts[place].1.widen(element, end),
        }
    }

    /// Whether both are equal, numbers by value, whatever the order of fields.
    pub(super) fn equals(&self, other: &Self) -> Result<bool, Malformed> {
        if self.kind != other.kind || self.parts.len() != other.parts.len() {
            return Ok(false);
        }
        for (near, (name, extent)) in self.parts.iter().enumerate() {
            let Some(place) = other.place(name, near) else {
                return Ok(false);
            };
            let is_equal = match (extent, &other.parts[place].1) {
                (
                    Extent::Value { kind, bytes },
                    Extent::Value {
                        kind: other,
                        bytes: theirs,
                    },
                ) => compare((*kind, bytes), (*other, theirs))? == Ordering::Equal,
                (Extent::Parts(parts), Extent::Parts(theirs)) => parts.equals(theirs)?,
                _ => false,
            };
            if !is_equal {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Puts a value in the place of what a field has.
    pub(super) fn set(&mut self, name: &[u8], kind: u8, bytes: &[u8]) {
        let value = Extent::Value {
            kind,
            bytes: bytes.into(),
        };
        match self.place(name, 0) {
            Some(place) => self.parts[place].1 = value,
            None => self.push(name, value),
        }
    }

    /// The value of a field, where it is no document and no array.
    pub(super) fn value(&self, name: &[u8]) -> Option<(u8, &[u8])> {
        match &self.parts[self.place(name, 0)?].1 {
            Extent::Value { kind, bytes } => Some((*kind, bytes)),
            Extent::Parts(_) => None,
        }
    }

    /// Appends it as a field.
    pub(super) fn append(&self, out: &mut Vec<u8>, name: &[u8]) {
        let frame = Frame::begin_field(out, self.kind, name);
        for (name, extent) in &self.parts {
            match extent {
                Extent::Value { kind, bytes } => raw::append(out, *kind, name, bytes),
                Extent::Parts(parts) => parts.append(out, name),
            }
        }
        frame.finish(out);
    }
}

impl Extent {
    fn of(element: Element<'_>) -> Result<Self, Malformed> {
        Ok(match element.kind() {
            kind @ (kind::DOCUMENT | kind::ARRAY) => Self::Parts(Parts::of_frame(kind, element.frame()?)?),
            kind => Self::Value {
                kind,
                bytes: element.value_bytes().into(),
            },
        })
    }

    fn admits(&self, element: Element<'_>) -> Result<bool, Malformed> {
        match self {
            Self::Value { kind, .. } => Ok(canonical(*kind)? == canonical(element.kind())?),
            Self::Parts(parts) if parts.kind == element.kind() => {
                for (near, part) in Elements::new(element.frame()?).enumerate() {
                    if !parts.admits(part?, near)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            Self::Parts(_) => Ok(false),
        }
    }

    fn widen(&mut self, element: Element<'_>, end: End) -> Result<isize, Malformed> {
        let mut more = 0;
        match self {
            Self::Value { kind, bytes } => {
                let order = compare((element.kind(), element.value_bytes()), (*kind, bytes))?;
                let is_wider = match end {
                    End::Least => order == Ordering::Less,
                    End::Greatest => order == Ordering::Greater,
                };
                if is_wider {
                    more = element.value_bytes().len() as isize - bytes.len() as isize;
                    *kind = element.kind();
                    *bytes = element.value_bytes().into();
                }
            }
            Self::Parts(parts) => {
                for (near, part) in Elements::new(element.frame()?).enumerate() {
                    more += parts.widen(part?, end, near)?;
                }
            }
        }
        Ok(more)
    }
}

fn canonical(kind: u8) -> Result<u8, Malformed> {
    ElementType::from(kind).map(keys::canonical_type).ok_or(Malformed)
}

/// The order of two values that are bytes.
fn compare(a: (u8, &[u8]), b: (u8, &[u8])) -> Result<Ordering, Malformed> {
    if a.0 == b.0 {
        match (a.0, a.1.try_into(), b.1.try_into()) {
            (0x01, Ok(a), Ok(b)) => {
                if let Some(order) = f64::from_le_bytes(a).partial_cmp(&f64::from_le_bytes(b)) {
                    return Ok(order);
                }
            }
            (0x09 | 0x12, Ok(a), Ok(b)) => return Ok(i64::from_le_bytes(a).cmp(&i64::from_le_bytes(b))),
            _ => {}
        }
        if a.0 == 0x07 {
            return Ok(a.1.cmp(b.1));
        }
    }
    let (a, b) = (decoded(a)?, decoded(b)?);
    Ok(keys::compare(a.as_raw_bson_ref(), b.as_raw_bson_ref()))
}

fn decoded((kind, bytes): (u8, &[u8])) -> Result<RawBson, Malformed> {
    let mut alone = Vec::with_capacity(bytes.len() + 7);
    let frame = Frame::begin(&mut alone);
    raw::append(&mut alone, kind, b"", bytes);
    frame.finish(&mut alone);
    let alone = RawDocument::from_bytes(&alone).map_err(|_| Malformed)?;
    let element = Elements::new(alone).next().ok_or(Malformed)??;
    element.to_owned_value()
}
