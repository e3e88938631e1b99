//! Where the results of `$out` and `$merge` go, in steps: begin, write, and finish or abandon.
//!
//! A pipeline of this server takes them one after the other; that of a secondary does so by `_tenonWriteResults`
//! (`primary_output.rs`), each step a call of its own. Between them an output is its stage and, of `$out`, the
//! collection that is filled: by its name and its number, since another one of the name is none of it.

use super::find::empty_document;
use super::merge_stage::{Inherited, Merge, check_on, write_merged};
use super::stage_destination::{first_error, insert};
use super::timeseries::{self, out::OutBuckets};
use super::update;
use super::write_stages::WriteStage;
use crate::error::{CommandError, Result};
use crate::invocation::Invocation;
use crate::metrics::OperationKind;
use bson::raw::RawDocumentBuf;
use std::sync::Arc;
use storage::{Collection, IndexSpec, Namespace, Temporary, TemporaryName};
use wire::ErrorCode;

/// See the module.
pub enum Output {
    /// `$merge`: documents stay where they are written.
    Merged(Box<Merge>),
    /// `$out`: they are gathered.
    Gathered(Gathered),
    /// The same, of measurements.
    Buckets(OutBuckets),
}

/// A collection that is to take another one's place.
pub struct Gathered {
    collection: Arc<Collection>,
    into: Namespace,
}

/// An output that was begun, and the name in use until it ends.
pub type Begun<'s> = (Output, Option<TemporaryName<'s>>);

impl Output {
    /// Begins to write what a pipeline gives. Whatever makes the stage impossible is found here.
    pub fn begin<'s>(call: &Invocation<'s>, stage: &WriteStage, inherited: Inherited) -> Result<Begun<'s>> {
        let into = stage.destination();
        if let WriteStage::Out(_, Some(_)) = stage {
            // Before what is said of all views.
            timeseries::out::check_free(call, into)?;
        }
        update::check_writable(call, into)?;
        let is_timeseries = timeseries::buckets(call, into).is_some();
        match stage {
            WriteStage::Out(into, options) if is_timeseries || options.is_some() => {
                let (buckets, name) = OutBuckets::begin(call, into, options.as_ref())?;
                Ok((Self::Buckets(buckets), Some(name)))
            }
            WriteStage::Out(into, _) => {
                let (gathered, name) = Gathered::begin(call, into)?;
                Ok((Self::Gathered(gathered), Some(name)))
            }
            WriteStage::Merge(_) if is_timeseries => Err(super::views::refused(into)),
            WriteStage::Merge(merge) => {
                let merge = Box::new(merge.with(inherited));
                check_on(call, &merge)?;
                Ok((Self::Merged(merge), None))
            }
        }
    }

    /// The output that an earlier call has begun.
    pub fn begun(
        call: &Invocation<'_>,
        stage: &WriteStage,
        inherited: Inherited,
        temporary: Option<(&Namespace, [u8; 16])>,
    ) -> Result<Self> {
        let into = match stage {
            WriteStage::Merge(merge) => return Ok(Self::Merged(Box::new(merge.with(inherited)))),
            WriteStage::Out(into, _) => into,
        };
        let found = temporary.and_then(|(name, uuid)| {
            let collection = call.server.storage.catalog().collection(name)?;
            (collection.uuid() == uuid).then_some(collection)
        });
        let Some(collection) = found else {
            return Err(gone());
        };
        // What it was begun as, whatever has the name now.
        if collection.timeseries().is_some() {
            return Ok(Self::Buckets(OutBuckets::begun(into, collection)));
        }
        Ok(Self::Gathered(Gathered {
            collection,
            into: into.clone(),
        }))
    }

    /// What is filled, of `$out`.
    pub fn temporary(&self) -> Option<&Arc<Collection>> {
        match self {
            Self::Merged(_) => None,
            Self::Gathered(gathered) => Some(&gathered.collection),
            Self::Buckets(buckets) => Some(buckets.collection()),
        }
    }

    /// Writes a batch.
    pub fn write(&self, call: &mut Invocation<'_>, documents: Vec<RawDocumentBuf>) -> Result<()> {
        let began = call.server.env.clock.monotonic();
        let written = self.write_batch(call, documents);
        let time = call.server.env.clock.monotonic().saturating_sub(began);
        let (namespace, kind) = match self {
            Self::Merged(merge) => (&merge.into, OperationKind::Update),
            Self::Gathered(gathered) => (gathered.collection.namespace(), OperationKind::Insert),
            Self::Buckets(buckets) => (buckets.collection().namespace(), OperationKind::Insert),
        };
        call.server.record_usage(namespace, kind.usage(), time);
        written
    }

    fn write_batch(&self, call: &mut Invocation<'_>, documents: Vec<RawDocumentBuf>) -> Result<()> {
        match self {
            Self::Merged(merge) => write_merged(call, merge, documents),
            Self::Gathered(gathered) => {
                gathered.check(call)?;
                insert(call, gathered.collection.namespace(), &documents)
            }
            Self::Buckets(buckets) => first_error(buckets.insert(call, &documents)?),
        }
    }

    /// All is written: of `$out`, it takes its place.
    pub fn finish(&self, call: &Invocation<'_>) -> Result<()> {
        match self {
            Self::Merged(_) => Ok(()),
            Self::Gathered(gathered) => gathered.finish(call),
            Self::Buckets(buckets) => buckets.finish(call),
        }
    }

    /// Forgets what was gathered.
    pub fn abandon(&self, call: &Invocation<'_>) -> Result<()> {
        let Some(temporary) = self.temporary() else {
            return Ok(());
        };
        // By an operation of its own: the call's may have been interrupted.
        let cleaning = call.server.new_operation();
        let dropped = call.server.storage.drop_collection(&cleaning, temporary.namespace());
        // Nobody has its name again.
        call.server.metrics.top.forget(temporary.namespace().as_str());
        dropped?;
        Ok(())
    }
}

fn gone() -> CommandError {
    CommandError::new(
        ErrorCode::NamespaceNotFound,
        "the collection that $out fills was dropped",
    )
}

impl Gathered {
    fn begin<'s>(call: &Invocation<'s>, into: &Namespace) -> Result<(Self, TemporaryName<'s>)> {
        let storage = &call.server.storage;
        let former = storage.catalog().collection(into);
        if former.as_ref().is_some_and(|former| former.is_capped().is_some()) {
            return Err(CommandError::new(
                ErrorCode(17152),
                format!("namespace '{into}' is capped so it can't be used for $out"),
            ));
        }
        let options = former.as_ref().map_or(empty_document(), |former| former.options());
        let indexes: Vec<IndexSpec> = former
            .iter()
            .flat_map(|former| former.indexes())
            .filter(|index| !index.is_id())
            .map(|index| index.parsed_spec().clone())
            .collect();
        let name = storage.temporary_name(into.db(), Temporary::Out)?;
        let collection = fill_of(call, name.namespace(), options, &indexes)?;
        let gathered = Self {
            collection,
            into: into.clone(),
        };
        Ok((gathered, name))
    }

    /// Still the one that was begun: what is written into one that is gone would begin another one.
    fn check(&self, call: &Invocation<'_>) -> Result<()> {
        let now = call.server.storage.catalog().collection(self.collection.namespace());
        match now.is_some_and(|now| now.uuid() == self.collection.uuid()) {
            true => Ok(()),
            false => Err(gone()),
        }
    }

    fn finish(&self, call: &Invocation<'_>) -> Result<()> {
        self.check(call)?;
        let (storage, temporary) = (&call.server.storage, self.collection.namespace());
        storage.replace_collection(&call.operation, temporary, &self.into)?;
        call.wrote(storage.last_seq());
        call.server.metrics.top.hand_over(temporary.as_str(), &self.into);
        Ok(())
    }
}

/// Makes the collection that is filled; when an index cannot be, nothing stays behind.
pub fn fill_of(
    call: &Invocation<'_>,
    temporary: &Namespace,
    options: &bson::RawDocument,
    indexes: &[IndexSpec],
) -> Result<Arc<Collection>> {
    let storage = &call.server.storage;
    storage.create_collection(&call.operation, temporary, options)?;
    if !indexes.is_empty()
        && let Err(error) = storage.create_indexes(&call.operation, temporary, indexes)
    {
        storage.drop_collection(&call.server.new_operation(), temporary)?;
        return Err(error.into());
    }
    storage.catalog().collection(temporary).ok_or_else(gone)
}
