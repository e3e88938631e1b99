//! Work at regular intervals on a thread of its own, ended by dropping the handle.

use anyhow::{Context, Result};
use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

#[derive(Default)]
struct Stop {
    stopped: Mutex<bool>,
    changed: Condvar,
}

/// A thread that works once per interval until this is dropped, which waits for work in progress.
pub struct Ticker {
    stop: Arc<Stop>,
    thread: Option<JoinHandle<()>>,
}

impl Ticker {
    /// Starts the thread. The first work comes after one interval; intervals lie between the end of work and the next.
    pub fn start(name: &str, interval: Duration, mut work: impl FnMut() + Send + 'static) -> Result<Self> {
        let stop = Arc::new(Stop::default());
        let seen = stop.clone();
        let thread = std::thread::Builder::new()
            .name(name.into())
            .spawn(move || {
                while !pause(&seen, interval) {
                    work();
                }
            })
            .with_context(|| format!("starting the thread {name}"))?;
        Ok(Self {
            stop,
            thread: Some(thread),
        })
    }
}

/// True when the thread has to end.
fn pause(stop: &Stop, interval: Duration) -> bool {
    let mut stopped = stop.stopped.lock();
    while !*stopped {
        if stop.changed.wait_for(&mut stopped, interval).timed_out() {
            break;
        }
    }
    *stopped
}

impl Drop for Ticker {
    fn drop(&mut self) {
        *self.stop.stopped.lock() = true;
        self.stop.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            // Its panic has been reported where it happened.
            let _ = thread.join();
        }
    }
}
