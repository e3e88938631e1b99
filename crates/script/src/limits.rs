//! What bounds a script beside its heap, which its caller chooses, and its time.

/// How deep a result may nest: the depth at which MongoDB takes it for a cycle.
pub const DEPTH_MAX: usize = 150;

/// Bytes that a result may have as BSON: a document of 16 MiB, and what an internal one may have beyond.
pub const RESULT_BYTES_MAX: usize = (16 << 20) + (16 << 10);

/// Characters of a script's texts that an error tells: of a message, of a stack, of a name.
pub(crate) const TOLD_CHARS_MAX: usize = 2048;

/// The part of a heap's bytes that is kept for the originals of documents, which are outside of it.
pub(crate) const ORIGINALS_SHARE: usize = 8;

/// Bytes that a full heap gets in addition to look through it.
pub(crate) const COMPARISON_BYTES: usize = 4 << 20;

/// Bytes of the thread's stack that scripts may use. A connection's thread has two megabytes, and conversions of values
/// of [`DEPTH_MAX`] levels go on top.
pub(crate) const STACK_BYTES: usize = 512 << 10;

/// Bytes of the thread's stack that are to be free for a call, with the conversions of its values.
pub const STACK_FREE_BYTES_MIN: usize = 2 * STACK_BYTES;

/// So far below the place where a scope was made its engine can measure the stack.
pub(crate) const STACK_REACH_BYTES: usize = 16 << 20;

/// Bytes that documents emitted by one call may have together.
pub(crate) const EMITTED_BYTES_MAX: usize = 100 << 20;

/// Values that are converted between two looks at whether the operation goes on.
pub(crate) const VALUES_PER_CHECK: u32 = 1024;

/// Bytes that the source of a function may have, and a text that a script compiles: compiling takes time with the
/// square of it, and nothing interrupts that.
pub(crate) const SOURCE_BYTES_MAX: usize = 256 << 10;

/// Room that is to be in a heap where something is compiled, for each byte of its text, for each byte and each function
/// of the text, for each class of characters that has a name, and at least: the engine's compiler goes on after a
/// refused request, with what it does not have.
pub(crate) const COMPILED_BYTES_SHARE: usize = 512;
pub(crate) const COMPILED_BYTES_PER_FUNCTION: usize = 6;
pub(crate) const COMPILED_BYTES_PER_CLASS: usize = 256 << 10;
pub(crate) const COMPILED_BYTES_MIN: usize = 128 << 10;

/// What a heap has beyond its bound while something is compiled, if that room is not enough; then the call ends.
pub(crate) const COMPILING_RESERVE_BYTES: usize = 32 << 20;

/// The same for the prelude.
pub(crate) const PRELUDE_BYTES_MIN: usize = 2 << 20;

/// Calls between two looks for garbage that refers to itself, if the heap does not fill up; each look goes through the
/// whole heap.
pub(crate) const CALLS_PER_COLLECTION: usize = 500;

/// A sleeping script looks so often at whether its operation goes on.
pub(crate) const PAUSE_MAX: std::time::Duration = std::time::Duration::from_millis(10);
