//! What the stages of a pipeline do, for explain.

use super::{Pipeline, Stage, StageContext};
use crate::error::QueryError;
use crate::value::SharedDocument;
use bson::Document;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;

/// What a stage did until it was dropped.
#[derive(Default)]
pub(crate) struct StageReport {
    /// Documents it gave.
    pub(crate) returned: u64,
    /// Time it took, its sources' included.
    pub(crate) time: Duration,
    /// See [`Stage::add_statistics`].
    pub(crate) statistics: Document,
}

/// A stage that is watched.
struct Observed {
    stage: Box<dyn Stage>,
    report: Arc<Mutex<StageReport>>,
}

impl Stage for Observed {
    fn next(&mut self, context: &mut StageContext<'_>) -> Result<Option<SharedDocument>, QueryError> {
        let execution = context.execution;
        let now = || execution.data().map(|data| data.op.clock().monotonic());
        let began = now();
        let next = self.stage.next(context)?;
        let mut report = self.report.lock();
        report.returned += u64::from(next.is_some());
        if let (Some(began), Some(ended)) = (began, now()) {
            report.time += ended.saturating_sub(began);
        }
        Ok(next)
    }
}

impl Drop for Observed {
    fn drop(&mut self) {
        self.stage.add_statistics(&mut self.report.lock().statistics);
    }
}

/// A stage, watched, and what will be known of it.
pub(crate) fn observed(stage: Box<dyn Stage>) -> (Box<dyn Stage>, Arc<Mutex<StageReport>>) {
    let report = Arc::<Mutex<StageReport>>::default();
    let stage = Box::new(Observed {
        stage,
        report: report.clone(),
    });
    (stage, report)
}

/// A pipeline whose stages are watched, and what will be known of each of them.
pub(crate) type ObservedPipeline = (Box<dyn Stage>, Vec<Arc<Mutex<StageReport>>>);

impl Pipeline {
    /// As [`Pipeline::run`], each stage watched.
    pub(crate) fn run_observed(self, source: Box<dyn Stage>) -> Result<ObservedPipeline, QueryError> {
        let mut reports = Vec::new();
        let top = self.start(source, &mut |stage| {
            let (watched, report) = observed(stage);
            reports.push(report);
            watched
        })?;
        Ok((top, reports))
    }
}
