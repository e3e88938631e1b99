//! `upsertSupplied`: what an upsert inserts comes with the statement.

use super::Statement;
use crate::error::{CommandError, Result};
use bson::RawDocument;
use wire::ErrorCode;

/// The document that an upsert inserts as it is given.
pub(super) fn supplied<'a>(statement: &Statement<'a>) -> Result<Option<&'a RawDocument>> {
    if !statement.inserts_supplied {
        return Ok(None);
    }
    if !statement.upsert {
        return Err(CommandError::new(
            ErrorCode::FailedToParse,
            "the parameter 'upsertSupplied' is set to 'true', but 'upsert' is not",
        ));
    }
    let new = statement
        .constants
        .and_then(|constants| constants.get_document("new").ok());
    new.map(Some).ok_or_else(|| {
        CommandError::new(
            ErrorCode::FailedToParse,
            "the parameter 'upsertSupplied' needs the constant 'new', the document to insert",
        )
    })
}
