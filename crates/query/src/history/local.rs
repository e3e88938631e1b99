//! A capped collection in memory as a source: all that it holds when it is opened, or, followed, what comes, too.

use super::Tail;
use crate::QueryError;
use crate::stages::{Stage, StageContext};
use crate::value::SharedDocument;
use bytes::Bytes;
use std::sync::Arc;
use storage::{LocalCapped, LocalNext};
use wire::ErrorCode;

pub(super) struct LocalSource {
    scan: Scan,
    looked_at: u32,
}

enum Scan {
    /// The collection is small, and its documents are shared: they are taken at once.
    Taken(std::vec::IntoIter<Bytes>),
    Followed {
        local: Arc<LocalCapped>,
        passed: u64,
        tail: Arc<Tail>,
    },
}

impl LocalSource {
    pub(super) fn new(local: Arc<LocalCapped>, is_backward: bool, tail: Option<Arc<Tail>>) -> Self {
        let scan = match tail {
            Some(tail) => {
                // As with other capped collections: a cursor on an empty one is dead from the start.
                let ended = local.after(0) == LocalNext::Nothing;
                tail.change(|state| state.ended = ended);
                Scan::Followed { local, passed: 0, tail }
            }
            None => {
                let mut documents = local.documents();
                if is_backward {
                    documents.reverse();
                }
                Scan::Taken(documents.into_iter())
            }
        };
        Self { scan, looked_at: 0 }
    }
}

impl Stage for LocalSource {
    fn next(&mut self, context: &mut StageContext<'_>) -> Result<Option<SharedDocument>, QueryError> {
        self.looked_at = self.looked_at.wrapping_add(1);
        if self.looked_at.is_multiple_of(64) {
            context.execution.check()?;
        }
        let document = match &mut self.scan {
            Scan::Taken(documents) => documents.next(),
            Scan::Followed { local, passed, tail } => match local.after(*passed) {
                LocalNext::Document(at, document) => {
                    *passed = at;
                    tail.change(|state| state.passed = at);
                    Some(document)
                }
                LocalNext::Nothing => None,
                LocalNext::Lost => {
                    return Err(QueryError::new(
                        ErrorCode::CappedPositionLost,
                        format!(
                            "CollectionScan died due to position in capped collection being deleted. Last seen record id: RecordId({})",
                            passed
                        ),
                    ));
                }
                LocalNext::Dropped => {
                    return Err(QueryError::new(
                        ErrorCode::QueryPlanKilled,
                        format!("collection dropped: {}", local.namespace()),
                    ));
                }
            },
        };
        document
            .map(|bytes| SharedDocument::new(bytes).map_err(QueryError::from))
            .transpose()
    }
}
