//! One document's text as BSON.

use crate::column::{Columns, Row};
use crate::reader::Item;
use bson::RawDocumentBuf;
use extjson::JsonError;
use wire::limits::DOCUMENT_BYTES_MAX;

/// How texts become documents.
#[derive(Clone, Debug)]
pub enum Decoder {
    /// Extended JSON.
    Json,
    /// Columns.
    Columns(Columns),
}

/// What became of a text that is right.
#[derive(Clone, Debug, PartialEq)]
pub enum Decoded {
    /// A document, of no more than 16 MiB.
    Document(RawDocumentBuf),
    /// Left out as the user has asked, and why.
    Skipped(String),
}

/// Why a text is no document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The line of the fault, from 1.
    pub line: u64,
    /// What is wrong.
    pub what: String,
    /// Nothing behind it may be imported: it is not sure where the next document begins, or the user wants to stop.
    pub is_final: bool,
}

impl Decoder {
    /// The document of a text.
    pub fn decode(&self, item: &Item) -> Result<Decoded, Fault> {
        let fault = |what: String| Fault {
            line: item.line,
            what,
            is_final: false,
        };
        let document = match self {
            Self::Json => json(item)?,
            Self::Columns(columns) => match columns.row(&item.text).map_err(fault)? {
                Row::Document(document) => {
                    RawDocumentBuf::try_from(&document).map_err(|error| fault(error.to_string()))?
                }
                Row::Skipped(why) => return Ok(Decoded::Skipped(why)),
                Row::Stopped(why) => {
                    return Err(Fault {
                        is_final: true,
                        ..fault(why)
                    });
                }
            },
        };
        match document.as_bytes().len() {
            size if size > DOCUMENT_BYTES_MAX => {
                Err(fault(format!("a document of {size} bytes is larger than 16 MiB")))
            }
            _ => Ok(Decoded::Document(document)),
        }
    }
}

fn json(item: &Item) -> Result<RawDocumentBuf, Fault> {
    let bytes = &item.text.bytes;
    let line_of = |offset: usize| {
        let before = bytes.iter().take(offset).filter(|&&byte| byte == b'\n').count();
        item.line + before as u64
    };
    let text = std::str::from_utf8(bytes).map_err(|error| Fault {
        line: line_of(error.valid_up_to()),
        what: "no UTF-8".to_owned(),
        is_final: false,
    })?;
    extjson::parse(text).map_err(|error| match error {
        JsonError::Syntax { offset, expected } => {
            let start = text[..offset].rfind('\n').map_or(0, |newline| newline + 1);
            Fault {
                line: line_of(offset),
                what: format!("no JSON at byte {}: expected {expected}", offset - start + 1),
                is_final: true,
            }
        }
        other => Fault {
            line: item.line,
            what: other.to_string(),
            is_final: false,
        },
    })
}
