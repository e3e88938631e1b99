//! What is known of a row beside its document, as far as expressions ask for it.

use super::key_document::KeyDocument;
use super::row::{Row, as_document};
use super::sort_key::SortKeys;
use crate::QueryError;
use crate::evaluation::EvaluationContext;
use crate::metadata::{Metadata, MetadataField, MetadataNeeds};
use crate::plan::query::{Order, Query};
use bson::RawBson;
use std::sync::Arc;

/// See the module. Keeps its buffers from row to row.
#[derive(Default)]
pub(crate) struct RowMetadata {
    needs: MetadataNeeds,
    sort: Option<SortKeys>,
    key_document: KeyDocument,
}

impl RowMetadata {
    /// For the rows of a query's plan.
    pub(crate) fn new(query: &Query) -> Result<Self, QueryError> {
        let sort = match &query.order {
            Order::Fields(fields) if query.needs.has(MetadataField::SortKey) => {
                Some(SortKeys::new(fields, query.collation.as_ref())?)
            }
            _ => None,
        };
        Ok(Self {
            needs: query.needs,
            sort,
            key_document: KeyDocument::default(),
        })
    }

    /// What stages have found out, and what the row itself tells.
    pub(crate) fn of(
        &mut self,
        row: &Row<'_>,
        context: &EvaluationContext<'_>,
    ) -> Result<Option<Arc<Metadata>>, QueryError> {
        let own = [MetadataField::RecordId, MetadataField::IndexKey, MetadataField::SortKey];
        if self.needs.is_empty() || !own.into_iter().any(|field| self.needs.has(field)) {
            return Ok(row.metadata.cloned());
        }
        let mut metadata = row.metadata.map(|metadata| (**metadata).clone()).unwrap_or_default();
        if self.needs.has(MetadataField::RecordId) {
            metadata.record_id = RawBson::try_from(row.id.to_bson()).ok();
        }
        if self.needs.has(MetadataField::IndexKey)
            && let Some(key) = row.key
        {
            let key = as_document(self.key_document.flat(key)?)?.to_owned();
            metadata.set(MetadataField::IndexKey, RawBson::Document(key));
        }
        if let Some(sort) = &mut self.sort
            && let Some(values) = sort.values(as_document(row.document.bytes())?, row.metadata, context)?
        {
            metadata.set(MetadataField::SortKey, RawBson::Array(values));
        }
        Ok(Some(Arc::new(metadata)))
    }
}
