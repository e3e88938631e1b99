//! `$text`: what is searched for, and whether a document has it.
//!
//! What a search means is said by the collection's text index: which texts count and in which language they are. So a
//! test is *bound* to the index before a plan runs; one that is not answers nothing.

use std::sync::{Arc, OnceLock};

use bson::raw::RawBsonRef;
use bson::{RawDocument, RawDocumentBuf};
use keys::{ExtractError, TextSpec};
use text::{Analyzer, Folding, Found, Language, Search};
use wire::ErrorCode;

use super::MatchExpr;
use crate::QueryError;
use crate::evaluation::EvaluationContext;
use crate::value::BYTES_PER_STEP;

/// What the scan of a term takes with its bounds, about.
const SCAN_BYTES: usize = 1200;

/// `$text`.
#[derive(Debug)]
pub struct TextTest {
    search: String,
    language: Option<Language>,
    folding: Folding,
    source: RawDocumentBuf,
    bound: OnceLock<Bound>,
}

#[derive(Debug)]
struct Bound {
    spec: Arc<TextSpec>,
    search: Search,
}

/// Why a document was not looked through.
enum Refused {
    /// It says that it is in no language there is: no text index has it.
    Text,
    Query(QueryError),
}

impl From<ExtractError> for Refused {
    fn from(_: ExtractError) -> Self {
        Self::Text
    }
}

/// Counts bytes that are looked at as steps.
fn counted(context: &EvaluationContext<'_>) -> impl FnMut(usize) -> Result<(), QueryError> {
    |bytes| context.steps(1 + bytes / BYTES_PER_STEP)
}

/// There is no index that could answer.
pub(crate) fn no_index() -> QueryError {
    QueryError::new(ErrorCode::IndexNotFound, "text index required for $text query")
}

/// Refuses a second `$text`.
pub(super) fn check_searches(expr: &MatchExpr) -> Result<(), QueryError> {
    fn count(expr: &MatchExpr) -> usize {
        match expr {
            MatchExpr::Text(_) => 1,
            MatchExpr::And(parts) | MatchExpr::Or(parts) => parts.iter().map(count).sum(),
            _ => 0,
        }
    }
    match count(expr) {
        0 | 1 => Ok(()),
        _ => Err(QueryError::bad_value("Too many text expressions")),
    }
}

impl TextTest {
    pub(super) fn parse(value: RawBsonRef<'_>) -> Result<Arc<Self>, QueryError> {
        let RawBsonRef::Document(document) = value else {
            return Err(QueryError::bad_value("$text expects an object"));
        };
        let (mut search, mut language) = (None, None);
        let mut folding = Folding::default();
        let wrong_type = |name: &str, wanted: &str, found: RawBsonRef<'_>| {
            let found = crate::raw::type_name(found.element_type());
            QueryError::type_mismatch(format!(
                "\"{name}\" had the wrong type. Expected {wanted}, found {found}"
            ))
        };
        for element in document {
            let (name, value) = element.map_err(|_| QueryError::bad_value("malformed $text"))?;
            match (name.as_str(), value) {
                ("$search", RawBsonRef::String(text)) => search = Some(text.to_owned()),
                ("$language", RawBsonRef::String(name)) => {
                    let unknown = || {
                        QueryError::bad_value(format!(
                            "$language specifies unsupported value: unsupported language: \"{name}\" for text index \
                             version 3"
                        ))
                    };
                    // Nothing is as if it were not given.
                    language = match name {
                        "" => None,
                        name => Some(Language::parse(name).ok_or_else(unknown)?),
                    };
                }
                ("$caseSensitive", RawBsonRef::Boolean(sensitive)) => folding.case_sensitive = sensitive,
                ("$diacriticSensitive", RawBsonRef::Boolean(sensitive)) => folding.diacritic_sensitive = sensitive,
                ("$search" | "$language", other) => return Err(wrong_type(name.as_str(), "string", other)),
                ("$caseSensitive" | "$diacriticSensitive", other) => {
                    return Err(wrong_type(name.as_str(), "bool", other));
                }
                (other, _) => {
                    return Err(QueryError::bad_value(format!("extra fields in $text: {other}")));
                }
            }
        }
        let search =
            search.ok_or_else(|| QueryError::new(ErrorCode::NoSuchKey, "Missing expected field \"$search\""))?;
        Ok(Arc::new(Self {
            search,
            language,
            folding,
            source: document.to_owned(),
            bound: OnceLock::new(),
        }))
    }

    /// The argument as the client gave it.
    pub(crate) fn source(&self) -> &RawDocument {
        &self.source
    }

    /// Says which index the search is of; what it is looked for, taken apart.
    pub(crate) fn bind(&self, spec: &Arc<TextSpec>, context: &EvaluationContext<'_>) -> Result<&Search, QueryError> {
        if self.bound.get().is_none() {
            let language = self.language.unwrap_or(spec.default_language());
            let search = Search::parse(&self.search, language, self.folding, &mut counted(context))?;
            let spec = spec.clone();
            // Whoever came first was given the same.
            let _ = self.bound.set(Bound { spec, search });
        }
        self.search().ok_or_else(no_index)
    }

    /// What is looked for, of a test that is bound.
    pub(crate) fn search(&self) -> Option<&Search> {
        self.bound.get().map(|bound| &bound.search)
    }

    /// Memory of a test that is bound, with a scan of the index for each of its terms, about.
    pub(crate) fn bytes(&self) -> usize {
        let of_search = |search: &Search| search.bytes() + search.terms().len() * SCAN_BYTES;
        self.search().map_or(0, of_search)
    }

    /// Whether a document has what is looked for.
    pub(crate) fn matches(&self, document: &RawDocument, context: &EvaluationContext<'_>) -> Result<bool, QueryError> {
        self.look(document, Search::start, context)
    }

    /// The same of a document that the index has led to by one of the terms.
    pub(crate) fn matches_found(
        &self,
        document: &RawDocument,
        context: &EvaluationContext<'_>,
    ) -> Result<bool, QueryError> {
        self.look(document, Search::start_found, context)
    }

    fn look(
        &self,
        document: &RawDocument,
        start: fn(&Search) -> Found,
        context: &EvaluationContext<'_>,
    ) -> Result<bool, QueryError> {
        let Bound { spec, search } = self.bound.get().ok_or_else(no_index)?;
        let mut analyzer = Analyzer::new(search.language(), search.folding());
        context.steps(1 + search.phrases().len() / BYTES_PER_STEP)?;
        let mut found = start(search);
        let looked = spec.texts::<Refused>(document, &mut |text, language, _| {
            analyzer.set_language(language);
            search
                .look(text, &mut analyzer, &mut found, &mut counted(context))
                .map_err(Refused::Query)
        });
        match looked {
            Ok(()) => Ok(search.matches(&found)),
            Err(Refused::Text) => Ok(false),
            Err(Refused::Query(error)) => Err(error),
        }
    }
}
