//! Equality of values where the order of fields does not count: that of `enum` and `uniqueItems`.

use std::cmp::Ordering;

use bson::{RawBsonRef, RawDocument};

use crate::raw::{self, Constant, Elements, Frame, kind};
use crate::value::scan::{Malformed, frame};

/// The fields of all objects in a value by name; `None` for a value without objects, which is its own normal form.
pub(super) fn normal(value: RawBsonRef<'_>) -> Result<Option<Constant>, Malformed> {
    let (kind, inner) = match value {
        RawBsonRef::Document(document) => (kind::DOCUMENT, document),
        RawBsonRef::Array(array) => (kind::ARRAY, frame(array.as_bytes())?),
        _ => return Ok(None),
    };
    let mut bytes = Vec::with_capacity(inner.as_bytes().len() + 8);
    let outer = Frame::begin(&mut bytes);
    let field = Frame::begin_field(&mut bytes, kind, b"");
    write_sorted(inner, kind, &mut bytes)?;
    field.finish(&mut bytes);
    outer.finish(&mut bytes);
    let document = frame(&bytes)?;
    let element = Elements::new(document).next().ok_or(Malformed)??;
    Ok(Some(Constant::of(element)?))
}

/// Recursion is bounded by the depth of documents.
fn write_sorted(document: &RawDocument, kind: u8, out: &mut Vec<u8>) -> Result<(), Malformed> {
    let mut elements = Elements::new(document).collect::<Result<Vec<_>, _>>()?;
    if kind == kind::DOCUMENT {
        elements.sort_by_key(|element| element.name());
    }
    for element in elements {
        match element.kind() {
            kind::DOCUMENT | kind::ARRAY => {
                let field = Frame::begin_field(out, element.kind(), element.name());
                write_sorted(element.frame()?, element.kind(), out)?;
                field.finish(out);
            }
            kind => raw::append(out, kind, element.name(), element.value_bytes()),
        }
    }
    Ok(())
}

/// Values in an order of their own, each once.
#[derive(Debug)]
pub(super) struct ValueSet(Vec<Constant>);

impl ValueSet {
    pub(super) fn new(values: &[RawBsonRef<'_>]) -> Result<Self, Malformed> {
        let mut set = Vec::with_capacity(values.len());
        for value in values {
            set.push(normal(*value)?.unwrap_or_else(|| Constant::new(*value)));
        }
        set.sort_by(|a, b| compare(a.value(), b.value()));
        set.dedup_by(|a, b| compare(a.value(), b.value()).is_eq());
        Ok(Self(set))
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn contains(&self, value: RawBsonRef<'_>) -> Result<bool, Malformed> {
        let normal = normal(value)?;
        let value = normal.as_ref().map_or(value, Constant::value);
        Ok(self.0.binary_search_by(|item| compare(item.value(), value)).is_ok())
    }
}

/// The order of normal forms.
pub(super) fn compare(a: RawBsonRef<'_>, b: RawBsonRef<'_>) -> Ordering {
    keys::order::compare_with(a, b, None)
}
