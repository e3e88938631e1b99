//! The tree back into a filter document, for explain and for whoever caches by shape.

use bson::RawDocumentBuf;

use super::number;
use super::tree::{MatchExpr, Test, ValueTest};
use crate::path::is_reference_field;
use crate::raw::{self, Constant, Frame, kind};

/// The tree as a filter that parses to the same tree.
pub(super) fn to_document(expr: &MatchExpr) -> RawDocumentBuf {
    let mut out = Vec::with_capacity(64);
    let frame = Frame::begin(&mut out);
    write_expr(expr, &mut out);
    frame.finish(&mut out);
    RawDocumentBuf::from_bytes(out).expect("a finished frame is a document")
}

/// Writes the fields of an expression into an open document.
fn write_expr(expr: &MatchExpr, out: &mut Vec<u8>) {
    match expr {
        MatchExpr::AlwaysTrue => {}
        MatchExpr::AlwaysFalse => append_i32(out, b"$alwaysFalse", 1),
        MatchExpr::And(parts) => write_list(b"$and", parts, out),
        MatchExpr::Or(parts) => write_list(b"$or", parts, out),
        MatchExpr::Nor(parts) => write_list(b"$nor", parts, out),
        MatchExpr::Not(part) => match &**part {
            MatchExpr::Path { path, test } if !is_reference_field(path.text().as_bytes()) => {
                let field = Frame::begin_field(out, kind::DOCUMENT, path.text().as_bytes());
                let not = Frame::begin_field(out, kind::DOCUMENT, b"$not");
                write_test(test, out);
                not.finish(out);
                field.finish(out);
            }
            other => write_list(b"$nor", std::slice::from_ref(other), out),
        },
        // What stands there is the value, never operators.
        MatchExpr::Path {
            path,
            test: Test::Compare { value, .. },
        } if is_reference_field(path.text().as_bytes()) => append_constant(out, path.text().as_bytes(), value),
        MatchExpr::Path { path, test } => {
            let field = Frame::begin_field(out, kind::DOCUMENT, path.text().as_bytes());
            write_test(test, out);
            field.finish(out);
        }
        MatchExpr::Expr(predicate) => append_constant(out, b"$expr", &predicate.source),
        MatchExpr::Where(test) => append_constant(out, b"$where", &test.source),
        MatchExpr::Text(test) => raw::append(out, kind::DOCUMENT, b"$text", test.source().as_bytes()),
        MatchExpr::Schema(schema) => raw::append(out, kind::DOCUMENT, b"$jsonSchema", schema.source().as_bytes()),
    }
}

fn write_list(name: &[u8], parts: &[MatchExpr], out: &mut Vec<u8>) {
    let array = Frame::begin_field(out, kind::ARRAY, name);
    for (index, part) in parts.iter().enumerate() {
        raw::append_indexed(out, kind::DOCUMENT, index, &[]);
        let item = Frame::begin(out);
        write_expr(part, out);
        item.finish(out);
    }
    array.finish(out);
}

fn append_constant(out: &mut Vec<u8>, name: &[u8], constant: &Constant) {
    raw::append(out, constant.kind(), name, constant.bytes());
}

fn append_i32(out: &mut Vec<u8>, name: &[u8], number: i32) {
    raw::append(out, 0x10, name, &number.to_le_bytes());
}

fn append_integer(out: &mut Vec<u8>, name: &[u8], number: i64) {
    match i32::try_from(number) {
        Ok(small) => append_i32(out, name, small),
        Err(_) => raw::append(out, 0x12, name, &number.to_le_bytes()),
    }
}

fn append_text(out: &mut Vec<u8>, name: &[u8], text: &str) {
    append_constant(out, name, &Constant::new(bson::RawBsonRef::String(text)));
}

/// Writes the operators of a test into an open document.
fn write_test(test: &Test, out: &mut Vec<u8>) {
    match test {
        Test::Compare { op, value } => append_constant(out, op.name().as_bytes(), value),
        Test::In(list) => {
            let array = Frame::begin_field(out, kind::ARRAY, b"$in");
            let regexes: Vec<Constant> = list.regexes.iter().map(|regex| regex.to_constant()).collect();
            for (index, value) in list.values.iter().chain(&regexes).enumerate() {
                raw::append_indexed(out, value.kind(), index, value.bytes());
            }
            array.finish(out);
        }
        Test::Regex(regex) => {
            append_text(out, b"$regex", regex.pattern());
            if !regex.options().is_empty() {
                append_text(out, b"$options", regex.options());
            }
        }
        Test::Exists => raw::append(out, 0x08, b"$exists", &[1]),
        Test::Type(types) => {
            let array = Frame::begin_field(out, kind::ARRAY, b"$type");
            for (index, element_type) in types.types().enumerate() {
                let code = number::type_code(element_type);
                raw::append_indexed(out, 0x10, index, &code.to_le_bytes());
            }
            array.finish(out);
        }
        Test::Size(size) => append_integer(out, b"$size", *size),
        Test::Mod { divisor, remainder } => {
            let array = Frame::begin_field(out, kind::ARRAY, b"$mod");
            append_integer(out, b"0", *divisor);
            append_integer(out, b"1", *remainder);
            array.finish(out);
        }
        Test::Bits(bits) => {
            let array = Frame::begin_field(out, kind::ARRAY, bits.op.name().as_bytes());
            for (index, position) in bits.positions.iter().enumerate() {
                raw::append_indexed(out, 0x10, index, &position.to_le_bytes());
            }
            array.finish(out);
        }
        Test::Geo(test) => append_constant(out, test.operator().as_bytes(), test.source()),
        Test::Near(test) => test.append_to(out),
        Test::ElemMatchObject(filter) => {
            let inner = Frame::begin_field(out, kind::DOCUMENT, b"$elemMatch");
            write_expr(filter, out);
            inner.finish(out);
        }
        Test::ElemMatchValue(tests) => {
            let inner = Frame::begin_field(out, kind::DOCUMENT, b"$elemMatch");
            write_value_tests(tests, out);
            inner.finish(out);
        }
    }
}

fn write_value_tests(tests: &[ValueTest], out: &mut Vec<u8>) {
    for test in tests {
        match test {
            ValueTest::Is(test) => write_test(test, out),
            ValueTest::Not(inner) => {
                let not = Frame::begin_field(out, kind::DOCUMENT, b"$not");
                write_value_tests(inner, out);
                not.finish(out);
            }
        }
    }
}
