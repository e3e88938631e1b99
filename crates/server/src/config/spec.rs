//! What an option is: its names, what it takes, what it means.

/// What an option takes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// Any text but the empty one.
    Text,
    /// Any text.
    TextOrEmpty,
    /// One of these words.
    OneOf(&'static [&'static str]),
    /// An integer between the bounds, both included. Text that begins with 0 is octal.
    Integer(i64, i64),
    /// A number between the bounds, both included.
    Number(f64, f64),
    /// `true` or `false` in YAML; on the command line the flag alone means true, `--flag=false` false.
    Boolean,
    /// A count of `-v`s, or a number behind `--verbose`; `0` to `5`.
    Level,
    /// `name=value`, or a map in YAML; may be given several times.
    Pairs,
    /// Command line only: what the program shall do instead of serving.
    Action,
    /// Known in MongoDB, not built here. The first text is what it would switch on; the words are values that are
    /// harmless because they switch it off.
    NotBuilt(&'static str, &'static [&'static str]),
    /// Accepted without effect; the text is the start-up warning.
    NoEffect(&'static str),
}

/// One option.
#[derive(Clone, Copy, Debug)]
pub struct Spec {
    /// Dotted name in YAML; empty when it is for the command line only.
    pub yaml: &'static str,
    /// Name on the command line without dashes; empty when it is for YAML only.
    pub flag: &'static str,
    /// One-letter form, or 0.
    pub short: u8,
    /// What it takes.
    pub kind: Kind,
    /// The default in words.
    pub default: &'static str,
    /// Its meaning, one line.
    pub help: &'static str,
}

impl Spec {
    /// How error messages name it: as the user may have written it.
    pub fn name(&self) -> String {
        match (self.yaml, self.flag) {
            ("", flag) => format!("--{flag}"),
            (yaml, "") => yaml.to_owned(),
            (yaml, flag) => format!("{yaml} (--{flag})"),
        }
    }

    /// The key under which a value is kept: the YAML name, or the flag of what has none.
    pub fn key(&self) -> &'static str {
        if self.yaml.is_empty() { self.flag } else { self.yaml }
    }

    /// True when the flag stands alone on the command line.
    pub fn takes_no_argument(&self) -> bool {
        // This one takes its value as an argument in MongoDB too.
        let takes_value = self.flag == "wiredTigerIndexPrefixCompression";
        let is_switch = match self.kind {
            Kind::Boolean | Kind::Action | Kind::Level => !takes_value,
            Kind::NotBuilt(_, harmless) => harmless == ["false"] || harmless == ["true"],
            _ => false,
        };
        is_switch || self.flag == "cpu"
    }
}

/// An option.
pub(super) const fn spec(
    yaml: &'static str,
    flag: &'static str,
    kind: Kind,
    default: &'static str,
    help: &'static str,
) -> Spec {
    Spec {
        yaml,
        flag,
        short: 0,
        kind,
        default,
        help,
    }
}

/// One that has a letter, too.
pub(super) const fn short(letter: u8, spec: Spec) -> Spec {
    Spec { short: letter, ..spec }
}

/// One of MongoDB's that is refused, unless it has one of the `harmless` values: `what` is not built.
pub(super) const fn not_built(
    yaml: &'static str,
    flag: &'static str,
    harmless: &'static [&'static str],
    what: &'static str,
) -> Spec {
    spec(yaml, flag, Kind::NotBuilt(what, harmless), "", "not built")
}
