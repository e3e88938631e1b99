//! Expressions that bind variables: `$let`, `$map`, `$filter`, `$reduce`; and `$sortArray`, `$rand`.
//!
//! Each pushes its variables onto the evaluation's slots in the order in which parsing bound them, evaluates, and pops.

use std::cmp::Ordering;
use std::sync::Arc;

use bson::{RawBsonRef, RawDocument};
use vfs::Random;

use super::failure::failure;
use super::operator::Computed;
use super::parse::{Parser, check_user_variable, named_fields};
use super::{Evaluation, Gathered, Node, Special, elements};
use crate::error::QueryError;
use crate::evaluation::EvaluationContext;
use crate::metadata::{MetadataField, MetadataNeeds};
use crate::path::Path;
use crate::value::number::Number;
use crate::value::scan::{self, Malformed};
use crate::value::{ArrayValue, Comparer, Value};

#[derive(Debug)]
struct Let {
    values: Vec<Node>,
    body: Node,
}

impl Special for Let {
    fn evaluate<'a>(&'a self, evaluation: &mut Evaluation<'a>) -> Computed<'a> {
        let outside = evaluation.slots.len();
        let mark = evaluation.context.held();
        // The new variables do not see each other.
        let values = super::evaluate_all(&self.values, evaluation)?;
        evaluation.slots.extend(values);
        let result = self.body.evaluate(evaluation);
        evaluation.slots.truncate(outside);
        evaluation.context.release_to(mark);
        result
    }

    fn visit_children(&self, visit: &mut dyn FnMut(&Node)) {
        self.values.iter().for_each(&mut *visit);
        visit(&self.body);
    }
}

pub(super) fn parse_let(parser: &mut Parser<'_>, raw: RawBsonRef<'_>) -> Result<Node, QueryError> {
    let not_object = (16874, "$let only supports an object as its argument".to_owned());
    let [variables, body] = named_fields("$let", raw, ["vars", "in"], not_object, 16875)?;
    let Some(variables) = variables else {
        return failure(16876, "Missing 'vars' parameter to $let");
    };
    let Some(body) = body else {
        return failure(16877, "Missing 'in' parameter to $let");
    };
    let variables = match variables {
        RawBsonRef::Document(variables) => variables,
        // Its positions are no names of variables.
        RawBsonRef::Array(array) => scan::frame(array.as_bytes())?,
        _ => return failure(10065, "invalid parameter: expected an object (vars)"),
    };
    let (mut names, mut values) = (Vec::new(), Vec::new());
    for element in variables {
        let (name, raw) = element.map_err(|_| Malformed)?;
        check_user_variable(name.as_str())?;
        names.push(name.as_str());
        values.push(parser.operand(raw)?);
    }
    let body = parser.with_bound(&names, |parser| parser.operand(body))?;
    Ok(Node::Special(Box::new(Let { values, body })))
}

/// Evaluates `body` with one variable bound.
fn with_slot<'a>(body: &'a Node, value: Value<'a>, evaluation: &mut Evaluation<'a>) -> Computed<'a> {
    evaluation.slots.push(value);
    let result = body.evaluate(evaluation);
    evaluation.slots.pop();
    result
}

/// Notes that an array is kept while something is evaluated for its elements; the answer is what to release to.
fn hold_array(array: &ArrayValue<'_>, evaluation: &Evaluation<'_>) -> Result<usize, QueryError> {
    let mark = evaluation.context.held();
    evaluation.context.hold(array.owned_bytes())?;
    Ok(mark)
}

fn parse_name<'r>(raw: Option<RawBsonRef<'r>>, default: &'r str) -> Result<&'r str, QueryError> {
    match raw {
        None => Ok(default),
        Some(RawBsonRef::String(name)) => {
            check_user_variable(name)?;
            Ok(name)
        }
        Some(other) => {
            let found = Value::from_raw(other).type_name();
            failure(
                wire::ErrorCode::FailedToParse.0,
                format!("the name of a variable ('as') must be a string, found: {found}"),
            )
        }
    }
}

#[derive(Debug)]
struct Map {
    input: Node,
    body: Node,
}

impl Special for Map {
    fn evaluate<'a>(&'a self, evaluation: &mut Evaluation<'a>) -> Computed<'a> {
        let input = match self.input.evaluate(evaluation)? {
            Value::Array(array) => array,
            nullish if nullish.is_nullish() => return Ok(Value::Null),
            other => {
                return failure(
                    16883,
                    format!("input to $map must be an array not {}", other.type_name()),
                );
            }
        };
        let mark = hold_array(&input, evaluation)?;
        let mut mapped = Gathered::new(evaluation.context);
        for item in input.iter() {
            mapped.push(with_slot(&self.body, item?, evaluation)?)?;
        }
        let mapped = mapped.finish();
        evaluation.context.release_to(mark);
        mapped
    }

    fn visit_children(&self, visit: &mut dyn FnMut(&Node)) {
        visit(&self.input);
        visit(&self.body);
    }
}

pub(super) fn parse_map(parser: &mut Parser<'_>, raw: RawBsonRef<'_>) -> Result<Node, QueryError> {
    let not_object = (16878, "$map only supports an object as its argument".to_owned());
    let [input, name, body] = named_fields("$map", raw, ["input", "as", "in"], not_object, 16879)?;
    let Some(input) = input else {
        return failure(16880, "Missing 'input' parameter to $map");
    };
    let Some(body) = body else {
        return failure(16882, "Missing 'in' parameter to $map");
    };
    let name = parse_name(name, "this")?;
    let input = parser.operand(input)?;
    let body = parser.with_bound(&[name], |parser| parser.operand(body))?;
    Ok(Node::Special(Box::new(Map { input, body })))
}

#[derive(Debug)]
struct Filter {
    input: Node,
    condition: Node,
    limit: Option<Node>,
}

impl Special for Filter {
    fn evaluate<'a>(&'a self, evaluation: &mut Evaluation<'a>) -> Computed<'a> {
        let input = match self.input.evaluate(evaluation)? {
            Value::Array(array) => array,
            nullish if nullish.is_nullish() => return Ok(Value::Null),
            other => {
                return failure(
                    28651,
                    format!("input to $filter must be an array not {}", other.type_name()),
                );
            }
        };
        let limit = match &self.limit {
            None => usize::MAX,
            Some(limit) => filter_limit(&limit.evaluate(evaluation)?)?,
        };
        let mark = hold_array(&input, evaluation)?;
        let mut kept = Gathered::new(evaluation.context);
        for item in input.iter() {
            if kept.len() >= limit {
                break;
            }
            evaluation.context.step()?;
            let item = item?;
            if with_slot(&self.condition, item.clone(), evaluation)?.is_true() {
                kept.push(item)?;
            }
        }
        let kept = kept.finish();
        evaluation.context.release_to(mark);
        kept
    }

    fn visit_children(&self, visit: &mut dyn FnMut(&Node)) {
        visit(&self.input);
        visit(&self.condition);
        self.limit.iter().for_each(visit);
    }
}

fn filter_limit(limit: &Value<'_>) -> Result<usize, QueryError> {
    if limit.is_nullish() {
        return Ok(usize::MAX);
    }
    let Some(n) = Number::of(limit).and_then(Number::to_exact_i32) else {
        return failure(
            327391,
            format!(
                "$filter: limit must be represented as a 32-bit integral value: {}",
                limit.render()
            ),
        );
    };
    match usize::try_from(n) {
        Ok(n) if n > 0 => Ok(n),
        _ => failure(327392, format!("$filter: limit must be greater than 0: {n}")),
    }
}

pub(super) fn parse_filter(parser: &mut Parser<'_>, raw: RawBsonRef<'_>) -> Result<Node, QueryError> {
    let not_object = (28646, "$filter only supports an object as its argument".to_owned());
    let [input, name, condition, limit] =
        named_fields("$filter", raw, ["input", "as", "cond", "limit"], not_object, 28647)?;
    let Some(input) = input else {
        return failure(28648, "Missing 'input' parameter to $filter");
    };
    let Some(condition) = condition else {
        return failure(28650, "Missing 'cond' parameter to $filter");
    };
    let name = parse_name(name, "this")?;
    let input = parser.operand(input)?;
    let limit = limit.map(|limit| parser.operand(limit)).transpose()?;
    let condition = parser.with_bound(&[name], |parser| parser.operand(condition))?;
    Ok(Node::Special(Box::new(Filter {
        input,
        condition,
        limit,
    })))
}

#[derive(Debug)]
struct Reduce {
    input: Node,
    initial: Node,
    body: Node,
}

impl Special for Reduce {
    fn evaluate<'a>(&'a self, evaluation: &mut Evaluation<'a>) -> Computed<'a> {
        let input = match self.input.evaluate(evaluation)? {
            Value::Array(array) => array,
            nullish if nullish.is_nullish() => return Ok(Value::Null),
            other => {
                let found = other.type_name();
                return failure(
                    40080,
                    format!("$reduce requires that 'input' be an array, found: {found}"),
                );
            }
        };
        let outside = hold_array(&input, evaluation)?;
        let mark = evaluation.context.held();
        let mut value = self.initial.evaluate(evaluation)?;
        for item in input.iter() {
            evaluation.context.step()?;
            evaluation.context.release_to(mark);
            evaluation.context.hold(value.owned_bytes())?;
            // $$value, then $$this.
            evaluation.slots.push(value);
            let result = match item {
                Ok(item) => with_slot(&self.body, item, evaluation),
                Err(malformed) => Err(malformed.into()),
            };
            evaluation.slots.pop();
            value = result?;
        }
        evaluation.context.release_to(outside);
        Ok(value)
    }

    fn visit_children(&self, visit: &mut dyn FnMut(&Node)) {
        visit(&self.input);
        visit(&self.initial);
        visit(&self.body);
    }
}

pub(super) fn parse_reduce(parser: &mut Parser<'_>, raw: RawBsonRef<'_>) -> Result<Node, QueryError> {
    let found = Value::from_raw(raw).type_name();
    let not_object = (
        40075,
        format!("$reduce requires an object as an argument, found: {found}"),
    );
    let [input, initial, body] = named_fields("$reduce", raw, ["input", "initialValue", "in"], not_object, 40076)?;
    let Some(input) = input else {
        return failure(40077, "$reduce requires 'input' to be specified");
    };
    let Some(initial) = initial else {
        return failure(40078, "$reduce requires 'initialValue' to be specified");
    };
    let Some(body) = body else {
        return failure(40079, "$reduce requires 'in' to be specified");
    };
    let input = parser.operand(input)?;
    let initial = parser.operand(initial)?;
    let body = parser.with_bound(&["value", "this"], |parser| parser.operand(body))?;
    Ok(Node::Special(Box::new(Reduce { input, initial, body })))
}

#[derive(Debug)]
enum ArrayOrder {
    /// Whole values, ascending or not.
    Whole { descending: bool },
    /// Documents by their fields.
    Fields(Vec<FieldOrder>),
}

/// A field that documents in an array are sorted by. Unlike `$sort`, arrays count as a whole.
#[derive(Debug)]
struct FieldOrder {
    path: Path,
    descending: bool,
}

impl FieldOrder {
    /// The value in a document, through documents and positions of arrays; null where there is none.
    fn value_in<'a>(&self, item: &Value<'a>) -> Result<Value<'a>, QueryError> {
        if !matches!(item, Value::Document(_)) {
            return Ok(Value::Null);
        }
        let mut value = item.clone();
        for part in self.path.parts() {
            value = match (&value, part.index()) {
                (Value::Array(array), Some(index)) => array.get(index as usize)?.unwrap_or(Value::Missing),
                _ => value.get_field(part.name())?,
            };
        }
        Ok(if value.is_missing() { Value::Null } else { value })
    }
}

/// Whether a direction is 1 or -1, and which.
fn is_descending(direction: &Value<'_>) -> Option<bool> {
    match Number::of(direction).and_then(Number::to_exact_i64) {
        Some(1) => Some(false),
        Some(-1) => Some(true),
        _ => None,
    }
}

/// The fields of `$sortArray`'s `sortBy`.
fn parse_field_orders(pattern: &RawDocument) -> Result<Vec<FieldOrder>, QueryError> {
    let bad = |why: &str| failure(2942505, format!("Illegal sort specification of $sortArray: {why}"));
    let mut fields = Vec::new();
    for element in pattern {
        let (name, raw) = element.map_err(|_| Malformed)?;
        let Some(descending) = is_descending(&Value::from_raw(raw)) else {
            return bad("directions must be 1 or -1");
        };
        let path = Path::new(name.as_str())?;
        if path.parts().iter().any(|part| part.name().is_empty()) {
            return bad("a field path has an empty part");
        }
        fields.push(FieldOrder { path, descending });
    }
    match fields.is_empty() {
        true => bad("there are no fields"),
        false => Ok(fields),
    }
}

#[derive(Debug)]
struct SortArray {
    input: Node,
    order: ArrayOrder,
    comparer: Comparer,
}

impl Special for SortArray {
    fn evaluate<'a>(&'a self, evaluation: &mut Evaluation<'a>) -> Computed<'a> {
        let input = match self.input.evaluate(evaluation)? {
            Value::Array(array) => array,
            nullish if nullish.is_nullish() => return Ok(Value::Null),
            other => {
                let found = other.type_name();
                return failure(
                    2942504,
                    format!("The input argument to $sortArray must be an array, but was of type: {found}"),
                );
            }
        };
        Value::array(self.sorted(&input, evaluation.context)?)
    }

    fn visit_children(&self, visit: &mut dyn FnMut(&Node)) {
        visit(&self.input);
    }
}

impl SortArray {
    fn sorted<'a>(
        &self,
        input: &ArrayValue<'a>,
        context: &EvaluationContext<'_>,
    ) -> Result<Vec<Value<'a>>, QueryError> {
        let items = elements(context, input)?;
        match &self.order {
            ArrayOrder::Whole { descending: false } => context.sort(items, |a, b| self.comparer.compare(a, b)),
            ArrayOrder::Whole { descending: true } => context.sort(items, |a, b| self.comparer.compare(b, a)),
            ArrayOrder::Fields(fields) => {
                let mark = context.held();
                let mut keyed = Vec::with_capacity(items.len());
                for item in items {
                    let keys = fields.iter().map(|field| field.value_in(&item));
                    let keys = keys.collect::<Result<Vec<_>, _>>()?;
                    context.steps(1 + item.steps())?;
                    let bytes: usize = keys.iter().map(|key| size_of_val(key) + key.owned_bytes()).sum();
                    context.hold(size_of::<(Vec<Value<'_>>, Value<'_>)>() + bytes)?;
                    keyed.push((keys, item));
                }
                let sorted = context.sort(keyed, |(a, _), (b, _)| self.compare_keys(fields, a, b))?;
                context.release_to(mark);
                Ok(sorted.into_iter().map(|(_, item)| item).collect())
            }
        }
    }

    fn compare_keys(&self, fields: &[FieldOrder], a: &[Value<'_>], b: &[Value<'_>]) -> Ordering {
        let orders = fields.iter().zip(a.iter().zip(b)).map(|(field, (a, b))| {
            let order = self.comparer.compare(a, b);
            if field.descending { order.reverse() } else { order }
        });
        orders
            .into_iter()
            .find(|order| order.is_ne())
            .unwrap_or(Ordering::Equal)
    }
}

pub(super) fn parse_sort_array(parser: &mut Parser<'_>, raw: RawBsonRef<'_>) -> Result<Node, QueryError> {
    let found = Value::from_raw(raw).type_name();
    let not_object = (
        2942500,
        format!("$sortArray requires an object as an argument, found: {found}"),
    );
    let [input, order] = named_fields("$sortArray", raw, ["input", "sortBy"], not_object, 2942501)?;
    let Some(input) = input else {
        return failure(2942502, "$sortArray requires 'input' to be specified");
    };
    let Some(order) = order else {
        return failure(2942503, "$sortArray requires 'sortBy' to be specified");
    };
    let comparer = parser.context.comparer.clone();
    let order = match order {
        RawBsonRef::Document(pattern) => ArrayOrder::Fields(parse_field_orders(pattern)?),
        other => {
            let direction = Value::from_raw(other);
            match is_descending(&direction) {
                Some(descending) => ArrayOrder::Whole { descending },
                None => {
                    return failure(
                        if direction.is_number() { 2942506 } else { 2942507 },
                        "Illegal sort specification: sortBy must be 1, -1 or a sort pattern",
                    );
                }
            }
        }
    };
    let input = parser.operand(input)?;
    Ok(Node::Special(Box::new(SortArray { input, order, comparer })))
}

/// `$meta`: what is known of the document beside its fields.
#[derive(Debug)]
struct Meta(MetadataField);

impl Special for Meta {
    fn evaluate<'a>(&'a self, evaluation: &mut Evaluation<'a>) -> Computed<'a> {
        Ok(evaluation.context.metadata(self.0))
    }

    fn visit_children(&self, _: &mut dyn FnMut(&Node)) {}

    fn is_pure(&self) -> bool {
        false
    }
}

pub(super) fn parse_meta(parser: &Parser<'_>, raw: RawBsonRef<'_>) -> Result<Node, QueryError> {
    let RawBsonRef::String(name) = raw else {
        return failure(17307, "$meta only supports string arguments");
    };
    let field = MetadataField::parse(name)?;
    parser.context.note_needs(MetadataNeeds::of(field));
    Ok(Node::Special(Box::new(Meta(field))))
}

struct Rand {
    random: Arc<dyn Random>,
}

impl std::fmt::Debug for Rand {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("$rand")
    }
}

impl Special for Rand {
    fn evaluate<'a>(&'a self, _: &mut Evaluation<'a>) -> Computed<'a> {
        // 53 random bits: every multiple of 2^-53 in [0, 1).
        Ok(Value::Double(
            (self.random.next_u64() >> 11) as f64 * (1.0 / (1_u64 << 53) as f64),
        ))
    }

    fn visit_children(&self, _: &mut dyn FnMut(&Node)) {}

    fn is_pure(&self) -> bool {
        false
    }
}

pub(super) fn parse_rand(parser: &Parser<'_>, raw: RawBsonRef<'_>) -> Result<Node, QueryError> {
    let is_empty = match raw {
        RawBsonRef::Document(document) => document.is_empty(),
        RawBsonRef::Array(array) => array.is_empty(),
        _ => return failure(10065, "invalid parameter: expected an object ($rand)"),
    };
    if !is_empty {
        return failure(3040501, "$rand does not currently accept arguments");
    }
    Ok(Node::Special(Box::new(Rand {
        random: parser.context.random.clone(),
    })))
}
