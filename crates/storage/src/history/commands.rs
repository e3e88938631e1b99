//! Changes of definitions as the commands that a client would give, for those who follow the log.
//!
//! A command is `{ns, ui, o, o2}`: the namespace its entry has (`db.$cmd`), the collection's uuid where it is about
//! one, what was done, and what helps to understand it (of a dropped collection how many documents it had, of a changed
//! one what its options were). The field names are those of MongoDB's oplog.

use crate::catalog::rows::{CollectionRow, IndexRow};
use crate::definition::Definition;
use crate::{Collection, CollectionChange, Index, IndexChange, Namespace, View};
use bson::raw::{CStr, CString, cstr};
use bson::spec::BinarySubtype;
use bson::{Binary, RawDocument, RawDocumentBuf, rawdoc};
use hashbrown::HashSet;
use std::sync::Arc;

/// The commands that definitions made as one change are, in their order.
pub(crate) fn commands_of(definitions: &[Definition], dropped_database: Option<&str>) -> Vec<RawDocumentBuf> {
    let mut commands = Vec::new();
    // A whole database may be dropped.
    let put = definitions.iter().filter_map(|definition| match definition {
        Definition::PutCollection { row, .. } => Some(&row.namespace),
        _ => None,
    });
    let put: HashSet<&Namespace> = put.collect();
    for definition in definitions {
        match definition {
            Definition::PutCollection { row, former, .. } => match former {
                None => created(row, &mut commands),
                Some(former) => changed(definitions, former, row, &mut commands),
            },
            Definition::DropCollection(collection) if !put.contains(&collection.namespace) => {
                let ns = &collection.namespace;
                let told = rawdoc! { "numRecords": collection.count() as i64 };
                commands.push(command(
                    ns.db(),
                    Some(collection.uuid),
                    rawdoc! { "drop": ns.collection() },
                    Some(told),
                ));
            }
            // Another one is renamed to its name.
            Definition::DropCollection(_) => {}
            Definition::PutView(view) => commands.push(view_command("create", view)),
            // Without a uuid it is that of a view.
            Definition::DropView(ns) => {
                commands.push(command(ns.db(), None, rawdoc! { "drop": ns.collection() }, None))
            }
        }
    }
    if let Some(db) = dropped_database {
        commands.push(command(db, None, rawdoc! { "dropDatabase": 1 }, None));
    }
    commands
}

/// `create` or `collMod` of a view.
pub(crate) fn view_command(name: &str, view: &View) -> RawDocumentBuf {
    let mut o = RawDocumentBuf::new();
    if let Ok(name) = CString::try_from(name.to_owned()) {
        o.append(name, view.namespace().collection());
    }
    o.append(cstr!("viewOn"), view.view_on());
    o.append(cstr!("pipeline"), view.pipeline().to_owned());
    append_all(&mut o, view.options());
    command(view.namespace().db(), None, o, None)
}

/// `collMod` of a collection: what was asked for, whether or not it changes anything.
pub(crate) fn modified(former: &Collection, row: &CollectionRow, change: &CollectionChange) -> RawDocumentBuf {
    let mut o = rawdoc! { "collMod": former.namespace.collection() };
    let mut o2 = rawdoc! { "collectionOptions_old": former_options(former) };
    if let Some(asked) = &change.index
        && let Some(was) = former.index(&asked.name)
        && let Some(is) = row.indexes.iter().find(|index| index.spec.name == asked.name)
        && let Some((set, old)) = changed_index(was, is, Some(asked))
    {
        o.append(cstr!("index"), set);
        o2.append(cstr!("indexOptions_old"), old);
    }
    append_all(&mut o, &change.requested);
    command(former.namespace.db(), Some(former.uuid), o, Some(o2))
}

/// A collection's options and its identity.
fn former_options(collection: &Collection) -> RawDocumentBuf {
    let mut options = rawdoc! { "uuid": uuid_value(collection.uuid) };
    append_all(&mut options, collection.options());
    options
}

fn command(db: &str, uuid: Option<[u8; 16]>, o: RawDocumentBuf, o2: Option<RawDocumentBuf>) -> RawDocumentBuf {
    let mut command = rawdoc! { "ns": format!("{db}.$cmd") };
    if let Some(uuid) = uuid {
        command.append(cstr!("ui"), uuid_value(uuid));
    }
    command.append(cstr!("o"), o);
    if let Some(o2) = o2 {
        command.append(cstr!("o2"), o2);
    }
    command
}

/// A collection's identity as BSON.
pub(crate) fn uuid_value(uuid: [u8; 16]) -> Binary {
    Binary {
        subtype: BinarySubtype::Uuid,
        bytes: uuid.to_vec(),
    }
}

fn created(row: &CollectionRow, commands: &mut Vec<RawDocumentBuf>) {
    let mut o = rawdoc! { "create": row.namespace.collection() };
    append_all(&mut o, &row.options);
    if let Some(id) = row.indexes.first().filter(|first| first.spec.is_id()) {
        let field = |name| id.spec.spec.get(name).ok().flatten();
        let mut index = RawDocumentBuf::new();
        for name in [cstr!("v"), cstr!("key"), cstr!("name"), cstr!("collation")] {
            if let Some(value) = field(name.as_str()) {
                index.append(name, value);
            }
        }
        o.append(cstr!("idIndex"), index);
    }
    commands.push(command(row.namespace.db(), Some(row.uuid), o, None));
    let made = row.indexes.iter().filter(|index| index.ready && !index.spec.is_id());
    commands.extend(made.map(|index| created_index(row, index)));
}

fn created_index(row: &CollectionRow, index: &IndexRow) -> RawDocumentBuf {
    let mut o = rawdoc! { "createIndexes": row.namespace.collection() };
    append_all(&mut o, &index.spec.spec);
    command(row.namespace.db(), Some(row.uuid), o, None)
}

fn append_all(to: &mut RawDocumentBuf, fields: &RawDocument) {
    for (name, value) in fields.iter().flatten() {
        to.append(name, value);
    }
}

fn changed(
    definitions: &[Definition],
    former: &Arc<Collection>,
    row: &CollectionRow,
    commands: &mut Vec<RawDocumentBuf>,
) {
    let name = row.namespace.collection();
    let mut tell = |o, o2| commands.push(command(former.namespace.db(), Some(row.uuid), o, o2));
    if former.namespace != row.namespace {
        let mut o =
            rawdoc! { "renameCollection": former.namespace.as_str(), "to": row.namespace.as_str(), "stayTemp": false };
        if let Some(target) = dropped(definitions, &row.namespace) {
            o.append(cstr!("dropTarget"), uuid_value(target.uuid));
        }
        tell(
            o,
            dropped(definitions, &row.namespace).map(|target| rawdoc! { "numRecords": target.count() as i64 }),
        );
    }
    // One that was built in the place of another of its name is that one, changed.
    let former_of = |index: &IndexRow| {
        let was = former.indexes().iter().find(|was| was.table() == index.table);
        was.or_else(|| former.indexes().iter().find(|was| was.name() == index.spec.name))
    };
    for index in former.indexes() {
        let is_kept = |kept: &IndexRow| {
            kept.table == index.table() || kept.ready && former_of(kept).is_some_and(|was| was.table() == index.table())
        };
        if !row.indexes.iter().any(is_kept) {
            let mut spec = RawDocumentBuf::new();
            append_all(&mut spec, &index.parsed_spec().spec);
            tell(rawdoc! { "dropIndexes": name, "index": index.name() }, Some(spec));
        }
    }
    for index in row.indexes.iter().filter(|index| index.ready) {
        match former_of(index) {
            None => {
                let mut o = rawdoc! { "createIndexes": name };
                append_all(&mut o, &index.spec.spec);
                tell(o, None);
            }
            Some(was) => {
                if let Some((set, old)) = changed_index(was, index, None) {
                    let o2 = rawdoc! { "collectionOptions_old": former_options(former), "indexOptions_old": old };
                    tell(rawdoc! { "collMod": name, "index": set }, Some(o2));
                }
            }
        }
    }
    if former.options() != row.options.as_ref() as &RawDocument {
        let mut o = rawdoc! { "collMod": name };
        let was = |option: &CStr| former.options().get(option.as_str()).ok().flatten();
        for (option, value) in row.options.iter().flatten() {
            if was(option) != Some(value) {
                o.append(option, value);
            }
        }
        tell(o, Some(rawdoc! { "collectionOptions_old": former_options(former) }));
    }
}

/// `collMod` of an index: what was set, and what that was before. What was asked for is told even where it was so.
fn changed_index(
    was: &Index,
    index: &IndexRow,
    asked: Option<&IndexChange>,
) -> Option<(RawDocumentBuf, RawDocumentBuf)> {
    let (was, is) = (was.parsed_spec(), &index.spec);
    let (mut set, mut old) = (rawdoc! { "name": is.name.as_str() }, RawDocumentBuf::new());
    let is_asked = |of: fn(&IndexChange) -> bool| asked.is_some_and(of);
    if was.expire_after_seconds != is.expire_after_seconds || is_asked(|asked| asked.expire_after_seconds.is_some()) {
        is.expire_after_seconds
            .into_iter()
            .for_each(|seconds| set.append(cstr!("expireAfterSeconds"), seconds));
        was.expire_after_seconds
            .into_iter()
            .for_each(|seconds| old.append(cstr!("expireAfterSeconds"), seconds));
    }
    if was.hidden != is.hidden || is_asked(|asked| asked.hidden.is_some()) {
        set.append(cstr!("hidden"), is.hidden);
        old.append(cstr!("hidden"), was.hidden);
    }
    if was.prepare_unique != is.prepare_unique && !is.unique {
        set.append(cstr!("prepareUnique"), is.prepare_unique);
        old.append(cstr!("prepareUnique"), was.prepare_unique);
    }
    if was.unique != is.unique {
        match is.unique {
            true => set.append(cstr!("unique"), true),
            false => set.append(cstr!("forceNonUnique"), true),
        }
        old.append(cstr!("unique"), was.unique);
    }
    let is_changed = set.iter().count() > 1 || !old.is_empty();
    is_changed.then_some((set, old))
}

/// The collection that goes under a name.
fn dropped<'d>(definitions: &'d [Definition], ns: &Namespace) -> Option<&'d Arc<Collection>> {
    definitions.iter().find_map(|definition| match definition {
        Definition::DropCollection(collection) if collection.namespace == *ns => Some(collection),
        _ => None,
    })
}
