//! `$lookup` and `$unionWith`: documents of other collections.
//!
//! The equality form is an equality join where the foreign side is a collection as it is ([`EqualityJoin`]); else it
//! asks the execution for a filter on `foreignField`. The pipeline form runs a sub-aggregation whose `let` variables
//! are constants, computed per document. A sub-pipeline that depends on nothing of the document is run once.

use bson::{Document, RawArray, RawBsonRef, RawDocument, RawDocumentBuf};
use wire::ErrorCode;

use super::positions::check_sub_pipeline;
use super::{
    EqualityJoin, ForeignRequest, JoinRequest, JoinStrategy, Joined, PIPELINE_DEPTH_MAX, Pipeline, STAGE_BYTES_MAX,
    Stage, StageContext, failure,
};
use crate::error::QueryError;
use crate::evaluation::StageMemory;
use crate::expression::{Expression, ExpressionContext, FieldPath, check_user_variable};
use crate::path::{Part, Path};
use crate::raw::{self, Elements, kind};
use crate::value::scan::{self, Malformed};
use crate::value::{ArrayValue, ArrayWriter, DocumentValue, DocumentWriter, SharedDocument, Value, with_path};
use std::collections::VecDeque;

/// A collection named by a stage.
#[derive(Clone, Debug, Default)]
pub(super) struct ForeignName {
    pub(super) database: Option<String>,
    pub(super) collection: Option<String>,
}

/// A parsed `$lookup`.
#[derive(Debug)]
pub struct LookupSpec {
    written: RawDocumentBuf,
    from: ForeignName,
    /// `localField` and `foreignField`.
    equality: Option<(Path, String)>,
    variables: Vec<(String, Expression)>,
    pipeline: Vec<RawDocumentBuf>,
    /// The sub-pipeline's own foreign collections.
    nested: Vec<(Option<String>, String)>,
    target: FieldPath,
    context: ExpressionContext,
    depth: usize,
}

/// A parsed `$unionWith`.
#[derive(Debug)]
pub struct UnionSpec {
    written: RawDocumentBuf,
    from: ForeignName,
    pipeline: Vec<RawDocumentBuf>,
    nested: Vec<(Option<String>, String)>,
    context: ExpressionContext,
    depth: usize,
}

fn bad<T>(message: impl Into<String>) -> Result<T, QueryError> {
    failure(ErrorCode::FailedToParse.0, message)
}

/// Copies the stages of a sub-pipeline.
fn stage_documents(array: &RawArray, stage: &str) -> Result<Vec<RawDocumentBuf>, QueryError> {
    let mut stages = Vec::new();
    for raw in array {
        match raw.map_err(|_| Malformed)? {
            RawBsonRef::Document(document) => stages.push(document.to_owned()),
            _ => {
                return failure(
                    ErrorCode::TypeMismatch.0,
                    format!("Each element of the 'pipeline' array of {stage} must be an object"),
                );
            }
        }
    }
    Ok(stages)
}

pub(super) fn check_depth(depth: usize) -> Result<(), QueryError> {
    if depth > PIPELINE_DEPTH_MAX {
        return failure(
            165,
            format!("Maximum number of nested sub-pipelines exceeded. Limit is {PIPELINE_DEPTH_MAX}"),
        );
    }
    Ok(())
}

/// `"coll"` or `{db, coll}`.
pub(super) fn parse_from(raw: RawBsonRef<'_>) -> Result<ForeignName, QueryError> {
    match raw {
        RawBsonRef::String(collection) => Ok(ForeignName {
            database: None,
            collection: Some(collection.to_owned()),
        }),
        RawBsonRef::Document(document) => {
            let part = |name: &str| match document.get(name) {
                Ok(Some(RawBsonRef::String(text))) => Some(text.to_owned()),
                _ => None,
            };
            match (part("db"), part("coll")) {
                (Some(db), Some(coll)) => Ok(ForeignName {
                    database: Some(db),
                    collection: Some(coll),
                }),
                _ => bad("$lookup 'from' field must be a string or an object with 'db' and 'coll'"),
            }
        }
        other => {
            let value = Value::from_raw(other);
            bad(format!(
                "$lookup argument 'from: {}' must be a string, is type {}",
                value.render(),
                value.type_name()
            ))
        }
    }
}

impl LookupSpec {
    /// Parses the argument of `$lookup`.
    pub(super) fn parse(raw: RawBsonRef<'_>, context: &ExpressionContext, depth: usize) -> Result<Self, QueryError> {
        check_depth(depth + 1)?;
        let RawBsonRef::Document(document) = raw else {
            let found = Value::from_raw(raw).type_name();
            return bad(format!(
                "the $lookup stage specification must be an object, but found {found}"
            ));
        };
        let (mut from, mut local, mut foreign, mut target) = (None, None, None, None);
        let (mut variables, mut pipeline) = (Vec::new(), None);
        for element in document {
            let (name, raw) = element.map_err(|_| Malformed)?;
            match (name.as_str(), raw) {
                ("from", raw) => from = Some(parse_from(raw)?),
                ("pipeline", RawBsonRef::Array(array)) => pipeline = Some(stage_documents(array, "$lookup")?),
                ("pipeline", other) => {
                    let found = Value::from_raw(other).type_name();
                    return failure(
                        ErrorCode::TypeMismatch.0,
                        format!("'pipeline' option must be specified as an array, found {found}"),
                    );
                }
                ("let", RawBsonRef::Document(document)) => variables = parse_let(document, context)?,
                ("let", other) => {
                    let value = Value::from_raw(other);
                    return bad(format!(
                        "$lookup argument 'let: {}' must be an object, is type {}",
                        value.render(),
                        value.type_name()
                    ));
                }
                ("as", RawBsonRef::String(text)) => target = Some(FieldPath::parse(text)?),
                ("localField", RawBsonRef::String(text)) => {
                    FieldPath::parse(text)?;
                    local = Some(Path::new(text)?);
                }
                ("foreignField", RawBsonRef::String(text)) => foreign = Some(FieldPath::parse(text)?.to_string()),
                (field @ ("as" | "localField" | "foreignField"), other) => {
                    let value = Value::from_raw(other);
                    return bad(format!(
                        "$lookup argument '{field}: {}' must be a string, is type {}",
                        value.render(),
                        value.type_name()
                    ));
                }
                (other, _) => return bad(format!("unknown argument to $lookup: {other}")),
            }
        }
        let Some(target) = target else {
            return bad("must specify 'as' field for a $lookup");
        };
        let equality = match (local, foreign) {
            (Some(local), Some(foreign)) => Some((local, foreign)),
            (None, None) if pipeline.is_some() => None,
            (None, None) => {
                return bad(
                    "$lookup requires either 'pipeline' or both 'localField' and 'foreignField' to be specified",
                );
            }
            _ => return bad("$lookup requires both or neither of 'localField' and 'foreignField' to be specified"),
        };
        if !variables.is_empty() && pipeline.is_none() {
            return bad("$lookup with a 'let' argument must also specify 'pipeline'");
        }
        let pipeline = pipeline.unwrap_or_default();
        if from.is_none() && !starts_with_documents(&pipeline) {
            return bad("must specify 'from' field for a $lookup");
        }
        check_sub_pipeline(&pipeline, "$lookup", 51047)?;
        let nested = check_pipeline(&pipeline, &variables, context, depth + 1)?;
        Ok(Self {
            written: super::specification::stage_document("$lookup", &Value::from_raw(raw)),
            from: from.unwrap_or_default(),
            equality,
            variables,
            pipeline,
            nested,
            target,
            context: context.clone(),
            depth: depth + 1,
        })
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
        found.extend(self.nested.iter().cloned());
    }

    /// Whether every document has the same results.
    fn is_independent(&self) -> bool {
        self.equality.is_none() && self.variables.is_empty()
    }
}

pub(super) fn add_name(name: &ForeignName, found: &mut Vec<(Option<String>, String)>) {
    if let Some(collection) = &name.collection {
        found.push((name.database.clone(), collection.clone()));
    }
}

fn starts_with_documents(pipeline: &[RawDocumentBuf]) -> bool {
    pipeline
        .first()
        .is_some_and(|first| first.get("$documents").ok().flatten().is_some())
}

fn parse_let(document: &RawDocument, context: &ExpressionContext) -> Result<Vec<(String, Expression)>, QueryError> {
    let mut variables = Vec::new();
    for element in document {
        let (name, raw) = element.map_err(|_| Malformed)?;
        check_user_variable(name.as_str())?;
        variables.push((name.as_str().to_owned(), Expression::parse(raw, context)?));
    }
    Ok(variables)
}

/// Parses a sub-pipeline for its errors, with variables that have no value yet. Returns the collections it reads.
fn check_pipeline(
    pipeline: &[RawDocumentBuf],
    variables: &[(String, Expression)],
    context: &ExpressionContext,
    depth: usize,
) -> Result<Vec<(Option<String>, String)>, QueryError> {
    let unknown = context.with_variables(variables.iter().map(|(name, _)| (name.clone(), Value::Missing)));
    let parsed = Pipeline::parse_stages(pipeline, &unknown, depth)?;
    Ok(parsed.foreign_collections())
}

impl UnionSpec {
    /// Parses the argument of `$unionWith`.
    pub(super) fn parse(raw: RawBsonRef<'_>, context: &ExpressionContext, depth: usize) -> Result<Self, QueryError> {
        check_depth(depth + 1)?;
        let (mut from, mut pipeline) = (ForeignName::default(), Vec::new());
        match raw {
            RawBsonRef::String(collection) => from.collection = Some(collection.to_owned()),
            RawBsonRef::Document(document) => {
                for element in document {
                    let (name, raw) = element.map_err(|_| Malformed)?;
                    match (name.as_str(), raw) {
                        ("coll", RawBsonRef::String(collection)) => from.collection = Some(collection.to_owned()),
                        ("pipeline", RawBsonRef::Array(array)) => pipeline = stage_documents(array, "$unionWith")?,
                        ("coll" | "pipeline", other) => {
                            let found = Value::from_raw(other).type_name();
                            return failure(
                                ErrorCode::TypeMismatch.0,
                                format!("BSON field '$unionWith.{}' is the wrong type '{found}'", name.as_str()),
                            );
                        }
                        (other, _) => {
                            return failure(40415, format!("BSON field '$unionWith.{other}' is an unknown field."));
                        }
                    }
                }
            }
            other => {
                let found = Value::from_raw(other).type_name();
                return bad(format!(
                    "the $unionWith stage specification must be an object or string, but found {found}"
                ));
            }
        }
        if from.collection.is_none() && !starts_with_documents(&pipeline) {
            return bad(
                "$unionWith stage without explicit collection must have a pipeline with $documents as first stage",
            );
        }
        check_sub_pipeline(&pipeline, "$unionWith", 31441)?;
        let nested = check_pipeline(&pipeline, &[], context, depth + 1)?;
        Ok(Self {
            written: super::specification::stage_document("$unionWith", &Value::from_raw(raw)),
            from,
            pipeline,
            nested,
            context: context.clone(),
            depth: depth + 1,
        })
    }

    /// The stage as written.
    pub fn written(&self) -> &RawDocument {
        &self.written
    }

    pub(super) fn add_foreign(&self, found: &mut Vec<(Option<String>, String)>) {
        add_name(&self.from, found);
        found.extend(self.nested.iter().cloned());
    }
}

/// The values at `localField`: those that a join compares. Numbers in the path are positions in arrays, other names
/// lead into each document of an array, and an array at the end stands for its elements.
fn local_values<'d>(document: &'d RawDocument, path: &Path) -> Result<Vec<Value<'d>>, QueryError> {
    let mut values = Vec::new();
    add_local_values(document, path.parts(), &mut values)?;
    if values.is_empty() {
        values.push(Value::Null);
    }
    Ok(values)
}

/// Recursion ends with the path.
pub(super) fn add_local_values<'d>(
    document: &'d RawDocument,
    parts: &[Part],
    values: &mut Vec<Value<'d>>,
) -> Result<(), QueryError> {
    // The first component is a name, even when it is a number.
    let Some((first, mut rest)) = parts.split_first() else {
        return Ok(());
    };
    let Some(mut element) = raw::find(document, first.name().as_bytes())? else {
        return Ok(());
    };
    while let (kind::ARRAY, Some(position)) = (element.kind(), rest.first().and_then(Part::index)) {
        let Some(item) = Elements::new(element.frame()?).nth(position as usize).transpose()? else {
            return Ok(());
        };
        element = item;
        rest = &rest[1..];
    }
    match (element.kind(), rest) {
        (kind::ARRAY, []) => {
            for item in Elements::new(element.frame()?) {
                values.push(Value::from_raw(item?.value()?));
            }
        }
        (_, []) => values.push(Value::from_raw(element.value()?)),
        (kind::ARRAY, rest) => {
            for item in Elements::new(element.frame()?) {
                let item = item?;
                if item.kind() == kind::DOCUMENT {
                    add_local_values(item.frame()?, rest, values)?;
                }
            }
        }
        (kind::DOCUMENT, rest) => add_local_values(element.frame()?, rest, values)?,
        _ => {}
    }
    Ok(())
}

/// The filter for documents whose `field` equals one of `values`.
pub(super) fn equality_filter(field: &str, values: &[Value<'_>]) -> Result<RawDocumentBuf, QueryError> {
    let mut bytes = Vec::with_capacity(64);
    let mut writer = DocumentWriter::new(&mut bytes);
    match values {
        [only] => {
            let mut test = writer.document(field);
            test.append("$eq", only);
            test.finish();
        }
        values if values.iter().any(|value| value.type_name() == "regex") => {
            // In $in a regex would be a pattern; here it is a value.
            let mut branches = writer.array("$or");
            for value in values {
                let equal = super::specification::stage_document("$eq", value);
                let branch =
                    super::specification::stage_document(field, &Value::from_raw(RawBsonRef::Document(&equal)));
                branches.push(&Value::from_raw(RawBsonRef::Document(&branch)));
            }
            branches.finish();
        }
        values => {
            let mut test = writer.document(field);
            let mut list = test.array("$in");
            values.iter().for_each(|value| list.push(value));
            list.finish();
            test.finish();
        }
    }
    writer.finish();
    RawDocumentBuf::from_bytes(bytes).map_err(|_| Malformed.into())
}

/// What a sub-pipeline is parsed with: it ends with the operation that runs now, which need not be the one that parsed
/// the stage.
pub(super) fn of_this_operation(expressions: ExpressionContext, context: &StageContext<'_>) -> ExpressionContext {
    match context.execution.data() {
        Some(data) => expressions.for_operation(data.op),
        None => expressions,
    }
}

/// Documents that are joined at once: at first, and at most.
const FIRST_BATCH: usize = 1;
const BATCH_MAX: usize = 256;
/// Bytes of results that end a batch.
const BATCH_BYTES_MAX: usize = 1 << 20;

/// The running `$lookup`.
///
/// Where an equality join is possible, documents of the source are taken in batches, and each batch is joined in one
/// state of the foreign collection. Else, and for values that the join refuses, the foreign side is opened anew for
/// each document.
pub(super) struct LookupStage {
    source: Box<dyn Stage>,
    spec: LookupSpec,
    /// The results of a sub-pipeline that is the same for every document.
    results: Option<Value<'static>>,
    memory: StageMemory,
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
    Open(Box<dyn EqualityJoin>),
}

impl LookupStage {
    pub(super) fn new(source: Box<dyn Stage>, spec: LookupSpec) -> Self {
        Self {
            source,
            spec,
            results: None,
            memory: StageMemory::default(),
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

    fn find(
        &mut self,
        document: &SharedDocument,
        context: &mut StageContext<'_>,
    ) -> Result<Value<'static>, QueryError> {
        let spec = &self.spec;
        let filter = match &spec.equality {
            None => None,
            Some((local, foreign)) => Some(equality_filter(foreign, &local_values(document, local)?)?),
        };
        let mut variables = Vec::with_capacity(spec.variables.len());
        for (name, expression) in &spec.variables {
            let value = expression.evaluate_on(document, context.evaluation)?;
            variables.push((name.clone(), value.into_owned()));
        }
        let expressions = of_this_operation(spec.context.with_variables(variables), context);
        let mut foreign = context.execution.open_foreign(ForeignRequest {
            database: spec.from.database.as_deref(),
            collection: spec.from.collection.as_deref(),
            filter,
            pipeline: &spec.pipeline,
            context: &expressions,
            depth: spec.depth,
        })?;
        let (mut found, mut bytes) = (Vec::new(), 0);
        // Those of the document before are on their way.
        self.memory.clear();
        while let Some(document) = foreign.next(context)? {
            self.memory.grow(context.evaluation, document.as_bytes().len())?;
            bytes += document.as_bytes().len();
            if bytes > STAGE_BYTES_MAX {
                return too_much_found(&self.spec);
            }
            found.push(Value::document(document));
        }
        Value::array(found)
    }

    /// Opens the join where there can be one: of a collection, by equality alone.
    fn has_join(&mut self, context: &StageContext<'_>) -> Result<bool, QueryError> {
        if let JoinState::Unasked = self.join {
            let spec = &self.spec;
            let join = match (&spec.equality, &spec.from.collection) {
                (Some((_, foreign)), Some(collection)) if spec.pipeline.is_empty() => {
                    context.execution.open_join(JoinRequest {
                        database: spec.from.database.as_deref(),
                        collection,
                        field: foreign,
                        context: &spec.context,
                    })?
                }
                _ => None,
            };
            self.join = join.map_or(JoinState::None, JoinState::Open);
        }
        Ok(matches!(self.join, JoinState::Open(_)))
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
        if let JoinState::Open(join) = &mut self.join {
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
    fn join_waiting(&mut self, context: &StageContext<'_>) -> Result<Option<SharedDocument>, QueryError> {
        let (JoinState::Open(join), Some((local, _))) = (&mut self.join, &self.spec.equality) else {
            return Ok(None);
        };
        let mut bytes = 0;
        while bytes < BATCH_BYTES_MAX
            && let Some(document) = self.waiting.pop_front()
        {
            context.execution.check()?;
            let values = local_values(&document, local)?;
            // Those of the document before are on their way.
            self.memory.clear();
            self.array.clear();
            let mut array = ArrayWriter::new(&mut self.array);
            let (spec, memory, mut found_bytes) = (&self.spec, &mut self.memory, 0);
            let joined = join.find(&values, context, &mut |found| {
                let length = found.as_bytes().len();
                found_bytes += length;
                if found_bytes > BATCH_BYTES_MAX {
                    memory.grow(context.evaluation, length)?;
                }
                if found_bytes > STAGE_BYTES_MAX {
                    return too_much_found(spec);
                }
                array.push_document(found);
                Ok(())
            })?;
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

fn too_much_found<T>(spec: &LookupSpec) -> Result<T, QueryError> {
    let name = spec.from.collection.as_deref().unwrap_or("$documents");
    failure(
        4568,
        format!("Total size of documents in {name} matching pipeline's $lookup stage exceeds {STAGE_BYTES_MAX} bytes"),
    )
}

impl Stage for LookupStage {
    fn next(&mut self, context: &mut StageContext<'_>) -> Result<Option<SharedDocument>, QueryError> {
        if self.has_join(context)? {
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
        if self.spec.is_independent() && self.results.is_none() {
            self.results = Some(found.clone());
        }
        Ok(Some(with_path(&document, self.spec.target.parts(), &found)?))
    }

    fn add_statistics(&self, statistics: &mut Document) {
        let (keys, documents) = self.examined;
        statistics.insert("totalDocsExamined", documents as i64);
        statistics.insert("totalKeysExamined", keys as i64);
        if self.spec.equality.is_none() {
            return;
        }
        let strategy = match &self.join {
            JoinState::Open(join) => join.strategy(),
            JoinState::Unasked | JoinState::None => JoinStrategy::NestedLoop,
        };
        let name = match &strategy {
            JoinStrategy::NestedLoop => "NestedLoopJoin",
            JoinStrategy::Index(_) => "IndexedLoopJoin",
            JoinStrategy::Hash => "HashJoin",
        };
        statistics.insert("strategy", name);
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
}
