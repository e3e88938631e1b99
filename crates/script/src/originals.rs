//! What documents were that a script was given. A number that was an int32 and is still at its place is one again when
//! the document comes back, and fields stand in their former order, as in MongoDB. Documents and arrays of which
//! JavaScript loses nothing have no original.
//!
//! An object knows its original by a number, under a symbol of the prelude. Numbers are never given twice, so that an
//! object that a script has kept from an earlier call has none. A document is kept once, with all that is nested in it;
//! what is kept is bounded by a share of the heap's bytes.

use crate::error::ScriptError;
use bson::{RawBsonRef, RawDocument};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// A document or an array: where it begins in the whole that it is part of.
#[derive(Clone)]
pub(crate) struct Original {
    whole: Rc<[u8]>,
    start: usize,
    bytes: usize,
}

impl Original {
    /// Its fields in their order, and whether each was an int32. Ends where it is damaged.
    pub(crate) fn fields(&self) -> impl Iterator<Item = (&str, bool)> {
        let bytes = self.whole.get(self.start..self.start + self.bytes);
        let document = bytes.and_then(|bytes| RawDocument::from_bytes(bytes).ok());
        let elements = document.into_iter().flatten();
        elements
            .map_while(Result::ok)
            .map(|(name, value)| (name.as_str(), matches!(value, RawBsonRef::Int32(_))))
    }
}

/// The originals of one call.
pub(crate) struct Originals {
    kept: RefCell<Vec<Original>>,
    /// The number of the first one.
    first: Cell<u32>,
    bytes: Cell<usize>,
    bytes_max: usize,
}

impl Originals {
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self {
            kept: RefCell::default(),
            first: Cell::default(),
            bytes: Cell::default(),
            bytes_max,
        }
    }

    /// A new call begins.
    pub(crate) fn clear(&self) {
        let mut kept = self.kept.borrow_mut();
        self.first.set(self.first.get().wrapping_add(kept.len() as u32));
        kept.clear();
        self.bytes.set(0);
    }

    fn charge(&self, bytes: usize) -> Result<(), ScriptError> {
        let bytes = self.bytes.get().saturating_add(bytes);
        if bytes > self.bytes_max {
            return Err(ScriptError::OutOfMemory);
        }
        self.bytes.set(bytes);
        Ok(())
    }

    /// A copy of a document with all that is nested in it.
    pub(crate) fn keep_whole(&self, whole: &[u8]) -> Result<Rc<[u8]>, ScriptError> {
        self.charge(whole.len())?;
        Ok(whole.into())
    }

    /// Notes a part of a whole that is kept; the answer is its number.
    pub(crate) fn note(&self, whole: &Rc<[u8]>, start: usize, bytes: usize) -> Result<i32, ScriptError> {
        self.charge(size_of::<Original>())?;
        let mut kept = self.kept.borrow_mut();
        kept.push(Original {
            whole: whole.clone(),
            start,
            bytes,
        });
        let number = self.first.get().wrapping_add(kept.len() as u32 - 1);
        Ok(number.cast_signed())
    }

    /// The one of a number.
    pub(crate) fn get(&self, number: i32) -> Option<Original> {
        let place = number.cast_unsigned().wrapping_sub(self.first.get());
        self.kept.borrow().get(place as usize).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bson::rawdoc;

    #[test]
    fn what_is_nested_is_kept_once_and_bounded() {
        let document = rawdoc! { "a": { "b": 1, "c": 2.0 }, "text": "x".repeat(1000) };
        let originals = Originals::new(1500);
        let whole = originals.keep_whole(document.as_bytes()).expect("room");
        let nested = document.get_document("a").expect("a document").as_bytes().len();
        let number = originals.note(&whole, 7, nested).expect("room");
        let original = originals.get(number).expect("it is kept");
        assert!(original.fields().eq([("b", true), ("c", false)]));
        assert!(originals.keep_whole(document.as_bytes()).is_err());
        originals.clear();
        assert!(originals.get(number).is_none());
        assert!(originals.keep_whole(document.as_bytes()).is_ok());
    }
}
