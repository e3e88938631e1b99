//! The commands, one file per command or family.

mod aggregate;
mod aggregate_access;
mod apply_ops;
mod attempt;
mod authenticate;
mod authenticate_x509;
mod backup_cursor;
mod build_info;
mod bulk_write;
mod capped;
mod certificates;
mod cluster_parameters;
mod clustered;
mod coll_mod;
mod collections;
mod collections_access;
mod connection_pool;
mod current_op;
mod cursor_commands;
mod databases;
mod db_hash;
pub(crate) mod default_concerns;
mod delete;
mod diagnostic_data;
mod explain;
mod fail_point;
mod feature_version;
mod file_md5;
mod filter;
mod find;
mod find_and_modify;
mod flow;
mod fsync;
pub(crate) mod grants;
mod heartbeat;
mod hello;
mod host_info;
mod index_kinds;
mod indexes;
mod initial_stages;
mod insert;
mod listing;
mod lock_info;
mod log_operation;
mod maintenance;
mod map_reduce;
mod member_copies;
mod member_streams;
mod membership;
mod merge_authorization;
mod merge_stage;
mod multi;
pub(crate) mod parameters;
mod plan_cache;
mod pretence;
mod primary_output;
pub(crate) mod profile;
mod query_settings;
mod read_only;
mod rename;
mod replica_status;
mod replication;
mod role_documents;
mod role_store;
mod roles;
mod server_status;
mod sessions;
mod shutdown;
mod stage_destination;
mod step_down;
mod sync_from;
mod system_metrics;
mod takeover;
mod text_index;
pub(crate) mod timeseries;
mod top;
mod transactions;
mod update;
mod upsert_race;
pub(crate) mod user_store;
mod user_writes;
mod users;
mod users_access;
mod validate_metadata;
mod views;
mod wired_tiger;
mod write_output;
pub(crate) mod write_result;
pub(crate) mod write_stages;
pub(crate) mod write_targets;

use crate::definition::Command;

pub(crate) use build_info::build_document;
pub use heartbeat::new_instance;
pub use membership::Upkeep;
pub(crate) use read_only::STARTUP_LOG;
pub(crate) use update::UPDATE;

/// Every command, sorted by name.
pub const ALL: &[&Command] = &[
    &merge_authorization::MERGE_AUTHZ_COLLECTIONS,
    &member_streams::CONSENSUS,
    &member_copies::COPY_BEGIN,
    &member_copies::COPY_END,
    &member_copies::COPY_FILE,
    &member_copies::COPY_ROWS,
    &primary_output::WRITE_RESULTS,
    &transactions::ABORT_TRANSACTION,
    &aggregate::AGGREGATE,
    &replication::APPEND_OPLOG_NOTE,
    &apply_ops::APPLY_OPS,
    &authenticate::AUTHENTICATE,
    &build_info::BUILD_INFO,
    &bulk_write::BULK_WRITE,
    &capped::CLONE_COLLECTION_AS_CAPPED,
    &coll_mod::COLL_MOD,
    &maintenance::COLL_STATS,
    &transactions::COMMIT_TRANSACTION,
    &maintenance::COMPACT,
    &fail_point::CONFIGURE_FAIL_POINT,
    &connection_pool::CONN_POOL_STATS,
    &build_info::CONNECTION_STATUS,
    &capped::CONVERT_TO_CAPPED,
    &find::COUNT,
    &collections::CREATE,
    &indexes::CREATE_INDEXES,
    &roles::CREATE_ROLE,
    &users::CREATE_USER,
    &current_op::CURRENT_OP,
    &maintenance::DATA_SIZE,
    &db_hash::DB_HASH,
    &databases::DB_STATS,
    &delete::DELETE,
    &find::DISTINCT,
    &collections::DROP,
    &roles::DROP_ALL_ROLES_FROM_DATABASE,
    &users::DROP_ALL_USERS_FROM_DATABASE,
    &connection_pool::DROP_CONNECTIONS,
    &databases::DROP_DATABASE,
    &indexes::DROP_INDEXES,
    &roles::DROP_ROLE,
    &users::DROP_USER,
    &sessions::END_SESSIONS,
    &explain::EXPLAIN,
    &file_md5::FILE_MD5,
    &find::FIND,
    &find_and_modify::FIND_AND_MODIFY,
    &fsync::FSYNC,
    &fsync::FSYNC_UNLOCK,
    &cluster_parameters::GET_CLUSTER_PARAMETER,
    &parameters::GET_CMD_LINE_OPTS,
    &default_concerns::GET_DEFAULT_RW_CONCERN,
    &diagnostic_data::GET_DIAGNOSTIC_DATA,
    &parameters::GET_LOG,
    &cursor_commands::GET_MORE,
    &parameters::GET_PARAMETER,
    &roles::GRANT_PRIVILEGES_TO_ROLE,
    &roles::GRANT_ROLES_TO_ROLE,
    &users::GRANT_ROLES_TO_USER,
    &hello::HELLO,
    &host_info::HOST_INFO,
    &insert::INSERT,
    &roles::INVALIDATE_USER_CACHE,
    &hello::IS_MASTER,
    &sessions::KILL_ALL_SESSIONS,
    &sessions::KILL_ALL_SESSIONS_BY_PATTERN,
    &cursor_commands::KILL_CURSORS,
    &current_op::KILL_OP,
    &sessions::KILL_SESSIONS,
    &collections::LIST_COLLECTIONS,
    &build_info::LIST_COMMANDS,
    &databases::LIST_DATABASES,
    &indexes::LIST_INDEXES,
    &lock_info::LOCK_INFO,
    &parameters::LOG_APPLICATION_MESSAGE,
    &parameters::LOG_ROTATE,
    &authenticate::LOGOUT,
    &map_reduce::MAP_REDUCE,
    &build_info::PING,
    &plan_cache::PLAN_CACHE_CLEAR,
    &plan_cache::PLAN_CACHE_CLEAR_FILTERS,
    &plan_cache::PLAN_CACHE_LIST_FILTERS,
    &plan_cache::PLAN_CACHE_SET_FILTER,
    &profile::PROFILE,
    &maintenance::RE_INDEX,
    &sessions::REFRESH_SESSIONS,
    &query_settings::REMOVE_QUERY_SETTINGS,
    &rename::RENAME_COLLECTION,
    &replication::REPL_SET_ABORT_PRIMARY_CATCH_UP,
    &replication::REPL_SET_FREEZE,
    &replication::REPL_SET_GET_CONFIG,
    &replication::REPL_SET_GET_RBID,
    &replica_status::REPL_SET_GET_STATUS,
    &heartbeat::REPL_SET_HEARTBEAT,
    &replication::REPL_SET_INITIATE,
    &replication::REPL_SET_MAINTENANCE,
    &replication::REPL_SET_RECONFIG,
    &replication::REPL_SET_RESIZE_OPLOG,
    &step_down::REPL_SET_STEP_DOWN,
    &step_down::REPL_SET_STEP_UP,
    &sync_from::REPL_SET_SYNC_FROM,
    &roles::REVOKE_PRIVILEGES_FROM_ROLE,
    &roles::REVOKE_ROLES_FROM_ROLE,
    &users::REVOKE_ROLES_FROM_USER,
    &roles::ROLES_INFO,
    &certificates::ROTATE_CERTIFICATES,
    &authenticate::SASL_CONTINUE,
    &authenticate::SASL_START,
    &server_status::SERVER_STATUS,
    &cluster_parameters::SET_CLUSTER_PARAMETER,
    &default_concerns::SET_DEFAULT_RW_CONCERN,
    &feature_version::SET_FEATURE_COMPATIBILITY_VERSION,
    &parameters::SET_PARAMETER,
    &query_settings::SET_QUERY_SETTINGS,
    &user_writes::SET_USER_WRITE_BLOCK_MODE,
    &shutdown::SHUTDOWN,
    &sessions::START_SESSION,
    &fail_point::TEST_VERSION_2,
    &top::TOP,
    &update::UPDATE,
    &roles::UPDATE_ROLE,
    &users::UPDATE_USER,
    &users::USERS_INFO,
    &maintenance::VALIDATE,
    &validate_metadata::VALIDATE_DB_METADATA,
    &build_info::WHATSMYURI,
];
