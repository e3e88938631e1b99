//! Message framing of the MongoDB wire protocol: parsing what clients send, building what they get back.
//!
//! Parsing borrows from the received bytes and copies nothing; every document is validated once, so that the layers
//! above never meet a malformed one. This crate knows no sockets and no commands. The subset that is implemented is
//! described in `docs/formats/wire.md`.

mod compressed;
mod error;
mod error_code;
mod header;
pub mod limits;
mod message;
mod reply;
mod validate;

pub use compressed::{Codecs, Compressor, compressor_of, uncompressed_bytes};
pub use error::{Answer, Rejection, WireError};
pub use error_code::ErrorCode;
pub use header::{HEADER_BYTES, Header, OpCode};
pub use message::{Message, MsgFlags, OpMsg, OpQuery, Sequences, has_reply, peek_body};
pub use reply::{Form, begin, finish};
pub use validate::{BsonError, BsonFault, validate_document, validate_documents};
