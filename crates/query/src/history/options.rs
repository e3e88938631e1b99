//! What a client asks of a change stream: the argument of `$changeStream`, and what the stream is opened on.

use super::token::{Place, ResumeToken};
use crate::QueryError;
use crate::value::scan::Malformed;
use bson::{RawBsonRef, RawDocument};
use storage::{ClusterTime, Namespace};
use wire::ErrorCode;

/// Which images of a document an event carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Image {
    /// None, but for what the operation itself says.
    Off,
    /// The newest version there is (`updateLookup`).
    Lookup,
    /// That of the event, where it was kept.
    WhenAvailable,
    /// That of the event; without it the stream fails.
    Required,
}

/// Where a stream begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Start {
    Now,
    At(ClusterTime),
    After(ResumeToken),
}

/// What a stream follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Scope {
    Collection(Namespace),
    Database(String),
    Cluster,
}

/// The argument of `$changeStream`.
#[derive(Debug)]
pub(super) struct Options {
    pub(super) full_document: Image,
    pub(super) before_change: Image,
    pub(super) start: Start,
    pub(super) is_expanded: bool,
    pub(super) of_cluster: bool,
}

fn failure<T>(code: ErrorCode, text: impl Into<String>) -> Result<T, QueryError> {
    Err(QueryError::new(code, text))
}

impl Options {
    pub(super) fn parse(specification: &RawDocument) -> Result<Self, QueryError> {
        let mut options = Self {
            full_document: Image::Off,
            before_change: Image::Off,
            start: Start::Now,
            is_expanded: false,
            of_cluster: false,
        };
        let (mut tokens, mut times) = (0, 0);
        for field in specification {
            let (name, value) = field.map_err(|_| Malformed)?;
            let name = name.as_str();
            match name {
                // As if they were not given.
                "fullDocument" | "fullDocumentBeforeChange" | "resumeAfter" | "startAfter" | "startAtOperationTime"
                    if matches!(value, RawBsonRef::Null | RawBsonRef::Undefined) => {}
                "fullDocument" => options.full_document = image(name, value, true)?,
                "fullDocumentBeforeChange" => options.before_change = image(name, value, false)?,
                "showExpandedEvents" => options.is_expanded = flag(name, value)?,
                "allChangesForCluster" => options.of_cluster = flag(name, value)?,
                // A diagnostic form of what changed, and events that only tools ask for.
                "showRawUpdateDescription" | "showSystemEvents" | "showMigrationEvents" => {
                    if flag(name, value)? {
                        return Err(QueryError::not_implemented(&format!("$changeStream.{name}")));
                    }
                }
                "resumeAfter" | "startAfter" => {
                    let Some(token) = value.as_document() else {
                        return wrong_type(name, value, "object");
                    };
                    let token = ResumeToken::parse(token)?;
                    if name == "resumeAfter"
                        && matches!(
                            token.place,
                            Place::At {
                                is_invalidation: true,
                                ..
                            }
                        )
                    {
                        return failure(
                            ErrorCode::InvalidResumeToken,
                            "Attempting to resume a change stream using 'resumeAfter' is not allowed from an invalidate notification.",
                        );
                    }
                    options.start = Start::After(token);
                    tokens += 1;
                }
                "startAtOperationTime" => {
                    let RawBsonRef::Timestamp(time) = value else {
                        return wrong_type(name, value, "timestamp");
                    };
                    options.start = Start::At(time.into());
                    times += 1;
                }
                other => {
                    return failure(
                        ErrorCode(40415),
                        format!("BSON field '$changeStream.{other}' is an unknown field."),
                    );
                }
            }
        }
        if tokens > 1 {
            let text = "Do not specify both 'resumeAfter' and 'startAfter' in a $changeStream stage";
            return failure(ErrorCode(50865), text);
        }
        if tokens + times > 1 {
            let text = "Only one type of resume option is allowed, but multiple were found.";
            return failure(ErrorCode(40674), text);
        }
        Ok(options)
    }
}

fn wrong_type<T>(name: &str, value: RawBsonRef<'_>, expected: &str) -> Result<T, QueryError> {
    let found = crate::value::Value::from_raw(value).type_name();
    failure(
        ErrorCode::TypeMismatch,
        format!("BSON field '$changeStream.{name}' is the wrong type '{found}', expected type '{expected}'"),
    )
}

fn flag(name: &str, value: RawBsonRef<'_>) -> Result<bool, QueryError> {
    match value.as_bool() {
        Some(flag) => Ok(flag),
        None => wrong_type(name, value, "bool"),
    }
}

fn image(name: &str, value: RawBsonRef<'_>, of_the_new: bool) -> Result<Image, QueryError> {
    let RawBsonRef::String(text) = value else {
        return wrong_type(name, value, "string");
    };
    match (text, of_the_new) {
        ("default", true) | ("off", false) => Ok(Image::Off),
        ("updateLookup", true) => Ok(Image::Lookup),
        ("whenAvailable", _) => Ok(Image::WhenAvailable),
        ("required", _) => Ok(Image::Required),
        _ => failure(
            ErrorCode::BadValue,
            format!("Enumeration value '{text}' for field '$changeStream.{name}' is not a valid value."),
        ),
    }
}

impl Scope {
    /// What a stream that is opened on a namespace follows.
    pub(super) fn of(ns: Option<&Namespace>, db: &str, options: &Options) -> Result<Self, QueryError> {
        if options.of_cluster {
            return match (ns, db) {
                (None, "admin") => Ok(Self::Cluster),
                _ => failure(
                    ErrorCode::InvalidOptions,
                    "A $changeStream with 'allChangesForCluster:true' may only be opened on the 'admin' database, and with no collection name; found ".to_owned()
                        + ns.map_or(db, |ns| ns.as_str()),
                ),
            };
        }
        if matches!(db, "admin" | "config" | "local") {
            let text = format!("$changeStream may not be opened on the internal {db} database");
            return failure(ErrorCode::InvalidNamespace, text);
        }
        match ns {
            Some(ns) if ns.collection().starts_with("system.") => failure(
                ErrorCode::InvalidNamespace,
                format!("$changeStream may not be opened on the internal {ns} collection"),
            ),
            Some(ns) => Ok(Self::Collection(ns.clone())),
            None => Ok(Self::Database(db.to_owned())),
        }
    }

    /// Whether it follows what happens to a collection.
    pub(super) fn has(&self, ns: &Namespace) -> bool {
        match self {
            Self::Collection(own) => own == ns,
            Self::Database(db) => ns.db() == db && !ns.collection().starts_with("system."),
            Self::Cluster => {
                !matches!(ns.db(), "admin" | "config" | "local") && !ns.collection().starts_with("system.")
            }
        }
    }

    /// Whether it follows what happens to a database as a whole.
    pub(super) fn has_database(&self, db: &str) -> bool {
        match self {
            // Its own collection is dropped before, and that is an event of its own.
            Self::Collection(_) => false,
            Self::Database(own) => own == db,
            Self::Cluster => !matches!(db, "admin" | "config" | "local"),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::{Image, Options, Start};
    use bson::{RawDocumentBuf, Timestamp, rawdoc};
    use storage::ClusterTime;

    fn code(specification: RawDocumentBuf) -> i32 {
        Options::parse(&specification).unwrap_err().code().unwrap().0
    }

    #[test]
    fn a_null_is_as_nothing() {
        let null = rawdoc! {
            "fullDocument": null, "fullDocumentBeforeChange": null, "resumeAfter": null, "startAfter": null,
        };
        let options = Options::parse(&null).unwrap();
        assert_eq!((options.full_document, options.start), (Image::Off, Start::Now));
        let time = Timestamp { time: 5, increment: 1 };
        let beside = Options::parse(&rawdoc! { "startAfter": null, "startAtOperationTime": time }).unwrap();
        assert_eq!(beside.start, Start::At(ClusterTime::from(time)));
        assert_eq!(code(rawdoc! { "showExpandedEvents": null }), 14);
        assert_eq!(code(rawdoc! { "allChangesForCluster": null }), 14);
    }

    #[test]
    fn a_stream_begins_at_one_place() {
        let token = super::ResumeToken::before(ClusterTime(1)).to_document();
        let time = Timestamp { time: 5, increment: 1 };
        assert_eq!(
            code(rawdoc! { "resumeAfter": token.clone(), "startAfter": token.clone() }),
            50865
        );
        assert_eq!(
            code(rawdoc! { "startAfter": token, "startAtOperationTime": time }),
            40674
        );
        assert_eq!(code(rawdoc! { "": "x" }), 40415);
    }
}
