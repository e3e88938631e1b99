//! The data keys of a directory, and what is sealed with them.

use crate::xaes::{KEY_BYTES, NONCE_BYTES, TAG_BYTES, Xaes};
use ring::rand::{SecureRandom, SystemRandom};
use std::fmt;

/// Bytes of a [`Seal`] on disk: generation (4, little endian), nonce (24), tag (16).
pub const SEAL_BYTES: usize = 4 + NONCE_BYTES + TAG_BYTES;

/// What stands beside a sealed text.
pub type Seal = [u8; SEAL_BYTES];

/// Why a text does not open.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SealError {
    /// It is not what was sealed, not where it was sealed, or sealed by another's key.
    #[error("the tag does not fit the text, its place and its key")]
    Tag,
    /// The key store does not have that generation: it is older than the text, or another's.
    #[error("the key of generation {0} is not in the key store")]
    Generation(u32),
}

/// The generations of a data key: the newest seals, and each opens what it has sealed.
pub struct Keys {
    /// By rising generation; not empty.
    generations: Vec<(u32, Xaes)>,
    /// Nonces come from the operating system alone: a stream that is reproduced, as a simulator's is, would repeat
    /// them.
    random: SystemRandom,
}

/// Fills a buffer with what nobody can foresee.
pub(crate) fn fill_random(random: &SystemRandom, buffer: &mut [u8]) {
    random.fill(buffer).expect("the kernel has a random number generator");
}

impl Keys {
    /// `keys` is not empty, and its generations rise.
    pub(crate) fn new<'k>(keys: impl Iterator<Item = (u32, &'k [u8; KEY_BYTES])>) -> Self {
        let generations: Vec<_> = keys.map(|(generation, key)| (generation, Xaes::new(key))).collect();
        assert!(!generations.is_empty(), "something seals");
        assert!(generations.is_sorted_by(|left, right| left.0 < right.0), "they rise");
        Self {
            generations,
            random: SystemRandom::new(),
        }
    }

    /// Keys that nobody else has and that go with the process.
    pub fn ephemeral() -> Self {
        let mut key = zeroize::Zeroizing::new([0; KEY_BYTES]);
        fill_random(&SystemRandom::new(), &mut *key);
        Self::new([(1, &*key)].into_iter())
    }

    /// The generation that seals.
    pub fn generation(&self) -> u32 {
        self.newest().0
    }

    fn newest(&self) -> &(u32, Xaes) {
        self.generations.last().expect("something seals")
    }

    /// Encrypts `text` in place and returns its seal. `context` says what it is and where it stands, and is not kept.
    /// Cost: a call of the system, a key schedule and the text: about a microsecond and then gigabytes in a second.
    pub fn seal(&self, context: &[u8], text: &mut [u8]) -> Seal {
        let (generation, key) = self.newest();
        let mut nonce = [0; NONCE_BYTES];
        fill_random(&self.random, &mut nonce);
        let tag = key.seal(&nonce, context, text);
        let mut seal = [0; SEAL_BYTES];
        seal[..4].copy_from_slice(&generation.to_le_bytes());
        seal[4..4 + NONCE_BYTES].copy_from_slice(&nonce);
        seal[4 + NONCE_BYTES..].copy_from_slice(&tag);
        seal
    }

    /// Decrypts in place what was sealed with this context. After an error the text means nothing.
    pub fn open(&self, context: &[u8], seal: &Seal, text: &mut [u8]) -> Result<(), SealError> {
        let (generation, rest) = seal.split_first_chunk::<4>().expect("a seal is longer");
        let (nonce, tag) = rest.split_first_chunk::<NONCE_BYTES>().expect("a seal is longer");
        let generation = u32::from_le_bytes(*generation);
        let found = self.generations.binary_search_by_key(&generation, |known| known.0);
        let Ok(position) = found else {
            return Err(SealError::Generation(generation));
        };
        let tag = tag.try_into().expect("the rest of a seal is a tag");
        match self.generations[position].1.open(nonce, context, tag, text) {
            true => Ok(()),
            false => Err(SealError::Tag),
        }
    }
}

/// Never the keys.
impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Keys(generation {})", self.generation())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn what_is_sealed_opens_where_it_was_sealed_only() {
        let keys = Keys::ephemeral();
        let mut text = *b"a secret of some length";
        let seal = keys.seal(b"place 1", &mut text);
        assert_ne!(&text, b"a secret of some length");
        let sealed = text;
        assert_eq!(keys.open(b"place 2", &seal, &mut text.clone()), Err(SealError::Tag));
        for at in 0..SEAL_BYTES {
            let mut other = seal;
            other[at] ^= 0x10;
            let expected = match at {
                0..4 => SealError::Generation(u32::from_le_bytes([other[0], other[1], other[2], other[3]])),
                _ => SealError::Tag,
            };
            assert_eq!(keys.open(b"place 1", &other, &mut text.clone()), Err(expected));
        }
        for at in 0..text.len() {
            let mut other = sealed;
            other[at] ^= 1;
            assert_eq!(keys.open(b"place 1", &seal, &mut other), Err(SealError::Tag));
        }
        assert_eq!(
            Keys::ephemeral().open(b"place 1", &seal, &mut text.clone()),
            Err(SealError::Tag)
        );
        keys.open(b"place 1", &seal, &mut text).expect("opens");
        assert_eq!(&text, b"a secret of some length");
    }

    /// Two servers that begin alike, as after a snapshot was restored twice, must not share a nonce.
    #[test]
    fn no_nonce_comes_twice_whoever_draws_it() {
        let key = [9; KEY_BYTES];
        let mut nonces = HashSet::new();
        for _ in 0..50 {
            let keys = Keys::new([(1, &key)].into_iter());
            for _ in 0..200 {
                let seal = keys.seal(b"the same place", &mut [0; 8]);
                assert!(nonces.insert(seal[4..4 + NONCE_BYTES].to_vec()));
            }
        }
        // In the half that makes the key, and in the other.
        let halves = |range: std::ops::Range<usize>| nonces.iter().map(move |nonce| nonce[range.clone()].to_vec());
        assert_eq!(halves(0..12).collect::<HashSet<_>>().len(), nonces.len());
        assert_eq!(halves(12..24).collect::<HashSet<_>>().len(), nonces.len());
    }

    #[test]
    fn older_generations_open_and_the_newest_seals() {
        let (old, new) = ([1; KEY_BYTES], [2; KEY_BYTES]);
        let first = Keys::new([(1, &old)].into_iter());
        let both = Keys::new([(1, &old), (2, &new)].into_iter());
        let mut text = *b"old";
        let seal = first.seal(b"c", &mut text);
        both.open(b"c", &seal, &mut text).expect("the old one opens");
        let seal = both.seal(b"c", &mut text);
        assert_eq!(both.generation(), 2);
        assert_eq!(first.open(b"c", &seal, &mut text), Err(SealError::Generation(2)));
    }

    #[test]
    fn keys_are_not_shown() {
        assert_eq!(format!("{:?}", Keys::ephemeral()), "Keys(generation 1)");
    }
}
