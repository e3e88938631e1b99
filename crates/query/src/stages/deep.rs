//! Room on the stack for long pipelines and for pipelines inside pipelines.
//!
//! Each stage asks the one before it, so that a thousand stages, or twenty levels of hundreds, are more calls inside
//! one another than a thread's stack holds. Every so many stages, and wherever another level begins, the stack is
//! looked at, and goes on in a new piece of memory where it is nearly used up. The same goes for when they are dropped.

use super::{Stage, StageContext};
use crate::error::QueryError;
use crate::stack::on_enough_stack;
use crate::value::SharedDocument;
use bson::Document;

/// Stages between two looks at the stack.
const STAGES_PER_LOOK: usize = 16;

/// A stage that is asked, and goes, with room on the stack.
pub(crate) struct DeepStage(Box<dyn Stage>);

impl DeepStage {
    pub(crate) fn new(stage: Box<dyn Stage>) -> Self {
        Self(stage)
    }
}

/// What is left where a stage was.
struct Gone;

impl Stage for Gone {
    fn next(&mut self, _context: &mut StageContext<'_>) -> Result<Option<SharedDocument>, QueryError> {
        Ok(None)
    }

    fn restart(&mut self, _context: &StageContext<'_>) -> Result<bool, QueryError> {
        Ok(false)
    }
}

impl Drop for DeepStage {
    fn drop(&mut self) {
        // A box without a size is made without memory.
        let stage = std::mem::replace(&mut self.0, Box::new(Gone));
        on_enough_stack(|| drop(stage));
    }
}

impl Stage for DeepStage {
    fn next(&mut self, context: &mut StageContext<'_>) -> Result<Option<SharedDocument>, QueryError> {
        on_enough_stack(|| self.0.next(context))
    }

    fn restart(&mut self, context: &StageContext<'_>) -> Result<bool, QueryError> {
        on_enough_stack(|| self.0.restart(context))
    }

    fn add_statistics(&self, statistics: &mut Document) {
        self.0.add_statistics(statistics);
    }
}

/// The source of a pipeline's stage at this place.
pub(super) fn at_place(place: usize, source: Box<dyn Stage>) -> Box<dyn Stage> {
    match place % STAGES_PER_LOOK {
        0 if place > 0 => Box::new(DeepStage::new(source)),
        _ => source,
    }
}
