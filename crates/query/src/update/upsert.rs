//! The document that an upsert starts from, and its last touch.

use bson::oid::ObjectId;
use bson::spec::ElementType;
use bson::{RawDocument, Timestamp};
use wire::ErrorCode;

use super::UpdateContext;
use super::apply::Application;
use super::leaf::{Leaf, Surroundings};
use super::tree::{Branch, Step, UpdatePath};
use crate::QueryError;
use crate::evaluation::EvaluationContext;
use crate::matcher::{CompareOp, MatchDetails, MatchExpr, Matcher, Test};
use crate::raw::{self, Constant, EMPTY_DOCUMENT, Element, Elements, Frame};
use crate::value::scan::frame;

/// The equalities of a filter as a document; for a replacement only that on `_id`.
pub(super) fn base(filter: &Matcher, only_id: bool) -> Result<Vec<u8>, QueryError> {
    let mut equalities = Vec::new();
    collect(filter.root(), &mut equalities);
    let mut tree = Branch::default();
    let mut paths: Vec<&str> = Vec::new();
    for (path, value) in equalities {
        if only_id && path.starts_with("_id.") {
            let message = format!("the field '_id' must be matched as a whole, but its part '{path}' is matched");
            return Err(QueryError::new(ErrorCode::NotExactValueField, message));
        }
        if only_id && path != "_id" {
            continue;
        }
        if let Some(other) = paths.iter().find(|other| overlap(other, path)) {
            let what = match *other == path {
                true => format!("path '{path}' is matched twice"),
                false => format!("both paths '{path}' and '{other}' are matched"),
            };
            let message = format!("cannot infer query fields to set, {what}");
            return Err(QueryError::new(ErrorCode::NotSingleValueField, message));
        }
        paths.push(path);
        let steps = path.split('.').map(|part| Step::Field(part.into())).collect();
        tree.insert(
            &UpdatePath {
                text: path.into(),
                steps,
            },
            Leaf::Set(value.clone()),
        )?;
    }
    let empty = frame(EMPTY_DOCUMENT)?;
    let context = UpdateContext {
        now_ms: 0,
        timestamp: Timestamp { time: 0, increment: 0 },
        keep_empty_timestamps: true,
        details: MatchDetails::default(),
    };
    let around = Surroundings {
        root: empty,
        context: &context,
        evaluation: &EvaluationContext::uninterrupted(),
        is_insert: true,
        collator: None,
    };
    let mut out = Vec::with_capacity(64);
    Application::new(around, &[]).document(&tree, empty, &mut out)?;
    Ok(out)
}

/// Whether one path is the other or leads to it.
fn overlap(a: &str, b: &str) -> bool {
    let leads = |a: &str, b: &str| {
        b.strip_prefix(a)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    leads(a, b) || leads(b, a)
}

fn collect<'m>(expr: &'m MatchExpr, equalities: &mut Vec<(&'m str, &'m Constant)>) {
    match expr {
        MatchExpr::And(parts) => parts.iter().for_each(|part| collect(part, equalities)),
        MatchExpr::Path {
            path,
            test: Test::Compare {
                op: CompareOp::Eq,
                value,
            },
        } => {
            equalities.push((path.text(), value));
        }
        MatchExpr::Path {
            path,
            test: Test::In(list),
        } => {
            if let ([only], []) = (list.values.as_slice(), list.regexes.as_slice()) {
                equalities.push((path.text(), only));
            }
        }
        _ => {}
    }
}

/// The document with `_id` in front. Fails (53) when its type cannot be an `_id`'s.
pub(super) fn with_id(
    document: &RawDocument,
    id: Option<Element<'_>>,
    generated: ObjectId,
) -> Result<Vec<u8>, QueryError> {
    let mut out = Vec::with_capacity(document.as_bytes().len() + 20);
    let whole = Frame::begin(&mut out);
    match id {
        None => raw::append(&mut out, 0x07, b"_id", &generated.bytes()),
        Some(id) => {
            let element_type = id.element_type()?;
            if matches!(
                element_type,
                ElementType::Array | ElementType::RegularExpression | ElementType::Undefined
            ) {
                let message = format!("The '_id' value cannot be of type {}", raw::type_name(element_type));
                return Err(QueryError::new(ErrorCode::InvalidIdField, message));
            }
            out.extend_from_slice(id.whole());
        }
    }
    for element in Elements::new(document) {
        let element = element?;
        if element.name() != b"_id" {
            out.extend_from_slice(element.whole());
        }
    }
    whole.finish(&mut out);
    Ok(out)
}
