//! The records that a stage has given, where it may meet them again.
//!
//! Most have numbers, and numbers that are near each other: a bit each. What it takes is charged to the operation.

use std::collections::{HashMap, HashSet};

use storage::RecordId;

use crate::QueryError;
use crate::evaluation::{EvaluationContext, StageMemory};

/// Memory of a word of bits, and of a key beside its bytes: with the room that tables keep free.
const WORD_BYTES: usize = 32;
const KEY_BYTES: usize = 64;

/// Records, or words of them, for which an emptied set keeps its room.
const KEPT_MAX: usize = 1024;

/// See the module.
#[derive(Default)]
pub(crate) struct RecordSet {
    /// 64 numbers each, by the number of the word.
    words: HashMap<u64, u64>,
    keys: HashSet<RecordId>,
    memory: StageMemory,
}

impl RecordSet {
    /// Whether a record is in it.
    pub(crate) fn contains(&self, id: &RecordId) -> bool {
        match id {
            RecordId::Number(number) => {
                let word = self.words.get(&(number / 64)).copied().unwrap_or_default();
                word >> (number % 64) & 1 == 1
            }
            key @ RecordId::Key(_) => self.keys.contains(key),
        }
    }

    /// Adds a record; false when it was there. Fails (146) when the operation gets no more memory.
    pub(crate) fn insert(&mut self, id: &RecordId, context: &EvaluationContext<'_>) -> Result<bool, QueryError> {
        let (is_new, bytes) = match id {
            RecordId::Number(number) => {
                let words = self.words.len();
                let word = self.words.entry(number / 64).or_default();
                let bit = 1 << (number % 64);
                let is_new = *word & bit == 0;
                *word |= bit;
                (is_new, (self.words.len() - words) * WORD_BYTES)
            }
            RecordId::Key(bytes) => {
                let is_new = self.keys.insert(id.clone());
                (is_new, if is_new { KEY_BYTES + bytes.len() } else { 0 })
            }
        };
        if bytes > 0 {
            self.memory.grow(context, bytes)?;
        }
        Ok(is_new)
    }

    /// Forgets all records. Small tables stay, for what comes next.
    pub(crate) fn clear(&mut self) {
        if self.words.capacity().max(self.keys.capacity()) > KEPT_MAX {
            *self = Self::default();
            return;
        }
        self.words.clear();
        self.keys.clear();
        self.memory.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_new_once() {
        let context = EvaluationContext::uninterrupted();
        let mut set = RecordSet::default();
        let ids = [0, 1, 63, 64, 65, 1 << 40].map(RecordId::Number);
        let keys = [&b"a"[..], b"ab"].map(|key| RecordId::Key(key.into()));
        for id in ids.iter().chain(&keys) {
            assert!(!set.contains(id), "{id:?}");
            assert!(set.insert(id, &context).expect("no limit"), "{id:?}");
            assert!(set.contains(id), "{id:?}");
            assert!(!set.insert(id, &context).expect("no limit"), "{id:?}");
        }
        assert!(!set.contains(&RecordId::Number(2)));
        set.clear();
        for id in ids.iter().chain(&keys) {
            assert!(!set.contains(id), "{id:?}");
        }
    }
}
