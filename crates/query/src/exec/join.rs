//! The two ways of an equality join.
//!
//! - By an index whose first field is the path: a look-up for each value, all of one batch in one state of the data.
//! - By a hash table of the collection, where there is no such index and it is small: it is read once, and kept for as
//!   long as the join lives. The first document is left to a scan: there may be no second one.
//!
//! Where neither is possible, and for values whose equality is not that of keys (null, which a missing field equals,
//! arrays, regular expressions), the join says so, and a filter has to ask.

use super::context::ExecContext;
use super::join_table::JoinTable;
use super::record_set::RecordSet;
use super::row::as_document;
use crate::QueryError;
use crate::data::DataSource;
use crate::evaluation::{EvaluationContext, StageMemory};
use crate::plan::convert::has_position;
use crate::plan::index_filters::index_filters;
use crate::stages::{EqualityJoin, JoinRequest, JoinStrategy, Joined, StageContext};
use crate::value::Value;
use bson::raw::CString;
use bson::{RawDocument, RawDocumentBuf};
use collation::Collation;
use engine::{Direction, FillLimits, KeyRange};
use keys::extract::KeySet;
use keys::{Collator, FieldKind, FieldOrder, IndexPattern, KeyExtractor};
use std::ops::Bound;
use std::sync::Arc;
use storage::{
    Collection, CollectionGuard, Index, IndexBatch, IndexCursor, LockMode, Namespace, ReadView, RecordBatch, RecordId,
    StorageError,
};
use wire::ErrorCode;

/// Bytes that a hash table may take: what MongoDB has as internalQueryCollectionMaxDataSizeBytesToChooseHashJoin.
const HASH_BYTES_MAX: usize = 100 << 20;
/// Values of the first document that are left to a scan: a filter of more costs more than a table.
const SCANNED_FOR_MAX: usize = 100;
/// Entries that are read at once: of most keys of an index there is one.
const FIRST_ENTRIES: usize = 4;
const ENTRIES_MAX: usize = 256;
const BATCH_BYTES_MAX: usize = 256 * 1024;

/// See the module.
pub(crate) struct CollectionJoin {
    ns: Namespace,
    field: String,
    /// Its place among those of the request.
    place: usize,
    is_planned_otherwise: bool,
    collation: Option<Arc<Collation>>,
    runs_scripts: bool,
    way: Way,
    /// The index that was used last.
    index: Option<Arc<Index>>,
    open: Option<Open>,
    /// The keys that are looked for now, each once.
    wanted: Vec<Vec<u8>>,
    entries: IndexBatch,
    /// Records that were given, where an index may lead to one twice.
    given: RecordSet,
    /// Documents of the table that were found.
    found: Vec<u32>,
    memory: StageMemory,
}

enum Way {
    /// Not asked yet.
    First,
    /// An index, or a table as soon as there is none.
    Asked,
    Hash(JoinTable),
    /// The collection does not fit into a table, or is none any more.
    Impossible,
}

/// The collection, and the state that is read.
struct Open {
    collection: Option<Arc<Collection>>,
    /// `None` where scripts run between two documents that are found, which may never end.
    _guard: Option<CollectionGuard>,
    view: ReadView,
    index: Option<Arc<Index>>,
    cursor: Option<IndexCursor>,
}

impl CollectionJoin {
    /// The join of a collection; `None` where equality at the path is not that of its keys.
    pub(crate) fn new(
        context: ExecContext<'_>,
        db: &str,
        request: &JoinRequest<'_>,
    ) -> Result<Option<Self>, QueryError> {
        let ns = Namespace::new(request.database.unwrap_or(db), request.collection)?;
        let is_plain =
            context.storage.catalog().view(&ns).is_none() && !crate::history::is_virtual(context.storage, &ns);
        if !is_plain {
            return Ok(None);
        }
        let definition = context.definition(&ns);
        let has_index = |field: &str| {
            let best = definition
                .as_deref()
                .map(|collection| best_index(collection, field, request.context.collation.as_ref()));
            best.flatten().is_some()
        };
        let fields = request.fields.iter().enumerate();
        let by_keys = fields.filter(|(_, field)| !has_position(field));
        // The first of those with an index, else the first.
        let Some((place, field)) = by_keys.min_by_key(|(_, field)| !has_index(field)) else {
            return Ok(None);
        };
        Ok(Some(Self {
            ns,
            field: (*field).to_owned(),
            place,
            is_planned_otherwise: request.is_planned_otherwise,
            collation: request.context.collation.clone(),
            runs_scripts: request.context.has_scripts(),
            way: Way::First,
            index: None,
            open: None,
            wanted: Vec::new(),
            entries: IndexBatch::new(),
            given: RecordSet::default(),
            found: Vec::new(),
            memory: StageMemory::default(),
        }))
    }

    fn open(&mut self, data: DataSource<'_>) -> Result<(), QueryError> {
        let guard = match data.collection(&self.ns, LockMode::IntentShared) {
            Err(StorageError::IsView(_)) => {
                self.way = Way::Impossible;
                return Ok(());
            }
            guard => guard?,
        };
        let index = guard
            .as_ref()
            .and_then(|guard| best_index(guard, &self.field, self.collation.as_ref()));
        match (&index, &guard) {
            (Some(index), _) => {
                index.record_access();
                self.index = Some(index.clone());
            }
            (None, Some(guard)) if self.is_planned_otherwise && planner_may_know_better(guard, &self.field) => {
                self.way = Way::Impossible;
                return Ok(());
            }
            _ => {}
        }
        self.open = Some(Open {
            collection: guard.as_ref().map(|guard| guard.definition().clone()),
            view: data.view()?,
            // Behind the view, which keeps what it shows.
            _guard: guard.filter(|_| !self.runs_scripts),
            index,
            cursor: None,
        });
        Ok(())
    }

    fn by_index(
        &mut self,
        values: &[Value<'_>],
        data: DataSource<'_>,
        found: &mut dyn FnMut(&RawDocument) -> Result<(), QueryError>,
    ) -> Result<(), QueryError> {
        let Some(open) = &mut self.open else { return Ok(()) };
        let (Some(collection), Some(index)) = (&open.collection, &open.index) else {
            return Ok(());
        };
        self.given.clear();
        let evaluation = EvaluationContext::new(data.op);
        let order = index.pattern().ordering().field(0);
        encode_each(values, order, index.extractor().collator(), &mut self.wanted);
        let remembers = self.wanted.len() > 1 || !index.multikey().is_empty();
        let counters = data.op.counters();
        let (mut keys, mut documents) = (0, 0);
        for key in &self.wanted {
            data.op.check().map_err(StorageError::from)?;
            let mut give = |id: &RecordId| -> Result<(), QueryError> {
                if remembers && !self.given.insert(id, &evaluation)? {
                    return Ok(());
                }
                let Some(document) = open.view.record(collection, id)? else {
                    return Ok(());
                };
                documents += 1;
                found(as_document(&document)?)
            };
            if index.is_clustered() {
                give(&RecordId::Key(key.as_slice().into()))?;
                continue;
            }
            if index.has_unique_rows() && index.pattern().fields().len() == 1 {
                keys += 1;
                if let Some(id) = open.view.find_unique(index, key)? {
                    give(&id)?;
                }
                continue;
            }
            let cursor = match &mut open.cursor {
                Some(cursor) => cursor,
                empty => {
                    let all = KeyRange {
                        start: Bound::Unbounded,
                        end: Bound::Unbounded,
                    };
                    empty.insert(open.view.index_entries(index, all, Direction::Forward)?)
                }
            };
            cursor.seek(key, None)?;
            let mut rows_max = FIRST_ENTRIES;
            'entries: loop {
                let limits = FillLimits {
                    rows_max,
                    bytes_max: BATCH_BYTES_MAX,
                };
                rows_max = (rows_max * 4).min(ENTRIES_MAX);
                if !cursor.fill(&mut self.entries, limits)? {
                    break;
                }
                for i in 0..self.entries.len() {
                    if !self.entries.key(i).starts_with(key) {
                        break 'entries;
                    }
                    keys += 1;
                    give(&self.entries.id(i))?;
                }
                data.op.check_now().map_err(StorageError::from)?;
            }
        }
        counters.keys_examined.add(keys);
        counters.docs_examined.add(documents);
        Ok(())
    }

    /// Reads the collection into a table; `None` when it does not fit.
    fn read(&mut self, data: DataSource<'_>, context: &StageContext<'_>) -> Result<Option<JoinTable>, QueryError> {
        let Some(open) = &self.open else { return Ok(None) };
        let Some(collection) = &open.collection else {
            return Ok(None);
        };
        if collection.data_bytes() > HASH_BYTES_MAX as u64 {
            return Ok(None);
        }
        let mut pattern = RawDocumentBuf::new();
        let field = CString::try_from(self.field.as_str()).map_err(|error| QueryError::bad_value(error.to_string()))?;
        pattern.append(&field, 1);
        let Ok(pattern) = IndexPattern::parse(&pattern) else {
            return Ok(None);
        };
        let collator = self.collation.clone().map(|collation| collation as Arc<dyn Collator>);
        let extractor = KeyExtractor::new(pattern, false, collator);
        let mut table = JoinTable::with_capacity(collection.data_bytes() as usize);
        let (mut keys, mut batch, mut bytes) = (KeySet::new(), RecordBatch::new(), 0);
        let mut records = open
            .view
            .records(collection, Bound::Unbounded, Bound::Unbounded, Direction::Forward)?;
        while records.fill(&mut batch, FillLimits::default())? {
            let before = bytes;
            for i in 0..batch.len() {
                context.evaluation.step()?;
                let document = as_document(batch.document(i))?;
                if extractor.extract(document, &mut keys).is_err() {
                    return Ok(None);
                }
                bytes += table.insert(document, keys.iter().map(|key| key.key));
            }
            if bytes > HASH_BYTES_MAX || self.memory.grow(context.evaluation, bytes - before).is_err() {
                self.memory.clear();
                return Ok(None);
            }
            data.op.counters().docs_examined.add(batch.len() as u64);
        }
        Ok(Some(table))
    }
}

impl EqualityJoin for CollectionJoin {
    fn find(
        &mut self,
        values: &[Value<'_>],
        context: &StageContext<'_>,
        found: &mut dyn FnMut(&RawDocument) -> Result<(), QueryError>,
    ) -> Result<Joined, QueryError> {
        if !values.iter().all(is_equal_by_key) {
            return Ok(Joined::ByFilter);
        }
        if matches!(self.way, Way::First | Way::Asked) {
            let data = context.execution.data().ok_or_else(|| {
                QueryError::new(
                    ErrorCode::InternalError,
                    "a collection is read by an execution without storage",
                )
            })?;
            if self.open.is_none() {
                self.open(data)?;
            }
            let open = self.open.as_ref();
            let (is_there, has_index) =
                open.map_or((false, false), |open| (open.collection.is_some(), open.index.is_some()));
            match self.way {
                Way::Impossible => {}
                _ if has_index => {
                    self.by_index(values, data, found)?;
                    return Ok(Joined::All);
                }
                _ if !is_there => return Ok(Joined::All),
                Way::First if values.len() <= SCANNED_FOR_MAX => {
                    self.way = Way::Asked;
                    return Ok(Joined::ByFilter);
                }
                _ => {
                    self.way = self.read(data, context)?.map_or(Way::Impossible, Way::Hash);
                    self.rest();
                }
            }
        }
        let Way::Hash(table) = &self.way else {
            return Ok(Joined::ByFilter);
        };
        let collator = self.collation.as_deref().map(|collation| collation as &dyn Collator);
        encode_each(values, FieldOrder::Ascending, collator, &mut self.wanted);
        if let [only] = self.wanted.as_slice() {
            context.evaluation.step()?;
            for number in table.numbers(only) {
                context.evaluation.step()?;
                found(table.document(number)?)?;
            }
            return Ok(Joined::All);
        }
        self.found.clear();
        for key in &self.wanted {
            context.evaluation.step()?;
            self.found.extend(table.numbers(key));
        }
        self.found.sort_unstable();
        self.found.dedup();
        for number in &self.found {
            context.evaluation.step()?;
            found(table.document(*number)?)?;
        }
        Ok(Joined::All)
    }

    fn takes(&self, value: &Value<'_>) -> bool {
        is_equal_by_key(value)
    }

    fn field(&self) -> usize {
        self.place
    }

    fn rest(&mut self) {
        self.open = None;
        self.entries = IndexBatch::new();
    }

    fn strategy(&self) -> JoinStrategy {
        match (&self.way, &self.index) {
            (Way::Hash(_), _) => JoinStrategy::Hash,
            (_, Some(index)) => JoinStrategy::Index(index.name().to_owned()),
            (_, None) => JoinStrategy::NestedLoop,
        }
    }
}

/// Whether a value equals exactly those that have its key.
fn is_equal_by_key(value: &Value<'_>) -> bool {
    !matches!(
        value,
        Value::Missing | Value::Null | Value::Undefined | Value::Array(_) | Value::Other(_)
    )
}

/// The keys of values, in their order and each once: an array of local values may hold the same one a million times.
fn encode_each(values: &[Value<'_>], order: FieldOrder, collator: Option<&dyn Collator>, keys: &mut Vec<Vec<u8>>) {
    keys.resize_with(values.len(), Vec::new);
    for (value, key) in values.iter().zip(keys.iter_mut()) {
        encode(value, order, collator, key);
    }
    if keys.len() > 1 {
        keys.sort_unstable();
        keys.dedup();
    }
}

fn encode(value: &Value<'_>, order: FieldOrder, collator: Option<&dyn Collator>, key: &mut Vec<u8>) {
    key.clear();
    if let Some(value) = value.as_raw() {
        keys::key::encode_value(key, value, order, collator);
    }
}

/// What the operator has said of a query's indexes the planner knows to keep to.
fn has_filters(collection: &Collection) -> bool {
    index_filters().are_used() && !index_filters().of(collection.uuid()).is_empty()
}

/// Whether a filter may find documents by an index that this knows nothing of: a hashed or partial one, one with
/// another collation, one over all paths.
fn planner_may_know_better(guard: &CollectionGuard, field: &str) -> bool {
    let may_serve = |index: &Arc<Index>| {
        let first = index.pattern().fields().first();
        !index.hidden() && (index.wildcard().is_some() || first.is_some_and(|first| first.path() == field))
    };
    has_filters(guard) || guard.access_paths().iter().any(may_serve)
}

/// The index that leads to all documents with a value of a path, with the fewest fields behind it.
fn best_index(collection: &Collection, field: &str, collation: Option<&Arc<Collation>>) -> Option<Arc<Index>> {
    if has_filters(collection) {
        return None;
    }
    let serves = |index: &&Arc<Index>| {
        let first = index.pattern().fields().first();
        first.is_some_and(|first| first.path() == field && first.kind() == FieldKind::Value)
            && index.pattern().special().is_none()
            && index.partial_filter().is_none()
            && !index.hidden()
            && index.collation() == collation
    };
    let all = collection.access_paths().iter().filter(serves);
    all.min_by_key(|index| (index.pattern().fields().len(), !index.unique()))
        .cloned()
}
