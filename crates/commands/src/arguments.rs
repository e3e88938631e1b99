//! Reads the fields of a command with MongoDB's rules for types, missing and unknown fields.

use crate::error::{CommandError, Result};
use bson::raw::{RawArray, RawBsonRef, RawDocument};
use bson::spec::BinarySubtype;
use query::raw::Elements;
use wire::ErrorCode;
use wire::limits::WRITE_BATCH_MAX;

/// Those of [`is_generic`].
const GENERIC_NAMES: [&[u8]; 25] = [
    b"$db",
    b"lsid",
    b"$clusterTime",
    b"$readPreference",
    b"$configTime",
    b"$topologyTime",
    b"$audit",
    b"$client",
    b"txnNumber",
    b"stmtId",
    b"autocommit",
    b"startTransaction",
    b"readConcern",
    b"writeConcern",
    b"maxTimeMS",
    b"maxTimeMSOpOnly",
    b"comment",
    b"apiVersion",
    b"apiStrict",
    b"apiDeprecationErrors",
    b"help",
    b"databaseVersion",
    b"shardVersion",
    b"mayBypassWriteBlocking",
    b"rawData",
];

// A bit of a `u32` stands for each.
const _: () = assert!(GENERIC_NAMES.len() <= 32);

/// Fields every command may carry and that are handled once, before the command runs.
pub fn is_generic(name: &[u8]) -> bool {
    matches!(
        name,
        b"$db"
            | b"lsid"
            | b"$clusterTime"
            | b"$readPreference"
            | b"$configTime"
            | b"$topologyTime"
            | b"$audit"
            | b"$client"
            | b"txnNumber"
            | b"stmtId"
            | b"autocommit"
            | b"startTransaction"
            | b"readConcern"
            | b"writeConcern"
            | b"maxTimeMS"
            | b"maxTimeMSOpOnly"
            | b"comment"
            | b"apiVersion"
            | b"apiStrict"
            | b"apiDeprecationErrors"
            | b"help"
            | b"databaseVersion"
            | b"shardVersion"
            | b"mayBypassWriteBlocking"
            | b"rawData"
    )
}

/// `IDLUnknownField`.
pub fn unknown_field(command: &str, field: &str) -> CommandError {
    CommandError::new(
        ErrorCode(40415),
        format!("BSON field '{command}.{field}' is an unknown field."),
    )
}

/// `IDLFailedToParse`: a required field is not there.
pub fn missing_field(command: &str, field: &str) -> CommandError {
    CommandError::new(
        ErrorCode(40414),
        format!("BSON field '{command}.{field}' is missing but a required field"),
    )
}

/// Notes the value of a field that may be there once (`IDLDuplicateField`).
pub fn once<'v>(found: &mut Option<RawBsonRef<'v>>, within: &str, field: &str, value: RawBsonRef<'v>) -> Result<()> {
    match found.replace(value) {
        None => Ok(()),
        Some(_) => Err(CommandError::new(
            ErrorCode(40413),
            format!("BSON field '{within}.{field}' is a duplicate field"),
        )),
    }
}

/// The names of a command's fields as they are read, of which none may come twice.
pub struct FieldNames<'b> {
    command: &'b str,
    body: &'b RawDocument,
    count: usize,
    /// A bit for each name before, which few others share: only then names are compared.
    seen: u128,
    /// Behind [`Self::MAX`] fields: which of [`GENERIC_NAMES`] have come, a bit each.
    seen_generic: u32,
}

impl<'b> FieldNames<'b> {
    /// As many fields are looked at, which is more than any command knows: with more of them, one is unknown. Behind
    /// them only those are that every command has, and that are read before an unknown one is refused.
    pub const MAX: usize = 64;

    /// Of `body`, none of whose fields has been read.
    pub fn of(command: &'b str, body: &'b RawDocument) -> Self {
        Self {
            command,
            body,
            count: 0,
            seen: 0,
            seen_generic: 0,
        }
    }

    /// The next field is called `name`. Fails where one before is, too (`IDLDuplicateField`).
    pub fn add(&mut self, name: &[u8]) -> Result<()> {
        if self.count == Self::MAX {
            return self.add_generic(name);
        }
        let at = |place: usize| name.get(place).map_or(0, |byte| u32::from(*byte));
        let mixed = at(0) ^ at(name.len() / 2) << 3 ^ at(name.len().wrapping_sub(1)) << 6 ^ (name.len() as u32) << 9;
        let bit = 1 << (mixed.wrapping_mul(0x9E37_79B1) >> 25);
        if self.seen & bit != 0 {
            self.compare(name)?;
        }
        self.seen |= bit;
        self.count += 1;
        Ok(())
    }

    fn add_generic(&mut self, name: &[u8]) -> Result<()> {
        let Some(place) = GENERIC_NAMES.iter().position(|generic| *generic == name) else {
            return Ok(());
        };
        let bit = 1_u32 << place;
        // Only the first time the fields before have to be looked at.
        if self.seen_generic & bit != 0 {
            return Err(self.twice(name));
        }
        self.seen_generic |= bit;
        self.compare(name)
    }

    fn twice(&self, name: &[u8]) -> CommandError {
        let (command, name) = (self.command, String::from_utf8_lossy(name));
        CommandError::new(
            ErrorCode(40413),
            format!("BSON field '{command}.{name}' is a duplicate field"),
        )
    }

    fn compare(&self, name: &[u8]) -> Result<()> {
        for before in Elements::new(self.body).take(self.count) {
            if before?.name() == name {
                return Err(self.twice(name));
            }
        }
        Ok(())
    }

    /// All of `body`.
    pub fn check(command: &'b str, body: &'b RawDocument) -> Result<()> {
        let mut names = Self::of(command, body);
        for element in Elements::new(body) {
            names.add(element?.name())?;
        }
        Ok(())
    }
}

/// The bounds on the statements of one write command.
pub fn check_batch(statements: usize) -> Result<()> {
    if (1..=WRITE_BATCH_MAX).contains(&statements) {
        return Ok(());
    }
    Err(CommandError::new(
        ErrorCode::InvalidLength,
        format!("Write batch sizes must be between 1 and {WRITE_BATCH_MAX}. Got {statements} operations."),
    ))
}

/// `TypeMismatch` for a field.
pub fn wrong_type(command: &str, field: &str, value: RawBsonRef<'_>, expected: &str) -> CommandError {
    let found = type_name(value);
    CommandError::new(
        ErrorCode::TypeMismatch,
        format!("BSON field '{command}.{field}' is the wrong type '{found}', expected {expected}"),
    )
}

/// The alias of a value's type as `$type` knows it.
pub fn type_name(value: RawBsonRef<'_>) -> &'static str {
    match value {
        RawBsonRef::Double(_) => "double",
        RawBsonRef::String(_) => "string",
        RawBsonRef::Document(_) => "object",
        RawBsonRef::Array(_) => "array",
        RawBsonRef::Binary(_) => "binData",
        RawBsonRef::Undefined => "undefined",
        RawBsonRef::ObjectId(_) => "objectId",
        RawBsonRef::Boolean(_) => "bool",
        RawBsonRef::DateTime(_) => "date",
        RawBsonRef::Null => "null",
        RawBsonRef::RegularExpression(_) => "regex",
        RawBsonRef::DbPointer(_) => "dbPointer",
        RawBsonRef::JavaScriptCode(_) => "javascript",
        RawBsonRef::Symbol(_) => "symbol",
        RawBsonRef::JavaScriptCodeWithScope(_) => "javascriptWithScope",
        RawBsonRef::Int32(_) => "int",
        RawBsonRef::Timestamp(_) => "timestamp",
        RawBsonRef::Int64(_) => "long",
        RawBsonRef::Decimal128(_) => "decimal",
        RawBsonRef::MinKey => "minKey",
        RawBsonRef::MaxKey => "maxKey",
    }
}

/// The integer a number stands for: doubles are cut towards zero, decimals rounded half to even, both held to the range
/// of `i64`; NaN is 0. `None` for what is not a number.
pub fn number_as_i64(value: RawBsonRef<'_>) -> Option<i64> {
    match value {
        RawBsonRef::Int32(v) => Some(i64::from(v)),
        RawBsonRef::Int64(v) => Some(v),
        RawBsonRef::Double(v) => Some(v as i64),
        RawBsonRef::Decimal128(v) => {
            let text = v.to_string();
            Some(
                text.parse::<f64>()
                    .map_or(0, |f| if f.is_nan() { 0 } else { f.round_ties_even() as i64 }),
            )
        }
        _ => None,
    }
}

/// Of commands that ask any value whether it is true.
pub fn is_true(value: RawBsonRef<'_>) -> bool {
    query::value::Value::from_raw(value).is_true()
}

/// Gives one field to `handle`. A null or undefined where a value of some type is wanted is as if the field were not
/// there.
pub fn take<'v>(
    name: &'v str,
    value: RawBsonRef<'v>,
    handle: &mut impl FnMut(&'v str, RawBsonRef<'v>) -> Result<bool>,
) -> Result<bool> {
    match handle(name, value) {
        Err(error)
            if error.code == ErrorCode::TypeMismatch && matches!(value, RawBsonRef::Null | RawBsonRef::Undefined) =>
        {
            Ok(true)
        }
        other => other,
    }
}

/// A time in whole milliseconds.
pub fn max_time_ms(arguments: Arguments<'_>, name: &str, value: RawBsonRef<'_>) -> Result<u64> {
    let number = arguments.integer(name, value)?;
    // What no integer of 64 bits is near is not out of a range, but no such number.
    let fits = |v: f64| v.fract() == 0.0 && v.abs() <= i64::MAX as f64;
    let is_whole = match value {
        RawBsonRef::Double(v) => fits(v),
        RawBsonRef::Decimal128(v) => v.to_string().parse().is_ok_and(fits),
        _ => true,
    };
    if !is_whole {
        return Err(CommandError::new(
            ErrorCode::FailedToParse,
            format!("{name} has non-integral value"),
        ));
    }
    if !(0..=i64::from(i32::MAX)).contains(&number) {
        return Err(CommandError::bad_value(format!(
            "{number} value for {name} is out of range [0, {}]",
            i32::MAX
        )));
    }
    Ok(number as u64)
}

/// The command whose fields are being read, for messages.
#[derive(Clone, Copy)]
pub struct Arguments<'a> {
    /// The command's name as in messages.
    pub command: &'a str,
}

impl<'a> Arguments<'a> {
    /// A reader for `command`.
    pub fn of(command: &'a str) -> Self {
        Self { command }
    }

    /// Gives each field of `document` to `handle`, which answers false for a name it does not know (40415).
    pub fn each<'v>(
        self,
        document: &'v RawDocument,
        mut handle: impl FnMut(&'v str, RawBsonRef<'v>) -> Result<bool>,
    ) -> Result<()> {
        for element in Elements::new(document) {
            let element = element?;
            let name = element.name_str()?;
            if !take(name, element.value()?, &mut handle)? {
                return Err(unknown_field(self.command, name));
            }
        }
        Ok(())
    }

    /// A boolean and nothing else.
    pub fn flag(self, field: &str, value: RawBsonRef<'_>) -> Result<bool> {
        match value {
            RawBsonRef::Boolean(v) => Ok(v),
            other => Err(wrong_type(self.command, field, other, "type 'bool'")),
        }
    }

    /// A boolean; numbers count as `!= 0`.
    pub fn boolean(self, field: &str, value: RawBsonRef<'_>) -> Result<bool> {
        match value {
            RawBsonRef::Boolean(v) => Ok(v),
            RawBsonRef::Double(v) => Ok(v != 0.0),
            RawBsonRef::Decimal128(v) => Ok(!keys::Decimal::from(v).is_zero()),
            other => number_as_i64(other)
                .map(|v| v != 0)
                .ok_or_else(|| wrong_type(self.command, field, value, "types '[bool, long, int, decimal, double]'")),
        }
    }

    /// A number as an integer.
    pub fn integer(self, field: &str, value: RawBsonRef<'_>) -> Result<i64> {
        number_as_i64(value)
            .ok_or_else(|| wrong_type(self.command, field, value, "types '[long, int, decimal, double]'"))
    }

    /// A number that must not be negative.
    pub fn non_negative(self, field: &str, value: RawBsonRef<'_>) -> Result<i64> {
        let number = self.integer(field, value)?;
        if number < 0 {
            return Err(CommandError::new(
                ErrorCode::BadValue,
                format!("BSON field '{field}' value must be >= 0, actual value '{number}'"),
            ));
        }
        Ok(number)
    }

    /// The number of a statement in its session.
    pub fn statement_number(self, field: &str, value: RawBsonRef<'_>) -> Result<i32> {
        let number = self.integer(field, value)?;
        i32::try_from(number).ok().filter(|number| *number >= 0).ok_or_else(|| {
            CommandError::bad_value(format!(
                "BSON field '{field}' has the value {number}, which is no statement number"
            ))
        })
    }

    /// The bytes of a UUID.
    pub fn uuid(self, field: &str, value: RawBsonRef<'_>) -> Result<[u8; 16]> {
        match value {
            RawBsonRef::Binary(uuid) if uuid.subtype == BinarySubtype::Uuid => uuid.bytes.try_into().map_err(|_| {
                CommandError::new(
                    ErrorCode::InvalidUUID,
                    "uuid must be a 16-byte binary field with UUID (4) subtype",
                )
            }),
            RawBsonRef::Binary(_) => Err(wrong_type(self.command, field, value, "subtype 'UUID'")),
            _ => Err(wrong_type(self.command, field, value, "type 'binData'")),
        }
    }

    /// A string.
    pub fn string<'v>(self, field: &str, value: RawBsonRef<'v>) -> Result<&'v str> {
        match value {
            RawBsonRef::String(v) => Ok(v),
            other => Err(wrong_type(self.command, field, other, "type 'string'")),
        }
    }

    /// A document.
    pub fn document<'v>(self, field: &str, value: RawBsonRef<'v>) -> Result<&'v RawDocument> {
        match value {
            RawBsonRef::Document(v) => Ok(v),
            other => Err(wrong_type(self.command, field, other, "type 'object'")),
        }
    }

    /// An array.
    pub fn array<'v>(self, field: &str, value: RawBsonRef<'v>) -> Result<&'v RawArray> {
        match value {
            RawBsonRef::Array(v) => Ok(v),
            other => Err(wrong_type(self.command, field, other, "type 'array'")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generic_names_are_generic() {
        assert!(GENERIC_NAMES.iter().all(|name| is_generic(name)));
    }

    #[test]
    fn booleans_take_every_number_and_flags_none() {
        let args = Arguments::of("find");
        assert!(args.boolean("x", RawBsonRef::Double(0.5)).is_ok_and(|v| v));
        assert!(args.boolean("x", RawBsonRef::Int64(0)).is_ok_and(|v| !v));
        assert!(args.boolean("x", RawBsonRef::Null).is_err());
        assert!(args.flag("x", RawBsonRef::Boolean(true)).is_ok_and(|v| v));
        assert!(args.flag("x", RawBsonRef::Int32(1)).is_err());
        let error = args.boolean("x", RawBsonRef::String("yes"));
        assert!(error.is_err_and(|e| e.code == ErrorCode::TypeMismatch && e.message.contains("'find.x'")));
    }

    #[test]
    fn a_null_is_as_if_the_field_were_not_there() {
        let args = Arguments::of("find");
        let document = bson::rawdoc! { "limit": bson::RawBson::Null, "hint": 1 };
        let mut limit = 7;
        let read = args.each(&document, |name, value| {
            match name {
                "limit" => limit = args.integer(name, value)?,
                _ => return Ok(false),
            }
            Ok(true)
        });
        assert_eq!(limit, 7);
        assert!(read.is_err_and(|error| error.code == ErrorCode(40415) && error.message.contains("'find.hint'")));
    }

    #[test]
    fn integers_saturate() {
        assert_eq!(number_as_i64(RawBsonRef::Double(f64::INFINITY)), Some(i64::MAX));
        assert_eq!(number_as_i64(RawBsonRef::Double(f64::NAN)), Some(0));
        assert_eq!(number_as_i64(RawBsonRef::Double(-2.9)), Some(-2));
        assert_eq!(number_as_i64(RawBsonRef::Boolean(true)), None);
    }
}
