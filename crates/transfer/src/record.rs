//! Lines of CSV and TSV as values.
//!
//! As in mongoimport, spaces before a value of CSV do not count, a quote inside an unquoted value stands for itself,
//! and lines with nothing in them are passed over. A value in quotes keeps everything, ends of lines included.

use crate::error::{Doing, Result, TransferError};
use crate::limits::{COLUMNS_MAX, TEXT_BYTES_MAX};
use crate::separated::Separator;
use std::io::{BufRead, BufReader, Read};

/// The values of one line, one behind the other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    pub(crate) bytes: Vec<u8>,
    /// Where each value ends in `bytes`.
    pub(crate) ends: Vec<usize>,
}

impl Record {
    /// The values, in the order of the columns.
    pub(crate) fn values(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, &end)| &self.bytes[start..end])
    }

    fn is_blank(&self) -> bool {
        self.bytes.is_empty() && self.ends.len() <= 1
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Before a value: spaces and a quote mean something here.
    Start,
    /// In a value without quotes.
    Plain,
    /// In a value with quotes.
    Quoted,
    /// Behind a quote in a value with quotes: its end, or half of a doubled one.
    Quote,
}

/// Bytes of an input with a count of lines.
pub(crate) struct Bytes<R> {
    input: BufReader<R>,
    /// The line of the next byte, from 1.
    pub(crate) line: u64,
}

impl<R: Read> Bytes<R> {
    pub(crate) fn new(input: R) -> Self {
        Self {
            input: BufReader::with_capacity(1 << 16, input),
            line: 1,
        }
    }

    pub(crate) fn peek(&mut self) -> Result<Option<u8>> {
        let bytes = self.input.fill_buf().doing(|| "reading the input".to_owned())?;
        Ok(bytes.first().copied())
    }

    pub(crate) fn next(&mut self) -> Result<Option<u8>> {
        let byte = self.peek()?;
        if let Some(byte) = byte {
            self.input.consume(1);
            self.line += u64::from(byte == b'\n');
        }
        Ok(byte)
    }

    /// Steps over a byte order mark at the start of a file.
    pub(crate) fn skip_mark(&mut self) -> Result<()> {
        let bytes = self.input.fill_buf().doing(|| "reading the input".to_owned())?;
        if bytes.starts_with(&[0xEF, 0xBB, 0xBF]) {
            self.input.consume(3);
        }
        Ok(())
    }

    pub(crate) fn fault<T>(&self, line: u64, fault: impl Into<String>) -> Result<T> {
        Err(TransferError::Text {
            line,
            fault: fault.into(),
        })
    }
}

/// Reads records to the end of an input.
pub(crate) struct Records<R> {
    pub(crate) bytes: Bytes<R>,
    separator: Separator,
    is_first: bool,
    /// The line on which the last record began.
    pub(crate) record_line: u64,
}

impl<R: Read> Records<R> {
    pub(crate) fn new(input: R, separator: Separator) -> Self {
        Self {
            bytes: Bytes::new(input),
            separator,
            is_first: true,
            record_line: 1,
        }
    }

    /// The next record that has something in it.
    pub(crate) fn next(&mut self) -> Result<Option<Record>> {
        if std::mem::take(&mut self.is_first) {
            self.bytes.skip_mark()?;
        }
        loop {
            self.record_line = self.bytes.line;
            match self.record()? {
                Some((record, was_quoted)) if record.is_blank() && !was_quoted => {}
                other => return Ok(other.map(|(record, _)| record)),
            }
        }
    }

    /// One line, and whether a value of it has quotes.
    fn record(&mut self) -> Result<Option<(Record, bool)>> {
        if self.bytes.peek()?.is_none() {
            return Ok(None);
        }
        let has_quotes = self.separator == Separator::Comma;
        let separator = self.separator.byte();
        let mut record = Record::default();
        let mut state = State::Start;
        let mut was_quoted = false;
        loop {
            let line = self.bytes.line;
            let byte = self.bytes.next()?;
            match (state, byte) {
                (State::Quoted, None) => {
                    return self.bytes.fault(self.record_line, "a quoted value does not end");
                }
                (State::Quoted, Some(b'"')) => state = State::Quote,
                (State::Quote, Some(b'"')) => {
                    record.bytes.push(b'"');
                    state = State::Quoted;
                }
                (State::Quoted, Some(byte)) => record.bytes.push(byte),
                (State::Start, Some(b' ' | b'\t')) if has_quotes => {}
                (State::Start, Some(b'"')) if has_quotes => {
                    was_quoted = true;
                    state = State::Quoted;
                }
                (_, None | Some(b'\n')) => {
                    // CR LF ends a line, too.
                    let start = record.ends.last().copied().unwrap_or(0);
                    if state == State::Plain && record.bytes.len() > start && record.bytes.ends_with(b"\r") {
                        record.bytes.pop();
                    }
                    record.ends.push(record.bytes.len());
                    return Ok(Some((record, was_quoted)));
                }
                (_, Some(byte)) if byte == separator => {
                    record.ends.push(record.bytes.len());
                    state = State::Start;
                }
                (State::Quote, Some(b'\r')) if self.bytes.peek()? == Some(b'\n') => {}
                (State::Quote, Some(_)) => {
                    return self
                        .bytes
                        .fault(line, "characters between a closing quote and the next comma");
                }
                (_, Some(byte)) => {
                    record.bytes.push(byte);
                    state = State::Plain;
                }
            }
            if record.bytes.len() > TEXT_BYTES_MAX {
                return self
                    .bytes
                    .fault(self.record_line, format!("more than {TEXT_BYTES_MAX} bytes"));
            }
            if record.ends.len() >= COLUMNS_MAX {
                return self
                    .bytes
                    .fault(self.record_line, format!("{COLUMNS_MAX} columns or more"));
            }
        }
    }
}
