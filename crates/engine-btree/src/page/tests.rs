//! Pages against sorted maps, and against bytes that lie.

use super::leaf_format::{CUT, FORMAT_VERSION, LEAF_HEADER_BYTES};
use super::leaf_sections::SECTION_BYTES;
use super::*;
use ::bytes::Bytes;
use blocks::BlockAddr;
use engine::Direction;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::ops::{Bound, Range};

type ExpectedRows = BTreeMap<Vec<u8>, ExpectedRow>;

#[derive(Clone, Debug, PartialEq)]
enum ExpectedRow {
    Inline(Vec<u8>),
    Large(Vec<u8>),
}

impl ExpectedRow {
    fn as_new(&self) -> NewValue<'_> {
        match self {
            ExpectedRow::Inline(value) => NewValue::Inline(value),
            ExpectedRow::Large(cell) => NewValue::Large(LargeRef::from_cell(cell).expect("made by encode")),
        }
    }
}

/// An address that no byte of repeats, but for its number.
pub(super) fn address(number: u8) -> BlockAddr {
    BlockAddr::decode(&[number, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]).expect("twelve bytes")
}

fn image_of(rows: &ExpectedRows) -> LeafImage {
    let image = LeafImage::from_rows(rows.iter().map(|(key, row)| (key.as_slice(), row.as_new())));
    image.check_invariants();
    image
}

fn rows_of(image: &LeafImage) -> ExpectedRows {
    let row = |index| {
        let key = image.key(index).to_vec();
        match image.value(index) {
            CellValue::Inline(place) => (key, ExpectedRow::Inline(image.data().slice(place).to_vec())),
            CellValue::Large(large) => (key, ExpectedRow::Large(large.cell().to_vec())),
        }
    };
    (0..image.len()).map(row).collect()
}

/// What comes out of a leaf's raw bytes one after the other.
fn streamed(raw: &[u8]) -> Result<ExpectedRows, PageDamage> {
    let mut stream = LeafStream::new(Bytes::copy_from_slice(raw))?;
    let mut rows = ExpectedRows::new();
    loop {
        let value = match stream.next() {
            Ok(Some(value)) => value,
            Ok(None) => break,
            Err(damage) => {
                assert_eq!(stream.next().err(), Some(damage), "what is damaged stays so");
                return Err(damage);
            }
        };
        let row = match value {
            CellValue::Inline(place) => ExpectedRow::Inline(raw[place].to_vec()),
            CellValue::Large(large) => ExpectedRow::Large(large.cell().to_vec()),
        };
        if let ExpectedRow::Large(cell) = &row {
            assert_eq!(raw[..stream.at()][stream.at() - cell.len()..], **cell);
        }
        let key = stream.key().to_vec();
        assert!(
            rows.last_key_value().is_none_or(|(last, _)| *last < key),
            "{key:?} rises"
        );
        rows.insert(key, row);
    }
    assert!(matches!(stream.next(), Ok(None)), "the end stays the end");
    Ok(rows)
}

fn encoded(image: &LeafImage) -> Vec<u8> {
    let mut raw = Vec::new();
    image.encode(&mut raw);
    raw
}

/// The raw bytes of a leaf that is cut, and where its sections begin.
fn encoded_in_sections(image: &LeafImage) -> (Vec<u8>, Vec<usize>) {
    let (mut raw, mut cuts) = (Vec::new(), vec![7]);
    image.encode_in_sections(&mut raw, &mut cuts);
    (raw, cuts)
}

fn found_in<'r>(raw: &'r [u8], key: &[u8]) -> Result<Option<NewValue<'r>>, PageDamage> {
    match LeafSearch::new(raw, key)? {
        Some(search) => search.find_in_whole(raw),
        None => Ok(None),
    }
}

/// From what stands in front of the rows, and the one section that it names.
fn found_in_section<'r>(raw: &'r [u8], cuts: &[usize], key: &[u8]) -> Result<Option<NewValue<'r>>, PageDamage> {
    let Some(search) = LeafSearch::new(&raw[..cuts[0]], key)? else {
        return Ok(None);
    };
    assert_eq!((search.front_bytes(), search.section().0), (cuts[0], cuts.len()));
    let number = search.section().1;
    let end = cuts.get(number + 1).copied().unwrap_or(raw.len());
    search.find_in_section(&raw[cuts[number]..end])
}

/// Of raw bytes that are cut in sections.
fn image_of_sections(
    front: &LeafFront,
    part: Range<usize>,
    raw: &[u8],
    cuts: &[usize],
) -> Result<LeafImage, PageDamage> {
    let mut rows = SectionRows::new(front);
    for section in part {
        let end = cuts.get(section + 1).copied().unwrap_or(raw.len());
        rows.push(section, &raw[cuts[section]..end])?;
    }
    Ok(rows.finish())
}

fn rows_between(rows: &ExpectedRows, front: &LeafFront, part: Range<usize>) -> ExpectedRows {
    let (low, high) = (front.low(part.start), front.high(part.end - 1));
    let is_inside =
        |key: &Vec<u8>| low.as_ref().is_none_or(|low| low <= key) && high.as_ref().is_none_or(|high| key < high);
    let inside = rows.iter().filter(|(key, _)| is_inside(key));
    inside.map(|(key, row)| (key.clone(), row.clone())).collect()
}

/// The keys that a walk over a range comes to in part after part, in rising order.
fn walked_in_parts(
    rows: &ExpectedRows,
    front: &LeafFront,
    direction: Direction,
    range: (Bound<&[u8]>, Bound<&[u8]>),
    rows_max: usize,
) -> Vec<Vec<u8>> {
    let (mut low, mut high) = (range.0.map(<[u8]>::to_vec), range.1.map(<[u8]>::to_vec));
    let mut keys = Vec::new();
    loop {
        let left = (low.as_ref().map(Vec::as_slice), high.as_ref().map(Vec::as_slice));
        let (position, far) = match direction {
            Direction::Forward => left,
            Direction::Reverse => (left.1, left.0),
        };
        let part = front.sections_of(direction, position, far, rows_max);
        let found = rows_between(rows, front, part.clone());
        keys.extend(found.range::<[u8], _>(left).map(|(key, _)| key.clone()));
        let is_inside = |fence: &Vec<u8>| match (direction, &range) {
            (Direction::Forward, (_, Bound::Included(end))) => fence.as_slice() <= *end,
            (Direction::Forward, (_, Bound::Excluded(end))) => fence.as_slice() < *end,
            (Direction::Reverse, (Bound::Included(start) | Bound::Excluded(start), _)) => fence.as_slice() > *start,
            _ => true,
        };
        let fence = match direction {
            Direction::Forward => front.high(part.end - 1),
            Direction::Reverse => front.low(part.start),
        };
        match (direction, fence.filter(is_inside)) {
            (Direction::Forward, Some(fence)) => low = Bound::Included(fence),
            (Direction::Reverse, Some(fence)) => high = Bound::Excluded(fence),
            (_, None) => break,
        }
    }
    keys.sort();
    keys
}

/// Few letters, so that prefixes, equal heads and zero bytes are common; sometimes longer than a short suffix.
fn key() -> impl Strategy<Value = Vec<u8>> {
    let letters = prop::collection::vec(prop::sample::select(vec![0u8, 1, b'a', 0xff]), 0..12);
    (prop::sample::select(vec![0usize, 0, 0, 3, 130, 300]), letters).prop_map(|(run, letters)| {
        let mut key = vec![b'k'; run];
        key.extend(letters);
        key
    })
}

fn row() -> impl Strategy<Value = ExpectedRow> {
    prop_oneof![
        4 => prop::collection::vec(any::<u8>(), 0..300).prop_map(ExpectedRow::Inline),
        1 => (1usize..engine::VALUE_BYTES_MAX).prop_map(|total| {
            let addresses = vec![address(7); total.div_ceil(LARGE_CHUNK_BYTES)];
            ExpectedRow::Large(LargeRef::encode(total, &addresses))
        }),
    ]
}

/// Sometimes with keys of one length, sometimes without values.
fn rows() -> impl Strategy<Value = ExpectedRows> {
    (
        prop::collection::btree_map(key(), row(), 0..200),
        prop::collection::vec(any::<u8>(), 0..9),
        prop::option::of(0usize..20),
        any::<bool>(),
    )
        .prop_map(|(rows, prefix, key_length, values)| {
            rows.into_iter()
                .map(|(mut key, row)| {
                    key.resize(key_length.unwrap_or(key.len()), 0);
                    let row = if values { row } else { ExpectedRow::Inline(Vec::new()) };
                    ([prefix.clone(), key].concat(), row)
                })
                .collect()
        })
}

proptest! {
    #[test]
    fn leaves_hold_what_was_put_in(rows in rows(), probes in prop::collection::vec(key(), 0..40)) {
        let image = image_of(&rows);
        prop_assert_eq!(&rows_of(&image), &rows);
        let plain: usize = rows.iter().map(|(key, row)| key.len() + row.as_new().cell_bytes().len()).sum();
        prop_assert_eq!(image.row_bytes(), plain);

        let keys: Vec<_> = rows.keys().cloned().collect();
        let cut = |key: &Vec<u8>| key[..key.len() / 2].to_vec();
        let extended = |key: &Vec<u8>| [key.as_slice(), &[0]].concat();
        let near = keys.iter().map(cut).chain(keys.iter().map(extended)).chain(keys.iter().cloned());
        for probe in probes.into_iter().chain(near) {
            let found = keys.binary_search(&probe);
            prop_assert_eq!(image.find(&probe), found, "{:?}", probe);
            prop_assert_eq!(image.get(&probe), found.ok().map(|row| image.value(row)), "{:?}", probe);
            for (index, key) in keys.iter().enumerate() {
                prop_assert_eq!(image.key(index).cmp(&probe), key.cmp(&probe));
            }
        }
    }

    #[test]
    fn leaves_come_back_from_their_bytes(rows in rows()) {
        let image = image_of(&rows);
        let raw = encoded(&image);
        let again = LeafImage::decode(&raw).expect("its own bytes");
        again.check_invariants();
        prop_assert_eq!(&rows_of(&again), &rows);
        prop_assert_eq!(&streamed(&raw).expect("its own bytes"), &rows);
        prop_assert_eq!(again.row_bytes(), image.row_bytes());
        prop_assert_eq!(again.memory_bytes(), image.memory_bytes());
        prop_assert_eq!(encoded(&again), raw);
        let (cut, cuts) = encoded_in_sections(&image);
        let again = LeafImage::decode(&cut).expect("its own bytes");
        again.check_invariants();
        prop_assert_eq!(&rows_of(&again), &rows);
        prop_assert_eq!(&streamed(&cut).expect("its own bytes"), &rows);
        prop_assert_eq!(encoded_in_sections(&again), (cut.clone(), cuts.clone()));
        prop_assert_eq!(cuts.is_empty(), cut[2] & CUT == 0);
        prop_assert!(cuts.len() <= (image.row_bytes() / SECTION_BYTES).max(1));
    }

    #[test]
    fn a_row_is_found_in_the_bytes(rows in rows(), probes in prop::collection::vec(key(), 0..40)) {
        let image = image_of(&rows);
        let (raw, (in_sections, cuts)) = (encoded(&image), encoded_in_sections(&image));
        let cut = |key: &Vec<u8>| key[..key.len() / 2].to_vec();
        let extended = |key: &Vec<u8>| [key.as_slice(), &[0]].concat();
        let near: Vec<_> = rows.keys().flat_map(|key| [cut(key), extended(key), key.clone()]).collect();
        for probe in probes.into_iter().chain(near) {
            let found = found_in(&raw, &probe).expect("its own bytes");
            let expected = rows.get(&probe).map(ExpectedRow::as_new);
            prop_assert_eq!(found, expected, "{:?}", probe);
            prop_assert_eq!(found_in(&in_sections, &probe), Ok(expected), "{:?}", probe);
            if !cuts.is_empty() {
                prop_assert_eq!(found_in_section(&in_sections, &cuts, &probe), Ok(expected), "{:?}", probe);
            }
        }
    }

    #[test]
    fn sections_have_their_rows(rows in rows(), probes in prop::collection::vec(key(), 2), rows_max in 1usize..100) {
        let (raw, cuts) = encoded_in_sections(&image_of(&rows));
        if let Some(&front_bytes) = cuts.first() {
            let front = LeafFront::read(&raw[..front_bytes]).expect("its own bytes");
            prop_assert_eq!((front.bytes(), front.sections()), (front_bytes, cuts.len()));
            for (first, end) in (0..cuts.len()).flat_map(|first| (first + 1..=cuts.len()).map(move |end| (first, end))) {
                let image = image_of_sections(&front, first..end, &raw, &cuts).expect("its own bytes");
                prop_assert_eq!(rows_of(&image), rows_between(&rows, &front, first..end));
            }
            let (low, high) = (probes.iter().min().expect("two"), probes.iter().max().expect("two"));
            let starts = [Bound::Unbounded, Bound::Included(low.as_slice()), Bound::Excluded(low)];
            let ends = [Bound::Unbounded, Bound::Included(high.as_slice()), Bound::Excluded(high)];
            for range in starts.into_iter().flat_map(|start| ends.map(|end| (start, end))).filter(|_| low < high) {
                let wanted = rows.range::<[u8], _>(range);
                for direction in [Direction::Forward, Direction::Reverse] {
                    let walked = walked_in_parts(&rows, &front, direction, range, rows_max);
                    prop_assert_eq!(&walked, &wanted.clone().map(|(key, _)| key.clone()).collect::<Vec<_>>(), "{:?} {:?}", direction, range);
                }
                // All of them at once.
                let all = front.sections_of(Direction::Forward, range.0, range.1, usize::MAX);
                prop_assert_eq!(&all, &front.sections_of(Direction::Reverse, range.1, range.0, usize::MAX));
                prop_assert_eq!(rows_between(&rows, &front, all).range::<[u8], _>(range).count(), wanted.count());
            }
        }
    }

    #[test]
    fn rows_go_from_leaf_to_leaf(rows in rows(), at in any::<prop::sample::Index>()) {
        let image = image_of(&rows);
        let cut = at.index(image.len() + 1);
        let mut builder = LeafBuilder::new();
        let mut halves = Vec::new();
        for part in [0..cut, cut..image.len()] {
            part.for_each(|index| builder.push_from(&image, index));
            halves.push(builder.finish());
            prop_assert!(builder.is_empty());
        }
        halves.iter().for_each(LeafImage::check_invariants);
        prop_assert_eq!(halves[0].row_bytes() + halves[1].row_bytes(), image.row_bytes());
        let mut joined = rows_of(&halves[0]);
        joined.extend(rows_of(&halves[1]));
        prop_assert_eq!(joined, rows);
    }

    #[test]
    fn separators_lie_between(mut a in key(), mut b in key()) {
        prop_assume!(a != b);
        if a > b {
            std::mem::swap(&mut a, &mut b);
        }
        let separator = shortest_separator(&a, &b);
        prop_assert!(a < separator && separator <= b);
        // No shorter string lies there: one that does would be a prefix of `b`, or below `a`.
        for shorter in (0..separator.len()).map(|length| &b[..length]) {
            prop_assert!(shorter <= a.as_slice());
        }
    }

    #[test]
    fn inner_pages_come_back(keys in prop::collection::btree_set(key(), 0..60), level in 1..=LEVEL_MAX, probes in prop::collection::vec(key(), 0..40)) {
        let keys: Vec<_> = keys.into_iter().filter(|key| !key.is_empty()).collect();
        let separators = Separators::from_keys(&keys);
        separators.check_invariants();
        prop_assert_eq!(separators.key_bytes(), keys.iter().map(Vec::len).sum::<usize>());
        let children: Vec<_> = (0..=keys.len()).map(|number| address(number as u8)).collect();
        let mut raw = Vec::new();
        encode_inner(level, &separators, &children, &mut raw);
        let page = decode_inner(&raw).expect("its own bytes");
        page.separators.check_invariants();
        prop_assert_eq!(page.level, level);
        prop_assert_eq!(&page.children, &children);
        prop_assert_eq!(page.separators.iter().map(KeyParts::to_vec).collect::<Vec<_>>(), keys.clone());
        for probe in probes.iter().chain(&keys) {
            let child = keys.iter().filter(|key| *key <= probe).count();
            prop_assert_eq!(page.separators.child_for(probe), child, "{:?}", probe);
        }
    }

    #[test]
    fn separators_are_taken_out_and_put_in(keys in prop::collection::btree_set(key(), 1..40), at in any::<prop::sample::Index>()) {
        let keys: Vec<_> = keys.into_iter().filter(|key| !key.is_empty()).collect();
        prop_assume!(!keys.is_empty());
        let (from, to) = (at.index(keys.len()), (at.index(keys.len()) + 3).min(keys.len()));
        let without = [&keys[..from], &keys[to..]].concat();
        let fewer = Separators::from_keys(&keys).without(from..to);
        prop_assert_eq!(fewer.iter().map(KeyParts::to_vec).collect::<Vec<_>>(), without);
        let again = fewer.with_inserted(from, &keys[from..to]);
        prop_assert_eq!(again.iter().map(KeyParts::to_vec).collect::<Vec<_>>(), keys.clone());
        prop_assert_eq!(again, Separators::from_keys(&keys), "the prefix is the longest");
    }

    #[test]
    fn any_bytes_are_a_page_or_an_error(mut raw in prop::collection::vec(any::<u8>(), 0..200), kind in 1u8..3) {
        if raw.len() > 2 {
            raw[..2].copy_from_slice(&[FORMAT_VERSION, kind]);
        }
        demand_page_or_error(&raw);
    }
}

/// Whatever decodes is a sound page with exactly these bytes.
fn demand_page_or_error(raw: &[u8]) -> bool {
    for key in [&b""[..], b"k", &raw[raw.len() / 2..]] {
        // Finds or not, or an error: what is not looked at may be anything.
        let _ = found_in(raw, key);
    }
    let decoded = LeafImage::decode(raw);
    let rows = decoded.as_ref().ok().map(rows_of);
    assert_eq!(streamed(raw).ok(), rows, "both refuse the same bytes");
    let leaf = decoded.is_ok_and(|image| {
        image.check_invariants();
        let again = match raw[2] & CUT {
            0 => encoded(&image),
            _ => encoded_in_sections(&image).0,
        };
        if raw[0] == FORMAT_VERSION {
            assert_eq!(again, raw, "one image, one encoding");
        } else {
            assert_eq!(rows_of(&LeafImage::decode(&again).unwrap()), rows_of(&image));
        }
        true
    });
    let inner = decode_inner(raw).is_ok_and(|page| {
        page.separators.check_invariants();
        let mut again = Vec::new();
        encode_inner(page.level, &page.separators, &page.children, &mut again);
        assert_eq!(again[1..], raw[1..], "one page, one encoding");
        true
    });
    assert!(!(leaf && inner), "one kind");
    leaf || inner
}

fn small_pages() -> Vec<Vec<u8>> {
    let inline = |text: &str| ExpectedRow::Inline(text.as_bytes().to_vec());
    let large = ExpectedRow::Large(LargeRef::encode(300_000, &[address(1), address(2)]));
    let long = [b"apple".as_slice(), &[b'x'; 140]].concat();
    let leaves = [
        ExpectedRows::new(),
        ExpectedRows::from([(b"only".to_vec(), inline("one"))]),
        ExpectedRows::from([
            (b"apple".to_vec(), inline("1")),
            (b"apples".to_vec(), inline("")),
            (long, large),
            (b"april".to_vec(), inline(&"v".repeat(90))),
        ]),
        // Of one length, without values, and both.
        ExpectedRows::from([
            (b"ab".to_vec(), inline("1")),
            (b"ac".to_vec(), inline("")),
            (b"ba".to_vec(), inline("3")),
        ]),
        ExpectedRows::from([(b"a".to_vec(), inline("")), (b"ab".to_vec(), inline(""))]),
        ExpectedRows::from([
            (b"tea".to_vec(), inline("")),
            (b"ten".to_vec(), inline("")),
            (b"toe".to_vec(), inline("")),
        ]),
    ];
    let mut pages: Vec<_> = leaves.iter().map(|rows| encoded(&image_of(rows))).collect();
    for keys in [&[][..], &["m"], &["tenon", "tens", "tent", "tenth"]] {
        let children: Vec<_> = (0..=keys.len()).map(|number| address(number as u8)).collect();
        let mut raw = Vec::new();
        encode_inner(1, &Separators::from_keys(keys), &children, &mut raw);
        pages.push(raw);
    }
    pages
}

#[test]
fn patched_pages_are_pages_or_errors() {
    let (mut sound, mut refused) = (0, 0);
    for page in small_pages() {
        assert!(demand_page_or_error(&page));
        for at in 0..page.len() {
            for byte in 0..=255 {
                let mut patched = page.clone();
                patched[at] = byte;
                *(if demand_page_or_error(&patched) {
                    &mut sound
                } else {
                    &mut refused
                }) += 1;
            }
        }
    }
    assert!(sound > 1000 && refused > 10_000, "{sound} sound, {refused} refused");
}

/// Rows of a few sections, with what an index has and what records have.
fn long_leaves() -> Vec<LeafImage> {
    let values = [0, 0, 50, 700, 5000];
    let of_values = |(number, value_bytes): (usize, usize)| {
        let rows = (0..3 * SECTION_BYTES / (value_bytes + 20)).map(|row| {
            // Sometimes longer than the others.
            let tail = if number == 0 { row % 3 } else { 0 };
            let key = format!(
                "a prefix {:07} and more{}",
                row * 7919 % 1000 + row * 1000,
                &"xy"[..tail]
            );
            (key.into_bytes(), ExpectedRow::Inline(vec![row as u8; value_bytes]))
        });
        image_of(&rows.collect())
    };
    values.into_iter().enumerate().map(of_values).collect()
}

#[test]
fn sections_are_where_the_lengths_of_rows_put_them() {
    for image in long_leaves() {
        let (raw, cuts) = encoded_in_sections(&image);
        assert!((2..=3).contains(&cuts.len()), "{cuts:?}");
        let plain = encoded(&image);
        // What stands in front, but for the separators, and the rows are as without cuts.
        assert_eq!(raw[cuts[0]..], plain[plain.len() - (raw.len() - cuts[0])..]);
        assert_eq!(raw[3..LEAF_HEADER_BYTES], plain[3..LEAF_HEADER_BYTES]);
        for row in 0..image.len() {
            let key = image.key(row).to_vec();
            let expected = Ok(Some(image.row_to_copy(row).1));
            assert_eq!(found_in_section(&raw, &cuts, &key), expected);
            assert_eq!(found_in(&plain, &key), expected);
        }
    }
    // Too little for two, and one row that is all.
    for value_bytes in [vec![3000, 3000], vec![9 * SECTION_BYTES], vec![0]] {
        let rows = value_bytes.iter().enumerate();
        let rows = rows.map(|(row, bytes)| (vec![row as u8], ExpectedRow::Inline(vec![0; *bytes])));
        let image = image_of(&rows.collect());
        assert_eq!(encoded_in_sections(&image), (encoded(&image), vec![]));
    }
}

#[test]
fn patched_sections_are_sections_or_errors() {
    let mut refused = 0;
    for image in long_leaves() {
        let (raw, cuts) = encoded_in_sections(&image);
        let near_cuts = cuts[1..].iter().flat_map(|cut| cut - 2..cut + 10);
        for at in (0..cuts[0] + 10).chain(near_cuts) {
            for byte in [0, 1, 2, 3, 4, 7, 0x7f, 0xff, raw[at] ^ 1, raw[at].wrapping_add(1)] {
                let mut patched = raw.clone();
                patched[at] = byte;
                refused += usize::from(!demand_page_or_error(&patched));
                demand_rows_or_error(&patched, &cuts);
            }
        }
        for length in (0..cuts[0]).chain(cuts.iter().copied()) {
            assert!(!demand_page_or_error(&raw[..length]), "{length} of {} bytes", raw.len());
        }
    }
    assert!(refused > 500, "{refused} refused");
}

/// Whatever comes out of sections rises.
fn demand_rows_or_error(raw: &[u8], cuts: &[usize]) {
    let Ok(front) = LeafFront::read(&raw[..cuts[0]]) else {
        return;
    };
    if (front.bytes(), front.sections()) != (cuts[0], cuts.len()) {
        return;
    }
    for first in 0..cuts.len() {
        let Ok(image) = image_of_sections(&front, first..cuts.len(), raw, cuts) else {
            continue;
        };
        let keys: Vec<_> = (0..image.len()).map(|row| image.key(row).to_vec()).collect();
        assert!(keys.is_sorted_by(|a, b| a < b));
        assert!(
            front.low(first).is_none_or(|low| low <= keys[0]),
            "from its separator on"
        );
        for section in first..cuts.len() {
            let Ok(image) = image_of_sections(&front, section..section + 1, raw, cuts) else {
                continue;
            };
            let last = image.key(image.len() - 1).to_vec();
            assert!(
                front.high(section).is_none_or(|high| last < high),
                "up to the next one's"
            );
        }
    }
}

/// Headers, and how long the rows behind them are, of small leaves.
#[test]
fn what_rows_have_in_common_is_not_in_the_rows() {
    let inline = |text: &str| ExpectedRow::Inline(text.as_bytes().to_vec());
    let cases = [
        (vec![], 0, 0),
        (vec![("a", "")], 0, 3),
        (vec![("a", "v")], 0, 3 + 1),
        (vec![("a", "v"), ("b", "w")], 3, 3 + 2 + 1 + 2),
        (vec![("a", ""), ("b", "")], 3, 3 + 1 + 1 + 1),
        (vec![("a", ""), ("b", "w")], 1, 3 + 1 + 2 + 2),
        (vec![("a", "v"), ("bb", "w")], 2, 3 + 2 + 2 + 3),
        (vec![("a", "v"), ("bb", "")], 0, 3 + 2 + 3 + 2),
    ];
    for (rows, flags, bytes) in cases {
        let rows: ExpectedRows = rows
            .iter()
            .map(|(key, value)| (key.as_bytes().to_vec(), inline(value)))
            .collect();
        let image = image_of(&rows);
        let raw = encoded(&image);
        assert_eq!(
            (raw[2], raw.len() - LEAF_HEADER_BYTES - image.prefix().len()),
            (flags, bytes),
            "{rows:?}"
        );
    }
}

#[test]
fn leaves_of_older_versions_are_read() {
    let row = |key: &str, value: &str| (key.as_bytes().to_vec(), ExpectedRow::Inline(value.as_bytes().to_vec()));
    let rows = ExpectedRows::from([row("leafa", ""), row("leafb", ""), row("leafc", "vw")]);
    let same_rows = ExpectedRows::from([row("leafa", "x"), row("leafb", "y")]);
    let bytes_of = |version: u8, flags: u8, rows: &ExpectedRows, bytes: &[u8]| {
        let row_bytes: usize = rows
            .iter()
            .map(|(key, row)| key.len() + row.as_new().cell_bytes().len())
            .sum();
        let mut raw = vec![version, 1, flags, 0];
        for number in [rows.len(), row_bytes, 4] {
            raw.extend_from_slice(&(number as u32).to_le_bytes());
        }
        [&raw[..], b"leaf", bytes].concat()
    };
    // The first two values are empty. In version 1 every row tells the length of its key, in version 2 the first one.
    let one = [0, 1, 0, b'a', 0, 1, 0, b'b', 0, 1, 4, b'c', b'v', b'w'];
    let two = [0, 1, 0, b'a', 0, 0, b'b', 0, 4, b'c', b'v', b'w'];
    let same_two = [0, 1, 2, b'a', b'x', 0, b'b', b'y'];
    for (mut raw, rows, known) in [
        (bytes_of(1, 0, &rows, &one), &rows, 0),
        (bytes_of(2, 1, &rows, &two), &rows, 1),
        (bytes_of(2, 3, &same_rows, &same_two), &same_rows, 3),
    ] {
        assert_eq!(&rows_of(&LeafImage::decode(&raw).unwrap()), rows);
        assert_eq!(&streamed(&raw).unwrap(), rows);
        for (key, row) in rows {
            assert_eq!(found_in(&raw, key), Ok(Some(row.as_new())));
        }
        for flags in (0..=255).filter(|flags| *flags != known) {
            raw[2] = flags;
            assert!(LeafImage::decode(&raw).is_err(), "{flags}");
        }
        raw[2] = known;
        for version in [0, 4, 255] {
            raw[0] = version;
            assert!(LeafImage::decode(&raw).is_err(), "version {version}");
        }
    }
}

#[test]
fn cut_and_extended_pages_are_refused() {
    for page in small_pages() {
        for length in 0..page.len() {
            assert!(
                !demand_page_or_error(&page[..length]),
                "{length} of {} bytes",
                page.len()
            );
        }
        assert!(!demand_page_or_error(&[page.as_slice(), &[0]].concat()));
    }
}

#[test]
fn headers_that_promise_much_allocate_little() {
    // Four billion rows, or as many children, in a few bytes.
    for kind in [1, 2] {
        let mut raw = vec![FORMAT_VERSION, kind, kind - 1, 0];
        raw.extend_from_slice(&u32::MAX.to_le_bytes());
        raw.extend_from_slice(&[0; 64]);
        assert!(!demand_page_or_error(&raw));
    }
}

#[test]
fn a_leaf_of_one_row_of_the_longest_key() {
    let key = vec![9; engine::KEY_BYTES_MAX];
    let image = LeafImage::from_rows([(key.as_slice(), NewValue::Inline(b"v"))]);
    let again = LeafImage::decode(&encoded(&image)).expect("its own bytes");
    assert_eq!(again.find(&key), Ok(0));
    assert_eq!(again.find(&key[1..]), Err(0));
    assert!(again.memory_bytes() < crate::budget::good_size(key.len() + 16) + 10_000);
}

#[test]
fn splits_leave_rows_on_both_sides() {
    let rows: ExpectedRows = (0..10u8)
        .map(|key| (vec![key], ExpectedRow::Inline(vec![0; 99])))
        .collect();
    let image = image_of(&rows);
    assert_eq!(image.split_point(0), 1);
    assert_eq!(image.split_point(500), 5);
    assert_eq!(image.split_point(501), 6);
    assert_eq!(image.split_point(usize::MAX), 9);
}

#[test]
fn index_entries_take_little_memory() {
    let keys: Vec<Vec<u8>> = (0..600u32)
        .map(|n| [b"prefix".as_slice(), &(n * 7919).to_be_bytes(), &[5; 30]].concat())
        .collect();
    let image = LeafImage::from_rows(keys.iter().map(|key| (key.as_slice(), NewValue::Inline(b""))));
    let plain: usize = keys.iter().map(Vec::len).sum();
    let of_heap = image.data().len() + 4 * (2 * image.len() + 1);
    assert!(of_heap <= plain + 10 * keys.len(), "{of_heap} for {plain}");
}
