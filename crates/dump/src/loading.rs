//! One collection that is restored: it is made, filled by batches, and gets its indexes at the end.

use crate::client::{Client, Inserted};
use crate::error::{DumpError, Result};
use crate::found::Found;
use crate::indexes::{self, binary_order, is_of_ids};
use crate::metadata::{CollectionKind, Metadata};
use crate::namespace::Namespace;
use crate::restore::{RestoreOptions, Restored};
use crate::users_and_roles;
use bson::{Document, RawDocument, doc};
use wire::limits::DOCUMENT_BYTES_MAX;

/// A batch is sent at so many bytes or documents; one document more always fits into a message.
const BATCH_BYTES: usize = 8 << 20;
const BATCH_DOCUMENTS: u64 = 1000;
/// `create` of something that is there, and `drop` of something that is not.
const NAMESPACE_EXISTS: i32 = 48;
const NAMESPACE_NOT_FOUND: i32 = 26;
const UNAUTHORIZED: i32 = 13;

/// A collection that is being filled.
#[derive(Debug)]
pub struct Loading<'a> {
    options: &'a RestoreOptions,
    target: Namespace,
    metadata: Metadata,
    /// The temporary collection that it is, of users or roles.
    temporary: Option<Namespace>,
    skips: bool,
    batch: Vec<u8>,
    batch_documents: u64,
    restored: Restored,
}

impl<'a> Loading<'a> {
    /// Makes the collection or the view. One that is there already stays, and is filled further. A collection whose
    /// options the server refuses is made without them; what cannot be made at all takes documents and does nothing
    /// with them.
    pub fn begin(
        client: &mut Client,
        options: &'a RestoreOptions,
        source: &Namespace,
        metadata: Metadata,
    ) -> Result<Self> {
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
        let goes_on = |error: &DumpError| error.is_of_what_was_asked() && !options.stop_on_error;
        if options.drop || temporary.is_some() {
            let dropped = client.change(&target.database, &doc! { "drop": &target.collection });
            match (unless_code(dropped, NAMESPACE_NOT_FOUND), &temporary) {
                // Who may not restore users restores the rest.
                (Err(error), Some(_)) if error.is_refusal(UNAUTHORIZED) => {
                    return Ok(Self::skipping(options, source, metadata, &error));
                }
                (Err(error), None) if goes_on(&error) => {
                    return Ok(Self::skipping(options, source, metadata, &error));
                }
                (dropped, _) => dropped?,
            }
        }
        let mut failures = Vec::new();
        loop {
            let mut create = doc! { "create": &target.collection };
            create.extend(metadata.options.clone());
            let error = match unless_code(client.change(&target.database, &create), NAMESPACE_EXISTS) {
                Ok(()) => break,
                Err(error) if goes_on(&error) => error,
                Err(error) => return Err(error),
            };
            let dropped = metadata.drop_options();
            if dropped.is_empty() {
                return Ok(Self::skipping(options, source, metadata, &error));
            }
            failures.push(format!("{target}: made without {}: {error}", dropped.join(", ")));
        }
        Ok(Self {
            options,
            target,
            metadata,
            temporary,
            skips: false,
            batch: Vec::new(),
            batch_documents: 0,
            restored: Restored {
                collections: 1,
                failures,
                ..Restored::default()
            },
        })
    }

    /// Takes documents, and does nothing with them.
    fn skipping(options: &'a RestoreOptions, source: &Namespace, metadata: Metadata, why: &DumpError) -> Self {
        Self {
            options,
            target: source.clone(),
            metadata,
            temporary: None,
            skips: true,
            batch: Vec::new(),
            batch_documents: 0,
            restored: Restored {
                failures: vec![format!("{source} is not restored: {why}")],
                ..Restored::default()
            },
        }
    }

    /// Sends a document of a dump, with others; one with text that is not UTF-8 as the user chose.
    pub(crate) fn add_found(&mut self, client: &mut Client, found: &Found) -> Result<()> {
        let Some(what) = found.what_is_invalid().filter(|_| !self.skips) else {
            return self.add(client, found.as_found());
        };
        let what = match found.for_restoring(self.options.invalid_text, &what, DOCUMENT_BYTES_MAX)? {
            Ok(valid) => {
                if self.restored.replaced == 0 {
                    let replacement = format!("{}: U+FFFD is put in, the first time: {what}", self.target);
                    self.restored.replacements.push(replacement);
                }
                self.restored.replaced += 1;
                return self.add(client, &valid);
            }
            Err(what) => what,
        };
        if self.restored.skipped == 0 {
            let failure = format!("{}: left out, the first of them: {what}", self.target);
            self.restored.failures.push(failure);
        }
        self.restored.skipped += 1;
        self.options.progress.inc(found.as_bytes().len() as u64);
        Ok(())
    }

    /// Sends a document, with others.
    pub fn add(&mut self, client: &mut Client, document: &RawDocument) -> Result<()> {
        if self.skips {
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
                self.skips = true;
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
            if self.restored.failed == inserted.failed || self.skips {
                self.restored.failures.push(format!("{}: {failure}", self.target));
            }
        }
        Ok(())
    }

    /// Makes the indexes. One that the server refuses is a failure, and the others are made.
    pub fn finish(mut self, client: &mut Client) -> Result<Restored> {
        self.flush(client)?;
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
        if self.skips {
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
