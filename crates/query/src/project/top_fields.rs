//! Projections that keep fields, or leave them out, by their names alone: what applications send most.

use crate::raw::{Elements, Malformed};
use bson::{RawBsonRef, RawDocument};

/// With more names looking for each of them in turn costs more than the general projection.
const NAMES_MAX: usize = 32;

/// Names of fields of the top, and whether those or all others are kept. `_id` is kept unless it is left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TopFields {
    /// Each with its length in front.
    names: Vec<u8>,
    keeps_named: bool,
    keeps_id: bool,
}

impl TopFields {
    /// `None` for a projection that does anything else, or that is wrong.
    pub(crate) fn of(spec: &RawDocument) -> Option<Self> {
        let mut top = Self {
            names: Vec::with_capacity(spec.as_bytes().len()),
            keeps_named: true,
            keeps_id: true,
        };
        let (mut keeps, mut id, mut count) = (None, None, 0);
        for element in Elements::new(spec) {
            let element = element.ok()?;
            let name = element.name();
            let kept = match element.value().ok()? {
                RawBsonRef::Boolean(kept) => kept,
                RawBsonRef::Int32(number) => number != 0,
                RawBsonRef::Int64(number) => number != 0,
                RawBsonRef::Double(number) => number != 0.0,
                _ => return None,
            };
            if name == b"_id" {
                if id.replace(kept).is_some() {
                    return None;
                }
                continue;
            }
            count += 1;
            let is_plain = !name.is_empty() && name[0] != b'$' && !name.contains(&b'.');
            if !is_plain || count > NAMES_MAX || *keeps.get_or_insert(kept) != kept || top.has(name) {
                return None;
            }
            top.names.push(u8::try_from(name.len()).ok()?);
            top.names.extend_from_slice(name);
        }
        match (keeps, id) {
            // To name `_id` alone is to ask for it alone, or for all but it.
            (None, id) => top.keeps_named = id?,
            (Some(false), Some(true)) => return None,
            (Some(keeps), _) => top.keeps_named = keeps,
        }
        top.keeps_id = id.unwrap_or(true);
        Some(top)
    }

    fn has(&self, name: &[u8]) -> bool {
        let mut rest = self.names.as_slice();
        while let Some((length, names)) = rest.split_first() {
            let (one, behind) = names.split_at(usize::from(*length));
            if one == name {
                return true;
            }
            rest = behind;
        }
        false
    }

    fn keeps(&self, name: &[u8]) -> bool {
        match name {
            b"_id" => self.keeps_id,
            name => self.has(name) == self.keeps_named,
        }
    }

    /// Appends the projected document to `out`.
    pub(crate) fn apply(&self, document: &RawDocument, out: &mut Vec<u8>) -> Result<(), Malformed> {
        let (bytes, start) = (document.as_bytes(), out.len());
        out.reserve(bytes.len());
        out.extend_from_slice(&[0; 4]);
        let mut elements = Elements::new(document);
        // Neighbours are copied together.
        let mut kept = elements.offset()..elements.offset();
        while let Some(element) = elements.next() {
            let element = element?;
            let end = elements.offset();
            match self.keeps(element.name()) {
                true => kept.end = end,
                false => {
                    out.extend_from_slice(&bytes[kept]);
                    kept = end..end;
                }
            }
        }
        out.extend_from_slice(&bytes[kept]);
        out.push(0);
        let length = (out.len() - start) as u32;
        out[start..start + 4].copy_from_slice(&length.to_le_bytes());
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::evaluation::EvaluationContext;
    use crate::exec::tests::fixture::generated;
    use crate::matcher::tests::context;
    use crate::project::Projection;
    use bson::{Document, RawDocumentBuf, doc};
    use proptest::prelude::*;

    fn raw(document: &Document) -> RawDocumentBuf {
        RawDocumentBuf::try_from(document).unwrap()
    }

    fn of(spec: Document) -> Option<TopFields> {
        TopFields::of(&raw(&spec))
    }

    #[test]
    fn what_does_more_or_is_wrong_is_left_to_the_general_one() {
        for spec in [
            doc! {},
            doc! { "a.b": 1 },
            doc! { "a": "$b" },
            doc! { "a": { "$slice": 1 } },
            doc! { "a.$": 1 },
            doc! { "$a": 1 },
            doc! { "": 1 },
            doc! { "a": 1, "b": 0 },
            doc! { "a": 0, "_id": 1 },
            doc! { "a": bson::Bson::Null },
            (0..33).map(|n| (format!("f{n}"), 1.into())).collect(),
            doc! { "a".repeat(256): 1 },
        ] {
            assert_eq!(of(spec.clone()), None, "{spec}");
        }
    }

    proptest! {
        #![proptest_config(generated(256))]

        #[test]
        fn it_is_the_general_projection(
            fields in prop::collection::vec(("[a-e]|_id", any::<bool>()), 0..6),
            spec in prop::collection::vec(("[a-f]|_id", 0..2_i32), 1..5),
            keeps in any::<bool>(),
        ) {
            let document: Document = fields
                .into_iter()
                .map(|(name, nested)| match nested {
                    true => (name, doc! { "a": 1, "b": [1, { "a": 2 }] }.into()),
                    false => (name, "text".into()),
                })
                .collect();
            let spec: Document = spec
                .into_iter()
                .map(|(name, value)| {
                    let value = if name == "_id" { value } else { i32::from(keeps) };
                    (name, value.into())
                })
                .collect();
            let (document, spec) = (raw(&document), raw(&spec));
            let general = Projection::parse(&spec, &context());
            match (TopFields::of(&spec), general) {
                (None, _) => {}
                (Some(top), general) => {
                    let mut out = vec![7];
                    top.apply(&document, &mut out).unwrap();
                    let mut expected = vec![7];
                    let mut general = general.unwrap();
                    general.top = None;
                    general
                        .apply(&document, None, &EvaluationContext::uninterrupted(), &mut expected)
                        .unwrap();
                    prop_assert_eq!(out, expected);
                }
            }
        }
    }
}
