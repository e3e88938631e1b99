//! What can be wrong with a message, and how the server shall react.

use crate::{BsonError, BsonFault, ErrorCode, Form};

/// Why a message is not accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WireError {
    /// The header's length is out of bounds.
    #[error("message length {length} is not between 16 and 48000000")]
    MessageLength {
        /// The length given.
        length: i32,
    },
    /// The client has still to prove who it is.
    #[error("message length {length} is above 65536, the most before authentication")]
    StrangerMessageLength {
        /// The length given, uncompressed.
        length: usize,
    },
    /// A message of this kind is not understood.
    #[error("unknown or removed op code {op_code}")]
    UnknownOpCode {
        /// The number given.
        op_code: i32,
    },
    /// A message ends before its parts do, or has bytes left over.
    #[error("malformed message: {what} at offset {offset}")]
    Malformed {
        /// What was being read.
        what: &'static str,
        /// Where in the message.
        offset: usize,
    },
    /// OP_MSG has required flag bits that are not known.
    #[error("message contains illegal flags value: 0b{flags:b}")]
    IllegalFlags {
        /// All flag bits.
        flags: u32,
    },
    /// Two sequences of documents have one identifier.
    #[error("Duplicate document sequence: {identifier}")]
    RepeatedSequence {
        /// Theirs, of a long one its beginning.
        identifier: String,
    },
    /// The checksum does not fit the bytes.
    #[error("OP_MSG checksum does not match contents: expected {expected:#010x}, found {found:#010x}")]
    Checksum {
        /// Computed.
        expected: u32,
        /// In the message.
        found: u32,
    },
    /// A legacy query that is no command.
    #[error("Unsupported OP_QUERY command: find. The client driver may require an upgrade.")]
    QueryIsNoCommand,
    /// A document is malformed.
    #[error("{0}")]
    Bson(#[from] BsonError),
    /// A compressed message names a compressor that is not built in.
    #[error("unknown compressor id {id}")]
    UnknownCompressor {
        /// The id given.
        id: u8,
    },
    /// Compressed bytes do not expand to what the message says, or a reply cannot be compressed.
    #[error("{compressor} message: {reason}")]
    Compression {
        /// Its name.
        compressor: &'static str,
        /// The library's words or ours.
        reason: String,
    },
}

impl WireError {
    /// The code a client is told.
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::IllegalFlags { .. } => ErrorCode::IllegalOpMsgFlag,
            Self::RepeatedSequence { .. } => ErrorCode(40431),
            Self::Checksum { .. } => ErrorCode::ChecksumMismatch,
            Self::QueryIsNoCommand => ErrorCode::UnsupportedOpQueryCommand,
            Self::Bson(error) => match error.fault {
                BsonFault::TooDeep => ErrorCode::Overflow,
                BsonFault::TooLarge { .. } => ErrorCode::BSONObjectTooLarge,
                _ => ErrorCode::InvalidBSON,
            },
            _ => ErrorCode::ProtocolError,
        }
    }

    /// Whether a document is sound but for its content, see [`BsonFault::is_of_content`].
    pub fn is_of_content(&self) -> bool {
        matches!(self, Self::Bson(error) if error.fault.is_of_content())
    }
}

/// What the server does about a message it does not accept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Close the connection: where the next message begins, or what this one means, is not known.
    Close,
    /// Send an error reply of this form and go on.
    Reply(Form),
    /// Send an error reply of this form, then close.
    ReplyAndClose(Form),
    /// The sender wants no reply: go on.
    Nothing,
}

/// A message that is not accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// What is wrong.
    pub error: WireError,
    /// What to do.
    pub answer: Answer,
}

impl From<WireError> for Rejection {
    fn from(error: WireError) -> Self {
        Self {
            error,
            answer: Answer::Close,
        }
    }
}
