//! The configuration file: YAML whose nested names, joined with dots, are the options' names.

use super::ConfigError;
use super::values::{Values, takes_value};
use serde_yaml_ng::Value as Yaml;
use std::path::Path;

/// A longer file is surely not one of ours.
const FILE_BYTES_MAX: u64 = 1024 * 1024;
/// Deeper than any option's name.
const NESTING_MAX: usize = 16;

/// Reads and checks a file.
pub fn read(path: &Path) -> Result<Values, ConfigError> {
    let fail = |error: std::io::Error| ConfigError(format!("Error opening config file '{}': {error}", path.display()));
    if std::fs::metadata(path).map_err(fail)?.len() > FILE_BYTES_MAX {
        return Err(ConfigError(format!(
            "Error reading config file '{}': longer than 1 MiB",
            path.display()
        )));
    }
    parse(&std::fs::read_to_string(path).map_err(fail)?)
}

/// Checks the text of a file.
pub fn parse(text: &str) -> Result<Values, ConfigError> {
    let yaml: Yaml = serde_yaml_ng::from_str(text)
        .map_err(|error| ConfigError(format!("Error parsing YAML config file: {error}")))?;
    let mut values = Values::default();
    match &yaml {
        Yaml::Null => {}
        Yaml::Mapping(_) => walk(&yaml, "", 0, &mut values)?,
        _ => {
            return Err(ConfigError(
                "Error parsing YAML config file: not a map of options".to_owned(),
            ));
        }
    }
    Ok(values)
}

fn walk(yaml: &Yaml, name: &str, depth: usize, values: &mut Values) -> Result<(), ConfigError> {
    let bad = |what: &str| ConfigError(format!("Error parsing YAML config file: {name} {what}"));
    match yaml {
        Yaml::Mapping(_) if depth == NESTING_MAX => Err(bad("is nested too deeply")),
        Yaml::Mapping(map) => {
            for (key, value) in map {
                let Yaml::String(key) = key else {
                    return Err(bad("has a name that is not text"));
                };
                let inner = if name.is_empty() {
                    key.clone()
                } else {
                    format!("{name}.{key}")
                };
                walk(value, &inner, depth + 1, values)?;
            }
            Ok(())
        }
        Yaml::Sequence(items) => {
            // Lists are accepted where the command line has commas.
            if name != "net.bindIp" && name != "net.compression.compressors" {
                return Err(bad("is a list, and takes one value"));
            }
            let words: Option<Vec<&str>> = items.iter().map(Yaml::as_str).collect();
            values.set_yaml(
                name,
                &words
                    .ok_or_else(|| bad("is a list of something else than text"))?
                    .join(","),
            )
        }
        Yaml::String(text) => values.set_yaml(name, text),
        Yaml::Bool(truth) => values.set_yaml(name, &truth.to_string()),
        Yaml::Number(number) => values.set_yaml(name, &number.to_string()),
        // What has been left empty is not what has been left out: nobody is to be without access control because a
        // template's variable was empty. A section whose options are all commented out is none the worse.
        Yaml::Null if takes_value(name) => Err(bad("has no value")),
        Yaml::Null => Ok(()),
        Yaml::Tagged(_) => Err(bad("has a YAML tag")),
    }
}
