//! Variables whose value changes while what was parsed with them stays.

use super::Value;
use crate::error::QueryError;
use parking_lot::Mutex;
use std::sync::Arc;
use wire::ErrorCode;

/// A variable of the `let` around a sub-pipeline: parsed once, it has another value for each document of the pipeline
/// outside; one of the pipeline with which `$merge` changes documents has another one for each of those. Clones share
/// the value.
///
/// Whoever sets it runs what was parsed with it to its end before setting it again. Until it is set for the first time
/// evaluating it fails, so that nothing is parsed with it that computes its value for good.
#[derive(Clone, Debug, Default)]
pub struct OuterVariable(Arc<Mutex<Option<Value<'static>>>>);

impl OuterVariable {
    /// Gives it a value.
    pub fn set(&self, value: Value<'static>) {
        *self.0.lock() = Some(value);
    }

    pub(super) fn get(&self) -> Result<Value<'static>, QueryError> {
        let value = self.0.lock().clone();
        value.ok_or_else(|| {
            QueryError::new(
                ErrorCode::InternalError,
                "a variable of a $lookup or a $merge is evaluated before it has a value",
            )
        })
    }
}
