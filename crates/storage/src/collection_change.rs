//! What `collMod` changes of a definition, and the definition that comes of it.

use crate::build::check_no_equal;
use crate::catalog::rows::CollectionRow;
use crate::{Collection, IndexSpec, StorageError, View};
use bson::raw::cstr;
use bson::{RawArrayBuf, RawDocumentBuf};
use std::sync::Arc;

/// What [`crate::Storage::modify_collection`] shall change; what is `None` or empty stays.
#[derive(Clone, Debug, Default)]
pub struct CollectionChange {
    /// An index's options.
    pub index: Option<IndexChange>,
    /// Fields of the collection's options to set (`validator`, `validationLevel` …).
    pub set_options: RawDocumentBuf,
    /// Fields of the collection's options to set where they are not there.
    pub default_options: RawDocumentBuf,
    /// Fields of the collection's options to remove.
    pub unset_options: Vec<String>,
    /// A capped collection's size in bytes; takes effect at the next insert.
    pub capped_size: Option<u64>,
    /// A capped collection's number of documents, 0 for none; takes effect at the next insert.
    pub capped_max: Option<u64>,
    /// The collection's options as they were asked for, which those who follow the log are told.
    pub requested: RawDocumentBuf,
    /// A view's definition.
    pub view: Option<ViewChange>,
}

/// See [`CollectionChange::index`].
#[derive(Clone, Debug, Default)]
pub struct IndexChange {
    /// The index's name.
    pub name: String,
    /// Seconds until expiry.
    pub expire_after_seconds: Option<i64>,
    /// Whether the planner sees it.
    pub hidden: Option<bool>,
    /// Whether new documents with a key that another one has are refused.
    pub prepare_unique: Option<bool>,
    /// It becomes unique, being prepared for that: no two documents shared a key in this version of the collection's
    /// definition, see [`crate::Storage::duplicates`].
    pub unique_as_of: Option<u64>,
}

/// See [`CollectionChange::view`].
#[derive(Clone, Debug)]
pub struct ViewChange {
    /// The collection or view it is on.
    pub view_on: String,
    /// Its pipeline.
    pub pipeline: RawArrayBuf,
    /// The definition that it was worked out from: another one is not changed.
    pub former: Option<Arc<View>>,
}

pub(crate) fn change_index(row: &mut CollectionRow, change: &IndexChange) -> Result<(), StorageError> {
    if change.unique_as_of.is_some()
        && let Some(place) = row.indexes.iter().position(|index| index.spec.name == change.name)
        && !row.indexes[place].spec.unique
    {
        check_no_equal(row, place, true)?;
    }
    // There are two of a name while the one is built in the place of the other.
    let mut changed = row.indexes.iter_mut().filter(|index| index.spec.name == change.name);
    let first = changed.next();
    let first = first.ok_or_else(|| StorageError::IndexNotFound(change.name.clone()))?;
    change_spec(&mut first.spec, change)?;
    changed.try_for_each(|index| change_spec(&mut index.spec, change))
}

fn change_spec(spec: &mut IndexSpec, change: &IndexChange) -> Result<(), StorageError> {
    if spec.name == "_id_" {
        return match (change.expire_after_seconds, change.hidden) {
            // It is unique as it is.
            (None, None) => Ok(()),
            _ => Err(StorageError::InvalidOptions(
                "can't hide or expire _id index".to_owned(),
            )),
        };
    }
    spec.expire_after_seconds = change.expire_after_seconds.or(spec.expire_after_seconds);
    spec.hidden = change.hidden.unwrap_or(spec.hidden);
    if !spec.unique {
        spec.prepare_unique = change.prepare_unique.unwrap_or(spec.prepare_unique);
    }
    if change.unique_as_of.is_some() && !spec.unique {
        if !spec.prepare_unique {
            return Err(StorageError::InvalidOptions(
                "Cannot make index unique with 'prepareUnique=false'. Run collMod to set it first.".to_owned(),
            ));
        }
        (spec.unique, spec.prepare_unique, spec.records_in_keys) = (true, false, true);
    }
    *spec = spec.clone().normalised();
    Ok(())
}

/// The collection's options with the change in them, in their order.
pub(crate) fn changed_options(
    collection: &Collection,
    change: &CollectionChange,
) -> Result<RawDocumentBuf, StorageError> {
    if (change.capped_size.is_some() || change.capped_max.is_some()) && collection.is_capped().is_none() {
        return Err(StorageError::InvalidOptions(format!(
            "{} is not capped",
            collection.namespace()
        )));
    }
    let size = change.capped_size.map(|size| size as i64);
    let max = change.capped_max.map(|max| max as i64);
    let set = change.set_options.iter().flatten();
    let mut options = RawDocumentBuf::new();
    for (name, value) in collection.options().iter().flatten() {
        let replaced = change.set_options.get(name).ok().flatten().is_some()
            || change.unset_options.iter().any(|unset| unset == name.as_str())
            || (name.as_str() == "size" && size.is_some())
            || (name.as_str() == "max" && max.is_some());
        if !replaced {
            options.append(name, value);
        }
    }
    set.for_each(|(name, value)| options.append(name, value));
    for (name, value) in change.default_options.iter().flatten() {
        if options.get(name.as_str()).ok().flatten().is_none() {
            options.append(name, value);
        }
    }
    if let Some(size) = size {
        options.append(cstr!("size"), size);
    }
    if let Some(max) = max {
        options.append(cstr!("max"), max);
    }
    Ok(options)
}
