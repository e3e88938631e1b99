//! Where one document's text ends and the next begins.

use crate::error::Result;
use crate::limits::TEXT_BYTES_MAX;
use crate::record::{Bytes, Record, Records};
use crate::separated::Separator;
use std::io::Read;

/// How documents stand in a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextForm {
    /// JSON, one document behind the other, with any space between.
    Json,
    /// JSON, one array of documents.
    JsonArray,
    /// A line for each document.
    Lines(Separator),
}

/// The text of one document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// The line on which it begins, from 1.
    pub line: u64,
    pub(crate) text: Record,
}

impl Item {
    pub(crate) fn bytes(&self) -> usize {
        self.text.bytes.len()
    }
}

/// Finds the documents of a text. After an error there is no finding the next one.
pub struct Reader<R> {
    source: Source<R>,
}

enum Source<R> {
    Json(JsonTexts<R>),
    Lines(Records<R>),
}

impl<R: Read> Reader<R> {
    /// Reads nothing yet.
    pub fn new(input: R, form: TextForm) -> Self {
        let json = |input, is_array| {
            Source::Json(JsonTexts {
                bytes: Bytes::new(input),
                is_array,
                place: Place::Begin,
            })
        };
        Self {
            source: match form {
                TextForm::Json => json(input, false),
                TextForm::JsonArray => json(input, true),
                TextForm::Lines(separator) => Source::Lines(Records::new(input, separator)),
            },
        }
    }

    /// Counts lines from another than 1.
    pub fn at_line(mut self, line: u64) -> Self {
        match &mut self.source {
            Source::Json(texts) => texts.bytes.line = line,
            Source::Lines(records) => records.bytes.line = line,
        }
        self
    }

    /// The next document's text; `None` at the end.
    pub fn next_item(&mut self) -> Result<Option<Item>> {
        match &mut self.source {
            Source::Json(texts) => texts.next(),
            Source::Lines(records) => {
                let text = records.next()?;
                Ok(text.map(|text| Item {
                    line: records.record_line,
                    text,
                }))
            }
        }
    }
}

/// How far an array has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Begin,
    /// Behind `[`.
    Open,
    /// Behind a document.
    Document,
    /// Behind `]`.
    Closed,
}

struct JsonTexts<R> {
    bytes: Bytes<R>,
    is_array: bool,
    place: Place,
}

impl<R: Read> JsonTexts<R> {
    fn next(&mut self) -> Result<Option<Item>> {
        if self.place == Place::Begin {
            self.bytes.skip_mark()?;
        }
        if !self.is_array {
            self.place = Place::Document;
            return match self.skip_space()? {
                None => Ok(None),
                Some(b'{') => self.document().map(Some),
                Some(b'[') => self.bytes.fault(
                    self.bytes.line,
                    "an array where a document should begin: see --jsonArray",
                ),
                Some(_) => self.bytes.fault(self.bytes.line, "expected '{'"),
            };
        }
        loop {
            let line = self.bytes.line;
            let next = self.skip_space()?;
            match (self.place, next) {
                (Place::Closed, None) => return Ok(None),
                // A pipe from a program that failed has nothing in it either.
                (Place::Begin, None) => return self.bytes.fault(self.bytes.line, "expected '[', and there is nothing"),
                (Place::Begin, Some(b'[')) => {
                    self.bytes.next()?;
                    self.place = Place::Open;
                }
                (Place::Begin, Some(_)) => return self.bytes.fault(self.bytes.line, "expected '['"),
                (Place::Open | Place::Document, Some(b']')) => {
                    self.bytes.next()?;
                    self.place = Place::Closed;
                }
                (Place::Open, Some(b'{')) => {
                    self.place = Place::Document;
                    return self.document().map(Some);
                }
                (Place::Document, Some(b',')) => {
                    self.bytes.next()?;
                    if self.skip_space()? != Some(b'{') {
                        return self.bytes.fault(self.bytes.line, "expected '{' behind ','");
                    }
                    return self.document().map(Some);
                }
                (Place::Open | Place::Document, None) => return self.bytes.fault(line, "the array does not end"),
                (Place::Open, Some(_)) => return self.bytes.fault(self.bytes.line, "expected '{' or ']'"),
                (Place::Document, Some(_)) => return self.bytes.fault(self.bytes.line, "expected ',' or ']'"),
                (Place::Closed, Some(_)) => {
                    return self.bytes.fault(self.bytes.line, "there is something behind the array");
                }
            }
        }
    }

    fn skip_space(&mut self) -> Result<Option<u8>> {
        loop {
            match self.bytes.peek()? {
                Some(b' ' | b'\t' | b'\n' | b'\r') => drop(self.bytes.next()?),
                other => return Ok(other),
            }
        }
    }

    /// From `{` to the bracket that closes it. Whether it is JSON in between is left to who parses it.
    fn document(&mut self) -> Result<Item> {
        let line = self.bytes.line;
        let mut text = Vec::new();
        let mut depth = 0usize;
        let mut is_text = false;
        let mut is_escaped = false;
        while let Some(byte) = self.bytes.next()? {
            if text.len() >= TEXT_BYTES_MAX {
                return self
                    .bytes
                    .fault(line, format!("a document of more than {TEXT_BYTES_MAX} bytes"));
            }
            text.push(byte);
            if is_text {
                (is_escaped, is_text) = match byte {
                    b'\\' if !is_escaped => (true, true),
                    b'"' => (false, is_escaped),
                    _ => (false, true),
                };
                continue;
            }
            match byte {
                b'"' => is_text = true,
                b'{' | b'[' => depth += 1,
                b'}' | b']' => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                let ends = vec![text.len()];
                return Ok(Item {
                    line,
                    text: Record { bytes: text, ends },
                });
            }
        }
        self.bytes.fault(line, "a document begins here and does not end")
    }
}
