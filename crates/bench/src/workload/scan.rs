//! Reading a whole collection, cold and cached, per compressor, with a disk as slow as asked: the figure of Adam
//! Comerford's "MongoDB 2.8: Improving WiredTiger Performance" (2014).
//!
//! The point of it: on a slow disk a compressor that takes processor time saves more of the disk's.

use super::book::restart_cold;
use super::full_read::FullRead;
use super::load::Load;
use crate::configuration::Setup;
use crate::context::Context;
use crate::error::Result;
use crate::measure::{Phase, measure};
use crate::message::{Message, numbered_id};
use crate::random::Random;
use crate::subject::Subject;

/// Where everything is.
pub const DATABASE: &str = "scan";
const COLLECTION: &str = "documents";

/// Documents at scale 1.
const DOCUMENTS: u64 = 500_000;
const LOAD_CLIENTS: u32 = 4;
const BATCH: u64 = 1000;
/// Readings when everything is cached.
const CACHED_TIMES: usize = 5;
/// Bytes of text of a document; every second word is one of few.
const TEXT_BYTES: usize = 1000;

const WORDS: [&str; 16] = [
    "storage ",
    "engine ",
    "document ",
    "index ",
    "page ",
    "cache ",
    "block ",
    "checkpoint ",
    "compressor ",
    "cursor ",
    "collection ",
    "journal ",
    "write ",
    "read ",
    "record ",
    "snapshot ",
];

/// What this workload can be told.
#[derive(Clone, Debug)]
pub struct Choices {
    /// Compressors to try on engines that have a choice.
    pub compressors: Vec<String>,
}

impl Choices {
    /// Each engine with each compressor; files and engines without the choice as they are.
    pub fn setups(&self, chosen: &[Setup]) -> Vec<Setup> {
        let mut setups = Vec::new();
        for setup in chosen {
            if setup.takes_compressor() && setup.options.is_empty() && !self.compressors.is_empty() {
                setups.extend(self.compressors.iter().map(|name| setup.clone().with_compressor(name)));
            } else {
                setups.push(setup.clone());
            }
        }
        setups
    }
}

/// Loads, restarts, reads cold and cached.
pub fn run(context: &mut Context, subject: &mut Subject, _: &Choices) -> Result<()> {
    let documents = context.options.scaled(DOCUMENTS, 1000);
    let clients = context.options.clients.unwrap_or(LOAD_CLIENTS) as usize;
    let seed = context.options.seed;
    let load = Load {
        database: DATABASE,
        collection: COLLECTION,
        first: 0,
        end: documents,
        batch: BATCH,
        ordered: false,
        make: Box::new(move |number, message| put_document(seed, number, message)),
    };
    load.measure(context, subject, "scan", clients)?;

    if subject.is_own() {
        subject.stop()?;
    }
    let emptied = restart_cold(context, subject)?;
    let cold_phase = if emptied.is_some() { "cold" } else { "first" };
    let file_bytes = subject.data().map(crate::procfs::directory_bytes);
    for (name, times) in [(cold_phase, 1), ("cached", CACHED_TIMES)] {
        let (reader, iterations) = FullRead {
            database: DATABASE,
            collection: COLLECTION,
            times,
            documents,
            cold: name == "cold",
        }
        .actor();
        let phase = Phase::work("scan", name, &["scan"], Some(documents * times as u64)).with("documents", documents);
        let mut run = measure(context, subject, &phase, vec![reader]);
        run.iterations = iterations.take();
        run.file_bytes = file_bytes;
        if name == "cold" {
            run.notes.extend(emptied.map(|emptied| emptied.words().to_owned()));
        }
        context.keep(run)?;
    }
    Ok(())
}

fn put_document(seed: u64, number: u64, message: &mut Message) {
    let mut random = Random::of_part(seed, number);
    message.object_id("_id", numbered_id(number));
    message.int64("number", number as i64);
    message.int32("group", random.below(1000) as i32);
    let mut text = [0; TEXT_BYTES];
    let mut at = 0;
    while at < TEXT_BYTES {
        let word = WORDS[random.below(WORDS.len() as u64) as usize].as_bytes();
        let noise = random.next().to_le_bytes().map(|byte| b'a' + byte % 26);
        for byte in word.iter().chain(&noise).take(TEXT_BYTES - at) {
            text[at] = *byte;
            at += 1;
        }
    }
    message.text("text", &text);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn engines_with_a_choice_are_measured_with_each_compressor() {
        let choices = Choices {
            compressors: vec!["none".to_owned(), "zlib".to_owned()],
        };
        let chosen = [Setup::engine("inMemory"), Setup::engine("rocksdb")];
        let labels: Vec<String> = choices.setups(&chosen).into_iter().map(|setup| setup.label).collect();
        assert_eq!(labels, ["inMemory", "rocksdb-none", "rocksdb-zlib"]);
        let own = [Setup::parse("rocksdb:lz4").expect("well formed")];
        assert_eq!(choices.setups(&own)[0].label, "rocksdb-lz4");
        assert_eq!(choices.setups(&own).len(), 1);
    }
}
