//! Words of languages, as text indexes know them.
//!
//! [`Analyzer`] takes the terms out of a text: it cuts at delimiters, folds, leaves stop words out and stems.
//! [`Scores`] weighs the terms of a document, [`Search`] is what a client looks for. The crate knows neither documents
//! nor indexes; it knows text of version 3 of MongoDB's text indexes only.
//!
//! Terms and scores are in the keys of indexes: whoever changes what they are for some text leaves keys behind that
//! deletions do not find. `docs/formats/keys.md` says so, `terms_never_change` in `analyzer` holds samples.

mod analyzer;
mod fold;
mod language;
mod score;
mod search;

pub use analyzer::{Analyzer, Folding};
pub use language::Language;
pub use score::Scores;
pub use search::{CountBytes, Found, Search};
