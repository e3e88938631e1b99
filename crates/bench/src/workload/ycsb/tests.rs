//! The mixes and distributions against their definitions.

use super::*;
use crate::message::tests::parts;
use std::collections::HashMap;

fn client(letter: char, records: u64) -> Client {
    let mix = MIXES
        .into_iter()
        .find(|mix| mix.letter == letter)
        .expect("there is one");
    Client::new(&Arc::new(State::new(records, 5, false)), mix, 0)
}

#[test]
fn operations_are_as_frequent_as_published() {
    let published = [
        ('a', [0.5, 0.5, 0.0, 0.0, 0.0]),
        ('b', [0.95, 0.05, 0.0, 0.0, 0.0]),
        ('c', [1.0, 0.0, 0.0, 0.0, 0.0]),
        ('d', [0.95, 0.0, 0.05, 0.0, 0.0]),
        ('e', [0.0, 0.0, 0.05, 0.95, 0.0]),
        ('f', [0.5, 0.0, 0.0, 0.0, 0.5]),
    ];
    for (letter, shares) in published {
        let mut client = client(letter, 1000);
        let mut counts = [0u32; 5];
        let draws = 50_000;
        (0..draws).for_each(|_| counts[client.choose_operation()] += 1);
        for (count, share) in counts.iter().zip(shares) {
            let found = f64::from(*count) / f64::from(draws);
            // Five standard deviations of a binomial share.
            let tolerance = 5.0 * (share * (1.0 - share) / f64::from(draws)).sqrt();
            assert!((found - share).abs() <= tolerance, "{letter}: {found} is not {share}");
        }
    }
}

#[test]
fn popular_documents_are_popular_and_scattered() {
    let client = client('c', 10_000);
    let mut random = Random::new(9);
    let mut counts: HashMap<u64, u32> = HashMap::new();
    let draws = 200_000;
    for _ in 0..draws {
        let number = client.state.choose(Popularity::Zipfian, &mut random);
        assert!(number < 10_000);
        *counts.entry(number).or_default() += 1;
    }
    let (hottest, count) = counts.iter().max_by_key(|(_, count)| **count).expect("some");
    let expected = client.state.zipf.probability(0);
    let found = f64::from(*count) / f64::from(draws);
    assert!((found / expected - 1.0).abs() < 0.1, "{found} {expected}");
    assert_eq!(*hottest, fnv64(0) % 10_000, "the first rank is scrambled");
}

#[test]
fn the_newest_are_read_most_and_exist() {
    let client = client('d', 10_000);
    // 11,000 is under way when all others up to 12,000 are there: what is behind it must not be read yet.
    (10_000..12_000)
        .filter(|number| *number != 11_000)
        .for_each(|number| client.state.acknowledge(number));
    assert_eq!(client.state.complete.load(Ordering::Relaxed), 11_000);
    client.state.acknowledge(11_000);
    let mut random = Random::new(9);
    let draws = 100_000;
    let newest = (0..draws)
        .filter(|_| {
            let number = client.state.choose(Popularity::Latest, &mut random);
            assert!(number < 12_000, "it is not there yet");
            number == 11_999
        })
        .count();
    let expected = client.state.zipf.probability(0);
    assert!((newest as f64 / f64::from(draws) / expected - 1.0).abs() < 0.1);
}

#[test]
fn documents_have_the_published_shape_and_repeat() {
    let encode = |seed| {
        let mut message = Message::new(1);
        message.begin("insert", "x");
        message.end_body("y");
        message.begin_sequence("documents");
        message.element();
        put_document(seed, 7, &mut message);
        let size = message.end();
        message.end_sequence();
        let bytes = message.bytes();
        bytes[bytes.len() - size..].to_vec()
    };
    let bytes = encode(3);
    let document = RawDocument::from_bytes(&bytes).expect("a document");
    assert_eq!(document.get_str("_id").ok(), Some(format!("user{}", fnv64(7)).as_str()));
    for name in FIELD_NAMES {
        assert_eq!(document.get_binary(name).expect("a field").bytes.len(), 100);
    }
    assert_eq!(document.iter().count(), 11);
    assert_eq!(bytes, encode(3));
    assert_ne!(bytes, encode(4));
}

#[test]
fn scans_are_of_one_to_a_hundred_documents() {
    let mut client = client('e', 1000);
    let mut message = Message::new(1);
    let mut lengths = Vec::new();
    while lengths.len() < 20_000 {
        if client.begin(&mut message) == Some(SCAN) {
            let (find, _) = parts(&message);
            assert!(
                find.get_document("filter")
                    .and_then(|filter| filter.get_document("_id"))
                    .is_ok()
            );
            lengths.push(find.get_i32("limit").expect("a limit"));
        }
    }
    assert_eq!((lengths.iter().min(), lengths.iter().max()), (Some(&1), Some(&100)));
    // The standard deviation of the mean is 0.2.
    let mean = lengths.iter().map(|length| f64::from(*length)).sum::<f64>() / 20_000.0;
    assert!((mean - 50.5).abs() < 1.1, "{mean}");
}

#[test]
fn an_update_sets_one_field_any_of_ten() {
    let mut client = client('a', 1000);
    let mut message = Message::new(1);
    let mut counts: HashMap<String, u32> = HashMap::new();
    let mut updates = 0;
    while updates < 20_000 {
        if client.begin(&mut message) == Some(UPDATE) {
            let (_, written) = parts(&message);
            assert_eq!(written.len(), 1);
            let set = written[0]
                .get_document("u")
                .and_then(|u| u.get_document("$set"))
                .expect("there");
            let fields: Vec<_> = set.iter().map(|field| field.expect("sound")).collect();
            assert_eq!(fields.len(), 1);
            *counts.entry(fields[0].0.to_string()).or_default() += 1;
            updates += 1;
        }
    }
    assert_eq!(counts.len(), 10);
    // Pearson's chi-squared with 9 degrees of freedom: 27.9 is exceeded once in a thousand seeds.
    let chi_squared: f64 = counts
        .values()
        .map(|count| (f64::from(*count) - 2000.0).powi(2) / 2000.0)
        .sum();
    assert!(chi_squared < 27.9, "{chi_squared}: {counts:?}");
}

#[test]
fn writes_are_answered_from_disk_where_that_is_asked_for() {
    for journaled in [false, true] {
        let state = Arc::new(State::new(1000, 5, journaled));
        let [mut half, mut newest] = [MIXES[0], MIXES[4]].map(|mix| Client::new(&state, mix, 0));
        let mut message = Message::new(1);
        let mut seen = [0; NAMES.len()];
        for _ in 0..1000 {
            for client in [&mut half, &mut newest] {
                let operation = client.begin(&mut message).expect("it never ends");
                let (command, _) = parts(&message);
                let concern = command.get_document("writeConcern").ok();
                let is_journaled = concern.is_some_and(|concern| concern.get_bool("j").unwrap_or(false));
                assert_eq!(is_journaled, journaled && operation != READ, "{command:?}");
                seen[operation] += 1;
            }
        }
        assert!(seen[READ] > 0 && seen[UPDATE] > 0 && seen[INSERT] > 0, "{seen:?}");
    }
}
