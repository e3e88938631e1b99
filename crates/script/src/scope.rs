//! A heap with its globals, in which the functions of one operation run.

use crate::error::ScriptError;
use crate::from_bson::{ReadError, Reader};
use crate::function::Function;
use crate::host::{Emits, HostState, natives};
use crate::limits::{CALLS_PER_COLLECTION, STACK_BYTES};
use crate::prelude::{self, Makers};
use crate::to_bson::{WriteError, Writer};
use bson::{RawDocument, RawDocumentBuf};
use rquickjs::context::{EvalOptions, intrinsic};
use rquickjs::function::Args;
use rquickjs::{CaughtError, Coerced, Context, Ctx, Function as JsFunction, Object, Persistent, Runtime, Value};
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
    /// Calls since garbage was looked for.
    calls: Cell<usize>,
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
        let makers = scope.context.with(|ctx| {
            let makers = scope.evaluate_prelude(&ctx);
            makers.map_err(|error| scope.failure(&ctx, error))
        })?;
        *scope.state.makers.borrow_mut() = Some(Rc::new(makers));
        Ok(scope)
    }

    /// Whether a function can be compiled. That takes a small part of what a scope does, in which functions run.
    pub fn check(
        function: &Function,
        heap_bytes: usize,
        is_interrupted: Arc<dyn Fn() -> bool + Send + Sync>,
    ) -> Result<(), ScriptError> {
        let scope = Self::bare(heap_bytes, is_interrupted)?;
        scope.context.with(|ctx| scope.compile(&ctx, function).map(drop))
    }

    /// A scope without the prelude.
    fn bare(heap_bytes: usize, is_interrupted: Arc<dyn Fn() -> bool + Send + Sync>) -> Result<Self, ScriptError> {
        let runtime = Runtime::new().map_err(|_| ScriptError::OutOfMemory)?;
        runtime.set_memory_limit(heap_bytes);
        runtime.set_max_stack_size(STACK_BYTES);
        // The engine would look for garbage also while it makes the error of a full heap, where objects are half
        // changed. So that is done here, between calls.
        runtime.set_gc_threshold(usize::MAX);
        let asked = is_interrupted.clone();
        runtime.set_interrupt_handler(Some(Box::new(move || asked())));
        let context = Context::custom::<Intrinsics>(&runtime).map_err(|_| ScriptError::OutOfMemory)?;
        Ok(Self {
            functions: RefCell::default(),
            state: Rc::new(HostState::new(is_interrupted.clone())),
            context,
            runtime,
            is_interrupted,
            calls: Cell::new(0),
        })
    }

    fn evaluate_prelude(&self, ctx: &Ctx<'_>) -> rquickjs::Result<Makers> {
        let prelude: JsFunction<'_> = ctx.eval(prelude::SOURCE)?;
        let makers: Object<'_> = prelude.call((natives(ctx, &self.state)?,))?;
        Makers::of(ctx, &makers)
    }

    /// Gives the heap so many bytes in all.
    pub fn set_heap_bytes(&self, bytes: usize) {
        self.runtime.set_memory_limit(bytes);
    }

    /// Frees what nothing refers to any more but itself. All else is freed at once.
    pub fn collect_garbage(&self) {
        self.calls.set(0);
        self.runtime.run_gc();
    }

    /// To be called before so many calls.
    fn begin_calls(&self, calls: usize) {
        self.state.originals.clear();
        self.calls.set(self.calls.get() + calls);
        if self.calls.get() > CALLS_PER_COLLECTION {
            self.collect_garbage();
        }
    }

    /// Whether a function gives something true of a document.
    pub fn test(&self, function: &Function, document: &RawDocument) -> Result<bool, ScriptError> {
        self.begin_calls(1);
        self.context.with(|ctx| {
            let arguments = RawDocumentBuf::new();
            let result = self.invoke(&ctx, function, Receiver::Document(document), &arguments)?;
            let truth: Coerced<bool> = result.get().map_err(|error| self.failure(&ctx, error))?;
            Ok(truth.0)
        })
    }

    /// Calls a function with the values of a document, whatever their names. The result is the document `{"": result}`.
    pub fn call(
        &self,
        function: &Function,
        receiver: Receiver<'_>,
        arguments: &RawDocument,
    ) -> Result<RawDocumentBuf, ScriptError> {
        self.begin_calls(1);
        self.context.with(|ctx| {
            let result = self.invoke(&ctx, function, receiver, arguments)?;
            self.written(&ctx, &result)
        })
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
        self.context.with(|ctx| {
            let makers = self.makers()?;
            let reader = self.reader(&ctx, &makers);
            let engine = |error: ReadError| error.or_else(|error| self.failure(&ctx, error));
            let mut values = reader.values(state).map_err(engine)?;
            for list in lists {
                values.extend(reader.values(list).map_err(engine)?);
                let result = self.apply(&ctx, function, Receiver::Empty, values)?;
                values = vec![result];
            }
            let result = values.pop().unwrap_or_else(|| Value::new_undefined(ctx.clone()));
            self.written(&ctx, &result)
        })
    }

    /// Calls a function on a document; the result is what it has emitted, as documents `{k, v}`.
    pub fn emits(&self, function: &Function, document: &RawDocument) -> Result<Vec<RawDocumentBuf>, ScriptError> {
        self.begin_calls(1);
        self.context.with(|ctx| {
            *self.state.emits.borrow_mut() = Some(Emits::default());
            let arguments = RawDocumentBuf::new();
            let called = self
                .invoke(&ctx, function, Receiver::This(document), &arguments)
                .map(drop);
            let emits = self.state.emits.borrow_mut().take().unwrap_or_default();
            called.map(|()| emits.documents)
        })
    }

    fn reader<'r, 'js>(&'r self, ctx: &'r Ctx<'js>, makers: &'r Makers) -> Reader<'r, 'js> {
        Reader {
            ctx,
            makers,
            originals: Some(&self.state.originals),
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
        let makers = self.makers()?;
        let reader = self.reader(ctx, &makers);
        let values = reader.values(arguments);
        let values = values.map_err(|error| error.or_else(|error| self.failure(ctx, error)))?;
        self.apply(ctx, function, receiver, values)
    }

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
        self.set_globals(ctx, function)?;
        let kept = Persistent::save(ctx, compiled.clone());
        self.functions.borrow_mut().insert(function.number, kept);
        Ok(compiled)
    }

    fn compile<'js>(&self, ctx: &Ctx<'js>, function: &Function) -> Result<JsFunction<'js>, ScriptError> {
        let mut first_error = None;
        for candidate in function.candidates() {
            let mut options = EvalOptions::default();
            options.strict = false;
            match ctx.eval_with_options::<JsFunction<'js>, _>(candidate, options) {
                Ok(compiled) => return Ok(compiled),
                Err(error) => {
                    let error = self.failure(ctx, error);
                    first_error.get_or_insert(error);
                }
            }
        }
        Err(first_error.unwrap_or(ScriptError::Malformed))
    }

    fn set_globals(&self, ctx: &Ctx<'_>, function: &Function) -> Result<(), ScriptError> {
        let Some(globals) = function.globals() else {
            return Ok(());
        };
        let makers = self.makers()?;
        let reader = self.reader(ctx, &makers);
        let set = || -> Result<(), ReadError> {
            for element in globals.iter() {
                let (name, value) = element?;
                ctx.globals().set(name.as_str(), reader.value(value)?)?;
            }
            Ok(())
        };
        set().map_err(|error| error.or_else(|error| self.failure(ctx, error)))
    }

    /// What an error of the engine means; takes the exception, if there is one.
    fn failure(&self, ctx: &Ctx<'_>, error: rquickjs::Error) -> ScriptError {
        let caught = CaughtError::from_error(ctx, error);
        if (self.is_interrupted)() {
            return ScriptError::Interrupted;
        }
        match caught {
            CaughtError::Error(rquickjs::Error::Allocation) => ScriptError::OutOfMemory,
            CaughtError::Error(error) => ScriptError::Exception(error.to_string()),
            CaughtError::Exception(exception) => {
                let message = exception.message().unwrap_or_default();
                let name = exception
                    .as_object()
                    .get::<_, String>("name")
                    .unwrap_or_else(|_| "Error".to_owned());
                drop(ctx.catch());
                if name == "InternalError" && message == "out of memory" {
                    return ScriptError::OutOfMemory;
                }
                let stack = exception.stack().unwrap_or_default();
                ScriptError::Exception(format!("{name}: {message} :\n{stack}"))
            }
            CaughtError::Value(value) => {
                // Its conversion may run a script, and fail in turn.
                let text = value.get::<Coerced<String>>().map(|text| text.0);
                drop(ctx.catch());
                match text {
                    Ok(text) => ScriptError::Exception(format!("uncaught exception: {text}")),
                    Err(_) => ScriptError::Exception("uncaught exception".to_owned()),
                }
            }
        }
    }
}
