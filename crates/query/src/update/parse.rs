//! From an operator document to its tree.

use std::collections::HashMap;

use bson::{RawBsonRef, RawDocument};

use super::array::{AddToSet, Direction, Pull, Push, PushSort};
use super::leaf::{BitOperation, Clock, End, Leaf, number_of};
use super::tree::{GrowingBranch, UpdatePath};
use super::{ArrayFilter, Operators};
use crate::QueryError;
use crate::expression::ExpressionContext;
use crate::matcher::{integral, pull_condition};
use crate::path::Path;
use crate::raw::{self, Constant, Element, Elements, nesting_depth};
use crate::value::number::Number;
use crate::value::scan::frame;

/// Results nested deeper than this are measured; shallower ones cannot exceed the limit.
const DEPTH_UNMEASURED_MAX: usize = super::DEPTH_MAX - 10;

/// Parses `{$set: {...}, $inc: {...}}`.
pub(super) fn operators(
    update: &RawDocument,
    filters: Vec<ArrayFilter>,
    context: &ExpressionContext,
) -> Result<Operators, QueryError> {
    let identifiers = filters.iter().map(|filter| filter.identifier.as_str());
    let mut parser = Parser {
        context,
        used: vec![false; filters.len()],
        filters: identifiers.zip(0..).collect(),
        tree: GrowingBranch::default(),
        is_positional: false,
        may_be_deep: false,
    };
    for element in Elements::new(update) {
        parser.operator(element?)?;
    }
    let Parser {
        used,
        tree,
        is_positional,
        may_be_deep,
        ..
    } = parser;
    if let Some((filter, _)) = filters.iter().zip(&used).find(|(_, used)| !**used) {
        return Err(QueryError::failed_to_parse(format!(
            "The array filter for identifier '{}' was not used in the update {}",
            filter.identifier,
            raw::describe(update.into())
        )));
    }
    Ok(Operators {
        tree: tree.finish(),
        filters,
        is_positional,
        may_be_deep,
    })
}

struct Parser<'p> {
    context: &'p ExpressionContext,
    /// The numbers of the array filters, by identifier.
    filters: HashMap<&'p str, usize>,
    used: Vec<bool>,
    tree: GrowingBranch,
    is_positional: bool,
    may_be_deep: bool,
}

impl Parser<'_> {
    fn operator(&mut self, operator: Element<'_>) -> Result<(), QueryError> {
        let name = operator.name_str()?;
        let parse: fn(&mut Self, &str, Element<'_>) -> Result<Leaf, QueryError> = match name {
            "$set" => |_, _, argument| Ok(Leaf::Set(constant(argument)?)),
            "$setOnInsert" => |_, _, argument| Ok(Leaf::SetOnInsert(constant(argument)?)),
            "$unset" => |_, _, _| Ok(Leaf::Unset),
            "$inc" => |_, _, argument| Ok(Leaf::Inc(numeric(argument, "increment")?)),
            "$mul" => |_, _, argument| Ok(Leaf::Mul(numeric(argument, "multiply")?)),
            "$min" => |_, _, argument| Ok(Leaf::Min(constant(argument)?)),
            "$max" => |_, _, argument| Ok(Leaf::Max(constant(argument)?)),
            "$currentDate" => |_, _, argument| Ok(Leaf::CurrentDate(clock(argument)?)),
            "$bit" => |_, _, argument| bit(argument),
            "$push" => |_, _, argument| push(argument),
            "$addToSet" => |_, _, argument| add_to_set(argument),
            "$pop" => |_, _, argument| pop(argument),
            "$pull" => |this, _, argument| {
                Ok(Leaf::Pull(Pull::Matching(pull_condition(
                    argument.value()?,
                    this.context,
                )?)))
            },
            "$pullAll" => |_, _, argument| pull_all(argument),
            "$rename" => |this, path, argument| this.rename(path, argument),
            name => {
                return Err(QueryError::failed_to_parse(format!(
                    "Unknown modifier: {name}. Expected a valid update modifier or pipeline-style update specified as \
                     an array"
                )));
            }
        };
        let RawBsonRef::Document(arguments) = operator.value()? else {
            let found = raw::type_name(operator.element_type()?);
            let given = raw::describe_element(operator);
            return Err(QueryError::failed_to_parse(format!(
                "Modifiers operate on fields but we found type {found} instead. For example: {{$mod: {{<field>: ...}}}} \
                 not {{{given}}}"
            )));
        };
        for argument in Elements::new(arguments) {
            let argument = argument?;
            let text = argument.name_str()?;
            let path = self.path(text)?;
            let leaf = parse(self, text, argument)?;
            let depth = match argument.kind() {
                raw::kind::DOCUMENT | raw::kind::ARRAY => nesting_depth(argument.frame()?)?,
                _ => 0,
            };
            self.may_be_deep |= leaf.is_rename() || path.steps.len() + depth > DEPTH_UNMEASURED_MAX;
            self.tree.insert(&path, leaf)?;
        }
        Ok(())
    }

    fn path(&mut self, text: &str) -> Result<UpdatePath, QueryError> {
        let (filters, used) = (&self.filters, &mut self.used);
        let path = UpdatePath::parse(text, |identifier| {
            let number = *filters.get(identifier)?;
            used[number] = true;
            Some(number)
        })?;
        self.is_positional |= text.split('.').any(|part| part == "$");
        Ok(path)
    }

    /// Puts the receiving half into the tree and gives the leaving half.
    fn rename(&mut self, from: &str, argument: Element<'_>) -> Result<Leaf, QueryError> {
        let given = raw::describe_element(argument);
        let RawBsonRef::String(to) = argument.value()? else {
            return Err(QueryError::bad_value(format!(
                "The 'to' field for $rename must be a string: {given}"
            )));
        };
        if from == to {
            return Err(QueryError::bad_value(format!(
                "The source and target field for $rename must differ: {given}"
            )));
        }
        let (source, target) = (self.path(from)?, self.path(to)?);
        for (path, what) in [(&source, "source"), (&target, "destination")] {
            if path.is_dynamic() {
                return Err(QueryError::bad_value(format!(
                    "The {what} field for $rename may not be dynamic: {}",
                    path.text
                )));
            }
        }
        if from.starts_with(&format!("{to}.")) || to.starts_with(&format!("{from}.")) {
            return Err(QueryError::bad_value(format!(
                "The source and target field for $rename must not be on the same path: {given}"
            )));
        }
        self.tree.insert(&target, Leaf::RenameTo(Path::new(from)?))?;
        Ok(Leaf::RenameFrom)
    }
}

fn constant(argument: Element<'_>) -> Result<Constant, QueryError> {
    Ok(Constant::of(argument)?)
}

fn numeric(argument: Element<'_>, verb: &str) -> Result<Number, QueryError> {
    number_of(argument.value()?).ok_or_else(|| {
        let given = raw::describe_element(argument);
        QueryError::type_mismatch(format!("Cannot {verb} with non-numeric argument: {{{given}}}"))
    })
}

fn clock(argument: Element<'_>) -> Result<Clock, QueryError> {
    match argument.value()? {
        RawBsonRef::Boolean(_) => Ok(Clock::Date),
        RawBsonRef::Document(options) => {
            let mut clock = None;
            for option in Elements::new(options) {
                let option = option?;
                match (option.name(), option.value()?) {
                    (b"$type", RawBsonRef::String("date")) => clock = Some(Clock::Date),
                    (b"$type", RawBsonRef::String("timestamp")) => clock = Some(Clock::Timestamp),
                    (b"$type", _) => clock = None,
                    _ => {
                        let name = option.name_lossy();
                        return Err(QueryError::bad_value(format!(
                            "Unrecognized $currentDate option: {name}"
                        )));
                    }
                }
            }
            clock.ok_or_else(|| {
                QueryError::bad_value(
                    "The '$type' string field is required to be 'date' or 'timestamp': {$currentDate: {field : {$type: \
                     'date'}}}",
                )
            })
        }
        _ => Err(QueryError::bad_value(format!(
            "{} is not valid type for $currentDate. Please use a boolean ('true') or a $type expression ({{$type: \
             'timestamp/date'}}).",
            raw::type_name(argument.element_type()?)
        ))),
    }
}

fn bit(argument: Element<'_>) -> Result<Leaf, QueryError> {
    let given = raw::describe_element(argument);
    let RawBsonRef::Document(operations) = argument.value()? else {
        return Err(QueryError::bad_value(format!(
            "The $bit modifier is not compatible with a {}. It must be an embedded document such as {{field: {{and: \
             #}}}}",
            raw::type_name(argument.element_type()?)
        )));
    };
    let mut parsed = Vec::new();
    for operation in Elements::new(operations) {
        let operation = operation?;
        let name = match operation.name() {
            b"and" => BitOperation::And,
            b"or" => BitOperation::Or,
            b"xor" => BitOperation::Xor,
            _ => {
                return Err(QueryError::bad_value(format!(
                    "The $bit modifier only supports 'and', 'or', and 'xor', not '{}' which is an unknown operator: \
                     {{{given}}}",
                    operation.name_lossy()
                )));
            }
        };
        match number_of(operation.value()?) {
            Some(number @ (Number::Int32(_) | Number::Int64(_))) => parsed.push((name, number)),
            _ => {
                return Err(QueryError::bad_value(format!(
                    "The $bit modifier field must be an Integer(32/64 bit); a '{}' is not supported here: {{{given}}}",
                    raw::type_name(operation.element_type()?)
                )));
            }
        }
    }
    if parsed.is_empty() {
        return Err(QueryError::bad_value(format!(
            "You must pass in at least one bitwise operation. The format is: {{$bit: {{field: {{and/or/xor: #}}}}}}, \
             found: {{{given}}}"
        )));
    }
    Ok(Leaf::Bit(parsed))
}

/// The elements of `$each`.
fn each(element: Element<'_>, operator: &str) -> Result<Vec<Constant>, QueryError> {
    let RawBsonRef::Array(array) = element.value()? else {
        let message = format!(
            "The argument to $each in {operator} must be an array but it was of type: {}",
            raw::type_name(element.element_type()?)
        );
        return Err(if operator == "$push" {
            QueryError::bad_value(message)
        } else {
            QueryError::type_mismatch(message)
        });
    };
    Elements::new(frame(array.as_bytes())?)
        .map(|item| constant(item?))
        .collect()
}

fn integer(element: Element<'_>, name: &str) -> Result<i64, QueryError> {
    integral(element.value()?).ok_or_else(|| {
        let found = element.element_type().map(raw::type_name).unwrap_or("unknown");
        QueryError::bad_value(format!(
            "The value for {name} must be an integer value but was given type: {found}"
        ))
    })
}

fn push(argument: Element<'_>) -> Result<Leaf, QueryError> {
    let mut push = Push {
        values: Vec::new(),
        position: None,
        slice: None,
        sort: None,
    };
    let modifiers = match argument.value()? {
        RawBsonRef::Document(document) if raw::find(document, b"$each")?.is_some() => document,
        _ => {
            push.values.push(constant(argument)?);
            return Ok(Leaf::Push(push));
        }
    };
    for modifier in Elements::new(modifiers) {
        let modifier = modifier?;
        match modifier.name() {
            b"$each" => push.values = each(modifier, "$push")?,
            b"$position" => push.position = Some(integer(modifier, "$position")?),
            b"$slice" => push.slice = Some(integer(modifier, "$slice")?),
            b"$sort" => push.sort = Some(push_sort(modifier)?),
            _ => {
                let name = modifier.name_lossy();
                return Err(QueryError::bad_value(format!("Unrecognized clause in $push: {name}")));
            }
        }
    }
    Ok(Leaf::Push(push))
}

fn direction(element: Element<'_>) -> Result<Direction, QueryError> {
    match integral(element.value()?) {
        Some(1) => Ok(Direction::Rising),
        Some(-1) => Ok(Direction::Falling),
        _ => Err(QueryError::bad_value("The $sort element value must be either 1 or -1")),
    }
}

fn push_sort(element: Element<'_>) -> Result<PushSort, QueryError> {
    let RawBsonRef::Document(fields) = element.value()? else {
        return match element.is_number() {
            true => Ok(PushSort::Whole(direction(element)?)),
            false => Err(QueryError::bad_value(
                "The $sort is invalid: use 1/-1 to sort the whole element, or \
                 {field:1/-1} to sort embedded fields",
            )),
        };
    };
    let mut parsed = Vec::new();
    for field in Elements::new(fields) {
        let field = field?;
        let name = field.name_str()?;
        if name.split('.').any(str::is_empty) {
            let message = format!("The $sort field is a dotted field but has an empty part: {name}");
            return Err(QueryError::bad_value(message));
        }
        parsed.push((Path::new(name)?, direction(field)?));
    }
    if parsed.is_empty() {
        return Err(QueryError::bad_value(
            "The $sort pattern is empty when it should be a set of fields.",
        ));
    }
    Ok(PushSort::Fields(parsed))
}

fn add_to_set(argument: Element<'_>) -> Result<Leaf, QueryError> {
    let values = match argument.value()? {
        RawBsonRef::Document(document) => match Elements::new(document).next().transpose()? {
            Some(first) if first.name() == b"$each" => {
                if let Some(other) = Elements::new(document).nth(1).transpose()? {
                    let given = raw::describe_element(other);
                    let message = format!("Found unexpected fields after $each in $addToSet: {given}");
                    return Err(QueryError::bad_value(message));
                }
                each(first, "$addToSet")?
            }
            _ => vec![constant(argument)?],
        },
        _ => vec![constant(argument)?],
    };
    Ok(Leaf::AddToSet(AddToSet { values }))
}

fn pop(argument: Element<'_>) -> Result<Leaf, QueryError> {
    let value = argument.value()?;
    if !argument.is_number() {
        let given = raw::describe_element(argument);
        return Err(QueryError::failed_to_parse(format!("Expected a number in: {given}")));
    }
    match integral(value) {
        Some(1) => Ok(Leaf::Pop(End::Last)),
        Some(-1) => Ok(Leaf::Pop(End::First)),
        _ => Err(QueryError::failed_to_parse(format!(
            "$pop expects 1 or -1, found: {}",
            raw::describe(value)
        ))),
    }
}

fn pull_all(argument: Element<'_>) -> Result<Leaf, QueryError> {
    let RawBsonRef::Array(array) = argument.value()? else {
        return Err(QueryError::bad_value(format!(
            "$pullAll requires an array argument but was given a {}",
            raw::type_name(argument.element_type()?)
        )));
    };
    let values = Elements::new(frame(array.as_bytes())?)
        .map(|item| constant(item?))
        .collect::<Result<_, _>>()?;
    Ok(Leaf::Pull(Pull::Equal(values)))
}
