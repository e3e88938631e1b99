//! A log line for who watches the server on a terminal: time, message, and attributes in short.

use super::json::Line;
use super::{Severity, json};

/// Longer ones are cut; files and pipes have all of it.
const ATTRIBUTE_CHARACTERS_MAX: usize = 100;

impl Line<'_> {
    /// `12:00:00  message  name=value …`, warnings and errors marked. Control characters are escaped as in JSON.
    pub fn to_terminal(&self) -> String {
        let time = self.now.get(11..19).unwrap_or(self.now);
        let mark = match self.id.severity {
            Severity::Warning => "warning: ",
            Severity::Error => "ERROR: ",
            Severity::Fatal => "FATAL: ",
            Severity::Info => "",
        };
        let mut out = format!("{time}  {mark}{}", json::escaped(self.message));
        for (at, (name, value)) in self.attributes.iter().enumerate() {
            let text = json::short(value);
            let cut: String = text.chars().take(ATTRIBUTE_CHARACTERS_MAX).collect();
            let more = if cut.len() < text.len() { "…" } else { "" };
            out.push_str(if at == 0 { "  " } else { " " });
            out.push_str(&format!("{}={cut}{more}", json::escaped(name)));
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::logger::id;
    use bson::doc;

    #[test]
    fn lines_are_short_and_cannot_command_the_terminal() {
        let attributes = doc! { "port": 27017, "name": "a\u{1b}[2Jb", "long": "x".repeat(300) };
        let mut line = Line {
            now: "2026-01-31T12:00:07.123+00:00",
            id: id::WAITING_FOR_CONNECTIONS,
            context: "x",
            message: "Waiting",
            attributes: &attributes,
            warning_of_startup: false,
        };
        let text = line.to_terminal();
        let start = "12:00:07  Waiting  port=27017 name=\"a\\u001b[2Jb\" long=\"xxx";
        assert!(
            text.starts_with(start) && text.ends_with('…') && text.len() < 250,
            "{text}"
        );
        line.id = id::NO_JOURNAL;
        let none = doc! {};
        line.attributes = &none;
        assert_eq!(line.to_terminal(), "12:00:07  warning: Waiting");
    }
}
