//! The two SCRAM mechanisms and the hash functions they are made of.

use hmac::{Hmac, Mac};
use sha1::Sha1;
use sha2::{Digest, Sha256};
use std::fmt;
use std::str::FromStr;

/// A mechanism that this server speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mechanism {
    /// RFC 5802 over a digest of name and password, as MongoDB uses it.
    ScramSha1,
    /// RFC 7677.
    ScramSha256,
}

impl Mechanism {
    /// All of them, in the order replies name them.
    pub const ALL: [Self; 2] = [Self::ScramSha1, Self::ScramSha256];

    /// The name as SASL registers it.
    pub fn name(self) -> &'static str {
        match self {
            Self::ScramSha1 => "SCRAM-SHA-1",
            Self::ScramSha256 => "SCRAM-SHA-256",
        }
    }

    /// Rounds of key stretching for new credentials, as MongoDB chooses them.
    pub fn iterations(self) -> u32 {
        match self {
            Self::ScramSha1 => 10_000,
            Self::ScramSha256 => 15_000,
        }
    }

    /// Bytes of salt for new credentials: what makes one block of the hash together with the block's number.
    pub fn salt_bytes(self) -> usize {
        self.hash_bytes() - 4
    }

    /// Bytes of its hash.
    pub fn hash_bytes(self) -> usize {
        match self {
            Self::ScramSha1 => 20,
            Self::ScramSha256 => 32,
        }
    }

    pub(crate) fn hash(self, data: &[u8]) -> Vec<u8> {
        match self {
            Self::ScramSha1 => Sha1::digest(data).to_vec(),
            Self::ScramSha256 => Sha256::digest(data).to_vec(),
        }
    }

    pub(crate) fn hmac(self, key: &[u8], data: &[u8]) -> Vec<u8> {
        const ANY_KEY: &str = "HMAC takes keys of every length";
        match self {
            Self::ScramSha1 => {
                let mut mac = Hmac::<Sha1>::new_from_slice(key).expect(ANY_KEY);
                mac.update(data);
                mac.finalize().into_bytes().to_vec()
            }
            Self::ScramSha256 => {
                let mut mac = Hmac::<Sha256>::new_from_slice(key).expect(ANY_KEY);
                mac.update(data);
                mac.finalize().into_bytes().to_vec()
            }
        }
    }

    /// `Hi` of RFC 5802: the salted password.
    pub(crate) fn stretch(self, password: &[u8], salt: &[u8], iterations: u32) -> Vec<u8> {
        let mut salted = vec![0; self.hash_bytes()];
        match self {
            Self::ScramSha1 => pbkdf2::pbkdf2_hmac::<Sha1>(password, salt, iterations, &mut salted),
            Self::ScramSha256 => pbkdf2::pbkdf2_hmac::<Sha256>(password, salt, iterations, &mut salted),
        }
        salted
    }
}

impl fmt::Display for Mechanism {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Mechanism {
    type Err = ();

    fn from_str(name: &str) -> Result<Self, ()> {
        Self::ALL
            .into_iter()
            .find(|mechanism| mechanism.name() == name)
            .ok_or(())
    }
}
