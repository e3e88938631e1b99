//! Random documents, index keys and filters.

use super::fixture::pick;
use bson::spec::BinarySubtype;
use bson::{Bson, Document, RawDocumentBuf, doc};
use vfs::{Random, SeededRandom};

const PATHS: [&str; 8] = ["a", "b", "c", "d", "d.x", "d.y", "d.z.w", "e"];
/// Paths with numbers, which may be positions.
const POSITIONS: [&str; 6] = ["a.0", "b.1", "d.0", "d.0.x", "d.1.z.w", "d.0.0"];

/// Some are the same without their case, or without their accents.
const TEXTS: [&str; 12] = ["", "a", "ab", "abc", "b", "ba", "A", "Ab", "á", "B", "a9", "a10"];

/// A collation as a client gives it; simple ones and none are usual.
pub(super) fn collation(random: &SeededRandom) -> Option<Document> {
    match pick(random, 8) {
        0 => Some(doc! { "locale": "simple" }),
        1 | 2 => Some(doc! { "locale": "en", "strength": 2 }),
        3 => Some(doc! { "locale": "en", "strength": 1, "numericOrdering": true }),
        _ => None,
    }
}

/// The key of a wildcard index; options that it cannot have are taken away.
pub(super) fn wildcard(random: &SeededRandom, options: &mut Document) -> Document {
    for option in ["unique", "sparse", "clustering"] {
        options.remove(option);
    }
    let order = if pick(random, 2) == 0 { 1 } else { -1 };
    let projection = match pick(random, 8) {
        6 => {
            options.insert("wildcardProjection", doc! { "a": 0, "b": 0 });
            return doc! { "a": 1, "$**": order, "b": -1 };
        }
        7 => return doc! { "e": -order, "d.$**": order },
        0 => doc! { "b": 0, "d.x": 0 },
        1 => doc! { "a": 1, "d.z": 1, "_id": 1 },
        2 => return doc! { "d.$**": order },
        _ => return doc! { "$**": order },
    };
    options.insert("wildcardProjection", projection);
    doc! { "$**": order }
}

pub(super) fn raw(document: &Document) -> RawDocumentBuf {
    RawDocumentBuf::try_from(document).expect("encodable")
}

fn scalar(random: &SeededRandom) -> Bson {
    // The rare types are rare: most values are to compare with others.
    let kinds = if pick(random, 16) == 0 { 30 } else { 22 };
    match pick(random, kinds) {
        0..=7 => Bson::Int32(pick(random, 6) as i32),
        8 => Bson::Int64(pick(random, 6) as i64),
        9 => Bson::Double(pick(random, 12) as f64 / 2.0),
        10 => Bson::Double(f64::NAN),
        11 => Bson::Double(f64::NEG_INFINITY),
        12 | 13 => Bson::Null,
        14 => Bson::Boolean(random.next_u64() & 1 == 1),
        15..=17 => Bson::String(TEXTS[pick(random, TEXTS.len() as u64) as usize].to_owned()),
        18 => Bson::DateTime(bson::DateTime::from_millis(pick(random, 4) as i64)),
        19 => Bson::MinKey,
        20 => Bson::MaxKey,
        21 => Bson::ObjectId(bson::oid::ObjectId::from_bytes([pick(random, 3) as u8; 12])),
        22 => Bson::Decimal128(
            ["1", "2.5", "NaN", "-0"][pick(random, 4) as usize]
                .parse()
                .expect("a decimal"),
        ),
        23 => Bson::Timestamp(bson::Timestamp {
            time: pick(random, 3) as u32,
            increment: 1,
        }),
        24 => Bson::Binary(bson::Binary {
            subtype: [BinarySubtype::Generic, BinarySubtype::Uuid][pick(random, 2) as usize],
            bytes: vec![pick(random, 3) as u8; 16],
        }),
        25 => Bson::RegularExpression(bson::Regex {
            pattern: bson::raw::CString::try_from(["^a", "b"][pick(random, 2) as usize]).expect("no NUL"),
            options: bson::raw::CString::try_from("").expect("no NUL"),
        }),
        26 => Bson::JavaScriptCode(["a", "ab"][pick(random, 2) as usize].to_owned()),
        27 => Bson::JavaScriptCodeWithScope(bson::JavaScriptCodeWithScope {
            code: "a".to_owned(),
            scope: doc! { "x": pick(random, 2) as i32 },
        }),
        28 => Bson::Symbol(["a", "ab"][pick(random, 2) as usize].to_owned()),
        _ => Bson::Undefined,
    }
}

fn inner(random: &SeededRandom) -> Document {
    let mut document = Document::new();
    for name in ["x", "y"] {
        if pick(random, 4) != 0 {
            document.insert(name, value(random, 1));
        }
    }
    if pick(random, 3) == 0 {
        document.insert("z", doc! { "w": value(random, 1) });
    }
    document
}

pub(super) fn value(random: &SeededRandom, depth: u32) -> Bson {
    match pick(random, 12) {
        0 | 1 if depth < 3 => {
            let count = pick(random, 4);
            Bson::Array((0..count).map(|_| value(random, depth + 1)).collect())
        }
        2 | 3 if depth < 2 => inner(random).into(),
        _ => scalar(random),
    }
}

pub(super) fn document(random: &SeededRandom, id: i32) -> Document {
    let mut document = doc! { "_id": id };
    for name in ["a", "b", "c", "e"] {
        if pick(random, 5) != 0 {
            document.insert(
                name,
                if pick(random, 3) == 0 {
                    value(random, 0)
                } else {
                    scalar(random)
                },
            );
        }
    }
    match pick(random, 4) {
        0 => {}
        1 => {
            let count = pick(random, 4);
            let items = (0..count).map(|_| {
                if pick(random, 5) == 0 {
                    scalar(random)
                } else {
                    inner(random).into()
                }
            });
            document.insert("d", items.collect::<Vec<Bson>>());
        }
        _ => {
            document.insert("d", inner(random));
        }
    }
    document
}

pub(super) fn path(random: &SeededRandom) -> &'static str {
    if pick(random, 6) == 0 {
        POSITIONS[pick(random, POSITIONS.len() as u64) as usize]
    } else {
        PATHS[pick(random, PATHS.len() as u64) as usize]
    }
}

pub(super) fn key(random: &SeededRandom) -> Document {
    let mut key = Document::new();
    for _ in 0..=pick(random, 3) {
        key.insert(path(random), if pick(random, 3) == 0 { -1 } else { 1 });
    }
    if pick(random, 4) == 0 {
        key.insert("_id", 1);
    }
    key
}

/// Filters that indexes do much for: lists of values, branches on different fields, equality before a range.
pub(super) fn indexable_filter(random: &SeededRandom) -> Document {
    let number = |random: &SeededRandom| Bson::Int32(pick(random, 6) as i32);
    let list = |random: &SeededRandom| -> Vec<Bson> { (0..=pick(random, 3)).map(|_| number(random)).collect() };
    match pick(random, 4) {
        0 => doc! { path(random): { "$in": list(random) } },
        1 => doc! { path(random): { "$in": list(random) }, path(random): { "$gte": number(random) } },
        2 => {
            let branches: Vec<Document> = (0..2 + pick(random, 2))
                .map(|_| doc! { path(random): number(random) })
                .collect();
            doc! { "$or": branches }
        }
        _ => doc! { path(random): number(random), path(random): { "$lt": number(random) } },
    }
}

fn operators(random: &SeededRandom) -> Bson {
    // Nothing compares with undefined, and a regular expression is a test of its own.
    let operand = |random: &SeededRandom| loop {
        let operand = if pick(random, 6) == 0 {
            value(random, 1)
        } else {
            scalar(random)
        };
        if !matches!(operand, Bson::Undefined | Bson::RegularExpression(_)) {
            break operand;
        }
    };
    let comparison = |random: &SeededRandom| ["$gt", "$gte", "$lt", "$lte"][pick(random, 4) as usize];
    match pick(random, 16) {
        0..=4 => operand(random),
        5 => doc! { (comparison(random)): operand(random) }.into(),
        6 => doc! { "$gte": pick(random, 4) as i32, "$lt": pick(random, 7) as i32 }.into(),
        7 => {
            let list: Vec<Bson> = (0..pick(random, 4)).map(|_| operand(random)).collect();
            doc! { (["$in", "$nin"][pick(random, 2) as usize]): list }.into()
        }
        8 => doc! { "$ne": operand(random) }.into(),
        9 => doc! { "$exists": random.next_u64() & 1 == 1 }.into(),
        10 => doc! { "$not": { (comparison(random)): operand(random) } }.into(),
        11 => Bson::RegularExpression(bson::Regex {
            pattern: bson::raw::CString::try_from(["^a", "^ab", "b", "^(a|b)"][pick(random, 4) as usize])
                .expect("no NUL"),
            options: bson::raw::CString::try_from("").expect("no NUL"),
        }),
        12 => {
            let name = [
                "number",
                "string",
                "null",
                "object",
                "array",
                "bool",
                "undefined",
                "regex",
            ][pick(random, 8) as usize];
            doc! { "$type": name }.into()
        }
        13 => doc! { "$elemMatch": { (comparison(random)): operand(random), "$lt": pick(random, 7) as i32 } }.into(),
        14 if pick(random, 3) == 0 => {
            let inner = [
                doc! { "$elemMatch": { (comparison(random)): operand(random) } },
                doc! { "$size": pick(random, 3) as i32 },
            ];
            doc! { "$elemMatch": inner[pick(random, 2) as usize].clone() }.into()
        }
        14 => doc! { "$all": [operand(random), operand(random)] }.into(),
        _ => doc! { "$size": pick(random, 3) as i32 }.into(),
    }
}

pub(super) fn filter(random: &SeededRandom, depth: u32) -> Document {
    let mut filter = Document::new();
    for _ in 0..pick(random, 4).max(u64::from(depth > 0)) {
        match pick(random, 11) {
            0 if depth < 2 => {
                let branches: Vec<Document> = (0..=pick(random, 3)).map(|_| self::filter(random, depth + 1)).collect();
                filter.insert(["$or", "$or", "$and", "$nor"][pick(random, 4) as usize], branches);
            }
            1 => {
                let mut element = Document::new();
                element.insert("x", operators(random));
                if random.next_u64() & 1 == 1 {
                    element.insert("y", operators(random));
                }
                let array = ["d", "d", "d.0", "d.z"][pick(random, 4) as usize];
                filter.insert(array, doc! { "$elemMatch": element });
            }
            10 => {
                filter.insert("$expr", comparison(random));
            }
            _ => {
                filter.insert(path(random), operators(random));
            }
        }
    }
    filter
}

/// What `$expr` compares: a field with a constant, on either side.
fn comparison(random: &SeededRandom) -> Document {
    let field = Bson::from(format!("${}", path(random)));
    let constant = Bson::from(doc! { "$literal": value(random, 0) });
    let operator = ["$eq", "$eq", "$lt", "$lte", "$gt", "$gte"][pick(random, 6) as usize];
    let operands = match pick(random, 3) {
        0 => [constant, field],
        _ => [field, constant],
    };
    let compared = doc! { operator: operands.to_vec() };
    match pick(random, 3) {
        0 => doc! { "$and": [compared, comparison(random)] },
        _ => compared,
    }
}

pub(super) fn partial(random: &SeededRandom) -> Document {
    match pick(random, 5) {
        0 => doc! { "b": { "$exists": true } },
        1 => doc! { "a": { "$gte": 2 } },
        3 => doc! { "a": { "$lt": "B" } },
        2 => doc! { "a": { "$type": "number" } },
        _ => doc! { "c": { "$lt": 4 }, "a": { "$in": [1, 2, 3] } },
    }
}
