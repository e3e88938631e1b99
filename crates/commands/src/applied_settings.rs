//! The query settings that a call goes by: what was set for the shape of its query.

use crate::error::{CommandError, Result};
use crate::invocation::Invocation;
use crate::query_settings::{is_administrative, refusal};
use query::plan::{QueryShape, ShapeHash};
use wire::ErrorCode;

/// What a query is planned for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    Run,
    /// A query that would be rejected is explained, too.
    Explain,
}

impl Invocation<'_> {
    /// Looks for the settings of the call's own query, which is a `find` and the like: they go into its plans.
    ///
    /// # Errors
    /// `QueryRejectedBySettings`.
    pub(crate) fn find_settings(&mut self, purpose: Purpose) -> Result<()> {
        match self.server.query_settings.are_used() {
            true => self.find_settings_by_shape(purpose),
            false => Ok(()),
        }
    }

    fn find_settings_by_shape(&mut self, purpose: Purpose) -> Result<()> {
        if refusal(self.database, self.body).is_some() {
            return Ok(());
        }
        let Some(hash) = QueryShape::of(self.body, self.database).map(|shape| shape.hash()) else {
            return Ok(());
        };
        self.report.shape = Some(hash);
        self.settings = self.server.query_settings.find(&hash);
        let is_rejected = self.settings.as_ref().is_some_and(|settings| settings.reject);
        if !is_rejected || purpose == Purpose::Explain || is_administrative(self.body) {
            return Ok(());
        }
        Err(CommandError::new(
            ErrorCode::QueryRejectedBySettings,
            "Query rejected by admin query settings",
        ))
    }

    /// `queryShapeHash` of the call, if its query has one.
    pub(crate) fn shape_hash(&self) -> Option<ShapeHash> {
        self.report
            .shape
            .or_else(|| QueryShape::of(self.body, self.database).map(|shape| shape.hash()))
    }
}
