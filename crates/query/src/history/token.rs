//! Resume tokens: `{_data: "<hexadecimal>"}`.
//!
//! Clients keep them and give them back; some read the time, so it stands where MongoDB has it. The bytes: 0x82,
//! cluster time (8, big-endian), kind (1: 0 before, 1 at, 255 behind all of that time), then of an event the
//! operation's number in its unit (4, big-endian), which of the operation's events it is (1: 0 the operation itself, 1
//! the end of the stream that it causes), and which fragment of it (4, big-endian). Later tokens have greater text.
//!
//! As with MongoDB's, bytes behind a token's end do not count, and its last one may be missing, as 0.

use crate::QueryError;
use bson::{RawBsonRef, RawDocument, RawDocumentBuf, rawdoc};
use storage::ClusterTime;
use wire::ErrorCode;

const MARK: u8 = 0x82;
const BYTES: usize = 19;
/// A shorter one has been cut off.
const BYTES_MIN: usize = BYTES - 1;

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ResumeToken {
    pub(super) time: ClusterTime,
    pub(super) place: Place,
}

/// Where in the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Place {
    /// Nothing of it has been given.
    Before,
    /// This event was given last.
    At {
        operation: u32,
        is_invalidation: bool,
        /// Fragments of it that were given; 0 for a whole event.
        fragment: u32,
    },
    /// All of it has been given.
    Behind,
}

impl ResumeToken {
    pub(super) fn before(time: ClusterTime) -> Self {
        Self {
            time,
            place: Place::Before,
        }
    }

    pub(super) fn behind(time: ClusterTime) -> Self {
        Self {
            time,
            place: Place::Behind,
        }
    }

    /// Which fragment of a whole event this is the token of.
    pub(super) fn fragment_of(self, event: Self) -> Option<u32> {
        match (self.place, event.place) {
            (
                Place::At {
                    operation,
                    is_invalidation,
                    fragment,
                },
                Place::At {
                    operation: o,
                    is_invalidation: i,
                    ..
                },
            ) if self.time == event.time && (operation, is_invalidation) == (o, i) => Some(fragment),
            _ => None,
        }
    }

    /// As clients get it.
    pub fn to_document(self) -> RawDocumentBuf {
        let (kind, operation, part, fragment) = match self.place {
            Place::Before => (0, 0, 0, 0),
            Place::At {
                operation,
                is_invalidation,
                fragment,
            } => (1, operation, u8::from(is_invalidation), fragment),
            Place::Behind => (255, 0, 0, 0),
        };
        let mut bytes = vec![MARK];
        bytes.extend_from_slice(&self.time.0.to_be_bytes());
        bytes.push(kind);
        bytes.extend_from_slice(&operation.to_be_bytes());
        bytes.push(part);
        bytes.extend_from_slice(&fragment.to_be_bytes());
        let text: String = bytes.iter().map(|byte| format!("{byte:02X}")).collect();
        rawdoc! { "_data": text }
    }

    /// Reads one that a client gives back. MongoDB has codes for each form that is none, and 260 `InvalidResumeToken`
    /// is for those of others.
    pub fn parse(document: &RawDocument) -> Result<Self, QueryError> {
        let refused = |code: ErrorCode, reason: String| QueryError::new(code, reason);
        let Ok(Some(RawBsonRef::String(text))) = document.get("_data") else {
            let reason = "Bad resume token: _data of missing or of wrong type; a string is expected";
            return Err(refused(ErrorCode(40647), reason.to_owned()));
        };
        if !matches!(document.get("_typeBits"), Ok(None | Some(RawBsonRef::Binary(_)))) {
            let reason = "Bad resume token: _typeBits of wrong type; binData is expected";
            return Err(refused(ErrorCode(40648), reason.to_owned()));
        }
        if text.is_empty() {
            return Err(refused(ErrorCode(40649), "invalid empty resume token".to_owned()));
        }
        let Some(bytes) = decoded(text) else {
            let reason = "resume token string was not a valid hex string";
            return Err(refused(ErrorCode::FailedToParse, reason.to_owned()));
        };
        if bytes.first() == Some(&MARK) && bytes.len() < BYTES_MIN {
            let reason = format!("resume token {text} has been cut off");
            return Err(refused(ErrorCode::Overflow, reason));
        }
        let reason = || format!("Invalid resume token: {text} is none of this server");
        Self::from_bytes(&bytes).ok_or_else(|| refused(ErrorCode::InvalidResumeToken, reason()))
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mut whole = [0; BYTES];
        let given = bytes.len().min(BYTES);
        whole[..given].copy_from_slice(&bytes[..given]);
        let bytes = &whole;
        let (time, rest) = bytes[1..].split_first_chunk::<8>()?;
        let [kind, o0, o1, o2, o3, part, f0, f1, f2, f3] = *rest else {
            return None;
        };
        let place = match (kind, part) {
            _ if bytes[0] != MARK => return None,
            (0, _) => Place::Before,
            (1, 0 | 1) => Place::At {
                operation: u32::from_be_bytes([o0, o1, o2, o3]),
                is_invalidation: part == 1,
                fragment: u32::from_be_bytes([f0, f1, f2, f3]),
            },
            (255, _) => Place::Behind,
            _ => return None,
        };
        Some(Self {
            time: ClusterTime(u64::from_be_bytes(*time)),
            place,
        })
    }
}

fn decoded(text: &str) -> Option<Vec<u8>> {
    let digits: Vec<u32> = text.chars().map(|digit| digit.to_digit(16)).collect::<Option<_>>()?;
    match digits.as_chunks::<2>() {
        (pairs, []) => Some(pairs.iter().map(|[high, low]| (high << 4 | low) as u8).collect()),
        _ => None,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn tokens_come_back_and_are_ordered_as_text() {
        let at = |operation, is_invalidation, fragment| Place::At {
            operation,
            is_invalidation,
            fragment,
        };
        let mut before = String::new();
        for time in [0, 7 << 32 | 3, u64::MAX] {
            let places = [at(0, false, 0), at(0, false, 1), at(0, true, 0), at(70_000, false, 0)];
            for place in [Place::Before].into_iter().chain(places).chain([Place::Behind]) {
                let token = ResumeToken {
                    time: ClusterTime(time),
                    place,
                };
                let document = token.to_document();
                assert_eq!(ResumeToken::parse(&document).unwrap(), token);
                let text = document.get_str("_data").unwrap().to_owned();
                assert!(text > before && text.starts_with("82"), "{text} after {before}");
                before = text;
            }
        }
    }

    #[test]
    fn the_end_of_a_token_does_not_count() {
        let token = ResumeToken::before(ClusterTime(7 << 32 | 3));
        let document = token.to_document();
        let text = document.get_str("_data").unwrap();
        for other in [&text[..text.len() - 2], &format!("{text}FF"), &format!("{text}00")] {
            assert_eq!(
                ResumeToken::parse(&rawdoc! { "_data": other }).unwrap(),
                token,
                "{other}"
            );
        }
    }

    #[test]
    fn what_is_no_token_is_refused() {
        for (document, code) in [
            (rawdoc! {}, 40647),
            (rawdoc! { "_data": 1 }, 40647),
            (rawdoc! { "_data": "" }, 40649),
            (rawdoc! { "_data": "8" }, 9),
            (rawdoc! { "_data": "zz" }, 9),
            (rawdoc! { "_data": "82".repeat(19) }, 260),
            (rawdoc! { "_data": "82".repeat(17) }, 15),
            (rawdoc! { "_data": "00".repeat(19) }, 260),
            (rawdoc! { "_data": "00" }, 260),
            (rawdoc! { "_data": "00", "_typeBits": "x" }, 40648),
        ] {
            let error = ResumeToken::parse(&document).unwrap_err();
            assert_eq!(error.code(), Some(ErrorCode(code)), "{document:?}");
        }
    }
}
