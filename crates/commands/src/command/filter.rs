//! The `filter` of listing commands: a query over documents that are made up on the spot.

use crate::error::Result;
use bson::Document;
use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf};
use query::EvaluationContext;
use query::matcher::{Matcher, ParseContext};

/// A query, or none.
pub struct Filter {
    matcher: Option<Matcher>,
}

impl Filter {
    /// Matches everything.
    pub fn all() -> Self {
        Self { matcher: None }
    }

    /// Parses a query.
    pub fn parse(filter: &RawDocument, context: &ParseContext) -> Result<Self> {
        Ok(Self {
            matcher: Some(Matcher::parse(filter, context)?),
        })
    }

    /// The only name that documents which match have, where the filter says so.
    pub fn name(&self) -> Option<&str> {
        let matcher = self.matcher.as_ref().filter(|matcher| matcher.collator().is_none())?;
        matcher
            .root()
            .conjuncts()
            .iter()
            .find_map(|part| match part.as_equality()? {
                (path, RawBsonRef::String(name)) if path.text() == "name" => Some(name),
                _ => None,
            })
    }

    /// True when the document matches.
    pub fn matches(&self, document: &Document, evaluation: &EvaluationContext<'_>) -> Result<bool> {
        match &self.matcher {
            None => Ok(true),
            Some(matcher) => Ok(matcher.matches(&RawDocumentBuf::try_from(document)?, evaluation)?),
        }
    }
}
