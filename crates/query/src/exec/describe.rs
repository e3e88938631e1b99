//! Plans as documents, with MongoDB's names: the trees of `explain`.

use super::clustered;
use super::filter::Shape;
use super::index_scan::{IndexScan, ScanKind};
use super::sort_key::shown_sort;
use super::stage::{Stage, StageCounters};
use super::summary::scan_name;
use super::text::TextMatch;
use crate::plan::access::multikey_bits;
use crate::plan::encode::{bracket, is_everything};
use crate::plan::interval::{Interval, Intervals};
use crate::plan::wildcard::multikey_at;
use crate::update::DOCUMENT_BYTES_MAX;
use bson::spec::ElementType;
use bson::{Bson, Document, RawDocument, RawDocumentBuf, doc};
use engine::Direction;
use keys::extract::PatternField;
use keys::key::KeyDecoder;
use keys::{FieldKind, FieldOrder, KeyOrdering};

/// What of a tree is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Detail {
    Plan,
    Execution,
}

/// Bytes of all trees of an explanation from which on it has no more stages: as MongoDB's
/// `internalQueryExplainSizeThresholdBytes`.
const TREE_BYTES_MAX: usize = 10 << 20;
/// Bytes of all parts of an explanation whose size is up to the query, with room for the others.
const EXPLANATION_BYTES_MAX: usize = DOCUMENT_BYTES_MAX - (64 << 10);
/// Bytes that a part takes where it stands besides its own: for `inputStage`, or its share of a list of `inputStages`.
const PART_NAME_BYTES: usize = 16;

/// How much may be shown. A filter of many branches may stand at each of as many scans.
pub(crate) struct SizeBudget {
    used: usize,
    tree_bytes_max: usize,
    bytes_max: usize,
    is_exceeded: bool,
}

impl SizeBudget {
    /// For all parts of an explanation.
    pub(crate) fn of_explanation() -> Self {
        Self {
            tree_bytes_max: TREE_BYTES_MAX,
            ..Self::of_tree(EXPLANATION_BYTES_MAX)
        }
    }

    /// For one tree of so many bytes.
    pub(crate) fn of_tree(bytes_max: usize) -> Self {
        Self {
            used: 0,
            tree_bytes_max: bytes_max,
            bytes_max,
            is_exceeded: false,
        }
    }

    /// Whether something was left out.
    pub(crate) fn is_exceeded(&self) -> bool {
        self.is_exceeded
    }

    /// True when no stage is shown any more: once something did not fit nothing else is tried.
    pub(crate) fn is_used_up(&self) -> bool {
        self.used > self.tree_bytes_max || self.is_exceeded
    }

    /// Whether there is room for a part, which then is taken.
    pub(crate) fn takes(&mut self, part: &Document) -> bool {
        let bytes = RawDocumentBuf::try_from(part).map_or(usize::MAX, |raw| raw.as_bytes().len());
        let used = self.used.saturating_add(bytes).saturating_add(PART_NAME_BYTES);
        let fits = used <= self.bytes_max;
        match fits {
            true => self.used = used,
            false => self.is_exceeded = true,
        }
        fits
    }
}

/// The tree of a plan. What there is no room for is left out, with a warning in its place.
pub(crate) fn describe(stage: &Stage, detail: Detail, budget: &mut SizeBudget) -> Document {
    const WARNING: &str = "stats tree exceeded BSON size limit for explain";
    if budget.is_used_up() {
        budget.is_exceeded = true;
        return doc! { "warning": WARNING };
    }
    let mut document = doc! { "stage": stage_name(stage) };
    if detail == Detail::Execution {
        add_counters(&mut document, &stage.counters());
    }
    add_facts(stage, detail, &mut document);
    if !budget.takes(&document) {
        document = doc! { "stage": stage_name(stage), "warning": WARNING };
    }
    let inputs = stage.inputs();
    match stage {
        Stage::Or(_) | Stage::SortMerge(_) | Stage::TextOr(_) => {
            let mut described: Vec<Bson> = Vec::new();
            for input in inputs {
                // The warning stands for all that are left.
                let is_last = budget.is_used_up();
                described.push(describe(input, detail, budget).into());
                if is_last {
                    break;
                }
            }
            document.insert("inputStages", described);
        }
        _ => {
            if let Some(input) = inputs.first() {
                document.insert("inputStage", describe(input, detail, budget));
            }
        }
    }
    document
}

fn stage_name(stage: &Stage) -> &'static str {
    match stage {
        Stage::Eof => "EOF",
        Stage::CollectionScan(_) => "COLLSCAN",
        Stage::IndexScan(scan) => scan_name(scan),
        Stage::Near(near) => near.name(),
        Stage::TextOr(_) => "TEXT_OR",
        Stage::TextMatch(_) => "TEXT_MATCH",
        Stage::Fetch(_) => "FETCH",
        Stage::Or(_) => "OR",
        Stage::SortMerge(_) => "SORT_MERGE",
        Stage::Sort(_) => "SORT",
        Stage::Skip(_) => "SKIP",
        Stage::Limit(_) => "LIMIT",
        Stage::Project(project) => match project.shape {
            Shape::Covered => "PROJECTION_COVERED",
            Shape::ReturnKey => "RETURN_KEY",
            Shape::Document
                if project
                    .projection
                    .as_ref()
                    .is_some_and(|p| p.simple_inclusion().is_some()) =>
            {
                "PROJECTION_SIMPLE"
            }
            Shape::Document => "PROJECTION_DEFAULT",
        },
    }
}

/// A figure as MongoDB gives it: 32 bits where it fits.
pub(super) fn narrowed(figure: u64) -> Bson {
    i32::try_from(figure).map_or(Bson::Int64(figure as i64), Bson::Int32)
}

fn add_counters(document: &mut Document, counters: &StageCounters) {
    document.insert("nReturned", narrowed(counters.advanced));
    document.insert("executionTimeMillisEstimate", 0);
    document.insert("works", narrowed(counters.works + 1));
    document.insert("advanced", narrowed(counters.advanced));
    document.insert("needTime", narrowed(counters.works.saturating_sub(counters.advanced)));
    document.insert("needYield", 0);
    document.insert("saveState", 0);
    document.insert("restoreState", 0);
    document.insert("isEOF", i32::from(counters.exhausted));
}

fn add_facts(stage: &Stage, detail: Detail, document: &mut Document) {
    let counters = stage.counters();
    let executed = detail == Detail::Execution;
    match stage {
        Stage::CollectionScan(scan) => {
            if let Some(filter) = &scan.filter {
                document.insert("filter", to_document(&filter.to_document()));
            }
            document.insert("direction", direction_name(scan.direction));
            if executed {
                document.insert("docsExamined", narrowed(counters.docs_examined));
            }
        }
        Stage::IndexScan(scan) => {
            if let Some(filter) = &scan.filter {
                document.insert("filter", to_document(&filter.to_document()));
            }
            if scan.index.is_clustered() {
                clustered::add_facts(scan, executed, document);
                return;
            }
            add_index(scan, document);
            if executed {
                document.insert("keysExamined", narrowed(counters.keys_examined));
                document.insert("seeks", narrowed(counters.seeks));
                document.insert("dupsTested", narrowed(counters.dups_tested));
                document.insert("dupsDropped", narrowed(counters.dups_dropped));
            }
        }
        Stage::Near(near) => {
            document.insert("keyPattern", to_document(near.index().key()));
            document.insert("indexName", near.index().name());
            document.insert("indexVersion", 2);
            if executed {
                document.insert("keysExamined", narrowed(counters.keys_examined));
                document.insert("docsExamined", narrowed(counters.docs_examined));
            }
        }
        Stage::TextOr(text) => {
            if let Some(filter) = &text.filter {
                document.insert("filter", to_document(&filter.to_document()));
            }
            if executed {
                document.insert("docsExamined", narrowed(counters.docs_examined));
            }
        }
        Stage::TextMatch(text) => {
            add_search(text, document);
            if executed {
                document.insert("docsRejected", narrowed(counters.works - counters.advanced));
            }
        }
        Stage::Fetch(fetch) => {
            if let Some(filter) = &fetch.filter {
                document.insert("filter", to_document(&filter.to_document()));
            }
            if executed {
                document.insert("docsExamined", narrowed(counters.docs_examined));
                document.insert("alreadyHasObj", 0);
            }
        }
        Stage::Sort(sort) => {
            document.insert("sortPattern", to_document(&shown_sort(&sort.keys.fields)));
            document.insert("memLimit", narrowed(sort.limits.sort_bytes));
            if let Some(limit) = sort.limit {
                document.insert("limitAmount", narrowed(limit));
            }
            document.insert("type", "simple");
            if executed {
                let statistics = sort.statistics();
                document.insert("totalDataSizeSorted", narrowed(statistics.data_bytes));
                statistics.spill.add_to(document);
            }
        }
        Stage::SortMerge(merge) => {
            document.insert("sortPattern", to_document(&shown_sort(&merge.keys.fields)));
        }
        Stage::Skip(skip) => {
            document.insert("skipAmount", narrowed(skip.amount));
        }
        Stage::Limit(limit) => {
            document.insert("limitAmount", narrowed(limit.amount));
        }
        Stage::Project(project) => {
            let transform = project
                .projection
                .as_ref()
                .map_or_else(Document::new, |p| to_document(p.source()));
            document.insert("transformBy", transform);
            if executed && matches!(project.shape, Shape::Covered) {
                document.insert("docsExamined", narrowed(counters.docs_examined));
            }
        }
        Stage::Or(_) | Stage::Eof => {}
    }
}

fn add_search(text: &TextMatch, document: &mut Document) {
    document.insert("indexPrefix", text.prefix.clone());
    document.insert("indexName", text.index.name());
    let list = |texts: Vec<&str>| texts.into_iter().map(Bson::from).collect::<Vec<_>>();
    if let Some(search) = text.test.search() {
        let parsed = doc! {
            "terms": list(search.terms().collect()),
            "negatedTerms": list(search.unwanted_terms().collect()),
            "phrases": list(search.phrases().collect()),
            "negatedPhrases": list(search.unwanted_phrases().collect()),
        };
        document.insert("parsedTextQuery", parsed);
    }
    document.insert("textIndexVersion", 3);
}

fn add_index(scan: &IndexScan, document: &mut Document) {
    let index = &scan.index;
    let fields = index.pattern().fields();
    let name = |field: &PatternField| match (&scan.wildcard, field.kind()) {
        (Some(wildcard), FieldKind::Wildcard) => wildcard.path.to_string(),
        _ => field.path().to_owned(),
    };
    let multikey = match index.wildcard() {
        Some(_) => multikey_at(index, scan.wildcard.as_ref()),
        None => multikey_bits(index),
    };
    let key = match &scan.wildcard {
        Some(_) => fields
            .iter()
            .map(|field| (name(field), Bson::from(direction_of(field.order()))))
            .collect(),
        None => to_document(index.key()),
    };
    document.insert("keyPattern", key);
    document.insert("indexName", index.name());
    document.insert("isMultiKey", multikey != 0);
    let mut paths = Document::new();
    for (i, field) in fields.iter().enumerate() {
        let of_field = if multikey & 1 << i != 0 {
            vec![Bson::from(name(field))]
        } else {
            Vec::new()
        };
        paths.insert(name(field), of_field);
    }
    document.insert("multiKeyPaths", paths);
    if let Some(collation) = index.collation() {
        document.insert("collation", to_document(collation.document()));
    }
    document.insert("isUnique", index.unique());
    document.insert("isSparse", index.sparse());
    document.insert("isPartial", index.partial_filter().is_some());
    if index.clustering() {
        document.insert("isClustering", true);
    }
    document.insert("indexVersion", 2);
    if scan.kind != ScanKind::Count {
        document.insert("direction", direction_name(scan.direction));
    }
    let mut bounds = Document::new();
    for (i, field) in fields.iter().enumerate() {
        bounds.insert(
            name(field),
            bounds_text(
                scan.bounds.fields().get(i),
                field.order(),
                scan.direction,
                index.collation().is_some(),
            ),
        );
    }
    document.insert("indexBounds", bounds);
}

fn bounds_text(set: Option<&Intervals>, order: FieldOrder, direction: Direction, is_collated: bool) -> Vec<Bson> {
    let falling = (order == FieldOrder::Descending) != (direction == Direction::Reverse);
    let whole = || {
        if falling {
            "[MaxKey, MinKey]"
        } else {
            "[MinKey, MaxKey]"
        }
    };
    let Some(set) = set else { return vec![whole().into()] };
    let ascending = if order == FieldOrder::Descending {
        set.complemented()
    } else {
        set.clone()
    };
    if is_everything(&ascending) {
        return vec![whole().into()];
    }
    let mut texts: Vec<Bson> = ascending
        .list()
        .iter()
        .map(|interval| interval_text(interval, falling, is_collated).into())
        .collect();
    if falling {
        texts.reverse();
    }
    texts
}

/// `[5, 10)`, or `(10, 5]` when the scan meets it falling.
fn interval_text(interval: &Interval, falling: bool, is_collated: bool) -> String {
    let decoded = |bytes: &[u8]| match is_collated && keys::key::is_collated_string(bytes) {
        true => sort_key_text(bytes),
        false => decoded(bytes),
    };
    if interval.is_point() {
        let value = decoded(interval.start()).unwrap_or_else(|| "?".to_owned());
        return format!("[{value}, {value}]");
    }
    let (low, low_included) = match (
        decoded(interval.start()),
        predecessor(interval.start()).and_then(|p| decoded(&p)),
    ) {
        (Some(value), _) => (value, true),
        (None, Some(value)) => (value, false),
        (None, None) => (type_start(interval.start()), true),
    };
    let end = interval.end();
    let (high, high_included) = match (predecessor(&end).and_then(|p| decoded(&p)), decoded(&end)) {
        (Some(value), _) => (value, true),
        (None, Some(value)) => (value, false),
        (None, None) => (type_start(&end), false),
    };
    let (opening, closing) = (
        if low_included { '[' } else { '(' },
        if high_included { ']' } else { ')' },
    );
    if falling {
        let mirrored = |bracket| match bracket {
            '[' => ']',
            '(' => ')',
            ']' => '[',
            _ => '(',
        };
        return format!("{}{high}, {low}{}", mirrored(closing), mirrored(opening));
    }
    format!("{opening}{low}, {high}{closing}")
}

/// The string whose successor these bytes are.
pub(super) fn predecessor(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut before = bytes.to_vec();
    let last = before.last_mut()?;
    *last = last.checked_sub(1)?;
    Some(before)
}

/// What is left of a string in the key of an index with a collation.
fn sort_key_text(bytes: &[u8]) -> Option<String> {
    let is_whole = keys::key::value_length(bytes, FieldOrder::Ascending).ok() == Some(bytes.len());
    let digits = || bytes[1..].iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    is_whole.then(|| format!("CollationKey(0x{})", digits()))
}

fn decoded(bytes: &[u8]) -> Option<String> {
    decoded_value(bytes).map(|value| value_text(&value))
}

/// The value whose key these bytes are.
pub(super) fn decoded_value(bytes: &[u8]) -> Option<Bson> {
    let mut decoder = KeyDecoder::new(bytes, &[], KeyOrdering::ASCENDING);
    let mut document = vec![0; 4];
    let present = decoder.append_field("v", &mut document).ok()?;
    if !present || !decoder.is_at_end() {
        return None;
    }
    document.push(0);
    let length = document.len() as u32;
    document[..4].copy_from_slice(&length.to_le_bytes());
    Bson::try_from(RawDocument::from_bytes(&document).ok()?.get("v").ok()??).ok()
}

fn value_text(value: &Bson) -> String {
    match value {
        // As MongoDB has them, which adds the fraction of a whole number to whatever is without a point.
        Bson::Double(number) if number.is_nan() => "nan.0".to_owned(),
        Bson::Double(number) if number.is_infinite() => if *number > 0.0 { "inf.0" } else { "-inf.0" }.to_owned(),
        Bson::Double(number) => format!("{number:?}"),
        Bson::MinKey => "MinKey".to_owned(),
        Bson::MaxKey => "MaxKey".to_owned(),
        Bson::Undefined => "undefined".to_owned(),
        Bson::DateTime(date) => format!("new Date({})", date.timestamp_millis()),
        Bson::ObjectId(id) => format!("ObjectId('{}')", id.to_hex()),
        Bson::Timestamp(timestamp) => format!("Timestamp({}, {})", timestamp.time, timestamp.increment),
        other => other.to_string(),
    }
}

/// The name of the place before all values of a type, for bounds that are no value.
fn type_start(bytes: &[u8]) -> String {
    const STARTS: [(ElementType, &str); 12] = [
        (ElementType::Double, "nan"),
        (ElementType::String, "\"\""),
        (ElementType::EmbeddedDocument, "{}"),
        (ElementType::Array, "[]"),
        (ElementType::Binary, "BinData(0, )"),
        (ElementType::ObjectId, "ObjectId('000000000000000000000000')"),
        (ElementType::Boolean, "false"),
        (ElementType::DateTime, "new Date(-9223372036854775808)"),
        (ElementType::Timestamp, "Timestamp(0, 0)"),
        (ElementType::RegularExpression, "//"),
        (ElementType::JavaScriptCode, "CodeWScope"),
        (ElementType::MaxKey, "MaxKey"),
    ];
    let at_or_after = |(element_type, _): &&(ElementType, &str)| bracket(*element_type).start() >= bytes;
    STARTS
        .iter()
        .find(at_or_after)
        .map_or("MaxKey", |(_, name)| name)
        .to_owned()
}

fn direction_of(order: FieldOrder) -> i32 {
    match order {
        FieldOrder::Ascending => 1,
        FieldOrder::Descending => -1,
    }
}

pub(super) fn direction_name(direction: Direction) -> &'static str {
    match direction {
        Direction::Forward => "forward",
        Direction::Reverse => "backward",
    }
}

/// A raw document in the form that explain is built in; a malformed one comes out empty.
pub(crate) fn to_document(raw: &RawDocument) -> Document {
    Document::try_from(raw).unwrap_or_default()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::plan::encode::StringKeys;

    const BINARY: StringKeys<'static> = StringKeys::Alike(None);
    use crate::plan::leaf::{Comparison, Leaf};
    use bson::raw::RawBsonRef;

    fn texts(leaf: Leaf, order: FieldOrder, direction: Direction) -> Vec<String> {
        let set = if order == FieldOrder::Descending {
            leaf.set.complemented()
        } else {
            leaf.set
        };
        bounds_text(Some(&set), order, direction, false)
            .iter()
            .map(|text| text.as_str().unwrap().to_owned())
            .collect()
    }

    #[test]
    fn bounds_read_as_in_mongodb() {
        let number = |comparison| Leaf::compare("a", comparison, RawBsonRef::Int32(5), BINARY).unwrap();
        let up = |leaf| texts(leaf, FieldOrder::Ascending, Direction::Forward);
        assert_eq!(up(number(Comparison::Greater)), ["(5, inf.0]"]);
        assert_eq!(up(number(Comparison::LessOrEqual)), ["[-inf.0, 5]"]);
        assert_eq!(
            up(Leaf::equal("a", RawBsonRef::String("x"), BINARY).unwrap()),
            ["[\"x\", \"x\"]"]
        );
        assert_eq!(
            up(Leaf::compare("a", Comparison::GreaterOrEqual, RawBsonRef::String("x"), BINARY).unwrap()),
            ["[\"x\", {})"]
        );
        assert_eq!(
            up(Leaf::equal("a", RawBsonRef::Int32(5), BINARY)
                .and_then(Leaf::negated)
                .unwrap()),
            ["[MinKey, 5)", "(5, MaxKey]"]
        );
        assert_eq!(
            texts(number(Comparison::Greater), FieldOrder::Descending, Direction::Forward),
            ["[inf.0, 5)"]
        );
        assert_eq!(
            texts(number(Comparison::Greater), FieldOrder::Descending, Direction::Reverse),
            ["(5, inf.0]"]
        );
        assert_eq!(
            up(Leaf::regex("a", "^ab", "", BINARY)),
            ["[\"ab\", \"ac\")", "[//, CodeWScope)"]
        );
    }
}
