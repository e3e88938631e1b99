//! The memory allocator of Tenon's programs: jemalloc, set up so that freed memory is used again soon, by whichever
//! thread.
//!
//! A program takes it by `use allocator as _;`, or by [`use_huge_pages`]. What C libraries allocate is not its
//! business. A program's user can change settings by the environment variable `_RJEM_MALLOC_CONF`. Decision 6 has the
//! measurements.

mod huge_pages;

pub use huge_pages::use_huge_pages;

use std::ffi::CStr;
use tikv_jemalloc_ctl::{epoch, stats};
use tikv_jemallocator::Jemalloc;

#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

/// - `narenas:1`: pages are loaded by one thread and dropped by another, and what is dropped has to serve the next
///   load, whoever does it. Small objects come from each thread's cache; only what that lacks takes a lock.
/// - `dirty_decay_ms`, `muzzy_decay_ms`, `background_thread`: what nobody has used for a while goes back to the system,
///   even if nobody allocates.
/// - `cache_oblivious:false`: without it a page more for every block of 16 KiB and longer.
const SETTINGS: &[u8; 103] =
    b"narenas:1,dirty_decay_ms:200,muzzy_decay_ms:0,background_thread:true,cache_oblivious:false,abort:false\0";

// SAFETY: jemalloc looks for a variable of this name, a pointer to characters that end with a zero.
#[unsafe(export_name = "_rjem_malloc_conf")]
static SETTINGS_SYMBOL: &[u8; 103] = SETTINGS;

/// The settings of this process, in jemalloc's notation. That somebody refers to them also makes the linker keep them.
pub fn settings() -> &'static str {
    std::str::from_utf8(&SETTINGS_SYMBOL[..SETTINGS_SYMBOL.len() - 1]).unwrap_or_default()
}

/// What the heap takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeapUse {
    /// Bytes in use, as the allocator rounds them.
    pub used: u64,
    /// Bytes of pages of which something is in use.
    pub active: u64,
    /// Bytes of memory, freed pages that have not gone back to the system included.
    pub resident: u64,
}

impl HeapUse {
    /// Bytes that are held and of which nothing is in use.
    pub fn idle(&self) -> u64 {
        self.resident.saturating_sub(self.active)
    }
}

/// The heap now. Zeros should the allocator not tell. Takes some ten microseconds.
pub fn heap_use() -> HeapUse {
    // The figures are as of the last change of the epoch.
    let told = epoch::advance().and_then(|_| {
        Ok(HeapUse {
            used: stats::allocated::read()? as u64,
            active: stats::active::read()? as u64,
            resident: stats::resident::read()? as u64,
        })
    });
    told.unwrap_or_default()
}

/// Gives all freed pages back to the system at once, instead of when nobody has used them for a while. Not where
/// another thread is at it just now: then those that it has not come to stay for a while.
pub fn give_back() {
    // "All arenas", in jemalloc's notation (`MALLCTL_ARENAS_ALL`).
    const PURGE: &CStr = c"arena.4096.purge";
    let nothing = std::ptr::null_mut();
    // SAFETY: the name ends with a zero; this control reads and writes nothing, which is what the null pointers tell.
    // When it refuses, nothing has happened, and there is nothing to be done about it.
    let _ = unsafe { tikv_jemalloc_sys::mallctl(PURGE.as_ptr(), nothing, std::ptr::null_mut(), nothing, 0) };
}
