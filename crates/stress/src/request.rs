//! The two requests of the experiment, inserts of a batch and reads of a range, encoded into buffers that are used
//! again.

use crate::document::Documents;
use crate::link::{BODY_AT, NO_REPLY, message, set_header};
use crate::matrix::WriteConcern;
use crate::settings::Fsync;
use bson::raw::RawDocumentBuf;
use bson::rawdoc;

/// The article's database.
pub const DATABASE: &str = "MOSTDB";
/// The article's collection.
pub const COLLECTION: &str = "stress.test";

/// `writeConcern` of an insert.
///
/// `members`: of the set.
pub fn write_concern(concern: WriteConcern, fsync: Fsync, members: u64) -> RawDocumentBuf {
    match (concern, fsync) {
        (WriteConcern::Normal, _) => rawdoc! { "w": 0 },
        (WriteConcern::Safe, _) => rawdoc! { "w": 1 },
        (WriteConcern::FsyncSafe, Fsync::Journal) => rawdoc! { "w": 1, "j": true },
        (WriteConcern::FsyncSafe, Fsync::Fsync) => rawdoc! { "w": 1, "fsync": true },
        (WriteConcern::ReplicaSafe, _) => rawdoc! { "w": 2 },
        (WriteConcern::Majority, _) => rawdoc! { "w": "majority" },
        (WriteConcern::ReplicaAll, _) => rawdoc! { "w": members as i32 },
    }
}

/// An insert of a batch.
pub struct Insert {
    bytes: Vec<u8>,
    /// Where the sequence's size stands.
    sequence_at: usize,
    documents_at: usize,
    flags: u32,
}

impl Insert {
    /// Inserts with a write concern, into a server alone.
    pub fn new(concern: WriteConcern, fsync: Fsync) -> Self {
        Self::into_set(concern, fsync, 1, false)
    }

    /// Inserts into a set of so many members. What may be sent again goes on behind documents that are there already.
    pub fn into_set(concern: WriteConcern, fsync: Fsync, members: u64, may_be_repeated: bool) -> Self {
        let stated = write_concern(concern, fsync, members);
        let command = rawdoc! { "insert": COLLECTION, "ordered": !may_be_repeated, "writeConcern": stated };
        let bytes = message(DATABASE, &command, Some("documents"));
        let documents_at = bytes.len();
        Self {
            sequence_at: documents_at - "documents".len() - 1 - 4,
            documents_at,
            bytes,
            flags: if concern.acknowledged() { 0 } else { NO_REPLY },
        }
    }

    /// The message that inserts these documents.
    pub fn of(&mut self, documents: &Documents, numbers: std::ops::RangeInclusive<u64>) -> &[u8] {
        self.bytes.truncate(self.documents_at);
        for number in numbers {
            documents.append(number, &mut self.bytes);
        }
        let size = (self.bytes.len() - self.sequence_at) as u32;
        self.bytes[self.sequence_at..self.sequence_at + 4].copy_from_slice(&size.to_le_bytes());
        set_header(&mut self.bytes, self.flags);
        &self.bytes
    }
}

/// A read of documents by their numbers, highest first.
pub struct Find {
    bytes: Vec<u8>,
    first_at: usize,
    last_at: usize,
    limit_at: [usize; 2],
}

/// Marks in the template, to find where the numbers stand.
const FIRST: i64 = 0x7E57_0F1A_5701_0203;
const LAST: i64 = 0x7E57_1A57_0405_0607;

impl Find {
    /// Reads of the server that gets it, which may be a secondary.
    pub fn new() -> Self {
        let command = rawdoc! {
            "find": COLLECTION,
            "filter": { "_id": { "$gte": FIRST, "$lte": LAST } },
            "sort": { "_id": -1 },
            "limit": LAST,
            "batchSize": LAST,
            "singleBatch": true,
            "$readPreference": { "mode": "primaryPreferred" },
        };
        let bytes = message(DATABASE, &command, None);
        let first_at = places(&bytes, FIRST);
        let last_at = places(&bytes, LAST);
        Self {
            bytes,
            first_at: first_at[0],
            last_at: last_at[0],
            limit_at: [last_at[1], last_at[2]],
        }
    }

    /// The message that reads these documents.
    pub fn of(&mut self, numbers: std::ops::RangeInclusive<u64>) -> &[u8] {
        let (first, last) = numbers.into_inner();
        let limit = last - first + 1;
        let patches = [
            (self.first_at, first),
            (self.last_at, last),
            (self.limit_at[0], limit),
            (self.limit_at[1], limit),
        ];
        for (at, number) in patches {
            self.bytes[at..at + 8].copy_from_slice(&number.to_le_bytes());
        }
        &self.bytes
    }
}

impl Default for Find {
    fn default() -> Self {
        Self::new()
    }
}

fn places(bytes: &[u8], mark: i64) -> Vec<usize> {
    let mark = mark.to_le_bytes();
    (BODY_AT..bytes.len() - mark.len())
        .filter(|&at| bytes[at..].starts_with(&mark))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use bson::raw::RawDocument;
    use wire::{Header, Message, MsgFlags};

    fn parse<'b>(bytes: &'b [u8]) -> wire::OpMsg<'b> {
        let header = Header::parse(bytes.first_chunk().expect("it has a header")).expect("it is one");
        assert_eq!(header.length, bytes.len());
        match Message::parse(&header, bytes) {
            Ok(Message::Msg(message)) => message,
            other => panic!("not an OP_MSG: {other:?}"),
        }
    }

    #[test]
    fn an_insert_carries_its_documents_and_its_write_concern() {
        let documents = Documents::new(512, 50, 1, 1);
        let concerns = [
            (WriteConcern::Normal, Fsync::Journal, rawdoc! { "w": 0 }),
            (WriteConcern::Safe, Fsync::Journal, rawdoc! { "w": 1 }),
            (WriteConcern::FsyncSafe, Fsync::Journal, rawdoc! { "w": 1, "j": true }),
            (WriteConcern::FsyncSafe, Fsync::Fsync, rawdoc! { "w": 1, "fsync": true }),
        ];
        for (concern, fsync, expected) in concerns {
            let mut insert = Insert::new(concern, fsync);
            // A shorter one after a longer one, as at the end of the data.
            for numbers in [1..=8_u64, 9..=11] {
                let message = parse(insert.of(&documents, numbers.clone()));
                assert_eq!(
                    message.flags.has(MsgFlags::MORE_TO_COME),
                    concern == WriteConcern::Normal
                );
                assert_eq!(message.body.get_str("insert").ok(), Some(COLLECTION));
                assert_eq!(message.body.get_str("$db").ok(), Some(DATABASE));
                let stated = message.body.get_document("writeConcern").expect("it is there");
                assert_eq!(stated.as_bytes(), expected.as_bytes());
                let (name, bytes) = message.sequences.as_slice()[0];
                assert_eq!(name, "documents");
                let ids: Vec<i64> = bytes
                    .chunks(512)
                    .map(|bytes| {
                        RawDocument::from_bytes(bytes)
                            .expect("BSON")
                            .get_i64("_id")
                            .expect("it is there")
                    })
                    .collect();
                assert_eq!(ids, numbers.map(|number| number as i64).collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn a_find_asks_for_its_range_highest_first() {
        let mut find = Find::new();
        for (first, last) in [(1_u64, 256_u64), (7, 7)] {
            let message = parse(find.of(first..=last));
            let filter = message.body.get_document("filter").expect("it is there");
            let bounds = filter.get_document("_id").expect("it is there");
            assert_eq!(bounds.get_i64("$gte").ok(), Some(first as i64));
            assert_eq!(bounds.get_i64("$lte").ok(), Some(last as i64));
            let limit = (last - first + 1) as i64;
            assert_eq!(message.body.get_i64("limit").ok(), Some(limit));
            assert_eq!(message.body.get_i64("batchSize").ok(), Some(limit));
            assert_eq!(
                message
                    .body
                    .get_document("sort")
                    .expect("it is there")
                    .get_i32("_id")
                    .ok(),
                Some(-1)
            );
        }
    }
}
