//! MongoDB's error codes: the number and the name that drivers see.
//!
//! Numbers without a name of their own are "location" codes and show as `Location<number>`.

use std::fmt;

/// The code of an error reply.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ErrorCode(pub i32);

macro_rules! error_codes {
    ($($name:ident = $number:literal,)*) => {
        #[allow(non_upper_case_globals, missing_docs, reason = "the names are MongoDB's own and need no second description")]
        impl ErrorCode {
            $(pub const $name: ErrorCode = ErrorCode($number);)*

            fn known_name(self) -> Option<&'static str> {
                match self.0 {
                    $($number => Some(stringify!($name)),)*
                    _ => None,
                }
            }
        }
    };
}

error_codes! {
    InternalError = 1,
    BadValue = 2,
    NoSuchKey = 4,
    GraphContainsCycle = 5,
    HostUnreachable = 6,
    HostNotFound = 7,
    UnknownError = 8,
    FailedToParse = 9,
    UserNotFound = 11,
    UnsupportedFormat = 12,
    Unauthorized = 13,
    TypeMismatch = 14,
    Overflow = 15,
    InvalidLength = 16,
    ProtocolError = 17,
    AuthenticationFailed = 18,
    IllegalOperation = 20,
    InvalidBSON = 22,
    AlreadyInitialized = 23,
    LockTimeout = 24,
    NamespaceNotFound = 26,
    IndexNotFound = 27,
    PathNotViable = 28,
    RoleNotFound = 31,
    ConflictingUpdateOperators = 40,
    CursorNotFound = 43,
    NoMatchingDocument = 47,
    NamespaceExists = 48,
    MaxTimeMSExpired = 50,
    ManualInterventionRequired = 51,
    DollarPrefixedFieldName = 52,
    InvalidIdField = 53,
    NotSingleValueField = 54,
    EmptyFieldName = 56,
    DottedFieldName = 57,
    CommandNotFound = 59,
    ShardKeyNotFound = 61,
    StaleShardVersion = 63,
    WriteConcernFailed = 64,
    ImmutableField = 66,
    CannotCreateIndex = 67,
    IndexAlreadyExists = 68,
    InvalidOptions = 72,
    InvalidNamespace = 73,
    NodeNotFound = 74,
    NoReplicationEnabled = 76,
    UnknownReplWriteConcern = 79,
    IndexOptionsConflict = 85,
    IndexKeySpecsConflict = 86,
    NetworkTimeout = 89,
    ShutdownInProgress = 91,
    InvalidReplicaSetConfig = 93,
    NotYetInitialized = 94,
    NotSecondary = 95,
    OperationFailed = 96,
    UnsatisfiableWriteConcern = 100,
    NewReplicaSetConfigurationIncompatible = 103,
    NodeNotElectable = 104,
    ConfigurationInProgress = 109,
    CannotInitializeNodeWithData = 110,
    NotExactValueField = 111,
    WriteConflict = 112,
    CommandNotSupported = 115,
    ConflictingOperationInProgress = 117,
    DocumentValidationFailure = 121,
    NotAReplicaSet = 123,
    CommandFailed = 125,
    FailedToSatisfyReadPreference = 133,
    CappedPositionLost = 136,
    JSInterpreterFailure = 139,
    InvalidSSLConfiguration = 140,
    CursorInUse = 143,
    ExceededMemoryLimit = 146,
    StaleEpoch = 150,
    IncompatibleCollationVersion = 161,
    ViewDepthLimitExceeded = 165,
    CommandNotSupportedOnView = 166,
    OptionNotSupportedOnView = 167,
    InvalidPipelineOperator = 168,
    CannotIndexParallelArrays = 171,
    QueryPlanKilled = 175,
    AmbiguousIndexKeyPattern = 181,
    InvalidViewDefinition = 182,
    ClientMetadataCannotBeMutated = 186,
    PrimarySteppedDown = 189,
    InvalidIndexSpecificationOption = 197,
    NoSuchSession = 206,
    ClusterTimeFailsRateLimiter = 205,
    InvalidUUID = 207,
    KeyNotFound = 211,
    IncompleteTransactionHistory = 217,
    UpdateOperationFailed = 218,
    CloseChangeStream = 222,
    IllegalOpMsgFlag = 223,
    QueryFeatureNotAllowed = 224,
    TransactionTooOld = 225,
    MaxSubPipelineDepthExceeded = 232,
    RetryChangeStream = 234,
    CursorKilled = 237,
    NotImplemented = 238,
    SnapshotTooOld = 239,
    ConversionFailure = 241,
    SnapshotUnavailable = 246,
    NoSuchTransaction = 251,
    TransactionCommitted = 256,
    TransactionTooLarge = 257,
    InvalidResumeToken = 260,
    TooManyLogicalSessions = 261,
    ExceededTimeLimit = 262,
    OperationNotSupportedInTransaction = 263,
    TooManyFilesOpen = 264,
    PreparedTransactionInProgress = 267,
    IndexBuildAborted = 276,
    UnsatisfiableCommitQuorum = 278,
    ChangeStreamFatalError = 280,
    ChangeStreamHistoryLost = 286,
    ChecksumMismatch = 288,
    TransactionExceededLifetimeLimitSeconds = 290,
    NoQueryExecutionPlans = 291,
    QueryExceededMemoryLimitNoDiskUseAllowed = 292,
    APIVersionError = 322,
    APIStrictError = 323,
    APIDeprecationError = 324,
    MechanismUnavailable = 334,
    APIMismatchError = 347,
    UnsupportedOpQueryCommand = 352,
    CannotConvertIndexToUnique = 359,
    CollectionUUIDMismatch = 361,
    UserWritesBlocked = 371,
    ReauthenticationRequired = 391,
    QueryRejectedBySettings = 411,
    IngressRequestRateLimitExceeded = 462,
    SocketException = 9001,
    CannotGrowDocumentInCappedNamespace = 10003,
    NotWritablePrimary = 10107,
    BSONObjectTooLarge = 10334,
    DuplicateKey = 11000,
    InterruptedAtShutdown = 11600,
    Interrupted = 11601,
    InterruptedDueToReplStateChange = 11602,
    MergeStageNoMatchingDocument = 13113,
    DatabaseDifferCase = 13297,
    StaleConfig = 13388,
    NotPrimaryNoSecondaryOk = 13435,
    NotPrimaryOrSecondary = 13436,
    OutOfDiskSpace = 14031,
    SearchNotEnabled = 31082,
    NotARetryableWriteCommand = 50768,
}

impl ErrorCode {
    /// The `codeName` of replies.
    pub fn name(self) -> String {
        self.known_name()
            .map_or_else(|| format!("Location{}", self.0), str::to_owned)
    }
}

impl fmt::Debug for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}({})", self.name(), self.0)
    }
}
