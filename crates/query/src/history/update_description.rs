//! What an update changed, as change streams tell it: `{updatedFields, removedFields, truncatedArrays}`.
//!
//! Walks the difference that the log has (`docs/formats/log-entries.md`) once; its sections become dotted paths. A path
//! that cannot be told from another one (a name with a dot in it, a number that is a field's name) is told in parts,
//! too, to those who ask for expanded events.
//!
//! Each change has its whole path, so that a description may be thousands of times longer than its difference. It ends
//! where no document could hold it.

use crate::QueryError;
use crate::value::scan::Malformed;
use bson::raw::{CString, cstr};
use bson::{RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf, rawdoc};
use wire::ErrorCode;
use wire::limits::DOCUMENT_INTERNAL_BYTES_MAX;

#[derive(Default)]
struct Description {
    updated: RawDocumentBuf,
    removed: RawArrayBuf,
    truncated: RawArrayBuf,
    disambiguated: RawDocumentBuf,
    /// Of all paths so far.
    path_bytes: usize,
    /// Ambiguous paths are told in parts, too.
    is_expanded: bool,
}

/// One step of a path.
#[derive(Clone, Copy)]
enum Step<'d> {
    Field(&'d str),
    Element(&'d str),
}

/// The description of a difference.
///
/// Errors: 10334 where it is longer than any document.
pub(super) fn update_description(difference: &RawDocument, is_expanded: bool) -> Result<RawDocumentBuf, QueryError> {
    let mut description = Description {
        is_expanded,
        ..Description::default()
    };
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

impl<'d> Step<'d> {
    fn name(self) -> &'d str {
        match self {
            Self::Field(name) | Self::Element(name) => name,
        }
    }
}

fn damaged() -> QueryError {
    QueryError::new(
        ErrorCode::ChangeStreamFatalError,
        "a difference in the log is not as it should be",
    )
}

impl Description {
    /// The name of a path.
    fn dotted(&mut self, path: &[Step<'_>]) -> Result<String, QueryError> {
        self.add_path(path)?;
        let names = path.iter().map(|step| step.name());
        Ok(names.collect::<Vec<_>>().join("."))
    }

    /// Before a path is copied: there may be a million of them, a million bytes long each.
    fn add_path(&mut self, path: &[Step<'_>]) -> Result<(), QueryError> {
        self.path_bytes += path.iter().map(|step| step.name().len() + 1).sum::<usize>();
        match self.path_bytes > DOCUMENT_INTERNAL_BYTES_MAX {
            true => Err(QueryError::new(
                ErrorCode::BSONObjectTooLarge,
                format!("an updateDescription has more than {DOCUMENT_INTERNAL_BYTES_MAX} bytes"),
            )),
            false => Ok(()),
        }
    }

    fn document<'d>(&mut self, difference: &'d RawDocument, path: &mut Vec<Step<'d>>) -> Result<(), QueryError> {
        for section in difference {
            let (name, value) = section.map_err(|_| Malformed)?;
            let fields = value.as_document().ok_or_else(damaged)?;
            match name.as_str() {
                "d" => {
                    for field in fields {
                        path.push(Step::Field(field.map_err(|_| Malformed)?.0.as_str()));
                        self.disambiguate(path)?;
                        let name = self.dotted(path)?;
                        self.removed.push(name);
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
                    let name = self.dotted(path)?;
                    self.truncated.push(rawdoc! { "field": name, "newSize": size });
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
        let name = CString::try_from(self.dotted(path)?).map_err(|_| damaged())?;
        self.updated.append(name, value);
        self.disambiguate(path)?;
        path.pop();
        Ok(())
    }

    /// Tells a path in parts where dots or numbers make it ambiguous.
    fn disambiguate(&mut self, path: &[Step<'_>]) -> Result<(), QueryError> {
        if !self.is_expanded {
            return Ok(());
        }
        let is_number = |name: &str| !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_digit());
        let is_ambiguous = |(depth, step): (usize, &Step<'_>)| match step {
            Step::Field(name) => name.contains('.') || depth > 0 && is_number(name),
            Step::Element(_) => false,
        };
        if path.iter().enumerate().any(is_ambiguous) {
            self.add_path(path)?;
            let mut parts = RawArrayBuf::new();
            for step in path {
                match step {
                    Step::Field(name) => parts.push(*name),
                    Step::Element(index) => parts.push(index.parse::<i32>().map_err(|_| damaged())?),
                }
            }
            let name = CString::try_from(self.dotted(path)?).map_err(|_| damaged())?;
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

    /// An update of a document of 200 kB made a description of gigabytes, for every stream.
    #[test]
    fn a_description_is_no_longer_than_a_document() {
        let of = |name: &str, elements: usize, is_expanded: bool| {
            let mut list = rawdoc! { "a": true };
            for element in 0..elements {
                let field = CString::try_from(format!("s{element}")).unwrap();
                list.append(field, rawdoc! { "u": { "x": 1 } });
            }
            let mut inside = RawDocumentBuf::new();
            inside.append(CString::try_from(format!("s{name}")).unwrap(), list);
            update_description(&rawdoc! { "sf": inside }, is_expanded)
        };
        let name = "n".repeat(100_000);
        let told = of(&name, 100, false).unwrap();
        let updated = told.get_document("updatedFields").unwrap();
        assert_eq!(updated.iter().count(), 100);
        let too_long = Some(ErrorCode::BSONObjectTooLarge);
        assert_eq!(of(&name, 5_000, false).unwrap_err().code(), too_long);
        // Told in parts it does not fit; those who do not ask for that get it.
        let number = "1".repeat(100_000);
        assert!(of(&number, 100, false).is_ok());
        assert_eq!(of(&number, 100, true).unwrap_err().code(), too_long);
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
