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
use crate::evaluation::{EvaluationContext, StageMemory, is_interruption};
use crate::expression::FieldPath;
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
    joined: VecDeque<JoinedDocument>,
    /// The array of one document's results.
    array: Vec<u8>,
    /// Keys and documents of the foreign side that were examined.
    examined: (u64, u64),
    /// Results that are too much for an array come one by one, see [`JoinedDocument::Streamed`].
    streams: bool,
    /// Those are the same for every document, and there were too many.
    are_too_much: bool,
}

/// A document of the source.
pub(super) enum JoinedDocument {
    /// With the array of its results.
    Whole(SharedDocument),
    /// As it was: its results are too much for an array, and [`LookupStage::next_found`] gives them.
    Streamed(SharedDocument),
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
            streams: false,
            are_too_much: false,
        }
    }

    /// One whose results are taken apart again, so that they need not fit into an array.
    pub(super) fn unwound(source: Box<dyn Stage>, spec: LookupSpec) -> Self {
        Self {
            streams: true,
            ..Self::new(source, spec)
        }
    }

    /// Where the results go.
    pub(super) fn target(&self) -> &FieldPath {
        self.spec.target()
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

    /// The results of a document; `None` where they are too much and are to come one by one.
    fn find(
        &mut self,
        document: &SharedDocument,
        context: &mut StageContext<'_>,
    ) -> Result<Option<Value<'static>>, QueryError> {
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
            let mut room = Room::new(&self.spec, &mut self.memory, self.streams);
            let (mut found, evaluation) = (Vec::new(), context.evaluation);
            gathered.suffix.run(wanted, context, &mut |document| {
                // What the stages hand on is in memory already.
                if room.takes(&document, Charged::No, evaluation)? {
                    found.push(Value::document(document));
                }
                Ok(())
            })?;
            return room.fits.then(|| Value::array(found)).transpose();
        }
        self.open(document, context)?;
        let mut room = Room::new(&self.spec, &mut self.memory, self.streams);
        let mut found = Vec::new();
        while let Some(foreign) = &mut self.foreign
            && let Some(document) = foreign.next(context)?
            && room.takes(&document, Charged::Yes, context.evaluation)?
        {
            found.push(Value::document(document));
        }
        let fits = room.fits;
        if !self.may_restart() {
            self.foreign = None;
        }
        if !fits {
            self.memory.clear();
        }
        fits.then(|| Value::array(found)).transpose()
    }

    /// Joins one document by itself.
    fn join_alone(
        &mut self,
        document: SharedDocument,
        context: &mut StageContext<'_>,
    ) -> Result<JoinedDocument, QueryError> {
        let found = match &self.results {
            Some(results) => Some(results.clone()),
            None if self.are_too_much => None,
            None => {
                let found = self.counted(context, |stage, context| stage.find(&document, context))?;
                if self.is_independent() {
                    self.are_too_much = found.is_none();
                    self.results.clone_from(&found);
                }
                found
            }
        };
        match found {
            Some(found) => Ok(JoinedDocument::Whole(self.whole(&document, &found)?)),
            None => Ok(JoinedDocument::Streamed(document)),
        }
    }

    fn whole(&self, document: &SharedDocument, found: &Value<'_>) -> Result<SharedDocument, QueryError> {
        let whole = with_path(document, self.spec.target.parts(), found)?;
        Ok(whole.with_metadata(document.metadata().cloned()))
    }

    /// The next document of the source, joined.
    pub(super) fn next_joined(&mut self, context: &mut StageContext<'_>) -> Result<Option<JoinedDocument>, QueryError> {
        self.prepare(context)?;
        let next = if let JoinState::Open(..) = self.join {
            if self.joined.is_empty() {
                self.join_batch(context)?;
            }
            self.joined.pop_front()
        } else {
            match self.source.next(context)? {
                Some(document) => Some(self.join_alone(document, context)?),
                None => None,
            }
        };
        if let Some(JoinedDocument::Streamed(document)) = &next {
            self.counted(context, |stage, context| {
                if let SubPipelineState::Parsed(parsed) = &stage.sub_pipeline {
                    parsed.set_variables(&stage.spec, document, context)?;
                }
                stage.open(document, context)
            })?;
        }
        Ok(next)
    }

    /// The next of the results that come one by one.
    pub(super) fn next_found(&mut self, context: &mut StageContext<'_>) -> Result<Option<SharedDocument>, QueryError> {
        let next = self.counted(context, |stage, context| match &mut stage.foreign {
            Some(foreign) => foreign.next(context),
            None => Ok(None),
        })?;
        if next.is_none() && !self.may_restart() {
            self.foreign = None;
        }
        Ok(next)
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
            documents.push(document.kept());
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
            let joined = match found {
                Some(found) => JoinedDocument::Whole(self.whole(&document, &found)?),
                None => JoinedDocument::Streamed(document),
            };
            self.joined.push_back(joined);
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
            let (spec, evaluation) = (&self.spec, context.evaluation);
            let mut room = Room::new(spec, &mut self.memory, self.streams);
            let mut take = |found: &RawDocument| {
                if room.takes(found, Charged::BeyondBatch, evaluation)? {
                    array.push_document(found);
                }
                Ok(())
            };
            let joined = match suffix {
                None => join.find(&values, context, &mut take)?,
                Some(suffix) if suffix.is_filter() => join.find(&values, context, &mut |found| match suffix
                    .lets_through(found, context)?
                {
                    true => take(found),
                    false => Ok(()),
                })?,
                Some(suffix) => find_and_run(&mut **join, suffix, spec, &values, context, &mut |document| {
                    take(&document)
                })?,
            };
            array.finish();
            if joined == Joined::ByFilter {
                drop(values);
                return Ok(Some(document));
            }
            if !room.fits {
                drop(values);
                self.array = Vec::new();
                self.memory.clear();
                self.joined.push_back(JoinedDocument::Streamed(document));
                continue;
            }
            let array = Value::Array(ArrayValue::Raw(DocumentValue::Borrowed(scan::frame(&self.array)?)));
            let whole = with_path(&document, spec.target.parts(), &array)?;
            bytes += whole.as_bytes().len();
            let whole = whole.with_metadata(document.metadata().cloned());
            self.joined.push_back(JoinedDocument::Whole(whole));
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

/// When the memory of a result is charged to the operation.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Charged {
    Yes,
    /// Once a document has more results than a batch may have bytes.
    BeyondBatch,
    No,
}

/// How much room one document's results take.
struct Room<'r> {
    spec: &'r LookupSpec,
    memory: &'r mut StageMemory,
    bytes: usize,
    /// They are no error where there is no room: they can come one by one.
    streams: bool,
    /// There was room for all of them.
    fits: bool,
}

impl<'r> Room<'r> {
    fn new(spec: &'r LookupSpec, memory: &'r mut StageMemory, streams: bool) -> Self {
        // Those of the document before are on their way.
        memory.clear();
        Self {
            spec,
            memory,
            bytes: 0,
            streams,
            fits: true,
        }
    }

    /// Whether there is room for one more.
    fn takes(
        &mut self,
        found: &RawDocument,
        charged: Charged,
        evaluation: &EvaluationContext<'_>,
    ) -> Result<bool, QueryError> {
        if !self.fits {
            return Ok(false);
        }
        let length = found.as_bytes().len();
        self.bytes += length;
        let is_charged = match charged {
            Charged::Yes => true,
            Charged::BeyondBatch => self.bytes > BATCH_BYTES_MAX,
            Charged::No => false,
        };
        let result = match self.bytes > STAGE_BYTES_MAX {
            true => too_much_found(self.spec),
            false if is_charged => self.memory.grow(evaluation, length),
            false => Ok(()),
        };
        match result {
            Err(_) if self.streams => self.fits = false,
            result => result?,
        }
        Ok(self.fits)
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
        match self.next_joined(context)? {
            Some(JoinedDocument::Whole(document)) => Ok(Some(document)),
            Some(JoinedDocument::Streamed(_)) => too_much_found(&self.spec),
            None => Ok(None),
        }
    }

    fn restart(&mut self, context: &StageContext<'_>) -> Result<bool, QueryError> {
        // They may be those of other values of variables around. A join's table and a prefix are of no variables.
        self.results = None;
        self.are_too_much = false;
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
    foreign: Foreign,
}

/// What a `$unionWith` adds.
enum Foreign {
    /// The source is not exhausted.
    Unasked,
    Open(Box<dyn Stage>),
    /// It was all given, and is gone: views that add each other are many.
    Ended,
}

impl UnionStage {
    pub(super) fn new(source: Box<dyn Stage>, spec: UnionSpec) -> Self {
        Self {
            source,
            spec,
            foreign: Foreign::Unasked,
        }
    }
}

impl Stage for UnionStage {
    fn next(&mut self, context: &mut StageContext<'_>) -> Result<Option<SharedDocument>, QueryError> {
        if let Foreign::Unasked = self.foreign {
            if let Some(document) = self.source.next(context)? {
                return Ok(Some(document));
            }
            self.foreign = Foreign::Open(self.open(context)?);
        }
        let Foreign::Open(foreign) = &mut self.foreign else {
            return Ok(None);
        };
        let next = foreign.next(context)?;
        if next.is_none() {
            self.foreign = Foreign::Ended;
        }
        Ok(next)
    }

    fn restart(&mut self, context: &StageContext<'_>) -> Result<bool, QueryError> {
        self.foreign = Foreign::Unasked;
        self.source.restart(context)
    }
}

impl UnionStage {
    fn open(&self, context: &StageContext<'_>) -> Result<Box<dyn Stage>, QueryError> {
        let expressions = of_this_operation(self.spec.context.clone(), context);
        context.execution.open_foreign(ForeignRequest {
            database: self.spec.from.database.as_deref(),
            collection: self.spec.from.collection.as_deref(),
            filter: None,
            pipeline: &self.spec.pipeline,
            context: &expressions,
            depth: self.spec.depth,
        })
    }
}
