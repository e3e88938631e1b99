//! The concerns of commands that name none, for the whole set: `config.settings` keeps them in the document that
//! MongoDB keeps them in.

use super::membership::set;
use super::user_store;
use crate::concerns::{DefaultConcerns, Deployment, ReadConcern, WriteConcern};
use crate::default_concern_rules::{ID, READ, WRITE, check_read, check_write};
use crate::definition::{Access, Command};
use crate::error::{CommandError, Result};
use crate::invocation::Invocation;
use crate::logger::id;
use crate::metrics::OperationKind;
use crate::reply::Reply;
use auth::Action;
use bson::raw::RawDocumentBuf;
use bson::{Bson, DateTime, Document, doc};
use storage::Namespace;
use wire::ErrorCode;

/// `getDefaultRWConcern`.
pub const GET_DEFAULT_RW_CONCERN: Command = Command::new(
    "getDefaultRWConcern",
    "The concerns of commands that name none.",
    OperationKind::Command,
    Access::cluster(&[Action::GetDefaultRwConcern]),
    get,
)
.admin_only()
.secondary_ok();
/// `setDefaultRWConcern`.
pub const SET_DEFAULT_RW_CONCERN: Command = Command::new(
    "setDefaultRWConcern",
    "Sets the concerns of commands that name none.",
    OperationKind::Command,
    Access::cluster(&[Action::SetDefaultRwConcern]),
    set_defaults,
)
.takes_write_concern()
.admin_only();

fn settings() -> Result<Namespace> {
    Ok(Namespace::new("config", "settings")?)
}

fn check_member(call: &Invocation<'_>) -> Result<()> {
    set(call).map(drop).map_err(|_| {
        CommandError::new(
            ErrorCode(51300),
            format!("'{}' is not supported on standalone nodes.", call.command.name),
        )
    })
}

fn get(call: &mut Invocation<'_>, reply: &mut Reply<'_>) -> Result<()> {
    let arguments = call.arguments();
    let mut in_memory = false;
    call.for_each_field(|name, value| {
        match name {
            "inMemory" => in_memory = arguments.flag(name, value)?,
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    check_member(call)?;
    let kept = kept(call)?;
    show(call, kept, reply);
    if in_memory {
        reply.boolean("inMemory", true);
    }
    Ok(())
}

fn set_defaults(call: &mut Invocation<'_>, reply: &mut Reply<'_>) -> Result<()> {
    let arguments = call.arguments();
    let (mut read, mut write) = (None, None);
    call.for_each_field(|name, value| {
        match name {
            READ => read = Some(arguments.document(name, value)?),
            WRITE => write = Some(arguments.document(name, value)?),
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    check_member(call)?;
    if read.is_none() && write.is_none() {
        return Err(CommandError::bad_value(format!(
            "At least one of the \"{READ}\" or \"{WRITE}\" fields must be present"
        )));
    }
    // One at a time: what is kept of the other concern is still so when it is written.
    let _configuring = set(call)?.configure();
    let kept = kept(call)?;
    let mut document = doc! { "_id": ID };
    match read {
        Some(read) => {
            check_read(call, read)?;
            if !read.is_empty() {
                document.insert(READ, Document::try_from(read)?);
            }
        }
        None => keep(&mut document, READ, kept.as_ref()),
    }
    match write {
        Some(write) if write.is_empty() && kept.as_ref().is_some_and(|kept| kept.contains_key(WRITE)) => {
            return Err(CommandError::new(
                ErrorCode::IllegalOperation,
                "The global default write concern cannot be unset once it is set.",
            ));
        }
        Some(write) if write.is_empty() => {}
        Some(write) => {
            check_write(call, write)?;
            let mut write = Document::try_from(write)?;
            write.entry("wtimeout".to_owned()).or_insert(0.into());
            document.insert(WRITE, write);
        }
        None => keep(&mut document, WRITE, kept.as_ref()),
    }
    let server = call.server;
    document.insert("updateOpTime", server.storage.applied().time.to_timestamp());
    document.insert("updateWallClockTime", DateTime::from_millis(server.env.clock.now_ms()));
    user_store::upsert_in(call, &settings()?, &doc! { "_id": ID }, &document)?;
    server.storage.wait_durable(server.storage.last_seq())?;
    take_up(call, Some(&document))?;
    show(call, Some(document), reply);
    Ok(())
}

fn keep(document: &mut Document, name: &str, kept: Option<&Document>) {
    if let Some(concern) = kept.and_then(|kept| kept.get(name)) {
        document.insert(name, concern.clone());
    }
}

fn kept(call: &mut Invocation<'_>) -> Result<Option<Document>> {
    Ok(user_store::find_in(call, &settings()?, &doc! { "_id": ID })?.pop())
}

/// Takes up what is written down, at the start and when somebody else may have changed it. What cannot be understood
/// is told of, and is as if it was not there: nothing that a member does may depend on it.
pub fn load(call: &mut Invocation<'_>) -> Result<()> {
    let kept = kept(call)?;
    let Err(error) = take_up(call, kept.as_ref()) else {
        return Ok(());
    };
    let defaults = DefaultConcerns {
        is_unusable: true,
        ..DefaultConcerns::default()
    };
    let server = call.server;
    let before = std::mem::replace(&mut *server.default_concerns.write(), defaults);
    if !before.is_unusable {
        server.logger.log(
            id::DEFAULT_CONCERNS_UNUSABLE,
            "ReplCoord",
            "The default concerns in config.settings cannot be used: there are none until they are set anew",
            doc! { "error": error.message },
        );
    }
    Ok(())
}

fn take_up(call: &Invocation<'_>, kept: Option<&Document>) -> Result<()> {
    let server = call.server;
    let concern = |name| -> Result<Option<RawDocumentBuf>> {
        match kept.and_then(|kept| kept.get(name)) {
            None => Ok(None),
            Some(Bson::Document(given)) => Ok(Some(RawDocumentBuf::try_from(given)?)),
            Some(_) => Err(CommandError::bad_value(format!("{name} is not a document"))),
        }
    };
    // They stand on nothing but themselves.
    let deployment = Deployment {
        defaults: DefaultConcerns::default(),
        ..server.deployment()
    };
    let mut defaults = DefaultConcerns::default();
    if let Some(read) = concern(READ)? {
        defaults.read = ReadConcern::read(&read, &deployment)?.level;
    }
    if let Some(write) = concern(WRITE)? {
        defaults.write = Some(WriteConcern::read(&write, &deployment)?);
    }
    *server.default_concerns.write() = defaults;
    Ok(())
}

fn show(call: &Invocation<'_>, kept: Option<Document>, reply: &mut Reply<'_>) {
    let mut kept = kept.unwrap_or_default();
    kept.remove("_id");
    // Where writes wait for their primary alone, MongoDB shows no concern of theirs.
    let config = set(call).ok().and_then(|set| set.member().counting_votes().config);
    let is_majority = config.is_none_or(|config| config.implicit_default_is_majority());
    let implicit = [
        (READ, Some(doc! { "level": "local" })),
        (WRITE, is_majority.then(|| doc! { "w": "majority", "wtimeout": 0 })),
    ];
    for (name, implicit) in implicit {
        let is_global = kept.contains_key(name);
        if let Some(implicit) = implicit.filter(|_| !is_global) {
            kept.insert(name, implicit);
        }
        kept.insert(format!("{name}Source"), if is_global { "global" } else { "implicit" });
    }
    let now = DateTime::from_millis(call.server.env.clock.now_ms());
    kept.insert("localUpdateWallClockTime", now);
    reply.append_all(&kept);
}
