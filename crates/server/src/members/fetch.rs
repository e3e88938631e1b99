//! Answers of a copy's source, fetched ahead: while one is being taken in, the next one is on its way. A connection
//! that breaks is made anew, and the copy goes on where it was: the source keeps its state for a while.

use super::Members;
use super::link::{CallError, Link};
use bson::doc;
use bson::raw::{RawDocument, RawDocumentBuf};
use commands::logger::id;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// How long the source may take for an answer.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// How long the answer to one question is tried for once the connection has broken.
const LOOKED_FOR: Duration = Duration::from_secs(120);
const PAUSE: Duration = Duration::from_millis(200);

/// What is asked, and how the answer is read.
pub trait Exchange: Send + 'static {
    /// A place in the copy.
    type Question: Clone + PartialEq + Send;
    /// What is there.
    type Answer: Send;

    /// The command.
    fn ask(&self, question: &Self::Question) -> RawDocumentBuf;

    /// The reply.
    ///
    /// # Errors
    /// A sentence: it is malformed.
    fn read(&self, reply: &RawDocument) -> Result<Self::Answer, String>;
}

/// Asks a copy's source on a thread of its own, over a connection of its own.
pub struct Fetcher<E: Exchange> {
    channels: Option<Channels<E>>,
    thread: Option<JoinHandle<()>>,
    /// What was asked for ahead.
    ahead: Option<E::Question>,
}

struct Channels<E: Exchange> {
    asked: SyncSender<E::Question>,
    answers: Receiver<Result<E::Answer, String>>,
}

fn gone<T>() -> Result<T, String> {
    Err("the source is not asked any more".to_owned())
}

impl<E: Exchange> Fetcher<E> {
    /// Connects to the source.
    ///
    /// # Errors
    /// A sentence.
    pub fn start(members: &Arc<Members>, host: &str, exchange: E) -> Result<Self, String> {
        let link = members.dialer.open(host, PATIENCE)?;
        let (asked, wanted) = sync_channel(1);
        let (answer, answers) = sync_channel(1);
        let mut asking = Asking {
            members: members.clone(),
            host: host.to_owned(),
            link,
            exchange,
        };
        let thread = thread::Builder::new().name("copy-fetch".to_owned());
        // It ends with the channels.
        let started = thread.spawn(move || {
            while let Ok(question) = wanted.recv() {
                if answer.send(asking.fetch(&question)).is_err() {
                    break;
                }
            }
        });
        let thread = started.map_err(|error| format!("no thread for the copy: {error}"))?;
        Ok(Self {
            channels: Some(Channels { asked, answers }),
            thread: Some(thread),
            ahead: None,
        })
    }

    /// The answer to a question, and asks the one that `then` makes of it meanwhile.
    ///
    /// # Errors
    /// A sentence: the source is gone, or says something else.
    pub fn fetch(
        &mut self,
        question: E::Question,
        then: impl FnOnce(&E::Answer) -> Option<E::Question>,
    ) -> Result<E::Answer, String> {
        if self.ahead.as_ref() != Some(&question) {
            if self.ahead.is_some() {
                // Of what is left early nothing more is needed.
                let _ = self.take();
            }
            self.ask(question)?;
        }
        let answer = self.take()?;
        if let Some(next) = then(&answer) {
            self.ask(next)?;
        }
        Ok(answer)
    }

    fn ask(&mut self, question: E::Question) -> Result<(), String> {
        self.ahead = Some(question.clone());
        let channels = self.channels.as_ref();
        channels.map_or_else(gone, |channels| channels.asked.send(question).or_else(|_| gone()))
    }

    fn take(&mut self) -> Result<E::Answer, String> {
        self.ahead = None;
        let channels = self.channels.as_ref();
        channels.map_or_else(gone, |channels| channels.answers.recv().unwrap_or_else(|_| gone()))
    }
}

impl<E: Exchange> Drop for Fetcher<E> {
    /// Waits for the thread: it has the server, which is about to start anew.
    fn drop(&mut self) {
        self.channels = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The thread's part.
struct Asking<E> {
    members: Arc<Members>,
    host: String,
    link: Link,
    exchange: E,
}

impl<E: Exchange> Asking<E> {
    fn fetch(&mut self, question: &E::Question) -> Result<E::Answer, String> {
        let question = self.exchange.ask(question);
        let clock = self.members.server.env.clock.clone();
        let mut until = None;
        loop {
            self.members.check_copy()?;
            match self.link.call(&question) {
                Ok(reply) => return self.exchange.read(&reply),
                Err(CallError::Refused(reason)) => return Err(reason),
                Err(CallError::Broken(reason)) => {
                    let until = *until.get_or_insert_with(|| clock.monotonic() + LOOKED_FOR);
                    self.find_again(reason, until)?;
                }
            }
        }
    }

    fn find_again(&mut self, mut reason: String, until: Duration) -> Result<(), String> {
        let server = &self.members.server;
        while server.env.clock.monotonic() < until {
            self.members.check_copy()?;
            match self.members.dialer.open(&self.host, PATIENCE) {
                Ok(link) => {
                    self.link = link;
                    let attributes = doc! { "source": &self.host, "reason": reason };
                    let message = "Initial sync goes on over another connection";
                    server
                        .logger
                        .log(id::COPY_RECONNECTED, "initial-sync", message, attributes);
                    return Ok(());
                }
                Err(failure) => reason = failure,
            }
            #[expect(clippy::disallowed_methods, reason = "there is nothing to be woken by")]
            thread::sleep(PAUSE);
        }
        Err(reason)
    }
}
