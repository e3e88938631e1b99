//! Arrays as sets: order and repetition do not count. Results are in the order of first appearance.

use std::collections::HashSet;

use super::operator::{Apply, Arity, Computed, Operator, failure};
use crate::error::QueryError;
use crate::value::{ArrayValue, Comparer, Value};

const fn compared(
    name: &'static str,
    arity: Arity,
    function: for<'a> fn(&'static str, &Comparer, Vec<Value<'a>>) -> Computed<'a>,
) -> Operator {
    Operator {
        name,
        arity,
        apply: Apply::Compared(function),
    }
}

/// The operators of this module.
pub(super) const OPERATORS: &[Operator] = &[
    compared("$setEquals", Arity::Any, set_equals),
    compared("$setIntersection", Arity::Any, set_intersection),
    compared("$setUnion", Arity::Any, set_union),
    compared("$setDifference", Arity::Exactly(2), set_difference),
    compared("$setIsSubset", Arity::Exactly(2), set_is_subset),
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

/// The distinct elements with their key bytes.
fn distinct<'a>(array: &ArrayValue<'a>, comparer: &Comparer) -> Result<Vec<(Vec<u8>, Value<'a>)>, QueryError> {
    let mut seen = HashSet::new();
    let mut kept = Vec::new();
    for item in array.iter() {
        let item = item?;
        let mut key = Vec::new();
        comparer.append_key(&item, &mut key);
        if seen.insert(key.clone()) {
            kept.push((key, item));
        }
    }
    Ok(kept)
}

fn keys_of(array: &ArrayValue<'_>, comparer: &Comparer) -> Result<HashSet<Vec<u8>>, QueryError> {
    Ok(distinct(array, comparer)?.into_iter().map(|(key, _)| key).collect())
}

fn array_of<'v, 'a>(value: Option<&'v Value<'a>>, code: i32, what: &str) -> Result<&'v ArrayValue<'a>, QueryError> {
    match value {
        Some(Value::Array(array)) => Ok(array),
        other => {
            let found = other.map_or("missing", Value::type_name);
            failure(code, format!("{what} must be an array. Found type: {found}"))
        }
    }
}

fn set_equals<'a>(_: &'static str, comparer: &Comparer, operands: Vec<Value<'a>>) -> Computed<'a> {
    if operands.len() < 2 {
        return failure(
            17045,
            format!("$setEquals needs at least two arguments had: {}", operands.len()),
        );
    }
    let mut first = None;
    for (index, operand) in operands.iter().enumerate() {
        let Value::Array(array) = operand else {
            return failure(
                17044,
                format!(
                    "All operands of $setEquals must be arrays. {}-th argument is of type: {}",
                    index + 1,
                    operand.type_name()
                ),
            );
        };
        let keys = keys_of(array, comparer)?;
        if *first.get_or_insert_with(|| keys.clone()) != keys {
            return Ok(Value::Boolean(false));
        }
    }
    Ok(Value::Boolean(true))
}

fn set_intersection<'a>(_: &'static str, comparer: &Comparer, operands: Vec<Value<'a>>) -> Computed<'a> {
    let mut common: Option<Vec<(Vec<u8>, Value<'a>)>> = None;
    for operand in &operands {
        if operand.is_nullish() {
            return Ok(Value::Null);
        }
        let array = array_of(
            Some(operand),
            17047,
            "All operands of $setIntersection must be arrays: one",
        )?;
        common = Some(match common {
            None => distinct(array, comparer)?,
            Some(mut kept) => {
                let keys = keys_of(array, comparer)?;
                kept.retain(|(key, _)| keys.contains(key));
                kept
            }
        });
    }
    Value::array(common.unwrap_or_default().into_iter().map(|(_, value)| value).collect())
}

fn set_union<'a>(_: &'static str, comparer: &Comparer, operands: Vec<Value<'a>>) -> Computed<'a> {
    let mut seen = HashSet::new();
    let mut all = Vec::new();
    for operand in &operands {
        if operand.is_nullish() {
            return Ok(Value::Null);
        }
        let array = array_of(Some(operand), 17043, "All operands of $setUnion must be arrays: one")?;
        for (key, value) in distinct(array, comparer)? {
            if seen.insert(key) {
                all.push(value);
            }
        }
    }
    Value::array(all)
}

fn set_difference<'a>(_: &'static str, comparer: &Comparer, operands: Vec<Value<'a>>) -> Computed<'a> {
    if operands.iter().any(Value::is_nullish) {
        return Ok(Value::Null);
    }
    let first = array_of(
        operands.first(),
        17048,
        "both operands of $setDifference must be arrays. First argument",
    )?;
    let second = array_of(
        operands.get(1),
        17049,
        "both operands of $setDifference must be arrays. Second argument",
    )?;
    let taken = keys_of(second, comparer)?;
    let left = distinct(first, comparer)?
        .into_iter()
        .filter(|(key, _)| !taken.contains(key));
    Value::array(left.map(|(_, value)| value).collect())
}

fn set_is_subset<'a>(_: &'static str, comparer: &Comparer, operands: Vec<Value<'a>>) -> Computed<'a> {
    let first = array_of(
        operands.first(),
        17046,
        "both operands of $setIsSubset must be arrays. First argument",
    )?;
    let second = array_of(
        operands.get(1),
        17042,
        "both operands of $setIsSubset must be arrays. Second argument",
    )?;
    let whole = keys_of(second, comparer)?;
    Ok(Value::Boolean(
        keys_of(first, comparer)?.iter().all(|key| whole.contains(key)),
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
