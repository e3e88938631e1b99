//! What the operators of updates do, told again on decoded documents: one path after the other, top-down. Numbers and
//! paths are its own; the order of values is that of the server, which other tests know.

use super::generate::raw;
use crate::matcher::Matcher;
use crate::value::{Comparer, Value};
use crate::{EvaluationContext, expression::ExpressionContext};
use bson::{Bson, DateTime, Decimal128, Document, doc};
use std::cmp::Ordering;
use std::sync::Arc;
use vfs::SeededRandom;

/// Why there is no document.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Refused,
    /// More digits than the model has.
    Unknown,
}

use Verdict::{Refused, Unknown};

#[derive(Clone, Debug)]
pub(super) enum Operator {
    Set(Bson),
    SetOnInsert(Bson),
    Unset,
    Inc(Bson),
    Mul(Bson),
    Min(Bson),
    Max(Bson),
    CurrentDate,
    Push(Push),
    AddToSet(Vec<Bson>),
    Pop(i32),
    Pull(Bson),
    PullAll(Vec<Bson>),
    Bit(&'static str, Bson),
    Rename(&'static str),
}

#[derive(Clone, Debug)]
pub(super) struct Push {
    pub(super) each: Vec<Bson>,
    pub(super) position: Option<i32>,
    pub(super) slice: Option<i32>,
    pub(super) sort: Option<i32>,
}

impl Operator {
    /// Its name and its argument.
    pub(super) fn written(&self) -> (&'static str, Bson) {
        match self {
            Self::Set(value) => ("$set", value.clone()),
            Self::SetOnInsert(value) => ("$setOnInsert", value.clone()),
            Self::Unset => ("$unset", 1.into()),
            Self::Inc(by) => ("$inc", by.clone()),
            Self::Mul(by) => ("$mul", by.clone()),
            Self::Min(value) => ("$min", value.clone()),
            Self::Max(value) => ("$max", value.clone()),
            Self::CurrentDate => ("$currentDate", true.into()),
            Self::Push(push) => {
                let mut argument = doc! { "$each": push.each.clone() };
                for (name, value) in [
                    ("$position", push.position),
                    ("$slice", push.slice),
                    ("$sort", push.sort),
                ] {
                    value.into_iter().for_each(|value| drop(argument.insert(name, value)));
                }
                ("$push", argument.into())
            }
            Self::AddToSet(each) => ("$addToSet", doc! { "$each": each.clone() }.into()),
            Self::Pop(end) => ("$pop", (*end).into()),
            Self::Pull(condition) => ("$pull", condition.clone()),
            Self::PullAll(values) => ("$pullAll", values.clone().into()),
            &Self::Bit(operation, ref by) => ("$bit", doc! { operation: by.clone() }.into()),
            Self::Rename(to) => ("$rename", (*to).into()),
        }
    }

    fn creates(&self) -> bool {
        !matches!(
            self,
            Self::SetOnInsert(_) | Self::Unset | Self::Pop(_) | Self::Pull(_) | Self::PullAll(_)
        )
    }

    /// The value in the place of one that is there; `None` takes the field away.
    fn change(&self, old: &Bson, now: DateTime) -> Result<Option<Bson>, Verdict> {
        Ok(Some(match self {
            Self::Set(value) => value.clone(),
            Self::SetOnInsert(_) | Self::Rename(_) => old.clone(),
            Self::Unset => return Ok(None),
            Self::Inc(by) => unless_equal(old, sum(old, by)?),
            Self::Mul(by) => unless_equal(old, product(old, by)?),
            Self::Min(value) if compare(value, old).is_lt() => value.clone(),
            Self::Max(value) if compare(value, old).is_gt() => value.clone(),
            Self::Min(_) | Self::Max(_) => old.clone(),
            Self::CurrentDate => now.into(),
            Self::Bit(operation, by) => bits(operation, old, by)?,
            _ => {
                let Bson::Array(items) = old else {
                    return Err(Refused);
                };
                self.change_array(items.clone())?.into()
            }
        }))
    }

    fn change_array(&self, mut items: Vec<Bson>) -> Result<Vec<Bson>, Verdict> {
        match self {
            Self::Push(push) => {
                let at = match push.position {
                    None => items.len(),
                    Some(at) if at < 0 => items.len().saturating_sub(at.unsigned_abs() as usize),
                    Some(at) => items.len().min(at as usize),
                };
                drop(items.splice(at..at, push.each.iter().cloned()));
                match push.sort {
                    Some(1) => items.sort_by(compare),
                    Some(_) => items.sort_by(|a, b| compare(b, a)),
                    None => {}
                }
                match push.slice {
                    Some(last) if last < 0 => {
                        drop(items.drain(..items.len().saturating_sub(last.unsigned_abs() as usize)))
                    }
                    Some(first) => items.truncate(first as usize),
                    None => {}
                }
            }
            Self::AddToSet(each) => {
                for value in each {
                    if !items.iter().any(|item| compare(item, value).is_eq()) {
                        items.push(value.clone());
                    }
                }
            }
            Self::Pop(1) => drop(items.pop()),
            Self::Pop(_) => drop(items.drain(..items.len().min(1))),
            Self::Pull(Bson::Document(condition)) => {
                let is_operator = condition.keys().next().is_some_and(|name| name.starts_with('$'));
                let filter = match is_operator {
                    true => doc! { "item": condition.clone() },
                    false => condition.clone(),
                };
                items.retain(|item| match (is_operator, item) {
                    (true, item) => !matches(&filter, &doc! { "item": item.clone() }),
                    (false, Bson::Document(item)) => !matches(&filter, item),
                    _ => true,
                });
            }
            Self::Pull(value) => items.retain(|item| compare(item, value).is_ne()),
            Self::PullAll(values) => items.retain(|item| !values.iter().any(|value| compare(item, value).is_eq())),
            other => unreachable!("{other:?}"),
        }
        Ok(items)
    }

    /// The value of a field that is not there.
    fn create(&self, now: DateTime) -> Result<Bson, Verdict> {
        Ok(match self {
            Self::Set(value) | Self::Min(value) | Self::Max(value) | Self::Inc(value) => value.clone(),
            Self::Mul(by) => match by {
                Bson::Int32(_) => Bson::Int32(0),
                Bson::Int64(_) => Bson::Int64(0),
                Bson::Double(_) => Bson::Double(0.0),
                _ => Decimal::finite(false, 0, 0).to_bson()?,
            },
            Self::CurrentDate => now.into(),
            Self::Bit(operation, by) => match by {
                Bson::Int32(_) => bits(operation, &Bson::Int32(0), by)?,
                _ => bits(operation, &Bson::Int64(0), by)?,
            },
            Self::Push(_) | Self::AddToSet(_) => self.change_array(Vec::new())?.into(),
            other => unreachable!("{other:?}"),
        })
    }
}

fn matches(filter: &Document, document: &Document) -> bool {
    let context = ExpressionContext::new(0, Arc::new(SeededRandom::new(11)));
    let matcher = Matcher::parse(&raw(filter), &context).expect("a filter");
    matcher
        .matches(&raw(document), &EvaluationContext::uninterrupted())
        .expect("matchable")
}

pub(super) fn compare(a: &Bson, b: &Bson) -> Ordering {
    let both = raw(&doc! { "a": a.clone(), "b": b.clone() });
    let value = |name: &str| Value::field(&both, name).expect("there");
    Comparer::default().compare(&value("a"), &value("b"))
}

/// An update: operators at paths, of which none leads to or through another's, and the condition on `e` of `$[e]`.
#[derive(Clone, Debug)]
pub(super) struct Update {
    pub(super) leaves: Vec<(String, Operator)>,
    pub(super) filter: Option<Document>,
    pub(super) now: DateTime,
}

impl Update {
    pub(super) fn written(&self) -> Document {
        let mut update = Document::new();
        for (path, operator) in &self.leaves {
            let (name, argument) = operator.written();
            let fields = update.entry(name.to_owned()).or_insert_with(|| Document::new().into());
            fields.as_document_mut().expect("fields").insert(path, argument);
        }
        update
    }

    pub(super) fn apply(&self, document: &Document) -> Result<Document, Verdict> {
        let mut leaves = Vec::new();
        for (path, operator) in &self.leaves {
            match operator {
                Operator::Rename(to) => {
                    if let Some(value) = document.get(path) {
                        leaves.push(((*to).to_owned(), Operator::Set(value.clone())));
                        leaves.push((path.clone(), Operator::Unset));
                    }
                }
                other => leaves.push((path.clone(), other.clone())),
            }
        }
        leaves.sort_by(|one, other| in_order(&one.0, &other.0));
        let mut changed = Bson::Document(document.clone());
        for (path, operator) in &leaves {
            let names: Vec<&str> = path.split('.').collect();
            self.descend(&mut changed, &names, operator)?;
        }
        match changed {
            Bson::Document(changed) => Ok(changed),
            other => unreachable!("{other}"),
        }
    }

    fn descend(&self, target: &mut Bson, names: &[&str], operator: &Operator) -> Result<(), Verdict> {
        let Some((&name, rest)) = names.split_first() else {
            return Ok(());
        };
        if name.starts_with("$[") {
            let Bson::Array(items) = target else {
                return Err(Refused);
            };
            for item in items {
                let is_met = self
                    .filter
                    .as_ref()
                    .filter(|_| name == "$[e]")
                    .is_none_or(|filter| matches(filter, &doc! { "e": item.clone() }));
                if is_met {
                    self.element(item, rest, operator)?;
                }
            }
            return Ok(());
        }
        match target {
            Bson::Document(fields) => match fields.get_mut(name) {
                Some(old) if rest.is_empty() => match operator.change(old, self.now)? {
                    Some(new) => *old = new,
                    None => drop(fields.remove(name)),
                },
                Some(inner) => self.descend(inner, rest, operator)?,
                None if names.iter().any(|name| name.starts_with("$[")) => return Err(Refused),
                None if operator.creates() => {
                    let created = self.create(rest, operator)?;
                    fields.insert(name, created);
                }
                None => {}
            },
            Bson::Array(items) => match name.parse::<usize>() {
                Ok(at) if at < items.len() => self.element(&mut items[at], rest, operator)?,
                _ if names.iter().any(|name| name.starts_with("$[")) => return Err(Refused),
                Ok(at) if operator.creates() => {
                    let created = self.create(rest, operator)?;
                    items.resize(at, Bson::Null);
                    items.push(created);
                }
                Ok(_) => {}
                Err(_) if matches!(operator, Operator::Unset | Operator::SetOnInsert(_)) => {}
                Err(_) => return Err(Refused),
            },
            _ if names.iter().any(|name| name.starts_with("$[")) => return Err(Refused),
            _ if matches!(operator, Operator::Unset | Operator::SetOnInsert(_)) => {}
            _ => return Err(Refused),
        }
        Ok(())
    }

    /// An element stays where a field would go.
    fn element(&self, item: &mut Bson, rest: &[&str], operator: &Operator) -> Result<(), Verdict> {
        if rest.is_empty() {
            *item = operator.change(item, self.now)?.unwrap_or(Bson::Null);
            return Ok(());
        }
        self.descend(item, rest, operator)
    }

    fn create(&self, rest: &[&str], operator: &Operator) -> Result<Bson, Verdict> {
        Ok(match rest.split_first() {
            None => operator.create(self.now)?,
            Some((&name, rest)) => doc! { name: self.create(rest, operator)? }.into(),
        })
    }
}

/// The order in which paths are followed: by name, numbers by their size.
fn in_order(one: &str, other: &str) -> Ordering {
    let pairs = one.split('.').zip(other.split('.'));
    let order = pairs.map(|(a, b)| match (a.parse::<u32>(), b.parse::<u32>()) {
        (Ok(a), Ok(b)) => a.cmp(&b),
        _ => a.cmp(b),
    });
    order.fold(Ordering::Equal, Ordering::then)
}

fn bits(operation: &str, old: &Bson, by: &Bson) -> Result<Bson, Verdict> {
    let of = |a: i64, b: i64| match operation {
        "and" => a & b,
        "or" => a | b,
        _ => a ^ b,
    };
    match (old, by) {
        (Bson::Int32(a), Bson::Int32(b)) => Ok(Bson::Int32(of((*a).into(), (*b).into()) as i32)),
        _ => match (integer(old), integer(by)) {
            (Some(a), Some(b)) => Ok(Bson::Int64(of(a, b))),
            _ => Err(Refused),
        },
    }
}

fn integer(value: &Bson) -> Option<i64> {
    match value {
        Bson::Int32(value) => Some((*value).into()),
        Bson::Int64(value) => Some(*value),
        _ => None,
    }
}

fn double(value: &Bson) -> Option<f64> {
    match value {
        Bson::Double(value) => Some(*value),
        other => integer(other).map(|value| value as f64),
    }
}

fn sum(a: &Bson, b: &Bson) -> Result<Bson, Verdict> {
    arithmetic(a, b, i64::checked_add, |a, b| a + b, Decimal::plus)
}

fn product(a: &Bson, b: &Bson) -> Result<Bson, Verdict> {
    arithmetic(a, b, i64::checked_mul, |a, b| a * b, Decimal::times)
}

/// A number equal to the old one, of its type, takes its place in no other form: -0 stays, and so does 1.0.
fn unless_equal(old: &Bson, new: Bson) -> Bson {
    match old.element_type() == new.element_type() && compare(old, &new).is_eq() {
        true => old.clone(),
        false => new,
    }
}

/// In the wider type of the two; of 32 bits goes to 64, beyond those is refused.
fn arithmetic(
    a: &Bson,
    b: &Bson,
    integers: fn(i64, i64) -> Option<i64>,
    doubles: fn(f64, f64) -> f64,
    decimals: fn(&Decimal, &Decimal) -> Option<Decimal>,
) -> Result<Bson, Verdict> {
    if matches!(a, Bson::Decimal128(_)) || matches!(b, Bson::Decimal128(_)) {
        let (a, b) = (Decimal::of(a).ok_or(Refused)?, Decimal::of(b).ok_or(Refused)?);
        return decimals(&a, &b).ok_or(Unknown)?.to_bson();
    }
    if let (Some(x), Some(y)) = (integer(a), integer(b)) {
        let result = integers(x, y).ok_or(Refused)?;
        let narrow = i32::try_from(result).ok();
        let narrow = narrow.filter(|_| matches!((a, b), (Bson::Int32(_), Bson::Int32(_))));
        return Ok(narrow.map_or(Bson::Int64(result), Bson::Int32));
    }
    match (double(a), double(b)) {
        (Some(a), Some(b)) => Ok(Bson::Double(doubles(a, b))),
        _ => Err(Refused),
    }
}

/// A decimal number that is not rounded.
#[derive(Clone, Copy, Debug)]
enum Decimal {
    Nan,
    Infinite {
        negative: bool,
    },
    Finite {
        negative: bool,
        digits: u128,
        exponent: i32,
    },
}

use Decimal::{Finite, Infinite, Nan};

impl Decimal {
    fn finite(negative: bool, digits: u128, exponent: i32) -> Self {
        Finite {
            negative,
            digits,
            exponent,
        }
    }

    fn of(value: &Bson) -> Option<Self> {
        match value {
            Bson::Int32(_) | Bson::Int64(_) => {
                let value = integer(value)?;
                Some(Self::finite(value < 0, value.unsigned_abs().into(), 0))
            }
            // Doubles have fifteen digits as decimals.
            Bson::Double(value) if *value == 0.0 => Some(Self::finite(value.is_sign_negative(), 0, 0)),
            Bson::Double(value) if value.is_finite() => Self::parse(&format!("{value:.14e}")),
            Bson::Double(value) => Self::parse(&value.to_string()),
            Bson::Decimal128(value) => Self::parse(&value.to_string()),
            _ => None,
        }
    }

    fn parse(text: &str) -> Option<Self> {
        let text = text.to_ascii_lowercase();
        let (negative, text) = text
            .strip_prefix('-')
            .map_or((false, text.as_str()), |text| (true, text));
        if text.starts_with("nan") {
            return Some(Nan);
        }
        if text.starts_with("inf") {
            return Some(Infinite { negative });
        }
        let (number, exponent) = text.split_once('e').unwrap_or((text, "0"));
        let (whole, part) = number.split_once('.').unwrap_or((number, ""));
        let digits = format!("{whole}{part}").parse().ok()?;
        let exponent: i32 = exponent.trim_start_matches('+').parse().ok()?;
        Some(Self::finite(negative, digits, exponent - part.len() as i32))
    }

    fn to_bson(self) -> Result<Bson, Verdict> {
        let text = match self {
            Nan => "NaN".to_owned(),
            Infinite { negative } => format!("{}Infinity", if negative { "-" } else { "" }),
            Finite {
                negative,
                digits,
                exponent,
            } => {
                if digits >= 10_u128.pow(34) || !(-6000..6000).contains(&exponent) {
                    return Err(Unknown);
                }
                format!("{}{digits}E{exponent}", if negative { "-" } else { "" })
            }
        };
        Ok(Bson::Decimal128(text.parse::<Decimal128>().expect("a decimal")))
    }

    fn plus(&self, other: &Self) -> Option<Self> {
        let (a, b) = match (*self, *other) {
            (Nan, _) | (_, Nan) => return Some(Nan),
            (Infinite { negative: a }, Infinite { negative: b }) if a != b => return Some(Nan),
            (Infinite { negative }, _) | (_, Infinite { negative }) => return Some(Infinite { negative }),
            (a, b) => (a.signed()?, b.signed()?),
        };
        let exponent = a.2.min(b.2);
        let scaled = |(_, digits, of): (bool, i128, i32)| {
            let factor = 10_i128.checked_pow(u32::try_from(of - exponent).ok()?)?;
            digits.checked_mul(factor)
        };
        let sum = scaled(a)?.checked_add(scaled(b)?)?;
        // Of zeros only two negative ones make a negative one.
        let negative = if a.1 == 0 && b.1 == 0 { a.0 && b.0 } else { sum < 0 };
        Some(Self::finite(negative, sum.unsigned_abs(), exponent))
    }

    fn times(&self, other: &Self) -> Option<Self> {
        let is_negative = |of: &Self| matches!(of, Infinite { negative: true } | Finite { negative: true, .. });
        let negative = is_negative(self) != is_negative(other);
        match (*self, *other) {
            (Nan, _) | (_, Nan) => Some(Nan),
            (Infinite { .. }, Finite { digits: 0, .. }) | (Finite { digits: 0, .. }, Infinite { .. }) => Some(Nan),
            (Infinite { .. }, _) | (_, Infinite { .. }) => Some(Infinite { negative }),
            (
                Finite {
                    digits: a, exponent: x, ..
                },
                Finite {
                    digits: b, exponent: y, ..
                },
            ) => Some(Self::finite(negative, a.checked_mul(b)?, x + y)),
        }
    }

    fn signed(self) -> Option<(bool, i128, i32)> {
        let Finite {
            negative,
            digits,
            exponent,
        } = self
        else {
            return None;
        };
        let digits = i128::try_from(digits).ok()?;
        Some((negative, if negative { -digits } else { digits }, exponent))
    }
}
