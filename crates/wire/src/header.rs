//! The sixteen bytes every message begins with. All integers are little endian.

use crate::WireError;
use crate::limits::MESSAGE_BYTES_MAX;

/// Bytes of a header.
pub const HEADER_BYTES: usize = 16;

/// What kind of message it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum OpCode {
    /// A legacy reply.
    Reply = 1,
    /// A legacy query; only commands are answered.
    Query = 2004,
    /// Another message, compressed.
    Compressed = 2012,
    /// The message of all drivers since MongoDB 3.6.
    Msg = 2013,
}

impl OpCode {
    /// The code of a number; `None` for those that are not implemented.
    pub fn from_number(number: i32) -> Option<Self> {
        match number {
            1 => Some(Self::Reply),
            2004 => Some(Self::Query),
            2012 => Some(Self::Compressed),
            2013 => Some(Self::Msg),
            _ => None,
        }
    }
}

/// A message's header, with its length checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Bytes of the whole message: at least [`HEADER_BYTES`], at most [`MESSAGE_BYTES_MAX`].
    pub length: usize,
    /// The sender's number for the message.
    pub request_id: i32,
    /// In replies, the request's number.
    pub response_to: i32,
    /// Kind of message.
    pub op_code: OpCode,
}

impl Header {
    /// Reads a header. Whatever is wrong here leaves the stream without footing: close the connection.
    pub fn parse(bytes: &[u8; HEADER_BYTES]) -> Result<Self, WireError> {
        let field = |at: usize| i32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let length = field(0);
        match usize::try_from(length) {
            Ok(length) if (HEADER_BYTES..=MESSAGE_BYTES_MAX).contains(&length) => Ok(Self {
                length,
                request_id: field(4),
                response_to: field(8),
                op_code: OpCode::from_number(field(12)).ok_or(WireError::UnknownOpCode { op_code: field(12) })?,
            }),
            _ => Err(WireError::MessageLength { length }),
        }
    }

    /// The header's bytes.
    pub fn to_bytes(self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        let length = i32::try_from(self.length).expect("no message is longer than MESSAGE_BYTES_MAX");
        bytes[0..4].copy_from_slice(&length.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.request_id.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.response_to.to_le_bytes());
        bytes[12..16].copy_from_slice(&(self.op_code as i32).to_le_bytes());
        bytes
    }
}
