//! `$out` into a time-series collection: buckets of their own are filled, and take the place of those that are there in
//! one step, which makes the view where there is none.

use super::definition::{self, bucket_options};
use super::insert;
use crate::command::insert::InsertBatch;
use crate::command::write_output::fill_of;
use crate::command::write_result::WriteErrors;
use crate::error::{CommandError, Result};
use crate::invocation::Invocation;
use bson::raw::{RawDocument, RawDocumentBuf};
use bson::{Bson, Document};
use std::sync::Arc;
use storage::{Collection, IndexSpec, Namespace, Temporary, TemporaryName};
use wire::ErrorCode;

/// Where measurements are gathered until they take the place of others.
pub struct OutBuckets {
    buckets: Arc<Collection>,
    into: Namespace,
}

fn failure<T>(code: i32, message: impl Into<String>) -> Result<T> {
    Err(CommandError::new(ErrorCode(code), message))
}

/// Refuses a name that a collection of another kind has, or a view.
pub fn check_free(call: &Invocation<'_>, into: &Namespace) -> Result<()> {
    let catalog = call.server.storage.catalog();
    if catalog.collection(into).is_some() || catalog.view(into).is_some() && super::buckets(call, into).is_none() {
        return failure(
            7_268_700,
            format!("Cannot create a time-series collection from a non time-series collection: {into}"),
        );
    }
    Ok(())
}

impl OutBuckets {
    /// Begins to write to a time-series collection, one that is there or one with these options.
    ///
    /// Errors: there is a collection of another kind (7268700), or one with other options (7406103).
    pub fn begin<'s>(
        call: &Invocation<'s>,
        into: &Namespace,
        timeseries: Option<&Document>,
    ) -> Result<(Self, TemporaryName<'s>)> {
        let storage = &call.server.storage;
        let there = super::buckets(call, into);
        check_free(call, into)?;
        let (options, indexes) = match (&there, timeseries) {
            (Some(there), wanted) => {
                let is = Document::try_from(there.options())?;
                if let Some(wanted) = wanted
                    && is.get("timeseries") != Some(&Bson::Document(wanted.clone()))
                {
                    return failure(
                        7_406_103,
                        format!(
                            "The time-series options of $out are not those of the collection that is there: {into}"
                        ),
                    );
                }
                let indexes = there.indexes().iter().skip(1);
                let indexes: Vec<IndexSpec> = indexes.map(|index| index.parsed_spec().clone()).collect();
                (there.options().to_owned(), indexes)
            }
            (None, Some(wanted)) => {
                let options = RawDocumentBuf::try_from(&bucket_options(wanted, &Document::new()))?;
                let index = definition::index(&options)?;
                (options, index.into_iter().collect())
            }
            (None, None) => return failure(ErrorCode::NamespaceNotFound.0, format!("ns does not exist: {into}")),
        };
        let temporary = storage.temporary_name(into.db(), Temporary::Out)?;
        let buckets = fill_of(call, temporary.namespace(), &options, &indexes)?;
        let out = Self {
            buckets,
            into: into.clone(),
        };
        Ok((out, temporary))
    }

    /// The ones that an earlier call has begun.
    pub fn begun(into: &Namespace, buckets: Arc<Collection>) -> Self {
        Self {
            buckets,
            into: into.clone(),
        }
    }

    /// What is filled.
    pub fn collection(&self) -> &Arc<Collection> {
        &self.buckets
    }

    /// Adds measurements.
    pub fn insert(&self, call: &mut Invocation<'_>, documents: &[RawDocumentBuf]) -> Result<WriteErrors> {
        let documents: Vec<&RawDocument> = documents.iter().map(|document| &**document).collect();
        let batch = InsertBatch::of_results(&documents);
        let mut errors = WriteErrors::new();
        let (inserted, failure) = insert::insert(call, &self.into, &self.buckets, &batch, &[], &mut errors);
        call.server.metrics.documents.inserted.add(inserted);
        failure.map_or(Ok(errors), Err)
    }

    /// Puts the measurements in the place of those that are there.
    pub fn finish(&self, call: &Invocation<'_>) -> Result<()> {
        let storage = &call.server.storage;
        let view = definition::view(&self.into, self.buckets.options())?;
        storage.replace_buckets(&call.operation, self.buckets.namespace(), &view)?;
        call.wrote(storage.last_seq());
        call.server
            .metrics
            .top
            .hand_over(self.buckets.namespace().as_str(), &self.into);
        Ok(())
    }
}
