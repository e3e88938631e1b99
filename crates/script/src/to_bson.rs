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
use rquickjs::object::Filter;
use rquickjs::{Array, Atom, Ctx, Object, Type, Value};
use std::cell::Cell;
use std::collections::{HashMap, HashSet};

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
    /// Bytes that the fields of open containers will take at least, which are known by name and not yet written.
    pending_bytes: Cell<usize>,
}

/// An open frame: where its length stands.
#[derive(Clone, Copy)]
struct Frame(usize);

/// A value that holds others, which are being written.
struct Container<'js> {
    frame: Frame,
    /// The frame around it, of code with this scope.
    code: Option<Frame>,
    values: Values<'js>,
}

/// What writing a value begins, if that holds others.
type Begun<'js> = Result<Option<Container<'js>>, WriteError>;

/// What is left to be written of a container.
enum Values<'js> {
    Fields {
        object: Object<'js>,
        names: std::vec::IntoIter<Name<'js>>,
    },
    Items {
        array: Array<'js>,
        next: usize,
        length: usize,
        /// Whether the items of the original were int32.
        were_int32: Vec<bool>,
    },
}

struct Name<'js> {
    name: String,
    key: Atom<'js>,
    was_int32: bool,
}

/// Bytes that a field of this name takes at least: without its value.
fn field_bytes_min(name: &str) -> usize {
    name.len() + 2
}

/// A value to be written.
struct Field<'js> {
    name: String,
    value: Value<'js>,
    /// It was an int32, and is one if it can be.
    was_int32: bool,
}

impl<'js> Values<'js> {
    fn next(&mut self) -> Result<Option<Field<'js>>, WriteError> {
        match self {
            Self::Fields { object, names } => {
                let Some(Name { name, key, was_int32 }) = names.next() else {
                    return Ok(None);
                };
                let value = object.get(key)?;
                Ok(Some(Field { name, value, was_int32 }))
            }
            Self::Items {
                array,
                next,
                length,
                were_int32,
            } => {
                let index = *next;
                if index >= *length {
                    return Ok(None);
                }
                *next += 1;
                Ok(Some(Field {
                    name: index.to_string(),
                    value: array.get(index)?,
                    was_int32: were_int32.get(index) == Some(&true),
                }))
            }
        }
    }
}

/// An object's names as they stand in its original, with those that this does not have behind them.
fn in_order_of<'js>(original: &Original, mut names: Vec<Name<'js>>) -> Vec<Name<'js>> {
    // Mostly they are as they were; no more than a comparison is needed then.
    let mut fields = original.fields();
    let is_alike = names.iter_mut().all(|name| match fields.next() {
        Some((was, was_int32)) if name.name == was => {
            name.was_int32 = was_int32;
            true
        }
        Some(_) => false,
        None => true,
    });
    drop(fields);
    if is_alike {
        return names;
    }
    let places: HashMap<String, usize> = names.iter().map(|name| name.name.clone()).zip(0..).collect();
    let mut names: Vec<Option<Name<'js>>> = names.into_iter().map(Some).collect();
    let mut ordered = Vec::with_capacity(names.len());
    for (was, was_int32) in original.fields() {
        let name = places.get(was).and_then(|place| names[*place].take());
        ordered.extend(name.map(|name| Name { was_int32, ..name }));
    }
    ordered.extend(names.into_iter().flatten());
    ordered
}

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
            pending_bytes: Cell::new(0),
        }
    }

    /// Appends a field to the document. Does not recurse: what a script makes nests deeper than its thread's stack may
    /// bear.
    pub(crate) fn append(&mut self, name: &str, value: &Value<'js>) -> Written {
        let mut around = Vec::new();
        let Some(mut current) = self.value(name, value, false, 1)? else {
            return Ok(());
        };
        loop {
            if let Some(field) = current.values.next()? {
                if let Values::Fields { .. } = current.values {
                    let pending = self.pending_bytes.get();
                    self.pending_bytes
                        .set(pending.saturating_sub(field_bytes_min(&field.name)));
                }
                let depth = around.len() + 2;
                if let Some(inner) = self.value(&field.name, &field.value, field.was_int32, depth)? {
                    around.push(std::mem::replace(&mut current, inner));
                }
                continue;
            }
            self.close_container(&current);
            current = match around.pop() {
                Some(outer) => outer,
                None => return Ok(()),
            };
        }
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

    fn close_container(&mut self, container: &Container<'js>) {
        self.close(container.frame);
        if let Some(frame) = container.code {
            // This frame has no zero at its end.
            let length = (self.out.len() - frame.0) as u32;
            self.out[frame.0..frame.0 + 4].copy_from_slice(&length.to_le_bytes());
        }
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
        self.check_room(0)
    }

    /// Fails where so many bytes more are too much, with those that are known to come.
    fn check_room(&self, more: usize) -> Result<(), ScriptError> {
        let bytes = self.out.len().saturating_add(self.pending_bytes.get());
        let (bytes, max) = (bytes.saturating_add(more), RESULT_BYTES_MAX);
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

    /// Writes a value; one that holds others is only begun.
    fn value(&mut self, name: &str, value: &Value<'js>, was_int32: bool, depth: usize) -> Begun<'js> {
        self.step()?;
        match value.type_of() {
            Type::Int | Type::Float => {
                let number = value.as_number().unwrap_or(f64::NAN);
                let whole = number as i32;
                match was_int32 && f64::from(whole) == number {
                    true => self.fixed(0x10, name, &whole.to_le_bytes())?,
                    false => self.fixed(0x01, name, &number.to_le_bytes())?,
                }
            }
            Type::Bool => self.fixed(0x08, name, &[u8::from(value.as_bool() == Some(true))])?,
            Type::Null => self.fixed(0x0A, name, &[])?,
            Type::Undefined | Type::Uninitialized => self.fixed(0x06, name, &[])?,
            Type::String => {
                let text = self.string(value)?;
                self.header(0x02, name)?;
                self.text(&text);
            }
            Type::Array => match value.as_array() {
                Some(array) => return self.array(name, array, depth).map(Some),
                None => return Err(not_bson(name)),
            },
            Type::Function | Type::Constructor => {
                // Some values of the prelude are functions.
                let object = value.as_object().ok_or_else(|| not_bson(name))?;
                if let Some(kind) = self.kind(object)? {
                    return self.typed(name, kind, object, depth);
                }
                let text: Value<'js> = self
                    .makers
                    .function_text
                    .clone()
                    .restore(self.ctx)?
                    .call((value.clone(),))?;
                let text = self.string(&text)?;
                self.header(0x0D, name)?;
                self.text(&text);
            }
            _ => match value.as_object() {
                Some(object) => return self.object(name, object, depth),
                None => return Err(not_bson(name)),
            },
        }
        Ok(None)
    }

    /// A string's text; halves of surrogate pairs are replaced. One that the result has no room for is not copied.
    fn string(&self, value: &Value<'js>) -> Result<String, WriteError> {
        let Some(string) = value.as_string() else {
            return Err(ScriptError::Malformed.into());
        };
        let length = string.clone().to_cstring()?.len();
        self.check_room(length)?;
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

    fn array(&mut self, name: &str, array: &Array<'js>, depth: usize) -> Result<Container<'js>, WriteError> {
        check_depth(depth)?;
        self.header(0x04, name)?;
        let frame = self.open();
        let original = self.original_of(array.as_object())?;
        let were_int32 = original
            .iter()
            .flat_map(Original::fields)
            .map(|(_, was_int32)| was_int32);
        let values = Values::Items {
            array: array.clone(),
            next: 0,
            length: array.len(),
            were_int32: were_int32.collect(),
        };
        Ok(Container {
            frame,
            code: None,
            values,
        })
    }

    /// Which type of the prelude an object says it is of.
    fn kind(&self, object: &Object<'js>) -> Result<Option<i32>, WriteError> {
        let tag = self.makers.tag.clone().restore(self.ctx)?;
        let kind: Value<'js> = object.get(tag)?;
        Ok(kind.as_int())
    }

    fn object(&mut self, name: &str, object: &Object<'js>, depth: usize) -> Begun<'js> {
        if let Some(kind) = self.kind(object)? {
            return self.typed(name, kind, object, depth);
        }
        check_depth(depth)?;
        self.header(0x03, name)?;
        let frame = self.open();
        let values = self.fields(object)?;
        Ok(Some(Container {
            frame,
            code: None,
            values,
        }))
    }

    /// What is to be written of an object: the fields that its original has, in that order, and then all others.
    fn fields(&self, object: &Object<'js>) -> Result<Values<'js>, WriteError> {
        let (mut names, mut has_replaced) = (Vec::new(), false);
        for key in object.keys::<Atom<'js>>() {
            self.step()?;
            let key = key?;
            let text = key.to_js_string()?;
            let name = match text.to_string() {
                Err(rquickjs::Error::Utf8(_)) => {
                    has_replaced = true;
                    self.string(text.as_value())?
                }
                name => name?,
            };
            // Names of all containers that are open are in memory at once.
            self.pending_bytes
                .set(self.pending_bytes.get() + field_bytes_min(&name));
            self.check_size()?;
            names.push(Name {
                name,
                key,
                was_int32: false,
            });
        }
        if has_replaced {
            let mut distinct = HashSet::new();
            if let Some(twice) = names.iter().find(|name| !distinct.insert(name.name.as_str())) {
                return Err(not_bson(&twice.name));
            }
        }
        if let Some(original) = self.original_of(object)? {
            names = in_order_of(&original, names);
        }
        Ok(Values::Fields {
            object: object.clone(),
            names: names.into_iter(),
        })
    }

    /// The original of an object. One that an object inherits is not its own.
    fn original_of(&self, object: &Object<'js>) -> Result<Option<Original>, WriteError> {
        let origin = self.makers.origin.clone().restore(self.ctx)?;
        let origin = Atom::from_value(self.ctx.clone(), origin.as_value())?;
        let number: Value<'js> = object.get(origin.clone())?;
        let Some(original) = number.as_int().and_then(|number| self.originals.get(number)) else {
            return Ok(None);
        };
        for key in object.own_keys::<Atom<'js>>(Filter::new().symbol()) {
            if key? == origin {
                return Ok(Some(original));
            }
        }
        Ok(None)
    }

    /// An object of a type of the prelude, if it holds what such a one does.
    fn typed(&mut self, name: &str, kind: i32, object: &Object<'js>, depth: usize) -> Begun<'js> {
        let ctx = self.ctx;
        match kind {
            0x07 => {
                let id = ObjectId::parse_str(self.part(name, object, "str")?).map_err(|_| not_bson(name))?;
                self.fixed(0x07, name, &id.bytes())?;
            }
            0x12 => {
                let number: i64 = self.held_text(name, object)?.parse().map_err(|_| not_bson(name))?;
                self.fixed(0x12, name, &number.to_le_bytes())?;
            }
            0x10 => {
                let held = self.held(object)?;
                let number = held.as_number().ok_or_else(|| not_bson(name))?;
                self.fixed(0x10, name, &(number as i32).to_le_bytes())?;
            }
            0x13 => {
                let number: Decimal128 = self.held_text(name, object)?.parse().map_err(|_| not_bson(name))?;
                self.fixed(0x13, name, &number.bytes())?;
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
                self.fixed(0x11, name, &(u64::from(t) << 32 | u64::from(i)).to_le_bytes())?;
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
            }
            0x09 => {
                let ms: f64 = self.makers.time_of.clone().restore(ctx)?.call((object.clone(),))?;
                let ms = match ms.is_nan() {
                    // It may be one that JavaScript does not have.
                    true => self.held_text(name, object)?.parse().map_err(|_| not_bson(name))?,
                    false => ms as i64,
                };
                self.fixed(0x09, name, &ms.to_le_bytes())?;
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
            }
            0x0D => return self.code(name, object, depth),
            0x0C => {
                let namespace = self.part(name, object, "ns")?;
                let id: Value<'js> = object.get("id")?;
                let id = id.as_object().ok_or_else(|| not_bson(name))?;
                let id = ObjectId::parse_str(self.part(name, id, "str")?).map_err(|_| not_bson(name))?;
                self.header(0x0C, name)?;
                self.text(&namespace);
                self.out.extend_from_slice(&id.bytes());
            }
            0x7F => self.fixed(0x7F, name, &[])?,
            0xFF => self.fixed(0xFF, name, &[])?,
            _ => return Err(not_bson(name)),
        }
        Ok(None)
    }

    fn code(&mut self, name: &str, object: &Object<'js>, depth: usize) -> Begun<'js> {
        let code = self.part(name, object, "code")?;
        let scope: Value<'js> = object.get("scope")?;
        let Some(scope) = scope.as_object() else {
            self.header(0x0D, name)?;
            self.text(&code);
            return Ok(None);
        };
        check_depth(depth)?;
        self.header(0x0F, name)?;
        let whole = self.open();
        self.text(&code);
        let frame = self.open();
        let values = self.fields(scope)?;
        Ok(Some(Container {
            frame,
            code: Some(whole),
            values,
        }))
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
