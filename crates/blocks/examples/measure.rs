//! Measures appending and reading blocks of 16 KiB on the machine's own disk, without compression:
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
    let raw = vec![7; 16 << 10];
    let mut writer = store.writer(VolumeId::MAIN, Purpose::Later);
    let report = |what: &str, start: std::time::Duration| {
        let each = (clock.monotonic() - start).as_nanos() as f64 / BLOCKS as f64 / 1000.0;
        println!("{what}: {each:.2} us for each block");
    };
    let start = clock.monotonic();
    let addrs = (0..BLOCKS)
        .map(|_| writer.append(BlockKind::Leaf, 1, Codec::None, None, &raw))
        .collect::<Result<Vec<_>, _>>()?;
    writer.flush()?;
    report("append and write", start);
    let mut scratch = ReadScratch::default();
    let start = clock.monotonic();
    for addr in &addrs {
        store.read(VolumeId::MAIN, addr, 1, BlockKind::Leaf, &mut scratch)?;
    }
    report("read one by one", start);
    let start = clock.monotonic();
    let mut wrong = 0;
    store.read_run(VolumeId::MAIN, &addrs, 1, BlockKind::Leaf, &mut scratch, |_, read| {
        wrong += usize::from(read.is_err());
    });
    report("read as a run", start);
    let start = clock.monotonic();
    store.begin_checkpoint();
    store.commit_checkpoint(1, &[])?;
    let commit = clock.monotonic() - start;
    println!("checkpoint: {commit:?}; {wrong} blocks could not be read");
    Ok(())
}
