//! Messages go down the tree: the buffer tree of Arge (*The buffer tree*, 1995) with the flush rule of Bε-trees
//! (Brodal & Fagerberg, *Lower bounds for external memory dictionaries*, 2003).
//!
//! 1. An inner node puts the messages that arrive into the buffers of its children.
//! 2. While all its buffers together have more than they may, the heaviest is emptied: its segments are merged
//!    into one and pushed to the child, by the same rule. So what moves is worth the move.
//! 3. A child that has become several, or none, takes its new place; small neighbours are joined; a node with too many
//!    children is parted. Segments and basements only change hands.
//! 4. At a leaf the messages meet the rows (`leaf_merge`).
//!
//! Below what is damaged, or does not read, nothing moves: its messages wait above it, in a buffer that grows. Those
//! who read there meet the damage, and nobody else does. Only a root has nobody above it.

use crate::change::{Change, PIECE_BUFFERS};
use crate::core::count;
use crate::leaf_merge::merge_into_leaf;
use crate::merge::{Messages, distribute, merge};
use crate::node::{Child, Inner, Leaf, Node, Segment, SegmentPlace, Slot};
use crate::run::{Key, Run};
use engine::Result;
use std::sync::Arc;

/// Segments that wait for one child, beside those that its bytes need: more are merged, since a lookup asks each.
const SEGMENTS_MAX: usize = 8;

/// Nodes that take another's place, each with the first key that belongs to it.
pub(crate) type Successors = Vec<(Key, Child)>;

/// Pushes messages into the tree below `root`, and answers its new root.
pub(crate) fn push_to_root(change: &mut Change<'_>, root: Option<&Child>, messages: Messages) -> Result<Option<Child>> {
    let node = match root {
        None => Arc::new(Node::Leaf(Leaf::default())),
        Some(child) => {
            let node = change.load_node(child, None)?;
            retire_node(change, child);
            node
        }
    };
    let successors = push(change, &node, messages, &[], None)?;
    grow(change, successors, node.height())
}

/// A root above nodes of one height.
pub(crate) fn grow(change: &mut Change<'_>, mut nodes: Successors, mut height: u8) -> Result<Option<Child>> {
    while nodes.len() > 1 {
        height += 1;
        let parts = parted(nodes.len(), change.core.options.fanout as usize);
        let mut rest = nodes.into_iter();
        nodes = Vec::new();
        for part in parts {
            let mut children = rest.by_ref().take(part).peekable();
            let low = children.peek().expect("parts are not empty").0.clone();
            let (mut pivots, slots): (Vec<Key>, Vec<Slot>) =
                children.map(|(low, child)| (low, Slot::of(child))).unzip();
            pivots.remove(0);
            nodes.push((
                low,
                Child::Memory(Arc::new(Node::Inner(Inner { height, pivots, slots }))),
            ));
        }
    }
    let Some((_, mut root)) = nodes.pop() else {
        return Ok(None);
    };
    // A root with one child for which nothing waits is none.
    loop {
        let node = change.load_node(&root, None)?;
        match &*node {
            Node::Inner(inner) if inner.slots.len() == 1 && inner.slots[0].buffer.is_empty() => {
                let below = inner.slots[0].child.clone();
                let read = change.load_node(&below, None);
                // An only child that cannot be read keeps who stands above it: for a root nothing can wait.
                if change.if_readable(read)?.is_none() {
                    return Ok(Some(root));
                }
                retire_node(change, &root);
                root = below;
            }
            Node::Leaf(leaf) if leaf.basements.is_empty() => {
                retire_node(change, &root);
                return Ok(None);
            }
            _ => return Ok(Some(root)),
        }
    }
}

/// The block of a node that is replaced; what it refers to goes on.
pub(crate) fn retire_node(change: &mut Change<'_>, child: &Child) {
    if let Child::Disk(unit) = child {
        change.retire(unit.blocks());
    }
}

/// Sizes of as few equal parts as there can be, of at most `most`.
fn parted(count: usize, most: usize) -> impl Iterator<Item = usize> {
    let parts = count.div_ceil(most).max(1);
    (0..parts).map(move |part| (part + 1) * count / parts - part * count / parts)
}

pub(crate) fn push(
    change: &mut Change<'_>,
    node: &Node,
    messages: Messages,
    low: &[u8],
    high: Option<&[u8]>,
) -> Result<Successors> {
    match node {
        Node::Leaf(leaf) => {
            let leaves = merge_into_leaf(change, leaf, &messages, low, high)?;
            let child = |(low, leaf)| (low, Child::Memory(Arc::new(Node::Leaf(leaf))));
            Ok(leaves.into_iter().map(child).collect())
        }
        Node::Inner(inner) => {
            let mut inner = inner.clone();
            take_in(change, &mut inner, messages, low, high)?;
            relieve(change, &mut inner, low, high)?;
            settle(change, inner, low)
        }
    }
}

/// Step 1.
fn take_in(
    change: &mut Change<'_>,
    inner: &mut Inner,
    messages: Messages,
    low: &[u8],
    high: Option<&[u8]>,
) -> Result<()> {
    drop_covered(change, inner, &messages, low, high)?;
    let parts = distribute(&messages, &inner.pivots, change.segment_bytes());
    for (slot, runs) in inner.slots.iter_mut().zip(parts) {
        slot.buffer.splice(0..0, runs.into_iter().map(Segment::pending));
    }
    Ok(())
}

/// Takes whole children away that a range covers and that nobody needs, without reading their rows.
fn drop_covered(
    change: &mut Change<'_>,
    inner: &mut Inner,
    messages: &Messages,
    low: &[u8],
    high: Option<&[u8]>,
) -> Result<()> {
    let oldest = change.horizon.oldest();
    let everywhere: Vec<_> = messages.tombstones.iter().filter(|t| t.seq <= oldest).collect();
    if everywhere.is_empty() {
        return Ok(());
    }
    let mut index = 0;
    while index < inner.slots.len() {
        let (child_low, child_high) = inner.range(index, low, high);
        if !everywhere.iter().any(|t| t.covers_all(child_low, child_high)) {
            index += 1;
            continue;
        }
        // What waits for it is older than the range, too.
        let slot = inner.slots[index].clone();
        change.retire(slot.buffer.iter().flat_map(Segment::blocks).collect::<Vec<_>>());
        change.retire_all(&slot.child, Some(inner.height - 1))?;
        count(&change.core.counters.dropped_children, 1);
        if inner.slots.len() > 1 {
            remove_slot(inner, index);
        } else {
            inner.slots[index] = Slot::of(empty_subtree(inner.height - 1));
            index += 1;
        }
    }
    Ok(())
}

/// Its neighbour has its keys from now on.
fn remove_slot(inner: &mut Inner, index: usize) {
    inner.slots.remove(index);
    if !inner.pivots.is_empty() {
        inner.pivots.remove(index.saturating_sub(1));
    }
}

pub(crate) fn empty_subtree(height: u8) -> Child {
    let node = match height {
        0 => Node::Leaf(Leaf::default()),
        height => Node::Inner(Inner {
            height,
            pivots: Vec::new(),
            slots: vec![Slot::of(empty_subtree(height - 1))],
        }),
    };
    Child::Memory(Arc::new(node))
}

/// Step 2.
pub(crate) fn relieve(change: &mut Change<'_>, inner: &mut Inner, low: &[u8], high: Option<&[u8]>) -> Result<()> {
    // The first keys of those that cannot be emptied.
    let mut stuck: Vec<Key> = Vec::new();
    loop {
        let is_free = |(index, _): &(usize, &Slot)| !stuck.iter().any(|key| **key == *inner.range(*index, low, high).0);
        let free = inner.slots.iter().enumerate().filter(is_free);
        let total: u64 = free.clone().map(|(_, slot)| slot.buffered_bytes()).sum();
        let heaviest = free.max_by_key(|(_, slot)| slot.buffered_bytes());
        match heaviest {
            Some((index, slot)) if total > change.buffer_bytes && !slot.buffer.is_empty() => {
                let mark = change.mark();
                let flushed = flush_child(change, inner, index, low, high);
                if change.if_readable(flushed)?.is_none() {
                    change.go_back(&mark);
                    stuck.push(inner.range(index, low, high).0.into());
                }
            }
            _ => return Ok(()),
        }
    }
}

/// Everything that waits for a child, merged; the segments are retired.
fn merged_buffer(change: &mut Change<'_>, buffer: &[Segment]) -> Result<Messages> {
    let mut units = buffer.iter().filter_map(|segment| match &segment.place {
        SegmentPlace::Disk(unit) => Some(unit),
        SegmentPlace::Pending(_) => None,
    });
    change.read_ahead(&mut units)?;
    let runs: Vec<Arc<Run>> = buffer
        .iter()
        .map(|segment| change.load_segment(segment))
        .collect::<Result<_>>()?;
    change.retire(buffer.iter().flat_map(Segment::blocks).collect::<Vec<_>>());
    Ok(merge(&runs, &change.horizon, change.segment_bytes()))
}

/// Empties the buffer of a child into the child. Where something cannot be read the node stays as it was.
pub(crate) fn flush_child(
    change: &mut Change<'_>,
    inner: &mut Inner,
    index: usize,
    low: &[u8],
    high: Option<&[u8]>,
) -> Result<()> {
    let Slot { child, buffer } = inner.slots[index].clone();
    let node = change.load_node(&child, Some(inner.height - 1))?;
    // More than a push can bring: it could not be emptied before. Reading what it has to meet costs less than merging
    // all that waits.
    if inner.slots[index].buffered_bytes() > stuck_bytes(change) {
        let (child_low, child_high) = inner.range(index, low, high);
        expect_readable(change, &node, &buffer, child_low, child_high)?;
    }
    let messages = merged_buffer(change, &buffer)?;
    retire_node(change, &child);
    let (child_low, child_high) = inner.range(index, low, high);
    let successors = push(change, &node, messages, child_low, child_high)?;
    count(&change.core.counters.flushed_children, 1);
    inner.slots[index].buffer.clear();
    replace_child(change, inner, index, successors)
}

/// Where more waits for a child it was tried in vain.
fn stuck_bytes(change: &Change<'_>) -> u64 {
    2 * PIECE_BUFFERS as u64 * change.buffer_bytes
}

/// An error unless what waits for a child, and what it meets there, can be read.
fn expect_readable(
    change: &mut Change<'_>,
    node: &Node,
    buffer: &[Segment],
    low: &[u8],
    high: Option<&[u8]>,
) -> Result<()> {
    if let Node::Leaf(leaf) = node {
        for (index, basement) in leaf.basements.iter().enumerate() {
            let (low, high) = leaf.range(index, low, high);
            if buffer.iter().any(|segment| segment.concerns(low, high)) {
                change.load_run(&basement.unit)?;
            }
        }
    }
    // The oldest first: what is damaged has been there longest.
    buffer
        .iter()
        .rev()
        .try_for_each(|segment| change.load_segment(segment).map(drop))
}

/// Step 3, for one child. One for which messages wait has one successor, that has the rows of all.
pub(crate) fn replace_child(
    change: &mut Change<'_>,
    inner: &mut Inner,
    index: usize,
    successors: Successors,
) -> Result<()> {
    let slot = &mut inner.slots[index];
    if !slot.buffer.is_empty() {
        // Messages that wait on stay with the keys they are for.
        slot.child = joined(successors, inner.height - 1);
        return Ok(());
    }
    if successors.is_empty() {
        if inner.slots.len() > 1 {
            remove_slot(inner, index);
        } else {
            inner.slots[index] = Slot::of(empty_subtree(inner.height - 1));
        }
        return Ok(());
    }
    let count = successors.len();
    let (lows, slots): (Vec<Key>, Vec<Slot>) = successors
        .into_iter()
        .map(|(low, child)| (low, Slot::of(child)))
        .unzip();
    inner.slots.splice(index..=index, slots);
    inner.pivots.splice(index..index, lows.into_iter().skip(1));
    if count == 1 {
        join_small(change, inner, index)?;
    }
    debug_assert_eq!(inner.pivots.len() + 1, inner.slots.len());
    Ok(())
}

/// Several nodes as one of the same height, which may be too large for a while.
fn joined(successors: Successors, height: u8) -> Child {
    let mut joined: Option<Node> = None;
    for (low, child) in successors {
        let Child::Memory(node) = child else {
            unreachable!("successors are in memory")
        };
        joined = Some(match (joined, (*node).clone()) {
            (None, node) => node,
            (Some(Node::Leaf(mut a)), Node::Leaf(mut b)) => {
                if let Some(first) = b.basements.first_mut() {
                    first.low = low;
                }
                a.basements.append(&mut b.basements);
                Node::Leaf(a)
            }
            (Some(Node::Inner(mut a)), Node::Inner(mut b)) => {
                a.pivots.push(low);
                a.pivots.append(&mut b.pivots);
                a.slots.append(&mut b.slots);
                Node::Inner(a)
            }
            _ => unreachable!("successors are of one height"),
        });
    }
    match joined {
        Some(node) => Child::Memory(Arc::new(node)),
        None => empty_subtree(height),
    }
}

/// Joins a small child with a neighbour that has room, if both can be read.
fn join_small(change: &mut Change<'_>, inner: &mut Inner, index: usize) -> Result<()> {
    let most = match inner.height {
        1 => u64::from(change.core.options.node_bytes),
        _ => u64::from(change.core.options.fanout),
    };
    let weight = |node: &Node| match node {
        Node::Leaf(leaf) => leaf.bytes(),
        Node::Inner(inner) => inner.slots.len() as u64,
    };
    let load = |change: &Change<'_>, at: usize| {
        let node = change.load_node(&inner.slots[at].child, Some(inner.height - 1));
        change.if_readable(node)
    };
    if inner.slots.len() < 2 || load(change, index)?.is_none_or(|node| weight(&node) >= most / 4) {
        return Ok(());
    }
    let left = if index + 1 < inner.slots.len() {
        index
    } else {
        index - 1
    };
    let (Some(first), Some(second)) = (load(change, left)?, load(change, left + 1)?) else {
        return Ok(());
    };
    if weight(&first) + weight(&second) > most * 3 / 4 {
        return Ok(());
    }
    let pivot = inner.pivots[left].clone();
    let joined = match (&*first, &*second) {
        (Node::Leaf(a), Node::Leaf(b)) => {
            let mut basements = a.basements.clone();
            let start = basements.len();
            basements.extend(b.basements.iter().cloned());
            if let Some(basement) = basements.get_mut(start) {
                basement.low = pivot;
            }
            Node::Leaf(Leaf { basements })
        }
        (Node::Inner(a), Node::Inner(b)) => {
            let mut joined = a.clone();
            joined.pivots.push(pivot);
            joined.pivots.extend(b.pivots.iter().cloned());
            joined.slots.extend(b.slots.iter().cloned());
            Node::Inner(joined)
        }
        _ => unreachable!("children of one node are of one height"),
    };
    for at in [left, left + 1] {
        let child = inner.slots[at].child.clone();
        retire_node(change, &child);
    }
    // Their messages are for different keys: which come first does not matter.
    let mut buffer = std::mem::take(&mut inner.slots[left].buffer);
    buffer.append(&mut inner.slots[left + 1].buffer);
    inner.slots[left] = Slot {
        child: Child::Memory(Arc::new(joined)),
        buffer,
    };
    inner.slots.remove(left + 1);
    inner.pivots.remove(left);
    Ok(())
}

/// Writes the segments that are only in memory, merging those of children that have too many, and parts the
/// node if it must.
pub(crate) fn settle(change: &mut Change<'_>, mut inner: Inner, low: &[u8]) -> Result<Successors> {
    for slot in &mut inner.slots {
        let needed = slot.buffered_bytes() as usize / change.segment_bytes().max(1);
        if slot.buffer.len() > SEGMENTS_MAX + 2 * needed && slot.buffered_bytes() <= stuck_bytes(change) {
            let merged = merged_buffer(change, &slot.buffer);
            if let Some(messages) = change.if_readable(merged)? {
                let parts = distribute(&messages, &[], change.segment_bytes());
                slot.buffer = parts.into_iter().flatten().map(Segment::pending).collect();
            }
        }
        for segment in &mut slot.buffer {
            change.write_segment(segment)?;
        }
    }
    let Inner { height, pivots, slots } = inner;
    let mut lows = std::iter::once(Key::from(low)).chain(pivots);
    let mut nodes = Vec::new();
    let mut rest = slots.into_iter();
    for part in parted(rest.len(), change.core.options.fanout as usize) {
        let mut pivots: Vec<Key> = lows.by_ref().take(part).collect();
        let low = pivots.remove(0);
        let slots = rest.by_ref().take(part).collect();
        nodes.push((
            low,
            Child::Memory(Arc::new(Node::Inner(Inner { height, pivots, slots }))),
        ));
    }
    Ok(nodes)
}
