//! Random updates of random documents: against a model on decoded documents, and with damaged bytes. A failure prints
//! the smallest case and the seed that leads to it.

use bson::{Bson, bson, doc};
use proptest::prelude::*;

use super::{NOW, apply, parse_with};
use crate::EvaluationContext;
use crate::exec::tests::fixture::generated;
use crate::matcher::tests::raw_of;
use wire::ErrorCode;

/// The model: `$set`, `$unset` and `$inc` on decoded documents, top-down. `None` is a refusal.
mod model {
    use bson::{Bson, Document};

    fn index(name: &str, length: usize) -> Option<usize> {
        name.parse().ok().filter(|index| *index < length + 20)
    }

    pub(super) fn set(document: &mut Document, path: &str, value: &Bson) -> Option<()> {
        match path.split_once('.') {
            None => {
                document.insert(path, value.clone());
                Some(())
            }
            Some((name, rest)) => {
                if !document.contains_key(name) {
                    document.insert(name, Document::new());
                }
                set_in(document.get_mut(name)?, rest, value)
            }
        }
    }

    fn set_in(target: &mut Bson, path: &str, value: &Bson) -> Option<()> {
        match target {
            Bson::Document(document) => set(document, path, value),
            Bson::Array(items) => {
                let (name, rest) = path
                    .split_once('.')
                    .map_or((path, None), |(name, rest)| (name, Some(rest)));
                let at = index(name, items.len())?;
                let is_new = at >= items.len();
                while items.len() <= at {
                    items.push(Bson::Null);
                }
                match rest {
                    None => items[at] = value.clone(),
                    Some(rest) => {
                        if is_new {
                            items[at] = Bson::Document(Document::new());
                        }
                        set_in(&mut items[at], rest, value)?;
                    }
                }
                Some(())
            }
            _ => None,
        }
    }

    pub(super) fn unset(target: &mut Bson, path: &str) {
        let (name, rest) = path
            .split_once('.')
            .map_or((path, None), |(name, rest)| (name, Some(rest)));
        match (target, rest) {
            (Bson::Document(document), None) => {
                document.remove(name);
            }
            (Bson::Document(document), Some(rest)) => {
                if let Some(inner) = document.get_mut(name) {
                    unset(inner, rest);
                }
            }
            (Bson::Array(items), rest) => {
                let Some(at) = index(name, items.len()).filter(|at| *at < items.len()) else {
                    return;
                };
                match rest {
                    None => items[at] = Bson::Null,
                    Some(rest) => unset(&mut items[at], rest),
                }
            }
            _ => {}
        }
    }

    pub(super) fn get<'a>(target: &'a Bson, path: &str) -> Option<&'a Bson> {
        let (name, rest) = path
            .split_once('.')
            .map_or((path, None), |(name, rest)| (name, Some(rest)));
        let inner = match target {
            Bson::Document(document) => document.get(name),
            Bson::Array(items) => index(name, items.len()).and_then(|at| items.get(at)),
            _ => None,
        }?;
        rest.map_or(Some(inner), |rest| get(inner, rest))
    }
}

fn value() -> impl Strategy<Value = Bson> {
    let leaf = prop_oneof![
        any::<i32>().prop_map(Bson::Int32),
        any::<i64>().prop_map(Bson::Int64),
        (-5.0..5.0).prop_map(Bson::Double),
        "[a-c]{0,5}".prop_map(Bson::String),
        Just(Bson::Null),
        Just(Bson::Boolean(true)),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Bson::Array),
            document_of(inner).prop_map(Bson::Document),
        ]
    })
}

fn document_of(inner: impl Strategy<Value = Bson>) -> impl Strategy<Value = bson::Document> {
    prop::collection::btree_map("[a-d0-2]", inner, 0..5).prop_map(|fields| fields.into_iter().collect())
}

fn path() -> impl Strategy<Value = String> {
    prop::collection::vec("[a-d0-2]", 1..4).prop_map(|parts| parts.join("."))
}

proptest! {
    #![proptest_config(generated(512))]

    /// One operator on a random path of a random document is what the model does.
    #[test]
    fn single_operators_agree_with_the_model(document in document_of(value()), path in path(), value in value()) {
        let mut modelled = document.clone();
        let expected = model::set(&mut modelled, &path, &value).map(|()| modelled);
        match (apply(doc! {"$set": {path.as_str(): value.clone()}}, &document), expected) {
            (Ok(changed), Some(expected)) => prop_assert_eq!(changed.unwrap_or_else(|| document.clone()), expected),
            (Err(error), None) => prop_assert_eq!(error.code(), Some(ErrorCode::PathNotViable)),
            (found, expected) => prop_assert!(false, "{:?} instead of {:?}", found, expected),
        }

        let mut modelled = Bson::Document(document.clone());
        model::unset(&mut modelled, &path);
        let changed = apply(doc! {"$unset": {path.as_str(): 1}}, &document).unwrap();
        prop_assert_eq!(Bson::Document(changed.unwrap_or_else(|| document.clone())), modelled);

        let whole = Bson::Document(document.clone());
        let incremented = apply(doc! {"$inc": {path.as_str(): 3}}, &document);
        match model::get(&whole, &path) {
            Some(Bson::Int32(number)) => {
                let sum = i64::from(*number) + 3;
                let sum = i32::try_from(sum).map_or(Bson::Int64(sum), Bson::Int32);
                let changed = Bson::Document(incremented.unwrap().unwrap());
                prop_assert_eq!(model::get(&changed, &path), Some(&sum));
            }
            Some(Bson::Int64(_) | Bson::Double(_)) => {}
            Some(_) => prop_assert_eq!(incremented.unwrap_err().code(), Some(ErrorCode::TypeMismatch)),
            None => {
                let mut modelled = document.clone();
                match model::set(&mut modelled, &path, &Bson::Int32(3)) {
                    Some(()) => prop_assert_eq!(incremented.unwrap(), Some(modelled)),
                    None => prop_assert_eq!(incremented.unwrap_err().code(), Some(ErrorCode::PathNotViable)),
                }
            }
        }
    }

    /// Damaged documents and arbitrary updates are answered, never a panic.
    #[test]
    fn hostile_input_is_survived(
        document in document_of(value()), update in document_of(value()), at in any::<prop::sample::Index>(), byte in any::<u8>()
    ) {
        let mut bytes = raw_of(&document).into_bytes();
        let at = 4 + at.index(bytes.len() - 4);
        if at < bytes.len() - 1 {
            bytes[at] = byte;
        }
        let damaged = bson::RawDocument::from_bytes(&bytes).unwrap();
        for operator in ["$set", "$unset", "$inc", "$push", "$addToSet", "$pull", "$pop", "$rename", "$min", "$bit", "$currentDate"] {
            if let Ok(update) = parse_with(&bson!({operator: update.clone()}), &[]) {
                let _ = update.apply(damaged, &NOW, &EvaluationContext::uninterrupted());
            }
        }
    }
}
