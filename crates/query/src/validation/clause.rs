//! A filter as the client wrote it, clause by clause, and what is wrong with a document by each.
//!
//! Under a negation the question turns round: a clause is wrong when the document satisfies it. So everything here is
//! asked with `inverted`. An expression that fails is wrong both ways.

use bson::{Bson, Document, RawBsonRef, RawDocument, doc};

use super::leaf::Leaf;
use crate::QueryError;
use crate::evaluation::is_interruption;
use crate::expression::{Expression, ExpressionContext};
use crate::matcher::is_operators;
use crate::matcher::schema::{Reporter, Schema, to_bson};
use crate::raw::{Element, Elements};
use crate::value::Value;
use crate::value::scan::{Malformed, frame};

/// See the module. Its depth is that of the filter, which parsing has bounded.
pub(super) enum Clause {
    /// All of them, by `$and` or by standing side by side.
    All(Vec<Clause>),
    /// `$or`.
    Any(Vec<Clause>),
    /// `$nor`.
    None(Vec<Clause>),
    /// `$not`.
    Not(Box<Clause>),
    /// An operator on a field.
    Leaf(Box<Leaf>),
    /// `$expr`.
    Expr {
        expression: Expression,
        specified: Document,
    },
    /// `$jsonSchema`.
    Schema(Schema),
    /// What does not depend on the document.
    Always {
        name: &'static str,
        specified: Document,
        satisfied: bool,
    },
}

/// What a document makes of a clause, negations counted in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Right,
    /// It is why the document is turned down.
    Wrong,
    /// So it is, for an expression in it failed.
    Failed,
}

impl Clause {
    /// The clauses of a filter that has been parsed before.
    pub(super) fn of(filter: &RawDocument, context: &ExpressionContext) -> Result<Self, QueryError> {
        let mut clauses = Vec::new();
        for element in Elements::new(filter) {
            let element = element?;
            let (name, value) = (element.name_str()?, element.value()?);
            let specified = || Ok::<_, QueryError>(doc! { name: to_bson(value)? });
            clauses.push(match name {
                "$and" => Self::All(list(value, context)?),
                "$or" => Self::Any(list(value, context)?),
                "$nor" => Self::None(list(value, context)?),
                "$expr" => Self::Expr {
                    expression: Expression::parse(value, context)?,
                    specified: specified()?,
                },
                "$jsonSchema" => Self::Schema(Schema::parse(element.frame()?)?),
                "$alwaysTrue" => Self::always("$alwaysTrue", specified()?, true),
                "$alwaysFalse" => Self::always("$alwaysFalse", specified()?, false),
                "$comment" => continue,
                path => {
                    on_field(path, element, context, &mut clauses)?;
                    continue;
                }
            });
        }
        Ok(Self::all(clauses))
    }

    fn always(name: &'static str, specified: Document, satisfied: bool) -> Self {
        Self::Always {
            name,
            specified,
            satisfied,
        }
    }

    /// Clauses side by side: one needs no `$and` around it.
    fn all(mut clauses: Vec<Clause>) -> Self {
        match clauses.len() {
            1 => clauses.remove(0),
            _ => Self::All(clauses),
        }
    }

    /// What a document makes of the clause. As in the matcher, clauses behind the one that decides are not looked at.
    fn verdict(&self, document: &RawDocument, inverted: bool, reporter: &Reporter<'_>) -> Result<Verdict, QueryError> {
        let all_right = |clauses: &[Clause], inverted| {
            for clause in clauses {
                match clause.verdict(document, inverted, reporter)? {
                    Verdict::Right => {}
                    decided => return Ok(decided),
                }
            }
            Ok(Verdict::Right)
        };
        let any_right = |clauses: &[Clause], inverted| {
            for clause in clauses {
                match clause.verdict(document, inverted, reporter)? {
                    Verdict::Wrong => {}
                    decided => return Ok(decided),
                }
            }
            Ok(Verdict::Wrong)
        };
        let wrong_if = |is_wrong| Ok(if is_wrong { Verdict::Wrong } else { Verdict::Right });
        match (self, inverted) {
            (Self::All(clauses), false) | (Self::Any(clauses), true) => all_right(clauses, inverted),
            (Self::All(clauses), true) | (Self::Any(clauses), false) => any_right(clauses, inverted),
            (Self::None(clauses), false) => all_right(clauses, true),
            (Self::None(clauses), true) => any_right(clauses, false),
            (Self::Not(clause), _) => clause.verdict(document, !inverted, reporter),
            (Self::Leaf(leaf), _) => wrong_if(leaf.matches(document, reporter.context)? == inverted),
            (Self::Schema(schema), _) => wrong_if(schema.matches(document, reporter.context)? == inverted),
            (Self::Always { satisfied, .. }, _) => wrong_if(*satisfied == inverted),
            (Self::Expr { expression, .. }, _) => match expression.evaluate_on(document, reporter.context) {
                Ok(value) => wrong_if(value.is_true() == inverted),
                Err(error) if is_interruption(&error) => Err(error),
                Err(_) => Ok(Verdict::Failed),
            },
        }
    }

    /// What there is to tell of a clause that is wrong.
    pub(super) fn explain(
        &self,
        document: &RawDocument,
        inverted: bool,
        reporter: &Reporter<'_>,
    ) -> Result<Document, QueryError> {
        let several = |name: &str, clauses: &[Clause], inverted: bool| {
            let field = if inverted {
                "clausesSatisfied"
            } else {
                "clausesNotSatisfied"
            };
            let mut wrong = Vec::new();
            for (index, clause) in clauses.iter().enumerate() {
                if clause.verdict(document, inverted, reporter)? != Verdict::Right {
                    let details = clause.explain(document, inverted, reporter)?;
                    wrong.push(Bson::Document(doc! { "index": index as i32, "details": details }));
                }
            }
            Ok(doc! { "operatorName": name, field: wrong })
        };
        match self {
            Self::All(clauses) => several("$and", clauses, inverted),
            Self::Any(clauses) => several("$or", clauses, inverted),
            Self::None(clauses) => several("$nor", clauses, !inverted),
            Self::Not(clause) => {
                let details = clause.explain(document, !inverted, reporter)?;
                Ok(doc! { "operatorName": "$not", "details": details })
            }
            Self::Leaf(leaf) => leaf.explain(document, inverted, reporter),
            Self::Schema(schema) => schema.explain_document(document, inverted, reporter),
            Self::Always {
                name,
                specified,
                satisfied,
            } => {
                let mut report = doc! { "operatorName": *name };
                reporter.specified(&mut report, specified.clone());
                report.insert("reason", format!("expression always evaluates to {satisfied}"));
                Ok(report)
            }
            Self::Expr { expression, specified } => explain_expr(expression, specified, document, inverted, reporter),
        }
    }
}

fn explain_expr(
    expression: &Expression,
    specified: &Document,
    document: &RawDocument,
    inverted: bool,
    reporter: &Reporter<'_>,
) -> Result<Document, QueryError> {
    let mut report = doc! { "operatorName": "$expr" };
    reporter.specified(&mut report, specified.clone());
    match expression.evaluate_on(document, reporter.context) {
        Ok(value) => {
            let did = if inverted { "did" } else { "did not" };
            report.insert("reason", format!("expression {did} match"));
            if let Some(value) = result_of(value)? {
                reporter.value(&mut report, "expressionResult", value);
            }
        }
        Err(error) if is_interruption(&error) => return Err(error),
        Err(error) => {
            report.insert("reason", "failed to evaluate aggregation expression");
            if let Some(code) = error.code() {
                let details = doc! { "code": code.0, "codeName": code.name(), "errmsg": error.to_string() };
                report.insert("details", details);
            }
        }
    }
    Ok(report)
}

/// A computed value as BSON; `None` for what is missing.
fn result_of(value: Value<'_>) -> Result<Option<Bson>, QueryError> {
    let mut bytes = Vec::new();
    let mut writer = crate::value::DocumentWriter::new(&mut bytes);
    writer.append("value", &value);
    writer.finish();
    let value = frame(&bytes)?.get("value").map_err(|_| Malformed)?;
    value.map(to_bson).transpose()
}

fn list(value: RawBsonRef<'_>, context: &ExpressionContext) -> Result<Vec<Clause>, QueryError> {
    let RawBsonRef::Array(array) = value else {
        return Err(Malformed.into());
    };
    let filters = Elements::new(frame(array.as_bytes())?);
    filters.map(|filter| Clause::of(filter?.frame()?, context)).collect()
}

/// What a filter says of a field: a value, or operators.
fn on_field(
    path: &str,
    element: Element<'_>,
    context: &ExpressionContext,
    clauses: &mut Vec<Clause>,
) -> Result<(), QueryError> {
    match element.value()? {
        RawBsonRef::Document(operators) if is_operators(operators) => of_operators(path, operators, context, clauses),
        value => {
            clauses.push(Clause::Leaf(Box::new(Leaf::implicit(path, value, context)?)));
            Ok(())
        }
    }
}

fn of_operators(
    path: &str,
    operators: &RawDocument,
    context: &ExpressionContext,
    clauses: &mut Vec<Clause>,
) -> Result<(), QueryError> {
    for element in Elements::new(operators) {
        let element = element?;
        let (name, value) = (element.name_str()?, element.value()?);
        match (name, value) {
            // The matcher, which comes first, has refused them where they may not be.
            ("$options" | "$comment", _) => {}
            ("$not", RawBsonRef::Document(inner)) => {
                let mut negated = Vec::new();
                of_operators(path, inner, context, &mut negated)?;
                clauses.push(Clause::Not(Box::new(Clause::all(negated))));
            }
            ("$not", regex) => {
                let leaf = Leaf::implicit(path, regex, context)?;
                clauses.push(Clause::Not(Box::new(Clause::Leaf(Box::new(leaf)))));
            }
            ("$all", RawBsonRef::Array(none)) if none.is_empty() => {
                let specified = doc! { path: { "$all": [] } };
                clauses.push(Clause::always("$all", specified, false));
            }
            _ => {
                let options = operators.get("$options").ok().flatten().filter(|_| name == "$regex");
                let is_negated = name == "$exists" && !Value::from_raw(value).is_true();
                let leaf = Leaf::of(path, name, value, options, is_negated, context)?;
                clauses.push(Clause::Leaf(Box::new(leaf)));
            }
        }
    }
    Ok(())
}
