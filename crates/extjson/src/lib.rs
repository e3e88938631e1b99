//! Extended JSON v2 from BSON and back, canonical and relaxed, as MongoDB's specification of it says.
//!
//! Both directions keep the order of fields and every type. Works on raw bytes, so that types which drivers no
//! longer make (symbols, pointers, undefined) survive, too. Knows neither files nor servers.

mod error;
mod indent;
mod read;
#[cfg(test)]
mod tests;
mod write;

pub use error::JsonError;
pub use indent::indent;
pub use read::parse;
pub use write::{JsonForm, write};
