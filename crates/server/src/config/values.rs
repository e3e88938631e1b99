//! Values that were given, checked against the table of options, with where each came from.

use super::ConfigError;
use super::options::{Kind, OPTIONS, Spec, by_yaml};
use super::suggestion;
use bson::{Bson, Document};
use commands::logger::Component;
use std::collections::BTreeMap;
use wire::Compressor;

/// A value of an option.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Text.
    Text(String),
    /// Integer.
    Integer(i64),
    /// Number.
    Number(f64),
    /// Truth.
    Boolean(bool),
}

/// The options that were given.
#[derive(Clone, Debug, Default)]
pub struct Values {
    given: BTreeMap<&'static str, Value>,
    /// `setParameter`, in the order given.
    pub parameters: Vec<(String, String)>,
    /// `systemLog.component.<path>.verbosity`.
    pub components: Vec<(Component, i8)>,
    /// Start-up warnings of options that have no effect.
    pub warnings: Vec<String>,
}

impl Values {
    /// Checks a value given as text and keeps it; it replaces an earlier one.
    pub fn set(&mut self, spec: &'static Spec, text: &str) -> Result<(), ConfigError> {
        let bad = |expected: &str| {
            ConfigError(format!(
                "Error parsing option \"{}\": \"{text}\" is not {expected}",
                spec.name()
            ))
        };
        let value = match spec.kind {
            // Mostly a variable that is not set; as a path it would mean the current directory.
            Kind::Text if text.is_empty() => {
                return Err(ConfigError(format!(
                    "Error parsing option \"{}\": it is empty; leave the option out for its default",
                    spec.name()
                )));
            }
            Kind::Text | Kind::TextOrEmpty => Value::Text(text.to_owned()),
            Kind::OneOf(words) if words.contains(&text) => Value::Text(text.to_owned()),
            Kind::OneOf(words) => return Err(bad(&format!("one of {}", words.join(", ")))),
            Kind::Integer(min, max) => match integer(text) {
                Some(number) if (min..=max).contains(&number) => Value::Integer(number),
                _ => return Err(bad(&format!("an integer between {min} and {max}"))),
            },
            Kind::Number(min, max) => match text.parse::<f64>() {
                Ok(number) if (min..=max).contains(&number) => Value::Number(number),
                _ => return Err(bad(&format!("a number between {min} and {max}"))),
            },
            Kind::Boolean | Kind::Action => match text {
                "true" => Value::Boolean(true),
                "false" => Value::Boolean(false),
                _ => return Err(bad("true or false")),
            },
            Kind::Level => match level(text) {
                Some(level) => Value::Integer(i64::from(level)),
                None => return Err(bad("a verbosity between 0 and 5")),
            },
            Kind::Pairs => {
                let Some((name, value)) = text.split_once('=') else {
                    return Err(bad("of the form name=value"));
                };
                self.parameters.push((name.trim().to_owned(), value.trim().to_owned()));
                return Ok(());
            }
            Kind::NotBuilt(_, harmless) if harmless.contains(&text) => Value::Text(text.to_owned()),
            Kind::NotBuilt(what, _) => return Err(not_built(&spec.name(), what)),
            Kind::NoEffect(warning) => {
                self.warnings.push(warning.to_owned());
                Value::Text(text.to_owned())
            }
        };
        self.given.insert(spec.key(), value);
        Ok(())
    }

    /// Keeps a value by its YAML name, as the file's reader finds it.
    pub fn set_yaml(&mut self, name: &str, text: &str) -> Result<(), ConfigError> {
        // Nested and with dots, a name can be there twice although YAML has no two equal keys.
        let twice = || {
            Err(ConfigError(format!(
                "Error parsing YAML config file: {name} is given twice"
            )))
        };
        if let Some(spec) = by_yaml(name) {
            return match self.has(spec.key()) {
                true => twice(),
                false => self.set(spec, text),
            };
        }
        if let Some(parameter) = name.strip_prefix("setParameter.") {
            if self.parameters.iter().any(|(known, _)| known == parameter) {
                return twice();
            }
            self.parameters.push((parameter.to_owned(), text.to_owned()));
            return Ok(());
        }
        if let Some(component) = component_of(name) {
            if self.components.iter().any(|(known, _)| *known == component) {
                return twice();
            }
            let level = level(text).ok_or_else(|| {
                ConfigError(format!(
                    "Error parsing option \"{name}\": \"{text}\" is not between 0 and 5"
                ))
            })?;
            self.components.push((component, level));
            return Ok(());
        }
        let meant = suggestion::question(name, OPTIONS.iter().map(|spec| spec.yaml), "");
        Err(ConfigError(format!(
            "Unrecognized option: {name}{meant}\ntry 'tenond --help' for more information"
        )))
    }

    /// Takes every value of `other` over one's own.
    pub fn override_with(&mut self, other: Self) {
        self.given.extend(other.given);
        self.parameters.extend(other.parameters);
        self.components.extend(other.components);
        self.warnings.extend(other.warnings);
    }

    /// True when the option was given.
    pub fn has(&self, key: &str) -> bool {
        self.given.contains_key(key)
    }

    /// A text.
    pub fn text(&self, key: &str) -> Option<&str> {
        match self.given.get(key) {
            Some(Value::Text(text)) => Some(text),
            _ => None,
        }
    }

    /// The names of compressors, with commas between; without the option all that there are.
    pub fn compressors(&self, key: &str) -> Result<Vec<Compressor>, ConfigError> {
        let names = match self.text(key) {
            None => return Ok(Compressor::NEGOTIABLE.to_vec()),
            Some("disabled") => return Ok(Vec::new()),
            Some(names) => names.split(',').map(str::trim),
        };
        let by_name = |name| {
            Compressor::by_name(name).ok_or_else(|| {
                let known = Compressor::NEGOTIABLE.map(Compressor::name).join(", ");
                ConfigError(format!(
                    "{key} has \"{name}\", and takes {known}, with commas between, or disabled"
                ))
            })
        };
        names.map(by_name).collect()
    }

    /// An integer.
    pub fn integer(&self, key: &str) -> Option<i64> {
        match self.given.get(key) {
            Some(Value::Integer(number)) => Some(*number),
            _ => None,
        }
    }

    /// A number.
    pub fn number(&self, key: &str) -> Option<f64> {
        match self.given.get(key) {
            Some(Value::Number(number)) => Some(*number),
            _ => None,
        }
    }

    /// A truth value.
    pub fn boolean(&self, key: &str) -> Option<bool> {
        match self.given.get(key) {
            Some(Value::Boolean(truth)) => Some(*truth),
            _ => None,
        }
    }

    /// Everything as a nested document, for `getCmdLineOpts.parsed`.
    pub fn to_document(&self) -> Document {
        let mut document = Document::new();
        for (key, value) in &self.given {
            let value = match value {
                Value::Text(text) => Bson::String(text.clone()),
                Value::Integer(number) => i32::try_from(*number).map_or(Bson::Int64(*number), Bson::Int32),
                Value::Number(number) => Bson::Double(*number),
                Value::Boolean(truth) => Bson::Boolean(*truth),
            };
            insert(&mut document, key, value);
        }
        for (component, level) in &self.components {
            let path = format!("systemLog.component.{}.verbosity", component.path());
            insert(&mut document, &path, Bson::Int32(i32::from(*level)));
        }
        for (name, value) in &self.parameters {
            insert(&mut document, "setParameter", Bson::Document(Document::new()));
            if let Ok(parameters) = document.get_document_mut("setParameter") {
                parameters.insert(name, value);
            }
        }
        document
    }
}

/// Does the file's name mean an option, rather than a section of them?
pub fn takes_value(name: &str) -> bool {
    by_yaml(name).is_some() || name.starts_with("setParameter.") || component_of(name).is_some()
}

/// Puts a value at a dotted path. A document that is there already stays.
fn insert(document: &mut Document, path: &str, value: Bson) {
    match path.split_once('.') {
        None if document.contains_key(path) => {}
        None => {
            document.insert(path, value);
        }
        Some((first, rest)) => {
            let inner = document
                .entry(first.to_owned())
                .or_insert_with(|| Bson::Document(Document::new()));
            if let Bson::Document(inner) = inner {
                insert(inner, rest, value);
            }
        }
    }
}

/// The refusal of something that MongoDB has and this build has not.
fn not_built(name: &str, what: &str) -> ConfigError {
    ConfigError(format!("{name}: {what} is not built yet"))
}

/// An integer; a leading zero means octal, as in file permissions.
fn integer(text: &str) -> Option<i64> {
    match text.strip_prefix('0') {
        Some(digits) if !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()) => {
            i64::from_str_radix(digits, 8).ok()
        }
        _ => text.parse().ok(),
    }
}

/// A verbosity: a number, or a row of `v`s.
fn level(text: &str) -> Option<i8> {
    if !text.is_empty() && text.bytes().all(|byte| byte == b'v') {
        return i8::try_from(text.len()).ok().filter(|level| *level <= 5);
    }
    text.parse().ok().filter(|level| (0..=5).contains(level))
}

fn component_of(name: &str) -> Option<Component> {
    let path = name.strip_prefix("systemLog.component.")?.strip_suffix(".verbosity")?;
    Component::by_path(path)
}
