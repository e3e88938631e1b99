//! Document validation: what `create` and `collMod` take as a validator, and what becomes of documents that break one.
//!
//! A collection without a validator costs one look at its definition for each write. A validator is compiled for the
//! first write behind a definition; one that cannot be compiled any more fails the write.

use crate::arguments::Arguments;
use crate::command::timeseries;
use crate::command::write_result::EXTRAS_BYTES_MAX;
use crate::default_concern_rules::check_stored;
use crate::error::{CommandError, Result};
use crate::invocation::Invocation;
use crate::logger::id;
use bson::raw::{RawBsonRef, RawDocument, cstr};
use bson::{Document, doc};
use collation::Collation;
use keys::FieldKind;
use query::expression::ExpressionContext;
use query::{EvaluationContext, QueryError, Validator};
use std::sync::Arc;
use storage::{
    Collection, CollectionChange, Index, Namespace, RecordId, StorageError, ValidateReport, Validation,
    ValidationAction, ValidationLevel,
};
use wire::ErrorCode;

/// Bytes that all reports of one reply may have together; further ones are short. There is some room for what is around
/// them.
const REPORTS_BYTES_MAX: usize = EXTRAS_BYTES_MAX - (64 << 10);
/// Documents that `validate` names in the log.
const NAMED_MAX: u64 = 100;

/// To be called with each document before it is stored; `former` is what it takes the place of. Fails with 121 for one
/// that the collection's validator does not allow, with 16755 for a polygon that an index does not.
#[inline]
pub fn check(
    call: &Invocation<'_>,
    collection: &Collection,
    document: &RawDocument,
    former: Option<&RawDocument>,
) -> Result<()> {
    check_stored(call, collection.namespace(), document)?;
    // What measurements are found by must be right, whoever makes the bucket. A log that is replayed over a younger
    // bucket makes it an older one and a younger one again, field by field.
    if let Some(options) = collection.timeseries()
        && call.command.name != "applyOps"
    {
        query::timeseries::check_bucket(document, options)
            .map_err(|error| timeseries::of_bucket(error.into(), collection.namespace(), document))?;
    }
    for index in collection.maintained() {
        if index.pattern().special() == Some(FieldKind::Sphere) && call.command.name != "applyOps" {
            check_polygons(call, index, document, former)?;
        }
    }
    match collection.validation() {
        None => Ok(()),
        Some(validation) => enforce(call, collection, validation, document, former),
    }
}

/// Refuses polygons with rings that are at odds. A document that had such ones may keep them.
fn check_polygons(
    call: &Invocation<'_>,
    index: &Index,
    document: &RawDocument,
    former: Option<&RawDocument>,
) -> Result<()> {
    if !index.covers(document, &|| Ok(call.operation.check_now()?))? {
        return Ok(());
    }
    let mut ended = None;
    let mut check = |document: &RawDocument| {
        index.extractor().check_geometries(document, &mut |_| {
            ended = call.operation.check_now().err();
            ended.is_none()
        })
    };
    let Err(refused) = check(document) else {
        return Ok(());
    };
    let had_one = former.is_some_and(|former| check(former).is_err());
    match ended {
        Some(ended) => Err(StorageError::from(ended).into()),
        None if had_one => Ok(()),
        None => Err(CommandError::new(ErrorCode(16755), refused.to_string())),
    }
}

fn enforce(
    call: &Invocation<'_>,
    collection: &Collection,
    validation: &Validation,
    document: &RawDocument,
    former: Option<&RawDocument>,
) -> Result<()> {
    if bypasses(call)? {
        return Ok(());
    }
    let validator = validator(call, collection, validation)?;
    let evaluation = call.evaluation();
    if validator.accepts(document, &evaluation)? {
        return Ok(());
    }
    if let (ValidationLevel::Moderate, Some(former)) = (validation.level(), former)
        && !validator.accepts(former, &evaluation)?
    {
        return Ok(());
    }
    let so_far = &call.report.explained_bytes;
    let room = REPORTS_BYTES_MAX.saturating_sub(so_far.get());
    let (info, bytes) = validator.explain(document, room, &evaluation)?;
    match validation.action() {
        ValidationAction::Error => {
            so_far.set(so_far.get() + bytes);
            Err(CommandError {
                code: ErrorCode::DocumentValidationFailure,
                message: "Document failed validation".to_owned(),
                extra: Some(Box::new(doc! { "errInfo": info })),
            })
        }
        ValidationAction::Warn => {
            let attributes = doc! {
                "namespace": collection.namespace().as_str(),
                "document": Document::try_from(document)?,
                "errInfo": info,
            };
            let message = "Document would fail validation";
            let context = format!("conn{}", call.client.id());
            call.server
                .logger
                .log(id::DOCUMENT_FAILS_VALIDATION, &context, message, attributes);
            Ok(())
        }
    }
}

/// `bypassDocumentValidation` of any command that writes; whether the caller may ask for it has been looked at.
fn bypasses(call: &Invocation<'_>) -> Result<bool> {
    match call.body.get("bypassDocumentValidation")? {
        None | Some(RawBsonRef::Null | RawBsonRef::Undefined) => Ok(false),
        Some(value) => call.arguments().boolean("bypassDocumentValidation", value),
    }
}

/// What a validator is compiled with: it outlives the operation that does it.
fn expressions(call: &Invocation<'_>, collation: Option<&Arc<Collation>>) -> ExpressionContext {
    let context = ExpressionContext::at_time_of(&call.operation, Arc::clone(&call.server.env.random));
    context.with_collation(collation.cloned())
}

/// The compiled validator of a collection, in whose order it compares strings.
fn validator(call: &Invocation<'_>, collection: &Collection, validation: &Validation) -> Result<Arc<Validator>> {
    let compile = |source: &RawDocument| {
        let expressions = expressions(call, collection.collation()).for_stored();
        Validator::compile(source, &expressions)
    };
    let validator = validation.compiled(compile)?;
    match validator.depends_on_time() {
        false => Ok(validator),
        true => Ok(Arc::new(compile(validation.validator())?)),
    }
}

/// Refuses what cannot be a validator, and validators where there must be none.
pub fn check_validator(call: &Invocation<'_>, namespace: &Namespace, validator: &RawDocument) -> Result<()> {
    let refused = |text: String| Err(CommandError::new(ErrorCode::InvalidOptions, text));
    if matches!(namespace.db(), "admin" | "config" | "local") {
        return refused(format!(
            "Document validators are not allowed on collection {namespace} in the {} internal database",
            namespace.db()
        ));
    }
    if namespace.collection().starts_with("system.") {
        return refused(format!(
            "Document validators are not allowed on system collection {namespace}"
        ));
    }
    Validator::compile(validator, &expressions(call, None))?;
    Ok(())
}

fn one_of(arguments: Arguments<'_>, name: &str, value: RawBsonRef<'_>, known: &[&'static str]) -> Result<&'static str> {
    let given = arguments.string(name, value)?;
    known.iter().find(|name| **name == given).copied().ok_or_else(|| {
        CommandError::bad_value(format!(
            "Enumeration value '{given}' for field '{}.{name}' is not a valid value.",
            arguments.command
        ))
    })
}

/// `validationLevel`.
pub fn level(arguments: Arguments<'_>, value: RawBsonRef<'_>) -> Result<&'static str> {
    one_of(arguments, "validationLevel", value, &["off", "strict", "moderate"])
}

/// `validationAction`. `errorAndLog` is younger than MongoDB 8.0.
pub fn action(arguments: Arguments<'_>, value: RawBsonRef<'_>) -> Result<&'static str> {
    one_of(arguments, "validationAction", value, &["error", "warn"])
}

/// What `collMod` says of a collection's rules.
#[derive(Default)]
pub struct RulesChange<'a> {
    /// An empty one takes the rules away.
    pub validator: Option<&'a RawDocument>,
    /// See [`level`].
    pub level: Option<&'static str>,
    /// See [`action`].
    pub action: Option<&'static str>,
}

impl RulesChange<'_> {
    /// Adds it to the change of the collection. What is not given stays, and is written down in any case.
    pub fn apply(&self, call: &Invocation<'_>, namespace: &Namespace, change: &mut CollectionChange) -> Result<()> {
        if self.validator.is_none() && self.level.is_none() && self.action.is_none() {
            return Ok(());
        }
        let requested = &mut change.requested;
        self.validator
            .into_iter()
            .for_each(|validator| requested.append(cstr!("validator"), validator));
        self.level
            .into_iter()
            .for_each(|level| requested.append(cstr!("validationLevel"), level));
        self.action
            .into_iter()
            .for_each(|action| requested.append(cstr!("validationAction"), action));
        match self.validator {
            None => {}
            Some(none) if none.is_empty() => change.unset_options.push("validator".to_owned()),
            Some(validator) => {
                check_validator(call, namespace, validator)?;
                change.set_options.append(cstr!("validator"), validator);
            }
        }
        match self.level {
            Some(level) => change.set_options.append(cstr!("validationLevel"), level),
            None => change.default_options.append(cstr!("validationLevel"), "strict"),
        }
        match self.action {
            Some(action) => change.set_options.append(cstr!("validationAction"), action),
            None => change.default_options.append(cstr!("validationAction"), "error"),
        }
        Ok(())
    }
}

/// Counts the documents of a collection that break its rules, for `validate`.
pub struct Compliance<'c> {
    call: &'c Invocation<'c>,
    collection: &'c Collection,
    validator: Option<Arc<Validator>>,
    evaluation: EvaluationContext<'c>,
    n_non_compliant: u64,
    /// What is wrong with the first buckets that are none, and how many there are.
    broken: Vec<String>,
    n_broken: u64,
}

impl<'c> Compliance<'c> {
    /// With the rules as they are now. Rules that cannot be compiled any more count no documents.
    pub fn of(call: &'c Invocation<'_>, collection: &'c Collection) -> Self {
        let validation = collection.validation();
        Self {
            call,
            collection,
            validator: validation.and_then(|validation| validator(call, collection, validation).ok()),
            evaluation: call.evaluation(),
            n_non_compliant: 0,
            broken: Vec::new(),
            n_broken: 0,
        }
    }

    /// Looks at one document.
    pub fn inspect(&mut self, id: &RecordId, document: &RawDocument) -> std::result::Result<(), StorageError> {
        if let Some(options) = self.collection.timeseries()
            && let Err(error) = query::timeseries::check_bucket(document, options)
        {
            self.n_broken += 1;
            if self.n_broken <= NAMED_MAX {
                let error = timeseries::of_bucket(error.into(), self.collection.namespace(), document);
                self.broken.push(error.message);
            }
        }
        let Some(validator) = &self.validator else {
            return Ok(());
        };
        match validator.accepts(document, &self.evaluation) {
            Ok(true) => return Ok(()),
            Err(QueryError::Storage(error)) => return Err(error),
            Ok(false) | Err(_) => {}
        }
        self.n_non_compliant += 1;
        if self.n_non_compliant <= NAMED_MAX {
            let namespace = self.collection.namespace().as_str();
            let attributes = doc! { "namespace": namespace, "recordId": id.to_bson() };
            let message = "Document is not compliant with the collection's schema";
            let context = format!("conn{}", self.call.client.id());
            self.call
                .server
                .logger
                .log(id::DOCUMENT_NOT_COMPLIANT, &context, message, attributes);
        }
        Ok(())
    }

    /// Adds a warning when there were some; answers how many. Buckets that are none are errors.
    pub fn finish(self, report: &mut ValidateReport) -> u64 {
        let unnamed = self.n_broken - self.broken.len() as u64;
        report.errors.extend(self.broken);
        if unnamed > 0 {
            report.errors.push(format!("{unnamed} more buckets are none"));
        }
        if self.n_non_compliant > 0 {
            let text = "Detected one or more documents not compliant with the collection's schema. Check logs for log id 5363500.";
            report.warnings.push(text.to_owned());
        }
        self.n_non_compliant
    }
}
