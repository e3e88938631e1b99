//! The set of an engine change: finds the primary, looks at every member, and changes the configuration.

use super::plan::{Engine, Kept, Seen, State, TAG, View};
use crate::connect::SetAccess;
use anyhow::{Context as _, Result, anyhow, bail};
use bench::interrupt::Interrupt;
use bson::{Bson, Document, Timestamp, doc};
use dump::{Client, Namespace};
use std::collections::{BTreeMap, HashMap};
use std::fmt;

/// Nobody leads at the moment, and what members say instead.
#[derive(Debug)]
pub struct NoPrimary(String);

impl fmt::Display for NoPrimary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "there is no primary{}", self.0)
    }
}

impl std::error::Error for NoPrimary {}

/// See the module. Connections are kept as long as they work.
pub struct Set {
    access: SetAccess,
    interrupt: Interrupt,
    clients: HashMap<String, Client>,
    /// Everybody that was heard of.
    hosts: Vec<String>,
    /// The one that was the primary last.
    pub primary: String,
    /// Its configuration then.
    pub config: Document,
    /// What members were started with, by host, as long as they answered.
    pub options: BTreeMap<String, Document>,
}

/// Members with data, and the applied time of each.
pub type Times = Vec<(String, Timestamp)>;

impl Set {
    /// Nothing is asked yet.
    pub fn new(access: SetAccess, interrupt: Interrupt) -> Self {
        Self {
            hosts: access.hosts.clone(),
            access,
            interrupt,
            clients: HashMap::new(),
            primary: String::new(),
            config: Document::new(),
            options: BTreeMap::new(),
        }
    }

    /// Runs a command on a member. A connection that has failed is not used again.
    pub fn run(&mut self, host: &str, database: &str, command: &Document) -> Result<Document> {
        let mut client = match self.clients.remove(host) {
            Some(client) => client,
            None => self.open(host)?,
        };
        match client.run(database, command) {
            Ok(reply) => {
                self.clients.insert(host.to_owned(), client);
                Ok(reply)
            }
            Err(error) => {
                if is_said(&error) {
                    self.clients.insert(host.to_owned(), client);
                }
                Err(error).with_context(|| host.to_owned())
            }
        }
    }

    /// A new connection to a member.
    pub fn open(&self, host: &str) -> Result<Client> {
        let mut last = anyhow!("{host}: there is no such host");
        for server in self.access.servers(host)? {
            match Client::open(&server, &self.interrupt) {
                Ok(client) => return Ok(client),
                Err(error) => last = anyhow!(error).context(host.to_owned()),
            }
        }
        Err(last)
    }

    /// Looks at the primary and at every member.
    ///
    /// # Errors
    /// There is no primary at the moment, or it does not answer as one.
    pub fn look(&mut self) -> Result<View> {
        let primary = self.find_primary()?;
        let ask = |command: &str| doc! { command: 1 };
        let reply = self.run(&primary, "admin", &ask("replSetGetConfig"))?;
        let config = reply.get_document("config").context("replSetGetConfig")?.clone();
        let status = self.run(&primary, "admin", &ask("replSetGetStatus"))?;
        let kept = self.kept_config(&primary)?;
        (self.primary, self.config) = (primary, config.clone());
        let mut members = Vec::new();
        for member in documents(&config, "members") {
            let mut seen = seen(member, &status, &kept)?;
            if !self.hosts.contains(&seen.host) {
                self.hosts.push(seen.host.clone());
            }
            if !seen.is_arbiter {
                seen.engine = self.engine(&seen.host);
            }
            members.push(seen);
        }
        self.interrupt.check()?;
        Ok(View { members })
    }

    fn find_primary(&mut self) -> Result<String> {
        let mut hosts = self.hosts.clone();
        // The last one first.
        if let Some(at) = hosts.iter().position(|host| *host == self.primary) {
            hosts.swap(0, at);
        }
        let (mut silent, mut refusals) = (Vec::new(), 0);
        let mut asked = 0;
        while let Some(host) = hosts.get(asked).cloned() {
            asked += 1;
            self.interrupt.check()?;
            let hello = match self.run(&host, "admin", &doc! { "hello": 1 }) {
                Ok(hello) => hello,
                Err(error) => {
                    refusals += usize::from(has_answered(&error));
                    silent.push(format!("{error:#}"));
                    continue;
                }
            };
            let Ok(set) = hello.get_str("setName") else {
                silent.push(format!("{host} is no member of a replica set"));
                continue;
            };
            if let Some(wanted) = self.access.set.as_deref().filter(|wanted| *wanted != set) {
                bail!("{host} is a member of the set {set}, not of {wanted}");
            }
            if hello.get_bool("isWritablePrimary").unwrap_or(false) {
                // A member may have another name in the configuration than it was asked by.
                return Ok(hello.get_str("me").map_or(host, str::to_owned));
            }
            for name in ["hosts", "passives"] {
                let others = hello.get_array(name).map(Vec::as_slice).unwrap_or_default();
                for other in others.iter().filter_map(Bson::as_str) {
                    if !self.hosts.iter().any(|host| host == other) {
                        self.hosts.push(other.to_owned());
                        // It is asked in its turn, too: the user may have named one secondary.
                        hosts.push(other.to_owned());
                    }
                }
            }
        }
        match silent.is_empty() {
            false if refusals == silent.len() && refusals == self.hosts.len() => {
                bail!("no member lets this in ({})", silent.join("; "))
            }
            true => Err(NoPrimary(String::new()).into()),
            false => Err(NoPrimary(format!(" ({})", silent.join("; "))).into()),
        }
    }

    /// An error unless the primary's build has the engine: a member is wiped before it could say that it has not. After
    /// [`Set::look`].
    pub fn check_engine(&mut self, engine: &str) -> Result<()> {
        let primary = self.primary.clone();
        let reply = self.run(&primary, "admin", &doc! { "buildInfo": 1 })?;
        let engines: Vec<&str> = reply
            .get_array("storageEngines")
            .map(|engines| engines.iter().filter_map(Bson::as_str).collect())
            .unwrap_or_default();
        if !engines.contains(&engine) {
            bail!(
                "{primary} has no storage engine '{engine}'; it has: {}",
                engines.join(", ")
            );
        }
        Ok(())
    }

    /// The configuration as the primary keeps it: with what consensus knows.
    fn kept_config(&mut self, primary: &str) -> Result<Document> {
        let command = doc! { "find": "system.replset", "limit": 1, "singleBatch": true };
        let reply = self.run(primary, "local", &command)?;
        let cursor = reply.get_document("cursor").context("local.system.replset")?;
        let found = documents(cursor, "firstBatch").next();
        let document = found.with_context(|| format!("{} is empty", Namespace::new("local", "system.replset")))?;
        if document.get_document("consensus").is_err() {
            bail!("the set has one member only: `tenon migrate` changes the engine of one server");
        }
        Ok(document.clone())
    }

    fn engine(&mut self, host: &str) -> Engine {
        if let Err(error) = self.run(host, "admin", &doc! { "hello": 1 }) {
            return match has_answered(&error) {
                true => Engine::Unsaid(format!("{error:#}")),
                false => Engine::Silent,
            };
        }
        match self.run(host, "admin", &doc! { "serverStatus": 1 }) {
            Ok(status) => {
                if !self.options.contains_key(host)
                    && let Ok(options) = self.run(host, "admin", &doc! { "getCmdLineOpts": 1 })
                {
                    self.options.insert(host.to_owned(), options);
                }
                let name = status
                    .get_document("storageEngine")
                    .and_then(|engine| engine.get_str("name"));
                name.map_or_else(
                    |_| Engine::Unsaid("serverStatus names none".to_owned()),
                    |name| Engine::Named(name.to_owned()),
                )
            }
            Err(error) => Engine::Unsaid(format!("{error:#}")),
        }
    }

    /// Changes one member of the configuration that was looked at last.
    ///
    /// # Errors
    /// The primary refuses it: it is not the primary any more, or somebody else has changed the configuration.
    pub fn reconfigure(&mut self, host: &str, change: &dyn Fn(&mut Document)) -> Result<()> {
        let mut config = self.config.clone();
        let members = config.get_array_mut("members").context("members")?;
        let member = members
            .iter_mut()
            .filter_map(Bson::as_document_mut)
            .find(|member| member.get_str("host").ok() == Some(host));
        change(member.with_context(|| format!("{host} is no member any more"))?);
        let version = number(&config, "version") as i64 + 1;
        config.insert(
            "version",
            i32::try_from(version).context("the configuration's version")?,
        );
        let primary = self.primary.clone();
        self.run(&primary, "admin", &doc! { "replSetReconfig": config })?;
        Ok(())
    }

    /// How far each of these members is.
    pub fn times(&mut self, hosts: &[String]) -> Result<Times> {
        let mut times = Vec::new();
        for host in hosts {
            let status = self.run(host, "admin", &doc! { "replSetGetStatus": 1 })?;
            let applied = status
                .get_document("optimes")
                .and_then(|times| times.get_document("appliedOpTime"));
            let time = applied
                .and_then(|time| time.get_timestamp("ts"))
                .context("replSetGetStatus")?;
            times.push((host.clone(), time));
        }
        Ok(times)
    }
}

/// What the tag makes of a member's configuration.
pub fn hide(member: &mut Document, kept: &Kept) {
    member.insert("hidden", true);
    member.insert("priority", 0);
    let mut tags = member.get_document("tags").cloned().unwrap_or_default();
    tags.insert(TAG, kept.to_text());
    member.insert("tags", tags);
}

/// The opposite of [`hide`].
pub fn restore(member: &mut Document, kept: &Kept) {
    member.insert("hidden", kept.hidden);
    member.insert("priority", kept.priority);
    let mut tags = member.get_document("tags").cloned().unwrap_or_default();
    tags.remove(TAG);
    member.insert("tags", tags);
}

fn seen(member: &Document, status: &Document, kept: &Document) -> Result<Seen> {
    let id = number(member, "_id");
    let by_id = |document: &&Document| number(document, "_id") == id;
    let host = member.get_str("host").context("a member has no host")?.to_owned();
    let known = documents(status, "members").find(by_id);
    let consensus = kept.get_document("consensus").ok();
    let consensus = consensus.and_then(|consensus| documents(consensus, "members").find(by_id));
    let primary =
        documents(status, "members").find(|member| member.get_str("stateStr").is_ok_and(|state| state == "PRIMARY"));
    let behind = primary.zip(known).map_or(0, |(primary, known)| {
        seconds(primary).saturating_sub(seconds(known)) as u64
    });
    let tag = member.get_document("tags").and_then(|tags| tags.get_str(TAG)).ok();
    let kept = match tag {
        None => None,
        Some(text) => Some(Kept::parse(text).with_context(|| format!("{host}: the tag {TAG} is not this command's"))?),
    };
    let delay = number(member, "secondaryDelaySecs") as u64;
    let instance = consensus.and_then(|known| known.get_binary_generic("instance").ok());
    // Any version of a configuration has them; what is missing is what a configuration would mean by it.
    let is = |name: &str| member.get_bool(name).unwrap_or(false);
    Ok(Seen {
        host,
        is_arbiter: is("arbiterOnly"),
        votes: member.get("votes").is_none() || number(member, "votes") > 0.0,
        priority: member.get("priority").map_or(1.0, |_| number(member, "priority")),
        hidden: is("hidden"),
        kept,
        state: State::of(
            known
                .and_then(|known| known.get_str("stateStr").ok())
                .unwrap_or("UNKNOWN"),
        ),
        delay,
        behind: behind.saturating_sub(delay),
        engine: Engine::Silent,
        instance: instance.map(|bytes| bytes.iter().map(|byte| format!("{byte:02x}")).collect()),
        has_vote: consensus.is_some_and(|known| known.get_bool("votes").unwrap_or(false)),
    })
}

fn seconds(member: &Document) -> u32 {
    let time = member.get_document("optime").and_then(|time| time.get_timestamp("ts"));
    time.map_or(0, |time| time.time)
}

fn number(document: &Document, name: &str) -> f64 {
    crate::live::number(document, name).unwrap_or(0.0)
}

fn documents<'d>(document: &'d Document, name: &str) -> impl Iterator<Item = &'d Document> {
    let entries = document.get_array(name).map(Vec::as_slice).unwrap_or_default();
    entries.iter().filter_map(Bson::as_document)
}

/// The server answered, and said no.
fn is_said(error: &dump::DumpError) -> bool {
    match error {
        dump::DumpError::Server(error) => is_refusal(error),
        dump::DumpError::Choice(_) => true,
        _ => false,
    }
}

/// As [`is_said`], of an error that was told where.
fn has_answered(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        cause.downcast_ref::<dump::DumpError>().is_some_and(is_said)
            || cause.downcast_ref::<bench::Error>().is_some_and(is_refusal)
    })
}

fn is_refusal(error: &bench::Error) -> bool {
    matches!(error, bench::Error::Refused { .. })
}
