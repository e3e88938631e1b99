//! What scripts are given by the host: `native` of the prelude.

use crate::error::ScriptError;
use crate::limits::{
    COMPILED_BYTES_MIN, COMPILED_BYTES_PER_CLASS, COMPILED_BYTES_PER_FUNCTION, COMPILED_BYTES_SHARE, EMITTED_BYTES_MAX,
    PAUSE_MAX, SOURCE_BYTES_MAX,
};
use crate::originals::Originals;
use crate::prelude::Makers;
use crate::to_bson::{WriteError, Writer};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bson::oid::ObjectId;
use bson::{Decimal128, RawDocumentBuf};
use md5::{Digest, Md5};
use rquickjs::function::Rest;
use rquickjs::{Ctx, Exception, Function, Object, String as JsString, Value};
use script_heap::Heap;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// What a call has emitted, and what went wrong inside of the host: a script may not catch that.
pub(crate) struct HostState {
    /// Set while a call may emit.
    pub(crate) emits: RefCell<Option<Emits>>,
    pub(crate) failure: RefCell<Option<ScriptError>>,
    pub(crate) makers: RefCell<Option<Rc<Makers>>>,
    pub(crate) originals: Originals,
    heap: Rc<Heap>,
    is_interrupted: Arc<dyn Fn() -> bool + Send + Sync>,
}

impl HostState {
    pub(crate) fn new(
        heap: Rc<Heap>,
        originals_bytes_max: usize,
        is_interrupted: Arc<dyn Fn() -> bool + Send + Sync>,
    ) -> Self {
        Self {
            emits: RefCell::default(),
            failure: RefCell::default(),
            makers: RefCell::default(),
            originals: Originals::new(originals_bytes_max),
            heap,
            is_interrupted,
        }
    }

    /// Whether the heap has room to compile a text. Where something was refused already it has not: the script is about
    /// to end.
    pub(crate) fn can_compile(&self, text: &str) -> bool {
        !self.heap.has_refused() && room_to_compile(text) <= self.heap.bytes_free()
    }

    /// Fails a script, which may not catch that.
    fn fail(&self, ctx: &Ctx<'_>, error: ScriptError) -> rquickjs::Error {
        let text = error.to_string();
        self.failure.borrow_mut().get_or_insert(error);
        Exception::throw_message(ctx, &text)
    }

    /// Waits for so long, but no longer than a moment, if the operation goes on.
    fn pause(&self, ctx: &Ctx<'_>, ms: f64) -> rquickjs::Result<()> {
        if (self.is_interrupted)() {
            return Err(self.fail(ctx, ScriptError::Interrupted));
        }
        std::thread::park_timeout(pause_of(ms));
        Ok(())
    }

    /// To be called before a script compiles a text, and `compiled` behind that.
    fn before_compiling<'js>(&self, ctx: &Ctx<'js>, text: &JsString<'js>) -> rquickjs::Result<()> {
        if text.clone().to_cstring()?.len() > SOURCE_BYTES_MAX {
            let text = format!("the text is longer than {SOURCE_BYTES_MAX} bytes");
            return Err(Exception::throw_range(ctx, &text));
        }
        match self.can_compile(&text.to_string()?) {
            true => self.heap.open_reserve(),
            false => return Err(self.fail(ctx, ScriptError::OutOfMemory)),
        }
        Ok(())
    }
}

/// The documents `{k, v}` of one call.
#[derive(Default)]
pub(crate) struct Emits {
    pub(crate) documents: Vec<RawDocumentBuf>,
    bytes: usize,
}

/// How long a script that is to sleep for so long waits at a time.
fn pause_of(ms: f64) -> Duration {
    // Also what no duration can be is longer than a moment.
    let pause = Duration::try_from_secs_f64(ms / 1000.0).unwrap_or(PAUSE_MAX);
    pause.min(PAUSE_MAX)
}

/// Bytes of a heap that are to be free where a text is compiled. Each function has a copy of its own text, and an entry
/// for each variable that it or a function inside of it has from outside. Classes of characters that have a name are
/// lists of all of them.
pub(crate) fn room_to_compile(text: &str) -> usize {
    let share = COMPILED_BYTES_SHARE + functions_max(text).saturating_mul(COMPILED_BYTES_PER_FUNCTION);
    let classes = text.matches("\\p{").count() + text.matches("\\P{").count();
    let least = COMPILED_BYTES_MIN.saturating_add(classes.saturating_mul(COMPILED_BYTES_PER_CLASS));
    text.len().saturating_mul(share).saturating_add(least)
}

/// No fewer functions than a text has. The body of one stands behind a bracket that closes, unless it is one with an
/// arrow, or a class's own; a comment may be in between.
fn functions_max(text: &str) -> usize {
    let of_words = ["=>", "class", "static"].map(|word| text.matches(word).count());
    let has_comments = ["//", "/*", "<!--", "-->"].into_iter().any(|mark| text.contains(mark));
    let begins = |at: usize| {
        let before = text[..at].trim_end().chars().next_back();
        has_comments || before.is_none_or(|c| c == ')' || !c.is_ascii())
    };
    let of_brackets = text.match_indices('{').filter(|(at, _)| begins(*at)).count();
    of_words.into_iter().sum::<usize>() + of_brackets
}

/// The object `native`.
pub(crate) fn natives<'js>(ctx: &Ctx<'js>, state: &Rc<HostState>) -> rquickjs::Result<Object<'js>> {
    let natives = Object::new(ctx.clone())?;
    natives.set("objectId", Function::new(ctx.clone(), || ObjectId::new().to_hex())?)?;
    natives.set("md5", Function::new(ctx.clone(), md5_hex)?)?;
    natives.set("long", Function::new(ctx.clone(), long)?)?;
    natives.set("decimal", Function::new(ctx.clone(), decimal)?)?;
    natives.set("base64", Function::new(ctx.clone(), base64)?)?;
    natives.set("bytes", Function::new(ctx.clone(), bytes)?)?;
    natives.set("hexOfBase64", Function::new(ctx.clone(), hex_of_base64)?)?;
    natives.set("base64OfHex", Function::new(ctx.clone(), base64_of_hex)?)?;
    natives.set("uuid", Function::new(ctx.clone(), || bson::Uuid::new().to_string())?)?;
    let pausing = state.clone();
    let pausing = move |ctx: Ctx<'js>, ms: f64| pausing.pause(&ctx, ms);
    natives.set("pause", Function::new(ctx.clone(), pausing)?)?;
    let compiling = state.clone();
    let compiling = move |ctx: Ctx<'js>, text: JsString<'js>| compiling.before_compiling(&ctx, &text);
    natives.set("compiling", Function::new(ctx.clone(), compiling)?)?;
    let heap = state.heap.clone();
    natives.set("compiled", Function::new(ctx.clone(), move || heap.close_reserve())?)?;
    let state = state.clone();
    let emit = move |ctx: Ctx<'js>, arguments: Rest<Value<'js>>| -> rquickjs::Result<()> {
        match emit(&state, &arguments.0) {
            Ok(()) => Ok(()),
            // A getter has thrown: that is the script's own.
            Err(WriteError::Engine(error)) => Err(error),
            Err(WriteError::Script(error)) => Err(state.fail(&ctx, error)),
        }
    };
    natives.set("emit", Function::new(ctx.clone(), emit)?)?;
    Ok(natives)
}

fn emit(state: &HostState, arguments: &[Value<'_>]) -> Result<(), WriteError> {
    let [key, value] = arguments else {
        return Err(ScriptError::EmitArguments.into());
    };
    // Nothing is borrowed while it is written: what is written may emit itself.
    let makers = state.makers.borrow().clone().ok_or(ScriptError::Malformed)?;
    let ctx = key.ctx();
    let mut writer = Writer::new(ctx, &makers, &state.originals, &*state.is_interrupted);
    match key.is_undefined() {
        // MongoDB takes it for null.
        true => writer.append("k", &Value::new_null(ctx.clone()))?,
        false => writer.append("k", key)?,
    }
    writer.append("v", value)?;
    let document = writer.finish()?;
    let mut emits = state.emits.borrow_mut();
    let Some(emits) = emits.as_mut() else {
        return Err(ScriptError::Exception("ReferenceError: emit is not defined".to_owned()).into());
    };
    emits.bytes += document.as_bytes().len();
    if emits.bytes > EMITTED_BYTES_MAX {
        return Err(ScriptError::EmittedTooMuch { max: EMITTED_BYTES_MAX }.into());
    }
    emits.documents.push(document);
    Ok(())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn md5_hex(text: String) -> String {
    hex(&Md5::digest(text.as_bytes()))
}

fn long(ctx: Ctx<'_>, text: String) -> rquickjs::Result<String> {
    let refused = || Exception::throw_type(&ctx, &format!("could not convert \"{text}\" to a long"));
    if let Ok(number) = text.trim().parse::<i64>() {
        return Ok(number.to_string());
    }
    let number: f64 = text.trim().parse().map_err(|_| refused())?;
    // 2^63 is the first double that is too large; NaN is none.
    match (-9_223_372_036_854_775_808.0..9_223_372_036_854_775_808.0).contains(&number) {
        true => Ok((number as i64).to_string()),
        false => Err(refused()),
    }
}

fn decimal(ctx: Ctx<'_>, text: String) -> rquickjs::Result<String> {
    match text.trim().parse::<Decimal128>() {
        Ok(number) => Ok(number.to_string()),
        Err(_) => Err(Exception::throw_type(&ctx, "Input is not a valid Decimal128 value.")),
    }
}

fn of_base64(ctx: &Ctx<'_>, text: &str) -> rquickjs::Result<Vec<u8>> {
    STANDARD
        .decode(text)
        .map_err(|_| Exception::throw_type(ctx, "invalid base64"))
}

fn base64(ctx: Ctx<'_>, text: String) -> rquickjs::Result<String> {
    of_base64(&ctx, &text).map(|bytes| STANDARD.encode(bytes))
}

fn bytes(ctx: Ctx<'_>, text: String) -> rquickjs::Result<u32> {
    of_base64(&ctx, &text).map(|bytes| bytes.len() as u32)
}

fn hex_of_base64(ctx: Ctx<'_>, text: String) -> rquickjs::Result<String> {
    of_base64(&ctx, &text).map(|bytes| hex(&bytes))
}

fn base64_of_hex(ctx: Ctx<'_>, text: String) -> rquickjs::Result<String> {
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
    let pairs = text.as_bytes().chunks(2).map(|pair| match pair {
        [high, low] => Some(digit(*high)? << 4 | digit(*low)?),
        _ => None,
    });
    match pairs.collect::<Option<Vec<u8>>>() {
        Some(bytes) => Ok(STANDARD.encode(bytes)),
        None => Err(Exception::throw_type(&ctx, "invalid hex string")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_is_no_longer_than_a_moment_and_no_busy_loop() {
        assert_eq!(pause_of(2.0), Duration::from_millis(2));
        for ms in [1e9, 1e30, f64::INFINITY] {
            assert_eq!(pause_of(ms), PAUSE_MAX);
        }
    }

    #[test]
    fn functions_are_counted_and_objects_are_not() {
        for (text, wanted) in [
            ("[{a: 1}, {b: 2}]", 0),
            ("x => y => 1", 2),
            ("function f() {}", 1),
            ("function f()\n{}", 1),
            ("function f()\u{feff}{}", 1),
            ("class A { static { } a() { } }", 3),
            ("function f() /* , */ {} {}", 2),
        ] {
            assert_eq!(functions_max(text), wanted, "{text}");
        }
        assert!(room_to_compile(&"{a: 1, b: 'c', d: 2},".repeat(2000)) < 24 << 20);
    }
}
