//! Names and texts of servers and files, as they may stand on a screen: who makes a collection decides its name, and a
//! terminal takes some characters for commands, those among them that turn the direction of what follows.

use std::borrow::Cow;

/// The text, with the characters that a terminal would obey, or that would begin a line, shown as `\u{1b}`.
pub fn printable(text: &str) -> Cow<'_, str> {
    match text.chars().any(is_command) {
        false => Cow::Borrowed(text),
        true => Cow::Owned(escaped(text, |_| false)),
    }
}

/// The same for a text of several lines.
pub fn printable_lines(text: &str) -> Cow<'_, str> {
    let is_of_lines = |character| matches!(character, '\n' | '\t');
    match text
        .chars()
        .any(|character| is_command(character) && !is_of_lines(character))
    {
        false => Cow::Borrowed(text),
        true => Cow::Owned(escaped(text, is_of_lines)),
    }
}

/// Whether a terminal may obey the character instead of showing it: controls, separators of lines and paragraphs, and
/// the marks that say in which direction text runs.
fn is_command(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

fn escaped(text: &str, is_kept: impl Fn(char) -> bool) -> String {
    let mut shown = String::with_capacity(text.len() + 8);
    for character in text.chars() {
        match is_command(character) && !is_kept(character) {
            true => shown.extend(character.escape_unicode()),
            false => shown.push(character),
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::{printable, printable_lines};

    /// A collection's name could clear the screen of who looked at it, and put something else there.
    #[test]
    fn no_name_commands_the_terminal() {
        assert_eq!(printable("shop.größe"), "shop.größe");
        assert_eq!(printable("shop.\u{1b}[2J\u{9b}1m\n"), "shop.\\u{1b}[2J\\u{9b}1m\\u{a}");
        assert_eq!(printable_lines("a\n\tb\u{7}"), "a\n\tb\\u{7}");
        assert_eq!(printable("shop.\u{202e}sdoog\u{2066}"), "shop.\\u{202e}sdoog\\u{2066}");
        assert_eq!(printable_lines("a\n\u{200f}b\u{2028}"), "a\n\\u{200f}b\\u{2028}");
    }
}
