//! Separators of an inner page, in memory and as raw bytes (`docs/formats/btree-pages.md`).
//!
//! Child `i` holds the keys from separator `i - 1`, inclusive, to separator `i`, exclusive. Separators strictly rise
//! and are never empty.

use super::bytes::{Reader, common_prefix, head_u64, put_varint};
use super::leaf_format::{FORMAT_VERSION, check_order, read_version};
use super::{KeyParts, PageDamage};
use crate::budget::good_size;
use blocks::BlockAddr;

/// Second byte of an inner page.
pub(super) const KIND_INNER: u8 = 2;
/// Version, kind, level, a reserved byte, children, bytes of all separators, bytes of the prefix.
pub(super) const INNER_HEADER_BYTES: usize = 16;
/// Highest level; leaves are level 0. With two children a page it would hold more leaves than there are addresses.
pub(crate) const LEVEL_MAX: u8 = 48;
/// Largest sum of separator bytes of an inner page: what hostile bytes can make a reader allocate.
pub(crate) const SEPARATOR_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Rising keys that part the children of an inner page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Separators {
    /// The common prefix, then all suffixes.
    data: Box<[u8]>,
    /// First eight bytes of each suffix.
    heads: Box<[u64]>,
    /// Where each suffix begins, then the length of `data`.
    offsets: Box<[u32]>,
}

impl Separators {
    /// From keys in strictly rising order.
    pub(crate) fn from_iter<'a>(keys: impl IntoIterator<Item = KeyParts<'a>>) -> Self {
        let mut plain = Vec::new();
        let mut ends = Vec::new();
        for key in keys {
            key.append_to(&mut plain);
            assert!(
                plain.len() <= SEPARATOR_BYTES_MAX,
                "separators of {} bytes",
                plain.len()
            );
            ends.push(plain.len());
        }
        let Some(last) = ends.len().checked_sub(1) else {
            return Self::empty();
        };
        let key = |index: usize| &plain[if index == 0 { 0 } else { ends[index - 1] }..ends[index]];
        let prefix_len = common_prefix(key(0), key(last));
        let mut data = Vec::with_capacity(plain.len() - prefix_len * last);
        data.extend_from_slice(&plain[..prefix_len]);
        let mut offsets = Vec::with_capacity(ends.len() + 1);
        let mut heads = Vec::with_capacity(ends.len());
        for index in 0..ends.len() {
            let suffix = &key(index)[prefix_len..];
            offsets.push(data.len() as u32);
            heads.push(head_u64(suffix));
            data.extend_from_slice(suffix);
        }
        offsets.push(data.len() as u32);
        let separators = Self {
            data: data.into_boxed_slice(),
            heads: heads.into_boxed_slice(),
            offsets: offsets.into_boxed_slice(),
        };
        if cfg!(debug_assertions) {
            separators.check_invariants();
        }
        separators
    }

    /// From whole keys in strictly rising order.
    pub(crate) fn from_keys<K: AsRef<[u8]>>(keys: &[K]) -> Self {
        Self::from_iter(keys.iter().map(|key| KeyParts::from(key.as_ref())))
    }

    /// No separators: one child.
    pub(crate) fn empty() -> Self {
        Self {
            data: Box::default(),
            heads: Box::default(),
            offsets: Box::new([0]),
        }
    }

    /// Number of separators: one less than children.
    pub(crate) fn len(&self) -> usize {
        self.heads.len()
    }

    fn prefix(&self) -> &[u8] {
        &self.data[..self.offsets[0] as usize]
    }

    fn suffix(&self, index: usize) -> &[u8] {
        &self.data[self.offsets[index] as usize..self.offsets[index + 1] as usize]
    }

    /// Separator `index`. Panics past the end.
    pub(crate) fn get(&self, index: usize) -> KeyParts<'_> {
        KeyParts {
            prefix: self.prefix(),
            suffix: self.suffix(index),
        }
    }

    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = KeyParts<'_>> + DoubleEndedIterator + Clone {
        (0..self.len()).map(|index| self.get(index))
    }

    /// The same without some of them.
    pub(crate) fn without(&self, gone: std::ops::Range<usize>) -> Self {
        let after = (gone.end..self.len()).map(|index| self.get(index));
        Self::from_iter((0..gone.start).map(|index| self.get(index)).chain(after))
    }

    /// The same with `keys` before separator `at`.
    pub(crate) fn with_inserted<K: AsRef<[u8]>>(&self, at: usize, keys: &[K]) -> Self {
        let prefix = self.prefix();
        // Of two or more it stays the longest that all have, whatever is put among or around them that has it.
        if self.len() < 2 || !keys.iter().all(|key| key.as_ref().starts_with(prefix)) {
            let before = (0..at).map(|index| self.get(index));
            let after = (at..self.len()).map(|index| self.get(index));
            let keys = keys.iter().map(|key| KeyParts::from(key.as_ref()));
            return Self::from_iter(before.chain(keys).chain(after));
        }
        let suffixes = keys.iter().map(|key| &key.as_ref()[prefix.len()..]);
        let bytes: usize = suffixes.clone().map(<[u8]>::len).sum();
        let mut data = Vec::with_capacity(self.data.len() + bytes);
        let mut heads = Vec::with_capacity(self.len() + keys.len());
        let mut offsets = Vec::with_capacity(self.offsets.len() + keys.len());
        let start = self.offsets[at] as usize;
        data.extend_from_slice(&self.data[..start]);
        heads.extend_from_slice(&self.heads[..at]);
        offsets.extend_from_slice(&self.offsets[..at]);
        for suffix in suffixes {
            offsets.push(data.len() as u32);
            heads.push(head_u64(suffix));
            data.extend_from_slice(suffix);
        }
        data.extend_from_slice(&self.data[start..]);
        heads.extend_from_slice(&self.heads[at..]);
        offsets.extend(self.offsets[at..].iter().map(|offset| offset + bytes as u32));
        let separators = Self {
            data: data.into_boxed_slice(),
            heads: heads.into_boxed_slice(),
            offsets: offsets.into_boxed_slice(),
        };
        assert!(
            separators.key_bytes() <= SEPARATOR_BYTES_MAX,
            "separators of {} bytes",
            separators.key_bytes()
        );
        if cfg!(debug_assertions) {
            separators.check_invariants();
        }
        separators
    }

    /// Number of separators at or below `key`: the child that holds it.
    #[inline]
    pub(crate) fn child_for(&self, key: &[u8]) -> usize {
        let prefix = self.prefix();
        let Some((head, rest)) = key.split_at_checked(prefix.len()) else {
            return if key > prefix { self.len() } else { 0 };
        };
        match head.cmp(prefix) {
            std::cmp::Ordering::Less => return 0,
            std::cmp::Ordering::Greater => return self.len(),
            std::cmp::Ordering::Equal => {}
        }
        let wanted = head_u64(rest);
        let mut low = self.heads.partition_point(|&head| head < wanted);
        if self.heads.get(low) != Some(&wanted) {
            return low;
        }
        let mut high = low + self.heads[low..].partition_point(|&head| head == wanted);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.suffix(middle) <= rest {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    /// Bytes on the heap, as the allocator rounds them.
    pub(crate) fn memory_bytes(&self) -> usize {
        good_size(self.data.len()) + good_size(size_of_val(&*self.heads)) + good_size(size_of_val(&*self.offsets))
    }

    /// Separators as if stored plainly: the measure for splits.
    pub(crate) fn key_bytes(&self) -> usize {
        let prefix_len = self.prefix().len();
        self.data.len() - prefix_len + prefix_len * self.len()
    }

    pub(crate) fn check_invariants(&self) {
        assert_eq!(self.offsets.len(), self.len() + 1, "offsets and the end");
        assert_eq!(self.offsets[self.len()] as usize, self.data.len(), "the end");
        for index in 0..self.len() {
            assert!(self.get(index).len() > 0, "separator {index} is empty");
            assert_eq!(
                self.heads[index],
                head_u64(self.suffix(index)),
                "head of separator {index}"
            );
            assert!(
                index == 0 || self.suffix(index - 1) < self.suffix(index),
                "separator {index} out of order"
            );
        }
    }
}

/// An inner page as its raw bytes say.
#[derive(Clone, Debug)]
pub(crate) struct InnerPage {
    /// 1 above leaves.
    pub(crate) level: u8,
    pub(crate) separators: Separators,
    /// One more than separators.
    pub(crate) children: Vec<BlockAddr>,
}

/// Appends the raw bytes of an inner page.
pub(crate) fn encode_inner(level: u8, separators: &Separators, children: &[BlockAddr], out: &mut Vec<u8>) {
    assert_eq!(children.len(), separators.len() + 1, "a separator between two children");
    assert!((1..=LEVEL_MAX).contains(&level), "level {level}");
    let prefix = separators.prefix();
    out.reserve(INNER_HEADER_BYTES + size_of_val(children) + separators.data.len() + 3 * separators.len());
    out.extend_from_slice(&[FORMAT_VERSION, KIND_INNER, level, 0]);
    for number in [children.len(), separators.key_bytes(), prefix.len()] {
        out.extend_from_slice(&(number as u32).to_le_bytes());
    }
    children.iter().for_each(|address| address.encode(out));
    out.extend_from_slice(prefix);
    let mut previous: &[u8] = &[];
    for key in separators.iter() {
        let shared = common_prefix(previous, key.suffix);
        put_varint(out, shared as u64);
        put_varint(out, (key.suffix.len() - shared) as u64);
        out.extend_from_slice(&key.suffix[shared..]);
        previous = key.suffix;
    }
}

/// Reads the raw bytes of an inner page, all of them.
pub(crate) fn decode_inner(raw: &[u8]) -> Result<InnerPage, PageDamage> {
    let mut reader = Reader::new(raw);
    read_version(&mut reader)?;
    if reader.u8()? != KIND_INNER {
        return Err(reader.damage("no inner page"));
    }
    let level = reader.u8()?;
    if !(1..=LEVEL_MAX).contains(&level) {
        return Err(reader.damage("a level that cannot be"));
    }
    if reader.u8()? != 0 {
        return Err(reader.damage("reserved bytes are not zero"));
    }
    let child_count = reader.u32()? as usize;
    let key_bytes = reader.u32()? as usize;
    let prefix_len = reader.u32()? as usize;
    if child_count == 0 {
        return Err(reader.damage("no children"));
    }
    if key_bytes > SEPARATOR_BYTES_MAX {
        return Err(reader.damage("separators beyond their limit"));
    }
    let addresses = reader.take(child_count.saturating_mul(BlockAddr::ENCODED_BYTES))?;
    let children = addresses.chunks_exact(BlockAddr::ENCODED_BYTES).map(BlockAddr::decode);
    let Some(children) = children.collect::<Option<Vec<_>>>() else {
        return Err(reader.damage("an address that cannot be"));
    };
    let prefix = reader.take(prefix_len)?;
    let separators = decode_separators(&mut reader, child_count - 1, key_bytes, prefix)?;
    if reader.left() > 0 {
        return Err(reader.damage("bytes after the last separator"));
    }
    Ok(InnerPage {
        level,
        separators,
        children,
    })
}

fn decode_separators(
    reader: &mut Reader<'_>,
    count: usize,
    key_bytes: usize,
    prefix: &[u8],
) -> Result<Separators, PageDamage> {
    // Children are in memory already and take more than this.
    let mut heads = Vec::with_capacity(count);
    let mut offsets = Vec::with_capacity(count + 1);
    let mut data = prefix.to_vec();
    let mut seen_bytes = 0;
    let mut previous = data.len()..data.len();
    for index in 0..count {
        let shared = reader.varint()?;
        let unshared_len = reader.varint()?;
        let unshared = reader.take(unshared_len)?;
        check_order(&data[previous.clone()], shared, unshared, index == 0).map_err(|rule| reader.damage(rule))?;
        let key_len = prefix.len() + shared + unshared_len;
        if key_len == 0 {
            return Err(reader.damage("an empty separator"));
        }
        seen_bytes += key_len;
        if seen_bytes > key_bytes {
            return Err(reader.damage("more bytes than the header says"));
        }
        let start = data.len();
        offsets.push(start as u32);
        data.extend_from_within(previous.start..previous.start + shared);
        data.extend_from_slice(unshared);
        heads.push(head_u64(&data[start..]));
        previous = start..data.len();
    }
    offsets.push(data.len() as u32);
    let separators = Separators {
        data: data.into_boxed_slice(),
        heads: heads.into_boxed_slice(),
        offsets: offsets.into_boxed_slice(),
    };
    if seen_bytes != key_bytes {
        return Err(reader.damage("fewer bytes than the header says"));
    }
    let prefix_is_longest = match count {
        0 => prefix.is_empty(),
        1 => separators.suffix(0).is_empty(),
        _ => common_prefix(separators.suffix(0), separators.suffix(count - 1)) == 0,
    };
    if !prefix_is_longest {
        return Err(reader.damage("the prefix is not the longest"));
    }
    Ok(separators)
}
