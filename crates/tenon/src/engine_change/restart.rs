//! How a member is stopped, wiped and started with another engine: by a hook, or by a person who is told what to do.

use super::set::Set;
use anyhow::{Context as _, Result, bail};
use bson::Document;
use std::path::Path;
use std::process::{Command, Stdio};

/// What the variable `TENON_STEP` of a hook says.
const HOOK_STEP: &str = "stop-wipe-start";

/// Who does it.
#[derive(Clone, Debug)]
pub enum Restart {
    /// A command of the shell.
    Hook(String),
    /// A person, with the commands of a unit of systemd.
    Systemd(String),
    /// A person.
    Manual,
}

impl Restart {
    /// Whether it is done when [`Restart::run`] returns.
    pub fn is_automatic(&self) -> bool {
        matches!(self, Self::Hook(_))
    }

    /// Has it done, or tells what to do by `tell`.
    pub fn run(&self, set: &Set, host: &str, engine: &str, tell: &mut dyn FnMut(&str)) -> Result<()> {
        match self {
            Self::Hook(command) => hook(command, set, host, engine),
            Self::Systemd(unit) => {
                let options = set.options.get(host);
                systemd(unit, options, host, engine).iter().for_each(|line| tell(line));
                Ok(())
            }
            Self::Manual => {
                by_hand(set.options.get(host), host, engine)
                    .iter()
                    .for_each(|line| tell(line));
                Ok(())
            }
        }
    }
}

fn hook(command: &str, set: &Set, host: &str, engine: &str) -> Result<()> {
    let status = Command::new("sh")
        .args(["-c", command])
        .env("TENON_STEP", HOOK_STEP)
        .env("TENON_HOST", host)
        .env("TENON_ENGINE", engine)
        .env("TENON_SET", set.config.get_str("_id").unwrap_or_default())
        .env(
            "TENON_DBPATH",
            // A relative one means nothing to the hook, which may delete what it names in another directory.
            option(set.options.get(host), &["storage", "dbPath"])
                .filter(|path| Path::new(path).is_absolute())
                .unwrap_or_default(),
        )
        .stdin(Stdio::null())
        .stdout(std::io::stderr())
        .status()
        .context("starting the hook")?;
    if !status.success() {
        bail!("the hook failed for {host} ({status}): see to it, and run this command again");
    }
    Ok(())
}

/// What a server was started with.
fn option(options: Option<&Document>, path: &[&str]) -> Option<String> {
    let (last, levels) = path.split_last()?;
    let mut document = options?.get_document("parsed").ok()?;
    for level in levels {
        document = document.get_document(level).ok()?;
    }
    document.get_str(last).ok().map(str::to_owned)
}

fn data(options: Option<&Document>) -> String {
    let path = option(options, &["storage", "dbPath"]);
    // The shell's pattern stands for everything in it, hidden files too.
    path.map_or_else(|| "DBPATH".to_owned(), |path| quoted(&path))
}

fn quoted(path: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-".contains(c);
    match Path::new(path).is_absolute() && path.chars().all(is_plain) {
        true => path.to_owned(),
        false => format!("'{}'", path.replace('\'', r"'\''")),
    }
}

fn engine_line(options: Option<&Document>, engine: &str) -> String {
    match option(options, &["config"]) {
        Some(file) => format!("set `storage.engine: {engine}` in {file}"),
        None => format!(
            "set `storage.engine: {engine}` in its configuration, or --storageEngine {engine} in its command line"
        ),
    }
}

fn systemd(unit: &str, options: Option<&Document>, host: &str, engine: &str) -> Vec<String> {
    let unit = quoted(unit).trim_matches('\'').to_owned();
    let machine = host.rsplit_once(':').map_or(host, |(machine, _)| machine);
    vec![
        format!("On {machine}:"),
        format!("  systemctl stop {unit}"),
        format!("  find {} -mindepth 1 -delete", data(options)),
        format!("  # {}", engine_line(options, engine)),
        format!("  systemctl start {unit}"),
    ]
}

fn by_hand(options: Option<&Document>, host: &str, engine: &str) -> Vec<String> {
    vec![
        format!("{host}:"),
        format!("  1. Stop it: mongosh --host {host} --eval 'db.adminCommand({{shutdown: 1}})'"),
        format!("  2. Wipe its data: find {} -mindepth 1 -delete", data(options)),
        format!("  3. {}.", engine_line(options, engine)),
        "  4. Start it, with --replSet as before.".to_owned(),
    ]
}

#[cfg(test)]
mod tests {
    use super::{by_hand, systemd};
    use bson::doc;

    #[test]
    fn a_person_is_told_what_this_member_was_started_with() {
        let options = doc! { "parsed": { "config": "/etc/tenond.conf", "storage": { "dbPath": "/srv/my data" } } };
        let told = systemd("tenond@2", Some(&options), "db2:27017", "inMemory").join("\n");
        for part in [
            "On db2:",
            "systemctl stop tenond@2",
            "find '/srv/my data' -mindepth 1 -delete",
            "`storage.engine: inMemory` in /etc/tenond.conf",
            "systemctl start tenond@2",
        ] {
            assert!(told.contains(part), "{part}: {told}");
        }
        let told = by_hand(None, "db2:27017", "inMemory").join("\n");
        assert!(
            told.contains("find DBPATH ") && told.contains("--storageEngine inMemory"),
            "{told}"
        );
    }
}
