//! Numbers of lines, which programs and people look for: each stands for one kind of event, of one component and
//! severity.
//!
//! What MongoDB's server logs, too, has its number there. Tenon's own begin with 8410. Numbers are an interface: one
//! that has been in a release is never given to another line.

use super::{Component, Severity};

/// What a line is, whatever it tells in addition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogId {
    /// The field `id`.
    pub number: i32,
    /// Whose line it is.
    pub component: Component,
    /// How bad it is.
    pub severity: Severity,
}

macro_rules! ids {
    ($($name:ident $number:literal $severity:ident $component:ident,)*) => {
        $(
            #[allow(missing_docs, reason = "the line's message says it")]
            pub const $name: LogId = LogId {
                number: $number,
                component: Component::$component,
                severity: Severity::$severity,
            };
        )*

        /// All of them.
        #[cfg(test)]
        const ALL: &[LogId] = &[$($name,)*];
    };
}

ids! {
    COLLECTION_DROPPED 20318 Info Storage,
    COLLECTION_RENAMED 20319 Info Storage,
    COLLECTION_CREATED 20320 Info Storage,
    DOCUMENT_FAILS_VALIDATION 20294 Warning Storage,
    INDEX_DROPPED 20322 Info Index,
    INDEX_BUILT 20345 Info Index,
    INDEX_BUILD_BEGINS 20384 Info Index,
    START_FAILED 20557 Fatal Control,
    LOG_FILE_RENAMED 20697 Info Control,
    ROLE_CHANGED 21358 Info Replication,
    OPTIONS 21951 Info Control,
    NO_ACCESS_CONTROL 22120 Warning Control,
    RUN_AS_ROOT 22138 Warning Control,
    FEW_DESCRIPTORS 22184 Warning Control,
    UNCLEAN_SHUTDOWN 22271 Warning Storage,
    ENGINE_OPENS 22315 Info Storage,
    STORAGE_CLOSES 22317 Info Storage,
    CONNECTION_REFUSED 22942 Error Network,
    CONNECTION_ACCEPTED 22943 Info Network,
    CONNECTION_ENDED 22944 Info Network,
    CONNECTION_FAILED 22988 Info Network,
    LISTENING 23015 Info Network,
    WAITING_FOR_CONNECTIONS 23016 Info Network,
    ACCEPT_FAILED 23022 Error Network,
    SHUTTING_DOWN 23138 Info Control,
    LOG_ROTATION 23166 Info Control,
    LOG_ROTATION_FAILED 23168 Error Control,
    ORDERLY_SHUTDOWN 23377 Info Control,
    SLOW_QUERY 51803 Info Command,
    INDEX_BUILD_GIVEN_UP 465_611 Info Index,
    STARTING 4_615_611 Info Control,
    PANIC 4_757_800 Fatal Default,
    STORAGE_CLOSED 4_795_901 Info Storage,
    ENGINE_OPEN 4_795_906 Info Storage,
    CERTIFICATES_ROTATED 4_913_400 Info Network,
    AUTHENTICATED 5_286_306 Info Access,
    AUTHENTICATION_FAILED 5_286_307 Info Access,
    DOCUMENT_NOT_COMPLIANT 5_363_500 Warning Storage,

    WAITING_FOR_SOCKETS_FAILED 8_410_001 Fatal Network,
    NO_THREAD_FOR_CONNECTIONS 8_410_002 Warning Network,
    CONNECTIONS_DID_NOT_END 8_410_003 Warning Network,
    LOCK_FILE_NOT_CLEARED 8_410_004 Error Storage,
    STORAGE_NOT_CLOSED_CLEANLY 8_410_005 Fatal Storage,
    WRITING_STOPPED 8_410_006 Fatal Storage,
    RECOVERY 8_410_007 Info Recovery,
    NO_JOURNAL 8_410_008 Warning Control,
    START_WARNING 8_410_009 Warning Control,
    CHECKPOINT_FAILED 8_410_010 Warning Storage,
    COLLECTIONS_KNOWN 8_410_011 Info Storage,
    EXPIRED_DOCUMENTS_UNREADABLE 8_410_012 Warning Storage,
    POWERED_BY 8_410_013 Warning Control,
    HOW_TO_CONNECT 8_410_014 Info Control,
    ENCRYPTED 8_410_015 Info Storage,
    LOG_DAMAGED 8_410_016 Warning Storage,
    APPLYING_WAITS 8_410_017 Warning Storage,
    VERSION_NOT_WRITTEN 8_410_018 Warning Storage,
    FEWER_CONNECTIONS 8_410_019 Info Network,
    INSTANCE_UNKNOWN 8_410_020 Warning Replication,
    CONSENSUS_STEP 8_410_021 Info Replication,
    TWO_OF_ONE_INSTANCE 8_410_022 Error Replication,
    COPY_NEEDED 8_410_023 Warning Replication,
    CONFIGURATION_FORCED 8_410_024 Warning Replication,
    UPKEEP_FAILED 8_410_025 Warning Replication,
    CONFIGURATION_UNUSABLE 8_410_026 Error Replication,
    DEFAULT_CONCERNS_UNUSABLE 8_410_027 Error Replication,
    CONFIGURATION_UNREADABLE 8_410_030 Error Replication,
    COPY_BEGINS 8_410_031 Info InitialSync,
    COPY_IS_OVER 8_410_032 Info InitialSync,
    COPY_FAILED 8_410_033 Warning InitialSync,
    COPY_RECONNECTED 8_410_034 Info InitialSync,
    COPY_GOES_ON 8_410_035 Info InitialSync,
    PAGE_IS_SERVED 8_410_040 Info Network,
    TEMPORARY_COLLECTION_DROPPED 8_410_041 Info Storage,
    TEMPORARY_COLLECTIONS_STAY 8_410_042 Warning Storage,
    PROFILE_NOT_WRITTEN 8_410_043 Warning Command,
    LINES_LOST 8_410_044 Warning Control,
    RETENTION_NOT_WRITTEN 8_410_045 Warning Replication,
    RETENTION_DAMAGED 8_410_046 Warning Replication,
    HISTORY_EXCEEDS_DISK 8_410_047 Warning Replication,
    LOG_LACKS_ROOM 8_410_048 Warning Storage,
    HISTORY_DAMAGED 8_410_049 Error Storage,
    VIEW_CREATED 8_410_050 Info Storage,
    VIEW_DROPPED 8_410_051 Info Storage,
    VIEW_CHANGED 8_410_052 Info Storage,
    COLLECTION_OPTIONS_CHANGED 8_410_053 Info Storage,
    EVENT_NOT_AUDITED 8_410_060 Error Access,
    USER_STAYS 8_410_061 Info Access,
    USERS_NOT_READ 8_410_062 Error Access,
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::ALL;
    use std::collections::HashSet;

    #[test]
    fn each_number_is_of_one_line() {
        let mut numbers = HashSet::new();
        for id in ALL {
            assert!(numbers.insert(id.number), "{} is there twice", id.number);
        }
    }

    /// People are told to look for them.
    #[test]
    fn numbers_that_the_manual_names_are_there() {
        let manual = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs");
        let mut named = 0;
        for page in std::fs::read_dir(manual).unwrap() {
            let page = page.unwrap().path();
            if page.extension().is_none_or(|extension| extension != "md") {
                continue;
            }
            let text = std::fs::read_to_string(&page).unwrap();
            let words = text.split(|character: char| !character.is_ascii_digit());
            for word in words.filter(|word| word.len() == 7 && word.starts_with("8410")) {
                named += 1;
                let number: i32 = word.parse().unwrap();
                assert!(
                    ALL.iter().any(|id| id.number == number),
                    "{number} in {}",
                    page.display()
                );
            }
        }
        assert!(named > 4, "the manual was not found");
    }
}
