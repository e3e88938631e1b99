//! Messages with documents that may not be stored as they are: each such document is named, and the message goes on
//! with valid content in its place.

use crate::content::{describe_invalid, elements, mask};
use crate::limits::WRITE_BATCH_MAX;
use crate::message::{Framed, frame};
use crate::validate::{document_at, validate_structure};
use crate::{Header, MsgFlags, OpCode};

/// A document of a sequence, or of an array of the body, whose content is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid BSON, {what}")]
pub struct InvalidDocument {
    /// The sequence's identifier, or the array's name.
    pub field: Box<str>,
    /// Its place there.
    pub index: usize,
    what: String,
}

/// A copy of an OP_MSG in which the documents that only their content makes invalid are valid, and which ones those
/// are, in the order of their indexes. `None` where that cannot be, where they are very many, and for commands but
/// `insert`, none of which goes on without such documents.
pub fn mask_invalid(header: &Header, message: &[u8]) -> Option<(Vec<u8>, Vec<InvalidDocument>)> {
    if header.op_code != OpCode::Msg {
        return None;
    }
    let Framed {
        flags, body, sequences, ..
    } = frame(message).ok()?;
    let command = elements(body).next()?;
    if &body[command.name] != b"insert" {
        return None;
    }
    let mut masked = message.to_vec();
    let mut invalid = Vec::new();
    let mut look = |field: &str, index: usize, document: &[u8]| -> Option<()> {
        let Some(error) = validate_structure(document).ok()? else {
            return Some(());
        };
        if invalid.len() == WRITE_BATCH_MAX {
            return None;
        }
        let start = document.as_ptr().addr() - message.as_ptr().addr();
        mask(&mut masked[start..start + document.len()]);
        invalid.push(InvalidDocument {
            field: field.into(),
            index,
            what: describe_invalid(document, &error),
        });
        Some(())
    };
    if validate_structure(body).ok()?.is_some() {
        let arrays = elements(body).filter(|element| element.kind == 0x04);
        for array in arrays {
            let Ok(field) = std::str::from_utf8(&body[array.name]) else {
                continue;
            };
            let items = &body[array.value];
            for (index, item) in elements(items).enumerate() {
                if item.kind == 0x03 {
                    look(field, index, &items[item.value])?;
                }
            }
        }
    }
    for (field, documents) in sequences.as_slice() {
        let (mut rest, mut index) = (*documents, 0);
        while !rest.is_empty() {
            let document = document_at(rest).ok()?;
            look(field, index, document)?;
            rest = &rest[document.len()..];
            index += 1;
        }
    }
    invalid.sort_by_key(|invalid: &InvalidDocument| invalid.index);
    if flags.has(MsgFlags::CHECKSUM_PRESENT)
        && let Some((sections, checksum)) = masked.split_last_chunk_mut::<4>()
    {
        *checksum = crc32c::crc32c(sections).to_le_bytes();
    }
    Some((masked, invalid))
}
