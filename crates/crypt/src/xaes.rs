//! XAES-256-GCM: AES-256-GCM with a key for each text, derived from the first half of a nonce of 24 bytes.

use aes::Aes256;
use aes::cipher::{BlockEncrypt, KeyInit};
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, Tag, UnboundKey};
use zeroize::{Zeroize, Zeroizing};

pub(crate) const KEY_BYTES: usize = 32;
pub(crate) const NONCE_BYTES: usize = 24;
pub(crate) const TAG_BYTES: usize = 16;
const BLOCK_BYTES: usize = 16;

/// A key, ready for use.
pub(crate) struct Xaes {
    cipher: Aes256,
    /// The first subkey of CMAC.
    subkey: [u8; BLOCK_BYTES],
}

impl Drop for Xaes {
    fn drop(&mut self) {
        self.subkey.zeroize();
    }
}

impl Xaes {
    pub fn new(key: &[u8; KEY_BYTES]) -> Self {
        let cipher = Aes256::new(key.into());
        let mut block = [0; BLOCK_BYTES].into();
        cipher.encrypt_block(&mut block);
        // Doubled in GF(2^128), as NIST SP 800-38B has it.
        let doubled = u128::from_be_bytes(block.into());
        let carry = if doubled >> 127 == 1 { 0x87 } else { 0 };
        Self {
            cipher,
            subkey: (doubled << 1 ^ carry).to_be_bytes(),
        }
    }

    /// The key of one text, and what is left of its nonce.
    fn derive(&self, nonce: &[u8; NONCE_BYTES]) -> (LessSafeKey, Nonce) {
        let mut key = Zeroizing::new([0; KEY_BYTES]);
        for (counter, half) in (1..).zip(key.chunks_exact_mut(BLOCK_BYTES)) {
            let mut block = [0; BLOCK_BYTES];
            block[..4].copy_from_slice(&[0, counter, b'X', 0]);
            block[4..].copy_from_slice(&nonce[..12]);
            block
                .iter_mut()
                .zip(&self.subkey)
                .for_each(|(byte, mask)| *byte ^= mask);
            let mut block = block.into();
            self.cipher.encrypt_block(&mut block);
            half.copy_from_slice(&block);
        }
        let key = UnboundKey::new(&AES_256_GCM, &*key).expect("32 bytes are a key");
        let rest: [u8; NONCE_LEN] = nonce[12..].try_into().expect("12 bytes are left");
        (LessSafeKey::new(key), Nonce::assume_unique_for_key(rest))
    }

    /// Encrypts in place. The nonce must never have been used with this key.
    pub fn seal(&self, nonce: &[u8; NONCE_BYTES], context: &[u8], text: &mut [u8]) -> [u8; TAG_BYTES] {
        let (key, nonce) = self.derive(nonce);
        let tag = key.seal_in_place_separate_tag(nonce, Aad::from(context), text);
        let tag = tag.expect("no text is as long as 64 GiB");
        tag.as_ref().try_into().expect("16 bytes are a tag")
    }

    /// Decrypts in place; false when it is not what was sealed, and then the text means nothing.
    pub fn open(&self, nonce: &[u8; NONCE_BYTES], context: &[u8], tag: [u8; TAG_BYTES], text: &mut [u8]) -> bool {
        let (key, nonce) = self.derive(nonce);
        key.open_in_place_separate_tag(nonce, Aad::from(context), Tag::from(tag), text, 0..)
            .is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONCE: &[u8; NONCE_BYTES] = b"ABCDEFGHIJKLMNOPQRSTUVWX";

    /// The vectors of the specification, for a first subkey without and with a carry.
    #[test]
    fn the_published_vectors_hold() {
        let vectors = [
            (1, "", "ce546ef63c9cc60765923609b33a9a1974e96e52daf2fcf7075e2271"),
            (
                3,
                "c2sp.org/XAES-256-GCM",
                "986ec1832593df5443a179437fd083bf3fdb41abd740a21f71eb769d",
            ),
        ];
        for (byte, context, expected) in vectors {
            let xaes = Xaes::new(&[byte; KEY_BYTES]);
            let mut text = *b"XAES-256-GCM";
            let tag = xaes.seal(NONCE, context.as_bytes(), &mut text);
            let sealed: String = text.iter().chain(&tag).map(|byte| format!("{byte:02x}")).collect();
            assert_eq!(sealed, expected);
            assert!(xaes.open(NONCE, context.as_bytes(), tag, &mut text));
            assert_eq!(&text, b"XAES-256-GCM");
        }
    }

    #[test]
    fn each_part_of_the_nonce_matters() {
        let xaes = Xaes::new(&[7; KEY_BYTES]);
        let mut text = [5; 40];
        let tag = xaes.seal(NONCE, b"here", &mut text);
        for at in [0, 11, 12, 23] {
            let mut other = *NONCE;
            other[at] ^= 1;
            assert!(!xaes.open(&other, b"here", tag, &mut text.clone()));
        }
        assert!(!xaes.open(NONCE, b"there", tag, &mut text.clone()));
        assert!(xaes.open(NONCE, b"here", tag, &mut text));
    }
}
