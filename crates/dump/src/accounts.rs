//! Users and roles in dumps: documents of `admin`, as mongodump puts them there. Nobody but the server writes to their
//! collections, so a restoration puts them aside and asks it to take them over, as mongorestore does.

use crate::client::Client;
use crate::namespace::Namespace;
use bson::doc;

const DATABASE: &str = "admin";
/// What a dump has of them, and what tells tools which layout they have.
const DUMPED: [&str; 3] = ["system.roles", "system.users", "system.version"];
/// A collection, where a restoration puts it, and the field that names that place.
const ASIDE: [(&str, &str, &str); 2] = [
    ("system.roles", "temproles", "tempRolesCollection"),
    ("system.users", "tempusers", "tempUsersCollection"),
];

/// Whether a dump with users and roles has the collection.
pub(crate) fn are_dumped_from(namespace: &Namespace) -> bool {
    namespace.database == DATABASE && DUMPED.contains(&namespace.collection.as_str())
}

/// Where the documents of a collection of users or roles go first.
pub(crate) fn aside(namespace: &Namespace) -> Option<Namespace> {
    let found = ASIDE.iter().find(|(own, ..)| namespace.collection == *own);
    found
        .filter(|_| namespace.database == DATABASE)
        .map(|(_, aside, _)| Namespace::new(DATABASE, *aside))
}

/// Has the server take over what was put aside, and removes that. With `drop`, users and roles that it had besides go.
/// Answers what went wrong: the dump may have taken from its user the right to.
pub(crate) fn take_over(client: &mut Client, asides: &[Namespace], drop: bool) -> Vec<String> {
    let mut command = doc! { "_mergeAuthzCollections": 1, "db": "", "drop": drop };
    for (_, aside, field) in ASIDE {
        if let Some(named) = asides.iter().find(|named| named.collection == aside) {
            command.insert(field, named.to_string());
        }
    }
    let mut failures = Vec::new();
    if let Err(error) = client.run(DATABASE, &command) {
        failures.push(format!("users and roles are not restored: {error}"));
    }
    for aside in asides {
        if let Err(error) = client.run(DATABASE, &doc! { "drop": &aside.collection }) {
            failures.push(format!("{aside}, with copies of the users or roles, is left: {error}"));
        }
    }
    failures
}

/// The files of users and roles in a dump's folder.
pub(crate) fn files() -> impl Iterator<Item = String> {
    let endings = ["bson", "bson.gz"];
    ASIDE
        .into_iter()
        .flat_map(move |(own, ..)| endings.map(|ending| format!("{DATABASE}/{own}.{ending}")))
}

/// Removes what may have been put aside, after a failure.
pub(crate) fn remove_all(client: &mut Client) {
    for (_, aside, _) in ASIDE {
        // The failure is what is told.
        let _ = client.run(DATABASE, &doc! { "drop": aside });
    }
}
