//! Builds a reply in place: room for the header, then the document, then the header.

use crate::limits::{DOCUMENT_INTERNAL_BYTES_MAX, MESSAGE_BYTES_MAX};
use crate::{HEADER_BYTES, Header, MsgFlags, OpCode, WireError};

/// Bytes of OP_REPLY between header and document: flags, cursor id, starting from, number returned.
const REPLY_FIELDS_BYTES: usize = 4 + 8 + 4 + 4;
/// `responseFlags`: the server understands `awaitData`.
const AWAIT_CAPABLE: i32 = 8;

// A reply with one document always fits a message.
const _: () = assert!(HEADER_BYTES + REPLY_FIELDS_BYTES + DOCUMENT_INTERNAL_BYTES_MAX < MESSAGE_BYTES_MAX);

/// The kind of message a reply is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// OP_MSG.
    Msg {
        /// Ends with a CRC-32C because the request did.
        checksum: bool,
    },
    /// OP_REPLY, to an OP_QUERY.
    Reply,
}

/// Appends what stands before the document. Append exactly one document, then call [`finish`] with `out`'s length
/// before this call.
pub fn begin(form: Form, out: &mut Vec<u8>) {
    match form {
        // Header and flags are filled in by `finish`; the last byte is the kind of the one section.
        Form::Msg { .. } => out.extend_from_slice(&[0; HEADER_BYTES + 4 + 1]),
        Form::Reply => {
            let mut fields = [0; HEADER_BYTES + REPLY_FIELDS_BYTES];
            fields[HEADER_BYTES..HEADER_BYTES + 4].copy_from_slice(&AWAIT_CAPABLE.to_le_bytes());
            fields[HEADER_BYTES + 16..].copy_from_slice(&1i32.to_le_bytes());
            out.extend_from_slice(&fields);
        }
    }
}

/// Completes the message that begins at `start`. `flags` are OP_MSG's beside the checksum's. Fails when the message is
/// too long to be sent.
pub fn finish(
    form: Form,
    out: &mut Vec<u8>,
    start: usize,
    request_id: i32,
    response_to: i32,
    flags: MsgFlags,
) -> Result<(), WireError> {
    let (op_code, checksum) = match form {
        Form::Msg { checksum } => (OpCode::Msg, checksum),
        Form::Reply => (OpCode::Reply, false),
    };
    let length = out.len() - start + if checksum { 4 } else { 0 };
    if length > MESSAGE_BYTES_MAX {
        return Err(WireError::MessageLength {
            length: i32::try_from(length).unwrap_or(i32::MAX),
        });
    }
    let header = Header {
        length,
        request_id,
        response_to,
        op_code,
    };
    out[start..start + HEADER_BYTES].copy_from_slice(&header.to_bytes());
    if let Form::Msg { .. } = form {
        let bits = if checksum {
            flags.0 | MsgFlags::CHECKSUM_PRESENT
        } else {
            flags.0
        };
        out[start + HEADER_BYTES..start + HEADER_BYTES + 4].copy_from_slice(&bits.to_le_bytes());
    }
    if checksum {
        let sum = crc32c::crc32c(&out[start..]);
        out.extend_from_slice(&sum.to_le_bytes());
    }
    Ok(())
}
