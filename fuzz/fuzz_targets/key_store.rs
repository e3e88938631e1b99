//! A key store of arbitrary bytes, or a sound one of which some bytes were changed and the checksum made anew: never a
//! panic, and never opened unless it is what was sealed.
#![no_main]

use base64::Engine as _;
use crypt::{KeyStore, MasterKey};
use libfuzzer_sys::fuzz_target;
use std::sync::LazyLock;

/// A master key, and a store of three generations.
static SOUND: LazyLock<(MasterKey, Vec<u8>)> = LazyLock::new(|| {
    let text = base64::engine::general_purpose::STANDARD.encode([7; 32]);
    let master = MasterKey::parse(text.as_bytes()).expect("32 bytes");
    let mut store = KeyStore::create();
    for _ in 0..2 {
        store.add_generation().expect("there is room");
    }
    let bytes = store.encode(&master);
    (master, bytes)
});

fuzz_target!(|data: &[u8]| {
    let Some((mode, data)) = data.split_first() else { return };
    let _ = MasterKey::parse(data);
    let (master, sound) = &*SOUND;
    let mut bytes = match mode % 2 {
        0 => data.to_vec(),
        _ => {
            // Pairs of place and byte; then what is left is put behind, or the end is cut off.
            let mut bytes = sound.clone();
            for change in data.chunks_exact(3) {
                let at = usize::from(u16::from_le_bytes([change[0], change[1]])) % bytes.len();
                bytes[at] ^= change[2];
            }
            if mode % 8 == 7 {
                bytes.truncate(data.len() % (bytes.len() + 1));
            }
            bytes
        }
    };
    if bytes.len() >= 16 {
        let crc = crc32c::crc32c(&bytes[16..]);
        bytes[12..16].copy_from_slice(&crc.to_le_bytes());
    }
    if let Ok(store) = KeyStore::decode(&bytes, master) {
        assert!(bytes == *sound, "it opens, and is not what was sealed");
        assert_eq!(store.keys().generation(), 3);
    }
});
