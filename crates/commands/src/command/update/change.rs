//! From a statement to its change, which is parsed once for all documents that it changes. One that many statements
//! share is parsed once for all of those ([`Statement::parsed`]).

use super::{ChangeForm, Statement};
use crate::error::{CommandError, Result};
use crate::invocation::Invocation;
use bson::raw::RawBsonRef;
use query::expression::ExpressionContext;
use query::timeseries::BUCKET_DEPTH_MAX;
use query::update::Update;
use storage::Namespace;
use wire::ErrorCode;

/// What the expressions of a statement see.
pub fn expressions_of(
    call: &Invocation<'_>,
    namespace: &Namespace,
    statement: &Statement<'_>,
) -> Result<ExpressionContext> {
    let expressions = call.expressions_on(namespace, statement.variables, statement.collation)?;
    Ok(match statement.constants {
        Some(constants) => expressions.with_constants(constants)?,
        None => expressions,
    })
}

/// Parses the change of a statement.
pub fn parse_change(
    namespace: &Namespace,
    statement: &Statement<'_>,
    expressions: &ExpressionContext,
) -> Result<Update> {
    let mut update = match (statement.change, statement.form) {
        (RawBsonRef::Document(document), ChangeForm::Document) => Update::document(document),
        (RawBsonRef::Document(difference), ChangeForm::Difference) => Update::delta(difference)?,
        (change, _) => Update::parse(change, statement.array_filters, expressions)?,
    };
    if namespace.collection().starts_with(storage::BUCKETS_PREFIX) {
        update = update.with_depth_max(BUCKET_DEPTH_MAX);
    }
    if statement.constants.is_some() && !update.is_pipeline() {
        return Err(CommandError::new(
            ErrorCode(51198),
            "Constant values may only be specified for pipeline updates",
        ));
    }
    if update.is_replacement() && statement.multi {
        return Err(CommandError::new(
            ErrorCode::FailedToParse,
            "multi update is not supported for replacement-style update",
        ));
    }
    Ok(update)
}
