//! A projection applied to a document's bytes.

use std::cell::Cell;

use bson::RawDocument;
use keys::Collator;
use wire::ErrorCode;

use super::{Mode, Node, Rule, Slice};
use crate::QueryError;
use crate::evaluation::EvaluationContext;
use crate::expression::{Expression, check_result_bytes};
use crate::matcher::{Scope, ValuePredicate};
use crate::raw::{self, Element, Elements, Frame, kind};
use crate::value::scan::Malformed;

/// Levels of nesting that are projected; documents are refused long before.
const DEPTH_MAX: usize = 250;

/// One application of a projection.
pub(super) struct Application<'a> {
    /// What expressions are evaluated on.
    pub(super) root: &'a RawDocument,
    pub(super) context: &'a EvaluationContext<'a>,
    pub(super) mode: Mode,
    /// The position that the filter matched, for `field.$`.
    pub(super) matched: Option<u32>,
    /// An array on the way to `$` was cut to the matched element: what is below it stays.
    pub(super) is_cut: Cell<bool>,
    /// An array that is itself an array's element is being walked: `$slice` leaves alone what is in it.
    pub(super) is_nested: Cell<bool>,
    /// Something was made that has levels of its own.
    pub(super) has_new_levels: Cell<bool>,
}

impl Application<'_> {
    /// Appends the projected document.
    pub(super) fn document(
        &self,
        node: &Node,
        document: &RawDocument,
        out: &mut Vec<u8>,
        depth: usize,
    ) -> Result<(), QueryError> {
        if depth > DEPTH_MAX {
            return Err(Malformed.into());
        }
        let bytes = document.as_bytes();
        let frame = Frame::begin(out);
        // Fields that are not named and stay are copied in runs from here.
        let mut copied = 4;
        // Bit n: child n was met. Children beyond are rare.
        let mut met = 0_u64;
        let mut met_beyond = vec![false; node.children.len().saturating_sub(64)];
        for element in Elements::new(document) {
            let element = element?;
            let Some(child) = node.child(element.name()) else {
                continue;
            };
            if self.mode != Mode::Include {
                out.extend_from_slice(&bytes[copied..element.start()]);
                copied = element.end();
            }
            match child.checked_sub(64) {
                None => met |= 1 << child,
                Some(beyond) => met_beyond[beyond] = true,
            }
            self.field(&node.children[child].1, element, out, depth)?;
            if met.count_ones() as usize == node.children.len() {
                break;
            }
        }
        if self.mode != Mode::Include {
            out.extend_from_slice(&bytes[copied..bytes.len() - 1]);
        }
        if node.has_computed {
            for (child, (name, rule)) in node.children.iter().enumerate() {
                let was_met = match child.checked_sub(64) {
                    None => met >> child & 1 == 1,
                    Some(beyond) => met_beyond[beyond],
                };
                match rule {
                    Rule::ElemMatch(predicate, comparer) if was_met && self.mode == Mode::Include => {
                        if let Some(element) = raw::find(document, name.as_bytes())? {
                            self.first_match(predicate, comparer.collator(), element, out)?;
                        }
                    }
                    _ => self.computed(name, rule, was_met, out)?,
                }
            }
        }
        frame.finish(out);
        Ok(())
    }

    /// Appends what a rule makes of a field that is there.
    fn field(&self, rule: &Rule, element: Element<'_>, out: &mut Vec<u8>, depth: usize) -> Result<(), QueryError> {
        match rule {
            Rule::Include => out.extend_from_slice(element.whole()),
            Rule::Exclude => {}
            Rule::Below(node) => {
                let start = out.len();
                raw::append_header(out, element.kind(), element.name());
                match self.value(node, element, out, depth)? {
                    Some(kind) => out[start] = kind,
                    None => out.truncate(start),
                }
            }
            // In place only where the other fields stay; an inclusion appends it.
            Rule::Computed(expression) => {
                if self.mode == Mode::Add {
                    self.append(expression, element.name_str()?, out)?;
                }
            }
            Rule::Slice(_) if self.is_nested.get() => out.extend_from_slice(element.whole()),
            Rule::Slice(slice) => sliced(*slice, element, out)?,
            Rule::ElemMatch(..) if self.mode == Mode::Include => {}
            Rule::ElemMatch(predicate, comparer) => self.first_match(predicate, comparer.collator(), element, out)?,
            Rule::Positional if self.is_cut.get() => out.extend_from_slice(element.whole()),
            Rule::Positional => self.matched_element(element, out)?,
        }
        Ok(())
    }

    /// Appends the projected value and gives its type; `None` is no value.
    fn value(
        &self,
        node: &Node,
        element: Element<'_>,
        out: &mut Vec<u8>,
        depth: usize,
    ) -> Result<Option<u8>, QueryError> {
        match element.kind() {
            kind::DOCUMENT => self.document(node, element.frame()?, out, depth + 1)?,
            kind::ARRAY => self.array(node, element.frame()?, out, depth + 1)?,
            _ if self.mode == Mode::Exclude || (self.mode == Mode::Add && !node.has_computed) => {
                out.extend_from_slice(element.value_bytes());
            }
            _ if node.has_computed => {
                self.made(node, out)?;
                return Ok(Some(kind::DOCUMENT));
            }
            _ => return Ok(None),
        }
        Ok(Some(element.kind()))
    }

    fn array(&self, node: &Node, array: &RawDocument, out: &mut Vec<u8>, depth: usize) -> Result<(), QueryError> {
        if depth > DEPTH_MAX {
            return Err(Malformed.into());
        }
        if node.has_positional && !self.is_cut.get() {
            return self.cut(node, array, out, depth);
        }
        let frame = Frame::begin(out);
        let mut index = 0;
        for item in Elements::new(array) {
            let item = item?;
            let start = out.len();
            raw::append_indexed(out, item.kind(), index, &[]);
            let was_nested = self
                .is_nested
                .replace(self.is_nested.get() || item.kind() == kind::ARRAY);
            let made = self.value(node, item, out, depth);
            self.is_nested.set(was_nested);
            match made? {
                Some(kind) => {
                    out[start] = kind;
                    index += 1;
                }
                None => out.truncate(start),
            }
        }
        frame.finish(out);
        Ok(())
    }

    /// Appends the array of the element that matched: the first array on the way to `$` is the one that is cut.
    fn cut(&self, node: &Node, array: &RawDocument, out: &mut Vec<u8>, depth: usize) -> Result<(), QueryError> {
        let item = self.matched_item(array)?;
        let frame = Frame::begin(out);
        let start = out.len();
        raw::append_indexed(out, item.kind(), 0, &[]);
        self.is_cut.set(true);
        let made = self.value(node, item, out, depth);
        self.is_cut.set(false);
        match made? {
            Some(kind) => out[start] = kind,
            None => out.truncate(start),
        }
        frame.finish(out);
        Ok(())
    }

    /// Appends a computed field, or the documents around one, that [`Self::field`] has not written.
    fn computed(&self, name: &str, rule: &Rule, was_met: bool, out: &mut Vec<u8>) -> Result<(), QueryError> {
        match rule {
            Rule::Computed(expression) if !was_met || self.mode != Mode::Add => {
                self.append(expression, name, out)?;
            }
            Rule::Below(node) if !was_met && node.has_computed => {
                raw::append_header(out, kind::DOCUMENT, name.as_bytes());
                self.made(node, out)?;
            }
            _ => {}
        }
        Ok(())
    }

    fn append(&self, expression: &Expression, name: &str, out: &mut Vec<u8>) -> Result<(), QueryError> {
        self.context.step()?;
        let value = expression.evaluate_on(self.root, self.context)?;
        if value.has_levels() {
            self.has_new_levels.set(true);
        }
        value.append_to(out, name);
        check_result_bytes(out.len())
    }

    /// Appends a document of computed fields alone.
    fn made(&self, node: &Node, out: &mut Vec<u8>) -> Result<(), QueryError> {
        self.has_new_levels.set(true);
        let frame = Frame::begin(out);
        for (name, rule) in &node.children {
            self.computed(name, rule, false, out)?;
        }
        frame.finish(out);
        Ok(())
    }

    fn first_match(
        &self,
        predicate: &ValuePredicate,
        collator: Option<&dyn Collator>,
        element: Element<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), QueryError> {
        if element.kind() != kind::ARRAY {
            return Ok(());
        }
        let scope = Scope {
            collator,
            context: self.context,
        };
        for item in Elements::new(element.frame()?) {
            let item = item?;
            self.context.step()?;
            if predicate.matches(item, scope)? {
                append_single(element, item, out);
                return Ok(());
            }
        }
        Ok(())
    }

    fn matched_element(&self, element: Element<'_>, out: &mut Vec<u8>) -> Result<(), QueryError> {
        if element.kind() != kind::ARRAY {
            out.extend_from_slice(element.whole());
            return Ok(());
        }
        append_single(element, self.matched_item(element.frame()?)?, out);
        Ok(())
    }

    /// The element at the position that the filter matched, which may have been another array's.
    fn matched_item<'d>(&self, array: &'d RawDocument) -> Result<Element<'d>, QueryError> {
        let Some(index) = self.matched else {
            let message = "Executor error during find command :: caused by :: positional operator '.$' couldn't find a \
                           matching element in the array";
            return Err(QueryError::new(ErrorCode(51246), message));
        };
        match Elements::new(array).nth(index as usize).transpose()? {
            Some(item) => Ok(item),
            None => {
                let message = "Executor error during find command :: caused by :: positional operator '.$' element \
                               mismatch";
                Err(QueryError::new(ErrorCode(51247), message))
            }
        }
    }
}

/// Appends an array of one of its elements.
fn append_single(array: Element<'_>, item: Element<'_>, out: &mut Vec<u8>) {
    let frame = Frame::begin_field(out, kind::ARRAY, array.name());
    raw::append_indexed(out, item.kind(), 0, item.value_bytes());
    frame.finish(out);
}

fn sliced(slice: Slice, element: Element<'_>, out: &mut Vec<u8>) -> Result<(), QueryError> {
    if element.kind() != kind::ARRAY {
        out.extend_from_slice(element.whole());
        return Ok(());
    }
    let array = element.frame()?;
    let saturating = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
    let length = Elements::new(array).count();
    let (first, count) = match slice {
        Slice { skip: None, limit } if limit < 0 => (length.saturating_sub(saturating(limit.unsigned_abs())), length),
        Slice { skip, limit } => {
            let skip = skip.unwrap_or(0);
            let distance = saturating(skip.unsigned_abs());
            let first = if skip < 0 {
                length.saturating_sub(distance)
            } else {
                distance
            };
            (first, saturating(limit.unsigned_abs()))
        }
    };
    let frame = Frame::begin_field(out, kind::ARRAY, element.name());
    for (index, item) in Elements::new(array).skip(first).take(count).enumerate() {
        let item = item?;
        raw::append_indexed(out, item.kind(), index, item.value_bytes());
    }
    frame.finish(out);
    Ok(())
}
