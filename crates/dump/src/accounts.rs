//! Users and roles in dumps: documents of `admin`, as mongodump puts them there. Nobody but the server writes to their
//! collections, so a restoration puts them aside and asks it to take them over, as mongorestore does.

use crate::client::Client;
use crate::error::{DumpError, Result};
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
const COMMAND_NOT_FOUND: i32 = 59;

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
/// Answers what could not be removed, and why: the dump may have taken from its user the right to.
pub(crate) fn take_over(client: &mut Client, asides: &[Namespace], drop: bool) -> Result<Vec<String>> {
    let mut command = doc! { "_mergeAuthzCollections": 1, "db": "", "drop": drop };
    for (_, aside, field) in ASIDE {
        if let Some(named) = asides.iter().find(|named| named.collection == aside) {
            command.insert(field, named.to_string());
        }
    }
    let merged = client.run(DATABASE, &command);
    let mut left = Vec::new();
    for aside in asides {
        if let Err(error) = client.run(DATABASE, &doc! { "drop": &aside.collection }) {
            left.push(format!("{aside}, with copies of the users or roles, is left: {error}"));
        }
    }
    match merged {
        Err(error) if error.is_refusal(COMMAND_NOT_FOUND) => Err(DumpError::Choice(
            "the dump has users or roles, and the server cannot take them over".to_owned(),
        )),
        merged => merged.map(|_| left),
    }
}
