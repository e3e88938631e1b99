//! What documents were that a script was given: a number that was an int32 and is still at its place is one again when
//! the document comes back, as in MongoDB.
//!
//! An object knows its original by a number, under a symbol of the prelude. Numbers are never given twice, so that an
//! object that a script has kept from an earlier call has none.

use bson::{RawBsonRef, RawDocument, RawDocumentBuf};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// The originals of one call.
#[derive(Default)]
pub(crate) struct Originals {
    documents: RefCell<Vec<Rc<RawDocumentBuf>>>,
    /// The number of the first one.
    first: Cell<u32>,
}

impl Originals {
    /// A new call begins.
    pub(crate) fn clear(&self) {
        let mut documents = self.documents.borrow_mut();
        self.first.set(self.first.get().wrapping_add(documents.len() as u32));
        documents.clear();
    }

    /// Keeps a document, or an array; the answer is its number.
    pub(crate) fn keep(&self, bytes: &[u8]) -> Option<i32> {
        let document = RawDocumentBuf::from_bytes(bytes.to_vec()).ok()?;
        let mut documents = self.documents.borrow_mut();
        documents.push(Rc::new(document));
        let number = self.first.get().wrapping_add(documents.len() as u32 - 1);
        Some(number.cast_signed())
    }

    /// The one of a number.
    pub(crate) fn get(&self, number: i32) -> Option<Rc<RawDocumentBuf>> {
        let place = number.cast_unsigned().wrapping_sub(self.first.get());
        self.documents.borrow().get(place as usize).cloned()
    }
}

/// Whether a field is an int32, and the number that it is to be can be one.
pub(crate) fn as_int32(original: &RawDocument, name: &str, number: f64) -> Option<i32> {
    let whole = number as i32;
    let was_int32 = || matches!(original.get(name), Ok(Some(RawBsonRef::Int32(_))));
    (f64::from(whole) == number && was_int32()).then_some(whole)
}
