//! What one evaluation shares with the operation it runs for: when to end, and how much memory it may take.
//!
//! Everything that walks a client's data in a loop (expressions, filters, updates, projections) is given an
//! [`EvaluationContext`] by reference and counts its steps there; every few thousand the operation is asked whether it
//! goes on, so that `maxTimeMS`, `killOp`, a client that has gone and the end of the server are heeded inside a single
//! expression, too.
//! - A step is some tens of nanoseconds of work. Operators that run through bytes at memory's speed count
//!   [`crate::value::BYTES_PER_STEP`] of them as one.
//! - Memory is counted as a stack: whoever keeps values while others are computed *holds* their bytes and releases them
//!   when it is done with them. What a single operator needs is bounded by the size of its result. Beyond the first
//!   megabyte it is charged to the operation's account.
//! - What a stage gathers is charged there, too, and stays charged as long as the stage has it ([`StageMemory`]).
//!
//! Nothing here is atomic: a context belongs to one thread and one call.

use std::cell::{Cell, RefCell};
use std::cmp::Ordering;
use std::sync::Arc;

use storage::{Charge, Check, Operation, StorageError};
use wire::ErrorCode;

use crate::error::QueryError;
use crate::metadata::{Metadata, MetadataField};
use crate::scripts::OperationScripts;
use crate::value::Value;

/// Steps between two looks at the operation: a fraction of a millisecond.
const STEPS_PER_CHECK: u32 = 2048;

/// Bytes held that are not charged: those of ordinary expressions.
const UNCHARGED_BYTES: usize = 1 << 20;

/// Elements that are sorted without a look at the operation.
const SORTED_RUN: usize = 1024;

/// Bytes that the values of one evaluation may take together.
pub(crate) const HELD_BYTES_MAX: usize = 256 << 20;

/// See the module.
pub struct EvaluationContext<'o> {
    operation: Option<&'o Operation>,
    /// What is asked where there is no operation.
    check: Option<&'o Check<'o>>,
    /// Steps until the operation is asked again. Zero at the start of an operation's: even the first step of a killed
    /// one fails.
    steps_left: Cell<u32>,
    /// Bytes held now.
    held: Cell<usize>,
    /// Bytes that may be held without asking the operation's account.
    granted: Cell<usize>,
    memory: RefCell<Option<Charge>>,
    /// What is known of the document that is evaluated on beside its fields.
    metadata: RefCell<Option<Arc<Metadata>>>,
    /// What scripts run in, if nobody has lent another one.
    scripts: OperationScripts,
    lent_scripts: Option<&'o OperationScripts>,
    runs_scripts: bool,
    /// A script was not run since this was last asked.
    has_skipped: Cell<bool>,
}

impl<'o> EvaluationContext<'o> {
    /// A context that ends with `operation`.
    pub fn new(operation: &'o Operation) -> Self {
        Self::of(Some(operation))
    }

    /// The same, whose scripts run together with those of others.
    pub fn with_scripts(self, lent_scripts: Option<&'o OperationScripts>) -> Self {
        Self { lent_scripts, ..self }
    }

    /// A context that ends when `check` says so, and charges its memory to nobody. It is made for one document of many,
    /// between which whoever goes through them asks: the first steps do not.
    pub(crate) fn checked(check: &'o Check<'o>) -> Self {
        Self {
            check: Some(check),
            steps_left: Cell::new(STEPS_PER_CHECK),
            ..Self::of(None)
        }
    }

    /// The same, where scripts are not run: what they would say is open.
    pub(crate) fn without_scripts(self) -> Self {
        Self {
            runs_scripts: false,
            ..self
        }
    }

    /// Whether scripts are run.
    pub(crate) fn runs_scripts(&self) -> bool {
        self.runs_scripts
    }

    /// A script was not run: what came of it, an error, too, is not what the script would give.
    pub(crate) fn skip_script(&self) {
        self.has_skipped.set(true);
    }

    /// Whether a script was not run since the last time.
    pub(crate) fn take_skipped(&self) -> bool {
        self.has_skipped.take()
    }

    /// A context that nothing interrupts: for what no client waits for.
    pub fn uninterrupted() -> Self {
        Self::of(None)
    }

    pub(crate) fn of(operation: Option<&'o Operation>) -> Self {
        Self {
            operation,
            check: None,
            steps_left: Cell::new(0),
            held: Cell::new(0),
            granted: Cell::new(UNCHARGED_BYTES),
            memory: RefCell::new(None),
            metadata: RefCell::new(None),
            scripts: OperationScripts::default(),
            lent_scripts: None,
            runs_scripts: true,
            has_skipped: Cell::new(false),
        }
    }

    /// The operation it ends with.
    pub(crate) fn operation(&self) -> Option<&'o Operation> {
        self.operation
    }

    /// What follows is evaluated on a document of which so much is known.
    #[inline]
    pub(crate) fn on(&self, metadata: Option<&Arc<Metadata>>) {
        let mut current = self.metadata.borrow_mut();
        if current.is_some() || metadata.is_some() {
            *current = metadata.cloned();
        }
    }

    /// All that is known of the document that is evaluated on.
    pub(crate) fn current(&self) -> Option<Arc<Metadata>> {
        self.metadata.borrow().clone()
    }

    /// What is known of the document that is evaluated on.
    pub(crate) fn metadata(&self, field: MetadataField) -> Value<'static> {
        let metadata = self.metadata.borrow();
        metadata.as_ref().map_or(Value::Missing, |metadata| metadata.get(field))
    }

    /// Runs a call of a script, in a scope that all scripts of this context share, and those of other contexts that are
    /// lent the same.
    pub(crate) fn scripts<T>(
        &self,
        call: impl Fn(&script::Scope) -> Result<T, script::ScriptError>,
    ) -> Result<T, QueryError> {
        self.step()?;
        self.lent_scripts.unwrap_or(&self.scripts).run(self.operation, call)
    }

    /// Counts one step; fails when the operation is to end.
    #[inline]
    pub fn step(&self) -> Result<(), QueryError> {
        self.steps(1)
    }

    /// Counts several steps.
    #[inline]
    pub fn steps(&self, steps: usize) -> Result<(), QueryError> {
        let left = self.steps_left.get();
        if steps < left as usize {
            self.steps_left.set(left - steps as u32);
            return Ok(());
        }
        self.check()
    }

    #[cold]
    #[inline(never)]
    fn check(&self) -> Result<(), QueryError> {
        #[cfg(test)]
        crate::raw::walked::look();
        self.steps_left.set(STEPS_PER_CHECK);
        if let Some(operation) = self.operation {
            operation.check_now().map_err(StorageError::from)?;
        }
        Ok(self.check.map_or(Ok(()), |check| check())?)
    }

    /// Sorts stably, a step for each comparison of a merge: short runs are sorted as slices and then merged, because a
    /// slice's sort cannot be left once it has begun.
    pub(crate) fn sort<T>(
        &self,
        mut items: Vec<T>,
        mut compare: impl FnMut(&T, &T) -> Ordering,
    ) -> Result<Vec<T>, QueryError> {
        if items.len() <= SORTED_RUN {
            items.sort_by(compare);
            self.steps(items.len())?;
            return Ok(items);
        }
        let mut runs = Vec::with_capacity(items.len().div_ceil(SORTED_RUN));
        let mut items = items.into_iter();
        loop {
            let mut run: Vec<T> = items.by_ref().take(SORTED_RUN).collect();
            if run.is_empty() {
                break;
            }
            run.sort_by(&mut compare);
            self.steps(SORTED_RUN)?;
            runs.push(run);
        }
        while runs.len() > 1 {
            let mut merged = Vec::with_capacity(runs.len().div_ceil(2));
            let mut pairs = runs.into_iter();
            while let Some(left) = pairs.next() {
                merged.push(match pairs.next() {
                    Some(right) => self.merge(left, right, &mut compare)?,
                    None => left,
                });
            }
            runs = merged;
        }
        Ok(runs.pop().unwrap_or_default())
    }

    fn merge<T>(
        &self,
        left: Vec<T>,
        right: Vec<T>,
        compare: &mut impl FnMut(&T, &T) -> Ordering,
    ) -> Result<Vec<T>, QueryError> {
        let mut merged = Vec::with_capacity(left.len() + right.len());
        let (mut left, mut right) = (left.into_iter(), right.into_iter());
        while let (Some(first), Some(second)) = (left.as_slice().first(), right.as_slice().first()) {
            self.step()?;
            // Equal ones stay in their order.
            let next = match compare(first, second) {
                Ordering::Greater => right.next(),
                Ordering::Less | Ordering::Equal => left.next(),
            };
            merged.extend(next);
        }
        merged.extend(left);
        merged.extend(right);
        Ok(merged)
    }

    /// Notes that values of so many bytes are kept; fails (146) when all of them are too much.
    #[inline]
    pub(crate) fn hold(&self, bytes: usize) -> Result<(), QueryError> {
        let held = self.held.get().saturating_add(bytes);
        self.held.set(held);
        match held > self.granted.get() {
            true => self.ask_for(held),
            false => Ok(()),
        }
    }

    /// What is granted stays granted until the context goes: evaluations of the next documents will want as much.
    #[cold]
    #[inline(never)]
    fn ask_for(&self, held: usize) -> Result<(), QueryError> {
        if held > HELD_BYTES_MAX {
            return Err(QueryError::new(
                ErrorCode::ExceededMemoryLimit,
                format!("the values of an expression exceed the memory limit of {HELD_BYTES_MAX} bytes"),
            ));
        }
        let granted = held.saturating_add(held / 8).min(HELD_BYTES_MAX);
        if let Some(operation) = self.operation {
            let mut memory = self.memory.borrow_mut();
            let charge = memory.get_or_insert_with(|| Charge::new(operation.memory()));
            let more = (granted as u64).saturating_sub(charge.bytes());
            charge.grow(more).map_err(StorageError::from)?;
        }
        self.granted.set(granted);
        Ok(())
    }

    /// Bytes held now: to be given to [`EvaluationContext::release_to`].
    #[inline]
    pub(crate) fn held(&self) -> usize {
        self.held.get()
    }

    /// Forgets what has been held since [`EvaluationContext::held`] answered `mark`.
    #[inline]
    pub(crate) fn release_to(&self, mark: usize) {
        debug_assert!(mark <= self.held.get(), "holds are released in the reverse order");
        self.held.set(mark);
    }
}

/// What a stage that gathers its input has of it, charged to the operation for which it gathers. It outlives that
/// operation where a cursor does.
#[derive(Default)]
pub(crate) struct StageMemory(Option<Charge>);

impl StageMemory {
    /// Notes that the stage has so many bytes more.
    pub(crate) fn grow(&mut self, context: &EvaluationContext<'_>, bytes: usize) -> Result<(), QueryError> {
        let Some(operation) = context.operation else {
            return Ok(());
        };
        let charge = self.0.get_or_insert_with(|| Charge::new(operation.memory()));
        Ok(charge.grow(bytes as u64).map_err(StorageError::from)?)
    }

    /// Notes that the stage has so many bytes less.
    pub(crate) fn shrink(&mut self, bytes: usize) {
        if let Some(charge) = &mut self.0 {
            charge.shrink(bytes as u64);
        }
    }

    /// Gives all back.
    pub(crate) fn clear(&mut self) {
        self.0 = None;
    }
}

/// Whether an error tells that the operation has to end, and not that something is wrong with what it evaluates.
pub(crate) fn is_interruption(error: &QueryError) -> bool {
    matches!(error, QueryError::Storage(StorageError::Interrupted(_)))
}

#[cfg(test)]
pub(crate) mod tests;
