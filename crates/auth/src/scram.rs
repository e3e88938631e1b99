//! The server's side of a SCRAM conversation (RFC 5802, RFC 7677), three messages long:
//!
//! 1. client first: `n,,n=USER,r=NONCE` → [`ClientFirst::parse`];
//! 2. server first: `r=NONCE+OURS,s=SALT,i=ITERATIONS` ← [`ClientFirst::answer`], which the caller sends;
//! 3. client final: `c=BIWS,r=NONCE,p=PROOF` → [`Exchange::finish`], whose [`Verdict`] is either the server final
//!    `v=SIGNATURE` or no.
//!
//! Channel binding is not offered. A client that insists on it (`p=`) is refused; one that says it would have liked to
//! (`y`) is told the truth by the `c` it must repeat.

mod client;

pub use client::{ClientConversation, ServerProof};

use crate::credentials::Credentials;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use subtle::ConstantTimeEq;
use thiserror::Error;

/// A longer message is refused unread.
const MESSAGE_BYTES_MAX: usize = 4096;

/// Why a message is not one of the conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ScramError {
    /// More than `MESSAGE_BYTES_MAX` bytes.
    #[error("the SCRAM message is too long")]
    TooLong,
    /// Not text.
    #[error("the SCRAM message is not UTF-8")]
    NotText,
    /// It does not begin with `n,` or `y,`.
    #[error("channel binding is not supported")]
    ChannelBinding,
    /// An attribute is missing, empty, in the wrong place, or not to be read.
    #[error("the SCRAM message has a bad or missing attribute '{0}'")]
    Attribute(char),
    /// `m=`, which a server that does not know it must refuse.
    #[error("the SCRAM message demands an extension")]
    Extension,
    /// To act as somebody else.
    #[error("an authorization identity other than the user is not supported")]
    OtherIdentity,
    /// What the client repeats is not what was said.
    #[error("the SCRAM message does not repeat the nonce or the header of this conversation")]
    Mismatch,
    /// Of a client: the password cannot be one.
    #[error("the password holds characters that SASLprep forbids")]
    Password,
    /// Of a server: it does not prove that it knows the user.
    #[error("the server does not prove that it knows the user: it may be another one")]
    Server,
}

/// The first message of a client, read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientFirst {
    user: String,
    nonce: String,
    /// `n,,` as it was sent.
    header: String,
    /// What follows the header; a part of what is signed.
    bare: String,
}

impl ClientFirst {
    /// Reads the first message.
    ///
    /// # Errors
    /// Anything that RFC 5802 does not allow there.
    pub fn parse(message: &[u8]) -> Result<Self, ScramError> {
        let message = text(message)?;
        let (binding, rest) = message.split_once(',').ok_or(ScramError::ChannelBinding)?;
        if !matches!(binding, "n" | "y") {
            return Err(ScramError::ChannelBinding);
        }
        let (identity, bare) = rest.split_once(',').ok_or(ScramError::Attribute('n'))?;
        let mut attributes = bare.split(',');
        let first = attributes.next().unwrap_or_default();
        if first.starts_with("m=") {
            return Err(ScramError::Extension);
        }
        let user = unescape(attribute(Some(first), 'n')?)?;
        let nonce = attribute(attributes.next(), 'r')?;
        if !nonce.bytes().all(|byte| matches!(byte, 0x21..=0x7e)) {
            return Err(ScramError::Attribute('r'));
        }
        if !identity.is_empty() && unescape(attribute(Some(identity), 'a')?)? != user {
            return Err(ScramError::OtherIdentity);
        }
        Ok(Self {
            user,
            nonce: nonce.to_owned(),
            header: message[..message.len() - bare.len()].to_owned(),
            bare: bare.to_owned(),
        })
    }

    /// Whom the client says it is, unescaped.
    pub fn user(&self) -> &str {
        &self.user
    }

    /// The server's first message, and the conversation from there. `random` must be fresh for each conversation.
    pub fn answer(self, credentials: Credentials, random: &[u8; 24]) -> (String, Exchange) {
        self.answer_any(vec![credentials], random)
    }

    /// As [`ClientFirst::answer`], where the user has several passwords: there is at least one, and all have the
    /// mechanism, the salt and the iterations of the first.
    pub fn answer_any(self, credentials: Vec<Credentials>, random: &[u8; 24]) -> (String, Exchange) {
        let nonce = format!("{}{}", self.nonce, STANDARD.encode(random));
        let first = &credentials[0];
        debug_assert!(
            credentials
                .iter()
                .all(|each| each.salt == first.salt && each.iterations == first.iterations)
        );
        let salt = STANDARD.encode(&first.salt);
        let server_first = format!("r={nonce},s={salt},i={}", first.iterations);
        let exchange = Exchange {
            signed: format!("{},{server_first},", self.bare),
            header: self.header,
            nonce,
            credentials,
        };
        (server_first, exchange)
    }
}

/// A conversation that waits for the client's proof.
#[derive(Clone, Debug)]
pub struct Exchange {
    /// The messages that both sides sign, up to the client's last.
    signed: String,
    header: String,
    nonce: String,
    /// A proof of any of them will do.
    credentials: Vec<Credentials>,
}

/// How a conversation ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum Verdict {
    /// The client knows the password; the server's final message.
    Proven(String),
    /// It does not.
    Refused,
}

impl Exchange {
    /// Checks the client's final message; a conversation has one try.
    ///
    /// # Errors
    /// A message that is not the third of this conversation. A wrong proof is not an error but a verdict.
    pub fn finish(self, message: &[u8]) -> Result<Verdict, ScramError> {
        let message = text(message)?;
        // The proof is the last attribute; all before it is signed.
        let (without_proof, proof) = message.rsplit_once(',').ok_or(ScramError::Attribute('p'))?;
        let proof = STANDARD
            .decode(attribute(Some(proof), 'p')?)
            .map_err(|_| ScramError::Attribute('p'))?;
        let mut attributes = without_proof.split(',');
        let binding = attribute(attributes.next(), 'c')?;
        let nonce = attribute(attributes.next(), 'r')?;
        // A binding other than the header that came first means that somebody in between changed it.
        if STANDARD.decode(binding).map_err(|_| ScramError::Attribute('c'))? != self.header.as_bytes()
            || nonce != self.nonce
        {
            return Err(ScramError::Mismatch);
        }
        let mechanism = self.credentials[0].mechanism;
        if proof.len() != mechanism.hash_bytes() {
            return Err(ScramError::Attribute('p'));
        }
        let signed = self.signed + without_proof;
        let proven = |credentials: &&Credentials| {
            let signature = mechanism.hmac(&credentials.stored_key, signed.as_bytes());
            let client_key: Vec<u8> = proof.iter().zip(&signature).map(|(a, b)| a ^ b).collect();
            // In constant time: how long a wrong proof takes must tell nothing of the stored key.
            bool::from(mechanism.hash(&client_key).ct_eq(&credentials.stored_key))
        };
        let Some(credentials) = self.credentials.iter().find(proven) else {
            return Ok(Verdict::Refused);
        };
        let signature = mechanism.hmac(&credentials.server_key, signed.as_bytes());
        Ok(Verdict::Proven(format!("v={}", STANDARD.encode(signature))))
    }
}

fn text(message: &[u8]) -> Result<&str, ScramError> {
    if message.len() > MESSAGE_BYTES_MAX {
        return Err(ScramError::TooLong);
    }
    std::str::from_utf8(message).map_err(|_| ScramError::NotText)
}

/// The value of an attribute that must be `name` and not empty.
fn attribute(attribute: Option<&str>, name: char) -> Result<&str, ScramError> {
    let value = attribute.and_then(|attribute| attribute.strip_prefix(name)?.strip_prefix('='));
    value
        .filter(|value| !value.is_empty())
        .ok_or(ScramError::Attribute(name))
}

/// `=2C` and `=3D` stand for comma and equals sign; no other `=` may stand in a name.
fn unescape(name: &str) -> Result<String, ScramError> {
    let mut parts = name.split('=');
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (character, rest) = match (part.strip_prefix("2C"), part.strip_prefix("3D")) {
            (Some(rest), _) => (',', rest),
            (_, Some(rest)) => ('=', rest),
            _ => return Err(ScramError::Attribute('n')),
        };
        plain.push(character);
        plain.push_str(rest);
    }
    Ok(plain)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
