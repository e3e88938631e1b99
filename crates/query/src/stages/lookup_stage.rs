//! How `$lookup` and `$unionWith` run.
//!
//! What finds the documents of the foreign side for each document of the source, the first of these that can:
//! 1. An equality join ([`EqualityJoin`]), where the foreign side is a collection as it is and documents are wanted by
//!    a value: that of `localField`, or what a sub-pipeline's leading `$match` compares a field with. Documents of the
//!    source are taken in batches, and each batch is joined in one state of the foreign collection. A sub-pipeline runs
//!    on what is found.
//! 2. The documents that the first stages of a sub-pipeline give, where those are the same every time.
//! 3. The sub-aggregation of the document before, started anew with other values of the variables.
//! 4. A sub-aggregation that is opened for the document. Values that a join refuses are asked for so, too.

use bson::{Document, RawDocument};
use std::collections::VecDeque;

use super::correlated::{SubPipeline, Suffix};
use super::lookup::{LookupSpec, UnionSpec, equality_filter, local_values, of_this_operation};
use super::{
    EqualityJoin, ForeignRequest, JoinRequest, JoinStrategy, Joined, STAGE_BYTES_MAX, Stage, StageContext, failure,
};
use crate::error::QueryError;
use crate::evaluation::{StageMemory, is_interruption};
use crate::value::scan;
use crate::value::{ArrayValue, ArrayWriter, DocumentValue, SharedDocument, Value, with_path};

/// Documents that are joined at once: at first, and at most.
const FIRST_BATCH: usize = 1;
const BATCH_MAX: usize = 256;
/// Bytes of results that end a batch.
const BATCH_BYTES_MAX: usize = 1 << 20;
/// Bytes of documents of a sub-pipeline's first stages that are kept: as many as MongoDB's cache of them has.
const PREFIX_BYTES_MAX: usize = 100 << 20;

/// The running `$lookup`. See the module.
pub(super) struct LookupStage {
    source: Box<dyn Stage>,
    spec: LookupSpec,
    /// The results of a sub-pipeline that is the same for every document.
    results: Option<Value<'static>>,
    memory: StageMemory,
    sub_pipeline: SubPipelineState,
    /// The sub-aggregation of the document before, where it may be started anew.
    foreign: Option<Box<dyn Stage>>,
    prefix: PrefixState,
    join: JoinState,
    batch_max: usize,
    /// Of the source, not joined yet.
    waiting: VecDeque<SharedDocument>,
    joined: VecDeque<SharedDocument>,
    /// The array of one document's results.
    array: Vec<u8>,
    /// Keys and documents of the foreign side that were examined.
    examined: (u64, u64),
}

enum JoinState {
    Unasked,
    None,
    /// With the stages of the sub-pipeline, which run on what is found.
    Open(Box<dyn EqualityJoin>, Option<Box<Suffix>>),
}

enum SubPipelineState {
    Unasked,
    /// Parsed for each document.
    None,
    Parsed(Box<SubPipeline>),
}

/// The documents that the first stages of a sub-pipeline give. Where a cursor takes only one document they are of no
/// use: the second one has them gathered.
enum PrefixState {
    First,
    Asked,
    Gathered(Box<Gathered>),
    /// There are none that are the same for every document, or too many.
    None,
}

struct Gathered {
    documents: Vec<SharedDocument>,
    suffix: Suffix,
    _memory: StageMemory,
}

impl LookupStage {
    pub(super) fn new(source: Box<dyn Stage>, spec: LookupSpec) -> Self {
        Self {
            source,
            spec,
            results: None,
            memory: StageMemory::default(),
            sub_pipeline: SubPipelineState::Unasked,
            foreign: None,
            prefix: PrefixState::First,
            join: JoinState::Unasked,
            batch_max: FIRST_BATCH,
            waiting: VecDeque::new(),
            joined: VecDeque::new(),
            array: Vec::new(),
            examined: (0, 0),
        }
    }

    /// Runs what reads the foreign side, and counts what that examines.
    fn counted<T>(
        &mut self,
        context: &mut StageContext<'_>,
        read: impl FnOnce(&mut Self, &mut StageContext<'_>) -> Result<T, QueryError>,
    ) -> Result<T, QueryError> {
        let execution = context.execution;
        let examined = || {
            execution.data().map_or((0, 0), |data| {
                let counters = data.op.counters();
                (counters.keys_examined.get(), counters.docs_examined.get())
            })
        };
        let before = examined();
        let result = read(self, context);
        let after = examined();
        self.examined.0 += after.0.saturating_sub(before.0);
        self.examined.1 += after.1.saturating_sub(before.1);
        result
    }

    /// Parses the sub-pipeline and opens the join, where there can be one: of a collection, by equality.
    fn prepare(&mut self, context: &StageContext<'_>) -> Result<(), QueryError> {
        if !matches!(self.join, JoinState::Unasked) {
            return Ok(());
        }
        self.join = JoinState::None;
        let spec = &self.spec;
        let parsed = match spec.pipeline.is_empty() {
            true => None,
            false => SubPipeline::parse(spec, context)?,
        };
        let paths = match (&spec.equality, &parsed) {
            (Some((_, foreign)), None) if spec.pipeline.is_empty() => vec![foreign.as_str()],
            (Some((_, foreign)), Some(parsed)) if parsed.runs_on_found => vec![foreign.as_str()],
            (None, Some(parsed)) if parsed.runs_on_found => parsed.join_paths(),
            _ => Vec::new(),
        };
        if let (Some(collection), false) = (&spec.from.collection, paths.is_empty()) {
            let join = context.execution.open_join(JoinRequest {
                database: spec.from.database.as_deref(),
                collection,
                fields: &paths,
                is_planned_otherwise: spec.equality.is_some(),
                context: &spec.context,
            })?;
            if let Some(join) = join {
                let suffix = match &parsed {
                    Some(parsed) => Some(Box::new(parsed.suffix(spec, 0, context)?)),
                    None => None,
                };
                self.join = JoinState::Open(join, suffix);
            }
        }
        self.sub_pipeline = parsed.map_or(SubPipelineState::None, |parsed| {
            SubPipelineState::Parsed(Box::new(parsed))
        });
        Ok(())
    }

    /// Whether every document has the same results.
    fn is_independent(&self) -> bool {
        let spec = &self.spec;
        match &self.sub_pipeline {
            SubPipelineState::Parsed(parsed) if spec.equality.is_none() => {
                spec.is_independent() || parsed.independent == spec.pipeline.len()
            }
            _ => spec.is_independent(),
        }
    }

    fn find(
        &mut self,
        document: &SharedDocument,
        context: &mut StageContext<'_>,
    ) -> Result<Value<'static>, QueryError> {
        if let SubPipelineState::Parsed(parsed) = &self.sub_pipeline {
            parsed.set_variables(&self.spec, document, context)?;
        }
        self.gather_prefix(context)?;
        if let PrefixState::Gathered(gathered) = &mut self.prefix {
            let mut wanted = Vec::new();
            for document in &gathered.documents {
                context.evaluation.step()?;
                context.evaluation.on(document.metadata());
                if gathered.suffix.lets_through(document, context)? {
                    wanted.push(document.clone());
                }
            }
            let mut found = Found::new(&self.spec, &mut self.memory);
            gathered
                .suffix
                .run(wanted, context, &mut |document| found.push(document))?;
            return found.finish();
        }
        self.open(document, context)?;
        let mut found = Found::new(&self.spec, &mut self.memory);
        while let Some(foreign) = &mut self.foreign
            && let Some(document) = foreign.next(context)?
        {
            found.memory.grow(context.evaluation, document.as_bytes().len())?;
            found.push(document)?;
        }
        let found = found.finish();
        if !self.may_restart() {
            self.foreign = None;
        }
        found
    }

    /// Whether the sub-aggregation of one document may serve for the next.
    fn may_restart(&self) -> bool {
        self.spec.equality.is_none() && matches!(self.sub_pipeline, SubPipelineState::Parsed(_))
    }

    /// Opens the sub-aggregation for a document, whose variables are set.
    fn open(&mut self, document: &SharedDocument, context: &mut StageContext<'_>) -> Result<(), QueryError> {
        if self.may_restart()
            && let Some(foreign) = &mut self.foreign
            && foreign.restart(context)?
        {
            return Ok(());
        }
        let spec = &self.spec;
        let filter = match &spec.equality {
            None => None,
            Some((local, foreign)) => Some(equality_filter(foreign, &local_values(document, local)?)?),
        };
        let expressions = match &self.sub_pipeline {
            SubPipelineState::Parsed(parsed) => parsed.context.clone(),
            SubPipelineState::Unasked | SubPipelineState::None => {
                let mut variables = Vec::with_capacity(spec.variables.len());
                for (name, expression) in &spec.variables {
                    let value = expression.evaluate_on(document, context.evaluation)?;
                    variables.push((name.clone(), value.into_owned()));
                }
                spec.context.with_variables(variables)
            }
        };
        let expressions = of_this_operation(expressions, context);
        self.foreign = Some(context.execution.open_foreign(ForeignRequest {
            database: spec.from.database.as_deref(),
            collection: spec.from.collection.as_deref(),
            filter,
            pipeline: &spec.pipeline,
            context: &expressions,
            depth: spec.depth,
        })?);
        Ok(())
    }

    /// Gathers the documents of the first stages from the second document on, where they are the same every time.
    fn gather_prefix(&mut self, context: &mut StageContext<'_>) -> Result<(), QueryError> {
        let length = match (&self.sub_pipeline, &self.spec.equality) {
            (SubPipelineState::Parsed(parsed), None) => parsed.independent,
            _ => 0,
        };
        match self.prefix {
            PrefixState::First if length > 0 => self.prefix = PrefixState::Asked,
            PrefixState::First => self.prefix = PrefixState::None,
            PrefixState::Asked => {
                self.prefix = match self.read_prefix(length, context) {
                    Ok(gathered) => {
                        gathered.map_or(PrefixState::None, |gathered| PrefixState::Gathered(Box::new(gathered)))
                    }
                    Err(error) if is_interruption(&error) => return Err(error),
                    // Stages behind these may want less of them than all.
                    Err(_) => PrefixState::None,
                };
            }
            PrefixState::Gathered(_) | PrefixState::None => {}
        }
        Ok(())
    }

    fn read_prefix(&self, length: usize, context: &mut StageContext<'_>) -> Result<Option<Gathered>, QueryError> {
        let (spec, SubPipelineState::Parsed(parsed)) = (&self.spec, &self.sub_pipeline) else {
            return Ok(None);
        };
        let expressions = of_this_operation(spec.context.without_outer(), context);
        let mut foreign = context.execution.open_foreign(ForeignRequest {
            database: spec.from.database.as_deref(),
            collection: spec.from.collection.as_deref(),
            filter: None,
            pipeline: &spec.pipeline[..length],
            context: &expressions,
            depth: spec.depth,
        })?;
        let (mut documents, mut bytes, mut memory) = (Vec::new(), 0, StageMemory::default());
        while let Some(document) = foreign.next(context)? {
            let taken = document.as_bytes().len() + size_of::<SharedDocument>();
            bytes += taken;
            if bytes > PREFIX_BYTES_MAX {
                return Ok(None);
            }
            memory.grow(context.evaluation, taken)?;
            documents.push(document);
        }
        Ok(Some(Gathered {
            documents,
            suffix: parsed.suffix(spec, length, context)?,
            _memory: memory,
        }))
    }

    /// Takes documents of the source and joins them, as many as make a batch.
    fn join_batch(&mut self, context: &mut StageContext<'_>) -> Result<(), QueryError> {
        if self.waiting.is_empty() {
            let mut bytes = 0;
            while self.waiting.len() < self.batch_max && bytes < BATCH_BYTES_MAX {
                let Some(document) = self.source.next(context)? else {
                    break;
                };
                bytes += document.as_bytes().len();
                self.waiting.push_back(document);
            }
            self.batch_max = (self.batch_max * 4).min(BATCH_MAX);
        }
        let refused = self.counted(context, |stage, context| stage.join_waiting(context));
        if let JoinState::Open(join, _) = &mut self.join {
            // What asks by a filter takes the locks itself.
            join.rest();
        }
        if let Some(document) = refused? {
            let found = self.counted(context, |stage, context| stage.find(&document, context))?;
            self.joined
                .push_back(with_path(&document, self.spec.target.parts(), &found)?);
        }
        Ok(())
    }

    /// Joins what waits until that is a batch. Returns a document that the join refused.
    fn join_waiting(&mut self, context: &mut StageContext<'_>) -> Result<Option<SharedDocument>, QueryError> {
        let JoinState::Open(join, suffix) = &mut self.join else {
            return Ok(None);
        };
        let mut bytes = 0;
        while bytes < BATCH_BYTES_MAX
            && let Some(document) = self.waiting.pop_front()
        {
            context.execution.check()?;
            if let SubPipelineState::Parsed(parsed) = &self.sub_pipeline {
                parsed.set_variables(&self.spec, &document, context)?;
            }
            let values = match (&self.spec.equality, &self.sub_pipeline) {
                (Some((local, _)), _) => local_values(&document, local)?,
                (None, SubPipelineState::Parsed(parsed)) => match parsed.wanted(join.field(), context)? {
                    Some(value) => vec![value],
                    None => return Ok(Some(document)),
                },
                (None, _) => return Ok(Some(document)),
            };
            // Those of the document before are on their way.
            self.memory.clear();
            self.array.clear();
            let mut array = ArrayWriter::new(&mut self.array);
            let (spec, memory, mut found_bytes) = (&self.spec, &mut self.memory, 0);
            let mut check_size = |found: &RawDocument| {
                let length = found.as_bytes().len();
                found_bytes += length;
                if found_bytes > BATCH_BYTES_MAX {
                    memory.grow(context.evaluation, length)?;
                }
                match found_bytes > STAGE_BYTES_MAX {
                    true => too_much_found(spec),
                    false => Ok(()),
                }
            };
            let joined = match suffix {
                None => join.find(&values, context, &mut |found| {
                    check_size(found)?;
                    array.push_document(found);
                    Ok(())
                })?,
                Some(suffix) if suffix.is_filter() => join.find(&values, context, &mut |found| {
                    if suffix.lets_through(found, context)? {
                        check_size(found)?;
                        array.push_document(found);
                    }
                    Ok(())
                })?,
                Some(suffix) => find_and_run(&mut **join, suffix, spec, &values, context, &mut |document| {
                    check_size(&document)?;
                    array.push_document(&document);
                    Ok(())
                })?,
            };
            array.finish();
            if joined == Joined::ByFilter {
                drop(values);
                return Ok(Some(document));
            }
            let array = Value::Array(ArrayValue::Raw(DocumentValue::Borrowed(scan::frame(&self.array)?)));
            let whole = with_path(&document, spec.target.parts(), &array)?;
            bytes += whole.as_bytes().len();
            self.joined.push_back(whole);
        }
        Ok(None)
    }
}

/// Gathers what a join finds and runs the sub-pipeline on it. Nothing is given where that is refused: by the join, or
/// because it is too much to be gathered, which a plan reads piece by piece.
fn find_and_run(
    join: &mut dyn EqualityJoin,
    suffix: &mut Suffix,
    spec: &LookupSpec,
    values: &[Value<'_>],
    context: &mut StageContext<'_>,
    each: &mut dyn FnMut(SharedDocument) -> Result<(), QueryError>,
) -> Result<Joined, QueryError> {
    let (mut gathered, mut bytes, mut fits) = (Vec::new(), 0, true);
    let (mut memory, wanted) = (StageMemory::default(), suffix.wanted());
    let joined = join.find(values, context, &mut |found| {
        if !fits || gathered.len() >= wanted || !suffix.lets_through(found, context)? {
            return Ok(());
        }
        let length = found.as_bytes().len();
        bytes += length;
        fits =
            bytes <= STAGE_BYTES_MAX && (bytes <= BATCH_BYTES_MAX || memory.grow(context.evaluation, length).is_ok());
        match fits {
            true => gathered.push(SharedDocument::copy_of(found)),
            false => gathered = Vec::new(),
        }
        Ok(())
    })?;
    if !fits || joined == Joined::ByFilter {
        return Ok(Joined::ByFilter);
    }
    if !spec.nested.is_empty() {
        // Locks are not taken with others of the same kind held.
        join.rest();
    }
    suffix.run(gathered, context, each)?;
    Ok(Joined::All)
}

/// The results of one document.
struct Found<'f> {
    spec: &'f LookupSpec,
    memory: &'f mut StageMemory,
    documents: Vec<Value<'static>>,
    bytes: usize,
}

impl<'f> Found<'f> {
    fn new(spec: &'f LookupSpec, memory: &'f mut StageMemory) -> Self {
        // Those of the document before are on their way.
        memory.clear();
        Self {
            spec,
            memory,
            documents: Vec::new(),
            bytes: 0,
        }
    }

    fn push(&mut self, document: SharedDocument) -> Result<(), QueryError> {
        self.bytes += document.as_bytes().len();
        if self.bytes > STAGE_BYTES_MAX {
            return too_much_found(self.spec);
        }
        self.documents.push(Value::document(document));
        Ok(())
    }

    fn finish(self) -> Result<Value<'static>, QueryError> {
        Value::array(self.documents)
    }
}

fn too_much_found<T>(spec: &LookupSpec) -> Result<T, QueryError> {
    let name = spec.from.collection.as_deref().unwrap_or("$documents");
    failure(
        4568,
        format!("Total size of documents in {name} matching pipeline's $lookup stage exceeds {STAGE_BYTES_MAX} bytes"),
    )
}

impl Stage for LookupStage {
    fn next(&mut self, context: &mut StageContext<'_>) -> Result<Option<SharedDocument>, QueryError> {
        self.prepare(context)?;
        if let JoinState::Open(..) = self.join {
            if self.joined.is_empty() {
                self.join_batch(context)?;
            }
            return Ok(self.joined.pop_front());
        }
        let Some(document) = self.source.next(context)? else {
            return Ok(None);
        };
        let found = match &self.results {
            Some(results) => results.clone(),
            None => self.counted(context, |stage, context| stage.find(&document, context))?,
        };
        if self.results.is_none() && self.is_independent() {
            self.results = Some(found.clone());
        }
        Ok(Some(with_path(&document, self.spec.target.parts(), &found)?))
    }

    fn restart(&mut self, context: &StageContext<'_>) -> Result<bool, QueryError> {
        // They may be those of other values of variables around. A join's table and a prefix are of no variables.
        self.results = None;
        self.waiting.clear();
        self.joined.clear();
        self.source.restart(context)
    }

    fn add_statistics(&self, statistics: &mut Document) {
        let (keys, documents) = self.examined;
        statistics.insert("totalDocsExamined", documents as i64);
        statistics.insert("totalKeysExamined", keys as i64);
        let strategy = match &self.join {
            JoinState::Open(join, _) => join.strategy(),
            JoinState::Unasked | JoinState::None => JoinStrategy::NestedLoop,
        };
        let name = match &strategy {
            JoinStrategy::NestedLoop => "NestedLoopJoin",
            JoinStrategy::Index(_) => "IndexedLoopJoin",
            JoinStrategy::Hash => "HashJoin",
        };
        if self.spec.equality.is_some() {
            statistics.insert("strategy", name);
        }
        if let JoinStrategy::Index(index) = strategy {
            statistics.insert("indexesUsed", vec![index]);
        }
    }
}

/// The running `$unionWith`.
pub(super) struct UnionStage {
    source: Box<dyn Stage>,
    spec: UnionSpec,
    /// Open once the source is exhausted.
    foreign: Option<Box<dyn Stage>>,
}

impl UnionStage {
    pub(super) fn new(source: Box<dyn Stage>, spec: UnionSpec) -> Self {
        Self {
            source,
            spec,
            foreign: None,
        }
    }
}

impl Stage for UnionStage {
    fn next(&mut self, context: &mut StageContext<'_>) -> Result<Option<SharedDocument>, QueryError> {
        if let Some(foreign) = &mut self.foreign {
            return foreign.next(context);
        }
        if let Some(document) = self.source.next(context)? {
            return Ok(Some(document));
        }
        let expressions = of_this_operation(self.spec.context.clone(), context);
        let foreign = context.execution.open_foreign(ForeignRequest {
            database: self.spec.from.database.as_deref(),
            collection: self.spec.from.collection.as_deref(),
            filter: None,
            pipeline: &self.spec.pipeline,
            context: &expressions,
            depth: self.spec.depth,
        })?;
        self.foreign.insert(foreign).next(context)
    }

    fn restart(&mut self, context: &StageContext<'_>) -> Result<bool, QueryError> {
        self.foreign = None;
        self.source.restart(context)
    }
}
