//! The roles that every server has.

/// Roles of every database.
const OF_DATABASES: [&str; 5] = ["read", "readWrite", "dbAdmin", "dbOwner", "userAdmin"];

/// Roles of `admin` alone.
const OF_ADMIN: [&str; 15] = [
    "readAnyDatabase",
    "readWriteAnyDatabase",
    "userAdminAnyDatabase",
    "dbAdminAnyDatabase",
    "clusterAdmin",
    "clusterManager",
    "clusterMonitor",
    "hostManager",
    "directShardOperations",
    "enableSharding",
    "backup",
    "restore",
    "root",
    "__queryableBackup",
    "__system",
];

/// Is there a built-in role of that name on the database?
pub fn is_builtin(database: &str, role: &str) -> bool {
    OF_DATABASES.contains(&role) || (database == "admin" && OF_ADMIN.contains(&role))
}
