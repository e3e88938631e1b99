//! Accumulators: what `$group` and its relatives compute over the documents of a group.
//!
//! An [`AccumulatorSpec`] is the parsed `{$sum: <expression>}`; an [`Accumulator`] is one group's partial state. States
//! of one spec merge, so that parts of a group may be computed apart (by shards, say) and joined. What a state holds is
//! its own: it borrows from no document.

mod digest;
mod encode;
mod ordered;
mod percentile;
mod script;
mod state;
#[cfg(test)]
mod tests;

use bson::RawBsonRef;
use wire::ErrorCode;

use crate::error::QueryError;
use crate::evaluation::EvaluationContext;
use crate::expression::{Dependencies, Evaluation, Expression, ExpressionContext, out_of_long};
use crate::value::number::{Number, exact_i64_of_f64};
use crate::value::scan::Malformed;
use crate::value::{Comparer, SharedDocument, SortPattern, Value};

pub(crate) use digest::rank;
pub(crate) use encode::{StateReader, StateWriter, damaged};
pub use percentile::Percentiles;
pub(crate) use percentile::{finite_or_infinite, parse_percentiles};
use script::ScriptSpec;
pub use script::ScriptState;
pub use state::{Accumulator, Deviation, Shape, Ties};

/// What is accumulated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccumulatorKind {
    /// `$sum`; `$count` is the sum of ones.
    Sum,
    /// `$avg`
    Avg,
    /// `$min`
    Min,
    /// `$max`
    Max,
    /// `$first`
    First,
    /// `$last`
    Last,
    /// `$push`
    Push,
    /// `$addToSet`
    AddToSet,
    /// `$mergeObjects`
    MergeObjects,
    /// `$stdDevPop`
    StdDevPop,
    /// `$stdDevSamp`
    StdDevSamp,
    /// `$firstN`
    FirstN,
    /// `$lastN`
    LastN,
    /// `$minN`
    MinN,
    /// `$maxN`
    MaxN,
    /// `$top`
    Top,
    /// `$topN`
    TopN,
    /// `$bottom`
    Bottom,
    /// `$bottomN`
    BottomN,
    /// `$percentile`, and `$median`, which is one of them
    Percentile,
    /// `$accumulator`, and the reduce function of `mapReduce`
    Script,
}

use AccumulatorKind as Kind;

const KINDS: &[(&str, Kind)] = &[
    ("$sum", Kind::Sum),
    ("$avg", Kind::Avg),
    ("$min", Kind::Min),
    ("$max", Kind::Max),
    ("$first", Kind::First),
    ("$last", Kind::Last),
    ("$push", Kind::Push),
    ("$addToSet", Kind::AddToSet),
    ("$mergeObjects", Kind::MergeObjects),
    ("$stdDevPop", Kind::StdDevPop),
    ("$stdDevSamp", Kind::StdDevSamp),
    ("$firstN", Kind::FirstN),
    ("$lastN", Kind::LastN),
    ("$minN", Kind::MinN),
    ("$maxN", Kind::MaxN),
    ("$top", Kind::Top),
    ("$topN", Kind::TopN),
    ("$bottom", Kind::Bottom),
    ("$bottomN", Kind::BottomN),
    ("$percentile", Kind::Percentile),
    ("$median", Kind::Percentile),
];

/// Accumulators that MongoDB has and Tenon does not have yet.
const NOT_BUILT: &[&str] = &["$concatArrays", "$setUnion"];

/// A parsed accumulator.
#[derive(Debug)]
pub struct AccumulatorSpec {
    kind: Kind,
    /// What is accumulated per document.
    argument: Expression,
    /// For the `N` kinds; 1 for the others.
    n: usize,
    /// `n`, where the group's key decides it.
    n_of_key: Option<Expression>,
    /// For `$top` and `$bottom` and their `N` forms.
    sort: Option<SortPattern>,
    /// For `$percentile` and `$median`.
    percentiles: Option<Percentiles>,
    /// For [`AccumulatorKind::Script`].
    script: Option<ScriptSpec>,
    /// For `$min` and `$max`.
    ties: Ties,
    comparer: Comparer,
}

/// What an array is as the argument of an accumulator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArrayArgument {
    /// Too many arguments: `$group` refuses it.
    Refused,
    /// An expression: window functions take it.
    Expression,
}

fn failure<T>(code: i32, message: impl Into<String>) -> Result<T, QueryError> {
    Err(QueryError::new(ErrorCode(code), message))
}

impl AccumulatorSpec {
    /// Parses `{<name>: <raw>}` of `$group`. An unknown name is 15952.
    pub fn parse(name: &str, raw: RawBsonRef<'_>, context: &ExpressionContext) -> Result<Self, QueryError> {
        Self::parse_argument(name, raw, ArrayArgument::Refused, context)
    }

    /// As [`AccumulatorSpec::parse`], where an array may be an expression.
    pub fn parse_argument(
        name: &str,
        raw: RawBsonRef<'_>,
        arrays: ArrayArgument,
        context: &ExpressionContext,
    ) -> Result<Self, QueryError> {
        let simple = |kind, argument| {
            Ok(Self {
                kind,
                argument,
                n: 1,
                n_of_key: None,
                sort: None,
                percentiles: None,
                script: None,
                ties: Ties::default(),
                comparer: context.comparer.clone(),
            })
        };
        let of_script = match name {
            "$accumulator" => Some(ScriptSpec::parse(raw, context)?),
            "$_internalJsReduce" => Some(ScriptSpec::parse_reduce(raw, context)?),
            _ => None,
        };
        if let Some((script, argument)) = of_script {
            return Ok(Self {
                script: Some(script),
                ..simple(Kind::Script, argument)?
            });
        }
        if name == "$count" {
            return match raw {
                RawBsonRef::Document(empty) if empty.is_empty() => {
                    simple(Kind::Sum, Expression::constant(Value::Int32(1)))
                }
                _ => failure(ErrorCode::TypeMismatch.0, "$count takes no arguments, i.e. $count:{}"),
            };
        }
        let Some((_, kind)) = KINDS.iter().find(|(known, _)| *known == name) else {
            if NOT_BUILT.contains(&name) {
                return failure(
                    ErrorCode::NotImplemented.0,
                    format!("the accumulator {name} is not implemented"),
                );
            }
            return failure(15952, format!("unknown group operator '{name}'"));
        };
        if matches!(raw, RawBsonRef::Array(_)) && arrays == ArrayArgument::Refused {
            return failure(40237, format!("The {name} accumulator is a unary operator"));
        }
        match kind {
            Kind::FirstN
            | Kind::LastN
            | Kind::MinN
            | Kind::MaxN
            | Kind::Top
            | Kind::TopN
            | Kind::Bottom
            | Kind::BottomN => Self::parse_structured(name, *kind, raw, context),
            Kind::Percentile => {
                let (input, percentiles) = parse_percentiles(name, raw, context)?;
                Ok(Self {
                    percentiles: Some(percentiles),
                    ..simple(Kind::Percentile, Expression::parse(input, context)?)?
                })
            }
            _ => simple(*kind, Expression::parse(raw, context)?),
        }
    }

    /// The kinds whose argument is an object: `{n, input}` or `{n, sortBy, output}`.
    fn parse_structured(
        name: &str,
        kind: Kind,
        raw: RawBsonRef<'_>,
        context: &ExpressionContext,
    ) -> Result<Self, QueryError> {
        let RawBsonRef::Document(document) = raw else {
            let found = Value::from_raw(raw).render();
            let code = match kind {
                Kind::FirstN | Kind::LastN => 5787801,
                Kind::MinN | Kind::MaxN => 5787900,
                _ => 5788001,
            };
            return failure(code, format!("specification must be an object; found {name}: {found}"));
        };
        let sorted = matches!(kind, Kind::Top | Kind::TopN | Kind::Bottom | Kind::BottomN);
        let single = matches!(kind, Kind::Top | Kind::Bottom);
        let (mut n, mut argument, mut sort) = (None, None, None);
        for element in document {
            let (field, raw) = element.map_err(|_| Malformed)?;
            match field.as_str() {
                "n" if single => return failure(5788002, format!("Unknown argument to {name} 'n'")),
                "n" => n = Some(Expression::parse(raw, context)?),
                "input" if !sorted => argument = Some(Expression::parse(raw, context)?),
                "output" if sorted => argument = Some(Expression::parse(raw, context)?),
                "sortBy" if sorted => match raw {
                    RawBsonRef::Document(pattern) => sort = Some(SortPattern::parse(pattern, &context.comparer)?),
                    other => {
                        let found = Value::from_raw(other).type_name();
                        return failure(
                            10065,
                            format!("invalid parameter: expected an object (sortBy), found {found}"),
                        );
                    }
                },
                other if sorted => return failure(5788002, format!("Unknown argument to {name} '{other}'")),
                other => return failure(5787901, format!("Unknown argument for 'n' operator: {other}")),
            }
        }
        if sorted && sort.is_none() {
            return failure(5788005, "Missing value for 'sortBy'");
        }
        if let Some(sort) = &sort {
            context.note_needs(sort.metadata_needs());
        }
        let Some(argument) = argument else {
            return if sorted {
                failure(5788004, "Missing value for 'output'")
            } else {
                failure(5787907, "Missing value for 'input'")
            };
        };
        let (n, n_of_key) = match (single, n) {
            (true, _) => (1, None),
            (false, None) if sorted => return failure(5788003, "Missing value for 'n'"),
            (false, None) => return failure(5787906, "Missing value for 'n'"),
            (false, Some(n)) => match n.as_constant() {
                Some(constant) => (parse_n(constant)?, None),
                None => (1, Some(n)),
            },
        };
        Ok(Self {
            kind,
            argument,
            n,
            n_of_key,
            sort,
            percentiles: None,
            script: None,
            ties: Ties::default(),
            comparer: context.comparer.clone(),
        })
    }

    /// The same, that keeps these of equal values; the first of them unless it is told.
    pub fn with_ties(self, ties: Ties) -> Self {
        Self { ties, ..self }
    }

    /// The kind.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// What is accumulated of each document.
    pub fn argument(&self) -> &Expression {
        &self.argument
    }

    /// How many values are kept, of the `N` kinds; 1 of the others.
    pub fn n(&self) -> usize {
        self.n
    }

    /// Whether `n` is known before a group's key is.
    pub(crate) fn has_constant_n(&self) -> bool {
        self.n_of_key.is_none()
    }

    /// What `$top` and its relatives order by.
    pub fn sort(&self) -> Option<&SortPattern> {
        self.sort.as_ref()
    }

    /// What `$percentile` and `$median` answer.
    pub fn percentiles(&self) -> Option<&Percentiles> {
        self.percentiles.as_ref()
    }

    /// How values compare.
    pub fn comparer(&self) -> &Comparer {
        &self.comparer
    }

    /// A state that has seen nothing.
    pub fn start(&self) -> Accumulator {
        Accumulator::new(self)
    }

    /// Whether this counts documents: a sum of the constant 1.
    pub fn is_count(&self) -> bool {
        self.kind == Kind::Sum && matches!(self.argument.as_constant(), Some(Value::Int32(1)))
    }

    /// Whether only the first document of a group is looked at.
    pub(crate) fn is_first(&self) -> bool {
        self.kind == Kind::First
    }

    /// Takes a document into a state of this spec; returns the bytes by which the state has grown, or shrunk, roughly.
    #[inline]
    pub fn accumulate<'a>(
        &'a self,
        state: &mut Accumulator,
        evaluation: &mut Evaluation<'a>,
    ) -> Result<isize, QueryError> {
        let value = self.argument.evaluate(evaluation)?;
        if let (Some(script), Accumulator::Script(state)) = (&self.script, &mut *state) {
            return script.add(state, value, evaluation.context);
        }
        let grown = match &self.sort {
            None => state.add(value, &self.comparer),
            Some(sort) => state.add_sorted(value, sort, evaluation.root, evaluation.context),
        };
        grown.map(usize::cast_signed)
    }

    /// Begins the group of the key `id` with a state of this spec, which has seen nothing; returns by how many bytes it
    /// has grown, roughly.
    pub fn begin(
        &self,
        state: &mut Accumulator,
        id: &Value<'_>,
        context: &EvaluationContext<'_>,
    ) -> Result<usize, QueryError> {
        if let Some(n) = &self.n_of_key {
            let key = match id {
                Value::Document(key) => n.evaluate_on(key, context)?.into_owned(),
                _ => n.evaluate_on(&SharedDocument::empty(), context)?.into_owned(),
            };
            *state = Accumulator::of_n(self, parse_n(&key)?);
        }
        match (&self.script, state) {
            (Some(script), Accumulator::Script(state)) => script.begin(state, id, context),
            _ => Ok(0),
        }
    }

    /// Whether every group begins with the same, whatever its key is.
    pub(crate) fn begins_alike(&self) -> bool {
        !self.n_of_key.as_ref().is_some_and(reads_document) && self.script.as_ref().is_none_or(ScriptSpec::begins_alike)
    }

    /// The group's result of a state of this spec; missing when there was no value.
    pub fn finish(&self, state: Accumulator, context: &EvaluationContext<'_>) -> Result<Value<'static>, QueryError> {
        match (&self.script, state) {
            (Some(script), Accumulator::Script(state)) => script.finish(state, context),
            (_, state) => state.finish(),
        }
    }

    /// Adds the fields that are read.
    pub fn add_dependencies(&self, dependencies: &mut Dependencies) {
        self.argument.add_dependencies(dependencies);
        if let Some(sort) = &self.sort {
            dependencies
                .paths
                .extend(sort.fields().map(|(path, _)| path.to_owned()));
        }
    }
}

/// Whether an expression reads fields: of the group's key, where that is what it is evaluated on.
fn reads_document(expression: &Expression) -> bool {
    let mut read = Dependencies::default();
    expression.add_dependencies(&mut read);
    read.whole_document || !read.paths.is_empty()
}

/// The `n` of `$firstN` and its relatives.
pub(crate) fn parse_n(value: &Value<'_>) -> Result<usize, QueryError> {
    let Some(number) = Number::of(value) else {
        return failure(
            5787902,
            format!("Value for 'n' must be of integral type, but found {}", value.render()),
        );
    };
    let Some(n) = number.to_exact_i64() else {
        if let Number::Double(double) = number
            && exact_i64_of_f64(double.trunc()).is_none()
        {
            return out_of_long(double);
        }
        return failure(
            5787903,
            format!("Value for 'n' must be of integral type, but found {}", value.render()),
        );
    };
    match usize::try_from(n) {
        Ok(n) if n > 0 => Ok(n),
        _ => failure(5787908, format!("'n' must be greater than 0, found {n}")),
    }
}

/// A simple accumulator over values at hand: its expression form.
pub(crate) fn accumulate_values<'a>(
    kind: Kind,
    values: impl Iterator<Item = Result<Value<'a>, QueryError>>,
    comparer: &Comparer,
) -> Result<Value<'static>, QueryError> {
    let spec = AccumulatorSpec {
        kind,
        argument: Expression::constant(Value::Null),
        n: 1,
        n_of_key: None,
        sort: None,
        percentiles: None,
        script: None,
        ties: Ties::default(),
        comparer: comparer.clone(),
    };
    let mut state = spec.start();
    for value in values {
        state.add(value?, comparer)?;
    }
    state.finish()
}
