//! Keys of wildcard indexes: one for each value of a document, with its path in front.
//!
//! Arrays are gone into and have no part in paths; an array in an array is a value, as are documents and arrays without
//! anything in them. Fields with a dot in their name cannot be asked for: they are left out, and a document that has
//! nothing else counts as one without fields. A document in which nothing is indexed has no keys.
//!
//! Beside the wildcard there may be fields of other paths, which have one value each: a document has a key for each
//! value of the wildcard, and one with MinKey as path and value when it has none. An array in one of those fields, or
//! on the way to it, is refused.
//!
//! Which paths hold arrays is kept in the index's multikey places, each path by a hash of it: whoever asks about a path
//! may be told of an array that is somewhere else, and is never told of none where one is ([`path_place`]).

use super::special::Piece;
use super::{ExtractError, FieldKind, KeyExtractor, KeySet, PatternField, Watch};
use crate::raw::{Elements, Value};
use bson::raw::{RawBsonRef, RawDocument};

/// Places that paths are hashed to: fields and parts that [`super::MultikeyPaths`] has room for.
const FIELDS: u32 = 31;
const PARTS: u32 = 199;
/// Levels of `wildcardProjection`.
const DEPTH_MAX: usize = 100;

/// The paths that a wildcard index has.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WildcardSpec {
    /// Only these and what is below; rising.
    included: Option<Vec<String>>,
    /// Not these and not what is below; rising.
    excluded: Vec<String>,
}

/// What is wrong with a wildcard index's projection.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct WildcardSpecError {
    /// MongoDB's code.
    pub code: i32,
    message: String,
}

/// How a path stands to those of an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    Outside,
    /// It leads to some.
    Above,
    Inside,
}

/// Whether `path` is `other` or lies below it.
fn is_below(path: &str, other: &str) -> bool {
    path.strip_prefix(other)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// Whether `path` is one of `others`, which rise, or lies below one.
fn is_below_any(path: &str, others: &[String]) -> bool {
    let has = |path: &str| others.binary_search_by(|other| other.as_str().cmp(path)).is_ok();
    !others.is_empty() && (has(path) || path.match_indices('.').any(|(dot, _)| has(&path[..dot])))
}

/// Whether one of `others`, which rise, lies below `path`.
fn is_above_any(path: &str, others: &[String]) -> bool {
    let below = || path.bytes().chain([b'.']);
    let first = others.partition_point(|other| other.bytes().lt(below()));
    others.get(first).is_some_and(|other| is_below(other, path))
}

impl WildcardSpec {
    /// Of a field `$**` or `a.b.$**`, and its projection.
    pub fn parse(field: &str, projection: Option<&RawDocument>) -> Result<Self, WildcardSpecError> {
        let below = field.strip_suffix(".$**");
        let Some(projection) = projection else {
            return Ok(match below {
                Some(path) => Self {
                    included: Some(vec![path.to_owned()]),
                    excluded: Vec::new(),
                },
                None => Self {
                    included: None,
                    excluded: vec!["_id".to_owned()],
                },
            });
        };
        if below.is_some() {
            return Err(WildcardSpecError {
                code: 9,
                message: "The field 'wildcardProjection' is only allowed when 'key' is {\"$**\": ±1}".to_owned(),
            });
        }
        if projection.is_empty() {
            return Err(WildcardSpecError {
                code: 9,
                message: "The 'wildcardProjection' field can't be an empty object".to_owned(),
            });
        }
        let (mut included, mut excluded, mut id) = (Vec::new(), Vec::new(), None);
        flatten(
            projection,
            "",
            0,
            &mut |path, is_included| match (path.as_str(), is_included) {
                ("_id", is_included) => id = Some(is_included),
                (_, true) => included.push(path),
                (_, false) => excluded.push(path),
            },
        )?;
        match (included.is_empty(), excluded.is_empty()) {
            (false, false) => {
                return Err(WildcardSpecError {
                    code: 31254,
                    message: "Cannot do exclusion on a field in inclusion projection".to_owned(),
                });
            }
            (false, true) => {
                if id == Some(true) {
                    included.push("_id".to_owned());
                }
                included.sort_unstable();
                return Ok(Self {
                    included: Some(included),
                    excluded,
                });
            }
            (true, _) => {}
        }
        if excluded.is_empty() && id == Some(true) {
            excluded.clear();
            return Ok(Self {
                included: Some(vec!["_id".to_owned()]),
                excluded,
            });
        }
        if id != Some(true) {
            excluded.push("_id".to_owned());
        }
        excluded.sort_unstable();
        Ok(Self {
            included: None,
            excluded,
        })
    }

    /// Checks what an index with other fields has as its wildcard, which must leave these out.
    pub fn check_beside(
        field: &str,
        projection: Option<&RawDocument>,
        others: &[&str],
    ) -> Result<(), WildcardSpecError> {
        let refused = |code: i32, message: String| Err(WildcardSpecError { code, message });
        if others.is_empty() {
            return Ok(());
        }
        let below = field.strip_suffix(".$**");
        let Some(projection) = projection else {
            let overlaps = |path: &str| {
                others
                    .iter()
                    .any(|other| is_below(path, other) || is_below(other, path))
            };
            return match below {
                Some(path) if overlaps(path) => refused(7_246_204, format!("'{field}' overlaps another field")),
                Some(_) => Ok(()),
                None => refused(
                    67,
                    "a compound index with '$**' needs a 'wildcardProjection' that leaves its other fields out"
                        .to_owned(),
                ),
            };
        };
        if below.is_some() || projection.is_empty() {
            // What is wrong with it is so without other fields, too.
            return Ok(());
        }
        let mut named = Vec::new();
        flatten(projection, "", 0, &mut |path, is_included| {
            named.push((path, is_included))
        })?;
        named.sort_by(|one, other| one.0.split('.').cmp(other.0.split('.')));
        if let Some(pair) = named.windows(2).find(|pair| is_below(&pair[1].0, &pair[0].0)) {
            return refused(7_246_200, format!("'{}' has '{}' with it", pair[0].0, pair[1].0));
        }
        let has = |wanted: bool| {
            named
                .iter()
                .any(|(path, is_included)| path != "_id" && *is_included == wanted)
        };
        match (has(true), has(false)) {
            (true, true) => refused(
                7_246_211,
                "a 'wildcardProjection' of a compound index includes or excludes".to_owned(),
            ),
            (_, false) if named.iter().any(|(_, is_included)| *is_included) => {
                let included = named
                    .iter()
                    .filter(|(_, is_included)| *is_included)
                    .map(|(path, _)| path);
                let overlap = |path: &String| {
                    others
                        .iter()
                        .any(|other| is_below(path, other) || is_below(other, path))
                };
                match included.into_iter().find(|path| overlap(path)) {
                    Some(path) => refused(7_246_208, format!("'{path}' is another field of the index")),
                    None => Ok(()),
                }
            }
            _ => check_excluded(named, others),
        }
    }

    fn standing(&self, path: &str) -> Standing {
        if is_below_any(path, &self.excluded) {
            return Standing::Outside;
        }
        let Some(included) = &self.included else {
            return Standing::Inside;
        };
        match () {
            () if is_below_any(path, included) => Standing::Inside,
            () if is_above_any(path, included) => Standing::Above,
            () => Standing::Outside,
        }
    }

    /// Whether each value at a path has a key in the index.
    pub fn covers(&self, path: &str) -> bool {
        self.standing(path) == Standing::Inside
    }

    /// The paths that keys depend on; `None` is all.
    pub fn reads(&self) -> Option<Vec<String>> {
        self.included.clone()
    }
}

/// Both in the order of paths: the other fields of an index, each of which has to be excluded, or something above it.
fn check_excluded(named: Vec<(String, bool)>, others: &[&str]) -> Result<(), WildcardSpecError> {
    let mut excluded = named
        .iter()
        .filter(|(_, is_included)| !is_included)
        .map(|(path, _)| path)
        .peekable();
    let mut others = others.to_vec();
    others.sort_by(|one, other| one.split('.').cmp(other.split('.')));
    for other in others {
        let is_before = |path: &&String| !is_below(other, path) && path.split('.').lt(other.split('.'));
        while excluded.next_if(is_before).is_some() {}
        let code = match excluded.peek() {
            Some(path) if is_below(other, path) => continue,
            Some(_) => 7_246_209,
            None => 7_246_210,
        };
        let message = format!("'wildcardProjection' has to exclude the other field '{other}' of the index");
        return Err(WildcardSpecError { code, message });
    }
    Ok(())
}

/// Calls `each` with the paths of a projection.
fn flatten(
    projection: &RawDocument,
    prefix: &str,
    depth: usize,
    each: &mut dyn FnMut(String, bool),
) -> Result<(), WildcardSpecError> {
    let wrong = |path: &str| WildcardSpecError {
        code: 9,
        message: format!("wildcardProjection has no such values: {path}"),
    };
    for element in projection {
        let (name, value) = element.map_err(|_| wrong(prefix))?;
        let path = match prefix {
            "" => name.as_str().to_owned(),
            prefix => format!("{prefix}.{}", name.as_str()),
        };
        if path.split('.').any(|part| part.is_empty() || part.starts_with('$')) {
            return Err(wrong(&path));
        }
        match value {
            RawBsonRef::Boolean(is_included) => each(path, is_included),
            RawBsonRef::Document(inner) if depth < DEPTH_MAX && !inner.is_empty() => {
                flatten(inner, &path, depth + 1, each)?;
            }
            value => match geometry::read::number(value) {
                Some(number) => each(path, number != 0.0),
                None => {
                    return Err(WildcardSpecError {
                        code: 51271,
                        message: format!("wildcardProjection computes no fields: {path}"),
                    });
                }
            },
        }
    }
    Ok(())
}

/// Where multikey places say of a path that it holds arrays: field and part.
pub fn path_place(path: &str) -> (usize, usize) {
    // FNV-1a: written down in the catalog, so it never changes.
    let hash = path.bytes().fold(0x811C_9DC5_u32, |hash, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    });
    let place = hash % (FIELDS * PARTS);
    ((place / PARTS) as usize, (place % PARTS) as usize)
}

/// One extraction.
struct Extraction<'e, 'w> {
    extractor: &'e KeyExtractor,
    spec: &'e WildcardSpec,
    path: String,
    /// The value of each field, without those of the wildcard and its path.
    beside: &'e [Piece<'e>],
    out: &'e mut KeySet,
    watch: &'e mut Watch<'w>,
}

impl KeyExtractor {
    pub(super) fn extract_wildcard(
        &self,
        document: &RawDocument,
        out: &mut KeySet,
        watch: &mut Watch<'_>,
    ) -> Result<(), ExtractError> {
        let spec = self.wildcard.as_ref().ok_or_else(malformed)?;
        let beside = self.pieces_beside_wildcard(document)?;
        let mut extraction = Extraction {
            extractor: self,
            spec,
            path: String::new(),
            beside: &beside,
            out,
            watch,
        };
        extraction.document(document.as_bytes())?;
        if extraction.out.is_empty() && self.pattern.fields().len() > 2 {
            extraction.push_key(Value::MinKey, Value::MinKey)?;
        }
        out.sort();
        Ok(())
    }

    /// The value of each field; of the wildcard's two something that is never asked for.
    fn pieces_beside_wildcard<'d>(&self, document: &'d RawDocument) -> Result<Vec<Piece<'d>>, ExtractError> {
        let piece = |field: &PatternField| match field.kind() {
            FieldKind::Value => Ok(Piece::Value(single_value(document, field)?)),
            _ => Ok(Piece::Value(None)),
        };
        self.pattern.fields().iter().map(piece).collect()
    }
}

/// The value at a field's path, on which there must be no array.
fn single_value<'d>(document: &'d RawDocument, field: &PatternField) -> Result<Option<Value<'d>>, ExtractError> {
    let mut value = Value::Document(document.as_bytes());
    for part in field.parts() {
        let Value::Document(inner) = value else {
            return Ok(None);
        };
        let found = Elements::new(inner).find(&part.name).map_err(|_| malformed())?;
        match found {
            None => return Ok(None),
            Some(Value::Array(_)) => {
                return Err(ExtractError::ArrayBesideWildcard {
                    path: field.path().to_owned(),
                });
            }
            Some(found) => value = found,
        }
    }
    Ok(Some(value))
}

fn malformed() -> ExtractError {
    ExtractError::Malformed { path: "$**".to_owned() }
}

impl Extraction<'_, '_> {
    /// The keys of a document's fields; false when it has none that count.
    fn document(&mut self, document: &[u8]) -> Result<bool, ExtractError> {
        let mut elements = Elements::new(document);
        let length = self.path.len();
        let mut has_fields = false;
        while let Some(element) = elements.next().map_err(|_| malformed())? {
            let Ok(name) = std::str::from_utf8(element.name) else {
                continue;
            };
            if name.contains('.') {
                continue;
            }
            if length > 0 {
                self.path.push('.');
            }
            self.path.push_str(name);
            let standing = self.spec.standing(&self.path);
            if standing != Standing::Outside {
                has_fields = true;
                self.value(element.value, standing == Standing::Inside)?;
            }
            self.path.truncate(length);
        }
        Ok(has_fields)
    }

    fn value(&mut self, value: Value<'_>, is_inside: bool) -> Result<(), ExtractError> {
        match value {
            Value::Document(document) => self.nested(document, value, is_inside),
            Value::Array(array) => {
                let (field, part) = path_place(&self.path);
                self.out.multikey.insert(field, part);
                let mut elements = Elements::new(array);
                let mut is_empty = true;
                while let Some(element) = elements.next().map_err(|_| malformed())? {
                    is_empty = false;
                    match element.value {
                        Value::Document(document) => self.nested(document, element.value, is_inside)?,
                        other => self.push(other, is_inside)?,
                    }
                }
                match is_empty {
                    true => self.push(Value::Undefined, is_inside),
                    false => Ok(()),
                }
            }
            other => self.push(other, is_inside),
        }
    }

    fn nested(&mut self, document: &[u8], value: Value<'_>, is_inside: bool) -> Result<(), ExtractError> {
        if self.document(document)? {
            return Ok(());
        }
        // Of one whose fields do not count no more than that it is there.
        let empty = [5, 0, 0, 0, 0];
        let is_empty = document.len() == empty.len();
        self.push(if is_empty { value } else { Value::Document(&empty) }, is_inside)
    }

    fn push(&mut self, value: Value<'_>, is_inside: bool) -> Result<(), ExtractError> {
        if !is_inside {
            return Ok(());
        }
        let path = std::mem::take(&mut self.path);
        let pushed = self.push_key(Value::String(path.as_bytes()), value);
        self.path = path;
        pushed
    }

    fn push_key(&mut self, path: Value<'_>, value: Value<'_>) -> Result<(), ExtractError> {
        let (path, value) = (Piece::Plain(path), Piece::Value(Some(value)));
        if self.beside.len() == 2 {
            self.extractor.push_pieces(&[path, value], self.out);
            return self.out.look(self.watch);
        }
        let fields = self.extractor.pattern.fields().iter().zip(self.beside);
        let pieces: Vec<Piece<'_>> = fields
            .map(|(field, beside)| match field.kind() {
                FieldKind::Path => path,
                FieldKind::Wildcard => value,
                _ => *beside,
            })
            .collect();
        self.extractor.push_pieces(&pieces, self.out);
        self.out.look(self.watch)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use bson::{Document, RawDocumentBuf};

    /// Each path of a document was compared with each one of the list.
    #[test]
    fn paths_stand_to_a_list_as_to_each_of_it() {
        let lists: [&[&str]; 5] = [
            &["a"],
            &["b.c", "a!", "a.b.c", "a-b"],
            &["ab.c", "a/b", "a.z", "b", "a b"],
            &["a.b.c.d", "a.b-c", "a.b!c.d", "c"],
            &["aa", "a.aa", "a.a.a"],
        ];
        let paths = [
            "a",
            "a!",
            "a!.x",
            "a-b",
            "a-b.c",
            "a.b",
            "a.b.c",
            "a.b.c.d.e",
            "a.b-c",
            "a.b!c",
            "ab",
            "ab.c",
            "ab.cd",
            "a.z.y",
            "a.a",
            "aa.a",
            "b",
            "b.c",
            "c.d",
            "d",
            "a/b.c",
            "a b",
            "a.aa.b",
        ];
        for list in lists {
            for is_included in [true, false] {
                let projection: Document = list
                    .iter()
                    .map(|path| ((*path).to_owned(), is_included.into()))
                    .collect();
                let projection = RawDocumentBuf::try_from(&projection).unwrap();
                let spec = WildcardSpec::parse("$**", Some(&projection)).unwrap();
                for path in paths {
                    let below = list.iter().any(|other| is_below(path, other));
                    let above = list.iter().any(|other| is_below(other, path));
                    let expected = match (is_included, below, above) {
                        (true, true, _) | (false, false, _) => Standing::Inside,
                        (true, false, true) => Standing::Above,
                        (true, false, false) | (false, true, _) => Standing::Outside,
                    };
                    assert_eq!(spec.standing(path), expected, "{path} to {list:?}, {is_included}");
                }
            }
        }
    }
}
