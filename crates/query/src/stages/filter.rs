//! Stages that let documents through or count them: `$match`, `$limit`, `$skip`, `$count`.

use super::{Stage, StageContext};
use crate::error::QueryError;
use crate::matcher::Matcher;
use crate::value::{DocumentWriter, SharedDocument, Value};

/// Documents between two looks at whether the operation is to stop.
pub(super) const CHECK_EVERY: u32 = 128;

/// Asks for interruption every [`CHECK_EVERY`] calls.
#[derive(Debug, Default)]
pub(super) struct Checkpoint {
    calls: u32,
}

impl Checkpoint {
    #[inline]
    pub(super) fn tick(&mut self, context: &StageContext<'_>) -> Result<(), QueryError> {
        self.calls += 1;
        if self.calls >= CHECK_EVERY {
            self.calls = 0;
            return context.execution.check();
        }
        Ok(())
    }
}

pub(super) struct MatchStage {
    source: Box<dyn Stage>,
    matcher: Matcher,
    checkpoint: Checkpoint,
}

impl MatchStage {
    pub(super) fn new(source: Box<dyn Stage>, matcher: Matcher) -> Self {
        Self {
            source,
            matcher,
            checkpoint: Checkpoint::default(),
        }
    }
}

impl Stage for MatchStage {
    fn next(&mut self, context: &mut StageContext<'_>) -> Result<Option<SharedDocument>, QueryError> {
        while let Some(document) = self.source.next(context)? {
            context.evaluation.on(document.metadata());
            if self.matcher.matches(&document, context.evaluation)? {
                return Ok(Some(document));
            }
            self.checkpoint.tick(context)?;
        }
        Ok(None)
    }

    fn restart(&mut self, context: &StageContext<'_>) -> Result<bool, QueryError> {
        self.source.restart(context)
    }
}

pub(super) struct LimitStage {
    source: Box<dyn Stage>,
    limit: u64,
    left: u64,
}

impl LimitStage {
    pub(super) fn new(source: Box<dyn Stage>, limit: u64) -> Self {
        Self {
            source,
            limit,
            left: limit,
        }
    }
}

impl Stage for LimitStage {
    fn next(&mut self, context: &mut StageContext<'_>) -> Result<Option<SharedDocument>, QueryError> {
        if self.left == 0 {
            return Ok(None);
        }
        let next = self.source.next(context)?;
        self.left -= 1;
        Ok(next)
    }

    fn restart(&mut self, context: &StageContext<'_>) -> Result<bool, QueryError> {
        self.left = self.limit;
        self.source.restart(context)
    }
}

pub(super) struct SkipStage {
    source: Box<dyn Stage>,
    skip: u64,
    left: u64,
    checkpoint: Checkpoint,
}

impl SkipStage {
    pub(super) fn new(source: Box<dyn Stage>, skip: u64) -> Self {
        Self {
            source,
            skip,
            left: skip,
            checkpoint: Checkpoint::default(),
        }
    }
}

impl Stage for SkipStage {
    fn next(&mut self, context: &mut StageContext<'_>) -> Result<Option<SharedDocument>, QueryError> {
        while self.left > 0 {
            if self.source.next(context)?.is_none() {
                self.left = 0;
                return Ok(None);
            }
            self.left -= 1;
            self.checkpoint.tick(context)?;
        }
        self.source.next(context)
    }

    fn restart(&mut self, context: &StageContext<'_>) -> Result<bool, QueryError> {
        self.left = self.skip;
        self.source.restart(context)
    }
}

pub(super) struct CountStage {
    source: Box<dyn Stage>,
    field: String,
    count: i64,
    checkpoint: Checkpoint,
    done: bool,
}

impl CountStage {
    pub(super) fn new(source: Box<dyn Stage>, field: String) -> Self {
        Self {
            source,
            field,
            count: 0,
            checkpoint: Checkpoint::default(),
            done: false,
        }
    }
}

impl Stage for CountStage {
    fn next(&mut self, context: &mut StageContext<'_>) -> Result<Option<SharedDocument>, QueryError> {
        if self.done {
            return Ok(None);
        }
        while self.source.next(context)?.is_some() {
            self.count += 1;
            self.checkpoint.tick(context)?;
        }
        self.done = true;
        // As MongoDB's: nothing in, nothing out.
        if self.count == 0 {
            Ok(None)
        } else {
            count_document(&self.field, self.count).map(Some)
        }
    }

    fn restart(&mut self, context: &StageContext<'_>) -> Result<bool, QueryError> {
        self.done = false;
        self.count = 0;
        self.source.restart(context)
    }
}

/// `{field: count}`, an int32 when it fits.
pub(crate) fn count_document(field: &str, count: i64) -> Result<SharedDocument, QueryError> {
    let value = i32::try_from(count).map_or(Value::Int64(count), Value::Int32);
    let mut bytes = Vec::with_capacity(32);
    let mut writer = DocumentWriter::new(&mut bytes);
    writer.append(field, &value);
    writer.finish();
    Ok(SharedDocument::new(bytes.into())?)
}
