//! The operators of an update as a tree of path components with one operator at each leaf.
//!
//! Invariants: no leaf lies on the way to another one; inserting such a path is a conflict. The children of a branch
//! are in the order in which fields are created: names that are numbers by number, the others by their bytes. The tree
//! is grown without an order, as paths come in any ([`GrowingBranch`]), and sorted once.

use std::collections::HashMap;
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
    /// Leaves below it.
    leaves: usize,
    /// False when no named child does anything where there is no such field.
    may_create: bool,
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
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum ElementStep {
    /// `$`: the element that the filter matched.
    Matched,
    /// `$[]`
    All,
    /// `$[identifier]`: those that the array filter of this number matches.
    Filtered(usize),
}

/// One component of an update's path.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
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
    pub(super) fn of(name: &'n [u8]) -> Self {
        Self::new(name, array_index(name))
    }

    fn new(name: &'n [u8], index: Option<u32>) -> Self {
        index.map_or(Self::Name(name), Self::Index)
    }
}

fn conflict(path: &str, at: &str) -> QueryError {
    let message = format!("Updating the path '{path}' would create a conflict at '{at}'");
    QueryError::new(ErrorCode::ConflictingUpdateOperators, message)
}

/// A branch while operators are added.
#[derive(Debug, Default)]
pub(super) struct GrowingBranch {
    /// In the order in which they came.
    children: Vec<(Step, GrowingNode)>,
    /// Where each is, once they are many.
    places: HashMap<Step, usize>,
}

#[derive(Debug)]
enum GrowingNode {
    Leaf(Arc<Leaf>),
    Branch(GrowingBranch),
}

/// Children that are looked through.
const FEW: usize = 8;

impl GrowingBranch {
    fn place(&self, step: &Step) -> Option<usize> {
        match self.places.is_empty() {
            true => self.children.iter().position(|(other, _)| other == step),
            false => self.places.get(step).copied(),
        }
    }

    fn add(&mut self, step: &Step, node: GrowingNode) -> usize {
        let place = self.children.len();
        self.children.push((step.clone(), node));
        if place == FEW {
            let steps = self.children.iter().map(|(step, _)| step.clone());
            self.places = steps.zip(0..).collect();
        } else if place > FEW {
            self.places.insert(step.clone(), place);
        }
        place
    }

    /// Adds an operator. Fails (40) when another one is there, on the way to it or below it.
    pub(super) fn insert(&mut self, path: &UpdatePath, leaf: Leaf) -> Result<(), QueryError> {
        let mut leaf = Some(Arc::new(leaf));
        let mut branch = self;
        for (position, step) in path.steps.iter().enumerate() {
            let is_last = position + 1 == path.steps.len();
            let place = match branch.place(step) {
                Some(_) if is_last => return Err(conflict(&path.text, &path.text)),
                Some(place) => place,
                None => {
                    // No other steps may stand beside those that select elements.
                    let first = branch.children.first();
                    if first.is_some_and(|(first, _)| first.selects_elements() != step.selects_elements()) {
                        return Err(conflict(&path.text, &path.prefix(position.saturating_sub(1))));
                    }
                    let node = match leaf.take_if(|_| is_last) {
                        Some(leaf) => GrowingNode::Leaf(leaf),
                        None => GrowingNode::Branch(Self::default()),
                    };
                    branch.add(step, node)
                }
            };
            branch = match &mut branch.children[place].1 {
                GrowingNode::Branch(next) => next,
                GrowingNode::Leaf(_) if is_last => return Ok(()),
                GrowingNode::Leaf(_) => return Err(conflict(&path.text, &path.prefix(position))),
            };
        }
        Ok(())
    }

    /// The tree of all that were added. Depth is that of a path.
    pub(super) fn finish(self) -> Branch {
        let mut branch = Branch::default();
        for (step, node) in self.children {
            let node = match node {
                GrowingNode::Leaf(leaf) => Node::Leaf(leaf),
                GrowingNode::Branch(below) => Node::Branch(below.finish()),
            };
            branch.leaves += node.leaves();
            match step {
                Step::Field(name) => {
                    branch.may_create |= node.may_create();
                    let index = array_index(name.as_bytes());
                    branch.fields.push(Field { name, index, node });
                }
                Step::Element(step) => branch.elements.push((step, node)),
            }
        }
        branch.fields.sort_by(|a, b| a.order().cmp(&b.order()));
        branch
    }
}

impl Field {
    fn order(&self) -> NameOrder<'_> {
        NameOrder::new(self.name.as_bytes(), self.index)
    }
}

impl Branch {
    /// The place of a child among the named ones, or where it belongs.
    fn place(&self, wanted: NameOrder<'_>) -> Result<usize, usize> {
        self.fields.binary_search_by_key(&wanted, Field::order)
    }

    /// The place of the child of this name among the named ones.
    pub(super) fn place_of_name(&self, name: &[u8]) -> Option<usize> {
        match self.fields.len() <= FEW {
            true => self.fields.iter().position(|field| field.name.as_bytes() == name),
            false => self.place(NameOrder::of(name)).ok(),
        }
    }

    /// The place of the child whose name is this array index among the named ones.
    pub(super) fn place_of_index(&self, index: u32) -> Option<usize> {
        self.place(NameOrder::Index(index)).ok()
    }

    /// Leaves below it: what walking all of it costs.
    pub(super) fn leaves(&self) -> usize {
        self.leaves
    }

    /// False when no named child does anything where there is no such field.
    pub(super) fn may_create(&self) -> bool {
        self.may_create
    }

    /// What several branches do. Fails (40) when they meet in a leaf.
    fn merged(branches: &[&Branch], path: &dyn Fn() -> String) -> Result<Self, QueryError> {
        let mut merged = Self {
            leaves: branches.iter().map(|branch| branch.leaves).sum(),
            may_create: branches.iter().any(|branch| branch.may_create),
            ..Self::default()
        };
        // Sorted once: each put into its place would move all behind it.
        let mut fields: Vec<&Field> = branches.iter().flat_map(|branch| &branch.fields).collect();
        fields.sort_by(|a, b| a.order().cmp(&b.order()));
        for same in fields.chunk_by(|a, b| a.order() == b.order()) {
            let nodes: Vec<&Node> = same.iter().map(|field| &field.node).collect();
            merged.fields.push(Field {
                name: same[0].name.clone(),
                index: same[0].index,
                node: Node::merged(&nodes, path)?,
            });
        }
        let mut places: HashMap<&ElementStep, usize> = HashMap::new();
        let mut elements: Vec<(&ElementStep, Vec<&Node>)> = Vec::new();
        for (step, node) in branches.iter().flat_map(|branch| &branch.elements) {
            let place = *places.entry(step).or_insert(elements.len());
            match elements.get_mut(place) {
                Some((_, nodes)) => nodes.push(node),
                None => elements.push((step, vec![node])),
            }
        }
        for (step, nodes) in elements {
            merged.elements.push((step.clone(), Node::merged(&nodes, path)?));
        }
        Ok(merged)
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
        let named = self.place_of_name(name);
        let elements = array_index(name).map_or(&[][..], |_| &self.elements);
        let candidates = named.map(|place| &self.fields[place].node).into_iter();
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

    /// Leaves at or below it.
    pub(super) fn leaves(&self) -> usize {
        match self {
            Node::Leaf(_) => 1,
            Node::Branch(branch) => branch.leaves,
        }
    }

    /// False when it does nothing where there is no value. Operators of elements fail there.
    fn may_create(&self) -> bool {
        match self {
            Node::Leaf(leaf) => !leaf.only_removes(),
            Node::Branch(branch) => branch.may_create || !branch.elements.is_empty(),
        }
    }

    /// What several nodes do. Fails (40) when they meet in a leaf. `path` is where they are. Depth is that of a path.
    pub(super) fn merged(nodes: &[&Node], path: &dyn Fn() -> String) -> Result<Node, QueryError> {
        if let [node] = nodes {
            return Ok((*node).clone());
        }
        let mut branches = Vec::with_capacity(nodes.len());
        for node in nodes {
            let Node::Branch(branch) = *node else {
                let message = format!("Update created a conflict at '{}'", path());
                return Err(QueryError::new(ErrorCode::ConflictingUpdateOperators, message));
            };
            branches.push(branch);
        }
        Ok(Node::Branch(Branch::merged(&branches, path)?))
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

    /// The names that lead from it to the first branch that selects elements of an array; none when it is that branch.
    /// Depth is that of a path.
    pub(super) fn names_to_selection(&self) -> Option<Vec<&str>> {
        let Node::Branch(branch) = self else { return None };
        if branch.elements.iter().any(|(step, _)| *step != ElementStep::Matched) {
            return Some(Vec::new());
        }
        branch.fields.iter().find_map(|field| {
            let mut names = field.node.names_to_selection()?;
            names.insert(0, &field.name);
            Some(names)
        })
    }

    /// Whether a leaf at or below it fulfils `test`. Depth is that of a path.
    pub(super) fn any_leaf(&self, test: &dyn Fn(&Leaf) -> Result<bool, QueryError>) -> Result<bool, QueryError> {
        match self {
            Node::Leaf(leaf) => test(leaf),
            Node::Branch(branch) => {
                for node in branch.nodes() {
                    if node.any_leaf(test)? {
                        return Ok(true);
                    }
                }
                Ok(false)
            }
        }
    }
}
