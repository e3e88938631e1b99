//! Comparison, logic and choice: `$eq` to `$cmp`, `$not`, `$cond`, `$switch`.
//!
//! Comparisons use the full order of BSON values, across types; a missing field compares below null.

use std::cmp::Ordering;

use bson::RawBsonRef;

use super::failure::failure;
use super::operator::{Apply, Arity, Computed, Operator};
use super::parse::Parser;
use super::{Evaluation, Node, Special};
use crate::error::QueryError;
use crate::value::scan::Malformed;
use crate::value::{Comparer, Value};

macro_rules! comparison {
    ($name:literal, $accept:pat) => {
        Operator {
            name: $name,
            arity: Arity::Exactly(2),
            apply: Apply::Compared(|_, comparer, operands| {
                Ok(Value::Boolean(matches!(order(comparer, &operands), $accept)))
            }),
        }
    };
}

/// The operators of this module.
pub(super) const OPERATORS: &[Operator] = &[
    comparison!("$eq", Ordering::Equal),
    comparison!("$ne", Ordering::Less | Ordering::Greater),
    comparison!("$gt", Ordering::Greater),
    comparison!("$gte", Ordering::Greater | Ordering::Equal),
    comparison!("$lt", Ordering::Less),
    comparison!("$lte", Ordering::Less | Ordering::Equal),
    Operator {
        name: "$cmp",
        arity: Arity::Exactly(2),
        apply: Apply::Compared(|_, comparer, operands| Ok(Value::Int32(order(comparer, &operands) as i32))),
    },
    Operator {
        name: "$not",
        arity: Arity::Exactly(1),
        apply: Apply::Unary(|_, operand| Ok(Value::Boolean(!operand.is_true()))),
    },
];

fn order(comparer: &Comparer, operands: &[Value<'_>]) -> Ordering {
    match operands {
        [a, b] => comparer.compare(a, b),
        _ => Ordering::Equal,
    }
}

#[derive(Debug)]
struct Cond {
    condition: Node,
    then: Node,
    otherwise: Node,
}

impl Special for Cond {
    fn evaluate<'a>(&'a self, evaluation: &mut Evaluation<'a>) -> Computed<'a> {
        if self.condition.evaluate(evaluation)?.is_true() {
            self.then.evaluate(evaluation)
        } else {
            self.otherwise.evaluate(evaluation)
        }
    }

    fn visit_children(&self, visit: &mut dyn FnMut(&Node)) {
        visit(&self.condition);
        visit(&self.then);
        visit(&self.otherwise);
    }
}

/// `[if, then, else]` or `{if, then, else}`.
pub(super) fn parse_cond(parser: &mut Parser<'_>, raw: RawBsonRef<'_>) -> Result<Node, QueryError> {
    let RawBsonRef::Document(document) = raw else {
        let operands = parser.arguments(raw)?;
        let given = operands.len();
        let Ok([condition, then, otherwise]) = <[Node; 3]>::try_from(operands) else {
            return failure(
                16020,
                format!("Expression $cond takes exactly 3 arguments. {given} were passed in."),
            );
        };
        return Ok(Node::Special(Box::new(Cond {
            condition,
            then,
            otherwise,
        })));
    };
    let (mut condition, mut then, mut otherwise) = (None, None, None);
    for element in document {
        let (name, raw) = element.map_err(|_| Malformed)?;
        match name.as_str() {
            "if" => condition = Some(parser.operand(raw)?),
            "then" => then = Some(parser.operand(raw)?),
            "else" => otherwise = Some(parser.operand(raw)?),
            other => return failure(17083, format!("Unrecognized parameter to $cond: {other}")),
        }
    }
    let Some(condition) = condition else {
        return failure(17080, "Missing 'if' parameter to $cond");
    };
    let Some(then) = then else {
        return failure(17081, "Missing 'then' parameter to $cond");
    };
    let Some(otherwise) = otherwise else {
        return failure(17082, "Missing 'else' parameter to $cond");
    };
    Ok(Node::Special(Box::new(Cond {
        condition,
        then,
        otherwise,
    })))
}

#[derive(Debug)]
struct Switch {
    branches: Vec<(Node, Node)>,
    default: Option<Node>,
}

impl Special for Switch {
    fn evaluate<'a>(&'a self, evaluation: &mut Evaluation<'a>) -> Computed<'a> {
        for (case, then) in &self.branches {
            evaluation.context.step()?;
            if case.evaluate(evaluation)?.is_true() {
                return then.evaluate(evaluation);
            }
        }
        match &self.default {
            Some(default) => default.evaluate(evaluation),
            None => failure(
                40066,
                "$switch could not find a matching branch for an input, and no default was specified.",
            ),
        }
    }

    fn visit_children(&self, visit: &mut dyn FnMut(&Node)) {
        for (case, then) in &self.branches {
            visit(case);
            visit(then);
        }
        self.default.iter().for_each(visit);
    }
}

pub(super) fn parse_switch(parser: &mut Parser<'_>, raw: RawBsonRef<'_>) -> Result<Node, QueryError> {
    let RawBsonRef::Document(document) = raw else {
        let found = Value::from_raw(raw).type_name();
        return failure(
            40060,
            format!("$switch requires an object as an argument, found: {found}"),
        );
    };
    let mut switch = Switch {
        branches: Vec::new(),
        default: None,
    };
    for element in document {
        let (name, raw) = element.map_err(|_| Malformed)?;
        match name.as_str() {
            "branches" => {
                let RawBsonRef::Array(branches) = raw else {
                    let found = Value::from_raw(raw).type_name();
                    return failure(
                        40061,
                        format!("$switch expected an array for 'branches', found: {found}"),
                    );
                };
                for branch in branches {
                    switch
                        .branches
                        .push(parse_branch(parser, branch.map_err(|_| Malformed)?)?);
                }
            }
            "default" => switch.default = Some(parser.operand(raw)?),
            other => return failure(40067, format!("$switch found an unknown argument: {other}")),
        }
    }
    if switch.branches.is_empty() {
        return failure(40068, "$switch requires at least one branch.");
    }
    Ok(Node::Special(Box::new(switch)))
}

fn parse_branch(parser: &mut Parser<'_>, raw: RawBsonRef<'_>) -> Result<(Node, Node), QueryError> {
    let RawBsonRef::Document(branch) = raw else {
        let found = Value::from_raw(raw).type_name();
        return failure(
            40062,
            format!("$switch expected each branch to be an object, found: {found}"),
        );
    };
    let (mut case, mut then) = (None, None);
    for element in branch {
        let (name, raw) = element.map_err(|_| Malformed)?;
        match name.as_str() {
            "case" => case = Some(parser.operand(raw)?),
            "then" => then = Some(parser.operand(raw)?),
            other => return failure(40063, format!("$switch found an unknown argument to a branch: {other}")),
        }
    }
    let Some(case) = case else {
        return failure(40064, "$switch requires each branch have a 'case' expression");
    };
    let Some(then) = then else {
        return failure(40065, "$switch requires each branch have a 'then' expression.");
    };
    Ok((case, then))
}
