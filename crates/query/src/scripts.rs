//! The scripts of an operation: `$where`, `$function`, `$accumulator` and what `mapReduce` is made of.
//!
//! An [`EvaluationContext`](crate::EvaluationContext) has one scope for all functions that run with it, and all
//! contexts that are lent the same [`OperationScripts`] have that one; so nothing of one operation is there for the
//! next.
//! - The heap begins small and grows while the operation's account allows it. What it may have is charged, used or not.
//!   A call that ran out of it is run again in a new scope with more. Where scripts have left something in the old one
//!   the operation fails: that cannot be taken along, and neither is it known what of it the call has already changed.
//! - A script ends with its operation, and when a call takes too long.
//! - A scope measures the stack from where it was made. Stages that run far from there, in another piece of stack, have
//!   another scope.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use script::{Function, Scope, ScriptError};
use storage::{Charge, Operation, StorageError};
use vfs::Clock;
use wire::ErrorCode;

use crate::error::QueryError;
use crate::stack::on_enough_stack_for_scripts;

/// Bytes of the heap at first.
const HEAP_BYTES_MIN: u64 = 8 << 20;
/// By how much it grows at a time.
const HEAP_GROWTH: u64 = 4;

/// So many scopes an operation may have: each has a heap.
const SCOPES_MAX: usize = 4;

/// The scopes of an operation: one, but where its stages run in pieces of stack that are far from each other.
#[derive(Default)]
struct Scripts(Vec<OneScope>);

/// What scripts of an operation run in, made when the first of them does. Evaluations that belong together are lent the
/// same one, so that what a script leaves in its globals is there for the next.
#[derive(Default)]
pub struct OperationScripts {
    scopes: RefCell<Scripts>,
    /// When calls have to end that would run longer.
    end_ms: Cell<Option<i64>>,
}

struct OneScope {
    scope: Scope,
    heap_bytes: u64,
    memory: Charge,
    /// As [`OperationScripts`] has it.
    end_ms: Rc<Cell<Option<i64>>>,
}

/// Whether scripts of an operation have to end: it has, or the current call takes too long.
fn interruption(operation: &Operation, call_deadline_ms: Arc<AtomicI64>) -> Arc<dyn Fn() -> bool + Send + Sync> {
    let (killed, clock, deadline_ms) = (
        operation.kill_handle(),
        operation.clock().clone(),
        operation.deadline_ms(),
    );
    Arc::new(move || {
        let deadline_ms = deadline_ms.min(call_deadline_ms.load(Ordering::Relaxed));
        killed.get().is_some() || clock.monotonic().as_millis() as i64 >= deadline_ms
    })
}

/// When a call that begins now has to end.
fn call_deadline_ms(clock: &dyn Clock, call_ms_max: u64) -> i64 {
    let now_ms = clock.monotonic().as_millis() as i64;
    now_ms.saturating_add(i64::try_from(call_ms_max).unwrap_or(i64::MAX))
}

/// The heap at first, charged.
fn first_heap(operation: &Operation) -> Result<(u64, Charge), QueryError> {
    let heap_bytes = HEAP_BYTES_MIN.min(operation.scripts().heap_bytes_max());
    let mut memory = Charge::new(operation.memory());
    memory.grow(heap_bytes).map_err(StorageError::from)?;
    Ok((heap_bytes, memory))
}

/// Lets a heap grow that was full.
fn grow_heap(heap_bytes: &mut u64, memory: &mut Charge, operation: &Operation) -> Result<(), QueryError> {
    let max = operation.scripts().heap_bytes_max();
    let grown = heap_bytes.saturating_mul(HEAP_GROWTH).min(max);
    if grown <= *heap_bytes {
        return Err(query_error(ScriptError::OutOfMemory, operation));
    }
    memory.grow(grown - *heap_bytes).map_err(StorageError::from)?;
    *heap_bytes = grown;
    Ok(())
}

/// Fails where a function is no JavaScript.
pub(crate) fn check(function: &Function, operation: Option<&Operation>) -> Result<(), QueryError> {
    let Some(operation) = operation.filter(|operation| operation.scripts().is_enabled()) else {
        return Err(disabled());
    };
    let (mut heap_bytes, mut memory) = first_heap(operation)?;
    let deadline_ms = call_deadline_ms(&**operation.clock(), operation.scripts().call_ms_max());
    let is_interrupted = interruption(operation, Arc::new(AtomicI64::new(deadline_ms)));
    on_enough_stack_for_scripts(|| {
        loop {
            match Scope::check(function, heap_bytes as usize, is_interrupted.clone()) {
                Err(ScriptError::OutOfMemory) => grow_heap(&mut heap_bytes, &mut memory, operation)?,
                checked => return checked.map_err(|error| query_error(error, operation)),
            }
        }
    })
}

impl Scripts {
    /// The scope for scripts that run here.
    fn here(&mut self, operation: &Operation) -> Result<&mut OneScope, QueryError> {
        let place = self.0.iter().position(|one| one.scope.is_within_reach());
        let place = match place {
            Some(place) => place,
            None if self.0.len() >= SCOPES_MAX => return Err(query_error(ScriptError::OutOfReach, operation)),
            None => {
                self.0.push(OneScope::new(operation)?);
                self.0.len() - 1
            }
        };
        Ok(&mut self.0[place])
    }
}

impl OneScope {
    fn new(operation: &Operation) -> Result<Self, QueryError> {
        let deadline_ms = Arc::new(AtomicI64::new(i64::MAX));
        let end_ms: Rc<Cell<Option<i64>>> = Rc::default();
        let bound = end_ms.clone();
        let (heap_bytes, memory) = first_heap(operation)?;
        let scope = Scope::new(heap_bytes as usize, interruption(operation, deadline_ms.clone()));
        let mut scope = scope.map_err(|error| query_error(error, operation))?;
        let (clock, limits) = (operation.clock().clone(), operation.scripts().clone());
        scope.on_each_call(move || {
            let call_deadline_ms = call_deadline_ms(&*clock, limits.call_ms_max());
            let end_ms = bound.get().unwrap_or(i64::MAX);
            deadline_ms.store(call_deadline_ms.min(end_ms), Ordering::Relaxed);
        });
        Ok(Self {
            scope,
            heap_bytes,
            memory,
            end_ms,
        })
    }

    /// Makes a new scope after the heap was full, with a larger heap if only one call has run in the old one: else that
    /// may have been full of what former calls left to be collected.
    fn renew(&mut self, operation: &Operation) -> Result<(), QueryError> {
        if !self.scope.has_results() {
            grow_heap(&mut self.heap_bytes, &mut self.memory, operation)?;
        }
        let renewed = self.scope.renewed(self.heap_bytes as usize);
        let renewed = renewed.map_err(|error| query_error(error, operation))?;
        self.scope = renewed.ok_or_else(|| query_error(ScriptError::OutOfMemory, operation))?;
        Ok(())
    }
}

impl OperationScripts {
    /// Calls that begin from now on end after this time, all of them together, or with `None` when other bounds say so.
    pub fn end_within(&self, time: Option<Duration>, clock: &dyn Clock) {
        let at_ms = |time: Duration| call_deadline_ms(clock, u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
        self.end_ms.set(time.map(at_ms));
    }

    /// Runs a call.
    pub(crate) fn run<T>(
        &self,
        operation: Option<&Operation>,
        call: impl Fn(&Scope) -> Result<T, ScriptError>,
    ) -> Result<T, QueryError> {
        // What no client waits for has no scripts: filters of indexes and validators are refused them.
        let Some(operation) = operation.filter(|operation| operation.scripts().is_enabled()) else {
            return Err(disabled());
        };
        let mut scripts = self.scopes.borrow_mut();
        on_enough_stack_for_scripts(|| {
            let one = scripts.here(operation)?;
            one.end_ms.set(self.end_ms.get());
            loop {
                match call(&one.scope) {
                    Err(ScriptError::OutOfMemory) => one.renew(operation)?,
                    result => return result.map_err(|error| query_error(error, operation)),
                }
            }
        })
    }
}

/// The error of a server that runs no scripts.
pub(crate) fn disabled() -> QueryError {
    QueryError::new(
        ErrorCode(31264),
        "Cannot run server-side javascript without the javascript engine enabled",
    )
}

fn query_error(error: ScriptError, operation: &Operation) -> QueryError {
    let code = match error {
        ScriptError::Interrupted => match operation.check_now() {
            Err(interrupted) => return StorageError::from(interrupted).into(),
            Ok(()) => {
                let text = format!("{error}: a call took longer than internalQueryJavaScriptFnTimeoutMillis");
                return QueryError::new(ErrorCode::JSInterpreterFailure, text);
            }
        },
        ScriptError::NotBson(_) => ErrorCode(16662),
        ScriptError::ZeroInName(_) => ErrorCode(16985),
        ScriptError::TooDeep { .. } => ErrorCode(17279),
        ScriptError::TooLarge { .. } => ErrorCode(17260),
        ScriptError::EmitArguments => ErrorCode(31220),
        ScriptError::EmittedTooMuch { .. } => ErrorCode(31292),
        ScriptError::Malformed => ErrorCode::InvalidBSON,
        _ => ErrorCode::JSInterpreterFailure,
    };
    QueryError::new(code, error.to_string())
}

#[cfg(test)]
mod tests;
