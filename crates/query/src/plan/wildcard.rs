//! What wildcard indexes do for a conjunction: a scan of one path.
//!
//! Keys are there for values alone: what a field is without, null included, has no key, and a document none but those of
//! what is in it. So a predicate serves when all that matches it has a value there, and no document or array as a whole.

use super::access::{Access, Unbounded};
use super::convert::has_position;
use super::encode::{bracket, everything, is_everything, point};
use super::interval::{Interval, Intervals};
use super::leaf::{Leaf, prefix_range};
use super::predicate::Predicate;
use bson::RawDocumentBuf;
use bson::raw::RawBsonRef;
use bson::spec::ElementType;
use keys::extract::path_place;
use keys::FieldKind;
use std::sync::{Arc, LazyLock};
use storage::Index;

/// `{}` has a key, as the documents that have no fields that count.
static EMPTY_DOCUMENT: LazyLock<Interval> =
    LazyLock::new(|| point(RawBsonRef::Document(&RawDocumentBuf::new())));
static DOCUMENTS: LazyLock<Intervals> = LazyLock::new(|| Intervals::one(bracket(ElementType::EmbeddedDocument)));

/// One path of a wildcard index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WildcardPath {
    pub(crate) path: Arc<str>,
    /// Every key of the path and of those below counts: all that is asked is that there is something.
    pub(crate) with_below: bool,
}

impl WildcardPath {
    /// The keys of the paths, in the place of the index's path.
    pub(crate) fn path_set(&self) -> Intervals {
        let own = point(RawBsonRef::String(&self.path));
        match self.with_below {
            true => Intervals::from_unsorted(vec![own, prefix_range(&format!("{}.", self.path))]),
            false => Intervals::one(own),
        }
    }
}

/// What a leaf says of the values of a wildcard index at its path, and whether that is all there is to say.
pub(super) fn values(leaf: &Leaf) -> Option<(Intervals, bool)> {
    if leaf.matches_missing {
        return None;
    }
    if is_everything(&leaf.set) {
        // All that has a key at the path or below it.
        return (!leaf.scalar_only).then(|| (Intervals::one(everything()), false));
    }
    let documents = leaf.set.intersect(&DOCUMENTS);
    match documents.list() {
        [] => Some((leaf.set.clone(), leaf.exact)),
        [only] if *only == *EMPTY_DOCUMENT => Some((leaf.set.clone(), false)),
        _ => None,
    }
}

/// Whether the path, or what leads to it, may hold arrays.
pub(crate) fn holds_arrays(index: &Index, path: &str) -> bool {
    let places = index.multikey();
    let ends = path.match_indices('.').map(|(dot, _)| dot).chain([path.len()]);
    ends.map(|end| path_place(&path[..end]))
        .any(|(field, part)| places.contains(field, part))
}

/// All that a wildcard index can do for a conjunction: an access for each path.
pub(super) fn accesses(index: &Arc<Index>, conjuncts: &[&Predicate]) -> Vec<Access> {
    let Some(spec) = index.wildcard() else {
        return Vec::new();
    };
    let mut paths: Vec<&str> = Vec::new();
    for conjunct in conjuncts {
        if let Predicate::Leaf(leaf) = conjunct
            && !paths.contains(&leaf.path.as_str())
            && !has_position(&leaf.path)
            && spec.covers(&leaf.path)
        {
            paths.push(&leaf.path);
        }
    }
    let access = |path: &&str| {
        let path = WildcardPath {
            path: Arc::from(*path),
            with_below: false,
        };
        let multikey = match holds_arrays(index, &path.path) {
            true => 0b10,
            false => 0,
        };
        Access::of_wildcard(index, path, multikey, conjuncts)
    };
    paths.iter().filter_map(access).collect()
}

/// All accesses of an index, of whatever kind.
pub(super) fn all_accesses(index: &Arc<Index>, conjuncts: &[&Predicate]) -> Vec<Access> {
    match index.wildcard() {
        Some(_) => accesses(index, conjuncts),
        None => Access::of(index, conjuncts, Unbounded::Refuse).into_iter().collect(),
    }
}

/// Whether a wildcard index has the values of a path.
pub(super) fn covers(index: &Index, path: &str) -> bool {
    index.wildcard().is_some_and(|spec| !has_position(path) && spec.covers(path))
}

/// The kind that fields on a path have for the planner.
pub(super) fn kind_at(index: &Index, path: &str) -> Option<FieldKind> {
    covers(index, path).then_some(FieldKind::Value)
}

