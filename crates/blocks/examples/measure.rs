//! Measures appending and reading blocks of 16 KiB on the machine's own disk, without compression and with snappy:
//! `cargo run --release -p blocks --example measure -- <an empty directory>`.

use blocks::{BlockKind, BlockStore, Purpose, ReadScratch, StoreOptions, VolumeId};
use codec::Codec;
use std::path::PathBuf;
use std::sync::Arc;
use vfs::{Clock, Env, RealFs, SystemClock, SystemRandom};

const BLOCKS: usize = 16_384;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = PathBuf::from(std::env::args().nth(1).ok_or("a directory is needed")?);
    let clock = Arc::new(SystemClock::new());
    let env = Env {
        fs: Arc::new(RealFs::new()),
        clock: clock.clone(),
        random: Arc::new(SystemRandom::new()),
    };
    let (store, _) = BlockStore::open(&env, &directory, StoreOptions::default())?;
    let mut raw = vec![0; 16 << 10];
    env.random.fill(&mut raw);
    // Half of it compresses, in short runs, as documents do.
    raw.chunks_exact_mut(64).for_each(|part| part[32..].fill(7));
    let report = |what: &str, codec: Codec, start: std::time::Duration| {
        let each = (clock.monotonic() - start).as_nanos() as f64 / BLOCKS as f64 / 1000.0;
        println!("{codec}: {what}: {each:.2} us for each block");
    };
    let mut scratch = ReadScratch::default();
    let mut wrong = 0;
    for codec in [Codec::None, Codec::Snappy] {
        let mut writer = store.writer(VolumeId::MAIN, Purpose::Later);
        let start = clock.monotonic();
        let addrs = (0..BLOCKS)
            .map(|_| writer.append(BlockKind::Leaf, 1, codec, None, &raw))
            .collect::<Result<Vec<_>, _>>()?;
        writer.flush()?;
        report("append and write", codec, start);
        let start = clock.monotonic();
        for addr in &addrs {
            store.read(VolumeId::MAIN, addr, 1, BlockKind::Leaf, &mut scratch)?;
        }
        report("read one by one", codec, start);
        let start = clock.monotonic();
        store.read_run(VolumeId::MAIN, &addrs, 1, BlockKind::Leaf, &mut scratch, |_, read| {
            wrong += usize::from(read.is_err());
        });
        report("read as a run", codec, start);
    }
    let start = clock.monotonic();
    store.begin_checkpoint();
    store.commit_checkpoint(1, &[])?;
    let commit = clock.monotonic() - start;
    println!("checkpoint: {commit:?}; {wrong} blocks could not be read");
    Ok(())
}
