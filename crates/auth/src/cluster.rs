//! How the members of a cluster prove to each other that they are members: by keys that all of them have, or by
//! certificates.
//!
//! Whoever proves it is the user `__system` of `local`, which no collection holds and which may do everything. Each key
//! is a password of it; of several, any one will do, so that keys can be changed member by member.

use crate::credentials::Credentials;
use crate::mechanism::Mechanism;
use std::fmt;
use thiserror::Error;

/// The user that a member is.
pub const INTERNAL_USER: &str = "__system";
/// The database of [`INTERNAL_USER`].
pub const INTERNAL_DATABASE: &str = "local";

/// Characters of a key, white space aside.
const KEY_LENGTH: std::ops::RangeInclusive<usize> = 6..=1024;
/// A key of so many characters is not guessed, however often somebody tries: 192 bits, when it is a random one.
const UNGUESSABLE_LENGTH_MIN: usize = 32;
/// More keys than this are no change of keys.
const KEYS_MAX: usize = 16;

/// Keys that the members of a cluster share; the first is the one that a member tries first.
#[derive(Clone, PartialEq, Eq)]
pub struct ClusterKeys(Vec<String>);

/// Why there are no keys.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ClusterKeyError {
    /// None at all.
    #[error("there is no key in it")]
    None,
    /// More than `KEYS_MAX`.
    #[error("there are more than {KEYS_MAX} keys in it")]
    TooMany,
    /// A key with fewer than 6 characters, or more than 1024.
    #[error("a key has {0} characters: there must be 6 to 1024, white space aside")]
    Length(usize),
    /// Of base64 are letters, digits, `+`, `/` and `=`.
    #[error("a key has the character {0:?}, which is not one of base64")]
    Character(char),
}

impl ClusterKeys {
    /// Checks texts of keys; white space in them does not count.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn new(texts: impl IntoIterator<Item = impl AsRef<str>>) -> Result<Self, ClusterKeyError> {
        let keys: Result<Vec<_>, _> = texts.into_iter().map(|text| key(text.as_ref())).collect();
        match keys? {
            none if none.is_empty() => Err(ClusterKeyError::None),
            many if many.len() > KEYS_MAX => Err(ClusterKeyError::TooMany),
            keys => Ok(Self(keys)),
        }
    }

    /// The keys, as passwords of [`INTERNAL_USER`].
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }

    /// Is one of them so short that somebody might guess it?
    pub fn are_guessable(&self) -> bool {
        self.iter().any(|key| key.len() < UNGUESSABLE_LENGTH_MIN)
    }

    /// What proofs of each key are checked against. All have the same salt: a client is told one before it is known
    /// which key it has.
    pub fn verifiers(&self, mechanism: Mechanism, salt: &[u8]) -> Vec<Credentials> {
        let of_key = |key| {
            let made = Credentials::of_password(mechanism, INTERNAL_USER, key, salt);
            made.expect("base64 has no character that SASLprep forbids")
        };
        self.iter().map(of_key).collect()
    }
}

/// The key of a text.
fn key(text: &str) -> Result<String, ClusterKeyError> {
    let key: String = text.chars().filter(|character| !character.is_whitespace()).collect();
    let is_base64 = |character: &char| character.is_ascii_alphanumeric() || matches!(character, '+' | '/' | '=');
    match key.chars().find(|character| !is_base64(character)) {
        Some(other) => Err(ClusterKeyError::Character(other)),
        None if KEY_LENGTH.contains(&key.len()) => Ok(key),
        None => Err(ClusterKeyError::Length(key.len())),
    }
}

/// Keys are not for log lines.
impl fmt::Debug for ClusterKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ClusterKeys({})", self.0.len())
    }
}

/// What members prove themselves by, and what they take from others. The middle two lead from one to the other while
/// the cluster works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClusterAuthMode {
    /// By key alone.
    KeyFile,
    /// By key; a certificate is taken, too.
    SendKeyFile,
    /// By certificate; a key is taken, too.
    SendX509,
    /// By certificate alone.
    X509,
}

impl ClusterAuthMode {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::KeyFile, Self::SendKeyFile, Self::SendX509, Self::X509];

    /// The name in configurations.
    pub fn name(self) -> &'static str {
        match self {
            Self::KeyFile => "keyFile",
            Self::SendKeyFile => "sendKeyFile",
            Self::SendX509 => "sendX509",
            Self::X509 => "x509",
        }
    }

    /// Is a key a proof?
    pub fn takes_keys(self) -> bool {
        self != Self::X509
    }

    /// Is a certificate a proof?
    pub fn takes_certificates(self) -> bool {
        self != Self::KeyFile
    }

    /// Does this member prove itself by its certificate?
    pub fn sends_certificate(self) -> bool {
        matches!(self, Self::SendX509 | Self::X509)
    }
}

/// How a server proves to be a member, and what it takes for a proof.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterAuth {
    /// By key, by certificate.
    pub mode: ClusterAuthMode,
    /// The keys; there are some unless the mode has no use for them.
    pub keys: Option<ClusterKeys>,
}

impl ClusterAuth {
    /// The keys that are a proof.
    pub fn accepted_keys(&self) -> Option<&ClusterKeys> {
        self.keys.as_ref().filter(|_| self.mode.takes_keys())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_base64_of_a_certain_length() {
        let keys = ClusterKeys::new([" ab\ncd\r\n ef\t", "0123+/==AZ"]).unwrap();
        assert_eq!(keys.iter().collect::<Vec<_>>(), ["abcdef", "0123+/==AZ"]);
        assert_eq!(format!("{keys:?}"), "ClusterKeys(2)");
        assert_eq!(ClusterKeys::new(["ab cde"]), Err(ClusterKeyError::Length(5)));
        assert!(ClusterKeys::new(["x".repeat(1024)]).is_ok());
        assert_eq!(ClusterKeys::new(["x".repeat(1025)]), Err(ClusterKeyError::Length(1025)));
        assert_eq!(ClusterKeys::new(["abc-def"]), Err(ClusterKeyError::Character('-')));
        assert_eq!(ClusterKeys::new(["abcdéf"]), Err(ClusterKeyError::Character('é')));
        assert_eq!(ClusterKeys::new(["abcdef", ""]), Err(ClusterKeyError::Length(0)));
        assert_eq!(ClusterKeys::new(Vec::<String>::new()), Err(ClusterKeyError::None));
        assert_eq!(ClusterKeys::new(vec!["abcdef"; 17]), Err(ClusterKeyError::TooMany));
    }

    #[test]
    fn short_keys_may_be_guessed() {
        let are_guessable = |keys: &[String]| ClusterKeys::new(keys).unwrap().are_guessable();
        assert!(!are_guessable(&["x".repeat(32), "y".repeat(756)]));
        assert!(are_guessable(&["x".repeat(31)]));
        assert!(are_guessable(&["x".repeat(756), "short1".to_owned()]));
    }

    #[test]
    fn modes_send_what_the_next_one_takes() {
        // A change of modes goes from one to its neighbour, member by member.
        for pair in ClusterAuthMode::ALL.windows(2) {
            for (sender, taker) in [(pair[0], pair[1]), (pair[1], pair[0])] {
                let taken = match sender.sends_certificate() {
                    true => taker.takes_certificates(),
                    false => taker.takes_keys(),
                };
                assert!(taken, "{sender:?} to {taker:?}");
            }
        }
    }
}
