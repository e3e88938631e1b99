//! `$where`: a function of the client's that says whether a document matches.

use bson::{RawBsonRef, RawDocument};
use script::Function;
use wire::ErrorCode;

use crate::QueryError;
use crate::evaluation::EvaluationContext;
use crate::expression::ExpressionContext;
use crate::raw::Constant;
use crate::scripts;

/// `$where`.
#[derive(Debug)]
pub struct ScriptTest {
    function: Function,
    /// As the client wrote it.
    pub source: Constant,
}

impl ScriptTest {
    pub(super) fn parse(value: RawBsonRef<'_>, context: &ExpressionContext) -> Result<Self, QueryError> {
        if !context.runs_scripts() {
            return Err(QueryError::new(
                ErrorCode(6108304),
                "no globalScriptEngine in $where parsing",
            ));
        }
        let code = match value {
            RawBsonRef::String(code) | RawBsonRef::JavaScriptCode(code) => code,
            RawBsonRef::JavaScriptCodeWithScope(_) => {
                return Err(QueryError::new(
                    ErrorCode(4649201),
                    "$where no longer supports deprecated BSON type CodeWScope",
                ));
            }
            _ => return Err(QueryError::bad_value("$where got bad type")),
        };
        if code.is_empty() {
            return Err(QueryError::bad_value("code for $where cannot be empty"));
        }
        let function = context.script(code);
        // What is no JavaScript is told at once, and not with the first document.
        scripts::check(&function, context.evaluation().operation())?;
        Ok(Self {
            function,
            source: Constant::new(value),
        })
    }

    pub(super) fn matches(&self, document: &RawDocument, context: &EvaluationContext<'_>) -> Result<bool, QueryError> {
        if !context.runs_scripts() {
            return Ok(true);
        }
        context.scripts(|scope| scope.test(&self.function, document))
    }
}
