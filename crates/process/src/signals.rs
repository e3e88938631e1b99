//! Signals that ask a program to end.

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// The signals by which this process is asked to end: SIGINT, SIGTERM, and SIGHUP unless it is ignored, as `nohup` has
/// it. Must be called before a handler of SIGHUP is installed, as from then on it is not ignored any more. Where there
/// is no `/proc`, as in some containers, SIGHUP always counts.
///
/// SIGINT counts though it is ignored: so a script without job control starts what it has put behind `&`, which `kill
/// -INT` shall end all the same. That a Ctrl-C for the script ends it as well is the price.
pub fn ending() -> Vec<i32> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mut signals = vec![SIGINT, SIGTERM];
    // Whoever started this program by `nohup` wants it to outlive the terminal.
    if !is_ignored(&status, SIGHUP) {
        signals.push(SIGHUP);
    }
    signals
}

/// Whether a process with this `/proc/PID/status` ignores a signal.
fn is_ignored(status: &str, signal: i32) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| (mask >> (signal - 1)) & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_signals_are_those_of_the_mask() {
        let status = "Name:\ttenond\nSigBlk:\t0000000000000001\nSigIgn:\t0000000000001001\nSigCgt:\t0000000000004002\n";
        assert!(is_ignored(status, SIGHUP));
        assert!(!is_ignored(status, SIGINT) && !is_ignored(status, SIGTERM));
        assert!(!is_ignored("", SIGHUP));
    }
}
