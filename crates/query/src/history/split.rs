//! `$changeStreamSplitLargeEvent`: an event beyond 16 MiB and a little becomes several documents.
//!
//! Fields of the event are dealt out in their order of size, smallest first, each fragment taking as many as fit; every
//! fragment has the event's token with its own number, and `splitEvent: {fragment, of}`.

use super::Tail;
use super::token::{Place, ResumeToken};
use crate::QueryError;
use crate::stages::{Stage, StageContext};
use crate::value::SharedDocument;
use crate::value::scan::Malformed;
use bson::raw::{RawBsonRef, cstr};
use bson::{RawDocument, RawDocumentBuf, rawdoc};
use std::collections::VecDeque;
use std::sync::Arc;
use wire::ErrorCode;
use wire::limits::DOCUMENT_INTERNAL_BYTES_MAX;

/// Longest event that is given whole, and longest fragment: a document of 16 MiB fits into one, and one into a reply.
const EVENT_BYTES_MAX: usize = DOCUMENT_INTERNAL_BYTES_MAX - 8 * 1024;
/// What a fragment adds to its fields, at most.
const FRAME_BYTES: usize = 256;

pub(super) struct SplitStage {
    source: Box<dyn Stage>,
    tail: Arc<Tail>,
    fragments: VecDeque<(ResumeToken, SharedDocument)>,
    /// The fragment that the client got last, until its event is there.
    resumed: Option<ResumeToken>,
}

impl SplitStage {
    pub(super) fn new(source: Box<dyn Stage>, tail: Arc<Tail>, resumed: Option<ResumeToken>) -> Self {
        Self {
            source,
            tail,
            fragments: VecDeque::new(),
            resumed,
        }
    }

    /// Makes fragments of an event, but for the first `skip`, which the client has.
    fn split(&mut self, event: &RawDocument, token: ResumeToken, skip: u32) -> Result<(), QueryError> {
        let Place::At {
            operation,
            is_invalidation,
            ..
        } = token.place
        else {
            return Ok(());
        };
        let mut fields = Vec::new();
        for field in event.into_iter().skip(1) {
            let (name, value) = field.map_err(|_| Malformed)?;
            fields.push((bytes_of(value), name, value));
        }
        fields.sort_by_key(|(bytes, ..)| *bytes);
        let mut parts: Vec<RawDocumentBuf> = Vec::new();
        for (bytes, name, value) in fields {
            if bytes + FRAME_BYTES > EVENT_BYTES_MAX {
                return Err(QueryError::new(
                    ErrorCode(7182500),
                    format!(
                        "Splitting change event failed: the field '{}' is too large",
                        name.as_str()
                    ),
                ));
            }
            match parts.last_mut() {
                Some(part) if part.as_bytes().len() + bytes + name.as_str().len() + FRAME_BYTES <= EVENT_BYTES_MAX => {
                    part.append(name, value);
                }
                _ => {
                    let mut part = RawDocumentBuf::new();
                    part.append(name, value);
                    parts.push(part);
                }
            }
        }
        if parts.len() < skip as usize {
            return Err(other_pipeline("its event has fewer fragments now"));
        }
        let of = parts.len() as i32;
        for (place, part) in parts.into_iter().enumerate() {
            let fragment = place as u32 + 1;
            let token = ResumeToken {
                place: Place::At {
                    operation,
                    is_invalidation,
                    fragment,
                },
                ..token
            };
            let mut document = rawdoc! { "_id": token.to_document() };
            for (name, value) in part.iter().flatten() {
                document.append(name, value);
            }
            document.append(cstr!("splitEvent"), rawdoc! { "fragment": fragment as i32, "of": of });
            if fragment > skip {
                let document = SharedDocument::new(document.into_bytes().into())?;
                self.fragments.push_back((token, document));
            }
        }
        Ok(())
    }
}

fn bytes_of(value: RawBsonRef<'_>) -> usize {
    let mut alone = RawDocumentBuf::new();
    match value {
        RawBsonRef::Document(document) => document.as_bytes().len(),
        RawBsonRef::Array(array) => array.as_bytes().len(),
        other => {
            alone.append(cstr!(""), other);
            alone.as_bytes().len()
        }
    }
}

impl Stage for SplitStage {
    fn next(&mut self, context: &mut StageContext<'_>) -> Result<Option<SharedDocument>, QueryError> {
        loop {
            if let Some((token, fragment)) = self.fragments.pop_front() {
                self.tail.change(|state| state.given = Some(token));
                return Ok(Some(fragment));
            }
            let Some(event) = self.source.next(context)? else {
                return Ok(None);
            };
            let given = self.tail.state().given;
            let is_large = event.bytes().len() > EVENT_BYTES_MAX;
            let mut skip = 0;
            if let Some(resumed) = self.resumed.take() {
                skip = match given.and_then(|given| resumed.fragment_of(given)) {
                    Some(_) if !is_large => return Err(other_pipeline("its event is not split any more")),
                    Some(fragment) => fragment,
                    None => return Err(other_pipeline("its event is left out")),
                };
            }
            match given {
                Some(token) if is_large => self.split(event.as_raw(), token, skip)?,
                _ => return Ok(Some(event)),
            }
        }
    }
}

/// The error of a stream that is to go on behind a fragment which its pipeline does not make.
fn other_pipeline(why: &str) -> QueryError {
    QueryError::new(
        ErrorCode::ChangeStreamFatalError,
        format!("cannot resume stream; the resume token was not found: {why}, as the pipeline is another one"),
    )
}
