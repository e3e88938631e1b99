//! Nodes: what a leaf or an inner node of the tree looks like, in memory and on disk.
//!
//! A leaf is a list of basements; an inner node has children, pivots between them, and for each child the
//! messages that wait for it, in segments. Both only *refer* to rows and messages, which lie in units of their
//! own: so nodes are small, and changing one is copying it.
//!
//! Invariants ([`Node::check`]): pivots rise; `pivots[i]` is the first key that belongs to child `i + 1`; so it
//! is with the `low`s of basements, of which the first is not looked at; segments of a child come newest first.

use crate::bytes_io::{Damage, Reader, put_bytes, put_varint};
use crate::run::{Key, Run};
use blocks::BlockAddr;
use std::sync::Arc;

const VERSION: u8 = 1;
const KIND_LEAF: u8 = 1;
const KIND_INNER: u8 = 2;
/// Deeper than any tree can be, and than recursion minds.
pub(crate) const HEIGHT_MAX: u8 = 40;
/// Ends of a segment's range are kept by so many bytes: less makes it look a little wider than it is.
const RANGE_KEY_BYTES: usize = 64;

/// Blocks that hold a unit: one, and more for a long unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UnitRef {
    pub(crate) first: BlockAddr,
    pub(crate) rest: Option<Arc<[BlockAddr]>>,
}

impl UnitRef {
    pub(crate) fn blocks(&self) -> impl Iterator<Item = BlockAddr> + '_ {
        std::iter::once(self.first).chain(self.rest.iter().flat_map(|rest| rest.iter().copied()))
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let rest = self.rest.as_deref().unwrap_or(&[]);
        put_varint(out, rest.len() as u64);
        self.first.encode(out);
        rest.iter().for_each(|addr| addr.encode(out));
    }

    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<Self, Damage> {
        let count = reader.varint()?;
        let mut addr = || -> Result<BlockAddr, Damage> {
            BlockAddr::decode(reader.take(BlockAddr::ENCODED_BYTES)?).ok_or("an address")
        };
        let first = addr()?;
        let mut rest = Vec::new();
        for _ in 0..count {
            rest.push(addr()?);
        }
        Ok(Self {
            first,
            rest: (!rest.is_empty()).then(|| rest.into()),
        })
    }
}

/// A part of a leaf that is read by itself.
#[derive(Clone, Debug)]
pub(crate) struct Basement {
    /// The first key that belongs to it.
    pub(crate) low: Key,
    pub(crate) unit: UnitRef,
    pub(crate) entries: u32,
    /// Before compression.
    pub(crate) bytes: u32,
    /// It has positions or deletions that will not be needed some day.
    pub(crate) has_history: bool,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Leaf {
    pub(crate) basements: Vec<Basement>,
}

impl Leaf {
    pub(crate) fn bytes(&self) -> u64 {
        self.basements.iter().map(|basement| u64::from(basement.bytes)).sum()
    }

    /// The basement that has a key, if it is there. `None` for an empty leaf.
    pub(crate) fn find(&self, key: &[u8]) -> Option<usize> {
        let lows = self.basements.get(1..)?;
        Some(lows.partition_point(|basement| *basement.low <= *key))
    }

    /// The basement that has the keys right below `key`; of all when `None`.
    pub(crate) fn find_below(&self, key: Option<&[u8]>) -> Option<usize> {
        let lows = self.basements.get(1..)?;
        Some(key.map_or(lows.len(), |key| lows.partition_point(|basement| *basement.low < *key)))
    }

    /// Range of the basement `index`, within the leaf's.
    pub(crate) fn range<'a>(
        &'a self,
        index: usize,
        low: &'a [u8],
        high: Option<&'a [u8]>,
    ) -> (&'a [u8], Option<&'a [u8]>) {
        let low = if index == 0 { low } else { &self.basements[index].low };
        let high = self.basements.get(index + 1).map_or(high, |next| Some(&next.low));
        (low, high)
    }
}

/// Where the messages of a segment are.
#[derive(Clone, Debug)]
pub(crate) enum SegmentPlace {
    Disk(UnitRef),
    /// Not written yet, within one change of a tree.
    Pending(Arc<Run>),
}

/// Messages that wait for a child.
#[derive(Clone, Debug)]
pub(crate) struct Segment {
    pub(crate) place: SegmentPlace,
    pub(crate) filter: Option<BlockAddr>,
    pub(crate) entries: u32,
    /// Before compression.
    pub(crate) bytes: u32,
    pub(crate) has_tombstones: bool,
    /// No key is below it.
    pub(crate) first: Key,
    /// No key is at or above it; `None` when that is not known.
    pub(crate) end: Option<Key>,
}

impl Segment {
    pub(crate) fn pending(run: Run) -> Self {
        let entries = run.len() as u32;
        let (first, end) = match run.len() {
            0 => (Key::from(&[][..]), None),
            len => {
                let first = run.key(0);
                let first = &first[..first.len().min(RANGE_KEY_BYTES)];
                (first.into(), end_of(run.key(len - 1)))
            }
        };
        Self {
            filter: None,
            entries,
            bytes: run.raw().len() as u32,
            has_tombstones: !run.tombstones().is_empty(),
            first,
            end,
            place: SegmentPlace::Pending(Arc::new(run)),
        }
    }

    /// Whether it may have messages for a range.
    pub(crate) fn concerns(&self, low: &[u8], high: Option<&[u8]>) -> bool {
        self.has_tombstones
            || (high.is_none_or(|high| *self.first < *high) && self.end.as_ref().is_none_or(|end| **end > *low))
    }

    pub(crate) fn may_have(&self, key: &[u8]) -> bool {
        self.has_tombstones || (*self.first <= *key && self.end.as_ref().is_none_or(|end| *key < **end))
    }

    pub(crate) fn blocks(&self) -> impl Iterator<Item = BlockAddr> + '_ {
        let unit = match &self.place {
            SegmentPlace::Disk(unit) => Some(unit),
            SegmentPlace::Pending(_) => None,
        };
        unit.into_iter().flat_map(UnitRef::blocks).chain(self.filter)
    }
}

/// A short key behind `key`.
fn end_of(key: &[u8]) -> Option<Key> {
    if key.len() < RANGE_KEY_BYTES {
        return Some(crate::run::behind(key));
    }
    engine::successor_of_prefix(&key[..RANGE_KEY_BYTES]).map(Key::from)
}

/// A node below another, or below the table.
#[derive(Clone, Debug)]
pub(crate) enum Child {
    Disk(UnitRef),
    /// It changed since the last checkpoint.
    Memory(Arc<Node>),
}

#[derive(Clone, Debug)]
pub(crate) struct Slot {
    pub(crate) child: Child,
    pub(crate) buffer: Vec<Segment>,
}

impl Slot {
    pub(crate) fn of(child: Child) -> Self {
        Self {
            child,
            buffer: Vec::new(),
        }
    }

    pub(crate) fn buffered_bytes(&self) -> u64 {
        self.buffer.iter().map(|segment| u64::from(segment.bytes)).sum()
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Inner {
    /// 1 above leaves.
    pub(crate) height: u8,
    pub(crate) pivots: Vec<Key>,
    pub(crate) slots: Vec<Slot>,
}

impl Inner {
    /// The child that a key belongs to.
    pub(crate) fn find(&self, key: &[u8]) -> usize {
        self.pivots.partition_point(|pivot| **pivot <= *key)
    }

    /// The child that has the keys right below `key`; of all when `None`.
    pub(crate) fn find_below(&self, key: Option<&[u8]>) -> usize {
        key.map_or(self.pivots.len(), |key| {
            self.pivots.partition_point(|pivot| **pivot < *key)
        })
    }

    /// Range of the child `index`, within the node's.
    pub(crate) fn range<'a>(
        &'a self,
        index: usize,
        low: &'a [u8],
        high: Option<&'a [u8]>,
    ) -> (&'a [u8], Option<&'a [u8]>) {
        let low = if index == 0 { low } else { &self.pivots[index - 1] };
        let high = self.pivots.get(index).map_or(high, |pivot| Some(pivot));
        (low, high)
    }
}

#[derive(Clone, Debug)]
pub(crate) enum Node {
    Leaf(Leaf),
    Inner(Inner),
}

impl Node {
    pub(crate) fn height(&self) -> u8 {
        match self {
            Self::Leaf(_) => 0,
            Self::Inner(inner) => inner.height,
        }
    }

    /// Blocks of what it refers to, but for its children.
    pub(crate) fn blocks(&self) -> Vec<BlockAddr> {
        match self {
            Self::Leaf(leaf) => leaf
                .basements
                .iter()
                .flat_map(|basement| basement.unit.blocks())
                .collect(),
            Self::Inner(inner) => {
                let segments = inner.slots.iter().flat_map(|slot| &slot.buffer);
                segments.flat_map(Segment::blocks).collect()
            }
        }
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        match self {
            Self::Leaf(leaf) => {
                let of = |basement: &Basement| size_of::<Basement>() + basement.low.len() + 16;
                leaf.basements.iter().map(of).sum::<usize>() + 64
            }
            Self::Inner(inner) => {
                let pivots: usize = inner.pivots.iter().map(|pivot| pivot.len() + 32).sum();
                let segments = inner.slots.iter().flat_map(|slot| &slot.buffer);
                let of = |segment: &Segment| {
                    size_of::<Segment>() + segment.first.len() + segment.end.as_ref().map_or(0, |end| end.len()) + 32
                };
                pivots + segments.map(of).sum::<usize>() + inner.slots.len() * size_of::<Slot>() + 96
            }
        }
    }

    /// All of it is on disk; see the checkpoint.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = vec![VERSION];
        match self {
            Self::Leaf(leaf) => {
                out.extend_from_slice(&[KIND_LEAF, 0, 0]);
                put_varint(&mut out, leaf.basements.len() as u64);
                for basement in &leaf.basements {
                    put_bytes(&mut out, &basement.low);
                    basement.unit.encode(&mut out);
                    put_varint(&mut out, u64::from(basement.entries));
                    put_varint(&mut out, u64::from(basement.bytes));
                    out.push(u8::from(basement.has_history));
                }
            }
            Self::Inner(inner) => {
                out.extend_from_slice(&[KIND_INNER, inner.height, 0]);
                put_varint(&mut out, inner.slots.len() as u64);
                inner.pivots.iter().for_each(|pivot| put_bytes(&mut out, pivot));
                for slot in &inner.slots {
                    let Child::Disk(unit) = &slot.child else {
                        unreachable!("children are written before their node")
                    };
                    unit.encode(&mut out);
                    put_varint(&mut out, slot.buffer.len() as u64);
                    slot.buffer.iter().for_each(|segment| encode_segment(segment, &mut out));
                }
            }
        }
        out
    }

    pub(crate) fn decode(raw: &[u8]) -> Result<Self, Damage> {
        let mut reader = Reader::new(raw);
        if reader.u8()? != VERSION {
            return Err("a version of nodes");
        }
        let (kind, height) = (reader.u8()?, reader.u8()?);
        if reader.u8()? != 0 {
            return Err("a reserved byte of a node");
        }
        let count = reader.varint()? as usize;
        if count > raw.len() {
            return Err("a count of children");
        }
        let node = match (kind, height) {
            (KIND_LEAF, 0) => Self::Leaf(Leaf {
                basements: (0..count)
                    .map(|_| decode_basement(&mut reader))
                    .collect::<Result<_, _>>()?,
            }),
            (KIND_INNER, 1..=HEIGHT_MAX) if count > 0 => {
                let pivots = (1..count)
                    .map(|_| reader.bytes().map(Key::from))
                    .collect::<Result<_, _>>()?;
                let slots = (0..count).map(|_| decode_slot(&mut reader)).collect::<Result<_, _>>()?;
                Self::Inner(Inner { height, pivots, slots })
            }
            _ => return Err("a kind of nodes"),
        };
        if !reader.is_at_end() {
            return Err("bytes behind a node");
        }
        node.check()?;
        Ok(node)
    }

    /// The invariants of the module, or what is wrong.
    pub(crate) fn check(&self) -> Result<(), Damage> {
        match self {
            Self::Leaf(leaf) => {
                let lows = leaf.basements.iter().skip(1).map(|basement| &basement.low);
                if lows.is_sorted_by(|a, b| a < b) {
                    Ok(())
                } else {
                    Err("the order of basements")
                }
            }
            Self::Inner(inner) => match inner.pivots.is_sorted_by(|a, b| a < b) {
                true if inner.pivots.len() + 1 == inner.slots.len() => Ok(()),
                _ => Err("the order of pivots"),
            },
        }
    }
}

fn decode_basement(reader: &mut Reader<'_>) -> Result<Basement, Damage> {
    Ok(Basement {
        low: reader.bytes()?.into(),
        unit: UnitRef::decode(reader)?,
        entries: u32::try_from(reader.varint()?).map_err(|_| "a count of rows")?,
        bytes: u32::try_from(reader.varint()?).map_err(|_| "a length of a basement")?,
        has_history: match reader.u8()? {
            0 => false,
            1 => true,
            _ => return Err("a flag of a basement"),
        },
    })
}

fn encode_segment(segment: &Segment, out: &mut Vec<u8>) {
    let SegmentPlace::Disk(unit) = &segment.place else {
        unreachable!("segments are written before a change of the tree is done")
    };
    let flags = u8::from(segment.has_tombstones)
        | u8::from(segment.filter.is_some()) << 1
        | u8::from(segment.end.is_some()) << 2;
    out.push(flags);
    unit.encode(out);
    if let Some(filter) = &segment.filter {
        filter.encode(out);
    }
    put_varint(out, u64::from(segment.entries));
    put_varint(out, u64::from(segment.bytes));
    put_bytes(out, &segment.first);
    if let Some(end) = &segment.end {
        put_bytes(out, end);
    }
}

fn decode_slot(reader: &mut Reader<'_>) -> Result<Slot, Damage> {
    let child = Child::Disk(UnitRef::decode(reader)?);
    let count = reader.varint()?;
    let mut buffer = Vec::new();
    for _ in 0..count {
        let flags = reader.u8()?;
        if flags > 7 {
            return Err("flags of a segment");
        }
        let place = SegmentPlace::Disk(UnitRef::decode(reader)?);
        let filter = match flags & 2 {
            0 => None,
            _ => Some(BlockAddr::decode(reader.take(BlockAddr::ENCODED_BYTES)?).ok_or("an address of a filter")?),
        };
        buffer.push(Segment {
            place,
            filter,
            entries: u32::try_from(reader.varint()?).map_err(|_| "a count of messages")?,
            bytes: u32::try_from(reader.varint()?).map_err(|_| "a length of a segment")?,
            has_tombstones: flags & 1 != 0,
            first: reader.bytes()?.into(),
            end: match flags & 4 {
                0 => None,
                _ => Some(reader.bytes()?.into()),
            },
        });
    }
    Ok(Slot { child, buffer })
}

/// The shortest key above `left` that is not above `right`, which is above `left`.
pub(crate) fn separator(left: &[u8], right: &[u8]) -> Key {
    debug_assert!(left < right);
    let shared = left.iter().zip(right).take_while(|(a, b)| a == b).count();
    right[..(shared + 1).min(right.len())].into()
}
