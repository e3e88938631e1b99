//! Message framing of the MongoDB wire protocol: parsing what clients send, building what they get back.
//!
//! Parsing borrows from the received bytes and copies nothing; every document is validated once, so that the layers
//! above never meet a malformed one. Documents with text that is not UTF-8 can be masked and named instead. This crate
//! knows no sockets and no commands. The subset that is implemented is described in `docs/formats/wire.md`.

mod compressed;
mod content;
mod error;
mod error_code;
mod header;
pub mod limits;
mod masked;
mod message;
mod reply;
mod validate;

pub use compressed::{Codecs, Compressor, compressor_of, uncompressed_bytes};
pub use content::{InvalidText, describe_invalid, with_valid_content};
pub use error::{Answer, Rejection, WireError};
pub use error_code::ErrorCode;
pub use header::{HEADER_BYTES, Header, OpCode};
pub use masked::{InvalidDocument, mask_invalid};
pub use message::{Message, MsgFlags, OpMsg, OpQuery, Sequences, has_reply, peek_body};
pub use reply::{Form, begin, finish};
pub use validate::{BsonError, BsonFault, validate_document, validate_documents, validate_structure};
