//! Bytes as a document: what validation passes, the `bson` crate can read to the last value.
#![no_main]

use bson::RawDocument;
use bson::raw::RawBsonRef;
use libfuzzer_sys::fuzz_target;

fn read(document: &RawDocument) {
    for element in document {
        let (_, value) = element.expect("a validated document has readable elements");
        match value {
            RawBsonRef::Document(inner) => read(inner),
            RawBsonRef::Array(inner) => inner.into_iter().for_each(|item| {
                if let RawBsonRef::Document(inner) = item.expect("a validated array has readable items") {
                    read(inner);
                }
            }),
            RawBsonRef::JavaScriptCodeWithScope(code) => read(code.scope),
            _ => {}
        }
    }
}

fuzz_target!(|data: &[u8]| {
    if let Ok(document) = wire::validate_document(data) {
        read(document);
    }
    let _ = wire::validate_documents(data);
});
