//! What wildcard indexes do for a conjunction: a scan of one path.
//!
//! Keys are there for values alone: what a field is without, null included, has no key, and a document none but those
//! of what is in it. So a predicate serves when all that matches it has a value there, and no document or array as a
//! whole.

use super::access::{Access, Unbounded};
use super::convert::has_position;
use super::encode::{bracket, everything, is_everything, point};
use super::interval::{Interval, Intervals};
use super::leaf::{Leaf, prefix_range};
use super::predicate::Predicate;
use crate::QueryError;
use crate::evaluation::EvaluationContext;
use bson::RawDocumentBuf;
use bson::raw::RawBsonRef;
use bson::spec::ElementType;
use keys::extract::{PatternField, path_place};
use keys::{FieldKind, WildcardSpec};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, LazyLock};
use storage::Index;

/// `{}` has a key, as the documents that have no fields that count.
static EMPTY_DOCUMENT: LazyLock<Interval> = LazyLock::new(|| point(RawBsonRef::Document(&RawDocumentBuf::new())));
static DOCUMENTS: LazyLock<Intervals> = LazyLock::new(|| Intervals::one(bracket(ElementType::EmbeddedDocument)));

/// One path of a wildcard index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WildcardPath {
    pub(crate) path: Arc<str>,
    /// Every key of the path and of those below counts: all that is asked is that there is something.
    pub(crate) with_below: bool,
    /// Other paths that keys may have: see [`alternatives`].
    others: Vec<String>,
}

impl WildcardPath {
    /// The keys of the paths, in the place of the index's path.
    pub(crate) fn path_set(&self) -> Intervals {
        let paths = self.others.iter().map(String::as_str).chain([&*self.path]);
        let mut set: Vec<Interval> = paths.clone().map(|path| point(RawBsonRef::String(path))).collect();
        if self.with_below {
            set.extend(paths.map(|path| prefix_range(&format!("{path}."))));
        }
        Intervals::from_unsorted(set)
    }
}

/// The paths that values may have in keys, where one component of a path is a number: it is the name of a field, or a
/// position, which keys do not have; and what is in an array in an array has the key of that, at the path that leads
/// there.
fn alternatives(path: &str) -> Vec<String> {
    let names: Vec<&str> = path.split('.').collect();
    let Some(number) = names.iter().position(|name| has_position(name)) else {
        return Vec::new();
    };
    let without = [&names[..number], &names[number + 1..]].concat();
    let mut others: Vec<String> = [names, without]
        .iter()
        .flat_map(|names| (1..=names.len()).map(|length| names[..length].join(".")))
        .filter(|other| other != path)
        .collect();
    others.sort_unstable();
    others.dedup();
    others
}

/// What a leaf says of the values of a wildcard index at its path, and whether that is all there is to say.
pub(super) fn values(leaf: &Leaf) -> Option<(Intervals, bool)> {
    if leaf.matches_missing {
        return None;
    }
    if has_position(&leaf.path) && !is_everything(&leaf.set) {
        let (set, _) = plain_values(leaf)?;
        let arrays = bracket(ElementType::Array);
        return Some((Intervals::from_unsorted([set.list(), &[arrays]].concat()), false));
    }
    plain_values(leaf)
}

fn plain_values(leaf: &Leaf) -> Option<(Intervals, bool)> {
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

/// Most paths of a filter that a wildcard index is asked for: those whose bounds promise most.
const PATHS_MAX: usize = 64;

/// All that a wildcard index can do for a conjunction: an access for each path.
pub(super) fn accesses(
    index: &Arc<Index>,
    conjuncts: &[&Predicate],
    evaluation: &EvaluationContext<'_>,
) -> Result<Vec<Access>, QueryError> {
    let Some(spec) = index.wildcard() else {
        return Ok(Vec::new());
    };
    // Each with the rank of its best leaf, in the order in which the filter names them.
    let mut paths: Vec<(&str, (u8, usize))> = Vec::new();
    let mut places: HashMap<&str, usize> = HashMap::new();
    for conjunct in conjuncts {
        evaluation.step()?;
        let Predicate::Leaf(leaf) = conjunct else { continue };
        if !covers(spec, &leaf.path) || values(leaf).is_none() {
            continue;
        }
        match places.entry(&leaf.path) {
            Entry::Occupied(place) => {
                let rank = &mut paths[*place.get()].1;
                *rank = leaf.rank().min(*rank);
            }
            Entry::Vacant(place) => {
                place.insert(paths.len());
                paths.push((&leaf.path, leaf.rank()));
            }
        }
    }
    if paths.len() > PATHS_MAX {
        paths.sort_by_key(|(_, rank)| *rank);
        paths.truncate(PATHS_MAX);
    }
    let mut found = Vec::with_capacity(paths.len());
    for (path, _) in paths {
        evaluation.steps(1 + conjuncts.len())?;
        let path = WildcardPath {
            path: Arc::from(path),
            with_below: false,
            others: alternatives(path),
        };
        let multikey = multikey_at(index, Some(&path));
        found.extend(Access::of_wildcard(index, path, multikey, conjuncts));
    }
    if index.pattern().fields().len() > 2 {
        found.extend(Access::beside_wildcard(index, multikey_at(index, None), conjuncts));
    }
    Ok(found)
}

/// Which fields of a wildcard index hold arrays, a bit each, when this is the wildcard's path.
pub(crate) fn multikey_at(index: &Index, path: Option<&WildcardPath>) -> u32 {
    let fields = index.pattern().fields().iter().enumerate();
    let holds_arrays = |field: &PatternField| match (field.kind(), path) {
        (FieldKind::Wildcard, Some(path)) => !path.others.is_empty() || holds_arrays(index, &path.path),
        // An array beside the wildcard is refused.
        _ => false,
    };
    fields
        .filter(|(_, field)| holds_arrays(field))
        .fold(0, |bits, (position, _)| bits | 1 << position)
}

/// All accesses of an index, of whatever kind.
pub(super) fn all_accesses(
    index: &Arc<Index>,
    conjuncts: &[&Predicate],
    evaluation: &EvaluationContext<'_>,
) -> Result<Vec<Access>, QueryError> {
    match index.wildcard() {
        Some(_) => accesses(index, conjuncts, evaluation),
        None => Ok(Access::of(index, conjuncts, Unbounded::Refuse).into_iter().collect()),
    }
}

/// Whether an index has all values of a path.
fn covers(spec: &WildcardSpec, path: &str) -> bool {
    spec.covers(path) && alternatives(path).iter().all(|other| spec.covers(other))
}

/// The kind that fields on a path have for the planner.
pub(super) fn kind_at(index: &Index, path: &str) -> Option<FieldKind> {
    index
        .wildcard()
        .filter(|spec| covers(spec, path))
        .map(|_| FieldKind::Value)
}
