//! Projections: which fields of a document go out, and computed ones.
//!
//! One tree serves `find` (with `$slice`, `$elemMatch` and the positional `field.$`) and the stages `$project`,
//! `$addFields` and `$unset`. Applying it copies the bytes of what stays; only computed fields are values.
//! - Fields keep the document's order; computed ones, and those of `$elemMatch` in an inclusion, come behind, in the
//!   order written. `$addFields` replaces in place.
//! - Arrays on the way are projected element by element, at any depth.

mod apply;
mod parse;
mod top_fields;

use bson::{RawBsonRef, RawDocument, RawDocumentBuf, rawdoc};
use std::cell::Cell;
use std::collections::HashMap;
use wire::ErrorCode;

use crate::QueryError;
use crate::evaluation::EvaluationContext;
use crate::expression::{Dependencies, Expression, ExpressionContext};
use crate::matcher::{MatchDetails, Matcher, ValuePredicate};
use crate::raw::{self, Elements};
use crate::value::scan::frame;
use crate::value::{Comparer, check_depth};
pub(crate) use top_fields::TopFields;

/// A parsed projection, of `find` or of one of the stages `$project`, `$addFields` and `$unset`.
#[derive(Debug)]
pub struct Projection {
    source: RawDocumentBuf,
    mode: Mode,
    root: Node,
    is_positional: bool,
    /// The paths that get the sort's key.
    sort_keys: Vec<String>,
    /// The same as `root`, where it is no more than names.
    top: Option<TopFields>,
}

/// What happens to fields that are not named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// They are left out.
    Include,
    /// They stay.
    Exclude,
    /// They stay, and what is computed takes the place of the field of its name.
    Add,
}

/// Children up to which they are looked for one by one.
const SEARCHED_CHILDREN: usize = 8;

/// The rules for the fields of one document, in the order written.
#[derive(Debug, Default)]
struct Node {
    children: Vec<(Box<str>, Rule)>,
    /// Where the children are, of a node that has more than [`SEARCHED_CHILDREN`].
    places: HashMap<Box<[u8]>, usize>,
    /// Something in here or below is computed, or an `$elemMatch`.
    has_computed: bool,
    /// `$` stands at a field in here or below.
    has_positional: bool,
}

/// The rule for one field.
#[derive(Debug)]
enum Rule {
    Include,
    Exclude,
    Below(Node),
    Computed(Expression),
    Slice(Slice),
    ElemMatch(ValuePredicate, Comparer),
    /// `field.$`: the matched element of the array.
    Positional,
}

/// `$slice` of `find`.
#[derive(Clone, Copy, Debug)]
struct Slice {
    /// Elements to leave out; negative counts from the end.
    skip: Option<i64>,
    /// Elements to keep; negative, without `skip`, those at the end.
    limit: i64,
}

impl Projection {
    /// Parses the projection of `find` and `findAndModify`.
    pub fn parse(spec: &RawDocument, context: &ExpressionContext) -> Result<Self, QueryError> {
        parse::find(spec, context)
    }

    /// Parses the document of `$project`.
    pub fn parse_project(spec: &RawDocument, context: &ExpressionContext) -> Result<Self, QueryError> {
        parse::project(spec, context)
    }

    /// Parses the document of `$addFields` (`$set`).
    pub fn parse_add_fields(spec: &RawDocument, context: &ExpressionContext) -> Result<Self, QueryError> {
        parse::add_fields(spec, context)
    }

    /// Parses the argument of `$unset`: a path or an array of paths to leave out.
    pub fn parse_unset(spec: RawBsonRef<'_>) -> Result<Self, QueryError> {
        let failure = |code, message| Err(QueryError::new(ErrorCode(code), message));
        match spec {
            RawBsonRef::String(path) => Self::excluding(&[path]),
            RawBsonRef::Array(array) => {
                let mut paths = Vec::new();
                for item in Elements::new(frame(array.as_bytes())?) {
                    match item?.value()? {
                        RawBsonRef::String(path) => paths.push(path),
                        _ => {
                            let message = "$unset specification must be a string or an array containing only string \
                                           values";
                            return failure(31120, message);
                        }
                    }
                }
                match paths.is_empty() {
                    true => failure(
                        31119,
                        "$unset specification must be a string or an array with at least one field",
                    ),
                    false => Self::excluding(&paths),
                }
            }
            _ => failure(31002, "$unset specification must be a string or an array"),
        }
    }

    /// The projection that leaves out these paths.
    pub fn excluding(paths: &[&str]) -> Result<Self, QueryError> {
        parse::excluding(paths)
    }

    /// Appends the projected document to `out`. `matcher` is the filter that the document matched, for `field.$`.
    pub fn apply(
        &self,
        document: &RawDocument,
        matcher: Option<&Matcher>,
        context: &EvaluationContext<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), QueryError> {
        if let Some(top) = &self.top {
            return Ok(top.apply(document, out)?);
        }
        let details = match matcher.filter(|_| self.is_positional) {
            Some(matcher) => matcher.details_of_match(document, context)?,
            None => MatchDetails::default(),
        };
        let application = apply::Application {
            root: document,
            context,
            mode: self.mode,
            matched: details.array_index,
            is_cut: Cell::new(false),
            is_nested: Cell::new(false),
            has_new_levels: Cell::new(false),
        };
        let start = out.len();
        application.document(&self.root, document, out, 0)?;
        if application.has_new_levels.get() {
            check_depth(frame(&out[start..])?)?;
        }
        Ok(())
    }

    /// Whether the document goes out as it is.
    pub fn is_identity(&self) -> bool {
        self.mode != Mode::Include && self.root.children.is_empty()
    }

    /// The included paths, when including and excluding `_id` is all it does; `_id` is among them unless excluded. Then
    /// an index on these fields can answer it.
    pub fn simple_inclusion(&self) -> Option<Vec<String>> {
        let mut paths = Vec::new();
        (self.mode == Mode::Include && self.root.add_included("", &mut paths)).then_some(paths)
    }

    /// The paths that it takes over as they are; what it computes or leaves out is not among them.
    pub(crate) fn passed_fields(&self) -> Vec<String> {
        let mut paths = Vec::new();
        self.root.add_passed("", &mut paths);
        paths
    }

    /// The paths it reads.
    pub fn add_dependencies(&self, dependencies: &mut Dependencies) {
        if self.mode != Mode::Include {
            dependencies.whole_document = true;
        }
        self.root.add_dependencies("", dependencies);
    }

    /// What of it goes along with an index key that stands for the document: the sort's key, if that is asked for.
    pub(crate) fn beside_key(&self, context: &ExpressionContext) -> Result<Option<Self>, QueryError> {
        if self.sort_keys.is_empty() {
            return Ok(None);
        }
        let (mut spec, meta) = (Vec::new(), rawdoc! { "$meta": "sortKey" });
        let whole = raw::Frame::begin(&mut spec);
        for path in &self.sort_keys {
            raw::append(&mut spec, raw::kind::DOCUMENT, path.as_bytes(), meta.as_bytes());
        }
        whole.finish(&mut spec);
        parse::find(frame(&spec)?, context).map(Some)
    }

    /// Whether it has a positional `field.$`.
    pub fn is_positional(&self) -> bool {
        self.is_positional
    }

    /// As the client wrote it.
    pub fn source(&self) -> &RawDocument {
        &self.source
    }
}

fn joined(prefix: &str, name: &str) -> String {
    if prefix.is_empty() {
        name.to_owned()
    } else {
        format!("{prefix}.{name}")
    }
}

impl Node {
    fn child(&self, name: &[u8]) -> Option<usize> {
        match self.places.is_empty() {
            true => self.children.iter().position(|(child, _)| child.as_bytes() == name),
            false => self.places.get(name).copied(),
        }
    }

    /// Adds a child, and tells where it is.
    fn add_child(&mut self, name: &str, rule: Rule) -> usize {
        self.children.push((name.into(), rule));
        self.note_places();
        self.children.len() - 1
    }

    /// Puts a child in front of the others.
    fn add_first_child(&mut self, name: &str, rule: Rule) {
        self.children.insert(0, (name.into(), rule));
        self.places.clear();
        self.note_places();
    }

    fn note_places(&mut self) {
        if self.children.len() > SEARCHED_CHILDREN {
            for place in self.places.len()..self.children.len() {
                self.places.insert(self.children[place].0.as_bytes().into(), place);
            }
        }
    }

    fn add_included(&self, prefix: &str, paths: &mut Vec<String>) -> bool {
        self.children.iter().all(|(name, rule)| match rule {
            Rule::Include => {
                paths.push(joined(prefix, name));
                true
            }
            Rule::Exclude => prefix.is_empty() && &**name == "_id",
            Rule::Below(node) => node.add_included(&joined(prefix, name), paths),
            _ => false,
        })
    }

    fn add_passed(&self, prefix: &str, paths: &mut Vec<String>) {
        for (name, rule) in &self.children {
            match rule {
                Rule::Include => paths.push(joined(prefix, name)),
                // The document stays where it was, whatever comes into it.
                Rule::Below(node) if node.has_computed => paths.push(joined(prefix, name)),
                Rule::Below(node) => node.add_passed(&joined(prefix, name), paths),
                _ => {}
            }
        }
    }

    fn add_dependencies(&self, prefix: &str, dependencies: &mut Dependencies) {
        for (name, rule) in &self.children {
            match rule {
                Rule::Exclude => {}
                Rule::Include | Rule::Slice(_) | Rule::ElemMatch(..) | Rule::Positional => {
                    dependencies.paths.insert(joined(prefix, name));
                }
                Rule::Computed(expression) => expression.add_dependencies(dependencies),
                Rule::Below(node) => {
                    let path = joined(prefix, name);
                    // Whether the field is a document or an array decides what becomes of computed ones in it.
                    if node.has_computed {
                        dependencies.paths.insert(path.clone());
                    }
                    node.add_dependencies(&path, dependencies);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
