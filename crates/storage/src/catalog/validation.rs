//! The rules that a collection's documents have to keep, as its options give them.
//!
//! This layer knows no filters: whoever enforces the rules compiles them, once for each definition of the collection,
//! and keeps the result here.

use bson::{RawDocument, RawDocumentBuf};
use std::any::Any;
use std::sync::{Arc, OnceLock};

/// `validationLevel`, but for `off`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValidationLevel {
    /// Every document that is written has to be valid.
    Strict,
    /// A document that was not valid before need not be after an update.
    Moderate,
}

/// `validationAction`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValidationAction {
    /// The write fails.
    Error,
    /// The log tells of it.
    Warn,
}

/// See the module.
pub struct Validation {
    validator: RawDocumentBuf,
    level: ValidationLevel,
    action: ValidationAction,
    compiled: OnceLock<Arc<dyn Any + Send + Sync>>,
}

impl Validation {
    /// Reads the rules out of a collection's options; `None` when there is nothing to enforce.
    pub(crate) fn of(options: &RawDocument) -> Option<Box<Self>> {
        let validator = options.get_document("validator").ok()?;
        let level = match options.get_str("validationLevel") {
            Ok("off") => return None,
            Ok("moderate") => ValidationLevel::Moderate,
            _ => ValidationLevel::Strict,
        };
        let action = match options.get_str("validationAction") {
            Ok("warn") => ValidationAction::Warn,
            _ => ValidationAction::Error,
        };
        (!validator.is_empty()).then(|| {
            Box::new(Self {
                validator: validator.to_owned(),
                level,
                action,
                compiled: OnceLock::new(),
            })
        })
    }

    /// The filter that documents have to match.
    pub fn validator(&self) -> &RawDocument {
        &self.validator
    }

    /// Which writes are concerned.
    pub fn level(&self) -> ValidationLevel {
        self.level
    }

    /// What becomes of a document that is not valid.
    pub fn action(&self) -> ValidationAction {
        self.action
    }

    /// The compiled validator; the first to ask makes it. All callers must ask for the same type.
    pub fn compiled<T: Any + Send + Sync, E>(
        &self,
        compile: impl FnOnce(&RawDocument) -> Result<T, E>,
    ) -> Result<Arc<T>, E> {
        let compiled = match self.compiled.get() {
            Some(compiled) => compiled.clone(),
            None => {
                let made: Arc<dyn Any + Send + Sync> = Arc::new(compile(&self.validator)?);
                self.compiled.get_or_init(|| made).clone()
            }
        };
        Ok(compiled.downcast().expect("all callers ask for the same type"))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use bson::rawdoc;

    #[test]
    fn options_without_something_to_enforce_have_none() {
        for options in [
            rawdoc! {},
            rawdoc! { "validator": {} },
            rawdoc! { "validationLevel": "strict" },
            rawdoc! { "validator": { "a": 1 }, "validationLevel": "off" },
        ] {
            assert!(Validation::of(&options).is_none(), "{options:?}");
        }
        let options = rawdoc! { "validator": { "a": 1 }, "validationLevel": "moderate", "validationAction": "warn" };
        let validation = Validation::of(&options).unwrap();
        assert_eq!(validation.level(), ValidationLevel::Moderate);
        assert_eq!(validation.action(), ValidationAction::Warn);
    }

    #[test]
    fn it_is_compiled_once_and_after_a_failure_again() {
        let validation = Validation::of(&rawdoc! { "validator": { "a": 1 } }).unwrap();
        let mut times = 0;
        assert_eq!(validation.compiled(|_| Err::<usize, _>("no")), Err("no"));
        for _ in 0..3 {
            let length = validation.compiled(|filter| {
                times += 1;
                Ok::<_, ()>(filter.as_bytes().len())
            });
            assert_eq!(length, Ok(Arc::new(validation.validator().as_bytes().len())));
        }
        assert_eq!(times, 1);
    }
}
