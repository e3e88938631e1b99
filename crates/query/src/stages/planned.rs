//! The seam for stages that stand alone: everything the pipeline asks of one, in one place beside its code.
//!
//! A stage that other rules of the optimiser or of the planner name is a variant of [`StageSpec`](super::StageSpec) of
//! its own. All others implement [`PlannedStage`] and are listed by name in the parser only.

use bson::RawDocumentBuf;

use super::Stage;
use crate::expression::Dependencies;
use crate::matcher::MatchExpr;

/// See the module.
pub trait PlannedStage: std::fmt::Debug + Send + Sync {
    /// The name with its `$`.
    fn name(&self) -> &'static str;

    /// The stage as `explain` shows it.
    fn written(&self) -> RawDocumentBuf;

    /// Puts the running stage on top of `source`.
    fn start(self: Box<Self>, source: Box<dyn Stage>) -> Box<dyn Stage>;

    /// Adds the fields that the stage reads. Returns whether its documents may hold fields of the source besides.
    fn add_dependencies(&self, dependencies: &mut Dependencies) -> bool;

    /// Whether a part of the `$match` behind it, which reads `read`, may be tested before it.
    fn lets_ahead(&self, _part: &MatchExpr, _read: &Dependencies) -> bool {
        false
    }
}
