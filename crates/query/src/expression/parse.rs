//! From BSON to nodes: operands, objects, operators, variables.
//!
//! Names of variables are resolved here. A [`Parser`] knows the variables that `$let`, `$map` and the like have bound
//! around the current place; everything else is a constant. An operator whose arguments are all constant is computed
//! once, here; when that fails it stays as it is and fails when (and if) it is evaluated.

use std::collections::HashSet;
use std::sync::atomic::Ordering;

use bson::{RawBsonRef, RawDocument};
use wire::ErrorCode;

use super::failure::failure;
use super::operator::{self, NOT_BUILT};
use super::path::{FieldPath, check_part};
use super::{
    DEPTH_MAX, Evaluation, ExpressionContext, Node, Variable, array, boolean, bounded, date, function, regex, scope,
    set,
};
use crate::error::QueryError;
use crate::evaluation::{EvaluationContext, is_interruption};
use crate::scripts;
use crate::value::scan::Malformed;
use crate::value::{SharedDocument, Value};

/// Parses an expression of `context` with nothing bound around it.
pub(super) fn parse_operand(raw: RawBsonRef<'_>, context: &ExpressionContext) -> Result<Node, QueryError> {
    Parser {
        context,
        evaluation: context.evaluation(),
        bound: Vec::new(),
        depth: 0,
    }
    .operand(raw)
}

/// The same with one variable bound, to the first slot.
pub(super) fn parse_bound(raw: RawBsonRef<'_>, context: &ExpressionContext, name: &str) -> Result<Node, QueryError> {
    Parser {
        context,
        evaluation: context.evaluation(),
        bound: vec![name.into()],
        depth: 0,
    }
    .operand(raw)
}

/// Names of variables that are compared in a step.
const NAMES_PER_STEP: usize = 8;

/// The state of parsing one expression.
pub(super) struct Parser<'c> {
    pub(super) context: &'c ExpressionContext,
    /// What parsing, and folding constants, is bounded by.
    evaluation: EvaluationContext<'c>,
    /// Variables bound around the current place; the index is the slot.
    bound: Vec<Box<str>>,
    depth: usize,
}

impl Parser<'_> {
    /// Any expression in the place of an operand.
    pub(super) fn operand(&mut self, raw: RawBsonRef<'_>) -> Result<Node, QueryError> {
        if self.depth >= DEPTH_MAX {
            return Err(QueryError::new(
                ErrorCode::Overflow,
                format!("expressions nest more than {DEPTH_MAX} levels"),
            ));
        }
        // A name may be looked for among all that are bound.
        self.evaluation.steps(1 + self.bound.len() / NAMES_PER_STEP)?;
        self.depth += 1;
        let node = match raw {
            RawBsonRef::String(text) if text.starts_with('$') => self.path_or_variable(text),
            RawBsonRef::Document(document) => self.object(document),
            RawBsonRef::Array(array) => {
                let items = array.into_iter().map(|item| self.operand(item.map_err(|_| Malformed)?));
                let items = items.collect::<Result<Vec<_>, _>>()?;
                Ok(Node::Array(items))
            }
            other => literal(other),
        }?;
        self.depth -= 1;
        self.fold(node)
    }

    /// Computes a node that depends on nothing. A failing one stays, to fail when it is evaluated; so does one whose
    /// value is too large to keep. Only the end of the operation ends parsing.
    fn fold(&self, node: Node) -> Result<Node, QueryError> {
        if !is_foldable(&node) {
            return Ok(node);
        }
        let root = SharedDocument::empty();
        let folded = node.evaluate_released(&mut Evaluation::new(&root, &self.evaluation));
        match folded.map(Value::into_owned) {
            Ok(value) if self.context.may_keep(value.owned_bytes()) => Ok(Node::Constant(value)),
            Err(error) if is_interruption(&error) => Err(error),
            Ok(_) | Err(_) => Ok(node),
        }
    }

    /// `"$path"`, `"$$variable"`, `"$$variable.path"`.
    fn path_or_variable(&mut self, text: &str) -> Result<Node, QueryError> {
        let Some(rest) = text.strip_prefix("$$") else {
            let path = &text[1..];
            if path.is_empty() {
                return failure(16872, "'$' by itself is not a valid FieldPath");
            }
            let path = FieldPath::parse(path)?;
            // CURRENT is the root unless an expression around has bound it.
            return Ok(match self.slot("CURRENT") {
                Some(slot) => Node::Variable { slot, path: Some(path) },
                None => Node::Field(path),
            });
        };
        let (name, path) = match rest.split_once('.') {
            Some(("", _)) => ("", None),
            Some((_, "")) => return failure(40353, "FieldPath must not end with a '.'."),
            Some((name, path)) => (name, Some(FieldPath::parse(path)?)),
            None => (rest, None),
        };
        self.variable(name, path)
    }

    fn variable(&mut self, name: &str, path: Option<FieldPath>) -> Result<Node, QueryError> {
        if let Some(slot) = self.slot(name) {
            return Ok(Node::Variable { slot, path });
        }
        let constant = |value: Value<'static>| match path.clone() {
            None => Ok(Node::Constant(value)),
            Some(path) => Ok(Node::Constant(path.of_value(&value)?)),
        };
        match self.context.variable(name) {
            Some(Variable::Constant(value)) => return constant(value.clone()),
            Some(Variable::Outer(variable)) => {
                let variable = variable.clone();
                return Ok(Node::Outer { variable, path });
            }
            None => {}
        }
        match name {
            "ROOT" | "CURRENT" => Ok(path.map_or(Node::Root, Node::Field)),
            "REMOVE" => constant(Value::Missing),
            "NOW" | "CLUSTER_TIME" => {
                let time = match name {
                    "NOW" => self.context.now_ms.map(Value::Date),
                    _ => self.context.cluster_time.map(Value::Timestamp),
                };
                let Some(time) = time else {
                    return failure(51144, format!("Builtin variable '$${name}' is not available"));
                };
                self.context.reads_time.store(true, Ordering::Relaxed);
                constant(time)
            }
            "USER_ROLES" => constant(Value::empty_array()),
            "SEARCH_META" => constant(Value::Missing),
            "" => failure(ErrorCode::FailedToParse.0, "empty variable names are not allowed"),
            _ if !is_variable_name(name) => failure(
                ErrorCode::FailedToParse.0,
                format!("'{name}' contains a character that no variable's name has"),
            ),
            _ => failure(17276, format!("Use of undefined variable: {name}")),
        }
    }

    fn slot(&self, name: &str) -> Option<usize> {
        self.bound.iter().rposition(|bound| **bound == *name)
    }

    /// Parses with `names` bound to the next slots.
    pub(super) fn with_bound<T>(
        &mut self,
        names: &[&str],
        parse: impl FnOnce(&mut Self) -> Result<T, QueryError>,
    ) -> Result<T, QueryError> {
        let outside = self.bound.len();
        self.bound.extend(names.iter().map(|name| Box::from(*name)));
        let parsed = parse(self);
        self.bound.truncate(outside);
        parsed
    }

    fn object(&mut self, document: &RawDocument) -> Result<Node, QueryError> {
        let mut fields: Vec<(Box<str>, Node)> = Vec::new();
        let mut names = HashSet::new();
        let mut elements = document.into_iter();
        while let Some(element) = elements.next() {
            let (name, raw) = element.map_err(|_| Malformed)?;
            let name = name.as_str();
            if name.starts_with('$') {
                if fields.is_empty() && elements.next().is_none() {
                    return self.operator(name, raw);
                }
                if !fields.is_empty() {
                    return failure(
                        16410,
                        format!(
                            "FieldPath field names may not start with '$'. Consider using $getField or $setField. Got: {name}"
                        ),
                    );
                }
                return failure(
                    15983,
                    format!(
                        "an object representing an expression must have exactly one field: {}",
                        render(document)
                    ),
                );
            }
            check_part(name)?;
            if !names.insert(name) {
                return failure(
                    16406,
                    format!(
                        "duplicate field name specified in object expression: {}",
                        render(document)
                    ),
                );
            }
            fields.push((Box::from(name), self.operand(raw)?));
        }
        Ok(Node::Object(fields))
    }

    /// `{$name: raw}`.
    fn operator(&mut self, name: &str, raw: RawBsonRef<'_>) -> Result<Node, QueryError> {
        if let Some((_, parse)) = SPECIAL.iter().find(|(special, _)| *special == name) {
            return parse(self, name, raw);
        }
        if let Some(part) = date::parse_part(self, name, raw)? {
            return Ok(part);
        }
        if let Some(operator) = operator::positional(name) {
            let arguments = self.arguments(raw)?;
            operator.check_arity(arguments.len())?;
            return Ok(Node::Call {
                operator,
                comparer: self.context.comparer.clone(),
                arguments,
            });
        }
        if let Some(operator) = operator::named(name) {
            return self.named(operator, raw);
        }
        if NOT_BUILT.contains(&name) {
            return failure(
                ErrorCode::NotImplemented.0,
                format!("the expression {name} is not implemented"),
            );
        }
        failure(
            ErrorCode::InvalidPipelineOperator.0,
            format!("Unrecognized expression '{name}'"),
        )
    }

    /// The arguments of a positional operator: an array's elements, or one operand.
    pub(super) fn arguments(&mut self, raw: RawBsonRef<'_>) -> Result<Vec<Node>, QueryError> {
        match raw {
            RawBsonRef::Array(array) => array
                .into_iter()
                .map(|item| self.operand(item.map_err(|_| Malformed)?))
                .collect(),
            other => Ok(vec![self.operand(other)?]),
        }
    }

    fn named(&mut self, operator: &'static operator::NamedOperator, raw: RawBsonRef<'_>) -> Result<Node, QueryError> {
        let [not_object, unknown] = operator.codes;
        let RawBsonRef::Document(document) = raw else {
            // A few take their only required argument bare.
            if let Some(shorthand) = super::object::shorthand(operator, raw, self)? {
                return Ok(shorthand);
            }
            let found = Value::from_raw(raw).type_name();
            return failure(
                not_object,
                format!(
                    "{} only supports an object as an argument, found {found}",
                    operator.name
                ),
            );
        };
        let mut arguments: Vec<Option<Node>> = operator.fields.iter().map(|_| None).collect();
        for element in document {
            let (name, raw) = element.map_err(|_| Malformed)?;
            match operator.fields.iter().position(|(field, _)| *field == name.as_str()) {
                Some(index) => arguments[index] = Some(self.operand(raw)?),
                None => {
                    if let Some(shorthand) = super::object::shorthand(operator, RawBsonRef::Document(document), self)? {
                        return Ok(shorthand);
                    }
                    return failure(
                        unknown,
                        format!("{} found an unknown argument: {}", operator.name, name.as_str()),
                    );
                }
            }
        }
        for ((field, missing), argument) in operator.fields.iter().zip(&arguments) {
            if let (Some(missing), None) = (missing, argument) {
                return failure(*missing, format!("Missing '{field}' parameter to {}", operator.name));
            }
        }
        if let Some(check) = operator.check {
            check(operator.name, document)?;
        }
        Ok(Node::Named {
            operator,
            comparer: self.context.comparer.clone(),
            arguments,
        })
    }
}

type ParseOperator = fn(&mut Parser<'_>, &str, RawBsonRef<'_>) -> Result<Node, QueryError>;

/// Operators with a syntax of their own.
const SPECIAL: &[(&str, ParseOperator)] = &[
    ("$literal", |_, _, raw| literal(raw)),
    ("$const", |_, _, raw| literal(raw)),
    ("$and", |parser, _, raw| Ok(Node::And(parser.arguments(raw)?))),
    ("$or", |parser, _, raw| Ok(Node::Or(parser.arguments(raw)?))),
    ("$ifNull", |parser, _, raw| parse_if_null(parser, raw)),
    ("$rand", |parser, _, raw| scope::parse_rand(parser, raw)),
    ("$meta", |parser, _, raw| scope::parse_meta(parser, raw)),
    ("$cond", |parser, _, raw| boolean::parse_cond(parser, raw)),
    ("$switch", |parser, _, raw| boolean::parse_switch(parser, raw)),
    ("$let", |parser, _, raw| scope::parse_let(parser, raw)),
    ("$map", |parser, _, raw| scope::parse_map(parser, raw)),
    ("$filter", |parser, _, raw| scope::parse_filter(parser, raw)),
    ("$reduce", |parser, _, raw| scope::parse_reduce(parser, raw)),
    ("$sortArray", |parser, _, raw| scope::parse_sort_array(parser, raw)),
    ("$percentile", array::parse_percentile),
    ("$median", array::parse_percentile),
    ("$function", |parser, _, raw| parse_function(parser, raw)),
    ("$_internalJsEmit", |parser, _, raw| parse_emit(parser, raw)),
    ("$setEquals", |parser, _, raw| set::parse_set_equals(parser, raw)),
    ("$regexMatch", regex::parse),
    ("$regexFind", regex::parse),
    ("$regexFindAll", regex::parse),
];

/// Whether there is an operator of that name, built or not.
pub(crate) fn is_expression(name: &str) -> bool {
    SPECIAL.iter().any(|(special, _)| *special == name)
        || date::is_part(name)
        || operator::positional(name).is_some()
        || operator::named(name).is_some()
        || NOT_BUILT.contains(&name)
}

fn literal(raw: RawBsonRef<'_>) -> Result<Node, QueryError> {
    Ok(Node::Constant(bounded(Value::from_raw(raw))?.into_owned()))
}

/// `$ifNull`
fn parse_if_null(parser: &mut Parser<'_>, raw: RawBsonRef<'_>) -> Result<Node, QueryError> {
    let operands = parser.arguments(raw)?;
    if operands.len() < 2 {
        return failure(
            1257300,
            format!("$ifNull needs at least two arguments, had: {}", operands.len()),
        );
    }
    Ok(Node::IfNull(operands))
}

/// `$function`
fn parse_function(parser: &mut Parser<'_>, raw: RawBsonRef<'_>) -> Result<Node, QueryError> {
    if parser.context.is_for_validator() {
        return failure(4660800, "$function cannot be used inside a validator.");
    }
    let RawBsonRef::Document(document) = raw else {
        let found = Value::from_raw(raw).type_name();
        return failure(
            31260,
            format!("$function requires an object as an argument, found: {found}"),
        );
    };
    let field =
        |name: &str| -> Result<Option<RawBsonRef<'_>>, QueryError> { Ok(document.get(name).map_err(|_| Malformed)?) };
    let Some(body) = field("body")? else {
        return failure(31261, "The body function must be specified.");
    };
    let function = match parser.operand(body)? {
        Node::Constant(Value::String(code) | Value::JavaScript(code)) => parser.context.script(&code),
        Node::Constant(_) => return failure(31262, "The body function must evaluate to type string or code"),
        _ => return failure(31432, "The body function must be a constant expression"),
    };
    let Some(arguments) = field("args")? else {
        return failure(31263, "The args field must be specified.");
    };
    let arguments = parser.operand(arguments)?;
    match field("lang")? {
        None => return failure(31418, "The lang field must be specified."),
        Some(RawBsonRef::String("js")) => {}
        Some(_) => return failure(31419, "Currently the only supported language specifier is 'js'."),
    }
    if !parser.context.runs_scripts() {
        return Err(scripts::disabled());
    }
    Ok(Node::Special(Box::new(function::Call { function, arguments })))
}

/// `$_internalJsEmit`
fn parse_emit(parser: &mut Parser<'_>, raw: RawBsonRef<'_>) -> Result<Node, QueryError> {
    if parser.context.is_for_validator() {
        return failure(4660801, "$_internalJsEmit cannot be used inside a validator.");
    }
    let RawBsonRef::Document(document) = raw else {
        let found = Value::from_raw(raw).type_name();
        return failure(
            31221,
            format!("$_internalJsEmit requires an object as an argument, found: {found}"),
        );
    };
    let field =
        |name: &str| -> Result<Option<RawBsonRef<'_>>, QueryError> { Ok(document.get(name).map_err(|_| Malformed)?) };
    let function = match field("eval")? {
        None => return failure(31222, "The map function must be specified."),
        Some(RawBsonRef::String(code) | RawBsonRef::JavaScriptCode(code)) => parser.context.script(code),
        Some(_) => return failure(31224, "The map function must be of type string or code"),
    };
    let Some(this) = field("this")? else {
        return failure(31223, "$_internalJsEmit requires 'this' to be specified");
    };
    let this = parser.operand(this)?;
    if !parser.context.runs_scripts() {
        return Err(scripts::disabled());
    }
    Ok(Node::Special(Box::new(function::Emit { function, this })))
}

/// The named fields of an operator's object argument, each at most once.
pub(super) fn named_fields<'r, const N: usize>(
    operator: &str,
    raw: RawBsonRef<'r>,
    names: [&str; N],
    not_object: (i32, String),
    unknown: i32,
) -> Result<[Option<RawBsonRef<'r>>; N], QueryError> {
    let RawBsonRef::Document(document) = raw else {
        return failure(not_object.0, not_object.1);
    };
    let mut found = [None; N];
    for element in document {
        let (name, raw) = element.map_err(|_| Malformed)?;
        match names.iter().position(|known| *known == name.as_str()) {
            Some(index) => found[index] = Some(raw),
            None => {
                return failure(
                    unknown,
                    format!("Unrecognized parameter to {operator}: {}", name.as_str()),
                );
            }
        }
    }
    Ok(found)
}

/// Whether a variable may be called so: ASCII letters, digits and `_` behind a letter, and whatever is not ASCII.
fn is_variable_name(name: &str) -> bool {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || c == '_' || !c.is_ascii();
    name.starts_with(|c: char| c.is_ascii_alphabetic() || !c.is_ascii()) && name.chars().all(is_allowed)
}

fn is_foldable(node: &Node) -> bool {
    match node {
        Node::Object(fields) => fields.iter().all(|(_, node)| matches!(node, Node::Constant(_))),
        Node::Array(nodes) | Node::And(nodes) | Node::Or(nodes) | Node::IfNull(nodes) => all_constant(nodes),
        Node::Call { arguments, .. } => all_constant(arguments),
        Node::Named { arguments, .. } => arguments.iter().flatten().all(|node| matches!(node, Node::Constant(_))),
        Node::Special(special) => {
            let mut constant = special.is_pure();
            special.visit_children(&mut |child| constant &= matches!(child, Node::Constant(_)));
            constant
        }
        _ => false,
    }
}

fn all_constant(nodes: &[Node]) -> bool {
    nodes.iter().all(|node| matches!(node, Node::Constant(_)))
}

/// Checks a name that a user gives to a variable.
pub fn check_user_variable(name: &str) -> Result<(), QueryError> {
    if name == "CURRENT" {
        return Ok(());
    }
    let bad = |message: String| failure(ErrorCode::FailedToParse.0, message);
    match name.chars().next() {
        None => return bad("empty variable names are not allowed".to_owned()),
        Some(first) if first.is_ascii() && !first.is_ascii_lowercase() => {
            return bad(format!(
                "'{name}' starts with an invalid character for a user variable name"
            ));
        }
        Some(_) => {}
    }
    match name
        .chars()
        .find(|c| c.is_ascii() && !c.is_ascii_alphanumeric() && *c != '_')
    {
        Some(invalid) => bad(format!(
            "'{name}' contains an invalid character for a variable name: '{invalid}'"
        )),
        None => Ok(()),
    }
}

/// A document as error messages show it.
pub(crate) fn render(document: &RawDocument) -> String {
    match bson::Document::try_from(document) {
        Ok(document) => document.to_string(),
        Err(_) => "{ ... }".to_owned(),
    }
}
