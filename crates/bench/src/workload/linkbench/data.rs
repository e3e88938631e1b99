//! The data of nodes and links: sizes and bytes as LinkBench's "motif" generator makes them, so that compressors find
//! what they found there.
//!
//! Bytes come in chunks of 128: either fresh random ones or a slice of a fixed buffer, the motif.

use crate::random::Random;

const CHUNK: usize = 128;

/// A generator of one kind of data.
#[derive(Clone, Debug)]
pub struct Payload {
    median: f64,
    max: usize,
    first: u8,
    values: u64,
    uniqueness: f64,
    motif: Vec<u8>,
}

impl Payload {
    /// Links: median 8 bytes, compressible to about 30 %.
    pub fn links(seed: u64) -> Self {
        Self::new(seed ^ 0x6C69_6E6B, 8.0, 255, (32, 100), 0.225, 128)
    }

    /// Nodes: median 128 bytes, compressible to about 60 %.
    pub fn nodes(seed: u64) -> Self {
        Self::new(seed ^ 0x6E6F_6465, 128.0, 1 << 20, (50, 220), 0.63, 512)
    }

    fn new(seed: u64, median: f64, max: usize, (first, last): (u8, u8), uniqueness: f64, motif_bytes: usize) -> Self {
        let mut payload = Self {
            median,
            max,
            first,
            values: u64::from(last - first) + 1,
            uniqueness,
            motif: Vec::new(),
        };
        let mut motif = Vec::with_capacity(motif_bytes);
        payload.fresh(motif_bytes, &mut Random::new(seed), &mut motif);
        payload.motif = motif;
        payload
    }

    fn fresh(&self, count: usize, random: &mut Random, out: &mut Vec<u8>) {
        for _ in 0..count {
            out.push(self.first + random.below(self.values) as u8);
        }
    }

    /// Appends data of a random size.
    pub fn put(&self, random: &mut Random, out: &mut Vec<u8>) {
        let size = (random.log_normal(self.median, 1.0) as usize).min(self.max);
        let mut left = size;
        while left > 0 {
            let chunk = left.min(CHUNK);
            if random.chance(self.uniqueness) {
                self.fresh(chunk, random, out);
            } else {
                let at = random.below(self.motif.len() as u64) as usize;
                out.extend(self.motif.iter().cycle().skip(at).take(chunk));
            }
            left -= chunk;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(payload: &Payload) -> Vec<usize> {
        let mut random = Random::new(5);
        let mut sizes: Vec<usize> = (0..50_000)
            .map(|_| {
                let mut out = Vec::new();
                payload.put(&mut random, &mut out);
                let last = payload.first as u64 + payload.values - 1;
                assert!(
                    out.iter()
                        .all(|byte| *byte >= payload.first && u64::from(*byte) <= last)
                );
                out.len()
            })
            .collect();
        sizes.sort_unstable();
        sizes
    }

    #[test]
    fn sizes_are_log_normal() {
        // Quantiles of exp(N(ln median, 1)), rounded down.
        for (payload, median) in [(Payload::links(1), 8.0), (Payload::nodes(1), 128.0)] {
            let sizes = sizes(&payload);
            for (quantile, z) in [(0.159, -1.0f64), (0.5, 0.0), (0.841, 1.0), (0.977, 2.0)] {
                let found = sizes[(quantile * sizes.len() as f64) as usize] as f64;
                let expected = median * z.exp();
                assert!(
                    (found - expected).abs() <= expected * 0.06 + 1.0,
                    "{quantile}: {found} {expected}"
                );
            }
        }
        assert!(sizes(&Payload::links(1)).last() <= Some(&255));
    }

    #[test]
    fn nodes_are_less_compressible_than_links() {
        let distinct_chunks = |payload: &Payload| {
            let mut random = Random::new(7);
            let mut out = Vec::new();
            while out.len() < 400_000 {
                payload.put(&mut random, &mut out);
            }
            // Fours of bytes that occurred before: what a compressor finds.
            let mut seen = std::collections::HashSet::new();
            let fours = out.windows(4).count();
            out.windows(4)
                .filter(|four| seen.insert(<[u8; 4]>::try_from(*four).expect("four")))
                .count() as f64
                / fours as f64
        };
        let (links, nodes) = (distinct_chunks(&Payload::links(1)), distinct_chunks(&Payload::nodes(1)));
        assert!(links < nodes && nodes > 0.5 && links < 0.5, "{links} {nodes}");
    }
}
