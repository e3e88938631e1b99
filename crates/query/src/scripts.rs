//! The scripts of an operation: `$where`, `$function`, `$accumulator` and what `mapReduce` is made of.
//!
//! An [`EvaluationContext`](crate::EvaluationContext) has one scope for all functions that run with it, made when the
//! first of them does, and gone with the context; so nothing of one operation is there for the next.
//! - The heap begins small and grows while the operation's account allows it. What it may have is charged, used or not.
//!   A call that ran out of it is run again in a new scope with more. Where scripts have left something in the old one
//!   the operation fails: that cannot be taken along, and neither is it known what of it the call has already changed.
//! - A script ends with its operation, and when a call takes too long.
//! - A scope measures the stack from where it was made. Stages that run far from there, in another piece of stack, have
//!   another scope.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use script::{Function, Scope, ScriptError};
use storage::{Charge, Operation, StorageError};
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
pub(crate) struct Scripts(Vec<OneScope>);

struct OneScope {
    scope: Scope,
    heap_bytes: u64,
    memory: Charge,
    /// The monotonic time at which the current call has to end, in milliseconds.
    call_deadline_ms: Arc<AtomicI64>,
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
fn call_deadline_ms(operation: &Operation) -> i64 {
    let now_ms = operation.clock().monotonic().as_millis() as i64;
    let call_ms = i64::try_from(operation.scripts().call_ms_max()).unwrap_or(i64::MAX);
    now_ms.saturating_add(call_ms)
}

/// The heap at first, charged.
fn first_heap(operation: &Operation) -> Result<(u64, Charge), QueryError> {
    let heap_bytes = HEAP_BYTES_MIN.min(operation.scripts().heap_bytes_max());
    let mut memory = Charge::new(operation.memory());
    memory.grow(heap_bytes).map_err(StorageError::from)?;
    Ok((heap_bytes, memory))
}

/// Fails where a function is no JavaScript.
pub(crate) fn check(function: &Function, operation: Option<&Operation>) -> Result<(), QueryError> {
    let Some(operation) = operation.filter(|operation| operation.scripts().is_enabled()) else {
        return Err(disabled());
    };
    let (heap_bytes, _memory) = first_heap(operation)?;
    let is_interrupted = interruption(operation, Arc::new(AtomicI64::new(call_deadline_ms(operation))));
    let checked = on_enough_stack_for_scripts(|| Scope::check(function, heap_bytes as usize, is_interrupted));
    checked.map_err(|error| query_error(error, operation))
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
        let call_deadline_ms = Arc::new(AtomicI64::new(i64::MAX));
        let (heap_bytes, memory) = first_heap(operation)?;
        let scope = Scope::new(heap_bytes as usize, interruption(operation, call_deadline_ms.clone()));
        Ok(Self {
            scope: scope.map_err(|error| query_error(error, operation))?,
            heap_bytes,
            memory,
            call_deadline_ms,
        })
    }

    /// Makes a new scope after the heap was full, with a larger heap if only one call has run in the old one: else that
    /// may have been full of what former calls left to be collected.
    fn renew(&mut self, operation: &Operation) -> Result<(), QueryError> {
        let max = operation.scripts().heap_bytes_max();
        let heap_bytes = match self.scope.has_results() {
            true => self.heap_bytes,
            false => self.heap_bytes.saturating_mul(HEAP_GROWTH).min(max),
        };
        let out_of_memory = || query_error(ScriptError::OutOfMemory, operation);
        if heap_bytes <= self.heap_bytes && !self.scope.has_results() {
            return Err(out_of_memory());
        }
        self.memory
            .grow(heap_bytes.saturating_sub(self.heap_bytes))
            .map_err(StorageError::from)?;
        self.heap_bytes = self.heap_bytes.max(heap_bytes);
        let renewed = self.scope.renewed(self.heap_bytes as usize);
        let renewed = renewed.map_err(|error| query_error(error, operation))?;
        self.scope = renewed.ok_or_else(out_of_memory)?;
        Ok(())
    }
}

/// Runs a call in a scope that `slot` holds, or will hold.
pub(crate) fn run<T>(
    slot: &mut Option<Box<Scripts>>,
    operation: Option<&Operation>,
    call: impl Fn(&Scope) -> Result<T, ScriptError>,
) -> Result<T, QueryError> {
    // What no client waits for has no scripts: filters of indexes and validators are refused them.
    let Some(operation) = operation.filter(|operation| operation.scripts().is_enabled()) else {
        return Err(disabled());
    };
    let scripts = slot.get_or_insert_default();
    on_enough_stack_for_scripts(|| {
        let one = scripts.here(operation)?;
        one.call_deadline_ms
            .store(call_deadline_ms(operation), Ordering::Relaxed);
        loop {
            match call(&one.scope) {
                Err(ScriptError::OutOfMemory) => one.renew(operation)?,
                result => return result.map_err(|error| query_error(error, operation)),
            }
        }
    })
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
            Ok(()) => ErrorCode::JSInterpreterFailure,
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
