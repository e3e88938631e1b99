//! Whether a thread gets to run: it notes each turn of its loop, another one asks for the longest time between two.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The turns of one thread.
#[derive(Debug)]
pub struct Turns {
    made: Instant,
    /// The last one, in milliseconds since this was made; 0 before the first.
    last_ms: AtomicU64,
    longest_ms: AtomicU64,
}

impl Turns {
    /// Of a thread that has had none.
    pub fn new() -> Self {
        Self {
            made: Instant::now(),
            last_ms: AtomicU64::new(0),
            longest_ms: AtomicU64::new(0),
        }
    }

    fn now_ms(&self) -> u64 {
        self.made.elapsed().as_millis() as u64 + 1
    }

    /// The thread runs. Only it calls this.
    pub fn note(&self) {
        let now = self.now_ms();
        let last = self.last_ms.load(Ordering::Relaxed);
        self.last_ms.store(now, Ordering::Relaxed);
        if last > 0 && now > last {
            self.longest_ms.fetch_max(now - last, Ordering::Relaxed);
        }
    }

    /// The longest time between two turns since this was asked before; one that lasts counts up to now.
    pub fn longest_halt(&self) -> Duration {
        let lasting = match self.last_ms.load(Ordering::Relaxed) {
            0 => 0,
            last => self.now_ms().saturating_sub(last),
        };
        let longest = self.longest_ms.swap(0, Ordering::Relaxed);
        Duration::from_millis(longest.max(lasting))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_halt_is_seen_while_it_lasts_and_once_it_is_over() {
        let turns = Turns::new();
        std::thread::sleep(Duration::from_millis(30));
        assert_eq!(turns.longest_halt(), Duration::ZERO, "no turn yet");
        turns.note();
        std::thread::sleep(Duration::from_millis(30));
        assert!(turns.longest_halt() >= Duration::from_millis(25));
        turns.note();
        assert!(turns.longest_halt() >= Duration::from_millis(25));
    }
}
