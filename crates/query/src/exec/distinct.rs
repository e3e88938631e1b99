//! `distinct`: the different values of a field, arrays taken apart.
//!
//! An index that has the field, first or behind fields that the filter holds to single values, holds no arrays and
//! bounds the filter exactly is skipped through, one key per value; else the plan of the filter runs and each document
//! is looked into.

use super::context::ExecContext;
use super::executor::Planned;
use super::find::{Memory, allowed_by_settings, expression_context, plan, plan_by_settings};
use super::index_scan::{IndexScan, ScanKind};
use super::row::{Row, as_document};
use super::stage::{Flow, Stage};
use super::summary::PlanSummary;
use crate::QueryError;
use crate::evaluation::EvaluationContext;
use crate::history::is_virtual;
use crate::path::{LeafArray, Path};
use crate::plan::access::{Access, Unbounded};
use crate::plan::allowed_indexes::AllowedIndexes;
use crate::plan::convert::{Converter, has_position};
use crate::plan::encode::StringKeys;
use crate::plan::implication::holds_matches;
use crate::plan::index_filters::index_filters;
use crate::plan::query::{Order, Query, Wish, collation_of, resolve_hint};
use crate::plan::request::{DistinctRequest, FindRequest, Hint};
use crate::value::BYTES_PER_STEP;
use bson::raw::RawBsonRef;
use bson::{Bson, RawDocument, RawDocumentBuf};
use collation::Collation;
use engine::Direction;
use keys::extract::PatternField;
use keys::key::KeyDecoder;
use keys::{Collator, FieldOrder};
use std::collections::BTreeMap;
use std::sync::Arc;
use storage::{CollectionGuard, Index, LockMode, StorageError};
use wire::ErrorCode;

/// Bytes that the values may have in the answer.
const VALUES_BYTES_MAX: usize = 16 << 20;

/// The different values of a field among the matching documents, at most 16 MiB of them (17217). `on_plan` is told of
/// the plan before it runs.
pub fn distinct(
    context: &ExecContext<'_>,
    request: &DistinctRequest<'_>,
    on_plan: &mut dyn FnMut(PlanSummary),
) -> Result<Vec<Bson>, QueryError> {
    let guard = match context.data().collection(&request.ns, LockMode::IntentShared) {
        Ok(None) if is_virtual(context.storage, &request.ns) => {
            return super::view::distinct(context, request, on_plan);
        }
        Ok(guard) => guard,
        Err(StorageError::IsView(_)) => return super::view::distinct(context, request, on_plan),
        Err(error) => return Err(error.into()),
    };
    let Some(mut planned) = plan_distinct(*context, guard.as_ref(), request, Memory::Use)? else {
        on_plan(PlanSummary::unplanned("EOF"));
        return Ok(Vec::new());
    };
    on_plan(planned.plan_summary());
    let evaluation = EvaluationContext::new(context.op);
    let mut values = DistinctValues::new(request.key, planned.query.collation.clone(), &evaluation)?;
    planned.run(*context, guard, u64::MAX, &mut |row| {
        values.add_row(row)?;
        Ok(Flow::Continue)
    })?;
    Ok(values.into_list())
}

/// The plan of a `distinct`; `None` without a collection.
pub(crate) fn plan_distinct(
    context: ExecContext<'_>,
    guard: Option<&CollectionGuard>,
    request: &DistinctRequest<'_>,
    memory: Memory,
) -> Result<Option<Planned>, QueryError> {
    let collation = collation_of(request.collation, guard.and_then(|guard| guard.collation()))?;
    let expressions = expression_context(&context, None, collation)?.without_time();
    let find = FindRequest {
        hint: request.hint,
        collation: request.collation,
        ..FindRequest::new(request.ns.clone(), request.filter)
    };
    let query = Query::parse(&find, &expressions)?;
    let Some(guard) = guard else { return Ok(None) };
    if query.text().is_some() {
        return plan(context, guard, query, &find, memory).map(Some);
    }
    let skipping = Skipping {
        key: request.key,
        hint: request.hint,
        wanted: Wanted::Values,
    };
    let by_scan = |scan: IndexScan, query: Query| {
        scan.index.record_access();
        let stage = Stage::IndexScan(Box::new(scan));
        Ok(Some(Planned::new(stage, query, guard.definition().clone())))
    };
    if let Some(scan) = skipping.scan(&context, guard, &query)? {
        return by_scan(scan, query);
    }
    if allowed_by_settings(&context, guard).is_some() {
        query.bind(guard, context.op)?;
        if let Some(planned) = plan_by_settings(context, guard, &query, &find, memory)? {
            return Ok(Some(planned));
        }
        if let Some(scan) = skipping.scan_as_asked(&context, guard, &query)? {
            return by_scan(scan, query);
        }
    }
    plan(context, guard, query, &find, memory).map(Some)
}

/// Why an index is skipped through, from one value of a field to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    /// For the values: documents without the field have none.
    Values,
    /// For the first document, in the query's order, of those with each value; documents without the field are a group,
    /// too.
    Groups,
}

/// Looks for an index to skip through.
pub(super) struct Skipping<'s> {
    pub(super) key: &'s str,
    pub(super) hint: Option<Hint<'s>>,
    pub(super) wanted: Wanted,
}

impl Skipping<'_> {
    /// The scan of an index that query settings allow, where they say anything of the collection, else as asked.
    pub(super) fn scan(
        &self,
        context: &ExecContext<'_>,
        guard: &CollectionGuard,
        query: &Query,
    ) -> Result<Option<IndexScan>, QueryError> {
        match allowed_by_settings(context, guard) {
            None => self.scan_as_asked(context, guard, query),
            allowed => Ok(self.best(guard, query, &Wish::None, allowed)),
        }
    }

    /// The scan of an index that index filters or the client want, or of any where neither wants one.
    fn scan_as_asked(
        &self,
        context: &ExecContext<'_>,
        guard: &CollectionGuard,
        query: &Query,
    ) -> Result<Option<IndexScan>, QueryError> {
        let filter = index_filters().find(guard.uuid(), query);
        let wish = match resolve_hint(self.hint, guard) {
            _ if filter.is_some() => Wish::None,
            // The planner tells of a hint that is wrong, if it asks for it.
            Err(_) if allowed_by_settings(context, guard).is_some() => Wish::None,
            wish => wish?,
        };
        let allowed = filter.as_ref().map(|filter| &filter.allowed);
        Ok(self.best(guard, query, &wish, allowed))
    }

    fn best(
        &self,
        guard: &CollectionGuard,
        query: &Query,
        wish: &Wish,
        allowed: Option<&AllowedIndexes>,
    ) -> Option<IndexScan> {
        if has_position(self.key) {
            return None;
        }
        let found = guard.access_paths().iter().enumerate().filter_map(|(position, index)| {
            let is_wanted = match wish {
                Wish::None => !index.hidden() && allowed.is_none_or(|allowed| allowed.allows(index)),
                Wish::Index(hinted) => *hinted == position,
                Wish::Natural(_) => false,
            };
            is_wanted.then(|| self.access(index, query)).flatten()
        });
        let (access, field, direction) = found.min_by_key(|(access, ..)| access.rank())?;
        let kind = ScanKind::Distinct(field + 1);
        Some(IndexScan::new(
            access.index.clone(),
            access.bounds(),
            direction,
            kind,
            false,
        ))
    }

    /// What an index does for this, the place of the field in it, and the direction.
    fn access(&self, index: &Arc<Index>, query: &Query) -> Option<(Access, usize, Direction)> {
        let fields = index.pattern().fields();
        // Values are told from each other as the query compares them, and read out of the keys.
        let is_binary = index.collation().is_none() && query.collation.is_none();
        let has_values = index.pattern().special().is_none() && !index.is_clustered();
        if !is_binary || !has_values {
            return None;
        }
        let place = fields.iter().position(|field| field.path() == self.key)?;
        if !holds_matches(index, query.filter.as_deref(), query.collation.as_ref()) {
            return None;
        }
        let indexed = |path: &str| {
            let on_path = fields.iter().filter(|field| field.path() == path);
            on_path.map(PatternField::kind).collect()
        };
        let predicate = Converter::convert(query.filter.as_deref(), &indexed, StringKeys::Alike(None));
        let leaves_none_out = match self.wanted {
            // A sparse index leaves out only documents without the field, which have no value to list.
            Wanted::Values => !index.sparse() || fields.len() == 1 && query.filter.is_none(),
            Wanted::Groups => !index.sparse(),
        };
        let access = match query.filter {
            _ if !leaves_none_out => return None,
            None => Access::whole(index, true),
            Some(_) => Access::of(index, &predicate.conjuncts(), Unbounded::Allow)?,
        };
        if !access.exact || access.is_multikey() || !access.has_single_values_before(place) {
            return None;
        }
        // Groups of few documents may well be found by another index of the filter's fields.
        if self.wanted == Wanted::Groups && query.filter.is_some() && !access.is_bounded() {
            return None;
        }
        let direction = match &query.order {
            Order::None => Direction::Forward,
            Order::Natural(_) => return None,
            Order::Fields(sort) => access.direction_for(sort)?,
        };
        Some((access, place, direction))
    }
}

/// Gathers different values, in their order.
pub(crate) struct DistinctValues<'e> {
    path: Path,
    collation: Option<Arc<Collation>>,
    evaluation: &'e EvaluationContext<'e>,
    /// By what they are told from each other by, which is in the order of values.
    values: BTreeMap<Vec<u8>, Bson>,
    key: Vec<u8>,
    decoded: Vec<u8>,
    bytes: usize,
}

impl<'e> DistinctValues<'e> {
    /// For the values at a dotted path; strings are told from each other by a collation.
    pub(crate) fn new(
        path: &str,
        collation: Option<Arc<Collation>>,
        evaluation: &'e EvaluationContext<'e>,
    ) -> Result<Self, QueryError> {
        Ok(Self {
            path: Path::new(path)?,
            collation,
            evaluation,
            values: BTreeMap::new(),
            key: Vec::new(),
            decoded: Vec::new(),
            bytes: 0,
        })
    }

    /// The values; of those that are equal the first.
    pub(crate) fn into_list(self) -> Vec<Bson> {
        self.values.into_values().collect()
    }

    /// Adds the values of a row: of its document, or of the field in its index key.
    fn add_row(&mut self, row: Row<'_>) -> Result<(), QueryError> {
        let Some(key) = row.key.filter(|_| !row.document.is_some()) else {
            return self.add_document(as_document(row.document.bytes())?);
        };
        let pattern = key.index.pattern();
        let mut decoder = KeyDecoder::new(key.key, key.type_bits, pattern.ordering());
        let mut document = std::mem::take(&mut self.decoded);
        let mut present = false;
        for field in pattern.fields() {
            document.clear();
            document.extend_from_slice(&[0; 4]);
            present = decoder.append_field("", &mut document).map_err(|error| {
                QueryError::new(
                    ErrorCode::InternalError,
                    format!("a key of index {} cannot be decoded: {error}", key.index.name()),
                )
            })?;
            if field.path() == self.path.text() {
                break;
            }
        }
        if present {
            document.push(0);
            let length = document.len() as u32;
            document[..4].copy_from_slice(&length.to_le_bytes());
            for (_, value) in as_document(&document)?.iter().flatten() {
                self.add(value)?;
            }
        }
        self.decoded = document;
        Ok(())
    }

    /// Adds the values of a document.
    pub(crate) fn add_document(&mut self, document: &RawDocument) -> Result<(), QueryError> {
        let path = self.path.clone();
        crate::path::any(document, &path, LeafArray::Whole, self.evaluation, |element, _| {
            let Some(element) = element else { return Ok(false) };
            match element.value()? {
                RawBsonRef::Array(array) => {
                    for item in array.into_iter().flatten() {
                        self.add(item)?;
                    }
                }
                value => self.add(value)?,
            }
            Ok(false)
        })?;
        Ok(())
    }

    fn add(&mut self, value: RawBsonRef<'_>) -> Result<(), QueryError> {
        self.key.clear();
        let collator = self.collation.as_deref().map(|collation| collation as &dyn Collator);
        keys::key::encode_value(&mut self.key, value, FieldOrder::Ascending, collator);
        self.evaluation.steps(1 + self.key.len() / BYTES_PER_STEP)?;
        if self.values.contains_key(self.key.as_slice()) {
            return Ok(());
        }
        // In the array of the answer: a type, the digits of its place and a zero byte are around each.
        let place = self.values.len().checked_ilog10().unwrap_or(0) as usize + 1;
        let mut alone = RawDocumentBuf::new();
        alone.append(bson::raw::cstr!(""), value);
        // A document of it has its own length and end, a type and a zero byte besides.
        self.bytes += 2 + place + alone.as_bytes().len() - 7;
        if self.bytes > VALUES_BYTES_MAX {
            return Err(QueryError::new(ErrorCode(17217), "distinct too big, 16mb cap"));
        }
        let value = Bson::try_from(value).map_err(|_| crate::value::scan::Malformed)?;
        self.values.insert(self.key.clone(), value);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bson::doc;

    /// Answers of many short values were larger than what they are refused for.
    #[test]
    fn values_are_counted_as_they_are_answered() {
        let evaluation = EvaluationContext::uninterrupted();
        let mut values = DistinctValues::new("a", None, &evaluation).expect("a path");
        let all: Vec<Bson> = (0..1234)
            .map(Bson::Int32)
            .chain(["".into(), "text".into(), Bson::Null, doc! {"a": [1, 2]}.into()])
            .collect();
        let document = bson::RawDocumentBuf::try_from(&doc! {"a": all}).expect("BSON");
        values.add_document(&document).expect("room");
        values.add_document(&document).expect("room");
        let counted = values.bytes;
        let answer = bson::RawDocumentBuf::try_from(&doc! {"": values.into_list()}).expect("BSON");
        // The array's own length and end, around which is a document with a nameless field.
        assert_eq!(counted + 5, answer.as_bytes().len() - 7);
    }
}
