//! The key that wraps the data keys. It comes from outside, and is never written.

use crate::xaes::{KEY_BYTES, Xaes};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ring::digest::{SHA256, digest};
use std::fmt;
use zeroize::Zeroizing;

/// Text around the key that is passed over: a line's end, mostly.
const TEXT_BYTES_MAX: usize = 1024;

/// A master key.
pub struct MasterKey {
    pub(crate) xaes: Xaes,
    id: [u8; 8],
}

/// Why a text is no master key. What stands in the text is not told.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum MasterKeyError {
    /// Too long, or other characters.
    #[error("is not one key in base64")]
    NotBase64,
    /// Another length.
    #[error("has {0} bytes decoded, and a key has 32")]
    Length(usize),
}

impl MasterKey {
    /// Reads 32 bytes in base64, with white space around.
    pub fn parse(text: &[u8]) -> Result<Self, MasterKeyError> {
        let text = text.trim_ascii();
        if text.len() > TEXT_BYTES_MAX {
            return Err(MasterKeyError::NotBase64);
        }
        let mut bytes = Zeroizing::new([0; TEXT_BYTES_MAX]);
        let length = STANDARD.decode_slice(text, &mut *bytes);
        let length = length.map_err(|_| MasterKeyError::NotBase64)?;
        match bytes[..length].first_chunk::<KEY_BYTES>() {
            Some(key) if length == KEY_BYTES => Ok(Self::new(key)),
            _ => Err(MasterKeyError::Length(length)),
        }
    }

    fn new(key: &[u8; KEY_BYTES]) -> Self {
        // A key of 256 random bits is not found by its digest.
        let mut text = Zeroizing::new(Vec::with_capacity(64));
        text.extend_from_slice(b"tenon master key id\0");
        text.extend_from_slice(key);
        let digest = digest(&SHA256, &text);
        Self {
            xaes: Xaes::new(key),
            id: *digest.as_ref().first_chunk().expect("a digest has 32 bytes"),
        }
    }

    /// By which one key is told from another.
    pub fn id(&self) -> [u8; 8] {
        self.id
    }
}

/// Never the key.
impl fmt::Debug for MasterKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MasterKey({})", hex(&self.id))
    }
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_32_bytes_in_base64() {
        let text = STANDARD.encode([7; 32]);
        let key = MasterKey::parse(format!("  {text}\n").as_bytes()).expect("a key");
        assert_eq!(key.id(), MasterKey::parse(text.as_bytes()).expect("a key").id());
        assert_ne!(
            key.id(),
            MasterKey::parse(STANDARD.encode([8; 32]).as_bytes())
                .expect("a key")
                .id()
        );
        let failed = |text: &str| MasterKey::parse(text.as_bytes()).expect_err("no key");
        assert_eq!(failed(""), MasterKeyError::Length(0));
        assert_eq!(failed(&STANDARD.encode([7; 31])), MasterKeyError::Length(31));
        assert_eq!(failed(&STANDARD.encode([7; 64])), MasterKeyError::Length(64));
        assert_eq!(failed("no key!"), MasterKeyError::NotBase64);
        assert_eq!(failed(&format!("{text} {text}")), MasterKeyError::NotBase64);
        assert_eq!(failed(&"A".repeat(2000)), MasterKeyError::NotBase64);
        assert!(!format!("{key:?}").contains(&text[..8]));
    }
}
