//! A member without data joins the set, and copies everything: for each engine that it may have.
//!
//! It has no vote, so that nobody waits for it. The time counts from when the primary is told of it until it says that
//! it is a secondary.

use super::{Choices, DATABASE, blank, digest, field_bytes, keep, put_document};
use crate::configuration::Setup;
use crate::context::Context;
use crate::error::{Doing, Error, Result};
use crate::procfs;
use crate::server::ServerProcess;
use crate::set::{Member, Members, Role};
use crate::subject::{Subject, fresh_command};
use crate::workload::load::Load;
use bson::{Bson, Document, doc, rawdoc};
use report::{Operation, Run};
use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

const COLLECTION: &str = "copied";
/// Documents at scale 1.
const DOCUMENTS: u64 = 200_000;
const DOCUMENTS_MIN: u64 = 1000;
const LOAD_BATCH: u64 = 1000;
const LOAD_CLIENTS: usize = 4;
/// Between two looks at what the new member says it is.
const LOOK: Duration = Duration::from_millis(10);
/// Ids of members that join, beyond those that the set began with. One is never given to another member.
const FIRST_ID: i32 = 100;

/// Loads, and has a member with each engine join.
pub(super) fn run(context: &mut Context, subject: &mut Subject, choices: &Choices) -> Result<()> {
    subject.find_primary()?;
    let documents = context.options.scaled(DOCUMENTS, DOCUMENTS_MIN);
    let (seed, bytes) = (context.options.seed, field_bytes(choices.document_bytes));
    let load = Load {
        database: DATABASE,
        collection: COLLECTION,
        first: 0,
        end: documents,
        batch: LOAD_BATCH,
        ordered: false,
        make: Box::new(move |number, message| put_document(number, seed, bytes, message)),
    };
    load.measure(context, subject, super::NAME, LOAD_CLIENTS)?;
    let document_bytes = context.session.runs.last().and_then(|run| run.document_bytes);
    for (index, joining) in choices.joining.iter().enumerate() {
        context.interrupt.check()?;
        let mut run = blank(context, subject, "initialSync", 1);
        for (name, value) in [
            ("to", joining.label.clone()),
            ("documents", documents.to_string()),
            ("documentBytes", choices.document_bytes.to_string()),
        ] {
            run.parameters.insert(name.to_owned(), value);
        }
        run.document_bytes = document_bytes;
        run.notes.extend(joining.notes.iter().cloned());
        let result = join(context, subject, joining, FIRST_ID + index as i32, documents, &mut run);
        keep(context, run, result)?;
    }
    Ok(())
}

fn join(context: &Context, subject: &Subject, joining: &Setup, id: i32, documents: u64, run: &mut Run) -> Result<()> {
    let Some((members, primary)) = subject.members() else {
        return Ok(());
    };
    let source = &members.all()[primary];
    let directory = source.command.directory.with_file_name(format!("joining{id}"));
    let joining = match context.options.cache_bytes {
        Some(bytes) => joining.clone().with_cache(bytes),
        None => joining.clone(),
    };
    let joining = Setup::set_of(vec![joining])?;
    let command = fresh_command(&source.command.program, &joining, &directory, source.command.limits)?;
    let process = ServerProcess::start(&command, &context.interrupt)?;
    let joined = Members::new(vec![Member::new(command, process)], &context.interrupt);
    let member = &joined.all()[0];
    let bar = context.bar(
        &format!("{} initialSync {}", subject.configuration.label, joining.engine),
        None,
    );
    let result = (|| {
        let cpu = |pid: Option<u32>| pid.and_then(|pid| procfs::usage(pid).ok()).map(|usage| usage.cpu);
        let before = [source.pid(), member.pid()].map(cpu);
        let began = Instant::now();
        members.reconfigure(primary, |config| add(config, id, member.address))?;
        while joined.role(0) != Role::Secondary {
            context.interrupt.check()?;
            joined.check()?;
            bar.tick();
            thread::sleep(LOOK);
        }
        let seconds = began.elapsed().as_secs_f64();
        let after = [source.pid(), member.pid()].map(cpu);
        run.seconds = seconds;
        let spent = |index: usize| Some(after[index]?.saturating_sub(before[index]?));
        run.server_cpu_us = spent(0).map(|cpu| cpu.as_micros() as u64);
        if let Some(cpu) = spent(1) {
            run.figures.insert(report::NEW_MEMBER_CPU.to_owned(), cpu.as_secs_f64());
        }
        if let Some(bytes) = run.document_bytes {
            run.figures
                .insert(report::COPIED.to_owned(), bytes as f64 / 1e6 / seconds);
        }
        let operation = Operation {
            count: documents,
            errors: 0,
            latency: None,
        };
        run.operations.insert("copy".to_owned(), operation);
        joined.open(0)?.flush()?;
        run.file_bytes = Some(procfs::directory_bytes(&member.command.data()));
        compare(members, primary, &joined)
    })();
    bar.finish_and_clear();
    let ended = leave(members, primary, id, &joined, directory);
    result.and(ended)
}

/// The new member has every document, and the same ones.
fn compare(members: &Members, primary: usize, joined: &Members) -> Result<()> {
    let counts = [
        super::count(members, primary, COLLECTION)?,
        super::count(joined, 0, COLLECTION)?,
    ];
    let digests = [digest(members, primary, COLLECTION)?, digest(joined, 0, COLLECTION)?];
    if counts[0] == counts[1] && digests[0] == digests[1] {
        return Ok(());
    }
    Err(Error::Protocol(format!(
        "the new member holds other documents than the primary: {counts:?}, {digests:?}"
    )))
}

fn add(config: &mut Document, id: i32, address: SocketAddr) {
    let member = doc! { "_id": id, "host": address.to_string(), "votes": 0, "priority": 0 };
    if let Ok(members) = config.get_array_mut("members") {
        members.push(Bson::Document(member));
    }
}

/// Takes the member out of the set, and its server and data away.
fn leave(members: &Members, primary: usize, id: i32, joined: &Members, directory: PathBuf) -> Result<()> {
    let configured = members
        .open(primary)?
        .run("admin", &rawdoc! { "replSetGetConfig": 1 })?;
    let is_it = |member: &Bson| {
        member
            .as_document()
            .is_some_and(|member| member.get_i32("_id").ok() == Some(id))
    };
    let has_it = configured
        .get_document("config")
        .and_then(|config| config.get_array("members"))
        .is_ok_and(|members| members.iter().any(is_it));
    if has_it {
        members.reconfigure(primary, |config| {
            if let Ok(members) = config.get_array_mut("members") {
                members.retain(|member| !is_it(member));
            }
        })?;
    }
    joined.all()[0].kill();
    fs::remove_dir_all(&directory).doing(format!("removing {}", directory.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_joins_without_a_vote() {
        let mut config = doc! { "members": [{ "_id": 0, "host": "127.0.0.1:1" }] };
        add(&mut config, 100, "127.0.0.1:2".parse().expect("an address"));
        let members = config.get_array("members").expect("they are there");
        let expected = doc! { "_id": 100, "host": "127.0.0.1:2", "votes": 0, "priority": 0 };
        assert_eq!(members[1], Bson::Document(expected));
    }
}
