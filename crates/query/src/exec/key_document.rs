//! Documents made of index keys, for covered projections and `returnKey`.

use super::row::RowKey;
use crate::QueryError;
use crate::plan::convert::has_position;
use bson::raw::{RawBsonRef, RawDocument};
use bson::spec::{BinarySubtype, ElementType};
use keys::FieldKind;
use keys::extract::PATH_FIELD;
use keys::key::{DecodeError, KeyDecoder};
use storage::{Index, RecordId};
use wire::ErrorCode;

/// Rebuilds documents from keys. Keeps its buffers from row to row.
#[derive(Default)]
pub(crate) struct KeyDocument {
    buffer: Vec<u8>,
}

impl KeyDocument {
    /// The fields under their dotted names: what `returnKey` shows.
    pub(crate) fn flat(&mut self, key: RowKey<'_>) -> Result<&[u8], QueryError> {
        let pattern = key.index.pattern();
        let mut decoder = KeyDecoder::new(key.key, key.type_bits, pattern.ordering()).showing_sort_keys();
        self.begin();
        let mut path = String::new();
        for field in pattern.fields() {
            // The value of a wildcard has the path that its key tells.
            let name = match field.kind() {
                FieldKind::Wildcard if !path.is_empty() => &path,
                _ => field.path(),
            };
            let start = self.buffer.len();
            let present = decoder
                .append_field(name, &mut self.buffer)
                .map_err(|error| damaged(key, error))?;
            if field.kind() == FieldKind::Path {
                // A string: its type, the name, four bytes of length, a NUL at the end.
                let text = start + 1 + PATH_FIELD.len() + 1 + 4;
                let text = self.buffer.get(text..self.buffer.len() - 1).unwrap_or_default();
                path = String::from_utf8_lossy(text).into_owned();
            }
            if !present {
                self.buffer.push(0x0A);
                self.buffer.extend_from_slice(field.path().as_bytes());
                self.buffer.push(0);
            }
        }
        Ok(self.end(0))
    }

    /// The document as far as the key tells: dotted fields in their documents. `None` when the key does not tell
    /// everything (a missing nested field, arrays): then the record has to be read. `_id` comes first, as in documents;
    /// the other fields come in the index' order. Only for patterns whose fields with a common first part stand
    /// together, see [`can_nest`].
    pub(crate) fn nested(&mut self, key: RowKey<'_>) -> Result<Option<&[u8]>, QueryError> {
        if key.index.wildcard().is_some() {
            return self.nested_path(key);
        }
        if crate::plan::access::multikey_bits(key.index) != 0 {
            return Ok(None);
        }
        let pattern = key.index.pattern();
        let mut decoder = KeyDecoder::new(key.key, key.type_bits, pattern.ordering());
        self.begin();
        // Documents that are open: first part of the path and where the length goes.
        let mut open: Option<(&str, usize)> = None;
        let mut id_element = 0..0;
        for field in pattern.fields() {
            let (outer, name) = match field.path().split_once('.') {
                Some((outer, name)) => (Some(outer), name),
                None => (None, field.path()),
            };
            if let Some((part, start)) = open.filter(|(part, _)| Some(*part) != outer) {
                let _ = part;
                self.end(start);
                open = None;
            }
            if let (Some(outer), None) = (outer, open) {
                self.buffer.push(0x03);
                self.buffer.extend_from_slice(outer.as_bytes());
                self.buffer.push(0);
                open = Some((outer, self.buffer.len()));
                self.buffer.extend_from_slice(&[0; 4]);
            }
            let start = self.buffer.len();
            let present = decoder
                .append_field(name, &mut self.buffer)
                .map_err(|error| damaged(key, error))?;
            if !present && outer.is_some() {
                return Ok(None);
            }
            if outer.is_none() && name == "_id" {
                id_element = start..self.buffer.len();
            }
        }
        if let Some((_, start)) = open {
            self.end(start);
        }
        self.buffer[4..id_element.end.max(4)].rotate_right(id_element.len());
        Ok(Some(self.end(0)))
    }

    /// The path in a key of a wildcard index.
    fn path(&mut self, key: RowKey<'_>, decoder: &mut KeyDecoder<'_>) -> Result<String, QueryError> {
        match self.value(decoder).map_err(|error| damaged(key, error))? {
            Some(RawBsonRef::String(path)) => Ok(path.to_owned()),
            _ => Err(QueryError::new(
                ErrorCode::InternalError,
                format!("a key of index {} has no path", key.index.name()),
            )),
        }
    }

    /// The next value of a key; `None` where the key says that there is none.
    pub(crate) fn value(&mut self, decoder: &mut KeyDecoder<'_>) -> Result<Option<RawBsonRef<'_>>, DecodeError> {
        self.begin();
        let is_there = decoder.append_field("", &mut self.buffer)?;
        let document = RawDocument::from_bytes(self.end(0)).ok();
        Ok(document
            .and_then(|document| document.get("").ok().flatten())
            .filter(|_| is_there))
    }

    /// As [`KeyDocument::nested`], of a wildcard index: its path alone, as deep as it is.
    fn nested_path(&mut self, key: RowKey<'_>) -> Result<Option<&[u8]>, QueryError> {
        let mut decoder = KeyDecoder::new(key.key, key.type_bits, key.index.pattern().ordering());
        let path = self.path(key, &mut decoder)?;
        if crate::plan::wildcard::holds_arrays(key.index, &path) {
            return Ok(None);
        }
        self.begin();
        let mut starts = Vec::new();
        let mut names = path.split('.').peekable();
        while let Some(name) = names.next() {
            if names.peek().is_some() {
                self.buffer.push(0x03);
                self.buffer.extend_from_slice(name.as_bytes());
                self.buffer.push(0);
                starts.push(self.buffer.len());
                self.buffer.extend_from_slice(&[0; 4]);
                continue;
            }
            decoder
                .append_field(name, &mut self.buffer)
                .map_err(|error| damaged(key, error))?;
        }
        for start in starts.into_iter().rev() {
            self.end(start);
        }
        Ok(Some(self.end(0)))
    }

    fn begin(&mut self) {
        self.buffer.clear();
        self.buffer.extend_from_slice(&[0; 4]);
    }

    /// Ends the document that starts at `start` and returns the whole buffer.
    fn end(&mut self, start: usize) -> &[u8] {
        self.buffer.push(0);
        let length = (self.buffer.len() - start) as u32;
        self.buffer[start..start + 4].copy_from_slice(&length.to_le_bytes());
        &self.buffer
    }
}

/// True when the keys of an index without arrays tell these fields of documents.
pub(crate) fn holds_fields(index: &Index, wanted: &[String]) -> bool {
    // What the strings, or the hashed values and geometries were is not in such keys.
    if index.collation().is_some() || index.pattern().special().is_some() {
        return false;
    }
    let fields = index.pattern().fields();
    // A projection does not go into arrays by position, as the keys do.
    can_nest(fields.iter().map(|field| field.path()))
        && !fields.iter().any(|field| has_position(field.path()))
        && wanted
            .iter()
            .all(|path| fields.iter().any(|field| field.path() == path))
}

/// True when documents can be rebuilt from keys of these paths: none is nested deeper than one document, and no
/// document comes up twice.
fn can_nest<'p>(paths: impl Iterator<Item = &'p str>) -> bool {
    let mut met: Vec<&str> = Vec::new();
    let mut open: Option<&str> = None;
    for path in paths {
        let (outer, nested) = match path.split_once('.') {
            Some((outer, rest)) if !rest.contains('.') => (outer, true),
            Some(_) => return false,
            None => (path, false),
        };
        let continues = nested && open == Some(outer);
        if !continues && met.contains(&outer) {
            return false;
        }
        met.push(outer);
        open = nested.then_some(outer);
    }
    true
}

/// Adds `$recordId` to a document.
pub(crate) fn append_record_id(document: &mut Vec<u8>, id: &RecordId) {
    document.pop();
    let (tag, length) = match id {
        RecordId::Number(_) => (ElementType::Int64, None),
        RecordId::Key(key) => (ElementType::Binary, Some(key.len() as u32)),
    };
    document.push(tag as u8);
    document.extend_from_slice(b"$recordId\0");
    match (id, length) {
        (RecordId::Key(key), Some(length)) => {
            document.extend_from_slice(&length.to_le_bytes());
            document.push(u8::from(BinarySubtype::Generic));
            document.extend_from_slice(key);
        }
        (id, _) => document.extend_from_slice(&id.number().to_le_bytes()),
    }
    document.push(0);
    let length = document.len() as u32;
    if let Some(header) = document.first_chunk_mut::<4>() {
        *header = length.to_le_bytes();
    }
}

fn damaged(key: RowKey<'_>, error: DecodeError) -> QueryError {
    QueryError::new(
        ErrorCode::InternalError,
        format!("a key of index {} cannot be decoded: {error}", key.index.name()),
    )
}

#[cfg(test)]
mod tests {
    use super::can_nest;

    #[test]
    fn only_plain_patterns_nest() {
        assert!(can_nest(["a", "b.c", "b.d", "e"].into_iter()));
        assert!(!can_nest(["b.c", "a", "b.d"].into_iter()));
        assert!(!can_nest(["a.b.c"].into_iter()));
        assert!(!can_nest(["a.b", "a"].into_iter()));
        assert!(!can_nest(["a", "a.b"].into_iter()));
    }
}
