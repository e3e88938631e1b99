//! Collations: orders of strings as languages have them, described by MongoDB's collation documents, carried out by
//! ICU4X (Unicode Collation Algorithm with the tailorings of CLDR).
//!
//! A [`Collation`] is what a checked document means. Its sort keys stand in index entries; they are ICU4X's, of the
//! data that [`DATA_VERSION`] names: with other data an index has to be built anew.

mod locales;
mod runs;

use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf, cstr};
use icu_collator::options::{AlternateHandling, CaseLevel, CollatorOptions, MaxVariable, Strength};
use icu_collator::preferences::{CollationCaseFirst, CollationNumericOrdering};
use icu_collator::{Collator, CollatorBorrowed, CollatorPreferences};
use icu_locale_core::Locale;
use locales::Named;
use std::cmp::Ordering;

/// The collation data that sort keys are made of: ICU4X's version, which pins that of its data.
pub const DATA_VERSION: &str = "icu4x 2.4";

/// What `version` of a collation says: that of the library behind MongoDB's collations, which its tools compare.
const VERSION_SHOWN: &str = "57.1";

/// The one locale whose order compares accents from behind.
const BACKWARDS: &str = "fr-CA";

/// The locale of binary order.
const SIMPLE: &str = "simple";

/// A document that describes no collation.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct CollationError {
    /// What is wrong.
    pub fault: Fault,
    /// A sentence.
    pub message: String,
}

/// What is wrong with a collation document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A field's value has another type than it should.
    Type,
    /// A field's value is none of those that it can have.
    Value,
    /// A field is not known.
    UnknownField,
    /// There is no `locale`.
    NoLocale,
    /// It is of another version.
    Version,
    /// Binary order has no options.
    OptionsOfSimple,
    /// ICU4X has no data, or no way, for what is asked.
    NotBuilt,
}

fn error(fault: Fault, message: impl Into<String>) -> CollationError {
    CollationError {
        fault,
        message: message.into(),
    }
}

/// An order of strings.
pub struct Collation {
    document: RawDocumentBuf,
    collator: CollatorBorrowed<'static>,
}

impl std::fmt::Debug for Collation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.document.fmt(f)
    }
}

impl PartialEq for Collation {
    /// Two are one when their whole documents say the same.
    fn eq(&self, other: &Self) -> bool {
        self.document == other.document
    }
}

impl Eq for Collation {}

impl Collation {
    /// Reads a collation document; `None` of the simple one, binary order.
    ///
    /// # Errors
    /// [`CollationError`].
    pub fn parse(document: &RawDocument) -> Result<Option<Self>, CollationError> {
        let asked = Asked::read(document)?;
        let locale = asked.locale.ok_or_else(|| {
            error(
                Fault::NoLocale,
                "BSON field 'collation.locale' is missing but a required field",
            )
        })?;
        if locale == SIMPLE {
            return match document.iter().count() {
                1 => Ok(None),
                _ => Err(error(
                    Fault::OptionsOfSimple,
                    format!(
                        "If locale=simple no other fields should be present in: {}",
                        shown(document)
                    ),
                )),
            };
        }
        let invalid = |field: &str| {
            error(
                Fault::Value,
                format!("Field '{field}' is invalid in: {}", shown(document)),
            )
        };
        let bcp = match locales::find(locale) {
            Named::Locale(bcp) => bcp,
            Named::Unknown => return Err(invalid("locale")),
            Named::WithoutData => return Err(not_built(&format!("the locale '{locale}'"))),
        };
        // ICU4X has no option for it. The data of French of Canada say so, and are the root's else.
        let backwards = asked.backwards.unwrap_or(bcp == BACKWARDS);
        let ordered_as: &str = match (backwards, bcp == BACKWARDS) {
            (true, false) if locales::has_root_order(&bcp) => BACKWARDS,
            (true, false) => return Err(not_built(&format!("backwards: true of the locale '{locale}'"))),
            (false, true) => "fr",
            (true, true) | (false, false) => &bcp,
        };
        let parsed = Locale::try_from_str(ordered_as).map_err(|_| invalid("locale"))?;
        let mut preferences = CollatorPreferences::from(&parsed);
        if let Some(numeric) = asked.numeric_ordering {
            preferences.numeric_ordering = Some(match numeric {
                true => CollationNumericOrdering::True,
                false => CollationNumericOrdering::False,
            });
        }
        if let Some(first) = asked.case_first {
            preferences.case_first = Some(first);
        }
        let mut options = CollatorOptions::default();
        options.strength = asked.strength;
        options.alternate_handling = asked.alternate;
        options.max_variable = asked.max_variable;
        options.case_level = asked
            .case_level
            .map(|on| if on { CaseLevel::On } else { CaseLevel::Off });
        let collator = Collator::try_new(preferences, options).map_err(|_| invalid("locale"))?;
        let resolved = collator.resolved_options();
        let case_counts = resolved.case_level == CaseLevel::On || resolved.strength >= Strength::Tertiary;
        // Of some languages it is upper case without being asked for.
        if resolved.case_first != CollationCaseFirst::False && !case_counts {
            return Err(error(
                Fault::Value,
                format!(
                    "'caseFirst' is invalid unless 'caseLevel' is on or 'strength' is greater than 2 in: {}",
                    shown(document)
                ),
            ));
        }
        let mut whole = RawDocumentBuf::new();
        whole.append(cstr!("locale"), locale);
        whole.append(cstr!("caseLevel"), resolved.case_level == CaseLevel::On);
        whole.append(
            cstr!("caseFirst"),
            match resolved.case_first {
                CollationCaseFirst::Upper => "upper",
                CollationCaseFirst::Lower => "lower",
                _ => "off",
            },
        );
        whole.append(
            cstr!("strength"),
            match resolved.strength {
                Strength::Primary => 1,
                Strength::Secondary => 2,
                Strength::Quaternary => 4,
                Strength::Identical => 5,
                _ => 3,
            },
        );
        whole.append(
            cstr!("numericOrdering"),
            resolved.numeric == CollationNumericOrdering::True,
        );
        whole.append(
            cstr!("alternate"),
            match resolved.alternate_handling {
                AlternateHandling::Shifted => "shifted",
                _ => "non-ignorable",
            },
        );
        whole.append(
            cstr!("maxVariable"),
            match resolved.max_variable {
                MaxVariable::Space => "space",
                _ => "punct",
            },
        );
        // ICU4X normalizes always; what was asked is shown.
        whole.append(cstr!("normalization"), asked.normalization.unwrap_or(false));
        whole.append(cstr!("backwards"), backwards);
        whole.append(cstr!("version"), VERSION_SHOWN);
        Ok(Some(Self {
            document: whole,
            collator,
        }))
    }

    /// The whole document: what was left out is there, too.
    pub fn document(&self) -> &RawDocument {
        &self.document
    }
}

impl keys::Collator for Collation {
    fn append_sort_key(&self, text: &str, out: &mut Vec<u8>) {
        let Ok(()) = self.collator.write_sort_key_to(&runs::bounded(text), out);
    }

    fn compare(&self, a: &str, b: &str) -> Ordering {
        if runs::is_compared_directly(a, b) {
            return self.collator.compare(&runs::bounded(a), &runs::bounded(b));
        }
        let sort_key = |text: &str| {
            let mut key = Vec::new();
            self.append_sort_key(text, &mut key);
            key
        };
        sort_key(a).cmp(&sort_key(b))
    }
}

fn not_built(what: &str) -> CollationError {
    error(Fault::NotBuilt, format!("collation: {what} is not implemented"))
}

fn shown(document: &RawDocument) -> String {
    keys::describe::describe_whole(RawBsonRef::Document(document))
}

/// The fields of a collation document; what was not asked for is what the language has.
#[derive(Default)]
struct Asked<'d> {
    locale: Option<&'d str>,
    strength: Option<Strength>,
    case_level: Option<bool>,
    case_first: Option<CollationCaseFirst>,
    numeric_ordering: Option<bool>,
    alternate: Option<AlternateHandling>,
    max_variable: Option<MaxVariable>,
    normalization: Option<bool>,
    backwards: Option<bool>,
}

impl<'d> Asked<'d> {
    fn read(document: &'d RawDocument) -> Result<Self, CollationError> {
        let mut asked = Self::default();
        for field in document {
            let (name, value) = field.map_err(|_| error(Fault::Type, "a collation is no valid BSON"))?;
            let name = name.as_str();
            let wrong_type = |wanted: &str| {
                error(
                    Fault::Type,
                    format!(
                        "BSON field 'collation.{name}' is the wrong type '{}', expected type '{wanted}'",
                        keys::type_name(value.element_type())
                    ),
                )
            };
            let text = || value.as_str().ok_or_else(|| wrong_type("string"));
            let flag = || value.as_bool().ok_or_else(|| wrong_type("bool"));
            // As if it were not there, but for this one.
            if matches!(value, RawBsonRef::Null | RawBsonRef::Undefined) && name != "backwards" {
                continue;
            }
            let unknown = |value: &str| {
                error(
                    Fault::Value,
                    format!("Enumeration value '{value}' for field 'collation.{name}' is not a valid value."),
                )
            };
            match name {
                "locale" => asked.locale = Some(text()?),
                "strength" => {
                    let number = match value {
                        RawBsonRef::Int32(number) => f64::from(number),
                        RawBsonRef::Int64(number) => number as f64,
                        RawBsonRef::Double(number) => number.trunc(),
                        RawBsonRef::Decimal128(number) => {
                            let number = number.to_string().parse::<f64>();
                            number.map_or(f64::NAN, f64::round_ties_even)
                        }
                        _ => return Err(wrong_type("int")),
                    };
                    asked.strength = Some(match number {
                        1.0 => Strength::Primary,
                        2.0 => Strength::Secondary,
                        3.0 => Strength::Tertiary,
                        4.0 => Strength::Quaternary,
                        5.0 => Strength::Identical,
                        other => return Err(unknown(&other.to_string())),
                    });
                }
                "caseLevel" => asked.case_level = Some(flag()?),
                "caseFirst" => {
                    asked.case_first = Some(match text()? {
                        "upper" => CollationCaseFirst::Upper,
                        "lower" => CollationCaseFirst::Lower,
                        "off" => CollationCaseFirst::False,
                        other => return Err(unknown(other)),
                    });
                }
                "numericOrdering" => asked.numeric_ordering = Some(flag()?),
                "alternate" => {
                    asked.alternate = Some(match text()? {
                        "non-ignorable" => AlternateHandling::NonIgnorable,
                        "shifted" => AlternateHandling::Shifted,
                        other => return Err(unknown(other)),
                    });
                }
                "maxVariable" => {
                    asked.max_variable = Some(match text()? {
                        "punct" => MaxVariable::Punctuation,
                        "space" => MaxVariable::Space,
                        other => return Err(unknown(other)),
                    });
                }
                "normalization" => asked.normalization = Some(flag()?),
                "backwards" => asked.backwards = Some(flag()?),
                "version" => match text()? {
                    VERSION_SHOWN => {}
                    other => {
                        return Err(error(
                            Fault::Version,
                            format!("Requested collation version {other}, but the version is {VERSION_SHOWN}"),
                        ));
                    }
                },
                other => {
                    return Err(error(
                        Fault::UnknownField,
                        format!("BSON field 'collation.{other}' is an unknown field."),
                    ));
                }
            }
        }
        Ok(asked)
    }
}

#[cfg(test)]
mod tests;
