//! The parts of the server a line can come from, with the names MongoDB's clients and scripts know.

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// Normal running.
    Info,
    /// To be looked at.
    Warning,
    /// Something failed.
    Error,
    /// The process ends.
    Fatal,
}

impl Severity {
    /// The `s` field: `I`, `W`, `E` or `F`.
    pub fn letter(self) -> &'static str {
        match self {
            Self::Info => "I",
            Self::Warning => "W",
            Self::Error => "E",
            Self::Fatal => "F",
        }
    }
}

impl Component {
    /// Has it lines that only a verbosity above 0 brings? `Default` counts for all that have none of their own.
    pub fn has_debug_lines(self) -> bool {
        matches!(self, Self::Default | Self::Command)
    }
}

macro_rules! components {
    ($($name:ident $short:literal $path:literal $parent:ident,)*) => {
        /// Where a line comes from.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum Component {
            $(#[doc = concat!("`", $path, "` of `systemLog.component`; `", $short, "` in lines.")] $name,)*
        }

        impl Component {
            /// All components, a parent before its children.
            pub const ALL: [Self; Self::COUNT] = [$(Self::$name,)*];
            /// Their number.
            pub const COUNT: usize = [$($short,)*].len();

            /// The `c` field of lines.
            pub fn short_name(self) -> &'static str {
                match self { $(Self::$name => $short,)* }
            }

            /// The dotted name below `systemLog.component` and in `logComponentVerbosity`; `default` for the root.
            pub fn path(self) -> &'static str {
                match self { $(Self::$name => $path,)* }
            }

            /// Whose verbosity it takes when it has none of its own; the root is its own parent.
            pub fn parent(self) -> Self {
                match self { $(Self::$name => Self::$parent,)* }
            }

            /// The component of a dotted name.
            pub fn by_path(path: &str) -> Option<Self> {
                Self::ALL.into_iter().find(|component| component.path() == path)
            }
        }
    };
}

components! {
    Default "-" "default" Default,
    Access "ACCESS" "accessControl" Default,
    Command "COMMAND" "command" Default,
    Control "CONTROL" "control" Default,
    Ftdc "FTDC" "ftdc" Default,
    Geo "GEO" "geo" Default,
    Index "INDEX" "index" Default,
    Network "NETWORK" "network" Default,
    Asio "ASIO" "network.asio" Network,
    Query "QUERY" "query" Default,
    Replication "REPL" "replication" Default,
    Election "ELECTION" "replication.election" Replication,
    Heartbeats "REPL_HB" "replication.heartbeats" Replication,
    InitialSync "INITSYNC" "replication.initialSync" Replication,
    Rollback "ROLLBACK" "replication.rollback" Replication,
    Sharding "SHARDING" "sharding" Default,
    Storage "STORAGE" "storage" Default,
    Journal "JOURNAL" "storage.journal" Storage,
    Recovery "RECOVERY" "storage.recovery" Storage,
    Transaction "TXN" "transaction" Default,
    Write "WRITE" "write" Default,
}
