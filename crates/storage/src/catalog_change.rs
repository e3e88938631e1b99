//! What operations have changed of the catalog, for those who keep a record of it.
//!
//! An operation gathers its changes ([`crate::Operation::take_catalog_changes`]); whoever runs it tells of them once it
//! holds no lock. What is done for no caller, because another server did it or a stop interrupted it, goes to
//! [`crate::StorageOptions::on_catalog_change`].

use crate::{Collection, Namespace, View};
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
