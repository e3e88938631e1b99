//! Which keys a unit of messages may have: a Bloom filter (B. H. Bloom, *Space/time trade-offs in hash coding
//! with allowable errors*, 1970), kept in a block of its own beside the unit, so that a lookup reads few units
//! in vain.

use crate::bytes_io::Damage;

const VERSION: u8 = 1;
const HEADER_BYTES: usize = 4;
const BITS_PER_KEY: usize = 10;
/// About ln 2 times the bits for a key.
const PROBES: u64 = 6;
/// Units with fewer keys are read instead.
pub(crate) const KEYS_MIN: usize = 32;

/// See the module.
#[derive(Debug)]
pub(crate) struct Filter {
    raw: Vec<u8>,
}

/// A hash of a key, the same on every machine (FNV-1a by words, with a final mix as in splitmix64).
pub(crate) fn hash(key: &[u8]) -> u64 {
    let mut state = 0xcbf2_9ce4_8422_2325_u64 ^ key.len() as u64;
    let mut chunks = key.chunks_exact(8);
    for chunk in &mut chunks {
        let word = u64::from_le_bytes(chunk.try_into().expect("eight bytes"));
        state = (state ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    }
    for byte in chunks.remainder() {
        state = (state ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    state = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    state = (state ^ (state >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    state ^ (state >> 31)
}

impl Filter {
    pub(crate) fn of(hashes: &[u64]) -> Self {
        let bits = (hashes.len() * BITS_PER_KEY).max(64);
        let mut raw = vec![0; HEADER_BYTES + bits.div_ceil(8)];
        raw[0] = VERSION;
        for hash in hashes {
            for bit in probes(*hash, (raw.len() - HEADER_BYTES) * 8) {
                raw[HEADER_BYTES + bit / 8] |= 1 << (bit % 8);
            }
        }
        Self { raw }
    }

    pub(crate) fn decode(raw: Vec<u8>) -> Result<Self, Damage> {
        match raw.get(..HEADER_BYTES) {
            Some([VERSION, 0, 0, 0]) if raw.len() > HEADER_BYTES => Ok(Self { raw }),
            _ => Err("the head of a filter"),
        }
    }

    pub(crate) fn raw(&self) -> &[u8] {
        &self.raw
    }

    /// False when the key is not among them, for sure.
    pub(crate) fn may_have(&self, hash: u64) -> bool {
        let bits = (self.raw.len() - HEADER_BYTES) * 8;
        probes(hash, bits).all(|bit| self.raw[HEADER_BYTES + bit / 8] & (1 << (bit % 8)) != 0)
    }
}

fn probes(hash: u64, bits: usize) -> impl Iterator<Item = usize> {
    // Two halves make all probes (Kirsch & Mitzenmacher, 2006).
    let step = (hash >> 32) | 1;
    (0..PROBES).map(move |probe| (hash.wrapping_add(probe.wrapping_mul(step)) % bits as u64) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_is_found_and_few_others_are() {
        let key = |number: u64| number.to_be_bytes();
        let hashes: Vec<u64> = (0..1000).map(|number| hash(&key(number))).collect();
        let filter = Filter::decode(Filter::of(&hashes).raw().to_vec()).expect("its own bytes");
        assert!((0..1000).all(|number| filter.may_have(hash(&key(number)))));
        let wrong = (1000..11_000)
            .filter(|number| filter.may_have(hash(&key(*number))))
            .count();
        assert!(wrong < 300, "{wrong} of 10,000 others, 1 in 100 expected");
        assert!(Filter::decode(vec![2, 0, 0, 0, 1]).is_err() && Filter::decode(vec![1, 0, 0, 0]).is_err());
    }
}
