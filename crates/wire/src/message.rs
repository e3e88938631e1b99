//! A whole message, parsed where it lies.
//!
//! OP_MSG: `u32 flags`, sections, `[u32 crc32c]`. A section of kind 0 is the one body document; a section of kind 1 is
//! `i32 size`, an identifier, documents. OP_QUERY: `i32 flags`, namespace, `i32 skip`, `i32 return`, document.

use crate::limits::{NAMESPACE_BYTES_MAX, SEQUENCES_MAX};
use crate::validate::{validate_document, validate_documents};
use crate::{Answer, BsonError, Form, HEADER_BYTES, Header, OpCode, Rejection, WireError};
use bson::RawDocument;
use bson::raw::RawBsonRef;

/// Flag bits of OP_MSG.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MsgFlags(pub u32);

impl MsgFlags {
    /// The message ends with a CRC-32C.
    pub const CHECKSUM_PRESENT: u32 = 1;
    /// In requests: no reply is wanted. In replies: another one follows.
    pub const MORE_TO_COME: u32 = 1 << 1;
    /// The client accepts several replies.
    pub const EXHAUST_ALLOWED: u32 = 1 << 16;
    /// Bits that a receiver must know.
    const REQUIRED: u32 = 0xFFFF;

    /// True when all of `bits` are set.
    pub fn has(self, bits: u32) -> bool {
        self.0 & bits == bits
    }

    fn unknown_required(self) -> bool {
        self.0 & Self::REQUIRED & !(Self::CHECKSUM_PRESENT | Self::MORE_TO_COME) != 0
    }
}

/// The document sequences of a message: identifier, and validated documents back to back.
#[derive(Clone, Copy, Debug)]
pub struct Sequences<'m> {
    items: [(&'m str, &'m [u8]); SEQUENCES_MAX],
    count: usize,
    /// The identifier of one that stood there twice: such a message is answered, for its frame is sound.
    repeated: Option<&'m str>,
}

impl<'m> Sequences<'m> {
    const NONE: Self = Self {
        items: [("", &[]); SEQUENCES_MAX],
        count: 0,
        repeated: None,
    };

    /// The sequences in the order they were sent.
    pub fn as_slice(&self) -> &[(&'m str, &'m [u8])] {
        &self.items[..self.count]
    }

    fn push(&mut self, identifier: &'m str, documents: &'m [u8], offset: usize) -> Result<(), WireError> {
        if self.as_slice().iter().any(|(name, _)| *name == identifier) {
            self.repeated.get_or_insert(identifier);
            return Ok(());
        }
        let Some(free) = self.items.get_mut(self.count) else {
            return Err(WireError::Malformed {
                what: "too many sequences",
                offset,
            });
        };
        *free = (identifier, documents);
        self.count += 1;
        Ok(())
    }
}

/// An OP_MSG.
#[derive(Clone, Copy, Debug)]
pub struct OpMsg<'m> {
    /// Flag bits.
    pub flags: MsgFlags,
    /// The command.
    pub body: &'m RawDocument,
    /// Documents beside it.
    pub sequences: Sequences<'m>,
}

/// An OP_QUERY on `<database>.$cmd`.
#[derive(Clone, Copy, Debug)]
pub struct OpQuery<'m> {
    /// The namespace's database.
    pub database: &'m str,
    /// The command, out of its `$query` wrapper when it came in one.
    pub body: &'m RawDocument,
}

/// A request that was understood.
#[derive(Clone, Copy, Debug)]
#[allow(
    clippy::large_enum_variant,
    reason = "lives on the stack for one request; boxing would allocate per request"
)]
pub enum Message<'m> {
    /// OP_MSG.
    Msg(OpMsg<'m>),
    /// OP_QUERY with a command.
    Query(OpQuery<'m>),
}

impl<'m> Message<'m> {
    /// Parses a whole message, header included, as the header's length said. Compressed messages must have been
    /// decompressed ([`crate::Codecs::decompress`]).
    pub fn parse(header: &Header, message: &'m [u8]) -> Result<Self, Rejection> {
        debug_assert_eq!(header.length, message.len());
        match header.op_code {
            OpCode::Msg => parse_msg(message).map(Self::Msg),
            OpCode::Query => parse_query(message).map(Self::Query),
            other => Err(WireError::UnknownOpCode { op_code: other as i32 }.into()),
        }
    }

    /// The form of the reply; `None` when none is wanted.
    pub fn form(&self) -> Option<Form> {
        match self {
            Self::Msg(msg) => msg_form(msg.flags),
            Self::Query(_) => Some(Form::Reply),
        }
    }
}

/// The body of an OP_MSG where it comes first, as drivers send it, without a look at what is in it or behind it; `None`
/// in other messages. What is wrong with them is told by [`Message::parse`].
pub fn peek_body<'m>(header: &Header, message: &'m [u8]) -> Option<&'m RawDocument> {
    /// The flags and the section's kind.
    const BODY: usize = HEADER_BYTES + 4 + 1;
    if header.op_code != OpCode::Msg || message.get(BODY - 1) != Some(&0) {
        return None;
    }
    let length = usize::try_from(i32_at(message, BODY, "body document").ok()?).ok()?;
    RawDocument::from_bytes(message[BODY..].get(..length)?).ok()
}

/// Whether somebody waits for a reply to an OP_MSG. What its flags are wrong in is told by [`Message::parse`].
pub fn has_reply(header: &Header, message: &[u8]) -> bool {
    let flags = i32_at(message, HEADER_BYTES, "flags").map(|flags| MsgFlags(flags as u32));
    header.op_code == OpCode::Msg && flags.is_ok_and(|flags| !flags.has(MsgFlags::MORE_TO_COME))
}

fn msg_form(flags: MsgFlags) -> Option<Form> {
    (!flags.has(MsgFlags::MORE_TO_COME)).then_some(Form::Msg {
        checksum: flags.has(MsgFlags::CHECKSUM_PRESENT),
    })
}

fn i32_at(bytes: &[u8], at: usize, what: &'static str) -> Result<i32, WireError> {
    match bytes.get(at..).and_then(|rest| rest.first_chunk::<4>()) {
        Some(field) => Ok(i32::from_le_bytes(*field)),
        None => Err(WireError::Malformed { what, offset: at }),
    }
}

/// The bytes of the document at `at`, by its own length field, not validated yet.
fn document_at<'m>(bytes: &'m [u8], at: usize, what: &'static str) -> Result<&'m [u8], WireError> {
    let length = usize::try_from(i32_at(bytes, at, what)?).unwrap_or(0);
    match bytes[at..].get(..length) {
        Some(document) if length >= 5 => Ok(document),
        _ => Err(WireError::Malformed { what, offset: at }),
    }
}

/// The C string at `at`.
fn c_string_at<'m>(bytes: &'m [u8], at: usize, what: &'static str) -> Result<&'m str, WireError> {
    let rest = bytes.get(at..).unwrap_or_default();
    rest.iter()
        .position(|byte| *byte == 0)
        .and_then(|length| std::str::from_utf8(&rest[..length]).ok())
        .ok_or(WireError::Malformed { what, offset: at })
}

/// The parts of an OP_MSG, whose documents have not been looked at.
pub(crate) struct Framed<'m> {
    pub(crate) flags: MsgFlags,
    form: Option<Form>,
    pub(crate) body: &'m [u8],
    pub(crate) sequences: Sequences<'m>,
}

pub(crate) fn frame(message: &[u8]) -> Result<Framed<'_>, Rejection> {
    let flags = MsgFlags(i32_at(message, HEADER_BYTES, "flags")? as u32);
    let form = msg_form(flags);
    if flags.unknown_required() {
        let error = WireError::IllegalFlags { flags: flags.0 };
        return Err(Rejection {
            error,
            answer: form.map_or(Answer::Close, Answer::ReplyAndClose),
        });
    }
    let sections = without_checksum(message, flags)?;
    let mut body = None;
    let mut sequences = Sequences::NONE;
    let mut position = HEADER_BYTES + 4;
    while let Some(kind) = sections.get(position) {
        position += 1;
        match kind {
            0 if body.is_none() => {
                let document = document_at(sections, position, "body document")?;
                body = Some(document);
                position += document.len();
            }
            1 => position = parse_sequence(sections, position, &mut sequences)?,
            _ => {
                return Err(WireError::Malformed {
                    what: "section kind",
                    offset: position - 1,
                }
                .into());
            }
        }
    }
    let body = body.ok_or(WireError::Malformed {
        what: "no body section",
        offset: position,
    })?;
    Ok(Framed {
        flags,
        form,
        body,
        sequences,
    })
}

/// Bytes of an identifier that an error tells of: it may be as long as the message.
const SHOWN_IDENTIFIER_MAX: usize = 128;

fn parse_msg(message: &[u8]) -> Result<OpMsg<'_>, Rejection> {
    // Structure first: a broken frame closes the connection, a broken document in a sound frame is answered.
    let Framed {
        flags,
        form,
        body,
        sequences,
    } = frame(message)?;
    let refused = |error: WireError| Rejection {
        error,
        answer: form.map_or(Answer::Nothing, Answer::Reply),
    };
    if let Some(identifier) = sequences.repeated {
        let mut end = identifier.len().min(SHOWN_IDENTIFIER_MAX);
        while !identifier.is_char_boundary(end) {
            end -= 1;
        }
        let identifier = identifier[..end].to_owned();
        return Err(refused(WireError::RepeatedSequence { identifier }));
    }
    let bad_document = |error: BsonError| refused(WireError::Bson(error));
    let body = validate_document(body).map_err(bad_document)?;
    for (_, documents) in sequences.as_slice() {
        validate_documents(documents).map_err(bad_document)?;
    }
    Ok(OpMsg { flags, body, sequences })
}

/// Verifies the checksum, if there is one, and returns the message without it.
fn without_checksum(message: &[u8], flags: MsgFlags) -> Result<&[u8], WireError> {
    if !flags.has(MsgFlags::CHECKSUM_PRESENT) {
        return Ok(message);
    }
    match message.split_last_chunk::<4>() {
        Some((sections, field)) if sections.len() >= HEADER_BYTES + 4 => {
            let (expected, found) = (crc32c::crc32c(sections), u32::from_le_bytes(*field));
            if expected == found {
                Ok(sections)
            } else {
                Err(WireError::Checksum { expected, found })
            }
        }
        _ => Err(WireError::Malformed {
            what: "checksum",
            offset: message.len(),
        }),
    }
}

/// Reads a kind 1 section whose size field stands at `at`; returns the offset behind it.
fn parse_sequence<'m>(sections: &'m [u8], at: usize, into: &mut Sequences<'m>) -> Result<usize, WireError> {
    const WHAT: &str = "document sequence";
    let size = usize::try_from(i32_at(sections, at, WHAT)?).unwrap_or(0);
    let section = sections[at..]
        .get(..size)
        .ok_or(WireError::Malformed { what: WHAT, offset: at })?;
    let identifier = c_string_at(section, 4, "sequence identifier")?;
    into.push(identifier, &section[4 + identifier.len() + 1..], at)?;
    Ok(at + size)
}

fn parse_query(message: &[u8]) -> Result<OpQuery<'_>, Rejection> {
    let reply = |error: WireError| Rejection {
        error,
        answer: Answer::Reply(Form::Reply),
    };
    let namespace_at = HEADER_BYTES + 4;
    let namespace = c_string_at(message, namespace_at, "namespace")?;
    let document_start = namespace_at + namespace.len() + 1 + 8;
    let document = document_at(message, document_start, "query document")?;
    let mut rest = document_start + document.len();
    if rest < message.len() {
        // A field selector means nothing for a command.
        rest += document_at(message, rest, "field selector")?.len();
    }
    if rest != message.len() {
        return Err(WireError::Malformed {
            what: "end of message",
            offset: rest,
        }
        .into());
    }
    let Some(database) = namespace
        .strip_suffix(".$cmd")
        .filter(|_| namespace.len() <= NAMESPACE_BYTES_MAX)
    else {
        return Err(reply(WireError::QueryIsNoCommand));
    };
    let body = validate_document(document).map_err(|error| reply(WireError::Bson(error)))?;
    Ok(OpQuery {
        database,
        body: unwrapped(body),
    })
}

/// The document in `{$query: {...}, $readPreference: ...}`, or the document itself.
fn unwrapped(body: &RawDocument) -> &RawDocument {
    match body.iter().next() {
        Some(Ok((name, RawBsonRef::Document(inner)))) if name == "$query" || name == "query" => inner,
        _ => body,
    }
}

#[cfg(test)]
mod tests;
