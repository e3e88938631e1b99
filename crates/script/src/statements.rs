//! Where the last statement of a source begins, if that is an expression: its value is the source's, as in MongoDB.
//!
//! There is no parser of JavaScript but the engine's, and that tells only whether a text compiles. So places where a
//! statement may begin are tried from the end, and each is asked about in such texts that the answers leave no doubt: a
//! wrong place would not be an error but another condition.

use crate::function::{begins_with_name, skip_blank};

/// So many places are tried.
const PLACES_MAX: usize = 256;

/// A source without the semicolons, blanks and comments behind its last expression.
pub(crate) fn without_end(source: &str) -> &str {
    let semicolons = source.rmatch_indices(';').take(PLACES_MAX);
    let ends = semicolons.filter(|(at, _)| is_end(&source[*at..]));
    // A semicolon inside of a comment at the end is none.
    ends.last().map_or(source, |(at, _)| &source[..at])
}

/// Whether a text has nothing but semicolons, blanks and comments.
fn is_end(mut text: &str) -> bool {
    loop {
        text = skip_blank(text);
        match text.strip_prefix(';') {
            Some(rest) => text = rest,
            None => return text.is_empty(),
        }
    }
}

/// Where the last statement begins, if it is an expression and there are others before it. `compiles` says whether an
/// expression is one.
pub(crate) fn last_expression<E>(
    source: &str,
    compiles: &mut impl FnMut(&str) -> Result<bool, E>,
) -> Result<Option<usize>, E> {
    let ends = source.rmatch_indices([';', '}', '\n', '\r']).take(PLACES_MAX);
    let mut tried = source.len();
    for (at, _) in ends {
        let last = skip_blank(&source[at + 1..]);
        let start = source.len() - last.len();
        if start == tried {
            continue;
        }
        tried = start;
        if is_other_statement(last) || !compiles(&format!("(function() {{ return ({last}\n); }})"))? {
            continue;
        }
        if is_statement(source, start, compiles)? {
            return Ok(Some(start));
        }
    }
    Ok(None)
}

/// Whether a statement that begins so is no expression, though the same text may be one elsewhere.
fn is_other_statement(text: &str) -> bool {
    let begins_with = |word: &str| text.strip_prefix(word).is_some_and(|rest| !begins_with_name(rest));
    text.starts_with('{') || ["function", "class", "async", "let"].into_iter().any(begins_with)
}

/// Whether a statement begins at `start`, where an expression does that goes on to the end.
fn is_statement<E>(source: &str, start: usize, compiles: &mut impl FnMut(&str) -> Result<bool, E>) -> Result<bool, E> {
    let last = &source[start..];
    let mut is_body = |text: String| compiles(&format!("(function() {{ {text}\n}})"));
    for end in ends_before(source, start) {
        let before = &source[..end];
        // What is before it is whole statements, and does not end inside of a comment: there anything is right.
        if !is_body(before.to_owned())? || is_body(format!("{before} @ {last}"))? {
            continue;
        }
        // A block on the same line is possible only between statements that nothing else has to separate.
        if is_body(format!("{before} {{}} {last}"))? {
            return Ok(true);
        }
        // A line break separates what could not stand on one line.
        let has_line_break = source[end..start].contains(['\n', '\r']);
        if has_line_break && !is_body(format!("{before} {last}"))? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Where the text before `start` may end, without the blanks and comments in between: a comment's beginning may be part
/// of a text or of a regular expression.
fn ends_before(source: &str, start: usize) -> impl Iterator<Item = usize> {
    let before = source[..start].trim_end();
    let comments = before.rmatch_indices("//").take(PLACES_MAX / 8);
    let comments = comments.filter(move |(at, _)| source.len() - skip_blank(&source[*at..]).len() == start);
    let ends = comments.map(move |(at, _)| source[..at].trim_end().len());
    ends.chain(std::iter::once(before.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_behind_the_last_expression_is_no_part_of_it() {
        for (source, wanted) in [
            ("a;", "a"),
            ("a ; // b; c", "a "),
            ("a; ;\n/* ; */ ;", "a"),
            ("a; b", "a; b"),
            ("';'", "';'"),
            ("a // b;", "a // b"),
        ] {
            assert_eq!(without_end(source), wanted);
        }
    }
}
