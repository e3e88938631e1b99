//! What a client asks, as the server hands it on, and what that weighed.

use bson::raw::RawDocument;
use wire::InvalidDocument;

/// Has a request handled anew that was put off ([`crate::Outcome::put_off`]). May be called before that was
/// answered, and by any thread.
pub type Resume = Box<dyn FnOnce() + Send>;

/// A request, parsed from OP_MSG or a legacy OP_QUERY on `*.$cmd`. All documents in it have been validated.
pub struct Request<'m> {
    /// The command document.
    pub body: &'m RawDocument,
    /// Document sequences (kind 1 sections): identifier and the documents, back to back.
    pub sequences: &'m [(&'m str, &'m [u8])],
    /// Documents of it that may not be stored as they came, see [`wire::mask_invalid`].
    pub invalid: &'m [InvalidDocument],
    /// `Some(db)` for OP_QUERY, where the database stands in the namespace and not in `$db`.
    pub legacy_database: Option<&'m str>,
    /// Somebody waits for the reply (no `moreToCome`).
    pub has_reply: bool,
    /// The client accepts a chain of replies (`exhaustAllowed`).
    pub exhaust_allowed: bool,
    /// It has been answered before: this is a later reply of a chain.
    pub is_repeated: bool,
    /// Where the request may be put off instead of waiting for its turn with this thread.
    pub resume: Option<&'m dyn Fn() -> Resume>,
    /// It was put off, and its time has come.
    pub is_resumed: bool,
    /// So many wait for a thread that it is refused if it needs a ticket. One without a reply never is.
    pub is_too_many: bool,
}

impl<'m> Request<'m> {
    /// One that is only its body: it comes for the first time, and is answered once, by this thread.
    pub fn of(body: &'m RawDocument) -> Self {
        Self {
            body,
            sequences: &[],
            invalid: &[],
            legacy_database: None,
            has_reply: true,
            exhaust_allowed: false,
            is_repeated: false,
            resume: None,
            is_resumed: false,
            is_too_many: false,
        }
    }
}

/// Bytes of one request and its reply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// The request, decompressed.
    pub bytes_in: u64,
    /// The reply, before compression.
    pub bytes_out: u64,
    /// The request as it came.
    pub physical_bytes_in: u64,
    /// The reply as it went.
    pub physical_bytes_out: u64,
}
