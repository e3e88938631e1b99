//! What comes next in a walk: the leaves on disk behind the one that it is in, as the inner nodes in memory have them.

use crate::leaf::{Base, LeafView};
use crate::tree::{Child, Descent, Fence, Inner, Target, Tree};
use blocks::BlockAddr;
use engine::{Direction, KeyRange};
use rcu::Guard;
use std::ops::Bound;
use std::sync::Arc;

/// A node on disk.
pub(crate) struct Node {
    /// A key in its range.
    pub(crate) key: Vec<u8>,
    pub(crate) address: BlockAddr,
    pub(crate) level: u8,
    /// A leaf that the walk comes to when it is long.
    pub(crate) is_for_long: bool,
}

/// Where a walk has come to.
#[derive(Clone, Copy)]
pub(crate) struct WalkPosition<'w, 'g> {
    /// The way to its leaf.
    pub(crate) descent: &'w Descent<'g>,
    pub(crate) direction: Direction,
    /// What it shall walk over.
    pub(crate) range: &'w KeyRange,
    /// Where its leaf is, when it is on disk.
    pub(crate) address: Option<BlockAddr>,
}

/// What lies on disk of that which comes next in a walk.
#[derive(Default)]
pub(crate) struct Coming<'g> {
    /// In the order of the walk.
    pub(crate) leaves: Vec<ComingLeaf<'g>>,
    /// The node behind whose leaves are not known before it is in memory.
    pub(crate) inner: Option<Node>,
}

pub(crate) struct ComingLeaf<'g> {
    parent: &'g Arc<Inner>,
    /// The ends of the parent's range.
    low: Option<Fence<'g>>,
    high: Option<Fence<'g>>,
    index: usize,
    pub(crate) address: BlockAddr,
    /// How many leaves further on it is.
    pub(crate) distance: usize,
    /// It shall be loaded; it is too early for others.
    pub(crate) is_near: bool,
    /// The leaf is in memory with what was written to it; its rows are on disk.
    pub(crate) is_base: bool,
}

impl ComingLeaf<'_> {
    /// The lowest key of its range.
    pub(crate) fn key(&self) -> Vec<u8> {
        match self.index.checked_sub(1) {
            Some(separator) => self.parent.separators.get(separator).to_vec(),
            None => self.low.map_or_else(Vec::new, Fence::to_vec),
        }
    }

    /// Whether it lies where a walk over `range` does not come.
    fn is_past(&self, direction: Direction, range: &KeyRange) -> bool {
        let fence = match direction {
            Direction::Forward => Some(self.key()),
            Direction::Reverse if self.index < self.parent.separators.len() => {
                Some(self.parent.separators.get(self.index).to_vec())
            }
            Direction::Reverse => self.high.map(Fence::to_vec),
        };
        fence.is_some_and(|fence| is_past(&fence, direction, range))
    }
}

/// Whether a range ends before the leaf that begins (forward) or ends (reverse) at a fence.
pub(crate) fn is_past(fence: &[u8], direction: Direction, range: &KeyRange) -> bool {
    match direction {
        Direction::Forward => match &range.end {
            Bound::Unbounded => false,
            Bound::Included(end) => fence > end.as_slice(),
            Bound::Excluded(end) => fence >= end.as_slice(),
        },
        Direction::Reverse => match &range.start {
            Bound::Unbounded => false,
            Bound::Included(start) | Bound::Excluded(start) => fence <= start.as_slice(),
        },
    }
}

/// The end of a leaf that a walk comes to; `None` where the tree ends.
pub(crate) fn fence_behind(descent: &Descent<'_>, direction: Direction) -> Option<Vec<u8>> {
    let fence = match direction {
        Direction::Forward => descent.high,
        Direction::Reverse => descent.low,
    };
    fence.map(Fence::to_vec)
}

/// Where a leaf's rows are on disk, if they are not in memory.
fn leaf_on_disk(child: &Child, guard: &Guard) -> Option<BlockAddr> {
    match child {
        Child::OnDisk { address, level: 0 } => Some(*address),
        Child::Leaf(leaf) => match leaf.view.load(guard) {
            LeafView {
                retired: false,
                base: Base::OnDisk(address),
                ..
            } => Some(*address),
            _ => None,
        },
        _ => None,
    }
}

impl<'g> Coming<'g> {
    /// Of the `count` leaves behind that of `descent`; the first `near` are near.
    pub(crate) fn after(
        tree: &'g Tree,
        position: WalkPosition<'_, 'g>,
        count: usize,
        near: usize,
        guard: &'g Guard,
    ) -> Self {
        let mut coming = Self::up_to(tree, position, count, near, guard);
        let inside = |leaf: &ComingLeaf<'_>| !leaf.is_past(position.direction, position.range);
        if coming.leaves.last().is_some_and(|last| !inside(last)) {
            coming.leaves.truncate(coming.leaves.partition_point(inside));
            coming.inner = None;
        }
        coming
    }

    /// The same, whether the walk comes there or not.
    fn up_to(tree: &'g Tree, position: WalkPosition<'_, 'g>, count: usize, near: usize, guard: &'g Guard) -> Self {
        let WalkPosition {
            descent,
            direction,
            range,
            ..
        } = position;
        let mut coming = Self::default();
        let Some((mut parent, index)) = descent.parent else {
            return coming;
        };
        let key = descent.low.map_or_else(Vec::new, Fence::to_vec);
        let mut above = tree.descend(Target::At(&key), 1, guard);
        let mut indexes = match direction {
            Direction::Forward => index + 1..parent.children.len(),
            Direction::Reverse => 0..index,
        };
        let mut seen = 0;
        loop {
            while seen < count
                && let Some(index) = match direction {
                    Direction::Forward => indexes.next(),
                    Direction::Reverse => indexes.next_back(),
                }
            {
                let child = parent.children[index].load(guard);
                if let Some(address) = leaf_on_disk(child, guard) {
                    coming.leaves.push(ComingLeaf {
                        parent,
                        low: above.low,
                        high: above.high,
                        index,
                        address,
                        distance: seen + 1,
                        is_near: seen < near,
                        is_base: matches!(child, Child::Leaf(_)),
                    });
                }
                seen += 1;
            }
            let fence = match direction {
                Direction::Forward => above.high,
                Direction::Reverse => above.low,
            };
            let Some(fence) = fence.filter(|_| seen < count) else {
                return coming;
            };
            let key = fence.to_vec();
            if is_past(&key, direction, range) {
                return coming;
            }
            let target = match direction {
                Direction::Forward => Target::At(&key),
                Direction::Reverse => Target::Before(&key),
            };
            above = tree.descend(target, 1, guard);
            match above.child {
                Child::Inner(next) => (parent, indexes) = (next, 0..next.children.len()),
                Child::OnDisk { address, level } => {
                    coming.inner = Some(Node {
                        key: above.low.map_or_else(Vec::new, Fence::to_vec),
                        address: *address,
                        level: *level,
                        is_for_long: false,
                    });
                    return coming;
                }
                Child::Leaf(_) | Child::Nothing => return coming,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{block, lone_tree};
    use crate::leaf::Leaf;
    use crate::page::Separators;

    const INNER: usize = 4;
    const LEAVES: usize = 10;

    /// The address of a leaf, or of the inner node above it.
    fn stored(leaf: usize, level: u8) -> Child {
        let address = block(100 * leaf as u32 + u32::from(level) + 1, 1);
        Child::OnDisk { address, level }
    }

    fn low(leaf: usize) -> Vec<u8> {
        vec![leaf as u8]
    }

    /// Four inner nodes of ten leaves each; the leaves, and the node of number `absent`, are on disk.
    fn tree(absent: usize) -> Tree {
        let separators = |leaves: &mut dyn Iterator<Item = usize>| {
            let lows: Vec<Vec<u8>> = leaves.map(low).collect();
            Separators::from_keys(&lows.iter().map(Vec::as_slice).collect::<Vec<_>>())
        };
        let inner = |number: usize| {
            let first = number * LEAVES;
            let leaves = (first..first + LEAVES).map(|leaf| stored(leaf, 0)).collect();
            let separators = separators(&mut (first + 1..first + LEAVES));
            Child::Inner(Arc::new(Inner::new(1, separators, leaves)))
        };
        let children = (0..INNER).map(|number| match number == absent {
            true => stored(number * LEAVES, 1),
            false => inner(number),
        });
        let separators = separators(&mut (1..INNER).map(|number| number * LEAVES));
        let root = Inner::new(2, separators, children.collect());
        lone_tree(Child::Inner(Arc::new(root)))
    }

    /// The leaves that come after one, those that are near, and the node that is not in memory.
    fn coming(tree: &Tree, leaf: usize, direction: Direction, range: &KeyRange) -> (Vec<usize>, usize, Option<usize>) {
        let guard = rcu::pin();
        let key = low(leaf);
        let position = WalkPosition {
            descent: &tree.descend(Target::At(&key), 0, &guard),
            direction,
            range,
            address: None,
        };
        let coming = Coming::after(tree, position, 15, 5, &guard);
        let number = |address: BlockAddr| (address.sector() / 100) as usize;
        let leaves = coming.leaves.iter().map(|leaf| {
            let number = number(leaf.address);
            let key = leaf.key();
            // The first has no lowest key.
            assert!(key == low(number) || number == 0 && key.is_empty(), "{number}: {key:?}");
            number
        });
        let inner = coming.inner.map(|inner| {
            assert_eq!((inner.level, inner.address.sector() % 100), (1, 2));
            assert_eq!(inner.key, low(number(inner.address)));
            number(inner.address) / LEAVES
        });
        (
            leaves.collect(),
            coming.leaves.iter().filter(|leaf| leaf.is_near).count(),
            inner,
        )
    }

    #[test]
    fn leaves_under_other_inner_nodes_come_too() {
        let (tree, all) = (tree(INNER), KeyRange::all());
        let forward = |leaf| coming(&tree, leaf, Direction::Forward, &all);
        assert_eq!(forward(3), ((4..19).collect(), 5, None));
        assert_eq!(forward(9), ((10..25).collect(), 5, None));
        assert_eq!(forward(37), (vec![38, 39], 2, None));
        assert_eq!(forward(39), (vec![], 0, None));
        let reverse = |leaf| coming(&tree, leaf, Direction::Reverse, &all);
        assert_eq!(reverse(20), ((5..20).rev().collect(), 5, None));
        assert_eq!(reverse(2), (vec![1, 0], 2, None));
        assert_eq!(reverse(0), (vec![], 0, None));
    }

    /// Such leaves were read one by one: after a start, all that have saved deltas.
    #[test]
    fn leaves_of_which_only_changes_are_in_memory_come_too() {
        let low = |number: u8| Box::from([number]);
        let separators = Separators::from_keys(&[&[1][..], &[2], &[3]]);
        let leaves = [
            Child::Leaf(Arc::new(Leaf::empty(Box::default()))),
            Child::Leaf(Arc::new(Leaf::on_disk(low(1), block(101, 1), 0))),
            Child::Leaf(Arc::new(Leaf::empty(low(2)))),
            stored(3, 0),
        ];
        let tree = lone_tree(Child::Inner(Arc::new(Inner::new(1, separators, leaves.into()))));
        let (guard, all) = (rcu::pin(), KeyRange::all());
        let position = WalkPosition {
            descent: &tree.descend(Target::First, 0, &guard),
            direction: Direction::Forward,
            range: &all,
            address: None,
        };
        let coming = Coming::after(&tree, position, 15, 5, &guard).leaves.into_iter();
        let found: Vec<_> = coming.map(|leaf| (leaf.key(), leaf.is_base, leaf.distance)).collect();
        assert_eq!(found, [(vec![1], true, 1), (vec![3], false, 3)]);
    }

    #[test]
    fn an_inner_node_on_disk_comes_first() {
        let (tree, all) = (tree(1), KeyRange::all());
        assert_eq!(
            coming(&tree, 3, Direction::Forward, &all),
            ((4..10).collect(), 5, Some(1))
        );
        assert_eq!(coming(&tree, 9, Direction::Forward, &all), (vec![], 0, Some(1)));
        assert_eq!(coming(&tree, 22, Direction::Reverse, &all), (vec![21, 20], 2, Some(1)));
    }

    #[test]
    fn nothing_is_read_that_the_walk_does_not_come_to() {
        let (whole, holed) = (tree(INNER), tree(1));
        let to = |end| KeyRange {
            start: Bound::Unbounded,
            end,
        };
        let from = |start| KeyRange {
            start,
            end: Bound::Unbounded,
        };
        let forward = |tree, range| coming(tree, 3, Direction::Forward, &range);
        assert_eq!(
            forward(&whole, to(Bound::Included(low(12)))),
            ((4..13).collect(), 5, None)
        );
        assert_eq!(
            forward(&whole, to(Bound::Excluded(low(12)))),
            ((4..12).collect(), 5, None)
        );
        assert_eq!(forward(&whole, to(Bound::Excluded(low(3)))), (vec![], 0, None));
        assert_eq!(
            forward(&holed, to(Bound::Included(low(10)))),
            ((4..10).collect(), 5, Some(1))
        );
        assert_eq!(
            forward(&holed, to(Bound::Excluded(low(10)))),
            ((4..10).collect(), 5, None)
        );
        let reverse = |tree, range| coming(tree, 22, Direction::Reverse, &range);
        // Rows of leaf 15 lie above its lowest key.
        assert_eq!(
            reverse(&whole, from(Bound::Included(low(15)))),
            ((15..22).rev().collect(), 5, None)
        );
        assert_eq!(reverse(&holed, from(Bound::Included(low(20)))), (vec![21, 20], 2, None));
        assert_eq!(
            reverse(&holed, from(Bound::Included(low(19)))),
            (vec![21, 20], 2, Some(1))
        );
    }
}
