//! What an update changed, as change streams tell it: `{updatedFields, removedFields, truncatedArrays}`.
//!
//! Walks the difference that the log has (`docs/formats/log-entries.md`) once; its sections become dotted paths. A path
//! that cannot be told from another one (a name with a dot in it, a number that is a field's name) is told in parts,
//! too, to those who ask for expanded events.

use crate::QueryError;
use crate::value::scan::Malformed;
use bson::raw::{CString, cstr};
use bson::{RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf, rawdoc};

#[derive(Default)]
struct Description {
    updated: RawDocumentBuf,
    removed: RawArrayBuf,
    truncated: RawArrayBuf,
    disambiguated: RawDocumentBuf,
}

/// One step of a path.
#[derive(Clone, Copy)]
enum Step<'d> {
    Field(&'d str),
    Element(&'d str),
}

/// The description of a difference.
pub(super) fn update_description(difference: &RawDocument, is_expanded: bool) -> Result<RawDocumentBuf, QueryError> {
    let mut description = Description::default();
    description.document(difference, &mut Vec::new())?;
    let mut document = rawdoc! {
        "updatedFields": description.updated,
        "removedFields": description.removed,
        "truncatedArrays": description.truncated,
    };
    if is_expanded {
        document.append(cstr!("disambiguatedPaths"), description.disambiguated);
    }
    Ok(document)
}

fn dotted(path: &[Step<'_>]) -> String {
    let names = path.iter().map(|step| match step {
        Step::Field(name) | Step::Element(name) => *name,
    });
    names.collect::<Vec<_>>().join(".")
}

fn damaged() -> QueryError {
    QueryError::new(
        wire::ErrorCode::ChangeStreamFatalError,
        "a difference in the log is not as it should be",
    )
}

impl Description {
    fn document<'d>(&mut self, difference: &'d RawDocument, path: &mut Vec<Step<'d>>) -> Result<(), QueryError> {
        for section in difference {
            let (name, value) = section.map_err(|_| Malformed)?;
            let fields = value.as_document().ok_or_else(damaged)?;
            match name.as_str() {
                "d" => {
                    for field in fields {
                        path.push(Step::Field(field.map_err(|_| Malformed)?.0.as_str()));
                        self.disambiguate(path)?;
                        self.removed.push(dotted(path));
                        path.pop();
                    }
                }
                "u" | "i" => {
                    for field in fields {
                        let (name, value) = field.map_err(|_| Malformed)?;
                        self.set(path, Step::Field(name.as_str()), value)?;
                    }
                }
                inside => {
                    let field = inside.strip_prefix('s').ok_or_else(damaged)?;
                    self.inside(path, Step::Field(field), fields)?;
                }
            }
        }
        Ok(())
    }

    fn inside<'d>(
        &mut self,
        path: &mut Vec<Step<'d>>,
        step: Step<'d>,
        difference: &'d RawDocument,
    ) -> Result<(), QueryError> {
        path.push(step);
        match difference.into_iter().next().transpose().map_err(|_| Malformed)? {
            Some((name, RawBsonRef::Boolean(true))) if name == "a" => self.array(difference, path)?,
            _ => self.document(difference, path)?,
        }
        path.pop();
        Ok(())
    }

    fn array<'d>(&mut self, difference: &'d RawDocument, path: &mut Vec<Step<'d>>) -> Result<(), QueryError> {
        for change in difference.into_iter().skip(1) {
            let (name, value) = change.map_err(|_| Malformed)?;
            match name.as_str().split_at_checked(1) {
                Some(("l", "")) => {
                    let size = value.as_i32().ok_or_else(damaged)?;
                    self.truncated.push(rawdoc! { "field": dotted(path), "newSize": size });
                    self.disambiguate(path)?;
                }
                Some(("u", index)) => self.set(path, Step::Element(index), value)?,
                Some(("s", index)) => {
                    let inside = value.as_document().ok_or_else(damaged)?;
                    self.inside(path, Step::Element(index), inside)?;
                }
                _ => return Err(damaged()),
            }
        }
        Ok(())
    }

    fn set<'d>(&mut self, path: &mut Vec<Step<'d>>, step: Step<'d>, value: RawBsonRef<'d>) -> Result<(), QueryError> {
        path.push(step);
        let name = CString::try_from(dotted(path)).map_err(|_| damaged())?;
        self.updated.append(name, value);
        self.disambiguate(path)?;
        path.pop();
        Ok(())
    }

    /// Tells a path in parts where dots or numbers make it ambiguous.
    fn disambiguate(&mut self, path: &[Step<'_>]) -> Result<(), QueryError> {
        let is_number = |name: &str| !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_digit());
        let is_ambiguous = |(depth, step): (usize, &Step<'_>)| match step {
            Step::Field(name) => name.contains('.') || depth > 0 && is_number(name),
            Step::Element(_) => false,
        };
        if path.iter().enumerate().any(is_ambiguous) {
            let mut parts = RawArrayBuf::new();
            for step in path {
                match step {
                    Step::Field(name) => parts.push(*name),
                    Step::Element(index) => parts.push(index.parse::<i32>().map_err(|_| damaged())?),
                }
            }
            let name = CString::try_from(dotted(path)).map_err(|_| damaged())?;
            self.disambiguated.append(name, parts);
        }
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use bson::{Document, doc};

    #[test]
    fn sections_become_paths() {
        let difference = rawdoc! {
            "d": { "gone": false },
            "u": { "n": 1 },
            "i": { "new": { "x": 1 } },
            "sin": { "u": { "0": 1, "a.b": 2 }, "d": { "old": false } },
            "slist": { "a": true, "l": 3, "u0": "first", "s1": { "u": { "y": 2 } } },
        };
        let expected = doc! {
            "updatedFields": { "n": 1, "new": { "x": 1 }, "in.0": 1, "in.a.b": 2, "list.0": "first", "list.1.y": 2 },
            "removedFields": ["gone", "in.old"],
            "truncatedArrays": [{ "field": "list", "newSize": 3 }],
        };
        let plain = update_description(&difference, false).unwrap();
        assert_eq!(Document::try_from(&*plain).unwrap(), expected);
        let expanded = update_description(&difference, true).unwrap();
        let paths = doc! { "in.0": ["in", "0"], "in.a.b": ["in", "a.b"] };
        let expanded = Document::try_from(&*expanded).unwrap();
        assert_eq!(expanded.get_document("disambiguatedPaths").unwrap(), &paths);
        let truncated = rawdoc! { "so.l": { "sd.t": { "a": true, "l": 1, "u0": 2 } } };
        let truncated = update_description(&truncated, true).unwrap();
        let paths = doc! { "o.l.d.t": ["o.l", "d.t"], "o.l.d.t.0": ["o.l", "d.t", 0] };
        let truncated = Document::try_from(&*truncated).unwrap();
        assert_eq!(truncated.get_document("disambiguatedPaths").unwrap(), &paths);
        let clear = update_description(&rawdoc! { "u": { "n": 1 } }, true).unwrap();
        assert!(clear.get_document("disambiguatedPaths").unwrap().is_empty());
    }

    #[test]
    fn what_is_no_difference_is_an_error() {
        for difference in [
            rawdoc! { "u": 1 },
            rawdoc! { "x": {} },
            rawdoc! { "sa": { "a": true, "l": "x" } },
            rawdoc! { "sa": { "a": true, "q": 1 } },
        ] {
            assert!(update_description(&difference, false).is_err(), "{difference:?}");
        }
    }
}
