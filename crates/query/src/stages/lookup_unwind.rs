//! A `$lookup` whose array the `$unwind` behind it takes apart: the array is not made where it would be too large.
//!
//! What is joined to most documents fits into an array, which one join finds. Where it does not, the documents of the
//! foreign side come one by one from a sub-aggregation.

use bson::Document;

use super::lookup::LookupSpec;
use super::lookup_stage::{JoinedDocument, LookupStage};
use super::unwind::{UnwindSpec, Unwinder};
use super::{Stage, StageContext};
use crate::error::QueryError;
use crate::value::{SharedDocument, Value, with_path};

/// The running pair of stages.
pub(super) struct UnwoundLookup {
    lookup: LookupStage,
    unwinder: Unwinder,
    /// A document whose results come one by one, and how many have come.
    streamed: Option<(SharedDocument, i64)>,
}

impl UnwoundLookup {
    pub(super) fn new(source: Box<dyn Stage>, lookup: LookupSpec, unwind: UnwindSpec) -> Self {
        Self {
            lookup: LookupStage::unwound(source, lookup),
            unwinder: Unwinder::new(unwind),
            streamed: None,
        }
    }

    /// The next of the results that come one by one.
    fn next_streamed(&mut self, context: &mut StageContext<'_>) -> Result<Option<SharedDocument>, QueryError> {
        let Some((document, come)) = &mut self.streamed else {
            return Ok(None);
        };
        if let Some(found) = self.lookup.next_found(context)? {
            let unwound = self
                .unwinder
                .element(document, &Value::document(found), *come, context.evaluation)?;
            *come += 1;
            return Ok(Some(unwound));
        }
        let (document, come) = (document.clone(), *come);
        self.streamed = None;
        match come {
            // They have gone since they were too many.
            0 => {
                let empty = Value::array(Vec::new())?;
                let whole = with_path(&document, self.lookup.target().parts(), &empty)?;
                let whole = whole.with_metadata(document.metadata().cloned());
                self.unwinder.begin(whole, context.evaluation)
            }
            _ => Ok(None),
        }
    }
}

impl Stage for UnwoundLookup {
    fn next(&mut self, context: &mut StageContext<'_>) -> Result<Option<SharedDocument>, QueryError> {
        loop {
            if let Some(document) = self.unwinder.next_element(context.evaluation)? {
                return Ok(Some(document));
            }
            if let Some(document) = self.next_streamed(context)? {
                return Ok(Some(document));
            }
            match self.lookup.next_joined(context)? {
                None => return Ok(None),
                Some(JoinedDocument::Streamed(document)) => self.streamed = Some((document, 0)),
                Some(JoinedDocument::Whole(document)) => {
                    if let Some(document) = self.unwinder.begin(document, context.evaluation)? {
                        return Ok(Some(document));
                    }
                }
            }
        }
    }

    fn restart(&mut self, context: &StageContext<'_>) -> Result<bool, QueryError> {
        self.unwinder.clear();
        self.streamed = None;
        self.lookup.restart(context)
    }

    fn add_statistics(&self, statistics: &mut Document) {
        self.lookup.add_statistics(statistics);
    }
}
