//! `update` and `delete` of a time-series collection.
//!
//! An update is about the metaField alone, so it is one of buckets. A deletion may be about anything: the buckets that
//! may have such measurements are locked one by one, and keep those that do not match.

use super::super::delete::delete_stored;
use super::super::update::{self, Images, Statement, Updated};
use super::super::write_result::refuse_multi;
use super::super::write_targets::{Looks, Target, WriteTargets};
use super::invalid;
use crate::error::{CommandError, Result};
use crate::invocation::{Invocation, Writer};
use bson::raw::{CString, RawBsonRef, RawDocument, RawDocumentBuf, cstr};
use bson::rawdoc;
use bytes::Bytes;
use query::expression::ExpressionContext;
use query::matcher::Matcher;
use query::plan::Hint;
use query::timeseries::{
    Measurement, OpenBucket, bucket_filter, each_measurement, index_key_of_buckets, index_key_shown_as, meta_filter,
    on_meta, reads_meta_alone,
};
use query::{EvaluationContext, QueryError};
use std::sync::Arc;
use storage::{Collection, Namespace, StorageError, TimeseriesOptions};

/// What both kinds of statements are read with.
fn expressions(call: &Invocation<'_>, buckets: &Collection, statement: &Statement<'_>) -> Result<ExpressionContext> {
    call.expressions_on(buckets.namespace(), statement.variables, statement.collation)
}

/// Buckets that are closed stay as they are.
fn pass_over_closed(filter: &mut RawDocumentBuf) {
    filter.append(cstr!("control.closed"), rawdoc! { "$ne": true });
}

/// A hint as one of buckets.
fn hinted(statement: &Statement<'_>, buckets: &Collection, options: &TimeseriesOptions) -> Option<RawDocumentBuf> {
    let Some(Hint::Key(key)) = statement.hint else {
        return None;
    };
    match index_key_shown_as(buckets, key, options) {
        Some(found) => Some(found.to_owned()),
        None => index_key_of_buckets(key, options).ok(),
    }
}

/// Runs one statement of `update`.
pub fn update(
    call: &mut Invocation<'_>,
    namespace: &Namespace,
    buckets: &Collection,
    statement: &Statement<'_>,
) -> Result<Updated> {
    super::refuse_in_transaction(call, "update", namespace)?;
    let Some(options) = buckets.timeseries() else {
        return Ok(Updated::default());
    };
    let Some(meta) = options.meta_field.as_deref() else {
        return Err(invalid(
            "Cannot perform an update on a time-series collection that does not have a metaField",
        ));
    };
    if !statement.multi {
        return Err(invalid("Cannot perform a non-multi update on a time-series collection"));
    }
    if statement.upsert {
        return Err(invalid("Cannot perform an upsert on a time-series collection"));
    }
    let matcher = Matcher::parse(statement.filter, &expressions(call, buckets, statement)?)?;
    let mut filter = meta_filter(&matcher, Some(meta))?.ok_or_else(|| match reads_meta_alone(&matcher, meta) {
        true => CommandError::not_implemented("an update of a time-series collection by $expr"),
        false => invalid(format!(
            "Cannot perform an update on a time-series collection when querying on a field that is not the metaField '{meta}'"
        )),
    })?;
    pass_over_closed(&mut filter);
    let RawBsonRef::Document(change) = statement.change else {
        return Err(invalid(
            "Cannot perform an update on a time-series collection with a pipeline",
        ));
    };
    let change = change_of_buckets(change, meta)?;
    let hinted = hinted(statement, buckets, options);
    let of_buckets = Statement {
        filter: &filter,
        change: RawBsonRef::Document(&change),
        hint: hinted.as_deref().map(Hint::Key).or(statement.hint),
        counts_measurements: true,
        is_one_of_many: false,
        ..*statement
    };
    update::run(call, buckets.namespace(), &of_buckets, Images::None)
}

/// The operators with paths in `meta`.
fn change_of_buckets(change: &RawDocument, meta: &str) -> Result<RawDocumentBuf> {
    let other_field = || {
        invalid(format!(
            "Cannot perform an update on a time-series collection which updates a field that is not the metaField '{meta}'"
        ))
    };
    let mut of_buckets = RawDocumentBuf::new();
    for element in change {
        let (operator, fields) = element?;
        if !operator.as_str().starts_with('$') {
            return Err(invalid(
                "Cannot perform an update on a time-series collection with a replacement document",
            ));
        }
        let RawBsonRef::Document(fields) = fields else {
            // Wrong for every collection: it is told by the update itself.
            of_buckets.append(operator, fields);
            continue;
        };
        let mut renamed = RawDocumentBuf::new();
        for field in fields {
            let (path, value) = field?;
            let path = on_meta(path.as_str(), Some(meta)).ok_or_else(other_field)?;
            let path = CString::try_from(path).map_err(|_| other_field())?;
            match value {
                RawBsonRef::String(to) if operator.as_str() == "$rename" => {
                    renamed.append(path, on_meta(to, Some(meta)).ok_or_else(other_field)?);
                }
                value => renamed.append(path, value),
            }
        }
        of_buckets.append(operator, renamed);
    }
    Ok(of_buckets)
}

/// Runs one statement of `delete`, and adds to `deleted`.
pub fn delete(
    call: &mut Invocation<'_>,
    namespace: &Namespace,
    buckets: &Collection,
    statement: &Statement<'_>,
    deleted: &mut u64,
) -> Result<()> {
    super::refuse_in_transaction(call, "delete from", namespace)?;
    if statement.multi {
        refuse_multi(call, "limit=0")?;
    }
    if call.retried(statement.id)?.is_some() {
        *deleted += 1;
        return Ok(());
    }
    let Some(options) = buckets.timeseries().cloned() else {
        return Ok(());
    };
    let expressions = expressions(call, buckets, statement)?;
    let matcher = Matcher::parse(statement.filter, &expressions)?;
    let mut filter = bucket_filter(&matcher, &options)?.unwrap_or_default();
    pass_over_closed(&mut filter);
    let hinted = hinted(statement, buckets, &options);
    let of_buckets = Statement {
        filter: &filter,
        hint: hinted.as_deref().map(Hint::Key).or(statement.hint),
        ..*statement
    };
    let before = *deleted;
    let mut unreadable = None;
    loop {
        let mut is_conflicted = false;
        let Some(mut targets) = WriteTargets::find(call, buckets.namespace(), &of_buckets)? else {
            return Ok(());
        };
        while let Some(target) = targets.next(call)? {
            let wanted = Wanted {
                bucket_filter: targets.filter(),
                matcher: &matcher,
                multi: statement.multi,
                options: &options,
                runs_scripts: targets.runs_scripts() || expressions.has_scripts(),
            };
            match delete_in(call, statement, &wanted, target)? {
                Outcome::Changed => is_conflicted = true,
                Outcome::Deleted(gone) => *deleted += gone,
                // It keeps nobody from deleting the others.
                Outcome::Unreadable(error) => {
                    unreadable.get_or_insert(error);
                }
            }
            if !statement.multi && *deleted > before {
                return Ok(());
            }
        }
        if !is_conflicted || *deleted > before {
            return unreadable.map_or(Ok(()), Err);
        }
        call.wait_to_look_again()?;
    }
}

/// What became of a bucket.
enum Outcome {
    /// It has lost so many measurements.
    Deleted(u64),
    /// It is gone, or another one.
    Changed,
    /// It cannot be read, or what stays cannot be written, for what it has.
    Unreadable(CommandError),
}

/// What can end a look at measurements.
enum LookError {
    /// The bucket, or whatever else ends the reading of it.
    Bucket(QueryError),
    /// What is done with measurements.
    Other(CommandError),
}

impl From<QueryError> for LookError {
    fn from(error: QueryError) -> Self {
        Self::Bucket(error)
    }
}

/// What is asked of buckets, and of measurements in them.
struct Wanted<'w> {
    bucket_filter: Option<&'w Matcher>,
    matcher: &'w Matcher,
    multi: bool,
    options: &'w TimeseriesOptions,
    /// Scripts run with either of them.
    runs_scripts: bool,
}

/// What was found in a bucket.
enum Found {
    /// It is not asked for.
    Nothing,
    /// Which of its measurements go.
    Goes(Vec<bool>),
    /// Why it cannot be read.
    Unreadable(CommandError),
}

impl Wanted<'_> {
    fn look(&self, stored: &RawDocument, evaluation: &EvaluationContext<'_>) -> Result<Found> {
        if let Some(filter) = self.bucket_filter
            && !filter.matches(stored, evaluation)?
        {
            return Ok(Found::Nothing);
        }
        let mut goes = Vec::new();
        let mut has_one = false;
        let looked_through = each_measurement::<LookError>(stored, self.options, evaluation, &mut |measurement| {
            let is_gone = match self.multi || !has_one {
                true => self
                    .matcher
                    .matches(measurement, evaluation)
                    .map_err(|error| LookError::Other(error.into()))?,
                false => false,
            };
            has_one |= is_gone;
            goes.push(is_gone);
            Ok(())
        });
        match looked_through {
            Ok(()) => Ok(Found::Goes(goes)),
            Err(LookError::Bucket(error)) => Ok(Found::Unreadable(error.into())),
            Err(LookError::Other(error)) => Err(error),
        }
    }
}

/// Deletes the matching measurements of a bucket, or the first of them.
fn delete_in(
    call: &Invocation<'_>,
    statement: &Statement<'_>,
    wanted: &Wanted<'_>,
    mut target: Target,
) -> Result<Outcome> {
    let operation = call.operation.clone();
    let evaluation = EvaluationContext::new(&operation).with_scripts(Some(&call.scripts));
    // What scripts have said of the bucket as it was.
    let mut looked: Option<(Bytes, Found)> = None;
    let mut looks = Looks::default();
    loop {
        let mut writer = call.writer();
        let mut unit = writer.unit(&operation);
        let old = match unit.lock_record(&target.guard, &target.id) {
            Ok(Some(old)) => old,
            Ok(None) => return Ok(Outcome::Changed),
            Err(StorageError::WouldWait) => continue,
            Err(other) => return Err(other.into()),
        };
        let stored = RawDocument::from_bytes(&old)?;
        let found = match looked.take() {
            Some((bucket, found)) if bucket == old => found,
            _ if wanted.runs_scripts && looks.may_be_unlocked() => {
                unit.release();
                drop(writer);
                let look = |_: &Arc<Collection>| wanted.look(stored, &evaluation);
                let Some((locked, found)) = target.unlocked(call, &mut looks, look)? else {
                    return Ok(Outcome::Changed);
                };
                target = locked;
                looked = Some((old, found));
                continue;
            }
            _ => looks.locked(call, || wanted.look(stored, &evaluation))?,
        };
        let failed = |error: CommandError| match super::is_of_bucket(&error) {
            true => Ok(Outcome::Unreadable(super::of_bucket(
                error,
                target.guard.namespace(),
                stored,
            ))),
            false => Err(error),
        };
        let goes = match found {
            Found::Nothing => return Ok(Outcome::Changed),
            Found::Unreadable(error) => return failed(error),
            Found::Goes(goes) => goes,
        };
        let gone = goes.iter().filter(|is_gone| **is_gone).count() as u64;
        if gone == 0 {
            return Ok(Outcome::Deleted(0));
        }
        // A bucket of which all go need not be one that can be filled.
        let kept = match goes.contains(&false) {
            false => None,
            true => match kept(&old, &goes, wanted.options, &evaluation) {
                Ok(kept) => Some(kept),
                Err(error) => return failed(error.into()),
            },
        };
        Writer::begin_statement(call.retry.is_some(), &mut unit, statement.id, statement.kept);
        let written = match kept {
            None => unit.delete(&target.guard, &target.id, stored),
            Some(kept) => {
                let kept = kept.to_document();
                unit.update(&target.guard, &target.id, stored, RawDocument::from_bytes(&kept)?)
            }
        };
        match written {
            Ok(()) => {}
            Err(StorageError::WouldWait) => {
                looked = Some((old, Found::Goes(goes)));
                continue;
            }
            Err(other) => return Err(other.into()),
        }
        delete_stored(call, statement, unit, gone)?;
        return Ok(Outcome::Deleted(gone));
    }
}

/// A bucket of the measurements that stay.
fn kept(
    stored: &Bytes,
    goes: &[bool],
    options: &TimeseriesOptions,
    evaluation: &EvaluationContext<'_>,
) -> std::result::Result<OpenBucket, QueryError> {
    let mut kept = OpenBucket::read(stored, options)?.emptied(options);
    let bucket = RawDocument::from_bytes(stored.as_ref()).map_err(|_| query::raw::Malformed)?;
    let mut goes = goes.iter();
    each_measurement::<QueryError>(bucket, options, evaluation, &mut |measurement| match goes.next() {
        Some(false) => kept.add(&Measurement::of(measurement, options)?, options),
        _ => Ok(()),
    })?;
    Ok(kept)
}

/// What `findAndModify` says of a time-series collection.
pub fn refuse_find_and_modify(namespace: &Namespace) -> CommandError {
    invalid(format!(
        "Cannot perform findAndModify on a time-series collection: {namespace}"
    ))
}
