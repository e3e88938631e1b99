//! Bytes as a file of `tenon import`: the first byte chooses its form. What is read is a valid document, and its canonical
//! text is read as the same bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use transfer::{Columns, Decoded, Decoder, Grace, Reader, Separator, TextForm, TypedNames};

fn columns(names: &[&str], typed: TypedNames) -> Decoder {
    let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
    let columns = Columns::new(&names, typed, Grace::SkipField).and_then(Columns::with_arrays);
    Decoder::Columns(columns.expect("these are columns"))
}

fuzz_target!(|data: &[u8]| {
    let Some((&choice, text)) = data.split_first() else { return };
    let typed = ["a.int32()", "b.0.decimal()", "b.1.binary(base32)", "c.date(2006-01-02T15:04:05Z07:00)", "d.double()"];
    let (form, decoder) = match choice % 6 {
        0 => (TextForm::Json, Decoder::Json),
        1 => (TextForm::JsonArray, Decoder::Json),
        2 => (TextForm::Lines(Separator::Comma), columns(&["a", "b.0", "b.1"], TypedNames::No)),
        3 => (TextForm::Lines(Separator::Tab), columns(&["a", "b.0", "b.1"], TypedNames::No)),
        4 => (TextForm::Lines(Separator::Comma), columns(&typed, TypedNames::Yes)),
        _ => {
            // Names of columns come from outside, too.
            let header = String::from_utf8_lossy(text);
            let (header, _) = header.split_once('\n').unwrap_or((&header, ""));
            let Ok(names) = Columns::names(header) else { return };
            for kind in [TypedNames::Yes, TypedNames::No] {
                let _ = Columns::new(&names, kind, Grace::Stop).and_then(Columns::with_arrays);
            }
            return;
        }
    };
    let mut reader = Reader::new(text, form);
    while let Ok(Some(item)) = reader.next_item() {
        if let Ok(Decoded::Document(document)) = decoder.decode(&item) {
            let document = wire::validate_document(document.as_bytes()).expect("what is read is a document");
            let mut text = String::new();
            extjson::write(document.as_bytes(), extjson::JsonForm::Canonical, &mut text).expect("a document has a text");
            let again = extjson::parse(&text).expect("the text of a document is read");
            let mut twice = String::new();
            extjson::write(again.as_bytes(), extjson::JsonForm::Canonical, &mut twice).expect("a document has a text");
            assert_eq!(text, twice);
        }
    }
});
