//! A difference as logs of operations have it: MongoDB's entry format for updates, version 2 (`{$v: 2, diff: {…}}`).
//!
//! Of a document: `d` fields deleted, `u` fields set in their place, `i` fields put at the end, `s<field>` differences
//! inside. Of an array, which says `a: true` first: `l` the length to cut to, `u<index>` elements set, `s<index>`
//! differences inside elements.
//!
//! It says what to reach, not what to find: a field that is gone stays gone, one that is set is appended where it is
//! missing, and a difference inside something of another type changes nothing. So a log can be replayed over data
//! that has seen a part of it.

use std::collections::BTreeMap;

use bson::{RawBsonRef, RawDocument};

use super::limits::{BACKFILL_MAX, DEPTH_MAX};
use crate::QueryError;
use crate::raw::{self, Element, Elements, Frame, kind};

/// What becomes of a field or an element.
enum Change {
    Deleted,
    /// The element's type byte and value.
    Set(u8, Box<[u8]>),
    /// The same, at the end.
    Appended(u8, Box<[u8]>),
    Inside(Inside),
}

enum Inside {
    Document(Delta),
    Array(ArrayDelta),
}

/// The difference of a document.
#[derive(Default)]
pub(super) struct Delta {
    changes: BTreeMap<Box<[u8]>, Change>,
    /// Names of fields that are set or appended, in the order in which missing ones come to the end.
    set: Vec<Box<[u8]>>,
    appended: Vec<Box<[u8]>>,
}

#[derive(Default)]
struct ArrayDelta {
    length: Option<usize>,
    elements: BTreeMap<usize, Change>,
}

fn malformed(reason: impl Into<String>) -> QueryError {
    QueryError::failed_to_parse(format!("malformed difference: {}", reason.into()))
}

fn set(element: Element<'_>) -> (u8, Box<[u8]>) {
    (element.kind(), element.value_bytes().into())
}

impl Delta {
    /// Fails (9) when it has another form.
    pub(super) fn parse(difference: &RawDocument) -> Result<Self, QueryError> {
        Self::parse_at(difference, 1)
    }

    fn parse_at(difference: &RawDocument, depth: usize) -> Result<Self, QueryError> {
        if depth > DEPTH_MAX {
            return Err(malformed(format!("it is deeper than {DEPTH_MAX} levels")));
        }
        let mut delta = Self::default();
        for section in Elements::new(difference) {
            let section = section?;
            if section.kind() != kind::DOCUMENT {
                return Err(malformed(format!("section '{}' is no object", section.name_lossy())));
            }
            let fields = section.frame()?;
            match section.name() {
                b"d" => {
                    for field in Elements::new(fields) {
                        delta.add(field?.name(), Change::Deleted)?;
                    }
                }
                b"u" => {
                    for field in Elements::new(fields) {
                        let field = field?;
                        let (kind, value) = set(field);
                        delta.add(field.name(), Change::Set(kind, value))?;
                        delta.set.push(field.name().into());
                    }
                }
                b"i" => {
                    for field in Elements::new(fields) {
                        let field = field?;
                        let (kind, value) = set(field);
                        delta.add(field.name(), Change::Appended(kind, value))?;
                        delta.appended.push(field.name().into());
                    }
                }
                [b's', field @ ..] => delta.add(field, Change::Inside(Inside::parse(fields, depth + 1)?))?,
                _ => {
                    let name = section.name_lossy();
                    return Err(malformed(format!("section '{name}' is not known")));
                }
            }
        }
        Ok(delta)
    }

    fn add(&mut self, field: &[u8], change: Change) -> Result<(), QueryError> {
        let is_moved = matches!(change, Change::Appended(..));
        match self.changes.insert(field.into(), change) {
            None => Ok(()),
            Some(Change::Deleted) if is_moved => Ok(()),
            Some(_) => Err(malformed(format!(
                "field '{}' is changed twice",
                String::from_utf8_lossy(field)
            ))),
        }
    }

    /// The changed document.
    pub(super) fn apply(&self, document: &RawDocument) -> Result<Vec<u8>, QueryError> {
        let mut out = Vec::with_capacity(document.as_bytes().len() + 64);
        let frame = Frame::begin(&mut out);
        self.fields(document, &mut out)?;
        frame.finish(&mut out);
        Ok(out)
    }

    fn fields(&self, document: &RawDocument, out: &mut Vec<u8>) -> Result<(), QueryError> {
        let mut in_place = Vec::new();
        for element in Elements::new(document) {
            let element = element?;
            match self.changes.get(element.name()) {
                None => out.extend_from_slice(element.whole()),
                Some(Change::Deleted | Change::Appended(..)) => {}
                Some(Change::Set(kind, value)) => {
                    raw::append(out, *kind, element.name(), value);
                    in_place.push(element.name());
                }
                Some(Change::Inside(inside)) => inside.element(element, element.name(), out)?,
            }
        }
        in_place.sort_unstable();
        let missing = self
            .set
            .iter()
            .filter(|name| in_place.binary_search(&&***name).is_err());
        for name in missing.chain(&self.appended) {
            if let Some(Change::Set(kind, value) | Change::Appended(kind, value)) = self.changes.get(name) {
                raw::append(out, *kind, name, value);
            }
        }
        Ok(())
    }
}

impl Inside {
    fn parse(difference: &RawDocument, depth: usize) -> Result<Self, QueryError> {
        let is_array = match Elements::new(difference).next().transpose()? {
            Some(first) => first.name() == b"a" && matches!(first.value()?, RawBsonRef::Boolean(true)),
            None => false,
        };
        Ok(if is_array {
            Self::Array(ArrayDelta::parse(difference, depth)?)
        } else {
            Self::Document(Delta::parse_at(difference, depth)?)
        })
    }

    /// Writes the changed element; of another type it stays as it is.
    fn element(&self, element: Element<'_>, name: &[u8], out: &mut Vec<u8>) -> Result<(), QueryError> {
        match self {
            Self::Document(delta) if element.kind() == kind::DOCUMENT => {
                let frame = Frame::begin_field(out, kind::DOCUMENT, name);
                delta.fields(element.frame()?, out)?;
                frame.finish(out);
            }
            Self::Array(delta) if element.kind() == kind::ARRAY => {
                let frame = Frame::begin_field(out, kind::ARRAY, name);
                delta.elements(element.frame()?, out)?;
                frame.finish(out);
            }
            _ => raw::append(out, element.kind(), name, element.value_bytes()),
        }
        Ok(())
    }
}

impl ArrayDelta {
    fn parse(difference: &RawDocument, depth: usize) -> Result<Self, QueryError> {
        if depth > DEPTH_MAX {
            return Err(malformed(format!("it is deeper than {DEPTH_MAX} levels")));
        }
        let mut delta = Self::default();
        for change in Elements::new(difference).skip(1) {
            let change = change?;
            let unknown = || malformed(format!("'{}' of an array is not known", change.name_lossy()));
            let (sort, index) = change.name().split_first().ok_or_else(unknown)?;
            let index = || {
                let digits = std::str::from_utf8(index).ok()?;
                digits.parse::<u32>().ok().map(|index| index as usize)
            };
            let (index, change) = match sort {
                b'l' if change.name().len() == 1 => {
                    let length = match change.value()? {
                        RawBsonRef::Int32(length) => usize::try_from(length).ok(),
                        RawBsonRef::Int64(length) => usize::try_from(length).ok(),
                        _ => None,
                    };
                    delta.length = Some(length.ok_or_else(|| malformed("the length of an array is none"))?);
                    continue;
                }
                b'u' => {
                    let (kind, value) = set(change);
                    (index(), Change::Set(kind, value))
                }
                b's' if change.kind() == kind::DOCUMENT => {
                    (index(), Change::Inside(Inside::parse(change.frame()?, depth + 1)?))
                }
                _ => return Err(unknown()),
            };
            let index = index.ok_or_else(unknown)?;
            if delta.elements.insert(index, change).is_some() {
                return Err(malformed(format!("element {index} is changed twice")));
            }
        }
        Ok(delta)
    }

    fn elements(&self, array: &RawDocument, out: &mut Vec<u8>) -> Result<(), QueryError> {
        let mut length = 0;
        for element in Elements::new(array).take(self.length.unwrap_or(usize::MAX)) {
            let element = element?;
            match self.elements.get(&length) {
                Some(Change::Set(kind, value)) => raw::append_indexed(out, *kind, length, value),
                Some(Change::Inside(inside)) => inside.element(element, length.to_string().as_bytes(), out)?,
                _ => raw::append_indexed(out, element.kind(), length, element.value_bytes()),
            }
            length += 1;
        }
        let present = length;
        for (&index, change) in self.elements.range(present..) {
            // Inside of what is not there nothing can be changed.
            let Change::Set(kind, value) = change else { continue };
            if index - length > BACKFILL_MAX as usize {
                return Err(QueryError::bad_value(format!(
                    "can't backfill more than {BACKFILL_MAX} elements"
                )));
            }
            while length < index {
                raw::append_indexed(out, kind::NULL, length, &[]);
                length += 1;
            }
            raw::append_indexed(out, *kind, index, value);
            length = index + 1;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use bson::{Document, RawDocumentBuf, doc};

    use super::Delta;
    use crate::matcher::tests::raw_of;
    use wire::ErrorCode;

    fn apply(difference: Document, document: &Document) -> Document {
        let changed = Delta::parse(&raw_of(&difference))
            .unwrap()
            .apply(&raw_of(document))
            .unwrap();
        RawDocumentBuf::from_bytes(changed).unwrap().try_into().unwrap()
    }

    /// Applying it once more changes nothing.
    fn gives(difference: Document, before: Document, after: Document) {
        let changed = apply(difference.clone(), &before);
        assert_eq!(format!("{changed}"), format!("{after}"), "{difference} on {before}");
        assert_eq!(
            apply(difference.clone(), &changed),
            changed,
            "{difference} again on {before}"
        );
    }

    #[test]
    fn fields_are_deleted_set_and_appended() {
        gives(
            doc! { "d": { "a": false } },
            doc! { "_id": 1, "a": 1, "b": 2 },
            doc! { "_id": 1, "b": 2 },
        );
        gives(
            doc! { "u": { "a": 5 } },
            doc! { "_id": 1, "a": 1, "b": 2 },
            doc! { "_id": 1, "a": 5, "b": 2 },
        );
        gives(
            doc! { "u": { "c": 5 } },
            doc! { "_id": 1, "a": 1 },
            doc! { "_id": 1, "a": 1, "c": 5 },
        );
        gives(
            doc! { "i": { "a": 5 } },
            doc! { "_id": 1, "a": 1, "b": 2 },
            doc! { "_id": 1, "b": 2, "a": 5 },
        );
        let moved = doc! { "d": { "a": false }, "i": { "c": 3, "a": 1 } };
        gives(
            moved,
            doc! { "_id": 1, "a": 1, "b": 2 },
            doc! { "_id": 1, "b": 2, "c": 3, "a": 1 },
        );
    }

    #[test]
    fn inside_documents_and_arrays() {
        let before = doc! { "_id": 1, "n": { "x": 1, "y": 2 }, "a": [1, { "z": 1 }, 3, 4] };
        let difference = doc! {
            "sn": { "d": { "y": false }, "u": { "x": 7 } },
            "sa": { "a": true, "l": 3, "u0": 9, "s1": { "i": { "w": 2 } } },
        };
        let after = doc! { "_id": 1, "n": { "x": 7 }, "a": [9, { "z": 1, "w": 2 }, 3] };
        gives(difference, before, after);
        gives(
            doc! { "sa": { "a": true, "u3": 1 } },
            doc! { "a": [0] },
            doc! { "a": [0, null, null, 1] },
        );
    }

    #[test]
    fn what_is_not_there_stays_away() {
        for document in [
            doc! { "_id": 1 },
            doc! { "_id": 1, "a": 5, "n": [1] },
            doc! { "_id": 1, "a": { "x": 1 }, "n": null },
        ] {
            let difference = doc! { "sa": { "a": true, "u0": 1 }, "sn": { "u": { "x": 1 } }, "d": { "gone": false } };
            assert_eq!(apply(difference, &document), document);
        }
        gives(
            doc! { "sa": { "a": true, "s5": { "u": { "x": 1 } } } },
            doc! { "a": [0] },
            doc! { "a": [0] },
        );
    }

    #[test]
    fn other_forms_are_refused() {
        let mut deep = doc! { "u": { "a": 1 } };
        for _ in 0..super::DEPTH_MAX {
            deep = doc! { "sa": deep };
        }
        for refused in [
            doc! { "x": {} },
            doc! { "d": 1 },
            doc! { "u": { "a": 1 }, "i": { "a": 1 } },
            doc! { "sa": { "a": true, "l": -1 } },
            doc! { "sa": { "a": true, "u-1": 1 } },
            doc! { "sa": { "a": true, "ux": 1 } },
            doc! { "sa": { "a": true, "s0": 1 } },
            doc! { "sa": { "a": true, "": 1 } },
            doc! { "sa": { "a": true, "u1": 1, "u01": 1 } },
            deep,
        ] {
            let error = Delta::parse(&raw_of(&refused))
                .err()
                .unwrap_or_else(|| panic!("{refused}"));
            assert_eq!(error.code(), Some(ErrorCode::FailedToParse), "{refused}");
        }
        let huge = Delta::parse(&raw_of(&doc! { "sa": { "a": true, "u4000000000": 1 } })).unwrap();
        assert!(huge.apply(&raw_of(&doc! { "a": [] })).is_err());
    }
}
