//! Arrays as sets: order and repetition do not count. Unions and intersections are in the order of values, as in
//! MongoDB; differences in that of the first array.

use std::collections::HashSet;

use bson::RawBsonRef;

use super::Node;
use super::failure::failure;
use super::operator::{Apply, Arity, Computed, Operator};
use super::parse::Parser;
use crate::error::QueryError;
use crate::evaluation::EvaluationContext;
use crate::value::{ArrayValue, Comparer, Value};

const fn walk(
    name: &'static str,
    arity: Arity,
    function: for<'a> fn(&EvaluationContext<'_>, &Comparer, Vec<Value<'a>>) -> Computed<'a>,
) -> Operator {
    Operator {
        name,
        arity,
        apply: Apply::Walk(function),
    }
}

/// It is parsed by [`parse_set_equals`].
static SET_EQUALS: Operator = walk("$setEquals", Arity::Any, set_equals);

/// The operators of this module.
pub(super) const OPERATORS: &[Operator] = &[
    walk("$setIntersection", Arity::Any, set_intersection),
    walk("$setUnion", Arity::Any, set_union),
    walk("$setDifference", Arity::Exactly(2), set_difference),
    walk("$setIsSubset", Arity::Exactly(2), set_is_subset),
    Operator {
        name: "$anyElementTrue",
        arity: Arity::Exactly(1),
        apply: Apply::Unary(any_element_true),
    },
    Operator {
        name: "$allElementsTrue",
        arity: Arity::Exactly(1),
        apply: Apply::Unary(all_elements_true),
    },
];

/// The distinct elements with their key bytes, which stay held.
fn distinct<'a>(
    context: &EvaluationContext<'_>,
    array: &ArrayValue<'a>,
    comparer: &Comparer,
) -> Result<Vec<(Vec<u8>, Value<'a>)>, QueryError> {
    let mut seen = HashSet::new();
    let mut kept = Vec::new();
    for item in array.iter() {
        let item = item?;
        let mut key = Vec::new();
        comparer.append_key(&item, &mut key);
        context.steps(1 + item.steps())?;
        if seen.insert(key.clone()) {
            context.hold(2 * (key.len() + size_of::<Vec<u8>>()) + item.owned_bytes())?;
            kept.push((key, item));
        }
    }
    Ok(kept)
}

/// The key bytes of the elements, which stay held.
fn keys_of(
    context: &EvaluationContext<'_>,
    array: &ArrayValue<'_>,
    comparer: &Comparer,
) -> Result<HashSet<Vec<u8>>, QueryError> {
    let mut keys = HashSet::new();
    for item in array.iter() {
        let item = item?;
        let mut key = Vec::new();
        comparer.append_key(&item, &mut key);
        context.steps(1 + item.steps())?;
        let bytes = key.len() + 2 * size_of::<Vec<u8>>();
        if keys.insert(key) {
            context.hold(bytes)?;
        }
    }
    Ok(keys)
}

/// An operand that has to be an array; the error says which, after `rule`.
fn array_of<'v, 'a>(value: Option<&'v Value<'a>>, code: i32, rule: &str) -> Result<&'v ArrayValue<'a>, QueryError> {
    match value {
        Some(Value::Array(array)) => Ok(array),
        other => {
            let found = other.map_or("missing", Value::type_name);
            failure(code, format!("{rule} argument is of type: {found}"))
        }
    }
}

/// The values in their order.
fn sorted<'a>(context: &EvaluationContext<'_>, comparer: &Comparer, values: Vec<Value<'a>>) -> Computed<'a> {
    Value::array(context.sort(values, |a, b| comparer.compare(a, b))?)
}

/// `$setEquals`: a constant that is no array is refused before any document is seen.
pub(super) fn parse_set_equals(parser: &mut Parser<'_>, raw: RawBsonRef<'_>) -> Result<Node, QueryError> {
    let arguments = parser.arguments(raw)?;
    if arguments.len() < 2 {
        return failure(
            17045,
            format!("$setEquals needs at least two arguments had: {}", arguments.len()),
        );
    }
    for (index, argument) in arguments.iter().enumerate() {
        match argument {
            Node::Constant(constant) if !matches!(constant, Value::Array(_)) => {
                return failure(5887502, not_all_arrays(index, constant));
            }
            _ => {}
        }
    }
    Ok(Node::Call {
        operator: &SET_EQUALS,
        comparer: parser.context.comparer.clone(),
        arguments,
    })
}

fn not_all_arrays(index: usize, operand: &Value<'_>) -> String {
    format!(
        "All operands of $setEquals must be arrays. {}-th argument is of type: {}",
        index + 1,
        operand.type_name()
    )
}

fn set_equals<'a>(context: &EvaluationContext<'_>, comparer: &Comparer, operands: Vec<Value<'a>>) -> Computed<'a> {
    let mut first: Option<(HashSet<Vec<u8>>, usize)> = None;
    for (index, operand) in operands.iter().enumerate() {
        let Value::Array(array) = operand else {
            return failure(17044, not_all_arrays(index, operand));
        };
        let keys = keys_of(context, array, comparer)?;
        match &first {
            None => first = Some((keys, context.held())),
            Some((first, mark)) => {
                if *first != keys {
                    return Ok(Value::Boolean(false));
                }
                context.release_to(*mark);
            }
        }
    }
    Ok(Value::Boolean(true))
}

fn set_intersection<'a>(
    context: &EvaluationContext<'_>,
    comparer: &Comparer,
    operands: Vec<Value<'a>>,
) -> Computed<'a> {
    let mut common: Option<Vec<(Vec<u8>, Value<'a>)>> = None;
    for operand in &operands {
        if operand.is_nullish() {
            return Ok(Value::Null);
        }
        let array = array_of(
            Some(operand),
            17047,
            "All operands of $setIntersection must be arrays. One",
        )?;
        common = Some(match common {
            None => distinct(context, array, comparer)?,
            Some(mut kept) => {
                let mark = context.held();
                let keys = keys_of(context, array, comparer)?;
                kept.retain(|(key, _)| keys.contains(key));
                context.release_to(mark);
                kept
            }
        });
    }
    let common = common.unwrap_or_default();
    sorted(context, comparer, common.into_iter().map(|(_, value)| value).collect())
}

fn set_union<'a>(context: &EvaluationContext<'_>, comparer: &Comparer, operands: Vec<Value<'a>>) -> Computed<'a> {
    let mut seen = HashSet::new();
    let mut all = Vec::new();
    for operand in &operands {
        if operand.is_nullish() {
            return Ok(Value::Null);
        }
        let array = array_of(Some(operand), 17043, "All operands of $setUnion must be arrays. One")?;
        for (key, value) in distinct(context, array, comparer)? {
            if seen.insert(key) {
                all.push(value);
            }
        }
    }
    sorted(context, comparer, all)
}

fn set_difference<'a>(context: &EvaluationContext<'_>, comparer: &Comparer, operands: Vec<Value<'a>>) -> Computed<'a> {
    if operands.iter().any(Value::is_nullish) {
        return Ok(Value::Null);
    }
    let first = array_of(
        operands.first(),
        17048,
        "both operands of $setDifference must be arrays. First",
    )?;
    let second = array_of(
        operands.get(1),
        17049,
        "both operands of $setDifference must be arrays. Second",
    )?;
    let taken = keys_of(context, second, comparer)?;
    let left = distinct(context, first, comparer)?
        .into_iter()
        .filter(|(key, _)| !taken.contains(key));
    Value::array(left.map(|(_, value)| value).collect())
}

fn set_is_subset<'a>(context: &EvaluationContext<'_>, comparer: &Comparer, operands: Vec<Value<'a>>) -> Computed<'a> {
    let first = array_of(
        operands.first(),
        17046,
        "both operands of $setIsSubset must be arrays. First",
    )?;
    let second = array_of(
        operands.get(1),
        17042,
        "both operands of $setIsSubset must be arrays. Second",
    )?;
    let whole = keys_of(context, second, comparer)?;
    Ok(Value::Boolean(
        keys_of(context, first, comparer)?.iter().all(|key| whole.contains(key)),
    ))
}

fn any_element_true<'a>(_: &'static str, operand: Value<'a>) -> Computed<'a> {
    let Value::Array(array) = &operand else {
        return failure(
            17041,
            format!(
                "$anyElementTrue's argument must be an array, but is {}",
                operand.type_name()
            ),
        );
    };
    for item in array.iter() {
        if item?.is_true() {
            return Ok(Value::Boolean(true));
        }
    }
    Ok(Value::Boolean(false))
}

fn all_elements_true<'a>(_: &'static str, operand: Value<'a>) -> Computed<'a> {
    let Value::Array(array) = &operand else {
        return failure(
            17040,
            format!(
                "$allElementsTrue's argument must be an array, but is {}",
                operand.type_name()
            ),
        );
    };
    for item in array.iter() {
        if !item?.is_true() {
            return Ok(Value::Boolean(false));
        }
    }
    Ok(Value::Boolean(true))
}
