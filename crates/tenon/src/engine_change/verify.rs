//! Whether all members of a set hold the same, by `dbHash` of every collection on every one.
//!
//! Members apply what the primary writes at moments of their own, so digests of a collection that is being written to
//! differ for no fault. A collection is done with once all members have shown the same digest of it in one round; the
//! others are asked again. Members that all stand at one time of the log, before and after, and differ nevertheless,
//! hold different data. Where writes never pause, the primary is locked against them for one round.

use super::set::Set;
use anyhow::{Context as _, Result, bail};
use bench::interrupt::Interrupt;
use bson::{Bson, Document, doc};
use dump::Client;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// Rounds before the primary is locked, or the rest is given up.
const ROUNDS_MAX: u32 = 20;
/// Between two rounds.
const PAUSE: Duration = Duration::from_millis(250);
/// Members that get no writes stand at one time by then.
const CATCH_UP: Duration = Duration::from_secs(60);

/// What was compared.
#[derive(Debug, Default)]
pub struct Compared {
    /// Collections.
    pub collections: usize,
    /// Databases.
    pub databases: usize,
    /// Rounds that it took.
    pub rounds: u32,
    /// The last one with the primary locked.
    pub locked: bool,
}

/// A collection: its database and its name.
type Name = (String, String);
/// A member's digests.
type Digests = BTreeMap<Name, String>;

/// Compares all members with data. With `may_lock`, what is still different after some rounds is compared while the
/// primary takes no writes.
///
/// # Errors
/// A sentence that names what differs, or what could not be compared.
pub fn verify(set: &mut Set, hosts: &[String], may_lock: bool, interrupt: &Interrupt) -> Result<Compared> {
    let databases = databases(set)?;
    let mut compared = Compared {
        databases: databases.len(),
        ..Compared::default()
    };
    let mut left: Option<BTreeSet<Name>> = None;
    let mut seen = BTreeSet::new();
    while compared.rounds < ROUNDS_MAX {
        interrupt.check()?;
        compared.rounds += 1;
        let before = set.times(hosts)?;
        let differing = round(set, hosts, &databases, left.as_ref(), &mut seen)?;
        if differing.is_empty() {
            compared.collections = seen.len();
            return Ok(compared);
        }
        let after = set.times(hosts)?;
        let first = before.first().map(|(_, time)| *time);
        if before.iter().chain(&after).all(|(_, time)| Some(*time) == first) {
            bail!("the members differ, at one time of the log: {}", listed(&differing));
        }
        left = Some(differing);
        std::thread::sleep(PAUSE);
    }
    let differing = left.unwrap_or_default();
    if !may_lock {
        bail!(
            "these were written to all the time and could not be compared: {}. Run this again with --lock, which holds \
             writes back for a moment",
            listed(&differing)
        );
    }
    (compared.rounds, compared.locked) = (compared.rounds + 1, true);
    let differing = locked(set, hosts, &databases, &differing, &mut seen)?;
    if !differing.is_empty() {
        bail!("the members differ, with the primary locked: {}", listed(&differing));
    }
    compared.collections = seen.len();
    Ok(compared)
}

/// A round in which nothing is written. The lock goes whatever happens.
fn locked(
    set: &mut Set,
    hosts: &[String],
    databases: &[String],
    left: &BTreeSet<Name>,
    seen: &mut BTreeSet<Name>,
) -> Result<BTreeSet<Name>> {
    let primary = set.primary.clone();
    set.run(&primary, "admin", &doc! { "fsync": 1, "lock": true })?;
    let result = wait_for_one_time(set, hosts).and_then(|()| round(set, hosts, databases, Some(left), seen));
    set.run(&primary, "admin", &doc! { "fsyncUnlock": 1 })
        .context("unlocking the primary: db.fsyncUnlock() does it")?;
    result
}

fn wait_for_one_time(set: &mut Set, hosts: &[String]) -> Result<()> {
    let start = Instant::now();
    loop {
        let times = set.times(hosts)?;
        if times.iter().all(|(_, time)| *time == times[0].1) {
            return Ok(());
        }
        if start.elapsed() > CATCH_UP {
            bail!("the members do not come to one time of the log though nothing is written");
        }
        std::thread::sleep(PAUSE / 5);
    }
}

fn listed(names: &BTreeSet<Name>) -> String {
    let names: Vec<String> = names
        .iter()
        .map(|(database, name)| format!("{database}.{name}"))
        .collect();
    names.join(", ")
}

/// All but `local`, which is each member's own, and `config`, whose sessions are.
fn databases(set: &mut Set) -> Result<Vec<String>> {
    let primary = set.primary.clone();
    let reply = set.run(&primary, "admin", &doc! { "listDatabases": 1, "nameOnly": true })?;
    let entries = reply.get_array("databases").context("listDatabases")?;
    let names = entries
        .iter()
        .filter_map(|entry| entry.as_document()?.get_str("name").ok());
    Ok(names
        .filter(|name| !matches!(*name, "local" | "config"))
        .map(str::to_owned)
        .collect())
}

/// Those that differ, of all collections or of those that are left. All members are asked at the same time.
fn round(
    set: &Set,
    hosts: &[String],
    databases: &[String],
    left: Option<&BTreeSet<Name>>,
    seen: &mut BTreeSet<Name>,
) -> Result<BTreeSet<Name>> {
    let clients = hosts.iter().map(|host| set.open(host)).collect::<Result<Vec<_>>>()?;
    let of_each: Vec<Result<Digests>> = std::thread::scope(|scope| {
        let asking: Vec<_> = clients
            .into_iter()
            .zip(hosts)
            .map(|(client, host)| scope.spawn(move || digests(client, host, databases, left)))
            .collect();
        let answer = |thread: std::thread::ScopedJoinHandle<'_, Result<Digests>>| {
            thread.join().unwrap_or_else(|_| bail!("asking for dbHash broke off"))
        };
        asking.into_iter().map(answer).collect()
    });
    let of_each = of_each.into_iter().collect::<Result<Vec<_>>>()?;
    let names: BTreeSet<Name> = of_each.iter().flat_map(|digests| digests.keys().cloned()).collect();
    seen.extend(names.iter().cloned());
    Ok(differing(&of_each, names))
}

fn differing(of_each: &[Digests], mut names: BTreeSet<Name>) -> BTreeSet<Name> {
    names.retain(|name| {
        let first = of_each.first().and_then(|digests| digests.get(name));
        first.is_none() || of_each.iter().any(|digests| digests.get(name) != first)
    });
    names
}

fn digests(mut client: Client, host: &str, databases: &[String], left: Option<&BTreeSet<Name>>) -> Result<Digests> {
    // All documents of a database are read for a reply.
    client.wait_for_ever();
    let mut digests = Digests::new();
    for database in databases {
        let mut command = doc! { "dbHash": 1 };
        if let Some(left) = left {
            let of_it = left.iter().filter(|(of, _)| of == database);
            let names: Vec<Bson> = of_it.map(|(_, name)| Bson::from(name.as_str())).collect();
            if names.is_empty() {
                continue;
            }
            command.insert("collections", names);
        }
        let reply: Document = client.run(database, &command).with_context(|| host.to_owned())?;
        for (name, digest) in reply.get_document("collections").context("dbHash")? {
            let digest = digest.as_str().unwrap_or_default().to_owned();
            digests.insert((database.clone(), name.clone()), digest);
        }
    }
    Ok(digests)
}

#[cfg(test)]
mod tests {
    use super::{Digests, differing};

    #[test]
    fn what_one_member_lacks_differs_too() {
        let digests = |of: &[(&str, &str)]| -> Digests {
            of.iter()
                .map(|(name, digest)| (("d".to_owned(), (*name).to_owned()), (*digest).to_owned()))
                .collect()
        };
        let each = [
            digests(&[("a", "1"), ("b", "2"), ("c", "3")]),
            digests(&[("a", "1"), ("b", "9")]),
        ];
        let names = each.iter().flat_map(|digests| digests.keys().cloned()).collect();
        let found: Vec<String> = differing(&each, names).into_iter().map(|(_, name)| name).collect();
        assert_eq!(found, ["b", "c"]);
    }
}
