//! The settings have reached the allocator, and its figures tell the truth.

use tikv_jemalloc_ctl::{arenas, opt, raw};

#[test]
fn settings_are_in_force() {
    assert!(allocator::settings().contains("narenas:1,"));
    if std::env::var_os("_RJEM_MALLOC_CONF").is_some() {
        return;
    }
    assert!(opt::background_thread::read().expect("a setting"), "background threads");
    // One for all threads, and one that jemalloc makes for huge blocks when they come.
    let arenas = arenas::narenas::read().expect("a figure");
    assert!((1..=2).contains(&arenas), "{arenas} arenas");
}

#[test]
fn figures_follow_what_is_allocated() {
    const BLOCK: usize = 4096;
    const BLOCKS: usize = 16 * 1024;
    let before = allocator::heap_use();
    let mut blocks: Vec<Vec<u8>> = (0..BLOCKS).map(|_| vec![1; BLOCK]).collect();
    let full = allocator::heap_use();
    assert!(
        full.used >= before.used + (BLOCK * BLOCKS) as u64,
        "{before:?} {full:?}"
    );
    assert!(full.active >= full.used && full.resident >= full.active, "{full:?}");
    // One in sixteen stays: memory is held and not used.
    let mut at = 0;
    blocks.retain(|_| {
        at += 1;
        at % 16 == 0
    });
    let sparse = allocator::heap_use();
    assert!(sparse.used < full.used - (BLOCK * BLOCKS / 2) as u64, "{sparse:?}");
    assert_eq!(blocks.len(), BLOCKS / 16);
    // What is freed together makes whole pages, which nobody but `give_back` gives back from here on. It leaves them
    // where another thread is at it already, with those freed before. SAFETY: this control takes a `ssize_t`,
    // milliseconds, and -1 means never.
    unsafe { raw::write(b"arena.0.dirty_decay_ms\0", -1_isize) }.expect("a setting");
    let whole: Vec<Vec<u8>> = (0..BLOCKS / 4).map(|_| vec![1; 16 * BLOCK]).collect();
    drop(whole);
    let idle = || allocator::heap_use().idle();
    let much = (BLOCK * BLOCKS) as u64;
    assert!(idle() > much, "{} bytes were kept for later", idle());
    for _ in 0..100_000 {
        allocator::give_back();
        if idle() < much / 2 {
            return;
        }
        std::thread::yield_now();
    }
    panic!("{} bytes are free and not given back", idle());
}
