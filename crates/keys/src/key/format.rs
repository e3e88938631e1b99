//! The numbers of the key format, see `docs/formats/keys.md`. Never renumbered; the layout snapshot test shows them.

use crate::order::canonical_type;
use bson::spec::ElementType;

/// First bytes of values, ascending form.
pub(crate) mod lead {
    pub(crate) const MIN_KEY: u8 = 0x08;
    pub(crate) const UNDEFINED: u8 = 0x10;
    pub(crate) const NULL: u8 = 0x14;
    pub(crate) const NAN: u8 = 0x20;
    pub(crate) const NEGATIVE_INFINITY: u8 = 0x21;
    pub(crate) const NEGATIVE_LARGE: u8 = 0x22;
    /// Integer part in 1 byte; one less per byte more, to 0x23.
    pub(crate) const NEGATIVE_INTEGER_1: u8 = 0x2A;
    pub(crate) const NEGATIVE_SMALL: u8 = 0x2B;
    pub(crate) const ZERO: u8 = 0x2C;
    pub(crate) const POSITIVE_SMALL: u8 = 0x2D;
    /// Integer part in 1 byte; one more per byte more, to 0x35.
    pub(crate) const POSITIVE_INTEGER_1: u8 = 0x2E;
    pub(crate) const POSITIVE_LARGE: u8 = 0x36;
    pub(crate) const POSITIVE_INFINITY: u8 = 0x37;
    pub(crate) const STRING: u8 = 0x40;
    pub(crate) const COLLATED_STRING: u8 = 0x41;
    pub(crate) const OBJECT: u8 = 0x48;
    pub(crate) const ARRAY: u8 = 0x50;
    pub(crate) const BINARY: u8 = 0x58;
    pub(crate) const OBJECT_ID: u8 = 0x60;
    pub(crate) const FALSE: u8 = 0x68;
    pub(crate) const TRUE: u8 = 0x69;
    pub(crate) const DATE: u8 = 0x70;
    pub(crate) const TIMESTAMP: u8 = 0x78;
    pub(crate) const REGEX: u8 = 0x80;
    pub(crate) const DB_POINTER: u8 = 0x88;
    pub(crate) const CODE: u8 = 0x90;
    pub(crate) const CODE_WITH_SCOPE: u8 = 0x98;
    pub(crate) const MAX_KEY: u8 = 0xF0;
}

/// Ends a string, a document, an array. Less than anything that could stand there instead.
pub(crate) const END: u8 = 0x00;
/// In strings, announces a byte 0x00 (as 0x01) or 0x01 (as 0x02).
pub(crate) const ESCAPE: u8 = 0x01;
/// Longest length in one byte; longer ones are this plus one, then four bytes, big-endian.
pub(crate) const SHORT_LENGTH_MAX: usize = 0xFA;
/// First byte of a long length.
pub(crate) const LONG_LENGTH: u8 = 0xFB;

/// Bytes of a tail: exponent (2), coefficient (15).
pub(crate) const TAIL_BYTES: usize = 17;

/// Codes of numbers in the type bits.
pub(crate) mod number_code {
    /// int32 when it fits, else int64, else double, else (with a tail) decimal with the largest exponent.
    pub(crate) const DEFAULT: u8 = 0;
    pub(crate) const INT64: u8 = 1;
    pub(crate) const DOUBLE: u8 = 2;
    /// Decimal; for finite ones two bytes follow: the exponent plus 6176, little-endian.
    pub(crate) const DECIMAL: u8 = 3;
    pub(crate) const DOUBLE_MINUS_ZERO: u8 = 4;
    /// Decimal whose 16 bytes follow.
    pub(crate) const DECIMAL_RAW: u8 = 5;
}

/// Codes of strings in the type bits.
pub(crate) mod string_code {
    pub(crate) const STRING: u8 = 0;
    pub(crate) const SYMBOL: u8 = 1;
}

/// Codes of a field's null in the type bits: 0 for null. (A null inside a document or array has none.)
pub(crate) mod null_code {
    pub(crate) const MISSING: u8 = 1;
}

/// First bytes of a canonical type, ascending form: from the first, to before the second.
pub(crate) fn lead_range(canonical: u8) -> (u8, u8) {
    const TYPES: [(ElementType, u8, u8); 17] = [
        (ElementType::MinKey, lead::MIN_KEY, lead::MIN_KEY),
        (ElementType::Undefined, lead::UNDEFINED, lead::UNDEFINED),
        (ElementType::Null, lead::NULL, lead::NULL),
        (ElementType::Int32, lead::NAN, lead::POSITIVE_INFINITY),
        (ElementType::String, lead::STRING, lead::COLLATED_STRING),
        (ElementType::EmbeddedDocument, lead::OBJECT, lead::OBJECT),
        (ElementType::Array, lead::ARRAY, lead::ARRAY),
        (ElementType::Binary, lead::BINARY, lead::BINARY),
        (ElementType::ObjectId, lead::OBJECT_ID, lead::OBJECT_ID),
        (ElementType::Boolean, lead::FALSE, lead::TRUE),
        (ElementType::DateTime, lead::DATE, lead::DATE),
        (ElementType::Timestamp, lead::TIMESTAMP, lead::TIMESTAMP),
        (ElementType::RegularExpression, lead::REGEX, lead::REGEX),
        (ElementType::DbPointer, lead::DB_POINTER, lead::DB_POINTER),
        (ElementType::JavaScriptCode, lead::CODE, lead::CODE),
        (
            ElementType::JavaScriptCodeWithScope,
            lead::CODE_WITH_SCOPE,
            lead::CODE_WITH_SCOPE,
        ),
        (ElementType::MaxKey, lead::MAX_KEY, lead::MAX_KEY),
    ];
    TYPES
        .iter()
        .find(|(element_type, ..)| canonical_type(*element_type) == canonical)
        .map_or((lead::MIN_KEY, lead::MAX_KEY + 1), |(_, first, last)| {
            (*first, *last + 1)
        })
}
