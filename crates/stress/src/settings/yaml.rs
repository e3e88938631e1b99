//! YAML's form of the settings. Levels become dots; each value is set while its place is known, so that an error has a
//! line.

use super::Value;
use crate::error::SettingsFault;
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use std::fmt;

type Set<'s> = &'s mut dyn FnMut(&str, Value) -> Result<(), String>;

/// Levels of nesting: names have at most three parts.
const LEVELS_MAX: usize = 4;

/// Calls `set` with each scalar and list of the text.
pub(super) fn read(text: &str, set: Set<'_>) -> Result<(), SettingsFault> {
    // The library decorates messages with path and place; a refusal of `set` is kept as it was said.
    let mut refusal = None;
    let root = Node {
        name: String::new(),
        level: 0,
        set: &mut |name, value| set(name, value).inspect_err(|reason| refusal = Some(reason.clone())),
    };
    let result = root.deserialize(serde_yaml_ng::Deserializer::from_str(text));
    result.map_err(|error| match error.location() {
        Some(place) => SettingsFault::Line {
            line: place.line(),
            reason: refusal.unwrap_or_else(|| without_place(&error.to_string())),
        },
        None => SettingsFault::Whole(refusal.unwrap_or_else(|| error.to_string())),
    })
}

/// The library ends its messages with the place, which is said already.
fn without_place(message: &str) -> String {
    match message.rfind(" at line ") {
        Some(end) => message[..end].to_owned(),
        None => message.to_owned(),
    }
}

struct Node<'s> {
    name: String,
    level: usize,
    set: Set<'s>,
}

impl Node<'_> {
    fn scalar<E: Error>(self, text: String) -> Result<(), E> {
        if self.level == 0 {
            return Err(E::custom("settings are a mapping of names to values"));
        }
        (self.set)(&self.name, Value::One(text)).map_err(E::custom)
    }
}

impl<'de> DeserializeSeed<'de> for Node<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Node<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value, a list or a mapping of settings")
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<(), E> {
        self.scalar(if value { "yes" } else { "no" }.to_owned())
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<(), E> {
        self.scalar(value.to_string())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<(), E> {
        self.scalar(value.to_string())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<(), E> {
        self.scalar(value.to_string())
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<(), E> {
        self.scalar(value.trim().to_owned())
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        // An empty file has only defaults; an empty value is left to the setting to refuse.
        if self.level == 0 {
            Ok(())
        } else {
            self.scalar(String::new())
        }
    }

    fn visit_none<E: Error>(self) -> Result<(), E> {
        self.visit_unit()
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        if self.level == 0 {
            return Err(A::Error::custom("settings are a mapping of names to values"));
        }
        let mut texts = Vec::new();
        while let Some(Scalar(text)) = items.next_element()? {
            texts.push(text);
        }
        (self.set)(&self.name, Value::Many(texts)).map_err(A::Error::custom)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<(), A::Error> {
        if self.level == LEVELS_MAX {
            return Err(A::Error::custom(format!("{}: nested too deep", self.name)));
        }
        while let Some(key) = entries.next_key::<String>()? {
            let name = if self.name.is_empty() {
                key
            } else {
                format!("{}.{key}", self.name)
            };
            entries.next_value_seed(Node {
                name,
                level: self.level + 1,
                set: &mut *self.set,
            })?;
        }
        Ok(())
    }
}

/// An item of a list.
struct Scalar(String);

impl<'de> serde::Deserialize<'de> for Scalar {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Item;
        impl Visitor<'_> for Item {
            type Value = Scalar;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a value that is no list or mapping")
            }

            fn visit_bool<E: Error>(self, value: bool) -> Result<Scalar, E> {
                Ok(Scalar(if value { "yes" } else { "no" }.to_owned()))
            }

            fn visit_i64<E: Error>(self, value: i64) -> Result<Scalar, E> {
                Ok(Scalar(value.to_string()))
            }

            fn visit_u64<E: Error>(self, value: u64) -> Result<Scalar, E> {
                Ok(Scalar(value.to_string()))
            }

            fn visit_str<E: Error>(self, value: &str) -> Result<Scalar, E> {
                Ok(Scalar(value.trim().to_owned()))
            }
        }
        deserializer.deserialize_any(Item)
    }
}
