//! A heap with its globals, in which the functions of one operation run.

use crate::error::{ScriptError, told};
use crate::from_bson::{ReadError, Reader};
use crate::function::Function;
#[cfg(test)]
use crate::host::room_to_compile;
use crate::host::{Emits, HostState, natives};
use crate::limits::{
    CALLS_PER_COLLECTION, COMPARISON_BYTES, COMPILING_RESERVE_BYTES, ORIGINALS_SHARE, PRELUDE_BYTES_MIN,
    SOURCE_BYTES_MAX, STACK_BYTES, STACK_REACH_BYTES, TOLD_CHARS_MAX,
};
use crate::prelude::{self, Makers};
use crate::to_bson::{WriteError, Writer};
use bson::{RawBsonRef, RawDocument, RawDocumentBuf};
use rquickjs::context::{EvalOptions, intrinsic};
use rquickjs::function::Args;
use rquickjs::{CaughtError, Coerced, Context, Ctx, Function as JsFunction, Object, Persistent, Runtime, Value};
use script_heap::Heap;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

/// What scopes have of the language: all of it but proxies, weak references and clocks finer than `Date`.
type Intrinsics = (
    intrinsic::Date,
    intrinsic::Eval,
    intrinsic::RegExpCompiler,
    intrinsic::RegExp,
    intrinsic::Json,
    intrinsic::MapSet,
    intrinsic::TypedArrays,
    intrinsic::Promise,
);

/// What a function is called on.
#[derive(Clone, Copy, Debug)]
pub enum Receiver<'d> {
    /// An object without fields.
    Empty,
    /// A document, as `this`.
    This(&'d RawDocument),
    /// A document, as `this` and as the variable `obj`.
    Document(&'d RawDocument),
}

/// See the module. It belongs to one thread.
pub struct Scope {
    // Before the runtime, which must be the last of them to go.
    functions: RefCell<HashMap<u64, Persistent<JsFunction<'static>>>>,
    state: Rc<HostState>,
    context: Context,
    runtime: Runtime,
    is_interrupted: Arc<dyn Fn() -> bool + Send + Sync>,
    /// The address on the stack from which the engine measures what scripts use of it.
    stack_top: usize,
    /// Calls since garbage was looked for.
    calls: Cell<usize>,
    /// Garbage is looked for when more of the heap is in use.
    collected_bytes: Cell<usize>,
    heap: Rc<Heap>,
    heap_bytes: usize,
    /// The variables that have been set.
    globals: RefCell<Vec<Arc<RawDocumentBuf>>>,
    /// A call has had a result, so that the scope may hold something for the next one.
    has_results: Cell<bool>,
    /// Told of each call of a function before it begins.
    before_call: Rc<dyn Fn()>,
}

impl Drop for Scope {
    /// The heap holds `emit`, that holds the state, and that holds the makers, which are on the heap: a circle that the
    /// runtime does not see, and with which it could not go.
    fn drop(&mut self) {
        self.functions.borrow_mut().clear();
        *self.state.makers.borrow_mut() = None;
    }
}

impl Scope {
    /// A scope whose heap has so many bytes. `is_interrupted` is asked again and again while scripts run; they end when
    /// it says so.
    pub fn new(heap_bytes: usize, is_interrupted: Arc<dyn Fn() -> bool + Send + Sync>) -> Result<Self, ScriptError> {
        let scope = Self::bare(heap_bytes, is_interrupted)?;
        let makers = scope.with(|ctx| {
            let makers = scope.evaluate_prelude(&ctx);
            makers.map_err(|error| scope.failure(&ctx, error))
        })?;
        *scope.state.makers.borrow_mut() = Some(Rc::new(makers));
        // Not before: what makes an engine bears a refusal less than scripts do.
        let ends = scope.is_interrupted.clone();
        scope.heap.ask(move || ends());
        Ok(scope)
    }

    /// Whether a function can be compiled; nothing of it runs. That takes a small part of what a scope does, in which
    /// functions run.
    pub fn check(
        function: &Function,
        heap_bytes: usize,
        is_interrupted: Arc<dyn Fn() -> bool + Send + Sync>,
    ) -> Result<(), ScriptError> {
        let scope = Self::bare(heap_bytes, is_interrupted)?;
        scope.with(|ctx| scope.check_syntax(&ctx, function))
    }

    /// Has each call of a function told to somebody before it begins.
    pub fn on_each_call(&mut self, before_call: impl Fn() + 'static) {
        self.before_call = Rc::new(before_call);
    }

    /// A scope without the prelude.
    fn bare(heap_bytes: usize, is_interrupted: Arc<dyn Fn() -> bool + Send + Sync>) -> Result<Self, ScriptError> {
        let stack_top = stack_place();
        let originals_bytes_max = heap_bytes / ORIGINALS_SHARE;
        let heap = Heap::with_reserve(heap_bytes - originals_bytes_max, COMPILING_RESERVE_BYTES);
        let runtime = Runtime::new_with_alloc(heap.allocator()).map_err(|_| ScriptError::OutOfMemory)?;
        // The engine would look for garbage also while it makes the error of a full heap, where objects are half
        // changed. So that is done here, between calls.
        runtime.set_gc_threshold(usize::MAX);
        // What has run out of memory ends, whatever it makes of the exception.
        let (asked, full) = (is_interrupted.clone(), heap.clone());
        runtime.set_interrupt_handler(Some(Box::new(move || {
            full.has_refused() || full.has_ended() || asked()
        })));
        let context = Context::custom::<Intrinsics>(&runtime).map_err(|_| ScriptError::OutOfMemory)?;
        Ok(Self {
            functions: RefCell::default(),
            state: Rc::new(HostState::new(
                heap.clone(),
                originals_bytes_max,
                is_interrupted.clone(),
            )),
            context,
            runtime,
            is_interrupted,
            stack_top,
            calls: Cell::new(0),
            collected_bytes: Cell::new((heap_bytes - originals_bytes_max) / 2),
            heap,
            heap_bytes,
            globals: RefCell::default(),
            has_results: Cell::new(false),
            before_call: Rc::new(|| ()),
        })
    }

    /// Has the engine work, with as much of the stack as scripts may use from here on.
    fn with<T>(&self, work: impl FnOnce(Ctx<'_>) -> Result<T, ScriptError>) -> Result<T, ScriptError> {
        let stack_bytes = self.stack_bytes().ok_or(ScriptError::OutOfReach)?;
        self.runtime.set_max_stack_size(stack_bytes);
        self.context.with(work)
    }

    /// Whether scripts can run here. Pipelines go on in other pieces of stack, and the engine measures from where the
    /// scope was made: without a bound for the place where it is used a script that calls itself would leave the piece.
    pub fn is_within_reach(&self) -> bool {
        self.stack_bytes().is_some()
    }

    /// What the bound has to be, measured from the scope's place. Stacks grow downwards.
    fn stack_bytes(&self) -> Option<usize> {
        let bytes = (self.stack_top + STACK_BYTES).checked_sub(stack_place())?;
        (1..=STACK_REACH_BYTES).contains(&bytes).then_some(bytes)
    }

    fn evaluate_prelude(&self, ctx: &Ctx<'_>) -> rquickjs::Result<Makers> {
        if self.heap.bytes_free() < PRELUDE_BYTES_MIN {
            return Err(rquickjs::Error::Allocation);
        }
        let prelude: JsFunction<'_> = ctx.eval(prelude::SOURCE)?;
        let makers: Object<'_> = prelude.call((natives(ctx, &self.state)?,))?;
        Makers::of(ctx, &makers)
    }

    /// A scope with a heap of so many bytes, for a call that begins again after this one's was full. None if scripts
    /// have left something here that former calls saw, or that later ones might.
    pub fn renewed(&self, heap_bytes: usize) -> Result<Option<Self>, ScriptError> {
        let mut renewed = Self::new(heap_bytes, self.is_interrupted.clone())?;
        renewed.before_call = self.before_call.clone();
        renewed.with(|ctx| {
            let globals = self.globals.borrow();
            globals
                .iter()
                .try_for_each(|globals| renewed.set_globals(&ctx, globals))
        })?;
        // Only one call has run: it begins again, as if it had not.
        if !self.has_results.get() {
            return Ok(Some(renewed));
        }
        let (new, properties) = renewed.digest(None)?;
        self.collect_garbage();
        self.heap.set_bytes_max(self.heap_bytes + COMPARISON_BYTES);
        self.heap.forget_refusals();
        match self.digest(Some(properties)) {
            // So much was left that there is no room to look at it.
            Err(ScriptError::OutOfMemory) => Ok(None),
            old => Ok((old?.0 == new).then_some(renewed)),
        }
    }

    /// Whether a call has had a result.
    pub fn has_results(&self) -> bool {
        self.has_results.get()
    }

    /// What can be reached from the globals, as a digest with the number of properties, of which not many more than
    /// `properties` are looked at; see the prelude.
    fn digest(&self, properties: Option<f64>) -> Result<(String, f64), ScriptError> {
        let makers = self.makers()?;
        self.with(|ctx| {
            let digest = || -> rquickjs::Result<(String, f64)> {
                let functions = self.functions.borrow();
                let mut call = Args::new(ctx.clone(), functions.len() + 1);
                call.push_arg(properties.unwrap_or(f64::INFINITY))?;
                for function in functions.values() {
                    call.push_arg(function.clone().restore(&ctx)?)?;
                }
                let parts: Object<'_> = call.apply(&makers.state.clone().restore(&ctx)?)?;
                Ok((parts.get("digest")?, parts.get("properties")?))
            };
            digest().map_err(|error| self.failure(&ctx, error))
        })
    }

    /// The result of a call. One that ran out of memory has none, whatever its script has made of that: it would be
    /// another one in a larger heap.
    fn noted<T>(&self, result: Result<T, ScriptError>) -> Result<T, ScriptError> {
        let result = match () {
            () if self.heap.has_refused() => Err(ScriptError::OutOfMemory),
            () if self.heap.has_ended() => Err(ScriptError::Interrupted),
            () => result,
        };
        if result.is_ok() {
            self.has_results.set(true);
        }
        result
    }

    /// Frees what nothing refers to any more but itself. All else is freed at once.
    fn collect_garbage(&self) {
        self.calls.set(0);
        self.runtime.run_gc();
        // What is left is not looked through again before half of the rest is used.
        let (bytes, free) = (self.heap.bytes(), self.heap.bytes_free());
        self.collected_bytes.set(bytes + free / 2);
    }

    /// To be called before so many calls.
    fn begin_calls(&self, calls: usize) {
        self.state.originals.clear();
        self.heap.forget_refusals();
        self.calls.set(self.calls.get() + calls);
        if self.calls.get() > CALLS_PER_COLLECTION || self.heap.bytes() > self.collected_bytes.get() {
            self.collect_garbage();
        }
    }

    /// Whether a function gives something true of a document.
    pub fn test(&self, function: &Function, document: &RawDocument) -> Result<bool, ScriptError> {
        self.begin_calls(1);
        let truth = self.with(|ctx| {
            let arguments = RawDocumentBuf::new();
            let result = self.invoke(&ctx, function, Receiver::Document(document), &arguments)?;
            let truth = result.get::<Coerced<bool>>();
            truth.map(|truth| truth.0).map_err(|error| self.failure(&ctx, error))
        });
        self.noted(truth)
    }

    /// Calls a function with the values of a document, whatever their names. The result is the document `{"": result}`.
    pub fn call(
        &self,
        function: &Function,
        receiver: Receiver<'_>,
        arguments: &RawDocument,
    ) -> Result<RawDocumentBuf, ScriptError> {
        self.begin_calls(1);
        let result = self.with(|ctx| {
            let result = self.invoke(&ctx, function, receiver, arguments)?;
            self.written(&ctx, &result)
        });
        self.noted(result)
    }

    /// The document `{"": result}`.
    fn written<'js>(&self, ctx: &Ctx<'js>, result: &Value<'js>) -> Result<RawDocumentBuf, ScriptError> {
        let makers = self.makers()?;
        let mut writer = Writer::new(ctx, &makers, &self.state.originals, &*self.is_interrupted);
        let written = writer.append("", result);
        self.host_failure(ctx)?;
        written.map_err(|error| match error {
            WriteError::Script(error) => error,
            WriteError::Engine(error) => self.failure(ctx, error),
        })?;
        writer.finish()
    }

    /// Calls a function for each list of arguments, with the former result before them; at first that is the only value
    /// of `state`. The result is the document `{"": result}`.
    pub fn fold<'d>(
        &self,
        function: &Function,
        state: &RawDocument,
        lists: impl ExactSizeIterator<Item = &'d RawDocument>,
    ) -> Result<RawDocumentBuf, ScriptError> {
        self.begin_calls(lists.len());
        let result = self.with(|ctx| {
            let makers = self.makers()?;
            let reader = self.reader(&ctx, &makers);
            let engine = |error: ReadError| error.or_else(|error| self.failure(&ctx, error));
            (self.before_call)();
            let mut values = reader.values(state).map_err(engine)?;
            for (index, list) in lists.enumerate() {
                if index > 0 {
                    (self.before_call)();
                }
                values.extend(reader.values(list).map_err(engine)?);
                let result = self.apply(&ctx, function, Receiver::Empty, values)?;
                values = vec![result];
            }
            let result = values.pop().unwrap_or_else(|| Value::new_undefined(ctx.clone()));
            self.written(&ctx, &result)
        });
        self.noted(result)
    }

    /// Calls a function on a document; the result is what it has emitted, as documents `{k, v}`.
    pub fn emits(&self, function: &Function, document: &RawDocument) -> Result<Vec<RawDocumentBuf>, ScriptError> {
        self.begin_calls(1);
        let emitted = self.with(|ctx| {
            *self.state.emits.borrow_mut() = Some(Emits::default());
            let arguments = RawDocumentBuf::new();
            let called = self
                .invoke(&ctx, function, Receiver::This(document), &arguments)
                .map(drop);
            let emits = self.state.emits.borrow_mut().take().unwrap_or_default();
            called.map(|()| emits.documents)
        });
        self.noted(emitted)
    }

    fn reader<'r, 'js>(&'r self, ctx: &'r Ctx<'js>, makers: &'r Makers) -> Reader<'r, 'js> {
        Reader {
            ctx,
            makers,
            originals: Some(&self.state.originals),
            kept: RefCell::default(),
        }
    }

    fn makers(&self) -> Result<Rc<Makers>, ScriptError> {
        self.state.makers.borrow().clone().ok_or(ScriptError::Malformed)
    }

    /// What went wrong inside of the host, whatever the script has made of it.
    fn host_failure(&self, ctx: &Ctx<'_>) -> Result<(), ScriptError> {
        match self.state.failure.borrow_mut().take() {
            Some(error) => {
                // The exception that it was told by goes with it.
                drop(ctx.catch());
                Err(error)
            }
            None => Ok(()),
        }
    }

    fn invoke<'js>(
        &self,
        ctx: &Ctx<'js>,
        function: &Function,
        receiver: Receiver<'_>,
        arguments: &RawDocument,
    ) -> Result<Value<'js>, ScriptError> {
        (self.before_call)();
        let makers = self.makers()?;
        let reader = self.reader(ctx, &makers);
        let values = reader.values(arguments);
        let values = values.map_err(|error| error.or_else(|error| self.failure(ctx, error)))?;
        self.apply(ctx, function, receiver, values)
    }

    /// Calls a function of which was told that a call begins: arguments are made by scripts, too.
    fn apply<'js>(
        &self,
        ctx: &Ctx<'js>,
        function: &Function,
        receiver: Receiver<'_>,
        arguments: Vec<Value<'js>>,
    ) -> Result<Value<'js>, ScriptError> {
        let compiled = self.compiled(ctx, function)?;
        let makers = self.makers()?;
        let mut reader = self.reader(ctx, &makers);
        if let Receiver::Document(_) = receiver {
            // Only its truth is asked for.
            reader.originals = None;
        }
        let call = || -> Result<Value<'js>, ReadError> {
            let this = match receiver {
                Receiver::Empty => Object::new(ctx.clone())?,
                Receiver::This(document) => reader.document(document)?,
                Receiver::Document(document) => {
                    let this = reader.document(document)?;
                    ctx.globals().set("obj", this.clone())?;
                    this
                }
            };
            let mut call = Args::new(ctx.clone(), arguments.len());
            call.this(this)?;
            call.push_args(arguments)?;
            Ok(call.apply(&compiled)?)
        };
        let called = call();
        self.host_failure(ctx)?;
        called.map_err(|error| error.or_else(|error| self.failure(ctx, error)))
    }

    fn compiled<'js>(&self, ctx: &Ctx<'js>, function: &Function) -> Result<JsFunction<'js>, ScriptError> {
        let known = self.functions.borrow().get(&function.number).cloned();
        if let Some(known) = known {
            return known.restore(ctx).map_err(|error| self.failure(ctx, error));
        }
        let compiled = self.compile(ctx, function)?;
        if let Some(globals) = function.globals() {
            self.set_globals(ctx, globals)?;
        }
        let kept = Persistent::save(ctx, compiled.clone());
        self.functions.borrow_mut().insert(function.number, kept);
        Ok(compiled)
    }

    fn check_syntax(&self, ctx: &Ctx<'_>, function: &Function) -> Result<(), ScriptError> {
        let text = self.text(ctx, function)?;
        self.check_text(ctx, text)
    }

    /// What of a function is compiled.
    fn text<'f>(&self, ctx: &Ctx<'_>, function: &'f Function) -> Result<&'f str, ScriptError> {
        let (bytes, max) = (function.source().len(), SOURCE_BYTES_MAX);
        if bytes > max {
            return Err(ScriptError::SourceTooLarge { bytes, max });
        }
        function.find_text(|text| match self.check_text(ctx, text) {
            Ok(()) => Ok(true),
            // That says nothing of the text, and another one might compile.
            Err(error @ (ScriptError::OutOfMemory | ScriptError::Interrupted)) => Err(error),
            Err(_) => Ok(false),
        })
    }

    /// Fails where a text is no JavaScript. All of it is compiled before its first statement runs, and this one ends
    /// it. The condition always holds, but the compiler does not know, and drops nothing of the text.
    fn check_text(&self, ctx: &Ctx<'_>, text: &str) -> Result<(), ScriptError> {
        self.check_room_to_compile(text)?;
        let text = format!("if (this) throw 0;{text}");
        self.heap.open_reserve();
        let checked = ctx.eval_with_options::<Value<'_>, _>(text, sloppy());
        self.heap.close_reserve();
        let error = match checked {
            Ok(_) => return Ok(()),
            Err(rquickjs::Error::Exception) => {
                let thrown = ctx.catch();
                if thrown.as_int() == Some(0) {
                    return Ok(());
                }
                ctx.throw(thrown)
            }
            Err(error) => error,
        };
        Err(self.failure(ctx, error))
    }

    /// The engine must not run out of memory while it compiles.
    fn check_room_to_compile(&self, text: &str) -> Result<(), ScriptError> {
        if (self.is_interrupted)() {
            return Err(ScriptError::Interrupted);
        }
        match self.state.can_compile(text) {
            true => Ok(()),
            false => Err(ScriptError::OutOfMemory),
        }
    }

    fn compile<'js>(&self, ctx: &Ctx<'js>, function: &Function) -> Result<JsFunction<'js>, ScriptError> {
        let text = self.text(ctx, function)?;
        self.check_room_to_compile(text)?;
        self.heap.open_reserve();
        let compiled = ctx.eval_with_options::<JsFunction<'js>, _>(text, sloppy());
        self.heap.close_reserve();
        compiled.map_err(|error| self.failure(ctx, error))
    }

    /// Code among the variables is a function that other functions call. A scope of its own is not looked at.
    fn helper<'js>(&self, ctx: &Ctx<'js>, code: &str) -> Result<Value<'js>, ScriptError> {
        Ok(self.compile(ctx, &Function::new(code, None))?.into_value())
    }

    /// Sets variables, unless that has been done: functions share them.
    fn set_globals(&self, ctx: &Ctx<'_>, globals: &Arc<RawDocumentBuf>) -> Result<(), ScriptError> {
        if self.globals.borrow().contains(globals) {
            return Ok(());
        }
        let makers = self.makers()?;
        let reader = self.reader(ctx, &makers);
        let set = || -> Result<(), ReadError> {
            for (element, value) in globals.iter().zip(reader.values(globals)?) {
                let (name, given) = element?;
                let value = match given {
                    RawBsonRef::JavaScriptCode(code) => self.helper(ctx, code)?,
                    RawBsonRef::JavaScriptCodeWithScope(code) => self.helper(ctx, code.code)?,
                    _ => value,
                };
                ctx.globals().set(name.as_str(), value)?;
            }
            Ok(())
        };
        set().map_err(|error| error.or_else(|error| self.failure(ctx, error)))?;
        self.globals.borrow_mut().push(globals.clone());
        Ok(())
    }

    /// What an error of the engine means; takes the exception, if there is one.
    fn failure(&self, ctx: &Ctx<'_>, error: rquickjs::Error) -> ScriptError {
        let caught = CaughtError::from_error(ctx, error);
        if self.heap.has_refused() {
            return ScriptError::OutOfMemory;
        }
        if self.heap.has_ended() || (self.is_interrupted)() {
            return ScriptError::Interrupted;
        }
        match caught {
            CaughtError::Error(rquickjs::Error::Allocation) => ScriptError::OutOfMemory,
            CaughtError::Error(error) => ScriptError::Exception(told(&error.to_string()).to_owned()),
            CaughtError::Exception(exception) => {
                let part = |name: &str| {
                    let value = exception.as_object().get::<_, Value<'_>>(name).ok()?;
                    self.told(ctx, value.is_string().then_some(value)?)
                };
                let (message, name, stack) = (part("message"), part("name"), part("stack"));
                drop(ctx.catch());
                let name = name.unwrap_or_else(|| "Error".to_owned());
                let message = message.unwrap_or_default();
                let stack = stack.unwrap_or_default();
                ScriptError::Exception(format!("{name}: {message} :\n{stack}"))
            }
            CaughtError::Value(value) => {
                // Its conversion may run a script, and fail in turn.
                let text = self.told(ctx, value);
                drop(ctx.catch());
                match text {
                    Some(text) => ScriptError::Exception(format!("uncaught exception: {text}")),
                    None => ScriptError::Exception("uncaught exception".to_owned()),
                }
            }
        }
    }

    /// The beginning of a value as text. It is cut before it is copied: scripts make texts as large as their heap.
    fn told<'js>(&self, ctx: &Ctx<'js>, value: Value<'js>) -> Option<String> {
        // Without the prelude nothing runs, and only the compiler has messages.
        let makers = self.state.makers.borrow().clone();
        let text: Value<'js> = match makers {
            Some(makers) => makers
                .told
                .clone()
                .restore(ctx)
                .ok()?
                .call((value, TOLD_CHARS_MAX as u32))
                .ok()?,
            None => value,
        };
        let text = text.as_string()?.to_string().ok()?;
        Some(told(&text).to_owned())
    }
}

/// The address at which the stack stands.
#[inline(never)]
fn stack_place() -> usize {
    let here = 0_u8;
    std::ptr::from_ref(std::hint::black_box(&here)).addr()
}

/// Scripts are not in strict mode, as in MongoDB.
fn sloppy() -> EvalOptions {
    let mut options = EvalOptions::default();
    options.strict = false;
    options
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is asked for before a text is compiled must be no less than that takes.
    #[test]
    fn compiling_takes_no_more_than_was_asked_for() {
        fn check(text: &str, what: &str) {
            let scope = Scope::bare(1 << 30, Arc::new(|| false)).expect("a scope");
            let bytes = scope.heap.bytes();
            let room = room_to_compile(text);
            scope.heap.set_bytes_max(bytes + room);
            let checked = scope.with(|ctx| scope.check_text(&ctx, text));
            assert!(!scope.heap.has_refused(), "{what}: {checked:?}");
        }
        for piece in [
            "_=>_,",
            "()=>0,",
            "a,",
            "1,",
            "'',",
            "``,",
            "`${a}`,",
            "[],",
            "{},",
            "({}),",
            "x=>y=>",
            "/a/,",
            "/\\p{RGI_Emoji}/v,",
            "/\\p{L}/u,",
            "/[\\p{L}\\P{N}]/ui,",
            "a?.b,",
            "-",
            "a+",
            "a;",
            "{}",
            "{",
            "var a;",
            "{let a}",
            "class{},",
            "class{#a;b=1},",
            "function*(){},",
            "!",
            "async()=>0,",
            "if(a);else ",
            "for(;;)",
            "for(a in b)",
            "try{}catch{}",
            "switch(a){case 1:}",
            "({a})=>a,",
            "[a]=a,",
            "1.5,",
            "9999999999n,",
            "({get a(){}}),",
            "b:for(;;)break b;",
            "a=b=",
            "...a,",
            "a[",
            "(",
        ] {
            for bytes in [300, 4000] {
                let inner = piece.repeat(bytes / piece.len());
                check(&format!("(function() {{ {inner} }})"), piece);
                check(&format!("(function() {{ {inner} 0 }})"), piece);
            }
        }
        // What functions have from outside is noted in each that is in between, and `eval` may ask for anything.
        let names = |count: usize| (0..count).map(|n| format!("v{n}")).collect::<Vec<_>>();
        for count in [50, 300, 900] {
            let (list, nested) = (names(count).join(","), names(count).join("=>"));
            check(&format!("{nested}=>[{list}]"), "variables of many functions");
            check(
                &format!("(function(){{var {list};{}[{list}]}})", "x=>".repeat(count)),
                "variables of one",
            );
            let eval = "()=>eval(x),".repeat(count);
            check(&format!("(function(){{var {list};[{eval}]}})"), "variables for eval");
            check(
                &format!("(function(){{var {list};{}eval(x)}})", "x=>".repeat(count)),
                "variables for one eval",
            );
        }
    }
    #[test]
    fn the_prelude_takes_no_more_than_is_asked_for() {
        let scope = Scope::bare(64 << 20, Arc::new(|| false)).expect("a scope");
        scope.heap.set_bytes_max(scope.heap.bytes() + PRELUDE_BYTES_MIN);
        let makers = scope.with(|ctx| {
            let makers = scope.evaluate_prelude(&ctx);
            makers.map_err(|error| scope.failure(&ctx, error))
        });
        assert!(makers.is_ok() && !scope.heap.has_refused());
        assert!(scope.heap.bytes_free() > PRELUDE_BYTES_MIN / 2);
    }
}
