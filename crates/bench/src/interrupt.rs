//! Ctrl-C asks for an orderly end: servers are stopped, and what was measured is kept.

use crate::error::{Doing, Error, Result};
use signal_hook::iterator::Signals;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Signals that come so soon one after the other are one wish: some programs send theirs to a process and to its group.
const TOGETHER: Duration = Duration::from_millis(500);

/// How often the user has asked to stop.
#[derive(Clone, Debug, Default)]
pub struct Interrupt(Arc<AtomicUsize>);

impl Interrupt {
    /// Nobody has asked yet, and no signal will.
    pub fn new() -> Self {
        Self::default()
    }

    /// Listens to the signals that ask this process to end, for as long as it lives.
    pub fn install(&self) -> Result<()> {
        let mut signals = Signals::new(process::ending()).doing("catching signals")?;
        let interrupt = self.clone();
        let listener = std::thread::Builder::new().name("signals".to_owned());
        let listening = listener.spawn(move || {
            let mut asked: Option<Instant> = None;
            for _ in signals.forever() {
                if asked.is_none_or(|at| at.elapsed() >= TOGETHER) {
                    asked = Some(Instant::now());
                    interrupt.ask();
                }
            }
        });
        listening.map(drop).doing("catching signals")
    }

    /// Asks to stop, as a signal does.
    pub fn ask(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }

    /// True when the user wants to stop.
    pub fn asked(&self) -> bool {
        self.times() > 0
    }

    /// How often the user has asked: more than once means at once.
    pub fn times(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }

    /// An error when the user wants to stop.
    pub fn check(&self) -> Result<()> {
        if self.asked() { Err(Error::Interrupted) } else { Ok(()) }
    }
}
