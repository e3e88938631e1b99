//! `$regexMatch`, `$regexFind`, `$regexFindAll`, by PCRE2.
//!
//! A constant pattern is compiled once, at parsing. Positions in results count code points.

use bson::{RawBson, RawBsonRef};
use parking_lot::Mutex;
use pcre2::bytes::{CaptureLocations, Regex};
use std::sync::Arc;

use super::failure::failure;
use super::operator::Computed;
use super::parse::{Parser, named_fields};
use super::{Evaluation, Gathered, Node, Special, finished_document};
use crate::error::QueryError;
use crate::evaluation::EvaluationContext;
use crate::matcher::regex::{self, JitStack, PATTERN_BYTES_MAX, RegexFault, exhausts_stack};
use crate::value::{BYTES_PER_STEP, DocumentWriter, Text, Value};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wanted {
    Match,
    First,
    All,
}

struct RegexNode {
    name: &'static str,
    wanted: Wanted,
    input: Node,
    regex: Node,
    options: Option<Node>,
    /// The pattern, where it and its options are constant and good.
    compiled: Option<CompiledPattern>,
    /// The last one that was not: it is often the same for many documents.
    last: Mutex<Option<LastRegex>>,
}

struct LastRegex {
    pattern: Box<str>,
    options: Box<str>,
    compiled: Arc<CompiledPattern>,
}

/// A pattern, compiled for what is wanted of it.
struct CompiledPattern {
    pattern: Box<str>,
    options: Box<str>,
    wanted: Wanted,
    regex: Regex,
}

impl CompiledPattern {
    fn new(pattern: String, options: String, wanted: Wanted) -> Result<Self, RegexFault> {
        Ok(Self {
            regex: Self::compile(&pattern, &options, wanted, JitStack::Small)?,
            pattern: pattern.into(),
            options: options.into(),
            wanted,
        })
    }

    fn compile(pattern: &str, options: &str, wanted: Wanted, stack: JitStack) -> Result<Regex, RegexFault> {
        let repeated = match wanted {
            Wanted::All => regex::compile_for_repeated(pattern, options, stack),
            Wanted::Match | Wanted::First => None,
        };
        repeated.map_or_else(|| regex::compile(pattern, options, stack), Ok)
    }

    /// What is wanted of a text.
    fn find<'a>(&self, text: &str, context: &EvaluationContext<'_>) -> Computed<'a> {
        let found = match self.find_by(&self.regex, text, context) {
            Err(FindError::Match(error)) if exhausts_stack(&error) => self.find_on_large_stack(text, context, error),
            found => found,
        };
        found.map_err(|error| match error {
            FindError::Match(error) => failed(error),
            FindError::Other(error) => error,
        })
    }

    /// As [`CompiledPattern::find`], for what goes back farther in a text than most. Its stacks, one for each thread
    /// that searches, go with the search: nothing counts them.
    #[cold]
    fn find_on_large_stack<'a>(
        &self,
        text: &str,
        context: &EvaluationContext<'_>,
        error: pcre2::Error,
    ) -> Result<Value<'a>, FindError> {
        match Self::compile(&self.pattern, &self.options, self.wanted, JitStack::Large) {
            Ok(regex) => self.find_by(&regex, text, context),
            Err(_) => Err(FindError::Match(error)),
        }
    }

    fn find_by<'a>(&self, regex: &Regex, text: &str, context: &EvaluationContext<'_>) -> Result<Value<'a>, FindError> {
        match self.wanted {
            Wanted::Match => Ok(Value::Boolean(regex.is_match(text.as_bytes())?)),
            Wanted::First => Ok(Finder::new(regex, text).next()?.unwrap_or(Value::Null)),
            Wanted::All => find_all(regex, text, context),
        }
    }
}

/// Why a text was not searched.
enum FindError {
    /// PCRE2 has given up.
    Match(pcre2::Error),
    Other(QueryError),
}

impl From<pcre2::Error> for FindError {
    fn from(error: pcre2::Error) -> Self {
        Self::Match(error)
    }
}

impl From<QueryError> for FindError {
    fn from(error: QueryError) -> Self {
        Self::Other(error)
    }
}

impl RegexNode {
    /// Compiles a pattern that is not constant, unless it is the last one.
    fn compile(
        &self,
        regex: &Value<'_>,
        options: Option<&Value<'_>>,
    ) -> Result<Option<Arc<CompiledPattern>>, QueryError> {
        let compile = || Ok(compile(self.name, self.wanted, regex, options)?.map(Arc::new));
        let (pattern, options): (&str, &str) = match (regex, options) {
            (Value::String(pattern), None) => (pattern, ""),
            (Value::String(pattern), Some(Value::String(options))) => (pattern, options),
            _ => return compile(),
        };
        let mut last = self.last.lock();
        if let Some(last) = &*last
            && *last.pattern == *pattern
            && *last.options == *options
        {
            return Ok(Some(last.compiled.clone()));
        }
        let compiled = compile()?;
        *last = compiled.as_ref().map(|compiled| LastRegex {
            pattern: pattern.into(),
            options: options.into(),
            compiled: compiled.clone(),
        });
        Ok(compiled)
    }
}

impl std::fmt::Debug for RegexNode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{}({:?}, {:?}, {:?})",
            self.name, self.input, self.regex, self.options
        )
    }
}

impl Special for RegexNode {
    fn evaluate<'a>(&'a self, evaluation: &mut Evaluation<'a>) -> Computed<'a> {
        let input = self.input.evaluate(evaluation)?;
        let compiled;
        let regex = match &self.compiled {
            Some(regex) => Some(regex),
            None => {
                let regex = self.regex.evaluate(evaluation)?;
                let options = match &self.options {
                    None => None,
                    Some(options) => Some(options.evaluate(evaluation)?),
                };
                compiled = self.compile(&regex, options.as_ref())?;
                compiled.as_deref()
            }
        };
        let text = match &input {
            Value::String(text) => Some(text),
            nullish if nullish.is_nullish() => None,
            other => {
                return failure(
                    51104,
                    format!(
                        "{} needs 'input' to be of type string, but is {}",
                        self.name,
                        other.type_name()
                    ),
                );
            }
        };
        let (Some(text), Some(regex)) = (text, regex) else {
            return Ok(match self.wanted {
                Wanted::Match => Value::Boolean(false),
                Wanted::First => Value::Null,
                Wanted::All => Value::empty_array(),
            });
        };
        evaluation.context.steps(1 + input.steps())?;
        regex.find(text, evaluation.context)
    }

    fn visit_children(&self, visit: &mut dyn FnMut(&Node)) {
        visit(&self.input);
        visit(&self.regex);
        self.options.iter().for_each(visit);
    }
}

fn failed(error: pcre2::Error) -> QueryError {
    QueryError::new(
        wire::ErrorCode(51156),
        format!("Error occurred while executing the regular expression: {error}"),
    )
}

/// The matches of one text, from its beginning to its end.
struct Finder<'t> {
    regex: &'t Regex,
    text: &'t str,
    places: CaptureLocations,
    /// Where the next search begins.
    from: usize,
    /// A byte position, and the code points before it: the next match is counted from there.
    counted: (usize, usize),
}

impl<'t> Finder<'t> {
    fn new(regex: &'t Regex, text: &'t str) -> Self {
        Self {
            regex,
            text,
            places: regex.capture_locations(),
            from: 0,
            counted: (0, 0),
        }
    }

    /// The next match as a document.
    fn next<'a>(&mut self) -> Result<Option<Value<'a>>, FindError> {
        let (text, from) = (self.text, self.from);
        if from > text.len() {
            return Ok(None);
        }
        let found = self.regex.captures_read_at(&mut self.places, text.as_bytes(), from)?;
        let Some((start, end)) = found.map(|whole| (whole.start(), whole.end())) else {
            return Ok(None);
        };
        let mut captures = Vec::with_capacity(self.places.len());
        for index in 1..self.places.len() {
            let capture = self.places.get(index).and_then(|(start, end)| text.get(start..end));
            captures.push(capture.map_or(Value::Null, Value::string));
        }
        let (counted, before) = self.counted;
        let before = match text.get(counted..start) {
            Some(between) => before + between.chars().count(),
            None => text.get(..start).unwrap_or("").chars().count(),
        };
        self.counted = (start, before);
        // An empty match: go on behind the next code point.
        self.from = if end > from.max(start) {
            end
        } else {
            let next = text.get(end..).and_then(|rest| rest.chars().next());
            end + next.map_or(1, char::len_utf8)
        };
        let mut bytes = Vec::with_capacity(64);
        let mut writer = DocumentWriter::new(&mut bytes);
        let matched = text.get(start..end).unwrap_or("");
        writer.append("match", &Value::String(Text::Borrowed(matched)));
        writer.append("idx", &Value::Int32(i32::try_from(before).unwrap_or(i32::MAX)));
        writer.append("captures", &Value::array(captures)?);
        writer.finish();
        Ok(Some(finished_document(bytes)?))
    }
}

fn find_all<'a>(regex: &Regex, text: &str, context: &EvaluationContext<'_>) -> Result<Value<'a>, FindError> {
    let mut found = Gathered::new(context);
    let mut finder = Finder::new(regex, text);
    loop {
        // Patterns may look at all the rest for each match.
        context.steps(text.len().saturating_sub(finder.from) / BYTES_PER_STEP)?;
        let Some(next) = finder.next()? else { break };
        context.steps(next.steps())?;
        found.push(next)?;
        // No search begins at the end, but in an empty text.
        if finder.from >= text.len() {
            break;
        }
    }
    Ok(found.finish()?)
}

/// `None` when the pattern is null.
fn compile(
    name: &str,
    wanted: Wanted,
    regex: &Value<'_>,
    options: Option<&Value<'_>>,
) -> Result<Option<CompiledPattern>, QueryError> {
    let own = match regex {
        Value::String(pattern) => Some((pattern.to_string(), String::new())),
        Value::Other(other) => match &**other {
            RawBson::RegularExpression(regex) => Some((regex.pattern.to_string(), regex.options.to_string())),
            _ => return failure(51105, format!("{name} needs 'regex' to be of type string or regex")),
        },
        nullish if nullish.is_nullish() => None,
        _ => return failure(51105, format!("{name} needs 'regex' to be of type string or regex")),
    };
    // Options of a wrong type are an error beside a pattern that is null, too.
    let given = match options {
        None => None,
        Some(nullish) if nullish.is_nullish() => None,
        Some(Value::String(options)) => Some(options),
        Some(_) => return failure(51106, format!("{name} needs 'options' to be of type string")),
    };
    let Some((pattern, own_options)) = own else {
        return Ok(None);
    };
    let options = match given {
        None => own_options,
        Some(_) if !own_options.is_empty() => {
            return failure(
                51107,
                format!("{name}: found regex option(s) specified in both 'regex' and 'option' fields"),
            );
        }
        Some(options) => options.to_string(),
    };
    if pattern.contains('\0') {
        return failure(
            51109,
            format!("{name}: regular expression cannot contain an embedded null byte"),
        );
    }
    if options.contains('\0') {
        return failure(
            51110,
            format!("{name}: regular expression options cannot contain an embedded null byte"),
        );
    }
    match CompiledPattern::new(pattern, options, wanted) {
        Ok(compiled) => Ok(Some(compiled)),
        Err(RegexFault::TooLong) => failure(
            51111,
            format!("Invalid Regex in {name}: pattern of more than {PATTERN_BYTES_MAX} bytes"),
        ),
        Err(RegexFault::Option(other)) => failure(51108, format!("{name} invalid flag in regex options: {other}")),
        Err(RegexFault::Syntax(error)) => failure(51111, format!("Invalid Regex in {name}: {error}")),
    }
}

/// Parses one of the three operators.
pub(super) fn parse(parser: &mut Parser<'_>, name: &str, raw: RawBsonRef<'_>) -> Result<Node, QueryError> {
    let (name, wanted) = match name {
        "$regexFind" => ("$regexFind", Wanted::First),
        "$regexFindAll" => ("$regexFindAll", Wanted::All),
        _ => ("$regexMatch", Wanted::Match),
    };
    let not_object = (
        51103,
        format!(
            "{name} expects an object of named arguments but found: {}",
            Value::from_raw(raw).type_name()
        ),
    );
    let [input, regex, options] = named_fields(name, raw, ["input", "regex", "options"], not_object, 31024)?;
    let Some(input) = input else {
        return failure(31022, format!("{name} requires 'input' parameter"));
    };
    let Some(regex) = regex else {
        return failure(31023, format!("{name} requires 'regex' parameter"));
    };
    let input = parser.operand(input)?;
    let regex = parser.operand(regex)?;
    let options = options.map(|options| parser.operand(options)).transpose()?;
    let compiled = match (&regex, &options) {
        (Node::Constant(regex), None) => compile(name, wanted, regex, None)?,
        (Node::Constant(regex), Some(Node::Constant(options))) => compile(name, wanted, regex, Some(options))?,
        _ => None,
    };
    Ok(Node::Special(Box::new(RegexNode {
        name,
        wanted,
        input,
        regex,
        options,
        compiled,
        last: Mutex::default(),
    })))
}
