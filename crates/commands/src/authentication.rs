//! Who a connection has proven to be, and how far it is in proving it.

use crate::rights::Grant;
use auth::{Exchange, Mechanism};
use std::sync::Arc;

/// The part of a client that authentication is about.
#[derive(Default)]
pub struct Authentication {
    /// The last conversation's number.
    pub conversations: i32,
    /// The conversation under way.
    pub conversation: Option<Conversation>,
    /// Whom the last one proved.
    pub user: Option<Identity>,
    /// What that user may do, as far as it was worked out already.
    pub grant: Option<Arc<Grant>>,
}

/// A user at the time of the proof.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The name.
    pub user: String,
    /// The database it is defined on.
    pub database: String,
    /// `userId`: a user who is dropped and made again is another one.
    pub id: Option<[u8; 16]>,
}

/// A SASL conversation.
pub struct Conversation {
    /// What it is about.
    pub mechanism: Mechanism,
    /// Whom it is to prove.
    pub claimed: Identity,
    /// It began in `hello`.
    pub is_speculative: bool,
    /// `options.skipEmptyExchange`: the client takes the server's last message as the end.
    pub skip_empty_exchange: bool,
    /// How far it is.
    pub step: Step,
}

/// What the client says next.
pub enum Step {
    /// Its proof.
    Proof(Box<Exchange>),
    /// Nothing, which ends the conversation.
    Empty,
}
