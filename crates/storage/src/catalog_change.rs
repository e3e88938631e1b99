//! What operations have changed of the catalog, for those who keep a record of it.
//!
//! An operation gathers its changes ([`Operation::take_catalog_changes`]); whoever runs it tells of them once it holds
//! no lock. What is done for no caller, because another server did it or a stop interrupted it, goes to
//! [`crate::StorageOptions::on_catalog_change`].

use crate::catalog::Entry;
use crate::definition::Definition;
use crate::storage::Storage;
use crate::{Collection, Namespace, Operation, View};
use std::sync::Arc;

/// A change of the catalog: what was there before and what is there now. At least one of the two is.
#[derive(Clone)]
pub enum CatalogChange {
    /// Of a collection, its indexes included.
    Collection {
        /// Before.
        before: Option<Arc<Collection>>,
        /// Since.
        after: Option<Arc<Collection>>,
    },
    /// Of a view.
    View {
        /// Its name.
        namespace: Namespace,
        /// Before.
        before: Option<Arc<View>>,
        /// Since.
        after: Option<Arc<View>>,
    },
}

/// Told of changes that no caller has asked for.
pub type CatalogChangeHandler = Arc<dyn Fn(&CatalogChange) + Send + Sync>;

impl Storage {
    /// What definitions are going to change. The caller holds their locks.
    pub(crate) fn changes_by<'d>(&self, definitions: impl Iterator<Item = &'d Definition>) -> Vec<CatalogChange> {
        let view = |namespace: &Namespace| match self.catalog.entry(namespace) {
            Some(Entry::View(view)) => Some(view),
            _ => None,
        };
        definitions
            .map(|definition| match definition {
                Definition::PutCollection { collection, former, .. } => CatalogChange::Collection {
                    before: former.clone(),
                    after: Some(Arc::clone(collection)),
                },
                Definition::DropCollection(collection) => CatalogChange::Collection {
                    before: Some(Arc::clone(collection)),
                    after: None,
                },
                Definition::PutView(after) => CatalogChange::View {
                    namespace: after.namespace.clone(),
                    before: view(&after.namespace),
                    after: Some(Arc::clone(after)),
                },
                Definition::DropView(namespace) => CatalogChange::View {
                    namespace: namespace.clone(),
                    before: view(namespace),
                    after: None,
                },
            })
            .collect()
    }

    /// Tells the handler what was changed for nobody.
    pub(crate) fn tell_unasked(&self, op: &Operation) {
        let Some(handler) = &self.options.on_catalog_change else {
            return;
        };
        op.take_catalog_changes().iter().for_each(|change| handler(change));
    }
}
