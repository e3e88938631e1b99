//! W6, W7, W7z, W12, W13, W18: updates, alone and beside reads and checkpoints.

use super::bench::{Background, Bench, CLOSED, Picker, Stream, scan_once};
use crate::data::Choice;
use crate::driver::{Limits, Operation, Pace, Phase, drive};
use crate::machine::drop_page_cache;
use crate::spec::RunSpec;
use crate::subject::{Session, Subject};
use anyhow::Result;
use codec::Codec;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// A phase of fixed work may take so many times the time of others before it is cut.
const PATIENCE: f64 = 6.0;

/// W6: half as many updates as rows.
pub fn update_cached(bench: &mut Bench) -> Result<()> {
    let rows = bench.spec.rows;
    let subject = bench.open_loaded(Background::Checkpoints, rows, 0)?;
    bench.warm(&*subject, rows)?;
    update_at_random(bench, &*subject, Choice::Even(rows), rows / 2)
}

/// W7, W7z: a tenth as many updates as rows, which `choice` picks.
pub fn update_larger(bench: &mut Bench, choice: impl Fn(u64) -> Choice) -> Result<()> {
    let rows = bench.spec.large_rows();
    bench.spec.cache_bytes = bench.spec.small_cache_bytes;
    let subject = bench.open_loaded(Background::Checkpoints, rows, 0)?;
    drop_page_cache(&bench.spec.directory, true);
    update_at_random(bench, &*subject, choice(rows), rows / 10)
}

fn update_at_random(bench: &mut Bench, subject: &dyn Subject, choice: Choice, calls: u64) -> Result<()> {
    let spec = bench.spec.clone();
    let limits = Limits {
        seconds: spec.seconds * PATIENCE,
        calls: calls.max(1),
        stop: None,
    };
    let phase = bench.measure(subject, limits, &|stream| updates(&spec, choice, stream))?;
    let threads = spec.threads as u64;
    if phase.calls < calls / threads * threads {
        let note = format!("{} of {calls} updates in {:.0} s", phase.calls, phase.seconds);
        bench.outcome.notes.push(note);
    }
    Ok(())
}

fn updates<'a>(spec: &RunSpec, choice: Choice, stream: Stream) -> Operation<'a> {
    let mut picker = Picker::new(spec, choice, stream);
    Box::new(move |session: &mut dyn Session| picker.update(session))
}

/// W12: everything is dirty when the checkpoint begins. The cache is eight times the data, below WiredTiger's limit for
/// dirty pages.
pub fn compressed_checkpoint(bench: &mut Bench) -> Result<()> {
    bench.spec.codec = Codec::Zlib;
    bench.spec.cache_bytes = bench.spec.volume_mib.max(1) << 23;
    let rows = (bench.spec.volume_mib.max(1) << 20) / (bench.spec.value_bytes as u64 + 8);
    let subject = bench.open(Background::Nothing)?;
    bench.create_tables(&*subject, 0)?;
    bench.load(&*subject, rows, 0)?;
    let spec = bench.spec.clone();
    let clients = |limits| {
        drive(&*subject, 1, limits, Pace::Closed, &|thread| {
            updates(&spec, Choice::Even(rows), Stream { phase: CLOSED, thread })
        })
    };
    let outside = clients(Limits::seconds(spec.seconds))?;
    let done = AtomicBool::new(false);
    let (took, during) = std::thread::scope(|scope| {
        let checkpoint = scope.spawn(|| {
            let start = Instant::now();
            let result = subject.checkpoint();
            done.store(true, Ordering::Relaxed);
            result.map(|()| start.elapsed())
        });
        let until_done = Limits {
            stop: Some(&done),
            ..Limits::seconds(3600.0)
        };
        let during = clients(until_done);
        (checkpoint.join(), during)
    });
    let took = took.map_err(|_| anyhow::anyhow!("the checkpoint panicked"))??;
    let during = during?;
    let outcome = &mut bench.outcome;
    outcome.set("checkpoint_ms", took.as_secs_f64() * 1e3);
    set_rate_and_tail(outcome, "outside", &outside);
    set_rate_and_tail(outcome, "during", &during);
    outcome.set(
        "p99_ratio",
        during.latency_us(99.0) / outside.latency_us(99.0).max(1e-3),
    );
    Ok(())
}

fn set_rate_and_tail(outcome: &mut crate::Outcome, name: &str, phase: &Phase) {
    outcome.set(format!("ops_per_s_{name}"), phase.rate());
    outcome.set(format!("p99_us_{name}"), phase.latency_us(99.0));
    outcome.set(format!("max_us_{name}"), phase.latency_max_us());
}

/// W13: at least two clients.
pub fn half_and_half(bench: &mut Bench) -> Result<()> {
    let rows = bench.spec.rows;
    bench.spec.threads = bench.spec.threads.max(2);
    bench.spec.seconds = bench.spec.minutes * 60.0;
    let subject = bench.open_loaded(Background::Checkpoints, rows, 0)?;
    bench.warm(&*subject, rows)?;
    mix(bench, &*subject, rows)
}

/// W18: everything that fills memory, on data four times the cache: the larger one, next to which what a process needs
/// anyway is little.
pub fn memory(bench: &mut Bench) -> Result<()> {
    bench.spec.small_cache_bytes = bench.spec.cache_bytes;
    let rows = bench.spec.large_rows();
    let subject = bench.open_loaded(Background::Checkpoints, rows, 0)?;
    scan_once(&mut *subject.session()?)?;
    mix(bench, &*subject, rows)?;
    scan_once(&mut *subject.session()?)?;
    Ok(())
}

fn mix(bench: &mut Bench, subject: &dyn Subject, rows: u64) -> Result<()> {
    let spec = bench.spec.clone();
    bench.measure(subject, Limits::seconds(spec.seconds), &|stream| {
        let mut picker = Picker::new(&spec, Choice::Even(rows), stream);
        Box::new(move |session: &mut dyn Session| {
            if picker.coin() {
                picker.update(session)
            } else {
                picker.read(session)
            }
        })
    })?;
    Ok(())
}
