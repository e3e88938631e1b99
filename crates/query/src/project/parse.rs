//! From a projection document to its tree.

use bson::{RawBsonRef, RawDocument, RawDocumentBuf};
use wire::ErrorCode;

use super::{Mode, Node, Projection, Rule, Slice, TopFields};
use crate::QueryError;
use crate::expression::{Expression, ExpressionContext, is_expression};
use crate::matcher::{element_condition, integral};
use crate::path::{COMPONENTS_MAX, is_reference_field};
use crate::raw::{self, Element, Elements};
use crate::value::Value;
use crate::value::scan::frame;

fn failure<T>(code: i32, message: impl Into<String>) -> Result<T, QueryError> {
    Err(QueryError::new(ErrorCode(code), message))
}

/// Puts the stage's name in front of an error's text.
fn in_stage(stage: &str, error: QueryError) -> QueryError {
    match error {
        QueryError::Code(mut coded) => {
            coded.message = format!("Invalid {stage} :: caused by :: {}", coded.message);
            QueryError::Code(coded)
        }
        other => other,
    }
}

/// The projection of `find`.
pub(super) fn find(spec: &RawDocument, context: &ExpressionContext) -> Result<Projection, QueryError> {
    let mut parser = Parser::new(Dialect::Find, Some(context));
    parser.fields(spec, "", 0)?;
    parser.finish(spec)
}

/// `$project`.
pub(super) fn project(spec: &RawDocument, context: &ExpressionContext) -> Result<Projection, QueryError> {
    let parse = || {
        if spec.is_empty() {
            return failure(51272, "projection specification must have at least one field");
        }
        let mut parser = Parser::new(Dialect::Project, Some(context));
        parser.fields(spec, "", 0)?;
        parser.finish(spec)
    };
    parse().map_err(|error| in_stage("$project", error))
}

/// `$addFields`.
pub(super) fn add_fields(spec: &RawDocument, context: &ExpressionContext) -> Result<Projection, QueryError> {
    let parse = || {
        let mut parser = Parser::new(Dialect::AddFields, Some(context));
        parser.fields(spec, "", 0)?;
        parser.finish(spec)
    };
    parse().map_err(|error| in_stage("$addFields", error))
}

/// `$unset`.
pub(super) fn excluding(paths: &[&str]) -> Result<Projection, QueryError> {
    let parse = || {
        let mut parser = Parser::new(Dialect::Project, None);
        let mut source = Vec::new();
        let whole = raw::Frame::begin(&mut source);
        for path in paths {
            check_path(path)?;
            parser.insert(path, Rule::Exclude)?;
            raw::append(&mut source, 0x10, path.as_bytes(), &0_i32.to_le_bytes());
        }
        whole.finish(&mut source);
        parser.mode = Some(Mode::Exclude);
        parser.finish(frame(&source)?)
    };
    parse().map_err(|error| in_stage("$unset", error))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Dialect {
    Find,
    Project,
    AddFields,
}

struct Parser<'p> {
    dialect: Dialect,
    context: Option<&'p ExpressionContext>,
    root: Node,
    mode: Option<Mode>,
    /// What `_id` by itself asks for.
    id: Option<Mode>,
    positional: Option<String>,
    has_elem_match: bool,
    has_slice: bool,
    has_meta: bool,
    sort_keys: Vec<String>,
}

/// How deep nested projections may be: they are paths, too.
const DEPTH_MAX: usize = COMPONENTS_MAX;

impl<'p> Parser<'p> {
    fn new(dialect: Dialect, context: Option<&'p ExpressionContext>) -> Self {
        let mode = (dialect == Dialect::AddFields).then_some(Mode::Add);
        Self {
            dialect,
            context,
            root: Node::default(),
            mode,
            id: None,
            positional: None,
            has_elem_match: false,
            has_slice: false,
            has_meta: false,
            sort_keys: Vec::new(),
        }
    }

    fn finish(mut self, spec: &RawDocument) -> Result<Projection, QueryError> {
        let mode = self.mode.unwrap_or(match self.id {
            _ if self.has_meta && self.dialect == Dialect::Project => Mode::Include,
            _ if self.has_elem_match && !self.has_slice => Mode::Include,
            Some(id) => id,
            None => Mode::Exclude,
        });
        if mode == Mode::Exclude && self.positional.is_some() {
            return failure(31395, "positional projection cannot be used with exclusion");
        }
        // `_id` goes along unless it is excluded.
        if mode == Mode::Include && self.root.child(b"_id").is_none() {
            self.root.add_first_child("_id", Rule::Include);
        }
        let source: RawDocumentBuf = spec.to_owned();
        Ok(Projection {
            top: TopFields::of(spec).filter(|_| mode != Mode::Add),
            source,
            mode,
            root: self.root,
            is_positional: self.positional.is_some(),
            sort_keys: self.sort_keys,
        })
    }

    fn fields(&mut self, spec: &RawDocument, prefix: &str, depth: usize) -> Result<(), QueryError> {
        if depth > DEPTH_MAX {
            return failure(ErrorCode::Overflow.0, "projection is nested too deeply");
        }
        for element in Elements::new(spec) {
            let element = element?;
            let name = element.name_str()?;
            if depth > 0 && self.dialect == Dialect::AddFields {
                if name.starts_with('$') {
                    return failure(40181, "an expression must have exactly one field, its operator");
                }
                if name.contains('.') {
                    return failure(40183, format!("cannot use dotted field name '{name}' in a sub object"));
                }
            }
            let path = super::joined(prefix, name);
            self.field(path, element, depth)?;
        }
        Ok(())
    }

    fn field(&mut self, path: String, element: Element<'_>, depth: usize) -> Result<(), QueryError> {
        let value = element.value()?;
        let is_flag = element.is_number() || matches!(value, RawBsonRef::Boolean(_));
        if self.dialect == Dialect::Find && (path.ends_with(".$") || path.contains(".$.")) {
            return match path.as_str() {
                ".$" => failure(5392900, "a positional projection needs a path in front of '.$'"),
                _ => self.positional(path, value, is_flag),
            };
        }
        check_path(&path)?;
        match value {
            _ if is_flag && self.dialect != Dialect::AddFields => self.flag(&path, Value::from_raw(value).is_true()),
            // An expression like any other.
            RawBsonRef::Document(inner) if inner.is_empty() && self.dialect == Dialect::AddFields => {
                self.computed(&path, value)
            }
            RawBsonRef::Document(inner) if inner.is_empty() => failure(
                51270,
                format!("An empty sub-projection is not a valid value. Found empty object at path {path}"),
            ),
            RawBsonRef::Document(inner) => {
                let mut fields = Elements::new(inner);
                let (first, second) = (fields.next().transpose()?, fields.next());
                match first.filter(|first| second.is_none() && first.name().first() == Some(&b'$')) {
                    Some(operator) if self.dialect != Dialect::AddFields && !is_known(operator.name_str()?) => {
                        failure(31325, format!("Unknown expression {}", operator.name_lossy()))
                    }
                    Some(operator) => self.operator(&path, operator, value),
                    // With several fields an operator is a name like others, and refused as one.
                    None => self.fields(inner, &path, depth + 1),
                }
            }
            _ if self.mode == Some(Mode::Exclude) => failure(
                31310,
                format!("Cannot use a value for {path} in an exclusion projection"),
            ),
            value => self.computed(&path, value),
        }
    }

    /// Takes the mode that a field asks for; fails when another field asked for the other one.
    fn choose(&mut self, mode: Mode, path: &str) -> Result<(), QueryError> {
        match self.mode {
            None => self.mode = Some(mode),
            Some(chosen) if chosen == mode => {}
            Some(Mode::Exclude) => {
                return failure(
                    31253,
                    format!("Cannot do inclusion on field {path} in exclusion projection"),
                );
            }
            Some(_) => {
                return failure(
                    31254,
                    format!("Cannot do exclusion on field {path} in inclusion projection"),
                );
            }
        }
        Ok(())
    }

    fn flag(&mut self, path: &str, include: bool) -> Result<(), QueryError> {
        let mode = if include { Mode::Include } else { Mode::Exclude };
        if path == "_id" {
            self.id = Some(mode);
        } else {
            self.choose(mode, path)?;
        }
        self.insert(path, if include { Rule::Include } else { Rule::Exclude })
    }

    fn computed(&mut self, path: &str, value: RawBsonRef<'_>) -> Result<(), QueryError> {
        if self.dialect != Dialect::AddFields {
            if self.mode == Some(Mode::Exclude) {
                return failure(
                    31252,
                    "Cannot use an expression other than $meta in exclusion projection",
                );
            }
            self.mode = Some(Mode::Include);
        }
        let context = self
            .context
            .expect("only paths without values are parsed without a context");
        self.insert(path, Rule::Computed(Expression::parse(value, context)?))
    }

    fn operator(&mut self, path: &str, operator: Element<'_>, whole: RawBsonRef<'_>) -> Result<(), QueryError> {
        match operator.name() {
            // It says nothing about the other fields, unless `$project` has nothing that does.
            b"$meta" if self.dialect != Dialect::AddFields => {
                self.has_meta = true;
                if matches!(operator.value()?, RawBsonRef::String("sortKey")) {
                    self.sort_keys.push(path.to_owned());
                }
                let context = self.context.expect("operators are parsed with a context");
                self.insert(path, Rule::Computed(Expression::parse(whole, context)?))
            }
            b"$slice" if self.dialect == Dialect::Find => match slice(operator)? {
                Some(slice) => {
                    self.has_slice = true;
                    self.insert(path, Rule::Slice(slice))
                }
                None => self.computed(path, whole),
            },
            b"$elemMatch" if self.dialect == Dialect::Find => {
                let RawBsonRef::Document(filter) = operator.value()? else {
                    let found = raw::type_name(operator.element_type()?);
                    let message = format!("elemMatch: Invalid argument, object required, but got {found}");
                    return failure(31274, message);
                };
                if path.contains('.') {
                    return failure(31275, "Cannot use $elemMatch projection on a nested field.");
                }
                if self.positional.is_some() {
                    let message = "Cannot specify positional operator and $elemMatch.";
                    return failure(31255, message);
                }
                self.has_elem_match = true;
                let context = self.context.expect("operators are parsed with a context");
                let condition = element_condition(filter, context)?;
                self.insert(path, Rule::ElemMatch(condition, context.comparer.clone()))
            }
            _ => self.computed(path, whole),
        }
    }

    fn positional(&mut self, path: String, value: RawBsonRef<'_>, is_flag: bool) -> Result<(), QueryError> {
        let Some(array) = path.strip_suffix(".$").filter(|array| !array.contains(".$")) else {
            return failure(
                31394,
                "As of 4.4, it's illegal to specify positional operator in the middle of a path.Positional projection may \
                 only be used at the end, for example: a.b.$. If the query previously used a form like a.b.$.d, remove \
                 the parts following the '$' and the results will be equivalent.",
            );
        };
        match value {
            RawBsonRef::Document(_) => {
                let message = "positional projection cannot be used with an expression or sub object";
                return failure(31271, message);
            }
            _ if !is_flag => return failure(31308, "positional projection cannot be used with a literal"),
            flag if !Value::from_raw(flag).is_true() => {
                return failure(31395, "positional projection cannot be used with exclusion");
            }
            _ => {}
        }
        if self.positional.is_some() {
            return failure(31276, "Cannot specify more than one positional projection per query.");
        }
        if self.has_elem_match {
            return failure(31255, "Cannot specify positional operator and $elemMatch.");
        }
        if self.mode == Some(Mode::Exclude) {
            return failure(31395, "positional projection cannot be used with exclusion");
        }
        check_path(array)?;
        self.choose(Mode::Include, array)?;
        self.insert(array, Rule::Positional)?;
        self.positional = Some(array.to_owned());
        Ok(())
    }

    /// Takes a path that has been checked.
    fn insert(&mut self, path: &str, rule: Rule) -> Result<(), QueryError> {
        let collision = |code, rest: String| {
            // Stages that add fields have one code for it.
            let code = if self.dialect == Dialect::AddFields {
                40176
            } else {
                code
            };
            failure(code, format!("Path collision at {path}{rest}"))
        };
        let is_computed = matches!(rule, Rule::Computed(_) | Rule::ElemMatch(..));
        let is_positional = matches!(rule, Rule::Positional);
        let mut node = &mut self.root;
        let mut rest = path;
        while let Some((name, below)) = rest.split_once('.') {
            node.has_computed |= is_computed;
            node.has_positional |= is_positional;
            let child = match node.child(name.as_bytes()) {
                Some(child) => child,
                None => node.add_child(name, Rule::Below(Node::default())),
            };
            node = match &mut node.children[child].1 {
                Rule::Below(node) => node,
                _ => return collision(31249, format!(" remaining portion {below}")),
            };
            rest = below;
        }
        node.has_computed |= is_computed;
        node.has_positional |= is_positional;
        if node.child(rest.as_bytes()).is_some() {
            return collision(31250, String::new());
        }
        node.add_child(rest, rule);
        Ok(())
    }
}

/// Whether it is an operator, of expressions or of `find`: what is neither is no expression's fault.
fn is_known(name: &str) -> bool {
    name == "$elemMatch" || is_expression(name)
}

fn check_path(path: &str) -> Result<(), QueryError> {
    if path.is_empty() {
        return failure(40352, "FieldPath cannot be constructed with empty string");
    }
    if path.ends_with('.') {
        return failure(40353, "FieldPath must not end with a '.'.");
    }
    let mut count = 0;
    for name in path.split('.') {
        count += 1;
        if name.is_empty() {
            return failure(15998, "FieldPath field names may not be empty strings.");
        }
        if name.starts_with('$') && !is_reference_field(name.as_bytes()) {
            let message = "FieldPath field names may not start with '$'. Consider using $getField or $setField.";
            return failure(16410, message);
        }
    }
    if count > COMPONENTS_MAX {
        return failure(
            ErrorCode::Overflow.0,
            format!("FieldPath has more than {COMPONENTS_MAX} components"),
        );
    }
    Ok(())
}

/// `$slice` of `find`; `None` is the expression of that name.
fn slice(operator: Element<'_>) -> Result<Option<Slice>, QueryError> {
    let value = operator.value()?;
    if operator.is_number() {
        return Ok(Some(Slice {
            skip: None,
            limit: whole(value),
        }));
    }
    let RawBsonRef::Array(array) = value else {
        let found = raw::type_name(operator.element_type()?);
        let message = format!(
            "Invalid $slice syntax. The given syntax {{ {} }} did not match the find() syntax because \
             :: Location31273: $slice only supports numbers and [skip, limit] arrays, got {found}",
            raw::describe_element(operator)
        );
        return failure(28667, message);
    };
    let items: Vec<_> = Elements::new(frame(array.as_bytes())?).collect::<Result<_, _>>()?;
    match items.as_slice() {
        [skip, limit] if skip.is_number() && limit.is_number() => {
            let (skip, limit) = (whole(skip.value()?), whole(limit.value()?));
            if limit <= 0 {
                return failure(28724, "$slice limit must be positive");
            }
            Ok(Some(Slice {
                skip: Some(skip),
                limit,
            }))
        }
        _ => Ok(None),
    }
}

/// A number as an integer, cut off and saturating.
fn whole(value: RawBsonRef<'_>) -> i64 {
    match value {
        RawBsonRef::Double(number) => number as i64,
        other => integral(other).unwrap_or(0),
    }
}
