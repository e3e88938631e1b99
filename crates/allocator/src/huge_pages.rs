//! Huge pages for memory that comes fresh from the system, and ordinary ones for what has once gone back.
//!
//! A heap of huge pages spares look-ups of addresses and faults. But memory that is given back piece by piece becomes
//! part of a huge page again, by the system's own thread, which then holds what the allocator believes to be free: the
//! heap would no longer be bounded by what it counts. So each huge page's worth of addresses of which anything has
//! been given back is for ordinary pages from then on. The gain lasts for memory that stays in use, as a cache's does;
//! where pages come and go all the time it fades. Decision 6 has the measurements.

use rustix::mm::{Advice, madvise};
use std::ffi::{c_uint, c_void};
use std::ptr::{null_mut, without_provenance_mut};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use tikv_jemalloc_ctl::raw;
use tikv_jemalloc_sys::extent_hooks_t;

/// Of the processors that have 47 bits of addresses for programs; where huge pages are larger, less is asked for.
const HUGE_PAGE_BYTES: usize = 2 << 20;
const HUGE_PAGES_MAX: usize = (1 << 47) / HUGE_PAGE_BYTES;

/// A bit for each huge page's worth of addresses that is for ordinary pages: nobody asks the system for that twice.
/// Of these 8 MiB only what is touched takes memory.
static ORDINARY: [AtomicU64; HUGE_PAGES_MAX / 64] = [const { AtomicU64::new(0) }; HUGE_PAGES_MAX / 64];

/// The allocator's own way to get memory and to give it back, and the one that stands in front of it.
struct Hooks {
    own: extent_hooks_t,
    ours: extent_hooks_t,
}

static HOOKS: OnceLock<Hooks> = OnceLock::new();

/// From here on the heap asks for huge pages where it gets memory from the system. A program calls it at its start.
/// Nothing changes where the user has decided otherwise (`thp:` in `_RJEM_MALLOC_CONF`), or where the system has none.
pub fn use_huge_pages() {
    const HOOKS_OF_THE_ARENA: &[u8] = b"arena.0.extent_hooks\0";
    // SAFETY: the name ends with a zero, and the value is a pointer to characters that end with one.
    let by_user = unsafe { raw::read_str(b"opt.thp\0") };
    if !by_user.is_ok_and(|thp| thp.starts_with(b"default")) {
        return;
    }
    // SAFETY: this control gives a pointer to the table of the arena's hooks, which is as valid as the arena, and
    // nobody destroys the one that there is (`narenas:1`).
    let Ok(own) = (unsafe { raw::read::<*mut extent_hooks_t>(HOOKS_OF_THE_ARENA) }) else {
        return;
    };
    if own.is_null() {
        return;
    }
    // SAFETY: see above; nobody writes the table.
    let own = unsafe { *own };
    if own.alloc.is_none() || own.purge_forced.is_none() {
        return;
    }
    let hooks = HOOKS.get_or_init(|| Hooks {
        own,
        ours: extent_hooks_t {
            alloc: Some(alloc),
            purge_forced: Some(purge_forced),
            ..own
        },
    });
    // SAFETY: the table stays for ever and is written by nobody, the allocator included. Its functions do what those do
    // that stood there before, so it does not matter which of them a block of memory has met. When the allocator
    // refuses the table nothing has changed.
    let _ = unsafe { raw::write(HOOKS_OF_THE_ARENA, (&raw const hooks.ours).cast_mut()) };
}

/// Memory from the system, of huge pages where it is large enough.
unsafe extern "C" fn alloc(
    hooks: *mut extent_hooks_t,
    at: *mut c_void,
    bytes: usize,
    alignment: usize,
    zero: *mut bool,
    commit: *mut bool,
    arena: c_uint,
) -> *mut c_void {
    let Some(alloc) = HOOKS.get().and_then(|hooks| hooks.own.alloc) else {
        return null_mut();
    };
    // SAFETY: the allocator's own function, with its own arguments.
    let memory = unsafe { alloc(hooks, at, bytes, alignment, zero, commit, arena) };
    if !memory.is_null() && bytes >= HUGE_PAGE_BYTES {
        // SAFETY: the memory is the allocator's, and advice does not change what is in it. A refusal leaves ordinary
        // pages.
        let _ = unsafe { madvise(memory, bytes, Advice::LinuxHugepage) };
    }
    memory
}

/// Gives `bytes` at `offset` back. Never keeps a huge page whole that has lost a part. True is the allocator's word for
/// a refusal.
unsafe extern "C" fn purge_forced(
    hooks: *mut extent_hooks_t,
    extent: *mut c_void,
    extent_bytes: usize,
    offset: usize,
    bytes: usize,
    arena: c_uint,
) -> bool {
    let Some(purge) = HOOKS.get().and_then(|hooks| hooks.own.purge_forced) else {
        return true;
    };
    let begin = extent.addr() + offset;
    let first = begin / HUGE_PAGE_BYTES;
    let end = (begin + bytes).div_ceil(HUGE_PAGE_BYTES);
    for page in first..end {
        let (word, bit) = (page / 64, 1 << (page % 64));
        if ORDINARY
            .get(word)
            .is_none_or(|word| word.fetch_or(bit, Ordering::Relaxed) & bit == 0)
        {
            // SAFETY: the pages beside the extent may be anybody's, or nobody's: advice does not change what is in
            // memory, and where there is none the system refuses it and nothing has happened.
            let _ = unsafe {
                madvise(
                    without_provenance_mut(page * HUGE_PAGE_BYTES),
                    HUGE_PAGE_BYTES,
                    Advice::LinuxNoHugepage,
                )
            };
        }
    }
    // SAFETY: the allocator's own function, with its own arguments.
    unsafe { purge(hooks, extent, extent_bytes, offset, bytes, arena) }
}
