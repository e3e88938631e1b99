//! What `create`, `renameCollection` and `listCollections` need.

use super::aggregate_access::{self, Subject};
use crate::arguments::once;
use crate::authorization::target;
use crate::error::Result;
use crate::invocation::Invocation;
use crate::rights::Rights;
use auth::{Action, ActionSet, Target};
use bson::raw::{RawArrayBuf, RawBsonRef, RawDocument};

/// What `create` needs. Who may insert may make the collection, as an insert would; what a view is to read, its
/// maker must be allowed to read.
pub fn create(call: &Invocation<'_>) -> Result<bool> {
    let target = target(call)?;
    let (mut view_on, mut pipeline, mut capped) = (None, None, false);
    for element in call.body {
        let (name, value) = element?;
        match name.as_str() {
            field @ "viewOn" => once(&mut view_on, "create", field, value)?,
            field @ "pipeline" => once(&mut pipeline, "create", field, value)?,
            "capped" => capped |= value != RawBsonRef::Boolean(false),
            _ => {}
        }
    }
    let may_create = call.may(target, Action::CreateCollection);
    if capped && !(may_create && call.may(target, Action::ConvertToCapped)) {
        return Ok(false);
    }
    // Whatever else is asked for: what `create` reads as no, such as a null, must not hide that it makes a view.
    let Some(RawBsonRef::String(collection)) = view_on else {
        return Ok(may_create || call.may(target, Action::Insert));
    };
    if !may_create {
        return Ok(false);
    }
    let subject = Subject {
        database: call.database,
        collection: Some(collection),
        // No view writes.
        bypasses_validation: false,
    };
    match pipeline {
        Some(RawBsonRef::Array(stages)) => aggregate_access::pipeline(call, subject, stages),
        _ => aggregate_access::pipeline(call, subject, &RawArrayBuf::new()),
    }
}

/// What `renameCollection` needs: within a database an action of its own, from one to another what copying needs.
/// Names of the system's collections need that always, so that nobody makes users out of documents.
pub fn rename(call: &Invocation<'_>) -> Result<bool> {
    let RawBsonRef::String(from) = call.target()? else {
        return Ok(call.may(Target::Cluster, Action::RenameCollection));
    };
    let (mut targets, mut drops) = (Vec::new(), false);
    for element in call.body {
        match element? {
            (name, RawBsonRef::String(to)) if name.as_str() == "to" => targets.push(to),
            (name, value) if name.as_str() == "dropTarget" => drops |= value != RawBsonRef::Boolean(false),
            _ => {}
        }
    }
    let (from_database, from) = from.split_once('.').unwrap_or((from, ""));
    let source = Target::Collection(from_database, from);
    for to in &targets {
        let (to_database, to) = to.split_once('.').unwrap_or((to, ""));
        let target = Target::Collection(to_database, to);
        let ordinary = !from.starts_with("system.") && !to.starts_with("system.");
        let allowed = if from_database == to_database && ordinary {
            // Who may not read the source must not read it under another name.
            call.may(Target::Database(from_database), Action::RenameCollectionSameDb)
                && (call.may(source, Action::Find) || !call.may(target, Action::Find))
        } else {
            let from = [Action::Find, Action::DropCollection];
            let to = [Action::Insert, Action::CreateIndex];
            call.rights.allow(source, ActionSet::of(&from)) && call.rights.allow(target, ActionSet::of(&to))
        };
        if !allowed || drops && !call.may(target, Action::DropCollection) {
            return Ok(false);
        }
    }
    Ok(!targets.is_empty() || call.may(source, Action::Find))
}

/// What `listCollections` needs. Who may not see all may ask for the names of those that are something to them.
pub fn list(call: &Invocation<'_>) -> Result<bool> {
    if call.may(Target::Database(call.database), Action::ListCollections) {
        return Ok(true);
    }
    let own = says_yes(call.body, "nameOnly")? && says_yes(call.body, "authorizedCollections")?;
    let Rights::Of(grant) = &call.rights else {
        return Ok(false);
    };
    Ok(own && grant.privileges.allow_any_within(call.database, ActionSet::all()))
}

/// Is the field there, and true wherever it is?
fn says_yes(body: &RawDocument, field: &str) -> Result<bool> {
    let mut said = false;
    for element in body {
        let (name, value) = element?;
        if name.as_str() == field {
            if value != RawBsonRef::Boolean(true) {
                return Ok(false);
            }
            said = true;
        }
    }
    Ok(said)
}
