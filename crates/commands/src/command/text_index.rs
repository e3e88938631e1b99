//! The specification of a text index as clients give it, brought into the form that is kept: its fields with text
//! become `{_fts: "text", _ftsx: 1}` in the key and paths among the weights.

use crate::error::{CommandError, Result};
use bson::raw::{RawBsonRef, RawDocument};
use bson::{Bson, Document};
use keys::TextSpec;
use keys::extract::{PATH_PARTS_MAX, SCORE_FIELD, TERM_FIELD};
use std::collections::BTreeMap;
use wire::ErrorCode;

/// Weights lie below.
const WEIGHT_MAX: f64 = 100_000.0;
const VERSION: i32 = 3;
const EVERYTHING: &str = "$**";

/// The options that text indexes alone have.
pub(super) const OPTIONS: [&str; 4] = ["weights", "default_language", "language_override", "textIndexVersion"];

fn cannot<T>(message: impl Into<String>) -> Result<T> {
    Err(CommandError::new(ErrorCode::CannotCreateIndex, message.into()))
}

/// Whether the key has a field with text.
pub(super) fn is_text_key(key: &RawDocument) -> bool {
    key.into_iter()
        .flatten()
        .any(|(_, value)| matches!(value, RawBsonRef::String("text")))
}

/// The key as it is kept, with the options completed.
pub(super) fn normalise(key: &RawDocument, options: &mut Document) -> Result<Document> {
    let mut weights: BTreeMap<String, Bson> = BTreeMap::new();
    match options.remove("weights") {
        None => {}
        Some(Bson::String(path)) if path == EVERYTHING => drop(weights.insert(path, Bson::Int32(1))),
        Some(Bson::Document(given)) => weights.extend(given),
        Some(_) => return cannot("text index option 'weights' must be an object"),
    }
    let mut kept = Document::new();
    let mut is_kept_form = false;
    // Before the fields with text, among them, behind them.
    let mut part = 0;
    for element in key {
        let (name, value) = element?;
        let name = name.as_str();
        let is_text = value == RawBsonRef::String("text");
        match (is_text, part) {
            (true, 2) => return cannot("'text' fields in index must all be adjacent"),
            (true, _) => {
                if part == 0 {
                    kept.insert(TERM_FIELD, "text");
                    kept.insert(SCORE_FIELD, 1);
                }
                part = 1;
                is_kept_form |= name == TERM_FIELD;
                if name != TERM_FIELD {
                    weights.entry(name.to_owned()).or_insert(Bson::Int32(1));
                }
            }
            (false, 1) if is_kept_form && name == SCORE_FIELD => {}
            (false, _) => {
                if name.starts_with('$') || name == TERM_FIELD || name == SCORE_FIELD {
                    return cannot(format!("field '{name}' cannot stand beside text in an index"));
                }
                if matches!(value, RawBsonRef::String(_)) {
                    return cannot("Can't use more than one index plugin for a single index.");
                }
                if !matches!(crate::arguments::number_as_i64(value), Some(1 | -1)) {
                    return cannot("expected value 1 or -1 for non-text key field in compound index");
                }
                part = if part == 0 { 0 } else { 2 };
                kept.insert(name, Bson::try_from(value)?);
            }
        }
    }
    if weights.is_empty() {
        return cannot("a text index has no fields: its weights are missing");
    }
    for (path, weight) in &mut weights {
        *weight = Bson::Int32(checked_weight(path, weight)?);
    }
    options.insert("weights", weights.into_iter().collect::<Document>());
    options.entry("default_language".to_owned()).or_insert("english".into());
    options
        .entry("language_override".to_owned())
        .or_insert("language".into());
    if let Some(Bson::String(field)) = options.get("language_override")
        && (field.is_empty() || field.contains('.') || field.starts_with('$'))
    {
        return cannot(format!(
            "language_override is not valid: {field:?} is no name of a field"
        ));
    }
    // Indexes of old dumps are made anew, of the version there is.
    if let Some(version) = options.get("textIndexVersion")
        && !as_number(version).is_some_and(|version| [1.0, 2.0, 3.0].contains(&version))
    {
        return cannot(format!("bad textIndexVersion: {version}"));
    }
    options.insert("textIndexVersion", VERSION);
    let spec = bson::RawDocumentBuf::try_from(&*options)?;
    if let Err(error) = TextSpec::parse(&spec) {
        return cannot(error.to_string());
    }
    Ok(kept)
}

fn as_number(value: &Bson) -> Option<f64> {
    match value {
        Bson::Int32(number) => Some(f64::from(*number)),
        Bson::Int64(number) => Some(*number as f64),
        Bson::Double(number) => Some(*number),
        _ => None,
    }
}

/// The weight of a path: a whole number, others lose their fraction.
fn checked_weight(path: &str, weight: &Bson) -> Result<i32> {
    let Some(number) = as_number(weight) else {
        return cannot(format!("weight for text index needs numeric type, found {weight}"));
    };
    let whole = number.trunc();
    if !(whole > 0.0 && whole < WEIGHT_MAX) {
        return cannot(format!(
            "text index weight must be in the exclusive interval (0,{WEIGHT_MAX}) but found: {number}"
        ));
    }
    if path == EVERYTHING {
        return Ok(whole as i32);
    }
    if path.is_empty() || path.split('.').any(str::is_empty) {
        return cannot("weight cannot be on an empty field");
    }
    if path.split('.').any(|part| part.starts_with('$')) {
        return cannot("no part of the path of a text index field can start with '$'");
    }
    if path.split('.').nth(PATH_PARTS_MAX).is_some() {
        return cannot(format!(
            "the path of a text index field has at most {PATH_PARTS_MAX} parts"
        ));
    }
    Ok(whole as i32)
}
