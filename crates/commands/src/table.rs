//! The one table of commands: dispatch, `listCommands` and help come from it.

use crate::command;
use crate::error::Result;
use crate::invocation::Invocation;
use crate::metrics::OperationKind;
use crate::reply::Reply;

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
    /// Allowed without authentication.
    pub without_auth: bool,
    /// May a secondary run it.
    pub secondary_ok: bool,
    /// Part of Stable API version 1.
    pub api_version_1: bool,
    /// What `top`, `opcounters` and `opLatencies` count it as.
    pub kind: OperationKind,
    /// Does it; appends fields to the reply.
    pub run: fn(&mut Invocation<'_>, &mut Reply<'_>) -> Result<()>,
}

impl Command {
    /// A command with the usual flags: any database, authentication needed, primary only, not in the Stable API.
    pub const fn new(
        name: &'static str,
        help: &'static str,
        kind: OperationKind,
        run: fn(&mut Invocation<'_>, &mut Reply<'_>) -> Result<()>,
    ) -> Self {
        Self {
            name,
            aliases: &[],
            help,
            admin_only: false,
            without_auth: false,
            secondary_ok: false,
            api_version_1: false,
            kind,
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

    /// Needs no authentication.
    pub const fn without_auth(mut self) -> Self {
        self.without_auth = true;
        self
    }

    /// A secondary may run it.
    pub const fn secondary_ok(mut self) -> Self {
        self.secondary_ok = true;
        self
    }

    /// In Stable API version 1.
    pub const fn api_version_1(mut self) -> Self {
        self.api_version_1 = true;
        self
    }
}

/// All commands, sorted by name.
pub static COMMANDS: &[&Command] = command::ALL;

/// Finds a command by its exact name or an alias; the second value is its place in [`COMMANDS`].
pub fn find(name: &str) -> Option<(&'static Command, usize)> {
    if let Ok(place) = COMMANDS.binary_search_by(|command| command.name.cmp(name)) {
        return Some((COMMANDS[place], place));
    }
    let place = COMMANDS.iter().position(|command| command.aliases.contains(&name))?;
    Some((COMMANDS[place], place))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sorted_and_has_no_name_twice() {
        let mut names: Vec<_> = COMMANDS.iter().map(|command| command.name).collect();
        assert!(names.windows(2).all(|pair| pair[0] < pair[1]), "{names:?}");
        names.extend(COMMANDS.iter().flat_map(|command| command.aliases));
        names.sort_unstable();
        assert!(names.windows(2).all(|pair| pair[0] != pair[1]));
    }

    #[test]
    fn names_are_found_by_exact_case_and_alias() {
        assert!(find("find").is_some());
        assert!(find("Find").is_none());
        assert_eq!(find("buildinfo").map(|(command, _)| command.name), Some("buildInfo"));
    }
}

#[cfg(test)]
mod documentation {
    use super::*;

    /// The list in the manual is this one: `- \`name\` (aliases) sentence`, sorted, between two markers.
    #[test]
    fn the_compatibility_page_lists_exactly_these_commands() {
        let page = include_str!("../../../docs/compatibility.md");
        let listed = page
            .split("<!-- commands -->")
            .nth(1)
            .and_then(|rest| rest.split("<!-- end -->").next());
        let expected: String = COMMANDS
            .iter()
            .map(|command| {
                let aliases: String = command.aliases.iter().map(|alias| format!(", `{alias}`")).collect();
                format!("- `{}`{aliases}: {}\n", command.name, command.help)
            })
            .collect();
        let listed = listed.expect("the markers are there").trim_start();
        assert_eq!(listed, expected, "docs/compatibility.md must list:\n{expected}");
    }
}
