//! What the main thread waits for: signals, the `shutdown` command, a failure below.

use bson::doc;
use commands::logger::{Logger, id};
use parking_lot::Mutex;
use signal_hook::consts::{SIGINT, SIGUSR1};
use signal_hook::iterator::Signals;
use signal_hook::low_level;
use std::io;
use std::sync::Arc;
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

/// A signal that asked the server to end before it had started.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct AskedToEnd(String);

/// Whether the log is being replayed: for as long, the main thread hears nothing, nobody is served, and the process may
/// end at any moment, as a crash would end it.
#[derive(Clone, Default)]
pub struct Recovering(Arc<Mutex<Start>>);

#[derive(Default)]
struct Start {
    is_recovering: bool,
    /// The first signal that has asked to end.
    asked: Option<String>,
}

impl Recovering {
    /// Says so. Does not return from a process that is ending for that reason, or that has been asked to end.
    pub fn set(&self, is_recovering: bool, logger: &Logger) {
        let mut start = self.0.lock();
        if let Some(signal) = start.asked.as_ref().filter(|_| is_recovering) {
            end_recovery(logger, signal);
        }
        start.is_recovering = is_recovering;
    }

    /// An error when a signal has asked to end: the main thread hears of it only when clients are served.
    pub fn check(&self) -> Result<(), AskedToEnd> {
        match &self.0.lock().asked {
            Some(signal) => Err(AskedToEnd(signal.clone())),
            None => Ok(()),
        }
    }
}

/// Begins to listen for signals. The second one that asks to end ends the process at once, and so does the first
/// while the log is being replayed.
pub fn listen(logger: Arc<Logger>, recovering: Recovering) -> io::Result<(Sender<Event>, Receiver<Event>)> {
    let (sender, receiver) = channel();
    let mut signals = Signals::new(process::ending().into_iter().chain([SIGUSR1]))?;
    let to_main = sender.clone();
    std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
        let mut asked = false;
        for signal in signals.forever() {
            let event = match signal {
                SIGUSR1 => Event::RotateLog,
                SIGINT if asked => {
                    logger.flush();
                    std::process::exit(EXIT_HARD)
                }
                other => {
                    asked = true;
                    let name = low_level::signal_name(other).unwrap_or("signal");
                    // Held to the end: nobody is served behind it.
                    let mut start = recovering.0.lock();
                    if start.is_recovering {
                        end_recovery(&logger, name);
                    }
                    if start.asked.is_none() {
                        start.asked = Some(name.to_owned());
                    }
                    drop(start);
                    Event::Stop(name.to_owned())
                }
            };
            if to_main.send(event).is_err() {
                return;
            }
        }
    })?;
    Ok((sender, receiver))
}

/// Ends the process in the middle of a recovery, which the next start begins anew. The lock file stays as after a
/// crash.
fn end_recovery(logger: &Logger, signal: &str) -> ! {
    let message = "Shutting down during recovery, which the next start begins anew";
    logger.log(id::ORDERLY_SHUTDOWN, "signals", message, doc! { "reason": signal });
    logger.log(id::SHUTTING_DOWN, "signals", "Shutting down", doc! { "exitCode": 0 });
    logger.flush();
    std::process::exit(0)
}

/// Logs the first failure of log or engine and has the main thread end the process.
pub(crate) fn failure_handler(logger: Arc<Logger>, events: Sender<Event>) -> Arc<dyn Fn(&str) + Send + Sync> {
    let once = std::sync::Once::new();
    Arc::new(move |reason| {
        once.call_once(|| {
            let attributes = doc! { "reason": reason };
            logger.log(
                id::WRITING_STOPPED,
                "storage",
                "Writing has stopped for good, terminating",
                attributes,
            );
            let _ = events.send(Event::Failed);
        });
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// It was heeded when recovery was over and clients were served.
    #[test]
    fn a_start_that_is_told_to_end_knows_it() {
        let recovering = Recovering::default();
        assert!(recovering.check().is_ok());
        recovering.0.lock().asked = Some("SIGTERM".to_owned());
        assert!(recovering.check().is_err_and(|asked| asked.to_string() == "SIGTERM"));
    }
}
