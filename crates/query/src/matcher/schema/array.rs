//! Keywords about arrays.

use bson::{Bson, Document, RawBsonRef, doc};

use super::scalar::count;
use super::unordered::{compare, normal};
use super::{Fields, Parsed, Reporter, Rule, Schema, Subject, to_bson, wrong_type};
use crate::QueryError;
use crate::evaluation::EvaluationContext;
use crate::raw::{self, Constant, Element};
use crate::value::scan::Malformed;

/// `minItems` and `maxItems`.
#[derive(Debug)]
struct Length {
    name: &'static str,
    min: u64,
    max: u64,
    specified: Bson,
}

pub(super) fn min_items(_: &Fields<'_>, name: &'static str, value: RawBsonRef<'_>) -> Parsed {
    let (min, max, specified) = (count(name, value)?, u64::MAX, to_bson(value)?);
    Ok(Some(Box::new(Length {
        name,
        min,
        max,
        specified,
    })))
}

pub(super) fn max_items(_: &Fields<'_>, name: &'static str, value: RawBsonRef<'_>) -> Parsed {
    let (min, max, specified) = (0, count(name, value)?, to_bson(value)?);
    Ok(Some(Box::new(Length {
        name,
        min,
        max,
        specified,
    })))
}

impl Rule for Length {
    fn passes(&self, value: Subject<'_>, _: &EvaluationContext<'_>) -> Result<bool, QueryError> {
        let length = value.items()?.count() as u64;
        Ok((self.min..=self.max).contains(&length))
    }

    fn explain(&self, value: Subject<'_>, reporter: &Reporter<'_>, report: &mut Document) -> Result<(), QueryError> {
        let reason = "array did not match specified length";
        reporter.scalar(report, doc! { self.name: self.specified.clone() }, reason, value)?;
        report.insert("numberOfItems", value.items()?.count() as i32);
        Ok(())
    }
}

/// `uniqueItems: true`.
#[derive(Debug)]
struct UniqueItems;

pub(super) fn unique_items(_: &Fields<'_>, name: &'static str, value: RawBsonRef<'_>) -> Parsed {
    match value {
        RawBsonRef::Boolean(true) => Ok(Some(Box::new(UniqueItems))),
        RawBsonRef::Boolean(false) => Ok(None),
        _ => Err(wrong_type(name, "must be a boolean")),
    }
}

/// The first item that was there before.
fn duplicate<'a>(value: Subject<'a>, context: &EvaluationContext<'_>) -> Result<Option<Element<'a>>, QueryError> {
    let items = value.items()?.collect::<Result<Vec<_>, _>>()?;
    let mut placed = Vec::with_capacity(items.len());
    for (place, item) in items.iter().enumerate() {
        context.step()?;
        let value = item.value()?;
        placed.push((normal(value)?.unwrap_or_else(|| Constant::new(value)), place));
    }
    let sorted = context.sort(placed, |a, b| {
        compare(a.0.value(), b.0.value()).then_with(|| a.1.cmp(&b.1))
    })?;
    let repeated = sorted
        .windows(2)
        .filter(|pair| compare(pair[0].0.value(), pair[1].0.value()).is_eq())
        .map(|pair| pair[1].1);
    Ok(repeated.min().map(|place| items[place]))
}

impl Rule for UniqueItems {
    fn passes(&self, value: Subject<'_>, context: &EvaluationContext<'_>) -> Result<bool, QueryError> {
        Ok(duplicate(value, context)?.is_none())
    }

    fn explain(&self, value: Subject<'_>, reporter: &Reporter<'_>, report: &mut Document) -> Result<(), QueryError> {
        let reason = "found a duplicate item";
        reporter.scalar(report, doc! { "uniqueItems": true }, reason, value)?;
        if let Some(duplicate) = duplicate(value, reporter.context)? {
            reporter.value(report, "duplicatedValue", to_bson(duplicate.value()?)?);
        }
        Ok(())
    }
}

/// `items` with one schema for each, and `additionalItems` with one for those behind the listed ones.
#[derive(Debug)]
struct EachFrom {
    first: usize,
    schema: Schema,
}

impl EachFrom {
    fn failing<'a>(
        &self,
        value: Subject<'a>,
        context: &EvaluationContext<'_>,
    ) -> Result<Option<(usize, Subject<'a>)>, QueryError> {
        for (index, item) in value.items()?.enumerate().skip(self.first) {
            let item = Subject::Value(item?);
            if !self.schema.passes(item, context)? {
                return Ok(Some((index, item)));
            }
        }
        Ok(None)
    }
}

impl Rule for EachFrom {
    fn passes(&self, value: Subject<'_>, context: &EvaluationContext<'_>) -> Result<bool, QueryError> {
        Ok(self.failing(value, context)?.is_none())
    }

    fn explain(&self, value: Subject<'_>, reporter: &Reporter<'_>, report: &mut Document) -> Result<(), QueryError> {
        let sort = if self.first == 0 { "item" } else { "additional item" };
        let reason = format!("At least one {sort} did not match the sub-schema");
        report.insert("reason", reason);
        if let Some((index, item)) = self.failing(value, reporter.context)? {
            report.insert("itemIndex", index as i32);
            self.schema.explain_into(item, reporter, report)?;
        }
        Ok(())
    }
}

/// `items` with a list of schemas.
#[derive(Debug)]
struct Listed(Vec<Schema>);

pub(super) fn items(fields: &Fields<'_>, name: &'static str, value: RawBsonRef<'_>) -> Parsed {
    match value {
        RawBsonRef::Document(schema) => {
            let schema = fields.inner(schema)?;
            Ok(Some(Box::new(EachFrom { first: 0, schema })))
        }
        RawBsonRef::Array(listed) => {
            let mut schemas = Vec::new();
            for item in listed {
                match item.map_err(|_| Malformed)? {
                    RawBsonRef::Document(schema) => schemas.push(fields.inner(schema)?),
                    other => {
                        let found = raw::type_name(other.element_type());
                        let what = format!(
                            "requires that each element of the array is an object, but found an element of type {found}"
                        );
                        return Err(wrong_type(name, &what));
                    }
                }
            }
            Ok(Some(Box::new(Listed(schemas))))
        }
        other => {
            let found = raw::type_name(other.element_type());
            Err(wrong_type(
                name,
                &format!("must be an array or an object, but found {found}"),
            ))
        }
    }
}

impl Rule for Listed {
    fn passes(&self, value: Subject<'_>, context: &EvaluationContext<'_>) -> Result<bool, QueryError> {
        for (schema, item) in self.0.iter().zip(value.items()?) {
            if !schema.passes(Subject::Value(item?), context)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn explain(&self, value: Subject<'_>, reporter: &Reporter<'_>, report: &mut Document) -> Result<(), QueryError> {
        let mut details = Vec::new();
        for (index, (schema, item)) in self.0.iter().zip(value.items()?).enumerate() {
            let item = Subject::Value(item?);
            if !schema.passes(item, reporter.context)? {
                let mut detail = doc! { "itemIndex": index as i32 };
                schema.explain_into(item, reporter, &mut detail)?;
                details.push(Bson::Document(detail));
            }
        }
        report.insert("details", details);
        Ok(())
    }
}

/// `additionalItems: false`.
#[derive(Debug)]
struct NoMoreThan(usize);

/// Means something beside a list of schemas only.
pub(super) fn additional_items(fields: &Fields<'_>, name: &'static str, value: RawBsonRef<'_>) -> Parsed {
    let listed = match fields.get("items") {
        Some(RawBsonRef::Array(listed)) => Some(listed.into_iter().count()),
        _ => None,
    };
    let rule: Box<dyn Rule> = match value {
        RawBsonRef::Boolean(true) => return Ok(None),
        RawBsonRef::Boolean(false) => Box::new(NoMoreThan(listed.unwrap_or(0))),
        RawBsonRef::Document(schema) => Box::new(EachFrom {
            first: listed.unwrap_or(0),
            schema: fields.inner(schema)?,
        }),
        other => {
            let found = raw::type_name(other.element_type());
            let what = format!("must be either an object or a boolean, but got type {found}");
            return Err(wrong_type(name, &what));
        }
    };
    Ok(listed.map(|_| rule))
}

impl Rule for NoMoreThan {
    fn passes(&self, value: Subject<'_>, _: &EvaluationContext<'_>) -> Result<bool, QueryError> {
        Ok(value.items()?.nth(self.0).is_none())
    }

    fn explain(&self, value: Subject<'_>, reporter: &Reporter<'_>, report: &mut Document) -> Result<(), QueryError> {
        reporter.specified(report, doc! { "additionalItems": false });
        report.insert("reason", "found additional items");
        let mut others = Vec::new();
        for item in value.items()?.skip(self.0) {
            others.push(to_bson(item?.value()?)?);
        }
        reporter.value(report, "additionalItems", others);
        Ok(())
    }
}
