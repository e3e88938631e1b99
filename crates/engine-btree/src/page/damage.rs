//! What can be wrong with the raw bytes of a page.

use std::fmt;

/// Raw bytes that are no page: what is wrong, and the offset at which it was noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PageDamage {
    /// Offset in the raw bytes, about where the damage lies.
    pub(crate) offset: usize,
    /// The rule that is broken.
    pub(crate) rule: &'static str,
}

impl PageDamage {
    pub(crate) fn new(offset: usize, rule: &'static str) -> Self {
        Self { offset, rule }
    }
}

impl fmt::Display for PageDamage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at offset {}", self.rule, self.offset)
    }
}

impl std::error::Error for PageDamage {}
