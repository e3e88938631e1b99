//! Arrays, and the accumulators in their expression form.

use std::cmp::Ordering;

use bson::RawBsonRef;

use super::failure::failure;
use super::operator::{Apply, ApplyNamed, Arity, Computed, NamedOperator, Operator};
use super::parse::Parser;
use super::string::search_range;
use super::{Evaluation, Gathered, Node, Special, elements};
use crate::accumulators::{AccumulatorKind, Percentiles, accumulate_values, parse_n, parse_percentiles};
use crate::error::QueryError;
use crate::evaluation::EvaluationContext;
use crate::value::number::Number;
use crate::value::{ARRAY_BYTES_MAX, ArrayValue, Comparer, Value, array_too_large};

const fn unary(name: &'static str, function: for<'a> fn(&'static str, Value<'a>) -> Computed<'a>) -> Operator {
    Operator {
        name,
        arity: Arity::Exactly(1),
        apply: Apply::Unary(function),
    }
}

macro_rules! accumulator {
    ($name:literal, $kind:ident) => {
        Operator {
            name: $name,
            arity: Arity::Any,
            apply: Apply::Walk(|context, comparer, operands| {
                over_operands(AccumulatorKind::$kind, context, comparer, operands)
            }),
        }
    };
}

/// The operators with positional arguments.
pub(super) const OPERATORS: &[Operator] = &[
    Operator {
        name: "$arrayElemAt",
        arity: Arity::Exactly(2),
        apply: Apply::Binary(array_elem_at),
    },
    unary("$first", |name, array| end_of(name, array, true)),
    unary("$last", |name, array| end_of(name, array, false)),
    unary("$size", size),
    Operator {
        name: "$slice",
        arity: Arity::Between(2, 3),
        apply: Apply::Walk(slice),
    },
    Operator {
        name: "$concatArrays",
        arity: Arity::Any,
        apply: Apply::Walk(concat_arrays),
    },
    Operator {
        name: "$in",
        arity: Arity::Exactly(2),
        apply: Apply::Walk(contains),
    },
    unary("$isArray", |_, value| {
        Ok(Value::Boolean(matches!(value, Value::Array(_))))
    }),
    Operator {
        name: "$range",
        arity: Arity::Between(2, 3),
        apply: Apply::Walk(range),
    },
    Operator {
        name: "$reverseArray",
        arity: Arity::Exactly(1),
        apply: Apply::Walk(reverse_array),
    },
    Operator {
        name: "$indexOfArray",
        arity: Arity::Between(2, 4),
        apply: Apply::Walk(index_of_array),
    },
    accumulator!("$sum", Sum),
    accumulator!("$avg", Avg),
    accumulator!("$min", Min),
    accumulator!("$max", Max),
    accumulator!("$stdDevPop", StdDevPop),
    accumulator!("$stdDevSamp", StdDevSamp),
];

const N_FIELDS: &[(&str, Option<i32>)] = &[("n", Some(5787906)), ("input", Some(5787907))];

/// The operators with named arguments.
pub(super) const NAMED: &[NamedOperator] = &[
    NamedOperator {
        name: "$zip",
        fields: &[("inputs", Some(34465)), ("useLongestLength", None), ("defaults", None)],
        apply: ApplyNamed::Values(zip),
        codes: [34460, 34464],
        check: None,
    },
    NamedOperator {
        name: "$firstN",
        fields: N_FIELDS,
        apply: ApplyNamed::Values(|_, context, v| {
            n_of(context, v, |_, mut items, n| {
                items.truncate(n);
                Ok(items)
            })
        }),
        codes: [5787801, 5787901],
        check: None,
    },
    NamedOperator {
        name: "$lastN",
        fields: N_FIELDS,
        apply: ApplyNamed::Values(|_, context, v| {
            n_of(context, v, |_, mut items, n| {
                items.drain(..items.len().saturating_sub(n));
                Ok(items)
            })
        }),
        codes: [5787801, 5787901],
        check: None,
    },
    NamedOperator {
        name: "$minN",
        fields: N_FIELDS,
        apply: ApplyNamed::Compared(|context, comparer, v| {
            n_of(context, v, |context, items, n| {
                extreme_n(context, items, n, |a, b| comparer.compare(a, b))
            })
        }),
        codes: [5787900, 5787901],
        check: None,
    },
    NamedOperator {
        name: "$maxN",
        fields: N_FIELDS,
        apply: ApplyNamed::Compared(|context, comparer, v| {
            n_of(context, v, |context, items, n| {
                extreme_n(context, items, n, |a, b| comparer.compare(b, a))
            })
        }),
        codes: [5787900, 5787901],
        check: None,
    },
];

fn over_operands<'a>(
    kind: AccumulatorKind,
    context: &EvaluationContext<'_>,
    comparer: &Comparer,
    operands: Vec<Value<'a>>,
) -> Computed<'a> {
    match &operands[..] {
        [Value::Array(array)] => {
            let items = array.iter().map(|item| {
                context.step()?;
                Ok(item?)
            });
            accumulate_values(kind, items, comparer)
        }
        _ => accumulate_values(kind, operands.into_iter().map(Ok), comparer),
    }
}

/// `$percentile` and `$median` over an array, or a number alone: exact, because all numbers are at hand.
#[derive(Debug)]
struct PercentileNode {
    input: Node,
    percentiles: Percentiles,
}

impl Special for PercentileNode {
    fn evaluate<'a>(&'a self, evaluation: &mut Evaluation<'a>) -> Computed<'a> {
        let input = self.input.evaluate(evaluation)?;
        evaluation.context.steps(1 + input.steps())?;
        self.percentiles.of_value(&input, evaluation.context)
    }

    fn visit_children(&self, visit: &mut dyn FnMut(&Node)) {
        visit(&self.input);
    }
}

pub(super) fn parse_percentile(parser: &mut Parser<'_>, name: &str, raw: RawBsonRef<'_>) -> Result<Node, QueryError> {
    if !matches!(raw, RawBsonRef::Document(_)) {
        let code = if name == "$median" { 7436201 } else { 7436200 };
        let found = Value::from_raw(raw).render();
        return failure(code, format!("specification must be an object; found {name}: {found}"));
    }
    let (input, percentiles) = parse_percentiles(name, raw, parser.context)?;
    let input = parser.operand(input)?;
    Ok(Node::Special(Box::new(PercentileNode { input, percentiles })))
}

/// The element at an index that may count from the end.
fn element_at<'a>(array: &ArrayValue<'a>, index: i32) -> Computed<'a> {
    let index = match usize::try_from(index) {
        Ok(index) => index,
        Err(_) => match array.len()?.checked_sub(index.unsigned_abs() as usize) {
            Some(index) => index,
            None => return Ok(Value::Missing),
        },
    };
    Ok(array.get(index)?.unwrap_or(Value::Missing))
}

fn array_elem_at<'a>(_: &'static str, array: Value<'a>, index: Value<'a>) -> Computed<'a> {
    if array.is_nullish() || index.is_nullish() {
        return Ok(Value::Null);
    }
    let Value::Array(items) = &array else {
        return failure(
            28689,
            format!(
                "$arrayElemAt's first argument must be an array, but is {}",
                array.type_name()
            ),
        );
    };
    let Some(number) = Number::of(&index) else {
        return failure(
            28690,
            format!(
                "$arrayElemAt's second argument must be a numeric value, but is {}",
                index.type_name()
            ),
        );
    };
    let Some(index) = number.to_exact_i32() else {
        return failure(
            28691,
            format!(
                "$arrayElemAt's second argument must be representable as a 32-bit integer: {}",
                index.render()
            ),
        );
    };
    element_at(items, index)
}

fn end_of<'a>(name: &str, array: Value<'a>, first: bool) -> Computed<'a> {
    match &array {
        Value::Array(items) => element_at(items, if first { 0 } else { -1 }),
        nullish if nullish.is_nullish() => Ok(Value::Null),
        other => failure(
            28689,
            format!("{name}'s argument must be an array, but is {}", other.type_name()),
        ),
    }
}

fn size<'a>(_: &'static str, array: Value<'a>) -> Computed<'a> {
    match &array {
        Value::Array(items) => Ok(Value::Int32(i32::try_from(items.len()?).unwrap_or(i32::MAX))),
        other => failure(
            17124,
            format!(
                "The argument to $size must be an array, but was of type: {}",
                other.type_name()
            ),
        ),
    }
}

fn slice<'a>(context: &EvaluationContext<'_>, _: &Comparer, operands: Vec<Value<'a>>) -> Computed<'a> {
    if operands.iter().any(Value::is_nullish) {
        return Ok(Value::Null);
    }
    let Some(Value::Array(array)) = operands.first() else {
        let found = operands.first().map_or("missing", Value::type_name);
        return failure(
            28724,
            format!("First argument to $slice must be an array, but is of type: {found}"),
        );
    };
    let int = |value: &Value<'_>, codes: [i32; 2], which: &str| {
        let Some(number) = Number::of(value) else {
            return failure(
                codes[0],
                format!(
                    "{which} argument to $slice must be a numeric value, but is of type: {}",
                    value.type_name()
                ),
            );
        };
        match number.to_exact_i32() {
            Some(n) => Ok(i64::from(n)),
            None => failure(
                codes[1],
                format!(
                    "{which} argument to $slice can't be represented as a 32-bit integer: {}",
                    value.render()
                ),
            ),
        }
    };
    let length = array.len()? as i64;
    let second = int(operands.get(1).unwrap_or(&Value::Missing), [28725, 28726], "Second")?;
    let (start, count) = match operands.get(2) {
        None if second >= 0 => (0, second),
        None => ((length + second).max(0), -second),
        Some(third) => {
            let count = int(third, [28727, 28728], "Third")?;
            if count <= 0 {
                return failure(
                    28729,
                    format!("Third argument to $slice must be positive: {}", third.render()),
                );
            }
            (if second >= 0 { second } else { (length + second).max(0) }, count)
        }
    };
    let mut part = Gathered::new(context);
    for item in array.iter().skip(start as usize).take(count as usize) {
        part.push(item?)?;
    }
    part.finish()
}

fn concat_arrays<'a>(context: &EvaluationContext<'_>, _: &Comparer, operands: Vec<Value<'a>>) -> Computed<'a> {
    let mut joined = Gathered::new(context);
    for operand in &operands {
        match operand {
            Value::Array(array) => {
                for item in array.iter() {
                    joined.push(item?)?;
                }
            }
            nullish if nullish.is_nullish() => return Ok(Value::Null),
            other => {
                return failure(
                    28664,
                    format!("$concatArrays only supports arrays, not {}", other.type_name()),
                );
            }
        }
    }
    joined.finish()
}

fn contains<'a>(context: &EvaluationContext<'_>, comparer: &Comparer, operands: Vec<Value<'a>>) -> Computed<'a> {
    let [needle, array] = &operands[..] else {
        return Ok(Value::Boolean(false));
    };
    let Value::Array(array) = array else {
        return failure(
            40081,
            format!(
                "$in requires an array as a second argument, found: {}",
                array.type_name()
            ),
        );
    };
    for item in array.iter() {
        context.step()?;
        if comparer.equal(needle, &item?) {
            return Ok(Value::Boolean(true));
        }
    }
    Ok(Value::Boolean(false))
}

fn range<'a>(context: &EvaluationContext<'_>, _: &Comparer, operands: Vec<Value<'a>>) -> Computed<'a> {
    let int = |value: Option<&Value<'_>>, codes: [i32; 2], what: &str| {
        let value = value.unwrap_or(&Value::Missing);
        let Some(number) = Number::of(value) else {
            return failure(
                codes[0],
                format!(
                    "$range requires a numeric {what} value, found value of type: {}",
                    value.type_name()
                ),
            );
        };
        match number.to_exact_i32() {
            Some(n) => Ok(i64::from(n)),
            None => failure(
                codes[1],
                format!(
                    "$range requires a {what} value that can be represented as a 32-bit integer, found value: {}",
                    value.render()
                ),
            ),
        }
    };
    let start = int(operands.first(), [34443, 34444], "starting")?;
    let end = int(operands.get(1), [34445, 34446], "ending")?;
    let step = match operands.get(2) {
        None => 1,
        step => int(step, [34447, 34448], "step")?,
    };
    if step == 0 {
        return failure(34449, "$range requires a non-zero step value");
    }
    let count = ((end - start) as f64 / step as f64).ceil().max(0.0) as usize;
    // Before anything is built.
    if count.saturating_mul(size_of::<Value<'_>>()) > ARRAY_BYTES_MAX {
        return Err(array_too_large());
    }
    let mut numbers = Gathered::new(context);
    for index in 0..count as i64 {
        numbers.push(Value::Int32((start + index * step) as i32))?;
    }
    numbers.finish()
}

fn reverse_array<'a>(context: &EvaluationContext<'_>, _: &Comparer, operands: Vec<Value<'a>>) -> Computed<'a> {
    let array = operands.into_iter().next().unwrap_or(Value::Missing);
    match &array {
        Value::Array(items) => {
            let mut items = elements(context, items)?;
            items.reverse();
            Value::array(items)
        }
        nullish if nullish.is_nullish() => Ok(Value::Null),
        other => failure(
            34435,
            format!(
                "The argument to $reverseArray must be an array, but was of type: {}",
                other.type_name()
            ),
        ),
    }
}

fn index_of_array<'a>(context: &EvaluationContext<'_>, comparer: &Comparer, operands: Vec<Value<'a>>) -> Computed<'a> {
    let (first, needle) = (
        operands.first().unwrap_or(&Value::Missing),
        operands.get(1).unwrap_or(&Value::Missing),
    );
    if first.is_nullish() {
        return Ok(Value::Null);
    }
    let Value::Array(array) = first else {
        return failure(
            40090,
            format!(
                "$indexOfArray requires an array as a first argument, found: {}",
                first.type_name()
            ),
        );
    };
    let (start, end) = search_range("$indexOfArray", operands.get(2), operands.get(3))?;
    for (index, item) in array.iter().enumerate().skip(start) {
        context.step()?;
        if end.is_some_and(|end| index >= end) {
            break;
        }
        if comparer.equal(needle, &item?) {
            return Ok(Value::Int32(index as i32));
        }
    }
    Ok(Value::Int32(-1))
}

fn zip<'a>(_: &'static str, context: &EvaluationContext<'_>, arguments: Vec<Option<Value<'a>>>) -> Computed<'a> {
    let mut arguments = arguments.into_iter();
    let (inputs, longest, defaults) = (
        arguments.next().flatten(),
        arguments.next().flatten(),
        arguments.next().flatten(),
    );
    let list = |value: &Option<Value<'a>>, code: i32, what: &str| match value {
        None => Ok(Vec::new()),
        Some(Value::Array(array)) => elements(context, array),
        Some(other) => failure(
            code,
            format!("{what} must be an array of expressions, found {}", other.type_name()),
        ),
    };
    let inputs = list(&inputs, 34461, "inputs")?;
    if inputs.is_empty() {
        return failure(34465, "$zip requires at least one input array");
    }
    let longest = match longest {
        None => false,
        Some(Value::Boolean(longest)) => longest,
        Some(other) => {
            return failure(
                34463,
                format!("useLongestLength must be a bool, found {}", other.type_name()),
            );
        }
    };
    let defaults = list(&defaults, 34462, "defaults")?;
    if !defaults.is_empty() && !longest {
        return failure(34466, "cannot specify defaults unless useLongestLength is true.");
    }
    if !defaults.is_empty() && defaults.len() != inputs.len() {
        return failure(34467, "defaults and inputs must have the same length");
    }
    let mut columns = Vec::with_capacity(inputs.len());
    let mut null = false;
    for input in &inputs {
        match input {
            Value::Array(array) => {
                let column = elements(context, array)?;
                context.hold(column.len() * size_of::<Value<'_>>())?;
                columns.push(column);
            }
            nullish if nullish.is_nullish() => null = true,
            other => {
                return failure(
                    34468,
                    format!("$zip found a non-array expression in input: {}", other.render()),
                );
            }
        }
    }
    if null {
        return Ok(Value::Null);
    }
    let lengths = columns.iter().map(Vec::len);
    let rows = if longest { lengths.max() } else { lengths.min() }.unwrap_or(0);
    let cell = |row: usize, column: usize| {
        let default = || defaults.get(column).cloned().unwrap_or(Value::Null);
        columns
            .get(column)
            .and_then(|items| items.get(row))
            .cloned()
            .unwrap_or_else(default)
    };
    let mut zipped = Gathered::new(context);
    for row in 0..rows {
        context.steps(columns.len())?;
        zipped.push(Value::array(
            (0..columns.len()).map(|column| cell(row, column)).collect(),
        )?)?;
    }
    zipped.finish()
}

/// `{n, input}`: a choice of n elements.
fn n_of<'a>(
    context: &EvaluationContext<'_>,
    arguments: Vec<Option<Value<'a>>>,
    choose: impl FnOnce(&EvaluationContext<'_>, Vec<Value<'a>>, usize) -> Result<Vec<Value<'a>>, QueryError>,
) -> Computed<'a> {
    let mut arguments = arguments.into_iter();
    let (n, input) = (arguments.next().flatten(), arguments.next().flatten());
    let n = parse_n(&n.unwrap_or(Value::Missing))?;
    match input {
        Some(Value::Array(array)) => {
            let items = elements(context, &array)?;
            Value::array(choose(context, items, n)?)
        }
        other => failure(
            5788200,
            format!(
                "Input must be an array, found {}",
                other.map_or("missing", |other| other.type_name())
            ),
        ),
    }
}

/// The first n in an order, without null and missing.
fn extreme_n<'a>(
    context: &EvaluationContext<'_>,
    mut items: Vec<Value<'a>>,
    n: usize,
    compare: impl FnMut(&Value<'a>, &Value<'a>) -> Ordering,
) -> Result<Vec<Value<'a>>, QueryError> {
    items.retain(|item| !item.is_nullish());
    let mut items = context.sort(items, compare)?;
    items.truncate(n);
    Ok(items)
}
