//! A key as the map holds it.
//!
//! Keys of up to 30 bytes (record ids, object ids with a record id behind them) lie in the map's nodes, so that a
//! search chases no pointer for them. Two such keys are compared by their first eight bytes as one number, which
//! settles most comparisons.
//!
//! Invariants: the unused bytes of an inline key are zero; a key is inline exactly when it fits.

use std::cmp::Ordering;

/// Longest key held inline: with it a [`Key`] takes 32 bytes.
pub(crate) const INLINE_BYTES_MAX: usize = 30;

/// An owned key.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Key {
    Inline { len: u8, bytes: [u8; INLINE_BYTES_MAX] },
    Heap(Box<[u8]>),
}

impl Key {
    pub(crate) fn new(key: &[u8]) -> Self {
        if key.len() <= INLINE_BYTES_MAX {
            let mut bytes = [0; INLINE_BYTES_MAX];
            bytes[..key.len()].copy_from_slice(key);
            Self::Inline {
                len: key.len() as u8,
                bytes,
            }
        } else {
            Self::Heap(key.into())
        }
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        match self {
            Self::Inline { len, bytes } => &bytes[..usize::from(*len)],
            Self::Heap(bytes) => bytes,
        }
    }

    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Inline { len, .. } => usize::from(*len),
            Self::Heap(bytes) => bytes.len(),
        }
    }

    /// The first eight bytes as a big-endian number, shorter keys filled up with zeros. Where two keys' heads differ
    /// they are ordered as the keys are.
    fn head(&self) -> u64 {
        let bytes: &[u8] = match self {
            Self::Inline { bytes, .. } => bytes,
            Self::Heap(bytes) => bytes,
        };
        u64::from_be_bytes(*bytes.first_chunk().expect("inline keys have 30 bytes, heap keys more"))
    }
}

impl Ord for Key {
    fn cmp(&self, other: &Self) -> Ordering {
        self.head()
            .cmp(&other.head())
            .then_with(|| self.as_slice().cmp(other.as_slice()))
    }
}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_order_as_their_bytes() {
        let samples: Vec<Vec<u8>> = [0, 1, 7, 8, 9, 29, 30, 31, 64]
            .iter()
            .flat_map(|&len| [0u8, 1, 0x7F, 0x80, 0xFF].map(|fill| vec![fill; len]))
            .chain([
                b"abcdefgh".to_vec(),
                b"abcdefghi".to_vec(),
                b"abcdefg".to_vec(),
                b"abcdefgh\0".to_vec(),
            ])
            .collect();
        for a in &samples {
            assert_eq!(Key::new(a).as_slice(), a.as_slice());
            assert_eq!(Key::new(a).len(), a.len());
            for b in &samples {
                assert_eq!(Key::new(a).cmp(&Key::new(b)), a.cmp(b), "{a:?} {b:?}");
                assert_eq!(Key::new(a) == Key::new(b), a == b);
            }
        }
    }

    #[test]
    fn a_key_takes_32_bytes() {
        assert_eq!(size_of::<Key>(), 32);
    }
}
