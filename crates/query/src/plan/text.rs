//! Plans of searches: the text index, one scan a term.
//!
//! A text index with fields in front of its terms needs an equality for each of them. A `$text` beside other conditions
//! is a plan of its own; one inside of an `$or` is a branch, whose other branches must have indexes, too.

use super::access::{Access, Unbounded};
use super::convert::Converter;
use super::encode::point;
use super::interval::Intervals;
use super::planner::{Candidate, Planner, Source};
use super::predicate::Predicate;
use super::query::{Order, Wish};
use super::wildcard;
use crate::QueryError;
use crate::exec::index_scan::{IndexScan, ScanKind};
use crate::exec::merge::Or;
use crate::exec::stage::Stage;
use crate::exec::text::{TextMatch, TextOr, TextOrder};
use crate::matcher::text::no_index;
use crate::matcher::{MatchExpr, Matcher, TextTest, text_in};
use crate::metadata::MetadataField;
use bson::raw::RawBsonRef;
use bson::{Bson, Document};
use engine::Direction;
use keys::FieldKind;
use keys::extract::{PatternField, key_term};
use std::sync::Arc;
use storage::Index;
use wire::ErrorCode;

/// How a text index is searched.
#[derive(Clone)]
pub(crate) struct TextAccess {
    access: Access,
    /// The place of the terms among the index's fields.
    term_at: usize,
    test: Arc<TextTest>,
    /// What the fields in front of the terms equal.
    prefix: Document,
}

impl TextAccess {
    /// The index and its bounds.
    pub(super) fn access(&self) -> &Access {
        &self.access
    }
}

/// One branch of an `$or` with a search in it.
#[derive(Clone)]
pub(crate) enum TextBranch {
    Text(TextAccess),
    Index(Access),
}

fn no_plan(reason: &str) -> QueryError {
    QueryError::new(
        ErrorCode::NoQueryExecutionPlans,
        format!("error processing query: planner returned error :: caused by :: {reason}"),
    )
}

impl Planner<'_> {
    /// The plan of a query with `$text`.
    pub(super) fn text(&self, test: &Arc<TextTest>, wish: &Wish) -> Result<Candidate, QueryError> {
        match () {
            () if *wish != Wish::None => {
                return Err(QueryError::bad_value("text and hint not allowed in same query"));
            }
            () if matches!(self.query.order, Order::Natural(_)) => {
                return Err(QueryError::bad_value(
                    "text and $natural sort not allowed in same query",
                ));
            }
            () if self.query.tailable => {
                return Err(QueryError::bad_value(
                    "text and tailable cursors not allowed in same query",
                ));
            }
            () => {}
        }
        let filter = self.query.filter.as_deref().ok_or_else(no_index)?;
        let mut indexes = self.collection.indexes().iter();
        let index = indexes
            .clone()
            .find(|index| index.text().is_some() && self.considers(index) && self.holds_matches(index))
            .ok_or_else(|| match indexes.any(|index| index.text().is_some()) {
                true => no_plan("the text index is hidden, or does not hold every match"),
                false => no_index(),
            })?;
        let conjuncts: Vec<&MatchExpr> = filter.root().conjuncts().iter().collect();
        let is_scored_order = self.is_best_first();
        if conjuncts.iter().any(|part| matches!(part, MatchExpr::Text(_))) {
            let access = self.text_access(index, test, &conjuncts)?;
            let sorted = is_scored_order || !matches!(self.query.order, Order::Fields(_));
            return Ok(Candidate::of(Source::Text(Box::new(access)), sorted));
        }
        let place = conjuncts.iter().position(|part| text_in(part).is_some());
        let (Some(place), Some(MatchExpr::Or(branches))) = (place, place.map(|place| conjuncts[place])) else {
            return Err(no_plan(
                "a $text must be a condition of the query or of a branch of its $or",
            ));
        };
        let mut others = conjuncts;
        others.remove(place);
        let mut inputs = Vec::with_capacity(branches.len());
        for branch in branches {
            let mut parts: Vec<&MatchExpr> = branch.conjuncts().iter().collect();
            parts.extend(&others);
            if branch.conjuncts().iter().any(|part| matches!(part, MatchExpr::Text(_))) {
                // Scores come first: a record is given once.
                inputs.insert(0, TextBranch::Text(self.text_access(index, test, &parts)?));
                continue;
            }
            let best = self
                .collection
                .access_paths()
                .iter()
                .filter(|index| self.considers(index));
            let best = best.filter(|index| self.holds_matches(index) && self.is_alike(index));
            let mut accesses = Vec::new();
            for index in best {
                let predicate = self.predicate_of(index, &parts);
                accesses.extend(wildcard::all_accesses(index, &predicate.conjuncts(), self.evaluation)?);
            }
            let Some(access) = accesses.into_iter().min_by_key(Access::rank) else {
                return Err(no_plan(
                    "Failed to produce a solution for TEXT under OR - other non-TEXT clauses under OR have to be \
                     indexed as well.",
                ));
            };
            inputs.push(TextBranch::Index(access));
        }
        let sorted = !matches!(self.query.order, Order::Fields(_));
        Ok(Candidate::of(Source::TextUnion(inputs), sorted))
    }

    /// Whether matches are wanted by their scores and nothing else.
    fn is_best_first(&self) -> bool {
        match &self.query.order {
            Order::Fields(fields) => {
                matches!(&**fields, [only] if only.metadata_field() == Some(MetadataField::TextScore))
            }
            _ => false,
        }
    }

    fn predicate_of(&self, index: &Index, parts: &[&MatchExpr]) -> Predicate {
        let fields = index.pattern().fields();
        let indexed = |path: &str| {
            let on_path = fields
                .iter()
                .filter(|field| field.path() == path)
                .map(PatternField::kind);
            on_path.chain(wildcard::kind_at(index, path)).collect()
        };
        let root = MatchExpr::and(parts.iter().map(|part| (*part).clone()));
        let matcher = Matcher::from_expr(root, None);
        Converter::convert(Some(&matcher), &indexed, self.string_keys_of(index))
    }

    fn text_access(
        &self,
        index: &Arc<Index>,
        test: &Arc<TextTest>,
        parts: &[&MatchExpr],
    ) -> Result<TextAccess, QueryError> {
        let unusable = || {
            no_plan(
                "failed to use text index to satisfy $text query (if text index is compound, are equality predicates \
                 given for all prefix fields?)",
            )
        };
        let fields = index.pattern().fields();
        let term_at = fields.iter().position(|field| field.kind() == FieldKind::Term);
        let term_at = term_at.ok_or_else(unusable)?;
        let mut prefix = Document::new();
        for field in &fields[..term_at] {
            let equality = parts.iter().filter_map(|part| part.as_single_value());
            let mut on_path = equality.filter(|(path, _)| path.text() == field.path());
            let (_, value) = on_path.next().ok_or_else(unusable)?;
            prefix.insert(field.path(), Bson::try_from(value).unwrap_or(Bson::Null));
        }
        let predicate = self.predicate_of(index, parts);
        let access = Access::of(index, &predicate.conjuncts(), Unbounded::Near).ok_or_else(unusable)?;
        Ok(TextAccess {
            access,
            term_at,
            test: test.clone(),
            prefix,
        })
    }

    /// The scans of a search, one a term.
    fn term_scans(&self, text: &TextAccess) -> Vec<Stage> {
        let Some(search) = text.test.search() else {
            return Vec::new();
        };
        let scan = |term: &str| {
            let term = point(RawBsonRef::String(&key_term(term)));
            let bounds = text.access.bounds_with(text.term_at, Intervals::one(term));
            let index = text.access.index.clone();
            Stage::IndexScan(Box::new(IndexScan::new(
                index,
                bounds,
                Direction::Forward,
                ScanKind::Entries,
                self.query.for_write,
            )))
        };
        search.terms().map(scan).collect()
    }

    /// The tree of a search.
    pub(super) fn build_text(&self, text: &TextAccess) -> Stage {
        let query = self.query;
        let filter = query
            .filter
            .as_ref()
            .and_then(|filter| filter.beside_text())
            .map(Arc::new);
        let scans = self.term_scans(text);
        let is_answered = text.test.search().is_some_and(|search| search.is_answered_by_terms());
        let input = match () {
            () if scans.is_empty() => Stage::Eof,
            () if query.needs.has(MetadataField::TextScore) => {
                let order = match self.is_best_first() {
                    true => TextOrder::BestFirst,
                    false => TextOrder::Any,
                };
                Stage::TextOr(Box::new(TextOr::new(scans, filter, order, text.test.clone())))
            }
            () if query.count_only && is_answered && filter.is_none() => one_or_all(scans),
            () => Stage::fetch(one_or_all(scans), filter),
        };
        self.matched(input, text)
    }

    fn matched(&self, input: Stage, text: &TextAccess) -> Stage {
        let index = text.access.index.clone();
        Stage::TextMatch(Box::new(TextMatch::new(
            input,
            index,
            text.test.clone(),
            text.prefix.clone(),
        )))
    }

    /// The tree of an `$or` with a search in it.
    pub(super) fn build_text_union(&self, branches: &[TextBranch]) -> Stage {
        let is_scored = self.query.needs.has(MetadataField::TextScore);
        let input = |branch: &TextBranch| match branch {
            TextBranch::Text(text) => {
                let scans = self.term_scans(text);
                let input = match () {
                    () if scans.is_empty() => Stage::Eof,
                    () if is_scored => {
                        let test = text.test.clone();
                        Stage::TextOr(Box::new(TextOr::new(scans, None, TextOrder::Any, test)))
                    }
                    () => Stage::fetch(one_or_all(scans), None),
                };
                self.matched(input, text)
            }
            TextBranch::Index(access) => {
                let once = access.may_repeat() || self.query.for_write;
                let (index, bounds) = (access.index.clone(), access.bounds());
                let scan = IndexScan::new(index, bounds, Direction::Forward, ScanKind::Entries, once);
                Stage::IndexScan(Box::new(scan.on_path(access.wildcard.as_ref())))
            }
        };
        let union = Or::new(branches.iter().map(input).collect());
        Stage::fetch(Stage::Or(Box::new(union)), self.query.filter.clone())
    }
}

fn one_or_all(mut scans: Vec<Stage>) -> Stage {
    match scans.len() {
        1 => scans.remove(0),
        _ => Stage::Or(Box::new(Or::new(scans))),
    }
}
