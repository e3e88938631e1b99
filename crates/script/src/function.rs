//! A function's source, and what of it the engine is given.

use crate::statements::{Last, ends, last_expression, without_end, without_semicolons};
use bson::RawDocumentBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// A function as a client wrote it: a function, or an expression, or statements that are its body, whose last one, if
/// that is an expression, is its value. Each scope compiles it once.
#[derive(Clone, Debug)]
pub struct Function {
    source: Arc<str>,
    globals: Option<Arc<RawDocumentBuf>>,
    /// What the engine is given.
    text: Arc<OnceLock<String>>,
    /// What scopes know it by.
    pub(crate) number: u64,
}

impl Function {
    /// A function of this source. `globals` are variables that it finds in its scope.
    pub fn new(source: impl Into<Arc<str>>, globals: Option<Arc<RawDocumentBuf>>) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self {
            source: source.into(),
            globals,
            text: Arc::default(),
            number: NEXT.fetch_add(1, Ordering::Relaxed),
        }
    }

    /// As the client wrote it.
    pub fn source(&self) -> &str {
        &self.source
    }

    pub(crate) fn globals(&self) -> Option<&Arc<RawDocumentBuf>> {
        self.globals.as_ref()
    }

    /// The text that is an expression whose value is the function. `compiles` says whether an expression is one, and
    /// fails where the search has to end. If the source is no JavaScript the text is the one whose error tells most.
    ///
    /// A text that closes the brackets around it runs when it is evaluated: that is done where calls are, by their
    /// limits.
    pub(crate) fn find_text<E>(&self, mut compiles: impl FnMut(&str) -> Result<bool, E>) -> Result<&str, E> {
        if let Some(known) = self.text.get() {
            return Ok(known);
        }
        let text = match self.value_text(&mut compiles)? {
            Some(text) => text,
            None => self.body_text(&mut compiles)?,
        };
        Ok(self.text.get_or_init(|| text))
    }

    /// The text of a function or expression.
    fn value_text<E>(&self, compiles: &mut impl FnMut(&str) -> Result<bool, E>) -> Result<Option<String>, E> {
        let whole = value(without_semicolons(&self.source));
        if compiles(&whole)? {
            return Ok(Some(whole));
        }
        for end in ends(&self.source) {
            let source = &self.source[..end];
            let text = value(source);
            // Inside of a comment anything is right.
            if compiles(&text)? && !compiles(&value(&format!("{source} @")))? {
                return Ok(Some(text));
            }
        }
        Ok(None)
    }

    /// The text of statements.
    fn body_text<E>(&self, compiles: &mut impl FnMut(&str) -> Result<bool, E>) -> Result<String, E> {
        let source = without_end(&self.source, compiles)?;
        let whole = value(source);
        let body = format!("(function() {{ {}\n}})", self.source);
        Ok(match last_expression(source, compiles)? {
            Last::Expression(start) => {
                let (before, last) = source.split_at(start);
                format!("(function() {{ {before} return ({last}\n); }})")
            }
            // An error, and not another value.
            Last::Unknown => whole,
            Last::Other => match compiles(&body)? || source.contains([';', '\n']) && !is_function(source) {
                true => body,
                false => whole,
            },
        })
    }
}

/// The text whose value is a source's function, or one that gives its expression's value.
fn value(source: &str) -> String {
    match is_function(source) {
        true => format!("({source}\n)"),
        false => format!("(function() {{ return ({source}\n); }})"),
    }
}

/// Whether a source begins as a function does, and not as a call of one or as another expression.
pub(crate) fn is_function(source: &str) -> bool {
    let text = skip_blank(source);
    let text = match text.strip_prefix("async").filter(|rest| !begins_with_name(rest)) {
        Some(rest) => skip_blank(rest),
        None => text,
    };
    if let Some(rest) = text.strip_prefix("function").filter(|rest| !begins_with_name(rest)) {
        return !is_called(rest);
    }
    let after_parameters = match text.strip_prefix('(') {
        Some(rest) => after_bracket(rest),
        None => text.find(|c: char| !is_name(c)).map(|end| &text[end..]),
    };
    after_parameters.is_some_and(|rest| skip_blank(rest).starts_with("=>"))
}

/// Whether what follows `function` is a whole function and then its arguments.
fn is_called(rest: &str) -> bool {
    let after_parameters = rest.find('(').and_then(|open| after_bracket(&rest[open + 1..]));
    let body = after_parameters.and_then(|rest| skip_blank(rest).strip_prefix('{'));
    let after = body.and_then(after_bracket);
    after.is_some_and(|rest| skip_blank(rest).starts_with(['(', '.', '[']))
}

fn is_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_' || c == '$'
}

pub(crate) fn begins_with_name(text: &str) -> bool {
    text.starts_with(is_name)
}

/// Without white space and comments at the beginning.
pub(crate) fn skip_blank(mut text: &str) -> &str {
    loop {
        text = text.trim_start();
        let comment_end = if text.starts_with("//") {
            text.find('\n').map(|end| end + 1)
        } else if text.starts_with("/*") {
            text.find("*/").map(|end| end + 2)
        } else {
            return text;
        };
        match comment_end {
            Some(end) => text = &text[end..],
            None => return "",
        }
    }
}

/// What follows the bracket that closes the one before `text`. Texts in quotes are no brackets; regular expressions are
/// not known, since a wrong answer costs no more than another attempt to compile.
fn after_bracket(text: &str) -> Option<&str> {
    let (mut open, mut quote, mut escaped) = (1_usize, None, false);
    for (at, c) in text.char_indices() {
        match quote {
            Some(_) if escaped => escaped = false,
            Some(_) if c == '\\' => escaped = true,
            Some(end) if c == end => quote = None,
            Some(_) => {}
            None => match c {
                '"' | '\'' | '`' => quote = Some(c),
                '(' | '[' | '{' => open += 1,
                ')' | ']' | '}' => open -= 1,
                _ => {}
            },
        }
        if open == 0 {
            return Some(&text[at + c.len_utf8()..]);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_told_from_expressions() {
        for source in [
            "function() { return 1 }",
            "function f(a) { return '}' + a }",
            "  // a comment\n function(){}",
            "/* one */ (a, b) => a",
            "x => x",
            "() => { return ')' }",
            "({a, b}) => a",
            "async function() {}",
            "(a = (1)) => a",
        ] {
            assert!(is_function(source), "{source}");
        }
        for source in [
            "this.a > 5",
            "functional(1)",
            "function() { return true }()",
            "function() { return true }.call(this)",
            "(this.a) == 1",
            "return this.a",
            "a >= 1",
            "(",
            "/*",
            "",
        ] {
            assert!(!is_function(source), "{source}");
        }
    }
}
