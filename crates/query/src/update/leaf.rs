//! The operators on one value.
//!
//! Each has two entries: [`Leaf::change`] for a value that is there, [`Leaf::create`] for one that is not. They write
//! the new value's type and bytes and say whether it differs; where the value lies is not their business.

use std::cmp::Ordering;
use std::sync::Arc;

use bson::{RawBsonRef, RawDocument};
use keys::Collator;

use super::UpdateContext;
use super::array::{AddToSet, Pull, Push};
use crate::QueryError;
use crate::evaluation::EvaluationContext;
use crate::matcher::Scope;
use crate::path::Path;
use crate::raw::{self, Constant, Element};
use crate::value::number::{Number, as_integer};
use crate::value::{BYTES_PER_STEP, Value};

/// An operator with its argument.
#[derive(Clone, Debug)]
pub(super) enum Leaf {
    Set(Constant),
    SetOnInsert(Constant),
    Unset,
    Inc(Number),
    Mul(Number),
    Min(Constant),
    Max(Constant),
    CurrentDate(Clock),
    Bit(Vec<(BitOperation, Number)>),
    Push(Push),
    AddToSet(AddToSet),
    Pop(End),
    Pull(Pull),
    /// `$rename`, at the old name.
    RenameFrom,
    /// `$rename`, at the new name.
    RenameTo(Path),
}

/// The types of `$currentDate`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Clock {
    Date,
    Timestamp,
}

/// The ends of an array, for `$pop`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    First,
    Last,
}

/// The operations of `$bit`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BitOperation {
    And,
    Or,
    Xor,
}

/// What became of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// Nothing; nothing of use was written.
    Same,
    /// The new type byte; the value's bytes were written.
    Value(u8),
    /// The field goes away.
    Removed,
}

/// What the operators look at besides the value.
pub(super) struct Surroundings<'a> {
    pub(super) root: &'a RawDocument,
    pub(super) context: &'a UpdateContext,
    pub(super) evaluation: &'a EvaluationContext<'a>,
    pub(super) is_insert: bool,
    pub(super) collator: Option<&'a Arc<dyn Collator>>,
}

impl Surroundings<'_> {
    pub(super) fn collator(&self) -> Option<&dyn Collator> {
        self.collator.map(|collator| &**collator)
    }

    /// What filters on elements are evaluated with.
    pub(super) fn scope(&self) -> Scope<'_> {
        Scope {
            collator: self.collator(),
            context: self.evaluation,
        }
    }

    /// The document for messages: `{_id: 1}`.
    pub(super) fn id(&self) -> String {
        match raw::find(self.root, b"_id") {
            Ok(Some(id)) => format!("{{{}}}", raw::describe_element(id)),
            _ => "{}".to_owned(),
        }
    }
}

impl Leaf {
    /// Whether it makes a field where there is none.
    pub(super) fn creates(&self, around: &Surroundings<'_>) -> Result<bool, QueryError> {
        Ok(match self {
            Leaf::SetOnInsert(_) => around.is_insert,
            Leaf::Unset | Leaf::Pop(_) | Leaf::Pull(_) | Leaf::RenameFrom => false,
            // An end of the operation must not read as "nothing": the old name would go without the new one.
            Leaf::RenameTo(source) => rename_source(around, source)?.is_some(),
            _ => true,
        })
    }

    /// Whether it makes no field, but insists that one could be where its path leads; `$unset` does not.
    pub(super) fn needs_viable_path(&self) -> bool {
        matches!(self, Leaf::Pop(_) | Leaf::Pull(_) | Leaf::RenameFrom)
    }

    /// Whether it can only take away from a value that is there.
    pub(super) fn only_removes(&self) -> bool {
        matches!(self, Leaf::Unset | Leaf::Pop(_) | Leaf::Pull(_) | Leaf::RenameFrom)
    }

    /// Whether it is half of a `$rename`.
    pub(super) fn is_rename(&self) -> bool {
        matches!(self, Leaf::RenameFrom | Leaf::RenameTo(_))
    }

    /// Applies it to a value that is there.
    pub(super) fn change(
        &self,
        element: Element<'_>,
        around: &Surroundings<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Change, QueryError> {
        let written = match self {
            Leaf::Set(value) => put(value, out),
            Leaf::SetOnInsert(value) if around.is_insert => put(value, out),
            Leaf::SetOnInsert(_) => return Ok(Change::Same),
            Leaf::Unset | Leaf::RenameFrom => return Ok(Change::Removed),
            Leaf::Inc(by) => {
                let old = numeric(element, "$inc", around)?;
                return Ok(replace_number(old, sum(old, *by, element, around)?, out));
            }
            Leaf::Mul(by) => {
                let old = numeric(element, "$mul", around)?;
                return Ok(replace_number(old, product(old, *by, element, around)?, out));
            }
            Leaf::Min(value) if order(value, element, around)? == Ordering::Less => put(value, out),
            Leaf::Max(value) if order(value, element, around)? == Ordering::Greater => put(value, out),
            Leaf::Min(_) | Leaf::Max(_) => return Ok(Change::Same),
            Leaf::CurrentDate(clock) => put_now(*clock, around.context, out),
            Leaf::Bit(operations) => put_number(bits(element, operations, around)?, out),
            Leaf::Push(push) => return push.change(element, around, out),
            Leaf::AddToSet(add) => return add.change(element, around, out),
            Leaf::Pop(end) => return super::array::pop(*end, element, out),
            Leaf::Pull(pull) => return pull.change(element, around, out),
            Leaf::RenameTo(source) => match rename_source(around, source)? {
                Some(source) => {
                    out.extend_from_slice(source.value_bytes());
                    source.kind()
                }
                None => return Ok(Change::Same),
            },
        };
        Ok(Change::Value(written))
    }

    /// Writes the value of a field that is not there; `None` leaves it so.
    pub(super) fn create(&self, around: &Surroundings<'_>, out: &mut Vec<u8>) -> Result<Option<u8>, QueryError> {
        Ok(Some(match self {
            Leaf::Set(value) | Leaf::Min(value) | Leaf::Max(value) => put(value, out),
            Leaf::SetOnInsert(value) if around.is_insert => put(value, out),
            Leaf::SetOnInsert(_) | Leaf::Unset | Leaf::Pop(_) | Leaf::Pull(_) | Leaf::RenameFrom => return Ok(None),
            Leaf::Inc(by) => put_number(*by, out),
            Leaf::Mul(by) => put_number(zero_like(*by), out),
            Leaf::CurrentDate(clock) => put_now(*clock, around.context, out),
            Leaf::Bit(operations) => {
                let zero = operations
                    .first()
                    .map_or(Number::Int32(0), |(_, operand)| zero_like(*operand));
                put_number(
                    operations
                        .iter()
                        .fold(zero, |number, operation| bit(number, *operation)),
                    out,
                )
            }
            Leaf::Push(push) => push.create(around, out)?,
            Leaf::AddToSet(add) => add.create(around, out)?,
            Leaf::RenameTo(source) => match rename_source(around, source)? {
                Some(source) => {
                    out.extend_from_slice(source.value_bytes());
                    source.kind()
                }
                None => return Ok(None),
            },
        }))
    }
}

fn put(value: &Constant, out: &mut Vec<u8>) -> u8 {
    out.extend_from_slice(value.bytes());
    value.kind()
}

fn put_number(number: Number, out: &mut Vec<u8>) -> u8 {
    match number {
        Number::Int32(number) => {
            out.extend_from_slice(&number.to_le_bytes());
            0x10
        }
        Number::Int64(number) => {
            out.extend_from_slice(&number.to_le_bytes());
            0x12
        }
        Number::Double(number) => {
            out.extend_from_slice(&number.to_le_bytes());
            0x01
        }
        Number::Decimal(number) => {
            out.extend_from_slice(&bson::Decimal128::from(number).bytes());
            0x13
        }
    }
}

fn put_now(clock: Clock, context: &UpdateContext, out: &mut Vec<u8>) -> u8 {
    match clock {
        Clock::Date => {
            out.extend_from_slice(&context.now_ms.to_le_bytes());
            0x09
        }
        Clock::Timestamp => {
            out.extend_from_slice(&timestamp_bytes(context.timestamp));
            0x11
        }
    }
}

/// A timestamp as BSON has it.
pub(super) fn timestamp_bytes(timestamp: bson::Timestamp) -> [u8; 8] {
    (u64::from(timestamp.time) << 32 | u64::from(timestamp.increment)).to_le_bytes()
}

fn order(value: &Constant, element: Element<'_>, around: &Surroundings<'_>) -> Result<Ordering, QueryError> {
    Ok(keys::order::compare_with(
        value.value(),
        element.value()?,
        around.collator(),
    ))
}

fn zero_like(number: Number) -> Number {
    match number {
        Number::Int32(_) => Number::Int32(0),
        Number::Int64(_) => Number::Int64(0),
        Number::Double(_) => Number::Double(0.0),
        Number::Decimal(_) => Number::Decimal(keys::Decimal::ZERO),
    }
}

/// The number of a BSON value.
pub(super) fn number_of(value: RawBsonRef<'_>) -> Option<Number> {
    Number::of(&Value::from_raw(value))
}

fn type_of(element: Element<'_>) -> Result<&'static str, QueryError> {
    Ok(raw::type_name(element.element_type()?))
}

fn numeric(element: Element<'_>, operator: &str, around: &Surroundings<'_>) -> Result<Number, QueryError> {
    match number_of(element.value()?) {
        Some(number) => Ok(number),
        None => Err(QueryError::type_mismatch(format!(
            "Cannot apply {operator} to a value of non-numeric type. {} has the field '{}' of non-numeric type {}",
            around.id(),
            element.name_lossy(),
            type_of(element)?
        ))),
    }
}

/// A number that is equal to the old one and of its type is no change: a zero keeps its sign, a decimal its digits.
fn replace_number(old: Number, new: Number, out: &mut Vec<u8>) -> Change {
    let is_equal = match (old, new) {
        (Number::Double(old), Number::Double(new)) => old == new,
        (Number::Decimal(old), Number::Decimal(new)) => !old.is_nan() && old.compare(new).is_eq(),
        // Their bytes are the same then.
        _ => false,
    };
    match is_equal {
        true => Change::Same,
        false => Change::Value(put_number(new, out)),
    }
}

/// Two integers combined without loss; `None` when one is not an integer.
fn integers(a: Number, b: Number, combine: fn(i64, i64) -> Option<i64>) -> Option<Option<Number>> {
    let result = combine(as_integer(a)?, as_integer(b)?);
    Some(result.map(|result| match (a, b, i32::try_from(result)) {
        (Number::Int32(_), Number::Int32(_), Ok(small)) => Number::Int32(small),
        _ => Number::Int64(result),
    }))
}

fn overflow(operator: &str, element: Element<'_>, around: &Surroundings<'_>) -> QueryError {
    let value = element.value().map(raw::describe).unwrap_or_default();
    let kind = if element.kind() == 0x10 {
        "NumberInt"
    } else {
        "NumberLong"
    };
    QueryError::bad_value(format!(
        "Failed to apply {operator} operations to current value (({kind}){value}) for document {}",
        around.id()
    ))
}

fn sum(a: Number, b: Number, element: Element<'_>, around: &Surroundings<'_>) -> Result<Number, QueryError> {
    match integers(a, b, i64::checked_add) {
        Some(result) => result.ok_or_else(|| overflow("$inc", element, around)),
        None => Ok(a.plus(b)),
    }
}

fn product(a: Number, b: Number, element: Element<'_>, around: &Surroundings<'_>) -> Result<Number, QueryError> {
    match integers(a, b, i64::checked_mul) {
        Some(result) => result.ok_or_else(|| overflow("$mul", element, around)),
        None => Ok(a.times(b)),
    }
}

fn bit(number: Number, (operation, operand): (BitOperation, Number)) -> Number {
    let combine = match operation {
        BitOperation::And => |a: i64, b: i64| Some(a & b),
        BitOperation::Or => |a: i64, b: i64| Some(a | b),
        BitOperation::Xor => |a: i64, b: i64| Some(a ^ b),
    };
    integers(number, operand, combine).flatten().unwrap_or(number)
}

fn bits(
    element: Element<'_>,
    operations: &[(BitOperation, Number)],
    around: &Surroundings<'_>,
) -> Result<Number, QueryError> {
    match number_of(element.value()?) {
        Some(number @ (Number::Int32(_) | Number::Int64(_))) => Ok(operations.iter().copied().fold(number, bit)),
        _ => Err(QueryError::bad_value(format!(
            "Cannot apply $bit to a value of non-integral type.{} has the field {} of non-integer type {}",
            around.id(),
            element.name_lossy(),
            type_of(element)?
        ))),
    }
}

/// The field that a `$rename` moves; documents only on the way.
fn rename_source<'a>(around: &Surroundings<'a>, source: &Path) -> Result<Option<Element<'a>>, QueryError> {
    let mut frame = around.root;
    around.evaluation.steps(1 + frame.as_bytes().len() / BYTES_PER_STEP)?;
    let (last, parents) = source.parts().split_last().expect("a path has a component");
    for part in parents {
        match raw::find(frame, part.name().as_bytes())? {
            Some(parent) if parent.kind() == raw::kind::DOCUMENT => frame = parent.frame()?,
            _ => return Ok(None),
        }
    }
    Ok(raw::find(frame, last.name().as_bytes())?)
}
