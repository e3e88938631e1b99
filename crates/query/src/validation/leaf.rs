//! Operators on a field: what a document has there, and why that is wrong.

use std::collections::BTreeSet;

use bson::raw::CString;
use bson::{Bson, Document, RawBsonRef, RawDocument, RawDocumentBuf, doc};

use crate::QueryError;
use crate::evaluation::EvaluationContext;
use crate::expression::ExpressionContext;
use crate::matcher::Matcher;
use crate::matcher::schema::{Reporter, to_bson};
use crate::path::{self, LeafArray, Path};
use crate::raw::{self, Element, Elements, kind};
use crate::value::scan::Malformed;

/// Values that a report shows of one field, as MongoDB's.
const VALUES_MAX: usize = 10;

const NUMBERS: &[&str] = &["decimal", "double", "int", "long"];
const BITS: &[&str] = &["binData", "decimal", "double", "int", "long"];
const TEXTS: &[&str] = &["regex", "string", "symbol"];
const ARRAYS: &[&str] = &["array"];
const GEOMETRIES: &[&str] = &["array", "object"];

/// What of a field a report shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shown {
    Nothing,
    /// An array's elements.
    Elements,
    /// An array's elements, and of what types they are.
    ElementsAndTypes,
    /// An array as it is.
    Whole,
}

/// How reports tell of an operator.
struct Wording {
    name: &'static str,
    /// The reason when the test fails, and when it succeeds and must not.
    reasons: [&'static str; 2],
    /// The types it takes, by name; none given takes all.
    expected: &'static [&'static str],
    shown: Shown,
}

const fn wording(
    name: &'static str,
    reasons: [&'static str; 2],
    expected: &'static [&'static str],
    shown: Shown,
) -> Wording {
    Wording {
        name,
        reasons,
        expected,
        shown,
    }
}

const COMPARISON: [&str; 2] = ["comparison failed", "comparison succeeded"];
const IN: [&str; 2] = ["no matching value found in array", "matching value found in array"];
const BITWISE: [&str; 2] = [
    "bitwise operator failed to match",
    "bitwise operator matched successfully",
];

/// The negative forms have the reasons of the positive ones.
const WORDINGS: [Wording; 21] = [
    wording("$eq", COMPARISON, &[], Shown::Elements),
    wording("$ne", COMPARISON, &[], Shown::Elements),
    wording("$lt", COMPARISON, &[], Shown::Elements),
    wording("$lte", COMPARISON, &[], Shown::Elements),
    wording("$gt", COMPARISON, &[], Shown::Elements),
    wording("$gte", COMPARISON, &[], Shown::Elements),
    wording("$in", IN, &[], Shown::Elements),
    wording("$nin", IN, &[], Shown::Elements),
    wording(
        "$exists",
        ["path does not exist", "path does exist"],
        &[],
        Shown::Nothing,
    ),
    wording(
        "$type",
        ["type did not match", "type did match"],
        &[],
        Shown::ElementsAndTypes,
    ),
    wording(
        "$mod",
        [
            "$mod did not evaluate to expected remainder",
            "$mod did evaluate to expected remainder",
        ],
        NUMBERS,
        Shown::Elements,
    ),
    wording(
        "$regex",
        ["regular expression did not match", "regular expression did match"],
        TEXTS,
        Shown::Elements,
    ),
    wording("$bitsAllSet", BITWISE, BITS, Shown::Elements),
    wording("$bitsAnySet", BITWISE, BITS, Shown::Elements),
    wording("$bitsAllClear", BITWISE, BITS, Shown::Elements),
    wording("$bitsAnyClear", BITWISE, BITS, Shown::Elements),
    wording(
        "$size",
        [
            "array length was not equal to given size",
            "array length was equal to given size",
        ],
        ARRAYS,
        Shown::Whole,
    ),
    wording(
        "$all",
        [
            "array did not contain all specified values",
            "array did contain all specified values",
        ],
        &[],
        Shown::Whole,
    ),
    wording(
        "$geoWithin",
        [
            "none of the considered geometries was contained within the expression's geometry",
            "at least one of considered geometries was contained within the expression's geometry",
        ],
        GEOMETRIES,
        Shown::Whole,
    ),
    wording(
        "$geoIntersects",
        [
            "none of the considered geometries intersected the expression's geometry",
            "at least one of considered geometries intersected the expression's geometry",
        ],
        GEOMETRIES,
        Shown::Whole,
    ),
    wording(
        "$elemMatch",
        [
            "array did not satisfy the child predicate",
            "array did satisfy the child predicate",
        ],
        ARRAYS,
        Shown::Whole,
    ),
];

/// See the module.
pub(super) struct Leaf {
    path: Path,
    wording: &'static Wording,
    /// The operator asks that its test fail: `$ne`, `$nin`, `$exists: false`.
    is_negated: bool,
    specified: Document,
    matcher: Matcher,
}

/// What a document has at a path.
#[derive(Default)]
struct Considered {
    values: Vec<Bson>,
    is_truncated: bool,
    /// The names of the values' types.
    types: BTreeSet<&'static str>,
    /// There is something, if only an empty array.
    is_there: bool,
}

impl Leaf {
    /// A value in place of operators.
    pub(super) fn implicit(path: &str, value: RawBsonRef<'_>, context: &ExpressionContext) -> Result<Self, QueryError> {
        let specified = doc! { path: to_bson(value)? };
        // On the fields of references there are no operators.
        if path.starts_with('$') {
            return Self::new(path, "$eq", specified, &field(path, value)?, false, context);
        }
        let name = match value {
            RawBsonRef::RegularExpression(_) => "$regex",
            _ => "$eq",
        };
        let mut test = RawDocumentBuf::new();
        test.append(cstring(name)?, value);
        let filter = field(path, RawBsonRef::Document(&test))?;
        Self::new(path, name, specified, &filter, false, context)
    }

    /// One operator.
    pub(super) fn of(
        path: &str,
        name: &str,
        value: RawBsonRef<'_>,
        options: Option<RawBsonRef<'_>>,
        is_negated: bool,
        context: &ExpressionContext,
    ) -> Result<Self, QueryError> {
        let mut test = RawDocumentBuf::new();
        test.append(cstring(name)?, value);
        if let Some(options) = options {
            test.append(cstring("$options")?, options);
        }
        let filter = field(path, RawBsonRef::Document(&test))?;
        let specified = Document::try_from(&*filter).map_err(|_| Malformed)?;
        let is_negated = is_negated || matches!(name, "$ne" | "$nin");
        Self::new(path, name, specified, &filter, is_negated, context)
    }

    fn new(
        path: &str,
        name: &str,
        specified: Document,
        filter: &RawDocument,
        is_negated: bool,
        context: &ExpressionContext,
    ) -> Result<Self, QueryError> {
        let wording = WORDINGS.iter().find(|wording| wording.name == name);
        Ok(Self {
            path: Path::new(path)?,
            wording: wording.ok_or_else(|| QueryError::not_implemented(name))?,
            is_negated,
            specified,
            matcher: Matcher::parse(filter, context)?,
        })
    }

    pub(super) fn matches(&self, document: &RawDocument, context: &EvaluationContext<'_>) -> Result<bool, QueryError> {
        self.matcher.matches(document, context)
    }

    pub(super) fn explain(
        &self,
        document: &RawDocument,
        inverted: bool,
        reporter: &Reporter<'_>,
    ) -> Result<Document, QueryError> {
        let mut report = doc! { "operatorName": self.wording.name };
        reporter.specified(&mut report, self.specified.clone());
        let reason = self.wording.reasons[usize::from(inverted != self.is_negated)];
        if self.wording.shown == Shown::Nothing {
            report.insert("reason", reason);
            return Ok(report);
        }
        let considered = self.considered(document, reporter.context)?;
        if !considered.is_there {
            report.insert("reason", "field was missing");
            return Ok(report);
        }
        let expected = self.wording.expected;
        let fits = |name: &&str| expected.contains(name);
        if !expected.is_empty() && !considered.types.is_empty() && !considered.types.iter().any(fits) {
            report.insert("reason", "type did not match");
            considered.show_types(&mut report);
            match expected {
                [only] => report.insert("expectedType", *only),
                several => report.insert("expectedTypes", several.to_vec()),
            };
            considered.show_values(&mut report, reporter);
            return Ok(report);
        }
        report.insert("reason", reason);
        considered.show_values(&mut report, reporter);
        if self.wording.shown == Shown::ElementsAndTypes {
            considered.show_types(&mut report);
        }
        Ok(report)
    }

    fn considered(&self, document: &RawDocument, context: &EvaluationContext<'_>) -> Result<Considered, QueryError> {
        let mut considered = Considered::default();
        path::any(document, &self.path, LeafArray::Whole, context, |element, _| {
            let Some(element) = element else {
                return Ok(false);
            };
            considered.is_there = true;
            if self.wording.shown == Shown::Whole || element.kind() != kind::ARRAY {
                considered.add(element)?;
                return Ok(false);
            }
            for item in Elements::new(element.frame()?) {
                context.step()?;
                considered.add(item?)?;
            }
            Ok(false)
        })?;
        Ok(considered)
    }
}

impl Considered {
    fn add(&mut self, element: Element<'_>) -> Result<(), QueryError> {
        self.types.insert(raw::type_name(element.element_type()?));
        match self.values.len() < VALUES_MAX {
            true => self.values.push(to_bson(element.value()?)?),
            false => self.is_truncated = true,
        }
        Ok(())
    }

    fn show_values(&self, report: &mut Document, reporter: &Reporter<'_>) {
        match self.values.as_slice() {
            [only] => reporter.value(report, "consideredValue", only.clone()),
            several => reporter.value(report, "consideredValues", several.to_vec()),
        }
        if self.is_truncated {
            reporter.value(report, "consideredValuesTruncated", true);
        }
    }

    fn show_types(&self, report: &mut Document) {
        let types: Vec<&str> = self.types.iter().copied().collect();
        match types.as_slice() {
            [] => {}
            [only] => drop(report.insert("consideredType", *only)),
            several => drop(report.insert("consideredTypes", several.to_vec())),
        }
    }
}

fn cstring(name: &str) -> Result<CString, QueryError> {
    Ok(CString::try_from(name.to_owned()).map_err(|_| Malformed)?)
}

/// `{ path: value }`.
fn field(path: &str, value: RawBsonRef<'_>) -> Result<RawDocumentBuf, QueryError> {
    let mut document = RawDocumentBuf::new();
    document.append(cstring(path)?, value);
    Ok(document)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bson::spec::ElementType;

    #[test]
    fn types_are_listed_as_reports_list_them() {
        for wording in &WORDINGS {
            assert!(wording.expected.is_sorted(), "{}", wording.name);
            let known = |name: &&str| {
                (0..=u8::MAX)
                    .filter_map(ElementType::from)
                    .any(|t| raw::type_name(t) == *name)
            };
            assert!(wording.expected.iter().all(known), "{}", wording.name);
        }
    }
}
