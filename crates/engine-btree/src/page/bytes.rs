//! Small reads and comparisons that all pages share: lengths in LEB128, fixed-width integers, common prefixes.

use super::PageDamage;

/// Appends a length, seven bits a byte, low bits first.
pub(super) fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Reads untrusted bytes from the front to the back.
pub(super) struct Reader<'a> {
    raw: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    pub(super) fn new(raw: &'a [u8]) -> Self {
        Self { raw, at: 0 }
    }

    /// From a place on that another reader of the same bytes came to.
    #[inline(always)]
    pub(super) fn at_place(raw: &'a [u8], at: usize) -> Self {
        debug_assert!(at <= raw.len(), "{at} of {} bytes", raw.len());
        Self { raw, at }
    }

    pub(super) fn at(&self) -> usize {
        self.at
    }

    pub(super) fn left(&self) -> usize {
        self.raw.len() - self.at
    }

    pub(super) fn damage(&self, rule: &'static str) -> PageDamage {
        PageDamage::new(self.at, rule)
    }

    #[inline(always)]
    pub(super) fn take(&mut self, length: usize) -> Result<&'a [u8], PageDamage> {
        // `at` never passes the end, so the subtraction holds.
        if length > self.raw.len() - self.at {
            return Err(self.damage("a length passes the end"));
        }
        let taken = &self.raw[self.at..self.at + length];
        self.at += length;
        Ok(taken)
    }

    pub(super) fn u8(&mut self) -> Result<u8, PageDamage> {
        Ok(self.take(1)?[0])
    }

    pub(super) fn u32(&mut self) -> Result<u32, PageDamage> {
        Ok(read_u32(self.take(4)?))
    }

    /// A length of at most 33 bits, in its shortest form.
    #[inline(always)]
    pub(super) fn varint(&mut self) -> Result<usize, PageDamage> {
        match self.raw.get(self.at) {
            Some(&byte) if byte < 0x80 => {
                self.at += 1;
                Ok(usize::from(byte))
            }
            _ => self.long_varint(),
        }
    }

    #[inline(never)]
    fn long_varint(&mut self) -> Result<usize, PageDamage> {
        let mut value = 0u64;
        for shift in (0..35).step_by(7) {
            let byte = self.u8()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                if byte == 0 && shift > 0 {
                    return Err(self.damage("a length is not in its shortest form"));
                }
                return usize::try_from(value).map_err(|_| self.damage("a length is too large"));
            }
        }
        Err(self.damage("a length is too large"))
    }
}

/// The little-endian integer in the first four bytes, which are there.
#[inline(always)]
pub(super) fn read_u32(bytes: &[u8]) -> u32 {
    u32::from_le_bytes(bytes[..4].try_into().expect("four bytes"))
}

/// First four bytes, big endian, zero padded: orders as the bytes do, but for ties.
#[inline(always)]
pub(super) fn head_u32(bytes: &[u8]) -> u32 {
    match *bytes {
        [a, b, c, d, ..] => u32::from_be_bytes([a, b, c, d]),
        [a, b, c] => u32::from_be_bytes([a, b, c, 0]),
        [a, b] => u32::from_be_bytes([a, b, 0, 0]),
        [a] => u32::from_be_bytes([a, 0, 0, 0]),
        [] => 0,
    }
}

/// First eight bytes, big endian, zero padded.
#[inline(always)]
pub(crate) fn head_u64(bytes: &[u8]) -> u64 {
    match (bytes.first_chunk::<8>(), bytes.last_chunk::<4>()) {
        (Some(head), _) => u64::from_be_bytes(*head),
        // Four to seven bytes: the first four and the last four, which agree where they overlap.
        (None, Some(last)) => {
            u64::from(head_u32(bytes)) << 32 | u64::from(u32::from_be_bytes(*last)) << (64 - 8 * bytes.len())
        }
        (None, None) => u64::from(head_u32(bytes)) << 32,
    }
}

/// Number of leading bytes that are equal.
#[inline]
pub(super) fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    let (words_a, _) = a.as_chunks::<8>();
    let (words_b, _) = b.as_chunks::<8>();
    let mut same = 0;
    for (x, y) in words_a.iter().zip(words_b) {
        let differing = u64::from_le_bytes(*x) ^ u64::from_le_bytes(*y);
        if differing != 0 {
            return same + (differing.trailing_zeros() / 8) as usize;
        }
        same += 8;
    }
    same + a[same..].iter().zip(&b[same..]).take_while(|(x, y)| x == y).count()
}

/// The shortest `s` with `left_last < s <= right_first`: what parts two pages in their parent. `left_last <
/// right_first`.
pub(crate) fn shortest_separator(left_last: &[u8], right_first: &[u8]) -> Vec<u8> {
    debug_assert!(left_last < right_first, "pages in order");
    right_first[..common_prefix(left_last, right_first) + 1].to_vec()
}
