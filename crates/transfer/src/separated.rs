//! Writing one line of CSV or TSV, and splitting names.

use crate::record::{Record, Records};

/// What stands between two columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Separator {
    /// CSV: values may be quoted, and then have anything in them.
    Comma,
    /// TSV: no quotes, and hence no tabs and ends of lines in values.
    Tab,
}

impl Separator {
    pub(crate) fn byte(self) -> u8 {
        match self {
            Self::Comma => b',',
            Self::Tab => b'\t',
        }
    }
}

/// Appends a line. Answers the first value that has no place in it.
pub(crate) fn write_line(values: &[String], separator: Separator, out: &mut String) -> Result<(), usize> {
    for (index, value) in values.iter().enumerate() {
        if index > 0 {
            out.push(char::from(separator.byte()));
        }
        match separator {
            Separator::Comma if needs_quotes(value, values.len()) => {
                out.push('"');
                out.push_str(&value.replace('"', "\"\""));
                out.push('"');
            }
            // A line without anything would be read as none.
            Separator::Tab if value.contains(['\t', '\n', '\r']) || (value.is_empty() && values.len() == 1) => {
                return Err(index);
            }
            _ => out.push_str(value),
        }
    }
    out.push('\n');
    Ok(())
}

fn needs_quotes(value: &str, columns: usize) -> bool {
    let is_blank_line = columns == 1 && value.is_empty();
    is_blank_line || value.starts_with([' ', '\t', '\u{feff}']) || value.contains([',', '"', '\n', '\r'])
}

/// The values of a text of one line of CSV, such as `--fields` has; an error says what is wrong.
pub(crate) fn split_line(text: &str) -> Result<Vec<String>, String> {
    let mut records = Records::new(text.as_bytes(), Separator::Comma);
    let record = records.next().map_err(|error| error.to_string())?.unwrap_or_default();
    names(&record)
}

/// The values of a record as text.
pub(crate) fn names(record: &Record) -> Result<Vec<String>, String> {
    record
        .values()
        .map(|value| match std::str::from_utf8(value) {
            Ok(text) => Ok(text.to_owned()),
            Err(_) => Err(format!("{:?} is no UTF-8", String::from_utf8_lossy(value))),
        })
        .collect()
}
