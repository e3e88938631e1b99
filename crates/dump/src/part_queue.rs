//! Parts of an archive on their way to the thread that restores them, in bounded memory: a document may have a few
//! bytes or 16 MiB. They are handed over several at a time.

use crate::archive::Part;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

/// Parts are gathered up to so many bytes, with one document more, or to the end of a collection.
const GATHERED_BYTES: usize = 2 << 20;
/// What a part has beside its document, about.
const PART_BYTES: usize = 512;
/// So many hand-overs wait for one thread.
const HAND_OVERS: usize = 2;

/// The reader's end.
#[derive(Debug)]
pub(crate) struct PartSender {
    sender: SyncSender<Vec<Part>>,
    gathered: Vec<Part>,
    gathered_bytes: usize,
}

/// Both ends of a queue. What is not [handed over](PartSender::hand_over) when the reader's is dropped is lost.
pub(crate) fn part_queue() -> (PartSender, Receiver<Vec<Part>>) {
    let (sender, receiver) = sync_channel(HAND_OVERS);
    let sender = PartSender {
        sender,
        gathered: Vec::new(),
        gathered_bytes: 0,
    };
    (sender, receiver)
}

impl PartSender {
    /// Adds a part, and waits while too many are there. False when the thread has ended.
    pub(crate) fn send(&mut self, part: Part) -> bool {
        // Behind the end of a collection nothing may come for this thread for long, and its indexes wait for it.
        let (document_bytes, is_end) = match &part {
            Part::Document(_, document) => (document.as_bytes().len(), false),
            Part::End(_) => (0, true),
        };
        self.gathered_bytes += PART_BYTES + document_bytes;
        self.gathered.push(part);
        !is_end && self.gathered_bytes < GATHERED_BYTES || self.hand_over()
    }

    /// Hands over what is gathered. False when the thread has ended.
    pub(crate) fn hand_over(&mut self) -> bool {
        self.gathered_bytes = 0;
        let gathered = std::mem::take(&mut self.gathered);
        gathered.is_empty() || self.sender.send(gathered).is_ok()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::found::Found;
    use crate::namespace::Namespace;
    use bson::rawdoc;

    /// Sixty-four of the largest documents waited for each thread: a gigabyte.
    #[test]
    fn few_large_documents_and_many_small_ones_wait() {
        for (pad, parts) in [(10_usize, 20_000), (1 << 20, 12), (10 << 20, 5)] {
            let (mut sender, receiver) = part_queue();
            let part = |n: i32| {
                let document = rawdoc! { "_id": n, "pad": "x".repeat(pad) };
                Part::Document(Namespace::new("d", "c"), Found::new(document, 0, None))
            };
            std::thread::scope(|scope| {
                scope.spawn(move || {
                    assert!((0..parts).all(|n| sender.send(part(n))) && sender.hand_over());
                });
                let mut expected = 0;
                for gathered in receiver {
                    let before_last = (gathered.len() - 1) * (PART_BYTES + pad);
                    assert!(before_last < GATHERED_BYTES, "{} of {pad}", gathered.len());
                    for found in gathered {
                        assert_eq!(found, part(expected));
                        expected += 1;
                    }
                }
                assert_eq!(expected, parts);
            });
        }
        let (mut sender, _receiver) = part_queue();
        let large = || {
            let document = rawdoc! { "pad": "x".repeat(GATHERED_BYTES) };
            Part::Document(Namespace::new("d", "c"), Found::new(document, 0, None))
        };
        assert!((0..2).all(|_| sender.send(large())));
        let third = sender.sender.try_send(Vec::new());
        assert!(third.is_err(), "a third one waits with the reader");
    }

    /// It came with what was behind it: the thread had nothing to do until then, and made the indexes late.
    #[test]
    fn the_end_of_a_collection_is_handed_over_at_once() {
        let end = || Part::End(Namespace::new("d", "c"));
        let (mut sender, receiver) = part_queue();
        assert!(sender.send(end()));
        assert!(receiver.try_recv().is_ok());
        drop(receiver);
        assert!(!sender.send(end()), "nobody takes it");
    }
}
