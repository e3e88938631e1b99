//! Buckets with text that is not UTF-8 while a log is replayed: the log changes them as they were, by rows and columns
//! which the restored bucket does not have. That one is made anew when the log has ended, and takes the place of what
//! was restored by then.

use super::{Operation, Replay, UNAUTHORIZED, changed_id, is_whole};
use crate::error::Result;
use crate::left_out::Held;
use crate::metadata::Metadata;
use crate::namespace::Namespace;
use crate::oplog::malformed;
use crate::texts::Counts;
use bson::raw::{RawDocument, RawDocumentBuf};
use bson::{Document, Timestamp, doc};
use query::matcher::MatchDetails;
use query::update::{Update, UpdateContext};
use query::{EvaluationContext, timeseries};
use std::borrow::Cow;
use std::sync::Arc;
use storage::TimeseriesOptions;

impl Operation {
    /// The bucket that it makes of one, with the text that the log has. `None` where that cannot be told, as logs have
    /// forms that are not known here.
    fn applied_to(&self, bucket: &RawDocument) -> Option<RawDocumentBuf> {
        let operation = match &self.invalid {
            Some(invalid) => Cow::Borrowed(&*invalid.as_found),
            None => Cow::Owned(RawDocumentBuf::try_from(&self.document).ok()?),
        };
        let o = operation.get_document("o").ok()?;
        if is_whole(&self.document) {
            return Some(o.to_owned());
        }
        let update = Update::delta(o.get_document("diff").ok()?).ok()?;
        let context = UpdateContext {
            now_ms: 0,
            timestamp: Timestamp { time: 0, increment: 0 },
            keep_empty_timestamps: true,
            details: MatchDetails::default(),
        };
        let update = update.with_depth_max(timeseries::BUCKET_DEPTH_MAX);
        match update
            .apply(bucket, &context, &EvaluationContext::uninterrupted())
            .ok()?
        {
            Some(changed) => RawDocumentBuf::from_bytes(changed).ok(),
            None => Some(bucket.to_owned()),
        }
    }
}

impl Replay<'_> {
    /// Whether the bucket that an operation changes is held: it is changed there.
    pub(super) fn changes_held(&mut self, operation: &Operation, namespace: &Namespace) -> Result<bool> {
        let Some(id) = changed_id(&operation.document) else {
            return Ok(false);
        };
        let Some(held) = self.left_out.release(namespace, &id) else {
            return Ok(false);
        };
        match operation.applied_to(&held.bucket) {
            Some(bucket) => {
                let held = Held::of_log(bucket, held.counted);
                self.hold(namespace.clone(), id, held)?;
                Ok(true)
            }
            // Nothing that comes now fits what it was until then.
            None => {
                if held.is_changed {
                    self.restore_one_held(namespace, id, &held)?;
                }
                Ok(false)
            }
        }
    }

    /// Whether the bucket that an operation makes or changes, with text that is not UTF-8, can be held from now on.
    pub(super) fn begins_to_hold(&mut self, operation: &Operation, namespace: &Namespace) -> Result<bool> {
        let document = &operation.document;
        let Some(id) = changed_id(document).filter(|_| document.get_str("op").ok() != Some("d")) else {
            return Ok(false);
        };
        let before = match is_whole(document) {
            true => RawDocumentBuf::new(),
            false => match self.restored_bucket(namespace, &id)? {
                Some(bucket) => bucket,
                None => return Ok(false),
            },
        };
        let Some(bucket) = operation.applied_to(&before) else {
            return Ok(false);
        };
        self.hold(namespace.clone(), id, Held::of_log(bucket, Counts::default()))?;
        Ok(true)
    }

    /// A bucket as it is on the server; one that is not there has nothing but its `_id`, and gets what changes set.
    /// `None` where the user may not read it.
    fn restored_bucket(&mut self, namespace: &Namespace, id: &[u8]) -> Result<Option<RawDocumentBuf>> {
        self.flush()?;
        let filter = RawDocument::from_bytes(id).map_err(|error| malformed(&error.to_string()))?;
        let mut bucket = None;
        let found = self.client.find(namespace, Some(filter), &mut |document| {
            bucket = Some(document.to_owned());
            Ok(())
        });
        match found {
            Err(error) if error.is_refusal(UNAUTHORIZED) => Ok(None),
            found => found.map(|()| Some(bucket.unwrap_or_else(|| filter.to_owned()))),
        }
    }

    fn hold(&mut self, namespace: Namespace, id: Vec<u8>, held: Held) -> Result<()> {
        for ((id, namespace), held) in self.left_out.hold(namespace, id, held) {
            if held.is_changed {
                self.restore_one_held(&namespace, id, &held)?;
            }
        }
        Ok(())
    }

    /// Restores the buckets that are held as the log has left them, each by itself: what the server refuses of the
    /// log, or of one of them, costs no other. Nothing can be replayed behind it.
    ///
    /// Errors: the first refusal, when all the others are restored; what ends the restoration, at once.
    pub(crate) fn restore_held(&mut self) -> Result<()> {
        let stops = self.stops;
        let ends = |done: &Result<()>| matches!(done, Err(error) if stops || !error.is_of_what_was_asked());
        let mut first = self.flush();
        if ends(&first) {
            return first;
        }
        for ((id, namespace), held) in self.left_out.take_held() {
            if !held.is_changed {
                continue;
            }
            let restored = self.restore_one_held(&namespace, id, &held).and_then(|()| self.flush());
            if ends(&restored) {
                return restored;
            }
            first = first.and(restored);
        }
        first
    }

    fn restore_one_held(&mut self, namespace: &Namespace, id: Vec<u8>, held: &Held) -> Result<()> {
        let subject = namespace.to_string();
        let Some(options) = self.options_of_series(namespace)? else {
            let what = format!("{subject}: a change of a bucket of what is no time series on the server");
            self.texts.leave_out(what);
            return Ok(());
        };
        let place = (subject.as_str(), self.subject.as_str());
        let made = self.texts.bucket_again(&held.bucket, place, &options, held.counted)?;
        let operation = match made.map(|made| as_stored(&made, &options)) {
            // All that it had is left out.
            None => doc! { "op": "d", "ns": &subject, "o": document_of(&id)? },
            // It takes the place of what there is of its `_id`.
            Some(Ok(stored)) => doc! { "op": "i", "ns": &subject, "o": stored },
            Some(Err(error)) => {
                let what = format!("{subject}: a bucket that cannot be made anew as the log leaves it: {error}");
                self.texts.leave_out(what);
                return Ok(());
            }
        };
        self.push(operation)
    }

    /// Those of the time series whose buckets are there; `None` where it is none on the server.
    fn options_of_series(&mut self, buckets: &Namespace) -> Result<Option<Arc<TimeseriesOptions>>> {
        if let Some(known) = self.series.get(buckets) {
            return Ok(known.clone());
        }
        let name = buckets.of_measurements().map(|series| series.collection);
        let listed = self.client.collections(&buckets.database)?;
        let entry = listed
            .iter()
            .find(|entry| entry.get_str("name").ok() == name.as_deref());
        let options = entry.and_then(|entry| Metadata::of_listed(entry).timeseries());
        self.series.insert(buckets.clone(), options.clone());
        Ok(options)
    }
}

/// A bucket as servers store it, which has been looked at as they look at those that are inserted.
fn as_stored(bucket: &RawDocument, options: &TimeseriesOptions) -> Result<Document> {
    let stored = timeseries::adopted(bucket, options)?;
    let raw = RawDocument::from_bytes(&stored).map_err(|error| malformed(&error.to_string()))?;
    timeseries::check_bucket(raw, options)?;
    document_of(&stored)
}

fn document_of(bytes: &[u8]) -> Result<Document> {
    let raw = RawDocument::from_bytes(bytes).map_err(|error| malformed(&error.to_string()))?;
    Document::try_from(raw).map_err(|error| malformed(&error.to_string()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::Invalid;
    use super::*;

    fn operation(document: &Document) -> Operation {
        let mut bytes = RawDocumentBuf::try_from(document).unwrap().into_bytes();
        let hashes = bytes.iter_mut().filter(|byte| **byte == b'#');
        hashes.for_each(|byte| *byte = 0xE9);
        Operation {
            document: document.clone(),
            invalid: Some(Invalid {
                as_found: RawDocumentBuf::from_bytes(bytes).unwrap(),
                what: String::new(),
                place: String::new(),
            }),
        }
    }

    /// What was left out of a bucket, for want of its text, was all that the log added to it.
    #[test]
    fn operations_of_a_log_change_a_bucket_as_it_was_found() {
        let whole = operation(&doc! { "op": "i", "o": { "_id": 1, "data": { "v": { "0": "f#" } } } });
        let bucket = whole.applied_to(&RawDocumentBuf::new()).unwrap();
        assert_eq!(bucket.as_bytes().iter().filter(|byte| **byte == 0xE9).count(), 1);
        let add = |row: &str| doc! { "sdata": { "sv": { "i": { row: "g#" } } } };
        let change = |row: &str| operation(&doc! { "op": "u", "o2": { "_id": 1 }, "o": { "$v": 2, "diff": add(row) } });
        let changed = change("1").applied_to(&bucket).unwrap();
        let expected = |rows: Document| operation(&doc! { "o": { "_id": 1, "data": { "v": rows } } });
        let rows = expected(doc! { "0": "f#", "1": "g#" }).invalid.unwrap().as_found;
        assert_eq!(*changed, *rows.get_document("o").unwrap());
        // The dump may have seen it.
        assert_eq!(change("1").applied_to(&changed).unwrap(), changed);
        for unknown in [
            doc! { "$v": 2, "diff": { "b": {} } },
            doc! { "$v": 1, "$set": { "x": 1 } },
        ] {
            let unknown = operation(&doc! { "op": "u", "o2": { "_id": 1 }, "o": unknown });
            assert_eq!(unknown.applied_to(&bucket), None);
        }
    }
}
