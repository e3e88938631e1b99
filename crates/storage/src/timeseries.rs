//! Data definition of time-series collections: the view and the buckets it stands on come, change and go together.

use crate::catalog::rows::IndexRow;
use crate::catalog::timeseries::buckets_namespace;
use crate::ddl::RenameTarget;
use crate::definition::Definition;
use crate::storage::Storage;
use crate::{CollectionChange, IndexSpec, Namespace, Operation, StorageError, View, ViewChange};
use bson::{RawArrayBuf, RawDocument, RawDocumentBuf};
use engine::TableId;
use std::sync::Arc;

/// The view that a time-series collection is.
pub struct TimeseriesView<'a> {
    /// Its name.
    pub namespace: &'a Namespace,
    /// The stages that make measurements of buckets.
    pub pipeline: RawArrayBuf,
    /// Its options (`collation`).
    pub options: RawDocumentBuf,
}

impl TimeseriesView<'_> {
    /// The name of its buckets' collection, and the view itself.
    fn on_buckets(&self) -> Result<(Namespace, Arc<View>), StorageError> {
        let buckets = buckets_namespace(self.namespace)?;
        let view = View {
            namespace: self.namespace.clone(),
            view_on: buckets.collection().to_owned(),
            pipeline: self.pipeline.clone(),
            options: self.options.clone(),
        };
        Ok((buckets, Arc::new(view)))
    }
}

/// A time-series collection to be made.
pub struct NewTimeseries<'a> {
    /// Itself.
    pub view: TimeseriesView<'a>,
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
        self.check_new_name(new.view.namespace)?;
        let (buckets, view) = new.view.on_buckets()?;
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
        definitions.push(Definition::PutView(view));
        self.commit_definitions(op, definitions, &mut next_table)?;
        Ok(())
    }

    /// As [`Storage::replace_collection`], of a time-series collection's buckets. Where the view is not there, or no
    /// longer, it is made by the same change: buckets without one could be neither seen nor dropped.
    ///
    /// Errors: as for [`Storage::replace_collection`], and [`StorageError::NamespaceExists`] when something else has
    /// the view's name.
    pub fn replace_buckets(
        &self,
        op: &Operation,
        with: &Namespace,
        view: &TimeseriesView<'_>,
    ) -> Result<(), StorageError> {
        let (buckets, view) = view.on_buckets()?;
        let target = RenameTarget::Replaced { view: Some(&view) };
        self.while_reserved(op, || self.try_rename_collection(op, with, &buckets, target))
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
