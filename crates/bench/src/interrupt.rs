//! Ctrl-C asks for an orderly end: servers are stopped, and what was measured is kept.

use crate::error::{Doing, Error, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether the user has asked to stop.
#[derive(Clone, Debug, Default)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Nobody has asked yet, and no signal will.
    pub fn new() -> Self {
        Self::default()
    }

    /// Listens to SIGINT, SIGTERM and SIGHUP of this process.
    pub fn install(&self) -> Result<()> {
        use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            signal_hook::flag::register(signal, Arc::clone(&self.0)).doing("catching signals")?;
        }
        Ok(())
    }

    /// Asks to stop, as a signal does.
    pub fn ask(&self) {
        self.0.store(true, Ordering::SeqCst);
    }

    /// True when the user wants to stop.
    pub fn asked(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }

    /// An error when the user wants to stop.
    pub fn check(&self) -> Result<()> {
        if self.asked() { Err(Error::Interrupted) } else { Ok(()) }
    }
}
