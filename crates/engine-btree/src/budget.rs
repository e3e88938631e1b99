//! What memory the engine takes, and how much it may take.

/// What the allocator (mimalloc) really hands out for `bytes`: steps of 16 bytes up to 128, then four sizes per doubling up
/// to 64 KiB, then whole pages.
pub(crate) fn good_size(bytes: usize) -> usize {
    const STEP_SMALL: usize = 16;
    const SMALL_MAX: usize = 128;
    const CLASSES_MAX: usize = 64 * 1024;
    const PAGE: usize = 4096;
    match bytes {
        0 => 0,
        1..=SMALL_MAX => bytes.next_multiple_of(STEP_SMALL),
        _ if bytes <= CLASSES_MAX => bytes.next_multiple_of(bytes.next_power_of_two() / 8),
        _ => bytes.saturating_add(PAGE - 1) / PAGE * PAGE,
    }
}
