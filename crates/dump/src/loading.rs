//! One collection that is restored: it is made, filled by batches, and gets its indexes at the end.

use crate::client::{Client, Inserted};
use crate::error::{DumpError, Result};
use crate::found::Found;
use crate::indexes::{self, binary_order, is_of_ids};
use crate::left_out::{Held, id_of_found};
use crate::metadata::{CollectionKind, Metadata};
use crate::namespace::Namespace;
use crate::restore::{RestoreOptions, Restored};
use crate::texts::Texts;
use crate::users_and_roles;
use bson::{Document, RawDocument, doc};
use std::borrow::Cow;
use std::sync::Arc;
use storage::TimeseriesOptions;

/// A batch is sent at so many bytes or documents; one document more always fits into a message.
const BATCH_BYTES: usize = 8 << 20;
const BATCH_DOCUMENTS: u64 = 1000;
/// `create` of something that is there, and `drop` of something that is not.
const NAMESPACE_EXISTS: i32 = 48;
const NAMESPACE_NOT_FOUND: i32 = 26;
const UNAUTHORIZED: i32 = 13;

/// How far a collection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Nothing has been done: what there is of its name stands.
    Waiting,
    /// It has been made.
    Filling,
    /// It takes documents, and does nothing with them.
    Skipping,
}

/// A collection that is being filled.
#[derive(Debug)]
pub struct Loading<'a> {
    options: &'a RestoreOptions,
    source: Namespace,
    target: Namespace,
    metadata: Metadata,
    /// Of a time series.
    timeseries: Option<Arc<TimeseriesOptions>>,
    /// The temporary collection that it is, of users or roles.
    temporary: Option<Namespace>,
    stage: Stage,
    texts: Texts,
    batch: Vec<u8>,
    batch_documents: u64,
    restored: Restored,
}

impl<'a> Loading<'a> {
    /// A collection or a view that is made before its first document, or at the end where there is none.
    pub fn new(options: &'a RestoreOptions, source: &Namespace, metadata: Metadata) -> Result<Self> {
        let mut metadata = metadata.without_old_options();
        let temporary = users_and_roles::temporary(source).filter(|_| options.users_and_roles);
        if temporary.is_some() {
            (metadata.options, metadata.indexes) = (Document::new(), Vec::new());
        }
        // Without its options it would be another kind of collection.
        if options.no_options && metadata.kind == CollectionKind::Collection {
            metadata.options.clear();
        }
        let target = match &temporary {
            Some(temporary) => temporary.clone(),
            None => options.target(source)?,
        };
        Ok(Self {
            options,
            source: source.clone(),
            target,
            timeseries: metadata.timeseries(),
            metadata,
            temporary,
            stage: Stage::Waiting,
            texts: Texts::new(options.invalid_text),
            batch: Vec::new(),
            batch_documents: 0,
            restored: Restored::default(),
        })
    }

    /// Whether anything has been done to what there is of its name.
    pub(crate) fn has_begun(&self) -> bool {
        self.stage != Stage::Waiting
    }

    /// Makes the collection or the view, once. One that is there already stays, and is filled further. A collection
    /// whose options the server refuses is made without them; what cannot be made at all is passed over.
    fn begin(&mut self, client: &mut Client) -> Result<()> {
        if self.has_begun() {
            return Ok(());
        }
        let options = self.options;
        let goes_on = |error: &DumpError| error.is_of_what_was_asked() && !options.stop_on_error;
        if options.drop || self.temporary.is_some() {
            let dropped = client.change(&self.target.database, &doc! { "drop": &self.target.collection });
            match (unless_code(dropped, NAMESPACE_NOT_FOUND), self.temporary.is_some()) {
                // Who may not restore users restores the rest.
                (Err(error), true) if error.is_refusal(UNAUTHORIZED) => {
                    self.pass_over(&error);
                    return Ok(());
                }
                (Err(error), false) if goes_on(&error) => {
                    self.pass_over(&error);
                    return Ok(());
                }
                (dropped, _) => dropped?,
            }
        }
        loop {
            let mut create = doc! { "create": &self.target.collection };
            create.extend(self.metadata.options.clone());
            let error = match unless_code(client.change(&self.target.database, &create), NAMESPACE_EXISTS) {
                Ok(()) => break,
                Err(error) if goes_on(&error) => error,
                Err(error) => return Err(error),
            };
            let dropped = self.metadata.drop_options();
            if dropped.is_empty() {
                self.restored.failures.clear();
                self.pass_over(&error);
                return Ok(());
            }
            let failure = format!("{}: made without {}: {error}", self.target, dropped.join(", "));
            self.restored.failures.push(failure);
        }
        self.stage = Stage::Filling;
        self.restored.collections = 1;
        Ok(())
    }

    fn pass_over(&mut self, why: &DumpError) {
        self.stage = Stage::Skipping;
        self.temporary = None;
        self.restored
            .failures
            .push(format!("{} is not restored: {why}", self.source));
    }

    /// Sends a document of a dump, with others; one with text that is not UTF-8 as the user chose.
    pub(crate) fn add_found(&mut self, client: &mut Client, found: &Found) -> Result<()> {
        if self.stage == Stage::Skipping {
            return self.add(client, found.as_found());
        }
        let counted = self.texts.counts();
        // Before the collection is made: what ends the restoration must not cost the one that there is.
        let document = match &self.timeseries {
            Some(options) => self.texts.bucket(found, options)?,
            None => self.texts.document(found)?,
        };
        let fits_log = match &document {
            None => false,
            // Another bucket than the log's has other rows, or other extents. One that cannot be made anew is refused.
            Some(document) if self.timeseries.is_some() => found.is_valid() && matches!(document, Cow::Borrowed(_)),
            Some(_) => true,
        };
        if !fits_log && self.options.oplog.is_some() && !self.restored.left_out.is_full() {
            let namespace = self.source.of_documents(self.metadata.kind);
            match (id_of_found(found), &self.timeseries) {
                (Some(id), Some(_)) => {
                    let held = Held::of_dump(found.as_found(), self.texts.counts().since(counted));
                    // What is let go for it has no changes yet that could be lost.
                    self.restored.left_out.hold(namespace, id, held);
                }
                (id, _) => self.restored.left_out.add(namespace, id),
            }
        }
        match document {
            Some(document) => self.add(client, &document),
            None => {
                self.options.progress.inc(found.as_bytes().len() as u64);
                Ok(())
            }
        }
    }

    /// Sends a document, with others.
    pub fn add(&mut self, client: &mut Client, document: &RawDocument) -> Result<()> {
        self.begin(client)?;
        if self.stage == Stage::Skipping {
            // Of a collection that could not be made none was tried.
            self.restored.failed += u64::from(self.restored.collections > 0);
            return Ok(());
        }
        self.batch.extend_from_slice(document.as_bytes());
        self.batch_documents += 1;
        self.options.progress.inc(document.as_bytes().len() as u64);
        if self.batch.len() >= BATCH_BYTES || self.batch_documents >= BATCH_DOCUMENTS {
            self.flush(client)?;
        }
        Ok(())
    }

    fn flush(&mut self, client: &mut Client) -> Result<()> {
        if self.batch_documents == 0 {
            return Ok(());
        }
        let bypass = self.options.bypass_validation;
        let documents = self.target.of_documents(self.metadata.kind);
        let inserted = match client.insert(&documents, &self.batch, self.batch_documents, bypass) {
            // None will be taken, as where a view has the collection's name.
            Err(error) if error.is_of_what_was_asked() && !self.options.stop_on_error => {
                self.stage = Stage::Skipping;
                Inserted {
                    documents: 0,
                    failed: self.batch_documents,
                    first_failure: Some(format!("no more of its documents are restored: {error}")),
                }
            }
            inserted => inserted?,
        };
        self.batch.clear();
        self.batch_documents = 0;
        self.restored.documents += inserted.documents;
        self.restored.failed += inserted.failed;
        if let Some(failure) = inserted.first_failure {
            if self.options.stop_on_error {
                return Err(DumpError::Choice(format!("{failure} (--stopOnError)")));
            }
            if self.restored.failed == inserted.failed || self.stage == Stage::Skipping {
                self.restored.failures.push(format!("{}: {failure}", self.target));
            }
        }
        Ok(())
    }

    /// Makes the indexes. One that the server refuses is a failure, and the others are made.
    pub fn finish(mut self, client: &mut Client) -> Result<Restored> {
        self.begin(client)?;
        self.flush(client)?;
        let (left_out, replaced) = self.texts.told(&self.target.to_string());
        let counts = self.texts.counts();
        (self.restored.skipped, self.restored.replaced) = (counts.left_out, counts.replaced);
        self.restored.failures.extend(left_out);
        self.restored.replacements.extend(replaced);
        if let Some(temporary) = self.temporary.take() {
            // A dump without users does not take those away that there are, nor does one of which some are missing.
            let is_whole = self.restored.failed == 0 && self.restored.skipped == 0;
            match self.restored.documents > 0 && is_whole {
                true => self.restored.temporaries.push(temporary),
                false => drop(client.change(&temporary.database, &doc! { "drop": &temporary.collection })?),
            }
            if !is_whole {
                let failure = "users or roles are not restored: some were refused or left out".to_owned();
                self.restored.failures.push(failure);
            }
        }
        if self.stage == Stage::Skipping {
            return Ok(self.restored);
        }
        let indexes = self.take_indexes();
        if self.options.oplog.is_some() {
            for index in indexes {
                self.restored.indexes.put(&self.target, index);
            }
        } else if !self.options.no_indexes {
            let failures = indexes::make(client, &self.target, indexes, self.options.stop_on_error)?;
            self.restored.failures.extend(failures);
        }
        Ok(self.restored)
    }

    /// All but the one on `_id`, which each collection has.
    fn take_indexes(&mut self) -> Vec<Document> {
        let is_collated = self.metadata.options.contains_key("collation");
        std::mem::take(&mut self.metadata.indexes)
            .into_iter()
            .filter(|index| !is_of_ids(index))
            .map(|mut index: Document| {
                // Old servers repeat the namespace, which may have another name now.
                index.remove("ns");
                // Else it would take over the collection's.
                if is_collated && !index.contains_key("collation") {
                    index.insert("collation", binary_order());
                }
                index
            })
            .collect()
    }
}

/// Takes a refusal with this code for success.
fn unless_code(result: Result<Document>, accepted: i32) -> Result<()> {
    match result {
        Ok(_) => Ok(()),
        Err(error) if error.is_refusal(accepted) => Ok(()),
        Err(error) => Err(error),
    }
}
