//! Where the last statement of a source begins, if that is an expression: its value is the source's, as in MongoDB.
//!
//! There is no parser of JavaScript but the engine's, and that tells only whether a text compiles. So places where a
//! statement may begin are tried from the end, and each is asked about in such texts that the answers leave no doubt: a
//! wrong place would not be an error but another condition.

use crate::function::{begins_with_name, is_function, skip_blank};

/// So many places are tried.
const PLACES_MAX: usize = 256;

/// So many are looked at.
const PLACES_SEEN_MAX: usize = 16 * PLACES_MAX;

/// What is known of a source's last statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Last {
    /// It is an expression, and begins here.
    Expression(usize),
    /// It is none.
    Other,
    /// There are too many places where it may begin.
    Unknown,
}

/// A source without the semicolons and blanks at its end. Neither a text nor a regular expression ends with one.
pub(crate) fn without_semicolons(source: &str) -> &str {
    source.trim_end_matches(|c: char| c == ';' || c.is_whitespace())
}

/// Where there may be nothing but semicolons, blanks and comments any more, the first place first. Some of them may be
/// inside of texts, of regular expressions and of comments.
pub(crate) fn ends(source: &str) -> impl Iterator<Item = usize> {
    let semicolons = source.rmatch_indices(';').take(PLACES_MAX);
    let mut ends: Vec<usize> = semicolons
        .filter(|(at, _)| is_end(&source[*at..]))
        .map(|(at, _)| at)
        .collect();
    ends.reverse();
    ends.into_iter()
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

/// A source of statements without what is behind the last one of them.
pub(crate) fn without_end<'s, E>(
    source: &'s str,
    compiles: &mut impl FnMut(&str) -> Result<bool, E>,
) -> Result<&'s str, E> {
    for end in ends(source) {
        let before = &source[..end];
        // Inside of a comment anything is right.
        if compiles(&format!("(function() {{ {before}\n}})"))? && !compiles(&format!("(function() {{ {before} @\n}})"))?
        {
            return Ok(before);
        }
    }
    Ok(without_semicolons(source))
}

/// Where the last statement begins, if it is an expression and there are others before it. `compiles` says whether an
/// expression is one.
pub(crate) fn last_expression<E>(source: &str, compiles: &mut impl FnMut(&str) -> Result<bool, E>) -> Result<Last, E> {
    if compiles(&one_statement(source))? {
        return Ok(Last::Other);
    }
    // Most places are inside of brackets, where no statement of the source's own begins. Where brackets are is not
    // certain, because of regular expressions: what is found is asked about all the same, and else all places are.
    if let Some(last @ (Last::Expression(_) | Last::Other)) = last_of(source, outer_places(source), compiles)? {
        return Ok(last);
    }
    let places = source.rmatch_indices([';', '}', '\n', '\r']).map(|(at, _)| at);
    Ok(last_of(source, places, compiles)?.unwrap_or(Last::Other))
}

/// The same, where the statement begins behind one of `places`, which are told from the end. None if it does not.
fn last_of<E>(
    source: &str,
    places: impl IntoIterator<Item = usize>,
    compiles: &mut impl FnMut(&str) -> Result<bool, E>,
) -> Result<Option<Last>, E> {
    let (mut previous, mut tried) = (source.len(), 0);
    for (seen, at) in places.into_iter().enumerate() {
        let last = skip_blank(&source[at + 1..]);
        let start = source.len() - last.len();
        if seen >= PLACES_SEEN_MAX || tried >= PLACES_MAX {
            return Ok(Some(Last::Unknown));
        }
        if start == previous {
            continue;
        }
        (previous, tried) = (start, tried + 1);
        let is_value = compiles(&format!("(function() {{ return ({last}\n); }})"))?;
        let found = match is_other_statement(last) {
            false if is_value => Last::Expression(start),
            true if is_value && is_function(last) => Last::Other,
            _ if compiles(&one_statement(last))? => Last::Other,
            _ => continue,
        };
        if is_statement(source, start, compiles)? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// What compiles if a text is one statement, and neither a declaration nor several.
fn one_statement(text: &str) -> String {
    format!("(function() {{ do {text}\nwhile(0)\n}})")
}

/// Where statements may end outside of brackets, texts and comments, from the end. Regular expressions are not known; a
/// quote in one of them hides no more than its line.
fn outer_places(source: &str) -> Vec<usize> {
    let bytes = source.as_bytes();
    let (mut places, mut depth, mut at) = (Vec::new(), 0_usize, 0);
    while let Some(&byte) = bytes.get(at) {
        let rest = &bytes[at..];
        if rest.starts_with(b"//") {
            at += rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len());
            continue;
        }
        if rest.starts_with(b"/*") {
            let end = rest[2..].windows(2).position(|end| end == b"*/");
            at += end.map_or(rest.len(), |end| end + 4);
            continue;
        }
        match byte {
            b'"' | b'\'' | b'`' => at += quoted_bytes(rest),
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth == 0 && matches!(byte, b';' | b'}' | b'\n' | b'\r') {
            places.push(at);
        }
        at += 1;
    }
    places.reverse();
    places
}

/// Bytes of a text in quotes without its last one.
fn quoted_bytes(text: &[u8]) -> usize {
    let (mut is_escaped, quote) = (false, text[0]);
    for (at, byte) in text.iter().enumerate().skip(1) {
        match *byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = true,
            byte if byte == quote => return at,
            // Before it, so that it is seen.
            b'\n' if quote != b'`' => return at - 1,
            _ => {}
        }
    }
    text.len() - 1
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
    fn what_may_be_behind_the_last_expression_is_found() {
        for (source, wanted) in [
            ("a;", vec![1_usize]),
            ("a ; // b; c", vec![2]),
            ("a; ;\n/* ; */ ;", vec![1, 3, 13]),
            ("a; b", vec![]),
            ("a == ';'", vec![]),
            ("a == ';//'", vec![6]),
        ] {
            assert!(ends(source).eq(wanted), "{source}");
        }
        assert_eq!(without_semicolons("a; ;\n"), "a");
    }

    #[test]
    fn places_outside_of_brackets_are_told_from_the_end() {
        assert_eq!(outer_places("a;'b;';{c;}\n/* d; */[\ne]"), [11, 10, 6, 1]);
        assert_eq!(outer_places("/'/;a\n\"b"), [5]);
    }
}
