//! How one index serves a conjunction: which predicate bounds which field, what the bounds leave to be checked, and
//! whether the scan comes in a wanted order.
//!
//! The rules for fields that hold arrays: two predicates on one such field may be satisfied by different elements, so
//! only one of them bounds a scan; two fields below one array may take their values from different elements, so both
//! are bound only when one `$elemMatch` on that very array holds both predicates.

use super::encode::{everything, is_everything};
use super::index_bounds::IndexBounds;
use super::interval::Intervals;
use super::leaf::Leaf;
use super::predicate::Predicate;
use super::wildcard::{self, WildcardPath};
use crate::sort_field::SortField;
use engine::Direction;
use keys::extract::PatternField;
use keys::{FieldKind, FieldOrder};
use std::borrow::Cow;
use std::sync::Arc;
use storage::Index;

/// One index and its bounds.
#[derive(Clone)]
pub(crate) struct Access {
    pub(crate) index: Arc<Index>,
    /// One set per field of the pattern, ascending.
    sets: Vec<Intervals>,
    /// Every record found matches the conjunction.
    pub(crate) exact: bool,
    /// Bit per field of the pattern.
    multikey: u32,
    /// The path of a wildcard index.
    pub(crate) wildcard: Option<WildcardPath>,
}

/// Whether an index without bounds is of use (for its order, or because a hint says so).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unbounded {
    Refuse,
    Allow,
    /// The keys of a geometry are bounded later, ring by ring around a point.
    Near,
}

/// Most scans that a set of single values is taken apart into for the sake of order.
const MERGED_SCANS_MAX: usize = 200;

impl Access {
    /// What `index` does for the conjunction; `None` when it must not or cannot be used.
    pub(crate) fn of(index: &Arc<Index>, conjuncts: &[&Predicate], unbounded: Unbounded) -> Option<Self> {
        let pattern = index.pattern().fields();
        let multikey = multikey_bits(index);
        let leaves = leaves_of(conjuncts);
        let mut holds_what_exists = false;
        if index.sparse() && unbounded == Unbounded::Refuse {
            // On the way to a dotted path there may be an array without documents: the path then leads nowhere, which
            // "not null" is true of.
            let says_of_all = |leaf: &Leaf| !leaf.scalar_only || !leaf.path.contains('.');
            let excludes_missing = |(_, leaf): &(usize, &Leaf)| {
                !leaf.matches_missing && says_of_all(leaf) && pattern.iter().any(|field| field.path() == leaf.path)
            };
            if !leaves.iter().any(excludes_missing) {
                return None;
            }
            let is_of_first = |leaf: &&(usize, &Leaf)| pattern.first().is_some_and(|field| field.path() == leaf.1.path);
            // `$exists: true` bounds nothing, and yet the index has fewer records than the collection.
            holds_what_exists = leaves.iter().filter(is_of_first).any(excludes_missing);
        }
        let (sets, exact) = sets_of(index, conjuncts, &leaves, multikey, None);
        let is_text = index.pattern().special() == Some(FieldKind::Term);
        if !holds_all(index) && (unbounded == Unbounded::Refuse || is_text && unbounded == Unbounded::Allow) {
            let is_geometry = |position: &usize| pattern[*position].kind() != FieldKind::Value;
            let mut geometries = (0..pattern.len()).filter(is_geometry);
            if geometries.all(|position| is_everything(&sets[position])) {
                return None;
            }
        }
        let access = Self {
            index: index.clone(),
            sets,
            exact,
            multikey,
            wildcard: None,
        };
        let first_is_bound = access.sets.first().is_some_and(|set| !is_everything(set));
        (first_is_bound || holds_what_exists || unbounded != Unbounded::Refuse).then_some(access)
    }

    /// What a path of a wildcard index does for the conjunction; `None` when that is nothing. `multikey` is of the
    /// path.
    pub(super) fn of_wildcard(
        index: &Arc<Index>,
        mut path: WildcardPath,
        multikey: u32,
        conjuncts: &[&Predicate],
    ) -> Option<Self> {
        let leaves = leaves_of(conjuncts);
        let (mut sets, exact) = sets_of(index, conjuncts, &leaves, multikey, Some(&path.path));
        let at = index
            .pattern()
            .fields()
            .iter()
            .position(|field| field.kind() == FieldKind::Wildcard)?;
        path.with_below = is_everything(&sets[at]);
        sets[at - 1] = path.path_set();
        // Of all values below a path a record has many.
        let of_path = if path.with_below { 1 << at } else { 0 };
        let access = Self {
            index: index.clone(),
            sets,
            exact,
            multikey: multikey | of_path,
            wildcard: Some(path),
        };
        access
            .sets
            .first()
            .is_some_and(|set| !is_everything(set))
            .then_some(access)
    }

    /// What the other fields of a compound wildcard index do for the conjunction.
    pub(super) fn beside_wildcard(index: &Arc<Index>, multikey: u32, conjuncts: &[&Predicate]) -> Option<Self> {
        let (sets, exact) = sets_of(index, conjuncts, &leaves_of(conjuncts), multikey, None);
        let at = index
            .pattern()
            .fields()
            .iter()
            .position(|field| field.kind() == FieldKind::Path)?;
        let access = Self {
            index: index.clone(),
            sets,
            exact,
            // A record has a key for each of its values.
            multikey: multikey | 1 << at,
            wildcard: None,
        };
        access
            .sets
            .first()
            .is_some_and(|set| !is_everything(set))
            .then_some(access)
    }

    /// The path of a field of the index, in a wildcard's place that which is scanned.
    fn path_of<'f>(&'f self, field: &'f PatternField) -> &'f str {
        match (&self.wildcard, field.kind()) {
            (Some(wildcard), FieldKind::Wildcard) => &wildcard.path,
            _ => field.path(),
        }
    }

    /// Whether a field of the index has the values of a sort's field.
    fn sorts_as(&self, field: &PatternField, wanted: &SortField) -> bool {
        matches!(field.kind(), FieldKind::Value | FieldKind::Wildcard) && self.path_of(field) == wanted.path
    }

    /// A scan of the whole index.
    pub(crate) fn whole(index: &Arc<Index>, exact: bool) -> Self {
        let sets = index
            .pattern()
            .fields()
            .iter()
            .map(|_| Intervals::one(everything()))
            .collect();
        Self {
            index: index.clone(),
            sets,
            exact,
            multikey: multikey_bits(index),
            wildcard: None,
        }
    }

    /// True when some field holds arrays: a record may have several keys.
    pub(crate) fn is_multikey(&self) -> bool {
        self.multikey != 0
    }

    /// True when some keys are out of bounds for the first field.
    pub(crate) fn is_bounded(&self) -> bool {
        self.sets.first().is_some_and(|set| !is_everything(set))
    }

    /// True when each field in front of this one is held to single values.
    pub(crate) fn has_single_values_before(&self, field: usize) -> bool {
        self.sets.iter().take(field).all(Intervals::all_points)
    }

    /// False once a field holds arrays that held none when the bounds were made.
    pub(crate) fn is_current(&self) -> bool {
        let now = match self.index.wildcard() {
            Some(_) => wildcard::multikey_at(&self.index, self.wildcard.as_ref()),
            None => multikey_bits(&self.index),
        };
        now & !self.multikey == 0
    }

    /// True when the scan can meet a record twice.
    pub(crate) fn may_repeat(&self) -> bool {
        self.is_multikey() && self.sets.iter().any(|set| set.single_point().is_none())
    }

    /// The bounds, in each field's own encoding.
    pub(crate) fn bounds(&self) -> IndexBounds {
        bounds_of(&self.index, &self.sets)
    }

    /// The bounds with these keys for a field.
    pub(crate) fn bounds_with(&self, field: usize, keys: Intervals) -> IndexBounds {
        let mut sets = self.sets.clone();
        sets[field] = keys;
        bounds_of(&self.index, &sets)
    }

    /// At most one record has these bounds.
    pub(crate) fn is_unique_point(&self) -> bool {
        self.index.unique()
            && self.index.pattern().special().is_none()
            && self.sets.iter().all(|set| set.single_point().is_some())
    }

    /// Smaller is better, where nothing but the bounds is known: how many leading fields are bound, and how tightly.
    pub(crate) fn rank(&self) -> impl Ord + use<> {
        let points = self.sets.iter().take_while(|set| set.single_point().is_some()).count();
        let lists = self.sets.iter().take_while(|set| set.all_points()).count();
        let bound = self.sets.iter().filter(|set| !is_everything(set)).count();
        let reversed = |count: usize| usize::MAX - count;
        (
            !self.is_unique_point(),
            reversed(points),
            reversed(lists),
            reversed(bound),
            !self.exact,
            self.sets.len(),
        )
    }

    /// True when the index' own order, not just a value that is the same in all rows, gives this order.
    pub(crate) fn orders(&self, sort: &[SortField]) -> bool {
        let points: Vec<bool> = self.sets.iter().map(|set| set.single_point().is_some()).collect();
        let pattern = self.index.pattern().fields();
        let constant = |field: &SortField| (0..pattern.len()).any(|i| self.sorts_as(&pattern[i], field) && points[i]);
        !sort.iter().all(constant) && self.direction_with(sort, &points).is_some()
    }

    /// Whether a field that this order is about holds arrays.
    pub(crate) fn sorts_arrays(&self, sort: &[SortField]) -> bool {
        let fields = self.index.pattern().fields().iter().enumerate();
        let mut of_arrays = fields.filter(|(i, _)| self.multikey & 1 << i != 0);
        of_arrays.any(|(_, field)| sort.iter().any(|wanted| self.sorts_as(field, wanted)))
    }

    /// The direction in which the scan gives rows in this order; `None` when it does not.
    pub(crate) fn direction_for(&self, sort: &[SortField]) -> Option<Direction> {
        let points: Vec<bool> = self.sets.iter().map(|set| set.single_point().is_some()).collect();
        self.direction_with(sort, &points)
    }

    fn direction_with(&self, sort: &[SortField], points: &[bool]) -> Option<Direction> {
        let pattern = self.index.pattern().fields();
        let is_multikey = |i: usize| self.multikey & 1 << i != 0;
        let (mut next, mut direction) = (0, None);
        for wanted in sort {
            let constant = |i: usize| self.sorts_as(&pattern[i], wanted) && points[i] && !is_multikey(i);
            if (0..pattern.len()).any(constant) {
                continue;
            }
            while pattern
                .get(next)
                .is_some_and(|field| !self.sorts_as(field, wanted) && points[next])
            {
                next += 1;
            }
            let field = pattern.get(next).filter(|field| self.sorts_as(field, wanted))?;
            if is_multikey(next) && !self.orders_arrays(next) {
                return None;
            }
            let this = if field.order() == wanted.order {
                Direction::Forward
            } else {
                Direction::Reverse
            };
            if *direction.get_or_insert(this) != this {
                return None;
            }
            next += 1;
        }
        Some(direction.unwrap_or(Direction::Forward))
    }

    /// A field with arrays sorts by its smallest (largest) element of all: the scan must be able to meet each of them.
    fn orders_arrays(&self, position: usize) -> bool {
        let pattern = self.index.pattern().fields();
        let path = pattern[position].path();
        // An element without the field, which is the smallest, has no key in a sparse index.
        let has_all_elements = !self.index.sparse() || !path.contains('.');
        has_all_elements
            && is_everything(&self.sets[position])
            && (0..pattern.len()).all(|other| {
                self.multikey & 1 << other == 0
                    || is_everything(&self.sets[other])
                    || shared_prefix(path, pattern[other].path()).is_empty()
            })
    }

    /// Several scans of single values that each give this order, where the whole does not.
    pub(crate) fn split_for(&self, sort: &[SortField]) -> Option<(Vec<IndexBounds>, Direction)> {
        let listed = self
            .sets
            .iter()
            .take_while(|set| set.all_points() && !set.is_empty())
            .count();
        let scans: usize = self.sets[..listed]
            .iter()
            .map(|set| set.list().len())
            .try_fold(1usize, |a, b| {
                a.checked_mul(b).filter(|product| *product <= MERGED_SCANS_MAX)
            })?;
        if scans < 2 {
            return None;
        }
        let points: Vec<bool> = (0..self.sets.len()).map(|i| i < listed).collect();
        // A listed field is constant within a scan only: it cannot be skipped in the sort itself.
        let pattern = self.index.pattern().fields();
        let sorts_by_listed = |field: &SortField| {
            (0..listed).any(|i| self.sorts_as(&pattern[i], field) && self.sets[i].single_point().is_none())
        };
        if sort.iter().any(sorts_by_listed) {
            return None;
        }
        let direction = self.direction_with(sort, &points)?;
        let fields = bound_fields(&self.sets);
        let mut all = vec![Vec::with_capacity(fields)];
        for (i, set) in self.sets[..fields].iter().enumerate() {
            let choices: Vec<Intervals> = match i < listed {
                true => set.list().iter().map(|point| Intervals::one(point.clone())).collect(),
                false => vec![set.clone()],
            };
            let choices: Vec<Intervals> = choices.iter().map(|set| as_stored(&self.index, i, set)).collect();
            all = all
                .into_iter()
                .flat_map(|prefix| {
                    choices.iter().map(move |choice| {
                        let mut sets: Vec<Intervals> = prefix.clone();
                        sets.push(choice.clone());
                        sets
                    })
                })
                .collect();
        }
        Some((all.into_iter().map(IndexBounds::new).collect(), direction))
    }

    /// The set of each field of the pattern.
    pub(crate) fn sets(&self) -> &[Intervals] {
        &self.sets
    }

    /// The intervals that were made for it alone, and the memory they take.
    pub(super) fn own_intervals(&self) -> (usize, usize) {
        let own = self.sets.iter().filter(|set| set.is_unshared());
        own.fold((0, 0), |(count, bytes), set| {
            (count + set.list().len(), bytes + set.bytes())
        })
    }
}

fn leaves_of<'c>(conjuncts: &[&'c Predicate]) -> Vec<(usize, &'c Leaf)> {
    let leaf = |(i, predicate): (usize, &&'c Predicate)| match predicate {
        Predicate::Leaf(leaf) => Some((i, &**leaf)),
        _ => None,
    };
    conjuncts.iter().enumerate().filter_map(leaf).collect()
}

/// The keys that a conjunction allows for each field, and whether nothing else has to be looked at. `wildcard` is the
/// path of a wildcard's values.
fn sets_of(
    index: &Index,
    conjuncts: &[&Predicate],
    leaves: &[(usize, &Leaf)],
    multikey: u32,
    wildcard: Option<&str>,
) -> (Vec<Intervals>, bool) {
    let pattern = index.pattern().fields();
    let mut used = vec![false; conjuncts.len()];
    let mut sets = Vec::with_capacity(pattern.len());
    let mut chosen: Vec<(usize, &Leaf)> = Vec::new();
    for (position, field) in pattern.iter().enumerate() {
        let kind = field.kind();
        let path = match (kind, wildcard) {
            (FieldKind::Wildcard, Some(path)) => path,
            _ => field.path(),
        };
        // Place among the conjuncts, leaf, keys, and whether these are all there is to say.
        let mine = leaves
            .iter()
            .filter(|(_, leaf)| leaf.path == path)
            .filter_map(|(i, leaf)| match kind {
                FieldKind::Wildcard => {
                    let (keys, exact) = wildcard::values(leaf)?;
                    Some((*i, *leaf, Cow::Owned(keys), exact))
                }
                kind => {
                    let exact = leaf.exact && kind == FieldKind::Value;
                    Some((*i, *leaf, Cow::Borrowed(leaf.set_of(kind)?), exact))
                }
            });
        if multikey & 1 << position == 0 {
            let keys_of_all = mine.map(|(i, _, keys, exact)| {
                used[i] |= exact;
                keys.into_owned()
            });
            let set = Intervals::common_to_all(keys_of_all);
            sets.push(set.unwrap_or_else(|| Intervals::one(everything())));
            continue;
        }
        let allowed = |leaf: &Leaf| {
            !leaf.scalar_only
                && chosen.iter().all(|(other, bound)| {
                    let array = shared_prefix(path, pattern[*other].path());
                    array.is_empty() || in_one_element(leaf, bound, array)
                })
        };
        let best = mine
            .filter(|(_, leaf, ..)| allowed(leaf))
            .min_by_key(|(_, leaf, ..)| leaf.rank());
        match best {
            Some((i, leaf, keys, exact)) => {
                used[i] |= exact;
                chosen.push((position, leaf));
                sets.push(keys.into_owned());
            }
            None => sets.push(Intervals::one(everything())),
        }
    }
    (sets, used.iter().all(|used| *used))
}

/// False for indexes that leave documents out that have no geometries, no text or no fields.
pub(crate) fn holds_all(index: &Index) -> bool {
    !matches!(
        index.pattern().special(),
        Some(FieldKind::Sphere | FieldKind::Plane(_) | FieldKind::Term | FieldKind::Path)
    )
}

fn bounds_of(index: &Index, sets: &[Intervals]) -> IndexBounds {
    let own = |(i, set): (usize, &Intervals)| as_stored(index, i, set);
    IndexBounds::new(sets[..bound_fields(sets)].iter().enumerate().map(own).collect())
}

/// How many fields there are up to the last that is bound.
fn bound_fields(sets: &[Intervals]) -> usize {
    sets.iter()
        .rposition(|set| !is_everything(set))
        .map_or(0, |last| last + 1)
}

/// A set of a field in the field's own encoding.
fn as_stored(index: &Index, field: usize, set: &Intervals) -> Intervals {
    match index.pattern().ordering().field(field) {
        FieldOrder::Ascending => set.clone(),
        FieldOrder::Descending => set.complemented(),
    }
}

/// Which fields of the index' pattern hold arrays, a bit each.
pub(crate) fn multikey_bits(index: &Index) -> u32 {
    let multikey = index.multikey();
    (0..index.pattern().fields().len())
        .filter(|i| multikey.field_is_multikey(*i))
        .fold(0, |bits, i| bits | 1 << i)
}

/// The leading path parts that both have: `a.b` of `a.b.c` and `a.b.d`.
fn shared_prefix<'p>(path: &'p str, other: &str) -> &'p str {
    let mut end = 0;
    let mut parts = other.split('.');
    let mut offset = 0;
    for part in path.split('.') {
        if parts.next() != Some(part) {
            break;
        }
        end = offset + part.len();
        offset = end + 1;
    }
    &path[..end]
}

fn in_one_element(leaf: &Leaf, bound: &Leaf, array: &str) -> bool {
    match (&leaf.element, &bound.element) {
        (Some(a), Some(b)) => a == b && a.0 == array,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_are_of_whole_parts() {
        assert_eq!(shared_prefix("a.b.c", "a.b.d"), "a.b");
        assert_eq!(shared_prefix("a.bc", "a.b"), "a");
        assert_eq!(shared_prefix("a", "b"), "");
        assert_eq!(shared_prefix("a.b", "a.b"), "a.b");
    }
}
