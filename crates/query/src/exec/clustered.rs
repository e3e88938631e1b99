//! Scans of the documents of a clustered collection in `explain`: MongoDB's names, and the records they begin and end
//! with.

use super::describe::{decoded_value, direction_name, narrowed, predecessor};
use super::index_scan::IndexScan;
use crate::plan::encode::{bracket, is_everything};
use bson::spec::ElementType;
use bson::{Bson, DateTime, Document, doc, oid::ObjectId};

/// The name of a scan: it is one of the whole collection when it has no bounds.
pub(crate) fn scan_name(scan: &IndexScan) -> &'static str {
    match records(scan) {
        (None, None) => "COLLSCAN",
        _ => "CLUSTERED_IXSCAN",
    }
}

/// What `explain` tells of a scan, but for its filter.
pub(crate) fn add_facts(scan: &IndexScan, executed: bool, document: &mut Document) {
    document.insert("direction", direction_name(scan.direction));
    let (first, last) = records(scan);
    document.extend(first.map(|first| ("minRecord".to_owned(), first)));
    document.extend(last.map(|last| ("maxRecord".to_owned(), last)));
    if executed {
        document.insert("docsExamined", narrowed(scan.counters.docs_examined));
    }
}

/// The look-up of one document by its `_id`, as writers do it.
pub(crate) fn lookup_facts(key: &[u8]) -> Document {
    let id = decoded_value(key).unwrap_or(Bson::Null);
    doc! { "stage": "CLUSTERED_IXSCAN", "direction": "forward", "minRecord": id.clone(), "maxRecord": id }
}

/// The `_id` that a scan begins and ends with; `None` without a bound.
fn records(scan: &IndexScan) -> (Option<Bson>, Option<Bson>) {
    if let Some([start, end]) = scan.bounds.whole_keys() {
        return (start.map(first_record), end.map(last_record));
    }
    let Some(set) = scan.bounds.fields().first().filter(|set| !is_everything(set)) else {
        return (None, None);
    };
    let list = set.list();
    let first = list.first().map(|interval| interval.start().to_vec());
    let last = list.last().map(|interval| interval.end());
    let above_all = bracket(ElementType::MaxKey).end();
    (
        first
            .filter(|first| first.as_slice() > bracket(ElementType::MinKey).start())
            .map(|first| first_record(&first)),
        last.filter(|last| *last < above_all).map(|last| last_record(&last)),
    )
}

/// The value at or before the first key of a scan.
fn first_record(start: &[u8]) -> Bson {
    decoded_value(start)
        .or_else(|| predecessor(start).and_then(|before| decoded_value(&before)))
        .unwrap_or_else(|| type_start(start))
}

/// The value at or behind the last key of a scan, which is before `end`.
fn last_record(end: &[u8]) -> Bson {
    predecessor(end)
        .and_then(|before| decoded_value(&before))
        .or_else(|| decoded_value(end))
        .unwrap_or_else(|| type_start(end))
}

/// The least value of the first type at or behind a key that is no value's.
fn type_start(key: &[u8]) -> Bson {
    let starts = [
        (ElementType::Double, Bson::Double(f64::NAN)),
        (ElementType::String, Bson::String(String::new())),
        (ElementType::EmbeddedDocument, Bson::Document(Document::new())),
        (ElementType::ObjectId, Bson::ObjectId(ObjectId::from_bytes([0; 12]))),
        (ElementType::Boolean, Bson::Boolean(false)),
        (ElementType::DateTime, Bson::DateTime(DateTime::MIN)),
        (
            ElementType::Timestamp,
            Bson::Timestamp(bson::Timestamp { time: 0, increment: 0 }),
        ),
    ];
    let mut starts = starts.into_iter();
    let found = starts.find(|(element_type, _)| bracket(*element_type).start() >= key);
    found.map_or(Bson::MaxKey, |(_, value)| value)
}
