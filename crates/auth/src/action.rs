//! What a privilege allows, by the names MongoDB gives to it, and sets of it.

use std::fmt;
use std::ops::BitOr;
use std::str::FromStr;

macro_rules! actions {
    ($($variant:ident = $name:literal),* $(,)?) => {
        /// Something that may be done to a resource.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[allow(missing_docs, reason = "the names are those of MongoDB's manual, which explains them")]
        pub enum Action { $($variant),* }

        impl Action {
            /// All of them, in the order of their names.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// The name as roles are written with it.
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),* }
            }
        }

        impl FromStr for Action {
            type Err = ();

            fn from_str(name: &str) -> Result<Self, ()> {
                match name { $($name => Ok(Self::$variant),)* _ => Err(()) }
            }
        }
    };
}

// Those of features that are not built are known, too: roles are restored from dumps with all they hold.
actions! {
    AddShard = "addShard",
    AllCollectionStats = "allCollectionStats",
    Analyze = "analyze",
    AnalyzeShardKey = "analyzeShardKey",
    AnyAction = "anyAction",
    AppendOplogNote = "appendOplogNote",
    ApplicationMessage = "applicationMessage",
    ApplyOps = "applyOps",
    AuditConfigure = "auditConfigure",
    AuditLogRotate = "auditLogRotate",
    AuthCheck = "authCheck",
    AuthSchemaUpgrade = "authSchemaUpgrade",
    Authenticate = "authenticate",
    BypassDefaultMaxTimeMS = "bypassDefaultMaxTimeMS",
    BypassDocumentValidation = "bypassDocumentValidation",
    BypassWriteBlockingMode = "bypassWriteBlockingMode",
    ChangeCustomData = "changeCustomData",
    ChangeOwnCustomData = "changeOwnCustomData",
    ChangeOwnPassword = "changeOwnPassword",
    ChangePassword = "changePassword",
    ChangeStream = "changeStream",
    CheckFreeMonitoringStatus = "checkFreeMonitoringStatus",
    CheckMetadataConsistency = "checkMetadataConsistency",
    CleanupOrphaned = "cleanupOrphaned",
    CleanupStructuredEncryptionData = "cleanupStructuredEncryptionData",
    ClearJumboFlag = "clearJumboFlag",
    CloseAllDatabases = "closeAllDatabases",
    CollMod = "collMod",
    CollStats = "collStats",
    Compact = "compact",
    CompactStructuredEncryptionData = "compactStructuredEncryptionData",
    ConfigureQueryAnalyzer = "configureQueryAnalyzer",
    ConnPoolStats = "connPoolStats",
    ConnPoolSync = "connPoolSync",
    ConvertToCapped = "convertToCapped",
    CpuProfiler = "cpuProfiler",
    CreateCollection = "createCollection",
    CreateDatabase = "createDatabase",
    CreateIndex = "createIndex",
    CreateRole = "createRole",
    CreateSearchIndexes = "createSearchIndexes",
    CreateUser = "createUser",
    DbCheck = "dbCheck",
    DbHash = "dbHash",
    DbStats = "dbStats",
    DropCollection = "dropCollection",
    DropConnections = "dropConnections",
    DropDatabase = "dropDatabase",
    DropIndex = "dropIndex",
    DropRole = "dropRole",
    DropSearchIndex = "dropSearchIndex",
    DropUser = "dropUser",
    EnableProfiler = "enableProfiler",
    EnableSharding = "enableSharding",
    ExportCollection = "exportCollection",
    Find = "find",
    FlushRouterConfig = "flushRouterConfig",
    ForceUuid = "forceUUID",
    Fsync = "fsync",
    GetClusterParameter = "getClusterParameter",
    GetCmdLineOpts = "getCmdLineOpts",
    GetDatabaseVersion = "getDatabaseVersion",
    GetDefaultRwConcern = "getDefaultRWConcern",
    GetLog = "getLog",
    GetParameter = "getParameter",
    GetShardMap = "getShardMap",
    GetShardVersion = "getShardVersion",
    GrantPrivilegesToRole = "grantPrivilegesToRole",
    GrantRole = "grantRole",
    GrantRolesToRole = "grantRolesToRole",
    GrantRolesToUser = "grantRolesToUser",
    HostInfo = "hostInfo",
    ImpersonateUser = "impersonate",
    ImportCollection = "importCollection",
    IndexStats = "indexStats",
    Inprog = "inprog",
    Insert = "insert",
    Internal = "internal",
    InvalidateUserCache = "invalidateUserCache",
    IssueDirectShardOperations = "issueDirectShardOperations",
    KillAnyCursor = "killAnyCursor",
    KillAnySession = "killAnySession",
    KillCursors = "killCursors",
    Killop = "killop",
    ListCachedAndActiveUsers = "listCachedAndActiveUsers",
    ListClusterCatalog = "listClusterCatalog",
    ListCollections = "listCollections",
    ListCursors = "listCursors",
    ListDatabases = "listDatabases",
    ListIndexes = "listIndexes",
    ListSampledQueries = "listSampledQueries",
    ListSearchIndexes = "listSearchIndexes",
    ListSessions = "listSessions",
    ListShards = "listShards",
    LogRotate = "logRotate",
    MoveChunk = "moveChunk",
    MoveCollection = "moveCollection",
    Netstat = "netstat",
    OidReset = "oidReset",
    OperationMetrics = "operationMetrics",
    PerformRawDataOperations = "performRawDataOperations",
    PlanCacheIndexFilter = "planCacheIndexFilter",
    PlanCacheRead = "planCacheRead",
    PlanCacheWrite = "planCacheWrite",
    QuerySettings = "querySettings",
    QueryStatsRead = "queryStatsRead",
    QueryStatsReadTransformed = "queryStatsReadTransformed",
    ReIndex = "reIndex",
    RefineCollectionShardKey = "refineCollectionShardKey",
    Remove = "remove",
    RemoveShard = "removeShard",
    RenameCollection = "renameCollection",
    RenameCollectionSameDb = "renameCollectionSameDB",
    RepairDatabase = "repairDatabase",
    ReplSetConfigure = "replSetConfigure",
    ReplSetGetConfig = "replSetGetConfig",
    ReplSetGetStatus = "replSetGetStatus",
    ReplSetHeartbeat = "replSetHeartbeat",
    ReplSetReconfig = "replSetReconfig",
    ReplSetResizeOplog = "replSetResizeOplog",
    ReplSetStateChange = "replSetStateChange",
    ReshardCollection = "reshardCollection",
    Resync = "resync",
    RevokePrivilegesFromRole = "revokePrivilegesFromRole",
    RevokeRole = "revokeRole",
    RevokeRolesFromRole = "revokeRolesFromRole",
    RevokeRolesFromUser = "revokeRolesFromUser",
    RotateCertificates = "rotateCertificates",
    RunAsLessPrivilegedUser = "runAsLessPrivilegedUser",
    RunTenantMigration = "runTenantMigration",
    ServerStatus = "serverStatus",
    SetAuthenticationRestriction = "setAuthenticationRestriction",
    SetChangeStreamState = "setChangeStreamState",
    SetClusterParameter = "setClusterParameter",
    SetDefaultRwConcern = "setDefaultRWConcern",
    SetFeatureCompatibilityVersion = "setFeatureCompatibilityVersion",
    SetFreeMonitoring = "setFreeMonitoring",
    SetParameter = "setParameter",
    SetUserWriteBlockMode = "setUserWriteBlockMode",
    ShardCollection = "shardCollection",
    ShardedDataDistribution = "shardedDataDistribution",
    ShardingState = "shardingState",
    Shutdown = "shutdown",
    SplitChunk = "splitChunk",
    SplitVector = "splitVector",
    StorageDetails = "storageDetails",
    Top = "top",
    Touch = "touch",
    TrafficRecord = "trafficRecord",
    TransitionFromDedicatedConfigServer = "transitionFromDedicatedConfigServer",
    TransitionToDedicatedConfigServer = "transitionToDedicatedConfigServer",
    UnlockFsync = "unlock",
    UnshardCollection = "unshardCollection",
    Update = "update",
    UpdateRole = "updateRole",
    UpdateSearchIndex = "updateSearchIndex",
    UpdateUser = "updateUser",
    UseTenant = "useTenant",
    UseUuid = "useUUID",
    Validate = "validate",
    ViewRole = "viewRole",
    ViewUser = "viewUser",
}

const WORDS: usize = 3;
const _: () = assert!(Action::ALL.len() <= 64 * WORDS);

/// A set of actions.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct ActionSet([u64; WORDS]);

impl ActionSet {
    /// None.
    pub const EMPTY: Self = Self([0; WORDS]);

    /// These.
    pub const fn of(actions: &[Action]) -> Self {
        let mut words = [0; WORDS];
        let mut index = 0;
        while index < actions.len() {
            let bit = actions[index] as usize;
            words[bit / 64] |= 1 << (bit % 64);
            index += 1;
        }
        Self(words)
    }

    /// All there are.
    pub const fn all() -> Self {
        Self::of(Action::ALL)
    }

    /// These and those.
    pub const fn and(self, other: Self) -> Self {
        let ([a, b, c], [d, e, f]) = (self.0, other.0);
        Self([a | d, b | e, c | f])
    }

    /// These without those.
    pub const fn without(self, other: Self) -> Self {
        let ([a, b, c], [d, e, f]) = (self.0, other.0);
        Self([a & !d, b & !e, c & !f])
    }

    /// Is there none?
    pub const fn is_empty(self) -> bool {
        let [a, b, c] = self.0;
        a | b | c == 0
    }

    /// Is `action` one of them? `anyAction` stands for every one.
    pub const fn has(self, action: Action) -> bool {
        let (bit, any) = (action as usize, Action::AnyAction as usize);
        (self.0[bit / 64] >> (bit % 64) | self.0[any / 64] >> (any % 64)) & 1 == 1
    }

    /// Those of them that `held` does not have.
    pub(crate) const fn missing_from(self, held: Self) -> Self {
        if held.has(Action::AnyAction) {
            Self::EMPTY
        } else {
            self.without(held)
        }
    }

    /// Each of them, in the order of their names.
    pub fn iter(self) -> impl Iterator<Item = Action> {
        let of = move |action: &Action| self.0[*action as usize / 64] >> (*action as usize % 64) & 1 == 1;
        Action::ALL.iter().copied().filter(of)
    }
}

impl BitOr for ActionSet {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        self.and(other)
    }
}

impl fmt::Debug for ActionSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter().map(Action::name)).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_back_to_their_actions() {
        for action in Action::ALL {
            assert_eq!(action.name().parse(), Ok(*action));
        }
        assert_eq!("Find".parse::<Action>(), Err(()));
    }

    #[test]
    fn a_set_has_what_was_put_into_it() {
        let set = ActionSet::of(&[Action::AddShard, Action::Find, Action::ViewUser]);
        assert_eq!(
            set.iter().map(Action::name).collect::<Vec<_>>(),
            ["addShard", "find", "viewUser"]
        );
        assert!(set.has(Action::ViewUser) && !set.has(Action::Insert));
        assert!(set.without(set).is_empty() && !set.is_empty());
        assert!(ActionSet::of(&[Action::AnyAction]).has(Action::Insert));
        assert_eq!(ActionSet::all().iter().count(), Action::ALL.len());
    }
}
