//! Pages as text. That they can be drawn is tested in a browser.

use crate::fixture::{self, HOSTILE};
use report::html::{comparison_page, page};
use report::{Session, TOLERANCE, compare};

#[test]
fn every_text_is_escaped() {
    let hostile = fixture::hostile();
    for page in [
        page(&hostile),
        comparison_page(&compare(&hostile, &hostile, TOLERANCE), &hostile, &hostile),
    ] {
        assert!(!page.contains(HOSTILE));
        assert!(!page.contains("<img"));
        assert!(page.contains("&lt;/script&gt;&lt;script&gt;"));
    }
    // The libraries, their licence, the data and the script.
    assert_eq!(page(&hostile).matches("<script").count(), 5);
    assert_eq!(page(&hostile).matches("</script>").count(), 5);
}

#[test]
fn a_page_refers_to_nothing_outside() {
    let page = page(&fixture::session(1, 1.0));
    assert!(page.contains("default-src 'none'"));
    for outside in [" src=", "<link rel=\"stylesheet", "@import", "url(http"] {
        let own: String = page
            .split("<script")
            .map(|part| part.split_once("</script>").map_or(part, |(_, rest)| rest))
            .collect();
        assert!(!own.contains(outside), "{outside}");
    }
}

#[test]
fn the_sources_tables_are_there() {
    let session = fixture::session(1, 1.0);
    let page = page(&session);
    for part in [
        "Table 10.3: 160,000 documents into a fresh directory",
        "Table 10.4",
        "Table 10.5",
        "Figure 10.1",
        "Mcpu/t",
        "gll ms",
        "Inserts per second",
        "Queries per second",
        "Who wins what",
        "This report is partial",
        "the server ended by itself (signal 9) after 31 s",
        "The page cache could not be dropped",
        "Example 9000X",
        "tenon bench all --engines",
        "engine: rocksdb",
    ] {
        assert!(page.contains(part), "{part}");
    }
    let query = session
        .runs
        .iter()
        .find(|run| run.phase == "query")
        .expect("it was run");
    let tps = format!("<td>{:.0}</td>", query.rate().expect("it is known"));
    assert!(page.contains(&tps), "{tps}");
}

#[test]
fn little_can_be_shown_too() {
    let session = fixture::session(1, 1.0);
    let empty = Session {
        runs: Vec::new(),
        ..session.clone()
    };
    assert!(page(&empty).contains("Nothing was measured."));
    let mut single = session.clone();
    single.runs.retain(|run| run.configuration.label == "btree");
    assert!(page(&single).contains("Only one configuration was measured"));
    let mut bare = session;
    for run in &mut bare.runs {
        *run = report::Run::new(run.workload.clone(), run.phase.clone(), run.configuration.clone());
    }
    assert!(page(&bare).contains("</html>"));
}

#[test]
fn a_comparison_says_what_changed() {
    let (before, after) = (fixture::repeated(1, 1.0), fixture::repeated(2, 0.7));
    let page = comparison_page(&compare(&before, &after, TOLERANCE), &before, &after);
    assert!(page.contains("What changed"));
    assert!(page.contains("<span class=\"worse\">worse</span>"));
    assert!(!page.contains("<script"));
}
