//! The error of a command, and the one table that turns the storage layer's errors into MongoDB's codes.

use bson::raw::RawBsonRef;
use bson::{Document, doc};
use query::QueryError;
use query::raw::Malformed;
use storage::{DuplicateKey, Interrupted, StorageError};
use wire::ErrorCode;
use wire::limits::DOCUMENT_INTERNAL_BYTES_MAX;

/// The result of a command.
pub type Result<T> = std::result::Result<T, CommandError>;

/// What a client is told: code, text, and fields some errors add.
#[derive(Debug, Clone)]
pub struct CommandError {
    /// The code; its name is derived.
    pub code: ErrorCode,
    /// `errmsg`.
    pub message: String,
    /// Fields beside code and message, such as `keyPattern` and `keyValue`.
    pub extra: Option<Box<Document>>,
}

impl CommandError {
    /// An error without extra fields.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            extra: None,
        }
    }

    /// `BadValue` (2).
    pub fn bad_value(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::BadValue, message)
    }

    /// `NotImplemented` (238), naming what is not built.
    pub fn not_implemented(what: impl std::fmt::Display) -> Self {
        Self::new(ErrorCode::NotImplemented, format!("{what} is not implemented"))
    }

    /// A document or a reply that no client could take (10334).
    pub fn too_large(bytes: usize) -> Self {
        Self::new(
            ErrorCode::BSONObjectTooLarge,
            format!(
                "BSONObj size: {bytes} (0x{bytes:X}) is invalid. Size must be between 0 and {DOCUMENT_INTERNAL_BYTES_MAX}(16MB)"
            ),
        )
    }

    /// Too much is asked at this moment (462). By the labels drivers wait a moment and send it again.
    pub fn overloaded(message: impl Into<String>) -> Self {
        let labels = doc! { "errorLabels": ["SystemOverloadedError", "RetryableError"] };
        Self {
            extra: Some(Box::new(labels)),
            ..Self::new(ErrorCode::IngressRequestRateLimitExceeded, message)
        }
    }

    /// Another member is to be asked.
    pub fn is_of_another_member(&self) -> bool {
        matches!(
            self.code,
            ErrorCode::NotWritablePrimary | ErrorCode::NotPrimaryNoSecondaryOk | ErrorCode::NotPrimaryOrSecondary
        )
    }

    /// Ends the command, not only the statement: the operation was interrupted, or the server cannot go on.
    pub fn is_fatal(&self) -> bool {
        matches!(
            self.code,
            ErrorCode::MaxTimeMSExpired
                | ErrorCode::Interrupted
                | ErrorCode::InterruptedAtShutdown
                | ErrorCode::InterruptedDueToReplStateChange
                | ErrorCode::ShutdownInProgress
                | ErrorCode::CursorKilled
                | ErrorCode::TransactionExceededLifetimeLimitSeconds
                | ErrorCode::InternalError
                | ErrorCode::OutOfDiskSpace
                | ErrorCode::TooManyFilesOpen
        )
    }

    /// The whole transaction may be tried again: another one was in the way, or its state cannot be had any more.
    pub fn is_transient(&self) -> bool {
        matches!(
            self.code,
            ErrorCode::WriteConflict
                | ErrorCode::LockTimeout
                | ErrorCode::SnapshotTooOld
                | ErrorCode::SnapshotUnavailable
                | ErrorCode::NoSuchTransaction
                | ErrorCode::PreparedTransactionInProgress
        ) || self.is_retryable()
    }

    /// A write or a commit may be sent again: this server cannot answer now.
    pub fn is_retryable(&self) -> bool {
        matches!(
            self.code,
            ErrorCode::NotWritablePrimary
                | ErrorCode::NotPrimaryNoSecondaryOk
                | ErrorCode::NotPrimaryOrSecondary
                | ErrorCode::PrimarySteppedDown
                | ErrorCode::InterruptedDueToReplStateChange
                | ErrorCode::InterruptedAtShutdown
                | ErrorCode::ShutdownInProgress
        )
    }

    /// A change stream may be opened anew where it was: the server cannot answer now.
    pub fn is_resumable(&self) -> bool {
        matches!(
            self.code,
            ErrorCode::HostUnreachable
                | ErrorCode::HostNotFound
                | ErrorCode::NetworkTimeout
                | ErrorCode::FailedToSatisfyReadPreference
                | ErrorCode::ExceededTimeLimit
                | ErrorCode::RetryChangeStream
                | ErrorCode::StaleShardVersion
                | ErrorCode::StaleEpoch
                | ErrorCode::StaleConfig
                | ErrorCode::SocketException
        ) || self.is_retryable()
    }

    /// Adds a label to `errorLabels`, once.
    pub fn label(&mut self, label: &str) {
        let extra = self.extra.get_or_insert_default();
        match extra.get_array_mut("errorLabels") {
            Ok(labels) if labels.iter().any(|known| known.as_str() == Some(label)) => {}
            Ok(labels) => labels.push(label.into()),
            Err(_) => drop(extra.insert("errorLabels", vec![label])),
        }
    }

    /// The fields of a `writeErrors` entry or of a failed command's reply, without `ok`.
    pub fn to_document(&self) -> Document {
        let mut document = doc! { "code": self.code.0, "codeName": self.code.name(), "errmsg": &self.message };
        if let Some(extra) = &self.extra {
            document.extend(extra.iter().map(|(name, value)| (name.clone(), value.clone())));
        }
        document
    }
}

impl std::fmt::Display for CommandError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}: {}", self.code, self.message)
    }
}

impl From<bson::error::Error> for CommandError {
    fn from(error: bson::error::Error) -> Self {
        Self::new(ErrorCode::InvalidBSON, error.to_string())
    }
}

/// Requests are validated when they come in: only documents from elsewhere can be malformed.
impl From<Malformed> for CommandError {
    fn from(_: Malformed) -> Self {
        Self::new(ErrorCode::InvalidBSON, "invalid BSON")
    }
}

/// The one table from the storage layer's errors to MongoDB's codes.
impl From<StorageError> for CommandError {
    fn from(error: StorageError) -> Self {
        let code = match &error {
            StorageError::DuplicateKey(duplicate) => return duplicate_key(duplicate),
            StorageError::NamespaceExists(_) => ErrorCode::NamespaceExists,
            StorageError::NamespaceNotFound(_) => ErrorCode::NamespaceNotFound,
            StorageError::InvalidNamespace { .. } => ErrorCode::InvalidNamespace,
            StorageError::DatabaseDiffersInCase { .. } => ErrorCode::DatabaseDifferCase,
            StorageError::IsView(_) => ErrorCode::CommandNotSupportedOnView,
            StorageError::IndexNotFound(_) => ErrorCode::IndexNotFound,
            StorageError::IndexOptionsConflict(_) => ErrorCode::IndexOptionsConflict,
            StorageError::IndexKeySpecsConflict(_) => ErrorCode::IndexKeySpecsConflict,
            StorageError::CannotCreateIndex(_) => ErrorCode::CannotCreateIndex,
            StorageError::InvalidOptions(_) | StorageError::CannotDropIdIndex => ErrorCode::InvalidOptions,
            StorageError::CannotIndexParallelArrays(_) => ErrorCode::CannotIndexParallelArrays,
            StorageError::CannotIndex(code, _) => ErrorCode(*code),
            StorageError::CannotMakeKey(_) | StorageError::InvalidDocument(_) | StorageError::NoJournal => {
                ErrorCode::BadValue
            }
            StorageError::MembersAreChanging => ErrorCode::ConfigurationInProgress,
            StorageError::UserWritesBlocked => ErrorCode::UserWritesBlocked,
            StorageError::BackupOpen => ErrorCode(50886),
            StorageError::IndexBuildAborted(_) => ErrorCode::IndexBuildAborted,
            StorageError::TargetChanged(..) => ErrorCode::CommandFailed,
            StorageError::DocumentTooLarge { .. } => ErrorCode::BSONObjectTooLarge,
            StorageError::UnitTooLarge { .. } => ErrorCode::TransactionTooLarge,
            StorageError::Interrupted(interrupted) => interrupted_code(*interrupted),
            StorageError::MemoryExceeded(_) => ErrorCode::ExceededMemoryLimit,
            StorageError::WouldWait | StorageError::WriteConflict => ErrorCode::WriteConflict,
            StorageError::NotInTransaction(_) => ErrorCode::OperationNotSupportedInTransaction,
            StorageError::CollectionDropped(_) => ErrorCode::QueryPlanKilled,
            StorageError::OutOfSpace(_) => ErrorCode::OutOfDiskSpace,
            StorageError::OutOfDescriptors(_) => ErrorCode::TooManyFilesOpen,
            StorageError::Closed => ErrorCode::ShutdownInProgress,
            StorageError::SnapshotTooOld(_) => ErrorCode::SnapshotTooOld,
            StorageError::HistoryLost => ErrorCode::ChangeStreamHistoryLost,
            StorageError::SnapshotUnavailable(_) => ErrorCode::SnapshotUnavailable,
            _ => ErrorCode::InternalError,
        };
        Self::new(code, error.to_string())
    }
}

fn interrupted_code(interrupted: Interrupted) -> ErrorCode {
    match interrupted {
        Interrupted::Killed => ErrorCode::Interrupted,
        Interrupted::Shutdown => ErrorCode::InterruptedAtShutdown,
        Interrupted::CursorKilled => ErrorCode::CursorKilled,
        Interrupted::TimeExpired => ErrorCode::MaxTimeMSExpired,
        Interrupted::LockTimeout(_) => ErrorCode::LockTimeout,
        Interrupted::RoleChanged => ErrorCode::InterruptedDueToReplStateChange,
        Interrupted::TransactionExpired => ErrorCode::TransactionExceededLifetimeLimitSeconds,
    }
}

/// Bytes of a key that are shown in the message of a duplicate, and of one that is told beside it. A reply that has no
/// room for the error hides what was written, or never comes.
const SHOWN_KEY_BYTES_MAX: usize = 16 * 1024;
const TOLD_KEY_BYTES_MAX: usize = 1024 * 1024;

fn duplicate_key(duplicate: &DuplicateKey) -> CommandError {
    let decode = |raw: &bson::RawDocument| Document::try_from(raw).unwrap_or_default();
    let shown = |raw| keys::describe::describe_within(RawBsonRef::Document(raw), SHOWN_KEY_BYTES_MAX);
    let mut facts = doc! { "keyPattern": decode(&duplicate.key_pattern) };
    if duplicate.key_value.as_bytes().len() <= TOLD_KEY_BYTES_MAX {
        facts.insert("keyValue", decode(&duplicate.key_value));
    }
    let mut collation = String::new();
    if let Some(document) = &duplicate.collation {
        collation = format!(" collation: {}", shown(document));
        facts.insert("collation", decode(document));
    }
    CommandError {
        code: ErrorCode::DuplicateKey,
        message: format!(
            "E11000 duplicate key error collection: {} index: {}{collation} dup key: {}",
            duplicate.namespace,
            duplicate.index,
            shown(&duplicate.key_value),
        ),
        extra: Some(Box::new(facts)),
    }
}

/// An operation that was killed or ran out of time.
impl From<Interrupted> for CommandError {
    fn from(interrupted: Interrupted) -> Self {
        Self::new(interrupted_code(interrupted), interrupted.to_string())
    }
}

impl From<QueryError> for CommandError {
    fn from(error: QueryError) -> Self {
        match error {
            QueryError::Storage(error) => error.into(),
            QueryError::Code(coded) => Self {
                code: coded.code,
                message: coded.message,
                extra: coded
                    .extra
                    .and_then(|extra| Document::try_from(&*extra).ok())
                    .map(Box::new),
            },
            other => Self::new(ErrorCode::InternalError, other.to_string()),
        }
    }
}

/// Sources that commands make for pipelines report through the pipeline.
impl From<CommandError> for QueryError {
    fn from(error: CommandError) -> Self {
        QueryError::new(error.code, error.message)
    }
}
