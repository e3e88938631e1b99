//! What sealing and opening cost: `cargo run --release -p crypt --example seal_cost`.
#![allow(clippy::disallowed_methods, reason = "a measurement reads the clock")]

use crypt::Keys;
use std::hint::black_box;
use std::time::Instant;

const ROUNDS: usize = 50_000;

fn main() {
    let keys = Keys::ephemeral();
    let context = [7; 72];
    println!("{:>8} {:>12} {:>12}", "bytes", "seal ns", "open ns");
    for bytes in [0, 256, 1024, 4096, 8192, 32_768] {
        let mut text = vec![1; bytes];
        let rounds = if bytes > 4096 { ROUNDS / 5 } else { ROUNDS };
        let begun = Instant::now();
        for _ in 0..rounds {
            black_box(keys.seal(&context, black_box(&mut text)));
        }
        let sealing = begun.elapsed();
        let seal = keys.seal(&context, &mut text);
        let begun = Instant::now();
        let mut scratch = text.clone();
        for _ in 0..rounds {
            scratch.copy_from_slice(&text);
            keys.open(&context, &seal, black_box(&mut scratch))
                .expect("it was sealed here");
        }
        let each = |time: std::time::Duration| time.as_nanos() as usize / rounds;
        println!("{bytes:>8} {:>12} {:>12}", each(sealing), each(begun.elapsed()));
    }
}
