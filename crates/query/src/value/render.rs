//! Values as error messages show them.

use bson::{Bson, RawBsonRef};

/// Levels of documents and arrays that are shown: what is computed nests deeper than a stack may bear.
const DEPTH_MAX: usize = 20;

/// Appends a value.
pub(super) fn render(raw: RawBsonRef<'_>, depth: usize, text: &mut String) {
    match raw {
        RawBsonRef::Document(_) | RawBsonRef::Array(_) if depth == DEPTH_MAX => text.push_str("..."),
        RawBsonRef::Document(document) => {
            text.push('{');
            for (place, (name, value)) in document.into_iter().flatten().enumerate() {
                text.push_str(if place == 0 { " \"" } else { ", \"" });
                text.push_str(name.as_str());
                text.push_str("\": ");
                render(value, depth + 1, text);
            }
            text.push_str(if document.is_empty() { "}" } else { " }" });
        }
        RawBsonRef::Array(array) => {
            text.push('[');
            for (place, value) in array.into_iter().flatten().enumerate() {
                if place > 0 {
                    text.push_str(", ");
                }
                render(value, depth + 1, text);
            }
            text.push(']');
        }
        scalar => match Bson::try_from(scalar) {
            Ok(scalar) => text.push_str(&scalar.to_string()),
            Err(_) => text.push('?'),
        },
    }
}
