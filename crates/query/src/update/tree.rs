//! The operators of an update as a tree of path components with one operator at each leaf.
//!
//! Invariant: no leaf lies on the way to another one; inserting such a path is a conflict. The children of a branch are
//! in the order in which fields are created: names that are numbers by number, the others by their bytes.

use std::sync::Arc;

use storage::{Target, Targets};
use wire::ErrorCode;

use super::leaf::Leaf;
use crate::QueryError;
use crate::path::{COMPONENTS_MAX, array_index};

/// A place in the tree.
#[derive(Clone, Debug)]
pub(super) enum Node {
    Leaf(Arc<Leaf>),
    Branch(Branch),
}

/// The operators below a document or array.
#[derive(Clone, Debug, Default)]
pub(super) struct Branch {
    /// By name, or by array index where the name is a number; in order.
    pub(super) fields: Vec<Field>,
    /// By position in an array.
    pub(super) elements: Vec<(ElementStep, Node)>,
}

/// A named child.
#[derive(Clone, Debug)]
pub(super) struct Field {
    pub(super) name: Box<str>,
    /// The array index that the name is.
    pub(super) index: Option<u32>,
    pub(super) node: Node,
}

/// A component that stands for elements of an array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ElementStep {
    /// `$`: the element that the filter matched.
    Matched,
    /// `$[]`
    All,
    /// `$[identifier]`: those that the array filter of this number matches.
    Filtered(usize),
}

/// One component of an update's path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Field(Box<str>),
    Element(ElementStep),
}

impl Step {
    /// By all of them, or by an array filter.
    fn selects_elements(&self) -> bool {
        matches!(self, Self::Element(ElementStep::All | ElementStep::Filtered(_)))
    }
}

/// The path of an operator, checked.
#[derive(Clone, Debug)]
pub(super) struct UpdatePath {
    pub(super) text: Box<str>,
    pub(super) steps: Vec<Step>,
}

impl UpdatePath {
    /// Takes a path apart. `identifier` finds the number of an array filter.
    pub(super) fn parse(text: &str, mut identifier: impl FnMut(&str) -> Option<usize>) -> Result<Self, QueryError> {
        if text.is_empty() {
            return Err(QueryError::new(
                ErrorCode::EmptyFieldName,
                "An empty update path is not valid.",
            ));
        }
        let mut steps = Vec::new();
        let mut matched = 0;
        for part in text.split('.') {
            let step = if part.is_empty() {
                let message = format!("The update path '{text}' contains an empty field name, which is not allowed.");
                return Err(QueryError::new(ErrorCode::EmptyFieldName, message));
            } else if part == "$" {
                matched += 1;
                Step::Element(ElementStep::Matched)
            } else if let Some(inner) = part.strip_prefix("$[").and_then(|rest| rest.strip_suffix(']')) {
                Step::Element(match inner {
                    "" => ElementStep::All,
                    name => ElementStep::Filtered(identifier(name).ok_or_else(|| {
                        let message = format!("No array filter found for identifier '{name}' in path '{text}'");
                        QueryError::bad_value(message)
                    })?),
                })
            } else {
                Step::Field(part.into())
            };
            if let (true, Step::Element(element)) = (steps.is_empty(), &step) {
                let what = match element {
                    ElementStep::Matched => "positional (i.e. '$') element",
                    _ => "array filter identifier (i.e. '$[<id>]') element",
                };
                let message = format!("Cannot have {what} in the first position in path '{text}'");
                return Err(QueryError::bad_value(message));
            }
            steps.push(step);
        }
        if matched > 1 {
            let message = format!("Too many positional (i.e. '$') elements found in path '{text}'");
            return Err(QueryError::bad_value(message));
        }
        if steps.len() > COMPONENTS_MAX {
            let message = format!(
                "Update path is too long: {} components, at most {COMPONENTS_MAX}",
                steps.len()
            );
            return Err(QueryError::new(ErrorCode::Overflow, message));
        }
        Ok(Self {
            text: text.into(),
            steps,
        })
    }

    /// Whether an array element is part of the path.
    pub(super) fn is_dynamic(&self) -> bool {
        self.steps.iter().any(|step| matches!(step, Step::Element(_)))
    }

    /// The path up to and with the component at `last`.
    fn prefix(&self, last: usize) -> String {
        let parts: Vec<&str> = self.text.split('.').take(last + 1).collect();
        parts.join(".")
    }
}

/// How created fields are ordered: numbers first, among themselves by their value. An order of all names: by their
/// bytes 9 would come behind "1a", and "1a" behind 10.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum NameOrder<'n> {
    Index(u32),
    Name(&'n [u8]),
}

impl<'n> NameOrder<'n> {
    pub(super) fn of(name: &'n str) -> Self {
        Self::new(name, array_index(name.as_bytes()))
    }

    fn new(name: &'n str, index: Option<u32>) -> Self {
        index.map_or(Self::Name(name.as_bytes()), Self::Index)
    }
}

fn conflict(path: &str, at: &str) -> QueryError {
    let message = format!("Updating the path '{path}' would create a conflict at '{at}'");
    QueryError::new(ErrorCode::ConflictingUpdateOperators, message)
}

impl Branch {
    /// The position of the named child, or where it belongs.
    fn position(&self, name: &str, index: Option<u32>) -> Result<usize, usize> {
        self.fields.binary_search_by_key(&NameOrder::new(name, index), |field| {
            NameOrder::new(&field.name, field.index)
        })
    }

    fn child(&mut self, step: &Step) -> Option<&mut Node> {
        match step {
            Step::Field(name) => {
                let position = self.position(name, array_index(name.as_bytes())).ok()?;
                Some(&mut self.fields[position].node)
            }
            Step::Element(step) => self
                .elements
                .iter_mut()
                .find(|(other, _)| other == step)
                .map(|(_, node)| node),
        }
    }

    fn add_child(&mut self, step: &Step, node: Node) {
        match step {
            Step::Field(name) => {
                let index = array_index(name.as_bytes());
                let position = self.position(name, index).unwrap_or_else(|position| position);
                self.fields.insert(
                    position,
                    Field {
                        name: name.clone(),
                        index,
                        node,
                    },
                );
            }
            Step::Element(step) => self.elements.push((step.clone(), node)),
        }
    }

    /// Whether its steps select elements of an array, which no other steps may stand beside; `None` without steps.
    fn is_of_elements(&self) -> Option<bool> {
        match self.elements.first() {
            Some((ElementStep::All | ElementStep::Filtered(_), _)) => Some(true),
            Some((ElementStep::Matched, _)) => Some(false),
            None => (!self.fields.is_empty()).then_some(false),
        }
    }

    /// Adds an operator. Fails (40) when another one is there, on the way to it or below it.
    pub(super) fn insert(&mut self, path: &UpdatePath, leaf: Leaf) -> Result<(), QueryError> {
        let mut leaf = Some(Arc::new(leaf));
        let mut branch = self;
        for (position, step) in path.steps.iter().enumerate() {
            let is_last = position + 1 == path.steps.len();
            if branch.child(step).is_none() {
                if branch
                    .is_of_elements()
                    .is_some_and(|of_elements| of_elements != step.selects_elements())
                {
                    return Err(conflict(&path.text, &path.prefix(position.saturating_sub(1))));
                }
                let node = match leaf.take_if(|_| is_last) {
                    Some(leaf) => Node::Leaf(leaf),
                    None => Node::Branch(Branch::default()),
                };
                branch.add_child(step, node);
                if is_last {
                    return Ok(());
                }
            } else if is_last {
                return Err(conflict(&path.text, &path.text));
            }
            branch = match branch.child(step) {
                Some(Node::Branch(next)) => next,
                _ => return Err(conflict(&path.text, &path.prefix(position))),
            };
        }
        Ok(())
    }

    /// The children's nodes.
    pub(super) fn nodes(&self) -> impl Iterator<Item = &Node> {
        self.fields
            .iter()
            .map(|field| &field.node)
            .chain(self.elements.iter().map(|(_, node)| node))
    }
}

impl Targets for Branch {
    fn at(&self, path: &[&[u8]]) -> Target {
        let Some((name, rest)) = path.split_first() else {
            return Target::Inside;
        };
        let named = self.fields.iter().find(|field| field.name.as_bytes() == *name);
        let elements = array_index(name).map_or(&[][..], |_| &self.elements);
        let candidates = named.map(|field| &field.node).into_iter();
        // Which elements an array filter has met is not known any more: those that differ.
        candidates
            .chain(elements.iter().map(|(_, node)| node))
            .map(|node| node.at(rest))
            .find(|target| *target != Target::Unknown)
            .unwrap_or(Target::Unknown)
    }
}

impl Node {
    fn at(&self, path: &[&[u8]]) -> Target {
        match self {
            Node::Branch(branch) => branch.at(path),
            Node::Leaf(_) if !path.is_empty() => Target::Unknown,
            Node::Leaf(leaf) => match &**leaf {
                Leaf::Push(_) | Leaf::AddToSet(_) => Target::Extended,
                _ => Target::Whole,
            },
        }
    }

    /// One node that does what both do. Fails (40) when they meet in a leaf. `path` is where they are.
    pub(super) fn merged(&self, other: &Node, path: &dyn Fn() -> String) -> Result<Node, QueryError> {
        let (Node::Branch(a), Node::Branch(b)) = (self, other) else {
            let message = format!("Update created a conflict at '{}'", path());
            return Err(QueryError::new(ErrorCode::ConflictingUpdateOperators, message));
        };
        let mut both = a.clone();
        let fields = b
            .fields
            .iter()
            .map(|field| (Step::Field(field.name.clone()), &field.node));
        let elements = b
            .elements
            .iter()
            .map(|(step, node)| (Step::Element(step.clone()), node));
        for (step, node) in fields.chain(elements) {
            match both.child(&step) {
                Some(mine) => *mine = mine.merged(node, path)?,
                None => both.add_child(&step, node.clone()),
            }
        }
        Ok(Node::Branch(both))
    }

    /// The names that lead from it to the first leaf that fulfils `test`; none when it is that leaf. Depth is that of a
    /// path.
    pub(super) fn names_to_leaf(&self, test: &dyn Fn(&Leaf) -> bool) -> Option<Vec<&str>> {
        match self {
            Node::Leaf(leaf) => test(leaf).then(Vec::new),
            Node::Branch(branch) => branch.fields.iter().find_map(|field| {
                let mut names = field.node.names_to_leaf(test)?;
                names.insert(0, &field.name);
                Some(names)
            }),
        }
    }

    /// Whether a leaf at or below it fulfils `test`. Depth is that of a path.
    pub(super) fn any_leaf(&self, test: &dyn Fn(&Leaf) -> bool) -> bool {
        match self {
            Node::Leaf(leaf) => test(leaf),
            Node::Branch(branch) => branch.nodes().any(|node| node.any_leaf(test)),
        }
    }
}
