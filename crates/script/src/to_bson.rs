//! From JavaScript to BSON, by MongoDB's rules.
//!
//! Numbers are doubles, integral ones, too, but for those that were int32 in a document ([`crate::originals`]); what is
//! int32, int64 or decimal128 by itself is an object of the prelude. A function is code, `undefined` is BSON's. Nothing
//! of a value is trusted: getters may run scripts, and what says that it is an `ObjectId` need not be one.

use crate::error::{ScriptError, told};
use crate::limits::{DEPTH_MAX, RESULT_BYTES_MAX, VALUES_PER_CHECK};
use crate::originals::{Original, Originals};
use crate::prelude::Makers;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bson::oid::ObjectId;
use bson::{Decimal128, RawDocumentBuf};
use rquickjs::{Array, Ctx, Object, Type, Value};
use std::cell::Cell;

/// What writing fails with: an error of its own, or an exception that is pending.
pub(crate) enum WriteError {
    Script(ScriptError),
    Engine(rquickjs::Error),
}

impl From<rquickjs::Error> for WriteError {
    fn from(error: rquickjs::Error) -> Self {
        Self::Engine(error)
    }
}

impl From<ScriptError> for WriteError {
    fn from(error: ScriptError) -> Self {
        Self::Script(error)
    }
}

type Written = Result<(), WriteError>;

/// Writes one document.
pub(crate) struct Writer<'w, 'js> {
    ctx: &'w Ctx<'js>,
    makers: &'w Makers,
    originals: &'w Originals,
    is_interrupted: &'w dyn Fn() -> bool,
    out: Vec<u8>,
    values_left: Cell<u32>,
}

/// An open frame: where its length stands.
struct Frame(usize);

impl<'w, 'js> Writer<'w, 'js> {
    pub(crate) fn new(
        ctx: &'w Ctx<'js>,
        makers: &'w Makers,
        originals: &'w Originals,
        is_interrupted: &'w dyn Fn() -> bool,
    ) -> Self {
        Self {
            ctx,
            makers,
            originals,
            is_interrupted,
            out: vec![0; 4],
            values_left: Cell::new(VALUES_PER_CHECK),
        }
    }

    /// Appends a field to the document.
    pub(crate) fn append(&mut self, name: &str, value: &Value<'js>) -> Written {
        self.value(name, value, 0)
    }

    /// The document.
    pub(crate) fn finish(mut self) -> Result<RawDocumentBuf, ScriptError> {
        self.check_size()?;
        self.close(Frame(0));
        RawDocumentBuf::from_bytes(self.out).map_err(|_| ScriptError::Malformed)
    }

    fn header(&mut self, kind: u8, name: &str) -> Written {
        if name.contains('\0') {
            return Err(ScriptError::ZeroInName(told(name).to_owned()).into());
        }
        self.out.push(kind);
        self.out.extend_from_slice(name.as_bytes());
        self.out.push(0);
        Ok(())
    }

    fn open(&mut self) -> Frame {
        self.out.extend_from_slice(&[0; 4]);
        Frame(self.out.len() - 4)
    }

    fn close(&mut self, frame: Frame) {
        self.out.push(0);
        // All bytes are bounded by the limit of results.
        let length = (self.out.len() - frame.0) as u32;
        self.out[frame.0..frame.0 + 4].copy_from_slice(&length.to_le_bytes());
    }

    fn text(&mut self, text: &str) {
        self.out.extend_from_slice(&(text.len() as u32 + 1).to_le_bytes());
        self.out.extend_from_slice(text.as_bytes());
        self.out.push(0);
    }

    fn fixed(&mut self, kind: u8, name: &str, bytes: &[u8]) -> Written {
        self.header(kind, name)?;
        self.out.extend_from_slice(bytes);
        Ok(())
    }

    fn check_size(&self) -> Result<(), ScriptError> {
        let (bytes, max) = (self.out.len(), RESULT_BYTES_MAX);
        match bytes > max {
            true => Err(ScriptError::TooLarge { bytes, max }),
            false => Ok(()),
        }
    }

    /// Counts a value; looks at the size, and from time to time at whether to go on.
    fn step(&self) -> Written {
        self.check_size()?;
        match self.values_left.get() {
            0 if (self.is_interrupted)() => Err(ScriptError::Interrupted.into()),
            0 => {
                self.values_left.set(VALUES_PER_CHECK);
                Ok(())
            }
            left => {
                self.values_left.set(left - 1);
                Ok(())
            }
        }
    }

    fn value(&mut self, name: &str, value: &Value<'js>, depth: usize) -> Written {
        self.step()?;
        match value.type_of() {
            Type::Int | Type::Float => {
                let number = value.as_number().unwrap_or(f64::NAN);
                self.fixed(0x01, name, &number.to_le_bytes())
            }
            Type::Bool => self.fixed(0x08, name, &[u8::from(value.as_bool() == Some(true))]),
            Type::Null => self.fixed(0x0A, name, &[]),
            Type::Undefined | Type::Uninitialized => self.fixed(0x06, name, &[]),
            Type::String => {
                let text = self.string(value)?;
                self.header(0x02, name)?;
                self.text(&text);
                Ok(())
            }
            Type::Array => match value.as_array() {
                Some(array) => self.array(name, array, depth + 1),
                None => Err(not_bson(name)),
            },
            Type::Function | Type::Constructor => {
                let text: Value<'js> = self
                    .makers
                    .function_text
                    .clone()
                    .restore(self.ctx)?
                    .call((value.clone(),))?;
                let text = self.string(&text)?;
                self.header(0x0D, name)?;
                self.text(&text);
                Ok(())
            }
            _ => match value.as_object() {
                Some(object) => self.object(name, object, depth + 1),
                None => Err(not_bson(name)),
            },
        }
    }

    /// A string's text; halves of surrogate pairs are replaced.
    fn string(&self, value: &Value<'js>) -> Result<String, WriteError> {
        let Some(string) = value.as_string() else {
            return Err(ScriptError::Malformed.into());
        };
        match string.to_string() {
            Err(rquickjs::Error::Utf8(_)) => {
                let well_formed: String = self
                    .makers
                    .well_formed
                    .clone()
                    .restore(self.ctx)?
                    .call((value.clone(),))?;
                Ok(well_formed)
            }
            text => Ok(text?),
        }
    }

    fn array(&mut self, name: &str, array: &Array<'js>, depth: usize) -> Written {
        check_depth(depth)?;
        self.header(0x04, name)?;
        let frame = self.open();
        let original = self.original_of(array.as_object())?;
        for index in 0..array.len() {
            let item: Value<'js> = array.get(index)?;
            self.item(original.as_ref(), &index.to_string(), &item, depth)?;
        }
        self.close(frame);
        Ok(())
    }

    fn object(&mut self, name: &str, object: &Object<'js>, depth: usize) -> Written {
        let tag = self.makers.tag.clone().restore(self.ctx)?;
        let kind: Value<'js> = object.get(tag)?;
        if let Some(kind) = kind.as_int() {
            return self.typed(name, kind, object, depth);
        }
        check_depth(depth)?;
        self.header(0x03, name)?;
        let frame = self.open();
        self.fields(object, depth)?;
        self.close(frame);
        Ok(())
    }

    fn fields(&mut self, object: &Object<'js>, depth: usize) -> Written {
        let original = self.original_of(object)?;
        for property in object.keys::<Value<'js>>() {
            let property = self.string(&property?)?;
            let value: Value<'js> = object.get(property.as_str())?;
            self.item(original.as_ref(), &property, &value, depth)?;
        }
        Ok(())
    }

    fn original_of(&self, object: &Object<'js>) -> Result<Option<Original>, WriteError> {
        let origin = self.makers.origin.clone().restore(self.ctx)?;
        let number: Value<'js> = object.get(origin)?;
        Ok(number.as_int().and_then(|number| self.originals.get(number)))
    }

    /// A value that is part of what was `original`, if that is known.
    fn item(&mut self, original: Option<&Original>, name: &str, value: &Value<'js>, depth: usize) -> Written {
        let number = original.zip(value.as_number());
        match number.and_then(|(original, number)| original.as_int32(name, number)) {
            Some(number) => {
                self.step()?;
                self.fixed(0x10, name, &number.to_le_bytes())
            }
            None => self.value(name, value, depth),
        }
    }

    /// An object of a type of the prelude, if it holds what such a one does.
    fn typed(&mut self, name: &str, kind: i32, object: &Object<'js>, depth: usize) -> Written {
        let ctx = self.ctx;
        match kind {
            0x07 => {
                let id = ObjectId::parse_str(self.part(name, object, "str")?).map_err(|_| not_bson(name))?;
                self.fixed(0x07, name, &id.bytes())
            }
            0x12 => {
                let number: i64 = self.held_text(name, object)?.parse().map_err(|_| not_bson(name))?;
                self.fixed(0x12, name, &number.to_le_bytes())
            }
            0x10 => {
                let held = self.held(object)?;
                let number = held.as_number().ok_or_else(|| not_bson(name))?;
                self.fixed(0x10, name, &(number as i32).to_le_bytes())
            }
            0x13 => {
                let number: Decimal128 = self.held_text(name, object)?.parse().map_err(|_| not_bson(name))?;
                self.fixed(0x13, name, &number.bytes())
            }
            0x11 => {
                let part = |part: &str| -> Result<u32, WriteError> {
                    let value: Value<'js> = object.get(part)?;
                    let number = value.as_number().ok_or_else(|| not_bson(name))?;
                    match (0.0..4_294_967_296.0).contains(&number) {
                        true => Ok(number as u32),
                        false => Err(not_bson(name)),
                    }
                };
                let (t, i) = (part("t")?, part("i")?);
                self.fixed(0x11, name, &(u64::from(t) << 32 | u64::from(i)).to_le_bytes())
            }
            0x05 => {
                let subtype: Value<'js> = object.get("type")?;
                let subtype = subtype.as_number().filter(|number| (0.0..256.0).contains(number));
                let subtype = subtype.ok_or_else(|| not_bson(name))? as u8;
                let bytes = STANDARD
                    .decode(self.held_text(name, object)?)
                    .map_err(|_| not_bson(name))?;
                self.header(0x05, name)?;
                self.binary(subtype, &bytes);
                Ok(())
            }
            0x09 => {
                let ms: f64 = self.makers.time_of.clone().restore(ctx)?.call((object.clone(),))?;
                if ms.is_nan() {
                    return Err(not_bson(name));
                }
                self.fixed(0x09, name, &(ms as i64).to_le_bytes())
            }
            0x0B => {
                let parts: Vec<Value<'js>> = self.makers.regex_parts.clone().restore(ctx)?.call((object.clone(),))?;
                let [pattern, options] = parts.as_slice() else {
                    return Err(not_bson(name));
                };
                let (pattern, options) = (self.string(pattern)?, self.string(options)?);
                if pattern.contains('\0') || options.contains('\0') {
                    return Err(not_bson(name));
                }
                let mut options: Vec<char> = options.chars().collect();
                options.sort_unstable();
                let options: String = options.into_iter().collect();
                self.header(0x0B, name)?;
                for part in [&pattern, &options] {
                    self.out.extend_from_slice(part.as_bytes());
                    self.out.push(0);
                }
                Ok(())
            }
            0x0D => self.code(name, object, depth),
            0x0C => {
                let namespace = self.part(name, object, "ns")?;
                let id: Value<'js> = object.get("id")?;
                let id = id.as_object().ok_or_else(|| not_bson(name))?;
                let id = ObjectId::parse_str(self.part(name, id, "str")?).map_err(|_| not_bson(name))?;
                self.header(0x0C, name)?;
                self.text(&namespace);
                self.out.extend_from_slice(&id.bytes());
                Ok(())
            }
            0x7F => self.fixed(0x7F, name, &[]),
            0xFF => self.fixed(0xFF, name, &[]),
            _ => Err(not_bson(name)),
        }
    }

    fn code(&mut self, name: &str, object: &Object<'js>, depth: usize) -> Written {
        let code = self.part(name, object, "code")?;
        let scope: Value<'js> = object.get("scope")?;
        let Some(scope) = scope.as_object() else {
            self.header(0x0D, name)?;
            self.text(&code);
            return Ok(());
        };
        check_depth(depth)?;
        self.header(0x0F, name)?;
        let whole = self.open();
        self.text(&code);
        let frame = self.open();
        self.fields(scope, depth)?;
        self.close(frame);
        // This frame has no zero at its end.
        let length = (self.out.len() - whole.0) as u32;
        self.out[whole.0..whole.0 + 4].copy_from_slice(&length.to_le_bytes());
        Ok(())
    }

    fn binary(&mut self, subtype: u8, bytes: &[u8]) {
        // The old subtype repeats the length.
        let inner = if subtype == 2 { 4 } else { 0 };
        self.out.extend_from_slice(&(bytes.len() as u32 + inner).to_le_bytes());
        self.out.push(subtype);
        if subtype == 2 {
            self.out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
        }
        self.out.extend_from_slice(bytes);
    }

    fn held(&self, object: &Object<'js>) -> Result<Value<'js>, WriteError> {
        let held = self.makers.held.clone().restore(self.ctx)?;
        Ok(object.get(held)?)
    }

    fn held_text(&self, name: &str, object: &Object<'js>) -> Result<String, WriteError> {
        let value = self.held(object)?;
        match value.is_string() {
            true => self.string(&value),
            false => Err(not_bson(name)),
        }
    }

    /// A property that has to be a string.
    fn part(&self, name: &str, object: &Object<'js>, part: &str) -> Result<String, WriteError> {
        let value: Value<'js> = object.get(part)?;
        match value.is_string() {
            true => self.string(&value),
            false => Err(not_bson(name)),
        }
    }
}

fn not_bson(name: &str) -> WriteError {
    ScriptError::NotBson(told(name).to_owned()).into()
}

fn check_depth(depth: usize) -> Written {
    match depth > DEPTH_MAX {
        true => Err(ScriptError::TooDeep { max: DEPTH_MAX }.into()),
        false => Ok(()),
    }
}
