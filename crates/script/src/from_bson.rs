//! From BSON to JavaScript.
//!
//! int32 and double are numbers; int64, decimal128 and what JavaScript has no type for are objects of the prelude. A
//! symbol is a string, as in MongoDB.

use crate::error::ScriptError;
use crate::originals::Originals;
use crate::prelude::Makers;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bson::oid::ObjectId;
use bson::raw::cstr;
use bson::{RawBsonRef, RawDocument, RawDocumentBuf};
use rquickjs::object::Property;
use rquickjs::{Array, Ctx, Object, String as JsString, Value};
use std::cell::RefCell;
use std::rc::Rc;

/// The times that JavaScript's dates have are so far from its epoch, at most.
const DATE_MS_MAX: i64 = 8_640_000_000_000_000;

/// Makes JavaScript's values of BSON's.
pub(crate) struct Reader<'r, 'js> {
    pub(crate) ctx: &'r Ctx<'js>,
    pub(crate) makers: &'r Makers,
    /// Where what is read is kept, if it may come back.
    pub(crate) originals: Option<&'r Originals>,
    /// The copy of the whole that is being read, when a part of it was the first to need one.
    pub(crate) kept: RefCell<Option<Rc<[u8]>>>,
}

/// What reading fails with: an error of its own, or an exception that is pending.
pub(crate) enum ReadError {
    Script(ScriptError),
    Engine(rquickjs::Error),
}

impl From<rquickjs::Error> for ReadError {
    fn from(error: rquickjs::Error) -> Self {
        Self::Engine(error)
    }
}

impl From<bson::error::Error> for ReadError {
    fn from(_: bson::error::Error) -> Self {
        Self::Script(ScriptError::Malformed)
    }
}

impl From<ScriptError> for ReadError {
    fn from(error: ScriptError) -> Self {
        Self::Script(error)
    }
}

impl ReadError {
    pub(crate) fn or_else(self, engine: impl FnOnce(rquickjs::Error) -> ScriptError) -> ScriptError {
        match self {
            Self::Script(error) => error,
            Self::Engine(error) => engine(error),
        }
    }
}

type Read<'js> = Result<Value<'js>, ReadError>;

/// A value that holds others.
#[derive(Clone, Copy)]
struct Container<'b> {
    kind: ContainerKind<'b>,
    fields: &'b RawDocument,
}

#[derive(Clone, Copy)]
enum ContainerKind<'b> {
    Document,
    Array,
    Scope { code: &'b str },
}

impl<'b> Container<'b> {
    fn document(fields: &'b RawDocument) -> Self {
        let kind = ContainerKind::Document;
        Self { kind, fields }
    }

    fn of(value: RawBsonRef<'b>) -> Result<Option<Self>, ReadError> {
        let (kind, fields) = match value {
            RawBsonRef::Document(fields) => (ContainerKind::Document, fields),
            RawBsonRef::Array(items) => (ContainerKind::Array, RawDocument::from_bytes(items.as_bytes())?),
            RawBsonRef::JavaScriptCodeWithScope(code) => (ContainerKind::Scope { code: code.code }, code.scope),
            _ => return Ok(None),
        };
        Ok(Some(Self { kind, fields }))
    }
}

/// A container whose values are being read.
struct Open<'b, 'js> {
    container: Container<'b>,
    made: Made<'js>,
    elements: <&'b RawDocument as IntoIterator>::IntoIter,
    /// The field that is being read.
    name: &'b str,
}

/// What a container becomes.
enum Made<'js> {
    Object(Object<'js>),
    /// With the index of the next item.
    Array(Array<'js>, usize),
}

impl<'js> Open<'_, 'js> {
    /// Sets the field that is being read.
    fn set(&mut self, value: Value<'js>) -> Result<(), ReadError> {
        match (&mut self.made, self.name) {
            (Made::Array(array, next), _) => {
                array.set(*next, value)?;
                *next += 1;
            }
            // Setting that would change the prototype.
            (Made::Object(object), "__proto__") => {
                let property = Property::from(value).configurable().enumerable().writable();
                object.prop("__proto__", property)?;
            }
            (Made::Object(object), name) => object.set(name, value)?,
        }
        Ok(())
    }
}

/// Whether a document or an array has what is lost in JavaScript: which numbers were int32, and where fields stand that
/// have the name of an index. One that is damaged tells as much as its beginning does.
fn has_more_than_javascript(object: &Object<'_>, part: &[u8]) -> bool {
    let document = RawDocument::from_bytes(part).ok();
    let mut elements = document.into_iter().flatten().map_while(Result::ok);
    elements.any(|(name, value)| {
        let is_index = !object.is_array() && name.as_str().starts_with(|c: char| c.is_ascii_digit());
        is_index || matches!(value, RawBsonRef::Int32(_))
    })
}

impl<'js> Reader<'_, 'js> {
    /// A document.
    pub(crate) fn document(&self, document: &RawDocument) -> Result<Object<'js>, ReadError> {
        self.kept.take();
        let read = self.nested(document.as_bytes(), Container::document(document))?;
        read.into_object().ok_or(ScriptError::Malformed.into())
    }

    /// The values of a document.
    pub(crate) fn values(&self, document: &RawDocument) -> Result<Vec<Value<'js>>, ReadError> {
        self.kept.take();
        let whole = document.as_bytes();
        document
            .into_iter()
            .map(|element| self.value(whole, element?.1))
            .collect()
    }

    /// A document that is part of a whole, or a value of another kind that holds values. Does not recurse: stored
    /// documents nest deeper than a thread's stack would bear.
    fn nested(&self, whole: &[u8], outermost: Container<'_>) -> Read<'js> {
        let mut around = Vec::new();
        let mut current = self.open(outermost)?;
        loop {
            if let Some(element) = current.elements.next() {
                let (name, value) = element?;
                current.name = name.as_str();
                match Container::of(value)? {
                    Some(inner) => around.push(std::mem::replace(&mut current, self.open(inner)?)),
                    None => current.set(self.scalar(value)?)?,
                }
                continue;
            }
            let closed = self.close(whole, current)?;
            current = match around.pop() {
                Some(outer) => outer,
                None => return Ok(closed),
            };
            current.set(closed)?;
        }
    }

    fn open<'b>(&self, container: Container<'b>) -> Result<Open<'b, 'js>, ReadError> {
        let made = match container.kind {
            ContainerKind::Array => Made::Array(Array::new(self.ctx.clone())?, 0),
            _ => Made::Object(Object::new(self.ctx.clone())?),
        };
        Ok(Open {
            container,
            made,
            elements: container.fields.into_iter(),
            name: "",
        })
    }

    fn close(&self, whole: &[u8], open: Open<'_, 'js>) -> Read<'js> {
        let object = match &open.made {
            Made::Object(object) => object,
            Made::Array(array, _) => array.as_object(),
        };
        self.note_origin(object, whole, open.container.fields.as_bytes())?;
        match open.container.kind {
            ContainerKind::Scope { code } => {
                let parts = (self.text(code)?, object.clone());
                Ok(self.makers.code.clone().restore(self.ctx)?.call(parts)?)
            }
            _ => Ok(object.clone().into_value()),
        }
    }

    fn note_origin(&self, object: &Object<'js>, whole: &[u8], part: &[u8]) -> Result<(), ReadError> {
        let Some(originals) = self.originals.filter(|_| has_more_than_javascript(object, part)) else {
            return Ok(());
        };
        // A part is a slice of its whole.
        let start = part.as_ptr().addr().checked_sub(whole.as_ptr().addr());
        let start = start.filter(|start| start + part.len() <= whole.len());
        let start = start.ok_or(ScriptError::Malformed)?;
        let known = self.kept.borrow().clone();
        let kept = match known {
            Some(kept) => kept,
            None => {
                let kept = originals.keep_whole(whole)?;
                self.kept.replace(Some(kept.clone()));
                kept
            }
        };
        let number = originals.note(&kept, start, part.len())?;
        let origin = self.makers.origin.clone().restore(self.ctx)?;
        object.prop(origin, Property::from(number))?;
        Ok(())
    }

    fn text(&self, text: &str) -> Read<'js> {
        Ok(JsString::from_str(self.ctx.clone(), text)?.into_value())
    }

    /// A value that is part of a whole.
    fn value(&self, whole: &[u8], value: RawBsonRef<'_>) -> Read<'js> {
        match Container::of(value)? {
            Some(container) => self.nested(whole, container),
            None => self.scalar(value),
        }
    }

    /// A value that holds no others.
    fn scalar(&self, value: RawBsonRef<'_>) -> Read<'js> {
        let (ctx, makers) = (self.ctx, self.makers);
        Ok(match value {
            RawBsonRef::Double(number) => Value::new_float(ctx.clone(), number),
            RawBsonRef::Int32(number) => Value::new_int(ctx.clone(), number),
            RawBsonRef::Boolean(value) => Value::new_bool(ctx.clone(), value),
            RawBsonRef::Null => Value::new_null(ctx.clone()),
            RawBsonRef::Undefined => Value::new_undefined(ctx.clone()),
            RawBsonRef::String(text) | RawBsonRef::Symbol(text) => self.text(text)?,
            RawBsonRef::Int64(number) => makers.long.clone().restore(ctx)?.call((number.to_string(),))?,
            RawBsonRef::ObjectId(id) => makers.object_id.clone().restore(ctx)?.call((id.to_hex(),))?,
            RawBsonRef::Decimal128(number) => makers.decimal.clone().restore(ctx)?.call((number.to_string(),))?,
            RawBsonRef::DateTime(time) => {
                let ms = time.timestamp_millis();
                match (-DATE_MS_MAX..=DATE_MS_MAX).contains(&ms) {
                    true => makers.date.clone().restore(ctx)?.call((ms as f64,))?,
                    false => makers.far_date.clone().restore(ctx)?.call((ms.to_string(),))?,
                }
            }
            RawBsonRef::Timestamp(time) => {
                let (t, i) = (f64::from(time.time), f64::from(time.increment));
                makers.timestamp.clone().restore(ctx)?.call((t, i))?
            }
            RawBsonRef::Binary(binary) => {
                let base64 = STANDARD.encode(binary.bytes);
                let subtype = i32::from(u8::from(binary.subtype));
                makers.binary.clone().restore(ctx)?.call((subtype, base64))?
            }
            RawBsonRef::RegularExpression(regex) => {
                let parts = (self.text(regex.pattern.as_str())?, self.text(regex.options.as_str())?);
                makers.regex.clone().restore(ctx)?.call(parts)?
            }
            RawBsonRef::JavaScriptCode(code) => makers.code.clone().restore(ctx)?.call((self.text(code)?,))?,
            RawBsonRef::Document(_) | RawBsonRef::Array(_) | RawBsonRef::JavaScriptCodeWithScope(_) => {
                return Err(ScriptError::Malformed.into());
            }
            RawBsonRef::DbPointer(_) => {
                let (ns, id) = pointer_parts(value)?;
                let id: Value<'js> = makers.object_id.clone().restore(ctx)?.call((id,))?;
                makers.pointer.clone().restore(ctx)?.call((ns, id))?
            }
            RawBsonRef::MinKey => makers.min_key.clone().restore(ctx)?.call(())?,
            RawBsonRef::MaxKey => makers.max_key.clone().restore(ctx)?.call(())?,
        })
    }
}

/// The namespace of a DBPointer, and its id in hexadecimal. `bson` keeps them to itself: they are read from its bytes.
fn pointer_parts(pointer: RawBsonRef<'_>) -> Result<(String, String), ReadError> {
    let mut document = RawDocumentBuf::new();
    document.append(cstr!(""), pointer);
    // Length (4), type (1), the empty name (1), the namespace with its length (4) and its zero (1), id (12), zero (1).
    let bytes = document.as_bytes();
    let parts = bytes.len().checked_sub(24).and_then(|length| {
        let namespace = bytes.get(10..10 + length)?;
        let id: [u8; 12] = bytes.get(11 + length..23 + length)?.try_into().ok()?;
        Some((
            std::str::from_utf8(namespace).ok()?.to_owned(),
            ObjectId::from_bytes(id).to_hex(),
        ))
    });
    parts.ok_or(ScriptError::Malformed.into())
}
