//! What a command is: its name, its rules, the function that runs it; and how one is found by name.

use crate::concerns::{ReadConcern, ReadLevel};
use crate::error::{CommandError, Result};
use crate::invocation::Invocation;
use crate::metrics::{OperationKind, TopUse};
use crate::reply::Reply;
use auth::{Action, ActionSet};
use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf};
use std::borrow::Cow;
use wire::ErrorCode;

/// What a command is in transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InTransactions {
    /// Not to be used in one.
    No,
    /// A statement.
    Allowed,
    /// A statement where the transaction does not read a snapshot.
    AllowedUnlessSnapshot,
    /// A statement, but not the first one.
    NotFirst,
    /// A statement; outside of one, a write with a transaction number may be sent again.
    AllowedAndRetryable,
    /// Ends one.
    Ends,
}

/// Which levels of read concern a command takes outside of transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadLevels {
    /// `local`, which is what it does anyway.
    Local,
    /// All but `snapshot`.
    NotSnapshot,
    /// All.
    All,
}

/// What a caller needs to run a command.
#[derive(Clone, Copy)]
pub enum Access {
    /// Nothing: what clients do before they prove who they are, or what tells nobody anything.
    Open,
    /// To be a user.
    User,
    /// Actions on the server as a whole.
    Cluster(ActionSet),
    /// Actions on the database that the command is run on.
    Database(ActionSet),
    /// Actions on the collection that the first field names.
    Collection(ActionSet),
    /// What the function finds in the fields. It answers whether the caller may, and looks at every occurrence of a
    /// field, whichever of them the command obeys.
    Fields(fn(&Invocation<'_>) -> Result<bool>),
}

impl Access {
    /// Actions on the server as a whole.
    pub const fn cluster(actions: &[Action]) -> Self {
        Self::Cluster(ActionSet::of(actions))
    }

    /// Actions on the command's database.
    pub const fn database(actions: &[Action]) -> Self {
        Self::Database(ActionSet::of(actions))
    }

    /// Actions on the collection that the first field names.
    pub const fn collection(actions: &[Action]) -> Self {
        Self::Collection(ActionSet::of(actions))
    }
}

/// A command.
pub struct Command {
    /// Its name as clients write it.
    pub name: &'static str,
    /// Other spellings.
    pub aliases: &'static [&'static str],
    /// One sentence for `listCommands`.
    pub help: &'static str,
    /// Only on the database `admin`.
    pub admin_only: bool,
    /// What a caller needs to run it.
    pub access: Access,
    /// May a secondary run it.
    pub secondary_ok: bool,
    /// A read whose time the cluster parameter `defaultMaxTimeMS` limits.
    pub is_timed_read: bool,
    /// Whether one with this body is of no use once its client is gone, and ends then. Others, which may have written,
    /// run to their end.
    pub ends_with_client: fn(&RawDocument) -> bool,
    /// Part of Stable API version 1.
    pub api_version_1: bool,
    /// Fields that version 1 of the Stable API has not.
    pub unstable_fields: &'static [&'static str],
    /// For tests of drivers and applications: there only with `enableTestCommands`.
    pub for_tests: bool,
    /// What it is in transactions, and whether it may be sent again.
    pub in_transactions: InTransactions,
    /// Which read concerns it takes.
    pub read_levels: ReadLevels,
    /// It takes a write concern.
    pub has_write_concern: bool,
    /// Fields whose values are shown to nobody: neither log lines nor `currentOp` have them.
    pub secret: &'static [&'static str],
    /// Fields that are documents to be worked on one by one, see [`Invocation::documents`].
    pub batches: &'static [&'static str],
    /// Documents of its batches that may not be stored are errors of each of them, see [`Invocation::invalid`].
    pub refuses_invalid_documents_each: bool,
    /// What `top`, `opcounters` and `opLatencies` count it as.
    pub kind: OperationKind,
    /// Does it; appends fields to the reply.
    pub run: fn(&mut Invocation<'_>, &mut Reply<'_>) -> Result<()>,
}

impl Command {
    /// A command with the usual flags: any database, primary only, no concerns, not in the Stable API.
    pub const fn new(
        name: &'static str,
        help: &'static str,
        kind: OperationKind,
        access: Access,
        run: fn(&mut Invocation<'_>, &mut Reply<'_>) -> Result<()>,
    ) -> Self {
        Self {
            name,
            aliases: &[],
            help,
            admin_only: false,
            secondary_ok: false,
            is_timed_read: false,
            ends_with_client: |_| false,
            api_version_1: false,
            unstable_fields: &[],
            for_tests: false,
            in_transactions: InTransactions::No,
            read_levels: ReadLevels::Local,
            has_write_concern: false,
            secret: &[],
            batches: &[],
            refuses_invalid_documents_each: false,
            kind,
            access,
            run,
        }
    }

    /// Adds other spellings.
    pub const fn aliases(mut self, aliases: &'static [&'static str]) -> Self {
        self.aliases = aliases;
        self
    }

    /// Only on `admin`.
    pub const fn admin_only(mut self) -> Self {
        self.admin_only = true;
        self
    }

    /// A secondary may run it.
    pub const fn secondary_ok(mut self) -> Self {
        self.secondary_ok = true;
        self
    }

    /// A read that may not take longer than the cluster parameter says.
    pub const fn timed_read(mut self) -> Self {
        self.is_timed_read = true;
        self
    }

    /// Ends when its client is gone.
    pub const fn ends_with_client(self) -> Self {
        self.ends_with_client_if(|_| true)
    }

    /// Ends when its client is gone, if its body says that it only reads.
    pub const fn ends_with_client_if(mut self, only_reads: fn(&RawDocument) -> bool) -> Self {
        self.ends_with_client = only_reads;
        self
    }

    /// May be a statement of a transaction.
    pub const fn in_transactions(mut self, in_transactions: InTransactions) -> Self {
        self.in_transactions = in_transactions;
        self
    }

    /// Takes these levels of read concern.
    pub const fn read_levels(mut self, read_levels: ReadLevels) -> Self {
        self.read_levels = read_levels;
        self
    }

    /// Takes a write concern.
    pub const fn takes_write_concern(mut self) -> Self {
        self.has_write_concern = true;
        self
    }

    /// The values of these fields are shown to nobody.
    pub const fn secret(mut self, fields: &'static [&'static str]) -> Self {
        self.secret = fields;
        self
    }

    /// These fields are documents to be worked on one by one.
    pub const fn batches(mut self, fields: &'static [&'static str]) -> Self {
        self.batches = fields;
        self
    }

    /// A document of its batches that may not be stored is an error of that one.
    pub const fn refuses_invalid_documents_each(mut self) -> Self {
        self.refuses_invalid_documents_each = true;
        self
    }

    /// In Stable API version 1.
    pub const fn api_version_1(mut self) -> Self {
        self.api_version_1 = true;
        self
    }

    /// Version 1 of the Stable API has it without these fields.
    pub const fn unstable_fields(mut self, fields: &'static [&'static str]) -> Self {
        self.unstable_fields = fields;
        self
    }

    /// There only with `enableTestCommands`.
    pub const fn for_tests(mut self) -> Self {
        self.for_tests = true;
        self
    }
}

impl Command {
    /// What `top` counts it as: of reads only `find` is a query, as in `opcounters`.
    pub fn usage(&self) -> TopUse {
        let usage = self.kind.usage();
        match self.kind {
            OperationKind::Query if self.name != "find" => TopUse {
                column: OperationKind::Command,
                ..usage
            },
            OperationKind::Command => TopUse {
                is_write: self.has_write_concern,
                ..usage
            },
            _ => usage,
        }
    }

    /// Fails where a read concern asks for a level that the command does not take.
    pub fn check_read_concern(&self, concern: &ReadConcern) -> Result<()> {
        let is_taken = match self.read_levels {
            ReadLevels::Local => concern.level == ReadLevel::Local,
            ReadLevels::NotSnapshot => concern.level != ReadLevel::Snapshot,
            ReadLevels::All => true,
        };
        // A level that nobody asked for is a default, which does not concern such a command.
        if is_taken || !concern.has_level {
            return Ok(());
        }
        Err(CommandError::new(
            ErrorCode::InvalidOptions,
            format!(
                "Command {} does not support {{ readConcern: {{ level: \"{}\", provenance: \"clientSupplied\" }} }} :: caused by :: read concern not supported",
                self.name,
                concern.level.name()
            ),
        ))
    }

    /// Fails where the command takes no write concern.
    pub fn check_write_concern(&self) -> Result<()> {
        match self.has_write_concern {
            true => Ok(()),
            false => Err(CommandError::new(
                ErrorCode::InvalidOptions,
                "Command does not support writeConcern",
            )),
        }
    }

    /// A call as it may be shown.
    pub fn shown<'b>(&self, body: &'b RawDocument) -> Cow<'b, RawDocument> {
        if self.secret.is_empty() {
            return Cow::Borrowed(body);
        }
        let mut bytes = Vec::with_capacity(body.as_bytes().len());
        let mut shown = Reply::begin(&mut bytes);
        self.show(&mut shown, body);
        shown.finish();
        RawDocumentBuf::from_bytes(bytes).map_or(Cow::Owned(RawDocumentBuf::new()), Cow::Owned)
    }

    fn show(&self, shown: &mut Reply<'_>, body: &RawDocument) {
        for (name, value) in body.into_iter().flatten() {
            match (name.as_str(), value) {
                (name, _) if self.secret.contains(&name) => shown.string(name, "xxx"),
                // The fields of what is explained are shown, whether it can be explained or not.
                (name, RawBsonRef::Document(explained)) if name == self.name => {
                    shown.open_document(name);
                    self.show(shown, explained);
                    shown.close();
                }
                (name, value) => shown.raw_value(name, value),
            }
        }
    }
}

/// All commands of a server, sorted by name. The one value of it is [`crate::table::COMMANDS`]; commands reach it
/// through [`Server::commands`](crate::Server), because the table is made of them.
pub struct CommandTable {
    commands: &'static [&'static Command],
}

impl CommandTable {
    /// `commands` must be sorted by name.
    pub const fn new(commands: &'static [&'static Command]) -> Self {
        Self { commands }
    }

    /// The commands in the order of their names.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &'static Command> {
        self.commands.iter().copied()
    }

    /// Finds a command by its exact name or an alias; the second value is its position in the table.
    pub fn find(&self, name: &str) -> Option<(&'static Command, usize)> {
        if let Ok(position) = self.commands.binary_search_by(|command| command.name.cmp(name)) {
            return Some((self.commands[position], position));
        }
        let position = self
            .commands
            .iter()
            .position(|command| command.aliases.contains(&name))?;
        Some((self.commands[position], position))
    }
}
