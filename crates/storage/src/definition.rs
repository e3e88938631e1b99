//! A change of the catalog on its way.

use crate::catalog::rows::CollectionRow;
use crate::{Collection, Namespace, View};
use std::sync::Arc;

/// A change of the catalog, ready to be applied and installed.
pub(crate) enum Definition {
    /// A collection comes, or its definition changes.
    PutCollection {
        row: CollectionRow,
        collection: Arc<Collection>,
        former: Option<Arc<Collection>>,
    },
    /// A collection goes.
    DropCollection(Arc<Collection>),
    /// A view comes or changes.
    PutView(Arc<View>),
    /// A view goes.
    DropView(Namespace),
}

impl Definition {
    /// Of what.
    pub(crate) fn namespace(&self) -> &Namespace {
        match self {
            Self::PutCollection { row, .. } => &row.namespace,
            Self::DropCollection(collection) => &collection.namespace,
            Self::PutView(view) => &view.namespace,
            Self::DropView(namespace) => namespace,
        }
    }

    /// What the collection was called before, when it was there.
    pub(crate) fn former_namespace(&self) -> Option<&Namespace> {
        match self {
            Self::PutCollection { former, .. } => former.as_ref().map(|former| &former.namespace),
            _ => None,
        }
    }

    /// It takes the place of nothing that writers use.
    pub(crate) fn adds(&self) -> bool {
        matches!(self, Self::PutCollection { former: None, .. } | Self::PutView(_))
    }
}
