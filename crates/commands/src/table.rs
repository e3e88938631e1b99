//! The one table of commands: dispatch, `listCommands` and help come from it.

use crate::command;
use crate::definition::CommandTable;

/// All commands, sorted by name.
pub static COMMANDS: CommandTable = CommandTable::new(command::ALL);

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
        assert!(COMMANDS.find("find").is_some());
        assert!(COMMANDS.find("Find").is_none());
        assert_eq!(
            COMMANDS.find("buildinfo").map(|(command, _)| command.name),
            Some("buildInfo")
        );
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
