//! Projections: which fields of a document go out, and computed ones.

use bson::{RawDocument, RawDocumentBuf};

use crate::QueryError;
use crate::expression::{Dependencies, ExpressionContext};
use crate::matcher::Matcher;

/// A parsed projection, of `find` or of one of the stages `$project`, `$addFields` and `$unset`.
#[derive(Debug)]
pub struct Projection {
    source: RawDocumentBuf,
}

impl Projection {
    /// Parses the projection of `find` and `findAndModify`. The filter is asked for by a positional `field.$`.
    pub fn parse(
        spec: &RawDocument,
        matcher: Option<&Matcher>,
        context: &ExpressionContext,
    ) -> Result<Self, QueryError> {
        let _ = (spec, matcher, context);
        Err(QueryError::not_implemented("projection"))
    }

    /// Parses the document of `$project`.
    pub fn parse_project(spec: &RawDocument, context: &ExpressionContext) -> Result<Self, QueryError> {
        Self::parse(spec, None, context)
    }

    /// Parses the document of `$addFields` (`$set`).
    pub fn parse_add_fields(spec: &RawDocument, context: &ExpressionContext) -> Result<Self, QueryError> {
        Self::parse(spec, None, context)
    }

    /// The projection of `$unset`: leaves out these paths.
    pub fn excluding(paths: &[&str]) -> Result<Self, QueryError> {
        let _ = paths;
        Err(QueryError::not_implemented("projection"))
    }

    /// Appends the projected document to `out`. `matcher` is the filter that the document matched, for `field.$`.
    pub fn apply(
        &self,
        document: &RawDocument,
        matcher: Option<&Matcher>,
        out: &mut Vec<u8>,
    ) -> Result<(), QueryError> {
        let _ = (document, matcher, out);
        Err(QueryError::not_implemented("projection"))
    }

    /// Whether the document goes out as it is.
    pub fn is_identity(&self) -> bool {
        false
    }

    /// The included paths, when including and excluding `_id` is all it does; in the order written, `_id` among them
    /// unless excluded. Then an index on these fields can answer it.
    pub fn simple_inclusion(&self) -> Option<Vec<String>> {
        None
    }

    /// The paths it reads.
    pub fn add_dependencies(&self, dependencies: &mut Dependencies) {
        dependencies.whole_document = true;
    }

    /// Whether it has a positional `field.$`.
    pub fn is_positional(&self) -> bool {
        false
    }

    /// As the client wrote it.
    pub fn source(&self) -> &RawDocument {
        &self.source
    }
}
