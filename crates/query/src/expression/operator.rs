//! The operators as data: name, number of arguments, function.
//!
//! Two tables: operators with positional arguments (`{$add: [a, b]}`) and with named ones (`{$trim: {input: a}}`).
//! Operators that bind variables or evaluate only part of their arguments are nodes of their own (`scope`, `boolean`).

use std::fmt;

use bson::RawDocument;

use super::failure::failure;
use super::{Evaluation, Node, arithmetic, array, boolean, convert, date, evaluate_all, object, set, string};
use crate::error::QueryError;
use crate::evaluation::EvaluationContext;
use crate::value::{Comparer, Value};

/// The result of a function.
pub(crate) type Computed<'a> = Result<Value<'a>, QueryError>;

/// Evaluates arguments, and counts the steps of running through them.
fn operands<'a>(arguments: &'a [Node], evaluation: &mut Evaluation<'a>) -> Result<Vec<Value<'a>>, QueryError> {
    let operands = evaluate_all(arguments, evaluation)?;
    evaluation
        .context
        .steps(1 + operands.iter().map(Value::steps).sum::<usize>())?;
    Ok(operands)
}

/// How many positional arguments an operator takes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Arity {
    Exactly(usize),
    /// One, or the error of this code.
    One {
        otherwise: i32,
    },
    /// From the first to the second, both included.
    Between(usize, usize),
    Any,
}

/// What an operator does.
#[derive(Clone, Copy)]
pub(crate) enum Apply {
    Unary(for<'a> fn(&'static str, Value<'a>) -> Computed<'a>),
    Binary(for<'a> fn(&'static str, Value<'a>, Value<'a>) -> Computed<'a>),
    Many(for<'a> fn(&'static str, Vec<Value<'a>>) -> Computed<'a>),
    /// With the comparison rules of the operation.
    Compared(for<'a> fn(&'static str, &Comparer, Vec<Value<'a>>) -> Computed<'a>),
    /// For what does more than to run once through the bytes of its operands: it counts its steps, and bounds what it
    /// makes, by the context.
    Walk(for<'a> fn(&EvaluationContext<'_>, &Comparer, Vec<Value<'a>>) -> Computed<'a>),
}

/// An operator with positional arguments.
pub(crate) struct Operator {
    pub(crate) name: &'static str,
    pub(crate) arity: Arity,
    pub(crate) apply: Apply,
}

impl fmt::Debug for Operator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl Operator {
    pub(super) fn call<'a>(
        &'static self,
        comparer: &Comparer,
        arguments: &'a [Node],
        evaluation: &mut Evaluation<'a>,
    ) -> Computed<'a> {
        let context = evaluation.context;
        let mark = context.held();
        let computed = match (self.apply, arguments) {
            (Apply::Unary(function), [a]) => {
                let a = a.evaluate(evaluation)?;
                context.steps(1 + a.steps())?;
                function(self.name, a)
            }
            (Apply::Binary(function), [a, b]) => {
                let a = a.evaluate(evaluation)?;
                context.hold(a.owned_bytes())?;
                let b = b.evaluate(evaluation)?;
                context.steps(1 + a.steps() + b.steps())?;
                function(self.name, a, b)
            }
            (Apply::Many(function), _) => function(self.name, operands(arguments, evaluation)?),
            (Apply::Compared(function), _) => function(self.name, comparer, operands(arguments, evaluation)?),
            (Apply::Walk(function), _) => function(context, comparer, operands(arguments, evaluation)?),
            // The arity was checked at parsing.
            (Apply::Unary(_) | Apply::Binary(_), _) => {
                failure(16020, format!("wrong argument count for {}", self.name))
            }
        }?;
        context.release_to(mark);
        Ok(computed)
    }

    /// Checks the number of arguments.
    pub(super) fn check_arity(&self, given: usize) -> Result<(), QueryError> {
        match self.arity {
            Arity::Exactly(n) if n != given => failure(
                16020,
                format!(
                    "Expression {} takes exactly {n} arguments. {given} were passed in.",
                    self.name
                ),
            ),
            Arity::One { otherwise } if given != 1 => failure(
                otherwise,
                format!("{} requires a single argument, got {given}", self.name),
            ),
            Arity::Between(least, most) if given < least || given > most => failure(
                28667,
                format!(
                    "Expression {} takes at least {least} arguments, and at most {most}, but {given} were passed in.",
                    self.name
                ),
            ),
            _ => Ok(()),
        }
    }
}

/// Refuses arguments of the operator of this name.
pub(crate) type CheckArguments = fn(&'static str, &RawDocument) -> Result<(), QueryError>;

/// What an operator with named arguments does. It gets them in the order of `fields`; `None` where not given.
#[derive(Clone, Copy)]
pub(crate) enum ApplyNamed {
    Values(for<'a> fn(&'static str, &EvaluationContext<'_>, Vec<Option<Value<'a>>>) -> Computed<'a>),
    /// With the comparison rules of the operation.
    Compared(for<'a> fn(&EvaluationContext<'_>, &Comparer, Vec<Option<Value<'a>>>) -> Computed<'a>),
    /// It gets so many, and may answer one of the others, which are evaluated only then.
    Lazy(
        usize,
        for<'a> fn(Vec<Option<Value<'a>>>) -> Result<Answer<'a>, QueryError>,
    ),
}

/// What an operator answers that has arguments to answer instead.
pub(crate) enum Answer<'a> {
    Value(Value<'a>),
    /// The argument at this place among `fields`; where it is not given, this.
    Instead(usize, Computed<'a>),
}

/// An operator with named arguments.
pub(crate) struct NamedOperator {
    pub(crate) name: &'static str,
    /// Name, and the code of the error when it is not given, of one that must be. They are looked for in this order.
    pub(crate) fields: &'static [(&'static str, Option<i32>)],
    pub(crate) apply: ApplyNamed,
    /// Codes of: argument is not an object, unknown argument.
    pub(crate) codes: [i32; 2],
    /// What is refused of the arguments as they are written, before any document is seen.
    pub(crate) check: Option<CheckArguments>,
}

impl fmt::Debug for NamedOperator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl NamedOperator {
    pub(super) fn call<'a>(
        &'static self,
        comparer: &Comparer,
        arguments: &'a [Option<Node>],
        evaluation: &mut Evaluation<'a>,
    ) -> Computed<'a> {
        let context = evaluation.context;
        let mark = context.held();
        let eager = match self.apply {
            ApplyNamed::Lazy(eager, _) => eager.min(arguments.len()),
            _ => arguments.len(),
        };
        let mut values = Vec::with_capacity(eager);
        let mut steps = 1;
        for argument in &arguments[..eager] {
            let value = match argument {
                Some(node) => Some(node.evaluate(evaluation)?),
                None => None,
            };
            if let Some(value) = &value {
                context.hold(value.owned_bytes())?;
                steps += value.steps();
            }
            values.push(value);
        }
        context.steps(steps)?;
        let computed = match self.apply {
            ApplyNamed::Values(function) => function(self.name, context, values)?,
            ApplyNamed::Compared(function) => function(context, comparer, values)?,
            ApplyNamed::Lazy(_, function) => match function(values)? {
                Answer::Value(value) => value,
                Answer::Instead(place, otherwise) => match arguments.get(place) {
                    Some(Some(instead)) => instead.evaluate(evaluation)?,
                    _ => otherwise?,
                },
            },
        };
        context.release_to(mark);
        Ok(computed)
    }
}

/// All operators with positional arguments.
pub(crate) fn all_positional() -> impl Iterator<Item = &'static Operator> {
    let tables = [
        arithmetic::OPERATORS,
        array::OPERATORS,
        boolean::OPERATORS,
        convert::OPERATORS,
        object::OPERATORS,
        set::OPERATORS,
        string::OPERATORS,
    ];
    tables.into_iter().flatten()
}

/// All operators with named arguments.
pub(crate) fn all_named() -> impl Iterator<Item = &'static NamedOperator> {
    let tables = [array::NAMED, convert::NAMED, date::NAMED, object::NAMED, string::NAMED];
    tables.into_iter().flatten()
}

/// The positional operator called `name`.
pub(crate) fn positional(name: &str) -> Option<&'static Operator> {
    all_positional().find(|operator| operator.name == name)
}

/// The operator with named arguments called `name`.
pub(crate) fn named(name: &str) -> Option<&'static NamedOperator> {
    all_named().find(|operator| operator.name == name)
}

/// Operators that MongoDB has and Tenon does not have yet.
pub(crate) const NOT_BUILT: &[&str] = &[
    "$sigmoid",
    "$similarityCosine",
    "$similarityDotProduct",
    "$similarityEuclidean",
    "$encStrContains",
    "$encStrEndsWith",
    "$encStrNormalizedEq",
    "$encStrStartsWith",
    "$createObjectId",
    "$currentDate",
    "$deserializeEJSON",
    "$serializeEJSON",
    "$subtype",
    "$hash",
    "$hexHash",
];
