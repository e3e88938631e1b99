//! What pipelines need: for what they read, for what their stages read beside it, and for what they write.
//!
//! A pipeline on a view needs what it would need on a collection of that name: what the view itself reads was
//! checked when it was made. Stages are looked at as they were sent, before anybody has parsed them; what is not as
//! it must be needs nothing, because it fails. What names a collection must be there once: were each of several to be
//! looked at, the work would be their product, for whoever may do nothing.

use super::insert::asks_for_bypass;
use crate::arguments::once;
use crate::authorization::target;
use crate::error::Result;
use crate::invocation::Invocation;
use auth::{Action, ActionSet, Target};
use bson::raw::{RawArray, RawBsonRef, RawDocument};

/// What `aggregate` needs.
pub fn aggregate(call: &Invocation<'_>) -> Result<bool> {
    let subject = Subject {
        database: call.database,
        collection: match target(call)? {
            Target::Collection(_, name) => Some(name),
            _ => None,
        },
        // Once for all stages: with many that write, looking each time would be the product of stages and fields.
        bypasses_validation: asks_for_bypass(call.body)?,
    };
    let mut pipelines = 0;
    for element in call.body {
        if let (name, RawBsonRef::Array(stages)) = element?
            && name.as_str() == "pipeline"
        {
            pipelines += 1;
            if !pipeline(call, subject, stages)? {
                return Ok(false);
            }
        }
    }
    // Without a pipeline nothing is read; but whether there are such collections is nobody's business either.
    Ok(pipelines > 0 || subject.may(call, &[Action::Find]))
}

/// What a pipeline works on: a collection, or with `None` the database.
#[derive(Clone, Copy)]
pub struct Subject<'s> {
    /// The database.
    pub database: &'s str,
    /// The collection in it.
    pub collection: Option<&'s str>,
    /// What is written does not have to pass the validator of its collection.
    pub bypasses_validation: bool,
}

impl Subject<'_> {
    fn may(&self, call: &Invocation<'_>, actions: &[Action]) -> bool {
        let target = match self.collection {
            Some(collection) => Target::Collection(self.database, collection),
            None => Target::Database(self.database),
        };
        call.rights.allow(target, ActionSet::of(actions))
    }
}

/// May the caller run these stages on `subject`?
pub fn pipeline(call: &Invocation<'_>, subject: Subject<'_>, stages: &RawArray) -> Result<bool> {
    let first = match stages.into_iter().next().transpose()? {
        Some(RawBsonRef::Document(stage)) => stage.into_iter().next().transpose()?,
        _ => None,
    };
    let source = match first {
        Some((name, argument)) => initial(call, subject, name.as_str(), argument)?,
        None => None,
    };
    let reads = match source {
        Some(allowed) => allowed,
        // An ordinary stage: the documents come from the collection, if there is one.
        None => subject.collection.is_none() || subject.may(call, &[Action::Find]),
    };
    Ok(reads && stages_allowed(call, subject, stages)?)
}

/// What a stage that makes its own documents needs; `None` for another stage.
fn initial(call: &Invocation<'_>, subject: Subject<'_>, name: &str, argument: RawBsonRef<'_>) -> Result<Option<bool>> {
    let of_others = |field: &str| match argument {
        RawBsonRef::Document(options) => says(options, field),
        _ => Ok(false),
    };
    Ok(Some(match name {
        "$collStats" => subject.may(call, &[Action::CollStats]),
        "$indexStats" => subject.may(call, &[Action::IndexStats]),
        "$planCacheStats" => subject.may(call, &[Action::PlanCacheRead]),
        "$changeStream" if of_others("allChangesForCluster")? => {
            let actions = ActionSet::of(&[Action::Find, Action::ChangeStream]);
            call.rights.allow(Target::AnyDatabase, actions)
        }
        "$changeStream" => subject.may(call, &[Action::Find, Action::ChangeStream]),
        "$querySettings" => call.may(Target::Cluster, Action::QuerySettings),
        "$backupCursor" => call.may(Target::Cluster, Action::Fsync),
        "$currentOp" => !of_others("allUsers")? || call.may(Target::Cluster, Action::Inprog),
        "$listLocalSessions" | "$listSessions" => {
            let others = of_others("allUsers")? || of_others("users")?;
            !others || call.may(Target::Cluster, Action::ListSessions)
        }
        "$documents" => true,
        _ => return Ok(None),
    }))
}

/// Does any field of that name say something but no?
fn says(options: &RawDocument, field: &str) -> Result<bool> {
    for element in options {
        let (name, value) = element?;
        if name.as_str() == field && !matches!(value, RawBsonRef::Boolean(false)) {
            return Ok(true);
        }
    }
    Ok(false)
}

fn stages_allowed(call: &Invocation<'_>, subject: Subject<'_>, stages: &RawArray) -> Result<bool> {
    for stage in stages {
        let RawBsonRef::Document(stage) = stage? else {
            continue;
        };
        for element in stage {
            let (name, argument) = element?;
            let allowed = match name.as_str() {
                stage @ ("$lookup" | "$graphLookup" | "$unionWith") => foreign(call, subject, stage, argument)?,
                "$facet" => facets(call, subject, argument)?,
                "$out" => written(call, subject, "$out", argument, &[Action::Insert, Action::Remove])?,
                "$merge" => merged(call, subject, argument)?,
                _ => true,
            };
            if !allowed {
                return Ok(false);
            }
        }
    }
    Ok(true)
}

/// The collection that `value` names: `"c"` or `{ db, coll }`, the database being that of `subject` when it is left
/// out.
fn named<'s>(subject: Subject<'s>, stage: &str, value: RawBsonRef<'s>) -> Result<Option<Subject<'s>>> {
    let (mut database, mut collection) = (None, None);
    match value {
        RawBsonRef::String(_) => collection = Some(value),
        RawBsonRef::Document(document) => {
            for element in document {
                let (name, value) = element?;
                match name.as_str() {
                    "db" => once(&mut database, stage, "db", value)?,
                    "coll" => once(&mut collection, stage, "coll", value)?,
                    _ => {}
                }
            }
        }
        _ => {}
    }
    Ok(collection.and_then(|name| name.as_str()).map(|collection| Subject {
        database: database.and_then(|name| name.as_str()).unwrap_or(subject.database),
        collection: Some(collection),
        ..subject
    }))
}

/// `$lookup`, `$graphLookup`, `$unionWith`: what they read, and the pipelines they run on it.
fn foreign(call: &Invocation<'_>, subject: Subject<'_>, stage: &str, argument: RawBsonRef<'_>) -> Result<bool> {
    let mut pipelines = Vec::new();
    // `$unionWith` has the database beside the collection.
    let mut from = (stage == "$unionWith" || argument.as_document().is_none()).then_some(argument);
    if let RawBsonRef::Document(options) = argument {
        for element in options {
            match element? {
                (name, value) if name.as_str() == "from" && stage != "$unionWith" => {
                    once(&mut from, stage, "from", value)?;
                }
                (name, RawBsonRef::Array(stages)) if name.as_str() == "pipeline" => pipelines.push(stages),
                _ => {}
            }
        }
    }
    let from = match from {
        Some(from) => named(subject, stage, from)?,
        None => None,
    };
    if from.is_some_and(|from| !from.may(call, &[Action::Find])) {
        return Ok(false);
    }
    // Without a collection the pipeline begins with documents of its own.
    let from = from.unwrap_or(Subject {
        collection: None,
        ..subject
    });
    for stages in pipelines {
        if !pipeline(call, from, stages)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn facets(call: &Invocation<'_>, subject: Subject<'_>, argument: RawBsonRef<'_>) -> Result<bool> {
    let RawBsonRef::Document(facets) = argument else {
        return Ok(true);
    };
    for facet in facets {
        if let (_, RawBsonRef::Array(stages)) = facet?
            && !pipeline(call, subject, stages)?
        {
            return Ok(false);
        }
    }
    Ok(true)
}

fn written(
    call: &Invocation<'_>,
    subject: Subject<'_>,
    stage: &str,
    target: RawBsonRef<'_>,
    actions: &[Action],
) -> Result<bool> {
    let Some(target) = named(subject, stage, target)? else {
        return Ok(true);
    };
    // It is about the validator of what is written, not about what is read.
    let may_bypass = || target.may(call, &[Action::BypassDocumentValidation]);
    Ok(target.may(call, actions) && (!target.bypasses_validation || may_bypass()))
}

/// `$merge`: into a collection, or into what `into` names.
fn merged(call: &Invocation<'_>, subject: Subject<'_>, argument: RawBsonRef<'_>) -> Result<bool> {
    const WRITES: &[Action] = &[Action::Insert, Action::Update];
    let RawBsonRef::Document(options) = argument else {
        return written(call, subject, "$merge", argument, WRITES);
    };
    for element in options {
        let (name, value) = element?;
        let allowed = match (name.as_str(), value) {
            ("into", into) => written(call, subject, "$merge", into, WRITES)?,
            ("whenMatched", RawBsonRef::Array(stages)) => stages_allowed(call, subject, stages)?,
            _ => true,
        };
        if !allowed {
            return Ok(false);
        }
    }
    Ok(true)
}
