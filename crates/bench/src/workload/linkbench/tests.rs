//! The mix, and what the commands say.

use super::request::{Client, MIX};
use super::*;
use crate::message::Message;
use crate::message::tests::parts;
use bson::RawDocument;
use std::collections::HashMap;

fn client(indexes: Indexes) -> Client {
    let graph = Arc::new(Graph::new(10_000, 3));
    Client::new(&graph, indexes, &Arc::new(AtomicU64::new(10_001)), &Arc::default(), 0)
}

#[test]
fn operations_are_as_frequent_as_published() {
    assert!((MIX.iter().sum::<f64>() - 100.0).abs() < 1e-5);
    let published = [
        ("addNode", 2.5732789),
        ("updateNode", 7.366437),
        ("deleteNode", 1.0115914),
        ("getNode", 12.9326683),
        ("addLink", 8.9886601),
        ("deleteLink", 2.9907664),
        ("updateLink", 8.0122125),
        ("countLinks", 4.8863567),
        ("getLink", 0.5261142),
        ("getLinkList", 50.7119145),
    ];
    let mut client = client(Indexes::Covering);
    let mut message = Message::new(0);
    let mut counts: HashMap<&str, u32> = HashMap::new();
    let draws = 200_000;
    for _ in 0..draws {
        let operation = client.begin(&mut message).expect("there is always more to do");
        *counts.entry(NAMES[operation]).or_default() += 1;
    }
    // Pearson's chi-squared with 9 degrees of freedom: 27.9 is exceeded once in a thousand seeds.
    let chi_squared: f64 = published
        .iter()
        .map(|(name, percent)| {
            let expected = percent / 100.0 * f64::from(draws);
            (f64::from(counts[name]) - expected).powi(2) / expected
        })
        .sum();
    assert!(chi_squared < 27.9, "{chi_squared}: {counts:?}");
}

fn body(message: &Message) -> &RawDocument {
    parts(message).0
}

#[test]
fn lists_are_counted_first_and_sorted_by_time() {
    for indexes in [Indexes::Covering, Indexes::Few] {
        let mut client = client(indexes);
        let mut message = Message::new(0);
        while NAMES[client.begin(&mut message).expect("more")] != "getLinkList" {}
        let count = body(&message);
        assert_eq!(count.get_str("count").ok(), Some("link"));
        assert_eq!(
            count
                .get_document("query")
                .and_then(|query| query.get_i32("visibility"))
                .ok(),
            Some(1)
        );
        let reply = rawdoc! { "n": 3, "ok": 1.0 };
        client.advance(&reply, &mut message).expect("it goes on");
        let find = body(&message);
        assert_eq!(find.get_str("find").ok(), Some("link"));
        assert_eq!(
            find.get_document("sort").and_then(|sort| sort.get_i32("time")).ok(),
            Some(-1)
        );
        assert_eq!(find.get_i32("limit").ok(), Some(10_000));
    }
}

#[test]
fn a_new_link_is_counted_and_a_known_one_is_not() {
    let begun = || {
        let mut client = client(Indexes::Covering);
        let mut message = Message::new(0);
        while NAMES[client.begin(&mut message).expect("more")] != "addLink" {}
        assert_eq!(body(&message).get_str("update").ok(), Some("link"));
        (client, message)
    };
    let collection = |message: &Message| body(message).get_str("update").map(str::to_owned).ok();
    let (mut client, mut message) = begun();
    let new = rawdoc! { "n": 1, "nModified": 0, "upserted": [{ "index": 0, "_id": 1 }], "ok": 1.0 };
    client.advance(&new, &mut message).expect("it goes on");
    assert_eq!(collection(&message).as_deref(), Some("count"));
    let (mut client, mut message) = begun();
    let known = rawdoc! { "n": 1, "nModified": 0, "ok": 1.0 };
    client.advance(&known, &mut message).expect("it goes on");
    assert_eq!(collection(&message).as_deref(), Some("link"));
    let done = client.advance(&known, &mut message).expect("it is over");
    assert!(matches!(done, crate::actor::Progress::Done { count: 1, .. }));
    let (mut client, mut message) = begun();
    let hidden = rawdoc! { "n": 1, "nModified": 1, "ok": 1.0 };
    client.advance(&hidden, &mut message).expect("it goes on");
    assert_eq!(collection(&message).as_deref(), Some("link"), "its data first");
    client.advance(&hidden, &mut message).expect("it goes on");
    assert_eq!(collection(&message).as_deref(), Some("count"), "then its count");
}

#[test]
fn a_load_holds_each_node_link_and_count_once() {
    for indexes in [Indexes::Covering, Indexes::Few] {
        let graph = Arc::new(Graph::new(5000, 3));
        let mut actors = loading::actors(&graph, indexes, 3);
        let mut message = Message::new(0);
        let (mut rows, mut links) = (0, std::collections::HashSet::new());
        // The clients take turns, as they would on a server.
        let mut going = true;
        while going {
            going = false;
            for actor in &mut actors {
                let Some(kind) = actor.begin(&mut message) else {
                    continue;
                };
                going = true;
                let loaded = parts(&message).1;
                let count = loaded.len() as i32;
                assert!(count <= 1024);
                rows += count as u64;
                for link in loaded.iter().filter(|_| kind == 1) {
                    let q = link.get_document("q").expect("a filter").as_bytes().to_vec();
                    assert!(links.insert(q), "a link was loaded twice");
                }
                actor
                    .advance(&rawdoc! { "n": count, "ok": 1.0 }, &mut message)
                    .expect("it was loaded");
            }
        }
        assert_eq!(rows, graph.rows());
        assert_eq!(links.len() as u64, (1..=5000).map(|id| graph.links(id)).sum::<u64>());
    }
}

#[test]
fn multigets_ask_for_a_geometric_number_of_links() {
    for indexes in [Indexes::Covering, Indexes::Few] {
        let mut client = client(indexes);
        let mut message = Message::new(0);
        let mut sizes = Vec::new();
        while sizes.len() < 4000 {
            if NAMES[client.begin(&mut message).expect("more")] != "getLink" {
                continue;
            }
            let query = body(&message).get_document("query").expect("a filter");
            let field = if indexes == Indexes::Covering { "id2" } else { "_id" };
            let asked = query
                .get_document(field)
                .and_then(|field| field.get_array("$in"))
                .expect("ids");
            sizes.push(asked.into_iter().count());
        }
        assert!(sizes.iter().all(|size| (1..=128).contains(size)));
        let mean = sizes.iter().sum::<usize>() as f64 / sizes.len() as f64;
        // 1 / 0.382; the standard deviation of the mean is 0.033.
        assert!((mean - 2.618).abs() < 0.15, "{mean}");
        let one = sizes.iter().filter(|size| **size == 1).count() as f64 / sizes.len() as f64;
        assert!((one - 0.382).abs() < 0.04, "{one}");
    }
}

#[test]
fn types_are_equally_frequent_and_some_lists_go_on() {
    let mut client = client(Indexes::Covering);
    let mut message = Message::new(0);
    let (mut lists, mut first_type, mut continued) = (0, 0, 0);
    // A list that reached its limit, so that later ones can go on from its end.
    let mut had_long_one = false;
    while lists < 40_000 {
        if NAMES[client.begin(&mut message).expect("more")] != "getLinkList" {
            continue;
        }
        let query = body(&message).get_document("query").expect("a filter");
        let time = query.get_document("time").expect("a range");
        assert_eq!(time.get_i64("$gte").ok(), Some(0));
        if !had_long_one {
            had_long_one = true;
            client
                .advance(&rawdoc! { "n": 10_000, "ok": 1.0 }, &mut message)
                .expect("the find comes");
            let mut batch = bson::raw::RawArrayBuf::new();
            (0..10_000).for_each(|number| batch.push(rawdoc! { "time": 777_i64 - number }));
            let reply = rawdoc! { "cursor": { "firstBatch": batch, "id": 0_i64, "ns": "x.y" }, "ok": 1.0 };
            client.advance(&reply, &mut message).expect("it is over");
            continue;
        }
        lists += 1;
        first_type += u32::from(query.get_i64("link_type").ok() == Some(123_456_789));
        match time.get_i64("$lte").expect("an end") {
            i64::MAX => {}
            end => {
                assert_eq!(end, 777 - 9_999 - 1, "before the last time seen");
                continued += 1;
            }
        }
    }
    let share = f64::from(first_type) / f64::from(lists);
    assert!((share - 0.5).abs() < 0.0125, "five standard deviations: {share}");
    // 0.3 % of 40,000 are 120, with a standard deviation of 11.
    assert!((65..=175).contains(&continued), "{continued}");
}

#[test]
fn times_of_loaded_links_lie_within_fifty_days() {
    let graph = Arc::new(Graph::new(3000, 3));
    let mut actors = loading::actors(&graph, Indexes::Covering, 1);
    let mut message = Message::new(0);
    let mut times = Vec::new();
    while let Some(kind) = actors[0].begin(&mut message) {
        let loaded = parts(&message).1;
        for link in loaded.iter().filter(|_| kind == 1) {
            let set = link.get_document("u").and_then(|u| u.get_document("$setOnInsert"));
            let set = set.expect("an upsert");
            assert_eq!(set.get_i32("version").ok(), Some(0));
            assert!(set.get_binary("data").expect("there").bytes.len() <= 255);
            times.push(set.get_i64("time").expect("a time"));
        }
        let count = loaded.len() as i32;
        let reply = rawdoc! { "n": count, "ok": 1.0 };
        actors[0].advance(&reply, &mut message).expect("it was loaded");
    }
    let (first, last) = (times.iter().min().expect("some"), times.iter().max().expect("some"));
    // A signed 32-bit number around 2^31 ms before the load: 0 to 49.7 days ago, uniformly.
    let age = |time: i64| (loading::LOAD_MS - time) as f64 / (u64::pow(2, 32) as f64);
    assert!(age(*last) >= 0.0 && age(*first) <= 1.0 + 1e-9, "{first} {last}");
    let mean = times.iter().map(|time| age(*time)).sum::<f64>() / times.len() as f64;
    assert!((mean - 0.5).abs() < 0.03, "{mean}");
}
