//! `distinct`: the different values of a field, arrays taken apart.
//!
//! An index that starts with the field, holds no arrays and bounds the filter exactly is skipped through, one key per
//! value; else the plan of the filter runs and each document is looked into.

use super::context::ExecContext;
use super::executor::Planned;
use super::find::{Memory, allowed_by_settings, expression_context, plan, plan_by_settings};
use super::index_scan::{IndexScan, ScanKind};
use super::row::{Row, as_document};
use super::stage::{Flow, Stage};
use super::summary::summary;
use crate::QueryError;
use crate::history::is_virtual;
use crate::path::{LeafArray, Path};
use crate::plan::access::{Access, Unbounded};
use crate::plan::allowed_indexes::AllowedIndexes;
use crate::plan::convert::{Converter, has_position};
use crate::plan::encode::StringKeys;
use crate::plan::implication::implies;
use crate::plan::index_filters::index_filters;
use crate::plan::query::{Query, Wish, collation_of, resolve_hint};
use crate::plan::request::{DistinctRequest, FindRequest};
use bson::raw::RawBsonRef;
use bson::{Bson, RawDocument};
use collation::Collation;
use engine::Direction;
use keys::extract::PatternField;
use keys::key::KeyDecoder;
use keys::{Collator, FieldOrder};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use storage::{CollectionGuard, LockMode, StorageError};
use wire::ErrorCode;

/// Bytes that the values may have.
const VALUES_BYTES_MAX: usize = 16 << 20;

/// The different values of a field among the matching documents, at most 16 MiB of them (17217). `on_plan` is told the
/// plan in a few words, before it runs.
pub fn distinct(
    context: &ExecContext<'_>,
    request: &DistinctRequest<'_>,
    on_plan: &mut dyn FnMut(Cow<'static, str>),
) -> Result<Vec<Bson>, QueryError> {
    let guard = match context
        .storage
        .collection(context.op, &request.ns, LockMode::IntentShared)
    {
        Ok(None) if is_virtual(context.storage, &request.ns) => {
            return super::view::distinct(context, request, on_plan);
        }
        Ok(guard) => guard,
        Err(StorageError::IsView(_)) => return super::view::distinct(context, request, on_plan),
        Err(error) => return Err(error.into()),
    };
    let Some(mut planned) = plan_distinct(*context, guard.as_ref(), request, Memory::Use)? else {
        on_plan(Cow::Borrowed("EOF"));
        return Ok(Vec::new());
    };
    on_plan(Cow::Owned(summary(&planned.stage)));
    let mut values = DistinctValues::new(request.key, planned.query.collation.clone())?;
    planned.run(*context, guard, &mut |row| {
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
    let by_scan = |scan: IndexScan, query: Query| {
        scan.index.record_access();
        let stage = Stage::IndexScan(Box::new(scan));
        Ok(Some(Planned::new(stage, query, guard.definition().clone())))
    };
    if let Some(allowed) = allowed_by_settings(&context, guard) {
        if let Some(scan) = distinct_scan(guard, &query, request, &Wish::None, Some(allowed))? {
            return by_scan(scan, query);
        }
        query.bind(guard)?;
        if let Some(planned) = plan_by_settings(context, guard, &query, &find, memory)? {
            return Ok(Some(planned));
        }
    }
    match scan_as_asked(&context, guard, &query, request)? {
        Some(scan) => by_scan(scan, query),
        None => plan(context, guard, query, &find, memory).map(Some),
    }
}

/// The scan of an index that index filters or the client want, or of any where neither wants one.
fn scan_as_asked(
    context: &ExecContext<'_>,
    guard: &CollectionGuard,
    query: &Query,
    request: &DistinctRequest<'_>,
) -> Result<Option<IndexScan>, QueryError> {
    let filter = index_filters().find(guard.uuid(), query);
    let wish = match resolve_hint(request.hint, guard) {
        _ if filter.is_some() => Wish::None,
        // The planner tells of a hint that is wrong, if it asks for it.
        Err(_) if allowed_by_settings(context, guard).is_some() => Wish::None,
        wish => wish?,
    };
    let allowed = filter.as_ref().map(|filter| &filter.allowed);
    distinct_scan(guard, query, request, &wish, allowed)
}

fn distinct_scan(
    guard: &CollectionGuard,
    query: &Query,
    request: &DistinctRequest<'_>,
    wish: &Wish,
    allowed: Option<&AllowedIndexes>,
) -> Result<Option<IndexScan>, QueryError> {
    if has_position(request.key) {
        return Ok(None);
    }
    let accesses = guard.access_paths().iter().enumerate().filter_map(|(position, index)| {
        let wanted = match wish {
            Wish::None => !index.hidden() && allowed.is_none_or(|allowed| allowed.allows(index)),
            Wish::Index(hinted) => *hinted == position,
            Wish::Natural(_) => false,
        };
        let fields = index.pattern().fields();
        // Values are told from each other as the query compares them, and read out of the keys.
        let is_binary = index.collation().is_none() && query.collation.is_none();
        let has_values = index.pattern().special().is_none() && !index.is_clustered();
        if !wanted || !is_binary || !has_values || fields[0].path() != request.key {
            return None;
        }
        if index
            .partial_filter()
            .is_some_and(|partial| !implies(query.filter.as_deref(), partial))
        {
            return None;
        }
        let indexed = |path: &str| {
            let on_path = fields.iter().filter(|field| field.path() == path);
            on_path.map(PatternField::kind).collect()
        };
        let predicate = Converter::convert(query.filter.as_deref(), &indexed, StringKeys::Alike(None));
        let access = match query.filter {
            // A sparse index leaves out only documents without the field, which have no value to list.
            None if fields.len() == 1 || !index.sparse() => Access::whole(index, true),
            None => return None,
            Some(_) => Access::of(index, &predicate.conjuncts(), Unbounded::Allow).filter(|_| !index.sparse())?,
        };
        (access.exact && !access.is_multikey()).then_some(access)
    });
    let best = accesses.min_by_key(|access| access.rank());
    Ok(best.map(|access| {
        IndexScan::new(
            access.index.clone(),
            access.bounds(),
            Direction::Forward,
            ScanKind::Distinct(1),
            false,
        )
    }))
}

/// Gathers different values, in their order.
pub(crate) struct DistinctValues {
    path: Path,
    collation: Option<Arc<Collation>>,
    /// By what they are told from each other by, which is in the order of values.
    values: BTreeMap<Vec<u8>, Bson>,
    key: Vec<u8>,
    decoded: Vec<u8>,
    bytes: usize,
}

impl DistinctValues {
    /// For the values at a dotted path; strings are told from each other by a collation.
    pub(crate) fn new(path: &str, collation: Option<Arc<Collation>>) -> Result<Self, QueryError> {
        Ok(Self {
            path: Path::new(path)?,
            collation,
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

    /// Adds the values of a row: of its document, or of the first field of its index key.
    fn add_row(&mut self, row: Row<'_>) -> Result<(), QueryError> {
        let Some(key) = row.key.filter(|_| !row.document.is_some()) else {
            return self.add_document(as_document(row.document.bytes())?);
        };
        let mut decoder = KeyDecoder::new(key.key, key.type_bits, key.index.pattern().ordering());
        let mut document = std::mem::take(&mut self.decoded);
        document.clear();
        document.extend_from_slice(&[0; 4]);
        let present = decoder.append_field("", &mut document).map_err(|error| {
            QueryError::new(
                ErrorCode::InternalError,
                format!("a key of index {} cannot be decoded: {error}", key.index.name()),
            )
        })?;
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
        crate::path::any(document, &path, LeafArray::Whole, |element, _| {
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
        if self.values.contains_key(self.key.as_slice()) {
            return Ok(());
        }
        self.bytes += self.key.len() + 8;
        if self.bytes > VALUES_BYTES_MAX {
            return Err(QueryError::new(ErrorCode(17217), "distinct too big, 16mb cap"));
        }
        let value = Bson::try_from(value).map_err(|_| crate::value::scan::Malformed)?;
        self.values.insert(self.key.clone(), value);
        Ok(())
    }
}
