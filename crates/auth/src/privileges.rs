//! Privileges: actions on resources, and the question whether somebody has them.
//!
//! A *resource* of a privilege is a pattern: a collection, all collections of a name, all ordinary collections of a
//! database or of all databases, the cluster, or anything. What is asked about is one [`Target`]. Collections whose
//! name begins with `system.` are never meant by a pattern that does not name them, nor are the databases `local`
//! and `config` by one that names no database.
//!
//! Asking allocates nothing: it is done for each command.

use crate::action::{Action, ActionSet};
use std::collections::BTreeMap;

/// What a privilege is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Resource {
    /// Everything there is.
    Any,
    /// The server as a whole.
    Cluster,
    /// A collection; an empty name means every one.
    Collection {
        /// The database.
        database: String,
        /// The collection's name in it.
        collection: String,
    },
    /// The buckets of a time-series collection; an empty name means every one.
    Buckets {
        /// The database.
        database: String,
        /// The time-series collection's name in it.
        collection: String,
    },
}

impl Resource {
    /// The resource `{ db, collection }`.
    pub fn collection(database: &str, collection: &str) -> Self {
        Self::Collection {
            database: database.to_owned(),
            collection: collection.to_owned(),
        }
    }

    /// The resource `{ db, system_buckets }`.
    pub fn buckets(database: &str, collection: &str) -> Self {
        Self::Buckets {
            database: database.to_owned(),
            collection: collection.to_owned(),
        }
    }
}

/// Actions on a resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Privilege {
    /// On what.
    pub resource: Resource,
    /// What is allowed.
    pub actions: ActionSet,
}

/// What a command is about to touch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target<'t> {
    /// The server as a whole.
    Cluster,
    /// A database.
    Database(&'t str),
    /// A collection of a database.
    Collection(&'t str, &'t str),
    /// Every ordinary collection of every database.
    AnyDatabase,
}

/// What somebody may do in one database, or in all of them.
#[derive(Clone, Debug, Default)]
struct OfDatabase {
    /// On the database and its ordinary collections.
    ordinary: ActionSet,
    /// On the buckets of all time-series collections.
    buckets: ActionSet,
    /// On collections of these names.
    named: BTreeMap<Box<str>, ActionSet>,
}

impl OfDatabase {
    /// What of `actions` is not allowed on a collection, or on the database. Most privileges are on all ordinary
    /// collections: those that are named are looked up for what is left.
    fn missing(&self, collection: Option<&str>, actions: ActionSet) -> ActionSet {
        let missing = match collection {
            Some(name) if name.starts_with(BUCKETS_PREFIX) => actions.missing_from(self.buckets),
            Some(name) if is_system(name) => actions,
            _ => actions.missing_from(self.ordinary),
        };
        match collection {
            Some(name) if !missing.is_empty() => self.missing_by_name(name, missing),
            _ => missing,
        }
    }

    fn missing_by_name(&self, collection: &str, actions: ActionSet) -> ActionSet {
        match self.named.get(collection) {
            Some(held) => actions.missing_from(*held),
            None => actions,
        }
    }
}

/// Everything somebody may do.
#[derive(Clone, Debug, Default)]
pub struct Privileges {
    any: ActionSet,
    cluster: ActionSet,
    everywhere: OfDatabase,
    databases: BTreeMap<Box<str>, OfDatabase>,
}

impl Privileges {
    /// Adds a privilege.
    pub fn add(&mut self, resource: &Resource, actions: ActionSet) {
        let slot = match resource {
            Resource::Any => &mut self.any,
            Resource::Cluster => &mut self.cluster,
            Resource::Collection { database, collection } => {
                let of_database = match database.as_str() {
                    "" => &mut self.everywhere,
                    name => self.databases.entry(name.into()).or_default(),
                };
                match collection.as_str() {
                    "" => &mut of_database.ordinary,
                    name => of_database.named.entry(name.into()).or_default(),
                }
            }
            Resource::Buckets { database, collection } => {
                let of_database = match database.as_str() {
                    "" => &mut self.everywhere,
                    name => self.databases.entry(name.into()).or_default(),
                };
                match collection.as_str() {
                    "" => &mut of_database.buckets,
                    name => {
                        let name = format!("{BUCKETS_PREFIX}{name}");
                        of_database.named.entry(name.into()).or_default()
                    }
                }
            }
        };
        *slot = *slot | actions;
    }

    /// Adds all that another has.
    pub fn extend<'p>(&mut self, privileges: impl IntoIterator<Item = &'p Privilege>) {
        for privilege in privileges {
            self.add(&privilege.resource, privilege.actions);
        }
    }

    /// May all of `actions` be done to `target`?
    pub fn allow(&self, target: Target<'_>, actions: ActionSet) -> bool {
        let missing = actions.missing_from(self.any);
        if missing.is_empty() {
            return true;
        }
        let (database, collection) = match target {
            Target::Cluster => return missing.missing_from(self.cluster).is_empty(),
            Target::AnyDatabase => return missing.missing_from(self.everywhere.ordinary).is_empty(),
            Target::Database(database) => (database, None),
            Target::Collection(database, collection) => (database, Some(collection)),
        };
        // A privilege on all databases does not reach what the server keeps in these two, unless it names a collection.
        let missing = match (database, collection) {
            ("local" | "config", None) => missing,
            ("local" | "config", Some(name)) => self.everywhere.missing_by_name(name, missing),
            _ => self.everywhere.missing(collection, missing),
        };
        if missing.is_empty() {
            return true;
        }
        let here = self.databases.get(database);
        here.is_some_and(|here| here.missing(collection, missing).is_empty())
    }

    /// May any of `actions` be done to something in the database: to it or to one of its collections?
    pub fn allow_any_within(&self, database: &str, actions: ActionSet) -> bool {
        let some = |held: ActionSet| actions.iter().any(|action| held.has(action));
        let within =
            |held: &OfDatabase| some(held.ordinary | held.buckets) || held.named.values().any(|held| some(*held));
        let everywhere = match database {
            "local" | "config" => self.everywhere.named.values().any(|held| some(*held)),
            _ => within(&self.everywhere),
        };
        some(self.any) || everywhere || self.databases.get(database).is_some_and(within)
    }

    /// May anything be done to the collection?
    pub fn allow_something_on(&self, database: &str, collection: &str) -> bool {
        let target = Target::Collection(database, collection);
        let may = |action: &Action| self.allow(target, ActionSet::of(&[*action]));
        Action::ALL.iter().any(may)
    }

    /// All of it, one for each resource, in the order of resources.
    pub fn list(&self) -> Vec<Privilege> {
        let mut list = vec![(Resource::Any, self.any), (Resource::Cluster, self.cluster)];
        let databases = self.databases.iter().map(|(name, held)| (&**name, held));
        for (database, held) in databases.chain([("", &self.everywhere)]) {
            list.push((Resource::collection(database, ""), held.ordinary));
            list.push((Resource::buckets(database, ""), held.buckets));
            let resource = |name: &str| match name.strip_prefix(BUCKETS_PREFIX) {
                Some(of) => Resource::buckets(database, of),
                None => Resource::collection(database, name),
            };
            let named = held.named.iter();
            list.extend(named.map(|(name, actions)| (resource(name), *actions)));
        }
        list.retain(|(_, actions)| !actions.is_empty());
        list.sort_by(|(a, _), (b, _)| a.cmp(b));
        let privilege = |(resource, actions)| Privilege { resource, actions };
        list.into_iter().map(privilege).collect()
    }
}

/// What the names of collections of buckets begin with.
const BUCKETS_PREFIX: &str = "system.buckets.";

/// Collections that only privileges naming them reach.
fn is_system(collection: &str) -> bool {
    collection.starts_with("system.")
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIND: ActionSet = ActionSet::of(&[Action::Find]);
    const BOTH: ActionSet = ActionSet::of(&[Action::Find, Action::Insert]);

    fn having(resource: Resource) -> Privileges {
        let mut privileges = Privileges::default();
        privileges.add(&resource, FIND);
        privileges
    }

    #[test]
    fn a_pattern_reaches_what_it_means_and_nothing_else() {
        use Target::{AnyDatabase, Cluster, Collection, Database};
        let targets = [
            Cluster,
            AnyDatabase,
            Database("a"),
            Collection("a", "c"),
            Collection("a", "d"),
            Collection("b", "c"),
            Collection("a", "system.users"),
            Collection("local", "c"),
            Collection("config", "c"),
        ];
        let reach = |resource: Resource| {
            let held = having(resource);
            targets.map(|target| u8::from(held.allow(target, FIND)))
        };
        assert_eq!(reach(Resource::Any), [1, 1, 1, 1, 1, 1, 1, 1, 1]);
        assert_eq!(reach(Resource::Cluster), [1, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(reach(Resource::collection("", "")), [0, 1, 1, 1, 1, 1, 0, 0, 0]);
        assert_eq!(reach(Resource::collection("a", "")), [0, 0, 1, 1, 1, 0, 0, 0, 0]);
        assert_eq!(reach(Resource::collection("a", "c")), [0, 0, 0, 1, 0, 0, 0, 0, 0]);
        assert_eq!(reach(Resource::collection("", "c")), [0, 0, 0, 1, 0, 1, 0, 1, 1]);
        assert_eq!(
            reach(Resource::collection("a", "system.users")),
            [0, 0, 0, 0, 0, 0, 1, 0, 0]
        );
        assert_eq!(reach(Resource::collection("local", "")), [0, 0, 0, 0, 0, 0, 0, 1, 0]);
        assert!(!Privileges::default().allow(Database("a"), FIND));
    }

    #[test]
    fn buckets_are_reached_by_patterns_of_buckets_alone() {
        let buckets = Target::Collection("a", "system.buckets.c");
        for (resource, expected) in [
            (Resource::buckets("", ""), true),
            (Resource::buckets("a", ""), true),
            (Resource::buckets("a", "c"), true),
            (Resource::buckets("", "c"), true),
            (Resource::buckets("b", ""), false),
            (Resource::buckets("a", "d"), false),
            (Resource::collection("a", ""), false),
            (Resource::collection("a", "c"), false),
        ] {
            let held = having(resource.clone());
            assert_eq!(held.allow(buckets, FIND), expected, "{resource:?}");
            assert!(!held.allow(Target::Collection("a", "system.users"), FIND));
            let listed = held.list();
            assert_eq!(listed.len(), 1);
            assert_eq!(listed[0].resource, resource);
        }
        assert!(!having(Resource::buckets("", "")).allow(Target::Collection("a", "c"), FIND));
    }

    #[test]
    fn actions_of_several_patterns_add_up() {
        let mut held = having(Resource::collection("", ""));
        assert!(!held.allow(Target::Collection("a", "c"), BOTH));
        held.add(&Resource::collection("a", "c"), ActionSet::of(&[Action::Insert]));
        assert!(held.allow(Target::Collection("a", "c"), BOTH));
        assert!(!held.allow(Target::Collection("a", "d"), BOTH));
        assert_eq!(held.list().len(), 2);
    }

    #[test]
    fn a_database_is_reached_by_any_of_its_collections() {
        let held = having(Resource::collection("a", "c"));
        assert!(held.allow_any_within("a", FIND) && !held.allow_any_within("b", FIND));
        assert!(!held.allow_any_within("a", ActionSet::of(&[Action::Insert])));
        assert!(held.allow_something_on("a", "c") && !held.allow_something_on("a", "d"));
        assert!(!having(Resource::collection("", "")).allow_any_within("local", FIND));
    }
}
