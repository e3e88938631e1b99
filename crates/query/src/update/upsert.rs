//! The document that an upsert starts from, and its last touch.

use bson::oid::ObjectId;
use bson::spec::ElementType;
use bson::{RawDocument, Timestamp};
use wire::ErrorCode;

use super::UpdateContext;
use super::apply::Application;
use super::leaf::{Leaf, Surroundings};
use super::tree::{GrowingBranch, NameOrder, Step, UpdatePath};
use crate::QueryError;
use crate::evaluation::EvaluationContext;
use crate::matcher::{CompareOp, MatchDetails, MatchExpr, Matcher, Test};
use crate::raw::{self, Constant, EMPTY_DOCUMENT, Element, Elements, Frame};
use crate::value::scan::frame;

/// The equalities of a filter as a document; for a replacement only that on `_id`.
pub(super) fn base(filter: &Matcher, only_id: bool, evaluation: &EvaluationContext<'_>) -> Result<Vec<u8>, QueryError> {
    let mut equalities = Vec::new();
    collect(filter.root(), &mut equalities);
    if only_id {
        if let Some((path, _)) = equalities.iter().find(|(path, _)| path.starts_with("_id.")) {
            let message = format!("the field '_id' must be matched as a whole, but its part '{path}' is matched");
            return Err(QueryError::new(ErrorCode::NotExactValueField, message));
        }
        equalities.retain(|(path, _)| *path == "_id");
    }
    // Right behind a path stand those that it leads to, and the tree grows at its ends.
    let equalities = evaluation.sort(equalities, |(a, _), (b, _)| in_order(a).cmp(in_order(b)))?;
    for pair in equalities.windows(2) {
        let (path, next) = (pair[0].0, pair[1].0);
        let Some(rest) = next.strip_prefix(path) else { continue };
        let what = match rest.is_empty() {
            true => format!("path '{path}' is matched twice"),
            false if rest.starts_with('.') => format!("both paths '{next}' and '{path}' are matched"),
            false => continue,
        };
        let message = format!("cannot infer query fields to set, {what}");
        return Err(QueryError::new(ErrorCode::NotSingleValueField, message));
    }
    let mut tree = GrowingBranch::default();
    for (path, value) in equalities {
        evaluation.step()?;
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
        evaluation,
        is_insert: true,
        collator: None,
    };
    let mut out = Vec::with_capacity(64);
    Application::new(around, &[]).document(&tree.finish(), empty, &mut out)?;
    Ok(out)
}

/// A path by which it is sorted: name by name, as the tree has them.
fn in_order(path: &str) -> impl Iterator<Item = NameOrder<'_>> {
    path.split('.').map(|name| NameOrder::of(name.as_bytes()))
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
