//! Message framing of the MongoDB wire protocol.

mod error_code;

pub use error_code::ErrorCode;
