//! Arrays that expressions make, element by element.

use crate::QueryError;
use crate::evaluation::EvaluationContext;
use crate::value::{ARRAY_BYTES_MAX, ArrayValue, Value, array_too_large};

/// The elements of an array on its way: each is a step, and what there is of them is held and bounded while it grows.
pub(crate) struct Gathered<'c, 'a> {
    context: &'c EvaluationContext<'c>,
    mark: usize,
    bytes: usize,
    items: Vec<Value<'a>>,
}

impl<'c, 'a> Gathered<'c, 'a> {
    pub(crate) fn new(context: &'c EvaluationContext<'c>) -> Self {
        Self {
            context,
            mark: context.held(),
            bytes: 0,
            items: Vec::new(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.items.len()
    }

    #[inline]
    pub(crate) fn push(&mut self, item: Value<'a>) -> Result<(), QueryError> {
        self.context.step()?;
        let bytes = item.approximate_bytes();
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes > ARRAY_BYTES_MAX {
            return Err(array_too_large());
        }
        self.context.hold(bytes)?;
        self.items.push(item);
        Ok(())
    }

    /// The elements, held no longer.
    pub(crate) fn into_items(self) -> Vec<Value<'a>> {
        self.context.release_to(self.mark);
        self.items
    }

    /// The array, held no longer.
    pub(crate) fn finish(self) -> Result<Value<'a>, QueryError> {
        Value::array(self.into_items())
    }
}

/// The elements of an array, each of them a step, and bounded as [`Gathered`] is.
pub(crate) fn elements<'a>(
    context: &EvaluationContext<'_>,
    array: &ArrayValue<'a>,
) -> Result<Vec<Value<'a>>, QueryError> {
    let mut gathered = Gathered::new(context);
    for item in array.iter() {
        gathered.push(item?)?;
    }
    Ok(gathered.into_items())
}
