//! Upserts that lose the race for a unique key.

use crate::error::CommandError;
use bson::{Bson, Document, RawDocumentBuf};
use query::matcher::{MatchExpr, Matcher};

/// An upsert that met a duplicate key tries again when the filter consists of one equality for each field of the key,
/// and those have the very key: then another client has inserted the document meanwhile, and it can be updated. With
/// any other filter the document that has the key may be one that does not match, however often it is tried.
pub fn collides_with_filter(matcher: &Matcher, error: &CommandError) -> bool {
    let Some(extra) = &error.extra else { return false };
    let Ok(pattern) = extra.get_document("keyPattern") else {
        return false;
    };
    // A very large one is not told.
    let values = extra.get_document("keyValue").ok();
    let is_collated = extra.contains_key("collation");
    let root = matcher.root();
    let has_key = |field: &str| match values.and_then(|values| values.get(field)) {
        // Strings in the order of a collation cannot be read from a key: what has it may match or not.
        Some(Bson::String(_) | Bson::Document(_) | Bson::Array(_)) if is_collated => false,
        value => fixes(root, field, value, matcher),
    };
    equalities(root) == Some(pattern.len()) && pattern.keys().all(|field| has_key(field))
}

/// Of how many equalities a filter consists; `None` when there is something else in it.
fn equalities(expr: &MatchExpr) -> Option<usize> {
    match expr {
        MatchExpr::And(parts) => parts.iter().try_fold(0, |sum, part| Some(sum + equalities(part)?)),
        other => other.as_single_value().map(|_| 1),
    }
}

/// Whether an equality gives the field that value, or any.
fn fixes(expr: &MatchExpr, field: &str, value: Option<&Bson>, matcher: &Matcher) -> bool {
    if let MatchExpr::And(parts) = expr {
        return parts.iter().any(|part| fixes(part, field, value, matcher));
    }
    let Some((path, wanted)) = expr.as_single_value() else {
        return false;
    };
    if path.text() != field {
        return false;
    }
    let Some(value) = value else { return true };
    let Ok(whole) = RawDocumentBuf::try_from(&Document::from_iter([(String::new(), value.clone())])) else {
        return false;
    };
    let value = whole.iter().flatten().next();
    value.is_some_and(|(_, value)| {
        let collator = matcher.collator().map(|collator| &**collator);
        keys::order::compare_with(wanted, value, collator).is_eq()
    })
}

#[cfg(test)]
mod tests {
    use super::collides_with_filter;
    use crate::error::CommandError;
    use bson::{Bson, Document, RawDocumentBuf, doc};
    use query::matcher::{Matcher, ParseContext};
    use std::sync::Arc;
    use wire::ErrorCode;

    fn collides(filter: Document, pattern: Document, value: Document) -> bool {
        collides_by(filter, doc! { "keyPattern": pattern, "keyValue": value })
    }

    fn collides_by(filter: Document, extra: Document) -> bool {
        let filter = RawDocumentBuf::try_from(&filter).unwrap();
        let error = CommandError {
            extra: Some(Box::new(extra)),
            ..CommandError::new(ErrorCode::DuplicateKey, "")
        };
        let context = ParseContext::new(0, Arc::new(vfs::SeededRandom::new(1)));
        collides_with_filter(&Matcher::parse(&filter, &context).unwrap(), &error)
    }

    #[test]
    fn only_equalities_that_have_the_key_are_tried_again() {
        let id = |filter| collides(filter, doc! { "_id": 1 }, doc! { "_id": 5 });
        for again in [
            doc! { "_id": 5 },
            doc! { "_id": 5.0 },
            doc! { "_id": { "$in": [5] } },
            doc! { "$or": [{ "_id": 5 }] },
            doc! { "$and": [{ "$and": [{ "_id": { "$eq": 5 } }] }] },
        ] {
            assert!(id(again.clone()), "{again}");
        }
        for refused in [
            doc! { "_id": 5, "until": { "$lt": 1 } },
            doc! { "_id": 5, "owner": "x" },
            doc! { "$and": [{ "$and": [{ "_id": { "$eq": 5 } }] }, { "b": 1 }] },
            doc! { "_id": 6 },
            doc! { "_id": { "$gte": 5 } },
            doc! { "a": 5 },
            doc! { "_id": { "$in": [5, 6] } },
            doc! {},
        ] {
            assert!(!id(refused.clone()), "{refused}");
        }
        let both = |filter| collides(filter, doc! { "a": 1, "b.c": -1 }, doc! { "a": "x", "b.c": null });
        assert!(both(doc! { "a": "x", "b.c": null }));
        assert!(!both(doc! { "a": "x", "b.c": 1 }));
        assert!(both(doc! { "$and": [{ "b.c": null }, { "a": "x" }] }));
        assert!(!both(doc! { "a": "x" }));
        assert!(!both(doc! { "a": "x", "b.c": null, "d": 1 }));
        let collated = |filter, value: Bson| {
            let collation = doc! { "locale": "en", "strength": 2 };
            collides_by(
                filter,
                doc! { "keyPattern": { "k": 1 }, "keyValue": { "k": value }, "collation": collation },
            )
        };
        assert!(collated(doc! { "k": 5 }, Bson::Int32(5)));
        assert!(!collated(doc! { "k": "a" }, Bson::String("0x29".to_owned())));
        assert!(!collated(doc! { "k": 5 }, Bson::String("0x29".to_owned())));
    }
}
