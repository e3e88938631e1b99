//! Names of commands that a MongoDB 8.0 server or router has and this one has not: they are refused by name, and not as
//! if nobody knew them. The names are those of MongoDB's manual.

use crate::error::CommandError;
use wire::ErrorCode;

/// Sorted. Not among them is `isdbgrid`: by its absence (59) tools tell a server from a router.
pub const NAMES: [&str; 61] = [
    "abortMoveCollection",
    "abortReshardCollection",
    "abortUnshardCollection",
    "addShard",
    "addShardToZone",
    "analyze",
    "analyzeShardKey",
    "autoCompact",
    "availableQueryOptions",
    "balancerCollectionStatus",
    "balancerStart",
    "balancerStatus",
    "balancerStop",
    "checkMetadataConsistency",
    "cleanupOrphaned",
    "cleanupReshardCollection",
    "cleanupStructuredEncryptionData",
    "clearJumboFlag",
    "commitReshardCollection",
    "compactStructuredEncryptionData",
    "configureCollectionBalancing",
    "configureQueryAnalyzer",
    "coordinateCommitTransaction",
    "dbCheck",
    "enableSharding",
    "exportCollection",
    "flushRouterConfig",
    "getAuditConfig",
    "getChangeStreamState",
    "getShardMap",
    "getShardVersion",
    "importCollection",
    "listShards",
    "mergeAllChunksOnShard",
    "mergeChunks",
    "moveChunk",
    "moveCollection",
    "movePrimary",
    "moveRange",
    "prepareTransaction",
    "refineCollectionShardKey",
    "removeShard",
    "removeShardFromZone",
    "replSetUpdatePosition",
    "reshardCollection",
    "rotateFTDC",
    "setAllowMigrations",
    "setAuditConfig",
    "setChangeStreamState",
    "setIndexCommitQuorum",
    "setProfilingFilterGlobally",
    "shardCollection",
    "shardingState",
    "split",
    "splitVector",
    "startTrafficRecording",
    "stopTrafficRecording",
    "transitionFromDedicatedConfigServer",
    "transitionToDedicatedConfigServer",
    "unshardCollection",
    "updateZoneKeyRange",
];

/// Sorted; a server without Search refuses them with a code of their own.
const OF_SEARCH: [&str; 4] = [
    "createSearchIndexes",
    "dropSearchIndex",
    "listSearchIndexes",
    "updateSearchIndex",
];

/// Sorted; a server knows them with `enableTestCommands` only.
const OF_TESTS: [&str; 3] = ["refreshLogicalSessionCacheNow", "sleep", "waitForFailPoint"];

/// The error for a name that is not in the table of commands, or is there for tests only. `allows_tests`: the
/// server has commands for tests.
pub fn refusal(name: &str, for_tests: bool, allows_tests: bool) -> CommandError {
    if NAMES.binary_search(&name).is_ok() || (allows_tests && OF_TESTS.contains(&name)) {
        return CommandError::not_implemented(format!("the command {name}"));
    }
    if OF_SEARCH.contains(&name) {
        return CommandError::new(
            ErrorCode::SearchNotEnabled,
            format!("{name}: search indexes need MongoDB Atlas Search, which there is none of here"),
        );
    }
    let hint = match name {
        _ if for_tests => " (start the server with --setParameter enableTestCommands=1)",
        // The first step of MONGODB-CR: drivers show this to who wonders why it cannot log in.
        "getnonce" => " (MONGODB-CR is no longer spoken: use SCRAM-SHA-256 or SCRAM-SHA-1)",
        _ => "",
    };
    CommandError::new(ErrorCode::CommandNotFound, format!("no such command: '{name}'{hint}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::COMMANDS;

    #[test]
    fn what_is_built_is_not_refused_and_names_are_sorted() {
        assert!(NAMES.is_sorted() && OF_SEARCH.is_sorted() && OF_TESTS.is_sorted());
        for name in NAMES.iter().chain(&OF_SEARCH).chain(&OF_TESTS) {
            assert!(COMMANDS.find(name).is_none(), "{name} is built: take it from the list");
        }
    }

    #[test]
    fn three_kinds_of_names() {
        let of = |name| (refusal(name, false, false).code.0, refusal(name, false, false).message);
        assert_eq!(of("moveChunk").0, 238);
        assert!(of("moveChunk").1.contains("moveChunk"));
        assert_eq!(of("createSearchIndexes").0, 31082);
        for nobodys in ["nonesuch", "isdbgrid", "getnonce", "", "atlasVersion"] {
            assert_eq!(of(nobodys).0, 59, "{nobodys}");
        }
        for name in OF_TESTS {
            assert_eq!((of(name).0, refusal(name, false, true).code.0), (59, 238), "{name}");
        }
    }

    /// The manual lists the same names.
    #[test]
    fn the_compatibility_page_has_them() {
        let page = include_str!("../../../docs/compatibility.md");
        let listed = page
            .split("<!-- not built -->")
            .nth(1)
            .and_then(|rest| rest.split("<!-- end -->").next());
        let listed: Vec<&str> = listed
            .expect("the markers are there")
            .split('`')
            .skip(1)
            .step_by(2)
            .collect();
        assert_eq!(listed, NAMES);
    }
}
