//! Users and roles in dumps: documents of `admin`, as mongodump puts them there. Nobody but the server writes to their
//! collections, so a restoration puts them into temporary ones and asks it to take them over, as mongorestore does.

use crate::client::Client;
use crate::namespace::Namespace;
use bson::doc;

const DATABASE: &str = "admin";
/// What a dump has of them, and what tells tools which layout they have.
const DUMPED: [&str; 3] = ["system.roles", "system.users", "system.version"];
/// A collection, the temporary one that a restoration fills, and the command's field for that.
const TEMPORARY: [(&str, &str, &str); 2] = [
    ("system.roles", "temproles", "tempRolesCollection"),
    ("system.users", "tempusers", "tempUsersCollection"),
];

/// Whether a dump with users and roles has the collection.
pub(crate) fn are_dumped_from(namespace: &Namespace) -> bool {
    namespace.database == DATABASE && DUMPED.contains(&namespace.collection.as_str())
}

/// The temporary collection that the documents of a collection of users or roles go to first.
pub(crate) fn temporary(namespace: &Namespace) -> Option<Namespace> {
    let found = TEMPORARY.iter().find(|(own, ..)| namespace.collection == *own);
    found
        .filter(|_| namespace.database == DATABASE)
        .map(|(_, temporary, _)| Namespace::new(DATABASE, *temporary))
}

/// Has the server take over what is in temporary collections, and drops those. With `drop`, users and roles that it had
/// besides go. Answers what went wrong: the dump may have taken from its user the right to.
pub(crate) fn take_over(client: &mut Client, temporaries: &[Namespace], drop: bool) -> Vec<String> {
    let mut command = doc! { "_mergeAuthzCollections": 1, "db": "", "drop": drop };
    for (_, temporary, field) in TEMPORARY {
        if let Some(named) = temporaries.iter().find(|named| named.collection == temporary) {
            command.insert(field, named.to_string());
        }
    }
    let mut failures = Vec::new();
    if let Err(error) = client.change(DATABASE, &command) {
        failures.push(format!("users and roles are not restored: {error}"));
    }
    for collection in temporaries {
        if let Err(error) = client.change(DATABASE, &doc! { "drop": &collection.collection }) {
            failures.push(format!(
                "{collection}, with copies of the users or roles, is left: {error}"
            ));
        }
    }
    failures
}

/// Drops the temporary collections after a failure.
pub(crate) fn drop_temporaries(client: &mut Client) {
    for (_, temporary, _) in TEMPORARY {
        // The failure is what is told.
        let _ = client.run(DATABASE, &doc! { "drop": temporary });
    }
}
