//! Costs of the log on this machine's files: append, group commit, replay.
//!
//! `cargo run --release -p oplog --example log_bench -- [directory] [entry bytes]`

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a benchmark reads the machine's clock and its own CPU time"
)]

use codec::Codec;
use engine::Seq;
use oplog::{Log, LogOptions};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use vfs::{Env, FileSystem, Random, RealFs, SeededRandom, SystemClock, SystemRandom};

type Error = Box<dyn std::error::Error>;

fn env() -> Env {
    Env {
        fs: Arc::new(RealFs::new()),
        clock: Arc::new(SystemClock::new()),
        random: Arc::new(SystemRandom::new()),
    }
}

/// An entry of text-like bytes that compress about threefold.
fn entry(bytes: usize, seed: u64) -> Vec<u8> {
    let random = SeededRandom::new(seed);
    let words: Vec<String> = (0..64).map(|_| format!("{:x}", random.next_u64() % 0xFFFFF)).collect();
    let mut text = Vec::new();
    while text.len() < bytes {
        text.extend_from_slice(words[random.next_u64() as usize % words.len()].as_bytes());
        text.push(b' ');
    }
    text.truncate(bytes);
    text
}

fn open(directory: &Path, codec: Codec) -> Result<Log, Error> {
    RealFs::new().remove_directory_all(directory)?;
    Ok(Log::open(
        &env(),
        LogOptions {
            codec,
            ..LogOptions::new(directory)
        },
        Seq::ZERO,
    )?)
}

/// One thread, nobody waits for durability.
fn appends(directory: &Path, codec: Codec, bytes: usize) -> Result<(), Error> {
    let log = open(directory, codec)?;
    let bodies: Vec<_> = (0..1_024).map(|seed| entry(bytes, seed)).collect();
    let total = 400_000_000 / bytes.max(100) as u64;
    let start = Instant::now();
    let mut appending = Duration::ZERO;
    for n in 0..total {
        if n % 64 == 0 {
            log.wait_for_room()?;
        }
        let before = if n % 1000 == 0 { Some(Instant::now()) } else { None };
        let (head, tail) = bodies[n as usize % 1_024].split_at(bytes.min(40));
        log.append(&[head, tail])?;
        if let Some(before) = before {
            appending += before.elapsed();
        }
    }
    let all = start.elapsed();
    log.flush()?;
    let flushed = start.elapsed();
    let stats = log.stats();
    println!(
        "append {bytes} B, {codec}: {:.0} ns a call in the loop ({:.0} ns sampled), {:.0} MB/s to disk, {} of {} MB, {} syncs",
        all.as_nanos() as f64 / total as f64,
        appending.as_nanos() as f64 / total.div_ceil(1000) as f64,
        stats.entry_bytes as f64 / 1e6 / flushed.as_secs_f64(),
        stats.stored_bytes / 1_000_000,
        stats.raw_bytes / 1_000_000,
        stats.syncs,
    );
    log.close()?;
    let log = Log::open(&env(), LogOptions::new(directory), Seq::ZERO)?;
    let start = Instant::now();
    let mut read = 0;
    for item in log.read(Seq(1))? {
        read += item?.1.len();
    }
    println!(
        "  replay: {:.0} MB/s",
        read as f64 / 1e6 / start.elapsed().as_secs_f64()
    );
    Ok(())
}

/// Many threads that wait for each of their entries.
fn group_commit(directory: &Path, threads: u64, bytes: usize, recycled: bool) -> Result<(), Error> {
    let log = open(directory, Codec::Snappy)?;
    let body = entry(bytes, 7);
    if recycled {
        // Three segments written and given back: what follows overwrites blocks.
        while log.stats().segments < 4 {
            log.append(&[&SeededRandom::new(log.last_seq().0).bytes(1 << 20)])?;
            log.wait_for_room()?;
        }
        log.flush()?;
        log.purge(log.last_seq())?;
        while log.stats().segments_recycled == 0 {
            log.append(&[&SeededRandom::new(log.last_seq().0).bytes(1 << 20)])?;
            log.flush()?;
        }
    }
    let before = log.stats();
    let commits = AtomicU64::new(0);
    let cpu = cpu_time();
    let start = Instant::now();
    let deadline = start + Duration::from_secs(2);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while Instant::now() < deadline {
                    let seq = log.append(&[&body]).expect("append");
                    log.wait_durable(seq).expect("wait");
                    commits.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    let seconds = start.elapsed().as_secs_f64();
    let commits = commits.into_inner() as f64;
    let stats = log.stats();
    let groups = (stats.groups - before.groups) as f64;
    println!(
        "wait_durable, {threads} threads, {bytes} B{}: {:.0} commits/s, {:.1} a group, {:.0} us a sync, {:.1} us CPU a commit",
        if recycled { ", recycled segment" } else { "" },
        commits / seconds,
        commits / groups,
        (stats.sync_us - before.sync_us) as f64 / groups,
        (cpu_time() - cpu).as_micros() as f64 / commits,
    );
    Ok(log.close()?)
}

trait Bytes {
    fn bytes(&self, count: usize) -> Vec<u8>;
}

impl Bytes for SeededRandom {
    fn bytes(&self, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        self.fill(&mut bytes);
        bytes
    }
}

/// CPU time of this process, from `/proc/self/stat` at 100 ticks a second.
fn cpu_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |index: usize| {
        fields
            .get(index)
            .and_then(|field| field.parse::<u64>().ok())
            .unwrap_or(0)
    };
    Duration::from_millis(10 * (ticks(11) + ticks(12)))
}

fn main() -> Result<(), Error> {
    let mut arguments = std::env::args().skip(1);
    let root = arguments
        .next()
        .map_or_else(|| std::env::temp_dir().join("tenon-log-bench"), PathBuf::from);
    let bytes = arguments.next().map_or(Ok(1_100), |argument| argument.parse())?;
    for codec in [Codec::None, Codec::Snappy, Codec::Lz4, Codec::Zstd] {
        appends(&root, codec, bytes)?;
    }
    appends(&root, Codec::Snappy, 100)?;
    for recycled in [false, true] {
        for threads in [1, 4, 16, 64] {
            group_commit(&root, threads, bytes, recycled)?;
        }
    }
    RealFs::new().remove_directory_all(&root)?;
    Ok(())
}
