//! Which member of a replica set a tool talks to: the server selection of drivers, once.

use crate::connect::SetAccess;
use anyhow::{Context as _, Result, bail, ensure};
use bench::interrupt::Interrupt;
use bson::{Document, doc};
use dump::{Client, DumpError, ReadPreference, Server};
use std::time::{Duration, Instant};

/// For so long a member that fits is looked for: an election may be going on.
const PATIENCE: Duration = Duration::from_secs(30);
const AUTHENTICATION_FAILED: i32 = 18;
const BETWEEN_LOOKS: Duration = Duration::from_millis(200);

/// A member that answers.
struct Seen {
    server: Server,
    is_primary: bool,
    /// What the answer to `hello` took.
    took: Duration,
}

/// The member that a read preference asks for; the primary for writing.
pub fn select(access: &SetAccess, preference: ReadPreference) -> Result<Server> {
    let interrupt = Interrupt::new();
    let until = Instant::now() + PATIENCE;
    loop {
        let (mut seen, mut failures, mut refusal) = (Vec::new(), Vec::new(), None);
        let mut hosts = access.hosts.clone();
        let mut asked = 0;
        while let Some(host) = hosts.get(asked).cloned() {
            asked += 1;
            match ask(access, &host, &interrupt) {
                Ok((Some(member), _)) if member.is_primary && preference == ReadPreference::Primary => {
                    return Ok(member.server);
                }
                Ok((member, hello)) => {
                    for other in named(&hello) {
                        if !hosts.contains(&other) {
                            hosts.push(other);
                        }
                    }
                    seen.extend(member);
                }
                // Arbiters know no users, and neither do members that have just begun to copy.
                Err(error) if is_login(&error) => refusal = Some(error),
                Err(error) => failures.push(format!("{host}: {error:#}")),
            }
        }
        if let Some(error) = refusal.filter(|_| seen.is_empty()) {
            // Asking again would not help, and looks like guessing.
            return Err(error);
        }
        if let Some(server) = chosen(seen, preference) {
            return Ok(server);
        }
        if Instant::now() >= until {
            let wanted = match preference {
                ReadPreference::Secondary => "secondary",
                ReadPreference::Primary => "primary",
                _ => "member",
            };
            let why = if failures.is_empty() {
                String::new()
            } else {
                format!(" ({})", failures.join("; "))
            };
            bail!("no {wanted} of the replica set can be reached{why}");
        }
        std::thread::sleep(BETWEEN_LOOKS);
    }
}

/// Whether it is the user that was refused.
fn is_login(error: &anyhow::Error) -> bool {
    match error.downcast_ref() {
        Some(DumpError::Server(bench::Error::Refused { code, .. })) => *code == AUTHENTICATION_FAILED,
        Some(DumpError::Choice(_)) => true,
        _ => false,
    }
}

/// Asks a host who it is; no member to work with when it holds no data that can be read.
fn ask(access: &SetAccess, host: &str, interrupt: &Interrupt) -> Result<(Option<Seen>, Document)> {
    let mut failed = None;
    for server in access.servers(host)? {
        let mut client = match Client::open(&server, interrupt) {
            Ok(client) => client,
            Err(error) => {
                failed = Some(error);
                continue;
            }
        };
        let asked = Instant::now();
        let hello = client.run("admin", &doc! { "hello": 1 })?;
        let took = asked.elapsed();
        let set = hello.get_str("setName").context("it is no member of a replica set")?;
        if let Some(wanted) = &access.set {
            ensure!(set == wanted, "it is of the replica set {set}, not of {wanted}");
        }
        let is = |field| hello.get_bool(field).unwrap_or(false);
        let is_primary = is("isWritablePrimary");
        let member = (is_primary || is("secondary") && !is("arbiterOnly")).then_some(Seen {
            server,
            is_primary,
            took,
        });
        return Ok((member, hello));
    }
    Err(failed.map_or_else(|| anyhow::anyhow!("it has no address"), Into::into))
}

/// The members that one of them knows of; hidden ones are not told to clients.
fn named(hello: &Document) -> Vec<String> {
    let lists = ["hosts", "passives"]
        .into_iter()
        .filter_map(|list| hello.get_array(list).ok());
    lists
        .flatten()
        .filter_map(|host| host.as_str().map(str::to_owned))
        .collect()
}

fn chosen(mut seen: Vec<Seen>, preference: ReadPreference) -> Option<Server> {
    seen.sort_by_key(|member| member.took);
    let mut first = |wanted: &dyn Fn(&Seen) -> bool| {
        let at = seen.iter().position(wanted)?;
        Some(seen.swap_remove(at).server)
    };
    let primary = |member: &Seen| member.is_primary;
    let secondary = |member: &Seen| !member.is_primary;
    match preference {
        ReadPreference::Primary => first(&primary),
        ReadPreference::PrimaryPreferred => first(&primary).or_else(|| first(&secondary)),
        ReadPreference::Secondary => first(&secondary),
        ReadPreference::SecondaryPreferred => first(&secondary).or_else(|| first(&primary)),
        ReadPreference::Nearest => first(&|_| true),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::{Seen, chosen};
    use dump::{ReadPreference, Server};
    use std::time::Duration;

    #[test]
    fn members_are_chosen_as_drivers_do() {
        // Ports tell members apart; the number is what `hello` took.
        let seen = |members: &[(u16, bool, u64)]| {
            let member = |&(port, is_primary, took): &(u16, bool, u64)| Seen {
                server: Server::from(std::net::SocketAddr::from(([127, 0, 0, 1], port))),
                is_primary,
                took: Duration::from_millis(took),
            };
            members.iter().map(member).collect::<Vec<_>>()
        };
        let all = [(1, false, 9), (2, true, 5), (3, false, 3)];
        let only_secondaries = [(1, false, 9), (3, false, 10)];
        let only_primary = [(2, true, 5)];
        for (preference, expected) in [
            (ReadPreference::Primary, [Some(2), None, Some(2)]),
            (ReadPreference::PrimaryPreferred, [Some(2), Some(1), Some(2)]),
            (ReadPreference::Secondary, [Some(3), Some(1), None]),
            (ReadPreference::SecondaryPreferred, [Some(3), Some(1), Some(2)]),
            (ReadPreference::Nearest, [Some(3), Some(1), Some(2)]),
        ] {
            let found = [&all[..], &only_secondaries, &only_primary]
                .map(|members| chosen(seen(members), preference).map(|server| server.address.port()));
            assert_eq!(found, expected, "{preference:?}");
        }
    }
}
