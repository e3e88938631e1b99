//! The bytes of a key store; described in `docs/formats/encryption.md`.

use crate::keys::{Keys, SEAL_BYTES, Seal, fill_random};
use crate::master::{MasterKey, hex};
use crate::xaes::{KEY_BYTES, NONCE_BYTES};
use ring::rand::SystemRandom;
use zeroize::Zeroizing;

const MAGIC: [u8; 8] = *b"TENONKEY";
const VERSION: u32 = 1;
const VERSION_AT: usize = 8;
const CRC_AT: usize = 12;
const STORE_AT: usize = 16;
const MASTER_AT: usize = 32;
const COUNT_AT: usize = 40;
const RESERVED_AT: usize = 44;
const ENTRIES_AT: usize = 48;
/// Generation, seal, wrapped key.
const ENTRY_BYTES: usize = 4 + SEAL_BYTES + KEY_BYTES;
/// As many generations as there may be: at one a day for as long as anybody keeps a directory.
const GENERATIONS_MAX: usize = 10_000;
/// A longer file is no key store.
pub const KEY_STORE_BYTES_MAX: usize = ENTRIES_AT + GENERATIONS_MAX * ENTRY_BYTES + SEAL_BYTES;

/// Why a key store cannot be used.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum KeyStoreError {
    /// The bytes are not those of a key store.
    #[error("is damaged: {0}")]
    Damaged(&'static str),
    /// A later program's.
    #[error("has format version {0}, and this build knows {VERSION}")]
    Version(u32),
    /// It was made with another master key.
    #[error("was made with the master key {found}, and the one given is {given}")]
    OtherMaster {
        /// The id in the store.
        found: String,
        /// That of the key given.
        given: String,
    },
    /// No room for another generation.
    #[error("has {GENERATIONS_MAX} generations of keys, and none can be added")]
    Full,
}

/// The data keys of one directory, by generation.
pub struct KeyStore {
    /// Random, of the directory: a store that was put together from two is found.
    store: [u8; 16],
    /// Generations rise; not empty.
    keys: Vec<(u32, Zeroizing<[u8; KEY_BYTES]>)>,
}

impl KeyStore {
    /// A store with a first key.
    pub fn create() -> Self {
        let mut store = [0; 16];
        fill_random(&SystemRandom::new(), &mut store);
        let mut created = Self {
            store,
            keys: Vec::new(),
        };
        created.add_generation().expect("there is room for one");
        created
    }

    /// Adds a key, with which all is sealed from then on. Older ones stay, since what they have sealed may be anywhere.
    pub fn add_generation(&mut self) -> Result<u32, KeyStoreError> {
        if self.keys.len() >= GENERATIONS_MAX {
            return Err(KeyStoreError::Full);
        }
        let generation = self.keys.last().map_or(1, |(last, _)| last.saturating_add(1));
        let mut key = Zeroizing::new([0; KEY_BYTES]);
        fill_random(&SystemRandom::new(), &mut *key);
        self.keys.push((generation, key));
        Ok(generation)
    }

    /// How many generations there are.
    pub fn generations(&self) -> usize {
        self.keys.len()
    }

    /// The keys, for use.
    pub fn keys(&self) -> Keys {
        Keys::new(self.keys.iter().map(|(generation, key)| (*generation, &**key)))
    }

    /// The file's bytes, under a master key.
    pub fn encode(&self, master: &MasterKey) -> Vec<u8> {
        let mut bytes = vec![0; ENTRIES_AT];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[VERSION_AT..CRC_AT].copy_from_slice(&VERSION.to_le_bytes());
        bytes[STORE_AT..MASTER_AT].copy_from_slice(&self.store);
        bytes[MASTER_AT..COUNT_AT].copy_from_slice(&master.id());
        bytes[COUNT_AT..RESERVED_AT].copy_from_slice(&(self.keys.len() as u32).to_le_bytes());
        for (generation, key) in &self.keys {
            let mut wrapped = Zeroizing::new(**key);
            let seal = seal(master, &entry_context(&self.store, *generation), &mut *wrapped);
            bytes.extend_from_slice(&generation.to_le_bytes());
            bytes.extend_from_slice(&seal);
            bytes.extend_from_slice(&*wrapped);
        }
        // Over all of it: entries are neither taken away nor added without the master key.
        let seal = seal(master, &whole_context(&bytes), &mut []);
        bytes.extend_from_slice(&seal);
        let crc = crc32c::crc32c(&bytes[STORE_AT..]);
        bytes[CRC_AT..STORE_AT].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Reads a file's bytes with a master key.
    pub fn decode(bytes: &[u8], master: &MasterKey) -> Result<Self, KeyStoreError> {
        let damaged = |reason| Err(KeyStoreError::Damaged(reason));
        if bytes.len() > KEY_STORE_BYTES_MAX || bytes.len() < ENTRIES_AT + ENTRY_BYTES + SEAL_BYTES {
            return damaged("its length is not that of a key store");
        }
        if bytes[..8] != MAGIC {
            return damaged("it does not begin as a key store does");
        }
        let version = u32_at(bytes, VERSION_AT);
        if version > VERSION {
            return Err(KeyStoreError::Version(version));
        }
        let count = u32_at(bytes, COUNT_AT) as usize;
        // What lies behind the end that the store itself tells is not of it.
        let length = ENTRIES_AT + count.min(GENERATIONS_MAX) * ENTRY_BYTES + SEAL_BYTES;
        let bytes = &bytes[..bytes.len().min(length)];
        if version != VERSION || u32_at(bytes, CRC_AT) != crc32c::crc32c(&bytes[STORE_AT..]) {
            return damaged("the checksum does not fit");
        }
        let (content, seal) = bytes.split_at(bytes.len() - SEAL_BYTES);
        if count == 0 || count > GENERATIONS_MAX || content.len() != ENTRIES_AT + count * ENTRY_BYTES {
            return damaged("the number of its keys does not fit its length");
        }
        if u32_at(bytes, RESERVED_AT) != 0 {
            return damaged("reserved bytes are not zero");
        }
        if bytes[MASTER_AT..COUNT_AT] != master.id() {
            return Err(KeyStoreError::OtherMaster {
                found: hex(&bytes[MASTER_AT..COUNT_AT]),
                given: hex(&master.id()),
            });
        }
        if !open(master, &whole_context(content), seal, &mut []) {
            return damaged("it is not what was sealed with the master key");
        }
        let store = *bytes[STORE_AT..].first_chunk().expect("checked above");
        let mut keys: Vec<(u32, Zeroizing<[u8; KEY_BYTES]>)> = Vec::with_capacity(count);
        for entry in content[ENTRIES_AT..].chunks_exact(ENTRY_BYTES) {
            let generation = u32_at(entry, 0);
            let (seal, wrapped) = entry[4..].split_at(SEAL_BYTES);
            let mut key = Zeroizing::new([0; KEY_BYTES]);
            key.copy_from_slice(wrapped);
            let rises = keys.last().is_none_or(|(last, _)| *last < generation);
            if !rises || generation == 0 || !open(master, &entry_context(&store, generation), seal, &mut *key) {
                return damaged("a key in it is not what was wrapped with the master key");
            }
            keys.push((generation, key));
        }
        Ok(Self { store, keys })
    }
}

/// The seal's generation is 0: a master key has none.
fn seal(master: &MasterKey, context: &[u8], text: &mut [u8]) -> Seal {
    let mut nonce = [0; NONCE_BYTES];
    fill_random(&SystemRandom::new(), &mut nonce);
    let tag = master.xaes.seal(&nonce, context, text);
    let mut seal = [0; SEAL_BYTES];
    seal[4..4 + NONCE_BYTES].copy_from_slice(&nonce);
    seal[4 + NONCE_BYTES..].copy_from_slice(&tag);
    seal
}

fn open(master: &MasterKey, context: &[u8], seal: &[u8], text: &mut [u8]) -> bool {
    let nonce = seal.get(4..).and_then(|rest| rest.first_chunk::<NONCE_BYTES>());
    let tag = seal.get(4 + NONCE_BYTES..).and_then(|rest| rest.try_into().ok());
    let generation_is_none = seal.get(..4) == Some(&[0; 4]);
    match (nonce, tag) {
        (Some(nonce), Some(tag)) if generation_is_none => master.xaes.open(nonce, context, tag, text),
        _ => false,
    }
}

fn entry_context(store: &[u8; 16], generation: u32) -> Vec<u8> {
    [b"key of a store\0\0".as_slice(), store, &generation.to_le_bytes()].concat()
}

/// Of all but the checksum, which is not known yet.
fn whole_context(content: &[u8]) -> Vec<u8> {
    [
        b"whole key store\0".as_slice(),
        &content[..CRC_AT],
        &content[STORE_AT..],
    ]
    .concat()
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(std::array::from_fn(|byte| bytes[at + byte]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use base64::Engine;

    fn master(byte: u8) -> MasterKey {
        let text = base64::engine::general_purpose::STANDARD.encode([byte; 32]);
        MasterKey::parse(text.as_bytes()).expect("a key")
    }

    #[test]
    fn the_layout_is_the_documented_one() {
        let mut store = KeyStore::create();
        store.add_generation().expect("there is room");
        let bytes = store.encode(&master(1));
        assert_eq!(bytes.len(), 48 + 2 * 80 + 44);
        assert_eq!(&bytes[..12], b"TENONKEY\x01\0\0\0");
        assert_eq!(u32_at(&bytes, 12), crc32c::crc32c(&bytes[16..]));
        assert_eq!((u32_at(&bytes, 40), u32_at(&bytes, 44)), (2, 0));
        assert_eq!((u32_at(&bytes, 48), u32_at(&bytes, 128)), (1, 2));
    }

    #[test]
    fn what_one_master_wraps_only_it_unwraps() {
        let mut store = KeyStore::create();
        let mut text = *b"text";
        let seal = store.keys().seal(b"c", &mut text);
        assert_eq!(store.add_generation(), Ok(2));
        let bytes = store.encode(&master(1));
        let found = KeyStore::decode(&bytes, &master(1)).expect("whole");
        assert_eq!((found.generations(), found.keys().generation()), (2, 2));
        found
            .keys()
            .open(b"c", &seal, &mut text)
            .expect("the keys are the same");
        assert_eq!(&text, b"text");
        let error = KeyStore::decode(&bytes, &master(2)).err();
        assert!(matches!(error, Some(KeyStoreError::OtherMaster { .. })), "{error:?}");
        // Wrapped anew, the keys are the same.
        let anew = KeyStore::decode(&found.encode(&master(2)), &master(2)).expect("whole");
        let seal = found.keys().seal(b"d", &mut text);
        anew.keys().open(b"d", &seal, &mut text).expect("the keys are the same");
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_found_even_with_the_checksum_made_anew() {
        let mut store = KeyStore::create();
        store.add_generation().expect("there is room");
        let bytes = store.encode(&master(1));
        for bit in 0..bytes.len() * 8 {
            let mut other = bytes.clone();
            other[bit / 8] ^= 1 << (bit % 8);
            assert!(KeyStore::decode(&other, &master(1)).is_err(), "bit {bit}");
            let crc = crc32c::crc32c(&other[STORE_AT..]);
            other[CRC_AT..STORE_AT].copy_from_slice(&crc.to_le_bytes());
            let only_checksum = (CRC_AT..STORE_AT).contains(&(bit / 8));
            assert_eq!(KeyStore::decode(&other, &master(1)).is_ok(), only_checksum, "bit {bit}");
        }
        for length in 0..bytes.len() {
            assert!(KeyStore::decode(&bytes[..length], &master(1)).is_err());
        }
        let longer = [&bytes[..], b"appended"].concat();
        assert!(KeyStore::decode(&longer, &master(1)).is_ok());
        // The newest key taken away: what counts then would be an older one.
        let mut shorter = [&bytes[..128], &bytes[208..]].concat();
        shorter[COUNT_AT] = 1;
        let crc = crc32c::crc32c(&shorter[STORE_AT..]);
        shorter[CRC_AT..STORE_AT].copy_from_slice(&crc.to_le_bytes());
        let error = KeyStore::decode(&shorter, &master(1)).err();
        assert_eq!(
            error,
            Some(KeyStoreError::Damaged("it is not what was sealed with the master key"))
        );
    }

    #[test]
    fn there_are_so_many_generations_and_no_more() {
        let mut store = KeyStore::create();
        for _ in 1..GENERATIONS_MAX {
            store.add_generation().expect("there is room");
        }
        assert_eq!(store.add_generation(), Err(KeyStoreError::Full));
        assert_eq!(store.encode(&master(1)).len(), KEY_STORE_BYTES_MAX);
    }
}
