//! A command as `currentOp`, log lines and the profiler show it: its body, and in it the documents that came beside
//! it; of a long one the beginning.
//!
//! Invariant: the bytes are those of a document, as many as its length says, or fewer: then they are its beginning.

use crate::metrics::OperationKind;
use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf};
use bson::spec::ElementType;
use bson::{Bson, Document};
use query::raw::Elements;
use std::io::Write as _;

/// Document sequences of a request, by name.
pub(crate) type Sequences<'s> = &'s [(&'s str, &'s [u8])];

/// Those that are shown. What is inserted is data, passwords of users that a restore brings along among it.
const SHOWN_SEQUENCES: &[&str] = &["updates", "deletes", "ops", "nsInfo", "indexes"];

/// The length of a document that is cut before its end is known.
const CUT: [u8; 4] = i32::MAX.to_le_bytes();

/// See the module. The buffer keeps its memory from one command to the next.
#[derive(Default)]
pub(crate) struct ShownCommand {
    bytes: Vec<u8>,
    /// So many of them are the fields of the body, where there are all of these and sequences behind them; otherwise
    /// 0.
    body_bytes: usize,
}

impl ShownCommand {
    /// A command as far as `bytes_max` bytes of it reach.
    pub(crate) fn of(body: &RawDocument, sequences: Sequences<'_>, bytes_max: usize) -> Self {
        let mut shown = Self::default();
        shown.set(body, sequences, bytes_max);
        shown
    }

    /// The same in the place of another one.
    pub(crate) fn set(&mut self, body: &RawDocument, sequences: Sequences<'_>, bytes_max: usize) {
        let without = without_inserted(body, bytes_max);
        let (body, bytes) = (without.as_deref().unwrap_or(body.as_bytes()), &mut self.bytes);
        bytes.clear();
        self.body_bytes = 0;
        let mut sequences = sequences
            .iter()
            .filter(|(name, _)| SHOWN_SEQUENCES.contains(name))
            .peekable();
        if sequences.peek().is_none() {
            bytes.extend_from_slice(&body[..body.len().min(bytes_max)]);
            return;
        }
        let fields = &body[..body.len() - 1];
        bytes.extend_from_slice(&fields[..fields.len().min(bytes_max)]);
        if fields.len() <= bytes_max {
            self.body_bytes = fields.len();
        }
        let is_whole = sequences.all(|(name, documents)| append_sequence(bytes, name, documents, bytes_max));
        bytes.push(0);
        match is_whole && bytes.len() <= bytes_max {
            true => set_length(bytes, 0),
            false => {
                bytes.truncate(bytes_max);
                bytes[..CUT.len()].copy_from_slice(&CUT);
            }
        }
    }

    /// All of it, unless it is cut.
    pub(crate) fn whole(&self) -> Option<&RawDocument> {
        RawDocument::from_bytes(&self.bytes).ok()
    }

    /// The fields there are, the last of them perhaps cut.
    pub(crate) fn fields(&self) -> RawDocumentBuf {
        RawDocumentBuf::from_bytes(closed(&self.bytes)).unwrap_or_default()
    }

    /// The body as a document, and how many fields it has, where sequences stand behind it and it has no more bytes.
    fn body(&self, bytes_max: usize) -> Option<(Document, usize)> {
        let fields = self.bytes.get(..self.body_bytes)?;
        if fields.is_empty() || fields.len() > bytes_max {
            return None;
        }
        let mut body = fields.to_vec();
        body.push(0);
        set_length(&mut body, 0);
        let body = RawDocumentBuf::from_bytes(body).ok()?;
        Some((Document::try_from(&*body).ok()?, body.iter().count()))
    }

    /// As a document: the command where it is whole and has no more bytes. Otherwise its body, and the beginning of
    /// what came beside it as text; of a long body the beginning as text, and its comment, which tells operations
    /// apart.
    pub(crate) fn to_document(&self, bytes_max: usize) -> Document {
        let whole = self.whole().filter(|whole| whole.as_bytes().len() <= bytes_max);
        if let Some(whole) = whole.and_then(|whole| Document::try_from(whole).ok()) {
            return whole;
        }
        let (mut document, passed, mut text, bytes_max) = match self.body(bytes_max) {
            Some((body, fields)) => (body, fields, String::new(), bytes_max - self.body_bytes),
            None => (Document::new(), 0, String::from("{ "), bytes_max),
        };
        let mut comment = None;
        for (name, value) in self.fields().iter().map_while(|element| element.ok()).skip(passed) {
            text.push_str(&format!("{name}: {}, ", keys::describe::describe_whole(value)));
            if name == "comment" {
                comment = Bson::try_from(value).ok();
            }
        }
        let mut end = text.len().min(bytes_max.saturating_sub(3));
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text.truncate(end);
        text.push_str("...");
        document.insert("$truncated", text);
        document.extend(comment.map(|comment| ("comment".to_owned(), comment)));
        document
    }
}

/// The body of a command that inserts, without the documents that it has; `None` where it has none. One that has more
/// than `bytes_max` bytes is cut behind them.
pub(crate) fn without_inserted(body: &RawDocument, bytes_max: usize) -> Option<Vec<u8>> {
    let fields = || Elements::new(body).map_while(Result::ok);
    let inserted = match fields().next()?.name() {
        b"insert" => "documents",
        b"bulkWrite" => "ops",
        _ => return None,
    };
    if !fields().any(|field| field.name() == inserted.as_bytes()) {
        return None;
    }
    // What is cut is longer than what is shown, with the last byte of a document or without.
    let bytes_max = bytes_max.saturating_add(2);
    let mut bytes = CUT.to_vec();
    for field in fields() {
        let is_whole = match field.frame() {
            _ if field.name() != inserted.as_bytes() => append_within(&mut bytes, field.whole(), bytes_max),
            Ok(statements) if inserted == "ops" => append_statements(&mut bytes, inserted, statements, bytes_max),
            _ => true,
        };
        if !is_whole {
            return Some(bytes);
        }
    }
    bytes.push(0);
    set_length(&mut bytes, 0);
    Some(bytes)
}

/// Appends what there is room for. False where it is cut.
fn append_within(bytes: &mut Vec<u8>, appended: &[u8], bytes_max: usize) -> bool {
    let room = bytes_max.saturating_sub(bytes.len());
    bytes.extend_from_slice(&appended[..appended.len().min(room)]);
    appended.len() <= room
}

/// Begins an array, and answers where its length stands.
fn begin_array(bytes: &mut Vec<u8>, name: &str) -> usize {
    bytes.push(ElementType::Array as u8);
    bytes.extend_from_slice(name.as_bytes());
    bytes.push(0);
    let array = bytes.len();
    bytes.extend_from_slice(&CUT);
    array
}

/// Appends the statements of a `bulkWrite` without the documents that they insert. False where they are cut: there are
/// as many bytes as there may be then, or more.
fn append_statements(bytes: &mut Vec<u8>, name: &str, statements: &RawDocument, bytes_max: usize) -> bool {
    let array = begin_array(bytes, name);
    let statements = Elements::new(statements).map_while(Result::ok);
    let statements = statements.map_while(|statement| statement.frame().ok());
    for (place, statement) in statements.enumerate() {
        bytes.push(ElementType::EmbeddedDocument as u8);
        // To a vector everything can be written.
        let _ = write!(bytes, "{place}\0");
        if !append_without_document(bytes, statement.as_bytes(), bytes_max) || bytes.len() > bytes_max {
            return false;
        }
    }
    bytes.push(0);
    set_length(bytes, array);
    true
}

/// Appends a sequence as the array that it stands for. False where it is cut.
fn append_sequence(bytes: &mut Vec<u8>, name: &str, mut documents: &[u8], bytes_max: usize) -> bool {
    let array = begin_array(bytes, name);
    let mut place = 0;
    while let Some(length) = documents.first_chunk() {
        let length = u32::from_le_bytes(*length) as usize;
        let room = bytes_max.saturating_sub(bytes.len());
        bytes.push(ElementType::EmbeddedDocument as u8);
        // To a vector everything can be written.
        let _ = write!(bytes, "{place}\0");
        let (document, rest) = documents.split_at(length.min(documents.len()));
        let is_appended = match name {
            "ops" => append_without_document(bytes, document, bytes_max),
            _ => {
                bytes.extend_from_slice(&document[..document.len().min(room)]);
                length <= room
            }
        };
        if !is_appended || length == 0 || length > document.len() || bytes.len() > bytes_max {
            return false;
        }
        documents = rest;
        place += 1;
    }
    bytes.push(0);
    set_length(bytes, array);
    true
}

/// Appends a statement of `bulkWrite` without the document that it inserts. False where it is cut, or none.
fn append_without_document(bytes: &mut Vec<u8>, statement: &[u8], bytes_max: usize) -> bool {
    let Ok(statement) = RawDocument::from_bytes(statement) else {
        return false;
    };
    let start = bytes.len();
    bytes.extend_from_slice(&CUT);
    for field in Elements::new(statement).map_while(Result::ok) {
        if field.name() == b"document" {
            continue;
        }
        if !append_within(bytes, field.whole(), bytes_max) {
            return false;
        }
    }
    bytes.push(0);
    set_length(bytes, start);
    true
}

/// Writes the length of the document that begins at `from` and ends with the bytes.
fn set_length(bytes: &mut [u8], from: usize) {
    let length = ((bytes.len() - from) as u32).to_le_bytes();
    bytes[from..from + length.len()].copy_from_slice(&length);
}

/// The beginning of a document as one that ends where it was cut, and so those in it.
fn closed(bytes: &[u8]) -> Vec<u8> {
    let mut document = bytes.to_vec();
    document.resize(bytes.len().max(4), 0);
    document.push(0);
    set_length(&mut document, 0);
    let end = RawDocument::from_bytes(&document).map_or(4, |cut| {
        let whole = Elements::new(cut).map_while(Result::ok);
        whole.last().map_or(4, |last| last.end())
    });
    document.truncate(end);
    append_cut(&mut document, bytes.get(end..).unwrap_or_default());
    document.push(0);
    set_length(&mut document, 0);
    document
}

/// Appends what there is of an element that is cut in its value: of documents, arrays and strings.
fn append_cut(document: &mut Vec<u8>, element: &[u8]) {
    let name_end = element.iter().skip(1).position(|byte| *byte == 0);
    let Some((head, value)) = name_end.and_then(|end| element.split_at_checked(end + 2)) else {
        return;
    };
    let Some(text) = value.get(4..) else { return };
    match ElementType::from(head[0]) {
        Some(ElementType::EmbeddedDocument | ElementType::Array) => {
            document.extend_from_slice(head);
            document.extend_from_slice(&closed(value));
        }
        Some(ElementType::String) => {
            let text = text.utf8_chunks().next().map_or("", |chunk| chunk.valid());
            document.extend_from_slice(head);
            document.extend_from_slice(&(text.len() as u32 + 1).to_le_bytes());
            document.extend_from_slice(text.as_bytes());
            document.push(0);
        }
        _ => {}
    }
}

/// What an operation works on: a collection, or the name that stands for commands on a whole database. `known` is a
/// collection's full name or only the database.
pub(crate) fn shown_namespace(known: &str, command: &str, kind: Option<OperationKind>, fields: &RawDocument) -> String {
    let on_collection = !matches!(kind, None | Some(OperationKind::Command | OperationKind::GetMore));
    let target = match fields.iter().next() {
        Some(Ok((_, RawBsonRef::String(name)))) => Some(name),
        _ => None,
    };
    match (command, target) {
        _ if known.contains('.') => known.to_owned(),
        (_, Some(collection)) if on_collection => format!("{known}.{collection}"),
        ("aggregate", _) => format!("{known}.$cmd.aggregate"),
        _ => format!("{known}.$cmd"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bson::{RawArrayBuf, rawdoc};

    fn text(shown: &ShownCommand, bytes_max: usize) -> String {
        let document = shown.to_document(bytes_max);
        document.get_str("$truncated").map(str::to_owned).unwrap_or_default()
    }

    #[test]
    fn a_long_command_is_shown_by_its_beginning() {
        let command = rawdoc! { "find": "c", "filter": { "a": "\u{e4}".repeat(2000) }, "comment": "mine" };
        let shown = ShownCommand::of(&command, &[], usize::MAX);
        assert_eq!(shown.to_document(usize::MAX).get_str("find").ok(), Some("c"));
        let beginning = text(&shown, 1024);
        assert!(
            beginning.starts_with("{ find: ") && beginning.ends_with("...") && beginning.len() <= 1024,
            "{beginning}"
        );
        assert_eq!(shown.to_document(1024).get_str("comment").ok(), Some("mine"));
    }

    /// Of a statement that was cut in its middle nothing was shown.
    #[test]
    fn what_is_cut_is_shown_as_far_as_it_is_there() {
        let command = rawdoc! { "update": "c", "n": 7, "q": { "a": { "$in": [1, 2, "\u{e4}\u{e4}\u{e4}"] } }, "z": 1 };
        let bytes = command.as_bytes().len();
        let mut last = 0;
        for bytes_max in 4..bytes {
            let cut = ShownCommand::of(&command, &[], bytes_max);
            assert!(cut.whole().is_none());
            let fields = Document::try_from(&*cut.fields()).expect("valid");
            assert!(
                fields.keys().eq(command
                    .iter()
                    .take(fields.len())
                    .map(|field| field.expect("valid").0.as_str()))
            );
            let length = text(&cut, usize::MAX).len();
            assert!(length >= last, "{bytes_max}");
            last = length;
        }
        let cut = ShownCommand::of(&command, &[], bytes - 14);
        assert!(
            text(&cut, usize::MAX).contains("$in: [ 1, 2, \""),
            "{}",
            text(&cut, usize::MAX)
        );
        assert!(ShownCommand::of(&command, &[], bytes).whole().is_some());
    }

    #[test]
    fn sequences_are_shown_in_the_command() {
        let body = rawdoc! { "update": "c", "$db": "test" };
        let statement = |n: i32| rawdoc! { "q": { "a": n }, "u": { "$set": { "b": "x".repeat(50) } } };
        let documents: Vec<u8> = (0..3).flat_map(|n| statement(n).into_bytes()).collect();
        let sequences: Sequences<'_> = &[("updates", &documents)];
        let whole = ShownCommand::of(&body, sequences, 4096);
        let expected = rawdoc! { "update": "c", "$db": "test", "updates": [statement(0), statement(1), statement(2)] };
        assert_eq!(whole.whole(), Some(&*expected));
        for bytes_max in 4..expected.as_bytes().len() {
            let cut = ShownCommand::of(&body, sequences, bytes_max);
            assert!(cut.whole().is_none() && cut.bytes.len() <= bytes_max, "{bytes_max}");
            assert!(Document::try_from(&*cut.fields()).is_ok());
        }
        let second = text(&ShownCommand::of(&body, sequences, 180), usize::MAX);
        assert!(second.contains("{ q: { a: 1"), "{second}");
        // A length that is none ends it.
        assert!(
            ShownCommand::of(&body, &[("updates", &[0, 0, 0, 0])], 4096)
                .whole()
                .is_none()
        );
    }

    /// Of a thousand updates nothing had a name: neither the command nor its collection.
    #[test]
    fn a_body_is_shown_whole_where_only_its_sequences_are_long() {
        let body = rawdoc! { "update": "c", "comment": "mine", "$db": "test" };
        let statement = rawdoc! { "q": { "a": 1 }, "u": { "$set": { "b": 1 } } };
        let statements = statement.as_bytes().repeat(1000);
        let shown = ShownCommand::of(&body, &[("updates", &statements)], 4096).to_document(4096);
        assert!(shown.keys().eq(["update", "comment", "$db", "$truncated"]));
        let cut = shown.get_str("$truncated").expect("text");
        assert!(
            cut.starts_with("updates: [ { q: { a: 1") && cut.ends_with("...") && cut.len() < 4096,
            "{cut}"
        );
    }

    /// Documents that came in the body were in log lines, passwords that applications keep among them.
    #[test]
    fn what_is_inserted_by_the_body_is_not_shown_either() {
        let insert = rawdoc! { "insert": "c", "documents": [{ "secret": 1 }], "comment": "mine" };
        let expected = rawdoc! { "insert": "c", "comment": "mine" };
        assert_eq!(ShownCommand::of(&insert, &[], 4096).whole(), Some(&*expected));
        let update = rawdoc! { "update": 0, "filter": { "a": 1 }, "updateMods": { "$set": { "b": 1 } } };
        let bulk = rawdoc! {
            "bulkWrite": 1,
            "ops": [{ "insert": 0, "document": { "secret": 1 } }, update.clone()],
            "nsInfo": [{ "ns": "test.c" }],
        };
        let expected = rawdoc! { "bulkWrite": 1, "ops": [{ "insert": 0 }, update], "nsInfo": [{ "ns": "test.c" }] };
        assert_eq!(ShownCommand::of(&bulk, &[], 4096).whole(), Some(&*expected));
        for bytes_max in 4..expected.as_bytes().len() {
            let cut = ShownCommand::of(&bulk, &[], bytes_max);
            assert!(cut.whole().is_none() && cut.bytes.len() <= bytes_max, "{bytes_max}");
            assert!(!text(&cut, usize::MAX).contains("secret"));
        }
    }

    /// Up to 16 MB were copied to show 4096 bytes of them.
    #[test]
    fn of_a_long_body_no_more_is_copied_than_is_shown() {
        let long = "x".repeat(100_000);
        let update = rawdoc! { "update": 0, "filter": { "a": long.as_str() }, "updateMods": { "$set": { "b": 1 } } };
        let of_nothing = RawArrayBuf::from_iter((0..10_000).map(|_| RawDocumentBuf::new()));
        for body in [
            rawdoc! { "insert": "c", "documents": [{ "secret": 1 }], "comment": long.as_str() },
            rawdoc! { "insert": "c", "comment": long.as_str(), "documents": [{ "secret": 1 }] },
            rawdoc! { "bulkWrite": 1, "ops": [{ "insert": 0, "document": { "secret": 1 } }, update] },
            rawdoc! { "bulkWrite": 1, "ops": of_nothing },
        ] {
            let without = without_inserted(&body, 4096).expect("it inserts");
            assert!((4098..5000).contains(&without.len()), "{}", without.len());
            let names = rawdoc! { "ns": "test.c" }.into_bytes();
            let sequences: [(&str, &[u8]); 1] = [("nsInfo", &names)];
            for count in [0, 1] {
                let shown = ShownCommand::of(&body, &sequences[..count], 4096);
                assert!(shown.whole().is_none() && shown.bytes.len() == 4096);
                assert!(!format!("{:?}", shown.to_document(4096)).contains("secret"));
            }
        }
    }

    #[test]
    fn what_is_inserted_is_not_shown() {
        let body = rawdoc! { "insert": "c", "$db": "test" };
        let documents = rawdoc! { "secret": 1 }.into_bytes();
        let shown = ShownCommand::of(&body, &[("documents", &documents)], 4096);
        assert_eq!(shown.whole(), Some(&*body));
        let body = rawdoc! { "bulkWrite": 1 };
        let insert = rawdoc! { "insert": 0, "document": { "secret": 1 } };
        let update = rawdoc! { "update": 0, "filter": { "a": 1 }, "updateMods": { "$set": { "b": 1 } } };
        let statements = [insert.as_bytes(), update.as_bytes()].concat();
        let names = rawdoc! { "ns": "test.c" }.into_bytes();
        let sequences: Sequences<'_> = &[("ops", &statements), ("nsInfo", &names)];
        let expected = rawdoc! { "bulkWrite": 1, "ops": [{ "insert": 0 }, update], "nsInfo": [{ "ns": "test.c" }] };
        assert_eq!(ShownCommand::of(&body, sequences, 4096).whole(), Some(&*expected));
        for bytes_max in 4..expected.as_bytes().len() {
            let cut = ShownCommand::of(&body, sequences, bytes_max);
            assert!(cut.whole().is_none() && cut.bytes.len() <= bytes_max, "{bytes_max}");
            assert!(Document::try_from(&*cut.fields()).is_ok());
            assert!(!format!("{:?}", cut.to_document(4096)).contains("secret"));
        }
    }

    #[test]
    fn commands_without_a_collection_have_a_namespace_of_two_parts() {
        let of = |known, command, kind, body: RawDocumentBuf| shown_namespace(known, command, Some(kind), &body);
        let command = OperationKind::Command;
        assert_eq!(of("db", "ping", command, rawdoc! { "ping": 1 }), "db.$cmd");
        assert_eq!(of("db", "find", OperationKind::Query, rawdoc! { "find": "c" }), "db.c");
        assert_eq!(
            of("db.d", "find", OperationKind::Query, rawdoc! { "find": "c" }),
            "db.d"
        );
        let aggregate = rawdoc! { "aggregate": 1 };
        assert_eq!(
            of("db", "aggregate", OperationKind::Query, aggregate),
            "db.$cmd.aggregate"
        );
    }
}
