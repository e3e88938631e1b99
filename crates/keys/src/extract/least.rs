//! The least key of a document, which is all that a sort needs.
//!
//! Keys are compared field by field, and none is made but the least one: of the least one so far those fields are in
//! memory that were compared, each encoded once, and one field of another. What several keys share is not looked at.

use super::{ExtractError, KeyExtractor, KeySet, Slot, WATCHED_BYTES, Watch};
use crate::key::{FIELDS_MAX, encode_field};
use crate::raw::Value;
use bson::raw::RawDocument;
use std::cmp::Ordering;

/// Bytes that looking at a key counts as, beside those of its fields.
const KEY_BYTES: usize = 128;

impl KeyExtractor {
    /// As [`KeyExtractor::extract_watched`], but puts only the first of the keys into `out`; which one of several equal
    /// ones gives its type bits is not told. `watch` hears how many bytes were looked at since it last heard. Not of
    /// indexes that are sparse or have fields of special kinds.
    pub fn extract_least(
        &self,
        document: &RawDocument,
        out: &mut KeySet,
        watch: &mut Watch<'_>,
    ) -> Result<(), ExtractError> {
        debug_assert!(
            self.pattern.special().is_none() && !self.sparse,
            "{:?} is not sorted by",
            self.pattern
        );
        out.clear();
        if let [field] = self.pattern.fields()
            && let [part] = field.parts()
            && self.extract_unless_array(part, document, out)?.is_none()
        {
            return Ok(());
        }
        match self.pattern.fields().len() {
            1 => self.least_by_slots::<1>(document, out, watch),
            2..=4 => self.least_by_slots::<4>(document, out, watch),
            _ => self.least_by_slots::<FIELDS_MAX>(document, out, watch),
        }
    }

    fn least_by_slots<const N: usize>(
        &self,
        document: &RawDocument,
        out: &mut KeySet,
        watch: &mut Watch<'_>,
    ) -> Result<(), ExtractError> {
        let count = self.pattern.fields().len();
        let mut best: Option<[Slot<'_>; N]> = None;
        let mut encoded = Vec::new();
        let mut buffer = Vec::new();
        let mut looked_at = 0;
        self.expand(Slot::at_start::<N>(document), out, &mut |slots, _| {
            looked_at += KEY_BYTES;
            let best_yet = best.as_ref().map(|best| &best[..count]);
            if best_yet.is_none_or(|best| self.is_less(slots, best, &mut encoded, &mut buffer, &mut looked_at)) {
                let mut own = [Slot::Missing; N];
                own[..count].copy_from_slice(slots);
                best = Some(own);
            }
            if looked_at < WATCHED_BYTES {
                return Ok(());
            }
            match watch(std::mem::take(&mut looked_at)) {
                true => Ok(()),
                false => Err(ExtractError::Ended),
            }
        })?;
        if let Some(best) = &best {
            self.push_key(&best[..count], out);
        }
        Ok(())
    }

    /// `encoded` are the fields of `than` that were compared before. When the answer is yes they are those of `slots`.
    fn is_less(
        &self,
        slots: &[Slot<'_>],
        than: &[Slot<'_>],
        encoded: &mut Vec<Option<Vec<u8>>>,
        buffer: &mut Vec<u8>,
        looked_at: &mut usize,
    ) -> bool {
        encoded.resize(slots.len(), None);
        for (index, (slot, than)) in slots.iter().zip(than).enumerate() {
            let (value, than) = (slot.value(), than.value());
            if is_same(value, than) {
                continue;
            }
            let mut encode = |value: Option<Value<'_>>, out: &mut Vec<u8>| {
                out.clear();
                // What is missing differs from null in the type bits only.
                let value = value.unwrap_or(Value::Null);
                encode_field(out, None, value, self.ordering().field(index), self.collator());
                *looked_at += out.len();
            };
            encode(value, &mut *buffer);
            let best = encoded[index].get_or_insert_with(|| {
                let mut best = Vec::new();
                encode(than, &mut best);
                best
            });
            match buffer.as_slice().cmp(best.as_slice()) {
                Ordering::Less => {
                    std::mem::swap(best, buffer);
                    encoded[index + 1..].fill(None);
                    return true;
                }
                Ordering::Greater => return false,
                // Those of equal fields before serve the next one as well.
                Ordering::Equal => {}
            }
        }
        false
    }
}

/// Whether both are surely the same without a look at them: the same place of the document, or nothing.
fn is_same(one: Option<Value<'_>>, other: Option<Value<'_>>) -> bool {
    match (one, other) {
        (None, None) => true,
        (Some(Value::String(one)), Some(Value::String(other)))
        | (Some(Value::Document(one)), Some(Value::Document(other)))
        | (Some(Value::Array(one)), Some(Value::Array(other)))
        | (Some(Value::Binary { bytes: one, .. }), Some(Value::Binary { bytes: other, .. }))
        | (Some(Value::Symbol(one)), Some(Value::Symbol(other)))
        | (Some(Value::Code(one)), Some(Value::Code(other)))
        | (Some(Value::CodeWithScope { code: one, .. }), Some(Value::CodeWithScope { code: other, .. }))
        | (Some(Value::Regex { pattern: one, .. }), Some(Value::Regex { pattern: other, .. }))
        | (Some(Value::DbPointer { namespace: one, .. }), Some(Value::DbPointer { namespace: other, .. })) => {
            std::ptr::eq(one, other)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::extract::IndexPattern;
    use crate::testing;
    use bson::raw::RawDocumentBuf;
    use bson::{Bson, Document, doc};
    use proptest::prelude::*;

    fn raw(document: &Document) -> RawDocumentBuf {
        RawDocumentBuf::try_from(document).unwrap()
    }

    fn extractor(pattern: &Document) -> KeyExtractor {
        KeyExtractor::new(IndexPattern::parse(&raw(pattern)).unwrap(), false, None)
    }

    /// Values, and arrays of what the fields `b` and `c` of their elements share.
    fn field() -> impl Strategy<Value = Bson> {
        let pair = (testing::value(), testing::value());
        let element = pair.prop_map(|(b, c)| Bson::Document(doc! {"b": b, "c": c}));
        prop_oneof![
            testing::value(),
            prop::collection::vec(testing::value(), 0..5).prop_map(Bson::Array),
            prop::collection::vec(element, 0..5).prop_map(Bson::Array),
        ]
    }

    proptest! {
        #![proptest_config(testing::config())]

        #[test]
        fn the_least_key_is_the_first_one(a in field(), s in testing::value(), pattern in prop::sample::select(vec![
            doc! {"a": 1},
            doc! {"a": -1, "s": 1},
            doc! {"s": 1, "a": 1},
            doc! {"a.b": 1, "a.c": -1},
            doc! {"a.b": -1, "s": 1, "a.c": 1, "a.d": 1, "z": 1},
            doc! {"a.0.b": 1, "a.c": 1},
        ])) {
            let (document, extractor) = (raw(&doc! {"a": a, "s": s}), extractor(&pattern));
            let (mut all, mut least) = (KeySet::new(), KeySet::new());
            let extracted = extractor.extract(&document, &mut all);
            prop_assert_eq!(extractor.extract_least(&document, &mut least, &mut |_| true), extracted.clone());
            if extracted.is_ok() {
                prop_assert_eq!(least.len(), 1);
                prop_assert_eq!(least.get(0).map(|key| key.key), all.get(0).map(|key| key.key));
            }
        }
    }

    /// Each of the keys had the long string in it.
    #[test]
    fn what_keys_share_is_neither_copied_nor_looked_at() {
        let numbers: Vec<i32> = (0..50_000).rev().collect();
        let document = raw(&doc! {"a": numbers, "s": "x".repeat(100_000)});
        for pattern in [doc! {"a": 1, "s": 1}, doc! {"s": 1, "a": 1}] {
            let (mut keys, mut looked_at) = (KeySet::new(), 0);
            let mut watch = |bytes| {
                looked_at += bytes;
                true
            };
            extractor(&pattern)
                .extract_least(&document, &mut keys, &mut watch)
                .unwrap();
            assert!(keys.bytes() < 110_000, "{} bytes", keys.bytes());
            assert!((5_000_000..20_000_000).contains(&looked_at), "{looked_at} bytes");
            let ended = extractor(&pattern).extract_least(&document, &mut keys, &mut |_| false);
            assert_eq!(ended, Err(ExtractError::Ended));
        }
    }

    /// A long value that stays the least one was encoded for each of the others.
    #[test]
    fn the_least_value_is_encoded_once() {
        const SHORT: usize = 10_000;
        let mut strings = vec!["b".to_owned(); SHORT];
        strings.insert(0, "a".repeat(1_000_000));
        let document = raw(&doc! {"a": strings, "s": 1});
        for pattern in [doc! {"a": 1}, doc! {"s": 1, "a": 1}] {
            let (mut keys, mut looked_at) = (KeySet::new(), 0);
            let mut watch = |bytes| {
                looked_at += bytes;
                true
            };
            extractor(&pattern)
                .extract_least(&document, &mut keys, &mut watch)
                .unwrap();
            assert!(keys.bytes() > 1_000_000, "{} bytes", keys.bytes());
            let bytes_max = 2 * document.as_bytes().len() + (KEY_BYTES + 16) * SHORT;
            assert!(looked_at < bytes_max, "{looked_at} bytes");
        }
    }
}
