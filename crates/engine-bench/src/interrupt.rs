//! Ctrl-C ends the run that is under way, and the session behind it, which then removes what it has made.

use anyhow::{Context, Result};
use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process};
use signal_hook::iterator::Signals;
use std::process::Child;
use std::sync::Arc;

#[derive(Debug, Default)]
struct State {
    asked: bool,
    /// The process of the run.
    run: Option<Pid>,
}

impl State {
    fn end_run(&self) {
        if let Some(run) = self.run.filter(|_| self.asked) {
            // It may have ended.
            let _ = kill_process(run, Signal::KILL);
        }
    }
}

/// Whether the user has asked to stop.
#[derive(Clone, Debug, Default)]
pub struct Interrupt(Arc<Mutex<State>>);

impl Interrupt {
    /// Listens to the signals that ask this process to end, for as long as it lives.
    pub fn install() -> Result<Self> {
        let interrupt = Self::default();
        let mut signals = Signals::new(process::ending()).context("catching signals")?;
        let listener = interrupt.clone();
        std::thread::Builder::new()
            .name("signals".to_owned())
            .spawn(move || signals.forever().for_each(|_| listener.ask()))
            .context("catching signals")?;
        Ok(interrupt)
    }

    fn ask(&self) {
        let mut state = self.0.lock();
        state.asked = true;
        state.end_run();
    }

    /// True when the user wants to stop.
    pub fn asked(&self) -> bool {
        self.0.lock().asked
    }

    /// Kills a process when the user wants to stop, until the result is dropped.
    pub fn watch(&self, run: &Child) -> Watched<'_> {
        let mut state = self.0.lock();
        state.run = Some(Pid::from_child(run));
        state.end_run();
        Watched(self)
    }
}

/// See [`Interrupt::watch`].
#[derive(Debug)]
pub struct Watched<'i>(&'i Interrupt);

impl Drop for Watched<'_> {
    fn drop(&mut self) {
        self.0.0.lock().run = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;

    /// A session that was stopped left gigabytes in the folder for temporary files, and its run went on.
    #[test]
    fn a_run_ends_with_the_wish_to_stop() {
        for is_early in [false, true] {
            let interrupt = Interrupt::default();
            if is_early {
                interrupt.ask();
            }
            let mut run = Command::new("/bin/sleep").arg("600").spawn().unwrap();
            let watched = interrupt.watch(&run);
            if !is_early {
                interrupt.ask();
            }
            assert_eq!(run.wait().unwrap().signal(), Some(Signal::KILL.as_raw()));
            drop(watched);
            assert!(interrupt.asked() && interrupt.0.lock().run.is_none());
        }
    }
}
