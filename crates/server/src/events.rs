//! What the main thread waits for: signals, the `shutdown` command, a failure below.

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};
use signal_hook::iterator::Signals;
use signal_hook::low_level;
use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};

/// Something for the main thread to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// End in an orderly way; the text says who asked.
    Stop(String),
    /// End in an orderly way and start anew: other data are to be used.
    Restart,
    /// Rotate the log file.
    RotateLog,
    /// Log or engine stopped for good; the reason has been logged.
    Failed,
}

/// The exit code after a second signal to end.
const EXIT_HARD: i32 = 130;

/// Begins to listen for signals. The second one that asks to end ends the process at once.
pub fn listen() -> io::Result<(Sender<Event>, Receiver<Event>)> {
    let (sender, receiver) = channel();
    let mut signals = Signals::new([SIGHUP, SIGINT, SIGTERM, SIGUSR1])?;
    let to_main = sender.clone();
    std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
        let mut asked = false;
        for signal in signals.forever() {
            let event = match signal {
                SIGUSR1 => Event::RotateLog,
                SIGINT if asked => std::process::exit(EXIT_HARD),
                other => {
                    asked = true;
                    Event::Stop(low_level::signal_name(other).unwrap_or("signal").to_owned())
                }
            };
            if to_main.send(event).is_err() {
                return;
            }
        }
    })?;
    Ok((sender, receiver))
}
