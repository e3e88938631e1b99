//! A key of a page in its two pieces.

use std::cmp::Ordering;

/// A key: the prefix that its whole page shares, and the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KeyParts<'a> {
    pub(crate) prefix: &'a [u8],
    pub(crate) suffix: &'a [u8],
}

impl<'a> KeyParts<'a> {
    pub(crate) fn len(&self) -> usize {
        self.prefix.len() + self.suffix.len()
    }

    /// Orders this key against a whole one.
    pub(crate) fn cmp(&self, key: &[u8]) -> Ordering {
        match key.split_at_checked(self.prefix.len()) {
            Some((head, rest)) => self.prefix.cmp(head).then_with(|| self.suffix.cmp(rest)),
            // Equal bytes of a shorter key: it comes first, as slices order.
            None => self.prefix.cmp(key),
        }
    }

    pub(crate) fn append_to(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.prefix);
        out.extend_from_slice(self.suffix);
    }

    pub(crate) fn to_vec(self) -> Vec<u8> {
        let mut key = Vec::with_capacity(self.len());
        self.append_to(&mut key);
        key
    }
}

impl<'a> From<&'a [u8]> for KeyParts<'a> {
    fn from(key: &'a [u8]) -> Self {
        Self {
            prefix: &[],
            suffix: key,
        }
    }
}
