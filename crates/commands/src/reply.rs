//! Writes a reply document straight into the connection's send buffer.
//!
//! Invariant: `open` holds the start offsets of the documents that are begun and not yet ended, outermost first; their
//! lengths are patched in when they end.

use bson::raw::{RawArray, RawBsonRef, RawDocument};
use bson::spec::{BinarySubtype, ElementType};
use bson::{Bson, DateTime, Document, Timestamp};

/// A count or a size as MongoDB answers it: 32 bits where it fits, else 64. Typed clients insist.
pub fn narrowed(number: i64) -> Bson {
    i32::try_from(number).map_or(Bson::Int64(number), Bson::Int32)
}

/// A BSON document being written at the end of a buffer.
pub struct Reply<'b> {
    buffer: &'b mut Vec<u8>,
    open: Vec<usize>,
}

impl<'b> Reply<'b> {
    /// Begins a document at the end of `buffer`.
    pub fn begin(buffer: &'b mut Vec<u8>) -> Self {
        let mut reply = Self {
            buffer,
            open: Vec::with_capacity(4),
        };
        reply.open_length();
        reply
    }

    fn open_length(&mut self) {
        self.open.push(self.buffer.len());
        self.buffer.extend_from_slice(&[0; 4]);
    }

    fn header(&mut self, element_type: ElementType, name: &str) {
        debug_assert!(!name.as_bytes().contains(&0), "field names hold no NUL");
        self.buffer.push(element_type as u8);
        self.buffer.extend_from_slice(name.as_bytes());
        self.buffer.push(0);
    }

    /// Forgets everything written since [`Reply::begin`] and starts again.
    pub fn restart(&mut self) {
        let start = self.open[0];
        self.buffer.truncate(start);
        self.open.clear();
        self.open_length();
    }

    /// Bytes written so far, the outermost document's header included.
    pub fn len(&self) -> usize {
        self.buffer.len() - self.open[0]
    }

    /// 32-bit integer.
    pub fn int32(&mut self, name: &str, value: i32) {
        self.header(ElementType::Int32, name);
        self.buffer.extend_from_slice(&value.to_le_bytes());
    }

    /// 64-bit integer.
    pub fn int64(&mut self, name: &str, value: i64) {
        self.header(ElementType::Int64, name);
        self.buffer.extend_from_slice(&value.to_le_bytes());
    }

    /// A 64-bit integer that is known only when what follows it is written; answers where [`Reply::fill_int64`] finds
    /// it.
    pub fn reserve_int64(&mut self, name: &str) -> usize {
        self.int64(name, 0);
        self.buffer.len() - size_of::<i64>()
    }

    /// Fills in what was left open.
    pub fn fill_int64(&mut self, at: usize, value: i64) {
        self.buffer[at..at + size_of::<i64>()].copy_from_slice(&value.to_le_bytes());
    }

    /// 32 bits where the value fits, else 64.
    pub fn count(&mut self, name: &str, value: i64) {
        match i32::try_from(value) {
            Ok(value) => self.int32(name, value),
            Err(_) => self.int64(name, value),
        }
    }

    /// Double.
    pub fn double(&mut self, name: &str, value: f64) {
        self.header(ElementType::Double, name);
        self.buffer.extend_from_slice(&value.to_le_bytes());
    }

    /// Boolean.
    pub fn boolean(&mut self, name: &str, value: bool) {
        self.header(ElementType::Boolean, name);
        self.buffer.push(u8::from(value));
    }

    /// String.
    pub fn string(&mut self, name: &str, value: &str) {
        self.header(ElementType::String, name);
        self.buffer.extend_from_slice(&(value.len() as u32 + 1).to_le_bytes());
        self.buffer.extend_from_slice(value.as_bytes());
        self.buffer.push(0);
    }

    /// Null.
    pub fn null(&mut self, name: &str) {
        self.header(ElementType::Null, name);
    }

    /// Date.
    pub fn date(&mut self, name: &str, value: DateTime) {
        self.header(ElementType::DateTime, name);
        self.buffer.extend_from_slice(&value.timestamp_millis().to_le_bytes());
    }

    /// Timestamp.
    pub fn timestamp(&mut self, name: &str, value: Timestamp) {
        self.header(ElementType::Timestamp, name);
        self.buffer.extend_from_slice(&value.increment.to_le_bytes());
        self.buffer.extend_from_slice(&value.time.to_le_bytes());
    }

    /// Binary data of the generic subtype.
    pub fn generic_binary(&mut self, name: &str, bytes: &[u8]) {
        self.header(ElementType::Binary, name);
        self.buffer.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
        self.buffer.push(BinarySubtype::Generic.into());
        self.buffer.extend_from_slice(bytes);
    }

    /// An embedded document, copied as it is.
    pub fn document(&mut self, name: &str, value: &RawDocument) {
        self.header(ElementType::EmbeddedDocument, name);
        self.buffer.extend_from_slice(value.as_bytes());
    }

    /// An array, copied as it is.
    pub fn raw_array(&mut self, name: &str, value: &RawArray) {
        self.header(ElementType::Array, name);
        self.buffer.extend_from_slice(value.as_bytes());
    }

    /// Any value.
    pub fn value(&mut self, name: &str, value: &Bson) {
        match value {
            Bson::Int32(v) => self.int32(name, *v),
            Bson::Int64(v) => self.int64(name, *v),
            Bson::Double(v) => self.double(name, *v),
            Bson::Boolean(v) => self.boolean(name, *v),
            Bson::String(v) => self.string(name, v),
            Bson::DateTime(v) => self.date(name, *v),
            Bson::Timestamp(v) => self.timestamp(name, *v),
            Bson::Null => self.null(name),
            Bson::Document(v) => {
                self.open_document(name);
                self.append_all(v);
                self.close();
            }
            Bson::Array(values) => {
                self.open_array(name);
                for (index, value) in values.iter().enumerate() {
                    self.value(&index.to_string(), value);
                }
                self.close();
            }
            other => self.encoded(name, other),
        }
    }

    /// A value of the rarer types: encoded by `bson` in a document of its own, whose one element is copied.
    fn encoded(&mut self, name: &str, value: &Bson) {
        let mut single = Document::new();
        single.insert("", value.clone());
        if let Ok(bytes) = single.to_vec() {
            self.buffer.push(bytes[4]);
            self.buffer.extend_from_slice(name.as_bytes());
            self.buffer.push(0);
            self.buffer.extend_from_slice(&bytes[6..bytes.len() - 1]);
        }
    }

    /// A borrowed value of any type.
    pub fn raw_value(&mut self, name: &str, value: RawBsonRef<'_>) {
        match value {
            RawBsonRef::Document(document) => self.document(name, document),
            RawBsonRef::Array(array) => self.raw_array(name, array),
            RawBsonRef::Int32(v) => self.int32(name, v),
            RawBsonRef::String(v) => self.string(name, v),
            other => {
                if let Ok(value) = Bson::try_from(other) {
                    self.value(name, &value);
                }
            }
        }
    }

    /// Every field of `fields`.
    pub fn append_all(&mut self, fields: &Document) {
        for (name, value) in fields {
            self.value(name, value);
        }
    }

    /// Begins an embedded document; [`Reply::close`] ends it.
    pub fn open_document(&mut self, name: &str) {
        self.header(ElementType::EmbeddedDocument, name);
        self.open_length();
    }

    /// Begins an array whose elements are named by their index; [`Reply::close`] ends it.
    pub fn open_array(&mut self, name: &str) {
        self.header(ElementType::Array, name);
        self.open_length();
    }

    /// Adds a document to the array that is open, as its element `index`.
    pub fn element(&mut self, index: usize, document: &RawDocument) {
        self.buffer.push(ElementType::EmbeddedDocument as u8);
        query::raw::append_decimal(self.buffer, index);
        self.buffer.push(0);
        self.buffer.extend_from_slice(document.as_bytes());
    }

    /// Ends the innermost open document or array.
    pub fn close(&mut self) {
        debug_assert!(self.open.len() > 1, "the outermost document is ended by finish");
        self.close_one();
    }

    fn close_one(&mut self) {
        self.buffer.push(0);
        if let Some(start) = self.open.pop() {
            let length = (self.buffer.len() - start) as u32;
            self.buffer[start..start + 4].copy_from_slice(&length.to_le_bytes());
        }
    }

    /// Ends whatever is open, the outermost document last.
    pub fn finish(mut self) {
        while !self.open.is_empty() {
            self.close_one();
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use bson::{doc, oid::ObjectId};

    #[test]
    fn a_reply_reads_back_as_written() {
        let id = ObjectId::from_bytes([7; 12]);
        let nested = doc! { "x": 1, "list": [1_i64, "two", null, { "y": 2.5 }], "id": id };
        let mut buffer = b"before".to_vec();
        let mut reply = Reply::begin(&mut buffer);
        reply.int32("a", 1);
        reply.open_document("cursor");
        reply.open_array("firstBatch");
        let bytes = nested.to_vec().unwrap();
        for index in 0..12 {
            reply.element(index, RawDocument::from_bytes(&bytes).unwrap());
        }
        reply.close();
        reply.value("nested", &Bson::Document(nested.clone()));
        reply.close();
        reply.double("ok", 1.0);
        reply.finish();
        let read = Document::from_reader(&buffer[6..]).unwrap();
        assert_eq!(
            read,
            doc! { "a": 1, "cursor": { "firstBatch": vec![nested.clone(); 12], "nested": nested }, "ok": 1.0 }
        );
    }

    #[test]
    fn restart_forgets_what_was_written() {
        let mut buffer = Vec::new();
        let mut reply = Reply::begin(&mut buffer);
        reply.open_document("half");
        reply.string("done", "no");
        reply.restart();
        reply.double("ok", 0.0);
        reply.finish();
        assert_eq!(Document::from_reader(&buffer[..]).unwrap(), doc! { "ok": 0.0 });
    }
}
