//! The seam for collations: what turns a string into the bytes it sorts by.
//!
//! `None` everywhere in this crate means binary order (MongoDB's `simple`). The crate knows no ICU; whoever implements
//! the trait does.

use std::cmp::Ordering;

/// An order of strings other than the binary one.
///
/// Invariant the implementor owes: `compare(a, b)` equals the memcmp order of the two sort keys.
pub trait Collator: Send + Sync {
    /// Appends the sort key of `text` to `out`. Any bytes are allowed in it.
    fn append_sort_key(&self, text: &str, out: &mut Vec<u8>);

    /// Compares two strings. The default compares sort keys; override it when there is a way that does not allocate.
    fn compare(&self, a: &str, b: &str) -> Ordering {
        let (mut key_a, mut key_b) = (Vec::new(), Vec::new());
        self.append_sort_key(a, &mut key_a);
        self.append_sort_key(b, &mut key_b);
        key_a.cmp(&key_b)
    }
}
