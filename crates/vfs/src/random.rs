//! Randomness by a handle, so that a seed reproduces a run.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};

/// A source of random bits.
pub trait Random: Send + Sync {
    /// 64 random bits.
    fn next_u64(&self) -> u64;

    /// Fills `buffer`.
    fn fill(&self, buffer: &mut [u8]) {
        for chunk in buffer.chunks_mut(8) {
            chunk.copy_from_slice(&self.next_u64().to_le_bytes()[..chunk.len()]);
        }
    }

    /// Fills `buffer` with what nobody can foresee: salts, nonces, keys. The other methods are only as good as a dice,
    /// each number of theirs gives away all that follow.
    fn fill_secret(&self, buffer: &mut [u8]);
}

/// SplitMix64 (Steele, Lea, Flood, OOPSLA 2014) over a shared counter.
pub struct SeededRandom {
    state: AtomicU64,
}

impl SeededRandom {
    /// The stream of `seed`.
    pub fn new(seed: u64) -> Self {
        Self {
            state: AtomicU64::new(seed),
        }
    }
}

impl Random for SeededRandom {
    fn next_u64(&self) -> u64 {
        const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;
        let mut z = self.state.fetch_add(GOLDEN, Ordering::Relaxed).wrapping_add(GOLDEN);
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Foreseeable, as everything that is seeded.
    fn fill_secret(&self, buffer: &mut [u8]) {
        self.fill(buffer);
    }
}

/// A [`SeededRandom`] seeded by the operating system.
pub struct SystemRandom(SeededRandom);

impl SystemRandom {
    /// A fresh stream. (`RandomState` is seeded from the operating system's entropy.)
    pub fn new() -> Self {
        Self(SeededRandom::new(RandomState::new().build_hasher().finish()))
    }
}

impl Default for SystemRandom {
    fn default() -> Self {
        Self::new()
    }
}

impl Random for SystemRandom {
    fn next_u64(&self) -> u64 {
        self.0.next_u64()
    }

    fn fill_secret(&self, buffer: &mut [u8]) {
        let mut rest = buffer;
        while !rest.is_empty() {
            // A signal may end the call early; no other error is possible for such flags and a buffer of ours.
            let bytes = match rustix::rand::getrandom(&mut *rest, rustix::rand::GetRandomFlags::empty()) {
                Err(rustix::io::Errno::INTR) => 0,
                result => result.expect("the kernel has a random number generator"),
            };
            rest = &mut rest[bytes..];
        }
    }
}
