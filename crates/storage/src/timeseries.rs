//! Data definition of time-series collections: the view and the buckets it stands on come, change and go together.

use crate::catalog::rows::IndexRow;
use crate::catalog::timeseries::buckets_namespace;
use crate::definition::Definition;
use crate::storage::Storage;
use crate::{CollectionChange, IndexSpec, Namespace, Operation, StorageError, View, ViewChange};
use bson::{RawArrayBuf, RawDocument, RawDocumentBuf};
use engine::TableId;
use std::sync::Arc;

/// A time-series collection to be made.
pub struct NewTimeseries<'a> {
    /// Its name.
    pub namespace: &'a Namespace,
    /// The stages that make measurements of buckets.
    pub pipeline: RawArrayBuf,
    /// The options that its view has (`collation`).
    pub view_options: &'a RawDocument,
    /// The options of its buckets' collection.
    pub bucket_options: &'a RawDocument,
    /// The buckets' index beside `_id_`.
    pub index: Option<IndexSpec>,
}

impl Storage {
    /// Makes a time-series collection. Where its buckets' collection is there already, as after an interrupted
    /// restore, the view is made alone.
    ///
    /// Errors: as for [`Storage::create_collection`].
    pub fn create_timeseries(&self, op: &Operation, new: &NewTimeseries<'_>) -> Result<(), StorageError> {
        self.while_reserved(op, || self.try_create_timeseries(op, new))
    }

    fn try_create_timeseries(&self, op: &Operation, new: &NewTimeseries<'_>) -> Result<(), StorageError> {
        let mut next_table = self.lock_definitions(op)?;
        self.check_new_name(new.namespace)?;
        let buckets = buckets_namespace(new.namespace)?;
        let view = View {
            namespace: new.namespace.clone(),
            view_on: buckets.collection().to_owned(),
            pipeline: new.pipeline.clone(),
            options: new.view_options.to_owned(),
        };
        let mut definitions = Vec::new();
        let there = self.catalog.collection(&buckets);
        if !there.is_some_and(|there| there.options() == new.bucket_options) {
            self.check_new_name(&buckets)?;
            let mut row = self.new_collection_row(&buckets, new.bucket_options, *next_table)?;
            row.indexes.extend(new.index.clone().map(|spec| IndexRow {
                table: TableId(*next_table + 2),
                ready: true,
                spec,
            }));
            definitions.push(self.define(row)?);
        }
        definitions.push(Definition::PutView(Arc::new(view)));
        self.commit_definitions(op, definitions, &mut next_table)?;
        Ok(())
    }

    /// Changes options of a time-series collection and of its buckets. The view changes first: to take buckets for
    /// longer than they are finds all of them.
    ///
    /// Errors: as for [`Storage::modify_collection`].
    pub fn modify_timeseries(
        &self,
        op: &Operation,
        ns: &Namespace,
        pipeline: Option<RawArrayBuf>,
        change: &CollectionChange,
    ) -> Result<(), StorageError> {
        let buckets = buckets_namespace(ns)?;
        if let Some(pipeline) = pipeline {
            let view = ViewChange {
                view_on: buckets.collection().to_owned(),
                pipeline,
                former: None,
            };
            let change = CollectionChange {
                view: Some(view),
                set_options: RawDocumentBuf::new(),
                ..CollectionChange::default()
            };
            self.modify_collection(op, ns, &change)?;
        }
        self.modify_collection(op, &buckets, change)
    }
}

#[cfg(test)]
#[path = "timeseries_tests.rs"]
mod tests;
