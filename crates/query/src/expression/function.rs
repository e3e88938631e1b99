//! `$function`, and `$_internalJsEmit`, which is the map function of `mapReduce`.

use bson::{RawDocument, RawDocumentBuf};
use script::{Function, Receiver};
use wire::ErrorCode;

use super::{Evaluation, Gathered, Node, Special};
use crate::error::QueryError;
use crate::evaluation::EvaluationContext;
use crate::value::{DocumentWriter, SharedDocument, Value};

/// The document of a call's arguments: the elements of an array, each under its position.
pub(crate) fn script_arguments(array: &Value<'_>) -> Result<Option<SharedDocument>, QueryError> {
    let Value::Array(array) = array else {
        return Ok(None);
    };
    let mut out = Vec::with_capacity(64);
    let mut writer = DocumentWriter::new(&mut out);
    for (position, item) in array.iter().enumerate() {
        match item? {
            Value::Missing => writer.append(&position.to_string(), &Value::Undefined),
            item => writer.append(&position.to_string(), &item),
        }
    }
    writer.finish();
    Ok(Some(SharedDocument::computed(out)?))
}

/// The result of a call as a value: the only field of the document that it gave.
pub(crate) fn script_result(result: RawDocumentBuf) -> Result<Value<'static>, QueryError> {
    let result = SharedDocument::from(result);
    Ok(Value::field(&result, "")?.shared_in(&result))
}

/// Calls a function without `this` with the values of `arguments`.
pub(crate) fn call_script(
    context: &EvaluationContext<'_>,
    function: &Function,
    arguments: &RawDocument,
) -> Result<Value<'static>, QueryError> {
    script_result(context.scripts(|scope| scope.call(function, Receiver::Empty, arguments))?)
}

/// `$function`
#[derive(Debug)]
pub(super) struct Call {
    pub(super) function: Function,
    pub(super) arguments: Node,
}

impl Special for Call {
    fn evaluate<'a>(&'a self, evaluation: &mut Evaluation<'a>) -> Result<Value<'a>, QueryError> {
        let Some(arguments) = script_arguments(&self.arguments.evaluate(evaluation)?)? else {
            return Err(QueryError::new(
                ErrorCode(31266),
                "The args field must be of type array",
            ));
        };
        if !evaluation.context.runs_scripts() {
            evaluation.context.skip_script();
            return Ok(Value::Null);
        }
        let mark = evaluation.context.held();
        evaluation.context.hold(arguments.as_bytes().len())?;
        let result = call_script(evaluation.context, &self.function, &arguments);
        evaluation.context.release_to(mark);
        result
    }

    fn visit_children(&self, visit: &mut dyn FnMut(&Node)) {
        visit(&self.arguments);
    }

    /// Two calls may differ: it may look at the time, or count itself.
    fn is_pure(&self) -> bool {
        false
    }
}

/// `$_internalJsEmit`
#[derive(Debug)]
pub(super) struct Emit {
    pub(super) function: Function,
    pub(super) this: Node,
}

impl Special for Emit {
    fn evaluate<'a>(&'a self, evaluation: &mut Evaluation<'a>) -> Result<Value<'a>, QueryError> {
        let this = self.this.evaluate(evaluation)?;
        let Some(this) = this.as_document() else {
            return Err(QueryError::new(ErrorCode(31225), "'this' must be an object."));
        };
        let emitted = evaluation.context.scripts(|scope| scope.emits(&self.function, this))?;
        let mut items = Gathered::new(evaluation.context);
        for document in emitted {
            items.push(Value::document(document.into()))?;
        }
        items.finish()
    }

    fn visit_children(&self, visit: &mut dyn FnMut(&Node)) {
        visit(&self.this);
    }

    fn is_pure(&self) -> bool {
        false
    }
}
