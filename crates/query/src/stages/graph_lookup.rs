//! `$graphLookup`: what can be reached from a document over links between the documents of a collection.
//!
//! Breadth first: all values that were found in one round are looked for together in the next, each value once; a
//! document is kept where it is met first, by its `_id`. Where the other side is a collection as it is they are looked
//! for by an equality join ([`EqualityJoin`]), else, and where that refuses them, by a filter.

use std::collections::{HashMap, HashSet};

use bson::{RawBsonRef, RawDocument, RawDocumentBuf, rawdoc};

use super::lookup::{
    ForeignName, add_local_values, add_name, check_depth, equality_filter, of_this_operation, parse_from,
};
use super::specification::stage_document;
use super::{EqualityJoin, ForeignRequest, JoinRequest, Joined, STAGE_BYTES_MAX, Stage, StageContext, failure};
use crate::error::QueryError;
use crate::evaluation::StageMemory;
use crate::expression::{Expression, ExpressionContext, FieldPath};
use crate::matcher::Matcher;
use crate::path::Path;
use crate::value::number::Number;
use crate::value::scan::Malformed;
use crate::value::{Comparer, SharedDocument, Value, with_path};
use wire::ErrorCode;

/// A parsed `$graphLookup`.
#[derive(Debug)]
pub struct GraphLookupSpec {
    written: RawDocumentBuf,
    from: ForeignName,
    start: Expression,
    connect_from: Path,
    connect_to: String,
    target: FieldPath,
    /// Rounds after the first.
    depth_max: Option<u64>,
    depth_field: Option<FieldPath>,
    restriction: Option<RawDocumentBuf>,
    context: ExpressionContext,
    depth: usize,
}

impl GraphLookupSpec {
    /// Parses the argument.
    pub(super) fn parse(raw: RawBsonRef<'_>, context: &ExpressionContext, depth: usize) -> Result<Self, QueryError> {
        check_depth(depth + 1)?;
        let RawBsonRef::Document(document) = raw else {
            let found = Value::from_raw(raw).type_name();
            return failure(
                ErrorCode::FailedToParse.0,
                format!("the $graphLookup stage specification must be an object, but found {found}"),
            );
        };
        let (mut from, mut start, mut connect_from, mut connect_to, mut target) = (None, None, None, None, None);
        let (mut depth_max, mut depth_field, mut restriction) = (None, None, None);
        for element in document {
            let (name, raw) = element.map_err(|_| Malformed)?;
            match (name.as_str(), raw) {
                ("startWith", raw) => start = Some(Expression::parse(raw, context)?),
                ("maxDepth", raw) => depth_max = Some(parse_depth(raw)?),
                ("restrictSearchWithMatch", RawBsonRef::Document(filter)) => {
                    Matcher::parse(filter, context)?;
                    restriction = Some(filter.to_owned());
                }
                ("restrictSearchWithMatch", other) => {
                    let found = Value::from_raw(other).type_name();
                    return failure(
                        40185,
                        format!("restrictSearchWithMatch must be an object, found {found}"),
                    );
                }
                ("from", raw) => from = Some(parse_from("$graphLookup", raw, |_, _| false)?),
                ("as", RawBsonRef::String(text)) => target = Some(FieldPath::parse(text)?),
                ("depthField", RawBsonRef::String(text)) => depth_field = Some(FieldPath::parse(text)?),
                ("connectFromField", RawBsonRef::String(text)) => {
                    FieldPath::parse(text)?;
                    connect_from = Some(Path::new(text)?);
                }
                ("connectToField", RawBsonRef::String(text)) => connect_to = Some(FieldPath::parse(text)?.to_string()),
                (field @ ("as" | "depthField" | "connectFromField" | "connectToField"), other) => {
                    let found = Value::from_raw(other).type_name();
                    return failure(
                        40103,
                        format!("expected string as argument for {field}, found: {found}"),
                    );
                }
                (other, _) => return failure(40104, format!("Unknown argument to $graphLookup: {other}")),
            }
        }
        let Some(from) = from else {
            return failure(
                ErrorCode::FailedToParse.0,
                "missing 'from' option to $graphLookup stage specification",
            );
        };
        match (start, connect_from, connect_to, target) {
            (Some(start), Some(connect_from), Some(connect_to), Some(target)) => Ok(Self {
                written: stage_document("$graphLookup", &Value::from_raw(raw)),
                from,
                start,
                connect_from,
                connect_to,
                target,
                depth_max,
                depth_field,
                restriction,
                context: context.clone(),
                depth: depth + 1,
            }),
            _ => failure(
                40105,
                "$graphLookup requires 'from', 'as', 'startWith', 'connectFromField', and 'connectToField' to be specified.",
            ),
        }
    }

    /// The stage as written.
    pub fn written(&self) -> &RawDocument {
        &self.written
    }

    /// Where the results go.
    pub fn target(&self) -> &FieldPath {
        &self.target
    }

    pub(super) fn add_foreign(&self, found: &mut Vec<(Option<String>, String)>) {
        add_name(&self.from, found);
    }
}

fn parse_depth(raw: RawBsonRef<'_>) -> Result<u64, QueryError> {
    let value = Value::from_raw(raw);
    let Some(number) = Number::of(&value) else {
        return failure(
            40100,
            format!("maxDepth requires numeric argument, found type: {}", value.type_name()),
        );
    };
    match number.to_exact_i64() {
        None => failure(40102, "maxDepth could not be represented as a long long"),
        Some(depth) => u64::try_from(depth).or_else(|_| {
            failure(
                40101,
                format!("maxDepth requires a nonnegative argument, found: {depth}"),
            )
        }),
    }
}

/// The running stage.
pub(super) struct GraphLookupStage {
    source: Box<dyn Stage>,
    spec: GraphLookupSpec,
    memory: StageMemory,
    join: JoinState,
}

enum JoinState {
    Unasked,
    None,
    /// With `restrictSearchWithMatch`.
    Open(Box<dyn EqualityJoin>, Option<Box<Matcher>>),
}

/// Bookkeeping of a value that is looked for, about: its places in both tables, and the allocations of its keys.
const VALUE_BYTES: usize = 160;

/// What one search has found so far.
#[derive(Default)]
struct Search {
    /// In the order in which they were met.
    found: Vec<Value<'static>>,
    /// By the bytes that compare like their `_id`.
    ids: HashSet<Box<[u8]>>,
    /// Values that were looked for.
    asked: HashSet<Box<[u8]>>,
    /// Values to be looked for next.
    frontier: HashMap<Box<[u8]>, Value<'static>>,
    bytes: usize,
}

impl Search {
    /// Of the memory, which is more than what the limit of a search is about.
    fn memory_bytes(&self) -> usize {
        self.bytes + VALUE_BYTES * self.asked.len()
    }

    /// Keeps a document of the round `depth`, unless it was met before.
    fn add_document(
        &mut self,
        document: &RawDocument,
        depth: u64,
        spec: &GraphLookupSpec,
        grow: &mut dyn FnMut(usize) -> Result<(), QueryError>,
    ) -> Result<(), QueryError> {
        let before = self.memory_bytes();
        let mut id = Vec::with_capacity(32);
        let value = Value::field(document, "_id")?;
        if matches!(value, Value::Missing) {
            return failure(
                40271,
                "$graphLookup tells documents apart by _id, and this one has none",
            );
        }
        // Whatever the collation: documents are others where their `_id` is another one.
        Comparer::default().append_key(&value, &mut id);
        if self.ids.contains(id.as_slice()) {
            return Ok(());
        }
        let mut links = Vec::new();
        add_local_values(document, spec.connect_from.parts(), &mut links)?;
        links.iter().for_each(|value| self.add_value(value, spec));
        let kept = match &spec.depth_field {
            Some(field) => with_path(document, field.parts(), &Value::Int64(depth as i64))?,
            None => SharedDocument::copy_of(document),
        };
        self.bytes += id.len() + kept.as_bytes().len();
        self.ids.insert(id.into());
        self.found.push(Value::document(kept));
        grow(self.memory_bytes() - before)?;
        if self.bytes > STAGE_BYTES_MAX {
            return failure(40099, "$graphLookup reached maximum memory consumption");
        }
        Ok(())
    }

    fn add_value(&mut self, value: &Value<'_>, spec: &GraphLookupSpec) {
        if matches!(value, Value::Missing) {
            return;
        }
        let mut key = Vec::with_capacity(32);
        spec.context.comparer.append_key(value, &mut key);
        if self.asked.insert(key.as_slice().into()) {
            self.bytes += 2 * key.len() + value.approximate_bytes();
            self.frontier.insert(key.into(), value.clone().into_owned());
        }
    }
}

impl GraphLookupStage {
    pub(super) fn new(source: Box<dyn Stage>, spec: GraphLookupSpec) -> Self {
        Self {
            source,
            spec,
            memory: StageMemory::default(),
            join: JoinState::Unasked,
        }
    }

    /// Opens the join, where there can be one.
    fn prepare(&mut self, context: &StageContext<'_>) -> Result<(), QueryError> {
        if !matches!(self.join, JoinState::Unasked) {
            return Ok(());
        }
        self.join = JoinState::None;
        let spec = &self.spec;
        let restriction = match &spec.restriction {
            None => None,
            Some(filter) => {
                let expressions = of_this_operation(spec.context.clone(), context);
                Some(Box::new(Matcher::parse(filter, &expressions)?))
            }
        };
        let is_planned = |filter: &Matcher| filter.text().is_some() || filter.near().is_some();
        if let Some(collection) = &spec.from.collection
            && !restriction.as_deref().is_some_and(is_planned)
        {
            let join = context.execution.open_join(JoinRequest {
                database: spec.from.database.as_deref(),
                collection,
                fields: &[&spec.connect_to],
                is_planned_otherwise: true,
                context: &spec.context,
            })?;
            self.join = join.map_or(JoinState::None, |join| JoinState::Open(join, restriction));
        }
        Ok(())
    }

    fn search(
        &mut self,
        document: &SharedDocument,
        context: &mut StageContext<'_>,
    ) -> Result<Value<'static>, QueryError> {
        let mut search = Search::default();
        // Those of the document before are on their way.
        self.memory.clear();
        match self.spec.start.evaluate_on(document, context.evaluation)? {
            Value::Array(values) => {
                for value in values.iter() {
                    search.add_value(&value?, &self.spec);
                }
            }
            value => search.add_value(&value, &self.spec),
        }
        self.memory.grow(context.evaluation, search.memory_bytes())?;
        let mut depth = 0;
        while !search.frontier.is_empty() && self.spec.depth_max.is_none_or(|max| depth <= max) {
            self.round(&mut search, depth, context)?;
            depth += 1;
        }
        Value::array(search.found)
    }

    /// Looks for all values of the frontier.
    fn round(&mut self, search: &mut Search, depth: u64, context: &mut StageContext<'_>) -> Result<(), QueryError> {
        context.execution.check()?;
        let mut values: Vec<Value<'static>> = std::mem::take(&mut search.frontier).into_values().collect();
        let (spec, memory) = (&self.spec, &mut self.memory);
        let mut grow = |bytes| memory.grow(context.evaluation, bytes);
        if let JoinState::Open(join, restriction) = &mut self.join {
            let (by_key, others): (Vec<_>, Vec<_>) = values.into_iter().partition(|value| join.takes(value));
            let joined = match by_key.is_empty() {
                true => Ok(Joined::All),
                false => join.find(&by_key, context, &mut |document| {
                    context.evaluation.step()?;
                    match restriction {
                        Some(restriction) if !restriction.matches(document, context.evaluation)? => Ok(()),
                        _ => search.add_document(document, depth, spec, &mut grow),
                    }
                }),
            };
            join.rest();
            values = others;
            if joined? == Joined::ByFilter {
                values.extend(by_key);
            }
            if values.is_empty() {
                return Ok(());
            }
        }
        let mut filter = equality_filter(&spec.connect_to, &values)?;
        if values.iter().any(|value| matches!(value, Value::Null)) {
            // Null leads to null, and not to documents without the field.
            let exists = stage_document("$exists", &Value::Boolean(true));
            let exists = stage_document(&spec.connect_to, &Value::from_raw(RawBsonRef::Document(&exists)));
            filter = rawdoc! { "$and": [filter, exists] };
        }
        if let Some(restriction) = &spec.restriction {
            filter = rawdoc! { "$and": [filter, restriction.clone()] };
        }
        let expressions = of_this_operation(spec.context.clone(), context);
        let mut foreign = context.execution.open_foreign(ForeignRequest {
            database: spec.from.database.as_deref(),
            collection: spec.from.collection.as_deref(),
            filter: Some(filter),
            pipeline: &[],
            context: &expressions,
            depth: spec.depth,
        })?;
        while let Some(document) = foreign.next(context)? {
            search.add_document(&document, depth, spec, &mut grow)?;
        }
        Ok(())
    }
}

impl Stage for GraphLookupStage {
    fn next(&mut self, context: &mut StageContext<'_>) -> Result<Option<SharedDocument>, QueryError> {
        let Some(document) = self.source.next(context)? else {
            return Ok(None);
        };
        context.execution.check()?;
        self.prepare(context)?;
        let found = self.search(&document, context)?;
        let whole = with_path(&document, self.spec.target.parts(), &found)?;
        Ok(Some(whole.with_metadata(document.metadata().cloned())))
    }

    fn restart(&mut self, context: &StageContext<'_>) -> Result<bool, QueryError> {
        self.source.restart(context)
    }
}
