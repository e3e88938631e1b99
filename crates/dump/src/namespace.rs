//! Names of collections, patterns over them, and renaming by patterns.
//!
//! In a pattern `*` stands for any characters and `\` takes the meaning of the character behind it away. In the
//! patterns of a [`Rename`], `$name$` stands for any characters, too, that come again where the other pattern has
//! the same name.

use crate::error::{DumpError, Result};
use crate::metadata::CollectionKind;
use std::fmt;

/// What comes before the name of a collection of measurements in that of the collection of their buckets.
pub(crate) const BUCKETS_PREFIX: &str = "system.buckets.";

/// A database and a collection of it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Namespace {
    /// The database.
    pub database: String,
    /// The collection, which may have dots.
    pub collection: String,
}

impl Namespace {
    /// Both parts.
    pub fn new(database: impl Into<String>, collection: impl Into<String>) -> Self {
        Self {
            database: database.into(),
            collection: collection.into(),
        }
    }

    /// The collection with the documents of one: of measurements the one of their buckets.
    pub(crate) fn of_documents(&self, kind: CollectionKind) -> Self {
        match kind {
            CollectionKind::TimeSeries => {
                Self::new(self.database.as_str(), format!("{BUCKETS_PREFIX}{}", self.collection))
            }
            CollectionKind::Collection | CollectionKind::View => self.clone(),
        }
    }

    /// The collection of measurements whose buckets these are.
    pub(crate) fn of_measurements(&self) -> Option<Self> {
        let name = self.collection.strip_prefix(BUCKETS_PREFIX)?;
        Some(Self::new(self.database.as_str(), name))
    }

    /// The log of operations, which an archive has beside the collections.
    pub(crate) fn oplog() -> Self {
        Self::new("", "oplog")
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (database, collection) = text.split_once('.')?;
        (!database.is_empty() && !collection.is_empty()).then(|| Self::new(database, collection))
    }
}

impl fmt::Display for Namespace {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}.{}", self.database, self.collection)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Text(String),
    /// Any characters. Stars are counted from 0; variables have their names.
    Any(String),
}

/// A pattern over the whole text of a namespace.
#[derive(Clone, Debug)]
pub struct Pattern(Vec<Piece>);

impl Pattern {
    /// A pattern without variables: `$` means itself.
    pub fn new(text: &str) -> Self {
        Self(pieces(text, false).unwrap_or_default())
    }

    /// True when the whole namespace is as the pattern says.
    pub fn matches(&self, namespace: &Namespace) -> bool {
        bind(&self.0, &namespace.to_string()).is_some()
    }
}

fn pieces(text: &str, has_variables: bool) -> Result<Vec<Piece>> {
    let mut pieces = Vec::new();
    let mut plain = String::new();
    let mut stars = 0;
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        let name = match character {
            '\\' => {
                plain.extend(characters.next());
                continue;
            }
            '*' => {
                stars += 1;
                (stars - 1).to_string()
            }
            '$' if has_variables => {
                let rest = characters.as_str();
                let end = rest
                    .find('$')
                    .filter(|&end| end > 0)
                    .ok_or_else(|| DumpError::Choice(format!("{text:?}: a variable is $NAME$")))?;
                characters = rest[end + 1..].chars();
                format!("${}", &rest[..end])
            }
            other => {
                plain.push(other);
                continue;
            }
        };
        if !plain.is_empty() {
            pieces.push(Piece::Text(std::mem::take(&mut plain)));
        }
        pieces.push(Piece::Any(name));
    }
    if !plain.is_empty() {
        pieces.push(Piece::Text(plain));
    }
    Ok(pieces)
}

/// What each `Any` stands for, the first as short as possible. Names are at most 255 bytes, so trying all is cheap
/// enough for the one or two stars that people write.
fn bind<'a>(pieces: &'a [Piece], text: &'a str) -> Option<Vec<(&'a str, &'a str)>> {
    match pieces.split_first() {
        None => text.is_empty().then(Vec::new),
        Some((Piece::Text(plain), rest)) => bind(rest, text.strip_prefix(plain.as_str())?),
        Some((Piece::Any(name), [])) => Some(vec![(name, text)]),
        Some((Piece::Any(name), rest)) => text
            .char_indices()
            .map(|(at, _)| at)
            .chain([text.len()])
            .find_map(|end| {
                let mut bound = bind(rest, &text[end..])?;
                bound.push((name, &text[..end]));
                Some(bound)
            }),
    }
}

/// `--nsFrom` and `--nsTo`.
#[derive(Clone, Debug)]
pub struct Rename {
    from: Vec<Piece>,
    to: Vec<Piece>,
}

impl Rename {
    /// Both patterns must have the same variables and the same number of stars.
    pub fn new(from: &str, to: &str) -> Result<Self> {
        let rename = Self {
            from: pieces(from, true)?,
            to: pieces(to, true)?,
        };
        let names = |pieces: &[Piece]| {
            let mut names: Vec<String> = pieces
                .iter()
                .filter_map(|piece| match piece {
                    Piece::Any(name) => Some(name.clone()),
                    Piece::Text(_) => None,
                })
                .collect();
            names.sort();
            names
        };
        if names(&rename.from) != names(&rename.to) {
            return Err(DumpError::Choice(format!(
                "{from:?} and {to:?} do not have the same variables"
            )));
        }
        Ok(rename)
    }

    /// The new name; `None` when the old one is not as the pattern says.
    ///
    /// # Errors
    /// The new name is none of a collection.
    pub fn apply(&self, namespace: &Namespace) -> Result<Option<Namespace>> {
        let old = namespace.to_string();
        let Some(bound) = bind(&self.from, &old) else {
            return Ok(None);
        };
        let new: String = self
            .to
            .iter()
            .map(|piece| match piece {
                Piece::Text(plain) => plain.as_str(),
                Piece::Any(name) => bound
                    .iter()
                    .find(|(other, _)| other == name)
                    .map_or("", |(_, text)| text),
            })
            .collect();
        match Namespace::parse(&new) {
            Some(namespace) => Ok(Some(namespace)),
            None => Err(DumpError::Choice(format!(
                "--nsTo makes {new:?} of {old}, which is no DATABASE.COLLECTION"
            ))),
        }
    }
}

/// Which collections are meant.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// Only this database.
    pub database: Option<String>,
    /// Only this collection.
    pub collection: Option<String>,
    /// Only what one of these matches; all when there is none.
    pub include: Vec<Pattern>,
    /// Nothing that one of these matches.
    pub exclude: Vec<Pattern>,
}

impl Filter {
    /// True when every collection is meant.
    pub fn takes_all(&self) -> bool {
        self.database.is_none() && self.collection.is_none() && self.include.is_empty() && self.exclude.is_empty()
    }

    /// True when the collection is meant.
    pub fn takes(&self, namespace: &Namespace) -> bool {
        let is = |wanted: &Option<String>, name: &str| wanted.as_deref().is_none_or(|wanted| wanted == name);
        is(&self.database, &namespace.database)
            && is(&self.collection, &namespace.collection)
            && (self.include.is_empty() || self.include.iter().any(|pattern| pattern.matches(namespace)))
            && !self.exclude.iter().any(|pattern| pattern.matches(namespace))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn stars_and_backslashes() {
        let name = Namespace::new("shop", "a*b.c");
        for (pattern, matches) in [
            ("*", true),
            ("shop.*", true),
            ("sho.*", false),
            ("*.a*", true),
            ("shop.a\\*b.c", true),
            ("shop.a\\*", false),
            ("shop", false),
            ("*b.c*", true),
            ("", false),
        ] {
            assert_eq!(Pattern::new(pattern).matches(&name), matches, "{pattern}");
        }
        assert!(Pattern::new("d.$x").matches(&Namespace::new("d", "$x")));
    }

    #[test]
    fn renaming_moves_variables() {
        let rename = Rename::new("$db$_$year$.log", "logs.$year$.$db$").unwrap();
        assert_eq!(
            rename.apply(&Namespace::new("shop_2020", "log")).unwrap(),
            Some(Namespace::new("logs", "2020.shop"))
        );
        assert_eq!(rename.apply(&Namespace::new("shop", "log")).unwrap(), None);
        let stars = Rename::new("a.*", "b.old-*").unwrap();
        assert_eq!(
            stars.apply(&Namespace::new("a", "x.y")).unwrap(),
            Some(Namespace::new("b", "old-x.y"))
        );
        // Once the collection itself was restored over, for want of a dot.
        assert!(
            Rename::new("a.*", "b-*")
                .unwrap()
                .apply(&Namespace::new("a", "x"))
                .is_err()
        );
        assert!(Rename::new("a.*", "b.c").is_err());
        assert!(Rename::new("a.$x$", "b.$y$").is_err());
        assert!(Rename::new("a.$x", "b.$x").is_err());
    }
}
