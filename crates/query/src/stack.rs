//! Room on the stack: where it is nearly used up, work goes on in a new piece of memory.

/// What is left for some stages of a pipeline, or for opening another level, in builds without optimisation, too.
const ROOM_BYTES: usize = 768 << 10;

/// What is left for scripts: they have as much wherever they run.
const SCRIPT_ROOM_BYTES: usize = script::STACK_FREE_BYTES_MIN;

/// A new piece of stack.
const PIECE_BYTES: usize = 4 << 20;

/// Calls `work` with room on the stack.
pub(crate) fn on_enough_stack<T>(work: impl FnOnce() -> T) -> T {
    stacker::maybe_grow(ROOM_BYTES, PIECE_BYTES, work)
}

/// As [`on_enough_stack`], for calls of scripts.
pub(crate) fn on_enough_stack_for_scripts<T>(work: impl FnOnce() -> T) -> T {
    stacker::maybe_grow(SCRIPT_ROOM_BYTES, PIECE_BYTES, work)
}
