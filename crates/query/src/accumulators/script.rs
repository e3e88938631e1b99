//! `$accumulator`, and `$_internalJsReduce`, which is the reduce function of `mapReduce`.
//!
//! A state is what the client's functions have made of it, as BSON. Arguments gather until there are some of them, so
//! that the state goes into the script and comes back once for all of these. Values of a key gather until they are more
//! than one call of a reduce function gets; then they are reduced to one. No two states are ever merged: a group
//! that is written down goes on with its state (see [`crate::stages`]), so that `merge` is only compiled.

use bson::{RawBsonRef, RawDocument};
use script::{Function, Receiver};
use wire::ErrorCode;

use super::encode::{StateReader, StateWriter, damaged};
use super::failure;
use crate::error::QueryError;
use crate::evaluation::EvaluationContext;
use crate::expression::{Expression, ExpressionContext, call_script, script_arguments, script_result};
use crate::scripts;
use crate::value::scan::Malformed;
use crate::value::{DocumentWriter, SharedDocument, Value};

/// Arguments that gather, and their bytes.
const PENDING_MAX: usize = 1000;
const PENDING_BYTES_MAX: usize = 1 << 20;
/// Bytes of values that one call of a reduce function gets: what a document may have.
const REDUCED_BYTES_MAX: usize = 16 << 20;

/// The functions of a client.
#[derive(Debug)]
pub(crate) enum ScriptSpec {
    /// `$accumulator`
    Accumulator {
        init: Function,
        init_arguments: Option<Expression>,
        accumulate: Function,
        finalize: Option<Function>,
    },
    /// `$_internalJsReduce`
    Reduce(Function),
}

/// One group's state.
#[derive(Debug, Default)]
pub struct ScriptState {
    /// What the functions have made so far; of a reduction, the key.
    state: Option<Value<'static>>,
    pending: Vec<Value<'static>>,
    pending_bytes: usize,
    /// How many of these are what others were reduced to.
    reduced_bytes: usize,
}

fn function(name: &str, raw: RawBsonRef<'_>, context: &ExpressionContext) -> Result<Function, QueryError> {
    let expression = Expression::parse(raw, context)?;
    match expression.as_constant() {
        None => failure(4544701, format!("$accumulator '{name}' must be a constant expression")),
        Some(Value::String(code) | Value::JavaScript(code)) => Ok(context.script(code)),
        Some(_) => failure(4544702, format!("$accumulator '{name}' must be a String or Code")),
    }
}

impl ScriptSpec {
    /// Parses the argument of `$accumulator`; with what is accumulated of each document.
    pub(super) fn parse(raw: RawBsonRef<'_>, context: &ExpressionContext) -> Result<(Self, Expression), QueryError> {
        let RawBsonRef::Document(document) = raw else {
            let found = Value::from_raw(raw).type_name();
            return failure(
                4544703,
                format!("$accumulator expects an object as an argument; found: {found}"),
            );
        };
        let (mut init, mut accumulate, mut merge, mut finalize) = (None, None, None, None);
        let (mut init_arguments, mut arguments) = (None, None);
        for element in document {
            let (name, raw) = element.map_err(|_| Malformed)?;
            match name.as_str() {
                "init" => init = Some(function("init", raw, context)?),
                "accumulate" => accumulate = Some(function("accumulate", raw, context)?),
                "merge" => merge = Some(function("merge", raw, context)?),
                "finalize" => finalize = Some(function("finalize", raw, context)?),
                "initArgs" => init_arguments = Some(Expression::parse(raw, context)?),
                "accumulateArgs" => arguments = Some(Expression::parse(raw, context)?),
                "lang" => match raw {
                    RawBsonRef::String("js") => {}
                    RawBsonRef::String(_) => return failure(4544705, "$accumulator only supports lang: 'js'"),
                    other => {
                        let found = Value::from_raw(other).type_name();
                        return failure(4544704, format!("$accumulator lang must be a string; found: {found}"));
                    }
                },
                other => return failure(4544706, format!("$accumulator got an unexpected field: {other}")),
            }
        }
        let missing = |code: i32, name: &str| {
            QueryError::new(
                ErrorCode(code),
                format!("$accumulator missing required argument '{name}'"),
            )
        };
        let init = init.ok_or_else(|| missing(4544707, "init"))?;
        let accumulate = accumulate.ok_or_else(|| missing(4544708, "accumulate"))?;
        let merge = merge.ok_or_else(|| missing(4544709, "merge"))?;
        let arguments = arguments.ok_or_else(|| missing(4544710, "accumulateArgs"))?;
        if !context.runs_scripts() {
            return Err(scripts::disabled());
        }
        scripts::check(&merge, context.evaluation().operation())?;
        let spec = Self::Accumulator {
            init,
            init_arguments,
            accumulate,
            finalize,
        };
        Ok((spec, arguments))
    }

    /// Parses the argument of `$_internalJsReduce`.
    pub(super) fn parse_reduce(
        raw: RawBsonRef<'_>,
        context: &ExpressionContext,
    ) -> Result<(Self, Expression), QueryError> {
        let RawBsonRef::Document(document) = raw else {
            let found = Value::from_raw(raw).type_name();
            return failure(
                31326,
                format!("$_internalJsReduce requires a document argument, but found {found}"),
            );
        };
        let (mut reduce, mut data) = (None, None);
        for element in document {
            let (name, raw) = element.map_err(|_| Malformed)?;
            match (name.as_str(), raw) {
                ("eval", RawBsonRef::String(code) | RawBsonRef::JavaScriptCode(code)) => {
                    reduce = Some(context.script(code));
                }
                ("eval", other) => {
                    let found = Value::from_raw(other).type_name();
                    return failure(
                        31244,
                        format!(
                            "$_internalJsReduce requires the 'eval' argument to be of type string, or code but found \
                             {found}"
                        ),
                    );
                }
                ("data", raw) => data = Some(Expression::parse(raw, context)?),
                (other, _) => {
                    return failure(
                        31243,
                        format!("Invalid argument specified to $_internalJsReduce: {other}"),
                    );
                }
            }
        }
        let Some(reduce) = reduce else {
            return failure(31245, "$_internalJsReduce requires 'eval' argument");
        };
        let Some(data) = data else {
            return failure(31349, "$_internalJsReduce requires 'data' argument");
        };
        if !context.runs_scripts() {
            return Err(scripts::disabled());
        }
        Ok((Self::Reduce(reduce), data))
    }

    /// Whether the same arguments begin each group.
    pub(crate) fn begins_alike(&self) -> bool {
        match self {
            Self::Accumulator {
                init_arguments: Some(arguments),
                ..
            } => !super::reads_document(arguments),
            _ => true,
        }
    }

    /// Begins a group. Its key, where that is a document, is what the arguments of `init` are computed on. Returns the
    /// bytes of what `init` gives, roughly.
    pub(super) fn begin(
        &self,
        state: &mut ScriptState,
        id: &Value<'_>,
        context: &EvaluationContext<'_>,
    ) -> Result<usize, QueryError> {
        let Self::Accumulator {
            init, init_arguments, ..
        } = self
        else {
            return Ok(0);
        };
        let empty = SharedDocument::empty();
        let root: &RawDocument = id.as_document().unwrap_or(&empty);
        let arguments = match init_arguments {
            None => Some(SharedDocument::empty()),
            Some(arguments) => script_arguments(&arguments.evaluate_on(root, context)?)?,
        };
        let Some(arguments) = arguments else {
            return failure(4544711, "$accumulator initArgs must evaluate to an array");
        };
        let begun = call_script(context, init, &arguments)?;
        let bytes = begun.approximate_bytes();
        state.state = Some(begun);
        Ok(bytes)
    }

    /// Takes in what a document gives; returns by how many bytes the state has grown, or shrunk, roughly.
    pub(super) fn add(
        &self,
        state: &mut ScriptState,
        value: Value<'_>,
        context: &EvaluationContext<'_>,
    ) -> Result<isize, QueryError> {
        let before = state.bytes();
        self.take_in(state, value, context)?;
        Ok(state.bytes().cast_signed() - before.cast_signed())
    }

    fn take_in(
        &self,
        state: &mut ScriptState,
        value: Value<'_>,
        context: &EvaluationContext<'_>,
    ) -> Result<(), QueryError> {
        match self {
            Self::Accumulator { .. } => {
                if value.as_array().is_none() {
                    return failure(
                        4544712,
                        format!(
                            "$accumulator accumulateArgs must evaluate to an array: {}",
                            value.render()
                        ),
                    );
                }
                state.push(value.into_owned());
                if state.pending.len() >= PENDING_MAX || state.pending_bytes >= PENDING_BYTES_MAX {
                    self.apply_pending(state, context)?;
                }
                Ok(())
            }
            Self::Reduce(reduce) => {
                if value.is_missing() {
                    return Ok(());
                }
                let parts = value
                    .as_document()
                    .map(|data| (Value::field(data, "k"), Value::field(data, "v")));
                let (key, value) = match parts {
                    Some((Ok(key), Ok(value))) if !key.is_missing() && !value.is_missing() => (key, value),
                    _ => {
                        return failure(
                            31251,
                            "$_internalJsReduce requires the 'data' argument to have a 'k' and 'v' field",
                        );
                    }
                };
                if state.state.is_none() {
                    state.state = Some(key.into_owned());
                }
                state.push(value.into_owned());
                if state.pending_bytes - state.reduced_bytes > REDUCED_BYTES_MAX {
                    let result = reduced(reduce, state, context)?;
                    state.push(result);
                    state.reduced_bytes = state.pending_bytes;
                }
                Ok(())
            }
        }
    }

    fn apply_pending(&self, state: &mut ScriptState, context: &EvaluationContext<'_>) -> Result<(), QueryError> {
        let Self::Accumulator { accumulate, .. } = self else {
            return Ok(());
        };
        let lists = std::mem::take(&mut state.pending);
        state.pending_bytes = 0;
        if lists.is_empty() {
            return Ok(());
        }
        let lists = lists
            .iter()
            .map(|list| script_arguments(list)?.ok_or_else(|| Malformed.into()));
        let lists = lists.collect::<Result<Vec<SharedDocument>, QueryError>>()?;
        let before = state.state.take().unwrap_or(Value::Undefined).wrapped();
        let folded = context.scripts(|scope| {
            let lists = lists.iter().map(SharedDocument::as_raw);
            scope.fold(accumulate, &before, lists)
        })?;
        state.state = Some(script_result(folded)?);
        Ok(())
    }

    /// The group's result.
    pub(super) fn finish(
        &self,
        mut state: ScriptState,
        context: &EvaluationContext<'_>,
    ) -> Result<Value<'static>, QueryError> {
        match self {
            Self::Accumulator { finalize, .. } => {
                self.apply_pending(&mut state, context)?;
                let result = state.state.unwrap_or(Value::Undefined);
                match finalize {
                    Some(finalize) => call_script(context, finalize, &result.wrapped()),
                    None => Ok(result),
                }
            }
            Self::Reduce(reduce) => reduced(reduce, &mut state, context),
        }
    }
}

/// Reduces the values of a key, the last one first, until one is left, and takes them out of its state; a single one is
/// reduced, too, as in MongoDB.
fn reduced(
    reduce: &Function,
    state: &mut ScriptState,
    context: &EvaluationContext<'_>,
) -> Result<Value<'static>, QueryError> {
    let mut values = std::mem::take(&mut state.pending);
    (state.pending_bytes, state.reduced_bytes) = (0, 0);
    let key = state.state.as_ref().unwrap_or(&Value::Null);
    if values.is_empty() {
        return Ok(Value::Missing);
    }
    loop {
        let mut out = Vec::with_capacity(256);
        let mut arguments = DocumentWriter::new(&mut out);
        arguments.append("0", key);
        let mut list = arguments.array("1");
        let (mut bytes, mut taken) = (key.approximate_bytes(), 0);
        for value in values.iter().rev() {
            bytes += value.approximate_bytes();
            if bytes > REDUCED_BYTES_MAX {
                if taken <= 1 {
                    return failure(31392, "Value too large to reduce");
                }
                break;
            }
            list.push(value);
            taken += 1;
        }
        list.finish();
        arguments.finish();
        let arguments = SharedDocument::computed(out)?;
        let result = context.scripts(|scope| scope.call(reduce, Receiver::Empty, &arguments))?;
        let result = script_result(result)?;
        values.truncate(values.len() - taken);
        if values.is_empty() {
            return Ok(result);
        }
        values.push(result);
    }
}

impl ScriptState {
    fn push(&mut self, value: Value<'static>) {
        self.pending_bytes += value.approximate_bytes();
        self.pending.push(value);
    }

    fn bytes(&self) -> usize {
        self.pending_bytes + self.state.as_ref().map_or(0, Value::approximate_bytes)
    }

    pub(super) fn write(&self, out: &mut StateWriter<'_>) {
        out.u64(u64::from(self.state.is_some()));
        if let Some(state) = &self.state {
            out.value(state);
        }
        out.u64(self.pending.len() as u64);
        self.pending.iter().for_each(|value| out.value(value));
    }

    pub(super) fn read(bytes: &mut StateReader<'_>) -> Result<Self, QueryError> {
        let mut state = Self::default();
        match bytes.u64()? {
            0 => {}
            1 => state.state = Some(bytes.value()?.into_owned()),
            _ => return Err(damaged()),
        }
        for _ in 0..bytes.count()? {
            state.push(bytes.value()?.into_owned());
        }
        Ok(state)
    }
}
