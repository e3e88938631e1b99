//! Encryption at rest: the keys, and sealing and opening what is written with them.
//!
//! A *seal* ([`SEAL_BYTES`]) stands beside every sealed text and says which generation of the data key it is sealed
//! with, by which nonce, and with which tag. The cipher is XAES-256-GCM (<https://c2sp.org/XAES-256-GCM>): a nonce of
//! 192 random bits, drawn from the operating system for each text, so that none repeats after a crash, in a restored
//! snapshot, in a copied directory or on two members with one master key. No counter has to survive anything.
//!
//! This crate knows no files. Who seals says in the *context* what the text is and where it stands; a text that was put
//! somewhere else does not open.
//!
//! Invariant: a data key leaves this crate only wrapped by a master key, and no key is ever shown by `Debug` or in an
//! error.

mod keys;
mod master;
mod store;
mod xaes;

pub use keys::{Keys, SEAL_BYTES, Seal, SealError};
pub use master::{MasterKey, MasterKeyError};
pub use store::{KEY_STORE_BYTES_MAX, KeyStore, KeyStoreError};
