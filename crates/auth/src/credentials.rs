//! What is kept of a password: enough to check a proof, and not enough to make one.
//!
//! Invariant: salt and keys have the lengths of their mechanism's hash, and there is at least one iteration.

use crate::mechanism::Mechanism;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use md5::{Digest, Md5};
use std::borrow::Cow;
use std::fmt;
use thiserror::Error;

/// A password's verifier for one mechanism.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    pub(crate) mechanism: Mechanism,
    pub(crate) iterations: u32,
    pub(crate) salt: Vec<u8>,
    pub(crate) stored_key: Vec<u8>,
    pub(crate) server_key: Vec<u8>,
}

/// Why there are no credentials.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CredentialsError {
    /// RFC 4013 forbids characters of it.
    #[error("the password holds characters that SASLprep forbids")]
    Prohibited,
    /// A stored field is not what [`Credentials`] writes.
    #[error("stored credentials for {mechanism} have a bad {field}")]
    Stored {
        /// Whose they are.
        mechanism: Mechanism,
        /// The field.
        field: &'static str,
    },
}

/// Stored iteration counts beyond this are not believed: checking one proof would take minutes.
pub(crate) const ITERATIONS_MAX: u32 = 10_000_000;

impl Credentials {
    /// Verifier of a password in clear text.
    ///
    /// # Errors
    /// `Prohibited`, for SCRAM-SHA-256 only: the other mechanism digests the bytes as they are.
    pub fn of_password(
        mechanism: Mechanism,
        user: &str,
        password: &str,
        salt: &[u8],
    ) -> Result<Self, CredentialsError> {
        let secret = secret_of(mechanism, user, password)?;
        Ok(Self::of_secret(mechanism, &secret, salt, mechanism.iterations()))
    }

    /// Verifier of what the mechanism takes for the password: for SCRAM-SHA-1 the digest that a client made.
    pub fn of_secret(mechanism: Mechanism, secret: &str, salt: &[u8], iterations: u32) -> Self {
        let salted = mechanism.stretch(secret.as_bytes(), salt, iterations);
        let client_key = mechanism.hmac(&salted, b"Client Key");
        Self {
            mechanism,
            iterations,
            salt: salt.to_vec(),
            stored_key: mechanism.hash(&client_key),
            server_key: mechanism.hmac(&salted, b"Server Key"),
        }
    }

    /// What a user who does not exist is shown: the same name gets the same salt as long as `secret` is the same, and
    /// no proof is right for it.
    pub fn pretended(mechanism: Mechanism, name: &str, secret: &[u8]) -> Self {
        let mut salt = mechanism.hmac(secret, name.as_bytes());
        salt.truncate(mechanism.salt_bytes());
        Self {
            mechanism,
            iterations: mechanism.iterations(),
            salt,
            stored_key: mechanism.hmac(secret, b"no client key hashes to this"),
            server_key: mechanism.hmac(secret, b"nor is this one ever shown"),
        }
    }

    /// The salt.
    pub fn salt(&self) -> &[u8] {
        &self.salt
    }

    /// Reads the fields of a stored document, base64 where [`Credentials::to_stored`] writes it.
    ///
    /// # Errors
    /// `Stored` names the first field that is not as it must be.
    pub fn from_stored(
        mechanism: Mechanism,
        iterations: i64,
        salt: &str,
        stored_key: &str,
        server_key: &str,
    ) -> Result<Self, CredentialsError> {
        let bad = |field| CredentialsError::Stored { mechanism, field };
        let key = |field, text: &str| {
            let bytes = STANDARD.decode(text).map_err(|_| bad(field))?;
            (bytes.len() == mechanism.hash_bytes())
                .then_some(bytes)
                .ok_or(bad(field))
        };
        let iterations = u32::try_from(iterations).map_err(|_| bad("iterationCount"))?;
        if !(1..=ITERATIONS_MAX).contains(&iterations) {
            return Err(bad("iterationCount"));
        }
        let salt = STANDARD.decode(salt).map_err(|_| bad("salt"))?;
        if salt.is_empty() || salt.len() > mechanism.hash_bytes() {
            return Err(bad("salt"));
        }
        Ok(Self {
            mechanism,
            iterations,
            salt,
            stored_key: key("storedKey", stored_key)?,
            server_key: key("serverKey", server_key)?,
        })
    }

    /// Iterations, and salt, stored key and server key in base64: the fields of a stored document.
    pub fn to_stored(&self) -> (u32, [String; 3]) {
        let texts = [&self.salt, &self.stored_key, &self.server_key].map(|bytes| STANDARD.encode(bytes));
        (self.iterations, texts)
    }
}

/// Keys are not for log lines.
impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Credentials({}, {} iterations)", self.mechanism, self.iterations)
    }
}

/// What tells the sessions of a user from those of others: SHA-256 of its name and database, as MongoDB writes it.
///
/// Both may have an `@`. Where the database has one, the length of the name follows, behind a slash, which no name of a
/// database has: `a@b` of `c` is not `a` of `b@c`.
pub fn session_user(user: &str, database: &str) -> [u8; 32] {
    let mut text = format!("{user}@{database}");
    if database.contains('@') {
        text.push_str(&format!("/{}", user.len()));
    }
    sha2::Sha256::digest(text).into()
}

/// What the mechanism takes for the password.
pub(crate) fn secret_of<'p>(
    mechanism: Mechanism,
    user: &str,
    password: &'p str,
) -> Result<Cow<'p, str>, CredentialsError> {
    match mechanism {
        Mechanism::ScramSha1 => Ok(Cow::Owned(digest(user, password))),
        Mechanism::ScramSha256 => stringprep::saslprep(password).map_err(|_| CredentialsError::Prohibited),
    }
}

/// What SCRAM-SHA-1 takes for the password: `hex(MD5("user:mongo:password"))`.
fn digest(user: &str, password: &str) -> String {
    let hash = Md5::digest(format!("{user}:mongo:{password}"));
    hash.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// They had their transactions, and what is kept of their retryable writes, in common.
    #[test]
    fn users_whose_names_run_together_have_sessions_of_their_own() {
        assert_ne!(session_user("a@b", "c"), session_user("a", "b@c"));
        assert_ne!(session_user("a@b", "c@d"), session_user("a", "b@c@d"));
        assert_ne!(session_user("a@b@c", "d"), session_user("a@b", "c@d"));
        let as_mongodb: [u8; 32] = sha2::Sha256::digest("a@b@c").into();
        assert_eq!(session_user("a@b", "c"), as_mongodb);
    }
}
