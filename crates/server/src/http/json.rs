//! BSON as plain JSON for the page: numbers are numbers, times are milliseconds.

use bson::Bson;
use serde_json::Value;

/// What a script reads. Kinds that figures do not have become `null`.
pub fn to_json(value: &Bson) -> Value {
    match value {
        Bson::Double(number) => (*number).into(),
        Bson::Int32(number) => (*number).into(),
        Bson::Int64(number) => (*number).into(),
        Bson::Boolean(truth) => (*truth).into(),
        Bson::String(text) => text.as_str().into(),
        Bson::DateTime(time) => time.timestamp_millis().into(),
        Bson::Timestamp(time) => time.time.into(),
        Bson::Array(values) => values.iter().map(to_json).collect(),
        Bson::Document(document) => Value::Object(
            document
                .iter()
                .map(|(name, value)| (name.clone(), to_json(value)))
                .collect(),
        ),
        _ => Value::Null,
    }
}
