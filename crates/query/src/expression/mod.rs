//! Aggregation expressions: parsed once, evaluated per document on borrowed bytes.
//!
//! [`Expression::parse`] turns BSON into a tree of nodes, resolving names: constants (also `$$NOW` and the variables a
//! command brings) are folded, `$let` variables become stack slots. [`Expression::evaluate`] computes a [`Value`] that
//! borrows from the document and from the expression, so reading a field copies nothing.
//! - A stack slot's number is the count of slots bound around it, which parsing and evaluating agree on.
//! - Depth is bounded at parsing ([`DEPTH_MAX`]), so evaluation recurses safely.
//!
//! It knows no collections, no clock and no query planner; the time and randomness come in by [`ExpressionContext`].

mod arithmetic;
mod array;
mod boolean;
mod bounds;
mod convert;
mod date;
mod failure;
mod function;
mod gathered;
pub(crate) use date::TimeUnit;
mod object;
mod operator;
mod outer;
pub(crate) use arithmetic::out_of_long;
pub(crate) use function::{call_script, script_arguments, script_result};
pub(crate) use object::merge_documents;
mod parse;
mod path;
mod regex;
mod scope;
mod set;
mod string;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};

use bson::{RawBsonRef, RawDocument, RawDocumentBuf, Timestamp};
use collation::Collation;
use storage::{ClusterTime, Operation};
use vfs::Random;
use wire::ErrorCode;

use crate::error::QueryError;
use crate::evaluation::EvaluationContext;
use crate::metadata::MetadataNeeds;
use crate::plan::query_settings::QuerySettings;
use crate::value::{CollatorRef, CompareOp, Comparer, DocumentValue, DocumentWriter, SharedDocument, Value};

use bounds::{FOLDED_BYTES_MAX, bounded};
pub(crate) use bounds::{check_result_bytes, finished_document};
pub(crate) use gathered::{Gathered, elements};
use operator::{Apply, NamedOperator, Operator};
pub use outer::OuterVariable;
pub use parse::check_user_variable;
pub(crate) use parse::{is_expression, render};
pub use path::FieldPath;
pub(crate) use path::check_part;

/// How deep expressions may nest.
pub const DEPTH_MAX: usize = 200;

/// What parsing needs to know about the operation the expression belongs to.
#[derive(Clone)]
pub struct ExpressionContext {
    /// `$$NOW`, in milliseconds since the Unix epoch, where there is one: one value for the whole operation.
    now_ms: Option<i64>,
    /// `$$CLUSTER_TIME`, where there is one.
    cluster_time: Option<Timestamp>,
    /// How values compare.
    pub comparer: Comparer,
    /// The order of strings that the comparer has; `None` is binary.
    pub collation: Option<Arc<Collation>>,
    /// The source of `$rand` and `$sample`.
    pub random: Arc<dyn Random>,
    /// The variables of the command's `let`, and of the `$lookup`s around.
    variables: Option<Arc<HashMap<String, Variable>>>,
    /// The operation that parses: folding constants ends with it.
    operation: Option<Arc<Operation>>,
    /// Bytes of the constants that parsing has computed.
    folded_bytes: Arc<AtomicUsize>,
    /// What expressions that were parsed ask of documents beside their fields.
    metadata: Arc<AtomicU8>,
    /// Whether one that was parsed reads the time, which is a constant once it is parsed.
    reads_time: Arc<AtomicBool>,
    /// Whether a script was parsed.
    has_scripts: Arc<AtomicBool>,
    /// Variables that scripts find in their scope: the `scope` of `mapReduce`.
    script_globals: Option<Arc<RawDocumentBuf>>,
    /// What the operator has said of the query: collections that stages open while it runs are read by that.
    settings: Option<Arc<QuerySettings>>,
    /// Whether a stored definition is parsed.
    is_stored: bool,
}

impl std::fmt::Debug for ExpressionContext {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ExpressionContext {{ now_ms: {:?}, .. }}", self.now_ms)
    }
}

impl ExpressionContext {
    /// A context without variables and with binary string order.
    pub fn new(now_ms: i64, random: Arc<dyn Random>) -> Self {
        Self {
            now_ms: Some(now_ms),
            cluster_time: None,
            comparer: Comparer::default(),
            collation: None,
            random,
            variables: None,
            operation: None,
            folded_bytes: Arc::default(),
            metadata: Arc::default(),
            reads_time: Arc::default(),
            has_scripts: Arc::default(),
            script_globals: None,
            settings: None,
            is_stored: false,
        }
    }

    /// A context of an operation: parsing ends when the operation does.
    pub fn of_operation(operation: &Arc<Operation>, random: Arc<dyn Random>) -> Self {
        Self::at_time_of(operation, random).for_operation(operation)
    }

    /// A context with the time of an operation, for what outlives it.
    pub fn at_time_of(operation: &Operation, random: Arc<dyn Random>) -> Self {
        Self {
            cluster_time: operation.cluster_time().map(ClusterTime::to_timestamp),
            ..Self::new(operation.started_ms(), random)
        }
    }

    /// The same of a command that has no time for its expressions: `count`, `distinct`, and what lists names.
    pub fn without_time(self) -> Self {
        Self {
            now_ms: None,
            cluster_time: None,
            ..self
        }
    }

    /// The variable of that name.
    fn variable(&self, name: &str) -> Option<&Variable> {
        self.variables.as_ref()?.get(name)
    }

    /// The same context, whose scripts find the fields of a document as variables.
    pub fn with_script_globals(mut self, globals: Option<Arc<RawDocumentBuf>>) -> Self {
        self.script_globals = globals;
        self
    }

    /// The same context for a query of a shape that these were set for.
    pub(crate) fn with_settings(self, settings: Option<Arc<QuerySettings>>) -> Self {
        Self { settings, ..self }
    }

    /// What the operator has said of the query.
    pub(crate) fn settings(&self) -> Option<&Arc<QuerySettings>> {
        self.settings.as_ref()
    }

    /// A function of a client's source.
    pub(crate) fn script(&self, source: &str) -> script::Function {
        self.has_scripts.store(true, Ordering::Relaxed);
        script::Function::new(source, self.script_globals.clone())
    }

    /// Whether the server runs scripts.
    pub(crate) fn runs_scripts(&self) -> bool {
        let operation = self.operation.as_ref();
        operation.is_some_and(|operation| operation.scripts().is_enabled())
    }

    /// The same context for a definition that is stored: it is taken with what is refused in a new one.
    pub fn for_stored(mut self) -> Self {
        self.is_stored = true;
        self
    }

    /// Whether a stored definition is parsed.
    pub(crate) fn is_stored(&self) -> bool {
        self.is_stored
    }

    /// Whether what is parsed outlives the operation that does it, as validators do.
    pub(crate) fn is_for_validator(&self) -> bool {
        self.operation.is_none()
    }

    /// The same context for an operation: parsing ends when the operation does.
    pub fn for_operation(&self, operation: &Arc<Operation>) -> Self {
        Self {
            operation: Some(operation.clone()),
            folded_bytes: Arc::default(),
            ..self.clone()
        }
    }

    /// The same context with another order of strings.
    pub fn with_collation(self, collation: Option<Arc<Collation>>) -> Self {
        let collator = collation.clone().map(|collation| collation as CollatorRef);
        Self {
            comparer: Comparer::new(collator),
            collation,
            ..self
        }
    }

    /// The same context, for expressions that are asked about by themselves: see [`ExpressionContext::metadata_needs`]
    /// and [`ExpressionContext::reads_time`].
    pub(crate) fn apart(&self) -> Self {
        Self {
            metadata: Arc::default(),
            reads_time: Arc::default(),
            ..self.clone()
        }
    }

    /// What the expressions that were parsed with it ask of documents beside their fields.
    pub(crate) fn metadata_needs(&self) -> MetadataNeeds {
        MetadataNeeds(self.metadata.load(Ordering::Relaxed))
    }

    /// Whether an expression that was parsed with it reads `$$NOW` or `$$CLUSTER_TIME`.
    pub(crate) fn reads_time(&self) -> bool {
        self.reads_time.load(Ordering::Relaxed)
    }

    /// Whether a script was parsed with it, or with one that it was made from: what was parsed may run for long.
    pub fn has_scripts(&self) -> bool {
        self.has_scripts.load(Ordering::Relaxed)
    }

    /// As if expressions that ask so much had been parsed with it.
    pub(crate) fn note_needs(&self, needs: MetadataNeeds) {
        self.metadata.fetch_or(needs.0, Ordering::Relaxed);
    }

    /// What an evaluation at parsing is bounded by.
    pub fn evaluation(&self) -> EvaluationContext<'_> {
        EvaluationContext::of(self.operation.as_deref())
    }

    /// Whether a constant of so many bytes may be kept in the parsed expression.
    fn may_keep(&self, bytes: usize) -> bool {
        let before = self.folded_bytes.fetch_add(bytes, Ordering::Relaxed);
        before.saturating_add(bytes) <= FOLDED_BYTES_MAX
    }

    /// The same context with these constants in place of the old variables of the same names.
    pub fn with_variables(&self, variables: impl IntoIterator<Item = (String, Value<'static>)>) -> Self {
        let constants = variables.into_iter();
        self.with(constants.map(|(name, value)| (name, Variable::Constant(value))))
    }

    /// The same context with these variables, whose values change, in place of the old ones of the same names.
    pub fn with_outer(&self, variables: impl IntoIterator<Item = (String, OuterVariable)>) -> Self {
        let outer = variables.into_iter();
        self.with(outer.map(|(name, variable)| (name, Variable::Outer(variable))))
    }

    /// The same context without variables of these names.
    pub(crate) fn without<'n>(&self, names: impl IntoIterator<Item = &'n str>) -> Self {
        let mut context = self.clone();
        if let Some(variables) = context.variables.as_mut().map(Arc::make_mut) {
            names.into_iter().for_each(|name| drop(variables.remove(name)));
        }
        context
    }

    /// The same context without the variables whose values change.
    pub(crate) fn without_outer(&self) -> Self {
        let mut context = self.clone();
        if let Some(variables) = context.variables.as_mut().map(Arc::make_mut) {
            variables.retain(|_, variable| matches!(variable, Variable::Constant(_)));
        }
        context
    }

    fn with(&self, variables: impl IntoIterator<Item = (String, Variable)>) -> Self {
        let mut context = Self {
            folded_bytes: Arc::default(),
            ..self.clone()
        };
        Arc::make_mut(context.variables.get_or_insert_default()).extend(variables);
        context
    }

    /// Variables with these very values, which are no expressions: those of an update's `c`.
    pub fn with_constants(&self, constants: &RawDocument) -> Result<Self, QueryError> {
        let mut context = Self {
            folded_bytes: Arc::default(),
            ..self.clone()
        };
        let evaluation = self.evaluation();
        for element in constants {
            let (name, raw) = element.map_err(|_| crate::value::scan::Malformed)?;
            context.define(name.as_str(), Value::from_raw(raw).into_owned(), &evaluation)?;
        }
        Ok(context)
    }

    /// A variable of a command. They live as long as it does; all of them together are bounded.
    fn define(
        &mut self,
        name: &str,
        value: Value<'static>,
        evaluation: &EvaluationContext<'_>,
    ) -> Result<(), QueryError> {
        parse::check_user_variable(name)?;
        evaluation.hold(value.owned_bytes())?;
        // Nobody else has this map but at the first of them: there may be many.
        let variables = Arc::make_mut(self.variables.get_or_insert_default());
        variables.insert(name.to_owned(), Variable::Constant(value));
        Ok(())
    }

    /// The variables of a command's `let` document: each is an expression without fields, evaluated now.
    pub fn with_let(&self, variables: &RawDocument) -> Result<Self, QueryError> {
        let mut context = Self {
            folded_bytes: Arc::default(),
            ..self.clone()
        };
        let evaluation = self.evaluation();
        for element in variables {
            let (name, raw) = element.map_err(|_| crate::value::scan::Malformed)?;
            parse::check_user_variable(name.as_str())?;
            let expression = Expression::parse(raw, &context)?;
            let mut dependencies = Dependencies::default();
            expression.add_dependencies(&mut dependencies);
            if dependencies.whole_document || !dependencies.paths.is_empty() {
                return Err(QueryError::new(
                    ErrorCode(4890500),
                    "an expression of 'let' tried to access a field, but those are evaluated before any document is seen",
                ));
            }
            let value = expression
                .evaluate_on(&SharedDocument::empty(), &evaluation)?
                .into_owned();
            context.define(name.as_str(), value, &evaluation)?;
        }
        Ok(context)
    }
}

/// The state of one evaluation: the document, the variables in scope, and the operation it belongs to.
pub struct Evaluation<'a> {
    /// `$$ROOT`.
    pub root: &'a RawDocument,
    /// The operation's interruption and memory.
    pub context: &'a EvaluationContext<'a>,
    pub(crate) slots: Vec<Value<'a>>,
}

impl<'a> Evaluation<'a> {
    /// An evaluation on `root`.
    pub fn new(root: &'a RawDocument, context: &'a EvaluationContext<'a>) -> Self {
        Self {
            root,
            context,
            slots: Vec::new(),
        }
    }
}

/// What a name stands for.
#[derive(Clone, Debug)]
pub(crate) enum Variable {
    Constant(Value<'static>),
    Outer(OuterVariable),
}

/// A parsed expression.
#[derive(Debug)]
pub struct Expression {
    node: Node,
}

/// One side of an equality: an expression that reads nothing of the document.
#[derive(Clone, Copy)]
pub(crate) struct OuterOperand<'e>(&'e Node);

impl OuterOperand<'_> {
    pub(crate) fn evaluate(self, context: &EvaluationContext<'_>) -> Result<Value<'static>, QueryError> {
        let nothing = SharedDocument::empty();
        let value = self.0.evaluate_released(&mut Evaluation::new(&nothing, context))?;
        Ok(value.into_owned())
    }
}

/// One node of the tree.
#[derive(Debug)]
pub(crate) enum Node {
    Constant(Value<'static>),
    Root,
    Field(FieldPath),
    Variable {
        slot: usize,
        path: Option<FieldPath>,
    },
    Outer {
        variable: OuterVariable,
        path: Option<FieldPath>,
    },
    Object(Vec<(Box<str>, Node)>),
    Array(Vec<Node>),
    And(Vec<Node>),
    Or(Vec<Node>),
    IfNull(Vec<Node>),
    Call {
        operator: &'static Operator,
        comparer: Comparer,
        arguments: Vec<Node>,
    },
    Named {
        operator: &'static NamedOperator,
        comparer: Comparer,
        arguments: Vec<Option<Node>>,
    },
    Special(Box<dyn Special>),
}

/// A node with evaluation rules of its own.
pub(crate) trait Special: Send + Sync + std::fmt::Debug {
    /// Computes the value.
    fn evaluate<'a>(&'a self, evaluation: &mut Evaluation<'a>) -> Result<Value<'a>, QueryError>;
    /// Visits the nodes inside.
    fn visit_children(&self, visit: &mut dyn FnMut(&Node));
    /// Whether the value depends on its children only.
    fn is_pure(&self) -> bool {
        true
    }
}

/// The fields of the root document that something reads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Dependencies {
    /// The whole document is needed.
    pub whole_document: bool,
    /// Dotted paths that are read.
    pub paths: BTreeSet<String>,
}

impl Dependencies {
    /// Adds what `other` needs.
    pub fn merge(&mut self, other: &Dependencies) {
        self.whole_document |= other.whole_document;
        self.paths.extend(other.paths.iter().cloned());
    }
}

impl Expression {
    /// Parses `raw` as an operand. Errors carry MongoDB's codes; an operator that exists but is not built is 238.
    pub fn parse(raw: RawBsonRef<'_>, context: &ExpressionContext) -> Result<Expression, QueryError> {
        Ok(Expression {
            node: parse::parse_operand(raw, context)?,
        })
    }

    /// As [`Expression::parse`], for [`Expression::evaluate_at`]: paths are read from a document that is not the root.
    pub fn parse_at(raw: RawBsonRef<'_>, context: &ExpressionContext) -> Result<Expression, QueryError> {
        Ok(Expression {
            node: parse::parse_bound(raw, context, "CURRENT")?,
        })
    }

    /// Computes the value with `current` as `$$CURRENT` and `root` as `$$ROOT`.
    pub fn evaluate_at<'a>(
        &'a self,
        current: &'a RawDocument,
        root: &'a RawDocument,
        context: &'a EvaluationContext<'a>,
    ) -> Result<Value<'a>, QueryError> {
        let mut evaluation = Evaluation::new(root, context);
        evaluation.slots.push(Value::Document(DocumentValue::Borrowed(current)));
        self.node.evaluate(&mut evaluation)
    }

    /// An expression that is always `value`.
    pub fn constant(value: Value<'static>) -> Expression {
        Expression {
            node: Node::Constant(value),
        }
    }

    /// An expression that reads a field of the root document, given without `$`.
    pub fn field(path: &str) -> Result<Expression, QueryError> {
        Ok(Expression {
            node: Node::Field(FieldPath::parse(path)?),
        })
    }

    /// Computes the value on `evaluation`'s document.
    #[inline]
    pub fn evaluate<'a>(&'a self, evaluation: &mut Evaluation<'a>) -> Result<Value<'a>, QueryError> {
        self.node.evaluate_released(evaluation)
    }

    /// Computes the value on `root`.
    #[inline]
    pub fn evaluate_on<'a>(
        &'a self,
        root: &'a RawDocument,
        context: &'a EvaluationContext<'a>,
    ) -> Result<Value<'a>, QueryError> {
        match &self.node {
            // The common shapes, without building an evaluation.
            Node::Constant(value) => Ok(reborrow(value)),
            Node::Field(path) => path.look_up(root, context),
            node => node.evaluate_released(&mut Evaluation::new(root, context)),
        }
    }

    /// The value when it is the same for every document.
    pub fn as_constant(&self) -> Option<&Value<'static>> {
        match &self.node {
            Node::Constant(value) => Some(value),
            _ => None,
        }
    }

    /// The path when the expression only reads a field of the root document.
    pub fn as_field(&self) -> Option<&FieldPath> {
        match &self.node {
            Node::Field(path) => Some(path),
            _ => None,
        }
    }

    /// The equalities that hold wherever the expression is true, of a field of the document and what reads variables
    /// of a `$lookup` around and nothing of the document.
    pub(crate) fn outer_equalities(&self) -> Vec<(&FieldPath, OuterOperand<'_>)> {
        let mut found = Vec::new();
        self.node.add_outer_equalities(&mut found);
        found
    }

    /// The comparisons that hold wherever the expression is true, of a field of the document with what can be told
    /// without it, at next to no cost.
    pub(crate) fn field_comparisons(&self) -> Vec<FieldComparison<'_>> {
        let mut found = Vec::new();
        self.node.add_field_comparisons(&mut found);
        found
    }

    /// Whether it reads variables of a `$lookup` around.
    pub(crate) fn reads_outer(&self) -> bool {
        self.node.reads_outer()
    }

    /// Adds the fields that the expression reads to `dependencies`.
    pub fn add_dependencies(&self, dependencies: &mut Dependencies) {
        self.node.add_dependencies(dependencies);
    }

    /// Whether it gives another value each time.
    pub fn is_random(&self) -> bool {
        self.node.is_random()
    }
}

/// That a field compares so with what an operand tells, in the order of all values.
pub(crate) struct FieldComparison<'e> {
    pub(crate) path: &'e FieldPath,
    pub(crate) op: CompareOp,
    pub(crate) operand: OuterOperand<'e>,
}

/// The comparison that an operator makes, and the one that is the same with its operands in the other order.
fn compare_op(name: &str) -> Option<(CompareOp, CompareOp)> {
    Some(match name {
        "$eq" => (CompareOp::Eq, CompareOp::Eq),
        "$lt" => (CompareOp::Lt, CompareOp::Gt),
        "$lte" => (CompareOp::Lte, CompareOp::Gte),
        "$gt" => (CompareOp::Gt, CompareOp::Lt),
        "$gte" => (CompareOp::Gte, CompareOp::Lte),
        _ => return None,
    })
}

/// A constant, borrowed from the expression.
#[inline]
fn reborrow<'a>(value: &'a Value<'static>) -> Value<'a> {
    match value {
        Value::String(text) => Value::borrowed_str(text),
        Value::Document(document) => Value::Document(DocumentValue::Borrowed(document)),
        other => other.clone(),
    }
}

impl Node {
    /// Evaluates a whole expression: afterwards nothing of it is held, whether it failed or not.
    fn evaluate_released<'a>(&'a self, evaluation: &mut Evaluation<'a>) -> Result<Value<'a>, QueryError> {
        let mark = evaluation.context.held();
        let result = self.evaluate(evaluation);
        evaluation.context.release_to(mark);
        result
    }

    pub(crate) fn evaluate<'a>(&'a self, evaluation: &mut Evaluation<'a>) -> Result<Value<'a>, QueryError> {
        match self {
            Node::Constant(value) => Ok(reborrow(value)),
            Node::Root => Ok(Value::Document(DocumentValue::Borrowed(evaluation.root))),
            Node::Field(path) => path.look_up(evaluation.root, evaluation.context),
            Node::Variable { slot, path } => {
                let value = evaluation.slots.get(*slot).cloned().unwrap_or(Value::Missing);
                match path {
                    None => Ok(value),
                    Some(path) => path.look_up_in(&value, evaluation.context),
                }
            }
            Node::Outer { variable, path } => match path {
                None => variable.get(),
                Some(path) => path.look_up_in(&variable.get()?, evaluation.context),
            },
            Node::Object(fields) => evaluate_object(fields, evaluation),
            Node::Array(items) => {
                let mut gathered = Gathered::new(evaluation.context);
                for item in items {
                    gathered.push(item.evaluate(evaluation)?)?;
                }
                gathered.finish()
            }
            Node::And(operands) => {
                for operand in operands {
                    evaluation.context.step()?;
                    if !operand.evaluate(evaluation)?.is_true() {
                        return Ok(Value::Boolean(false));
                    }
                }
                Ok(Value::Boolean(true))
            }
            Node::Or(operands) => {
                for operand in operands {
                    evaluation.context.step()?;
                    if operand.evaluate(evaluation)?.is_true() {
                        return Ok(Value::Boolean(true));
                    }
                }
                Ok(Value::Boolean(false))
            }
            Node::IfNull(operands) => {
                let mut last = Value::Missing;
                for operand in operands {
                    evaluation.context.step()?;
                    last = operand.evaluate(evaluation)?;
                    if !last.is_nullish() {
                        break;
                    }
                }
                Ok(last)
            }
            Node::Call {
                operator,
                comparer,
                arguments,
            } => bounded(operator.call(comparer, arguments, evaluation)?),
            Node::Named {
                operator,
                comparer,
                arguments,
            } => bounded(operator.call(comparer, arguments, evaluation)?),
            Node::Special(special) => bounded(special.evaluate(evaluation)?),
        }
    }

    fn visit_children(&self, visit: &mut dyn FnMut(&Node)) {
        match self {
            Node::Constant(_) | Node::Root | Node::Field(_) | Node::Variable { .. } | Node::Outer { .. } => {}
            Node::Object(fields) => fields.iter().for_each(|(_, node)| visit(node)),
            Node::Array(nodes) | Node::And(nodes) | Node::Or(nodes) | Node::IfNull(nodes) => {
                nodes.iter().for_each(visit)
            }
            Node::Call { arguments, .. } => arguments.iter().for_each(visit),
            Node::Named { arguments, .. } => arguments.iter().flatten().for_each(visit),
            Node::Special(special) => special.visit_children(visit),
        }
    }

    /// Recursion is bounded by the depth of what was parsed.
    fn add_outer_equalities<'e>(&'e self, found: &mut Vec<(&'e FieldPath, OuterOperand<'e>)>) {
        match self {
            Node::And(operands) => operands.iter().for_each(|operand| operand.add_outer_equalities(found)),
            Node::Call {
                operator, arguments, ..
            } if operator.name == "$eq" => match arguments.as_slice() {
                [Node::Field(path), other] | [other, Node::Field(path)] if other.is_outer() => {
                    found.push((path, OuterOperand(other)));
                }
                _ => {}
            },
            _ => {}
        }
    }

    /// Recursion is bounded by the depth of what was parsed.
    fn add_field_comparisons<'e>(&'e self, found: &mut Vec<FieldComparison<'e>>) {
        let (operator, arguments) = match self {
            Node::And(operands) => {
                operands.iter().for_each(|operand| operand.add_field_comparisons(found));
                return;
            }
            Node::Call {
                operator, arguments, ..
            } => (operator, arguments.as_slice()),
            _ => return,
        };
        let Some((as_written, turned)) = compare_op(operator.name) else {
            return;
        };
        let (path, op, operand) = match arguments {
            [Node::Field(path), other] if other.is_told_at_once() => (path, as_written, OuterOperand(other)),
            [other, Node::Field(path)] if other.is_told_at_once() => (path, turned, OuterOperand(other)),
            _ => return,
        };
        found.push(FieldComparison { path, op, operand });
    }

    /// Whether it is made of constants and variables of a `$lookup` around by what takes no longer than to read them.
    fn is_told_at_once(&self) -> bool {
        match self {
            Node::Constant(_) | Node::Outer { .. } => true,
            Node::Call {
                operator, arguments, ..
            } => {
                let is_simple = matches!(operator.apply, Apply::Unary(_) | Apply::Binary(_) | Apply::Many(_));
                is_simple && arguments.iter().all(Node::is_told_at_once)
            }
            _ => false,
        }
    }

    /// Whether it reads variables of a `$lookup` around, and nothing of the document.
    fn is_outer(&self) -> bool {
        let mut read = Dependencies::default();
        self.add_dependencies(&mut read);
        !read.whole_document && read.paths.is_empty() && !self.is_random() && self.reads_outer()
    }

    fn reads_outer(&self) -> bool {
        let mut reads = matches!(self, Node::Outer { .. });
        self.visit_children(&mut |child| reads |= child.reads_outer());
        reads
    }

    fn is_random(&self) -> bool {
        let mut random = matches!(self, Node::Special(special) if !special.is_pure());
        self.visit_children(&mut |child| random |= child.is_random());
        random
    }

    fn add_dependencies(&self, dependencies: &mut Dependencies) {
        match self {
            Node::Root => dependencies.whole_document = true,
            Node::Field(path) => {
                dependencies.paths.insert(path.to_string());
            }
            _ => self.visit_children(&mut |child| child.add_dependencies(dependencies)),
        }
    }
}

/// Evaluates all nodes. What the values hold stays held until the caller releases it.
fn evaluate_all<'a>(nodes: &'a [Node], evaluation: &mut Evaluation<'a>) -> Result<Vec<Value<'a>>, QueryError> {
    let mut values = Vec::with_capacity(nodes.len());
    for node in nodes {
        let value = node.evaluate(evaluation)?;
        evaluation.context.hold(value.owned_bytes())?;
        values.push(value);
    }
    Ok(values)
}

fn evaluate_object<'a>(
    fields: &'a [(Box<str>, Node)],
    evaluation: &mut Evaluation<'a>,
) -> Result<Value<'a>, QueryError> {
    let mut bytes = Vec::with_capacity(64);
    let mark = evaluation.context.held();
    // Opened and closed by hand, because the length is looked at after each field.
    bytes.extend_from_slice(&[0; 4]);
    for (name, node) in fields {
        evaluation.context.step()?;
        let value = node.evaluate(evaluation)?;
        value.append_to(&mut bytes, name);
        check_result_bytes(bytes.len())?;
        evaluation.context.release_to(mark);
        evaluation.context.hold(bytes.len())?;
    }
    evaluation.context.release_to(mark);
    DocumentWriter::close(&mut bytes);
    finished_document(bytes)
}
