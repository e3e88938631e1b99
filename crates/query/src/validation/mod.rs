//! Document validation: does a document keep the rules of its collection, and if not, which does it break?
//!
//! A [`Validator`] is compiled once and asked for every write: that is one walk of its filter. Only when a document is
//! turned down does [`Validator::explain`] go through the filter clause by clause, as the client wrote it: the
//! matcher's tree is normalised and no longer tells `$ne` from a `$not` around `$eq`.

mod clause;
mod leaf;

use crate::QueryError;
use crate::evaluation::EvaluationContext;
use crate::expression::ExpressionContext;
use crate::matcher::Matcher;
use crate::matcher::schema::{Reporter, to_bson};
use crate::raw;
use crate::value::scan::Malformed;
use bson::{Document, RawBsonRef, RawDocument, RawDocumentBuf, doc};
use clause::Clause;
use wire::ErrorCode;

/// Bytes that the report of one document may have, as MongoDB's: a reply has room for it and for the rest.
const REPORT_BYTES_MAX: usize = 12 << 20;
/// Levels of nesting in a report, so that every client can read it.
const REPORT_DEPTH_MAX: usize = 180;

/// A collection's validator.
pub struct Validator {
    matcher: Matcher,
    clause: Clause,
    depends_on_time: bool,
}

impl Validator {
    /// Compiles a validator. Errors are those of filters.
    pub fn compile(source: &RawDocument, context: &ExpressionContext) -> Result<Self, QueryError> {
        let context = context.apart();
        Ok(Self {
            matcher: Matcher::parse(source, &context)?,
            clause: Clause::of(source, &context)?,
            depends_on_time: context.reads_time(),
        })
    }

    /// Whether it has to be compiled anew for each operation: variables such as `$$NOW` are constants once parsed.
    pub fn depends_on_time(&self) -> bool {
        self.depends_on_time
    }

    /// Whether a document keeps the rules. One on which an expression fails does not; that the operation has to end, or
    /// that there is no memory to find out, says nothing of the document and is an error.
    pub fn accepts(&self, document: &RawDocument, context: &EvaluationContext<'_>) -> Result<bool, QueryError> {
        match self.matcher.matches(document, context) {
            Err(error @ QueryError::Storage(_)) => Err(error),
            Err(error) if error.code() == Some(ErrorCode::ExceededMemoryLimit) => Err(error),
            Err(_) => Ok(false),
            decided => decided,
        }
    }

    /// `errInfo` of a document that was turned down: its `_id`, and which clauses it does not satisfy; and how many
    /// bytes it has. Where there is no room for so much it says less.
    pub fn explain(
        &self,
        document: &RawDocument,
        bytes_max: usize,
        context: &EvaluationContext<'_>,
    ) -> Result<(Document, usize), QueryError> {
        let id = raw::find(document, b"_id")?.map(|id| id.value()).transpose()?;
        let id = to_bson(id.unwrap_or(RawBsonRef::Null))?;
        for is_brief in [false, true] {
            let reporter = Reporter { context, is_brief };
            let details = self.clause.explain(document, false, &reporter)?;
            let mut report = doc! { "failingDocumentId": id.clone(), "details": details };
            if is_brief {
                report.insert("truncated", true);
            }
            let written = RawDocumentBuf::try_from(&report).map_err(|_| Malformed)?;
            if raw::nesting_depth(&written)? > REPORT_DEPTH_MAX {
                let reason = "generated error was too deeply nested";
                let report = doc! { "failingDocumentId": id, "reason": reason, "truncated": true };
                return Ok((report, written.as_bytes().len().min(bytes_max)));
            }
            if written.as_bytes().len() <= bytes_max.min(REPORT_BYTES_MAX) {
                return Ok((report, written.as_bytes().len()));
            }
        }
        let report = doc! { "failingDocumentId": id, "note": "detailed error was too large" };
        Ok((report, 0))
    }
}

impl std::fmt::Debug for Validator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.matcher.fmt(f)
    }
}

#[cfg(test)]
mod tests;
