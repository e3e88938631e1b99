//! Fresh memory is of huge pages, and what is given back does not stay in one.

const BLOCK: usize = 64 << 10;
const BLOCKS: usize = 2048;

/// A figure of this process's memory, in bytes; 0 where the system has none.
fn figure(name: &str) -> usize {
    let rollup = std::fs::read_to_string("/proc/self/smaps_rollup").unwrap_or_default();
    let line = rollup.lines().find(|line| line.starts_with(name));
    let kib = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<usize>().ok());
    kib.unwrap_or(0) << 10
}

#[test]
fn fresh_memory_is_of_huge_pages_and_given_back_in_small_ones() {
    allocator::use_huge_pages();
    let mode = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default();
    let by_user = std::env::var_os("_RJEM_MALLOC_CONF").is_some();
    let mut blocks: Vec<Vec<u8>> = (0..BLOCKS).map(|block| vec![block as u8; BLOCK]).collect();
    let full = figure("Rss:");
    if !by_user && (mode.contains("[madvise]") || mode.contains("[always]")) {
        // Where the system has no huge page free it gives small ones: a few it has.
        assert!(figure("AnonHugePages:") > 0, "no huge page of {full} bytes");
    }
    // Each huge page keeps some of its blocks.
    let mut at = 0;
    blocks.retain(|_| {
        at += 1;
        at % 4 == 0
    });
    for _ in 0..100_000 {
        allocator::give_back();
        if figure("Rss:") < full - BLOCK * BLOCKS / 2 {
            let kept = blocks.iter().enumerate();
            assert!(kept.into_iter().all(|(place, block)| {
                let filled_with = (4 * place + 3) as u8;
                block.iter().all(|byte| *byte == filled_with)
            }));
            return;
        }
        std::thread::yield_now();
    }
    panic!("{} bytes of {full} are still there", figure("Rss:"));
}
