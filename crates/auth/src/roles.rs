//! The roles that every server has, and what they allow: as MongoDB's manual lists it.

use crate::action::{Action, ActionSet};
use crate::privileges::{Privilege, Resource};

/// A role's name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RoleName {
    /// The database it is defined on.
    pub database: String,
    /// Its name there.
    pub role: String,
}

impl RoleName {
    /// The role `role` of `database`.
    pub fn new(database: &str, role: &str) -> Self {
        Self {
            database: database.to_owned(),
            role: role.to_owned(),
        }
    }

    /// Is it one of those that every server has?
    pub fn is_builtin(&self) -> bool {
        is_builtin(&self.database, &self.role)
    }
}

impl std::fmt::Display for RoleName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}@{}", self.role, self.database)
    }
}

/// Roles of every database.
pub const OF_DATABASES: [&str; 5] = ["dbAdmin", "dbOwner", "read", "readWrite", "userAdmin"];

/// Roles of `admin` alone.
pub const OF_ADMIN: [&str; 15] = [
    "__queryableBackup",
    "__system",
    "backup",
    "clusterAdmin",
    "clusterManager",
    "clusterMonitor",
    "dbAdminAnyDatabase",
    "directShardOperations",
    "enableSharding",
    "hostManager",
    "readAnyDatabase",
    "readWriteAnyDatabase",
    "restore",
    "root",
    "userAdminAnyDatabase",
];

use Action as A;

const READ: ActionSet = ActionSet::of(&[
    A::ChangeStream,
    A::CollStats,
    A::DbHash,
    A::DbStats,
    A::Find,
    A::KillCursors,
    A::ListCollections,
    A::ListIndexes,
    A::ListSearchIndexes,
    A::PlanCacheRead,
]);
const READ_WRITE: ActionSet = READ.and(ActionSet::of(&[
    A::ConvertToCapped,
    A::CreateCollection,
    A::CreateIndex,
    A::CreateSearchIndexes,
    A::DropCollection,
    A::DropIndex,
    A::DropSearchIndex,
    A::Insert,
    A::Remove,
    A::RenameCollectionSameDb,
    A::Update,
    A::UpdateSearchIndex,
]));
const USER_ADMIN: ActionSet = ActionSet::of(&[
    A::ChangeCustomData,
    A::ChangePassword,
    A::CreateRole,
    A::CreateUser,
    A::DropRole,
    A::DropUser,
    A::GrantRole,
    A::RevokeRole,
    A::SetAuthenticationRestriction,
    A::ViewRole,
    A::ViewUser,
]);
const DB_ADMIN: ActionSet = ActionSet::of(&[
    A::Analyze,
    A::BypassDocumentValidation,
    A::CollMod,
    A::CollStats,
    A::Compact,
    A::ConvertToCapped,
    A::CreateCollection,
    A::CreateIndex,
    A::CreateSearchIndexes,
    A::DbHash,
    A::DbStats,
    A::DropCollection,
    A::DropDatabase,
    A::DropIndex,
    A::DropSearchIndex,
    A::EnableProfiler,
    A::IndexStats,
    A::KillCursors,
    A::ListCollections,
    A::ListIndexes,
    A::ListSearchIndexes,
    A::PlanCacheIndexFilter,
    A::PlanCacheRead,
    A::PlanCacheWrite,
    A::ReIndex,
    A::RenameCollectionSameDb,
    A::StorageDetails,
    A::UpdateSearchIndex,
    A::Validate,
]);
const PROFILE_ADMIN: ActionSet = READ.and(ActionSet::of(&[
    A::ConvertToCapped,
    A::CreateCollection,
    A::DropCollection,
]));
const MONITOR_CLUSTER: ActionSet = ActionSet::of(&[
    A::CheckFreeMonitoringStatus,
    A::ConnPoolStats,
    A::GetClusterParameter,
    A::GetCmdLineOpts,
    A::GetDefaultRwConcern,
    A::GetLog,
    A::GetParameter,
    A::GetShardMap,
    A::HostInfo,
    A::Inprog,
    A::ListDatabases,
    A::ListSessions,
    A::ListShards,
    A::Netstat,
    A::OperationMetrics,
    A::QueryStatsRead,
    A::QueryStatsReadTransformed,
    A::ReplSetGetConfig,
    A::ReplSetGetStatus,
    A::ServerStatus,
    A::SetFreeMonitoring,
    A::ShardedDataDistribution,
    A::ShardingState,
    A::Top,
    A::UseUuid,
]);
const MONITOR_DATABASES: ActionSet = ActionSet::of(&[
    A::CollStats,
    A::DbStats,
    A::GetDatabaseVersion,
    A::GetShardVersion,
    A::IndexStats,
]);
const HOST_CLUSTER: ActionSet = ActionSet::of(&[
    A::ApplicationMessage,
    A::AuditLogRotate,
    A::CloseAllDatabases,
    A::ConnPoolSync,
    A::DropConnections,
    A::FlushRouterConfig,
    A::Fsync,
    A::InvalidateUserCache,
    A::KillAnyCursor,
    A::KillAnySession,
    A::Killop,
    A::LogRotate,
    A::OidReset,
    A::Resync,
    A::RotateCertificates,
    A::SetParameter,
    A::Shutdown,
    A::Touch,
    A::UnlockFsync,
]);
const MANAGER_CLUSTER: ActionSet = ActionSet::of(&[
    A::AddShard,
    A::AppendOplogNote,
    A::ApplicationMessage,
    A::CleanupOrphaned,
    A::FlushRouterConfig,
    A::GetDefaultRwConcern,
    A::ListSessions,
    A::ListShards,
    A::QuerySettings,
    A::RemoveShard,
    A::ReplSetConfigure,
    A::ReplSetGetConfig,
    A::ReplSetGetStatus,
    A::ReplSetResizeOplog,
    A::ReplSetStateChange,
    A::Resync,
    A::SetClusterParameter,
    A::SetDefaultRwConcern,
    A::SetFeatureCompatibilityVersion,
    A::SetFreeMonitoring,
    A::SetUserWriteBlockMode,
    A::TransitionFromDedicatedConfigServer,
    A::TransitionToDedicatedConfigServer,
]);
const MANAGER_DATABASES: ActionSet = ActionSet::of(&[
    A::AnalyzeShardKey,
    A::ClearJumboFlag,
    A::EnableSharding,
    A::MoveChunk,
    A::MoveCollection,
    A::RefineCollectionShardKey,
    A::ReshardCollection,
    A::SplitChunk,
    A::SplitVector,
    A::UnshardCollection,
]);
const MANAGER_OWN: ActionSet = MANAGER_DATABASES.and(ActionSet::of(&[A::Insert, A::Remove, A::Update]));
const RESTORE: ActionSet = ActionSet::of(&[
    A::BypassDocumentValidation,
    A::CollMod,
    A::ConvertToCapped,
    A::CreateCollection,
    A::CreateIndex,
    A::CreateSearchIndexes,
    A::DropCollection,
    A::Insert,
]);

/// The system collection that applications may use.
const CODE: &str = "system.js";
/// Where the profiler writes.
const PROFILE: &str = "system.profile";

/// Is there a built-in role of that name on the database?
pub fn is_builtin(database: &str, role: &str) -> bool {
    OF_DATABASES.contains(&role) || (database == "admin" && OF_ADMIN.contains(&role))
}

/// What a built-in role allows; nothing when there is no such role.
pub fn privileges(database: &str, role: &str) -> Vec<Privilege> {
    let mut list = List::default();
    if is_builtin(database, role) {
        list.add_role(database, role);
    }
    list.0
}

#[derive(Default)]
struct List(Vec<Privilege>);

impl List {
    fn on(&mut self, resource: Resource, actions: ActionSet) {
        self.0.push(Privilege { resource, actions });
    }

    fn cluster(&mut self, actions: ActionSet) {
        self.on(Resource::Cluster, actions);
    }

    /// An empty name means all.
    fn collection(&mut self, database: &str, collection: &str, actions: ActionSet) {
        self.on(Resource::collection(database, collection), actions);
    }

    /// `database` is empty for the roles of all databases, and then they see the list of these.
    fn add_role(&mut self, database: &str, role: &str) {
        match role {
            "read" | "readAnyDatabase" => self.add_data(of(database, role), READ),
            "readWrite" | "readWriteAnyDatabase" => self.add_data(of(database, role), READ_WRITE),
            "dbAdmin" | "dbAdminAnyDatabase" => {
                let database = of(database, role);
                self.collection(database, "", DB_ADMIN);
                self.collection(database, PROFILE, PROFILE_ADMIN);
                self.see_databases(database);
            }
            "userAdmin" => self.collection(database, "", USER_ADMIN),
            "userAdminAnyDatabase" => self.add_user_admin(),
            "dbOwner" => {
                for role in ["readWrite", "dbAdmin", "userAdmin"] {
                    self.add_role(database, role);
                }
            }
            "clusterMonitor" => self.add_monitor(),
            "clusterManager" => self.add_manager(),
            "hostManager" => {
                self.cluster(HOST_CLUSTER);
                self.collection("", "", ActionSet::of(&[A::KillAnyCursor, A::KillCursors]));
            }
            "clusterAdmin" => {
                for role in ["clusterMonitor", "hostManager", "clusterManager"] {
                    self.add_role(database, role);
                }
                self.collection(
                    "",
                    "",
                    ActionSet::of(&[A::DropDatabase, A::ImportCollection, A::ExportCollection]),
                );
            }
            "backup" | "__queryableBackup" => self.add_backup(),
            "restore" => self.add_restore(),
            "enableSharding" => self.collection("", "", MANAGER_DATABASES),
            "directShardOperations" => self.cluster(ActionSet::of(&[A::IssueDirectShardOperations])),
            "root" => {
                for kind in ["readWrite", "dbAdmin", "userAdmin"] {
                    self.add_role(database, &format!("{kind}AnyDatabase"));
                }
                for role in ["clusterAdmin", "backup", "restore"] {
                    self.add_role(database, role);
                }
                self.on(Resource::Any, ActionSet::of(&[A::Validate]));
            }
            _ => self.on(Resource::Any, ActionSet::all()),
        }
    }

    fn add_data(&mut self, database: &str, actions: ActionSet) {
        self.collection(database, "", actions);
        self.collection(database, CODE, actions);
        self.see_databases(database);
    }

    fn see_databases(&mut self, database: &str) {
        if database.is_empty() {
            self.cluster(ActionSet::of(&[A::ListDatabases]));
        }
    }

    fn add_user_admin(&mut self) {
        for database in ["", "local", "config"] {
            self.collection(database, "", USER_ADMIN);
        }
        let cluster = [
            A::AuthSchemaUpgrade,
            A::InvalidateUserCache,
            A::ListDatabases,
            A::ViewUser,
        ];
        self.cluster(ActionSet::of(&cluster));
        let of_users = READ.without(ActionSet::of(&[A::ChangeStream, A::ListSearchIndexes]))
            | ActionSet::of(&[A::CreateIndex, A::DropIndex]);
        self.collection("admin", "system.users", of_users);
        self.collection("admin", "system.roles", of_users);
        self.collection("admin", "system.version", ActionSet::of(&[A::Find]));
    }

    fn add_monitor(&mut self) {
        self.cluster(MONITOR_CLUSTER);
        self.collection("", "", MONITOR_DATABASES);
        self.collection("", PROFILE, ActionSet::of(&[A::Find]));
        for database in ["config", "local"] {
            self.collection(database, "", MONITOR_DATABASES.and(READ));
            self.collection(database, CODE, READ);
        }
        self.collection("local", "system.replset", ActionSet::of(&[A::Find]));
        self.collection("admin", "system.version", ActionSet::of(&[A::Find]));
    }

    fn add_manager(&mut self) {
        self.cluster(MANAGER_CLUSTER);
        self.collection("", "", MANAGER_DATABASES);
        self.collection("config", "", MANAGER_OWN.and(READ));
        self.collection("config", CODE, READ);
        self.collection("local", "", MANAGER_OWN);
        self.collection("local", "system.replset", READ);
    }

    fn add_backup(&mut self) {
        let lists = [A::ListDatabases, A::ListCollections, A::ListIndexes];
        self.on(Resource::Any, ActionSet::of(&lists));
        let cluster = [A::AppendOplogNote, A::GetParameter, A::ListDatabases, A::ServerStatus];
        self.cluster(ActionSet::of(&cluster));
        let find = ActionSet::of(&[A::Find]);
        for database in ["", "local", "config"] {
            self.collection(database, "", find);
        }
        self.on(Resource::buckets("", ""), find);
        for collection in [CODE, PROFILE, "system.users"] {
            self.collection("", collection, find);
        }
        for collection in [
            "system.users",
            "system.roles",
            "system.version",
            "system.new_users",
            "system.backup_users",
        ] {
            self.collection("admin", collection, find);
        }
        let writes = ActionSet::of(&[A::Insert, A::Update]);
        self.collection("admin", "mms.backup", writes);
        self.collection("config", "settings", find | writes);
    }

    fn add_restore(&mut self) {
        self.on(Resource::Any, ActionSet::of(&[A::ListCollections]));
        self.cluster(ActionSet::of(&[A::GetParameter, A::BypassWriteBlockingMode]));
        self.collection("", "", RESTORE.and(USER_ADMIN));
        for database in ["local", "config"] {
            self.collection(database, "", RESTORE);
        }
        self.on(Resource::buckets("", ""), RESTORE);
        self.collection("", CODE, RESTORE);
        self.collection("admin", "system.version", RESTORE | ActionSet::of(&[A::Find]));
        self.collection("admin", "system.roles", ActionSet::of(&[A::CreateIndex]));
        let users = RESTORE | ActionSet::of(&[A::Find, A::Remove, A::Update]);
        self.collection("", "system.users", users);
        for collection in ["system.users", "tempusers", "temproles"] {
            self.collection("admin", collection, users);
        }
    }
}

/// The database that a role is about: none, and so all, for those that say so in their name.
fn of<'d>(database: &'d str, role: &str) -> &'d str {
    if role.ends_with("AnyDatabase") { "" } else { database }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::privileges::{Privileges, Target};

    fn may(database: &str, role: &str, target: Target<'_>, action: Action) -> bool {
        let mut privileges = Privileges::default();
        privileges.extend(&super::privileges(database, role));
        privileges.allow(target, ActionSet::of(&[action]))
    }

    #[test]
    fn roles_of_a_database_end_at_its_border() {
        for role in OF_DATABASES {
            for action in Action::ALL {
                assert!(
                    !may("a", role, Target::Collection("b", "c"), *action),
                    "{role} {}",
                    action.name()
                );
                assert!(!may("a", role, Target::Cluster, *action), "{role} {}", action.name());
                assert!(
                    !may("a", role, Target::Collection("a", "system.users"), *action),
                    "{role}"
                );
            }
        }
        assert!(may("a", "read", Target::Collection("a", "c"), A::Find));
        assert!(!may("a", "read", Target::Collection("a", "c"), A::Insert));
        assert!(may("a", "readWrite", Target::Collection("a", "c"), A::Insert));
        assert!(!may("a", "readWrite", Target::Database("a"), A::DropDatabase));
        assert!(!may("a", "dbAdmin", Target::Collection("a", "c"), A::Find));
        assert!(may("a", "dbOwner", Target::Database("a"), A::CreateUser));
        assert!(may("a", "dbOwner", Target::Collection("a", "c"), A::Find));
    }

    #[test]
    fn roles_of_admin_are_of_admin_alone() {
        for role in OF_ADMIN {
            assert!(!privileges("admin", role).is_empty(), "{role}");
            assert!(privileges("other", role).is_empty(), "{role}");
        }
        assert!(privileges("admin", "nobody").is_empty());
    }

    #[test]
    fn only_the_innermost_role_may_do_everything() {
        for role in OF_ADMIN.into_iter().filter(|role| *role != "__system") {
            assert!(
                !may("admin", role, Target::Collection("admin", "system.keys"), A::Update),
                "{role}"
            );
            assert!(!may("admin", role, Target::Cluster, A::Internal), "{role}");
        }
        assert!(may("admin", "__system", Target::Cluster, A::Internal));
        assert!(may(
            "admin",
            "root",
            Target::Collection("admin", "system.users"),
            A::Find
        ));
        assert!(may("admin", "backup", Target::Collection("local", "oplog.rs"), A::Find));
        assert!(!may(
            "admin",
            "readAnyDatabase",
            Target::Collection("local", "oplog.rs"),
            A::Find
        ));
        assert!(!may("admin", "clusterAdmin", Target::Collection("a", "c"), A::Find));
    }
}
