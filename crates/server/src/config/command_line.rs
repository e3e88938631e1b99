//! The command line: `--name value`, `--name=value`, `-f value`, `-vvv`.

use super::ConfigError;
use super::options::{ALIASES, Kind, OPTIONS, Spec, by_flag, by_yaml};
use super::suggestion;
use super::values::Values;

/// Reads the arguments behind the program's name.
pub fn parse(arguments: &[String]) -> Result<Values, ConfigError> {
    let mut values = Values::default();
    let mut seen: Vec<Given> = Vec::new();
    let mut rest = arguments.iter().map(String::as_str);
    while let Some(argument) = rest.next() {
        let (name, attached) = match argument
            .strip_prefix("--")
            .map(|long| long.split_once('=').unwrap_or((long, "")))
        {
            Some((name, value)) => (name, argument.contains('=').then_some(value)),
            None => {
                let (spec, value) = short_form(argument)?;
                (spec.flag, value)
            }
        };
        if let Some((_, yaml, value)) = ALIASES.iter().find(|(alias, _, _)| *alias == name) {
            let spec = by_yaml(yaml).ok_or_else(|| unrecognised(argument))?;
            take(
                &mut values,
                &mut seen,
                Given {
                    flag: name,
                    spec,
                    value,
                },
            )?;
            continue;
        }
        let spec = by_flag(name).ok_or_else(|| unrecognised(argument))?;
        if seen.iter().any(|given| given.flag == spec.flag) && !matches!(spec.kind, Kind::Pairs | Kind::Level) {
            return Err(ConfigError(format!(
                "option '--{}' cannot be specified more than once",
                spec.flag
            )));
        }
        let value = match (attached, spec.kind) {
            (Some(value), _) => value,
            (None, Kind::Level) => "v",
            (None, _) if spec.takes_no_argument() => "true",
            (None, _) => rest
                .next()
                .ok_or_else(|| ConfigError(format!("the required argument for option '--{}' is missing", spec.flag)))?,
        };
        let flag = spec.flag;
        take(&mut values, &mut seen, Given { flag, spec, value })?;
    }
    Ok(values)
}

/// A flag of the command line with what it sets.
struct Given<'a> {
    flag: &'a str,
    spec: &'static Spec,
    value: &'a str,
}

/// Keeps a value, unless a flag in front of it has set the opposite.
fn take<'a>(values: &mut Values, seen: &mut Vec<Given<'a>>, given: Given<'a>) -> Result<(), ConfigError> {
    let contradicts = |other: &&Given<'_>| {
        other.spec.key() == given.spec.key() && other.flag != given.flag && other.value != given.value
    };
    if let Some(other) = seen.iter().find(contradicts) {
        return Err(ConfigError(format!(
            "Can't specify both --{} and --{} options.",
            other.flag, given.flag
        )));
    }
    values.set(given.spec, given.value)?;
    seen.push(given);
    Ok(())
}

/// `-f`, `-h`, `-vvv`, with a value behind the letter if there is one.
fn short_form(argument: &str) -> Result<(&'static Spec, Option<&str>), ConfigError> {
    let Some(letters) = argument
        .strip_prefix('-')
        .filter(|letters| letters.is_ascii() && !letters.is_empty())
    else {
        return Err(ConfigError(format!(
            "too many positional options have been specified on the command line: {argument}"
        )));
    };
    let spec = OPTIONS
        .iter()
        .find(|spec| spec.short != 0 && spec.short == letters.as_bytes()[0])
        .ok_or_else(|| unrecognised(argument))?;
    let value = match spec.kind {
        Kind::Level => Some(letters),
        _ => Some(&letters[1..]).filter(|value| !value.is_empty()),
    };
    Ok((spec, value))
}

fn unrecognised(argument: &str) -> ConfigError {
    let name = argument.trim_start_matches('-').split('=').next().unwrap_or_default();
    let flags = OPTIONS
        .iter()
        .map(|spec| spec.flag)
        .chain(ALIASES.iter().map(|(flag, ..)| *flag));
    let meant = suggestion::question(name, flags, "--");
    ConfigError(format!(
        "Error parsing command line: unrecognised option '{argument}'{meant}\ntry 'tenond --help' for more information"
    ))
}
