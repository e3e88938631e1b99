//! The command line: `--name value`, `--name=value`, `-f value`, `-vvv`.

use super::ConfigError;
use super::options::{ALIASES, Kind, OPTIONS, Spec, by_flag, by_yaml};
use super::refused::FLAGS_NOT_BUILT;
use super::suggestion;
use super::values::{Values, not_built};

/// Reads the arguments behind the program's name.
pub fn parse(arguments: &[String]) -> Result<Values, ConfigError> {
    let mut values = Values::default();
    let mut seen: Vec<&str> = Vec::new();
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
            seen.push(name);
            let spec = by_yaml(yaml).ok_or_else(|| unrecognised(argument))?;
            values.set(spec, value)?;
            continue;
        }
        if let Some((_, what)) = FLAGS_NOT_BUILT.iter().find(|(flag, _)| *flag == name) {
            return Err(not_built(&format!("--{name}"), what));
        }
        let spec = by_flag(name).ok_or_else(|| unrecognised(argument))?;
        if seen.contains(&spec.flag) && !matches!(spec.kind, Kind::Pairs | Kind::Level) {
            return Err(ConfigError(format!(
                "option '--{}' cannot be specified more than once",
                spec.flag
            )));
        }
        seen.push(spec.flag);
        let text = match (attached, spec.kind) {
            (Some(value), _) => value,
            (None, Kind::Level) => "v",
            (None, _) if spec.takes_no_argument() => "true",
            (None, _) => rest
                .next()
                .ok_or_else(|| ConfigError(format!("the required argument for option '--{}' is missing", spec.flag)))?,
        };
        values.set(spec, text)?;
    }
    contradictions(&seen)?;
    Ok(values)
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

fn contradictions(seen: &[&str]) -> Result<(), ConfigError> {
    for (one, other) in [("journal", "nojournal"), ("bind_ip", "bind_ip_all")] {
        if seen.contains(&one) && seen.contains(&other) {
            return Err(ConfigError(format!(
                "Can't specify both --{one} and --{other} options."
            )));
        }
    }
    Ok(())
}
