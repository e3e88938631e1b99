//! Operators applied to a document: its bytes are copied in runs around what changes.
//!
//! 1. Walk the elements; those without a node stay in the current run.
//! 2. At an element with a node, the run is copied out and the node applied; the rest is one run once every child was
//!    met.
//! 3. Children that were not met are created behind, in the tree's order.
//!
//! Invariant: `path` names the components from the root to where the walk is. Recursion is bounded by the tree's depth.

use bson::RawDocument;
use wire::ErrorCode;

use super::ArrayFilter;
use super::leaf::{Change, Leaf, Surroundings};
use super::limits::BACKFILL_MAX;
use super::replace::dollar_at_the_top;
use super::tree::{Branch, ElementStep, Field, Node};
use crate::QueryError;
use crate::raw::{self, Element, Elements, Frame, kind};

/// Children of a branch for which [`Met`] has a mark that count as one step.
const FIELDS_PER_STEP: usize = 128;

/// One application of an update's operators.
pub(super) struct Application<'a> {
    pub(super) around: Surroundings<'a>,
    pub(super) filters: &'a [ArrayFilter],
    /// Names on the way, for messages.
    path: Vec<Vec<u8>>,
}

impl<'a> Application<'a> {
    pub(super) fn new(around: Surroundings<'a>, filters: &'a [ArrayFilter]) -> Self {
        Self {
            around,
            filters,
            path: Vec::new(),
        }
    }

    fn path_text(&self) -> String {
        let names: Vec<_> = self.path.iter().map(|name| String::from_utf8_lossy(name)).collect();
        names.join(".")
    }

    /// Writes the changed document; false when nothing changed.
    pub(super) fn document(
        &mut self,
        branch: &Branch,
        document: &RawDocument,
        out: &mut Vec<u8>,
    ) -> Result<bool, QueryError> {
        let bytes = document.as_bytes();
        let frame = Frame::begin(out);
        let mut changed = false;
        let mut copied = 4;
        let evaluation = self.around.evaluation;
        evaluation.steps(1 + branch.fields.len() / FIELDS_PER_STEP)?;
        let mut met = Met::new(branch.fields.len());
        for element in Elements::new(document) {
            let element = element?;
            evaluation.step()?;
            let name = element.name();
            let Some(child) = branch.place_of_name(name).filter(|child| met.insert(*child)) else {
                continue;
            };
            out.extend_from_slice(&bytes[copied..element.start()]);
            match self.element(&branch.fields[child].node, element, name, out)? {
                Change::Same => copied = element.start(),
                change @ (Change::Value(_) | Change::Removed) => {
                    let writes = match &branch.fields[child].node {
                        Node::Leaf(leaf) => change != Change::Removed && !leaf.only_removes(),
                        Node::Branch(_) => false,
                    };
                    if writes {
                        self.check_name(name)?;
                    }
                    changed = true;
                    copied = element.end();
                }
            }
            if met.count == branch.fields.len() {
                break;
            }
        }
        out.extend_from_slice(&bytes[copied..bytes.len() - 1]);
        let created = if branch.may_create() { &branch.fields[..] } else { &[] };
        for (position, field) in created.iter().enumerate() {
            evaluation.step()?;
            if !met.contains(position) && self.create(&field.node, field.name.as_bytes(), out)? {
                self.check_name(field.name.as_bytes())?;
                changed = true;
            }
        }
        frame.finish(out);
        Ok(changed)
    }

    /// Fails (52) when a field that was written is at the top and has a dollar in front. New documents may have such.
    fn check_name(&self, name: &[u8]) -> Result<(), QueryError> {
        match self.path.is_empty() && !self.around.is_insert && name.first() == Some(&b'$') {
            true => Err(dollar_at_the_top(&String::from_utf8_lossy(name))),
            false => Ok(()),
        }
    }

    /// Applies a node to a field that is there and writes it under `name`. Writes nothing unless it answers `Value`.
    fn element(
        &mut self,
        node: &Node,
        element: Element<'_>,
        name: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Change, QueryError> {
        let start = out.len();
        raw::append_header(out, element.kind(), name);
        let value_at = out.len();
        let change = match node {
            Node::Leaf(leaf) => leaf.change(element, &self.around, out)?,
            Node::Branch(branch) => {
                self.path.push(name.to_vec());
                let changed = match element.kind() {
                    kind::ARRAY => self.array(branch, element, out)?,
                    _ if !branch.elements.is_empty() => return Err(self.not_an_array(branch, element)),
                    kind::DOCUMENT => self.document(branch, element.frame()?, out)?,
                    _ => {
                        self.check_viable(branch, element, |_| true)?;
                        false
                    }
                };
                self.path.pop();
                if changed {
                    Change::Value(element.kind())
                } else {
                    Change::Same
                }
            }
        };
        match change {
            Change::Value(kind) if kind == element.kind() && out[value_at..] == *element.value_bytes() => {
                out.truncate(start);
                Ok(Change::Same)
            }
            Change::Value(kind) => {
                out[start] = kind;
                Ok(change)
            }
            Change::Same | Change::Removed => {
                out.truncate(start);
                Ok(change)
            }
        }
    }

    fn not_an_array(&self, branch: &Branch, element: Element<'_>) -> QueryError {
        let description = raw::describe_element(element);
        if branch.elements.iter().all(|(step, _)| *step == ElementStep::Matched) {
            if let Err(error) = self.matched() {
                return error;
            }
            let message = format!("Cannot create field '$' in element {{{description}}}");
            return QueryError::new(ErrorCode::PathNotViable, message);
        }
        QueryError::bad_value(format!("Cannot apply array updates to non-array element {description}"))
    }

    /// Fails when one of the named children lies in a value that has no such fields: (2) when it leads to elements of
    /// an array, else (28) when it would have to be created or belongs to an operator that takes no such path.
    fn check_viable(
        &self,
        branch: &Branch,
        element: Element<'_>,
        is_concerned: impl Fn(Option<u32>) -> bool,
    ) -> Result<(), QueryError> {
        self.around.evaluation.steps(branch.leaves())?;
        for field in branch.fields.iter().filter(|field| is_concerned(field.index)) {
            self.check_selection(field)?;
            let message = if field.node.any_leaf(&|leaf| leaf.creates(&self.around))? {
                let description = raw::describe_element(element);
                format!("Cannot create field '{}' in element {{{description}}}", field.name)
            } else if let Some(below) = field.node.names_to_leaf(&Leaf::needs_viable_path) {
                let description = raw::describe_element(element);
                let taken = self.path_text();
                let names = [&[&*field.name], &*below].concat().join(".");
                format!(
                    "Cannot use the part ({}) of ({taken}.{names}) to traverse the element ({{{description}}})",
                    field.name
                )
            } else {
                continue;
            };
            return Err(QueryError::new(ErrorCode::PathNotViable, message));
        }
        Ok(())
    }

    /// Fails (2) when a named child that is not there leads to elements of an array, whatever its operators are.
    fn check_selection(&self, field: &Field) -> Result<(), QueryError> {
        match field.node.names_to_selection() {
            Some(below) => {
                let names = [&[&*field.name], &*below].concat().join(".");
                Err(missing_array(&format!("{}.{names}", self.path_text())))
            }
            None => Ok(()),
        }
    }

    /// Writes the changed array; false when nothing changed.
    fn array(&mut self, branch: &Branch, array: Element<'_>, out: &mut Vec<u8>) -> Result<bool, QueryError> {
        self.check_viable(branch, array, |index| index.is_none())?;
        for node in branch.nodes() {
            if node.any_leaf(&|leaf| Ok(leaf.is_rename()))? {
                return Err(QueryError::bad_value(format!(
                    "The source and destination fields of $rename cannot be array elements, '{}' in doc with {} has \
                     an array field",
                    self.path_text(),
                    self.around.id()
                )));
            }
        }
        let document = array.frame()?;
        let bytes = document.as_bytes();
        let frame = Frame::begin(out);
        let mut changed = false;
        let mut copied = 4;
        let mut length = 0;
        for item in Elements::new(document) {
            let item = item?;
            self.around.evaluation.step()?;
            let index = length;
            length += 1;
            let named = branch.place_of_index(index).map(|place| &branch.fields[place].node);
            let Some(node) = self.node_for(branch, named, item, index)? else {
                continue;
            };
            out.extend_from_slice(&bytes[copied..item.start()]);
            let change = self.element(node.as_ref(), item, item.name(), out)?;
            match change {
                Change::Same => copied = item.start(),
                // An array keeps its length.
                Change::Removed if item.kind() == kind::NULL => copied = item.start(),
                Change::Removed => {
                    raw::append(out, kind::NULL, item.name(), &[]);
                    changed = true;
                    copied = item.end();
                }
                Change::Value(_) => {
                    changed = true;
                    copied = item.end();
                }
            }
        }
        out.extend_from_slice(&bytes[copied..bytes.len() - 1]);
        changed |= self.extend(branch, length, out)?;
        frame.finish(out);
        Ok(changed)
    }

    /// Creates elements behind the end of an array, with nulls between.
    fn extend(&mut self, branch: &Branch, mut length: u32, out: &mut Vec<u8>) -> Result<bool, QueryError> {
        let old = length;
        self.around.evaluation.steps(branch.leaves())?;
        for field in &branch.fields {
            let Some(index) = field.index.filter(|index| *index >= length) else {
                continue;
            };
            self.check_selection(field)?;
            if !field.node.any_leaf(&|leaf| leaf.creates(&self.around))? {
                continue;
            }
            if index - old > BACKFILL_MAX {
                return Err(QueryError::bad_value(format!(
                    "can't backfill more than {BACKFILL_MAX} elements"
                )));
            }
            for gap in length..index {
                raw::append_indexed(out, kind::NULL, gap as usize, &[]);
            }
            self.create(&field.node, field.name.as_bytes(), out)?;
            length = index + 1;
        }
        Ok(length > old)
    }

    /// What is to be done with one element of an array; `named` is the node of its position.
    fn node_for<'b>(
        &self,
        branch: &'b Branch,
        named: Option<&'b Node>,
        item: Element<'_>,
        index: u32,
    ) -> Result<Option<Chosen<'b>>, QueryError> {
        let mut first = named;
        // Those that lead to the element beside the first one.
        let mut others: Vec<&'b Node> = Vec::new();
        for (step, node) in &branch.elements {
            self.around.evaluation.step()?;
            let applies = match step {
                ElementStep::All => true,
                ElementStep::Matched => self.matched()? == index,
                ElementStep::Filtered(filter) => self.filters[*filter].matches(item, self.around.scope())?,
            };
            match applies {
                true if first.is_none() => first = Some(node),
                true => others.push(node),
                false => {}
            }
        }
        let Some(first) = first else {
            return Ok(None);
        };
        if others.is_empty() {
            return Ok(Some(Chosen::One(first)));
        }
        others.insert(0, first);
        // All that is copied is counted before.
        let leaves: usize = others.iter().map(|node| node.leaves()).sum();
        self.around.evaluation.steps(leaves)?;
        let path = || format!("{}.{index}", self.path_text());
        Ok(Some(Chosen::Merged(Box::new(Node::merged(&others, &path)?))))
    }

    fn matched(&self) -> Result<u32, QueryError> {
        self.around.context.details.array_index.ok_or_else(|| {
            QueryError::bad_value("The positional operator did not find the match needed from the query.")
        })
    }

    /// Writes a field that is not there; false when the operators make none.
    fn create(&mut self, node: &Node, name: &[u8], out: &mut Vec<u8>) -> Result<bool, QueryError> {
        let start = out.len();
        match node {
            Node::Leaf(leaf) => {
                raw::append_header(out, 0, name);
                match leaf.create(&self.around, out)? {
                    Some(kind) => out[start] = kind,
                    None => out.truncate(start),
                }
            }
            Node::Branch(branch) => {
                self.path.push(name.to_vec());
                if let Some((step, _)) = branch.elements.first() {
                    if *step == ElementStep::Matched {
                        self.matched()?;
                    }
                    return Err(missing_array(&self.path_text()));
                }
                let frame = Frame::begin_field(out, kind::DOCUMENT, name);
                for field in &branch.fields {
                    self.around.evaluation.step()?;
                    self.create(&field.node, field.name.as_bytes(), out)?;
                }
                if frame.is_empty(out) {
                    out.truncate(start);
                } else {
                    frame.finish(out);
                }
                self.path.pop();
            }
        }
        Ok(out.len() > start)
    }
}

fn missing_array(path: &str) -> QueryError {
    QueryError::bad_value(format!(
        "The path '{path}' must exist in the document in order to apply array updates."
    ))
}

/// The node for an element of an array.
enum Chosen<'b> {
    One(&'b Node),
    /// Several paths lead to the element.
    Merged(Box<Node>),
}

impl Chosen<'_> {
    fn as_ref(&self) -> &Node {
        match self {
            Chosen::One(node) => node,
            Chosen::Merged(node) => node,
        }
    }
}

/// Which children of a branch were met in the document.
struct Met {
    first: u64,
    rest: Vec<bool>,
    count: usize,
}

impl Met {
    fn new(children: usize) -> Self {
        Self {
            first: 0,
            rest: vec![false; children.saturating_sub(64)],
            count: 0,
        }
    }

    fn contains(&self, child: usize) -> bool {
        if child < 64 {
            self.first >> child & 1 == 1
        } else {
            self.rest[child - 64]
        }
    }

    /// False when it was met before: a second field of the same name is left alone.
    fn insert(&mut self, child: usize) -> bool {
        if self.contains(child) {
            return false;
        }
        if child < 64 {
            self.first |= 1 << child;
        } else {
            self.rest[child - 64] = true;
        }
        self.count += 1;
        true
    }
}
