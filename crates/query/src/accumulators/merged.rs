//! The state of `$mergeObjects`.

use super::failure;
use crate::error::QueryError;
use crate::expression::{finished_document, merge_documents};
use crate::value::Value;

/// Documents that become one. They are merged when those that wait weigh as much as what is merged: a group of many
/// different fields copies each of them a few times, and not once for each document behind it.
#[derive(Debug, Default)]
pub struct MergedObjects {
    /// What is merged, and behind it what waits, all documents.
    pub(super) documents: Vec<Value<'static>>,
    waiting_bytes: usize,
    /// The most that was held, which is what has been told as growth.
    bytes_max: usize,
}

impl MergedObjects {
    /// These documents, merged or not.
    pub(super) fn of(documents: Vec<Value<'static>>) -> Self {
        let waiting_bytes = documents.iter().skip(1).map(Value::approximate_bytes).sum();
        Self {
            bytes_max: waiting_bytes + documents.first().map_or(0, Value::approximate_bytes),
            documents,
            waiting_bytes,
        }
    }

    /// Takes in a document; returns by how many bytes this has grown, roughly.
    pub(super) fn add(&mut self, value: Value<'_>) -> Result<usize, QueryError> {
        if value.is_nullish() {
            return Ok(0);
        }
        if value.as_document().is_none() {
            return failure(
                40400,
                format!(
                    "$mergeObjects requires object inputs, but input {} is of type {}",
                    value.render(),
                    value.type_name()
                ),
            );
        }
        let value = value.into_owned();
        let merged_bytes = self.documents.first().map(Value::approximate_bytes);
        self.waiting_bytes += merged_bytes.map_or(0, |_| value.approximate_bytes());
        let bytes = merged_bytes.map_or_else(|| value.approximate_bytes(), |merged| merged + self.waiting_bytes);
        self.documents.push(value);
        if merged_bytes.is_some_and(|merged| self.waiting_bytes >= merged) {
            self.documents = vec![self.result()?];
            self.waiting_bytes = 0;
        }
        let grown = bytes.saturating_sub(self.bytes_max);
        self.bytes_max += grown;
        Ok(grown)
    }

    /// The one document.
    pub(super) fn result(&self) -> Result<Value<'static>, QueryError> {
        match &*self.documents {
            [only] => Ok(only.clone()),
            documents => finished_document(merge_documents(documents.iter().filter_map(Value::as_document))?),
        }
    }
}
