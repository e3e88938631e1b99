//! From a parsed pipeline to stages that run.

use super::lookup_unwind::UnwoundLookup;
use super::{Pipeline, Stage, StageSpec, deep};
use crate::error::QueryError;

impl Pipeline {
    /// Puts the stages on top of `source`. An initial stage is taken to be `source` already, but for `$documents`,
    /// which is run here.
    pub fn run(self, source: Box<dyn Stage>) -> Result<Box<dyn Stage>, QueryError> {
        self.start(source, &mut |stage| stage)
    }

    /// As [`Pipeline::run`]; `each` is given every stage, in order, and puts another in its place.
    pub(super) fn start(
        self,
        source: Box<dyn Stage>,
        each: &mut dyn FnMut(Box<dyn Stage>) -> Box<dyn Stage>,
    ) -> Result<Box<dyn Stage>, QueryError> {
        let mut top = source;
        let mut stages = self.stages.into_iter().peekable();
        let mut place = 0;
        while let Some(stage) = stages.next() {
            top = deep::at_place(place, top);
            place += 1;
            let unwind = match (&stage, stages.peek()) {
                (StageSpec::Lookup(lookup), Some(StageSpec::Unwind(unwind))) if unwind.path() == lookup.target() => {
                    stages.next()
                }
                _ => None,
            };
            top = match (stage, unwind) {
                (StageSpec::Lookup(lookup), Some(StageSpec::Unwind(unwind))) => {
                    let both = each(Box::new(UnwoundLookup::new(top, *lookup, unwind)));
                    each(both)
                }
                (stage, _) => each(stage.start(top)?),
            };
        }
        Ok(top)
    }
}
