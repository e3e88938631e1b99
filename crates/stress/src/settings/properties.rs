//! The form of Java's properties files: `name = value` or `name: value`, `#` and `!` comments, lines that a backslash
//! continues. Escapes other than a backslash before a separator are not interpreted: a path keeps its backslashes.

use crate::error::SettingsFault;

/// One setting and where it stands.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Line {
    /// Of its first line, from 1.
    pub(super) number: usize,
    pub(super) name: String,
    pub(super) value: String,
}

/// The settings of a text.
pub(super) fn lines(text: &str) -> Result<Vec<Line>, SettingsFault> {
    let mut found = Vec::new();
    let mut rest = text.lines().enumerate();
    while let Some((index, line)) = rest.next() {
        let mut whole = line.trim_start().to_owned();
        if whole.is_empty() || whole.starts_with(['#', '!']) {
            continue;
        }
        while let Some(start) = whole.strip_suffix('\\') {
            let next = rest.next().map_or("", |(_, next)| next.trim_start());
            whole = format!("{start}{next}");
        }
        found.push(split(index + 1, &whole)?);
    }
    Ok(found)
}

fn split(number: usize, line: &str) -> Result<Line, SettingsFault> {
    let fault = |reason: &str| SettingsFault::Line {
        line: number,
        reason: format!("{reason}: '{}'", line.trim_end()),
    };
    let (name, value) = line
        .split_once(['=', ':'])
        .ok_or_else(|| fault("a setting is written name = value"))?;
    let name = name.trim();
    if name.is_empty() {
        return Err(fault("the name is missing"));
    }
    Ok(Line {
        number,
        name: name.to_owned(),
        value: value.trim().to_owned(),
    })
}
