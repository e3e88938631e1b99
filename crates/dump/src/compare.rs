//! Whether two servers have the same: collections, options, indexes, and a hash of the documents of each.
//!
//! A collection's hash is the sum of its documents' hashes, which does not depend on their order; where the order means
//! something, in capped collections, each hash goes into the next one.

use crate::client::Client;
use crate::error::Result;
use crate::found::Found;
use crate::metadata::{CollectionKind, Metadata};
use crate::namespace::Namespace;
use crate::server::Server;
use crate::texts::Texts;
use bench::interrupt::Interrupt;
use bson::{Document, RawDocument};
use indicatif::ProgressBar;
use query::timeseries;
use sha2::{Digest as _, Sha256};
use std::borrow::Cow;
use std::collections::BTreeMap;
use storage::TimeseriesOptions;
use wire::InvalidText;

/// Collections of a server's own that hold what users have made.
pub const OWN_COLLECTIONS: [&str; 3] = ["system.js", "system.users", "system.roles"];

/// What a collection is, in a form to be compared.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// Documents or a view.
    pub kind: CollectionKind,
    /// Options of `create`, by their names.
    pub options: BTreeMap<String, bson::Bson>,
    /// Indexes by their names; fields of each by their names.
    pub indexes: BTreeMap<String, BTreeMap<String, bson::Bson>>,
    /// Documents.
    pub documents: u64,
    /// Of all of them.
    pub hash: u128,
}

/// All collections of a server but its own. Reads every document; those with text that is not UTF-8 count as what is
/// restored of them.
pub fn summaries(
    server: &Server,
    invalid_text: Option<InvalidText>,
    interrupt: &Interrupt,
    progress: &ProgressBar,
) -> Result<BTreeMap<Namespace, Summary>> {
    let mut client = Client::open_patient(server, interrupt)?;
    let mut found = BTreeMap::new();
    for database in client.databases(None)? {
        for entry in client.collections(&database)? {
            let namespace = Namespace::new(database.as_str(), entry.get_str("name").unwrap_or_default());
            let name = namespace.collection.as_str();
            if name.starts_with("system.") && !OWN_COLLECTIONS.contains(&name) {
                continue;
            }
            let is_of_users = matches!(name, "system.users" | "system.roles");
            let summary = summary(&mut client, &namespace, &entry, invalid_text, progress)
                .map_err(|error| error.of(&namespace))?;
            // These are made with the first user or role.
            if !is_of_users || summary.documents > 0 {
                found.insert(namespace, summary);
            }
        }
    }
    Ok(found)
}

fn summary(
    client: &mut Client,
    namespace: &Namespace,
    entry: &Document,
    invalid_text: Option<InvalidText>,
    progress: &ProgressBar,
) -> Result<Summary> {
    let metadata = Metadata::of_listed(entry);
    let series = metadata.timeseries();
    let mut summary = Summary {
        kind: metadata.kind,
        options: metadata.options.into_iter().collect(),
        indexes: BTreeMap::new(),
        documents: 0,
        hash: 0,
    };
    match summary.kind {
        CollectionKind::View => return Ok(summary),
        CollectionKind::Collection | CollectionKind::TimeSeries => {}
    }
    for mut index in client.indexes(namespace)? {
        // Old servers repeat the namespace, and servers choose the version in which they keep an index.
        index.remove("ns");
        index.remove("v");
        let name = index.get_str("name").unwrap_or_default().to_owned();
        summary.indexes.insert(name, index.into_iter().collect());
    }
    let is_ordered = summary.options.get("capped").and_then(bson::Bson::as_bool) == Some(true);
    client.find(&namespace.of_documents(summary.kind), None, &mut |document| {
        progress.inc(document.as_bytes().len() as u64);
        let Some(stored) = stored(document, series.as_deref(), invalid_text)? else {
            return Ok(());
        };
        let mut hasher = Sha256::new();
        if is_ordered {
            hasher.update(summary.hash.to_le_bytes());
        }
        hasher.update(&stored);
        let digest = hasher.finalize();
        let (half, _) = digest.split_at(16);
        let hash = u128::from_le_bytes(half.try_into().expect("half of 32 bytes"));
        summary.hash = match is_ordered {
            true => hash,
            false => summary.hash.wrapping_add(hash),
        };
        summary.documents += 1;
        Ok(())
    })?;
    Ok(summary)
}

/// The bytes that a restoration stores of a document; `None` for nothing.
fn stored<'d>(
    document: &'d RawDocument,
    series: Option<&TimeseriesOptions>,
    invalid_text: Option<InvalidText>,
) -> Result<Option<Cow<'d, [u8]>>> {
    // Nearly all documents, which are not copied for that.
    let is_invalid = || matches!(wire::validate_structure(document.as_bytes()), Ok(Some(_)));
    if series.is_none() && (invalid_text.is_none() || !is_invalid()) {
        return Ok(Some(Cow::Borrowed(document.as_bytes())));
    }
    let found = Found::of_server(document);
    let mut texts = Texts::new(invalid_text);
    let restored = match series {
        // Without a choice such text has ended the restoration.
        Some(options) if invalid_text.is_some() => texts.bucket(&found, options)?,
        Some(_) => Some(Cow::Borrowed(found.as_found())),
        None => texts.document(&found)?,
    };
    let Some(restored) = restored else {
        return Ok(None);
    };
    let restored: &RawDocument = &restored;
    // Servers keep buckets uncompressed.
    let adopted = series.and_then(|options| timeseries::adopted(restored, options).ok());
    let bytes = adopted.map_or_else(|| restored.as_bytes().to_vec(), Cow::into_owned);
    Ok(Some(Cow::Owned(bytes)))
}

/// A sentence for everything in which the second is not as the first.
pub fn differences(first: &BTreeMap<Namespace, Summary>, second: &BTreeMap<Namespace, Summary>) -> Vec<String> {
    let mut found = Vec::new();
    for (namespace, expected) in first {
        let Some(there) = second.get(namespace) else {
            found.push(format!("{namespace} is missing"));
            continue;
        };
        if expected.kind != there.kind {
            found.push(format!(
                "{namespace} is a {}, not a {}",
                there.kind.name(),
                expected.kind.name()
            ));
        }
        if expected.options != there.options {
            found.push(format!("{namespace} has other options"));
        }
        for name in expected.indexes.keys().chain(there.indexes.keys()) {
            let what = format!("{namespace}: the index {name} is another one, or missing");
            if expected.indexes.get(name) != there.indexes.get(name) && !found.contains(&what) {
                found.push(what);
            }
        }
        if expected.documents != there.documents {
            let (many, wanted) = (there.documents, expected.documents);
            found.push(format!("{namespace} has {many} documents, not {wanted}"));
        } else if expected.hash != there.hash {
            found.push(format!("{namespace} has other documents"));
        }
    }
    let more = second.keys().filter(|namespace| !first.contains_key(namespace));
    found.extend(more.map(|namespace| format!("{namespace} is there, and should not be")));
    found
}

#[cfg(test)]
mod tests {
    use super::{Summary, differences};
    use crate::{CollectionKind, Namespace};
    use bson::Bson;
    use std::collections::BTreeMap;

    #[test]
    fn every_difference_is_told() {
        let one = Summary {
            kind: CollectionKind::Collection,
            options: BTreeMap::new(),
            indexes: BTreeMap::from([("_id_".to_owned(), BTreeMap::new())]),
            documents: 2,
            hash: 7,
        };
        let servers = |change: fn(&mut Summary)| {
            let mut summary = one.clone();
            change(&mut summary);
            BTreeMap::from([(Namespace::new("d", "c"), summary)])
        };
        let same = servers(|_| {});
        assert!(differences(&same, &same).is_empty());
        type Change = fn(&mut Summary);
        let changes: [(Change, &str); 5] = [
            (|summary| summary.kind = CollectionKind::View, "is a view"),
            (
                |summary| drop(summary.options.insert("capped".to_owned(), Bson::Boolean(true))),
                "other options",
            ),
            (|summary| summary.indexes.clear(), "the index _id_"),
            (|summary| summary.documents = 1, "has 1 documents, not 2"),
            (|summary| summary.hash = 8, "other documents"),
        ];
        for (change, expected) in changes {
            let found = differences(&same, &servers(change));
            assert!(found.len() == 1 && found[0].contains(expected), "{found:?}");
        }
        assert_eq!(differences(&same, &BTreeMap::new()), ["d.c is missing"]);
        assert_eq!(
            differences(&BTreeMap::new(), &same),
            ["d.c is there, and should not be"]
        );
    }
}
