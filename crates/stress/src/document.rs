//! The documents: what is written, and whether what is read is exactly that.
//!
//! Every document can be made again from its number, so a reader needs no other record of what was written. The layout
//! is fixed: `{ _id: int64, count: int64, g: int32, run: int64, data: binary }`, all told exactly as many bytes as
//! asked for. `count` is the number, counted from 1; `g` its lowest six bits, the shard key of the article; `run` tells
//! the cell, so that a document of another one is noticed.

use std::ops::RangeInclusive;

/// Bytes of a document beside its data.
const FRAME_BYTES: usize = 64;
const ID_AT: usize = 4 + 1 + 4;
const COUNT_AT: usize = ID_AT + 8 + 1 + 6;
const G_AT: usize = COUNT_AT + 8 + 1 + 2;
const RUN_AT: usize = G_AT + 4 + 1 + 4;
const DATA_LENGTH_AT: usize = RUN_AT + 8 + 1 + 5;
const DATA_AT: usize = DATA_LENGTH_AT + 4 + 1;

/// Random bytes that the documents' data are slices of: more than a compressor's window.
const POOL_BYTES: usize = 4 << 20;

/// Makes the documents of a cell.
#[derive(Debug)]
pub struct Documents {
    template: Vec<u8>,
    pool: Vec<u8>,
    /// Bytes of each document's data that come from the pool; the rest is zeros.
    random_bytes: usize,
    seed: u64,
}

impl Documents {
    /// Documents of `bytes` each, `compressible` percent of their data being zeros. `run` tells cells apart.
    pub fn new(bytes: usize, compressible: u8, seed: u64, run: i64) -> Self {
        let data = bytes - FRAME_BYTES;
        let random_bytes = data * (100 - usize::from(compressible)) / 100;
        let mut state = seed;
        let words = (POOL_BYTES + random_bytes).div_ceil(8);
        let pool = (0..words).flat_map(|_| next(&mut state).to_le_bytes()).collect();
        Self {
            template: template(bytes, data, run),
            pool,
            random_bytes,
            seed,
        }
    }

    /// Bytes of a document.
    pub fn size(&self) -> usize {
        self.template.len()
    }

    /// Appends a document.
    pub fn append(&self, number: u64, bytes: &mut Vec<u8>) {
        let at = bytes.len();
        bytes.extend_from_slice(&self.template[..DATA_AT]);
        let head = &mut bytes[at..];
        head[ID_AT..ID_AT + 8].copy_from_slice(&number.to_le_bytes());
        head[COUNT_AT..COUNT_AT + 8].copy_from_slice(&number.to_le_bytes());
        head[G_AT..G_AT + 4].copy_from_slice(&((number & 63) as u32).to_le_bytes());
        bytes.extend_from_slice(self.slice(number));
        bytes.extend_from_slice(&self.template[DATA_AT + self.random_bytes..]);
    }

    fn slice(&self, number: u64) -> &[u8] {
        let mut state = self.seed ^ number;
        let at = (next(&mut state) as usize) % POOL_BYTES;
        &self.pool[at..at + self.random_bytes]
    }

    /// What a document that was read is, given that its number is right.
    fn judge(&self, number: u64, document: &[u8]) -> Judgement {
        if field(document, RUN_AT) != field(&self.template, RUN_AT) {
            // Too short for a run is as damaged as anything else.
            return if document.len() < DATA_AT {
                Judgement::Torn
            } else {
                Judgement::Stale
            };
        }
        let data_end = DATA_AT + self.random_bytes;
        let is_same = document.len() == self.size()
            && self.same_head(number, document)
            && document[DATA_AT..data_end] == *self.slice(number)
            && document[data_end..] == self.template[data_end..];
        if is_same {
            Judgement::Consistent
        } else {
            Judgement::Torn
        }
    }

    fn same_head(&self, number: u64, document: &[u8]) -> bool {
        let mut head = [0; DATA_AT];
        head.copy_from_slice(&self.template[..DATA_AT]);
        head[ID_AT..ID_AT + 8].copy_from_slice(&number.to_le_bytes());
        head[COUNT_AT..COUNT_AT + 8].copy_from_slice(&number.to_le_bytes());
        head[G_AT..G_AT + 4].copy_from_slice(&((number & 63) as u32).to_le_bytes());
        document[..DATA_AT] == head
    }

    /// Judges what a read of the numbers in `range`, highest first, brought.
    pub fn check<'d>(&self, range: RangeInclusive<u64>, found: impl IntoIterator<Item = &'d [u8]>) -> Tally {
        let (first, last) = (*range.start(), *range.end());
        let mut tally = Tally::default();
        // The next number that may come; numbers above it came or are missing.
        let mut end = last + 1;
        for document in found {
            tally.bytes += document.len() as u64;
            let number = field(document, ID_AT).filter(|number| (first..end).contains(number));
            let Some(number) = number else {
                tally.foreign += 1;
                continue;
            };
            tally.missing += end - 1 - number;
            end = number;
            match self.judge(number, document) {
                Judgement::Consistent => tally.consistent += 1,
                Judgement::Stale => tally.stale += 1,
                Judgement::Torn => tally.torn += 1,
            }
        }
        tally.missing += end - first;
        tally
    }
}

enum Judgement {
    Consistent,
    Stale,
    Torn,
}

/// What reads brought.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Documents as they were written.
    pub consistent: u64,
    /// Documents that were not there.
    pub missing: u64,
    /// Documents of this cell with other bytes than were written.
    pub torn: u64,
    /// Documents of this number from something older.
    pub stale: u64,
    /// Documents nobody asked for, or twice, or out of order.
    pub foreign: u64,
    /// Bytes of all documents that came.
    pub bytes: u64,
}

impl Tally {
    /// Adds another one.
    pub fn add(&mut self, other: &Self) {
        self.consistent += other.consistent;
        self.missing += other.missing;
        self.torn += other.torn;
        self.stale += other.stale;
        self.foreign += other.foreign;
        self.bytes += other.bytes;
    }

    /// Documents that were asked for.
    pub fn asked(&self) -> u64 {
        self.consistent + self.missing + self.torn + self.stale
    }

    /// Consistent ones of those asked for, 0 to 1.
    pub fn share(&self) -> f64 {
        if self.asked() == 0 {
            0.0
        } else {
            self.consistent as f64 / self.asked() as f64
        }
    }

    /// What no server may do, whatever the write concern.
    pub fn is_wrong(&self) -> bool {
        self.torn + self.stale + self.foreign > 0
    }
}

/// The constant bytes of a document; numbers and data are zero.
fn template(bytes: usize, data: usize, run: i64) -> Vec<u8> {
    let mut template = Vec::with_capacity(bytes);
    template.extend_from_slice(&(bytes as u32).to_le_bytes());
    let mut number = |kind: u8, name: &[u8], value: &[u8]| {
        template.push(kind);
        template.extend_from_slice(name);
        template.extend_from_slice(value);
    };
    number(0x12, b"_id\0", &[0; 8]);
    number(0x12, b"count\0", &[0; 8]);
    number(0x10, b"g\0", &[0; 4]);
    number(0x12, b"run\0", &run.to_le_bytes());
    number(0x05, b"data\0", &(data as u32).to_le_bytes());
    // The generic subtype, the data, the document's end.
    template.resize(bytes, 0);
    template
}

fn field(document: &[u8], at: usize) -> Option<u64> {
    let bytes = document.get(at..at + 8)?.first_chunk()?;
    Some(u64::from_le_bytes(*bytes))
}

/// SplitMix64 (Steele, Lea, Flood, OOPSLA 2014).
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bson::raw::RawDocument;

    const BYTES: usize = 1024;

    fn documents(run: i64) -> Documents {
        Documents::new(BYTES, 50, 7, run)
    }

    fn made(documents: &Documents, numbers: impl IntoIterator<Item = u64>) -> Vec<Vec<u8>> {
        let one = |number| {
            let mut bytes = Vec::new();
            documents.append(number, &mut bytes);
            bytes
        };
        numbers.into_iter().map(one).collect()
    }

    fn check(documents: &Documents, range: RangeInclusive<u64>, found: &[Vec<u8>]) -> Tally {
        documents.check(range, found.iter().map(Vec::as_slice))
    }

    #[test]
    fn a_document_has_the_articles_fields_and_exactly_its_size() {
        for size in [256, 1024, 16_384] {
            let documents = Documents::new(size, 50, 7, 99);
            let bytes = made(&documents, [77]).remove(0);
            assert_eq!(bytes.len(), size);
            wire::validate_document(&bytes).expect("it is BSON");
            let document = RawDocument::from_bytes(&bytes).expect("it is BSON");
            assert_eq!(document.get_i64("_id").ok(), Some(77));
            assert_eq!(document.get_i64("count").ok(), Some(77));
            assert_eq!(document.get_i32("g").ok(), Some(77 & 63));
            assert_eq!(document.get_i64("run").ok(), Some(99));
            let data = document.get_binary("data").expect("it is there");
            assert_eq!(data.bytes.len(), size - FRAME_BYTES);
            let zeros = data.bytes.iter().rev().take_while(|byte| **byte == 0).count();
            assert!(zeros >= data.bytes.len() / 2, "half of it compresses: {zeros}");
            assert!(zeros < data.bytes.len() * 3 / 4, "the rest does not: {zeros}");
        }
    }

    #[test]
    fn documents_are_the_same_for_the_same_seed_and_differ_for_others() {
        let (one, again) = (documents(1), documents(1));
        assert_eq!(made(&one, 1..9), made(&again, 1..9));
        let other = Documents::new(BYTES, 50, 8, 1);
        assert_ne!(made(&one, [5])[0][DATA_AT..], made(&other, [5])[0][DATA_AT..]);
        assert_ne!(made(&one, [5])[0][DATA_AT..], made(&one, [6])[0][DATA_AT..]);
    }

    #[test]
    fn all_there_is_all_consistent() {
        let documents = documents(1);
        let found = made(&documents, (10..=19).rev());
        let tally = check(&documents, 10..=19, &found);
        let expected = Tally {
            consistent: 10,
            bytes: 10 * BYTES as u64,
            ..Tally::default()
        };
        assert_eq!(tally, expected);
        assert!(tally.share() == 1.0 && !tally.is_wrong());
    }

    #[test]
    fn documents_that_are_not_there_are_missing_wherever_they_are_not() {
        let documents = documents(1);
        let found = made(&documents, [17, 15, 14, 11]);
        let tally = check(&documents, 10..=19, &found);
        assert_eq!((tally.consistent, tally.missing, tally.asked()), (4, 6, 10));
        assert_eq!(check(&documents, 10..=19, &[]).missing, 10);
        assert_eq!(check(&documents, 10..=19, &[]).share(), 0.0);
    }

    #[test]
    fn any_changed_byte_is_noticed() {
        let documents = documents(1);
        let good = made(&documents, [12]).remove(0);
        for at in 0..BYTES {
            let mut bad = good.clone();
            bad[at] ^= 1;
            let tally = check(&documents, 12..=12, std::slice::from_ref(&bad));
            assert_eq!(tally.consistent, 0, "byte {at}");
            assert!(tally.is_wrong(), "byte {at}");
        }
        let third = DATA_AT + 100;
        let torn: Vec<u8> = [&good[..third], &made(&documents, [13])[0][third..]].concat();
        assert_eq!(check(&documents, 12..=12, &[torn]).torn, 1);
        for length in [0, 3, ID_AT, DATA_AT - 1, DATA_AT, BYTES - 1] {
            let tally = check(&documents, 12..=12, &[good[..length].to_vec()]);
            assert!(tally.is_wrong() && tally.consistent == 0, "{length} bytes");
        }
        let longer = [good.as_slice(), &[0]].concat();
        assert_eq!(check(&documents, 12..=12, &[longer]).torn, 1);
    }

    #[test]
    fn documents_of_another_run_are_stale() {
        let found = made(&documents(1), (1..=4).rev());
        let tally = check(&documents(2), 1..=4, &found);
        assert_eq!((tally.stale, tally.consistent, tally.missing), (4, 0, 0));
    }

    #[test]
    fn documents_nobody_asked_for_are_foreign() {
        let documents = documents(1);
        let twice = made(&documents, [12, 12, 11]);
        let tally = check(&documents, 11..=12, &twice);
        assert_eq!((tally.consistent, tally.foreign, tally.missing), (2, 1, 0));
        let ascending = made(&documents, [11, 12]);
        assert!(check(&documents, 11..=12, &ascending).is_wrong());
        let outside = made(&documents, [13, 12, 11, 10]);
        assert_eq!(check(&documents, 11..=12, &outside).foreign, 2);
    }
}
