//! A filter as the planner sees it: conjunctions, disjunctions, leaves on indexed fields, and the rest.

use super::leaf::Leaf;

/// See the module.
#[derive(Clone, Debug)]
pub(crate) enum Predicate {
    /// All hold.
    And(Vec<Predicate>),
    /// One holds.
    Or(Vec<Predicate>),
    /// A set of keys of one field.
    Leaf(Box<Leaf>),
    /// Something no index helps with.
    Opaque,
    /// Nothing matches.
    Never,
}

impl Predicate {
    /// The members of the outermost conjunction as they are: one for each conjunct of the filter.
    pub(crate) fn top_conjuncts(&self) -> &[Predicate] {
        match self {
            Predicate::And(children) => children,
            other => std::slice::from_ref(other),
        }
    }

    /// The members of a conjunction, nested ones taken apart.
    pub(crate) fn conjuncts(&self) -> Vec<&Predicate> {
        let mut list = Vec::new();
        let mut open = vec![self];
        while let Some(predicate) = open.pop() {
            match predicate {
                Predicate::And(children) => open.extend(children.iter().rev()),
                other => list.push(other),
            }
        }
        list
    }
}
