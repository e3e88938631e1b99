//! The insert benchmark for MongoDB (Tim Callaghan's `iibench-mongodb`): inserts in batches into a collection with up
//! to three secondary indexes, beside covered index queries.
//!
//! The first documents are loaded before the queries begin, as `queryBeginNumDocs` has it. So that data depends on the
//! seed alone, `dateandtime` is not the clock's but a clock of its own that goes with the number of the document.

use super::load::Load;
use crate::actor::{Actor, Progress, batch};
use crate::context::{Context, Options};
use crate::error::{Error, Result};
use crate::measure::{Phase, measure};
use crate::message::{Message, numbered_id};
use crate::random::Random;
use crate::subject::Subject;
use bson::raw::{RawDocument, RawDocumentBuf};
use bson::rawdoc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Where everything is.
pub const DATABASE: &str = "iibench";
const COLLECTION: &str = "purchases_index";

/// Documents at scale 1; the published run has a thousand times as many.
const ROWS: u64 = 1_000_000;
const CLIENTS: u32 = 10;
const BATCH: u64 = 1000;
/// Queries begin when so many documents are there.
const BEFORE_QUERIES: u64 = 10_000;
const QUERY_LIMIT: i32 = 4;
const CASH_REGISTERS: u64 = 1_000;
const CUSTOMERS: u64 = 100_000;
const PRODUCTS: u64 = 10_000;
const PRICE_MAX: f64 = 500.0;
/// 2014-05-13, when a clock of ten documents a millisecond starts.
const FIRST_MS: i64 = 1_400_000_000_000;
/// Half of the text is random, half is the letter a.
const COMPRESSIBLE_PERCENT: usize = 50;
/// Random letters that texts are slices of.
const LETTERS: usize = 4 << 20;

const NAMES: &[&str] = &["insert", "query"];
const QUERY: usize = 1;

/// What this workload can be told.
#[derive(Clone, Debug)]
pub struct Choices {
    /// Secondary indexes, 0 to 3.
    pub indexes: u32,
    /// Clients that query.
    pub query_threads: u32,
    /// Characters of the text field.
    pub text_length: usize,
    /// The inserts end after so long, or when all documents are there; `None`: after the time of all workloads.
    pub duration: Option<Duration>,
}

/// Refuses what is not possible together.
pub fn check(choices: &Choices, options: &Options) -> Result<()> {
    if choices.indexes > 3 {
        return Err(Error::Choice("iibench has three secondary indexes".to_owned()));
    }
    if options.rate.is_some() && choices.query_threads > 0 {
        return Err(Error::Choice(
            "iibench: --rate is that of the inserts; leave --query-threads out".to_owned(),
        ));
    }
    Ok(())
}

/// Loads, and inserts beside queries.
pub fn run(context: &mut Context, subject: &mut Subject, choices: &Choices) -> Result<()> {
    let rows = context.options.scaled(ROWS, 2 * BEFORE_QUERIES);
    let clients = context.options.clients.unwrap_or(CLIENTS) as usize;
    let seed = context.options.seed;
    let mut connection = subject.connect()?;
    connection.drop_database(DATABASE)?;
    connection.run(DATABASE, &rawdoc! { "create": COLLECTION })?;
    for index in indexes().into_iter().take(choices.indexes as usize) {
        connection.run(DATABASE, &rawdoc! { "createIndexes": COLLECTION, "indexes": [index] })?;
    }
    drop(connection);
    let texts = Arc::new(Texts::new(seed, choices.text_length));
    let load = |first, end| {
        let texts = Arc::clone(&texts);
        Load {
            database: DATABASE,
            collection: COLLECTION,
            first,
            end,
            batch: BATCH,
            ordered: true,
            make: Box::new(move |number, message| put_document(seed, number, &texts, message)),
        }
    };
    let parameters = |phase: Phase| {
        phase
            .with("indexes", choices.indexes)
            .with("queryThreads", choices.query_threads)
            .with("textLength", choices.text_length)
    };
    let phase = parameters(Phase::work("iibench", "load", NAMES, Some(BEFORE_QUERIES)));
    let loaded = measure(context, subject, &phase, load(0, BEFORE_QUERIES).actors(clients));
    context.keep(loaded)?;

    let mut phase = Phase {
        pacing: context.options.pacing(),
        duration: choices.duration.or(context.options.duration),
        ..Phase::work("iibench", "insert", NAMES, Some(rows - BEFORE_QUERIES)).with("rows", rows)
    };
    phase.batch = BATCH;
    let over = Arc::new(AtomicBool::new(false));
    let mut actors: Vec<Box<dyn Actor>> = load(BEFORE_QUERIES, rows)
        .actors(clients)
        .into_iter()
        .map(|inner| {
            Box::new(Writer {
                inner,
                over: Arc::clone(&over),
            }) as Box<dyn Actor>
        })
        .collect();
    for thread in 0..u64::from(choices.query_threads) {
        actors.push(Box::new(Reader {
            random: Random::of_part(seed ^ 0x0071_7565, thread),
            turn: thread,
            over: Arc::clone(&over),
        }));
    }
    let run = measure(context, subject, &parameters(phase), actors);
    context.keep(run)
}

/// The secondary indexes, in the order in which they are made.
fn indexes() -> [RawDocumentBuf; 3] {
    [
        rawdoc! { "key": { "price": 1, "customerid": 1 }, "name": "price_customer" },
        rawdoc! { "key": { "cashregisterid": 1, "price": 1, "customerid": 1 }, "name": "register_price_customer" },
        rawdoc! { "key": { "price": 1, "dateandtime": 1, "customerid": 1 }, "name": "price_date_customer" },
    ]
}

/// The text fields: slices of random letters, and the letter a.
struct Texts {
    letters: Vec<u8>,
    random: usize,
    constant: usize,
}

impl Texts {
    fn new(seed: u64, length: usize) -> Self {
        let mut letters = Vec::with_capacity(LETTERS);
        Random::of_part(seed, u64::MAX).text(b"abcdefghijklmnopqrstuvwxyz", LETTERS, &mut letters);
        let constant = length * COMPRESSIBLE_PERCENT / 100;
        Self {
            letters,
            random: (length - constant).min(LETTERS / 2),
            constant,
        }
    }
}

fn price_of(customer: u64, random: &mut Random) -> f64 {
    (random.unit() * PRICE_MAX + customer as f64) / 100.0
}

fn time_of(number: u64) -> i64 {
    FIRST_MS + (number / 10) as i64
}

fn put_document(seed: u64, number: u64, texts: &Texts, message: &mut Message) {
    let mut random = Random::of_part(seed, number);
    let customer = random.below(CUSTOMERS);
    message.object_id("_id", numbered_id(number));
    message.int64("dateandtime", time_of(number));
    message.int32("cashregisterid", random.below(CASH_REGISTERS) as i32);
    message.int32("customerid", customer as i32);
    message.int32("productid", random.below(PRODUCTS) as i32);
    message.double("price", price_of(customer, &mut random));
    let at = random.below((LETTERS - texts.random) as u64) as usize;
    let mut text = [b'a'; 4096];
    let length = (texts.random + texts.constant).min(text.len());
    let from_letters = texts.random.min(length);
    text[..from_letters].copy_from_slice(&texts.letters[at..at + from_letters]);
    message.text("cf1", &text[..length]);
}

/// A loader that tells the readers when it is done.
struct Writer {
    inner: Box<dyn Actor>,
    over: Arc<AtomicBool>,
}

impl Actor for Writer {
    fn begin(&mut self, message: &mut Message) -> Option<usize> {
        let begun = self.inner.begin(message);
        if begun.is_none() {
            self.over.store(true, Ordering::Relaxed);
        }
        begun
    }

    fn advance(&mut self, reply: &RawDocument, message: &mut Message) -> Result<Progress> {
        self.inner.advance(reply, message)
    }
}

/// Asks the three queries in turn.
struct Reader {
    random: Random,
    turn: u64,
    over: Arc<AtomicBool>,
}

impl Reader {
    fn fields(message: &mut Message, names: &[&str]) {
        message.document("projection");
        for name in names {
            message.int32(name, 1);
        }
        message.int32("_id", 0);
        message.end();
    }
}

fn greater(message: &mut Message, name: &str, operator: &str, put: impl FnOnce(&mut Message, &str)) {
    message.document(name);
    put(message, operator);
    message.end();
}

impl Actor for Reader {
    fn begin(&mut self, message: &mut Message) -> Option<usize> {
        if self.over.load(Ordering::Relaxed) {
            return None;
        }
        let customer = self.random.below(CUSTOMERS) as i32;
        let price = price_of(customer as u64, &mut self.random);
        let register = self.random.below(CASH_REGISTERS) as i32;
        let time = time_of(self.random.below(BEFORE_QUERIES));
        message.begin("find", COLLECTION);
        message.document("filter");
        message.array("$or");
        let customers = |message: &mut Message| greater(message, "customerid", "$gte", |m, op| m.int32(op, customer));
        let prices = |message: &mut Message| greater(message, "price", "$gt", |m, op| m.double(op, price));
        match self.turn % 3 {
            0 => {
                message.document_at(0);
                message.double("price", price);
                message.int64("dateandtime", time);
                customers(message);
                message.end();
                message.document_at(1);
                message.double("price", price);
                greater(message, "dateandtime", "$gt", |m, op| m.int64(op, time));
                message.end();
                message.document_at(2);
                prices(message);
                message.end();
            }
            1 => {
                message.document_at(0);
                message.double("price", price);
                customers(message);
                message.end();
                message.document_at(1);
                prices(message);
                message.end();
            }
            _ => {
                message.document_at(0);
                message.int32("cashregisterid", register);
                message.double("price", price);
                customers(message);
                message.end();
                message.document_at(1);
                message.int32("cashregisterid", register);
                prices(message);
                message.end();
                message.document_at(2);
                greater(message, "cashregisterid", "$gt", |m, op| m.int32(op, register));
                message.end();
            }
        }
        message.end();
        message.end();
        match self.turn % 3 {
            0 => Self::fields(message, &["price", "dateandtime", "customerid"]),
            1 => Self::fields(message, &["price", "customerid"]),
            _ => Self::fields(message, &["cashregisterid", "price", "customerid"]),
        }
        message.int32("limit", QUERY_LIMIT);
        message.end_body(DATABASE);
        self.turn += 1;
        Some(QUERY)
    }

    fn advance(&mut self, reply: &RawDocument, _: &mut Message) -> Result<Progress> {
        // The dearest purchase has nothing above it, so that an empty result is possible.
        batch("find", reply).map(|_| Progress::READ)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::tests::parts;

    fn documents(count: u64) -> Vec<Vec<u8>> {
        let texts = Texts::new(3, 256);
        (0..count)
            .map(|number| {
                let mut message = Message::new(0);
                message.begin("insert", "x");
                message.end_body("y");
                message.begin_sequence("documents");
                message.element();
                put_document(3, number, &texts, &mut message);
                let size = message.end();
                message.end_sequence();
                message.bytes()[message.bytes().len() - size..].to_vec()
            })
            .collect()
    }

    #[test]
    fn fields_are_as_defined() {
        let all = documents(5000);
        let (mut registers, mut price_of_low) = (0.0, 0);
        for bytes in &all {
            let document = RawDocument::from_bytes(bytes).expect("a document");
            let int = |name| document.get_i32(name).expect("a number");
            let customer = int("customerid");
            assert!((0..1000).contains(&int("cashregisterid")) && (0..10_000).contains(&int("productid")));
            assert!((0..100_000).contains(&customer));
            let price = document.get_f64("price").expect("a price");
            // The price goes with the customer.
            assert!(price >= f64::from(customer) / 100.0 && price < (f64::from(customer) + 500.0) / 100.0);
            price_of_low += u32::from(customer < 50_000);
            registers += f64::from(int("cashregisterid"));
            let text = document.get_str("cf1").expect("a text");
            assert_eq!(text.len(), 256);
            assert!(text[128..].bytes().all(|letter| letter == b'a'));
            assert!(text[..128].bytes().any(|letter| letter != b'a'));
        }
        assert!((registers / 5000.0 - 499.5).abs() < 25.0, "{registers}");
        assert!((2250..2750).contains(&price_of_low), "{price_of_low}");
        assert_eq!(all, documents(5000), "the seed decides");
        assert_ne!(all[0], all[1]);
    }

    #[test]
    fn queries_come_in_turn() {
        let mut reader = Reader {
            random: Random::new(1),
            turn: 0,
            over: Arc::default(),
        };
        let mut message = Message::new(1);
        for branches in [3, 2, 3, 3] {
            assert_eq!(reader.begin(&mut message), Some(QUERY));
            let body = parts(&message).0;
            let or = body
                .get_document("filter")
                .and_then(|filter| filter.get_array("$or"))
                .expect("there");
            assert_eq!(or.into_iter().count(), branches);
            assert_eq!(body.get_i32("limit").ok(), Some(4));
        }
        reader.over.store(true, Ordering::Relaxed);
        assert_eq!(reader.begin(&mut message), None);
    }
}
