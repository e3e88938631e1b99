//! What is to be done next to have every chosen member on an engine, as a function of what the set shows at the moment.
//!
//! 1. Whatever was begun is ended first: a member that was taken aside is replaced, waited for, and put back.
//! 2. Then the next member that has another engine is taken aside, the last of the configuration first, and the
//!    primary last of all, after it has stepped down.
//!
//! Nothing is remembered between two calls, so that a command that was killed goes on where the set is. This module
//! talks to nobody; `set` looks, and the command acts.

use std::fmt::Write as _;

/// The tag in which a member's configuration keeps what it was before it was taken aside.
pub const TAG: &str = "engineChange";

/// What a member was before it was taken aside, and what it is to become.
#[derive(Clone, Debug, PartialEq)]
pub struct Kept {
    /// `priority`
    pub priority: f64,
    /// `hidden`
    pub hidden: bool,
    /// The engine that it is to have.
    pub to: String,
    /// The data directory that it had, in hexadecimal.
    pub instance: String,
}

impl Kept {
    /// As the value of the tag.
    pub fn to_text(&self) -> String {
        format!(
            "to={} priority={} hidden={} instance={}",
            self.to, self.priority, self.hidden, self.instance
        )
    }

    /// Reads the value; `None` for a text of somebody else.
    pub fn parse(text: &str) -> Option<Self> {
        let of = |name: &str| {
            let mut values = text
                .split(' ')
                .filter_map(|word| word.strip_prefix(name)?.strip_prefix('='));
            values.next().map(str::to_owned)
        };
        Some(Self {
            priority: of("priority")?.parse().ok()?,
            hidden: of("hidden")?.parse().ok()?,
            to: of("to")?,
            instance: of("instance")?,
        })
    }
}

/// What a member says of its engine on a connection of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Engine {
    /// `serverStatus.storageEngine.name`
    Named(String),
    /// It answers, but does not say it, as a server does that has no users yet.
    Unsaid(String),
    /// Nobody answers.
    Silent,
}

/// A member's state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    Primary,
    Secondary,
    Arbiter,
    Other(String),
}

impl State {
    /// By the name that `replSetGetStatus` gives.
    pub fn of(name: &str) -> Self {
        match name {
            "PRIMARY" => Self::Primary,
            "SECONDARY" => Self::Secondary,
            "ARBITER" => Self::Arbiter,
            other => Self::Other(other.to_owned()),
        }
    }

    /// As `replSetGetStatus` has it.
    pub fn name(&self) -> &str {
        match self {
            Self::Primary => "PRIMARY",
            Self::Secondary => "SECONDARY",
            Self::Arbiter => "ARBITER",
            Self::Other(name) => name,
        }
    }
}

/// A member, as the primary and it itself show it.
#[derive(Clone, Debug)]
pub struct Seen {
    /// `host:port`
    pub host: String,
    /// It keeps no data.
    pub is_arbiter: bool,
    /// `votes` of the configuration.
    pub votes: bool,
    /// `priority` of the configuration.
    pub priority: f64,
    /// `hidden` of the configuration.
    pub hidden: bool,
    /// It was taken aside.
    pub kept: Option<Kept>,
    /// What the primary knows of it.
    pub state: State,
    /// Seconds that its configuration has it stay behind.
    pub delay: u64,
    /// Seconds behind the primary, less that.
    pub behind: u64,
    /// Its engine.
    pub engine: Engine,
    /// The data directory that consensus knows as it.
    pub instance: Option<String>,
    /// It has its vote in consensus.
    pub has_vote: bool,
}

/// A set at a moment.
#[derive(Clone, Debug)]
pub struct View {
    /// In the order of the configuration.
    pub members: Vec<Seen>,
}

/// What the user wants.
#[derive(Clone, Debug)]
pub struct Wish {
    /// The engine.
    pub engine: String,
    /// Hosts; all members with data, if there are none.
    pub members: Vec<String>,
    /// A healthy member is at most so many seconds behind the primary.
    pub lag_max: u64,
}

/// Something to do. The number is the member's place in the view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Hidden, without priority, with the tag.
    Hide(usize),
    /// Stopped, wiped, and started with the engine.
    Replace(usize),
    /// What it was before; the tag goes.
    Restore(usize),
    /// Another member becomes the primary.
    HandOver(usize),
}

/// What is next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// To be done now.
    Do(Step),
    /// The member copies all data, which takes as long as it takes.
    AwaitCopy(usize, String),
    /// The set is not as it must be, and may be so soon.
    AwaitHealth(String),
    /// It cannot be done with such a set.
    Refuse(String),
    /// Everything is as it was wanted.
    Done,
}

/// See the module.
pub fn next(view: &View, wish: &Wish) -> Next {
    if let Some(reason) = contradiction(view, wish) {
        return Next::Refuse(reason);
    }
    let aside = view
        .members
        .iter()
        .enumerate()
        .find_map(|(at, seen)| Some((at, seen, seen.kept.as_ref()?)));
    match aside {
        Some((at, seen, kept)) => go_on(view, wish, at, seen, kept),
        None => begin(view, wish),
    }
}

/// Ends what was begun with a member.
fn go_on(view: &View, wish: &Wish, at: usize, seen: &Seen, kept: &Kept) -> Next {
    let has_engine = match &seen.engine {
        Engine::Named(engine) => *engine == wish.engine,
        Engine::Silent => false,
        // One that cannot check who asks has no data yet: it was wiped.
        Engine::Unsaid(_) => true,
    };
    if !has_engine {
        return match unhealthy(view, wish, at) {
            Some(reason) => Next::AwaitHealth(reason),
            None => Next::Do(Step::Replace(at)),
        };
    }
    let is_another = seen
        .instance
        .as_ref()
        .is_some_and(|instance| *instance != kept.instance);
    let missing = if !is_another {
        "the primary has not taken it in as a new instance yet".to_owned()
    } else if seen.state != State::Secondary {
        format!("it is {}", seen.state.name())
    } else if seen.votes && !seen.has_vote {
        "it has no vote yet".to_owned()
    } else if seen.behind > wish.lag_max {
        format!("it is {} s behind", seen.behind)
    } else if let Engine::Unsaid(reason) = &seen.engine {
        format!("it does not say which engine it has: {reason}")
    } else {
        return Next::Do(Step::Restore(at));
    };
    Next::AwaitCopy(at, missing)
}

/// Begins with the next member.
fn begin(view: &View, wish: &Wish) -> Next {
    let mut left = Vec::new();
    for (at, seen) in view
        .members
        .iter()
        .enumerate()
        .filter(|(_, seen)| is_chosen(seen, wish))
    {
        match &seen.engine {
            Engine::Named(engine) if *engine == wish.engine => {}
            Engine::Named(_) => left.push(at),
            Engine::Unsaid(reason) => {
                return Next::AwaitHealth(format!("{} does not say its engine: {reason}", seen.host));
            }
            Engine::Silent => return Next::AwaitHealth(format!("{} does not answer", seen.host)),
        }
    }
    let is_primary = |at: &usize| view.members[*at].state == State::Primary;
    let Some(at) = left.iter().rev().find(|at| !is_primary(at)).or(left.first()).copied() else {
        return Next::Done;
    };
    if let Some(reason) = too_few(view, at) {
        return Next::Refuse(reason);
    }
    if let Some(reason) = unhealthy(view, wish, usize::MAX) {
        return Next::AwaitHealth(reason);
    }
    if !is_primary(&at) {
        return Next::Do(Step::Hide(at));
    }
    match heir(view, at) {
        Some(_) => Next::Do(Step::HandOver(at)),
        None => Next::Refuse(format!(
            "{} is the primary, and no other member can become it: give one a vote and a priority",
            view.members[at].host
        )),
    }
}

fn is_chosen(seen: &Seen, wish: &Wish) -> bool {
    !seen.is_arbiter && (wish.members.is_empty() || wish.members.contains(&seen.host))
}

/// What is wrong with the wish itself.
fn contradiction(view: &View, wish: &Wish) -> Option<String> {
    for host in &wish.members {
        match view.members.iter().find(|seen| seen.host == *host) {
            None => return Some(format!("{host} is no member: there are {}", hosts(view))),
            Some(seen) if seen.is_arbiter => return Some(format!("{host} is an arbiter, which keeps no data")),
            Some(_) => {}
        }
    }
    let other = view.members.iter().find_map(|seen| {
        let kept = seen.kept.as_ref().filter(|kept| kept.to != wish.engine)?;
        Some((seen, kept))
    });
    other.map(|(seen, kept)| {
        format!(
            "{} is being changed to {}: end that first, by --to-engine {}",
            seen.host, kept.to, kept.to
        )
    })
}

fn hosts(view: &View) -> String {
    let hosts: Vec<&str> = view.members.iter().map(|seen| &*seen.host).collect();
    hosts.join(", ")
}

/// Whether the set can be without a member at all: a majority must be left, and somebody that has the data.
fn too_few(view: &View, at: usize) -> Option<String> {
    let seen = &view.members[at];
    let others = || view.members.iter().enumerate().filter(move |(other, _)| *other != at);
    if others().all(|(_, seen)| seen.is_arbiter) {
        return Some(format!(
            "{} is the only member with data, which would be lost: `tenon migrate` changes the engine of one server",
            seen.host
        ));
    }
    let voters = view.members.iter().filter(|seen| seen.votes).count();
    let left = others().filter(|(_, seen)| seen.votes).count();
    if left > voters / 2 {
        return None;
    }
    Some(format!(
        "without {} there are {left} of {voters} votes, which is no majority: nothing could be written while it copies \
         the data. Set its votes and its priority to 0 first (rs.reconfig), or add a member",
        seen.host
    ))
}

/// What is wrong with the members but one.
fn unhealthy(view: &View, wish: &Wish, but: usize) -> Option<String> {
    if !view.members.iter().any(|seen| seen.state == State::Primary) {
        return Some("there is no primary".to_owned());
    }
    let others = view.members.iter().enumerate().filter(|(at, _)| *at != but);
    for (_, seen) in others {
        let is_fine = match seen.is_arbiter {
            true => seen.state == State::Arbiter,
            false => matches!(seen.state, State::Primary | State::Secondary),
        };
        if !is_fine {
            return Some(format!("{} is {}", seen.host, seen.state.name()));
        }
        if seen.votes && !seen.has_vote {
            return Some(format!("{} has no vote yet", seen.host));
        }
        if seen.behind > wish.lag_max {
            return Some(format!("{} is {} s behind the primary", seen.host, seen.behind));
        }
    }
    None
}

/// Who may lead after this one.
fn heir(view: &View, at: usize) -> Option<usize> {
    let able =
        view.members.iter().enumerate().filter(|(other, seen)| {
            *other != at && seen.has_vote && seen.priority > 0.0 && seen.state == State::Secondary
        });
    able.max_by(|(_, one), (_, other)| one.priority.total_cmp(&other.priority))
        .map(|(at, _)| at)
}

/// All steps, as they follow from each other if everything goes well; and why they end early, if they do.
pub fn whole(view: &View, wish: &Wish) -> (Vec<(Step, String)>, Option<String>) {
    let mut view = view.clone();
    let mut steps = Vec::new();
    loop {
        match next(&view, wish) {
            Next::Done => return (steps, None),
            Next::Refuse(reason) | Next::AwaitHealth(reason) => return (steps, Some(reason)),
            Next::AwaitCopy(at, _) => settle(&mut view.members[at]),
            Next::Do(step) => {
                steps.push((step, words(&view, wish, step)));
                happen(&mut view, wish, step);
            }
        }
    }
}

/// A step in words.
pub fn words(view: &View, wish: &Wish, step: Step) -> String {
    match step {
        Step::Hide(at) => format!("{}: reconfigure to hidden: true, priority: 0", view.members[at].host),
        Step::Replace(at) => format!(
            "{}: stop, wipe, start with the engine {}; wait until it has copied all data and votes again",
            view.members[at].host, wish.engine
        ),
        Step::Restore(at) => {
            let seen = &view.members[at];
            let mut text = seen.host.clone();
            if let Some(kept) = &seen.kept {
                // Writing to a String cannot fail.
                let _ = write!(
                    text,
                    ": reconfigure back to hidden: {}, priority: {}",
                    kept.hidden, kept.priority
                );
            }
            text
        }
        Step::HandOver(at) => format!(
            "{}: step down, another member becomes the primary",
            view.members[at].host
        ),
    }
}

/// What the tag is to say of a member.
pub fn keep(seen: &Seen, wish: &Wish) -> Kept {
    Kept {
        priority: seen.priority,
        hidden: seen.hidden,
        to: wish.engine.clone(),
        instance: seen.instance.clone().unwrap_or_default(),
    }
}

fn settle(seen: &mut Seen) {
    (seen.state, seen.behind) = (State::Secondary, 0);
    seen.has_vote = seen.votes;
    if let Engine::Unsaid(_) = seen.engine {
        seen.engine = Engine::Named(seen.kept.as_ref().map_or_else(String::new, |kept| kept.to.clone()));
    }
    seen.instance = Some("another".to_owned());
}

/// The view after a step that went well.
fn happen(view: &mut View, wish: &Wish, step: Step) {
    match step {
        Step::Hide(at) => {
            let seen = &mut view.members[at];
            seen.kept = Some(keep(seen, wish));
            (seen.hidden, seen.priority) = (true, 0.0);
        }
        Step::Replace(at) => {
            let seen = &mut view.members[at];
            seen.engine = Engine::Named(wish.engine.clone());
            settle(seen);
        }
        Step::Restore(at) => {
            let seen = &mut view.members[at];
            if let Some(kept) = seen.kept.take() {
                (seen.hidden, seen.priority) = (kept.hidden, kept.priority);
            }
        }
        Step::HandOver(at) => {
            let heir = heir(view, at);
            view.members[at].state = State::Secondary;
            if let Some(heir) = heir {
                view.members[heir].state = State::Primary;
            }
        }
    }
}

#[cfg(test)]
mod tests;
