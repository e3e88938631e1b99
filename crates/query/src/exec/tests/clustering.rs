//! Plans on indexes whose rows carry the documents.

use super::cases::ids;
use super::fixture::{Fixture, ns};
use super::plans::{explained, stages, winning};
use super::{count, distinct};
use crate::plan::{CountRequest, DistinctRequest, ExplainRequest, FindRequest, Hint, Verbosity};
use bson::{RawDocument, RawDocumentBuf, rawdoc};

/// 60 documents, `b` counting within each `a`; a clustering index on `a` and `b`, an ordinary one on `c`.
fn carried() -> Fixture {
    let fixture = Fixture::new(1);
    fixture.create("c", rawdoc! {});
    let clustering = rawdoc! { "clustering": true };
    let key = rawdoc! { "a": 1, "b": 1 };
    fixture.index("c", key, clustering).expect("indexed");
    fixture.index("c", rawdoc! { "c": 1 }, rawdoc! {}).expect("indexed");
    for id in 0..60 {
        let document = rawdoc! { "_id": id, "a": id / 10, "b": id % 10, "c": id % 4, "n": id % 3 };
        fixture.insert("c", &document).expect("inserted");
    }
    fixture
}

fn stages_of(fixture: &Fixture, filter: &RawDocument, sort: Option<&RawDocument>) -> String {
    let request = FindRequest {
        sort,
        ..FindRequest::new(ns("c"), filter)
    };
    stages(&winning(fixture, &request))
}

#[test]
fn nothing_is_fetched() {
    let fixture = carried();
    let by_b = rawdoc! { "b": -1 };
    for (filter, sort, expected) in [
        (rawdoc! { "a": 2 }, None, "IXSCAN"),
        (rawdoc! { "a": { "$gt": 2 }, "n": 1 }, None, "IXSCAN"),
        (rawdoc! { "a": 2 }, Some(&by_b), "IXSCAN"),
        (rawdoc! { "a": { "$gt": 2 } }, Some(&by_b), "SORT/IXSCAN"),
        (
            rawdoc! { "a": { "$in": [1, 3] }, "n": 1 },
            Some(&by_b),
            "SORT_MERGE/(IXSCAN,IXSCAN)",
        ),
        (
            rawdoc! { "$or": [{ "a": 1, "n": 2 }, { "a": 4, "b": { "$lt": 3 } }] },
            None,
            "OR/(IXSCAN,IXSCAN)",
        ),
        // The other index has no documents to give.
        (
            rawdoc! { "$or": [{ "a": 1 }, { "c": 3, "n": 0 }] },
            None,
            "FETCH/OR/(IXSCAN,IXSCAN)",
        ),
    ] {
        let sort = sort.map(|sort| &**sort);
        assert_eq!(stages_of(&fixture, &filter, sort), expected, "{filter:?}");
        let request = FindRequest {
            sort,
            ..FindRequest::new(ns("c"), &filter)
        };
        let natural = rawdoc! { "$natural": 1 };
        let by_scan = FindRequest {
            hint: Some(Hint::Key(&natural)),
            ..request.clone()
        };
        let (mut found, mut wanted) = (ids(&fixture, &request), ids(&fixture, &by_scan));
        if sort.is_none() {
            found.sort_unstable();
            wanted.sort_unstable();
        }
        assert!(!found.is_empty());
        // `b` is the same in several documents, whose order is free: those of the scan come by their ids.
        let b = |ids: &[i32]| ids.iter().map(|id| id % 10).collect::<Vec<_>>();
        assert_eq!(b(&found), b(&wanted), "{filter:?}");
    }
}

#[test]
fn explain_shows_the_filter_at_the_scan() {
    let fixture = carried();
    let filter = rawdoc! { "a": 2, "n": 1 };
    let request = FindRequest::new(ns("c"), &filter);
    let explained = explained(&fixture, &ExplainRequest::Find(&request), Verbosity::ExecutionStats);
    let stats = explained.get_document("executionStats").expect("it ran");
    assert_eq!(stats.get_i32("nReturned").ok(), Some(3));
    assert_eq!(stats.get_i32("totalKeysExamined").ok(), Some(10));
    assert_eq!(stats.get_i32("totalDocsExamined").ok(), Some(0));
    let scan = stats.get_document("executionStages").expect("a stage");
    assert_eq!(scan.get_str("stage").ok(), Some("IXSCAN"));
    assert_eq!(scan.get_bool("isClustering").ok(), Some(true));
    assert!(scan.get_document("filter").expect("a filter").to_string().contains('n'));
}

/// Of two indexes that find as much, the one that need not fetch is taken; where keys suffice, the one without
/// documents.
#[test]
fn the_cheaper_of_two_is_chosen() {
    let fixture = carried();
    fixture.index("c", rawdoc! { "a": 1 }, rawdoc! {}).expect("indexed");
    let filter = rawdoc! { "a": 2 };
    assert_eq!(stages_of(&fixture, &filter, None), "IXSCAN");
    let counted = CountRequest::new(ns("c"), &filter);
    let explained = explained(&fixture, &ExplainRequest::Count(&counted), Verbosity::QueryPlanner);
    assert!(explained.to_string().contains("COUNT_SCAN"), "{explained}");
    let winning = explained
        .get_document("queryPlanner")
        .and_then(|planner| planner.get_document("winningPlan"));
    assert!(
        !winning.expect("a plan").to_string().contains("isClustering"),
        "{explained}"
    );
    let n = fixture.with(|context| count(context, &CountRequest::new(ns("c"), &filter)));
    assert_eq!(n.expect("counted"), 10);
    let values = fixture.with(|context| distinct(context, &DistinctRequest::new(ns("c"), "a", &rawdoc! {})));
    assert_eq!(values.expect("distinct values").len(), 6);
}

/// What a scan gives is what the document is, after changes that no key shows and after changes of types alone.
#[test]
fn changed_documents_come_changed() {
    let fixture = carried();
    let mut new = RawDocumentBuf::new();
    let document = rawdoc! { "_id": 100, "a": 9, "b": 1, "n": 1 };
    let id = fixture.insert("c", &document).expect("inserted");
    for changed in [
        rawdoc! { "_id": 100, "a": 9, "b": 1, "n": 2 },
        rawdoc! { "_id": 100, "a": 9.0, "b": 1, "n": 2 },
        rawdoc! { "_id": 100, "a": 9.0, "b": 2, "n": 2, "more": "x" },
    ] {
        fixture.replace("c", id.clone(), &changed);
        let filter = rawdoc! { "a": 9 };
        let mut executor = fixture
            .with(|context| crate::exec::find(context, &FindRequest::new(ns("c"), &filter)))
            .expect("planned");
        new = fixture.all(&mut executor, 10).remove(0);
        assert_eq!(new, changed);
    }
    assert_eq!(new.get_str("more").ok(), Some("x"));
    fixture.delete("c", id);
    assert!(ids(&fixture, &FindRequest::new(ns("c"), &rawdoc! { "a": 9 })).is_empty());
}
